/* Sentences about profiles: where, what was found, what was expected, an example. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "sim/json_error.h"
#include "sim/profile_parse.h"

enum { FOUND = 60 };

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
    char text[FOUND] = "missing", where[FO_SIM_PROFILE_PATH];
    if (found)
        show(found, text, sizeof text);
    snprintf(where, sizeof where, "%s", path);
    return fo_base_error(FO_INVALID, "%s: %s is %s, expected %s, such as %s", reader->name,
                         fo_base_file_quotable(where), fo_base_file_quotable(text), expected,
                         example);
}

fo_status fo_sim_profile_unknown(const fo_sim_profile_reader *reader, const char *path,
                                 const char *known, const char *example)
{
    char where[FO_SIM_PROFILE_PATH];
    snprintf(where, sizeof where, "%s", path);
    return fo_base_error(FO_INVALID, "%s: %s is unknown, expected one of %s, such as %s",
                         reader->name, fo_base_file_quotable(where), known, example);
}

fo_status fo_sim_profile_syntax(const fo_sim_profile_reader *reader, const char *text, size_t bytes,
                                const json_error_t *error)
{
    return fo_sim_json_error(
        reader->name, text, bytes, error,
        "{\"value\": 5e-06, \"source\": \"where it is from\", \"confidence\": \"model\"}");
}
