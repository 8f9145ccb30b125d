/* A calibration for people. */
#include <math.h>
#include <string.h>

#include "base/quantile.h"
#include "measure/calibrate.h"
#include "measure/measure.h"

enum { ROWS = 8, SHAPES = 16, FIRST_ROW = 64 };

static bool same_line(const fo_measure_case *a, const fo_measure_case *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->threads == b->threads &&
           a->at_once == b->at_once;
}

/* Whether a case begins a line: none like it came before. */
static bool begins_line(const fo_measure_calibration *c, int at)
{
    for (int i = 0; i < at; i++)
        if (same_line(&c->cases[i], &c->cases[at]))
            return false;
    return true;
}

/* GFLOP/s of all cases of a line with so many rows: the median over the shapes; NaN when there are none. */
static double rate(const fo_measure_calibration *c, const fo_measure_case *line, int64_t rows)
{
    double rates[SHAPES];
    int count = 0;
    for (int i = 0; i < c->count && count < SHAPES; i++) {
        const fo_measure_case *which = &c->cases[i];
        if (same_line(which, line) && which->rows == rows && which->samples)
            rates[count++] = which->flops / fo_measure_calibrate_figure(which).median_s * 1e-9;
    }
    return fo_base_median(rates, count);
}

static void put_conditions(const fo_measure_calibration *c, const char *what,
                           const fo_measure_case *which, FILE *out)
{
    fprintf(out, "%-10s %-5s %7d %6d", what, fo_dtype_name(which->dtype), which->threads,
            fo_measure_calibrate_at_once(c, which));
}

static void put_rates(const fo_measure_calibration *c, FILE *out)
{
    static const char *const names[] = {"gemm", "wgrad", "attention", "att. grad"};
    fprintf(out,
            "GFLOP/s of a rank by the rows of a slice (attention: the context), median over "
            "shapes\n%-10s %-5s %7s %6s",
            "", "dtype", "threads", "ranks");
    for (int r = 0; r < ROWS; r++)
        fprintf(out, " %6d", FIRST_ROW << r);
    fprintf(out, "\n");
    for (int i = 0; i < c->count; i++) {
        const fo_measure_case *which = &c->cases[i];
        if (which->kind > FO_MEASURE_ATTENTION_GRAD || !begins_line(c, i))
            continue;
        put_conditions(c, names[which->kind], which, out);
        for (int r = 0; r < ROWS; r++) {
            double value = rate(c, which, FIRST_ROW << r);
            if (isnan(value))
                fprintf(out, " %6s", "-");
            else
                fprintf(out, " %6.1f", value);
        }
        fprintf(out, "\n");
    }
}

static void put_passes(const fo_measure_calibration *c, FILE *out)
{
    fprintf(out, "\n%-22s %10s %7s %6s %8s\n", "passes over memory", "elements", "threads", "ranks",
            "GB/s");
    for (int i = 0; i < c->count; i++) {
        const fo_measure_case *which = &c->cases[i];
        if (which->kind == FO_MEASURE_PASS && which->samples)
            fprintf(out, "%-22s %10lld %7d %6d %8.2f\n", which->name, (long long)which->n,
                    which->threads, fo_measure_calibrate_at_once(c, which),
                    which->bytes / fo_measure_calibrate_figure(which).median_s * 1e-9);
    }
}

static const fo_measure_case *message(const fo_measure_calibration *c, int64_t bytes, bool view,
                                      bool both)
{
    for (int i = 0; i < c->count; i++) {
        const fo_measure_case *which = &c->cases[i];
        if (which->kind == FO_MEASURE_MESSAGE && which->n == bytes && which->view == view &&
            which->both == both && which->samples)
            return which;
    }
    return NULL;
}

static void put_message(const fo_measure_calibration *c, int64_t bytes, bool view, bool both,
                        FILE *out)
{
    const fo_measure_case *which = message(c, bytes, view, both);
    double seconds = which ? fo_measure_calibrate_figure(which).median_s : NAN;
    if (!which)
        fprintf(out, " %12s", "-");
    else
        fprintf(out, " %12.2f", seconds * 1e6);
    if (which && !view && bytes)
        fprintf(out, " %8.2f", which->bytes / seconds * 1e-9);
    else if (!view)
        fprintf(out, " %8s", "-");
}

static void put_messages(const fo_measure_calibration *c, FILE *out)
{
    if (c->options->group.ranks < 2)
        return;
    fprintf(out, "\nmessages of two ranks, %s\n%10s %12s %8s %12s %8s %12s %12s\n",
            c->options->group.transport, "bytes", "copy us", "GB/s", "both ways us", "GB/s",
            "view us", "both ways us");
    for (int i = 0; i < c->count; i++) {
        const fo_measure_case *which = &c->cases[i];
        if (which->kind != FO_MEASURE_MESSAGE || which->view || which->both)
            continue;
        fprintf(out, "%10lld", (long long)which->n);
        for (int view = 0; view < 2; view++)
            for (int both = 0; both < 2; both++)
                put_message(c, which->n, view, both, out);
        fprintf(out, "\n");
    }
}

static void put_tasks(const fo_measure_calibration *c, FILE *out)
{
    const fo_measure_case *wake =
        fo_measure_calibrate_find(c, &(fo_measure_case){.kind = FO_MEASURE_WAKE});
    const fo_measure_case *moved =
        fo_measure_calibrate_find(c, &(fo_measure_case){.kind = FO_MEASURE_PROCESSOR});
    if (wake)
        fprintf(out, "\nwaking up for a message  %.1f us",
                fo_measure_calibrate_figure(wake).median_s * 1e6);
    if (moved)
        fprintf(out, "\nprocessor time of a copied byte, each end  %.3f ns",
                fo_measure_calibrate_figure(moved).median_s / moved->bytes / 2 * 1e9);
    fprintf(out, "\noverhead of a task");
    for (int i = 0; i < c->count; i++)
        if (c->cases[i].kind == FO_MEASURE_TASK && c->cases[i].samples)
            fprintf(out, "  %s %.2f us", c->cases[i].name,
                    fo_measure_calibrate_figure(&c->cases[i]).median_s * 1e6);
    fprintf(out, "\n");
}

void fo_measure_calibrate_table(const fo_measure_calibration *c, FILE *out)
{
    fprintf(out, "measured with %d rank%s, %s, %s%s; medians\n\n", c->options->group.ranks,
            c->options->group.ranks == 1 ? "" : "s", c->options->group.transport,
            fo_kernel_find(c->options->group.kernel)->name, c->options->quick ? ", quickly" : "");
    put_rates(c, out);
    put_passes(c, out);
    put_messages(c, out);
    put_tasks(c, out);
    if (c->options->path)
        fprintf(out, "\nprofile: %s\n", c->options->path);
}
