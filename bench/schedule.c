/* schedule.c: values of a schedule through the API into the caller's array: 1,000,000 updates of
   300 groups with 300 base learning rates, one thread, the array's pages already there; a plain
   store of as many doubles beside it.
   cc -std=c99 -O2 -I. -o schedule bench/schedule.c -lm -lpthread */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "bench.h"

enum { GROUPS = 300, UPDATES = 1000000 };

static ckr_error err;

static void measure(const char *spec, double *out)
{
    ckr_ckpt *k = NULL;
    bench_times b;
    char text[120], name[32];
    const char *param = name;
    int i;
    memset(&b, 0, sizeof b);
    if (ckr_ckpt_create(NULL, &k, &err) != CKR_OK) bench_fail(spec, &err);
    for (i = 0; i < GROUPS; i++) {
        const ckr_hyper lr = { "lr", 1e-4 * (1 + i / 300.0) };
        snprintf(name, sizeof name, "p%d", i);
        if (ckr_ckpt_put_group(k, NULL, &param, 1, &lr, 1, &err) != CKR_OK) bench_fail(spec, &err);
    }
    if (ckr_ckpt_put_schedule(k, spec, 0, &err) != CKR_OK) bench_fail(spec, &err);
    for (i = 0; i < bench_repeats(5); i++) {
        const double t = bench_now();
        if (ckr_schedule_values(&ckr_ckpt_state(k)->schedules[0], CKR_COLUMN_LR, 1, UPDATES, out,
                                NULL, &err) != CKR_OK)
            bench_fail(spec, &err);
        bench_add(&b, bench_now() - t);
    }
    ckr_ckpt_close(k);
    snprintf(text, sizeof text, "%.*s", (int)strcspn(spec, ","), spec);
    bench_row(text, &b, 1e3, "ms", 1000);
}

int main(void)
{
    const size_t n = (size_t)GROUPS * UPDATES;
    double *out = (double *)malloc(n * sizeof *out);
    bench_times b;
    size_t i;
    int k;
    bench_clock = CLOCK_PROCESS_CPUTIME_ID;
    if (!out) return 1;
    memset(&b, 0, sizeof b);
    memset(out, 1, n * sizeof *out);
    for (k = 0; k < bench_repeats(5); k++) {
        const double t = bench_now();
        for (i = 0; i < n; i++) out[i] = (double)k;
        bench_add(&b, bench_now() - t);
    }
    bench_head("LR of 1,000,000 updates x 300 groups, one thread");
    bench_row("a store of each value", &b, 1e3, "ms", 0);
    measure("nanotron:learning_rate=1e-3,lr_warmup_steps=1000,train_steps=1000000,"
            "min_decay_lr=1e-5,lr_decay_style=cosine,lr_warmup_style=linear", out);
    measure("transformers:cosine,num_warmup_steps=1000,num_training_steps=1000000", out);
    measure("torchtitan:steps=1000000,warmup_steps=1000,decay_type=linear", out);
    measure("torch:CosineAnnealingLR,T_max=1000000", out);
    measure("torch:StepLR,step_size=1000,gamma=0.99", out);
    free(out);
    return 0;
}
