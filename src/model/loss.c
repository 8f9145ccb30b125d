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

fo_status fo_model_loss_forward(fo_model *m, double *loss)
{
    float *all = m->stats + 3 * m->rows;
    m->kernel->xent_stats(m->logits, m->targets, m->rows, m->vl, m->vocabulary_begin, m->stats);
    fo_status status =
        fo_group_allgather(m->group, m->stats, (size_t)(3 * m->rows) * sizeof *all, all);
    if (status != FO_OK)
        return status;
    double sum = 0.0;
    for (int64_t row = 0; row < m->rows; row++) {
        double lse, target;
        combine(all, m->rows, m->ranks, row, &lse, &target);
        m->lse[row] = (float)lse;
        sum += lse - target;
    }
    *loss = sum / (double)m->rows;
    return FO_OK;
}

void fo_model_loss_backward(fo_model *m, float scale)
{
    m->kernel->xent_grad(m->logits, m->targets, m->lse, m->rows, m->vl, m->vocabulary_begin,
                         scale / (float)m->rows, m->dlogits, m->config.dtype);
}
