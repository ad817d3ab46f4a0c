/* bench_rng: seconds per element of draws, best of 5; the same lines as bench_rng.py prints for torch. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(void)
{
    const uint64_t n = 1 << 22;
    void *out = malloc(n * 8);
    ckr_rng r;
    int what, k;
    static const char *const names[] = { "uniform f32", "uniform f64", "normal f32", "normal f64",
                                         "uniform bf16", "normal bf16", "random i32", "randint i64", "randperm" };
    if (!out || ckr_rng_seed(&r, CKR_RNG_TORCH_CPU, 0) != CKR_OK) return 1;
    for (what = 0; what < 9; what++) {
        double best = 1e9;
        for (k = 0; k < 5; k++) {
            const double t = now();
            double s;
            if (what == 0) ckr_rng_uniform(&r, CKR_DTYPE_F32, 0, 1, n, out);
            if (what == 1) ckr_rng_uniform(&r, CKR_DTYPE_F64, 0, 1, n, out);
            if (what == 2) ckr_rng_normal(&r, CKR_DTYPE_F32, 0, 1, n, out);
            if (what == 3) ckr_rng_normal(&r, CKR_DTYPE_F64, 0, 1, n, out);
            if (what == 4) ckr_rng_uniform(&r, CKR_DTYPE_BF16, 0, 1, n, out);
            if (what == 5) ckr_rng_normal(&r, CKR_DTYPE_BF16, 0, 1, n, out);
            if (what == 6) ckr_rng_random(&r, CKR_DTYPE_I32, n, (int64_t *)out);
            if (what == 7) ckr_rng_integers(&r, CKR_DTYPE_I64, 0, 1000, n, (int64_t *)out);
            if (what == 8) ckr_rng_permutation(&r, n, (int64_t *)out);
            s = now() - t;
            if (s < best) best = s;
        }
        printf("%-14s %7.3f ns\n", names[what], best / (double)n * 1e9);
    }
    {
        double t = now();
        ckr_rng_jump(&r, 1, 128);
        printf("mt19937 jump by 2^128 %.2f ms\n", (now() - t) * 1e3);
        t = now();
        ckr_rng_jump(&r, (uint64_t)1 << 40, 0);
        printf("mt19937 jump by 2^40  %.2f ms\n", (now() - t) * 1e3);
        t = now();
        ckr_rng_jump(&r, 4000000, 0);
        printf("mt19937 jump by 4e6   %.2f ms\n", (now() - t) * 1e3);
    }
    free(out);
    return 0;
}
