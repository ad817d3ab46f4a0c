/* YAML: the subset that configuration files use.
   clang -g -O1 -fsanitize=fuzzer,address,undefined -I. -Itests \
       tests/fuzz/fuzz_yaml.c -o fuzz_yaml -pthread -lm
   ./fuzz_yaml -max_len=65536 tests/fuzz/corpus/yaml */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size <= 65536) fuzz_tree("/f.yaml", data, size, NULL);
    return 0;
}
