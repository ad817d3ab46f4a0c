/* The CUDA executor without a device: its tables and kernels as plain C, lane by lane, against the
   engine of ckptresume.h, bit for bit: random plans, every checkpoint of tests/data through the
   ring of windows, every file that a conversion writes; casts against torch; stochastic rounding;
   Philox. On a device the same runs as tests/cuda.cu. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "t.h"
#include "bad.h"
#include "option.h"
#ifdef __SSE2__
#  include <xmmintrin.h>
#endif
#ifndef __CUDACC__
#  define CKPTRESUME_CUDA_HOST
#endif
#define CKPTRESUME_CUDA_IMPLEMENTATION
#include "ckptresume_cuda.cuh"

#define MAX_DIM 5
#define ROOM 16384

static ckr__ctx t_ctx;
static ckr_error err;

/* Memory that both sides see, zeroed; the end of all work on it. */
#ifdef CKPTRESUME_CUDA_HOST
static void *dev(size_t n)
{
    void *p = calloc(n ? n : 1, 1);
    if (!p) exit(2);
    return p;
}

static void dev_free(void *p)
{
    free(p);
}

static void dev_wait(void)
{
}
#else
static void *dev(size_t n)
{
    void *p = NULL;
    if (cudaMallocManaged(&p, n ? n : 1) != cudaSuccess) exit(2);
    memset(p, 0, n < (size_t)1 << 32 ? n : 0);
    return p;
}

static void dev_free(void *p)
{
    cudaFree(p);
}

static void dev_wait(void)
{
    t_check(cudaDeviceSynchronize() == cudaSuccess, __FILE__, __LINE__, "a kernel failed");
}
#endif

/* Packs and launches. */
static void run(const ckr_cuda_op *ops, size_t n, const ckr_cuda_how *how)
{
    size_t bytes = 0;
    void *table, *device;
    CHECK_OK(ckr_cuda_pack(ops, n, NULL, &bytes, &err), &err);
    table = dev(bytes);
    device = dev(bytes);
    CHECK_OK(ckr_cuda_pack(ops, n, table, &bytes, &err), &err);
    CHECK_OK(ckr_cuda_launch(table, bytes, device, how, NULL, &err), &err);
    dev_wait();
    dev_free(table);
    dev_free(device);
}

/* Strides that put no two elements together, in a random order of the axes, with gaps. */
static uint64_t strides(t_rng *r, uint32_t n, const int64_t *count, int64_t elem, int64_t *out)
{
    int64_t order[MAX_DIM], s = elem;
    uint32_t i, k;
    for (i = 0; i < n; i++) order[i] = n - 1 - i;
    for (i = n; t_range(r, 0, 2) == 0 && i > 1; i--) {
        int64_t t;
        k = (uint32_t)t_range(r, 0, i - 1);
        t = order[i - 1];
        order[i - 1] = order[k];
        order[k] = t;
    }
    for (i = 0; i < n; i++) {
        if (t_range(r, 0, 3) == 0) s += elem * t_range(r, 1, 5);
        out[order[i]] = s;
        s *= count[order[i]] > 0 ? count[order[i]] : 1;
    }
    return (uint64_t)s;
}

typedef struct one_copy {           /* a copy of a random plan                                */
    ckr_tensor t;
    ckr_piece  a, d;
    int64_t    shape[MAX_DIM], zero[MAX_DIM], as[MAX_DIM], ds[MAX_DIM];
    ckr__op    op;
    bool       empty;
} one_copy;

static const ckr_dtype dtypes[] = { CKR_DTYPE_F32, CKR_DTYPE_BF16, CKR_DTYPE_F16, CKR_DTYPE_F64,
                                    CKR_DTYPE_U8, CKR_DTYPE_C128, CKR_DTYPE_I16, CKR_DTYPE_I64 };

static bool make(t_rng *r, one_copy *o, uint64_t *from, uint64_t *to)
{
    const uint32_t n = (uint32_t)t_range(r, 0, MAX_DIM);
    const bool wide = t_range(r, 0, 3) == 0;
    uint64_t sa, sd, ea, ed;
    uint32_t i;
    memset(o, 0, sizeof *o);
    o->a.dtype = dtypes[t_range(r, 0, 7)];
    o->d.dtype = o->a.dtype;
    if (ckr__is_float(o->a.dtype) && t_range(r, 0, 1)) o->d.dtype = dtypes[t_range(r, 0, 3)];
    ea = ckr_dtype_size(o->a.dtype);
    ed = ckr_dtype_size(o->d.dtype);
    for (i = 0; i < n; i++)
        o->shape[i] = wide && i == n - 1 ? t_range(r, 1, 700)
                                         : t_range(r, t_range(r, 0, 30) > 0, 6);
    for (i = 0; i < n; i++) o->empty |= o->shape[i] == 0;
    o->t.n_dims = o->a.n_dims = o->d.n_dims = n;
    o->t.shape = o->shape;
    o->t.slot = "param";
    o->t.dtype = o->a.dtype;
    sa = strides(r, n, o->shape, (int64_t)ea, o->as);
    sd = strides(r, n, o->shape, (int64_t)ed, o->ds);
    *from += (uint64_t)t_range(r, 0, 9);               /* rows that begin anywhere */
    *to += (uint64_t)t_range(r, 0, 9);
    if (o->d.dtype != o->a.dtype) *from = (*from + 7) & ~(uint64_t)7;
    if (o->d.dtype != o->a.dtype) *to = (*to + 7) & ~(uint64_t)7;
    if (*from + sa > ROOM || *to + sd > ROOM) return false;
    o->a.start = o->d.start = o->zero;
    o->a.count = o->d.count = o->shape;
    o->a.stride = o->as;
    o->d.stride = o->ds;
    o->a.file = o->d.file = CKR_NO_FILE;
    o->a.offset = *from;
    o->d.offset = *to;
    o->a.big_endian = t_range(r, 0, 5) == 0;
    *from += sa;
    *to += sd;
    return true;
}

/* One plan: up to 6 copies, by the engine and by the emulated device. */
static void plan(uint64_t seed, uint8_t *src, uint8_t *x, uint8_t *y, ckr__lane *lane)
{
    t_rng r;
    one_copy ones[6];
    ckr_cuda_op ops[6];
    ckr_cuda_stat *stats = (ckr_cuda_stat *)dev(6 * sizeof *stats);
    ckr_cuda_how how;
    uint64_t from = 0, to = 0, sums[6][2];
    uint32_t n = 0, i;
    const uint32_t used = t_ctx.chunks ? (uint32_t)t_ctx.chunks->used : 0;
    r.s = seed;
    memset(sums, 0, sizeof sums);
    memset(&how, 0, sizeof how);
    memset(x, 0x5a, ROOM);
    memset(y, 0x5a, ROOM);
    while (n < 6 && make(&r, &ones[n], &from, &to)) {
        one_copy *o = &ones[n];
        o->t.index = n;
        o->a.mem = src;
        memset(&ops[n], 0, sizeof ops[n]);
        if (o->empty) {
            ops[n].copy.run = 0;
            ops[n].copy.dtype = ops[n].copy.as = CKR_DTYPE_F32;
        } else {
            if (!ckr__op_make(&t_ctx, &o->op, &o->t, o->zero, o->shape, &o->a, NULL, &o->d))
                exit(2);
            lane->sums = sums;
            if (!ckr__op_run(lane, &o->op, 0, ROOM, x)) exit(2);
            ckr__copy_of(&ops[n].copy, &o->op, n);
        }
        ops[n].src = src;
        ops[n].dst = y;
        ops[n].stat = n;
        n++;
    }
    how.stats = stats;
    run(ops, n, &how);
    t_check(!memcmp(x, y, ROOM), __FILE__, __LINE__, "plan %llu: bytes differ",
            (unsigned long long)seed);
    for (i = 0; i < n; i++)
        t_check(stats[i].sums[0] == sums[i][0] && stats[i].sums[1] == sums[i][1], __FILE__,
                __LINE__, "plan %llu: digest of copy %u", (unsigned long long)seed, (unsigned)i);
    dev_free(stats);
    if (t_ctx.chunks && used) t_ctx.chunks->used = used;
}

static void random_plans(void)
{
    static uint8_t temp[2 * CKR__RUN_PART];
    uint8_t *src = (uint8_t *)dev(ROOM), *x = (uint8_t *)dev(ROOM), *y = (uint8_t *)dev(ROOM);
    static ckr__digest_tables tables;
    ckr__lane lane;
    t_rng r;
    uint64_t i;
    r.s = 1;
    ckr__digest_tables_init(&tables);
    memset(&lane, 0, sizeof lane);
    lane.src = lane.other = &t_ctx;
    lane.tables = &tables;
    lane.temp = temp;
    for (i = 0; i < ROOM; i++) src[i] = (uint8_t)t_next(&r);
    CHECK(ckr__arena(&t_ctx, 65536) != NULL);
    for (i = 0; i < t_times(10000, 500); i++) plan(i, src, x, y, &lane);
    dev_free(src);
    dev_free(x);
    dev_free(y);
}

/* Copies whose places are far apart, in memory that is never touched in between. */
static void over_four_gib(void)
{
    const uint64_t size = (uint64_t)9 << 30, there = ((uint64_t)5 << 30) + 3;
#ifdef CKPTRESUME_CUDA_HOST
    uint8_t *a = (uint8_t *)os_map(size), *b = (uint8_t *)os_map(size);
#else
    uint8_t *a = (uint8_t *)dev(size), *b = (uint8_t *)dev(size);
#endif
    ckr_cuda_op op;
    size_t i;
    if (!CHECK(a && b)) return;
    memset(&op, 0, sizeof op);
    for (i = 0; i < 3000; i++) a[there + i] = a[there + 700000001 + i] = (uint8_t)(i * 7 + 1);
    op.copy.dtype = op.copy.as = CKR_DTYPE_U8;
    op.copy.from = there;
    op.copy.to = there + 5;
    op.copy.run = 3000;
    op.copy.n_dims = 2;
    op.copy.count[0] = 1;
    op.copy.count[1] = 2;
    op.copy.from_stride[1] = 700000001;
    op.copy.to_stride[1] = 1500000007;
    op.src = a;
    op.dst = b;
    op.stat = CKR_CUDA_NO_STAT;
    run(&op, 1, NULL);
    CHECK(!memcmp(b + there + 5, a + there, 3000));
    CHECK(!memcmp(b + there + 5 + 1500000007, a + there, 3000));
    CHECK_INT(b[there + 4], 0);
    CHECK_INT(b[there + 3005], 0);
#ifdef CKPTRESUME_CUDA_HOST
    os_unmap(a, size);
    os_unmap(b, size);
#else
    dev_free(a);
    dev_free(b);
#endif
}

/* 100,000 fragments of ZeRO's kind in one launch. */
static void fragments(void)
{
    enum { N = 100000 };
    ckr_cuda_op *ops = (ckr_cuda_op *)calloc(N, sizeof *ops);
    uint8_t *a = (uint8_t *)dev((size_t)N * 48), *b = (uint8_t *)dev((size_t)N * 48);
    size_t i;
    uint64_t at = 0, bad_bytes = 0;
    t_rng r;
    r.s = 5;
    if (!ops) exit(2);
    for (i = 0; i < (size_t)N * 48; i++) a[i] = (uint8_t)t_next(&r);
    for (i = 0; i < N; i++) {
        const int64_t n = t_range(&r, 0, 48);
        ops[i].copy.dtype = ops[i].copy.as = CKR_DTYPE_U8;
        ops[i].copy.run = n;
        ops[i].copy.from = at;
        ops[i].copy.to = at;
        ops[i].src = a;
        ops[i].dst = b;
        ops[i].stat = CKR_CUDA_NO_STAT;
        at += (uint64_t)n;
    }
    run(ops, N, NULL);
    CHECK(!memcmp(a, b, at));
    for (i = at; i < (size_t)N * 48; i++) bad_bytes += b[i] != 0;
    CHECK_INT(bad_bytes, 0);
    free(ops);
    dev_free(a);
    dev_free(b);
}

/* n elements from one dtype to another by a launch, between the device's byte order and ours. */
static void cast(void *src, ckr_dtype from, void *dst, ckr_dtype to, uint64_t n,
                 const ckr_cuda_how *how)
{
    const size_t a = ckr_dtype_size(from), b = ckr_dtype_size(to);
    ckr_cuda_op op;
    memset(&op, 0, sizeof op);
    op.copy.dtype = from;
    op.copy.as = to;
    op.copy.run = (int64_t)n;
    op.src = src;
    op.dst = dst;
    op.stat = how && how->stats ? 0 : CKR_CUDA_NO_STAT;
    t_little(src, (size_t)n * a, a);
    run(&op, 1, how);
    t_little(src, (size_t)n * a, a);
    t_little(dst, (size_t)n * b, b);
}

static uint64_t fnv(const uint8_t *p, size_t n)
{
    uint64_t h = 0xcbf29ce484222325u;
    while (n--) h = (h ^ *p++) * 0x100000001b3u;
    return h;
}

static const ckr_dtype casted[] = { CKR_DTYPE_F32, CKR_DTYPE_BF16, CKR_DTYPE_F16, CKR_DTYPE_F64,
                                    CKR_DTYPE_F8_E4M3FN, CKR_DTYPE_F8_E5M2 };

/* fp8 as torch 2.15 has it (hashes of its own casts); all as the engine has them. */
static void casts(void)
{
    enum { N = 1 << 20 };
    uint16_t *half = (uint16_t *)dev(65536 * 2);
    uint32_t *grid = (uint32_t *)dev(N * 4);
    uint8_t *out = (uint8_t *)dev(N * 8), *want = (uint8_t *)dev(N * 8),
            *bytes = (uint8_t *)dev(256);
    float *wide = (float *)dev(1024);
    ckr_cuda_stat *stat = (ckr_cuda_stat *)dev(sizeof *stat);
    ckr_cuda_how how;
    uint32_t i;
    size_t a, b;
    for (i = 0; i < 65536; i++) half[i] = (uint16_t)i;
    for (i = 0; i < N; i++) grid[i] = i * 4099u;
    for (i = 0; i < 256; i++) bytes[i] = (uint8_t)i;
    cast(half, CKR_DTYPE_F16, out, CKR_DTYPE_F8_E4M3FN, 65536, NULL);
    CHECK(fnv(out, 65536) == 0x2d724a8149ff1225u);
    cast(half, CKR_DTYPE_F16, out, CKR_DTYPE_F8_E5M2, 65536, NULL);
    CHECK(fnv(out, 65536) == 0x087ccdde80d93f25u);
    cast(grid, CKR_DTYPE_F32, out, CKR_DTYPE_F8_E4M3FN, N, NULL);
    for (i = 0; i < N; i++) if ((grid[i] & 0x7fffffffu) > 0x7f800000u) out[i] = 0;
    CHECK(fnv(out, N) == 0x1e6ee1772f4d4f8eu);
    cast(grid, CKR_DTYPE_F32, out, CKR_DTYPE_F8_E5M2, N, NULL);
    for (i = 0; i < N; i++) if ((grid[i] & 0x7fffffffu) > 0x7f800000u) out[i] = 0;
    CHECK(fnv(out, N) == 0x3f00b4c8aa86f010u);
    cast(bytes, CKR_DTYPE_F8_E4M3FN, wide, CKR_DTYPE_F32, 256, NULL);
    for (i = 0; i < 256; i++) if (wide[i] != wide[i]) wide[i] = 0;
    t_little(wide, 1024, 4);
    CHECK(fnv((const uint8_t *)wide, 1024) == 0x854cabd1defe4645u);
    cast(bytes, CKR_DTYPE_F8_E5M2, wide, CKR_DTYPE_F32, 256, NULL);
    for (i = 0; i < 256; i++) if (wide[i] != wide[i]) wide[i] = 0;
    t_little(wide, 1024, 4);
    CHECK(fnv((const uint8_t *)wide, 1024) == 0xa5377db4cd98b445u);
    for (a = 0; a < 6; a++)
        for (b = 0; b < 6; b++) {
            const uint64_t n = N * 4 / ckr_dtype_size(casted[a]);
            const uint64_t m = n < (uint64_t)N ? n : (uint64_t)N;
            if (a == b) continue;
            cast(grid, casted[a], out, casted[b], m, NULL);
            ckr__convert(casted[b], want, casted[a], (const uint8_t *)grid, m);
            t_check(!memcmp(out, want, m * ckr_dtype_size(casted[b])), __FILE__, __LINE__,
                    "%s to %s", ckr_dtype_name(casted[a]), ckr_dtype_name(casted[b]));
        }
    memset(&how, 0, sizeof how);
    how.stats = stat;
    cast(half, CKR_DTYPE_F16, out, CKR_DTYPE_F32, 65536, &how);
    CHECK_INT(stat->n_nonfinite, 2048);
    stat->n_nonfinite = 0;
    cast(half, CKR_DTYPE_BF16, out, CKR_DTYPE_BF16, 65536, &how);
    CHECK_INT(stat->n_nonfinite, 256);
    stat->n_nonfinite = 0;
    cast(bytes, CKR_DTYPE_F8_E5M2, out, CKR_DTYPE_F8_E5M2, 256, &how);
    CHECK_INT(stat->n_nonfinite, 8);
    dev_free(half);
    dev_free(grid);
    dev_free(out);
    dev_free(want);
    dev_free(bytes);
    dev_free(wide);
    dev_free(stat);
}

/* Subnormals survive where the arithmetic of the program takes them for 0, as device code does that
   is compiled with --use_fast_math; here the processor is told to. f64 to f32 and back: exact
   values, halves to even, the largest and past it, what is too small. */
static void subnormals(void)
{
    static const uint64_t d[] = { 0x36a0000000000000u, 0x3690000000000000u, 0x3690000000000001u,
                                  0xb6bc000000000000u, 0x380fffffe0000000u, 0x380fffffc0000000u,
                                  0x47efffffefffffffu, 0x47effffff0000000u, 1,
                                  0x3ff0000010000000u, 0x3ff0000030000000u, 0x8000000000000000u };
    static const uint32_t f[] = { 1, 0, 1, 0x80000004u, 0x00800000u, 0x007fffffu, 0x7f7fffffu,
                                  0x7f800000u, 0, 0x3f800000u, 0x3f800002u, 0x80000000u };
    enum { N = sizeof d / sizeof *d };
    uint64_t *x = (uint64_t *)dev(sizeof d), *z = (uint64_t *)dev(sizeof d);
    uint32_t *y = (uint32_t *)dev(sizeof f);
    size_t i;
#if defined(__SSE2__) && defined(CKPTRESUME_CUDA_HOST)
    const unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | 0x8040);
#endif
    memcpy(x, d, sizeof d);
    cast(x, CKR_DTYPE_F64, y, CKR_DTYPE_F32, N, NULL);
    for (i = 0; i < N; i++) CHECK_INT(y[i], f[i]);
    cast(y, CKR_DTYPE_F32, z, CKR_DTYPE_F64, N, NULL);
    CHECK(z[0] == 0x36a0000000000000u);
    CHECK(z[3] == 0xb6c0000000000000u);
    CHECK(z[4] == 0x3810000000000000u);
    CHECK(z[5] == 0x380fffffc0000000u);
    CHECK(z[6] == 0x47efffffe0000000u);
    CHECK(z[7] == 0x7ff0000000000000u);
    CHECK(z[8] == 0);
    CHECK(z[11] == 0x8000000000000000u);
#if defined(__SSE2__) && defined(CKPTRESUME_CUDA_HOST)
    _mm_setcsr(mode);
#endif
    dev_free(x);
    dev_free(y);
    dev_free(z);
}

/* A table whose ops name statistics, launched without any. */
static void no_statistics(void)
{
    uint32_t *x = (uint32_t *)dev(400), *y = (uint32_t *)dev(400);
    ckr_cuda_how how;
    ckr_cuda_op op;
    uint32_t i;
    for (i = 0; i < 100; i++) x[i] = i * 7;
    memset(&op, 0, sizeof op);
    memset(&how, 0, sizeof how);
    op.copy.dtype = op.copy.as = CKR_DTYPE_U32;
    op.copy.run = 100;
    op.src = x;
    op.dst = y;
    op.stat = 3;
    run(&op, 1, NULL);
    CHECK(!memcmp(x, y, 400));
    memset(y, 0, 400);
    run(&op, 1, &how);
    CHECK(!memcmp(x, y, 400));
    dev_free(x);
    dev_free(y);
}

static void stochastic(void)
{
    enum { N = 65536 };
    uint32_t *x = (uint32_t *)dev(N * 4), words[4];
    uint16_t *y = (uint16_t *)dev(N * 2), *z = (uint16_t *)dev(N * 2);
    ckr_cuda_how how;
    float one = 1.0009765625f;                         /* an eighth between two bf16        */
    uint64_t i, up = 0, other = 0;
    memset(&how, 0, sizeof how);
    how.stochastic = true;
    how.seed = 42;
    how.offset = 7;
    for (i = 0; i < N; i++) memcpy(&x[i], &one, 4);
    cast(x, CKR_DTYPE_F32, y, CKR_DTYPE_BF16, N, &how);
    for (i = 0; i < N; i++) {
        ckr_philox4x32(42, 0, 7 + i / 4, words);
        t_check(y[i] == (x[i] + (words[i % 4] >> 16)) >> 16, __FILE__, __LINE__, "element %llu",
                (unsigned long long)i);
        up += y[i] == 0x3f81;
        other += y[i] != 0x3f81 && y[i] != 0x3f80;
    }
    CHECK_INT(other, 0);
    CHECK(up > 7800 && up < 8600);                     /* of 8192                           */
    cast(x, CKR_DTYPE_F32, z, CKR_DTYPE_BF16, N, &how);
    CHECK(!memcmp(y, z, N * 2));                       /* the same for the same counter     */
    how.offset += N;
    cast(x, CKR_DTYPE_F32, z, CKR_DTYPE_BF16, N, &how);
    CHECK(memcmp(y, z, N * 2) != 0);
    one = 1.5f * 5.9604644775390625e-8f;               /* between two subnormals of f16     */
    for (i = 0; i < N; i++) memcpy(&x[i], &one, 4);
    cast(x, CKR_DTYPE_F32, y, CKR_DTYPE_F16, N, &how);
    for (i = 0, up = 0; i < N; i++) up += y[i] == 2 ? 1u : y[i] == 1 ? 0u : 2u * N;
    CHECK(up > 32000 && up < 33500);
    dev_free(x);
    dev_free(y);
    dev_free(z);
}

/* Casts from and to places that are no multiple of the element, as in a file that lies in device
   memory whole: legacy streams and safetensors begin their data anywhere. */
static void misaligned_casts(void)
{
    enum { N = 1000 };
    uint8_t *src = (uint8_t *)dev(N * 8 + 8), *out = (uint8_t *)dev(N * 8 + 8),
            *want = (uint8_t *)dev(N * 8), *flat = (uint8_t *)dev(N * 8);
    size_t a, b, by;
    t_rng r;
    r.s = 9;
    for (a = 0; a < N * 8; a++) flat[a] = (uint8_t)t_next(&r);
    for (a = 0; a < 6; a++)
        for (b = 0; b < 6; b++)
            for (by = 0; by < 8; by++) {
                if (a == b) continue;
                memcpy(src + by, flat, N * 8);
                cast(src + by, casted[a], out + (by * 3 & 7), casted[b], N, NULL);
                ckr__convert(casted[b], want, casted[a], flat, N);
                t_check(!memcmp(out + (by * 3 & 7), want, N * ckr_dtype_size(casted[b])), __FILE__,
                        __LINE__, "%s to %s, %u bytes on", ckr_dtype_name(casted[a]),
                        ckr_dtype_name(casted[b]), (unsigned)by);
            }
    dev_free(src);
    dev_free(out);
    dev_free(want);
    dev_free(flat);
}

/* torch's Philox engine (corpus rngkat), and torch.rand on a device as published. */
static void philox(void)
{
    static const struct { uint64_t seed, sub, block; uint32_t w[4]; } kat[] = {
        { 0, 0, 0, { 1713891541u, 3781805453u, 3159862348u, 2600524760u } },
        { 0, 1, 0, { 2219120097u, 4035800746u, 253345875u, 2214098416u } },
        { 0, 0, 2, { 83534633u, 1372009126u, 605361069u, 1167144420u } },
        { 42, 3, 2, { 1378468243u, 3851054476u, 2183073026u, 2660798169u } },
        { 67280421310721u, 0, 0, { 1688461558u, 3610125739u, 199308923u, 1408028461u } },
        { 1311768467463790320u, 4294967297u, 274877906944u,
          { 1628693988u, 3400800451u, 2588518282u, 763133310u } },
        { UINT64_MAX, UINT64_MAX, UINT64_MAX,
          { 1083123565u, 1103641358u, 2718681030u, 1834242557u } },
        { 1, 6, 1024, { 2662098515u, 3045669881u, 296948702u, 3947999805u } }
    };
    static const int first[] = { 3990, 5167, 249, 9401, 9459, 7967, 4150, 8203, 2290, 9096 },
                     second[] = { 9722, 7910, 4690, 3300, 3345, 3783, 7640, 6405, 1103, 3594 };
    uint32_t w[4];
    float *x = (float *)dev(300000 * 4);
    size_t i;
    for (i = 0; i < sizeof kat / sizeof *kat; i++) {
        ckr_philox4x32(kat[i].seed, kat[i].sub, kat[i].block, w);
        t_check(!memcmp(w, kat[i].w, 16), __FILE__, __LINE__, "vector %u", (unsigned)i);
    }
    CHECK_INT(ckr_cuda_uniform(0, 0, 10, 108, 2048, x, NULL), 4);
    dev_wait();
    for (i = 0; i < 10; i++) CHECK_INT((int)(x[i] * 10000 + 0.5f), first[i]);
    CHECK_INT(ckr_cuda_uniform(0, 4, 10, 132, 2048, x, NULL), 4);
    dev_wait();
    for (i = 0; i < 10; i++) CHECK_INT((int)(x[i] * 10000 + 0.5f), second[i]);
    CHECK_INT(ckr_cuda_uniform(3, 8, 300000, 108, 2048, x, NULL), 4);
    dev_wait();
    ckr_philox4x32(3, 221184 % 221184, 2, w);          /* element 221184: thread 0, word 1 */
    CHECK(x[221184] == ckr__k_unit(w[1]));
    CHECK_INT(ckr_cuda_uniform(3, 8, 4097, 1, 256, x, NULL), 20);
    CHECK_INT(ckr_cuda_uniform(3, 8, 10, 0, 2048, x, NULL), 0);
    CHECK_INT(ckr_cuda_uniform(3, 8, 10, 108, 128, x, NULL), 0);
    dev_wait();
    dev_free(x);
}

/* Every tensor of a checkpoint through windows, as stored and cast; digests as the engine's. */
static void through_the_ring(const char *path, size_t window, ckr_dtype as)
{
    uint8_t *pinned = (uint8_t *)dev(3 << 20), *device = (uint8_t *)dev(3 << 20);
    ckr_ckpt *c = NULL;
    const ckr_state *s;
    ckr_read *x, *y;
    ckr_copy *copies;
    ckr_cuda_stat *stats;
    ckr_cuda_how how;
    ckr_cuda_ring ring;
    uint8_t (*digests)[16], total[16], d[16];
    size_t n_copies = 0, i, n, bad_count = 0;
    CHECK_OK(ckr_ckpt_open(path, NULL, &c, &err), &err);
    if (!c) return;
    s = ckr_ckpt_state(c);
    n = (size_t)s->n_tensors;
    x = (ckr_read *)calloc(n, sizeof *x);
    y = (ckr_read *)calloc(n, sizeof *y);
    stats = (ckr_cuda_stat *)dev(n * sizeof *stats);
    digests = (uint8_t(*)[16])calloc(n, 16);
    if (!x || !y || !stats || !digests) exit(2);
    for (i = 0; i < n; i++) {
        const ckr_tensor *t = s->tensors[i];
        x[i].tensor = t;
        x[i].as = as != CKR_DTYPE_NONE && ckr__is_float(t->dtype) ? as : t->dtype;
        x[i].dst_size = (size_t)ckr__box_volume(t->n_dims, t->shape) * ckr_dtype_size(x[i].as);
        y[i] = x[i];
        x[i].dst = calloc(x[i].dst_size + 1, 1);
        y[i].dst = dev(x[i].dst_size + 1);
    }
    CHECK_OK(ckr_ckpt_read(c, x, n, &err), &err);
    CHECK_OK(ckr_ckpt_digest(c, digests, total, &err), &err);
    CHECK_OK(ckr_ckpt_copies(c, y, n, NULL, &n_copies, &err), &err);
    copies = (ckr_copy *)calloc(n_copies + 1, sizeof *copies);
    CHECK_OK(ckr_ckpt_copies(c, y, n, copies, &n_copies, &err), &err);
    CHECK_OK(ckr_cuda_ring_init(&ring, pinned, device, window, 2, &err), &err);
    ring.parallel.for_fn = ckr__os_for;
    ring.parallel.n_threads = 2;
    memset(&how, 0, sizeof how);
    how.stats = stats;
    CHECK_OK(ckr_cuda_read(&ring, c, y, copies, n_copies, &how, NULL, &err), &err);
    dev_wait();
    ckr_cuda_ring_free(&ring);
    for (i = 0; i < n; i++) {
        const ckr_tensor *t = s->tensors[i];
        ckr_digest_finish(stats[i].sums, t->dtype, t->n_dims, t->shape, d);
        t_little(y[i].dst, x[i].dst_size, ckr__dtypes[x[i].as].swap);
        bad_count += memcmp(x[i].dst, y[i].dst, x[i].dst_size) || memcmp(d, digests[i], 16);
        free(x[i].dst);
        dev_free(y[i].dst);
    }
    t_check(bad_count == 0 && n > 0, __FILE__, __LINE__, "%s: %u of %u tensors differ", path,
            (unsigned)bad_count, (unsigned)n);
    free(x);
    free(y);
    dev_free(stats);
    dev_free(pinned);
    dev_free(device);
    free(digests);
    free(copies);
    ckr_ckpt_close(c);
}

static void checkpoints(void)
{
    static const char *const paths[] = {
        "tests/data/nanotron/tp1_pp2_dp1_tied/ckpt", "tests/data/nanotron/tp2_pp1_dp1/ckpt",
        "tests/data/nanotron/tp2_pp1_dp2_zero1_bf16_master/ckpt",
        "tests/data/accelerate/acc_w2_bin_tied_bf16/ckpt", "tests/data/llmc/uneven/ckpt"
    };
    size_t i;
    for (i = 0; i < sizeof paths / sizeof *paths; i++) {
        through_the_ring(paths[i], (size_t)1 << 20, CKR_DTYPE_NONE);
        through_the_ring(paths[i], (size_t)3 << 19, CKR_DTYPE_BF16);
    }
}

/* Windows smaller than a tensor: rows, gaps and transposes are cut. */
static void small_windows(void)
{
    enum { R = 700, C = 900 };
    uint8_t *pinned = (uint8_t *)dev(2 << 20), *device = (uint8_t *)dev(2 << 20);
    float *data = (float *)dev(R * C * 4), *out = (float *)dev(R * C * 4);
    ckr_copy c;
    ckr_read r = CKR_ZERO;
    ckr_cuda_ring ring;
    ckr_ckpt *k = NULL;
    size_t i, wrong = 0;
    CHECK_OK(ckr_ckpt_create(NULL, &k, &err), &err);
    for (i = 0; i < R * C; i++) data[i] = (float)i;
    CHECK_OK(ckr_cuda_ring_init(&ring, pinned, device, (size_t)1 << 20, 2, &err), &err);
    memset(&c, 0, sizeof c);
    c.file = CKR_NO_FILE;
    c.mem = data;
    c.dtype = c.as = CKR_DTYPE_F32;
    c.n_dims = 2;                                      /* out[col][row] = data[row][col] */
    c.run = 1;
    c.count[0] = C;
    c.count[1] = R;
    c.from_stride[0] = 4;
    c.from_stride[1] = 4 * C;
    c.to_stride[0] = 4 * R;
    c.to_stride[1] = 4;
    r.dst = out;
    CHECK_OK(ckr_cuda_read(&ring, k, &r, &c, 1, NULL, NULL, &err), &err);
    dev_wait();
    for (i = 0; i < R * C; i++) wrong += out[i % C * R + i / C] != data[i];
    CHECK_INT(wrong, 0);
    memset(out, 0, R * C * 4);
    c.n_dims = 1;                                      /* 500 columns of each row */
    c.run = 500;
    c.count[0] = R;
    c.from = 4 * 100;
    c.from_stride[0] = 4 * C;
    c.to_stride[0] = 4 * 500;
    CHECK_OK(ckr_cuda_read(&ring, k, &r, &c, 1, NULL, NULL, &err), &err);
    dev_wait();
    for (i = 0, wrong = 0; i < R * 500; i++) wrong += out[i] != data[i / 500 * C + 100 + i % 500];
    CHECK_INT(wrong, 0);
    c.run = 50;                                        /* far apart: read one by one */
    c.to_stride[0] = 4 * 50;
    CHECK_OK(ckr_cuda_read(&ring, k, &r, &c, 1, NULL, NULL, &err), &err);
    dev_wait();
    for (i = 0, wrong = 0; i < R * 50; i++) wrong += out[i] != data[i / 50 * C + 100 + i % 50];
    CHECK_INT(wrong, 0);
    ckr_cuda_ring_free(&ring);
    dev_free(pinned);
    dev_free(device);
    dev_free(data);
    dev_free(out);
    ckr_ckpt_close(k);
}

/* Ops that a window's worth of a copy takes: neighbours in the source go together, however the
   tensor is turned. */
static void few_ops(void)
{
    static const struct { int64_t count[3], from[3]; uint64_t most; } rows[] = {
        { { 900, 700, 1 }, { 4, 3600, 2520000 }, 3 },          /* out[col][row] */
        { { 700, 900, 1 }, { 3600, 4, 2520000 }, 3 },          /* as it lies */
        { { 30, 70, 300 }, { 4, 36000, 120 }, 3 },             /* (1, 2, 0) of [70, 300, 30] */
        { { 70, 30, 300 }, { 36000, 4, 120 }, 3 },
        { { 500, 64, 1 }, { 0, 4, 256 }, 1 },                  /* expanded rows */
    };
    ckr_copy c, o, part;
    uint64_t done, n, all, ops, span;
    size_t i;
    int k;
    for (i = 0; i < sizeof rows / sizeof *rows; i++) {
        memset(&c, 0, sizeof c);
        c.dtype = c.as = CKR_DTYPE_F32;
        c.n_dims = 3;
        c.run = 1;
        for (k = 2, all = 1; k >= 0; k--) {
            c.count[k] = rows[i].count[k];
            c.from_stride[k] = rows[i].from[k];
            c.to_stride[k] = c.at_stride[k] = (int64_t)(4 * all);
            all *= (uint64_t)c.count[k];
        }
        ckr__cu_order(&c, &o);
        for (done = ops = 0; done < all; done += n, ops++) {
            n = ckr__cu_take(&o, done, (uint64_t)1 << 20, &part, &span);
            if (!CHECK(n > 0 && span <= (uint64_t)1 << 20)) return;
        }
        t_check(ops <= rows[i].most, __FILE__, __LINE__, "row %u: %u ops", (unsigned)i,
                (unsigned)ops);
    }
}

/* The files that a conversion writes, entry by entry, by both. */
static void conversion(const char *path, const char *to, uint32_t tp, uint32_t dp, int32_t zero)
{
    ckr_ckpt *c = NULL;
    ckr_plan *p = NULL;
    ckr_target t = CKR_ZERO;
    ckr__crew crew;
    ckr__ready ready;
    uint64_t i, k, m, n_entries = 0;
    t.mode = CKR_MODE_CONTINUE;
    t.dialect = to;
    t.topology.tp = tp;
    t.topology.dp = dp;
    t.topology.zero = stage_of(zero);
    CHECK_OK(ckr_ckpt_open(path, NULL, &c, &err), &err);
    if (!c) return;
    CHECK_OK(ckr_plan_create(c, &t, 0, &p, &err), &err);
    CHECK(p && ckr_plan_info(p)->verdict != CKR_VERDICT_REFUSED);
    CHECK(ckr__crew_make(&crew, &p->ctx, &c->ctx, NULL, 0) == CKR_OK);
    CHECK_OK(ckr__plan_ready(&ready, &p->ctx, p, 0, p->out.n_files, true),
             p->ctx.err);
    for (i = 0; i < p->out.n_files; i++)
        for (k = 0; k < p->out.files[i]->n_entries; k++) {
            const ckr_entry *e = p->out.files[i]->entries[k];
            const ckr__fill *f = (const ckr__fill *)e->ops;
            uint8_t *x = (uint8_t *)calloc((size_t)e->n_bytes + 1, 1),
                    *y = (uint8_t *)dev((size_t)e->n_bytes + 1);
            ckr_cuda_op *ops = (ckr_cuda_op *)calloc((size_t)f->n_ops + 1, sizeof *ops);
            uint8_t **files = (uint8_t **)calloc(c->ctx.n_files + 1, sizeof *files);
            for (m = 0; m < f->n_ops; m++) {
                const ckr_piece *a = f->ops[m].pa;
#ifndef CKPTRESUME_CUDA_HOST
                if (a->file == CKR_NO_FILE) break;     /* no device sees the header's arena */
#endif
                CHECK(ckr__op_run(&crew.lanes[0], &f->ops[m], 0, e->n_bytes, x));
                ckr__copy_of(&ops[m].copy, &f->ops[m], 0);
                if (a->file != CKR_NO_FILE && !files[a->file]) {
                    const size_t size = (size_t)c->ctx.files[a->file].size;
                    files[a->file] = (uint8_t *)dev(size);
                    CHECK_OK(ckr_ckpt_bytes(c, a->file, 0, files[a->file], size, &err), &err);
                }
                ops[m].src = a->file == CKR_NO_FILE ? a->mem : files[a->file];
                ops[m].dst = y;
                ops[m].stat = CKR_CUDA_NO_STAT;
            }
            run(ops, (size_t)f->n_ops, NULL);
            t_check(!memcmp(x, y, (size_t)e->n_bytes), __FILE__, __LINE__, "%s: %s", path, e->name);
            n_entries++;
            for (m = 0; m < c->ctx.n_files; m++)
                if (files[m]) dev_free(files[m]);
            free(files);
            free(x);
            dev_free(y);
            free(ops);
        }
    CHECK(n_entries > 10 || !strcmp(to, "llmc"));
    ckr__plan_drop(&ready, p);
    ckr__crew_free(&crew);
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

static void conversions(void)
{
    conversion("tests/data/nanotron/tp2_pp1_dp1/ckpt", "nanotron", 1, 1, 0);
    conversion("tests/data/nanotron/tp1_pp2_dp1_tied/ckpt", "nanotron", 2, 2, 1);
    conversion("tests/data/nanotron/tp2_pp1_dp2_zero1_bf16_master/ckpt", "nanotron", 1, 3, 1);
    conversion("tests/data/llmc/uneven/ckpt", "llmc", 1, 4, 1);
    conversion("tests/data/llmc/uneven/ckpt", "safetensors", 1, 1, 0);
    conversion("tests/data/accelerate/acc_w2_bin_tied_bf16/ckpt", "accelerate", 1, 3, 0);
}

static void refused(void)
{
    ckr_cuda_op op;
    ckr_cuda_ring ring;
    size_t bytes = 0;
    uint64_t room[2048];
    uint32_t k;
    memset(&op, 0, sizeof op);
    op.copy.dtype = CKR_DTYPE_I32;
    op.copy.as = CKR_DTYPE_F32;
    op.copy.run = 1;
    bad_is(ckr_cuda_pack(&op, 1, NULL, &bytes, &err), &err, "cast",
           bad(CKR_ITEM_CAST, "", CKR_NO_OFFSET, "ckr_cuda_pack"));
    op.copy.as = CKR_DTYPE_I32;
    op.src = op.dst = &k;
    op.stat = CKR_CUDA_NO_STAT;
    CHECK_OK(ckr_cuda_pack(&op, 1, NULL, &bytes, &err), &err);
    CHECK(bytes <= sizeof room);
    bytes--;
    bad_is(ckr_cuda_pack(&op, 1, room, &bytes, &err), &err, "small",
           bad(CKR_ITEM_ARG, "", CKR_NO_OFFSET, "bytes"));
    bytes = sizeof room;
    CHECK_OK(ckr_cuda_pack(&op, 1, room, &bytes, &err), &err);
    bad_is(ckr_cuda_launch(room, bytes, NULL, NULL, NULL, &err), &err, "no memory",
           bad(CKR_ITEM_BACKEND, "", CKR_NO_OFFSET, "table"));
    CHECK_INT(err.sys_error, 1);
    bad_is(ckr_cuda_ring_init(&ring, room, room, 4096, 2, &err), &err, "ring",
           bad(CKR_ITEM_ARG, "", CKR_NO_OFFSET, "ring"));
}

int main(int argc, char **argv)
{
    static const ckr_item never[] = { CKR_ITEM_OK };
    t_begin(argc, argv);
    ckr__ctx_init(&t_ctx, NULL, NULL, &err);
    RUN(random_plans);
    if (sizeof(size_t) > 4) RUN(over_four_gib);        /* there is no such memory elsewhere   */
    RUN(fragments);
    RUN(casts);
    RUN(misaligned_casts);
    RUN(subnormals);
    RUN(no_statistics);
    RUN(stochastic);
    RUN(philox);
    RUN(checkpoints);
    RUN(small_windows);
    RUN(few_ops);
    RUN(conversions);
    RUN(refused);
    if (argc < 2) bad_all_seen(BAD_CUDA, never);
    ckr__ctx_free(&t_ctx);
    return t_end();
}
