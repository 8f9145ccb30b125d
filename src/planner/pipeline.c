/* 1F1B and interleaved 1F1B in virtual time. */
#include "planner/pipeline.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum { MANY = 1 << 20, ROUNDS = 6 };

/* Where a stage is in its list: `warm` forward passes, then forward and backward by turns, then the rest backward. */
typedef struct stage {
    int64_t next, warm;
    double free_s;
} stage;

typedef struct run {
    const fo_planner_pipeline *p;
    int virtual_stages;
    int64_t micro_batches, units; /* units: forward passes of a stage */
    stage *stages;
    double *forward_end, *backward_end; /* [virtual stage][micro-batch]; negative: not yet */
    fo_planner_pipeline_end *ends;
} run;

/* ---- the schedule ------------------------------------------------------------------------------------ */

static int64_t warm_up(const run *r, int s)
{
    int stages = r->p->stages, chunks = r->p->chunks;
    int64_t warm =
        chunks == 1 ? stages - 1 - s : 2 * (stages - 1 - s) + (int64_t)(chunks - 1) * stages;
    return warm < r->units ? warm : r->units;
}

/* The k-th forward (backward) pass of a stage: rounds of `stages` micro-batches, chunk after chunk. */
static void unit(const run *r, int64_t k, bool backward, int *chunk, int64_t *micro_batch)
{
    int64_t stages = r->p->stages, round = stages * r->p->chunks;
    *chunk = (int)(k % round / stages);
    *micro_batch = k / round * stages + k % stages;
    if (r->p->chunks == 1) {
        *chunk = 0;
        *micro_batch = k;
    }
    if (backward)
        *chunk = r->p->chunks - 1 - *chunk;
}

/* Pass number `next` of stage s: which unit, and which way. */
static int64_t number(const run *r, int s, int64_t next, bool *backward)
{
    int64_t warm = r->stages[s].warm, steady = next - warm;
    *backward = next >= warm && (steady >= 2 * (r->units - warm) || steady % 2);
    if (next < warm)
        return next;
    if (steady < 2 * (r->units - warm))
        return *backward ? steady / 2 : warm + steady / 2;
    return steady - (r->units - warm);
}

/* ---- times ------------------------------------------------------------------------------------------- */

/* When what a pass needs has arrived; negative: not known yet. */
static double arrival(const run *r, int j, int64_t b, bool backward)
{
    int stages = r->p->stages;
    int64_t at = j * r->micro_batches + b;
    if (!backward && j == 0)
        return 0;
    if (!backward) {
        double before = r->forward_end[at - r->micro_batches];
        return before < 0 ? before : before + r->p->transfer_s[(j - 1) % stages];
    }
    if (r->forward_end[at] < 0)
        return -1;
    if (j == r->virtual_stages - 1)
        return r->forward_end[at];
    double before = r->backward_end[at + r->micro_batches];
    return before < 0 ? before : before + r->p->transfer_s[j % stages];
}

/* Does the next passes of stage s as far as they can be done; whether any was. */
static bool advance(run *r, int s)
{
    stage *st = &r->stages[s];
    bool any = false;
    while (st->next < 2 * r->units) {
        bool backward;
        int chunk;
        int64_t b;
        int64_t k = number(r, s, st->next, &backward);
        unit(r, k, backward, &chunk, &b);
        int j = chunk * r->p->stages + s;
        double from = arrival(r, j, b, backward);
        if (from < 0)
            break;
        if (!backward && b == 0 && r->p->ready_s)
            from = fmax(from, r->p->ready_s[j]);
        double begin = fmax(from, st->free_s);
        st->free_s = begin + (backward ? r->p->backward_s : r->p->forward_s)[j];
        (backward ? r->backward_end : r->forward_end)[j * r->micro_batches + b] = st->free_s;
        if (backward && r->ends)
            r->ends[j] = (fo_planner_pipeline_end){begin, st->free_s};
        st->next++;
        any = true;
    }
    return any;
}

static fo_status finish(run *r, double *total_s)
{
    bool any = true;
    *total_s = 0;
    for (int s = 0; s < r->p->stages; s++)
        r->stages[s].warm = warm_up(r, s);
    while (any) {
        any = false;
        for (int s = 0; s < r->p->stages; s++)
            any |= advance(r, s);
    }
    for (int s = 0; s < r->p->stages; s++) {
        if (r->stages[s].next < 2 * r->units)
            return fo_base_error(FO_INTERNAL,
                                 "pipeline: stage %d of %d waits for ever at pass %lld", s,
                                 r->p->stages, (long long)r->stages[s].next);
        *total_s = fmax(*total_s, r->stages[s].free_s);
    }
    return FO_OK;
}

static fo_status run_exactly(const fo_planner_pipeline *p, int64_t micro_batches, double *total_s,
                             fo_planner_pipeline_end *ends)
{
    run r = {.p = p,
             .virtual_stages = p->stages * p->chunks,
             .micro_batches = micro_batches,
             .units = micro_batches * p->chunks,
             .ends = ends};
    size_t passes = (size_t)r.virtual_stages * (size_t)micro_batches;
    r.stages = calloc((size_t)p->stages, sizeof *r.stages);
    r.forward_end = malloc(2 * passes * sizeof *r.forward_end);
    fo_status status = FO_OK;
    if (!r.stages || !r.forward_end) {
        status = fo_base_error(FO_NO_MEMORY, "no memory for %zu passes of a pipeline", 2 * passes);
    } else {
        r.backward_end = r.forward_end + passes;
        for (size_t i = 0; i < 2 * passes; i++)
            r.forward_end[i] = -1;
        status = finish(&r, total_s);
    }
    free(r.stages);
    free(r.forward_end);
    return status;
}

/* ---- many micro-batches ------------------------------------------------------------------------------ */

/* What the busiest stage has to do, whatever it waits for. */
static double least_s(const fo_planner_pipeline *p)
{
    double most = 0;
    for (int s = 0; s < p->stages; s++) {
        double once = 0;
        for (int j = s; j < p->stages * p->chunks; j += p->stages)
            once += p->forward_s[j] + p->backward_s[j];
        most = fmax(most, once * (double)p->micro_batches);
    }
    return most;
}

/* In the middle every round of `stages` micro-batches takes as long as the one before, so what many take follows from
 * two numbers of them. */
static fo_status run_by_rhythm(const fo_planner_pipeline *p, int64_t enough, double *total_s,
                               fo_planner_pipeline_end *ends)
{
    double less_s = 0, more_s = 0;
    int64_t rest = p->micro_batches % p->stages;
    int64_t less = enough + rest, more = less + (int64_t)p->stages * ROUNDS;
    fo_status status = run_exactly(p, less, &less_s, NULL);
    if (status == FO_OK)
        status = run_exactly(p, more, &more_s, ends);
    if (status != FO_OK)
        return status;
    double later = (more_s - less_s) * (double)(p->micro_batches - more) / (double)(more - less);
    later = fmax(later, least_s(p) - more_s);
    *total_s = more_s + later;
    for (int j = 0; ends && j < p->stages * p->chunks; j++) {
        ends[j].begin_s += later;
        ends[j].end_s += later;
    }
    return FO_OK;
}

fo_status fo_planner_pipeline_run(const fo_planner_pipeline *p, double *total_s,
                                  fo_planner_pipeline_end *ends)
{
    if (p->stages < 1 || p->chunks < 1 || p->micro_batches < 1 ||
        (p->chunks > 1 && p->micro_batches % p->stages))
        return fo_base_error(
            FO_INVALID,
            "pipeline: %lld micro-batches through %d stages of %d chunks, expected "
            "at least 1 of each, and interleaved a multiple of the stages",
            (long long)p->micro_batches, p->stages, p->chunks);
    int64_t most = p->most_passes > 0 ? p->most_passes : MANY;
    int64_t enough = 4 * (int64_t)p->stages; /* micro-batches until the rhythm is found */
    int64_t needed = enough + (int64_t)p->stages * (ROUNDS + 1);
    if (p->micro_batches <= needed ||
        p->micro_batches <= most / (2 * (int64_t)p->stages * p->chunks))
        return run_exactly(p, p->micro_batches, total_s, ends);
    return run_by_rhythm(p, enough, total_s, ends);
}
