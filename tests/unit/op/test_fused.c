/* Programs that do the work of several operators give the bits of those operators: a whole MLP, the joint
 * backward pass of a column-parallel layer, attention by query slices. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/bf16.h"
#include "base/error.h"
#include "base/random.h"
#include "flashoverlap/plan.h"

static const char *const strategies[] = {"none",    "slice:2", "slice:4",  "ring", "flash",
                                         "flash:2", "flash:3", "direct:2", NULL};

typedef struct setting {
    fo_dtype dtype, wire;
    bool direct; /* with sums rounded on the wire the direct form has bits of its own */
} setting;

static int64_t count_of(const char *const *list)
{
    int64_t n = 0;
    while (list[n])
        n++;
    return n;
}

static bool skipped(const setting *s, const char *strategy)
{
    return !s->direct && !strncmp(strategy, "direct", 6);
}

static void *random_matrix(fo_group *group, int64_t count, fo_dtype dtype, uint64_t stream)
{
    void *data = fo_group_alloc(group, (size_t)count * fo_dtype_size(dtype) + 64);
    for (int64_t i = 0; data && stream && i < count; i++) {
        float v = fo_base_random_uniform(5, stream, (uint64_t)i) - 0.5f;
        if (dtype == FO_BF16)
            ((fo_bf16 *)data)[i] = fo_base_bf16_from_f32(v);
        else
            ((float *)data)[i] = v;
    }
    return data;
}

static fo_status execute(fo_group *group, fo_plan_desc desc, const fo_plan_args *args)
{
    fo_plan *plan;
    fo_status status = fo_plan_create(group, &desc, &plan);
    for (int repeat = 0; status == FO_OK && repeat < 2 && !args->dw; repeat++)
        status = fo_plan_execute(plan, args);
    if (status == FO_OK && args->dw) /* accumulates */
        status = fo_plan_execute(plan, args);
    fo_plan_destroy(plan);
    return status;
}

static fo_status same(fo_group *group, const char *what, const char *overlap, const void *a,
                      const void *b, size_t bytes)
{
    if (!memcmp(a, b, bytes))
        return FO_OK;
    size_t at = 0;
    while (((const char *)a)[at] == ((const char *)b)[at])
        at++;
    return fo_base_error(FO_INTERNAL, "rank %d of %d, %s: %s differs at byte %zu of %zu",
                         fo_group_rank(group), fo_group_size(group), overlap, what, at, bytes);
}

/* ---- a whole MLP ------------------------------------------------------------------------------------- */

static fo_status mlp_case(fo_group *g, const setting *s, int64_t rows, int64_t in, int64_t ffn,
                          int64_t out)
{
    int rank = fo_group_rank(g);
    int64_t mine = fo_shard_rows(rows, fo_group_size(g), rank);
    int64_t hidden = fo_shard_rows(ffn, fo_group_size(g), rank);
    uint64_t own = 100 * (uint64_t)(rank + 1);
    size_t t = fo_dtype_size(s->dtype);
    void *x = random_matrix(g, mine * in, s->dtype, own + 1);
    float *w = random_matrix(g, hidden * in, FO_F32, own + 2);
    float *bias = random_matrix(g, hidden, FO_F32, own + 3);
    float *w2 = random_matrix(g, hidden * out, FO_F32, own + 4);
    float *bias2 = random_matrix(g, out, FO_F32, 5);
    void *pre[2], *act[2];
    float *y[2];
    for (int i = 0; i < 2; i++) {
        pre[i] = random_matrix(g, rows * hidden, s->dtype, 0);
        act[i] = random_matrix(g, rows * hidden, s->dtype, 0);
        y[i] = random_matrix(g, mine * out, FO_F32, 0);
    }
    fo_plan_desc first = {.op = FO_COLUMN_FORWARD,
                          .rows = rows,
                          .in = in,
                          .out = hidden,
                          .dtype = s->dtype,
                          .wire = s->wire,
                          .y_dtype = s->dtype,
                          .act = FO_GELU,
                          .overlap = "none"};
    fo_plan_desc second = {.op = FO_ROW_FORWARD,
                           .rows = rows,
                           .in = hidden,
                           .out = out,
                           .dtype = s->dtype,
                           .wire = s->wire,
                           .overlap = "none"};
    fo_status status =
        execute(g, first,
                &(fo_plan_args){.x = x, .w = w, .bias = bias, .y = act[0], .pre = pre[0]});
    if (status == FO_OK)
        status =
            execute(g, second, &(fo_plan_args){.x = act[0], .w = w2, .bias = bias2, .y = y[0]});
    for (int i = 0; status == FO_OK && strategies[i]; i++) {
        if (skipped(s, strategies[i]))
            continue;
        fo_plan_desc block = {.op = FO_MLP_FORWARD,
                              .rows = rows,
                              .in = in,
                              .out = out,
                              .hidden = hidden,
                              .dtype = s->dtype,
                              .wire = s->wire,
                              .act = FO_GELU,
                              .overlap = strategies[i]};
        memset(y[1], 0xff, (size_t)(mine * out) * 4);
        memset(act[1], 0xff, (size_t)(rows * hidden) * t);
        status = execute(g, block,
                         &(fo_plan_args){.x = x,
                                         .w = w,
                                         .bias = bias,
                                         .w2 = w2,
                                         .bias2 = bias2,
                                         .y = y[1],
                                         .pre = pre[1],
                                         .act = act[1]});
        if (status == FO_OK)
            status = same(g, "pre", strategies[i], pre[0], pre[1], (size_t)(rows * hidden) * t);
        if (status == FO_OK)
            status = same(g, "act", strategies[i], act[0], act[1], (size_t)(rows * hidden) * t);
        if (status == FO_OK)
            status = same(g, "y", strategies[i], y[0], y[1], (size_t)(mine * out) * 4);
    }
    void *memory[] = {x, w, bias, w2, bias2, pre[0], pre[1], act[0], act[1], y[0], y[1]};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        fo_group_free(g, memory[i]);
    return status;
}

static fo_status mlps(fo_group *g, void *arg)
{
    static const int64_t shapes[][4] = {{1, 3, 5, 2},     {67, 9, 17, 5},   {200, 16, 33, 16},
                                        {700, 5, 12, 33}, {1100, 8, 24, 8}, {0, 4, 4, 4}};
    fo_status status = FO_OK;
    for (size_t i = 0; status == FO_OK && i < sizeof shapes / sizeof *shapes; i++)
        status = mlp_case(g, arg, shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3]);
    return status;
}

/* ---- joint backward --------------------------------------------------------------------------------- */

static fo_status joint_case(fo_group *g, const setting *s, int64_t rows, int64_t in, int64_t out)
{
    int rank = fo_group_rank(g);
    int64_t mine = fo_shard_rows(rows, fo_group_size(g), rank);
    uint64_t own = 100 * (uint64_t)(rank + 1);
    void *x = random_matrix(g, mine * in, s->dtype, own + 1);
    void *dy = random_matrix(g, rows * out, s->dtype, own + 2);
    float *w = random_matrix(g, out * in, FO_F32, own + 3);
    float *dx[2], *dw[2], *db[2];
    for (int i = 0; i < 2; i++) {
        dx[i] = random_matrix(g, mine * in, FO_F32, 0);
        dw[i] = random_matrix(g, out * in, FO_F32, 0);
        db[i] = random_matrix(g, out, FO_F32, 0);
    }
    fo_plan_desc desc = {.op = FO_COLUMN_BACKWARD,
                         .rows = rows,
                         .in = in,
                         .out = out,
                         .dtype = s->dtype,
                         .wire = s->wire,
                         .overlap = "flash"};
    fo_status status =
        execute(g, desc,
                &(fo_plan_args){.x = x, .w = w, .dy = dy, .dx = dx[0], .dw = dw[0], .db = db[0]});
    for (int i = 0; status == FO_OK && strategies[i]; i++) {
        if (skipped(s, strategies[i]))
            continue;
        memset(dx[1], 0xff, (size_t)(mine * in) * 4);
        memset(dw[1], 0, (size_t)(out * in) * 4);
        memset(db[1], 0, (size_t)out * 4);
        desc.overlap = strategies[i];
        desc.op = FO_COLUMN_DGRAD;
        status = execute(g, desc, &(fo_plan_args){.w = w, .dy = dy, .dx = dx[1]});
        desc.op = FO_COLUMN_WGRAD;
        if (status == FO_OK)
            status = execute(g, desc, &(fo_plan_args){.x = x, .dy = dy, .dw = dw[1], .db = db[1]});
        if (status == FO_OK)
            status = same(g, "dx", strategies[i], dx[0], dx[1], (size_t)(mine * in) * 4);
        if (status == FO_OK)
            status = same(g, "dw", strategies[i], dw[0], dw[1], (size_t)(out * in) * 4);
        if (status == FO_OK)
            status = same(g, "db", strategies[i], db[0], db[1], (size_t)out * 4);
    }
    void *memory[] = {x, dy, w, dx[0], dx[1], dw[0], dw[1], db[0], db[1]};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        fo_group_free(g, memory[i]);
    return status;
}

static fo_status joints(fo_group *g, void *arg)
{
    static const int64_t shapes[][3] = {
        {1, 3, 5}, {67, 9, 17}, {300, 16, 33}, {700, 5, 12}, {1500, 8, 24}};
    fo_status status = FO_OK;
    for (size_t i = 0; status == FO_OK && i < sizeof shapes / sizeof *shapes; i++)
        status = joint_case(g, arg, shapes[i][0], shapes[i][1], shapes[i][2]);
    return status;
}

/* ---- attention -------------------------------------------------------------------------------------- */

typedef struct attention_case {
    int64_t batch, context;
    int heads, head_dim;
    int64_t out;
    float dropout;
    fo_row_order order;
} attention_case;

/* What one way of computing leaves. */
typedef struct outcome {
    float *y, *lse, *dw, *db;
    void *att, *datt, *dqkv;
} outcome;

typedef struct attention_run {
    fo_group *g;
    const setting *s;
    const attention_case *c;
    int64_t rows, mine, in;
    int heads, first_head;
    void *qkv, *dy;
    float *w, *bias;
} attention_run;

static outcome make_outcome(const attention_run *r)
{
    fo_group *g = r->g;
    fo_dtype t = r->s->dtype;
    return (outcome){.y = random_matrix(g, r->mine * r->c->out, FO_F32, 0),
                     .lse = random_matrix(g, r->rows * r->heads, FO_F32, 0),
                     .dw = random_matrix(g, r->in * r->c->out, FO_F32, 0),
                     .db = random_matrix(g, r->c->out, FO_F32, 0),
                     .att = random_matrix(g, r->rows * r->in, t, 0),
                     .datt = random_matrix(g, r->rows * r->in, t, 0),
                     .dqkv = random_matrix(g, 3 * r->rows * r->in, t, 0)};
}

static void free_outcome(fo_group *g, outcome *o)
{
    void *memory[] = {o->y, o->lse, o->dw, o->db, o->att, o->datt, o->dqkv};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        fo_group_free(g, memory[i]);
}

static fo_status attend(const attention_run *r, const char *overlap, bool first, outcome *o)
{
    const attention_case *c = r->c;
    fo_plan_desc desc = {.op = FO_ATTENTION_FORWARD,
                         .rows = r->rows,
                         .in = r->in,
                         .out = c->out,
                         .dtype = r->s->dtype,
                         .wire = r->s->wire,
                         .overlap = overlap,
                         .attention = {.batch = c->batch,
                                       .context = c->context,
                                       .heads = r->heads,
                                       .head_dim = c->head_dim,
                                       .head_offset = r->first_head,
                                       .total_heads = c->heads,
                                       .dropout = c->dropout,
                                       .order = c->order,
                                       .first = first}};
    size_t t = fo_dtype_size(r->s->dtype);
    memset(o->y, 0xff, (size_t)(r->mine * c->out) * 4);
    memset(o->att, 0xff, (size_t)(r->rows * r->in) * t);
    memset(o->dqkv, 0xff, (size_t)(3 * r->rows * r->in) * t);
    memset(o->dw, 0, (size_t)(r->in * c->out) * 4);
    memset(o->db, 0, (size_t)c->out * 4);
    fo_status status = execute(r->g, desc,
                               &(fo_plan_args){.x = r->qkv,
                                               .w = r->w,
                                               .bias = r->bias,
                                               .y = o->y,
                                               .att = o->att,
                                               .lse = o->lse,
                                               .dropout_key = 77});
    desc.op = FO_ATTENTION_BACKWARD;
    if (status == FO_OK)
        status = execute(r->g, desc,
                         &(fo_plan_args){.x = o->att,
                                         .w = r->w,
                                         .dy = r->dy,
                                         .dx = o->datt,
                                         .dw = o->dw,
                                         .db = o->db,
                                         .qkv = r->qkv,
                                         .lse = o->lse,
                                         .dqkv = o->dqkv,
                                         .dropout_key = 77});
    return status;
}

static fo_status equal_outcomes(const attention_run *r, const char *overlap, const outcome *a,
                                const outcome *b)
{
    int64_t t = (int64_t)fo_dtype_size(r->s->dtype), out = r->c->out;
    const struct {
        const char *name;
        const void *a, *b;
        int64_t bytes;
    } all[] = {{"y", a->y, b->y, r->mine * out * 4},
               {"att", a->att, b->att, r->rows * r->in * t},
               {"lse", a->lse, b->lse, r->rows * r->heads * 4},
               {"datt", a->datt, b->datt, r->rows * r->in * t},
               {"dqkv", a->dqkv, b->dqkv, 3 * r->rows * r->in * t},
               {"dw", a->dw, b->dw, r->in * out * 4},
               {"db", a->db, b->db, out * 4}};
    fo_status status = FO_OK;
    for (size_t i = 0; status == FO_OK && i < sizeof all / sizeof *all; i++)
        status = same(r->g, all[i].name, overlap, all[i].a, all[i].b, (size_t)all[i].bytes);
    return status;
}

/* The projection of what attention gave is the row-parallel operator's. */
static fo_status equals_row_forward(const attention_run *r, const outcome *o)
{
    fo_plan_desc desc = {.op = FO_ROW_FORWARD,
                         .rows = r->rows,
                         .in = r->in,
                         .out = r->c->out,
                         .dtype = r->s->dtype,
                         .wire = r->s->wire,
                         .overlap = "none"};
    float *y = random_matrix(r->g, r->mine * r->c->out, FO_F32, 0);
    fo_status status =
        execute(r->g, desc, &(fo_plan_args){.x = o->att, .w = r->w, .bias = r->bias, .y = y});
    if (status == FO_OK)
        status = same(r->g, "y", "row forward", y, o->y, (size_t)(r->mine * r->c->out) * 4);
    fo_group_free(r->g, y);
    return status;
}

static fo_status run_attention(fo_group *g, const setting *s, const attention_case *c)
{
    int rank = fo_group_rank(g), ranks = fo_group_size(g);
    attention_run r = {.g = g, .s = s, .c = c, .rows = c->batch * c->context};
    uint64_t own = 100 * (uint64_t)(rank + 1);
    r.heads = (int)fo_shard_rows(c->heads, ranks, rank);
    r.first_head = (int)fo_shard_begin(c->heads, ranks, rank);
    r.in = (int64_t)r.heads * c->head_dim;
    r.mine = fo_shard_rows(r.rows, ranks, rank);
    r.qkv = random_matrix(g, 3 * r.rows * r.in, s->dtype, own + 1);
    r.dy = random_matrix(g, r.mine * c->out, s->dtype, own + 2);
    r.w = random_matrix(g, r.in * c->out, FO_F32, own + 3);
    r.bias = random_matrix(g, c->out, FO_F32, 4);
    outcome reference = make_outcome(&r), other = make_outcome(&r);
    fo_status status = attend(&r, "none", false, &reference);
    if (status == FO_OK)
        status = equals_row_forward(&r, &reference);
    for (int i = 0; status == FO_OK && strategies[i]; i++)
        for (int first = 0; status == FO_OK && first < 2; first++) {
            if (skipped(s, strategies[i]))
                continue;
            status = attend(&r, strategies[i], first, &other);
            if (status == FO_OK)
                status = equal_outcomes(&r, strategies[i], &reference, &other);
        }
    free_outcome(g, &reference);
    free_outcome(g, &other);
    void *memory[] = {r.qkv, r.dy, r.w, r.bias};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        fo_group_free(g, memory[i]);
    return status;
}

static fo_status attentions(fo_group *g, void *arg)
{
    static const attention_case cases[] = {{3, 70, 4, 8, 12, 0.0f, FO_ROWS_STRAIGHT},
                                           {4, 64, 2, 16, 8, 0.1f, FO_ROWS_STRAIGHT},
                                           {1, 333, 5, 7, 9, 0.0f, FO_ROWS_STRAIGHT},
                                           {1, 333, 5, 7, 9, 0.0f, FO_ROWS_BALANCED},
                                           {2, 200, 3, 8, 24, 0.2f, FO_ROWS_BALANCED},
                                           {1, 1, 1, 4, 3, 0.0f, FO_ROWS_BALANCED},
                                           {1, 1024, 4, 8, 16, 0.0f, FO_ROWS_BALANCED}};
    fo_status status = FO_OK;
    for (size_t i = 0; status == FO_OK && i < sizeof cases / sizeof *cases; i++)
        status = run_attention(g, arg, &cases[i]);
    return status;
}

/* ---- suites ----------------------------------------------------------------------------------------- */

static void run_suite(fo_rank_main work, const char *transport, const char *kernel, int ranks,
                      setting s)
{
    fo_group_options options = {
        .ranks = ranks, .threads = 1, .transport = transport, .kernel = kernel, .deadline_s = 30};
    if (fo_group_run(&options, work, &s) != FO_OK)
        fail_msg("%s/%s/N=%d: %s", transport, kernel, ranks, fo_last_error());
}

static void everywhere(fo_rank_main work)
{
    assert_true(count_of(strategies) > 4);
    for (int ranks = 1; ranks <= 5; ranks++)
        run_suite(work, "self", "ref", ranks, (setting){FO_F32, FO_F32, true});
    for (int ranks = 2; ranks <= 4; ranks++)
        run_suite(work, "shm", "onednn", ranks, (setting){FO_BF16, FO_BF16, false});
    run_suite(work, "shm", "onednn", 3, (setting){FO_F32, FO_F32, true});
    run_suite(work, "self", "onednn", 2, (setting){FO_BF16, FO_F32, true});
}

static void mlp_is_its_two_layers(void **state)
{
    (void)state;
    everywhere(mlps);
}

static void joint_is_dgrad_and_wgrad(void **state)
{
    (void)state;
    everywhere(joints);
}

static void attention_is_the_same_by_any_slices(void **state)
{
    (void)state;
    everywhere(attentions);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(mlp_is_its_two_layers),
                                       cmocka_unit_test(joint_is_dgrad_and_wgrad),
                                       cmocka_unit_test(attention_is_the_same_by_any_slices)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
