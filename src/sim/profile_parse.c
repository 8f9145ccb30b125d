/* A profile's text: the sections of version 2, and what has to hold between their fields. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "sim/profile.h"
#include "sim/profile_parse.h"

enum { VERSION = 2, NAMES = 400 };

static void list_fields(const fo_sim_profile_section *section, char *names, size_t size)
{
    size_t used = 0;
    for (int f = 0; f < section->count && used < size; f++)
        used += (size_t)snprintf(names + used, size - used, "%s%s", f ? ", " : "",
                                 section->fields[f].name);
    if (section->inner && used < size)
        snprintf(names + used, size - used, ", %s", section->inner);
}

static const fo_sim_profile_field *find_field(const fo_sim_profile_section *section,
                                              const char *name)
{
    for (int f = 0; f < section->count; f++)
        if (!strcmp(section->fields[f].name, name))
            return &section->fields[f];
    return NULL;
}

static fo_status missing(const fo_sim_profile_reader *reader, const char *path,
                         const fo_sim_profile_field *field)
{
    char example[160];
    snprintf(example, sizeof example,
             "{\"value\": %s, \"source\": \"where it is from\", \"confidence\": \"model\"}",
             field->example);
    return fo_sim_profile_wrong(reader, path, NULL, "it", example);
}

static fo_status read_section(const fo_sim_profile_reader *reader,
                              const fo_sim_profile_section *section, const json_t *object)
{
    char path[FO_SIM_PROFILE_PATH], names[NAMES];
    const char *name;
    json_t *value;
    if (!json_is_object(object))
        return fo_sim_profile_wrong(reader, section->path, object, "an object of fields",
                                    "{\"bytes_per_s\": {\"value\": 235e9, ...}}");
    fo_status status = FO_OK;
    json_object_foreach((json_t *)(uintptr_t)object, name, value)
    {
        const fo_sim_profile_field *field = find_field(section, name);
        snprintf(path, sizeof path, "%s.%.60s", section->path, name);
        if (status != FO_OK || (section->inner && !strcmp(section->inner, name)))
            continue;
        if (!field) {
            list_fields(section, names, sizeof names);
            status = fo_sim_profile_unknown(reader, path, names, section->fields[0].name);
        } else {
            status = fo_sim_profile_field_read(reader, field, path, value);
        }
    }
    for (int f = 0; status == FO_OK && f < section->count; f++) {
        snprintf(path, sizeof path, "%s.%s", section->path, section->fields[f].name);
        if (section->fields[f].required && !json_object_get(object, section->fields[f].name))
            status = missing(reader, path, &section->fields[f]);
    }
    return status;
}

/* ---- what has to hold between fields ---------------------------------------------------------------- */

static fo_status check_device(const fo_sim_profile_reader *reader)
{
    const fo_sim_device *d = &reader->machine->device;
    static const char example[] =
        "{\"value\": 128, \"source\": \"where it is from\", \"confidence\": \"model\"}";
    if (!(d->flops_per_s[FO_F32] > 0) && !(d->flops_per_s[FO_BF16] > 0))
        return missing(reader, "device.bf16_flops_per_s", &fo_sim_profile_device.fields[0]);
    if (d->units && (!d->tile_m || !d->tile_n))
        return fo_sim_profile_wrong(reader, d->tile_m ? "device.tile_n" : "device.tile_m", NULL,
                                    "it, since device.units is given", example);
    if (!d->units && (d->tile_m || d->tile_n || d->comm_units))
        return fo_sim_profile_wrong(reader, "device.units", NULL,
                                    "it, since tiles or comm_units are given", example);
    if (d->units && d->comm_units >= d->units)
        return fo_base_error(FO_INVALID,
                             "%s: device.comm_units is %d of %d units, expected fewer, such as %d",
                             reader->name, d->comm_units, d->units, d->units / 4);
    return FO_OK;
}

static fo_status check_network(const fo_sim_profile_reader *reader, const json_t *network)
{
    const fo_sim_network *n = &reader->machine->network;
    bool torus = n->topology == FO_SIM_TORUS, outer = json_object_get(network, "outer") != NULL;
    if (torus != (n->torus[0] > 0))
        return fo_sim_profile_wrong(reader, "network.torus", json_object_get(network, "torus"),
                                    torus ? "sizes, since the topology is a torus"
                                          : "nothing, since there is no torus",
                                    torus ? "[4, 4]" : "\"topology\": {\"value\": \"torus\", ...}");
    if (outer != (n->locals > 0))
        return fo_sim_profile_wrong(
            reader, "network.locals", json_object_get(network, "locals"),
            outer ? "the ranks of a machine, since there are links between machines"
                  : "nothing, since there is no network.outer",
            outer ? "{\"value\": 8, ...}"
                  : "\"outer\": {\"bytes_per_s\": ..., \"latency_s\": ...}");
    return FO_OK;
}

/* ---- the whole -------------------------------------------------------------------------------------- */

/* One line, that is printed as it is. */
static bool is_text(const json_t *value, size_t room)
{
    const char *text = json_string_value(value);
    for (const char *at = text; at && *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            return false;
    return text && text[0] && strlen(text) < room;
}

static fo_status read_names(const fo_sim_profile_reader *reader, const json_t *root)
{
    fo_sim_machine *machine = reader->machine;
    const json_t *name = json_object_get(root, "name"), *about = json_object_get(root, "about");
    if (!is_text(name, sizeof machine->name))
        return fo_sim_profile_wrong(reader, "name", name, "a text of 1 to 63 bytes in one line",
                                    "\"a100-sxm\"");
    if (!is_text(about, sizeof machine->about))
        return fo_sim_profile_wrong(reader, "about", about, "a text of 1 to 127 bytes in one line",
                                    "\"8 A100 SXM on an NVSwitch\"");
    snprintf(machine->name, sizeof machine->name, "%s", json_string_value(name));
    snprintf(machine->about, sizeof machine->about, "%s", json_string_value(about));
    return FO_OK;
}

static fo_status read_part(const fo_sim_profile_reader *reader, const char *name,
                           const json_t *value)
{
    static const char *const plain[] = {"format", "format_version", "name", "about"};
    static const char *const lists[] = {"gemm", "wgrad", "attention", "attention_grad", "pack"};
    /* what calibrate says besides, for people */
    static const char *const told[] = {"source",  "confidence", "date",  "quick",
                                       "machine", "processor",  "group", "peaks",
                                       "passes",  "messages",   "tasks", "link"};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (!strcmp(plain[i], name))
            return FO_OK;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (!strcmp(lists[i], name))
            return fo_sim_profile_entries(reader, name, value);
    for (size_t i = 0; i < sizeof told / sizeof *told; i++)
        if (!strcmp(told[i], name))
            return FO_OK;
    if (!strcmp(name, "device"))
        return read_section(reader, &fo_sim_profile_device, value);
    if (!strcmp(name, "network"))
        return read_section(reader, &fo_sim_profile_network, value);
    if (!strcmp(name, "software"))
        return read_section(reader, &fo_sim_profile_software, value);
    char path[FO_SIM_PROFILE_PATH];
    snprintf(path, sizeof path, "%.60s", name);
    return fo_sim_profile_unknown(reader, path,
                                  "format, format_version, name, about, device, network, software, "
                                  "gemm, wgrad, attention, attention_grad, pack",
                                  "\"name\"");
}

static fo_status read_parts(const fo_sim_profile_reader *reader, const json_t *root)
{
    const char *name;
    json_t *value;
    fo_status status = read_names(reader, root);
    json_object_foreach((json_t *)(uintptr_t)root, name, value)
    {
        if (status == FO_OK)
            status = read_part(reader, name, value);
    }
    const json_t *network = json_object_get(root, "network");
    if (status == FO_OK && !json_object_get(root, "device"))
        status = fo_sim_profile_wrong(reader, "device", NULL, "an object of fields",
                                      "{\"bf16_flops_per_s\": {\"value\": 271e12, ...}}");
    if (status == FO_OK && !network)
        status = fo_sim_profile_wrong(reader, "network", NULL, "an object of fields",
                                      "{\"topology\": {\"value\": \"switch\", ...}, ...}");
    const json_t *outer = json_object_get(network, "outer");
    if (status == FO_OK && outer)
        status = read_section(reader, &fo_sim_profile_outer, outer);
    if (status == FO_OK)
        status = check_device(reader);
    return status == FO_OK ? check_network(reader, network) : status;
}

static fo_status read_root(const fo_sim_profile_reader *reader, const json_t *root)
{
    static const char format[] = "flashoverlap-machine-profile";
    if (!json_is_object(root))
        return fo_sim_profile_wrong(reader, "the whole", root, "an object",
                                    "{\"format\": \"flashoverlap-machine-profile\", ...}");
    const json_t *word = json_object_get(root, "format");
    const json_t *version = json_object_get(root, "format_version");
    if (!json_is_string(word) || strcmp(json_string_value(word), format))
        return fo_sim_profile_wrong(reader, "format", word, "the name of the format",
                                    "\"flashoverlap-machine-profile\"");
    if (!json_is_integer(version) || json_integer_value(version) < 1 ||
        json_integer_value(version) > VERSION)
        return fo_sim_profile_wrong(reader, "format_version", version, "1 or 2", "2");
    return json_integer_value(version) == 1 ? fo_sim_profile_measured(reader, root)
                                            : read_parts(reader, root);
}

/* What holds where a profile does not say otherwise. */
static void set_defaults(fo_sim_machine *machine)
{
    memset(machine, 0, sizeof *machine);
    machine->async = true;
    machine->device.tile_rows = machine->device.wgrad_rows = 1024;
}

fo_status fo_sim_profile_parse(const char *name, const char *text, size_t bytes,
                               fo_sim_machine *machine)
{
    fo_sim_profile_reader reader = {.name = name, .machine = machine};
    json_error_t error;
    set_defaults(machine);
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    fo_status status =
        root ? read_root(&reader, root) : fo_sim_profile_syntax(&reader, text, bytes, &error);
    json_decref(root);
    if (status != FO_OK) {
        fo_sim_machine_free(machine);
        memset(machine, 0, sizeof *machine);
    }
    return status;
}
