/* GPT-2 with Megatron-style tensor and sequence parallelism, and data parallelism with sharded optimizer state
 * beside it, on the public plan API.
 *
 * The ranks are dp replicas of tp ranks each, neighbours: rank = replica * tp + place. A replica takes the sequences
 * [fo_shard_begin(batch, dp, replica), ...) of a batch; what follows, and "rank" in it, is within a replica. N = tp.
 *
 * Rows are tokens, M = batch * context of them, straight or balanced (flashoverlap/rows.h): straight where
 * N divides the batch. Rank r owns the rows of its shard between layers (residual stream, LayerNorm, dropout), all M rows of its heads, of its
 * hidden features and of its vocabulary entries inside layers. Heads, hidden features and vocabulary
 * entries are split by fo_shard_begin, so nothing needs to divide and a rank may own none.
 *
 * Per layer: x += drop(row(attention(column(ln_1(x))))); x += drop(row(gelu(column(ln_2(x))))).
 *
 * Parameters lie in buckets, matrices of rows of FO_MODEL_BUCKET_WIDTH floats: the embedding, all that is replicated
 * over tensor-parallel ranks, and what is split of each layer. A bucket is sharded over the ranks that hold the same
 * of it: over the replicas, or, if replicated, over all ranks. Each rank gets the sums of gradients of its shard,
 * keeps the optimizer's state for it and updates it; then the others get it. Gradients travel behind the backward
 * pass, parameters behind the updates and the next forward pass; whether they do leaves the bits alone.
 */
#ifndef FO_MODEL_MODEL_H
#define FO_MODEL_MODEL_H

#include "flashoverlap/group.h"

/* A strategy of one operation of a layer, by the name that plan files give it ("mlp up backward"). */
typedef struct fo_model_overlap {
    const char *operation, *overlap;
} fo_model_overlap;

typedef struct fo_model_config {
    int64_t layers, heads, dim, context, vocabulary;
    fo_dtype dtype, wire;
    float dropout;
    const char *overlap;
    const fo_model_overlap
        *overlaps; /* instead of `overlap`, for operations that are named; borrowed */
    int overlap_count;
    uint64_t seed; /* initial weights and dropout */
    int tp,
        dp; /* tensor-parallel ranks of a replica, replicas; 0: what the other leaves, both 0: all ranks, one */
} fo_model_config;

/* How a parameter is split over ranks. The full tensor is what files hold (Hugging Face layout). */
typedef enum fo_sharding {
    FO_REPLICATED,    /* every rank has it whole; gradients are summed over ranks */
    FO_VOCABULARY,    /* wte: rows split by fo_shard_begin(vocabulary) */
    FO_HEADS_COLUMN,  /* attn.c_attn: the rank's heads out of each third (q, k, v) */
    FO_HEADS_ROW,     /* attn.c_proj weight: input features of the rank's heads */
    FO_HIDDEN_COLUMN, /* mlp.c_fc: hidden features */
    FO_HIDDEN_ROW     /* mlp.c_proj weight: hidden features as input */
} fo_sharding;

/* One parameter of this rank. The local tensor is [rows, cols] row-major with rows = output features
 * (Linear layout [out, in]); vectors have rows = 1. */
typedef struct fo_parameter {
    char name[64]; /* Hugging Face GPT-2 name */
    fo_sharding sharding;
    bool transposed; /* the file holds [in, out] (Conv1D) where memory holds [out, in] */
    bool decay;      /* weight decay applies */
    int64_t full_rows, full_cols; /* unsharded, in memory layout */
    int64_t rows, cols;           /* this rank's */
    float *value, *grad;          /* [rows, cols] float32; owned by the model */
    int64_t count;                /* rows * cols */
    int bucket;
    int64_t offset; /* floats from the bucket's begin */
    float init_std; /* normal; 0: constant */
    float init_constant;
} fo_parameter;

enum { FO_MODEL_BUCKET_WIDTH = 256 };

/* What this rank updates of a parameter: elements [begin, begin + count) of its local tensor. */
typedef struct fo_model_piece {
    const fo_parameter *parameter;
    int64_t begin, count;
    float *value, *m, *v;
    const float *grad; /* the sum over all ranks, after fo_model_reduce_gradients */
} fo_model_piece;

/* Whether an operation of a layer, the embedding or the head has that name. */
bool fo_model_plans_known(const char *operation);

typedef struct fo_model fo_model;

/* Fills in tp and dp for `ranks` ranks. FO_INVALID: they do not fit. */
fo_status fo_model_config_split(fo_model_config *config, int ranks);
/* Checks a configuration for `ranks` ranks. FO_INVALID: names the size and the nearest that works. */
fo_status fo_model_config_check(const fo_model_config *config);

/* Collective. Allocates parameters (initialised: normal(0, 0.02), residual projections
 * 0.02/sqrt(2*layers), biases 0, norms 1; each value a function of seed, name and position in the full
 * tensor only), activations for the own ones of `batch` sequences and the plans. `group`: all ranks. FO_INVALID: tp
 * and dp do not fit, or there are fewer sequences than replicas. */
fo_status fo_model_create(fo_group *group, const fo_model_config *config, int64_t batch,
                          fo_model **model);
void fo_model_destroy(fo_model *model);

int fo_model_parameter_count(const fo_model *model);
fo_parameter *fo_model_parameter(fo_model *model, int index);
/* The groups of this rank: its replica, and which one that is. */
fo_group *fo_model_group(const fo_model *model);
int fo_model_replica(const fo_model *model);
/* Bytes of optimizer state of this rank. */
int64_t fo_model_optimizer_bytes(const fo_model *model);

/* Buckets, in the order in which a forward pass needs them. */
int fo_model_bucket_count(const fo_model *model);
/* The next piece of the own shard of a bucket; *at begins at 0. False: no more. */
bool fo_model_bucket_piece(const fo_model *model, int bucket, int *at, fo_model_piece *piece);
/* The piece of a parameter in the own shard of its bucket; count may be 0. */
void fo_model_own_piece(const fo_model *model, const fo_parameter *parameter,
                        fo_model_piece *piece);
/* Collective, for every bucket in order. The own shard has been updated: it goes to the other ranks, which have it
 * when they next need it. */
fo_status fo_model_bucket_updated(fo_model *model, int bucket);
/* Collective. All updated parameters are here: before values are read or written from outside of the model. */
fo_status fo_model_settle(fo_model *model);

/* Weights that plans have packed are packed again from here on. Needed only by who writes values
 * through a pointer kept from before a forward pass: fo_model_parameter, fo_model_zero_gradients and
 * fo_model_reduce_gradients do it too. */
void fo_model_parameters_changed(fo_model *model);
/* Collective. What the simulator says of all executions so far of what is within a replica, over the link there is
 * now (fo_plan_predict): seconds, and of them exposed; NaN: not known. Transfers between replicas, in the background,
 * are not in it. */
fo_status fo_model_predict(fo_model *model, bool measure, double *total_s, double *exposed_s);
/* Parameters of the whole model (each once), with embeddings. */
int64_t fo_model_size(const fo_model *model);
/* Model FLOPs of one trained token: 6 * P + 12 * L * d * T, P without position embeddings
 * (docs/metrics.md). */
double fo_model_flops_per_token(const fo_model_config *config);

/* Maps a rectangle of the full tensor to the local one and back: the full row (memory layout) of local
 * row `row`, and full column of local column `col`. Local rows/cols are piecewise contiguous. */
int64_t fo_model_full_row(const fo_parameter *parameter, const fo_model_config *config, int ranks,
                          int rank, int64_t row);
int64_t fo_model_full_col(const fo_parameter *parameter, const fo_model_config *config, int ranks,
                          int rank, int64_t col);
/* Shape of a parameter's share on any rank (rows, cols). */
void fo_model_local_shape(const fo_parameter *parameter, const fo_model_config *config, int ranks,
                          int rank, int64_t *rows, int64_t *cols);

/* Collective. *loss: the cross-entropy of the replica's tokens of inputs/targets ([batch, context], all of them, the
 * same on every rank) divided by the number of all tokens: the same on the ranks of a replica, and the mean is its
 * sum over replicas. dropout_step: counter for dropout masks; < 0: no dropout (evaluation). */
fo_status fo_model_forward(fo_model *model, const int32_t *inputs, const int32_t *targets,
                           int64_t dropout_step, double *loss);
/* Collective. After fo_model_forward with the same inputs and targets: adds the gradient of
 * scale * loss to every grad. Gradients are partial until fo_model_reduce_gradients. last: none follows before that,
 * so that they may begin to travel. */
fo_status fo_model_backward(fo_model *model, const int32_t *inputs, const int32_t *targets,
                            int64_t dropout_step, float scale, bool last);
/* One layer of these passes, for measuring: from its input layers[l] to the next one's, and back. Collective.
 * After a forward and a backward pass of the whole model with the same dropout_step. */
fo_status fo_model_layer_forward(fo_model *model, int64_t layer, int64_t dropout_step);
fo_status fo_model_layer_backward(fo_model *model, int64_t layer, int64_t dropout_step);
/* Collective. Sums what is partial over ranks, once, and returns the global norm in which each parameter counts once:
 * added in double in a fixed order of pieces and ranks. Of `grad` only the own pieces are the sums then. */
fo_status fo_model_reduce_gradients(fo_model *model, double *norm);
void fo_model_zero_gradients(fo_model *model);

/* Collective. Logits of the last position for sampling: the whole vocabulary [vocabulary] on every
 * rank. `tokens`: [batch, context]; row: which row's logits. FO_UNSUPPORTED with several replicas. */
fo_status fo_model_logits(fo_model *model, const int32_t *tokens, int64_t row, float *logits);

/* Sums over all plans since the last reset, nanoseconds of this rank. With several replicas the part of gradients
 * and parameters that travel between them, replicated ones included, is given besides. */
typedef struct fo_model_report {
    int64_t compute_ns, exposed_ns, total_ns, sent_bytes;
    int64_t data_exposed_ns, data_sent_bytes;
} fo_model_report;
void fo_model_report_get(const fo_model *model, fo_model_report *report);
void fo_model_report_reset(fo_model *model);
/* Adds how long plans have waited, since the last reset, for each of all ranks. */
void fo_model_waits(const fo_model *model, double *seconds_by_rank);
/* Explanation of every plan, one a line, malloc'ed. */
char *fo_model_explain(const fo_model *model);

#endif
