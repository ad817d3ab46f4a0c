/* A program's own run, put through the header and back: parameters, moments, groups, schedule,
   progress, random streams by rank, places in the data; in every form that holds tensors only. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "t.h"
#include "memio.h"

#define CHECK_AT(x, ...) t_check((x) ? true : false, __FILE__, __LINE__, __VA_ARGS__)

enum { RANKS = 3, ROWS = 6, COLS = 4 };

static const char *tmp;
static float values[3][ROWS * COLS];
static ckr_error e;

static const struct { const char *dialect, *name, *option; bool dir; } forms[] = {
    { "safetensors", "run.safetensors", NULL, false }, { "torch", "run.pt", NULL, false },
    { "dcp", "run_dcp", NULL, true }, { "safetensors", "run_cut", "40", true }
};

static ckr_rng *rng_new(void)
{
    ckr_rng *r = (ckr_rng *)calloc(1, ckr_rng_size());
    if (!r) exit(1);
    return r;
}

/* Kinds of which some have bytes in their framework and some have none; each rank in another place
   of its stream. */
static const ckr_rng_kind kinds[] = { CKR_RNG_PCG64, CKR_RNG_TORCH_CPU, CKR_RNG_PYTHON,
                                      CKR_RNG_TORCH_CUDA, CKR_RNG_LLMC };
enum { KINDS = 5 };

static void rng_at(ckr_rng *r, int kind, uint32_t rank)
{
    double x[2];
    CHECK(ckr_rng_seed(r, kinds[kind], 100 + rank) == CKR_OK);
    for (uint32_t i = 0; i < 3 * rank + 1; i++) {
        (void)ckr_rng_u32(r);
        (void)ckr_rng_uniform(r, CKR_DTYPE_F32, 0, 1, 2, x);
    }
}

static const char *const names[] = { "w" };

static void put_tensors(ckr_ckpt *c)
{
    static const char *const slots[] = { "param", "exp_avg", "exp_avg_sq" };
    const int64_t shape[] = { ROWS, COLS };
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < ROWS * COLS; k++) values[i][k] = (float)(i * 100 + k);
        CHECK_OK(ckr_ckpt_put(c, "w", slots[i], CKR_DTYPE_F32, 2, shape, values[i], &e), &e);
    }
}

/* With streams of all kinds on so many ranks, one that is the same on all, and all else. */
static ckr_ckpt *run_of(uint32_t ranks)
{
    const ckr_hyper hyper[] = { { "initial_lr", 0.001 }, { "weight_decay", 0.1 },
                                { "clip", HUGE_VAL } };
    ckr_ckpt *c = NULL;
    ckr_rng *r = rng_new();
    CHECK_OK(ckr_ckpt_create(NULL, &c, &e), &e);
    put_tensors(c);
    CHECK_OK(ckr_ckpt_put_group(c, "all", names, 1, hyper, 3, &e), &e);
    CHECK_OK(ckr_ckpt_put_schedule(c, "llmc:cosine,learning_rate=0.001,warmup_iterations=2,"
                                      "train_num_batches=50,final_learning_rate_frac=0.1", 7, &e),
             &e);
    CHECK_OK(ckr_ckpt_put_progress(c, 7, 112, -1, 2, &e), &e);
    for (uint32_t rank = ranks; rank-- > 0;)   /* in any order */
        for (int k = 0; k < KINDS; k++) {
            rng_at(r, k, rank);
            CHECK_OK(ckr_ckpt_put_stream(c, rank, NULL, "dp", r, &e), &e);
        }
    rng_at(r, 0, 9);
    CHECK_OK(ckr_ckpt_put_stream(c, 0, "shuffle", "", r, &e), &e);
    CHECK_OK(ckr_ckpt_put_data(c, -1, "sample", 5000000000, &e), &e);
    CHECK_OK(ckr_ckpt_put_data(c, 1, "shard", 17, &e), &e);
    free(r);
    return c;
}

static bool said(const ckr_plan *p, const char *code, const char *subject)
{
    const ckr_plan_facts *f = ckr_plan_info(p);
    for (uint64_t i = 0; i < f->n_notes; i++)
        if (!strcmp(f->notes[i].code, code) &&
            (!subject || (f->notes[i].subject && !strcmp(f->notes[i].subject, subject))))
            return true;
    return false;
}

static ckr_plan *written(const ckr_ckpt *c, int form, uint32_t dp, uint32_t without,
                         const char *path)
{
    ckr_target to = CKR_ZERO;
    ckr_option cut = { "max_shard_bytes", forms[form].option };
    ckr_plan *p = NULL;
    to.dialect = forms[form].dialect;
    to.force = true;
    to.without = without;
    to.topology.dp = dp;
    to.options = &cut;
    to.n_options = forms[form].option != NULL;
    if (CHECK_OK(ckr_plan_create(c, &to, 0, &p, &e), &e))
        CHECK_OK(ckr_plan_write(p, path, NULL, &e), &e);
    return p;
}

static ckr_ckpt *opened(const char *path)
{
    ckr_ckpt *c = NULL;
    CHECK_OK(ckr_ckpt_open(path, NULL, &c, &e), &e);
    return c;
}

/* The streams of rank `rank` are those that rank `was` had. */
static void streams_are(const ckr_rng_streams *s, uint32_t rank, uint32_t was)
{
    ckr_rng *r = rng_new();
    for (int k = 0; k < KINDS; k++) {
        const ckr_rng_given *g = ckr_rng_find(s, rank, ckr_rng_kind_name(kinds[k]), "default");
        rng_at(r, k, was);
        if (CHECK(g && g->state))
            CHECK_AT(ckr_rng_equal(g->state, r), "%s of rank %u", g->kind, (unsigned)rank);
    }
    free(r);
}

static void shuffle_is(const ckr_rng_streams *s, uint32_t rank)
{
    ckr_rng *r = rng_new();
    const ckr_rng_given *g = ckr_rng_find(s, rank, "pcg64", "shuffle");
    rng_at(r, 0, 9);
    CHECK(g && g->state && ckr_rng_equal(g->state, r));
    free(r);
}

/* Whatever the file calls it: a slot of its parameter, of which there are no others. */
static void tensors_are(const ckr_ckpt *c)
{
    static const char *const slots[] = { "param", "exp_avg", "exp_avg_sq" };
    float got[ROWS * COLS];
    CHECK_INT(ckr_ckpt_state(c)->n_tensors, 3);
    for (int i = 0; i < 3; i++) {
        ckr_read r = CKR_ZERO;
        r.tensor = ckr_ckpt_tensor(c, "w", slots[i]);
        if (!CHECK_AT(r.tensor != NULL, "%s", slots[i])) continue;
        CHECK(!strcmp(r.tensor->name, "w") && !strcmp(r.tensor->slot, slots[i]));
        r.dst = got;
        r.dst_size = sizeof got;
        CHECK_OK(ckr_ckpt_read(c, &r, 1, &e), &e);
        CHECK(!memcmp(got, values[i], sizeof got));
    }
}

/* Tensors and all else are one run: the digest says so, and a comparison. */
static void same_run(const ckr_ckpt *c, const ckr_ckpt *was)
{
    uint8_t digest[2][16];
    ckr_diff *d = NULL;
    CHECK_OK(ckr_ckpt_digest(c, NULL, digest[0], &e), &e);
    CHECK_OK(ckr_ckpt_digest(was, NULL, digest[1], &e), &e);
    CHECK(!memcmp(digest[0], digest[1], 16));
    CHECK_OK(ckr_ckpt_diff(was, c, &d, &e), &e);
    CHECK_INT(d->n_tensors, 0);
    for (uint64_t i = 0; i < d->n_others; i++)
        CHECK_AT(false, "%s %s: %s, %s", d->others[i].code, d->others[i].subject,
                 d->others[i].old_value, d->others[i].new_value);
    ckr_diff_free(d);
}

/* All of it is as it was put. */
static void run_is(const ckr_ckpt *c, const ckr_ckpt *was)
{
    const ckr_state *s = ckr_ckpt_state(c);
    ckr_rng_streams *streams = NULL;
    double lr[2][50], x;
    int64_t at = -1;
    tensors_are(c);
    same_run(c, was);
    CHECK_INT(s->n_groups, 1);
    if (s->n_groups == 1) {
        CHECK_STR(s->groups[0].name, "all");
        CHECK(s->groups[0].n_params == 1 && !strcmp(s->groups[0].params[0], "w"));
        CHECK(ckr_node_f64(ckr_node_get(s->groups[0].hyper, "weight_decay"), &x) && x == 0.1);
        CHECK(ckr_node_f64(ckr_node_get(s->groups[0].hyper, "clip"), &x) && x == HUGE_VAL);
    }
    CHECK(s->progress.step == 7 && s->progress.samples == 112 && s->progress.tokens == -1 &&
          s->progress.epoch == 2);
    if (CHECK(s->n_schedules == 1)) {
        CHECK_OK(ckr_schedule_values(ckr_ckpt_schedule(c, 0), CKR_COLUMN_LR, 1, 50, lr[0], NULL,
                                     &e), &e);
        CHECK_OK(ckr_schedule_values(ckr_ckpt_schedule(was, 0), CKR_COLUMN_LR, 1, 50, lr[1], NULL,
                                     &e), &e);
        CHECK(!memcmp(lr[0], lr[1], sizeof lr[0]));
    }
    CHECK(s->topology.dp == RANKS && s->topology.ranks == RANKS);
    CHECK_OK(ckr_ckpt_rng(c, NULL, &streams, &e), &e);
    for (uint32_t rank = 0; streams && rank < RANKS; rank++) {
        streams_are(streams, rank, rank);
        shuffle_is(streams, rank);
    }
    ckr_rng_streams_free(streams);
    CHECK(ckr_ckpt_data(c, -1, "sample", &at) && at == 5000000000);
    CHECK(ckr_ckpt_data(c, 2, "sample", &at) && at == 5000000000);
    CHECK(ckr_ckpt_data(c, 1, "shard", &at) && at == 17);
    CHECK(!ckr_ckpt_data(c, 2, "shard", &at) && !ckr_ckpt_data(c, 1, "none", &at));
}

/* Into each form and back, from each into each other. */
static void there_and_back(void)
{
    ckr_ckpt *c = run_of(RANKS), *in, *again;
    char path[600], other[600];
    for (int f = 0; f < 4; f++) {
        ckr_plan *p;
        snprintf(path, sizeof path, "%s/%s", tmp, forms[f].name);
        p = written(c, f, 0, 0, path);
        if (!p) continue;
        CHECK_AT(!said(p, "CKR_W_TENSORS_ONLY", NULL) && !said(p, "CKR_W_NO_RANDOM", NULL),
                  "%s", forms[f].name);
        CHECK_INT(ckr_plan_info(p)->verdict, CKR_VERDICT_EXACT);
        ckr_plan_free(p);
        in = opened(path);
        if (!in) continue;
        run_is(in, c);
        for (int g = 0; g < 4; g++) {
            snprintf(other, sizeof other, "%s/again_%s", tmp, forms[g].name);
            ckr_plan_free(written(in, g, 0, 0, other));
            again = opened(other);
            if (again) run_is(again, c);
            ckr_ckpt_close(again);
        }
        ckr_ckpt_close(in);
    }
    ckr_ckpt_close(c);
}

/* Names that look like a slot's are names where no such slot was put, and slots with dots and of
   the trainer's own come back. */
static void slots(void)
{
    static const struct { const char *name, *slot; } x[] = {
        { "w", "param" }, { "w", "my.own" }, { "w.a", "param" }, { "w.a", "exp_avg" },
        { "ema.w", "param" }, { "optimizer.state.w.lr", "param" }, { "w", "ema2" }
    };
    enum { N = sizeof x / sizeof *x };
    const float v[N] = { 1, 2, 3, 4, 5, 6, 7 };
    const int64_t one = 1;
    char path[600];
    ckr_ckpt *c = NULL, *in;
    CHECK_OK(ckr_ckpt_create(NULL, &c, &e), &e);
    for (int i = 0; i < N; i++)
        CHECK_OK(ckr_ckpt_put(c, x[i].name, x[i].slot, CKR_DTYPE_F32, 1, &one, &v[i], &e), &e);
    for (int f = 0; f < 4; f++) {
        snprintf(path, sizeof path, "%s/slots_%s", tmp, forms[f].name);
        ckr_plan_free(written(c, f, 0, 0, path));
        in = opened(path);
        if (!in) continue;
        for (int i = 0; i < N; i++)
            CHECK_AT(ckr_ckpt_tensor(in, x[i].name, x[i].slot) != NULL, "%s: %s of %s",
                     forms[f].name, x[i].slot, x[i].name);
        same_run(in, c);
        ckr_ckpt_close(in);
    }
    ckr_ckpt_close(c);
}

/* N -> M -> N: by plans, and by a run that trains in between. */
static void other_ranks(void)
{
    char path[600], other[600];
    ckr_ckpt *c = run_of(RANKS);
    for (int f = 0; f < 4; f++) {
        static const uint32_t to[] = { 1, 5, 2, RANKS };
        ckr_rng_streams *s = NULL;
        ckr_ckpt *in = NULL;
        snprintf(path, sizeof path, "%s/%s", tmp, forms[f].name);
        snprintf(other, sizeof other, "%s/ranks_%s", tmp, forms[f].name);
        for (int i = 0; i < 4; i++) {
            ckr_plan *p = written(in ? in : c, f, to[i], 0, i & 1 ? path : other);
            CHECK(!p || said(p, "CKR_W_DATA_POSITION", "data"));
            ckr_plan_free(p);
            ckr_ckpt_close(in);
            in = opened(i & 1 ? path : other);
            if (!in) break;
            CHECK_INT(ckr_ckpt_state(in)->topology.dp, to[i]);
            CHECK_OK(ckr_ckpt_rng(in, NULL, &s, &e), &e);
            if (!s) continue;
            CHECK_INT(s->n_ranks, to[i]);
            for (uint32_t r = 0; r < to[i] && r < RANKS; r++) streams_are(s, r, r);
            shuffle_is(s, to[i] - 1);
            ckr_rng_streams_free(s);
            s = NULL;
        }
        ckr_ckpt_close(in);
    }
    ckr_ckpt_close(c);
}

/* As a trainer does it: resumed on fewer ranks, it goes on, saves with what it was told of the
   others' streams, and is resumed on all again. */
static void trains_between(void)
{
    char path[600];
    ckr_ckpt *c = run_of(RANKS), *in;
    ckr_rng_want want = CKR_ZERO;
    ckr_rng_streams *s = NULL;
    ckr_rng *r = rng_new(), *drawn = rng_new();
    snprintf(path, sizeof path, "%s/between.safetensors", tmp);
    ckr_plan_free(written(c, 0, 0, 0, path));
    ckr_ckpt_close(c);
    in = opened(path);
    want.topology.dp = 1;
    CHECK_OK(ckr_ckpt_rng(in, &want, &s, &e), &e);
    if (!in || !s || !CHECK(s->n_ranks == 1)) return;
    CHECK_OK(ckr_ckpt_create(NULL, &c, &e), &e);
    put_tensors(c);
    for (uint32_t k = 0; k < s->n_streams; k++) {
        const ckr_rng_given *g = &s->given[k];
        memcpy(r, g->state, ckr_rng_size());
        for (int i = 0; i < 11; i++) (void)ckr_rng_u32(r);
        if (!strcmp(g->kind, "pcg64") && !strcmp(g->name, "default"))
            memcpy(drawn, r, ckr_rng_size());
        CHECK_OK(ckr_ckpt_put_stream(c, 0, g->name, g->scope, r, &e), &e);
    }
    CHECK_OK(ckr_ckpt_put_lineage(c, s, &e), &e);
    ckr_rng_streams_free(s);
    ckr_ckpt_close(in);
    s = NULL;
    ckr_plan_free(written(c, 0, 0, 0, path));
    ckr_ckpt_close(c);
    in = opened(path);
    want.topology.dp = RANKS;
    CHECK_OK(ckr_ckpt_rng(in, &want, &s, &e), &e);
    if (!s) return;
    for (uint32_t rank = 1; rank < RANKS; rank++) streams_are(s, rank, rank);
    CHECK(ckr_rng_equal(ckr_rng_find(s, 0, "pcg64", "default")->state, drawn));
    ckr_rng_streams_free(s);
    ckr_ckpt_close(in);
    free(r);
    free(drawn);
}

/* What is left out is not in the record either. */
static void left_out(void)
{
    char path[600];
    ckr_ckpt *c = run_of(RANKS), *in;
    const ckr_state *s;
    int64_t v;
    snprintf(path, sizeof path, "%s/without.safetensors", tmp);
    ckr_plan_free(written(c, 0, 0, CKR_GROUPS | CKR_OPTIMIZER | CKR_SCHEDULE | CKR_RNG |
                                   CKR_PROGRESS | CKR_DATA, path));
    in = opened(path);
    if (!in) return;
    s = ckr_ckpt_state(in);
    CHECK(!s->n_groups && !s->n_schedules && !s->n_rng && s->progress.step < 0);
    CHECK(!ckr_ckpt_data(in, -1, "sample", &v));
    ckr_ckpt_close(in);
    ckr_ckpt_close(c);
}

/* What was decided goes through every form, twice over, and on exactly. */
static void decisions(void)
{
    static const ckr_lr_policy policies[] = { CKR_LR_SPLICE, CKR_LR_REWARM, CKR_LR_STRETCH };
    static const ckr_hyper lr = { "lr", 0.001 };
    char path[512];
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        ckr_ckpt *c = NULL;
        CHECK_OK(ckr_ckpt_create(NULL, &c, &e), &e);
        put_tensors(c);
        CHECK_OK(ckr_ckpt_put_group(c, "all", names, 1, &lr, 1, &e), &e);
        CHECK_OK(ckr_ckpt_put_schedule(c, "transformers:cosine,num_warmup_steps=5,"
                                          "num_training_steps=100", 20, &e), &e);
        for (int k = 0; k < 3; k++) {
            static const char *const totals[] = { "300", "200", "400" };
            const ckr_setting set = { NULL, "total_steps", totals[k] };
            const int64_t at = 20 + 15 * k;
            ckr_target to = CKR_ZERO;
            ckr_plan *p = NULL;
            double want[400], have[400];
            to.sets = &set;
            to.n_sets = 1;
            to.lr_policy = policies[k];
            to.rewarm_steps = 30;
            if (!CHECK_OK(ckr_plan_decide(c, &to, &p, &e), &e)) break;
            const ckr_schedule *after = ckr_plan_info(p)->after;
            CHECK_OK(ckr_schedule_values(after, CKR_COLUMN_LR, 1, 400, want, NULL, &e), &e);
            ckr_ckpt *next = NULL;
            CHECK_OK(ckr_ckpt_create(NULL, &next, &e), &e);
            put_tensors(next);
            CHECK_OK(ckr_ckpt_put_group(next, "all", names, 1, &lr, 1, &e), &e);
            CHECK_OK(ckr_ckpt_put_decided(next, after, at + 15, &e), &e);
            ckr_plan_free(p);
            ckr_ckpt_close(c);
            snprintf(path, sizeof path, "%s/decided_%d_%s", tmp, k, forms[i].name);
            ckr_plan_free(written(next, (int)i, 0, 0, path));
            ckr_ckpt_close(next);
            c = opened(path);
            if (!c || !CHECK(ckr_ckpt_schedule(c, 0) != NULL)) break;
            CHECK_OK(ckr_schedule_values(ckr_ckpt_schedule(c, 0), CKR_COLUMN_LR, 1, 400, have, NULL,
                                         &e), &e);
            for (int u = (int)at + 15; u < (k ? 200 : 300); u++)
                if (!CHECK_AT(have[u] == want[u], "%s, decision %d, update %d: %.17g, not %.17g",
                              forms[i].name, k, u + 1, have[u], want[u])) break;
        }
        ckr_ckpt_close(c);
    }
}

/* Any curve, decided or as it was put, of a run that has gone on past its end too: what is read
   again gives the same LR to the last bit. */
static void bits_of(const char *curve, int form, int k, int64_t at)
{
    static const ckr_lr_policy policies[] = { CKR_LR_DEFAULT, CKR_LR_SPLICE, CKR_LR_REWARM };
    static const ckr_hyper lr = { "lr", 0.001 };
    static const ckr_setting set = { NULL, "total_steps", "150" };
    enum { LAST = 300 };
    static double want[LAST], have[LAST];
    ckr_ckpt *c = NULL, *next = NULL;
    ckr_target to = CKR_ZERO;
    ckr_plan *p = NULL;
    char path[512];
    CHECK_OK(ckr_ckpt_create(NULL, &c, &e), &e);
    put_tensors(c);
    CHECK_OK(ckr_ckpt_put_group(c, "all", names, 1, &lr, 1, &e), &e);
    CHECK_OK(ckr_ckpt_put_schedule(c, curve, at, &e), &e);
    to.lr_policy = policies[k];
    to.rewarm_steps = 30;
    to.sets = k ? &set : NULL;
    to.n_sets = k > 0;
    if (ckr_plan_decide(c, &to, &p, &e) == CKR_OK &&
        ckr_plan_info(p)->verdict != CKR_VERDICT_REFUSED && ckr_plan_info(p)->after) {
        const ckr_schedule *after = ckr_plan_info(p)->after;
        CHECK_OK(ckr_schedule_values(after, CKR_COLUMN_LR, 1, LAST, want, NULL, &e), &e);
        CHECK_OK(ckr_ckpt_create(NULL, &next, &e), &e);
        put_tensors(next);
        CHECK_OK(ckr_ckpt_put_group(next, "all", names, 1, &lr, 1, &e), &e);
        CHECK_OK(ckr_ckpt_put_decided(next, after, at, &e), &e);
        snprintf(path, sizeof path, "%s/bits_%d_%d_%s", tmp, k, (int)at, forms[form].name);
        ckr_plan_free(written(next, form, 0, 0, path));
        ckr_ckpt_close(next);
        next = opened(path);
        if (next && CHECK(ckr_ckpt_schedule(next, 0) != NULL))
            CHECK_OK(ckr_schedule_values(ckr_ckpt_schedule(next, 0), CKR_COLUMN_LR, 1, LAST, have,
                                         NULL, &e), &e);
        for (int u = (int)at; next && u < LAST; u++)
            if (!CHECK_AT(have[u] == want[u], "%s, %s, decision %d at %d, update %d: %.17g, not "
                          "%.17g", forms[form].name, curve, k, (int)at, u + 1, have[u],
                          want[u])) break;
        ckr_ckpt_close(next);
        t_remove_tree(path);
    }
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

static void bits(void)
{
    static const char *const curves[] = {
        "transformers:cosine,num_warmup_steps=5,num_training_steps=100",
        "transformers:linear,num_warmup_steps=5,num_training_steps=100",
        "torch:CosineAnnealingLR,T_max=100,eta_min=1e-5", "torch:StepLR,step_size=30,gamma=0.3",
        "torch:LinearLR,start_factor=0.1,total_iters=40", "torch:ExponentialLR,gamma=0.97",
        "torchtitan:steps=100,warmup_steps=5,decay_type=linear,min_lr_factor=0.1",
        "deepspeed:WarmupDecayLR,warmup_max_lr=0.001,warmup_num_steps=5,total_num_steps=100"
    };
    for (size_t i = 0; i < sizeof curves / sizeof *curves; i++)
        for (int form = 0; form < 3; form++)
            for (int k = 0; k < 3; k++)
                for (int64_t at = 20; at < 200; at += 100) bits_of(curves[i], form, k, at);
}

/* Of many ranks: nothing is looked for one by one. Every place is found by its key, and streams
   that are put kind by kind, or backwards, lie by rank and in the order of the puts. */
static void many(void)
{
    enum { N = 16384 };
    static const ckr_rng_kind put[] = { CKR_RNG_PCG64, CKR_RNG_PHILOX };
    char path[600];
    ckr_ckpt *c = NULL, *in;
    ckr_rng *r = rng_new();
    const ckr_state *s;
    int64_t v = 0, wrong = 0;
    CHECK_OK(ckr_ckpt_create(NULL, &c, &e), &e);
    put_tensors(c);
    for (int k = 0; k < 2; k++)
        for (uint32_t i = 0; i < N; i++) {
            CHECK(ckr_rng_seed(r, put[k], i) == CKR_OK);
            wrong += ckr_ckpt_put_stream(c, k ? N - 1 - i : i, NULL, NULL, r, &e) != CKR_OK;
            wrong += ckr_ckpt_put_data(c, i, "sample", i + k, &e) != CKR_OK;
        }
    CHECK_INT(wrong, 0);
    CHECK_INT(c->places.count, N);
    s = ckr_ckpt_state(c);
    CHECK_INT(s->n_rng, 2 * N);
    for (uint64_t i = 0; i < s->n_rng; i++)
        wrong += s->rng[i].rank != i / 2 ||
                 strcmp(s->rng[i].kind, ckr_rng_kind_name(put[i & 1])) != 0;
    CHECK_INT(wrong, 0);
    snprintf(path, sizeof path, "%s/many.safetensors", tmp);
    ckr_plan_free(written(c, 0, 0, 0, path));
    in = opened(path);
    if (!in) return;
    CHECK_INT(in->places.count, N);
    CHECK_INT(ckr_ckpt_state(in)->n_rng, 2 * N);
    for (int i = 0; i < N; i++) wrong += !ckr_ckpt_data(in, i, "sample", &v) || v != i + 1;
    CHECK_INT(wrong, 0);
    CHECK(!ckr_ckpt_data(in, N, "sample", &v) && !ckr_ckpt_data(in, -1, "sample", &v));
    ckr_ckpt_close(in);
    ckr_ckpt_close(c);
    free(r);
}

/* A caller's mistakes are errors of the call, and change nothing. */
static void mistakes(void)
{
    const ckr_topology two = { 2, 1, 1, 1, 1, 2, 0 }, wrong = { 2, 1, 2, 1, 1, 3, 0 };
    ckr_ckpt *c = NULL;
    ckr_rng *r = rng_new();
    CHECK_OK(ckr_ckpt_create(NULL, &c, &e), &e);
    CHECK(ckr_ckpt_put_stream(c, 0, NULL, NULL, NULL, &e) == CKR_E_ARG);
    CHECK(ckr_ckpt_put_stream(c, 0, NULL, NULL, r, &e) == CKR_E_ARG);      /* no kind */
    CHECK(ckr_rng_seed(r, CKR_RNG_PCG64, 1) == CKR_OK);
    CHECK(ckr_ckpt_put_stream(c, 0, NULL, "xp", r, &e) == CKR_E_ARG);
    CHECK(ckr_ckpt_put_stream(c, 1u << 30, NULL, NULL, r, &e) == CKR_E_ARG);
    CHECK_INT(ckr_ckpt_state(c)->n_rng, 0);
    CHECK_OK(ckr_ckpt_put_stream(c, 0, NULL, NULL, r, &e), &e);
    CHECK(ckr_ckpt_put_stream(c, 0, "default", "dp", r, &e) == CKR_E_ARG);
    CHECK(strstr(e.text, "put before") != NULL);
    CHECK_OK(ckr_ckpt_put_stream(c, 0, "other", "dp", r, &e), &e);
    CHECK(ckr_ckpt_put_topology(c, &wrong, &e) == CKR_E_ARG);
    CHECK(ckr_ckpt_put_topology(c, NULL, &e) == CKR_E_ARG);
    CHECK_OK(ckr_ckpt_put_topology(c, &two, &e), &e);
    CHECK(ckr_ckpt_put_stream(c, 2, NULL, NULL, r, &e) == CKR_E_ARG);
    CHECK_OK(ckr_ckpt_put_stream(c, 1, NULL, "tp", r, &e), &e);
    CHECK(ckr_ckpt_put_progress(c, 1, -2, 0, 0, &e) == CKR_E_ARG);
    CHECK(ckr_ckpt_put_data(c, 0, NULL, 1, &e) == CKR_E_ARG);
    CHECK(ckr_ckpt_put_data(c, 0, "a/b", 1, &e) == CKR_E_ARG);
    CHECK(ckr_ckpt_put_data(c, -2, "a", 1, &e) == CKR_E_ARG);
    CHECK(ckr_ckpt_put_lineage(c, NULL, &e) == CKR_E_ARG);
    ckr_ckpt_close(c);
    free(r);
}

/* What comes too late, what contradicts itself, and a text of a schedule that is none. */
static void orders(void)
{
    static const char *const texts[] = {
        "{\"format\":\"x\",\"begun\":1}",
        "{\"format\":\"ckptresume-schedule/1\",\"kind\":\"x\",\"clock\":\"update\","
        "\"position\":0,\"lanes_count\":0,\"begun\":1}"
    };
    const ckr_hyper lr = { "lr", 0.5 };
    const ckr_topology many = { 1, 1, 1u << 20, 1, 1, 1u << 20, 0 };
    const float x[2] = { 1, 2 };
    const int64_t shape = 2, start = 0;
    ckr_ckpt *c = NULL;
    CHECK_OK(ckr_ckpt_create(NULL, &c, &e), &e);
    CHECK(ckr_ckpt_put_topology(c, &many, &e) == CKR_E_ARG);
    CHECK(ckr_ckpt_put_progress(c, INT64_MAX, -1, -1, -1, &e) == CKR_E_ARG);
    for (size_t i = 0; i < 2; i++) CHECK(ckr_ckpt_put_schedule(c, texts[i], 0, &e) != CKR_OK);
    CHECK_OK(ckr_ckpt_put_box(c, "w", "param", CKR_DTYPE_F32, 1, &shape, 0, &start, &shape, x, &e),
             &e);
    CHECK(ckr_ckpt_put_box(c, "w", "param", CKR_DTYPE_F64, 1, &shape, 9, &start, &shape, x, &e) ==
          CKR_E_ARG);
    CHECK_INT(ckr_ckpt_state(c)->topology.ranks, 1);           /* a failed put changes nothing */
    CHECK_OK(ckr_ckpt_put_group(c, "a", NULL, 0, &lr, 1, &e), &e);
    CHECK_OK(ckr_ckpt_put_schedule(c, "torch:CosineAnnealingLR,T_max=200", 100, &e), &e);
    CHECK(ckr_ckpt_put_group(c, "b", NULL, 0, &lr, 1, &e) == CKR_E_ARG);
    CHECK(ckr_ckpt_put_progress(c, 150, -1, -1, -1, &e) == CKR_E_ARG);
    CHECK_OK(ckr_ckpt_put_progress(c, 100, 400, -1, -1, &e), &e);
    ckr_ckpt_close(c);
}

/* w by rows, a transposed one by columns, each rank's as `rank` (-1: one process) has it. */
static ckr_ckpt *boxes_of(int rank, int64_t *done)
{
    static float columns[COLS][ROWS * COLS];
    const int64_t shape[] = { ROWS, COLS };
    ckr_ckpt *c = NULL;
    CHECK_OK(ckr_ckpt_create(NULL, &c, &e), &e);
    CHECK_OK(ckr_ckpt_put(c, "done", "param", CKR_DTYPE_I64, 0, NULL, done, &e), &e);
    for (int k = 0; k < ROWS * COLS; k++) values[0][k] = (float)k;
    for (uint32_t r = 0; r < 3; r++) {
        const bool own = rank < 0 || rank == (int)r;
        const int64_t start[] = { 2 * r, 0 }, count[] = { 2, COLS };
        CHECK_OK(ckr_ckpt_put_box(c, "w", "param", CKR_DTYPE_F32, 2, shape, r, start, count,
                                  own ? values[0] + 2 * r * COLS : NULL, &e), &e);
    }
    for (int i = 0; i < COLS; i++) {
        const uint32_t r = (uint32_t)i % 3;
        const int64_t start[] = { 0, i }, count[] = { ROWS, 1 };
        for (int k = 0; k < ROWS; k++) columns[i][k] = (float)(k * COLS + i);
        CHECK_OK(ckr_ckpt_put_box(c, "w", "exp_avg", CKR_DTYPE_F32, 2, shape, r, start, count,
                                  rank < 0 || rank == (int)r ? columns[i] : NULL, &e), &e);
    }
    return c;
}

static void boxes_are(const char *path)
{
    static const char *const slots[] = { "param", "exp_avg" };
    float got[ROWS * COLS];
    int64_t done = 0;
    ckr_ckpt *c = opened(path);
    ckr_read r = CKR_ZERO;
    for (int i = 0; c && i < 2; i++) {
        r.tensor = ckr_ckpt_tensor(c, "w", slots[i]);
        r.dst = got;
        r.dst_size = sizeof got;
        memset(got, 0, sizeof got);
        CHECK_OK(ckr_ckpt_read(c, &r, 1, &e), &e);
        CHECK(!memcmp(got, values[0], sizeof got));
    }
    r.tensor = c ? ckr_ckpt_tensor(c, "done", "param") : NULL;
    r.dst = &done;
    r.dst_size = sizeof done;
    CHECK_OK(ckr_ckpt_read(c, &r, 1, &e), &e);
    CHECK_INT(done, 77);
    ckr_ckpt_close(c);
}

static ckr_plan *boxes_plan(const ckr_ckpt *c, const char *dialect)
{
    ckr_target to = CKR_ZERO;
    ckr_plan *p = NULL;
    to.dialect = dialect;
    to.force = true;
    CHECK_OK(ckr_plan_create(c, &to, 0, &p, &e), &e);
    return p;
}

/* Each rank has its boxes and writes its file; in one process all at once, and into other forms. */
static void boxes(void)
{
    char path[600], other[600];
    int64_t done = 77;
    ckr_ckpt *c[3];
    ckr_plan *p[3];
    snprintf(path, sizeof path, "%s/boxes", tmp);
    for (int again = 0; again < 2; again++) {
        for (int r = 0; r < 3; r++) {
            c[r] = boxes_of(r, &done);
            p[r] = boxes_plan(c[r], "dcp");
            if (!p[r]) return;
        }
        CHECK(ckr_plan_write_rank(p[0], path, 777, &e) == CKR_E_ARG);
        CHECK(strstr(e.text, "777: the plan's ranks are 0 to 2") != NULL);
        CHECK(ckr_plan_write_rank(p[0], path, UINT32_MAX, &e) == CKR_E_ARG);
        for (int r = 0; r < 3; r++) {
            CHECK(ckr_plan_write_end(p[0], path, &e) == CKR_E_NOT_FOUND);
            CHECK(strstr(e.text, "has not written its file") != NULL);
            CHECK_OK(ckr_plan_write_rank(p[r], path, (uint32_t)r, &e), &e);
        }
        CHECK_OK(ckr_plan_write_rank(p[1], path, 1, &e), &e);          /* once more */
        CHECK(again || access(path, F_OK) != 0);
        CHECK_OK(ckr_plan_write_end(p[0], path, &e), &e);
        boxes_are(path);
        CHECK(ckr_plan_write(p[0], path, NULL, &e) == CKR_E_ARG);
        CHECK(strstr(e.text, " is in another process") != NULL);
        boxes_are(path);
        for (int r = 0; r < 3; r++) {
            ckr_plan_free(p[r]);
            ckr_ckpt_close(c[r]);
        }
    }
    c[0] = boxes_of(-1, &done);
    for (int f = 0; f < 4; f++) {
        snprintf(other, sizeof other, "%s/boxes_%s", tmp, forms[f].name);
        ckr_plan_free(written(c[0], f, 0, 0, other));
        boxes_are(other);
    }
    p[0] = boxes_plan(c[0], "safetensors");
    CHECK(p[0] && ckr_plan_write_rank(p[0], other, 0, &e) == CKR_E_REFUSED);
    ckr_plan_free(p[0]);
    ckr_ckpt_close(c[0]);
}

/* Boxes that are not the tensor, and what no box can be. */
static void boxes_wrong(void)
{
    const int64_t shape[] = { 4, 2 }, zero[] = { 0, 0 }, two[] = { 2, 2 }, three[] = { 3, 0 },
                  half[] = { 2, 0 }, turned[] = { 2, 4 };
    const float x[8] = { 0 };
    ckr_ckpt *c = NULL;
    ckr_plan *p = NULL;
    CHECK_OK(ckr_ckpt_create(NULL, &c, &e), &e);
#define BOX(shape, rank, start) \
    ckr_ckpt_put_box(c, "w", "param", CKR_DTYPE_F32, 2, shape, rank, start, two, x, &e)
    CHECK_OK(BOX(shape, 0, zero), &e);
    CHECK(BOX(shape, 0, three) == CKR_E_ARG && BOX(turned, 0, zero) == CKR_E_ARG);
    CHECK(BOX(shape, 1u << 30, half) == CKR_E_ARG && BOX(shape, 0, NULL) == CKR_E_ARG);
    CHECK(ckr_ckpt_put(c, "w", "param", CKR_DTYPE_F32, 2, shape, x, &e) == CKR_E_ARG);
    CHECK(ckr_plan_create(c, NULL, 0, &p, &e) == CKR_E_MISMATCH);
    CHECK(e.item == CKR_ITEM_TENSOR_HOLE);
    CHECK_OK(BOX(shape, 1, half), &e);
    CHECK_OK(ckr_plan_create(c, NULL, 0, &p, &e), &e);
    ckr_plan_free(p);
    CHECK_OK(BOX(shape, 1, half), &e);
    CHECK(ckr_plan_create(c, NULL, 0, &p, &e) == CKR_E_MISMATCH);
    CHECK(e.item == CKR_ITEM_TENSOR_OVERLAP);
    ckr_ckpt_close(c);
#undef BOX
}

static void spoil(const char *path, const char *text, size_t n)
{
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(text, 1, n, f) == n);
    if (f) fclose(f);
}

/* A record that somebody has changed is an error that names it, never a crash and never silence. */
static void changed(void)
{
    static const char *const swaps[][2] = {
        { "\\\"state\\\": \\\"AQ", "\\\"state\\\": \\\"!Q" },
        { "\\\"rank\\\": 2", "\\\"rank\\\": x" },
        { "\\\"params\\\": [", "\\\"params\\\": {" },
        { "\\\"scope\\\": \\\"dp", "\\\"scope\\\": \\\"dx" },
        { "\\\"ranks\\\": 3", "\\\"ranks\\\": 0" },
        { "\\\"step\\\": 7", "\\\"step\\\": [" },
        { "\\\"sample\\\": 5", "\\\"sample\\\": [" },
        { "{\\\"ckptresume", "[\\\"ckptresume" },
        { "1/shard\\\": 17", "1/shard\\\": nu" },
        { "\\\"run\\\": {", "\\\"run\\\": [" }, { "\\\"groups\\\": [", "\\\"groups\\\": {" },
        { "\\\"params\\\": [\\\"", "\\\"params\\\": [\\\"?" }
    };
    char path[600];
    size_t n;
    snprintf(path, sizeof path, "%s/changed.safetensors", tmp);
    for (size_t i = 0; i < sizeof swaps / sizeof *swaps; i++) {
        ckr_ckpt *c = run_of(RANKS), *in = NULL;
        char *text, *at;
        ckr_plan_free(written(c, 0, 0, 0, path));
        ckr_ckpt_close(c);
        text = (char *)t_slurp(path, &n);
        at = NULL;
        for (size_t k = 0; text && k + 64 < n && !at; k++)
            if (!memcmp(text + k, swaps[i][0], strlen(swaps[i][0]))) at = text + k;
        if (CHECK_AT(at != NULL, "%s", swaps[i][0])) {
            memcpy(at, swaps[i][1], strlen(swaps[i][1]));
            spoil(path, text, n);
            CHECK_AT(ckr_ckpt_open(path, NULL, &in, &e) == CKR_E_FORMAT, "%s", swaps[i][1]);
            CHECK(e.item == CKR_ITEM_SIDE_FORMAT);
            ckr_ckpt_close(in);
        }
        free(text);
    }
}

/* ---- a run that is described once: ckr_run ---- */

enum { MOST = 4 };             /* processes, one after the other here                 */
typedef struct described {     /* what one of them has                                */
    float w[ROWS * COLS], whole[3];
    int64_t at, shards[MOST];
    ckr_run_tensor tensors[2];
    ckr_run_stream streams[2];
    ckr_run_place places[2];
    ckr_rng *own, *shared;
    ckr_run x;
} described;

static int asked, refused_at;

/* All others agree; at call `refused_at` one does not. */
static bool all(void *user, bool ok)
{
    (void)user;
    return ++asked != refused_at && ok;
}

static const ckr_hyper base = { "initial_lr", 0.001 };
static const ckr_run_group all_of[] = { { "all", names, 1, &base, 1 },
                                        { "none", NULL, 0, &base, 1 } };

static void describe(described *d, uint32_t rank, uint32_t ranks)
{
    const ckr_run_tensor w = { "w", "param", CKR_DTYPE_F32, 2, { ROWS, COLS }, true, d->w },
                         whole = { "w", "own", CKR_DTYPE_F32, 1, { 3 }, false, d->whole };
    memset(d, 0, sizeof *d);
    d->own = (ckr_rng *)calloc(2 * MOST, ckr_rng_size());
    if (!d->own) exit(1);
    d->shared = d->own + MOST;
    d->tensors[0] = w;
    d->tensors[1] = whole;
    d->streams[0].kind = d->streams[1].kind = CKR_RNG_PCG64;
    d->streams[0].states = d->own;
    d->streams[1].name = "shuffle";
    d->streams[1].scope = "";
    d->streams[1].states = d->shared;
    d->places[0].name = "sample";
    d->places[0].values = &d->at;
    d->places[1].name = "shard";
    d->places[1].values = d->shards;
    d->places[1].each = true;
    d->x.rank = rank;
    d->x.ranks = ranks;
    d->x.all_fn = ranks > 1 ? all : NULL;
    d->x.tensors = d->tensors;
    d->x.groups = all_of;
    d->x.streams = d->streams;
    d->x.places = d->places;
    d->x.n_tensors = d->x.n_streams = d->x.n_places = 2;
    d->x.n_groups = 1;
}

static void forget(described *d)
{
    ckr_run_end(&d->x);
    CHECK(!d->x.source && !d->x.given && !d->x.schedule);
    free(d->own);
}

/* As rank `rank` of `ranks` has it after 7 updates: rows by number, states and places by rank. */
static void begun(described *d, uint32_t rank, uint32_t ranks)
{
    describe(d, rank, ranks);
    CHECK_OK(ckr_run_begin(&d->x, "llmc:cosine,learning_rate=0.001,warmup_iterations=2,"
                                  "train_num_batches=50,final_learning_rate_frac=0.1", &e), &e);
    for (int k = 0; k < ROWS * COLS; k++) d->w[k] = (float)(ROWS * rank / ranks * COLS + k);
    for (int k = 0; k < 3; k++) d->whole[k] = (float)(k + 500);
    for (uint32_t k = 0; k < ranks; k++) {
        rng_at(&d->own[k], 0, k);
        d->shards[k] = 70 + k;
    }
    rng_at(d->shared, 0, 9);
    d->at = 5000000000;
    d->x.updates = 7;
    d->x.samples = 112;
    d->x.tokens = -1;
    d->x.epoch = 2;
}

/* Rank `rank` of `ranks` finds at `path` all that is its own; -1: its own shard. */
static void comes_back(const char *path, uint32_t rank, uint32_t ranks, const ckr_schedule *was)
{
    const uint32_t first = ROWS * rank / ranks, end = ROWS * (rank + 1) / ranks;
    ckr_rng *want = rng_new();
    double lr[2][50];
    described d;
    describe(&d, rank, ranks);
    CHECK_OK(ckr_run_resume(&d.x, path, NULL, &e), &e);
    for (uint32_t k = 0; k < (end - first) * COLS; k++)
        CHECK_INT(d.w[k], first * COLS + k);
    CHECK(d.w[ROWS * COLS - 1] == (ranks == 1 ? ROWS * COLS - 1 : 0));  /* no more than its rows */
    CHECK(d.whole[0] == 500 && d.whole[2] == 502);
    rng_at(want, 0, rank);
    CHECK(ckr_rng_equal(&d.own[rank], want));
    rng_at(want, 0, 9);
    CHECK(ckr_rng_equal(&d.shared[rank], want));
    CHECK(d.at == 5000000000 && d.shards[rank] == 70 + (int64_t)rank);
    CHECK(d.x.updates == 7 && d.x.samples == 112 && d.x.tokens == -1 && d.x.epoch == 2);
    if (CHECK(d.x.schedule != NULL)) {
        CHECK_OK(ckr_schedule_values(d.x.schedule, CKR_COLUMN_LR, 1, 50, lr[0], NULL, &e), &e);
        CHECK_OK(ckr_schedule_values(was, CKR_COLUMN_LR, 1, 50, lr[1], NULL, &e), &e);
        CHECK(!memcmp(lr[0], lr[1], sizeof lr[0]));
    }
    CHECK(ckr_run_resume(&d.x, path, NULL, &e) == CKR_E_ARG);
    CHECK(ckr_run_begin(&d.x, "torch:StepLR,step_size=3", &e) == CKR_E_ARG);
    forget(&d);
    free(want);
}

/* The ranks of a save one after the other, the first last: it ends what all have written. */
static void run_saved(described *d, uint32_t ranks, const char *path)
{
    asked = refused_at = 0;
    for (uint32_t k = ranks; k-- > 0;) CHECK_OK(ckr_run_save(&d[k].x, path, &e), &e);
    CHECK_INT(asked, ranks > 1 ? 2 * ranks : 0);
}

static void described_runs(void)
{
    char path[600];
    described d[MOST];
    for (uint32_t ranks = 1; ranks <= MOST; ranks++) {
        snprintf(path, sizeof path, "%s/described_%u", tmp, (unsigned)ranks);
        for (uint32_t k = 0; k < ranks; k++) begun(&d[k], k, ranks);
        for (int again = 0; again < 2; again++) run_saved(d, ranks, path);
        for (uint32_t to = 1; to <= ranks; to++)
            for (uint32_t k = 0; k < to; k++) comes_back(path, k, to, d[0].x.schedule);
        for (uint32_t k = 0; k < ranks; k++) forget(&d[k]);
    }
}

/* A rank fails: no rank says that it is saved, and what was saved before stays. */
static void described_fails(void)
{
    char path[600];
    described d[2];
    snprintf(path, sizeof path, "%s/described_fails", tmp);
    for (uint32_t k = 0; k < 2; k++) begun(&d[k], k, 2);
    run_saved(d, 2, path);
    d[0].at = d[1].at = 6;
    for (int call = 1; call < 3; call++) {
        asked = 0;
        refused_at = call;
        CHECK(ckr_run_save(&d[1].x, path, &e) == CKR_E_CANCELLED);
        CHECK(strstr(e.text, "another rank") != NULL);
    }
    asked = 0;
    refused_at = 1;
    CHECK(ckr_run_save(&d[0].x, path, &e) == CKR_E_CANCELLED);
    asked = refused_at = 0;
    d[0].tensors[0].data = NULL;
    CHECK(ckr_run_save(&d[0].x, path, &e) == CKR_E_ARG && !strcmp(e.where, "w"));
    CHECK(ckr_run_save(&d[0].x, NULL, &e) == CKR_E_ARG);
    CHECK_INT(asked, 4);                               /* the others do not wait for ever */
    comes_back(path, 0, 2, d[0].x.schedule);
    for (uint32_t k = 0; k < 2; k++) forget(&d[k]);
}

/* One thing of a description is wrong, or is not what the checkpoint has. */
static void spoilt(described *d, int what)
{
    switch (what) {
    case 0: d->x.tensors = NULL; break;
    case 1: d->x.groups = NULL; break;
    case 2: d->x.streams = NULL; break;
    case 3: d->x.places = NULL; break;
    case 4: d->x.rank = 1; break;
    case 5: d->x.ranks = 2; break;                     /* and no all_fn                  */
    case 6: d->tensors[0].name = NULL; break;
    case 7: d->tensors[0].slot = NULL; break;
    case 8: d->tensors[0].n_dims = CKR_MAX_DIMS + 1; break;
    case 9: d->tensors[0].n_dims = 0; break;
    case 10: d->tensors[1].shape[0] = -1; break;
    case 11: d->tensors[1].data = NULL; break;
    case 12: d->tensors[0].data = NULL; break;
    case 13: d->streams[0].states = NULL; break;
    case 14: d->places[0].name = NULL; break;
    case 15: d->places[0].values = NULL; break;
    case 16: d->streams[0].kind = CKR_RNG_PHILOX; break;           /* MISMATCH from here    */
    case 17: d->tensors[0].shape[0] = COLS, d->tensors[0].shape[1] = ROWS; break;
    case 18: d->tensors[1].dtype = CKR_DTYPE_I32; break;
    case 19: d->tensors[1].slot = "other"; break;
    case 20: d->streams[1].name = "other"; break;
    case 21: d->places[1].name = "other"; break;
    default: d->x.n_groups = 2; break;
    }
}

static void described_wrong(void)
{
    char path[600], other[600];
    described d, x;
    snprintf(path, sizeof path, "%s/described_wrong", tmp);
    snprintf(other, sizeof other, "%s/described_other", tmp);
    begun(&d, 0, 1);
    run_saved(&d, 1, path);
    for (int what = 0; what < 23; what++) {
        const ckr_result bad = what < 16 ? CKR_E_ARG : CKR_E_MISMATCH;
        ckr_result r;
        describe(&x, 0, 1);
        spoilt(&x, what);
        r = ckr_run_resume(&x.x, path, NULL, &e);
        CHECK_AT(r == bad, "%d: %d, %s: %s", what, (int)r, e.where, e.text);
        CHECK(!x.x.source && !x.x.given && !x.x.updates && !x.at);
        if (bad == CKR_E_ARG && what < 12)
            CHECK_AT(ckr_run_begin(&x.x, "torch:StepLR,step_size=3", &e) == CKR_E_ARG, "%d", what);
        forget(&x);
        if (bad != CKR_E_ARG && what != 16) continue;
        begun(&x, 0, 1);
        spoilt(&x, what);
        CHECK_AT(ckr_run_save(&x.x, other, &e) == CKR_E_ARG && access(other, F_OK) != 0, "%d",
                 what);
        forget(&x);
    }
    describe(&x, 0, 1);
    CHECK(ckr_run_begin(NULL, "torch:StepLR,step_size=3", &e) == CKR_E_ARG);
    CHECK(ckr_run_begin(&x.x, NULL, &e) == CKR_E_ARG);
    CHECK(ckr_run_begin(&x.x, "none", &e) != CKR_OK && !x.x.source);
    CHECK(ckr_run_resume(NULL, path, NULL, &e) == CKR_E_ARG);
    CHECK(ckr_run_resume(&x.x, NULL, NULL, &e) == CKR_E_ARG);
    CHECK(ckr_run_resume(&x.x, other, NULL, &e) == CKR_E_NOT_FOUND);
    CHECK(ckr_run_save(NULL, path, &e) == CKR_E_ARG);
    ckr_run_end(NULL);
    forget(&x);
    forget(&d);
}

/* Two splices in a row, each saved and resumed: the LR is the decided one to the last bit. */
static void described_spliced(void)
{
    const char *const totals[] = { "80", "70" };
    double want[100] = { 0 }, have[100];
    char path[600];
    described d;
    snprintf(path, sizeof path, "%s/described_spliced", tmp);
    begun(&d, 0, 1);
    run_saved(&d, 1, path);
    forget(&d);
    for (int k = 0; k < 3; k++) {
        const ckr_setting set = { NULL, "total_steps", totals[k < 2 ? k : 0] };
        ckr_target to = CKR_ZERO;
        ckr_plan *p = NULL;
        describe(&d, 0, 1);
        CHECK_OK(ckr_run_resume(&d.x, path, NULL, &e), &e);
        CHECK_OK(ckr_schedule_values(d.x.schedule, CKR_COLUMN_LR, 1, 100, have, NULL, &e), &e);
        for (int64_t u = d.x.updates - 10; k && u < atoi(totals[k - 1]); u++)
            CHECK_AT(have[u] == want[u], "decision %d, update %d: %.17g, not %.17g", k, (int)u + 1,
                     have[u], want[u]);
        to.sets = &set;
        to.n_sets = 1;
        to.lr_policy = CKR_LR_SPLICE;
        if (k < 2 && CHECK_OK(ckr_plan_decide(d.x.source, &to, &p, &e), &e)) {
            d.x.schedule = ckr_plan_info(p)->after;
            CHECK_OK(ckr_schedule_values(d.x.schedule, CKR_COLUMN_LR, 1, 100, want, NULL, &e), &e);
            d.x.updates += 10;
            run_saved(&d, 1, path);
        }
        ckr_plan_free(p);
        forget(&d);
    }
}

/* A save or a resume whose n-th call of a kind fails: an error of the right class, nothing leaks,
   the run is as it was, and so is what was saved. True: it did not come to that call. */
static bool described_fault(described *d, memio *mem, bool save, int kind, unsigned long n)
{
    faulty f;
    ckr_env env = faulty_env(&f, memio_io(mem));
    ckr_result r;
    f.kind = kind;
    f.at = n;
    f.sys = EIO;
    d->x.env = &env;
    r = save ? ckr_run_save(&d->x, "/w/run", &e) : ckr_run_resume(&d->x, "/w/run", NULL, &e);
    if (r == CKR_OK) {
        if (!save) ckr_run_end(&d->x);
    } else {
        CHECK_AT(r == (kind == FAULT_ALLOC ? CKR_E_NOMEM : CKR_E_IO) && e.code == r,
                 "kind %d, call %lu: %d, %s", kind, n, (int)r, e.text);
        CHECK(save || (!d->x.source && !d->x.given && !d->x.updates));
    }
    CHECK_AT(f.blocks == 0 && f.bytes == 0 && f.handles == 0, "kind %d, call %lu: %ld blocks", kind,
             n, f.blocks);
    d->x.env = NULL;
    return r == CKR_OK;
}

static void described_faults(void)
{
    static const int kinds_of[] = { FAULT_ALLOC, FAULT_OPEN, FAULT_READ, FAULT_WRITE };
    memio mem;
    described d, x;
    memset(&mem, 0, sizeof mem);
    memio_add(&mem, "/w", true);
    begun(&d, 0, 1);
    CHECK(described_fault(&d, &mem, true, -1, 0));
    describe(&x, 0, 1);
    for (size_t k = 0; k < 2 * sizeof kinds_of / sizeof *kinds_of; k++) {
        const bool save = k & 1;
        unsigned long n = 1;
        while (!described_fault(save ? &d : &x, &mem, save, kinds_of[k / 2], n)) {
            if (!save) x.x.updates = 0;
            n++;
        }
        /* saving reads nothing, and nothing is opened for that */
        CHECK_AT(n > 1 || (save ? kinds_of[k / 2] == FAULT_READ || kinds_of[k / 2] == FAULT_OPEN
                                : kinds_of[k / 2] == FAULT_WRITE), "kind %d", kinds_of[k / 2]);
        x.x.updates = 0;
    }
    CHECK(described_fault(&x, &mem, false, -1, 0) && x.at == d.at && x.w[5] == d.w[5]);
    forget(&x);
    forget(&d);
    memio_free(&mem);
}

int main(int argc, char **argv)
{
    t_begin(argc, argv);
    tmp = t_tmpdir();
    RUN(there_and_back);
    RUN(slots);
    RUN(other_ranks);
    RUN(trains_between);
    RUN(left_out);
    RUN(decisions);
    RUN(bits);
    RUN(many);
    RUN(mistakes);
    RUN(orders);
    RUN(changed);
    RUN(boxes);
    RUN(boxes_wrong);
    RUN(described_runs);
    RUN(described_fails);
    RUN(described_wrong);
    RUN(described_spliced);
    RUN(described_faults);
    t_remove_tree(tmp);
    return t_end();
}
