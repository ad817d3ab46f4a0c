/* hash.c: memcpy, CRC-32 and the tensor digest over 64 KiB (in cache) and 512 MiB (out of it), one
   thread. cc -std=c99 -O2 -I. -o hash bench/hash.c -lm -lpthread */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "bench.h"

static volatile uint64_t bench_sink;

enum {
    HASH_COPY,
    HASH_CRC,
    HASH_CRC_PORTABLE,
    HASH_DIGEST,
    HASH_DIGEST_PORTABLE,
    HASH_SHA256,
    HASH_KINDS
};

static const char *const hash_name[HASH_KINDS] = {
    "memcpy", "CRC-32", "CRC-32, portable", "digest", "digest, portable", "SHA-256"
};

static void pass(int kind, ckr__digest_tables *t, const uint8_t *src, uint8_t *dst, size_t n)
{
    uint64_t sum[2] = { 0, 0 };
    const unsigned cpu = t->cpu;
    ckr_sha256 sha;
    uint8_t out[32];
    switch (kind) {
    case HASH_COPY: memcpy(dst, src, n); sum[0] = dst[n / 2]; break;
    case HASH_CRC: sum[0] = ckr__crc32(0, src, n); break;
    case HASH_CRC_PORTABLE: sum[0] = ckr__crc_scalar(0, src, n); break;
    case HASH_DIGEST: ckr__digest_add(t, sum, 0, src, n); break;
    case HASH_DIGEST_PORTABLE:
        t->cpu = 0;
        ckr__digest_add(t, sum, 0, src, n);
        t->cpu = cpu;
        break;
    default:
        ckr_sha256_init(&sha);
        ckr_sha256_update(&sha, src, n);
        ckr_sha256_final(&sha, out);
        sum[0] = out[0];
        break;
    }
    bench_sink = sum[0];
}

static void measure(const char *where, size_t size, int rounds)
{
    uint8_t *src = (uint8_t *)malloc(size), *dst = (uint8_t *)malloc(size);
    ckr__digest_tables *t = (ckr__digest_tables *)malloc(sizeof *t);
    bench_times b[HASH_KINDS];
    char text[100];
    int i, k, r, n = bench_repeats(9);
    if (!src || !dst || !t) exit(1);
    memset(src, 7, size);
    memset(dst, 7, size);
    memset(b, 0, sizeof b);
    ckr__digest_tables_init(t);
    for (i = 0; i < n; i++)
        for (k = 0; k < HASH_KINDS; k++) {
            double s = bench_now();
            for (r = 0; r < rounds; r++) pass(k, t, src, dst, size);
            bench_add(&b[k], bench_now() - s);
        }
    snprintf(text, sizeof text, "Hashes, %s, one thread", where);
    bench_head(text);
    for (k = 0; k < HASH_KINDS; k++) {
        const double bytes = (double)size * rounds / 1e9;
        printf("| %s | %.1f GB/s | %.1f GB/s | | |\n", hash_name[k], bytes / b[k].t[0],
               bytes / bench_median(&b[k]));
    }
    free(src);
    free(dst);
    free(t);
}

int main(void)
{
    bench_clock = CLOCK_PROCESS_CPUTIME_ID;
    measure("64 KiB", (size_t)1 << 16, 1024);
    measure("512 MiB", (size_t)1 << 29, 1);
    return 0;
}
