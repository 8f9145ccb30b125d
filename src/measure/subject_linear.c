/* One parallel linear layer: row, column. */
#include <stdlib.h>

#include "base/error.h"
#include "measure/bound.h"
#include "measure/subject.h"

typedef struct linear {
    const fo_measure_setup *setup;
    bool column, backward;
    fo_measure_matrices matrices;
    fo_plan_desc desc;
    fo_plan_args args;
    int64_t result_count;
    fo_dtype result_dtype;
} linear;

static int64_t features(const fo_bench_options *o)
{
    return o->ffn ? o->ffn : 2 * o->dim;
}

static fo_status check(const fo_bench_options *o, const fo_measure_point *point)
{
    fo_status status = fo_measure_check_size("rows", point->rows);
    if (status == FO_OK)
        status = fo_measure_check_size("dim", o->dim);
    return status == FO_OK ? fo_measure_check_size("ffn", features(o)) : status;
}

/* A gather or a reduction alone has an edge: its last, or first, unit. The joint backward pass of a column
 * layer has none: its link gathers first and reduces last. In the backward pass of a row layer what
 * arrived last is multiplied twice: as a tile, and in a block of the weight gradient. */
static double edge_rows(const fo_bench_options *o, int64_t rows, bool column)
{
    double tile = (double)fo_measure_bound_unit(rows, o->group.ranks, 64);
    double block = (double)fo_measure_bound_unit(rows, o->group.ranks, FO_WGRAD_ROWS);
    if (!o->backward)
        return tile;
    return column ? 0 : (tile + block) / 2;
}

static void sizes(const fo_bench_options *o, const fo_measure_point *point, bool column,
                  fo_measure_sizes *sizes)
{
    double rows = (double)point->rows, dim = (double)o->dim, t = (double)fo_dtype_size(o->dtype);
    double own = (double)fo_shard_rows(features(o), o->group.ranks, 0);
    double shard = (double)fo_shard_rows(point->rows, o->group.ranks, 0);
    double weight = own * dim;
    *sizes = (fo_measure_sizes){
        .flops = (o->backward ? 4 : 2) * rows * own * dim,
        .edge = edge_rows(o, point->rows, column) / rows,
        .memory = weight * (o->backward ? 8 : 4) + rows * own * (t + 4) + shard * dim * 8,
        .memory_each = weight * t + rows * dim * 4,
    };
}

static void row_sizes(const fo_bench_options *o, const fo_measure_point *p, fo_measure_sizes *s)
{
    sizes(o, p, false, s);
}

static void column_sizes(const fo_bench_options *o, const fo_measure_point *p, fo_measure_sizes *s)
{
    sizes(o, p, true, s);
}

static void describe(linear *l)
{
    const fo_bench_options *o = l->setup->options;
    fo_group *group = l->setup->group;
    int64_t share = fo_shard_rows(features(o), fo_group_size(group), fo_group_rank(group));
    l->desc = (fo_plan_desc){
        .op = l->column ? (l->backward ? FO_COLUMN_BACKWARD : FO_COLUMN_FORWARD)
                        : (l->backward ? FO_ROW_BACKWARD : FO_ROW_FORWARD),
        .rows = l->setup->point.rows,
        .in = l->column ? o->dim : share,
        .out = l->column ? share : o->dim,
        .dtype = o->dtype,
        .wire = o->wire,
        .y_dtype = o->dtype,
    };
}

static void make_matrices(linear *l)
{
    const fo_plan_desc *d = &l->desc;
    fo_measure_matrices *m = &l->matrices;
    fo_group *group = l->setup->group;
    bool column = l->column, backward = l->backward;
    int64_t mine = fo_shard_rows(d->rows, fo_group_size(group), fo_group_rank(group));
    float *w = fo_measure_matrices_make(m, d->in * d->out, FO_F32, 1);
    float *bias = fo_measure_matrices_make(m, d->out, FO_F32, 2);
    void *travels = fo_measure_matrices_make(m, mine * (column ? d->in : d->out), d->dtype, 3);
    void *local = fo_measure_matrices_make(m, d->rows * (column ? d->out : d->in), d->dtype, 4);
    l->result_count = column ? (backward ? mine * d->in : d->rows * d->out)
                             : (backward ? d->rows * d->in : mine * d->out);
    l->result_dtype = column != backward ? d->dtype : FO_F32;
    void *result = fo_measure_matrices_make(m, l->result_count, l->result_dtype, 0);
    l->args = (fo_plan_args){.w = w, .x = column ? travels : local};
    if (!backward) {
        l->args.bias = bias;
        l->args.y = result;
        return;
    }
    l->args.dy = column ? local : travels;
    l->args.dx = result;
    l->args.dw = fo_measure_matrices_make(m, d->in * d->out, FO_F32, 0);
    l->args.db = fo_measure_matrices_make(m, d->out, FO_F32, 0);
}

static void close_linear(void *family)
{
    linear *l = family;
    if (l)
        fo_measure_matrices_free(&l->matrices);
    free(l);
}

static fo_status open_linear(const fo_measure_setup *setup, bool column, void **family)
{
    linear *l = calloc(1, sizeof *l);
    if (!l)
        return fo_base_error(FO_NO_MEMORY, "no memory for a layer");
    l->setup = l->matrices.setup = setup;
    l->column = column;
    l->backward = setup->options->backward;
    describe(l);
    make_matrices(l);
    *family = l;
    return l->matrices.failed ? FO_NO_MEMORY : FO_OK;
}

static fo_status open_row(const fo_measure_setup *setup, void **family)
{
    return open_linear(setup, false, family);
}

static fo_status open_column(const fo_measure_setup *setup, void **family)
{
    return open_linear(setup, true, family);
}

static fo_status create(void *family, const fo_schedule_spelled *strategy, void **subject)
{
    linear *l = family;
    fo_measure_plans *plans = calloc(1, sizeof *plans);
    if (!plans)
        return fo_base_error(FO_NO_MEMORY, "no memory for a plan");
    fo_plan_desc desc = l->desc;
    desc.overlap = strategy->overlap;
    fo_status status = FO_OK;
    if (strategy->form == FO_SCHEDULE_APART) {
        desc.op = FO_COLUMN_DGRAD;
        status = fo_measure_plans_add(plans, l->setup->group, &desc, &l->args);
        desc.op = FO_COLUMN_WGRAD;
    }
    if (status == FO_OK)
        status = fo_measure_plans_add(plans, l->setup->group, &desc, &l->args);
    if (status != FO_OK) {
        fo_measure_plans_destroy(plans);
        return status;
    }
    fo_measure_plans_output(plans, l->args.y ? l->args.y : l->args.dx, l->result_count,
                            l->result_dtype, false);
    if (l->backward) {
        fo_measure_plans_output(plans, l->args.dw, desc.in * desc.out, FO_F32, true);
        fo_measure_plans_output(plans, l->args.db, desc.out, FO_F32, true);
    }
    *subject = plans;
    return FO_OK;
}

const fo_measure_family fo_measure_family_row = {
    .name = "row",
    .about = "[rows, ffn/N] . [ffn/N, dim], reduce-scatter",
    .about_backward = "all-gather, dgrad and wgrad of [ffn/N, dim]",
    .has_backward = true,
    .check = check,
    .sizes = row_sizes,
    .open = open_row,
    .close = close_linear,
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

const fo_measure_family fo_measure_family_column = {
    .name = "column",
    .about = "all-gather, [rows, dim] . [dim, ffn/N]",
    .about_backward = "dgrad of [dim, ffn/N], reduce-scatter; all-gather, wgrad",
    .has_backward = true,
    .forms_backward = 1 << FO_SCHEDULE_APART,
    .check = check,
    .sizes = column_sizes,
    .open = open_column,
    .close = close_linear,
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
