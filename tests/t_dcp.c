/* torch.distributed.checkpoint and torchtitan: real checkpoints of tests/data/dcp, read, written
   for other numbers of ranks and read again; the learning rates and settings of a resume; metadata
   that lies, by a small writer of our own. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "t.h"
#include "option.h"
#include "bad.h"
#include "ckpt.h"
#include "tree.h"
#include "settings.h"
#include <time.h>

#define DATA "tests/data/dcp"

/* What scripts save, each beside one torch file of the same. */
static void load_scripts(void)
{
    static const char *const cases[] = { "flat", "numbers", "two", "ranks" };
    size_t k;
    for (k = 0; k < sizeof cases / sizeof *cases; k++) {
        char from[256], to[64];
        snprintf(from, sizeof from, DATA "/script_%s/ckpt", cases[k]);
        snprintf(to, sizeof to, "script/%s", cases[k]);
        memio_add(&disk, to, true);
        memio_load(&disk, from, to);
        if (!strcmp(cases[k], "two")) continue;
        snprintf(to, sizeof to, "unplanned/%s", cases[k]);
        memio_add(&disk, to, true);
        memio_load(&disk, from, to);
        snprintf(from, sizeof from, DATA "/script_%s/whole.pt", cases[k]);
        snprintf(to, sizeof to, "whole/%s.pt", cases[k]);
        memio_load_file(&disk, from, to);
    }
    memio_load_file(&disk, DATA "/script_flat/unplanned", "unplanned/flat/.metadata");
    memio_load_file(&disk, DATA "/script_numbers/unplanned", "unplanned/numbers/.metadata");
    memio_load_file(&disk, DATA "/script_olmo/whole.pt", "whole/olmo.pt");
    memio_add(&disk, "script/local", true);
    memio_load(&disk, DATA "/script_local/ckpt", "script/local");
    memio_add(&disk, "script/tune", true);
    memio_add(&disk, "script/tune/epoch_0", true);
    memio_add(&disk, "script/tune/recipe_state", true);
    memio_load(&disk, DATA "/script_tune/ckpt/epoch_0", "script/tune/epoch_0");
    memio_load(&disk, DATA "/script_tune/ckpt/recipe_state", "script/tune/recipe_state");
    memio_add(&disk, "olmo", true);
    memio_add(&disk, "olmo/step4", true);
    memio_add(&disk, "olmo/step4/train", true);
    memio_add(&disk, "olmo/step4/model_and_optim", true);
    memio_load_file(&disk, DATA "/script_olmo/step4/.metadata.json", "olmo/step4/.metadata.json");
    memio_load(&disk, DATA "/script_olmo/step4/train", "olmo/step4/train");
    memio_load(&disk, DATA "/script_olmo/step4/model_and_optim", "olmo/step4/model_and_optim");
}

static void load_cases(void)
{
    static const char *const cases[] = { "dcp_w_ranklocal", "dcp_w_threads3", "dcp_w_stformat",
                                         "dcp_w_zstd", "streams_w2", "streams_one",
                                         "dcp_w_hf_consolidated" };
    size_t k;
    disk_begin();
    for (k = 0; k < sizeof cases / sizeof *cases; k++) {
        char from[256], to[64];
        snprintf(from, sizeof from, "%s/%s/ckpt", DATA, cases[k]);
        snprintf(to, sizeof to, "in/%s", cases[k]);
        memio_add(&disk, to, true);
        if (k + 1 == sizeof cases / sizeof *cases) {
            memio_add(&disk, "in/dcp_w_hf_consolidated/sharded", true);
        }
        memio_load(&disk, from, to);
    }
    load_scripts();
    memio_add(&disk, "run", true);
    memio_add(&disk, "run/step-10", true);
    memio_load(&disk, DATA "/tt_single/step-10", "run/step-10");
}

static ckr_result open_told(const char *path, const char *schedule, ckr_ckpt **c, ckr_error *e)
{
    ckr_open_desc d = CKR_ZERO;
    d.env = &env;
    d.schedule = schedule;
    return ckr_ckpt_open(path, &d, c, e);
}

static ckr_plan *plan_of(const ckr_ckpt *c, const char *dialect, uint32_t ranks)
{
    ckr_target t = CKR_ZERO;
    ckr_plan *p = NULL;
    ckr_error e;
    t.mode = CKR_MODE_CONTINUE;
    t.topology.zero = -1;
    t.topology.dp = ranks;
    t.dialect = dialect;
    CHECK_OK(ckr_plan_create(c, &t, 0, &p, &e), &e);
    return p;
}

static bool write_as(const char *from, const char *dialect, uint32_t ranks, const char *to)
{
    ckr_target t = target_of(0, 0, ranks, -1, NULL);
    t.dialect = dialect;
    return written(open_ok(from), from, to, &t);
}

static void same_digest(const char *a, const char *b)
{
    uint8_t x[16], y[16];
    digest_of(a, x);
    digest_of(b, y);
    t_check(!memcmp(x, y, 16), __FILE__, __LINE__, "digests of %s and %s differ", a, b);
}

/* Every writer's variant holds the same tensors, here as the live process had them. */
static void variants(void)
{
    static const char *const same[] = { "in/dcp_w_ranklocal", "in/dcp_w_stformat" };
    ckr_ckpt *c = open_ok("in/dcp_w_threads3"), *truth = NULL;
    const ckr_state *s;
    ckr_error e;
    ckr_diff *d = NULL;
    size_t i;
    if (!c) return;
    s = ckr_ckpt_state(c);
    CHECK_STR(s->dialect, "dcp");
    CHECK_INT(s->n_tensors, 9);
    CHECK_INT(s->n_leftovers, 4);
    if (CHECK_OK(ckr_ckpt_open(DATA "/dcp_w_threads3/truth.safetensors", NULL, &truth, &e), &e) &&
        CHECK_OK(ckr_ckpt_diff(c, truth, &d, &e), &e)) {
        CHECK_INT(d->n_tensors, 0);
        ckr_diff_free(d);
    }
    CHECK(is_sound("in/dcp_w_threads3"));
    for (i = 0; i < 2; i++) {
        ckr_ckpt *o = open_ok(same[i]);
        if (o) CHECK_INT(ckr_ckpt_state(o)->n_tensors, 9);
        if (o) CHECK(is_sound(same[i]));
        ckr_ckpt_close(o);
    }
    ckr_ckpt_close(truth);
    ckr_ckpt_close(c);
}

/* Any number of ranks, there and back; equal input gives equal files. */
static void ranks(void)
{
    const memio_file *a, *b;
    if (write_as("in/dcp_w_threads3", NULL, 3, "w/r3")) same_digest("in/dcp_w_threads3", "w/r3");
    if (write_as("w/r3", NULL, 1, "w/r1")) same_digest("in/dcp_w_threads3", "w/r1");
    CHECK(memio_find(&disk, "w/r3/__2_0.distcp") != NULL);
    CHECK(memio_find(&disk, "w/r1/__1_0.distcp") == NULL);
    CHECK(is_sound("w/r3"));
    if (!write_as("in/dcp_w_threads3", NULL, 3, "w/r3b")) return;
    a = memio_find(&disk, "w/r3/.metadata");
    b = memio_find(&disk, "w/r3b/.metadata");
    CHECK(a && b && a->size == b->size && !memcmp(a->data, b->data, a->size));
}

/* Nested as the planner had it, with objects; and flat again. */
static void files(void)
{
    ckr_ckpt *c = NULL;
    ckr_error e;
    ckr_open_desc d = CKR_ZERO;
    int64_t step = 0;
    double lr = 0;
    d.env = &env;
    if (!write_as("in/dcp_w_threads3", "torch", 1, "w/one.pt") ||
        !CHECK_OK(ckr_tree_open("w/one.pt", &d, &c, &e), &e))
        return;
    CHECK(ckr_node_i64(ckr_node_find(ckr_ckpt_root(c), "/train_state/step"), &step));
    CHECK_INT(step, 5);
    CHECK(ckr_node_f64(ckr_node_find(ckr_ckpt_root(c), "/optim/param_groups.w.even.lr"), &lr));
    CHECK(lr > 0.0009 && lr < 0.0011);
    ckr_ckpt_close(c);
    if (write_as("w/one.pt", "dcp", 2, "w/back")) same_digest("in/dcp_w_threads3", "w/back");
    if (!write_as("in/dcp_w_threads3", "safetensors", 1, "w/one.safetensors")) return;
    if (write_as("w/one.safetensors", "dcp", 2, "w/back2"))
        same_digest("in/dcp_w_threads3", "w/back2");
}

/* torch loses a 0-d tensor when it joins its own shards. */
static void consolidated(void)
{
    ckr_ckpt *c = open_ok("in/dcp_w_hf_consolidated");
    ckr_report *r = NULL;
    ckr_error e;
    const ckr_note *n;
    if (!c || !CHECK_OK(ckr_ckpt_check(c, &r, &e), &e)) return;
    CHECK(!r->sound);
    n = note_of(r->notes, r->n_notes, "CKR_E_REPLICA_DIFFERS");
    if (CHECK(n != NULL)) CHECK_STR(n->subject, "scalar0d (param)");
    ckr_report_free(r);
    ckr_ckpt_close(c);
    CHECK(is_sound("in/dcp_w_hf_consolidated/sharded"));
}

/* torchtitan -------------------------------------------------------------------- */

#define CURVE "torchtitan:steps=20,warmup_steps=4,decay_ratio=0.5,decay_type=sqrt,min_lr_factor=0.0"

static void titan(void)
{
    ckr_ckpt *c = open_ok("run");
    const ckr_state *s;
    double lr = 0;
    if (!c) return;
    s = ckr_ckpt_state(c);
    CHECK_STR(ckr_ckpt_path(c), "run/step-10");
    CHECK_STR(s->dialect, "torchtitan");
    CHECK_INT(s->progress.step, 10);
    CHECK_INT(s->n_groups, 2);
    CHECK_INT(s->schedules[0].position, 10);
    CHECK(ckr_ckpt_tensor(c, "layers.0.attention.qkv_linear.wqkv.weight", "exp_avg") != NULL);
    CHECK(ckr_ckpt_tensor(c, "layers.0.attention.qkv_linear.wq.weight", "param") != NULL);
    CHECK(ckr_node_f64(ckr_node_get(s->groups[1].hyper, "lr"), &lr));
    CHECK(lr > 0 && lr < 0.1);
    ckr_ckpt_close(c);
    if (write_as("run", NULL, 1, "w/t1")) same_digest("run", "w/t1");
    if (write_as("run", NULL, 4, "w/t4")) same_digest("run", "w/t4");
}

static ckr_plan *decided(const char *to, ckr_lr_policy policy, uint32_t without)
{
    ckr_target t = CKR_ZERO;
    ckr_ckpt *c = NULL;
    ckr_plan *p = NULL;
    ckr_error e;
    static ckr_ckpt *kept[32];
    static int n;
    if (!CHECK_OK(open_told("run", CURVE, &c, &e), &e)) return NULL;
    kept[n++] = c;             /* plans borrow it; freed with the process                 */
    (void)kept;
    t.mode = CKR_MODE_CONTINUE;
    t.topology.zero = -1;
    t.schedule = to;
    t.lr_policy = policy;
    t.without = without;
    CHECK_OK(ckr_plan_create(c, &t, 0, &p, &e), &e);
    return p;
}

static void has(const ckr_plan *p, const char *code, const char *part)
{
    const ckr_plan_facts *f = ckr_plan_info(p);
    const ckr_note *n = note_of(f->notes, f->n_notes, code);
    t_check(n && (!part || (n->new_value && strstr(n->new_value, part))), __FILE__, __LINE__,
            "%s lacks \"%s\": %s", code, part ? part : "", n && n->new_value ? n->new_value : "");
}

/* What torchtitan has to be told, for each way to take over. */
static void settings(void)
{
    ckr_plan *p = decided("torchtitan:steps=40,warmup_steps=4", CKR_LR_DEFAULT, 0);
    CHECK_INT(ckr_plan_info(p)->verdict, CKR_VERDICT_REFUSED);
    has(p, "CKR_E_LR_JUMP", NULL);
    ckr_plan_free(p);
    p = decided("torchtitan:steps=40,warmup_steps=4", CKR_LR_TARGET, 0);
    CHECK_INT(ckr_plan_info(p)->verdict, CKR_VERDICT_CHANGED);
    CHECK_STR(setting_value(ckr_plan_info(p), "lr_scheduler.total_steps"), "40");
    CHECK_STR(setting_value(ckr_plan_info(p), "checkpoint.load_step"), "10");
    settings_told(ckr_plan_info(p));
    ckr_plan_free(p);
    p = decided("torchtitan:steps=30,warmup_steps=4,decay_ratio=0.5,decay_type=sqrt",
                CKR_LR_STRETCH, 0);
    CHECK_STR(setting_value(ckr_plan_info(p), "training.steps"), "30");
    ckr_plan_free(p);
    p = decided("torchtitan:steps=12,warmup_steps=4,decay_ratio=0.5,decay_type=sqrt",
                CKR_LR_STRETCH, 0);
    CHECK_INT(ckr_plan_info(p)->verdict, CKR_VERDICT_CHANGED);
    CHECK_STR(setting_value(ckr_plan_info(p), "training.steps"), "12");
    ckr_plan_free(p);
    p = decided("torchtitan:steps=20,total_steps=8,warmup_steps=4", CKR_LR_TARGET, 0);
    has(p, "CKR_E_LR_NEGATIVE", NULL);
    ckr_plan_free(p);
    p = decided(NULL, CKR_LR_DEFAULT, CKR_PROGRESS);
    has(p, "CKR_E_CLOCK_WITHOUT", NULL);
    ckr_plan_free(p);
    p = decided(NULL, CKR_LR_DEFAULT, CKR_GROUPS);
    has(p, "CKR_E_GROUPS_WITHOUT", NULL);
    ckr_plan_free(p);
    p = decided("transformers:cosine,num_warmup_steps=4,num_training_steps=40", CKR_LR_TARGET, 0);
    has(p, "CKR_E_SCHEDULE_HOLD", NULL);
    ckr_plan_free(p);
    p = decided("torch:LambdaLR", CKR_LR_TARGET, 0);   /* nor one that only the trainer knows   */
    has(p, "CKR_E_SCHEDULE_HOLD", NULL);
    ckr_plan_free(p);
}

/* A later step beside the one that is taken is in torchtitan's way there, and not in the output. */
static void newer(void)
{
    ckr_target t = CKR_ZERO;
    ckr_ckpt *c;
    ckr_plan *p = NULL;
    ckr_error e;
    const ckr_note *n;
    const char *reason;
    memio_add(&disk, "run/step-20", true);
    c = open_ok("run");
    if (!c) return;
    t.topology.zero = -1;
    t.mode = CKR_MODE_CONTINUE;
    n = note_of(ckr_ckpt_state(c)->notes, ckr_ckpt_state(c)->n_notes, "CKR_NEWER_STEP");
    CHECK(n && n->severity == CKR_CHANGED && n->remedy);
    reason = n ? n->reason : "";
    if (CHECK_OK(ckr_plan_create(c, &t, 0, &p, &e), &e)) {
        n = note_of(ckr_plan_info(p)->notes, ckr_plan_info(p)->n_notes, "CKR_NEWER_STEP");
        CHECK(n && n->severity == CKR_EXACT && !n->remedy && !strcmp(n->reason, reason));
    }
    ckr_plan_free(p);
    ckr_ckpt_close(c);
    memio_remove(&disk, "run/step-20");
}

/* Where it lies has to be told to every run: what comes back bit for bit is exact all the same. */
static void where(void)
{
    ckr_plan *p = decided(NULL, CKR_LR_DEFAULT, 0);
    ckr_plan one;
    const ckr_run_setting *x = p ? setting_find(ckr_plan_info(p), "checkpoint.folder") : NULL;
    if (CHECK(x && x->needed)) {
        memset(&one, 0, sizeof one);
        one.out.n_settings = 1;
        one.out.settings = CKR__NEW(&p->ctx, ckr_run_setting);
        *one.out.settings = *x;
        ckr__plan_verdict(&one);
        CHECK_INT(one.facts.verdict, CKR_VERDICT_EXACT);
        one.out.settings->value = ckr__make_int(&p->ctx, 10);
        ckr__plan_verdict(&one);
        CHECK_INT(one.facts.verdict, CKR_VERDICT_CHANGED);
    }
    if (p) CHECK(!setting_find(ckr_plan_info(p), "checkpoint.load_step")->needed);
    ckr_plan_free(p);
}

/* The samples of an update stay what they were, where the streams tell them, or become what is
   asked for; the tokens of one rank that torchtitan counts are others. */
static void batch(void)
{
    static const struct {
        uint32_t dp;
        const char *set, *local, *global, *taken, *tokens;
    } x[] = {
        { 1, NULL, "", "", NULL, NULL },        { 2, NULL, "4", "8", NULL, "640" },
        { 8, NULL, "1", "8", NULL, "160" },     { 3, NULL, "2", "6", "6", "426" },
        { 1, "16", "16", "16", NULL, NULL },    { 2, "16", "", "16", NULL, "640" },
        { 1, "8", "", "", NULL, NULL }
    };
    size_t i;
    for (i = 0; i < sizeof x / sizeof *x; i++) {
        ckr_setting set = { NULL, "batch_size", NULL };
        ckr_target t = CKR_ZERO;
        ckr_ckpt *c = NULL;
        ckr_plan *p = NULL;
        ckr_error e;
        const ckr_note *n;
        if (!CHECK_OK(open_told("run", CURVE, &c, &e), &e)) continue;
        CHECK_INT(ckr_ckpt_state(c)->batch, 8);
        t.mode = CKR_MODE_CONTINUE;
        t.topology.zero = -1;
        t.topology.dp = x[i].dp;
        set.value = x[i].set;
        t.sets = &set;
        t.n_sets = x[i].set != NULL;
        if (CHECK_OK(ckr_plan_create(c, &t, 0, &p, &e), &e)) {
            const ckr_plan_facts *f = ckr_plan_info(p);
            CHECK_STR(setting_value(f, "training.local_batch_size"), x[i].local);
            CHECK_STR(setting_value(f, "training.global_batch_size"), x[i].global);
            n = note_of(f->notes, f->n_notes, "CKR_W_TITAN_BATCH");
            CHECK((n != NULL) == (x[i].taken != NULL));
            if (n && x[i].taken) CHECK_STR(n->new_value, x[i].taken);
            n = note_of(f->notes, f->n_notes, "CKR_TITAN_TOKENS");
            CHECK((n != NULL) == (x[i].tokens != NULL));
            if (n && x[i].tokens) CHECK_STR(n->new_value, x[i].tokens);
        }
        ckr_plan_free(p);
        ckr_ckpt_close(c);
    }
}

/* A warm-up that the rest of the run has room for, or why it has not. */
static void warm_again(void)
{
    static const struct { const char *to; int64_t steps; const char *code; } x[] = {
        { "torchtitan:steps=12,warmup_steps=4", 1, NULL },
        { "torchtitan:steps=13,warmup_steps=4", 2, NULL },
        { "torchtitan:steps=14,warmup_steps=4", 2, NULL },
        { "torchtitan:steps=40,warmup_steps=4", 5, NULL },
        { "torchtitan:steps=40,warmup_steps=4,decay_type=cosine", 9, NULL },
        { "torchtitan:steps=60,warmup_steps=30", 2, "CKR_E_SCHEDULE_HOLD" },
        { "torchtitan:steps=12,warmup_steps=4", 2, "CKR_E_SCHEDULE_REBASE" },
        { "torchtitan:steps=12,warmup_steps=4", 5, "CKR_E_SCHEDULE_REBASE" }
    };
    size_t i;
    for (i = 0; i < sizeof x / sizeof *x; i++) {
        ckr_target t = CKR_ZERO;
        ckr_ckpt *c = NULL;
        ckr_plan *p = NULL;
        ckr_error e;
        ckr_result r;
        if (!CHECK_OK(open_told("run", CURVE, &c, &e), &e)) continue;
        t.mode = CKR_MODE_CONTINUE;
        t.topology.zero = -1;
        t.schedule = x[i].to;
        t.lr_policy = CKR_LR_REWARM;
        t.rewarm_steps = x[i].steps;
        r = ckr_plan_create(c, &t, 0, &p, &e);
        if (p && x[i].code) has(p, x[i].code, NULL);
        else if (p) CHECK_INT(ckr_plan_info(p)->verdict, CKR_VERDICT_CHANGED);
        else CHECK(r == CKR_E_REFUSED && !strcmp(x[i].code, "CKR_E_SCHEDULE_REBASE"));
        ckr_plan_free(p);
        ckr_ckpt_close(c);
    }
}

/* Fresh moments, the schedule goes on. */
static void fresh(void)
{
    ckr_plan *p = decided(NULL, CKR_LR_DEFAULT, CKR_OPTIMIZER);
    ckr_ckpt *c;
    ckr_receipt receipt;
    ckr_error e;
    const ckr_tensor *t;
    ckr_read r = CKR_ZERO;
    float v[4096];
    if (!CHECK_OK(ckr_plan_write(p, "w/fresh", &receipt, &e), &e)) return;
    ckr_plan_free(p);
    c = open_ok("w/fresh");
    t = c ? ckr_ckpt_tensor(c, "norm.weight", "exp_avg") : NULL;
    if (CHECK(t != NULL)) {
        memset(v, 1, sizeof v);
        r.tensor = t;
        r.dst = v;
        r.dst_size = (size_t)t->shape[0] * 4;
        CHECK_OK(ckr_ckpt_read(c, &r, 1, &e), &e);
        CHECK(!(v[0] < 0) && !(v[0] > 0) && !(v[7] > 0));
    }
    if (c) CHECK_INT(ckr_ckpt_state(c)->n_groups, 2);
    ckr_ckpt_close(c);
}

/* The optimizer state of a fused projection and of its three: 2 heads of 8 rows, 2 queries each. */
static bool qkv(const char *from, const char *variant, int64_t heads, const char *to)
{
    ckr_target t = CKR_ZERO;
    ckr_ckpt *c = NULL;
    ckr_plan *p = NULL;
    ckr_receipt receipt;
    ckr_error e;
    bool ok = false;
    if (!CHECK_OK(open_told(from, CURVE, &c, &e), &e)) return false;
    t.mode = CKR_MODE_CONTINUE;
    t.topology.zero = -1;
    t.topology.ranks = 3;
    t.variant = variant;
    option_int(&t, "kv_heads", heads);
    if (CHECK_OK(ckr_plan_create(c, &t, 0, &p, &e), &e)) {
        ok = ckr_plan_info(p)->verdict != CKR_VERDICT_REFUSED;
        if (ok) CHECK_OK(ckr_plan_write(p, to, &receipt, &e), &e);
        else has(p, "CKR_E_TRAINER_SOURCE", NULL);
    }
    ckr_plan_free(p);
    ckr_ckpt_close(c);
    return ok;
}

static void rows_of(ckr_ckpt *c, const char *part, const char *slot, float *out)
{
    char name[80];
    ckr_read r = CKR_ZERO;
    ckr_error e;
    snprintf(name, sizeof name, "layers.0.attention.qkv_linear.%s.weight", part);
    r.tensor = ckr_ckpt_tensor(c, name, slot);
    r.dst = out;
    if (!CHECK(r.tensor != NULL)) return;
    r.dst_size = (size_t)(r.tensor->shape[0] * r.tensor->shape[1]) * 4;
    CHECK_OK(ckr_ckpt_read(c, &r, 1, &e), &e);
}

static void projections(void)
{
    static float all[64 * 32], q[32 * 32], k[16 * 32], v[16 * 32];
    const size_t row = 32 * sizeof(float);
    ckr_ckpt *a, *b;
    int h;
    CHECK(!qkv("run", "split_qkv", 0, "w/no"));
    CHECK(!qkv("run", "split_qkv", 3, "w/no"));
    if (!CHECK(qkv("run", "split_qkv", 2, "w/split")) ||
        !CHECK(qkv("w/split", "fused_qkv", 2, "w/fused")))
        return;
    same_digest("run", "w/fused");
    a = open_ok("run");
    b = open_ok("w/split");
    CHECK(!ckr_ckpt_tensor(b, "layers.0.attention.qkv_linear.wqkv.weight", "exp_avg"));
    CHECK(ckr_ckpt_tensor(b, "layers.0.attention.qkv_linear.wv.weight", "step") != NULL);
    CHECK_INT(ckr_ckpt_state(b)->groups[1].n_params + ckr_ckpt_state(b)->groups[0].n_params,
              ckr_ckpt_state(a)->groups[1].n_params + ckr_ckpt_state(a)->groups[0].n_params + 2);
    rows_of(a, "wqkv", "exp_avg_sq", all);
    rows_of(b, "wq", "exp_avg_sq", q);
    rows_of(b, "wk", "exp_avg_sq", k);
    rows_of(b, "wv", "exp_avg_sq", v);
    for (h = 0; h < 2; h++) {
        CHECK(!memcmp(all + h * 32 * 32, q + h * 16 * 32, 16 * row));
        CHECK(!memcmp(all + (h * 32 + 16) * 32, k + h * 8 * 32, 8 * row));
        CHECK(!memcmp(all + (h * 32 + 24) * 32, v + h * 8 * 32, 8 * row));
    }
    ckr_ckpt_close(a);
    ckr_ckpt_close(b);
}

#define QKV "layers.0.attention.qkv_linear."

/* The parameters that are named in a group of their own, with another weight decay. */
static bool regroup(const char *from, const char *const *moved, int n, const char *to)
{
    ckr_target t = target_of(0, 0, 0, -1, NULL);
    ckr_group g[3];
    const char *name;
    ckr_ckpt *c = open_ok(from);
    const ckr_state *s = c ? ckr_ckpt_state(c) : NULL;
    ckr_node *hyper;
    uint64_t i;
    int k;
    if (!s || !CHECK_INT(s->n_groups, 2)) return false;
    memset(g, 0, sizeof g);
    g[0] = s->groups[0];
    g[1] = s->groups[1];
    g[0].hyper = g[1].hyper = NULL;
    g[1].params = CKR__NEW_N(&c->ctx, const char *, s->groups[1].n_params);
    g[1].n_params = 0;
    for (i = 0; i < s->groups[1].n_params; i++) {
        name = s->groups[1].params[i];
        for (k = 0; k < n && strcmp(moved[k], name) != 0; k++) {}
        if (k == n) g[1].params[g[1].n_params++] = name;
    }
    hyper = ckr__make(&c->ctx, CKR_NODE_DICT);
    ckr__node_set(&c->ctx, hyper, "weight_decay", ckr__make_float(&c->ctx, 0.25));
    g[2].params = (const char **)(uintptr_t)moved;
    g[2].n_params = (uint64_t)n;
    g[2].hyper = hyper;
    t.groups = g;
    t.n_groups = 3;
    return written(c, from, to, &t);
}

static double decay_of(const char *path, const char *param)
{
    ckr_ckpt *c = open_ok(path);
    const ckr_state *s = c ? ckr_ckpt_state(c) : NULL;
    double v = -1;
    uint64_t i, k;
    for (i = 0; s && i < s->n_groups; i++)
        for (k = 0; k < s->groups[i].n_params; k++)
            if (!strcmp(s->groups[i].params[k], param))
                ckr_node_f64(ckr_node_get(s->groups[i].hyper, "weight_decay"), &v);
    ckr_ckpt_close(c);
    return v;
}

static bool is_whole(const char **params, uint64_t n)
{
    ckr_group g = CKR_ZERO;
    ckr__de e;
    ckr_error err = CKR_ZERO;
    ckr_ckpt *c = NULL;
    bool whole;
    memset(&e, 0, sizeof e);
    CHECK_OK(ckr_ckpt_create(NULL, &c, &err), &err);
    e.c = &c->ctx;
    g.params = params;
    g.n_params = n;
    whole = ckr__tq_whole(&e, &g);
    CHECK_INT(c->ctx.err->code, CKR_OK);
    ckr_ckpt_close(c);
    return whole;
}

/* The norm of the queries is as long as a head, and so tells how many there are. */
static void normed_projections(void)
{
    static const float zero[32 * 8];
    const int64_t q[2] = { 32, 8 }, k[2] = { 16, 8 }, norm[1] = { 8 }, odd[1] = { 5 };
    static const struct { bool norm, odd; int64_t told, kv; } x[] = {
        { true, false, 0, 2 }, { false, false, 0, 0 }, { true, false, 4, 4 }, { true, true, 0, 0 },
        { false, false, 2, 2 }, { false, false, 3, 0 }
    };
    size_t i;
    for (i = 0; i < sizeof x / sizeof *x; i++) {
        ckr_target t = CKR_ZERO;
        ckr_ckpt *c = NULL;
        ckr_error err = CKR_ZERO;
        ckr__de e;
        ckr__tq m;
        memset(&e, 0, sizeof e);
        memset(&m, 0, sizeof m);
        CHECK_OK(ckr_ckpt_create(NULL, &c, &err), &err);
        ckr_ckpt_put(c, QKV "wq.weight", "param", CKR_DTYPE_F32, 2, q, zero, &err);
        ckr_ckpt_put(c, QKV "wk.weight", "param", CKR_DTYPE_F32, 2, k, zero, &err);
        if (x[i].norm)
            ckr_ckpt_put(c, "layers.0.attention.q_norm.weight", "param", CKR_DTYPE_F32, 1,
                         x[i].odd ? odd : norm, zero, &err);
        e.c = &c->ctx;
        e.s = &c->state;
        e.t = &t;
        option_int(&t, "kv_heads", x[i].told);
        CHECK(ckr__tq_is(e.c, QKV "wqkv.weight", "wqkv", &m));
        CHECK_INT(ckr__tq_measure(&e, &m), x[i].kv > 0);
        if (x[i].kv) CHECK(m.rows == 16 / x[i].kv && m.q_rows == 32 / x[i].kv);
        ckr_ckpt_close(c);
    }
}

/* One parameter has one set of hyper-parameters: the three that it is made of, the same. */
static void parted_projections(void)
{
    static const char *const parts[] = { QKV "wq.weight", QKV "wk.weight", QKV "wv.weight" };
    const char *fused = QKV "wqkv.weight";
    const char *cross[] = { QKV "wq.weight", QKV "wk.weight", "layers.1.a.wv.weight" };
    const char *two[] = { QKV "wq.weight", "layers.1.a.wv.weight", QKV "wk.weight", QKV "wv.weight",
                          "layers.1.a.wk.weight", "layers.1.a.wq.weight", "norm.weight" };
    CHECK(!is_whole(cross, 3));
    CHECK(is_whole(two, 7));
    CHECK(!is_whole(two, 5));
    if (!CHECK(qkv("run", "split_qkv", 2, "w/three"))) return;
    if (CHECK(regroup("w/three", parts + 2, 1, "w/apart")))
        CHECK(!qkv("w/apart", "fused_qkv", 2, "w/no"));
    if (CHECK(regroup("w/three", parts, 3, "w/together")) &&
        CHECK(qkv("w/together", "fused_qkv", 2, "w/one"))) {
        CHECK(fabs(decay_of("w/one", fused) - 0.25) < 1e-15);
        CHECK(fabs(decay_of("w/one", "lm_head.weight") - 0.1) < 1e-15);
    }
    if (CHECK(regroup("run", &fused, 1, "w/wd")) && CHECK(qkv("w/wd", "split_qkv", 2, "w/wd3"))) {
        CHECK(fabs(decay_of("w/wd3", parts[1]) - 0.25) < 1e-15);
        CHECK(fabs(decay_of("w/wd3", "lm_head.weight") - 0.1) < 1e-15);
    }
}

/* Metadata that lies ------------------------------------------------------------ */

typedef struct meta {          /* a pickle without a memo                                */
    char   b[16384];
    size_t n;
} meta;

static void put(meta *m, const char *s, size_t n)
{
    if (n > sizeof m->b - m->n) exit(2);
    memcpy(m->b + m->n, s, n);
    m->n += n;
}

#define PUT(m, s) put((m), s, sizeof(s) - 1)

static void text(meta *m, const char *s)
{
    char h[5] = { 'X', 0, 0, 0, 0 };
    h[1] = (char)strlen(s);
    put(m, h, 5);
    put(m, s, strlen(s));
}

static void num(meta *m, int v)
{
    char h[5] = { 'J', 0, 0, 0, 0 };
    ckr__store_u32((uint8_t *)h + 1, (uint32_t)v);
    put(m, h, 5);
}

static void size1(meta *m, int v)
{
    PUT(m, "ctorch\nSize\n(");
    num(m, v);
    PUT(m, "t\205R");
}

#define CLASS "ctorch.distributed.checkpoint.metadata\n"

/* Tensor w of `rows` float32 in n chunks [at, at + count), all at offset 0 of a file. */
static void tensor_meta(meta *m, int rows, const int (*chunk)[2], int n, const char *file,
                        int length, const char *name)
{
    int i;
    memset(m, 0, sizeof *m);
    PUT(m, "\200\2" CLASS "Metadata\n)\201}(");
    text(m, "state_dict_metadata");
    PUT(m, "}(");
    text(m, "w");
    PUT(m, CLASS "TensorStorageMetadata\n)\201}(");
    text(m, "properties");
    PUT(m, CLASS "TensorProperties\n)\201(ctorch\nfloat32\nNNNNtb");
    text(m, "size");
    size1(m, rows);
    text(m, "chunks");
    PUT(m, "](");
    for (i = 0; i < n; i++) {
        PUT(m, CLASS "ChunkStorageMetadata\n)\201}(");
        text(m, "offsets");
        size1(m, chunk[i][0]);
        text(m, "sizes");
        size1(m, chunk[i][1]);
        PUT(m, "ub");
    }
    PUT(m, "eubu");
    text(m, "planner_data");
    PUT(m, "N");
    text(m, "storage_data");
    PUT(m, "}(");
    for (i = 0; i < n; i++) {
        PUT(m, CLASS "MetadataIndex\n)\201}(");
        text(m, "fqn");
        text(m, name);
        text(m, "offset");
        size1(m, chunk[i][0]);
        text(m, "index");
        num(m, i);
        PUT(m, "ubctorch.distributed.checkpoint.filesystem\n_StorageInfo\n)\201}(");
        text(m, "relative_path");
        text(m, file);
        text(m, "offset");
        num(m, 0);
        text(m, "length");
        num(m, length);
        PUT(m, "ub");
    }
    PUT(m, "uub.");
}

static ckr_item opened(ckr_error *e)
{
    ckr_ckpt *c = NULL;
    ckr_result r = open_told("bad", NULL, &c, e);
    const ckr_item item = r == CKR_OK ? CKR_ITEM_OK : e->item;
    if (r != CKR_OK) CHECK(e->text[0] && e->code == ckr__item_class[item]);
    ckr_ckpt_close(c);
    bad_seen[item] = true;
    return item;
}

static void lies(const char *label, const meta *m, ckr_item want)
{
    ckr_error e;
    ckr_item got;
    memio_put(&disk, "bad/.metadata", m->b, m->n);
    got = opened(&e);
    t_check(got == want, __FILE__, __LINE__, "%s: %s (%s), expected %s", label, ckr_item_name(got),
            got == CKR_ITEM_OK ? "" : e.text, ckr_item_name(want));
}

static const int one[1][2] = { { 0, 2 } };

/* A slice of two floats, 1 and 2, as a torch archive. */
static int good_slice(void)
{
    static bad_zip z;
    bad_torch(&z, BAD_TENSOR("\2", "\2"), BAD_LEN(BAD_TENSOR("\2", "\2")));
    memio_put(&disk, "bad/__0_0.distcp", z.b, z.n);
    return (int)z.n;
}

static void lying_chunks(void)
{
    static const int two[2][2] = { { 0, 2 }, { 1, 2 } };
    static const int apart[2][2] = { { 0, 2 }, { 2, 2 } };
    static meta m;
    int n;
    memio_add(&disk, "bad", true);
    n = good_slice();
    tensor_meta(&m, 2, one, 1, "__0_0.distcp", n, "w");
    lies("sound", &m, CKR_ITEM_OK);
    tensor_meta(&m, 4, apart, 2, "__0_0.distcp", n, "w");
    lies("two chunks, one slice", &m, CKR_ITEM_OK);
    tensor_meta(&m, 1, one, 1, "__0_0.distcp", n, "w");
    lies("a chunk outside its tensor", &m, CKR_ITEM_DCP_CHUNK);
    tensor_meta(&m, 3, one, 1, "__0_0.distcp", n, "w");
    lies("a missing chunk", &m, CKR_ITEM_TENSOR_HOLE);
    tensor_meta(&m, 3, two, 2, "__0_0.distcp", n, "w");
    lies("overlapping chunks", &m, CKR_ITEM_TENSOR_OVERLAP);
    tensor_meta(&m, 2, one, 1, "__0_0.distcp", n + 1, "w");
    lies("a slice beyond its file", &m, CKR_ITEM_RANK_MISSING);
    tensor_meta(&m, 2, one, 1, "__1_0.distcp", n, "w");
    lies("a file that is not there", &m, CKR_ITEM_RANK_MISSING);
    tensor_meta(&m, 2, one, 1, "__0_0.distcp", n - 9, "w");
    lies("a slice that ends early", &m, CKR_ITEM_ZIP_END);
    tensor_meta(&m, 2, one, 1, "__0_0.distcp", 4, "w");
    lies("a slice of four bytes", &m, CKR_ITEM_DCP_SLICE);
    tensor_meta(&m, 2, one, 1, "__0_0.distcp", -1, "w");
    lies("a negative length", &m, CKR_ITEM_DCP_METADATA);
    tensor_meta(&m, 2, one, 1, "../__0_0.distcp", n, "w");
    lies("a path that leads out", &m, CKR_ITEM_DCP_PATH);
    tensor_meta(&m, 2, one, 1, "/etc/passwd", n, "w");
    lies("an absolute path", &m, CKR_ITEM_DCP_PATH);
    tensor_meta(&m, 2, one, 1, "__0_0.distcp", n, "v");
    lies("a place for another tensor", &m, CKR_ITEM_DCP_CHUNK);
    bad_seen[CKR_ITEM_TENSOR_HOLE] = bad_seen[CKR_ITEM_TENSOR_OVERLAP] = false;
}

/* Pickles that are none, or want to cost more than they are long. */
static void lying_pickles(void)
{
    static const struct { const char *label, *s; size_t n; ckr_item item; } rows[] = {
#define ROW(label, s, item) { label, s, sizeof(s) - 1, CKR_ITEM_##item }
        ROW("nothing", "", PICKLE_TRUNCATED),
        ROW("no Metadata", "\200\2N.", DCP_METADATA),
        ROW("a dict in itself", "\200\2}q\0(X\1\0\0\0ah\0u.", DCP_METADATA),
        ROW("a list in itself", "\200\2]q\0h\0a.", DCP_METADATA),
        ROW("a text of 4 GiB", "\200\2X\377\377\377\377a.", PICKLE_TRUNCATED),
        ROW("a text of 2^63", "\200\4\215\377\377\377\377\377\377\377\177a.", PICKLE_TRUNCATED),
        ROW("a memo that was never set", "\200\2h\7.", PICKLE_MEMO),
        ROW("a memo of 2^32", "\200\2Nr\377\377\377\377.", PICKLE_MEMO),
        ROW("an empty stack", "\200\2R.", PICKLE_STACK),
        ROW("no mark", "\200\2t.", PICKLE_STACK),
        ROW("an object of nothing", "\200\4\201NNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNN"
            "NNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNN.",
            PICKLE_STACK),
        ROW("appending to a number", "\200\2K\1(K\1e.", PICKLE_TARGET),
        ROW("an opcode of nobody", "\200\2i.", PICKLE_OPCODE),
        ROW("protocol 9", "\200\11N.", PICKLE_PROTOCOL),
        ROW("calling the system", "\200\2cos\nsystem\nX\1\0\0\0a\205R.", PICKLE_UNSAFE),
        ROW("bytes behind it", "\200\2" CLASS "Metadata\n)\201}b.N", PICKLE_TRAILING),
        ROW("Metadata of nothing", "\200\2" CLASS "Metadata\n)\201}b.", DCP_METADATA),
        ROW("two of them", "\200\2" CLASS "Metadata\n)\201}b" CLASS "Metadata\n)\201}b.",
            DCP_METADATA),
        ROW("a size of text", "\200\2ctorch\nSize\n(X\1\0\0\0at\205R.", PICKLE_ARGS),
        ROW("attributes of two objects", "\200\2" CLASS "MetadataIndex\nq\0)\201}q\1(NK\1"
            "X\3\0\0\0fqnq\2X\1\0\0\0wub0h\0)\201h\1b.", PICKLE_MEMO),
        ROW("a size whose tuple's place such a dict had",
            "\200\2" CLASS "MetadataIndex\nq\0)\201}q\1(NK\1X\3\0\0\0fqnX\1\0\0\0wub"
            "0(K\1X\3\0\0\0fqnX\1\0\0\0wtq\2" "0h\0)\201h\1b0}("
            "K\3K\1K\1K\1u0ctorch\nSize\nh\2\205R0N.", PICKLE_MEMO)
#undef ROW
    };
    static meta m;
    size_t i;
    for (i = 0; i < sizeof rows / sizeof *rows; i++) {
        memset(&m, 0, sizeof m);
        put(&m, rows[i].s, rows[i].n);
        lies(rows[i].label, &m, rows[i].item);
    }
}

/* A million of anything, nested: within a second. */
static void deep(void)
{
    static const char *const what[] = { "(", "]", "}", ")\205", "(t" };
    const size_t n = 1000000;
    char *b = (char *)malloc(3 * n);
    size_t i, k;
    ckr_error e;
    const clock_t t = clock();
    if (!b) exit(2);
    for (k = 0; k < 5; k++) {
        const size_t len = strlen(what[k]);
        memcpy(b, "\200\2", 2);
        for (i = 0; i < n; i++) memcpy(b + 2 + i * len, what[k], len);
        memcpy(b + 2 + n * len, k ? "." : "t.", 2);
        memio_put(&disk, "bad/.metadata", b, 2 + n * len + (k ? 1 : 2));
        CHECK(opened(&e) != CKR_ITEM_OK);
    }
    free(b);
    CHECK((double)(clock() - t) / CLOCKS_PER_SEC < 5);
}

/* Cut anywhere, and with any byte turned around: never a crash, and a cut is always noticed. */
static void torn(void)
{
    static meta m, x;
    ckr_error e;
    size_t i;
    tensor_meta(&m, 2, one, 1, "__0_0.distcp", good_slice(), "w");
    for (i = 0; i < m.n; i++) {
        memio_put(&disk, "bad/.metadata", m.b, i);
        t_check(opened(&e) != CKR_ITEM_OK, __FILE__, __LINE__, "cut at %lu", (unsigned long)i);
        x = m;
        x.b[i] = (char)~x.b[i];
        memio_put(&disk, "bad/.metadata", x.b, x.n);
        opened(&e);
        x.b[i] = (char)(m.b[i] + 1);
        memio_put(&disk, "bad/.metadata", x.b, x.n);
        opened(&e);
    }
}

static void unfinished(void)
{
    static meta m, other;
    const int n = good_slice();
    ckr_error e;
    memio_drop(&disk, memio_find(&disk, "bad/.metadata"));
    CHECK_INT(opened(&e), CKR_ITEM_DCP_UNFINISHED);
    CHECK(strstr(e.text, "not ended") != NULL);
    tensor_meta(&m, 2, one, 1, "__0_0.distcp", n, "w");
    memio_put(&disk, "bad/__1.metadata", m.b, m.n);
    CHECK_INT(opened(&e), CKR_ITEM_DCP_UNFINISHED);
    memio_put(&disk, "bad/__0.metadata", m.b, m.n);
    CHECK_INT(opened(&e), CKR_ITEM_OK);
    tensor_meta(&other, 3, one, 1, "__0_0.distcp", n, "w");
    memio_put(&disk, "bad/__1.metadata", other.b, other.n);
    CHECK_INT(opened(&e), CKR_ITEM_DCP_RANKS);
}

/* Listed, but nothing of it is read. */
static void packed(void)
{
    ckr_ckpt *c = open_ok("in/dcp_w_zstd");
    uint8_t total[16];
    ckr_error e;
    const ckr_note *n;
    if (!c) return;
    CHECK_INT(ckr_ckpt_state(c)->n_tensors, 9);
    n = note_of(ckr_ckpt_state(c)->notes, ckr_ckpt_state(c)->n_notes, "CKR_E_DCP_TRANSFORM");
    if (CHECK(n != NULL)) CHECK_STR(n->old_value, "stream.zstd/1");
    CHECK_INT(ckr_ckpt_digest(c, NULL, total, &e), CKR_E_UNSUPPORTED);
    CHECK_INT(e.item, CKR_ITEM_DCP_TRANSFORM);
    bad_seen[e.item] = true;
    ckr_ckpt_close(c);
}

/* A slice like an earlier one is not opened, and says the same, also with any byte turned. */
typedef struct seen {
    ckr_result r;
    ckr_item   item;
    ckr_view   v;
    int64_t    dims[2 * CKR_MAX_DIMS];
} seen;

static seen look(ckr__dcp *d, const ckr__dcp_item *x, bool known)
{
    struct ckr__dcp_form *forms = d->forms;
    seen s;
    memset(&s, 0, sizeof s);
    if (!known) d->forms = NULL;
    s.r = ckr__dcp_view(d, x, &x->chunks[0], &s.v, s.dims);
    s.item = s.r == CKR_OK ? CKR_ITEM_OK : d->c->err->item;
    ckr__error_reset(d->c);
    d->forms = forms;
    return s;
}

static bool alike(const seen *a, const seen *b)
{
    const uint32_t n = a->v.n_dims;
    if (a->r != b->r || a->item != b->item) return false;
    return a->r != CKR_OK ||
           (a->v.dtype == b->v.dtype && n == b->v.n_dims && a->v.file == b->v.file &&
            a->v.data_offset == b->v.data_offset && a->v.offset == b->v.offset &&
            a->v.big_endian == b->v.big_endian && a->v.bytes == b->v.bytes &&
            !memcmp(a->dims, b->dims, n * sizeof *a->dims) &&
            !memcmp(a->dims + CKR_MAX_DIMS, b->dims + CKR_MAX_DIMS, n * sizeof *a->dims));
}

static void turned(ckr__dcp *d, const ckr__dcp_item *x)
{
    const ckr__dcp_chunk *k = &x->chunks[0];
    memio_file *f = memio_find(&disk, "run/step-10/__0_0.distcp");
    const uint64_t size = (uint64_t)(k->count[0] * k->count[1]) * 4;
    const seen good = look(d, x, false);
    uint64_t i;
    for (i = 0; f && i < k->is.length; i += i + k->offset == good.v.data_offset ? size : 1) {
        seen a, b;
        f->data[k->offset + i] ^= 1;
        a = look(d, x, false);
        b = look(d, x, true);
        t_check(alike(&a, &b), __FILE__, __LINE__, "byte %d of %s: %s, %s", (int)i, x->fqn,
                ckr_item_name(a.item), ckr_item_name(b.item));
        f->data[k->offset + i] ^= 1;
    }
}

static void forms(void)
{
    ckr_open_desc desc = CKR_ZERO;
    ckr_ckpt *c = NULL;
    ckr_error e = CKR_ZERO;
    ckr__dcp *d;
    uint64_t i;
    int known = 0;
    desc.env = &env;
    CHECK_OK(ckr_ckpt_create(&desc, &c, &e), &e);
    c->ctx.err = &e;
    CHECK_OK(ckr__dcp_open(&c->ctx, "run/step-10", &d), &e);
    for (i = 0; i < d->n_items; i++) {
        const ckr__dcp_item *x = &d->items[i];
        int64_t dims[2 * CKR_MAX_DIMS];
        ckr_view v;
        seen a, b;
        if (x->bytes || x->n_dims != 2) continue;
        memset(&v, 0, sizeof v);
        known += ckr__dcp_form_view(d, x, &x->chunks[0], &v, dims);
        a = look(d, x, false);
        b = look(d, x, true);
        CHECK(alike(&a, &b));
        if (known == 5) {
            turned(d, x);
            known++;
        }
    }
    t_check(known > 15, __FILE__, __LINE__, "%d of a known form", known);
    ckr__dcp_close(d);
    ckr_ckpt_close(c);
}

/* A model of many small slices, as a cluster leaves it: what it costs in memory, read and planned;
   slices that were not looked at when it was opened are so before they are read. */
static void many(void)
{
    enum { TENSORS = 96, RANKS = 200, CHUNKS = TENSORS * RANKS };
    static float values[4 * RANKS];
    static char names[TENSORS][16];
    ckr_open_desc d = CKR_ZERO;
    ckr_target to = CKR_ZERO;
    ckr_ckpt *hand = NULL, *c = NULL;
    ckr_plan *p = NULL;
    ckr_receipt receipt;
    ckr_error e = CKR_ZERO;
    uint8_t total[16];
    uint64_t assumed = 0;
    static ckr_copy copies[RANKS];
    size_t n_copies = RANKS;
    ckr_read read = CKR_ZERO;
    const int64_t shape[2] = { RANKS, 2 }, other[2] = { 2 * RANKS - 1, 2 };
    const ckr_piece *q = NULL;
    d.env = &env;
    to.dialect = "dcp";
    to.force = true;
    to.topology.dp = RANKS;
    CHECK_OK(ckr_ckpt_create(&d, &hand, &e), &e);
    for (int i = 0; i < 2 * RANKS; i++) values[i] = (float)i;
    for (int i = 0; i < TENSORS; i++) {
        snprintf(names[i], sizeof names[i], "w%d", i);
        CHECK_OK(ckr_ckpt_put(hand, names[i], "param", CKR_DTYPE_F32, 2, shape, values, &e), &e);
    }
    /* its last slice is as long, and as large, as those of the others, and of another dtype */
    CHECK_OK(ckr_ckpt_put(hand, "z", "param", CKR_DTYPE_I32, 2, other, values, &e), &e);
    if (CHECK_OK(ckr_plan_create(hand, &to, 0, &p, &e), &e))
        CHECK_OK(ckr_plan_write(p, "w/many", &receipt, &e), &e);
    ckr_plan_free(p);
    ckr_ckpt_close(hand);
    if (!CHECK_OK(ckr_ckpt_open("w/many", &d, &c, &e), &e)) return;
    t_check(c->ctx.arena_bytes < 250 * CHUNKS, __FILE__, __LINE__, "%d bytes a chunk",
            (int)(c->ctx.arena_bytes / CHUNKS));
    for (int i = 0; i < TENSORS; i++)
        for (int k = 0; k < RANKS; k++) {
            const ckr_piece *x = &c->state.tensors[i]->pieces[k];
            assumed += x->_form != 0;
            if (x->_form && i == TENSORS / 2) q = x;
        }
    CHECK(assumed > CHUNKS * 9 / 10 && q);
    const ckr_tensor *z = ckr_ckpt_tensor(c, "z", "param");
    CHECK(z && z->dtype == CKR_DTYPE_I32);
    for (uint32_t k = 0; z && k < z->n_pieces; k++) CHECK_INT(z->pieces[k].dtype, CKR_DTYPE_I32);
    to.topology.dp = RANKS / 2;
    if (CHECK_OK(ckr_plan_create(c, &to, 0, &p, &e), &e)) {
        CHECK_INT(ckr_plan_info(p)->n_copies, CHUNKS + RANKS);
        t_check(p->ctx.arena_bytes < 100 * CHUNKS / 2, __FILE__, __LINE__, "%d bytes a chunk",
                (int)(p->ctx.arena_bytes / CHUNKS * 2));
        CHECK_OK(ckr_plan_write(p, "w/many.half", NULL, &e), &e);
    }
    ckr_plan_free(p);
    CHECK_OK(ckr_ckpt_digest(c, NULL, total, &e), &e);
    CHECK(!memcmp(total, receipt.digest, 16));
    if (q) {                                   /* another number of rows, where its pickle is */
        memio_file *f = memio_find(&disk, c->ctx.files[q->file].path);
        const ckr__dcp_form *form = c->ctx.forms[q->_form - 1];
        uint8_t *at = f ? f->data + q->offset - form->head : NULL;
        for (uint64_t i = 0; f && i + 4 < form->head; i++)
            if (!memcmp(at + i, "K\1K\2\x86", 5)) at[i + 1] = 2, at = f->data, i = form->head;
        CHECK(at == f->data);
        CHECK_INT(ckr_ckpt_digest(c, NULL, total, &e), CKR_E_FORMAT);
        read.tensor = c->state.tensors[TENSORS / 2];
        read.dst = values;
        read.dst_size = sizeof values / 2;
        CHECK_INT(ckr_ckpt_copies(c, &read, 1, copies, &n_copies, &e), CKR_E_FORMAT);
        CHECK_OK(ckr_plan_create(c, &to, 0, &p, &e), &e);
        CHECK_INT(ckr_plan_write(p, "w/many.bad", NULL, &e), CKR_E_FORMAT);
        ckr_plan_free(p);
    }
    ckr_ckpt_close(c);
}

/* Slices that are read whole and are longer than what is kept of one, of many shapes. */
static void middling(void)
{
    static float values[4096];
    ckr_open_desc d = CKR_ZERO;
    ckr_ckpt *c = NULL;
    ckr_error e;
    ckr_target t = target_of(0, 0, 1, -1, NULL);
    uint8_t a[16], b[16];
    int i;
    d.env = &env;
    for (i = 0; i < 4096; i++) values[i] = (float)i + 0.5f;
    if (!CHECK_OK(ckr_ckpt_create(&d, &c, &e), &e)) return;
    for (i = 0; i < 200; i++) {
        const int64_t n = 1200 + 13 * i;
        char name[32];
        snprintf(name, sizeof name, "t%03d", i);
        CHECK_OK(ckr_ckpt_put(c, name, "param", CKR_DTYPE_F32, 1, &n, values, &e), &e);
    }
    t.dialect = "dcp";
    CHECK_OK(ckr_ckpt_digest(c, NULL, a, &e), &e);
    if (written(c, "memory", "w/middling", &t)) {
        digest_of("w/middling", b);
        CHECK(!memcmp(a, b, 16));
    }
}

/* CPU seconds to list one of Hugging Face's shards with n tensors, each told of by its name. */
static double many_in_shard(int n)
{
    char *text = (char *)malloc((size_t)n * 160 + 200), *p = text + 8;
    clock_t t;
    ckr_ckpt *c;
    int i;
    if (!text) exit(2);
    p += sprintf(p, "{\"__metadata__\":{\"DCP_SHARDING_INFO\":\"{");
    for (i = 0; i < n; i++)
        p += sprintf(p, "%s\\\"layer.%d.w\\\":{\\\"saved_offsets\\\":[0]}", i ? "," : "", i);
    p += sprintf(p, "}\"}");
    for (i = 0; i < n; i++)
        p += sprintf(p, ",\"layer.%d.w\":{\"dtype\":\"U8\",\"shape\":[1],"
                     "\"data_offsets\":[%d,%d]}", i, i, i + 1);
    *p++ = '}';
    ckr__store_u64((uint8_t *)text, (uint64_t)(p - text) - 8);
    memset(p, 0, (size_t)n);
    memio_add(&disk, "w/shards", true);
    memio_put(&disk, "w/shards/shard-00001-model-00001-of-00001.safetensors", text,
              (size_t)(p - text) + (size_t)n);
    t = clock();
    c = open_ok("w/shards");
    t = clock() - t;
    if (c) CHECK_INT(ckr_ckpt_state(c)->n_tensors, n);
    ckr_ckpt_close(c);
    memio_remove(&disk, "w/shards");
    free(text);
    return (double)t / CLOCKS_PER_SEC;
}

/* Linear: sixteen times as many are not two hundred times the work. */
static void shard_of_many(void)
{
    const double few = many_in_shard(2000), many = many_in_shard(32000);
    t_check(many < 60 * few + 0.05, __FILE__, __LINE__, "2,000: %.3f s, 32,000: %.3f s", few, many);
}

/* Records by the opcode ---------------------------------------------------------- */

/* Bytes of an opcode with its arguments; 0: none of metadata's. */
static size_t op_size(const uint8_t *p, size_t left)
{
    const uint8_t *a, *b;
    switch (*p) {
    case 0x80: case 'h': case 'q': case 'K': return 2;
    case 'M': return 3;
    case 'j': case 'r': case 'J': return 5;
    case 0x95: case 'G': return 9;
    case 0x8C: case 0x8A: case 'C': return 2 + (size_t)p[1];
    case 'X': case 'B': return 5 + (size_t)ckr__load_u32(p + 1);
    case 'c':
        a = (const uint8_t *)memchr(p, '\n', left);
        b = a ? (const uint8_t *)memchr(a + 1, '\n', left - (size_t)(a + 1 - p)) : NULL;
        return b ? (size_t)(b + 1 - p) : 0;
    default: return memchr("\x94\x93)\x85\x86\x87(t\x81" "bR}su]ae\x89\x88N.012\x8f", *p,
                           25) != NULL;
    }
}

/* The same pickle with every MEMOIZE as a LONG_BINPUT, and without frames: what CPython never
   writes, so that nothing of it is taken at one go. */
static uint8_t *spelled_out(const uint8_t *p, size_t n, size_t *size)
{
    uint8_t *out = (uint8_t *)malloc(5 * n + 1), *o = out;
    const uint8_t *end = p + n;
    uint32_t memo = 0;
    size_t k;
    if (!out) exit(2);
    for (; p < end; p += k) {
        k = op_size(p, (size_t)(end - p));
        if (!k || k > (size_t)(end - p)) break;
        if (*p == 0x94) {
            *o++ = 'r';
            ckr__store_u32(o, memo++);
            o += 4;
        } else if (*p != 0x95) {
            memo += *p == 'q' || *p == 'r';
            memcpy(o, p, k);
            o += k;
        }
    }
    CHECK(p == end);
    *size = (size_t)(o - out);
    return out;
}

static ckr__dcp *metadata_of(const char *dir, ckr_ckpt **c, ckr_error *e)
{
    ckr_open_desc desc = CKR_ZERO;
    ckr__dcp *d;
    char path[64];
    desc.env = &env;
    if (!CHECK_OK(ckr_ckpt_create(&desc, c, e), e)) exit(2);
    (*c)->ctx.err = e;
    d = CKR__NEW(&(*c)->ctx, ckr__dcp);
    d->c = d->names.c = d->file_names.c = d->boxes.c = &(*c)->ctx;
    d->dir = dir;
    snprintf(path, sizeof path, "%s/.metadata", dir);
    CHECK_OK(ckr__dcp_metadata(d, path), e);
    return d;
}

/* Megatron's all_local_plans pass by; where something of them is needed after all it is there. In
   the memo 0 is "1.9", before them; of theirs 1 is "1.10", 5002 "os", 5003 "1.11". */
static void plans(void)
{
#define ROW(label, within, after, version, item)                                                   \
    { label, within, after, version, sizeof(within) - 1, sizeof(after) - 1, CKR_ITEM_##item }
    static const struct {
        const char *label, *within, *after, *version;
        size_t n_within, n_after;
        ckr_item item;
    } rows[] = {
        ROW("a value from before them", "h\0h\1j\213\23\0\0", "h\0", "1.9", OK),
        ROW("of their first places", "N", "h\1", "1.10", OK),
        ROW("of their last", "N", "j\213\23\0\0", "1.11", OK),
        ROW("one that comes after them", "N", "\214\0032.0", "2.0", OK),
        ROW("and has a place", "N", "\214\0032.0\2240j\214\23\0\0", "2.0", OK),
        ROW("two batches", "Ne(}\224(NNu", "h\0", "1.9", OK),
        ROW("a class by its places", "j\213\23\0\0j\213\23\0\0\223\224)\201}b", "h\0", "1.9", OK),
        ROW("one of a bad module", "j\212\23\0\0j\213\23\0\0\223", "h\0", NULL, PICKLE_UNSAFE),
        ROW("the same by its name", "cos\nsystem\n", "h\0", NULL, PICKLE_UNSAFE),
        ROW("a place that nothing has", "j\377\377\0\0", "h\0", NULL, PICKLE_MEMO),
        ROW("a call of nothing", "(R", "h\0", NULL, PICKLE_STACK),
        ROW("an end within them", ".", "h\0", NULL, PICKLE_TRAILING)
    };
#undef ROW
    static meta m;
    ckr_error e;
    ckr_ckpt *c;
    PUT(&m, "\200\2" CLASS "Metadata\n)\201}(");       /* the first that has a place          */
    text(&m, "all_local_plans");
    PUT(&m, "](}q\0Ne");
    text(&m, "state_dict_metadata");
    PUT(&m, "h\0ub.");
    memio_put(&disk, "bad/.metadata", m.b, m.n);
    ckr__dcp_close(metadata_of("bad", &c, &e));
    ckr_ckpt_close(c);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        memset(&m, 0, sizeof m);
        PUT(&m, "\200\4\214\0031.9\2240" CLASS "Metadata\n)\201}(\214\23state_dict_metadata}"
                "\214\17all_local_plans](\214\0041.10\224");
        for (int k = 0; k < 5000; k++) PUT(&m, "N\224");
        PUT(&m, "\214\2os\224\214\0041.11\224");
        put(&m, rows[i].within, rows[i].n_within);
        PUT(&m, "e\214\7version");
        put(&m, rows[i].after, rows[i].n_after);
        PUT(&m, "ub.");
        if (!rows[i].version) {
            lies(rows[i].label, &m, rows[i].item);
            continue;
        }
        memio_put(&disk, "bad/.metadata", m.b, m.n);
        ckr__dcp *d = metadata_of("bad", &c, &e);
        t_check(d->version && !strcmp(d->version, rows[i].version), __FILE__, __LINE__, "%s: %s",
                rows[i].label, d->version ? d->version : "none");
        ckr__dcp_close(d);
        ckr_ckpt_close(c);
    }
}

static bool same_item(const ckr__dcp *a, const ckr__dcp *b, const ckr__dcp_item *x,
                      const ckr__dcp_item *y)
{
    const size_t n = x->n_dims * sizeof *x->shape;
    uint64_t k;
    uint32_t i;
    if (strcmp(x->fqn, y->fqn) || x->n_path != y->n_path || x->bytes != y->bytes ||
        x->dtype != y->dtype || x->n_dims != y->n_dims || x->n_chunks != y->n_chunks ||
        (n && memcmp(x->shape, y->shape, n)))
        return false;
    for (i = 0; i < x->n_path; i++) {
        const ckr__dcp_part *p = &x->path[i], *q = &y->path[i];
        if (p->index != q->index || !p->key != !q->key || (p->key && strcmp(p->key, q->key)))
            return false;
    }
    for (k = 0; k < x->n_chunks; k++) {
        const ckr__dcp_chunk *p = &x->chunks[k], *q = &y->chunks[k];
        if (p->offset != q->offset || p->is.length != q->is.length ||
            strcmp(a->files[p->file].name, b->files[q->file].name) ||
            (n && (memcmp(p->start, q->start, n) || memcmp(p->count, q->count, n))))
            return false;
    }
    return true;
}

static void by_opcode(const char *file)
{
    static const char *const dirs[] = { "w/fast", "w/slow" };
    ckr_error e[2];
    ckr_ckpt *c[2];
    ckr__dcp *d[2];
    size_t n, n_slow;
    uint64_t i;
    int k;
    uint8_t *data = t_slurp(file, &n), *slow;
    if (!t_check(data != NULL, __FILE__, __LINE__, "%s", file)) return;
    slow = spelled_out(data, n, &n_slow);
    memio_add(&disk, dirs[0], true);
    memio_add(&disk, dirs[1], true);
    memio_put(&disk, "w/fast/.metadata", data, n);
    memio_put(&disk, "w/slow/.metadata", slow, n_slow);
    for (k = 0; k < 2; k++) d[k] = metadata_of(dirs[k], &c[k], &e[k]);
    CHECK(d[0]->n_items > 0 && d[0]->n_items == d[1]->n_items && d[0]->n_files == d[1]->n_files);
    for (i = 0; i < d[0]->n_items && i < d[1]->n_items; i++)
        t_check(same_item(d[0], d[1], &d[0]->items[i], &d[1]->items[i]), __FILE__, __LINE__,
                "%s: %s", file, d[0]->items[i].fqn);
    for (k = 0; k < 2; k++) {
        ckr__dcp_close(d[k]);
        ckr_ckpt_close(c[k]);
        memio_remove(&disk, dirs[k]);
    }
    free(data);
    free(slow);
}

/* DCP_METADATA: more of them, with blanks between. */
static void records(void)
{
    static const char *const files[] = { DATA "/tt_single/step-10/.metadata",
                                         DATA "/dcp_w_threads3/ckpt/.metadata",
                                         DATA "/dcp_w_stformat/ckpt/.metadata",
                                         DATA "/dcp_w_zstd/ckpt/.metadata",
                                         DATA "/dcp_w_ranklocal/ckpt/__0.metadata" };
    const char *more = getenv("DCP_METADATA");
    char path[1024];
    size_t i, n;
    for (i = 0; i < sizeof files / sizeof *files; i++) by_opcode(files[i]);
    for (; more && *more; more += n) {
        more += strspn(more, " \n");
        n = strcspn(more, " \n");
        snprintf(path, sizeof path, "%.*s", (int)n, more);
        if (n) by_opcode(path);
    }
}

/* What trainers put beside the files of DCP goes with them, or is named as lost. */
static void files_beside(void)
{
    const ckr_state *s;
    const ckr_note *n;
    ckr_plan *p;
    ckr_ckpt *c;
    uint64_t i, found = 0;
    memio_add(&disk, "beside", true);
    memio_load(&disk, DATA "/dcp_w_threads3/ckpt", "beside");
    memio_load_file(&disk, "tests/data/plain/bare.pt", "beside/more.pt");
    c = open_ok("beside");
    s = c ? ckr_ckpt_state(c) : NULL;
    for (i = 0; s && i < s->n_leftovers; i++) found += !strcmp(s->leftovers[i].path, "more.pt");
    CHECK_INT(found, 1);
    p = c ? plan_of(c, "torch", 0) : NULL;
    n = p ? note_of(ckr_plan_info(p)->notes, ckr_plan_info(p)->n_notes, "CKR_W_LEFTOVERS_LOST")
          : NULL;
    if (CHECK(n != NULL)) CHECK_STR(n->subject, "more.pt");
    ckr_plan_free(p);
    ckr_ckpt_close(c);
    if (write_as("beside", NULL, 3, "w/out")) CHECK(memio_find(&disk, "w/out/more.pt") != NULL);
    memio_add(&disk, "beside/more", true);
    c = open_ok("beside");
    p = c ? plan_of(c, NULL, 2) : NULL;
    n = p ? note_of(ckr_plan_info(p)->notes, ckr_plan_info(p)->n_notes, "CKR_W_LEFTOVERS_LOST")
          : NULL;
    if (CHECK(n != NULL)) CHECK_STR(n->subject, "more/");
    ckr_plan_free(p);
    ckr_ckpt_close(c);
    memio_remove(&disk, "w/out");
    memio_remove(&disk, "beside");
}

/* Generators' states among a script's items, found by their form: by the ranks' numbers in their
   names, or one rank's without a number. They stay items under their
   names; new ranks get what the plan decides, under names with their numbers. */
static void generators(void)
{
    static const char *const paths[] = { "in/streams_w2", "w/streams3" };
    ckr_rng_streams *first = NULL, *now = NULL;
    ckr_ckpt *c;
    ckr_plan *p;
    uint64_t i, k;
    for (k = 0; k < 2; k++) {
        if (k && !write_as(paths[0], "dcp", 3, paths[1])) break;
        c = open_ok(paths[k]);
        if (!c) break;
        CHECK_INT(ckr_ckpt_state(c)->n_rng, 6 + 3 * k);
        now = streams_of(c, 0);
        CHECK_INT(now->n_streams, 3);
        CHECK_INT(now->n_ranks, 2 + k);
        for (i = 0; i < 6 && k && now->n_ranks == 3 && first->n_ranks == 2; i++) {
            const ckr_rng_given *x = &first->given[i],
                                *y = ckr_rng_find(now, (uint32_t)(i / 3), x->kind, x->name);
            CHECK(y && ckr_rng_equal(x->state, y->state));
        }
        if (k) ckr_rng_streams_free(now);
        else first = now;
    }
    ckr_rng_streams_free(first);
    c = open_ok("in/streams_one");
    if (c) CHECK_INT(ckr_ckpt_state(c)->n_rng, 3);
    p = c ? plan_of(c, "dcp", 2) : NULL;
    if (p) has(p, "CKR_W_RNG_AS_SAVED", "2 ranks");
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

/* Groups, schedule, step and every tensor are those of one torch file of the same. */
static void same_run(const char *dir, const char *whole)
{
    ckr_ckpt *a = open_ok(dir), *b = open_ok(whole);
    const ckr_state *s = a ? ckr_ckpt_state(a) : NULL, *w = b ? ckr_ckpt_state(b) : NULL;
    uint64_t i;
    double x = 0, y = 1;
    same_digest(dir, whole);
    if (s && w && CHECK_INT(s->n_groups, w->n_groups) &&
        CHECK_INT(s->n_schedules, w->n_schedules)) {
        CHECK_INT(s->n_tensors, w->n_tensors);
        for (i = 0; i < s->n_groups; i++) {
            CHECK_INT(s->groups[i].n_params, w->groups[i].n_params);
            CHECK_STR(s->groups[i].params[0], w->groups[i].params[0]);
            CHECK(ckr_node_f64(ckr_node_get(s->groups[i].hyper, "lr"), &x) &&
                  ckr_node_f64(ckr_node_get(w->groups[i].hyper, "lr"), &y) && ckr__same(x, y));
        }
        for (i = 0; i < s->n_schedules; i++) {
            CHECK_STR(s->schedules[i].kind, w->schedules[i].kind);
            CHECK_INT(s->schedules[i].position, w->schedules[i].position);
        }
    }
    ckr_ckpt_close(a);
    ckr_ckpt_close(b);
}

/* Do the items of two directories have the same names and paths, but for those of generators? */
static void same_items(const char *a, const char *b)
{
    const char *const dirs[2] = { a, b };
    ckr_open_desc desc = CKR_ZERO;
    ckr_ckpt *c[2] = { NULL, NULL };
    ckr_error e = CKR_ZERO;
    ckr__dcp *d[2] = { NULL, NULL };
    uint64_t i;
    uint32_t k;
    desc.env = &env;
    for (k = 0; k < 2; k++) {
        CHECK_OK(ckr_ckpt_create(&desc, &c[k], &e), &e);
        c[k]->ctx.err = &e;
        CHECK_OK(ckr__dcp_open(&c[k]->ctx, dirs[k], &d[k]), &e);
    }
    CHECK_INT(d[0]->n_items, d[1]->n_items);
    for (i = 0; i < d[0]->n_items; i++) {
        const ckr__dcp_item *x = &d[0]->items[i], *y = ckr__dcp_find(d[1], x->fqn);
        t_check(y && x->bytes == y->bytes && x->n_path == y->n_path, __FILE__, __LINE__,
                "%s lacks %s", b, x->fqn);
        for (k = 0; y && k < x->n_path && k < y->n_path; k++)
            CHECK(x->path[k].key && y->path[k].key
                      ? !strcmp(x->path[k].key, y->path[k].key)
                      : x->path[k].key == y->path[k].key && x->path[k].index == y->path[k].index);
    }
    for (k = 0; k < 2; k++) {
        ckr__dcp_close(d[k]);
        ckr_ckpt_close(c[k]);
    }
}

/* Another weight decay for all parameters is in the output. */
static void decayed(const char *from, const char *to)
{
    ckr_target t = target_of(0, 0, 3, -1, NULL);
    ckr_ckpt *c = open_ok(from);
    const ckr_state *s = c ? ckr_ckpt_state(c) : NULL;
    ckr_group g[2];
    uint64_t i;
    if (!s || !CHECK_INT(s->n_groups, 2)) return;
    memset(g, 0, sizeof g);
    for (i = 0; i < 2; i++) {
        ckr_node *hyper = ckr__make(&c->ctx, CKR_NODE_DICT);
        ckr__node_set(&c->ctx, hyper, "weight_decay", ckr__make_float(&c->ctx, 0.25));
        g[i].params = s->groups[i].params;
        g[i].n_params = s->groups[i].n_params;
        g[i].hyper = hyper;
    }
    t.groups = g;
    t.n_groups = 2;
    if (!written(c, from, to, &t)) return;
    CHECK(ckr__same(decay_of(to, "weight"), 0.25));
    CHECK(ckr__same(decay_of(to, "bias"), 0.25));
}

/* A script's directory is the run that its tree says, with an optimizer's flat dict or with numbers
   in lists, and goes back under its own names; what no name tells keeps the items' names. */
static void scripts(void)
{
    ckr_ckpt *c;
    same_run("script/flat", "whole/flat.pt");
    same_run("script/numbers", "whole/numbers.pt");
    same_run("unplanned/flat", "whole/flat.pt");           /* names without their paths      */
    same_run("unplanned/numbers", "whole/numbers.pt");
    if (write_as("script/flat", NULL, 3, "w/flat")) {
        same_run("w/flat", "whole/flat.pt");
        same_items("script/flat", "w/flat");
    }
    if (write_as("script/numbers", NULL, 2, "w/numbers")) {
        same_run("w/numbers", "whole/numbers.pt");
        same_items("script/numbers", "w/numbers");
    }
    if (write_as("script/flat", "torch", 0, "w/flat.pt")) same_run("w/flat.pt", "whole/flat.pt");
    decayed("script/flat", "w/decay");
    same_items("script/flat", "w/decay");
    c = open_ok("script/two");
    if (c && CHECK_INT(ckr_ckpt_state(c)->n_groups, 0)) {
        const ckr_state *s = ckr_ckpt_state(c);
        CHECK(note_of(s->notes, s->n_notes, "CKR_W_OPTIMIZERS_UNTOLD") != NULL);
        CHECK(ckr__tensor_find(s, "optim.state.a.weight.momentum_buffer", "param") != NULL);
    }
    ckr_ckpt_close(c);
}

/* OLMo-core: the tensors are its DCP directory's, counters and streams the ranks' files'. */
static void olmo(void)
{
    ckr_ckpt *c = open_ok("olmo");
    ckr_rng_streams *first = NULL, *now = NULL;
    ckr_open_desc desc = CKR_ZERO;
    const ckr_rng_given *x;
    ckr_error e;
    uint64_t i;
    if (c) CHECK_STR(ckr_ckpt_state(c)->dialect, "olmo_core");
    if (c) CHECK_INT(ckr_ckpt_state(c)->progress.tokens, 64);
    if (c) CHECK_INT(ckr_ckpt_state(c)->progress.step, 4);
    first = streams_of(c, 0);
    CHECK_INT(first->n_ranks, 2);
    CHECK_INT(first->n_streams, 3);
    same_digest("olmo", "whole/olmo.pt");
    if (write_as("olmo", NULL, 3, "w/olmo")) {
        int64_t world = 0;
        same_digest("w/olmo", "whole/olmo.pt");
        now = streams_of(open_ok("w/olmo"), 0);
        CHECK_INT(now->n_ranks, 3);
        for (i = 0; i < 6 && now->n_ranks == 3; i++) {
            x = ckr_rng_find(now, (uint32_t)(i / 3), first->given[i].kind, first->given[i].name);
            CHECK(x && ckr_rng_equal(x->state, first->given[i].state));
        }
        ckr_rng_streams_free(now);
        desc.env = &env;
        c = NULL;
        CHECK_OK(ckr_tree_open("w/olmo/step4/train/rank2.pt", &desc, &c, &e), &e);
        CHECK(c && ckr_node_i64(ckr_node_find(ckr_ckpt_root(c), "/world_size"), &world));
        CHECK_INT(world, 3);
        ckr_ckpt_close(c);
    }
    ckr_rng_streams_free(first);
    memio_remove(&disk, "olmo/step4/train/rank1.pt");
    c = open_ok("olmo");
    if (c) CHECK(note_of(ckr_ckpt_state(c)->notes, ckr_ckpt_state(c)->n_notes,
                         ckr_item_name(CKR_ITEM_TRAINER_RANDOM)) != NULL);
    ckr_ckpt_close(c);
}

/* Each rank's parts, saved by torch.save, are one run; a rank that is not there is missed. */
static void by_rank(void)
{
    ckr_error e = CKR_ZERO;
    ckr_ckpt *c = open_ok("script/ranks");
    if (c) CHECK_STR(ckr_ckpt_state(c)->dialect, "torch_ranks");
    if (c) CHECK_INT(ckr_ckpt_state(c)->n_rng, 2);
    ckr_ckpt_close(c);
    same_run("script/ranks", "whole/ranks.pt");
    memio_load_file(&disk, DATA "/script_ranks/ckpt/state-rank1.pt", "script/ranks/state-rank2.pt");
    memio_remove(&disk, "script/ranks/state-rank1.pt");
    CHECK(open_as("script/ranks", &c, &e) != CKR_OK);
    CHECK_INT(e.item, CKR_ITEM_RANK_MISSING);
    CHECK(open_as("script/local", &c, &e) != CKR_OK);      /* pieces without their places     */
    CHECK_INT(e.item, CKR_ITEM_DIST);
}

/* torchtune: the newest epoch's weights and the recipe's state are one run. */
static void tune(void)
{
    ckr_ckpt *c = open_ok("script/tune");
    if (c) CHECK_STR(ckr_ckpt_state(c)->dialect, "torchtune");
    if (c) CHECK_INT(ckr_ckpt_state(c)->progress.epoch, 1);
    if (c) CHECK_INT(ckr_ckpt_state(c)->n_groups, 2);
    ckr_ckpt_close(c);
    same_digest("script/tune", "whole/olmo.pt");
}

int main(int argc, char **argv)
{
    const ckr_item never[] = { CKR_ITEM_OK };
    t_begin(argc, argv);
    load_cases();
    RUN(variants);
    RUN(ranks);
    RUN(files);
    RUN(consolidated);
    RUN(titan);
    RUN(settings);
    RUN(newer);
    RUN(where);
    RUN(batch);
    RUN(warm_again);
    RUN(fresh);
    RUN(projections);
    RUN(parted_projections);
    RUN(normed_projections);
    RUN(lying_chunks);
    RUN(lying_pickles);
    RUN(deep);
    RUN(torn);
    RUN(unfinished);
    RUN(packed);
    RUN(many);
    RUN(middling);
    RUN(forms);
    RUN(plans);
    RUN(records);
    RUN(files_beside);
    RUN(generators);
    RUN(scripts);
    RUN(olmo);
    RUN(by_rank);
    RUN(tune);
    RUN(shard_of_many);
    if (!t_now.only) bad_all_seen(BAD_DCP, never);
    return t_end();
}
