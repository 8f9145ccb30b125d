/* Any bytes as a config.json: refused with a sentence, or sizes that can be counted. */
#ifndef TESTS_FUZZ_CONFIG_TARGET_H
#define TESTS_FUZZ_CONFIG_TARGET_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "fuzz/check.h"
#include "planner/model.h"

/* Returns whether it was read. */
static inline int fuzz_config(const uint8_t *bytes, size_t size)
{
    fo_model_sizes m;
    fo_status status = fo_planner_config_parse("fuzz", (const char *)bytes, size, &m);
    if (status != FO_OK) {
        FUZZ_CHECK((status == FO_FORMAT || status == FO_INVALID) && fo_last_error()[0]);
        return 0;
    }
    FUZZ_CHECK(memchr(m.name, '\0', sizeof m.name));
    for (const char *c = m.name; *c; c++)
        FUZZ_CHECK(*c >= ' ' && *c <= '~' && *c != '"' && *c != '\\');
    FUZZ_CHECK(m.layers >= 1 && m.dim >= 1 && m.head_dim >= 1 && m.ffn >= 1);
    FUZZ_CHECK(m.vocabulary >= 1 && m.context >= 1);
    FUZZ_CHECK(m.kv_heads >= 1 && m.heads % m.kv_heads == 0);
    double all = fo_model_sizes_parameters(&m), tables = fo_model_sizes_embedding_parameters(&m);
    FUZZ_CHECK(isfinite(all) && all > tables && tables > 0);
    FUZZ_CHECK(fo_planner_multiplied_parameters(&m) <= all);
    return 1;
}

#endif
