/* Plans on several machines: hier has the bits of none/hier whatever its slices, the values of none, and, with
 * one machine or one rank on each, its bits. The sum of sums is checked bit by bit against plain loops. */
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

typedef struct setting {
    fo_dtype dtype, wire;
    int nodes; /* machines the group should have */
} setting;

/* Rows, and sizes of the weight of every rank; attention has `in` = heads * head_dim of all M rows. */
typedef struct shape {
    int64_t batch, context, in, out, hidden;
} shape;

static const shape shapes[] = {{1, 1, 2, 3, 4},
                               {2, 67, 6, 5, 9},
                               {3, 170, 4, 7, 2},
                               {5, 220, 2, 3, 5}};

enum { MANY_ROWS = 500 }; /* several blocks of a weight gradient a shard: for few ranks */

enum { OUTPUTS = 8, INPUTS = 8 };

/* An operator's arguments: what it reads, random; what it writes, for comparison. */
typedef struct run {
    fo_group *g;
    fo_plan_desc desc;
    fo_plan_args args;
    void *in[INPUTS], *out[OUTPUTS];
    int64_t out_count[OUTPUTS];
    fo_dtype out_dtype[OUTPUTS];
    int in_count, outs;
} run;

/* Of the n-th input of a rank. */
static uint64_t stream_of(int rank, int n)
{
    return (uint64_t)n + 1 + 100 * ((uint64_t)rank + 1);
}

static const void *input(run *r, int64_t count, fo_dtype dtype)
{
    uint64_t stream = stream_of(fo_group_rank(r->g), r->in_count);
    void *data = fo_group_alloc(r->g, (size_t)count * fo_dtype_size(dtype) + 64);
    for (int64_t i = 0; data && i < count; i++) {
        float v = fo_base_random_uniform(9, stream, (uint64_t)i) - 0.5f;
        if (dtype == FO_BF16)
            ((fo_bf16 *)data)[i] = fo_base_bf16_from_f32(v);
        else
            ((float *)data)[i] = v;
    }
    return r->in[r->in_count++] = data;
}

static void *output(run *r, int64_t count, fo_dtype dtype)
{
    r->out_count[r->outs] = count;
    r->out_dtype[r->outs] = dtype;
    return r->out[r->outs++] = fo_group_alloc(r->g, (size_t)count * fo_dtype_size(dtype) + 64);
}

static size_t output_bytes(const run *r, int i)
{
    return (size_t)r->out_count[i] * fo_dtype_size(r->out_dtype[i]);
}

static void attention_arguments(run *r, const shape *s, bool backward)
{
    fo_plan_args *a = &r->args;
    fo_dtype t = r->desc.dtype;
    int64_t rows = r->desc.rows, in = s->in, out = s->out;
    int64_t mine = fo_shard_rows(rows, fo_group_size(r->g), fo_group_rank(r->g));
    r->desc.attention = (fo_plan_attention){.batch = s->batch,
                                            .context = s->context,
                                            .heads = 2,
                                            .head_dim = (int)(in / 2),
                                            .total_heads = 2 * fo_group_size(r->g),
                                            .head_offset = 2 * fo_group_rank(r->g)};
    a->w = input(r, in * out, FO_F32);
    if (backward) {
        a->x = input(r, rows * in, t);
        a->qkv = input(r, rows * 3 * in, t);
        a->dy = input(r, mine * out, t);
        float *lse = fo_group_alloc(r->g, (size_t)(2 * rows) * 4 + 64);
        for (int64_t i = 0; i < 2 * rows; i++)
            lse[i] = 3;
        r->in[r->in_count++] = a->lse = lse;
        a->dx = output(r, rows * in, t);
        a->dqkv = output(r, rows * 3 * in, t);
    } else {
        a->x = input(r, rows * 3 * in, t);
        a->bias = input(r, out, FO_F32);
        a->att = output(r, rows * in, t);
        a->lse = output(r, 2 * rows, FO_F32);
        a->y = output(r, mine * out, FO_F32);
    }
}

/* The tables atop plan.h, of operators without attention. */
static void arguments(run *r, const shape *s)
{
    fo_plan_args *a = &r->args;
    fo_op op = r->desc.op;
    fo_dtype t = r->desc.dtype;
    int64_t rows = r->desc.rows, in = s->in, out = s->out, hidden = s->hidden;
    int64_t mine = fo_shard_rows(rows, fo_group_size(r->g), fo_group_rank(r->g));
    bool gathers = op == FO_COLUMN_FORWARD || op == FO_COLUMN_BACKWARD || op == FO_ALL_GATHER ||
                   op == FO_MLP_FORWARD || op == FO_COLUMN_WGRAD;
    if (op != FO_COLUMN_DGRAD)
        a->x = input(r, (gathers ? mine : rows) * in, op == FO_REDUCE_SCATTER ? FO_F32 : t);
    if (op == FO_MLP_FORWARD) {
        a->w = input(r, hidden * in, FO_F32);
        a->bias = input(r, hidden, FO_F32);
        a->w2 = input(r, out * hidden, FO_F32);
        a->bias2 = input(r, out, FO_F32);
        a->pre = output(r, rows * hidden, t);
        a->act = output(r, rows * hidden, t);
    } else {
        a->w = input(r, in * out, FO_F32);
    }
    switch (op) {
    case FO_COLUMN_FORWARD:
        a->bias = input(r, out, FO_F32);
        a->pre = output(r, rows * out, t);
        a->y = output(r, rows * out, t);
        break;
    case FO_MLP_FORWARD: a->y = output(r, mine * out, FO_F32); break;
    case FO_ROW_FORWARD:
        a->bias = input(r, out, FO_F32);
        a->y = output(r, mine * out, FO_F32);
        break;
    case FO_REDUCE_SCATTER: a->y = output(r, mine * in, FO_F32); break;
    case FO_ALL_GATHER: a->y = output(r, rows * in, t); break;
    case FO_ROW_BACKWARD:
        a->dy = input(r, mine * out, t);
        a->pre = (void *)(uintptr_t)input(r, rows * in, t);
        a->dx = output(r, rows * in, t);
        break;
    default: /* column backward, or half of it */
        a->dy = input(r, rows * out, t);
        if (op != FO_COLUMN_WGRAD)
            a->dx = output(r, mine * in, FO_F32);
    }
}

static bool has_wgrad(fo_op op)
{
    return op == FO_COLUMN_BACKWARD || op == FO_ROW_BACKWARD || op == FO_ATTENTION_BACKWARD ||
           op == FO_COLUMN_WGRAD;
}

static run open_run(fo_group *g, fo_op op, const shape *s, const setting *kind)
{
    bool attention = op == FO_ATTENTION_FORWARD || op == FO_ATTENTION_BACKWARD;
    bool gelu = op == FO_COLUMN_FORWARD || op == FO_ROW_BACKWARD || op == FO_MLP_FORWARD;
    bool moves = op == FO_ALL_GATHER || op == FO_REDUCE_SCATTER;
    run r = {.g = g,
             .desc = {.op = op,
                      .rows = s->batch * s->context,
                      .in = s->in,
                      .out = moves ? 0 : s->out,
                      .hidden = op == FO_MLP_FORWARD ? s->hidden : 0,
                      .dtype = kind->dtype,
                      .wire = kind->wire,
                      .y_dtype = kind->dtype,
                      .act = gelu ? FO_GELU : FO_IDENTITY}};
    if (attention)
        attention_arguments(&r, s, op == FO_ATTENTION_BACKWARD);
    else
        arguments(&r, s);
    if (has_wgrad(op)) {
        r.args.dw = output(&r, s->in * s->out, FO_F32);
        r.args.db = output(&r, s->out, FO_F32);
    }
    return r;
}

static void close_run(run *r)
{
    for (int i = 0; i < r->in_count; i++)
        fo_group_free(r->g, r->in[i]);
    for (int i = 0; i < r->outs; i++)
        fo_group_free(r->g, r->out[i]);
}

/* Runs a strategy twice from the same start; copies of the outputs, freed by the caller, to kept[]. */
static fo_status execute(run *r, const char *overlap, void *kept[OUTPUTS])
{
    fo_plan *plan;
    r->desc.overlap = overlap;
    fo_status status = fo_plan_create(r->g, &r->desc, &plan);
    for (int repeat = 0; status == FO_OK && repeat < 2; repeat++) {
        for (int i = 0; i < r->outs; i++) /* gradients accumulate on this */
            memset(r->out[i], 0, output_bytes(r, i));
        status = fo_plan_execute(plan, &r->args);
        for (int i = 0; status == FO_OK && i < r->outs; i++)
            if (!repeat) {
                memcpy(kept[i] = malloc(output_bytes(r, i) + 1), r->out[i], output_bytes(r, i));
            } else if (memcmp(kept[i], r->out[i], output_bytes(r, i)) != 0) {
                status = fo_base_error(FO_INTERNAL, "two runs differ");
            }
    }
    fo_plan_destroy(plan);
    return status;
}

static void forget(void *kept[OUTPUTS])
{
    for (int i = 0; i < OUTPUTS; i++) {
        free(kept[i]);
        kept[i] = NULL;
    }
}

static fo_status same_bits(const run *r, void *const a[OUTPUTS], void *const b[OUTPUTS])
{
    for (int i = 0; i < r->outs; i++)
        if (memcmp(a[i], b[i], output_bytes(r, i)) != 0)
            return fo_base_error(FO_INTERNAL, "output %d has other bits", i);
    return FO_OK;
}

static double at(const void *data, fo_dtype dtype, int64_t i)
{
    return dtype == FO_BF16 ? fo_base_bf16_to_f32(((const fo_bf16 *)data)[i])
                            : ((const float *)data)[i];
}

/* Two orders of one sum. */
static fo_status close_values(const run *r, void *const a[OUTPUTS], void *const b[OUTPUTS])
{
    double tolerance = r->desc.dtype == FO_BF16 || r->desc.wire == FO_BF16 ? 3e-2 : 2e-5;
    for (int i = 0; i < r->outs; i++)
        for (int64_t k = 0; k < r->out_count[i]; k++) {
            double x = at(a[i], r->out_dtype[i], k), y = at(b[i], r->out_dtype[i], k);
            if (!(fabs(x - y) <= tolerance * (1 + fabs(y))))
                return fo_base_error(FO_INTERNAL, "output %d [%lld] is %g, expected %g", i,
                                     (long long)k, x, y);
        }
    return FO_OK;
}

/* ---- sums of sums, by plain loops ------------------------------------------------------------------------ */

static float on_wire(const run *r, float v)
{
    return r->desc.wire == FO_BF16 ? fo_base_bf16_to_f32(fo_base_bf16_from_f32(v)) : v;
}

/* What rank q contributes to element i of the M rows. */
static float contribution(int q, int64_t i)
{
    return fo_base_random_uniform(9, stream_of(q, 0), (uint64_t)i) - 0.5f;
}

/* The sum of machine m for a shard of local number l; whether it travels then. */
static float machine_sum(const run *r, int m, int l, int locals, int64_t i, bool travels)
{
    float sum = 0;
    for (int k = 1; k <= locals; k++) {
        float v = contribution(m * locals + (l + k) % locals, i);
        sum = k == 1 ? v : v + sum;
        if (k < locals || travels)
            sum = on_wire(r, sum);
    }
    return sum;
}

static fo_status check_sum_of_sums(const run *r, void *const found[OUTPUTS])
{
    int ranks = fo_group_size(r->g), rank = fo_group_rank(r->g), nodes = fo_group_nodes(r->g);
    int locals = ranks / nodes, m = rank / locals, l = rank % locals;
    int64_t begin = fo_shard_begin(r->desc.rows, ranks, rank) * r->desc.in;
    for (int64_t i = 0; i < r->out_count[0]; i++) {
        float sum = 0;
        for (int k = 1; k <= nodes; k++) {
            bool travels = k == 1 && nodes > 1;
            float v = machine_sum(r, (m + k) % nodes, l, locals, begin + i, travels);
            sum = k == 1 ? v : sum + v;
            if (k < nodes)
                sum = on_wire(r, sum);
        }
        float y = ((const float *)found[0])[i];
        if (!(y == sum)) /* no zeros and no NaN here: equal values are equal bits */
            return fo_base_error(FO_INTERNAL, "sum [%lld] is %.9g, expected %.9g", (long long)i,
                                 (double)y, (double)sum);
    }
    return FO_OK;
}

/* ---- every operator --------------------------------------------------------------------------------------- */

static fo_status run_op(fo_group *g, fo_op op, const shape *s, const setting *kind)
{
    static const char *const nested[] = {"hier", "hier:3"};
    int nodes = fo_group_nodes(g);
    bool one_ring = nodes == 1 || nodes == fo_group_size(g);
    void *none[OUTPUTS] = {0}, *reference[OUTPUTS] = {0}, *found[OUTPUTS] = {0};
    const char *name = "none";
    run r = open_run(g, op, s, kind);
    fo_status status = execute(&r, name, none);
    if (status == FO_OK)
        status = execute(&r, name = "none/hier", reference);
    if (status == FO_OK)
        status = (one_ring ? same_bits : close_values)(&r, reference, none);
    if (status == FO_OK && op == FO_REDUCE_SCATTER)
        status = check_sum_of_sums(&r, reference);
    for (int i = 0; status == FO_OK && i < 2; i++) {
        status = execute(&r, name = nested[i], found);
        if (status == FO_OK)
            status = same_bits(&r, reference, found);
        forget(found);
    }
    if (status != FO_OK) {
        char why[256];
        snprintf(why, sizeof why, "%s", fo_last_error());
        fo_base_error(status, "rank %d of %d on %d machines, op %d, %lld rows, %s: %s",
                      fo_group_rank(g), fo_group_size(g), nodes, (int)op, (long long)r.desc.rows,
                      name, why);
    }
    forget(none);
    forget(reference);
    close_run(&r);
    return status;
}

static fo_status all_ops(fo_group *g, void *arg)
{
    int nodes = ((const setting *)arg)->nodes;
    fo_status status = FO_OK;
    if (fo_group_nodes(g) != nodes)
        return fo_base_error(FO_INTERNAL, "%d machines, expected %d", fo_group_nodes(g), nodes);
    for (size_t s = 0; status == FO_OK && s < sizeof shapes / sizeof *shapes; s++) {
        if (shapes[s].batch * shapes[s].context > MANY_ROWS && fo_group_size(g) > 4)
            continue;
        for (int op = FO_COLUMN_FORWARD; status == FO_OK && op <= FO_COLUMN_WGRAD; op++)
            status = run_op(g, (fo_op)op, &shapes[s], arg);
    }
    return status;
}

static void run_suite(const char *transport, const char *kernel, int nodes, int locals, setting s)
{
    fo_group_options options = {.ranks = nodes * locals,
                                .nodes = nodes,
                                .threads = 1,
                                .transport = transport,
                                .kernel = kernel,
                                .deadline_s = 60};
    s.nodes = nodes;
    if (fo_group_run(&options, all_ops, &s) != FO_OK)
        fail_msg("%s/%s: %s", transport, kernel, fo_last_error());
}

static void over_self(void **state)
{
    (void)state;
    for (int nodes = 1; nodes <= 3; nodes++)
        for (int locals = 1; locals <= 3; locals++) {
            fo_dtype wire = (nodes + locals) % 2 ? FO_F32 : FO_BF16;
            run_suite("self", "ref", nodes, locals, (setting){FO_F32, wire, 0});
        }
}

static void over_shm(void **state)
{
    (void)state;
    run_suite("shm", "ref", 2, 2, (setting){FO_F32, FO_F32, 0});
    run_suite("shm", "onednn", 2, 3, (setting){FO_BF16, FO_BF16, 0});
    run_suite("shm", "onednn", 3, 2, (setting){FO_F32, FO_BF16, 0});
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(over_self), cmocka_unit_test(over_shm)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
