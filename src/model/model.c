/* Making and freeing a model. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "group/group.h"
#include "model/state.h"

static void set_sizes(fo_model *m)
{
    const fo_model_config *c = &m->config;
    m->rows = m->batch * c->context;
    m->shard_row = fo_shard_begin(m->rows, m->ranks, m->rank);
    m->shard_rows = fo_shard_rows(m->rows, m->ranks, m->rank);
    m->head_dim = (int)(c->dim / c->heads);
    m->head_begin = (int)fo_shard_begin(c->heads, m->ranks, m->rank);
    m->heads = (int)fo_shard_rows(c->heads, m->ranks, m->rank);
    m->dl = (int64_t)m->heads * m->head_dim;
    m->hl = fo_shard_rows(4 * c->dim, m->ranks, m->rank);
    m->vl = fo_shard_rows(c->vocabulary, m->ranks, m->rank);
    m->by_table = c->vocabulary < m->rows;
    m->vocabulary_begin = fo_shard_begin(c->vocabulary, m->ranks, m->rank);
}

/* ---- activations ----------------------------------------------------------------------------- */

static float *floats(fo_model *m, int64_t count)
{
    return fo_model_memory_take(m, (size_t)count * sizeof(float), false);
}

static void *values(fo_model *m, int64_t count)
{
    return fo_model_memory_take(m, (size_t)count * fo_dtype_size(m->config.dtype), false);
}

static void *travelling(fo_model *m, int64_t count, fo_dtype dtype)
{
    return fo_model_memory_take(m, (size_t)count * fo_dtype_size(dtype), true);
}

static bool take_norm(fo_model *m, fo_model_norm *norm)
{
    int64_t count = m->shard_rows * m->config.dim;
    return (norm->x = floats(m, count)) && (norm->y = travelling(m, count, m->config.dtype)) &&
           (norm->mean = floats(m, m->shard_rows)) && (norm->rstd = floats(m, m->shard_rows));
}

static bool take_layer(fo_model *m, fo_model_layer *layer)
{
    return take_norm(m, &layer->ln_1) && take_norm(m, &layer->ln_2) &&
           (layer->qkv = values(m, m->rows * 3 * m->dl)) &&
           (layer->att = values(m, m->rows * m->dl)) &&
           (layer->lse = floats(m, m->rows * m->heads)) &&
           (layer->pre = values(m, m->rows * m->hl)) && (layer->act = values(m, m->rows * m->hl));
}

static bool take_loss(fo_model *m)
{
    int64_t logits = m->by_table ? m->shard_rows * m->config.vocabulary : m->rows * m->vl;
    int64_t stats = m->by_table ? 4 * m->rows + 2 * m->ranks : 3 * m->rows * (m->ranks + 1);
    return (m->logits = floats(m, logits)) && (m->stats = floats(m, stats)) &&
           (m->lse = floats(m, m->rows)) && (m->dlogits = values(m, logits));
}

static bool take_embedding(fo_model *m)
{
    int64_t dim = m->config.dim;
    if (m->by_table)
        return (m->table = floats(m, m->config.vocabulary * dim)) &&
               (m->table_grad = floats(m, m->config.vocabulary * dim)) &&
               (m->table_shard = travelling(m, m->vl * dim, FO_F32));
    return (m->dembed = floats(m, m->rows * dim));
}

static bool take_backward(fo_model *m)
{
    int64_t count = m->shard_rows * m->config.dim;
    int64_t sum_rows = fo_shard_rows(m->sum_rows, m->ranks, m->rank);
    return (m->dx = travelling(m, count, FO_F32)) && (m->dbranch = floats(m, count)) &&
           (m->dy = travelling(m, count, m->config.dtype)) &&
           (m->dpre = values(m, m->rows * m->hl)) && (m->datt = values(m, m->rows * m->dl)) &&
           (m->dqkv = values(m, m->rows * 3 * m->dl)) && take_embedding(m) &&
           (m->sum = floats(m, m->sum_rows * FO_MODEL_SUM_WIDTH)) &&
           (m->sum_shard = travelling(m, sum_rows * FO_MODEL_SUM_WIDTH, FO_F32));
}

static fo_status take_activations(fo_model *m)
{
    size_t layers = (size_t)m->config.layers;
    m->layers = fo_model_memory_take(m, layers * sizeof *m->layers, false);
    for (size_t l = 0; m->layers && l < layers; l++)
        if (!take_layer(m, &m->layers[l]))
            return FO_NO_MEMORY;
    return m->layers && take_norm(m, &m->ln_f) && take_loss(m) && take_backward(m) ? FO_OK
                                                                                   : FO_NO_MEMORY;
}

/* ---- the model ------------------------------------------------------------------------------- */

static fo_status set_up(fo_model *model)
{
    int64_t replicated = 0;
    fo_status status = fo_model_params_create(model);
    for (int i = 0; i < model->parameter_count; i++)
        if (model->parameters[i].sharding == FO_REPLICATED)
            replicated += model->parameters[i].count;
    if (status == FO_OK)
        status = fo_model_rows_create(model);
    model->sum_rows = (replicated + FO_MODEL_SUM_WIDTH - 1) / FO_MODEL_SUM_WIDTH;
    if (status == FO_OK)
        status = take_activations(model);
    if (status == FO_OK)
        status = fo_model_head_create(model);
    if (status == FO_OK)
        status = fo_model_plans_create(model);
    return status;
}

static fo_status check_batch(const fo_model_config *config, int64_t batch)
{
    int64_t most = INT32_MAX / config->context;
    if (batch >= 1 && batch <= most)
        return FO_OK;
    return fo_base_error(FO_INVALID,
                         "model: batch is %" PRId64 ", expected 1 to %" PRId64
                         " at context %" PRId64,
                         batch, most, config->context);
}

fo_status fo_model_create(fo_group *group, const fo_model_config *config, int64_t batch,
                          fo_model **out)
{
    *out = NULL;
    fo_status status = fo_model_config_check(config);
    if (status == FO_OK)
        status = check_batch(config, batch);
    if (status != FO_OK)
        return status;
    fo_model *model = calloc(1, sizeof *model);
    if (!model)
        return fo_base_error(FO_NO_MEMORY, "no memory for a model");
    *model = (fo_model){.group = group,
                        .kernel = fo_group_kernel_ops(group),
                        .config = *config,
                        .ranks = fo_group_size(group),
                        .rank = fo_group_rank(group),
                        .batch = batch,
                        .version = 1};
    snprintf(model->overlap, sizeof model->overlap, "%s",
             config->overlap ? config->overlap : "flash");
    model->config.overlap = model->overlap;
    set_sizes(model);
    status = set_up(model);
    if (status != FO_OK) {
        fo_model_destroy(model);
        return status;
    }
    *out = model;
    return FO_OK;
}

void fo_model_destroy(fo_model *model)
{
    if (!model)
        return;
    fo_model_plans_destroy(model);
    fo_model_head_destroy(model);
    fo_model_memory_free(model);
    free(model);
}

void fo_model_parameters_changed(fo_model *model)
{
    model->version++;
}

void fo_model_zero_gradients(fo_model *model)
{
    fo_model_parameters_changed(model);
    for (int i = 0; i < model->parameter_count; i++)
        memset(model->parameters[i].grad, 0, (size_t)model->parameters[i].count * sizeof(float));
    if (model->by_table)
        memset(model->table_grad, 0,
               (size_t)(model->config.vocabulary * model->config.dim) * sizeof(float));
}
