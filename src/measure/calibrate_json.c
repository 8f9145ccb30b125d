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
    case FO_MEASURE_ATTENTION_GRAD:
        fprintf(out, "{\"context\": %lld, \"heads\": %lld, \"head_dim\": %lld, \"dtype\": \"%s\"",
                (long long)which->rows, (long long)which->k, (long long)which->n,
                fo_dtype_name(which->dtype));
        break;
    case FO_MEASURE_PACK:
        fprintf(out, "{\"k\": %lld, \"n\": %lld, \"dtype\": \"%s\"", (long long)which->k,
                (long long)which->n, fo_dtype_name(which->dtype));
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

/* ---- what predictions rest on ----------------------------------------------------------------------- */

/* A figure with its source. The name of a field goes before the first one of a section, a comma before others. */
typedef struct section {
    FILE *out;
    int fields;
} section;

static void open_section(section *s, const char *name, FILE *out)
{
    *s = (section){.out = out};
    fprintf(out, ",\n\"%s\": {", name);
}

static void put_field(section *s, const char *name, const char *value, const char *source)
{
    fprintf(s->out, "%s\n  \"%s\": {\"value\": %s, \"source\": \"calibrate, %s\", ",
            s->fields++ ? "," : "", name, value, source);
    fprintf(s->out, "\"confidence\": \"measured\"}");
}

static void put_figure(section *s, const char *name, double value, const char *source)
{
    char text[32];
    snprintf(text, sizeof text, "%.6g", value);
    put_field(s, name, text, source);
}

static double median_of(const fo_measure_case *which)
{
    return which ? fo_measure_calibrate_figure(which).median_s : NAN;
}

/* Bytes a second of all passes so large, of all ranks at once where they were; NaN: none was sampled. */
static double pass_rate(const fo_measure_calibration *c, bool large)
{
    double bytes[2] = {0, 0}, seconds[2] = {0, 0};
    for (int i = 0; i < c->count; i++) {
        const fo_measure_case *which = &c->cases[i];
        if (which->kind != FO_MEASURE_PASS || !which->samples || (which->n > 1 << 20) != large)
            continue;
        bytes[which->at_once] += which->bytes;
        seconds[which->at_once] += median_of(which);
    }
    int most = seconds[1] > 0;
    return seconds[most] > 0 ? bytes[most] / seconds[most] : NAN;
}

static void put_device(const fo_measure_calibration *c, FILE *out)
{
    static const char *const rates[] = {"f32_flops_per_s", "bf16_flops_per_s"};
    const fo_kernel *kernel = fo_kernel_find(c->options->group.kernel);
    double large = pass_rate(c, true), small = pass_rate(c, false);
    section s;
    open_section(&s, "device", out);
    for (int dtype = FO_F32; dtype <= FO_BF16; dtype++) {
        const fo_measure_case like = {.kind = FO_MEASURE_GEMM, .dtype = (fo_dtype)dtype};
        const fo_measure_case *found = fo_measure_calibrate_find(c, &like);
        if (found)
            put_figure(&s, rates[dtype], fo_measure_calibrate_peak(c, found), "the best product");
    }
    if (isfinite(large))
        put_figure(&s, "memory_bytes_per_s", large, "passes over memory");
    if (isfinite(small))
        put_figure(&s, "epilogue_bytes_per_s", small, "passes over what is in cache");
    put_figure(&s, "tile_rows", kernel->tile_rows, "the kernel");
    put_figure(&s, "wgrad_rows", kernel->wgrad_rows, "the kernel");
    put_field(&s, "by_tile", "true", "the kernel");
    fputs("\n}", out);
}

/* Part of the rate of the largest copy that smaller ones reach. */
static void put_efficiency(const fo_measure_calibration *c, section *s, double empty_s, double rate)
{
    char text[1200] = "[";
    size_t used = 1;
    for (int i = 0; i < c->count; i++) {
        const fo_measure_case *which = &c->cases[i];
        if (which->kind != FO_MEASURE_MESSAGE || which->view || which->both || !which->samples ||
            which->n < 1 || used + 64 > sizeof text)
            continue;
        double moving = median_of(which) - empty_s, part = which->bytes / moving / rate;
        part = moving > 0 && part < 1 ? part : 1;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s[%lld, %.4g]",
                                 used > 1 ? ", " : "", (long long)which->n, part);
    }
    snprintf(text + used, sizeof text - used, "]");
    if (used > 1)
        put_field(s, "efficiency", text, "messages one way");
}

/* Where receivers read in place nothing is moved: a message takes no time but its latency. */
static void put_network(const fo_measure_calibration *c, FILE *out)
{
    const fo_measure_case *view = NULL, *empty = NULL, *largest = NULL;
    section s;
    for (int i = 0; i < c->count; i++) {
        const fo_measure_case *which = &c->cases[i];
        if (which->kind != FO_MEASURE_MESSAGE || which->both || !which->samples)
            continue;
        if (which->view) {
            view = view ? view : which;
            continue;
        }
        empty = empty ? empty : which;
        largest = which;
    }
    double empty_s = median_of(empty), moving = median_of(largest) - empty_s;
    bool moves = !view && empty && moving > 0;
    open_section(&s, "network", out);
    put_field(&s, "topology", "\"switch\"", "what a transport is taken for");
    put_figure(&s, "bytes_per_s", moves ? largest->bytes / moving : 0,
               view    ? "receivers read in place"
               : moves ? "the largest message"
                       : "one rank has nobody to send to");
    put_figure(&s, "latency_s",
               view    ? fo_measure_calibrate_figure(view).best_s
               : empty ? empty_s
                       : 0,
               "the empty message");
    if (moves)
        put_efficiency(c, &s, empty_s, largest->bytes / moving);
    fputs("\n}", out);
}

static void put_software(const fo_measure_calibration *c, FILE *out)
{
    const fo_measure_case *task =
        fo_measure_calibrate_find(c,
                                  &(fo_measure_case){.kind = FO_MEASURE_TASK, .name = "flash:4"});
    const fo_measure_case *wake =
        fo_measure_calibrate_find(c, &(fo_measure_case){.kind = FO_MEASURE_WAKE});
    const fo_measure_case *moved =
        fo_measure_calibrate_find(c, &(fo_measure_case){.kind = FO_MEASURE_PROCESSOR});
    bool views =
        fo_measure_calibrate_find(c, &(fo_measure_case){.kind = FO_MEASURE_MESSAGE, .view = true});
    section s;
    open_section(&s, "software", out);
    if (task) {
        put_figure(&s, "task_s", median_of(task), "the overhead of a task");
        put_figure(&s, "message_s", median_of(task), "the overhead of a task");
    }
    if (wake)
        put_figure(&s, "wake_s", median_of(wake), "waking up for a message");
    if (moved && !views)
        put_figure(&s, "cpu_s_per_byte", median_of(moved) / moved->bytes / 2,
                   "the processor's time in an exchange");
    put_field(&s, "async", "false", "one thread does everything");
    put_field(&s, "views", views ? "true" : "false", "the transport");
    fputs("\n}", out);
}

/* ---- the whole -------------------------------------------------------------------------------------- */

static void put_head(const fo_measure_calibration *c, FILE *out)
{
    const fo_group_options *group = &c->options->group;
    char date[32] = "";
    time_t now = time(NULL);
    struct tm parts;
    if (gmtime_r(&now, &parts))
        strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &parts);
    fprintf(out,
            "{\n\"format\": \"flashoverlap-machine-profile\",\n\"format_version\": 2,\n"
            "\"name\": \"calibrated\",\n"
            "\"about\": \"calibrated %.10s: %d rank%s, %.24s, %.24s\",\n"
            "\"source\": \"measured\",\n\"confidence\": \"%s\",\n\"date\": \"%s\",\n"
            "\"quick\": %s,\n\"machine\": ",
            date, group->ranks, group->ranks == 1 ? "" : "s", fo_kernel_find(group->kernel)->name,
            group->transport, confidence(c), date, c->options->quick ? "true" : "false");
    fo_info_print(true, out);
    put_processor(out);
    fprintf(out, ",\n\"group\": {\"ranks\": %d, \"transport\": \"%s\", \"kernel\": \"%s\"}",
            group->ranks, group->transport, fo_kernel_find(group->kernel)->name);
}

void fo_measure_calibrate_json(const fo_measure_calibration *c, FILE *out)
{
    put_head(c, out);
    put_device(c, out);
    put_network(c, out);
    put_software(c, out);
    put_peaks(c, out);
    put_link(c, out);
    put_list(c, "gemm", FO_MEASURE_GEMM, out);
    put_list(c, "wgrad", FO_MEASURE_WGRAD, out);
    put_list(c, "attention", FO_MEASURE_ATTENTION, out);
    put_list(c, "attention_grad", FO_MEASURE_ATTENTION_GRAD, out);
    put_list(c, "pack", FO_MEASURE_PACK, out);
    put_list(c, "passes", FO_MEASURE_PASS, out);
    put_list(c, "messages", FO_MEASURE_MESSAGE, out);
    put_list(c, "tasks", FO_MEASURE_TASK, out);
    fputs("\n}\n", out);
}
