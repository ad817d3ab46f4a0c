/* Generators: draws of torch 2.15, Python and numpy from seeds (tests/data/rng, made by make.py
   there), states as torch.save and pickle store them, hostile states, jumps against steps, and the
   published vectors. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "t.h"
#include "bad.h"

#define DATA "tests/data/rng"

static ckr__ctx ctx;
static ckr_error err;

static const ckr_node *at(const ckr_node *n, uint64_t i)
{
    return ckr_node_at(n, i);
}

static double number(const ckr_node *n)
{
    double v = 0;
    ckr_node_f64(n, &v);
    return v;
}

static int64_t whole(const ckr_node *n)
{
    int64_t v = 0;
    ckr_node_i64(n, &v);
    return v;
}

static void digest(const void *p, size_t n, char *hex)
{
    uint8_t sum[32];
    ckr_sha256 h;
    int i;
    ckr_sha256_init(&h);
    ckr_sha256_update(&h, p, n);
    ckr_sha256_final(&h, sum);
    for (i = 0; i < 32; i++) snprintf(hex + 2 * i, 3, "%02x", sum[i]);
}

static bool draw(ckr_rng *r, const ckr_node *call, void *out, size_t *bytes)
{
    const char *op = ckr_node_str(at(call, 0)), *dtype = ckr_node_str(at(call, 1));
    const ckr_dtype t = ckr__dtype_find(dtype, strlen(dtype), 0);
    const uint64_t n = (uint64_t)whole(at(call, 4));
    int64_t *ints = (int64_t *)out;
    uint64_t i, v = 0;
    *bytes = 8 * (size_t)n;
    if (!strcmp(op, "integers"))
        return ckr_rng_integers(r, t, whole(at(call, 2)), whole(at(call, 3)), n, ints) == CKR_OK;
    if (!strcmp(op, "random")) return ckr_rng_random(r, t, n, ints) == CKR_OK;
    if (!strcmp(op, "permutation")) return ckr_rng_permutation(r, n, ints) == CKR_OK;
    if (!strcmp(op, "bits")) {
        for (i = 0; i < n; i++) {
            if (ckr_rng_bits(r, (uint32_t)whole(at(call, 3)), &v) != CKR_OK) return false;
            ints[i] = (int64_t)v;
        }
        return true;
    }
    *bytes = ckr_dtype_size(t) * (size_t)n;
    if (!strcmp(op, "uniform"))
        return ckr_rng_uniform(r, t, number(at(call, 2)), number(at(call, 3)), n, out) == CKR_OK;
    return ckr_rng_normal(r, t, number(at(call, 2)), number(at(call, 3)), n, out) == CKR_OK;
}

/* A draw that is what the C library's log, sin and cos make of it, and not that of the record. */
static bool of_libm(const ckr_node *call)
{
    return T_OTHER_LIBM && !strcmp(ckr_node_str(at(call, 0)), "normal") &&
           !strcmp(ckr_node_str(at(call, 1)), "float64");
}

static void rng_calls(void)
{
    static double out[100000];
    ckr_ckpt *file;
    const ckr_node *cases;
    uint64_t i, k;
    if (!CHECK_OK(ckr_tree_open(DATA "/calls.json", NULL, &file, &err), &err)) return;
    cases = ckr_node_get(ckr_ckpt_root(file), "cases");
    CHECK(cases && cases->count == 16);
    for (i = 0; at(cases, i); i++) {
        const ckr_node *c = at(cases, i), *calls = ckr_node_get(c, "calls");
        const char *kind = ckr_node_str(ckr_node_get(c, "kind"));
        const char *seed = ckr_node_str(ckr_node_get(c, "seed"));
        ckr_rng r;
        CHECK(ckr_rng_seed(&r, ckr_rng_kind_find(kind), strtoull(seed, NULL, 10)) == CKR_OK);
        for (k = 0; at(calls, k); k++) {
            char hex[65];
            size_t n = 0;
            const char *want = ckr_node_str(at(at(calls, k), 5));
            const bool ok = draw(&r, at(calls, k), out, &n);
            if (n) t_little(out, n, n / (size_t)whole(at(at(calls, k), 4)));
            digest(out, n, hex);
            t_check(ok && (of_libm(at(calls, k)) || !strncmp(hex, want, 16)), __FILE__, __LINE__,
                    "%s seed %s call %u: %s %s",
                    kind, seed, (unsigned)k, ckr_node_str(at(at(calls, k), 0)),
                    ckr_node_str(at(at(calls, k), 1)));
        }
    }
    ckr_ckpt_close(file);
}

/* Published: reference outputs of mt19937 and of the counter generators. */
static void rng_vectors(void)
{
    static const uint32_t keys[4] = { 0x123, 0x234, 0x345, 0x456 };
    static const uint32_t ctr[4] = { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 };
    static const uint32_t key[2] = { 0xa4093822, 0x299f31d0 };
    uint32_t out[4];
    ckr_rng r;
    int i;
    memset(&r, 0, sizeof r);
    r.kind = CKR_RNG_MT19937;
    ckr__mt_seed_word(&r, 5489);
    CHECK(ckr_rng_u32(&r) == 3499211612u);
    for (i = 0; i < 9998; i++) (void)ckr_rng_u32(&r);
    CHECK(ckr_rng_u32(&r) == 4123659995u);
    ckr__mt_seed_key(&r, keys, 4);
    CHECK(ckr_rng_u32(&r) == 1067595299u && ckr_rng_u32(&r) == 955945823u);
    ckr__philox4x32(ctr, key, out);
    CHECK(out[0] == 0xd16cfe09 && out[1] == 0x94fdcceb && out[2] == 0x5001e420 &&
          out[3] == 0x24126ea1);
    ckr__threefry2x32(ctr + 2, ctr, out);
    CHECK(out[0] == 0xc4923a9c && out[1] == 0x483df7a0);
    CHECK(ckr_rng_seed(&r, CKR_RNG_LLMC, 13371337) == CKR_OK);
    CHECK(ckr_rng_u32(&r) == 740755583u && ckr_rng_u32(&r) == 337499614u &&
          ckr_rng_u32(&r) == 90980514u && r.u.w[0] == 5453229501891924254u);
    ckr__philox_block(42, 2, 3, out);
    CHECK(out[0] == 0x5229c193 && out[3] == 0x9e988ed9);
}

/* State bytes of torch after draws: the digests that real torch gives. */
static void rng_torch_states(void)
{
    static const char *const want[3] = {
        "1ccf17250133dec5e96478acd63e13d728d0dbbabb30389415a302c6f872f81f",
        "30ba57011b00a77f14e1f965067039d149b108e92193cbeadd0f3c1f8245d7db",
        "5f273c33f4160de64fac7c23955badc140a32e236e861b993e52685fd195d97d"
    };
    uint8_t raw[5056];
    char hex[65];
    float f[3];
    ckr_rng r;
    int i;
    for (i = 0; i < 3; i++) {
        CHECK(ckr_rng_seed(&r, CKR_RNG_TORCH_CPU, 0) == CKR_OK);
        if (i == 1) ckr_rng_uniform(&r, CKR_DTYPE_F32, 0, 1, 3, f);
        if (i == 2) ckr_rng_normal(&r, CKR_DTYPE_F32, 0, 1, 3, f);
        CHECK(ckr_rng_encode(&r, NULL, 0) == 5056 && ckr_rng_encode(&r, raw, sizeof raw) == 5056);
        digest(raw, 5056, hex);
        CHECK_STR(hex, want[i]);
    }
}

/* On an emulated GPU: the values that GPUs print for torch.manual_seed(0). */
static void rng_cuda_draws(void)
{
    static const float first[8] = { 0.3990f, 0.5167f, 0.0249f, 0.9401f,
                                    0.9459f, 0.7967f, 0.4150f, 0.8203f };
    static const float next[8] = { 0.9722f, 0.7910f, 0.4690f, 0.3300f,
                                   0.3345f, 0.3783f, 0.7640f, 0.6405f };
    static const float normal[6] = { -0.9247f, -0.4253f, -2.6438f, 0.1452f, -0.1209f, -0.5797f };
    float a[8], b[8], big[5000], part[5000];
    ckr_rng r;
    int i;
    CHECK(ckr_rng_seed(&r, CKR_RNG_TORCH_CUDA, 0) == CKR_OK);
    CHECK(ckr_rng_uniform(&r, CKR_DTYPE_F32, 0, 1, 8, a) == CKR_OK && r.offset == 4);
    CHECK(ckr_rng_uniform(&r, CKR_DTYPE_F32, 0, 1, 8, b) == CKR_OK && r.offset == 8);
    for (i = 0; i < 8; i++) CHECK(fabsf(a[i] - first[i]) < 6e-5f && fabsf(b[i] - next[i]) < 6e-5f);
    r.offset = 0;
    CHECK(ckr_rng_normal(&r, CKR_DTYPE_F32, 0, 1, 6, a) == CKR_OK);
    for (i = 0; i < 6; i++) CHECK(fabsf(a[i] - normal[i]) < 6e-5f);
    r.offset = 0;
    r.threads = 512;           /* ten rounds of 512 threads: three launches' worth of offset */
    CHECK(ckr_rng_uniform(&r, CKR_DTYPE_F32, 0, 1, 5000, big) == CKR_OK && r.offset == 12);
    r.offset = 0;
    CHECK(ckr_rng_uniform(&r, CKR_DTYPE_F32, 0, 1, 512, part) == CKR_OK && r.offset == 4);
    CHECK(!memcmp(big, part, 512 * sizeof *big));
    CHECK(ckr_rng_uniform(&r, CKR_DTYPE_F32, 0, 1, 512, part) == CKR_OK);
    CHECK(!memcmp(big + 2048, part, 512 * sizeof *big));
    r.offset = 6;              /* as an old torch could store it */
    CHECK(ckr_rng_jump(&r, 0, 0) == CKR_OK && ckr_rng_jump(&r, 1, 0) == CKR_OK && r.offset == 8);
    r.offset = INT64_MAX - 7;
    CHECK(ckr_rng_jump(&r, 8, 0) == CKR_E_ARG && ckr_rng_jump(&r, 1, 63) == CKR_E_ARG);
}

static bool same_tree(const ckr_node *a, const ckr_node *b, int depth)
{
    const uint64_t width = ckr_node_is_dict(a) ? 2 : 1;
    uint64_t i;
    if (!a || !b || depth > 10) return a == b;
    if (a->kind != b->kind) return false;
    switch ((int)a->kind) {
    case CKR_NODE_NONE: return true;
    case CKR_NODE_BOOL: return a->u.b == b->u.b;
    case CKR_NODE_INT: return a->u.i == b->u.i;
    case CKR_NODE_FLOAT: return !memcmp(&a->u.f, &b->u.f, 8);
    case CKR_NODE_STR: case CKR_NODE_BIGINT: case CKR_NODE_GLOBAL: case CKR_NODE_BYTES:
        return a->count == b->count && !memcmp(a->u.str, b->u.str, (size_t)a->count);
    case CKR_NODE_OBJECT:
        return !strcmp(a->u.object->name, b->u.object->name) &&
               same_tree(a->u.object->args, b->u.object->args, depth + 1) &&
               same_tree(a->u.object->state, b->u.object->state, depth + 1);
    case CKR_NODE_TENSOR: case CKR_NODE_NDARRAY: {
        uint8_t x[6000], y[6000];
        size_t n = 0, m = 0;
        return ckr__rng_data(&ctx, a->u.view, x, sizeof x, &n) == CKR_OK &&
               ckr__rng_data(&ctx, b->u.view, y, sizeof y, &m) == CKR_OK && n == m &&
               !memcmp(x, y, n) && a->u.view->dtype == b->u.view->dtype &&
               a->u.view->n_dims == b->u.view->n_dims &&
               (!a->u.view->type_name || !strcmp(a->u.view->type_name, b->u.view->type_name));
    }
    default: break;
    }
    if (!ckr_node_is_list(a) && !ckr_node_is_dict(a)) return true;
    if (a->count != b->count) return false;
    for (i = 0; i < width * a->count; i++)
        if (!same_tree(a->u.items[i], b->u.items[i], depth + 1)) return false;
    return true;
}

/* Every form of a state in a file of torch.save: read, written value for value, drawn from. */
static void rng_file(void)
{
    static const struct { const char *key; ckr_rng_kind kind; } rows[] = {
        { "torch_cpu", CKR_RNG_TORCH_CPU },    { "generator", CKR_RNG_TORCH_CPU },
        { "torch_cuda", CKR_RNG_TORCH_CUDA },  { "torch_cuda_old", CKR_RNG_TORCH_CUDA },
        { "python", CKR_RNG_PYTHON },          { "numpy", CKR_RNG_NUMPY },
        { "pcg64", CKR_RNG_PCG64 },            { "pcg64_object", CKR_RNG_PCG64 },
        { "numpy_object", CKR_RNG_NUMPY },     { "pcg64dxsm", CKR_RNG_PCG64DXSM },
        { "philox", CKR_RNG_PHILOX },          { "sfc64", CKR_RNG_SFC64 }
    };
    ckr_ckpt *file;
    const ckr_node *root;
    ckr__ctx *c;
    ckr_rng r, again, cpu;
    size_t i;
    if (!CHECK_OK(ckr_tree_open(DATA "/states.pt", NULL, &file, &err), &err)) return;
    c = &file->ctx;
    ckr__ctx_enter(c, &err);
    root = ckr_ckpt_root(file);
    memset(&cpu, 0, sizeof cpu);
    ctx = *c;
    for (i = 0; i < sizeof rows / sizeof *rows; i++) {
        const ckr_node *n = ckr_node_get(root, rows[i].key);
        ckr_node *made;
        t_now.test = rows[i].key;
        if (!CHECK_OK(ckr__rng_from_node(c, n, CKR_RNG_NONE, &r), &err)) continue;
        CHECK_INT(r.kind, rows[i].kind);
        CHECK(ckr__rng_from_node(c, n, rows[i].kind, &again) == CKR_OK &&
              !memcmp(&r, &again, sizeof r));
        made = ckr__rng_to_node(c, &r, n);
        ctx = *c;
        CHECK(made && same_tree(n, made, 0));
        made = ckr__rng_to_node(c, &r, NULL);
        CHECK(made && ckr__rng_from_node(c, made, CKR_RNG_NONE, &again) == CKR_OK &&
              ckr_rng_equal(&r, &again));
        if (i == 0) cpu = r;
        if (i == 1) CHECK(ckr_rng_equal(&r, &cpu));
        if (i == 2) CHECK(r.seed == 0x123456789abcdef0u && r.offset == 4000 && r.layout == 16);
        if (i == 3) CHECK(r.layout == 816 && !r.flags && r.offset == 4000);
        CHECK(ckr__rng_from_node(c, n, CKR_RNG_TORCH_MPS, &again) != CKR_OK && again.kind == 0);
        ckr__ctx_enter(c, &err);
    }
    CHECK(ckr__rng_from_node(c, ckr_node_get(root, "all_cuda"), CKR_RNG_NONE, &r) != CKR_OK);
    CHECK_INT(err.item, CKR_ITEM_RNG_FORM);
    ckr_ckpt_close(file);
}

/* A derived state goes into the same forms, and every step of the way is undone by reading it. */
static void rng_derived(void)
{
    ckr_rng r, again;
    int k;
    CHECK(ckr__ctx_init(&ctx, NULL, NULL, &err) == CKR_OK);
    for (k = 1; k < CKR_RNG_OPAQUE; k++) {
        const uint64_t s = 493338628475935460u;
        ckr_node *n;
        CHECK(ckr_rng_seed(&r, (ckr_rng_kind)k, 77) == CKR_OK);
        if (k == CKR_RNG_JAX) continue;
        CHECK(ckr__rng_derive(&r, s) && r.kind == k);
        n = ckr__rng_to_node(&ctx, &r, NULL);
        CHECK(n && ckr__rng_from_node(&ctx, n, (ckr_rng_kind)k, &again) == CKR_OK);
        CHECK(ckr_rng_equal(&r, &again));
        if (k == CKR_RNG_TORCH_CPU) CHECK(r.seed == 77);
        if (ckr__rng_is_mt((ckr_rng_kind)k))
            CHECK(r.u.key[1] == 4033022184u && ckr_rng_u32(&r) == 829391751u);
        if (k == CKR_RNG_TORCH_CUDA) CHECK(r.seed == s && r.offset == 0);
    }
    ckr__ctx_free(&ctx);
}

static void refuse(const uint8_t *raw, size_t n, ckr_rng_kind kind, ckr_item item, const char *what)
{
    ckr_rng r;
    const ckr_result got = ckr_rng_decode(kind, raw, n, &r, &err);
    bad_seen[item] = true;
    t_check(got != CKR_OK && err.item == item && r.kind == 0, __FILE__, __LINE__, "%s: %s", what,
            ckr_item_name(err.item));
}

static void rng_hostile_bytes(void)
{
    uint8_t raw[5056], bad[5056];
    ckr_rng r, again;
    size_t n;
    uint32_t v;
    CHECK(ckr_rng_seed(&r, CKR_RNG_TORCH_CPU, 1) == CKR_OK);
    (void)ckr_rng_u32(&r);
    CHECK(ckr_rng_encode(&r, raw, sizeof raw) == 5056);
    for (n = 0; n < 5056; n++)
        if (ckr__rng_kind_of_size(n) != CKR_RNG_TORCH_CPU)
            refuse(raw, n, CKR_RNG_TORCH_CPU, CKR_ITEM_RNG_SIZE, "length");
    refuse(raw, 17, CKR_RNG_NONE, CKR_ITEM_RNG_SIZE, "length 17");
    refuse(raw, 5056, CKR_RNG_TORCH_CUDA, CKR_ITEM_RNG_SIZE, "cuda of 5056");
    refuse(raw, 5056, CKR_RNG_PYTHON, CKR_ITEM_RNG_FORM, "python of bytes");
    refuse(raw, 5056, CKR_RNG_OPAQUE, CKR_ITEM_RNG_SIZE, "opaque of 5056");
    for (v = 0; v < 700; v++) {                /* every cursor: only the true pair and "used up" */
        memcpy(bad, raw, sizeof bad);
        ckr__store_u32(bad + 8, v);
        if (v == 624 || v == 1)
            CHECK(ckr_rng_decode(CKR_RNG_NONE, bad, 5056, &again, &err) == CKR_OK);
        else refuse(bad, 5056, CKR_RNG_NONE, CKR_ITEM_RNG_CURSOR, "left");
        memcpy(bad, raw, sizeof bad);
        ckr__store_u64(bad + 16, v);
        if (v != 1) refuse(bad, 5056, CKR_RNG_NONE, CKR_ITEM_RNG_CURSOR, "next");
    }
    memcpy(bad, raw, sizeof bad);
    bad[23] = 0x80;
    refuse(bad, 5056, CKR_RNG_NONE, CKR_ITEM_RNG_CURSOR, "next beyond 32 bits");
    memcpy(bad, raw, sizeof bad);
    bad[11] = 0x80;
    refuse(bad, 5056, CKR_RNG_NONE, CKR_ITEM_RNG_CURSOR, "left negative");
    memcpy(bad, raw, sizeof bad);
    memset(bad + 12, 0, 4);
    refuse(bad, 5056, CKR_RNG_NONE, CKR_ITEM_RNG_VALUE, "not seeded");
    memcpy(bad, raw, sizeof bad);
    memset(bad + 24, 0, 4992);
    bad[24] = 0xff;
    refuse(bad, 5056, CKR_RNG_NONE, CKR_ITEM_RNG_DEGENERATE, "zero words");
    memcpy(bad, raw, sizeof bad);
    memset(bad + 5024, 0xff, 8);
    CHECK(ckr_rng_decode(CKR_RNG_NONE, bad, 5056, &again, &err) == CKR_OK);
    bad[5040] = 1;
    refuse(bad, 5056, CKR_RNG_NONE, CKR_ITEM_RNG_VALUE, "NaN cached");
    memcpy(bad, raw, sizeof bad);
    bad[28] = 1;
    CHECK(ckr_rng_decode(CKR_RNG_NONE, bad, 5056, &again, &err) == CKR_OK &&
          again.flags == CKR_RNG_ODD && ckr_rng_equal(&r, &again));
}

/* What torch reads over, with what it never writes there, is marked; a float normal that is cached
   and none is refused. */
static void rng_odd_states(void)
{
    static const struct { size_t at; uint8_t v; } odd[] = {
        { 28, 1 },   { 24 + 8 * 623 + 7, 0x80 }, { 12, 3 },   { 5023, 0x3f }, { 5031, 0x3f },
        { 5039, 0x3f }, { 5040, 7 },             { 5044, 1 }, { 5051, 0x3f }, { 5052, 7 },
        { 5055, 1 }
    };
    uint8_t raw[5056], cuda[16];
    ckr_rng r;
    size_t i;
    for (i = 0; i < sizeof odd / sizeof *odd; i++) {
        CHECK(ckr_rng_seed(&r, CKR_RNG_TORCH_CPU, 3) == CKR_OK);
        CHECK(ckr_rng_encode(&r, raw, sizeof raw) == 5056);
        CHECK(ckr_rng_decode(CKR_RNG_NONE, raw, 5056, &r, &err) == CKR_OK && r.flags == 0);
        raw[odd[i].at] = odd[i].v;
        t_check(ckr_rng_decode(CKR_RNG_NONE, raw, 5056, &r, &err) == CKR_OK &&
                r.flags == CKR_RNG_ODD, __FILE__, __LINE__, "byte %lu", (unsigned long)odd[i].at);
    }
    CHECK(ckr_rng_seed(&r, CKR_RNG_TORCH_CPU, 3) == CKR_OK);
    CHECK(ckr_rng_encode(&r, raw, sizeof raw) == 5056);
    raw[5052] = 1;
    ckr__store_u32(raw + 5048, 0x7fc00000);
    refuse(raw, 5056, CKR_RNG_NONE, CKR_ITEM_RNG_VALUE, "NaN as a cached float");
    memset(cuda, 0, sizeof cuda);
    cuda[8] = 6;
    CHECK(ckr_rng_decode(CKR_RNG_NONE, cuda, 16, &r, &err) == CKR_OK &&
          r.flags == CKR_RNG_ALIGNED && r.offset == 8);
}

/* All that torch writes or ignores comes back, unused bytes too. */
static void rng_unused_bytes(void)
{
    uint8_t raw[5056], out[5056], cuda[816];
    ckr_rng r, back;
    t_rng g = { 5 };
    size_t i;
    double v, old[2] = { 0.25, 2.0 };           /* x and rho of torch 1.0 */
    CHECK(ckr_rng_seed(&r, CKR_RNG_TORCH_CPU, 3) == CKR_OK);
    CHECK(ckr_rng_encode(&r, raw, sizeof raw) == 5056);
    for (i = 5016; i < 5056; i++) raw[i] = (uint8_t)t_next(&g);
    raw[5031] = raw[5023] = raw[5039] = 0x3f;                /* finite */
    CHECK(ckr_rng_decode(CKR_RNG_NONE, raw, 5056, &r, &err) == CKR_OK);
    CHECK(ckr_rng_encode(&r, out, sizeof out) == 5056 && !memcmp(raw, out, 5056));
    CHECK(ckr_rng_decode(CKR_RNG_NONE, raw, 5048, &r, &err) == CKR_OK);
    CHECK(ckr_rng_encode(&r, out, sizeof out) == 5048 && !memcmp(raw, out, 5048));
    CHECK(ckr_rng_encode(&r, out, 5047) == 5048);
    ckr__rng_numbers(&old[0], raw + 5016, 8, 1, true);         /* rho * sin(2 pi x) is pending */
    ckr__rng_numbers(&old[1], raw + 5032, 8, 1, true);
    CHECK(ckr_rng_decode(CKR_RNG_NONE, raw, 5048, &r, &err) == CKR_OK);
    CHECK(ckr_rng_normal(&r, CKR_DTYPE_F64, 0, 1, 1, &v) == CKR_OK && v == 2.0);
    CHECK(r.layout == 5056 && r.pos == 624 && !r.has_normal);
    memset(cuda, 0xff, sizeof cuda);
    memset(cuda + 800, 0, 16);
    cuda[3] = 0;
    CHECK(ckr_rng_decode(CKR_RNG_NONE, cuda, 816, &r, &err) == CKR_OK && r.flags == CKR_RNG_ODD);
    cuda[815] = 0x80;
    refuse(cuda, 816, CKR_RNG_NONE, CKR_ITEM_RNG_CURSOR, "negative offset");
    raw[43] = 0x80;
    refuse(raw, 44, CKR_RNG_NONE, CKR_ITEM_RNG_CURSOR, "negative offset");
    raw[43] = 0;
    CHECK(ckr_rng_decode(CKR_RNG_NONE, raw, 44, &r, &err) == CKR_OK && r.kind == CKR_RNG_TORCH_MPS);
    CHECK(ckr_rng_encode(&r, out, sizeof out) == 44 && !memcmp(raw, out, 44));
    CHECK(ckr_rng_decode(CKR_RNG_OPAQUE, raw, 100, &r, &err) == CKR_OK);
    CHECK(ckr_rng_encode(&r, out, sizeof out) == 100 && !memcmp(raw, out, 100));
    CHECK(ckr_rng_seed(&r, CKR_RNG_LLMC_MT, 3) == CKR_OK &&
          ckr_rng_encode(&r, raw, sizeof raw) == 2520);
    CHECK(ckr_rng_decode(CKR_RNG_NONE, raw, 2520, &r, &err) == CKR_OK && r.kind == CKR_RNG_LLMC_MT);
    raw[2519] = 0;
    refuse(raw, 2520, CKR_RNG_NONE, CKR_ITEM_RNG_VALUE, "constants");
    CHECK(ckr_rng_seed(&r, CKR_RNG_LLMC, 13371337) == CKR_OK &&
          ckr_rng_encode(&r, raw, sizeof raw) == 8 && ckr__load_u64(raw) == 13371337);
    CHECK(ckr_rng_decode(CKR_RNG_LLMC, raw, 8, &back, &err) == CKR_OK && ckr_rng_equal(&r, &back));
    refuse(raw, 16, CKR_RNG_LLMC, CKR_ITEM_RNG_SIZE, "two words");
    memset(raw, 0, 8);
    refuse(raw, 8, CKR_RNG_LLMC, CKR_ITEM_RNG_DEGENERATE, "no word");
}

static ckr_node *python_tuple(ckr_node_kind kind, uint64_t words, int64_t index, ckr_node *gauss)
{
    ckr_node *n = ckr__make(&ctx, kind), *in = ckr__make(&ctx, kind);
    uint64_t i;
    for (i = 0; i < words; i++)
        ckr__node_push(&ctx, in, ckr__make_int(&ctx, (int64_t)(i * 2654435761u % 4294967296u)));
    ckr__node_push(&ctx, in, ckr__make_int(&ctx, index));
    ckr__node_push(&ctx, n, ckr__make_int(&ctx, 3));
    ckr__node_push(&ctx, n, in);
    ckr__node_push(&ctx, n, gauss);
    return n;
}

static void refuse_node(const ckr_node *n, ckr_rng_kind kind, ckr_item item, const char *what)
{
    ckr_rng r;
    const ckr_result got = ckr__rng_from_node(&ctx, n, kind, &r);
    bad_seen[item] = true;
    t_check(got != CKR_OK && err.item == item && r.kind == 0, __FILE__, __LINE__, "%s: %s", what,
            ckr_item_name(err.item));
    ckr__ctx_enter(&ctx, &err);
}

static void rng_hostile_nodes(void)
{
    ckr_node *none, *d, *st;
    ckr_rng r;
    CHECK(ckr__ctx_init(&ctx, NULL, NULL, &err) == CKR_OK);
    none = ckr__make(&ctx, CKR_NODE_NONE);
    CHECK(ckr__rng_from_node(&ctx, python_tuple(CKR_NODE_TUPLE, 624, 624, none), CKR_RNG_NONE,
                             &r) == CKR_OK);
    CHECK(ckr__rng_from_node(&ctx, python_tuple(CKR_NODE_LIST, 624, 0, none), CKR_RNG_PYTHON, &r) ==
          CKR_OK);
    refuse_node(python_tuple(CKR_NODE_TUPLE, 624, 625, none), CKR_RNG_NONE, CKR_ITEM_RNG_CURSOR,
                "index 625");
    refuse_node(python_tuple(CKR_NODE_TUPLE, 624, -1, none), CKR_RNG_NONE, CKR_ITEM_RNG_VALUE,
                "index -1");
    refuse_node(python_tuple(CKR_NODE_TUPLE, 623, 1, none), CKR_RNG_NONE, CKR_ITEM_RNG_SIZE,
                "623 words");
    refuse_node(python_tuple(CKR_NODE_TUPLE, 624, 1, ckr__make_float(&ctx, NAN)), CKR_RNG_NONE,
                CKR_ITEM_RNG_VALUE, "NaN");
    refuse_node(python_tuple(CKR_NODE_TUPLE, 624, 1, ckr__make_str(&ctx, "x")), CKR_RNG_NONE,
                CKR_ITEM_RNG_FORM, "text");
    refuse_node(python_tuple(CKR_NODE_TUPLE, 624, 1, none), CKR_RNG_NUMPY, CKR_ITEM_RNG_FORM,
                "hint");
    refuse_node(none, CKR_RNG_NONE, CKR_ITEM_RNG_FORM, "None");
    refuse_node(NULL, CKR_RNG_NONE, CKR_ITEM_RNG_FORM, "absent");
    refuse_node(ckr__make_int(&ctx, -1), CKR_RNG_XLA, CKR_ITEM_RNG_FORM, "negative");
    refuse_node(ckr__make_int(&ctx, 0), CKR_RNG_LLMC, CKR_ITEM_RNG_DEGENERATE, "zero");
    CHECK(ckr_rng_seed(&r, CKR_RNG_PCG64, 1) == CKR_OK);
    d = ckr__rng_to_node(&ctx, &r, NULL);
    st = d->u.items[3];
    CHECK(ckr__node_set(&ctx, st, "inc", ckr__make_int(&ctx, 4)));
    refuse_node(d, CKR_RNG_NONE, CKR_ITEM_RNG_VALUE, "even inc");
    CHECK(ckr__node_set(&ctx, st, "inc", ckr__make_float(&ctx, 3)));
    refuse_node(d, CKR_RNG_NONE, CKR_ITEM_RNG_FORM, "float inc");
    CHECK(ckr_rng_seed(&r, CKR_RNG_PHILOX, 1) == CKR_OK);
    d = ckr__rng_to_node(&ctx, &r, NULL);
    CHECK(ckr__node_set(&ctx, d, "buffer_pos", ckr__make_int(&ctx, 5)));
    refuse_node(d, CKR_RNG_NONE, CKR_ITEM_RNG_CURSOR, "buffer_pos 5");
    CHECK(ckr__node_set(&ctx, d, "bit_generator", ckr__make_str(&ctx, "XYZ")));
    refuse_node(d, CKR_RNG_NONE, CKR_ITEM_RNG_FORM, "unknown bit generator");
    ckr__ctx_free(&ctx);
}

static void step(ckr_rng *r, uint64_t n)
{
    uint64_t i;
    for (i = 0; i < n; i++) {
        if (ckr__rng_is_mt((ckr_rng_kind)r->kind) || r->kind == CKR_RNG_LLMC) (void)ckr_rng_u32(r);
        else (void)ckr_rng_u64(r);
    }
}

/* jump(n) is n steps, the block of mt19937 included; big jumps add up and meet published words. */
static void rng_jumps(void)
{
    static const uint64_t sizes[] = { 0, 1, 2, 623, 624, 625, 1247, 1248, 100000, 4194303 };
    static const uint32_t starts[] = { 0, 1, 7, 300, 623, 624, 625, 1000 };
    static const ckr_rng_kind kinds[] = { CKR_RNG_TORCH_CPU, CKR_RNG_MT19937, CKR_RNG_PCG64,
                                          CKR_RNG_PCG64DXSM, CKR_RNG_SFC64,   CKR_RNG_LLMC };
    size_t i, j, k;
    ckr_rng a, b;
    for (k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            CHECK(ckr_rng_seed(&a, kinds[k], 5489) == CKR_OK);
            step(&a, 11);
            b = a;
            step(&a, sizes[i]);
            CHECK(ckr_rng_jump(&b, sizes[i], 0) == CKR_OK && ckr_rng_equal(&a, &b));
            CHECK(!ckr__rng_is_mt(kinds[k]) || !memcmp(&a, &b, sizeof a));
        }
    for (j = 0; j < sizeof starts / sizeof *starts; j++) {           /* by the polynomial       */
        const uint64_t n = ((uint64_t)1 << 22) + 624 * j + 5;
        CHECK(ckr_rng_seed(&a, CKR_RNG_TORCH_CPU, 5489) == CKR_OK);
        step(&a, starts[j]);
        b = a;
        step(&a, n);
        CHECK(ckr_rng_jump(&b, n, 0) == CKR_OK && !memcmp(&a, &b, sizeof a));
    }
    CHECK(ckr_rng_seed(&a, CKR_RNG_TORCH_CPU, 5489) == CKR_OK);
    b = a;
    CHECK(ckr_rng_jump(&b, 1000003, 0) == CKR_OK && ckr_rng_u32(&b) == 258599318u);
    b = a;
    step(&b, 7);
    CHECK(ckr_rng_jump(&b, 1, 128) == CKR_OK && ckr_rng_u32(&b) == 3856098397u);
    CHECK(ckr_rng_jump(&a, 1, 128) == CKR_OK);
    b = a;
    CHECK(ckr_rng_u32(&b) == 1297186950u && ckr_rng_u32(&b) == 2930575927u);
    CHECK(ckr_rng_jump(&a, 1, 128) == CKR_OK && ckr_rng_u32(&a) == 1978297346u);
}

static void rng_jumps_add_up(void)
{
    static const ckr_rng_kind kinds[] = { CKR_RNG_PYTHON, CKR_RNG_PCG64, CKR_RNG_PCG64DXSM,
                                          CKR_RNG_PHILOX, CKR_RNG_LLMC };
    t_rng g = { 9 };
    ckr_rng a, b;
    int k, i;
    for (k = 0; k < 5; k++)
        for (i = 0; i < 3; i++) {
            const uint64_t m = t_next(&g) >> 2, n = t_next(&g) >> 2;
            CHECK(ckr_rng_seed(&a, kinds[k], t_next(&g)) == CKR_OK);
            b = a;
            CHECK(ckr_rng_jump(&a, m, 0) == CKR_OK && ckr_rng_jump(&a, n, 0) == CKR_OK);
            CHECK(ckr_rng_jump(&b, m + n, 0) == CKR_OK && ckr_rng_equal(&a, &b));
            CHECK(ckr_rng_jump(&a, 6, 70) == CKR_OK && ckr_rng_jump(&b, 3, 71) == CKR_OK &&
                  ckr_rng_equal(&a, &b));
        }
    CHECK(ckr_rng_seed(&a, CKR_RNG_SFC64, 1) == CKR_OK &&
          ckr_rng_jump(&a, 1, 40) == CKR_E_UNSUPPORTED);
    CHECK(ckr_rng_jump(&a, 1, 300) == CKR_E_ARG);
}

/* Equality is of what comes; a used-up block equals the next one with nothing read. */
static void rng_equality(void)
{
    ckr_rng a, b, c;
    uint8_t x[CKR__RNG_CANONICAL_MAX], y[CKR__RNG_CANONICAL_MAX];
    uint64_t n = 0;
    CHECK(ckr_rng_seed(&a, CKR_RNG_NUMPY, 4) == CKR_OK);
    step(&a, 624);
    b = a;
    ckr__mt_twist(b.u.key);
    b.pos = 0;
    CHECK(ckr_rng_equal(&a, &b) && memcmp(&a, &b, sizeof a) != 0);
    CHECK(!ckr_rng_convert(&b, CKR_RNG_TORCH_CPU, &c) && ckr_rng_convert(&b, CKR_RNG_PYTHON, &c));
    step(&a, 1);
    CHECK(!ckr_rng_equal(&a, &b));
    step(&b, 1);
    b.u.key[0] ^= 1;           /* read, and its low bits are used up */
    CHECK(ckr_rng_equal(&a, &b));
    b.u.key[2] ^= 1;
    CHECK(!ckr_rng_equal(&a, &b));
    CHECK(ckr_rng_convert(&a, CKR_RNG_TORCH_CPU, &b) && ckr_rng_convert(&b, CKR_RNG_NUMPY, &c));
    CHECK(ckr_rng_equal(&a, &c) && !ckr_rng_equal(&a, &b));
    b.seed = 9;
    CHECK(ckr__rng_canonical(&b, false, x) == 2509 && ckr__rng_canonical(&c, true, y) == 2509 &&
          !memcmp(x, y, 2509));
    CHECK(ckr__rng_canonical(&b, true, x) == 2522);
    CHECK(ckr_rng_seed(&a, CKR_RNG_TORCH_CPU, 8) == CKR_OK);
    b = a;
    step(&b, 12345);
    CHECK(ckr_rng_distance(&a, &b, 1 << 20, &n) && n == 12345);
    CHECK(!ckr_rng_distance(&b, &a, 1 << 20, &n) && !ckr_rng_distance(&a, &b, 12344, &n));
    b.has_normal = 1;
    c = b;
    c.normal = 2;
    CHECK(!ckr_rng_equal(&b, &c));
}

/* A half word that waits, and calls that leave the generator alone. */
static void rng_refused_draws(void)
{
    static const ckr_rng_kind dry[] = { CKR_RNG_TORCH_MPS, CKR_RNG_JAX, CKR_RNG_XLA };
    ckr_rng r, was;
    double d[4];
    int64_t v[4];
    uint64_t bits;
    int i;
    for (i = 0; i < 3; i++) {
        CHECK(ckr_rng_seed(&r, dry[i], 6) == CKR_OK);
        was = r;
        CHECK(ckr_rng_uniform(&r, CKR_DTYPE_F64, 0, 1, 1, d) == CKR_E_UNSUPPORTED);
        CHECK(ckr_rng_normal(&r, CKR_DTYPE_F64, 0, 1, 1, d) == CKR_E_UNSUPPORTED);
        CHECK(ckr_rng_integers(&r, CKR_DTYPE_I64, 0, 9, 1, v) == CKR_E_UNSUPPORTED);
        CHECK(ckr_rng_permutation(&r, 4, v) == CKR_E_UNSUPPORTED && ckr_rng_u32(&r) == 0);
        CHECK(ckr_rng_bits(&r, 3, &bits) == CKR_E_UNSUPPORTED && !memcmp(&r, &was, sizeof r));
    }
    CHECK(ckr_rng_seed(&r, CKR_RNG_TORCH_CPU, 6) == CKR_OK);
    was = r;
    CHECK(ckr_rng_uniform(&r, CKR_DTYPE_F64, 1, 0, 1, d) == CKR_E_ARG);
    CHECK(ckr_rng_normal(&r, CKR_DTYPE_F32, 0, NAN, 1, d) == CKR_E_ARG);
    CHECK(ckr_rng_integers(&r, CKR_DTYPE_I64, 3, 3, 1, v) == CKR_E_ARG);
    r.version = was.version = 209;             /* half types of this version are not known */
    CHECK(ckr_rng_uniform(&r, CKR_DTYPE_BF16, 0, 1, 1, d) == CKR_E_UNSUPPORTED);
    CHECK(!memcmp(&r, &was, sizeof r));
    CHECK(ckr_rng_seed(&r, CKR_RNG_NUMPY, 1) == CKR_OK);
    CHECK(ckr_rng_integers(&r, CKR_DTYPE_U8, 0, 257, 1, v) == CKR_E_ARG);
    CHECK(ckr_rng_seed(&r, CKR_RNG_NUMPY, (uint64_t)1 << 32) == CKR_E_ARG);
    CHECK(ckr_rng_seed(&r, CKR_RNG_NONE, 1) == CKR_E_ARG &&
          ckr_rng_seed(&r, CKR_RNG_LLMC, 0) == CKR_E_ARG);
    CHECK_STR(ckr_rng_kind_name(CKR_RNG_SFC64), "sfc64");
    CHECK(ckr_rng_kind_find("nothing") == CKR_RNG_NONE &&
          ckr_rng_kind_find("opaque") == CKR_RNG_OPAQUE);
}

/* Any cut of a draw into calls gives the same numbers where the framework's does: words. */
static void rng_cuts(void)
{
    static uint32_t a[5000], b[5000];
    t_rng g = { 21 };
    int k;
    for (k = CKR_RNG_TORCH_CPU; k <= CKR_RNG_LLMC_MT; k++) {
        ckr_rng x, y;
        uint64_t n, m;
        CHECK(ckr_rng_seed(&x, (ckr_rng_kind)k, 31) == CKR_OK);
        y = x;
        if (ckr_rng_u32_fill(&x, 5000, a) != CKR_OK) continue;
        for (n = 0; n < 5000; n += m) {
            m = (uint64_t)t_range(&g, 1, 900);
            if (m > 5000 - n) m = 5000 - n;
            if (m < 4) {
                for (m = 1; m < 2; m++) b[n] = ckr_rng_u32(&y);
                m = 1;
            } else {
                ckr_rng_u32_fill(&y, m, b + n);
            }
        }
        CHECK(!memcmp(a, b, sizeof a) && ckr_rng_equal(&x, &y));
    }
}

/* Bytes that are no state, or nearly one: refused, or taken and given back, and drawn from. */
static void rng_noise(void)
{
    static const size_t sizes[] = { 5056, 5048, 2520, 816, 808, 44, 36, 16, 8 };
    uint8_t good[5056], raw[5056], out[5056];
    int64_t v[40];
    float f[40];
    t_rng g = { 77 };
    ckr_rng r;
    const int all = (int)t_times(4000, 200);
    int i, k, taken = 0;
    CHECK(ckr_rng_seed(&r, CKR_RNG_TORCH_CPU, 1) == CKR_OK && ckr_rng_u32(&r) == 1791095845u);
    CHECK(ckr_rng_encode(&r, good, sizeof good) == 5056);
    for (i = 0; i < all; i++) {
        const size_t n = sizes[t_range(&g, 0, 8)];
        memcpy(raw, good, sizeof raw);
        for (k = (int)t_range(&g, 0, 3); k > 0; k--) {
            const bool head = (t_next(&g) & 1) != 0;       /* before the words, or behind them */
            raw[head ? t_range(&g, 0, 23) : t_range(&g, 5016, 5055)] = (uint8_t)t_next(&g);
        }
        if (ckr_rng_decode(CKR_RNG_NONE, raw, n, &r, &err) != CKR_OK) continue;
        taken++;
        if (!r.flags) CHECK(ckr_rng_encode(&r, out, sizeof out) == n && !memcmp(raw, out, n));
        (void)ckr_rng_normal(&r, CKR_DTYPE_F32, 0, 1, (uint64_t)t_range(&g, 0, 40), f);
        (void)ckr_rng_integers(&r, CKR_DTYPE_I64, -5, 5, 40, v);
        (void)ckr_rng_jump(&r, t_next(&g) >> 43, 0);
    }
    CHECK(taken > all / 4 && taken < all);
}

static void rng_items(void)
{
    const ckr_item none = CKR_ITEM_OK;
    bad_all_seen(BAD_RNG, &none);
}

/* What a program sees that has the public half only. */
static void fields(void)
{
    static const struct { ckr_rng_kind kind; size_t words; } rows[] = {
        { CKR_RNG_PYTHON, 2509 }, { CKR_RNG_NUMPY, 2509 }, { CKR_RNG_PCG64, 32 },
        { CKR_RNG_SFC64, 32 }, { CKR_RNG_PHILOX, 80 }, { CKR_RNG_JAX, 8 }, { CKR_RNG_XLA, 8 }
    };
    uint8_t bytes[2589];
    ckr_rng *r = (ckr_rng *)malloc(ckr_rng_size());
    size_t i;
    if (!CHECK(r != NULL)) return;
    for (i = 0; i < sizeof rows / sizeof *rows; i++) {
        CHECK(ckr_rng_seed(r, rows[i].kind, 7) == CKR_OK);
        CHECK_INT(ckr_rng_get(r, CKR_RNG_FIELD_KIND), rows[i].kind);
        CHECK_INT(ckr_rng_encode(r, NULL, 0), rows[i].words > 80 ? 2589 : 221);
        CHECK_INT(ckr_rng_words(r, bytes, sizeof bytes), rows[i].words);
        CHECK_INT(ckr_rng_words(r, bytes, rows[i].words - 1), rows[i].words);
    }
    CHECK_INT(ckr__load_u64(bytes), 7);        /* XLA's word is its seed                  */
    CHECK(ckr_rng_seed(r, CKR_RNG_TORCH_CUDA, 9) == CKR_OK);
    CHECK(ckr_rng_set(r, CKR_RNG_FIELD_THREADS, 270336) == CKR_OK);
    CHECK(ckr_rng_set(r, CKR_RNG_FIELD_VERSION, 206) == CKR_OK);
    CHECK(ckr_rng_set(r, CKR_RNG_FIELD_LAYOUT, 816) == CKR_OK);
    CHECK(ckr_rng_set(r, CKR_RNG_FIELD_FLAGS, CKR_RNG_MKL | CKR_RNG_ODD) == CKR_OK);
    CHECK_INT(ckr_rng_get(r, CKR_RNG_FIELD_THREADS), 270336);
    CHECK_INT(ckr_rng_get(r, CKR_RNG_FIELD_VERSION), 206);
    CHECK_INT(ckr_rng_get(r, CKR_RNG_FIELD_FLAGS), CKR_RNG_MKL);
    CHECK_INT(ckr_rng_get(r, CKR_RNG_FIELD_SEED), 9);
    CHECK_INT(ckr_rng_encode(r, NULL, 0), 816);
    CHECK(ckr_rng_set(r, CKR_RNG_FIELD_LAYOUT, 17) == CKR_E_ARG);
    CHECK(ckr_rng_set(r, CKR_RNG_FIELD_SEED, 1) == CKR_E_ARG);
    CHECK(ckr_rng_set(r, CKR_RNG_FIELD_VERSION, 70000) == CKR_E_ARG);
    free(r);
}

/* Draws of whatever a kind has; false: none. */
static bool draw_some(ckr_rng *r, double *d, int64_t *k)
{
    const bool a = ckr_rng_uniform(r, CKR_DTYPE_F64, 0, 1, 3, d) == CKR_OK,
               b = ckr_rng_normal(r, CKR_DTYPE_F64, 0, 1, 3, d + 3) == CKR_OK,
               n = ckr_rng_integers(r, CKR_DTYPE_I64, 0, 1000, 3, k) == CKR_OK;
    return a || b || n;
}

/* Every kind, in the middle of its stream, with a cached sample where it has one: as bytes and back
   it goes on the same, and is told from other kinds and from bytes that are none. */
static void encodings(void)
{
    const size_t size = ckr_rng_size();
    ckr_rng *a = (ckr_rng *)malloc(size), *b = (ckr_rng *)malloc(size);
    uint8_t bytes[5056], again[5056];
    double da[6], db[6];
    int64_t ka[3], kb[3];
    ckr_error e;
    int kind, drew = 0;
    if (!CHECK(a && b)) return;
    for (kind = CKR_RNG_TORCH_CPU; kind < CKR_RNG_OPAQUE; kind++) {
        const ckr_rng_kind k = (ckr_rng_kind)kind;
        size_t n;
        CHECK(ckr_rng_seed(a, k, 77) == CKR_OK);
        (void)ckr_rng_u32(a);
        (void)draw_some(a, da, ka);
        (void)ckr_rng_normal(a, CKR_DTYPE_F64, 0, 1, 1, da);
        n = ckr_rng_encode(a, bytes, sizeof bytes);
        if (!CHECK(n > 0 && n <= sizeof bytes)) continue;
        CHECK_OK(ckr_rng_decode(k, bytes, n, b, &e), &e);
        CHECK_INT(ckr_rng_get(b, CKR_RNG_FIELD_KIND), kind);
        CHECK(ckr_rng_encode(b, again, sizeof again) == n && !memcmp(bytes, again, n));
        memset(da, 0, sizeof da);
        memset(db, 0, sizeof db);
        memset(ka, 0, sizeof ka);
        memset(kb, 0, sizeof kb);
        drew += draw_some(a, da, ka);
        (void)draw_some(b, db, kb);
        CHECK(!memcmp(da, db, sizeof da) && !memcmp(ka, kb, sizeof ka));
        CHECK(ckr_rng_equal(a, b));
        if (n != 2589 && n != 221) continue;   /* the framework's own bytes: checked elsewhere */
        CHECK_OK(ckr_rng_decode(CKR_RNG_NONE, bytes, n, b, &e), &e);
        CHECK(ckr_rng_decode(CKR_RNG_LLMC, bytes, n, b, &e) == CKR_E_FORMAT);
        CHECK(ckr_rng_decode(k, bytes, n - 1, b, &e) == CKR_E_FORMAT);
        bytes[0] = 2;                          /* a version that is none                  */
        CHECK(ckr_rng_decode(k, bytes, n, b, &e) == CKR_E_FORMAT && e.item == CKR_ITEM_RNG_FORM);
        bytes[0] = 1;
        bytes[1] = 200;                        /* a kind that is none                     */
        CHECK(ckr_rng_decode(CKR_RNG_NONE, bytes, n, b, &e) == CKR_E_FORMAT);
    }
    CHECK_INT(drew, 9);
    CHECK(ckr_rng_seed(a, CKR_RNG_PCG64, 1) == CKR_OK);
    CHECK_INT(ckr_rng_encode(a, bytes, sizeof bytes), 221);
    bytes[93 + 16] ^= 1;                       /* the increment of PCG64 is odd           */
    CHECK(ckr_rng_decode(CKR_RNG_PCG64, bytes, 221, b, &e) == CKR_E_FORMAT);
    memset(a, 0, size);
    CHECK_INT(ckr_rng_encode(a, NULL, 0), 0);
    free(a);
    free(b);
}

int main(int argc, char **argv)
{
    t_begin(argc, argv);
    RUN(fields);
    RUN(rng_calls);
    RUN(rng_vectors);
    RUN(rng_torch_states);
    RUN(rng_cuda_draws);
    RUN(rng_file);
    RUN(rng_derived);
    RUN(rng_hostile_bytes);
    RUN(rng_odd_states);
    RUN(rng_unused_bytes);
    RUN(rng_hostile_nodes);
    RUN_LONG(rng_jumps);
    RUN(rng_jumps_add_up);
    RUN(rng_equality);
    RUN(rng_refused_draws);
    RUN(rng_cuts);
    RUN(rng_noise);
    RUN(rng_items);
    return t_end();
}
