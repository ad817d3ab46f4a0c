/* A directory of torch.distributed.checkpoint whose .metadata, or one of its data files, is the
   input: open, plan, digest, check. The first byte chooses the file. Starts from tests/data, so it
   runs in the root of the repository.
   clang -g -O1 -fsanitize=fuzzer,address,undefined -I. -Itests \
       tests/fuzz/fuzz_dcp.c -o fuzz_dcp -pthread -lm
   ./fuzz_dcp -max_len=65536 tests/fuzz/corpus/dcp */
#include "fuzz.h"
#include "tree.h"

#define SOURCE "tests/data/dcp/dcp_w_threads3/ckpt"

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
    t.topology.dp = 3;
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

/* Byte 0 to 127: .metadata, which comes first; else one of the others. */
static memio_file *chosen(uint8_t byte)
{
    size_t i, n = 0;
    memio_file *files[64];
    for (i = 0; i < base.n && n < 64; i++)
        if (!base.files[i]->is_dir) files[n++] = base.files[i];
    return byte < 128 || n < 2 ? files[0] : files[1 + byte % (n - 1)];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    memio_file *one;
    uint8_t *keep;
    size_t n;
    faulty f;
    ckr_env env;
    if (!base.n) {
        memio_load(&base, SOURCE, "/w/in");
        memio_add(&base, "/w/in", true);
        memio_add(&base, "/w", true);
        qsort(base.files, base.n, sizeof *base.files, by_path);
    }
    if (size < 1) return 0;
    one = chosen(data[0]);
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
