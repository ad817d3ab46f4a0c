/* A conversion by many processes: its bytes are those of one process, and what must not be put
   together is not. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "t.h"
#include "option.h"
#include "memio.h"
#include "tree.h"
#include "bad.h"

#define TP2 "tests/data/nanotron/tp2_pp1_dp1/ckpt"
#define IN "/w/in"
#define OUT "/w/out"
#define PARTS "/w/.out.ckptresume-parts"
#define TEMP "/w/.out.ckptresume-tmp"
#define NOWHERE CKR_NO_OFFSET

static memio mem;
static faulty fault;
static ckr_env env;
static ckr_error err;

/* What the next process does: all its calls begin with a plan of its own. */
static ckr_target to;
static ckr_parts of;
static ckr_io io;

static void begin(const char *from)
{
    const ckr_target none = CKR_ZERO;
    const ckr_parts three = { 3, false, 0 };
    memio_free(&mem);
    if (from) memio_load(&mem, from, IN);
    to = none;
    to.mode = CKR_MODE_CONTINUE;
    to.topology.tp = 1;
    to.topology.zero = -1;
    of = three;
    io = memio_io(&mem);
    io.lock_fn = memio_lock;
    io.unlock_fn = memio_unlock;
}

typedef enum verb { BEGIN, PART, COMMIT, WRITE } verb;

/* One process: opens, plans, does one thing. */
static ckr_result process(verb v, uint32_t part, ckr_receipt *receipt)
{
    ckr_open_desc d = CKR_ZERO;
    ckr_ckpt *c = NULL;
    ckr_plan *p = NULL;
    ckr_result r;
    env = faulty_env(&fault, io);
    env.io.room_fn = io.room_fn;
    d.env = &env;
    r = ckr_ckpt_open(IN, &d, &c, &err);
    if (r == CKR_OK) r = ckr_plan_create(c, &to, 0, &p, &err);
    if (r == CKR_OK)
        r = v == BEGIN  ? ckr_plan_begin(p, OUT, &of, &err)
          : v == PART   ? ckr_plan_write_part(p, OUT, part, &of, &err)
          : v == COMMIT ? ckr_plan_commit(p, OUT, &of, receipt, &err)
                        : ckr_plan_write(p, OUT, receipt, &err);
    ckr_plan_free(p);
    ckr_ckpt_close(c);
    CHECK(!fault.blocks && !fault.handles && !fault.bad_size && !mem.open_handles && !fault.locks);
    return r;
}

static void done(ckr_result r, const char *label)
{
    t_check(r == CKR_OK, __FILE__, __LINE__, "%s: %s: %s: %s: %s", label, ckr_item_name(err.item),
            err.file, err.where, err.text);
}

/* This refusal, with something to do about it, and no output. */
static void not_done(ckr_result r, const char *label, ckr_item item, const char *file,
                     const char *where)
{
    bad_is(r, &err, label, bad(item, file, NOWHERE, where));
    t_check(err.remedy[0] != 0, __FILE__, __LINE__, "%s: nothing to do about it", label);
    t_check(!memio_find(&mem, OUT), __FILE__, __LINE__, "%s: there is an output", label);
}

static void all_parts(void)
{
    uint32_t i;
    for (i = 0; i < of.n; i++) done(process(PART, i, NULL), "part");
}

/* One byte of a file is another one. */
static void turn(const char *path, size_t at)
{
    memio_file *f = memio_find(&mem, path);
    if (CHECK(f && f->size > at)) f->data[at] ^= 1;
}

/* ---- what must not be put together ---- */

static void numbers(void)
{
    begin(TP2);
    not_done(process(PART, 3, NULL), "part 3 of 3", CKR_ITEM_PART_NUMBER, "", "part");
    of.n = 0;
    not_done(process(PART, 0, NULL), "no parts", CKR_ITEM_PART_NUMBER, "", "parts");
    not_done(process(COMMIT, 0, NULL), "no parts", CKR_ITEM_PART_NUMBER, "", "parts");
    not_done(process(BEGIN, 0, NULL), "no parts", CKR_ITEM_PART_NUMBER, "", "parts");
    of.n = 1048577;
    not_done(process(PART, 0, NULL), "too many", CKR_ITEM_PART_NUMBER, "", "parts");
    CHECK(!memio_find(&mem, PARTS));
}

static void another_plan(void)
{
    begin(TP2);
    done(process(PART, 0, NULL), "part 0");
    to.topology.tp = 2;
    not_done(process(PART, 1, NULL), "another topology", CKR_ITEM_PART_PLAN, PARTS "/plan", "");
    not_done(process(COMMIT, 0, NULL), "another topology", CKR_ITEM_PART_PLAN, PARTS "/1", "");
    to.topology.tp = 1;
    of.n = 4;
    not_done(process(PART, 1, NULL), "4 parts", CKR_ITEM_PART_PLAN, PARTS "/plan", "");
    not_done(process(COMMIT, 0, NULL), "4 parts", CKR_ITEM_PART_PLAN, PARTS "/1", "");
    of.n = 3;
    done(process(PART, 1, NULL), "part 1");
    done(process(PART, 2, NULL), "part 2");
    done(process(COMMIT, 0, NULL), "commit");
}

static void missing(void)
{
    begin(TP2);
    not_done(process(COMMIT, 0, NULL), "no parts", CKR_ITEM_PART_MISSING, PARTS, "");
    done(process(PART, 0, NULL), "part 0");
    done(process(PART, 2, NULL), "part 2");
    not_done(process(COMMIT, 0, NULL), "no part 1", CKR_ITEM_PART_MISSING, PARTS "/2", "");
    done(process(PART, 1, NULL), "part 1");
    memio_find(&mem, PARTS "/3")->size -= 8;
    not_done(process(COMMIT, 0, NULL), "half of part 2", CKR_ITEM_PART_MISSING, PARTS "/3", "");
    of.go_on = true;
    done(process(PART, 2, NULL), "part 2");
    done(process(COMMIT, 0, NULL), "commit");
}

static void another_version(void)
{
    begin(TP2);
    done(process(PART, 0, NULL), "part 0");
    turn(PARTS "/plan", 8);
    not_done(process(PART, 1, NULL), "plan", CKR_ITEM_PART_VERSION, PARTS "/plan", "");
    turn(PARTS "/plan", 8);
    turn(PARTS "/1", 8);
    of.go_on = true;
    not_done(process(PART, 0, NULL), "record", CKR_ITEM_PART_VERSION, PARTS "/1", "");
    not_done(process(COMMIT, 0, NULL), "record", CKR_ITEM_PART_VERSION, PARTS "/1", "");
}

static void changed_input(void)
{
    size_t i;
    begin(TP2);
    done(process(PART, 0, NULL), "part 0");
    for (i = 0; i < mem.n && !strstr(mem.files[i]->path, ".safetensors"); i++) {}
    mem.files[i]->changed++;
    not_done(process(PART, 1, NULL), "an input", CKR_ITEM_PART_INPUT, PARTS "/plan", "");
    mem.files[i]->changed--;
    done(process(PART, 1, NULL), "part 1");
    done(process(PART, 2, NULL), "part 2");
    mem.files[i]->changed++;
    not_done(process(COMMIT, 0, NULL), "an input", CKR_ITEM_PART_INPUT, PARTS "/1", "");
    mem.files[i]->changed--;
    done(process(COMMIT, 0, NULL), "commit");
}

static void no_record(void)
{
    begin(TP2);
    all_parts();
    turn(PARTS "/2", 0);
    not_done(process(COMMIT, 0, NULL), "no record", CKR_ITEM_PART_RECORD, PARTS "/2", "");
}

static void elsewhere(void)
{
    begin(TP2);
    of.nonce = 7;
    not_done(process(PART, 0, NULL), "not begun", CKR_ITEM_PART_ELSEWHERE, PARTS, "");
    done(process(BEGIN, 0, NULL), "begin");
    done(process(PART, 0, NULL), "part 0");
    of.nonce = 8;
    not_done(process(PART, 1, NULL), "another nonce", CKR_ITEM_PART_ELSEWHERE, PARTS, "");
    of.nonce = 7;
    done(process(PART, 1, NULL), "part 1");
    of.nonce = 0;
    done(process(PART, 2, NULL), "part 2");
    done(process(COMMIT, 0, NULL), "commit");
}

int main(int argc, char **argv)
{
    static const ckr_item never[] = { CKR_ITEM_OK };
    t_begin(argc, argv);
    RUN(numbers);
    RUN(another_plan);
    RUN(missing);
    RUN(another_version);
    RUN(changed_input);
    RUN(no_record);
    RUN(elsewhere);
    if (!t_now.only) bad_all_seen(BAD_PARTS, never);
    memio_free(&mem);
    return t_end();
}
