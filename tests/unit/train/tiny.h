/* A folder of its own, a little text and a model that trains in milliseconds, for the tests of this room. */
#ifndef FO_TESTS_TRAIN_TINY_H
#define FO_TESTS_TRAIN_TINY_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train/train.h"

typedef struct tiny {
    char folder[64];
    char text[128], out[128], other[128], log[128];
} tiny;

static inline void tiny_write(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static inline char *tiny_read(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    long length = ftell(file);
    rewind(file);
    char *bytes = malloc((size_t)length + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, (size_t)length, file), length);
    bytes[length] = '\0';
    fclose(file);
    if (size)
        *size = (size_t)length;
    return bytes;
}

static inline int tiny_set_up(void **state)
{
    static const char *const words[] = {"in", "the",    "beginning", "was",
                                        "a",  "word\n", "and",       "light"};
    tiny *t = calloc(1, sizeof *t);
    char text[4000];
    size_t used = 0;
    snprintf(t->folder, sizeof t->folder, "/tmp/fo-train-XXXXXX");
    if (!mkdtemp(t->folder))
        return -1;
    snprintf(t->text, sizeof t->text, "%s/text", t->folder);
    snprintf(t->out, sizeof t->out, "%s/out", t->folder);
    snprintf(t->other, sizeof t->other, "%s/other", t->folder);
    snprintf(t->log, sizeof t->log, "%s/log", t->folder);
    for (unsigned i = 0; used < 3000 || used % 2; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s ", words[i * i % 61 % 8]);
    tiny_write(t->text, text, used);
    *state = t;
    return 0;
}

static inline int tiny_tear_down(void **state)
{
    tiny *t = *state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", t->folder);
    int rc = system(command);
    free(t);
    return rc;
}

/* Two ranks, six steps, three heads on two ranks: nothing divides. */
static inline fo_train_options tiny_options(const tiny *t)
{
    fo_train_options o;
    fo_train_defaults(&o);
    o.layers = 2;
    o.heads = 3;
    o.dim = 12;
    o.context = 9;
    o.batch = 3;
    o.steps = 6;
    o.warmup = 2;
    o.lr = 1e-2f;
    o.min_lr = 1e-3f;
    o.eval_every = 0;
    o.data = t->text;
    o.format = "char";
    o.quiet = true;
    o.group.ranks = 2;
    o.group.threads = 1;
    o.group.kernel = "ref";
    o.group.memory = (size_t)64 << 20;
    o.group.deadline_s = 60;
    return o;
}

static inline void tiny_ok(fo_status status)
{
    if (status != FO_OK)
        print_error("%s: %s\n", fo_status_name(status), fo_last_error());
    assert_int_equal(status, FO_OK);
}

/* The call failed with this status and a sentence that has these words. */
static inline void tiny_fails(fo_status status, fo_status expected, const char *words)
{
    if (status != expected || !strstr(fo_last_error(), words))
        print_error("%s: '%s', expected %s with '%s'\n", fo_status_name(status), fo_last_error(),
                    fo_status_name(expected), words);
    assert_int_equal(status, expected);
    assert_non_null(strstr(fo_last_error(), words));
}

/* Line `index` of a file of JSON lines; NULL past the end. The caller owns it. */
static inline json_t *tiny_line(const char *path, int index)
{
    char *text = tiny_read(path, NULL), *at = text;
    for (int i = 0; i < index && at; i++) {
        at = strchr(at, '\n');
        at = at ? at + 1 : NULL;
    }
    json_t *line = NULL;
    if (at && *at) {
        json_error_t error;
        line = json_loads(at, JSON_DISABLE_EOF_CHECK, &error);
        if (!line)
            print_error("%s line %d: %s\n", path, index + 1, error.text);
        assert_non_null(line);
    }
    free(text);
    return line;
}

#endif
