/* ckptresume_cuda.cuh 0.1.0 - the copies of ckptresume.h, carried out on a CUDA device. MIT or
   public domain, at your choice (see LICENSE). No warranty.

   Do this
   -------
   In one .cu file, before its other includes:

       #define CKPTRESUME_CUDA_IMPLEMENTATION
       #include "ckptresume_cuda.cuh"

   and #include "ckptresume_cuda.cuh" (or ckptresume.h with CKPTRESUME_CUDA defined) wherever else
   you use it, from C or C++. ckptresume.h's own implementation may be in the same file or in
   another.

   What it does
   ------------
   A list of strided copies (ckr_ckpt_copies) is packed into a table, and one launch does all of
   them: rows and columns merged or split, fused tensors taken apart, padding left alone, ZeRO's
   flat fragments gathered or scattered, dtypes cast on the way (f64 f32 f16 bf16 f8_e4m3fn f8_e5m2;
   to nearest even, or stochastically by a counter), the digest's sums and the number of non-finite
   elements taken from the same read.

       ckr_cuda_pack    ops -> table, in host memory; NULL first, for its size
       ckr_cuda_launch  table -> device, kernel; a stream's work, may be captured into a graph
       ckr_cuda_read    a checkpoint's boxes -> device memory, through a ring of pinned windows, so
                        that reading overlaps with uploads and kernels, which follow each other
       ckr_philox4x32, ckr_cuda_uniform   torch's device generator

   Nothing is allocated, and no device is waited for, inside a call; ckr_cuda_read waits for the
   event of a window before it fills it again. Work goes to the current device: each rank has its
   own.

   Without a device: with CKPTRESUME_CUDA_HOST defined everything here is plain C for the host, the
   kernels' index logic run lane by lane; "device" memory is host memory and streams are ignored.
   That is how the tests prove it against ckptresume.h's engine, bit for bit. */

#ifndef CKPTRESUME_CUDA_CUH
#define CKPTRESUME_CUDA_CUH

#define CKR__IN_CUH            /* with CKPTRESUME_CUDA it includes this file, which is not done */
#include "ckptresume.h"
#undef CKR__IN_CUH

#ifdef CKPTRESUME_CUDA_HOST
typedef void *ckr_cuda_stream;
typedef void *ckr_cuda_event;
#else
#  include <cuda_runtime_api.h>
typedef cudaStream_t ckr_cuda_stream;
typedef cudaEvent_t ckr_cuda_event;
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define CKR_CUDA_NO_STAT UINT32_MAX
#define CKR_CUDA_MAX_WINDOWS 8

/* Of one tensor, added up by launches; zero it first. */
typedef struct ckr_cuda_stat {
    uint64_t sums[2];          /* for ckr_digest_finish                                  */
    uint64_t n_nonfinite;      /* infinities and NaNs, of the dtypes that can be cast    */
} ckr_cuda_stat;

/* Both sides may begin at any byte; what is read is not written by the same launch. */
typedef struct ckr_cuda_op {
    ckr_copy    copy;
    const void *src;           /* device; the byte that copy.from == 0 means              */
    void       *dst;           /* device; the byte that copy.to == 0 means                */
    uint32_t    stat;          /* index, or CKR_CUDA_NO_STAT                              */
} ckr_cuda_op;

typedef struct ckr_cuda_how {  /* NULL: to nearest even, no statistics                   */
    bool           stochastic; /* casts from float32 to fewer bits round up or down by chance (f64
                                  becomes float32 first, to nearest)                     */
    uint64_t       seed, offset;       /* of the Philox counter: element e of read r draws word
                                          e % 4 of block offset + e / 4, subsequence r    */
    ckr_cuda_stat *stats;      /* device; NULL: none are taken, whatever the ops name    */
} ckr_cuda_how;

/* Packs the ops; `table` NULL: *bytes says what it takes, else it is its room (give what was said).
   Refuses casts that are none (CKR_E_UNSUPPORTED). Thread-safe. */
CKR_API ckr_result ckr_cuda_pack(const ckr_cuda_op *ops, size_t n, void *table, size_t *bytes,
                                 ckr_error *err);

/* Uploads a packed table of `bytes` to d_table (as many, 16-byte aligned) and starts the kernel,
   both on the stream. The table must stay until they are done, and be pinned to be asynchronous; in
   a captured graph both tables and `stats` must stay as long as the graph, which uploads again. */
CKR_API ckr_result ckr_cuda_launch(const void *table, size_t bytes, void *d_table,
                                   const ckr_cuda_how *how, ckr_cuda_stream stream, ckr_error *err);

/* Windows of pinned and of device memory, the caller's: n of each, of `window` bytes (1 MiB at
   least; 16 to 64 MiB are good). */
typedef struct ckr_cuda_ring {
    void          *pinned, *device;    /* n * window bytes each                          */
    size_t         window;
    uint32_t       n, next;
    ckr_parallel   parallel;   /* reads a window with several threads; for_fn NULL: one  */
    ckr_cuda_event event[CKR_CUDA_MAX_WINDOWS];
    bool           busy[CKR_CUDA_MAX_WINDOWS];
} ckr_cuda_ring;
CKR_API ckr_result ckr_cuda_ring_init(ckr_cuda_ring *ring, void *pinned, void *device,
                                      size_t window, uint32_t n, ckr_error *err);
CKR_API void       ckr_cuda_ring_free(ckr_cuda_ring *ring);    /* waits for its windows         */

/* Reads into device memory: reads[i].dst are device pointers, `copies` what ckr_ckpt_copies said of
   these reads. Statistics of read i are how->stats[i]. When it returns the work is on the stream.
   Takes half a MiB of the thread's stack. */
CKR_API ckr_result ckr_cuda_read(ckr_cuda_ring *ring, const ckr_ckpt *c, const ckr_read *reads,
                                 const ckr_copy *copies, size_t n_copies, const ckr_cuda_how *how,
                                 ckr_cuda_stream stream, ckr_error *err);

/* Philox4x32-10: the block `block` of the subsequence, key = seed. torch's CUDA generator with a
   state (seed, offset) draws in thread t the blocks offset / 4 and on, of subsequence t. */
CKR_API void ckr_philox4x32(uint64_t seed, uint64_t subsequence, uint64_t block, uint32_t out[4]);

/* torch.rand(n, device="cuda") as float32 for a generator at (seed, offset), on a device of so many
   multiprocessors and threads in each (256 at least); returns how far the offset goes on. out:
   device. torch draws more than 2^29 elements in parts, this does not. Whether the kernel was
   started is for cudaGetLastError to say. */
CKR_API uint64_t ckr_cuda_uniform(uint64_t seed, uint64_t offset, uint64_t n, uint32_t processors,
                                  uint32_t threads, float *out, ckr_cuda_stream stream);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* CKPTRESUME_CUDA_CUH */

/* ============================================================================
   The public part ends here. What follows is the implementation.
   ============================================================================ */
#if defined(CKPTRESUME_CUDA_IMPLEMENTATION) && !defined(CKPTRESUME_CUDA_IMPLEMENTED)
#define CKPTRESUME_CUDA_IMPLEMENTED

#include <stdio.h>
#include <string.h>

#if defined(CKPTRESUME_CUDA_HOST)
#  define CKR__HD static
#else
#  define CKR__HD static inline __host__ __device__
#endif
#if defined(__CUDA_ARCH__)
#  define CKR__UNROLL _Pragma("unroll")
#else
#  define CKR__UNROLL
#endif
#define CKR__K_LANES 256u      /* threads of a block                                     */
#define CKR__K_TILE  32768u    /* bytes of a block's turn                                */

/* >>cuda.bits ----------------------------------------------------------------- */
/* Loads and stores of 1 to 16 bytes at addresses that are multiples of their size. Devices are
   little-endian, and so is what they are given and give. A big-endian host in the place of one
   turns round what it loads and stores; its table is its own. */

typedef struct ckr__k_16 { uint64_t lo, hi; } ckr__k_16;

#if defined(CKPTRESUME_CUDA_HOST) && defined(__BYTE_ORDER__) &&                                    \
    __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
static void ckr__k_turn(void *p, size_t n)
{
    uint8_t *b = (uint8_t *)p, t;
    size_t i;
    for (i = 0; i < n / 2; i++) {
        t = b[i];
        b[i] = b[n - 1 - i];
        b[n - 1 - i] = t;
    }
}
#  define CKR__K_TURN(v) ckr__k_turn(&(v), sizeof(v))
#else
#  define CKR__K_TURN(v) (void)0
#endif

#ifdef CKPTRESUME_CUDA_HOST
/* A device faults at an address that is no multiple of the access, the host in its place doesn't:
   so it counts them. */
static uint64_t ckr__cu_misaligned;
#  define CKR__K_AT(p, n) ckr__cu_misaligned += (p) % (n) != 0
#else
#  define CKR__K_AT(p, n) (void)0
#endif

/* What is read and written once passes the caches by. */
#if defined(__CUDA_ARCH__)
#  define CKR__K_LOAD(native, type) return __ldcs((const native *)p)
#  define CKR__K_STORE(native, type) __stcs((native *)p, (native)v)
#else
#  define CKR__K_LOAD(native, type)                                                                \
      type v;                                                                                      \
      CKR__K_AT(p, sizeof v);                                                                      \
      memcpy(&v, (const void *)(uintptr_t)p, sizeof v);                                            \
      CKR__K_TURN(v);                                                                              \
      return v
#  define CKR__K_STORE(native, type)                                                               \
      CKR__K_AT(p, sizeof v);                                                                      \
      CKR__K_TURN(v);                                                                              \
      memcpy((void *)(uintptr_t)p, &v, sizeof v)
#endif
#define CKR__K_ACCESS(name, native, type)                                                          \
    CKR__HD type ckr__k_load##name(uint64_t p) { CKR__K_LOAD(native, type); }                      \
    CKR__HD void ckr__k_store##name(uint64_t p, type v) { CKR__K_STORE(native, type); }
CKR__K_ACCESS(8, unsigned long long, uint64_t)
CKR__K_ACCESS(4, unsigned int, uint32_t)
CKR__K_ACCESS(2, unsigned short, uint16_t)
CKR__K_ACCESS(1, unsigned char, uint8_t)
#undef CKR__K_ACCESS
#undef CKR__K_LOAD
#undef CKR__K_STORE

CKR__HD ckr__k_16 ckr__k_load16(uint64_t p)
{
    ckr__k_16 v;
#if defined(__CUDA_ARCH__)
    const ulonglong2 w = __ldcs((const ulonglong2 *)p);
    v.lo = w.x;
    v.hi = w.y;
#else
    CKR__K_AT(p, sizeof v);
    memcpy(&v, (const void *)(uintptr_t)p, sizeof v);
    CKR__K_TURN(v.lo);
    CKR__K_TURN(v.hi);
#endif
    return v;
}

CKR__HD void ckr__k_store16(uint64_t p, ckr__k_16 v)
{
#if defined(__CUDA_ARCH__)
    ulonglong2 w;
    w.x = v.lo;
    w.y = v.hi;
    __stcs((ulonglong2 *)p, w);
#else
    CKR__K_AT(p, sizeof v);
    CKR__K_TURN(v.lo);
    CKR__K_TURN(v.hi);
    memcpy((void *)(uintptr_t)p, &v, sizeof v);
#endif
}

/* What every thread reads again: the table. */
CKR__HD uint64_t ckr__k_get8(uint64_t p)
{
    return *(const uint64_t *)(uintptr_t)p;
}

CKR__HD uint32_t ckr__k_get4(uint64_t p)
{
    return *(const uint32_t *)(uintptr_t)p;
}

CKR__HD uint64_t ckr__k_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

CKR__HD uint32_t ckr__k_high(uint32_t a, uint32_t b)
{
    return (uint32_t)((uint64_t)a * b >> 32);
}

/* Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011. */
CKR__HD void ckr__k_philox(uint64_t seed, uint64_t sub, uint64_t block, uint32_t c[4])
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32), c0 = (uint32_t)block,
             c1 = (uint32_t)(block >> 32), c2 = (uint32_t)sub, c3 = (uint32_t)(sub >> 32);
    int i;
    for (i = 0; i < 10; i++) {
        const uint32_t a = ckr__k_high(0xd2511f53u, c0), b = 0xd2511f53u * c0,
                       d = ckr__k_high(0xcd9e8d57u, c2), e = 0xcd9e8d57u * c2;
        c0 = d ^ c1 ^ k0;
        c1 = e;
        c2 = a ^ c3 ^ k1;
        c3 = b;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    c[0] = c0;
    c[1] = c1;
    c[2] = c2;
    c[3] = c3;
}

/* >>cuda.cast ----------------------------------------------------------------- */
/* Everything goes through the bits of a float32, as on the CPU; a NaN stays one, quiet. Above its
   range e4m3fn, which has no infinity, gives its largest, as torch 2.15 does; e5m2 gives infinity.
   */

CKR__HD uint32_t ckr__k_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

/* Word i of four, without an array that has an address. */
CKR__HD uint32_t ckr__k_word(const uint32_t w[4], uint64_t i)
{
    return i < 2 ? i == 0 ? w[0] : w[1] : i == 2 ? w[2] : w[3];
}

CKR__HD float ckr__k_float(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}

/* A small float of e exponent and m fraction bits as float32; `ieee`: the top exponent is infinity
   and NaN, else only all ones is NaN (e4m3fn). */
CKR__HD uint32_t ckr__k_widen(uint32_t v, uint32_t e, uint32_t m, bool ieee)
{
    const uint32_t sign = v >> (e + m) << 31, top = (1u << e) - 1, bias = top >> 1,
                   x = v >> m & top, f = v & ((1u << m) - 1);
    if (x == top && (ieee ? 1 : f == (1u << m) - 1))
        return sign | 0x7f800000u | (f ? 0x400000u | f << (23 - m) : 0);
    if (x) return sign | (x + 127 - bias) << 23 | f << (23 - m);
    return sign | ckr__k_bits((float)f * ckr__k_float((128 - bias - m) << 23));
}

/* The reverse. r: 32 random bits, or `nearest` even. `most`: bits of the largest finite; `over`:
   what stands above it; `nan`: of a NaN. */
CKR__HD uint32_t ckr__k_narrow(uint32_t u, uint32_t e, uint32_t m, uint32_t most, uint32_t over,
                               uint32_t nan, bool nearest, uint32_t r)
{
    const uint32_t sign = u >> 31 << (e + m), a = u & 0x7fffffffu, bias = (1u << (e - 1)) - 1;
    uint32_t x = a >> 23, shift = 23 - m, t = 1, bits;
    uint64_t f = a & 0x7fffff, add;
    if (a > 0x7f800000u) return sign | nan;
    if (a == 0x7f800000u) return sign | over;
    if (x) f |= 0x800000;
    else x = 1;
    if (x + bias > 127) t = x + bias - 127;
    if (t == 1) shift += 128 - bias - x;
    if (shift > 60) return sign;
    if (nearest) add = ((uint64_t)1 << (shift - 1)) - 1 + (f >> shift & 1);
    else add = shift <= 32 ? (uint64_t)r >> (32 - shift) : (uint64_t)r << (shift - 32);
    bits = ((t - 1) << m) + (uint32_t)((f + add) >> shift);
    return sign | (bits > most ? over : bits);
}

/* In integers, since --use_fast_math makes conversions take subnormals for 0. To nearest even. */
CKR__HD uint32_t ckr__k_from_f64(uint64_t v)
{
    const uint32_t sign = (uint32_t)(v >> 63 << 31);
    const uint64_t a = v & 0x7fffffffffffffffu;
    uint64_t m = a & 0xfffffffffffffu, x = a >> 52, bits;
    uint32_t shift = 29;
    if (a > 0x7ff0000000000000u) return sign | 0x7fc00000u | (uint32_t)(v >> 29 & 0x3fffff);
    if (x >= 1023 + 128) return sign | 0x7f800000u;
    if (x < 1023 - 149 - 1) return sign;               /* less than half of the smallest  */
    m |= 0x10000000000000u;
    if (x <= 1023 - 127) {
        shift += (uint32_t)(1023 - 126 - x);
        x = 1023 - 126;
    }
    bits = ((x - (1023 - 126)) << 23) + ((m + ((uint64_t)1 << (shift - 1)) - 1 + (m >> shift & 1))
                                         >> shift);
    return sign | (uint32_t)bits;                      /* a carry past the largest is infinity */
}

CKR__HD uint64_t ckr__k_to_f64(uint32_t u)
{
    const uint64_t sign = (uint64_t)(u >> 31) << 63;
    uint32_t f = u & 0x7fffff, x = u >> 23 & 0xff;
    if (x == 0xff && f) return sign | 0x7ff8000000000000u | (uint64_t)(u & 0x3fffff) << 29;
    if (x == 0xff) return sign | 0x7ff0000000000000u;
    if (!x && !f) return sign;
    x += 1023 - 127;
    if (!(u >> 23 & 0xff))
        for (x++; !(f & 0x800000); x--) f <<= 1;
    return sign | (uint64_t)x << 52 | (uint64_t)(f & 0x7fffff) << 29;
}

/* The bits of an element of up to 8 bytes, in this machine's order. A file that lies in memory
   whole has its elements anywhere: where they are no multiple of their size, byte by byte. */
CKR__HD uint64_t ckr__k_raw(uint32_t size, uint32_t swap, uint64_t p)
{
    uint64_t v = 0;
    uint32_t i;
    if (swap < 2 && !(p & (size - 1)))
        return size == 8 ? ckr__k_load8(p) : size == 4 ? ckr__k_load4(p)
             : size == 2 ? ckr__k_load2(p) : ckr__k_load1(p);
    for (i = 0; i < size; i++)
        v = v << 8 | ckr__k_load1(p + (swap < 2 ? size - 1 - i : i));
    return v;
}

CKR__HD void ckr__k_write(uint32_t size, uint64_t p, uint64_t v)
{
    uint32_t i;
    if (p & (size - 1)) {
        for (i = 0; i < size; i++) ckr__k_store1(p + i, (uint8_t)(v >> 8 * i));
        return;
    }
    switch (size) {
    case 8:  ckr__k_store8(p, v); break;
    case 4:  ckr__k_store4(p, (uint32_t)v); break;
    case 2:  ckr__k_store2(p, (uint16_t)v); break;
    default: ckr__k_store1(p, (uint8_t)v); break;
    }
}

/* Those bits as a float32's. */
CKR__HD uint32_t ckr__k_value(uint32_t type, uint64_t v)
{
    uint32_t u = (uint32_t)v;
    switch (type) {
    case CKR_DTYPE_F64:       return ckr__k_from_f64(v);
    case CKR_DTYPE_F16:       return ckr__k_widen(u, 5, 10, true);
    case CKR_DTYPE_F8_E5M2:   return ckr__k_widen(u, 5, 2, true);
    case CKR_DTYPE_F8_E4M3FN: return ckr__k_widen(u, 4, 3, false);
    case CKR_DTYPE_BF16:      u <<= 16; break;
    default:                  break;
    }
    return (u & 0x7fffffffu) > 0x7f800000u ? u | 0x400000u : u;
}

/* A float32's bits as those of another dtype. */
CKR__HD uint64_t ckr__k_as(uint32_t type, uint32_t u, bool nearest, uint32_t r)
{
    const uint32_t payload = u >> 13 & 0x3ff;
    switch (type) {
    case CKR_DTYPE_F64: return ckr__k_to_f64(u);
    case CKR_DTYPE_F16:
        return ckr__k_narrow(u, 5, 10, 0x7bff, 0x7c00, 0x7e00 | payload, nearest, r);
    case CKR_DTYPE_F8_E5M2:   return ckr__k_narrow(u, 5, 2, 0x7b, 0x7c, 0x7f, nearest, r);
    case CKR_DTYPE_F8_E4M3FN: return ckr__k_narrow(u, 4, 3, 0x7e, 0x7e, 0x7f, nearest, r);
    case CKR_DTYPE_BF16:
        if ((u & 0x7fffffffu) > 0x7f800000u) u = 0x7fc00000u;
        else if (nearest) u += 0x7fffu + (u >> 16 & 1);
        else if ((u & 0x7fffffffu) < 0x7f800000u) u += r >> 16;
        return u >> 16;
    default: return u;
    }
}

/* >>cuda.table ---------------------------------------------------------------- */
/* What a launch reads: a header, for each op the number of tiles before it, the digest's factors,
   the ops. All by value, so that the same bytes serve host and device. */

typedef struct ckr__k_op {
    uint64_t src, dst, at;     /* addresses of the first element; its byte in the tensor  */
    uint64_t n, run, tile;     /* elements: in all, in a run, in a tile                  */
    uint64_t count[2];         /* of the two inner axes outside the run                  */
    int64_t  s[3], d[3], l[3]; /* strides of the axes outside the run, outermost first   */
    uint32_t from, to, size, put;      /* dtypes and their bytes                         */
    uint32_t swap, stat, sub, flags;   /* swap: bytes of a unit to be reversed; 0: none  */
} ckr__k_op;

typedef struct ckr__k_head {
    uint64_t n_ops, n_tiles, ops_at;
    uint64_t plain;            /* no op casts, turns bytes round or has statistics       */
} ckr__k_head;

enum { CKR__K_BLOCK = 1024 };  /* words of a block of the digest                         */

typedef struct ckr__k_view {   /* of a table, in either memory                           */
    uint64_t first;            /* uint64[n_ops + 1]                                      */
    uint64_t factors;          /* uint32[2][1024]                                        */
    uint64_t ops;
} ckr__k_view;

typedef struct ckr__k_acc {    /* what one thread has added up                           */
    uint64_t sum[2], bad;
    uint64_t block, m[2];      /* the digest's factors of a block, of the last one used  */
    uint64_t drawn;            /* the Philox block that `words` are                      */
    uint32_t words[4];
} ckr__k_acc;

CKR__HD ckr__k_view ckr__k_table(uint64_t table, const ckr__k_head *head)
{
    ckr__k_view v;
    v.factors = table + sizeof *head;
    v.first = v.factors + 2 * CKR__K_BLOCK * sizeof(uint32_t);
    v.ops = table + head->ops_at;
    return v;
}

CKR__HD void ckr__k_acc_zero(ckr__k_acc *a)
{
    a->sum[0] = a->sum[1] = a->bad = 0;
    a->block = a->drawn = UINT64_MAX;
    a->m[0] = a->m[1] = 0;
}

/* >>cuda.scan ----------------------------------------------------------------- */

/* Elements of a word that are infinite or NaN. `have`: bytes that belong to it. */
CKR__HD uint32_t ckr__k_nonfinite(uint32_t type, uint32_t x, uint32_t have, uint64_t word)
{
    uint32_t i, n = 0;
    switch (type) {
    case CKR_DTYPE_F32: return (x & 0x7f800000u) == 0x7f800000u;
    case CKR_DTYPE_F64: return (word & 1) && (x & 0x7ff00000u) == 0x7ff00000u;
    case CKR_DTYPE_F16:
    case CKR_DTYPE_BF16:
        for (i = 0; i < 2; i++) {
            const uint32_t top = type == CKR_DTYPE_F16 ? 0x7c00 : 0x7f80;
            n += (have >> 2 * i & 1) && (x >> 16 * i & top) == top;
        }
        return n;
    case CKR_DTYPE_F8_E5M2:
    case CKR_DTYPE_F8_E4M3FN:
        for (i = 0; i < 4; i++) {
            const uint32_t top = type == CKR_DTYPE_F8_E5M2 ? 0x7c : 0x7f;
            n += (have >> i & 1) && (x >> 8 * i & top) == top;
        }
        return n;
    default: return 0;
    }
}

/* Digest and scan of the tensor's bytes [at, at + n), which lie at `src`: lane i of `width` takes
   every width-th word of the tensor. */
CKR__HD void ckr__k_scan(const ckr__k_op *op, uint64_t factors, uint64_t src, uint64_t at,
                         uint64_t n, uint32_t lane, uint32_t width, ckr__k_acc *acc)
{
    const uint64_t end = at + n;
    const bool aligned = ((src - at) & 3) == 0;
    uint64_t w;
    uint32_t i;
    for (w = at / 4 + lane; 4 * w < end; w += width) {
        uint32_t x = 0, have = 0;
        if (4 * w >= at && 4 * w + 4 <= end && aligned && op->swap < 2) {
            x = ckr__k_load4(src + (4 * w - at));
            have = 15;
        } else {
            for (i = 0; i < 4; i++) {
                uint64_t b = 4 * w + i;
                if (b < at || b >= end) continue;
                have |= 1u << i;
                b -= at;
                if (op->swap > 1) b = b - b % op->swap + (op->swap - 1 - b % op->swap);
                x |= (uint32_t)ckr__k_load1(src + b) << 8 * i;
            }
        }
        if (w / CKR__K_BLOCK != acc->block) {
            acc->block = w / CKR__K_BLOCK;
            for (i = 0; i < 2; i++) acc->m[i] = ckr__k_mix(acc->block ^ ckr__k_mix(4096 + i)) | 1;
        }
        for (i = 0; i < 2; i++)
            acc->sum[i] += acc->m[i] * x *
                           ckr__k_get4(factors + 4 * (i * CKR__K_BLOCK + w % CKR__K_BLOCK));
        acc->bad += ckr__k_nonfinite(op->from, x, have, w);
    }
}

/* >>cuda.rows ----------------------------------------------------------------- */
/* Bytes of a row, shared by `width` lanes: 16 at a time wherever the destination allows it. Where
   the source stands otherwise, its aligned words are shifted together, so that rows which begin at
   an odd place still load words. */

CKR__HD void ckr__k_bytes(uint64_t dst, uint64_t src, uint64_t n, uint32_t lane, uint32_t width)
{
    uint64_t i;
    for (i = lane; i < n; i += width) ckr__k_store1(dst + i, ckr__k_load1(src + i));
}

/* 16 bytes from a place that is no multiple of 4: five words, all of them inside [lo, hi). */
CKR__HD bool ckr__k_shifted(uint64_t src, uint64_t lo, uint64_t hi, ckr__k_16 *v)
{
    const uint64_t at = src & ~(uint64_t)3;
    const uint32_t by = (uint32_t)(src & 3) * 8;
    uint32_t w[5], i;
    if (at < lo || at + 20 > hi) return false;
    CKR__UNROLL
    for (i = 0; i < 5; i++) w[i] = ckr__k_load4(at + 4 * i);
    CKR__UNROLL
    for (i = 0; i < 4; i++) w[i] = w[i] >> by | w[i + 1] << (32 - by);
    v->lo = (uint64_t)w[1] << 32 | w[0];
    v->hi = (uint64_t)w[3] << 32 | w[2];
    return true;
}

CKR__HD void ckr__k_copy_odd(uint64_t dst, uint64_t src, uint64_t n, uint64_t lo, uint64_t hi,
                             uint32_t lane, uint32_t width)
{
    uint64_t i;
    ckr__k_16 v;
    for (i = lane; i < n; i += width) {
        const uint64_t s = src + 16 * i, d = dst + 16 * i;
        uint32_t k;
        if (!(s & 3)) {
            v.lo = ckr__k_load4(s) | (uint64_t)ckr__k_load4(s + 4) << 32;
            v.hi = ckr__k_load4(s + 8) | (uint64_t)ckr__k_load4(s + 12) << 32;
            ckr__k_store16(d, v);
        } else if (ckr__k_shifted(s, lo, hi, &v)) {
            ckr__k_store16(d, v);
        } else {
            for (k = 0; k < 16; k++) ckr__k_store1(d + k, ckr__k_load1(s + k));
        }
    }
}

/* n bytes; head and tail one by one, up to a multiple of 16 of the destination. */
CKR__HD void ckr__k_copy(uint64_t dst, uint64_t src, uint64_t n, uint32_t lane, uint32_t width)
{
    const uint64_t lo = src, hi = src + n;
    uint64_t head = (16 - (dst & 15)) & 15, body, i;
    if (head > n) head = n;
    ckr__k_bytes(dst, src, head, lane, width);
    dst += head;
    src += head;
    n -= head;
    body = n / 16;
    ckr__k_bytes(dst + 16 * body, src + 16 * body, n % 16, lane, width);
    if (src & 15) {
        ckr__k_copy_odd(dst, src, body, lo, hi, lane, width);
        return;
    }
    for (i = lane; i + 3 * (uint64_t)width < body; i += 4 * (uint64_t)width) {
        ckr__k_16 v[4];
        uint32_t k;
        CKR__UNROLL
        for (k = 0; k < 4; k++) v[k] = ckr__k_load16(src + 16 * (i + (uint64_t)k * width));
        CKR__UNROLL
        for (k = 0; k < 4; k++) ckr__k_store16(dst + 16 * (i + (uint64_t)k * width), v[k]);
    }
    for (; i < body; i += width) ckr__k_store16(dst + 16 * i, ckr__k_load16(src + 16 * i));
}

CKR__HD uint32_t ckr__k_draw(const ckr_cuda_how *how, uint64_t sub, uint64_t e, ckr__k_acc *acc)
{
    if (acc->drawn != e / 4) {
        acc->drawn = e / 4;
        ckr__k_philox(how->seed, sub, how->offset + e / 4, acc->words);
    }
    return ckr__k_word(acc->words, e % 4);
}

/* One element, of another dtype or byte order than is wanted. at: its byte in the tensor. */
CKR__HD void ckr__k_element(const ckr__k_op *op, uint64_t dst, uint64_t src, uint64_t at,
                            const ckr_cuda_how *how, ckr__k_acc *acc)
{
    uint32_t i;
    if (op->from == op->to) {
        for (i = 0; i < op->size; i++)
            ckr__k_store1(dst + i - i % op->swap + (op->swap - 1 - i % op->swap),
                          ckr__k_load1(src + i));
        return;
    }
    ckr__k_write(op->put, dst,
                 ckr__k_as(op->to, ckr__k_value(op->from, ckr__k_raw(op->size, op->swap, src)),
                           !how->stochastic,
                           how->stochastic ? ckr__k_draw(how, op->sub, at / op->size, acc) : 0));
}

/* The pair that matters most, eight elements at a time. */
CKR__HD bool ckr__k_bf16_f32(uint64_t dst, uint64_t src)
{
    ckr__k_16 v, w;
    uint64_t half;
    uint32_t i;
    if ((src | dst) & 15) return false;
    v = ckr__k_load16(src);
    CKR__UNROLL
    for (i = 0; i < 2; i++) {
        uint32_t q[4], k;
        half = i ? v.hi : v.lo;
        CKR__UNROLL
        for (k = 0; k < 4; k++) {
            q[k] = (uint32_t)(half >> 16 * k & 0xffff) << 16;
            if ((q[k] & 0x7fffffffu) > 0x7f800000u) q[k] |= 0x400000u;
        }
        w.lo = (uint64_t)q[1] << 32 | q[0];
        w.hi = (uint64_t)q[3] << 32 | q[2];
        ckr__k_store16(dst + 16 * i, w);
    }
    return true;
}

CKR__HD uint32_t ckr__k_to_bf16(uint32_t u)
{
    return (u & 0x7fffffffu) > 0x7f800000u ? 0x7fc0 : (u + 0x7fffu + (u >> 16 & 1)) >> 16;
}

CKR__HD bool ckr__k_f32_bf16(uint64_t dst, uint64_t src)
{
    ckr__k_16 v[2], w;
    uint64_t q[2];
    uint32_t i;
    if ((src | dst) & 15) return false;
    v[0] = ckr__k_load16(src);
    v[1] = ckr__k_load16(src + 16);
    CKR__UNROLL
    for (i = 0; i < 2; i++)
        q[i] = (uint64_t)ckr__k_to_bf16((uint32_t)v[i].lo) |
               (uint64_t)ckr__k_to_bf16((uint32_t)(v[i].lo >> 32)) << 16 |
               (uint64_t)ckr__k_to_bf16((uint32_t)v[i].hi) << 32 |
               (uint64_t)ckr__k_to_bf16((uint32_t)(v[i].hi >> 32)) << 48;
    w.lo = q[0];
    w.hi = q[1];
    ckr__k_store16(dst, w);
    return true;
}

/* A row of casts: lanes take eight elements each. */
CKR__HD void ckr__k_cast(const ckr__k_op *op, uint64_t dst, uint64_t src, uint64_t at, uint64_t n,
                         uint32_t lane, uint32_t width, const ckr_cuda_how *how, ckr__k_acc *acc)
{
    const bool plain = !how->stochastic && op->swap < 2,
               up = plain && op->from == CKR_DTYPE_BF16 && op->to == CKR_DTYPE_F32,
               down = plain && op->from == CKR_DTYPE_F32 && op->to == CKR_DTYPE_BF16;
    uint64_t i, k;
    for (i = 8 * (uint64_t)lane; i < n; i += 8 * (uint64_t)width) {
        const uint64_t d = dst + i * op->put, s = src + i * op->size, m = n - i < 8 ? n - i : 8;
        if (m == 8 && up && ckr__k_bf16_f32(d, s)) continue;
        if (m == 8 && down && ckr__k_f32_bf16(d, s)) continue;
        for (k = 0; k < m; k++)
            ckr__k_element(op, d + k * op->put, s + k * op->size, at + (i + k) * op->size, how,
                           acc);
    }
}

/* >>cuda.tile ----------------------------------------------------------------- */

/* Where element `column` of row `row` lies on the three sides. */
CKR__HD void ckr__k_place(const ckr__k_op *op, uint64_t row, uint64_t column, uint64_t at[3])
{
    const uint64_t i2 = row % op->count[1], rest = row / op->count[1], i1 = rest % op->count[0],
                   i0 = rest / op->count[0];
    at[0] = op->src + i0 * (uint64_t)op->s[0] + i1 * (uint64_t)op->s[1] +
            i2 * (uint64_t)op->s[2] + column * op->size;
    at[1] = op->dst + i0 * (uint64_t)op->d[0] + i1 * (uint64_t)op->d[1] +
            i2 * (uint64_t)op->d[2] + column * op->put;
    at[2] = op->at + i0 * (uint64_t)op->l[0] + i1 * (uint64_t)op->l[1] +
            i2 * (uint64_t)op->l[2] + column * op->size;
}

/* n elements of a row from `column` on, shared by `width` lanes. */
CKR__HD void ckr__k_row(const ckr__k_op *op, uint64_t factors, uint64_t row, uint64_t column,
                        uint64_t n, uint32_t lane, uint32_t width, bool plain,
                        const ckr_cuda_how *how, ckr__k_acc *acc)
{
    uint64_t at[3];
    ckr__k_place(op, row, column, at);
    if (plain || (op->from == op->to && op->swap < 2))
        ckr__k_copy(at[1], at[0], n * op->size, lane, width);
    else ckr__k_cast(op, at[1], at[0], at[2], n, lane, width, how, acc);
    if (!plain && op->stat != CKR_CUDA_NO_STAT && how->stats)
        ckr__k_scan(op, factors, at[0], at[2], n * op->size, lane, width, acc);
}

/* What lane `lane` of a block does of a tile: long rows are shared by the block, shorter ones by 32
   lanes each, runs of a few elements are a lane's own. `plain` is known where this is compiled. */
CKR__HD void ckr__k_tile(const ckr__k_op *op, uint64_t factors, uint64_t tile, uint32_t lane,
                         bool plain, const ckr_cuda_how *how, ckr__k_acc *acc)
{
    const uint64_t begin = tile * op->tile, run = op->run,
                   end = op->n - begin < op->tile ? op->n : begin + op->tile,
                   bytes = run * op->size;
    const uint32_t width = bytes >= 4096 ? CKR__K_LANES : bytes >= 64 ? 32 : 1,
                   teams = CKR__K_LANES / width, team = lane / width;
    const uint64_t first = begin / run, last = (end - 1) / run;
    uint64_t row;
    if (begin >= op->n) return;
    for (row = first + team; row <= last; row += teams) {
        const uint64_t a = row == first ? begin - first * run : 0,
                       b = row == last ? end - last * run : run;
        ckr__k_row(op, factors, row, a, b - a, lane % width, width, plain, how, acc);
    }
}

/* The op of a tile: the last one that begins at or before it. */
CKR__HD uint64_t ckr__k_find(uint64_t first, uint64_t n_ops, uint64_t tile)
{
    uint64_t lo = 0, hi = n_ops;
    while (hi - lo > 1) {
        const uint64_t mid = lo + (hi - lo) / 2;
        if (ckr__k_get8(first + 8 * mid) <= tile) lo = mid;
        else hi = mid;
    }
    return lo;
}

/* torch's uniform of [0, 1): (0, 1] of a word, 1 becomes 0. */
CKR__HD float ckr__k_unit(uint32_t x)
{
    const float v = (float)x * 2.3283064365386963e-10f + 1.16415321826934814453e-10f;
    return v >= 1.0f ? 0.0f : v;
}

/* Element e of n on `threads` threads: word r / threads of block j, where e = j * 4 * threads + r.
   */
CKR__HD float ckr__k_uniform(uint64_t seed, uint64_t offset, uint64_t e, uint64_t threads)
{
    const uint64_t j = e / (4 * threads), r = e % (4 * threads);
    uint32_t words[4];
    ckr__k_philox(seed, r % threads, offset / 4 + j, words);
    return ckr__k_unit(ckr__k_word(words, r / threads));
}

/* >>cuda.device --------------------------------------------------------------- */
/* The few calls that differ: on a device, or on the host in its place. Results: 0 or a cudaError_t.
   */

#ifdef CKPTRESUME_CUDA_HOST

enum { CKR__CU_MISALIGNED = 716 };     /* as a device's driver numbers it                */

static int ckr__cu_upload(void *dst, const void *src, size_t n, ckr_cuda_stream stream)
{
    (void)stream;
    if (!dst) return 1;
    if (n) memcpy(dst, src, n);
    return 0;
}

/* Block by block, lane by lane. */
static int ckr__cu_kernel(void *table, const ckr__k_head *head, const ckr_cuda_how *how,
                          ckr_cuda_stream stream)
{
    const ckr__k_view v = ckr__k_table((uint64_t)(uintptr_t)table, head);
    uint64_t tile;
    uint32_t lane;
    (void)stream;
    ckr__cu_misaligned = 0;
    for (tile = 0; tile < head->n_tiles; tile++) {
        const uint64_t i = ckr__k_find(v.first, head->n_ops, tile);
        const ckr__k_op *op = (const ckr__k_op *)(uintptr_t)v.ops + i;
        const uint64_t own = tile - ckr__k_get8(v.first + 8 * i);
        for (lane = 0; lane < CKR__K_LANES; lane++) {
            ckr__k_acc acc;
            ckr__k_acc_zero(&acc);
            ckr__k_tile(op, v.factors, own, lane, head->plain != 0, how, &acc);
            if (op->stat == CKR_CUDA_NO_STAT || !how->stats) continue;
            how->stats[op->stat].sums[0] += acc.sum[0];
            how->stats[op->stat].sums[1] += acc.sum[1];
            how->stats[op->stat].n_nonfinite += acc.bad;
        }
    }
    return ckr__cu_misaligned ? CKR__CU_MISALIGNED : 0;
}

static int ckr__cu_event_make(ckr_cuda_event *e)
{
    *e = NULL;
    return 0;
}

static int ckr__cu_event_record(ckr_cuda_event e, ckr_cuda_stream stream)
{
    (void)e;
    (void)stream;
    return 0;
}

static int ckr__cu_event_wait(ckr_cuda_event e)
{
    (void)e;
    return 0;
}

static void ckr__cu_event_free(ckr_cuda_event e)
{
    (void)e;
}

static void ckr__cu_drain(ckr_cuda_stream stream)
{
    (void)stream;
}

static void ckr__cu_uniform(uint64_t seed, uint64_t offset, uint64_t n, uint64_t threads,
                            float *out, ckr_cuda_stream stream)
{
    uint64_t e;
    (void)stream;
    for (e = 0; e < n; e++) out[e] = ckr__k_uniform(seed, offset, e, threads);
}

static const char *ckr__cu_text(int error)
{
    return error == CKR__CU_MISALIGNED ? "misaligned address" : error ? "no such memory" : "";
}

#else

/* What a call returned. The thread's last error is left alone by what succeeds: it may be of a call
   of the program's, which is not ours to report or to take away. */
static int ckr__cu_said(cudaError_t e)
{
    if (e != cudaSuccess) cudaGetLastError();          /* said here, not by the next call */
    return (int)e;
}

static int ckr__cu_upload(void *dst, const void *src, size_t n, ckr_cuda_stream stream)
{
    return ckr__cu_said(cudaMemcpyAsync(dst, src, n, cudaMemcpyHostToDevice, stream));
}

static __global__ void __launch_bounds__(CKR__K_LANES)
    ckr__k_run(uint64_t table, ckr__k_head head, ckr_cuda_how how)
{
    const ckr__k_view v = ckr__k_table(table, &head);
    for (uint64_t tile = blockIdx.x; tile < head.n_tiles; tile += gridDim.x) {
        const uint64_t i = ckr__k_find(v.first, head.n_ops, tile);
        const ckr__k_op *op = (const ckr__k_op *)v.ops + i;
        ckr__k_acc acc;
        ckr__k_acc_zero(&acc);
        ckr__k_tile(op, v.factors, tile - ckr__k_get8(v.first + 8 * i), threadIdx.x, false, &how,
                    &acc);
        if (op->stat == CKR_CUDA_NO_STAT || !how.stats) continue;
        for (int by = 16; by > 0; by /= 2) {
            acc.sum[0] += __shfl_down_sync(0xffffffffu, acc.sum[0], (unsigned)by);
            acc.sum[1] += __shfl_down_sync(0xffffffffu, acc.sum[1], (unsigned)by);
            acc.bad += __shfl_down_sync(0xffffffffu, acc.bad, (unsigned)by);
        }
        if (threadIdx.x % 32 != 0) continue;
        ckr_cuda_stat *to = &how.stats[op->stat];
        atomicAdd((unsigned long long *)&to->sums[0], (unsigned long long)acc.sum[0]);
        atomicAdd((unsigned long long *)&to->sums[1], (unsigned long long)acc.sum[1]);
        if (acc.bad)
            atomicAdd((unsigned long long *)&to->n_nonfinite, (unsigned long long)acc.bad);
    }
}

/* The same for plain copies: half the registers, so that more loads are under way. */
static __global__ void __launch_bounds__(CKR__K_LANES)
    ckr__k_run_plain(uint64_t table, ckr__k_head head, ckr_cuda_how how)
{
    const ckr__k_view v = ckr__k_table(table, &head);
    for (uint64_t tile = blockIdx.x; tile < head.n_tiles; tile += gridDim.x) {
        const uint64_t i = ckr__k_find(v.first, head.n_ops, tile);
        const ckr__k_op *op = (const ckr__k_op *)v.ops + i;
        ckr__k_tile(op, v.factors, tile - ckr__k_get8(v.first + 8 * i), threadIdx.x, true, &how,
                    nullptr);
    }
}

static int ckr__cu_kernel(void *table, const ckr__k_head *head, const ckr_cuda_how *how,
                          ckr_cuda_stream stream)
{
    int device = 0, processors = 0;
    uint64_t at = (uint64_t)(uintptr_t)table;
    ckr__k_head h = *head;
    ckr_cuda_how w = *how;
    void *args[] = { &at, &h, &w };
    cudaError_t e = cudaGetDevice(&device);
    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    if (e != cudaSuccess) return ckr__cu_said(e);
    const uint64_t most = (uint64_t)processors * 8;
    const unsigned blocks = (unsigned)(head->n_tiles < most ? head->n_tiles : most);
    return ckr__cu_said(cudaLaunchKernel(head->plain ? (const void *)ckr__k_run_plain
                                                     : (const void *)ckr__k_run,
                                         dim3(blocks), dim3(CKR__K_LANES), args, 0, stream));
}

static int ckr__cu_event_make(ckr_cuda_event *e)
{
    return ckr__cu_said(cudaEventCreateWithFlags(e, cudaEventDisableTiming));
}

static int ckr__cu_event_record(ckr_cuda_event e, ckr_cuda_stream stream)
{
    return ckr__cu_said(cudaEventRecord(e, stream));
}

static int ckr__cu_event_wait(ckr_cuda_event e)
{
    return ckr__cu_said(cudaEventSynchronize(e));
}

static void ckr__cu_event_free(ckr_cuda_event e)
{
    cudaEventDestroy(e);
}

static void ckr__cu_drain(ckr_cuda_stream stream)
{
    cudaStreamSynchronize(stream);
}

static __global__ void __launch_bounds__(CKR__K_LANES)
    ckr__k_uniforms(uint64_t seed, uint64_t offset, uint64_t n, uint64_t threads, float *out)
{
    const uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t e = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; e < n; e += step)
        out[e] = ckr__k_uniform(seed, offset, e, threads);
}

static void ckr__cu_uniform(uint64_t seed, uint64_t offset, uint64_t n, uint64_t threads,
                            float *out, ckr_cuda_stream stream)
{
    const uint64_t blocks = (n + CKR__K_LANES - 1) / CKR__K_LANES;
    if (n)
        ckr__k_uniforms<<<(unsigned)(blocks < 65536 ? blocks : 65536), CKR__K_LANES, 0, stream>>>(
            seed, offset, n, threads, out);
}

static const char *ckr__cu_text(int error)
{
    return cudaGetErrorString((cudaError_t)error);
}

#endif

/* >>cuda.pack ----------------------------------------------------------------- */

static ckr_result ckr__cu_fail(ckr_error *err, ckr_result r, ckr_item item, int sys,
                               const char *where, const char *text)
{
    if (!err) return r;
    memset(err, 0, sizeof *err);
    err->code = r;
    err->item = item;
    err->sys_error = sys;
    err->offset = CKR_NO_OFFSET;
    snprintf(err->where, sizeof err->where, "%s", where);
    snprintf(err->text, sizeof err->text, "%s", text);
    return r;
}

static ckr_result ckr__cu_check(ckr_error *err, int sys, const char *where)
{
    if (!sys) return CKR_OK;
    return ckr__cu_fail(err, CKR_E_BACKEND, CKR_ITEM_BACKEND, sys, where, ckr__cu_text(sys));
}

static bool ckr__cu_casts(ckr_dtype t)
{
    return t == CKR_DTYPE_F64 || t == CKR_DTYPE_F32 || t == CKR_DTYPE_F16 || t == CKR_DTYPE_BF16 ||
           t == CKR_DTYPE_F8_E4M3FN || t == CKR_DTYPE_F8_E5M2;
}

/* Bytes that are reversed together in a big-endian source; complex numbers are two of them. */
static uint32_t ckr__cu_unit(const ckr_copy *c)
{
    const uint32_t n = (uint32_t)ckr_dtype_size(c->dtype);
    const bool pair = c->dtype == CKR_DTYPE_C32 || c->dtype == CKR_DTYPE_C64 ||
                      c->dtype == CKR_DTYPE_C128 || c->dtype == CKR_DTYPE_BC32;
    return !c->big_endian ? 0 : pair ? n / 2 : n;
}

/* Elements of a copy; axes beyond the three that an op has are ops of their own: their number. */
static uint64_t ckr__cu_split(const ckr_copy *c, uint64_t *elements)
{
    uint64_t parts = 1, n = (uint64_t)c->run;
    uint32_t i;
    for (i = 0; i < c->n_dims; i++) {
        if (i + 3 < c->n_dims) parts *= (uint64_t)c->count[i];
        else n *= (uint64_t)c->count[i];
    }
    *elements = n;
    return n ? parts : 0;
}

/* Part `part` of a copy as the kernel has it. */
static void ckr__cu_op(ckr__k_op *o, const ckr_cuda_op *op, uint64_t part, uint64_t elements)
{
    const ckr_copy *c = &op->copy;
    const uint32_t outer = c->n_dims > 3 ? c->n_dims - 3 : 0, inner = c->n_dims - outer;
    uint32_t i;
    memset(o, 0, sizeof *o);
    o->src = (uint64_t)(uintptr_t)op->src + c->from;
    o->dst = (uint64_t)(uintptr_t)op->dst + c->to;
    o->at = c->at;
    for (i = outer; i-- > 0; part /= (uint64_t)c->count[i]) {
        const uint64_t k = part % (uint64_t)c->count[i];
        o->src += k * (uint64_t)c->from_stride[i];
        o->dst += k * (uint64_t)c->to_stride[i];
        o->at += k * (uint64_t)c->at_stride[i];
    }
    o->n = elements;
    o->run = (uint64_t)c->run;
    o->count[0] = o->count[1] = 1;
    for (i = 0; i < inner; i++) {
        const uint32_t to = 3 - inner + i, from = outer + i;
        if (to) o->count[to - 1] = (uint64_t)c->count[from];
        o->s[to] = c->from_stride[from];
        o->d[to] = c->to_stride[from];
        o->l[to] = c->at_stride[from];
    }
    o->from = (uint32_t)c->dtype;
    o->to = (uint32_t)c->as;
    o->size = (uint32_t)ckr_dtype_size(c->dtype);
    o->put = (uint32_t)ckr_dtype_size(c->as);
    o->tile = CKR__K_TILE / (o->size > o->put ? o->size : o->put);
    o->swap = ckr__cu_unit(c);
    o->stat = op->stat;
    o->sub = c->read;
}

static void ckr__cu_factors(uint32_t *k)
{
    uint64_t a, j;
    for (a = 0; a < 2; a++)
        for (j = 0; j < CKR__K_BLOCK; j++)
            k[a * CKR__K_BLOCK + j] = (uint32_t)(ckr__k_mix(a * CKR__K_BLOCK + j) >> 32) | 1;
}

static size_t ckr__cu_bytes(uint64_t n, uint64_t *ops_at)
{
    *ops_at = (sizeof(ckr__k_head) + 8 * CKR__K_BLOCK + 8 * (n + 1) + 15) & ~(uint64_t)15;
    return (size_t)(*ops_at + n * sizeof(ckr__k_op));
}

static ckr_result ckr__cu_refuse(const ckr_cuda_op *op, ckr_error *err)
{
    const ckr_copy *c = &op->copy;
    char text[96];
    if (c->run >= 0 && c->n_dims <= CKR_MAX_DIMS && ckr_dtype_size(c->dtype) &&
        (c->dtype == c->as || (ckr__cu_casts(c->dtype) && ckr__cu_casts(c->as))))
        return CKR_OK;
    snprintf(text, sizeof text, "%s cannot be cast to %s", ckr_dtype_name(c->dtype),
             ckr_dtype_name(c->as));
    return ckr__cu_fail(err, CKR_E_UNSUPPORTED, CKR_ITEM_CAST, 0, "ckr_cuda_pack", text);
}

CKR_API ckr_result ckr_cuda_pack(const ckr_cuda_op *ops, size_t n, void *table, size_t *bytes,
                                 ckr_error *err)
{
    uint64_t n_ops = 0, tiles = 0, elements, parts, p, at, need;
    size_t i;
    ckr__k_head head;
    ckr__k_view v;
    for (i = 0; i < n; i++) {
        ckr_result r = ckr__cu_refuse(&ops[i], err);
        if (r != CKR_OK) return r;
        n_ops += ckr__cu_split(&ops[i].copy, &elements);
    }
    need = ckr__cu_bytes(n_ops, &at);
    if (!table) *bytes = (size_t)need;
    if (!table) return CKR_OK;
    if (*bytes < need)
        return ckr__cu_fail(err, CKR_E_ARG, CKR_ITEM_ARG, 0, "bytes", "the table is too small");
    *bytes = (size_t)need;
    head.ops_at = at;
    head.plain = 1;
    v = ckr__k_table((uint64_t)(uintptr_t)table, &head);
    ckr__cu_factors((uint32_t *)(uintptr_t)v.factors);
    for (i = 0, n_ops = 0; i < n; i++) {
        parts = ckr__cu_split(&ops[i].copy, &elements);
        for (p = 0; p < parts; p++, n_ops++) {
            ckr__k_op *o = (ckr__k_op *)(uintptr_t)v.ops + n_ops;
            ckr__cu_op(o, &ops[i], p, elements);
            if (o->from != o->to || o->swap > 1 || o->stat != CKR_CUDA_NO_STAT) head.plain = 0;
            ((uint64_t *)(uintptr_t)v.first)[n_ops] = tiles;
            tiles += (elements + o->tile - 1) / o->tile;
        }
    }
    ((uint64_t *)(uintptr_t)v.first)[n_ops] = tiles;
    head.n_ops = n_ops;
    head.n_tiles = tiles;
    memcpy(table, &head, sizeof head);
    return CKR_OK;
}

/* >>cuda.launch --------------------------------------------------------------- */

/* The table is on the device already, or its upload is on the stream. */
static ckr_result ckr__cu_start(const void *table, void *d_table, const ckr_cuda_how *how,
                                ckr_cuda_stream stream, ckr_error *err)
{
    ckr__k_head head;
    ckr_cuda_how none;
    memset(&none, 0, sizeof none);
    memcpy(&head, table, sizeof head);
    if (!head.n_tiles) return CKR_OK;
    return ckr__cu_check(err, ckr__cu_kernel(d_table, &head, how ? how : &none, stream), "kernel");
}

CKR_API ckr_result ckr_cuda_launch(const void *table, size_t bytes, void *d_table,
                                   const ckr_cuda_how *how, ckr_cuda_stream stream, ckr_error *err)
{
    ckr_result r = ckr__cu_check(err, ckr__cu_upload(d_table, table, bytes, stream), "table");
    return r == CKR_OK ? ckr__cu_start(table, d_table, how, stream, err) : r;
}

CKR_API void ckr_philox4x32(uint64_t seed, uint64_t subsequence, uint64_t block, uint32_t out[4])
{
    ckr__k_philox(seed, subsequence, block, out);
}

CKR_API uint64_t ckr_cuda_uniform(uint64_t seed, uint64_t offset, uint64_t n, uint32_t processors,
                                  uint32_t threads, float *out, ckr_cuda_stream stream)
{
    const uint64_t most = (uint64_t)processors * (threads / 256), blocks = (n + 255) / 256;
    const uint64_t all = 256 * (blocks < most ? blocks : most);
    if (!all) return 0;                                /* nothing wanted, or no such device */
    ckr__cu_uniform(seed, offset, n, all, out, stream);
    return 4 * ((n + 4 * all - 1) / (4 * all));
}

/* >>cuda.read ----------------------------------------------------------------- */
/* A window: the table of its ops, then the bytes that they read, packed; one upload brings both. */

#define CKR__CU_OPS 1024u      /* of a window                                            */
#define CKR__CU_CHUNK ((uint64_t)1 << 20)

typedef struct ckr__cu_part {  /* bytes of a file that go into the window                */
    uint32_t    file;
    const void *mem;
    uint64_t    offset, n;
    uint8_t    *to;
} ckr__cu_part;

typedef struct ckr__cu_window {
    const ckr_ckpt *c;
    uint8_t        *pinned, *device;
    uint64_t        data, room, fill;  /* the data's place; its size; used                */
    ckr_cuda_op     ops[CKR__CU_OPS];
    ckr__cu_part    parts[CKR__CU_OPS];
    uint32_t        n;
    uint32_t        threads;
    ckr_error       err[64];           /* of the threads                                  */
} ckr__cu_window;

/* Bytes of the source from a box's first to past its last, axes >= level. */
static uint64_t ckr__cu_span(const ckr_copy *c, uint32_t level, uint64_t *dense)
{
    const uint64_t size = ckr_dtype_size(c->dtype);
    uint64_t span = (uint64_t)c->run * size;
    uint32_t i;
    *dense = span;
    for (i = level; i < c->n_dims; i++) {
        span += (uint64_t)(c->count[i] - 1) * (uint64_t)c->from_stride[i];
        *dense *= (uint64_t)c->count[i];
    }
    return span;
}

/* The copy with its axes as they lie in the source, the widest steps first: of a transposed tensor,
   too, neighbours are read together. The order of elements is nobody's business. */
static void ckr__cu_order(const ckr_copy *c, ckr_copy *out)
{
    uint32_t i, k;
    *out = *c;
    for (i = 1; i < c->n_dims; i++) {
        for (k = i; k > 0 && out->from_stride[k - 1] < c->from_stride[i]; k--) {
            out->count[k] = out->count[k - 1];
            out->from_stride[k] = out->from_stride[k - 1];
            out->to_stride[k] = out->to_stride[k - 1];
            out->at_stride[k] = out->at_stride[k - 1];
        }
        out->count[k] = c->count[i];
        out->from_stride[k] = c->from_stride[i];
        out->to_stride[k] = c->to_stride[i];
        out->at_stride[k] = c->at_stride[i];
    }
}

/* The part of a copy from element `done` on that fits into `room`: slices of one axis, where they
   lie close enough to be read together, else elements of a run. Returns its elements; 0: no room.
   */
static uint64_t ckr__cu_take(const ckr_copy *c, uint64_t done, uint64_t room, ckr_copy *out,
                             uint64_t *span)
{
    uint64_t block[CKR_MAX_DIMS + 1], rest = done, index, k = 0, dense, inner;
    uint32_t i, level;
    block[c->n_dims] = 1;
    for (i = c->n_dims, inner = (uint64_t)c->run; i-- > 0; inner *= (uint64_t)c->count[i])
        block[i] = inner;
    *out = *c;
    for (level = 0; level < c->n_dims; level++) {
        index = rest / block[level];
        rest %= block[level];
        out->from += index * (uint64_t)c->from_stride[level];
        out->to += index * (uint64_t)c->to_stride[level];
        out->at += index * (uint64_t)c->at_stride[level];
        inner = ckr__cu_span(c, level + 1, &dense);
        if (rest || c->n_dims - level > 3 || inner > room || inner > 2 * dense ||
            (uint64_t)c->from_stride[level] > 2 * dense)
            continue;
        k = (uint64_t)c->count[level] - index;
        if (c->from_stride[level] > 0 &&
            (room - inner) / (uint64_t)c->from_stride[level] + 1 < k)
            k = (room - inner) / (uint64_t)c->from_stride[level] + 1;
        out->n_dims = c->n_dims - level;
        for (i = 0; i < out->n_dims; i++) {
            out->count[i] = i ? c->count[level + i] : (int64_t)k;
            out->from_stride[i] = c->from_stride[level + i];
            out->to_stride[i] = c->to_stride[level + i];
            out->at_stride[i] = c->at_stride[level + i];
        }
        *span = (k - 1) * (uint64_t)c->from_stride[level] + inner;
        return k * block[level];
    }
    k = room / ckr_dtype_size(c->dtype);
    if (k > (uint64_t)c->run - rest) k = (uint64_t)c->run - rest;
    out->n_dims = 0;
    out->run = (int64_t)k;
    out->from += rest * ckr_dtype_size(c->dtype);
    out->to += rest * ckr_dtype_size(c->as);
    out->at += rest * ckr_dtype_size(c->dtype);
    *span = k * ckr_dtype_size(c->dtype);
    return k;
}

/* As much of the copy as the window takes; returns the elements. */
static uint64_t ckr__cu_fill(ckr__cu_window *w, const ckr_copy *c, const ckr_read *reads,
                             uint64_t done, bool stats)
{
    ckr_cuda_op *op = &w->ops[w->n];
    ckr__cu_part *p = &w->parts[w->n];
    const uint64_t at = (w->fill + 255) & ~(uint64_t)255;
    uint64_t n, span = 0;
    if (w->n == CKR__CU_OPS || at >= w->room) return 0;
    n = ckr__cu_take(c, done, w->room - at, &op->copy, &span);
    if (!n) return 0;
    p->file = c->file;
    p->mem = c->mem;
    p->offset = op->copy.from;
    p->n = span;
    p->to = w->pinned + w->data + at;
    op->copy.from = 0;
    op->src = w->device + w->data + at;
    op->dst = reads[c->read].dst;
    op->stat = stats ? c->read : CKR_CUDA_NO_STAT;
    w->fill = at + span;
    w->n++;
    return n;
}

/* Thread `lane` reads the chunks lane, lane + threads, ... of all parts. */
static void ckr__cu_read_lane(void *arg, uint32_t lane)
{
    ckr__cu_window *w = (ckr__cu_window *)arg;
    uint64_t turn = 0, at;
    uint32_t i;
    for (i = 0; i < w->n && w->err[lane].code == CKR_OK; i++) {
        const ckr__cu_part *p = &w->parts[i];
        for (at = 0; at < p->n && w->err[lane].code == CKR_OK; at += CKR__CU_CHUNK, turn++) {
            const uint64_t n = p->n - at < CKR__CU_CHUNK ? p->n - at : CKR__CU_CHUNK;
            if (turn % w->threads != lane) continue;
            if (p->file == CKR_NO_FILE)
                memcpy(p->to + at, (const uint8_t *)p->mem + p->offset + at, (size_t)n);
            else
                ckr_ckpt_bytes(w->c, p->file, p->offset + at, p->to + at, (size_t)n,
                               &w->err[lane]);
        }
    }
}

/* Reads what the window wants, uploads it with its table, starts the kernel. */
static ckr_result ckr__cu_flush(ckr_cuda_ring *ring, ckr__cu_window *w, const ckr_cuda_how *how,
                                ckr_cuda_stream stream, ckr_error *err)
{
    const uint32_t slot = ring->next;
    size_t bytes = (size_t)w->data;
    uint32_t i;
    ckr_result r;
    if (!w->n) return CKR_OK;
    memset(w->err, 0, sizeof w->err);
    w->threads = ring->parallel.for_fn && ring->parallel.n_threads ? ring->parallel.n_threads : 1;
    if (w->threads > 64) w->threads = 64;
    if (w->threads > 1)
        ring->parallel.for_fn(ring->parallel.user, w->threads, w->threads, ckr__cu_read_lane, w);
    else
        ckr__cu_read_lane(w, 0);
    for (i = 0; i < w->threads; i++)
        if (w->err[i].code != CKR_OK) {
            if (err) *err = w->err[i];
            return w->err[i].code;
        }
    r = ckr_cuda_pack(w->ops, w->n, w->pinned, &bytes, err);
    if (r == CKR_OK)
        r = ckr__cu_check(err, ckr__cu_upload(w->device, w->pinned, (size_t)(w->data + w->fill),
                                              stream), "window");
    if (r == CKR_OK) r = ckr__cu_start(w->pinned, w->device, how, stream, err);
    if (r == CKR_OK)
        r = ckr__cu_check(err, ckr__cu_event_record(ring->event[slot], stream), "event");
    if (r != CKR_OK) ckr__cu_drain(stream);    /* no event tells when the window is free    */
    ring->busy[slot] = r == CKR_OK;
    ring->next = (slot + 1) % ring->n;
    w->n = 0;
    return r;
}

/* The next window, once the device is done with it. */
static ckr_result ckr__cu_begin(ckr_cuda_ring *ring, ckr__cu_window *w, ckr_error *err)
{
    const uint32_t slot = ring->next;
    ckr_result r = CKR_OK;
    if (ring->busy[slot]) r = ckr__cu_check(err, ckr__cu_event_wait(ring->event[slot]), "event");
    ring->busy[slot] = false;
    w->pinned = (uint8_t *)ring->pinned + (size_t)slot * ring->window;
    w->device = (uint8_t *)ring->device + (size_t)slot * ring->window;
    w->fill = 0;
    return r;
}

CKR_API ckr_result ckr_cuda_ring_init(ckr_cuda_ring *ring, void *pinned, void *device,
                                      size_t window, uint32_t n, ckr_error *err)
{
    uint32_t i;
    ckr_result r = CKR_OK;
    memset(ring, 0, sizeof *ring);
    if (!pinned || !device || window < (size_t)1 << 20 || window % 256 || !n ||
        n > CKR_CUDA_MAX_WINDOWS)
        return ckr__cu_fail(err, CKR_E_ARG, CKR_ITEM_ARG, 0, "ring",
                            "1 to 8 windows of 1 MiB or more, a multiple of 256 bytes");
    ring->pinned = pinned;
    ring->device = device;
    ring->window = window;
    for (i = 0; i < n && r == CKR_OK; i++) {
        r = ckr__cu_check(err, ckr__cu_event_make(&ring->event[i]), "event");
        if (r == CKR_OK) ring->n++;
    }
    if (r != CKR_OK) ckr_cuda_ring_free(ring);
    return r;
}

CKR_API void ckr_cuda_ring_free(ckr_cuda_ring *ring)
{
    uint32_t i;
    for (i = 0; i < ring->n; i++) {
        if (ring->busy[i]) ckr__cu_event_wait(ring->event[i]);
        ckr__cu_event_free(ring->event[i]);
    }
    memset(ring, 0, sizeof *ring);
}

CKR_API ckr_result ckr_cuda_read(ckr_cuda_ring *ring, const ckr_ckpt *c, const ckr_read *reads,
                                 const ckr_copy *copies, size_t n_copies, const ckr_cuda_how *how,
                                 ckr_cuda_stream stream, ckr_error *err)
{
    ckr__cu_window w;          /* 450 KiB                                                */
    const bool stats = how && how->stats;
    ckr_copy one;
    size_t i;
    uint64_t done, n, all, at;
    uint32_t k;
    ckr_result r = CKR_OK;
    memset(&w, 0, sizeof w);
    w.c = c;
    w.data = (ckr__cu_bytes(CKR__CU_OPS, &at) + 255) & ~(uint64_t)255;
    if (!ring->n) return ckr__cu_fail(err, CKR_E_ARG, CKR_ITEM_ARG, 0, "ring", "not initialised");
    w.room = ring->window - w.data;
    for (i = 0; i < n_copies && r == CKR_OK; i++) {
        for (k = 0, all = (uint64_t)copies[i].run; k < copies[i].n_dims; k++)
            all *= (uint64_t)copies[i].count[k];
        ckr__cu_order(&copies[i], &one);
        for (done = 0; done < all && r == CKR_OK; done += n) {
            if (!w.n) r = ckr__cu_begin(ring, &w, err);
            n = r == CKR_OK ? ckr__cu_fill(&w, &one, reads, done, stats) : 0;
            if (!n && r == CKR_OK) r = ckr__cu_flush(ring, &w, how, stream, err);
        }
    }
    return r == CKR_OK ? ckr__cu_flush(ring, &w, how, stream, err) : r;
}

#undef CKR__HD
#undef CKR__UNROLL
#endif /* CKPTRESUME_CUDA_IMPLEMENTATION */
