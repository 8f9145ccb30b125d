/* Checkpoint directories: whatever happens while saving, the newest complete one loads. */
#include "unit/data/scratch.h"

#include <dirent.h>
#include <errno.h>
#include <sys/wait.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/system.h"

static const char *join(const char *folder, const char *name)
{
    static char paths[4][900];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static bool exists(const char *folder, const char *name)
{
    return access(join(folder, name), F_OK) == 0;
}

/* Entries whose names begin with `prefix`. */
static int entries(const char *folder, const char *prefix)
{
    int count = 0;
    DIR *stream = opendir(folder);
    assert_non_null(stream);
    for (const struct dirent *e; (e = readdir(stream));)
        count += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
                 strncmp(e->d_name, prefix, strlen(prefix)) == 0;
    closedir(stream);
    return count;
}

static const char *fresh(const scratch *s)
{
    static int number;
    static char path[600];
    snprintf(path, sizeof path, "%s/runs-%d", s->folder, number++);
    return path;
}

/* Saves a checkpoint of one tensor with the value `value`. */
static fo_status save(const char *directory, int64_t step, float value, int keep)
{
    char folder[512], path[600];
    fo_tensor_info info = {.name = "w", .dims = 1, .shape = {1}};
    fo_tensor_writer *w = NULL;
    fo_status status = fo_checkpoint_directory_begin(directory, step, folder, sizeof folder);
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors"};
    for (int i = 0; i < 2 && status == FO_OK; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        status = fo_checkpoint_create(path, &info, 1, NULL, &w);
        if (status == FO_OK)
            status = fo_checkpoint_write(w, 0, 0, &value, sizeof value);
        if (status == FO_OK)
            status = fo_checkpoint_commit(w);
        else
            fo_checkpoint_abandon(w);
        w = NULL;
    }
    snprintf(path, sizeof path, "%s/config.json", folder);
    if (status == FO_OK)
        status = fo_checkpoint_write_text(path, "{}\n");
    return status == FO_OK ? fo_checkpoint_directory_commit(directory, step, keep) : status;
}

/* The value in the newest checkpoint of a directory. */
static float load(const char *directory)
{
    char folder[512], path[600];
    fo_tensor_file *file;
    float value = 0;
    expect_ok(fo_checkpoint_directory_latest(directory, folder, sizeof folder));
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors"};
    for (int i = 0; i < 2; i++) {
        float other = value;
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        expect_ok(fo_checkpoint_open(path, &file));
        expect_ok(fo_checkpoint_read_f32(file, 0, 0, 1, 0, 1, 0, &value));
        fo_checkpoint_close(file);
        assert_true(i == 0 || value == other);
    }
    snprintf(path, sizeof path, "%s/config.json", folder);
    assert_int_equal(access(path, F_OK), 0);
    return value;
}

static void saving_and_finding(void **state)
{
    const char *d = fresh(*state);
    char out[512], *text;
    expect_ok(fo_checkpoint_directory_check(d));
    assert_int_equal(entries(d, ""), 0);
    expect_fails(fo_checkpoint_directory_latest(d, out, sizeof out), FO_IO, "has no checkpoint");
    for (int step = 10; step <= 50; step += 10) {
        expect_ok(save(d, step, (float)step, 2));
        assert_true(load(d) == (float)step);
    }
    assert_int_equal(entries(d, "step-"), 2);
    assert_int_equal(entries(d, ""), 3);
    assert_true(exists(d, "step-00000040"));
    expect_ok(fo_checkpoint_read_text(join(d, "latest"), &text));
    assert_string_equal(text, "step-00000050\n");
    free(text);
    expect_ok(fo_checkpoint_directory_latest(d, out, sizeof out));
    assert_string_equal(out, join(d, "step-00000050"));
    expect_ok(fo_checkpoint_directory_latest(join(d, "step-00000040"), out, sizeof out));
    assert_string_equal(out, join(d, "step-00000040"));
    expect_ok(save(d, 60, 60, 1));
    assert_int_equal(entries(d, ""), 2);
    expect_fails(fo_checkpoint_directory_latest(d, out, 10), FO_INVALID, "use a shorter one");
}

static void the_same_step_again(void **state)
{
    const char *d = fresh(*state);
    expect_ok(save(d, 5, 1, 2));
    expect_ok(save(d, 7, 2, 2));
    expect_ok(save(d, 5, 3, 2)); /* went on from an earlier one */
    assert_true(load(d) == 3);
    assert_int_equal(entries(d, ""), 3); /* what is not older stays */
    expect_ok(save(d, 7, 4, 2));
    assert_true(load(d) == 4);
    assert_int_equal(entries(d, ""), 3);
}

static void long_step_numbers(void **state)
{
    const char *d = fresh(*state);
    expect_ok(save(d, 99999999, 1, 2));
    expect_ok(save(d, 100000000, 2, 2));
    assert_true(load(d) == 2);
    unlink(join(d, "latest"));
    assert_true(load(d) == 2);
    expect_ok(save(d, 100000001, 3, 1));
    assert_int_equal(entries(d, "step-"), 1);
    expect_ok(save(d, INT64_MAX, 4, 1));
    assert_true(load(d) == 4);
    assert_int_equal(entries(d, "step-"), 1);
    expect_ok(save(d, 0, 5, 1));
    assert_true(load(d) == 5);
}

static void a_damaged_latest_is_passed_over(void **state)
{
    const char *d = fresh(*state);
    static const char *const damaged[] = {"",
                                          "\n",
                                          "step-00000003\n",
                                          "step-3\n",
                                          "../elsewhere\n",
                                          "step-00000002/..\n",
                                          "step-00000009",
                                          "\xff",
                                          "step-"};
    expect_ok(save(d, 1, 1, 3));
    expect_ok(save(d, 2, 2, 3));
    assert_int_equal(mkdir(join(d, "step-00000003"), 0700), 0); /* not complete */
    assert_int_equal(mkdir(join(d, "step-x"), 0700), 0);
    scratch_write(join(d, "step-00000004"), "", 0);
    for (size_t i = 0; i < sizeof damaged / sizeof damaged[0]; i++) {
        scratch_write(join(d, "latest"), damaged[i], strlen(damaged[i]));
        assert_true(load(d) == 2);
    }
    unlink(join(d, "latest"));
    assert_true(load(d) == 2);
    assert_int_equal(mkdir(join(d, "latest"), 0700), 0);
    assert_true(load(d) == 2);
    rmdir(join(d, "latest"));
    scratch_write(join(d, "latest"), "step-00000001", 13); /* no line end: still a name */
    assert_true(load(d) == 1);
}

static void leftovers_are_removed(void **state)
{
    const char *d = fresh(*state);
    char name[128], dead_name[128], live_name[128];
    int status;
    pid_t dead = fork();
    assert_true(dead >= 0);
    if (dead == 0)
        _exit(0);
    assert_int_equal(waitpid(dead, &status, 0), dead);
    expect_ok(fo_checkpoint_directory_check(d));
    long pids[] = {(long)dead, (long)getpid()};
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, ".tmp-step-7-%ld", pids[i]);
        assert_int_equal(mkdir(join(d, name), 0700), 0);
        strcat(name, "/sub");
        assert_int_equal(mkdir(join(d, name), 0700), 0);
        strcat(name, "/file");
        scratch_write(join(d, name), "x", 1);
    }
    snprintf(dead_name, sizeof dead_name, ".tmp-write-%ld-3", (long)dead);
    scratch_write(join(d, dead_name), "x", 1);
    snprintf(live_name, sizeof live_name, ".tmp-step-7-%ld", (long)getppid());
    assert_int_equal(mkdir(join(d, live_name), 0700), 0);
    static const char *const kept[] = {".tmp-step-7", ".tmp-step-7-1x", ".tmp-step--", ".tmp-other",
                                       "notes"};
    for (int i = 0; i < 5; i++)
        scratch_write(join(d, kept[i]), "x", 1);
    assert_int_equal(symlink("..", join(d, "link")), 0);
    expect_ok(save(d, 8, 8, 1));
    for (int i = 0; i < 5; i++)
        assert_true(exists(d, kept[i]));
    assert_true(exists(d, live_name));
    assert_true(exists(d, "link"));
    assert_int_equal(entries(d, ""), 2 + 5 + 1 + 1);
}

/* ---- crashes ----------------------------------------------------------------------------------------- */

static int countdown, error_number; /* error_number 0: the process ends */
static bool no_exchange;
static int calls_failed;

static int fail_at(const char *call, const char *path)
{
    (void)path;
    if (no_exchange && strcmp(call, "exchange") == 0)
        return EINVAL;
    if (countdown-- != 0)
        return 0;
    if (error_number == 0)
        _exit(77);
    calls_failed++;
    return error_number;
}

/* Saves in a process of its own that ends at system call `at`; whether it got to the end. */
static bool save_with_crash(const char *d, int64_t step, float value, int keep, int at)
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        countdown = at;
        error_number = 0;
        fo_checkpoint_fault = fail_at;
        _exit(save(d, step, value, keep) == FO_OK ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_true(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77);
    return WEXITSTATUS(status) == 0;
}

/* After a crash at every call: the previous or the new one loads, never a mixture, and once `latest`
 * moved on it does not go back; the next save works and cleans up. */
static void crash_everywhere(const char *d, int64_t step, int keep)
{
    bool done = false, moved = false;
    int at = 0;
    for (; !done; at++) {
        expect_ok(save(d, 1, 1, 8));
        expect_ok(save(d, 2, 2, 8));
        expect_ok(save(d, 3, 3, 8));
        done = save_with_crash(d, step, 100, keep, at);
        float found = load(d);
        assert_true(found == 3 || found == 100);
        assert_true(found == 100 || !moved || done);
        moved = found == 100;
        if (done)
            assert_true(found == 100);
        expect_ok(save(d, 9, 9, 1));
        assert_true(load(d) == 9);
        assert_int_equal(entries(d, ".tmp-"), 0);
        assert_int_equal(entries(d, ""), 2);
    }
    assert_in_range(at, 20, 200);
}

static void crashes_while_saving(void **state)
{
    crash_everywhere(fresh(*state), 4, 8);
}

static void crashes_while_removing_older_ones(void **state)
{
    crash_everywhere(fresh(*state), 4, 1);
}

static void crashes_while_replacing(void **state)
{
    crash_everywhere(fresh(*state), 3, 8);
}

static void crashes_while_replacing_without_exchange(void **state)
{
    no_exchange = true;
    crash_everywhere(fresh(*state), 3, 8);
    no_exchange = false;
}

/* The first checkpoint of a directory, the only one, saved again where folders can't be swapped. */
static void the_only_one_is_never_lost(void **state)
{
    const char *d = fresh(*state);
    no_exchange = true;
    bool done = false;
    for (int at = 0; !done; at++) {
        expect_ok(save(d, 3, 3, 1));
        done = save_with_crash(d, 3, 100, 1, at);
        float found = load(d);
        assert_true(found == 3 || found == 100);
    }
    no_exchange = false;
    expect_ok(save(d, 3, 4, 1));
    assert_int_equal(entries(d, ""), 2);
}

/* The same, with a full disk instead of a crash: the failure is told, with the place. */
static void failures_while_saving(void **state)
{
    const char *d = fresh(*state);
    for (int exchange = 0; exchange < 2; exchange++) {
        for (int64_t step = 3; step <= 4; step++) {
            calls_failed = 1;
            for (int at = 0; calls_failed; at++) {
                expect_ok(save(d, 2, 2, 8));
                expect_ok(save(d, 3, 3, 8));
                no_exchange = exchange == 1;
                countdown = at;
                error_number = ENOSPC;
                calls_failed = 0;
                fo_checkpoint_fault = fail_at;
                fo_status status = save(d, step, 100, 1);
                fo_checkpoint_fault = NULL;
                float found = load(d);
                assert_true(found == 3 || found == 100);
                if (status == FO_OK)
                    assert_true(found == 100);
                else
                    expect_fails(status, FO_IO, "No space left on device");
                if (status != FO_OK)
                    assert_non_null(strstr(fo_last_error(), d));
                expect_ok(save(d, 9, 9, 1));
                assert_int_equal(entries(d, ""), 2);
                assert_int_equal(entries(d, ".tmp-"), 0);
            }
        }
    }
    no_exchange = false;
}

/* ---- places ------------------------------------------------------------------------------------------ */

static void directories_are_made(void **state)
{
    const scratch *s = *state;
    char d[600], out[700];
    snprintf(d, sizeof d, "%s/a//b/c/", s->folder);
    expect_ok(fo_checkpoint_directory_check(d));
    expect_ok(save(d, 1, 1, 1));
    assert_true(load(d) == 1);
    expect_ok(fo_checkpoint_directory_check(d));
    assert_int_equal(entries(d, ""), 2);
    assert_int_equal(chdir(s->folder), 0);
    expect_ok(fo_checkpoint_directory_check("relative"));
    expect_ok(save("relative", 1, 2, 1));
    assert_true(load("relative") == 2);
    expect_ok(save(".", 1, 3, 1));
    assert_true(load(".") == 3);
    expect_ok(fo_checkpoint_directory_latest(".", out, sizeof out));
    assert_string_equal(out, "./step-00000001");
}

static void places_where_nothing_can_be_saved(void **state)
{
    const scratch *s = *state;
    char path[600], out[600];
    snprintf(path, sizeof path, "%s/plain", s->folder);
    scratch_write(path, "x", 1);
    expect_fails(fo_checkpoint_directory_check(path), FO_IO,
                 "plain is not a directory, expected one");
    snprintf(path, sizeof path, "%s/plain/below", s->folder);
    expect_fails(fo_checkpoint_directory_check(path), FO_IO,
                 "plain is not a directory, expected one (for ");
    expect_fails(fo_checkpoint_directory_check("/proc"), FO_IO, "/proc/latest can't be written");
    expect_fails(fo_checkpoint_directory_check("/proc/fo-test"), FO_IO,
                 "/proc/fo-test can't be made");
    expect_fails(fo_checkpoint_directory_begin("/proc/fo-test", 1, out, sizeof out), FO_IO,
                 "can't be made");
    expect_fails(fo_checkpoint_directory_check(""), FO_INVALID, "has no name");
    expect_fails(fo_checkpoint_directory_check(NULL), FO_INVALID, "has no name");
    expect_fails(fo_checkpoint_directory_begin(s->folder, -1, out, sizeof out), FO_INVALID,
                 "step -1");
    expect_fails(fo_checkpoint_directory_begin(s->folder, 1, out, 5), FO_INVALID, "less than 5");
    expect_fails(fo_checkpoint_directory_commit(s->folder, 1, 0), FO_INVALID, "1 or more");
    expect_fails(fo_checkpoint_directory_commit(s->folder, 123, 1), FO_IO, "No such file");
    snprintf(path, sizeof path, "%s/nowhere", s->folder);
    expect_fails(fo_checkpoint_directory_latest(path, out, sizeof out), FO_IO, "No such file");
    error_number = EROFS;
    countdown = 0;
    fo_checkpoint_fault = fail_at;
    fo_status status = fo_checkpoint_directory_check(s->folder);
    fo_checkpoint_fault = NULL;
    expect_fails(status, FO_IO, "Read-only file system");
}

/* Every way of failing to write the probe is told, and it does not stay. */
static void the_probe_tells_a_full_disk(void **state)
{
    const char *d = fresh(*state);
    assert_int_equal(mkdir(d, 0700), 0);
    int failures = 0;
    error_number = ENOSPC;
    calls_failed = 1;
    for (int at = 0; at < 4; at++) {
        countdown = at;
        fo_checkpoint_fault = fail_at;
        fo_status status = fo_checkpoint_directory_check(d);
        fo_checkpoint_fault = NULL;
        expect_fails(status, FO_IO, "No space left on device); free some space");
        assert_int_equal(entries(d, ""), 0);
        failures++;
    }
    assert_int_equal(failures, 4); /* open, write, fsync, close */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saving_and_finding),
        cmocka_unit_test(the_same_step_again),
        cmocka_unit_test(long_step_numbers),
        cmocka_unit_test(a_damaged_latest_is_passed_over),
        cmocka_unit_test(leftovers_are_removed),
        cmocka_unit_test(crashes_while_saving),
        cmocka_unit_test(crashes_while_removing_older_ones),
        cmocka_unit_test(crashes_while_replacing),
        cmocka_unit_test(crashes_while_replacing_without_exchange),
        cmocka_unit_test(the_only_one_is_never_lost),
        cmocka_unit_test(failures_while_saving),
        cmocka_unit_test(directories_are_made),
        cmocka_unit_test(places_where_nothing_can_be_saved),
        cmocka_unit_test(the_probe_tells_a_full_disk),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
