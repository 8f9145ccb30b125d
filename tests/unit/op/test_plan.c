/* Every operator, strategy and transport against float64 sums, and bit for bit against `none`. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "base/error.h"
#include "base/random.h"
#include "flashoverlap/plan.h"

typedef struct shape {
    int64_t rows, in, out; /* in, out: of the whole layer's split dimension and the other one */
} shape;

typedef struct suite {
    fo_dtype dtype, wire;
    bool gelu;
    const char *const *strategies;
} suite;

static const char *const ring_family[] = {"none",  "slice:4", "slice:3", "ring",
                                          "flash", "flash:2", "flash:3", NULL};
static const char *const f32_family[] = {"none",    "slice:4", "ring",     "flash",
                                         "flash:2", "direct",  "direct:3", NULL};

static double value(uint64_t stream, int64_t index)
{
    return fo_base_random_uniform(11, stream, (uint64_t)index) - 0.5f;
}

static double stored(fo_dtype dtype, double v)
{
    return dtype == FO_BF16 ? fo_base_bf16_to_f32(fo_base_bf16_from_f32((float)v)) : (float)v;
}

static void put(void *at, fo_dtype dtype, int64_t index, double v)
{
    if (dtype == FO_BF16)
        ((fo_bf16 *)at)[index] = fo_base_bf16_from_f32((float)v);
    else
        ((float *)at)[index] = (float)v;
}

static double get(const void *at, fo_dtype dtype, int64_t index)
{
    return dtype == FO_BF16 ? fo_base_bf16_to_f32(((const fo_bf16 *)at)[index])
                            : ((const float *)at)[index];
}

/* Streams: 1 w (by rank), 2 bias, 3 the matrix of all M rows that is sharded, 4 the local one, 5 pre. */
typedef struct run {
    fo_group *group;
    fo_plan_desc desc;
    int ranks, rank;
    int64_t begin, mine;
    void *shard, *local, *y, *pre;
    float *w, *bias, *dw, *db;
    int64_t y_count, local_width, shard_width;
    fo_dtype y_dtype;
} run;

static uint64_t of_rank(int stream, int rank)
{
    return (uint64_t)(stream + 100 * (rank + 1));
}

static bool gathers(fo_op op)
{
    return op == FO_COLUMN_FORWARD || op == FO_ROW_BACKWARD || op == FO_COLUMN_BACKWARD ||
           op == FO_ALL_GATHER;
}

static void lay_out(run *r)
{
    const fo_plan_desc *d = &r->desc;
    r->shard_width = d->op == FO_ROW_BACKWARD ? d->out : d->in;
    r->local_width = d->op == FO_COLUMN_BACKWARD ? d->out : d->in;
    bool m_rows = d->op == FO_COLUMN_FORWARD || d->op == FO_ROW_BACKWARD || d->op == FO_ALL_GATHER;
    int64_t width = d->op == FO_COLUMN_FORWARD || d->op == FO_ROW_FORWARD ? d->out : d->in;
    r->y_count = (m_rows ? d->rows : r->mine) * width;
    r->y_dtype = d->op == FO_COLUMN_FORWARD                           ? d->y_dtype
                 : d->op == FO_ROW_BACKWARD || d->op == FO_ALL_GATHER ? d->dtype
                                                                      : FO_F32;
}

static void *fresh(run *r, int64_t count, fo_dtype dtype)
{
    return fo_group_alloc(r->group, (size_t)count * fo_dtype_size(dtype) + 64);
}

static void fill(run *r)
{
    const fo_plan_desc *d = &r->desc;
    fo_dtype local_type = d->op == FO_REDUCE_SCATTER ? FO_F32 : d->dtype;
    r->w = fresh(r, d->in * d->out, FO_F32);
    r->bias = fresh(r, d->out + d->in, FO_F32);
    r->dw = fresh(r, d->in * d->out, FO_F32);
    r->db = fresh(r, d->out, FO_F32);
    r->shard = fresh(r, r->mine * r->shard_width, d->dtype);
    r->local = fresh(r, d->rows * r->local_width, local_type);
    r->y = fresh(r, r->y_count, r->y_dtype);
    r->pre = fresh(r, d->rows * (d->op == FO_COLUMN_FORWARD ? d->out : d->in), d->dtype);
    for (int64_t i = 0; i < d->in * d->out; i++)
        r->w[i] = (float)value(of_rank(1, r->rank), i);
    for (int64_t i = 0; i < d->out + d->in; i++)
        r->bias[i] = (float)value(2, i);
    for (int64_t i = 0; i < r->mine * r->shard_width; i++)
        put(r->shard, d->dtype, i, value(3, r->begin * r->shard_width + i));
    for (int64_t i = 0; i < d->rows * r->local_width; i++)
        put(r->local, local_type, i, value(of_rank(4, r->rank), i));
    if (d->op == FO_ROW_BACKWARD)
        for (int64_t i = 0; i < d->rows * d->in; i++)
            put(r->pre, d->dtype, i, value(of_rank(5, r->rank), i));
}

static void drop(run *r)
{
    void *memory[] = {r->w, r->bias, r->dw, r->db, r->shard, r->local, r->y, r->pre};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        fo_group_free(r->group, memory[i]);
}

static fo_plan_args arguments(run *r)
{
    fo_plan_args args = {.w = r->w};
    fo_op op = r->desc.op;
    bool backward = op == FO_COLUMN_BACKWARD || op == FO_ROW_BACKWARD;
    if (backward) {
        args.x = op == FO_COLUMN_BACKWARD ? r->shard : r->local;
        args.dy = op == FO_COLUMN_BACKWARD ? r->local : r->shard;
        args.dx = r->y;
        args.dw = r->dw;
        args.db = r->db;
    } else {
        args.x = gathers(op) ? r->shard : r->local;
        args.bias = op == FO_ALL_GATHER ? NULL : r->bias;
        args.y = r->y;
    }
    args.pre = r->desc.act == FO_GELU ? r->pre : NULL;
    return args;
}

/* ---- float64 reference ----------------------------------------------------------------------------- */

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
    double h = 1e-6;
    return (gelu(x + h) - gelu(x - h)) / (2 * h);
}

static double weight(const run *r, int rank, int64_t index)
{
    return stored(r->desc.dtype, (float)value(of_rank(1, rank), index));
}

/* Element of the gathered matrix; of rank q's local matrix. */
static double gathered(const run *r, int64_t row, int64_t col)
{
    return stored(r->desc.dtype, value(3, row * r->shard_width + col));
}

static double local_of(const run *r, int rank, int64_t row, int64_t col)
{
    fo_dtype type = r->desc.op == FO_REDUCE_SCATTER ? FO_F32 : r->desc.dtype;
    return stored(type, value(of_rank(4, rank), row * r->local_width + col));
}

/* Expected element (row of M, col) of the main result. All ranks have equal sizes here. */
static double expected(const run *r, int64_t row, int64_t col)
{
    const fo_plan_desc *d = &r->desc;
    double sum = 0;
    switch (d->op) {
    case FO_ALL_GATHER: return gathered(r, row, col);
    case FO_REDUCE_SCATTER:
        for (int q = 0; q < r->ranks; q++)
            sum += local_of(r, q, row, col);
        return sum + (float)value(2, col);
    case FO_COLUMN_FORWARD:
        for (int64_t k = 0; k < d->in; k++)
            sum += gathered(r, row, k) * weight(r, r->rank, col * d->in + k);
        sum += (float)value(2, col);
        return d->act == FO_GELU ? gelu(sum) : sum;
    case FO_ROW_FORWARD:
        for (int q = 0; q < r->ranks; q++)
            for (int64_t k = 0; k < d->in; k++)
                sum += local_of(r, q, row, k) * weight(r, q, col * d->in + k);
        return sum + (float)value(2, col);
    case FO_ROW_BACKWARD:
        for (int64_t k = 0; k < d->out; k++)
            sum += gathered(r, row, k) * weight(r, r->rank, k * d->in + col);
        if (d->act == FO_GELU)
            sum *= gelu_slope(stored(d->dtype, value(of_rank(5, r->rank), row * d->in + col)));
        return sum;
    case FO_COLUMN_BACKWARD:
        for (int q = 0; q < r->ranks; q++)
            for (int64_t k = 0; k < d->out; k++)
                sum += local_of(r, q, row, k) * weight(r, q, k * d->in + col);
        return sum;
    default: break;
    }
    return sum;
}

static fo_status compare(const run *r, const char *what, int64_t index, double found, double wanted,
                         double tolerance)
{
    if (fabs(found - wanted) <= tolerance * (1 + fabs(wanted)))
        return FO_OK;
    return fo_base_error(
        FO_INTERNAL,
        "op %d N %d rank %d rows %lld in %lld out %lld %s: %s[%lld] is %g, expected %g",
        (int)r->desc.op, r->ranks, r->rank, (long long)r->desc.rows, (long long)r->desc.in,
        (long long)r->desc.out, r->desc.overlap, what, (long long)index, found, wanted);
}

static double tolerance_of(const run *r)
{
    return r->desc.dtype == FO_BF16 || r->desc.wire == FO_BF16 ? 3e-2 : 2e-5;
}

static fo_status check_values(const run *r)
{
    const fo_plan_desc *d = &r->desc;
    bool m_rows = d->op == FO_COLUMN_FORWARD || d->op == FO_ROW_BACKWARD || d->op == FO_ALL_GATHER;
    int64_t width = d->op == FO_COLUMN_FORWARD || d->op == FO_ROW_FORWARD ? d->out : d->in;
    fo_status status = FO_OK;
    int64_t step =
        r->y_count > 2000 ? 37 : 1; /* a sample of large results, every column and row class */
    for (int64_t i = 0; status == FO_OK && i < r->y_count; i += step)
        status =
            compare(r, "y", i, get(r->y, r->y_dtype, i),
                    expected(r, i / width + (m_rows ? 0 : r->begin), i % width), tolerance_of(r));
    return status;
}

static fo_status check_gradients(const run *r)
{
    const fo_plan_desc *d = &r->desc;
    bool column = d->op == FO_COLUMN_BACKWARD;
    fo_status status = FO_OK;
    for (int64_t i = 0; status == FO_OK && i<d->in * d->out; i += d->in * d->out> 500 ? 13 : 1) {
        int64_t o = i / d->in, k = i % d->in;
        double sum = 1; /* dw starts at 1: it accumulates */
        for (int64_t row = 0; row < d->rows; row++)
            sum += column ? local_of(r, r->rank, row, o) * gathered(r, row, k)
                          : gathered(r, row, o) * local_of(r, r->rank, row, k);
        status = compare(r, "dw", i, r->dw[i], sum, 2e-5);
    }
    for (int64_t o = 0; status == FO_OK && o < d->out; o++) {
        double sum = 1;
        for (int64_t row = 0; row < d->rows; row++)
            if (column)
                sum += local_of(r, r->rank, row, o);
            else if (row >= r->begin && row < r->begin + r->mine)
                sum += gathered(r, row, o);
        status = compare(r, "db", o, r->db[o], sum, 2e-5);
    }
    return status;
}

/* ---- one operation under every strategy -------------------------------------------------------------- */

static uint64_t hash(uint64_t h, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++)
        h = (h ^ at[i]) * 0x100000001b3u;
    return h;
}

static fo_status run_strategy(run *r, uint64_t *bits)
{
    const fo_plan_desc *d = &r->desc;
    fo_plan *plan;
    fo_status status = fo_plan_create(r->group, d, &plan);
    bool backward = d->op == FO_COLUMN_BACKWARD || d->op == FO_ROW_BACKWARD;
    for (int repeat = 0; status == FO_OK && repeat < 2; repeat++) {
        memset(r->y, 0xff, (size_t)r->y_count * fo_dtype_size(r->y_dtype));
        for (int64_t i = 0; i < d->in * d->out; i++)
            r->dw[i] = 1;
        for (int64_t i = 0; i < d->out; i++)
            r->db[i] = 1;
        fo_plan_args args = arguments(r);
        status = fo_plan_execute(plan, &args);
        uint64_t h = hash(1, r->y, (size_t)r->y_count * fo_dtype_size(r->y_dtype));
        h = hash(h, r->dw, (size_t)(d->in * d->out) * 4);
        h = hash(h, r->db, (size_t)d->out * 4);
        if (repeat && h != *bits)
            status =
                fo_base_error(FO_INTERNAL, "op %d %s: two runs differ", (int)d->op, d->overlap);
        *bits = h;
    }
    if (status == FO_OK)
        status = check_values(r);
    if (status == FO_OK && backward)
        status = check_gradients(r);
    fo_plan_destroy(plan);
    return status;
}

static fo_status run_op(fo_group *group, fo_op op, const shape *s, const suite *kind)
{
    run r = {.group = group, .ranks = fo_group_size(group), .rank = fo_group_rank(group)};
    bool act = kind->gelu && (op == FO_COLUMN_FORWARD || op == FO_ROW_BACKWARD);
    r.desc = (fo_plan_desc){.op = op,
                            .rows = s->rows,
                            .in = s->in,
                            .out = op == FO_ALL_GATHER || op == FO_REDUCE_SCATTER ? 0 : s->out,
                            .dtype = kind->dtype,
                            .wire = kind->wire,
                            .y_dtype = kind->dtype,
                            .act = act ? FO_GELU : FO_IDENTITY};
    r.begin = fo_shard_begin(s->rows, r.ranks, r.rank);
    r.mine = fo_shard_rows(s->rows, r.ranks, r.rank);
    lay_out(&r);
    fill(&r);
    uint64_t first = 0;
    fo_status status = FO_OK;
    for (int i = 0; status == FO_OK && kind->strategies[i]; i++) {
        uint64_t bits = 0;
        r.desc.overlap = kind->strategies[i];
        status = run_strategy(&r, &bits);
        if (!i)
            first = bits;
        else if (status == FO_OK && bits != first)
            status = fo_base_error(FO_INTERNAL, "op %d N %d rows %lld: %s has other bits than %s",
                                   (int)op, r.ranks, (long long)s->rows, r.desc.overlap,
                                   kind->strategies[0]);
    }
    drop(&r);
    return status;
}

static const shape shapes[] = {{1, 3, 5},   {2, 8, 4},    {5, 1, 1},   {67, 17, 9}, {200, 5, 33},
                               {700, 7, 3}, {1100, 3, 2}, {130, 0, 4}, {130, 4, 0}, {0, 3, 3}};

static fo_status all_ops(fo_group *group, void *arg)
{
    fo_status status = FO_OK;
    for (size_t s = 0; status == FO_OK && s < sizeof shapes / sizeof *shapes; s++)
        for (int op = FO_COLUMN_FORWARD; status == FO_OK && op <= FO_REDUCE_SCATTER; op++)
            status = run_op(group, (fo_op)op, &shapes[s], arg);
    return status;
}

static void run_suite(const char *transport, const char *kernel, int ranks, suite s)
{
    fo_group_options options = {
        .ranks = ranks, .threads = 1, .transport = transport, .kernel = kernel, .deadline_s = 20};
    fo_status status = fo_group_run(&options, all_ops, &s);
    if (status != FO_OK)
        fail_msg("%s/%s/N=%d: %s", transport, kernel, ranks, fo_last_error());
}

static void exact_over_self(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 5; ranks++)
        run_suite("self", "ref", ranks, (suite){FO_F32, FO_F32, true, f32_family});
}

static void exact_over_shm(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 4; ranks++)
        run_suite("shm", "onednn", ranks, (suite){FO_F32, FO_F32, false, f32_family});
}

static void bf16_wire_and_types(void **state)
{
    (void)state;
    run_suite("shm", "onednn", 3, (suite){FO_BF16, FO_BF16, true, ring_family});
    run_suite("shm", "onednn", 2, (suite){FO_BF16, FO_F32, true, f32_family});
    run_suite("self", "ref", 3, (suite){FO_F32, FO_BF16, true, ring_family});
}

/* ---- over an emulated link, and refusals ---------------------------------------------------------------- */

static void over_a_link(void **state)
{
    (void)state;
    fo_group_options options = {.ranks = 3,
                                .threads = 1,
                                .transport = "shm",
                                .deadline_s = 20,
                                .link = {.bytes_per_s = 1e8, .latency_s = 2e-5}};
    suite s = {FO_F32, FO_F32, false, f32_family};
    fo_status status = fo_group_run(&options, all_ops, &s);
    if (status != FO_OK)
        fail_msg("%s", fo_last_error());
}

static fo_status refusals(fo_group *group, void *arg)
{
    (void)arg;
    fo_plan *plan;
    fo_plan_desc desc = {.op = FO_ROW_FORWARD, .rows = 8, .in = 4, .out = 4, .overlap = "flesh"};
    if (fo_plan_create(group, &desc, &plan) != FO_INVALID || plan ||
        !strstr(fo_last_error(), "flesh"))
        return fo_base_error(FO_INTERNAL, "strategy 'flesh' was not refused by name");
    desc.overlap = "flash";
    desc.rows = -1;
    if (fo_plan_create(group, &desc, &plan) != FO_INVALID || !strstr(fo_last_error(), "-1"))
        return fo_base_error(FO_INTERNAL, "-1 rows were not refused");
    desc.rows = 8;
    desc.act = FO_GELU;
    if (fo_plan_create(group, &desc, &plan) != FO_INVALID)
        return fo_base_error(FO_INTERNAL, "an activation on row forward was not refused");
    desc.act = FO_IDENTITY;
    fo_status status = fo_plan_create(group, &desc, &plan);
    fo_plan_args args = {0};
    if (status != FO_OK || fo_plan_execute(plan, &args) != FO_INVALID)
        return fo_base_error(FO_INTERNAL, "missing arguments were not refused");
    if (!strstr(fo_plan_explain(plan), "flash"))
        return fo_base_error(FO_INTERNAL, "explain is '%s'", fo_plan_explain(plan));
    fo_plan_destroy(plan);
    return FO_OK;
}

static void bad_descriptions_are_refused(void **state)
{
    (void)state;
    fo_group_options options = {.ranks = 1, .transport = "self", .kernel = "ref"};
    if (fo_group_run(&options, refusals, NULL) != FO_OK)
        fail_msg("%s", fo_last_error());
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bad_descriptions_are_refused),
                                       cmocka_unit_test(exact_over_self),
                                       cmocka_unit_test(exact_over_shm),
                                       cmocka_unit_test(bf16_wire_and_types),
                                       cmocka_unit_test(over_a_link)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
