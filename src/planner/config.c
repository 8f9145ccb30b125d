/* Sizes of a model from a Hugging Face config.json. Nothing is guessed: a field that is missing, mis-typed or
 * unknown is refused, because a mistyped name would otherwise leave a default in its place unseen. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "planner/model.h"
#include "sim/json_error.h"

enum { FILE_BYTES = 1 << 20 };
static const int64_t most_size =
    1000000000; /* of any field: products of three still fit a double's 53 bits or are
                                                taken as doubles */

/* ---- fields ------------------------------------------------------------------------------------------ */

typedef enum config_family { GPT2, LLAMA, FAMILIES } config_family;

/* Model types of a family. */
static const struct {
    const char *type;
    config_family family;
    bool biases; /* where attention_bias is not said */
} types[] = {{"gpt2", GPT2, true},
             {"llama", LLAMA, false},
             {"mistral", LLAMA, false},
             {"qwen2", LLAMA, true},
             {"qwen3", LLAMA, false}};
enum { TYPES = sizeof types / sizeof *types };

/* What is read: where it goes, what happens when it is not there. */
typedef struct field {
    const char *name, *example;
    size_t offset; /* of an int64_t of fo_model_sizes */
    bool optional; /* missing or null: computed from the others */
} field;

#define AT(member) offsetof(fo_model_sizes, member)
static const field gpt2_fields[] = {{"n_layer", "12", AT(layers), false},
                                    {"n_embd", "768", AT(dim), false},
                                    {"n_head", "12", AT(heads), false},
                                    {"n_inner", "3072", AT(ffn), true},
                                    {"vocab_size", "50257", AT(vocabulary), false},
                                    {"n_positions", "1024", AT(context), false},
                                    {NULL, NULL, 0, false}};
static const field llama_fields[] = {{"num_hidden_layers", "32", AT(layers), false},
                                     {"hidden_size", "4096", AT(dim), false},
                                     {"num_attention_heads", "32", AT(heads), false},
                                     {"num_key_value_heads", "8", AT(kv_heads), true},
                                     {"head_dim", "128", AT(head_dim), true},
                                     {"intermediate_size", "14336", AT(ffn), false},
                                     {"vocab_size", "128256", AT(vocabulary), false},
                                     {"max_position_embeddings", "8192", AT(context), false},
                                     {NULL, NULL, 0, false}};
#undef AT
static const field *const fields[FAMILIES] = {[GPT2] = gpt2_fields, [LLAMA] = llama_fields};

/* Read elsewhere in this file. */
static const char *const switches[] = {"model_type", "tie_word_embeddings", "attention_bias",
                                       "_name_or_path"};

/* Fields that such files have and that no size follows from. */
static const char *const ignored[] = {"activation_function",
                                      "add_cross_attention",
                                      "architectures",
                                      "attention_dropout",
                                      "attn_pdrop",
                                      "auto_map",
                                      "bad_words_ids",
                                      "begin_suppress_tokens",
                                      "bos_token_id",
                                      "chunk_size_feed_forward",
                                      "cross_attention_hidden_size",
                                      "decoder_start_token_id",
                                      "diversity_penalty",
                                      "do_sample",
                                      "dtype",
                                      "early_stopping",
                                      "embd_pdrop",
                                      "encoder_no_repeat_ngram_size",
                                      "eos_token_id",
                                      "exponential_decay_length_penalty",
                                      "finetuning_task",
                                      "forced_bos_token_id",
                                      "forced_eos_token_id",
                                      "hidden_act",
                                      "id2label",
                                      "initializer_range",
                                      "is_decoder",
                                      "is_encoder_decoder",
                                      "label2id",
                                      "layer_norm_epsilon",
                                      "layer_types",
                                      "length_penalty",
                                      "max_length",
                                      "max_window_layers",
                                      "min_length",
                                      "mlp_bias",
                                      "n_ctx",
                                      "no_repeat_ngram_size",
                                      "num_beam_groups",
                                      "num_beams",
                                      "num_return_sequences",
                                      "output_attentions",
                                      "output_hidden_states",
                                      "output_past",
                                      "output_scores",
                                      "pad_token_id",
                                      "prefix",
                                      "pretraining_tp",
                                      "problem_type",
                                      "pruned_heads",
                                      "quantization_config",
                                      "remove_invalid_values",
                                      "reorder_and_upcast_attn",
                                      "repetition_penalty",
                                      "resid_pdrop",
                                      "return_dict",
                                      "return_dict_in_generate",
                                      "rms_norm_eps",
                                      "rope_parameters",
                                      "rope_scaling",
                                      "rope_theta",
                                      "scale_attn_by_inverse_layer_idx",
                                      "scale_attn_weights",
                                      "sep_token_id",
                                      "sliding_window",
                                      "summary_activation",
                                      "summary_first_dropout",
                                      "summary_proj_to_labels",
                                      "summary_type",
                                      "summary_use_proj",
                                      "suppress_tokens",
                                      "task_specific_params",
                                      "temperature",
                                      "tf_legacy_loss",
                                      "tie_encoder_decoder",
                                      "tokenizer_class",
                                      "top_k",
                                      "top_p",
                                      "torch_dtype",
                                      "torchscript",
                                      "transformers_version",
                                      "typical_p",
                                      "use_bfloat16",
                                      "use_cache",
                                      "use_mrope",
                                      "use_sliding_window"};

#define COUNT(list) (sizeof(list) / sizeof *(list))

static bool among(const char *name, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(name, list[i]) == 0)
            return true;
    return false;
}

/* Letters that two names share at their beginning and at their end: enough to find what was meant. */
static size_t likeness(const char *a, const char *b)
{
    size_t front = 0, back = 0, la = strlen(a), lb = strlen(b);
    size_t most = la < lb ? la : lb;
    while (front < most && a[front] == b[front])
        front++;
    while (back < most - front && a[la - 1 - back] == b[lb - 1 - back])
        back++;
    return front + back;
}

static fo_status unknown_name(const char *path, const char *name, const char *nearest)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "%.60s", name);
    return fo_base_error(FO_INVALID,
                         "%s: field '%s' is unknown, expected those of a config.json of this model "
                         "type (the nearest is '%s'); correct or remove it",
                         path, fo_base_file_quotable(quoted), nearest);
}

static fo_status check_names(const char *path, const json_t *root, config_family family)
{
    for (void *at = json_object_iter((json_t *)(uintptr_t)root); at;
         at = json_object_iter_next((json_t *)(uintptr_t)root, at)) {
        const char *name = json_object_iter_key(at), *nearest = fields[family][0].name;
        bool known = among(name, switches, COUNT(switches)) || among(name, ignored, COUNT(ignored));
        for (const field *f = fields[family]; f->name && !known; f++) {
            known = strcmp(name, f->name) == 0;
            if (likeness(name, f->name) > likeness(name, nearest))
                nearest = f->name;
        }
        if (!known)
            return unknown_name(path, name, nearest);
    }
    return FO_OK;
}

/* ---- values ------------------------------------------------------------------------------------------ */

static const char *type_name(const json_t *value)
{
    static const char *const names[] = {[JSON_OBJECT] = "an object",
                                        [JSON_ARRAY] = "a list",
                                        [JSON_STRING] = "a text",
                                        [JSON_INTEGER] = "a whole number",
                                        [JSON_REAL] = "a number with a fraction",
                                        [JSON_TRUE] = "true",
                                        [JSON_FALSE] = "false",
                                        [JSON_NULL] = "null"};
    return value ? names[json_typeof(value)] : "missing";
}

static fo_status read_number(const char *path, const json_t *root, const field *f,
                             fo_model_sizes *model)
{
    const json_t *value = json_object_get(root, f->name);
    int64_t *to = (int64_t *)(void *)((char *)model + f->offset);
    if (f->optional && (!value || json_is_null(value)))
        return FO_OK;
    if (!value)
        return fo_base_error(FO_INVALID, "%s: field '%s' is missing, expected e.g. \"%s\": %s",
                             path, f->name, f->name, f->example);
    if (!json_is_integer(value))
        return fo_base_error(FO_INVALID,
                             "%s: field '%s' is %s, expected a whole number, e.g. \"%s\": %s", path,
                             f->name, type_name(value), f->name, f->example);
    if (json_integer_value(value) < 1 || json_integer_value(value) > most_size)
        return fo_base_error(FO_INVALID,
                             "%s: field '%s' is %lld, expected 1 to %lld, e.g. \"%s\": %s", path,
                             f->name, (long long)json_integer_value(value), (long long)most_size,
                             f->name, f->example);
    *to = json_integer_value(value);
    return FO_OK;
}

static fo_status read_switch(const char *path, const json_t *root, const char *name, bool *to)
{
    const json_t *value = json_object_get(root, name);
    if (!value || json_is_null(value))
        return FO_OK;
    if (!json_is_boolean(value))
        return fo_base_error(FO_INVALID, "%s: field '%s' is %s, expected e.g. \"%s\": false", path,
                             name, type_name(value), name);
    *to = json_is_true(value);
    return FO_OK;
}

static fo_status read_type(const char *path, const json_t *root, int *type)
{
    const json_t *value = json_object_get(root, "model_type");
    if (!json_is_string(value))
        return fo_base_error(
            FO_INVALID, "%s: field 'model_type' is %s, expected e.g. \"model_type\": \"llama\"",
            path, type_name(value));
    for (*type = 0; *type < TYPES; ++*type)
        if (strcmp(json_string_value(value), types[*type].type) == 0)
            return FO_OK;
    char quoted[64];
    snprintf(quoted, sizeof quoted, "%.40s", json_string_value(value));
    return fo_base_error(FO_INVALID,
                         "%s: field 'model_type' is '%s', expected gpt2, llama, mistral, qwen2 or "
                         "qwen3, e.g. \"model_type\": \"llama\"",
                         path, fo_base_file_quotable(quoted));
}

/* For reports: printable, and not longer than there is room for. */
static void name_model(const char *path, const json_t *root, fo_model_sizes *model)
{
    const json_t *value = json_object_get(root, "_name_or_path");
    const char *name = json_is_string(value) ? json_string_value(value) : "";
    name = *name ? name : path;
    size_t length = strlen(name), room = sizeof model->name - 1;
    name += length > room ? length - room : 0;
    strcpy(model->name, name);
    for (char *c = model->name; *c; c++)
        if (*c < ' ' || *c > '~' || *c == '"' || *c == '\\')
            *c = '?';
}

static fo_status complete(const char *path, config_family family, fo_model_sizes *model)
{
    const char *dim = family == GPT2 ? "n_embd" : "hidden_size";
    const char *heads = family == GPT2 ? "n_head" : "num_attention_heads";
    if (!model->head_dim && model->dim % model->heads)
        return fo_base_error(
            FO_INVALID,
            "%s: field '%s' is %lld and '%s' is %lld, expected heads that divide it, "
            "e.g. \"%s\": %lld",
            path, dim, (long long)model->dim, heads, (long long)model->heads, dim,
            (long long)(model->dim / model->heads + 1) * model->heads);
    if (!model->head_dim)
        model->head_dim = model->dim / model->heads;
    if (!model->kv_heads)
        model->kv_heads = model->heads;
    if (!model->ffn)
        model->ffn = 4 * model->dim;
    if (model->heads % model->kv_heads)
        return fo_base_error(FO_INVALID,
                             "%s: field 'num_key_value_heads' is %lld, expected a divisor of "
                             "num_attention_heads, which is %lld, e.g. \"num_key_value_heads\": 1",
                             path, (long long)model->kv_heads, (long long)model->heads);
    return FO_OK;
}

static fo_status read_root(const char *path, const json_t *root, fo_model_sizes *model)
{
    int type = 0;
    if (!json_is_object(root))
        return fo_base_error(
            FO_INVALID,
            "%s: the file holds %s, expected an object, e.g. {\"model_type\": \"llama\", ...}",
            path, type_name(root));
    fo_status status = read_type(path, root, &type);
    if (status == FO_OK)
        status = check_names(path, root, types[type].family);
    if (status != FO_OK)
        return status;
    memset(model, 0, sizeof *model);
    model->gated = types[type].family != GPT2;
    model->positions = model->tied = types[type].family == GPT2;
    model->biases = types[type].biases;
    for (const field *f = fields[types[type].family]; f->name && status == FO_OK; f++)
        status = read_number(path, root, f, model);
    if (status == FO_OK)
        status = read_switch(path, root, "tie_word_embeddings", &model->tied);
    if (status == FO_OK)
        status = read_switch(path, root, "attention_bias", &model->biases);
    if (status == FO_OK)
        status = complete(path, types[type].family, model);
    name_model(path, root, model);
    return status;
}

fo_status fo_planner_config_parse(const char *name, const char *text, size_t bytes,
                                  fo_model_sizes *model)
{
    json_error_t error;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    fo_status status = root ? read_root(name, root, model)
                            : fo_sim_json_error(name, text, bytes, &error,
                                                "{\"model_type\": \"gpt2\", \"n_layer\": 12, ...}, "
                                                "the config.json of a Hugging Face model");
    json_decref(root);
    return status;
}

fo_status fo_planner_config_read(const char *path, fo_model_sizes *model)
{
    char *text;
    size_t bytes;
    fo_status status = fo_base_file_read("model", path, FILE_BYTES,
                                         "the config.json of a Hugging Face model", &text, &bytes);
    if (status == FO_OK)
        status = fo_planner_config_parse(path, text, bytes, model);
    free(text);
    return status;
}
