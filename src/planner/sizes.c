/* Models by name or file; counting their parameters. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "planner/model.h"

/* ---- parameters -------------------------------------------------------------------------------------- */

static double queries(const fo_model_sizes *m)
{
    return (double)m->heads * (double)m->head_dim;
}

static double keys(const fo_model_sizes *m)
{
    return (double)m->kv_heads * (double)m->head_dim;
}

double fo_planner_layer_weights(const fo_model_sizes *m)
{
    double dim = (double)m->dim, mlp = (m->gated ? 3.0 : 2.0) * dim * (double)m->ffn;
    return dim * (2 * queries(m) + 2 * keys(m)) + mlp;
}

/* Models with a gated MLP normalise by the root mean square, which has a scale and no shift, and have biases, if
 * any, on queries, keys and values alone; the others have both everywhere. */
double fo_planner_layer_parameters(const fo_model_sizes *m)
{
    double dim = (double)m->dim, norms = (m->gated ? 2.0 : 4.0) * dim, biases = 0;
    if (m->biases)
        biases = queries(m) + 2 * keys(m) + (m->gated ? 0 : 2 * dim + (double)m->ffn);
    return fo_planner_layer_weights(m) + norms + biases;
}

double fo_model_sizes_embedding_parameters(const fo_model_sizes *model)
{
    double table = (double)model->vocabulary * (double)model->dim;
    double positions = model->positions ? (double)model->context * (double)model->dim : 0;
    return (model->tied ? 1 : 2) * table + positions;
}

double fo_model_sizes_parameters(const fo_model_sizes *m)
{
    double last_norm = (m->gated ? 1.0 : 2.0) * (double)m->dim;
    return (double)m->layers * fo_planner_layer_parameters(m) + last_norm +
           fo_model_sizes_embedding_parameters(m);
}

double fo_planner_multiplied_parameters(const fo_model_sizes *m)
{
    double table = (double)m->vocabulary * (double)m->dim; /* the head's; looked up ones go */
    return fo_model_sizes_parameters(m) - fo_model_sizes_embedding_parameters(m) + table;
}

/* ---- names ------------------------------------------------------------------------------------------- */

static bool is_file(const char *word)
{
    size_t length = strlen(word);
    return strchr(word, '/') || (length > 5 && strcmp(word + length - 5, ".json") == 0);
}

fo_status fo_model_sizes_read(const char *word, fo_model_sizes *model)
{
    char known[512] = "";
    if (!word || !model)
        return fo_base_error(FO_INVALID, "model: no name was given, expected a preset or a file");
    const fo_model_sizes *preset = fo_planner_preset(word);
    if (preset) {
        *model = *preset;
        return FO_OK;
    }
    if (is_file(word))
        return fo_planner_config_read(word, model);
    for (const char *const *name = fo_model_sizes_presets(); *name; name++) {
        size_t at = strlen(known);
        if (at + strlen(*name) + 3 < sizeof known)
            strcat(strcat(known, at ? ", " : ""), *name);
    }
    return fo_base_error(FO_INVALID,
                         "model '%.80s' is unknown, expected %s, or the path of a config.json",
                         word, known);
}

/* ---- stated sizes ------------------------------------------------------------------------------------ */

static void put_over(int64_t *size, int64_t given, bool *changes)
{
    *changes |= given && given != *size;
    if (given)
        *size = given;
}

static void put_flag_over(bool *flag, bool given, bool *changes)
{
    *changes |= given && !*flag;
    *flag |= given;
}

/* What was set on its own takes the place of what the name says. Whether that makes another model of it. */
static bool put_sizes_over(fo_model_sizes *model, const fo_model_sizes *given)
{
    bool changes = false;
    put_over(&model->layers, given->layers, &changes);
    put_over(&model->dim, given->dim, &changes);
    put_over(&model->ffn, given->ffn, &changes);
    put_over(&model->vocabulary, given->vocabulary, &changes);
    put_over(&model->heads, given->heads, &changes);
    put_over(&model->kv_heads, given->kv_heads, &changes);
    put_over(&model->head_dim, given->head_dim, &changes);
    put_flag_over(&model->gated, given->gated, &changes);
    put_flag_over(&model->tied, given->tied, &changes);
    put_flag_over(&model->positions, given->positions, &changes);
    put_flag_over(&model->biases, given->biases, &changes);
    return changes;
}

/* What follows from other sizes, where nobody said it. */
static void fill_sizes(fo_model_sizes *model, const fo_model_sizes *given)
{
    if (!given->kv_heads && (given->heads || !model->kv_heads))
        model->kv_heads = model->heads;
    if (!given->head_dim && (given->dim || given->heads || !model->head_dim) && model->heads > 0)
        model->head_dim = model->dim / model->heads;
    if (!given->ffn && (given->dim || !model->ffn))
        model->ffn = 4 * model->dim;
    if (!model->name[0])
        snprintf(model->name, sizeof model->name, "a model");
}

/* Without a name all of these must have been said. */
static fo_status check_sizes(const fo_model_sizes *model)
{
    const struct {
        const char *option;
        int64_t value;
    } sizes[] = {{"layers", model->layers},
                 {"dim", model->dim},
                 {"heads", model->heads},
                 {"vocabulary", model->vocabulary},
                 {"context", model->context}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].value < 1)
            return fo_base_error(FO_INVALID,
                                 "--model is missing, and so is --%s; expected a model, such as "
                                 "--model llama3-70b or a config.json, or all sizes",
                                 sizes[i].option);
    return FO_OK;
}

fo_status fo_model_sizes_resolve(const char *word, const fo_model_sizes *given,
                                 fo_model_sizes *model)
{
    fo_model_sizes sizes = *given;
    fo_status status = word ? fo_model_sizes_read(word, &sizes) : check_sizes(given);
    if (status != FO_OK)
        return status;
    size_t used = strlen(sizes.name);
    if (word && put_sizes_over(&sizes, given))
        snprintf(sizes.name + used, sizeof sizes.name - used, ", changed");
    bool follows = !given->head_dim && (given->dim || given->heads); /* heads of dim / heads */
    int64_t nearest = sizes.heads > 0 ? (sizes.dim / sizes.heads + 1) * sizes.heads : 0;
    if (follows && sizes.heads > 0 && sizes.dim % sizes.heads)
        return fo_base_error(FO_INVALID,
                             "--dim %lld can't be split into %lld heads, expected a multiple of "
                             "--heads, such as %lld",
                             (long long)sizes.dim, (long long)sizes.heads, (long long)nearest);
    fill_sizes(&sizes, given);
    *model = sizes;
    return FO_OK;
}
