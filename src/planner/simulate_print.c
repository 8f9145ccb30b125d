/* What people and machines see of simulated operations. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/fields.h"
#include "planner/simulate.h"

/* ---- lines the report uses too ---------------------------------------------------------------------- */

void fo_planner_simulate_title(const fo_planner_simulation *s, char *text, size_t size)
{
    snprintf(text, size, "%s %s", s->subject->name, s->options->backward ? "backward" : "forward");
}

void fo_planner_simulate_sizes(const fo_planner_simulation *s, char *text, size_t size)
{
    const fo_simulate_options *o = s->options;
    size_t used;
    if (o->rows)
        used = (size_t)snprintf(text, size, "%" PRId64 " rows, ", o->rows);
    else
        used = (size_t)snprintf(text, size, "%" PRId64 " x %" PRId64 " = %" PRId64 " rows, ",
                                o->batch, o->context, s->rows);
    used += (size_t)snprintf(text + used, size - used, "dim %" PRId64 ", ", o->dim);
    if (s->subject->has_sequences)
        used += (size_t)snprintf(text + used, size - used, "%" PRId64 " heads, ", o->heads);
    else
        used += (size_t)snprintf(text + used, size - used, "ffn %" PRId64 ", ",
                                 fo_planner_simulate_subject_features(o, s->subject));
    snprintf(text + used, size - used, "%s, wire %s", fo_dtype_name(o->dtype),
             fo_dtype_name(o->wire));
}

static double ms(double seconds)
{
    return seconds * 1e3;
}

/* Decimals of all times of the table. */
static int decimals_of(const fo_planner_simulation *s)
{
    double largest = ms(s->none.report.total_s);
    for (int i = 0; i < s->count; i++)
        if (!s->results[i].note[0])
            largest = fmax(largest, ms(s->results[i].report.total_s));
    return fo_base_cell_decimals(largest);
}

/* Whether anything but ways to overlap nothing was asked for. */
static bool only_none(const fo_planner_simulation *s)
{
    for (int i = 0; i < s->count; i++)
        if (!s->results[i].note[0] && strcmp(s->strategies[i].overlap, "none") != 0)
            return false;
    return true;
}

/* "flash", "auto (flash)". */
static const char *full_name(const fo_planner_simulation *s, int i, char *text, size_t size)
{
    const char *chosen = s->results[i].chosen, *name = s->strategies[i].name;
    if (chosen[0])
        snprintf(text, size, "%s (%s)", name, chosen);
    else
        snprintf(text, size, "%s", name);
    return text;
}

void fo_planner_simulate_verdict(const fo_planner_simulation *s, char *text, size_t size)
{
    int d = decimals_of(s), other = s->overlapping;
    char name[160];
    double none = ms(s->none.report.total_s);
    if (s->options->ranks == 1) {
        snprintf(text, size, "one rank has nothing to communicate");
    } else if (only_none(s)) {
        snprintf(text, size, "nothing to choose: only none was simulated, %.*f ms", d, none);
    } else if (other < 0 && s->results[s->best].faster_pct > 1) {
        const fo_planner_row *row = &s->results[s->best];
        snprintf(text, size,
                 "take %s: %.*f ms, %.1f %% less than none, though nothing overlaps at these sizes",
                 full_name(s, s->best, name, sizeof name), d, ms(row->report.total_s),
                 row->faster_pct);
    } else if (other < 0) {
        snprintf(
            text, size,
            "do not overlap: none takes %.*f ms, and at these sizes nothing that was simulated "
            "overlaps",
            d, none);
    } else if (s->pays) {
        const fo_planner_row *row = &s->results[other];
        snprintf(text, size,
                 "overlap with %s: %.*f ms, %.1f %% less than none, %.1f %% above the bound",
                 full_name(s, other, name, sizeof name), d, ms(row->report.total_s),
                 row->faster_pct, row->gap_pct);
    } else {
        snprintf(text, size,
                 "do not overlap: none takes %.*f ms, the fastest strategy that overlaps, %s, "
                 "%.*f ms",
                 d, none, full_name(s, other, name, sizeof name), d,
                 ms(s->results[other].report.total_s));
    }
}

/* ---- text ------------------------------------------------------------------------------------------- */

static int name_width(const fo_planner_simulation *s)
{
    size_t width = 10;
    for (int i = 0; i < s->count; i++)
        if (strlen(s->strategies[i].name) > width)
            width = strlen(s->strategies[i].name);
    return (int)width;
}

static void put_ranks(const fo_planner_simulation *s)
{
    const fo_simulate_options *o = s->options;
    fprintf(s->out, "ranks: %d", o->ranks);
    if (s->nodes > 1)
        fprintf(s->out, " on %d machines", s->nodes);
    if (o->threads)
        fprintf(s->out, " x %d thread%s", o->threads, o->threads == 1 ? "" : "s");
    if (s->speed)
        fprintf(s->out, ", rank %d computes at %g of its speed", o->slow_rank, o->slow_speed);
    fputc('\n', s->out);
}

static void put_head(const fo_planner_simulation *s)
{
    char title[64], sizes[256], network[256];
    const fo_planner_subject *subject = s->subject;
    double compute = ms(s->none.report.compute_s), transfer = ms(s->none.report.transfer_s);
    int d = decimals_of(s);
    fo_planner_simulate_title(s, title, sizeof title);
    fo_planner_simulate_sizes(s, sizes, sizeof sizes);
    fo_planner_simulate_network(&s->machine.network, s->nodes > 1, network, sizeof network);
    fprintf(s->out, "%s: %s\n", title,
            s->options->backward ? subject->about_backward : subject->about);
    fprintf(s->out, "simulated on %s, no rank was started%s%s\n", s->machine.name,
            s->machine.about[0] ? "; " : "", s->machine.about);
    fprintf(s->out, "sizes: %s\n", sizes);
    put_ranks(s);
    fprintf(s->out, "link: %s\n", network);
    fprintf(s->out,
            "computation alone, unsliced (C): %.*f ms; the transfer of none alone (X): %.*f", d,
            compute, d, transfer);
    if (compute > 0)
        fprintf(s->out, " ms, %.2f of it\n", transfer / compute);
    else
        fprintf(s->out, " ms\n");
}

static void put_row(const fo_planner_simulation *s, int i, int d)
{
    const fo_planner_row *row = &s->results[i];
    const fo_sim_report *r = &row->report;
    const double values[] = {ms(r->total_s),    ms(row->ect_s), row->hidden_pct, ms(r->exposed_s),
                             ms(r->transfer_s), ms(r->bound_s), row->gap_pct,    row->faster_pct};
    const int widths[] = {10, 9, 8, 10, 9, 9, 7, 8}, decimals[] = {d, d, 1, d, d, d, 1, 1};
    char cell[400];
    if (row->note[0]) {
        fprintf(s->out, "%-*s  not simulated: %s\n", name_width(s), s->strategies[i].name,
                row->note);
        return;
    }
    bool color = s->options->color && i == s->best;
    fprintf(s->out, "%s%-*s", color ? "\033[1;32m" : "", name_width(s), s->strategies[i].name);
    for (size_t v = 0; v < sizeof values / sizeof *values; v++)
        fprintf(s->out, " %*s", widths[v], fo_base_cell(values[v], decimals[v], cell, sizeof cell));
    fprintf(s->out, "%s%s%s\n", row->chosen[0] ? "  is " : "", row->chosen, color ? "\033[0m" : "");
}

static void put_table(const fo_planner_simulation *s)
{
    fprintf(s->out, "\n%-*s %10s %9s %8s %10s %9s %9s %7s %8s\n", name_width(s), "overlap", "T ms",
            "ECT ms", "hidden %", "exposed ms", "X ms", "bound ms", "gap %", "faster %");
    for (int i = 0; i < s->count; i++)
        put_row(s, i, decimals_of(s));
}

static void put_losses(const fo_planner_simulation *s)
{
    int d = decimals_of(s);
    char cell[400];
    fprintf(s->out,
            "\nabove the bound, ms, where it is lost\n%-*s %10s %10s %10s %10s %10s %10s %10s\n",
            name_width(s), "overlap", "T - bound", "imbalance", "contention", "overhead", "latency",
            "slicing", "tail");
    for (int i = 0; i < s->count; i++) {
        const fo_sim_report *r = &s->results[i].report;
        const fo_sim_losses *l = &r->losses;
        const double values[] = {r->total_s - r->bound_s,
                                 l->imbalance,
                                 l->contention,
                                 l->overhead,
                                 l->latency,
                                 l->slicing,
                                 l->tail};
        if (s->results[i].note[0])
            continue;
        fprintf(s->out, "%-*s", name_width(s), s->strategies[i].name);
        for (size_t v = 0; v < sizeof values / sizeof *values; v++)
            fprintf(s->out, " %10s", fo_base_cell(ms(values[v]), d, cell, sizeof cell));
        fputc('\n', s->out);
    }
}

static void print_text(const fo_planner_simulation *s)
{
    char verdict[256];
    put_head(s);
    put_table(s);
    if (s->options->explain)
        put_losses(s);
    fo_planner_simulate_verdict(s, verdict, sizeof verdict);
    fprintf(s->out, "\n%s\n", verdict);
}

/* ---- JSON and CSV: the keys of the benchmark where they mean the same ------------------------------- */

static void put_setting(const fo_planner_simulation *s, fo_base_fields *p)
{
    const fo_simulate_options *o = s->options;
    const fo_sim_network *n = &s->machine.network;
    fo_base_field_text(p, "subject", s->subject->name);
    fo_base_field_truth(p, "backward", o->backward);
    fo_base_field_count(p, "batch", o->rows ? NAN : (double)o->batch);
    fo_base_field_count(p, "context", o->rows ? NAN : (double)o->context);
    fo_base_field_count(p, "rows", (double)s->rows);
    fo_base_field_count(p, "dim", (double)o->dim);
    fo_base_field_text(p, "dtype", fo_dtype_name(o->dtype));
    fo_base_field_text(p, "wire", fo_dtype_name(o->wire));
    fo_base_field_count(p, "ranks", o->ranks);
    fo_base_field_count(p, "nodes", s->nodes);
    fo_base_field_count(p, "threads", o->threads ? o->threads : NAN);
    fo_base_field_text(p, "computation", "simulated");
    fo_base_field_text(p, "machine", s->machine.name);
    fo_base_field_text(p, "link", "simulated");
    fo_base_field_real(p, "link_bytes_per_s", n->link.bytes_per_s > 0 ? n->link.bytes_per_s : NAN);
    fo_base_field_real(p, "link_latency_s", n->link.latency_s);
    fo_base_field_real(p, "outer_bytes_per_s",
                       s->nodes > 1 && n->outer.bytes_per_s > 0 ? n->outer.bytes_per_s : NAN);
    fo_base_field_real(p, "outer_latency_s", s->nodes > 1 ? n->outer.latency_s : NAN);
}

static void put_losses_of(fo_base_fields *p, const fo_sim_losses *l)
{
    const struct {
        const char *key;
        double seconds;
    } losses[] = {{"imbalance_ms", l ? l->imbalance : NAN},
                  {"contention_ms", l ? l->contention : NAN},
                  {"overhead_ms", l ? l->overhead : NAN},
                  {"latency_ms", l ? l->latency : NAN},
                  {"slicing_ms", l ? l->slicing : NAN},
                  {"tail_ms", l ? l->tail : NAN}};
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++)
        fo_base_field_real(p, losses[i].key, ms(losses[i].seconds));
}

static void put_fields(const fo_planner_simulation *s, int i, fo_base_fields *p)
{
    const fo_planner_row *row = &s->results[i];
    const fo_sim_report *r = row->note[0] ? NULL : &row->report;
    put_setting(s, p);
    fo_base_field_count(p, "wire_bytes", r ? r->sent_bytes : NAN);
    fo_base_field_real(p, "compute_ms", r ? ms(r->compute_s) : NAN);
    fo_base_field_real(p, "transfer_ms", r ? ms(r->transfer_s) : NAN);
    fo_base_field_text(p, "overlap", s->strategies[i].name);
    fo_base_field_text(p, "chosen", row->chosen[0] ? row->chosen : NULL);
    fo_base_field_real(p, "t_ms", r ? ms(r->total_s) : NAN);
    fo_base_field_real(p, "ect_ms", ms(row->ect_s));
    fo_base_field_real(p, "hidden_pct", row->hidden_pct);
    fo_base_field_real(p, "exposed_ms", r ? ms(r->exposed_s) : NAN);
    fo_base_field_real(p, "bound_ms", r ? ms(r->bound_s) : NAN);
    fo_base_field_real(p, "gap_pct", row->gap_pct);
    fo_base_field_real(p, "faster_pct", row->faster_pct);
    if (s->options->explain)
        put_losses_of(p, r ? &r->losses : NULL);
    fo_base_field_count(p, "slices", r ? r->slices : NAN);
    fo_base_field_count(p, "events", r ? (double)r->events : NAN);
    fo_base_field_truth(p, "best", i == s->best);
    fo_base_field_truth(p, "overlap_pays", s->pays);
    fo_base_field_text(p, "note", row->note[0] ? row->note : NULL);
}

static void print_json(const fo_planner_simulation *s)
{
    for (int i = 0; i < s->count; i++) {
        fo_base_fields p = {.out = s->out, .form = FO_BASE_JSON};
        fputs(i ? ",\n  {" : "[\n  {", s->out);
        put_fields(s, i, &p);
        fputc('}', s->out);
    }
    fputs("\n]\n", s->out);
}

static void print_csv(const fo_planner_simulation *s)
{
    fo_base_fields keys = {.out = s->out, .form = FO_BASE_KEYS};
    put_fields(s, 0, &keys);
    fputc('\n', s->out);
    for (int i = 0; i < s->count; i++) {
        fo_base_fields p = {.out = s->out, .form = FO_BASE_CSV};
        put_fields(s, i, &p);
        fputc('\n', s->out);
    }
}

void fo_planner_simulate_print(const fo_planner_simulation *s)
{
    switch (s->options->format) {
    case FO_BENCH_JSON: print_json(s); break;
    case FO_BENCH_CSV: print_csv(s); break;
    default: print_text(s);
    }
}
