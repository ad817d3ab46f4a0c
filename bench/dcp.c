/* dcp.c DIR...: the metadata of torch.distributed.checkpoint, files in the page cache. Each DIR has
   a .metadata of corpus/dcp/make/scale_metadata.py, and no data files.
   cc -std=c99 -O2 -I. -o dcp bench/dcp.c -lm -lpthread */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "bench.h"

static uint64_t n_chunks;

static void list(void *path)
{
    ckr_ckpt *k = NULL;
    ckr_error err = CKR_ZERO;
    ckr__dcp *d;
    uint64_t i;
    if (ckr_ckpt_create(NULL, &k, &err) != CKR_OK) bench_fail("create", &err);
    k->ctx.err = &err;
    d = CKR__NEW(&k->ctx, ckr__dcp);
    d->c = d->names.c = d->file_names.c = d->boxes.c = &k->ctx;
    d->dir = (const char *)path;
    if (ckr__dcp_load(d) != CKR_OK) bench_fail("metadata", &err);
    n_chunks = 0;
    for (i = 0; i < d->n_items; i++) n_chunks += d->items[i].n_chunks;
    ckr__dcp_close(d);
    ckr_ckpt_close(k);
}

/* The sizes take turns, so that what slows the machine for a while slows all of them, and a small
   one is taken as often in its turn as a tenth of a second allows. */
static void measure(const char *path, double chunks, bench_times *b)
{
    const double begin = bench_now();
    double least = 1e9, t, now;
    do {
        t = bench_now();
        list((void *)(uintptr_t)path);
        now = bench_now();
        if (now - t < least) least = now - t;
    } while (chunks < 500000 && now - begin < 0.1);
    bench_add(b, least);
}

int main(int argc, char **argv)
{
    static bench_times b[16];
    char text[160];
    double peak[16], chunks[16], least = 1, most = 0;
    int i, k, n = bench_repeats(9);
    bench_clock = CLOCK_PROCESS_CPUTIME_ID;
    if (argc < 2 || argc > 16) return 2;
    bench_head("Metadata of torch.distributed.checkpoint");
    for (i = 1; i < argc; i++) peak[i] = bench_peak(list, argv[i]);    /* while nothing is held */
    for (i = 1; i < argc; i++) {
        list(argv[i]);
        chunks[i] = (double)n_chunks;
    }
    for (k = 0; k < n; k++)
        for (i = 1; i < argc; i++) measure(argv[i], chunks[i], &b[i]);
    for (i = 1; i < argc; i++) {
        const double a_chunk = b[i].t[0] / chunks[i];
        snprintf(text, sizeof text, "metadata of %.0f chunks: time", chunks[i]);
        bench_row(text, &b[i], 1, "s", chunks[i] > 500000 ? 0.35 : 0);
        snprintf(text, sizeof text, "metadata of %.0f chunks: a chunk", chunks[i]);
        bench_row(text, &b[i], 1e9 / chunks[i], "ns", 0);
        if (a_chunk > most) most = a_chunk;
        if (a_chunk < least) least = a_chunk;
        snprintf(text, sizeof text, "metadata of %.0f chunks: memory", chunks[i]);
        bench_value(text, peak[i], "MiB", chunks[i] > 500000 ? 238 : 0);
    }
    if (argc > 2) bench_value("metadata: the dearest chunk : the cheapest", most / least, "", 1.5);
    return 0;
}
