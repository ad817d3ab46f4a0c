/* Real checkpoints of accelerate and the HF Trainer under FSDP from tests/data: every tensor
   against the live process, in all layouts at other numbers of ranks and back; the clock of the
   scheduler and the streams; what FSDP1 cannot load, moments that torch wrote wrong; files that do
   not belong together; faults on the way; the tool. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "t.h"
#include "ckpt.h"
#include "tree.h"

#define DATA "tests/data/fsdp/"

enum { FULL = 0, RANKS, SHARDED1, FULL1, TRAINER, N_CASES };
static const struct fsdp_case {
    const char *name, *sub, *layout;
    uint32_t    ranks;
    int64_t     step, tick;
} cases[] = {
    { "acc_fsdp2_full_w2", "", "full", 2, 6, 12 },
    { "acc_fsdp2_rankfiles_w4", "", "ranks", 4, 5, 20 },
    { "acc_fsdp1_sharded_w2", "", "sharded", 2, 6, 12 },
    { "acc_fsdp1_full_w3", "", "full", 3, 5, 15 },
    { "trainer_fsdp2_sharded_w2", "/checkpoint-6", "sharded", 2, 6, 6 }
};
static const char *const layouts[] = { "full", "sharded", "ranks" };
static char in[N_CASES][8];

static void load_to(const char *from, const char *to)
{
    static const char *const subs[] = { "pytorch_model_fsdp_0", "optimizer_0" };
    char path[300];
    size_t i;
    memio_add(&disk, to, true);
    for (i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", from, subs[i]);
        if (access(path, R_OK) != 0) continue;
        snprintf(path, sizeof path, "%s/%s", to, subs[i]);
        memio_add(&disk, path, true);
    }
    memio_load(&disk, from, to);
}

static void load_case(int k, const char *to)
{
    char from[256];
    snprintf(from, sizeof from, DATA "%s/ckpt%s", cases[k].name, cases[k].sub);
    load_to(from, to);
}

static void load_cases(void)
{
    int k;
    disk_begin();
    for (k = 0; k < N_CASES; k++) {
        snprintf(in[k], sizeof in[k], "in/%d", k);
        load_case(k, in[k]);
    }
}

static bool there(const char *dir, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return memio_find(&disk, path) != NULL;
}

/* Every tensor of the live processes, and no other. */
static void equals_truth(int k, const char *path)
{
    char file[256];
    ckr_ckpt *c = open_ok(path), *truth = NULL;
    ckr_error e;
    uint64_t i;
    snprintf(file, sizeof file, DATA "%s/truth.safetensors", cases[k].name);
    if (c && CHECK_OK(ckr_ckpt_open(file, NULL, &truth, &e), &e)) {
        const ckr_state *s = ckr_ckpt_state(truth);
        CHECK_INT(ckr_ckpt_state(c)->n_tensors, s->n_tensors);
        for (i = 0; i < s->n_tensors; i++) {
            const ckr_tensor *want = s->tensors[i], *have = by_key(c, want->name);
            if (t_check(have != NULL, __FILE__, __LINE__, "%s: no %s", path, want->name))
                same_tensor(c, have, truth, want, path);
        }
    }
    ckr_ckpt_close(truth);
    ckr_ckpt_close(c);
}

/* What the head of a case's checkpoint says, written for that many ranks. */
static void head_is(int k, const char *path, uint32_t ranks)
{
    ckr_ckpt *c = open_ok(path);
    const ckr_state *s = c ? ckr_ckpt_state(c) : NULL;
    const int64_t tick = k == TRAINER ? cases[k].tick : cases[k].step * (int64_t)ranks;
    if (!s) return;
    CHECK_STR(s->dialect, k == TRAINER ? "hf_trainer" : "accelerate");
    CHECK_INT(s->topology.dp, ranks);
    CHECK_INT(s->progress.step, cases[k].step);
    CHECK_INT(s->n_schedules, 1);
    CHECK_INT(s->schedules[0].position, tick);
    CHECK_INT(s->n_groups, 2);
    CHECK_INT(s->groups[0].n_params, 16);
    CHECK_INT(s->groups[1].n_params, 11);
    CHECK_STR(s->groups[1].params[0], "model.layers.0.self_attn.q_proj.bias");
    CHECK_INT(s->n_rng, 3 * ranks);
    ckr_ckpt_close(c);
}

static void what_is_read(void)
{
    int k;
    for (k = 0; k < N_CASES; k++) {
        CHECK_INT(is_sound(in[k]), k != FULL1);
        head_is(k, in[k], cases[k].ranks);
        if (k != FULL1) equals_truth(k, in[k]);
    }
}

static bool convert(const char *from, const char *to, uint32_t dp, const char *variant)
{
    const ckr_target t = target_of(0, 0, dp, -1, variant);
    memio_remove(&disk, to);
    return written(open_ok(from), from, to, &t);
}

/* Each layout at 1 to 5 ranks holds what the source held, and so does what is made of it again. */
static void there_and_back(void)
{
    int k;
    uint32_t n;
    size_t v;
    for (k = 0; k < N_CASES; k++)
        for (v = 0; v < 3; v++)
            for (n = 1; n <= 5 && k != FULL1; n += n == 2 ? 2 : 1) {
                if (!convert(in[k], "w/out", n, layouts[v])) continue;
                CHECK(there("w/out", "pytorch_model_fsdp.bin") == (v == 0));
                CHECK(there("w/out", "optimizer_0/.metadata") == (v == 1));
                CHECK(there("w/out", "optimizer_0_rank0.bin") == (v == 2));
                CHECK(is_sound("w/out"));
                head_is(k, "w/out", n);
                equals_truth(k, "w/out");
                if (!convert("w/out", "w/back", cases[k].ranks, cases[k].layout)) continue;
                equals_truth(k, "w/back");
                head_is(k, "w/back", cases[k].ranks);
            }
}

/* Without a variant the layout stays. */
static void layout_stays(void)
{
    int k;
    for (k = 0; k < N_CASES; k++) {
        if (!convert(in[k], "w/out", 3, NULL)) continue;
        CHECK(there("w/out", "optimizer.bin") == !strcmp(cases[k].layout, "full"));
        CHECK(there("w/out", "optimizer_0/.metadata") == !strcmp(cases[k].layout, "sharded"));
        CHECK(there("w/out", "optimizer_0_rank2.bin") == !strcmp(cases[k].layout, "ranks"));
    }
}

static void note_is(const char *from, const char *variant, const char *code, int severity)
{
    const ckr_target t = target_of(0, 0, 0, -1, variant);
    ckr_ckpt *c = open_ok(from);
    ckr_plan *p = NULL;
    ckr_error e;
    const ckr_note *n;
    if (c && CHECK_OK(ckr_plan_create(c, &t, 0, &p, &e), &e)) {
        n = note_of(ckr_plan_info(p)->notes, ckr_plan_info(p)->n_notes, code);
        CHECK_INT(n ? (int)n->severity : -1, severity);
        if (n && severity == CKR_LOST && !strcmp(n->subject, "optimizer"))
            CHECK(n->remedy && strstr(n->remedy, "variant = full"));
    }
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

/* FSDP1 loses its optimizer in DCP's directories, and reads no rank files; FSDP2 does both. */
static void what_fsdp1_loads(void)
{
    static const char code[] = "CKR_W_FSDP1_OPTIMIZER";
    note_is(in[SHARDED1], NULL, code, CKR_LOST);
    note_is(in[SHARDED1], "ranks", code, CKR_LOST);
    note_is(in[SHARDED1], "full", code, CKR_EXACT);
    note_is(in[FULL1], NULL, code, -1);
    note_is(in[FULL1], "sharded", code, CKR_LOST);
    note_is(in[FULL], "sharded", code, -1);
    note_is(in[RANKS], "sharded", code, -1);
    note_is(in[TRAINER], NULL, code, -1);
    if (convert(in[SHARDED1], "w/out", 3, NULL)) note_is("w/out", NULL, code, CKR_LOST);
    if (convert(in[SHARDED1], "w/out", 3, "full")) note_is("w/out", NULL, code, -1);
}

/* Two moments in one place: an error for each parameter; what is written has lost them. */
static void moments_in_one_place(void)
{
    ckr_ckpt *c = open_ok(in[FULL1]);
    const ckr_state *s = c ? ckr_ckpt_state(c) : NULL;
    uint64_t i, n = 0;
    for (i = 0; s && i < s->n_notes; i++)
        if (!strcmp(s->notes[i].code, "CKR_E_FSDP_MOMENTS")) {
            CHECK_INT(s->notes[i].severity, CKR_ERROR);
            CHECK(ckr_ckpt_tensor(c, s->notes[i].subject, "param") != NULL);
            n++;
        }
    CHECK_INT(n, 27);
    ckr_ckpt_close(c);
    note_is(in[FULL1], NULL, "CKR_E_FSDP_MOMENTS", CKR_LOST);
}

/* Groups in every layout; the optimizer may be left out. */
static void groups_in_layouts(void)
{
    size_t v;
    for (v = 0; v < 3; v++) {
        ckr_target t = target_of(0, 0, 3, -1, layouts[v]);
        ckr_ckpt *c;
        double wd = 0;
        t.without = CKR_OPTIMIZER | CKR_GROUPS | CKR_SCHEDULE;
        memio_remove(&disk, "w/out");
        if (written(open_ok(in[RANKS]), in[RANKS], "w/out", &t)) {
            CHECK(!there("w/out", "optimizer.bin") && !there("w/out", "optimizer_0"));
            CHECK(!there("w/out", "optimizer_0_rank0.bin"));
        }
        if (!convert(in[RANKS], "w/out", 2, layouts[v])) continue;
        c = open_ok("w/out");
        if (!c) continue;
        CHECK(ckr_node_f64(ckr_node_get(ckr_ckpt_state(c)->groups[0].hyper, "weight_decay"), &wd));
        CHECK(wd > 0.09 && wd < 0.11);
        CHECK(ckr_node_is_list(ckr_node_get(ckr_ckpt_state(c)->groups[0].hyper, "betas")));
        ckr_ckpt_close(c);
    }
}

static void refused_as(const char *what, ckr_item item)
{
    ckr_ckpt *c = NULL;
    ckr_error e;
    t_check(open_as("w/bad", &c, &e) != CKR_OK && e.item == item, __FILE__, __LINE__,
            "%s: %s: %s", what, ckr_item_name(e.item), e.text);
    if (!c) CHECK(e.remedy[0] != 0);
    ckr_ckpt_close(c);
    memio_remove(&disk, "w/bad");
}

static void copy_file(const char *from, const char *to)
{
    const memio_file *f = memio_find(&disk, from);
    if (CHECK(f != NULL)) memio_put(&disk, to, f->data, (size_t)f->size);
}

/* Files that are missing, have changed places, or are another run's. */
static void not_one_run(void)
{
    static const char *const kinds[] = { "pytorch_model_fsdp_0", "optimizer_0" };
    char path[128], from[128];
    size_t k, r;
    for (k = 0; k < 2; k++)
        for (r = 1; r < 4; r += 2) {
            load_case(RANKS, "w/bad");
            snprintf(path, sizeof path, "w/bad/%s_rank%d.bin", kinds[k], (int)r);
            memio_remove(&disk, path);
            refused_as("a rank's file is missing", CKR_ITEM_RANK_MISSING);
        }
    load_case(RANKS, "w/bad");
    memio_remove(&disk, "w/bad/pytorch_model_fsdp_0_rank3.bin");
    memio_remove(&disk, "w/bad/optimizer_0_rank3.bin");
    refused_as("the last rank's are missing", CKR_ITEM_MESH);
    load_case(RANKS, "w/bad");
    copy_file("in/1/optimizer_0_rank2.bin", "w/bad/optimizer_0_rank1.bin");
    refused_as("another rank's file", CKR_ITEM_FILES_SWAPPED);
    if (convert(in[RANKS], "w/two", 2, NULL))
        for (k = 0; k < 2; k++) {
            load_case(RANKS, "w/bad");
            for (r = 0; r < 2; r++) {
                snprintf(path, sizeof path, "w/bad/%s_rank%d.bin", kinds[k], (int)r);
                snprintf(from, sizeof from, "w/two/%s_rank%d.bin", kinds[k], (int)r);
                copy_file(from, path);
            }
            refused_as("a run of two wrote over one of four", CKR_ITEM_MESH);
        }
    load_case(RANKS, "w/bad");
    copy_file("in/1/random_states_3.pkl", "w/bad/random_states_4.pkl");
    refused_as("streams of one rank more", CKR_ITEM_FILES_FOREIGN);
    load_case(RANKS, "w/bad");
    copy_file("in/0/pytorch_model_fsdp.bin", "w/bad/pytorch_model_fsdp.bin");
    refused_as("two layouts", CKR_ITEM_FILES_MIXED);
    load_case(SHARDED1, "w/bad");
    memio_remove(&disk, "w/bad/optimizer_0/.metadata");
    refused_as("a save that has not ended", CKR_ITEM_DCP_UNFINISHED);
}

/* The same archive, whose root has no longer the name of that file. */
static void copy_as(const char *from, const char *to, const char *root)
{
    const size_t n = strlen(root);
    memio_file *f;
    size_t i;
    copy_file(from, to);
    f = memio_find(&disk, to);
    for (i = 0; f && i + n <= (size_t)f->size; i++)
        if (!memcmp(f->data + i, root, n)) f->data[i] = 'x';
}

/* A second model and its optimizer. */
static void two_models(void)
{
    ckr_ckpt *c;
    size_t v;
    memio_remove(&disk, "w/two");
    load_case(FULL, "w/two");
    copy_as("in/0/pytorch_model_fsdp.bin", "w/two/pytorch_model_fsdp_1.bin", "pytorch_model_fsdp/");
    copy_as("in/0/optimizer.bin", "w/two/optimizer_1.bin", "optimizer/");
    for (v = 0; v < 3; v++) {
        ckr_target t = target_of(0, 0, 3, -1, layouts[v]);
        memio_remove(&disk, "w/out");
        c = open_ok("w/two");
        if (!c) break;
        CHECK_INT(ckr_ckpt_state(c)->n_tensors, 8 * 27);
        CHECK_INT(ckr_ckpt_state(c)->n_groups, 4);
        if (!written(c, "w/two", "w/out", &t)) continue;
        c = open_ok("w/out");
        if (c) CHECK(ckr_ckpt_tensor(c, "model_1.lm_head.weight", "exp_avg") != NULL);
        ckr_ckpt_close(c);
    }
    memio_remove(&disk, "w/two");
}

/* A variant is of a model that FSDP has cut. */
static void no_fsdp(void)
{
    ckr_target t = target_of(0, 0, 3, -1, "sharded");
    ckr_plan *p = NULL;
    ckr_error e;
    ckr_ckpt *c;
    memio_add(&disk, "w/ddp", true);
    memio_load(&disk, "tests/data/accelerate/acc_w2_bin_tied_bf16/ckpt", "w/ddp");
    c = open_ok("w/ddp");
    if (c && CHECK_OK(ckr_plan_create(c, &t, 0, &p, &e), &e))
        CHECK_INT(ckr_plan_info(p)->verdict, CKR_VERDICT_REFUSED);
    ckr_plan_free(p);
    ckr_ckpt_close(c);
    memio_remove(&disk, "w/ddp");
}

static void faults_on_the_way(void)
{
    int k;
    size_t v;
    for (k = 0; k < N_CASES; k++)
        for (v = 0; v < 3; v++) {
            whole w = CKR_ZERO;
            if (k == FULL1 || (k == TRAINER && v != 1)) continue;
            memio_remove(&disk, "w/out");
            w.path = in[k];
            w.target = target_of(0, 0, 3, -1, layouts[v]);
            whole_way_fails(&w, 12);
        }
}

/* The tool on the disk: exit codes, and nothing written where it refuses. */
static void the_tool(void)
{
    static char out[] = "build/t_fsdp.XXXXXX";
    const char *tool = getenv("TOOL"), *top = mkdtemp(out);
    char to[64], log[64], note[64];
    const char *check[] = { NULL, "check", DATA "acc_fsdp1_sharded_w2/ckpt", NULL };
    const char *full[] = { NULL, "convert", DATA "acc_fsdp1_sharded_w2/ckpt", to, "--variant",
                           "full", "--dp", "3", NULL };
    const char *part[] = { NULL, "check", DATA "acc_fsdp2_rankfiles_w4/ckpt/optimizer_0_rank1.bin",
                           NULL };
    if (!tool || !top || access(tool, X_OK) != 0) return;
    snprintf(to, sizeof to, "%s/out", top);
    snprintf(log, sizeof log, "%s/log", top);
    snprintf(note, sizeof note, "%s/note", top);
    check[0] = full[0] = part[0] = tool;
    CHECK_INT(os_run(check, log, note), 0);
    CHECK_INT(os_run(full, log, note), 0);
    CHECK_INT(os_run(part, log, note), 3);
    check[2] = to;
    CHECK_INT(os_run(check, log, note), 0);
    check[2] = DATA "acc_fsdp1_full_w3/ckpt";
    CHECK_INT(os_run(check, log, note), 1);
    os_remove_tree(top);
}

int main(int argc, char **argv)
{
    t_begin(argc, argv);
    load_cases();
    RUN(what_is_read);
    RUN(there_and_back);
    RUN(layout_stays);
    RUN(what_fsdp1_loads);
    RUN(moments_in_one_place);
    RUN(groups_in_layouts);
    RUN(not_one_run);
    RUN(two_models);
    RUN(no_fsdp);
    RUN(faults_on_the_way);
    RUN(the_tool);
    memio_free(&disk);
    return t_end();
}
