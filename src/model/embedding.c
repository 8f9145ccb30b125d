/* Embeddings. The table is split over the vocabulary, rows over tokens; what travels is the smaller of the
 * two: the table itself (a vocabulary of bytes is smaller than any batch), or the rows. */
#include <string.h>

#include "model/state.h"

static size_t width(const fo_model *m)
{
    return (size_t)m->config.dim;
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Rows of the tokens whose vocabulary entries are here, zeros for the others. */
static void produce(void *arg, int64_t row, int64_t rows, float *out)
{
    const fo_model *m = arg;
    const float *wte = fo_model_params_embedding(m, FO_MODEL_WTE)->value;
    for (int64_t i = 0; i < rows; i++, out += width(m)) {
        int64_t entry = m->tokens[row + i] - m->vocabulary_begin;
        if (entry >= 0 && entry < m->vl)
            memcpy(out, wte + (size_t)entry * width(m), width(m) * sizeof *out);
        else
            memset(out, 0, width(m) * sizeof *out);
    }
}

static fo_status gather_table(fo_model *m, float *x)
{
    const fo_parameter *wte = fo_model_params_embedding(m, FO_MODEL_WTE);
    memcpy(m->table_shard, wte->value, (size_t)wte->count * sizeof *m->table_shard);
    fo_plan_args args = {.x = m->table_shard, .y = m->table};
    fo_status status = fo_plan_execute(m->plans[FO_MODEL_PLAN_EMBED], &args);
    for (int64_t i = 0; status == FO_OK && i < m->shard_rows; i++)
        memcpy(x + (size_t)i * width(m), m->table + (size_t)m->tokens[m->shard_row + i] * width(m),
               width(m) * sizeof *x);
    return status;
}

fo_status fo_model_embedding_forward(fo_model *m, float *x)
{
    fo_plan_args args = {.produce = produce, .produce_arg = m, .y = x};
    fo_status status;
    if (m->by_rows && m->buckets[FO_MODEL_BUCKET_EMBEDDING].gathering)
        status = fo_model_lookup_forward(m, x); /* the rest may still travel */
    else
        status = m->by_table ? gather_table(m, x)
                             : fo_plan_execute(m->plans[FO_MODEL_PLAN_EMBED], &args);
    const float *wpe = fo_model_params_embedding(m, FO_MODEL_WPE)->value;
    fo_run run;
    for (int64_t at = 0; status == FO_OK && fo_model_rows_next(m, &at, &run);) {
        float *rows = x + (size_t)run.row * width(m);
        m->kernel->add(rows, FO_F32, wpe + (size_t)run.position * width(m), FO_F32, rows, FO_F32,
                       run.rows * m->config.dim);
    }
    return status;
}

/* ---- backward -------------------------------------------------------------------------------- */

static void add_row(const fo_model *m, float *to, const float *from)
{
    m->kernel->add(to, FO_F32, from, FO_F32, to, FO_F32, m->config.dim);
}

/* The own rows' gradients by token. */
static void add_rows(fo_model *m)
{
    for (int64_t i = 0; i < m->shard_rows; i++)
        add_row(m, m->table_grad + (size_t)m->tokens[m->shard_row + i] * width(m),
                m->dx + (size_t)i * width(m));
}

fo_status fo_model_embedding_reduce(fo_model *m)
{
    fo_parameter *wte = fo_model_params_embedding(m, FO_MODEL_WTE);
    if (!m->by_table)
        return FO_OK;
    fo_plan_args args = {.x = m->table_grad,
                         .y = m->table_shard,
                         .meanwhile = fo_model_reduce_piece,
                         .meanwhile_arg = m};
    fo_status status = fo_plan_execute(m->plans[FO_MODEL_PLAN_EMBED_BACKWARD], &args);
    if (status == FO_OK)
        m->kernel->add(wte->grad, FO_F32, m->table_shard, FO_F32, wte->grad, FO_F32, wte->count);
    memset(m->table_grad, 0, (size_t)m->config.vocabulary * width(m) * sizeof *m->table_grad);
    return status;
}

/* Rows of all ranks' tokens into the own vocabulary entries, in row order. */
static fo_status gather_rows(fo_model *m)
{
    fo_plan_args args = {.x = m->dx, .y = m->dembed};
    fo_status status = fo_plan_execute(m->plans[FO_MODEL_PLAN_EMBED_BACKWARD], &args);
    float *wte = fo_model_params_embedding(m, FO_MODEL_WTE)->grad;
    for (int64_t row = 0; status == FO_OK && row < m->rows; row++) {
        int64_t entry = m->tokens[row] - m->vocabulary_begin;
        if (entry >= 0 && entry < m->vl)
            add_row(m, wte + (size_t)entry * width(m), m->dembed + (size_t)row * width(m));
    }
    return status;
}

fo_status fo_model_embedding_backward(fo_model *m, bool last)
{
    float *wpe = fo_model_params_embedding(m, FO_MODEL_WPE)->grad; /* stays a partial sum */
    fo_run run;
    for (int64_t at = 0; fo_model_rows_next(m, &at, &run);) {
        float *to = wpe + (size_t)run.position * width(m);
        m->kernel->add(to, FO_F32, m->dx + (size_t)run.row * width(m), FO_F32, to, FO_F32,
                       run.rows * m->config.dim);
    }
    if (m->by_rows && last)
        return fo_model_lookup_backward(m);
    if (!m->by_table)
        return gather_rows(m);
    add_rows(m);
    return FO_OK;
}
