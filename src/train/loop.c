/* The whole run: start the group, take the steps, evaluate, save, stop when asked to. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/quantile.h"
#include "checkpoint/checkpoint.h"
#include "flashoverlap/job.h"
#include "train/train.h"

/* One rank's run. */
typedef struct run {
    fo_train_worker worker;
    double peak;      /* FLOP/s of all ranks */
    int64_t begin_ns; /* of the first step */
    int64_t step;     /* the last one taken */
    double loss, val_loss;
    double predicted_ms; /* of the first step, exposed */
    /* rank 0: of every step */
    double *step_ms, *exposed_ms;
    int64_t count, capacity;
    bool filled;        /* the result is where the caller sees it */
    fo_train_slow slow; /* who was waited for */
} run;

static bool first_rank(const run *r)
{
    return fo_group_rank(r->worker.group) == 0;
}

/* ---- figures ---------------------------------------------------------------------------------------- */

static fo_train_figures figures_of(const run *r, double step_ms)
{
    const fo_train_options *o = &r->worker.job->options;
    double tokens = (double)(o->batch * o->context * o->accumulate);
    fo_train_figures f = {.tokens_per_s = step_ms > 0 ? tokens / (step_ms * 1e-3) : 0, .mfu = NAN};
    if (r->peak > 0)
        f.mfu = fo_model_flops_per_token(&r->worker.config) * f.tokens_per_s / r->peak;
    return f;
}

static fo_status remember(run *r, const fo_train_values *values)
{
    if (r->count == r->capacity) {
        int64_t capacity = r->capacity ? 2 * r->capacity : 1024;
        double *step_ms = realloc(r->step_ms, (size_t)capacity * sizeof *step_ms);
        if (step_ms)
            r->step_ms = step_ms;
        double *exposed_ms = realloc(r->exposed_ms, (size_t)capacity * sizeof *exposed_ms);
        if (exposed_ms)
            r->exposed_ms = exposed_ms;
        if (!step_ms || !exposed_ms)
            return fo_base_error(FO_NO_MEMORY, "no memory for the times of %" PRId64 " steps",
                                 capacity);
        r->capacity = capacity;
    }
    r->step_ms[r->count] = values->step_ms;
    r->exposed_ms[r->count++] = values->exposed_ms;
    return FO_OK;
}

/* Rank 0 says what a step came to. */
static fo_status report_step(run *r, const fo_train_values *values)
{
    const fo_train_job *job = r->worker.job;
    int64_t taken = values->step - job->done, left = job->options.steps - values->step;
    double elapsed_s = (double)(fo_base_clock_ns() - r->begin_ns) * 1e-9;
    fo_train_figures figures = figures_of(r, values->step_ms);
    fo_train_progress_step(job, values, &figures, elapsed_s / (double)taken * (double)left);
    fo_status status = remember(r, values);
    if (status == FO_OK)
        status = fo_train_log_step(job, values, &figures);
    return fo_train_own_words(r->worker.group, status);
}

static void fill_slow(const run *r, fo_train_result *result)
{
    result->slow_rank = r->slow.rank;
    result->waited_by = r->slow.by;
    result->waited_s = r->slow.waited_s;
    result->waited_part = r->slow.part;
    if (r->slow.rank >= 0)
        snprintf(result->slow_host, sizeof result->slow_host, "%s",
                 fo_group_host(r->worker.group, r->slow.rank));
}

/* Who was waited for, once the steps are over: a line when one rank stands out. Collective. */
static fo_status notice_slow(run *r)
{
    char text[256];
    double elapsed_s = (double)(fo_base_clock_ns() - r->begin_ns) * 1e-9;
    fo_status status = fo_train_waits_find(&r->worker, elapsed_s, &r->slow);
    if (status != FO_OK || r->slow.rank < 0 || !first_rank(r))
        return status;
    const char *host = fo_group_host(r->worker.group, r->slow.rank);
    snprintf(text, sizeof text,
             "rank %d%s%s%s was waited for: %.1f s in all by %d rank%s (%.0f %% of the run)",
             r->slow.rank, *host ? " (host " : "", host, *host ? ")" : "", r->slow.waited_s,
             r->slow.by, r->slow.by == 1 ? "" : "s", 100 * r->slow.part);
    fo_train_progress_note(r->worker.job, "slow", text);
    return FO_OK;
}

/* What waiting is predicted to cost a step, where all that is needed for it is known: with overlap auto. After the first
 * step, of which all executions are. Collective. */
static fo_status predict_exposed(run *r)
{
    double total_s, exposed_s = NAN;
    fo_status status = fo_model_predict(r->worker.model, false, &total_s, &exposed_s);
    r->predicted_ms = exposed_s * 1e3;
    return status == FO_UNSUPPORTED ? FO_OK
                                    : status; /* of the transport's own collectives nobody knows */
}

static void compare_predicted(const run *r)
{
    char text[160];
    int64_t skip = r->count > 1;
    if (!first_rank(r) || !r->count || isnan(r->predicted_ms))
        return;
    snprintf(text, sizeof text, "waiting for messages %.2f ms a step, predicted %.2f ms",
             fo_base_median(r->exposed_ms + skip, r->count - skip), r->predicted_ms);
    fo_train_progress_note(r->worker.job, "waits", text);
}

/* Medians leave the first step out, which warms up, unless it is the only one. */
static void fill_result(run *r)
{
    int64_t skip = r->count > 1;
    if (r->filled || !fo_train_answers(r->worker.group))
        return;
    r->filled = true;
    fo_train_result *result = &r->worker.job->shared->result;
    fill_slow(r, result);
    result->tp = r->worker.config.tp;
    result->dp = r->worker.config.dp;
    result->optimizer_bytes = fo_model_optimizer_bytes(r->worker.model);
    result->step = r->step;
    result->loss = r->loss;
    result->val_loss = r->val_loss;
    result->step_ms = fo_base_median(r->step_ms + skip, r->count - skip);
    result->exposed_ms = fo_base_median(r->exposed_ms + skip, r->count - skip);
    fo_train_figures figures = figures_of(r, result->step_ms);
    result->tokens_per_s = figures.tokens_per_s;
    result->mfu = figures.mfu;
}

/* ---- steps ------------------------------------------------------------------------------------------ */

static fo_status evaluate(run *r)
{
    fo_status status = fo_train_evaluate(&r->worker, &r->val_loss);
    if (status != FO_OK || !first_rank(r))
        return status;
    fo_train_progress_evaluation(r->worker.job, r->step, r->val_loss);
    return fo_train_own_words(r->worker.group,
                              fo_train_log_evaluation(r->worker.job, r->step, r->val_loss));
}

/* For a rank that is killed before it can say it; the words of last_words(). */
static void advise(const fo_train_job *job, int64_t saved)
{
    char advice[560];
    const fo_train_options *o = &job->options;
    if (saved)
        snprintf(advice, sizeof advice, "; go on with --resume %.480s (step %" PRId64 ")", o->out,
                 saved);
    else if (job->resume[0])
        snprintf(advice, sizeof advice,
                 "; nothing was saved since, go on with --resume %.440s (step %" PRId64 ")",
                 job->resume, job->done);
    else
        snprintf(advice, sizeof advice, "; nothing was saved%s",
                 o->out ? " yet" : ": use --out and --save-every");
    fo_job_advise(advice);
}

static fo_status save(run *r)
{
    fo_status status = fo_train_together(r->worker.group, fo_train_save(&r->worker, r->step));
    if (status == FO_OK && first_rank(r))
        fo_train_progress_saved(r->worker.job, r->step);
    if (status == FO_OK)
        advise(r->worker.job, r->step);
    return status;
}

/* All ranks stop for the same reason, which they have just said. */
static fo_status stop(const run *r, fo_status why)
{
    if (fo_train_answers(r->worker.group))
        r->worker.job->shared->stopped = true;
    return fo_train_together(r->worker.group, why);
}

static fo_status stop_interrupted(run *r)
{
    const fo_train_options *o = &r->worker.job->options;
    fo_status status = notice_slow(r);
    if (status != FO_OK)
        return status;
    if (o->out)
        fo_base_error(FO_INTERRUPTED,
                      "interrupted after step %" PRId64 " of %" PRId64 ": the state is saved in "
                      "%s/step-%08" PRId64 "; go on with --resume %s",
                      r->step, o->steps, o->out, r->step, o->out);
    else
        fo_base_error(FO_INTERRUPTED,
                      "interrupted after step %" PRId64 " of %" PRId64 ": nothing is saved, as no "
                      "directory was given; use --out next time",
                      r->step, o->steps);
    return stop(r, FO_INTERRUPTED);
}

/* What follows a step: words, evaluation, checkpoint, the end. */
static fo_status after_step(run *r, const fo_train_values *values)
{
    const fo_train_options *o = &r->worker.job->options;
    bool last = r->step == o->steps;
    bool evaluates = o->eval_every > 0 && (last || r->step % o->eval_every == 0);
    bool saves = o->save_every > 0 && r->step % o->save_every == 0;
    fo_status status = first_rank(r) ? report_step(r, values) : FO_OK;
    if (status == FO_OK && evaluates && !values->interrupted)
        status = evaluate(r);
    if (status == FO_OK && o->out && (last || saves || values->interrupted))
        status = save(r);
    if (status == FO_OK && values->interrupted && !last)
        status = stop_interrupted(r);
    return status;
}

static fo_status take_steps(run *r)
{
    const fo_train_job *job = r->worker.job;
    fo_status status = FO_OK;
    r->begin_ns = fo_base_clock_ns();
    advise(job, 0);
    for (int64_t step = job->done + 1; status == FO_OK && step <= job->options.steps; step++) {
        fo_train_values values;
        status = fo_train_step(&r->worker, step, &values);
        if (status == FO_NUMERIC)
            return stop(r, status);
        if (status != FO_OK)
            return status;
        r->step = step;
        r->loss = values.loss;
        if (step == job->done + 1)
            status = predict_exposed(r);
        if (status == FO_OK)
            status = after_step(r, &values);
    }
    if (status == FO_OK)
        compare_predicted(r);
    return status == FO_OK ? notice_slow(r) : status;
}

static fo_status train_rank(fo_group *group, void *arg)
{
    const fo_train_job *job = arg;
    run r = {
        .step = job->done, .loss = NAN, .val_loss = NAN, .predicted_ms = NAN, .slow = {.rank = -1}};
    char note[512];
    fo_status status = fo_train_enter(group, &job->fingerprint, note, sizeof note);
    if (status == FO_OK)
        status = fo_train_together(group, fo_train_worker_open(job, group, NULL, &r.worker));
    if (status != FO_OK)
        return status;
    if (fo_train_answers(group))
        job->shared->entered = true;
    if (job->done || job->resume[0])
        status = fo_train_together(group, fo_train_load(group, &r.worker.config, r.worker.model,
                                                        job->resume, true));
    if (status == FO_OK)
        status = fo_train_peak(group, job->config.dtype, &r.peak);
    if (status == FO_OK)
        status = fo_train_link(job, group);
    if (status == FO_OK && first_rank(&r))
        fo_train_progress_head(&r.worker, r.peak, note);
    if (status == FO_OK)
        status = take_steps(&r);
    fill_result(&r);
    free(r.step_ms);
    free(r.exposed_ms);
    fo_train_worker_close(&r.worker);
    return status;
}

/* ---- last words ------------------------------------------------------------------------------------- */

/* The newest complete checkpoint of a directory, and its step. */
static bool find_checkpoint(const char *directory, int64_t *step)
{
    char folder[FO_TRAIN_PATH];
    fo_train_state state = {0};
    bool found = directory &&
                 fo_checkpoint_directory_latest(directory, folder, sizeof folder) == FO_OK &&
                 fo_train_state_read(folder, &state) == FO_OK;
    *step = state.step;
    fo_train_state_clear(&state);
    return found;
}

/* When ranks failed: where to go on from. Looked up in the files, since the rank that saved may be gone, or its
 * process another one. */
static fo_status last_words(const fo_train_job *job, fo_status status)
{
    const fo_train_options *o = &job->options;
    char sentence[1024];
    int64_t step;
    snprintf(sentence, sizeof sentence, "%.700s", fo_last_error());
    if (find_checkpoint(o->out, &step))
        return fo_base_error(status, "%s; go on with --resume %s (step %" PRId64 ")", sentence,
                             o->out, step);
    if (job->resume[0] && find_checkpoint(job->resume, &step))
        return fo_base_error(status,
                             "%s; nothing was saved since, go on with --resume %s (step %" PRId64
                             ")",
                             sentence, job->resume, step);
    if (!o->out)
        return fo_base_error(status, "%s; nothing was saved: use --out and --save-every", sentence);
    if (!fo_job_first())
        return fo_base_error(status, "%s; what rank 0 saved is in %s on its host", sentence,
                             o->out);
    return fo_base_error(status, "%s; nothing was saved yet%s", sentence,
                         o->save_every ? "" : ": use --save-every");
}

/* ---- the call --------------------------------------------------------------------------------------- */

static fo_status run_job(fo_train_job *job, fo_train_result *result)
{
    fo_train_shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return fo_base_error(FO_NO_MEMORY, "no shared memory of %zu bytes for the result (%s)",
                             sizeof *shared, strerror(errno));
    job->shared = shared;
    shared->result =
        (fo_train_result){.step = job->done, .loss = NAN, .val_loss = NAN, .slow_rank = -1};
    if (job->progress)
        fflush(job->progress);
    fo_status status = fo_train_start(&job->options.group, train_rank, job);
    if (status != FO_OK && shared->entered && !shared->stopped && status != FO_INTERRUPTED)
        status = last_words(job, status);
    if (result)
        *result = shared->result;
    munmap(shared, sizeof *shared);
    return status;
}

fo_status fo_train_run(const fo_train_options *options, fo_train_result *result)
{
    fo_train_job job;
    fo_status status = fo_train_job_open(options, &job);
    status = status == FO_OK ? run_job(&job, result) : fo_train_refuse(&options->group, status);
    fo_train_job_close(&job);
    return status;
}
