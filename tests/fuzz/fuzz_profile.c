/* Fuzzer of machine profiles; see README.md. */
#include "fuzz/profile_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    fuzz_profile(bytes, size);
    return 0;
}
