/* One training step of one rank. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "flashoverlap/trace.h"
#include "group/group.h"
#include "train/train.h"

/* What every rank tells every other one before the parameters change. */
typedef struct exchange {
    double loss, norm;
    int64_t compute_ns, exposed_ns;
    int64_t interrupted;
} exchange;

fo_status fo_train_worker_open(const fo_train_job *job, fo_group *group, const char *overlap,
                               fo_train_worker *worker)
{
    const fo_train_options *o = &job->options;
    size_t tokens = (size_t)(o->batch * o->context);
    *worker = (fo_train_worker){.job = job,
                                .group = group,
                                .kernel = fo_group_kernel_ops(group),
                                .config = job->config};
    if (overlap)
        worker->config.overlap = overlap;
    worker->inputs = malloc(tokens * sizeof *worker->inputs);
    worker->targets = malloc(tokens * sizeof *worker->targets);
    fo_status status = FO_OK;
    if (!worker->inputs || !worker->targets)
        status = fo_base_error(FO_NO_MEMORY, "no memory for a batch of %zu tokens; lower --batch",
                               tokens);
    if (status == FO_OK)
        status = fo_model_create(group, &worker->config, o->batch, &worker->model);
    if (status != FO_OK)
        fo_train_worker_close(worker);
    return status;
}

void fo_train_worker_close(fo_train_worker *worker)
{
    if (worker->model)
        fo_model_destroy(worker->model);
    free(worker->inputs);
    free(worker->targets);
    *worker = (fo_train_worker){0};
}

static fo_status gradients(fo_train_worker *worker, int64_t step, double *loss, double *norm)
{
    const fo_train_options *o = &worker->job->options;
    fo_status status = FO_OK;
    *loss = 0;
    int64_t begin = fo_trace_clock();
    fo_model_zero_gradients(worker->model);
    fo_trace_local(worker->group, "zero gradients", begin);
    for (int64_t i = 0; status == FO_OK && i < o->accumulate; i++) {
        int64_t micro = (step - 1) * o->accumulate + i;
        double one = 0;
        status = fo_data_batch(worker->job->data, 0, o->seed, micro, o->batch, o->context,
                               worker->inputs, worker->targets);
        if (status == FO_OK)
            status = fo_model_forward(worker->model, worker->inputs, worker->targets, micro, &one);
        if (status == FO_OK)
            status = fo_model_backward(worker->model, worker->inputs, worker->targets, micro,
                                       1.0f / (float)o->accumulate);
        *loss += one / (double)o->accumulate;
    }
    return status == FO_OK ? fo_model_reduce_gradients(worker->model, norm) : status;
}

static fo_status not_finite(const fo_train_worker *worker, int64_t step, const exchange *found)
{
    bool loss = !isfinite(found->loss);
    return fo_base_error(
        FO_NUMERIC,
        "the %s of step %" PRId64 " is %g, expected a finite number: stopped before the "
        "parameters changed and saved nothing, earlier checkpoints stay; lower --lr "
        "(now %g) or set --clip",
        loss ? "loss" : "gradient norm", step, loss ? found->loss : found->norm,
        (double)worker->job->options.lr);
}

/* Every rank takes the same values and decides alike. */
static fo_status settle(fo_train_worker *worker, exchange *mine, fo_train_values *values)
{
    int ranks = fo_group_size(worker->group);
    exchange *all = malloc((size_t)ranks * sizeof *all);
    if (!all)
        return fo_base_error(FO_NO_MEMORY, "no memory for the exchange of %d ranks", ranks);
    fo_status status = fo_group_allgather(worker->group, mine, sizeof *mine, all);
    int slowest = 0;
    for (int r = 0; status == FO_OK && r < ranks; r++) {
        if (!isfinite(all[r].loss) || !isfinite(all[r].norm))
            status = not_finite(worker, values->step, &all[r]);
        if (all[r].compute_ns > all[slowest].compute_ns)
            slowest = r;
        values->interrupted |= all[r].interrupted != 0;
    }
    if (status == FO_OK) {
        values->loss = all[0].loss;
        values->grad_norm = all[0].norm;
        values->exposed_ms = (double)all[slowest].exposed_ns * 1e-6;
    }
    free(all);
    return status;
}

static void update(fo_train_worker *worker, const fo_train_values *values)
{
    const fo_train_options *o = &worker->job->options;
    double scale = fo_train_optimizer_scale(o->clip, values->grad_norm);
    int count = fo_model_parameter_count(worker->model);
    int64_t begin = fo_trace_clock();
    for (int i = 0; i < count; i++)
        fo_train_optimizer_update(worker->kernel, o, values->step, scale,
                                  fo_model_parameter(worker->model, i));
    fo_model_parameters_changed(worker->model);
    fo_trace_local(worker->group, "optimizer", begin);
}

fo_status fo_train_step(fo_train_worker *worker, int64_t step, fo_train_values *values)
{
    *values =
        (fo_train_values){.step = step, .lr = fo_train_optimizer_lr(&worker->job->options, step)};
    exchange mine = {0};
    fo_model_report before, after;
    fo_model_report_get(worker->model, &before);
    int64_t begin = fo_base_clock_ns();
    fo_status status = gradients(worker, step, &mine.loss, &mine.norm);
    if (status != FO_OK)
        return status;
    fo_model_report_get(worker->model, &after);
    mine.compute_ns = after.compute_ns - before.compute_ns;
    mine.exposed_ns = after.exposed_ns - before.exposed_ns;
    mine.interrupted = fo_group_interrupted(worker->group);
    status = settle(worker, &mine, values);
    if (status != FO_OK)
        return status;
    update(worker, values);
    values->step_ms = (double)(fo_base_clock_ns() - begin) * 1e-6;
    return FO_OK;
}
