/* A whole checkpoint of which one file is the input: open, plan, digest, check. The first byte
   chooses the file. Starts from tests/data, so it runs in the root of the repository.
   clang -g -O1 -fsanitize=fuzzer,address,undefined -I. -Itests \
       tests/fuzz/fuzz_open.c -o fuzz_open -pthread -lm
   ./fuzz_open -max_len=65536 tests/fuzz/corpus/open */
#include "fuzz.h"
#include "tree.h"

#define SOURCE "tests/data/nanotron/tp1_pp2_dp1_tied/ckpt"

static memio base;

static int by_path(const void *a, const void *b)
{
    return strcmp((*(memio_file *const *)a)->path, (*(memio_file *const *)b)->path);
}

static void use(const ckr_env *env)
{
    ckr_open_desc desc = CKR_ZERO;
    ckr_target t = CKR_ZERO;
    ckr_ckpt *c = NULL;
    ckr_plan *p = NULL;
    ckr_report report;
    ckr_error e;
    uint8_t total[16];
    t.mode = CKR_MODE_CONTINUE;
    t.topology.tp = t.topology.pp = t.topology.dp = 1;
    t.topology.zero = -1;
    desc.env = env;
    desc.limits.max_arena_bytes = FUZZ_ARENA;
    if (ckr_ckpt_open("/w/in", &desc, &c, &e) == CKR_OK) {
        ckr_plan_create(c, &t, 0, &p, &e);
        ckr_ckpt_digest(c, NULL, total, &e);
        if (ckr_ckpt_check(c, &report, &e) == CKR_OK) ckr_report_free(&report);
    } else if (e.code == CKR_OK || !e.text[0]) {
        abort();
    }
    ckr_plan_free(p);
    ckr_ckpt_close(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    faulty f;
    ckr_env env;
    memio_file *one;
    uint8_t *keep;
    size_t n;
    if (size < 1 || size > 65536) return 0;
    if (!base.n) {
        memio_load(&base, SOURCE, "/w/in");
        qsort(base.files, base.n, sizeof *base.files, by_path);
    }
    one = base.files[data[0] % base.n];
    if (one->is_dir) return 0;
    keep = one->data;
    n = one->size;
    one->data = (uint8_t *)malloc(size);
    if (!one->data) exit(2);
    memcpy(one->data, data + 1, size - 1);
    one->size = size - 1;
    env = faulty_env(&f, memio_io(&base));
    use(&env);
    fuzz_no_leak(&f);
    free(one->data);
    one->data = keep;
    one->size = n;
    return 0;
}
