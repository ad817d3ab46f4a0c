/* part.c CHECKPOINT: an eighth of every tensor into the caller's memory, as one rank of eight takes
   it: bytes that were read, counted in the I/O hooks with the metadata, against those that were
   asked for. By rows as they were saved, by rows that begin half way through a saved part, and by
   columns. cc -std=c99 -O2 -I. -o part bench/part.c -lm -lpthread */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "bench.h"

enum { BENCH_PARTS = 8, BENCH_RANK = 3 };

static uint64_t bench_read;

static int32_t counted_read(void *user, void *file, uint64_t offset, void *dst, size_t n)
{
    (void)user;
    __sync_fetch_and_add(&bench_read, n);
    return ckr__os_read(NULL, file, offset, dst, n);
}

/* The rank's part of [0, n), `late` by half of one. */
static void eighth(int64_t n, bool late, int64_t *start, int64_t *count)
{
    const int64_t each = (n + BENCH_PARTS - 1) / BENCH_PARTS;
    *start = BENCH_RANK * each + (late ? each / 2 : 0);
    if (*start > n) *start = n;
    *count = *start + each > n ? n - *start : each;
}

/* Boxes of all tensors that have so many axes; bytes asked for. */
static uint64_t boxes(const ckr_state *s, uint32_t axis, bool late, ckr_read *reads, int64_t *dims,
                      size_t *n_reads)
{
    uint64_t i, bytes = 0;
    uint32_t d;
    *n_reads = 0;
    for (i = 0; i < s->n_tensors; i++) {
        const ckr_tensor *t = s->tensors[i];
        ckr_read *r = &reads[*n_reads];
        int64_t *start = dims + 2 * CKR_MAX_DIMS * (int64_t)i, *count = start + CKR_MAX_DIMS;
        memset(r, 0, sizeof *r);
        if (t->n_dims <= axis) continue;
        r->tensor = t;
        r->dst_size = ckr_dtype_size(t->dtype);
        for (d = 0; d < t->n_dims; d++) {
            start[d] = 0;
            count[d] = t->shape[d];
            if (d == axis) eighth(t->shape[d], late, &start[d], &count[d]);
            r->dst_size *= (size_t)count[d];
        }
        r->start = start;
        r->count = count;
        bytes += r->dst_size;
        if (r->dst_size) ++*n_reads;
    }
    return bytes;
}

static void measure(const char *path, const char *what, uint32_t axis, bool late)
{
    ckr_error err = CKR_ZERO;
    ckr_env env = CKR_ZERO;
    ckr_open_desc desc = CKR_ZERO;
    const ckr_state *s;
    ckr_read *reads;
    ckr_ckpt *c;
    int64_t *dims;
    uint64_t need, at = 0;
    size_t n, i;
    uint8_t *memory;
    bench_times b;
    char text[160];
    memset(&b, 0, sizeof b);
    env.io = ckr__default_io();
    env.io.read_fn = counted_read;
    desc.env = &env;
    bench_read = 0;
    bench_add(&b, -bench_now());
    if (ckr_ckpt_open(path, &desc, &c, &err) != CKR_OK) bench_fail("open", &err);
    s = ckr_ckpt_state(c);
    reads = (ckr_read *)malloc((size_t)s->n_tensors * sizeof *reads + 1);
    dims = (int64_t *)malloc((size_t)s->n_tensors * 2 * CKR_MAX_DIMS * sizeof *dims + 1);
    if (!reads || !dims) exit(1);
    need = boxes(s, axis, late, reads, dims, &n);
    memory = (uint8_t *)malloc((size_t)need + 1);
    if (!memory) exit(1);
    for (i = 0; i < n; at += reads[i++].dst_size) reads[i].dst = memory + at;
    if (ckr_ckpt_read(c, reads, n, &err) != CKR_OK) bench_fail("read", &err);
    b.t[0] += bench_now();
    snprintf(text, sizeof text, "%s, %.0f MiB: bytes read : needed", what,
             (double)need / 1048576);
    bench_value(text, (double)bench_read / (double)need, "", 1.05);
    snprintf(text, sizeof text, "%s: time, opening included", what);
    bench_row(text, &b, 1e3, "ms", 0);
    ckr_ckpt_close(c);
    free(memory);
    free(reads);
    free(dims);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: part CHECKPOINT\n");
        return 2;
    }
    bench_head("An eighth of every tensor");
    measure(argv[1], "rows as saved", 0, false);
    measure(argv[1], "rows between two saved parts", 0, true);
    measure(argv[1], "columns", 1, false);
    return 0;
}
