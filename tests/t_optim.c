/* Optimizers whose state is not Adam's (tests/data/optim): what each tensor is to its parameter, by
   name and by shape; what can be cut is, other state goes whole or is refused with its name;
   classes of 8 bits as their parts; LRs that are tensors. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "t.h"
#include "ckpt.h"
#include "tree.h"

static void load_cases(void)
{
    static const char *const cases[] = { "adafactor", "torchao", "bnb", "frozen", "square",
                                         "list" };
    static const char rest[] = "global_step_2/actor/";
    char from[80], to[80];
    size_t i;
    disk_begin();
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(from, sizeof from, "tests/data/optim/%s.pt", cases[i]);
        snprintf(to, sizeof to, "in/%s.pt", cases[i]);
        memio_load_file(&disk, from, to);
    }
    memio_load(&disk, "tests/data/optim/inside_ds", "in/ds");
    memio_load(&disk, "tests/data/verl/rest", "in/verl");
    snprintf(to, sizeof to, "in/verl/%soptim_world_size_1_rank_0.pt", rest);
    memio_load_file(&disk, "tests/data/optim/inside_verl.pt", to);
}

static ckr_tensor tensor(const char *slot, ckr_dtype dtype, uint32_t n, const int64_t *shape)
{
    ckr_tensor t = CKR_ZERO;
    t.slot = slot;
    t.dtype = dtype;
    t.n_dims = n;
    t.shape = shape;
    return t;
}

/* Name, shape and dtype decide together; a name alone does not make a factor. */
static void relations(void)
{
    static const struct {
        const char *slot;
        ckr_dtype dtype;
        uint32_t n;
        int64_t shape[3];
        ckr__slot_is is;
    } rows[] = {
        { "exp_avg", CKR_DTYPE_F32, 3, { 2, 3, 4 }, CKR__SLOT_SAME },
        { "row_var", CKR_DTYPE_F32, 3, { 2, 3, 1 }, CKR__SLOT_ROW },
        { "col_var", CKR_DTYPE_F32, 3, { 2, 1, 4 }, CKR__SLOT_COLUMN },
        { "exp_avg_sq_row", CKR_DTYPE_F32, 2, { 2, 3 }, CKR__SLOT_ROW },
        { "exp_avg_sq_col", CKR_DTYPE_F32, 2, { 2, 4 }, CKR__SLOT_COLUMN },
        { "exp_avg_sq_col", CKR_DTYPE_F32, 2, { 2, 3 }, CKR__SLOT_OTHER },
        { "row_var", CKR_DTYPE_F32, 3, { 2, 1, 4 }, CKR__SLOT_OTHER },
        { "exp_avg", CKR_DTYPE_F32, 3, { 2, 4, 3 }, CKR__SLOT_OTHER },    /* as many elements */
        { "exp_avg", CKR_DTYPE_F32, 2, { 6, 4 }, CKR__SLOT_OTHER },
        { "s", CKR_DTYPE_F32, 1, { 24 }, CKR__SLOT_FLAT },
        { "state1", CKR_DTYPE_U8, 3, { 2, 3, 4 }, CKR__SLOT_BLOCKS },
        { "state1", CKR_DTYPE_F32, 3, { 2, 3, 4 }, CKR__SLOT_SAME },
        { "exp_avg.codes", CKR_DTYPE_U8, 1, { 12 }, CKR__SLOT_BLOCKS },    /* of 4 bits        */
        { "absmax1", CKR_DTYPE_F32, 1, { 1 }, CKR__SLOT_BLOCKS },
        { "mu_product", CKR_DTYPE_F32, 1, { 1 }, CKR__SLOT_ONE },
        { "step", CKR_DTYPE_F32, 0, { 0 }, CKR__SLOT_ONE },
        { "GG.0", CKR_DTYPE_F32, 2, { 4, 4 }, CKR__SLOT_OTHER }
    };
    static const int64_t shape[3] = { 2, 3, 4 };
    const ckr_tensor param = tensor("param", CKR_DTYPE_F32, 3, shape);
    size_t i;
    for (i = 0; i < sizeof rows / sizeof *rows; i++) {
        const ckr_tensor t = tensor(rows[i].slot, rows[i].dtype, rows[i].n, rows[i].shape);
        t_check(ckr__slot_of(&param, &t) == rows[i].is, __FILE__, __LINE__, "row %d, %s: %d",
                (int)i, t.slot, (int)ckr__slot_of(&param, &t));
    }
}

/* The note with this code of a plan for `dialect`, by its subject; how severe it is. */
static int said(const char *path, const char *dialect, int32_t zero, const char *code,
                 const char *subject)
{
    ckr_target t = target_of(0, 0, 2, zero, NULL);
    ckr_ckpt *c = open_ok(path);
    ckr_plan *p = NULL;
    ckr_error e;
    int severity = -1;
    t.dialect = dialect;
    if (!strcmp(dialect, "verl")) t.without = CKR_SCHEDULE;
    if (c && CHECK_OK(ckr_plan_create(c, &t, 0, &p, &e), &e)) {
        const ckr_plan_facts *f = ckr_plan_info(p);
        const ckr_note *n = note_of(f->notes, f->n_notes, code);
        t_check(n && !strcmp(n->subject, subject), __FILE__, __LINE__, "%s: %s of %s", path, code,
                n ? n->subject : "nothing");
        t_check((f->verdict == CKR_VERDICT_REFUSED) == (code[4] == 'E'), __FILE__, __LINE__,
                "%s to %s: verdict %d", path, dialect, (int)f->verdict);
        if (n) severity = (int)n->severity;
    }
    ckr_plan_free(p);
    ckr_ckpt_close(c);
    return severity;
}

/* No factor, no code of 8 bits is cut; nor is there a place for parts of a class that a framework
   would look for under one name. */
static void refused(void)
{
    static const char *const files[] = { "in/adafactor.pt", "in/bnb.pt", "in/torchao.pt" };
    static const char *const slots[] = { "row_var of up.weight", "state1 of up.weight",
                                         "exp_avg.codes of up.weight" };
    size_t i;
    int32_t zero;
    for (i = 0; i < 3; i++) {
        for (zero = 1; zero <= 3; zero++)
            said(files[i], "deepspeed", zero, "CKR_E_SLOT_CUT", slots[i]);
        said(files[i], "verl", 0, "CKR_E_SLOT_CUT", slots[i]);
    }
    said("in/torchao.pt", "deepspeed", 0, "CKR_E_SLOT_CUT", slots[2]);
    said("in/square.pt", "deepspeed", 1, "CKR_W_SLOT_SQUARE", "warp of w");
    said("in/square.pt", "verl", 0, "CKR_W_SLOT_SQUARE", "warp of w");
}

/* Every tensor of `of` is in the checkpoint at `path`, bit for bit. */
static void holds_all(const char *of, const char *path)
{
    ckr_ckpt *a = open_ok(of), *b = open_ok(path);
    const ckr_state *s = a ? ckr_ckpt_state(a) : NULL;
    uint64_t i;
    for (i = 0; s && b && i < s->n_tensors; i++) {
        const ckr_tensor *t = s->tensors[i], *now = ckr_ckpt_tensor(b, t->name, t->slot);
        if (t_check(now != NULL, __FILE__, __LINE__, "%s: no %s of %s", path, t->slot, t->name))
            same_tensor(b, now, a, t, path);
    }
    ckr_ckpt_close(a);
    ckr_ckpt_close(b);
}

/* Whole state goes where whole state is kept; Python's numbers stay numbers. */
static void whole_state(void)
{
    static const char *const files[] = { "in/adafactor.pt", "in/bnb.pt" };
    ckr_target t = target_of(0, 0, 2, 0, NULL);
    size_t i;
    t.dialect = "deepspeed";
    for (i = 0; i < 2; i++) {
        if (written(open_ok(files[i]), files[i], "w/out", &t)) holds_all(files[i], "w/out");
        memio_remove(&disk, "w/out");
    }
}

/* A parameter without state is not all its group's: the others keep theirs. */
static void some_without_state(void)
{
    ckr_target t = target_of(0, 0, 2, 1, NULL);
    ckr_plan *p = NULL;
    ckr_error e;
    for (t.topology.zero = 1; t.topology.zero <= 3; t.topology.zero += 2) {
        ckr_ckpt *c = open_ok("in/frozen.pt");
        t.dialect = "deepspeed";
        if (c && CHECK_OK(ckr_plan_create(c, &t, 0, &p, &e), &e) &&
            CHECK_OK(ckr_plan_write(p, "w/out", NULL, &e), &e)) {
            holds_all("in/frozen.pt", "w/out");
            CHECK(is_sound("w/out"));
        }
        ckr_plan_free(p);
        ckr_ckpt_close(c);
        memio_remove(&disk, "w/out");
        said("in/frozen.pt", "deepspeed", t.topology.zero, "CKR_W_DS_STATE", "up.weight");
    }
}

/* A state that is not all tensors and numbers is not written as if it were whole, not even where it
   came from: what is in it was another rank's. A file of no framework is copied with it. */
static void inside(void)
{
    static const char quant[] = "__bnb_optimizer_quant_state__";
    ckr_target t = target_of(0, 0, 0, -1, NULL);
    ckr_ckpt *c = open_ok("in/ds");
    const ckr_note *n = c ? note_of(ckr_ckpt_state(c)->notes, ckr_ckpt_state(c)->n_notes,
                                    "CKR_W_SLOT_INSIDE")
                          : NULL;
    if (CHECK(n != NULL)) CHECK_INT(n->severity, CKR_LOST);
    ckr_ckpt_close(c);
    said("in/ds", "deepspeed", 1, "CKR_E_SLOT_CUT", quant);
    said("in/ds", "deepspeed", 0, "CKR_E_SLOT_CUT", quant);
    said("in/verl", "verl", 0, "CKR_E_SLOT_CUT", quant);
    said("in/verl", "deepspeed", 0, "CKR_E_SLOT_CUT", quant);
    said("in/list.pt", "deepspeed", 0, "CKR_E_SLOT_CUT", "GG");
    CHECK_INT(said("in/list.pt", "torch", -1, "CKR_W_SLOT_INSIDE", "GG"), CKR_EXACT);
    CHECK_INT(said("in/list.pt", "dcp", -1, "CKR_W_SLOT_INSIDE", "GG"), CKR_EXACT);
    CHECK_INT(said("in/list.pt", "safetensors", -1, "CKR_W_SLOT_INSIDE", "GG"), CKR_LOST);
    if (written(open_ok("in/list.pt"), "list", "w/list.pt", &t))
        holds_all("in/list.pt", "w/list.pt");
    memio_remove(&disk, "w/list.pt");
}

/* A factor of the rows and one of the columns prove whose they are. */
static void told_by_factors(void)
{
    ckr_ckpt *c = open_ok("in/adafactor.pt");
    if (c)
        CHECK(note_of(ckr_ckpt_state(c)->notes, ckr_ckpt_state(c)->n_notes,
                      "CKR_W_PARAM_NAMES_GUESSED") == NULL);
    if (c) CHECK(ckr_ckpt_tensor(c, "up.weight", "row_var") != NULL);
    ckr_ckpt_close(c);
}

/* Parts of a class of its own have names under their slot, and are written as that class again. */
static void classes(void)
{
    ckr_target t = target_of(0, 0, 0, -1, NULL);
    ckr_open_desc d = CKR_ZERO;
    ckr_ckpt *c = open_ok("in/torchao.pt");
    ckr_error e;
    const ckr_tensor *codes = c ? ckr_ckpt_tensor(c, "up.weight", "exp_avg.codes") : NULL;
    const ckr_node *n;
    if (CHECK(codes != NULL)) CHECK_INT(codes->dtype, CKR_DTYPE_U8);
    CHECK(c && ckr_ckpt_tensor(c, "up.weight", "exp_avg_sq.scale") != NULL);
    CHECK(c && ckr_ckpt_tensor(c, "up.weight", "exp_avg.block_size") != NULL);
    if (c) CHECK_INT(ckr_ckpt_state(c)->n_leftovers, 0);
    if (c) CHECK(note_of(ckr_ckpt_state(c)->notes, ckr_ckpt_state(c)->n_notes,
                         "CKR_W_TENSOR_OPAQUE") == NULL);
    if (!written(c, "torchao", "w/ao.pt", &t)) return;
    holds_all("in/torchao.pt", "w/ao.pt");
    d.env = &env;
    if (!CHECK_OK(ckr_tree_open("w/ao.pt", &d, &c, &e), &e)) return;
    n = ckr_node_find(ckr_ckpt_root(c), "/optimizer/state/0/exp_avg");
    if (CHECK(n && n->kind == CKR_NODE_TENSOR)) {
        CHECK_STR(n->u.view->type_name, "torchao.optim.subclass_8bit.OptimState8bit");
        CHECK(n->u.view->meta && n->u.view->n_dims == 2 && n->u.view->shape[1] == 256);
        CHECK_INT(ckr__dict_n(n->attrs), 5);
    }
    ckr_ckpt_close(c);
    memio_remove(&disk, "w/ao.pt");
}

/* Of a file without slots the parts are no weights either. */
static void parts_are_no_weights(void)
{
    ckr_target t = target_of(0, 0, 0, -1, NULL);
    t.dialect = "safetensors";
    t.slots = "all";
    if (written(open_ok("in/torchao.pt"), "torchao", "w/all", &t))
        said("w/all", "verl", 0, "CKR_E_GROUPS_WITHOUT", "groups");
    memio_remove(&disk, "w/all");
}

/* An LR that is a tensor is compared as a number; set, it stays a tensor of its dtype. */
static void lr_tensors(void)
{
    ckr_target t = target_of(0, 0, 0, -1, NULL);
    ckr_setting set = { NULL, "lr", "0.005" };
    ckr_open_desc d = CKR_ZERO;
    ckr_diff *diff = NULL;
    ckr_ckpt *a, *c;
    ckr_error e;
    const ckr_node *lr;
    float v = 0;
    if (!written(open_ok("in/torchao.pt"), "torchao", "w/same.pt", &t)) return;
    a = open_ok("in/torchao.pt");
    c = open_ok("w/same.pt");
    if (a && c && CHECK_OK(ckr_ckpt_diff(a, c, &diff, &e), &e)) {
        CHECK_INT(diff->n_others, 0);
        CHECK_INT(diff->n_tensors, 0);
        ckr_diff_free(diff);
    }
    ckr_ckpt_close(a);
    ckr_ckpt_close(c);
    t.sets = &set;
    t.n_sets = 1;
    if (!written(open_ok("in/torchao.pt"), "torchao", "w/set.pt", &t)) return;
    d.env = &env;
    if (!CHECK_OK(ckr_tree_open("w/set.pt", &d, &c, &e), &e)) return;
    lr = ckr_node_find(ckr_ckpt_root(c), "/optimizer/param_groups/0/lr");
    if (CHECK(lr && lr->kind == CKR_NODE_TENSOR)) {
        double number = 0;
        CHECK_INT(lr->u.view->dtype, CKR_DTYPE_F32);
        CHECK_OK(ckr__view_number(&c->ctx, lr->u.view, &number), &e);
        v = (float)number;
        CHECK(v > 0.0047f && v < 0.00475f);            /* 0.005 after 3 of 20 steps of a cosine */
    }
    ckr_ckpt_close(c);
    memio_remove(&disk, "w/same.pt");
    memio_remove(&disk, "w/set.pt");
}

static void faults_on_the_way(void)
{
    whole w = CKR_ZERO;
    w.path = "in/torchao.pt";
    w.target = target_of(0, 0, 0, -1, NULL);
    whole_way_fails(&w, 40);
}

int main(int argc, char **argv)
{
    t_begin(argc, argv);
    load_cases();
    RUN(relations);
    RUN(refused);
    RUN(whole_state);
    RUN(some_without_state);
    RUN(inside);
    RUN(told_by_factors);
    RUN(classes);
    RUN(parts_are_no_weights);
    RUN(lr_tensors);
    RUN(faults_on_the_way);
    memio_free(&disk);
    return t_end();
}
