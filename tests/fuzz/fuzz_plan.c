/* Fuzzer of plan files; see README.md. */
#include "fuzz/plan_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    fuzz_plan(bytes, size);
    return 0;
}
