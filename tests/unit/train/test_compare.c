/* The same steps under several strategies: equal to the bit, and a table that can be read. */
#include "tiny.h"

static char *compare(const fo_train_options *o, const char *strategies, bool json,
                     fo_status *status)
{
    FILE *file = tmpfile();
    char *text = calloc(1, 16384);
    assert_true(file && text);
    *status = fo_train_compare(o, strategies, json, file);
    rewind(file);
    size_t size = fread(text, 1, 16383, file);
    text[size] = '\0';
    fclose(file);
    return text;
}

static fo_train_options options(const tiny *t)
{
    fo_train_options o = tiny_options(t);
    o.steps = 3;
    o.link_ratio = 0.5;
    return o;
}

static void strategies_have_equal_losses(void **state)
{
    fo_train_options o = options(*state);
    static const char *const names[] = {"none", "slice:4", "ring", "flash", "flash:2", "direct"};
    fo_status status;
    char *text = compare(&o, "none,slice:4,ring,flash,flash:2,direct", true, &status);
    tiny_ok(status);
    json_error_t error;
    json_t *rows = json_loads(text, 0, &error);
    assert_non_null(rows);
    assert_int_equal(json_array_size(rows), 6);
    for (size_t i = 0; i < 6; i++) {
        const json_t *row = json_array_get(rows, i);
        assert_string_equal(json_string_value(json_object_get(row, "overlap")), names[i]);
        assert_true(json_is_true(json_object_get(row, "bitwise_equal")));
        assert_true(json_number_value(json_object_get(row, "t_ms")) > 0);
        assert_true(json_number_value(json_object_get(row, "exposed_ms")) >= 0);
        assert_true(json_number_value(json_object_get(row, "link_bytes_per_s")) > 0);
        assert_true(json_is_number(json_object_get(row, "ect_ms")));
    }
    json_decref(rows);
    free(text);
}

static void the_table_says_that_the_link_is_emulated(void **state)
{
    fo_train_options o = options(*state);
    fo_status status;
    char *text = compare(&o, "none,flash", false, &status);
    tiny_ok(status);
    assert_non_null(strstr(text, "link: emulated"));
    assert_non_null(strstr(text, "equal"));
    assert_non_null(strstr(text, "\nnone "));
    assert_non_null(strstr(text, "\nflash "));
    free(text);
    o.link_ratio = 0;
    o.group.ranks = 1;
    text = compare(&o, "flash", false, &status);
    tiny_ok(status);
    assert_non_null(strstr(text, "not emulated"));
    free(text);
}

static void wrong_lists_are_refused(void **state)
{
    fo_train_options o = options(*state);
    fo_status status;
    free(compare(&o, "none,flsh", false, &status));
    tiny_fails(status, FO_INVALID, "flsh");
    free(compare(&o, "none,,flash", false, &status));
    tiny_fails(status, FO_INVALID, "none,,flash");
    free(compare(&o, "", false, &status));
    tiny_fails(status, FO_INVALID, "empty");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, tiny_set_up, tiny_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(strategies_have_equal_losses),
        TEST(the_table_says_that_the_link_is_emulated),
        TEST(wrong_lists_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
