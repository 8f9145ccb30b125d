/* One training step of one rank. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "flashoverlap/trace.h"
#include "group/group.h"
#include "train/train.h"

enum { TURN = 1 << 18 /* values updated before messages are looked at */ };

/* What every rank tells every other one before the parameters change. */
typedef struct exchange {
    double loss; /* the part of the rank's replica */
    double norm;
    int64_t compute_ns, exposed_ns, data_exposed_ns;
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
    if (overlap) {
        worker->config.overlap = overlap;
        worker->config.overlap_count = 0;
    }
    worker->inputs = malloc(tokens * sizeof *worker->inputs);
    worker->targets = malloc(tokens * sizeof *worker->targets);
    fo_status status = fo_model_config_split(&worker->config, fo_group_size(group));
    if (status == FO_OK && (!worker->inputs || !worker->targets))
        status = fo_base_error(FO_NO_MEMORY, "no memory for a batch of %zu tokens; lower --batch",
                               tokens);
    status = fo_train_agree(group, status);
    if (status == FO_OK)
        status = fo_train_agree(group,
                                fo_model_create(group, &worker->config, o->batch, &worker->model));
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
        bool last = i + 1 == o->accumulate;
        double one = 0;
        status = fo_data_batch(worker->job->data, 0, o->seed, micro, o->batch, o->context,
                               worker->inputs, worker->targets);
        if (status == FO_OK)
            status = fo_model_forward(worker->model, worker->inputs, worker->targets, micro, &one);
        if (status == FO_OK)
            status = fo_model_backward(worker->model, worker->inputs, worker->targets, micro,
                                       1.0f / (float)o->accumulate, last);
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

/* The loss is the same within a replica, the norm everywhere. */
static fo_status check_alike(const fo_train_worker *worker, int64_t step, const exchange *all,
                             double *scratch)
{
    int ranks = fo_group_size(worker->group), tp = worker->config.tp;
    fo_status status = FO_OK;
    for (int r = 0; r < ranks; r++)
        scratch[r] = all[r].loss;
    for (int r = 0; status == FO_OK && r < ranks; r += tp)
        status = fo_train_diverge_check(step, "loss", scratch + r, r, tp);
    for (int r = 0; r < ranks; r++)
        scratch[r] = all[r].norm;
    if (status == FO_OK)
        status = fo_train_diverge_check(step, "gradient norm", scratch, 0, ranks);
    return status;
}

/* From what all ranks told. */
static fo_status judge(const fo_train_worker *worker, const exchange *all, double *scratch,
                       fo_train_values *values)
{
    int ranks = fo_group_size(worker->group), slowest = 0;
    fo_status status = FO_OK;
    for (int r = 0; status == FO_OK && r < ranks; r++) {
        if (!isfinite(all[r].loss) || !isfinite(all[r].norm))
            status = not_finite(worker, values->step, &all[r]);
        if (all[r].compute_ns > all[slowest].compute_ns)
            slowest = r;
        values->interrupted |= all[r].interrupted != 0;
    }
    if (status == FO_OK)
        status = check_alike(worker, values->step, all, scratch);
    for (int r = 0; r < ranks; r += worker->config.tp)
        values->loss += all[r].loss;
    values->grad_norm = all[0].norm;
    values->exposed_ms = (double)all[slowest].exposed_ns * 1e-6;
    values->data_exposed_ms = (double)all[slowest].data_exposed_ns * 1e-6;
    return status;
}

/* Every rank takes the same values and decides alike. */
static fo_status settle(fo_train_worker *worker, exchange *mine, fo_train_values *values)
{
    int ranks = fo_group_size(worker->group);
    exchange *all = malloc((size_t)ranks * sizeof *all);
    double *scratch = malloc((size_t)ranks * sizeof *scratch);
    fo_status status = FO_OK;
    if (!all || !scratch)
        status = fo_base_error(FO_NO_MEMORY, "no memory for the exchange of %d ranks", ranks);
    if (status == FO_OK)
        status = fo_group_allgather(worker->group, mine, sizeof *mine, all);
    if (status == FO_OK)
        status = judge(worker, all, scratch, values);
    free(all);
    free(scratch);
    return status;
}

/* Elements are updated each for itself, so pieces may be cut anywhere. */
static fo_status update_piece(fo_train_worker *worker, const fo_train_values *values, double scale,
                              fo_model_piece piece)
{
    int64_t left = piece.count;
    fo_status status = FO_OK;
    for (; status == FO_OK && left > 0; left -= piece.count) {
        piece.count = left < TURN ? left : TURN;
        fo_train_optimizer_update(worker->kernel, &worker->job->options, values->step, scale,
                                  &piece);
        piece.value += piece.count;
        piece.grad += piece.count;
        piece.m += piece.count;
        piece.v += piece.count;
        status = fo_group_progress(worker->group);
    }
    return status;
}

/* The own shards, in the order in which the next pass needs them: while one is updated those before it travel. */
static fo_status update(fo_train_worker *worker, const fo_train_values *values)
{
    double scale = fo_train_optimizer_scale(worker->job->options.clip, values->grad_norm);
    fo_model_piece piece;
    fo_status status = FO_OK;
    for (int b = 0; status == FO_OK && b < fo_model_bucket_count(worker->model); b++) {
        int64_t begin = fo_trace_clock();
        for (int at = 0; status == FO_OK && fo_model_bucket_piece(worker->model, b, &at, &piece);)
            status = update_piece(worker, values, scale, piece);
        fo_trace_local(worker->group, "optimizer", begin);
        if (status == FO_OK)
            status = fo_model_bucket_updated(worker->model, b);
    }
    return status;
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
    const fo_model_report *carried = &worker->carried;
    mine.compute_ns = after.compute_ns - before.compute_ns + carried->compute_ns;
    mine.exposed_ns = after.exposed_ns - before.exposed_ns + carried->exposed_ns;
    mine.data_exposed_ns =
        after.data_exposed_ns - before.data_exposed_ns + carried->data_exposed_ns;
    mine.interrupted = fo_group_interrupted(worker->group);
    status = settle(worker, &mine, values);
    if (status == FO_OK)
        status = update(worker, values);
    values->step_ms = (double)(fo_base_clock_ns() - begin) * 1e-6;
    fo_model_report_get(worker->model, &before);
    worker->carried = (fo_model_report){
        .compute_ns = before.compute_ns - after.compute_ns,
        .exposed_ns = before.exposed_ns - after.exposed_ns,
        .data_exposed_ns = before.data_exposed_ns - after.data_exposed_ns,
    };
    return status;
}
