/* Buckets: parameters and gradients side by side as matrices, sharded over the ranks that hold the same. A rank gets
 * the sum of the gradients of its shard, updates it, and the others get what it has become. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "flashoverlap/schedule.h"
#include "model/state.h"

enum { WIDTH = FO_MODEL_BUCKET_WIDTH };

/* ---- where what lies ------------------------------------------------------------------------- */

static int bucket_of(const fo_model *m, int index)
{
    if (m->parameters[index].sharding == FO_REPLICATED)
        return FO_MODEL_BUCKET_REPLICATED;
    if (index < FO_MODEL_FIRST_LAYER)
        return FO_MODEL_BUCKET_EMBEDDING;
    return FO_MODEL_BUCKET_LAYER + (index - FO_MODEL_FIRST_LAYER) / FO_MODEL_LAYER_PARAMETERS;
}

/* Weights begin at a multiple of 64 bytes. What is replicated does not: where an element lies says in which order
 * ranks add its gradient, and padding would be summed too. */
static int64_t room_of(const fo_parameter *p)
{
    return p->sharding == FO_REPLICATED ? p->count : (p->count + 15) / 16 * 16;
}

static void lay_out(fo_model *m)
{
    for (int i = 0; i < m->parameter_count; i++) {
        fo_parameter *p = &m->parameters[i];
        p->bucket = bucket_of(m, i);
        p->offset = m->buckets[p->bucket].rows; /* floats, for now */
        m->buckets[p->bucket].rows += room_of(p);
    }
    for (int i = 0; i < m->bucket_count; i++) {
        fo_model_bucket *b = &m->buckets[i];
        fo_group *group = i == FO_MODEL_BUCKET_REPLICATED ? m->world : m->replicas;
        int size = group ? fo_group_size(group) : 1, rank = group ? fo_group_rank(group) : 0;
        b->group = size > 1 ? group : NULL;
        b->rows = (b->rows + WIDTH - 1) / WIDTH;
        b->own_row = fo_shard_begin(b->rows, size, rank);
        b->own_rows = fo_shard_rows(b->rows, size, rank);
    }
}

static float *take(fo_model *m, int64_t rows, bool travels)
{
    return fo_model_memory_take(m, (size_t)(rows * WIDTH) * sizeof(float), travels);
}

static fo_status allocate(fo_model *m)
{
    for (int i = 0; i < m->bucket_count; i++) {
        fo_model_bucket *b = &m->buckets[i];
        if (!(b->value = take(m, b->rows, b->group != NULL)) ||
            !(b->grad = take(m, b->rows, false)) || !(b->m = take(m, b->own_rows, false)) ||
            !(b->v = take(m, b->own_rows, false)))
            return FO_NO_MEMORY;
    }
    for (int i = 0; i < m->parameter_count; i++) {
        fo_parameter *p = &m->parameters[i];
        p->value = m->buckets[p->bucket].value + p->offset;
        p->grad = m->buckets[p->bucket].grad + p->offset;
    }
    return FO_OK;
}

/* ---- making them ----------------------------------------------------------------------------- */

static void name_plan(const char *what, int bucket, char *name, size_t size)
{
    if (bucket == FO_MODEL_BUCKET_EMBEDDING)
        snprintf(name, size, "%s of the embedding", what);
    else if (bucket == FO_MODEL_BUCKET_REPLICATED)
        snprintf(name, size, "replicated %s", what);
    else
        snprintf(name, size, "%s of layer %d", what, bucket - FO_MODEL_BUCKET_LAYER);
}

static fo_status create_plan(fo_model *m, int bucket, fo_op op, fo_plan **plan)
{
    const fo_model_bucket *b = &m->buckets[bucket];
    char name[64];
    name_plan(op == FO_ALL_GATHER ? "parameters" : "gradients", bucket, name, sizeof name);
    fo_plan_desc desc = {.op = op,
                         .rows = b->rows,
                         .in = WIDTH,
                         .dtype = FO_F32,
                         .wire = FO_F32,
                         .y_dtype = FO_F32,
                         .overlap = m->config.overlap,
                         .name = name};
    return fo_plan_create(b->group, &desc, plan);
}

static fo_status create_plans(fo_model *m)
{
    fo_status status = FO_OK;
    for (int i = 0; status == FO_OK && i < m->bucket_count; i++) {
        fo_model_bucket *b = &m->buckets[i];
        if (!b->group || !b->rows)
            continue;
        status = create_plan(m, i, FO_REDUCE_SCATTER, &b->reduce);
        if (status == FO_OK)
            status = create_plan(m, i, FO_ALL_GATHER, &b->gather);
    }
    return status;
}

fo_status fo_model_buckets_create(fo_model *m)
{
    fo_strategy strategy;
    fo_status status = fo_strategy_parse(m->config.overlap, &strategy);
    if (status != FO_OK)
        return status;
    m->early = strategy.kind != FO_STRATEGY_NONE && strategy.kind != FO_STRATEGY_HIER_NONE;
    m->bucket_count = FO_MODEL_BUCKET_LAYER + (int)m->config.layers;
    m->buckets = fo_model_memory_take(m, (size_t)m->bucket_count * sizeof *m->buckets, false);
    m->squares = fo_model_memory_take(m, (size_t)m->parameter_count * sizeof *m->squares, false);
    m->squared = fo_model_memory_take(m, (size_t)m->parameter_count * sizeof *m->squared, false);
    if (!m->buckets || !m->squares || !m->squared) {
        m->bucket_count = 0;
        return FO_NO_MEMORY;
    }
    lay_out(m);
    status = allocate(m);
    return status == FO_OK ? create_plans(m) : status;
}

void fo_model_buckets_destroy(fo_model *m)
{
    for (int i = 0; i < m->bucket_count; i++) {
        fo_model_bucket *b = &m->buckets[i];
        if (b->reducing)
            fo_plan_finish(b->reduce);
        if (b->gathering)
            fo_plan_finish(b->gather);
        fo_plan_destroy(b->reduce);
        fo_plan_destroy(b->gather);
    }
    m->bucket_count = 0;
}

/* ---- gradients ------------------------------------------------------------------------------- */

fo_status fo_model_buckets_reduce(fo_model *m, int bucket)
{
    fo_model_bucket *b = &m->buckets[bucket];
    if (!b->reduce || b->reducing || b->complete)
        return FO_OK;
    m->summing = true;
    /* the sum takes the place of the own part of it, which nobody else reads */
    fo_plan_args args = {.x = b->grad,
                         .y = b->grad + b->own_row * WIDTH,
                         .meanwhile = fo_model_reduce_piece,
                         .meanwhile_arg = m};
    fo_status status = fo_plan_start(b->reduce, &args);
    b->reducing = status == FO_OK;
    return status == FO_OK && !m->early ? fo_model_buckets_reduced(m, bucket) : status;
}

fo_status fo_model_buckets_reduced(fo_model *m, int bucket)
{
    fo_model_bucket *b = &m->buckets[bucket];
    fo_status status = b->reducing ? fo_plan_finish(b->reduce) : FO_OK;
    b->reducing = false;
    b->complete = status == FO_OK && !(m->rows_travel && bucket == FO_MODEL_BUCKET_EMBEDDING);
    return status;
}

/* ---- parameters ------------------------------------------------------------------------------ */

fo_status fo_model_bucket_updated(fo_model *m, int bucket)
{
    fo_model_bucket *b = &m->buckets[bucket];
    fo_model_parameters_changed(m);
    if (!b->gather)
        return FO_OK;
    fo_plan_args args = {.x = b->value + b->own_row * WIDTH, .y = b->value};
    fo_status status = fo_plan_start(b->gather, &args);
    b->gathering = status == FO_OK;
    return status == FO_OK && !m->early ? fo_model_buckets_wait(m, bucket) : status;
}

fo_status fo_model_buckets_wait(fo_model *m, int bucket)
{
    fo_model_bucket *b = &m->buckets[bucket];
    if (!b->gathering)
        return FO_OK;
    b->gathering = false;
    fo_model_parameters_changed(m); /* what was packed before they came is stale */
    return fo_plan_finish(b->gather);
}

fo_status fo_model_settle(fo_model *m)
{
    fo_status status = FO_OK;
    for (int i = 0; status == FO_OK && i < m->bucket_count; i++)
        status = fo_model_buckets_wait(m, i);
    return status;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

int fo_model_bucket_count(const fo_model *m)
{
    return m->bucket_count;
}

int64_t fo_model_optimizer_bytes(const fo_model *m)
{
    int64_t rows = 0;
    for (int i = 0; i < m->bucket_count; i++)
        rows += m->buckets[i].own_rows;
    return 2 * rows * WIDTH * (int64_t)sizeof(float);
}

void fo_model_own_piece(const fo_model *m, const fo_parameter *p, fo_model_piece *piece)
{
    const fo_model_bucket *b = &m->buckets[p->bucket];
    int64_t own = b->own_row * WIDTH, begin = own - p->offset;
    int64_t end = begin + b->own_rows * WIDTH;
    begin = begin < 0 ? 0 : begin > p->count ? p->count : begin;
    end = end < begin ? begin : end > p->count ? p->count : end;
    int64_t at = p->offset + begin, from = end > begin ? at - own : 0;
    *piece = (fo_model_piece){.parameter = p,
                              .begin = begin,
                              .count = end - begin,
                              .value = b->value + at,
                              .grad = b->grad + at,
                              .m = b->m + from,
                              .v = b->v + from};
}

bool fo_model_bucket_piece(const fo_model *m, int bucket, int *at, fo_model_piece *piece)
{
    while (*at < m->parameter_count) {
        const fo_parameter *p = &m->parameters[(*at)++];
        if (p->bucket != bucket)
            continue;
        fo_model_own_piece(m, p, piece);
        if (piece->count > 0)
            return true;
    }
    return false;
}
