/* A few thousand mutations of valid safetensors files: never a crash. */
#include "unit/data/scratch.h"

#include "fuzz/mutate.h"
#include "fuzz/tensors_target.h"

enum { MUTATIONS = 6000, ROOM = 2048 };

static const char *const headers[] = {
    "{\"__metadata__\":{\"format\":\"pt\"},"
    "\"wte.weight\":{\"dtype\":\"F32\",\"shape\":[4,3],\"data_offsets\":[0,48]},"
    "\"h.0.ln_1.bias\":{\"dtype\":\"BF16\",\"shape\":[6],\"data_offsets\":[48,60]},"
    "\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[60,64]}}     ",
    "{\"e\":{\"dtype\":\"F32\",\"shape\":[0,9],\"data_offsets\":[0,0]},"
    "\"a\":{\"dtype\":\"BF16\",\"shape\":[2,2,2,4],\"data_offsets\":[0,64]}}",
    "{}",
};

/* The bytes lie at the end of memory of their own, so that a sanitizer sees a read beyond. */
static int run(const uint8_t *bytes, size_t size)
{
    uint8_t *exact = malloc(size ? size : 1);
    assert_non_null(exact);
    memcpy(exact, bytes, size);
    int opened = fuzz_tensors(exact, size);
    free(exact);
    return opened;
}

static size_t build(const char *header, size_t length, uint8_t *out)
{
    uint64_t stored = length;
    size_t data = length <= 2 ? 0 : 64;
    memcpy(out, &stored, 8);
    memcpy(out + 8, header, length);
    for (size_t i = 0; i < data; i++)
        out[8 + length + i] = (uint8_t)(i * 5);
    return 8 + length + data;
}

/* Anything in the file changes. */
static void files(void **state)
{
    (void)state;
    for (uint64_t h = 0; h < sizeof headers / sizeof headers[0]; h++) {
        int opened = 0;
        for (uint64_t i = 0; i < MUTATIONS; i++) {
            uint8_t bytes[ROOM];
            size_t size = build(headers[h], strlen(headers[h]), bytes);
            if (i == 0)
                assert_true(run(bytes, size));
            opened += run(bytes, mutate(h, i, bytes, size, sizeof bytes));
        }
        assert_true(opened < MUTATIONS);
    }
}

/* Only the JSON changes, and the length before it fits: the checks behind the first ones are reached. */
static void json(void **state)
{
    (void)state;
    int opened = 0;
    for (uint64_t h = 0; h < 2; h++) {
        for (uint64_t i = 0; i < MUTATIONS; i++) {
            uint8_t header[ROOM - 128], bytes[ROOM];
            size_t size = strlen(headers[h]);
            memcpy(header, headers[h], size);
            size = mutate(10 + h, i, header, size, sizeof header);
            opened += run(bytes, build((const char *)header, size, bytes));
        }
    }
    assert_in_range(opened, MUTATIONS / 100, 2 * MUTATIONS - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files),
        cmocka_unit_test(json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
