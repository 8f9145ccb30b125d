/* Embedding rows between all ranks, where replicas meet over a vocabulary that is larger than their tokens.
 *
 * The embedding is the largest matrix, is needed first and its gradient is complete last: summed and gathered whole it
 * would have nothing to travel behind. But what the ends of a step need of it is the rows of their tokens. So
 * - the head's part of the gradient, known first, is summed behind the whole backward pass; the rows of dx, known
 *   last, then go to all ranks, and who has an entry in its shard adds them to the sum, in the order of rows;
 * - the first forward pass after an update takes the rows from the shards that were updated, and all of the matrix
 *   has to be there only when the head needs it.
 * Every rank has `longest` places for rows, some may be empty: shards of uneven replicas are no fo_shard of all. */
#include <stdlib.h>
#include <string.h>

#include "model/state.h"

/* ---- which row is whose ---------------------------------------------------------------------- */

static int64_t most_rows(const fo_model *m)
{
    int64_t sequences = fo_shard_rows(m->all_rows / m->config.context, m->config.dp, 0);
    return fo_shard_rows(sequences * m->config.context, m->ranks, 0);
}

void fo_model_lookup_choose(fo_model *m)
{
    int64_t longest = most_rows(m), all = longest * fo_group_size(m->world);
    m->by_rows =
        m->replicas && !m->by_table && all <= fo_shard_rows(m->config.vocabulary, m->ranks, 0);
    m->longest = m->by_rows ? longest : m->shard_rows;
    m->places = m->by_rows ? all : 0;
}

/* Place and token of the rows of a replica. */
static fo_status list_replica(fo_model *m, int replica)
{
    int dp = m->config.dp;
    int64_t context = m->config.context, sequences = m->all_rows / context;
    int64_t batch = fo_shard_rows(sequences, dp, replica);
    int64_t first = fo_shard_begin(sequences, dp, replica);
    fo_row_order order = fo_model_rows_order(batch, m->ranks);
    int64_t count = fo_rows_runs(order, batch, context, m->ranks, NULL, 0);
    fo_run *runs = fo_model_memory_take(m, (size_t)count * sizeof *runs, false);
    if (!runs)
        return FO_NO_MEMORY;
    fo_rows_runs(order, batch, context, m->ranks, runs, count);
    for (int64_t i = 0, rank = 0; i < count; i++)
        for (int64_t r = 0; r < runs[i].rows; r++) {
            int64_t row = runs[i].row + r;
            while (row >= fo_shard_begin(batch * context, m->ranks, (int)rank + 1))
                rank++;
            int64_t begin = fo_shard_begin(batch * context, m->ranks, (int)rank);
            int64_t place = (replica * m->ranks + rank) * m->longest + row - begin;
            m->place_of[(first + runs[i].sequence) * context + runs[i].position + r] = place;
        }
    return FO_OK;
}

static fo_status create_plan(fo_model *m, fo_op op, const char *name, fo_plan **plan)
{
    fo_plan_desc desc = {.op = op,
                         .rows = m->places,
                         .in = m->config.dim,
                         .dtype = FO_F32,
                         .wire = FO_F32,
                         .y_dtype = FO_F32,
                         .overlap = m->config.overlap,
                         .name = name};
    return fo_plan_create(m->world, &desc, plan);
}

fo_status fo_model_lookup_create(fo_model *m)
{
    if (!m->by_rows)
        return FO_OK;
    m->place_of = fo_model_memory_take(m, (size_t)m->all_rows * sizeof *m->place_of, false);
    m->place_token = fo_model_memory_take(m, (size_t)m->places * sizeof *m->place_token, false);
    fo_status status = m->place_of && m->place_token ? FO_OK : FO_NO_MEMORY;
    for (int d = 0; status == FO_OK && d < m->config.dp; d++)
        status = list_replica(m, d);
    if (status == FO_OK)
        status = create_plan(m, FO_REDUCE_SCATTER, "embedding of all replicas", &m->lookup);
    if (status == FO_OK)
        status = create_plan(m, FO_ALL_GATHER, "embedding backward of all replicas",
                             &m->lookup_backward);
    return status;
}

void fo_model_lookup_destroy(fo_model *m)
{
    if (m->lookup_backward && m->rows_travel)
        fo_plan_finish(m->lookup_backward);
    fo_plan_destroy(m->lookup);
    fo_plan_destroy(m->lookup_backward);
}

void fo_model_lookup_arrange(fo_model *m, const int32_t *from)
{
    if (!m->by_rows)
        return;
    for (int64_t i = 0; i < m->places; i++)
        m->place_token[i] = -1;
    for (int64_t i = 0; i < m->all_rows; i++)
        m->place_token[m->place_of[i]] = from[i];
}

/* What the own shard has of the token's row: values [from, to) of it. False: nothing. */
static bool find_part(const fo_model *m, const fo_model_piece *piece, int32_t token, int64_t *from,
                      int64_t *to)
{
    int64_t dim = m->config.dim, entry = token - m->vocabulary_begin;
    if (token < 0 || entry < 0 || entry >= m->vl)
        return false;
    *from = piece->begin - entry * dim;
    *to = *from + piece->count;
    *from = *from < 0 ? 0 : *from;
    *to = *to > dim ? dim : *to;
    return *from < *to;
}

/* ---- forward --------------------------------------------------------------------------------- */

/* What the own shard has of the rows, zeros elsewhere: the sum is exact. */
static void produce(void *arg, int64_t row, int64_t rows, float *out)
{
    const fo_model *m = arg;
    const fo_parameter *wte = fo_model_params_embedding(m, FO_MODEL_WTE);
    int64_t dim = m->config.dim, from, to;
    fo_model_piece piece;
    fo_model_own_piece(m, wte, &piece);
    memset(out, 0, (size_t)(rows * dim) * sizeof *out);
    for (int64_t i = 0; i < rows; i++) {
        int32_t token = m->place_token[row + i];
        if (find_part(m, &piece, token, &from, &to))
            memcpy(out + i * dim + from, wte->value + (token - m->vocabulary_begin) * dim + from,
                   (size_t)(to - from) * sizeof *out);
    }
}

fo_status fo_model_lookup_forward(fo_model *m, float *x)
{
    fo_plan_args args = {.produce = produce, .produce_arg = m, .y = x};
    return fo_plan_execute(m->lookup, &args);
}

/* ---- backward -------------------------------------------------------------------------------- */

fo_status fo_model_lookup_backward(fo_model *m)
{
    fo_plan_args args = {.x = m->dx,
                         .y = m->dembed,
                         .meanwhile = fo_model_reduce_piece,
                         .meanwhile_arg = m};
    fo_status status = m->early ? fo_plan_start(m->lookup_backward, &args)
                                : fo_plan_execute(m->lookup_backward, &args);
    m->rows_travel = status == FO_OK;
    return status;
}

fo_status fo_model_lookup_reduce(fo_model *m)
{
    if (!m->rows_travel)
        return FO_OK;
    fo_status status = fo_plan_finish(m->lookup_backward);
    m->rows_travel = false;
    float *grad = fo_model_params_embedding(m, FO_MODEL_WTE)->grad;
    int64_t dim = m->config.dim, from, to;
    fo_model_piece piece;
    fo_model_own_piece(m, fo_model_params_embedding(m, FO_MODEL_WTE), &piece);
    for (int64_t i = 0; status == FO_OK && i < m->places; i++) {
        int32_t token = m->place_token[i];
        if (!find_part(m, &piece, token, &from, &to))
            continue;
        float *sum = grad + (token - m->vocabulary_begin) * dim + from;
        m->kernel->add(sum, FO_F32, m->dembed + i * dim + from, FO_F32, sum, FO_F32, to - from);
    }
    return status;
}
