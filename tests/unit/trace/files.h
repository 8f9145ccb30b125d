/* A folder for the files of a test, and what they hold. */
#ifndef TEST_TRACE_FILES_H
#define TEST_TRACE_FILES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "flashoverlap/trace.h"

static char folder[] = "/tmp/fo-trace-XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

/* How many entries the folder has. */
static int entries(void)
{
    int count = 0;
    DIR *stream = opendir(folder);
    assert_non_null(stream);
    for (const struct dirent *entry; (entry = readdir(stream));)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(stream);
    return count;
}

static const char *in_folder(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int remove_folder(void **state)
{
    (void)state;
    DIR *stream = opendir(folder);
    for (const struct dirent *entry; stream && (entry = readdir(stream));)
        unlink(in_folder(entry->d_name));
    if (stream)
        closedir(stream);
    return rmdir(folder);
}

/* The whole file, ended by a zero byte; the caller frees it. */
static char *read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("%s can't be opened", path);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    long size = ftell(file);
    rewind(file);
    char *text = calloc(1, (size_t)size + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)size, file), size);
    fclose(file);
    return text;
}

/* What can't be written fails with the system's reason and leaves the folder as it was: `write` is given
 * the path. The sentence stays in fo_last_error. */
static void check_unwritable(fo_status (*write)(const char *path))
{
    const char *const paths[][2] = {
        {"/nonexistent/folder/file", "No such file or directory"},
        {"/dev/null", "not a regular file"},
        {"/dev/null/file", "Not a directory"},
        {"/tmp", "a directory"},
        {"/tmp/", "names a directory"},
        {"", "empty"},
    };
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        assert_int_equal(write(paths[i][0]), FO_IO);
        if (!strstr(fo_last_error(), paths[i][1]))
            fail_msg("expected '%s' in: %s", paths[i][1], fo_last_error());
    }
}

/* A disk that is full after `bytes`: the file that was there is still there, and nothing else. */
static void check_full(fo_status (*write)(const char *path), rlim_t bytes)
{
    const char *path = in_folder("full");
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fputs("as it was", file);
    fclose(file);
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = bytes;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    fo_status status = write(path);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, FO_IO);
    assert_non_null(strstr(fo_last_error(), "File too large"));
    char *text = read_file(path);
    assert_string_equal(text, "as it was");
    free(text);
    assert_int_equal(entries(), 1);
    unlink(path);
}

/* Strings that would like to be more than strings, and what is left of their bytes that are no UTF-8. */
static const char hostile[] =
    "\"quoted\\\" </script><img src=x onerror=alert(1)> 'it''s' & \n\t\x01 "
    "\xC3\xA4\xE2\x80\xA8\xF0\x9F\x8E\xB2 \xFF\xC0\xAF\xED\xA0\x80 end";

#endif
