/* What arguments, the system and what is to be written can do wrong: every call of the I/O hooks
   that can fail, limits, outputs, targets, values that a format cannot hold, and bytes that are not
   what they were. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "t.h"
#include "option.h"
#include "memio.h"
#include "tree.h"
#include "bad.h"

#define DATA "tests/data/nanotron/"
#define TP2 DATA "tp2_pp1_dp1/ckpt"
#define ZERO DATA "tp2_pp1_dp2_zero1_bf16_master/ckpt"
#define IN "/w/ckpt"
#define STEP IN "/13/"
#define STATES(tp) STEP "optimizer/optimizer_pp-0-of-1_tp-" tp "-of-2_exp-0-of-1.pt"
#define RANDOM STEP "random/tp-0-of-2_dp-0-of-1_pp-0-of-1.pt"
#define QKV "model.decoder.0.pp_block.attn.qkv_proj.weight"
#define NORM "model.final_layer_norm.pp_block.weight"
#define EMBED "model.token_position_embeddings.pp_block.token_embedding.weight"
#define OUT "/w/out"
#define TEMP "/w/.out.ckptresume-tmp"
#define OLD "/w/.out.ckptresume-old"
#define NOWHERE CKR_NO_OFFSET
#define S(text) text, sizeof(text) - 1

static memio mem;
static faulty fault;
static ckr_env env;
static ckr_limits limits;
static ckr_error err;

/* The n-th call of this kind fails from now on (-1: none does). */
static ckr_open_desc failing(int kind, unsigned long at, int32_t sys)
{
    ckr_open_desc d = CKR_ZERO;
    env = faulty_env(&fault, memio_io(&mem));
    fault.kind = kind;
    fault.at = at;
    fault.sys = sys;
    d.env = &env;
    d.limits = limits;
    return d;
}

static ckr_ckpt *opened(const char *path)
{
    ckr_open_desc d = failing(-1, 0, 0);
    ckr_ckpt *c = NULL;
    CHECK_OK(ckr_ckpt_open(path, &d, &c, &err), &err);
    return c;
}

static ckr_ckpt *nanotron(void)
{
    memio_free(&mem);
    memio_load(&mem, TP2, IN);
    return opened(IN);
}

static const float two[2] = { 1, 2 };

static ckr_ckpt *plain_of(const char *name, ckr_dtype dtype)
{
    const int64_t shape[1] = { 2 };
    ckr_open_desc d = failing(-1, 0, 0);
    ckr_ckpt *c = NULL;
    CHECK_OK(ckr_ckpt_create(&d, &c, &err), &err);
    CHECK_OK(ckr_ckpt_put(c, name, "param", dtype, 1, shape, two, &err), &err);
    return c;
}

static ckr_ckpt *plain_two(const char *name, const char *other)
{
    const int64_t shape[1] = { 2 };
    ckr_ckpt *c = plain_of(name, CKR_DTYPE_F32);
    CHECK_OK(ckr_ckpt_put(c, other, "param", CKR_DTYPE_F32, 1, shape, two, &err), &err);
    return c;
}

/* A moment, and a parameter with the name that files without slots give the moment. */
#define MOMENT "optimizer.state.a.exp_avg"
static ckr_ckpt *colliding(void)
{
    const int64_t shape[1] = { 2 };
    ckr_ckpt *c = plain_two("a", MOMENT);
    CHECK_OK(ckr_ckpt_put(c, "a", "exp_avg", CKR_DTYPE_F32, 1, shape, two, &err), &err);
    return c;
}

static ckr_target target(void)
{
    ckr_target t = CKR_ZERO;
    t.mode = CKR_MODE_CONTINUE;
    t.topology.zero = -1;
    return t;
}

/* No plan comes from it, and nothing is left; closes `c`. */
static void no_plan_at_all(ckr_ckpt *c, const ckr_target *t, uint64_t max_bytes, const char *label,
                           bad_want w)
{
    ckr_plan *p = NULL;
    ckr_result r = ckr_plan_create(c, t, max_bytes, &p, &err);
    bad_is(r, &err, label, w);
    CHECK(!p);
    ckr_plan_free(p);
    ckr_ckpt_close(c);
    t_check(fault.blocks == 0 && fault.handles == 0, __FILE__, __LINE__, "%s: %ld blocks left",
            label, fault.blocks);
}

/* ---- arguments and limits ---- */

static void arguments(void)
{
    static const int64_t shape[9] = { 1, 1, 1, 1, 1, 1, 1, 1, 1 }, start[1] = { 1 },
                         count[1] = { 2 };
    ckr_open_desc d = failing(-1, 0, 0);
    ckr_ckpt *c = plain_of("a", CKR_DTYPE_I32), *none = NULL;
    ckr_read r = CKR_ZERO;
    float dst[2];
    if (!c) return;
    bad_is(ckr_ckpt_put(c, "b", "param", CKR_DTYPE_F32, 9, shape, two, &err), &err, "9 axes",
           bad(CKR_ITEM_ARG, "", NOWHERE, "b"));
    env.alloc.free_fn = NULL;
    bad_is(ckr_ckpt_create(&d, &none, &err), &err, "half an allocator",
           bad(CKR_ITEM_ARG, "", NOWHERE, "env.alloc"));
    r.dst = dst;
    r.dst_size = 4;
    r.tensor = ckr_ckpt_tensor(c, "missing", "param");
    bad_is(ckr_ckpt_read(c, &r, 1, &err), &err, "no tensor",
           bad(CKR_ITEM_ARG, "", NOWHERE, "tensor"));
    r.tensor = ckr_ckpt_tensor(c, "a", "param");
    bad_is(ckr_ckpt_read(c, &r, 1, &err), &err, "4 bytes",
           bad(CKR_ITEM_DST_SIZE, "", NOWHERE, "a"));
    r.dst_size = 8;
    r.dst = NULL;
    bad_is(ckr_ckpt_read(c, &r, 1, &err), &err, "no dst", bad(CKR_ITEM_ARG, "", NOWHERE, "a"));
    r.dst = dst;
    r.start = start;
    bad_is(ckr_ckpt_read(c, &r, 1, &err), &err, "a start alone",
           bad(CKR_ITEM_ARG, "", NOWHERE, "a"));
    r.start = NULL;
    r.as = CKR_DTYPE_F32;
    bad_is(ckr_ckpt_read(c, &r, 1, &err), &err, "int32 as float32",
           bad(CKR_ITEM_CAST, "", NOWHERE, "a"));
    r.as = CKR_DTYPE_NONE;
    r.start = start;
    r.count = count;
    bad_is(ckr_ckpt_read(c, &r, 1, &err), &err, "a box", bad(CKR_ITEM_BOX_RANGE, "", NOWHERE, "a"));
    ckr_ckpt_close(c);
    memio_put(&mem, "/d/a.pkl", S("\200\2N."));
    d = failing(-1, 0, 0);
    d.dialect = "bogus";
    bad_is(ckr_ckpt_open("/d/a.pkl", &d, &none, &err), &err, "dialect",
           bad(CKR_ITEM_DIALECT_UNKNOWN, "", NOWHERE, "bogus"));
    CHECK(!none && strstr(err.remedy, "nanotron"));
}

/* A put that fails changes nothing. */
static void puts_refused(void)
{
    static const struct { const char *name, *slot, *label, *where; bool data; } rows[] = {
        { "a", "param", "twice", "a", true },       { NULL, "param", "no name", "name", true },
        { "b", NULL, "no slot", "b", true },        { "b", "param", "no data", "b", false },
    };
    const int64_t shape[1] = { 2 };
    ckr_ckpt *c = plain_of("a", CKR_DTYPE_F32);
    size_t i;
    if (!c) return;
    for (i = 0; i < sizeof rows / sizeof *rows; i++)
        bad_is(ckr_ckpt_put(c, rows[i].name, rows[i].slot, CKR_DTYPE_F32, 1, shape,
                            rows[i].data ? two : NULL, &err),
               &err, rows[i].label, bad(CKR_ITEM_ARG, "", NOWHERE, rows[i].where));
    bad_is(ckr_ckpt_put(c, "b", "param", CKR_DTYPE_F32, 1, NULL, two, &err), &err, "no shape",
           bad(CKR_ITEM_ARG, "", NOWHERE, "b"));
    CHECK(ckr_ckpt_state(c)->n_tensors == 1);
    CHECK_OK(ckr_ckpt_put(c, "b", "param", CKR_DTYPE_F32, 1, shape, two, &err), &err);
    CHECK_OK(ckr_ckpt_put(c, "a", "exp_avg", CKR_DTYPE_F32, 1, shape, two, &err), &err);
    CHECK(ckr_ckpt_state(c)->n_tensors == 3);
    ckr_ckpt_close(c);
    c = nanotron();
    if (!c) return;
    bad_is(ckr_ckpt_put(c, "b", "param", CKR_DTYPE_F32, 1, shape, two, &err), &err, "opened",
           bad(CKR_ITEM_ARG, IN, NOWHERE, ""));
    ckr_ckpt_close(c);
}

static ckr_ckpt *scheduled(const char *spec, int64_t updates, ckr_result *r)
{
    static const char *const params[] = { "a" };
    const ckr_hyper lr = { "lr", 0.001 };
    ckr_ckpt *c = plain_of("a", CKR_DTYPE_F32);
    *r = CKR_OK;
    if (!c) return NULL;
    CHECK_OK(ckr_ckpt_put_group(c, NULL, params, 1, &lr, 1, &err), &err);
    if (spec) *r = ckr_ckpt_put_schedule(c, spec, updates, &err);
    return c;
}

#define COSINE "llmc:cosine,learning_rate=0.001,warmup_iterations=2,train_num_batches=10," \
               "final_learning_rate_frac=0.1"

/* The schedule of before goes on; without memory there is no other answer than that. */
static void schedules_refused(void)
{
    unsigned long n, all;
    double before, after;
    ckr_result r;
    ckr_ckpt *c = scheduled(COSINE, 5, &r);
    if (!c || !CHECK_OK(r, &err)) return;
    ckr_schedule_values(ckr_ckpt_state(c)->schedules, CKR_COLUMN_LR, 6, 1, &before, NULL, &err);
    CHECK(ckr_ckpt_put_schedule(c, "bogus:x", 9, &err) != CKR_OK);
    bad_is(ckr_ckpt_put_schedule(c, COSINE, -1, &err), &err, "update -1",
           bad(CKR_ITEM_ARG, "", NOWHERE, "schedule"));
    bad_is(ckr_ckpt_put_schedule(c, NULL, 1, &err), &err, "no schedule",
           bad(CKR_ITEM_ARG, "", NOWHERE, "schedule"));
    CHECK(ckr_ckpt_state(c)->n_schedules == 1 && ckr_ckpt_state(c)->progress.step == 5);
    ckr_schedule_values(ckr_ckpt_state(c)->schedules, CKR_COLUMN_LR, 6, 1, &after, NULL, &err);
    CHECK(before == after);
    ckr_ckpt_close(c);
    c = scheduled(NULL, 0, &r);
    all = fault.calls[FAULT_ALLOC];
    ckr_ckpt_close(c);
    for (n = all + 1, r = CKR_E_NOMEM; r != CKR_OK && n < all + 100; n++) {
        c = scheduled(NULL, 0, &r);
        fault.kind = FAULT_ALLOC;
        fault.at = n;
        r = ckr_ckpt_put_schedule(c, COSINE, 5, &err);
        CHECK(r == CKR_OK ? fault.calls[FAULT_ALLOC] < n : r == CKR_E_NOMEM);
        CHECK(ckr_ckpt_state(c)->n_schedules == (r == CKR_OK));
        ckr_ckpt_close(c);
    }
    CHECK(r == CKR_OK && n > all + 2);
}

/* ---- mistakes of the caller ---- */

/* The call, with an error and without one, is refused for its argument `name`. */
#define REFUSED(name, call) \
    do { \
        for (int with = 0; with < 2; with++) { \
            ckr_error *e = with ? &err : NULL; \
            memset(&err, 7, sizeof err); \
            t_check((call) == CKR_E_ARG && (!e || (err.item == CKR_ITEM_ARG && \
                                                   !strcmp(err.where, name) && err.text[0])), \
                    __FILE__, __LINE__, "%s: %s %s", #call, e ? e->where : "", \
                    e ? e->text : ""); \
        } \
    } while (0)

static void null_of_checkpoints(ckr_ckpt *c, ckr_plan *p)
{
    ckr_ckpt *k = c;
    ckr_plan *q = p;
    ckr_report *report = NULL;
    ckr_diff *diff = NULL;
    ckr_rng_streams *streams = NULL;
    const int64_t shape[1] = { 2 };
    const int64_t at[1] = { 0 };
    const ckr_tensor *none = NULL;
    ckr_stats stats;
    const ckr_parts parts = { 1, false, 0 };
    uint8_t total[16];
    size_t n = 0;
    char name[1] = "";
    REFUSED("path", ckr_ckpt_open(NULL, NULL, &k, e));
    CHECK(!k);
    REFUSED("out", ckr_ckpt_open("x", NULL, NULL, e));
    REFUSED("path", ckr_tree_open(NULL, NULL, &k, e));
    REFUSED("out", ckr_tree_open("x", NULL, NULL, e));
    REFUSED("out", ckr_ckpt_create(NULL, NULL, e));
    REFUSED("c", ckr_ckpt_put(NULL, "b", "param", CKR_DTYPE_F32, 1, shape, two, e));
    REFUSED("name", ckr_ckpt_put(c, NULL, "param", CKR_DTYPE_F32, 1, shape, two, e));
    REFUSED("b", ckr_ckpt_put(c, "b", NULL, CKR_DTYPE_F32, 1, shape, two, e));
    REFUSED("b", ckr_ckpt_put(c, "b", "param", CKR_DTYPE_F32, 1, NULL, two, e));
    REFUSED("b", ckr_ckpt_put(c, "b", "param", CKR_DTYPE_F32, 1, shape, NULL, e));
#define BOX(c, name, slot, shape, start, count) \
    ckr_ckpt_put_box(c, name, slot, CKR_DTYPE_F32, 1, shape, 0, start, count, two, e)
    REFUSED("c", BOX(NULL, "b", "param", shape, at, shape));
    REFUSED("name", BOX(c, NULL, "param", shape, at, shape));
    REFUSED("slot", BOX(c, "b", NULL, shape, at, shape));
    REFUSED("shape", BOX(c, "b", "param", NULL, at, shape));
    REFUSED("start", BOX(c, "b", "param", shape, NULL, shape));
    REFUSED("count", BOX(c, "b", "param", shape, at, NULL));
    REFUSED("c", ckr_ckpt_put_group(NULL, name, NULL, 0, NULL, 0, e));
    REFUSED("params", ckr_ckpt_put_group(c, name, NULL, 1, NULL, 0, e));
    REFUSED("hyper", ckr_ckpt_put_group(c, name, NULL, 0, NULL, 1, e));
    REFUSED("c", ckr_ckpt_put_schedule(NULL, COSINE, 1, e));
    REFUSED("schedule", ckr_ckpt_put_schedule(c, NULL, 1, e));
    REFUSED("c", ckr_ckpt_put_decided(NULL, ckr_ckpt_schedule(c, 0), 1, e));
    REFUSED("s", ckr_ckpt_put_decided(c, NULL, 1, e));
    REFUSED("c", ckr_ckpt_put_stream(NULL, 0, NULL, NULL, NULL, e));
    REFUSED("state", ckr_ckpt_put_stream(c, 0, NULL, NULL, NULL, e));
    REFUSED("c", ckr_ckpt_put_lineage(NULL, streams, e));
    REFUSED("streams", ckr_ckpt_put_lineage(c, NULL, e));
    REFUSED("c", ckr_ckpt_put_topology(NULL, NULL, e));
    REFUSED("topology", ckr_ckpt_put_topology(c, NULL, e));
    REFUSED("c", ckr_ckpt_put_progress(NULL, 1, 1, 1, 1, e));
    REFUSED("c", ckr_ckpt_put_data(NULL, 0, "sample", 1, e));
    REFUSED("name", ckr_ckpt_put_data(c, 0, NULL, 1, e));
    CHECK(!ckr_ckpt_data(NULL, 0, "sample", NULL) && !ckr_ckpt_data(c, 0, NULL, NULL));
    REFUSED("c", ckr_view_read(NULL, NULL, 0, 0, NULL, e));
    REFUSED("v", ckr_view_read(c, NULL, 0, 0, NULL, e));
    REFUSED("c", ckr_ckpt_read(NULL, NULL, 0, e));
    REFUSED("reads", ckr_ckpt_read(c, NULL, 1, e));
    REFUSED("c", ckr_ckpt_copies(NULL, NULL, 0, NULL, &n, e));
    REFUSED("reads", ckr_ckpt_copies(c, NULL, 1, NULL, &n, e));
    REFUSED("n_copies", ckr_ckpt_copies(c, NULL, 0, NULL, NULL, e));
    REFUSED("c", ckr_ckpt_bytes(NULL, 0, 0, NULL, 0, e));
    REFUSED("dst", ckr_ckpt_bytes(c, 0, 0, NULL, 1, e));
    REFUSED("src", ckr_plan_create(NULL, NULL, 0, &q, e));
    CHECK(!q);
    REFUSED("out", ckr_plan_create(c, NULL, 0, NULL, e));
    REFUSED("src", ckr_plan_decide(NULL, NULL, &q, e));
    REFUSED("out", ckr_plan_decide(c, NULL, NULL, e));
    REFUSED("p", ckr_plan_write(NULL, OUT, NULL, e));
    REFUSED("path", ckr_plan_write(p, NULL, NULL, e));
    REFUSED("p", ckr_plan_write_rank(NULL, OUT, 0, e));
    REFUSED("path", ckr_plan_write_rank(p, NULL, 0, e));
    REFUSED("p", ckr_plan_write_end(NULL, OUT, e));
    REFUSED("path", ckr_plan_write_end(p, NULL, e));
    REFUSED("p", ckr_plan_begin(NULL, OUT, &parts, e));
    REFUSED("path", ckr_plan_begin(p, NULL, &parts, e));
    REFUSED("parts", ckr_plan_begin(p, OUT, NULL, e));
    REFUSED("p", ckr_plan_write_part(NULL, OUT, 0, &parts, e));
    REFUSED("path", ckr_plan_write_part(p, NULL, 0, &parts, e));
    REFUSED("parts", ckr_plan_write_part(p, OUT, 0, NULL, e));
    REFUSED("p", ckr_plan_commit(NULL, OUT, &parts, NULL, e));
    REFUSED("path", ckr_plan_commit(p, NULL, &parts, NULL, e));
    REFUSED("parts", ckr_plan_commit(p, OUT, NULL, NULL, e));
    REFUSED("c", ckr_ckpt_digest(NULL, NULL, total, e));
    REFUSED("total", ckr_ckpt_digest(c, NULL, NULL, e));
    REFUSED("c", ckr_ckpt_stats(NULL, NULL, 0, NULL, e));
    REFUSED("tensors", ckr_ckpt_stats(c, NULL, 1, NULL, e));
    REFUSED("out", ckr_ckpt_stats(c, &none, 1, NULL, e));
    REFUSED("tensor", ckr_ckpt_stats(c, &none, 1, &stats, e));
    REFUSED("c", ckr_ckpt_check(NULL, &report, e));
    REFUSED("out", ckr_ckpt_check(c, NULL, e));
    REFUSED("a", ckr_ckpt_diff(NULL, c, &diff, e));
    REFUSED("b", ckr_ckpt_diff(c, NULL, &diff, e));
    REFUSED("out", ckr_ckpt_diff(c, c, NULL, e));
    REFUSED("c", ckr_ckpt_rng(NULL, NULL, &streams, e));
    REFUSED("out", ckr_ckpt_rng(c, NULL, NULL, e));
    ckr_ckpt_close(NULL);
    ckr_plan_free(NULL);
    ckr_report_free(NULL);
    ckr_diff_free(NULL);
    ckr_rng_streams_free(NULL);
    CHECK(!ckr_ckpt_state(NULL) && !ckr_ckpt_path(NULL) && !ckr_ckpt_files(NULL, NULL));
    CHECK(!ckr_ckpt_tensor(NULL, "a", "param") && !ckr_ckpt_tensor(c, NULL, "param"));
    CHECK(!ckr_ckpt_tensor(c, "a", NULL) && !ckr_ckpt_root(NULL) && !ckr_ckpt_schedule(NULL, 0));
    CHECK(!ckr_plan_info(NULL) && !ckr_rng_find(NULL, 0, "numpy", "default"));
}

static void null_of_runs(void)
{
    ckr_run run = CKR_ZERO;
    REFUSED("run", ckr_run_begin(NULL, COSINE, e));
    REFUSED("schedule", ckr_run_begin(&run, NULL, e));
    REFUSED("run", ckr_run_resume(NULL, "x", NULL, e));
    REFUSED("path", ckr_run_resume(&run, NULL, NULL, e));
    REFUSED("run", ckr_run_save(NULL, "x", e));
    REFUSED("path", ckr_run_save(&run, NULL, e));
    ckr_run_end(NULL);
    CHECK(!run.source && !run.schedule && !run.given);
}

static void null_of_values(const ckr_schedule *s)
{
    ckr_rng *r = (ckr_rng *)malloc(ckr_rng_size());
    double v = 0;
    int64_t i;
    uint64_t u = 0;
    size_t n = 1;
    REFUSED("s", ckr_schedule_values(NULL, CKR_COLUMN_LR, 1, 1, &v, NULL, e));
    REFUSED("out", ckr_schedule_values(s, CKR_COLUMN_LR, 1, 1, NULL, NULL, e));
    REFUSED("column", ckr_schedule_values(s, (ckr_column)3, 1, 1, &v, NULL, e));
    REFUSED("s", ckr_schedule_text(NULL, NULL, 0, &n, NULL, e));
    CHECK(!n);
    REFUSED("size", ckr_schedule_text(s, NULL, 0, NULL, NULL, e));
    CHECK(ckr_schedule_end(NULL) == -1 && ckr_schedule_run_end(NULL) == -1);
    CHECK(!ckr_schedule_info(NULL).kind);
    REFUSED("bytes", ckr_rng_decode(CKR_RNG_LLMC, NULL, 8, r, e));
    REFUSED("out", ckr_rng_decode(CKR_RNG_LLMC, &u, 8, NULL, e));
    if (!r || ckr_rng_seed(r, CKR_RNG_PYTHON, 1) != CKR_OK) exit(2);
    CHECK(!ckr_rng_get(NULL, CKR_RNG_FIELD_KIND) && !ckr_rng_kind_find(NULL));
    CHECK(!ckr_rng_encode(NULL, NULL, 0) && !ckr_rng_words(NULL, NULL, 0));
    CHECK(!ckr_rng_equal(r, NULL) && !ckr_rng_equal(NULL, r) && !ckr_rng_u32(NULL));
    CHECK(!ckr_rng_u64(NULL) && !ckr_rng_distance(NULL, r, 1, &u));
    CHECK(!ckr_rng_distance(r, NULL, 1, &u) && !ckr_rng_distance(r, r, 1, NULL));
    CHECK(!ckr_rng_convert(NULL, CKR_RNG_NUMPY, r) && !ckr_rng_convert(r, CKR_RNG_NUMPY, NULL));
    for (int k = 0; k < 2; k++) {          /* no generator, or no place for what it draws       */
        ckr_rng *g = k ? r : NULL;
        CHECK(k || ckr_rng_set(g, CKR_RNG_FIELD_FLAGS, 0) == CKR_E_ARG);
        CHECK(k || ckr_rng_seed(g, CKR_RNG_PYTHON, 1) == CKR_E_ARG);
        CHECK(k || ckr_rng_jump(g, 1, 0) == CKR_E_ARG);
        CHECK(ckr_rng_u32_fill(g, 1, k ? NULL : (uint32_t *)&u) == CKR_E_ARG);
        CHECK(ckr_rng_uniform(g, CKR_DTYPE_F64, 0, 1, 1, k ? NULL : &v) == CKR_E_ARG);
        CHECK(ckr_rng_normal(g, CKR_DTYPE_F64, 0, 1, 1, k ? NULL : &v) == CKR_E_ARG);
        CHECK(ckr_rng_integers(g, CKR_DTYPE_I64, 0, 1, 1, k ? NULL : &i) == CKR_E_ARG);
        CHECK(ckr_rng_random(g, CKR_DTYPE_I64, 1, k ? NULL : &i) == CKR_E_ARG);
        CHECK(ckr_rng_permutation(g, 1, k ? NULL : &i) == CKR_E_ARG);
        CHECK(ckr_rng_bits(g, 1, k ? NULL : &u) == CKR_E_ARG);
    }
    free(r);
    CHECK(!ckr_node_get(NULL, NULL) && !ckr_node_at(NULL, 0) && !ckr_node_find(NULL, NULL));
    CHECK(!ckr_node_is_dict(NULL) && !ckr_node_is_list(NULL) && !ckr_node_str(NULL));
    CHECK(!ckr_node_i64(NULL, NULL) && !ckr_node_f64(NULL, NULL));
    ckr_digest_finish(NULL, CKR_DTYPE_F32, 0, NULL, NULL);
    CHECK(!ckr_node_number(NULL, NULL, 0) && !ckr_utf8(NULL, 1, NULL));
    CHECK(!ckr_base64(NULL, 1, NULL) && !ckr_base64("x", 1, NULL));
    ckr_sha256_init(NULL);
    ckr_sha256_update(NULL, "x", 1);
    ckr_sha256_final(NULL, NULL);
    CHECK(ckr_schedule_form_at(0, NULL) && ckr_dialect_at(0, NULL));
    CHECK(!ckr_dtype_size((ckr_dtype)9999) && ckr_item_name((ckr_item)9999));
}

/* Is a call of the function among the tests of NULLs? */
static bool null_tried(const char *own, const char *name, size_t n)
{
    const char *end = strstr(own, "static void nulls(void)");
    for (const char *p = strstr(own, "static void null_of_checkpoints("); p && end;) {
        p = strstr(p + 1, "ckr_");
        if (!p || p > end) return false;
        if (!strncmp(p, name, n) && p[n] == '(') return true;
    }
    return false;
}

/* Every public function that takes a pointer. */
static void all_nulls(void)
{
    size_t n, n_own, len;
    char *header = (char *)t_slurp("ckptresume.h", &n);
    char *own = (char *)t_slurp("tests/t_bad_run.c", &n_own);
    const char *end = header ? strstr(header, "#endif /* CKPTRESUME_H */") : NULL;
    int seen = 0;
    for (const char *p = header; p && end && own; p += len) {
        p = strstr(p, "\nCKR_API ");
        if (!p || p > end) break;
        p += 9;
        const char *close = strchr(p, ';'), *open = strchr(p, '('), *name = open;
        while (name[-1] == '_' || (name[-1] >= 'a' && name[-1] <= 'z') ||
               (name[-1] >= '0' && name[-1] <= '9')) name--;
        len = (size_t)(open - p);
        const char *star = strchr(open, '*'), *array = strchr(open, '[');
        if (!((star && star < close) || (array && array < close))) continue;
        seen++;
        t_check(null_tried(own, name, (size_t)(open - name)), __FILE__, __LINE__, "%.*s",
                (int)(open - name), name);
    }
    CHECK(seen > 60);
    free(header);
    free(own);
}

static void nulls(void)
{
    ckr_result r;
    ckr_plan *p = NULL;
    ckr_ckpt *c = scheduled(COSINE, 5, &r);
    if (!c || !CHECK_OK(ckr_plan_create(c, NULL, 0, &p, &err), &err)) return;
    null_of_checkpoints(c, p);
    null_of_values(ckr_ckpt_schedule(c, 0));
    null_of_runs();
    CHECK(ckr_ckpt_state(c)->n_tensors == 1 && ckr_ckpt_state(c)->n_groups == 1);
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

/* A checkpoint without what the run has. */
static void another_run(void)
{
    static float value;
    ckr_run_tensor t = CKR_ZERO;
    ckr_run run = CKR_ZERO;
    t.name = "nowhere";
    t.slot = "param";
    t.dtype = CKR_DTYPE_F32;
    t.data = &value;
    run.tensors = &t;
    run.n_tensors = 1;
    bad_is(ckr_run_resume(&run, "tests/data/llmc/uneven/truth.safetensors", NULL, &err), &err,
           "run", bad(CKR_ITEM_RUN_DIFFERS, "", CKR_NO_OFFSET, "nowhere"));
    CHECK(!run.source && !run.schedule);
    ckr_run_end(&run);
}

/* Values that are none, in a target and in what is wanted of random streams. */
static void no_choices(void)
{
    ckr_result r;
    ckr_plan *p = NULL;
    ckr_rng_streams *streams = NULL;
    ckr_rng_want want = CKR_ZERO;
    const char *none[1] = { NULL };
    ckr_group group = CKR_ZERO;
    ckr_ckpt *c = scheduled(COSINE, 5, &r);
    static const char *const names[] = { "mode", "without", "dtype", "lr_policy", "rng",
                                         "topology.zero", "topology.zero", "vocab", "rewarm_steps",
                                         "max_lr_jump", "sets", "groups", "options", "groups" };
    if (!c) return;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ckr_target t = CKR_ZERO;
        if (i == 0) t.mode = (ckr_mode)3;
        if (i == 1) t.without = 128;
        if (i == 2) t.dtype = (ckr_dtype)999;
        if (i == 3) t.lr_policy = (ckr_lr_policy)6;
        if (i == 4) t.rng = (ckr_rng_policy)3;
        if (i == 5) t.topology.zero = 4;
        if (i == 6) t.topology.zero = -3;
        if (i == 7) t.vocab = -1;
        if (i == 8) t.rewarm_steps = -1;
        if (i == 9) t.max_lr_jump = -1;
        if (i == 10) t.n_sets = 1;
        if (i == 11) t.n_groups = 1;
        if (i == 12) t.n_options = 1;
        group.params = none;
        group.n_params = 1;
        if (i == 13) t.groups = &group, t.n_groups = 1;
        REFUSED(names[i], ckr_plan_create(c, &t, 0, &p, e));
        CHECK(!p);
    }
    want.mode = (ckr_mode)3;
    REFUSED("mode", ckr_ckpt_rng(c, &want, &streams, e));
    want.mode = CKR_MODE_CONTINUE;
    want.policy = (ckr_rng_policy)3;
    REFUSED("policy", ckr_ckpt_rng(c, &want, &streams, e));
    ckr_ckpt_close(c);
}

/* Groups and slots of what is no parameter, or of another shape. */
static void no_such_parameters(void)
{
    static const char *const a[] = { "a" }, *const aa[] = { "c", "a", "c" }, *const b[] = { "b" };
    const int64_t shape[1] = { 2 }, other[2] = { 1, 2 };
    ckr_plan *p = NULL;
    ckr_ckpt *c = plain_of("a", CKR_DTYPE_F32);
    CHECK_OK(ckr_ckpt_put_group(c, "one", a, 1, NULL, 0, &err), &err);
    REFUSED("one", ckr_ckpt_put_group(c, "one", b, 1, NULL, 0, e));
    REFUSED("a", ckr_ckpt_put_group(c, "two", aa, 2, NULL, 0, e));
    ckr_ckpt_close(c);
    c = plain_of("a", CKR_DTYPE_F32);
    REFUSED("c", ckr_ckpt_put_group(c, "two", aa, 3, NULL, 0, e));
    CHECK(!ckr_ckpt_state(c)->n_groups);
    CHECK_OK(ckr_ckpt_put_group(c, "two", aa, 2, NULL, 0, &err), &err);   /* nothing was kept */
    REFUSED("c", ckr_plan_decide(c, NULL, &p, e));
    CHECK_OK(ckr_ckpt_put(c, "c", "param", CKR_DTYPE_F32, 1, shape, two, &err), &err);
    CHECK_OK(ckr_plan_decide(c, NULL, &p, &err), &err);
    ckr_plan_free(p);
    CHECK_OK(ckr_ckpt_put(c, "a", "exp_avg", CKR_DTYPE_F32, 2, other, two, &err), &err);
    REFUSED("a", ckr_plan_create(c, NULL, 0, &p, e));
    ckr_ckpt_close(c);
    c = plain_of("a", CKR_DTYPE_F32);
    CHECK_OK(ckr_ckpt_put(c, "b", "exp_avg", CKR_DTYPE_F32, 1, shape, two, &err), &err);
    REFUSED("b", ckr_plan_create(c, NULL, 0, &p, e));
    ckr_ckpt_close(c);
    CHECK(fault.blocks == 0);
}

/* Without memory nothing was put, and the next try puts it. */
static void puts_without_memory(void)
{
    static const char *const params[] = { "a", "b" };
    const ckr_hyper lr = { "lr", 0.001 };
    ckr_result r;
    size_t size;
    unsigned long n = 0;
    ckr_ckpt *from = scheduled(COSINE, 5, &r);
    if (!from) return;
    for (int what = 0; what < 3; what++)
        for (r = CKR_E_NOMEM, n = 0; r != CKR_OK && n < 200; n++) {
            ckr_ckpt *c = what == 0 ? plain_of("a", CKR_DTYPE_F32) : scheduled(NULL, 0, &r);
            fault.kind = FAULT_ALLOC;
            fault.at = fault.calls[FAULT_ALLOC] + 1 + n;
            r = what == 0   ? ckr_ckpt_put_group(c, "g", params, 2, &lr, 1, &err)
                : what == 1 ? ckr_ckpt_put_decided(c, ckr_ckpt_schedule(from, 0), 7, &err)
                            : ckr_schedule_text(ckr_ckpt_schedule(from, 0), NULL, 0, &size, &env,
                                                &err);
            CHECK(r == CKR_OK || r == CKR_E_NOMEM);
            fault.at = 0;
            if (what == 0 && r != CKR_OK) {
                CHECK(!ckr_ckpt_state(c)->n_groups);
                CHECK_OK(ckr_ckpt_put_group(c, "g", params, 2, &lr, 1, &err), &err);
                CHECK(ckr_ckpt_state(c)->n_groups == 1);
            }
            if (what == 1) CHECK(ckr_ckpt_state(c)->n_schedules == (r == CKR_OK));
            ckr_ckpt_close(c);
            CHECK(fault.blocks == 0);      /* since this checkpoint was made                    */
        }
    CHECK(r == CKR_OK && n > 1);
    ckr_ckpt_close(from);
}

/* The same bytes in another shape are another tensor. */
static void other_shapes(void)
{
    const int64_t shape[2] = { 1, 2 }, turned[2] = { 2, 1 };
    float dst[2] = { 0, 0 };
    ckr_read r = CKR_ZERO;
    ckr_open_desc d = failing(-1, 0, 0);
    ckr_ckpt *c = NULL;
    CHECK_OK(ckr_ckpt_create(&d, &c, &err), &err);
    CHECK_OK(ckr_ckpt_put(c, "a", "param", CKR_DTYPE_F32, 2, shape, two, &err), &err);
    r.tensor = ckr_ckpt_tensor(c, "a", "param");
    r.dst = dst;
    r.dst_size = sizeof dst;
    r.n_dims = 2;
    CHECK_OK(ckr_ckpt_read(c, &r, 1, &err), &err);
    r.shape = shape;
    r.dtype = CKR_DTYPE_F32;
    CHECK_OK(ckr_ckpt_read(c, &r, 1, &err), &err);
    for (int i = 0; i < 3; i++) {
        r.shape = i ? shape : turned;
        r.n_dims = i == 1 ? 1 : 2;
        r.dtype = i == 2 ? CKR_DTYPE_BF16 : CKR_DTYPE_F32;
        bad_is(ckr_ckpt_read(c, &r, 1, &err), &err, "expected",
               bad(CKR_ITEM_READ_SHAPE, "", NOWHERE, "a"));
        CHECK(strstr(err.text, i == 2 ? "bfloat16" : i == 1 ? "[1]" : "[2, 1]") != NULL);
    }
    ckr_ckpt_close(c);
}

/* A plan is of the state that it was made from. */
static void put_after_plan(void)
{
    const int64_t shape[1] = { 2 };
    ckr_target t = target();
    ckr_plan *p = NULL;
    ckr_ckpt *c = plain_of("a", CKR_DTYPE_F32);
    if (!c || !CHECK_OK(ckr_plan_create(c, &t, 0, &p, &err), &err)) return;
    CHECK_OK(ckr_ckpt_put(c, "b", "param", CKR_DTYPE_F32, 1, shape, two, &err), &err);
    bad_is(ckr_plan_write(p, OUT, NULL, &err), &err, "an old plan",
           bad(CKR_ITEM_ARG, "", NOWHERE, "plan"));
    CHECK(!memio_find(&mem, OUT));
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

static void targets_of_one_file(void)
{
    ckr_target t = target();
    t.dialect = "bogus";
    no_plan_at_all(plain_two("a", "b"), &t, 0, "dialect",
                   bad(CKR_ITEM_DIALECT_UNKNOWN, "", NOWHERE, "bogus"));
    t = target(), t.variant = "bogus";
    no_plan_at_all(plain_two("a", "b"), &t, 0, "variant",
                   bad(CKR_ITEM_VARIANT_UNKNOWN, "", NOWHERE, "bogus"));
    CHECK(err.remedy[0]);
    t = target(), t.dtype = CKR_DTYPE_I8;
    no_plan_at_all(plain_two("a", "b"), &t, 0, "int8", bad(CKR_ITEM_ARG, "", NOWHERE, "dtype"));
    CHECK(strstr(err.remedy, "float8_e5m2"));
    t = target(), t.dtype = CKR_DTYPE_F8_E5M2, t.dialect = "nanotron";
    no_plan_at_all(nanotron(), &t, 0, "fp8 parameters that are trained",
                   bad(CKR_ITEM_ARG, "", NOWHERE, "float8"));
    CHECK(strstr(err.text, "safetensors"));
    t = target(), t.slots = "bogus";
    no_plan_at_all(plain_two("a", "b"), &t, 0, "slots",
                   bad(CKR_ITEM_SLOT_UNKNOWN, "", NOWHERE, "bogus"));
    t = target();
    no_plan_at_all(plain_two("a", "b"), &t, 1000, "1000 bytes",
                   bad(CKR_ITEM_LIMIT, "", NOWHERE, "max_bytes"));
}

static void limited(void)
{
    static char deep[2100];
    ckr_open_desc d;
    ckr_ckpt *c = NULL;
    memset(deep, ']', 1050);
    memset(deep + 1050, 'a', 1049);
    memcpy(deep, "\200\2", 2);
    deep[2097] = '.';
    memio_put(&mem, "/d/deep.pkl", deep, 2098);
    d = failing(-1, 0, 0);
    bad_is(ckr_ckpt_open("/d/deep.pkl", &d, &c, &err), &err, "1048 lists",
           bad(CKR_ITEM_TREE_TOO_DEEP, "/d/deep.pkl", NOWHERE, ""));
    limits.max_arena_bytes = 5000;
    d = failing(-1, 0, 0);
    bad_is(ckr_ckpt_open("/d/deep.pkl", &d, &c, &err), &err, "max_arena_bytes",
           bad(CKR_ITEM_LIMIT, "", NOWHERE, ""));
    memset(&limits, 0, sizeof limits);
    d = failing(FAULT_ALLOC, 1, 0);
    bad_is(ckr_ckpt_open("/d/deep.pkl", &d, &c, &err), &err, "no memory",
           bad(CKR_ITEM_NOMEM, "", NOWHERE, ""));
    CHECK(!c && fault.blocks == 0 && fault.handles == 0);
}

/* ---- schedules ---- */

static void settings(void)
{
    static const ckr_setting bogus = { NULL, "bogus", "1" };
    ckr_target t = target();
    t.sets = &bogus;
    t.n_sets = 1;
    no_plan_at_all(nanotron(), &t, 0, "no such key",
                   bad(CKR_ITEM_SETTING, "", NOWHERE, "bogus"));
    CHECK(strstr(err.remedy, "warmup_steps"));
    t = target(), t.schedule = "bogus:steps=1";
    no_plan_at_all(nanotron(), &t, 0, "no such schedule",
                   bad(CKR_ITEM_SCHEDULE, "", NOWHERE, "bogus"));
    CHECK(strstr(err.remedy, "torchtitan"));
}

static void scheduler_states(void)
{
    ckr_open_desc d;
    ckr_ckpt *c = NULL;
    memio_put(&mem, "/d/a.pkl", S("\200\2}."));
    d = failing(-1, 0, 0);
    d.optimizer = "/d/a.pkl";
    bad_is(ckr_ckpt_open("/d/a.pkl", &d, &c, &err), &err, "no optimizer",
           bad(CKR_ITEM_SCHEDULE_STATE, "/d/a.pkl", NOWHERE, "param_groups"));
    CHECK(!c && fault.blocks == 0 && fault.handles == 0);
}

/* ---- reading ---- */

static void reads(const char *path, int kind, int32_t sys, bad_want w)
{
    ckr_open_desc d = failing(kind, 1, sys);
    ckr_ckpt *c = NULL;
    bad_is(ckr_ckpt_open(path, &d, &c, &err), &err, "reading", w);
    CHECK(!c && fault.blocks == 0 && fault.handles == 0);
    CHECK_INT(err.sys_error, sys);
}

static void input_errors(void)
{
    memio_put(&mem, "/d/a.pkl", S("\200\2N."));
    reads("/d/a.pkl", FAULT_OPEN, EACCES, bad(CKR_ITEM_IO_OPEN, "/d/a.pkl", NOWHERE, ""));
    CHECK(strstr(err.text, ckr__sys_text(EACCES)) && err.remedy[0]);
    reads("/d/a.pkl", FAULT_OPEN, ENOENT, bad(CKR_ITEM_PATH_NOT_FOUND, "/d/a.pkl", NOWHERE, ""));
    reads("/d/a.pkl", FAULT_OPEN, EISDIR, bad(CKR_ITEM_IS_DIRECTORY, "/d/a.pkl", NOWHERE, ""));
    reads("/d/a.pkl", FAULT_STAT, EACCES, bad(CKR_ITEM_IO_OPEN, "/d/a.pkl", NOWHERE, ""));
    reads("/d/a.pkl", FAULT_READ, EIO, bad(CKR_ITEM_IO_READ, "/d/a.pkl", NOWHERE, ""));
    memio_load(&mem, TP2, IN);
    memio_remove(&mem, IN "/latest.txt");
    reads(IN, FAULT_LIST, EIO, bad(CKR_ITEM_IO_LIST, IN, NOWHERE, ""));
}

/* ---- writing ---- */

/* Writes `c` to OUT with one failing call: this error, and nothing is left of it. */
static void writes(ckr_ckpt *c, int kind, unsigned long at, int32_t sys, bool force, bad_want w)
{
    ckr_target t = target();
    ckr_plan *p = NULL;
    ckr_result r;
    t.force = force;
    if (!c) return;
    CHECK_OK(ckr_plan_create(c, &t, 0, &p, &err), &err);
    fault.kind = kind;
    fault.at = at;
    fault.sys = sys;
    memset(fault.calls, 0, sizeof fault.calls);
    r = ckr_plan_write(p, OUT, NULL, &err);
    bad_is(r, &err, ckr_item_name(w.item), w);
    CHECK(err.sys_error == sys && (sys == EIO || err.remedy[0]));
    CHECK(!memio_find(&mem, OUT) || force);
    CHECK(!memio_find(&mem, TEMP) && !memio_find(&mem, OLD));
    fault.kind = -1;
    ckr_plan_free(p);
}

static void output_errors(void)
{
    ckr_ckpt *c = plain_two("a", "b");
    memio_put(&mem, "/w/x", "x", 1);
    writes(c, FAULT_CREATE, 1, EACCES, false, bad(CKR_ITEM_IO_OPEN, TEMP, NOWHERE, ""));
    writes(c, FAULT_WRITE, 1, EIO, false, bad(CKR_ITEM_IO_WRITE, TEMP, NOWHERE, ""));
    writes(c, FAULT_WRITE, 1, ENOSPC, false, bad(CKR_ITEM_IO_NO_SPACE, TEMP, NOWHERE, ""));
    writes(c, FAULT_SYNC, 1, EIO, false, bad(CKR_ITEM_IO_SYNC, TEMP, NOWHERE, ""));
    writes(c, FAULT_RENAME, 1, EIO, false, bad(CKR_ITEM_IO_RENAME, TEMP, NOWHERE, ""));
    writes(c, FAULT_SYNC_DIR, 1, EIO, true, bad(CKR_ITEM_IO_SYNC, "/w", NOWHERE, ""));
    memio_remove(&mem, OUT);
    ckr_ckpt_close(c);
    CHECK(fault.blocks == 0 && fault.handles == 0);
    c = nanotron();
    writes(c, FAULT_MKDIR, 1, EACCES, false, bad(CKR_ITEM_IO_MKDIR, TEMP, NOWHERE, ""));
    writes(c, FAULT_MKDIR, 2, ENOSPC, false, bad(CKR_ITEM_IO_NO_SPACE, TEMP "/13", NOWHERE, ""));
    writes(c, FAULT_WRITE, 1, ENOSPC, false,
           bad(CKR_ITEM_IO_NO_SPACE, TEMP "/13/model/model/token_position_embeddings/pp_block/"
               "token_embedding/model_weight_pp-rank-0-of-1_tp-rank-0-of-2.safetensors", NOWHERE,
               ""));
    ckr_ckpt_close(c);
    CHECK(fault.blocks == 0 && fault.handles == 0);
}

static uint64_t mem_room;

static bool never(void *user, uint64_t done, uint64_t total)
{
    (void)user;
    (void)done;
    (void)total;
    return false;
}

static int32_t room_of(void *user, const char *dir, uint64_t *bytes)
{
    (void)user;
    CHECK_STR(dir, "/w");
    *bytes = mem_room;
    return 0;
}

/* What does not fit is refused before the first byte: by one byte; what just fits goes there. */
static void no_room(void)
{
    const int64_t shape[1] = { 2 };
    ckr_open_desc d = failing(-1, 0, 0);
    ckr_target t = target();
    ckr_ckpt *c = NULL;
    ckr_plan *p = NULL;
    env.io.room_fn = room_of;
    CHECK_OK(ckr_ckpt_create(&d, &c, &err), &err);
    CHECK_OK(ckr_ckpt_put(c, "a", "param", CKR_DTYPE_F32, 1, shape, two, &err), &err);
    CHECK_OK(ckr_plan_create(c, &t, 0, &p, &err), &err);
    if (p) {
        mem_room = ckr_plan_info(p)->bytes_written - 1;
        bad_is(ckr_plan_write(p, OUT, NULL, &err), &err, "one byte short",
               bad(CKR_ITEM_IO_NO_SPACE, OUT, NOWHERE, ""));
        CHECK(err.sys_error == ENOSPC && err.remedy[0]);
        CHECK(!memio_find(&mem, OUT) && !memio_find(&mem, TEMP));
        mem_room++;
        CHECK_OK(ckr_plan_write(p, OUT, NULL, &err), &err);
        memio_remove(&mem, OUT);
    }
    ckr_plan_free(p);
    ckr_ckpt_close(c);
    CHECK(fault.blocks == 0 && fault.handles == 0);
}

static void cancelled(void)
{
    const int64_t shape[1] = { 2 };
    ckr_open_desc d = failing(-1, 0, 0);
    ckr_target t = target();
    ckr_ckpt *c = NULL;
    ckr_plan *p = NULL;
    env.progress_fn = never;
    CHECK_OK(ckr_ckpt_create(&d, &c, &err), &err);
    CHECK_OK(ckr_ckpt_put(c, "a", "param", CKR_DTYPE_F32, 1, shape, two, &err), &err);
    CHECK_OK(ckr_plan_create(c, &t, 0, &p, &err), &err);
    memio_put(&mem, "/w/x", "x", 1);
    bad_is(ckr_plan_write(p, OUT, NULL, &err), &err, "cancelled",
           bad(CKR_ITEM_CANCELLED, "", NOWHERE, ""));
    CHECK(!memio_find(&mem, OUT) && !memio_find(&mem, TEMP));
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

static void outputs(void)
{
    ckr_target t = target();
    ckr_plan *p = NULL;
    ckr_ckpt *c = nanotron();
    if (!c || !CHECK_OK(ckr_plan_create(c, &t, 0, &p, &err), &err)) return;
    memio_put(&mem, OUT, "there", 5);
    bad_is(ckr_plan_write(p, OUT, NULL, &err), &err, "exists",
           bad(CKR_ITEM_OUTPUT_EXISTS, OUT, NOWHERE, ""));
    CHECK(strstr(err.remedy, "ckr_target.force"));
    bad_is(ckr_plan_write(p, STEP "out", NULL, &err), &err, "inside",
           bad(CKR_ITEM_OUTPUT_INSIDE, STEP "out", NOWHERE, ""));
    bad_is(ckr_plan_write(p, "/w/none/out", NULL, &err), &err, "no parent",
           bad(CKR_ITEM_PATH_NOT_FOUND, "/w/none/out", NOWHERE, ""));
    CHECK(err.remedy[0]);
    memio_remove(&mem, OUT);
    fault.kind = FAULT_MKDIR;          /* another run was faster */
    fault.at = fault.calls[FAULT_MKDIR] + 1;
    fault.sys = EEXIST;
    bad_is(ckr_plan_write(p, OUT, NULL, &err), &err, "busy",
           bad(CKR_ITEM_OUTPUT_BUSY, TEMP, NOWHERE, ""));
    CHECK(err.remedy[0] && !memio_find(&mem, OUT));
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

/* ---- what a format cannot hold ---- */

static void unwritable_names(void)
{
    ckr_target t = target();
    const size_t n = 100000000;
    char *name;
    no_plan_at_all(plain_two("a", "__metadata__"), &t, 0, "__metadata__",
                   bad(CKR_ITEM_WRITE_NAME, "", NOWHERE, "__metadata__"));
    no_plan_at_all(plain_two("a", "\377"), &t, 0, "no UTF-8",
                   bad(CKR_ITEM_WRITE_NAME, "", NOWHERE, "\377"));
    for (t.dialect = "safetensors"; t.dialect;
         t.dialect = *t.dialect == 's' ? "torch" : *t.dialect == 't' ? "dcp" : NULL) {
        no_plan_at_all(colliding(), &t, 0, "one name twice",
                       bad(CKR_ITEM_WRITE_DUPLICATE, "", NOWHERE, MOMENT));
        CHECK(strstr(err.remedy, "rename"));
    }
    name = (char *)malloc(n + 1);
    if (!name) exit(2);
    memset(name, 'n', n);
    name[n] = 0;
    no_plan_at_all(plain_two("a", name), &t, 0, "a header over 100 MB",
                   bad(CKR_ITEM_WRITE_SIZE, "", NOWHERE, ""));
    free(name);
    t.dialect = "torch";
    no_plan_at_all(plain_of("q", CKR_DTYPE_QINT8), &t, 0, "qint8",
                   bad(CKR_ITEM_WRITE_DTYPE, "", NOWHERE, "/q"));
}

static bad_zip zip;

/* A file of random states with this value among them is carried along, or is not. */
static void carries(const char *value, size_t n, bad_want w)
{
    static const char head[] = "\200\2cnanotron.random\nRandomStates\n)\201}" BAD_STR("\5", "_dict")
        "}" BAD_STR("\11", "tp_synced") "cnanotron.random\nRandomState\n)\201}" BAD_STR("\5",
        "extra"), tail[] = "sbssb.";
    char pickle[600];
    ckr_target t = target();
    memcpy(pickle, head, sizeof head - 1);
    memcpy(pickle + sizeof head - 1, value, n);
    memcpy(pickle + sizeof head - 1 + n, tail, sizeof tail);
    memio_free(&mem);
    memio_load(&mem, TP2, IN);
    bad_torch(&zip, pickle, sizeof head - 1 + n + sizeof tail - 1);
    memio_put(&mem, RANDOM, zip.b, zip.n);
    no_plan_at_all(opened(IN), &t, 0, ckr_item_name(w.item), w);
}

#define MEMBER "13/random/tp-0-of-2_dp-0-of-1_pp-0-of-1.pt"

static void unwritable_values(void)
{
    static const char conj[] = "ctorch._utils\n_rebuild_tensor_v2\n(("
        BAD_STORAGE("ComplexFloatStorage", BAD_KEY, "\1")
        "K\0))\211ccollections\nOrderedDict\n)R}" BAD_STR("\4", "conj") "\210stR";
    carries(S("]q\5h\5\205q\6a0h\6"), bad(CKR_ITEM_WRITE_CYCLE, MEMBER, NOWHERE,
                                             "/_dict/tp_synced/extra/[0]/[0]"));
    carries(S("(" BAD_STR("\7", "storage") "ctorch\nFloatStorage\n" BAD_KEY BAD_STR("\3", "cpu")
              "K\2tQ"), bad(CKR_ITEM_WRITE_NODE, MEMBER, NOWHERE, "/_dict/tp_synced/extra"));
    carries(S(conj), bad(CKR_ITEM_COPY_TENSOR, MEMBER, NOWHERE, "/_dict/tp_synced/extra"));
}

/* Two floats shown a hundred times: 792 bytes that are stored elsewhere. */
static void repeated(void)
{
    static const char wide[] = "\200\2}" BAD_STR("\1", "w") "ctorch._utils\n_rebuild_tensor_v2\n(("
        BAD_STORAGE("FloatStorage", BAD_KEY, "\2") "K\0K\144K\2\206K\0K\1\206\211"
        "ccollections\nOrderedDict\n)RtRs.";
    uint64_t room;
    bad_torch(&zip, wide, sizeof wide - 1);
    memio_put(&mem, "/d/wide.pt", zip.b, zip.n);
    for (room = 791; room <= 792; room++) {
        ckr_open_desc d;
        ckr_ckpt *c = NULL;
        uint8_t total[16];
        ckr_result r;
        limits.max_repeated_bytes = room;
        d = failing(-1, 0, 0);
        CHECK_OK(ckr_ckpt_open("/d/wide.pt", &d, &c, &err), &err);
        r = ckr_ckpt_digest(c, NULL, total, &err);
        if (room == 792) CHECK_OK(r, &err);
        else bad_is(r, &err, "wide", bad(CKR_ITEM_REPEATED, "", NOWHERE, "w"));
        ckr_ckpt_close(c);
    }
    memset(&limits, 0, sizeof limits);
    CHECK(fault.blocks == 0 && fault.handles == 0);
}

/* A value of a parameter group that has no text: two checkpoints cannot be compared. */
static void uncomparable(void)
{
    static const char *const path[] = { STATES("0"), STATES("1") };
    ckr_ckpt *c;
    ckr_diff *diff = NULL;
    int i;
    ckr_result r;
    memio_free(&mem);
    memio_load(&mem, TP2, IN);
    for (i = 0; i < 2; i++) {
        const memio_file *f = memio_find(&mem, path[i]);
        uint8_t *p = f ? f->data : NULL;
        while (p && memcmp(p, "\7\0\0\0foreach", 11)) p++;
        if (!p || !CHECK(p[16] == 'N')) return;
        p[16] = 0x8f;                          /* None becomes an empty set */
    }
    c = opened(IN);
    if (!c) return;
    memset(&diff, 0, sizeof diff);
    r = ckr_ckpt_diff(c, c, &diff, &err);          /* compared by its place, not refused */
    CHECK(r == CKR_OK && diff->n_tensors == 0);
    ckr_diff_free(diff);
    ckr_ckpt_close(c);
}

/* What only a program that fills states and files itself can do: the pieces of a tensor, the
   entries of a file. */
static void states_by_hand(void)
{
    ckr_target t = target();
    ckr_ckpt *c = plain_two("a", "b");
    ckr_tensor *x;
    ckr__out_file f;
    ckr__image *image = NULL;
    if (!c) return;
    x = c->state.tensors[1];
    x->n_pieces = 0;
    no_plan_at_all(c, &t, 0, "no piece", bad(CKR_ITEM_TENSOR_HOLE, "", NOWHERE, "b"));
    c = plain_two("a", "b");
    if (!c) return;
    x = c->state.tensors[1];
    x->pieces[0].file = 0;                     /* there is no file */
    ckr__ctx_enter(&c->ctx, &err);
    bad_is(ckr__tensor_check(&c->ctx, x), &err, "no such file",
           bad(CKR_ITEM_PIECE_RANGE, "", 0, "b"));
    ckr__ctx_enter(&c->ctx, &err);
    memset(&f, 0, sizeof f);
    f.path = "a";
    f.format = CKR_FORMAT_SAFETENSORS;
    f.root = ckr__make(&c->ctx, CKR_NODE_DICT);
    f.n_entries = 1;
    bad_is(ckr__image_make(&c->ctx, &f, &image), &err, "an entry too many",
           bad(CKR_ITEM_WRITE_ENTRY, "a", NOWHERE, ""));
    ckr_ckpt_close(c);
}

/* ---- bytes that are not what they were ---- */

/* Another last byte in the first piece of a slot that is (or is not) a copy; its file. */
static void flip(const ckr_ckpt *c, const char *name, const char *slot, bool replica)
{
    const ckr_tensor *t = ckr_ckpt_tensor(c, name, slot);
    uint32_t i;
    for (i = 0; t && i < t->n_pieces && t->pieces[i].replica != replica; i++) {}
    if (CHECK(t && i < t->n_pieces))
        memio_find(&mem, c->ctx.files[t->pieces[i].file].path)->data[t->pieces[i].offset + 1] ^= 4;
}

static const ckr_note *note_of(const ckr_note *notes, uint64_t n, const char *code)
{
    uint64_t i;
    for (i = 0; i < n; i++) if (!strcmp(notes[i].code, code)) return &notes[i];
    return NULL;
}

/* By an entry of `check`, or one that was made on opening. */
static void unsound(const ckr_ckpt *c, ckr_item item, const char *subject)
{
    ckr_report *report = NULL;
    const char *name = ckr_item_name(item);
    if (!CHECK_OK(ckr_ckpt_check(c, &report, &err), &err)) return;
    bad_seen[item] = true;
    const ckr_note *n = note_of(report->notes, report->n_notes, name);
    if (!n) n = note_of(ckr_ckpt_state(c)->notes, ckr_ckpt_state(c)->n_notes, name);
    if (t_check(!report->sound && n, __FILE__, __LINE__, "%s: sound", name)) {
        CHECK(n->severity == CKR_ERROR && n->reason);
        CHECK_STR(n->subject, subject);
    }
    ckr_report_free(report);
}

static void other_bytes(void)
{
    ckr_ckpt *c = nanotron();
    ckr_target t = target();
    ckr_plan *p = NULL;
    if (!c) return;
    flip(c, NORM, "exp_avg", true);
    unsound(c, CKR_ITEM_REPLICA_DIFFERS, NORM " (exp_avg)");
    flip(c, NORM, "exp_avg", true);
    if (CHECK_OK(ckr_plan_create(c, &t, 0, &p, &err), &err))
        CHECK_OK(ckr_plan_write(p, OUT, NULL, &err), &err);
    ckr_plan_free(p);
    ckr_ckpt_close(c);
    c = opened(OUT);
    if (!c) return;
    flip(c, QKV, "param", false);
    unsound(c, CKR_ITEM_SIDE_DIGEST, QKV "/param");
    ckr_ckpt_close(c);
    memio_free(&mem);
    memio_load(&mem, ZERO, IN);
    c = opened(IN);
    if (!c) return;
    flip(c, QKV, "param", false);
    unsound(c, CKR_ITEM_MASTER_DIFFERS, QKV);
    ckr_ckpt_close(c);
}

/* What RECOVER lets change is counted, each of it, in an entry of its own. */
static void recovered(void)
{
    ckr_ckpt *c = nanotron();
    ckr_target t = CKR_ZERO;
    ckr_plan *p = NULL;
    uint64_t i, n = 0;
    char want[32];
    t.mode = CKR_MODE_RECOVER;
    t.topology.zero = -1;
    if (c && CHECK_OK(ckr_plan_create(c, &t, 0, &p, &err), &err)) {
        const ckr_plan_facts *f = ckr_plan_info(p);
        const ckr_note *note = note_of(f->notes, f->n_notes, "CKR_N_RECOVER");
        for (i = 0; i < f->n_notes; i++) n += f->notes[i].severity == CKR_CHANGED;
        snprintf(want, sizeof want, "%d changed", (int)n);
        CHECK_INT(f->verdict, CKR_VERDICT_CHANGED);
        if (CHECK(note != NULL)) CHECK_STR(note->new_value, want);
    }
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

/* What the framework's loader asks for, and what it does without: said for the step that is
   opened, and of the run's directory where that was opened. */
static void not_resumed(void)
{
    static const char hf[] = "/w/hf";
    ckr_ckpt *c = nanotron();
    ckr_ckpt_close(c);
    memio_remove(&mem, STEP "optimizer/optimizer_config.json");
    if ((c = opened(IN)) != NULL)
        unsound(c, CKR_ITEM_RESUME_STOPS, "optimizer/optimizer_config.json");
    ckr_ckpt_close(c);
    if ((c = nanotron()) != NULL) ckr_ckpt_close(c);
    memio_remove(&mem, IN "/latest.txt");
    if ((c = opened(IN)) != NULL) unsound(c, CKR_ITEM_RESUME_FRESH, "latest.txt");
    ckr_ckpt_close(c);
    if ((c = opened(IN "/13")) != NULL) {
        ckr_report *report = NULL;
        if (CHECK_OK(ckr_ckpt_check(c, &report, &err), &err)) CHECK(report->sound);
        ckr_report_free(report);
    }
    ckr_ckpt_close(c);
    memio_free(&mem);
    memio_load(&mem, "tests/data/fsdp/trainer_fsdp2_sharded_w2/ckpt", hf);
    memio_remove(&mem, "/w/hf/checkpoint-6/scheduler.pt");
    if ((c = opened(hf)) != NULL) unsound(c, CKR_ITEM_RESUME_SKIPS, "scheduler.pt");
    ckr_ckpt_close(c);
}

/* A later step that the framework would take, and that is not whole; one that its own file of the
   newest step passes over. */
static void newer_steps(void)
{
    static const struct { const char *from, *step, *later, *as; ckr_severity severity; } rows[] = {
        { "tests/data/fsdp/trainer_fsdp2_sharded_w2/ckpt", "checkpoint-6", "checkpoint-9", NULL,
          CKR_CHANGED },
        { ZERO, "13", "14", "13", CKR_EXACT },
        { "tests/data/verl/fsdp2_w2/ckpt", "global_step_7", "global_step_8", "global_step_7",
          CKR_EXACT }
    };
    size_t i, k;
    for (i = 0; i < sizeof rows / sizeof *rows; i++) {
        ckr_ckpt *c;
        char from[256], later[256];
        memio_free(&mem);
        memio_load(&mem, rows[i].from, "/w/run");
        snprintf(later, sizeof later, "/w/run/%s", rows[i].later);
        memio_add(&mem, later, true);
        snprintf(from, sizeof from, "/w/run/%s/", rows[i].step);
        for (k = mem.n; rows[i].as && k-- > 0;)
            if (!strncmp(mem.files[k]->path, from, strlen(from)) && !mem.files[k]->is_dir) {
                snprintf(later, sizeof later, "/w/run/%s/%s", rows[i].later,
                         mem.files[k]->path + strlen(from));
                memio_put(&mem, later, mem.files[k]->data, (size_t)mem.files[k]->size);
            }
        if ((c = opened("/w/run")) != NULL) {
            const ckr_state *s = ckr_ckpt_state(c);
            const ckr_note *n = note_of(s->notes, s->n_notes, "CKR_NEWER_STEP");
            if (t_check(n != NULL, __FILE__, __LINE__, "%s", rows[i].later)) {
                CHECK_STR(n->subject, rows[i].later);
                CHECK_INT(n->severity, rows[i].severity);
            }
        }
        ckr_ckpt_close(c);
    }
    memio_free(&mem);
}

static void side_file(void)
{
    ckr_open_desc d;
    ckr_ckpt *c = nanotron();
    ckr_ckpt_close(c);
    memio_put(&mem, STEP "ckptresume.json", "[]", 2);
    d = failing(-1, 0, 0);
    bad_is(ckr_ckpt_open(IN, &d, &c, &err), &err, "a list",
           bad(CKR_ITEM_SIDE_FORMAT, STEP "ckptresume.json", 0, ""));
    CHECK(!c);
}

/* Rows of the vocabulary: more than the padded ones, none, a text; some that the digests deny. */
static void side_vocab(void)
{
    static const char *const rows[] = { "{\"logical\": 97, \"padded\": 96}",
                                        "{\"logical\": 0, \"padded\": 96}",
                                        "{\"logical\": \"9\", \"padded\": 96}", "7" };
    char side[400];
    ckr_open_desc d;
    ckr_target t = CKR_ZERO;
    ckr_plan *p = NULL;
    ckr_ckpt *c = nanotron();
    size_t i;
    const long padded = c ? (long)ckr_ckpt_state(c)->padded_vocab : 0;
    ckr_ckpt_close(c);
    for (i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(side, sizeof side, "{\"ckptresume\": 1, \"vocab\": %s}", rows[i]);
        memio_put(&mem, STEP "ckptresume.json", side, strlen(side));
        d = failing(-1, 0, 0);
        bad_is(ckr_ckpt_open(IN, &d, &c, &err), &err, rows[i],
               bad(CKR_ITEM_SIDE_FORMAT, STEP "ckptresume.json", NOWHERE, "vocab"));
    }
    snprintf(side, sizeof side, "{\"ckptresume\": 1, \"vocab\": {\"logical\": %ld, "
             "\"padded\": %ld}, \"tensors\": {\"" EMBED "/param\": "
             "\"00112233445566778899aabbccddeeff\"}}", padded - 1, padded);
    memio_put(&mem, STEP "ckptresume.json", side, strlen(side));
    if ((c = opened(IN)) == NULL) return;
    CHECK_INT(ckr_ckpt_state(c)->vocab, padded - 1);
    t.topology.zero = -1;
    t.mode = CKR_MODE_CONTINUE;
    if (CHECK_OK(ckr_plan_create(c, &t, 0, &p, &err), &err)) {
        CHECK(ckr_plan_write(p, OUT, NULL, &err) != CKR_OK);
        CHECK(note_of(ckr_plan_info(p)->notes, ckr_plan_info(p)->n_notes, "CKR_E_SIDE_DIGEST"));
    }
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

/* One rank's file alone, and a file of no tensors: nothing is answered about them. */
static void nothing_to_ask(void)
{
    static const char part[] = "/w/model_world_size_2_rank_0.pt";
    uint8_t total[16];
    ckr_ckpt *c;
    memio_free(&mem);
    memio_load_file(&mem, "tests/data/verl/fsdp2_w2/ckpt/global_step_7/actor/"
                          "model_world_size_2_rank_0.pt", part);
    if ((c = opened(part)) != NULL)
        bad_is(ckr_ckpt_digest(c, NULL, total, &err), &err, "a part",
               bad(CKR_ITEM_PART, part, NOWHERE, ""));
    ckr_ckpt_close(c);
    memio_put(&mem, "/w/a.pkl", S("\200\2N."));
    if ((c = opened("/w/a.pkl")) != NULL)
        bad_is(ckr_ckpt_digest(c, NULL, total, &err), &err, "nothing",
               bad(CKR_ITEM_NOTHING, "/w/a.pkl", NOWHERE, ""));
    ckr_ckpt_close(c);
}

/* ---- targets ---- */

/* The plan is refused with this note; nothing can be written from it. */
static void no_plan(const ckr_ckpt *c, const ckr_target *t, ckr_item item, const char *subject,
                    bool remedy)
{
    const ckr_plan_facts *f;
    ckr_plan *p = NULL;
    uint64_t i;
    const char *name = ckr_item_name(item);
    if (!CHECK_OK(ckr_plan_create(c, t, 0, &p, &err), &err)) return;
    f = ckr_plan_info(p);
    for (i = 0; i < f->n_notes && strcmp(f->notes[i].code, name); i++) {}
    bad_seen[item] = true;
    if (t_check(i < f->n_notes && f->verdict == CKR_VERDICT_REFUSED, __FILE__, __LINE__,
                "%s: not refused", name)) {
        const ckr_note *n = &f->notes[i];
        CHECK(n->severity == CKR_ERROR && n->reason && n->reason[0]);
        CHECK_STR(n->subject, subject);
        t_check(!remedy || (n->remedy && n->remedy[0]), __FILE__, __LINE__, "%s: no remedy", name);
    }
    CHECK(ckr_plan_write(p, "/w/out", NULL, &err) == CKR_E_REFUSED);
    bad_seen[CKR_ITEM_PLAN_REFUSED] = true;
    CHECK(err.item == CKR_ITEM_PLAN_REFUSED && !memio_find(&mem, "/w/out"));
    CHECK(strstr(err.text, "CKR_") && err.where[0]);       /* the error names a first reason */
    ckr_plan_free(p);
}

/* Moments without the parameters that they are of are nobody's weights. */
static void moments_alone(void)
{
    static const int64_t shape[1] = { 2 };
    static const float x[2] = { 1, 2 };
    ckr_target t = CKR_ZERO;
    ckr_ckpt *c = NULL;
    t.dialect = "verl";
    t.topology.zero = -1;
    if (!CHECK_OK(ckr_ckpt_create(NULL, &c, &err), &err)) return;
    CHECK_OK(ckr_ckpt_put(c, MOMENT, "param", CKR_DTYPE_F32, 1, shape, x, &err), &err);
    no_plan(c, &t, CKR_ITEM_SLOT_NAMES, MOMENT, true);
    ckr_ckpt_close(c);
}

/* What the target's dialect has no use for is told, not passed over. */
static void in_vain(const ckr_ckpt *c)
{
    static const char *const name[] = { "vpp", "slots", "data", "kv_heads", "max_shard_bytes",
                                        "fsdp_size" };
    size_t i;
    for (i = 0; i < sizeof name / sizeof *name; i++) {
        ckr_target t = target();
        ckr_plan *p = NULL;
        t.dialect = i == 3 ? "deepspeed" : "nanotron";
        if (i == 0) option_int(&t, "vpp", 2);
        if (i == 1) t.slots = "params";
        if (i == 2) option_text(&t, "data", "train_*.bin");
        if (i == 3) option_int(&t, "kv_heads", 2);
        if (i == 4) option_int(&t, "max_shard_bytes", 1);
        if (i == 5) option_int(&t, "fsdp_size", 2);
        bad_is(ckr_plan_create(c, &t, 0, &p, &err), &err, name[i],
               bad(CKR_ITEM_ARG, "", NOWHERE, name[i]));
        CHECK(!p && strstr(err.text, "these have: "));
    }
}

/* A key that is none, and text where a number belongs. */
static void no_options(const ckr_ckpt *c)
{
    static const char *const list[][2] = { { "vppp", "2" }, { "vpp", "two" }, { "vpp", "-1" },
                                           { "seq_len", "9999999999999999999" } };
    size_t i;
    for (i = 0; i < sizeof list / sizeof *list; i++) {
        ckr_target t = target();
        ckr_plan *p = NULL;
        option_text(&t, list[i][0], list[i][1]);
        bad_is(ckr_plan_create(c, &t, 0, &p, &err), &err, list[i][1],
               bad(CKR_ITEM_ARG, "", NOWHERE, list[i][0]));
        CHECK(!p);
    }
}

static void targets(void)
{
    const ckr_setting batch = { NULL, "batch_size", "5" };
    ckr_target t;
    ckr_ckpt *c, *plain;
    c = nanotron();
    if (!c) return;
    in_vain(c);
    no_options(c);
    moments_alone();
    t = target(), t.topology.tp = 3;
    no_plan(c, &t, CKR_ITEM_TP_UNEVEN, QKV, true);
    t = target(), t.topology.pp = 9;
    no_plan(c, &t, CKR_ITEM_PP_EMPTY_STAGE, "stage 5", true);
    t = target(), t.topology.zero = 3;
    no_plan(c, &t, CKR_ITEM_ZERO_STAGE, "zero", true);
    t = target(), t.topology.ep = 2;
    no_plan(c, &t, CKR_ITEM_EP_SIZE, "ep", true);
    t = target(), t.without = CKR_GROUPS;
    no_plan(c, &t, CKR_ITEM_GROUPS_WITHOUT, "groups", true);
    t = target(), t.without = CKR_PARAMS;
    no_plan(c, &t, CKR_ITEM_PARAMS_WITHOUT, "params", true);
    t = target(), t.lr_policy = CKR_LR_REWARM;
    no_plan(c, &t, CKR_ITEM_SCHEDULE_REBASE, "rewarm", true);
    t = target(), t.without = CKR_PROGRESS;
    no_plan(c, &t, CKR_ITEM_CLOCK_WITHOUT, "progress", true);
    t = target(), t.topology.dp = 2, t.sets = &batch, t.n_sets = 1;
    no_plan(c, &t, CKR_ITEM_BATCH, "batch_size", true);
    ckr_ckpt_close(c);
    plain = plain_two("a", "b");
    if (!plain) return;
    t = target(), t.dialect = "nanotron";
    no_plan(plain, &t, CKR_ITEM_NANOTRON_SOURCE, "params", false);
    ckr_ckpt_close(plain);
}

int main(int argc, char **argv)
{
    static const ckr_item dead[] = { CKR_ITEM_JSON_PUT, CKR_ITEM_OK };   /* never leaves a call */
    t_begin(argc, argv);
    RUN(arguments);
    RUN(puts_refused);
    RUN(schedules_refused);
    RUN(nulls);
    RUN(all_nulls);
    RUN(another_run);
    RUN(no_choices);
    RUN(no_such_parameters);
    RUN(puts_without_memory);
    RUN(other_shapes);
    RUN(put_after_plan);
    RUN(targets_of_one_file);
    RUN(limited);
    RUN(repeated);
    RUN(settings);
    RUN(scheduler_states);
    RUN(input_errors);
    RUN(output_errors);
    RUN(cancelled);
    RUN(no_room);
    RUN(outputs);
    RUN(unwritable_names);
    RUN(unwritable_values);
    RUN(uncomparable);
    RUN(states_by_hand);
    RUN(other_bytes);
    RUN(recovered);
    RUN(not_resumed);
    RUN(newer_steps);
    RUN(side_file);
    RUN(side_vocab);
    RUN(nothing_to_ask);
    RUN(targets);
    if (!t_now.only) bad_all_seen(BAD_RUN, dead);
    memio_free(&mem);
    return t_end();
}
