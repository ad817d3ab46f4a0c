/* Runs of one framework for the trainers of another: accelerate, the HF Trainer, Sana and
   torchtitan from checkpoints of verl, accelerate and Nanotron. Tensors by name and slot
   against the source, groups, step, streams of every rank; what has no place there is said. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "t.h"
#include "ckpt.h"
#include "tree.h"

#define VERL "tests/data/verl/fsdp2_w2"
#define OUT "w/out"

static const struct {
    const char *dialect, *path;
    uint32_t ranks;
    bool streams;              /* of every rank                                             */
} targets[] = {
    { "accelerate", OUT, 3, true },
    { "accelerate", OUT, 1, true },
    { "hf_trainer", OUT, 1, true },
    { "hf_trainer", OUT, 3, true },
    { "sana", OUT "/epoch_1_step_7.pth", 1, true },
    { "torchtitan", OUT, 2, false },
};

static ckr_target to(const char *dialect, uint32_t ranks)
{
    ckr_target t = target_of(1, 1, ranks, 0, NULL);
    t.dialect = dialect;
    if (!strcmp(dialect, "torchtitan")) t.without = CKR_SCHEDULE;
    return t;
}

/* The parameters in the order of the groups: what numbers mean, where a trainer has only these. */
static const char **order_of(const ckr_state *s, size_t *n)
{
    const char **names = (const char **)calloc(s->n_tensors + 1, sizeof *names);
    uint64_t i, k;
    for (i = *n = 0; i < s->n_groups; i++)
        for (k = 0; k < s->groups[i].n_params; k++) names[(*n)++] = s->groups[i].params[k];
    return names;
}

static void same_state(const ckr_ckpt *have, const ckr_ckpt *want, const char *what)
{
    const ckr_state *a = ckr_ckpt_state(have), *b = ckr_ckpt_state(want);
    uint64_t i, k;
    for (i = 0; i < b->n_tensors; i++) {
        const ckr_tensor *x = b->tensors[i], *y = ckr_ckpt_tensor(have, x->name, x->slot);
        if (t_check(y != NULL, __FILE__, __LINE__, "%s: %s of %s is missing", what, x->slot,
                    x->name))
            same_tensor(have, y, want, x, what);
    }
    CHECK_INT(a->n_tensors, b->n_tensors);
    CHECK_INT(a->progress.step, b->progress.step);
    CHECK_INT(a->n_groups, b->n_groups);
    for (i = 0; i < a->n_groups && i < b->n_groups; i++) {
        const char *keys[] = { "lr", "weight_decay", "eps" };
        double x = 0, y = 1;
        CHECK_INT(a->groups[i].n_params, b->groups[i].n_params);
        for (k = 0; k < 3; k++)
            t_check(ckr_node_f64(ckr_node_get(a->groups[i].hyper, keys[k]), &x) &&
                        ckr_node_f64(ckr_node_get(b->groups[i].hyper, keys[k]), &y) && x >= y &&
                        x <= y, __FILE__, __LINE__, "%s: %s is %g, not %g", what, keys[k], x, y);
    }
}

/* The streams of the ranks that were there go on; every rank has one of each kind. */
static void same_streams(const char *path, uint32_t ranks, const char *what)
{
    static const char *const kinds[] = { "python", "numpy", "torch_cpu" };
    ckr_rng_streams *a = streams_of(open_ok(path), 0), *b = streams_of(open_ok("in/verl"), 0);
    uint32_t r;
    size_t k;
    CHECK_INT(a->n_ranks, ranks);
    for (r = 0; r < ranks; r++)
        for (k = 0; k < 3; k++) {
            const ckr_rng_given *x = ckr_rng_find(a, r, kinds[k], "default"),
                                *y = ckr_rng_find(b, r, kinds[k], "default");
            if (!t_check(x && x->state, __FILE__, __LINE__, "%s: rank %u has no %s", what,
                         (unsigned)r, kinds[k]))
                continue;
            if (y && y->state) CHECK(ckr_rng_equal(x->state, y->state));
        }
    ckr_rng_streams_free(a);
    ckr_rng_streams_free(b);
}

/* And from there a script's file, which is the same run. */
static void back_again(const ckr_ckpt *src)
{
    ckr_target t = to("torch", 1);
    ckr_ckpt *c;
    if (!written(open_ok(OUT), OUT, "w/back.pt", &t)) return;
    c = open_ok("w/back.pt");
    if (c) same_state(c, src, "back");
    ckr_ckpt_close(c);
    memio_remove(&disk, "w/back.pt");
}

static void from_verl(void)
{
    size_t i, n;
    memio_add(&disk, "in/verl", true);
    memio_load(&disk, VERL "/ckpt", "in/verl");
    for (i = 0; i < sizeof targets / sizeof *targets; i++) {
        const ckr_target t = to(targets[i].dialect, targets[i].ranks);
        ckr_ckpt *src = open_ok("in/verl"), *out;
        const char **names = order_of(ckr_ckpt_state(src), &n);
        if (written(open_ok("in/verl"), VERL, OUT, &t)) {
            out = open_named(targets[i].path, names, n);
            if (out) {
                CHECK_STR(ckr_ckpt_state(out)->dialect, targets[i].dialect);
                same_state(out, src, targets[i].dialect);
            }
            ckr_ckpt_close(out);
            if (!strcmp(targets[i].dialect, "torchtitan")) back_again(src);
            if (targets[i].streams)
                same_streams(targets[i].path, targets[i].ranks, targets[i].dialect);
        }
        free((void *)names);
        ckr_ckpt_close(src);
        memio_remove(&disk, OUT);
    }
}

/* What was trained is the parameter where a framework has no masters: in a whole run, and in the
   weights alone. `written` compares the digest that was told with what a reader finds. */
static void masters(void)
{
    static const char *const dialects[] = { "accelerate", "torchtitan", "verl" };
    const uint32_t alone = CKR_OPTIMIZER | CKR_GROUPS | CKR_SCHEDULE | CKR_RNG | CKR_PROGRESS;
    ckr_ckpt *src, *out;
    size_t i, k;
    uint64_t n;
    memio_add(&disk, "in/bf16", true);
    memio_load(&disk, "tests/data/nanotron/tp2_pp1_dp2_zero1_bf16_master/ckpt", "in/bf16");
    src = open_ok("in/bf16");
    for (i = 0; i < 6 && src; i++) {
        ckr_target t = to(dialects[i % 3], 2);
        t.without = i < 3 ? CKR_SCHEDULE : alone;
        if (!written(open_ok("in/bf16"), "in/bf16", OUT, &t)) continue;
        out = open_ok(OUT);
        for (n = k = 0; out && n < ckr_ckpt_state(src)->n_tensors; n++) {
            const ckr_tensor *x = ckr_ckpt_state(src)->tensors[n], *y;
            if (strcmp(x->slot, "master") != 0) continue;
            y = ckr_ckpt_tensor(out, x->name, "param");
            if (CHECK(y != NULL)) same_tensor(out, y, src, x, dialects[i % 3]);
            CHECK(ckr_ckpt_tensor(out, x->name, "master") == NULL);
            k++;
        }
        CHECK(k > 0);
        ckr_ckpt_close(out);
        memio_remove(&disk, OUT);
    }
    ckr_ckpt_close(src);
}

static bool says(const char *from, const ckr_target *t, const char *code, const char *subject)
{
    ckr_ckpt *c = open_ok(from);
    ckr_plan *p = NULL;
    ckr_error e;
    bool found = false;
    uint64_t i;
    if (c && CHECK_OK(ckr_plan_create(c, t, 0, &p, &e), &e))
        for (i = 0; i < ckr_plan_info(p)->n_notes; i++) {
            const ckr_note *n = &ckr_plan_info(p)->notes[i];
            found = found || (!strcmp(n->code, code) &&
                              (!subject || (n->subject && !strcmp(n->subject, subject))));
        }
    ckr_plan_free(p);
    ckr_ckpt_close(c);
    return found;
}

/* Nothing is dropped in silence. */
static void what_is_lost(void)
{
    ckr_target t = to("torchtitan", 2);
    memio_add(&disk, "in/acc", true);
    memio_load(&disk, "tests/data/accelerate/acc_w2_bin_tied_bf16/ckpt", "in/acc");
    CHECK(says("in/verl", &t, "CKR_W_NO_RANDOM", "random states"));
    CHECK(says("in/verl", &t, "CKR_W_LEFTOVERS_LOST", "data.pt"));
    CHECK(says("in/verl", &t, "CKR_W_TITAN_NAMES", NULL));
    CHECK(says("in/acc", &t, "CKR_E_OPTIMIZER_NAMES", "0"));     /* its optimizer has numbers  */
    t = to("verl", 2);
    t.without = CKR_SCHEDULE;
    CHECK(says("in/acc", &t, "CKR_E_OPTIMIZER_NAMES", "0"));
    t = to("accelerate", 2);
    CHECK(!says("in/verl", &t, "CKR_W_TENSORS_LOST", NULL));
    CHECK(!says("in/verl", &t, "CKR_W_NO_RANDOM", NULL));
    t = to("deepspeed", 2);
    CHECK(says("in/verl", &t, "CKR_W_NO_RANDOM", "random states"));
    t = to("torchtitan", 2);
    t.variant = "split_qkv";
    CHECK(says("in/verl", &t, "CKR_E_TRAINER_SOURCE", "variant"));
}

/* A schedule of another family needs a word of the user, not a silent one of the tool. */
static void schedules(void)
{
    ckr_target t = to("accelerate", 1);
    memio_add(&disk, "in/nano", true);
    memio_load(&disk, "tests/data/nanotron/tp2_pp1_dp1/ckpt", "in/nano");
    CHECK(says("in/nano", &t, "CKR_E_SCHEDULE_HOLD", NULL));
    CHECK(says("in/nano", &t, "CKR_W_NO_RANDOM", NULL));       /* its streams are of no rank */
    t.schedule = "torch:LinearLR,start_factor=1,end_factor=0.1,total_iters=50";
    t.max_lr_jump = 100;
    CHECK(!says("in/nano", &t, "CKR_E_SCHEDULE_HOLD", NULL));
}

/* A zeroed target is no target: it continues, with the sizes, the stage and the streams that were;
   stage 0 is asked for by a value of its own. */
static void as_it_was(void)
{
    static const char *const paths[] = {
        "tests/data/nanotron/tp2_pp1_dp2_zero1_bf16_master/ckpt", "tests/data/llmc/uneven/ckpt",
        "tests/data/deepspeed/robin/ckpt", "tests/data/megatron/legacy_tp2_dp2_distopt/ckpt"
    };
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        ckr_ckpt *c = NULL;
        ckr_error e;
        ckr_rng_streams *streams = NULL;
        const ckr_rng_want want = CKR_ZERO;
        uint64_t notes = 0;
        if (!CHECK_OK(ckr_ckpt_open(paths[i], NULL, &c, &e), &e)) continue;
        const ckr_topology was = ckr_ckpt_state(c)->topology;
        for (int k = 0; k < 4; k++) {
            ckr_target t = CKR_ZERO;
            ckr_plan *p = NULL;
            t.topology.zero = k < 2 ? 0 : k == 2 ? -1 : CKR_ZERO_OFF;
            if (!CHECK_OK(ckr_plan_create(c, k ? &t : NULL, 0, &p, &e), &e)) continue;
            const ckr_plan_facts *f = ckr_plan_info(p);
            CHECK(f->to.tp == was.tp && f->to.pp == was.pp && f->to.dp == was.dp);
            if (k == 3) {
                CHECK(!f->to.zero || f->verdict == CKR_VERDICT_REFUSED || f->n_notes > notes);
            } else {
                CHECK_INT(f->to.zero, was.zero);
                CHECK(f->verdict != CKR_VERDICT_REFUSED && (!k || f->n_notes == notes));
                notes = f->n_notes;
            }
            ckr_plan_free(p);
        }
        CHECK(was.zero > 0);
        if (CHECK_OK(ckr_ckpt_rng(c, &want, &streams, &e), &e))
            for (uint32_t k = 0; k < streams->n_ranks * streams->n_streams; k++)
                CHECK(streams->given[k].source == CKR_RNG_FROM_RANK &&
                      !streams->given[k].exactness);
        ckr_rng_streams_free(streams);
        ckr_ckpt_close(c);
    }
}

static void faults(void)
{
    whole w = CKR_ZERO;
    w.path = "in/verl";
    w.target = to("accelerate", 2);
    whole_way_fails(&w, 40);
    w.target = to("hf_trainer", 1);
    whole_way_fails(&w, 20);
    w.target = to("torchtitan", 2);
    whole_way_fails(&w, 20);
}

int main(int argc, char **argv)
{
    t_begin(argc, argv);
    disk_begin();
    RUN(from_verl);
    RUN(masters);
    RUN(what_is_lost);
    RUN(schedules);
    RUN(as_it_was);
    RUN(faults);
    memio_free(&disk);
    return t_end();
}
