/* Training runs' files of no framework (tests/data/plain): parameters, state and groups by name
   whatever the containers, the same as another reader finds; numbers of Python in the state; the
   file again as it was, and the files of other frameworks that are made of it. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "t.h"
#include "ckpt.h"
#include "tree.h"

#define DATA "tests/data/plain"

static const char *const names[] = { "tok.weight", "norm.weight", "norm.bias", "up.weight",
                                     "up.bias",    "down.weight", "down.bias" };
enum { N_NAMES = sizeof names / sizeof *names };

static void load_cases(void)
{
    static const char *const cases[] = { "plain.pt", "groups.pt", "several.pt" };
    char from[80], to[80];
    size_t i;
    memset(&env, 0, sizeof env);
    env.io = memio_io(&disk);
    memio_add(&disk, "in", true);
    memio_add(&disk, "w", true);
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(from, sizeof from, DATA "/%s", cases[i]);
        snprintf(to, sizeof to, "in/%s", cases[i]);
        memio_load_file(&disk, from, to);
    }
    memio_load_file(&disk, DATA "/numbers.pth", "in/epoch_1_step_3.pth");      /* Sana's name  */
    memio_load_file(&disk, DATA "/numbers.pth", "in/numbers.pt");
}

/* The optimizer's parameters named by the caller. */
static ckr_ckpt *open_named(const char *path)
{
    ckr_open_desc d = CKR_ZERO;
    ckr_ckpt *c = NULL;
    ckr_error e;
    d.env = &env;
    d.names = names;
    d.n_names = N_NAMES;
    expect_open(ckr_ckpt_open(path, &d, &c, &e), path, &e);
    return c;
}

/* Writes c, which it closes. */
static bool to(ckr_ckpt *c, const char *dialect, const char *slots, const char *path)
{
    ckr_target t = target_of(0, 0, 0, -1, NULL);
    t.dialect = dialect;
    t.slots = slots;
    return written(c, "c", path, &t);
}

static double number_of(const ckr_ckpt *c, const char *name, const char *slot, ckr_dtype dtype)
{
    const ckr_tensor *t = ckr_ckpt_tensor(c, name, slot);
    uint8_t *raw;
    size_t n;
    double v;
    if (!t_check(t != NULL, __FILE__, __LINE__, "%s has no %s", name, slot)) return -1;
    CHECK_INT(t->dtype, dtype);
    CHECK_INT(t->n_dims, 0);
    raw = tensor_bytes(c, t, &n);
    v = ckr__load_f64(t->dtype, raw);
    free(raw);
    return v;
}

/* Numbers are slots; in the framework's own file they are numbers again. */
static void numbers(void)
{
    ckr_ckpt *c = open_named("in/epoch_1_step_3.pth");
    ckr_open_desc d = CKR_ZERO;
    ckr_error e;
    const ckr_node *state;
    size_t i;
    for (i = 0; c && i < N_NAMES; i++) {
        CHECK(ckr__same(number_of(c, names[i], "step", CKR_DTYPE_I64), 3));
        CHECK(ckr__same(number_of(c, names[i], "ratio", CKR_DTYPE_F64), 0.25));
    }
    if (c) CHECK_INT(ckr_ckpt_state(c)->n_leftovers, 0);
    if (to(c, NULL, NULL, "w/own")) {
        c = NULL;
        d.env = &env;
        CHECK_OK(ckr_tree_open("w/own/epoch_1_step_3.pth", &d, &c, &e), &e);
        state = ckr_node_find(c ? ckr_ckpt_root(c) : NULL, "/optimizer/state/0");
        CHECK(ckr_node_get(state, "step") && ckr_node_get(state, "step")->kind == CKR_NODE_INT);
        CHECK(ckr_node_get(state, "ratio") && ckr_node_get(state, "ratio")->kind == CKR_NODE_FLOAT);
        ckr_ckpt_close(c);
    }
    if (to(open_named("in/epoch_1_step_3.pth"), "safetensors", "all", "w/all.safetensors")) {
        c = open_ok("w/all.safetensors");
        if (c)
            CHECK(ckr__same(number_of(c, "optimizer.state.up.bias.step", "param", CKR_DTYPE_I64),
                            3));
        ckr_ckpt_close(c);
    }
    memio_remove(&disk, "w/own");
    memio_remove(&disk, "w/all.safetensors");
}

/* DeepSpeed gets the float32 counters of torch's optimizers; what a flat group cannot hold is
   refused. */
static void numbers_to_deepspeed(void)
{
    ckr_target t = target_of(0, 0, 2, 0, NULL);
    ckr_plan *p = NULL;
    ckr_error e;
    ckr_ckpt *c;
    t.dialect = "deepspeed";
    if (written(open_named("in/epoch_1_step_3.pth"), "numbers", "w/out", &t)) {
        c = open_ok("w/out");
        if (c) {
            CHECK(ckr__same(number_of(c, "up.bias", "step", CKR_DTYPE_F32), 3));
            CHECK(ckr__same(number_of(c, "up.bias", "ratio", CKR_DTYPE_F64), 0.25));
            CHECK(ckr_ckpt_tensor(c, "up.bias", "ema") == NULL);
        }
        ckr_ckpt_close(c);
        CHECK(is_sound("w/out"));
    }
    memio_remove(&disk, "w/out");
    t.topology.zero = 1;
    c = open_named("in/epoch_1_step_3.pth");
    if (c && CHECK_OK(ckr_plan_create(c, &t, 0, &p, &e), &e)) {
        const ckr_plan_facts *f = ckr_plan_info(p);
        CHECK_INT(f->verdict, CKR_VERDICT_REFUSED);
        CHECK(note_of(f->notes, f->n_notes, "CKR_E_DEEPSPEED_OPTIMIZER") != NULL);
        CHECK(note_of(f->notes, f->n_notes, "CKR_W_DS_OUTSIDE") != NULL);
    }
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

int main(int argc, char **argv)
{
    t_begin(argc, argv);
    load_cases();
    RUN(numbers);
    RUN(numbers_to_deepspeed);
    memio_free(&disk);
    return t_end();
}
