/* Bytes of a rank: weights, gradients, the optimizer's state, activations. The formulas of activations are those of
 * arXiv 2205.05198 (tables 2 and 3), written feature by feature so that they hold for grouped heads, gated MLPs, models
 * without dropout and flash attention too. */
#include "planner/memory.h"

/* ---- activations ------------------------------------------------------------------------------------- */

/* A token's bytes in a layer that every tp rank holds, but for sequence parallelism: inputs of both norms, of qkv
 * and of the MLP; masks of two dropouts. */
static double whole_bytes(const fo_planner_split *s)
{
    double dim = (double)s->options.model.dim;
    return dim * (4 * s->element + (s->dropout ? 2 : 0));
}

/* A token's bytes in a layer by the share of its heads and hidden features: queries, keys, values, the projection's
 * input; the activation's input and output, of a gated MLP two inputs. */
static double own_bytes(const fo_planner_split *s)
{
    double hidden = (s->options.model.gated ? 3.0 : 2.0) * (double)s->ffn;
    return s->element * ((double)s->qkv + (double)s->attention + hidden);
}

/* A token's bytes of attention's scores: softmax, its dropout mask, what dropout left; flash attention keeps one
 * float32 a head instead. */
static double score_bytes(const fo_planner_split *s)
{
    double heads = (double)s->heads, context = (double)s->context;
    if (s->options.flash_attention)
        return 4 * heads;
    return heads * context * (s->element + (s->dropout ? 1 + s->element : 0));
}

double fo_planner_memory_layer(const fo_planner_split *s, fo_recompute recompute)
{
    double rows = (double)s->rows;
    if (recompute == FO_RECOMPUTE_FULL)
        return s->norm_rows * (double)s->options.model.dim * s->element;
    double bytes = s->norm_rows * whole_bytes(s) + rows * own_bytes(s);
    bool scores = recompute == FO_RECOMPUTE_NONE || s->options.flash_attention;
    return bytes + (scores ? rows * score_bytes(s) : 0);
}

/* 1F1B holds pp - stage micro-batches; interleaved, a stage warms up with so many more chunks (pipeline.c). */
double fo_planner_memory_layers_in_flight(const fo_planner_split *s, int stage)
{
    int pp = s->options.pp, chunks = s->options.interleave;
    double layers = (double)fo_planner_split_stage_layers(s, stage), held;
    if (chunks == 1) {
        held = pp - stage;
    } else {
        held = 2.0 * (pp - stage - 1) + (chunks - 1.0) * pp + 1;
        layers /= chunks;
    }
    double most = (double)s->micro_batches * chunks;
    return layers * (held < most ? held : most);
}

/* Micro-batches that have passed the embedding, or the head, and not come back. */
static double batches_in_flight(const fo_planner_split *s, int stage)
{
    double held = s->options.pp - stage, most = (double)s->micro_batches;
    if (s->options.interleave > 1 && stage == 0)
        held += s->options.pp - 1;
    return held < most ? held : most;
}

/* The mask behind the embedding; the inputs of the last norm and of the head, and the logits in float32. */
static double end_bytes(const fo_planner_split *s, int stage)
{
    double dim = (double)s->options.model.dim, bytes = 0;
    if (stage == 0 && s->dropout)
        bytes += batches_in_flight(s, 0) * s->norm_rows * dim;
    if (stage == s->options.pp - 1)
        bytes += 2 * s->element * s->norm_rows * dim + 4 * (double)s->rows * (double)s->vocabulary;
    return bytes;
}

/* What is computed again exists once beside what was kept. */
static double again_bytes(const fo_planner_split *s)
{
    fo_recompute recompute = s->options.recompute;
    double all = fo_planner_memory_layer(s, FO_RECOMPUTE_NONE);
    return recompute == FO_RECOMPUTE_NONE ? 0 : all - fo_planner_memory_layer(s, recompute);
}

/* ---- all --------------------------------------------------------------------------------------------- */

/* bf16: weights in bf16, a float32 copy with the optimizer; gradients are summed in float32. */
fo_planner_memory fo_planner_memory_of_stage(const fo_planner_split *s, int stage)
{
    const fo_step_options *o = &s->options;
    double parameters = fo_planner_split_parameters(s, stage);
    double shards = o->sharded_optimizer ? o->dp : 1, state = o->dtype == FO_BF16 ? 12 : 8;
    return (fo_planner_memory){
        .weights = s->element * parameters,
        .gradients = 4 * parameters,
        .optimizer = o->optimizer ? state * parameters / shards : 0,
        .activations = fo_planner_memory_layers_in_flight(s, stage) *
                           fo_planner_memory_layer(s, o->recompute) +
                       end_bytes(s, stage) + again_bytes(s),
    };
}

static double sum(const fo_planner_memory *m)
{
    return m->weights + m->gradients + m->optimizer + m->activations;
}

/* The first holds most micro-batches, the last the head; between them activations fall from stage to stage, and only
 * layers that don't divide differ: the second is the most of these. */
fo_planner_memory fo_planner_memory_most(const fo_planner_split *s)
{
    fo_planner_memory most = fo_planner_memory_of_stage(s, 0);
    const int others[] = {1, s->options.pp - 1};
    for (int i = 0; i < 2; i++) {
        if (others[i] < 1 || others[i] >= s->options.pp)
            continue;
        fo_planner_memory other = fo_planner_memory_of_stage(s, others[i]);
        if (sum(&other) > sum(&most))
            most = other;
    }
    return most;
}
