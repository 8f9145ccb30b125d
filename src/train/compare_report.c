/* The files of a comparison: a step's timelines, and the HTML report. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "trace/page.h"
#include "train/compare.h"

fo_status fo_train_compare_check_files(const fo_train_options *options)
{
    return fo_trace_check_paths(options->trace, options->report);
}

/* What a page points to. */
typedef struct texts {
    char title[96], subtitle[256], how[640], link[192], ranks[96], steps[64];
    fo_page_row rows[FO_TRAIN_STRATEGIES];
    fo_page_curve curves[FO_TRAIN_STRATEGIES];
    fo_timeline_part parts[FO_TRAIN_STRATEGIES];
    int parts_count;
} texts;

static void fill_rows(const fo_train_comparison *c, const fo_train_row *rows, texts *t)
{
    for (int i = 1; i < c->count; i++) {
        const fo_train_row *r = &rows[i];
        const fo_train_way *w = &c->ways[i];
        t->rows[i - 1] = (fo_page_row){
            .overlap = w->overlap,
            .t_ms = r->t_ms,
            .t_low_ms = r->low_ms,
            .t_high_ms = r->high_ms,
            .compute_ms = r->alone_ms,
            .ect_ms = r->ect_ms,
            .hidden_pct = r->hidden_pct,
            .exposed_ms = r->exposed_ms,
            .bound_ms = r->alone_ms,
            .gap_pct = 100 * (r->t_ms / r->alone_ms - 1),
            .predicted_ms = r->predicted_ms,
            .bits = r->equal,
        };
        t->curves[i - 1] = (fo_page_curve){w->overlap, w->losses, c->steps};
        if (w->timeline)
            t->parts[t->parts_count++] = (fo_timeline_part){w->overlap, w->timeline};
    }
}

static bool all_equal(const fo_train_comparison *c, const fo_train_row *rows)
{
    bool equal = true;
    for (int i = 1; i < c->count; i++)
        equal &= rows[i].equal;
    return equal;
}

static void fill_texts(const fo_train_comparison *c, const fo_train_row *rows, texts *t)
{
    const fo_train_options *o = &c->job->options;
    const fo_train_worker *worker = &c->ways[0].worker;
    snprintf(t->title, sizeof t->title, "training step, %d rank%s", o->group.ranks,
             o->group.ranks == 1 ? "" : "s");
    snprintf(t->subtitle, sizeof t->subtitle,
             "%" PRId64 " layers, %" PRId64 " heads, %" PRId64 " wide, %" PRId64 " x %" PRId64
             " tokens, vocabulary %" PRId64 ", %s, wire %s",
             o->layers, o->heads, o->dim, o->batch, o->context, o->vocabulary,
             fo_dtype_name(o->dtype), fo_dtype_name(o->wire));
    fo_train_compare_link(c, t->link, sizeof t->link);
    snprintf(t->how, sizeof t->how,
             "Computation is real and measured; the link is %s. Times are medians over interleaved "
             "steps, of the slowest rank. Losses and gradient norms of all %" PRId64
             " steps are %s. The timelines are of one more step.",
             t->link, c->steps,
             all_equal(c, rows) ? "equal to the bit under every strategy"
                                : "not equal to the bit under every strategy");
    snprintf(t->ranks, sizeof t->ranks, "%d x %d threads, %s, kernel %s (%s)", o->group.ranks,
             fo_group_threads(worker->group), fo_group_transport(worker->group),
             fo_group_kernel(worker->group), worker->kernel->isa());
    snprintf(t->steps, sizeof t->steps, "%" PRId64 " of %" PRId64, c->steps, o->steps);
}

static fo_status write_page(const fo_train_comparison *c, texts *t)
{
    const fo_train_options *o = &c->job->options;
    const fo_page_fact facts[] = {{"ranks", t->ranks},
                                  {"link", t->link},
                                  {"steps", t->steps},
                                  {"data", o->data}};
    fo_page page = {.title = t->title,
                    .subtitle = t->subtitle,
                    .command = o->command,
                    .how = t->how,
                    .emulated = c->link.bytes_per_s > 0,
                    .interrupted = c->interrupted,
                    .facts = facts,
                    .fact_count = sizeof facts / sizeof *facts,
                    .rows = t->rows,
                    .row_count = c->count - 1,
                    .timelines = t->parts,
                    .timeline_count = t->parts_count,
                    .curves = t->curves,
                    .curve_count = c->count - 1};
    return fo_trace_page_write(&page, o->report);
}

fo_status fo_train_compare_write_files(const fo_train_comparison *c, const fo_train_row *rows)
{
    const fo_train_options *o = &c->job->options;
    if (!o->trace && !o->report)
        return FO_OK;
    texts *t = calloc(1, sizeof *t);
    if (!t)
        return fo_base_error(FO_NO_MEMORY, "no memory for the report");
    fill_rows(c, rows, t);
    fill_texts(c, rows, t);
    const char *note = c->link.bytes_per_s > 0 ? "emulated link" : "this machine's memory";
    fo_status status =
        o->trace ? fo_trace_timeline_write(t->parts, t->parts_count, note, o->trace) : FO_OK;
    if (status == FO_OK && o->report)
        status = write_page(c, t);
    free(t);
    return status;
}
