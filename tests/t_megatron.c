/* Real checkpoints of Megatron-LM 0.16.1 from tests/data, legacy with the distributed optimizer and
   torch_dist as Megatron itself wrote it wrong: every tensor against the live processes; all
   topologies, formats and optimizer kinds and back; the LR that was asked for, in groups, scheduler
   and arguments; repair, to the element; refusals, damage, faults. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "t.h"
#include "option.h"
#include "ckpt.h"
#include "tree.h"
#include "bad.h"
#include "settings.h"

#define DATA "tests/data/megatron"
#define EMBEDDING "embedding.word_embeddings.weight"

#define RANK "legacy/iter_0000006/mp_rank_01/model_optim_rng.pt"
#define FLAT "legacy/iter_0000006/mp_rank_00/distrib_optim.pt"
#define FIRST "legacy/iter_0000006/mp_rank_00/model_optim_rng.pt"

static const ckr__mg *kept_of(const ckr_ckpt *c)
{
    return (const ckr__mg *)ckr__kept_data(ckr_ckpt_state(c));
}

/* Behind the `nth` string `key` of a pickle, and behind what memoizes it. */
static uint8_t *behind(const char *file, const char *key, int nth)
{
    const memio_file *f = memio_find(&disk, file);
    const size_t len = strlen(key);
    size_t i;
    if (!f) exit(2);
    for (i = 0; i + len + 16 < f->size; i++) {
        uint8_t *p = (uint8_t *)(uintptr_t)f->data + i;
        if (i < 4 || memcmp(p, key, len) != 0 || p[-4] != len || p[-3] || nth-- > 0) continue;
        p += len;
        if (*p == 'q') return p + 2;
        if (*p == 'r') return p + 5;
        return p;
    }
    t_check(false, __FILE__, __LINE__, "%s: no %s", file, key);
    exit(2);
}

static void load_cases(void)
{
    memset(&env, 0, sizeof env);
    env.io = memio_io(&disk);
    memio_add(&disk, "legacy", true);
    memio_add(&disk, "bug", true);
    memio_add(&disk, "w", true);
    memio_load(&disk, DATA "/legacy_tp2_dp2_distopt/ckpt", "legacy");
    memio_load(&disk, DATA "/tdist_tp2_dp2_fr_buckets_bug/ckpt", "bug");
    memio_add(&disk, "dr", true);
    memio_add(&disk, "moe", true);
    memio_add(&disk, "v14", true);
    memio_load(&disk, DATA "/dr_pp2_vpp2/ckpt", "dr");
    memio_load(&disk, DATA "/legacy_moe_decoupled/ckpt", "moe");
    memio_load(&disk, DATA "/v014_fsms_tp2_pp2/ckpt", "v14");
    memio_add(&disk, "zg", true);
    memio_add(&disk, "v19", true);
    memio_add(&disk, "v15", true);
    memio_load(&disk, DATA "/v015_tp2/ckpt", "v15");
    memio_add(&disk, "dp3", true);
    memio_add(&disk, "adam", true);
    memio_add(&disk, "bf16", true);
    memio_load(&disk, DATA "/legacy_tp2_bf16/ckpt", "bf16");
    memio_load(&disk, DATA "/v014_zerogather_tp2/ckpt", "zg");
    memio_load(&disk, DATA "/v019_fr_tp2/ckpt", "v19");
    memio_load(&disk, DATA "/legacy_dp3_buckets/ckpt", "dp3");
    memio_load(&disk, DATA "/torch_adam_dp2/ckpt", "adam");
}

static const ckr_note *note_on(const ckr_plan_facts *f, const char *code, const char *subject)
{
    uint64_t i;
    for (i = 0; i < f->n_notes; i++)
        if (!strcmp(f->notes[i].code, code) &&
            (!subject || (f->notes[i].subject && !strcmp(f->notes[i].subject, subject))))
            return &f->notes[i];
    return NULL;
}

static ckr_plan *plan_of(const ckr_ckpt *c, const ckr_target *t)
{
    ckr_plan *p = NULL;
    ckr_error e;
    ckr_result r = ckr_plan_create(c, t, 0, &p, &e);
    t_check(r == CKR_OK, __FILE__, __LINE__, "plan: %s %s: %s", ckr_item_name(e.item), e.where,
            e.text);
    return p;
}

static bool convert(const char *from, const char *to, const ckr_target *t)
{
    return written(open_ok(from), from, to, t);
}

/* Tensors that are not the live process's, and elements of four bytes in which they differ. */
static void against_truth(const char *path, const char *file, uint64_t *tensors, uint64_t *elements)
{
    ckr_ckpt *c = open_ok(path), *truth = NULL;
    const ckr_state *s;
    ckr_error e;
    uint64_t i;
    *tensors = *elements = 0;
    if (!CHECK_OK(ckr_ckpt_open(file, NULL, &truth, &e), &e)) exit(1);
    s = ckr_ckpt_state(truth);
    for (i = 0; c && i < s->n_tensors; i++) {
        const ckr_tensor *want = s->tensors[i], *have = by_key(c, want->name);
        size_t n, m, k;
        uint8_t *a, *b;
        if (!t_check(have != NULL, __FILE__, __LINE__, "no %s", want->name)) continue;
        a = tensor_bytes(truth, want, &n);
        b = tensor_bytes(c, have, &m);
        CHECK_INT(m, n);
        if (m == n && memcmp(a, b, n) != 0) ++*tensors;
        for (k = 0; m == n && k + 4 <= n; k += 4) *elements += memcmp(a + k, b + k, 4) != 0;
        free(a);
        free(b);
    }
    if (c) CHECK_INT(ckr_ckpt_state(c)->n_tensors, s->n_tensors);
    ckr_ckpt_close(truth);
    ckr_ckpt_close(c);
}

static void what_is_read(void)
{
    ckr_ckpt *c = open_ok("legacy");
    const ckr_state *s;
    double lr[2];
    uint64_t tensors, elements;
    ckr_error e;
    if (!c) return;
    s = ckr_ckpt_state(c);
    CHECK_STR(s->dialect, "megatron");
    CHECK_INT(s->topology.tp, 2);
    CHECK_INT(s->topology.pp, 1);
    CHECK_INT(s->topology.dp, 2);
    CHECK_INT(s->topology.zero, 1);
    CHECK_INT(s->topology.ranks, 4);
    CHECK_INT(s->progress.step, 6);
    CHECK_INT(s->progress.samples, 24);
    CHECK_INT(s->progress.tokens, 384);
    CHECK_INT(s->vocab, 61);
    CHECK_INT(s->padded_vocab, 64);
    CHECK_INT(s->n_groups, 2);
    CHECK_INT(s->groups[0].n_params, 9);
    CHECK_INT(s->groups[1].n_params, 5);
    CHECK_INT(s->n_ties, 1);
    CHECK_STR(s->ties[0].name, EMBEDDING);
    CHECK_INT(s->n_rng, 14);
    CHECK_INT(s->rng[7].rank, 1);
    CHECK_INT(s->n_schedules, 1);
    CHECK_STR(s->schedules[0].clock, "sample");
    CHECK_INT(s->schedules[0].position, 24);
    if (CHECK_OK(ckr_schedule_values(&s->schedules[0], CKR_COLUMN_LR, 7, 1, lr, NULL, &e), &e))
        CHECK(ckr__same(lr[0], 0.0026604895100309865) && ckr__same(lr[1], lr[0]));
    CHECK_INT(ckr_ckpt_tensor(c, EMBEDDING, "master")->shape[0], 61);
    ckr_ckpt_close(c);
    CHECK(is_sound("legacy"));
    against_truth("legacy", DATA "/legacy_tp2_dp2_distopt/truth.safetensors", &tensors, &elements);
    CHECK_INT(tensors, 0);
}

/* Four samples an update are no three ranks': six are, over as many samples in all. */
static const ckr_setting of_three[] = { { NULL, "batch_size", "6" },
                                        { NULL, "total_steps", "11" } };

/* Every tensor of the live run, whatever the ranks, the format and the kind of optimizer. */
static void there_and_back(void)
{
    static const struct { uint32_t tp, pp, dp; int32_t zero; const char *variant; } to[] = {
        { 1, 1, 1, 1, "torch" },      { 1, 2, 3, 1, "torch" },      { 2, 2, 1, 0, "torch" },
        { 4, 1, 2, 1, "torch" },      { 1, 1, 1, 0, "torch_dist" }, { 2, 2, 3, 1, "torch_dist" },
        { 4, 2, 1, 1, "torch_dist" }
    };
    uint8_t first[16], now[16];
    uint64_t tensors, elements;
    size_t i;
    digest_of("legacy", first);
    for (i = 0; i < sizeof to / sizeof *to; i++) {
        ckr_target t = target_of(to[i].tp, to[i].pp, to[i].dp, to[i].zero, to[i].variant);
        ckr_target back = target_of(2, 1, 2, 1, "torch");
        ckr_ckpt *c;
        t.sets = of_three;
        t.n_sets = to[i].dp == 3 ? 2 : 0;
        if (!convert("legacy", "w/a", &t)) continue;
        against_truth("w/a", DATA "/legacy_tp2_dp2_distopt/truth.safetensors", &tensors, &elements);
        CHECK_INT(tensors, 0);
        CHECK(is_sound("w/a"));
        c = open_ok("w/a");
        if (c) {
            CHECK_INT(ckr_ckpt_state(c)->topology.tp, to[i].tp);
            CHECK_INT(ckr_ckpt_state(c)->topology.pp, to[i].pp);
            CHECK_INT(ckr_ckpt_state(c)->topology.dp, to[i].dp);
            CHECK_INT(ckr_ckpt_state(c)->topology.zero, to[i].zero);
        }
        ckr_ckpt_close(c);
        if (convert("w/a", "w/b", &back)) {
            digest_of("w/b", now);
            CHECK(!memcmp(first, now, 16));
        }
        memio_remove(&disk, "w/b");
        memio_remove(&disk, "w/a");
    }
}

/* What Megatron itself does not load, or loads wrong, each with what it says: after a conversion
   every tensor is that of the live run, and the way back gives the same digest. */
static void load_back_rows(void)
{
    static const struct {
        const char *label, *from, *truth;
        uint32_t tp, pp, dp, ep, vpp;
        int32_t zero;
        const char *variant, *version;
    } rows[] = {
        { "legacy, tp: AssertionError tensor_model_parallel_size", "legacy",
          "legacy_tp2_dp2_distopt", 1, 1, 2, 1, 1, 1, "torch", NULL },
        { "legacy, pp: no such rank file, exit code 0", "legacy", "legacy_tp2_dp2_distopt", 2, 2, 2,
          1, 1, 1, "torch", NULL },
        { "legacy, more tp than query groups", "legacy", "legacy_tp2_dp2_distopt", 4, 1, 1, 1, 1, 1,
          "torch", NULL },
        { "legacy, without the distributed optimizer: KeyError 'state'", "legacy",
          "legacy_tp2_dp2_distopt", 2, 1, 2, 1, 1, 0, "torch", NULL },
        { "legacy of 0.16 in 0.14: weights_only refuses signal.Signals", "legacy",
          "legacy_tp2_dp2_distopt", 2, 1, 2, 1, 1, 1, "torch", "0.14.0" },
        { "torch_dist, without the distributed optimizer: not in state dict", "legacy",
          "legacy_tp2_dp2_distopt", 1, 2, 1, 1, 1, 0, "torch_dist", NULL },
        { "dp_reshardable, pp: (TP, PP) mismatch after resume", "dr", "dr_pp2_vpp2", 1, 1, 1, 1, 1,
          1, "torch_dist", NULL },
        { "dp_reshardable, tp", "dr", "dr_pp2_vpp2", 2, 4, 1, 1, 1, 1, "torch_dist", NULL },
        { "dp_reshardable as legacy", "dr", "dr_pp2_vpp2", 2, 2, 3, 1, 2, 1, "torch", NULL },
        { "virtual stages away: KeyError 'model'", "dr", "dr_pp2_vpp2", 1, 2, 1, 1, 1, 1, "torch",
          NULL },
        { "legacy experts, ep: no such rank file, exit code 0", "moe", "legacy_moe_decoupled", 1, 1,
          1, 1, 1, 1, "torch", NULL },
        { "torch_dist experts, ep: Missing key rng_state/shard_0.0_1.1", "moe",
          "legacy_moe_decoupled", 1, 1, 1, 1, 1, 1, "torch_dist", NULL },
        { "decoupled LR: a group that doesn't match, for 0.15", "moe", "legacy_moe_decoupled", 1, 1,
          2, 2, 1, 1, "torch", "0.15.0" },
        { "decoupled LR, for 0.19", "moe", "legacy_moe_decoupled", 1, 1, 2, 2, 1, 0, "torch_dist",
          "0.19.0" },
        { "0.14's tensors: ShardedTensor.flattened_range is not supported", "v14",
          "v014_fsms_tp2_pp2", 2, 2, 1, 1, 1, 1, "torch_dist", "0.19.0" },
        { "0.14's tensors at another topology", "v14", "v014_fsms_tp2_pp2", 1, 1, 2, 1, 1, 1,
          "torch_dist", "0.16.1" },
        { "0.14's tensors as legacy", "v14", "v014_fsms_tp2_pp2", 1, 2, 1, 1, 1, 0, "torch",
          "0.14.0" },
        { "dp_zero_gather_scatter, tp: not supported for DistributedOptimizer", "zg",
          "v014_zerogather_tp2", 1, 1, 1, 1, 1, 1, "torch_dist", "0.16.1" },
        { "dp_zero_gather_scatter as legacy", "zg", "v014_zerogather_tp2", 2, 1, 1, 1, 1, 1,
          "torch", "0.14.0" },
        { "0.19's files in 0.16: 'str' object has no attribute 'iterdir'", "v19", "v019_fr_tp2", 2,
          1, 1, 1, 1, 1, "torch_dist", "0.16.1" },
        { "0.19's files in 0.14", "v19", "v019_fr_tp2", 1, 1, 2, 1, 1, 1, "torch", "0.14.0" },
        { "0.15's own class of metadata", "v15", "v015_tp2", 1, 1, 2, 1, 1, 1, "torch_dist", NULL },
        { "another bucket size: Number of unpadded elements", "dp3", "legacy_dp3_buckets", 1, 1, 1,
          1, 1, 1, "torch_dist", NULL },
        { "buckets, dp", "dp3", "legacy_dp3_buckets", 1, 2, 2, 1, 1, 1, "torch", NULL },
        { "distributed torch Adam: KeyError 'step'", "adam", "torch_adam_dp2", 1, 1, 2, 1, 1, 0,
          "torch", NULL },
        { "distributed torch Adam: AssertionError in state_dict", "adam", "torch_adam_dp2", 2, 1, 1,
          1, 1, 0, "torch_dist", NULL }
    };
    uint8_t first[16], now[16];
    uint64_t tensors, elements;
    char truth[120];
    size_t i;
    for (i = 0; i < sizeof rows / sizeof *rows; i++) {
        ckr_target t = target_of(rows[i].tp, rows[i].pp, rows[i].dp, rows[i].zero, rows[i].variant);
        t.topology.ep = rows[i].ep;
        option_int(&t, "vpp", rows[i].vpp);
        option_text(&t, "to_version", rows[i].version);
        t.sets = of_three;
        t.n_sets = rows[i].dp == 3 ? 2 : 0;
        digest_of(rows[i].from, first);
        if (!t_check(convert(rows[i].from, "w/row", &t), __FILE__, __LINE__, "%s", rows[i].label))
            continue;
        digest_of("w/row", now);
        t_check(!memcmp(first, now, 16), __FILE__, __LINE__, "%s: digest", rows[i].label);
        snprintf(truth, sizeof truth, DATA "/%s/truth.safetensors", rows[i].truth);
        against_truth("w/row", truth, &tensors, &elements);
        t_check(!tensors, __FILE__, __LINE__, "%s: %d tensors", rows[i].label, (int)tensors);
        CHECK(is_sound("w/row"));
        memio_remove(&disk, "w/row");
    }
}

/* The count of updates of a group; that of a parameter, as torch's own Adam keeps it. -1: none. */
static double group_count(const ckr_ckpt *c)
{
    double v = -1;
    ckr_node_f64(ckr_node_get(ckr_ckpt_state(c)->groups[0].hyper, "step"), &v);
    return v;
}

static double own_count(const ckr_ckpt *c)
{
    const ckr_tensor *t = ckr_ckpt_tensor(c, EMBEDDING, "step");
    float v = -1;
    size_t n;
    uint8_t *bytes = t && t->dtype == CKR_DTYPE_F32 ? tensor_bytes(c, t, &n) : NULL;
    if (bytes) memcpy(&v, bytes, sizeof v);
    free(bytes);
    return (double)v;
}

static void counted(const char *from, const ckr_target *t, const char *note, double in_group,
                    double own)
{
    ckr_ckpt *c = open_ok(from);
    ckr_plan *p = c ? plan_of(c, t) : NULL;
    ckr_error e;
    if (p && CHECK_OK(ckr_plan_write(p, "w/n", NULL, &e), &e)) {
        ckr_ckpt *w = open_ok("w/n");
        CHECK(!note || note_on(ckr_plan_info(p), note, "step") != NULL);
        if (!note) CHECK(note_on(ckr_plan_info(p), "CKR_MEGATRON_STEP", NULL) == NULL);
        if (w) {
            CHECK(ckr__same(group_count(w), in_group));
            CHECK(ckr__same(own_count(w), own));
        }
        ckr_ckpt_close(w);
        CHECK(is_sound("w/n"));
    }
    ckr_plan_free(p);
    ckr_ckpt_close(c);
    memio_remove(&disk, "w/n");
}

/* Fused optimizers count their updates in the group, torch's own for each parameter; what nobody
   counted is the iteration. */
static void counts(void)
{
    ckr_target t = target_of(1, 1, 2, 0, "torch");
    uint8_t *a, *b;
    counted("adam", &t, NULL, 6, 6);
    t.variant = "torch_dist";
    counted("adam", &t, NULL, 6, 6);
    t.topology.zero = 1;
    counted("adam", &t, "CKR_MEGATRON_ADAM", 6, -1);
    t = target_of(2, 1, 2, 0, "torch");
    counted("legacy", &t, NULL, 6, -1);
    a = behind(FIRST, "step", 0);
    b = behind(RANK, "step", 0);
    while (*--a != 's') {}
    while (*--b != 's') {}
    *a = *b = 'x';                             /* the groups have no such key any more         */
    counted("legacy", &t, "CKR_MEGATRON_STEP", 6, -1);
    t.variant = "torch_dist";
    t.topology.zero = 1;
    counted("legacy", &t, "CKR_MEGATRON_STEP", 6, -1);
    *a = *b = 's';
}

/* A layout that depends on the run's buckets says so. */
static void buckets(void)
{
    ckr_target t = target_of(1, 1, 1, 1, "torch");
    ckr_ckpt *c = open_ok("dp3");
    ckr_plan *p = c ? plan_of(c, &t) : NULL;
    const ckr_note *n = p ? note_on(ckr_plan_info(p), "CKR_MEGATRON_BUCKETS", NULL) : NULL;
    if (CHECK(n && n->new_value)) CHECK_STR(n->new_value, "300");
    CHECK(n && n->severity == CKR_EXACT && !n->remedy);        /* an option says it, if any    */
    if (p) CHECK_STR(setting_value(ckr_plan_info(p), "--ddp-bucket-size"), "");
    ckr_plan_free(p);
    t.variant = "torch_dist";
    p = c ? plan_of(c, &t) : NULL;
    if (p) CHECK(note_on(ckr_plan_info(p), "CKR_MEGATRON_BUCKETS", NULL) == NULL);
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

/* Both forms of the random states of experts' ranks: 0.16 asks for one per data rank, the others
   for one per tensor and pipeline rank. */
static void expert_streams(void)
{
    static const struct { const char *version; bool by_rank, plain; } rows[] = {
        { NULL, true, true }, { "0.16.1", true, false }, { "0.19.0", false, true }
    };
    size_t i;
    for (i = 0; i < 3; i++) {
        ckr_target t = target_of(1, 1, 2, 1, "torch_dist");
        ckr_ckpt *c;
        ckr__dcp *d = NULL;
        ckr_error e;
        t.topology.ep = 2;
        option_text(&t, "to_version", rows[i].version);
        if (i == 1)            /* decoupled LR: not for 0.16                              */
            t.without = CKR_OPTIMIZER | CKR_GROUPS | CKR_SCHEDULE;
        if (!convert("moe", "w/e", &t)) continue;
        c = open_ok("w/e");
        if (c) {
            ckr__ctx *x = &c->ctx;
            ckr__ctx_enter(x, &e);
            if (CHECK_INT(ckr__dcp_open(x, "w/e/iter_0000006", &d), CKR_OK)) {
                CHECK((ckr__dcp_find(d, "rng_state/shard_0.0.1_1.1.2") != NULL) == rows[i].by_rank);
                CHECK((ckr__dcp_find(d, "rng_state/shard_0.0_1.1") != NULL) == rows[i].plain);
                ckr__dcp_close(d);
            }
            x->err = &x->own_err;
            if (rows[i].by_rank) CHECK_INT(ckr_ckpt_state(c)->n_rng, 14);
        }
        ckr_ckpt_close(c);
        memio_remove(&disk, "w/e");
    }
}

/* Where rows of padding are dropped they are counted; where there is room they stay. */
static void padding(void)
{
    ckr_ckpt *c = open_ok("legacy");
    ckr_target t = target_of(1, 1, 2, 1, NULL);
    ckr_plan *p = c ? plan_of(c, &t) : NULL;
    if (p) CHECK(note_on(ckr_plan_info(p), "CKR_PADDING_LOST", NULL) == NULL);     /* 64 rows */
    ckr_plan_free(p);
    t = target_of(4, 1, 1, 1, NULL);
    p = c ? plan_of(c, &t) : NULL;          /* 64 is also the multiple of 8 * 4 above 61       */
    if (p) CHECK(note_on(ckr_plan_info(p), "CKR_PADDING_LOST", NULL) == NULL);
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

/* A vocabulary that is larger than the file's: rows of zeros, in the digests as well. One that is
   smaller than the arguments tell is refused. */
/* Weights alone in another dtype, from the masters: said before, and in the digest. */
static void dtypes(void)
{
    static const char *const dirs[] = { "legacy", "dr" };
    int i;
    for (i = 0; i < 2; i++) {
        ckr_target t = target_of(1, 1, 1, 0, NULL);
        ckr_ckpt *c = open_ok(dirs[i]);
        ckr_plan *p;
        ckr_receipt receipt;
        ckr_error e;
        t.mode = CKR_MODE_TRANSFER;
        t.dtype = CKR_DTYPE_F16;
        p = c ? plan_of(c, &t) : NULL;
        if (p) {
            const ckr_note *n = note_on(ckr_plan_info(p), "CKR_DTYPE_CAST", NULL);
            if (CHECK(n != NULL)) CHECK_STR(n->new_value, "float16");
            if (CHECK_OK(ckr_plan_write(p, "w/h", &receipt, &e), &e)) digest_told("w/h", &receipt);
        }
        ckr_plan_free(p);
        ckr_ckpt_close(c);
        memio_remove(&disk, "w/h");
    }
}

static void vocabulary(void)
{
    ckr_target t = target_of(1, 1, 1, 1, NULL);
    ckr_open_desc d = CKR_ZERO;
    ckr_ckpt *c = NULL;
    ckr_plan *p = NULL;
    ckr_receipt receipt;
    ckr_error e;
    uint8_t now[16];
    d.env = &env;
    t.vocab = d.vocab = 40;
    if (CHECK_OK(ckr_ckpt_open("legacy", &d, &c, &e), &e) && (p = plan_of(c, &t)) != NULL) {
        CHECK_INT(ckr_plan_info(p)->verdict, CKR_VERDICT_REFUSED);
        CHECK(note_on(ckr_plan_info(p), "CKR_E_MEGATRON_ARGS_VOCAB", NULL) != NULL);
        CHECK(note_on(ckr_plan_info(p), "CKR_VOCAB_ROWS_LOST", NULL) != NULL);
    }
    ckr_plan_free(p);
    ckr_ckpt_close(c);
    t.vocab = d.vocab = 70;
    if (CHECK_OK(ckr_ckpt_open("legacy", &d, &c, &e), &e) && (p = plan_of(c, &t)) != NULL) {
        CHECK_STR(note_on(ckr_plan_info(p), "CKR_PADDING_ADDED", NULL)->new_value, "72");
        CHECK_OK(ckr_plan_write(p, "w/v", &receipt, &e), &e);
        ckr_plan_free(p);
        digest_of("w/v", now);
        CHECK(!memcmp(now, receipt.digest_written, 16));
        CHECK(is_sound("w/v"));
    }
    ckr_ckpt_close(c);
    t = target_of(1, 1, 1, 0, NULL);
    t.dialect = "dcp";
    if (convert("legacy", "w/d", &t)) CHECK(is_sound("w/d"));    /* the names that it has there */
    memio_remove(&disk, "w/v");
    memio_remove(&disk, "w/d");
}

/* What --override-opt_param-scheduler does not do: the LR that was asked for is in the groups'
   bounds, the scheduler and the arguments alike, and the options are named. */
static void asked_lr(void)
{
    static const ckr_setting sets[] = { { NULL, "lr", "1e-3" }, { NULL, "decay_steps", "32" } };
    ckr_target t = target_of(1, 1, 1, 1, NULL);
    ckr_ckpt *c = open_ok("legacy");
    ckr_plan *p;
    double want[2], have[2], v = 0;
    ckr_error e;
    t.sets = sets;
    t.n_sets = 2;
    p = c ? plan_of(c, &t) : NULL;
    if (!p) return;
    CHECK_STR(setting_value(ckr_plan_info(p), "--lr"), "0.001");
    CHECK_STR(setting_value(ckr_plan_info(p), "--lr-decay-iters"), "32");
    CHECK_STR(setting_value(ckr_plan_info(p), "--tensor-model-parallel-size"), "1");
    CHECK(!setting_find(ckr_plan_info(p), "--min-lr"));        /* it stays                 */
    CHECK_OK(ckr_schedule_values(ckr_plan_info(p)->after, CKR_COLUMN_LR, 7, 1, want, NULL, &e), &e);
    CHECK_OK(ckr_plan_write(p, "w/lr", NULL, &e), &e);
    ckr_plan_free(p);
    ckr_ckpt_close(c);
    c = open_ok("w/lr");
    if (!c) return;
    CHECK_OK(ckr_schedule_values(&ckr_ckpt_state(c)->schedules[0], CKR_COLUMN_LR, 7, 1, have, NULL,
                                 &e),
             &e);
    CHECK(ckr__same(have[0], want[0]) && ckr__same(have[1], want[1]));
    CHECK(ckr_node_f64(ckr_node_get(ckr_ckpt_state(c)->groups[0].hyper, "max_lr"), &v) &&
          ckr__same(v, 1e-3));
    CHECK(ckr_node_f64(ckr_node_get(ckr_ckpt_state(c)->groups[1].hyper, "lr"), &v) &&
          ckr__same(v, want[0]));
    CHECK(ckr_node_f64(ckr_node_get(kept_of(c)->args, "lr"),
                       &v) &&
          ckr__same(v, 1e-3));
    ckr_ckpt_close(c);
    memio_remove(&disk, "w/lr");
}

/* Each rank's streams are its own; those of ranks that stay go on where they stood. */
static void streams(void)
{
    ckr_target t = target_of(4, 1, 1, 1, NULL);
    ckr_ckpt *a = open_ok("legacy"), *b = NULL;
    uint64_t i, k, n = 0;
    if (a && convert("legacy", "w/r", &t)) b = open_ok("w/r");
    for (i = 0; b && i < ckr_ckpt_state(b)->n_rng; i++)
        n += !strcmp(ckr_ckpt_state(b)->rng[i].name, "model-parallel-rng");
    if (b) CHECK_INT(n, 4);
    for (i = 0; b && i < ckr_ckpt_state(b)->n_rng; i++)
        for (k = 0; k < i; k++) {
            const ckr_stream *x = &ckr_ckpt_state(b)->rng[i], *y = &ckr_ckpt_state(b)->rng[k];
            uint8_t p[16], q[16];
            ckr_error e;
            if (strcmp(x->name, "model-parallel-rng") != 0 || strcmp(y->name, x->name) != 0)
                continue;
            CHECK_OK(ckr_view_read(b, x->state->u.view, 0, 16, p, &e), &e);
            CHECK_OK(ckr_view_read(b, y->state->u.view, 0, 16, q, &e), &e);
            CHECK(memcmp(p, q, 8) != 0);
        }
    ckr_ckpt_close(a);
    ckr_ckpt_close(b);
    memio_remove(&disk, "w/r");
}

/* Other frameworks' files take nothing of what was written wrong, repaired or not. */
static void elsewhere(void)
{
    static const char *const to[] = { "dcp", "torch", "safetensors" };
    ckr_target t = target_of(1, 1, 1, 0, NULL);
    ckr_ckpt *c = open_ok("bug");
    size_t i;
    for (i = 0; c && i < 12; i++) {
        const bool all = i % 4 < 2;
        ckr_plan *p;
        const ckr_note *n;
        t.dialect = to[i / 4];
        t.repair = i % 2 == 1;
        t.without = i % 4 == 2 ? CKR_OPTIMIZER | CKR_GROUPS | CKR_SCHEDULE : 0;
        t.slots = i % 4 == 3 ? "params" : NULL;
        p = plan_of(c, &t);
        n = p ? note_on(ckr_plan_info(p), "CKR_E_MEGATRON_DEFECT", EMBEDDING) : NULL;
        CHECK((n != NULL) == all);
        if (p && all) CHECK_INT(ckr_plan_info(p)->verdict, CKR_VERDICT_REFUSED);
        ckr_plan_free(p);
    }
    ckr_ckpt_close(c);
}

/* The file that Megatron wrote wrong: found, refused by parameter, repaired to the element. */
static void defect(void)
{
    ckr_target t = target_of(2, 1, 2, 1, NULL);
    ckr_ckpt *c = open_ok("bug");
    ckr_plan *p = c ? plan_of(c, &t) : NULL;
    uint64_t i, named = 0, lost = 0, tensors, elements;
    CHECK(!is_sound("bug"));
    if (p) {
        CHECK_INT(ckr_plan_info(p)->verdict, CKR_VERDICT_REFUSED);
        for (i = 0; i < ckr_plan_info(p)->n_notes; i++)
            named += !strcmp(ckr_plan_info(p)->notes[i].code, "CKR_E_MEGATRON_DEFECT");
        CHECK_INT(named, 11);
        CHECK(note_on(ckr_plan_info(p), "CKR_E_MEGATRON_DEFECT", EMBEDDING) != NULL);
        bad_seen[CKR_ITEM_MEGATRON_DEFECT] = true;
    }
    ckr_plan_free(p);
    t.repair = true;
    p = c ? plan_of(c, &t) : NULL;
    if (p) {
        const ckr_note *n = note_on(ckr_plan_info(p), "CKR_REPAIR_LOST", EMBEDDING);
        CHECK_INT(ckr_plan_info(p)->verdict, CKR_VERDICT_APPROX);
        if (CHECK(n != NULL)) CHECK_STR(n->new_value, "140 of 1280");
        for (i = 0; i < ckr_plan_info(p)->n_notes; i++)
            if (!strcmp(ckr_plan_info(p)->notes[i].code, "CKR_REPAIR_LOST"))
                lost += strtoull(ckr_plan_info(p)->notes[i].new_value, NULL, 10);
    }
    ckr_plan_free(p);
    ckr_ckpt_close(c);
    elsewhere();
    against_truth("bug", DATA "/tdist_tp2_dp2_fr_buckets_bug/truth.safetensors", &tensors,
                  &elements);
    CHECK_INT(tensors, 33);
    if (!convert("bug", "w/good", &t)) return;
    CHECK(is_sound("w/good"));
    against_truth("w/good", DATA "/tdist_tp2_dp2_fr_buckets_bug/truth.safetensors", &tensors,
                  &elements);
    CHECK_INT(elements, 3 * lost);         /* master and both moments, and nothing else     */
    t.repair = false;
    CHECK(convert("w/good", "w/again", &t));   /* what was repaired raises no alarm         */
    memio_remove(&disk, "w/good");
    memio_remove(&disk, "w/again");
}

/* Two copies of the same elements that differ: refused, unless parameter and master prove one. */

#define NORM "decoder.layers.0.input_layernorm.weight"

static void flip(const char *path, const char *name, const char *slot, bool copy)
{
    ckr_ckpt *c = open_ok(path);
    const ckr_tensor *t = c ? ckr_ckpt_tensor(c, name, slot) : NULL;
    uint32_t i;
    for (i = 0; t && i < t->n_pieces && t->pieces[i].replica != copy; i++) {}
    if (CHECK(t && i < t->n_pieces))
        memio_find(&disk, c->ctx.files[t->pieces[i].file].path)->data[t->pieces[i].offset + 1] ^= 4;
    ckr_ckpt_close(c);
}

/* `slot` of the first or of the other copy is damaged. */
static void distrusted(const char *slot, bool copy, const uint8_t sound[16], bool proven)
{
    ckr_target t = target_of(1, 1, 1, 1, NULL);
    ckr_ckpt *c;
    ckr_plan *p;
    ckr_error e;
    uint8_t now[16];
    flip("legacy", NORM, slot, copy);
    for (t.repair = false;; t.repair = true) {
        const bool good = t.repair && proven;
        ckr_result r = CKR_E_ARG;
        const ckr_note *n;
        c = open_ok("legacy");
        p = c ? plan_of(c, &t) : NULL;
        if (p) r = ckr_plan_write(p, "w/t", NULL, &e);
        CHECK_INT(r, good ? CKR_OK : CKR_E_REFUSED);
        n = p ? note_on(ckr_plan_info(p), good ? "CKR_REPAIRED" : "CKR_E_REPLICA_DIFFERS", NULL)
              : NULL;
        if (CHECK(n != NULL)) {
            CHECK(!strncmp(n->subject, NORM " (", strlen(NORM) + 2));
            CHECK(n->severity == (good ? CKR_CHANGED : CKR_ERROR) && n->reason);
        }
        if (p) CHECK_INT(ckr_plan_info(p)->verdict == CKR_VERDICT_REFUSED, !good);
        CHECK((memio_find(&disk, "w/t") != NULL) == good);
        ckr_plan_free(p);
        ckr_ckpt_close(c);
        if (t.repair) break;
    }
    if (proven) {
        digest_of("w/t", now);
        CHECK(!memcmp(now, sound, 16));
        CHECK(is_sound("w/t"));
    }
    memio_remove(&disk, "w/t");
    flip("legacy", NORM, slot, copy);
}

static void trust(void)
{
    uint8_t sound[16];
    digest_of("legacy", sound);
    distrusted("param", true, sound, true);
    distrusted("param", false, sound, true);
    distrusted("exp_avg", true, sound, false);
    distrusted("exp_avg", false, sound, false);
}

static void refuse(const char *from, const ckr_target *t, ckr_item item)
{
    ckr_ckpt *c = open_ok(from);
    ckr_plan *p = c ? plan_of(c, t) : NULL;
    if (p) {
        const ckr_note *n = note_on(ckr_plan_info(p), ckr_item_name(item), NULL);
        CHECK_INT(ckr_plan_info(p)->verdict, CKR_VERDICT_REFUSED);
        if (t_check(n != NULL, __FILE__, __LINE__, "no %s", ckr_item_name(item)))
            CHECK(n->severity == CKR_ERROR && n->reason);
    }
    bad_seen[item] = true;
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

/* A batch of 4: what the run is given to go on with it, or with what is asked for, on other ranks;
   "": nothing. */
static void batches(void)
{
    static const struct {
        uint32_t dp;
        const char *set;
        int64_t micro;
        const char *all, *small;
    } x[] = {
        { 2, NULL, 2, "", "" },  { 1, NULL, 1, "4", "" }, { 4, NULL, 1, "", "" },
        { 4, NULL, 2, "", "1" }, { 1, NULL, 2, "4", "" }, { 2, "8", 2, "8", "" },
        { 4, "8", 2, "8", "" },  { 8, "8", 2, "8", "1" }, { 4, "16", 3, "16", "1" },
        { 3, NULL, 1, NULL, "6" }, { 8, NULL, 1, NULL, "8" }
    };
    size_t i;
    for (i = 0; i < sizeof x / sizeof *x; i++) {
        ckr_setting set = { NULL, "batch_size", NULL };
        ckr_target t = target_of(2, 1, x[i].dp, 1, NULL);
        ckr_ckpt *c = open_ok("legacy");
        ckr_plan *p;
        if (!c) continue;
        CHECK_INT(ckr_ckpt_state(c)->batch, 4);
        {
            const ckr_node *micro = ckr_node_get(kept_of(c)->args, "micro_batch_size");
            ((ckr_node *)(uintptr_t)micro)->u.i = x[i].micro;
        }
        set.value = x[i].set;
        t.sets = &set;
        t.n_sets = x[i].set != NULL;
        p = plan_of(c, &t);
        if (p && x[i].all) {
            const ckr_plan_facts *f = ckr_plan_info(p);
            CHECK(f->verdict != CKR_VERDICT_REFUSED);
            CHECK_STR(setting_value(f, "--global-batch-size"), x[i].all);
            CHECK_STR(setting_value(f, "--micro-batch-size"), x[i].small);
            settings_told(f);
        } else if (p) {
            const ckr_note *n = note_on(ckr_plan_info(p), "CKR_E_BATCH", NULL);
            if (CHECK(n && n->severity == CKR_ERROR && n->remedy))
                CHECK(strstr(n->remedy, x[i].small) != NULL);
        }
        ckr_plan_free(p);
        ckr_ckpt_close(c);
    }
}

/* The model's options, which no file sets. */
static void options(void)
{
    ckr_target t = target_of(2, 1, 2, 1, NULL);
    ckr_ckpt *c = open_ok("legacy");
    ckr_plan *p;
    if (!c) return;
    t.topology.cp = 2;
    t.vocab = 200;
    p = plan_of(c, &t);
    if (p) {
        CHECK_STR(setting_value(ckr_plan_info(p), "--context-parallel-size"), "2");
        CHECK_STR(setting_value(ckr_plan_info(p), "--vocab-size"), "199");   /* NullTokenizer */
    }
    ckr_plan_free(p);
    t = target_of(2, 1, 2, 1, NULL);
    t.mode = CKR_MODE_TRANSFER;
    t.dtype = CKR_DTYPE_F32;
    p = plan_of(c, &t);
    if (p) CHECK_STR(setting_value(ckr_plan_info(p), "--bf16"), "absent");
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

static void refused(void)
{
    static const ckr_setting sets[] = { { NULL, "lr", "1e-3" } };
    ckr_target t = target_of(2, 3, 2, 1, NULL);
    refuse("legacy", &t, CKR_ITEM_MEGATRON_STAGES);
    t = target_of(2, 1, 2, 1, NULL);
    option_int(&t, "vpp", 2);
    refuse("legacy", &t, CKR_ITEM_MEGATRON_STAGES);
    t = target_of(2, 2, 1, 1, NULL);
    option_int(&t, "vpp", 2);  /* two layers on four chunks                              */
    refuse("legacy", &t, CKR_ITEM_MEGATRON_STAGES);
    t = target_of(3, 1, 1, 1, NULL);
    refuse("legacy", &t, CKR_ITEM_TP_UNEVEN);
    t = target_of(2, 1, 2, 2, NULL);
    refuse("legacy", &t, CKR_ITEM_ZERO_STAGE);
    t = target_of(2, 1, 2, 1, NULL);
    t.topology.ep = 2;
    refuse("legacy", &t, CKR_ITEM_EP_SIZE);
    t = target_of(2, 1, 2, 1, NULL);
    t.without = CKR_PARAMS;
    refuse("legacy", &t, CKR_ITEM_PARAMS_WITHOUT);
    t.without = CKR_SCHEDULE;                          /* both are loaded, or none       */
    refuse("legacy", &t, CKR_ITEM_GROUPS_WITHOUT);
    t.without = CKR_OPTIMIZER | CKR_GROUPS;
    refuse("legacy", &t, CKR_ITEM_LR_WITHOUT);
    t.without = 0;
    t = target_of(2, 1, 2, 1, NULL);
    t.sets = sets;
    t.n_sets = 1;
    t.lr_policy = CKR_LR_REWARM;
    t.rewarm_steps = 4;
    {
        ckr_ckpt *c = open_ok("legacy");
        ckr_plan *p = c ? plan_of(c, &t) : NULL;
        if (p) CHECK(note_on(ckr_plan_info(p), "CKR_E_SCHEDULE_HOLD", NULL) != NULL);
        ckr_plan_free(p);
        ckr_ckpt_close(c);
    }
}

/* Older versions: what they load is written, what they don't is refused. */
static void versions(void)
{
    ckr_target t = target_of(1, 2, 1, 1, "torch_dist");
    ckr_ckpt *c = open_ok("legacy");
    ckr_plan *p;
    const ckr_node *args, *v;
    option_text(&t, "to_version", "0.14.0");
    p = c ? plan_of(c, &t) : NULL;
    if (p) CHECK(note_on(ckr_plan_info(p), "CKR_E_MEGATRON_VERSION", NULL) != NULL);
    ckr_plan_free(p);
    ckr_ckpt_close(c);
    t.variant = "torch";
    if (!convert("legacy", "w/old", &t)) return;
    c = open_ok("w/old");
    if (!c) return;
    args = kept_of(c)->args;
    v = ckr_node_get(args, "exit_signal");     /* an enum, which weights_only refuses       */
    CHECK(v && v->kind == CKR_NODE_INT && v->u.i == 15);
    ckr_ckpt_close(c);
    memio_remove(&disk, "w/old");
}

/* A version that is not known is the caller's mistake; one that cannot hold the layout says why. */
static void no_version(void)
{
    static const char *const bad[] = { "banana", "0.99", "1.0", "0.3", "0.16x", "3" };
    static const struct { const char *version, *variant; uint32_t tp; int32_t zero; } refused[] = {
        { "0.14.0", "torch_dist", 1, 1 }, { "0.7", "torch_dist", 1, 0 }, { "0.7", "torch", 1, 1 },
        { "core_v0.15.0", "torch", 4, 0 }
    };
    ckr_ckpt *c = open_ok("legacy");
    ckr_plan *p = NULL;
    ckr_error e;
    size_t i;
    for (i = 0; c && i < sizeof bad / sizeof *bad; i++) {
        ckr_target t = target_of(1, 1, 1, 1, NULL);
        option_text(&t, "to_version", bad[i]);
        CHECK_INT(ckr_plan_create(c, &t, 0, &p, &e), CKR_E_ARG);
        CHECK(e.item == CKR_ITEM_MEGATRON_NO_VERSION && e.remedy[0]);
        bad_seen[CKR_ITEM_MEGATRON_NO_VERSION] = true;
    }
    for (i = 0; c && i < sizeof refused / sizeof *refused; i++) {
        ckr_target t = target_of(refused[i].tp, 1, 1, refused[i].zero, refused[i].variant);
        option_text(&t, "to_version", refused[i].version);
        p = plan_of(c, &t);
        if (p) {
            const ckr_note *n = note_on(ckr_plan_info(p), "CKR_E_MEGATRON_VERSION", NULL);
            CHECK(n && n->severity == CKR_ERROR && n->reason && n->remedy);
        }
        ckr_plan_free(p);
    }
    ckr_ckpt_close(c);
}

static void other_source(void)
{
    static const float w[2] = { 1, 2 };
    const int64_t shape[1] = { 2 };
    ckr_target t = target_of(1, 1, 1, 0, NULL);
    ckr_ckpt *c = NULL;
    ckr_plan *p;
    ckr_error e;
    if (!CHECK_OK(ckr_ckpt_create(NULL, &c, &e), &e)) return;
    CHECK_OK(ckr_ckpt_put(c, "w", "param", CKR_DTYPE_F32, 1, shape, w, &e), &e);
    t.dialect = "megatron";
    p = plan_of(c, &t);
    if (p)
        CHECK(note_on(ckr_plan_info(p), ckr_item_name(CKR_ITEM_MEGATRON_SOURCE), NULL) != NULL);
    bad_seen[CKR_ITEM_MEGATRON_SOURCE] = true;
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

/* Weights alone are a release checkpoint, which Megatron starts from without any flag. */
static void release(void)
{
    ckr_target t = target_of(1, 1, 1, 1, NULL);
    ckr_ckpt *c;
    uint64_t i;
    bool noted = false;
    t.mode = CKR_MODE_TRANSFER;
    if (!convert("legacy", "w/rel", &t)) return;
    CHECK(memio_find(&disk, "w/rel/release/mp_rank_00/model_optim_rng.pt") != NULL);
    CHECK(memio_find(&disk, "w/rel/release/mp_rank_00/distrib_optim.pt") == NULL);
    c = open_ok("w/rel");
    if (c) {
        CHECK_INT(ckr_ckpt_state(c)->progress.step, 0);
        CHECK_INT(ckr_ckpt_state(c)->progress.samples, 0);
        for (i = 0; i < ckr_ckpt_state(c)->n_notes; i++)
            noted = noted || !strcmp(ckr_ckpt_state(c)->notes[i].code, "CKR_W_MEGATRON_RELEASE");
        CHECK(noted);
    }
    ckr_ckpt_close(c);
    memio_remove(&disk, "w/rel");
}

/* damage: a copy with one thing wrong in it ------------------------------------------- */

/* Behind the second place of a key, which is a reference to the first. */
static uint8_t *again(const char *file, const char *key)
{
    const memio_file *f = memio_find(&disk, file);
    uint8_t *first = behind(file, key, 0), *end = (uint8_t *)(uintptr_t)f->data + f->size, *p;
    const bool wide = first[-5] == 'r';
    const size_t n = wide ? 4 : 1;
    for (p = first; p + n + 2 < end; p++)
        if (*p == (wide ? 'j' : 'h') && !memcmp(p + 1, first - n, n)) return p + 1 + n;
    t_check(false, __FILE__, __LINE__, "%s: no second %s", file, key);
    exit(2);
}

static void broken_by(const char *file, const char *key, int nth, long at, uint8_t value,
                      ckr_item item)
{
    uint8_t *p = (nth ? again(file, key) : behind(file, key, 0)) + at, was = *p;
    ckr_ckpt *c = NULL;
    ckr_error e;
    ckr_result r;
    *p = value;
    r = open_as("legacy", &c, &e);
    t_check(r != CKR_OK && e.item == item && e.file[0] && e.text[0], __FILE__, __LINE__,
            "%s: %s, expected %s: %s", key, ckr_item_name(e.item), ckr_item_name(item), e.text);
    bad_seen[item] = true;
    ckr_ckpt_close(c);
    *p = was;
}

/* The place behind `bytes`, which stand after `key`. */
static long then(const char *file, const char *key, const char *bytes, size_t n)
{
    const uint8_t *p = behind(file, key, 0);
    long i;
    for (i = 0; i < 400; i++)
        if (!memcmp(p + i, bytes, n)) return i;
    t_check(false, __FILE__, __LINE__, "%s: nothing behind %s", file, key);
    exit(2);
}

static void damaged(void)
{
    uint8_t *other;
    broken_by(RANK, "iteration", 1, 1, 7, CKR_ITEM_FILES_STEP);
    broken_by(RANK, "num_layers", 0, 1, 3, CKR_ITEM_FILES_MIXED);   /* the ranks disagree  */
    other = behind(RANK, "num_layers", 0) + 1;
    *other = 3;
    broken_by(FIRST, "num_layers", 0, 1, 3, CKR_ITEM_MEGATRON_ARGS_LAYERS);
    *other = 2;
    other = behind(RANK, "hidden_size", 0) + 1;
    *other = 23;
    broken_by(FIRST, "hidden_size", 0, 1, 23, CKR_ITEM_MEGATRON_ARGS);
    *other = 24;
    broken_by(RANK, "seed", 0, 1, 7, CKR_ITEM_FILES_MIXED);         /* of another run      */
    broken_by(RANK, "eps", 0, 4, 7, CKR_ITEM_RANK_GROUPS);
    broken_by(FIRST, "args", 0, -6, 'b', CKR_ITEM_FILE_FORM);
    broken_by(FIRST, "checkpoint_version", 0, 1, 0x3f, CKR_ITEM_MEGATRON_UNSUPPORTED);
    broken_by(RANK, EMBEDDING, 0, then(RANK, EMBEDDING, "K K\x18\x86", 5) + 1, 31,
              CKR_ITEM_RANK_SHAPE);
    broken_by(FIRST, "wd_mult", 0, -9, 'x', CKR_ITEM_OPTIMIZER_NAMES);
    broken_by(FLAT, "param", 0, then(FLAT, "param", "M\xc0\x13\x85", 4) + 1, 0xbf,
              CKR_ITEM_MEGATRON_BUCKETS);
}

/* An argument that all files have alike, and the tensors not. NULL: only a note, with this code. */
static void told(const char *path, const char *const *files, const char *key, size_t at,
                 uint8_t value, ckr_item item, const char *code)
{
    uint8_t was[2] = { 0, 0 };
    ckr_ckpt *c = NULL;
    ckr_error e;
    ckr_result r;
    uint64_t k;
    bool noted = false;
    int i;
    for (i = 0; files[i]; i++) was[i] = behind(files[i], key, 0)[at];
    for (i = 0; files[i]; i++) behind(files[i], key, 0)[at] = value;
    r = open_as(path, &c, &e);
    if (item == CKR_ITEM_OK) {
        if (CHECK_INT(r, CKR_OK))
            for (k = 0; k < ckr_ckpt_state(c)->n_notes; k++)
                noted = noted || !strcmp(ckr_ckpt_state(c)->notes[k].code, code);
        t_check(noted, __FILE__, __LINE__, "%s: no %s", key, code);
    } else {
        t_check(r == CKR_E_MISMATCH && e.item == item && e.file[0] && e.text[0] && e.remedy[0],
                __FILE__, __LINE__, "%s: %s, expected %s: %s", key, ckr_item_name(e.item),
                ckr_item_name(item), e.text);
        bad_seen[item] = true;
    }
    ckr_ckpt_close(c);
    for (i = 0; files[i]; i++) behind(files[i], key, 0)[at] = was[i];
}

#define COMMON "bug/iter_0000006/common.pt"

/* Arguments that contradict the tensors, each with an item of its own, in both formats. */
static void contradictions(void)
{
    static const char *const legacy[] = { FIRST, RANK, NULL }, *const dist[] = { COMMON, NULL };
    static const struct { const char *key; size_t at; uint8_t value; ckr_item item; } rows[] = {
        { "untie_embeddings_and_output_weights", 0, 0x88, CKR_ITEM_MEGATRON_ARGS_TIED },
        { "swiglu", 0, 0x89, CKR_ITEM_MEGATRON_ARGS_GATED },
        { "ffn_hidden_size", 1, 27, CKR_ITEM_MEGATRON_ARGS_FFN },
        { "num_query_groups", 1, 1, CKR_ITEM_MEGATRON_ARGS_GROUPS },
        { "num_attention_heads", 1, 8, CKR_ITEM_MEGATRON_ARGS_HEADS },
        { "vocab_size", 1, 100, CKR_ITEM_MEGATRON_ARGS_VOCAB },
        { "num_layers", 1, 4, CKR_ITEM_MEGATRON_ARGS_LAYERS },
        { "hidden_size", 1, 28, CKR_ITEM_MEGATRON_ARGS }
    };
    size_t i;
    for (i = 0; i < sizeof rows / sizeof *rows; i++) {
        told("legacy", legacy, rows[i].key, rows[i].at, rows[i].value, rows[i].item, NULL);
        told("bug", dist, rows[i].key, rows[i].at, i ? rows[i].value : 0x89, rows[i].item, NULL);
    }
    told("legacy", legacy, "padded_vocab_size", 1, 72, CKR_ITEM_OK, "CKR_W_MEGATRON_VOCAB");
    told("bug", dist, "padded_vocab_size", 1, 72, CKR_ITEM_OK, "CKR_W_MEGATRON_VOCAB");
    told("bug", dist, "tensor_model_parallel_size", 1, 4, CKR_ITEM_MEGATRON_ARGS_RANKS, NULL);
    told("bug", dist, "tensor_model_parallel_size", 1, 1, CKR_ITEM_MEGATRON_ARGS_RANKS, NULL);
    told("bug", dist, "pipeline_model_parallel_size", 1, 2, CKR_ITEM_MEGATRON_ARGS_RANKS, NULL);
}

static void opens_as(const char *path, ckr_item item)
{
    ckr_ckpt *c = NULL;
    ckr_error e;
    ckr_result r = open_as(path, &c, &e);
    t_check(r != CKR_OK && e.item == item && e.text[0] && e.remedy[0], __FILE__, __LINE__,
            "%s: %s, expected %s: %s", path, ckr_item_name(e.item), ckr_item_name(item), e.text);
    bad_seen[item] = true;
    ckr_ckpt_close(c);
}

/* Writes a digit over another, wherever it follows `text` in a file. */
static void digits(const char *path, const char *text, char from, char to)
{
    const memio_file *f = memio_find(&disk, path);
    const size_t n = strlen(text);
    size_t i;
    if (!f) exit(2);
    for (i = 0; i + n < f->size; i++) {
        uint8_t *p = (uint8_t *)(uintptr_t)f->data + i;
        if (!memcmp(p, text, n) && p[n] == (uint8_t)from) p[n] = (uint8_t)to;
    }
}

/* What a checkpoint says of a cut is held against the rule by which it is read: the attributes of
   masters, on each rank, and the chunks of torch_dist. */
static void axes(void)
{
    static const struct { const char *key; int nth; size_t at; uint8_t value; } rows[] = {
        { "partition_dim", 0, 1, 1 },             /* of the embedding: along its columns    */
        { "tensor_model_parallel", 1, 0, 0x89 },  /* of the next: whole                     */
        { "partition_dim", 1, 1, 0 }
    };
    size_t i;
    int rank;
    for (rank = 0; rank < 2; rank++)
        for (i = 0; i < sizeof rows / sizeof *rows; i++) {
            char path[64];
            uint8_t *p, was;
            snprintf(path, sizeof path, "bf16/iter_0000006/mp_rank_0%d/model_optim_rng.pt", rank);
            p = (rows[i].nth ? again(path, rows[i].key) : behind(path, rows[i].key, 0)) +
                rows[i].at;
            was = *p;
            *p = rows[i].value;
            opens_as("bf16", CKR_ITEM_TP_AXIS);
            *p = was;
        }
    /* where the embedding's are not set, nothing that is not set says anything */
    *behind("bf16/iter_0000006/mp_rank_00/model_optim_rng.pt", "tensor_model_parallel", 0) = 0x89;
    ckr_ckpt_close(open_ok("bf16"));
    *behind("bf16/iter_0000006/mp_rank_00/model_optim_rng.pt", "tensor_model_parallel", 0) = 0x88;
    ckr_ckpt_close(open_ok("bf16"));
    digits("bug/iter_0000006/.metadata", "layers.mlp.linear_fc", '1', '9');
    digits("bug/iter_0000006/.metadata", "layers.mlp.linear_fc", '2', '1');
    digits("bug/iter_0000006/.metadata", "layers.mlp.linear_fc", '9', '2');
    opens_as("bug", CKR_ITEM_TP_AXIS);
    digits("bug/iter_0000006/.metadata", "layers.mlp.linear_fc", '1', '9');
    digits("bug/iter_0000006/.metadata", "layers.mlp.linear_fc", '2', '1');
    digits("bug/iter_0000006/.metadata", "layers.mlp.linear_fc", '9', '2');
    ckr_ckpt_close(open_ok("bug"));
}

static void moved(const char *from, const char *to)
{
    const memio_file *f = memio_find(&disk, from);
    if (CHECK(f != NULL)) memio_put(&disk, to, f->data, (size_t)f->size);
}

/* Whose file is whose: two ranks that have changed places, two formats in one directory, a newer
   iteration that the tracker file does not name. */
static void places(void)
{
    static const char *const files[] = { "model_optim_rng.pt", "distrib_optim.pt" };
    char from[80], to[80];
    ckr_ckpt *c;
    uint64_t k;
    int i, rank;
    bool noted = false;
    for (i = 0; i < 2; i++)
        for (rank = 0; rank < 2; rank++) {
            snprintf(from, sizeof from, "legacy/iter_0000006/mp_rank_0%d/%s", rank, files[i]);
            snprintf(to, sizeof to, "w/x/iter_0000006/mp_rank_0%d/%s", 1 - rank, files[i]);
            moved(from, to);
        }
    opens_as("w/x", CKR_ITEM_FILES_SWAPPED);
    memio_remove(&disk, "w/x");
    for (i = 0; i < 2; i++)
        for (rank = 0; rank < 2; rank++) {
            snprintf(from, sizeof from, "legacy/iter_0000006/mp_rank_0%d/%s", rank, files[i]);
            snprintf(to, sizeof to, "w/x/iter_0000006/mp_rank_0%d/%s", rank, files[i]);
            moved(from, to);
        }
    moved("bug/iter_0000006/metadata.json", "w/x/iter_0000006/metadata.json");
    opens_as("w/x", CKR_ITEM_MEGATRON_BOTH);
    memio_remove(&disk, "w/x/iter_0000006/metadata.json");
    moved(FIRST, "w/x/iter_0000012/mp_rank_00/model_optim_rng.pt");
    memio_put(&disk, "w/x/latest_checkpointed_iteration.txt", "6", 1);
    c = open_ok("w/x");
    for (k = 0; c && k < ckr_ckpt_state(c)->n_notes; k++)
        noted = noted || !strcmp(ckr_ckpt_state(c)->notes[k].code, "CKR_W_MEGATRON_NEWER");
    CHECK(noted);
    if (c) CHECK_STR(ckr_ckpt_path(c), "w/x/iter_0000006");
    ckr_ckpt_close(c);
    memio_remove(&disk, "w/x");
}

/* Files that are not there, or too many; a tracker that points nowhere. */
static void directories(void)
{
    ckr_ckpt *c;
    moved(FIRST, "w/x/iter_0000006/mp_rank_00/model_optim_rng.pt");
    moved(FLAT, "w/x/iter_0000006/mp_rank_00/distrib_optim.pt");
    opens_as("w/x", CKR_ITEM_RANK_MISSING);                  /* a rank's directory          */
    moved(RANK, "w/x/iter_0000006/mp_rank_01/model_optim_rng.pt");
    opens_as("w/x", CKR_ITEM_RANK_MISSING);                  /* a rank's distrib_optim.pt   */
    moved("legacy/iter_0000006/mp_rank_01/distrib_optim.pt",
          "w/x/iter_0000006/mp_rank_01/distrib_optim.pt");
    c = open_ok("w/x");                                          /* without a tracker file      */
    if (c) CHECK_STR(ckr_ckpt_path(c), "w/x/iter_0000006");
    ckr_ckpt_close(c);
    moved(RANK, "w/x/iter_0000006/mp_rank_02/model_optim_rng.pt");
    opens_as("w/x", CKR_ITEM_FILES_FOREIGN);
    memio_remove(&disk, "w/x/iter_0000006/mp_rank_02");
    memio_put(&disk, "w/x/latest_checkpointed_iteration.txt", "7", 1);
    opens_as("w/x", CKR_ITEM_FILES_LATEST);
    memio_put(&disk, "w/x/latest_checkpointed_iteration.txt", "six", 3);
    opens_as("w/x", CKR_ITEM_FILES_LATEST);
    memio_put(&disk, "w/x/latest_checkpointed_iteration.txt", "release", 7);
    opens_as("w/x", CKR_ITEM_FILES_LATEST);
    memio_put(&disk, "w/x/latest_checkpointed_iteration.txt", " 6\n", 3);
    c = open_ok("w/x");
    ckr_ckpt_close(c);
    memio_remove(&disk, "w/x");
}

static void copy_dist(const char *without)
{
    static const char *const files[] = { ".metadata", "common.pt", "metadata.json",
                                         "__0_0.distcp", "__0_1.distcp", "__1_0.distcp",
                                         "__1_1.distcp", "__2_0.distcp", "__2_1.distcp",
                                         "__3_0.distcp", "__3_1.distcp" };
    char from[80], to[80];
    size_t i;
    memio_remove(&disk, "w/y");
    for (i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(from, sizeof from, "bug/iter_0000006/%s", files[i]);
        snprintf(to, sizeof to, "w/y/iter_0000006/%s", files[i]);
        if (strcmp(files[i], without) != 0) moved(from, to);
    }
}

/* torch_dist: a save that has not ended, files that are not there, a format of the past. */
static void distributed(void)
{
    static const char zarr[] = "{\"sharded_backend\": \"zarr\", \"sharded_backend_version\": 1}";
    ckr_ckpt *c = NULL;
    ckr_error e;
    copy_dist("");
    c = open_ok("w/y");
    if (c) CHECK_INT(ckr_ckpt_state(c)->format, CKR_FORMAT_DCP);
    ckr_ckpt_close(c);
    copy_dist("metadata.json");
    opens_as("w/y", CKR_ITEM_RANK_MISSING);
    open_as("w/y", &c, &e);
    CHECK(strstr(e.remedy, "the checkpoint before this one") != NULL);
    copy_dist("common.pt");
    opens_as("w/y", CKR_ITEM_RANK_MISSING);
    copy_dist("__2_0.distcp");
    opens_as("w/y", CKR_ITEM_RANK_MISSING);
    copy_dist("");
    memio_put(&disk, "w/y/iter_0000006/metadata.json", zarr, sizeof zarr - 1);
    CHECK_INT(open_as("w/y", &c, &e), CKR_E_UNSUPPORTED);
    CHECK_INT(e.item, CKR_ITEM_MEGATRON_UNSUPPORTED);
    copy_dist("");
    memio_put(&disk, "w/y/latest_checkpointed_iteration.txt", "5", 1);
    opens_as("w/y", CKR_ITEM_FILES_LATEST);
    memio_remove(&disk, "w/y");
    memio_load(&disk, DATA "/v015_tp2/ckpt", "w/y");   /* expert layers cut in another way     */
    memio_load(&disk, DATA, "w/data");
    moved("w/data/ep2_common.pt", "w/y/iter_0000006/common.pt");
    CHECK_INT(open_as("w/y", &c, &e), CKR_E_UNSUPPORTED);
    CHECK_STR(e.where, "args/expert_tensor_parallel_size");
    moved("w/data/no_impl_common.pt", "w/y/iter_0000006/common.pt");
    c = open_ok("w/y");
    ckr_ckpt_close(c);
    memio_remove(&disk, "w/y");
    memio_remove(&disk, "w/data");
}

/* "--a-b V ...": each as the plan's settings say it, or as the saved run had it. */
static void options_are(const ckr_ckpt *c, const ckr_plan *p, const char *flags)
{
    const ckr_node *args = kept_of(c)->args;
    char text[400], key[64], *word, *value;
    size_t i;
    snprintf(text, sizeof text, "%s", flags);
    settings_told(ckr_plan_info(p));
    for (word = strtok(text, " "); word; word = strtok(NULL, " ")) {
        const char *now = setting_value(ckr_plan_info(p), word);
        double v = 0;
        value = strtok(NULL, " ");
        snprintf(key, sizeof key, "%s", word + 2);
        for (i = 0; key[i]; i++) if (key[i] == '-') key[i] = '_';
        if (*now)
            t_check(!strcmp(now, value), __FILE__, __LINE__, "%s is %s, not %s", word, now, value);
        else if (ckr_node_str(ckr_node_get(args, key)))
            CHECK_STR(ckr_node_str(ckr_node_get(args, key)), value);
        else
            t_check((ckr_node_f64(ckr_node_get(args, key), &v) || !strcmp(value, "0")) &&
                        ckr__same(v, strtod(value, NULL)),
                    __FILE__, __LINE__, "%s %s is not said, it was %g", word, value, v);
    }
}

/* The plan's curve and the written file's are the same to the bit, with the options that say it. */
static void same_curve(const char *from, const ckr_target *t, const char *flags)
{
    ckr_ckpt *c = open_ok(from);
    ckr_plan *p;
    double want[24], have[24];
    ckr_error e;
    size_t i;
    p = c ? plan_of(c, t) : NULL;
    if (!p) return;
    options_are(c, p, flags);
    CHECK_OK(ckr_schedule_values(ckr_plan_info(p)->after, CKR_COLUMN_LR, 7, 12, want, NULL, &e),
             &e);
    if (CHECK_OK(ckr_plan_write(p, "w/s", NULL, &e), &e)) {
        ckr_ckpt *w = open_ok("w/s");
        if (w)
            CHECK_OK(ckr_schedule_values(&ckr_ckpt_state(w)->schedules[0], CKR_COLUMN_LR, 7, 12,
                                         have, NULL, &e),
                     &e);
        for (i = 0; w && i < 24; i++) CHECK(ckr__same(want[i], have[i]));
        ckr_ckpt_close(w);
    }
    ckr_plan_free(p);
    ckr_ckpt_close(c);
    memio_remove(&disk, "w/s");
}

static void same_lr(const ckr_setting *sets, uint64_t n_sets, ckr_lr_policy policy,
                    const char *flags)
{
    ckr_target t = target_of(1, 1, 1, 1, NULL);
    t.sets = sets;
    t.n_sets = n_sets;
    t.lr_policy = policy;
    same_curve("legacy", &t, flags);
}

/* Options are whole iterations: what is none is a fraction of the decay, or is refused. */
static void whole_iterations(void)
{
    static const ckr_setting longer[] = { { NULL, "total_steps", "20" } },
                             other[] = { { NULL, "total_steps", "32" } },
                             batch[] = { { NULL, "batch_size", "8" } },
                             uneven[] = { { NULL, "batch_size", "6" } },
                             even[] = { { NULL, "batch_size", "6" },
                                        { NULL, "total_steps", "11" } },
                             wd[] = { { NULL, "weight_decay", "0.2" } };
    ckr_target t = target_of(1, 1, 1, 1, NULL);
    ckr_ckpt *c = open_ok("legacy");
    ckr_plan *p;
    same_lr(longer, 1, CKR_LR_STRETCH,
            "--lr-warmup-iters 0 --lr-warmup-fraction 0.09 --lr-decay-iters 20");
    same_lr(other, 1, CKR_LR_SPLICE, "--lr-warmup-iters 3 --lr-decay-iters 32");
    same_lr(batch, 1, CKR_LR_DEFAULT,
            "--lr-warmup-fraction 0.1875 --lr-decay-iters 8 --lr-decay-style cosine --weight-decay "
            "0.1 --global-batch-size 8 --train-iters 16");
    same_lr(even, 2, CKR_LR_DEFAULT, "--lr-warmup-iters 2 --lr-decay-iters 11");
    same_lr(wd, 1, CKR_LR_DEFAULT, "--weight-decay 0.2 --global-batch-size 4");
    t.sets = uneven;
    t.n_sets = 1;
    p = c ? plan_of(c, &t) : NULL;
    if (p) {
        const ckr_note *n = note_on(ckr_plan_info(p), "CKR_E_SCHEDULE_HOLD", NULL);
        if (CHECK(n && n->severity == CKR_ERROR))
            CHECK_STR(n->remedy, "ckr_target.sets decay_steps=11");
    }
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

#define WSD                                                                                       \
    "megatron:lr=3e-3,min_lr=3e-4,lr_warmup_iters=3,lr_decay_iters=16,lr_decay_style=WSD,"         \
    "lr_wsd_decay_style=minus_sqrt,lr_wsd_decay_iters=4,global_batch_size=4"

static void cannot_hold(const char *from, const ckr_target *t, const char *why, const char *remedy)
{
    ckr_ckpt *c = open_ok(from);
    ckr_plan *p = c ? plan_of(c, t) : NULL;
    const ckr_note *n = p ? note_on(ckr_plan_info(p), "CKR_E_SCHEDULE_HOLD", NULL) : NULL;
    if (CHECK(n && n->severity == CKR_ERROR && n->reason && n->remedy)) {
        t_check(strstr(n->reason, why) != NULL, __FILE__, __LINE__, "%s", n->reason);
        t_check(strstr(n->remedy, remedy) != NULL, __FILE__, __LINE__, "%s", n->remedy);
    }
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

/* A schedule with a last part of its own: stretched where that stays whole, warmed up again before
   its level part; what Megatron cannot say is refused with what it can. */
static void last_part(void)
{
    ckr_setting total = { NULL, "total_steps", "20" }, lr = { NULL, "lr", "1e-3" };
    ckr_target t = target_of(1, 1, 1, 1, NULL);
    t.schedule = WSD;
    t.lr_policy = CKR_LR_TARGET;
    same_curve("legacy", &t, "--lr-decay-style WSD --lr-wsd-decay-style minus_sqrt "
                             "--lr-wsd-decay-iters 4");
    if (!convert("legacy", "w/wsd", &t)) return;
    t.schedule = NULL;
    t.sets = &total;
    t.n_sets = 1;
    same_curve("w/wsd", &t, "--lr-decay-iters 20 --lr-decay-style WSD --lr-wsd-decay-style "
                            "minus_sqrt --lr-wsd-decay-iters 4");
    same_curve("w/wsd", &t, "--train-iters 20");               /* it was to end with the decay  */
    t.lr_policy = CKR_LR_STRETCH;
    cannot_hold("w/wsd", &t, "the last part's decay is 5.6 iterations",
                "ckr_target.sets total_steps=21 stretches it to 6; ckr_target.lr_policy = "
                "CKR_LR_TARGET keeps its 4");
    total.value = "21";
    same_curve("w/wsd", &t, "--lr-decay-iters 21 --lr-decay-style WSD --lr-wsd-decay-style "
                            "minus_sqrt --lr-wsd-decay-iters 6");
    t.sets = &lr;
    t.lr_policy = CKR_LR_REWARM;
    t.rewarm_steps = 6;
    same_curve("w/wsd", &t, "--lr 0.001 --min-lr 0.0003 --lr-warmup-iters 6 --lr-decay-iters 10");
    t.rewarm_steps = 7;                        /* into the last part                           */
    cannot_hold("w/wsd", &t, "the level part of WSD", "lr_policy = CKR_LR_TARGET");
    memio_remove(&disk, "w/wsd");
    t.sets = NULL;
    t.n_sets = 0;
    t.rewarm_steps = 3;
    t.schedule = "megatron:lr=2e-3,min_lr=1e-4,lr_decay_iters=20,lr_decay_style=linear,"
                 "global_batch_size=4";
    same_curve("legacy", &t, "--lr-warmup-iters 3 --lr-decay-iters 14 --lr-decay-style linear");
    t.schedule = "megatron:lr=2e-3,min_lr=1e-4,lr_decay_iters=20,lr_decay_style=constant,"
                 "global_batch_size=4";
    same_curve("legacy", &t, "--lr 0.002 --min-lr 0.0001 --lr-warmup-iters 3 --lr-decay-iters 14 "
                             "--lr-decay-style constant");
    t.schedule = "torch:LambdaLR";
    t.lr_policy = CKR_LR_TARGET;
    cannot_hold("legacy", &t, "only megatron's schedules", "ckr_target.schedule = megatron:");
}

/* A run that was resumed with --override-opt_param-scheduler has saved another LR in its arguments
   than its groups use: what is written says the same everywhere. */
static void apart(void)
{
    ckr_target t = target_of(1, 1, 1, 1, NULL);
    ckr_ckpt *c;
    ckr_plan *p;
    const ckr_note *n;
    ckr_error e;
    double v = 0;
    const uint8_t was = behind(FIRST, "lr", 0)[3];
    CHECK_INT(behind(FIRST, "lr", 0)[0], 'G');
    behind(FIRST, "lr", 0)[3] = behind(RANK, "lr", 0)[3] = 0x11;
    c = open_ok("legacy");
    p = c ? plan_of(c, &t) : NULL;
    if (p) {
        n = note_on(ckr_plan_info(p), "CKR_FIX_MEGATRON_LR", NULL);
        if (CHECK(n && n->old_value)) CHECK(strstr(n->old_value, "groups 0.003") != NULL);
        CHECK_STR(setting_value(ckr_plan_info(p), "--lr"), "0.003");
        CHECK_OK(ckr_plan_write(p, "w/a", NULL, &e), &e);
    }
    ckr_plan_free(p);
    ckr_ckpt_close(c);
    behind(FIRST, "lr", 0)[3] = behind(RANK, "lr", 0)[3] = was;
    c = p ? open_ok("w/a") : NULL;
    if (c)
        CHECK(ckr_node_f64(ckr_node_get(kept_of(c)->args,
                                        "lr"), &v) &&
              ckr__same(v, 0.003));
    p = c ? plan_of(c, &t) : NULL;
    if (p) CHECK(note_on(ckr_plan_info(p), "CKR_FIX_MEGATRON_LR", NULL) == NULL);
    ckr_plan_free(p);
    ckr_ckpt_close(c);
    memio_remove(&disk, "w/a");
}

/* torch_dist has one tensor of all layers: where one of them has another shape than the others it
   is refused, whichever comes first. */
static void uneven_layers(void)
{
    ckr_target t = target_of(1, 1, 1, -1, "torch_dist");
    t.without = CKR_OPTIMIZER | CKR_GROUPS | CKR_SCHEDULE;
    for (int layer = 0; layer < 3; layer += 2) {
        uint8_t *at[2], *key[2];
        char path[64], name[64];
        snprintf(name, sizeof name, "decoder.layers.%d.input_layernorm.weight", layer);
        for (int rank = 0; rank < 2; rank++) {
            snprintf(path, sizeof path, "bf16/iter_0000006/mp_rank_0%d/model_optim_rng.pt", rank);
            at[rank] = behind(path, name, 0) + then(path, name, "K\x18\x85", 3) + 1;
            key[rank] = behind(path, "optimizer", 0) - 6;      /* its masters have all shapes */
            *at[rank] = 12;
            *key[rank] ^= 'r' ^ 'X';
        }
        refuse("bf16", &t, CKR_ITEM_MEGATRON_SOURCE);
        for (int rank = 0; rank < 2; rank++) {
            *at[rank] = 24;
            *key[rank] ^= 'r' ^ 'X';
        }
    }
    ckr_ckpt_close(open_ok("bf16"));
}

static void faults_on_the_way(void)
{
    whole w;
    memset(&w, 0, sizeof w);
    w.path = "legacy";
    w.target = target_of(1, 2, 1, 0, "torch_dist");
    whole_way_fails(&w, 60);
}

int main(int argc, char **argv)
{
    static const ckr_item never[] = { CKR_ITEM_OK };
    t_begin(argc, argv);
    load_cases();
    RUN(what_is_read);
    RUN(there_and_back);
    RUN(load_back_rows);
    RUN(counts);
    RUN(buckets);
    RUN(expert_streams);
    RUN(padding);
    RUN(dtypes);
    RUN(vocabulary);
    RUN(asked_lr);
    RUN(streams);
    RUN(defect);
    RUN(trust);
    RUN(batches);
    RUN(options);
    RUN(refused);
    RUN(versions);
    RUN(no_version);
    RUN(other_source);
    RUN(release);
    RUN(damaged);
    RUN(contradictions);
    RUN(axes);
    RUN(places);
    RUN(directories);
    RUN(distributed);
    RUN(whole_iterations);
    RUN(last_part);
    RUN(apart);
    RUN(uneven_layers);
    RUN(faults_on_the_way);
    bad_all_seen(BAD_MEGATRON, never);
    memio_free(&disk);
    return t_end();
}
