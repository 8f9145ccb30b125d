/* What an operation asks for: sizes that can be, arguments. */
#include "base/error.h"
#include "op/plan.h"

/* Arguments that must be given. */
enum {
    X = 1 << 0,
    W = 1 << 1,
    Y = 1 << 2,
    DY = 1 << 3,
    DX = 1 << 4,
    DW = 1 << 5,
    W2 = 1 << 6,
    ACT = 1 << 7,
    ATT = 1 << 8,
    QKV = 1 << 9,
    LSE = 1 << 10,
    DQKV = 1 << 11
};

static const int arguments[FO_SCHEDULE_OPERATIONS] = {
    [FO_COLUMN_FORWARD] = X | W | Y,
    [FO_COLUMN_BACKWARD] = X | W | DY | DX | DW,
    [FO_ROW_FORWARD] = X | W | Y,
    [FO_ROW_BACKWARD] = X | W | DY | DX | DW,
    [FO_ALL_GATHER] = X | Y,
    [FO_REDUCE_SCATTER] = Y,
    [FO_MLP_FORWARD] = X | W | W2 | Y | ACT,
    [FO_ATTENTION_FORWARD] = X | W | Y | ATT | LSE,
    [FO_ATTENTION_BACKWARD] = X | W | DY | DX | DW | QKV | LSE | DQKV,
    [FO_COLUMN_DGRAD] = W | DY | DX,
    [FO_COLUMN_WGRAD] = X | DY | DW,
};

/* ---- descriptors ---------------------------------------------------------------------------------- */

static fo_status check_attention(const fo_plan_desc *desc, const char *name)
{
    const fo_plan_attention *a = &desc->attention;
    if (a->batch < 0 || a->context < 0 || a->batch * a->context != desc->rows)
        return fo_base_error(FO_INVALID,
                             "%s: %lld sequences of %lld tokens in %lld rows, expected batch * "
                             "context = rows",
                             name, (long long)a->batch, (long long)a->context,
                             (long long)desc->rows);
    if (a->heads < 0 || a->head_dim < 1 || (int64_t)a->heads * a->head_dim != desc->in)
        return fo_base_error(FO_INVALID,
                             "%s: %d heads of %d features for in = %lld, expected heads * head_dim "
                             "= in",
                             name, a->heads, a->head_dim, (long long)desc->in);
    if (a->head_offset < 0 || a->head_offset + a->heads > a->total_heads)
        return fo_base_error(FO_INVALID,
                             "%s: heads %d to %d of %d, expected own heads to be among all", name,
                             a->head_offset, a->head_offset + a->heads, a->total_heads);
    if (!(a->dropout >= 0 && a->dropout < 1))
        return fo_base_error(FO_INVALID, "%s: dropout %g, expected 0 <= p < 1", name,
                             (double)a->dropout);
    if ((unsigned)a->order > FO_ROWS_BALANCED)
        return fo_base_error(FO_INVALID,
                             "%s: row order %d is unknown, expected one of fo_row_order", name,
                             (int)a->order);
    return FO_OK;
}

fo_status fo_op_describe_check(const fo_plan_desc *desc, const fo_kernel *kernel, const char *name)
{
    if ((unsigned)desc->op >= FO_SCHEDULE_OPERATIONS)
        return fo_base_error(FO_INVALID, "plan: operation %d is unknown, expected one of fo_op",
                             (int)desc->op);
    if (desc->rows < 0 || desc->in < 0 || desc->out < 0 || desc->hidden < 0)
        return fo_base_error(
            FO_INVALID,
            "%s: sizes are rows %lld, in %lld, out %lld, hidden %lld, expected 0 or more", name,
            (long long)desc->rows, (long long)desc->in, (long long)desc->out,
            (long long)desc->hidden);
    if (desc->act == FO_GELU && !fo_schedule_operation_has_activation(desc->op))
        return fo_base_error(FO_INVALID,
                             "%s: an activation goes with column forward, row backward and mlp "
                             "forward only",
                             name);
    if ((fo_schedule_operation_has_gemm(desc->op) || fo_schedule_operation_has_wgrad(desc->op)) &&
        !kernel->supports(desc->dtype))
        return fo_base_error(FO_UNSUPPORTED, "%s: kernel '%s' can't compute in %s", name,
                             kernel->name, fo_dtype_name(desc->dtype));
    return fo_schedule_operation_has_attention(desc->op) ? check_attention(desc, name) : FO_OK;
}

/* ---- arguments ------------------------------------------------------------------------------------- */

static bool has_activation(const fo_plan *plan)
{
    return plan->desc.act == FO_GELU;
}

/* The name of the first argument that is missing, NULL: none. */
static const char *missing_argument(const fo_plan *plan, const fo_plan_args *a)
{
    const fo_plan_desc *d = &plan->desc;
    bool mlp = d->op == FO_MLP_FORWARD;
    bool weight = (mlp ? d->hidden : d->out) > 0 && d->in > 0;
    bool weight2 = d->hidden > 0 && d->out > 0;
    int needed = arguments[d->op];
    const struct {
        int bit;
        bool given;
        const char *name;
    } all[] = {{X, a->x, "x"},
               {W, a->w || !weight, "w"},
               {Y, a->y, "y"},
               {DY, a->dy, "dy"},
               {DX, a->dx, "dx"},
               {DW, a->dw || !weight, "dw"},
               {W2, a->w2 || !weight2, "w2"},
               {ACT, a->act || !d->hidden, "act"},
               {ATT, a->att, "att"},
               {QKV, a->qkv, "qkv"},
               {LSE, a->lse, "lse"},
               {DQKV, a->dqkv, "dqkv"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if ((needed & all[i].bit) && !all[i].given)
            return all[i].name;
    if (d->op == FO_REDUCE_SCATTER && !a->x && !a->produce)
        return "x";
    int64_t width = mlp ? d->hidden : d->op == FO_COLUMN_FORWARD ? d->out : d->in; /* of pre */
    return has_activation(plan) && width && !a->pre ? "pre" : NULL;
}

fo_status fo_op_describe_check_args(const fo_plan *plan, const fo_plan_args *args)
{
    const char *name = missing_argument(plan, args);
    if (!name)
        return FO_OK;
    return fo_base_error(FO_INVALID,
                         "%s: argument `%s` is NULL, expected memory as plan.h lists it",
                         plan->name, name);
}

void *fo_op_describe_external(const fo_plan *plan, const fo_plan_args *args, fo_buffer_role role)
{
    fo_op op = plan->desc.op;
    const void *input = args->x;
    switch (role) {
    case FO_BUFFER_SHARD:
        if (op == FO_ROW_BACKWARD || op == FO_ATTENTION_BACKWARD)
            input = args->dy;
        return (void *)(uintptr_t)input;
    case FO_BUFFER_FULL:
        if (op == FO_COLUMN_BACKWARD || op == FO_COLUMN_DGRAD)
            input = args->dy;
        return (void *)(uintptr_t)input;
    case FO_BUFFER_HIDDEN: return args->act;
    case FO_BUFFER_OUTPUT: return arguments[op] & DX ? args->dx : args->y;
    default: return NULL;
    }
}
