/* Simulating an operation under several strategies, side by side. */
#include "planner/simulate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "schedule/operation.h"
#include "trace/page.h"

/* Up to so many ranks all are simulated, and drawn; of more, one of those that are alike. Programs of `none` have a
 * dependency for every pair of ranks: beyond RANKS they would fill the memory. */
enum { EXACT = 16, RANKS = 8192 };

/* Less than that is not worth another strategy. */
static const double margin = 0.01;

/* A rank that is slower, or by as much faster, is none. */
static const double slowest = 1e-3;

void fo_simulate_defaults(fo_simulate_options *options)
{
    *options = (fo_simulate_options){.ranks = 8,
                                     .batch = 8,
                                     .context = 512,
                                     .dim = 1024,
                                     .heads = 16,
                                     .dtype = FO_BF16,
                                     .wire = FO_BF16,
                                     .slow_rank = -1,
                                     .slow_speed = 1};
}

/* ---- options ---------------------------------------------------------------------------------------- */

static fo_status check_speeds(const fo_simulate_options *o)
{
    if (o->slow_rank < -1 || o->slow_rank >= o->ranks)
        return fo_base_error(FO_INVALID, "--slow-rank names rank %d of %d, expected 0 to %d",
                             o->slow_rank, o->ranks, o->ranks - 1);
    if (o->slow_rank >= 0 && !(o->slow_speed >= slowest && o->slow_speed <= 1 / slowest))
        return fo_base_error(FO_INVALID,
                             "--slow-rank gives a speed of %g, expected %g to %g, such as 0.8",
                             o->slow_speed, slowest, 1 / slowest);
    return FO_OK;
}

static fo_status check_links(const fo_simulate_options *o)
{
    int said = (o->link.bytes_per_s > 0) + (o->link_ratio > 0) + (o->transfer_s > 0);
    if (said > 1)
        return fo_base_error(FO_INVALID,
                             "--transfer and the speed of --link both say how fast the link "
                             "is, expected one of them");
    return FO_OK;
}

static fo_status check_files(const fo_simulate_options *o)
{
    fo_status status = fo_trace_check_paths(o->trace, o->report);
    return status == FO_OK && o->chakra ? fo_planner_simulate_chakra_check(o) : status;
}

static fo_status check_options(fo_planner_simulation *s)
{
    const fo_simulate_options *o = s->options;
    s->subject = fo_planner_simulate_subject_find(o->subject);
    if (!s->subject)
        return fo_base_error(FO_INVALID, "'%s' is unknown, expected row, column, mlp or attention",
                             o->subject ? o->subject : "");
    if (o->ranks < 1 || o->ranks > RANKS)
        return fo_base_error(FO_INVALID, "--ranks is %d, expected 1 to %d", o->ranks, RANKS);
    fo_status status = fo_planner_simulate_subject_check(o, s->subject);
    s->rows = fo_planner_simulate_subject_rows(o);
    if (status == FO_OK)
        status = check_speeds(o);
    if (status == FO_OK)
        status = check_links(o);
    return status;
}

/* Where weight gradients are computed too, flash cuts shards into as many slices as they have blocks; whole shards
 * may suit a device better. */
static fo_status read_strategies(fo_planner_simulation *s)
{
    const fo_simulate_options *o = s->options;
    char list[128];
    snprintf(list, sizeof list, "none,slice:2,slice:4,slice:8,ring,%s,direct%s",
             o->backward ? "flash:1,flash" : "flash,flash:2",
             s->nodes > 1 && s->nodes < o->ranks ? ",hier" : "");
    fo_status status =
        fo_schedule_spelling_read(o->overlap ? o->overlap : list, s->subject->name, o->backward,
                                  o->backward ? s->subject->forms_backward : s->subject->forms,
                                  s->strategies, FO_PLANNER_STRATEGIES, &s->count);
    for (int i = 0; status == FO_OK && i < s->count; i++)
        if (s->strategies[i].kind == FO_STRATEGY_LIBRARY)
            status = fo_base_error(FO_INVALID,
                                   "--overlap '%s' leaves its messages to a library's own "
                                   "collectives and has no program to simulate; expected one that "
                                   "has, such as none or slice:4",
                                   s->strategies[i].overlap);
    return status;
}

/* A profile of a device that multiplies one type says nothing of the other. */
static fo_status check_dtype(const fo_planner_simulation *s)
{
    const fo_sim_device *device = &s->machine.device;
    fo_dtype dtype = s->options->dtype, other = dtype == FO_BF16 ? FO_F32 : FO_BF16;
    if (device->flops_per_s[dtype] > 0 || !(device->flops_per_s[other] > 0))
        return FO_OK;
    return fo_base_error(FO_INVALID,
                         "%s does not say how fast it multiplies %s, expected --dtype %s",
                         s->machine.name, fo_dtype_name(dtype), fo_dtype_name(other));
}

static fo_status make_speeds(fo_planner_simulation *s)
{
    const fo_simulate_options *o = s->options;
    if (o->slow_rank < 0 || o->slow_speed == 1)
        return FO_OK;
    s->speed = malloc((size_t)o->ranks * sizeof *s->speed);
    if (!s->speed)
        return fo_base_error(FO_NO_MEMORY, "no memory for the speeds of %d ranks", o->ranks);
    for (int r = 0; r < o->ranks; r++)
        s->speed[r] = r == o->slow_rank ? o->slow_speed : 1;
    return FO_OK;
}

/* ---- one strategy ----------------------------------------------------------------------------------- */

fo_sim_operation fo_planner_simulate_operation(const fo_planner_simulation *s,
                                               const fo_plan_desc *desc)
{
    return (fo_sim_operation){.desc = *desc,
                              .ranks = s->options->ranks,
                              .nodes = s->nodes,
                              .threads = s->options->threads,
                              .exact = s->options->ranks <= EXACT,
                              .speed = s->speed};
}

/* What the runtime would take for "auto": strategies that leave the bits alone. */
static fo_status choose(const fo_planner_simulation *s, const fo_plan_desc *desc, char overlap[32])
{
    fo_sim_operation operation = fo_planner_simulate_operation(s, desc);
    fo_sim_choice choice;
    fo_status status =
        fo_sim_operation_choose(&s->machine, &operation, NULL, 0, false, margin, &choice, NULL);
    snprintf(overlap, 32, "%s", status == FO_OK ? choice.overlap : "none");
    return status;
}

fo_status fo_planner_simulate_operations(const fo_planner_simulation *s,
                                         const fo_schedule_spelled *strategy,
                                         fo_planner_operations *o)
{
    fo_status status = FO_OK;
    o->count = fo_planner_simulate_subject_operations(s->options, s->subject, strategy->form,
                                                      strategy->kind == FO_STRATEGY_AUTO
                                                          ? "none"
                                                          : strategy->overlap,
                                                      o->descs);
    for (int i = 0; strategy->kind == FO_STRATEGY_AUTO && status == FO_OK && i < o->count; i++) {
        status = choose(s, &o->descs[i], o->overlaps[i]);
        o->descs[i].overlap = o->overlaps[i];
    }
    return status;
}

static fo_status watched_run(const fo_planner_simulation *s, fo_sim_operation *operation,
                             fo_planner_timeline *timeline, double begin_s, fo_sim_report *report)
{
    fo_planner_programs programs;
    fo_status status = fo_planner_simulate_programs_make(&s->machine, operation, &programs);
    if (status == FO_OK)
        status =
            fo_planner_timeline_operation(timeline, fo_schedule_operation_name(operation->desc.op),
                                          &programs, begin_s);
    operation->watch = fo_planner_timeline_watch;
    operation->watcher = timeline;
    if (status == FO_OK)
        status = fo_sim_operation_run(&s->machine, operation, report);
    operation->watch = NULL;
    if (status == FO_OK) /* programs must live until here */
        status = fo_planner_timeline_end(timeline, begin_s + report->total_s);
    fo_planner_simulate_programs_free(&programs);
    return status;
}

static void add_reports(fo_sim_report *sum, const fo_sim_report *one)
{
    sum->total_s += one->total_s;
    sum->compute_s += one->compute_s;
    sum->transfer_s += one->transfer_s;
    sum->bound_s += one->bound_s;
    sum->exposed_s += one->exposed_s;
    sum->sent_bytes += one->sent_bytes;
    sum->slices += one->slices;
    sum->events += one->events;
    sum->losses.imbalance += one->losses.imbalance;
    sum->losses.contention += one->losses.contention;
    sum->losses.overhead += one->losses.overhead;
    sum->losses.latency += one->losses.latency;
    sum->losses.slicing += one->losses.slicing;
    sum->losses.tail += one->losses.tail;
}

/* Operations that follow each other could at best hide each other's edges, and pay the latency once: the bound is
 * that of their whole computation and transfer (docs/metrics.md); what is above it and in no part is a tail. */
static void bound_parts(const fo_planner_simulation *s, int parts, double longest_s,
                        fo_sim_report *sum)
{
    const fo_sim_network *n = &s->machine.network;
    double latency = s->nodes > 1 ? fmax(n->link.latency_s, n->outer.latency_s) : n->link.latency_s;
    if (parts < 2)
        return;
    sum->transfer_s = fmax(longest_s, sum->transfer_s - (parts - 1) * latency);
    double bound = fmax(sum->compute_s, sum->transfer_s);
    bound = fmin(bound, sum->bound_s);
    if (s->options->explain)
        sum->losses.tail += sum->bound_s - bound;
    sum->bound_s = bound;
}

static fo_status run_parts(const fo_planner_simulation *s, const fo_planner_operations *all,
                           fo_planner_timeline *timeline, fo_sim_report *sum)
{
    double longest_s = 0;
    *sum = (fo_sim_report){0};
    for (int i = 0; i < all->count; i++) {
        fo_sim_operation operation = fo_planner_simulate_operation(s, &all->descs[i]);
        fo_sim_report report;
        fo_status status =
            timeline ? watched_run(s, &operation, timeline, sum->total_s, &report) : FO_OK;
        if (status == FO_OK)
            status = (s->options->explain ? fo_sim_operation_explain
                                          : fo_sim_operation_run)(&s->machine, &operation, &report);
        if (status != FO_OK)
            return status;
        longest_s = fmax(longest_s, report.transfer_s);
        add_reports(sum, &report);
    }
    bound_parts(s, all->count, longest_s, sum);
    return FO_OK;
}

/* What can't be done is a row with a note; only memory and the like end all. */
static fo_status run_strategy(const fo_planner_simulation *s, const fo_schedule_spelled *strategy,
                              bool draw, fo_planner_row *row)
{
    row->ect_s = row->hidden_pct = row->gap_pct = row->faster_pct = NAN;
    row->timeline = draw ? fo_planner_timeline_make() : NULL;
    if (draw && !row->timeline)
        return fo_base_error(FO_NO_MEMORY, "no memory for a timeline");
    fo_planner_operations operations;
    fo_status status = fo_planner_simulate_operations(s, strategy, &operations);
    size_t used = 0;
    for (int i = 0; status == FO_OK && strategy->kind == FO_STRATEGY_AUTO && i < operations.count;
         i++)
        used += (size_t)snprintf(row->chosen + used, sizeof row->chosen - used, "%s%s",
                                 i ? ", " : "", operations.overlaps[i]);
    if (status == FO_OK)
        status = run_parts(s, &operations, row->timeline, &row->report);
    if (status != FO_INVALID && status != FO_UNSUPPORTED && status != FO_SCHEDULE)
        return status;
    snprintf(row->note, sizeof row->note, "%s", fo_last_error());
    return FO_OK;
}

/* ---- all of them ------------------------------------------------------------------------------------ */

static void derive(const fo_planner_simulation *s, fo_planner_row *row)
{
    const fo_sim_report *none = &s->none.report, *r = &row->report;
    double ect_none = none->total_s - none->compute_s;
    if (row->note[0])
        return;
    row->ect_s = r->total_s - r->compute_s;
    row->gap_pct = r->bound_s > 0 ? 100 * (r->total_s / r->bound_s - 1) : NAN;
    row->hidden_pct = ect_none > 0 ? 100 * (1 - row->ect_s / ect_none) : NAN;
    row->faster_pct = none->total_s > 0 ? 100 * (1 - r->total_s / none->total_s) : NAN;
}

static void find_best(fo_planner_simulation *s)
{
    s->best = -1;
    for (int i = 0; i < s->count; i++) {
        const fo_planner_row *row = &s->results[i];
        if (!row->note[0] &&
            (s->best < 0 || row->report.total_s < s->results[s->best].report.total_s))
            s->best = i;
    }
}

/* --link auto: and --transfer: how fast the link is follows from what travels. */
static fo_status choose_link(fo_planner_simulation *s, const fo_schedule_spelled *none)
{
    const fo_simulate_options *o = s->options;
    fo_planner_operations operations;
    fo_sim_report report = {0};
    if (!(o->link_ratio > 0 || o->transfer_s > 0))
        return FO_OK;
    if (s->nodes > 1)
        return fo_base_error(FO_INVALID,
                             "--link auto: and --transfer say what one link takes, and there are "
                             "%d machines; expected --link and --outer with speeds",
                             s->nodes);
    fo_status status = fo_planner_simulate_operations(s, none, &operations);
    if (status == FO_OK)
        status = run_parts(s, &operations, NULL, &report);
    double time = o->transfer_s > 0 ? o->transfer_s : o->link_ratio * report.compute_s;
    if (status == FO_OK && time > 0 && report.sent_bytes > 0)
        s->machine.network.link.bytes_per_s = report.sent_bytes / time;
    return status;
}

static fo_status run_all(fo_planner_simulation *s)
{
    const fo_simulate_options *o = s->options;
    const fo_schedule_spelled none = {.name = "none", .overlap = "none"};
    bool draw = o->trace || o->report;
    fo_status status = choose_link(s, &none);
    if (status == FO_OK)
        status = run_strategy(s, &none, false, &s->none);
    if (status == FO_OK && s->none.note[0]) /* then none of them can be */
        status = fo_base_error(FO_INVALID, "%s", s->none.note);
    for (int i = 0; status == FO_OK && i < s->count; i++)
        status = run_strategy(s, &s->strategies[i], draw, &s->results[i]);
    if (status != FO_OK)
        return status;
    for (int i = 0; i < s->count; i++)
        derive(s, &s->results[i]);
    derive(s, &s->none);
    find_best(s);
    if (s->best < 0)
        return fo_base_error(FO_INVALID, "nothing could be simulated: %s", s->results[0].note);
    status = fo_planner_simulate_overlap(s, &none);
    s->pays = s->overlapping >= 0 &&
              s->results[s->overlapping].report.total_s < s->none.report.total_s * (1 - margin);
    return status;
}

static fo_status write_files(const fo_planner_simulation *s)
{
    fo_status status = fo_planner_simulate_report(s);
    return status == FO_OK && s->options->chakra ? fo_planner_simulate_chakra(s) : status;
}

static fo_status simulate(fo_planner_simulation *s)
{
    fo_status status = check_options(s);
    if (status == FO_OK)
        status = fo_planner_simulate_machine(s->options, &s->machine, &s->nodes);
    if (status == FO_OK)
        status = read_strategies(s);
    if (status == FO_OK)
        status = check_dtype(s);
    if (status == FO_OK)
        status = check_files(s->options);
    if (status == FO_OK)
        status = make_speeds(s);
    if (status == FO_OK)
        status = run_all(s);
    if (status != FO_OK)
        return status;
    fo_planner_simulate_print(s);
    if (fflush(s->out) || ferror(s->out))
        return fo_base_error(FO_IO, "the table can't be written");
    return write_files(s);
}

fo_status fo_simulate_run(const fo_simulate_options *options, FILE *out)
{
    fo_planner_simulation *s = calloc(1, sizeof *s);
    if (!s)
        return fo_base_error(FO_NO_MEMORY, "no memory for a simulation");
    s->options = options;
    s->out = out;
    fo_status status = simulate(s);
    for (int i = 0; i < FO_PLANNER_STRATEGIES; i++)
        fo_planner_timeline_free(s->results[i].timeline);
    fo_sim_machine_free(&s->machine);
    free(s->speed);
    free(s);
    return status;
}
