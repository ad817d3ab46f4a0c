/* far.c CHECKPOINT OUT PARTS PART...: these parts of a conversion to one torch file, of which zeros
   are not written: they stay holes, and the file system's room is not asked for. PARTS 0: all in
   one. cc -std=c99 -O2 -I. -o far bench/far.c -lm -lpthread */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "bench.h"

static ckr_io under;

static int32_t write_data(void *user, void *file, uint64_t offset, const void *src, size_t n)
{
    const char *s = (const char *)src;
    (void)user;
    if (n > 1 && s[0] == 0 && memcmp(s, s + 1, n - 1) == 0) return 0;
    return under.write_fn(under.user, file, offset, src, n);
}

int main(int argc, char **argv)
{
    ckr_error err = CKR_ZERO;
    ckr_env env = CKR_ZERO;
    ckr_open_desc desc = CKR_ZERO;
    ckr_target target = CKR_ZERO;
    ckr_parts parts = CKR_ZERO;
    ckr_ckpt *c;
    ckr_plan *p;
    int i;
    if (argc < 4) {
        fprintf(stderr, "usage: far CHECKPOINT OUT PARTS PART...\n");
        return 2;
    }
    under = ckr__default_io();
    env.io = under;
    env.io.write_fn = write_data;
    env.io.room_fn = NULL;
    desc.env = &env;
    target.dialect = "torch";
    parts.n = (uint32_t)atoi(argv[3]);
    if (ckr_ckpt_open(argv[1], &desc, &c, &err) != CKR_OK) bench_fail("open", &err);
    if (ckr_plan_create(c, &target, 0, &p, &err) != CKR_OK) bench_fail("plan", &err);
    if (parts.n == 0 && ckr_plan_write(p, argv[2], NULL, &err) != CKR_OK)
        bench_fail("write", &err);
    for (i = 4; i < argc; i++)
        if (ckr_plan_write_part(p, argv[2], (uint32_t)atoi(argv[i]), &parts, &err) != CKR_OK)
            bench_fail("part", &err);
    ckr_plan_free(p);
    ckr_ckpt_close(c);
    return 0;
}
