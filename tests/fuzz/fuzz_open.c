/* A whole checkpoint of which one file is the input: open, plan, digest, check. The first byte
   chooses the file. Starts from tests/data, so it runs in the root of the repository.
   clang -g -O1 -fsanitize=fuzzer,address,undefined -I. -Itests \
       tests/fuzz/fuzz_open.c -o fuzz_open -pthread -lm
   ./fuzz_open -max_len=65536 tests/fuzz/corpus/open */
#include "fuzz_ckpt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    memio_file *one;
    ckr_topology to = CKR_ZERO;
    to.tp = to.pp = to.dp = 1;
    to.zero = -1;
    fuzz_load("tests/data/nanotron/tp1_pp2_dp1_tied/ckpt");
    if (size < 1 || size > 65536) return 0;
    one = fuzz_base.files[2 + data[0] % (fuzz_base.n - 2)];        /* after /w and /w/in */
    if (!one->is_dir) fuzz_replaced(one, data + 1, size - 1, &to);
    return 0;
}
