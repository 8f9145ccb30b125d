/* Any bytes as a safetensors file: opened or refused with a sentence; what is opened can be read whole
 * and its tensors cover the data. */
#ifndef TESTS_FUZZ_TENSORS_TARGET_H
#define TESTS_FUZZ_TENSORS_TARGET_H

#include <stdlib.h>
#include <string.h>

#include "checkpoint/tensors.h"
#include "fuzz/check.h"

static inline void fuzz_tensor(const fo_tensor_file *file, int index)
{
    const fo_tensor_info *info = fo_checkpoint_info(file, index);
    int64_t bytes, rows = 1, cols = info->dims > 0 ? info->shape[info->dims - 1] : 1;
    FUZZ_CHECK(fo_checkpoint_find(file, info->name) == index);
    FUZZ_CHECK(fo_checkpoint_bytes(info, &bytes));
    for (int d = 0; d < info->dims - 1; d++)
        rows *= info->shape[d];
    size_t count = (size_t)bytes / fo_dtype_size(info->dtype);
    float *out = malloc(count * sizeof *out + 1), *turned = malloc(count * sizeof *out + 1);
    FUZZ_CHECK(out && turned);
    FUZZ_CHECK(fo_checkpoint_read_f32(file, index, 0, rows, 0, cols, 0, out) == FO_OK);
    FUZZ_CHECK(fo_checkpoint_read_f32(file, index, 0, rows, 0, cols, 1, turned) == FO_OK);
    for (int64_t r = 0; cols > 0 && r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            FUZZ_CHECK(memcmp(&out[r * cols + c], &turned[c * rows + r], sizeof *out) == 0);
    FUZZ_CHECK(fo_checkpoint_read_f32(file, index, 0, rows, 1, cols, 0, out) == FO_INVALID);
    free(out);
    free(turned);
}

/* Returns whether it was opened. */
static inline int fuzz_tensors(const uint8_t *bytes, size_t size)
{
    fo_tensor_file *file = NULL;
    fo_status status = fo_checkpoint_open_memory("fuzz", bytes, (int64_t)size, &file);
    if (status != FO_OK) {
        FUZZ_CHECK((status == FO_FORMAT || status == FO_UNSUPPORTED) && !file);
        FUZZ_CHECK(fo_last_error()[0]);
        return 0;
    }
    const uint8_t *next =
        fo_checkpoint_count(file) > 0 ? fo_checkpoint_data(file, 0) : bytes + size;
    for (int i = 0; i < fo_checkpoint_count(file); i++) {
        int64_t length;
        FUZZ_CHECK(fo_checkpoint_data(file, i) == next);
        FUZZ_CHECK(fo_checkpoint_bytes(fo_checkpoint_info(file, i), &length));
        next += length;
        fuzz_tensor(file, i);
    }
    FUZZ_CHECK(next == bytes + size);
    fo_checkpoint_metadata(file, "format");
    fo_checkpoint_close(file);
    return 1;
}

#endif
