/* A checkpoint of tests/data in memory, one file of which is the input: open, plan, digest,
   check. */
#ifndef FUZZ_CKPT_H
#define FUZZ_CKPT_H
#include "fuzz.h"
#include "tree.h"

static memio fuzz_base;        /* the checkpoint in /w/in, sorted by path */

static int fuzz_by_path(const void *a, const void *b)
{
    return strcmp((*(memio_file *const *)a)->path, (*(memio_file *const *)b)->path);
}

static void fuzz_load(const char *source)
{
    if (fuzz_base.n) return;
    memio_load(&fuzz_base, source, "/w/in");
    memio_add(&fuzz_base, "/w/in", true);
    memio_add(&fuzz_base, "/w", true);
    qsort(fuzz_base.files, fuzz_base.n, sizeof *fuzz_base.files, fuzz_by_path);
}

static void fuzz_use(const ckr_env *env, const ckr_topology *to)
{
    ckr_open_desc desc = CKR_ZERO;
    ckr_target t = CKR_ZERO;
    ckr_ckpt *c = NULL;
    ckr_plan *p = NULL;
    ckr_report *report = NULL;
    ckr_error e;
    uint8_t total[16];
    t.mode = CKR_MODE_CONTINUE;
    t.topology = *to;
    desc.env = env;
    desc.limits.max_arena_bytes = FUZZ_ARENA;
    if (ckr_ckpt_open("/w/in", &desc, &c, &e) == CKR_OK) {
        ckr_plan_create(c, &t, 0, &p, &e);
        ckr_ckpt_digest(c, NULL, total, &e);
        if (ckr_ckpt_check(c, &report, &e) == CKR_OK) ckr_report_free(report);
    } else if (e.code == CKR_OK || !e.text[0]) {
        abort();
    }
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

/* The checkpoint with `data` as the content of file `one`, for one run. */
static void fuzz_replaced(memio_file *one, const uint8_t *data, size_t size,
                          const ckr_topology *to)
{
    uint8_t *keep = one->data;
    const size_t n = one->size;
    faulty f;
    ckr_env env;
    one->data = (uint8_t *)malloc(size + 1);
    if (!one->data) exit(2);
    if (size) memcpy(one->data, data, size);
    one->size = size;
    env = faulty_env(&f, memio_io(&fuzz_base));
    fuzz_use(&env, to);
    fuzz_no_leak(&f);
    free(one->data);
    one->data = keep;
    one->size = n;
}
#endif
