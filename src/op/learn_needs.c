/* What has to be known of a plan before it can be simulated. */
#include <math.h>
#include <stdio.h>

#include "base/error.h"
#include "group/group.h"
#include "op/learn.h"

enum {
    LONGEST_CONTEXT = 1024, /* of attention: longer ones take as long a FLOP */
    MESSAGE_BYTES = 1 << 18
};

static const char *partial_word(const fo_plan *plan)
{
    return plan->desc.wire == FO_BF16 ? "gemm:partial:bf16" : "gemm:partial:f32";
}

const char *fo_op_learn_gemm_word(const fo_plan *plan, int slot)
{
    const fo_plan_desc *d = &plan->desc;
    switch (d->op) {
    case FO_COLUMN_FORWARD:
        if (d->act == FO_GELU)
            return d->y_dtype == FO_BF16 ? "gemm:gelu:bf16" : "gemm:gelu:f32";
        return d->y_dtype == FO_BF16 ? "gemm:y:bf16" : "gemm:y:f32";
    case FO_MLP_FORWARD:
        if (slot)
            return partial_word(plan);
        if (d->act == FO_GELU)
            return d->dtype == FO_BF16 ? "gemm:gelu:bf16" : "gemm:gelu:f32";
        return d->dtype == FO_BF16 ? "gemm:y:bf16" : "gemm:y:f32";
    case FO_ROW_BACKWARD:
    case FO_ATTENTION_BACKWARD: return d->act == FO_GELU ? "gemm:gelu_grad" : "gemm:grad";
    default: return partial_word(plan);
    }
}

static bool is_column(fo_op op)
{
    return op == FO_COLUMN_BACKWARD || op == FO_COLUMN_WGRAD;
}

typedef struct list {
    fo_op_fact *needs;
    int count, ranks;
    const fo_plan *plan;
} list;

static void need(list *l, const char *what, int64_t rows, int64_t k, int64_t n)
{
    fo_op_fact *fact = &l->needs[l->count++];
    *fact = (fo_op_fact){.dtype = l->plan->desc.dtype,
                         .ranks = l->ranks,
                         .rows = rows,
                         .k = k,
                         .n = n,
                         .value = NAN};
    snprintf(fact->what, sizeof fact->what, "%s", what);
}

static void need_products(list *l)
{
    const fo_plan_desc *d = &l->plan->desc;
    int64_t tile = l->plan->tile_rows;
    bool backward = fo_schedule_operation_has_wgrad(d->op) || d->op == FO_COLUMN_DGRAD;
    bool mlp = d->op == FO_MLP_FORWARD;
    int64_t k = backward ? d->out : d->in, n = backward ? d->in : mlp ? d->hidden : d->out;
    if (fo_schedule_operation_has_gemm(d->op)) {
        need(l, fo_op_learn_gemm_word(l->plan, 0), tile, k, n);
        need(l, backward ? "pack" : "pack:transposed", 0, k, n);
    }
    if (mlp) {
        need(l, fo_op_learn_gemm_word(l->plan, 1), tile, d->hidden, d->out);
        need(l, "pack:transposed", 0, d->hidden, d->out);
    }
    if (fo_schedule_operation_has_wgrad(d->op) &&
        !is_column(d->op)) /* of the own shard alone there is a sum */
        need(l, "wgrad", l->plan->wgrad_rows, d->in, d->out);
    if (fo_schedule_operation_has_wgrad(d->op))
        need(l, "wgrad:sum", l->plan->wgrad_rows, d->in, d->out);
}

static void need_attention(list *l)
{
    const fo_plan_attention *a = &l->plan->desc.attention;
    bool forward = l->plan->desc.op == FO_ATTENTION_FORWARD;
    int64_t context = a->context < LONGEST_CONTEXT ? a->context : LONGEST_CONTEXT;
    if (!fo_schedule_operation_has_attention(l->plan->desc.op) || !a->heads || !context)
        return;
    const char *what = forward ? "attention" : "attention_grad";
    if (a->dropout > 0)
        what = forward ? "attention:dropout" : "attention_grad:dropout";
    need(l, what, context, a->heads, a->head_dim);
    if (forward)
        need(l, "turn", context, a->heads, a->head_dim);
}

/* What is received is moved. Sums have just been computed when they are sent, rows that are gathered have not, and it
 * matters where they lie. */
static void need_messages(list *l)
{
    fo_pattern pattern = fo_schedule_operation_pattern(l->plan->desc.op);
    bool both = pattern == FO_PATTERN_JOINT || pattern == FO_PATTERN_BLOCK;
    need(l, "single", 0, 0, 0);
    need(l, "single", 0, 0, MESSAGE_BYTES);
    if (both || pattern == FO_PATTERN_REDUCE) {
        need(l, "stream:sums", 0, 0, MESSAGE_BYTES);
        need(l, "beside:sums", 0, 0, MESSAGE_BYTES);
    }
    if (both || pattern != FO_PATTERN_REDUCE) {
        need(l, "stream:rows", 0, 0, MESSAGE_BYTES);
        need(l, "beside:rows", 0, 0, MESSAGE_BYTES);
    }
}

int fo_op_learn_needs(const fo_plan *plan, int ranks, fo_op_fact needs[FO_OP_NEEDS])
{
    list l = {.needs = needs, .ranks = ranks, .plan = plan};
    bool bf16 = plan->desc.wire == FO_BF16;
    need_products(&l);
    need_attention(&l);
    if (fo_schedule_operation_reduces(plan->desc.op)) {
        need(&l, bf16 ? "add:bf16" : "add:f32", plan->tile_rows, 0, plan->width_out);
        need(&l, bf16 ? "pass:bf16" : "pass:f32", plan->tile_rows, 0, plan->width_out);
    }
    need(&l, fo_group_link(plan->group).bytes_per_s > 0 ? "software:link" : "software", 0, 0, 0);
    if (!(fo_group_endpoint(plan->group)->ops->caps & FO_TRANSPORT_VIEW))
        need_messages(&l);
    return l.count;
}
