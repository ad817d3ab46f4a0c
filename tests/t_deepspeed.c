/* Real checkpoints of DeepSpeed from tests/data: every tensor against the live processes, there and
   after conversion to other sizes, stages and layouts and back; what DeepSpeed itself gets wrong
   silently; schedules; groups; broken directories; faults. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "t.h"
#include "ckpt.h"
#include "bad.h"
#include "tree.h"
#include "settings.h"

#define DATA "tests/data/deepspeed"

/* ZeRO-2 dealt round robin, fp32, dp 3; ZeRO-1 elastic, fp32, dp 2; ZeRO-3 in sub groups, bf16,
   tied, frozen, dp 2; ZeRO-2 aligned, bf16, tied, frozen, dp 2; pipelines of 2 stages without ZeRO,
   tied, fp32 and bf16. */
enum { ROBIN = 0, ELASTIC, CUT, ALIGNED, PIPE, PIPE16, N_CASES };
static const char *const cases[] = { "robin", "elastic", "cut", "aligned", "pipe", "pipe16" };
static ckr_ckpt *json[N_CASES];

static void load_cases(void)
{
    int k;
    ckr_error e;
    disk_begin();
    for (k = 0; k < N_CASES; k++) {
        char from[256], to[64];
        snprintf(from, sizeof from, "%s/%s/ckpt", DATA, cases[k]);
        snprintf(to, sizeof to, "in/%d", k);
        memio_add(&disk, to, true);
        memio_load(&disk, from, to);
        snprintf(from, sizeof from, "%s/%s/check.json", DATA, cases[k]);
        if (!CHECK_OK(ckr_tree_open(from, NULL, &json[k], &e), &e)) exit(1);
    }
}

static const char *in(int k)
{
    static const char *const dirs[] = { "in/0", "in/1", "in/2", "in/3", "in/4", "in/5" };
    return dirs[k];
}

typedef struct job {
    ckr_target  t;
    ckr_ckpt   *c;
    ckr_plan   *p;
    const ckr_plan_facts *f;
} job;

static bool ask_batch(job *j, const char *from, uint32_t dp, uint32_t pp, int32_t zero,
                      const char *variant, const ckr_setting *batch)
{
    ckr_error e;
    memset(j, 0, sizeof *j);
    j->t.sets = batch;
    j->t.n_sets = batch != NULL;
    j->t.mode = CKR_MODE_CONTINUE;
    j->t.topology.zero = stage_of(zero);
    j->t.topology.dp = dp;
    j->t.topology.pp = pp;
    j->t.variant = variant;
    j->c = open_ok(from);
    return j->c && CHECK_OK(ckr_plan_create(j->c, &j->t, 0, &j->p, &e), &e) &&
           (j->f = ckr_plan_info(j->p)) != NULL;
}

static bool ask(job *j, const char *from, uint32_t dp, uint32_t pp, int32_t zero,
                const char *variant)
{
    return ask_batch(j, from, dp, pp, zero, variant, NULL);
}

static void end(job *j)
{
    ckr_plan_free(j->p);
    ckr_ckpt_close(j->c);
}

static bool convert(const char *from, const char *to, uint32_t dp, uint32_t pp, int32_t zero,
                    const char *variant)
{
    ckr_receipt receipt;
    ckr_error e;
    ckr_result r = CKR_E_ARG;
    job j;
    if (ask(&j, from, dp, pp, zero, variant)) {
        r = ckr_plan_write(j.p, to, &receipt, &e);
        t_check(r == CKR_OK, __FILE__, __LINE__, "%s -> %s (dp %u pp %u zero %d): %s %s: %s", from,
                to, (unsigned)dp, (unsigned)pp, (int)zero, ckr_item_name(e.item), e.where, e.text);
        if (r == CKR_OK) {
            CHECK(!memcmp(receipt.digest, receipt.digest_written, 16));
            digest_told(to, &receipt);
        }
    }
    end(&j);
    return r == CKR_OK;
}

/* Every tensor of the live processes, bit for bit; `without` a slot that the target has not. */
static void equals_truth(const char *path, int k, const char *without)
{
    ckr_ckpt *c = open_ok(path), *truth = NULL;
    const ckr_state *s;
    ckr_error e;
    char name[256];
    uint64_t i, found = 0;
    snprintf(name, sizeof name, "%s/%s/truth.safetensors", DATA, cases[k]);
    if (!CHECK_OK(ckr_ckpt_open(name, NULL, &truth, &e), &e)) return;
    s = ckr_ckpt_state(truth);
    for (i = 0; c && i < s->n_tensors; i++) {
        const ckr_tensor *want = s->tensors[i], *have;
        char *slot;
        snprintf(name, sizeof name, "%s", want->name);
        slot = !strncmp(name, "optimizer.state.", 16) ? strrchr(name, '.') : NULL;
        if (slot) *slot = 0;
        if (slot && without && !strcmp(slot + 1, without)) continue;
        have = ckr_ckpt_tensor(c, slot ? name + 16 : name, slot ? slot + 1 : "param");
        if (!t_check(have != NULL, __FILE__, __LINE__, "%s: %s is missing", path, want->name))
            continue;
        same_tensor(c, have, truth, want, path);
        found++;
    }
    CHECK(found > 20);
    ckr_ckpt_close(c);
    ckr_ckpt_close(truth);
}

/* The values of every parameter's group, as the live run had them. */
static void equals_hyper(const char *path, int k)
{
    const ckr_node *want = ckr_node_get(ckr_ckpt_root(json[k]), "hyper");
    ckr_ckpt *c = open_ok(path);
    const ckr_state *s = c ? ckr_ckpt_state(c) : NULL;
    uint64_t i, g, p, found = 0, j;
    for (i = 0; s && i < want->count; i++)
        for (g = 0; g < s->n_groups; g++)
            for (p = 0; p < s->groups[g].n_params; p++) {
                const ckr_node *h = want->u.items[2 * i + 1];
                if (strcmp(s->groups[g].params[p], want->u.items[2 * i]->u.str) != 0) continue;
                found++;
                for (j = 0; j < h->count; j++) {
                    const char *key = ckr_node_str(h->u.items[2 * j]);
                    double a = 0, b = 1;
                    ckr_node_f64(h->u.items[2 * j + 1], &a);
                    ckr_node_f64(ckr_node_get(s->groups[g].hyper, key), &b);
                    t_check(fabs(a - b) <= 4e-16 * fabs(a), __FILE__, __LINE__,
                            "%s: %s of %s is %.17g, live %.17g", path, key,
                            s->groups[g].params[p], b, a);
                }
            }
    if (s) CHECK_INT(found, want->count);
    ckr_ckpt_close(c);
}

/* The LR of every update of the uninterrupted run, before and after the save. */
static void equals_lr(const char *path, int k)
{
    const ckr_node *want = ckr_node_get(ckr_ckpt_root(json[k]), "lr");
    ckr_ckpt *c = open_ok(path);
    const ckr_state *s = c ? ckr_ckpt_state(c) : NULL;
    double lr[64];
    uint64_t g, i, n;
    ckr_error e;
    if (!s || !CHECK_INT(s->n_schedules, 1)) {
        ckr_ckpt_close(c);
        return;
    }
    n = ckr_node_at(want, 0)->count;
    CHECK_INT(s->schedules[0].n_lanes, want->count);
    CHECK_OK(ckr_schedule_values(&s->schedules[0], CKR_COLUMN_LR, 1, n, lr, NULL, &e), &e);
    for (g = 0; g < want->count; g++)
        for (i = 0; i < n; i++) {
            double w = 0;
            ckr_node_f64(ckr_node_at(ckr_node_at(want, g), i), &w);
            t_check(fabs(lr[want->count * i + g] - w) <= 4e-16 * w, __FILE__, __LINE__,
                    "%s: update %llu: %.17g, live %.17g", path, (unsigned long long)(i + 1),
                    lr[want->count * i + g], w);
        }
    ckr_ckpt_close(c);
}

static void what_is_read(void)
{
    static const struct { uint32_t dp, pp; int zero; uint64_t ties, rng; } want[N_CASES] = {
        { 3, 1, 2, 0, 3 }, { 2, 1, 1, 0, 3 }, { 2, 1, 3, 1, 6 },
        { 2, 1, 2, 1, 3 }, { 1, 2, 0, 0, 6 }, { 1, 2, 0, 0, 6 }
    };
    int k;
    for (k = 0; k < N_CASES; k++) {
        ckr_ckpt *c = open_ok(in(k));
        const ckr_state *s;
        ckr_report *report = NULL;
        ckr_error e;
        if (!c) continue;
        s = ckr_ckpt_state(c);
        CHECK_STR(s->dialect, "deepspeed");
        CHECK_STR(s->framework_version, "0.19.8");
        CHECK_INT(s->topology.dp, want[k].dp);
        CHECK_INT(s->topology.pp, want[k].pp);
        CHECK_INT(s->topology.zero, want[k].zero);
        CHECK_INT(s->progress.step, 3);
        CHECK_INT(s->progress.samples, 72);
        CHECK_INT(s->progress.tokens, 288);
        CHECK_INT(s->n_groups, 2);
        CHECK_INT(s->n_ties, want[k].ties);
        CHECK_INT(s->n_rng, want[k].rng);
        if (CHECK_OK(ckr_ckpt_check(c, &report, &e), &e)) CHECK(report->sound);
        ckr_report_free(report);
        ckr_ckpt_close(c);
        equals_truth(in(k), k, NULL);
        if (k != ELASTIC) equals_hyper(in(k), k);
        equals_lr(in(k), k);
    }
}

/* Any size, and back. */
static void other_sizes(void)
{
    static const uint32_t sizes[] = { 1, 2, 3, 4, 7, 40 };
    size_t i;
    int k;
    for (k = 0; k < N_CASES; k++)
        for (i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            uint8_t first[16], d[16];
            digest_of(in(k), first);
            if (!convert(in(k), "w/out", sizes[i], 0, -1, NULL)) continue;
            digest_of("w/out", d);
            CHECK(!memcmp(first, d, 16));
            equals_truth("w/out", k, NULL);
            if (k != ELASTIC) equals_hyper("w/out", k);
            if (convert("w/out", "w/back", 2, 0, -1, NULL)) digest_of("w/back", d);
            CHECK(!memcmp(first, d, 16));
            memio_remove(&disk, "w/out");
            memio_remove(&disk, "w/back");
        }
}

/* Any stage from any, and the universal layout. */
static void other_stages(void)
{
    static const int from[] = { ROBIN, ELASTIC, CUT, ALIGNED };
    size_t i;
    int32_t zero;
    for (i = 0; i < 4; i++)
        for (zero = 0; zero < 4; zero++) {
            const bool fp32 = from[i] == ROBIN || from[i] == ELASTIC;
            uint8_t first[16], d[16];
            ckr_ckpt *c;
            digest_of(in(from[i]), first);
            if (!convert(in(from[i]), "w/out", 3, 0, zero, NULL)) continue;
            c = open_ok("w/out");
            if (c) CHECK_INT(ckr_ckpt_state(c)->topology.zero, zero);
            ckr_ckpt_close(c);
            digest_of("w/out", d);
            CHECK(!memcmp(first, d, 16));
            equals_truth("w/out", from[i], zero == 0 && fp32 ? "master" : NULL);
            if (from[i] != ELASTIC) equals_hyper("w/out", from[i]);
            equals_lr("w/out", from[i]);
            if (zero && zero < 3 && convert("w/out", "w/uni", 0, 0, -1, "universal")) {
                CHECK(memio_find(&disk, "w/uni/latest_universal") != NULL);
                equals_truth("w/uni", from[i], NULL);
                if (from[i] != ELASTIC) equals_hyper("w/uni", from[i]);
                if (convert("w/uni", "w/back", 5, 0, 3, "native"))
                    equals_truth("w/back", from[i], NULL);
            }
            memio_remove(&disk, "w/out");
            memio_remove(&disk, "w/uni");
            memio_remove(&disk, "w/back");
        }
}

/* Layers over other numbers of stages; the tied embedding stays on the first and the last. */
static void pipelines(void)
{
    static const uint32_t stages[] = { 1, 3, 5 };
    size_t i;
    int k;
    for (k = PIPE; k <= PIPE16; k++)
        for (i = 0; i < 3; i++) {
            uint8_t first[16], d[16];
            ckr_ckpt *c;
            digest_of(in(k), first);
            if (!convert(in(k), "w/out", 2, stages[i], -1, NULL)) continue;
            c = open_ok("w/out");
            if (c) CHECK_INT(ckr_ckpt_state(c)->topology.pp, stages[i]);
            if (c) CHECK_INT(ckr_ckpt_state(c)->topology.zero, k == PIPE16 ? 1 : 0);
            if (c) CHECK(ckr_ckpt_tensor(c, "tied_modules.embed.weight", "exp_avg") != NULL);
            ckr_ckpt_close(c);
            digest_of("w/out", d);
            CHECK(!memcmp(first, d, 16));
            equals_truth("w/out", k, NULL);
            equals_hyper("w/out", k);
            if (convert("w/out", "w/back", 1, 2, -1, NULL)) digest_of("w/back", d);
            CHECK(!memcmp(first, d, 16));
            memio_remove(&disk, "w/out");
            memio_remove(&disk, "w/back");
        }
}

static bool says(const job *j, const char *code, ckr_severity severity)
{
    const ckr_note *n = j->f ? note_of(j->f->notes, j->f->n_notes, code) : NULL;
    return t_check(n && n->severity == severity, __FILE__, __LINE__, "%s: %d", code,
                   n ? (int)n->severity : -1);
}

/* A file of the case under another name, in a directory that is otherwise whole. */
static void copy_case(int k)
{
    char from[256];
    memio_remove(&disk, "bad");
    memio_add(&disk, "bad", true);
    snprintf(from, sizeof from, "%s/%s/ckpt", DATA, cases[k]);
    memio_load(&disk, from, "bad");
}

#define STEP "bad/global_step3/"

/* ZeRO-3 has a file of client state a rank, the others one a stage: streams that have no file are
   kept in the side file, and said to be, and come back. */
static void streams_without_file(void)
{
    ckr_ckpt *a, *b;
    uint64_t i;
    job j;
    if (ask(&j, in(CUT), 2, 0, 1, NULL)) {
        says(&j, "CKR_RNG_CARRIED", CKR_CHANGED);
        says(&j, "CKR_W_DS_CLIENT_DROPPED", CKR_LOST);
    }
    end(&j);
    if (convert(in(CUT), "w/out", 2, 0, 1, NULL) && convert("w/out", "w/back", 2, 0, 3, NULL)) {
        a = open_ok(in(CUT));
        b = open_ok("w/back");
        CHECK(a && b && ckr_ckpt_state(a)->n_rng == 6 && ckr_ckpt_state(b)->n_rng == 6);
        for (i = 0; a && b && i < 6; i++) {
            ckr_rng_streams *x = NULL, *y = NULL;
            ckr_error e;
            const ckr_stream *s = &ckr_ckpt_state(a)->rng[i];
            const ckr_rng_given *v, *w;
            if (!CHECK_OK(ckr_ckpt_rng(a, NULL, &x, &e), &e)) continue;
            if (!CHECK_OK(ckr_ckpt_rng(b, NULL, &y, &e), &e)) continue;
            v = ckr_rng_find(x, s->rank, s->kind, s->name);
            w = ckr_rng_find(y, s->rank, s->kind, s->name);
            CHECK(v && w && ckr_rng_equal(v->state, w->state));
            ckr_rng_streams_free(x);
            ckr_rng_streams_free(y);
        }
        ckr_ckpt_close(a);
        ckr_ckpt_close(b);
    }
    memio_remove(&disk, "w/out");
    memio_remove(&disk, "w/back");
}

/* The archive's root says under which name a file was saved: here another one. */
static void rename_root(const char *path, const char *was, const char *now)
{
    memio_file *f = memio_find(&disk, path);
    const size_t n = strlen(was);
    size_t i;
    if (!CHECK(f != NULL)) return;
    for (i = 0; i + n < f->size; i++)
        if (!memcmp(f->data + i, was, n)) memcpy(f->data + i, now, n);
}

static void is_set(const job *j, const char *key, const char *value)
{
    const char *now = setting_value(j->f, key);
    t_check(!strcmp(now, value), __FILE__, __LINE__, "%s is \"%s\", not %s", key, now, value);
}

/* What ds_config must say beside the files. 24 samples an update. */
static void settings(void)
{
    job j;
    if (ask(&j, in(ROBIN), 2, 0, 3, NULL)) {
        is_set(&j, "zero_optimization.stage", "3");
        is_set(&j, "zero_optimization.sub_group_size", "1000000000");
        is_set(&j, "train_micro_batch_size_per_gpu", "12");
        CHECK(!setting_find(j.f, "gradient_accumulation_steps"));      /* it is 1 already   */
        settings_told(j.f);
    }
    end(&j);
    if (ask(&j, in(ROBIN), 0, 0, -1, "universal")) {
        is_set(&j, "checkpoint.load_universal", "true");
        CHECK(!setting_find(j.f, "zero_optimization.stage"));
        CHECK(!setting_find(j.f, "train_micro_batch_size_per_gpu"));
    }
    end(&j);
    if (ask(&j, in(ROBIN), 5, 0, -1, NULL)) {
        says(&j, "CKR_W_DS_BATCH", CKR_APPROX);
        is_set(&j, "train_micro_batch_size_per_gpu", "4");     /* what 20 samples are of    */
        is_set(&j, "train_batch_size", "20");
    }
    end(&j);
}

/* What PipelineModule is built with; the method where there is more than one stage. */
static void stages(void)
{
    job j;
    if (ask(&j, in(PIPE), 0, 1, -1, NULL)) {
        is_set(&j, "num_stages", "1");
        CHECK(!setting_find(j.f, "partition_method"));
    }
    end(&j);
    if (ask(&j, in(PIPE), 0, 3, -1, NULL)) {
        is_set(&j, "num_stages", "3");
        CHECK(setting_find(j.f, "partition_method") != NULL);
        settings_told(j.f);
    }
    end(&j);
}

/* --set batch_size counts, with as many ranks or others; what they cannot share is refused. */
static void batch_size(void)
{
    static const ckr_setting batch = { NULL, "batch_size", "16" };
    const ckr_note *n;
    job j;
    if (ask_batch(&j, in(ROBIN), 4, 0, -1, NULL, &batch)) {
        is_set(&j, "train_micro_batch_size_per_gpu", "4");
        is_set(&j, "train_batch_size", "16");
        CHECK(!setting_find(j.f, "gradient_accumulation_steps"));
        n = note_of(j.f->notes, j.f->n_notes, "CKR_BATCH_STEPS");
        if (CHECK(n && n->old_value && n->new_value)) {
            CHECK_STR(n->old_value, "24");
            CHECK_STR(n->new_value, "16");
        }
    }
    end(&j);
    if (ask_batch(&j, in(ROBIN), 1, 0, -1, NULL, &batch))
        is_set(&j, "train_micro_batch_size_per_gpu", "16");
    end(&j);
    if (ask_batch(&j, in(ROBIN), 5, 0, -1, NULL, &batch)) {
        says(&j, "CKR_E_BATCH", CKR_ERROR);
        CHECK(j.f->verdict == CKR_VERDICT_REFUSED);
    }
    end(&j);
}

/* What load_checkpoint must not look for; a schedule without the optimizer's LRs is refused. */
static void parts_left_out(void)
{
    static const char *const keys[] = { "load_module_only", "load_optimizer_states",
                                        "load_lr_scheduler_states" };
    static const uint32_t without[] = { CKR_SCHEDULE, CKR_OPTIMIZER | CKR_GROUPS | CKR_SCHEDULE,
                                        0, CKR_OPTIMIZER };
    static const char *const values[4][3] = { { "", "", "false" }, { "", "false", "false" },
                                              { "true", "false", "false" }, { "", "", "" } };
    ckr_error e;
    int i, k;
    for (i = 0; i < 4; i++) {
        job j;
        memset(&j, 0, sizeof j);
        j.t.mode = i == 2 ? CKR_MODE_TRANSFER : CKR_MODE_CONTINUE;
        j.t.topology.zero = -1;
        j.t.without = without[i];
        j.c = open_ok(in(ALIGNED));
        if (j.c && CHECK_OK(ckr_plan_create(j.c, &j.t, 0, &j.p, &e), &e)) {
            j.f = ckr_plan_info(j.p);
            for (k = 0; k < 3; k++) is_set(&j, keys[k], values[i][k]);
            if (i == 3) says(&j, "CKR_E_LR_WITHOUT", CKR_ERROR);
        }
        if (i == 3) bad_seen[CKR_ITEM_LR_WITHOUT] = true;
        end(&j);
    }
}

/* --dtype: said, and fp16 begins with a dynamic loss scaler. */
static void to_half(void)
{
    static const char file[] =
        "w/out/global_step3/zero_pp_rank_0_mp_rank_00_optim_states.pt";
    ckr_open_desc d = CKR_ZERO;
    ckr_ckpt *c = NULL;
    ckr_error e;
    const ckr_node *n;
    double scale = 0;
    job j;
    d.env = &env;
    memset(&j, 0, sizeof j);
    j.t.topology.zero = -1;
    j.t.mode = CKR_MODE_CONTINUE;
    j.t.dtype = CKR_DTYPE_F16;
    j.c = open_ok(in(ROBIN));
    if (j.c && CHECK_OK(ckr_plan_create(j.c, &j.t, 0, &j.p, &e), &e)) {
        j.f = ckr_plan_info(j.p);
        says(&j, "CKR_DTYPE_CAST", CKR_CHANGED);
        says(&j, "CKR_DS_SCALER", CKR_CHANGED);
        is_set(&j, "fp16.enabled", "true");
        CHECK_OK(ckr_plan_write(j.p, "w/out", NULL, &e), &e);
    }
    end(&j);
    if (CHECK_OK(ckr_tree_open(file, &d, &c, &e), &e)) {
        n = ckr_node_find(ckr_ckpt_root(c), "/optimizer_state_dict/loss_scaler");
        CHECK(n && n->kind == CKR_NODE_OBJECT &&
              !strcmp(n->u.object->name, "deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler"));
        CHECK(n && ckr_node_f64(ckr_node_get(n->u.object->state, "cur_scale"), &scale) &&
              ckr__same(scale, 65536));
        n = ckr_node_find(ckr_ckpt_root(c), "/optimizer_state_dict/dynamic_loss_scale");
        CHECK(n && n->kind == CKR_NODE_BOOL && n->u.b);
    }
    ckr_ckpt_close(c);
    if (ask(&j, "w/out", 2, 0, -1, NULL))
        CHECK(!note_of(j.f->notes, j.f->n_notes, "CKR_DS_SCALER"));
    end(&j);
    memio_remove(&disk, "w/out");
}

/* A key of an optimizer's file that is not known: listed, back in the same rank's file, or said to
   be lost. */
static void unknown_keys(void)
{
    static const char file[] = "zero_pp_rank_1_mp_rank_00_optim_states.pt";
    ckr_open_desc d = CKR_ZERO;
    ckr_ckpt *c;
    ckr_error e;
    char path[160];
    const ckr_node *o;
    uint64_t i, found = 0;
    job j;
    d.env = &env;
    copy_case(ROBIN);
    snprintf(path, sizeof path, STEP "%s", file);
    rename_root(path, "overflow", "overflux");
    c = open_ok("bad");
    for (i = 0; c && i < ckr_ckpt_state(c)->n_leftovers; i++)
        found += strstr(ckr_ckpt_state(c)->leftovers[i].path,
                        "rank_1_mp_rank_00_optim_states.pt#/optimizer_state_dict/overflux") != NULL;
    CHECK_INT(found, 1);
    ckr_ckpt_close(c);
    if (ask(&j, "bad", 2, 0, -1, NULL)) says(&j, "CKR_W_DS_REST", CKR_LOST);
    end(&j);
    if (convert("bad", "w/out", 0, 0, -1, NULL)) {
        snprintf(path, sizeof path, "w/out/global_step3/%s", file);
        CHECK_OK(ckr_tree_open(path, &d, &c, &e), &e);
        o = ckr_node_find(ckr_ckpt_root(c), "/optimizer_state_dict/overflux");
        CHECK(o && o->kind == CKR_NODE_BOOL && !o->u.b);
        ckr_ckpt_close(c);
    }
    memio_remove(&disk, "w/out");
    memio_remove(&disk, "bad");
    /* the same in torch's own dict: `my_extra` of rank 1 */
    copy_case(ROBIN);
    snprintf(path, sizeof path, STEP "%s", file);
    memio_remove(&disk, path);
    memio_load_file(&disk, DATA "/rest.pt", path);
    c = open_ok("bad");
    if (c) CHECK(ckr_ckpt_state(c)->n_leftovers > 0);
    ckr_ckpt_close(c);
    if (ask(&j, "bad", 2, 0, -1, NULL)) says(&j, "CKR_W_DS_REST", CKR_LOST);
    end(&j);
    if (convert("bad", "w/out", 0, 0, -1, NULL)) {
        snprintf(path, sizeof path, "w/out/global_step3/%s", file);
        CHECK_OK(ckr_tree_open(path, &d, &c, &e), &e);
        o = ckr_node_find(ckr_ckpt_root(c), "/optimizer_state_dict/base_optimizer_state/my_extra");
        CHECK(ckr_node_is_dict(o) && o->count == 2);
        ckr_ckpt_close(c);
    }
    /* and a text where its groups should be, of their number of letters */
    copy_case(ROBIN);
    snprintf(path, sizeof path, STEP "%s", file);
    memio_remove(&disk, path);
    memio_load_file(&disk, DATA "/text.pt", path);
    c = NULL;
    CHECK(open_as("bad", &c, &e) != CKR_OK && strstr(e.file, file));
    ckr_ckpt_close(c);
    memio_remove(&disk, "w/out");
    memio_remove(&disk, "bad");
}

/* What is told of a second conversion, and of one to the nearest layout. */
static void told_again(void)
{
    memio_file *f;
    size_t i;
    ckr_ckpt *a, *b;
    ckr_diff *d = NULL;
    ckr_error e;
    job j;
    /* the configuration does not tell the weight decay: null, and said each time */
    copy_case(ELASTIC);
    f = memio_find(&disk, STEP "mp_rank_00_model_states.pt");
    for (i = 0; CHECK(f != NULL) && i + 12 < f->size; i++)
        if (!memcmp(f->data + i, "weight_decay", 12)) memcpy(f->data + i, "weight_dekay", 12);
    if (convert("bad", "w/out", 0, 0, -1, NULL) && ask(&j, "w/out", 3, 0, -1, NULL)) {
        says(&j, "CKR_W_DS_NULL", CKR_LOST);
        end(&j);
    }
    memio_remove(&disk, "w/out");
    memio_remove(&disk, "bad");
    /* a bf16 pipeline without ZeRO becomes ZeRO-1, and so the plan says */
    if (ask(&j, in(PIPE16), 0, 0, -1, NULL)) CHECK_INT(j.f->to.zero, 1);
    end(&j);
    /* masters of fp32 parameters are no difference */
    if (convert(in(ROBIN), "w/out", 0, 0, 0, NULL)) {
        a = open_ok(in(ROBIN));
        b = open_ok("w/out");
        if (a && b && CHECK_OK(ckr_ckpt_diff(a, b, &d, &e), &e)) {
            CHECK_INT(d->n_tensors, 0);
            ckr_diff_free(d);
        }
        if (a && b && CHECK_OK(ckr_ckpt_diff(b, a, &d, &e), &e)) {
            CHECK_INT(d->n_tensors, 0);
            ckr_diff_free(d);
        }
        ckr_ckpt_close(a);
        ckr_ckpt_close(b);
    }
    memio_remove(&disk, "w/out");
}

/* What DeepSpeed 0.19.8 does wrong without a word, or cannot do at all. */
static void silent_failures(void)
{
    ckr_ckpt *c;
    const ckr_node *n;
    ckr_open_desc d = CKR_ZERO;
    ckr_error e;
    int64_t v = 0;
    job j;
    d.env = &env;
    /* ds_to_universal takes param_slice_mappings, which are wrong here for most tensors */
    if (convert(in(ROBIN), "w/out", 0, 0, -1, "universal")) equals_truth("w/out", ROBIN, NULL);
    memio_remove(&disk, "w/out");
    /* the same files in a run without the setting: masters of other parameters */
    if (ask(&j, in(ROBIN), 2, 0, -1, NULL)) says(&j, "CKR_DS_ROUND_ROBIN", CKR_EXACT);
    end(&j);
    if (ask(&j, in(ROBIN), 2, 0, -1, "universal"))
        CHECK(!note_of(j.f->notes, j.f->n_notes, "CKR_DS_ROUND_ROBIN"));
    end(&j);
    /* universal into ZeRO-3: every group gets the first one's values */
    if (ask(&j, in(CUT), 0, 0, -1, "universal")) {
        CHECK_INT(j.f->verdict, CKR_VERDICT_REFUSED);
        says(&j, "CKR_E_DEEPSPEED_UNIVERSAL", CKR_ERROR);
        bad_seen[CKR_ITEM_DEEPSPEED_UNIVERSAL] = true;
    }
    end(&j);
    /* elastic files: no hyper-parameters, and DeepSpeed cannot load them */
    c = open_ok(in(ELASTIC));
    if (c) {
        n = ckr_node_get(ckr_ckpt_state(c)->groups[1].hyper, "weight_decay");
        CHECK(n && n->kind == CKR_NODE_NONE);
        CHECK(note_of(ckr_ckpt_state(c)->notes, ckr_ckpt_state(c)->n_notes, "CKR_W_DS_ELASTIC"));
    }
    ckr_ckpt_close(c);
    if (ask(&j, in(ELASTIC), 0, 0, -1, NULL)) says(&j, "CKR_DS_NEAREST_ELASTIC", CKR_APPROX);
    end(&j);
    if (convert(in(ELASTIC), "w/out", 0, 0, -1, NULL)) {
        CHECK_OK(ckr_tree_open("w/out/global_step3/zero_pp_rank_1_mp_rank_00_optim_states.pt", &d,
                               &c, &e), &e);
        n = ckr_node_find(ckr_ckpt_root(c), "/optimizer_state_dict/base_optimizer_state");
        CHECK(ckr_node_is_dict(n) && ckr_node_get(n, "param_groups"));
        n = ckr_node_find(n, "/param_groups/1/lr");
        CHECK(n && n->kind == CKR_NODE_FLOAT && n->u.f > 0);
        ckr_ckpt_close(c);
    }
    memio_remove(&disk, "w/out");
    /* a bf16 pipeline without ZeRO cannot resume: written as ZeRO-1 */
    if (ask(&j, in(PIPE16), 0, 0, -1, NULL)) says(&j, "CKR_DS_NEAREST", CKR_CHANGED);
    end(&j);
    /* parameter_alignment: padding between parameters, none behind the last */
    if (ask(&j, in(ALIGNED), 3, 0, -1, NULL)) says(&j, "CKR_DS_ALIGNED", CKR_EXACT);
    end(&j);
    if (convert(in(ALIGNED), "w/out", 3, 0, -1, NULL)) {
        CHECK_OK(ckr_tree_open("w/out/global_step3/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt",
                               &d, &c, &e), &e);
        n = ckr_node_find(ckr_ckpt_root(c),
                          "/optimizer_state_dict/param_alignment_paddings/0/0");
        CHECK(ckr_node_i64(n, &v) && v == 3);          /* behind the 21 elements of mix        */
        ckr_ckpt_close(c);
    }
    memio_remove(&disk, "w/out");
}

static void refused_as(job *j, ckr_item item)
{
    if (j->f) CHECK_INT(j->f->verdict, CKR_VERDICT_REFUSED);
    if (j->f) says(j, ckr_item_name(item), CKR_ERROR);
    bad_seen[item] = true;
    end(j);
}

static void refused(void)
{
    ckr_error e;
    job j;
    ask(&j, in(PIPE), 0, 0, 2, NULL);
    refused_as(&j, CKR_ITEM_ZERO_STAGE);
    ask(&j, in(ROBIN), 0, 2, -1, NULL);
    refused_as(&j, CKR_ITEM_TOPOLOGY);
    ask(&j, in(PIPE), 0, 30, -1, NULL);
    refused_as(&j, CKR_ITEM_PP_EMPTY_STAGE);
    memset(&j, 0, sizeof j);
    j.t.topology.zero = -1;
    j.t.mode = CKR_MODE_CONTINUE;
    j.t.without = CKR_PARAMS;
    j.c = open_ok(in(ROBIN));
    if (CHECK_OK(ckr_plan_create(j.c, &j.t, 0, &j.p, &e), &e)) j.f = ckr_plan_info(j.p);
    refused_as(&j, CKR_ITEM_PARAMS_WITHOUT);
}

/* Stages that no method of PipelineModule would have made. */
static void unknown_partition(void)
{
    job j;
    memio_file *f;
    memio_remove(&disk, "bad");
    memio_add(&disk, "bad", true);
    memio_load(&disk, DATA "/pipe/ckpt", "bad");
    f = memio_find(&disk, "bad/global_step3/layer_04-model_states.pt");
    if (!CHECK(f != NULL)) return;
    memio_put(&disk, "bad/global_step3/layer_2000-model_states.pt", f->data, (size_t)f->size);
    rename_root("bad/global_step3/layer_2000-model_states.pt", "layer_04-model", "copied_4-model");
    memio_remove(&disk, "bad/global_step3/layer_04-model_states.pt");
    ask(&j, "bad", 0, 3, -1, NULL);
    refused_as(&j, CKR_ITEM_DEEPSPEED_STAGES);
    memio_remove(&disk, "bad");
}

static void copy_file(const char *from, const char *to)
{
    const memio_file *f = memio_find(&disk, from);
    if (CHECK(f != NULL)) memio_put(&disk, to, f->data, (size_t)f->size);
}

static void broken_as(ckr_item item, const char *file)
{
    ckr_ckpt *c;
    ckr_error e;
    CHECK(open_as("bad", &c, &e) != CKR_OK);
    t_check(e.item == item && (!file || !strcmp(e.file, file)), __FILE__, __LINE__,
            "%s in %s (%s: %s), expected %s in %s", ckr_item_name(e.item), e.file, e.where, e.text,
            ckr_item_name(item), file ? file : "any");
    bad_seen[item] = true;
    ckr_ckpt_close(c);
}

static void broken(void)
{
    copy_case(ROBIN);
    memio_remove(&disk, STEP "zero_pp_rank_2_mp_rank_00_optim_states.pt");
    broken_as(CKR_ITEM_RANK_MISSING, STEP "zero_pp_rank_2_mp_rank_00_optim_states.pt");
    copy_case(ROBIN);
    memio_remove(&disk, STEP "mp_rank_00_model_states.pt");
    broken_as(CKR_ITEM_RANK_MISSING, STEP "mp_rank_00_model_states.pt");
    copy_case(ROBIN);
    memio_put(&disk, "bad/latest", "global_step9", 12);
    broken_as(CKR_ITEM_FILES_LATEST, "bad/latest");
    memio_put(&disk, "bad/latest", "../bad/global_step3", 19);
    broken_as(CKR_ITEM_FILES_LATEST, "bad/latest");
    copy_case(ROBIN);
    copy_file(STEP "zero_pp_rank_0_mp_rank_00_optim_states.pt",
              STEP "zero_pp_rank_3_mp_rank_00_optim_states.pt");
    broken_as(CKR_ITEM_FILES_FOREIGN, STEP "zero_pp_rank_3_mp_rank_00_optim_states.pt");
    copy_case(ROBIN);
    copy_file(STEP "zero_pp_rank_0_mp_rank_00_optim_states.pt",
              STEP "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt");
    broken_as(CKR_ITEM_FILES_DUPLICATE, STEP "zero_pp_rank_0_mp_rank_00_optim_states.pt");
    /* a rank's file of another run's sizes */
    copy_case(ROBIN);
    copy_file("in/1/global_step3/zero_pp_rank_0_mp_rank_00_optim_states.pt",
              STEP "zero_pp_rank_0_mp_rank_00_optim_states.pt");
    broken_as(CKR_ITEM_FILES_SIZES, STEP "zero_pp_rank_0_mp_rank_00_optim_states.pt");
    copy_case(ROBIN);
    copy_file(STEP "mp_rank_00_model_states.pt", STEP "layer_00-model_00-model_states.pt");
    broken_as(CKR_ITEM_DEEPSPEED_PARALLEL, STEP "layer_00-model_00-model_states.pt");
    copy_case(ROBIN);
    copy_file(STEP "zero_pp_rank_0_mp_rank_00_optim_states.pt", STEP "mp_rank_00_model_states.pt");
    rename_root(STEP "mp_rank_00_model_states.pt", "zero_pp_rank_0_mp", "copy_of_rank_0_mp");
    broken_as(CKR_ITEM_METADATA, STEP "mp_rank_00_model_states.pt");
    copy_case(PIPE);
    memio_remove(&disk, STEP "layer_03-model_states.pt");
    broken_as(CKR_ITEM_OPTIMIZER_NAMES, NULL);
    memio_remove(&disk, "bad");
}

/* Files a and b of the case k in each other's places; `hide`: with the roots to match. */
static void swap_files(int k, const char *dir, const char *a, const char *b, bool hide)
{
    char from[200], to[200];
    int i;
    copy_case(k);
    for (i = 0; i < 2; i++) {
        snprintf(from, sizeof from, "%s/global_step3/%s.pt", dir, i ? a : b);
        snprintf(to, sizeof to, STEP "%s.pt", i ? b : a);
        copy_file(from, to);
        if (hide) rename_root(to, i ? a : b, i ? b : a);
    }
}

/* What shows that the files of two ranks have changed places: the name inside, the places of the
   parameters, a part's length, padding that is not zero. */
static void changed_places(void)
{
    static const char *const cut[] = { "bf16_zero_pp_rank_0_mp_rank_00_optim_states",
                                       "bf16_zero_pp_rank_1_mp_rank_00_optim_states" };
    static const char *const flat[] = { "zero_pp_rank_0_mp_rank_00_optim_states",
                                        "zero_pp_rank_1_mp_rank_00_optim_states",
                                        "zero_pp_rank_2_mp_rank_00_optim_states" };
    static const char *const models[] = { "zero_pp_rank_0_mp_rank_00_model_states",
                                          "zero_pp_rank_1_mp_rank_00_model_states" };
    char path[200];
    swap_files(CUT, in(CUT), cut[0], cut[1], false);
    snprintf(path, sizeof path, STEP "%s.pt", cut[0]);
    broken_as(CKR_ITEM_FILES_SWAPPED, path);
    swap_files(CUT, in(CUT), cut[0], cut[1], true);
    snprintf(path, sizeof path, STEP "%s.pt", cut[1]);
    broken_as(CKR_ITEM_FILES_SWAPPED, path);
    swap_files(CUT, in(CUT), models[0], models[1], true);
    snprintf(path, sizeof path, STEP "%s.pt", models[1]);
    broken_as(CKR_ITEM_FILES_SWAPPED, path);
    copy_case(CUT);                                    /* rank 0's file twice                */
    snprintf(path, sizeof path, STEP "%s.pt", cut[0]);
    copy_file(path, STEP "copy.pt");
    snprintf(path, sizeof path, STEP "%s.pt", cut[1]);
    copy_file(STEP "copy.pt", path);
    memio_remove(&disk, STEP "copy.pt");
    rename_root(path, cut[0], cut[1]);
    broken_as(CKR_ITEM_FILES_SWAPPED, path);
    swap_files(ELASTIC, in(ELASTIC), flat[0], flat[1], true);
    snprintf(path, sizeof path, STEP "%s.pt", flat[0]);
    broken_as(CKR_ITEM_FILES_SWAPPED, path);
    swap_files(ROBIN, in(ROBIN), flat[0], flat[2], true);      /* its maps are wrong anyway  */
    snprintf(path, sizeof path, STEP "%s.pt", flat[0]);
    broken_as(CKR_ITEM_DEEPSPEED_PARTITION, path);
    memio_remove(&disk, "bad");
}

/* A file with the number `was` of a key's value changed: these pickles hold it as K and a byte. */
static void edit(const char *path, const char *key, uint8_t was, uint8_t now)
{
    memio_file *f = memio_find(&disk, path);
    const size_t n = strlen(key);
    size_t i;
    uint8_t *p;
    if (!CHECK(f != NULL)) return;
    p = (uint8_t *)f->data;
    for (i = 0; i + n + 8 < f->size; i++) {
        size_t k = i + n;
        if (memcmp(p + i, key, n) != 0) continue;
        while (k < i + n + 6 && p[k] != 'K') k++;
        if (p[k] != 'K' || p[k + 1] != was) continue;
        p[k + 1] = now;
        return;
    }
    t_check(false, __FILE__, __LINE__, "%s has no %s", path, key);
}

static void of_another_step(void)
{
    copy_case(CUT);
    edit(STEP "zero_pp_rank_1_mp_rank_00_model_states.pt", "global_steps", 3, 4);
    broken_as(CKR_ITEM_FILES_STEP, STEP "zero_pp_rank_1_mp_rank_00_model_states.pt");
    copy_case(PIPE);
    edit(STEP "mp_rank_01_model_states.pt", "global_steps", 3, 2);
    broken_as(CKR_ITEM_FILES_STEP, STEP "mp_rank_01_model_states.pt");
    memio_remove(&disk, "bad");
}

/* A universal checkpoint has each parameter's whole state. */
static void universal_parts(void)
{
    static const char *const gone[] = { "exp_avg.pt", "exp_avg_sq.pt", "step.pt", "fp32.pt" };
    char path[200];
    size_t i;
    for (i = 0; i < 4; i++) {
        memio_remove(&disk, "bad");
        if (!convert(in(ROBIN), "w/out", 0, 0, -1, "universal")) continue;
        memio_move(&disk, "w/out", "bad");
        snprintf(path, sizeof path, STEP "zero/tok.weight/%s", gone[i]);
        CHECK(memio_find(&disk, path) != NULL);
        memio_remove(&disk, path);
        broken_as(CKR_ITEM_RANK_MISSING, path);
    }
    memio_remove(&disk, "bad");
}

/* The optimizer's own counter against the engine's. */
static void counters_disagree(void)
{
    ckr_ckpt *c;
    const ckr_note *n;
    copy_case(ROBIN);
    edit(STEP "mp_rank_00_model_states.pt", "skipped_steps", 0, 1);
    c = open_ok("bad");
    n = c ? note_of(ckr_ckpt_state(c)->notes, ckr_ckpt_state(c)->n_notes, "CKR_W_DS_UPDATES")
          : NULL;
    if (CHECK(n != NULL)) {
        CHECK_STR(n->old_value, "2");
        CHECK_STR(n->new_value, "3");
    }
    ckr_ckpt_close(c);
    c = open_ok(in(ROBIN));
    if (c) CHECK(!note_of(ckr_ckpt_state(c)->notes, ckr_ckpt_state(c)->n_notes,
                          "CKR_W_DS_UPDATES"));
    ckr_ckpt_close(c);
    memio_remove(&disk, "bad");
}

/* A rank's optimizer file of another update: its step counter is not rank 0's. */
static void of_another_update(void)
{
    static const uint8_t three[4] = { 0, 0, 0x40, 0x40 };
    memio_file *f;
    uint8_t *p;
    size_t i;
    copy_case(ROBIN);
    f = memio_find(&disk, STEP "zero_pp_rank_1_mp_rank_00_optim_states.pt");
    if (!CHECK(f != NULL)) return;
    p = (uint8_t *)f->data;
    for (i = 0; i + 4 < f->size && memcmp(p + i, three, 4) != 0; i++) {}
    p[i + 2] = 0x80;                                   /* 3.0f becomes 4.0f                  */
    broken_as(CKR_ITEM_FILES_STEP, STEP "zero_pp_rank_1_mp_rank_00_optim_states.pt");
    memio_remove(&disk, "bad");
}

/* Files of many ranks are much the same: what is alike in them is kept once, and a rank costs its
   own places and random states. */
static void many_ranks(void)
{
    uint64_t at[2] = { 0, 0 };
    ckr_open_desc d = CKR_ZERO;
    ckr_error e;
    int i;
    for (i = 0; i < 2; i++) {
        uint64_t lo = 100000, hi = 256000000;          /* the arena that just suffices       */
        if (!convert(in(CUT), "w/out", i ? 256 : 64, 1, 3, NULL)) return;
        while (lo + 100000 < hi) {
            ckr_ckpt *c;
            d.limits.max_arena_bytes = (lo + hi) / 2;
            if (open_with("w/out", d, &c, &e) == CKR_OK) hi = (lo + hi) / 2;
            else lo = (lo + hi) / 2;
            ckr_ckpt_close(c);
        }
        at[i] = hi;
        memio_remove(&disk, "w/out");
    }
    t_check((at[1] - at[0]) / 192 < 70000, __FILE__, __LINE__, "%llu bytes a rank",
            (unsigned long long)(at[1] - at[0]) / 192);
}

/* A plan holds of a rank's files their names and sizes; what is in them is made when they are
   written. */
static void plan_of_many_ranks(void)
{
    static const struct { int from; int32_t zero; } rows[] = { { CUT, 3 }, { ALIGNED, 2 } };
    size_t i;
    int k;
    for (i = 0; i < 2; i++) {
        uint64_t peak[2] = { 0, 0 };
        for (k = 0; k < 2; k++) {
            ckr_error e;
            job j;
            memset(&j, 0, sizeof j);
            j.t.topology.dp = k ? 1200 : 200;
            j.t.topology.zero = rows[i].zero;
            j.t.without = CKR_RNG;                     /* a rank's streams are its own       */
            j.c = open_ok(in(rows[i].from));
            if (j.c && CHECK_OK(ckr_plan_create(j.c, &j.t, 0, &j.p, &e), &e))
                peak[k] = ckr_plan_info(j.p)->peak_bytes;
            end(&j);
        }
        t_check(peak[0] && peak[1] - peak[0] < 4000 * 1000, __FILE__, __LINE__,
                "zero %d: %llu bytes a rank", (int)rows[i].zero,
                (unsigned long long)(peak[1] - peak[0]) / 1000);
    }
}

/* Random states of more than one device, a list in each rank's client state: which of them is the
   rank's own is looked up in the source's files while a file is made. */
static void devices(void)
{
    static const uint8_t own[2][16] = { { 7, 0, 0, 0, 0, 0, 0, 0, 4 },
                                        { 7, 0, 0, 0, 0, 0, 0, 0, 8 } };
    static const uint32_t dp[] = { 2, 4, 1 };
    size_t i;
    int k;
    copy_case(CUT);
    for (k = 0; k < 2; k++) {
        char from[80], to[120];
        snprintf(from, sizeof from, DATA "/devices%d.pt", k);
        snprintf(to, sizeof to, STEP "zero_pp_rank_%d_mp_rank_00_model_states.pt", k);
        memio_remove(&disk, to);
        memio_load_file(&disk, from, to);
    }
    for (i = 0; i < sizeof dp / sizeof *dp; i++) {
        ckr_error e;
        job j;
        memset(&j, 0, sizeof j);
        j.t.topology.dp = dp[i];
        j.t.topology.zero = 3;
        j.c = open_ok("bad");
        if (j.c && CHECK_OK(ckr_plan_create(j.c, &j.t, 0, &j.p, &e), &e))
            CHECK_OK(ckr_plan_write(j.p, "w/out", NULL, &e), &e);
        end(&j);
        for (k = 0; k < 2 && dp[i] == 2; k++) {
            char path[120];
            ckr_ckpt *c = NULL;
            uint8_t is[16];
            ckr_open_desc d = CKR_ZERO;
            d.env = &env;
            snprintf(path, sizeof path,
                     "w/out/global_step3/zero_pp_rank_%d_mp_rank_00_model_states.pt", k);
            if (CHECK_OK(ckr_tree_open(path, &d, &c, &e), &e)) {
                const ckr_node *list = ckr_node_get(ckr_node_get(ckr_ckpt_root(c), "rng"), "cuda");
                const ckr_node *n = ckr_node_at(list, (uint64_t)k);
                CHECK(ckr_node_is_list(list) && list->count == 2);
                if (CHECK(n && n->kind == CKR_NODE_TENSOR) &&
                    CHECK_OK(ckr_view_read(c, n->u.view, 0, 16, is, &e), &e))
                    CHECK(memcmp(is, own[k], 16) == 0);
            }
            ckr_ckpt_close(c);
        }
        memio_remove(&disk, "w/out");
    }
    memio_remove(&disk, "bad");
}

/* What the receipt says of the output is what its reader finds: parameters cast from masters,
   masters made of parameters or left out, parameters that only masters stand for, names of a plain
   file. */
static void digests(void)
{
    static const ckr_dtype dtypes[] = { CKR_DTYPE_NONE, CKR_DTYPE_F32, CKR_DTYPE_BF16,
                                        CKR_DTYPE_F16 };
    static const char *const dialects[] = { NULL, NULL, NULL, NULL, "torch", "safetensors", "dcp" };
    uint8_t first[16];
    ckr_receipt receipt;
    ckr_error e;
    size_t i, d;
    int k;
    for (k = 0; k < N_CASES; k++)
        for (i = 0; i < sizeof dialects / sizeof *dialects; i++)
            for (d = 0; d < 4; d++) {
                const char *to = i == 4 ? "w/out.pt" : i == 5 ? "w/out.safetensors" : "w/out";
                job j;
                ckr_result r;
                memset(&j, 0, sizeof j);
                j.t.mode = CKR_MODE_CONTINUE;
                j.t.topology.zero = i < 4 ? stage_of((int32_t)i) : -1;
                j.t.topology.pp = i < 4 ? 1 : 0;
                j.t.topology.dp = i < 4 ? 3 : 0;
                j.t.dialect = dialects[i];
                j.t.dtype = dtypes[d];
                j.c = open_ok(in(k));
                if (j.c && CHECK_OK(ckr_plan_create(j.c, &j.t, 0, &j.p, &e), &e)) {
                    r = ckr_plan_write(j.p, to, &receipt, &e);
                    CHECK(r == CKR_OK || r == CKR_E_REFUSED);
                    if (r == CKR_OK) digest_told(to, &receipt);
                    if (r == CKR_OK && i < 4) CHECK(is_sound(to));
                    digest_of(in(k), first);
                    if (r == CKR_OK && i < 4 && !d) CHECK(!memcmp(receipt.digest, first, 16));
                }
                end(&j);
                memio_remove(&disk, to);
            }
}

/* Weights of any source; another dtype, from the masters; weights only. */
static void others(void)
{
    ckr_ckpt *c;
    ckr_error e;
    job j;
    memset(&j, 0, sizeof j);
    j.t.topology.zero = -1;
    j.t.mode = CKR_MODE_CONTINUE;
    j.t.dialect = "safetensors";
    j.t.slots = "params";
    j.c = open_ok(in(CUT));
    if (j.c && CHECK_OK(ckr_plan_create(j.c, &j.t, 0, &j.p, &e), &e))
        CHECK_OK(ckr_plan_write(j.p, "w/all.safetensors", NULL, &e), &e);
    end(&j);
    memset(&j, 0, sizeof j);
    j.t.topology.zero = -1;
    j.t.mode = CKR_MODE_CONTINUE;
    j.t.dialect = "deepspeed";
    j.c = open_ok("w/all.safetensors");
    if (j.c && CHECK_OK(ckr_plan_create(j.c, &j.t, 0, &j.p, &e), &e))
        CHECK_OK(ckr_plan_write(j.p, "w/out", NULL, &e), &e);
    end(&j);
    c = open_ok("w/out");
    if (c) {
        const ckr_tensor *t = ckr_ckpt_tensor(c, "tok.weight", "param");
        CHECK(t && t->dtype == CKR_DTYPE_BF16);
        CHECK_INT(ckr_ckpt_state(c)->n_groups, 0);
    }
    ckr_ckpt_close(c);
    memio_remove(&disk, "w/out");
    memio_remove(&disk, "w/all.safetensors");
    memset(&j, 0, sizeof j);
    j.t.topology.zero = 1;
    j.t.mode = CKR_MODE_CONTINUE;
    j.t.dtype = CKR_DTYPE_BF16;
    j.c = open_ok(in(ROBIN));
    if (j.c && CHECK_OK(ckr_plan_create(j.c, &j.t, 0, &j.p, &e), &e))
        CHECK_OK(ckr_plan_write(j.p, "w/out", NULL, &e), &e);
    end(&j);
    CHECK(memio_find(&disk, "w/out/global_step3/bf16_zero_pp_rank_2_mp_rank_00_optim_states.pt"));
    c = open_ok("w/out");
    if (c) {
        const ckr_tensor *t = ckr_ckpt_tensor(c, "tok.weight", "param");
        ckr_report *report = NULL;
        CHECK(t && t->dtype == CKR_DTYPE_BF16);
        t = ckr_ckpt_tensor(c, "tok.weight", "master");
        CHECK(t && t->dtype == CKR_DTYPE_F32);
        if (CHECK_OK(ckr_ckpt_check(c, &report, &e), &e)) CHECK(report->sound);
        ckr_report_free(report);
    }
    ckr_ckpt_close(c);
    memio_remove(&disk, "w/out");
    memset(&j, 0, sizeof j);
    j.t.topology.zero = -1;
    j.t.mode = CKR_MODE_TRANSFER;
    j.c = open_ok(in(CUT));
    if (j.c && CHECK_OK(ckr_plan_create(j.c, &j.t, 0, &j.p, &e), &e)) {
        j.f = ckr_plan_info(j.p);
        says(&j, "CKR_DS_NEAREST", CKR_CHANGED);
        CHECK_OK(ckr_plan_write(j.p, "w/out", NULL, &e), &e);
    }
    end(&j);
    c = open_ok("w/out");
    if (c) CHECK_INT(ckr_ckpt_state(c)->progress.step, 0);
    if (c) CHECK_INT(ckr_ckpt_state(c)->n_rng, 0);
    if (c) CHECK(ckr_ckpt_tensor(c, "tok.weight", "master") == NULL);
    ckr_ckpt_close(c);
    memio_remove(&disk, "w/out");
}

/* DeepSpeed compares no copies, so they are before anything is written; of what is written. */
static void contradicts(int32_t zero)
{
    ckr_error e;
    job j;
    if (ask(&j, "bad", 3, 0, zero, NULL)) {
        const ckr_note *n;
        CHECK_INT(ckr_plan_write(j.p, "w/out", NULL, &e), CKR_E_REFUSED);
        CHECK_INT(e.item, CKR_ITEM_PLAN_REFUSED);
        j.f = ckr_plan_info(j.p);
        n = note_of(j.f->notes, j.f->n_notes, "CKR_E_MASTER_DIFFERS");
        if (CHECK(n != NULL)) CHECK_STR(n->subject, "tok.weight");
        CHECK(memio_find(&disk, "w/out") == NULL);
    }
    end(&j);
    memset(&j, 0, sizeof j);
    j.t.mode = CKR_MODE_CONTINUE;
    j.t.topology.zero = -1;
    j.t.without = CKR_OPTIMIZER | CKR_GROUPS | CKR_SCHEDULE;
    j.c = open_ok("bad");
    if (j.c && CHECK_OK(ckr_plan_create(j.c, &j.t, 0, &j.p, &e), &e))
        CHECK_OK(ckr_plan_write(j.p, "w/out", NULL, &e), &e);
    end(&j);
    memio_remove(&disk, "w/out");
}

static bool equal_tensors(const ckr_ckpt *a, const ckr_ckpt *b, const char *name, const char *slot)
{
    const ckr_tensor *t = ckr_ckpt_tensor(a, name, slot), *u = ckr_ckpt_tensor(b, name, slot);
    uint8_t *v, *w;
    size_t n = 0, m = 0;
    bool ok;
    if (!t_check(t && u, __FILE__, __LINE__, "%s %s is missing", name, slot)) return false;
    v = tensor_bytes(a, t, &n);
    w = tensor_bytes(b, u, &m);
    ok = t_check(n == m && !memcmp(v, w, n), __FILE__, __LINE__, "%s %s differs", name, slot);
    free(v);
    free(w);
    return ok;
}

/* A torch file with model, optimizer and scheduler: its numbers become the parameters' slots. Of
   groups whose numbers fit in two ways, and of an export, which has no groups, it is said. */
/* The base of WarmupCosineLR is in no file: the saved LR comes out of it exactly, and one that
   somebody has written is found again. */
static void base_lr(void)
{
    static const double bases[] = { 0.01, 6e-3, 3e-4, 0.005 / 7, 1e-3 / 3, 0.1 / 7 };
    size_t i;
    int k;
    for (i = 0; i < sizeof bases / sizeof *bases; i++)
        for (k = 1; k < 40; k++) {
            const double ratio = 0.05 + 0.95 * k / 41.0, lr = bases[i] * ratio;
            const double base = ckr__ds_base_of(lr, ratio);
            CHECK(ckr__same(base * ratio, lr));
            if (i < 3) CHECK(ckr__same(base, bases[i]));
        }
}

/* ds_to_universal leaves a pipeline's layer files behind; DeepSpeed loads what is left. */
static void bare_pipeline(void)
{
    static const char *const layers[] = { "00", "01", "02", "03", "04", "05" };
    char path[80];
    uint8_t first[16], now[16];
    size_t i;
    job j;
    if (!convert(in(PIPE16), "w/out", 0, 0, -1, "universal")) return;
    for (i = 0; i < sizeof layers / sizeof *layers; i++) {
        snprintf(path, sizeof path, "w/out/global_step3/layer_%s-model_states.pt", layers[i]);
        memio_remove(&disk, path);
    }
    memio_remove(&disk, "w/out/ckptresume.json");
    digest_of(in(PIPE16), first);
    digest_of("w/out", now);
    CHECK(!memcmp(first, now, 16));
    equals_truth("w/out", PIPE16, NULL);
    equals_hyper("w/out", PIPE16);
    CHECK(is_sound("w/out"));
    if (convert("w/out", "w/back", 3, 0, -1, NULL)) equals_truth("w/back", PIPE16, NULL);
    memio_remove(&disk, "w/back");
    if (ask(&j, "w/out", 0, 0, -1, "native")) {
        CHECK_INT(j.f->verdict, CKR_VERDICT_REFUSED);
        says(&j, "CKR_E_DEEPSPEED_UNIVERSAL", CKR_ERROR);
    }
    end(&j);
    memio_remove(&disk, "w/out");
}

/* A torch file without a scheduler, to ZeRO-3: a buffer that no file tells from a frozen parameter,
   and a clock that stands where DeepSpeed's would after three updates. */
static void of_plain(void)
{
    ckr_open_desc d = CKR_ZERO;
    ckr_ckpt *c = NULL;
    ckr_error e;
    int64_t v = -9;
    job j;
    int told;
    d.env = &env;
    memio_load_file(&disk, DATA "/plain.pt", "w/plain.pt");
    for (told = 0; told < 2; told++) {
        memset(&j, 0, sizeof j);
        j.t.mode = CKR_MODE_CONTINUE;
        j.t.dialect = "deepspeed";
        j.t.topology.zero = 3;
        j.t.topology.dp = 2;
        if (told)
            j.t.schedule = "deepspeed:WarmupDecayLR,warmup_max_lr=0.01,warmup_num_steps=4,"
                           "total_num_steps=24,warmup_type=linear";
        j.c = open_ok("w/plain.pt");
        if (j.c && CHECK_OK(ckr_plan_create(j.c, &j.t, 0, &j.p, &e), &e)) {
            j.f = ckr_plan_info(j.p);
            says(&j, "CKR_W_DS_BUFFERS", CKR_APPROX);
            CHECK(setting_find(j.f, told ? "scheduler.type" : "load_lr_scheduler_states") != NULL);
            CHECK_OK(ckr_plan_write(j.p, "w/out", NULL, &e), &e);
        }
        end(&j);
        c = open_ok("w/out");
        if (c) CHECK(ckr_ckpt_tensor(c, "scale", "param")->buffer);
        ckr_ckpt_close(c);
        c = NULL;
        if (CHECK_OK(ckr_tree_open("w/out/global_step3/zero_pp_rank_0_mp_rank_00_model_states.pt",
                                   &d, &c, &e), &e)) {
            const ckr_node *n = ckr_node_get(ckr_ckpt_root(c), "lr_scheduler");
            CHECK((ckr_node_i64(ckr_node_get(n, "last_batch_iteration"), &v) && v == 2) == told);
        }
        ckr_ckpt_close(c);
        memio_remove(&disk, "w/out");
    }
    memio_remove(&disk, "w/plain.pt");
}

static void of_torch(void)
{
    static const char *const names[] = { "tok.weight", "up.weight", "down.weight", "up.bias",
                                         "down.bias" };
    ckr_ckpt *from = NULL, *c = NULL;
    ckr_error e;
    int32_t zero;
    size_t i;
    job j;
    CHECK_OK(ckr_ckpt_open(DATA "/whole.pt", NULL, &from, &e), &e);
    memio_load_file(&disk, DATA "/whole.pt", "w/whole.pt");
    for (zero = 0; from && zero < 4; zero += zero + 1) {
        memset(&j, 0, sizeof j);
        j.t.mode = CKR_MODE_CONTINUE;
        j.t.dialect = "deepspeed";
        j.t.topology.zero = stage_of(zero);
        j.t.topology.dp = 2;
        j.c = open_ok("w/whole.pt");
        if (j.c && CHECK_OK(ckr_plan_create(j.c, &j.t, 0, &j.p, &e), &e)) {
            j.f = ckr_plan_info(j.p);
            says(&j, "CKR_W_PARAM_NAMES_GUESSED", CKR_APPROX);
            says(&j, "CKR_W_DS_OUTSIDE", CKR_LOST);    /* `extra`                             */
            CHECK_OK(ckr_plan_write(j.p, "w/out", NULL, &e), &e);
        }
        end(&j);
        c = open_ok("w/out");
        for (i = 0; c && i < 5; i++) {
            equal_tensors(from, c, names[i], "param");
            equal_tensors(from, c, names[i], "exp_avg_sq");
            equal_tensors(from, c, names[i], "step");
        }
        if (c) {
            const ckr_state *s = ckr_ckpt_state(c);
            double decay = 1;
            CHECK_INT(s->n_ties, 1);
            CHECK_STR(s->ties[0].other, "head.weight");
            CHECK_INT(s->n_groups, 2);
            CHECK_INT(s->groups[0].n_params, 3);
            CHECK(ckr_node_f64(ckr_node_get(s->groups[1].hyper, "weight_decay"), &decay) &&
                  ckr__same(decay, 0));
            CHECK_STR(s->schedules[0].kind, "torch:CosineAnnealingLR");
            CHECK_INT(s->progress.step, 3);
        }
        ckr_ckpt_close(c);
        memio_remove(&disk, "w/out");
    }
    ckr_ckpt_close(from);
    memio_remove(&disk, "w/whole.pt");
    memset(&j, 0, sizeof j);
    j.t.topology.zero = -1;
    j.t.mode = CKR_MODE_CONTINUE;
    j.t.dialect = "safetensors";
    j.t.slots = "all";
    j.c = open_ok(in(ALIGNED));
    if (j.c && CHECK_OK(ckr_plan_create(j.c, &j.t, 0, &j.p, &e), &e))
        CHECK_OK(ckr_plan_write(j.p, "w/all.safetensors", NULL, &e), &e);
    end(&j);
    memset(&j, 0, sizeof j);
    j.t.topology.zero = -1;
    j.t.mode = CKR_MODE_CONTINUE;
    j.t.dialect = "deepspeed";
    j.c = open_ok("w/all.safetensors");
    if (j.c && CHECK_OK(ckr_plan_create(j.c, &j.t, 0, &j.p, &e), &e)) j.f = ckr_plan_info(j.p);
    refused_as(&j, CKR_ITEM_GROUPS_WITHOUT);
    memio_remove(&disk, "w/all.safetensors");
}

/* State of another shape than its parameter's has no place in a flat group. */
static void no_flat_state(void)
{
    static const char *const names[] = { "tok.weight", "norm.weight", "norm.bias", "up.weight",
                                         "up.bias",    "down.weight", "down.bias" };
    ckr_open_desc d = CKR_ZERO;
    ckr_error e;
    job j;
    memset(&j, 0, sizeof j);
    memio_load_file(&disk, "tests/data/plain/numbers.pth", "w/epoch_1_step_3.pth");
    d.env = &env;
    d.names = names;
    d.n_names = sizeof names / sizeof *names;
    j.t.topology.zero = 1;
    j.t.topology.dp = 2;
    j.t.dialect = "deepspeed";
    expect_open(ckr_ckpt_open("w/epoch_1_step_3.pth", &d, &j.c, &e), "numbers", &e);
    if (j.c && CHECK_OK(ckr_plan_create(j.c, &j.t, 0, &j.p, &e), &e)) j.f = ckr_plan_info(j.p);
    refused_as(&j, CKR_ITEM_SLOT_CUT);
    memio_remove(&disk, "w/epoch_1_step_3.pth");
}

/* A master that is not its parameter: `check` says so, DeepSpeed would train on from it. */
static void masters_are_compared(void)
{
    ckr_ckpt *c;
    ckr_report *report = NULL;
    ckr_error e;
    const ckr_tensor *t;
    memio_file *f;
    memio_remove(&disk, "bad");
    memio_add(&disk, "bad", true);
    memio_load(&disk, DATA "/aligned/ckpt", "bad");
    c = open_ok("bad");
    t = c ? ckr_ckpt_tensor(c, "tok.weight", "master") : NULL;
    if (CHECK(t != NULL)) {
        f = memio_find(&disk, "bad/global_step3/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt");
        if (CHECK(f != NULL)) ((uint8_t *)f->data)[t->pieces[0].offset + 3] ^= 0x80;
        if (CHECK_OK(ckr_ckpt_check(c, &report, &e), &e)) {
            CHECK(!report->sound);
            CHECK(note_of(report->notes, report->n_notes, "CKR_E_MASTER_DIFFERS") != NULL);
        }
        ckr_report_free(report);
    }
    ckr_ckpt_close(c);
    contradicts(-1);
    contradicts(3);            /* where parameters are not written, masters stand for them    */
    memio_remove(&disk, "bad");
}

/* A schedule of the coming run: clock and LR in the files, the curve in their configuration. */
static void another_schedule(void)
{
    ckr_error e;
    ckr_ckpt *c;
    const ckr_node *n;
    job j;
    memset(&j, 0, sizeof j);
    j.t.mode = CKR_MODE_CONTINUE;
    j.t.topology.zero = -1;
    j.t.schedule = "deepspeed:WarmupDecayLR,warmup_max_lr=0.01,warmup_num_steps=2,"
                   "total_num_steps=40,warmup_type=linear";
    j.t.max_lr_jump = 1000;
    j.c = open_ok(in(ALIGNED));
    if (j.c && CHECK_OK(ckr_plan_create(j.c, &j.t, 0, &j.p, &e), &e)) {
        j.f = ckr_plan_info(j.p);
        is_set(&j, "scheduler.params.total_num_steps", "40");
        CHECK_OK(ckr_plan_write(j.p, "w/out", NULL, &e), &e);
    }
    end(&j);
    c = open_ok("w/out");
    if (c) {
        const ckr_state *s = ckr_ckpt_state(c);
        double lr = 0, want[2] = { 0, 0 };
        CHECK_STR(s->schedules[0].kind, "deepspeed:WarmupDecayLR");
        n = ckr_node_get(s->schedules[0].params, "total_num_steps");
        CHECK(n && n->kind == CKR_NODE_INT && n->u.i == 40);
        CHECK_OK(ckr_schedule_values(&s->schedules[0], CKR_COLUMN_LR, 4, 1, want, NULL, &e), &e);
        CHECK(ckr_node_f64(ckr_node_get(s->groups[0].hyper, "lr"), &lr) && ckr__same(lr, want[0]));
    }
    ckr_ckpt_close(c);
    memio_remove(&disk, "w/out");
}

/* DeepSpeed's schedulers are functions of ds_config and of last_batch_iteration. Read back, the
   result's LR is what was decided for every update; or the plan is refused. */
static void policy_of(int k, const char *schedule, ckr_lr_policy policy, bool holds)
{
    double a[2 * 36], b[2 * 36];
    const ckr_schedule *s;
    ckr_ckpt *c = NULL;
    ckr_error e;
    uint64_t i, n;
    job j;
    memset(&j, 0, sizeof j);
    j.t.mode = CKR_MODE_CONTINUE;
    j.t.topology.zero = -1;
    j.t.schedule = schedule;
    j.t.lr_policy = policy;
    j.t.rewarm_steps = 3;
    j.c = open_ok(in(k));
    if (!j.c || !CHECK_OK(ckr_plan_create(j.c, &j.t, 0, &j.p, &e), &e)) {
        end(&j);
        return;
    }
    j.f = ckr_plan_info(j.p);
    t_check((j.f->verdict != CKR_VERDICT_REFUSED) == holds, __FILE__, __LINE__, "%d %s",
            (int)policy, schedule);
    if (!holds) says(&j, "CKR_E_SCHEDULE_HOLD", CKR_ERROR);
    if (holds && CHECK(j.f->n_settings > 0)) {
        CHECK_OK(ckr_schedule_values(j.f->after, CKR_COLUMN_LR, 4, 36, a, NULL, &e), &e);
        CHECK_OK(ckr_plan_write(j.p, "w/out", NULL, &e), &e);
        c = open_ok("w/out");
    }
    s = c ? ckr_ckpt_state(c)->schedules : NULL;
    n = s ? s->n_lanes : 0;
    if (s) CHECK_OK(ckr_schedule_values(s, CKR_COLUMN_LR, 4, 36, b, NULL, &e), &e);
    for (i = 0; i < 36 * n; i++)
        t_check(fabs(a[i] - b[i]) <= 1e-12 * fabs(a[i]) + 1e-18, __FILE__, __LINE__,
                "%d %s: update %llu: %.17g, decided %.17g", (int)policy, schedule,
                (unsigned long long)(4 + i / n), b[i], a[i]);
    CHECK(!s || !ckr_node_get(s->params, "lr"));
    ckr_ckpt_close(c);
    end(&j);
    memio_remove(&disk, "w/out");
}

static void policies(void)
{
    static const char decay[] = "deepspeed:WarmupDecayLR,warmup_max_lr=0.01,warmup_num_steps=2,"
                                "total_num_steps=40,warmup_type=linear";
    static const char floored[] = "deepspeed:WarmupDecayLR,warmup_max_lr=0.01,warmup_num_steps=2,"
                                  "warmup_min_lr=0.001,total_num_steps=40,warmup_type=linear";
    static const char cosine[] = "deepspeed:WarmupCosineLR,warmup_num_steps=2,total_num_steps=40,"
                                 "cos_min_ratio=0.1,lr=0.01";
    static const char cycle[] = "deepspeed:OneCycle,cycle_min_lr=0.001,cycle_max_lr=0.01,"
                                "cycle_first_step_size=12,cycle_momentum=false";
    policy_of(ALIGNED, decay, CKR_LR_SPLICE, true);
    policy_of(ALIGNED, decay, CKR_LR_REWARM, true);
    policy_of(ALIGNED, floored, CKR_LR_SPLICE, true);
    policy_of(ALIGNED, floored, CKR_LR_REWARM, false); /* its floor is not where it begins   */
    policy_of(ALIGNED, cosine, CKR_LR_SPLICE, true);
    policy_of(ALIGNED, cosine, CKR_LR_TARGET, true);
    policy_of(ALIGNED, cosine, CKR_LR_REWARM, false);  /* it begins in the middle of a cosine */
    policy_of(ALIGNED, cycle, CKR_LR_SPLICE, true);
    policy_of(PIPE, decay, CKR_LR_SPLICE, true);
    policy_of(CUT, decay, CKR_LR_TARGET, true);
}

static void faults_on_the_way(void)
{
    static const int from[] = { CUT, PIPE16, ALIGNED };
    whole w;
    size_t i;
    for (i = 0; i < 3; i++) {
        memset(&w, 0, sizeof w);
        w.path = in(from[i]);
        w.target = target_of(0, 0, 3, -1, NULL);
        whole_way_fails(&w, 0);
    }
}

/* Rows of CKR__ITEMS that this program owns. */
static void every_item(void)
{
    static const ckr_item never[] = { CKR_ITEM_OK };
    bad_all_seen(BAD_DEEPSPEED, never);
}

int main(int argc, char **argv)
{
    int k;
    t_begin(argc, argv);
    load_cases();
    RUN(what_is_read);
    RUN(other_sizes);
    RUN(other_stages);
    RUN(pipelines);
    RUN(streams_without_file);
    RUN(told_again);
    RUN(settings);
    RUN(stages);
    RUN(batch_size);
    RUN(parts_left_out);
    RUN(unknown_keys);
    RUN(to_half);
    RUN(silent_failures);
    RUN(refused);
    RUN(unknown_partition);
    RUN(broken);
    RUN(changed_places);
    RUN(of_another_step);
    RUN(of_another_update);
    RUN(many_ranks);
    RUN(plan_of_many_ranks);
    RUN(devices);
    RUN(universal_parts);
    RUN(counters_disagree);
    RUN_LONG(digests);
    RUN(others);
    RUN(of_torch);
    RUN(no_flat_state);
    RUN(of_plain);
    RUN(base_lr);
    RUN(bare_pipeline);
    RUN(masters_are_compared);
    RUN(another_schedule);
    RUN(policies);
    RUN(faults_on_the_way);
    if (!t_now.only) RUN(every_item);
    for (k = 0; k < N_CASES; k++) ckr_ckpt_close(json[k]);
    memio_free(&disk);
    return t_end();
}
