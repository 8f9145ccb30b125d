/* Sentences about profiles: where, what was found, what was expected, an example. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "sim/profile_parse.h"

enum { FOUND = 60, LEVELS = 16 };

/* The value as text, cut off. */
static void show(const json_t *found, char *text, size_t size)
{
    char *whole = json_dumps(found, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(6));
    if (whole && strlen(whole) >= size)
        snprintf(text, size, "%.*s...", (int)size - 4, whole);
    else
        snprintf(text, size, "%s", whole ? whole : "a value");
    free(whole);
}

fo_status fo_sim_profile_wrong(const fo_sim_profile_reader *reader, const char *path,
                               const json_t *found, const char *expected, const char *example)
{
    char text[FOUND] = "missing";
    if (found)
        show(found, text, sizeof text);
    return fo_base_error(FO_INVALID, "%s: %s is %s, expected %s, such as %s", reader->name, path,
                         text, expected, example);
}

fo_status fo_sim_profile_unknown(const fo_sim_profile_reader *reader, const char *path,
                                 const char *known, const char *example)
{
    return fo_base_error(FO_INVALID, "%s: %s is unknown, expected one of %s, such as %s",
                         reader->name, path, known, example);
}

/* ---- where in a text that is no JSON ---------------------------------------------------------------- */

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
        } else if ((c == '}' || c == ']') && p->depth > 0) {
            p->depth--;
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

fo_status fo_sim_profile_syntax(const fo_sim_profile_reader *reader, const char *text, size_t bytes,
                                const json_error_t *error)
{
    static const char example[] =
        "{\"value\": 5e-06, \"source\": \"where it is from\", \"confidence\": \"model\"}";
    char path[FO_SIM_PROFILE_PATH];
    place at = {.depth = 0};
    size_t end = error->position > 0 ? (size_t)error->position : 0;
    follow(&at, text, end < bytes ? end : bytes);
    print_place(&at, path, sizeof path);
    const char *expected = "JSON";
    if (json_error_code(error) == json_error_duplicate_key)
        expected = "every field once";
    else if (json_error_code(error) == json_error_numeric_overflow)
        expected = "a number below 1e308";
    return fo_base_error(FO_INVALID, "%s: %s, line %d: %.100s, expected %s, such as %s",
                         reader->name, path, error->line, error->text, expected, example);
}
