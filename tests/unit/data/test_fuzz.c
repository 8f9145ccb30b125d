/* A few thousand mutations of valid files: never a crash, never a wrong token. */
#include "unit/data/scratch.h"

#include "fuzz/data_target.h"
#include "fuzz/mutate.h"

enum { MUTATIONS = 4000, ROOM = 2048 };

/* The bytes lie at the end of memory of their own, so that a sanitizer sees a read beyond. */
static int run(const uint8_t *bytes, size_t size, fo_data_format format)
{
    uint8_t *exact = malloc(size ? size : 1);
    assert_non_null(exact);
    memcpy(exact, bytes, size);
    int opened = fuzz_data(exact, size, format);
    free(exact);
    return opened;
}

/* Some mutations must still be valid, or they test nothing beyond the first check. */
static void drive(const uint8_t *valid, size_t size, fo_data_format format, uint64_t seed)
{
    int opened = 0;
    assert_true(run(valid, size, format));
    for (uint64_t i = 0; i < MUTATIONS; i++) {
        uint8_t bytes[ROOM];
        memcpy(bytes, valid, size);
        opened += run(bytes, mutate(seed, i, bytes, size, sizeof bytes), format);
    }
    assert_in_range(opened, MUTATIONS / 100, MUTATIONS - 1);
}

static void llmc_headers(void **state)
{
    (void)state;
    static const uint32_t heads[2][3] = {{20240520, 1, 100}, {20240801, 7, 50}};
    for (int kind = 0; kind < 2; kind++) {
        uint8_t file[1024 + 200];
        for (size_t i = 0; i < sizeof file; i++)
            file[i] = i < 1024 ? 0 : (uint8_t)(i * 7);
        memcpy(file, heads[kind], sizeof heads[kind]);
        drive(file, sizeof file, FO_DATA_LLMC, 1 + (uint64_t)kind);
    }
}

static void texts(void **state)
{
    (void)state;
    static const char ascii[] = "First Citizen:\nBefore we proceed any further, hear me speak.\n";
    static const char utf8[] = "Gr\xc3\xbc\xc3\x9f Gott \xe2\x82\xac\xf0\x9f\x98\x80 "
                               "\xd7\xa9\xd7\x9c\xd7\x95\xd7\x9d \xe4\xbd\xa0\xe5\xa5\xbd\n";
    drive((const uint8_t *)ascii, sizeof ascii - 1, FO_DATA_CHAR, 3);
    drive((const uint8_t *)utf8, sizeof utf8 - 1, FO_DATA_CHAR, 4);
}

static void streams_without_a_header(void **state)
{
    (void)state;
    uint8_t bytes[200];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 31);
    drive(bytes, sizeof bytes, FO_DATA_NANOGPT, 5);
    for (uint64_t i = 0; i < MUTATIONS; i++) /* always valid, but empty */
        run(bytes, mutate(6, i, bytes, sizeof bytes, sizeof bytes), FO_DATA_BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llmc_headers),
        cmocka_unit_test(texts),
        cmocka_unit_test(streams_without_a_header),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
