/* Where a text is no JSON: the path of the field, as far as it was read. */
#include "sim/json_error.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"

enum { LEVELS = 16, PATH = 160 };

typedef struct level {
    bool list;
    long index;      /* in a list */
    const char *key; /* in an object */
    size_t length;
    bool value; /* behind the colon */
} level;

typedef struct place {
    level levels[LEVELS];
    int depth; /* may exceed LEVELS */
} place;

static level *top(place *p)
{
    return p->depth >= 1 && p->depth <= LEVELS ? &p->levels[p->depth - 1] : NULL;
}

static void open_level(place *p, bool list)
{
    p->depth++;
    if (top(p))
        *top(p) = (level){.list = list};
}

/* Behind the string that begins at `at`. */
static size_t skip_string(const char *text, size_t at, size_t end)
{
    for (at++; at < end && text[at] != '"'; at++)
        at += text[at] == '\\';
    return at;
}

static void follow(place *p, const char *text, size_t end)
{
    for (size_t at = 0; at < end; at++) {
        char c = text[at];
        level *now = top(p);
        if (c == '{' || c == '[') {
            open_level(p, c == '[');
        } else if (c == '}' || c == ']') {
            if (now && now->list != (c == ']'))
                return; /* closes another one: here it is wrong */
            p->depth -= p->depth > 0;
        } else if (c == '"') {
            size_t close = skip_string(text, at, end);
            if (now && !now->list && !now->value) {
                now->key = text + at + 1;
                now->length = (close < end ? close : end) - at - 1;
            }
            at = close;
        } else if (now && c == ':') {
            now->value = true;
        } else if (now && c == ',') {
            now->index++;
            now->value = false;
        }
    }
}

static void print_place(const place *p, char *path, size_t size)
{
    size_t used = 0;
    path[0] = '\0';
    for (int i = 0; i < p->depth && i < LEVELS && used < size; i++) {
        const level *l = &p->levels[i];
        if (l->list)
            used += (size_t)snprintf(path + used, size - used, "[%ld]", l->index);
        else if (l->key)
            used += (size_t)snprintf(path + used, size - used, "%s%.*s", used ? "." : "",
                                     (int)(l->length < 40 ? l->length : 40), l->key);
    }
    if (!path[0])
        snprintf(path, size, "the beginning");
}

fo_status fo_sim_json_error(const char *name, const char *text, size_t bytes,
                            const json_error_t *error, const char *example)
{
    char path[PATH], found[JSON_ERROR_TEXT_LENGTH];
    place at = {.depth = 0};
    size_t end = error->position > 0 ? (size_t)error->position : 0;
    follow(&at, text, end < bytes ? end : bytes);
    print_place(&at, path, sizeof path);
    bool marked = bytes >= 3 && !memcmp(text, "\xef\xbb\xbf", 3);
    snprintf(found, sizeof found, "%.100s", marked ? "a byte order mark" : error->text);
    const char *expected = "JSON";
    if (json_error_code(error) == json_error_duplicate_key)
        expected = "every field once";
    else if (json_error_code(error) == json_error_numeric_overflow)
        expected = "a smaller number";
    return fo_base_error(FO_INVALID, "%s: %s, line %d: %s, expected %s, such as %s", name,
                         fo_base_file_quotable(path), error->line, fo_base_file_quotable(found),
                         expected, example);
}
