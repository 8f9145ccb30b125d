/* Writing: round trips, and that nothing is left behind by what fails. */
#include "unit/data/scratch.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/system.h"

static int entries(const char *folder)
{
    int count = 0;
    DIR *stream = opendir(folder);
    assert_non_null(stream);
    while (readdir(stream))
        count++;
    closedir(stream);
    return count - 2;
}

/* A folder of its own in the scratch folder. */
static const char *fresh(const scratch *s)
{
    static int number;
    char name[32];
    snprintf(name, sizeof name, "fresh-%d", number++);
    const char *path = scratch_path(s, name);
    assert_int_equal(mkdir(path, 0700), 0);
    return path;
}

static const char *in(const char *folder, const char *name)
{
    static char paths[4][600];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static const fo_tensor_info tensors[] = {
    {.name = "wte.weight", .dtype = FO_F32, .dims = 2, .shape = {2, 3}},
    {.name = "half \"quoted\" \xc3\xa9", .dtype = FO_BF16, .dims = 1, .shape = {3}},
    {.name = "empty", .dtype = FO_F32, .dims = 2, .shape = {0, 7}},
    {.name = "scalar", .dtype = FO_F32, .dims = 0},
    {.name = "deep", .dtype = FO_F32, .dims = 4, .shape = {1, 2, 1, 2}},
};
enum { TENSORS = sizeof tensors / sizeof tensors[0] };
static const char *const metadata[] = {"format", "pt", "step", "12", NULL};
static const float six[] = {1, 2, 3, 4, 5, 6};
static const uint16_t three[] = {0x3f80, 0x4000, 0x4040};

static fo_status write_all(const char *path)
{
    fo_tensor_writer *w;
    fo_status status = fo_checkpoint_create(path, tensors, TENSORS, metadata, &w);
    if (status != FO_OK)
        return status;
    status = fo_checkpoint_write(w, 4, 0, six, 16);
    if (status == FO_OK)
        status = fo_checkpoint_write(w, 0, 8, six + 2, 16); /* in pieces, the last one first */
    if (status == FO_OK)
        status = fo_checkpoint_write(w, 0, 0, six, 8);
    if (status == FO_OK)
        status = fo_checkpoint_write(w, 1, 0, three, 6);
    if (status == FO_OK)
        status = fo_checkpoint_write(w, 2, 0, NULL, 0);
    if (status == FO_OK)
        status = fo_checkpoint_write(w, 3, 0, six + 5, 4);
    if (status == FO_OK)
        return fo_checkpoint_commit(w);
    fo_checkpoint_abandon(w);
    return status;
}

static void check_all(const char *path)
{
    fo_tensor_file *file;
    float out[6];
    expect_ok(fo_checkpoint_open(path, &file));
    assert_int_equal(fo_checkpoint_count(file), TENSORS);
    for (int i = 0; i < TENSORS; i++) {
        const fo_tensor_info *info =
            fo_checkpoint_info(file, fo_checkpoint_find(file, tensors[i].name));
        assert_string_equal(info->name, tensors[i].name);
        assert_int_equal(info->dtype, tensors[i].dtype);
        assert_int_equal(info->dims, tensors[i].dims);
        assert_memory_equal(info->shape, tensors[i].shape, sizeof info->shape);
    }
    expect_ok(
        fo_checkpoint_read_f32(file, fo_checkpoint_find(file, "wte.weight"), 0, 2, 0, 3, 0, out));
    assert_memory_equal(out, six, sizeof six);
    expect_ok(fo_checkpoint_read_f32(file, fo_checkpoint_find(file, tensors[1].name), 0, 1, 0, 3, 0,
                                     out));
    assert_memory_equal(out, six, 12);
    expect_ok(fo_checkpoint_read_f32(file, fo_checkpoint_find(file, "scalar"), 0, 1, 0, 1, 0, out));
    assert_true(out[0] == 6);
    expect_ok(fo_checkpoint_read_f32(file, fo_checkpoint_find(file, "deep"), 0, 2, 0, 2, 1, out));
    assert_true(out[0] == 1 && out[1] == 3 && out[2] == 2 && out[3] == 4);
    assert_string_equal(fo_checkpoint_metadata(file, "step"), "12");
    fo_checkpoint_close(file);
}

static void round_trip(void **state)
{
    const char *folder = fresh(*state);
    for (int i = 0; i < 2; i++) { /* the second replaces the first */
        expect_ok(write_all(in(folder, "model")));
        check_all(in(folder, "model"));
        assert_int_equal(entries(folder), 1);
    }
}

static void golden_bytes(void **state)
{
    const char *folder = fresh(*state), *path = in(folder, "f");
    static const char golden[] = "\x88\0\0\0\0\0\0\0{\"__metadata__\":{\"k\":\"v\"},"
                                 "\"b\":{\"dtype\":\"F32\",\"shape\":[1,1],\"data_offsets\":[0,4]},"
                                 "\"a\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[4,6]}}  "
                                 "\0\0\x80\x3f\x80\x3f";
    static const fo_tensor_info infos[] = {{.name = "b", .dims = 2, .shape = {1, 1}},
                                           {.name = "a", .dtype = FO_BF16}};
    static const char *const pairs[] = {"k", "v", NULL};
    fo_tensor_writer *w;
    char bytes[sizeof golden + 8];
    expect_ok(fo_checkpoint_create(path, infos, 2, pairs, &w));
    expect_ok(fo_checkpoint_write(w, 0, 0, six, 4));
    expect_ok(fo_checkpoint_write(w, 1, 0, three, 2));
    assert_int_not_equal(access(path, F_OK), 0); /* not before it is whole */
    expect_ok(fo_checkpoint_commit(w));
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(bytes, 1, sizeof bytes, file), sizeof golden - 1);
    fclose(file);
    assert_memory_equal(bytes, golden, sizeof golden - 1);
}

static void refuses_what_it_could_not_read(void **state)
{
    const char *folder = fresh(*state), *path = in(folder, "f");
    static const struct {
        fo_tensor_info info[2];
        const char *fragment;
    } wrong[] = {
        {{{.name = "a"}, {.name = "a"}}, "tensor 'a' is declared twice"},
        {{{.name = "a"}, {.name = NULL}}, "a tensor is named (nothing)"},
        {{{.name = "a"}, {.name = "__metadata__"}}, "a tensor is named __metadata__"},
        {{{.name = "a"}, {.name = "\xff"}}, "is not UTF-8"},
        {{{.name = "a"}, {.name = "b", .dims = 5}}, "has 5 dimensions"},
        {{{.name = "a"}, {.name = "b", .dims = -1}}, "has -1 dimensions"},
        {{{.name = "a"}, {.name = "b", .dims = 1, .shape = {-1}}}, "a negative size"},
        {{{.name = "a"}, {.name = "b", .dtype = (fo_dtype)2}}, "has dtype 2"},
        {{{.name = "a"}, {.name = "b", .dims = 2, .shape = {INT64_MAX, 2}}}, "beyond 64 bits"},
        {{{.name = "a"}, {.name = "b", .dims = 1, .shape = {INT64_MAX / 4}}}, "beyond 64 bits"},
    };
    fo_tensor_writer *w;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        expect_fails(fo_checkpoint_create(path, wrong[i].info, 2, NULL, &w), FO_INVALID,
                     wrong[i].fragment);
        assert_null(w);
    }
    static const char *const odd[] = {"k", NULL}, *const twice[] = {"k", "v", "k", "v", NULL};
    static const char *const latin[] = {"k", "\xe9", NULL};
    expect_fails(fo_checkpoint_create(path, tensors, 1, odd, &w), FO_INVALID, "has no value");
    expect_fails(fo_checkpoint_create(path, tensors, 1, twice, &w), FO_INVALID, "is given twice");
    expect_fails(fo_checkpoint_create(path, tensors, 1, latin, &w), FO_INVALID, "is not UTF-8");
    assert_int_equal(entries(folder), 0);
}

static void incomplete_tensors_are_no_file(void **state)
{
    const char *folder = fresh(*state), *path = in(folder, "f");
    fo_tensor_writer *w;
    expect_ok(fo_checkpoint_create(path, tensors, TENSORS, NULL, &w));
    expect_fails(fo_checkpoint_write(w, TENSORS, 0, six, 4), FO_INVALID, "number 5 was written");
    expect_fails(fo_checkpoint_write(w, 0, 4, six, 24), FO_INVALID, "of tensor 'wte.weight'");
    expect_fails(fo_checkpoint_write(w, 0, -1, six, 4), FO_INVALID, "it has 24");
    expect_fails(fo_checkpoint_write(w, 0, 0, six, INT64_MIN), FO_INVALID, "it has 24");
    expect_fails(fo_checkpoint_write(w, 0, INT64_MAX, six, INT64_MAX), FO_INVALID, "it has 24");
    expect_ok(fo_checkpoint_write(w, 0, 0, six, 20));
    assert_int_equal(entries(folder), 1);
    expect_fails(fo_checkpoint_commit(w), FO_INVALID,
                 "20 bytes of tensor 'wte.weight' were written, expected all 24");
    assert_int_equal(entries(folder), 0);
    expect_ok(fo_checkpoint_create(path, tensors, TENSORS, NULL, &w));
    fo_checkpoint_abandon(w);
    fo_checkpoint_abandon(NULL);
    assert_int_equal(entries(folder), 0);
    expect_fails(fo_checkpoint_commit(NULL), FO_INVALID, "no tensor file");
}

/* ---- failing system calls ------------------------------------------------------------------------------ */

static int countdown, error_number;
static const char *only;
static char failed_call[32];

static int fail_at(const char *call, const char *path)
{
    (void)path;
    if ((only && strcmp(call, only) != 0) || strcmp(call, "unlink") == 0 || countdown-- != 0)
        return 0;
    snprintf(failed_call, sizeof failed_call, "%s", call);
    return error_number;
}

/* Every call fails once: the old file stays, nothing is left, the sentence says why. */
static void each_failure_keeps_the_old_file(void **state)
{
    const char *folder = fresh(*state), *path = in(folder, "model");
    expect_ok(fo_checkpoint_write_text(path, "old"));
    error_number = ENOSPC;
    only = NULL;
    int failures = 0;
    for (int at = 0;; at++) {
        countdown = at;
        failed_call[0] = '\0';
        fo_checkpoint_fault = fail_at;
        fo_status status = write_all(path);
        fo_checkpoint_fault = NULL;
        if (status == FO_OK)
            break;
        expect_fails(status, FO_IO, "No space left on device");
        assert_non_null(strstr(fo_last_error(), folder));
        assert_int_equal(entries(folder), 1);
        char *text;
        failures++;
        if (fo_checkpoint_read_text(path, &text) == FO_OK) {
            assert_string_equal(text, "old");
            free(text);
        } else { /* the folder could not be flushed: the new file is there, and the caller was told */
            assert_string_equal(failed_call, "fsync");
            check_all(path);
        }
    }
    assert_in_range(failures, 9, 20);
    check_all(path);
}

static void interrupted_calls_are_repeated(void **state)
{
    const char *folder = fresh(*state), *path = in(folder, "model");
    static const char *const calls[] = {"open", "write", "fsync"};
    error_number = EINTR;
    for (int i = 0; i < 3; i++)
        for (int at = 0; at < 4; at++) {
            countdown = at;
            only = calls[i];
            fo_checkpoint_fault = fail_at;
            fo_status status = write_all(path);
            fo_checkpoint_fault = NULL;
            expect_ok(status);
            check_all(path);
            assert_int_equal(entries(folder), 1);
        }
    only = NULL;
}

/* File systems that can't reserve space: the file is written all the same. */
static void space_that_cannot_be_reserved(void **state)
{
    const char *path = in(fresh(*state), "model");
    error_number = EOPNOTSUPP;
    only = "write";
    countdown = 0;
    fo_checkpoint_fault = fail_at;
    fo_status status = write_all(path);
    fo_checkpoint_fault = NULL;
    only = NULL;
    expect_ok(status);
    check_all(path);
}

/* A limit on the size of files: real short writes. */
static void the_limit_of_file_sizes(void **state)
{
    const char *folder = fresh(*state), *path = in(folder, "model");
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct rlimit limit = {1000, 1000};
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &limit);
        char text[3000];
        memset(text, 'x', sizeof text - 1);
        text[sizeof text - 1] = '\0';
        fo_tensor_info big = {.name = "big", .dims = 1, .shape = {1000}};
        fo_tensor_writer *w;
        if (fo_checkpoint_write_text(path, text) != FO_IO ||
            !strstr(fo_last_error(), "ulimit -f") || !strstr(fo_last_error(), "at offset 1000"))
            _exit(1);
        if (fo_checkpoint_create(path, &big, 1, NULL, &w) != FO_IO ||
            !strstr(fo_last_error(), "can't be reserved"))
            _exit(2);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(entries(folder), 0);
}

static void places_where_nothing_can_be_written(void **state)
{
    const char *folder = fresh(*state);
    fo_tensor_writer *w;
    expect_fails(fo_checkpoint_create(in(folder, "none/model"), tensors, 1, NULL, &w), FO_IO,
                 "No such file or directory");
    expect_ok(fo_checkpoint_write_text(in(folder, "file"), ""));
    expect_fails(fo_checkpoint_write_text(in(folder, "file/below"), "x"), FO_IO, "Not a directory");
    expect_fails(fo_checkpoint_write_text(folder, "x"), FO_IO, "is a directory");
    expect_fails(fo_checkpoint_write_text("/proc/fo-test", "x"), FO_IO,
                 "/proc/fo-test can't be written");
    char long_path[5000];
    memset(long_path, 'a', sizeof long_path - 1);
    long_path[sizeof long_path - 1] = '\0';
    expect_fails(fo_checkpoint_write_text(long_path, "x"), FO_INVALID, "use a shorter one");
}

static void texts(void **state)
{
    const char *folder = fresh(*state), *path = in(folder, "text");
    char *text;
    expect_ok(fo_checkpoint_write_text(path, "one\ntwo \xc3\xa9"));
    expect_ok(fo_checkpoint_read_text(path, &text));
    assert_string_equal(text, "one\ntwo \xc3\xa9");
    free(text);
    expect_ok(fo_checkpoint_write_text(path, ""));
    expect_ok(fo_checkpoint_read_text(path, &text));
    assert_string_equal(text, "");
    free(text);
    scratch_write(path, "ab\0cd", 5);
    expect_fails(fo_checkpoint_read_text(path, &text), FO_FORMAT, "a zero byte at offset 2");
    assert_null(text);
    expect_fails(fo_checkpoint_read_text(folder, &text), FO_IO, "is a directory");
    expect_fails(fo_checkpoint_read_text(in(folder, "none"), &text), FO_IO, "No such file");
    assert_int_equal(truncate(path, (64 << 20) + 1), 0);
    expect_fails(fo_checkpoint_read_text(path, &text), FO_FORMAT, "at most 67108864");
    expect_fails(fo_checkpoint_read_text(NULL, &text), FO_INVALID, "needs a path");
    expect_fails(fo_checkpoint_write_text(path, NULL), FO_INVALID, "needs a path");
}

/* Temporary names that an earlier process with our number left are passed over. */
static void stale_temporary_names(void **state)
{
    const char *folder = fresh(*state);
    char name[64];
    for (int i = 0; i < 200; i++) {
        snprintf(name, sizeof name, ".tmp-write-%ld-%d", (long)getpid(), i);
        scratch_write(in(folder, name), "stale", 5);
    }
    expect_ok(fo_checkpoint_write_text(in(folder, "text"), "new"));
    char *text;
    expect_ok(fo_checkpoint_read_text(in(folder, "text"), &text));
    assert_string_equal(text, "new");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(golden_bytes),
        cmocka_unit_test(refuses_what_it_could_not_read),
        cmocka_unit_test(incomplete_tensors_are_no_file),
        cmocka_unit_test(each_failure_keeps_the_old_file),
        cmocka_unit_test(interrupted_calls_are_repeated),
        cmocka_unit_test(space_that_cannot_be_reserved),
        cmocka_unit_test(the_limit_of_file_sizes),
        cmocka_unit_test(places_where_nothing_can_be_written),
        cmocka_unit_test(texts),
        cmocka_unit_test(stale_temporary_names),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
