/* What people see: a head, and a table for every point. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/fields.h"
#include "flashoverlap/calibrate.h"
#include "flashoverlap/job.h"
#include "measure/print.h"
#include "measure/result.h"

/* ---- lines the report uses too ------------------------------------------------------------------------ */

void fo_measure_print_title(const fo_measure_bench *b, char *text, size_t size)
{
    const char *pass = !b->family->has_backward ? ""
                       : b->options->backward   ? " backward"
                                                : " forward";
    snprintf(text, size, "%s%s", b->family->name, pass);
}

static bool is_model(const fo_measure_bench *b)
{
    return !b->family->execute_local;
}

static int64_t features(const fo_measure_bench *b)
{
    const fo_bench_options *o = b->options;
    if (o->ffn)
        return o->ffn;
    return b->family == &fo_measure_family_row || b->family == &fo_measure_family_column
               ? 2 * o->dim
               : 4 * o->dim;
}

void fo_measure_print_sizes(const fo_measure_bench *b, char *text, size_t size)
{
    const fo_bench_options *o = b->options;
    const fo_measure_point *p = &b->points[0];
    size_t used = 0;
    text[0] = '\0';
    if (b->point_count == 1 && p->batch)
        used = (size_t)snprintf(text, size, "%" PRId64 " x %" PRId64 " = %" PRId64 " rows, ",
                                p->batch, p->context, p->rows);
    else if (b->point_count == 1)
        used = (size_t)snprintf(text, size, "%" PRId64 " rows, ", p->rows);
    used += (size_t)snprintf(text + used, size - used, "dim %" PRId64 ", ", o->dim);
    if (b->family->has_sequences)
        used += (size_t)snprintf(text + used, size - used, "%" PRId64 " heads, ", o->heads);
    else
        used += (size_t)snprintf(text + used, size - used, "ffn %" PRId64 ", ", features(b));
    if (b->family == &fo_measure_family_step)
        used += (size_t)snprintf(text + used, size - used,
                                 "%" PRId64 " layers, vocabulary %" PRId64 ", ", o->layers,
                                 o->vocabulary);
    snprintf(text + used, size - used, "%s, wire %s", fo_dtype_name(o->dtype),
             fo_dtype_name(o->wire));
}

void fo_measure_print_link(const fo_measure_result *result, char *text, size_t size)
{
    const fo_link *link = &result->link;
    if (link->bytes_per_s <= 0) {
        snprintf(text, size,
                 "the transport's own speed, none emulated; the bound is the computation");
        return;
    }
    double transfer_ms = result->wire_bytes / link->bytes_per_s * 1e3;
    int used = snprintf(text, size, "emulated, %.3f GB/s, %.1f us, %s", link->bytes_per_s * 1e-9,
                        link->latency_s * 1e6, link->topology == FO_MESH ? "mesh" : "switch");
    if (isfinite(result->compute_ms) && result->wire_bytes > 0)
        snprintf(text + used, size - (size_t)used,
                 ": the transfer takes %.3f ms, %.2f of the computation", transfer_ms,
                 transfer_ms / result->compute_ms);
}

/* Of a part of the computation alone. */
static const double doubtful = 0.25;

/* ---- text -------------------------------------------------------------------------------------------- */

static int name_width(const fo_measure_bench *b)
{
    size_t width = 12;
    for (int s = 0; s < b->strategy_count; s++)
        if (strlen(b->strategies[s].name) > width)
            width = strlen(b->strategies[s].name);
    return (int)width;
}

static void put_head(const fo_measure_bench *b, const fo_measure_result *result)
{
    char title[64], sizes[256], device[512];
    fo_measure_print_title(b, title, sizeof title);
    fo_measure_print_sizes(b, sizes, sizeof sizes);
    fprintf(b->out, "%s: %s\n", title,
            b->options->backward && b->family->about_backward ? b->family->about_backward
                                                              : b->family->about);
    fprintf(b->out, "sizes: %s\n", sizes);
    fprintf(b->out, "ranks: %d x %d thread%s, %s, kernel %s\n", b->options->group.ranks,
            result->threads, result->threads == 1 ? "" : "s", result->transport, result->kernel);
    if (result->hint[0])
        fprintf(b->out, "hint: %s\n", result->hint);
    if (result->hosts[0])
        fprintf(b->out, "note: %s\n", result->hosts);
    fo_device_print(&result->device, device, sizeof device);
    if (fo_measure_bench_emulates(b)) /* of a time, the rate is another one at every point */
        fprintf(b->out, "emulated computation: a device of %s; nothing is computed\n",
                b->options->emulate ? b->options->emulate : device);
    fprintf(b->out,
            "times: medians of %d interleaved run%s, slowest rank; p10-p90: where 8 of 10 lie\n",
            b->options->repeat, b->options->repeat == 1 ? "" : "s");
    if (is_model(b))
        fprintf(b->out, "bound: the computation alone, which is `none` over a link without cost\n");
}

static bool has_predictions(const fo_measure_bench *b, const fo_measure_result *result)
{
    bool any = false;
    for (int s = 0; s < b->strategy_count; s++)
        any |= isfinite(result->rows[s].predicted_ms);
    return any;
}

static void put_columns(const fo_measure_bench *b, const fo_measure_result *result)
{
    fprintf(b->out, "%-*s %10s %19s ", name_width(b), "overlap", "T ms", "p10-p90 ms");
    if (has_predictions(b, result))
        fprintf(b->out, "%12s %7s ", "predicted ms", "error %");
    fprintf(b->out, "%9s %9s %10s %9s %7s %8s  %s\n", "ECT ms", "hidden %", "exposed ms",
            "bound ms", "gap %", "faster %", "bits");
}

static void put_predicted(const fo_measure_bench *b, const fo_measure_result *result, int s)
{
    const fo_measure_row *row = &result->rows[s];
    char predicted[32], error[32];
    if (has_predictions(b, result))
        fprintf(b->out, "%12s %7s ",
                fo_base_cell(row->predicted_ms, 3, predicted, sizeof predicted),
                fo_base_cell(row->error_pct, 1, error, sizeof error));
}

static void put_row(const fo_measure_bench *b, const fo_measure_result *result, int s, bool best)
{
    const fo_measure_row *row = &result->rows[s];
    char t[32], spread[64], ect[32], hidden[32], exposed[32], bound[32], gap[32], faster[32];
    const char *name = b->strategies[s].name;
    if (!row->samples) {
        fprintf(b->out, "%-*s  not measured: %s\n", name_width(b), name, row->note);
        return;
    }
    snprintf(spread, sizeof spread, "%.3f-%.3f", row->low_ms, row->high_ms);
    bool color = best && b->options->color;
    fprintf(b->out, "%s%-*s %10s %19s ", color ? "\033[1;32m" : "", name_width(b), name,
            fo_base_cell(row->t_ms, 3, t, sizeof t), spread);
    put_predicted(b, result, s);
    fprintf(b->out, "%9s %9s %10s %9s %7s %8s  %s%s%s\n",
            fo_base_cell(row->ect_ms, 3, ect, sizeof ect),
            fo_base_cell(row->hidden_pct, 1, hidden, sizeof hidden),
            fo_base_cell(row->exposed_ms, 3, exposed, sizeof exposed),
            fo_base_cell(result->bound_ms, 3, bound, sizeof bound),
            fo_base_cell(row->gap_pct, 1, gap, sizeof gap),
            fo_base_cell(row->faster_pct, 1, faster, sizeof faster),
            row->bits < 0 ? "-"
            : row->bits   ? "equal"
                          : "differ",
            fo_measure_bench_emulates(b) ? "  emulated computation" : "", color ? "\033[0m" : "");
}

static int best_of(const fo_measure_bench *b, const fo_measure_result *result)
{
    int best = -1;
    for (int s = 0; s < b->strategy_count; s++)
        if (result->rows[s].samples && (best < 0 || result->rows[s].t_ms < result->rows[best].t_ms))
            best = s;
    return best;
}

/* Why predictions may be far off. */
static void put_doubt(const fo_measure_bench *b, const fo_measure_result *result)
{
    double off = result->predicted_compute_ms / result->compute_ms - 1;
    if (!has_predictions(b, result))
        return;
    if (result->crowded)
        fprintf(b->out, "predicted: as with a core for every rank, which there is not\n");
    else if (off > doubtful || off < -doubtful)
        fprintf(
            b->out,
            "predicted: the computation alone %+.0f %% off, so this machine was or is busy with "
            "other things;\n'flashoverlap calibrate --forget' has it measured again\n",
            100 * off);
}

static void put_point(const fo_measure_bench *b, const fo_measure_result *result)
{
    char link[256];
    if (result->label[0])
        fprintf(b->out, "%s (%" PRId64 " rows)\n", result->label, result->point.rows);
    if (result->note[0]) {
        fprintf(b->out, "not measured: %s\n", result->note);
        return;
    }
    fo_measure_print_link(result, link, sizeof link);
    fprintf(b->out, "link: %s\n", link);
    fprintf(b->out, "computation alone, unsliced%s: %.3f ms\n",
            fo_measure_bench_emulates(b) ? ", emulated" : "", result->compute_ms);
    put_columns(b, result);
    int best = best_of(b, result);
    for (int s = 0; s < b->strategy_count; s++)
        put_row(b, result, s, s == best);
    for (int s = 0; s < b->strategy_count; s++)
        if (result->rows[s].taken[0])
            fprintf(b->out, "%s took %s\n", b->strategies[s].name, result->rows[s].taken);
    put_doubt(b, result);
    if (result->interrupted)
        fprintf(b->out, "interrupted: medians of %d of %d runs\n", result->rows[0].samples,
                b->options->repeat);
}

void fo_measure_print_point(const fo_measure_bench *b, int point)
{
    if (b->options->format != FO_BENCH_TEXT || !fo_job_first())
        return;
    const fo_measure_result *result = &b->results[point];
    bool said = false;
    for (int i = 0; i < point; i++)
        said |= b->results[i].threads > 0;
    if (!said && result->threads)
        put_head(b, result);
    if (b->point_count > 1 || (!said && result->threads))
        fprintf(b->out, "\n");
    put_point(b, result);
    fflush(b->out);
}

void fo_measure_print_end(const fo_measure_bench *b)
{
    if (!fo_job_first())
        return;
    if (b->options->format == FO_BENCH_JSON)
        fo_measure_print_json(b);
    else if (b->options->format == FO_BENCH_CSV)
        fo_measure_print_csv(b);
    fflush(b->out);
}
