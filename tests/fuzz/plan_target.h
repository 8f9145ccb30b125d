/* Any bytes as a plan file: refused with a sentence, or a plan that can be written and read again. */
#ifndef TESTS_FUZZ_PLAN_TARGET_H
#define TESTS_FUZZ_PLAN_TARGET_H

#include <stdint.h>
#include <string.h>

#include "flashoverlap/schedule.h"
#include "flashoverlap/search.h"
#include "fuzz/check.h"

/* Returns whether it was read. */
static inline int fuzz_plan(const uint8_t *bytes, size_t size)
{
    fo_plan_file file;
    fo_strategy strategy;
    memset(&file, 0xa5, sizeof file);
    fo_status status = fo_plan_file_parse("fuzz", (const char *)bytes, size, &file);
    if (status != FO_OK) {
        FUZZ_CHECK((status == FO_FORMAT || status == FO_INVALID) && fo_last_error()[0]);
        return 0;
    }
    FUZZ_CHECK(memchr(file.model, 0, sizeof file.model));
    FUZZ_CHECK(memchr(file.machine, 0, sizeof file.machine));
    FUZZ_CHECK(file.tp >= 1 && file.dp >= 1 && file.pp >= 1);
    FUZZ_CHECK((double)file.tp * file.dp * file.pp == file.ranks);
    FUZZ_CHECK(file.batch >= 1 && file.micro_batch >= 1 && file.context >= 1);
    FUZZ_CHECK(file.step_s >= 0 && file.operation_count <= FO_PLAN_FILE_OPERATIONS);
    for (int i = 0; i < file.operation_count; i++) {
        FUZZ_CHECK(fo_strategy_parse(file.operations[i].overlap, &strategy) == FO_OK);
        FUZZ_CHECK(fo_plan_file_overlap(&file, file.operations[i].name) ==
                   file.operations[i].overlap);
    }
    return 1;
}

#endif
