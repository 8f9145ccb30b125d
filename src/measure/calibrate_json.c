/* The machine profile. What its fields mean: flashoverlap/calibrate.h. */
#include <ctype.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "flashoverlap/info.h"
#include "measure/calibrate.h"
#include "measure/facts.h"

/* A number, or null when it is none. */
static void put(FILE *out, const char *name, double value)
{
    if (isfinite(value))
        fprintf(out, ", \"%s\": %.6g", name, value);
    else
        fprintf(out, ", \"%s\": null", name);
}

static void put_how(const fo_measure_calibration *c, const fo_measure_case *which, FILE *out)
{
    fo_measure_figure figure = fo_measure_calibrate_figure(which);
    put(out, "time_s", figure.median_s);
    put(out, "best_s", figure.best_s);
    put(out, "spread_s", figure.spread_s);
    if (which->flops > 0) {
        double rate = which->flops / figure.median_s;
        put(out, "flops_per_s", rate);
        put(out, "efficiency", fmin(1, rate / fo_measure_calibrate_peak(c, which)));
    }
    if (which->bytes > 0 && !which->view)
        put(out, "bytes_per_s", which->bytes / figure.median_s);
    fprintf(out, ", \"samples\": %d, \"calls\": %d, \"confidence\": \"%s\"}", which->samples,
            which->calls, figure.confidence);
}

static void put_what(const fo_measure_calibration *c, const fo_measure_case *which, FILE *out)
{
    switch (which->kind) {
    case FO_MEASURE_GEMM:
    case FO_MEASURE_WGRAD:
        fprintf(out, "{\"%s\": %lld, \"%s\": %lld, \"rows\": %lld, \"dtype\": \"%s\"",
                which->kind == FO_MEASURE_GEMM ? "k" : "in", (long long)which->k,
                which->kind == FO_MEASURE_GEMM ? "n" : "out", (long long)which->n,
                (long long)which->rows, fo_dtype_name(which->dtype));
        break;
    case FO_MEASURE_ATTENTION:
        fprintf(out, "{\"context\": %lld, \"heads\": %d, \"head_dim\": %d, \"dtype\": \"%s\"",
                (long long)which->rows, FO_MEASURE_HEADS, FO_MEASURE_HEAD_DIM,
                fo_dtype_name(which->dtype));
        break;
    case FO_MEASURE_PASS:
        fprintf(out, "{\"pass\": \"%s\", \"elements\": %lld, \"bytes\": %.0f", which->name,
                (long long)which->n, which->bytes);
        break;
    case FO_MEASURE_MESSAGE:
        fprintf(out, "{\"bytes\": %lld, \"pattern\": \"%s\", \"receive\": \"%s\"",
                (long long)which->n, which->both ? "exchange" : "one way",
                which->view ? "view" : "copy");
        break;
    default: fprintf(out, "{\"overlap\": \"%s\"", which->name); break;
    }
    if (which->kind != FO_MEASURE_MESSAGE)
        fprintf(out, ", \"threads\": %d, \"ranks_at_once\": %d", which->threads,
                fo_measure_calibrate_at_once(c, which));
}

static void put_list(const fo_measure_calibration *c, const char *name, fo_measure_kind kind,
                     FILE *out)
{
    bool first = true;
    fprintf(out, ",\n\"%s\": [", name);
    for (int i = 0; i < c->count; i++) {
        const fo_measure_case *which = &c->cases[i];
        if (which->kind != kind || !which->samples)
            continue;
        fputs(first ? "\n  " : ",\n  ", out);
        put_what(c, which, out);
        put_how(c, which, out);
        first = false;
    }
    fputs(first ? "]" : "\n]", out);
}

/* The best rates, which efficiencies are parts of. */
static void put_peaks(const fo_measure_calibration *c, FILE *out)
{
    const fo_measure_case *last = NULL;
    fputs(",\n\"peaks\": [", out);
    for (int i = 0; i < c->count; i++) {
        const fo_measure_case *which = &c->cases[i];
        if (which->kind != FO_MEASURE_GEMM || !which->samples ||
            (last && last->dtype == which->dtype && last->threads == which->threads &&
             last->at_once == which->at_once))
            continue;
        fprintf(out, "%s\n  {\"dtype\": \"%s\", \"threads\": %d, \"ranks_at_once\": %d",
                last ? "," : "", fo_dtype_name(which->dtype), which->threads,
                fo_measure_calibrate_at_once(c, which));
        put(out, "flops_per_s", fo_measure_calibrate_peak(c, which));
        fputc('}', out);
        last = which;
    }
    fputs("\n]", out);
}

/* Latency: of the empty message; speed: of the largest one. */
static void put_link(const fo_measure_calibration *c, FILE *out)
{
    const fo_measure_case *empty = NULL, *largest = NULL;
    for (int i = 0; i < c->count; i++) {
        const fo_measure_case *which = &c->cases[i];
        if (which->kind != FO_MEASURE_MESSAGE || which->view || which->both || !which->samples)
            continue;
        empty = empty ? empty : which;
        largest = which;
    }
    if (!empty) {
        fputs(",\n\"link\": null", out);
        return;
    }
    fprintf(out, ",\n\"link\": {\"transport\": \"%s\"", c->options->group.transport);
    put(out, "latency_s", fo_measure_calibrate_figure(empty).median_s);
    put(out, "bytes_per_s", largest->bytes / fo_measure_calibrate_figure(largest).median_s);
    fprintf(out, ", \"confidence\": \"%s\"}", fo_measure_calibrate_figure(largest).confidence);
}

/* The confidence that nine of ten figures have at least. */
static const char *confidence(const fo_measure_calibration *c)
{
    int all = 0, high = 0, medium = 0;
    for (int i = 0; i < c->count; i++) {
        if (!c->cases[i].samples)
            continue;
        const char *word = fo_measure_calibrate_figure(&c->cases[i]).confidence;
        all++;
        high += !strcmp(word, "high");
        medium += !strcmp(word, "medium");
    }
    return 10 * high >= 9 * all ? "high" : 10 * (high + medium) >= 9 * all ? "medium" : "low";
}

/* What the processor calls itself, fit for a string. */
static void put_processor(FILE *out)
{
    fo_measure_facts facts;
    fo_measure_facts_machine(&facts);
    for (char *at = facts.processor; *at; at++)
        if (iscntrl((unsigned char)*at) || *at == '"' || *at == '\\' || *at & 0x80)
            *at = ' ';
    fprintf(out, ",\n\"processor\": \"%s\"", facts.processor);
}

static void put_head(const fo_measure_calibration *c, FILE *out)
{
    const fo_group_options *group = &c->options->group;
    char date[32] = "";
    time_t now = time(NULL);
    struct tm parts;
    if (gmtime_r(&now, &parts))
        strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &parts);
    fprintf(out,
            "{\n\"format\": \"flashoverlap-machine-profile\",\n\"format_version\": 1,\n"
            "\"source\": \"measured\",\n\"confidence\": \"%s\",\n\"date\": \"%s\",\n"
            "\"quick\": %s,\n\"machine\": ",
            confidence(c), date, c->options->quick ? "true" : "false");
    fo_info_print(true, out);
    put_processor(out);
    fprintf(out, ",\n\"group\": {\"ranks\": %d, \"transport\": \"%s\", \"kernel\": \"%s\"}",
            group->ranks, group->transport, fo_kernel_find(group->kernel)->name);
}

void fo_measure_calibrate_json(const fo_measure_calibration *c, FILE *out)
{
    put_head(c, out);
    put_peaks(c, out);
    put_link(c, out);
    put_list(c, "gemm", FO_MEASURE_GEMM, out);
    put_list(c, "wgrad", FO_MEASURE_WGRAD, out);
    put_list(c, "attention", FO_MEASURE_ATTENTION, out);
    put_list(c, "passes", FO_MEASURE_PASS, out);
    put_list(c, "messages", FO_MEASURE_MESSAGE, out);
    put_list(c, "tasks", FO_MEASURE_TASK, out);
    fputs("\n}\n", out);
}
