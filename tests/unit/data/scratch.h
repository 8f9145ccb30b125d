/* A folder of its own for a test, files in it, and checks with the sentence. */
#ifndef TESTS_UNIT_DATA_SCRATCH_H
#define TESTS_UNIT_DATA_SCRATCH_H

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "flashoverlap/status.h"

typedef struct scratch {
    char folder[256];
} scratch;

/* $TMPDIR; else memory, where flushing to disk costs nothing; else /tmp. */
static inline const char *scratch_base(void)
{
    const char *base = getenv("TMPDIR");
    return base ? base : access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp";
}

/* The path of `name` in the folder; one of eight buffers. */
static inline const char *scratch_path(const scratch *s, const char *name)
{
    static char paths[8][512];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", s->folder, name);
    return path;
}

static inline int scratch_setup(void **state)
{
    scratch *s = calloc(1, sizeof *s);
    if (!s)
        return -1;
    snprintf(s->folder, sizeof s->folder, "%s/fo-test-XXXXXX", scratch_base());
    *state = s;
    return mkdtemp(s->folder) ? 0 : -1;
}

static inline int scratch_teardown(void **state)
{
    scratch *s = *state;
    char command[320];
    snprintf(command, sizeof command, "rm -rf '%s'", s->folder);
    int result = system(command);
    free(s);
    return result;
}

static inline void scratch_write(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static inline void expect_ok(fo_status status)
{
    if (status != FO_OK)
        fail_msg("%s: %s", fo_status_name(status), fo_last_error());
}

/* The call failed so, and its sentence has the fragment. */
static inline void expect_fails(fo_status status, fo_status expected, const char *fragment)
{
    if (status != expected)
        fail_msg("%s, expected %s (%s)", fo_status_name(status), fo_status_name(expected),
                 status == FO_OK ? fragment : fo_last_error());
    if (!strstr(fo_last_error(), fragment))
        fail_msg("'%s' has no '%s'", fo_last_error(), fragment);
}

#endif
