/* slow.c CHECKPOINT OUT DP [STREAMS [SLOWER]]: what convert makes of storage that is far away: a
   call of the I/O hooks takes 5 ms, and a byte more for each 10 ns, whatever the others do; 64
   threads. Both are SLOWER times as long, since 64 such streams carry more than two cores can.
   Against the ideal: as many streams that all carry their share of the bytes from begin to end; and
   against threads that do nothing else than to read that many bytes and to write them, in calls as
   large. The checkpoint is opened and planned without waiting, and its calls are counted. OUT must
   not exist, and stays. cc -std=c99 -O2 -I. -o slow bench/slow.c -lm -lpthread */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "bench.h"

#define CALL_SECONDS 5e-3
#define BYTES_PER_SECOND 100e6

typedef struct slow_count { uint64_t calls, bytes; } slow_count;

static ckr_io under;
static bool waits;
static double slower = 1;
static slow_count opens, reads, writes, syncs;

/* In whole microseconds for how long calls have waited, all streams together. */
static uint64_t waited;

/* Ends a call that began at `from`: what the files below took is part of its time. */
static void call(slow_count *count, size_t n, double from)
{
    const double seconds = slower * (CALL_SECONDS + (double)n / BYTES_PER_SECOND),
                 left = from + seconds - bench_now();
    struct timespec t;
    __sync_fetch_and_add(&count->calls, 1);
    __sync_fetch_and_add(&count->bytes, n);
    if (!waits) return;
    __sync_fetch_and_add(&waited, (uint64_t)(seconds * 1e6));
    if (left <= 0) return;
    t.tv_sec = (time_t)left;
    t.tv_nsec = (long)((left - (double)t.tv_sec) * 1e9);
    nanosleep(&t, NULL);
}

static int32_t slow_open(void *user, const char *path, bool create, void **file, uint64_t *size)
{
    const double from = bench_now();
    const int32_t sys = under.open_fn(under.user, path, create, file, size);
    (void)user;
    call(&opens, 0, from);
    return sys;
}

static int32_t slow_read(void *user, void *file, uint64_t offset, void *dst, size_t n)
{
    const double from = bench_now();
    const int32_t sys = under.read_fn(under.user, file, offset, dst, n);
    (void)user;
    call(&reads, n, from);
    return sys;
}

static int32_t slow_write(void *user, void *file, uint64_t offset, const void *src, size_t n)
{
    const double from = bench_now();
    const int32_t sys = under.write_fn(under.user, file, offset, src, n);
    (void)user;
    call(&writes, n, from);
    return sys;
}

static int32_t slow_sync(void *user, void *file)
{
    const double from = bench_now();
    const int32_t sys = under.sync_fn(under.user, file);
    (void)user;
    call(&syncs, 0, from);
    return sys;
}

/* The peer: bytes of the checkpoint's files as they are, to a file beside OUT. */
typedef struct bare_copy {
    const ckr_ckpt *ckpt;
    void *to;
    uint64_t call, total, failed;
} bare_copy;

static void bare_call(void *arg, uint32_t i)
{
    bare_copy *b = (bare_copy *)arg;
    const uint64_t from = i * b->call, n = ckr__min_u64(b->call, b->total - from);
    uint64_t at = from, left = n;
    uint8_t *bytes = (uint8_t *)malloc((size_t)n);
    if (!bytes) __sync_fetch_and_add(&b->failed, 1);
    for (uint64_t k = 0; bytes && left && k < b->ckpt->ctx.n_files; k++) {
        const ckr__file *f = &b->ckpt->ctx.files[k];
        if (at < f->size) {
            const size_t part = (size_t)ckr__min_u64(left, f->size - at);
            if (slow_read(NULL, f->handle, at, bytes, part)) __sync_fetch_and_add(&b->failed, 1);
            left -= part;
        }
        at = at < f->size ? 0 : at - f->size;
    }
    if (bytes && slow_write(NULL, b->to, from, bytes, (size_t)n))
        __sync_fetch_and_add(&b->failed, 1);
    free(bytes);
}

static double bare(const ckr_ckpt *c, const char *out, uint64_t bytes, uint64_t n_calls,
                   uint32_t streams)
{
    bare_copy b = { c, NULL, bytes / n_calls + 1, bytes, 0 };
    char path[4096];
    uint64_t size;
    double seconds = -bench_now();
    snprintf(path, sizeof path, "%s.bare", out);
    if (slow_open(NULL, path, true, &b.to, &size)) b.failed++;
    else {
        ckr__os_for(NULL, streams, (uint32_t)((bytes + b.call - 1) / b.call), bare_call, &b);
        if (slow_sync(NULL, b.to)) b.failed++;
        under.close_fn(under.user, b.to);
    }
    seconds += bench_now();
    remove(path);
    if (b.failed) {
        fprintf(stderr, "slow: %s cannot be written\n", path);
        exit(1);
    }
    return seconds;
}

static void calls(const char *what, const slow_count *n)
{
    char text[160];
    snprintf(text, sizeof text, "%s: calls, of %.1f KiB", what,
             n->calls ? (double)n->bytes / 1024 / (double)n->calls : 0);
    bench_value(text, (double)n->calls, "", 0);
}

int main(int argc, char **argv)
{
    ckr_error err = CKR_ZERO;
    ckr_env env = CKR_ZERO;
    ckr_open_desc desc = CKR_ZERO;
    ckr_target target = CKR_ZERO;
    const ckr_plan_facts *f;
    ckr_ckpt *c;
    ckr_plan *p;
    uint32_t streams, files;
    uint64_t bytes;
    double seconds, ideal, copy;
    char text[200];
    if (argc < 4) {
        fprintf(stderr, "usage: slow CHECKPOINT OUT DP [STREAMS [SLOWER]]\n");
        return 2;
    }
    streams = argc > 4 ? (uint32_t)atoi(argv[4]) : 64;
    if (argc > 5) slower = atof(argv[5]);
    under = ckr__default_io();
    env.io = under;
    env.io.open_fn = slow_open;
    env.io.read_fn = slow_read;
    env.io.write_fn = slow_write;
    env.io.sync_fn = slow_sync;
    env.parallel.n_threads = streams;
    desc.env = &env;
    desc.limits.max_arena_bytes = (uint64_t)1 << 40;
    target.topology.dp = (uint32_t)atoi(argv[3]);
    if (ckr_ckpt_open(argv[1], &desc, &c, &err) != CKR_OK) bench_fail("open", &err);
    if (ckr_plan_create(c, &target, 0, &p, &err) != CKR_OK) bench_fail("plan", &err);
    f = ckr_plan_info(p);
    files = ckr_ckpt_files(c, &bytes);
    snprintf(text, sizeof text,
             "5 ms a call and 100 MB/s a stream, %u streams: %u files, %.0f MiB",
             (unsigned)streams, (unsigned)files, (double)f->bytes_written / 1048576);
    bench_head(text);
    bench_value("open and plan: calls, one after the other", (double)(opens.calls + reads.calls),
                "", 0);
    /* every byte once, every file opened once, and every output synced */
    ideal = (double)(f->bytes_read + f->bytes_written) / BYTES_PER_SECOND +
            CALL_SECONDS * (double)(3 * f->n_files + 2 * (uint64_t)files);
    ideal *= slower / streams;
    memset(&opens, 0, sizeof opens);
    memset(&reads, 0, sizeof reads);
    waits = true;
    seconds = -bench_now();
    if (ckr_plan_write(p, argv[2], NULL, &err) != CKR_OK) bench_fail("write", &err);
    seconds += bench_now();
    bench_value("convert : ideal", seconds / ideal, "", 1.3);
    bench_value("convert", seconds, "s", 0);
    bench_value("ideal", ideal, "s", 0);
    bench_value("streams that wait, on average", (double)waited * 1e-6 / seconds, "", 0);
    snprintf(text, sizeof text, "%.0f MiB read for %.0f", (double)reads.bytes / 1048576,
             (double)f->bytes_read / 1048576);
    bench_value(text, (double)reads.bytes / (double)f->bytes_read, "", 0);
    calls("read", &reads);
    calls("write", &writes);
    calls("open", &opens);
    calls("sync", &syncs);
    copy = bare(c, argv[2], f->bytes_read, (reads.calls + writes.calls) / 2, streams);
    bench_value("as many bytes read and written, in as many calls : ideal", copy / ideal, "", 0);
    bench_value("convert : that", seconds / copy, "", 1.3);
    ckr_plan_free(p);
    ckr_ckpt_close(c);
    return 0;
}
