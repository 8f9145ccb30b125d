/* Predicting whole training steps of whole models on whole clusters, and choosing how to split them. Everything here is
 * simulated: no rank is started. Functions may be called from any thread; what they fill belongs to the caller. */
#ifndef FLASHOVERLAP_PLANNER_H
#define FLASHOVERLAP_PLANNER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "flashoverlap/group.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- models ---- */

/* A decoder-only transformer. */
typedef struct fo_model_sizes {
    char name[64];
    int64_t layers, dim, heads, kv_heads, head_dim; /* kv_heads = heads: no grouping */
    int64_t ffn;                                    /* hidden features of the MLP */
    int64_t vocabulary, context;                    /* context: of one sequence in training */
    bool gated;                                     /* three MLP matrices (SwiGLU) instead of two */
    bool tied;                                      /* the head shares the embedding's table */
    bool positions;                                 /* a learned table of `context` positions */
    bool biases;
} fo_model_sizes;

/* `word`: a preset ("gpt2", "gpt3-175b", "llama3-70b", ...) or the path of a Hugging Face config.json. FO_INVALID: an
 * unknown preset (the known ones are listed), or a field that is missing, negative, mis-typed or unknown, with its path
 * and a valid example; the file is not JSON. FO_IO. */
fo_status fo_model_sizes_read(const char *word, fo_model_sizes *model);
/* The same with sizes that were stated beside it, or instead of it (word NULL): what is not 0 or false in `given` takes
 * the place of what the name says. kv_heads, head_dim and ffn follow from the others where nobody states them: heads,
 * dim / heads, 4 dim. FO_INVALID besides: a size is missing (layers, dim, heads, vocabulary, context), heads that do
 * not divide dim. *model is then unchanged. */
fo_status fo_model_sizes_resolve(const char *word, const fo_model_sizes *given,
                                 fo_model_sizes *model);
/* Names of the presets, NULL after the last. */
const char *const *fo_model_sizes_presets(void);
/* Parameters, all and those of the embedding tables. */
double fo_model_sizes_parameters(const fo_model_sizes *model);
double fo_model_sizes_embedding_parameters(const fo_model_sizes *model);

/* ---- a step ---- */

/* What is computed again in the backward pass: nothing, the attention's scores (selective), all of a layer (full). */
typedef enum fo_recompute {
    FO_RECOMPUTE_NONE,
    FO_RECOMPUTE_SELECTIVE,
    FO_RECOMPUTE_FULL
} fo_recompute;

typedef struct fo_step_options {
    fo_model_sizes model;
    const char *machine; /* name of a shipped profile, or a file (docs/profiles.md) */
    int tp, dp, pp;      /* ranks = tp * dp * pp; tp innermost, then dp, then pp */
    int interleave;      /* model chunks a pipeline stage has; 1: 1F1B */
    int64_t batch;       /* sequences a step, of all replicas */
    int64_t micro_batch; /* sequences of one replica that pass at a time */
    int64_t context;     /* 0: the model's */
    fo_recompute recompute;
    bool
        sequence_parallel; /* activations between layers are sharded over tp: reduce-scatter and all-gather
                               instead of all-reduce, and what overlap needs */
    bool
        flash_attention; /* scores are never written to memory; else they are, as in Megatron-LM of 2022 */
    fo_dtype dtype, wire;
    bool sharded_optimizer; /* ZeRO-1 over dp */
    bool
        overlap_dp; /* gradients behind the backward pass, parameters behind the next forward pass */
    bool optimizer; /* the step contains AdamW */
    /* Strategy of every operation; "auto" or NULL: what the whole step is fastest with; "megatron": nothing is sliced,
     * but where a column-parallel layer goes backward the gather runs behind dgrad and the sums behind wgrad, as
     * Megatron-LM does it (docs/planner.md). */
    const char *overlap;
    int slow_rank; /* of tp in one group, -1: none; it computes at slow_speed */
    double slow_speed;
} fo_step_options;

void fo_step_defaults(fo_step_options *options);

/* Where time goes above the bound, seconds; none is negative, and they add up to total_s - bound_s (docs/metrics.md,
 * docs/planner.md). */
typedef struct fo_step_losses {
    double imbalance, contention, overhead, latency, slicing, tail;
} fo_step_losses;

/* One kind of operation of a layer, or what is between ranks: "pipeline bubble", "between stages", "table of both ends",
 * "gradients over dp", "parameters over dp"; then "optimizer". Times are those of one execution. count * total_s of all
 * rows add up to the step, count * none_s to none_s of the report. */
typedef struct fo_step_row {
    char name[40];    /* "attention forward" */
    char overlap[32]; /* strategy taken */
    char why[160];
    double count; /* executions a step on the busiest rank; figures are means over them */
    double total_s, none_s, compute_s, transfer_s, bound_s, exposed_s;
    fo_step_losses losses;
} fo_step_row;

enum { FO_STEP_ROWS = 32 };

typedef struct fo_step_report {
    char machine[64];
    double step_s;
    /* The same step with nothing overlapped, over tp and dp; the fastest with data slicing (slice:k). */
    double none_s, slice_s;
    /* These five add up to step_s. compute_s: of the busiest rank, unsliced. tp: all that operations take beyond that
     * (ECT). pp: bubbles and transfers between stages. */
    double compute_s;
    double tp_exposed_s, dp_exposed_s, pp_exposed_s;
    double optimizer_s;
    /* Of the profile's peak, else of its best product. hfu counts recomputed FLOPs too. Above 1 only where what the
     * formula counts and nobody computes, half of attention, is much (docs/metrics.md). */
    double mfu, hfu;
    double flops; /* of the model a step: 6 P + 12 L d T a token, as docs/metrics.md says */
    double tokens_per_s;
    double weight_bytes, gradient_bytes, optimizer_bytes, activation_bytes,
        memory_bytes; /* of a rank */
    bool fits;        /* into the machine's memory, where that is known */
    /* Of a step whose strategies were chosen: "overlap: ...", or "do not overlap: ..." with what it would lose. */
    char why[192];
    fo_step_row rows[FO_STEP_ROWS];
    int row_count;
    int64_t events; /* handled by the simulator */
} fo_step_report;

/* FO_INVALID: a split that can't be, naming the size that forbids it and the nearest that can; else as
 * fo_model_sizes_read and profiles. */
fo_status fo_step_simulate(const fo_step_options *options, fo_step_report *report);

#ifdef __cplusplus
}
#endif
#endif
