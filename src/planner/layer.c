/* Lists of what a rank does in a layer. Bytes are those of kernels that read their inputs and write their outputs
 * once; e: bytes of an element. */
#include "planner/layer.h"

#include <string.h>

#include "planner/model.h"

typedef struct list {
    const fo_planner_split *s;
    const fo_sim_device *device;
    fo_planner_items *items;
} list;

static fo_planner_item *add(list *l, const char *row, fo_planner_kind kind)
{
    fo_planner_item *item = &l->items->item[l->items->count++];
    memset(item, 0, sizeof *item);
    item->row = row;
    item->kind = kind;
    return item;
}

static void pass(list *l, const char *row, double bytes)
{
    add(l, row, FO_PLANNER_PASS)->bytes = bytes;
}

static void product(list *l, const char *row, fo_sim_work work, int64_t k, int64_t n)
{
    fo_planner_item *item = add(l, row, FO_PLANNER_PRODUCT);
    item->work = work;
    item->batch = 1;
    item->rows = (double)l->s->rows;
    item->k = (double)k;
    item->n = (double)n;
}

static fo_plan_desc *operation(list *l, const char *row, fo_op op, int64_t in, int64_t out)
{
    const fo_step_options *o = &l->s->options;
    fo_planner_item *item = add(l, row, FO_PLANNER_OPERATION);
    item->desc = (fo_plan_desc){.op = op,
                                .rows = l->s->rows,
                                .in = in,
                                .out = out,
                                .dtype = o->dtype,
                                .wire = o->wire,
                                .y_dtype = o->dtype};
    bool stated = l->s->overlap == FO_PLANNER_STATED;
    bool megatron = l->s->overlap == FO_PLANNER_MEGATRON;
    item->desc.overlap = stated ? o->overlap : megatron ? "none" : NULL;
    return &item->desc;
}

/* Operations of activations that every rank has whole: nothing can be overlapped (planner.h). */
static void plain(list *l, const char *row, fo_op op, int64_t in, int64_t out)
{
    operation(l, row, op, in, out)->overlap = "none";
    l->items->item[l->items->count - 1].plain = true;
}

static bool sharded(const list *l)
{
    return l->s->options.sequence_parallel || l->s->options.tp == 1;
}

/* A device whose kernels do what follows a product while it is in cache, as this library's do. */
static bool fused(const list *l)
{
    return l->device->epilogue_bytes_per_s > 0;
}

static const char *const layer_sums = "weight gradients"; /* the row of their additions */

/* ---- linear layers ------------------------------------------------------------------------------------ */

static void column_forward(list *l, const char *row, int64_t in, int64_t out)
{
    if (sharded(l))
        operation(l, row, FO_COLUMN_FORWARD, in, out);
    else
        product(l, row, FO_SIM_GEMM, in, out);
}

/* Products into 16 bits are what curves are measured on. A weight gradient is added to a float32 sum instead, in its
 * own epilogue: what is read and written beyond that takes its time beside the product, because all tiles of a wave
 * end together. Where products were measured as they are, this is in them. */
static void weight_gradient(list *l, const char *row, int64_t in, int64_t out)
{
    if (!l->device->entry_count)
        pass(l, row, (8 - l->s->element) * (double)in * (double)out);
}

static void column_sums(list *l, const char *row, double rows, int64_t out)
{
    if (l->s->options.model.biases)
        pass(l, row, l->s->element * rows * (double)out);
}

static void column_backward(list *l, const char *row, const char *sums, int64_t in, int64_t out)
{
    bool megatron = l->s->overlap == FO_PLANNER_MEGATRON && l->s->options.tp > 1;
    if (sharded(l) || megatron) {
        operation(l, row, FO_COLUMN_BACKWARD, in, out);
        fo_planner_item *item = &l->items->item[l->items->count - 1];
        item->async = megatron;
        item->whole = !sharded(l);
    } else {
        plain(l, row, FO_COLUMN_DGRAD, in, out);
        plain(l, row, FO_ALL_GATHER, in, 0);
        product(l, row, FO_SIM_WGRAD, in, out);
        column_sums(l, row, (double)l->s->rows, out);
    }
    weight_gradient(l, sums, in, out);
}

static void row_forward(list *l, const char *row, int64_t in, int64_t out)
{
    if (sharded(l)) {
        operation(l, row, FO_ROW_FORWARD, in, out);
        return;
    }
    plain(l, row, FO_ROW_FORWARD, in, out);
    plain(l, row, FO_ALL_GATHER, out, 0);
}

/* `act`: of the layer before, whose gradient a fused kernel takes too. */
static void row_backward(list *l, const char *row, int64_t in, int64_t out, fo_activation act)
{
    if (sharded(l)) {
        operation(l, row, FO_ROW_BACKWARD, in, out)->act = act;
    } else {
        product(l, row, FO_SIM_GEMM, out, in);
        product(l, row, FO_SIM_WGRAD, in, out);
        column_sums(l, row, (double)l->s->rows, out);
    }
    weight_gradient(l, layer_sums, in, out);
}

/* ---- attention --------------------------------------------------------------------------------------- */

static void attention_of(const list *l, fo_plan_desc *desc)
{
    const fo_planner_split *s = l->s;
    bool cut = s->options.micro_batch % s->options.tp != 0; /* shards cut sequences */
    desc->attention = (fo_plan_attention){.batch = s->options.micro_batch,
                                          .context = s->context,
                                          .heads = (int)s->heads,
                                          .head_dim = (int)s->options.model.head_dim,
                                          .total_heads = (int)s->options.model.heads,
                                          .order = cut ? FO_ROWS_BALANCED : FO_ROWS_STRAIGHT};
}

/* One product of every sequence and head; scores are square and computed whole. */
static void batched(list *l, const char *row, bool into_scores)
{
    const fo_planner_split *s = l->s;
    double heads = (double)(s->options.micro_batch * s->heads), context = (double)s->context;
    double dim = (double)s->options.model.head_dim;
    fo_planner_item *item = add(l, row, FO_PLANNER_PRODUCT);
    item->work = FO_SIM_GEMM;
    item->batch = heads;
    item->rows = context;
    item->k = into_scores ? dim : context;
    item->n = into_scores ? context : dim;
    item->bytes = s->element * heads * (context * context + 2 * context * dim);
}

static double scores(const list *l)
{
    double context = (double)l->s->context;
    return (double)(l->s->options.micro_batch * l->s->heads) * context * context;
}

/* Scores written to memory: scale, mask and softmax in one kernel, dropout in another; the heads' outputs put beside
 * each other. */
static void scores_forward(list *l)
{
    double e = l->s->element;
    batched(l, "scores forward", true);
    pass(l, "scores forward", scores(l) * 2 * e);
    if (l->s->dropout)
        pass(l, "scores forward", scores(l) * (2 * e + 1));
    batched(l, "scores forward", false);
    pass(l, "scores forward", 2 * e * (double)l->s->rows * (double)l->s->attention);
}

/* Four products; softmax reads its output and the gradient. */
static void scores_backward(list *l)
{
    double e = l->s->element;
    pass(l, "scores backward", 2 * e * (double)l->s->rows * (double)l->s->attention);
    batched(l, "scores backward", true);
    batched(l, "scores backward", false);
    if (l->s->dropout)
        pass(l, "scores backward", scores(l) * (2 * e + 1));
    pass(l, "scores backward", scores(l) * 3 * e);
    batched(l, "scores backward", false);
    batched(l, "scores backward", false);
}

static void rotate(list *l, const char *row)
{
    const fo_planner_split *s = l->s;
    double features = (double)(s->attention + s->kv_heads * s->options.model.head_dim);
    if (!s->options.model.positions) /* rotary positions: queries and keys */
        pass(l, row, 2 * s->element * (double)s->rows * features);
}

static void attention_forward(list *l)
{
    int64_t dim = l->s->options.model.dim;
    rotate(l, l->s->options.flash_attention ? "attention forward" : "scores forward");
    if (l->s->options.flash_attention && sharded(l)) {
        attention_of(l,
                     operation(l, "attention forward", FO_ATTENTION_FORWARD, l->s->attention, dim));
        return;
    }
    if (l->s->options.flash_attention) {
        fo_planner_item *item = add(l, "attention forward", FO_PLANNER_PRODUCT);
        item->work = FO_SIM_ATTENTION;
        item->batch = (double)l->s->options.micro_batch;
        item->rows = (double)l->s->context;
        item->k = (double)l->s->heads;
        item->n = (double)l->s->options.model.head_dim;
    } else {
        scores_forward(l);
    }
    row_forward(l, l->s->options.flash_attention ? "attention forward" : "projection forward",
                l->s->attention, dim);
}

static void attention_backward(list *l)
{
    int64_t dim = l->s->options.model.dim;
    rotate(l, l->s->options.flash_attention ? "attention backward" : "scores backward");
    if (l->s->options.flash_attention && sharded(l)) {
        attention_of(l, operation(l, "attention backward", FO_ATTENTION_BACKWARD, l->s->attention,
                                  dim));
        weight_gradient(l, layer_sums, l->s->attention, dim);
        return;
    }
    row_backward(l, l->s->options.flash_attention ? "attention backward" : "projection backward",
                 l->s->attention, dim, FO_IDENTITY);
    if (l->s->options.flash_attention) {
        fo_planner_item *item = add(l, "attention backward", FO_PLANNER_PRODUCT);
        item->work = FO_SIM_ATTENTION_GRAD;
        item->batch = (double)l->s->options.micro_batch;
        item->rows = (double)l->s->context;
        item->k = (double)l->s->heads;
        item->n = (double)l->s->options.model.head_dim;
    } else {
        scores_backward(l);
    }
}

/* ---- MLP --------------------------------------------------------------------------------------------- */

/* Reads its inputs, writes its output: e or 2 e, and e. */
static void activation(list *l, const char *row, double elements)
{
    pass(l, row, elements * l->s->element * (double)l->s->rows * (double)l->s->ffn);
}

static void mlp_forward(list *l)
{
    int64_t dim = l->s->options.model.dim, ffn = l->s->ffn;
    if (l->s->options.model.gated) {
        column_forward(l, "mlp up forward", dim, 2 * ffn);
        activation(l, "activation forward", 3);
        row_forward(l, "mlp down forward", ffn, dim);
        return;
    }
    if (!fused(l))
        activation(l, "activation forward", 2);
    if (sharded(l)) {
        fo_plan_desc *desc = operation(l, "mlp forward", FO_MLP_FORWARD, dim, dim);
        desc->hidden = ffn;
        desc->act = fused(l) ? FO_GELU : FO_IDENTITY;
        return;
    }
    column_forward(l, "mlp forward", dim, ffn);
    row_forward(l, "mlp forward", ffn, dim);
}

static void mlp_backward(list *l)
{
    int64_t dim = l->s->options.model.dim, ffn = l->s->ffn;
    bool gated = l->s->options.model.gated, apart = gated || !fused(l);
    row_backward(l, "mlp down backward", ffn, dim, apart ? FO_IDENTITY : FO_GELU);
    if (apart)
        activation(l, "activation backward", gated ? 5 : 3);
    column_backward(l, "mlp up backward", layer_sums, dim, gated ? 2 * ffn : ffn);
}

/* ---- norms and residuals --------------------------------------------------------------------------------- */

/* Bytes of an element of the residual stream in one half of a layer. Forward: the norm reads and writes, the sum with
 * the residual reads twice and writes, dropout leaves a mask. */
static void stream_forward(list *l)
{
    double e = l->s->element, dropout = l->s->dropout ? 1 : 0;
    pass(l, "norms, residuals forward",
         2 * l->s->norm_rows * (double)l->s->options.model.dim * (5 * e + dropout));
}

/* Backward: the norm reads its input and the gradient twice, once for its parameters, and writes; the two branches
 * are added; dropout reads the gradient and the mask and writes. */
static void stream_backward(list *l)
{
    double e = l->s->element, dropout = l->s->dropout ? 2 * e + 1 : 0;
    pass(l, "norms, residuals backward",
         2 * l->s->norm_rows * (double)l->s->options.model.dim * (8 * e + dropout));
}

/* ---- layers -------------------------------------------------------------------------------------------- */

static void layer_forward(list *l)
{
    column_forward(l, "qkv forward", l->s->options.model.dim, l->s->qkv);
    attention_forward(l);
    mlp_forward(l);
    stream_forward(l);
}

static void layer_again(list *l)
{
    if (l->s->options.recompute == FO_RECOMPUTE_FULL)
        layer_forward(l);
    else if (l->s->options.recompute == FO_RECOMPUTE_SELECTIVE && !l->s->options.flash_attention)
        scores_forward(l);
}

static void layer_backward(list *l)
{
    mlp_backward(l);
    attention_backward(l);
    column_backward(l, "qkv backward", layer_sums, l->s->options.model.dim, l->s->qkv);
    stream_backward(l);
}

/* ---- embedding and head -------------------------------------------------------------------------------- */

static double stream(const list *l)
{
    return (double)l->s->rows * (double)l->s->options.model.dim;
}

/* Every rank looks all tokens up in its part of the table; the parts are summed. */
static void embedding_forward(list *l)
{
    double e = l->s->element, positions = l->s->options.model.positions ? 3 * e : 0;
    int64_t dim = l->s->options.model.dim;
    pass(l, "embedding forward", stream(l) * (2 * e + positions));
    if (l->s->dropout)
        pass(l, "embedding forward", l->s->norm_rows * (double)dim * (2 * e + 1));
    if (l->s->options.tp == 1)
        return;
    if (sharded(l)) {
        operation(l, "embedding forward", FO_REDUCE_SCATTER, dim, 0);
    } else {
        plain(l, "embedding forward", FO_REDUCE_SCATTER, dim, 0);
        plain(l, "embedding forward", FO_ALL_GATHER, dim, 0);
    }
}

static void embedding_backward(list *l)
{
    double e = l->s->element, positions = l->s->options.model.positions ? e + 8 : 0;
    if (sharded(l) && l->s->options.tp > 1)
        operation(l, "embedding backward", FO_ALL_GATHER, l->s->options.model.dim, 0);
    pass(l, "embedding backward", stream(l) * (e + 8 + positions));
}

/* Logits in float32: a copy, their maximum, their difference to it, exponentials, the sum, the quotient. */
static void head_forward(list *l)
{
    double e = l->s->element, logits = (double)l->s->rows * (double)l->s->vocabulary;
    pass(l, "loss", l->s->norm_rows * (double)l->s->options.model.dim * 2 * e);
    column_forward(l, "head forward", l->s->options.model.dim, l->s->vocabulary);
    pass(l, "loss", logits * (e + 36));
}

static void head_backward(list *l)
{
    double e = l->s->element, logits = (double)l->s->rows * (double)l->s->vocabulary;
    pass(l, "loss", logits * (e + 12));
    column_backward(l, "head backward", "head backward", l->s->options.model.dim, l->s->vocabulary);
    pass(l, "loss", l->s->norm_rows * (double)l->s->options.model.dim * 5 * e);
}

void fo_planner_layer_items(const fo_planner_split *split, const fo_sim_device *device,
                            fo_planner_part part, fo_planner_items *items)
{
    static void (*const fill[FO_PLANNER_PARTS])(
        list *) = {[FO_PLANNER_FORWARD] = layer_forward,
                   [FO_PLANNER_AGAIN] = layer_again,
                   [FO_PLANNER_BACKWARD] = layer_backward,
                   [FO_PLANNER_EMBEDDING_FORWARD] = embedding_forward,
                   [FO_PLANNER_EMBEDDING_BACKWARD] = embedding_backward,
                   [FO_PLANNER_HEAD_FORWARD] = head_forward,
                   [FO_PLANNER_HEAD_BACKWARD] = head_backward};
    list l = {split, device, items};
    items->count = 0;
    fill[part](&l);
}

/* bf16: gradients are unscaled and checked (8), measured (4) and clipped (8), AdamW reads gradient, weight and two
 * moments and writes three (28), the bf16 weight is made (6), the gradient cleared (4). f32: there is no other weight,
 * and nothing to unscale. */
double fo_planner_layer_optimizer_bytes(const fo_planner_split *split)
{
    return split->options.dtype == FO_BF16 ? 58 : 44;
}
