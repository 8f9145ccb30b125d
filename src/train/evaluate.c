/* Loss on the held-out part: always the same batches. */
#include "train/train.h"

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
    *loss = sum / (double)o->eval_batches;
    return status;
}
