/* bench_remap.c: random streams of 4,096 ranks for 3,072, four a rank (Philox, and three mt19937 of
   2.5 KB): scopes, root digest, who keeps what, 1,024 parked, proof, record. And with that record
   back to 4,096. One thread. cc -std=c99 -O2 -I. -o bench_remap bench/remap.c -lm -lpthread */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "bench.h"

static ckr_error err;

static ckr__rng_saved *make(ckr__ctx *c, uint32_t ranks)
{
    static const ckr_rng_kind kinds[] = { CKR_RNG_TORCH_CUDA, CKR_RNG_TORCH_CPU, CKR_RNG_NUMPY,
                                          CKR_RNG_PYTHON };
    ckr__rng_saved *s = CKR__NEW_N(c, ckr__rng_saved, 4 * (uint64_t)ranks);
    uint64_t i;
    for (i = 0; i < 4 * (uint64_t)ranks; i++) {
        ckr_rng *r = CKR__NEW(c, ckr_rng);
        if (ckr_rng_seed(r, kinds[i % 4], 1 + i / 4) != CKR_OK) bench_fail("seed", &err);
        s[i].name = "default";
        s[i].rank = (uint32_t)(i / 4);
        s[i].axes = 1u << CKR__AXIS_DP;
        s[i].declared = true;
        s[i].state = r;
    }
    return s;
}

static void measure(const char *what, const ckr__rng_job *job, double limit)
{
    bench_times b;
    int i;
    memset(&b, 0, sizeof b);
    for (i = 0; i < bench_repeats(9); i++) {
        ckr__ctx c;
        ckr__rng_result r;
        double t;
        if (ckr__ctx_init(&c, NULL, NULL, &err) != CKR_OK) bench_fail(what, &err);
        t = bench_now();
        if (ckr__rng_remap(&c, job, &r) != CKR_OK) bench_fail(what, &err);
        bench_add(&b, bench_now() - t);
        if (!r.disjoint) bench_fail(what, &err);
        ckr__ctx_free(&c);
    }
    bench_row(what, &b, 1e3, "ms", limit);
}

int main(void)
{
    ckr__ctx c;
    ckr__rng_job job, back;
    ckr__rng_result r;
    bench_clock = CLOCK_PROCESS_CPUTIME_ID;
    if (ckr__ctx_init(&c, NULL, NULL, &err) != CKR_OK) bench_fail("init", &err);
    memset(&job, 0, sizeof job);
    job.saved = make(&c, 4096);
    job.n_saved = 4 * 4096;
    job.from.dp = 4096;
    job.to.dp = 3072;
    job.mode = CKR_MODE_CONTINUE;
    bench_head("Random streams");
    measure("4,096 -> 3,072 ranks, 4 streams each", &job, 100);
    if (ckr__rng_remap(&c, &job, &r) != CKR_OK) bench_fail("remap", &err);
    back = job;
    back.n_saved = 4 * 3072;
    back.from.dp = 3072;
    back.to.dp = 4096;
    back.lineage = r.lineage;
    measure("3,072 -> 4,096 ranks, back by the record", &back, 100);
    back.lineage = NULL;
    measure("3,072 -> 4,096 ranks, 4,096 streams derived", &back, 100);
    job.to.dp = 4096;
    measure("4,096 -> 4,096 ranks", &job, 100);
    job.to.dp = 4096 * 3;
    measure("4,096 -> 12,288 ranks", &job, 0);
    ckr__ctx_free(&c);
    return 0;
}
