/* Models by name or file; counting their parameters. */
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
