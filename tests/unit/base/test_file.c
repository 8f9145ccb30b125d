/* Small files whole: what is no regular file is refused at once, and what sentences quote stays one line. */
#include "base/file.h"

#include <time.h>

#include "unit/data/scratch.h"

static const char expected[] = "a file that somebody wrote";

static fo_status read_it(const char *path, size_t most, char **text, size_t *bytes)
{
    *text = (char *)(uintptr_t)1;
    return fo_base_file_read("letter", path, most, expected, text, bytes);
}

static void refuses(const char *path, fo_status status, const char *says)
{
    char *text;
    size_t bytes;
    assert_int_equal(read_it(path, 1000, &text, &bytes), status);
    if (!strstr(fo_last_error(), says) || !strstr(fo_last_error(), path) ||
        !strstr(fo_last_error(), expected))
        fail_msg("expected '%s' in: %s", says, fo_last_error());
    assert_null(text);
}

static void whole_files(void **state)
{
    const scratch *s = *state;
    const char *path = scratch_path(s, "a");
    char content[1001], *text;
    size_t bytes;
    for (size_t i = 0; i < sizeof content; i++)
        content[i] = (char)i;
    for (size_t size = 1; size <= 1000; size += 333) {
        scratch_write(path, content, size);
        assert_int_equal(read_it(path, 1000, &text, &bytes), FO_OK);
        assert_int_equal(bytes, size);
        assert_memory_equal(text, content, size);
        assert_int_equal(text[size], 0);
        free(text);
    }
    scratch_write(path, content, 1001);
    refuses(path, FO_INVALID, "has more than 1000 bytes");
    scratch_write(path, content, 0);
    refuses(path, FO_INVALID, "is empty");
}

/* Nobody waits for somebody to write, reads zeros for ever, or fills the memory. */
static void no_files(void **state)
{
    const scratch *s = *state;
    const char *pipe = scratch_path(s, "pipe"), *huge = scratch_path(s, "huge");
    time_t begin = time(NULL);
    assert_int_equal(mkfifo(pipe, 0600), 0);
    refuses(pipe, FO_IO, "is a named pipe");
    refuses(s->folder, FO_IO, "is a directory");
    refuses("/dev/zero", FO_IO, "is not a regular file");
    refuses("/nowhere/at/all", FO_IO, "can't be opened (No such file or directory)");
    scratch_write(huge, "x", 1);
    assert_int_equal(truncate(huge, (off_t)1 << 40), 0);
    refuses(huge, FO_INVALID, "has more than 1000 bytes");
    assert_true(time(NULL) - begin < 5);
}

static void quotable(void **state)
{
    static const char *const cases[][2] = {
        {"tp", "tp"},
        {"a\nb\tc\033[31m", "a?b?c?[31m"},
        {"\177", "?"},
        {"gr\303\266\303\237e \342\202\254 \360\237\230\200",
         "gr\303\266\303\237e \342\202\254 \360\237\230\200"},
        {"cut \303", "cut ?"},
        {"cut \342\202", "cut ??"},
        {"cut \360\237\230", "cut ???"},
        {"\200\277x", "??x"},
        {"\302\205", "??"}, /* a control character of two bytes */
        {"", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = strdup(cases[i][0]); /* of its own, so that a sanitizer sees its end */
        assert_non_null(text);
        assert_string_equal(fo_base_file_quotable(text), cases[i][1]);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(whole_files, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(no_files, scratch_setup, scratch_teardown),
        cmocka_unit_test(quotable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
