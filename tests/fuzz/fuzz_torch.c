/* torch files of any kind (zip, legacy, plain pickle), .npy and .npz: told apart by their bytes.
   clang -g -O1 -fsanitize=fuzzer,address,undefined -I. -Itests \
       tests/fuzz/fuzz_torch.c -o fuzz_torch -pthread -lm
   ./fuzz_torch -max_len=65536 tests/fuzz/corpus/torch */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size <= 65536) fuzz_tree("/f.pt", data, size, NULL);
    return 0;
}
