/* One training step, simulated and printed. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fields.h"
#include "flashoverlap/simulate.h"
#include "planner/simulate_links.h"
#include "planner/step.h"
#include "sim/profile.h"

static const char *const recomputes[] = {"none", "selective", "full"};

void fo_simulate_step_defaults(fo_simulate_step_options *options)
{
    *options = (fo_simulate_step_options){0};
    fo_step_defaults(&options->step);
    options->step.tp = options->step.dp = options->step.pp = 0;
}

/* ---- the split -------------------------------------------------------------------------------------- */

/* "--tp 2 x --pp 3 = 6": those that were given. */
static void put_given(const fo_step_options *given, int64_t product, char *text, size_t size)
{
    const struct {
        const char *option;
        int value;
    } sizes[] = {{"tp", given->tp}, {"dp", given->dp}, {"pp", given->pp}};
    size_t used = 0;
    int count = 0;
    text[0] = '\0';
    for (int i = 0; i < 3 && used < size; i++)
        if (sizes[i].value)
            used += (size_t)snprintf(text + used, size - used, "%s--%s %d", count++ ? " x " : "",
                                     sizes[i].option, sizes[i].value);
    if (count > 1 && used < size)
        snprintf(text + used, size - used, " = %lld", (long long)product);
}

static fo_status read_split(const fo_simulate_step_options *o, fo_step_options *step)
{
    int ranks = o->ranks, *unknown = !step->dp ? &step->dp : !step->tp ? &step->tp : &step->pp;
    bool follows = ranks > 0 && *unknown == 0;
    char given[128];
    step->tp = step->tp ? step->tp : 1;
    step->dp = step->dp ? step->dp : 1;
    step->pp = step->pp ? step->pp : 1;
    int64_t product = (int64_t)step->tp * step->dp;
    product = product > INT32_MAX ? product : product * step->pp;
    if (follows && ranks % product == 0) {
        *unknown = (int)(ranks / product);
        return FO_OK;
    }
    if (!ranks || (!follows && product == ranks))
        return FO_OK;
    put_given(&o->step, product, given, sizeof given);
    if (follows)
        return fo_base_error(FO_INVALID,
                             "--ranks %d is no multiple of %s, expected e.g. --ranks %lld", ranks,
                             given,
                             (long long)(ranks > product ? ranks / product * product : product));
    return fo_base_error(FO_INVALID,
                         "--ranks %d is not %s, expected that product, or one of them left out",
                         ranks, given);
}

/* ---- the machine ------------------------------------------------------------------------------------ */

static fo_status read_machine(const fo_simulate_step_options *o, fo_sim_machine *machine)
{
    fo_status status = fo_sim_profile_read(o->step.machine, machine);
    if (status != FO_OK)
        return status;
    if (o->outer.bytes_per_s > 0 && !machine->network.locals)
        return fo_base_error(
            FO_INVALID,
            "--outer is the link between machines, but %s is one machine; expected "
            "a profile of several, such as h100-sxm-ndr, or --link",
            machine->name);
    fo_planner_simulate_links(&machine->network, o->link.bytes_per_s > 0 ? &o->link : NULL,
                              o->outer.bytes_per_s > 0 ? &o->outer : NULL);
    return FO_OK;
}

static fo_status run(const fo_sim_machine *machine, const fo_step_options *step,
                     fo_step_report *report)
{
    fo_planner_prices *prices;
    fo_status status = fo_planner_prices_create(machine, &prices);
    if (status == FO_OK)
        status = fo_planner_step_run(prices, step, FO_PLANNER_COMPARE | FO_PLANNER_EXPLAIN, report);
    fo_planner_prices_free(prices);
    return status;
}

/* ---- text ------------------------------------------------------------------------------------------- */

static double giga(double bytes)
{
    return bytes * 1e-9;
}

static void put_model(const fo_step_options *o, FILE *out)
{
    const fo_model_sizes *m = &o->model;
    fprintf(out, "model: %.3g G parameters, %lld layers, dim %lld, %lld heads", //
            giga(fo_model_sizes_parameters(m)), (long long)m->layers, (long long)m->dim,
            (long long)m->heads);
    if (m->kv_heads != m->heads)
        fprintf(out, " (%lld for keys and values)", (long long)m->kv_heads);
    fprintf(out, ", ffn %lld%s, vocabulary %lld, %s, wire %s\n", (long long)m->ffn,
            m->gated ? " gated" : "", (long long)m->vocabulary, fo_dtype_name(o->dtype),
            fo_dtype_name(o->wire));
}

static void put_split(const fo_step_options *o, FILE *out)
{
    fprintf(out, "split: tp %d x dp %d x pp %d", o->tp, o->dp, o->pp);
    if (o->interleave > 1)
        fprintf(out, " of %d chunks each", o->interleave);
    fprintf(out, ", %lld sequences of %lld tokens a step, %lld at a time, recomputation %s%s%s\n",
            (long long)o->batch, (long long)(o->context ? o->context : o->model.context),
            (long long)o->micro_batch, recomputes[o->recompute],
            o->sequence_parallel ? ", sequence parallel" : "",
            o->sharded_optimizer && o->dp > 1 ? ", sharded optimizer" : "");
    if (o->slow_rank >= 0)
        fprintf(out, "rank %d of every group computes at %g of its speed\n", o->slow_rank,
                o->slow_speed);
}

/* Seconds, or milliseconds where that reads better. Rounding is no time. */
static void put_time(const char *before, double seconds, const char *behind, FILE *out)
{
    double value = seconds < 1e-9 ? 0 : seconds;
    bool small = value > 0 && value < 1;
    fprintf(out, "%s%.4g %s%s", before, small ? value * 1e3 : value, small ? "ms" : "s", behind);
}

static void put_against(const char *what, double other, double step, FILE *out)
{
    if (!(other > 0))
        return;
    put_time(what, other, "", out);
    fprintf(out, ", %.1f %% %s than this", 100 * fabs(other / step - 1),
            other < step ? "less" : "more");
}

static void put_figures(const fo_step_report *r, FILE *out)
{
    put_time("step time: ", r->step_s, "", out);
    put_against("; nothing overlapped ", r->none_s, r->step_s, out);
    put_against("; with data slicing ", r->slice_s, r->step_s, out);
    fprintf(out, "\nrate: %.0f tokens/s, MFU %.1f %%, HFU %.1f %%%s\n", r->tokens_per_s,
            100 * r->mfu, 100 * r->hfu,
            r->hfu > 1 ? " (attention counts whole, its masked half is skipped)" : "");
    if (r->why[0])
        fprintf(out, "%s\n", r->why);
    put_time("of the busiest rank: computing ", r->compute_s, ", ", out);
    put_time("optimizer ", r->optimizer_s, ", exposed ", out);
    put_time("", r->tp_exposed_s, " (tp), ", out);
    put_time("", r->dp_exposed_s, " (dp), ", out);
    put_time("", r->pp_exposed_s, " (pp)\n", out);
    fprintf(out,
            "memory of a rank: %.1f GB; weights %.1f, gradients %.1f, optimizer %.1f, activations "
            "%.1f%s\n",
            giga(r->memory_bytes), giga(r->weight_bytes), giga(r->gradient_bytes),
            giga(r->optimizer_bytes), giga(r->activation_bytes),
            r->fits ? "" : "; more than the machine has");
}

static int decimals_of(const fo_step_report *r)
{
    double largest = 0;
    for (int i = 0; i < r->row_count; i++)
        largest = fmax(largest, fmax(r->rows[i].total_s, r->rows[i].none_s));
    return fo_base_cell_decimals(largest * 1e3);
}

static void put_row(const fo_step_row *row, int d, FILE *out)
{
    const double values[] = {row->total_s,    row->none_s,  row->compute_s,
                             row->transfer_s, row->bound_s, row->exposed_s};
    char cell[400];
    fprintf(out, "%-26s %-10s %7.6g", row->name, row->overlap[0] ? row->overlap : "-", row->count);
    for (size_t v = 0; v < sizeof values / sizeof *values; v++)
        fprintf(out, " %9s", fo_base_cell(values[v] * 1e3, d, cell, sizeof cell));
    fputc('\n', out);
}

static void put_table(const fo_step_report *r, FILE *out)
{
    fprintf(out, "\n%-26s %-10s %7s %9s %9s %9s %9s %9s %9s\n", "operation, once, ms", "overlap",
            "a step", "T", "T none", "C", "X", "bound", "exposed");
    for (int i = 0; i < r->row_count; i++)
        put_row(&r->rows[i], decimals_of(r), out);
}

static void put_losses(const fo_step_report *r, FILE *out)
{
    int d = decimals_of(r);
    char cell[400];
    fprintf(out, "\n%-26s %10s %10s %10s %10s %10s %10s %10s\n", "lost, once, ms", "T - bound",
            "imbalance", "contention", "overhead", "latency", "slicing", "tail");
    for (int i = 0; i < r->row_count; i++) {
        const fo_step_row *row = &r->rows[i];
        const fo_step_losses *l = &row->losses;
        const double values[] = {row->total_s - row->bound_s,
                                 l->imbalance,
                                 l->contention,
                                 l->overhead,
                                 l->latency,
                                 l->slicing,
                                 l->tail};
        fprintf(out, "%-26s", row->name);
        for (size_t v = 0; v < sizeof values / sizeof *values; v++)
            fprintf(out, " %10s", fo_base_cell(values[v] * 1e3, d, cell, sizeof cell));
        fputc('\n', out);
    }
    fputc('\n', out);
    for (int i = 0; i < r->row_count; i++)
        if (r->rows[i].why[0])
            fprintf(out, "%s: %s\n", r->rows[i].name, r->rows[i].why);
}

static void put_network(const fo_sim_network *network, FILE *out)
{
    char text[256];
    fo_planner_simulate_network(network, network->locals > 0, text, sizeof text);
    fprintf(out, "link: %s\n", text);
}

static void print_text(const fo_simulate_step_options *o, const fo_step_options *step,
                       const fo_sim_network *network, const fo_step_report *r, FILE *out)
{
    fprintf(out, "training step of %s on %d x %s, simulated; no rank was started\n",
            step->model.name, step->tp * step->dp * step->pp, r->machine);
    put_model(step, out);
    put_split(step, out);
    put_network(network, out);
    put_figures(r, out);
    put_table(r, out);
    if (o->explain)
        put_losses(r, out);
}

/* ---- JSON ------------------------------------------------------------------------------------------- */

typedef struct real_field {
    const char *key;
    double value;
} real_field;

static void put_reals(fo_base_fields *p, const real_field *fields, size_t count)
{
    for (size_t i = 0; i < count; i++)
        fo_base_field_real(p, fields[i].key, fields[i].value);
}

static void put_json_settings(const fo_step_options *o, const fo_step_report *r, fo_base_fields *p)
{
    const fo_model_sizes *m = &o->model;
    const struct {
        const char *key;
        double value;
    } counts[] = {{"parameters", fo_model_sizes_parameters(m)},
                  {"layers", (double)m->layers},
                  {"dim", (double)m->dim},
                  {"heads", (double)m->heads},
                  {"kv_heads", (double)m->kv_heads},
                  {"ffn", (double)m->ffn},
                  {"vocabulary", (double)m->vocabulary},
                  {"ranks", (double)o->tp * o->dp * o->pp},
                  {"tp", o->tp},
                  {"dp", o->dp},
                  {"pp", o->pp},
                  {"interleave", o->interleave},
                  {"batch", (double)o->batch},
                  {"micro_batch", (double)o->micro_batch},
                  {"context", (double)(o->context ? o->context : m->context)}};
    fo_base_field_text(p, "subject", "step");
    fo_base_field_text(p, "computation", "simulated");
    fo_base_field_text(p, "machine", r->machine);
    fo_base_field_text(p, "model", m->name);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        fo_base_field_count(p, counts[i].key, counts[i].value);
    fo_base_field_text(p, "recompute", recomputes[o->recompute]);
    fo_base_field_truth(p, "sequence_parallel", o->sequence_parallel);
    fo_base_field_truth(p, "flash_attention", o->flash_attention);
    fo_base_field_truth(p, "sharded_optimizer", o->sharded_optimizer);
    fo_base_field_truth(p, "overlap_dp", o->overlap_dp);
    fo_base_field_text(p, "dtype", fo_dtype_name(o->dtype));
    fo_base_field_text(p, "wire", fo_dtype_name(o->wire));
    fo_base_field_text(p, "overlap", o->overlap ? o->overlap : "auto");
}

static void put_json_network(const fo_sim_network *n, fo_base_fields *p)
{
    bool outer = n->locals > 0;
    fo_base_field_real(p, "link_bytes_per_s", n->link.bytes_per_s > 0 ? n->link.bytes_per_s : NAN);
    fo_base_field_real(p, "link_latency_s", n->link.latency_s);
    fo_base_field_real(p, "outer_bytes_per_s",
                       outer && n->outer.bytes_per_s > 0 ? n->outer.bytes_per_s : NAN);
    fo_base_field_real(p, "outer_latency_s", outer ? n->outer.latency_s : NAN);
}

static void put_json_figures(const fo_step_report *r, fo_base_fields *p)
{
    const real_field fields[] = {{"step_s", r->step_s},
                                 {"none_s", r->none_s},
                                 {"slice_s", r->slice_s},
                                 {"tokens_per_s", r->tokens_per_s},
                                 {"mfu", r->mfu},
                                 {"hfu", r->hfu},
                                 {"flops", r->flops},
                                 {"compute_s", r->compute_s},
                                 {"optimizer_s", r->optimizer_s},
                                 {"tp_exposed_s", r->tp_exposed_s},
                                 {"dp_exposed_s", r->dp_exposed_s},
                                 {"pp_exposed_s", r->pp_exposed_s},
                                 {"memory_bytes", r->memory_bytes},
                                 {"weight_bytes", r->weight_bytes},
                                 {"gradient_bytes", r->gradient_bytes},
                                 {"optimizer_bytes", r->optimizer_bytes},
                                 {"activation_bytes", r->activation_bytes}};
    put_reals(p, fields, sizeof fields / sizeof *fields);
    fo_base_field_truth(p, "fits", r->fits);
    fo_base_field_text(p, "why", r->why[0] ? r->why : NULL);
    fo_base_field_count(p, "events", (double)r->events);
}

static void put_json_row(const fo_step_row *row, bool explain, FILE *out)
{
    fo_base_fields p = {.out = out, .form = FO_BASE_JSON};
    const fo_step_losses *l = &row->losses;
    const real_field times[] = {{"count", row->count},           {"t_s", row->total_s},
                                {"none_s", row->none_s},         {"compute_s", row->compute_s},
                                {"transfer_s", row->transfer_s}, {"bound_s", row->bound_s},
                                {"exposed_s", row->exposed_s}};
    const real_field losses[] = {{"imbalance_s", l->imbalance}, {"contention_s", l->contention},
                                 {"overhead_s", l->overhead},   {"latency_s", l->latency},
                                 {"slicing_s", l->slicing},     {"tail_s", l->tail}};
    fputc('{', out);
    fo_base_field_text(&p, "operation", row->name);
    fo_base_field_text(&p, "overlap", row->overlap[0] ? row->overlap : NULL);
    fo_base_field_text(&p, "why", row->why[0] ? row->why : NULL);
    put_reals(&p, times, sizeof times / sizeof *times);
    if (explain)
        put_reals(&p, losses, sizeof losses / sizeof *losses);
    fputc('}', out);
}

static void print_json(const fo_simulate_step_options *o, const fo_step_options *step,
                       const fo_sim_network *network, const fo_step_report *r, FILE *out)
{
    fo_base_fields p = {.out = out, .form = FO_BASE_JSON};
    fputc('{', out);
    put_json_settings(step, r, &p);
    put_json_network(network, &p);
    put_json_figures(r, &p);
    fputs(",\n \"operations\": [", out);
    for (int i = 0; i < r->row_count; i++) {
        fputs(i ? ",\n  " : "\n  ", out);
        put_json_row(&r->rows[i], o->explain, out);
    }
    fputs("\n ]}\n", out);
}

/* ---- the call --------------------------------------------------------------------------------------- */

static fo_status check(const fo_simulate_step_options *o)
{
    if (o->format == FO_BENCH_CSV)
        return fo_base_error(FO_INVALID, "--csv has no table of steps, expected --json");
    if (o->ranks < 0 || o->step.tp < 0 || o->step.dp < 0 || o->step.pp < 0)
        return fo_base_error(FO_INVALID, "a split of ranks is negative, expected 1 or more");
    if (!o->step.machine)
        return fo_base_error(FO_INVALID, "--machine is missing, expected a profile, such as "
                                         "--machine h100-sxm");
    return FO_OK;
}

fo_status fo_simulate_step(const fo_simulate_step_options *o, FILE *out)
{
    fo_step_options step = o->step;
    fo_sim_machine machine = {.memory = NULL};
    fo_step_report *report = calloc(1, sizeof *report);
    if (!report)
        return fo_base_error(FO_NO_MEMORY, "no memory for a step");
    fo_status status = check(o);
    if (status == FO_OK)
        status = fo_model_sizes_resolve(o->model, &o->step.model, &step.model);
    if (status == FO_OK)
        status = read_split(o, &step);
    if (status == FO_OK)
        status = read_machine(o, &machine);
    if (status == FO_OK)
        status = run(&machine, &step, report);
    if (status == FO_OK)
        (o->format == FO_BENCH_JSON ? print_json : print_text)(o, &step, &machine.network, report,
                                                               out);
    fo_sim_machine_free(&machine);
    free(report);
    if (status == FO_OK && (fflush(out) || ferror(out)))
        status = fo_base_error(FO_IO, "the figures can't be written");
    return status;
}
