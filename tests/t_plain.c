/* Training runs' files of no framework (tests/data/plain): parameters, state and groups by name
   whatever the containers, the same as another reader finds; numbers of Python in the state; the
   file again as it was, and the files of other frameworks that are made of it. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "t.h"
#include "ckpt.h"
#include "tree.h"
#include "bad.h"

#define DATA "tests/data/plain"

static const char *const names[] = { "tok.weight", "norm.weight", "norm.bias", "up.weight",
                                     "up.bias",    "down.weight", "down.bias" };
enum { N_NAMES = sizeof names / sizeof *names };

static void load_cases(void)
{
    static const char *const cases[] = { "plain.pt", "groups.pt", "several.pt", "named.pt",
                                         "beside.pt", "history.pt", "nested.pt", "keyed.pt",
                                         "bare.pt",  "list.pt", "dtensor_ema.pt", "deep.pt",
                                         "ordered.pt", "swa.pt", "each.pt", "strided.pt" };
    char from[80], to[80];
    size_t i;
    disk_begin();
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(from, sizeof from, DATA "/%s", cases[i]);
        snprintf(to, sizeof to, "in/%s", cases[i]);
        memio_load_file(&disk, from, to);
    }
    memio_load_file(&disk, DATA "/numbers.pth", "in/epoch_1_step_3.pth");      /* Sana's */
    memio_load_file(&disk, DATA "/numbers.pth", "in/numbers.pt");
    memio_load_file(&disk, "tests/data/verl/fsdp1_w2/ckpt/global_step_7/actor/"
                           "extra_state_world_size_2_rank_1.pt", "in/extra.pt");
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
    ckr_ckpt *c = open_named("in/epoch_1_step_3.pth", names, N_NAMES);
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
    if (to(open_named("in/epoch_1_step_3.pth", names, N_NAMES), "safetensors", "all",
           "w/all.safetensors")) {
        c = open_ok("w/all.safetensors");
        if (c)
            CHECK(ckr__same(number_of(c, "optimizer.state.up.bias.step", "param", CKR_DTYPE_I64),
                            3));
        ckr_ckpt_close(c);
    }
    memio_remove(&disk, "w/own");
    memio_remove(&disk, "w/all.safetensors");
}

/* Numbers stay numbers where the optimizer's own state is kept; what a flat group cannot hold is
   refused. */
static void numbers_to_deepspeed(void)
{
    ckr_target t = target_of(0, 0, 2, 0, NULL);
    ckr_plan *p = NULL;
    ckr_error e;
    ckr_ckpt *c;
    t.dialect = "deepspeed";
    if (written(open_named("in/epoch_1_step_3.pth", names, N_NAMES), "numbers", "w/out", &t)) {
        c = open_ok("w/out");
        if (c) {
            CHECK(ckr__same(number_of(c, "up.bias", "step", CKR_DTYPE_I64), 3));
            CHECK(ckr__same(number_of(c, "up.bias", "ratio", CKR_DTYPE_F64), 0.25));
            CHECK(ckr_ckpt_tensor(c, "up.bias", "ema") == NULL);
        }
        ckr_ckpt_close(c);
        CHECK(is_sound("w/out"));
    }
    memio_remove(&disk, "w/out");
    t.topology.zero = 1;
    c = open_named("in/epoch_1_step_3.pth", names, N_NAMES);
    if (c && CHECK_OK(ckr_plan_create(c, &t, 0, &p, &e), &e)) {
        const ckr_plan_facts *f = ckr_plan_info(p);
        CHECK_INT(f->verdict, CKR_VERDICT_REFUSED);
        CHECK(note_of(f->notes, f->n_notes, "CKR_E_SLOT_CUT") != NULL);
        CHECK(note_of(f->notes, f->n_notes, "CKR_W_DS_OUTSIDE") != NULL);
    }
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

/* Number `at` of the optimizer's file at `path` has the state of the parameter `name`. */
static void same_state(const ckr_ckpt *c, ckr_ckpt *file, const char *path, int at,
                       const char *name, const char *slot)
{
    const ckr_tensor *t = ckr_ckpt_tensor(c, name, slot);
    const ckr_node *n;
    char pointer[120];
    uint8_t *a, *b;
    size_t size;
    ckr_error e;
    snprintf(pointer, sizeof pointer, "%s/state/%d/%s", path, at, slot);
    n = ckr_node_find(ckr_ckpt_root(file), pointer);
    if (!t_check(t && n && n->kind == CKR_NODE_TENSOR, __FILE__, __LINE__, "%s of %s", slot, name))
        return;
    a = tensor_bytes(c, t, &size);
    b = (uint8_t *)malloc(size + 1);
    if (!b) exit(2);
    CHECK_OK(ckr_view_read(file, n->u.view, 0, (int64_t)(size / ckr_dtype_size(t->dtype)), b, &e),
             &e);
    t_little(a, size, ckr__dtypes[t->dtype].swap);     /* as ckr_view_read gives them */
    t_check(!memcmp(a, b, size), __FILE__, __LINE__, "%s is not %s of %s", pointer, slot, name);
    free(a);
    free(b);
}

static bool has_leftover(const ckr_state *s, const char *path)
{
    uint64_t i;
    for (i = 0; i < s->n_leftovers && strcmp(s->leftovers[i].path, path) != 0; i++) {}
    return i < s->n_leftovers;
}

/* Everything of a run's file: parameters, moments, averages, groups, tie, progress; what is none of
   them is a leftover. One group with all parameters needs no guess. */
static void by_parameter(void)
{
    ckr_ckpt *c = open_ok("in/plain.pt"), *file = tree_of("in/plain.pt");
    const ckr_state *s;
    size_t i;
    if (!c) return;
    s = ckr_ckpt_state(c);
    CHECK_STR(s->dialect, "torch");
    CHECK_INT(s->n_tensors, 10 + 11 + 3 * N_NAMES);
    CHECK_INT(s->n_groups, 1);
    CHECK_INT(s->groups[0].n_params, N_NAMES);
    for (i = 0; i < N_NAMES; i++) {
        CHECK_STR(s->groups[0].params[i], names[i]);
        same_state(c, file, "/optimizer", (int)i, names[i], "exp_avg");
        same_state(c, file, "/optimizer", (int)i, names[i], "exp_avg_sq");
        same_state(c, file, "/optimizer", (int)i, names[i], "step");
        CHECK(ckr_ckpt_tensor(c, names[i], "param") && ckr_ckpt_tensor(c, names[i], "ema"));
    }
    CHECK(ckr_ckpt_tensor(c, "norm.running_var", "param") != NULL);
    CHECK_INT(s->n_ties, 1);
    CHECK_STR(s->ties[0].other, "head.weight");
    CHECK_INT(s->progress.step, 3);
    CHECK_INT(s->progress.epoch, 2);
    CHECK_STR(s->schedules[0].kind, "torch:CosineAnnealingLR");
    CHECK_INT(s->n_leftovers, 3);
    CHECK(has_leftover(s, "best") && has_leftover(s, "args.lr") && has_leftover(s, "args.seed"));
    CHECK_INT(s->n_notes, 0);
    ckr_ckpt_close(c);
    ckr_ckpt_close(file);
}

/* Two groups that shapes do not tell apart: said, and settled by names. */
static void ambiguous(void)
{
    static const char *const order[] = { "tok.weight", "norm.bias", "up.bias", "down.bias",
                                         "norm.weight", "up.weight", "down.weight" };
    ckr_ckpt *c = open_ok("in/groups.pt"), *file = tree_of("in/groups.pt");
    ckr_open_desc d = CKR_ZERO;
    ckr_error e;
    const ckr_state *s;
    size_t i;
    if (c) {
        s = ckr_ckpt_state(c);
        CHECK(note_of(s->notes, s->n_notes, "CKR_W_PARAM_NAMES") != NULL);
        CHECK(ckr_ckpt_tensor(c, "4", "exp_avg") && ckr_ckpt_tensor(c, "up.weight", "param"));
        CHECK_INT(s->progress.step, 3);    /* the optimizer's, not 7                          */
        CHECK(has_leftover(s, "global_step"));
    }
    ckr_ckpt_close(c);
    d.env = &env;
    d.names = order;
    d.n_names = N_NAMES;
    c = NULL;
    expect_open(ckr_ckpt_open("in/groups.pt", &d, &c, &e), "groups", &e);
    for (i = 0; c && i < N_NAMES; i++)
        same_state(c, file, "/optimizer_state_dict", (int)i, order[i], "exp_avg");
    if (c) CHECK_STR(ckr_ckpt_state(c)->groups[1].params[0], "norm.weight");
    ckr_ckpt_close(c);
    ckr_ckpt_close(file);
    d.n_names = N_NAMES - 1;
    CHECK(ckr_ckpt_open("in/groups.pt", &d, &c, &e) != CKR_OK);
    CHECK_INT(e.item, CKR_ITEM_OPTIMIZER_NAMES);
}

/* Optimizers in a list share the model; schedulers that differ in their groups only are one. */
static void several(void)
{
    ckr_ckpt *c = open_ok("in/several.pt");
    const ckr_state *s;
    if (!c) return;
    s = ckr_ckpt_state(c);
    CHECK_INT(s->n_groups, 2);
    CHECK_STR(s->groups[0].params[2], "down.weight");
    CHECK_STR(s->groups[1].params[0], "norm.weight");
    CHECK(ckr_ckpt_tensor(c, "up.weight", "momentum_buffer") != NULL);
    CHECK(ckr_ckpt_tensor(c, "up.bias", "exp_avg") != NULL);
    CHECK_INT(s->n_schedules, 1);
    CHECK_INT(s->schedules[0].n_lanes, 2);
    CHECK_INT(s->progress.step, 3);
    CHECK(note_of(s->notes, s->n_notes, "CKR_W_PARAM_NAMES_GUESSED") != NULL);
    ckr_ckpt_close(c);
}

/* Optimizers that name their parameters, of two models whose keys stay in the names. */
static void named(void)
{
    ckr_ckpt *c = open_ok("in/named.pt");
    const ckr_state *s;
    if (!c) return;
    s = ckr_ckpt_state(c);
    CHECK_INT(s->n_tensors, 2 * (10 + 3 * N_NAMES));
    CHECK_STR(s->groups[1].params[1], "second.norm.weight");
    CHECK(ckr_ckpt_tensor(c, "second.up.bias", "exp_avg") != NULL);
    CHECK_INT(s->n_notes, 0);
    ckr_ckpt_close(c);
}

/* One level down, behind DDP's and torch.compile's names, which stay in the file. */
static void nested(void)
{
    ckr_ckpt *c = open_ok("in/nested.pt"), *file;
    const ckr_state *s;
    ckr_target t = target_of(0, 0, 0, -1, NULL);
    ckr_group group = CKR_ZERO;
    static const char *const order[] = { "weight", "bias" };
    if (!c) return;
    s = ckr_ckpt_state(c);
    CHECK_INT(s->n_tensors, 2 * (2 + 3));
    CHECK(ckr_ckpt_tensor(c, "weight", "param") && ckr_ckpt_tensor(c, "bias", "exp_avg_sq"));
    CHECK(ckr_ckpt_tensor(c, "bias", "ema") != NULL);
    CHECK_STR(s->groups[0].params[0], "weight");
    CHECK_INT(s->progress.step, 1);
    CHECK_INT(s->progress.epoch, 4);
    CHECK_INT(s->n_leftovers, 1);          /* cfg                                             */
    CHECK_INT(s->n_notes, 0);
    ckr_ckpt_close(c);
    if (to(open_ok("in/nested.pt"), "dcp", NULL, "w/out")) {
        c = open_ok("w/out");
        if (c) CHECK(ckr_ckpt_tensor(c, "weight", "exp_avg") != NULL);
        if (c) CHECK_INT(ckr_ckpt_state(c)->progress.epoch, 4);
        ckr_ckpt_close(c);
        memio_remove(&disk, "w/out");
    }
    group.params = (const char **)order;
    group.n_params = 2;
    t.groups = &group;
    t.n_groups = 1;
    if (!written(open_ok("in/nested.pt"), "nested", "w/out.pt", &t)) return;
    file = tree_of("w/out.pt");
    CHECK_STR(ckr_node_str(ckr_node_find(ckr_ckpt_root(file),
                                         "/trainer/optimizer/param_groups/0/param_names/1")),
              "module._orig_mod.bias");
    ckr_ckpt_close(file);
    memio_remove(&disk, "w/out.pt");
}

/* Optimizers by the keys that the models have: said, since nothing but the key tells. */
static void keyed(void)
{
    ckr_ckpt *c = open_ok("in/keyed.pt"), *file = tree_of("in/keyed.pt");
    const ckr_state *s;
    if (c) {
        s = ckr_ckpt_state(c);
        CHECK_INT(s->n_tensors, 2 * (2 + 2 * 3));
        CHECK_INT(s->n_leftovers, 0);
        CHECK_STR(s->groups[0].params[0], "D.weight");
        CHECK_STR(s->groups[1].params[1], "G.bias");
        same_state(c, file, "/optimizers/G", 0, "G.weight", "exp_avg");
        same_state(c, file, "/optimizers/D", 1, "D.bias", "exp_avg_sq");
        CHECK(note_of(s->notes, s->n_notes, "CKR_W_PARAM_NAMES_GUESSED") != NULL);
        CHECK(note_of(s->notes, s->n_notes, "CKR_W_PARAM_NAMES") == NULL);
    }
    ckr_ckpt_close(c);
    ckr_ckpt_close(file);
}

/* An optimizer without a model: slots of numbers. */
static void bare(void)
{
    ckr_ckpt *c = open_ok("in/bare.pt"), *file = tree_of("in/bare.pt");
    const ckr_state *s;
    if (c) {
        s = ckr_ckpt_state(c);
        CHECK_INT(s->n_tensors, 2 * 3);
        CHECK_INT(s->n_leftovers, 0);
        CHECK_INT(s->progress.step, 1);
        CHECK_STR(s->groups[0].params[1], "1");
        same_state(c, file, "", 1, "1", "exp_avg");
        CHECK(note_of(s->notes, s->n_notes, "CKR_W_PARAM_NAMES") != NULL);
    }
    ckr_ckpt_close(c);
    ckr_ckpt_close(file);
}

/* Two readers of one file. */
static void as_sana(void)
{
    uint8_t a[16], b[16];
    digest_of("in/epoch_1_step_3.pth", a);
    digest_of("in/numbers.pt", b);
    CHECK(!memcmp(a, b, 16));
}

/* The file again: the same containers, the same state, and nothing to say, guess or not. */
static void again(void)
{
    static const char *const cases[] = { "plain", "groups", "several", "numbers", "named",
                                         "beside",  "history", "nested", "keyed", "bare",
                                         "strided" };
    char path[40];
    size_t i;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckr_target t = target_of(0, 0, 0, -1, NULL);
        ckr_ckpt *a, *b;
        ckr_diff *d = NULL;
        ckr_error e;
        snprintf(path, sizeof path, "in/%s.pt", cases[i]);
        t.strict = true;
        if (!written(open_ok(path), path, "w/out.pt", &t)) continue;
        a = open_ok(path);
        b = open_ok("w/out.pt");
        if (a && b && CHECK_OK(ckr_ckpt_diff(a, b, &d, &e), &e)) {
            CHECK_INT(d->n_tensors + d->n_others, 0);
            ckr_diff_free(d);
        }
        ckr_ckpt_close(a);
        ckr_ckpt_close(b);
        memio_remove(&disk, "w/out.pt");
    }
}

/* What is dense lies in the new file as in the old one, as fused optimizers need it; what has gaps,
   row by row. */
static void strided(void)
{
    static const struct { const char *at; bool kept; } rows[] = {
        { "/model/0.weight", true }, { "/model/1.weight", true }, { "/turned", true },
        { "/optimizer/state/0/exp_avg", true }, { "/optimizer/state/2/exp_avg_sq", true },
        { "/permuted", true }, { "/gaps", false }, { "/one", false }
    };
    if (!to(open_ok("in/strided.pt"), "torch", NULL, "w/out.pt")) return;
    ckr_ckpt *a = tree_of("in/strided.pt"), *b = tree_of("w/out.pt");
    for (size_t i = 0; a && b && i < sizeof rows / sizeof *rows; i++) {
        const ckr_node *x = ckr_node_find(ckr_ckpt_root(a), rows[i].at),
                       *y = ckr_node_find(ckr_ckpt_root(b), rows[i].at);
        if (!CHECK(x && y && x->kind == CKR_NODE_TENSOR && y->kind == CKR_NODE_TENSOR)) continue;
        const ckr_view *v = x->u.view, *w = y->u.view;
        int64_t by_row[CKR_MAX_DIMS];
        ckr__strides(w->n_dims, w->shape, by_row);
        CHECK(v->n_dims == w->n_dims && memcmp(v->stride, by_row, 8 * (size_t)v->n_dims) != 0);
        t_check(!memcmp(w->stride, rows[i].kept ? v->stride : by_row, 8 * (size_t)w->n_dims),
                __FILE__, __LINE__, "strides of %s", rows[i].at);
        CHECK(w->data_bytes == (uint64_t)(ckr_dtype_size(w->dtype) * (size_t)w->shape[0]) *
                                   (uint64_t)(w->n_dims > 1 ? w->shape[1] : 1) *
                                   (uint64_t)(w->n_dims > 2 ? w->shape[2] : 1) *
                                   (uint64_t)(w->n_dims > 3 ? w->shape[3] : 1));
    }
    ckr_ckpt_close(a);
    ckr_ckpt_close(b);
    memio_remove(&disk, "w/out.pt");
}

/* Values of the groups go to each optimizer; a schedule of several is not written anew. */
static void changed(void)
{
    ckr_target t = target_of(0, 0, 0, -1, NULL);
    ckr_setting set = CKR_ZERO;
    ckr_plan *p = NULL;
    ckr_error e;
    ckr_ckpt *c;
    double v = 0;
    set.key = "weight_decay";
    set.value = "0.25";
    t.sets = &set;
    t.n_sets = 1;
    if (written(open_ok("in/several.pt"), "several", "w/out.pt", &t)) {
        c = tree_of("w/out.pt");
        CHECK(ckr_node_f64(ckr_node_find(ckr_ckpt_root(c),
                                         "/optimizers/1/param_groups/0/weight_decay"), &v));
        CHECK(ckr__same(v, 0.25));
        ckr_ckpt_close(c);
    }
    memio_remove(&disk, "w/out.pt");
    set.key = "lr";
    c = open_ok("in/several.pt");
    if (c && CHECK_OK(ckr_plan_create(c, &t, 0, &p, &e), &e))
        CHECK_INT(ckr_plan_info(p)->verdict, CKR_VERDICT_CHANGED);
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

/* To torch's distributed format as any other state goes there, with what the file has beside. */
static void to_dcp(void)
{
    ckr_ckpt *c;
    if (!to(open_ok("in/plain.pt"), "dcp", NULL, "w/out")) return;
    c = open_ok("w/out");
    if (c) {
        const ckr_state *s = ckr_ckpt_state(c);
        CHECK_STR(s->dialect, "dcp");
        CHECK(ckr_ckpt_tensor(c, "up.bias", "param") != NULL);
        CHECK(ckr_ckpt_tensor(c, "up.bias", "ema") != NULL);
        CHECK(ckr_ckpt_tensor(c, "head.weight", "param") != NULL);     /* tied: both names  */
        CHECK(ckr_ckpt_tensor(c, "up.bias", "exp_avg") != NULL);
        CHECK(has_leftover(s, "best"));
        CHECK_INT(s->n_groups, 1);
        CHECK_INT(s->progress.epoch, 2);
        if (CHECK_INT(s->n_schedules, 1)) CHECK_STR(s->schedules->kind, "torch:CosineAnnealingLR");
    }
    ckr_ckpt_close(c);
    memio_remove(&disk, "w/out");
}

/* Tensors in lists are tensors of DCP, as torch writes them: it takes a list without one for one
   value, and looks for its key. */
static void lists_to_dcp(void)
{
    static const char *const beside[] = { "mixed.0", "mixed.1", "ema.decay" };
    ckr_ckpt *c;
    const ckr_node *n;
    size_t i;
    if (!to(open_ok("in/beside.pt"), "dcp", NULL, "w/out")) return;
    c = open_ok("w/out");
    for (i = 0; c && i < sizeof beside / sizeof *beside; i++)
        t_check(has_leftover(ckr_ckpt_state(c), beside[i]), __FILE__, __LINE__, "%s is not there",
                beside[i]);
    if (c) CHECK_INT(ckr_ckpt_state(c)->n_rng, 2);
    ckr_ckpt_close(c);
    CHECK(is_sound("w/out"));
    if (to(open_ok("w/out"), "torch", NULL, "w/back.pt")) {
        c = tree_of("w/back.pt");
        n = ckr_node_find(ckr_ckpt_root(c), "/rng/1");
        CHECK(n && n->kind == CKR_NODE_TENSOR);
        n = ckr_node_find(ckr_ckpt_root(c), "/mixed/1");
        CHECK(n && n->kind == CKR_NODE_INT);
        ckr_ckpt_close(c);
    }
    memio_remove(&disk, "w/out");
    memio_remove(&disk, "w/back.pt");
}

/* An export of all slots has no place for tensors of no parameter, and says so; one of parameters
   was never meant to have them. */
static void export_says(void)
{
    static const char *const slots[] = { "all", "params" };
    ckr_target t = target_of(0, 0, 0, -1, NULL);
    int i;
    t.dialect = "safetensors";
    for (i = 0; i < 2; i++) {
        ckr_ckpt *c = open_ok("in/beside.pt");
        ckr_plan *p = NULL;
        ckr_error e;
        t.slots = slots[i];
        if (c && CHECK_OK(ckr_plan_create(c, &t, 0, &p, &e), &e)) {
            const ckr_plan_facts *f = ckr_plan_info(p);
            const ckr_note *n = note_of(f->notes, f->n_notes, "CKR_W_TENSORS_ONLY");
            CHECK_INT(f->verdict, i ? CKR_VERDICT_EXACT : CKR_VERDICT_APPROX);
            CHECK((n != NULL) == !i);
            if (n) CHECK_STR(n->old_value, "3 tensors");
        }
        ckr_plan_free(p);
        ckr_ckpt_close(c);
    }
}

/* To DeepSpeed by parameter, at any stage; numbers without names are refused. */
static void to_deepspeed(void)
{
    ckr_target t = target_of(0, 0, 2, 0, NULL);
    int32_t zero;
    ckr_plan *p = NULL;
    ckr_error e;
    ckr_ckpt *c;
    t.dialect = "deepspeed";
    for (zero = 0; zero < 4; zero++) {
        t.topology.zero = stage_of(zero);
        if (!written(open_ok("in/plain.pt"), "plain", "w/out", &t)) continue;
        c = open_ok("w/out");
        if (c) CHECK(ckr_ckpt_tensor(c, "up.bias", "exp_avg") != NULL);
        if (c) CHECK_STR(ckr_ckpt_state(c)->groups[0].params[4], "up.bias");
        ckr_ckpt_close(c);
        CHECK(is_sound("w/out"));
        memio_remove(&disk, "w/out");
    }
    t.topology.zero = 1;
    c = open_ok("in/groups.pt");
    if (c && CHECK_OK(ckr_plan_create(c, &t, 0, &p, &e), &e)) {
        const ckr_plan_facts *f = ckr_plan_info(p);
        CHECK_INT(f->verdict, CKR_VERDICT_REFUSED);
        CHECK(note_of(f->notes, f->n_notes, "CKR_E_OPTIMIZER_NAMES") != NULL);
    }
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

/* What DeepSpeed's files have no place for is said: values of the script, flags in the state. */
static void values_to_deepspeed(void)
{
    ckr_target t = target_of(0, 0, 1, 0, NULL);
    ckr_ckpt *c = open_ok("in/beside.pt");
    ckr_plan *p = NULL;
    ckr_error e;
    uint64_t i, found = 0;
    t.dialect = "deepspeed";
    if (c && CHECK_OK(ckr_plan_create(c, &t, 0, &p, &e), &e)) {
        const ckr_plan_facts *f = ckr_plan_info(p);
        CHECK_INT(f->verdict, CKR_VERDICT_APPROX);
        for (i = 0; i < f->n_notes; i++) {
            const char *was = f->notes[i].old_value, *subject = f->notes[i].subject;
            const bool counter = !strcmp(f->notes[i].code, "CKR_W_PROGRESS");
            if (!counter && strcmp(f->notes[i].code, "CKR_W_DS_OUTSIDE") != 0) continue;
            found++;
            CHECK_INT(f->notes[i].severity, CKR_LOST);
            if (counter) CHECK_STR(subject, "epoch");
            else
                CHECK_STR(was, !strcmp(subject, "ema")       ? "2 tensors"
                               : !strcmp(subject, "tensors") ? "3 tensors"
                                                             : "8 values");
        }
        CHECK_INT(found, 4);
    }
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

/* Lists of a state are lists again where a parameter's state is a dict. */
static void history_to_deepspeed(void)
{
    ckr_target t = target_of(0, 0, 1, 0, NULL);
    ckr_ckpt *c;
    const ckr_node *n;
    t.dialect = "deepspeed";
    if (!written(open_ok("in/history.pt"), "history", "w/out", &t)) return;
    c = tree_of("w/out/global_step0/mp_rank_00_model_states.pt");
    n = ckr_node_find(ckr_ckpt_root(c), "/optimizer/state/0/al");
    CHECK(ckr_node_is_list(n) && n->count == 3 && n->u.items[2]->kind == CKR_NODE_TENSOR);
    ckr_ckpt_close(c);
    c = open_ok("w/out");
    if (c) CHECK(ckr_ckpt_tensor(c, "weight", "old_dirs.2") != NULL);
    ckr_ckpt_close(c);
    CHECK(is_sound("w/out"));
    memio_remove(&disk, "w/out");
}

static void faults_on_the_way(void)
{
    static const char *const cases[] = { "in/plain.pt", "in/several.pt", "in/groups.pt",
                                         "in/beside.pt", "in/nested.pt", "in/keyed.pt" };
    whole w;
    size_t i;
    memset(&w, 0, sizeof w);
    w.target = target_of(0, 0, 0, -1, NULL);
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        w.path = cases[i];
        w.target.dialect = NULL;
        whole_way_fails(&w, 60);
        w.target.dialect = "dcp";
        whole_way_fails(&w, 60);
    }
}

static void refused_for(ckr_ckpt *c, const char *dialect, uint32_t without, const char *code)
{
    ckr_target t = target_of(0, 0, 0, -1, NULL);
    ckr_plan *p = NULL;
    ckr_error e;
    t.dialect = dialect;
    t.without = without;
    if (c && CHECK_OK(ckr_plan_create(c, &t, 0, &p, &e), &e)) {
        const ckr_plan_facts *f = ckr_plan_info(p);
        t_check(code ? note_of(f->notes, f->n_notes, code) != NULL
                     : f->verdict != CKR_VERDICT_REFUSED,
                __FILE__, __LINE__, "%s: %s", dialect, code ? code : "not refused");
        if (code) CHECK_INT(f->verdict, CKR_VERDICT_REFUSED);
    }
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

/* Generators' states under whatever keys are streams, no weights; they are written where they
   were. */
static void streams_in_file(void)
{
    static const char *const kinds[] = { "torch_cpu", "numpy", "python" };
    static const char *const paths[] = { "/rng/cpu", "/rng/numpy", "/rng/random" };
    ckr_ckpt *c = open_ok("in/extra.pt");
    const ckr_state *s = c ? ckr_ckpt_state(c) : NULL;
    ckr_target t = target_of(0, 0, 0, -1, NULL);
    ckr_plan *p = NULL;
    ckr_error e;
    uint64_t i;
    if (!s) return;
    CHECK_INT(s->n_tensors, 0);
    CHECK_INT(s->n_rng, 3);
    for (i = 0; i < s->n_rng && i < 3; i++) {
        CHECK_STR(s->rng[i].kind, kinds[i]);
        CHECK_STR(s->rng[i].path, paths[i]);
    }
    refused_for(c, "verl", 0, "CKR_E_SLOT_NAMES");
    c = open_ok("in/extra.pt");
    t.dialect = "torch";
    if (CHECK_OK(ckr_plan_create(c, &t, 0, &p, &e), &e) &&
        CHECK_OK(ckr_plan_write(p, "w/extra.pt", NULL, &e), &e)) {
        ckr_rng_streams *a = streams_of(open_ok("in/extra.pt"), 0),
                        *b = streams_of(open_ok("w/extra.pt"), 0);
        CHECK_INT(a->n_streams, 3);
        CHECK_INT(b->n_streams, 3);
        for (i = 0; i < 3 && a->n_streams == 3 && b->n_streams == 3; i++)
            CHECK(ckr_rng_equal(a->given[i].state, b->given[i].state));
        ckr_rng_streams_free(a);
        ckr_rng_streams_free(b);
    }
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

/* A model of DTensors has no views of its own to compare an average's with. */
static void average_of_dtensors(void)
{
    ckr_ckpt *c = open_ok("in/dtensor_ema.pt");
    const ckr_tensor *t = c ? ckr_ckpt_tensor(c, "w", "param") : NULL;
    if (c && CHECK(t != NULL)) CHECK_INT(t->shape[0], 4);
    ckr_ckpt_close(c);
}

/* A list of two optimizers and nothing else: their moments are no weights. */
static void list_of_optimizers(void)
{
    ckr_ckpt *c = open_ok("in/list.pt");
    const ckr_state *s = c ? ckr_ckpt_state(c) : NULL;
    uint64_t i, n;
    if (s) {
        CHECK_INT(s->n_groups, 2);
        for (i = n = 0; i < s->n_tensors; i++) n += strcmp(s->tensors[i]->slot, "param") != 0;
        CHECK_INT(n, 8);
        CHECK_INT(n, s->n_tensors);
    }
    refused_for(c, "deepspeed", 0, "CKR_E_SLOT_NAMES");
    refused_for(open_ok("in/list.pt"), "verl", 0, "CKR_E_SLOT_NAMES");
    if (to(open_ok("in/list.pt"), "torch", NULL, "w/again.pt")) {
        c = tree_of("w/again.pt");
        CHECK(ckr_node_find(ckr_ckpt_root(c), "/1/state/0/exp_avg") != NULL);
        ckr_ckpt_close(c);
    }
    memio_remove(&disk, "w/again.pt");
}

/* Moments in files without slots, by their names, are no weights of a framework's run either. */
static void moments_are_no_weights(void)
{
    static const char *const forms[] = { "safetensors", "dcp" }, *const files[] = { "w/f", "w/d" };
    static const char *const odd[] = { "optim.state.w.exp_avg", "0.state.1.exp_avg_sq" };
    const float data[2] = { 1, 2 };
    const int64_t shape = 2;
    ckr_open_desc d = CKR_ZERO;
    ckr_ckpt *c;
    ckr_error e;
    size_t i;
    d.env = &env;
    for (i = 0; i < 2; i++) {
        if (!to(open_ok("in/plain.pt"), forms[i], "all", files[i])) continue;
        refused_for(open_ok(files[i]), "verl", 0, "CKR_E_GROUPS_WITHOUT");
        refused_for(open_ok(files[i]), "deepspeed", 0, "CKR_E_GROUPS_WITHOUT");
        refused_for(open_ok(files[i]), "verl", CKR_OPTIMIZER, NULL);
        refused_for(open_ok(files[i]), "dcp", 0, NULL);
        memio_remove(&disk, files[i]);
    }
    for (i = 0; i < 2; i++) {
        if (!CHECK_OK(ckr_ckpt_create(&d, &c, &e), &e)) continue;
        CHECK_OK(ckr_ckpt_put(c, "w", "param", CKR_DTYPE_F32, 1, &shape, data, &e), &e);
        CHECK_OK(ckr_ckpt_put(c, odd[i], "param", CKR_DTYPE_F32, 1, &shape, data, &e), &e);
        refused_for(c, "verl", 0, "CKR_E_SLOT_NAMES");
    }
}

/* Parts some levels down: each optimizer has the model beside it, a scheduler the optimizer of its
   key or LR, though they are in another order; two that are alike are one, and are two again where
   they are written. No setting is a counter. */
static void deep(void)
{
    static const char *const bases[] = { "/run/lr/G/base_lrs/0", "/run/lr/D/base_lrs/0",
                                         "/run/parts/D/opt/param_groups/0/initial_lr" };
    ckr_ckpt *c = open_ok("in/deep.pt"), *file = tree_of("in/deep.pt");
    const ckr_state *s = c ? ckr_ckpt_state(c) : NULL;
    ckr_setting set = CKR_ZERO;
    ckr_target t = target_of(0, 0, 0, -1, NULL);
    double v = 0;
    int i;
    if (s) {
        CHECK_INT(s->n_tensors, 2 * (2 + 2 * 3) + 2);
        CHECK_STR(s->groups[0].params[0], "G.net.weight");
        CHECK_STR(s->groups[1].params[1], "D.net.bias");
        same_state(c, file, "/run/parts/D/opt", 1, "D.net.bias", "exp_avg_sq");
        CHECK(ckr_ckpt_tensor(c, "G.net.weight", "ema") != NULL);
        CHECK(ckr_ckpt_tensor(c, "D.net.weight", "ema") == NULL);
        CHECK_INT(s->n_schedules, 1);
        CHECK_INT(s->schedules[0].n_lanes, 2);
        CHECK(ckr__same(s->schedules[0].lanes[0].base, 0.01));
        CHECK(ckr__same(s->schedules[0].lanes[1].base, 0.02));
        CHECK_INT(s->progress.step, 3);
        CHECK_INT(s->progress.epoch, 2);
        CHECK_INT(s->progress.samples, 12);
        CHECK_INT(s->progress.tokens, -1);
    }
    ckr_ckpt_close(c);
    ckr_ckpt_close(file);
    set.key = "lr";
    set.value = "0.5";
    t.sets = &set;
    t.n_sets = 1;
    if (written(open_ok("in/deep.pt"), "deep", "w/out.pt", &t)) {
        c = tree_of("w/out.pt");
        for (i = 0; i < 3; i++) {
            CHECK(ckr_node_f64(ckr_node_find(ckr_ckpt_root(c), bases[i]), &v));
            CHECK(ckr__same(v, 0.5));
        }
        CHECK(ckr_node_find(ckr_ckpt_root(c), "/run/lr/D/base_lrs/1") == NULL);
        ckr_ckpt_close(c);
    }
    memio_remove(&disk, "w/out.pt");
}

/* Thousands of optimizers and models with long names in common: what is compared is bounded, while
   one optimizer is looked up among any number. */
static void tried(void)
{
    static char key[4097];
    static ckr__where models[1000];
    ckr__where *read[1000], optim = CKR_ZERO;
    ckr__script x = CKR_ZERO;
    ckr__search f = CKR_ZERO;
    uint64_t i, n = 0;
    memset(key, 'a', sizeof key - 1);
    for (i = 0; i < 1000; i++) {
        read[i] = &models[i];
        models[i].key = i == 7 ? key : "b";
        models[i].head = "the one.";
    }
    optim.key = key;
    f.x = &x;
    f.optims = &optim;
    f.n_optims = 1;
    f.read = read;
    f.n_read = 1000;
    CHECK_STR(ckr__search_only(&f, 0), "the one.");
    while (n < 1000 && ckr__search_only(&f, 0)) n++;
    CHECK(n > 100 && n < 1000);
    x.n_tried = 0;
    CHECK(ckr__optim_tries(&x, UINT64_MAX / 2));
    CHECK(!ckr__optim_tries(&x, 1));
}

/* Where only the order tells which optimizer is whose, it is said; of counters that contradict each
   other none is taken. */
static void ordered(void)
{
    ckr_ckpt *c = open_ok("in/ordered.pt"), *file = tree_of("in/ordered.pt");
    const ckr_state *s = c ? ckr_ckpt_state(c) : NULL;
    const ckr_note *n = s ? note_of(s->notes, s->n_notes, "CKR_W_PROGRESS") : NULL;
    if (s) {
        CHECK_STR(s->groups[0].params[0], "one.weight");
        CHECK_STR(s->groups[1].params[0], "two.weight");
        same_state(c, file, "/optimizers/1", 0, "two.weight", "momentum_buffer");
        CHECK(note_of(s->notes, s->n_notes, "CKR_W_PARAM_NAMES_GUESSED") != NULL);
        CHECK(note_of(s->notes, s->n_notes, "CKR_W_PARAM_NAMES") == NULL);
        CHECK_INT(s->progress.step, -1);
        CHECK_INT(s->progress.epoch, 2);
        CHECK_INT(s->n_leftovers, 2);
    }
    if (s && CHECK(n != NULL)) {
        CHECK_STR(n->old_value, "3 at step");
        CHECK_STR(n->new_value, "12 at iteration");
        CHECK_INT(n->severity, CKR_APPROX);
    }
    ckr_ckpt_close(c);
    ckr_ckpt_close(file);
}

/* Torch's count of what was averaged is no parameter; what a second optimizer has of the same
   parameters does not stand for the first one's. */
static void averaged(void)
{
    ckr_ckpt *c = open_ok("in/swa.pt"), *file = tree_of("in/swa.pt");
    const ckr_state *s = c ? ckr_ckpt_state(c) : NULL;
    if (s) {
        CHECK(ckr_ckpt_tensor(c, "bias", "ema") != NULL);
        CHECK(has_leftover(s, "swa_net.n_averaged"));
        CHECK_STR(s->groups[0].params[0], "weight");
        CHECK_STR(s->groups[1].params[0], "1/0");
        same_state(c, file, "/opts/0", 0, "weight", "exp_avg");
        same_state(c, file, "/opts/1", 0, "1/0", "exp_avg");
        CHECK(note_of(s->notes, s->n_notes, "CKR_W_OPTIMIZERS_OVERLAP") != NULL);
    }
    ckr_ckpt_close(c);
    ckr_ckpt_close(file);
}

/* A function of the system's that Python would run: said, and written on by no file that is loaded
   as such; the tensors alone are. */
static void calls(void)
{
    static const struct { const char *pickle; size_t n; bool runs; } rows[] = {
#define CALL(s) "\200\2}(" BAD_STR("\1", "w") "ctorch._utils\n_rebuild_tensor_v2\n(("             \
                BAD_STORAGE("FloatStorage", BAD_KEY, "\2") "K\0K\2\205K\1\205\211"                 \
                "ccollections\nOrderedDict\n)RtR" BAD_STR("\1", "x") s "u."
#define ROW(s, runs) { CALL(s), sizeof CALL(s) - 1, runs }
        ROW("cposix\nsystem\n(X\2\0\0\0idtR", true),
        ROW("(cos\nsystem\nX\2\0\0\0ido", true), ROW("(X\1\0\0\0" "1i__builtin__\neval\n", true),
        ROW("cbuiltins\ngetattr\n(cos\nsystem\nX\10\0\0\0__call__tR(X\2\0\0\0idtR", true),
        ROW("cargparse\nNamespace\n)R", false), ROW("cpathlib\nPosixPath\n(X\1\0\0\0/tR", false)
    };
    size_t i;
    for (i = 0; i < sizeof rows / sizeof *rows; i++) {
        static bad_zip z;
        ckr_target t = target_of(0, 0, 0, -1, NULL);
        ckr_report *r = NULL;
        ckr_plan *p = NULL;
        ckr_ckpt *c;
        ckr_error e;
        bad_torch(&z, rows[i].pickle, rows[i].n);
        memio_put(&disk, "w/call.pt", z.b, z.n);
        if ((c = open_ok("w/call.pt")) == NULL) continue;
        if (CHECK_OK(ckr_ckpt_check(c, &r, &e), &e)) CHECK(r->sound == !rows[i].runs);
        ckr_report_free(r);
        t.dialect = "torch";
        if (CHECK_OK(ckr_plan_create(c, &t, 0, &p, &e), &e)) {
            const ckr_plan_facts *f = ckr_plan_info(p);
            const ckr_note *n = note_of(f->notes, f->n_notes, "CKR_E_PICKLE_CALL");
            CHECK(!n == !rows[i].runs);
            CHECK((f->verdict == CKR_VERDICT_REFUSED) == rows[i].runs);
        }
        ckr_plan_free(p);
        t.dialect = "safetensors";
        if (CHECK_OK(ckr_plan_create(c, &t, 0, &p, &e), &e))
            CHECK_INT(ckr_plan_info(p)->verdict, CKR_VERDICT_APPROX);
        ckr_plan_free(p);
        ckr_ckpt_close(c);
    }
    memio_remove(&disk, "w/call.pt");
}

/* An optimizer under its only parameter's name; a layer of two models is one; settings that look
   like a scheduler's state or a counter are none. */
static void each(void)
{
    ckr_ckpt *c = open_ok("in/each.pt"), *file = tree_of("in/each.pt");
    const ckr_state *s = c ? ckr_ckpt_state(c) : NULL;
    if (s) {
        CHECK_INT(s->n_tensors, 6 * 2);
        CHECK_INT(s->n_ties, 2);
        CHECK_INT(s->n_groups, 6);
        CHECK_INT(s->n_schedules, 0);
        CHECK_INT(s->n_notes, 0);
        CHECK_INT(s->progress.step, 1);
        CHECK_INT(s->progress.epoch, -1);
        CHECK_STR(s->groups[5].params[0], "critic.1.bias");
        same_state(c, file, "/optimizer/critic.1.weight", 0, "critic.1.weight", "momentum_buffer");
    }
    ckr_ckpt_close(c);
    ckr_ckpt_close(file);
}

/* Of another framework's state a file as scripts save it: the weights and a tie, the optimizer by
   number with the names, the scheduler, the counters. */
static void back(void)
{
    ckr_target t = target_of(0, 0, 4, 3, NULL);
    ckr_ckpt *c, *file;
    const ckr_state *s;
    const ckr_node *root;
    t.dialect = "deepspeed";
    if (!written(open_ok("in/plain.pt"), "plain", "w/zero", &t)) return;
    if (!to(open_ok("w/zero"), "torch", NULL, "w/back.pt")) return;
    c = open_ok("w/back.pt");
    file = tree_of("w/back.pt");
    s = c ? ckr_ckpt_state(c) : NULL;
    root = file ? ckr_ckpt_root(file) : NULL;
    if (s) {
        CHECK_INT(s->n_notes, 0);
        CHECK_INT(s->n_schedules, 1);
        CHECK_INT(s->schedules[0].position, 3);
        CHECK_INT(s->progress.step, 3);
        CHECK_STR(s->groups[0].params[4], "up.bias");
        CHECK(ckr_ckpt_tensor(c, "up.bias", "exp_avg") != NULL);
        CHECK(ckr_ckpt_tensor(c, "up.bias", "master") == NULL);
        CHECK_INT(s->n_ties, 1);
        same_state(c, file, "/optimizer", 4, "up.bias", "exp_avg_sq");
        CHECK_STR(ckr_node_str(ckr_node_find(root, "/optimizer/param_groups/0/param_names/0")),
                  "tok.weight");
        CHECK(ckr_node_find(root, "/model/head.weight") != NULL);
        CHECK(ckr_node_find(root, "/lr_scheduler/T_max") != NULL);
    }
    ckr_ckpt_close(c);
    ckr_ckpt_close(file);
    memio_remove(&disk, "w/zero");
    memio_remove(&disk, "w/back.pt");
}

/* ---- headers that are looked at when their payload is read ---- */

enum { N_BIG = 40000 };

/* Where a member's entry in the directory is, or its local header, by the end of its name. */
static size_t record_at(const memio_file *f, const char *key, bool entry)
{
    const size_t n = strlen(key), skip = entry ? 46 : 30;
    size_t i;
    for (i = 0; i + 300 <= f->size; i++) {
        const size_t have = f->data[i + (entry ? 28 : 26)];
        if (!memcmp(f->data + i, entry ? "PK\1\2" : "PK\3\4", 4) && have >= n &&
            !memcmp(f->data + i + skip + have - n, key, n))
            return i;
    }
    exit(2);
}

/* What is wrong with the header of `b`, if the archive is read at all, every way to its bytes
   tells; the others have theirs. */
static void header_refused(const char *label, size_t at)
{
    static float out[N_BIG];
    const bad_want want = bad(CKR_ITEM_ZIP_LOCAL, "w/big", at, NULL);
    ckr_target t = target_of(0, 0, 0, -1, NULL);
    ckr_ckpt *c = open_ok("w/big"), *tree = tree_of("w/big");
    const ckr_node *b = tree ? ckr_node_find(ckr_ckpt_root(tree), "/b") : NULL;
    ckr_read r = CKR_ZERO;
    ckr_copy copies[4];
    ckr_report *report = NULL;
    ckr_plan *p = NULL;
    size_t n = 4;
    ckr_error e;
    t.dialect = "safetensors";
    if (!CHECK(c && b && b->kind == CKR_NODE_TENSOR)) return;
    r.dst = out;
    r.dst_size = sizeof out;
    r.tensor = ckr_ckpt_tensor(c, "a", "param");
    CHECK_OK(ckr_ckpt_read(c, &r, 1, &e), &e);
    CHECK(out[N_BIG - 1] == N_BIG - 1);
    r.tensor = ckr_ckpt_tensor(c, "b", "param");
#define REFUSES(call) CHECK((call) == CKR_E_FORMAT && e.item == want.item && e.offset == at)
    REFUSES(ckr_ckpt_read(c, &r, 1, &e));
    REFUSES(ckr_ckpt_copies(c, &r, 1, copies, &n, &e));
    REFUSES(ckr_ckpt_check(c, &report, &e));
    REFUSES(ckr_view_read(tree, b->u.view, 7, 1, out, &e));
    CHECK_OK(ckr_plan_create(c, &t, 0, &p, &e), &e);
    REFUSES(ckr_plan_write(p, "w/o", NULL, &e));
#undef REFUSES
    t_check(!strcmp(e.file, "w/big") && !memio_find(&disk, "w/o"), __FILE__, __LINE__, "%s: %s",
            label, e.text);
    ckr_plan_free(p);
    ckr_ckpt_close(tree);
    ckr_ckpt_close(c);
}

/* Of a large archive the place of a payload follows from the directory. */
static void headers_later(void)
{
    static const char *const keys[] = { "a", "b", "c" };
    static float data[N_BIG];
    const int64_t shape[1] = { N_BIG };
    ckr_open_desc d = CKR_ZERO;
    ckr_ckpt *c = NULL;
    ckr_error e;
    memio_file *f;
    size_t at, i, size;
    d.env = &env;
    for (i = 0; i < N_BIG; i++) data[i] = (float)i;
    if (!CHECK_OK(ckr_ckpt_create(&d, &c, &e), &e)) return;
    for (i = 0; i < 3; i++)
        CHECK_OK(ckr_ckpt_put(c, keys[i], "param", CKR_DTYPE_F32, 1, shape, data, &e), &e);
    if (!to(c, "torch", NULL, "w/big")) return;
    f = memio_find(&disk, "w/big");
    at = record_at(f, "/data/1", false);
    f->data[at] ^= 1;
    header_refused("signature", at);
    f->data[at] ^= 1;
    f->data[at + 33] ^= 32;                        /* a letter's case                         */
    header_refused("name", at);
    f->data[at + 33] ^= 32;
    f->data[at + 28] -= 4;                         /* as if the payload began before its place */
    header_refused("place", at);
    /* what does not follow is read at once: there is no descriptor where the flag is not set */
    i = record_at(f, "/data/1", true);
    size = f->data[i + 8];
    f->data[i + 8] &= (uint8_t)~8;
    f->data[at + 28] += 4;
    f->data[at] ^= 1;
    c = NULL;
    CHECK(size & 8 && ckr_ckpt_open("w/big", &d, &c, &e) == CKR_E_FORMAT);
    CHECK(e.item == CKR_ITEM_ZIP_LOCAL && e.offset == at);
    f->data[at] ^= 1;
    ckr_ckpt_close(open_ok("w/big"));
    memio_remove(&disk, "w/big");
}

int main(int argc, char **argv)
{
    t_begin(argc, argv);
    load_cases();
    RUN(by_parameter);
    RUN(ambiguous);
    RUN(several);
    RUN(named);
    RUN(nested);
    RUN(keyed);
    RUN(bare);
    RUN(deep);
    RUN(ordered);
    RUN(tried);
    RUN(averaged);
    RUN(each);
    RUN(calls);
    RUN(back);
    RUN(as_sana);
    RUN(again);
    RUN(strided);
    RUN(changed);
    RUN(to_dcp);
    RUN(lists_to_dcp);
    RUN(export_says);
    RUN(to_deepspeed);
    RUN(values_to_deepspeed);
    RUN(history_to_deepspeed);
    RUN(faults_on_the_way);
    RUN(numbers);
    RUN(numbers_to_deepspeed);
    RUN(list_of_optimizers);
    RUN(streams_in_file);
    RUN(average_of_dtensors);
    RUN(moments_are_no_weights);
    RUN(headers_later);
    memio_free(&disk);
    return t_end();
}
