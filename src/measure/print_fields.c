/* What machines read: the same fields as JSON and as CSV. */
#include <math.h>
#include <string.h>

#include "flashoverlap/calibrate.h"
#include "measure/print.h"

typedef enum field_kind { TEXT, COUNT, REAL, TRUTH } field_kind;

typedef struct field {
    const char *key;
    field_kind kind;
    const char *text; /* TEXT; NULL: null */
    double number;    /* COUNT, REAL: NaN is null; TRUTH: negative is null */
    const char *format;
} field;

enum { FIELDS = 48 };

typedef struct fields {
    field list[FIELDS];
    int count;
    char device[512];
} fields;

static void add(fields *f, field one)
{
    if (f->count < FIELDS)
        f->list[f->count++] = one;
}

static void add_text(fields *f, const char *key, const char *text)
{
    add(f, (field){.key = key, .kind = TEXT, .text = text});
}

static void add_count(fields *f, const char *key, double number)
{
    add(f, (field){.key = key, .kind = COUNT, .number = number, .format = "%.0f"});
}

static void add_real(fields *f, const char *key, const char *format, double number)
{
    add(f, (field){.key = key, .kind = REAL, .number = number, .format = format});
}

static void add_truth(fields *f, const char *key, int truth)
{
    add(f, (field){.key = key, .kind = TRUTH, .number = truth});
}

static void add_point(const fo_measure_bench *b, const fo_measure_result *result, fields *f)
{
    const fo_bench_options *o = b->options;
    add_text(f, "subject", b->family->name);
    add_truth(f, "backward", b->family->has_backward ? o->backward : -1);
    add_text(f, "point", result->label[0] ? result->label : NULL);
    add_count(f, "batch", result->point.batch ? (double)result->point.batch : NAN);
    add_count(f, "context", result->point.context ? (double)result->point.context : NAN);
    add_count(f, "rows", (double)result->point.rows);
    add_count(f, "dim", (double)o->dim);
    add_text(f, "dtype", fo_dtype_name(o->dtype));
    add_text(f, "wire", fo_dtype_name(o->wire));
    add_count(f, "ranks", o->group.ranks);
    add_count(f, "threads", result->threads ? result->threads : NAN);
    add_text(f, "transport", result->transport[0] ? result->transport : NULL);
    add_text(f, "kernel", result->kernel[0] ? result->kernel : NULL);
    add_text(f, "computation", fo_measure_bench_emulates(b) ? "emulated" : "measured");
    fo_device_print(&result->device, f->device, sizeof f->device);
    add_text(f, "device", result->device.flops_per_s > 0 ? f->device : NULL);
    bool asked = o->group.link.bytes_per_s > 0 || o->link_ratio > 0 || o->transfer_s > 0;
    bool link = result->measured ? result->link.bytes_per_s > 0 : asked;
    add_text(f, "link", link ? "emulated" : "transport");
    add_real(f, "link_bytes_per_s", "%.6g",
             result->link.bytes_per_s > 0 ? result->link.bytes_per_s : NAN);
    add_real(f, "link_latency_s", "%.6g",
             result->link.bytes_per_s > 0 ? result->link.latency_s : NAN);
    add_count(f, "wire_bytes", result->measured ? result->wire_bytes : NAN);
    add_real(f, "compute_ms", "%.4f", result->measured ? result->compute_ms : NAN);
    add_real(f, "predicted_compute_ms", "%.4f", result->predicted_compute_ms);
}

static void make(const fo_measure_bench *b, const fo_measure_result *result, int s, fields *f)
{
    const fo_measure_row *row = &result->rows[s];
    const char *note = row->note[0] ? row->note : result->note;
    bool known = row->samples > 0;
    f->count = 0;
    add_point(b, result, f);
    add_text(f, "overlap", b->strategies[s].name);
    add_count(f, "samples", row->samples);
    add_real(f, "t_ms", "%.4f", known ? row->t_ms : NAN);
    add_real(f, "t_p10_ms", "%.4f", known ? row->low_ms : NAN);
    add_real(f, "t_p90_ms", "%.4f", known ? row->high_ms : NAN);
    add_real(f, "ect_ms", "%.4f", known ? row->ect_ms : NAN);
    add_real(f, "hidden_pct", "%.2f", known ? row->hidden_pct : NAN);
    add_real(f, "exposed_ms", "%.4f", known ? row->exposed_ms : NAN);
    add_real(f, "bound_ms", "%.4f", known ? result->bound_ms : NAN);
    add_real(f, "gap_pct", "%.2f", known ? row->gap_pct : NAN);
    add_real(f, "faster_pct", "%.2f", known ? row->faster_pct : NAN);
    add_text(f, "taken", row->taken[0] ? row->taken : NULL);
    add_real(f, "predicted_ms", "%.4f", row->predicted_ms);
    add_real(f, "predicted_exposed_ms", "%.4f", row->predicted_exposed_ms);
    add_real(f, "prediction_error_pct", "%.2f", known ? row->error_pct : NAN);
    add_truth(f, "bitwise_equal", known ? row->bits : -1);
    add_truth(f, "interrupted", result->interrupted);
    add_text(f, "note", *note ? note : NULL);
}

/* ---- values ------------------------------------------------------------------------------------------ */

static bool is_null(const field *f)
{
    switch (f->kind) {
    case TEXT: return !f->text;
    case TRUTH: return f->number < 0;
    default: return !isfinite(f->number);
    }
}

static void put_json_text(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++)
        if (*text == '"' || *text == '\\')
            fprintf(out, "\\%c", *text);
        else if ((unsigned char)*text < 0x20)
            fprintf(out, "\\u%04x", (unsigned)*text);
        else
            fputc(*text, out);
    fputc('"', out);
}

static void put_csv_text(FILE *out, const char *text)
{
    if (!strpbrk(text, ",\"\r\n")) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text; text++)
        fprintf(out, *text == '"' ? "\"%c" : "%c", *text);
    fputc('"', out);
}

/* A number or a truth, the same in both forms. */
static void put_number(FILE *out, const field *f)
{
    char text[64];
    if (f->kind == TRUTH)
        snprintf(text, sizeof text, "%s", f->number > 0 ? "true" : "false");
    else
        snprintf(text, sizeof text, f->format, f->number);
    fputs(text, out);
}

static void put_json(FILE *out, const field *f)
{
    fprintf(out, "\"%s\": ", f->key);
    if (is_null(f))
        fputs("null", out);
    else if (f->kind == TEXT)
        put_json_text(out, f->text);
    else
        put_number(out, f);
}

static void put_csv(FILE *out, const field *f)
{
    if (is_null(f))
        return;
    if (f->kind == TEXT)
        put_csv_text(out, f->text);
    else
        put_number(out, f);
}

/* ---- the whole --------------------------------------------------------------------------------------- */

void fo_measure_print_json(const fo_measure_bench *b)
{
    fields f;
    for (int p = 0; p < b->point_count; p++)
        for (int s = 0; s < b->strategy_count; s++) {
            make(b, &b->results[p], s, &f);
            fprintf(b->out, p || s ? ",\n  {" : "[\n  {");
            for (int i = 0; i < f.count; i++) {
                fputs(i ? ", " : "", b->out);
                put_json(b->out, &f.list[i]);
            }
            fputc('}', b->out);
        }
    fputs("\n]\n", b->out);
}

void fo_measure_print_csv(const fo_measure_bench *b)
{
    fields f;
    for (int p = 0; p < b->point_count; p++)
        for (int s = 0; s < b->strategy_count; s++) {
            make(b, &b->results[p], s, &f);
            for (int i = 0; !p && !s && i < f.count; i++)
                fprintf(b->out, "%s%s", f.list[i].key, i + 1 < f.count ? "," : "\n");
            for (int i = 0; i < f.count; i++) {
                put_csv(b->out, &f.list[i]);
                fputc(i + 1 < f.count ? ',' : '\n', b->out);
            }
        }
}
