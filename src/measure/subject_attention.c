/* Attention and its row-parallel projection, by slices of queries; and the backward pass. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "measure/bound.h"
#include "measure/subject.h"

typedef struct attention {
    const fo_measure_setup *setup;
    fo_measure_matrices matrices;
    int64_t rows, mine, dim, width; /* width: features of the own heads */
    int heads, head_offset;
    fo_row_order order;
    float *w, *bias, *lse, *y; /* [dim, width], [dim], [batch, heads, context], [mine, dim] */
    void *qkv, *att;           /* [rows, 3 width], [rows, width] */
    void *dy, *datt, *dqkv;    /* [mine, dim], [rows, width], [rows, 3 width] */
    float *dw, *db;
} attention;

static fo_status check(const fo_bench_options *o, const fo_measure_point *point)
{
    fo_status status = fo_measure_check_size("batch", point->batch);
    if (status == FO_OK)
        status = fo_measure_check_size("context", point->context);
    if (status == FO_OK)
        status = fo_measure_check_size("dim", o->dim);
    if (status == FO_OK)
        status = fo_measure_check_size("heads", o->heads);
    int64_t nearest = status == FO_OK ? (o->dim / o->heads + 1) * o->heads : 0;
    if (status == FO_OK && o->dim % o->heads)
        return fo_base_error(FO_INVALID,
                             "--dim %lld can't be split into %lld heads, expected a multiple "
                             "of --heads, such as %lld",
                             (long long)o->dim, (long long)o->heads, (long long)nearest);
    return status;
}

static fo_row_order order_of(const fo_bench_options *o, const fo_measure_point *point)
{
    if (o->order)
        return strcmp(o->order, "balanced") ? FO_ROWS_STRAIGHT : FO_ROWS_BALANCED;
    return point->batch % o->group.ranks ? FO_ROWS_BALANCED : FO_ROWS_STRAIGHT;
}

/* FLOPs of attention for the queries of `context` positions from the first on: products with the keys and
 * the values before and at each of them; backward multiplies five times where forward does twice. */
static double attention_flops(double width, double context, bool backward)
{
    return (backward ? 10 : 4) * width * context * (context + 1) / 2;
}

/* The first or last unit: the cheapest slice of queries there is, the first ones of a sequence. */
static void sizes(const fo_bench_options *o, const fo_measure_point *point, fo_measure_sizes *sizes)
{
    double rows = (double)point->rows, dim = (double)o->dim, t = (double)fo_dtype_size(o->dtype);
    int64_t head_dim = o->dim / o->heads;
    double width = (double)(fo_shard_rows(o->heads, o->group.ranks, 0) * head_dim);
    double shard = (double)fo_shard_rows(point->rows, o->group.ranks, 0);
    double weight = width * dim, batch = (double)point->batch, context = (double)point->context;
    double tile = (double)fo_measure_bound_unit(point->rows, o->group.ranks, 64);
    if (tile > context)
        tile = context;
    double unit = 2 * tile * weight + attention_flops(width, tile, o->backward);
    if (o->backward)
        unit +=
            2 * weight * (double)fo_measure_bound_unit(point->rows, o->group.ranks, FO_WGRAD_ROWS);
    double flops = (o->backward ? 4 : 2) * rows * weight +
                   batch * attention_flops(width, context, o->backward);
    *sizes = (fo_measure_sizes){
        .flops = flops,
        .edge = unit / flops,
        .memory = weight * (o->backward ? 8 : 4) + rows * width * t * (o->backward ? 8 : 4) +
                  shard * dim * (o->backward ? t : 4),
        .memory_each = weight * t + rows * dim * 4 + context * width * 4 * t,
    };
}

static void make_matrices(attention *a)
{
    fo_measure_matrices *all = &a->matrices;
    const fo_bench_options *o = a->setup->options;
    int64_t travels = a->mine * a->dim, local = a->rows * a->width;
    a->w = fo_measure_matrices_make(all, a->dim * a->width, FO_F32, 1);
    a->bias = fo_measure_matrices_make(all, a->dim, FO_F32, 2);
    a->qkv = fo_measure_matrices_make(all, 3 * local, o->dtype, 3);
    a->att = fo_measure_matrices_make(all, local, o->dtype, 0);
    a->lse = fo_measure_matrices_make(all, a->rows * a->heads, FO_F32, 0);
    a->y = fo_measure_matrices_make(all, travels, FO_F32, 0);
    if (!o->backward)
        return;
    a->dy = fo_measure_matrices_make(all, travels, o->dtype, 4);
    a->datt = fo_measure_matrices_make(all, local, o->dtype, 0);
    a->dqkv = fo_measure_matrices_make(all, 3 * local, o->dtype, 0);
    a->dw = fo_measure_matrices_make(all, a->dim * a->width, FO_F32, 0);
    a->db = fo_measure_matrices_make(all, a->dim, FO_F32, 0);
}

static void close_attention(void *family)
{
    attention *a = family;
    if (a)
        fo_measure_matrices_free(&a->matrices);
    free(a);
}

static fo_plan_desc describe(const attention *a, fo_op op, const char *overlap, bool first)
{
    const fo_bench_options *o = a->setup->options;
    return (fo_plan_desc){
        .op = op,
        .rows = a->rows,
        .in = a->width,
        .out = a->dim,
        .dtype = o->dtype,
        .wire = o->wire,
        .y_dtype = o->dtype,
        .overlap = overlap,
        .attention = {.batch = a->setup->point.batch,
                      .context = a->setup->point.context,
                      .heads = a->heads,
                      .head_dim = (int)(a->dim / o->heads),
                      .head_offset = a->head_offset,
                      .total_heads = (int)o->heads,
                      .order = a->order,
                      .first = first},
    };
}

static fo_plan_args arguments(const attention *a, bool backward)
{
    if (!backward)
        return (fo_plan_args){
            .x = a->qkv, .w = a->w, .bias = a->bias, .y = a->y, .att = a->att, .lse = a->lse};
    return (fo_plan_args){.x = a->att,
                          .w = a->w,
                          .dy = a->dy,
                          .dx = a->datt,
                          .qkv = a->qkv,
                          .lse = a->lse,
                          .dqkv = a->dqkv,
                          .dw = a->dw,
                          .db = a->db};
}

/* Backward reads what forward has written. */
static fo_status run_forward(const attention *a)
{
    fo_plan *plan;
    fo_plan_desc desc = describe(a, FO_ATTENTION_FORWARD, "none", false);
    fo_plan_args args = arguments(a, false);
    fo_status status = fo_plan_create(a->setup->group, &desc, &plan);
    if (status == FO_OK)
        status = fo_plan_execute(plan, &args);
    fo_plan_destroy(plan);
    return status;
}

static fo_status open_attention(const fo_measure_setup *setup, void **family)
{
    attention *a = calloc(1, sizeof *a);
    if (!a)
        return fo_base_error(FO_NO_MEMORY, "no memory for attention");
    const fo_bench_options *o = setup->options;
    int ranks = fo_group_size(setup->group), rank = fo_group_rank(setup->group);
    a->setup = a->matrices.setup = setup;
    a->rows = setup->point.rows;
    a->mine = fo_shard_rows(a->rows, ranks, rank);
    a->dim = o->dim;
    a->heads = (int)fo_shard_rows(o->heads, ranks, rank);
    a->head_offset = (int)fo_shard_begin(o->heads, ranks, rank);
    a->width = a->heads * (o->dim / o->heads);
    a->order = order_of(o, &setup->point);
    make_matrices(a);
    *family = a;
    return a->matrices.failed ? FO_NO_MEMORY : FO_OK;
}

static void forward_outputs(const attention *a, fo_measure_plans *plans)
{
    fo_dtype t = a->setup->options->dtype;
    fo_measure_plans_output(plans, a->y, a->mine * a->dim, FO_F32, false);
    fo_measure_plans_output(plans, a->att, a->rows * a->width, t, false);
    fo_measure_plans_output(plans, a->lse, a->rows * a->heads, FO_F32, false);
}

static void backward_outputs(const attention *a, fo_measure_plans *plans)
{
    fo_dtype t = a->setup->options->dtype;
    fo_measure_plans_output(plans, a->datt, a->rows * a->width, t, false);
    fo_measure_plans_output(plans, a->dqkv, a->rows * 3 * a->width, t, false);
    fo_measure_plans_output(plans, a->dw, a->dim * a->width, FO_F32, true);
    fo_measure_plans_output(plans, a->db, a->dim, FO_F32, true);
}

static fo_status create(void *family, const fo_schedule_spelled *strategy, void **subject)
{
    const attention *a = family;
    bool backward = a->setup->options->backward;
    fo_measure_plans *plans = calloc(1, sizeof *plans);
    if (!plans)
        return fo_base_error(FO_NO_MEMORY, "no memory for a plan");
    fo_plan_desc desc = describe(a, backward ? FO_ATTENTION_BACKWARD : FO_ATTENTION_FORWARD,
                                 strategy->overlap, strategy->form == FO_SCHEDULE_ROW);
    fo_plan_args args = arguments(a, backward);
    fo_status status = fo_measure_plans_add(plans, a->setup->group, &desc, &args);
    if (status != FO_OK) {
        fo_measure_plans_destroy(plans);
        return status;
    }
    if (backward)
        backward_outputs(a, plans);
    else
        forward_outputs(a, plans);
    *subject = plans;
    return FO_OK;
}

/* Collective, once every rank has its matrices. */
static fo_status prepare(void *family)
{
    const attention *a = family;
    return a->setup->options->backward ? run_forward(a) : FO_OK;
}

const fo_measure_family fo_measure_family_attention = {
    .name = "attention",
    .about = "attention and its projection, reduce-scatter",
    .about_backward = "all-gather, gradients of the projection and of attention",
    .has_backward = true,
    .has_sequences = true,
    .forms = 1 << FO_SCHEDULE_ROW,
    .forms_backward = 1 << FO_SCHEDULE_ROW,
    .check = check,
    .sizes = sizes,
    .open = open_attention,
    .prepare = prepare,
    .close = close_attention,
    .create = create,
    .destroy = fo_measure_plans_destroy,
    .execute = fo_measure_plans_execute,
    .execute_local = fo_measure_plans_execute_local,
    .wire_bytes = fo_measure_plans_wire_bytes,
    .exposed_ns = fo_measure_plans_exposed_ns,
    .clear = fo_measure_plans_clear,
    .hash = fo_measure_plans_hash,
    .predict = fo_measure_plans_predict,
    .taken = fo_measure_plans_taken,
};
