/* Logits of one position, for sampling. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "model/state.h"

static int owner_of(const fo_model *m, int64_t row)
{
    int rank = 0;
    while (fo_shard_begin(m->rows, m->ranks, rank + 1) <= row)
        rank++;
    return rank;
}

/* The own part of the row's logits, at out. The plan has one row a rank; the owner's is the one
 * asked for, `blank` stands for the others. */
static fo_status own_part(fo_model *m, int64_t row, void *blank, float *all, float *out)
{
    int owner = owner_of(m, row);
    size_t bytes = (size_t)m->config.dim * fo_dtype_size(m->config.dtype);
    const void *x = blank;
    if (owner == m->rank)
        x = (const char *)m->ln_f.y + (size_t)(row - m->shard_row) * bytes;
    fo_plan_args args = {.x = x,
                         .w = fo_model_params_embedding(m, FO_MODEL_WTE)->value,
                         .y = all,
                         .w_version = m->version};
    fo_status status = fo_plan_execute(m->plans[FO_MODEL_PLAN_LOGITS], &args);
    if (status == FO_OK)
        memcpy(out, all + owner * m->vl, (size_t)m->vl * sizeof *out);
    return status;
}

/* By table the owner has all of the row's logits; the others give what is not looked at. */
static fo_status whole_row(fo_model *m, int64_t row, float *mine, float *all, float *logits)
{
    int owner = owner_of(m, row);
    size_t bytes = (size_t)m->config.vocabulary * sizeof *mine;
    fo_status status = FO_OK;
    if (owner == m->rank)
        status = fo_model_head_rows(m, row - m->shard_row, 1, mine);
    if (status == FO_OK)
        status = fo_group_allgather(m->group, mine, bytes, all);
    if (status == FO_OK)
        memcpy(logits, (const char *)all + (size_t)owner * bytes, bytes);
    return status;
}

/* Shares differ in length: all ranks give as much as the longest. */
static fo_status gather(fo_model *m, const float *mine, float *all, float *logits)
{
    int64_t vocabulary = m->config.vocabulary, longest = fo_shard_rows(vocabulary, m->ranks, 0);
    fo_status status = fo_group_allgather(m->group, mine, (size_t)longest * sizeof *mine, all);
    for (int r = 0; status == FO_OK && r < m->ranks; r++)
        memcpy(logits + fo_shard_begin(vocabulary, m->ranks, r), all + r * longest,
               (size_t)fo_shard_rows(vocabulary, m->ranks, r) * sizeof *logits);
    return status;
}

fo_status fo_model_logits(fo_model *m, const int32_t *tokens, int64_t row, float *logits)
{
    if (row < 0 || row >= m->rows)
        return fo_base_error(FO_INVALID, "model: logits of row %" PRId64 ", expected 0 to %" PRId64,
                             row, m->rows - 1);
    if (m->replicas)
        return fo_base_error(FO_UNSUPPORTED,
                             "model: logits of one row were asked of %d replicas, expected one",
                             m->config.dp);
    m->forward_done = false;
    size_t longest = m->by_table ? (size_t)m->config.vocabulary
                                 : (size_t)fo_shard_rows(m->config.vocabulary, m->ranks, 0);
    float *mine = calloc(longest, sizeof *mine);
    float *all = calloc(longest * (size_t)m->ranks, sizeof *all);
    void *blank = calloc((size_t)m->config.dim, sizeof(float));
    fo_status status = FO_OK;
    if (!mine || !all || !blank)
        status = fo_base_error(FO_NO_MEMORY, "no memory for logits of %" PRId64 " tokens",
                               m->config.vocabulary);
    if (status == FO_OK && !m->by_table)
        status = fo_model_plans_create_logits(m);
    if (status == FO_OK)
        status = fo_model_forward_trunk(m, tokens, -1);
    if (status == FO_OK && m->by_table)
        status = whole_row(m, fo_model_rows_find(m, row), mine, all, logits);
    if (status == FO_OK && !m->by_table)
        status = own_part(m, fo_model_rows_find(m, row), blank, all, mine);
    if (status == FO_OK && !m->by_table)
        status = gather(m, mine, all, logits);
    free(mine);
    free(all);
    free(blank);
    return status;
}
