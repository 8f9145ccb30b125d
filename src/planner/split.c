/* Checking a split, and sizes of a rank. */
#include "planner/split.h"

#include <string.h>

#include "base/error.h"
#include "flashoverlap/schedule.h"
#include "planner/model.h"

enum { MOST_RANKS = 1 << 24, MOST_ROWS = 1 << 24 };

static const double slowest = 1e-3; /* a rank that is slower has stopped */

static int64_t up(int64_t size, int64_t parts)
{
    return (size + parts - 1) / parts;
}

/* ---- checks ------------------------------------------------------------------------------------------ */

static fo_status check_model(const fo_model_sizes *m)
{
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {{"layers", m->layers},        {"dim", m->dim},           {"heads", m->heads},
                 {"kv_heads", m->kv_heads},    {"head_dim", m->head_dim}, {"ffn", m->ffn},
                 {"vocabulary", m->vocabulary}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].value < 1 || sizes[i].value > 1000000000)
            return fo_base_error(FO_INVALID, "model: %s is %lld, expected 1 to 1000000000",
                                 sizes[i].name, (long long)sizes[i].value);
    if (m->heads % m->kv_heads)
        return fo_base_error(FO_INVALID,
                             "model: kv_heads is %lld, expected a divisor of heads, which is %lld",
                             (long long)m->kv_heads, (long long)m->heads);
    return FO_OK;
}

static fo_status check_counts(const fo_step_options *o)
{
    const struct {
        const char *name;
        int64_t value;
    } counts[] = {{"tp", o->tp},       {"dp", o->dp},
                  {"pp", o->pp},       {"interleave", o->interleave},
                  {"batch", o->batch}, {"micro_batch", o->micro_batch}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (counts[i].value < 1 || counts[i].value > 1000000000)
            return fo_base_error(FO_INVALID, "step: %s is %lld, expected 1 to 1000000000",
                                 counts[i].name, (long long)counts[i].value);
    if ((double)o->tp * o->dp * o->pp > MOST_RANKS)
        return fo_base_error(FO_INVALID,
                             "step: tp %d x dp %d x pp %d are more than %d ranks, expected fewer",
                             o->tp, o->dp, o->pp, MOST_RANKS);
    if (o->recompute < FO_RECOMPUTE_NONE || o->recompute > FO_RECOMPUTE_FULL)
        return fo_base_error(FO_INVALID, "step: recomputation %d is unknown", (int)o->recompute);
    if ((unsigned)o->dtype > FO_BF16 || (unsigned)o->wire > FO_BF16)
        return fo_base_error(FO_INVALID, "step: type %d or %d is unknown, expected f32 or bf16",
                             (int)o->dtype, (int)o->wire);
    return FO_OK;
}

static fo_status check_tp(const fo_step_options *o, int locals)
{
    const fo_model_sizes *m = &o->model;
    if (o->tp > m->heads)
        return fo_base_error(FO_INVALID,
                             "step: tp is %d, but %s has %lld heads, and a rank would have none; "
                             "expected at most %lld",
                             o->tp, m->name, (long long)m->heads, (long long)m->heads);
    bool alone = (int64_t)o->dp * o->pp == 1;
    if (locals <= 0 || (alone && o->tp <= locals))
        return FO_OK;
    int nearest = o->tp;
    while (nearest < locals ? locals % nearest : nearest % locals)
        nearest--;
    if (nearest != o->tp)
        return fo_base_error(FO_INVALID,
                             "step: tp is %d on machines of %d ranks, and groups would be cut "
                             "differently; expected a divisor or a multiple of %d, such as %d",
                             o->tp, locals, locals, nearest);
    return FO_OK;
}

static fo_status check_pp(const fo_step_options *o)
{
    int64_t virtual_stages = (int64_t)o->pp * o->interleave, layers = o->model.layers;
    if (o->interleave > 1 && o->pp == 1)
        return fo_base_error(
            FO_INVALID,
            "step: interleave is %d with one pipeline stage, expected 1, or pp of 2 "
            "or more",
            o->interleave);
    if (virtual_stages > layers && o->interleave == 1)
        return fo_base_error(FO_INVALID,
                             "step: pp is %d, but %s has %lld layers; expected at most %lld", o->pp,
                             o->model.name, (long long)layers, (long long)layers);
    if (virtual_stages > layers)
        return fo_base_error(FO_INVALID,
                             "step: pp %d x interleave %d needs %lld layers, but %s has %lld; "
                             "expected interleave %lld",
                             o->pp, o->interleave, (long long)virtual_stages, o->model.name,
                             (long long)layers, (long long)(layers >= o->pp ? layers / o->pp : 1));
    return FO_OK;
}

/* Only what divides is named: one replica, or one sequence at a time, forbids nothing. */
static fo_status bad_batch(const fo_step_options *o, int64_t whole)
{
    char parts[96];
    if (o->micro_batch == 1)
        snprintf(parts, sizeof parts, "dp %d", o->dp);
    else if (o->dp == 1)
        snprintf(parts, sizeof parts, "micro_batch %lld", (long long)o->micro_batch);
    else
        snprintf(parts, sizeof parts, "dp %d x micro_batch %lld = %lld", o->dp,
                 (long long)o->micro_batch, (long long)o->dp * (long long)o->micro_batch);
    return fo_base_error(FO_INVALID,
                         "step: a batch of %lld sequence%s does not divide by %s, expected e.g. "
                         "batch %lld",
                         (long long)o->batch, o->batch == 1 ? "" : "s", parts, (long long)whole);
}

static fo_status check_context(const fo_step_options *o, int64_t context)
{
    if (context < 1 || context > MOST_ROWS)
        return fo_base_error(FO_INVALID, "step: context is %lld, expected 1 to %d",
                             (long long)context, MOST_ROWS);
    if (o->model.positions && context > o->model.context)
        return fo_base_error(
            FO_INVALID,
            "step: context is %lld, but %s has a table of %lld positions; expected "
            "at most that",
            (long long)context, o->model.name, (long long)o->model.context);
    if (o->micro_batch > MOST_ROWS / context)
        return fo_base_error(FO_INVALID,
                             "step: micro_batch %lld x context %lld are more than %d tokens at a "
                             "time, expected micro_batch %lld",
                             (long long)o->micro_batch, (long long)context, MOST_ROWS,
                             (long long)(MOST_ROWS / context));
    return FO_OK;
}

static fo_status check_batch(const fo_step_options *o)
{
    int64_t at_once = o->dp * o->micro_batch, micro_batches = o->batch / at_once;
    int64_t whole = (micro_batches ? micro_batches : 1) * at_once;
    int64_t rounds = up(micro_batches, o->pp) * o->pp * at_once;
    if (o->batch % at_once)
        return bad_batch(o, whole);
    if (o->interleave > 1 && micro_batches % o->pp)
        return fo_base_error(FO_INVALID,
                             "step: %lld micro-batches do not divide into interleaved rounds of pp "
                             "%d, expected e.g. batch %lld, or interleave 1",
                             (long long)micro_batches, o->pp, (long long)rounds);
    return FO_OK;
}

static fo_status check_slow(const fo_step_options *o)
{
    if (o->slow_rank < -1 || o->slow_rank >= o->tp)
        return fo_base_error(FO_INVALID, "step: slow_rank is %d of tp %d, expected -1 to %d",
                             o->slow_rank, o->tp, o->tp - 1);
    if (o->slow_rank >= 0 && !(o->slow_speed >= slowest && o->slow_speed <= 1))
        return fo_base_error(FO_INVALID, "step: slow_speed is %g, expected %g to 1, e.g. 0.5",
                             o->slow_speed, slowest);
    return FO_OK;
}

static fo_status read_overlap(const fo_step_options *o, fo_planner_overlap *overlap)
{
    fo_strategy strategy;
    *overlap = FO_PLANNER_AUTO;
    if (!o->overlap || strcmp(o->overlap, "auto") == 0)
        return FO_OK;
    *overlap = FO_PLANNER_MEGATRON;
    if (strcmp(o->overlap, "megatron") == 0)
        return FO_OK;
    *overlap = FO_PLANNER_STATED;
    fo_status status = fo_strategy_parse(o->overlap, &strategy);
    if (status != FO_OK)
        return status;
    if (strategy.kind == FO_STRATEGY_LIBRARY)
        return fo_base_error(FO_INVALID,
                             "step: strategy '%s' has no program to simulate, expected e.g. none",
                             o->overlap);
    if (strategy.kind != FO_STRATEGY_NONE && !o->sequence_parallel && o->tp > 1)
        return fo_base_error(FO_INVALID,
                             "step: strategy '%s' needs activations that are sharded over tp, "
                             "expected sequence_parallel, or overlap none",
                             o->overlap);
    return FO_OK;
}

/* ---- sizes ------------------------------------------------------------------------------------------- */

static void fill(fo_planner_split *s)
{
    const fo_step_options *o = &s->options;
    const fo_model_sizes *m = &o->model;
    s->rows = o->micro_batch * s->context;
    s->micro_batches = o->batch / (o->dp * o->micro_batch);
    s->virtual_stages = o->pp * o->interleave;
    s->element = (double)fo_dtype_size(o->dtype);
    s->wire = (double)fo_dtype_size(o->wire);
    s->dropout = m->biases && !m->gated;
    s->heads = up(m->heads, o->tp);
    s->kv_heads = up(m->kv_heads, o->tp);
    s->attention = s->heads * m->head_dim;
    s->qkv = s->attention + 2 * s->kv_heads * m->head_dim;
    s->ffn = up(m->ffn, o->tp);
    s->vocabulary = up(m->vocabulary, o->tp);
    s->norm_rows = (double)(o->sequence_parallel ? up(s->rows, o->tp) : s->rows);
}

fo_status fo_planner_split_make(const fo_step_options *options, int locals, fo_planner_split *split)
{
    memset(split, 0, sizeof *split);
    split->options = *options;
    split->context = options->context ? options->context : options->model.context;
    fo_status status = check_model(&options->model);
    if (status == FO_OK)
        status = check_counts(options);
    if (status == FO_OK)
        status = check_tp(options, locals);
    if (status == FO_OK)
        status = check_pp(options);
    if (status == FO_OK)
        status = check_context(options, split->context);
    if (status == FO_OK)
        status = check_batch(options);
    if (status == FO_OK)
        status = check_slow(options);
    if (status == FO_OK)
        status = read_overlap(options, &split->overlap);
    if (status == FO_OK)
        fill(split);
    return status;
}

int64_t fo_planner_split_layers(const fo_planner_split *s, int virtual_stage)
{
    int64_t each = s->options.model.layers / s->virtual_stages;
    int64_t rest = s->options.model.layers % s->virtual_stages;
    int first = rest <= s->virtual_stages - 2 ? 1 : 0;
    return each + (virtual_stage >= first && virtual_stage < first + rest);
}

int64_t fo_planner_split_stage_layers(const fo_planner_split *s, int stage)
{
    int64_t layers = 0;
    for (int j = stage; j < s->virtual_stages; j += s->options.pp)
        layers += fo_planner_split_layers(s, j);
    return layers;
}

/* Matrices and tables by their share, norms and biases whole: they are small. */
double fo_planner_split_layer_parameters(const fo_planner_split *s)
{
    double weights = fo_planner_layer_weights(&s->options.model);
    return weights / s->options.tp + fo_planner_layer_parameters(&s->options.model) - weights;
}

double fo_planner_split_end_parameters(const fo_planner_split *s, int virtual_stage)
{
    const fo_model_sizes *m = &s->options.model;
    double dim = (double)m->dim, table = (double)s->vocabulary * dim, parameters = 0;
    if (virtual_stage == 0)
        parameters += table + (m->positions ? (double)m->context * dim : 0);
    if (virtual_stage == s->virtual_stages - 1)
        parameters += (m->tied && s->options.pp == 1 ? 0 : table) + (m->gated ? 1 : 2) * dim;
    return parameters;
}

double fo_planner_split_parameters(const fo_planner_split *s, int stage)
{
    double layer = fo_planner_split_layer_parameters(s), parameters = 0;
    for (int j = stage; j < s->virtual_stages; j += s->options.pp)
        parameters +=
            (double)fo_planner_split_layers(s, j) * layer + fo_planner_split_end_parameters(s, j);
    return parameters;
}
