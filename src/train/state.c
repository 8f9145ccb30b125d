/* config.json of a checkpoint: the keys Hugging Face's GPT-2 has, and under "flashoverlap" what going on
 * exactly needs besides. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "train/train.h"

static const char file_name[] = "config.json";
static const char own_key[] = "flashoverlap";

void fo_train_state_clear(fo_train_state *state)
{
    free(state->characters);
    *state = (fo_train_state){0};
}

/* ---- writing --------------------------------------------------------------------------------------- */

static json_t *pack_own(const fo_train_state *state)
{
    return json_pack("{s:I, s:I, s:s, s:s?, s:s, s:s, s:f}", "step", (json_int_t)state->step,
                     "seed", (json_int_t)state->model.seed, "format",
                     fo_data_format_name(state->format), "characters", state->characters, "dtype",
                     fo_dtype_name(state->model.dtype), "wire", fo_dtype_name(state->model.wire),
                     "dropout", (double)state->model.dropout);
}

static json_t *pack(const fo_train_state *state)
{
    const fo_model_config *m = &state->model;
    double dropout = m->dropout;
    json_t *own = pack_own(state);
    if (!own)
        return NULL;
    return json_pack("{s:s, s:[s], s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, "
                     "s:b, s:s, s:n, s:n, "
                     "s:o}",
                     "model_type", "gpt2", "architectures", "GPT2LMHeadModel",
                     "activation_function", "gelu_new", "n_layer", (json_int_t)m->layers, "n_head",
                     (json_int_t)m->heads, "n_embd", (json_int_t)m->dim, "n_positions",
                     (json_int_t)m->context, "n_ctx", (json_int_t)m->context, "vocab_size",
                     (json_int_t)m->vocabulary, "layer_norm_epsilon", 1e-5, "initializer_range",
                     0.02, "resid_pdrop", dropout, "embd_pdrop", dropout, "attn_pdrop", dropout,
                     "tie_word_embeddings", 1, "torch_dtype", "float32", "bos_token_id",
                     "eos_token_id", own_key, own);
}

static fo_status path_of(const char *folder, char *path, size_t size)
{
    int length = snprintf(path, size, "%s/%s", folder, file_name);
    if (length < 0 || (size_t)length >= size)
        return fo_base_error(FO_INVALID, "the path %.80s... has more than %zu bytes", folder,
                             size - 1);
    return FO_OK;
}

fo_status fo_train_state_write(const char *folder, const fo_train_state *state)
{
    char path[FO_TRAIN_PATH];
    fo_status status = path_of(folder, path, sizeof path);
    if (status != FO_OK)
        return status;
    json_t *json = pack(state);
    char *text = json ? json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : NULL;
    if (text)
        status = fo_checkpoint_write_text(path, text);
    else
        status = fo_base_error(FO_NO_MEMORY, "%s: no memory for its text", path);
    free(text);
    json_decref(json);
    return status;
}

/* ---- reading --------------------------------------------------------------------------------------- */

/* A reader keeps the first failure; later calls do nothing. */
typedef struct reader {
    const char *path;
    fo_status status;
} reader;

static void wrong(reader *r, const char *key, const char *expected)
{
    if (r->status == FO_OK)
        r->status = fo_base_error(FO_FORMAT,
                                  "%s: \"%s\" is missing or not %s; was it written by this "
                                  "program?",
                                  r->path, key, expected);
}

static int64_t get_integer(reader *r, const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value))
        wrong(r, key, "an integer");
    return json_integer_value(value);
}

static int64_t get_size(reader *r, const json_t *object, const char *key)
{
    int64_t value = get_integer(r, object, key);
    if (value < 1)
        wrong(r, key, "1 or more");
    return value;
}

static const char *get_text(reader *r, const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value))
        wrong(r, key, "a text");
    return json_is_string(value) ? json_string_value(value) : "";
}

static fo_dtype get_dtype(reader *r, const json_t *object, const char *key)
{
    const char *text = get_text(r, object, key);
    if (strcmp(text, fo_dtype_name(FO_F32)) && strcmp(text, fo_dtype_name(FO_BF16)))
        wrong(r, key, "\"f32\" or \"bf16\"");
    return strcmp(text, fo_dtype_name(FO_BF16)) ? FO_F32 : FO_BF16;
}

static void get_characters(reader *r, const json_t *own, fo_train_state *state)
{
    const json_t *value = json_object_get(own, "characters");
    if (state->format != FO_DATA_CHAR || r->status != FO_OK)
        return;
    if (!json_is_string(value)) {
        wrong(r, "characters", "a text");
        return;
    }
    state->characters = strdup(json_string_value(value));
    if (!state->characters)
        r->status = fo_base_error(FO_NO_MEMORY, "%s: no memory for its vocabulary", r->path);
}

static void get_all(reader *r, const json_t *json, fo_train_state *state)
{
    const json_t *own = json_object_get(json, own_key);
    fo_model_config *m = &state->model;
    if (!json_is_object(own)) {
        wrong(r, own_key, "an object");
        return;
    }
    m->layers = get_size(r, json, "n_layer");
    m->heads = get_size(r, json, "n_head");
    m->dim = get_size(r, json, "n_embd");
    m->context = get_size(r, json, "n_positions");
    m->vocabulary = get_size(r, json, "vocab_size");
    m->dtype = get_dtype(r, own, "dtype");
    m->wire = get_dtype(r, own, "wire");
    m->dropout = (float)json_number_value(json_object_get(own, "dropout"));
    m->seed = (uint64_t)get_integer(r, own, "seed");
    state->step = get_integer(r, own, "step");
    if (state->step < 0)
        wrong(r, "step", "0 or more");
    const char *format = get_text(r, own, "format");
    if (r->status == FO_OK && fo_data_format_parse(format, &state->format) != FO_OK)
        wrong(r, "format", "a known data format");
    get_characters(r, own, state);
}

fo_status fo_train_state_read(const char *folder, fo_train_state *state)
{
    char path[FO_TRAIN_PATH], *text = NULL;
    *state = (fo_train_state){0};
    fo_status status = path_of(folder, path, sizeof path);
    if (status == FO_OK)
        status = fo_checkpoint_read_text(path, &text);
    if (status != FO_OK)
        return status;
    json_error_t error;
    json_t *json = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    reader r = {.path = path};
    if (!json_is_object(json))
        r.status = fo_base_error(FO_FORMAT, "%s: expected a JSON object, found at line %d: %s",
                                 path, error.line, json ? "something else" : error.text);
    else
        get_all(&r, json, state);
    json_decref(json);
    free(text);
    if (r.status != FO_OK)
        fo_train_state_clear(state);
    return r.status;
}
