/* Real checkpoints of Megatron-LM 0.16.1 from tests/data, legacy with the distributed optimizer and
   torch_dist as Megatron itself wrote it wrong: every tensor against the live processes; all
   topologies, formats and optimizer kinds and back; the LR that was asked for, in groups, scheduler
   and arguments; repair, to the element; refusals, damage, faults. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "t.h"
#include "ckpt.h"
#include "tree.h"
#include "bad.h"

#define DATA "tests/data/megatron"
#define EMBEDDING "embedding.word_embeddings.weight"

static void load_cases(void)
{
    memset(&env, 0, sizeof env);
    env.io = memio_io(&disk);
    memio_add(&disk, "legacy", true);
    memio_add(&disk, "bug", true);
    memio_add(&disk, "w", true);
    memio_load(&disk, DATA "/legacy_tp2_dp2_distopt/ckpt", "legacy");
    memio_load(&disk, DATA "/tdist_tp2_dp2_fr_buckets_bug/ckpt", "bug");
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

/* Where rows of padding are dropped they are counted; where there is room they stay. */
static void padding(void)
{
    ckr_ckpt *c = open_ok("legacy");
    ckr_target t = target_of(1, 1, 2, 1, NULL);
    ckr_plan *p = c ? plan_of(c, &t) : NULL;
    if (p) CHECK(note_on(ckr_plan_info(p), "CKR_PADDING_LOST", NULL) == NULL);     /* 64 rows */
    ckr_plan_free(p);
    t = target_of(4, 1, 1, 1, NULL);
    t.vocab = 40;              /* a multiple of 8 * 4 above it is 64, as it was          */
    p = c ? plan_of(c, &t) : NULL;
    if (p) CHECK(note_on(ckr_plan_info(p), "CKR_PADDING_LOST", NULL) == NULL);
    ckr_plan_free(p);
    t = target_of(1, 1, 1, 1, NULL);
    t.vocab = 40;
    p = c ? plan_of(c, &t) : NULL;
    if (p && CHECK(note_on(ckr_plan_info(p), "CKR_PADDING_LOST", NULL) != NULL)) {
        CHECK_STR(note_on(ckr_plan_info(p), "CKR_PADDING_LOST", NULL)->old_value, "64");
        CHECK_STR(note_on(ckr_plan_info(p), "CKR_PADDING_LOST", NULL)->new_value, "40");
    }
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

/* What --override-opt_param-scheduler does not do: the LR that was asked for is in the groups'
   bounds, the scheduler and the arguments alike, and the options are named. */
static void asked_lr(void)
{
    static const ckr_setting sets[] = { { NULL, "lr", "1e-3" }, { NULL, "decay_steps", "32" } };
    ckr_target t = target_of(1, 1, 1, 1, NULL);
    ckr_ckpt *c = open_ok("legacy");
    ckr_plan *p;
    const ckr_note *flags;
    double want[2], have[2], v = 0;
    ckr_error e;
    t.sets = sets;
    t.n_sets = 2;
    p = c ? plan_of(c, &t) : NULL;
    if (!p) return;
    flags = note_on(ckr_plan_info(p), "CKR_MEGATRON_FLAGS", NULL);
    if (CHECK(flags && flags->new_value))
        CHECK(strstr(flags->new_value, "--lr 0.001 --min-lr 0.0003 --lr-warmup-iters 3 "
                                       "--lr-decay-iters 32 --lr-decay-style cosine") != NULL);
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
    CHECK(ckr_node_f64(ckr_node_get(((const ckr__mg *)ckr_ckpt_state(c)->dialect_data)->args, "lr"),
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

static void refused(void)
{
    static const ckr_setting sets[] = { { NULL, "lr", "1e-3" } };
    ckr_target t = target_of(2, 3, 2, 1, NULL);
    refuse("legacy", &t, CKR_ITEM_MEGATRON_STAGES);
    t = target_of(2, 1, 2, 1, NULL);
    t.vpp = 2;
    refuse("legacy", &t, CKR_ITEM_MEGATRON_STAGES);
    t = target_of(2, 2, 1, 1, NULL);
    t.vpp = 2;                 /* two layers on four chunks                              */
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
    t.to_version = "0.14.0";
    p = c ? plan_of(c, &t) : NULL;
    if (p) CHECK(note_on(ckr_plan_info(p), "CKR_E_MEGATRON_VERSION", NULL) != NULL);
    ckr_plan_free(p);
    ckr_ckpt_close(c);
    t.variant = "torch";
    if (!convert("legacy", "w/old", &t)) return;
    c = open_ok("w/old");
    if (!c) return;
    args = ((const ckr__mg *)ckr_ckpt_state(c)->dialect_data)->args;
    v = ckr_node_get(args, "exit_signal");     /* an enum, which weights_only refuses       */
    CHECK(v && v->kind == CKR_NODE_INT && v->u.i == 15);
    ckr_ckpt_close(c);
    memio_remove(&disk, "w/old");
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

#define RANK "legacy/iter_0000006/mp_rank_01/model_optim_rng.pt"
#define FLAT "legacy/iter_0000006/mp_rank_00/distrib_optim.pt"
#define FIRST "legacy/iter_0000006/mp_rank_00/model_optim_rng.pt"

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

static void broken_by(const char *file, const char *key, int nth, size_t at, uint8_t value,
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
static size_t then(const char *file, const char *key, const char *bytes, size_t n)
{
    const uint8_t *p = behind(file, key, 0);
    size_t i;
    for (i = 0; i < 400; i++)
        if (!memcmp(p + i, bytes, n)) return i;
    t_check(false, __FILE__, __LINE__, "%s: nothing behind %s", file, key);
    exit(2);
}

static void damaged(void)
{
    uint8_t *other;
    broken_by(RANK, "iteration", 1, 1, 7, CKR_ITEM_MEGATRON_MIXED);
    broken_by(RANK, "num_layers", 0, 1, 3, CKR_ITEM_MEGATRON_MIXED);   /* the ranks disagree  */
    other = behind(RANK, "num_layers", 0) + 1;
    *other = 3;
    broken_by(FIRST, "num_layers", 0, 1, 3, CKR_ITEM_MEGATRON_ARGS);   /* tensors and they do */
    *other = 2;
    other = behind(RANK, "hidden_size", 0) + 1;
    *other = 23;
    broken_by(FIRST, "hidden_size", 0, 1, 23, CKR_ITEM_MEGATRON_ARGS);
    *other = 24;
    broken_by(FIRST, "args", 0, (size_t)-6, 'b', CKR_ITEM_MEGATRON_FILE);
    broken_by(FIRST, "checkpoint_version", 0, 1, 0x3f, CKR_ITEM_MEGATRON_UNSUPPORTED);
    broken_by(RANK, EMBEDDING, 0, then(RANK, EMBEDDING, "K K\x18\x86", 5) + 1, 31,
              CKR_ITEM_MEGATRON_SHAPE);
    broken_by(FIRST, "wd_mult", 0, (size_t)-9, 'x', CKR_ITEM_MEGATRON_OPTIMIZER);
    broken_by(FLAT, "param", 0, then(FLAT, "param", "M\xc0\x13\x85", 4) + 1, 0xbf,
              CKR_ITEM_MEGATRON_BUCKETS);
}

static void moved(const char *from, const char *to)
{
    const memio_file *f = memio_find(&disk, from);
    if (CHECK(f != NULL)) memio_put(&disk, to, f->data, (size_t)f->size);
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

/* Files that are not there, or too many; a tracker that points nowhere. */
static void directories(void)
{
    ckr_ckpt *c;
    moved(FIRST, "w/x/iter_0000006/mp_rank_00/model_optim_rng.pt");
    moved(FLAT, "w/x/iter_0000006/mp_rank_00/distrib_optim.pt");
    opens_as("w/x", CKR_ITEM_MEGATRON_MISSING);                  /* a rank's directory          */
    moved(RANK, "w/x/iter_0000006/mp_rank_01/model_optim_rng.pt");
    opens_as("w/x", CKR_ITEM_MEGATRON_MISSING);                  /* a rank's distrib_optim.pt   */
    moved("legacy/iter_0000006/mp_rank_01/distrib_optim.pt",
          "w/x/iter_0000006/mp_rank_01/distrib_optim.pt");
    c = open_ok("w/x");                                          /* without a tracker file      */
    if (c) CHECK_STR(ckr_ckpt_path(c), "w/x/iter_0000006");
    ckr_ckpt_close(c);
    moved(RANK, "w/x/iter_0000006/mp_rank_02/model_optim_rng.pt");
    opens_as("w/x", CKR_ITEM_MEGATRON_FOREIGN);
    memio_remove(&disk, "w/x/iter_0000006/mp_rank_02");
    memio_put(&disk, "w/x/latest_checkpointed_iteration.txt", "7", 1);
    opens_as("w/x", CKR_ITEM_MEGATRON_TRACKER);
    memio_put(&disk, "w/x/latest_checkpointed_iteration.txt", "six", 3);
    opens_as("w/x", CKR_ITEM_MEGATRON_TRACKER);
    memio_put(&disk, "w/x/latest_checkpointed_iteration.txt", "release", 7);
    opens_as("w/x", CKR_ITEM_MEGATRON_TRACKER);
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
    opens_as("w/y", CKR_ITEM_MEGATRON_MISSING);
    copy_dist("common.pt");
    opens_as("w/y", CKR_ITEM_MEGATRON_MISSING);
    copy_dist("__2_0.distcp");
    opens_as("w/y", CKR_ITEM_DCP_MISSING);
    copy_dist("");
    memio_put(&disk, "w/y/iter_0000006/metadata.json", zarr, sizeof zarr - 1);
    CHECK_INT(open_as("w/y", &c, &e), CKR_E_UNSUPPORTED);
    CHECK_INT(e.item, CKR_ITEM_MEGATRON_UNSUPPORTED);
    copy_dist("");
    memio_put(&disk, "w/y/latest_checkpointed_iteration.txt", "5", 1);
    opens_as("w/y", CKR_ITEM_MEGATRON_TRACKER);
    memio_remove(&disk, "w/y");
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
    RUN(padding);
    RUN(asked_lr);
    RUN(streams);
    RUN(defect);
    RUN(refused);
    RUN(versions);
    RUN(other_source);
    RUN(release);
    RUN(damaged);
    RUN(directories);
    RUN(distributed);
    RUN(faults_on_the_way);
    bad_all_seen(BAD_MEGATRON, never);
    memio_free(&disk);
    return t_end();
}
