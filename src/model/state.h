/* What a model holds; shared by the files of this room only.
 *
 * T is config.dtype. Names of sizes: M rows (tokens) in all, Mr rows of the own shard, dl
 * features of the own heads, hl own hidden features, vl own vocabulary entries. */
#ifndef FO_MODEL_STATE_H
#define FO_MODEL_STATE_H

#include "flashoverlap/plan.h"
#include "kernel/kernel.h"
#include "model/model.h"

/* Index of a parameter in the table: the first two, then one set a layer, then the last two. */
typedef enum fo_model_layer_parameter {
    FO_MODEL_LN_1_WEIGHT,
    FO_MODEL_LN_1_BIAS,
    FO_MODEL_QKV_WEIGHT,
    FO_MODEL_QKV_BIAS,
    FO_MODEL_PROJ_WEIGHT,
    FO_MODEL_PROJ_BIAS,
    FO_MODEL_LN_2_WEIGHT,
    FO_MODEL_LN_2_BIAS,
    FO_MODEL_FC_WEIGHT,
    FO_MODEL_FC_BIAS,
    FO_MODEL_OUT_WEIGHT,
    FO_MODEL_OUT_BIAS,
    FO_MODEL_LAYER_PARAMETERS
} fo_model_layer_parameter;
enum { FO_MODEL_WTE, FO_MODEL_WPE, FO_MODEL_FIRST_LAYER };

/* One plan for all layers each: layers differ in their arguments only. */
typedef enum fo_model_plan {
    FO_MODEL_PLAN_EMBED,
    FO_MODEL_PLAN_QKV,
    FO_MODEL_PLAN_ATTENTION,            /* with its out-projection */
    FO_MODEL_PLAN_ATTENTION_EVALUATION, /* without dropout; made where there is dropout */
    FO_MODEL_PLAN_MLP,
    FO_MODEL_PLAN_HEAD,
    FO_MODEL_PLAN_HEAD_BACKWARD,
    FO_MODEL_PLAN_OUT_BACKWARD,
    FO_MODEL_PLAN_FC_BACKWARD,
    FO_MODEL_PLAN_ATTENTION_BACKWARD,
    FO_MODEL_PLAN_ATTENTION_EVALUATION_BACKWARD,
    FO_MODEL_PLAN_QKV_BACKWARD,
    FO_MODEL_PLAN_EMBED_BACKWARD,
    FO_MODEL_PLAN_LOGITS, /* the head for one row, made when first needed */
    FO_MODEL_PLAN_COUNT
} fo_model_plan;

/* What a LayerNorm keeps for backward. */
typedef struct fo_model_norm {
    float *x;           /* [Mr, dim], its input */
    void *y;            /* [Mr, dim] T, its output; travels */
    float *mean, *rstd; /* [Mr] */
} fo_model_norm;

typedef struct fo_model_layer {
    fo_model_norm ln_1, ln_2;
    void *qkv;  /* [M, 3 dl] T */
    void *att;  /* [M, dl] T */
    float *lse; /* [batch, own heads, context] */
    void *pre;  /* [M, hl] T, before the activation */
    void *act;  /* [M, hl] T, after it */
} fo_model_layer;

/* Index of a bucket: the first two, then one a layer. */
enum { FO_MODEL_BUCKET_EMBEDDING, FO_MODEL_BUCKET_REPLICATED, FO_MODEL_BUCKET_LAYER };

/* Parameters side by side as a matrix, the last row padded with zeros. */
typedef struct fo_model_bucket {
    fo_group *group; /* whose ranks hold the same; NULL: this rank alone */
    int64_t rows, own_row, own_rows;
    float *value, *grad;      /* [rows, width]; values travel where there is a group */
    float *m, *v;             /* [own_rows, width] */
    fo_plan *reduce, *gather; /* NULL: nothing travels */
    bool reducing, gathering; /* under way */
    bool complete;            /* gradients of the own shard are the sums */
} fo_model_bucket;

typedef struct fo_model_memory fo_model_memory;

struct fo_model {
    fo_group *world;    /* all ranks */
    fo_group *group;    /* the replica */
    fo_group *replicas; /* ranks of the same place in theirs; NULL: there is one replica */
    const fo_kernel *kernel;
    fo_model_config config;
    char overlap[32];
    int ranks, rank; /* of the replica */
    int replica;
    bool early; /* gradients and parameters travel behind computation; at once otherwise */

    int64_t batch, rows;           /* of the replica; M = batch * context */
    int64_t first_sequence;        /* of the replica, in the whole batch */
    int64_t all_rows;              /* of all replicas */
    int64_t shard_row, shard_rows; /* own rows */
    int head_begin, heads;         /* own heads */
    int head_dim;
    int64_t dl, hl, vl, vocabulary_begin;
    bool by_table; /* embeddings: the table travels instead of the rows */
    bool by_rows;  /* embeddings of several replicas: rows go between all ranks (lookup.c) */
    int64_t longest,
        places;           /* by_rows: places of a rank and of all; otherwise the own rows, and 0 */
    int64_t *place_of;    /* [all_rows], by token */
    int32_t *place_token; /* [places]; -1: empty */
    fo_plan *lookup, *lookup_backward;
    bool rows_travel; /* of dx, to be added to the gradient */

    fo_row_order order; /* which token a row is */
    fo_run *runs;
    int64_t run_count;
    int32_t *tokens, *targets; /* [M], by row */

    fo_model_memory *memory; /* everything allocated, newest first */
    fo_parameter *parameters;
    int parameter_count;
    fo_model_bucket *buckets;
    int bucket_count;
    double *squares;  /* [parameter_count] of gradients in the own shards */
    bool *squared;    /* [parameter_count]: taken since the last sums */
    uint64_t version; /* of the parameters: what plans packed of an older one is stale */
    fo_plan *plans[FO_MODEL_PLAN_COUNT];

    fo_model_layer *layers;
    fo_model_norm ln_f;
    float *
        logits; /* [M, vl]; by_table: [Mr, vocabulary], and the rows of the next three are the own */
    float *stats; /* [M, 3] own, then [ranks, M, 3] */
    float *lse;   /* [M] */

    void *dlogits;            /* [M, vl] T */
    float *dx;                /* [Mr, dim] gradient of the residual stream; travels once */
    float *dbranch;           /* [Mr, dim] gradient at a branch's start or end */
    void *dy;                 /* [Mr, dim] T, travels */
    void *dpre, *datt, *dqkv; /* [M, hl], [M, dl], [M, 3 dl] T */
    float *dembed;            /* [M, dim] unless by_table; by_rows: [places, dim] */
    float *table,
        *table_grad;    /* [vocabulary, dim] when by_table: values, gradient of the own rows */
    float *table_shard; /* [vl, dim] of either; travels */
    fo_gemm *head, *head_dgrad; /* by_table: the head of the own rows */
    fo_wgrad *head_wgrad;
    void *head_packed, *head_dgrad_packed;
    uint64_t head_version; /* of what is packed */

    int64_t forward_step; /* dropout_step of the forward pass that backward belongs to */
    bool forward_done;
    bool summing; /* gradients travel: nothing is added to them until they are zeroed */
};

/* ---- memory.c -------------------------------------------------------------------------------- */

/* Zeroed and aligned, at least one byte; owned by the model. travels: peers read it in place.
 * NULL when there is none, with the error stored. */
void *fo_model_memory_take(fo_model *model, size_t bytes, bool travels);
void fo_model_memory_free(fo_model *model);

/* ---- params.c -------------------------------------------------------------------------------- */

/* Makes model->parameters with their initial values. */
fo_status fo_model_params_create(fo_model *model);
fo_parameter *fo_model_params_layer(const fo_model *model, int64_t layer,
                                    fo_model_layer_parameter which);
/* which: FO_MODEL_WTE, FO_MODEL_WPE */
fo_parameter *fo_model_params_embedding(const fo_model *model, int which);
/* The final LayerNorm's weight (0) and bias (1). */
fo_parameter *fo_model_params_final(const fo_model *model, int which);

/* ---- buckets.c ------------------------------------------------------------------------------- */

/* Memory and plans of the buckets of all parameters, whose shapes are known. */
fo_status fo_model_buckets_create(fo_model *model);
/* Ends what is under way. */
void fo_model_buckets_destroy(fo_model *model);
/* Begins to sum the gradients of a bucket, unless begun. */
fo_status fo_model_buckets_reduce(fo_model *model, int bucket);
/* They are summed. */
fo_status fo_model_buckets_reduced(fo_model *model, int bucket);
/* Its parameters are here. */
fo_status fo_model_buckets_wait(fo_model *model, int bucket);

/* ---- reduce.c -------------------------------------------------------------------------------- */

/* Squares of the next gradient that is complete; arg: the model. False: none is left that is. */
bool fo_model_reduce_piece(void *arg);

/* ---- plans.c --------------------------------------------------------------------------------- */

fo_status fo_model_plans_create(fo_model *model);
fo_status fo_model_plans_create_logits(fo_model *model);
void fo_model_plans_destroy(fo_model *model);
/* The plan of attention and its out-projection, with or without dropout. */
fo_plan *fo_model_plans_attention(const fo_model *model, bool backward, bool dropout);

/* ---- dropout.c ------------------------------------------------------------------------------- */

/* Where values are dropped: the embedding, and the end of either branch of a layer. */
typedef enum fo_model_dropout_site {
    FO_MODEL_DROPOUT_EMBED,
    FO_MODEL_DROPOUT_ATTENTION,
    FO_MODEL_DROPOUT_MLP
} fo_model_dropout_site;

/* Key and stream of the masks: functions of seed, step and place only. Element (row, column) of
 * a site has index row * dim + column with the token counted over all ranks and replicas. */
uint64_t fo_model_dropout_key(uint64_t seed, int64_t step);
uint64_t fo_model_dropout_stream(fo_model_dropout_site site, int64_t layer);
uint64_t fo_model_dropout_attention_key(uint64_t seed, int64_t step, int64_t layer);
bool fo_model_dropout_active(const fo_model *model, int64_t step);
/* Own rows, in place; does nothing when dropout is off. */
void fo_model_dropout_apply(const fo_model *model, float *x, fo_model_dropout_site site,
                            int64_t layer, int64_t step);

/* ---- forward.c, loss.c ----------------------------------------------------------------------- */

/* From tokens to the output of the final LayerNorm, model->ln_f.y. */
fo_status fo_model_forward_trunk(fo_model *model, const int32_t *inputs, int64_t step);
/* FO_INVALID names the first token outside the vocabulary. */
fo_status fo_model_forward_check(const fo_model *model, const char *what, const int32_t *tokens);
/* From model->logits to model->lse and the mean loss, the same on every rank. */
fo_status fo_model_loss_forward(fo_model *model, double *loss);
/* From model->logits and model->lse to model->dlogits. */
void fo_model_loss_backward(fo_model *model, float scale);

/* ---- rows.c ---------------------------------------------------------------------------------- */

fo_row_order fo_model_rows_order(int64_t batch, int ranks);
fo_status fo_model_rows_create(fo_model *model);
/* [batch, context] tokens to rows. */
void fo_model_rows_arrange(const fo_model *model, const int32_t *from, int32_t *to);
/* The row of token sequence * context + position. */
int64_t fo_model_rows_find(const fo_model *model, int64_t token);
/* The next run of own rows, counted from the shard's first; *at begins at 0. False: no more. */
bool fo_model_rows_next(const fo_model *model, int64_t *at, fo_run *run);

/* ---- embedding.c ----------------------------------------------------------------------------- */

/* Tokens and positions of the own rows: x [Mr, dim]. */
fo_status fo_model_embedding_forward(fo_model *model, float *x);
/* From model->dx. By table the gradient of wte stays in table_grad until it is reduced; by rows, when no pass follows,
 * the rows travel until then. */
fo_status fo_model_embedding_backward(fo_model *model, bool last);
/* Adds table_grad, summed over the replica's ranks, to the own entries' gradient. Once after all backward passes; does
 * nothing when not by_table. */
fo_status fo_model_embedding_reduce(fo_model *model);

/* ---- lookup.c -------------------------------------------------------------------------------- */

/* Sets by_rows, longest and places. */
void fo_model_lookup_choose(fo_model *model);
/* These do nothing when not by_rows. */
fo_status fo_model_lookup_create(fo_model *model);
void fo_model_lookup_destroy(fo_model *model);
/* From [batch, context] tokens of all replicas. */
void fo_model_lookup_arrange(fo_model *model, const int32_t *from);
/* Rows of the own tokens from the shards of all ranks: x [longest, dim]. */
fo_status fo_model_lookup_forward(fo_model *model, float *x);
/* Begins to send the rows of model->dx to all ranks. */
fo_status fo_model_lookup_backward(fo_model *model);
/* Adds them to the own shard of the embedding's gradient, which is summed already. */
fo_status fo_model_lookup_reduce(fo_model *model);

/* ---- head.c ---------------------------------------------------------------------------------- */

fo_status fo_model_head_create(fo_model *model);
void fo_model_head_destroy(fo_model *model);
/* From ln_f.y to logits. */
fo_status fo_model_head_forward(fo_model *model);
/* From dlogits to dbranch and the gradient of wte. */
fo_status fo_model_head_backward(fo_model *model);
/* By table: logits [rows, vocabulary] of own rows [row, row + rows), counted from the shard's first. */
fo_status fo_model_head_rows(fo_model *model, int64_t row, int64_t rows, float *logits);

#endif
