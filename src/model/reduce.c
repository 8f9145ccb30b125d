/* The gradients' sums over ranks, and the norm of all. */
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "flashoverlap/trace.h"
#include "model/state.h"

/* ---- squares --------------------------------------------------------------------------------- */

/* A parameter at a time, and each once, while other gradients travel. */
bool fo_model_reduce_piece(void *arg)
{
    fo_model *m = arg;
    for (int i = 0; i < m->parameter_count; i++) {
        const fo_parameter *p = &m->parameters[i];
        if (m->squared[i] || !m->buckets[p->bucket].complete)
            continue;
        fo_model_piece piece;
        fo_model_own_piece(m, p, &piece);
        m->squared[i] = true;
        m->squares[i] = piece.count ? m->kernel->sum_squares(piece.grad, piece.count) : 0.0;
        return true;
    }
    return false;
}

/* What no rank but this one adds to the norm. */
typedef struct part {
    double replicated, split;
} part;

/* In the order of the table, whenever each was taken. */
static part add_squares(const fo_model *m)
{
    part mine = {0};
    for (int i = 0; i < m->parameter_count; i++) {
        bool replicated = m->parameters[i].sharding == FO_REPLICATED;
        *(replicated ? &mine.replicated : &mine.split) += m->squares[i];
    }
    return mine;
}

static fo_status norm_of_all(fo_model *m, double *norm)
{
    int64_t begin = fo_trace_clock();
    int ranks = fo_group_size(m->world);
    while (fo_model_reduce_piece(m))
        ;
    part mine = add_squares(m), *all = malloc((size_t)ranks * sizeof *all);
    if (!all)
        return fo_base_error(FO_NO_MEMORY, "no memory for the norms of %d ranks", ranks);
    fo_status status = fo_group_allgather(m->world, &mine, sizeof mine, all);
    double sum = 0;
    for (int r = 0; status == FO_OK && r < ranks; r++)
        sum += all[r].replicated;
    for (int r = 0; status == FO_OK && r < ranks; r++)
        sum += all[r].split;
    *norm = sqrt(sum);
    free(all);
    fo_trace_local(m->group, "gradient norm", begin);
    return status;
}

/* ---- sums ------------------------------------------------------------------------------------ */

static void forget(fo_model *m)
{
    for (int i = 0; i < m->parameter_count; i++)
        m->squared[i] = false;
    for (int i = 0; i < m->bucket_count; i++) {
        fo_model_bucket *b = &m->buckets[i];
        bool later = (m->by_table || m->rows_travel) && i == FO_MODEL_BUCKET_EMBEDDING;
        b->complete = !b->reduce && !later;
    }
    m->summing = true;
}

/* Rows that travelled apart belong to its sum. */
static fo_status finish_embedding(fo_model *m)
{
    fo_status status = fo_model_buckets_reduced(m, FO_MODEL_BUCKET_EMBEDDING);
    if (status == FO_OK)
        status = fo_model_lookup_reduce(m);
    m->buckets[FO_MODEL_BUCKET_EMBEDDING].complete = status == FO_OK;
    return status;
}

/* Layers first: most of them have arrived. What comes last has the squares of the others to hide behind. */
static fo_status sum_all(fo_model *m)
{
    int first = FO_MODEL_BUCKET_LAYER, last = m->bucket_count - 1;
    fo_status status = FO_OK;
    for (int i = last; status == FO_OK && i >= first; i--)
        status = fo_model_buckets_reduce(m, i);
    if (status == FO_OK)
        status = fo_model_buckets_reduce(m, FO_MODEL_BUCKET_REPLICATED);
    if (status == FO_OK)
        status = fo_model_embedding_reduce(m);
    if (status == FO_OK)
        status = fo_model_buckets_reduce(m, FO_MODEL_BUCKET_EMBEDDING);
    for (int i = last; status == FO_OK && i >= first; i--)
        status = fo_model_buckets_reduced(m, i);
    if (status == FO_OK)
        status = fo_model_buckets_reduced(m, FO_MODEL_BUCKET_REPLICATED);
    if (status == FO_OK)
        status = finish_embedding(m);
    return status;
}

fo_status fo_model_reduce_gradients(fo_model *m, double *norm)
{
    fo_model_parameters_changed(m); /* what follows is an update */
    forget(m);
    fo_status status = sum_all(m);
    return status == FO_OK ? norm_of_all(m, norm) : status;
}
