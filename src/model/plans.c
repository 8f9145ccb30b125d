/* The plans of a model, and what they report. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "model/state.h"

typedef enum plan_rows { TOKENS, EMBEDDING, RANKS /* one row a rank */ } plan_rows;
typedef enum plan_width { NOTHING, DIM, OWN_QKV, OWN_HEADS, OWN_HIDDEN, OWN_VOCABULARY } plan_width;

/* T: computes in the model's type, partial sums travel in its wire type; otherwise float32
 * throughout. */
typedef struct plan_row {
    const char *name;
    const char *planned; /* what plan files call it; NULL: they do not */
    fo_op op;
    plan_rows rows;
    plan_width in, out, hidden;
    bool gelu, t, y_f32, dropout;
} plan_row;

static const plan_row table[FO_MODEL_PLAN_COUNT] = {
    /* float32 on the wire: a sum of one row and zeros, exact for every N. By table: see table_row. */
    [FO_MODEL_PLAN_EMBED] = {.name = "embedding",
                             .planned = "embedding forward",
                             .op = FO_REDUCE_SCATTER,
                             .in = DIM},
    [FO_MODEL_PLAN_QKV] = {.name = "attention qkv",
                           .planned = "qkv forward",
                           .op = FO_COLUMN_FORWARD,
                           .in = DIM,
                           .out = OWN_QKV,
                           .t = true},
    [FO_MODEL_PLAN_ATTENTION] = {.name = "attention",
                                 .planned = "attention forward",
                                 .op = FO_ATTENTION_FORWARD,
                                 .in = OWN_HEADS,
                                 .out = DIM,
                                 .t = true,
                                 .dropout = true},
    [FO_MODEL_PLAN_ATTENTION_EVALUATION] = {.name = "attention, evaluating",
                                            .planned = "attention forward",
                                            .op = FO_ATTENTION_FORWARD,
                                            .in = OWN_HEADS,
                                            .out = DIM,
                                            .t = true},
    [FO_MODEL_PLAN_MLP] = {.name = "mlp",
                           .planned = "mlp forward",
                           .op = FO_MLP_FORWARD,
                           .in = DIM,
                           .out = DIM,
                           .hidden = OWN_HIDDEN,
                           .gelu = true,
                           .t = true},
    [FO_MODEL_PLAN_HEAD] = {.name = "head",
                            .planned = "head forward",
                            .op = FO_COLUMN_FORWARD,
                            .in = DIM,
                            .out = OWN_VOCABULARY,
                            .t = true,
                            .y_f32 = true},
    [FO_MODEL_PLAN_HEAD_BACKWARD] = {.name = "head backward",
                                     .planned = "head backward",
                                     .op = FO_COLUMN_BACKWARD,
                                     .in = DIM,
                                     .out = OWN_VOCABULARY,
                                     .t = true},
    [FO_MODEL_PLAN_OUT_BACKWARD] = {.name = "mlp out backward",
                                    .planned = "mlp down backward",
                                    .op = FO_ROW_BACKWARD,
                                    .in = OWN_HIDDEN,
                                    .out = DIM,
                                    .gelu = true,
                                    .t = true},
    [FO_MODEL_PLAN_FC_BACKWARD] = {.name = "mlp in backward",
                                   .planned = "mlp up backward",
                                   .op = FO_COLUMN_BACKWARD,
                                   .in = DIM,
                                   .out = OWN_HIDDEN,
                                   .t = true},
    [FO_MODEL_PLAN_ATTENTION_BACKWARD] = {.name = "attention backward",
                                          .planned = "attention backward",
                                          .op = FO_ATTENTION_BACKWARD,
                                          .in = OWN_HEADS,
                                          .out = DIM,
                                          .t = true,
                                          .dropout = true},
    [FO_MODEL_PLAN_ATTENTION_EVALUATION_BACKWARD] = {.name = "attention backward, evaluating",
                                                     .planned = "attention backward",
                                                     .op = FO_ATTENTION_BACKWARD,
                                                     .in = OWN_HEADS,
                                                     .out = DIM,
                                                     .t = true},
    [FO_MODEL_PLAN_QKV_BACKWARD] = {.name = "attention qkv backward",
                                    .planned = "qkv backward",
                                    .op = FO_COLUMN_BACKWARD,
                                    .in = DIM,
                                    .out = OWN_QKV,
                                    .t = true},
    [FO_MODEL_PLAN_EMBED_BACKWARD] = {.name = "embedding backward",
                                      .planned = "embedding backward",
                                      .op = FO_ALL_GATHER,
                                      .in = DIM},
    /* whoever has the row asked for gives it */
    [FO_MODEL_PLAN_LOGITS] = {.name = "head of one row",
                              .planned = "head forward",
                              .op = FO_COLUMN_FORWARD,
                              .rows = RANKS,
                              .in = DIM,
                              .out = OWN_VOCABULARY,
                              .t = true,
                              .y_f32 = true},
};

/* Where the embedding table travels instead of the rows, its gather is the forward pass. */
static plan_row table_row(const fo_model *model, fo_model_plan which)
{
    plan_row row = table[which];
    if (model->by_table && which == FO_MODEL_PLAN_EMBED)
        row.op = FO_ALL_GATHER, row.rows = EMBEDDING;
    if (model->by_table && which == FO_MODEL_PLAN_EMBED_BACKWARD)
        row.op = FO_REDUCE_SCATTER, row.rows = EMBEDDING;
    return row;
}

static int64_t rows_of(const fo_model *model, plan_rows rows)
{
    switch (rows) {
    case TOKENS: return model->rows;
    case EMBEDDING: return model->config.vocabulary;
    case RANKS: return model->ranks;
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
    }
    return 0;
}

bool fo_model_plans_known(const char *operation)
{
    for (int i = 0; i < FO_MODEL_PLAN_COUNT; i++)
        if (table[i].planned && strcmp(table[i].planned, operation) == 0)
            return true;
    return false;
}

static const char *overlap_of(const fo_model_config *config, const char *planned)
{
    for (int i = 0; planned && i < config->overlap_count; i++)
        if (strcmp(config->overlaps[i].operation, planned) == 0)
            return config->overlaps[i].overlap;
    return config->overlap;
}

static fo_status create(fo_model *model, fo_model_plan which)
{
    plan_row row = table_row(model, which);
    fo_plan_desc desc = {
        .op = row.op,
        .rows = rows_of(model, row.rows),
        .in = width_of(model, row.in),
        .out = width_of(model, row.out),
        .hidden = width_of(model, row.hidden),
        .dtype = row.t ? model->config.dtype : FO_F32,
        .wire = row.t ? model->config.wire : FO_F32,
        .y_dtype = row.y_f32 ? FO_F32 : model->config.dtype,
        .act = row.gelu ? FO_GELU : FO_IDENTITY,
        .overlap = overlap_of(&model->config, row.planned),
        .name = row.name,
    };
    if (row.op == FO_ATTENTION_FORWARD || row.op == FO_ATTENTION_BACKWARD)
        desc.attention = (fo_plan_attention){.batch = model->batch,
                                             .context = model->config.context,
                                             .first_sequence = model->first_sequence,
                                             .heads = model->heads,
                                             .head_dim = model->head_dim,
                                             .head_offset = model->head_begin,
                                             .total_heads = (int)model->config.heads,
                                             .dropout = row.dropout ? model->config.dropout : 0,
                                             .order = model->order};
    return fo_plan_create(model->group, &desc, &model->plans[which]);
}

/* Without dropout evaluating is what training is; by table the head communicates nothing. */
static bool wanted(const fo_model *model, int which)
{
    bool evaluation = which == FO_MODEL_PLAN_ATTENTION_EVALUATION ||
                      which == FO_MODEL_PLAN_ATTENTION_EVALUATION_BACKWARD;
    bool head = which == FO_MODEL_PLAN_HEAD || which == FO_MODEL_PLAN_HEAD_BACKWARD;
    if (head && model->by_table)
        return false;
    return which != FO_MODEL_PLAN_LOGITS && (!evaluation || model->config.dropout > 0);
}

fo_status fo_model_plans_create(fo_model *model)
{
    fo_status status = FO_OK;
    for (int i = 0; status == FO_OK && i < FO_MODEL_PLAN_COUNT; i++)
        if (wanted(model, i))
            status = create(model, (fo_model_plan)i);
    return status;
}

fo_plan *fo_model_plans_attention(const fo_model *model, bool backward, bool dropout)
{
    fo_model_plan training = backward ? FO_MODEL_PLAN_ATTENTION_BACKWARD : FO_MODEL_PLAN_ATTENTION;
    fo_plan *evaluating = model->plans[training + 1];
    return dropout || !evaluating ? model->plans[training] : evaluating;
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

/* The next plan there is, those of the buckets last; *at begins at 0. NULL: no more. */
static fo_plan *next_plan(const fo_model *model, int *at, bool *bucket)
{
    int last = FO_MODEL_PLAN_COUNT + 2 * model->bucket_count + 2;
    while (*at < last) {
        int i = (*at)++, b = i - FO_MODEL_PLAN_COUNT;
        fo_plan *plan;
        *bucket = b >= 0;
        if (b < 0)
            plan = model->plans[i];
        else if (b >= 2 * model->bucket_count)
            plan = b % 2 ? model->lookup_backward : model->lookup;
        else
            plan = b % 2 ? model->buckets[b / 2].gather : model->buckets[b / 2].reduce;
        if (plan)
            return plan;
    }
    return NULL;
}

void fo_model_report_get(const fo_model *model, fo_model_report *report)
{
    fo_plan *plan;
    bool bucket;
    *report = (fo_model_report){0};
    for (int at = 0; (plan = next_plan(model, &at, &bucket));) {
        fo_report one;
        fo_plan_report(plan, &one);
        report->compute_ns += one.compute_ns;
        report->exposed_ns += one.exposed_ns;
        report->total_ns += one.total_ns;
        report->sent_bytes += one.sent_bytes;
        if (bucket && model->replicas) {
            report->data_exposed_ns += one.exposed_ns;
            report->data_sent_bytes += one.sent_bytes;
        }
    }
}

fo_status fo_model_predict(fo_model *model, bool measure, double *total_s, double *exposed_s)
{
    fo_plan *plan;
    bool bucket;
    fo_status status = FO_OK;
    *total_s = *exposed_s = 0;
    for (int at = 0; status == FO_OK && (plan = next_plan(model, &at, &bucket));) {
        fo_prediction one;
        fo_report report;
        fo_plan_report(plan, &report);
        if (bucket || !report.executions)
            continue;
        status = fo_plan_predict(plan, measure, &one);
        *total_s += (double)report.executions * one.total_s;
        *exposed_s += (double)report.executions * one.exposed_s;
    }
    return status;
}

void fo_model_report_reset(fo_model *model)
{
    fo_plan *plan;
    bool bucket;
    for (int at = 0; (plan = next_plan(model, &at, &bucket));)
        fo_plan_report_reset(plan);
}

char *fo_model_explain(const fo_model *model)
{
    size_t size = 1, used = 0;
    fo_plan *plan;
    bool bucket;
    for (int at = 0; (plan = next_plan(model, &at, &bucket));)
        size += strlen(fo_plan_explain(plan)) + 1;
    char *text = calloc(1, size);
    for (int at = 0; text && (plan = next_plan(model, &at, &bucket));)
        used += (size_t)snprintf(text + used, size - used, "%s\n", fo_plan_explain(plan));
    return text;
}
