/* The forward pass. */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "flashoverlap/trace.h"
#include "model/state.h"

/* ---- embeddings ------------------------------------------------------------------------------ */

fo_status fo_model_forward_check(const fo_model *model, const char *what, const int32_t *tokens)
{
    for (int64_t i = 0; i < model->all_rows; i++)
        if (tokens[i] < 0 || tokens[i] >= model->config.vocabulary)
            return fo_base_error(FO_INVALID,
                                 "model: %s %" PRId64 " of sequence %" PRId64 " is token %" PRId32
                                 ", expected 0 to %" PRId64,
                                 what, i % model->config.context, i / model->config.context,
                                 tokens[i], model->config.vocabulary - 1);
    return FO_OK;
}

static fo_status embed(fo_model *m, int64_t step)
{
    float *x = m->layers[0].ln_1.x;
    fo_status status = m->by_rows ? FO_OK : fo_model_buckets_wait(m, FO_MODEL_BUCKET_EMBEDDING);
    if (status == FO_OK)
        status = fo_model_buckets_wait(m, FO_MODEL_BUCKET_REPLICATED);
    if (status == FO_OK)
        status = fo_model_embedding_forward(m, x);
    if (status == FO_OK)
        fo_model_dropout_apply(m, x, FO_MODEL_DROPOUT_EMBED, 0, step);
    return status;
}

/* ---- layers ---------------------------------------------------------------------------------- */

static void normalise(fo_model *m, fo_model_norm *norm, const fo_parameter *weight,
                      const fo_parameter *bias)
{
    int64_t begin = fo_trace_clock();
    m->kernel->layernorm_forward(norm->x, weight->value, bias->value, m->shard_rows, m->config.dim,
                                 norm->y, m->config.dtype, norm->mean, norm->rstd);
    fo_trace_local(m->group, "layer norm", begin);
}

static fo_parameter *of_layer(const fo_model *m, int64_t l, fo_model_layer_parameter which)
{
    return fo_model_params_layer(m, l, which);
}

/* y = x + dropped branch */
static void add_branch(fo_model *m, const float *x, float *y, fo_model_dropout_site site,
                       int64_t layer, int64_t step)
{
    int64_t begin = fo_trace_clock();
    fo_model_dropout_apply(m, y, site, layer, step);
    m->kernel->add(x, FO_F32, y, FO_F32, y, FO_F32, m->shard_rows * m->config.dim);
    fo_trace_local(m->group, "residual", begin);
}

static fo_status attention(fo_model *m, int64_t l, int64_t step)
{
    fo_model_layer *layer = &m->layers[l];
    normalise(m, &layer->ln_1, of_layer(m, l, FO_MODEL_LN_1_WEIGHT),
              of_layer(m, l, FO_MODEL_LN_1_BIAS));
    fo_plan_args qkv = {.x = layer->ln_1.y,
                        .w = of_layer(m, l, FO_MODEL_QKV_WEIGHT)->value,
                        .bias = of_layer(m, l, FO_MODEL_QKV_BIAS)->value,
                        .y = layer->qkv};
    fo_plan_args attend = {.x = layer->qkv,
                           .w = of_layer(m, l, FO_MODEL_PROJ_WEIGHT)->value,
                           .bias = of_layer(m, l, FO_MODEL_PROJ_BIAS)->value,
                           .y = layer->ln_2.x,
                           .att = layer->att,
                           .lse = layer->lse,
                           .dropout_key = fo_model_dropout_attention_key(m->config.seed, step, l)};
    fo_status status = fo_plan_execute(m->plans[FO_MODEL_PLAN_QKV], &qkv);
    if (status == FO_OK)
        status =
            fo_plan_execute(fo_model_plans_attention(m, false, fo_model_dropout_active(m, step)),
                            &attend);
    if (status == FO_OK)
        add_branch(m, layer->ln_1.x, layer->ln_2.x, FO_MODEL_DROPOUT_ATTENTION, l, step);
    return status;
}

static fo_status mlp(fo_model *m, int64_t l, int64_t step)
{
    fo_model_layer *layer = &m->layers[l];
    float *next = l + 1 < m->config.layers ? m->layers[l + 1].ln_1.x : m->ln_f.x;
    normalise(m, &layer->ln_2, of_layer(m, l, FO_MODEL_LN_2_WEIGHT),
              of_layer(m, l, FO_MODEL_LN_2_BIAS));
    fo_plan_args args = {.x = layer->ln_2.y,
                         .w = of_layer(m, l, FO_MODEL_FC_WEIGHT)->value,
                         .bias = of_layer(m, l, FO_MODEL_FC_BIAS)->value,
                         .pre = layer->pre,
                         .act = layer->act,
                         .w2 = of_layer(m, l, FO_MODEL_OUT_WEIGHT)->value,
                         .bias2 = of_layer(m, l, FO_MODEL_OUT_BIAS)->value,
                         .y = next};
    fo_status status = fo_plan_execute(m->plans[FO_MODEL_PLAN_MLP], &args);
    if (status == FO_OK)
        add_branch(m, layer->ln_2.x, next, FO_MODEL_DROPOUT_MLP, l, step);
    return status;
}

fo_status fo_model_layer_forward(fo_model *m, int64_t layer, int64_t step)
{
    fo_status status = fo_model_buckets_wait(m, FO_MODEL_BUCKET_LAYER + (int)layer);
    if (status == FO_OK)
        status = attention(m, layer, step);
    return status == FO_OK ? mlp(m, layer, step) : status;
}

fo_status fo_model_forward_trunk(fo_model *m, const int32_t *inputs, int64_t step)
{
    fo_status status = fo_model_forward_check(m, "input", inputs);
    if (status != FO_OK)
        return status;
    fo_model_rows_arrange(m, inputs, m->tokens);
    fo_model_lookup_arrange(m, inputs);
    status = embed(m, step);
    for (int64_t l = 0; status == FO_OK && l < m->config.layers; l++)
        status = fo_model_layer_forward(m, l, step);
    if (status == FO_OK)
        normalise(m, &m->ln_f, fo_model_params_final(m, 0), fo_model_params_final(m, 1));
    return status;
}

/* ---- the whole ------------------------------------------------------------------------------- */

fo_status fo_model_forward(fo_model *m, const int32_t *inputs, const int32_t *targets,
                           int64_t dropout_step, double *loss)
{
    m->forward_done = false;
    fo_status status = fo_model_forward_check(m, "target", targets);
    if (status == FO_OK)
        status = fo_model_forward_trunk(m, inputs, dropout_step);
    if (status == FO_OK)
        status = fo_model_buckets_wait(m, FO_MODEL_BUCKET_EMBEDDING);
    if (status == FO_OK)
        status = fo_model_head_forward(m);
    int64_t begin = fo_trace_clock();
    if (status == FO_OK) {
        fo_model_rows_arrange(m, targets, m->targets);
        status = fo_model_loss_forward(m, loss);
    }
    fo_trace_local(m->group, "loss", begin);
    m->forward_done = status == FO_OK;
    m->forward_step = dropout_step;
    return status;
}
