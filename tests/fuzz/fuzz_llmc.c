/* Fuzzer of llm.c headers; see README.md. */
#include "fuzz/data_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    fuzz_data(bytes, size, FO_DATA_LLMC);
    return 0;
}
