/* GPTs under the names of other frameworks, as checkpoints of Megatron-LM at several topologies
   and in both of its formats, and of Nanotron: rows where its modules look for them, and after
   the way back every tensor of the source, with its LR. What cannot be had so is refused. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "t.h"
#include "ckpt.h"
#include "option.h"
#include "tree.h"

enum { V = 13, H = 8, L = 3, N = 4, KV = 2, D = 2, F = 12, S = 6 };

typedef struct row { const char *name; int64_t rows, columns; } row;
typedef struct kind {
    const char *name;
    bool gqa;
    row rows[16];              /* %d: of each layer                                          */
} kind;

static const kind kinds[] = {
    { "llama", true,
      { { "model.embed_tokens.weight", V, H },
        { "model.layers.%d.self_attn.q_proj.weight", N * D, H },
        { "model.layers.%d.self_attn.k_proj.weight", KV * D, H },
        { "model.layers.%d.self_attn.v_proj.weight", KV * D, H },
        { "model.layers.%d.self_attn.o_proj.weight", H, N * D },
        { "model.layers.%d.mlp.gate_proj.weight", F, H },
        { "model.layers.%d.mlp.up_proj.weight", F, H },
        { "model.layers.%d.mlp.down_proj.weight", H, F },
        { "model.layers.%d.input_layernorm.weight", H, 0 },
        { "model.layers.%d.post_attention_layernorm.weight", H, 0 },
        { "model.norm.weight", H, 0 }, { "lm_head.weight", V, H }, { NULL, 0, 0 } } },
    { "gpt2", false,
      { { "transformer.wte.weight", V, H }, { "transformer.wpe.weight", S, H },
        { "transformer.h.%d.ln_1.weight", H, 0 }, { "transformer.h.%d.ln_1.bias", H, 0 },
        { "transformer.h.%d.attn.c_attn.weight", H, 3 * H },
        { "transformer.h.%d.attn.c_attn.bias", 3 * H, 0 },
        { "transformer.h.%d.attn.c_proj.weight", H, H },
        { "transformer.h.%d.attn.c_proj.bias", H, 0 },
        { "transformer.h.%d.ln_2.weight", H, 0 }, { "transformer.h.%d.ln_2.bias", H, 0 },
        { "transformer.h.%d.mlp.c_fc.weight", H, F }, { "transformer.h.%d.mlp.c_fc.bias", F, 0 },
        { "transformer.h.%d.mlp.c_proj.weight", F, H },
        { "transformer.h.%d.mlp.c_proj.bias", H, 0 },
        { "transformer.ln_f.weight", H, 0 }, { "transformer.ln_f.bias", H, 0 } } },
    { "titan", true,
      { { "student.tok_embeddings.weight", V, H },
        { "student.layers.%d.attention.wq.weight", N * D, H },
        { "student.layers.%d.attention.wk.weight", KV * D, H },
        { "student.layers.%d.attention.wv.weight", KV * D, H },
        { "student.layers.%d.attention.wo.weight", H, N * D },
        { "student.layers.%d.feed_forward.w1.weight", F, H },
        { "student.layers.%d.feed_forward.w3.weight", F, H },
        { "student.layers.%d.feed_forward.w2.weight", H, F },
        { "student.layers.%d.attention_norm.weight", H, 0 },
        { "student.layers.%d.ffn_norm.weight", H, 0 }, { "student.norm.weight", H, 0 },
        { "student.output.weight", V, H }, { NULL, 0, 0 } } }
};

static char names[3][96][96];
static const char *decayed[96], *plain[96];

/* A torch file has the second's clock alone: it is a function of a script's. */
static const char *const curves[] = { "torch:CosineAnnealingLR,T_max=20,eta_min=0.05",
                                      "transformers:cosine,num_warmup_steps=2,"
                                      "num_training_steps=20" };
static const char *curve;      /* of the next run                                        */

/* A run of that kind in memory: each element is another number, moments and steps with it. */
static ckr_ckpt *run_of(const kind *k, ckr_dtype dtype)
{
    static float data[3][96][V * 3 * H];
    static uint16_t half[96][V * 3 * H];
    static const float step = 5;
    static const char *const slots[] = { "param", "exp_avg", "exp_avg_sq" };
    ckr_hyper hyper[] = { { "lr", 0.5 }, { "weight_decay", 0.1 }, { "eps", 1e-8 } };
    char(*name)[96] = names[k - kinds];
    ckr_open_desc d = CKR_ZERO;
    ckr_error e;
    ckr_ckpt *c = NULL;
    size_t n = 0, i, s, j, n_decayed = 0, n_plain = 0;
    int layer;
    d.env = &env;
    if (!CHECK_OK(ckr_ckpt_create(&d, &c, &e), &e)) exit(2);
    for (i = 0; i < 16 && k->rows[i].name; i++)
        for (layer = 0; layer < (strchr(k->rows[i].name, '%') ? L : 1); layer++, n++) {
            const row *r = &k->rows[i];
            const int64_t shape[2] = { r->rows, r->columns };
            const char *at = strchr(r->name, '%');
            const size_t numel = (size_t)(r->rows * (r->columns ? r->columns : 1));
            if (at) snprintf(name[n], 96, "%.*s%d%s", (int)(at - r->name), r->name, layer, at + 2);
            else snprintf(name[n], 96, "%s", r->name);
            for (s = 0; s < 3; s++)
                for (j = 0; j < numel; j++) data[s][n][j] = (float)(n * 1000 + j + 100000 * s);
            for (j = 0; j < numel; j++) half[n][j] = (uint16_t)(0x3f80 + n * 64 + j);
            for (s = 0; s < 3; s++)
                CHECK_OK(ckr_ckpt_put(c, name[n], slots[s], s ? CKR_DTYPE_F32 : dtype,
                                      r->columns ? 2 : 1, shape,
                                      s || dtype == CKR_DTYPE_F32 ? (void *)data[s][n] : half[n],
                                      &e), &e);
            CHECK_OK(ckr_ckpt_put(c, name[n], "step", CKR_DTYPE_F32, 0, NULL, &step, &e), &e);
            if (r->columns) decayed[n_decayed++] = name[n];
            else plain[n_plain++] = name[n];
        }
    CHECK_OK(ckr_ckpt_put_group(c, "0", decayed, n_decayed, hyper, 3, &e), &e);
    hyper[1].value = 0;
    CHECK_OK(ckr_ckpt_put_group(c, "1", plain, n_plain, hyper, 3, &e), &e);
    CHECK_OK(ckr_ckpt_put_schedule(c, curve, 5, &e), &e);
    return c;
}

/* The same curve, where a file does not tell it. */
#define CURVE "megatron:max_lr=0.5,lr_warmup_iters=2,lr_decay_iters=20,lr_decay_style=cosine," \
              "global_batch_size=8"

static ckr_target megatron(const char *variant, uint32_t tp, uint32_t pp, uint32_t dp, int32_t zero)
{
    static const ckr_setting batch = { NULL, "batch_size", "8" };
    ckr_target t = target_of(tp, pp, dp, stage_of(zero), variant);
    t.dialect = "megatron";
    t.sets = &batch;
    t.n_sets = 1;
    option_int(&t, "heads", N);
    return t;
}

/* Element (row, column) of a parameter. */
static double element(const ckr_ckpt *c, const char *name, int64_t at, int64_t column)
{
    const ckr_tensor *t = ckr_ckpt_tensor(c, name, "param");
    size_t n;
    double v = -1;
    uint8_t *bytes = t ? tensor_bytes(c, t, &n) : NULL;
    if (CHECK(t != NULL) && t) v = ((float *)(void *)bytes)[at * t->shape[1] + column];
    free(bytes);
    return v;
}

static void same_element(const ckr_ckpt *a, const char *x, int64_t ax, int64_t bx,
                         const ckr_ckpt *b, const char *y, int64_t ay, int64_t by)
{
    const double v = element(a, x, ax, bx), w = element(b, y, ay, by);
    t_check(v >= w && v <= w, __FILE__, __LINE__, "%s[%d] is %g, %s[%d] %g", x, (int)ax, v, y,
            (int)ay, w);
}

/* Fused rows: of each group of heads its queries, a key, a value; all gates, then what they
   gate. */
static void order(const ckr_ckpt *out, const ckr_ckpt *src)
{
    static const char qkv[] = "decoder.layers.1.self_attention.linear_qkv.weight",
                      at[] = "model.layers.1.self_attn.";
    const int64_t per = N / KV * D;
    int64_t g, i;
    char name[64];
    for (g = 0; g < KV; g++)
        for (i = 0; i < per + 2 * D; i++) {
            snprintf(name, sizeof name, "%s%c_proj.weight", at,
                     i < per ? 'q' : i < per + D ? 'k' : 'v');
            same_element(out, qkv, g * (per + 2 * D) + i, 3, src, name,
                         i < per ? g * per + i : g * D + (i - per) % D, 3);
        }
    for (i = 0; i < 2 * F; i++)
        same_element(out, "decoder.layers.2.mlp.linear_fc1.weight", i, 5, src,
                     i < F ? "model.layers.2.mlp.gate_proj.weight"
                           : "model.layers.2.mlp.up_proj.weight", i % F, 5);
}

/* Conv1D is turned; without groups each head has a key and a value of its own. */
static void turned(const ckr_ckpt *out, const ckr_ckpt *src)
{
    static const char to[] = "decoder.layers.1.self_attention.linear_qkv.weight",
                      from[] = "transformer.h.1.attn.c_attn.weight";
    int64_t h, i;
    for (h = 0; h < N; h++)
        for (i = 0; i < 3 * D; i++)
            same_element(out, to, h * 3 * D + i, 3, src, from, 3, i / D * H + h * D + i % D);
}

/* Groups as they were, to the order of their parameters, which an optimizer has by numbers; and the
   LR of the coming updates. */
static void same_groups(const ckr_ckpt *from, const ckr_ckpt *to)
{
    const ckr_state *was = ckr_ckpt_state(from), *now = ckr_ckpt_state(to);
    const ckr_schedule *a = ckr_ckpt_schedule(from, 0), *b = ckr_ckpt_schedule(to, 0);
    double x[40], y[40], v, w;
    uint64_t i, k;
    ckr_error e;
    CHECK_INT(now->n_groups, was->n_groups);
    for (i = 0; i < was->n_groups && now->n_groups == was->n_groups; i++) {
        const ckr_group *g = &was->groups[i], *h = &now->groups[i];
        CHECK_INT(h->n_params, g->n_params);
        for (k = 0; k < g->n_params && h->n_params == g->n_params; k++)
            CHECK_STR(h->params[k], g->params[k]);
        CHECK(ckr_node_f64(ckr_node_get(g->hyper, "weight_decay"), &v) &&
              ckr_node_f64(ckr_node_get(h->hyper, "weight_decay"), &w) && v >= w && v <= w);
        CHECK(!ckr_node_get(h->hyper, "wd_mult") && !ckr_node_get(h->hyper, "foreach"));
    }
    if (!CHECK(a && b)) return;
    CHECK_OK(ckr_schedule_values(a, CKR_COLUMN_LR, 6, 20, x, &env, &e), &e);
    CHECK_OK(ckr_schedule_values(b, CKR_COLUMN_LR, 6, 20, y, &env, &e), &e);
    for (i = 0; i < 40 && curve == curves[0]; i++)
        t_check(x[i] >= y[i] && x[i] <= y[i], __FILE__, __LINE__, "LR %d: %.17g, %.17g", (int)i,
                x[i], y[i]);
}

/* Every tensor of the source is in the file again, and the groups' LR. */
static void same_back(const char *path, const ckr_ckpt *src)
{
    const ckr_state *s = ckr_ckpt_state(src);
    ckr_ckpt *c = open_ok(path);
    double lr = 0, want[2];
    uint64_t i;
    ckr_error e;
    for (i = 0; c && i < s->n_tensors; i++) {
        const ckr_tensor *x = s->tensors[i], *y = ckr_ckpt_tensor(c, x->name, x->slot);
        if (t_check(y != NULL, __FILE__, __LINE__, "%s of %s is missing", x->slot, x->name) &&
            CHECK_INT(y->dtype, x->dtype))
            same_tensor(c, y, src, x, path);
    }
    if (c) CHECK_INT(ckr_ckpt_state(c)->n_tensors, s->n_tensors);
    if (c) same_groups(src, c);
    CHECK_OK(ckr_schedule_values(ckr_ckpt_schedule(src, 0), CKR_COLUMN_LR, 6, 1, want, &env, &e),
             &e);
    for (i = 0; c && i < ckr_ckpt_state(c)->n_groups; i++) {
        CHECK(ckr_node_f64(ckr_node_get(ckr_ckpt_state(c)->groups[i].hyper, "lr"), &lr));
        CHECK(lr >= want[0] && lr <= want[0]);
    }
    ckr_ckpt_close(c);
}

static const struct { const char *variant; uint32_t tp, pp, dp; int32_t zero; } ways[] = {
    { "torch", 1, 1, 1, 0 }, { "torch", 2, 3, 1, 0 }, { "torch", 2, 1, 2, 1 },
    { "torch_dist", 1, 1, 1, 0 }, { "torch_dist", 2, 3, 1, 0 }, { "torch_dist", 2, 1, 2, 1 }
};

static void there_and_back(void)
{
    uint8_t first[16], now[16], whole[16], again[16];
    size_t k, i;
    ckr_error e;
    for (k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (i = 0; i < sizeof ways / sizeof *ways; i++) {
            const ckr_target t = megatron(ways[i].variant, ways[i].tp, ways[i].pp, ways[i].dp,
                                          ways[i].zero);
            ckr_target back = target_of(0, 0, 0, 0, NULL);
            curve = curves[i % 2];
            ckr_ckpt *src = run_of(&kinds[k], CKR_DTYPE_F32), *out;
            back.dialect = "torch";
            if (written(run_of(&kinds[k], CKR_DTYPE_F32), kinds[k].name, "w/mg", &t)) {
                CHECK(is_sound("w/mg"));
                digest_of("w/mg", now);
                if (!i) memcpy(first, now, 16);
                CHECK(!memcmp(first, now, 16));
                out = open_ok("w/mg");
                CHECK_STR(ckr_ckpt_state(out)->dialect, "megatron");
                if (!strcmp(kinds[k].name, "llama")) order(out, src);
                if (!strcmp(kinds[k].name, "gpt2")) turned(out, src);
                if (written(out, "w/mg", "w/back.pt", &back)) {
                    same_back("w/back.pt", src);
                    CHECK_OK(ckr_ckpt_digest(src, NULL, whole, &e), &e);
                    digest_of("w/back.pt", again);
                    CHECK(!memcmp(whole, again, 16));
                }
            }
            ckr_ckpt_close(src);
            memio_remove(&disk, "w/mg");
            memio_remove(&disk, "w/back.pt");
        }
    curve = curves[1];
}

/* Nanotron's and llm.c's files become the run that they would be as a script's file at once. */
static void frameworks(void)
{
    static const struct { const char *path; int32_t zero; uint32_t without; } rows[] = {
        { "tests/data/nanotron/tp1_pp2_dp1_tied/ckpt", 0, 0 },
        { "tests/data/nanotron/tp2_pp1_dp2_zero1_bf16_master/ckpt", 1, 0 },
        { "tests/data/nanotron/qwen2_tp2/ckpt", 0, CKR_OPTIMIZER | CKR_GROUPS },
        { "tests/data/llmc/uneven/ckpt", 0, CKR_OPTIMIZER | CKR_GROUPS }
    };
    size_t i;
    uint64_t k, n;
    for (i = 0; i < sizeof rows / sizeof *rows; i++) {
        ckr_target t = target_of(0, 0, 0, stage_of(rows[i].zero), NULL), back = t;
        ckr_ckpt *at_once, *c;
        t.dialect = "megatron";
        back.dialect = "torch";
        t.without = back.without = rows[i].without | (rows[i].without ? CKR_SCHEDULE : 0);
        memio_add(&disk, "in/run", true);
        memio_load(&disk, rows[i].path, "in/run");
        if (written(open_ok("in/run"), rows[i].path, "w/mg", &t) && CHECK(is_sound("w/mg"))) {
            back.without |= CKR_SCHEDULE;
            written(open_ok("in/run"), rows[i].path, "w/once.pt", &back);
            written(open_ok("w/mg"), "w/mg", "w/back.pt", &back);
            at_once = open_ok("w/once.pt");
            c = open_ok("w/back.pt");
            for (k = n = 0; c && at_once && k < ckr_ckpt_state(at_once)->n_tensors; k++) {
                const ckr_tensor *x = ckr_ckpt_state(at_once)->tensors[k],
                                 *y = ckr_ckpt_tensor(c, x->name, x->slot);
                n += y != NULL;
                if (t_check(y != NULL || rows[i].without, __FILE__, __LINE__, "%s: no %s of %s",
                            rows[i].path, x->slot, x->name) && y && strcmp(x->slot, "step") != 0)
                    same_tensor(c, y, at_once, x, rows[i].path);
            }
            CHECK(n > 10);
            ckr_ckpt_close(at_once);
            ckr_ckpt_close(c);
        }
        memio_remove(&disk, "in/run");
        memio_remove(&disk, "w/mg");
        memio_remove(&disk, "w/once.pt");
        memio_remove(&disk, "w/back.pt");
    }
}

/* What is trained in 16 bits has masters: the wide ones that there are, or made of parameters. */
static void masters(void)
{
    ckr_target t = megatron("torch", 2, 1, 1, 0);
    ckr_ckpt *src = run_of(kinds, CKR_DTYPE_F32), *out = NULL;
    static const char name[] = "decoder.layers.0.self_attention.linear_proj.weight";
    t.dtype = CKR_DTYPE_BF16;
    if (written(run_of(kinds, CKR_DTYPE_F32), "fp32", "w/mg", &t)) out = open_ok("w/mg");
    if (out) {
        const ckr_tensor *x = ckr_ckpt_tensor(out, name, "master");
        CHECK_INT(ckr_ckpt_tensor(out, name, "param")->dtype, CKR_DTYPE_BF16);
        CHECK(is_sound("w/mg"));
        if (CHECK(x != NULL))
            same_tensor(out, x, src, ckr_ckpt_tensor(src, "model.layers.0.self_attn.o_proj.weight",
                                                     "param"), "master");
    }
    ckr_ckpt_close(out);
    ckr_ckpt_close(src);
    memio_remove(&disk, "w/mg");
    t.dtype = CKR_DTYPE_NONE;
    if (written(run_of(kinds, CKR_DTYPE_BF16), "bf16", "w/mg", &t)) {
        out = open_ok("w/mg");
        CHECK_INT(ckr_ckpt_tensor(out, name, "param")->dtype, CKR_DTYPE_BF16);
        CHECK_INT(ckr_ckpt_tensor(out, name, "master")->dtype, CKR_DTYPE_F32);
        CHECK(is_sound("w/mg"));
        ckr_ckpt_close(out);
    }
    memio_remove(&disk, "w/mg");
}

/* What the coming run must be started with. */
static const ckr_node *setting(const ckr_plan *p, const char *key)
{
    const ckr_plan_facts *f = ckr_plan_info(p);
    uint64_t i;
    for (i = 0; i < f->n_settings; i++)
        if (!strcmp(f->settings[i].key, key)) return f->settings[i].value;
    return NULL;
}

static void settings(void)
{
    const ckr_target t = megatron("torch_dist", 1, 1, 1, 0);
    static const struct { size_t kind; const char *key; int64_t number; } rows[] = {
        { 0, "--num-layers", L }, { 0, "--hidden-size", H }, { 0, "--num-attention-heads", N },
        { 0, "--num-query-groups", KV }, { 0, "--ffn-hidden-size", F }, { 0, "--swiglu", -1 },
        { 0, "--normalization", -1 }, { 0, "--untie-embeddings-and-output-weights", -1 },
        { 0, "--disable-bias-linear", -1 }, { 0, "--lr-decay-iters", 20 },
        { 0, "--lr-warmup-iters", 2 }, { 0, "--global-batch-size", 8 }, { 0, "--lr", -1 },
        { 1, "--max-position-embeddings", S }, { 2, "--rotary-interleaved", -1 }
    };
    size_t i;
    for (i = 0; i < sizeof rows / sizeof *rows; i++) {
        ckr_ckpt *c = run_of(&kinds[rows[i].kind], CKR_DTYPE_F32);
        ckr_plan *p = NULL;
        ckr_error e;
        int64_t v = 0;
        if (CHECK_OK(ckr_plan_create(c, &t, 0, &p, &e), &e)) {
            const ckr_node *n = setting(p, rows[i].key);
            t_check(n != NULL, __FILE__, __LINE__, "%s is not told", rows[i].key);
            if (rows[i].number >= 0 && CHECK(ckr_node_i64(n, &v))) CHECK_INT(v, rows[i].number);
            if (rows[i].kind == 1) CHECK(!setting(p, "--swiglu") && !setting(p, "--normalization"));
        }
        ckr_plan_free(p);
        ckr_ckpt_close(c);
    }
}

/* Is it refused, with this subject? `c` is closed. */
static bool refused(ckr_ckpt *c, const ckr_target *t, const char *subject)
{
    ckr_plan *p = NULL;
    ckr_error e;
    bool yes = false;
    uint64_t i;
    if (CHECK_OK(ckr_plan_create(c, t, 0, &p, &e), &e)) {
        const ckr_plan_facts *f = ckr_plan_info(p);
        for (i = 0; i < f->n_notes; i++)
            yes = yes || (f->notes[i].severity == CKR_ERROR && f->notes[i].subject &&
                          !strcmp(f->notes[i].subject, subject));
        CHECK_INT(f->verdict, CKR_VERDICT_REFUSED);
    }
    ckr_plan_free(p);
    ckr_ckpt_close(c);
    return yes;
}

static void refusals(void)
{
    static const float one[H * H] = { 0 };
    static const int64_t shape[] = { 4, H }, square[] = { H, H };
    ckr_target t = megatron("torch", 1, 1, 1, 0), none = t;
    ckr_ckpt *c;
    ckr_error e;
    none.n_options = 0;
    CHECK(refused(run_of(kinds, CKR_DTYPE_F32), &none, "heads"));       /* no shape shows them */
    option_int(&none, "heads", 3);
    CHECK(refused(run_of(kinds, CKR_DTYPE_F32), &none, "heads"));
    option_int(&t, "kv_heads", 4);
    CHECK(refused(run_of(kinds, CKR_DTYPE_F32), &t, "heads"));
    t = megatron("torch", 1, 1, 1, 0);
    c = run_of(kinds, CKR_DTYPE_F32);
    CHECK_OK(ckr_ckpt_put(c, "model.layers.0.mlp.experts.0.weight", "param", CKR_DTYPE_F32, 2,
                          shape, one, &e), &e);
    CHECK(refused(c, &t, "model.layers.0.mlp.experts.0.weight"));
    c = run_of(kinds, CKR_DTYPE_F32);
    CHECK_OK(ckr_ckpt_put(c, "model.layers.0.self_attn.q_proj.weight", "momentum_buffer",
                          CKR_DTYPE_F32, 2, square, one, &e), &e);
    CHECK(refused(c, &t, "momentum_buffer of model.layers.0.self_attn.q_proj.weight"));
    memio_add(&disk, "in/sgd", true);
    memio_load(&disk, "tests/data/nanotron/sgd_tp2/ckpt", "in/sgd");
    none = target_of(1, 1, 1, 0, NULL);
    none.dialect = "megatron";
    CHECK(refused(open_ok("in/sgd"), &none, "exp_avg"));
    t.n_sets = 0;              /* Megatron's scheduler counts samples                        */
    CHECK(refused(run_of(kinds, CKR_DTYPE_F32), &t, "batch"));
}

/* Sizes from config.json, and what it says of the model that its names do not. */
static void config(void)
{
    static const struct { const char *text, *subject; } rows[] = {
        { "{\"model_type\": \"llama\", \"hidden_size\": 8, \"num_attention_heads\": 4, "
          "\"rope_theta\": 500.0, \"hidden_act\": \"silu\"}", NULL },
        { "{\"model_type\": \"gemma\", \"hidden_size\": 8, \"num_attention_heads\": 4}", "gemma" },
        { "{\"model_type\": \"llama\", \"hidden_size\": 8, \"num_attention_heads\": 4, "
          "\"hidden_act\": \"relu\"}", "relu" },
        { "{\"model_type\": \"llama\", \"hidden_size\": 8, \"num_attention_heads\": 4, "
          "\"rope_parameters\": {\"rope_type\": \"yarn\"}}", "rope_parameters" },
        { "{\"model_type\": \"llama\", \"hidden_size\": 9, \"num_attention_heads\": 4}", "heads" }
    };
    ckr_target t = megatron("torch", 1, 1, 1, 0), file = target_of(0, 0, 0, 0, NULL);
    size_t i;
    t.n_options = 0;
    t.schedule = CURVE;
    file.dialect = "torch";
    if (!written(run_of(kinds, CKR_DTYPE_F32), "llama", "in/llama.pt", &file)) return;
    for (i = 0; i < sizeof rows / sizeof *rows; i++) {
        memio_put(&disk, "in/config.json", rows[i].text, strlen(rows[i].text));
        if (rows[i].subject) CHECK(refused(open_ok("in/llama.pt"), &t, rows[i].subject));
        else CHECK(written(open_ok("in/llama.pt"), "in/llama.pt", "w/mg", &t));
        memio_remove(&disk, "w/mg");
        memio_remove(&disk, "in/config.json");
    }
}

/* What the side file says of the names may be anything: it is taken whole, or not at all. */
static void side(void)
{
    static const char *const rows[][2] = {
        { "transformers", "transformerz" }, { "transformers", "llm.c       " },
        { "\"which\"", "\"witch\"" }, { "\"outer\"", "\"utter\"" }
    };
    ckr_target t = megatron("torch", 1, 1, 1, 0), back = target_of(0, 0, 0, 0, NULL);
    size_t i;
    back.dialect = "torch";
    back.without = CKR_SCHEDULE;
    for (i = 0; i < sizeof rows / sizeof *rows; i++) {
        memio_file *f;
        char *at, text[65536];
        ckr_ckpt *c;
        if (!written(run_of(kinds, CKR_DTYPE_F32), "llama", "w/mg", &t)) return;
        f = memio_find(&disk, "w/mg/ckptresume.json");
        if (!CHECK(f && f->size < sizeof text)) return;
        memcpy(text, f->data, f->size);
        text[f->size] = 0;
        at = strstr(text, "\"gpt\"");
        at = at ? strstr(at, rows[i][0]) : NULL;
        if (CHECK(at != NULL)) memcpy(at, rows[i][1], strlen(rows[i][1]));
        memio_put(&disk, "w/mg/ckptresume.json", text, strlen(text));
        if (written(open_ok("w/mg"), "w/mg", "w/back.pt", &back)) {
            c = open_ok("w/back.pt");
            CHECK(c && ckr_ckpt_tensor(c, "decoder.final_layernorm.weight", "param") != NULL);
            ckr_ckpt_close(c);
        }
        memio_remove(&disk, "w/mg");
        memio_remove(&disk, "w/back.pt");
    }
}

static void faults(void)
{
    whole w = CKR_ZERO;
    w.path = "in/llama.pt";
    w.target = megatron("torch", 2, 1, 1, 0);
    w.target.schedule = CURVE;
    whole_way_fails(&w, 60);
    w.target = megatron("torch_dist", 1, 1, 2, 1);
    w.target.schedule = CURVE;
    whole_way_fails(&w, 30);
    if (!written(open_ok("in/llama.pt"), "in/llama.pt", "in/mg", &w.target)) return;
    w.path = "in/mg";
    w.target = target_of(0, 0, 0, 0, NULL);
    w.target.dialect = "torch";
    w.target.without = CKR_SCHEDULE;
    whole_way_fails(&w, 60);
}

/* The same as checkpoints of Nanotron. */
static ckr_target nanotron(uint32_t tp, uint32_t pp, uint32_t dp, int32_t zero)
{
    ckr_target t = megatron(NULL, tp, pp, dp, zero);
    t.dialect = "nanotron";
    return t;
}

/* Queries, keys and values of all heads, one behind the other; the gate before what it gates. */
static void stacked(const ckr_ckpt *out, const ckr_ckpt *src)
{
    static const char qkv[] = "model.decoder.1.pp_block.attn.qkv_proj.weight";
    static const struct { const char *name; int64_t rows; } parts[] = {
        { "model.layers.1.self_attn.q_proj.weight", N * D },
        { "model.layers.1.self_attn.k_proj.weight", KV * D },
        { "model.layers.1.self_attn.v_proj.weight", KV * D }
    };
    int64_t i, at = 0;
    size_t k;
    for (k = 0; k < 3; k++)
        for (i = 0; i < parts[k].rows; i++)
            same_element(out, qkv, at++, 3, src, parts[k].name, i, 3);
    for (i = 0; i < 2 * F; i++)
        same_element(out, "model.decoder.2.pp_block.mlp.gate_up_proj.weight", i, 5, src,
                     i < F ? "model.layers.2.mlp.gate_proj.weight"
                           : "model.layers.2.mlp.up_proj.weight", i % F, 5);
}

static void nanotron_and_back(void)
{
    static const struct { uint32_t tp, pp, dp; int32_t zero; } sizes[] = {
        { 1, 1, 1, 0 }, { 2, 1, 1, 0 }, { 1, 3, 2, 0 }, { 2, 2, 2, 1 }, { 1, 2, 4, 1 }
    };
    size_t k, i;
    for (k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (i = 0; i < sizeof sizes / sizeof *sizes && strcmp(kinds[k].name, "gpt2") != 0; i++) {
            const ckr_target t = nanotron(sizes[i].tp, sizes[i].pp, sizes[i].dp, sizes[i].zero);
            ckr_target back = target_of(0, 0, 0, 0, NULL), again = nanotron(1, 1, 1, 0);
            curve = curves[i % 2];
            ckr_ckpt *src = run_of(&kinds[k], CKR_DTYPE_F32), *out;
            back.dialect = "torch";
            again.n_options = 0;
            if (written(run_of(&kinds[k], CKR_DTYPE_F32), kinds[k].name, "w/nt", &t)) {
                CHECK(is_sound("w/nt"));
                out = open_ok("w/nt");
                CHECK_STR(ckr_ckpt_state(out)->dialect, "nanotron");
                CHECK_INT(ckr_ckpt_state(out)->vocab, V);
                CHECK_INT(ckr_ckpt_state(out)->padded_vocab, V + V % sizes[i].tp);
                CHECK_INT(ckr_ckpt_state(out)->batch, 8);
                CHECK_INT(ckr_ckpt_state(out)->progress.samples, 5 * 8);
                if (!k) stacked(out, src);
                if (written(out, "w/nt", "w/nt2", &again) &&       /* as one of its own          */
                    written(open_ok("w/nt2"), "w/nt2", "w/back.pt", &back))
                    same_back("w/back.pt", src);
            }
            ckr_ckpt_close(src);
            memio_remove(&disk, "w/nt");
            memio_remove(&disk, "w/nt2");
            memio_remove(&disk, "w/back.pt");
        }
    curve = curves[1];
}

static void nanotron_masters(void)
{
    static const char name[] = "model.decoder.0.pp_block.attn.o_proj.weight";
    ckr_target t = nanotron(2, 1, 1, 0);
    ckr_ckpt *src = run_of(kinds, CKR_DTYPE_F32), *out;
    t.dtype = CKR_DTYPE_BF16;
    if (written(run_of(kinds, CKR_DTYPE_F32), "fp32", "w/nt", &t)) {
        const ckr_tensor *x;
        out = open_ok("w/nt");
        x = ckr_ckpt_tensor(out, name, "master");
        CHECK_INT(ckr_ckpt_tensor(out, name, "param")->dtype, CKR_DTYPE_BF16);
        CHECK(is_sound("w/nt"));
        if (CHECK(x != NULL))
            same_tensor(out, x, src, ckr_ckpt_tensor(src, "model.layers.0.self_attn.o_proj.weight",
                                                     "param"), "master");
        ckr_ckpt_close(out);
    }
    ckr_ckpt_close(src);
    memio_remove(&disk, "w/nt");
    t.dtype = CKR_DTYPE_NONE;                  /* trained in bf16 alone: no masters          */
    if (written(run_of(kinds, CKR_DTYPE_BF16), "bf16", "w/nt", &t)) {
        out = open_ok("w/nt");
        CHECK_INT(ckr_ckpt_tensor(out, name, "param")->dtype, CKR_DTYPE_BF16);
        CHECK(!ckr_ckpt_tensor(out, name, "master"));
        CHECK(is_sound("w/nt"));
        ckr_ckpt_close(out);
    }
    memio_remove(&disk, "w/nt");
}

/* Very many layers as torch_dist: what a chunk costs in memory when it is planned; of slices that
   were not looked at when it was opened, one that is another fails when it is read. */
static void many(void)
{
    enum { LAYERS = 760, CHUNKS = 22 * LAYERS };
    static char name[9 * LAYERS][64];
    static float data[V * 3 * H];
    const row *r = kinds[0].rows;
    ckr_target t = megatron("torch_dist", 4, 1, 1, 0);
    ckr_open_desc d = CKR_ZERO;
    ckr_env one = env;                         /* thread: its .metadata has several windows  */
    ckr_ckpt *c = NULL;
    ckr_plan *p = NULL;
    ckr_error e;
    uint8_t total[16], half[16];
    uint64_t assumed = 0;
    const ckr_piece *q = NULL;
    size_t n = 0;
    one.parallel.n_threads = 1;
    d.env = &one;
    t.without = CKR_OPTIMIZER | CKR_GROUPS | CKR_SCHEDULE | CKR_RNG;
    if (!CHECK_OK(ckr_ckpt_create(&d, &c, &e), &e)) return;
    for (; r->name; r++)
        for (int layer = 0; layer < (strchr(r->name, '%') ? LAYERS : 1); layer++) {
            const int64_t shape[2] = { r->rows, r->columns };
            const char *at = strchr(r->name, '%'), *put = r->name;
            if (at) snprintf(name[n], 64, "%.*s%d%s", (int)(at - put), put, layer, at + 2);
            if (at) put = name[n++];
            CHECK_OK(ckr_ckpt_put(c, put, "param", CKR_DTYPE_F32, r->columns ? 2 : 1, shape, data,
                                  &e), &e);
        }
    if (CHECK_OK(ckr_plan_create(c, &t, 0, &p, &e), &e))
        CHECK_OK(ckr_plan_write(p, "w/many", NULL, &e), &e);
    ckr_plan_free(p);
    ckr_ckpt_close(c);
    if (!CHECK_OK(ckr_ckpt_open("w/many", &d, &c, &e), &e)) return;
    for (uint64_t i = 0; i < c->state.n_tensors; i++)
        for (uint32_t k = 0; k < c->state.tensors[i]->n_pieces; k++) {
            const ckr_piece *x = &c->state.tensors[i]->pieces[k];
            assumed += x->_form != 0;
            if (x->_form) q = x;
        }
    CHECK(assumed > CHUNKS * 9 / 10 && q);
    t.topology.tp = 2;
    if (CHECK_OK(ckr_plan_create(c, &t, 0, &p, &e), &e)) {
        const int used = (int)(ckr__arena_used(&p->ctx) * 2 / CHUNKS);
        t_check(used < 500, __FILE__, __LINE__, "%d bytes a chunk", used);
        CHECK_OK(ckr_plan_write(p, "w/half", NULL, &e), &e);
    }
    ckr_plan_free(p);
    CHECK_OK(ckr_ckpt_digest(c, NULL, total, &e), &e);
    digest_of("w/half", half);
    CHECK(!memcmp(total, half, 16));
    if (q) {                                   /* other strides, where its pickle is             */
        const ckr__dcp_form *form = c->ctx.forms[q->_form - 1];
        const memio_file *f = memio_find(&disk, c->ctx.files[q->file].path);
        uint8_t *at = f ? f->data + q->offset - form->head : NULL;
        for (uint64_t i = 0; at && i < form->head; i++) at[i] ^= at[i] == 'K';
        CHECK_INT(ckr_ckpt_digest(c, NULL, total, &e), CKR_E_UNSUPPORTED);
    }
    ckr_ckpt_close(c);
    memio_remove(&disk, "w/many");
    memio_remove(&disk, "w/half");
}

/* What its configuration must say, and what Nanotron's Llama cannot be. */
static void nanotron_settings(void)
{
    static const struct { size_t kind; const char *key, *value; } rows[] = {
        { 0, "model.model_config.num_hidden_layers", "3" },
        { 0, "model.model_config.num_key_value_heads", "2" },
        { 0, "model.model_config.vocab_size", "14" },
        { 0, "model.model_config.rope_interleaved", "false" },
        { 2, "model.model_config.rope_interleaved", "true" },
        { 0, "model.model_config.tie_word_embeddings", "false" },
        { 0, "model.dtype", "\"float32\"" },
        { 0, "parallelism.tp", "2" }, { 0, "optimizer.zero_stage", "1" },
        { 0, "optimizer.learning_rate_scheduler.lr_warmup_steps", "2" },
        { 0, "optimizer.learning_rate_scheduler.lr_decay_steps", "18" },
        { 0, "optimizer.learning_rate_scheduler.lr_decay_style", "\"cosine\"" },
        { 0, "tokens.train_steps", "20" }, { 0, "tokens.micro_batch_size", "4" }
    };
    static const float one[H * H] = { 0 };
    static const int64_t square[] = { H, H };
    ckr_target t = nanotron(2, 1, 2, 1), left = t;
    ckr_ckpt *c;
    ckr_error e;
    size_t i;
    for (i = 0; i < sizeof rows / sizeof *rows; i++) {
        ckr_plan *p = NULL;
        char text[32] = "";
        c = run_of(&kinds[rows[i].kind], CKR_DTYPE_F32);
        if (CHECK_OK(ckr_plan_create(c, &t, 0, &p, &e), &e)) {
            const ckr_node *n = setting(p, rows[i].key);
            int64_t v;
            if (ckr_node_str(n)) snprintf(text, sizeof text, "\"%s\"", ckr_node_str(n));
            else if (n && n->kind == CKR_NODE_BOOL)
                snprintf(text, sizeof text, "%s", n->u.b ? "true" : "false");
            else if (ckr_node_i64(n, &v)) snprintf(text, sizeof text, "%d", (int)v);
            t_check(!strcmp(text, rows[i].value), __FILE__, __LINE__, "%s: %s, not %s", rows[i].key,
                    text, rows[i].value);
        }
        ckr_plan_free(p);
        ckr_ckpt_close(c);
    }
    CHECK(refused(run_of(&kinds[1], CKR_DTYPE_F32), &t, "model"));      /* GPT-2             */
    c = run_of(kinds, CKR_DTYPE_F32);
    CHECK_OK(ckr_ckpt_put(c, "model.layers.0.self_attn.q_proj.weight", "momentum_buffer",
                          CKR_DTYPE_F32, 2, square, one, &e), &e);
    CHECK(refused(c, &t, "momentum_buffer of model.layers.0.self_attn.q_proj.weight"));
    left.without = CKR_OPTIMIZER | CKR_GROUPS | CKR_SCHEDULE;  /* the weights alone          */
    if (written(run_of(kinds, CKR_DTYPE_F32), "llama", "w/nt", &left)) {
        c = open_ok("w/nt");
        CHECK_INT(ckr_ckpt_state(c)->n_groups, 0);
        CHECK_INT(ckr_ckpt_state(c)->n_tensors, 3 + 6 * L);
        ckr_ckpt_close(c);
    }
    memio_remove(&disk, "w/nt");
    t.n_options = 0;
    CHECK(refused(run_of(kinds, CKR_DTYPE_F32), &t, "heads"));
    t = nanotron(4, 1, 1, 0);                  /* a key's head cannot be cut                 */
    CHECK(refused(run_of(kinds, CKR_DTYPE_F32), &t,
                  "model.decoder.0.pp_block.attn.qkv_proj.weight"));
}

static void nanotron_faults(void)
{
    whole w = CKR_ZERO;
    w.path = "in/llama.pt";
    w.target = nanotron(2, 2, 2, 1);
    w.target.schedule = "transformers:cosine,num_warmup_steps=2,num_training_steps=20";
    whole_way_fails(&w, 60);
}

int main(int argc, char **argv)
{
    curve = curves[1];
    t_begin(argc, argv);
    disk_begin();
    RUN(there_and_back);
    RUN(frameworks);
    RUN(masters);
    RUN(settings);
    RUN(refusals);
    RUN(many);
    RUN(config);
    RUN(side);
    RUN(faults);
    RUN(nanotron_and_back);
    RUN(nanotron_masters);
    RUN(nanotron_settings);
    RUN(nanotron_faults);
    memio_free(&disk);
    return t_end();
}
