/* Resumes: what a plan decides about groups and schedule is what the files say that it writes, for
   Nanotron's directories and torch's files, every policy and setting; the report shows every change
   with both values; and settings that nobody means are refused. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "t.h"
#include "resume.h"
#include "settings.h"

/* ---- Nanotron ---- */

static const char *const nanotrons[] = { "/w/pp2", "/w/tp2", "/w/zero" };

typedef struct policy_case {
    const char *ask;
    double      rel;           /* 0: bit for bit                                        */
    int         joins;         /* the first LR is the one that would have come          */
    const char *code;          /* in the report; "": Nanotron must be told; or NULL      */
} policy_case;

static const policy_case policies[] = {
    { "", 0, 1, "CKR_FIX_NANOTRON_LR" },
    { "@keep", 0, 1, NULL },
    { "lr=0.001", 0, 0, "CKR_SET" },
    { "total_steps=50 @target", 0, 0, "CKR_LR_CHANGED" },
    { "total_steps=50 @splice", 1e-12, 1, "" },
    { "total_steps=50 @stretch", 1e-12, 1, "" },
    { "total_steps=37 @stretch", 1e-12, 1, NULL },
    { "min_lr=0.0001 @splice", 1e-12, 1, "" },
    { "decay_style=cosine @splice", 1e-12, 1, "" },
    { "decay_style=1-sqrt @target", 0, 0, "CKR_LR_CHANGED" },
    { "0.lr=0.001", 0, 0, "CKR_SET" },
    { "0.lr=0.01 total_steps=50 @target", 0, 0, "CKR_SET" },
    { "total_steps=50 ^1.5", 0, 0, "CKR_LR_CHANGED" },
    { "weight_decay=0.3", 0, 1, "CKR_SET" },
    { "batch_size=64", 0, 1, "CKR_BATCH_STEPS" },
    { "nanotron:learning_rate=0.003,lr_warmup_steps=2,lr_decay_steps=98,min_decay_lr=0.0001,"
      "lr_decay_style=cosine,train_steps=100 @splice", 1e-12, 1, "CKR_SCHEDULE" }
};

static void nanotron_policies(void)
{
    size_t k, i;
    for (k = 0; k < sizeof nanotrons / sizeof *nanotrons; k++) {
        ckr_ckpt *c = open_path(nanotrons[k]);
        for (i = 0; c && i < sizeof policies / sizeof *policies; i++) {
            const policy_case *x = &policies[i];
            ckr_ckpt *out;
            job j;
            ask(&j, x->ask);
            out = carried_out(&j, c, x->rel);
            if (out && x->code && !*x->code) CHECK(j.f->n_settings > 0);
            else if (out && x->code) HAS(&j, x->code);
            if (out) settings_told(j.f);
            if (out && x->joins)
                NEAR(value(j.f->after, j.f->resume_at, 1), value(j.f->before, j.f->resume_at, 1),
                     1e-12);
            ckr_ckpt_close(out);
            done(&j);
        }
        ckr_ckpt_close(c);
    }
}

/* Stages more or fewer: the same LR and the same groups, whatever stage has them now. */
static void nanotron_stages(void)
{
    static const char *const asks[] = { "pp=1", "pp=1 lr=0.001", "pp=1 0.lr=0.001 weight_decay=0.2",
                                        "pp=1 total_steps=50 @stretch", "pp=1 tp=2" };
    static const char *const back[] = { "pp=2", "pp=2 tp=1 total_steps=50 @splice",
                                        "pp=2 3.lr=0.01" };
    size_t i;
    ckr_ckpt *c = open_path("/w/pp2"), *out;
    job j;
    for (i = 0; c && i < sizeof asks / sizeof *asks; i++) {
        ask(&j, asks[i]);
        out = carried_out(&j, c, 1e-12);
        HAS(&j, "CKR_W_TOPOLOGY");
        if (out) CHECK_INT(ckr_ckpt_state(out)->n_groups, ckr_ckpt_state(c)->n_groups);
        ckr_ckpt_close(out);
        done(&j);
    }
    ckr_ckpt_close(c);
    c = open_path("/w/tp2");
    for (i = 0; c && i < sizeof back / sizeof *back; i++) {
        ask(&j, back[i]);
        out = carried_out(&j, c, 1e-12);
        ckr_ckpt_close(out);
        done(&j);
    }
    ckr_ckpt_close(c);
}

/* Padding that is new has a part in HEAD's loss: said with the rows. */
static void nanotron_padding(void)
{
    ckr_ckpt *c = open_path("/w/pp2");
    const ckr_note *n;
    job j;
    ask(&j, "tp=2");
    if (c && decide(&j, c, true)) {
        n = note(&j, "CKR_W_VOCAB_ROWS");
        CHECK(n && n->severity == CKR_CHANGED && strstr(n->reason, "the loss rises") != NULL);
    }
    done(&j);
    ckr_ckpt_close(c);
}

/* An LR that is asked for is used in the first update, in every group, said with both values; where
   it has no effect, nothing says that it has. */
static void nanotron_override(void)
{
    ckr_ckpt *c = open_path("/w/pp2");
    uint64_t i;
    job j;
    ask(&j, "lr=0.001");
    if (c && decide(&j, c, false)) {
        for (i = 0; i < j.f->n_groups; i++) NEAR(value(j.f->after, 14, i), 0.0007, 1e-12);
        has_both(&j, "CKR_SET", 0.003, 0.001);
        has_both(&j, "CKR_LR_CHANGED", 0.0018428571428571426, 0.0007);
        CHECK_INT(j.f->verdict, CKR_VERDICT_CHANGED);
    }
    done(&j);
    ask(&j, "nanotron:learning_rate=0.002,lr_warmup_steps=4,lr_decay_steps=21,min_decay_lr=0.0003");
    if (c && decide(&j, c, false)) {                       /* the whole schedule says it, too */
        NEAR(value(j.f->after, 14, 0), 0.0003 + 0.0017 * (1 - 9.0 / 21), 1e-12);
        CHECK(!refused(&j));
    }
    done(&j);
    ask(&j, "lr=0.001 @keep");
    if (c && decide(&j, c, false)) CHECK(refused(&j) || !note(&j, "CKR_SET"));
    done(&j);
    ask(&j, "lr=0.001");
    j.t.without = CKR_OPTIMIZER;                          /* the schedule would start again  */
    if (c && decide(&j, c, true)) CHECK(refused(&j));
    done(&j);
    ask(&j, "total_steps=40.5 @target");                   /* as planned, or not at all */
    if (c && decide(&j, c, false)) {
        done(&j);
        ask(&j, "total_steps=40.5 @target");
        ckr_ckpt_close(carried_out(&j, c, 1e-12));
    }
    done(&j);
    ckr_ckpt_close(c);
}

static void nanotron_refused(void)
{
    static const struct { const char *ask, *code; } x[] = {
        { "total_steps=50", "CKR_E_LR_JUMP" }, { "min_lr=0.001", "CKR_E_LR_JUMP" },
        { "total_steps=50 @target ^1.2", "CKR_E_LR_JUMP" }, { "@rewarm", NULL },
        { "nanotron:learning_rate=0.003,lr_warmup_steps=4,lr_decay_steps=200", "CKR_E_LR_JUMP" },
        { "lr=0.01 @splice", "CKR_E_SCHEDULE_REBASE" },
        { "0.lr=0.01 total_steps=50 @splice", "CKR_E_SCHEDULE_REBASE" },
        { "lr=0.01 total_steps=50 @stretch", "CKR_E_SCHEDULE_REBASE" },
        { "min_lr=0.0001 total_steps=50 @stretch", "CKR_E_SCHEDULE_REBASE" },
        { "decay_style=cosine total_steps=50 @stretch", "CKR_E_SCHEDULE_REBASE" },
        { "total_steps=50 @rewarm #5", "CKR_E_SCHEDULE_HOLD" },
        { "torchtitan:steps=100,warmup_steps=4 @target", "CKR_E_SCHEDULE_HOLD" },
        { "torchtitan:steps=10,warmup_steps=4 @target", "CKR_E_LR_NEGATIVE" },
        { "torch:LambdaLR", "CKR_E_SCHEDULE_HOLD" }, { "total_steps=10 @stretch", NULL }
    };
    ckr_ckpt *c = open_path("/w/pp2");
    size_t i;
    job j;
    for (i = 0; c && i < sizeof x / sizeof *x; i++) {
        ask(&j, x[i].ask);
        decide(&j, c, true);
        t_check(refused(&j), __FILE__, __LINE__, "%s: not refused", x[i].ask);
        if (x[i].code && j.f) HAS(&j, x[i].code);
        if (!j.f) CHECK(err.remedy[0] != 0);
        if (note(&j, "CKR_E_SCHEDULE_REBASE"))
            CHECK(note(&j, "CKR_E_SCHEDULE_REBASE")->remedy != NULL);
        if (j.f && refused(&j)) CHECK(ckr_plan_write(j.p, "/w/out2", NULL, &err) == CKR_E_REFUSED);
        CHECK(memio_find(&mem, "/w/out2") == NULL);
        done(&j);
    }
    ckr_ckpt_close(c);
}

/* ---- torch's files ---- */

static const ckr_node *truth_of(ckr_ckpt **owner, const char *name)
{
    ckr_open_desc d = CKR_ZERO;
    ckr_env env = env_now();
    d.env = &env;
    CHECK_OK(ckr_tree_open("/w/torch/lr.json", &d, owner, &err), &err);
    return *owner ? ckr_node_get(ckr_ckpt_root(*owner), name) : NULL;
}

/* Before: what the live run used, bit for bit. */
static void is_the_live_run(const ckr_schedule *s, const char *name, uint64_t rows)
{
    ckr_ckpt *owner = NULL;
    const ckr_node *t = truth_of(&owner, name);
    uint64_t i;
    for (i = 0; t && i < rows && i < t->count; i++) {
        double a = 0, b = 0;
        ckr_node_f64(ckr_node_at(ckr_node_at(t, i), 0), &a);
        ckr_node_f64(ckr_node_at(ckr_node_at(t, i), 1), &b);
        if (!t_check(a == value(s, (int64_t)i + 1, 0) && b == value(s, (int64_t)i + 1, 1), __FILE__,
                     __LINE__, "%s update %u: not the LR of the live run", name, (unsigned)i + 1))
            break;
    }
    ckr_ckpt_close(owner);
}

static void torch_policies(void)
{
    static const policy_case x[] = {
        { "cosine", 0, 1, NULL }, { "cosine lr=0.05", 0, 0, "CKR_LR_CHANGED" },
        { "cosine 1.lr=0.005", 0, 0, "CKR_SET" },
        { "cosine total_steps=100 @target", 0, 0, "CKR_LR_CHANGED" },
        { "cosine total_steps=100 @splice", 1e-12, 1, "CKR_SET" },
        { "cosine min_lr=0.01 @target", 0, 0, "CKR_SET" },
        { "cosine weight_decay=0.5", 0, 1, "CKR_SET" },
        { "cosine torch:StepLR,step_size=4,gamma=0.5 @target", 0, 0, "CKR_SCHEDULE" },
        { "cosine torch:SequentialLR,schedulers=(LinearLR,start_factor=0.1,total_iters=5;"
          "CosineAnnealingLR,T_max=95),milestones=[5] @target", 0, 0, "CKR_SCHEDULE" },
        { "named 0.lr=0.05", 0, 0, "CKR_SET" }, { "step lr=0.05", 0, 0, "CKR_SET" },
        { "step decay_steps=4 @target", 0, 0, "CKR_SET" },
        { "linear total_steps=40 @splice", 1e-12, 1, "CKR_SET" },
        { "linear torch:PolynomialLR,total_iters=80,power=2.0 @target", 0, 0, "CKR_SCHEDULE" },
        { "seq lr=0.05", 0, 0, "CKR_SET" }, { "onecycle total_steps=70 @target", 0, 0, "CKR_SET" },
        { "onecycle lr=0.05", 0, 0, "CKR_SET" }
    };
    size_t i;
    for (i = 0; i < sizeof x / sizeof *x; i++) {
        const size_t n = strcspn(x[i].ask, " ");
        char path[64];
        ckr_ckpt *c, *out;
        job j;
        snprintf(path, sizeof path, "/w/torch/%.*s.pt", (int)n, x[i].ask);
        c = open_path(path);
        ask(&j, x[i].ask[n] ? x[i].ask + n + 1 : "");
        out = c ? carried_out(&j, c, x[i].rel) : NULL;
        if (out && x[i].code) HAS(&j, x[i].code);
        if (out && x[i].joins)
            NEAR(value(j.f->after, 13, 1), value(j.f->before, 13, 1), 1e-12);
        if (out && i < 2) is_the_live_run(j.f->before, "cosine", 33);
        if (out && i == 0 && !note(&j, "CKR_W_LR_REBOUND"))       /* past the cosine's end    */
            NEAR(value(ckr_ckpt_state(out)->schedules, 50, 0), value(j.f->after, 50, 0), 1e-12);
        ckr_ckpt_close(out);
        done(&j);
        ckr_ckpt_close(c);
    }
}

static void told(const job *j, const char *code, const char *subject, const char *was,
                 const char *now)
{
    uint64_t i;
    for (i = 0; j->f && i < j->f->n_notes; i++) {
        const ckr_note *n = &j->f->notes[i];
        if (!strcmp(n->code, code) && !strcmp(n->subject, subject) && n->old_value &&
            n->new_value && !strcmp(n->old_value, was) && !strcmp(n->new_value, now))
            return;
    }
    t_check(false, __FILE__, __LINE__, "no %s %s %s -> %s", code, subject, was, now);
}

/* Groups with values of their own: an entry for each pair, a range where there are many. */
static void values_of_groups(void)
{
    ckr_ckpt *c = open_path("/w/torch/cosine.pt");
    char text[9][4], index[9][4];
    ckr_setting sets[9];
    int i;
    job j;
    ask(&j, "lr=0.01");
    if (c && decide(&j, c, false)) {
        told(&j, "CKR_SET", "lr of the schedule", "0.02 to 0.10000000000000001", "0.01");
        told(&j, "CKR_LR_CHANGED", "lr of group 0", "0.079595369988477424",
             "0.0081450336353161255");
        told(&j, "CKR_LR_CHANGED", "lr of group 1", "0.01608395989677849",
             "0.0081450336353161255");
    }
    done(&j);
    ckr_ckpt_close(c);
    c = made("transformers:linear,num_warmup_steps=0,num_training_steps=20", 20, 10);
    ask(&j, "lr=0.25 3.lr=0.5 4.lr=0.5 19.lr=0.5");
    if (c && decide(&j, c, false)) {
        told(&j, "CKR_LR_CHANGED", "lr of groups 0-2, 5-18", "0.050000000000000003", "0.125");
        told(&j, "CKR_LR_CHANGED", "lr of groups 3-4, 19", "0.050000000000000003", "0.25");
    }
    done(&j);
    ckr_ckpt_close(c);
    c = made("transformers:linear,num_warmup_steps=0,num_training_steps=20", 9, 10);
    ask(&j, "");
    for (i = 0; i < 9; i++) {
        snprintf(text[i], sizeof text[i], "%d", i + 1);
        snprintf(index[i], sizeof index[i], "%d", i);
        sets[i].group = index[i];
        sets[i].key = "lr";
        sets[i].value = text[i];
    }
    j.t.sets = sets;
    j.t.n_sets = 9;
    if (c && decide(&j, c, false)) {
        told(&j, "CKR_LR_CHANGED", "lr of 9 groups", "0.050000000000000003", "0.5 to 4.5");
        CHECK(strstr(note(&j, "CKR_LR_CHANGED")->reason, "most in group 8") != NULL);
    }
    done(&j);
    ckr_ckpt_close(c);
    c = open_path("/w/pp2");
    ask(&j, "0.lr=0.001");
    if (c && decide(&j, c, true)) {
        const ckr_note *n = note(&j, "CKR_FIX_NANOTRON_LR");
        CHECK_STR(n ? n->new_value : "", "0.001 to 0.0030000000000000001");
    }
    done(&j);
    ckr_ckpt_close(c);
}

/* Groups without weight decay stay so; one of them by name or number does not. */
static void weight_decays(void)
{
    static const double want[3][2] = { { 0.5, 0 }, { 0.1, 0.5 }, { 0, 0 } };
    static const char *const asks[3] = { "weight_decay=0.5", "1.weight_decay=0.5",
                                         "weight_decay=0" };
    ckr_ckpt *c = open_path("/w/torch/cosine.pt"), *out;
    double v;
    int i, k;
    job j;
    for (i = 0; c && i < 3; i++) {
        ask(&j, asks[i]);
        out = carried_out(&j, c, 0);
        for (k = 0; out && k < 2; k++) {
            const ckr_node *h = ckr_ckpt_state(out)->groups[k].hyper;
            CHECK(ckr_node_f64(ckr_node_get(h, "weight_decay"), &v));
            NEAR(v, want[i][k], 0);
        }
        if (i == 0) HAS(&j, "CKR_SET_KEPT");
        if (i == 1) has_both(&j, "CKR_SET", 0, 0.5);
        ckr_ckpt_close(out);
        done(&j);
    }
    ckr_ckpt_close(c);
}

static double lambda(void *user, double base, double t)
{
    volatile double x = 0.1 * t;           /* (rounded, not fused with the sum)            */
    (void)user;
    return base * (1 / (1 + x));
}

/* A function of the trainer's own: unknown, or told by a callback; then every policy joins it. */
static void own_curve(void)
{
    ckr_open_desc d = CKR_ZERO;
    ckr_ckpt *c = open_path("/w/torch/lambda.pt"), *out;
    job j;
    ask(&j, "");
    if (c && decide(&j, c, false)) HAS(&j, "CKR_W_SCHEDULE_UNKNOWN");
    done(&j);
    ask(&j, "");
    j.t.mode = CKR_MODE_RECOVER;
    CHECK(c && decide(&j, c, true) && !refused(&j));              /* copied bit for bit       */
    done(&j);
    ask(&j, "lr=0.05");
    if (c && decide(&j, c, true) && !refused(&j)) {               /* of base_lrs, too         */
        CHECK_OK(ckr_plan_write(j.p, "/w/lambda", NULL, &err), &err);
        out = open_path("/w/lambda");
        NEAR(out ? ckr_ckpt_state(out)->schedules->lanes[0].base : 0, 0.05, 0);
        ckr_ckpt_close(out);
    }
    done(&j);
    ask(&j, "torch:CosineAnnealingLR,T_max=80 @splice");          /* the saved LR is known */
    if (c && decide(&j, c, false) && !refused(&j))
        NEAR(value(j.f->after, 13, 0), 0.045454545454545456, 1e-12);
    done(&j);
    ckr_ckpt_close(c);
    d.curve_fn = lambda;
    c = open_as("/w/torch/lambda.pt", d);
    ask(&j, "torch:CosineAnnealingLR,T_max=80 @splice");
    if (c && decide(&j, c, false)) {
        is_the_live_run(j.f->before, "lambda", 33);
        HAS_NOT(&j, "CKR_W_SCHEDULE_UNKNOWN");
        NEAR(value(j.f->after, 13, 0), 0.045454545454545456, 1e-12);
        NEAR(value(j.f->after, 13, 1), 0.0090909090909090905, 1e-12);
    }
    done(&j);
    ckr_ckpt_close(c);
}

/* Settings of a curve that is not known: the remedy is the form in which its framework tells it. */
static void unknown_curves(void)
{
    static const struct { const char *path, *ask, *remedy; } x[] = {
        { "/w/torch/lambda.pt", "total_steps=100 @splice",
          "schedule = transformers:cosine,num_warmup_steps=W,num_training_steps=N" },
        { "/w/titan", "total_steps=100 @splice",
          "schedule = torchtitan:steps=N,warmup_steps=W,decay_type=linear,min_lr_factor=F" },
        { "/w/torch/plain.pt", "total_steps=100", "schedule = KIND:key=value" },
        { "/w/torch/cosine.pt", "foo=1", "keys: lr min_lr" },
        { "/w/torch/cosine.pt", "9.weight_decay=1", "by its number" },
    };
    size_t i;
    job j;
    memio_load(&mem, "tests/data/dcp/tt_single/step-10", "/w/titan");
    for (i = 0; i < sizeof x / sizeof *x; i++) {
        ckr_ckpt *c = open_path(x[i].path);
        ask(&j, x[i].ask);
        if (c) {
            const bool made = decide(&j, c, false);
            const ckr_note *n = made ? note(&j, "CKR_E_SCHEDULE_REBASE") : NULL;
            const char *remedy = n ? n->remedy : made ? "" : err.remedy;
            CHECK(!made || refused(&j));
            t_check(strstr(remedy, x[i].remedy) != NULL, __FILE__, __LINE__, "%s: remedy %s",
                    x[i].ask, remedy);
        }
        done(&j);
        ask(&j, "");
        if (c && i < 3 && decide(&j, c, false)) {
            const ckr_note *n = note(&j, i < 2 ? "CKR_W_SCHEDULE_UNKNOWN" : "CKR_N_NO_SCHEDULE");
            CHECK(n && strstr(n->remedy, x[i].remedy) != NULL);
        }
        done(&j);
        ckr_ckpt_close(c);
    }
}

/* ---- the coming run's own groups ---- */

static void groups_follow_parameters(void)
{
    static const struct { const char *groups; double lr[3]; const char *code; } x[] = {
        { "0,1;2,3", { 0.07959536998847742, 0.01608395989677849, 0 }, NULL },
        { "2,3;0,1", { 0.01608395989677849, 0.07959536998847742, 0 }, NULL },
        { "1;0;3,2", { 0.07959536998847742, 0.07959536998847742, 0.01608395989677849 }, NULL },
        { "0;2,3;1", { 0.07959536998847742, 0.01608395989677849, 0.07959536998847742 }, NULL },
        { "0,1", { 0.07959536998847742, 0, 0 }, "CKR_W_PARAM_LOST" },
        { "0,1,2,3", { 0, 0, 0 }, "CKR_E_MERGE_CONFLICT" },
        { "0,1;1,2,3", { 0, 0, 0 }, "CKR_E_MERGE_CONFLICT" }
    };
    ckr_ckpt *c = open_path("/w/torch/cosine.pt"), *out;
    size_t i;
    uint64_t k;
    like l;
    job j;
    for (i = 0; c && i < sizeof x / sizeof *x; i++) {
        ask(&j, "");
        like_groups(&l, &j, x[i].groups);
        out = x[i].lr[0] > 0 ? carried_out(&j, c, 0) : NULL;
        if (!j.p) decide(&j, c, false);
        if (x[i].code) HAS(&j, x[i].code);
        CHECK_INT(refused(&j), !(x[i].lr[0] > 0));
        for (k = 0; out && k < j.t.n_groups; k++) {
            NEAR(value(j.f->after, 13, k), x[i].lr[k], 0);
            CHECK_INT(ckr_ckpt_state(out)->groups[k].n_params, j.t.groups[k].n_params);
        }
        ckr_ckpt_close(out);
        done(&j);
    }
    ckr_ckpt_close(c);
}

/* A parameter that the checkpoint has not needs an optimizer that knows it: said, or refused. */
static void groups_added(void)
{
    ckr_ckpt *c = open_path("/w/torch/named.pt");
    ckr_node *hyper;
    like l;
    job j;
    ask(&j, "a.lr=0.01");
    like_groups(&l, &j, "0.weight,1.weight;0.bias,1.bias");
    l.g[0].name = "a";                                            /* renamed           */
    l.g[1].name = "b";
    if (c && decide(&j, c, false)) {
        has_both(&j, "CKR_SET", 0.1, 0.01);
        CHECK_STR(j.f->groups[1].name, "b");
        NEAR(value(j.f->after, 13, 1), 0.01608395989677849, 0);
    }
    done(&j);
    ask(&j, "");
    like_groups(&l, &j, "0.weight,1.weight;0.bias,1.bias;2.weight");
    if (c && decide(&j, c, false)) {                              /* without an LR     */
        HAS(&j, "CKR_E_GROUP_NEW");
        CHECK(refused(&j) && isnan(value(j.f->after, 13, 2)));
    }
    done(&j);
    ask(&j, "");
    like_groups(&l, &j, "0.weight,1.weight;0.bias,1.bias;2.weight");
    if (c) {
        hyper = ckr__make(&c->ctx, CKR_NODE_DICT);
        ckr__node_set(&c->ctx, hyper, "lr", ckr__make_float(&c->ctx, 0.5));
        l.g[2].hyper = hyper;
        decide(&j, c, true);                /* a plain file has no number for a new one */
        CHECK(refused(&j));
        HAS(&j, "CKR_W_PARAM_NEW");
    }
    done(&j);
    ask(&j, "");
    like_groups(&l, &j, "0.bias,1.bias;0.weight,1.weight");
    ckr_ckpt_close(c ? carried_out(&j, c, 0) : NULL);             /* names stay        */
    done(&j);
    ckr_ckpt_close(c);
}

/* Two groups of different LRs into one: what the new group asks for settles it. */
static void groups_merged(void)
{
    ckr_ckpt *c = open_path("/w/torch/named.pt");
    ckr_node *hyper;
    like l;
    job j;
    ask(&j, "");
    like_groups(&l, &j, "0.weight,1.weight,0.bias,1.bias");
    if (c && decide(&j, c, false)) {
        HAS(&j, "CKR_E_MERGE_CONFLICT");
        CHECK(refused(&j));
    }
    done(&j);
    ask(&j, "");
    like_groups(&l, &j, "0.weight,1.weight,0.bias,1.bias");
    if (c) {
        hyper = ckr__make(&c->ctx, CKR_NODE_DICT);
        ckr__node_set(&c->ctx, hyper, "lr", ckr__make_float(&c->ctx, 0.05));
        ckr__node_set(&c->ctx, hyper, "weight_decay", ckr__make_float(&c->ctx, 0.25));
        l.g[0].hyper = hyper;
        decide(&j, c, false);
        HAS(&j, "CKR_W_MERGED");
        HAS_NOT(&j, "CKR_E_MERGE_CONFLICT");
        CHECK(!refused(&j));
    }
    done(&j);
    ckr_ckpt_close(c);
}

/* ---- schedules and runs that are made here ---- */

/* The saved schedule left out and another one given: that one starts again, whatever was done. */
static void schedule_again(void)
{
    ckr_ckpt *c = made("torchtitan:steps=20,warmup_steps=4", 2, 10);
    job j;
    ask(&j, "");
    j.t.without = CKR_SCHEDULE;
    j.t.schedule = "torchtitan:steps=20,warmup_steps=4";
    j.t.max_lr_jump = 100;
    if (c && decide(&j, c, false)) {
        CHECK(!refused(&j));
        CHECK_INT(j.f->resume_at, 11);
        NEAR(value(j.f->after, 12, 0) / value(j.f->after, 11, 0), 2, 0);     /* warms up    */
        NEAR(value(j.f->after, 14, 0) / value(j.f->after, 11, 0), 4, 0);
    }
    done(&j);
    ckr_ckpt_close(c);
}

static void completeness(void)
{
    static const struct { const char *spec; int64_t step; const char *ask, *code; } x[] = {
        { "torchtitan:steps=10,warmup_steps=2", 12, "@target", "CKR_E_LR_NEGATIVE" },
        { "torchtitan:steps=40,total_steps=20,warmup_steps=2,decay_type=cosine", 5, "@target",
          "CKR_W_LR_REBOUND" },
        { "torch:OneCycleLR,max_lr=0.1,total_steps=10", 11, "@target", "CKR_E_LR_UNDEFINED" },
        { "torch:OneCycleLR,max_lr=0.1,total_steps=10", 10, "@target", "CKR_W_LR_REBOUND" },
        { "torch:CosineAnnealingLR,T_max=8", 8, "@target", "CKR_W_LR_REBOUND" },
        { "transformers:constant", 5, "", "CKR_W_LR_NEVER_DECAYS" },
        { "nanotron:learning_rate=0.1,lr_warmup_steps=2,lr_decay_steps=8,train_steps=40", 5, "",
          "CKR_W_LR_ENDS_EARLY" },
        { "nanotron:learning_rate=0.1,lr_warmup_steps=2,lr_decay_steps=8,train_steps=40", 12, "",
          "CKR_W_LR_PAST_END" },
        { "torchtitan:steps=12,warmup_steps=2", 12, "@target", "CKR_W_RUN_OVER" },
        { "transformers:linear,num_warmup_steps=0,num_training_steps=20", 5, "total_steps=200",
          "CKR_E_LR_JUMP" }
    };
    static const char *const never[] = { "torch:ExponentialLR,gamma=0.9",
                                         "torch:StepLR,step_size=4,gamma=0.5" };
    size_t i;
    job j;
    for (i = 0; i < sizeof x / sizeof *x; i++) {
        ckr_ckpt *c = made(x[i].spec, 2, x[i].step);
        ask(&j, x[i].ask);
        if (c && decide(&j, c, false) && x[i].code) HAS(&j, x[i].code);
        done(&j);
        ckr_ckpt_close(c);
    }
    for (i = 0; i < 2; i++) {                  /* these do, though they have no end   */
        ckr_ckpt *c = made(never[i], 2, 5);
        ask(&j, "");
        if (c && decide(&j, c, false)) HAS_NOT(&j, "CKR_W_LR_NEVER_DECAYS");
        done(&j);
        ckr_ckpt_close(c);
    }
}

/* A run that is longer than its schedule: where Nanotron's decay has a length of its own, the
   remedy makes it end with the run. A clock of ticks does not make the run longer. */
static void ends_early(void)
{
    ckr_ckpt *c = made("nanotron:learning_rate=0.1,lr_warmup_steps=4,lr_decay_steps=18,"
                       "min_decay_lr=0.01,train_steps=25", 2, 13);
    const ckr_note *n;
    job j;
    ask(&j, "total_steps=60");
    if (c && decide(&j, c, false)) {
        n = note(&j, "CKR_W_LR_ENDS_EARLY");
        CHECK(n && n->remedy && strstr(n->remedy, "ckr_target.sets decay_steps=56 ") != NULL);
        CHECK_INT(ckr_schedule_end(j.f->after), 22);
        CHECK_INT(ckr_schedule_run_end(j.f->after), 60);
        CHECK_INT(ckr_schedule_run_end(j.f->before), 25);
    }
    done(&j);
    ask(&j, "total_steps=60 decay_steps=56 @target");
    if (c && decide(&j, c, false)) {
        HAS_NOT(&j, "CKR_W_LR_ENDS_EARLY");
        CHECK_INT(ckr_schedule_end(j.f->after), 60);
    }
    done(&j);
    ckr_ckpt_close(c);
    c = made("transformers:linear,num_warmup_steps=0,num_training_steps=80", 1, 10);
    if (c) {
        c->state.schedules->clock = "tick";
        c->state.schedules->rate = 2;
        c->state.schedules->position = 20;
        CHECK_INT(ckr_schedule_run_end(c->state.schedules), 40);
    }
    ask(&j, "");
    if (c && decide(&j, c, false)) HAS_NOT(&j, "CKR_W_LR_ENDS_EARLY");
    done(&j);
    ckr_ckpt_close(c);
    CHECK_INT(ckr_schedule_run_end(NULL), -1);
}

/* A clock of samples turns with the batch and stands where it stood; the weight decay goes on. */
static void sample_clock(void)
{
    static const char spec[] = "megatron:lr=0.1,min_lr=0.01,lr_decay_samples=100000,"
                               "lr_warmup_samples=1000,lr_decay_style=linear,global_batch_size=100,"
                               "start_wd=0.1,end_wd=0.2,wd_incr_style=linear,wd_incr_steps=100000";
    ckr_ckpt *c = made(spec, 2, 400);
    double wd[2];
    job j;
    ask(&j, "batch_size=200");
    if (c && decide(&j, c, false)) {
        has_both(&j, "CKR_BATCH_SAMPLES", 100, 200);
        CHECK_STR(j.f->before->clock, "sample");
        CHECK_INT(j.f->resume_at, 401);
        NEAR(value(j.f->after, 401, 0), value(j.f->before, 401, 0), 1e-15);
        NEAR(value(j.f->after, 402, 0), 0.1 - 0.09 * 39200 / 99000, 1e-12);
        NEAR(value(j.f->before, 402, 0), 0.1 - 0.09 * 39100 / 99000, 1e-12);
        NEAR(c->state.schedules->rate, 100.0, 0);            /* a checkpoint is immutable */
        CHECK_OK(ckr_schedule_values(j.f->after, CKR_COLUMN_WEIGHT_DECAY, 402, 1, wd, NULL, &err),
                 &err);
        NEAR(wd[0], 0.1402, 1e-12);
    }
    done(&j);
    ask(&j, "weight_decay=0.5");
    if (c && decide(&j, c, false)) HAS(&j, "CKR_HYPER_CHANGED");
    done(&j);
    ask(&j, "weight_decay=0.5 @keep");         /* the policy is the LR's alone              */
    if (c && decide(&j, c, false)) {
        HAS(&j, "CKR_HYPER_CHANGED");
        HAS_NOT(&j, "CKR_LR_CHANGED");
    }
    done(&j);
    ask(&j, "weight_decay=0.5 total_steps=2000 @stretch");
    if (c && decide(&j, c, false)) HAS(&j, "CKR_HYPER_CHANGED");
    done(&j);
    ckr_ckpt_close(c);
}

/* ---- what nobody means ---- */

static void hostile_settings(void)
{
    static const char *const asks[] = {
        "lr=nan", "lr=inf", "lr=-1", "lr=", "lr=1e400", "lr=0x10", "lr=1,5", "=1", "foo=1",
        "0.foo=1", "9.lr=1", "x.lr=1", "-1.lr=1", "weight_decay=nan", "weight_decay=-1",
        "weight_decay=", "9.weight_decay=1", "batch_size=0", "batch_size=nan", "batch_size=1e301",
        "total_steps=-5", "total_steps=0", "min_lr=x", "0.total_steps=9", "decay_style=",
        "warmup_steps=3", "torch:", "foo:a=1", "torch:CosineAnnealingLR", "torch:StepLR,step_size=0"
    };
    ckr_ckpt *c = open_path("/w/torch/cosine.pt");
    const ckr_setting none = { NULL, NULL, NULL };
    size_t i;
    job j;
    for (i = 0; c && i < sizeof asks / sizeof *asks; i++) {
        ask(&j, asks[i]);
        if (decide(&j, c, i % 2 != 0)) HAS(&j, "CKR_E_SCHEDULE_REBASE");   /* not here      */
        else
            t_check(err.code == CKR_E_ARG && err.text[0] && !j.p, __FILE__, __LINE__, "%s: %d %s",
                    asks[i], (int)j.r, err.text);
        done(&j);
    }
    ask(&j, "");
    j.t.sets = &none;
    j.t.n_sets = 1;
    CHECK(c && !decide(&j, c, false) && err.code == CKR_E_ARG);
    ask(&j, "total_steps=1e300 @stretch");
    CHECK(c && decide(&j, c, false));
    done(&j);
    ckr_ckpt_close(c);
}

static void many_groups(void)
{
    ckr_ckpt *c = made("transformers:linear,num_warmup_steps=0,num_training_steps=20", 100000, 5);
    job j;
    ask(&j, "lr=0.2 99999.lr=0.3");
    if (c && decide(&j, c, false)) {
        CHECK_INT(j.f->n_groups, 100000);
        NEAR(value(j.f->after, 6, 0), 0.15, 1e-12);
        NEAR(value(j.f->after, 6, 99999), 0.225, 1e-12);
    }
    done(&j);
    ckr_ckpt_close(c);
}

static void out_of_memory(void)
{
    static const char *const files[] = { "/w/torch/cosine.pt", "/w/pp2" };
    static const char *const asks[] = { "lr=0.05 1.lr=0.01 weight_decay=0.2 @target",
                                        "total_steps=50 batch_size=8 @splice" };
    unsigned long k;
    int i;
    for (i = 0; i < 2; i++) {
        ckr_ckpt *c = open_path(files[i]);
        const unsigned long before = fault.calls[FAULT_ALLOC];
        const long blocks = fault.blocks;
        job j;
        j.r = CKR_E_NOMEM;
        for (k = 1; c && k < 500 && j.r != CKR_OK; k++) {
            ask(&j, asks[i]);
            fault.kind = FAULT_ALLOC;
            fault.at = fault.calls[FAULT_ALLOC] + k;
            fault.for_good = true;
            decide(&j, c, false);
            fault.kind = -1;
            if (!j.f) CHECK(j.r == CKR_E_NOMEM && err.code == CKR_E_NOMEM && !j.p);
            done(&j);
            CHECK_INT(fault.blocks, blocks);
        }
        t_check(j.r == CKR_OK && k > 2 && fault.calls[FAULT_ALLOC] > before, __FILE__, __LINE__,
                "%lu allocations", k);
        ckr_ckpt_close(c);
    }
}

/* What a resume stumbles over when a part is missing or stands elsewhere. */
static void missing_parts(void)
{
    static const char at[] = "/w/pp2/13/lr_scheduler";
    ckr_open_desc d = CKR_ZERO;
    ckr_ckpt *c = open_path("/w/torch/noinit.pt"), *out;       /* the scheduler added it */
    uint64_t i;
    job j;
    ask(&j, "lr=0.05");
    out = c ? carried_out(&j, c, 0) : NULL;
    for (i = 0; out && i < 2; i++)
        CHECK(ckr_node_get(ckr_ckpt_state(out)->groups[i].hyper, "initial_lr") != NULL);
    ckr_ckpt_close(out);
    done(&j);
    ckr_ckpt_close(c);
    d.schedule = "torch:CosineAnnealingLR,T_max=40,eta_min=0.001";
    c = open_as("/w/torch/bare.pt", d);                /* the LR must not start again    */
    ask(&j, "");
    if (c && decide(&j, c, false))
        CHECK(refused(&j) || note(&j, "CKR_W_LR_DRIFT") ||
              near_to(value(j.f->after, j.f->resume_at, 0), 0.07959536998847742, 1e-12));
    done(&j);
    ckr_ckpt_close(c);
    c = open_path("/w/torch/plain.pt");                /* groups, and no schedule        */
    ask(&j, "");
    if (c && decide(&j, c, false)) HAS(&j, "CKR_N_NO_SCHEDULE");
    done(&j);
    ckr_ckpt_close(c);
    c = made("nanotron:learning_rate=0.1,lr_warmup_steps=4,lr_decay_steps=30,train_steps=40",
             2, 13);
    ask(&j, "warmup_steps=20 @target");                /* the warm-up again              */
    if (c && decide(&j, c, false)) HAS(&j, "CKR_LR_CHANGED");
    done(&j);
    ckr_ckpt_close(c);
    memio_remove(&mem, at);
    c = open_path("/w/pp2");
    ask(&j, "");
    out = c ? carried_out(&j, c, 0) : NULL;
    HAS(&j, "CKR_W_NANOTRON_NO_SCHEDULER");
    HAS(&j, "CKR_FIX_NANOTRON_LR");
    ckr_ckpt_close(out);
    done(&j);
    ckr_ckpt_close(c);
}

/* A tensor where a number is expected: set, and never read through a file that is not open. Last,
   because what goes wrong here ends the program. */
static void tensor_values(void)
{
    static const char *const asks[] = { "", "weight_decay=0.3", "total_steps=80 @target",
                                        "lr=0.05" };
    ckr_ckpt *c = open_path("/w/torch/tensor.pt");
    double lr = 0;
    size_t i;
    job j;
    for (i = 0; c && i < sizeof asks / sizeof *asks; i++) {
        ask(&j, asks[i]);
        CHECK(decide(&j, c, true) && !refused(&j));
        if (j.f && i > 1)
            CHECK(ckr_node_f64(ckr_node_get(j.f->groups[0].hyper, "lr"), &lr) &&
                  near_to(lr, value(j.f->after, 13, 0), 1e-15));
        done(&j);
    }
    ckr_ckpt_close(c);
}

/* What is not known is null, and cannot be changed; told, it is used. */
static void never_guessed(const char *path, const char *told, const char *remedy)
{
    ckr_open_desc d = CKR_ZERO;
    ckr_ckpt *c = open_path(path);
    const ckr_note *n;
    job j;
    if (!c) return;
    ask(&j, "");
    if (CHECK(decide(&j, c, true))) {
        n = note(&j, "CKR_W_SCHEDULE_UNKNOWN");
        CHECK(n && n->severity == CKR_CHANGED && strstr(n->remedy, remedy) != NULL);
        CHECK(!refused(&j) && (!j.f->after || j.f->after->opaque));
    }
    done(&j);
    ask(&j, "lr=0.05");
    CHECK(!decide(&j, c, true) || refused(&j));
    done(&j);
    ckr_ckpt_close(c);
    if (!told) return;
    d.schedule = told;
    c = open_as(path, d);
    ask(&j, "lr=0.05");
    if (c && CHECK(decide(&j, c, true)) && CHECK(!refused(&j) && !j.f->after->opaque))
        NEAR(value(j.f->after, j.f->resume_at, 0), value(j.f->before, j.f->resume_at, 0) * 5,
             1e-12);
    done(&j);
    ckr_ckpt_close(c);
}

static void unknown_clocks(void)
{
    never_guessed("/w/torch/pair.pt", NULL, "ckr_open_desc.schedule");
    never_guessed("/w/torch/own.pt", NULL, "ckr_open_desc.schedule");
    never_guessed("/w/torch/bare.pt", NULL, "ckr_open_desc.schedule");
    never_guessed("/w/torch/per_epoch.pt",
                  "torch:StepLR,step_size=2,gamma=0.5,updates_per_step=10",
                  "schedule = torch:StepLR,step_size=2,gamma=0.5,updates_per_step=N");
}

/* Told for a file without a scheduler's state: where the coming run's begins is not known. */
static void no_state(void)
{
    static const char *const asks[] = { "", "lr=0.05", "total_steps=80 @splice" };
    ckr_open_desc d = CKR_ZERO;
    ckr_ckpt *c;
    size_t i;
    job j;
    d.schedule = "torch:CosineAnnealingLR,T_max=40,eta_min=0.001";
    c = open_as("/w/torch/bare.pt", d);
    for (i = 0; c && i < sizeof asks / sizeof *asks; i++) {
        ask(&j, asks[i]);
        if (CHECK(decide(&j, c, true))) {
            CHECK(refused(&j) == (i > 0));
            if (i == 0) CHECK(j.f->after && j.f->after->opaque);
            HAS(&j, i ? "CKR_E_SCHEDULE_HOLD" : "CKR_W_SCHEDULE_UNKNOWN");
        }
        done(&j);
    }
    ckr_ckpt_close(c);
}

/* A function of the LR that the optimizer was built with, within a warmup that is the same with
   any: nobody knows the rest, unless it is told. */
static void optimizers_lr(void)
{
    static const char *const told[] = {
        "transformers:polynomial,num_warmup_steps=20,num_training_steps=40,lr_end=0.001",
        "transformers:polynomial,num_warmup_steps=20,num_training_steps=40,lr_end=0.001,"
        "lr_init=0.1",
        "transformers:cosine_with_min_lr,num_warmup_steps=20,num_training_steps=40,min_lr=0.001",
        "transformers:cosine_with_min_lr,num_warmup_steps=20,num_training_steps=40,"
        "min_lr_rate=0.01"
    };
    size_t i;
    job j;
    for (i = 0; i < sizeof told / sizeof *told; i++) {
        ckr_open_desc d = CKR_ZERO;
        ckr_ckpt *c;
        d.schedule = told[i];
        c = open_as("/w/torch/warm.pt", d);
        ask(&j, "");
        if (c && CHECK(decide(&j, c, true))) {
            const ckr_note *n = note(&j, "CKR_W_SCHEDULE_UNKNOWN");
            CHECK(!refused(&j) && (n != NULL) == (i % 2 == 0));
            CHECK(n == NULL || strstr(n->reason, "lr_init=LR") != NULL);
            CHECK_INT(j.f->after->opaque, i % 2 == 0);
        }
        done(&j);
        ckr_ckpt_close(c);
    }
}

/* Another schedule whose curve takes a part from the LR that the optimizer is built with: that LR,
   or the part itself, is a setting; what the new one lacks is set back. */
static void new_functions(void)
{
    static const struct { const char *told, *ask, *key, *value; } x[] = {
        { "transformers:linear,num_warmup_steps=20,num_training_steps=60",
          "transformers:polynomial,num_warmup_steps=20,num_training_steps=80,lr_end=0.001 lr=0.2",
          "lr", "0.2" },
        { "transformers:linear,num_warmup_steps=20,num_training_steps=60",
          "transformers:cosine_with_min_lr,num_warmup_steps=20,num_training_steps=80,"
          "min_lr=0.002 lr=0.2", "min_lr_rate", "0.01" },
        { "transformers:cosine,num_warmup_steps=20,num_training_steps=60,num_cycles=1.5",
          "transformers:cosine,num_warmup_steps=20,num_training_steps=80", "num_cycles", "0.5" },
        { "transformers:polynomial,num_warmup_steps=20,num_training_steps=60,lr_end=0.001,"
          "lr_init=0.1",
          "transformers:linear,num_warmup_steps=20,num_training_steps=80", "lr_end", "absent" },
    };
    size_t i;
    job j;
    for (i = 0; i < sizeof x / sizeof *x; i++) {
        ckr_open_desc d = CKR_ZERO;
        ckr_ckpt *c;
        d.schedule = x[i].told;
        c = open_as("/w/torch/warm.pt", d);
        ask(&j, x[i].ask);
        if (c && CHECK(decide(&j, c, true)) && CHECK(!refused(&j)))
            CHECK_STR(setting_value(j.f, x[i].key), x[i].value);
        done(&j);
        ckr_ckpt_close(c);
    }
}

/* torch finds its OneCycleLR's bounds in the groups, and the first update's momentum, too. */
static void momenta(void)
{
    static const struct { const char *path, *ask; } x[] = {
        { "/w/torch/onecycle.pt", "total_steps=90 @target ^10" },
        { "/w/torch/step.pt", "torch:OneCycleLR,max_lr=0.1,total_steps=60 ^1000" },
        { "/w/torch/step.pt", "torch:CyclicLR,base_lr=0.001,max_lr=0.1,step_size_up=20 ^1000" },
    };
    size_t i;
    job j;
    for (i = 0; i < sizeof x / sizeof *x; i++) {
        ckr_ckpt *c = open_path(x[i].path);
        const ckr_node *h, *m;
        double v, want[2] = { 0, 0 };
        ask(&j, x[i].ask);
        if (c && CHECK(decide(&j, c, true)) && CHECK(!refused(&j))) {
            h = j.f->groups[1].hyper;
            m = ckr_node_get(h, "betas") ? ckr_node_at(ckr_node_get(h, "betas"), 0)
                                         : ckr_node_get(h, "momentum");
            CHECK_OK(ckr_schedule_values(j.f->after, CKR_COLUMN_MOMENTUM, 13, 1, want, NULL, &err),
                     &err);
            if (CHECK(ckr_node_f64(m, &v))) NEAR(v, want[1], 1e-15);
            CHECK(i == 2 || ckr_node_get(h, "max_momentum") != NULL);
        }
        done(&j);
        ckr_ckpt_close(c);
    }
}

/* A scheduler that is stepped behind each epoch of 10 updates, of which 3 are done: nobody knows
   how long an epoch is; told, the LR halves behind every second one. */
static void per_epoch(void)
{
    static const int at[] = { 1, 20, 21, 30, 31, 40, 41, 60, 61 };
    static const double lr[] = { 0.01,  0.01,   0.005,  0.005,  0.005,
                                 0.005, 0.0025, 0.0025, 0.00125 };
    ckr_open_desc d = CKR_ZERO;
    ckr_ckpt *c = open_path("/w/torch/per_epoch.pt");
    const ckr_schedule *s = c ? ckr_ckpt_state(c)->schedules : NULL;
    size_t i;
    if (s) CHECK(s->opaque && s->unclocked);
    if (s) CHECK(value(s, 31, 0) != value(s, 31, 0));
    ckr_ckpt_close(c);
    d.schedule = "torch:StepLR,step_size=2,gamma=0.5,updates_per_step=10";
    c = open_as("/w/torch/per_epoch.pt", d);
    s = c ? ckr_ckpt_state(c)->schedules : NULL;
    for (i = 0; s && i < sizeof at / sizeof *at; i++) NEAR(value(s, at[i], 0), lr[i], 1e-15);
    ckr_ckpt_close(c);
}

/* The same after 34 updates: within an epoch. */
static void within_epoch(void)
{
    static const unsigned char steps[][4] = { { 0, 0, 0xf0, 0x41 }, { 0, 0, 8, 0x42 } };
    ckr_open_desc d = CKR_ZERO;
    ckr_ckpt *c;
    memio_file *f = memio_find(&mem, "/w/torch/per_epoch.pt");
    size_t i;
    for (i = 0; CHECK(f) && i + 4 <= f->size; i++)
        if (!memcmp(f->data + i, steps[0], 4)) memcpy(f->data + i, steps[1], 4);
    never_guessed("/w/torch/per_epoch.pt", NULL, "updates_per_step=N");
    d.schedule = "torch:StepLR,step_size=2,gamma=0.5,updates_per_step=10";
    c = open_as("/w/torch/per_epoch.pt", d);
    for (i = 35; c && i < 41; i++)
        NEAR(value(ckr_ckpt_state(c)->schedules, (int64_t)i, 0), 0.005, 1e-15);
    if (c) NEAR(value(ckr_ckpt_state(c)->schedules, 41, 0), 0.0025, 1e-15);
    if (c) CHECK_INT(ckr_ckpt_state(c)->progress.step, 34);
    ckr_ckpt_close(c);
}

/* ---- decisions upon decisions: a trainer that puts back what was decided ---- */

enum { AGAIN_ALL = 500 };

/* A run by hand that stands after `updates`, with the schedule of `text` or what was decided. */
static ckr_ckpt *by_hand(const char *text, const ckr_schedule *decided, int64_t updates)
{
    static const char *const params[2][1] = { { "w" }, { "b" } };
    static const ckr_hyper hyper[2] = { { "lr", 2e-3 }, { "lr", 5e-4 } };
    ckr_ckpt *c = NULL;
    CHECK_OK(ckr_ckpt_create(NULL, &c, &err), &err);
    for (int i = 0; i < 2; i++)
        CHECK_OK(ckr_ckpt_put_group(c, params[i][0], params[i], 1, &hyper[i], 1, &err), &err);
    CHECK_OK(text ? ckr_ckpt_put_schedule(c, text, updates, &err)
                  : ckr_ckpt_put_decided(c, decided, updates, &err), &err);
    const bool own_lr = text && (strchr("md", *text) || strstr(text, "max_lr"));
    t_check(!ckr_ckpt_state(c)->n_notes || own_lr, __FILE__, __LINE__, "%s: %s",
            text ? text : "decided",
            ckr_ckpt_state(c)->n_notes ? ckr_ckpt_state(c)->notes[0].code : "");
    return c;
}

static void all_values(const ckr_schedule *s, double v[AGAIN_ALL][2])
{
    CHECK_OK(ckr_schedule_values(s, CKR_COLUMN_LR, 1, AGAIN_ALL, v[0], NULL, &err), &err);
}

static bool all_the_same(double a[AGAIN_ALL][2], double b[AGAIN_ALL][2], int64_t from)
{
    return memcmp(a[from], b[from], sizeof a[0] * (size_t)(AGAIN_ALL - from)) == 0;
}

/* Decides at `at`, for `total` updates; the result goes on from `v` and comes into it. False: this
   decision is refused, and the run goes on as it was. */
static bool decide_again(ckr_ckpt **run, const char *what, int64_t at, const char *total,
                         ckr_lr_policy policy, double v[AGAIN_ALL][2])
{
    static double now[AGAIN_ALL][2], back[AGAIN_ALL][2];
    const ckr_setting set = { NULL, "total_steps", total };
    ckr_target to = CKR_ZERO;
    ckr_plan *plan = NULL;
    size_t size = 0;
    bool ok;
    to.sets = &set;
    to.n_sets = policy != CKR_LR_KEEP;
    to.lr_policy = policy;
    to.rewarm_steps = 60;
    ckr_result r = ckr_plan_decide(*run, &to, &plan, &err);
    ok = r == CKR_OK && ckr_plan_info(plan)->verdict != CKR_VERDICT_REFUSED;
    t_check(ok || r == CKR_OK || r == CKR_E_REFUSED, __FILE__, __LINE__, "%s: %s", what, err.text);
    if (ok) {
        const ckr_schedule *after = ckr_plan_info(plan)->after;
        all_values(after, now);
        for (int i = 0; i < 2 && policy != CKR_LR_TARGET && policy != CKR_LR_REWARM; i++)
            t_check(fabs(now[at][i] - v[at][i]) <= 1e-12 * fabs(v[at][i]), __FILE__, __LINE__,
                    "%s: policy %d at %lld: %.17g, not %.17g", what, (int)policy, (long long)at,
                    now[at][i], v[at][i]);
        memcpy(v[at], now[at], sizeof v[0] * (size_t)(AGAIN_ALL - at));
        int64_t end = ckr_schedule_end(after);
        t_check(policy == CKR_LR_KEEP || end < 0 || llabs(end - atoll(total)) < 2, __FILE__,
                __LINE__, "%s: policy %d at %lld ends at %lld, not %s", what, (int)policy,
                (long long)at, (long long)end, total);
        double top = 0;
        if (end > AGAIN_ALL) end = AGAIN_ALL;
        for (int64_t u = at; u < end; u++) top = now[u][0] > top ? now[u][0] : top;
        for (int64_t u = at + 1; u < end && !strstr(what, "StepLR"); u++)
            if (!t_check(fabs(now[u][0] - now[u - 1][0]) < 0.05 * top, __FILE__, __LINE__,
                         "%s: policy %d at %lld jumps at %lld: %.9g to %.9g", what, (int)policy,
                         (long long)at, (long long)u + 1, now[u - 1][0], now[u][0]))
                break;
        CHECK_OK(ckr_schedule_text(after, NULL, 0, &size, NULL, &err), &err);
        char *text = (char *)malloc(size);
        CHECK_OK(ckr_schedule_text(after, text, size, &size, NULL, &err), &err);
        for (int64_t later = at; later < at + 20; later += 13) {
            ckr_ckpt *next = by_hand(later > at ? text : NULL, after, later);
            all_values(ckr_ckpt_schedule(next, 0), back);
            t_check(all_the_same(back, now, later), __FILE__, __LINE__,
                    "%s: policy %d at %lld, put back at %lld: %.17g, not %.17g", what, (int)policy,
                    (long long)at, (long long)later, back[later][0], now[later][0]);
            ckr_ckpt_close(next);
        }
        ckr_ckpt *next = by_hand(NULL, after, at);
        ckr_ckpt_close(*run);          /* what was put is its own                              */
        *run = next;
        free(text);
    }
    ckr_plan_free(plan);
    return ok;
}

/* Three decisions of any policy in a row, each upon the one before. */
static void decided_thrice(void)
{
    static const char *const specs[] = {
        "transformers:cosine,num_warmup_steps=10,num_training_steps=200",
        "transformers:linear,num_warmup_steps=0,num_training_steps=200",
        "transformers:polynomial,num_warmup_steps=5,num_training_steps=200,lr_end=1e-5",
        "nanotron:learning_rate=0.002,train_steps=200,lr_warmup_steps=10,min_decay_lr=1e-4",
        "torchtitan:steps=200,warmup_steps=10,min_lr_factor=0.1",
        "megatron:max_lr=0.002,min_lr=0.0001,lr_warmup_steps=10,lr_decay_steps=200,"
        "lr_decay_style=cosine",
        "deepspeed:WarmupDecayLR,total_num_steps=200,warmup_num_steps=10",
        "torch:CosineAnnealingLR,T_max=200,eta_min=1e-5", "torch:StepLR,step_size=30,gamma=0.7",
        "torch:OneCycleLR,max_lr=0.01,total_steps=600",
        "torch:SequentialLR,schedulers=(LinearLR,total_iters=10;CosineAnnealingLR,T_max=190),"
        "milestones=[10]",
    };
    static double v[AGAIN_ALL][2];
    static const ckr_lr_policy policies[] = { CKR_LR_KEEP, CKR_LR_TARGET, CKR_LR_SPLICE,
                                              CKR_LR_STRETCH, CKR_LR_REWARM };
    int decided = 0;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        for (int k = 0; k < 125; k += i ? 3 : 1) {   /* 3 is prime to 5: all policies meet   */
            ckr_ckpt *run = by_hand(specs[i], NULL, 100);
            all_values(ckr_ckpt_schedule(run, 0), v);
            decided += decide_again(&run, specs[i], 100, "400", policies[k % 5], v);
            ckr_ckpt *at = by_hand(NULL, ckr_ckpt_schedule(run, 0), 105);
            decided += decide_again(&at, specs[i], 105, "300", policies[k / 5 % 5], v);
            ckr_ckpt_close(run);
            run = by_hand(NULL, ckr_ckpt_schedule(at, 0), 140);
            decided += decide_again(&run, specs[i], 140, "450", policies[k / 25], v);
            ckr_ckpt_close(run);
            ckr_ckpt_close(at);
        }
    CHECK(decided > 1000);
}

static double cosine_of(double total, double u)
{
    return 0.5 * (1 + cos(3.141592653589793 * u / total));
}

/* Spliced at 100 and at 140, beside what that comes to. */
static void spliced_twice(void)
{
    static double v[AGAIN_ALL][2];
    ckr_ckpt *run = by_hand("transformers:cosine,num_warmup_steps=0,num_training_steps=200", NULL,
                            100);
    all_values(ckr_ckpt_schedule(run, 0), v);
    CHECK(decide_again(&run, "twice", 100, "400", CKR_LR_SPLICE, v));
    ckr_ckpt *then = by_hand(NULL, ckr_ckpt_schedule(run, 0), 140);
    CHECK(decide_again(&then, "twice", 140, "300", CKR_LR_SPLICE, v));
    const double one = cosine_of(200, 100) / cosine_of(400, 100),
                 two = one * cosine_of(400, 140) / cosine_of(300, 140);
    for (int u = 0; u < 300; u++) {
        const double want = 2e-3 * (u < 100   ? cosine_of(200, u)
                                    : u < 140 ? one * cosine_of(400, u)
                                              : two * cosine_of(300, u));
        if (!t_check(fabs(v[u][0] - want) <= 1e-12 * 2e-3, __FILE__, __LINE__,
                     "update %d: %.17g, not %.17g", u + 1, v[u][0], want))
            break;
    }
    ckr_ckpt_close(run);
    ckr_ckpt_close(then);
}

/* The text of a decided curve as another run's schedule: it stands where that run does. */
static void decided_as_target(void)
{
    static double v[AGAIN_ALL][2], now[AGAIN_ALL][2];
    char text[8192];
    size_t size = 0;
    ckr_target to = CKR_ZERO;
    ckr_plan *plan = NULL;
    ckr_ckpt *run = by_hand("transformers:cosine,num_warmup_steps=10,num_training_steps=200", NULL,
                            100);
    all_values(ckr_ckpt_schedule(run, 0), v);
    CHECK(decide_again(&run, "target", 100, "400", CKR_LR_STRETCH, v));
    CHECK_OK(ckr_schedule_text(ckr_ckpt_schedule(run, 0), text, sizeof text, &size, NULL, &err),
             &err);
    CHECK(size > 1 && size <= sizeof text && strlen(text) + 1 == size);
    ckr_ckpt *other = by_hand("transformers:linear,num_warmup_steps=0,num_training_steps=200", NULL,
                              150);
    to.schedule = text;
    to.lr_policy = CKR_LR_TARGET;
    if (CHECK_OK(ckr_plan_decide(other, &to, &plan, &err), &err)) {
        const ckr_schedule *after = ckr_plan_info(plan)->after;
        all_values(after, now);
        CHECK(all_the_same(now, v, 150) && ckr_schedule_info(after).position == 150);
    }
    ckr_plan_free(plan);
    to.without = CKR_SCHEDULE;             /* the saved one is left out: it starts again       */
    if (CHECK_OK(ckr_plan_decide(other, &to, &plan, &err), &err)) {
        all_values(ckr_plan_info(plan)->after, now);
        all_values(ckr_ckpt_schedule(run, 0), v);
        CHECK(now[150][0] == v[0][0] && now[250][0] == v[100][0]);
    }
    ckr_plan_free(plan);
    text[size / 2] = 0;                    /* half of it is none                              */
    CHECK(ckr_plan_decide(other, &to, &plan, &err) != CKR_OK && err.text[0]);
    CHECK(ckr_ckpt_put_schedule(other, text, 1, &err) != CKR_OK);
    CHECK(ckr_ckpt_put_schedule(other, "{}", 1, &err) != CKR_OK);
    ckr_ckpt_close(run);
    ckr_ckpt_close(other);
}

int main(int argc, char **argv)
{
    t_begin(argc, argv);
    load();
    RUN(nanotron_policies);
    RUN(nanotron_stages);
    RUN(nanotron_padding);
    RUN(nanotron_override);
    RUN(nanotron_refused);
    RUN(torch_policies);
    RUN(values_of_groups);
    RUN(weight_decays);
    RUN(own_curve);
    RUN(unknown_curves);
    RUN(groups_follow_parameters);
    RUN(groups_added);
    RUN(groups_merged);
    RUN(schedule_again);
    RUN(completeness);
    RUN(ends_early);
    RUN(sample_clock);
    RUN(hostile_settings);
    RUN_LONG(many_groups);
    RUN(out_of_memory);
    RUN(missing_parts);
    RUN(tensor_values);
    RUN(unknown_clocks);
    RUN(no_state);
    RUN(optimizers_lr);
    RUN(new_functions);
    RUN(momenta);
    RUN(per_epoch);
    RUN(within_epoch);
    RUN(decided_thrice);
    RUN(spliced_twice);
    RUN(decided_as_target);
    memio_free(&mem);
    return t_end();
}
