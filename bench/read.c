/* read.c ST PT: reading 1 GiB of a file in the page cache into the caller's memory, against mmap +
   memcpy of the same bytes in the same process; what a digest and a CRC-32 in the same pass cost.
   cc -std=c99 -O2 -I. -o read bench/read.c -lm -lpthread */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "bench.h"

static volatile uint32_t bench_sink;

typedef struct bench_copy { const uint8_t *src; uint8_t *dst; size_t n, parts; } bench_copy;

static void copy_part(void *arg, uint32_t i)
{
    const bench_copy *c = (const bench_copy *)arg;
    size_t size = c->n / c->parts, at = size * i;
    memcpy(c->dst + at, c->src + at, i + 1 == c->parts ? c->n - at : size);
}

/* Open, map, copy what follows the header with `threads` threads, unmap: the bytes that
   ckr_ckpt_read reads, from and to the same places. */
static double time_mmap(const char *path, uint8_t *dst, uint32_t threads)
{
    double t = bench_now();
    int fd = open(path, O_RDONLY);
    struct stat st;
    bench_copy c;
    size_t head;
    void *map;
    if (fd < 0 || fstat(fd, &st) != 0) exit(1);
    map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) exit(1);
    head = 8 + (size_t)ckr__load_u64((const uint8_t *)map);
    c.src = (const uint8_t *)map + head;
    c.dst = dst;
    c.n = (size_t)st.st_size - head;
    c.parts = threads;
    ckr__os_for(NULL, threads, threads, copy_part, &c);
    munmap(map, (size_t)st.st_size);
    close(fd);
    return bench_now() - t;
}

/* ckr_ckpt_read; with `digest` the library's own engine also sums the digests, as a conversion
   does. */
static ckr_result read_all(const ckr_ckpt *k, const ckr_read *reads, size_t n, bool digest,
                           ckr_error *err)
{
    ckr__ctx c;
    ckr__crew crew;
    ckr__jobs jobs;
    size_t i;
    ckr_result r;
    if (!digest) return ckr_ckpt_read(k, reads, n, err);
    r = ckr__ctx_init(&c, &k->ctx.env, &k->ctx.limits, err);
    memset(&jobs, 0, sizeof jobs);
    memset(&crew, 0, sizeof crew);
    for (i = 0; i < n && r == CKR_OK; i++) r = ckr__read_add(&c, &jobs, &reads[i]);
    if (r == CKR_OK) r = ckr__crew_make(&crew, &c, &k->ctx, NULL, k->state.n_tensors);
    if (r == CKR_OK) r = ckr__jobs_run(&jobs, &crew);
    ckr__crew_free(&crew);
    ckr__ctx_free(&c);
    return r;
}

static double time_ckr(const char *path, uint8_t *dst, uint32_t threads, bool digest)
{
    double t = bench_now();
    ckr_error err = CKR_ZERO;
    ckr_env env = CKR_ZERO;
    ckr_open_desc desc = CKR_ZERO;
    const ckr_state *s;
    ckr_read *reads;
    ckr_ckpt *c;
    uint64_t i, at = 0;
    env.parallel.n_threads = threads;
    desc.env = &env;
    if (ckr_ckpt_open(path, &desc, &c, &err) != CKR_OK) bench_fail("open", &err);
    s = ckr_ckpt_state(c);
    reads = (ckr_read *)calloc((size_t)s->n_tensors, sizeof *reads);
    if (!reads) exit(1);
    for (i = 0; i < s->n_tensors; i++) {
        reads[i].tensor = s->tensors[i];
        reads[i].dst = dst + at;
        reads[i].dst_size = (size_t)(s->tensors[i]->shape[0] * s->tensors[i]->shape[1]) * 4;
        at += reads[i].dst_size;
    }
    if (read_all(c, reads, (size_t)s->n_tensors, digest, &err) != CKR_OK) bench_fail("read", &err);
    free(reads);
    ckr_ckpt_close(c);
    return bench_now() - t;
}

/* The members of a .pt into memory by the same calls as ckr_ckpt_read, with or without their
   CRC-32. */
typedef struct bench_crc {
    const ckr_ckpt *ckpt;
    uint8_t *dst;
    uint32_t threads;
    bool check;
} bench_crc;

static void crc_lane(void *arg, uint32_t lane)
{
    const bench_crc *b = (const bench_crc *)arg;
    const ckr_state *s = ckr_ckpt_state(b->ckpt);
    uint64_t i;
    for (i = lane; i < s->n_tensors; i += b->threads) {
        const ckr_piece *p = &s->tensors[i]->pieces[0];
        size_t n = (size_t)(s->tensors[i]->shape[0] * s->tensors[i]->shape[1]) * 4, at, part;
        uint8_t *dst = b->dst + i * n;
        uint32_t crc = 0;
        for (at = 0; at < n; at += part) {
            part = b->check && n - at > CKR__BLOCK ? (size_t)CKR__BLOCK : n - at;
            if (ckr__os_read(NULL, b->ckpt->ctx.files[p->file].handle, p->offset + at, dst + at,
                             part) != 0)
                exit(1);
            if (b->check) crc = ckr__crc32(crc, dst + at, part);
        }
        bench_sink = crc;
    }
}

static double time_crc(const char *path, uint8_t *dst, uint32_t threads, bool check)
{
    double t;
    ckr_error err = CKR_ZERO;
    bench_crc b;
    ckr_ckpt *c;
    if (ckr_ckpt_open(path, NULL, &c, &err) != CKR_OK) bench_fail("open", &err);
    b.ckpt = c;
    b.dst = dst;
    b.threads = threads;
    b.check = check;
    t = bench_now();
    ckr__os_for(NULL, threads, threads, crc_lane, &b);
    t = bench_now() - t;
    ckr_ckpt_close(c);
    return t;
}

static void measure(const char *st, const char *pt, uint8_t *dst, double bytes, uint32_t threads)
{
    bench_pair map, digest, crc;
    char text[160];
    int i, n = bench_repeats(9);
    memset(&map, 0, sizeof map);
    memset(&digest, 0, sizeof digest);
    memset(&crc, 0, sizeof crc);
    time_mmap(st, dst, threads);
    for (i = 0; i < n; i++) {
        double base = time_mmap(st, dst, threads), plain = time_ckr(st, dst, threads, false);
        bench_pair_add(&map, plain, base);
        bench_pair_add(&digest, time_ckr(st, dst, threads, true), plain);
        plain = time_crc(pt, dst, threads, false);
        bench_pair_add(&crc, time_crc(pt, dst, threads, true), plain);
    }
    snprintf(text, sizeof text, "Warm read of 1 GiB, %u thread%s", (unsigned)threads,
             threads == 1 ? "" : "s");
    bench_head(text);
    printf("| mmap + memcpy | %.2f GB/s | %.2f GB/s | | |\n", bytes / map.b.t[0] / 1e9,
           bytes / bench_median(&map.b) / 1e9);
    printf("| ckr_ckpt_read | %.2f GB/s | %.2f GB/s | | |\n", bytes / map.a.t[0] / 1e9,
           bytes / bench_median(&map.a) / 1e9);
    bench_pair_row("time of ckr_ckpt_read : mmap + memcpy", &map, 1 / 0.9);
    bench_pair_row("time with digest : without", &digest, 1.2);
    bench_pair_row("time with CRC-32 of zip members : without", &crc, 1.2);
}

/* The same to other places: the kernel's copy depends on how both sides lie to a line of cache and
   to a page. `behind` is where the bytes go within a page, less where they come from. */
static void measure_places(const char *st, uint8_t *room, uint64_t head)
{
    static const unsigned behind[] = { 0, 1, 8, 16, 48, 96, 2056, 4088 };
    size_t i;
    int k, n = bench_repeats(5);
    char text[160];
    bench_head("Warm read of 1 GiB, 1 thread, by where it goes in a page");
    for (i = 0; i < sizeof behind / sizeof *behind; i++) {
        uint8_t *dst = room + ((head + behind[i] - (uint64_t)(uintptr_t)room) & 4095);
        bench_pair p;
        memset(&p, 0, sizeof p);
        time_mmap(st, dst, 1);
        for (k = 0; k < n; k++) {
            double base = time_mmap(st, dst, 1);
            bench_pair_add(&p, time_ckr(st, dst, 1, false), base);
        }
        snprintf(text, sizeof text, "%u bytes behind: time of ckr_ckpt_read : mmap + memcpy",
                 behind[i]);
        bench_pair_row(text, &p, 1 / 0.9);
    }
}

/* Bytes before the first tensor of a safetensors file. */
static uint64_t header_bytes(const char *path)
{
    uint8_t word[8];
    FILE *f = fopen(path, "rb");
    if (!f || fread(word, 1, 8, f) != 8) exit(1);
    fclose(f);
    return 8 + ckr__load_u64(word);
}

int main(int argc, char **argv)
{
    struct stat st, st2;
    uint8_t *dst;
    size_t n;
    if (argc != 3 || stat(argv[1], &st) != 0 || stat(argv[2], &st2) != 0) {
        fprintf(stderr, "usage: read FILE.safetensors FILE.pt\n");
        return 2;
    }
    n = (size_t)(st.st_size > st2.st_size ? st.st_size : st2.st_size);
    dst = (uint8_t *)malloc(n + 4096);
    if (!dst) return 1;
    memset(dst, 1, n + 4096);
    measure(argv[1], argv[2], dst, (double)st.st_size, 1);
    measure(argv[1], argv[2], dst, (double)st.st_size, 2);
    measure_places(argv[1], dst, header_bytes(argv[1]));
    free(dst);
    return 0;
}
