/* open.c CHECKPOINT [TP]: opening a checkpoint of many files and planning its change to another TP
   size: time, and the share of the bytes that was read, counted in the I/O hooks. cc -std=c99 -O2
   -I. -o open bench/open.c -lm -lpthread */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "bench.h"

static uint64_t bench_read, bench_calls;

static int32_t counted_read(void *user, void *file, uint64_t offset, void *dst, size_t n)
{
    (void)user;
    bench_read += n;
    bench_calls++;
    return ckr__os_read(NULL, file, offset, dst, n);
}

static void refused(const ckr_plan_facts *f)
{
    uint64_t i;
    for (i = 0; i < f->n_notes; i++)
        if (f->notes[i].severity >= CKR_LOST)
            fprintf(stderr, "%s: %s: %s\n", f->notes[i].code, f->notes[i].subject,
                    f->notes[i].reason);
    fprintf(stderr, "the plan is refused\n");
    exit(1);
}

int main(int argc, char **argv)
{
    bench_times b[2];
    char text[200];
    uint64_t bytes = 0;
    uint32_t files = 0;
    int i, n = bench_repeats(9);
    bench_clock = CLOCK_PROCESS_CPUTIME_ID;
    if (argc < 2) {
        fprintf(stderr, "usage: open CHECKPOINT [TP]\n");
        return 2;
    }
    memset(b, 0, sizeof b);
    for (i = -1; i < n; i++) {                  /* the first round is not counted */
        ckr_error err = CKR_ZERO;
        ckr_env env = CKR_ZERO;
        ckr_open_desc desc = CKR_ZERO;
        ckr_target target = CKR_ZERO;
        ckr_ckpt *c;
        ckr_plan *p;
        double t = bench_now(), opened;
        env.io = ckr__default_io();
        env.io.read_fn = counted_read;
        desc.env = &env;
        bench_read = bench_calls = 0;
        if (ckr_ckpt_open(argv[1], &desc, &c, &err) != CKR_OK) bench_fail("open", &err);
        opened = bench_now() - t;
        target.topology.tp = argc > 2 ? (uint32_t)atoi(argv[2]) : 0;
        target.slots = "all";
        if (ckr_plan_create(c, &target, 0, &p, &err) != CKR_OK) bench_fail("plan", &err);
        t = bench_now() - t;
        if (ckr_plan_info(p)->verdict == CKR_VERDICT_REFUSED) refused(ckr_plan_info(p));
        files = ckr_ckpt_files(c, &bytes);
        ckr_plan_free(p);
        ckr_ckpt_close(c);
        if (i < 0) continue;
        bench_add(&b[0], opened);
        bench_add(&b[1], t);
    }
    snprintf(text, sizeof text, "Preflight: %u files, %.2f GiB", (unsigned)files,
             (double)bytes / 1073741824.0);
    bench_head(text);
    bench_row("open", &b[0], 1e3, "ms", 0);
    bench_row("open and plan", &b[1], 1e3, "ms", 1000);
    bench_value("share of the bytes that was read", 100.0 * (double)bench_read / (double)bytes, "%",
                0.1);
    bench_value("read calls", (double)bench_calls, "", 0);
    return 0;
}
