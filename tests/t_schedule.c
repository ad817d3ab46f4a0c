/* Learning-rate schedules against real torch (tests/data/schedules.json, which schedules.py made),
   against themselves over 10,000 random ones, and against states that no scheduler wrote. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "t.h"

/* Bound of |closed form - recurrence| at t (children included in `scale`): every tick rounds a few
   times, near a cosine's minimum the quotient loses what the curve has lost there, the square of
   T_max. `scale` is the largest magnitude that the lane has had until t: LR, base and floor. */
static double bound_of(const ckr__curve *c, double t, double scale)
{
    const double ulp = 1.1102230246251565e-16;
    double sum = 16 + 8 * t;
    uint32_t i;
    if (c->kind == CKR__CV_COSINE) sum += 4 * c->k.decay * c->k.decay * (1 + t / c->k.decay);
    for (i = 0; i < c->n_children; i++)
        sum += bound_of(&c->children[i], t, 1) / ulp;
    return scale * ulp * sum;
}

static ckr__ctx t_ctx;
static ckr_error t_err;

static void ctx_open(void)
{
    CHECK(ckr__ctx_init(&t_ctx, NULL, NULL, &t_err) == CKR_OK);
}

static void ctx_close(void)
{
    ckr__ctx_free(&t_ctx);
}

static void err_clear(void)
{
    memset(&t_err, 0, sizeof t_err);
}

static bool same_bits(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (a != a && b != b);
}

static ckr_schedule *parse(const char *text, const double *bases, uint64_t n)
{
    ckr_schedule *s = NULL;
    err_clear();
    CHECK_OK(ckr__sched_parse(&t_ctx, text, bases, n, &s), &t_err);
    return s;
}

static ckr_schedule *parse1(const char *text, double base)
{
    return parse(text, &base, 1);
}

/* The first lane at update k (1: the first one). */
static double lr_at(const ckr_schedule *s, int64_t k)
{
    double row[64];
    if (!s || s->n_lanes > 64) return ckr__nan();
    CHECK_OK(ckr__sched_eval(&t_ctx, s, CKR__COL_LR, k, 1, row), &t_err);
    return row[0];
}

static bool near_to(double a, double b, double rel)
{
    return fabs(a - b) <= rel * fabs(b) || same_bits(a, b);
}

#define NEAR(a, b, rel) \
    t_check(near_to((a), (b), (rel)), __FILE__, __LINE__, "%s is %.17g, not %.17g", #a, (a), (b))

/* >>schedule: what real torch did */

static ckr_node *data_load(void)
{
    const char *dir = getenv("CKR_TEST_DATA");
    char path[512];
    size_t n;
    uint8_t *text;
    ckr_node *root = NULL;
    snprintf(path, sizeof path, "%s/schedules.json", dir ? dir : "tests/data");
    text = t_slurp(path, &n);
    if (!CHECK(text != NULL)) return NULL;
    CHECK_OK(ckr__json_parse(&t_ctx, path, text, n, CKR__JSON_PYTHON, &root), &t_err);
    free(text);                                       /* the tree keeps copies             */
    return root;
}

/* JSON made texts of the integer keys of `milestones`. */
static void integer_keys(ckr_node *n, int depth)
{
    const ckr_node *m = ckr_node_get(n, "milestones");
    uint64_t i;
    for (i = 0; m && ckr_node_is_dict(m) && i < m->count; i++)
        m->u.items[2 * i] = ckr__make_int(&t_ctx, strtol(m->u.items[2 * i]->u.str, NULL, 10));
    m = ckr_node_get(n, "_schedulers");
    for (i = 0; m && depth < 8 && i < m->count; i++) integer_keys(m->u.items[i], depth + 1);
}

static double number(const ckr_node *n)
{
    double v = ckr__nan();
    ckr_node_f64(n, &v);
    return v;
}

/* Rows of updates first..n of the case, column by column bit for bit. */
static void case_rows(const ckr_schedule *s, ckr__series column, const ckr_node *rows,
                      uint64_t first, uint64_t index, const char *how)
{
    double out[64 * 4];
    const uint64_t n = rows->count - (first - 1);
    uint64_t i, j;
    if (!CHECK(s->n_lanes <= 4 && n <= 64)) return;
    CHECK_OK(ckr__sched_eval(&t_ctx, s, column, (int64_t)first, n, out), &t_err);
    for (i = 0; i < n; i++)
        for (j = 0; j < s->n_lanes; j++) {
            const double want = number(ckr_node_at(rows->u.items[first - 1 + i], j)),
                         have = out[i * s->n_lanes + j];
            t_check(same_bits(want, have) ||
                        (T_OTHER_LIBM && fabs(have - want) <= 1e-14 * fabs(want)),
                    __FILE__, __LINE__,
                    "case %llu (%s, %s) update %llu group %llu: %.17g, torch has %.17g",
                    (unsigned long long)index, s->kind, how, (unsigned long long)(first + i),
                    (unsigned long long)j, have, want);
        }
}

static ckr_node *without_kind(const ckr_node *d)
{
    ckr_node *out = ckr__make(&t_ctx, CKR_NODE_DICT);
    uint64_t i;
    for (i = 0; i < ckr__dict_n(d); i++)
        if (!ckr__is_str(d->u.items[2 * i], "kind")) ckr__node_take(&t_ctx, out, d, i);
    return out;
}

static ckr_schedule *case_built(const ckr_node *c)
{
    const ckr_node *params = ckr_node_get(c, "params"), *bases = ckr_node_get(c, "bases");
    const char *kind = ckr__printf(&t_ctx, "torch:%s", ckr_node_str(ckr_node_get(params, "kind")));
    ckr_schedule *s = NULL;
    double b[4];
    uint64_t i;
    for (i = 0; i < bases->count && i < 4; i++) b[i] = number(bases->u.items[i]);
    CHECK_OK(ckr__sched_build(&t_ctx, kind, without_kind(params), b, bases->count, &s), &t_err);
    return s;
}

static ckr_schedule *case_read(const ckr_node *c)
{
    const ckr_node *groups = ckr_node_get(c, "groups"), *hyper[4];
    ckr_schedule *s = NULL;
    uint64_t i;
    for (i = 0; i < groups->count && i < 4; i++) hyper[i] = groups->u.items[i];
    CHECK_OK(ckr__sched_torch(&t_ctx, ckr_node_get(c, "state"), hyper, groups->count, NULL, &s),
             &t_err);
    if (s && s->opaque) CHECK_STR(s->reason, "");
    return s && s->opaque ? NULL : s;
}

/* A state read and written again at the same clock is the same state. */
static void case_write(const ckr_node *c, const ckr_schedule *s)
{
    static const uint64_t from[3] = { 1, 0, 1 };
    const ckr_node *state = ckr_node_get(c, "state"), *last;
    ckr_node *out = NULL;
    ckr_schedule *again = NULL;
    CHECK_OK(ckr__sched_torch_write(&t_ctx, s, NULL, s->n_lanes, s->position, &out), &t_err);
    CHECK(out && ckr__node_equal(out, state));
    CHECK_OK(ckr__sched_torch_write(&t_ctx, s, from, 3, s->position, &out), &t_err);
    last = ckr_node_get(out, "_last_lr");
    CHECK(last && last->count == 3);
    if (last && last->count == 3)
        CHECK(same_bits(number(last->u.items[0]), number(last->u.items[2])));
    CHECK_OK(ckr__sched_torch(&t_ctx, out, NULL, 0, NULL, &again), &t_err);
    if (again && !again->opaque && again->curve) CHECK_INT(again->position, s->position);
}

static void torch_cases(void)
{
    ckr_node *root;
    const ckr_node *cases, *momentum;
    uint64_t i, n = 0;
    ctx_open();
    root = data_load();
    cases = ckr_node_get(root, "cases");
    for (i = 0; cases && i < cases->count; i++) {
        const ckr_node *c = cases->u.items[i], *lr = ckr_node_get(c, "lr");
        ckr_schedule *built, *read;
        double drift = 1;
        uint64_t lane;
        integer_keys((ckr_node *)(uintptr_t)ckr_node_get(c, "state"), 0);
        built = case_built(c);
        read = case_read(c);
        if (!built || !read) continue;
        n++;
        case_rows(built, CKR__COL_LR, lr, 1, i, "built");
        case_rows(read, CKR__COL_LR, lr, 1, i, "read");
        case_rows(read, CKR__COL_LR, lr, (uint64_t)read->position + 1, i, "resumed");
        momentum = ckr_node_get(c, "momentum");
        if (momentum) case_rows(read, CKR__COL_MOMENTUM, momentum, 1, i, "momentum");
        CHECK_OK(ckr__sched_drift(&t_ctx, read, &drift, &lane), &t_err);
        CHECK(drift <= 0);
        case_write(c, read);
    }
    CHECK(n > 30);
    ctx_close();
}

/* >>schedule.text */

static void text_refused(const char *text, const char *where, const char *part)
{
    double base = 0.1;
    ckr_schedule *s = NULL;
    err_clear();
    CHECK_INT(ckr__sched_parse(&t_ctx, text, &base, 1, &s), CKR_E_ARG);
    t_check(strcmp(t_err.where, where) == 0 && strstr(t_err.text, part) != NULL, __FILE__, __LINE__,
            "%s: %s: %s", text, t_err.where, t_err.text);
    CHECK(s == NULL);
}

static void text_errors(void)
{
    ctx_open();
    text_refused("torch:StepLR,step=3", "step", "known are step_size:i! gamma:f");
    text_refused("torch:StepLR,gamma=0.1", "step_size", "step_size is missing");
    text_refused("torch:StepLR,step_size=x", "step_size", "finite number");
    text_refused("torch:StepLR,step_size=0", "step_size", "larger than 0");
    text_refused("torch:StepLR,step_size=2.5", "step_size", "integer");
    text_refused("torch:StepLR,step_size=-1", "step_size", "integer of at least 0");
    text_refused("torch:StepLR,step_size=1e400", "step_size", "finite number");
    text_refused("torch:StepLR,step_size=3,step_size=4", "step_size", "given twice");
    text_refused("torch:Nope,a=1", "torch:Nope", "no schedule");
    text_refused("transformers:linear:num_warmup_steps=5,num_training_steps=9",
                 "transformers:linear", "a colon follows where a comma belongs");
    CHECK(strstr(t_err.remedy, "KIND:NAME,key=value,...: transformers:linear,num_warmup_steps=5,"
                               "num_training_steps=9") != NULL);
    text_refused("transformers:num_warmup_steps=5", "transformers", "linear cosine");
    CHECK(strstr(t_err.remedy, "transformers:NAME,num_warmup_steps=5") != NULL);
    text_refused("torch", "torch", "StepLR");
    text_refused("", "", "no schedule");
    text_refused("cosine:", "cosine", "no schedule");
    text_refused("torchtitan:warmup_steps=4", "steps", "needed");
    text_refused("torchtitan:steps=20,decay_type=cubic", "decay_type", "linear=1 sqrt=4 cosine=2");
    text_refused("megatron:lr=1e-3,lr_decay_style=cosine", "lr_decay_steps", "lr_decay_iters");
    text_refused("transformers:cosine_with_min_lr,num_warmup_steps=1,num_training_steps=9",
                 "min_lr", "one of min_lr and min_lr_rate");
    text_refused("transformers:polynomial,num_warmup_steps=1,num_training_steps=9,lr_end=1",
                 "lr_end", "smaller");
    text_refused("diffusers:piecewise_constant,step_rules=1:10,x", "step_rules",
                 "1:10,0.1:20,0.005");
    text_refused("torch:SequentialLR,schedulers=(LinearLR,total_iters=2),milestones=[1,2]",
                 "milestones", "1 schedulers need 0 milestones");
    text_refused("torch:SequentialLR,schedulers=(LambdaLR),milestones=[]", "schedulers",
                 "LambdaLR");
    text_refused("torch:OneCycleLR,max_lr=[1,2],total_steps=9", "max_lr", "2 numbers for 1");
    ctx_close();
}

/* Values computed by hand from the frameworks' formulas; bit equality is checked against torch. */
static void text_values(void)
{
    static const double two[2] = { 0.1, 0.2 };
    ckr_schedule *s;
    double row[2];
    ctx_open();
    s = parse1("torchtitan:steps=10,warmup_steps=2", 0.1);
    NEAR(lr_at(s, 1), 0.05, 0);
    NEAR(lr_at(s, 12), -0.0125, 1e-12);               /* the negative tail                 */
    s = parse1("torchtitan:steps=5,warmup_steps=10", 0.1);
    NEAR(lr_at(s, 6), 0.1, 0);
    CHECK(lr_at(s, 7) != lr_at(s, 7));                /* its assertion                     */
    s = parse1("transformers:cosine,num_warmup_steps=4,num_training_steps=20", 5e-5);
    NEAR(lr_at(s, 13), 2.5e-5, 1e-15);
    s = parse1("megatron:lr=3e-4,min_lr=3e-5,lr_decay_iters=10,global_batch_size=100,"
               "start_weight_decay=0.1,end_weight_decay=0.2,train_iters=10,"
               "weight_decay_incr_style=linear", 1);
    CHECK_STR(s->clock, "sample");
    CHECK_OK(ckr__sched_eval(&t_ctx, s, CKR__COL_WD, 5, 1, row), &t_err);
    NEAR(row[0], 0.14, 1e-15);
    CHECK_OK(ckr__sched_eval(&t_ctx, s, CKR__COL_MOMENTUM, 5, 1, row), &t_err);
    CHECK(row[0] != row[0]);
    s = parse1("llmc:cosine,train_num_batches=10", 0.1);
    CHECK(lr_at(s, 11) == lr_at(s, 11) && lr_at(s, 12) != lr_at(s, 12));
    s = parse("torch:CosineAnnealingLR,T_max=10,lr=0.5", two, 2);
    CHECK(near_to(s->lanes[0].base, 0.5, 0) && near_to(s->lanes[1].base, 0.5, 0));
    s = parse("torch:LambdaLR", two, 2);
    CHECK(s->opaque && s->reason != NULL);
    CHECK(lr_at(s, 3) != lr_at(s, 3));
    ctx_close();
}

/* >>schedule.set */

static ckr_schedule *set(const ckr_schedule *s, const char *key, const char *value, int64_t lane)
{
    ckr_schedule *out = NULL;
    err_clear();
    CHECK_OK(ckr__sched_set(&t_ctx, s, key, value, lane, &out), &t_err);
    return out;
}

static void set_keys(void)
{
    static const double two[2] = { 0.1, 0.2 };
    ckr_schedule *s, *n;
    double row[2];
    ctx_open();
    s = parse1("torchtitan:steps=10,warmup_steps=2", 0.1);
    NEAR(lr_at(set(s, "total_steps", "20", -1), 9), 0.1 * (1 - 7.0 / 18 + 1.0 / 18), 1e-12);
    NEAR(lr_at(set(s, "min_lr", "0.05", -1), 11), 0.05, 1e-15);
    NEAR(lr_at(set(s, "decay_steps", "4", -1), 7), 0.1, 0);
    NEAR(lr_at(set(s, "lr", "0.3", -1), 2), 0.3, 0);
    CHECK_STR(ckr_node_str(ckr_node_get(set(s, "decay_style", "cosine", -1)->params, "decay_type")),
              "cosine");
    s = parse("torch:CosineAnnealingLR,T_max=10", two, 2);
    n = set(s, "lr", "0.7", 1);
    CHECK_OK(ckr__sched_eval(&t_ctx, n, CKR__COL_LR, 1, 1, row), &t_err);
    CHECK(near_to(row[0], 0.1, 0) && near_to(row[1], 0.7, 0));
    n = set(s, "min_lr", "0.01", -1);
    NEAR(lr_at(n, 11), 0.01, 1e-12);
    err_clear();
    CHECK_INT(ckr__sched_set(&t_ctx, s, "warmup_steps", "3", -1, &n), CKR_E_REFUSED);
    CHECK(strstr(t_err.text, "lr min_lr decay_steps total_steps") && t_err.remedy[0]);
    err_clear();
    CHECK_INT(ckr__sched_set(&t_ctx, s, "lr", "x", -1, &n), CKR_E_ARG);
    s = parse1("megatron:lr=3e-4,min_lr=3e-5,lr_decay_iters=10,global_batch_size=100", 1);
    n = set(s, "total_steps", "20", -1);
    NEAR(n->curve->k.total, 2000.0, 0);
    n = set(set(s, "weight_decay", "0.3", -1), "lr", "1e-3", -1);
    CHECK_OK(ckr__sched_eval(&t_ctx, n, CKR__COL_WD, 5, 1, row), &t_err);
    CHECK(near_to(row[0], 0.3, 0) && near_to(lr_at(n, 1), 1e-3, 0));
    s = parse1("transformers:linear,num_warmup_steps=4,num_training_steps=20", 5e-5);
    CHECK_STR(set(s, "decay_style", "cosine", -1)->kind, "transformers:cosine");
    ctx_close();
}

/* >>schedule.proof */

static double proof_of(const char *want, const char *made)
{
    const ckr_schedule *a = parse1(want, 0.1), *b = parse1(made, 0.1);
    ckr__lr_proof proof;
    err_clear();
    CHECK_OK(ckr__sched_proof(&t_ctx, a, b, 0, &proof), &t_err);
    return proof.worst;
}

/* Roundings are the same LR; what a number of a configuration could say is not, wherever it shows:
   in one update of a million, or far below the highest LR. */
static void proofs(void)
{
    static const struct { const char *want, *made; bool same; } x[] = {
        { "transformers:linear,num_warmup_steps=0,num_training_steps=90",
          "transformers:polynomial,num_warmup_steps=0,num_training_steps=90,lr_end=0", true },
        { "torch:StepLR,step_size=500,gamma=0.3",
          "torch:MultiStepLR,milestones=[500,1000,1500],gamma=0.3", false },
        { "torchtitan:steps=100,warmup_steps=2",
          "torchtitan:steps=100,warmup_steps=2,min_lr_factor=1e-10", false },
        { "torch:CosineAnnealingLR,T_max=100", "torch:CosineAnnealingLR,T_max=100,eta_min=1e-12",
          false },
        { "torch:CosineAnnealingLR,T_max=100,eta_min=0.05",
          "torch:CosineAnnealingLR,T_max=100,eta_min=0.05000000000001", true },
        { "torch:CosineAnnealingLR,T_max=100,eta_min=0.05",
          "torch:CosineAnnealingLR,T_max=100,eta_min=0.05000000001", false },
        { "torch:MultiStepLR,milestones=[900000,1000000],gamma=0.1",
          "torch:MultiStepLR,milestones=[900001,1000000],gamma=0.1", false },
        { "transformers:linear,num_warmup_steps=3,num_training_steps=4000000",
          "transformers:linear,num_warmup_steps=4,num_training_steps=4000000", false }
    };
    size_t i;
    ctx_open();
    for (i = 0; i < sizeof x / sizeof *x; i++) {
        const double off = proof_of(x[i].want, x[i].made);
        t_check((off <= CKR__LR_SAME) == x[i].same, __FILE__, __LINE__, "%s, %s: off by %g",
                x[i].want, x[i].made, off);
    }
    ctx_close();
}

/* >>schedule.rebase: the numbers of specs' scenarios */

static ckr_schedule *rebase(const ckr_schedule *a, const ckr_schedule *b, ckr__rebase mode,
                            int64_t at, int64_t steps)
{
    ckr_schedule *out = NULL;
    err_clear();
    CHECK_OK(ckr__sched_rebase(&t_ctx, a, b, mode, at, steps, &out), &t_err);
    return out;
}

static void rebase_refused(const ckr_schedule *a, const ckr_schedule *b, ckr__rebase mode,
                           int64_t at, const char *part)
{
    ckr_schedule *out = NULL;
    err_clear();
    CHECK_INT(ckr__sched_rebase(&t_ctx, a, b, mode, at, 0, &out), CKR_E_REFUSED);
    CHECK(strstr(t_err.text, part) && t_err.remedy[0] && !out);
}

static void rebase_titan(void)
{
    ckr_schedule *a, *b, *s;
    int64_t k;
    ctx_open();
    a = parse1("torchtitan:steps=10,warmup_steps=2", 0.1);
    b = parse1("torchtitan:steps=20,warmup_steps=2", 0.1);
    NEAR(lr_at(rebase(a, b, CKR__REBASE_TARGET, 8, 0), 9), 0.1 * 12 / 18, 1e-12);
    s = rebase(a, b, CKR__REBASE_SPLICE, 8, 0);
    NEAR(lr_at(s, 9), 0.025, 1e-12);
    NEAR(lr_at(s, 10), 0.0229166666666666667, 1e-12);
    s = rebase(a, b, CKR__REBASE_STRETCH, 8, 0);
    NEAR(lr_at(s, 9), 0.025, 1e-12);
    CHECK(fabs(lr_at(s, 21)) < 1e-15);
    s = rebase(a, NULL, CKR__REBASE_KEEP, 8, 0);
    for (k = 9; k < 15; k++) CHECK(lr_at(s, k) >= 0);
    NEAR(lr_at(s, 14), lr_at(s, 11), 0);
    s = rebase(a, b, CKR__REBASE_REWARM, 8, 4);
    NEAR(lr_at(s, 9), 0.0, 0);
    NEAR(lr_at(s, 11), lr_at(b, 13) / 2, 1e-12);
    NEAR(lr_at(s, 13), lr_at(b, 13), 0);
    rebase_refused(a, b, CKR__REBASE_STRETCH, 12, "has ended");
    rebase_refused(a, b, CKR__REBASE_SPLICE, 10, "floor");
    rebase_refused(b, a, CKR__REBASE_STRETCH, 12, "ends before");
    rebase_refused(a, b, CKR__REBASE_REWARM, 8, "number of steps");
    ctx_close();
}

static void rebase_torch(void)
{
    ckr_schedule *a, *b, *s;
    ctx_open();
    a = parse1("torch:CosineAnnealingLR,T_max=10", 0.1);
    b = parse1("torch:CosineAnnealingLR,T_max=20", 0.1);
    NEAR(lr_at(rebase(a, b, CKR__REBASE_TARGET, 5, 0), 6), 0.0853553390593273762, 1e-12);
    s = rebase(a, b, CKR__REBASE_SPLICE, 5, 0);
    NEAR(lr_at(s, 6), 0.05, 1e-12);
    NEAR(lr_at(s, 7), 0.0465052, 2e-6);
    s = rebase(a, NULL, CKR__REBASE_KEEP, 5, 0);
    CHECK(fabs(lr_at(s, 18)) < 1e-15);
    s = rebase(a, NULL, CKR__REBASE_KEEP, 15, 0);          /* periodic on purpose           */
    NEAR(lr_at(s, 18), lr_at(a, 18), 0);
    a = parse1("torch:OneCycleLR,max_lr=0.1,total_steps=10", 0.1);
    b = parse1("torch:OneCycleLR,max_lr=0.1,total_steps=20", 0.1);
    NEAR(lr_at(rebase(a, b, CKR__REBASE_TARGET, 6, 0), 7), 0.0987464, 1e-6);
    s = rebase(a, b, CKR__REBASE_STRETCH, 6, 0);
    NEAR(lr_at(s, 7), 0.0388742, 1e-5);
    NEAR(lr_at(s, 8), 0.0338942, 1e-5);
    s = parse1("torch:LambdaLR", 0.1);
    rebase_refused(s, b, CKR__REBASE_STRETCH, 3, "not known");
    ctx_close();
}

static ckr__scan scan(const char *text, double base, int64_t first, uint64_t n)
{
    ckr__scan r;
    ckr_schedule *s = parse1(text, base);
    memset(&r, 0, sizeof r);
    CHECK_OK(ckr__sched_scan(&t_ctx, s, first, n, &r), &t_err);
    return r;
}

static void scans(void)
{
    ckr__scan r;
    ctx_open();
    r = scan("torchtitan:steps=10,warmup_steps=2", 0.1, 1, 14);
    CHECK(r.negative == 12 && r.end == 11 && r.ends_early && !r.rise);
    r = scan("torchtitan:steps=10,warmup_steps=2", 0.1, 1, 6);
    CHECK(!r.negative && r.end == 11 && !r.ends_early);
    r = scan("transformers:cosine,num_warmup_steps=0,num_training_steps=100", 5e-5, 1, 150);
    CHECK(r.rise == 102 && r.end == 101 && !r.negative);
    r = scan("torch:OneCycleLR,max_lr=0.1,total_steps=10", 0.1, 1, 14);
    CHECK(r.rise == 11 && r.undefined == 12 && r.why != NULL);
    r = scan("transformers:constant,num_warmup_steps=0", 0.1, 1, 50);
    CHECK(r.never_decays && !r.end);
    r = scan("llmc:linear,train_num_batches=20,final_learning_rate_frac=0", 0.1, 15, 10);
    CHECK(r.undefined == 22);
    r = scan("torch:LambdaLR", 0.1, 1, 5);
    CHECK(r.unknown);
    r = scan("transformers:cosine,num_warmup_steps=0,num_training_steps=100", 5e-5, 1,
             (uint64_t)1 << 40);
    CHECK(r.sampled && r.rise == 102 && r.ends_early);
    ctx_close();
}

/* >>schedule: random ones */

static double unit(t_rng *r)
{
    return (double)(t_next(r) >> 11) / 9007199254740992.0;
}

static void random_leaf(t_rng *r, char *p, size_t cap)
{
    const double f = 0.05 + 0.9 * unit(r), g = 0.05 + 0.9 * unit(r);
    const int n = (int)t_range(r, 1, 60), m = (int)t_range(r, 1, 9);
    switch (t_next(r) % 8) {
    case 0:  snprintf(p, cap, "StepLR,step_size=%d,gamma=%.17g", m, f); break;
    case 1:  snprintf(p, cap, "MultiStepLR,milestones=[%d,%d,%d],gamma=%.6g", m, n, n, f); break;
    case 2:  snprintf(p, cap, "ConstantLR,factor=%.17g,total_iters=%d", f, n); break;
    case 3:
        snprintf(p, cap, "LinearLR,start_factor=%.17g,end_factor=%.3g,total_iters=%d", f, g, n);
        break;
    case 4:  snprintf(p, cap, "ExponentialLR,gamma=%.17g", 0.8 + 0.2 * f); break;
    case 5:  snprintf(p, cap, "PolynomialLR,total_iters=%d,power=%.4g", n + 1, 3 * f); break;
    case 6:  snprintf(p, cap, "CosineAnnealingLR,T_max=%d,eta_min=%.17g", n + 1, f * 1e-5); break;
    default: snprintf(p, cap, "CosineAnnealingWarmRestarts,T_0=%d,T_mult=%d", m, 1 + m % 3); break;
    }
}

/* Any schedule of any framework. */
static void random_text(t_rng *r, char *p, size_t cap)
{
    static const char *const shapes[] = { "linear", "cosine", "1-sqrt" },
                      *const titan[] = { "linear", "sqrt", "cosine" },
                      *const wsd[] = { "linear", "cosine", "exponential", "minus_sqrt" },
                      *const hf[] = { "linear", "cosine", "cosine_with_restarts", "polynomial",
                                      "inverse_sqrt", "constant_with_warmup" };
    const int w = (int)t_range(r, 0, 12), n = w + (int)t_range(r, 1, 50),
              d = (int)t_range(r, 1, 20);
    const double f = unit(r) * 0.3;
    char a[160], b[160];
    random_leaf(r, a, sizeof a);
    random_leaf(r, b, sizeof b);
    switch (t_next(r) % 12) {
    case 0:
        snprintf(p, cap, "nanotron:learning_rate=0.1,lr_warmup_steps=%d,lr_decay_style=%s,"
                 "min_decay_lr=%.17g,train_steps=%d", w, shapes[d % 3], f * 0.01, n);
        break;
    case 1:
        snprintf(p, cap, "torchtitan:steps=%d,warmup_steps=%d,decay_type=%s,min_lr_factor=%.17g,"
                 "decay_ratio=%.3g", n, w, titan[d % 3], f, f * 3);
        break;
    case 2:
        snprintf(p, cap, "torchtitan:steps=%d,warmup_steps=%d,decay_type=%s,lr_min=%.17g", n, w,
                 titan[d % 3], f);
        break;
    case 3:
        snprintf(p, cap, "megatron:lr=0.1,min_lr=%.17g,lr_decay_style=WSD,lr_wsd_decay_style=%s,"
                 "lr_decay_iters=%d,lr_wsd_decay_iters=%d,lr_warmup_iters=%d,global_batch_size=%d,"
                 "weight_decay=0.1", f * 0.01, wsd[d % 4], n + 1, 1 + n / 3, w, d);
        break;
    case 4:
        snprintf(p, cap, "transformers:%s,num_warmup_steps=%d,num_training_steps=%d", hf[d % 6], w,
                 n);
        break;
    case 5:
        snprintf(p, cap, "transformers:warmup_stable_decay,num_warmup_steps=%d,num_decay_steps=%d,"
                 "num_stable_steps=%d,decay_type=%s,warmup_type=%s,min_lr_ratio=%.17g", w, d, n,
                 shapes[d % 3], shapes[w % 3], f);
        break;
    case 6:
        snprintf(p, cap, "deepspeed:WarmupDecayLR,total_num_steps=%d,warmup_num_steps=%d,"
                 "warmup_max_lr=0.1,warmup_type=%s", n + 2, w, d % 2 ? "log" : "linear");
        break;
    case 7:
        snprintf(p, cap, "torch:OneCycleLR,max_lr=0.1,total_steps=%d,pct_start=0.3,"
                 "anneal_strategy=%s", n + 8, d % 2 ? "cos" : "linear");
        break;
    case 8:
        snprintf(p, cap, "torch:SequentialLR,schedulers=(%s;%s),milestones=[%d]",
                 a, b, d);
        break;
    case 9:
        snprintf(p, cap, "torch:ChainedScheduler,schedulers=(%s;%s)", a, b);
        break;
    case 10:
        snprintf(p, cap, "torch:CyclicLR,base_lr=%.17g,max_lr=0.1,step_size_up=%d,mode=%s",
                 f * 0.1, d, d % 2 ? "triangular2" : "exp_range,gamma=0.99");
        break;
    default: snprintf(p, cap, "torch:%s", a); break;
    }
}

enum { T_UPDATES = 70, T_LANES = 3 };

/* Through the canonical form and its JSON: every value keeps its bits. */
static void random_round_trip(const ckr_schedule *s, const double *want, const char *text)
{
    ckr_node *node = ckr__sched_node(&t_ctx, s), *tree = NULL;
    ckr_schedule *back = NULL;
    double have[T_UPDATES * T_LANES];
    ckr__buf b;
    size_t i;
    memset(&b, 0, sizeof b);
    b.c = &t_ctx;
    if (!CHECK(node != NULL)) return;
    CHECK_OK(ckr__json_put(&b, node, 0, false), &t_err);
    CHECK_OK(ckr__json_parse(&t_ctx, text, b.data, b.size, 0, &tree), &t_err);
    CHECK_OK(ckr__sched_from_node(&t_ctx, tree, &back), &t_err);
    ckr__buf_free(&b);
    if (!back) return;
    CHECK_OK(ckr__sched_eval(&t_ctx, back, CKR__COL_LR, 1, T_UPDATES, have), &t_err);
    for (i = 0; i < T_UPDATES * T_LANES; i++)
        if (!t_check(same_bits(have[i], want[i]), __FILE__, __LINE__, "%s: %.17g, not %.17g", text,
                     have[i], want[i]))
            return;
}

/* The recurrence and the closed form, within the bound that is promised. */
static void random_closed(const ckr_schedule *s, const double *want, const char *text)
{
    ckr_schedule closed = *s;
    double have[T_UPDATES * T_LANES], scale[T_LANES];
    size_t i;
    if (!s->recurrent) return;
    closed.recurrent = false;
    CHECK_OK(ckr__sched_eval(&t_ctx, &closed, CKR__COL_LR, 1, T_UPDATES, have), &t_err);
    for (i = 0; i < T_LANES; i++) scale[i] = fabs(s->lanes[i].base) + 1e-5;
    for (i = 0; i < T_UPDATES * T_LANES; i++) {
        const double bound = bound_of(s->curve, (double)(i / T_LANES), scale[i % T_LANES]);
        if (have[i] != have[i] || want[i] != want[i]) continue;
        if (!t_check(fabs(have[i] - want[i]) <= bound, __FILE__, __LINE__,
                     "%s update %u: closed %.17g, recurrence %.17g, bound %g", text,
                     (unsigned)(i / T_LANES + 1), have[i], want[i], bound))
            return;
    }
}

/* Splice and stretch meet the old LR at the step where they begin. */
static void random_rebase(t_rng *r, const ckr_schedule *s, const double *want, const char *text)
{
    const int64_t at = t_range(r, 1, 40);
    char other[400];
    double bases[T_LANES], now[T_LANES];
    ckr_schedule *target = NULL, *out = NULL;
    int mode;
    uint64_t i;
    for (i = 0; i < T_LANES; i++) bases[i] = s->lanes[i].base;
    random_text(r, other, sizeof other);
    if (ckr__sched_parse(&t_ctx, other, bases, T_LANES, &target) != CKR_OK) return;
    if (!strcmp(s->clock, target->clock)) target->rate = s->rate;
    for (mode = CKR__REBASE_SPLICE; mode <= CKR__REBASE_STRETCH; mode++) {
        err_clear();
        if (ckr__sched_rebase(&t_ctx, s, target, (ckr__rebase)mode, at, 0, &out) != CKR_OK) {
            CHECK(t_err.code == CKR_E_REFUSED && t_err.text[0] && t_err.remedy[0]);
            continue;
        }
        CHECK_OK(ckr__sched_eval(&t_ctx, out, CKR__COL_LR, at + 1, 1, now), &t_err);
        for (i = 0; i < T_LANES; i++) {
            const double old = want[(uint64_t)at * T_LANES + i];
            if (!t_check(near_to(now[i], old, 1e-12) || (old <= 0 && now[i] >= 0 && now[i] < 1e-15),
                         __FILE__, __LINE__, "%s -> %s (%d) at %d: %.17g, was %.17g", text, other,
                         mode, (int)at, now[i], old))
                return;
        }
    }
    err_clear();
}

static void random_schedules(void)
{
    t_rng r = { 4 };
    const int n = (int)t_times(10000, 500);
    int i, lanes;
    char text[400];
    for (i = 0; i < n; i++) {
        double bases[T_LANES], want[T_UPDATES * T_LANES];
        ckr_schedule *s = NULL;
        if (i % 100 == 0) ctx_open();
        random_text(&r, text, sizeof text);
        for (lanes = 0; lanes < T_LANES; lanes++)
            bases[lanes] = lanes == 2 && i % 3 ? bases[0] : 0.001 + unit(&r);
        s = parse(text, bases, T_LANES);
        if (s) {
            CHECK_OK(ckr__sched_eval(&t_ctx, s, CKR__COL_LR, 1, T_UPDATES, want), &t_err);
            random_round_trip(s, want, text);
            random_closed(s, want, text);
            random_rebase(&r, s, want, text);
        }
        if (i % 100 == 99) ctx_close();
    }
}

/* >>schedule.torch: the other frameworks' dicts */

static ckr_node *json(const char *text)
{
    ckr_node *root = NULL;
    CHECK_OK(ckr__json_parse(&t_ctx, "test", (const uint8_t *)text, strlen(text),
                             CKR__JSON_PYTHON, &root), &t_err);
    return root;
}

static ckr_schedule *state(const char *text, const char *groups, const char *spec)
{
    const ckr_node *list = json(groups), *hyper[4];
    ckr_schedule *s = NULL;
    uint64_t i;
    err_clear();
    for (i = 0; list && i < list->count && i < 4; i++) hyper[i] = list->u.items[i];
    CHECK_OK(ckr__sched_torch(&t_ctx, json(text), hyper, list ? list->count : 0, spec, &s), &t_err);
    return s;
}

static void other_states(void)
{
    static const char *const groups =
        "[{\"max_lr\":5.0,\"min_lr\":0.5,\"lr\":5.0,\"wd_mult\":0.5,\"lr_mult\":1.0},{\"lr\":1.0}]";
    ckr_schedule *s;
    ckr_node *out = NULL;
    double row[2], drift;
    uint64_t lane;
    ctx_open();
    s = state("{\"start_lr\":1.0,\"warmup_iter\":0,\"num_iters\":0,\"decay_style\":\"cosine\","
              "\"end_iter\":1000,\"min_lr\":0.1,\"start_wd\":0.1,\"end_wd\":0.2,"
              "\"wd_incr_style\":\"linear\",\"wd_incr_steps\":1000,\"more\":7}", groups, NULL);
    CHECK(s && !s->opaque && !strcmp(s->clock, "sample"));
    s->rate = 100;
    CHECK_OK(ckr__sched_eval(&t_ctx, s, CKR__COL_LR, 11, 1, row), &t_err);
    CHECK(near_to(row[0], 0.5, 0) && near_to(row[1], 0.1, 0));      /* bounds of their own   */
    CHECK_OK(ckr__sched_eval(&t_ctx, s, CKR__COL_WD, 5, 1, row), &t_err);
    CHECK(near_to(row[0], 0.07, 1e-15) && near_to(row[1], 0.14, 1e-15));
    CHECK_OK(ckr__sched_drift(&t_ctx, s, &drift, &lane), &t_err);
    CHECK(drift <= 0);
    CHECK_OK(ckr__sched_torch_write(&t_ctx, s, NULL, 2, 300, &out), &t_err);
    CHECK_INT(ckr__sread_int(out, "num_steps", -1), 300);
    CHECK_STR(ckr_node_str(ckr_node_get(out, "lr_decay_style")), "cosine");
    CHECK(ckr__has(out, "more") && !ckr__has(out, "start_lr") && !ckr__has(out, "num_iters"));
    s = state("{\"max_lr\":1.0,\"num_steps\":5,\"lr_decay_style\":\"WSD\",\"lr_decay_steps\":9,"
              "\"lr_warmup_steps\":0,\"min_lr\":0.0}", groups, NULL);
    CHECK(s->opaque && strstr(s->reason, "wsd_decay_steps") && s->position == 5);
    s = state("{\"last_batch_iteration\":9}", groups, NULL);
    CHECK(s->opaque && !strcmp(s->kind, "deepspeed") && s->position == 9);
    s = state("{\"last_batch_iteration\":9}", groups,
              "deepspeed:WarmupDecayLR,total_num_steps=100,warmup_num_steps=10");
    CHECK(!s->opaque && s->position == 9 && near_to(s->offset, -1, 0));
    s = state("{\"last_epoch\":3}", groups, "torchtitan:steps=10,warmup_steps=2");
    CHECK(!s->opaque && s->position == 3);
    s = state("{\"best\":3.5}", groups, NULL);
    CHECK(s->opaque && !strcmp(s->kind, "fairseq"));
    s = state("{\"gamma\":0.5,\"_step_count\":1}", groups, NULL);
    CHECK(s->opaque && strstr(s->reason, "last_epoch"));
    ctx_close();
}

/* A file of transformers holds no timescale; the saved LR tells it, bit for bit or not at all. */
static void timescale(void)
{
    static const char *const lr =
        "{\"base_lrs\":[0.1],\"last_epoch\":37,\"_step_count\":38,\"lr_lambdas\":[{}],"
        "\"_last_lr\":[%s]}";
    static const char *const spec = "transformers:inverse_sqrt,num_warmup_steps=15";
    ckr_schedule *s = NULL;
    char text[200];
    ctx_open();
    snprintf(text, sizeof text, lr, "0.08333333333333334");
    CHECK_OK(ckr__sched_torch(&t_ctx, json(text), NULL, 0, spec, &s), &t_err);
    NEAR(s->curve->k.decay, 50.0, 0);
    snprintf(text, sizeof text, lr, "0.0833");
    CHECK_OK(ckr__sched_torch(&t_ctx, json(text), NULL, 0, spec, &s), &t_err);
    NEAR(s->curve->k.decay, 15.0, 0);
    ctx_close();
}

static double halves(void *user, double base, double t)
{
    (void)user;
    return base / (1 + t);
}

static void callbacks(void)
{
    static const double bases[2] = { 1, 2 };
    ckr_schedule *s;
    double row[2];
    ctx_open();
    s = ckr__sched_user(&t_ctx, halves, NULL, bases, 2);
    CHECK_OK(ckr__sched_eval(&t_ctx, s, CKR__COL_LR, 4, 1, row), &t_err);
    CHECK(near_to(row[0], 0.25, 0) && near_to(row[1], 0.5, 0));
    CHECK(ckr__sched_node(&t_ctx, s) == NULL && t_err.code == CKR_E_ARG);
    ctx_close();
}

/* >>schedule.torch: states that no scheduler wrote */

static ckr_node *spoil(t_rng *r, ckr_node *n, int depth)
{
    static const double odd[] = { 0, -1, 1e300, -1e300, 0.5, 9e15 };
    const bool dict = ckr_node_is_dict(n);
    ckr_node *list;
    uint64_t i;
    switch (t_next(r) % 12) {
    case 0:  return ckr__make(&t_ctx, CKR_NODE_NONE);
    case 1:  return ckr__make_str(&t_ctx, "cos");
    case 2:  return ckr__make_int(&t_ctx, t_next(r) % 2 ? INT64_MAX : INT64_MIN);
    case 3:  return ckr__make_float(&t_ctx, ckr__nan());
    case 4:  return ckr__make_float(&t_ctx, odd[t_next(r) % 6]);
    case 5:  return ckr__make_int(&t_ctx, t_range(r, -3, 3));
    case 6:  return ckr__make(&t_ctx, CKR_NODE_LIST);
    case 7:  return ckr__make(&t_ctx, CKR_NODE_DICT);
    case 8:
        list = ckr__make(&t_ctx, CKR_NODE_LIST);
        for (i = 0; i < 5; i++) ckr__node_push(&t_ctx, list, n);
        return list;
    default:
        if ((dict || ckr_node_is_list(n)) && n->count && depth < 4) {
            i = t_next(r) % n->count;
            i = dict ? 2 * i + 1 : i;
            n->u.items[i] = spoil(r, n->u.items[i], depth + 1);
        }
        return n;
    }
}

static void use_all(ckr_schedule *s)
{
    double out[64];
    ckr_node *node;
    ckr_schedule *back;
    ckr__scan r;
    if (!s || s->n_lanes > 4) return;
    ckr__sched_eval(&t_ctx, s, CKR__COL_LR, 1, 8, out);
    ckr__sched_eval(&t_ctx, s, CKR__COL_LR, s->position + 1, 4, out);
    ckr__sched_eval(&t_ctx, s, CKR__COL_MOMENTUM, 1, 8, out);
    err_clear();
    ckr__sched_scan(&t_ctx, s, 1, 40, &r);
    if (ckr__sched_torch_write(&t_ctx, s, NULL, s->n_lanes, s->position, &node) == CKR_OK)
        CHECK(node != NULL);
    ckr__sched_torch_write(&t_ctx, s, NULL, s->n_lanes, 5, &node);
    node = ckr__sched_node(&t_ctx, s);
    err_clear();
    if (node) CHECK_OK(ckr__sched_from_node(&t_ctx, node, &back), &t_err);
}

static void hostile_states(void)
{
    t_rng r = { 9 };
    int round, k;
    uint64_t i;
    for (round = 0; round < 100; round++) {
        const ckr_node *cases;
        ctx_open();
        cases = ckr_node_get(data_load(), "cases");
        for (i = 0; cases && i < cases->count; i++) {
            const ckr_node *c = cases->u.items[i], *hyper[2];
            ckr_node *state = (ckr_node *)(uintptr_t)ckr_node_get(c, "state");
            ckr_node *groups = (ckr_node *)(uintptr_t)ckr_node_get(c, "groups");
            ckr_schedule *s = NULL;
            for (k = 0; k < 3; k++) state = spoil(&r, state, 0);
            if (round % 2) groups = spoil(&r, groups, 0);
            hyper[0] = ckr_node_at(groups, 0);
            hyper[1] = ckr_node_at(groups, 1);
            err_clear();
            if (ckr__sched_torch(&t_ctx, state, round % 3 ? hyper : NULL, 2,
                                 round % 5 ? NULL : "transformers:inverse_sqrt,num_warmup_steps=2",
                                 &s) == CKR_OK) {
                CHECK(s && (!s->opaque || s->reason));
                CHECK_INT(t_err.code, CKR_OK);
                use_all(s);
            } else {
                CHECK(!s && t_err.text[0]);
            }
        }
        ctx_close();
    }
}

/* Canonical forms that somebody has edited. */
static void hostile_nodes(void)
{
    static const char *const texts[] = {
        ("torch:SequentialLR,schedulers=(LinearLR;ChainedScheduler,"
         "schedulers=(StepLR,step_size=2)),milestones=[3]"),
        "torch:OneCycleLR,max_lr=0.1,total_steps=20",
        "torch:CosineAnnealingWarmRestarts,T_0=3,T_mult=2", "megatron:lr=0.1,lr_decay_iters=9"
    };
    t_rng r = { 11 };
    int round, k;
    size_t i;
    for (round = 0; round < 400; round++) {
        ctx_open();
        for (i = 0; i < sizeof texts / sizeof *texts; i++) {
            ckr_schedule *s = parse1(texts[i], 0.1), *back = NULL;
            ckr_node *node = s ? ckr__sched_node(&t_ctx, s) : NULL;
            if (!CHECK(node != NULL)) continue;
            for (k = 0; k < 3; k++) node = spoil(&r, node, 0);
            err_clear();
            if (ckr__sched_from_node(&t_ctx, node, &back) == CKR_OK) {
                double out[16];
                if (back->n_lanes <= 2) ckr__sched_eval(&t_ctx, back, CKR__COL_LR, 1, 8, out);
            } else {
                CHECK_INT(t_err.code, CKR_E_FORMAT);
            }
        }
        ctx_close();
    }
}

/* Every allocation that fails is an error, never a crash or a wrong value. */
typedef struct failing { long left; } failing;

static void *failing_alloc(void *user, size_t size, size_t align)
{
    (void)align;
    return ((failing *)user)->left-- > 0 ? malloc(size) : NULL;
}

static void failing_free(void *user, void *p, size_t size, size_t align)
{
    (void)user, (void)size, (void)align;
    free(p);
}

static void out_of_memory(void)
{
    static const double bases[3] = { 0.1, 0.2, 0.1 };
    static const char *text = "torch:SequentialLR,schedulers=(LinearLR;CosineAnnealingLR,T_max=9),"
                              "milestones=[3]";
    failing f;
    ckr_env env;
    long k;
    ckr_result e = CKR_E_NOMEM;
    memset(&env, 0, sizeof env);
    env.alloc.alloc_fn = failing_alloc;
    env.alloc.free_fn = failing_free;
    env.alloc.user = &f;
    for (k = 0; k < 200 && e != CKR_OK; k++) {
        ckr_schedule *s = NULL, *out = NULL;
        ckr_node *node = NULL;
        double row[30];
        ckr__scan r;
        f.left = 1000;
        CHECK(ckr__ctx_init(&t_ctx, &env, NULL, &t_err) == CKR_OK);
        f.left = k;
        e = ckr__sched_parse(&t_ctx, text, bases, 3, &s);
        if (e == CKR_OK) e = ckr__sched_eval(&t_ctx, s, CKR__COL_LR, 1, 10, row);
        if (e == CKR_OK) e = ckr__sched_scan(&t_ctx, s, 1, 10, &r);
        if (e == CKR_OK) e = ckr__sched_torch_write(&t_ctx, s, NULL, 3, 4, &node);
        if (e == CKR_OK) e = ckr__sched_rebase(&t_ctx, s, s, CKR__REBASE_SPLICE, 4, 0, &out);
        if (e == CKR_OK) CHECK(ckr__sched_node(&t_ctx, s) != NULL);
        if (e != CKR_OK) CHECK_INT(e, CKR_E_NOMEM);
        ckr__ctx_free(&t_ctx);
    }
    CHECK_INT(e, CKR_OK);
}

int main(int argc, char **argv)
{
    t_begin(argc, argv);
    RUN(torch_cases);
    RUN(text_errors);
    RUN(text_values);
    RUN(set_keys);
    RUN(proofs);
    RUN(rebase_titan);
    RUN(rebase_torch);
    RUN_LONG(scans);
    RUN(random_schedules);
    RUN(other_states);
    RUN(timescale);
    RUN(callbacks);
    RUN(hostile_states);
    RUN(hostile_nodes);
    RUN(out_of_memory);
    return t_end();
}
