/* The same training steps under several strategies, side by side. Definitions: docs/metrics.md. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "flashoverlap/schedule.h"
#include "train/train.h"

enum { STRATEGIES = 16 };

/* One way of taking the steps. Way 0 is the reference: strategy `none` over a link without cost. */
typedef struct way {
    char overlap[32];
    fo_train_worker worker;
    double *t_ms, *exposed_ms; /* of each step, slowest rank */
    double *losses, *norms;
} way;

typedef struct comparison {
    fo_train_job *job;
    FILE *out;
    bool json;
    int count; /* with the reference */
    way ways[STRATEGIES + 1];
    fo_link link;
} comparison;

typedef struct row {
    double t_ms, ect_ms, hidden_pct, exposed_ms;
    bool equal;
} row;

/* ---- measuring -------------------------------------------------------------------------------------- */

static fo_status open_ways(comparison *c, fo_group *group)
{
    size_t steps = (size_t)c->job->options.steps;
    fo_status status = FO_OK;
    for (int i = 0; status == FO_OK && i < c->count; i++) {
        way *w = &c->ways[i];
        w->t_ms = calloc(4 * steps, sizeof *w->t_ms);
        if (!w->t_ms)
            return fo_base_error(FO_NO_MEMORY, "no memory for the times of %zu steps", steps);
        w->exposed_ms = w->t_ms + steps;
        w->losses = w->t_ms + 2 * steps;
        w->norms = w->t_ms + 3 * steps;
        status = fo_train_worker_open(c->job, group, w->overlap, &w->worker);
    }
    return status;
}

static void close_ways(comparison *c)
{
    for (int i = 0; i < c->count; i++) {
        fo_train_worker_close(&c->ways[i].worker);
        free(c->ways[i].t_ms);
        c->ways[i].t_ms = NULL;
    }
}

static fo_status take_step(comparison *c, fo_group *group, int index, int64_t step,
                           bool *interrupted)
{
    static const fo_link no_link = {0};
    way *w = &c->ways[index];
    fo_train_values values;
    int64_t at = step - 1;
    fo_status status = FO_OK;
    if (c->link.bytes_per_s > 0)
        status = fo_group_set_link(group, index == 0 ? &no_link : &c->link);
    if (status == FO_OK)
        status = fo_group_barrier(group);
    if (status == FO_OK)
        status = fo_train_step(&w->worker, step, &values);
    if (status == FO_OK)
        status = fo_train_agree_max(group, values.step_ms, &w->t_ms[at]);
    if (status != FO_OK)
        return status;
    w->exposed_ms[at] = values.exposed_ms;
    w->losses[at] = values.loss;
    w->norms[at] = values.grad_norm;
    *interrupted |= values.interrupted;
    return FO_OK;
}

/* Interleaved, so that a drifting machine favours none. */
static fo_status measure(comparison *c, fo_group *group)
{
    bool interrupted = false;
    fo_status status = FO_OK;
    for (int64_t step = 1; status == FO_OK && step <= c->job->options.steps; step++) {
        for (int i = 0; status == FO_OK && i < c->count; i++)
            status = take_step(c, group, i, step, &interrupted);
        if (status == FO_OK && interrupted)
            return fo_base_error(FO_INTERRUPTED,
                                 "interrupted after step %" PRId64 " of %" PRId64
                                 " of the comparison",
                                 step, c->job->options.steps);
    }
    return status;
}

/* ---- results ---------------------------------------------------------------------------------------- */

/* The first step warms up and counts only when it is the only one. */
static double median_of(const comparison *c, double *values)
{
    int64_t skip = c->job->options.steps > 1;
    return fo_train_median(values + skip, c->job->options.steps - skip);
}

static void make_rows(comparison *c, row *rows, double *alone)
{
    size_t bytes = (size_t)c->job->options.steps * sizeof(double);
    double ect_none = NAN;
    *alone = median_of(c, c->ways[0].t_ms);
    for (int i = 1; i < c->count; i++) {
        way *w = &c->ways[i], *first = &c->ways[1];
        rows[i] = (row){.t_ms = median_of(c, w->t_ms), .exposed_ms = median_of(c, w->exposed_ms)};
        rows[i].ect_ms = rows[i].t_ms - *alone;
        rows[i].equal =
            !memcmp(w->losses, first->losses, bytes) && !memcmp(w->norms, first->norms, bytes);
        if (!strcmp(w->overlap, "none"))
            ect_none = rows[i].ect_ms;
    }
    for (int i = 1; i < c->count; i++)
        rows[i].hidden_pct = ect_none > 0 ? 100 * (1 - rows[i].ect_ms / ect_none) : NAN;
}

static void print_json(const comparison *c, const row *rows, double alone)
{
    for (int i = 1; i < c->count; i++) {
        char hidden[32] = "null";
        if (!isnan(rows[i].hidden_pct))
            snprintf(hidden, sizeof hidden, "%.2f", rows[i].hidden_pct);
        fprintf(
            c->out,
            "%s\n  {\"overlap\": \"%s\", \"t_ms\": %.4f, \"ect_ms\": %.4f, \"hidden_pct\": %s, "
            "\"exposed_ms\": %.4f, \"compute_ms\": %.4f, \"loss\": %.9g, \"bitwise_equal\": %s, "
            "\"link_bytes_per_s\": %.6g}",
            i == 1 ? "[" : ",", c->ways[i].overlap, rows[i].t_ms, rows[i].ect_ms, hidden,
            rows[i].exposed_ms, alone, c->ways[i].losses[c->job->options.steps - 1],
            rows[i].equal ? "true" : "false", c->link.bytes_per_s);
    }
    fprintf(c->out, "\n]\n");
}

static void print_link(const comparison *c)
{
    if (c->link.bytes_per_s <= 0) {
        fprintf(c->out, "link: not emulated; shared memory as it is\n");
        return;
    }
    fprintf(c->out, "link: emulated, %.4g GB/s, %.1f us", c->link.bytes_per_s * 1e-9,
            c->link.latency_s * 1e6);
    if (c->job->options.link_ratio > 0)
        fprintf(c->out,
                ": moving a row-parallel layer's sums takes %.2f of its measured computation",
                c->job->options.link_ratio);
    fprintf(c->out, "\n");
}

static void print_table(const comparison *c, const row *rows, double alone)
{
    const fo_train_options *o = &c->job->options;
    fprintf(c->out, "the same training step, %d ranks, %" PRId64 " layers, %" PRId64 " wide, %s\n",
            o->group.ranks, o->layers, o->dim, fo_dtype_name(o->dtype));
    print_link(c);
    fprintf(c->out, "\n%-12s %10s %10s %10s %12s  %-6s  %s\n", "overlap", "T ms", "ECT ms",
            "hidden %", "exposed ms", "losses", "last loss");
    for (int i = 1; i < c->count; i++) {
        char hidden[32] = "-";
        if (!isnan(rows[i].hidden_pct))
            snprintf(hidden, sizeof hidden, "%.1f", rows[i].hidden_pct);
        fprintf(c->out, "%-12s %10.2f %10.2f %10s %12.2f  %-6s  %.9g\n", c->ways[i].overlap,
                rows[i].t_ms, rows[i].ect_ms, hidden, rows[i].exposed_ms,
                rows[i].equal ? "equal" : "differ", c->ways[i].losses[o->steps - 1]);
    }
    fprintf(
        c->out,
        "\nT: median of %" PRId64
        " interleaved steps, slowest rank. ECT: T minus computation alone "
        "(%.2f ms),\nwhich is the step of `none` over a link without cost. hidden: 100 (1 - ECT / "
        "ECT "
        "of none).\nlosses: all steps' losses and gradient norms, to the bit, against the first "
        "line.\n",
        o->steps > 1 ? o->steps - 1 : o->steps, alone);
}

static fo_status compare_rank(fo_group *group, void *arg)
{
    comparison *shared = arg, *c = malloc(sizeof *c);
    if (!c)
        return fo_base_error(FO_NO_MEMORY, "no memory for a comparison");
    *c = *shared; /* ranks may be threads */
    fo_status status = open_ways(c, group);
    if (status == FO_OK)
        status = fo_train_link(c->job, group);
    c->link = fo_group_link(group);
    if (status == FO_OK)
        status = measure(c, group);
    if (status == FO_OK && fo_group_rank(group) == 0) {
        row rows[STRATEGIES + 1];
        double alone;
        make_rows(c, rows, &alone);
        if (c->json)
            print_json(c, rows, alone);
        else
            print_table(c, rows, alone);
        if (fflush(c->out) != 0)
            status = fo_base_error(FO_IO, "the table can't be written");
    }
    close_ways(c);
    free(c);
    return status;
}

/* ---- the call --------------------------------------------------------------------------------------- */

static fo_status split_names(comparison *c, const char *list)
{
    const char *at = list ? list : "";
    snprintf(c->ways[0].overlap, sizeof c->ways[0].overlap, "none");
    c->count = 1;
    while (*at) {
        size_t length = strcspn(at, ",");
        way *w = &c->ways[c->count];
        fo_strategy parsed;
        if (c->count > STRATEGIES)
            return fo_base_error(FO_INVALID, "--overlap lists more than %d strategies", STRATEGIES);
        if (!length || length >= sizeof w->overlap)
            return fo_base_error(FO_INVALID,
                                 "--overlap '%s': expected names separated by commas, such as "
                                 "none,slice:4,flash",
                                 list);
        memcpy(w->overlap, at, length);
        c->count++;
        fo_status status = fo_strategy_parse(w->overlap, &parsed);
        if (status != FO_OK)
            return status;
        at += length + (at[length] == ',');
    }
    return c->count > 1 ? FO_OK
                        : fo_base_error(FO_INVALID, "--overlap is empty, expected strategies such "
                                                    "as none,slice:4,flash");
}

fo_status fo_train_compare(const fo_train_options *options, const char *strategies, bool json,
                           FILE *out)
{
    fo_train_options own = *options; /* no files but the data */
    own.out = own.resume = own.log = NULL;
    own.quiet = true;
    fo_train_job job = {0};
    comparison *c = calloc(1, sizeof *c);
    if (!c)
        return fo_base_error(FO_NO_MEMORY, "no memory for a comparison");
    c->out = out;
    c->json = json;
    c->job = &job;
    fo_status status = split_names(c, strategies);
    if (status == FO_OK)
        status = fo_train_job_open(&own, &job);
    fflush(out);
    if (status == FO_OK)
        status = fo_group_run(&job.options.group, compare_rank, c);
    fo_train_job_close(&job);
    free(c);
    return status;
}
