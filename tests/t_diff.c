/* diff, digest and export of single files: what stands beside the tensors, keys of every kind,
   elements of every dtype. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "t.h"
#include "memio.h"
#include "bad.h"

#define N_(s) s, sizeof(s) - 1
#define STR(n, s) BAD_STR(n, s)
#define FLOATS BAD_STORAGE("FloatStorage", BAD_KEY, "\2")
#define TAIL "\211ccollections\nOrderedDict\n)RtR"
#define TENSOR "ctorch._utils\n_rebuild_tensor_v2\n((" FLOATS "K\0K\2\205K\1\205" TAIL
#define COMPLEX BAD_STORAGE("ComplexFloatStorage", BAD_KEY, "\1")
#define CONJ "ctorch._utils\n_rebuild_tensor_v2\n((" COMPLEX "K\0K\1\205K\1\205"              \
    "\211ccollections\nOrderedDict\n)R}" STR("\4", "conj") "\210stR"

static memio disk;
static ckr_env env;
static bad_zip zip;

static const ckr_note *note_of(const ckr_note *notes, uint64_t n, const char *code)
{
    uint64_t i;
    for (i = 0; i < n; i++) if (!strcmp(notes[i].code, code)) return &notes[i];
    return NULL;
}

static ckr_ckpt *open_ok(const char *path)
{
    ckr_open_desc d = CKR_ZERO;
    ckr_ckpt *c = NULL;
    ckr_error e;
    d.env = &env;
    CHECK_OK(ckr_ckpt_open(path, &d, &c, &e), &e);
    return c;
}

/* torch.save of a pickle that ends in `.`, with one storage. */
static void put(const char *path, const char *pickle, size_t n, const void *storage, size_t size)
{
    memset(&zip, 0, sizeof zip);
    bad_member(&zip, "r/data.pkl", pickle, n);
    bad_member(&zip, "r/byteorder", "little", 6);
    bad_member(&zip, "r/data/0", storage, size);
    bad_member(&zip, "r/version", "3\n", 2);
    bad_finish(&zip);
    memio_put(&disk, path, zip.b, zip.n);
}

static const float one[2] = { 1, 2 }, other[2] = { 1, 3 };

static ckr_diff *diff_of(const char *x, const char *y)
{
    ckr_ckpt *a = open_ok(x), *b = open_ok(y);
    ckr_diff *d = NULL;
    ckr_error e;
    if (a && b) CHECK_OK(ckr_ckpt_diff(a, b, &d, &e), &e);
    ckr_ckpt_close(b);
    ckr_ckpt_close(a);
    return d;
}

/* Two files differ in one thing beside their tensors, which has this path; each equals itself. */
static void differ_beside(const char *subject)
{
    ckr_diff *d = diff_of("a", "a");
    CHECK(d->n_tensors == 0 && d->n_others == 0);
    ckr_diff_free(d);
    d = diff_of("a", "b");
    CHECK_INT(d->n_tensors, 0);
    if (CHECK(d->n_others == 1)) {
        CHECK_STR(d->others[0].code, "CKR_DIFF_LEFTOVER");
        CHECK_STR(d->others[0].subject, subject);
        CHECK(d->others[0].severity == CKR_CHANGED);
    }
    ckr_diff_free(d);
}

#define MODULE "cm\nM\n)\201}" STR("\1", "w") TENSOR "sb"

static void objects(void)
{
    put("a", N_("\200\2" MODULE "."), one, 8);
    put("b", N_("\200\2" MODULE "."), other, 8);
    differ_beside("state.w");
    put("a", N_("\200\2}" STR("\1", "m") MODULE "s."), one, 8);
    put("b", N_("\200\2}" STR("\1", "m") MODULE "s."), other, 8);
    differ_beside("m.state.w");
}

static void opaque_tensors(void)
{
    put("a", N_("\200\2}" STR("\1", "x") CONJ "s."), one, 8);
    put("b", N_("\200\2}" STR("\1", "x") CONJ "s."), other, 8);
    differ_beside("x");
}

static void values(void)
{
    put("a", N_("\200\2}(" STR("\1", "w") TENSOR STR("\2", "lr") "K\1u."), one, 8);
    put("b", N_("\200\2}(" STR("\1", "w") TENSOR STR("\2", "lr") "K\2u."), one, 8);
    differ_beside("lr");
    put("a", N_("\200\2}(" STR("\1", "w") TENSOR STR("\2", "lr") "]u."), one, 8);
    put("b", N_("\200\2}(" STR("\1", "w") TENSOR STR("\2", "lr") "}u."), one, 8);
    differ_beside("lr");
}

/* A file with Python's generator under this key: its words are `word`, but the first. */
static void put_python(const char *path, const char *key, char word)
{
    static char p[2048];
    size_t n = (size_t)snprintf(p, sizeof p, "%s", "\200\2}(");
    memcpy(p + n, STR("\1", "w") TENSOR, sizeof(STR("\1", "w") TENSOR) - 1);
    n += sizeof(STR("\1", "w") TENSOR) - 1;
    p[n++] = 'X';
    p[n++] = (char)strlen(key);
    n += 3;                                    /* of the length, which are 0                  */
    memcpy(p + n, key, strlen(key));
    n += strlen(key);
    memcpy(p + n, "K\3(K\1", 5);
    n += 5;
    for (int i = 1; i < 624; i++) {
        p[n++] = 'K';
        p[n++] = word;
    }
    memcpy(p + n, "Mp\2tN\207u.", 8);
    n += 8;
    put(path, p, n, one, 8);
    memset(p, 0, sizeof p);
}

/* Streams are compared as such, wherever they stand in a file. */
static void streams(void)
{
    ckr_diff *d;
    put_python("a", "py", 1);
    put_python("b", "python_rng", 1);
    d = diff_of("a", "b");
    CHECK_INT(d->n_others, 0);
    ckr_diff_free(d);
    put_python("b", "python_rng", 2);
    d = diff_of("a", "b");
    if (CHECK(d->n_others == 1)) CHECK_STR(d->others[0].code, "CKR_DIFF_RNG");
    ckr_diff_free(d);
}

/* A container that stands in two places is told by its first. */
static void shared(void)
{
    put("a", N_("\200\2](]q\1]h\1e."), one, 8);
    put("b", N_("\200\2](]]q\1h\1e."), one, 8);
    differ_beside("2");
}

/* Names of keys that are no text are made of the key, whatever stands before them in the file. */
static void keys(void)
{
    static const char *const names[] = { "(0, 1)", "None", "True", "1.5", "('a',)", "a.(0, (1,))" };
    ckr_ckpt *c;
    uint64_t i;
    put("a", N_("\200\2}(" STR("\1", "n") "K\5(K\0K\1t" TENSOR "N" TENSOR "\210" TENSOR
                "G\77\370\0\0\0\0\0\0" TENSOR STR("\1", "a") "\205" TENSOR
                STR("\1", "a") "}K\0K\1\205\206" TENSOR "su."), one, 8);
    c = open_ok("a");
    if (c && CHECK(c->state.n_tensors == 6))
        for (i = 0; i < 6; i++) CHECK_STR(c->state.tensors[i]->name, names[i]);
    ckr_ckpt_close(c);
}

/* Against another format nothing is known of what is no tensor: that is said, and no difference. */
static void not_compared(void)
{
    const int64_t shape[1] = { 2 };
    float mine[2];
    ckr_ckpt *a, *b = NULL;
    ckr_open_desc desc = CKR_ZERO;
    ckr_diff *d = NULL;
    ckr_error e;
    put("a", N_("\200\2}(" STR("\1", "m") MODULE STR("\1", "w") TENSOR "u."), one, 8);
    a = open_ok("a");
    desc.env = &env;
    CHECK_OK(ckr_ckpt_create(&desc, &b, &e), &e);
    memcpy(mine, one, sizeof mine);
    t_little(mine, sizeof mine, 4);    /* elsewhere `one` stands for a file's bytes     */
    CHECK_OK(ckr_ckpt_put(b, "w", "param", CKR_DTYPE_F32, 1, shape, mine, &e), &e);
    if (a && CHECK_OK(ckr_ckpt_diff(a, b, &d, &e), &e) && CHECK(d->n_others == 1)) {
        CHECK_INT(d->n_tensors, 0);
        CHECK_STR(d->others[0].code, "CKR_DIFF_NOT_COMPARED");
        CHECK_STR(d->others[0].subject, "m");
        CHECK(d->others[0].severity == CKR_APPROX);
    }
    ckr_diff_free(d);
    ckr_ckpt_close(b);
    ckr_ckpt_close(a);
}

/* Tensors in objects are said where the file is read; a copy of it as a whole has them. */
static void in_objects(void)
{
    ckr_target t = CKR_ZERO;
    ckr_plan *p = NULL;
    ckr_error e;
    ckr_ckpt *c;
    const ckr_note *n;
    put("a", N_("\200\2}(" STR("\1", "m") MODULE STR("\1", "w") TENSOR "u."), one, 8);
    c = open_ok("a");
    if (!c) return;
    n = note_of(c->state.notes, c->state.n_notes, "CKR_W_TENSORS_IN_OBJECT");
    if (CHECK(n)) CHECK_STR(n->subject, "m");
    t.mode = CKR_MODE_CONTINUE;
    t.topology.zero = -1;
    if (CHECK_OK(ckr_plan_create(c, &t, 0, &p, &e), &e))
        CHECK(ckr_plan_info(p)->verdict == CKR_VERDICT_EXACT);
    ckr_plan_free(p);
    p = NULL;
    t.dialect = "safetensors";
    if (CHECK_OK(ckr_plan_create(c, &t, 0, &p, &e), &e)) {
        const ckr_plan_facts *f = ckr_plan_info(p);
        n = note_of(f->notes, f->n_notes, "CKR_W_TENSORS_IN_OBJECT");
        CHECK(n && n->severity == CKR_LOST && f->verdict == CKR_VERDICT_APPROX);
    }
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

/* Three elements of a dtype against three others: how many differ, and how far. */
static void distance(ckr_dtype dtype, int64_t n, const void *x, const void *y, uint64_t elements,
                     double max_abs, uint64_t max_ulp)
{
    const void *const data[2] = { x, y };
    ckr_open_desc desc = CKR_ZERO;
    ckr_ckpt *c[2] = { NULL, NULL };
    ckr_diff *d = NULL;
    ckr_error e;
    int i;
    desc.env = &env;
    for (i = 0; i < 2; i++)
        if (!CHECK_OK(ckr_ckpt_create(&desc, &c[i], &e), &e) ||
            !CHECK_OK(ckr_ckpt_put(c[i], "w", "param", dtype, 1, &n, data[i], &e), &e))
            return;
    if (CHECK_OK(ckr_ckpt_diff(c[0], c[1], &d, &e), &e) && CHECK(d->n_tensors == 1)) {
        CHECK_INT(d->tensors[0].n_elements, elements);
        t_check(!(d->tensors[0].max_abs < max_abs) && !(d->tensors[0].max_abs > max_abs), __FILE__,
                __LINE__, "%s: %.17g, expected %.17g", ckr_dtype_name(dtype),
                d->tensors[0].max_abs, max_abs);
        CHECK(d->tensors[0].max_ulp == max_ulp);
    }
    ckr_diff_free(d);
    ckr_ckpt_close(c[1]);
    ckr_ckpt_close(c[0]);
}

/* 1, 2, 1 against 1, 4, 0.5 in each kind; 64-bit integers that no double tells apart. */
static void distances(void)
{
    static const struct { ckr_dtype t; uint8_t x[3], y[3]; } f8[] = {
        { CKR_DTYPE_F8_E4M3FN, { 0x38, 0x40, 0x38 }, { 0x38, 0x48, 0x30 } },
        { CKR_DTYPE_F8_E5M2, { 0x3c, 0x40, 0x3c }, { 0x3c, 0x44, 0x38 } },
        { CKR_DTYPE_F8_E4M3FNUZ, { 0x40, 0x48, 0x40 }, { 0x40, 0x50, 0x38 } },
        { CKR_DTYPE_F8_E5M2FNUZ, { 0x40, 0x44, 0x40 }, { 0x40, 0x48, 0x3c } },
        { CKR_DTYPE_F8_E8M0, { 127, 128, 127 }, { 127, 129, 126 } }
    };
    static const uint16_t h[2][3] = { { 1, 2, 1 }, { 1, 4, 0 } };
    static const uint32_t u[2][3] = { { 1, 2, 1 }, { 1, 4000000000u, 0 } };
    static const float f[2][3] = { { 1, 2, 1 }, { 1, 4, 0.5f } };
    static const float z[2][4] = { { 1, 0, 0, 2 }, { 1, 0, 3, 6 } };
    static const double w[2][4] = { { 1, 0, 0, 2 }, { 1, 0, 3, 6 } };
    static const int64_t i[2] = { (int64_t)1 << 62, ((int64_t)1 << 62) + 1 };
    static const int64_t apart[2] = { INT64_MIN, INT64_MAX };
    static const uint64_t most[2] = { UINT64_MAX, 0 };
    size_t k;
    for (k = 0; k < sizeof f8 / sizeof *f8; k++)
        distance(f8[k].t, 3, f8[k].x, f8[k].y, 2, 2, CKR_NO_ULP);
    distance(CKR_DTYPE_U16, 3, h[0], h[1], 2, 2, CKR_NO_ULP);
    distance(CKR_DTYPE_U32, 3, u[0], u[1], 2, 3999999998.0, CKR_NO_ULP);
    distance(CKR_DTYPE_F32, 3, f[0], f[1], 2, 2, 1 << 23);
    distance(CKR_DTYPE_C64, 2, z[0], z[1], 1, 5, CKR_NO_ULP);
    distance(CKR_DTYPE_C128, 2, w[0], w[1], 1, 5, CKR_NO_ULP);
    distance(CKR_DTYPE_I64, 1, &i[0], &i[1], 1, 1, CKR_NO_ULP);
    distance(CKR_DTYPE_I64, 1, &apart[0], &apart[1], 1, 18446744073709551615.0, CKR_NO_ULP);
    distance(CKR_DTYPE_U64, 1, &most[0], &most[1], 1, 18446744073709551615.0, CKR_NO_ULP);
}

/* A checkpoint in memory with one tensor `w`; NULL: without. */
static ckr_ckpt *with_w(ckr_dtype dtype, uint32_t n_dims, const int64_t *shape, const void *data)
{
    ckr_open_desc desc = CKR_ZERO;
    ckr_ckpt *c = NULL;
    ckr_error e;
    desc.env = &env;
    if (CHECK_OK(ckr_ckpt_create(&desc, &c, &e), &e) && data)
        CHECK_OK(ckr_ckpt_put(c, "w", "param", dtype, n_dims, shape, data, &e), &e);
    return c;
}

static ckr_ckpt *compared[2];

/* Names in the result are the checkpoints', which diff_end closes. */
static ckr_diff *diff_kept(ckr_ckpt *a, ckr_ckpt *b)
{
    ckr_diff *d = NULL;
    ckr_error e;
    CHECK_OK(ckr_ckpt_diff(a, b, &d, &e), &e);
    compared[0] = a;
    compared[1] = b;
    return d;
}

static void diff_end(ckr_diff *d)
{
    ckr_diff_free(d);
    ckr_ckpt_close(compared[1]);
    ckr_ckpt_close(compared[0]);
}

/* Values of two dtypes are compared as the narrower one; of neither, as doubles. */
static void dtypes(void)
{
    static const int64_t n = 4;
    static const float f[2][4] = { { 1, -2, 0.5f, 3 }, { 1, -2, 0.50048828125f, -3 } };
    static const uint16_t bf16[4] = { 0x3f80, 0xc000, 0x3f00, 0x4040 };
    static const uint16_t f16[4] = { 0x3c00, 0xc000, 0x3800, 0x4200 };
    static const int64_t i64[4] = { 1, -2, 0, 3 };
    static const struct {
        ckr_dtype ta, tb, as;
        const void *a, *b;
        uint64_t differ, signs, ulp;
        double max_abs;
    } row[] = {
        { CKR_DTYPE_F32, CKR_DTYPE_BF16, CKR_DTYPE_BF16, f[0], bf16, 0, 0, 0, 0 },
        { CKR_DTYPE_BF16, CKR_DTYPE_F32, CKR_DTYPE_BF16, bf16, f[0], 0, 0, 0, 0 },
        { CKR_DTYPE_F32, CKR_DTYPE_BF16, CKR_DTYPE_BF16, f[1], bf16, 1, 1, 2 * 0x4040, 6 },
        { CKR_DTYPE_F32, CKR_DTYPE_F16, CKR_DTYPE_F16, f[1], f16, 2, 1, 2 * 0x4200, 6 },
        { CKR_DTYPE_F16, CKR_DTYPE_BF16, CKR_DTYPE_F64, f16, bf16, 0, 0, CKR_NO_ULP, 0 },
        { CKR_DTYPE_I64, CKR_DTYPE_F32, CKR_DTYPE_F64, i64, f[0], 1, 0, CKR_NO_ULP, 0.5 },
        { CKR_DTYPE_C64, CKR_DTYPE_I64, CKR_DTYPE_NONE, i64, i64, 4, 0, CKR_NO_ULP, 0 }
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ckr_ckpt *a = with_w(row[i].ta, 1, &n, row[i].a), *b = with_w(row[i].tb, 1, &n, row[i].b);
        ckr_diff *d = NULL;
        ckr_error e;
        if (!a || !b || !CHECK_OK(ckr_ckpt_diff(a, b, &d, &e), &e)) return;
        if (CHECK(d->n_tensors == 1)) {
            const ckr_tensor_diff *x = d->tensors;
            CHECK(x->where == 0 && x->as == row[i].as);
            CHECK(x->a && x->a->dtype == row[i].ta && x->b && x->b->dtype == row[i].tb);
            CHECK_INT(x->n_elements, row[i].differ);
            CHECK_INT(x->n_signs, row[i].signs);
            CHECK(x->max_ulp == row[i].ulp);
            if (row[i].as == CKR_DTYPE_NONE) CHECK(isnan(x->max_abs));
            else CHECK(!(x->max_abs < row[i].max_abs) && !(x->max_abs > row[i].max_abs));
        }
        ckr_diff_free(d);
        ckr_ckpt_close(b);
        ckr_ckpt_close(a);
    }
}

/* A step is a number, whatever it is stored as. */
static void steps(void)
{
    static const int64_t one_axis = 1, i64 = 7, other_i64 = 8;
    static const float f32 = 7;
    for (int k = 0; k < 2; k++) {
        ckr_ckpt *a = with_w(CKR_DTYPE_F32, 0, NULL, NULL),
                 *b = with_w(CKR_DTYPE_F32, 0, NULL, NULL);
        ckr_error e;
        CHECK_OK(ckr_ckpt_put(a, "w", "step", CKR_DTYPE_F32, 1, &one_axis, &f32, &e), &e);
        CHECK_OK(ckr_ckpt_put(b, "w", "step", CKR_DTYPE_I64, 1, &one_axis, k ? &other_i64 : &i64,
                              &e), &e);
        ckr_diff *d = diff_kept(a, b);
        CHECK_INT(d->n_tensors, k);
        diff_end(d);
    }
}

/* A master that one side has not is compared with that side's parameter, if it is fp32. */
static void masters(void)
{
    static const int64_t n = 2;
    static const float v[2][2] = { { 1, 2 }, { 1, 3 } };
    static const uint16_t bf16[2] = { 0x3f80, 0x4000 };
    for (int k = 0; k < 4; k++) {
        ckr_ckpt *a = with_w(CKR_DTYPE_F32, 1, &n, v[0]), *b = with_w(CKR_DTYPE_BF16, 1, &n, bf16);
        ckr_error e;
        CHECK_OK(ckr_ckpt_put(b, "w", "master", CKR_DTYPE_F32, 1, &n, v[k & 1], &e), &e);
        ckr_diff *d = k & 2 ? diff_kept(b, a) : diff_kept(a, b);
        if (CHECK(d->n_tensors == 1 + (uint64_t)(k & 1))) {
            CHECK_STR(d->tensors[k & 1].slot, "param");
            if (k & 1) CHECK_STR(d->tensors[0].slot, "master");
            CHECK(d->tensors[0].where == 0 && d->tensors[0].n_elements == (uint64_t)(k & 1));
        }
        diff_end(d);
    }
}

/* Shapes are told by the tensors; no values are compared, of [2,3] with [3,2] neither. */
static void shapes(void)
{
    static const int64_t shape[2][2] = { { 2, 3 }, { 3, 2 } }, flat = 7;
    static const float v[7] = { 1, 2, 3, 4, 5, 6, 7 };
    for (int i = 0; i < 2; i++) {
        ckr_ckpt *a = with_w(CKR_DTYPE_F32, 2, shape[0], v),
                 *b = i ? with_w(CKR_DTYPE_F32, 1, &flat, v)
                        : with_w(CKR_DTYPE_F32, 2, shape[1], v);
        ckr_diff *d = NULL;
        ckr_error e;
        if (a && b && CHECK_OK(ckr_ckpt_diff(a, b, &d, &e), &e) && CHECK(d->n_tensors == 1)) {
            const ckr_tensor_diff *x = d->tensors;
            CHECK(x->where == 0 && x->as == CKR_DTYPE_NONE && isnan(x->max_abs));
            CHECK(x->max_ulp == CKR_NO_ULP);
            CHECK_INT(x->n_elements, i ? 7 : 6);
            CHECK(x->a->n_dims == 2 && x->a->shape[0] == 2 && x->b->shape[0] == (i ? 7 : 3));
        }
        ckr_diff_free(d);
        ckr_ckpt_close(b);
        ckr_ckpt_close(a);
    }
}

/* The worst element is the first of those that are as far, for any number of threads, and a NaN is
   worse than any number. Across zero there are the floats of both sides and zero. */
static void worst(void)
{
    enum { N = 3 << 20 };
    static const int64_t n = N;
    static float x[N], y[N];
    static const uint64_t at[] = { N - 1, 2000000, 1500000, 7 };
    static const float tiny = 1.40129846e-45f;         /* the smallest above zero           */
    uint32_t threads = env.parallel.n_threads;
    for (uint32_t k = 0; k < 5; k++) {
        env.parallel.n_threads = k == 4 ? 3 : 1 + k % 2;
        memset(x, 0, sizeof x);
        memset(y, 0, sizeof y);
        y[3] = -0.0f;
        x[4] = -tiny;
        y[4] = tiny;
        for (uint32_t i = 0; i < k && i < 4; i++) x[at[i]] = 0.25f;
        if (k == 3) y[1000000] = (float)NAN;
        if (k == 3) y[2500000] = (float)NAN;
        ckr_ckpt *a = with_w(CKR_DTYPE_F32, 1, &n, x), *b = with_w(CKR_DTYPE_F32, 1, &n, y);
        ckr_diff *d = NULL;
        ckr_error e;
        if (a && b && CHECK_OK(ckr_ckpt_diff(a, b, &d, &e), &e) && CHECK(d->n_tensors == 1)) {
            const ckr_tensor_diff *w = d->tensors;
            CHECK_INT(w->n_elements, k == 3 ? 7 : 2 + k);
            CHECK_INT(w->n_signs, 2);
            CHECK_INT(w->worst, k == 0 ? 4 : k == 3 ? 1000000 : at[k - 1]);
            if (k == 0) CHECK(w->max_ulp == 2);
            if (k == 3) CHECK(isnan(w->max_abs) && isnan(w->worst_b) && !isnan(w->worst_a));
            if (k == 1) CHECK(w->worst_a > 0.2 && w->worst_a < 0.3 && !(w->worst_b > 0));
        }
        ckr_diff_free(d);
        ckr_ckpt_close(b);
        ckr_ckpt_close(a);
    }
    env.parallel.n_threads = threads;
}

/* What differs in many parameters is said once; what one side alone has is said, and what neither
   has is not called the same. */
static void groups(void)
{
    static const char *const names[3] = { "a", "b", "c" };
    static const int64_t n = 1;
    static const float v = 1;
    ckr_ckpt *c[2];
    ckr_error e;
    for (int i = 0; i < 2; i++) {
        c[i] = with_w(CKR_DTYPE_F32, 1, &n, NULL);
        for (int k = 0; k < 3; k++)
            CHECK_OK(ckr_ckpt_put(c[i], names[k], "param", CKR_DTYPE_F32, 1, &n, &v, &e), &e);
    }
    ckr_hyper hyper[2] = { { "lr", 0.1 }, { "weight_decay", 0.5 } };
    CHECK_OK(ckr_ckpt_put_group(c[0], "x", names, 2, hyper, 2, &e), &e);
    ckr_diff *d = NULL;
    if (CHECK_OK(ckr_ckpt_diff(c[0], c[1], &d, &e), &e) && CHECK(d->n_others == 1)) {
        CHECK_STR(d->others[0].subject, "groups");
        CHECK_STR(d->others[0].old_value, "1");
        CHECK_STR(d->others[0].new_value, "none");
        CHECK_INT(d->one, CKR_GROUPS);
        CHECK_INT(d->both, CKR_PARAMS);
    }
    ckr_diff_free(d);
    hyper[0].value = 0.2;
    CHECK_OK(ckr_ckpt_put_group(c[1], "x", names, 1, hyper, 2, &e), &e);
    CHECK_OK(ckr_ckpt_put_group(c[1], "y", names + 1, 2, hyper, 2, &e), &e);
    d = diff_kept(c[0], c[1]);
    if (d && CHECK(d->n_others == 2)) {
        CHECK_STR(d->others[0].subject, "group");
        CHECK_STR(d->others[0].reason, "of the parameter c");
        CHECK_STR(d->others[1].subject, "lr");
        CHECK_STR(d->others[1].reason, "of 2 parameters, a the first");
    }
    diff_end(d);
}

static ckr_stats stats_of(ckr_dtype dtype, int64_t n, const void *data)
{
    ckr_stats out = CKR_ZERO;
    ckr_error e;
    ckr_ckpt *c = with_w(dtype, 1, &n, data);
    if (c) {
        const ckr_tensor *t = ckr_ckpt_tensor(c, "w", "param");
        CHECK_OK(ckr_ckpt_stats(c, &t, 1, &out, &e), &e);
    }
    ckr_ckpt_close(c);
    return out;
}

static void is_near(double is, double want)
{
    t_check(fabs(is - want) <= 1e-14 * fabs(want), __FILE__, __LINE__, "%.17g, not %.17g", is,
            want);
}

/* Integers are exact where no double is; NaN and infinity are counted and left out; one pass over
   many windows says what two passes say, and threads do not show. */
static void statistics(void)
{
    enum { N = 3000017 };
    static const float odd[] = { (float)NAN, 3, -0.0f, (float)INFINITY, -1, -(float)INFINITY };
    static const uint8_t bits[] = { 1, 0, 1 };
    static const int64_t i[] = { INT64_MAX, INT64_MIN, INT64_MAX, -3 };
    static const uint64_t u[] = { UINT64_MAX, UINT64_MAX - 2, 5 };
    static const int8_t small[] = { -128, 127, 0 };
    static const uint16_t bf16[] = { 0x3f80, 0xbf80, 0x7fc0, 0x4000 };
    static const float complex_[] = { 1, 2 };
    static float many[N];
    const uint32_t threads = env.parallel.n_threads;
    ckr_stats s = stats_of(CKR_DTYPE_F32, 6, odd);
    CHECK(s.n == 6 && s.n_nan == 1 && s.n_inf == 2 && s.n_zero == 1);
    is_near(s.min, -1);
    is_near(s.max, 3);
    is_near(s.mean, 2.0 / 3);
    is_near(s.std, sqrt(26.0 / 9));
    s = stats_of(CKR_DTYPE_F32, 1, odd);
    CHECK(s.n_nan == 1 && isnan(s.min) && isnan(s.max) && isnan(s.mean) && isnan(s.std));
    s = stats_of(CKR_DTYPE_BOOL, 3, bits);
    CHECK(s.least == 0 && s.most == 1 && s.n_zero == 1);
    is_near(s.mean, 2.0 / 3);
    is_near(s.std, sqrt(2.0) / 3);
    s = stats_of(CKR_DTYPE_I64, 4, i);
    CHECK(s.least == INT64_MIN && s.most == INT64_MAX);
    is_near(s.mean, ((double)INT64_MAX - 5) / 4);
    s = stats_of(CKR_DTYPE_I64, 1, &i[3]);
    is_near(s.mean, -3);
    s = stats_of(CKR_DTYPE_U64, 3, u);
    CHECK(s.least == 5 && (uint64_t)s.most == UINT64_MAX);
    is_near(s.mean, 36893488147419103233.0 / 3);
    s = stats_of(CKR_DTYPE_I8, 3, small);
    CHECK(s.least == -128 && s.most == 127);
    is_near(s.mean, -1.0 / 3);
    s = stats_of(CKR_DTYPE_BF16, 4, bf16);
    CHECK(s.n_nan == 1);
    is_near(s.std, sqrt(14.0 / 9));
    s = stats_of(CKR_DTYPE_C64, 1, complex_);
    CHECK(s.n == 1 && isnan(s.mean) && !s.n_nan);
    double mean = 0, m2 = 0;
    for (uint32_t k = 0; k < N; k++) {
        many[k] = 1000.0f + (float)(k * 2654435761u >> 8) / 16777216.0f;
        mean += (double)many[k];
    }
    mean /= N;
    for (uint32_t k = 0; k < N; k++) m2 += ((double)many[k] - mean) * ((double)many[k] - mean);
    env.parallel.n_threads = 1;
    s = stats_of(CKR_DTYPE_F32, N, many);
    t_check(fabs(s.mean - mean) < 1e-9 && fabs(s.std - sqrt(m2 / N)) < 1e-9, __FILE__, __LINE__,
            "%.17g %.17g, not %.17g %.17g", s.mean, s.std, mean, sqrt(m2 / N));
    env.parallel.n_threads = 3;
    const ckr_stats more = stats_of(CKR_DTYPE_F32, N, many);
    CHECK(!memcmp(&s, &more, sizeof s));
    env.parallel.n_threads = threads;
}

/* What convert says it read and wrote is what digest says of both. */
static void digests(void)
{
    static const char *const to[] = { "torch", "safetensors" };
    ckr_target t = CKR_ZERO;
    ckr_receipt receipt;
    ckr_error e;
    uint8_t total[16];
    size_t i;
    put("a", N_("\200\2}(" STR("\1", "v") TENSOR "q\1" STR("\1", "t") "h\1" STR("\1", "z")
                "ctorch._utils\n_rebuild_tensor_v2\n((" FLOATS "K\0K\0\205K\1\205" TAIL
                STR("\1", "p")        /* begins where the others do, and ends before them */
                "ctorch._utils\n_rebuild_tensor_v2\n((" FLOATS "K\0K\1\205K\1\205" TAIL "u."),
        one, 8);
    t.mode = CKR_MODE_CONTINUE;
    t.topology.zero = -1;
    t.force = true;
    memio_put(&disk, "w/x", "", 0);
    for (i = 0; i < sizeof to / sizeof *to; i++) {
        ckr_ckpt *c = open_ok("a"), *back = NULL;
        ckr_plan *p = NULL;
        t.dialect = to[i];
        if (!c || !CHECK_OK(ckr_ckpt_digest(c, NULL, total, &e), &e)) return;
        memio_remove(&disk, "w/out");
        if (CHECK_OK(ckr_plan_create(c, &t, 0, &p, &e), &e) &&
            CHECK_OK(ckr_plan_write(p, "w/out", &receipt, &e), &e)) {
            CHECK(!memcmp(receipt.digest, total, 16));
            back = open_ok("w/out");
            if (back) CHECK_OK(ckr_ckpt_digest(back, NULL, total, &e), &e);
            CHECK(!memcmp(receipt.digest_written, total, 16));
        }
        ckr_ckpt_close(back);
        ckr_plan_free(p);
        ckr_ckpt_close(c);
    }
}

int main(int argc, char **argv)
{
    t_begin(argc, argv);
    env.io = memio_io(&disk);
    RUN(objects);
    RUN(opaque_tensors);
    RUN(values);
    RUN(streams);
    RUN(shared);
    RUN(keys);
    RUN(not_compared);
    RUN(in_objects);
    RUN(distances);
    RUN(dtypes);
    RUN(steps);
    RUN(masters);
    RUN(shapes);
    RUN(worst);
    RUN(groups);
    RUN(statistics);
    RUN(digests);
    memio_free(&disk);
    return t_end();
}
