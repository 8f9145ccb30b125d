/* The figures of a comparison, and the table. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/quantile.h"
#include "flashoverlap/job.h"
#include "group/group.h"
#include "train/compare.h"

/* ---- figures ---------------------------------------------------------------------------------------- */

/* The first step warms up and counts only when it is the only one. */
static int64_t first_counted(const fo_train_comparison *c)
{
    return c->steps > 1;
}

/* The value below which `part` of the counted steps' values lie, linear between neighbours. */
static double percentile(const fo_train_comparison *c, const double *values, double part)
{
    int64_t skip = first_counted(c), count = c->steps - skip;
    return fo_base_percentile(values + skip, count, part);
}

static bool real_links(void)
{
    fo_job job;
    fo_job_get(&job);
    return job.size > 1;
}

void fo_train_compare_rows(const fo_train_comparison *c, fo_train_row *rows)
{
    size_t bytes = (size_t)c->steps * sizeof(double);
    /* over the links of a job nothing is without cost */
    double alone = real_links() ? NAN : percentile(c, c->ways[0].t_ms, 0.5);
    double none = NAN, data_none = NAN;
    for (int i = 1; i < c->count; i++) {
        const fo_train_way *w = &c->ways[i], *first = &c->ways[1];
        rows[i] = (fo_train_row){.t_ms = percentile(c, w->t_ms, 0.5),
                                 .low_ms = percentile(c, w->t_ms, 0.1),
                                 .high_ms = percentile(c, w->t_ms, 0.9),
                                 .exposed_ms = percentile(c, w->exposed_ms, 0.5),
                                 .data_exposed_ms = percentile(c, w->data_ms, 0.5),
                                 .alone_ms = alone};
        rows[i].ect_ms = rows[i].t_ms - alone;
        /* operators as predicted, all else as measured where nothing is waited for */
        rows[i].predicted_ms = alone + w->predicted_ms - c->ways[0].predicted_ms;
        rows[i].error_pct = 100 * (rows[i].predicted_ms / rows[i].t_ms - 1);
        rows[i].equal =
            !memcmp(w->losses, first->losses, bytes) && !memcmp(w->norms, first->norms, bytes);
        if (!strcmp(w->overlap, "none"))
            none = rows[i].t_ms, data_none = rows[i].data_exposed_ms;
    }
    for (int i = 1; i < c->count; i++) {
        rows[i].hidden_pct = none > alone ? 100 * (1 - rows[i].ect_ms / (none - alone)) : NAN;
        rows[i].faster_pct = 100 * (1 - rows[i].t_ms / none);
        rows[i].data_hidden_pct =
            data_none > 0 ? 100 * (1 - rows[i].data_exposed_ms / data_none) : NAN;
    }
}

/* ---- output ----------------------------------------------------------------------------------------- */

static const char *number(double value, const char *format, const char *otherwise, char *text,
                          size_t size)
{
    if (isfinite(value))
        snprintf(text, size, format, value);
    else
        snprintf(text, size, "%s", otherwise);
    return text;
}

static void print_json(const fo_train_comparison *c, const fo_train_row *rows)
{
    for (int i = 1; i < c->count; i++) {
        const fo_train_row *r = &rows[i];
        char hidden[32], faster[32], ect[32], alone[32], predicted[32], error[32];
        fprintf(
            c->out,
            "%s\n  {\"overlap\": \"%s\", \"t_ms\": %.4f, \"t_p10_ms\": %.4f, \"t_p90_ms\": %.4f, "
            "\"ect_ms\": %s, \"hidden_pct\": %s, \"exposed_ms\": %.4f, \"faster_pct\": %s, "
            "\"compute_ms\": %s, ",
            i == 1 ? "[" : ",", c->ways[i].overlap, r->t_ms, r->low_ms, r->high_ms,
            number(r->ect_ms, "%.4f", "null", ect, sizeof ect),
            number(r->hidden_pct, "%.2f", "null", hidden, sizeof hidden), r->exposed_ms,
            number(r->faster_pct, "%.2f", "null", faster, sizeof faster),
            number(r->alone_ms, "%.4f", "null", alone, sizeof alone));
        fprintf(c->out, "\"tp\": %d, \"dp\": %d, \"dp_exposed_ms\": %.4f, \"dp_hidden_pct\": %s, ",
                c->job->config.tp, c->job->config.dp, r->data_exposed_ms,
                number(r->data_hidden_pct, "%.2f", "null", hidden, sizeof hidden));
        fprintf(c->out, "\"predicted_ms\": %s, \"prediction_error_pct\": %s, ",
                number(r->predicted_ms, "%.4f", "null", predicted, sizeof predicted),
                number(r->error_pct, "%.2f", "null", error, sizeof error));
        fprintf(c->out,
                "\"steps\": %" PRId64 ", \"loss\": %.9g, \"bitwise_equal\": %s, "
                "\"computation\": \"measured\", \"link\": \"%s\", \"link_bytes_per_s\": %.6g, "
                "\"interrupted\": %s}",
                c->steps, c->ways[i].losses[c->steps - 1], r->equal ? "true" : "false",
                c->link.bytes_per_s > 0 ? "emulated" : "transport", c->link.bytes_per_s,
                c->interrupted ? "true" : "false");
    }
    fprintf(c->out, "\n]\n");
}

void fo_train_compare_link(const fo_train_comparison *c, char *text, size_t size)
{
    if (c->link.bytes_per_s <= 0) {
        snprintf(text, size,
                 real_links() ? "those of the job, as they are"
                              : "not emulated; shared memory as it is");
        return;
    }
    int used = snprintf(text, size, "emulated, %.4g GB/s, %.1f us", c->link.bytes_per_s * 1e-9,
                        c->link.latency_s * 1e6);
    if (c->job->options.link_ratio > 0)
        snprintf(text + used, size - (size_t)used,
                 ": moving a row-parallel layer's sums takes %.2f of its measured computation",
                 c->job->options.link_ratio);
}

static void print_row(const fo_train_comparison *c, const fo_train_row *r, const char *name,
                      double loss, bool best)
{
    char spread[64], hidden[32], faster[32], ect[32], predicted[32], error[32];
    bool color = best && c->job->options.color;
    snprintf(spread, sizeof spread, "%.2f-%.2f", r->low_ms, r->high_ms);
    fprintf(c->out, "%s%-12s %10.2f %17s %12s %7s %10s %9s %11.2f %9s  %-6s  %.9g%s\n",
            color ? "\033[1;32m" : "", name, r->t_ms, spread,
            number(r->predicted_ms, "%.2f", "-", predicted, sizeof predicted),
            number(r->error_pct, "%.1f", "-", error, sizeof error),
            number(r->ect_ms, "%.2f", "-", ect, sizeof ect),
            number(r->hidden_pct, "%.1f", "-", hidden, sizeof hidden), r->exposed_ms,
            number(r->faster_pct, "%.1f", "-", faster, sizeof faster),
            r->equal ? "equal" : "differ", loss, color ? "\033[0m" : "");
}

/* Gradients and parameters that travel between replicas. */
static void print_replicas(const fo_train_comparison *c, const fo_train_row *rows)
{
    char hidden[32];
    fprintf(c->out, "\nbetween replicas %11s %9s\n", "exposed ms", "hidden %");
    for (int i = 1; i < c->count; i++)
        fprintf(c->out, "%-16s %11.2f %9s\n", c->ways[i].overlap, rows[i].data_exposed_ms,
                number(rows[i].data_hidden_pct, "%.1f", "-", hidden, sizeof hidden));
    fprintf(c->out,
            "hidden: 100 (1 - exposed / exposed of none), of gradients and parameters alone\n");
}

static void print_table(const fo_train_comparison *c, const fo_train_row *rows)
{
    const fo_train_options *o = &c->job->options;
    char link[192];
    int best = 1;
    fo_train_compare_link(c, link, sizeof link);
    fprintf(c->out,
            "the same training step, %d ranks (tp %d x dp %d), %" PRId64 " layers, %" PRId64
            " wide, %s\n",
            o->group.ranks, c->job->config.tp, c->job->config.dp, o->layers, o->dim,
            fo_dtype_name(o->dtype));
    fprintf(c->out, "link: %s\n", link);
    fprintf(c->out, "\n%-12s %10s %17s %12s %7s %10s %9s %11s %9s  %-6s  %s\n", "overlap", "T ms",
            "p10-p90 ms", "predicted ms", "error %", "ECT ms", "hidden %", "exposed ms", "faster %",
            "losses", "last loss");
    for (int i = 2; i < c->count; i++)
        if (rows[i].t_ms < rows[best].t_ms)
            best = i;
    for (int i = 1; i < c->count; i++)
        print_row(c, &rows[i], c->ways[i].overlap, c->ways[i].losses[c->steps - 1], i == best);
    if (c->job->config.dp > 1)
        print_replicas(c, rows);
    if (c->interrupted)
        fprintf(c->out, "interrupted after step %" PRId64 " of %" PRId64 "\n", c->steps, o->steps);
    char alone[160];
    snprintf(alone, sizeof alone, "(%.2f ms), which is the step of `none` over a link without cost",
             rows[1].alone_ms);
    fprintf(c->out,
            "\nT: median of %" PRId64
            " interleaved steps, slowest rank; p10-p90: where 8 of 10 lie. ECT: T minus\n"
            "computation alone %s. hidden:\n"
            "100 (1 - ECT / ECT of none). faster: 100 (1 - T / T of none). losses: all steps' "
            "losses and\ngradient norms, to the bit, against the first line. predicted: operators "
            "simulated, all else as in\ncomputation alone%s.\n",
            c->steps - first_counted(c),
            isnan(rows[1].alone_ms) ? "(-), which can't be measured over real links" : alone,
            fo_group_crowded(c->ways[0].worker.group)
                ? "; as with a core for every rank, which there is not"
                : "");
}

void fo_train_compare_print(const fo_train_comparison *c, const fo_train_row *rows)
{
    if (c->json)
        print_json(c, rows);
    else
        print_table(c, rows);
}
