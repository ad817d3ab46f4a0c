/* PyTorch Lightning's checkpoints (tests/data/lightning, by tests/interop/lightning.py): the live
   tensors, averages and counts of several optimizers; the file again with what was decided; which
   one of a run's directory; files of Lightning 1. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "t.h"
#include "ckpt.h"
#include "settings.h"
#include "tree.h"

#define DATA "tests/data/lightning"

static void load_cases(void)
{
    static const char *const cases[] = {
        "ema.ckpt",          "ema.safetensors",          "two.ckpt",     "two.safetensors",
        "onecycle.ckpt",     "onecycle.safetensors",     "old_1.5.10.ckpt", "weights_only.ckpt",
        "epoch_within.ckpt", "epoch_within.safetensors", "old_1.9.5_two.ckpt"
    };
    char from[80], to[80];
    size_t i;
    disk_begin();
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(from, sizeof from, DATA "/%s", cases[i]);
        snprintf(to, sizeof to, "in/%s", cases[i]);
        memio_load_file(&disk, from, to);
    }
    memio_load(&disk, DATA "/sharded.ckpt", "in/sharded.ckpt");
    memio_load_file(&disk, DATA "/sharded.safetensors", "in/sharded.safetensors");
}

static const ckr_note *said(const ckr_ckpt *c, const char *code)
{
    const ckr_state *s = ckr_ckpt_state(c);
    return note_of(s->notes, s->n_notes, code);
}

/* All tensors of the live run and no others, under their names and slots. */
static void as_live(const char *name, int64_t step)
{
    char path[80], truth[80];
    ckr_ckpt *c, *want;
    const ckr_state *s, *w;
    uint64_t i;
    snprintf(path, sizeof path, "in/%s.ckpt", name);
    snprintf(truth, sizeof truth, "in/%s.safetensors", name);
    c = open_ok(path);
    want = open_ok(truth);
    if (!c || !want) exit(2);
    s = ckr_ckpt_state(c);
    w = ckr_ckpt_state(want);
    CHECK_STR(s->dialect, "lightning");
    CHECK_STR(s->framework_version, "2.6.6");
    CHECK_INT(s->progress.step, step);
    CHECK_INT(s->n_tensors, w->n_tensors);
    for (i = 0; i < w->n_tensors; i++) {
        const char *key = w->tensors[i]->name;
        const ckr_tensor *t = !strncmp(key, "ema.", 4) ? ckr_ckpt_tensor(c, key + 4, "ema")
                                                       : by_key(c, key);
        if (t_check(t != NULL, __FILE__, __LINE__, "%s has no %s", path, key))
            same_tensor(c, t, want, w->tensors[i], path);
    }
    CHECK(said(c, "CKR_W_NO_RANDOM") != NULL);
    ckr_ckpt_close(c);
    ckr_ckpt_close(want);
    CHECK(is_sound(path));
}

static void live(void)
{
    as_live("ema", 9);
    as_live("two", 9);         /* 18 of both optimizers                                 */
    as_live("onecycle", 9);
    as_live("epoch_within", 15);
    as_live("sharded", 3);     /* a directory of two ranks, 6 updates of two optimizers */
}

/* Which scheduler is of epochs, and how many updates these have, the loops tell. */
static void epochs(void)
{
    ckr_ckpt *c = open_ok("in/epoch_within.ckpt");
    const ckr_state *s;
    if (!c) exit(2);
    s = ckr_ckpt_state(c);
    CHECK_INT(s->n_schedules, 1);
    CHECK_STR(s->schedules->kind, "torch:StepLR");
    CHECK_INT(s->schedules->every, 6);
    CHECK(!s->schedules->opaque);
    CHECK(said(c, "CKR_W_SCHEDULER_EPOCHS") != NULL);
    CHECK(said(c, "CKR_W_EPOCH_END") == NULL);
    CHECK(said(c, "CKR_W_DATA_POSITION") != NULL);
    ckr_ckpt_close(c);
}

/* A plan of `path` for what is asked; *c is closed behind it. */
static ckr_plan *planned(const char *path, const ckr_target *t, ckr_ckpt **c)
{
    ckr_plan *p = NULL;
    ckr_error e;
    *c = open_ok(path);
    if (!*c || !CHECK_OK(ckr_plan_create(*c, t, 0, &p, &e), &e)) exit(2);
    return p;
}

/* The file again: everything that was in it, in its order, and the same tensors. */
static void again(void)
{
    static const char *const cases[] = { "ema", "two", "epoch_within", "weights_only" };
    static const char *const keys[] = { "/loops", "/callbacks", "/averaging_state",
                                        "/lr_schedulers", "/pytorch-lightning_version", "/epoch",
                                        "/global_step" };
    const ckr_target t = target_of(0, 0, 0, -1, NULL);
    char path[80];
    size_t i, k;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckr_ckpt *a, *b;
        const ckr_node *x, *y;
        snprintf(path, sizeof path, "in/%s.ckpt", cases[i]);
        if (!written(open_ok(path), path, "w/out.ckpt", &t)) continue;
        a = tree_of(path);
        b = tree_of("w/out.ckpt");
        x = ckr_ckpt_root(a);
        y = ckr_ckpt_root(b);
        CHECK_INT(x->count, y->count);
        for (k = 0; k < x->count && k < y->count; k++)
            CHECK_STR(ckr_node_str(x->u.items[2 * k]), ckr_node_str(y->u.items[2 * k]));
        for (k = 0; k < sizeof keys / sizeof *keys; k++) {
            const ckr_node *v = ckr_node_find(x, keys[k]), *w = ckr_node_find(y, keys[k]);
            if (k == 2) CHECK_INT(v != NULL, w != NULL);       /* a tensor is in it         */
            else t_check(!v == !w && (!v || ckr__node_equal(v, w)), __FILE__, __LINE__, "%s: %s",
                         path, keys[k]);
        }
        ckr_ckpt_close(a);
        ckr_ckpt_close(b);
        memio_remove(&disk, "w/out.ckpt");
    }
}

/* Another length is in the scheduler's state, which wins over the script's constructor; where
   torch's class ends with an error, the run is told. */
static void longer(void)
{
    const ckr_setting set = { NULL, "total_steps", "30" };
    ckr_target t = target_of(0, 0, 0, -1, NULL);
    ckr_ckpt *c;
    ckr_error e;
    ckr_plan *p = planned("in/onecycle.ckpt", &t, &c);
    int64_t n = 0;
    CHECK_STR(setting_value(ckr_plan_info(p), "max_steps"), "20");
    CHECK_STR(setting_value(ckr_plan_info(p), "ckpt_path"), "OUT");
    settings_told(ckr_plan_info(p));
    ckr_plan_free(p);
    ckr_ckpt_close(c);
    t.sets = &set;
    t.n_sets = 1;
    t.lr_policy = CKR_LR_TARGET;
    t.max_lr_jump = 100;
    p = planned("in/onecycle.ckpt", &t, &c);
    CHECK_STR(setting_value(ckr_plan_info(p), "max_steps"), "30");
    CHECK_OK(ckr_plan_write(p, "w/out.ckpt", NULL, &e), &e);
    ckr_plan_free(p);
    ckr_ckpt_close(c);
    c = tree_of("w/out.ckpt");
    CHECK(ckr_node_i64(ckr_node_find(ckr_ckpt_root(c), "/lr_schedulers/0/total_steps"), &n));
    CHECK_INT(n, 30);
    ckr_ckpt_close(c);
    memio_remove(&disk, "w/out.ckpt");
}

/* Weights alone are loaded otherwise; what Lightning's loops count is no leftover, nor a scheduler
   of the script's own. */
static void weights(void)
{
    const ckr_target t = target_of(0, 0, 0, -1, NULL);
    ckr_ckpt *c;
    ckr_plan *p = planned("in/weights_only.ckpt", &t, &c);
    uint64_t i;
    CHECK_STR(setting_value(ckr_plan_info(p), "checkpoint_path"), "OUT");
    CHECK_STR(setting_value(ckr_plan_info(p), "ckpt_path"), "");
    CHECK(note_of(ckr_plan_info(p)->notes, ckr_plan_info(p)->n_notes, "CKR_W_SCHEDULE_UNKNOWN") ==
          NULL);
    for (i = 0; i < ckr_ckpt_state(c)->n_leftovers; i++)
        CHECK(strncmp(ckr_ckpt_state(c)->leftovers[i].path, "loops", 5) != 0);
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

/* Another number of ranks, and meta.pt with it, without which Lightning takes it for none; one
   file of it; and the tensors are the same in all. */
static void directories(void)
{
    ckr_target t = target_of(0, 0, 3, -1, NULL);
    ckr_ckpt *a, *b;
    if (!written(open_ok("in/sharded.ckpt"), "sharded", "w/out.ckpt", &t)) return;
    CHECK(memio_find(&disk, "w/out.ckpt/__2_0.distcp") != NULL);
    a = tree_of("in/sharded.ckpt/meta.pt");
    b = tree_of("w/out.ckpt/meta.pt");
    CHECK(ckr__node_equal(ckr_ckpt_root(a), ckr_ckpt_root(b)));
    ckr_ckpt_close(a);
    ckr_ckpt_close(b);
    a = open_ok("w/out.ckpt");
    if (!a) exit(2);
    CHECK_STR(ckr_ckpt_state(a)->dialect, "lightning");
    CHECK_INT(ckr_ckpt_state(a)->n_schedules, 2);
    CHECK_INT(ckr_ckpt_state(a)->n_groups, 2);
    ckr_ckpt_close(a);
    memio_remove(&disk, "w/out.ckpt/meta.pt");         /* then it is any other directory    */
    a = open_ok("w/out.ckpt");
    if (a) CHECK_STR(ckr_ckpt_state(a)->dialect, "dcp");
    ckr_ckpt_close(a);
    memio_remove(&disk, "w/out.ckpt");
}

/* A directory of others with a file of that name beside it is read as it is without; its files are
   counted once. */
static void beside_others(void)
{
    static const char *const cases[] = { "script_two", "script_flat" };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[80];
        uint64_t bytes[2];
        uint32_t files[2];
        snprintf(path, sizeof path, "tests/data/dcp/%s/ckpt", cases[i]);
        memio_load(&disk, path, "w/dcp");
        ckr_ckpt *a = open_ok("w/dcp");
        memio_load_file(&disk, DATA "/sharded.ckpt/meta.pt", "w/dcp/meta.pt");
        ckr_ckpt *b = open_ok("w/dcp");
        if (!a || !b) exit(2);
        const ckr_state *x = ckr_ckpt_state(a), *y = ckr_ckpt_state(b);
        CHECK_STR(y->dialect, "dcp");
        CHECK_INT(y->n_tensors, x->n_tensors);
        CHECK_INT(y->n_groups, x->n_groups);
        CHECK_INT(y->n_schedules, x->n_schedules);
        for (uint64_t k = 0; k < x->n_tensors && k < y->n_tensors; k++) {
            CHECK_STR(y->tensors[k]->name, x->tensors[k]->name);
            CHECK_STR(y->tensors[k]->slot, x->tensors[k]->slot);
        }
        files[0] = ckr_ckpt_files(a, &bytes[0]);
        files[1] = ckr_ckpt_files(b, &bytes[1]);
        CHECK_INT(files[1], files[0] + 1);
        ckr_ckpt_close(a);
        ckr_ckpt_close(b);
        memio_remove(&disk, "w/dcp");
    }
}

static const char *item_when_planned(ckr_ckpt *c, const ckr_target *t, const char *code)
{
    ckr_plan *p = NULL;
    ckr_error e;
    const char *found = NULL;
    if (!c || !CHECK_OK(ckr_plan_create(c, t, 0, &p, &e), &e)) exit(2);
    if (note_of(ckr_plan_info(p)->notes, ckr_plan_info(p)->n_notes, code)) found = code;
    CHECK_INT(ckr_plan_info(p)->verdict, CKR_VERDICT_REFUSED);
    ckr_plan_free(p);
    ckr_ckpt_close(c);
    return found;
}

/* Lightning's file of a script's run; what cannot be one is refused. */
static void of_others(void)
{
    ckr_target t = target_of(0, 0, 0, -1, NULL);
    ckr_ckpt *c;
    const ckr_node *root;
    int64_t n = -1;
    t.dialect = "lightning";
    memio_load_file(&disk, "tests/data/plain/plain.pt", "in/plain.pt");
    if (!written(open_ok("in/plain.pt"), "plain", "w/out.ckpt", &t)) return;
    c = tree_of("w/out.ckpt");
    root = ckr_ckpt_root(c);
    CHECK_STR(ckr_node_str(ckr_node_get(root, "pytorch-lightning_version")), "2.6.6");
    CHECK_INT(ckr_node_get(root, "optimizer_states")->count, 1);
    CHECK(ckr_node_get(root, "state_dict") != NULL);
    CHECK(ckr_node_i64(ckr_node_find(root, "/loops/fit_loop/epoch_loop.automatic_optimization."
                                           "optim_progress/optimizer/step/total/completed"), &n));
    ckr_ckpt_close(c);
    c = open_ok("w/out.ckpt");
    if (!c) exit(2);
    CHECK_STR(ckr_ckpt_state(c)->dialect, "lightning");
    CHECK_INT(ckr_ckpt_state(c)->progress.step, n);
    ckr_ckpt_close(c);
    CHECK(is_sound("w/out.ckpt"));
    memio_remove(&disk, "w/out.ckpt");
    t.without = CKR_OPTIMIZER | CKR_GROUPS | CKR_SCHEDULE;
    if (written(open_ok("in/plain.pt"), "weights", "w/out.ckpt", &t)) {
        c = tree_of("w/out.ckpt");
        CHECK_INT(ckr_node_get(ckr_ckpt_root(c), "optimizer_states")->count, 0);
        CHECK_INT(ckr_node_get(ckr_ckpt_root(c), "lr_schedulers")->count, 0);
        ckr_ckpt_close(c);
    }
    memio_remove(&disk, "w/out.ckpt");
    CHECK(item_when_planned(open_ok("in/sharded.ckpt"), &t, "CKR_E_GROUPS_WITHOUT") != NULL);
    t.without = 0;
    t.variant = "sharded";
    CHECK(item_when_planned(open_ok("in/plain.pt"), &t, "CKR_E_TRAINER_SOURCE") != NULL);
    t.variant = "full";
    CHECK(item_when_planned(open_ok("in/sharded.ckpt"), &t, "CKR_E_OPTIMIZER_NAMES") != NULL);
}

/* What is left out leaves empty lists, which Lightning's loader wants, or nothing. */
static void without(void)
{
    ckr_target t = target_of(0, 0, 0, -1, NULL);
    ckr_ckpt *c;
    const ckr_node *root;
    t.without = CKR_OPTIMIZER | CKR_GROUPS | CKR_SCHEDULE | CKR_PROGRESS;
    if (!written(open_ok("in/ema.ckpt"), "ema", "w/out.ckpt", &t)) return;
    c = tree_of("w/out.ckpt");
    root = ckr_ckpt_root(c);
    CHECK_INT(ckr_node_get(root, "optimizer_states")->count, 0);
    CHECK_INT(ckr_node_get(root, "lr_schedulers")->count, 0);
    CHECK(ckr_node_get(root, "loops") == NULL);
    CHECK(ckr_node_get(root, "current_model_state") != NULL);
    CHECK(ckr_node_get(root, "hyper_parameters") == NULL);
    ckr_ckpt_close(c);
    memio_remove(&disk, "w/out.ckpt");
}

/* The newest of a run: as its names say. */
static void newest(void)
{
    static const struct { const char *file, *as, *dir; int64_t step; } runs[] = {
        { "onecycle.ckpt", "r/epoch=1-step=9.ckpt", "r", 9 },
        { "epoch_within.ckpt", "r/epoch=2-step=15.ckpt", "r", 15 },
        { "onecycle.ckpt", "r/last.ckpt", "r", 9 },
        { "epoch_within.ckpt", "r/last-v1.ckpt", "r", 15 },
        { "onecycle.ckpt", "s/lightning_logs/version_9/checkpoints/epoch=1-step=9.ckpt", "s", 9 },
        { "epoch_within.ckpt", "s/lightning_logs/version_10/checkpoints/best-step=15.ckpt", "s",
          15 },
        { "onecycle.ckpt", "s/lightning_logs/version_11/hparams.ckpt", "s", 15 }
    };
    char from[80];
    size_t i;
    for (i = 0; i < sizeof runs / sizeof *runs; i++) {
        ckr_ckpt *c;
        snprintf(from, sizeof from, DATA "/%s", runs[i].file);
        memio_load_file(&disk, from, runs[i].as);
        c = open_ok(runs[i].dir);
        if (!c) continue;
        CHECK_STR(ckr_ckpt_state(c)->dialect, "lightning");
        CHECK_INT(ckr_ckpt_state(c)->progress.step, runs[i].step);
        ckr_ckpt_close(c);
    }
    memio_remove(&disk, "r");
    memio_remove(&disk, "s");
}

/* Its global_step may be one more than the updates; what its loops count is named otherwise. */
static void of_lightning_1(void)
{
    ckr_ckpt *c = open_ok("in/old_1.5.10.ckpt");
    if (!c) exit(2);
    CHECK_INT(ckr_ckpt_state(c)->progress.step, 7);
    CHECK(said(c, "CKR_W_LIGHTNING_OLD") != NULL);
    ckr_ckpt_close(c);
    c = open_ok("in/old_1.9.5_two.ckpt");
    if (!c) exit(2);
    CHECK_INT(ckr_ckpt_state(c)->progress.step, 7);
    CHECK_INT(ckr_ckpt_state(c)->n_schedules, 2);
    CHECK(ckr_ckpt_state(c)->schedules->unclocked);
    CHECK(said(c, "CKR_W_LIGHTNING_OLD") != NULL);
    CHECK(said(c, "CKR_GLOBAL_STEP") != NULL);
    ckr_ckpt_close(c);
}

/* A schedule that has ended beside one that goes on: no LR is a word, and no number. */
static void ended(void)
{
    ckr_ckpt *a = open_ok("in/epoch_within.ckpt"), *b = open_ok("in/onecycle.ckpt");
    ckr_diff *d = NULL;
    ckr_error e;
    uint64_t i;
    if (a && b && CHECK_OK(ckr_ckpt_diff(a, b, &d, &e), &e)) {
        const ckr_note *n = note_of(d->others, d->n_others, "CKR_DIFF_SCHEDULE");
        if (CHECK(n != NULL)) CHECK_STR(n->new_value, "torch:OneCycleLR: none");
        for (i = 0; i < d->n_others; i++)
            CHECK(!d->others[i].new_value || !strstr(d->others[i].new_value, "nan"));
    }
    ckr_diff_free(d);
    ckr_ckpt_close(a);
    ckr_ckpt_close(b);
}

static void faults_on_the_way(void)
{
    whole w = CKR_ZERO;
    w.path = "in/ema.ckpt";
    w.target = target_of(0, 0, 0, -1, NULL);
    whole_way_fails(&w, 12);
    w.path = "in/sharded.ckpt";
    whole_way_fails(&w, 8);
    w.path = "in/plain.pt";
    w.target.dialect = "lightning";
    whole_way_fails(&w, 8);
}

int main(int argc, char **argv)
{
    t_begin(argc, argv);
    load_cases();
    RUN(live);
    RUN(epochs);
    RUN(again);
    RUN(longer);
    RUN(weights);
    RUN(directories);
    RUN(beside_others);
    RUN(of_others);
    RUN(without);
    RUN(newest);
    RUN(of_lightning_1);
    RUN(ended);
    RUN(faults_on_the_way);
    memio_free(&disk);
    return t_end();
}
