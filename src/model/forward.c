/* The forward pass. */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "model/state.h"

/* ---- embeddings ------------------------------------------------------------------------------ */

fo_status fo_model_forward_check(const fo_model *model, const char *what, const int32_t *tokens)
{
    for (int64_t i = 0; i < model->rows; i++)
        if (tokens[i] < 0 || tokens[i] >= model->config.vocabulary)
            return fo_base_error(FO_INVALID,
                                 "model: %s %" PRId64 " of sequence %" PRId64 " is token %" PRId32
                                 ", expected 0 to %" PRId64,
                                 what, i % model->config.context, i / model->config.context,
                                 tokens[i], model->config.vocabulary - 1);
    return FO_OK;
}

typedef struct embedding {
    const fo_model *model;
    const int32_t *tokens;
} embedding;

/* Rows of the tokens whose vocabulary entries are here, zeros for the others. */
static void produce(void *arg, int64_t row, int64_t rows, float *out)
{
    const embedding *e = arg;
    const fo_model *m = e->model;
    size_t dim = (size_t)m->config.dim;
    const float *wte = fo_model_params_embedding(m, FO_MODEL_WTE)->value;
    for (int64_t i = 0; i < rows; i++, out += dim) {
        int64_t entry = e->tokens[row + i] - m->vocabulary_begin;
        if (entry >= 0 && entry < m->vl)
            memcpy(out, wte + (size_t)entry * dim, dim * sizeof *out);
        else
            memset(out, 0, dim * sizeof *out);
    }
}

void fo_model_forward_runs(fo_model *model, fo_model_run *run)
{
    int64_t context = model->config.context, end = model->shard_rows;
    for (int64_t row = 0, count; row < end; row += count) {
        int64_t position = (model->shard_row + row) % context;
        count = context - position < end - row ? context - position : end - row;
        run(model, position, row, count);
    }
}

static void add_positions(fo_model *m, int64_t position, int64_t row, int64_t count)
{
    int64_t dim = m->config.dim;
    float *x = m->layers[0].ln_1.x + row * dim;
    const float *wpe = fo_model_params_embedding(m, FO_MODEL_WPE)->value + position * dim;
    m->kernel->add(x, FO_F32, wpe, FO_F32, x, FO_F32, count * dim);
}

static fo_status embed(fo_model *m, const int32_t *tokens, int64_t step)
{
    embedding e = {.model = m, .tokens = tokens};
    float *x = m->layers[0].ln_1.x;
    fo_plan_args args = {.produce = produce, .produce_arg = &e, .y = x};
    fo_status status = fo_plan_execute(m->plans[FO_MODEL_PLAN_EMBED], &args);
    if (status != FO_OK)
        return status;
    fo_model_forward_runs(m, add_positions);
    fo_model_dropout_apply(m, x, FO_MODEL_DROPOUT_EMBED, 0, step);
    return FO_OK;
}

/* ---- layers ---------------------------------------------------------------------------------- */

static void normalise(fo_model *m, fo_model_norm *norm, const fo_parameter *weight,
                      const fo_parameter *bias)
{
    m->kernel->layernorm_forward(norm->x, weight->value, bias->value, m->shard_rows, m->config.dim,
                                 norm->y, m->config.dtype, norm->mean, norm->rstd);
}

static fo_status column(fo_model *m, fo_model_plan plan, const void *x, const fo_parameter *w,
                        const fo_parameter *bias, void *y, void *pre)
{
    fo_plan_args args = {.x = x, .w = w->value, .bias = bias->value, .y = y, .pre = pre};
    return fo_plan_execute(m->plans[plan], &args);
}

/* y = x + dropped branch */
static fo_status row(fo_model *m, fo_model_plan plan, const void *branch, const fo_parameter *w,
                     const fo_parameter *bias, const float *x, float *y, fo_model_dropout_site site,
                     int64_t layer, int64_t step)
{
    fo_plan_args args = {.x = branch, .w = w->value, .bias = bias->value, .y = y};
    fo_status status = fo_plan_execute(m->plans[plan], &args);
    if (status != FO_OK)
        return status;
    fo_model_dropout_apply(m, y, site, layer, step);
    m->kernel->add(x, FO_F32, y, FO_F32, y, FO_F32, m->shard_rows * m->config.dim);
    return FO_OK;
}

static fo_parameter *of_layer(const fo_model *m, int64_t l, fo_model_layer_parameter which)
{
    return fo_model_params_layer(m, l, which);
}

static fo_status attention(fo_model *m, int64_t l, int64_t step)
{
    fo_model_layer *layer = &m->layers[l];
    bool drop = fo_model_dropout_active(m, step);
    normalise(m, &layer->ln_1, of_layer(m, l, FO_MODEL_LN_1_WEIGHT),
              of_layer(m, l, FO_MODEL_LN_1_BIAS));
    fo_status status =
        column(m, FO_MODEL_PLAN_QKV, layer->ln_1.y, of_layer(m, l, FO_MODEL_QKV_WEIGHT),
               of_layer(m, l, FO_MODEL_QKV_BIAS), layer->qkv, NULL);
    if (status == FO_OK && m->heads)
        status =
            m->kernel->attention_forward(drop ? m->attention : m->attention_evaluation, layer->qkv,
                                         fo_model_dropout_attention_key(m->config.seed, step, l),
                                         layer->att, layer->lse);
    if (status == FO_OK)
        status = row(m, FO_MODEL_PLAN_PROJ, layer->att, of_layer(m, l, FO_MODEL_PROJ_WEIGHT),
                     of_layer(m, l, FO_MODEL_PROJ_BIAS), layer->ln_1.x, layer->ln_2.x,
                     FO_MODEL_DROPOUT_ATTENTION, l, step);
    return status;
}

static fo_status mlp(fo_model *m, int64_t l, int64_t step)
{
    fo_model_layer *layer = &m->layers[l];
    float *next = l + 1 < m->config.layers ? m->layers[l + 1].ln_1.x : m->ln_f.x;
    normalise(m, &layer->ln_2, of_layer(m, l, FO_MODEL_LN_2_WEIGHT),
              of_layer(m, l, FO_MODEL_LN_2_BIAS));
    fo_status status =
        column(m, FO_MODEL_PLAN_FC, layer->ln_2.y, of_layer(m, l, FO_MODEL_FC_WEIGHT),
               of_layer(m, l, FO_MODEL_FC_BIAS), layer->act, layer->pre);
    if (status == FO_OK)
        status = row(m, FO_MODEL_PLAN_OUT, layer->act, of_layer(m, l, FO_MODEL_OUT_WEIGHT),
                     of_layer(m, l, FO_MODEL_OUT_BIAS), layer->ln_2.x, next, FO_MODEL_DROPOUT_MLP,
                     l, step);
    return status;
}

fo_status fo_model_forward_trunk(fo_model *m, const int32_t *inputs, int64_t step)
{
    fo_status status = fo_model_forward_check(m, "input", inputs);
    if (status == FO_OK)
        status = embed(m, inputs, step);
    for (int64_t l = 0; status == FO_OK && l < m->config.layers; l++) {
        status = attention(m, l, step);
        if (status == FO_OK)
            status = mlp(m, l, step);
    }
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
    fo_plan_args args = {.x = m->ln_f.y,
                         .w = fo_model_params_embedding(m, FO_MODEL_WTE)->value,
                         .y = m->logits,
                         .w_version = m->version};
    if (status == FO_OK)
        status = fo_plan_execute(m->plans[FO_MODEL_PLAN_HEAD], &args);
    if (status == FO_OK)
        status = fo_model_loss_forward(m, targets, loss);
    m->forward_done = status == FO_OK;
    m->forward_step = dropout_step;
    return status;
}
