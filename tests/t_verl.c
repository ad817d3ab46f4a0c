/* Real checkpoints of verl from tests/data: every tensor against the live processes, there and
   after conversion to 1 to 5 ranks and back, of FSDP1 and FSDP2 from each other; schedules,
   streams, layouts, settings; other formats and back; files that do not belong together. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "t.h"
#include "option.h"
#include "ckpt.h"
#include "tree.h"
#include "settings.h"
#include "archive.h"
#include "bad.h"

#define DATA "tests/data/verl"
#define COSINE "verl:cosine,lr_warmup_steps="
#define CONSTANT "verl:constant,lr_warmup_steps="
#define EMBED "model.embed_tokens.weight"
#define HEAD "lm_head.weight"

enum { F1, F1_ODD, F1_ORIG, F2, TIED, HSDP, UNEVEN, N_CASES };

typedef struct verl_case {
    const char *name, *schedule;
    int64_t     step;
    uint32_t    dp, fsdp, params;
    double      next[2];       /* LR of the live run's next updates                     */
} verl_case;

static const verl_case cases[N_CASES] = {
    { "fsdp1_w2", CONSTANT "3", 7, 2, 1, 27, { 0.001, 0.001 } },
    { "fsdp1_w2_orig_odd", COSINE "2,total_training_steps=25", 5, 2, 1, 27,
      { 0.0009586056507527265, 0.0009272097022732444 } },
    { "fsdp1_w4_orig", COSINE "2,total_training_steps=25", 5, 4, 1, 27,
      { 0.0009586056507527265, 0.0009272097022732444 } },
    { "fsdp2_w2", COSINE "3,total_training_steps=40", 7, 2, 2, 27,
      { 0.0009714387227305421, 0.0009556142451940679 } },
    { "fsdp2_w3_tied", CONSTANT "4", 6, 3, 2, 26, { 0.001, 0.001 } },
    { "fsdp2_w4_hsdp", COSINE "3,total_training_steps=40", 6, 4, 2, 27,
      { 0.0009838664734667494, 0.0009714387227305421 } },
    { "fsdp2_w4_uneven", COSINE "2,total_training_steps=30,min_lr_ratio=0.1", 6, 4, 2, 27,
      { 0.0009554359905560888, 0.0009310258896527279 } },
};

static const char *text(const char *fmt, ...)
{
    static char buf[16][256];
    static int next;
    char *p = buf[next++ % 16];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(p, sizeof buf[0], fmt, ap);
    va_end(ap);
    return p;
}

static const char *run_of(int k)
{
    return text("in/%s", cases[k].name);
}

static const char *actor_of(int k)
{
    return text("in/%s/global_step_%d/actor", cases[k].name, (int)cases[k].step);
}

/* Everything below a directory, once more. */
static void copy_dir(const char *from, const char *to)
{
    const size_t n = disk.n, skip = strlen(from);
    size_t i;
    memio_add(&disk, to, true);
    for (i = 0; i < n; i++) {
        const memio_file *f = disk.files[i];
        if (memio_below(f->path, from) && !f->is_dir)
            memio_put(&disk, text("%s%s", to, f->path + skip), f->data, (size_t)f->size);
    }
}

static void copy_file(const char *from, const char *to)
{
    const memio_file *f = memio_find(&disk, from);
    if (CHECK(f != NULL)) memio_put(&disk, to, f->data, (size_t)f->size);
}

static bool same_file(const char *a, const char *b)
{
    const memio_file *f = memio_find(&disk, a), *g = memio_find(&disk, b);
    return f && g && f->size == g->size && !memcmp(f->data, g->data, (size_t)f->size);
}

static void load_cases(void)
{
    int k;
    disk_begin();
    for (k = 0; k < N_CASES; k++) {
        memio_add(&disk, run_of(k), true);
        memio_load(&disk, text(DATA "/%s/ckpt", cases[k].name), run_of(k));
    }
}

static ckr_target to_ranks(uint32_t dp)
{
    return target_of(0, 0, dp, -1, NULL);
}

static bool convert(const char *from, const char *to, uint32_t dp)
{
    const ckr_target t = to_ranks(dp);
    return written(open_ok(from), from, to, &t);
}

/* Every tensor of the live processes, bit for bit, and no other; `head`: before the names. */
static void equals_truth_of(const char *path, const char *truth_path, uint64_t n_params,
                            const char *head)
{
    const bool tied = strstr(truth_path, "tied") != NULL;      /* its text() is used again */
    ckr_ckpt *c = open_ok(path), *truth = NULL;
    const ckr_state *s;
    ckr_error e;
    uint64_t i, found = 0;
    if (!c || !CHECK_OK(ckr_ckpt_open(truth_path, NULL, &truth, &e), &e)) {
        ckr_ckpt_close(c);
        return;
    }
    s = ckr_ckpt_state(truth);
    for (i = 0; i < s->n_tensors; i++) {
        const ckr_tensor *want = s->tensors[i], *have;
        const bool state = !strncmp(want->name, "optimizer.state.", 16);
        have = by_key(c, state ? text("optimizer.state.%s%s", head, want->name + 16)
                               : text("%s%s", head, want->name));
        if (!have) have = ckr_ckpt_tensor(c, want->name, "param");     /* a file without slots */
        if (!have && tied && strstr(want->name, HEAD)) continue;    /* the embedding's */
        if (!t_check(have != NULL, __FILE__, __LINE__, "%s: %s is missing", path, want->name))
            continue;
        same_tensor(c, have, truth, want, path);
        t_check(have->n_dims == want->n_dims &&
                    !memcmp(have->shape, want->shape, have->n_dims * sizeof *have->shape),
                __FILE__, __LINE__, "%s: %s has another shape", path, want->name);
        found++;
    }
    if (!*head) CHECK_INT(found, ckr_ckpt_state(c)->n_tensors);
    CHECK_INT(found, 4 * n_params);
    ckr_ckpt_close(c);
    ckr_ckpt_close(truth);
}

static void equals_truth(const char *path, int k, const char *head)
{
    equals_truth_of(path, text(DATA "/%s/truth.safetensors", cases[k].name),
                    cases[k].params, head);
}

static void what_is_read(void)
{
    int k;
    for (k = 0; k < N_CASES; k++) {
        const verl_case *x = &cases[k];
        ckr_ckpt *c = open_ok(run_of(k));
        const ckr_state *s;
        uint64_t i, seen[8] = { 0 };
        double lr = 0, initial = 0;
        if (!c) continue;
        s = ckr_ckpt_state(c);
        CHECK_STR(s->dialect, "verl");
        CHECK_INT(s->topology.dp, x->dp);
        CHECK(s->topology.tp <= 1 && s->topology.pp <= 1);
        CHECK_INT(s->progress.step, x->step);
        CHECK_INT(s->n_tensors, 4 * x->params);
        CHECK_INT(s->n_groups, 1);
        CHECK_INT(s->groups[0].n_params, x->params);
        CHECK(ckr_node_f64(ckr_node_get(s->groups[0].hyper, "lr"), &lr) &&
              ckr_node_f64(ckr_node_get(s->groups[0].hyper, "initial_lr"), &initial));
        CHECK(lr <= x->next[0] && lr >= x->next[0] && initial <= 0.001 && initial >= 0.001);
        CHECK_INT(s->n_ties, k == TIED);
        if (s->n_ties) CHECK_STR(s->ties[0].name, EMBED);
        if (s->n_ties) CHECK_STR(s->ties[0].other, HEAD);
        CHECK_INT(s->n_schedules, 1);
        CHECK(s->schedules[0].opaque);
        CHECK_STR(s->schedules[0].clock, "update");
        CHECK_INT(s->schedules[0].position, x->step);
        CHECK_INT(s->n_rng, 3 * x->dp);
        for (i = 0; i < s->n_rng; i++) seen[s->rng[i].rank & 7]++;
        for (i = 0; i < x->dp; i++) CHECK_INT(seen[i], 3);
        CHECK_INT(s->n_leftovers, 2);
        ckr_ckpt_close(c);
        equals_truth(run_of(k), k, "");
    }
}

static ckr_ckpt *open_told(const char *path, const char *schedule)
{
    ckr_open_desc d = CKR_ZERO;
    ckr_ckpt *c = NULL;
    ckr_error e;
    d.env = &env;
    d.schedule = schedule;
    expect_open(ckr_ckpt_open(path, &d, &c, &e), path, &e);
    return c;
}

static void curve_is(const char *path, int k)
{
    ckr_ckpt *c = open_told(path, cases[k].schedule);
    const ckr_schedule *s;
    double lr[2] = { 0, 0 };
    ckr_error e;
    if (!c) return;
    s = ckr_ckpt_state(c)->schedules;
    CHECK(!strncmp(s->kind, cases[k].schedule, strlen(s->kind)) && s->told && !s->opaque);
    CHECK_OK(ckr_schedule_values(s, CKR_COLUMN_LR, cases[k].step + 1, 2, lr, NULL, &e), &e);
    t_check(!memcmp(lr, cases[k].next, sizeof lr) || T_OTHER_LIBM, __FILE__, __LINE__,
            "%s: %.17g %.17g", path, lr[0], lr[1]);
    ckr_ckpt_close(c);
}

/* Another curve than the one whose LR was saved is not believed. */
static void schedules_told(void)
{
    const ckr_target t = to_ranks(3);
    ckr_ckpt *c;
    ckr_plan *p = NULL;
    ckr_error e;
    int k;
    for (k = 0; k < N_CASES; k++) curve_is(run_of(k), k);
    c = open_told(run_of(F2), COSINE "3,total_training_steps=41");
    if (c && CHECK_OK(ckr_plan_create(c, &t, 0, &p, &e), &e)) {
        const ckr_plan_facts *f = ckr_plan_info(p);
        CHECK_INT(f->verdict, CKR_VERDICT_REFUSED);
        CHECK(note_of(f->notes, f->n_notes, "CKR_E_SCHEDULE_TOLD") != NULL);
    }
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

/* Files of exactly these ranks, and the mesh of that many. */
static void ranks_are(const char *dir, uint32_t dp, uint32_t version)
{
    static const char *const kinds[] = { "model", "optim", "extra_state" };
    const char *config = text("%s/fsdp_config.json", dir);
    const memio_file *f = memio_find(&disk, config);
    ckr_ckpt *c = NULL;
    ckr_open_desc d = CKR_ZERO;
    ckr_error e;
    int64_t world = 0, fsdp = 0;
    size_t i;
    for (i = 0; i < 3; i++) {
        CHECK(memio_find(&disk, text("%s/%s_world_size_%u_rank_%u.pt", dir, kinds[i],
                                     (unsigned)dp, (unsigned)dp - 1)));
        CHECK(!memio_find(&disk, text("%s/%s_world_size_%u_rank_%u.pt", dir, kinds[i],
                                      (unsigned)dp, (unsigned)dp)));
    }
    d.env = &env;
    if (!CHECK(f != NULL) || !CHECK_OK(ckr_tree_open(config, &d, &c, &e), &e)) return;
    ckr_node_i64(ckr_node_get(ckr_ckpt_root(c), "world_size"), &world);
    ckr_node_i64(ckr_node_get(ckr_ckpt_root(c), "FSDP_version"), &fsdp);
    CHECK_INT(world, dp);
    CHECK_INT(fsdp, version);
    ckr_ckpt_close(c);
}

static void there_and_back(void)
{
    uint32_t dp;
    int k;
    for (k = 0; k < N_CASES; k++)
        for (dp = 1; dp <= 5; dp++) {
            uint8_t first[16], d[16];
            char step[64];
            snprintf(step, sizeof step, "w/out/global_step_%d", (int)cases[k].step);
            digest_of(run_of(k), first);
            if (!convert(run_of(k), "w/out", dp)) continue;
            ranks_are(text("%s/actor", step), dp, cases[k].fsdp);
            equals_truth("w/out", k, "");
            curve_is("w/out", k);
            CHECK(is_sound("w/out"));
            CHECK(same_file(text("%s/data.pt", step), text("%s/global_step_%d/data.pt", run_of(k),
                                                           (int)cases[k].step)));
            CHECK(same_file(text("%s/actor/huggingface/config.json", step),
                            text("%s/huggingface/config.json", actor_of(k))));
            if (convert("w/out", "w/back", cases[k].dp)) {
                digest_of("w/back", d);
                CHECK(!memcmp(first, d, 16));
                equals_truth("w/back", k, "");
            }
            memio_remove(&disk, "w/out");
            memio_remove(&disk, "w/back");
        }
}

static bool has_bytes(const char *path, const char *bytes)
{
    const memio_file *f = memio_find(&disk, path);
    const size_t n = strlen(bytes);
    uint64_t i;
    for (i = 0; f && i + n <= f->size; i++) if (!memcmp(f->data + i, bytes, n)) return true;
    return false;
}

/* FSDP1 from FSDP2 and the reverse, over another number of ranks, and back. */
static void other_fsdp(void)
{
    static const char *const variants[] = { NULL, "fsdp1", "fsdp2" };
    int k;
    for (k = 0; k < N_CASES; k++) {
        const uint32_t other = 3 - cases[k].fsdp;
        char dir[64];
        ckr_target t = to_ranks(3);
        snprintf(dir, sizeof dir, "w/out/global_step_%d/actor", (int)cases[k].step);
        t.variant = variants[other];
        if (!written(open_ok(run_of(k)), run_of(k), "w/out", &t)) continue;
        ranks_are(dir, 3, other);
        equals_truth("w/out", k, "");
        t = to_ranks(cases[k].dp);
        t.variant = variants[cases[k].fsdp];
        if (written(open_ok("w/out"), "w/out", "w/back", &t)) equals_truth("w/back", k, "");
        memio_remove(&disk, "w/out");
        memio_remove(&disk, "w/back");
    }
}

/* Plans for `dp` ranks in copies over `size` each; the caller frees it. */
static ckr_plan *plan_sized(const char *from, uint32_t dp, int64_t size, ckr_ckpt **c)
{
    ckr_target t = to_ranks(dp);
    ckr_plan *p = NULL;
    ckr_error e;
    option_int(&t, "fsdp_size", size);
    *c = open_ok(from);
    if (*c) CHECK_OK(ckr_plan_create(*c, &t, 0, &p, &e), &e);
    return p;
}

static void fsdp_sizes(void)
{
    static const struct { int k; uint32_t dp; int64_t size; bool copies; } rows[] = {
        { F2, 4, 2, true },     { F1, 4, 2, true },    { F1_ORIG, 4, 1, true },
        { HSDP, 4, 4, false },  { HSDP, 2, 0, false }, { HSDP, 4, 0, true },
        { UNEVEN, 6, 3, true },
    };
    const ckr_note *note;
    ckr_ckpt *c;
    ckr_plan *p;
    size_t i;
    for (i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int k = rows[i].k;
        ckr_target t = to_ranks(rows[i].dp);
        const char *model;
        option_int(&t, "fsdp_size", rows[i].size);
        if (!written(open_ok(run_of(k)), run_of(k), "w/out", &t)) continue;
        equals_truth("w/out", k, "");
        CHECK(is_sound("w/out"));
        model = text("w/out/global_step_%d/actor/model_world_size_%u_rank_0.pt",
                     (int)cases[k].step, (unsigned)rows[i].dp);
        t_check(has_bytes(model, "ddp") == rows[i].copies, __FILE__, __LINE__,
                "row %u: another mesh", (unsigned)i);
        memio_remove(&disk, "w/out");
    }
    p = plan_sized(run_of(F2), 4, 3, &c);
    note = p ? note_of(ckr_plan_info(p)->notes, ckr_plan_info(p)->n_notes,
                       "CKR_E_TOPOLOGY") : NULL;
    if (CHECK(note != NULL)) CHECK_STR(note->subject, "fsdp_size");
    if (p) CHECK_INT(ckr_plan_info(p)->verdict, CKR_VERDICT_REFUSED);
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

static void where_it_is_opened(void)
{
    uint8_t d[3][16];
    const memio_file *tracker;
    digest_of(run_of(F2), d[0]);
    digest_of(text("%s/global_step_7", run_of(F2)), d[1]);
    digest_of(actor_of(F2), d[2]);
    CHECK(!memcmp(d[0], d[1], 16) && !memcmp(d[0], d[2], 16));
    if (convert(actor_of(F2), "w/out", 3)) {               /* as deep as it was opened */
        ranks_are("w/out", 3, 2);
        equals_truth("w/out", F2, "");
        CHECK(!memio_find(&disk, "w/out/latest_checkpointed_iteration.txt"));
        memio_remove(&disk, "w/out");
    }
    if (convert(run_of(F2), "w/out", 3)) {
        tracker = memio_find(&disk, "w/out/latest_checkpointed_iteration.txt");
        CHECK(tracker && tracker->size == 1 && tracker->data[0] == '7');
        memio_remove(&disk, "w/out");
    }
}

/* The step that the tracker names, and without one the newest that is whole. */
static void which_step(void)
{
    ckr_ckpt *c;
    copy_dir(run_of(F2), "w/run");
    copy_dir("w/run/global_step_7", "w/run/global_step_12");
    if ((c = open_ok("w/run")) != NULL) CHECK_INT(ckr_ckpt_state(c)->progress.step, 7);
    ckr_ckpt_close(c);
    memio_remove(&disk, "w/run/latest_checkpointed_iteration.txt");
    if ((c = open_ok("w/run")) != NULL) CHECK_INT(ckr_ckpt_state(c)->progress.step, 12);
    ckr_ckpt_close(c);
    memio_remove(&disk, "w/run/global_step_12/actor/model_world_size_2_rank_0.pt");
    memio_remove(&disk, "w/run/global_step_12/actor/model_world_size_2_rank_1.pt");
    if ((c = open_ok("w/run")) != NULL) CHECK_INT(ckr_ckpt_state(c)->progress.step, 7);
    ckr_ckpt_close(c);
    memio_remove(&disk, "w/run");
}

/* Two models: their names begin with whose they are, and each has its own scheduler and streams. */
static void actor_and_critic(void)
{
    ckr_ckpt *c;
    const ckr_state *s;
    uint8_t first[16], d[16];
    copy_dir(run_of(F2), "w/run");
    copy_dir(actor_of(F2), "w/run/global_step_7/critic");
    if ((c = open_ok("w/run")) != NULL) {
        s = ckr_ckpt_state(c);
        CHECK_INT(s->n_tensors, 8 * cases[F2].params);
        CHECK_INT(s->n_groups, 2);
        CHECK_INT(s->n_schedules, 2);
        CHECK_INT(s->n_rng, 12);
        CHECK(ckr_ckpt_tensor(c, "actor." EMBED, "exp_avg") &&
              ckr_ckpt_tensor(c, "critic." EMBED, "exp_avg"));
        CHECK(!ckr_ckpt_tensor(c, EMBED, "param"));
        ckr_ckpt_close(c);
    }
    digest_of("w/run", first);
    if (convert("w/run", "w/out", 3)) {
        ranks_are("w/out/global_step_7/actor", 3, 2);
        ranks_are("w/out/global_step_7/critic", 3, 2);
        equals_truth("w/out", F2, "actor.");
        equals_truth("w/out", F2, "critic.");
        equals_truth("w/out/global_step_7/critic", F2, "");
        if (convert("w/out", "w/back", 2)) {
            digest_of("w/back", d);
            CHECK(!memcmp(first, d, 16));
        }
    }
    memio_remove(&disk, "w/out");
    memio_remove(&disk, "w/back");
    memio_remove(&disk, "w/run/global_step_7/actor");      /* a critic alone has its own names */
    equals_truth("w/run", F2, "");
    memio_remove(&disk, "w/run");
}

/* What is said of a rank's file of the data: that it is not there, or that it cannot be read. */
static void data_is(const char *path, const char *bad)
{
    ckr_open_desc d = CKR_ZERO;
    ckr_ckpt *c = NULL;
    ckr_error e;
    d.env = &env;
    if (ckr_ckpt_open(path, &d, &c, &e) != CKR_OK) {
        CHECK_STR(e.file, bad);
    } else {
        const ckr_state *s = ckr_ckpt_state(c);
        const ckr_note *n = note_of(s->notes, s->n_notes, "CKR_W_RESUME_LOSES");
        CHECK(!n == !bad);
        if (n && bad) CHECK_STR(n->subject, bad);
    }
    ckr_ckpt_close(c);
}

/* Severity of what the plan says of the ranks' places in the data, or CKR_EXACT: nothing. */
static ckr_severity places_for(const char *path, uint32_t dp)
{
    const ckr_target t = target_of(0, 0, dp, -1, NULL);
    ckr_severity found = CKR_EXACT;
    ckr_ckpt *c = open_ok(path);
    ckr_plan *p = NULL;
    ckr_error e;
    if (c && CHECK_OK(ckr_plan_create(c, &t, 0, &p, &e), &e)) {
        const ckr_note *n = note_of(ckr_plan_info(p)->notes, ckr_plan_info(p)->n_notes,
                                    "CKR_W_DATA_POSITION");
        if (n) found = n->severity;
    }
    ckr_plan_free(p);
    ckr_ckpt_close(c);
    return found;
}

/* The SFT trainer's: no directory for the model, one data file for each rank. */
static void sft_layout(void)
{
    copy_dir(run_of(F2), "w/run");
    copy_dir(actor_of(F2), "w/run/global_step_7");
    memio_remove(&disk, "w/run/global_step_7/actor");
    copy_file("w/run/global_step_7/data.pt", "w/run/global_step_7/data_0.pt");
    copy_file("w/run/global_step_7/data.pt", "w/run/global_step_7/data_1.pt");
    memio_remove(&disk, "w/run/global_step_7/data.pt");
    equals_truth("w/run", F2, "");
    data_is("w/run", NULL);
    memio_remove(&disk, "w/run/global_step_7/data_1.pt");
    data_is("w/run", "data_1.pt");
    memio_put(&disk, "w/run/global_step_7/data_1.pt", "", 0);
    data_is("w/run", "w/run/global_step_7/data_1.pt");
    copy_file("w/run/global_step_7/data_0.pt", "w/run/global_step_7/data_1.pt");
    CHECK_INT(places_for("w/run", 2), CKR_EXACT);
    CHECK_INT(places_for("w/run", 3), CKR_LOST);
    CHECK_INT(places_for("w/run", 1), CKR_APPROX);
    if (convert("w/run", "w/out", 3)) {
        ranks_are("w/out/global_step_7", 3, 2);
        CHECK(!memio_find(&disk, "w/out/global_step_7/actor"));
        equals_truth("w/out", F2, "");
        memio_remove(&disk, "w/out");
    }
    memio_remove(&disk, "w/run");
}

static void unknown_files(void)
{
    copy_dir(run_of(F2), "w/run");
    memio_put(&disk, "w/run/global_step_7/note.txt", "a", 1);
    memio_put(&disk, "w/run/global_step_7/actor/more.bin", "bc", 2);
    memio_put(&disk, "w/run/global_step_7/actor/huggingface/tokenizer.json", "{}", 2);
    if (convert("w/run", "w/out", 3)) {
        CHECK(same_file("w/run/global_step_7/note.txt", "w/out/global_step_7/note.txt"));
        CHECK(same_file("w/run/global_step_7/actor/more.bin",
                        "w/out/global_step_7/actor/more.bin"));
        CHECK(same_file("w/run/global_step_7/actor/huggingface/tokenizer.json",
                        "w/out/global_step_7/actor/huggingface/tokenizer.json"));
        memio_remove(&disk, "w/out");
    }
    memio_remove(&disk, "w/run");
}

/* The streams of `path` for dp ranks; dp 0: as saved. */
static ckr_rng_streams *streams_for(const char *path, uint32_t dp)
{
    return streams_of(open_ok(path), dp);
}

/* Ranks 0 to n - 1 draw the same in both. */
static void same_streams(const ckr_rng_streams *a, const ckr_rng_streams *b, uint64_t n,
                         const char *label)
{
    uint64_t i;
    CHECK_INT(a->n_streams, b->n_streams);
    for (i = 0; i < n * a->n_streams; i++) {
        const ckr_rng_given *x = &a->given[i],
                            *y = ckr_rng_find(b, (uint32_t)(i / a->n_streams), x->kind, x->name);
        t_check(y && x->state && y->state && ckr_rng_equal(x->state, y->state), __FILE__, __LINE__,
                "%s: stream %u, %s %s", label, (unsigned)i, x->kind, x->name);
    }
}

static void streams(void)
{
    uint32_t dp;
    for (dp = 1; dp <= 5; dp++) {
        ckr_rng_streams *saved = streams_for(run_of(TIED), 0), *want = NULL, *have = NULL,
                        *back = NULL;
        if (!convert(run_of(TIED), "w/out", dp) || !convert("w/out", "w/back", 3)) return;
        want = streams_for(run_of(TIED), dp);
        have = streams_for("w/out", 0);
        back = streams_for("w/back", 0);
        CHECK_INT(saved->n_ranks, 3);
        CHECK_INT(have->n_ranks, dp);
        same_streams(saved, have, dp < 3 ? dp : 3, "kept");
        same_streams(want, have, dp, "planned");
        same_streams(saved, back, 3, "back");
        ckr_rng_streams_free(saved);
        ckr_rng_streams_free(want);
        ckr_rng_streams_free(have);
        ckr_rng_streams_free(back);
        memio_remove(&disk, "w/out");
        memio_remove(&disk, "w/back");
    }
}

#define ROLE "actor_rollout_ref.actor."
static void settings_of(void)
{
    static const ckr_setting total = { NULL, "total_steps", "80" };
    ckr_target t = to_ranks(4);
    ckr_ckpt *c = open_told(run_of(F2), cases[F2].schedule);
    ckr_plan *p = NULL;
    const ckr_plan_facts *f;
    ckr_error e;
    if (!c) return;
    t.sets = &total;
    t.n_sets = 1;
    option_int(&t, "fsdp_size", 2);
    t.variant = "fsdp1";
    if (CHECK_OK(ckr_plan_create(c, &t, 0, &p, &e), &e)) {
        f = ckr_plan_info(p);
        CHECK(f->verdict != CKR_VERDICT_REFUSED);
        settings_told(f);
        CHECK_STR(setting_value(f, "trainer.total_training_steps"), "80");
        CHECK_STR(setting_value(f, ROLE "optim.lr_warmup_steps"), "3");
        CHECK_STR(setting_value(f, ROLE "optim.lr_scheduler_type"), "cosine");
        CHECK_STR(setting_value(f, ROLE "fsdp_config.fsdp_size"), "2");
        CHECK_STR(setting_value(f, ROLE "strategy"), "fsdp");
    }
    ckr_plan_free(p);
    p = NULL;
    t = to_ranks(2);
    t.without = CKR_OPTIMIZER | CKR_GROUPS | CKR_SCHEDULE;
    if (CHECK_OK(ckr_plan_create(c, &t, 0, &p, &e), &e)) {
        const ckr_run_setting *x = setting_find(ckr_plan_info(p),
                                                ROLE "checkpoint.load_contents");
        const ckr_node *v = x ? x->value : NULL;
        if (CHECK(v != NULL)) CHECK_INT(v->count, 2);
    }
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

/* There are data-parallel ranks only, and the LR comes from the optimizer's groups. */
static void refusals(void)
{
    ckr_target t = target_of(2, 0, 0, -1, NULL);
    ckr_ckpt *c = open_ok(run_of(F2));
    ckr_plan *p = NULL;
    ckr_error e;
    int i;
    for (i = 0; i < 2 && c; i++) {
        if (i) t = to_ranks(2), t.without = CKR_OPTIMIZER;
        if (CHECK_OK(ckr_plan_create(c, &t, 0, &p, &e), &e)) {
            const ckr_plan_facts *f = ckr_plan_info(p);
            CHECK_INT(f->verdict, CKR_VERDICT_REFUSED);
            CHECK(note_of(f->notes, f->n_notes, i ? "CKR_E_LR_WITHOUT"
                                                  : "CKR_E_TOPOLOGY") != NULL);
        }
        ckr_plan_free(p);
        p = NULL;
    }
    ckr_ckpt_close(c);
}

/* A schedule that was changed is the one that the coming run's files go on with. */
static void schedule_changed(void)
{
    static const ckr_setting total = { NULL, "total_steps", "80" };
    ckr_ckpt *c = open_told(run_of(F2), cases[F2].schedule);
    ckr_target t = to_ranks(3);
    double lr = 0;
    t.sets = &total;
    t.n_sets = 1;
    if (!c || !written(c, run_of(F2), "w/out", &t)) return;
    c = open_told("w/out", COSINE "3,total_training_steps=80");
    if (c) ckr_node_f64(ckr_node_get(ckr_ckpt_state(c)->groups[0].hyper, "lr"), &lr);
    CHECK(lr > 0.000993 && lr < 0.000994);
    ckr_ckpt_close(c);
    memio_remove(&disk, "w/out");
}

/* As one file of any kind, and that file as a checkpoint of verl. */
static void other_formats(void)
{
    static const char *const to[] = { "safetensors", "torch", "dcp" };
    size_t i;
    int k;
    for (i = 0; i < sizeof to / sizeof *to; i++)
        for (k = F1; k <= TIED; k += TIED) {
            ckr_target t = to_ranks(0);
            t.dialect = to[i];
            t.slots = "all";
            if (!written(open_ok(run_of(k)), run_of(k), "w/out", &t)) continue;
            if (i == 0) equals_truth("w/out", k, "");
            memio_remove(&disk, "w/out");
        }
}

/* Another framework's run, which knows its parameters' names. */
static void from_others(void)
{
    static const struct { const char *dir; uint32_t dp; } rows[] = {
        { "tests/data/nanotron/tp2_pp1_dp1/ckpt", 3 },
        { "tests/data/nanotron/sgd_tp2/ckpt", 2 },
    };
    size_t i;
    for (i = 0; i < sizeof rows / sizeof *rows; i++) {
        ckr_target t = target_of(1, 1, rows[i].dp, -1, NULL);
        ckr_ckpt *a, *b;
        uint64_t n;
        memio_add(&disk, "w/src", true);
        memio_load(&disk, rows[i].dir, "w/src");
        t.dialect = "verl";
        t.without = CKR_SCHEDULE;
        if (written(open_ok("w/src"), rows[i].dir, "w/out", &t)) {
            a = open_ok("w/src");
            b = open_ok("w/out");
            for (n = 0; a && b && n < ckr_ckpt_state(a)->n_tensors; n++) {
                const ckr_tensor *x = ckr_ckpt_state(a)->tensors[n],
                                 *y = ckr_ckpt_tensor(b, x->name, x->slot);
                uint8_t *p, *q;
                size_t m, l;
                if (!t_check(y != NULL, __FILE__, __LINE__, "%s %s is missing", x->name, x->slot))
                    continue;
                p = tensor_bytes(a, x, &m);
                q = tensor_bytes(b, y, &l);
                t_check(m == l && !memcmp(p, q, m), __FILE__, __LINE__, "%s %s differs", x->name,
                        x->slot);
                free(p);
                free(q);
            }
            if (b) CHECK_STR(ckr_ckpt_state(b)->dialect, "verl");
            if (b) CHECK_INT(ckr_ckpt_state(b)->topology.dp, rows[i].dp);
            ckr_ckpt_close(a);
            ckr_ckpt_close(b);
        }
        memio_remove(&disk, "w/src");
        memio_remove(&disk, "w/out");
    }
}

/* ---- bad input ---- */

static uint32_t le(const uint8_t *p, size_t n)
{
    return n ? *p | le(p + 1, n - 1) << 8 : 0;
}

/* The archive `path` with the n-th (from 0; -1: every one) `was` of its data.pkl as `now`. */
static void edit(const char *path, const char *was, size_t n_was, const char *now, size_t n_now,
                 int nth)
{
    archive a = { NULL, 0, 0 }, directory = { NULL, 0, 0 }, pickle = { NULL, 0, 0 };
    const memio_file *f = memio_find(&disk, path);
    const uint8_t *end, *entry;
    uint8_t tail[22];
    char to[256];
    size_t i, count, at, edited = 0;
    if (!CHECK(f != NULL)) return;
    snprintf(to, sizeof to, "%s", path);
    for (end = f->data + f->size - 22; le(end, 4) != 0x06054b50; end--) {}
    count = le(end + 10, 2);
    entry = f->data + le(end + 16, 4);
    for (i = 0; i < count; i++, entry += 46 + le(entry + 28, 2) + le(entry + 30, 2)) {
        const uint8_t *local = f->data + le(entry + 42, 4),
                      *data = local + 30 + le(local + 26, 2) + le(local + 28, 2);
        const size_t n = le(entry + 24, 4);
        const char *name = text("%.*s", (int)le(entry + 28, 2), (const char *)entry + 46);
        if (strcmp(name + strlen(name) - 8, "data.pkl")) {
            archive_member(&a, &directory, name, data, n);
            continue;
        }
        for (at = 0; at < n; )
            if (n - at >= n_was && !memcmp(data + at, was, n_was) && (nth < 0 || nth-- == 0)) {
                archive_put(&pickle, now, n_now);
                at += n_was;
                edited++;
            } else {
                archive_put(&pickle, data + at++, 1);
            }
        archive_member(&a, &directory, name, pickle.data, pickle.n);
    }
    t_check(edited > 0, __FILE__, __LINE__, "%s: nothing to edit", to);
    memset(tail, 0, sizeof tail);
    ckr__store_u32(tail, 0x06054b50);
    ckr__store_u32(tail + 8, (uint32_t)(count << 16 | count));
    ckr__store_u32(tail + 12, (uint32_t)directory.n);
    ckr__store_u32(tail + 16, (uint32_t)a.n);
    archive_put(&a, directory.data, directory.n);
    archive_put(&a, tail, sizeof tail);
    memio_put(&disk, to, a.data, a.n);
    free(a.data);
    free(directory.data);
    free(pickle.data);
}

#define EDIT(path, was, now, nth) edit(path, was, sizeof(was) - 1, now, sizeof(now) - 1, nth)

/* Other bytes in place of the same number of them, wherever they are. */
static void rename_bytes(const char *path, const void *was, const void *now, size_t n)
{
    memio_file *f = memio_find(&disk, path);
    uint64_t i;
    for (i = 0; f && i + n <= f->size; i++)
        if (!memcmp(f->data + i, was, n)) memcpy(f->data + i, now, n);
}

#define STEP7 "w/bad/global_step_7"
#define BAD STEP7 "/actor"

static const char *rank_file(const char *kind, unsigned world, unsigned rank)
{
    return text(BAD "/%s_world_size_%u_rank_%u.pt", kind, world, rank);
}

static void begin_bad(int k)
{
    memio_remove(&disk, "w/bad");
    copy_dir(actor_of(k), BAD);
}

static void swap_ranks(const char *kind)
{
    const char *a = rank_file(kind, 2, 0), *b = rank_file(kind, 2, 1);
    copy_file(a, "w/swap");
    copy_file(b, a);
    copy_file("w/swap", b);
    memio_remove(&disk, "w/swap");
}

static void swap_inside(const char *kind)
{
    const char *a = text("%s_world_size_2_rank_0", kind), *b = text("%s_world_size_2_rank_1", kind);
    swap_ranks(kind);
    rename_bytes(rank_file(kind, 2, 0), b, a, strlen(a));
    rename_bytes(rank_file(kind, 2, 1), a, b, strlen(a));
}

/* What is there cannot be opened; `file`: that is named, "" for any. */
static void refused(const char *label, ckr_item item, const char *file)
{
    ckr_ckpt *c = NULL;
    ckr_error e;
    const ckr_result r = open_as(BAD, &c, &e);
    t_check(r != CKR_OK && e.item == item && strstr(e.file, file), __FILE__, __LINE__,
            "%s: %s in %s, where %s: %s; expected %s in %s", label, ckr_item_name(e.item), e.file,
            e.where, e.text, ckr_item_name(item), file);
    t_check(!c && (r == CKR_OK || e.text[0]), __FILE__, __LINE__, "%s: no text", label);
    if (e.item == item) bad_seen[item] = true;
    ckr_ckpt_close(c);
}

static void files_of_others(void)
{
    static const char *const kinds[] = { "model", "optim", "extra_state" };
    size_t i;
    for (i = 0; i < 3; i++) {
        begin_bad(F2);
        memio_remove(&disk, rank_file(kinds[i], 2, 1));
        refused("a missing rank", CKR_ITEM_RANK_MISSING, kinds[i]);
        begin_bad(F2);
        swap_ranks(kinds[i]);
        refused("swapped", CKR_ITEM_FILES_SWAPPED, kinds[i]);
        begin_bad(F2);
        copy_file(text("%s/%s_world_size_4_rank_1.pt", actor_of(HSDP), kinds[i]),
                  rank_file(kinds[i], 4, 1));
        refused("another world's file", CKR_ITEM_FILES_FOREIGN, kinds[i]);
    }
    for (i = F1; i <= F2; i += F2 - F1) {
        begin_bad((int)i);
        swap_inside("model");
        refused("swapped, renamed inside", CKR_ITEM_MESH, "model");
    }
    begin_bad(F2);
    swap_inside("optim");
    refused("swapped optimizers, renamed inside", CKR_ITEM_MESH, "optim");
    copy_dir(actor_of(HSDP), BAD);
    refused("all files of two world sizes", CKR_ITEM_FILES_MIXED, "");
}

/* What tells the step of a file: the scheduler's clock, the optimizer's step. */
static void steps_of_others(void)
{
    static const char six[4] = { 0, 0, '\300', '\100' }, seven[4] = { 0, 0, '\340', '\100' };
    ckr_target t = to_ranks(3);
    ckr_plan *p = NULL;
    ckr_ckpt *c;
    ckr_error e;
    begin_bad(F2);
    EDIT(rank_file("extra_state", 2, 1), "last_epochq\5K\7", "last_epochq\5K\6", 0);
    refused("another step's scheduler", CKR_ITEM_FILES_STEP, "extra_state");
    begin_bad(F2);
    rename_bytes(rank_file("optim", 2, 1), seven, six, sizeof six);    /* float32, as stored */
    c = open_ok(BAD);
    if (c && CHECK_OK(ckr_plan_create(c, &t, 0, &p, &e), &e)) {
        CHECK_INT(ckr_plan_write(p, "w/out", NULL, &e), CKR_E_REFUSED);
        CHECK(strstr(e.text, "CKR_E_REPLICA_DIFFERS") != NULL);
        CHECK(!memio_find(&disk, "w/out"));
    }
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

/* Distributed tensors that make no whole. */
static void parts_that_do_not_fit(void)
{
    begin_bad(F2);
    EDIT(rank_file("model", 2, 1), "fsdp", "fsdq", -1);
    refused("another mesh", CKR_ITEM_MESH, "model");
    begin_bad(F2);
    EDIT(rank_file("model", 2, 0), "placement_types\nShard\n", "placement_types\nPartial\n", -1);
    refused("Partial", CKR_ITEM_DIST, "model");
    begin_bad(F2);
    EDIT(rank_file("optim", 2, 0), "placement_types\nShard\n", "placement_types\nPartial\n", -1);
    refused("Partial moments", CKR_ITEM_DIST, "optim");
    begin_bad(F2);
    EDIT(rank_file("model", 2, 1), "K\36K\30\206", "K\35K\30\206", 0);
    refused("a local shape of another cut", CKR_ITEM_DIST, "model");
    begin_bad(F2);
    EDIT(rank_file("model", 2, 0), "placement_types\nShard\n", "placement_types\nReplicate\n", -1);
    refused("a part that is to be the whole", CKR_ITEM_DIST, "model");
}

/* The files of a run in `dp` ranks by case k, as `kind` of what lies in BAD. */
static void foreign(int k, const char *kind, uint32_t dp, int at)
{
    uint32_t r;
    if (!convert(actor_of(k), "w/out", dp)) return;
    begin_bad(at);
    for (r = 0; r < dp; r++)
        copy_file(text("w/out/%s_world_size_%u_rank_%u.pt", kind, (unsigned)dp, (unsigned)r),
                  rank_file(kind, dp, r));
    memio_remove(&disk, "w/out");
}

static void optimizers_of_others(void)
{
    foreign(UNEVEN, "optim", 2, F2);
    refused("another model's optimizer", CKR_ITEM_RANK_DIFFERS, "optim");
    foreign(F1_ODD, "optim", 2, F1);
    refused("another model's flat optimizer", CKR_ITEM_FSDP_UNITS, "optim");
    begin_bad(F2);
    EDIT(rank_file("optim", 2, 0), "K\x19K\x1a" "e", "K\x19K\x19" "e", -1);
    refused("a parameter listed twice", CKR_ITEM_OPTIMIZER_NAMES, "optim");
    memio_remove(&disk, "w/bad");
    memio_load(&disk, DATA "/rest/global_step_2/actor", BAD);
    memio_load(&disk, DATA "/bad", "w/many");
    copy_file("w/many/many.pt", rank_file("optim", 1, 0));
    refused("a parameter of 68 values", CKR_ITEM_LIMIT, "optim");
    memio_remove(&disk, "w/many");
}

/* Each layer wrapped and each expert in it, which has all of the layer's parameters: the layer is
   no unit then. */
static void nested_units(void)
{
    static const char *const paths[] = { "in/nested", "w/three", "w/two" };
    int i;
    memio_load(&disk, DATA "/nested/ckpt", paths[0]);
    for (i = 0; i < 3; i++) {
        if (i && !convert(paths[i - 1], paths[i], (uint32_t)(4 - i))) return;
        equals_truth_of(paths[i], DATA "/nested/truth.safetensors", 10, "");
    }
    memio_remove(&disk, "w/three");
    memio_remove(&disk, "w/two");
}

/* Replicas of a shard that are not the same: found when they are compared. */
static void replicas_differ(void)
{
    ckr_ckpt *c;
    const ckr_tensor *t;
    ckr_report *report = NULL;
    ckr_error e;
    uint32_t i;
    begin_bad(HSDP);
    c = open_ok(BAD);
    if (!c) return;
    t = ckr_ckpt_tensor(c, EMBED, "param");
    for (i = 0; t && i < t->n_pieces && !t->pieces[i].replica; i++) {}
    if (CHECK(t && i < t->n_pieces))
        memio_find(&disk, c->ctx.files[t->pieces[i].file].path)->data[t->pieces[i].offset] ^= 1;
    if (CHECK_OK(ckr_ckpt_check(c, &report, &e), &e)) {
        CHECK(!report->sound && note_of(report->notes, report->n_notes, "CKR_E_REPLICA_DIFFERS"));
        ckr_report_free(report);
    }
    ckr_ckpt_close(c);
    memio_remove(&disk, "w/bad");
}

static void faults(void)
{
    whole w = CKR_ZERO;
    w.path = actor_of(F1_ODD);
    w.target = to_ranks(3);
    whole_way_fails(&w, 60);
}

/* Values of the dicts that are no tensors (Transformer Engine's _extra_state) go on, to each rank;
   an optimizer of other parameters cannot hold its own, which is said. */
static void values_beside(void)
{
#define ACTOR "w/rest/global_step_2/actor/"
    static const char *const paths[] = { ACTOR "model_world_size_3_rank_2.pt",
                                         ACTOR "optim_world_size_3_rank_1.pt",
                                         ACTOR "optim_world_size_3_rank_2.pt" };
    static const char *const keys[] = { "w._extra_state", "state", "kept" };
    ckr_target t = target_of(0, 0, 3, -1, NULL);
    ckr_open_desc d = CKR_ZERO;
    ckr_plan *p = NULL;
    ckr_ckpt *c;
    ckr_error e;
    int i;
    memio_load(&disk, DATA "/rest", "in/rest");
    if (!written(open_ok("in/rest"), "in/rest", "w/rest", &t)) return;
    d.env = &env;
    for (i = 0; i < 3; i++) {
        const ckr_node *v;
        const char *str;
        if (!CHECK_OK(ckr_tree_open(paths[i], &d, &c, &e), &e)) continue;
        v = ckr_node_get(ckr_ckpt_root(c), keys[i]);
        str = !i ? NULL : ckr_node_str(i == 1 ? ckr_node_find(v, "/0/note")
                                              : ckr_node_get(v, "by"));
        CHECK(i ? str && !strcmp(str, i == 1 ? "hello" : "root")
                : v && ckr_node_is_list(ckr_node_get(v, "amax")));
        ckr_ckpt_close(c);
    }
    c = open_ok("in/rest");
    t.variant = "fsdp2";
    if (c && CHECK_OK(ckr_plan_create(c, &t, 0, &p, &e), &e))
        CHECK(note_of(ckr_plan_info(p)->notes, ckr_plan_info(p)->n_notes,
                      "CKR_W_LEFTOVERS_LOST") != NULL);
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

int main(int argc, char **argv)
{
    static const ckr_item dead[] = { CKR_ITEM_OK };
    t_begin(argc, argv);
    load_cases();
    RUN(what_is_read);
    RUN(schedules_told);
    RUN(there_and_back);
    RUN(other_fsdp);
    RUN(fsdp_sizes);
    RUN(where_it_is_opened);
    RUN(which_step);
    RUN(actor_and_critic);
    RUN(sft_layout);
    RUN(unknown_files);
    RUN(streams);
    RUN(settings_of);
    RUN(refusals);
    RUN(schedule_changed);
    RUN(other_formats);
    RUN(from_others);
    RUN(files_of_others);
    RUN(steps_of_others);
    RUN(parts_that_do_not_fit);
    RUN(optimizers_of_others);
    RUN(replicas_differ);
    RUN(nested_units);
    RUN(values_beside);
    RUN(faults);
    if (!t_now.only) bad_all_seen(BAD_VERL, dead);
    memio_free(&disk);
    return t_end();
}
