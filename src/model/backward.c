/* The backward pass. m->dx is the gradient of the residual stream on the own rows; what branches
 * add to it is added in the order of the code. */
#include <string.h>

#include "base/error.h"
#include "flashoverlap/trace.h"
#include "model/state.h"

static fo_parameter *of_layer(const fo_model *m, int64_t l, fo_model_layer_parameter which)
{
    return fo_model_params_layer(m, l, which);
}

/* The gradient at the end of a branch, behind its dropout, ready to travel: m->dy. */
static void enter_branch(fo_model *m, fo_model_dropout_site site, int64_t layer, int64_t step)
{
    int64_t count = m->shard_rows * m->config.dim, begin = fo_trace_clock();
    const float *from = m->dx;
    if (fo_model_dropout_active(m, step)) {
        memcpy(m->dbranch, m->dx, (size_t)count * sizeof *m->dx);
        fo_model_dropout_apply(m, m->dbranch, site, layer, step);
        from = m->dbranch;
    }
    m->kernel->convert(from, FO_F32, m->dy, m->config.dtype, count);
    fo_trace_local(m->group, "residual backward", begin);
}

/* From the gradient at the start of a branch, m->dbranch, through its LayerNorm to m->dx. */
static void leave_branch(fo_model *m, const fo_model_norm *norm, fo_parameter *weight,
                         fo_parameter *bias)
{
    int64_t begin = fo_trace_clock();
    m->kernel->layernorm_backward(m->dbranch, norm->x, weight->value, norm->mean, norm->rstd,
                                  m->shard_rows, m->config.dim, m->dx, weight->grad, bias->grad);
    fo_trace_local(m->group, "layer norm backward", begin);
}

static fo_status column_backward(fo_model *m, fo_model_plan plan, const void *x, const void *dy,
                                 fo_parameter *w, fo_parameter *bias)
{
    fo_plan_args args = {
        .x = x, .w = w->value, .dy = dy, .dx = m->dbranch, .dw = w->grad, .db = bias->grad};
    return fo_plan_execute(m->plans[plan], &args);
}

static fo_status mlp(fo_model *m, int64_t l, int64_t step)
{
    fo_model_layer *layer = &m->layers[l];
    enter_branch(m, FO_MODEL_DROPOUT_MLP, l, step);
    fo_parameter *w = of_layer(m, l, FO_MODEL_OUT_WEIGHT);
    fo_plan_args args = {.x = layer->act,
                         .w = w->value,
                         .pre = layer->pre,
                         .dy = m->dy,
                         .dx = m->dpre,
                         .dw = w->grad,
                         .db = of_layer(m, l, FO_MODEL_OUT_BIAS)->grad};
    fo_status status = fo_plan_execute(m->plans[FO_MODEL_PLAN_OUT_BACKWARD], &args);
    if (status == FO_OK)
        status =
            column_backward(m, FO_MODEL_PLAN_FC_BACKWARD, layer->ln_2.y, m->dpre,
                            of_layer(m, l, FO_MODEL_FC_WEIGHT), of_layer(m, l, FO_MODEL_FC_BIAS));
    if (status == FO_OK)
        leave_branch(m, &layer->ln_2, of_layer(m, l, FO_MODEL_LN_2_WEIGHT),
                     of_layer(m, l, FO_MODEL_LN_2_BIAS));
    return status;
}

static fo_status attention(fo_model *m, int64_t l, int64_t step)
{
    fo_model_layer *layer = &m->layers[l];
    enter_branch(m, FO_MODEL_DROPOUT_ATTENTION, l, step);
    fo_parameter *w = of_layer(m, l, FO_MODEL_PROJ_WEIGHT);
    fo_plan_args args = {.x = layer->att,
                         .w = w->value,
                         .dy = m->dy,
                         .dx = m->datt,
                         .dw = w->grad,
                         .db = of_layer(m, l, FO_MODEL_PROJ_BIAS)->grad,
                         .qkv = layer->qkv,
                         .lse = layer->lse,
                         .dqkv = m->dqkv,
                         .dropout_key = fo_model_dropout_attention_key(m->config.seed, step, l)};
    fo_status status =
        fo_plan_execute(fo_model_plans_attention(m, true, fo_model_dropout_active(m, step)), &args);
    if (status == FO_OK)
        status =
            column_backward(m, FO_MODEL_PLAN_QKV_BACKWARD, layer->ln_1.y, m->dqkv,
                            of_layer(m, l, FO_MODEL_QKV_WEIGHT), of_layer(m, l, FO_MODEL_QKV_BIAS));
    if (status == FO_OK)
        leave_branch(m, &layer->ln_1, of_layer(m, l, FO_MODEL_LN_1_WEIGHT),
                     of_layer(m, l, FO_MODEL_LN_1_BIAS));
    return status;
}

/* From the loss to the output of the last layer. */
static fo_status head(fo_model *m, float scale)
{
    int64_t begin = fo_trace_clock();
    fo_model_loss_backward(m, scale);
    fo_trace_local(m->group, "loss", begin);
    fo_status status = fo_model_head_backward(m);
    if (status != FO_OK)
        return status;
    memset(m->dx, 0, (size_t)(m->shard_rows * m->config.dim) * sizeof *m->dx);
    leave_branch(m, &m->ln_f, fo_model_params_final(m, 0), fo_model_params_final(m, 1));
    return FO_OK;
}

fo_status fo_model_layer_backward(fo_model *m, int64_t layer, int64_t step)
{
    fo_status status = mlp(m, layer, step);
    return status == FO_OK ? attention(m, layer, step) : status;
}

static fo_status check(const fo_model *m, const int32_t *inputs, const int32_t *targets,
                       int64_t step)
{
    if (!m->forward_done || m->forward_step != step)
        return fo_base_error(FO_INVALID,
                             "model: backward without a forward pass of the same dropout step");
    if (m->summing)
        return fo_base_error(FO_INVALID,
                             "model: backward after the gradients began to be summed, expected "
                             "them to be zeroed before");
    fo_status status = fo_model_forward_check(m, "input", inputs);
    return status == FO_OK ? fo_model_forward_check(m, "target", targets) : status;
}

fo_status fo_model_backward(fo_model *m, const int32_t *inputs, const int32_t *targets,
                            int64_t dropout_step, float scale, bool last)
{
    fo_status status = check(m, inputs, targets, dropout_step);
    if (status != FO_OK)
        return status;
    fo_model_rows_arrange(m, inputs, m->tokens);
    fo_model_rows_arrange(m, targets, m->targets);
    fo_model_lookup_arrange(m, inputs);
    status = head(m, scale);
    if (status == FO_OK && last && m->early && m->by_rows)
        status = fo_model_buckets_reduce(m, FO_MODEL_BUCKET_EMBEDDING);
    for (int64_t l = m->config.layers - 1; status == FO_OK && l >= 0; l--) {
        status = fo_model_layer_backward(m, l, dropout_step);
        if (status == FO_OK && last && m->early)
            status = fo_model_buckets_reduce(m, FO_MODEL_BUCKET_LAYER + (int)l);
    }
    if (status != FO_OK)
        return status;
    fo_model_dropout_apply(m, m->dx, FO_MODEL_DROPOUT_EMBED, 0, dropout_step);
    return fo_model_embedding_backward(m, last);
}
