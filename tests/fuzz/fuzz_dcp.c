/* A directory of torch.distributed.checkpoint whose .metadata, or one of its data files, is the
   input: open, plan, digest, check. The first byte chooses the file. Starts from tests/data, so it
   runs in the root of the repository.
   clang -g -O1 -fsanitize=fuzzer,address,undefined -I. -Itests \
       tests/fuzz/fuzz_dcp.c -o fuzz_dcp -pthread -lm
   ./fuzz_dcp -max_len=65536 tests/fuzz/corpus/dcp */
#include "fuzz_ckpt.h"

/* Byte 0 to 127: .metadata, which comes first; else one of the others. */
static memio_file *chosen(uint8_t byte)
{
    size_t i, n = 0;
    memio_file *files[64];
    for (i = 0; i < fuzz_base.n && n < 64; i++)
        if (!fuzz_base.files[i]->is_dir) files[n++] = fuzz_base.files[i];
    return byte < 128 || n < 2 ? files[0] : files[1 + byte % (n - 1)];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ckr_topology to = CKR_ZERO;
    to.dp = 3;
    to.zero = -1;
    fuzz_load("tests/data/dcp/dcp_w_threads3/ckpt");
    if (size) fuzz_replaced(chosen(data[0]), data + 1, size - 1, &to);
    return 0;
}
