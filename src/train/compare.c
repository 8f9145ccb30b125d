/* The same training steps under several strategies, side by side. Definitions: docs/metrics.md. */
#include "train/compare.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"
#include "flashoverlap/plan.h"
#include "flashoverlap/job.h"

enum { EVENTS = 1 << 18 };

/* ---- measuring -------------------------------------------------------------------------------------- */

static fo_status open_ways(fo_train_comparison *c, fo_group *group)
{
    size_t steps = (size_t)c->job->options.steps;
    fo_status status = FO_OK;
    for (int i = 0; status == FO_OK && i < c->count; i++) {
        fo_train_way *w = &c->ways[i];
        w->t_ms = calloc(5 * steps, sizeof *w->t_ms);
        status = fo_train_agree(group, w->t_ms ? FO_OK
                                               : fo_base_error(FO_NO_MEMORY,
                                                               "no memory for the times of %zu "
                                                               "steps",
                                                               steps));
        if (status != FO_OK)
            return status;
        w->exposed_ms = w->t_ms + steps;
        w->losses = w->t_ms + 2 * steps;
        w->norms = w->t_ms + 3 * steps;
        w->data_ms = w->t_ms + 4 * steps;
        status = fo_train_worker_open(c->job, group, w->overlap, &w->worker);
    }
    return status;
}

static void close_ways(fo_train_comparison *c)
{
    for (int i = 0; i < c->count; i++) {
        fo_train_worker_close(&c->ways[i].worker);
        fo_timeline_free(c->ways[i].timeline);
        free(c->ways[i].t_ms);
        c->ways[i].t_ms = NULL;
    }
}

static fo_status set_link(const fo_train_comparison *c, fo_group *group, int index)
{
    static const fo_link no_link = {0};
    return c->link.bytes_per_s > 0 ? fo_group_set_link(group, index == 0 ? &no_link : &c->link)
                                   : FO_OK;
}

static fo_status take_step(fo_train_comparison *c, fo_group *group, int index, int64_t step)
{
    fo_train_way *w = &c->ways[index];
    fo_train_values values;
    int64_t at = step - 1;
    fo_status status = set_link(c, group, index);
    if (status == FO_OK)
        status = fo_group_barrier(group);
    if (status == FO_OK)
        status = fo_train_step(&w->worker, step, &values);
    if (status == FO_OK)
        status = fo_train_agree_max(group, values.step_ms, &w->t_ms[at]);
    if (status != FO_OK)
        return status;
    w->exposed_ms[at] = values.exposed_ms;
    w->data_ms[at] = values.data_exposed_ms;
    w->losses[at] = values.loss;
    w->norms[at] = values.grad_norm;
    c->interrupted |= values.interrupted;
    return FO_OK;
}

/* Interleaved, so that a drifting machine favours none. An interrupted round does not count, but for the first,
 * which is finished: there is something to show. */
static fo_status measure(fo_train_comparison *c, fo_group *group)
{
    int64_t steps = c->job->options.steps;
    fo_status status = FO_OK;
    while (status == FO_OK && c->steps < steps && !c->interrupted) {
        int taken = 0;
        while (status == FO_OK && taken < c->count && (!c->interrupted || !c->steps))
            status = take_step(c, group, taken++, c->steps + 1);
        c->steps += status == FO_OK && taken == c->count;
    }
    c->interrupted = c->interrupted && c->steps < steps;
    return status;
}

/* What the simulator says of the operators of a step, each way over its own link. */
static fo_status predict_ways(fo_train_comparison *c, fo_group *group)
{
    fo_status status = FO_OK;
    for (int i = 0; status == FO_OK && i < c->count; i++) {
        double total_s = NAN, exposed_s;
        status = set_link(c, group, i);
        if (status == FO_OK)
            status =
                fo_model_predict(c->ways[i].worker.model, fo_plan_predicts(), &total_s, &exposed_s);
        if (status == FO_UNSUPPORTED) { /* of the transport's own collectives nobody knows */
            total_s = NAN;
            status = FO_OK;
        }
        c->ways[i].predicted_ms = total_s * 1e3 / (double)(c->steps > 0 ? c->steps : 1);
    }
    return status;
}

/* One more step of each strategy, so that those measured are not disturbed. */
static fo_status trace_ways(fo_train_comparison *c, fo_group *group)
{
    const fo_train_options *o = &c->job->options;
    fo_status status = FO_OK;
    if (!o->trace && !o->report)
        return FO_OK;
    for (int i = 1; status == FO_OK && i < c->count; i++) {
        fo_train_values values;
        status = set_link(c, group, i);
        if (status == FO_OK)
            status = fo_train_agree(group, fo_trace_start(group, EVENTS));
        if (status == FO_OK)
            status = fo_group_barrier(group);
        if (status == FO_OK)
            status = fo_train_step(&c->ways[i].worker, c->steps + 1, &values);
        if (status == FO_OK)
            status = fo_trace_stop(group, &c->ways[i].timeline);
    }
    return status;
}

/* ---- a rank ----------------------------------------------------------------------------------------- */

static fo_status show(const fo_train_comparison *c)
{
    fo_train_row rows[FO_TRAIN_STRATEGIES + 1];
    fo_train_compare_rows(c, rows);
    fo_train_compare_print(c, rows);
    if (fflush(c->out) != 0)
        return fo_base_error(FO_IO, "the table can't be written");
    return fo_train_compare_write_files(c, rows);
}

static fo_status compare_rank(fo_group *group, void *arg)
{
    fo_train_comparison *shared = arg, *c = malloc(sizeof *c);
    if (!c)
        return fo_base_error(FO_NO_MEMORY, "no memory for a comparison");
    *c = *shared; /* ranks may be threads */
    char note[512];
    fo_status status = fo_train_enter(group, &c->job->fingerprint, note, sizeof note);
    if (status == FO_OK)
        status = fo_train_together(group, open_ways(c, group));
    if (status == FO_OK)
        status = fo_train_link(c->job, group);
    c->link = fo_group_link(group);
    if (status == FO_OK)
        status = measure(c, group);
    if (status == FO_OK)
        status = predict_ways(c, group);
    if (status == FO_OK)
        status = trace_ways(c, group);
    /* what goes wrong from here on is told through shared memory: a rank that fails ends the waits of others */
    if (status == FO_OK) {
        bool shows = fo_group_rank(group) == 0, answers = fo_train_answers(group);
        if (answers) {
            c->shared->steps = c->steps;
            c->shared->interrupted = c->interrupted;
        }
        fo_status shown = fo_train_agree(group, shows ? show(c) : FO_OK);
        if (shown != FO_OK && answers)
            snprintf(c->shared->file_error, sizeof c->shared->file_error, "%s", fo_last_error());
    }
    close_ways(c);
    free(c);
    return status;
}

/* ---- the call --------------------------------------------------------------------------------------- */

static fo_status split_names(fo_train_comparison *c, const char *list)
{
    const char *at = list ? list : "";
    snprintf(c->ways[0].overlap, sizeof c->ways[0].overlap, "none");
    c->count = 1;
    while (*at) {
        size_t length = strcspn(at, ",");
        fo_train_way *w = &c->ways[c->count];
        if (c->count > FO_TRAIN_STRATEGIES)
            return fo_base_error(FO_INVALID, "--compare lists more than %d strategies",
                                 FO_TRAIN_STRATEGIES);
        if (!length || length >= sizeof w->overlap)
            return fo_base_error(FO_INVALID,
                                 "--compare '%s': expected names separated by commas, such as "
                                 "none,slice:4,flash",
                                 list);
        memcpy(w->overlap, at, length);
        c->count++;
        fo_status status = fo_train_strategy_check(w->overlap);
        for (int i = 1; status == FO_OK && i < c->count - 1; i++)
            if (!strcmp(c->ways[i].overlap, w->overlap))
                status = fo_base_error(FO_INVALID, "--compare lists '%s' twice", w->overlap);
        if (status != FO_OK)
            return status;
        at += length + (at[length] == ',');
    }
    return c->count > 1 ? FO_OK
                        : fo_base_error(FO_INVALID, "--compare is empty, expected strategies such "
                                                    "as none,slice:4,flash");
}

static fo_status run(fo_train_comparison *c)
{
    fo_train_compared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return fo_base_error(FO_NO_MEMORY, "no shared memory of %zu bytes for the result (%s)",
                             sizeof *shared, strerror(errno));
    c->shared = shared;
    fo_status status = fo_train_start(&c->job->options.group, compare_rank, c);
    if (status == FO_OK && shared->file_error[0])
        status = fo_base_error(FO_IO, "%s", shared->file_error);
    else if (status == FO_OK && shared->interrupted)
        status = fo_base_error(FO_INTERRUPTED,
                               "interrupted after step %" PRId64 " of %" PRId64
                               " of the comparison; the table is of these",
                               shared->steps, c->job->options.steps);
    munmap(shared, sizeof *shared);
    return status;
}

fo_status fo_train_compare(const fo_train_options *options, const char *strategies, bool json,
                           FILE *out)
{
    fo_train_options own = *options; /* no files but the data, and those of the comparison */
    own.out = own.resume = own.log = NULL;
    own.quiet = true;
    fo_train_job job = {0};
    fo_train_comparison *c = calloc(1, sizeof *c);
    if (!c)
        return fo_base_error(FO_NO_MEMORY, "no memory for a comparison");
    c->out = out;
    c->json = json;
    c->job = &job;
    fo_status status = split_names(c, strategies);
    if (status == FO_OK && fo_job_first())
        status = fo_train_compare_check_files(&own);
    if (status == FO_OK)
        status = fo_train_job_open(&own, &job);
    fflush(out);
    if (status == FO_OK) {
        fo_train_fingerprint_word(&job.fingerprint, "--compare", strategies);
        fo_train_fingerprint_word(&job.fingerprint, "--trace", own.trace ? "given" : NULL);
        fo_train_fingerprint_word(&job.fingerprint, "--report", own.report ? "given" : NULL);
        status = run(c);
    } else {
        status = fo_train_refuse(&own.group, status);
    }
    fo_train_job_close(&job);
    free(c);
    return status;
}
