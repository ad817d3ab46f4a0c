/* safetensors: as a tree, and as a checkpoint whose every byte is read.
   clang -g -O1 -fsanitize=fuzzer,address,undefined -I. -Itests \
       tests/fuzz/fuzz_safetensors.c -o fuzz_safetensors -pthread -lm
   ./fuzz_safetensors -max_len=65536 tests/fuzz/corpus/safetensors */
#include "fuzz.h"

static void whole(const uint8_t *data, size_t size)
{
    memio m;
    faulty f;
    ckr_env env;
    ckr_open_desc desc = CKR_ZERO;
    ckr_ckpt *c = NULL;
    ckr_error e;
    uint8_t total[16];
    memset(&m, 0, sizeof m);
    memio_put(&m, "/f.safetensors", data, size);
    env = faulty_env(&f, memio_io(&m));
    desc.env = &env;
    desc.limits.max_arena_bytes = FUZZ_ARENA;
    if (ckr_ckpt_open("/f.safetensors", &desc, &c, &e) == CKR_OK)
        ckr_ckpt_digest(c, NULL, total, &e);
    ckr_ckpt_close(c);
    fuzz_no_leak(&f);
    memio_free(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 65536) return 0;
    fuzz_tree("/f.safetensors", data, size, NULL);
    whole(data, size);
    return 0;
}
