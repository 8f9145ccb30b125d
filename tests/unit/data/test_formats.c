/* Token files, made byte by byte. */
#include "unit/data/scratch.h"

#include "data/data.h"

enum { HEADER = 1024 };

static void put32(uint8_t *out, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        out[i] = (uint8_t)(value >> 8 * i);
}

/* An llm.c file of `count` tokens 3, 10, 17, ...; returns its size. */
static size_t llmc(uint8_t *out, uint32_t magic, uint32_t version, uint32_t count, int width)
{
    memset(out, 0, HEADER);
    put32(out, magic);
    put32(out + 4, version);
    put32(out + 8, count);
    for (uint32_t i = 0; i < count; i++) {
        uint8_t word[4];
        put32(word, 3 + 7 * i);
        memcpy(out + HEADER + i * (uint32_t)width, word, (size_t)width);
    }
    return HEADER + count * (size_t)width;
}

static fo_status open_bytes(const void *bytes, size_t size, fo_data_format format)
{
    fo_data *data = NULL;
    fo_status status = fo_data_open_memory("tokens.bin", bytes, (int64_t)size, format, &data);
    assert_true((status == FO_OK) == (data != NULL));
    if (status != FO_OK)
        assert_non_null(strstr(fo_last_error(), "tokens.bin"));
    fo_data_close(data);
    return status;
}

static void names_of_formats(void **state)
{
    (void)state;
    static const char *const known[] = {"bytes", "char", "nanogpt", "llmc"};
    fo_data_format format;
    for (int i = 0; i < 4; i++) {
        expect_ok(fo_data_format_parse(known[i], &format));
        assert_int_equal(format, i);
        assert_string_equal(fo_data_format_name(format), known[i]);
    }
    expect_fails(fo_data_format_parse("byte", &format), FO_INVALID,
                 "'byte' is no data format, expected bytes, char, nanogpt or llmc");
    expect_fails(fo_data_format_parse("", &format), FO_INVALID, "expected bytes");
    expect_fails(fo_data_format_parse(NULL, &format), FO_INVALID, "expected bytes");
    expect_fails(open_bytes("ab", 2, (fo_data_format)9), FO_INVALID, "9 is no data format");
}

static void bytes_are_tokens(void **state)
{
    const scratch *s = *state;
    uint8_t all[256];
    int32_t out[256];
    fo_data *data;
    for (int i = 0; i < 256; i++)
        all[i] = (uint8_t)(255 - i);
    scratch_write(scratch_path(s, "all"), all, sizeof all);
    expect_ok(fo_data_open(scratch_path(s, "all"), FO_DATA_BYTES, &data));
    assert_int_equal(fo_data_count(data), 256);
    assert_int_equal(fo_data_vocabulary(data), 256);
    assert_null(fo_data_characters(data));
    expect_ok(fo_data_read(data, 0, 256, out));
    for (int i = 0; i < 256; i++)
        assert_int_equal(out[i], 255 - i);
    expect_ok(fo_data_check(data, 256));
    expect_ok(fo_data_check(data, 50257));
    expect_fails(fo_data_check(data, 100), FO_FORMAT, "token 255 at offset 0 ");
    expect_fails(fo_data_check(data, 0), FO_INVALID, "the vocabulary is 0");
    fo_data_close(data);
}

static void read_stays_in_range(void **state)
{
    (void)state;
    fo_data *data;
    int32_t out[4] = {-1, -1, -1, -1};
    expect_ok(fo_data_open_memory("m", "abcd", 4, FO_DATA_BYTES, &data));
    expect_ok(fo_data_read(data, 3, 1, out));
    assert_int_equal(out[0], 'd');
    assert_int_equal(out[1], -1);
    expect_ok(fo_data_read(data, 4, 0, out));
    static const int64_t wrong[][2] = {{-1, 1},
                                       {0, 5},
                                       {4, 1},
                                       {5, 0},
                                       {1, -1},
                                       {1, INT64_MAX},
                                       {INT64_MAX, INT64_MAX},
                                       {INT64_MIN, 1},
                                       {0, INT64_MIN}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        expect_fails(fo_data_read(data, wrong[i][0], wrong[i][1], out), FO_INVALID, "it has 4");
    fo_data_close(data);
}

static void nanogpt_golden(void **state)
{
    const scratch *s = *state;
    static const uint8_t golden[] = {0x01, 0x00, 0x50, 0xc4, 0xff, 0xff, 0x00, 0x01};
    static const int32_t expected[] = {1, 50256, 65535, 256};
    fo_data *data;
    int32_t out[4];
    scratch_write(scratch_path(s, "train.bin"), golden, sizeof golden);
    expect_ok(fo_data_open(scratch_path(s, "train.bin"), FO_DATA_NANOGPT, &data));
    assert_int_equal(fo_data_count(data), 4);
    assert_int_equal(fo_data_vocabulary(data), 0);
    expect_ok(fo_data_read(data, 0, 4, out));
    assert_memory_equal(out, expected, sizeof expected);
    expect_ok(fo_data_check(data, 65536));
    expect_fails(fo_data_check(data, 50257), FO_FORMAT, "token 65535 at offset 4 (token number 2)");
    assert_non_null(strstr(fo_last_error(), "expected an id below the vocabulary 50257"));
    fo_data_close(data);
    for (size_t size = 1; size < sizeof golden; size++)
        if (size % 2)
            expect_fails(open_bytes(golden, size, FO_DATA_NANOGPT), FO_FORMAT, "an even number");
        else
            expect_ok(open_bytes(golden, size, FO_DATA_NANOGPT));
}

static void llmc_golden(void **state, uint32_t magic, uint32_t version, int width)
{
    const scratch *s = *state;
    uint8_t file[HEADER + 5 * 4 + 1];
    size_t size = llmc(file, magic, version, 5, width);
    fo_data *data;
    int32_t out[5];
    scratch_write(scratch_path(s, "llmc.bin"), file, size);
    expect_ok(fo_data_open(scratch_path(s, "llmc.bin"), FO_DATA_LLMC, &data));
    assert_int_equal(fo_data_count(data), 5);
    assert_int_equal(fo_data_vocabulary(data), 0);
    expect_ok(fo_data_read(data, 0, 5, out));
    for (int i = 0; i < 5; i++)
        assert_int_equal(out[i], 3 + 7 * i);
    expect_ok(fo_data_check(data, 32));
    char fragment[64];
    snprintf(fragment, sizeof fragment, "token 31 at offset %d (token number 4)",
             HEADER + 4 * width);
    expect_fails(fo_data_check(data, 31), FO_FORMAT, fragment);
    fo_data_close(data);
    for (size_t torn = 0; torn < size; torn++)
        expect_fails(open_bytes(file, torn, FO_DATA_LLMC), FO_FORMAT,
                     torn == 0       ? "is empty"
                     : torn < HEADER ? "expected an llm.c header of 1024 bytes"
                                     : "torn");
    file[size] = 0;
    expect_fails(open_bytes(file, size + 1, FO_DATA_LLMC), FO_FORMAT,
                 "longer than its header says");
}

static void llmc_of_two_bytes(void **state)
{
    llmc_golden(state, 20240520, 1, 2);
}

static void llmc_of_four_bytes(void **state)
{
    llmc_golden(state, 20240801, 7, 4);
}

static void llmc_fields(void **state)
{
    (void)state;
    static const struct {
        int at;
        uint32_t value;
        const char *fragment;
    } wrong[] = {
        {0, 20240326, "has 20240326 at offset 0, expected 20240520"},
        {0, 0, "has 0 at offset 0"},
        {0, 20240801, "has version 1 at offset 4, expected 7"},
        {0, 0x88d83401, "big-endian"},
        {4, 2, "has version 2 at offset 4, expected 1"},
        {4, 0xffffffff, "has version -1 at offset 4"},
        {8, 0, "has 0 as number of tokens at offset 8"},
        {8, 0xffffffff, "has -1 as number of tokens"},
        {8, 4, "1034 bytes, expected 1032"},
        {8, 6, "1034 bytes, expected 1036"},
        {8, 0x7fffffff, "expected 4294968318"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        uint8_t file[HEADER + 10];
        size_t size = llmc(file, 20240520, 1, 5, 2);
        put32(file + wrong[i].at, wrong[i].value);
        expect_fails(open_bytes(file, size, FO_DATA_LLMC), FO_FORMAT, wrong[i].fragment);
    }
    uint8_t file[HEADER + 20];
    size_t size = llmc(file, 20240801, 7, 5, 4);
    put32(file + 4, 1);
    expect_fails(open_bytes(file, size, FO_DATA_LLMC), FO_FORMAT,
                 "has version 1 at offset 4, expected 7");
    size = llmc(file, 20240520, 1, 5, 2); /* the format mixed up */
    expect_fails(open_bytes(file, size, FO_DATA_NANOGPT), FO_FORMAT, "use the format llmc");
}

static void ids_beyond_31_bits(void **state)
{
    (void)state;
    uint8_t file[HEADER + 20];
    size_t size = llmc(file, 20240801, 7, 5, 4);
    fo_data *data;
    int32_t out[5];
    put32(file + HEADER + 8, 0x80000001);
    expect_ok(fo_data_open_memory("m", file, (int64_t)size, FO_DATA_LLMC, &data));
    expect_fails(fo_data_read(data, 1, 3, out), FO_FORMAT, "token 2147483649 at offset 1032");
    expect_ok(fo_data_read(data, 3, 2, out));
    expect_fails(fo_data_check(data, INT64_MAX), FO_FORMAT, "token 2147483649 at offset 1032");
    expect_fails(fo_data_check(data, 128256), FO_FORMAT, "token number 2");
    fo_data_close(data);
}

static void first_of_many_is_named(void **state)
{
    (void)state;
    enum { COUNT = 10000 };
    static uint8_t tokens[2 * COUNT];
    fo_data *data;
    tokens[2 * 4095] = tokens[2 * 4096 + 1] = tokens[2 * 9000 + 1] = 1;
    expect_ok(fo_data_open_memory("m", tokens, sizeof tokens, FO_DATA_NANOGPT, &data));
    expect_ok(fo_data_check(data, 257));
    expect_fails(fo_data_check(data, 256), FO_FORMAT, "token 256 at offset 8192 ");
    expect_fails(fo_data_check(data, 1), FO_FORMAT, "token 1 at offset 8190 ");
    fo_data_close(data);
}

static void unreadable_files(void **state)
{
    const scratch *s = *state;
    fo_data *data = (fo_data *)(uintptr_t)8;
    expect_fails(fo_data_open(scratch_path(s, "none"), FO_DATA_BYTES, &data), FO_IO,
                 "No such file or directory");
    assert_null(data);
    expect_fails(fo_data_open(s->folder, FO_DATA_BYTES, &data), FO_IO, "is a directory");
    assert_int_equal(mkfifo(scratch_path(s, "pipe"), 0600), 0);
    expect_fails(fo_data_open(scratch_path(s, "pipe"), FO_DATA_BYTES, &data), FO_IO,
                 "not a regular file");
    scratch_write(scratch_path(s, "empty"), "", 0);
    for (int format = FO_DATA_BYTES; format <= FO_DATA_LLMC; format++) {
        expect_fails(fo_data_open(scratch_path(s, "empty"), (fo_data_format)format, &data),
                     FO_FORMAT, "is empty, expected tokens");
        expect_fails(open_bytes(NULL, 0, (fo_data_format)format), FO_FORMAT, "is empty");
    }
    expect_fails(fo_data_open(NULL, FO_DATA_BYTES, &data), FO_INVALID, "needs a path");
    expect_fails(fo_data_open_memory("m", "a", -1, FO_DATA_BYTES, &data), FO_INVALID, "-1 bytes");
    fo_data_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_formats),
        cmocka_unit_test(bytes_are_tokens),
        cmocka_unit_test(read_stays_in_range),
        cmocka_unit_test(nanogpt_golden),
        cmocka_unit_test(llmc_of_two_bytes),
        cmocka_unit_test(llmc_of_four_bytes),
        cmocka_unit_test(llmc_fields),
        cmocka_unit_test(ids_beyond_31_bits),
        cmocka_unit_test(first_of_many_is_named),
        cmocka_unit_test(unreadable_files),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
