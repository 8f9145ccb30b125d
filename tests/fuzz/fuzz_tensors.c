/* Fuzzer of safetensors headers; see README.md. */
#include "fuzz/tensors_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    fuzz_tensors(bytes, size);
    return 0;
}
