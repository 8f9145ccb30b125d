/* What machines read: the same fields as JSON and as CSV. */
#include <math.h>

#include "base/fields.h"
#include "flashoverlap/calibrate.h"
#include "measure/print.h"

static void put_point(const fo_measure_bench *b, const fo_measure_result *result, fo_base_fields *f)
{
    const fo_bench_options *o = b->options;
    char device[512];
    fo_base_field_text(f, "subject", b->family->name);
    fo_base_field_truth(f, "backward", b->family->has_backward ? o->backward : -1);
    fo_base_field_text(f, "point", result->label[0] ? result->label : NULL);
    fo_base_field_count(f, "batch", result->point.batch ? (double)result->point.batch : NAN);
    fo_base_field_count(f, "context", result->point.context ? (double)result->point.context : NAN);
    fo_base_field_count(f, "rows", (double)result->point.rows);
    fo_base_field_count(f, "dim", (double)o->dim);
    fo_base_field_text(f, "dtype", fo_dtype_name(o->dtype));
    fo_base_field_text(f, "wire", fo_dtype_name(o->wire));
    fo_base_field_count(f, "ranks", o->group.ranks);
    fo_base_field_count(f, "threads", result->threads ? result->threads : NAN);
    fo_base_field_text(f, "transport", result->transport[0] ? result->transport : NULL);
    fo_base_field_text(f, "kernel", result->kernel[0] ? result->kernel : NULL);
    fo_base_field_text(f, "computation", fo_measure_bench_emulates(b) ? "emulated" : "measured");
    fo_device_print(&result->device, device, sizeof device);
    fo_base_field_text(f, "device", result->device.flops_per_s > 0 ? device : NULL);
    bool asked = o->group.link.bytes_per_s > 0 || o->link_ratio > 0 || o->transfer_s > 0;
    bool link = result->measured ? result->link.bytes_per_s > 0 : asked;
    fo_base_field_text(f, "link", link ? "emulated" : "transport");
    fo_base_field_number(f, "link_bytes_per_s", "%.6g",
                         result->link.bytes_per_s > 0 ? result->link.bytes_per_s : NAN);
    fo_base_field_number(f, "link_latency_s", "%.6g",
                         result->link.bytes_per_s > 0 ? result->link.latency_s : NAN);
    fo_base_field_count(f, "wire_bytes", result->measured ? result->wire_bytes : NAN);
    fo_base_field_number(f, "compute_ms", "%.4f", result->measured ? result->compute_ms : NAN);
    fo_base_field_number(f, "predicted_compute_ms", "%.4f", result->predicted_compute_ms);
}

static void put(const fo_measure_bench *b, const fo_measure_result *result, int s,
                fo_base_fields *f)
{
    const fo_measure_row *row = &result->rows[s];
    const char *note = row->note[0] ? row->note : result->note;
    bool known = row->samples > 0;
    put_point(b, result, f);
    fo_base_field_text(f, "overlap", b->strategies[s].name);
    fo_base_field_count(f, "samples", row->samples);
    fo_base_field_number(f, "t_ms", "%.4f", known ? row->t_ms : NAN);
    fo_base_field_number(f, "t_p10_ms", "%.4f", known ? row->low_ms : NAN);
    fo_base_field_number(f, "t_p90_ms", "%.4f", known ? row->high_ms : NAN);
    fo_base_field_number(f, "ect_ms", "%.4f", known ? row->ect_ms : NAN);
    fo_base_field_number(f, "hidden_pct", "%.2f", known ? row->hidden_pct : NAN);
    fo_base_field_number(f, "exposed_ms", "%.4f", known ? row->exposed_ms : NAN);
    fo_base_field_number(f, "bound_ms", "%.4f", known ? result->bound_ms : NAN);
    fo_base_field_number(f, "gap_pct", "%.2f", known ? row->gap_pct : NAN);
    fo_base_field_number(f, "faster_pct", "%.2f", known ? row->faster_pct : NAN);
    fo_base_field_text(f, "taken", row->taken[0] ? row->taken : NULL);
    fo_base_field_number(f, "predicted_ms", "%.4f", row->predicted_ms);
    fo_base_field_number(f, "predicted_exposed_ms", "%.4f", row->predicted_exposed_ms);
    fo_base_field_number(f, "prediction_error_pct", "%.2f", known ? row->error_pct : NAN);
    fo_base_field_truth(f, "bitwise_equal", known ? row->bits : -1);
    fo_base_field_truth(f, "interrupted", result->interrupted);
    fo_base_field_text(f, "note", *note ? note : NULL);
}

/* ---- the whole --------------------------------------------------------------------------------------- */

void fo_measure_print_json(const fo_measure_bench *b)
{
    for (int p = 0; p < b->point_count; p++)
        for (int s = 0; s < b->strategy_count; s++) {
            fo_base_fields f = {.out = b->out, .form = FO_BASE_JSON};
            fputs(p || s ? ",\n  {" : "[\n  {", b->out);
            put(b, &b->results[p], s, &f);
            fputc('}', b->out);
        }
    fputs("\n]\n", b->out);
}

void fo_measure_print_csv(const fo_measure_bench *b)
{
    fo_base_fields keys = {.out = b->out, .form = FO_BASE_KEYS};
    put(b, &b->results[0], 0, &keys);
    fputc('\n', b->out);
    for (int p = 0; p < b->point_count; p++)
        for (int s = 0; s < b->strategy_count; s++) {
            fo_base_fields f = {.out = b->out, .form = FO_BASE_CSV};
            put(b, &b->results[p], s, &f);
            fputc('\n', b->out);
        }
}
