/* Files of a benchmark: timelines of every strategy at the first measured point, and the HTML report. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "flashoverlap/calibrate.h"
#include "flashoverlap/job.h"
#include "measure/facts.h"
#include "measure/result.h"
#include "trace/page.h"
#include "train/train.h"

enum { EVENTS = 1 << 18 };

fo_status fo_measure_report_check(const fo_bench_options *options)
{
    return fo_trace_check_paths(options->trace, options->report);
}

/* ---- the page ---------------------------------------------------------------------------------------- */

/* The texts a page points to. */
typedef struct texts {
    char title[96], subtitle[256], how[640], link[256], ranks[64], kernel[64], device[256];
    fo_page_row rows[FO_MEASURE_POINTS * FO_MEASURE_STRATEGIES];
    fo_measure_facts facts;
} texts;

static int fill_rows(const fo_measure_bench *b, fo_page_row *rows)
{
    int count = 0;
    for (int p = 0; p < b->point_count; p++)
        for (int s = 0; s < b->strategy_count; s++) {
            const fo_measure_result *r = &b->results[p];
            const fo_measure_row *row = &r->rows[s];
            const char *note = row->note[0] ? row->note : r->note;
            rows[count++] = (fo_page_row){
                .point = r->label[0] ? r->label : NULL,
                .overlap = b->strategies[s].name,
                .t_ms = row->t_ms,
                .t_low_ms = row->low_ms,
                .t_high_ms = row->high_ms,
                .compute_ms = r->compute_ms,
                .ect_ms = row->ect_ms,
                .hidden_pct = row->hidden_pct,
                .exposed_ms = row->exposed_ms,
                .bound_ms = row->samples ? r->bound_ms : NAN,
                .gap_pct = row->gap_pct,
                .predicted_ms = row->predicted_ms,
                .bits = row->samples ? row->bits : -1,
                .note = *note ? note : NULL,
            };
        }
    return count;
}

static void fill_how(const fo_measure_bench *b, const fo_measure_result *r, texts *t)
{
    bool emulated = fo_measure_bench_emulates(b);
    fo_measure_print_link(r, t->link, sizeof t->link);
    snprintf(t->how, sizeof t->how,
             "Computation is %s; the link is %s. Times are medians of %d interleaved runs, of the "
             "slowest rank; low and high are the 10th and 90th percentile.",
             emulated ? "emulated: real programs, messages and waits, but nothing is computed"
                      : "real and measured",
             r->link.bytes_per_s > 0
                 ? "emulated: real messages that arrive as late as over such a link"
             : !strcmp(r->transport, "mpi") ? "that of the hosts, not emulated"
                                            : "this machine's shared memory, not emulated",
             b->options->repeat);
}

static void fill_facts(const fo_measure_bench *b, const fo_measure_result *r, texts *t)
{
    fo_measure_facts_machine(&t->facts);
    snprintf(t->ranks, sizeof t->ranks, "%d x %d thread%s, %s", b->options->group.ranks, r->threads,
             r->threads == 1 ? "" : "s", r->transport);
    fo_measure_facts_add(&t->facts, "ranks", t->ranks);
    snprintf(t->kernel, sizeof t->kernel, "%s", r->kernel);
    fo_measure_facts_add(&t->facts, "kernel", t->kernel);
    fo_measure_facts_add(&t->facts, b->point_count > 1 ? "link, first point" : "link", t->link);
    if (fo_measure_bench_emulates(b)) {
        fo_device_print(&r->device, t->device, sizeof t->device);
        fo_measure_facts_add(&t->facts, "emulated device", t->device);
    }
}

static fo_status write_page(const fo_measure_bench *b, int first, const fo_timeline_part *parts,
                            int count)
{
    const fo_measure_result *r = &b->results[first];
    texts *t = calloc(1, sizeof *t);
    if (!t)
        return fo_base_error(FO_NO_MEMORY, "no memory for the report");
    fo_measure_print_title(b, t->title, sizeof t->title);
    size_t used = strlen(t->title);
    snprintf(t->title + used, sizeof t->title - used, ", %d rank%s", b->options->group.ranks,
             b->options->group.ranks == 1 ? "" : "s");
    fo_measure_print_sizes(b, t->subtitle, sizeof t->subtitle);
    fill_how(b, r, t);
    fill_facts(b, r, t);
    fo_page page = {.title = t->title,
                    .subtitle = t->subtitle,
                    .command = b->options->command,
                    .how = t->how,
                    .emulated = fo_measure_bench_emulates(b) || r->link.bytes_per_s > 0,
                    .interrupted = b->interrupted,
                    .facts = t->facts.list,
                    .fact_count = t->facts.count,
                    .rows = t->rows,
                    .row_count = fill_rows(b, t->rows),
                    .timelines = parts,
                    .timeline_count = count};
    fo_status status = fo_trace_page_write(&page, b->options->report);
    free(t);
    return status;
}

/* ---- traces ------------------------------------------------------------------------------------------ */

typedef struct tracer {
    fo_measure_bench *bench;
    int point;
} tracer;

/* Once to warm up, once to look at. */
static fo_status trace_strategy(fo_measure_rank *r, int s, fo_timeline **timeline)
{
    const fo_measure_family *family = r->bench->family;
    fo_status status = family->execute(r->subjects[s]);
    if (status == FO_OK)
        status = fo_train_agree(r->group, fo_trace_start(r->group, EVENTS));
    if (status == FO_OK)
        status = fo_group_barrier(r->group);
    if (status == FO_OK)
        status = family->execute(r->subjects[s]);
    return status == FO_OK ? fo_trace_stop(r->group, timeline) : status;
}

static fo_status write_files(const tracer *t, const fo_timeline_part *parts, int count)
{
    const fo_bench_options *o = t->bench->options;
    const fo_measure_result *r = &t->bench->results[t->point];
    char note[96];
    snprintf(note, sizeof note, "%s%s%s%s", r->label, r->label[0] ? ", " : "",
             fo_measure_bench_emulates(t->bench) ? "emulated computation, " : "",
             r->link.bytes_per_s > 0        ? "emulated link"
             : !strcmp(r->transport, "mpi") ? "the hosts' link"
                                            : "this machine's memory");
    fo_status status = o->trace ? fo_trace_timeline_write(parts, count, note, o->trace) : FO_OK;
    if (o->report && (status == FO_OK || status == FO_IO)) {
        fo_status page = write_page(t->bench, t->point, parts, count);
        status = status == FO_OK ? page : status;
    }
    return status;
}

static fo_status tracer_rank(fo_group *group, void *arg)
{
    const tracer *t = arg;
    const fo_measure_bench *b = t->bench;
    fo_measure_result *result = &b->results[t->point];
    fo_timeline *timelines[FO_MEASURE_STRATEGIES] = {0};
    fo_timeline_part parts[FO_MEASURE_STRATEGIES];
    fo_measure_rank rank;
    int count = 0;
    fo_status status = fo_measure_rank_open(b, t->point, group, &rank);
    if (status == FO_OK && result->link.bytes_per_s > 0)
        status = fo_group_set_link(group, &result->link);
    for (int s = 0; status == FO_OK && s < b->strategy_count; s++)
        if (rank.subjects[s]) {
            status = trace_strategy(&rank, s, &timelines[s]);
            if (timelines[s])
                parts[count++] = (fo_timeline_part){b->strategies[s].name, timelines[s]};
        }
    if (status == FO_OK) {
        bool writes = fo_group_rank(group) == 0;
        fo_status written = fo_train_agree(group, writes ? write_files(t, parts, count) : FO_OK);
        if (written != FO_OK && fo_train_answers(group))
            snprintf(result->file_error, sizeof result->file_error, "%s", fo_last_error());
    }
    for (int s = 0; s < b->strategy_count; s++)
        fo_timeline_free(timelines[s]);
    fo_measure_rank_close(&rank);
    return status;
}

/* ---- the call ---------------------------------------------------------------------------------------- */

static int first_measured(const fo_measure_bench *b)
{
    int first = 0;
    while (first < b->point_count && !b->results[first].measured)
        first++;
    return first;
}

fo_status fo_measure_report_write(fo_measure_bench *b)
{
    const fo_bench_options *o = b->options;
    tracer t = {b, first_measured(b)};
    if (!o->trace && !o->report)
        return FO_OK;
    if (t.point == b->point_count || b->killed ||
        b->ended) /* nothing to trace, or nobody who would wait for it */
        return o->report && fo_job_first() ? write_page(b, t.point % b->point_count, NULL, 0)
                                           : FO_OK;
    fo_group_options group = fo_measure_runner_group(b, t.point);
    fo_status status = fo_group_run(&group, tracer_rank, &t);
    const char *error = b->results[t.point].file_error;
    return status == FO_OK && *error ? fo_base_error(FO_IO, "%s", error) : status;
}
