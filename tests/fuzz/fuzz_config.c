/* Fuzzer of config.json; see README.md. */
#include "fuzz/config_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    fuzz_config(bytes, size);
    return 0;
}
