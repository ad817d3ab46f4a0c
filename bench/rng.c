/* bench/rng.c: draws of a torch CPU generator into existing memory, one thread: lines "NAME: NS",
   beside which rng.py puts torch's own. Given "table", the jumps of mt19937 instead. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "bench.h"

enum { N = 1 << 22 };

static const char *const names[] = { "uniform f32",  "uniform f64", "normal f32",
                                     "normal f64",   "uniform bf16", "normal bf16",
                                     "random i32",   "randint i64", "randperm" };

static ckr_result draw(ckr_rng *r, int what, void *out)
{
    switch (what) {
    case 0: return ckr_rng_uniform(r, CKR_DTYPE_F32, 0, 1, N, out);
    case 1: return ckr_rng_uniform(r, CKR_DTYPE_F64, 0, 1, N, out);
    case 2: return ckr_rng_normal(r, CKR_DTYPE_F32, 0, 1, N, out);
    case 3: return ckr_rng_normal(r, CKR_DTYPE_F64, 0, 1, N, out);
    case 4: return ckr_rng_uniform(r, CKR_DTYPE_BF16, 0, 1, N, out);
    case 5: return ckr_rng_normal(r, CKR_DTYPE_BF16, 0, 1, N, out);
    case 6: return ckr_rng_random(r, CKR_DTYPE_I32, N, (int64_t *)out);
    case 7: return ckr_rng_integers(r, CKR_DTYPE_I64, 0, 1000, N, (int64_t *)out);
    default: return ckr_rng_permutation(r, N, (int64_t *)out);
    }
}

static void jump(ckr_rng *r, const char *what, uint64_t n, uint32_t shift)
{
    bench_times b;
    int i;
    memset(&b, 0, sizeof b);
    for (i = 0; i < bench_repeats(5); i++) {
        const double t = bench_now();
        if (ckr_rng_jump(r, n, shift) != CKR_OK) exit(1);
        bench_add(&b, bench_now() - t);
    }
    bench_row(what, &b, 1e3, "ms", 0);
}

int main(int argc, char **argv)
{
    void *out = malloc((size_t)N * 8);
    ckr_rng r;
    int what, k;
    bench_clock = CLOCK_PROCESS_CPUTIME_ID;
    if (!out || ckr_rng_seed(&r, CKR_RNG_TORCH_CPU, 0) != CKR_OK) return 1;
    if (argc > 1 && !strcmp(argv[1], "table")) {
        bench_head("Jumps of mt19937");
        jump(&r, "by 4,000,000 words", 4000000, 0);
        jump(&r, "by 2^40", (uint64_t)1 << 40, 0);
        jump(&r, "by 2^128", 1, 128);
    } else {
        for (what = 0; what < 9; what++) {
            double best = 1e9, t;
            for (k = 0; k < bench_repeats(7); k++) {
                t = bench_now();
                if (draw(&r, what, out) != CKR_OK) return 1;
                t = bench_now() - t;
                if (t < best) best = t;
            }
            printf("%s: %.4f\n", names[what], best / N * 1e9);
        }
    }
    free(out);
    return 0;
}
