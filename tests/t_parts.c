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
#define ZERO "tests/data/nanotron/tp2_pp1_dp2_zero1_bf16_master/ckpt"
#define NORM "model.final_layer_norm.pp_block.weight"
#define IN "/w/in"
#define OUT "/w/out"
#define QKV "model.decoder.0.pp_block.attn.qkv_proj.weight"
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
static const char *from, *out = OUT;
static uint64_t max_bytes;

/* The call is cancelled when it has told so many times how far it is; 0: it is not. */
static struct { unsigned long at, n; uint64_t done, total; bool back; } told;

static bool heard(void *user, uint64_t done, uint64_t total)
{
    (void)user;
    told.back = told.back || done < told.done || done > total;
    told.done = done;
    told.total = total;
    return ++told.n != told.at;
}

static unsigned long n_told_anew;

static void told_anew(void *user, const ckr_error *what)
{
    (void)user;
    bad_is(what->code, what, "log", bad(CKR_ITEM_PART_ANEW, TEMP, NOWHERE, ""));
    n_told_anew++;
}

static void begin(const char *path)
{
    const ckr_target none = CKR_ZERO;
    const ckr_parts three = { 3, false, 0 };
    memio_free(&mem);
    memset(&mem, 0, sizeof mem);
    if (path) memio_load(&mem, path, IN);
    from = IN;
    out = OUT;
    max_bytes = 0;
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
    env.progress_fn = heard;
    env.log_fn = told_anew;
    told.n = 0;
    told.done = told.total = 0;
    told.back = false;
    d.env = &env;
    r = ckr_ckpt_open(from, &d, &c, &err);
    if (r == CKR_OK) r = ckr_plan_create(c, &to, max_bytes, &p, &err);
    if (r == CKR_OK)
        r = v == BEGIN  ? ckr_plan_begin(p, out, &of, &err)
          : v == PART   ? ckr_plan_write_part(p, out, part, &of, &err)
          : v == COMMIT ? ckr_plan_commit(p, out, &of, receipt, &err)
                        : ckr_plan_write(p, out, receipt, &err);
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

/* Names and bytes below a path, in any order. */
static uint64_t sum_of(const char *path)
{
    const size_t skip = strlen(path);
    uint64_t sum = 0;
    size_t i;
    for (i = 0; i < mem.n; i++) {
        const memio_file *f = mem.files[i];
        if (strcmp(f->path, path) && !memio_below(f->path, path)) continue;
        sum += ckr__hash_bytes(f->path + skip, strlen(f->path) - skip) * 3 +
               (f->is_dir ? 1 : ckr__hash_bytes(f->data, f->size));
    }
    return sum;
}

/* What one process makes of it, which goes again; 0: it fails. */
static uint64_t whole(ckr_receipt *receipt)
{
    uint64_t sum = 0;
    if (CHECK_OK(process(WRITE, 0, receipt), &err)) sum = sum_of(out);
    memio_remove(&mem, out);
    CHECK(sum != 0);
    return sum;
}

/* The output is that, and nothing lies beside it. */
static void is_whole(uint64_t sum, const char *label)
{
    size_t i;
    t_check(sum_of(out) == sum, __FILE__, __LINE__, "%s: another output", label);
    for (i = 0; i < mem.n; i++)
        t_check(!strstr(mem.files[i]->path, ".ckptresume-"), __FILE__, __LINE__, "%s: %s is left",
                label, mem.files[i]->path);
    CHECK_INT(mem.early, 0);
}

static void same_receipt(const ckr_receipt *a, const ckr_receipt *b)
{
    CHECK_INT(a->n_files, b->n_files);
    CHECK_INT(a->bytes_read, b->bytes_read);
    CHECK_INT(a->bytes_written, b->bytes_written);
    CHECK(!memcmp(a->digest, b->digest, 16));
    CHECK(!memcmp(a->digest_written, b->digest_written, 16));
}

/* One byte of a file is another one. */
static void turn(const char *path, size_t at)
{
    memio_file *f = memio_find(&mem, path);
    if (CHECK(f && f->size > at)) f->data[at] ^= 1;
}

/* ---- the bytes of one process ---- */

typedef struct row {
    const char *from, *dialect;
    uint32_t    tp, pp, dp;
} row;

static void row_begin(const row *x)
{
    begin(x->from);
    to.topology.tp = x->tp;
    to.topology.pp = x->pp;
    to.topology.dp = x->dp;
    to.dialect = x->dialect;
}

static const row rows[] = {
    { ZERO, NULL, 1, 0, 4 },
    { "tests/data/nanotron/v04_pp2_dp2_zero1/ckpt", NULL, 0, 1, 0 },
    { "tests/data/nanotron/tp1_pp2_dp1_tied/ckpt", "torch", 1, 1, 0 },
    { "tests/data/dcp/tt_single", NULL, 0, 0, 3 },
    { "tests/data/megatron/dr_pp2_vpp2/ckpt", NULL, 1, 0, 0 },
    { "tests/data/megatron/legacy_tp2_dp2_distopt/ckpt", NULL, 1, 0, 0 },
    { "tests/data/deepspeed/pipe16/ckpt", NULL, 0, 0, 3 },
    { "tests/data/fsdp/acc_fsdp1_sharded_w2/ckpt", NULL, 0, 0, 3 },
    { "tests/data/verl/fsdp2_w4_hsdp/ckpt", NULL, 0, 0, 3 },
    { "tests/data/accelerate/acc_w2_bin_tied_bf16/ckpt", NULL, 0, 0, 1 },
    { "tests/data/llmc/uneven/ckpt", NULL, 0, 0, 3 }
};

/* Any number of parts, each of its own process, some with little memory, the first one last. */
static void every_dialect(void)
{
    static const uint32_t numbers[] = { 1, 3, 16 };
    ckr_receipt want, have;
    size_t i, k;
    uint32_t m;
    uint64_t sum;
    for (i = 0; i < sizeof rows / sizeof *rows; i++) {
        row_begin(&rows[i]);
        sum = whole(&want);
        for (k = 0; k < sizeof numbers / sizeof *numbers; k++) {
            of.n = numbers[k];
            for (m = of.n; m-- > 0;) {
                max_bytes = m % 2 ? 1 << 20 : 0;
                done(process(PART, m, NULL), rows[i].from);
                CHECK(!memio_find(&mem, OUT) && !told.back && told.done == told.total);
            }
            memset(&have, 0xcc, sizeof have);
            done(process(COMMIT, 0, &have), rows[i].from);
            is_whole(sum, rows[i].from);
            same_receipt(&have, &want);
            memio_remove(&mem, OUT);
        }
    }
}

/* One file of four tensors, of `n` elements the first. */
static void plain(int64_t n)
{
    static float data[1300001];
    const int64_t shape[1] = { n }, odd[1] = { n + 3 }, few[2] = { 3, 5 };
    ckr_open_desc d = CKR_ZERO;
    ckr_ckpt *c = NULL;
    ckr_plan *p = NULL;
    t_rng r = { 27 };
    size_t i;
    begin(NULL);
    memio_add(&mem, "/w", true);
    for (i = 0; i < sizeof data / sizeof *data; i++) data[i] = (float)t_range(&r, -999, 999);
    t_little(data, sizeof data, 4);
    env = faulty_env(&fault, io);
    d.env = &env;
    to.topology.tp = 0;
    if (CHECK_OK(ckr_ckpt_create(&d, &c, &err), &err)) {
        CHECK_OK(ckr_ckpt_put(c, "a", "param", CKR_DTYPE_F32, 1, shape, data, &err), &err);
        CHECK_OK(ckr_ckpt_put(c, "b", "param", CKR_DTYPE_U8, 1, odd, data + n, &err), &err);
        CHECK_OK(ckr_ckpt_put(c, "c", "param", CKR_DTYPE_F64, 2, few, data + 9, &err), &err);
        CHECK_OK(ckr_ckpt_put(c, "d", "param", CKR_DTYPE_BF16, 1, shape, data + 99, &err), &err);
        if (CHECK_OK(ckr_plan_create(c, &to, 0, &p, &err), &err))
            CHECK_OK(ckr_plan_write(p, IN, NULL, &err), &err);
    }
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

/* As many parts as bytes, of which most have nothing to do; and one more. */
static void parts_of_a_byte(void)
{
    ckr_receipt want;
    uint64_t sum;
    plain(5);
    sum = whole(&want);
    of.n = (uint32_t)want.bytes_written;
    all_parts();
    done(process(COMMIT, 0, NULL), "commit");
    is_whole(sum, "as many parts as bytes");
    memio_remove(&mem, OUT);
    of.n++;
    not_done(process(PART, 0, NULL), "more parts than bytes", CKR_ITEM_PART_NUMBER, "", "parts");
}

/* What is there is not taken for granted, and goes only with force, when all is done. */
static void over_another(void)
{
    uint64_t sum, old;
    begin(TP2);
    sum = whole(NULL);
    all_parts();
    memio_put(&mem, OUT "/old/file", "what was there", 14);
    old = sum_of(OUT);
    bad_is(process(PART, 0, NULL), &err, "exists", bad(CKR_ITEM_OUTPUT_EXISTS, OUT, NOWHERE, ""));
    bad_is(process(COMMIT, 0, NULL), &err, "exists", bad(CKR_ITEM_OUTPUT_EXISTS, OUT, NOWHERE, ""));
    to.force = true;
    done(process(PART, 1, NULL), "part 1");
    CHECK(sum_of(OUT) == old);
    done(process(COMMIT, 0, NULL), "commit");
    is_whole(sum, "forced");
}

/* The step's own directory, and one file. */
static void other_outputs(void)
{
    uint64_t sum;
    begin(TP2);
    memio_add(&mem, "/w/run", true);
    out = "/w/run/13";
    sum = whole(NULL);
    all_parts();
    done(process(COMMIT, 0, NULL), "commit");
    is_whole(sum, "a step");
    begin(TP2);
    to.dialect = "safetensors";
    sum = whole(NULL);
    all_parts();
    CHECK(!memio_find(&mem, OUT));
    done(process(COMMIT, 0, NULL), "commit");
    is_whole(sum, "one file");
    memio_put(&mem, OUT, "what was there", 14);
    to.force = true;
    all_parts();
    CHECK_INT(memio_find(&mem, OUT)->size, 14);
    done(process(COMMIT, 0, NULL), "commit");
    is_whole(sum, "one file for another");
}

/* ---- going on ---- */

/* 5 MB in one file: parts of many steps. */
static uint64_t large(const char *dialect)
{
    plain(650001);
    to.dialect = dialect;
    of.n = 1;
    return whole(NULL);
}

/* Cancelled at every step in turn: what was written is not written again, and is looked at. */
static void cancelled(void)
{
    static const char *const dialects[] = { "torch", "safetensors" };
    size_t i;
    for (i = 0; i < 2; i++) {
        const uint64_t sum = large(dialects[i]);
        unsigned long long all, n = 0, runs = 0;
        ckr_result r;
        done(process(PART, 0, NULL), "part");
        all = fault.written;
        CHECK(all > 4000000 && told.n > 15);
        of.go_on = true;
        done(process(PART, 0, NULL), "again");
        CHECK(fault.written == 0 && told.done == told.total && !told.back);
        memio_remove(&mem, PARTS);
        do {
            told.at = 1 + 5 * ++runs;
            r = process(PART, 0, NULL);
            CHECK(!told.back);
            n += fault.written;
            told.at = 0;
            if (r != CKR_OK)
                bad_is(r, &err, "cancelled", bad(CKR_ITEM_CANCELLED, "", NOWHERE, ""));
            CHECK(!memio_find(&mem, OUT));
            if (r != CKR_OK)
                not_done(process(COMMIT, 0, NULL), "cancelled", CKR_ITEM_PART_MISSING, PARTS "/1",
                         "");
        } while (r != CKR_OK && runs < 99);
        CHECK(runs > 3 && told.done == told.total);
        t_check(n < all + runs * (600 << 10), __FILE__, __LINE__,
                "%llu bytes were written in %llu runs, for %llu", n, runs, all);
        done(process(COMMIT, 0, NULL), "commit");
        is_whole(sum, dialects[i]);
    }
}

/* Without go_on a part begins anew: all its bytes are written, and no record of before counts. */
static void anew(void)
{
    const uint64_t sum = large("torch");
    unsigned long long all;
    done(process(PART, 0, NULL), "part");
    all = fault.written;
    told.at = 8;
    bad_is(process(PART, 0, NULL), &err, "cancelled", bad(CKR_ITEM_CANCELLED, "", NOWHERE, ""));
    told.at = 0;
    not_done(process(COMMIT, 0, NULL), "begun anew", CKR_ITEM_PART_MISSING, PARTS "/1", "");
    done(process(PART, 0, NULL), "part");
    CHECK(fault.written + 104 >= all);             /* but for `plan`                     */
    done(process(COMMIT, 0, NULL), "commit");
    is_whole(sum, "anew");
}

/* Bytes of the output that are no longer what a record says are found, and they alone are written
   again; the records of a part, too, where one is damaged. */
static void verified(void)
{
    const uint64_t sum = large("torch");
    t_rng r = { 5 };
    int i;
    of.n = 2;
    all_parts();
    of.go_on = true;
    for (i = 0; i < 12; i++) {
        memio_file *f = memio_find(&mem, PARTS "/out");
        const size_t at = (size_t)t_range(&r, 0, (int64_t)f->size - 1);
        unsigned long long n = 0;
        if (i == 0) f->size -= 5000;
        else f->data[at] ^= 0x10;
        done(process(PART, 0, NULL), "part 0");
        n = fault.written;
        done(process(PART, 1, NULL), "part 1");
        n += fault.written;
        /* the directory of a zip is written when all is known */
        t_check(n > 0 || at + 5000 > f->size || at < 1000, __FILE__, __LINE__,
                "byte %lu was not seen", (unsigned long)at);
        CHECK(n < 600 << 10);
    }
    for (i = 0; i < 12; i++) {
        turn(PARTS "/2", (size_t)t_range(&r, 104, (int64_t)memio_find(&mem, PARTS "/2")->size - 1));
        done(process(PART, 1, NULL), "part 1");
    }
    done(process(COMMIT, 0, NULL), "commit");
    is_whole(sum, "verified");
}

/* What a test looks at, or does, before a call of the memory's own. */
static struct {
    const char *fails;         /* the directory whose sync does                         */
    unsigned long records, early, tensors;     /* writes, tensors: into files of a dcp        */
    unsigned long renames;     /* of what becomes the output, until the process dies; 0: it lives */
    bool named;                /* it dies behind that, not before                       */
    size_t left;               /* removals until the process dies; 0: it lives          */
    bool dead;
} watch;

/* All that lies below a directory, or is that file, has a name that lasts. */
static bool named(const char *path)
{
    size_t i;
    for (i = 0; i < mem.n; i++)
        if ((!strcmp(mem.files[i]->path, path) || memio_below(mem.files[i]->path, path)) &&
            !mem.files[i]->named)
            return false;
    return true;
}

static int32_t watch_write(void *user, void *file, uint64_t offset, const void *src, size_t n)
{
    const memio_file *f = (const memio_file *)file;
    const size_t dir = strlen(PARTS "/");
    if (watch.dead) return EIO;
    watch.tensors += strstr(f->path, ".distcp") != NULL;
    if (!strncmp(f->path, PARTS "/", dir) && f->path[dir] >= '1' && f->path[dir] <= '9' && offset) {
        watch.records++;
        watch.early += !f->named || !named(PARTS "/out") || !memio_find(&mem, PARTS)->named;
    }
    return memio_write(user, file, offset, src, n);
}

static int32_t watch_path(void *user, ckr_path_op op, const char *path, const char *to)
{
    if (op == CKR_PATH_SYNC_DIR && watch.fails && !strcmp(path, watch.fails)) return EIO;
    if (to && !strcmp(to, OUT)) watch.early += !named(TEMP "/done");
    if (to && !strcmp(to, OUT) && !watch.dead && watch.renames && --watch.renames == 0) {
        watch.dead = true;
        return watch.named ? memio_path(user, op, path, to) : EIO;
    }
    if (op == CKR_PATH_REMOVE && !watch.dead && watch.left && memio_find(&mem, path) &&
        !memio_find(&mem, path)->is_dir)
        watch.dead = --watch.left == 0;
    else if (watch.dead)
        return EIO;
    return memio_path(user, op, path, to);
}

static void watch_begin(const char *path)
{
    memset(&watch, 0, sizeof watch);
    begin(path);
    io.write_fn = watch_write;
    io.path_fn = watch_path;
}

/* A distributed checkpoint, an archive of each tensor: CRCs behind the tensors and directories are
   written by the part, with them, so that the commit writes few bytes; a part that goes on sees
   that they are what they should be. */
static void late_bytes(void)
{
    uint64_t sum;
    size_t i, n = 0;
    watch_begin("tests/data/dcp/tt_single");
    to.topology.tp = 0;
    sum = whole(NULL);
    of.n = 2;
    all_parts();
    CHECK(watch.tensors > 2);
    watch.tensors = 0;
    of.go_on = true;
    for (i = 0; i < mem.n; i++) {
        memio_file *f = mem.files[i];
        size_t at;
        if (strncmp(f->path, PARTS "/out/", strlen(PARTS "/out/")) || !strstr(f->path, ".distcp"))
            continue;
        for (at = f->size > 400 ? f->size - 400 : 0; at < f->size; at += 9, n++) {
            f->data[at] ^= 1;
            done(process(PART, 0, NULL), "part 0");
            done(process(PART, 1, NULL), "part 1");
        }
    }
    CHECK(n > 40 && watch.tensors >= n);
    watch.tensors = 0;
    done(process(COMMIT, 0, NULL), "commit");
    is_whole(sum, "late bytes");
    t_check(watch.tensors < 5, __FILE__, __LINE__, "the commit wrote %lu times", watch.tensors);
}

/* The same in one step, where tensors are larger than a window, and their late bytes are written
   and looked at by themselves. */
static void late_of_windows(void)
{
    uint64_t sum;
    memio_file *f;
    size_t at;
    plain(30001);
    io.write_fn = watch_write;
    to.dialect = "dcp";
    of.n = 1;
    max_bytes = 1 << 18;
    sum = whole(NULL);
    done(process(PART, 0, NULL), "part");
    f = memio_find(&mem, PARTS "/out/__0_0.distcp");
    if (!CHECK(f && f->size < 256 << 10)) return;
    of.go_on = true;
    for (at = 122000; at < 123300; at += 7) {      /* behind the first one               */
        f->data[at] ^= 1;
        done(process(PART, 0, NULL), "part");
        t_check(fault.written > 0, __FILE__, __LINE__, "byte %lu was not seen", (unsigned long)at);
    }
    watch.tensors = 0;
    done(process(COMMIT, 0, NULL), "commit");
    CHECK_INT(watch.tensors, 0);
    is_whole(sum, "late bytes of windows");
}

/* Parts have their records, and a file's begin, or an end that is not a tensor's, is not there: no
   output. */
static void ends_lost(void)
{
    static const char *const dialects[] = { "safetensors", "dcp", "torch" };
    size_t i;
    for (i = 1; i < 6; i++) {
        const uint64_t sum = large(dialects[i / 2]);
        memio_file *f;
        char lost[200];
        size_t k;
        of.n = 3;
        all_parts();
        for (k = 0; k < mem.n && (strncmp(mem.files[k]->path, PARTS "/out", strlen(PARTS "/out")) ||
                                  mem.files[k]->size < 4000000); k++) {}
        if (!CHECK(k < mem.n)) return;
        f = mem.files[k];
        snprintf(lost, sizeof lost, "%s%s", TEMP, f->path + strlen(PARTS));
        memset(f->data + (i % 2 ? 100 : f->size - 1000), 0, 900);
        not_done(process(COMMIT, 0, NULL), dialects[i / 2], CKR_ITEM_PART_RECORD, lost, "");
        of.go_on = true;
        all_parts();
        done(process(COMMIT, 0, NULL), "commit");
        is_whole(sum, dialects[i / 2]);
    }
}

/* The system may forget a name that was made until its directory is durable, too: no record tells
   of a file before, and none counts any more when the output may have gone. */
static void names_last(void)
{
    static const char *const dialects[] = { NULL, "safetensors" };
    size_t i;
    for (i = 0; i < 2; i++) {
        watch_begin(TP2);
        to.dialect = dialects[i];
        all_parts();
        CHECK(watch.records >= 3 && !watch.early);
        done(process(COMMIT, 0, NULL), "commit");
        CHECK_INT(watch.early, 0);
    }
}

/* The output has its name, and that it stays is not known: its parts are gone with it, and another
   commit does not find them in holes. */
static void named_and_failed(void)
{
    uint64_t sum;
    watch_begin(TP2);
    sum = whole(NULL);
    all_parts();
    watch.fails = "/w";
    bad_is(process(COMMIT, 0, NULL), &err, "a sync", bad(CKR_ITEM_IO_SYNC, "/w", NOWHERE, ""));
    watch.fails = NULL;
    CHECK(sum_of(OUT) == sum);
    to.force = true;
    done(process(PART, 0, NULL), "part 0");
    bad_is(process(COMMIT, 0, NULL), &err, "the others",
           bad(CKR_ITEM_PART_MISSING, PARTS "/2", NOWHERE, ""));
    CHECK(sum_of(OUT) == sum);
    done(process(PART, 1, NULL), "part 1");
    done(process(PART, 2, NULL), "part 2");
    done(process(COMMIT, 0, NULL), "commit");
    is_whole(sum, "again");
}

/* A commit is killed when all is said and the output has no name yet, or just has it; there was one
   before, which the two exchange, or there was none. What comes next ends it. */
static void killed_at_the_name(void)
{
    int n;
    for (n = 0; n < 16; n++) {
        uint64_t sum;
        watch_begin(n & 8 ? "tests/data/dcp/tt_single" : TP2);
        if (n & 8) to.topology.tp = 0;
        to.dialect = n & 8 ? NULL : "safetensors";
        sum = whole(NULL);
        to.force = n & 1;
        if (n & 1) memio_put(&mem, OUT "/before", "an output", 9);
        all_parts();
        watch.renames = 1;
        watch.named = n & 2;
        CHECK(process(COMMIT, 0, NULL) != CKR_OK && watch.dead);
        watch.dead = false;
        if (n & 2) {
            CHECK(sum_of(OUT) == sum);
            to.force = true;
            all_parts();
            done(process(COMMIT, 0, NULL), "commit");
            is_whole(sum, "it has its name");
            continue;
        }
        CHECK(!memio_find(&mem, PARTS) && memio_find(&mem, TEMP "/done") &&
              !memio_find(&mem, TEMP "/plan"));
        of.go_on = true;
        if (n & 4) {
            done(process(PART, 1, NULL), "part 1");
            CHECK_INT(fault.written, 0);
        }
        done(process(COMMIT, 0, NULL), "commit");
        is_whole(sum, "it is ended");
    }
}

/* Who begins anew dies while the old parts go, by either name: what is left of them does not count,
   and is not of the output. */
static void cleared_in_half(void)
{
    size_t n;
    uint64_t sum;
    for (n = 1; n < 40; n++) {
        watch_begin(TP2);
        to.dialect = n % 4 < 2 ? "safetensors" : NULL;
        sum = whole(NULL);
        all_parts();
        memio_put(&mem, PARTS "/out/stray", "another plan's", 14);
        if (n % 4 < 2) memio_remove(&mem, PARTS "/out/stray");
        if (n % 8 > 3) memio_path(&mem, CKR_PATH_RENAME, PARTS, TEMP);
        watch.left = n / 4 % 5 + 1;
        CHECK(process(n % 2 ? WRITE : BEGIN, 0, NULL) != CKR_OK && watch.dead);
        watch.dead = false;
        watch.left = 0;
        done(process(PART, 0, NULL), "part 0");
        if (process(COMMIT, 0, NULL) == CKR_OK) is_whole(sum, "half of it was removed");
        done(process(PART, 1, NULL), "part 1");
        done(process(PART, 2, NULL), "part 2");
        done(process(COMMIT, 0, NULL), "commit");
        is_whole(sum, "half of it was removed");
        CHECK(!memio_find(&mem, OUT "/stray"));
    }
}

/* A part that is written while others lie under the other name, of a commit that was killed or that
   runs, begins no directory of its own beside them. */
static void after_a_commit(void)
{
    uint64_t sum;
    void *lock;
    begin(TP2);
    sum = whole(NULL);
    all_parts();
    memio_path(&mem, CKR_PATH_RENAME, PARTS, TEMP);
    if (CHECK(memio_lock(&mem, TEMP, &lock) == 0)) {
        not_done(process(PART, 1, NULL), "it runs", CKR_ITEM_OUTPUT_BUSY, TEMP, "");
        not_done(process(COMMIT, 0, NULL), "it runs", CKR_ITEM_OUTPUT_BUSY, TEMP, "");
        CHECK(!memio_find(&mem, PARTS));
        memio_unlock(&mem, lock);
    }
    done(process(PART, 1, NULL), "it was killed");
    CHECK(!memio_find(&mem, TEMP));
    done(process(COMMIT, 0, NULL), "commit");
    is_whole(sum, "after a commit");
}

/* What a run of one process has left gives its room back to the first part. */
static void after_a_run(void)
{
    uint64_t sum;
    begin(TP2);
    sum = whole(NULL);
    memio_put(&mem, TEMP "/model/file", "half", 4);
    n_told_anew = 0;
    of.go_on = true;                               /* with that, it is told that none stays   */
    done(process(PART, 0, NULL), "part 0");
    CHECK_INT(n_told_anew, 1);
    CHECK(!memio_find(&mem, TEMP));
    of.go_on = false;
    memio_remove(&mem, PARTS);
    memio_put(&mem, TEMP "/model/file", "half", 4);
    done(process(PART, 0, NULL), "part 0");
    CHECK_INT(n_told_anew, 1);
    CHECK(!memio_find(&mem, TEMP));
    done(process(PART, 1, NULL), "part 1");
    done(process(PART, 2, NULL), "part 2");
    done(process(COMMIT, 0, NULL), "commit");
    is_whole(sum, "after a run");
    to.force = true;                               /* and a commit that was all but ended */
    all_parts();
    memio_put(&mem, TEMP "/done", "", 0);
    memio_put(&mem, TEMP "/out/13/file", "what was there", 14);
    done(process(BEGIN, 0, NULL), "begin");
    CHECK(!memio_find(&mem, TEMP));
    CHECK(!memio_find(&mem, PARTS "/1") && memio_find(&mem, PARTS "/plan"));
    memio_put(&mem, TEMP "/done", "", 0);
    all_parts();
    done(process(COMMIT, 0, NULL), "commit");
    is_whole(sum, "after a commit's end");
}

/* ckr_plan_write takes the place of parts that nobody writes. */
static void by_one_after_all(void)
{
    uint64_t sum;
    void *lock;
    begin(TP2);
    sum = whole(NULL);
    done(process(PART, 0, NULL), "part 0");
    if (CHECK(memio_lock(&mem, PARTS "/1", &lock) == 0)) {
        not_done(process(WRITE, 0, NULL), "a part runs", CKR_ITEM_OUTPUT_BUSY, PARTS "/1", "");
        memio_unlock(&mem, lock);
    }
    CHECK(memio_find(&mem, PARTS "/1") != NULL);
    done(process(WRITE, 0, NULL), "one process");
    is_whole(sum, "one process");
}

/* One process of many, on the disk. */
static ckr_result on_disk_part(const char *path, uint32_t i)
{
    ckr_open_desc d = CKR_ZERO;
    ckr_env system = CKR_ZERO;
    ckr_ckpt *c = NULL;
    ckr_plan *p = NULL;
    ckr_result r;
    system.parallel.n_threads = 3;
    d.env = &system;
    r = ckr_ckpt_open(ZERO, &d, &c, &err);
    if (r == CKR_OK) r = ckr_plan_create(c, &to, 0, &p, &err);
    if (r == CKR_OK)
        r = i < of.n ? ckr_plan_write_part(p, path, i, &of, &err)
          : i > of.n ? ckr_plan_write(p, path, NULL, &err)
                     : ckr_plan_commit(p, path, &of, NULL, &err);
    ckr_plan_free(p);
    ckr_ckpt_close(c);
    return r;
}

/* Seven processes at once, of three threads each, begin the directory together; a part that is
   locked on the disk is not written twice. */
static void on_disk(void)
{
    const char *tmp = t_tmpdir();
    char ref[600], path[600], record[700];
    const ckr_io disk = ckr__default_io();
    void *lock;
    uint32_t i;
    begin(NULL);
    to.topology.dp = 4;
    of.n = 7;
    snprintf(ref, sizeof ref, "%s/ref", tmp);
    snprintf(path, sizeof path, "%s/out", tmp);
    snprintf(record, sizeof record, "%s/.out.ckptresume-parts/4", tmp);
    done(on_disk_part(ref, of.n + 1), "one process");
#if defined(_WIN32)
    for (i = 0; i < of.n; i++) done(on_disk_part(path, i), "part");
#else
    {
        pid_t pids[7];
        for (i = 0; i < of.n; i++) {
            fflush(stdout);
            pids[i] = fork();
            if (pids[i] == 0) {
                done(on_disk_part(path, i), "part");
                fflush(stdout);
                _exit(err.code == CKR_OK ? 0 : 1);
            }
        }
        for (i = 0; i < of.n; i++) {
            int status = 1;
            waitpid(pids[i], &status, 0);
            CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        }
    }
#endif
    if (CHECK_INT(disk.lock_fn(disk.user, record, &lock), 0)) {
#if !defined(_WIN32)           /* NFS has no lock on what cannot be written */
        CHECK_INT(fcntl(*(int *)lock, F_GETFL) & O_ACCMODE, O_RDWR);
#endif
        bad_is(on_disk_part(path, 3), &err, "twice",
               bad(CKR_ITEM_OUTPUT_BUSY, record, NOWHERE, ""));
        bad_is(on_disk_part(path, of.n), &err, "not yet",
               bad(CKR_ITEM_OUTPUT_BUSY, record, NOWHERE, ""));
        disk.unlock_fn(disk.user, lock);
    }
    of.go_on = true;
    done(on_disk_part(path, 3), "again");
    done(on_disk_part(path, of.n), "commit");
    CHECK(os_same_tree(ref, path) && os_same_tree(path, ref));
    *strrchr(record, '/') = 0;
    CHECK(access(record, F_OK) != 0);
    t_remove_tree(tmp);
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
    not_done(process(COMMIT, 0, NULL), "another topology", CKR_ITEM_PART_PLAN, PARTS "/plan", "");
    to.topology.tp = 1;
    of.n = 4;
    not_done(process(PART, 1, NULL), "4 parts", CKR_ITEM_PART_PLAN, PARTS "/plan", "");
    not_done(process(COMMIT, 0, NULL), "4 parts", CKR_ITEM_PART_PLAN, PARTS "/plan", "");
    of.n = 3;
    done(process(PART, 1, NULL), "part 1");
    done(process(PART, 2, NULL), "part 2");
    done(process(COMMIT, 0, NULL), "commit");
}

/* Plans whose files have the same names and sizes, of a distributed checkpoint: numbers of the
   plan stand for its bytes. */
static void another_plan_of_this_size(void)
{
    static const ckr_dtype dtypes[] = { CKR_DTYPE_BF16, CKR_DTYPE_F16 };
    ckr_setting decay = { NULL, "weight_decay", "0.25" };
    begin("tests/data/dcp/tt_single");
    to.topology.tp = 0;
    to.topology.dp = 3;
    to.dtype = dtypes[0];
    done(process(PART, 0, NULL), "part 0");
    to.dtype = dtypes[1];
    not_done(process(PART, 1, NULL), "another dtype", CKR_ITEM_PART_PLAN, PARTS "/plan", "");
    memio_remove(&mem, PARTS);
    to.dtype = CKR_DTYPE_NONE;
    to.sets = &decay;
    to.n_sets = 1;
    done(process(PART, 0, NULL), "part 0");
    decay.value = "0.125";
    not_done(process(PART, 1, NULL), "another decay", CKR_ITEM_PART_PLAN, PARTS "/plan", "");
    decay.value = "0.25";
    done(process(PART, 1, NULL), "part 1");
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
    not_done(process(COMMIT, 0, NULL), "half a record", CKR_ITEM_PART_RECORD, PARTS "/3", "");
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
    uint64_t when;
    memio_file *f;
    size_t i;
    begin(TP2);
    when = memio_find(&mem, IN "/13/model_config.json")->changed;
    done(process(PART, 0, NULL), "part 0");
    for (i = 0; i < mem.n && !strstr(mem.files[i]->path, ".safetensors"); i++) {}
    mem.files[i]->changed++;
    not_done(process(PART, 1, NULL), "an input", CKR_ITEM_PART_INPUT, PARTS "/plan", "");
    mem.files[i]->changed--;
    done(process(PART, 1, NULL), "part 1");
    done(process(PART, 2, NULL), "part 2");
    mem.files[i]->changed++;
    not_done(process(COMMIT, 0, NULL), "an input", CKR_ITEM_PART_INPUT, PARTS "/plan", "");
    mem.files[i]->changed--;
    f = memio_find(&mem, IN "/13/model_config.json");
    memio_write(&mem, f, f->size, "\n", 1);
    f->changed = 0;                                /* longer, at no known time           */
    /* it is copied as it is: another plan, too */
    not_done(process(COMMIT, 0, NULL), "a longer input", CKR_ITEM_PART_INPUT, PARTS "/plan", "");
    f->size--;
    f->changed = when;
    done(process(COMMIT, 0, NULL), "commit");
    to.force = true;                               /* what was committed is no part any more */
    bad_is(process(COMMIT, 0, NULL), &err, "twice", bad(CKR_ITEM_PART_MISSING, PARTS, NOWHERE, ""));
    CHECK(memio_find(&mem, OUT) != NULL);
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

/* A part that another process writes: not twice at once, not begun anew, not committed. */
static void busy(void)
{
    void *lock;
    begin(TP2);
    all_parts();
    if (!CHECK(memio_lock(&mem, PARTS "/2", &lock) == 0)) return;
    not_done(process(PART, 1, NULL), "twice", CKR_ITEM_OUTPUT_BUSY, PARTS "/2", "");
    of.go_on = true;
    not_done(process(PART, 1, NULL), "twice", CKR_ITEM_OUTPUT_BUSY, PARTS "/2", "");
    done(process(PART, 0, NULL), "another part");
    of.go_on = false;
    not_done(process(BEGIN, 0, NULL), "begin", CKR_ITEM_OUTPUT_BUSY, PARTS "/2", "");
    not_done(process(COMMIT, 0, NULL), "commit", CKR_ITEM_OUTPUT_BUSY, PARTS "/2", "");
    memio_unlock(&mem, lock);
    done(process(COMMIT, 0, NULL), "commit");
}

/* Every byte of a record in turn: it is never taken for whole with another one. */
static void records_altered(void)
{
    const ckr_item may[] = { CKR_ITEM_PART_RECORD, CKR_ITEM_PART_VERSION, CKR_ITEM_PART_PLAN,
                             CKR_ITEM_PART_INPUT, CKR_ITEM_PART_ELSEWHERE };
    uint64_t sum;
    size_t at, size;
    begin(TP2);
    sum = whole(NULL);
    all_parts();
    size = memio_find(&mem, PARTS "/2")->size;
    for (at = 0; at < size; at += 1 + at / 64) {
        ckr_result r;
        size_t k = 0;
        turn(PARTS "/2", at);
        r = process(COMMIT, 0, NULL);
        while (k < 5 && err.item != may[k]) k++;
        t_check(r != CKR_OK && k < 5 && err.remedy[0] && !memio_find(&mem, OUT), __FILE__, __LINE__,
                "byte %lu: %d %s: %s", (unsigned long)at, (int)r, ckr_item_name(err.item),
                err.text);
        CHECK_STR(err.file, PARTS "/2");
        turn(PARTS "/2", at);
    }
    done(process(COMMIT, 0, NULL), "commit");
    is_whole(sum, "as it was");
}

/* The record of another part, of an earlier run of this one, of nothing. */
static void records_exchanged(void)
{
    uint64_t sum;
    memio_file *f, was;
    begin(TP2);
    sum = whole(NULL);
    all_parts();
    f = memio_find(&mem, PARTS "/3");
    was = *f;
    *f = *memio_find(&mem, PARTS "/2");
    f->path = was.path;
    not_done(process(COMMIT, 0, NULL), "another part's", CKR_ITEM_PART_RECORD, PARTS "/3", "");
    *f = was;
    f->data[104] = 1;                              /* its number alone                   */
    not_done(process(COMMIT, 0, NULL), "another part's", CKR_ITEM_PART_RECORD, PARTS "/3", "");
    f->data[104] = 2;
    f->size = 0;
    not_done(process(COMMIT, 0, NULL), "empty", CKR_ITEM_PART_RECORD, PARTS "/3", "");
    CHECK(!strstr(err.remedy, "remove"));          /* the other parts                    */
    f->size = 112;
    not_done(process(COMMIT, 0, NULL), "no step", CKR_ITEM_PART_MISSING, PARTS "/3", "");
    f->size = was.size;
    done(process(COMMIT, 0, NULL), "commit");
    is_whole(sum, "as it was");
}

/* Records whose checks are right and that tell of what this plan does not have. */
static void records_made_up(void)
{
    enum { HEAD = 14, CRCS = HEAD + 1, SUMS = HEAD + 2, FIRST = HEAD + 4 };
    static const struct { size_t word; int64_t add; const char *label; } lies[] = {
        { CRCS, -1, "a tensor less" }, { CRCS, 1, "a tensor more" }, { 0, 0, "an index" }
    };
    size_t i, k;
    for (i = 0; i < sizeof lies / sizeof *lies; i++) {
        memio_file *f;
        uint64_t v[4096], n_crcs, n_sums, n;
        ckr_sha256 h;
        uint8_t sum[32];
        begin(TP2);
        of.n = 16;
        all_parts();
        f = memio_find(&mem, PARTS "/5");
        if (!CHECK(f && f->size < sizeof v)) return;
        for (k = 0; k < f->size / 8; k++) v[k] = ckr__load_u64(f->data + 8 * k);
        n_crcs = v[CRCS];
        n_sums = v[SUMS];
        n = FIRST + n_crcs + 3 * n_sums;
        CHECK(n_crcs > 1 && n_sums > 1 && f->size == 8 * (n + 1));
        if (!lies[i].word) {
            v[FIRST + n_crcs] = (uint64_t)1 << 40;
        } else if (lies[i].add < 0) {              /* the words behind it move up          */
            memmove(&v[FIRST], &v[FIRST + 1], (size_t)(n - FIRST - 1) * 8);
            v[CRCS]--;
            n--;
        } else {
            memmove(&v[FIRST + 1], &v[FIRST], (size_t)(n - FIRST) * 8);
            v[CRCS]++;
            n++;
        }
        memio_put(&mem, PARTS "/5", v, (size_t)(8 * (n + 1)));
        f = memio_find(&mem, PARTS "/5");
        for (k = 0; k < n; k++) ckr__store_u64(f->data + 8 * k, v[k]);
        ckr_sha256_init(&h);
        ckr_sha256_update(&h, f->data, (size_t)(8 * n));
        ckr_sha256_final(&h, sum);
        memcpy(f->data + 8 * n, sum, 8);
        not_done(process(COMMIT, 0, NULL), lies[i].label, CKR_ITEM_PART_RECORD, PARTS "/5", "");
        of.go_on = lies[i].word != 0;              /* sums cannot be seen in the bytes    */
        done(process(PART, 4, NULL), lies[i].label);
        done(process(COMMIT, 0, NULL), lies[i].label);
    }
}

static int32_t room_of(void *user, const char *dir, uint64_t *bytes)
{
    (void)user;
    CHECK_STR(dir, "/w");
    *bytes = 1000;
    return 0;
}

static void not_possible(void)
{
    const int64_t shape[1] = { 2 };
    const float two[2] = { 1, 2 };
    ckr_open_desc d = CKR_ZERO;
    ckr_ckpt *c = NULL;
    ckr_plan *p = NULL;
    begin(TP2);
    io.share_fn = NULL;
    bad_is(process(PART, 0, NULL), &err, "no share_fn", bad(CKR_ITEM_ARG, "", NOWHERE, "env.io"));
    begin(TP2);
    io.room_fn = room_of;
    not_done(process(PART, 0, NULL), "no room", CKR_ITEM_IO_NO_SPACE, OUT, "");
    not_done(process(BEGIN, 0, NULL), "no room", CKR_ITEM_IO_NO_SPACE, OUT, "");
    CHECK(!memio_find(&mem, PARTS));
    begin(TP2);
    to.topology.tp = 3;
    not_done(process(PART, 0, NULL), "refused", CKR_ITEM_PLAN_REFUSED, "", QKV);
    not_done(process(COMMIT, 0, NULL), "refused", CKR_ITEM_PLAN_REFUSED, "", QKV);
    begin(TP2);
    out = "/w/none/out";
    bad_is(process(PART, 0, NULL), &err, "no parent",
           bad(CKR_ITEM_PATH_NOT_FOUND, "/w/none/out", NOWHERE, ""));
    begin(TP2);
    to.topology.tp = 0;
    env = faulty_env(&fault, io);
    d.env = &env;
    CHECK_OK(ckr_ckpt_create(&d, &c, &err), &err);
    CHECK_OK(ckr_ckpt_put(c, "a", "param", CKR_DTYPE_F32, 1, shape, two, &err), &err);
    if (CHECK_OK(ckr_plan_create(c, &to, 0, &p, &err), &err))
        not_done(ckr_plan_write_part(p, OUT, 0, &of, &err), "put", CKR_ITEM_ARG, "", "plan");
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

/* The first copy of a tensor, or what it is a copy of, has another byte, or again the same. */
static void turn_piece(const char *name, const char *slot, bool copy)
{
    ckr_open_desc d = CKR_ZERO;
    ckr_ckpt *c = NULL;
    env = faulty_env(&fault, io);
    d.env = &env;
    if (CHECK_OK(ckr_ckpt_open(IN, &d, &c, &err), &err)) {
        const ckr_tensor *t = ckr_ckpt_tensor(c, name, slot);
        uint32_t i = 0;
        while (t && i < t->n_pieces && t->pieces[i].replica != copy) i++;
        if (CHECK(t && i < t->n_pieces)) {
            memio_file *f = memio_find(&mem, c->ctx.files[t->pieces[i].file].path);
            f->data[t->pieces[i].offset + 1] ^= 4;
        }
    }
    ckr_ckpt_close(c);
}

/* Copies that differ are told by the parts that take the tensor; no other part reads them. */
static void copies(void)
{
        uint32_t i, by = 0, n = 0;
    begin(TP2);
    of.n = 16;
    turn_piece(NORM, "exp_avg", true);
    not_done(process(WRITE, 0, NULL), "one process", CKR_ITEM_PLAN_REFUSED, "", NORM " (exp_avg)");
    for (i = 0; i < of.n; i++)
        if (process(PART, i, NULL) != CKR_OK) {
            bad_is(err.code, &err, "a part",
                   bad(CKR_ITEM_PLAN_REFUSED, "", NOWHERE, NORM " (exp_avg)"));
            CHECK(strstr(err.text, "CKR_E_REPLICA_DIFFERS"));
            by = i;
            n++;
        }
    CHECK(n == 1 || n == 2);
    CHECK(process(COMMIT, 0, NULL) != CKR_OK && !memio_find(&mem, OUT));
    turn_piece(NORM, "exp_avg", true);
    done(process(PART, by, NULL), "the part");
    if (n == 2) done(process(PART, by - 1, NULL), "the part before it");
    done(process(COMMIT, 0, NULL), "commit");
}

static const ckr_note *note_of(const ckr_plan *p, const char *code, int *n)
{
    const ckr_plan_facts *f = ckr_plan_info(p);
    const ckr_note *found = NULL;
    uint64_t i;
    for (i = *n = 0; i < f->n_notes; i++)
        if (!strcmp(f->notes[i].code, code)) found = &f->notes[i], ++*n;
    return found;
}

/* A first copy that its master proves wrong: all parts take the other one, and the report of the
   commit tells of it as that of one process; also where one plan does all. */
/* How a part lies in the files is another thing with each number of them. */
static void repaired_in(uint32_t parts)
{
    static const char norm[] = "decoder.layers.0.input_layernorm.weight";
    ckr_open_desc d = CKR_ZERO;
    ckr_ckpt *c = NULL;
    ckr_plan *p = NULL;
    ckr_receipt want, have;
    uint32_t i;
    int n;
    uint64_t sum;
    char at[80];
    snprintf(at, sizeof at, "%s (param)", norm);
    begin("tests/data/megatron/legacy_tp2_bf16/ckpt");
    to.topology.pp = to.topology.dp = 1;
    to.topology.zero = 1;
    turn_piece(norm, "param", false);
    bad_is(process(WRITE, 0, NULL), &err, "not asked for",
           bad(CKR_ITEM_PLAN_REFUSED, "", NOWHERE, at));
    to.repair = true;
    of.n = parts;
    sum = whole(&want);
    all_parts();
    env = faulty_env(&fault, io);
    d.env = &env;
    CHECK_OK(ckr_ckpt_open(IN, &d, &c, &err), &err);
    CHECK_OK(ckr_plan_create(c, &to, 0, &p, &err), &err);
    CHECK_OK(ckr_plan_commit(p, OUT, &of, &have, &err), &err);
    CHECK(note_of(p, "CKR_REPAIRED", &n) && n == 1);
    same_receipt(&have, &want);
    is_whole(sum, "repaired");
    memio_remove(&mem, OUT);
    ckr_plan_free(p);
    p = NULL;
    CHECK_OK(ckr_plan_create(c, &to, 0, &p, &err), &err);
    for (i = 0; i < of.n; i++) CHECK_OK(ckr_plan_write_part(p, OUT, i, &of, &err), &err);
    CHECK_OK(ckr_plan_commit(p, OUT, &of, &have, &err), &err);
    CHECK(note_of(p, "CKR_REPAIRED", &n) && n == 1);
    same_receipt(&have, &want);
    is_whole(sum, "repaired by one plan");
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

static void repaired(void)
{
    static const uint32_t parts[] = { 1, 3, 4, 7, 16 };
    size_t k;
    for (k = 0; k < sizeof parts / sizeof *parts; k++) repaired_in(parts[k]);
}

int main(int argc, char **argv)
{
    static const ckr_item never[] = { CKR_ITEM_OK };
    t_begin(argc, argv);
    RUN(every_dialect);
    RUN(parts_of_a_byte);
    RUN(over_another);
    RUN(other_outputs);
    RUN(cancelled);
    RUN(anew);
    RUN(verified);
    RUN(names_last);
    RUN(late_bytes);
    RUN(late_of_windows);
    RUN(ends_lost);
    RUN(killed_at_the_name);
    RUN(named_and_failed);
    RUN(cleared_in_half);
    RUN(after_a_commit);
    RUN(after_a_run);
    RUN(by_one_after_all);
    RUN(on_disk);
    RUN(numbers);
    RUN(another_plan);
    RUN(another_plan_of_this_size);
    RUN(missing);
    RUN(another_version);
    RUN(changed_input);
    RUN(no_record);
    RUN(elsewhere);
    RUN(busy);
    RUN(records_altered);
    RUN(records_exchanged);
    RUN(records_made_up);
    RUN(not_possible);
    RUN(copies);
    RUN(repaired);
    if (!t_now.only) bad_all_seen(BAD_PARTS, never);
    memio_free(&mem);
    return t_end();
}
