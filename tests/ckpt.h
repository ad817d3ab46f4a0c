/* ckpt.h: what the tests of the dialects do with whole checkpoints on the `disk` in memory: open
   them, take their digests, compare them with the live processes' tensors, let every call on the
   way fail. CKPT_OWN_OPEN: the program opens in its own way, with names. */
#ifndef CKPT_H
#define CKPT_H

#include "memio.h"
#include "option.h"
#include <errno.h>

static memio disk;
static ckr_env env;

static const ckr_note *note_of(const ckr_note *notes, uint64_t n, const char *code)
{
    uint64_t i;
    for (i = 0; i < n; i++) if (!strcmp(notes[i].code, code)) return &notes[i];
    return NULL;
}

/* An empty disk with a directory to read from and one to write to. */
T_UNUSED static void disk_begin(void)
{
    memset(&env, 0, sizeof env);
    env.io = memio_io(&disk);
    memio_add(&disk, "in", true);
    memio_add(&disk, "w", true);
}

/* The streams of `c`, which is closed, for dp ranks; dp 0: as saved. */
T_UNUSED static ckr_rng_streams *streams_of(ckr_ckpt *c, uint32_t dp)
{
    ckr_rng_streams *s = NULL;
    ckr_rng_want want = CKR_ZERO;
    ckr_error e;
    want.topology.dp = dp;
    want.mode = CKR_MODE_CONTINUE;
    if (c) CHECK_OK(ckr_ckpt_rng(c, &want, &s, &e), &e);
    ckr_ckpt_close(c);
    return s;
}

static void expect_open(ckr_result r, const char *path, const ckr_error *e)
{
    t_check(r == CKR_OK, __FILE__, __LINE__, "open %s: %s %s %s: %s", path, ckr_item_name(e->item),
            e->file, e->where, e->text);
}

/* Bytes of a whole tensor, from malloc. */
static uint8_t *tensor_bytes(const ckr_ckpt *c, const ckr_tensor *t, size_t *n)
{
    ckr_read r = CKR_ZERO;
    ckr_error e;
    int64_t numel = 0;
    if (!ckr__numel(t->n_dims, t->shape, &numel)) exit(2);
    *n = (size_t)numel * ckr_dtype_size(t->dtype);
    r.tensor = t;
    r.dst = calloc(*n ? *n : 1, 1);
    r.dst_size = *n;
    if (!r.dst) exit(2);
    CHECK_OK(ckr_ckpt_read(c, &r, 1, &e), &e);
    return (uint8_t *)r.dst;
}

/* The dtype and the bytes of another checkpoint's tensor. */
T_UNUSED static void same_tensor(const ckr_ckpt *c, const ckr_tensor *have, const ckr_ckpt *truth,
                                 const ckr_tensor *want, const char *path)
{
    size_t n, m;
    uint8_t *a = tensor_bytes(c, have, &n), *b = tensor_bytes(truth, want, &m);
    t_check(n == m && have->dtype == want->dtype && !memcmp(a, b, n), __FILE__, __LINE__,
            "%s: %s differs", path, want->name);
    free(a);
    free(b);
}

/* The tensor of "optimizer.state.NAME.SLOT" or "NAME". */
static const ckr_tensor *by_key(const ckr_ckpt *c, const char *key)
{
    char name[256], *slot = NULL;
    snprintf(name, sizeof name, "%s", key);
    if (!strncmp(name, "optimizer.state.", 16)) slot = strrchr(name, '.');
    if (slot) *slot = 0;
    return ckr_ckpt_tensor(c, slot ? name + 16 : name, slot ? slot + 1 : "param");
}

/* A target of the source's own framework; sizes of 0 are the source's. */
static ckr_target target_of(uint32_t tp, uint32_t pp, uint32_t dp, int32_t zero,
                            const char *variant)
{
    ckr_target t = CKR_ZERO;
    t.mode = CKR_MODE_CONTINUE;
    t.topology.tp = tp;
    t.topology.pp = pp;
    t.topology.dp = dp;
    t.topology.zero = stage_of(zero);
    t.variant = variant;
    return t;
}

#ifndef CKPT_OWN_OPEN
static void digest_of(const char *path, uint8_t total[16]);

/* What was said of the output is what a reader of it finds. */
static void digest_told(const char *path, const ckr_receipt *receipt)
{
    uint8_t now[16];
    digest_of(path, now);
    t_check(!memcmp(now, receipt->digest_written, 16), __FILE__, __LINE__,
            "%s: its digest is not the one that was told", path);
}
#endif

/* Plans and writes, and proves by the digests; closes c. `from`: for the message. */
static bool written(ckr_ckpt *c, const char *from, const char *to, const ckr_target *t)
{
    ckr_plan *p = NULL;
    ckr_receipt receipt;
    ckr_error e;
    ckr_result r;
    if (!c) return false;
    r = ckr_plan_create(c, t, 0, &p, &e);
    if (r == CKR_OK) r = ckr_plan_write(p, to, &receipt, &e);
    t_check(r == CKR_OK, __FILE__, __LINE__, "%s -> %s: %s %s: %s", from, to, ckr_item_name(e.item),
            e.where, e.text);
    if (r == CKR_OK && !t->dialect)            /* same names, same bytes                   */
        CHECK(!memcmp(receipt.digest, receipt.digest_written, 16));
#ifndef CKPT_OWN_OPEN
    if (r == CKR_OK) digest_told(to, &receipt);
#endif
    ckr_plan_free(p);
    ckr_ckpt_close(c);
    return r == CKR_OK;
}

/* Opens, plans and writes to w/out, under `faults`; what happened first. */
typedef struct whole { const char *path; ckr_open_desc desc; ckr_target target; } whole;

static ckr_result whole_way(const whole *w, const ckr_env *faults)
{
    ckr_open_desc d = w->desc;
    ckr_ckpt *c = NULL;
    ckr_plan *p = NULL;
    ckr_error e;
    ckr_result r;
    d.env = faults;
    r = ckr_ckpt_open(w->path, &d, &c, &e);
    if (r == CKR_OK) r = ckr_plan_create(c, &w->target, 0, &p, &e);
    if (r == CKR_OK) r = ckr_plan_write(p, "w/out", NULL, &e);
    ckr_plan_free(p);
    ckr_ckpt_close(c);
    return r;
}

/* Allocations and reads fail, one at a time, at most `most` of each kind (0: every one): an error,
   nothing leaked, nothing written. */
static void whole_way_fails(const whole *w, unsigned long most)
{
    static const int kinds[] = { FAULT_ALLOC, FAULT_READ, FAULT_LIST, FAULT_OPEN };
    unsigned long calls[FAULT_KINDS], at;
    faulty f;
    ckr_env faults = faulty_env(&f, env.io);
    size_t k;
    faults.parallel.n_threads = 1;
    most = t_times(most, 3);
    CHECK_INT(whole_way(w, &faults), CKR_OK);
    memcpy(calls, f.calls, sizeof calls);
    memio_remove(&disk, "w/out");
    for (k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (at = 1; at <= calls[kinds[k]]; at += 1 + (most ? calls[kinds[k]] / most : 0)) {
            ckr_result r;
            faults = faulty_env(&f, env.io);
            faults.parallel.n_threads = 1;
            f.kind = kinds[k];
            f.at = at;
            f.sys = EIO;
            r = whole_way(w, &faults);
            t_check(r == (k ? CKR_E_IO : CKR_E_NOMEM), __FILE__, __LINE__,
                    "%s: kind %d, call %lu: %d", w->path, kinds[k], at, (int)r);
            CHECK_INT(f.blocks, 0);
            CHECK_INT(f.handles, 0);
            CHECK(memio_find(&disk, "w/out") == NULL);
            memio_remove(&disk, "w/out");
        }
}

#ifndef CKPT_OWN_OPEN
/* The caller's text and description are its own again when the call is over. */
static ckr_result open_with(const char *path, ckr_open_desc d, ckr_ckpt **c, ckr_error *e)
{
    const size_t n = strlen(path) + 1;
    char *own = (char *)malloc(n);
    ckr_result r;
    if (!own) exit(2);
    memcpy(own, path, n);
    d.env = &env;
    *c = NULL;
    r = ckr_ckpt_open(own, &d, c, e);
    memset(own, '?', n - 1);
    free(own);
    return r;
}

static ckr_result open_as(const char *path, ckr_ckpt **c, ckr_error *e)
{
    const ckr_open_desc d = CKR_ZERO;
    return open_with(path, d, c, e);
}

static ckr_ckpt *open_ok(const char *path)
{
    ckr_ckpt *c;
    ckr_error e;
    expect_open(open_as(path, &c, &e), path, &e);
    return c;
}

/* The optimizer's parameters named by the caller. */
T_UNUSED static ckr_ckpt *open_named(const char *path, const char *const *names, size_t n)
{
    ckr_open_desc d = CKR_ZERO;
    ckr_ckpt *c = NULL;
    ckr_error e;
    d.names = names;
    d.n_names = n;
    expect_open(open_with(path, d, &c, &e), path, &e);
    return c;
}

/* The tree of a file; the test ends where there is none. */
T_UNUSED static ckr_ckpt *tree_of(const char *path)
{
    ckr_open_desc d = CKR_ZERO;
    ckr_ckpt *c = NULL;
    ckr_error e;
    d.env = &env;
    if (!CHECK_OK(ckr_tree_open(path, &d, &c, &e), &e)) exit(2);
    return c;
}

static void digest_of(const char *path, uint8_t total[16])
{
    ckr_ckpt *c = open_ok(path);
    ckr_error e;
    memset(total, 0, 16);
    if (c) CHECK_OK(ckr_ckpt_digest(c, NULL, total, &e), &e);
    ckr_ckpt_close(c);
}

static bool is_sound(const char *path)
{
    ckr_ckpt *c = open_ok(path);
    ckr_report *r = NULL;
    ckr_error e;
    bool sound = false;
    if (c && CHECK_OK(ckr_ckpt_check(c, &r, &e), &e)) {
        sound = r->sound;
        ckr_report_free(r);
    }
    ckr_ckpt_close(c);
    return sound;
}
#endif

#endif
