/* The plans of a model, and what they report. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "model/state.h"

/* What differs between plans; sizes are this rank's. */
static fo_plan_desc plan_desc(const fo_model *m, fo_model_plan which)
{
    int64_t dim = m->config.dim, rows = m->rows;
    fo_dtype t = m->config.dtype;
    switch (which) {
    case FO_MODEL_PLAN_EMBED: /* float32 on the wire: a sum of one row and zeros, exact for every N */
        return (fo_plan_desc){.op = FO_REDUCE_SCATTER, .name = "embedding", .in = dim, .rows = rows};
    case FO_MODEL_PLAN_QKV:
        return (fo_plan_desc){.op = FO_COLUMN_FORWARD, .name = "attention qkv", .rows = rows,
                              .in = dim, .out = 3 * m->dl, .y_dtype = t};
    case FO_MODEL_PLAN_PROJ:
        return (fo_plan_desc){.op = FO_ROW_FORWARD, .name = "attention projection", .rows = rows,
                              .in = m->dl, .out = dim};
    case FO_MODEL_PLAN_FC:
        return (fo_plan_desc){.op = FO_COLUMN_FORWARD, .name = "mlp in", .rows = rows, .in = dim,
                              .out = m->hl, .y_dtype = t, .act = FO_GELU};
    case FO_MODEL_PLAN_OUT:
        return (fo_plan_desc){.op = FO_ROW_FORWARD, .name = "mlp out", .rows = rows, .in = m->hl,
                              .out = dim};
    case FO_MODEL_PLAN_HEAD:
    case FO_MODEL_PLAN_LOGITS: /* one row a rank: whoever has the row asked for gives it */
        return (fo_plan_desc){.op = FO_COLUMN_FORWARD,
                              .name = which == FO_MODEL_PLAN_HEAD ? "head" : "head of one row",
                              .rows = which == FO_MODEL_PLAN_HEAD ? rows : m->ranks, .in = dim,
                              .out = m->vl, .y_dtype = FO_F32};
    case FO_MODEL_PLAN_HEAD_BACKWARD:
        return (fo_plan_desc){.op = FO_COLUMN_BACKWARD, .name = "head backward", .rows = rows,
                              .in = dim, .out = m->vl};
    case FO_MODEL_PLAN_OUT_BACKWARD:
        return (fo_plan_desc){.op = FO_ROW_BACKWARD, .name = "mlp out backward", .rows = rows,
                              .in = m->hl, .out = dim, .act = FO_GELU};
    case FO_MODEL_PLAN_FC_BACKWARD:
        return (fo_plan_desc){.op = FO_COLUMN_BACKWARD, .name = "mlp in backward", .rows = rows,
                              .in = dim, .out = m->hl};
    case FO_MODEL_PLAN_PROJ_BACKWARD:
        return (fo_plan_desc){.op = FO_ROW_BACKWARD, .name = "attention projection backward",
                              .rows = rows, .in = m->dl, .out = dim};
    case FO_MODEL_PLAN_QKV_BACKWARD:
        return (fo_plan_desc){.op = FO_COLUMN_BACKWARD, .name = "attention qkv backward",
                              .rows = rows, .in = dim, .out = 3 * m->dl};
    case FO_MODEL_PLAN_EMBED_BACKWARD:
        return (fo_plan_desc){.op = FO_ALL_GATHER, .name = "embedding backward", .in = dim,
                              .rows = rows};
    case FO_MODEL_PLAN_SUM:
        return (fo_plan_desc){.op = FO_REDUCE_SCATTER, .name = "replicated gradients",
                              .in = FO_MODEL_SUM_WIDTH, .rows = m->sum_rows};
    default:
        return (fo_plan_desc){.op = FO_ALL_GATHER, .name = "replicated gradients, all",
                              .in = FO_MODEL_SUM_WIDTH, .rows = m->sum_rows};
    }
}

/* The embedding and the sum of replicated gradients are float32 throughout. */
static bool has_weight(fo_op op)
{
    return op != FO_ALL_GATHER && op != FO_REDUCE_SCATTER;
}

static fo_status create(fo_model *model, fo_model_plan which)
{
    fo_plan_desc desc = plan_desc(model, which);
    desc.dtype = has_weight(desc.op) ? model->config.dtype : FO_F32;
    desc.wire = has_weight(desc.op) ? model->config.wire : FO_F32;
    desc.overlap = model->config.overlap;
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

/* ---- reports --------------------------------------------------------------------------------------------- */

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
            used += (size_t)snprintf(text + used, size - used, "%s\n", fo_plan_explain(model->plans[i]));
    return text;
}
