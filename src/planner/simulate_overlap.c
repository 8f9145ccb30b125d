/* Whether a strategy overlaps anything at these sizes: of one slice, or of slices of which a rank has one, nothing
 * moves while something else is computed, whatever the strategy is called. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "planner/simulate.h"

enum { WATCHED = 16 }; /* ranks; of more, those that others are like are among them */

typedef struct span {
    int rank;
    double begin_s, end_s;
} span;

typedef struct spans {
    span *all;
    size_t count, capacity;
} spans;

typedef struct watcher {
    spans computing, moving;
    bool failed; /* no memory */
} watcher;

static void add(watcher *w, spans *s, const fo_sim_event *event)
{
    if (s->count == s->capacity) {
        size_t capacity = s->capacity ? 2 * s->capacity : 256;
        span *more = realloc(s->all, capacity * sizeof *more);
        w->failed |= !more;
        if (!more)
            return;
        s->all = more;
        s->capacity = capacity;
    }
    s->all[s->count++] = (span){event->rank, event->begin_s, event->end_s};
}

static void watch(void *context, const fo_sim_event *event)
{
    watcher *w = context;
    if (event->rank >= WATCHED)
        return;
    if (event->kind == FO_SIM_EVENT_COMPUTE)
        add(w, &w->computing, event);
    else if (event->kind == FO_SIM_EVENT_SEND || event->kind == FO_SIM_EVENT_RECV)
        add(w, &w->moving, event);
}

static int by_begin(const void *a, const void *b)
{
    const span *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank - y->rank;
    return x->begin_s < y->begin_s ? -1 : x->begin_s > y->begin_s;
}

/* Spans of a rank that touch become one; in order. */
static void join(spans *s)
{
    size_t kept = 0;
    if (s->count)
        qsort(s->all, s->count, sizeof *s->all, by_begin);
    for (size_t i = 0; i < s->count; i++) {
        span *last = kept ? &s->all[kept - 1] : NULL;
        if (last && last->rank == s->all[i].rank && s->all[i].begin_s <= last->end_s)
            last->end_s = fmax(last->end_s, s->all[i].end_s);
        else
            s->all[kept++] = s->all[i];
    }
    s->count = kept;
}

/* Seconds, of all ranks together, in which a rank computes and its messages move. */
static double common_s(watcher *w)
{
    double seconds = 0;
    join(&w->computing);
    join(&w->moving);
    for (size_t c = 0, m = 0; c < w->computing.count && m < w->moving.count;) {
        const span *a = &w->computing.all[c], *b = &w->moving.all[m];
        if (a->rank == b->rank)
            seconds += fmax(0, fmin(a->end_s, b->end_s) - fmax(a->begin_s, b->begin_s));
        bool first = a->rank != b->rank ? a->rank < b->rank : a->end_s < b->end_s;
        c += first;
        m += !first;
    }
    return seconds;
}

static fo_status overlapped_s(const fo_planner_simulation *s, const fo_schedule_spelled *strategy,
                              double *seconds)
{
    fo_planner_operations operations;
    fo_status status = fo_planner_simulate_operations(s, strategy, &operations);
    *seconds = 0;
    for (int i = 0; status == FO_OK && i < operations.count; i++) {
        watcher w = {.failed = false};
        fo_sim_report report;
        fo_sim_operation operation = fo_planner_simulate_operation(s, &operations.descs[i]);
        operation.watch = watch;
        operation.watcher = &w;
        status = fo_sim_operation_run(&s->machine, &operation, &report);
        if (status == FO_OK && w.failed)
            status = fo_base_error(FO_NO_MEMORY, "no memory for what a simulation overlaps");
        if (status == FO_OK)
            *seconds += common_s(&w);
        free(w.computing.all);
        free(w.moving.all);
    }
    return status;
}

/* The fastest row that was not looked at yet; -1. */
static int fastest(const fo_planner_simulation *s, const bool *seen)
{
    int best = -1;
    for (int i = 0; i < s->count; i++)
        if (!seen[i] && !s->results[i].note[0] &&
            (best < 0 || s->results[i].report.total_s < s->results[best].report.total_s))
            best = i;
    return best;
}

fo_status fo_planner_simulate_overlap(fo_planner_simulation *s, const fo_schedule_spelled *none)
{
    static const double rounding = 1e-9;
    bool seen[FO_PLANNER_STRATEGIES] = {false};
    double without = 0, with = 0;
    s->overlapping = -1;
    fo_status status =
        s->options->ranks > 1 ? overlapped_s(s, none, &without) : FO_OK; /* ranks that differ */
    for (int i; status == FO_OK && s->options->ranks > 1 && (i = fastest(s, seen)) >= 0;) {
        seen[i] = true;
        if (!strcmp(s->strategies[i].overlap, "none"))
            continue;
        status = overlapped_s(s, &s->strategies[i], &with);
        if (status == FO_OK && with > without + rounding * s->none.report.total_s) {
            s->overlapping = i;
            break;
        }
    }
    return status;
}
