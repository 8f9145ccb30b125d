/* Rows of plain values, as `flashoverlap calibrate` writes them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sim/profile_parse.h"

typedef struct row {
    const fo_sim_profile_reader *reader;
    const char *path;
    const fo_sim_profile_key *key;
} row;

static fo_status wrong(const row *r, const json_t *found, const char *expected)
{
    char path[FO_SIM_PROFILE_PATH];
    snprintf(path, sizeof path, "%s%s%s", r->path, r->path[0] ? "." : "", r->key->name);
    return fo_sim_profile_wrong(r->reader, path, found, expected, r->key->example);
}

static fo_status read_number(const row *r, const json_t *value, double *x)
{
    const fo_sim_profile_key *key = r->key;
    bool whole = key->kind == FO_SIM_PROFILE_KEY_WHOLE;
    char expected[96];
    *x = json_number_value(value);
    if ((whole ? json_is_integer(value) : json_is_number(value)) && isfinite(*x) &&
        *x >= key->least && *x <= key->most)
        return FO_OK;
    snprintf(expected, sizeof expected, "a %snumber from %g to %g", whole ? "whole " : "",
             key->least, key->most);
    return wrong(r, value, expected);
}

static fo_status read_word(const row *r, const json_t *value, double *x)
{
    const char *word = json_string_value(value);
    char expected[96] = "";
    for (int i = 0; r->key->words[i]; i++) {
        if (word && !strcmp(word, r->key->words[i])) {
            *x = i;
            return FO_OK;
        }
        size_t used = strlen(expected);
        snprintf(expected + used, sizeof expected - used, "%s\"%s\"", i ? " or " : "",
                 r->key->words[i]);
    }
    return wrong(r, value, expected);
}

static fo_status read_value(const row *r, const json_t *value, double *x)
{
    switch (r->key->kind) {
    case FO_SIM_PROFILE_KEY_WORD: return read_word(r, value, x);
    case FO_SIM_PROFILE_KEY_TEXT: return json_is_string(value) ? FO_OK : wrong(r, value, "a text");
    case FO_SIM_PROFILE_KEY_FLAG:
        *x = json_is_true(value);
        return json_is_boolean(value) ? FO_OK : wrong(r, value, "true or false");
    case FO_SIM_PROFILE_KEY_LOOSE:
        if (json_is_null(value))
            return FO_OK;
        return read_number(r, value, x);
    default: return read_number(r, value, x);
    }
}

static fo_status check_keys(const fo_sim_profile_reader *reader, const char *path,
                            const json_t *object, const fo_sim_profile_key *keys, int count)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, name, value)
    {
        char known[300] = "", inner[FO_SIM_PROFILE_PATH];
        int k = 0;
        for (; k < count && strcmp(keys[k].name, name); k++) {
            size_t used = strlen(known);
            snprintf(known + used, sizeof known - used, "%s%s", k ? ", " : "", keys[k].name);
        }
        snprintf(inner, sizeof inner, "%s%s%.60s", path, path[0] ? "." : "", name);
        if (k == count)
            return fo_sim_profile_unknown(reader, inner, known, keys[0].name);
    }
    return FO_OK;
}

fo_status fo_sim_profile_row_read(const fo_sim_profile_reader *reader, const char *path,
                                  const json_t *object, const fo_sim_profile_key *keys, int count,
                                  double *values)
{
    if (!json_is_object(object))
        return fo_sim_profile_wrong(reader, path, object, "an object", "{\"threads\": 1, ...}");
    fo_status status = check_keys(reader, path, object, keys, count);
    for (int k = 0; status == FO_OK && k < count; k++) {
        row r = {.reader = reader, .path = path, .key = &keys[k]};
        const json_t *value = json_object_get(object, keys[k].name);
        values[k] = NAN;
        if (value)
            status = read_value(&r, value, &values[k]);
        else if (keys[k].required)
            status = wrong(&r, NULL, "it");
    }
    return status;
}

fo_status fo_sim_profile_is_list(const fo_sim_profile_reader *reader, const char *path,
                                 const json_t *value)
{
    if (json_is_array(value))
        return FO_OK;
    return fo_sim_profile_wrong(reader, path, value, "a list of what was measured", "[]");
}
