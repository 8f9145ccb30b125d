/* Characters: vocabularies, UTF-8, text to tokens and back. */
#include "unit/data/scratch.h"

#include "data/data.h"

static fo_status open_text(const void *text, size_t size, fo_data **data)
{
    return fo_data_open_memory("text", text, (int64_t)size, FO_DATA_CHAR, data);
}

static void ascii_vocabulary(void **state)
{
    const scratch *s = *state;
    static const char text[] = "hello, world\n";
    static const int32_t expected[] = {5, 4, 6, 6, 7, 2, 1, 9, 7, 8, 6, 3, 0};
    fo_data *data;
    int32_t out[13];
    scratch_write(scratch_path(s, "text"), text, 13);
    expect_ok(fo_data_open(scratch_path(s, "text"), FO_DATA_CHAR, &data));
    assert_int_equal(fo_data_count(data), 13);
    assert_int_equal(fo_data_vocabulary(data), 10);
    assert_string_equal(fo_data_characters(data), "\n ,dehlorw");
    expect_ok(fo_data_read(data, 0, 13, out));
    assert_memory_equal(out, expected, sizeof expected);
    expect_ok(fo_data_check(data, 10));
    expect_fails(fo_data_check(data, 9), FO_FORMAT, "token 9 at offset 7 ");
    fo_data_close(data);
}

static void multi_byte_vocabulary(void **state)
{
    const scratch *s = *state;
    /* a, U+00E9, U+20AC, U+1F600, a, U+07FF, U+0800, U+FFFF, U+10000, U+10FFFF, U+D7FF, U+E000 */
    static const char text[] = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"
                               "a\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf"
                               "\xed\x9f\xbf\xee\x80\x80";
    static const char sorted[] = "a\xc3\xa9\xdf\xbf\xe0\xa0\x80\xe2\x82\xac\xed\x9f\xbf\xee\x80\x80"
                                 "\xef\xbf\xbf\xf0\x90\x80\x80\xf0\x9f\x98\x80\xf4\x8f\xbf\xbf";
    static const int32_t expected[] = {0, 1, 4, 9, 0, 2, 3, 7, 8, 10, 5, 6};
    fo_data *data;
    int32_t out[12];
    scratch_write(scratch_path(s, "utf8"), text, sizeof text - 1);
    expect_ok(fo_data_open(scratch_path(s, "utf8"), FO_DATA_CHAR, &data));
    assert_int_equal(fo_data_count(data), 12);
    assert_int_equal(fo_data_vocabulary(data), 11);
    assert_string_equal(fo_data_characters(data), sorted);
    expect_ok(fo_data_read(data, 0, 12, out));
    assert_memory_equal(out, expected, sizeof expected);
    expect_fails(fo_data_check(data, 9), FO_FORMAT, "token 9 at offset 6 (token number 3)");
    fo_data_close(data);
}

/* Vocabularies whose ids take one, two and four bytes. */
static void widths_of_ids(void **state)
{
    (void)state;
    static const int sizes[] = {2, 256, 257, 65536, 65537};
    char *text = malloc(4 * 70000 + 8);
    int32_t *out = malloc(70000 * sizeof *out), *tokens;
    assert_non_null(text);
    assert_non_null(out);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t used = 0;
        for (int c = sizes[i] - 1; c >= 0; c--) { /* U+10000 + c, in descending order */
            text[used++] = (char)(0xf0 | (0x10000 + c) >> 18);
            for (int shift = 12; shift >= 0; shift -= 6)
                text[used++] = (char)(0x80 | ((0x10000 + c) >> shift & 0x3f));
        }
        fo_data *data;
        int64_t count;
        expect_ok(open_text(text, used, &data));
        assert_int_equal(fo_data_vocabulary(data), sizes[i]);
        expect_ok(fo_data_read(data, 0, sizes[i], out));
        for (int c = 0; c < sizes[i]; c++)
            assert_int_equal(out[c], sizes[i] - 1 - c);
        text[used] = '\0';
        expect_ok(fo_data_encode(fo_data_characters(data), text, &tokens, &count));
        assert_int_equal(count, sizes[i]);
        assert_memory_equal(tokens, out, (size_t)count * sizeof *out);
        free(tokens);
        fo_data_close(data);
    }
    free(out);
    free(text);
}

static const struct {
    const char *bytes;
    const char *fragment;
} invalid[] = {
    {"\x80", "a continuation byte that continues nothing (0x80)"},
    {"\xbf", "a continuation byte that continues nothing"},
    {"\xc3", "a character cut short"},
    {"\xe2\x82", "a character cut short"},
    {"\xf0\x9f\x98", "a character cut short"},
    {"\xc3(", "a character cut short"},
    {"\xe2(\xac", "a character cut short"},
    {"\xc0\x80", "longer than needed"},
    {"\xc1\xbf", "longer than needed"},
    {"\xe0\x9f\xbf", "longer than needed"},
    {"\xf0\x8f\xbf\xbf", "longer than needed"},
    {"\xed\xa0\x80", "half of a UTF-16 pair"},
    {"\xed\xbf\xbf", "half of a UTF-16 pair"},
    {"\xf4\x90\x80\x80", "above U+10FFFF"},
    {"\xf7\xbf\xbf\xbf", "above U+10FFFF"},
    {"\xf8\x88\x80\x80\x80", "never has (0xf8)"},
    {"\xff", "never has (0xff)"},
};
enum { INVALID = sizeof invalid / sizeof invalid[0] };

static void invalid_utf8_is_refused_with_its_offset(void **state)
{
    (void)state;
    for (int i = 0; i < INVALID; i++) {
        char text[32];
        fo_data *data;
        snprintf(text, sizeof text, "ab\xc3\xa9%s", invalid[i].bytes);
        expect_fails(open_text(text, strlen(text), &data), FO_FORMAT, invalid[i].fragment);
        assert_non_null(strstr(fo_last_error(), "at offset 4, expected UTF-8"));
        assert_null(data);
    }
    fo_data *data;
    expect_fails(open_text("ab\0c", 4, &data), FO_FORMAT, "a zero byte at offset 2");
}

static void every_truncation_of_a_text(void **state)
{
    (void)state;
    static const char text[] = "x\xc3\xa9y\xe2\x82\xacz\xf0\x9f\x98\x80";
    static const char whole[] = {1, 0, 1, 1, 0, 0, 1, 1, 0, 0, 0, 1}; /* cut after byte i: valid? */
    for (size_t size = 1; size < sizeof text; size++) {
        fo_data *data;
        fo_status status = open_text(text, size, &data);
        assert_int_equal(status, whole[size - 1] ? FO_OK : FO_FORMAT);
        if (status != FO_OK)
            assert_non_null(strstr(fo_last_error(), "cut short"));
        fo_data_close(data);
    }
}

static void round_trip(void **state)
{
    (void)state;
    static const char text[] = "Gr\xc3\xbc\xc3\x9f Gott \xe2\x82\xac\xf0\x9f\x98\x80!\n";
    fo_data *data;
    int32_t *tokens, stored[32];
    int64_t count;
    char back[64] = "";
    int used = 0;
    expect_ok(open_text(text, sizeof text - 1, &data));
    const char *characters = fo_data_characters(data);
    expect_ok(fo_data_encode(characters, text, &tokens, &count));
    assert_int_equal(count, fo_data_count(data));
    expect_ok(fo_data_read(data, 0, count, stored));
    assert_memory_equal(tokens, stored, (size_t)count * sizeof *tokens);
    for (int64_t i = 0; i < count; i++)
        used += fo_data_decode(characters, tokens[i], back + used);
    assert_int_equal(used, sizeof text - 1);
    assert_string_equal(back, text);
    free(tokens);
    fo_data_close(data);
}

static void round_trip_of_bytes(void **state)
{
    (void)state;
    char text[256], out[8];
    int32_t *tokens;
    int64_t count;
    for (int i = 0; i < 255; i++)
        text[i] = (char)(i + 1);
    text[255] = '\0';
    expect_ok(fo_data_encode(NULL, text, &tokens, &count));
    assert_int_equal(count, 255);
    for (int i = 0; i < 255; i++) {
        assert_int_equal(tokens[i], i + 1);
        assert_int_equal(fo_data_decode(NULL, tokens[i], out), 1);
        assert_int_equal(out[0], text[i]);
    }
    free(tokens);
    assert_int_equal(fo_data_decode(NULL, 256, out), 0);
    assert_int_equal(fo_data_decode(NULL, -1, out), 0);
    expect_ok(fo_data_encode(NULL, "", &tokens, &count));
    assert_non_null(tokens);
    assert_int_equal(count, 0);
    free(tokens);
}

static void encode_refuses(void **state)
{
    (void)state;
    int32_t *tokens;
    int64_t count;
    expect_fails(fo_data_encode("abc", "ab\xc3\xa9", &tokens, &count), FO_INVALID,
                 "'\xc3\xa9' (U+00E9) at offset 2, expected one of the 3 characters");
    expect_fails(fo_data_encode("abc", "a\nb", &tokens, &count), FO_INVALID,
                 "(U+000A) at offset 1");
    expect_fails(fo_data_encode("", "a", &tokens, &count), FO_INVALID, "one of the 0 characters");
    expect_fails(fo_data_encode("ba", "a", &tokens, &count), FO_INVALID,
                 "a character out of order at offset 1");
    expect_fails(fo_data_encode("aa", "a", &tokens, &count), FO_INVALID, "out of order");
    expect_fails(fo_data_encode("a\xff", "a", &tokens, &count), FO_INVALID, "at offset 1");
    expect_fails(fo_data_encode("a", NULL, &tokens, &count), FO_INVALID, "needs a text");
    for (int i = 0; i < INVALID; i++) {
        char text[32];
        snprintf(text, sizeof text, "ab%s", invalid[i].bytes);
        expect_fails(fo_data_encode("abc", text, &tokens, &count), FO_INVALID, invalid[i].fragment);
        assert_non_null(strstr(fo_last_error(), "at offset 2, expected UTF-8"));
    }
}

static void decode_refuses(void **state)
{
    (void)state;
    char out[8] = "";
    assert_int_equal(fo_data_decode("ab\xe2\x82\xac", 2, out), 3);
    assert_memory_equal(out, "\xe2\x82\xac", 3);
    assert_int_equal(fo_data_decode("ab\xe2\x82\xac", 3, out), 0);
    assert_int_equal(fo_data_decode("ab", -1, out), 0);
    assert_int_equal(fo_data_decode("ab", INT32_MAX, out), 0);
    assert_int_equal(fo_data_decode("", 0, out), 0);
    assert_int_equal(fo_data_decode("a\xe2\x82", 1, out), 0);
    assert_int_equal(fo_data_decode("a", 0, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ascii_vocabulary),
        cmocka_unit_test(multi_byte_vocabulary),
        cmocka_unit_test(widths_of_ids),
        cmocka_unit_test(invalid_utf8_is_refused_with_its_offset),
        cmocka_unit_test(every_truncation_of_a_text),
        cmocka_unit_test(round_trip),
        cmocka_unit_test(round_trip_of_bytes),
        cmocka_unit_test(encode_refuses),
        cmocka_unit_test(decode_refuses),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
