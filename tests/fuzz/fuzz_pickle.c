/* data.pkl of a torch archive: tensors in the short way and opcode by opcode, the same tree or the
   same error.
   clang -g -O1 -fsanitize=fuzzer,address,undefined -I. -Itests \
       tests/fuzz/fuzz_pickle.c -o fuzz_pickle -pthread -lm
   ./fuzz_pickle -max_len=65536 tests/fuzz/corpus/pickle */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    memio m;
    faulty f;
    ckr_env env;
    archive a;
    uint32_t saved;
    if (size == 0 || size > 65536) return 0;
    a = archive_of(data, size);
    memset(&m, 0, sizeof m);
    memio_put(&m, "/f.pt", a.data, a.n);
    env = faulty_env(&f, memio_io(&m));
    if (archive_ways(&env, "/f.pt", FUZZ_ARENA, &saved)) abort();
    fuzz_no_leak(&f);
    memio_free(&m);
    free(a.data);
    fuzz_tree("/f.pkl", data, size, NULL);
    return 0;
}
