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

int main(int argc, char **argv)
{
    char text[160];
    double peak[16], least = 1, most = 0;
    int i, k, n = bench_repeats(9);
    if (argc < 2 || argc > 16) return 2;
    bench_head("Metadata of torch.distributed.checkpoint");
    for (i = 1; i < argc; i++) peak[i] = bench_peak(list, argv[i]);    /* while nothing is held */
    for (i = 1; i < argc; i++) {
        bench_times b;
        memset(&b, 0, sizeof b);
        list(argv[i]);
        for (k = 0; k < n; k++) {
            const double t = bench_now();
            list(argv[i]);
            bench_add(&b, bench_now() - t);
        }
        snprintf(text, sizeof text, "metadata of %llu chunks: time", (unsigned long long)n_chunks);
        bench_row(text, &b, 1, "s", n_chunks > 500000 ? 0.35 : 0);
        snprintf(text, sizeof text, "metadata of %llu chunks: a chunk",
                 (unsigned long long)n_chunks);
        bench_row(text, &b, 1e9 / (double)n_chunks, "ns", 0);
        if (b.t[0] / (double)n_chunks > most) most = b.t[0] / (double)n_chunks;
        if (b.t[0] / (double)n_chunks < least) least = b.t[0] / (double)n_chunks;
        snprintf(text, sizeof text, "metadata of %llu chunks: memory",
                 (unsigned long long)n_chunks);
        bench_value(text, peak[i], "MiB", n_chunks > 500000 ? 238 : 0);
    }
    if (argc > 2) bench_value("metadata: the dearest chunk : the cheapest", most / least, "", 1.5);
    return 0;
}
