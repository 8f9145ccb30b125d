/* The search: every way to split the ranks, in the order of an estimate that is never too slow, priced by closed forms
 * until no other can be among the fastest; then the best few are simulated. */
#include "flashoverlap/search.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "planner/memory.h"
#include "planner/search_estimate.h"
#include "planner/search_refuse.h"
#include "planner/step.h"
#include "sim/profile.h"

enum { MOST_MICRO_BATCH = 64 };

typedef struct way {
    int tp, dp, pp, interleave;
    int64_t micro_batch;
    fo_recompute recompute;
    double estimate_s;
    double step_s; /* priced */
} way;

typedef struct search {
    const fo_search_options *options;
    fo_search_result *result;
    fo_sim_machine machine;
    fo_planner_prices *prices;
    way *ways;
    int64_t count, capacity;
    double nearest_bytes; /* the least memory of those that do not fit */
    way nearest;
    bool out_of_memory;
} search;

void fo_search_defaults(fo_search_options *options)
{
    memset(options, 0, sizeof *options);
    fo_step_defaults(&options->step);
    options->step.tp = options->step.dp = options->step.pp = 0;
    options->step.interleave = 0;
    options->step.micro_batch = 0;
    options->memory_part = 0.9;
}

static fo_step_options step_of(const search *s, const way *w)
{
    fo_step_options step = s->options->step;
    step.tp = w->tp;
    step.dp = w->dp;
    step.pp = w->pp;
    step.interleave = w->interleave;
    step.micro_batch = w->micro_batch;
    step.recompute = w->recompute;
    return step;
}

/* ---- what is possible ---------------------------------------------------------------------------------- */

static bool keep(search *s, const way *w)
{
    if (s->count == s->capacity) {
        int64_t capacity = s->capacity ? 2 * s->capacity : 256;
        way *more = realloc(s->ways, (size_t)capacity * sizeof *more);
        if (!more)
            return false;
        s->ways = more;
        s->capacity = capacity;
    }
    s->ways[s->count++] = *w;
    return true;
}

/* Whether it fits; the nearest of those that do not is remembered. */
static bool fits(search *s, const fo_planner_split *split, const way *w)
{
    fo_planner_memory m = fo_planner_memory_most(split);
    double bytes = m.weights + m.gradients + m.optimizer + m.activations;
    double most = s->machine.device.memory_bytes * s->options->memory_part;
    if (!(most > 0) || bytes <= most)
        return true;
    if (!(s->nearest_bytes > 0) || bytes < s->nearest_bytes) {
        s->nearest_bytes = bytes;
        s->nearest = *w;
    }
    return false;
}

/* Recomputing less is never slower, so the least that fits is taken. */
static void consider(search *s, way w)
{
    bool given = s->options->recompute_given;
    int first = given ? s->options->step.recompute : FO_RECOMPUTE_NONE;
    int last = given ? s->options->step.recompute : FO_RECOMPUTE_FULL;
    for (int r = first; r <= last; r++) {
        fo_planner_split split;
        w.recompute = (fo_recompute)r;
        fo_step_options step = step_of(s, &w);
        if (fo_planner_split_make(&step, s->machine.network.locals, &split) != FO_OK)
            return;
        s->result->considered += r == first;
        if (!fits(s, &split, &w))
            continue;
        w.estimate_s = fo_planner_search_estimate(&s->machine.device, &split);
        s->out_of_memory |= !keep(s, &w);
        return;
    }
    s->result->too_large++;
}

static bool allowed(int64_t given, int64_t value)
{
    return !given || given == value;
}

static void consider_passes(search *s, way w)
{
    const fo_step_options *o = &s->options->step;
    for (w.micro_batch = 1; w.micro_batch <= o->batch / w.dp; w.micro_batch *= 2) {
        if (o->micro_batch)
            w.micro_batch = o->micro_batch;
        for (w.interleave = 1; w.interleave <= FO_PLANNER_MOST_INTERLEAVE; w.interleave++) {
            bool even = o->model.layers % ((int64_t)w.pp * w.interleave) == 0;
            if (allowed(o->interleave, w.interleave) &&
                (w.interleave == 1 || o->interleave || even))
                consider(s, w);
        }
        if (o->micro_batch || w.micro_batch >= MOST_MICRO_BATCH)
            return;
    }
}

static void consider_all(search *s)
{
    const fo_search_options *o = s->options;
    int locals = s->machine.network.locals;
    int most = o->step.tp ? o->step.tp : locals ? locals : FO_PLANNER_MOST_TP;
    for (int tp = 1; tp <= o->ranks && tp <= most; tp++) {
        if (o->ranks % tp || !allowed(o->step.tp, tp))
            continue;
        for (int pp = 1; pp <= o->ranks / tp && pp <= o->step.model.layers; pp++) {
            way w = {.tp = tp, .pp = pp};
            if (o->ranks / tp % pp || !allowed(o->step.pp, pp))
                continue;
            w.dp = o->ranks / tp / pp;
            if (allowed(o->step.dp, w.dp))
                consider_passes(s, w);
        }
    }
}

/* ---- what it takes --------------------------------------------------------------------------------------- */

static int by_estimate(const void *a, const void *b)
{
    const way *x = a, *y = b;
    if (x->estimate_s != y->estimate_s)
        return x->estimate_s < y->estimate_s ? -1 : 1;
    return x->tp != y->tp ? x->tp - y->tp : x->pp - y->pp;
}

static int by_time(const void *a, const void *b)
{
    const way *x = a, *y = b;
    return x->step_s < y->step_s ? -1 : x->step_s > y->step_s;
}

/* The times of the fastest that were priced, ascending. */
typedef struct fastest {
    double step_s[FO_SEARCH_TOP];
    int count;
} fastest;

static void take(fastest *f, double step_s)
{
    int at = f->count;
    if (f->count < FO_SEARCH_TOP)
        f->count++;
    else if (step_s >= f->step_s[--at])
        return;
    for (; at > 0 && f->step_s[at - 1] > step_s; at--)
        f->step_s[at] = f->step_s[at - 1];
    f->step_s[at] = step_s;
}

/* Those that can't be faster than the last one that would be kept need no price. */
static bool needs_price(const fastest *f, const way *w)
{
    return f->count < FO_SEARCH_TOP || w->estimate_s <= f->step_s[FO_SEARCH_TOP - 1];
}

static fo_status price_all(search *s)
{
    fo_step_report *report = malloc(sizeof *report);
    if (!report)
        return fo_base_error(FO_NO_MEMORY, "no memory for a step's report");
    fo_status status = FO_OK;
    fastest kept = {.count = 0};
    int64_t i = 0;
    qsort(s->ways, (size_t)s->count, sizeof *s->ways, by_estimate);
    for (; status == FO_OK && i < s->count && needs_price(&kept, &s->ways[i]); i++) {
        way *w = &s->ways[i];
        fo_step_options step = step_of(s, w);
        status = fo_planner_step_run(s->prices, &step, FO_PLANNER_CLOSED, report);
        w->step_s = report->step_s;
        take(&kept, w->step_s);
        if (s->options->progress)
            fprintf(s->options->progress, "\r%lld of %lld ways, best %.4g s ", (long long)i + 1,
                    (long long)s->count, kept.step_s[0]);
    }
    if (s->options->progress)
        fprintf(s->options->progress, "\r\033[K");
    free(report);
    s->count = s->result->priced = i;
    qsort(s->ways, (size_t)s->count, sizeof *s->ways, by_time);
    return status;
}

static int candidates_by_time(const void *a, const void *b)
{
    const fo_search_candidate *x = a, *y = b;
    return x->report.step_s < y->report.step_s ? -1 : x->report.step_s > y->report.step_s;
}

/* The best few by simulation, the first of them in detail. */
static fo_status simulate_best(search *s)
{
    fo_search_result *r = s->result;
    fo_status status = FO_OK;
    for (; status == FO_OK && r->count < FO_SEARCH_TOP && r->count < s->count; r->count++) {
        fo_search_candidate *c = &r->best[r->count];
        c->step = step_of(s, &s->ways[r->count]);
        status = fo_planner_step_run(s->prices, &c->step, FO_PLANNER_COMPARE, &c->report);
    }
    if (status != FO_OK)
        return status;
    qsort(r->best, (size_t)r->count, sizeof *r->best, candidates_by_time);
    return fo_planner_step_run(s->prices, &r->best[0].step, FO_PLANNER_COMPARE | FO_PLANNER_EXPLAIN,
                               &r->best[0].report);
}

/* ---- the whole --------------------------------------------------------------------------------------------- */

static fo_status nothing(const search *s)
{
    const fo_search_options *o = s->options;
    const way *w = &s->nearest;
    bool recompute = o->recompute_given && o->step.recompute != FO_RECOMPUTE_FULL; /* not tried */
    if (!s->result->considered)
        return fo_planner_search_refuse(o, s->machine.network.locals);
    return fo_base_error(
        FO_INVALID,
        "plan: %s needs at least %.1f GB a rank on %d ranks (tp %d x dp %d x pp %d, micro-batch "
        "%lld), expected at most %.1f GB of %s; take more ranks, %s",
        o->step.model.name, s->nearest_bytes * 1e-9, o->ranks, w->tp, w->dp, w->pp,
        (long long)w->micro_batch, s->machine.device.memory_bytes * o->memory_part * 1e-9,
        s->machine.name, recompute ? "shorter sequences or recomputation" : "or shorter sequences");
}

static fo_status check(const fo_search_options *o)
{
    if (o->ranks < 1 || o->ranks > 1 << 20)
        return fo_base_error(FO_INVALID, "plan: %d ranks, expected 1 to %d", o->ranks, 1 << 20);
    if (!(o->memory_part > 0 && o->memory_part <= 1))
        return fo_base_error(FO_INVALID,
                             "plan: %g of the memory may be used, expected more than 0 and at most "
                             "1, e.g. 0.9",
                             o->memory_part);
    if (o->step.batch < 1)
        return fo_base_error(FO_INVALID, "plan: a batch of %lld sequences, expected 1 or more",
                             (long long)o->step.batch);
    if (o->step.tp < 0 || o->step.dp < 0 || o->step.pp < 0 || o->step.interleave < 0 ||
        o->step.micro_batch < 0)
        return fo_base_error(FO_INVALID,
                             "plan: tp %d, dp %d, pp %d, interleave %d, micro-batch %lld, expected "
                             "0 (chosen) or more",
                             o->step.tp, o->step.dp, o->step.pp, o->step.interleave,
                             (long long)o->step.micro_batch);
    return FO_OK;
}

fo_status fo_search_run(const fo_search_options *options, fo_search_result *result)
{
    int64_t begin = fo_base_clock_ns();
    search s = {.options = options, .result = result};
    memset(result, 0, sizeof *result);
    fo_status status = check(options);
    if (status == FO_OK)
        status = fo_sim_profile_read(options->step.machine, &s.machine);
    if (status != FO_OK)
        return status;
    status = fo_planner_prices_create(&s.machine, &s.prices);
    if (status == FO_OK)
        consider_all(&s);
    if (status == FO_OK && s.out_of_memory)
        status = fo_base_error(FO_NO_MEMORY, "plan: no memory for %lld ways to split %d ranks",
                               (long long)s.count, options->ranks);
    if (status == FO_OK && !s.count)
        status = nothing(&s);
    if (status == FO_OK)
        status = price_all(&s);
    if (status == FO_OK)
        status = simulate_best(&s);
    free(s.ways);
    fo_planner_prices_free(s.prices);
    fo_sim_machine_free(&s.machine);
    result->seconds = (double)(fo_base_clock_ns() - begin) * 1e-9;
    return status;
}
