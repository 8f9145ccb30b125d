/* What the search found, for people and for programs. */
#include <string.h>

#include "base/fields.h"
#include "flashoverlap/search.h"

static const char *const recomputes[] = {"none", "selective", "full"};

static double saved(double other, double step)
{
    return other > 0 ? 100 * (1 - step / other) : 0;
}

static void put_question(const fo_search_options *o, const fo_search_result *r, FILE *out)
{
    const fo_step_options *s = &o->step;
    fprintf(out, "%s on %d x %s (simulated): %lld sequences of %lld tokens a step, %s, wire %s\n",
            s->model.name, o->ranks, r->best[0].report.machine, (long long)s->batch,
            (long long)(s->context ? s->context : s->model.context), fo_dtype_name(s->dtype),
            fo_dtype_name(s->wire));
    fprintf(out, "%lld ways to split: %lld do not fit into memory, %lld priced, in %.1f s\n",
            (long long)r->considered, (long long)r->too_large, (long long)r->priced, r->seconds);
}

static void put_best(const fo_search_candidate *c, FILE *out)
{
    const fo_step_options *s = &c->step;
    const fo_step_report *r = &c->report;
    fprintf(out, "\nbest: tp %d x dp %d x pp %d, %lld sequence%s at a time", s->tp, s->dp, s->pp,
            (long long)s->micro_batch, s->micro_batch == 1 ? "" : "s");
    if (s->pp > 1)
        fprintf(out, ", %d chunk%s a stage", s->interleave, s->interleave == 1 ? "" : "s");
    fprintf(out, ", recomputation %s\n", recomputes[s->recompute]);
    fprintf(out, "step %.4g s, %.5g tokens/s, MFU %.1f %%, %.1f GB a rank\n", r->step_s,
            r->tokens_per_s, 100 * r->mfu, r->memory_bytes * 1e-9);
    fprintf(out,
            "overlap saves %.1f %% against none (%.4g s) and %.1f %% against data slicing "
            "(%.4g s)\n",
            saved(r->none_s, r->step_s), r->none_s, saved(r->slice_s, r->step_s), r->slice_s);
    if (strncmp(r->why, "do not", 6) == 0)
        fprintf(out, "%s\n", r->why);
}

static void put_operations(const fo_step_report *r, FILE *out)
{
    bool refused = false;
    fprintf(out, "\n%-26s %-10s %7s %10s %10s %9s\n", "operation, once, ms", "overlap", "times",
            "none", "predicted", "saves");
    for (int i = 0; i < r->row_count; i++) {
        const fo_step_row *row = &r->rows[i];
        if (!row->overlap[0])
            continue;
        fprintf(out, "%-26s %-10s %7.6g %10.4f %10.4f %7.1f %%\n", row->name, row->overlap,
                row->count, row->none_s * 1e3, row->total_s * 1e3,
                saved(row->none_s, row->total_s));
        refused |= strcmp(row->overlap, "none") == 0;
    }
    for (int i = 0; refused && i < r->row_count; i++)
        if (strcmp(r->rows[i].overlap, "none") == 0 && r->rows[i].transfer_s > 0)
            fprintf(out, "%s: %s\n", r->rows[i].name,
                    r->rows[i].why[0] ? r->rows[i].why : "do not overlap");
}

static void put_losses(const fo_step_report *r, FILE *out)
{
    fprintf(out, "\n%-26s %10s %10s %10s %10s %10s %10s %10s\n", "lost above the bound, ms",
            "bound", "imbalance", "contention", "overhead", "latency", "slicing", "tail");
    for (int i = 0; i < r->row_count; i++) {
        const fo_step_row *row = &r->rows[i];
        const double parts[] = {row->bound_s,         row->losses.imbalance, row->losses.contention,
                                row->losses.overhead, row->losses.latency,   row->losses.slicing,
                                row->losses.tail};
        if (!row->overlap[0] && !(row->total_s > row->bound_s))
            continue;
        fprintf(out, "%-26s", row->name);
        for (size_t p = 0; p < sizeof parts / sizeof *parts; p++)
            fprintf(out, " %10.4f", parts[p] * 1e3);
        fputc('\n', out);
    }
    fprintf(out,
            "\nof the step: computing %.4g s, optimizer %.4g s, exposed %.4g s (tp), %.4g s (dp), "
            "%.4g s (pp)\n",
            r->compute_s, r->optimizer_s, r->tp_exposed_s, r->dp_exposed_s, r->pp_exposed_s);
    fprintf(out,
            "memory of a rank: weights %.1f GB, gradients %.1f, optimizer %.1f, activations "
            "%.1f\n",
            r->weight_bytes * 1e-9, r->gradient_bytes * 1e-9, r->optimizer_bytes * 1e-9,
            r->activation_bytes * 1e-9);
}

static void put_ranking(const fo_search_result *r, FILE *out)
{
    fprintf(out, "\n%3s %5s %5s %5s %6s %6s  %-10s %9s %8s %10s %7s %9s\n", "", "tp", "dp", "pp",
            "chunks", "micro", "recompute", "step s", "behind", "none s", "MFU %", "GB a rank");
    for (int i = 0; i < r->count; i++) {
        const fo_step_options *s = &r->best[i].step;
        const fo_step_report *p = &r->best[i].report;
        fprintf(out, "%3d %5d %5d %5d %6d %6lld  %-10s %9.4g %6.1f %% %10.4g %7.1f %9.1f\n", i + 1,
                s->tp, s->dp, s->pp, s->interleave, (long long)s->micro_batch,
                recomputes[s->recompute], p->step_s,
                100 * (p->step_s / r->best[0].report.step_s - 1), p->none_s, 100 * p->mfu,
                p->memory_bytes * 1e-9);
    }
}

void fo_search_print(const fo_search_options *options, const fo_search_result *result, bool explain,
                     FILE *out)
{
    if (!result->count)
        return;
    put_question(options, result, out);
    put_best(&result->best[0], out);
    put_operations(&result->best[0].report, out);
    if (explain)
        put_losses(&result->best[0].report, out);
    put_ranking(result, out);
}

/* ---- JSON ---------------------------------------------------------------------------------------------- */

static void put_json_row(const fo_step_row *row, FILE *out)
{
    fo_base_fields p = {.out = out, .form = FO_BASE_JSON};
    fputc('{', out);
    fo_base_field_text(&p, "name", row->name);
    fo_base_field_text(&p, "overlap", row->overlap[0] ? row->overlap : NULL);
    fo_base_field_text(&p, "why", row->why[0] ? row->why : NULL);
    fo_base_field_real(&p, "count", row->count);
    fo_base_field_real(&p, "predicted_s", row->total_s);
    fo_base_field_real(&p, "none_s", row->none_s);
    fo_base_field_real(&p, "compute_s", row->compute_s);
    fo_base_field_real(&p, "transfer_s", row->transfer_s);
    fo_base_field_real(&p, "bound_s", row->bound_s);
    fo_base_field_real(&p, "exposed_s", row->exposed_s);
    fo_base_field_real(&p, "imbalance_s", row->losses.imbalance);
    fo_base_field_real(&p, "contention_s", row->losses.contention);
    fo_base_field_real(&p, "overhead_s", row->losses.overhead);
    fo_base_field_real(&p, "latency_s", row->losses.latency);
    fo_base_field_real(&p, "slicing_s", row->losses.slicing);
    fo_base_field_real(&p, "tail_s", row->losses.tail);
    fputc('}', out);
}

static void put_json_candidate(const fo_search_candidate *c, bool rows, FILE *out)
{
    const fo_step_options *s = &c->step;
    const fo_step_report *r = &c->report;
    fo_base_fields p = {.out = out, .form = FO_BASE_JSON};
    fputc('{', out);
    fo_base_field_count(&p, "tp", s->tp);
    fo_base_field_count(&p, "dp", s->dp);
    fo_base_field_count(&p, "pp", s->pp);
    fo_base_field_count(&p, "interleave", s->interleave);
    fo_base_field_count(&p, "micro_batch", (double)s->micro_batch);
    fo_base_field_text(&p, "recompute", recomputes[s->recompute]);
    fo_base_field_real(&p, "step_s", r->step_s);
    fo_base_field_real(&p, "none_s", r->none_s);
    fo_base_field_real(&p, "slice_s", r->slice_s);
    fo_base_field_real(&p, "tokens_per_s", r->tokens_per_s);
    fo_base_field_real(&p, "mfu", r->mfu);
    fo_base_field_real(&p, "hfu", r->hfu);
    fo_base_field_real(&p, "compute_s", r->compute_s);
    fo_base_field_real(&p, "optimizer_s", r->optimizer_s);
    fo_base_field_real(&p, "tp_exposed_s", r->tp_exposed_s);
    fo_base_field_real(&p, "dp_exposed_s", r->dp_exposed_s);
    fo_base_field_real(&p, "pp_exposed_s", r->pp_exposed_s);
    fo_base_field_real(&p, "memory_bytes", r->memory_bytes);
    fo_base_field_real(&p, "weight_bytes", r->weight_bytes);
    fo_base_field_real(&p, "gradient_bytes", r->gradient_bytes);
    fo_base_field_real(&p, "optimizer_bytes", r->optimizer_bytes);
    fo_base_field_real(&p, "activation_bytes", r->activation_bytes);
    fo_base_field_text(&p, "why", r->why[0] ? r->why : NULL);
    if (rows) {
        fputs(",\n  \"operations\": [", out);
        for (int i = 0; i < r->row_count; i++) {
            fputs(i ? ",\n   " : "\n   ", out);
            put_json_row(&r->rows[i], out);
        }
        fputc(']', out);
    }
    fputc('}', out);
}

void fo_search_print_json(const fo_search_options *options, const fo_search_result *result,
                          FILE *out)
{
    const fo_step_options *s = &options->step;
    fo_base_fields p = {.out = out, .form = FO_BASE_JSON};
    fputc('{', out);
    fo_base_field_text(&p, "figures", "simulated");
    fo_base_field_text(&p, "model", s->model.name);
    fo_base_field_text(&p, "machine", result->count ? result->best[0].report.machine : NULL);
    fo_base_field_count(&p, "ranks", options->ranks);
    fo_base_field_count(&p, "batch", (double)s->batch);
    fo_base_field_count(&p, "context", (double)(s->context ? s->context : s->model.context));
    fo_base_field_text(&p, "dtype", fo_dtype_name(s->dtype));
    fo_base_field_text(&p, "wire", fo_dtype_name(s->wire));
    fo_base_field_count(&p, "considered", (double)result->considered);
    fo_base_field_count(&p, "too_large", (double)result->too_large);
    fo_base_field_count(&p, "priced", (double)result->priced);
    fo_base_field_real(&p, "search_s", result->seconds);
    fputs(",\n \"best\": [", out);
    for (int i = 0; i < result->count; i++) {
        fputs(i ? ",\n  " : "\n  ", out);
        put_json_candidate(&result->best[i], i == 0, out);
    }
    fputs("]}\n", out);
}
