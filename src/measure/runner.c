/* Measuring one point: strategies in turn, computation alone among them. Definitions: docs/metrics.md. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/quantile.h"
#include "group/group.h"
#include "measure/bound.h"
#include "measure/measure.h"
#include "measure/progress.h"
#include "measure/result.h"
#include "measure/spelling.h"
#include "transport/machine.h"

enum { ALONE = -1, LINK_REPEATS = 7, LINK_REPEATS_EMULATED = 1 };

/* Samples of one strategy, or of the computation alone; milliseconds. */
typedef struct samples {
    double *t, *exposed;
    int count;
} samples;

typedef struct runner {
    fo_measure_rank rank;
    const fo_measure_family *family;
    fo_link link; /* that strategies run over */
    fo_measure_clock clock;
    samples alone, of[FO_MEASURE_STRATEGIES];
    uint64_t hashes[FO_MEASURE_STRATEGIES];
    fo_prediction predicted[FO_MEASURE_STRATEGIES], reference;
    double wire_bytes;
    bool interrupted; /* agreed on */
    fo_measure_progress progress;
    void *exchange; /* [ranks] of struct turn */
} runner;

/* What ranks tell each other after an execution. */
typedef struct turn {
    double ms, exposed_ms, wire_bytes;
    uint64_t hash;
    int64_t interrupted;
} turn;

/* ---- one execution ----------------------------------------------------------------------------------- */

/* The slowest rank's time and how long that rank was exposed; the most any rank sends; a hash over all. */
static fo_status exchange(runner *r, turn *mine)
{
    fo_group *group = r->rank.group;
    turn *all = r->exchange, sum = {.ms = -1};
    mine->interrupted = fo_group_interrupted(group);
    fo_status status = fo_group_allgather(group, mine, sizeof *mine, all);
    for (int i = 0; status == FO_OK && i < fo_group_size(group); i++) {
        if (all[i].ms > sum.ms) {
            sum.ms = all[i].ms;
            sum.exposed_ms = all[i].exposed_ms;
        }
        sum.wire_bytes = fmax(sum.wire_bytes, all[i].wire_bytes);
        sum.hash = fo_measure_hash(sum.hash, &all[i].hash, sizeof all[i].hash);
        sum.interrupted |= all[i].interrupted;
    }
    *mine = sum;
    r->interrupted |= sum.interrupted != 0;
    return status;
}

/* The model families' computation alone: `none` over a link without cost. */
static fo_status run_reference(runner *r, int64_t *begin_ns)
{
    static const fo_link no_link = {0};
    fo_group *group = r->rank.group;
    bool emulated = fo_group_link(group).bytes_per_s > 0;
    fo_status status = emulated ? fo_group_set_link(group, &no_link) : FO_OK;
    if (status == FO_OK)
        status = fo_measure_start(group, &r->clock, begin_ns);
    if (status == FO_OK)
        status = r->family->execute(r->rank.reference);
    return status;
}

/* Runs strategy s, or the computation alone, once on every rank. */
static fo_status execute(runner *r, int s, turn *result)
{
    fo_group *group = r->rank.group;
    void *subject =
        s == ALONE ? r->rank.subjects[fo_measure_rank_first(&r->rank)] : r->rank.subjects[s];
    bool reference = s == ALONE && !r->family->execute_local;
    int64_t exposed = r->family->exposed_ns(subject);
    int64_t begin = 0;
    fo_status status =
        reference ? run_reference(r, &begin) : fo_measure_start(group, &r->clock, &begin);
    if (status == FO_OK && !reference)
        status = s == ALONE ? r->family->execute_local(subject) : r->family->execute(subject);
    *result = (turn){.ms = (double)(fo_base_clock_ns() - begin) * 1e-6,
                     .exposed_ms = (double)(r->family->exposed_ns(subject) - exposed) * 1e-6,
                     .wire_bytes =
                         (double)r->family->wire_bytes(reference ? r->rank.reference : subject)};
    if (status == FO_OK)
        status = exchange(r, result);
    if (status == FO_OK && reference && r->link.bytes_per_s > 0)
        status = fo_group_set_link(group, &r->link);
    return status;
}

/* ---- the link ---------------------------------------------------------------------------------------- */

/* The speed at which the transfer takes the part, or the time, asked for. Bytes are those of the rank that
 * sends most. */
static fo_status set_link(runner *r)
{
    const fo_bench_options *o = r->rank.bench->options;
    int repeats = r->rank.setup.emulated ? LINK_REPEATS_EMULATED : LINK_REPEATS;
    double times[LINK_REPEATS];
    turn mine;
    fo_status status = execute(r, ALONE, &mine); /* warms up */
    r->wire_bytes = mine.wire_bytes;
    if (status != FO_OK || r->wire_bytes <= 0 || (o->link_ratio <= 0 && o->transfer_s <= 0))
        return status;
    double transfer_s = o->transfer_s;
    if (o->link_ratio > 0) {
        for (int i = 0; status == FO_OK && i < repeats; i++) {
            status = execute(r, ALONE, &mine);
            times[i] = mine.ms;
        }
        if (status == FO_OK)
            transfer_s = o->link_ratio * fo_base_median(times, repeats) * 1e-3;
    }
    if (status != FO_OK || !(transfer_s > 0))
        return status;
    r->link.bytes_per_s = r->wire_bytes / transfer_s;
    return fo_group_set_link(r->rank.group, &r->link);
}

/* ---- the turns ---------------------------------------------------------------------------------------- */

static fo_status hash_subject(runner *r, int s)
{
    void *subject = r->rank.subjects[s];
    turn mine = {.hash = 0xcbf29ce484222325u};
    r->family->clear(subject);
    fo_status status = r->family->execute(subject);
    if (status == FO_OK) {
        mine.hash = r->family->hash(subject, mine.hash);
        status = exchange(r, &mine);
    }
    r->hashes[s] = mine.hash;
    return status;
}

static fo_status hash_all(runner *r)
{
    fo_status status = FO_OK;
    for (int s = 0; status == FO_OK && s < r->rank.bench->strategy_count && !r->interrupted; s++)
        if (r->rank.subjects[s])
            status = hash_subject(r, s);
    return status;
}

static fo_status sample(runner *r, int s, bool counts)
{
    samples *of = s == ALONE ? &r->alone : &r->of[s];
    turn mine;
    fo_status status = execute(r, s, &mine);
    if (status != FO_OK || !counts || r->interrupted)
        return status;
    of->t[of->count] = mine.ms;
    of->exposed[of->count++] = mine.exposed_ms;
    return FO_OK;
}

/* Computation alone, A, B, C, then again, so that a drifting machine favours none. The first round warms up. */
static fo_status take_turns(runner *r)
{
    const fo_measure_bench *bench = r->rank.bench;
    fo_status status = FO_OK;
    for (int i = -1; status == FO_OK && i < bench->options->repeat && !r->interrupted; i++) {
        status = sample(r, ALONE, i >= 0);
        for (int s = 0; status == FO_OK && s < bench->strategy_count && !r->interrupted; s++)
            if (r->rank.subjects[s])
                status = sample(r, s, i >= 0);
        fo_measure_progress_show(&r->progress, i + 2, bench->options->repeat + 1);
    }
    return status;
}

/* ---- predictions --------------------------------------------------------------------------------------- */

/* Over the link that is timed. What can't be predicted stays open. */
static fo_status predict_all(runner *r)
{
    const fo_measure_bench *bench = r->rank.bench;
    fo_status status = FO_OK;
    for (int s = 0; status == FO_OK && s < bench->strategy_count; s++)
        if (r->rank.subjects[s])
            status = r->family->predict(r->rank.subjects[s], &r->predicted[s]);
    return status;
}

/* The operators of what the computation alone is in families that have no other: of `none` over a link without cost. */
static fo_status predict_reference(runner *r)
{
    static const fo_link no_link = {0};
    fo_group *group = r->rank.group;
    bool emulated = r->link.bytes_per_s > 0;
    fo_status status = emulated ? fo_group_set_link(group, &no_link) : FO_OK;
    if (status == FO_OK)
        status = r->family->predict(r->rank.reference, &r->reference);
    return status == FO_OK && emulated ? fo_group_set_link(group, &r->link) : status;
}

/* Operators are predicted before anything is timed; of models, whose executions say which operators there are, after. */
static fo_status predict(runner *r, bool timed)
{
    bool models = !r->family->execute_local;
    if (r->interrupted || models != timed)
        return FO_OK;
    fo_status status = models ? predict_reference(r) : FO_OK;
    return status == FO_OK ? predict_all(r) : status;
}

/* Of a model: its operators as predicted, all else as measured in the computation alone. */
static double predicted_ms(const runner *r, int s)
{
    double own_s = r->predicted[s].total_s;
    if (r->family->execute_local)
        return own_s * 1e3;
    return fo_base_median(r->alone.t, r->alone.count) + (own_s - r->reference.total_s) * 1e3;
}

/* ---- results ----------------------------------------------------------------------------------------- */

/* Compared with the first strategy that adds in the same order; -1: there is nothing to compare. */
static int same_bits(const runner *r, int s)
{
    const fo_schedule_spelled *strategies = r->rank.bench->strategies;
    int sums = fo_measure_spelling_sums(&strategies[s]), like = 0;
    if (r->rank.setup.emulated || sums < 0)
        return -1;
    while (like < s &&
           (!r->rank.subjects[like] || fo_measure_spelling_sums(&strategies[like]) != sums))
        like++;
    return r->hashes[s] == r->hashes[like];
}

static void fill_row(const runner *r, int s, fo_measure_row *row)
{
    const samples *of = &r->of[s];
    row->samples = of->count;
    row->t_ms = fo_base_median(of->t, of->count);
    row->low_ms = fo_base_percentile(of->t, of->count, 0.1);
    row->high_ms = fo_base_percentile(of->t, of->count, 0.9);
    row->exposed_ms = fo_base_median(of->exposed, of->count);
    row->predicted_ms = predicted_ms(r, s);
    row->predicted_exposed_ms = r->predicted[s].exposed_s * 1e3;
    row->error_pct = 100 * (row->predicted_ms / row->t_ms - 1);
    if (r->family->taken && r->rank.subjects[s] &&
        !strcmp(r->rank.bench->strategies[s].overlap, "auto"))
        r->family->taken(r->rank.subjects[s], row->taken, sizeof row->taken);
    row->bits = same_bits(r, s);
    snprintf(row->note, sizeof row->note, "%s",
             !r->rank.subjects[s] ? r->rank.notes[s]
             : of->count          ? ""
                                  : "interrupted before it was measured");
}

static void fill_result(const runner *r, fo_measure_result *result)
{
    const fo_measure_bench *bench = r->rank.bench;
    fo_measure_sizes sizes;
    double t_none = NAN;
    bench->family->sizes(bench->options, &bench->points[r->rank.point], &sizes);
    result->interrupted = r->interrupted;
    result->compute_ms = fo_base_median(r->alone.t, r->alone.count);
    for (int s = bench->strategy_count - 1; s >= 0;
         s--) /* the first that has one: as what is run alone */
        if (!isnan(r->predicted[s].compute_s))
            result->predicted_compute_ms = r->predicted[s].compute_s * 1e3;
    result->wire_bytes = r->wire_bytes;
    result->link = fo_group_link(r->rank.group);
    result->bound_ms = sizes.bound_computes
                           ? result->compute_ms
                           : fo_measure_bound_ms(result->compute_ms, r->wire_bytes, sizes.edge,
                                                 &result->link, fo_group_size(r->rank.group));
    for (int s = 0; s < bench->strategy_count; s++) {
        fill_row(r, s, &result->rows[s]);
        result->measured += result->rows[s].samples > 0;
        if (!strcmp(bench->strategies[s].name, "none"))
            t_none = result->rows[s].t_ms;
    }
    for (int s = 0; s < bench->strategy_count; s++) {
        fo_measure_row *row = &result->rows[s];
        row->ect_ms = row->t_ms - result->compute_ms;
        row->hidden_pct = fo_measure_bound_hidden(row->ect_ms, t_none - result->compute_ms);
        row->gap_pct = 100 * (row->t_ms / result->bound_ms - 1);
        row->faster_pct = fo_measure_bound_faster(row->t_ms, t_none);
    }
}

/* ---- the run of one rank ------------------------------------------------------------------------------ */

static fo_status allocate(runner *r)
{
    const fo_measure_bench *bench = r->rank.bench;
    size_t repeat = (size_t)bench->options->repeat;
    double *all = calloc(2 * repeat * (size_t)(bench->strategy_count + 1), sizeof *all);
    r->exchange = calloc((size_t)fo_group_size(r->rank.group), sizeof(turn));
    r->alone.t = all;
    if (!all || !r->exchange)
        return fo_base_error(FO_NO_MEMORY, "no memory for %zu times", repeat);
    r->alone.exposed = all + repeat;
    for (int s = 0; s < bench->strategy_count; s++) {
        r->of[s].t = all + 2 * repeat * (size_t)(s + 1);
        r->of[s].exposed = r->of[s].t + repeat;
    }
    return FO_OK;
}

static void note_group(const runner *r, fo_measure_result *result)
{
    fo_group *group = r->rank.group;
    result->threads = fo_group_threads(group);
    result->crowded = fo_group_crowded(group) && !fo_measure_bench_emulates(r->rank.bench);
    result->device = fo_group_device(group);
    snprintf(result->transport, sizeof result->transport, "%s", fo_group_transport(group));
    snprintf(result->kernel, sizeof result->kernel, "%s", fo_group_kernel(group));
    fo_group_hint(group, result->hint, sizeof result->hint);
}

static fo_status measure(runner *r)
{
    fo_status status = set_link(r);
    if (status == FO_OK)
        status = predict(r, false);
    if (status == FO_OK && !r->rank.setup.emulated)
        status = hash_all(r);
    if (status == FO_OK && !r->interrupted)
        status = take_turns(r);
    return status == FO_OK ? predict(r, true) : status;
}

/* What ranks share through a fork or, as threads, through memory. */
typedef struct launch {
    const fo_measure_bench *bench;
    int point;
} launch;

static fo_status runner_rank(fo_group *group, void *arg)
{
    const launch *l = arg;
    fo_measure_result *result = &l->bench->results[l->point];
    bool first = fo_group_rank(group) == 0, answers = fo_train_answers(group);
    char hosts[480];
    fo_status status = fo_train_enter(group, &l->bench->fingerprint, hosts, sizeof hosts);
    if (status != FO_OK)
        return status;
    runner *r = calloc(1, sizeof *r);
    if (!r)
        return fo_base_error(FO_NO_MEMORY, "no memory for a run");
    r->family = l->bench->family;
    for (int s = 0; s < FO_MEASURE_STRATEGIES; s++)
        r->predicted[s] = (fo_prediction){NAN, NAN, NAN, NAN};
    r->link = fo_group_link(group);
    if (answers)
        result->entered = true;
    status = fo_measure_rank_open(l->bench, l->point, group, &r->rank);
    if (answers) {
        note_group(r, result);
        snprintf(result->hosts, sizeof result->hosts, "%s", hosts);
    }
    if (first)
        fo_measure_progress_begin(&r->progress, l->bench, l->point);
    if (status == FO_OK)
        status = fo_measure_clock_compare(group, &r->clock);
    if (status == FO_OK)
        status = allocate(r);
    if (status == FO_OK)
        status = measure(r);
    if (first)
        fo_measure_progress_end(&r->progress);
    if (status == FO_OK && answers)
        fill_result(r, result);
    if (status != FO_OK && fo_group_interrupted(group))
        result->interrupted = true; /* a wait that had no end before it was asked to */
    /* interrupted ranks return FO_OK: a rank that fails ends the waits of those that are not that far */
    fo_measure_rank_close(&r->rank);
    free(r->alone.t);
    free(r->exchange);
    free(r);
    return status;
}

/* ---- the group of a point ----------------------------------------------------------------------------- */

fo_group_options fo_measure_runner_group(const fo_measure_bench *bench, int point)
{
    static const double room = 1.25, least = 1e9;
    fo_group_options group = bench->options->group;
    fo_measure_sizes sizes;
    group.device = bench->device;
    if (!fo_measure_bench_emulates(bench))
        return group;
    bench->family->sizes(bench->options, &bench->points[point], &sizes);
    if (bench->whole_s > 0)
        group.device.flops_per_s =
            sizes.flops / bench->whole_s /
            fo_measure_bound_efficiency(&group.device, (double)bench->points[point].rows);
    /* matrices that nobody touches may be larger than the machine's memory */
    double memory = room * sizes.memory + least;
    if (!group.memory && memory > (double)fo_transport_machine_memory())
        group.memory = (size_t)memory;
    return group;
}

fo_status fo_measure_runner_point(fo_measure_bench *bench, int point)
{
    launch l = {bench, point};
    fo_group_options group = fo_measure_runner_group(bench, point);
    fo_measure_result *result = &bench->results[point];
    fo_status status = fo_train_start(&group, runner_rank, &l);
    if (status == FO_OK && result->interrupted)
        return FO_INTERRUPTED;
    bench->killed |= status == FO_INTERRUPTED;
    if (status == FO_OK || status == FO_INTERRUPTED)
        return status;
    snprintf(result->note, sizeof result->note, "%s", fo_last_error());
    if (result->interrupted)
        return FO_INTERRUPTED;
    result->failed = status != FO_INVALID && status != FO_UNSUPPORTED && status != FO_NO_MEMORY;
    return result->entered ? FO_OK : status;
}
