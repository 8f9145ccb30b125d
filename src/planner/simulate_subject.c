/* What is simulated: subjects of the benchmark as operations. The sizes are those of the rank that has most. */
#include <string.h>

#include "base/error.h"
#include "planner/simulate.h"

static const fo_planner_subject subjects[] = {
    {.name = "row",
     .about = "[rows, ffn/N] . [ffn/N, dim], reduce-scatter",
     .about_backward = "all-gather, dgrad and wgrad of [ffn/N, dim]"},
    {.name = "column",
     .about = "all-gather, [rows, dim] . [dim, ffn/N]",
     .about_backward = "dgrad of [dim, ffn/N], reduce-scatter; all-gather, wgrad",
     .forms_backward = 1 << FO_SCHEDULE_APART},
    {.name = "mlp",
     .about = "all-gather, fc1, GELU, fc2, reduce-scatter",
     .about_backward = "all-gather, gradients of fc2, GELU and fc1, reduce-scatter; all-gather",
     .forms = 1 << FO_SCHEDULE_APART,
     .forms_backward = 1 << FO_SCHEDULE_APART},
    {.name = "attention",
     .about = "attention and its projection, reduce-scatter",
     .about_backward = "all-gather, gradients of the projection and of attention",
     .has_sequences = true,
     .forms = 1 << FO_SCHEDULE_ROW,
     .forms_backward = 1 << FO_SCHEDULE_ROW},
};

const fo_planner_subject *fo_planner_simulate_subject_find(const char *name)
{
    for (size_t i = 0; name && i < sizeof subjects / sizeof *subjects; i++)
        if (!strcmp(subjects[i].name, name))
            return &subjects[i];
    return NULL;
}

int64_t fo_planner_simulate_subject_rows(const fo_simulate_options *o)
{
    return o->rows ? o->rows : o->batch * o->context;
}

int64_t fo_planner_simulate_subject_features(const fo_simulate_options *o,
                                             const fo_planner_subject *subject)
{
    if (o->ffn)
        return o->ffn;
    return strcmp(subject->name, "mlp") ? 2 * o->dim : 4 * o->dim;
}

/* ---- sizes that can be ------------------------------------------------------------------------------ */

static fo_status check_size(const char *option, int64_t value, int64_t most)
{
    if (value >= 1 && value <= most)
        return FO_OK;
    return fo_base_error(FO_INVALID, "--%s is %lld, expected 1 to %lld", option, (long long)value,
                         (long long)most);
}

static fo_status check_heads(const fo_simulate_options *o)
{
    int64_t nearest = (o->dim / o->heads + 1) * o->heads;
    if (o->dim % o->heads)
        return fo_base_error(FO_INVALID,
                             "--dim %lld can't be split into %lld heads, expected a multiple "
                             "of --heads, such as %lld",
                             (long long)o->dim, (long long)o->heads, (long long)nearest);
    return FO_OK;
}

static fo_status check_order(const fo_simulate_options *o)
{
    if (o->order && strcmp(o->order, "straight") != 0 && strcmp(o->order, "balanced") != 0)
        return fo_base_error(FO_INVALID, "--order is '%s', expected straight or balanced",
                             o->order);
    return FO_OK;
}

fo_status fo_planner_simulate_subject_check(const fo_simulate_options *o,
                                            const fo_planner_subject *subject)
{
    const int64_t wide = 1000000000, long_ = 1000000000000;
    fo_status status = check_size("dim", o->dim, wide);
    if (status == FO_OK && o->rows && subject->has_sequences)
        return fo_base_error(FO_INVALID,
                             "--rows doesn't say how long the sequences of %s are, expected "
                             "--batch and --context",
                             subject->name);
    if (status == FO_OK && !o->rows)
        status = check_size("batch", o->batch, wide);
    if (status == FO_OK && !o->rows)
        status = check_size("context", o->context, wide);
    if (status == FO_OK && o->rows)
        status = check_size("rows", o->rows, long_);
    if (status == FO_OK && !o->rows && o->batch > long_ / o->context)
        return fo_base_error(FO_INVALID,
                             "--batch %lld x --context %lld are more than %lld tokens, expected "
                             "--batch of at most %lld",
                             (long long)o->batch, (long long)o->context, (long long)long_,
                             (long long)(long_ / o->context));
    if (status == FO_OK && o->ffn)
        status = check_size("ffn", o->ffn, wide);
    if (status == FO_OK && subject->has_sequences)
        status = check_size("heads", o->heads, 1000000);
    if (status == FO_OK && subject->has_sequences)
        status = check_heads(o);
    return status == FO_OK ? check_order(o) : status;
}

/* ---- operations ------------------------------------------------------------------------------------- */

static fo_plan_desc base_of(const fo_simulate_options *o, fo_op op, const char *overlap)
{
    return (fo_plan_desc){.op = op,
                          .rows = fo_planner_simulate_subject_rows(o),
                          .dtype = o->dtype,
                          .wire = o->wire,
                          .y_dtype = o->dtype,
                          .overlap = overlap};
}

static fo_plan_desc column(const fo_simulate_options *o, fo_op op, const char *overlap,
                           int64_t features, bool gelu)
{
    fo_plan_desc desc = base_of(o, op, overlap);
    desc.in = o->dim;
    desc.out = fo_shard_rows(features, o->ranks, 0);
    desc.act = gelu ? FO_GELU : FO_IDENTITY;
    return desc;
}

static fo_plan_desc row(const fo_simulate_options *o, fo_op op, const char *overlap,
                        int64_t features, bool gelu)
{
    fo_plan_desc desc = base_of(o, op, overlap);
    desc.in = fo_shard_rows(features, o->ranks, 0);
    desc.out = o->dim;
    desc.act = gelu ? FO_GELU : FO_IDENTITY;
    return desc;
}

static fo_plan_desc whole_mlp(const fo_simulate_options *o, const char *overlap, int64_t features)
{
    fo_plan_desc desc = base_of(o, FO_MLP_FORWARD, overlap);
    desc.in = desc.out = o->dim;
    desc.hidden = fo_shard_rows(features, o->ranks, 0);
    desc.act = FO_GELU;
    return desc;
}

static fo_row_order order_of(const fo_simulate_options *o)
{
    if (o->order)
        return strcmp(o->order, "balanced") ? FO_ROWS_STRAIGHT : FO_ROWS_BALANCED;
    return o->batch % o->ranks ? FO_ROWS_BALANCED : FO_ROWS_STRAIGHT;
}

static fo_plan_desc attention(const fo_simulate_options *o, const char *overlap, bool first)
{
    fo_op op = o->backward ? FO_ATTENTION_BACKWARD : FO_ATTENTION_FORWARD;
    fo_plan_desc desc = base_of(o, op, overlap);
    int heads = (int)fo_shard_rows(o->heads, o->ranks, 0), head_dim = (int)(o->dim / o->heads);
    desc.in = (int64_t)heads * head_dim;
    desc.out = o->dim;
    desc.attention = (fo_plan_attention){.batch = o->batch,
                                         .context = o->context,
                                         .heads = heads,
                                         .head_dim = head_dim,
                                         .total_heads = (int)o->heads,
                                         .order = order_of(o),
                                         .first = first};
    return desc;
}

static int mlp_operations(const fo_simulate_options *o, bool apart, const char *overlap,
                          int64_t features, fo_plan_desc descs[FO_PLANNER_PARTS])
{
    int count = 0;
    if (!o->backward && !apart) {
        descs[count++] = whole_mlp(o, overlap, features);
    } else if (!o->backward) {
        descs[count++] = column(o, FO_COLUMN_FORWARD, overlap, features, true);
        descs[count++] = row(o, FO_ROW_FORWARD, overlap, features, false);
    } else {
        descs[count++] = row(o, FO_ROW_BACKWARD, overlap, features, true);
        descs[count++] =
            column(o, apart ? FO_COLUMN_DGRAD : FO_COLUMN_BACKWARD, overlap, features, false);
        if (apart)
            descs[count++] = column(o, FO_COLUMN_WGRAD, overlap, features, false);
    }
    return count;
}

int fo_planner_simulate_subject_operations(const fo_simulate_options *o,
                                           const fo_planner_subject *subject, fo_schedule_form form,
                                           const char *overlap,
                                           fo_plan_desc descs[FO_PLANNER_PARTS])
{
    int64_t features = fo_planner_simulate_subject_features(o, subject);
    bool apart = form == FO_SCHEDULE_APART;
    if (!strcmp(subject->name, "mlp"))
        return mlp_operations(o, apart, overlap, features, descs);
    if (!strcmp(subject->name, "attention")) {
        descs[0] = attention(o, overlap, form == FO_SCHEDULE_ROW);
        return 1;
    }
    if (!strcmp(subject->name, "row")) {
        descs[0] = row(o, o->backward ? FO_ROW_BACKWARD : FO_ROW_FORWARD, overlap, features, false);
        return 1;
    }
    if (apart) {
        descs[0] = column(o, FO_COLUMN_DGRAD, overlap, features, false);
        descs[1] = column(o, FO_COLUMN_WGRAD, overlap, features, false);
        return 2;
    }
    descs[0] =
        column(o, o->backward ? FO_COLUMN_BACKWARD : FO_COLUMN_FORWARD, overlap, features, false);
    return 1;
}
