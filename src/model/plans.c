/* The plans of a model, and what they report. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "model/state.h"

typedef enum plan_rows { TOKENS, RANKS /* one row a rank */, SUM_ROWS } plan_rows;
typedef enum plan_width {
    NOTHING,
    DIM,
    OWN_QKV,
    OWN_HEADS,
    OWN_HIDDEN,
    OWN_VOCABULARY,
    SUM_WIDTH
} plan_width;

/* T: computes in the model's type, partial sums travel in its wire type; otherwise float32
 * throughout. */
static const struct {
    const char *name;
    fo_op op;
    plan_rows rows;
    plan_width in, out;
    bool gelu, t, y_f32;
} table[FO_MODEL_PLAN_COUNT] = {
    /* float32 on the wire: a sum of one row and zeros, exact for every N */
    [FO_MODEL_PLAN_EMBED] = {"embedding", FO_REDUCE_SCATTER, TOKENS, DIM, NOTHING, 0, 0, 0},
    [FO_MODEL_PLAN_QKV] = {"attention qkv", FO_COLUMN_FORWARD, TOKENS, DIM, OWN_QKV, 0, 1, 0},
    [FO_MODEL_PLAN_PROJ] = {"attention projection", FO_ROW_FORWARD, TOKENS, OWN_HEADS, DIM, 0, 1,
                            0},
    [FO_MODEL_PLAN_FC] = {"mlp in", FO_COLUMN_FORWARD, TOKENS, DIM, OWN_HIDDEN, 1, 1, 0},
    [FO_MODEL_PLAN_OUT] = {"mlp out", FO_ROW_FORWARD, TOKENS, OWN_HIDDEN, DIM, 0, 1, 0},
    [FO_MODEL_PLAN_HEAD] = {"head", FO_COLUMN_FORWARD, TOKENS, DIM, OWN_VOCABULARY, 0, 1, 1},
    [FO_MODEL_PLAN_HEAD_BACKWARD] = {"head backward", FO_COLUMN_BACKWARD, TOKENS, DIM,
                                     OWN_VOCABULARY, 0, 1, 0},
    [FO_MODEL_PLAN_OUT_BACKWARD] = {"mlp out backward", FO_ROW_BACKWARD, TOKENS, OWN_HIDDEN, DIM, 1,
                                    1, 0},
    [FO_MODEL_PLAN_FC_BACKWARD] = {"mlp in backward", FO_COLUMN_BACKWARD, TOKENS, DIM, OWN_HIDDEN,
                                   0, 1, 0},
    [FO_MODEL_PLAN_PROJ_BACKWARD] = {"attention projection backward", FO_ROW_BACKWARD, TOKENS,
                                     OWN_HEADS, DIM, 0, 1, 0},
    [FO_MODEL_PLAN_QKV_BACKWARD] = {"attention qkv backward", FO_COLUMN_BACKWARD, TOKENS, DIM,
                                    OWN_QKV, 0, 1, 0},
    [FO_MODEL_PLAN_EMBED_BACKWARD] = {"embedding backward", FO_ALL_GATHER, TOKENS, DIM, NOTHING, 0,
                                      0, 0},
    [FO_MODEL_PLAN_SUM] = {"replicated gradients", FO_REDUCE_SCATTER, SUM_ROWS, SUM_WIDTH, NOTHING,
                           0, 0, 0},
    [FO_MODEL_PLAN_SUM_ALL] = {"replicated gradients, all", FO_ALL_GATHER, SUM_ROWS, SUM_WIDTH,
                               NOTHING, 0, 0, 0},
    /* whoever has the row asked for gives it */
    [FO_MODEL_PLAN_LOGITS] = {"head of one row", FO_COLUMN_FORWARD, RANKS, DIM, OWN_VOCABULARY, 0,
                              1, 1},
};

static int64_t rows_of(const fo_model *model, plan_rows rows)
{
    switch (rows) {
    case TOKENS: return model->rows;
    case RANKS: return model->ranks;
    case SUM_ROWS: return model->sum_rows;
    }
    return 0;
}

static int64_t width_of(const fo_model *model, plan_width width)
{
    switch (width) {
    case NOTHING: return 0;
    case DIM: return model->config.dim;
    case OWN_QKV: return 3 * model->dl;
    case OWN_HEADS: return model->dl;
    case OWN_HIDDEN: return model->hl;
    case OWN_VOCABULARY: return model->vl;
    case SUM_WIDTH: return FO_MODEL_SUM_WIDTH;
    }
    return 0;
}

static fo_status create(fo_model *model, fo_model_plan which)
{
    fo_plan_desc desc = {
        .op = table[which].op,
        .rows = rows_of(model, table[which].rows),
        .in = width_of(model, table[which].in),
        .out = width_of(model, table[which].out),
        .dtype = table[which].t ? model->config.dtype : FO_F32,
        .wire = table[which].t ? model->config.wire : FO_F32,
        .y_dtype = table[which].y_f32 ? FO_F32 : model->config.dtype,
        .act = table[which].gelu ? FO_GELU : FO_IDENTITY,
        .overlap = model->config.overlap,
        .name = table[which].name,
    };
    return fo_plan_create(model->group, &desc, &model->plans[which]);
}

fo_status fo_model_plans_create(fo_model *model)
{
    fo_status status = FO_OK;
    for (int i = 0; status == FO_OK && i < FO_MODEL_PLAN_COUNT; i++)
        if (i != FO_MODEL_PLAN_LOGITS)
            status = create(model, (fo_model_plan)i);
    return status;
}

fo_status fo_model_plans_create_logits(fo_model *model)
{
    return model->plans[FO_MODEL_PLAN_LOGITS] ? FO_OK : create(model, FO_MODEL_PLAN_LOGITS);
}

void fo_model_plans_destroy(fo_model *model)
{
    for (int i = 0; i < FO_MODEL_PLAN_COUNT; i++)
        fo_plan_destroy(model->plans[i]);
}

/* ---- reports --------------------------------------------------------------------------------- */

void fo_model_report_get(const fo_model *model, fo_model_report *report)
{
    *report = (fo_model_report){0};
    for (int i = 0; i < FO_MODEL_PLAN_COUNT; i++) {
        if (!model->plans[i])
            continue;
        fo_report one;
        fo_plan_report(model->plans[i], &one);
        report->compute_ns += one.compute_ns;
        report->exposed_ns += one.exposed_ns;
        report->total_ns += one.total_ns;
        report->sent_bytes += one.sent_bytes;
    }
}

void fo_model_report_reset(fo_model *model)
{
    for (int i = 0; i < FO_MODEL_PLAN_COUNT; i++)
        if (model->plans[i])
            fo_plan_report_reset(model->plans[i]);
}

char *fo_model_explain(const fo_model *model)
{
    size_t size = 1, used = 0;
    for (int i = 0; i < FO_MODEL_PLAN_COUNT; i++)
        size += model->plans[i] ? strlen(fo_plan_explain(model->plans[i])) + 1 : 0;
    char *text = calloc(1, size);
    for (int i = 0; text && i < FO_MODEL_PLAN_COUNT; i++)
        if (model->plans[i])
            used += (size_t)snprintf(text + used, size - used, "%s\n",
                                     fo_plan_explain(model->plans[i]));
    return text;
}
