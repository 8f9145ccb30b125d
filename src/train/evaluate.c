/* Loss on the held-out part: always the same batches, whose sequences the replicas share. */
#include <stdlib.h>

#include "base/error.h"
#include "train/train.h"

fo_status fo_train_sum_replicas(const fo_train_worker *worker, double mine, double *sum)
{
    int ranks = fo_group_size(worker->group), tp = worker->config.tp;
    double *all = malloc((size_t)ranks * sizeof *all);
    if (!all)
        return fo_base_error(FO_NO_MEMORY, "no memory for the sums of %d ranks", ranks);
    fo_status status = fo_group_allgather(worker->group, &mine, sizeof mine, all);
    *sum = 0;
    for (int r = 0; status == FO_OK && r < ranks; r += tp)
        *sum += all[r];
    free(all);
    return status;
}

fo_status fo_train_evaluate(fo_train_worker *worker, double *loss)
{
    const fo_train_options *o = &worker->job->options;
    double sum = 0, one = 0;
    fo_status status = FO_OK;
    for (int64_t i = 0; status == FO_OK && i < o->eval_batches; i++) {
        status = fo_data_batch(worker->job->data, 1, o->seed, i, o->batch, o->context,
                               worker->inputs, worker->targets);
        if (status == FO_OK)
            status = fo_model_forward(worker->model, worker->inputs, worker->targets, -1, &one);
        sum += one;
    }
    if (status == FO_OK)
        status = fo_train_sum_replicas(worker, sum, &sum);
    *loss = sum / (double)o->eval_batches;
    return status;
}
