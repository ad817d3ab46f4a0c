/* Real checkpoints of accelerate from tests/data: every tensor against the live process, there and
   after conversion to other numbers of processes and back; the learning rate of the uninterrupted
   run on a clock of other ticks; names, streams, leftovers, refusals, faults; the same files laid
   out as the HF Trainer lays them out. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "t.h"
#define CKPT_OWN_OPEN
#include "ckpt.h"
#include "tree.h"
#include "settings.h"

#define DATA "tests/data/accelerate"

enum { SEQ = 0, TIED, N_CASES };
static const char *const cases[] = { "acc024_w2", "acc_w2_bin_tied_bf16" };
static ckr_ckpt *json[N_CASES];
static const char *names[N_CASES][64];
static size_t n_names[N_CASES];

static void load_cases(void)
{
    int k;
    size_t i;
    ckr_error e;
    disk_begin();
    for (k = 0; k < N_CASES; k++) {
        char from[256], to[64];
        const ckr_node *list;
        snprintf(from, sizeof from, "%s/%s/ckpt", DATA, cases[k]);
        snprintf(to, sizeof to, "in/%d", k);
        memio_add(&disk, to, true);
        memio_load(&disk, from, to);
        snprintf(from, sizeof from, "%s/%s/check.json", DATA, cases[k]);
        if (!CHECK_OK(ckr_tree_open(from, NULL, &json[k], &e), &e)) exit(1);
        list = ckr_node_get(ckr_ckpt_root(json[k]), "names");
        for (i = 0; i < 64 && ckr_node_at(list, i); i++)
            names[k][i] = ckr_node_str(ckr_node_at(list, i));
        n_names[k] = i;
    }
}

static ckr_result open_as(const char *path, int k, ckr_ckpt **c, ckr_error *e)
{
    ckr_open_desc d = CKR_ZERO;
    d.env = &env;
    if (k >= 0) d.names = names[k];
    if (k >= 0) d.n_names = n_names[k];
    return ckr_ckpt_open(path, &d, c, e);
}

static ckr_ckpt *open_ok(const char *path, int k)
{
    ckr_ckpt *c = NULL;
    ckr_error e;
    expect_open(open_as(path, k, &c, &e), path, &e);
    return c;
}

/* Another layout of the same bytes. */
static void copy_file(const char *from, const char *to)
{
    const memio_file *f = memio_find(&disk, from);
    if (CHECK(f != NULL)) memio_put(&disk, to, f->data, (size_t)f->size);
}

static void copy_text(const char *to, const char *text)
{
    memio_put(&disk, to, text, strlen(text));
}

static bool convert(const char *from, int k, const char *to, uint32_t dp)
{
    const ckr_target t = target_of(0, 0, dp, -1, NULL);
    return written(open_ok(from, k), from, to, &t);
}

static void digest_of(const char *path, int k, uint8_t total[16])
{
    ckr_ckpt *c = open_ok(path, k);
    ckr_error e;
    memset(total, 0, 16);
    if (c) CHECK_OK(ckr_ckpt_digest(c, NULL, total, &e), &e);
    ckr_ckpt_close(c);
}

/* Every tensor of the live process, bit for bit. */
static void equals_truth(const char *path)
{
    ckr_ckpt *c = open_ok(path, TIED), *truth = NULL;
    const ckr_state *s;
    ckr_error e;
    uint64_t i, found = 0;
    if (!CHECK_OK(ckr_ckpt_open(DATA "/acc_w2_bin_tied_bf16/truth.safetensors", NULL, &truth, &e),
                  &e))
        return;
    s = ckr_ckpt_state(truth);
    for (i = 0; c && i < s->n_tensors; i++) {
        const ckr_tensor *want = s->tensors[i], *have;
        char name[256], *slot;
        snprintf(name, sizeof name, "%s", want->name);
        slot = !strncmp(name, "optimizer.state.", 16) ? strrchr(name, '.') : NULL;
        if (slot) *slot = 0;
        have = ckr_ckpt_tensor(c, slot ? name + 16 : name, slot ? slot + 1 : "param");
        if (!have && !strcmp(name, "head.weight")) continue;   /* the other name of emb.weight */
        if (!t_check(have != NULL, __FILE__, __LINE__, "%s is missing", want->name)) continue;
        same_tensor(c, have, truth, want, path);
        found++;
    }
    if (c) CHECK_INT(found, ckr_ckpt_state(c)->n_tensors);
    ckr_ckpt_close(c);
    ckr_ckpt_close(truth);
}

static void what_is_read(void)
{
    ckr_ckpt *c = open_ok("in/1", TIED);
    const ckr_state *s;
    uint64_t i, streams[2] = { 0, 0 };
    if (!c) return;
    s = ckr_ckpt_state(c);
    CHECK_STR(s->dialect, "accelerate");
    CHECK_INT(s->topology.dp, 2);
    CHECK_INT(s->progress.step, 7);
    CHECK_INT(s->n_groups, 2);
    CHECK_INT(s->n_ties, 1);
    CHECK_STR(s->ties[0].name, "emb.weight");
    CHECK_STR(s->ties[0].other, "head.weight");
    CHECK_INT(s->n_schedules, 1);
    CHECK_STR(s->schedules[0].clock, "tick");
    CHECK_INT(s->schedules[0].rate, 2);
    CHECK(s->schedules[0].opaque);
    for (i = 0; i < s->n_rng; i++) streams[s->rng[i].rank & 1]++;
    CHECK_INT(streams[0], 3);
    CHECK_INT(streams[1], 3);
    CHECK_INT(s->rng[0].n_bytes, 2500);
    ckr_ckpt_close(c);
    equals_truth("in/1");
}

static void there_and_back(void)
{
    static const uint32_t sizes[] = { 2, 1, 3, 6, 8 };
    size_t i;
    int k;
    for (k = 0; k < N_CASES; k++)
        for (i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            uint8_t first[16], d[16];
            char last[64];
            ckr_ckpt *c;
            digest_of(k ? "in/1" : "in/0", k, first);
            if (!convert(k ? "in/1" : "in/0", k, "w/out", sizes[i])) continue;
            c = open_ok("w/out", k);
            if (c) CHECK_INT(ckr_ckpt_state(c)->topology.dp, sizes[i]);
            if (c) CHECK_INT(ckr_ckpt_state(c)->progress.step, 7);
            ckr_ckpt_close(c);
            snprintf(last, sizeof last, "w/out/random_states_%u.pkl", (unsigned)sizes[i] - 1);
            CHECK(memio_find(&disk, last) != NULL);
            snprintf(last, sizeof last, "w/out/random_states_%u.pkl", (unsigned)sizes[i]);
            CHECK(memio_find(&disk, last) == NULL);
            digest_of("w/out", k, d);
            CHECK(!memcmp(first, d, 16));
            if (k == TIED) equals_truth("w/out");
            if (convert("w/out", k, "w/back", 2)) digest_of("w/back", k, d);
            CHECK(!memcmp(first, d, 16));
            memio_remove(&disk, "w/out");
            memio_remove(&disk, "w/back");
        }
}

/* The LR of updates 8.. of a directory, from its files alone, against the uninterrupted run. */
static void lr_goes_on(const char *path, uint32_t dp, double tolerance)
{
    const ckr_node *want = ckr_node_get(ckr_ckpt_root(json[SEQ]), "lr");
    ckr_ckpt *c = open_ok(path, SEQ);
    double lr[26];
    uint64_t g, i;
    ckr_error e;
    if (!c) return;
    CHECK_INT(ckr_ckpt_state(c)->n_schedules, 1);
    CHECK_OK(ckr_schedule_values(&ckr_ckpt_state(c)->schedules[0], CKR_COLUMN_LR, 8, 13, lr, NULL,
                                 &e), &e);
    for (g = 0; g < 2; g++)
        for (i = 0; i < 13; i++) {
            double w = 0;
            if (!ckr_node_f64(ckr_node_at(ckr_node_at(want, g), 7 + i), &w)) continue;
            t_check(fabs(lr[2 * i + g] - w) <= tolerance * w, __FILE__, __LINE__,
                    "%u processes: update %llu: %.17g, live %.17g", (unsigned)dp,
                    (unsigned long long)(8 + i), lr[2 * i + g], w);
        }
    ckr_ckpt_close(c);
}

/* The saved scheduler's integers, back after other numbers of processes. */
static void scheduler_is(const char *path, uint32_t by)
{
    static const char *const keys[] = { "/last_epoch", "/_milestones/0",
                                        "/_schedulers/0/last_epoch", "/_schedulers/0/_step_count",
                                        "/_schedulers/0/total_iters", "/_schedulers/1/last_epoch",
                                        "/_schedulers/1/_step_count", "/_schedulers/1/T_max" };
    ckr_open_desc d = CKR_ZERO;
    ckr_ckpt *a = NULL, *b = NULL;
    ckr_error e;
    size_t i;
    d.env = &env;
    CHECK_OK(ckr_tree_open("in/0/scheduler.bin", &d, &a, &e), &e);
    CHECK_OK(ckr_tree_open(path, &d, &b, &e), &e);
    for (i = 0; a && b && i < sizeof keys / sizeof *keys; i++) {
        int64_t x = -1, y = -2;
        ckr_node_i64(ckr_node_find(ckr_ckpt_root(a), keys[i]), &x);
        ckr_node_i64(ckr_node_find(ckr_ckpt_root(b), keys[i]), &y);
        t_check(x == y, __FILE__, __LINE__, "by %u: %s is %lld, was %lld", (unsigned)by, keys[i],
                (long long)y, (long long)x);
    }
    ckr_ckpt_close(a);
    ckr_ckpt_close(b);
}

static void clock_of_other_ticks(void)
{
    static const uint32_t sizes[] = { 1, 3, 4, 6, 8 };
    ckr_open_desc d = CKR_ZERO;
    size_t i;
    d.env = &env;
    lr_goes_on("in/0", 2, 4e-16);
    for (i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        ckr_ckpt *c = NULL;
        ckr_error e;
        const ckr_node *n;
        int64_t v = 0;
        if (!convert("in/0", SEQ, "w/out", sizes[i])) continue;
        lr_goes_on("w/out", sizes[i], 4e-16);    /* the side file knows how it was rounded     */
        memio_remove(&disk, "w/out/ckptresume.json");
        lr_goes_on("w/out", sizes[i], 2e-15);
        CHECK_OK(ckr_tree_open("w/out/scheduler.bin", &d, &c, &e), &e);
        n = c ? ckr_ckpt_root(c) : NULL;
        CHECK(ckr_node_i64(ckr_node_get(n, "last_epoch"), &v) && v == 7 * (int64_t)sizes[i]);
        CHECK(ckr_node_i64(ckr_node_find(n, "/_milestones/0"), &v) && v == 3 * (int64_t)sizes[i]);
        CHECK(ckr_node_i64(ckr_node_find(n, "/_schedulers/0/total_iters"), &v) &&
              v == 3 * (int64_t)sizes[i]);
        CHECK(ckr_node_i64(ckr_node_find(n, "/_schedulers/1/T_max"), &v) &&
              v == 17 * (int64_t)sizes[i]);
        CHECK(ckr_node_i64(ckr_node_find(n, "/_schedulers/1/_step_count"), &v) &&
              v == 4 * (int64_t)sizes[i] + 2);         /* torch 2.1 counts one more than it ticks */
        ckr_ckpt_close(c);
        if (convert("w/out", SEQ, "w/back", 2)) scheduler_is("w/back/scheduler.bin", sizes[i]);
        memio_remove(&disk, "w/back");
        memio_remove(&disk, "w/out");
    }
}

/* A function of the trainer's: its clock follows, and the report says so; and that no file tells
   the batch that other processes share. */
static void opaque_clock(void)
{
    static const ckr_setting batch = { NULL, "batch_size", "12" };
    ckr_ckpt *c = open_ok("in/1", TIED);
    ckr_target t = CKR_ZERO;
    ckr_plan *p = NULL;
    ckr_error e;
    const ckr_plan_facts *f;
    if (!c) return;
    t.mode = CKR_MODE_CONTINUE;
    t.topology.zero = -1;
    t.topology.dp = 6;
    if (CHECK_OK(ckr_plan_create(c, &t, 0, &p, &e), &e)) {
        const ckr_note *n;
        f = ckr_plan_info(p);
        CHECK_INT(f->verdict, CKR_VERDICT_APPROX);
        n = note_of(f->notes, f->n_notes, "CKR_LR_CLOCK");
        CHECK(n && n->severity == CKR_APPROX);
        if (n) CHECK_STR(n->new_value, "42 (6 per update)");
        CHECK(note_of(f->notes, f->n_notes, "CKR_W_RNG_DERIVED") != NULL);
        CHECK(note_of(f->notes, f->n_notes, "CKR_W_TOPOLOGY") != NULL);
        n = note_of(f->notes, f->n_notes, "CKR_W_BATCH_UNKNOWN");
        CHECK(n && n->severity == CKR_CHANGED);
    }
    ckr_plan_free(p);
    p = NULL;
    t.sets = &batch;
    t.n_sets = 1;
    if (CHECK_OK(ckr_plan_create(c, &t, 0, &p, &e), &e)) {
        f = ckr_plan_info(p);
        CHECK_STR(setting_value(f, "batch_size"), "2");
        CHECK(!note_of(f->notes, f->n_notes, "CKR_W_BATCH_UNKNOWN"));
    }
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

static bool has_kind(const ckr_node *n, int kind, int depth)
{
    const uint64_t width = ckr_node_is_dict(n) ? 2 : 1;
    uint64_t i;
    if (!n || depth > 8) return false;
    if (n->kind == kind) return true;
    if (!ckr_node_is_dict(n) && !ckr_node_is_list(n)) return false;
    for (i = 0; i < width * n->count; i++)
        if (has_kind(n->u.items[i], kind, depth + 1)) return true;
    return false;
}

/* numpy.core is refused by accelerate under NumPy 2: the words are a list. */
static void streams_need_no_numpy(void)
{
    ckr_open_desc d = CKR_ZERO;
    ckr_ckpt *a = NULL, *b = NULL;
    ckr_error e;
    d.env = &env;
    if (!convert("in/0", SEQ, "w/out", 2)) return;
    CHECK_OK(ckr_tree_open("in/0/random_states_1.pkl", &d, &a, &e), &e);
    CHECK_OK(ckr_tree_open("w/out/random_states_1.pkl", &d, &b, &e), &e);
    if (a && b) {
        const ckr_node *was = ckr_node_find(ckr_ckpt_root(a), "/numpy_random_seed/1"),
                       *now = ckr_node_find(ckr_ckpt_root(b), "/numpy_random_seed/1");
        uint64_t i;
        CHECK(has_kind(ckr_ckpt_root(a), CKR_NODE_NDARRAY, 0));
        CHECK(!has_kind(ckr_ckpt_root(b), CKR_NODE_NDARRAY, 0));
        if (CHECK(was && now && now->count == 624))
            for (i = 0; i < 624; i++)
                CHECK_INT(now->u.items[i]->u.i, ckr__load_u32(was->u.view->bytes + 4 * i));
    }
    ckr_ckpt_close(a);
    ckr_ckpt_close(b);
    memio_remove(&disk, "w/out");
}

/* The streams of `path` for dp processes; dp 0: as saved. */
static ckr_rng_streams *streams_for(const char *path, uint32_t dp)
{
    return streams_of(open_ok(path, -1), dp);
}

/* Every stream of a is b's of that rank and name. */
static void same_streams(const ckr_rng_streams *a, const ckr_rng_streams *b, const char *label)
{
    uint64_t i;
    CHECK_INT(a->n_ranks, b->n_ranks);
    CHECK_INT(a->n_streams, b->n_streams);
    for (i = 0; i < (uint64_t)a->n_ranks * a->n_streams; i++) {
        const uint32_t rank = (uint32_t)(i / a->n_streams);
        const ckr_rng_given *x = &a->given[i], *y = ckr_rng_find(b, rank, x->kind, x->name);
        t_check(y && x->state && y->state && ckr_rng_equal(x->state, y->state), __FILE__, __LINE__,
                "%s: rank %u, %s %s", label, (unsigned)rank, x->kind, x->name);
    }
}

static const ckr_rng *torch_stream(const ckr_rng_streams *s, uint32_t rank)
{
    return ckr_rng_find(s, rank, "torch_cpu", "default")->state;
}

/* What a conversion wrote is what was planned; on the old number of ranks everything is back, those
   that had no rank in between too. */
static void streams_come_back(void)
{
    static const uint32_t ranks[] = { 1, 3, 8 };
    ckr_rng_streams *saved = streams_for("in/0", 0);
    size_t i, k, m;
    CHECK_INT(saved->n_ranks, 2);
    CHECK_INT(saved->n_streams, 3);
    for (i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        ckr_rng_streams *want = streams_for("in/0", ranks[i]), *have = NULL, *back = NULL;
        CHECK(want->disjoint);
        if (!convert("in/0", SEQ, "w/a", ranks[i]) || !convert("w/a", SEQ, "w/b", 2)) continue;
        have = streams_for("w/a", 0);
        back = streams_for("w/b", 0);
        same_streams(want, have, "planned");
        same_streams(saved, back, "back");
        for (k = 0; k < have->n_ranks; k++)             /* no rank draws what another draws */
            for (m = 0; m < k; m++)
                CHECK(!ckr_rng_equal(torch_stream(have, (uint32_t)k),
                                     torch_stream(have, (uint32_t)m)));
        ckr_rng_streams_free(want);
        ckr_rng_streams_free(have);
        ckr_rng_streams_free(back);
        memio_remove(&disk, "w/a");
        memio_remove(&disk, "w/b");
    }
    ckr_rng_streams_free(saved);
}

/* One rank's file shows nothing of the others': they get streams of their own, not copies. */
static void streams_of_one_rank(void)
{
    ckr_rng_streams *s = NULL;
    uint32_t i, k;
    if (!convert("in/0", SEQ, "w/a", 1)) return;
    memio_remove(&disk, "w/a/ckptresume.json");
    s = streams_for("w/a", 8);
    CHECK_INT(s->n_ranks, 8);
    for (i = 0; i < s->n_ranks; i++)
        for (k = 0; k < i; k++)
            CHECK(!ckr_rng_equal(torch_stream(s, i), torch_stream(s, k)));
    CHECK(note_of(s->notes, s->n_notes, "CKR_RNG_SHARED") == NULL);
    CHECK(note_of(s->notes, s->n_notes, "CKR_W_RNG_DERIVED") != NULL);
    ckr_rng_streams_free(s);
    memio_remove(&disk, "w/a");
}

/* The scheduler knows how many processes there were: a rank without a file is still a rank. */
static void rank_file_missing(void)
{
    size_t i;
    for (i = 0; i < 2; i++) {
        ckr_rng_streams *want = streams_for("in/0", 3), *have = NULL;
        ckr_ckpt *c;
        char path[64];
        const ckr_note *n;
        ckr_report *report = NULL;
        ckr_error e;
        if (!convert("in/0", SEQ, "w/a", 3)) return;
        memio_remove(&disk, "w/a/ckptresume.json");
        snprintf(path, sizeof path, "w/a/random_states_%u.pkl", i ? 0u : 2u);
        memio_remove(&disk, path);
        c = open_ok("w/a", SEQ);
        if (!c) return;
        CHECK_INT(ckr_ckpt_state(c)->topology.dp, 3);
        CHECK_INT(ckr_ckpt_state(c)->schedules[0].rate, 3);
        n = note_of(ckr_ckpt_state(c)->notes, ckr_ckpt_state(c)->n_notes, "CKR_E_TRAINER_RANDOM");
        if (CHECK(n && n->severity == CKR_ERROR)) {
            CHECK_STR(n->subject, path + 4);
            CHECK_STR(n->old_value, "files of 2 of 3 ranks");
        }
        if (CHECK_OK(ckr_ckpt_check(c, &report, &e), &e)) {
            CHECK(!report->sound);
            ckr_report_free(report);
        }
        ckr_ckpt_close(c);
        have = streams_for("w/a", 3);
        if (CHECK(have->n_ranks == 3)) {
            CHECK(note_of(have->notes, have->n_notes, "CKR_W_RNG_MISSING") != NULL);
            CHECK(ckr_rng_equal(torch_stream(want, 1), torch_stream(have, 1)));
            CHECK(ckr_rng_equal(torch_stream(want, i ? 0 : 2), torch_stream(have, i ? 0 : 2)) ==
                  (i == 0));               /* derived from the same two, or another key       */
        }
        ckr_rng_streams_free(want);
        ckr_rng_streams_free(have);
        if (convert("w/a", SEQ, "w/b", 2)) lr_goes_on("w/b", 2, 2e-15);
        memio_remove(&disk, "w/a");
        memio_remove(&disk, "w/b");
    }
}

/* A rank alone has a device and a value that is no generator's: on fewer ranks they are kept, on
   more they stay that rank's, and they come back with it. */
static void of_one_rank_alone(void)
{
    static const char pickle[] = "(dS'xm_seed'\nI777\nsS'torch_npu_manual_seed'\n"
                                 "(lp0\nsS'mine'\n(lp1\nI5\naF0.1\na(I1\nS'x'\ntaNas.";
    static const uint32_t ranks[] = { 1, 3 };
    ckr_open_desc d = CKR_ZERO;
    size_t i;
    d.env = &env;
    for (i = 0; i < 2; i++) {
        ckr_ckpt *c = NULL;
        ckr_error e;
        const ckr_node *n;
        int64_t v = 0;
        double f = 0;
        memio_add(&disk, "one", true);
        memio_load(&disk, DATA "/acc024_w2/ckpt", "one");
        copy_text("one/random_states_1.pkl", pickle);
        if (!convert("one", SEQ, "w/a", ranks[i]) || !convert("w/a", SEQ, "w/b", 2)) return;
        CHECK_OK(ckr_tree_open("w/a/random_states_0.pkl", &d, &c, &e), &e);
        n = c ? ckr_ckpt_root(c) : NULL;
        CHECK(!ckr_node_get(n, "xm_seed") && !ckr_node_get(n, "mine"));
        ckr_ckpt_close(c);
        CHECK_OK(ckr_tree_open("w/b/random_states_1.pkl", &d, &c, &e), &e);
        n = c ? ckr_ckpt_root(c) : NULL;
        CHECK(ckr_node_i64(ckr_node_get(n, "xm_seed"), &v) && v == 777);
        CHECK(ckr_node_i64(ckr_node_find(n, "/mine/0"), &v) && v == 5);
        CHECK(ckr_node_f64(ckr_node_find(n, "/mine/1"), &f) && f == 0.1);
        CHECK(ckr_node_find(n, "/mine/2") && ckr_node_find(n, "/mine/2")->kind == CKR_NODE_TUPLE);
        CHECK(ckr_node_find(n, "/mine/3") && ckr_node_find(n, "/mine/3")->kind == CKR_NODE_NONE);
        ckr_ckpt_close(c);
        memio_remove(&disk, "w/a");
        memio_remove(&disk, "w/b");
        memio_remove(&disk, "one");
    }
}

/* The same states on all ranks are found; --rng remap gives each its own. */
static void equal_on_all_ranks(void)
{
    ckr_rng_streams *s = NULL;
    ckr_rng_want want = CKR_ZERO;
    ckr_report *report = NULL;
    ckr_ckpt *c;
    ckr_error e;
    memio_add(&disk, "eq", true);
    memio_load(&disk, DATA "/acc024_w2/ckpt", "eq");
    copy_file("in/0/random_states_0.pkl", "eq/random_states_1.pkl");
    c = open_ok("eq", SEQ);
    if (!c) return;
    CHECK_OK(ckr_ckpt_check(c, &report, &e), &e);
    CHECK(note_of(report->notes, report->n_notes, "CKR_W_RNG_DUPLICATES") != NULL);
    CHECK(!report->sound);             /* the archive in random_states_1.pkl is rank 0's   */
    ckr_report_free(report);
    want.mode = CKR_MODE_CONTINUE;
    CHECK_OK(ckr_ckpt_rng(c, &want, &s, &e), &e);
    CHECK(note_of(s->notes, s->n_notes, "CKR_W_RNG_DUPLICATES") != NULL);
    CHECK(note_of(s->notes, s->n_notes, "CKR_RNG_SCOPE") != NULL);
    CHECK_STR(note_of(s->notes, s->n_notes, "CKR_RNG_SCOPE")->new_value, "one for all ranks");
    CHECK(ckr_rng_equal(torch_stream(s, 0), torch_stream(s, 1)));
    ckr_rng_streams_free(s);
    want.policy = CKR_RNG_REMAP;
    CHECK_OK(ckr_ckpt_rng(c, &want, &s, &e), &e);
    CHECK(!ckr_rng_equal(torch_stream(s, 0), torch_stream(s, 1)));
    CHECK(note_of(s->notes, s->n_notes, "CKR_RNG_REPAIRED") != NULL && s->disjoint);
    ckr_rng_streams_free(s);
    ckr_ckpt_close(c);
    memio_remove(&disk, "eq");
}

/* Somebody trains on what was converted and leaves the side file there: what it carries is of
   another moment. */
static void side_file_of_the_past(void)
{
    ckr_rng_streams *saved = streams_for("in/0", 0), *back = NULL;
    if (!convert("in/0", SEQ, "w/a", 1)) return;
    back = streams_for("w/a", 2);
    CHECK(ckr_rng_equal(torch_stream(saved, 1), torch_stream(back, 1)));
    ckr_rng_streams_free(back);
    copy_file("in/1/pytorch_model.bin", "w/a/pytorch_model.bin");      /* other weights      */
    copy_file("in/1/optimizer.bin", "w/a/optimizer.bin");
    back = streams_for("w/a", 2);
    CHECK(note_of(back->notes, back->n_notes, "CKR_W_RNG_STALE") != NULL);
    ckr_rng_streams_free(back);
    copy_file("in/0/pytorch_model.bin", "w/a/pytorch_model.bin");
    copy_file("in/0/optimizer.bin", "w/a/optimizer.bin");
    back = streams_for("w/a", 2);
    CHECK(note_of(back->notes, back->n_notes, "CKR_W_RNG_STALE") == NULL);
    ckr_rng_streams_free(back);
    copy_file("in/1/random_states_0.pkl", "w/a/random_states_0.pkl");  /* it has drawn       */
    back = streams_for("w/a", 2);
    CHECK(!ckr_rng_equal(torch_stream(saved, 1), torch_stream(back, 1)));
    CHECK(note_of(back->notes, back->n_notes, "CKR_W_RNG_STALE") != NULL);
    CHECK(note_of(back->notes, back->n_notes, "CKR_RNG_RETURNED") == NULL);
    ckr_rng_streams_free(back);
    ckr_rng_streams_free(saved);
    memio_remove(&disk, "w/a");
}

/* Tensors of one side alone are on that side: -1 or 1, however far apart their names are. */
static void tensors_of_one_side(void)
{
    ckr_ckpt *a = open_ok("in/0", SEQ), *b = open_ok("in/1", TIED);
    ckr_diff *d = NULL;
    ckr_error e;
    uint64_t i, n = 0;
    if (a && b && CHECK_OK(ckr_ckpt_diff(a, b, &d, &e), &e)) {
        for (i = 0; i < d->n_tensors; i++) {
            CHECK(d->tensors[i].where >= -1 && d->tensors[i].where <= 1);
            n += d->tensors[i].where != 0;
        }
        CHECK(n > 0);
        ckr_diff_free(d);
    }
    ckr_ckpt_close(a);
    ckr_ckpt_close(b);
}

/* Policies of the plan: recover keeps to the saved number of ranks; reseed takes nothing saved. */
static void streams_by_policy(void)
{
    ckr_ckpt *c = open_ok("in/0", SEQ);
    ckr_target t = CKR_ZERO;
    ckr_plan *p = NULL;
    ckr_error e;
    const ckr_plan_facts *f;
    if (!c) return;
    t.topology.zero = -1;
    t.topology.dp = 3;
    t.mode = CKR_MODE_RECOVER;
    if (CHECK_OK(ckr_plan_create(c, &t, 0, &p, &e), &e))
        CHECK_INT(ckr_plan_info(p)->verdict, CKR_VERDICT_REFUSED);
    ckr_plan_free(p);
    t.mode = CKR_MODE_CONTINUE;
    t.rng = CKR_RNG_RESEED;
    t.seed = 42;
    if (CHECK_OK(ckr_plan_create(c, &t, 0, &p, &e), &e)) {
        f = ckr_plan_info(p);
        CHECK(note_of(f->notes, f->n_notes, "CKR_RNG_KEPT") == NULL);
        CHECK(note_of(f->notes, f->n_notes, "CKR_RNG_RESEEDED") != NULL);
    }
    ckr_plan_free(p);
    t.rng = CKR_RNG_KEEP;
    t.without = CKR_RNG;
    if (CHECK_OK(ckr_plan_create(c, &t, 0, &p, &e), &e)) {
        f = ckr_plan_info(p);
        CHECK(note_of(f->notes, f->n_notes, "CKR_W_RNG_DERIVED") == NULL);
    }
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

/* A state that its generator cannot be in: found by check, and nothing is written from it. */
static void streams_hostile(void)
{
    ckr_ckpt *c;
    ckr_target t = CKR_ZERO;
    ckr_plan *p = NULL;
    ckr_report *report = NULL;
    ckr_error e;
    memio_file *f;
    size_t i, n = 0;
    memio_add(&disk, "h", true);
    memio_load(&disk, DATA "/acc024_w2/ckpt", "h");
    f = memio_find(&disk, "h/random_states_0.pkl");
    if (!CHECK(f != NULL)) return;
    /* torch's 5056 bytes: a label of eight bytes, left, seeded, next */
    for (i = 0; i + 5056 <= (size_t)f->size; i++) {
        ckr_rng r;
        if (ckr_rng_decode(CKR_RNG_TORCH_CPU, f->data + i, 5056, &r, &e) != CKR_OK) continue;
        memset(f->data + i + 8, 0xff, 4);
        n++;
        break;
    }
    CHECK_INT(n, 1);
    c = open_ok("h", SEQ);
    if (!c) return;
    CHECK_INT(ckr_ckpt_check(c, &report, &e), CKR_E_FORMAT);
    t.mode = CKR_MODE_CONTINUE;
    t.topology.zero = -1;
    t.topology.dp = 3;
    CHECK_INT(ckr_plan_create(c, &t, 0, &p, &e), CKR_E_FORMAT);
    CHECK_INT(e.item, CKR_ITEM_RNG_CURSOR);
    CHECK_STR(e.where, "/torch_manual_seed");
    CHECK_STR(e.file, "h/random_states_0.pkl");
    CHECK(strstr(e.text, "rank 0, torch_cpu default") != NULL);
    CHECK(strstr(e.remedy, "ckr_target.without = CKR_RNG") != NULL);
    CHECK(p == NULL);
    ckr_ckpt_close(c);
    memio_remove(&disk, "h");
}

static void names_or_numbers(void)
{
    ckr_ckpt *c = open_ok("in/1", -1);
    const ckr_target t = target_of(0, 0, 3, -1, NULL);
    const ckr_note *said;
    ckr_plan *p = NULL;
    ckr_open_desc d = CKR_ZERO;
    ckr_error e;
    const char *other[64];
    if (c) {
        CHECK(ckr_ckpt_tensor(c, "0", "exp_avg") != NULL);
        CHECK(note_of(ckr_ckpt_state(c)->notes, ckr_ckpt_state(c)->n_notes, "CKR_W_PARAM_NAMES"));
        CHECK_STR(ckr_ckpt_state(c)->groups[1].params[0], "5");
        /* numbers they are where they go, too: nobody has to name them */
        CHECK_OK(ckr_plan_create(c, &t, 0, &p, &e), &e);
        said = p ? note_of(ckr_plan_info(p)->notes, ckr_plan_info(p)->n_notes, "CKR_W_PARAM_NAMES")
                 : NULL;
        CHECK(said && said->severity == CKR_EXACT);
        ckr_plan_free(p);
    }
    ckr_ckpt_close(c);
    memcpy(other, names[TIED], sizeof other);
    d.env = &env;
    d.names = other;
    d.n_names = n_names[TIED] - 1;
    CHECK_INT(ckr_ckpt_open("in/1", &d, &c, &e), CKR_E_MISMATCH);
    CHECK_INT(e.item, CKR_ITEM_OPTIMIZER_NAMES);
    other[n_names[TIED]] = "emb.weight";
    d.n_names = n_names[TIED] + 1;
    CHECK_INT(ckr_ckpt_open("in/1", &d, &c, &e), CKR_E_MISMATCH);
    d.n_names = n_names[TIED];
    other[0] = names[TIED][1];                 /* of another shape                           */
    other[1] = names[TIED][0];
    CHECK_INT(ckr_ckpt_open("in/1", &d, &c, &e), CKR_E_MISMATCH);
    CHECK_INT(e.item, CKR_ITEM_OPTIMIZER_NAMES);
    other[0] = "head.weight";                  /* the tied name is as good                   */
    other[1] = names[TIED][1];
    CHECK_OK(ckr_ckpt_open("in/1", &d, &c, &e), &e);
    if (c) CHECK(ckr_ckpt_tensor(c, "emb.weight", "exp_avg") != NULL);
    ckr_ckpt_close(c);
    if (!convert("in/1", TIED, "w/out", 2)) return;
    c = open_ok("w/out", -1);                  /* the side file keeps the names              */
    if (c) CHECK(ckr_ckpt_tensor(c, "emb.weight", "exp_avg") != NULL);
    ckr_ckpt_close(c);
    copy_file("in/0/optimizer.bin", "w/out/optimizer.bin");    /* of another run             */
    copy_file("in/0/pytorch_model.bin", "w/out/pytorch_model.bin");
    c = open_ok("w/out", -1);
    if (c) CHECK(ckr_ckpt_tensor(c, "0", "exp_avg") != NULL);
    ckr_ckpt_close(c);
    memio_remove(&disk, "w/out");
}

static void newest_of_a_run(void)
{
    ckr_ckpt *c;
    memio_add(&disk, "run", true);
    memio_add(&disk, "run/checkpoints", true);
    memio_add(&disk, "run/checkpoints/checkpoint_9", true);
    memio_add(&disk, "run/checkpoints/checkpoint_10", true);
    memio_add(&disk, "run/checkpoints/checkpoint_11", true);
    copy_file("in/0/pytorch_model.bin", "run/checkpoints/checkpoint_9/pytorch_model.bin");
    copy_file("in/0/random_states_0.pkl", "run/checkpoints/checkpoint_9/random_states_0.pkl");
    copy_file("in/0/pytorch_model.bin", "run/checkpoints/checkpoint_10/pytorch_model.bin");
    copy_file("in/0/random_states_0.pkl", "run/checkpoints/checkpoint_10/random_states_0.pkl");
    c = open_ok("run", -1);
    if (c) CHECK_STR(ckr_ckpt_path(c), "run/checkpoints/checkpoint_10");
    if (c) CHECK(note_of(ckr_ckpt_state(c)->notes, ckr_ckpt_state(c)->n_notes,
                         "CKR_W_NO_OPTIMIZER") != NULL);
    ckr_ckpt_close(c);
    memio_remove(&disk, "run");
}

static void trainer_layout(void)
{
    memio_add(&disk, "hf", true);
    memio_add(&disk, "hf/checkpoint-14", true);
    copy_file("in/0/pytorch_model.bin", "hf/checkpoint-14/pytorch_model.bin");
    copy_file("in/0/optimizer.bin", "hf/checkpoint-14/optimizer.pt");
    copy_file("in/0/scheduler.bin", "hf/checkpoint-14/scheduler.pt");
    copy_file("in/0/random_states_0.pkl", "hf/checkpoint-14/rng_state_0.pth");
    copy_file("in/0/random_states_1.pkl", "hf/checkpoint-14/rng_state_1.pth");
    copy_text("hf/checkpoint-14/trainer_state.json",
              "{\"global_step\": 14, \"epoch\": 2.5, \"max_steps\": 40}");
}

/* Refused, by an entry of this item. */
static void refused_as(const ckr_plan *p, ckr_item item)
{
    const ckr_plan_facts *f = ckr_plan_info(p);
    uint64_t i = 0;
    while (i < f->n_notes && strcmp(f->notes[i].code, ckr_item_name(item)) != 0) i++;
    CHECK(i < f->n_notes && f->notes[i].severity == CKR_ERROR);
    CHECK_INT(f->verdict, CKR_VERDICT_REFUSED);
}

/* What was written without some component is still known for what it is, in a run directory too;
   and when nothing but the weights was, by the side file. */
static void parts_left_out(void)
{
    static const uint32_t without[] = { CKR_RNG, CKR_RNG | CKR_SCHEDULE,
                                        CKR_RNG | CKR_OPTIMIZER | CKR_GROUPS,
                                        CKR_RNG | CKR_OPTIMIZER | CKR_GROUPS | CKR_SCHEDULE };
    static const char *const keys[2][5] = {
        { "input_dir", "input_dir", NULL, "checkpoint", "checkpoint" },
        { "resume_from_checkpoint", NULL, NULL, "resume_from_checkpoint",
          "pretrained_model_name_or_path" }
    };
    size_t i;
    int k;
    trainer_layout();
    for (k = 0; k < 2; k++)
        for (i = 0; i <= 4; i++) {
            ckr_target t = CKR_ZERO;
            ckr_ckpt *c = open_ok(k ? "hf" : "in/0", SEQ);
            ckr_plan *p = NULL;
            ckr_error e;
            ckr_result r;
            if (!c) return;
            t.mode = i < 4 ? CKR_MODE_CONTINUE : CKR_MODE_TRANSFER;
            t.topology.zero = -1;
            t.topology.dp = 3;
            t.without = i < 4 ? without[i] : 0;
            r = ckr_plan_create(c, &t, 0, &p, &e);
            if (r == CKR_OK && !keys[k][i]) {  /* its loader would use another LR            */
                refused_as(p, i == 1 ? CKR_ITEM_GROUPS_WITHOUT : CKR_ITEM_LR_WITHOUT);
                ckr_plan_free(p);
                ckr_ckpt_close(c);
                continue;
            }
            if (r == CKR_OK) {
                const ckr_run_setting *x = setting_find(ckr_plan_info(p), keys[k][i]);
                if (CHECK(x != NULL)) CHECK_STR(ckr_node_str(x->value), "OUT");
                r = ckr_plan_write(p, "w/checkpoint_7", NULL, &e);
            }
            CHECK_OK(r, &e);
            ckr_plan_free(p);
            ckr_ckpt_close(c);
            c = open_ok("w/checkpoint_7", SEQ);
            if (c) {
                const ckr_state *s = ckr_ckpt_state(c);
                CHECK_STR(s->dialect, k ? "hf_trainer" : "accelerate");
                CHECK(note_of(s->notes, s->n_notes, "CKR_W_NO_RANDOM") != NULL);
            }
            ckr_ckpt_close(c);
            if (i < 3 && (c = open_ok("w", SEQ)) != NULL) {
                CHECK_STR(ckr_ckpt_path(c), "w/checkpoint_7");
                ckr_ckpt_close(c);
            }
            memio_remove(&disk, "w/checkpoint_7");
        }
    memio_remove(&disk, "hf");
}

static void leftovers_come_back(void)
{
    static const char *const rel[] = { "custom_checkpoint_0.pkl", "notes.txt", "sampler.bin" };
    char a[64], b[64];
    size_t i;
    copy_file("in/0/random_states_0.pkl", "in/0/custom_checkpoint_0.pkl");
    copy_text("in/0/notes.txt", "kept");
    copy_file("in/0/random_states_1.pkl", "in/0/sampler.bin");
    if (convert("in/0", SEQ, "w/out", 3))
        for (i = 0; i < 3; i++) {
            const memio_file *f, *g;
            snprintf(a, sizeof a, "in/0/%s", rel[i]);
            snprintf(b, sizeof b, "w/out/%s", rel[i]);
            f = memio_find(&disk, a);
            g = memio_find(&disk, b);
            CHECK(g && f->size == g->size && !memcmp(f->data, g->data, (size_t)f->size));
        }
    memio_remove(&disk, "w/out");
    for (i = 0; i < 3; i++) {
        snprintf(a, sizeof a, "in/0/%s", rel[i]);
        memio_remove(&disk, a);
    }
}

/* What load_state does with the files of a run that has two of everything and three objects. */
static void gone_or_damaged(void)
{
    static const char *const from[][2] = {
        { "pytorch_model.bin", "pytorch_model_1.bin" }, { "optimizer.bin", "optimizer_1.bin" },
        { "scheduler.bin", "scheduler_1.bin" },
        { "random_states_0.pkl", "custom_checkpoint_0.pkl" },
        { "random_states_0.pkl", "custom_checkpoint_1.pkl" },
        { "random_states_0.pkl", "custom_checkpoint_2.pkl" },
        { "random_states_0.pkl", "dl_state_dict.bin" }, { "random_states_0.pkl", "sampler_1.bin" }
    };
    static const struct { const char *rel, *code; } gone[] = {
        { "pytorch_model_1.bin", "CKR_W_RESUME_LOSES" },
        { "optimizer.bin", "CKR_E_RESUME_STOPS" },
        { "scheduler.bin", "CKR_E_RESUME_STOPS" },
        { "custom_checkpoint_0.pkl", "CKR_E_RESUME_STOPS" },
        { "custom_checkpoint_1.pkl", "CKR_E_RESUME_STOPS" }, { "custom_checkpoint_2.pkl", NULL }
    };
    char a[64], b[64];
    ckr_report *r = NULL;
    ckr_ckpt *c;
    ckr_error e;
    size_t i;
    for (i = 0; i < sizeof from / sizeof *from; i++) {
        snprintf(a, sizeof a, "in/0/%s", from[i][0]);
        snprintf(b, sizeof b, "in/0/%s", from[i][1]);
        copy_file(a, b);
    }
    for (i = 0; i < sizeof gone / sizeof *gone; i++) {
        snprintf(a, sizeof a, "in/0/%s", gone[i].rel);
        copy_file(a, "w/kept");
        memio_remove(&disk, a);
        if ((c = open_ok("in/0", -1)) != NULL && CHECK_OK(ckr_ckpt_check(c, &r, &e), &e)) {
            const ckr_state *s = ckr_ckpt_state(c);
            const ckr_note *n = gone[i].code ? note_of(s->notes, s->n_notes, gone[i].code) : NULL;
            CHECK(r->sound == (!gone[i].code || gone[i].code[4] == 'W'));
            if (gone[i].code && t_check(n != NULL, __FILE__, __LINE__, "without %s", gone[i].rel))
                CHECK_STR(n->subject, gone[i].rel);
            CHECK(note_of(r->notes, r->n_notes, "CKR_W_LAST_UNSEEN") != NULL);
            ckr_report_free(r);
        }
        ckr_ckpt_close(c);
        copy_file("w/kept", a);
    }
    for (i = 0; i < sizeof from / sizeof *from; i++) {     /* each is opened, and says nothing */
        snprintf(a, sizeof a, "in/0/%s", from[i][1]);
        copy_file(a, "w/kept");
        copy_text(a, "");
        CHECK(open_as("in/0", -1, &c, &e) != CKR_OK);
        CHECK_STR(e.file, a);
        copy_file("w/kept", a);
    }
    memio_remove(&disk, "w/kept");
    for (i = 0; i < sizeof from / sizeof *from; i++) {
        snprintf(a, sizeof a, "in/0/%s", from[i][1]);
        memio_remove(&disk, a);
    }
}

static void refused(void)
{
    ckr_ckpt *c = open_ok("in/0", SEQ);
    ckr_target t = CKR_ZERO;
    ckr_plan *p = NULL;
    ckr_error e;
    if (!c) return;
    t.mode = CKR_MODE_CONTINUE;
    t.topology.zero = -1;
    t.topology.tp = 2;
    CHECK_OK(ckr_plan_create(c, &t, 0, &p, &e), &e);
    if (p) refused_as(p, CKR_ITEM_TOPOLOGY);
    ckr_plan_free(p);
    p = NULL;
    t.topology.tp = 0;
    t.variant = "full";        /* no FSDP has cut its model                                 */
    CHECK_OK(ckr_plan_create(c, &t, 0, &p, &e), &e);
    if (p) refused_as(p, CKR_ITEM_TRAINER_SOURCE);
    ckr_plan_free(p);
    p = NULL;
    t.variant = NULL;
    t.without = CKR_PARAMS;
    CHECK_OK(ckr_plan_create(c, &t, 0, &p, &e), &e);
    if (p) CHECK_INT(ckr_plan_info(p)->verdict, CKR_VERDICT_REFUSED);
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

/* A run of DeepSpeed's in the directory `hf` under this tag, with a trainer's files. */
static void put_under(const char *run, const char *tag, bool trainer)
{
    static const char *const theirs[] = { "mp_rank_00_model_states.pt",
                                          "zero_pp_rank_%d_mp_rank_00_model_states.pt",
                                          "zero_pp_rank_%d_mp_rank_00_optim_states.pt",
                                          "bf16_zero_pp_rank_%d_mp_rank_00_optim_states.pt" };
    char from[160], to[160], name[80];
    int i, d;
    snprintf(from, sizeof from, "tests/data/deepspeed/%s/ckpt", run);
    snprintf(to, sizeof to, "hf/%s", tag);
    memio_add(&disk, "ds", true);
    memio_load(&disk, from, "ds");
    memio_add(&disk, "hf", true);
    memio_add(&disk, to, true);
    for (i = 0; i < 4; i++)
        for (d = 0; d < (i ? 3 : 1); d++) {
            snprintf(name, sizeof name, theirs[i], d);
            snprintf(from, sizeof from, "ds/global_step3/%s", name);
            snprintf(to, sizeof to, "hf/%s/%s", tag, name);
            if (memio_find(&disk, from)) copy_file(from, to);
        }
    memio_remove(&disk, "ds");
    copy_text("hf/latest", tag);
    copy_text("hf/zero_to_fp32.py", "# kept");
    if (trainer) copy_text("hf/trainer_state.json", "{\"global_step\": 3}");
    for (d = 0; d < 3; d++) {
        snprintf(to, sizeof to, trainer ? "hf/rng_state_%d.pth" : "hf/random_states_%d.pkl", d);
        copy_file(d % 2 ? "in/0/random_states_1.pkl" : "in/0/random_states_0.pkl", to);
    }
}

/* Opened as one of this dialect over DeepSpeed, with `dp` ranks. */
static void is_under(const char *path, const char *dialect, int dp)
{
    ckr_ckpt *c = open_ok(path, -1);
    const ckr_state *s = c ? ckr_ckpt_state(c) : NULL;
    if (!s) return;
    CHECK_STR(s->dialect, dialect);
    CHECK(s->engine && !strcmp(s->engine, "deepspeed"));
    CHECK_INT(s->topology.dp, dp);
    CHECK_INT(s->progress.step, 3);
    CHECK(s->n_groups > 0 && s->n_rng > 0);
    ckr_ckpt_close(c);
}

/* DeepSpeed's directory under a trainer's files is one checkpoint with them, at any size. */
static void under_deepspeed(void)
{
    static const char *const runs[] = { "robin", "cut" };      /* ZeRO-2 and 3               */
    int k, i;
    for (k = 0; k < 4; k++) {
        const bool trainer = k < 2;
        const int dp = k % 2 ? 2 : 3;
        const char *dialect = trainer ? "hf_trainer" : "accelerate",
                   *tag = trainer ? "global_step3" : "pytorch_model";
        char files[4][100];
        uint8_t before[16], after[16];
        const memio_file *f;
        ckr_ckpt *c;
        put_under(runs[k % 2], tag, trainer);
        if (k % 2) memio_remove(&disk, trainer ? "hf/rng_state_2.pth" : "hf/random_states_2.pkl");
        is_under("hf", dialect, dp);
        digest_of("hf", -1, before);
        if (convert("hf", -1, "w/out", (uint32_t)dp + 1)) {
            is_under("w/out", dialect, dp + 1);
            digest_of("w/out", -1, after);
            CHECK(!memcmp(before, after, 16));
            snprintf(files[0], sizeof *files,
                     "w/out/%s/%szero_pp_rank_%d_mp_rank_00_optim_states.pt", tag,
                     k % 2 ? "bf16_" : "", dp);
            snprintf(files[1], sizeof *files,
                     trainer ? "w/out/rng_state_%d.pth" : "w/out/random_states_%d.pkl", dp);
            snprintf(files[2], sizeof *files, "w/out/zero_to_fp32.py");
            snprintf(files[3], sizeof *files, "w/out/%s",
                     trainer ? "trainer_state.json" : "latest");
            for (i = 0; i < 4; i++)
                t_check(memio_find(&disk, files[i]) != NULL, __FILE__, __LINE__, "no %s", files[i]);
            f = memio_find(&disk, "w/out/latest");
            CHECK(f && f->size == strlen(tag) && !memcmp(f->data, tag, strlen(tag)));
        }
        memio_remove(&disk, "w/out");
        snprintf(files[0], sizeof *files, "hf/%s", tag);
        c = open_ok(files[0], -1);
        if (c) CHECK_STR(ckr_ckpt_state(c)->dialect, "deepspeed");
        if (c) CHECK(note_of(ckr_ckpt_state(c)->notes, ckr_ckpt_state(c)->n_notes,
                             "CKR_W_DS_BESIDE") != NULL);
        ckr_ckpt_close(c);
        memio_remove(&disk, "hf");
    }
}

/* What a broken directory is. */
static void broken(void)
{
    ckr_ckpt *c = NULL;
    ckr_error e;
    memio_add(&disk, "bad", true);
    copy_file("in/0/random_states_0.pkl", "bad/random_states_0.pkl");
    CHECK_INT(open_as("bad", -1, &c, &e), CKR_E_MISMATCH);
    CHECK_INT(e.item, CKR_ITEM_RANK_MISSING);
    memio_add(&disk, "bad/pytorch_model", true);
    CHECK_INT(open_as("bad", -1, &c, &e), CKR_E_UNSUPPORTED);
    CHECK_INT(e.item, CKR_ITEM_TRAINER_SHARDED);
    memio_remove(&disk, "bad/pytorch_model");
    memio_add(&disk, "bad/pytorch_model_fsdp_0", true);
    CHECK_INT(open_as("bad", -1, &c, &e), CKR_E_MISMATCH);
    CHECK_INT(e.item, CKR_ITEM_DCP_UNFINISHED);
    memio_remove(&disk, "bad/pytorch_model_fsdp_0");
    copy_file("in/0/pytorch_model.bin", "bad/pytorch_model-00001-of-00002.bin");
    copy_text("bad/pytorch_model.bin.index.json",
              "{\"weight_map\":{\"emb.weight\":\"pytorch_model-00002-of-00002.bin\"}}");
    CHECK_INT(open_as("bad", -1, &c, &e), CKR_E_MISMATCH);
    CHECK_INT(e.item, CKR_ITEM_RANK_MISSING);
    copy_text("bad/pytorch_model.bin.index.json",
              "{\"weight_map\":{\"no.such\":\"pytorch_model-00001-of-00002.bin\"}}");
    CHECK_INT(open_as("bad", -1, &c, &e), CKR_E_MISMATCH);
    CHECK_INT(e.item, CKR_ITEM_HF_MISSING);
    copy_text("bad/pytorch_model.bin.index.json",
              "{\"weight_map\":{\"emb.weight\":\"pytorch_model-00001-of-00002.bin\"}}");
    CHECK_OK(open_as("bad", -1, &c, &e), &e);
    ckr_ckpt_close(c);
    copy_file("in/0/scheduler.bin", "bad/optimizer.bin");
    CHECK_INT(open_as("bad", -1, &c, &e), CKR_E_FORMAT);
    CHECK_INT(e.item, CKR_ITEM_FILE_FORM);
    copy_file("in/0/optimizer.bin", "bad/optimizer.bin");
    copy_file("in/0/optimizer.bin", "bad/scheduler.bin");
    CHECK_INT(open_as("bad", -1, &c, &e), CKR_E_FORMAT);
    copy_file("in/0/scheduler.bin", "bad/scheduler.bin");
    copy_text("bad/random_states_1.pkl", "cut");
    CHECK(open_as("bad", -1, &c, &e) != CKR_OK);
    memio_remove(&disk, "bad");
}

/* The same bytes where the HF Trainer has them: one tick per update, and its own file names. */
static void trainer(void)
{
    ckr_ckpt *c;
    trainer_layout();
    c = open_ok("hf", SEQ);
    if (c) {
        const ckr_state *s = ckr_ckpt_state(c);
        CHECK_STR(s->dialect, "hf_trainer");
        CHECK_STR(ckr_ckpt_path(c), "hf/checkpoint-14");
        CHECK_INT(s->progress.step, 14);
        CHECK_INT(s->progress.epoch, 2);
        CHECK_INT(s->topology.dp, 2);
        CHECK_STR(s->schedules[0].clock, "update");
        CHECK_INT(s->schedules[0].rate, 1);
    }
    ckr_ckpt_close(c);
    if (convert("hf", SEQ, "w/out", 1)) {
        CHECK(memio_find(&disk, "w/out/rng_state.pth") != NULL);
        CHECK(memio_find(&disk, "w/out/rng_state_0.pth") == NULL);
        CHECK(memio_find(&disk, "w/out/trainer_state.json") != NULL);
        if (convert("w/out", SEQ, "w/back", 3))
            CHECK(memio_find(&disk, "w/back/rng_state_2.pth") != NULL);
    }
    memio_remove(&disk, "w/out");
    memio_remove(&disk, "w/back");
    memio_remove(&disk, "hf");
}

/* A file of Sana's layout, made from the optimizer's: found by its name, written whole. */
static void sana(void)
{
    ckr_ckpt *c = NULL;
    ckr_error e;
    memio_add(&disk, "s", true);
    copy_file("in/0/optimizer.bin", "s/epoch_3_step_40.pth");
    CHECK_INT(open_as("s", -1, &c, &e), CKR_E_FORMAT);          /* no state_dict in it        */
    CHECK_INT(e.item, CKR_ITEM_FILE_FORM);
    memio_remove(&disk, "s");
}

/* A bare optimizer's file, its parameters named by the caller. */
static void bare_optimizer(void)
{
    ckr_ckpt *c = open_ok("in/1/optimizer.bin", TIED);
    if (c) {
        CHECK_STR(ckr_ckpt_state(c)->dialect, "torch");
        CHECK(ckr_ckpt_tensor(c, "emb.weight", "exp_avg") != NULL);
        CHECK(ckr_ckpt_tensor(c, "state.0.exp_avg", "param") == NULL);
        CHECK_STR(ckr_ckpt_state(c)->groups[0].params[0], "emb.weight");
    }
    ckr_ckpt_close(c);
    c = open_ok("in/1/optimizer.bin", -1);
    if (c) CHECK(ckr_ckpt_tensor(c, "0", "exp_avg") != NULL);
    ckr_ckpt_close(c);
}

static void faults_on_the_way(void)
{
    whole w;
    memset(&w, 0, sizeof w);
    w.path = "in/0";
    w.desc.names = names[SEQ];
    w.desc.n_names = n_names[SEQ];
    w.target = target_of(0, 0, 3, -1, NULL);
    whole_way_fails(&w, 0);
    put_under("robin", "global_step3", true);
    copy_file("in/0/scheduler.bin", "hf/scheduler.pt");
    memset(&w.desc, 0, sizeof w.desc);
    w.path = "hf";
    whole_way_fails(&w, 200);
    memio_remove(&disk, "hf");
}

/* A shard with a DTensor, which an index names. */
static void index_of_dtensors(void)
{
    ckr_ckpt *c;
    memio_load(&disk, DATA "/dtensor_index/ckpt", "dtensors");
    c = open_ok("dtensors", -1);
    if (c) CHECK_INT(ckr_ckpt_state(c)->n_tensors, 2);
    ckr_ckpt_close(c);
    memio_remove(&disk, "dtensors");
}

int main(int argc, char **argv)
{
    int k;
    t_begin(argc, argv);
    load_cases();
    RUN(what_is_read);
    RUN(there_and_back);
    RUN(clock_of_other_ticks);
    RUN(opaque_clock);
    RUN(streams_need_no_numpy);
    RUN(streams_come_back);
    RUN(streams_of_one_rank);
    RUN(rank_file_missing);
    RUN(of_one_rank_alone);
    RUN(equal_on_all_ranks);
    RUN(side_file_of_the_past);
    RUN(tensors_of_one_side);
    RUN(streams_by_policy);
    RUN(streams_hostile);
    RUN(names_or_numbers);
    RUN(newest_of_a_run);
    RUN(parts_left_out);
    RUN(leftovers_come_back);
    RUN(gone_or_damaged);
    RUN(refused);
    RUN(under_deepspeed);
    RUN(broken);
    RUN(trainer);
    RUN(sana);
    RUN(bare_optimizer);
    RUN(index_of_dtensors);
    RUN(faults_on_the_way);
    for (k = 0; k < N_CASES; k++) ckr_ckpt_close(json[k]);
    memio_free(&disk);
    return t_end();
}
