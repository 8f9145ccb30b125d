/* Making and freeing a model. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "group/group.h"
#include "model/state.h"

static void set_sizes(fo_model *m, int64_t batch)
{
    const fo_model_config *c = &m->config;
    m->batch = fo_shard_rows(batch, c->dp, m->replica);
    m->first_sequence = fo_shard_begin(batch, c->dp, m->replica);
    m->all_rows = batch * c->context;
    m->rows = m->batch * c->context;
    m->shard_row = fo_shard_begin(m->rows, m->ranks, m->rank);
    m->shard_rows = fo_shard_rows(m->rows, m->ranks, m->rank);
    m->head_dim = (int)(c->dim / c->heads);
    m->head_begin = (int)fo_shard_begin(c->heads, m->ranks, m->rank);
    m->heads = (int)fo_shard_rows(c->heads, m->ranks, m->rank);
    m->dl = (int64_t)m->heads * m->head_dim;
    m->hl = fo_shard_rows(4 * c->dim, m->ranks, m->rank);
    m->vl = fo_shard_rows(c->vocabulary, m->ranks, m->rank);
    m->by_table = c->vocabulary < fo_shard_rows(batch, c->dp, 0) * c->context; /* alike in all */
    m->vocabulary_begin = fo_shard_begin(c->vocabulary, m->ranks, m->rank);
    fo_model_lookup_choose(m);
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
    return (norm->x = floats(m, m->longest * m->config.dim)) &&
           (norm->y = travelling(m, count, m->config.dtype)) &&
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
    return (m->dembed = floats(m, (m->by_rows ? m->places : m->rows) * dim));
}

static bool take_backward(fo_model *m)
{
    int64_t count = m->shard_rows * m->config.dim;
    return (m->dx = travelling(m, m->longest * m->config.dim, FO_F32)) &&
           (m->dbranch = floats(m, count)) && (m->dy = travelling(m, count, m->config.dtype)) &&
           (m->dpre = values(m, m->rows * m->hl)) && (m->datt = values(m, m->rows * m->dl)) &&
           (m->dqkv = values(m, m->rows * 3 * m->dl)) && take_embedding(m);
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
    fo_status status = fo_model_params_create(model);
    if (status == FO_OK)
        status = fo_model_rows_create(model);
    if (status == FO_OK)
        status = take_activations(model);
    if (status == FO_OK)
        status = fo_model_lookup_create(model);
    if (status == FO_OK)
        status = fo_model_head_create(model);
    if (status == FO_OK)
        status = fo_model_plans_create(model);
    return status;
}

/* The groups of this rank. */
static fo_status join(fo_model *m)
{
    int rank = fo_group_rank(m->world), tp = m->config.tp;
    m->group = m->world;
    m->ranks = tp;
    m->rank = rank % tp;
    m->replica = rank / tp;
    if (m->config.dp == 1)
        return FO_OK;
    m->group = NULL;
    fo_status status = fo_group_split(m->world, m->replica, &m->group);
    return status == FO_OK ? fo_group_split(m->world, m->rank, &m->replicas) : status;
}

static void leave(fo_model *m)
{
    if (m->replicas)
        fo_group_close(m->replicas);
    if (m->group && m->group != m->world)
        fo_group_close(m->group);
}

static fo_status check_batch(const fo_model_config *config, int64_t batch)
{
    int64_t most = INT32_MAX / config->context;
    if (batch >= 1 && batch < config->dp)
        return fo_base_error(FO_INVALID,
                             "model: batch is %" PRId64 ", expected a sequence for each of the %d "
                             "replicas; choose a larger batch or a smaller dp",
                             batch, config->dp);
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
    fo_model_config split = *config;
    fo_status status = fo_model_config_check(config);
    if (status == FO_OK)
        status = fo_model_config_split(&split, fo_group_size(group));
    if (status == FO_OK)
        status = check_batch(&split, batch);
    if (status != FO_OK)
        return status;
    fo_model *model = calloc(1, sizeof *model);
    if (!model)
        return fo_base_error(FO_NO_MEMORY, "no memory for a model");
    *model = (fo_model){.world = group,
                        .kernel = fo_group_kernel_ops(group),
                        .config = split,
                        .version = 1};
    snprintf(model->overlap, sizeof model->overlap, "%s",
             config->overlap ? config->overlap : "flash");
    model->config.overlap = model->overlap;
    status = join(model);
    if (status == FO_OK) {
        set_sizes(model, batch);
        status = set_up(model);
    }
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
    fo_model_lookup_destroy(model);
    fo_model_buckets_destroy(model);
    fo_model_plans_destroy(model);
    fo_model_head_destroy(model);
    fo_model_memory_free(model);
    leave(model);
    free(model);
}

void fo_model_parameters_changed(fo_model *model)
{
    model->version++;
}

fo_group *fo_model_group(const fo_model *model)
{
    return model->group;
}

int fo_model_replica(const fo_model *model)
{
    return model->replica;
}

void fo_model_zero_gradients(fo_model *model)
{
    fo_model_parameters_changed(model);
    model->summing = false;
    for (int i = 0; i < model->bucket_count; i++) {
        fo_model_bucket *b = &model->buckets[i];
        memset(b->grad, 0, (size_t)(b->rows * FO_MODEL_BUCKET_WIDTH) * sizeof *b->grad);
        b->complete = false;
        (void)fo_group_progress(
            model->world); /* a failure comes again to who needs what has failed */
    }
    if (model->by_table)
        memset(model->table_grad, 0,
               (size_t)(model->config.vocabulary * model->config.dim) * sizeof(float));
}
