/* The fields of a profile, and reading one. docs/profiles.md has a row for each. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sim/profile_parse.h"

#define AT(member) offsetof(fo_sim_machine, member)

enum { MOST = INT_MAX };

/* Of a rate: less would make times that are no numbers any more. */
static const double least_part = 1e-6;

static const fo_sim_profile_field device_fields[] = {
    {"bf16_flops_per_s", FO_SIM_PROFILE_NUMBER, AT(device.flops_per_s[FO_BF16]), 1, 1e24, false,
     false, "271e12"},
    {"f32_flops_per_s", FO_SIM_PROFILE_NUMBER, AT(device.flops_per_s[FO_F32]), 1, 1e24, false,
     false, "19.5e12"},
    {"bf16_peak_flops_per_s", FO_SIM_PROFILE_NUMBER, AT(device.peak_flops_per_s[FO_BF16]), 1, 1e24,
     false, false, "312e12"},
    {"f32_peak_flops_per_s", FO_SIM_PROFILE_NUMBER, AT(device.peak_flops_per_s[FO_F32]), 1, 1e24,
     false, false, "19.5e12"},
    {"efficiency_by_rows", FO_SIM_PROFILE_CURVE, AT(device.by_rows), 0, 1e15, true, false,
     "[[64, 0.35], [256, 0.85], [8192, 1]]"},
    {"efficiency_by_width", FO_SIM_PROFILE_CURVE, AT(device.by_width), 0, 1e15, true, false,
     "[[512, 0.32], [4096, 0.94]]"},
    {"launch_s", FO_SIM_PROFILE_NUMBER, AT(device.launch_s), 0, 3600, false, false, "5e-6"},
    {"memory_bytes_per_s", FO_SIM_PROFILE_NUMBER, AT(device.memory_bytes_per_s), 1, 1e24, false,
     false, "2.0e12"},
    {"epilogue_bytes_per_s", FO_SIM_PROFILE_NUMBER, AT(device.epilogue_bytes_per_s), 1, 1e24, false,
     false, "30e9"},
    {"memory_bytes", FO_SIM_PROFILE_NUMBER, AT(device.memory_bytes), 1, 1e24, false, false, "80e9"},
    {"attention_efficiency", FO_SIM_PROFILE_NUMBER, AT(device.attention_efficiency), 1e-6, 1, false,
     false, "0.65"},
    {"units", FO_SIM_PROFILE_WHOLE, AT(device.units), 1, 1e6, false, false, "108"},
    {"tile_m", FO_SIM_PROFILE_WHOLE, AT(device.tile_m), 1, 65536, false, false, "128"},
    {"tile_n", FO_SIM_PROFILE_WHOLE, AT(device.tile_n), 1, 65536, false, false, "128"},
    {"comm_units", FO_SIM_PROFILE_WHOLE, AT(device.comm_units), 0, 1e6, false, false, "24"},
    {"tile_rows", FO_SIM_PROFILE_WHOLE64, AT(device.tile_rows), 1, MOST, false, false, "1024"},
    {"wgrad_rows", FO_SIM_PROFILE_WHOLE64, AT(device.wgrad_rows), 1, MOST, false, false, "1024"},
    {"by_tile", FO_SIM_PROFILE_FLAG, AT(device.by_tile), 0, 0, false, false, "false"},
};

static const fo_sim_profile_field network_fields[] = {
    {"topology", FO_SIM_PROFILE_TOPOLOGY, AT(network.topology), 0, 0, false, true, "\"switch\""},
    {"bytes_per_s", FO_SIM_PROFILE_RATE, AT(network.link.bytes_per_s), 1, 1e24, false, true,
     "235e9"},
    {"latency_s", FO_SIM_PROFILE_NUMBER, AT(network.link.latency_s), 0, 3600, false, true, "2e-6"},
    {"efficiency", FO_SIM_PROFILE_CURVE, AT(network.link.efficiency), 0, 1e15, true, false,
     "[[65536, 0.5], [4194304, 1]]"},
    {"torus", FO_SIM_PROFILE_SIZES, AT(network.torus), 1, 65536, false, false, "[4, 4, 4]"},
    {"locals", FO_SIM_PROFILE_WHOLE, AT(network.locals), 1, 65536, false, false, "8"},
};

static const fo_sim_profile_field outer_fields[] = {
    {"bytes_per_s", FO_SIM_PROFILE_RATE, AT(network.outer.bytes_per_s), 1, 1e24, false, true,
     "23.5e9"},
    {"latency_s", FO_SIM_PROFILE_NUMBER, AT(network.outer.latency_s), 0, 3600, false, true, "5e-6"},
    {"efficiency", FO_SIM_PROFILE_CURVE, AT(network.outer.efficiency), 0, 1e15, true, false,
     "[[65536, 0.5], [4194304, 1]]"},
    {"ports", FO_SIM_PROFILE_WHOLE, AT(network.outer_ports), 0, 65536, false, false, "0"},
};

static const fo_sim_profile_field software_fields[] = {
    {"task_s", FO_SIM_PROFILE_NUMBER, AT(task_s), 0, 3600, false, false, "1e-6"},
    {"message_s", FO_SIM_PROFILE_NUMBER, AT(message_s), 0, 3600, false, false, "1e-6"},
    {"wake_s", FO_SIM_PROFILE_NUMBER, AT(wake_s), 0, 3600, false, false, "2e-5"},
    {"cpu_s_per_byte", FO_SIM_PROFILE_NUMBER, AT(cpu_s_per_byte), 0, 1, false, false, "1e-10"},
    {"contention", FO_SIM_PROFILE_NUMBER, AT(contention), 0, 100, false, false, "0.19"},
    {"async", FO_SIM_PROFILE_FLAG, AT(async), 0, 0, false, false, "true"},
    {"views", FO_SIM_PROFILE_FLAG, AT(views), 0, 0, false, false, "false"},
};

#define COUNT(table) ((int)(sizeof(table) / sizeof((table)[0])))
const fo_sim_profile_section fo_sim_profile_device = {"device", device_fields, COUNT(device_fields),
                                                      NULL};
const fo_sim_profile_section fo_sim_profile_network = {"network", network_fields,
                                                       COUNT(network_fields), "outer"};
const fo_sim_profile_section fo_sim_profile_outer = {"network.outer", outer_fields,
                                                     COUNT(outer_fields), NULL};
const fo_sim_profile_section fo_sim_profile_software = {"software", software_fields,
                                                        COUNT(software_fields), NULL};

/* ---- values ----------------------------------------------------------------------------------------- */

static void *place(const fo_sim_profile_reader *reader, const fo_sim_profile_field *field)
{
    return (char *)reader->machine + field->offset;
}

static bool in_range(const fo_sim_profile_field *field, double x)
{
    return isfinite(x) && x <= field->most &&
           (field->positive ? x > field->least : x >= field->least);
}

static fo_status read_number(const fo_sim_profile_reader *reader, const fo_sim_profile_field *field,
                             const char *path, const json_t *value)
{
    char expected[96];
    double x = json_number_value(value);
    bool none = field->kind == FO_SIM_PROFILE_RATE && x == 0;
    if (!json_is_number(value) || (!in_range(field, x) && !none)) {
        snprintf(expected, sizeof expected, "%sa number %s %g and at most %g",
                 field->kind == FO_SIM_PROFILE_RATE ? "0 or " : "",
                 field->positive ? "above" : "of at least", field->least, field->most);
        return fo_sim_profile_wrong(reader, path, value, expected, field->example);
    }
    *(double *)place(reader, field) = x;
    return FO_OK;
}

static fo_status read_whole(const fo_sim_profile_reader *reader, const fo_sim_profile_field *field,
                            const char *path, const json_t *value)
{
    char expected[96];
    json_int_t x = json_integer_value(value);
    if (!json_is_integer(value) || (double)x < field->least || (double)x > field->most) {
        snprintf(expected, sizeof expected, "a whole number from %.0f to %.0f", field->least,
                 field->most);
        return fo_sim_profile_wrong(reader, path, value, expected, field->example);
    }
    if (field->kind == FO_SIM_PROFILE_WHOLE)
        *(int *)place(reader, field) = (int)x;
    else
        *(int64_t *)place(reader, field) = x;
    return FO_OK;
}

static fo_status read_flag(const fo_sim_profile_reader *reader, const fo_sim_profile_field *field,
                           const char *path, const json_t *value)
{
    if (!json_is_boolean(value))
        return fo_sim_profile_wrong(reader, path, value, "true or false", field->example);
    *(bool *)place(reader, field) = json_is_true(value);
    return FO_OK;
}

static fo_status read_topology(const fo_sim_profile_reader *reader,
                               const fo_sim_profile_field *field, const char *path,
                               const json_t *value)
{
    static const char *const words[] = {
        [FO_SIM_SWITCH] = "switch", [FO_SIM_MESH] = "mesh", [FO_SIM_TORUS] = "torus"};
    const char *word = json_string_value(value);
    for (int t = FO_SIM_SWITCH; word && t <= FO_SIM_TORUS; t++)
        if (!strcmp(word, words[t])) {
            *(fo_sim_topology *)place(reader, field) = (fo_sim_topology)t;
            return FO_OK;
        }
    return fo_sim_profile_wrong(reader, path, value, "\"switch\", \"mesh\" or \"torus\"",
                                field->example);
}

/* One pair of a curve; `before`: what its first number must exceed. */
static bool read_point(const fo_sim_profile_field *field, const json_t *pair, double before,
                       double *x, double *y)
{
    const json_t *first = json_array_get(pair, 0), *second = json_array_get(pair, 1);
    if (json_array_size(pair) != 2 || !json_is_number(first) || !json_is_number(second))
        return false;
    *x = json_number_value(first);
    *y = json_number_value(second);
    return in_range(field, *x) && *x > before && *y >= least_part && *y <= 1;
}

static fo_status read_curve(const fo_sim_profile_reader *reader, const fo_sim_profile_field *field,
                            const char *path, const json_t *value)
{
    static const char expected[] =
        "1 to 32 pairs [size, efficiency], sizes ascending, efficiencies of 1e-6 to 1";
    fo_sim_curve *curve = place(reader, field);
    size_t count = json_array_size(value);
    if (!json_is_array(value) || count < 1 || count > FO_SIM_POINTS)
        return fo_sim_profile_wrong(reader, path, value, expected, field->example);
    double before = 0;
    for (size_t i = 0; i < count; i++) {
        const json_t *pair = json_array_get(value, i);
        if (!read_point(field, pair, before, &curve->x[i], &curve->y[i])) {
            char inner[FO_SIM_PROFILE_PATH + 24];
            snprintf(inner, sizeof inner, "%s[%zu]", path, i);
            return fo_sim_profile_wrong(reader, inner, pair, expected, field->example);
        }
        before = curve->x[i];
    }
    curve->points = (int)count;
    return FO_OK;
}

static fo_status read_sizes(const fo_sim_profile_reader *reader, const fo_sim_profile_field *field,
                            const char *path, const json_t *value)
{
    int *sizes = place(reader, field);
    size_t count = json_array_size(value);
    bool fits = json_is_array(value) && count >= 1 && count <= FO_SIM_DIMENSIONS;
    for (size_t i = 0; fits && i < count; i++) {
        const json_t *size = json_array_get(value, i);
        fits = json_is_integer(size) && in_range(field, (double)json_integer_value(size));
        sizes[i] = fits ? (int)json_integer_value(size) : 0;
    }
    return fits ? FO_OK
                : fo_sim_profile_wrong(reader, path, value, "1 to 3 sizes of 1 to 65536",
                                       field->example);
}

static fo_status read_value(const fo_sim_profile_reader *reader, const fo_sim_profile_field *field,
                            const char *path, const json_t *value)
{
    switch (field->kind) {
    case FO_SIM_PROFILE_RATE:
    case FO_SIM_PROFILE_NUMBER: return read_number(reader, field, path, value);
    case FO_SIM_PROFILE_WHOLE:
    case FO_SIM_PROFILE_WHOLE64: return read_whole(reader, field, path, value);
    case FO_SIM_PROFILE_FLAG: return read_flag(reader, field, path, value);
    case FO_SIM_PROFILE_TOPOLOGY: return read_topology(reader, field, path, value);
    case FO_SIM_PROFILE_CURVE: return read_curve(reader, field, path, value);
    default: return read_sizes(reader, field, path, value);
    }
}

/* ---- value, source, confidence ---------------------------------------------------------------------- */

static fo_status check_source(const fo_sim_profile_reader *reader, const char *path,
                              const json_t *source)
{
    const char *text = json_string_value(source);
    if (text && text[0])
        return FO_OK;
    return fo_sim_profile_wrong(reader, path, source, "who says so",
                                "\"arXiv 2312.03134, measured\"");
}

static fo_status check_confidence(const fo_sim_profile_reader *reader, const char *path,
                                  const json_t *confidence)
{
    static const char *const words[] = {"vendor", "measured", "model", "community"};
    const char *word = json_string_value(confidence);
    for (int i = 0; word && i < COUNT(words); i++)
        if (!strcmp(word, words[i]))
            return FO_OK;
    return fo_sim_profile_wrong(reader, path, confidence,
                                "\"vendor\", \"measured\", \"model\" or \"community\"",
                                "\"measured\"");
}

fo_status fo_sim_profile_field_read(const fo_sim_profile_reader *reader,
                                    const fo_sim_profile_field *field, const char *path,
                                    const json_t *object)
{
    char example[160], inner[FO_SIM_PROFILE_PATH];
    snprintf(example, sizeof example,
             "{\"value\": %s, \"source\": \"where it is from\", \"confidence\": \"model\"}",
             field->example);
    if (!json_is_object(object))
        return fo_sim_profile_wrong(reader, path, object,
                                    "an object of value, source and confidence", example);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        snprintf(inner, sizeof inner, "%s.%.60s", path, key);
        if (strcmp(key, "value") && strcmp(key, "source") && strcmp(key, "confidence"))
            return fo_sim_profile_unknown(reader, inner, "value, source, confidence", example);
    }
    snprintf(inner, sizeof inner, "%s.value", path);
    fo_status status = json_object_get(object, "value")
                           ? read_value(reader, field, inner, json_object_get(object, "value"))
                           : fo_sim_profile_wrong(reader, inner, NULL, "a value", field->example);
    snprintf(inner, sizeof inner, "%s.source", path);
    if (status == FO_OK)
        status = check_source(reader, inner, json_object_get(object, "source"));
    snprintf(inner, sizeof inner, "%s.confidence", path);
    return status == FO_OK ? check_confidence(reader, inner, json_object_get(object, "confidence"))
                           : status;
}
