/* What was measured: the lists of products and attention, and profiles of version 1, which are nothing else. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "sim/profile_parse.h"

static const char *const dtypes[] = {[FO_F32] = "f32", [FO_BF16] = "bf16", NULL};
static const char *const confidences[] = {"high", "medium", "low", NULL};
static const char *const patterns[] = {"one way", "exchange", NULL};
static const char *const receives[] = {"copy", "view", NULL};
static const char *const sources[] = {"measured", NULL};
static const char *const formats[] = {"flashoverlap-machine-profile", NULL};

enum { LARGEST = 1000000000 };
#define COUNT(table) ((int)(sizeof(table) / sizeof((table)[0])))
#define WHOLE(name, least, example)                                         \
    {                                                                       \
        name, FO_SIM_PROFILE_KEY_WHOLE, true, least, LARGEST, NULL, example \
    }
#define WORD(name, words, example)                                \
    {                                                             \
        name, FO_SIM_PROFILE_KEY_WORD, true, 0, 0, words, example \
    }
#define LOOSE(name)                                                    \
    {                                                                  \
        name, FO_SIM_PROFILE_KEY_LOOSE, false, 0, 1e300, NULL, "1.5e9" \
    }
#define HOW                                                                                   \
    {"time_s", FO_SIM_PROFILE_KEY_NUMBER, true, 1e-12, 1e6, NULL, "0.0012"}, LOOSE("best_s"), \
        LOOSE("spread_s"), LOOSE("flops_per_s"), LOOSE("efficiency"), LOOSE("bytes_per_s"),   \
        {"samples", FO_SIM_PROFILE_KEY_WHOLE, false, 1, LARGEST, NULL, "5"},                  \
        {"calls", FO_SIM_PROFILE_KEY_WHOLE, false, 1, LARGEST, NULL, "8"},                    \
    {                                                                                         \
        "confidence", FO_SIM_PROFILE_KEY_WORD, false, 0, 0, confidences, "\"high\""           \
    }
#define WHO \
    WORD("dtype", dtypes, "\"bf16\""), WHOLE("threads", 1, "1"), WHOLE("ranks_at_once", 1, "2")

/* The sizes come first and in the order k, n, rows; then type, threads, ranks at once, time. */
enum { K, N, ROWS, DTYPE, THREADS, AT_ONCE, TIME };
static const fo_sim_profile_key gemm_keys[] = {WHOLE("k", 1, "1024"), WHOLE("n", 1, "1024"),
                                               WHOLE("rows", 1, "64"), WHO, HOW};
static const fo_sim_profile_key wgrad_keys[] = {WHOLE("in", 1, "1024"), WHOLE("out", 1, "1024"),
                                                WHOLE("rows", 1, "256"), WHO, HOW};
static const fo_sim_profile_key pack_keys[] = {WHOLE("k", 1, "1024"),
                                               WHOLE("n", 1, "1024"),
                                               {"rows", FO_SIM_PROFILE_KEY_WHOLE, false, 0, LARGEST,
                                                NULL, "1"}, /* there are none */
                                               WHO,
                                               HOW};
static const fo_sim_profile_key attention_keys[] = {WHOLE("heads", 1, "8"),
                                                    WHOLE("head_dim", 1, "64"),
                                                    WHOLE("context", 1, "512"), WHO, HOW};

static const struct {
    const char *name;
    fo_sim_work work;
    const fo_sim_profile_key *keys;
    int count;
} lists[] = {{"gemm", FO_SIM_GEMM, gemm_keys, COUNT(gemm_keys)},
             {"wgrad", FO_SIM_WGRAD, wgrad_keys, COUNT(wgrad_keys)},
             {"attention", FO_SIM_ATTENTION, attention_keys, COUNT(attention_keys)},
             {"attention_grad", FO_SIM_ATTENTION_GRAD, attention_keys, COUNT(attention_keys)},
             {"pack", FO_SIM_PACK, pack_keys, COUNT(pack_keys)}};

enum { VALUES = 20 };

/* ---- entries ---------------------------------------------------------------------------------------- */

static fo_status grow(fo_sim_machine *machine, size_t by)
{
    size_t count = (size_t)machine->device.entry_count + by;
    fo_sim_entry *memory = realloc(machine->memory, (count + 1) * sizeof *memory);
    if (!memory)
        return fo_base_error(FO_NO_MEMORY, "no memory for a profile of %zu entries", count);
    machine->memory = memory;
    machine->device.entries = memory;
    return FO_OK;
}

fo_status fo_sim_profile_entries(const fo_sim_profile_reader *reader, const char *name,
                                 const json_t *list)
{
    fo_sim_machine *machine = reader->machine;
    int l = 0;
    while (strcmp(lists[l].name, name))
        l++;
    fo_status status = fo_sim_profile_is_list(reader, name, list);
    if (status == FO_OK)
        status = grow(machine, json_array_size(list));
    for (size_t i = 0; status == FO_OK && i < json_array_size(list); i++) {
        char path[FO_SIM_PROFILE_PATH];
        double v[VALUES];
        snprintf(path, sizeof path, "%s[%zu]", name, i);
        status = fo_sim_profile_row_read(reader, path, json_array_get(list, i), lists[l].keys,
                                         lists[l].count, v);
        if (status != FO_OK)
            break;
        machine->memory[machine->device.entry_count++] =
            (fo_sim_entry){.work = lists[l].work,
                           .dtype = (fo_dtype)(int)v[DTYPE],
                           .threads = (int)v[THREADS],
                           .at_once = v[AT_ONCE] > 1,
                           .rows = v[ROWS] > 0 ? (int64_t)v[ROWS] : 0,
                           .k = (int64_t)v[K],
                           .n = (int64_t)v[N],
                           .time_s = v[TIME]};
    }
    return status;
}

/* ---- version 1: what follows from the lists --------------------------------------------------------- */

static const fo_sim_profile_key peak_keys[] = {WHO,
                                               {"flops_per_s", FO_SIM_PROFILE_KEY_NUMBER, true, 1,
                                                1e24, NULL, "2.3e11"}};
static const fo_sim_profile_key pass_keys[] = {{"pass", FO_SIM_PROFILE_KEY_TEXT, true, 0, 0, NULL,
                                                "\"convert f32 to bf16\""},
                                               WHOLE("elements", 1, "65536"),
                                               {"bytes", FO_SIM_PROFILE_KEY_NUMBER, true, 1, 1e15,
                                                NULL, "393216"},
                                               WHOLE("threads", 1, "1"),
                                               WHOLE("ranks_at_once", 1, "2"),
                                               HOW};
static const fo_sim_profile_key message_keys[] = {WHOLE("bytes", 0, "65536"),
                                                  WORD("pattern", patterns, "\"one way\""),
                                                  WORD("receive", receives, "\"copy\""), HOW};
static const fo_sim_profile_key task_keys[] = {
    {"overlap", FO_SIM_PROFILE_KEY_TEXT, true, 0, 0, NULL, "\"flash:4\""},
    WHOLE("threads", 1, "1"),
    WHOLE("ranks_at_once", 1, "2"),
    {"time_s", FO_SIM_PROFILE_KEY_NUMBER, true, 0, 1e6, NULL, "2e-7"},
    LOOSE("best_s"),
    LOOSE("spread_s"),
    {"samples", FO_SIM_PROFILE_KEY_WHOLE, false, 1, LARGEST, NULL, "5"},
    {"calls", FO_SIM_PROFILE_KEY_WHOLE, false, 1, LARGEST, NULL, "8"},
    {"confidence", FO_SIM_PROFILE_KEY_WORD, false, 0, 0, confidences, "\"high\""}};
static const fo_sim_profile_key link_keys[] = {
    {"transport", FO_SIM_PROFILE_KEY_TEXT, true, 0, 0, NULL, "\"shm\""},
    {"latency_s", FO_SIM_PROFILE_KEY_NUMBER, true, 0, 3600, NULL, "2e-5"},
    {"bytes_per_s", FO_SIM_PROFILE_KEY_NUMBER, true, 1, 1e24, NULL, "1.2e10"},
    {"confidence", FO_SIM_PROFILE_KEY_WORD, false, 0, 0, confidences, "\"high\""}};
static const fo_sim_profile_key group_keys[] = {WHOLE("ranks", 1, "2"),
                                                {"transport", FO_SIM_PROFILE_KEY_TEXT, true, 0, 0,
                                                 NULL, "\"shm\""},
                                                {"kernel", FO_SIM_PROFILE_KEY_TEXT, true, 0, 0,
                                                 NULL, "\"onednn\""}};

/* The rate of a rank while all compute, which is how operations run. */
static fo_status read_peaks(const fo_sim_profile_reader *reader, const json_t *list)
{
    enum { PEAK_DTYPE, PEAK_THREADS, PEAK_AT_ONCE, PEAK_RATE };
    double most[2] = {0, 0};
    fo_status status = fo_sim_profile_is_list(reader, "peaks", list);
    for (size_t i = 0; status == FO_OK && i < json_array_size(list); i++) {
        char path[FO_SIM_PROFILE_PATH];
        double v[VALUES];
        snprintf(path, sizeof path, "peaks[%zu]", i);
        status = fo_sim_profile_row_read(reader, path, json_array_get(list, i), peak_keys,
                                         COUNT(peak_keys), v);
        int dtype = status == FO_OK ? (int)v[PEAK_DTYPE] : 0;
        if (status != FO_OK || v[PEAK_AT_ONCE] < most[dtype])
            continue;
        most[dtype] = v[PEAK_AT_ONCE];
        reader->machine->device.flops_per_s[dtype] = v[PEAK_RATE];
    }
    return status;
}

/* Large passes say what memory gives, small ones what caches do; of most ranks at once. */
static fo_status read_passes(const fo_sim_profile_reader *reader, const json_t *list)
{
    enum { PASS_NAME, PASS_ELEMENTS, PASS_BYTES, PASS_THREADS, PASS_AT_ONCE, PASS_TIME };
    double bytes[2] = {0, 0}, seconds[2] = {0, 0}, most = 0;
    fo_status status = fo_sim_profile_is_list(reader, "passes", list);
    for (size_t i = 0; status == FO_OK && i < json_array_size(list); i++) {
        char path[FO_SIM_PROFILE_PATH];
        double v[VALUES];
        snprintf(path, sizeof path, "passes[%zu]", i);
        status = fo_sim_profile_row_read(reader, path, json_array_get(list, i), pass_keys,
                                         COUNT(pass_keys), v);
        if (status != FO_OK || v[PASS_AT_ONCE] < most)
            continue;
        if (v[PASS_AT_ONCE] > most)
            bytes[0] = bytes[1] = seconds[0] = seconds[1] = 0;
        most = v[PASS_AT_ONCE];
        int large = v[PASS_ELEMENTS] > 1 << 20;
        bytes[large] += v[PASS_BYTES];
        seconds[large] += v[PASS_TIME];
    }
    reader->machine->device.epilogue_bytes_per_s = seconds[0] > 0 ? bytes[0] / seconds[0] : 0;
    reader->machine->device.memory_bytes_per_s = seconds[1] > 0 ? bytes[1] / seconds[1] : 0;
    return status;
}

/* One message, one way; copied ones in ascending sizes make the link's curve. */
typedef struct messages {
    double empty_s, best_s; /* of the empty one */
    double view_s, view_best_s;
    double bytes[FO_SIM_POINTS], seconds[FO_SIM_POINTS];
    int points;
} messages;

static void note_message(messages *m, double bytes, bool view, double time_s, double best_s)
{
    if (isnan(best_s) || best_s > time_s)
        best_s = time_s;
    if (view && bytes == 0) {
        m->view_s = time_s;
        m->view_best_s = best_s;
    } else if (!view && bytes == 0) {
        m->empty_s = time_s;
        m->best_s = best_s;
    } else if (!view && m->points < FO_SIM_POINTS &&
               (!m->points || bytes > m->bytes[m->points - 1])) {
        m->bytes[m->points] = bytes;
        m->seconds[m->points++] = time_s;
    }
}

static fo_status read_messages(const fo_sim_profile_reader *reader, const json_t *list, messages *m)
{
    enum { MESSAGE_BYTES, MESSAGE_PATTERN, MESSAGE_RECEIVE, MESSAGE_TIME, MESSAGE_BEST };
    fo_status status = fo_sim_profile_is_list(reader, "messages", list);
    for (size_t i = 0; status == FO_OK && i < json_array_size(list); i++) {
        char path[FO_SIM_PROFILE_PATH];
        double v[VALUES];
        snprintf(path, sizeof path, "messages[%zu]", i);
        status = fo_sim_profile_row_read(reader, path, json_array_get(list, i), message_keys,
                                         COUNT(message_keys), v);
        if (status == FO_OK && v[MESSAGE_PATTERN] == 0)
            note_message(m, v[MESSAGE_BYTES], v[MESSAGE_RECEIVE] == 1, v[MESSAGE_TIME],
                         v[MESSAGE_BEST]);
    }
    return status;
}

static fo_status read_tasks(const fo_sim_profile_reader *reader, const json_t *list, double *task_s)
{
    enum { TASK_OVERLAP, TASK_THREADS, TASK_AT_ONCE, TASK_TIME };
    fo_status status = fo_sim_profile_is_list(reader, "tasks", list);
    for (size_t i = 0; status == FO_OK && i < json_array_size(list); i++) {
        char path[FO_SIM_PROFILE_PATH];
        double v[VALUES];
        snprintf(path, sizeof path, "tasks[%zu]", i);
        status = fo_sim_profile_row_read(reader, path, json_array_get(list, i), task_keys,
                                         COUNT(task_keys), v);
        const char *overlap =
            json_string_value(json_object_get(json_array_get(list, i), "overlap"));
        if (status == FO_OK && (*task_s == 0 || !strcmp(overlap, "flash:4")))
            *task_s = v[TASK_TIME];
    }
    return status;
}

/* A reader in place takes the bytes where they lie: nothing but waking up takes time. Copying is done by the
 * processors of both ends, and is seen between tiles only. */
static void set_network(fo_sim_machine *machine, const messages *m, double rate)
{
    machine->views = m->view_s > 0;
    if (machine->views) {
        machine->message_s = m->view_best_s / 2;
        machine->wake_s = m->view_s - m->view_best_s;
        return;
    }
    fo_sim_link *link = &machine->network.link;
    link->bytes_per_s = rate;
    link->latency_s = m->empty_s;
    machine->cpu_s_per_byte = rate > 0 ? 0.5 / rate : 0;
    for (int p = 0; rate > 0 && p < m->points; p++) {
        double moving = m->seconds[p] - m->empty_s, efficiency = m->bytes[p] / moving / rate;
        if (!(moving > 0) || efficiency > 1)
            efficiency = 1;
        link->efficiency.x[p] = m->bytes[p];
        link->efficiency.y[p] = efficiency;
        link->efficiency.points = p + 1;
    }
}

static fo_status read_link(const fo_sim_profile_reader *reader, const json_t *link, double *rate)
{
    double v[VALUES];
    if (json_is_null(link))
        return FO_OK;
    fo_status status =
        fo_sim_profile_row_read(reader, "link", link, link_keys, COUNT(link_keys), v);
    *rate = status == FO_OK ? v[2] : 0;
    return status;
}

/* ---- version 1: the whole --------------------------------------------------------------------------- */

static const char head_known[] = "format, format_version, source, confidence, date, quick, "
                                 "machine, processor, group, peaks, link, "
                                 "gemm, wgrad, attention, passes, messages, tasks";

static fo_status check_head(const fo_sim_profile_reader *reader, const json_t *root)
{
    static const fo_sim_profile_key keys[] = {
        WORD("format", formats, "\"flashoverlap-machine-profile\""),
        WHOLE("format_version", 1, "1"),
        WORD("source", sources, "\"measured\""),
        WORD("confidence", confidences, "\"high\""),
        {"date", FO_SIM_PROFILE_KEY_TEXT, true, 0, 0, NULL, "\"2026-01-31T12:00:00Z\""},
        {"quick", FO_SIM_PROFILE_KEY_FLAG, true, 0, 0, NULL, "false"},
        {"processor", FO_SIM_PROFILE_KEY_TEXT, true, 0, 0, NULL, "\"AMD EPYC\""},
    };
    static const char *const parts[] = {"machine", "group",     "peaks",  "link",     "gemm",
                                        "wgrad",   "attention", "passes", "messages", "tasks"};
    const char *name;
    json_t *value, *plain = json_object();
    fo_status status = plain ? FO_OK : fo_base_error(FO_NO_MEMORY, "no memory for a profile");
    json_object_foreach((json_t *)(uintptr_t)root, name, value)
    {
        bool is_part = false, is_key = false;
        for (int p = 0; p < COUNT(parts); p++)
            is_part |= !strcmp(parts[p], name);
        for (int k = 0; k < COUNT(keys); k++)
            is_key |= !strcmp(keys[k].name, name);
        if (is_key && status == FO_OK)
            json_object_set(plain, name, value);
        if (!is_key && !is_part && status == FO_OK)
            status = fo_sim_profile_unknown(reader, name, head_known, "\"format_version\": 1");
    }
    for (int p = 0; status == FO_OK && p < COUNT(parts); p++)
        if (!json_object_get(root, parts[p]))
            status = fo_sim_profile_wrong(reader, parts[p], NULL, "what calibrate measured",
                                          p < 2 ? "{...}" : "[]");
    double v[VALUES];
    if (status == FO_OK)
        status = fo_sim_profile_row_read(reader, "", plain, keys, COUNT(keys), v);
    json_decref(plain);
    return status;
}

static fo_status read_group(const fo_sim_profile_reader *reader, const json_t *root)
{
    double v[VALUES];
    const json_t *group = json_object_get(root, "group");
    fo_sim_machine *machine = reader->machine;
    fo_status status =
        fo_sim_profile_row_read(reader, "group", group, group_keys, COUNT(group_keys), v);
    if (status == FO_OK && !json_is_object(json_object_get(root, "machine")))
        status = fo_sim_profile_wrong(reader, "machine", json_object_get(root, "machine"),
                                      "an object, as `flashoverlap info --json` prints it",
                                      "{\"cores\": 2}");
    if (status != FO_OK)
        return status;
    const char *kernel = json_string_value(json_object_get(group, "kernel"));
    bool emulated = !strcmp(kernel, "emulated");
    machine->device.by_tile = !emulated;
    machine->device.tile_rows = emulated ? 1024 : 64;
    machine->device.wgrad_rows = emulated ? 1024 : 256;
    machine->async = false;
    snprintf(machine->name, sizeof machine->name, "%.63s", reader->name);
    snprintf(machine->about, sizeof machine->about, "measured %.10s, %.48s, %d ranks, %.16s, %.16s",
             json_string_value(json_object_get(root, "date")),
             json_string_value(json_object_get(root, "processor")), (int)v[0], kernel,
             json_string_value(json_object_get(group, "transport")));
    fo_base_file_quotable(machine->name);
    fo_base_file_quotable(machine->about);
    return FO_OK;
}

fo_status fo_sim_profile_measured(const fo_sim_profile_reader *reader, const json_t *root)
{
    messages m = {0};
    double rate = 0, task_s = 0;
    fo_status status = check_head(reader, root);
    if (status == FO_OK)
        status = read_group(reader, root);
    if (status == FO_OK)
        status = read_peaks(reader, json_object_get(root, "peaks"));
    if (status == FO_OK)
        status = read_link(reader, json_object_get(root, "link"), &rate);
    for (int l = 0; status == FO_OK && l < 3; l++)
        status =
            fo_sim_profile_entries(reader, lists[l].name, json_object_get(root, lists[l].name));
    if (status == FO_OK)
        status = read_passes(reader, json_object_get(root, "passes"));
    if (status == FO_OK)
        status = read_messages(reader, json_object_get(root, "messages"), &m);
    if (status == FO_OK)
        status = read_tasks(reader, json_object_get(root, "tasks"), &task_s);
    if (status != FO_OK)
        return status;
    if (!(reader->machine->device.flops_per_s[FO_F32] > 0) &&
        !(reader->machine->device.flops_per_s[FO_BF16] > 0))
        return fo_sim_profile_wrong(reader, "peaks", json_object_get(root, "peaks"),
                                    "at least one rate of products",
                                    "[{\"dtype\": \"f32\", \"threads\": 1, \"ranks_at_once\": 1, "
                                    "\"flops_per_s\": 1e11}]");
    reader->machine->task_s = task_s;
    reader->machine->message_s = task_s;
    set_network(reader->machine, &m, rate);
    return FO_OK;
}
