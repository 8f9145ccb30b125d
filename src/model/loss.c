/* Cross-entropy over a vocabulary that is split over ranks. */
#include <math.h>

#include "model/state.h"

/* What the ranks know of one row, put together in rank order: log-sum-exp and the target's
 * logit. */
static void combine(const float *stats, int64_t rows, int ranks, int64_t row, double *lse,
                    double *target)
{
    double max = -INFINITY, sum = 0.0;
    *target = 0.0;
    for (int r = 0; r < ranks; r++) {
        const float *own = stats + 3 * (r * rows + row);
        max = own[0] > max ? own[0] : max;
        *target += own[2];
    }
    for (int r = 0; r < ranks; r++) {
        const float *own = stats + 3 * (r * rows + row);
        if (own[0] > -INFINITY ||
            own[1] != 0.0f) /* a rank without vocabulary entries has neither */
            sum += own[1] * exp(own[0] - max);
    }
    *lse = max + log(sum);
}

/* The loss of `rows` rows whose stats of all `ranks` parts are at hand. */
static double sum_rows(fo_model *m, const float *stats, int64_t rows, int ranks)
{
    double sum = 0.0;
    for (int64_t row = 0; row < rows; row++) {
        double lse, target;
        combine(stats, rows, ranks, row, &lse, &target);
        m->lse[row] = (float)lse;
        sum += lse - target;
    }
    return sum;
}

/* Own rows, whole vocabulary: every rank sums its rows, then the sums are put together in rank order. */
static fo_status forward_rows(fo_model *m, double *loss)
{
    m->kernel->xent_stats(m->logits, m->targets + m->shard_row, m->shard_rows, m->config.vocabulary,
                          0, m->stats);
    double mine = sum_rows(m, m->stats, m->shard_rows, 1), sum = 0.0;
    double *all = (double *)(m->stats + 4 * m->rows);
    fo_status status = fo_group_allgather(m->group, &mine, sizeof mine, all);
    for (int r = 0; status == FO_OK && r < m->ranks; r++)
        sum += all[r];
    *loss = sum / (double)m->all_rows;
    return status;
}

fo_status fo_model_loss_forward(fo_model *m, double *loss)
{
    if (m->by_table)
        return forward_rows(m, loss);
    float *all = m->stats + 3 * m->rows;
    m->kernel->xent_stats(m->logits, m->targets, m->rows, m->vl, m->vocabulary_begin, m->stats);
    fo_status status =
        fo_group_allgather(m->group, m->stats, (size_t)(3 * m->rows) * sizeof *all, all);
    if (status == FO_OK)
        *loss = sum_rows(m, all, m->rows, m->ranks) / (double)m->all_rows;
    return status;
}

void fo_model_loss_backward(fo_model *m, float scale)
{
    scale /= (float)m->all_rows;
    if (m->by_table)
        m->kernel->xent_grad(m->logits, m->targets + m->shard_row, m->lse, m->shard_rows,
                             m->config.vocabulary, 0, scale, m->dlogits, m->config.dtype);
    else
        m->kernel->xent_grad(m->logits, m->targets, m->lse, m->rows, m->vl, m->vocabulary_begin,
                             scale, m->dlogits, m->config.dtype);
}
