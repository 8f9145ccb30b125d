/* The MLP block: all-gather, fc1, GELU, fc2, reduce-scatter; and its backward pass. */
#include <stdlib.h>

#include "base/error.h"
#include "measure/subject.h"

typedef struct mlp {
    const fo_measure_setup *setup;
    fo_measure_matrices matrices;
    int64_t rows, mine, dim, hidden; /* mine: rows of the own shard; hidden: own features */
    float *w1, *bias1, *w2, *bias2;
    void *x, *pre, *act; /* [mine, dim], [rows, hidden] twice */
    float *y;            /* [mine, dim] */
    void *dy, *dact;     /* [mine, dim], [rows, hidden] */
    float *dx;           /* [mine, dim] */
    float *dw1, *db1, *dw2, *db2;
} mlp;

static int64_t features(const fo_bench_options *o)
{
    return o->ffn ? o->ffn : 4 * o->dim;
}

static fo_status check(const fo_bench_options *o, const fo_measure_point *point)
{
    fo_status status = fo_measure_check_size("rows", point->rows);
    if (status == FO_OK)
        status = fo_measure_check_size("dim", o->dim);
    return status == FO_OK ? fo_measure_check_size("ffn", features(o)) : status;
}

/* No edge: the link gathers own rows from the start, and the last it does is to deliver a sum. */
static void sizes(const fo_bench_options *o, const fo_measure_point *point, fo_measure_sizes *sizes)
{
    double rows = (double)point->rows, dim = (double)o->dim, t = (double)fo_dtype_size(o->dtype);
    double own = (double)fo_shard_rows(features(o), o->group.ranks, 0);
    double shard = (double)fo_shard_rows(point->rows, o->group.ranks, 0);
    double weights = 2 * own * dim;
    *sizes = (fo_measure_sizes){
        .flops = (o->backward ? 4 : 2) * rows * weights,
        .memory = weights * (o->backward ? 8 : 4) + 3 * rows * own * t + shard * dim * (2 * t + 4),
        .memory_each = weights * t + rows * dim * 4,
    };
}

static void make_backward(mlp *m)
{
    fo_measure_matrices *all = &m->matrices;
    fo_dtype t = m->setup->options->dtype;
    m->dy = fo_measure_matrices_make(all, m->mine * m->dim, t, 8);
    m->dact = fo_measure_matrices_make(all, m->rows * m->hidden, t, 0);
    m->dx = fo_measure_matrices_make(all, m->mine * m->dim, FO_F32, 0);
    m->dw1 = fo_measure_matrices_make(all, m->hidden * m->dim, FO_F32, 0);
    m->dw2 = fo_measure_matrices_make(all, m->hidden * m->dim, FO_F32, 0);
    m->db1 = fo_measure_matrices_make(all, m->hidden, FO_F32, 0);
    m->db2 = fo_measure_matrices_make(all, m->dim, FO_F32, 0);
}

static void make_matrices(mlp *m)
{
    fo_measure_matrices *all = &m->matrices;
    fo_dtype t = m->setup->options->dtype;
    bool backward = m->setup->options->backward;
    m->w1 = fo_measure_matrices_make(all, m->hidden * m->dim, FO_F32, 1);
    m->w2 = fo_measure_matrices_make(all, m->hidden * m->dim, FO_F32, 2);
    m->bias1 = fo_measure_matrices_make(all, m->hidden, FO_F32, 3);
    m->bias2 = fo_measure_matrices_make(all, m->dim, FO_F32, 4);
    m->x = fo_measure_matrices_make(all, m->mine * m->dim, t, 5);
    m->pre = fo_measure_matrices_make(all, m->rows * m->hidden, t, backward ? 6 : 0);
    m->act = fo_measure_matrices_make(all, m->rows * m->hidden, t, backward ? 7 : 0);
    if (backward)
        make_backward(m);
    else
        m->y = fo_measure_matrices_make(all, m->mine * m->dim, FO_F32, 0);
}

static void close_mlp(void *family)
{
    mlp *m = family;
    if (m)
        fo_measure_matrices_free(&m->matrices);
    free(m);
}

static fo_status open_mlp(const fo_measure_setup *setup, void **family)
{
    mlp *m = calloc(1, sizeof *m);
    if (!m)
        return fo_base_error(FO_NO_MEMORY, "no memory for an MLP");
    int ranks = fo_group_size(setup->group), rank = fo_group_rank(setup->group);
    m->setup = m->matrices.setup = setup;
    m->rows = setup->point.rows;
    m->mine = fo_shard_rows(m->rows, ranks, rank);
    m->dim = setup->options->dim;
    m->hidden = fo_shard_rows(features(setup->options), ranks, rank);
    make_matrices(m);
    *family = m;
    return m->matrices.failed ? FO_NO_MEMORY : FO_OK;
}

static fo_plan_desc describe(const mlp *m, fo_op op, const char *overlap)
{
    const fo_bench_options *o = m->setup->options;
    bool second = op == FO_ROW_FORWARD || op == FO_ROW_BACKWARD;
    bool gelu = op == FO_MLP_FORWARD || op == FO_COLUMN_FORWARD || op == FO_ROW_BACKWARD;
    return (fo_plan_desc){
        .op = op,
        .rows = m->rows,
        .in = second ? m->hidden : m->dim,
        .out = second || op == FO_MLP_FORWARD ? m->dim : m->hidden,
        .hidden = op == FO_MLP_FORWARD ? m->hidden : 0,
        .dtype = o->dtype,
        .wire = o->wire,
        .y_dtype = o->dtype,
        .act = gelu ? FO_GELU : FO_IDENTITY,
        .overlap = overlap,
    };
}

static fo_status add(const mlp *m, fo_measure_plans *plans, fo_op op, const char *overlap,
                     const fo_plan_args *args)
{
    fo_plan_desc desc = describe(m, op, overlap);
    return fo_measure_plans_add(plans, m->setup->group, &desc, args);
}

static fo_status add_forward(const mlp *m, fo_measure_plans *plans, const fo_schedule_spelled *s)
{
    fo_status status;
    if (s->form == FO_SCHEDULE_WHOLE) {
        status = add(m, plans, FO_MLP_FORWARD, s->overlap,
                     &(fo_plan_args){.x = m->x,
                                     .w = m->w1,
                                     .bias = m->bias1,
                                     .w2 = m->w2,
                                     .bias2 = m->bias2,
                                     .pre = m->pre,
                                     .act = m->act,
                                     .y = m->y});
    } else {
        status = add(
            m, plans, FO_COLUMN_FORWARD, s->overlap,
            &(fo_plan_args){.x = m->x, .w = m->w1, .bias = m->bias1, .pre = m->pre, .y = m->act});
        if (status == FO_OK)
            status = add(m, plans, FO_ROW_FORWARD, s->overlap,
                         &(fo_plan_args){.x = m->act, .w = m->w2, .bias = m->bias2, .y = m->y});
    }
    fo_measure_plans_output(plans, m->y, m->mine * m->dim, FO_F32, false);
    fo_measure_plans_output(plans, m->pre, m->rows * m->hidden, m->setup->options->dtype, false);
    fo_measure_plans_output(plans, m->act, m->rows * m->hidden, m->setup->options->dtype, false);
    return status;
}

static fo_status add_backward(const mlp *m, fo_measure_plans *plans, const fo_schedule_spelled *s)
{
    fo_plan_args second = {.x = m->act,
                           .w = m->w2,
                           .pre = m->pre,
                           .dy = m->dy,
                           .dx = m->dact,
                           .dw = m->dw2,
                           .db = m->db2};
    fo_plan_args first = {
        .x = m->x, .w = m->w1, .dy = m->dact, .dx = m->dx, .dw = m->dw1, .db = m->db1};
    fo_status status = add(m, plans, FO_ROW_BACKWARD, s->overlap, &second);
    if (status == FO_OK && s->form == FO_SCHEDULE_WHOLE) {
        status = add(m, plans, FO_COLUMN_BACKWARD, s->overlap, &first);
    } else if (status == FO_OK) {
        status = add(m, plans, FO_COLUMN_DGRAD, s->overlap, &first);
        if (status == FO_OK)
            status = add(m, plans, FO_COLUMN_WGRAD, s->overlap, &first);
    }
    fo_measure_plans_output(plans, m->dact, m->rows * m->hidden, m->setup->options->dtype, false);
    fo_measure_plans_output(plans, m->dx, m->mine * m->dim, FO_F32, false);
    fo_measure_plans_output(plans, m->dw1, m->hidden * m->dim, FO_F32, true);
    fo_measure_plans_output(plans, m->dw2, m->hidden * m->dim, FO_F32, true);
    fo_measure_plans_output(plans, m->db1, m->hidden, FO_F32, true);
    fo_measure_plans_output(plans, m->db2, m->dim, FO_F32, true);
    return status;
}

static fo_status create(void *family, const fo_schedule_spelled *strategy, void **subject)
{
    const mlp *m = family;
    fo_measure_plans *plans = calloc(1, sizeof *plans);
    if (!plans)
        return fo_base_error(FO_NO_MEMORY, "no memory for a plan");
    fo_status status = m->setup->options->backward ? add_backward(m, plans, strategy)
                                                   : add_forward(m, plans, strategy);
    if (status != FO_OK) {
        fo_measure_plans_destroy(plans);
        return status;
    }
    *subject = plans;
    return FO_OK;
}

const fo_measure_family fo_measure_family_mlp = {
    .name = "mlp",
    .about = "all-gather, fc1, GELU, fc2, reduce-scatter",
    .about_backward = "all-gather, gradients of fc2, GELU and fc1, reduce-scatter; all-gather",
    .has_backward = true,
    .forms = 1 << FO_SCHEDULE_APART,
    .forms_backward = 1 << FO_SCHEDULE_APART,
    .check = check,
    .sizes = sizes,
    .open = open_mlp,
    .close = close_mlp,
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
