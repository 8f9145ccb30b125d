/* Plan files: what `flashoverlap plan` chose, for `train --plan` and the library. Read strictly: a file that was
 * edited by hand must not be misunderstood. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fields.h"
#include "base/file.h"
#include "flashoverlap/schedule.h"
#include "flashoverlap/search.h"
#include "sim/json_error.h"
#include "trace/out.h"

enum { FILE_BYTES = 1 << 20, MOST = 1000000000 };

static const char format[] = "flashoverlap-plan";
static const char *const recomputes[] = {"none", "selective", "full", NULL};
static const char *const dtypes[] = {"f32", "bf16", NULL};
static const char *const fields[] = {"format",
                                     "format_version",
                                     "model",
                                     "layers",
                                     "dim",
                                     "heads",
                                     "machine",
                                     "ranks",
                                     "tp",
                                     "dp",
                                     "pp",
                                     "interleave",
                                     "batch",
                                     "micro_batch",
                                     "context",
                                     "dtype",
                                     "wire",
                                     "step_s",
                                     "recompute",
                                     "sequence_parallel",
                                     "flash_attention",
                                     "operations",
                                     NULL};
static const char *const operation_fields[] = {"name", "overlap", "predicted_s", NULL};
static const char written[] = "a file that `flashoverlap plan --out` wrote";
static const char an_operation[] =
    "{\"name\": \"qkv forward\", \"overlap\": \"flash\", \"predicted_s\": 0.001}";
static const char operations_list[] =
    "[{\"name\": \"qkv forward\", \"overlap\": \"flash\", \"predicted_s\": 0.001}]";

void fo_plan_file_make(const fo_search_candidate *candidate, fo_plan_file *file)
{
    fo_strategy strategy;
    const fo_step_options *step = &candidate->step;
    const fo_step_report *report = &candidate->report;
    memset(file, 0, sizeof *file);
    snprintf(file->model, sizeof file->model, "%s", step->model.name);
    snprintf(file->machine, sizeof file->machine, "%s", report->machine);
    file->layers = step->model.layers;
    file->dim = step->model.dim;
    file->heads = step->model.heads;
    file->ranks = step->tp * step->dp * step->pp;
    file->tp = step->tp;
    file->dp = step->dp;
    file->pp = step->pp;
    file->interleave = step->interleave;
    file->batch = step->batch;
    file->micro_batch = step->micro_batch;
    file->context = step->context ? step->context : step->model.context;
    file->recompute = step->recompute;
    file->sequence_parallel = step->sequence_parallel;
    file->flash_attention = step->flash_attention;
    file->dtype = step->dtype;
    file->wire = step->wire;
    file->step_s = report->step_s;
    for (int i = 0; i < report->row_count && file->operation_count < FO_PLAN_FILE_OPERATIONS; i++) {
        const fo_step_row *row = &report->rows[i];
        if (!row->overlap[0] || fo_strategy_parse(row->overlap, &strategy) != FO_OK)
            continue; /* a pass, or what is not an operation of a layer */
        int at = file->operation_count++;
        memcpy(file->operations[at].name, row->name, sizeof row->name);
        memcpy(file->operations[at].overlap, row->overlap, sizeof row->overlap);
        file->operations[at].predicted_s = row->total_s;
    }
    fo_base_error_clear();
}

const char *fo_plan_file_overlap(const fo_plan_file *file, const char *operation)
{
    for (int i = 0; i < file->operation_count; i++)
        if (strcmp(file->operations[i].name, operation) == 0)
            return file->operations[i].overlap;
    return NULL;
}

/* ---- writing ------------------------------------------------------------------------------------------- */

static void put(const fo_plan_file *file, FILE *out)
{
    fo_base_fields p = {.out = out, .form = FO_BASE_JSON};
    fputc('{', out);
    fo_base_field_text(&p, "format", format);
    fo_base_field_count(&p, "format_version", 1);
    fo_base_field_text(&p, "model", file->model);
    fo_base_field_count(&p, "layers", (double)file->layers);
    fo_base_field_count(&p, "dim", (double)file->dim);
    fo_base_field_count(&p, "heads", (double)file->heads);
    fo_base_field_text(&p, "machine", file->machine);
    fo_base_field_count(&p, "ranks", file->ranks);
    fo_base_field_count(&p, "tp", file->tp);
    fo_base_field_count(&p, "dp", file->dp);
    fo_base_field_count(&p, "pp", file->pp);
    fo_base_field_count(&p, "interleave", file->interleave);
    fo_base_field_count(&p, "batch", (double)file->batch);
    fo_base_field_count(&p, "micro_batch", (double)file->micro_batch);
    fo_base_field_count(&p, "context", (double)file->context);
    fo_base_field_text(&p, "recompute", recomputes[file->recompute]);
    fo_base_field_truth(&p, "sequence_parallel", file->sequence_parallel);
    fo_base_field_truth(&p, "flash_attention", file->flash_attention);
    fo_base_field_text(&p, "dtype", fo_dtype_name(file->dtype));
    fo_base_field_text(&p, "wire", fo_dtype_name(file->wire));
    fo_base_field_real(&p, "step_s", file->step_s);
    fputs(",\n \"operations\": [", out);
    for (int i = 0; i < file->operation_count; i++) {
        fo_base_fields row = {.out = out, .form = FO_BASE_JSON};
        fputs(i ? ",\n  {" : "\n  {", out);
        fo_base_field_text(&row, "name", file->operations[i].name);
        fo_base_field_text(&row, "overlap", file->operations[i].overlap);
        fo_base_field_real(&row, "predicted_s", file->operations[i].predicted_s);
        fputc('}', out);
    }
    fputs("]}\n", out);
}

fo_status fo_plan_file_write(const fo_plan_file *file, const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);
    if (memory)
        put(file, memory);
    if (!memory || fclose(memory) != 0) {
        free(text);
        return fo_base_error(FO_NO_MEMORY, "no memory for the plan %s", path);
    }
    fo_trace_out *out = NULL;
    fo_status status = fo_trace_out_open(path, &out);
    if (status == FO_OK) {
        fo_trace_put_bytes(out, text, bytes);
        status = fo_trace_out_commit(out);
    }
    free(text);
    return status;
}

/* ---- reading ------------------------------------------------------------------------------------------- */

typedef struct reader {
    const char *name; /* of the file */
    fo_status status;
} reader;

/* The first sentence is the one that counts. */
static void refuse(reader *r, const char *path, const char *found, const char *example)
{
    char where[160], what[160];
    if (r->status != FO_OK)
        return;
    snprintf(where, sizeof where, "%s", path);
    snprintf(what, sizeof what, "%s", found);
    r->status = fo_base_error(FO_INVALID, "%s: %s %s, expected e.g. %s", r->name,
                              fo_base_file_quotable(where), fo_base_file_quotable(what), example);
}

static void refuse_unknown(reader *r, const char *path, const char *const *known)
{
    char what[160], names[400] = "";
    size_t used = 0;
    for (int i = 0; known[i] && used < sizeof names; i++)
        used +=
            (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", known[i]);
    snprintf(what, sizeof what, "%s", path);
    if (r->status == FO_OK)
        r->status = fo_base_error(FO_INVALID, "%s: %s is unknown, expected one of %s, as in %s",
                                  r->name, fo_base_file_quotable(what), names, written);
}

static const char *type_name(const json_t *value)
{
    static const char *const names[] = {"is an object",      "is a list",   "is a text",
                                        "is a whole number", "is a number", "is true",
                                        "is false",          "is null"};
    return value ? names[json_typeof(value)] : "is missing";
}

static void check_fields(reader *r, const json_t *object, const char *path,
                         const char *const *known)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        int i = 0;
        char where[160];
        while (known[i] && strcmp(known[i], key) != 0)
            i++;
        snprintf(where, sizeof where, "%s%.100s", path, key);
        if (!known[i])
            refuse_unknown(r, where, known);
    }
}

static const char *text(reader *r, const json_t *object, const char *path, const char *key,
                        size_t size, const char *example)
{
    const json_t *value = json_object_get(object, key);
    char where[160];
    snprintf(where, sizeof where, "%s%s", path, key);
    if (!json_is_string(value)) {
        refuse(r, where, type_name(value), example);
        return "";
    }
    const char *found = json_string_value(value);
    if (!*found)
        refuse(r, where, "is empty", example);
    if (strlen(found) >= size)
        refuse(r, where, "is too long", example);
    for (const char *at = found; *at; at++)
        if ((unsigned char)*at < ' ')
            refuse(r, where, "has a control character", example);
    return found;
}

static int word(reader *r, const json_t *object, const char *key, const char *const *words,
                const char *example)
{
    const char *found = text(r, object, "", key, SIZE_MAX, example);
    for (int i = 0; words[i]; i++)
        if (strcmp(words[i], found) == 0)
            return i;
    char what[80];
    snprintf(what, sizeof what, "is \"%.60s\"", found);
    refuse(r, key, what, example);
    return 0;
}

static int64_t count(reader *r, const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    int64_t found = json_integer_value(value);
    char what[64];
    if (!json_is_integer(value)) {
        refuse(r, key, type_name(value), "1");
        return 1;
    }
    snprintf(what, sizeof what, "is %lld, not 1 to %d", (long long)found, MOST);
    if (found < 1 || found > MOST)
        refuse(r, key, what, "1");
    return found;
}

static bool truth(reader *r, const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_boolean(value))
        refuse(r, key, type_name(value), "true");
    return json_is_true(value);
}

static double seconds(reader *r, const json_t *object, const char *path, const char *key)
{
    const json_t *value = json_object_get(object, key);
    char where[160], what[48];
    snprintf(where, sizeof where, "%s%s", path, key);
    if (!json_is_number(value)) {
        refuse(r, where, type_name(value), "0.25");
        return 0;
    }
    snprintf(what, sizeof what, "is %g", json_number_value(value));
    if (!(json_number_value(value) >= 0 && json_number_value(value) < 1e9))
        refuse(r, where, what, "0.25");
    return json_number_value(value);
}

static void read_operation(reader *r, const json_t *object, fo_plan_file *file, int i)
{
    char path[48];
    fo_strategy strategy;
    snprintf(path, sizeof path, "operations[%d].", i);
    if (!json_is_object(object)) {
        path[strlen(path) - 1] = 0;
        refuse(r, path, type_name(object), an_operation);
        return;
    }
    check_fields(r, object, path, operation_fields);
    const char *name =
        text(r, object, path, "name", sizeof file->operations[i].name, "\"qkv forward\"");
    const char *overlap =
        text(r, object, path, "overlap", sizeof file->operations[i].overlap, "\"flash\"");
    double predicted = seconds(r, object, path, "predicted_s");
    if (r->status != FO_OK)
        return;
    if (fo_strategy_parse(overlap, &strategy) != FO_OK) {
        char where[80], what[120];
        snprintf(where, sizeof where, "%soverlap", path);
        snprintf(what, sizeof what, "is \"%.60s\", which is no strategy", overlap);
        refuse(r, where, what, "\"flash\"");
        return;
    }
    if (fo_plan_file_overlap(file, name)) {
        char where[80];
        snprintf(where, sizeof where, "%sname", path);
        refuse(r, where, "names an operation again", "every operation once");
    }
    snprintf(file->operations[i].name, sizeof file->operations[i].name, "%s", name);
    snprintf(file->operations[i].overlap, sizeof file->operations[i].overlap, "%s", overlap);
    file->operations[i].predicted_s = predicted;
    file->operation_count = i + 1;
}

static void read_operations(reader *r, const json_t *root, fo_plan_file *file)
{
    const json_t *list = json_object_get(root, "operations");
    if (!json_is_array(list)) {
        refuse(r, "operations", type_name(list), operations_list);
        return;
    }
    if (!json_array_size(list))
        refuse(r, "operations", "is an empty list", operations_list);
    if (json_array_size(list) > FO_PLAN_FILE_OPERATIONS)
        refuse(r, "operations", "has too many entries", "at most 32");
    for (int i = 0; r->status == FO_OK && i < (int)json_array_size(list); i++)
        read_operation(r, json_array_get(list, (size_t)i), file, i);
}

static void check_ranks(reader *r, const fo_plan_file *file)
{
    char what[120];
    double product = (double)file->tp * file->dp * file->pp;
    snprintf(what, sizeof what, "is %d, but tp %d x dp %d x pp %d are %.0f", file->ranks, file->tp,
             file->dp, file->pp, product);
    if (product != file->ranks)
        refuse(r, "ranks", what, "their product");
}

static void check_batch(reader *r, const fo_plan_file *file)
{
    char what[120];
    int64_t at_once = file->dp * file->micro_batch; /* below 2^63: counts are below 2^30 */
    snprintf(what, sizeof what, "is %lld, which dp %d x micro_batch %lld does not divide",
             (long long)file->batch, file->dp, (long long)file->micro_batch);
    if (r->status == FO_OK && file->batch % at_once)
        refuse(r, "batch", what, "a multiple of it");
}

static fo_status read_root(const char *name, const json_t *root, fo_plan_file *out)
{
    reader r = {.name = name};
    fo_plan_file file = {.ranks = 0};
    const char *const formats[] = {format, NULL};
    if (!json_is_object(root)) {
        refuse(&r, "the file", type_name(root), "{\"format\": \"flashoverlap-plan\", ...}");
        return r.status;
    }
    word(&r, root, "format", formats, "\"flashoverlap-plan\"");
    if (count(&r, root, "format_version") != 1)
        refuse(&r, "format_version", "is of another version of this program", "1");
    check_fields(&r, root, "", fields);
    snprintf(file.model, sizeof file.model, "%s",
             text(&r, root, "", "model", sizeof file.model, "\"gpt2\""));
    snprintf(file.machine, sizeof file.machine, "%s",
             text(&r, root, "", "machine", sizeof file.machine, "\"h100-sxm\""));
    file.layers = count(&r, root, "layers");
    file.dim = count(&r, root, "dim");
    file.heads = count(&r, root, "heads");
    file.ranks = (int)count(&r, root, "ranks");
    file.tp = (int)count(&r, root, "tp");
    file.dp = (int)count(&r, root, "dp");
    file.pp = (int)count(&r, root, "pp");
    file.interleave = (int)count(&r, root, "interleave");
    file.batch = count(&r, root, "batch");
    file.micro_batch = count(&r, root, "micro_batch");
    file.context = count(&r, root, "context");
    file.recompute = (fo_recompute)word(&r, root, "recompute", recomputes, "\"none\"");
    file.sequence_parallel = truth(&r, root, "sequence_parallel");
    file.flash_attention = truth(&r, root, "flash_attention");
    file.dtype = (fo_dtype)word(&r, root, "dtype", dtypes, "\"bf16\"");
    file.wire = (fo_dtype)word(&r, root, "wire", dtypes, "\"bf16\"");
    file.step_s = seconds(&r, root, "", "step_s");
    check_ranks(&r, &file);
    check_batch(&r, &file);
    read_operations(&r, root, &file);
    if (r.status == FO_OK)
        *out = file;
    return r.status;
}

fo_status fo_plan_file_parse(const char *name, const char *bytes_text, size_t bytes,
                             fo_plan_file *file)
{
    json_error_t error;
    json_t *root = json_loadb(bytes_text, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    fo_status status = root ? read_root(name, root, file)
                            : fo_sim_json_error(name, bytes_text, bytes, &error,
                                                "{\"format\": \"flashoverlap-plan\", ...}, a file "
                                                "that `flashoverlap plan --out` wrote");
    json_decref(root);
    return status;
}

fo_status fo_plan_file_read(const char *path, fo_plan_file *file)
{
    char *text;
    size_t bytes;
    fo_status status = fo_base_file_read("plan", path, FILE_BYTES, written, &text, &bytes);
    if (status == FO_OK)
        status = fo_plan_file_parse(path, text, bytes, file);
    free(text);
    return status;
}
