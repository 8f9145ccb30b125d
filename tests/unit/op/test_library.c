/* Strategies library and library:k over a transport whose collectives are made of messages here: naive, adding in
 * rank order, and late: a collective happens only when it was asked for a few times, and until then its results are
 * garbage. Against `none`, to the bit where nothing is added, and against float64 sums. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "base/error.h"
#include "base/random.h"
#include "flashoverlap/plan.h"
#include "group/state.h"
#include "kernel/kernel.h"

#define CHECK(condition)                                                               \
    do                                                                                 \
        if (!(condition))                                                              \
            return fo_base_error(FO_INTERNAL, "%s:%d: not so: %s", __FILE__, __LINE__, \
                                 #condition);                                          \
    while (0)
#define TRY(call)                      \
    do {                               \
        fo_status try_status = (call); \
        if (try_status != FO_OK)       \
            return try_status;         \
    } while (0)

/* ---- a transport with collectives ------------------------------------------------------------------- */

enum { LOOKS = 3, FAKE = 77, IN_FLIGHT = 1024, TAG = 0x12345678 };

typedef struct late {
    fo_collective what;
    fo_request *request;
    uint64_t sent; /* hash of what is sent, when it was posted */
    int looks;
} late;

/* Of a rank: a thread of "self". */
static _Thread_local struct {
    fo_transport_ops ops;
    const fo_transport_ops *real;
    late queue[IN_FLIGHT];
    int first, count;   /* not yet done */
    int collectives;    /* so far */
    bool broken, stuck; /* what to do next: fail, never end */
} fake;

static uint64_t hash(uint64_t h, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++)
        h = (h ^ at[i]) * 0x100000001b3u;
    return h;
}

static int64_t total(const fo_endpoint *e, const int64_t *counts)
{
    int64_t sum = 0;
    for (int r = 0; r < e->size; r++)
        sum += counts[r];
    return sum;
}

static size_t sent_bytes(const fo_endpoint *e, const fo_collective *c)
{
    bool gather = c->kind == FO_COLLECTIVE_ALL_GATHER;
    return (size_t)(gather ? c->counts[e->rank] : total(e, c->counts)) * fo_dtype_size(c->dtype);
}

static size_t received_bytes(const fo_endpoint *e, const fo_collective *c)
{
    bool gather = c->kind == FO_COLLECTIVE_ALL_GATHER;
    return (size_t)(gather ? total(e, c->counts) : c->counts[e->rank]) * fo_dtype_size(c->dtype);
}

static double get(const void *at, fo_dtype dtype, int64_t index)
{
    return dtype == FO_BF16 ? fo_base_bf16_to_f32(((const fo_bf16 *)at)[index])
                            : ((const float *)at)[index];
}

static void put(void *at, fo_dtype dtype, int64_t index, double v)
{
    if (dtype == FO_BF16)
        ((fo_bf16 *)at)[index] = fo_base_bf16_from_f32((float)v);
    else
        ((float *)at)[index] = (float)v;
}

static void add(void *sum, const void *x, fo_dtype dtype, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        put(sum, dtype, i, (float)get(sum, dtype, i) + (float)get(x, dtype, i));
}

/* Sends a piece to every rank and takes one from every rank, all through messages; reducing, adds them up. */
static fo_status exchange(fo_endpoint *e, const fo_collective *c, fo_request *requests, char *space)
{
    bool gather = c->kind == FO_COLLECTIVE_ALL_GATHER;
    size_t size = fo_dtype_size(c->dtype), mine = (size_t)c->counts[e->rank] * size, at = 0;
    for (int r = 0; r < e->size; r++) {
        size_t theirs = (size_t)c->counts[r] * size;
        const char *send = (const char *)c->send + (gather ? 0 : at);
        char *recv = gather ? (char *)c->recv + at : space + (size_t)r * mine;
        TRY(fake.real->isend(e, &requests[2 * r], r, TAG, send, gather ? mine : theirs, 0));
        TRY(fake.real->irecv(e, &requests[2 * r + 1], r, TAG, recv, gather ? theirs : mine));
        at += theirs;
    }
    for (int r = 0; r < 2 * e->size; r++)
        TRY(fo_transport_wait_request(e, &requests[r], "fake collective"));
    if (gather)
        return FO_OK;
    memcpy(c->recv, space, mine);
    for (int r = 1; r < e->size; r++)
        add(c->recv, space + (size_t)r * mine, c->dtype, c->counts[e->rank]);
    return FO_OK;
}

static fo_status perform(fo_endpoint *e, const late *l)
{
    fo_request *requests = calloc(2 * (size_t)e->size, sizeof *requests);
    char *space = malloc(received_bytes(e, &l->what) * (size_t)e->size + 1);
    fo_status status = FO_OK;
    if (hash(1, l->what.send, sent_bytes(e, &l->what)) != l->sent)
        status =
            fo_base_error(FO_INTERNAL, "what collective %d sends was changed before it was done",
                          fake.first);
    if (status == FO_OK)
        status = exchange(e, &l->what, requests, space);
    free(requests);
    free(space);
    return status;
}

static fo_status fake_collective(fo_endpoint *e, fo_request *request, const fo_collective *c)
{
    if (fake.broken)
        return fo_base_error(FO_INTERNAL, "the library has lost its mind");
    for (int r = 0; r < e->size; r++)
        CHECK(c->counts[r] >= 0);
    CHECK(total(e, c->counts) > 0 && fake.count < IN_FLIGHT);
    memset(c->recv, 0xcc, received_bytes(e, c));
    request->kind = FAKE;
    fake.collectives++;
    late l = {*c, request, hash(1, c->send, sent_bytes(e, c)), 0};
    if (c->blocking) {
        CHECK(fake.first == fake.count);
        return perform(e, &l);
    }
    fake.queue[fake.count++] = l;
    return FO_OK;
}

/* In the order they were started, whichever is asked for: as one communicator does. */
static fo_status fake_test(fo_endpoint *e, fo_request *request)
{
    if (request->kind != FAKE)
        return fake.real->test(e, request);
    for (int i = fake.first; i < fake.count; i++)
        if (fake.queue[i].request == request && (fake.stuck || ++fake.queue[i].looks < LOOKS))
            return FO_IN_PROGRESS;
    for (bool more = true; more && fake.first < fake.count;) {
        more = fake.queue[fake.first].request != request;
        TRY(perform(e, &fake.queue[fake.first]));
        fake.first++;
    }
    return FO_OK;
}

static fo_status fake_wait(fo_endpoint *e, int64_t until_ns)
{
    sched_yield();
    return fake.first < fake.count ? fake.real->progress(e) : fake.real->wait(e, until_ns);
}

static void fake_begin(fo_group *group)
{
    fake.real = group->inner->ops;
    fake.ops = *fake.real;
    fake.ops.collective = fake_collective;
    fake.ops.test = fake_test;
    fake.ops.wait = fake_wait;
    fake.collectives = fake.first = fake.count = 0;
    fake.broken = fake.stuck = false;
    group->inner->ops = &fake.ops;
}

static void fake_end(fo_group *group)
{
    group->inner->ops = fake.real;
}

/* ---- an operation and its matrices ------------------------------------------------------------------- */

static double value(int stream, int rank, int64_t index)
{
    uint64_t number = (uint64_t)stream + 100 * (uint64_t)(rank + 1);
    return fo_base_random_uniform(13, number, (uint64_t)index) - 0.5f;
}

static double stored(fo_dtype dtype, double v)
{
    return dtype == FO_BF16 ? fo_base_bf16_to_f32(fo_base_bf16_from_f32((float)v)) : (float)v;
}

typedef struct job {
    fo_group *group;
    fo_plan_desc desc;
    int64_t mine, begin;
    fo_plan_args args;
    struct {
        void *data;
        size_t bytes;
        int64_t count;
        fo_dtype dtype;
        bool summed; /* by the library */
    } result[4];
    int results;
    void *memory[16];
    int memories;
} job;

static void *matrix(job *j, int64_t count, fo_dtype dtype, int stream, int rank, int64_t first)
{
    void *x = fo_group_alloc(j->group, (size_t)count * fo_dtype_size(dtype) + 64);
    for (int64_t i = 0; x && stream && i < count; i++)
        put(x, dtype, i, value(stream, rank, first + i));
    return j->memory[j->memories++] = x;
}

static void *result(job *j, int64_t count, fo_dtype dtype, bool summed)
{
    void *data = matrix(j, count, dtype, 0, 0, 0);
    j->result[j->results].data = data;
    j->result[j->results].bytes = (size_t)count * fo_dtype_size(dtype);
    j->result[j->results].count = count;
    j->result[j->results].dtype = dtype;
    j->result[j->results++].summed = summed;
    return data;
}

static void produce(void *arg, int64_t row, int64_t rows, float *out)
{
    const job *j = arg;
    int rank = fo_group_rank(j->group);
    for (int64_t i = 0; i < rows * j->desc.in; i++)
        out[i] = (float)value(4, rank, row * j->desc.in + i);
}

enum { W = 1, BIAS, SHARD, LOCAL, PRE }; /* streams */

static void make(job *j, bool produces)
{
    const fo_plan_desc *d = &j->desc;
    int rank = fo_group_rank(j->group);
    int64_t rows = d->rows, in = d->in, out = d->out, of = j->begin, mine = j->mine;
    fo_dtype t = d->dtype;
    fo_plan_args *a = &j->args;
    a->w = matrix(j, in * out, FO_F32, W, rank, 0);
    bool gelu = d->act == FO_GELU;
    switch (d->op) {
    case FO_ROW_FORWARD:
        a->x = matrix(j, rows * in, t, LOCAL, rank, 0);
        a->bias = matrix(j, out, FO_F32, BIAS, 0, 0);
        a->y = result(j, mine * out, FO_F32, true);
        break;
    case FO_COLUMN_FORWARD:
        a->x = matrix(j, mine * in, t, SHARD, 0, of * in);
        a->bias = matrix(j, out, FO_F32, BIAS, 0, 0);
        a->y = result(j, rows * out, d->y_dtype, false);
        a->pre = gelu ? result(j, rows * out, t, false) : NULL;
        break;
    case FO_ROW_BACKWARD:
        a->x = matrix(j, rows * in, t, LOCAL, rank, 0);
        a->dy = matrix(j, mine * out, t, SHARD, 0, of * out);
        a->pre = gelu ? matrix(j, rows * in, t, PRE, rank, 0) : NULL;
        a->dx = result(j, rows * in, t, false);
        break;
    case FO_COLUMN_BACKWARD:
    case FO_COLUMN_DGRAD:
    case FO_COLUMN_WGRAD:
        a->x = matrix(j, mine * in, t, SHARD, 0, of * in);
        a->dy = matrix(j, rows * out, t, LOCAL, rank, 0);
        a->dx = d->op == FO_COLUMN_WGRAD ? NULL : result(j, mine * in, FO_F32, true);
        break;
    case FO_ALL_GATHER:
        a->x = matrix(j, mine * in, t, SHARD, 0, of * in);
        a->y = result(j, rows * in, t, false);
        break;
    case FO_REDUCE_SCATTER:
        a->x = produces ? NULL : matrix(j, rows * in, FO_F32, LOCAL, rank, 0);
        a->produce = produces ? produce : NULL;
        a->produce_arg = j;
        a->bias = matrix(j, in, FO_F32, BIAS, 0, 0);
        a->y = result(j, mine * in, FO_F32, true);
        break;
    default: break;
    }
    if (d->op == FO_ROW_BACKWARD || d->op == FO_COLUMN_BACKWARD || d->op == FO_COLUMN_WGRAD) {
        a->dw = result(j, in * out, FO_F32, false);
        a->db = result(j, out, FO_F32, false);
    }
}

static void drop(job *j)
{
    for (int i = 0; i < j->memories; i++)
        fo_group_free(j->group, j->memory[i]);
}

/* Element (row of the own shard, column) of what is added up over the ranks. */
static double expected(const job *j, int64_t row, int64_t col)
{
    const fo_plan_desc *d = &j->desc;
    fo_dtype t = d->dtype;
    double sum = 0;
    row += j->begin;
    for (int q = 0; q < fo_group_size(j->group); q++)
        if (d->op == FO_REDUCE_SCATTER)
            sum += (float)value(LOCAL, q, row * d->in + col);
        else if (d->op == FO_ROW_FORWARD)
            for (int64_t k = 0; k < d->in; k++)
                sum += stored(t, value(LOCAL, q, row * d->in + k)) *
                       stored(t, value(W, q, col * d->in + k));
        else
            for (int64_t k = 0; k < d->out; k++)
                sum += stored(t, value(LOCAL, q, row * d->out + k)) *
                       stored(t, value(W, q, k * d->in + col));
    bool bias = d->op == FO_REDUCE_SCATTER || d->op == FO_ROW_FORWARD;
    return bias ? sum + (float)value(BIAS, 0, col) : sum;
}

static fo_status check_sum(const job *j, const float *found)
{
    const fo_plan_desc *d = &j->desc;
    int64_t width = d->op == FO_ROW_FORWARD ? d->out : d->in;
    double tolerance = d->wire == FO_BF16 ? 3e-2 : 2e-5;
    for (int64_t i = 0; i<j->mine * width; i += j->mine * width> 1000 ? 17 : 1) {
        double wanted = expected(j, i / width, i % width);
        if (!(fabs(found[i] - wanted) <= tolerance * (1 + fabs(wanted))))
            return fo_base_error(FO_INTERNAL, "element %lld is %g, expected %g", (long long)i,
                                 (double)found[i], wanted);
    }
    return FO_OK;
}

/* ---- against none ------------------------------------------------------------------------------------ */

static bool is_sum(const job *j, int i)
{
    fo_dtype t = j->result[i].dtype;
    return t == FO_F32 && (j->result[i].data == j->args.dw || j->result[i].data == j->args.db);
}

/* Executes under a strategy; results into copies[i]. */
static fo_status execute(job *j, const char *overlap, void **copies, int64_t *bytes, int times)
{
    fo_plan *plan;
    fo_report report;
    j->desc.overlap = overlap;
    TRY(fo_plan_create(j->group, &j->desc, &plan));
    fo_status status = FO_OK;
    for (int n = 0; status == FO_OK && n < times; n++) {
        for (int i = 0; i < j->results; i++)
            memset(j->result[i].data, is_sum(j, i) ? 0 : 0xff, j->result[i].bytes);
        status = fo_plan_execute(plan, &j->args);
    }
    for (int i = 0; status == FO_OK && i < j->results; i++)
        memcpy(copies[i], j->result[i].data, j->result[i].bytes);
    *bytes = fo_plan_wire_bytes(plan);
    fo_plan_report(plan, &report);
    if (status == FO_OK && (report.executions != times || report.sent_bytes != times * *bytes ||
                            report.total_ns < report.exposed_ns + report.compute_ns))
        status = fo_base_error(FO_INTERNAL, "the report does not add up");
    if (status == FO_OK)
        status = fo_plan_execute_local(plan, &j->args);
    fo_plan_destroy(plan);
    return status;
}

/* Two ranks add without a difference when nothing is rounded: a + b is b + a. */
static bool same_bits(const job *j, int i)
{
    return !j->result[i].summed || (fo_group_size(j->group) <= 2 && j->desc.wire == FO_F32);
}

static fo_status compare(const job *j, void *const *none, void *const *found)
{
    for (int i = 0; i < j->results; i++) {
        if (same_bits(j, i) && memcmp(none[i], found[i], j->result[i].bytes) != 0)
            return fo_base_error(FO_INTERNAL, "result %d has other bits than under none", i);
        if (j->result[i].summed)
            TRY(check_sum(j, found[i]));
    }
    return FO_OK;
}

/* As many as slice:k sends, of all its messages. */
static fo_status check_bytes(job *j, const char *overlap, int64_t bytes, void **copies)
{
    char slice[32] = "none";
    int64_t wanted;
    if (strchr(overlap, ':'))
        snprintf(slice, sizeof slice, "slice%s", strchr(overlap, ':'));
    TRY(execute(j, slice, copies, &wanted, 1));
    if (bytes != wanted)
        return fo_base_error(FO_INTERNAL, "%lld bytes sent, %s sends %lld", (long long)bytes, slice,
                             (long long)wanted);
    return FO_OK;
}

static fo_status against_none(job *j)
{
    static const char *const strategies[] = {"library", "library:1", "library:3", "library:7",
                                             "library:256"};
    void *none[4], *found[4];
    int64_t bytes;
    for (int i = 0; i < 4; i++) {
        none[i] = malloc(i < j->results ? j->result[i].bytes + 1 : 1);
        found[i] = malloc(i < j->results ? j->result[i].bytes + 1 : 1);
    }
    fo_status status = execute(j, "none", none, &bytes, 1);
    for (size_t s = 0; status == FO_OK && s < sizeof strategies / sizeof *strategies; s++) {
        status = execute(j, strategies[s], found, &bytes, 2);
        if (status == FO_OK)
            status = compare(j, none, found);
        if (status == FO_OK)
            status = check_bytes(j, strategies[s], bytes, found);
        if (status != FO_OK && status != FO_PEER)
            return fo_base_error(status, "op %d, N %d, rank %d, rows %lld, wire %s, %s: %s",
                                 (int)j->desc.op, fo_group_size(j->group), fo_group_rank(j->group),
                                 (long long)j->desc.rows, fo_dtype_name(j->desc.wire),
                                 strategies[s], fo_last_error());
    }
    for (int i = 0; i < 4; i++) {
        free(none[i]);
        free(found[i]);
    }
    return status;
}

typedef struct types {
    fo_dtype dtype, wire;
} types;

static fo_status one_op(fo_group *group, fo_op op, int64_t rows, const types *t, bool variant)
{
    job j = {.group = group};
    int ranks = fo_group_size(group), rank = fo_group_rank(group);
    bool gelu = variant && (op == FO_COLUMN_FORWARD || op == FO_ROW_BACKWARD);
    j.desc = (fo_plan_desc){.op = op,
                            .rows = rows,
                            .in = 5,
                            .out = op == FO_ALL_GATHER || op == FO_REDUCE_SCATTER ? 0 : 9,
                            .dtype = t->dtype,
                            .wire = t->wire,
                            .y_dtype = variant ? FO_F32 : t->dtype,
                            .act = gelu ? FO_GELU : FO_IDENTITY};
    j.mine = fo_shard_rows(rows, ranks, rank);
    j.begin = fo_shard_begin(rows, ranks, rank);
    make(&j, variant);
    fo_status status = against_none(&j);
    drop(&j);
    return status;
}

static fo_status all_ops(fo_group *group, void *arg)
{
    static const fo_op ops[] = {FO_ROW_FORWARD,     FO_COLUMN_FORWARD, FO_ROW_BACKWARD,
                                FO_COLUMN_BACKWARD, FO_COLUMN_DGRAD,   FO_COLUMN_WGRAD,
                                FO_ALL_GATHER,      FO_REDUCE_SCATTER};
    static const int64_t rows[] = {0, 1, 3, 65, 517, 1301};
    const types *t = arg;
    fo_status status = FO_OK;
    fake_begin(group);
    for (size_t r = 0; status == FO_OK && r < sizeof rows / sizeof *rows; r++)
        for (size_t i = 0; status == FO_OK && i < sizeof ops / sizeof *ops; i++)
            for (int variant = 0; status == FO_OK && variant < 2; variant++) {
                fake.first = fake.count = 0;
                status = one_op(group, ops[i], rows[r], t, variant);
            }
    fake_end(group);
    return status;
}

static void every_operation(types t, const char *kernel)
{
    for (int ranks = 1; ranks <= 4; ranks++) {
        fo_group_options options = {
            .ranks = ranks, .threads = 1, .transport = "self", .kernel = kernel, .deadline_s = 20};
        if (fo_group_run(&options, all_ops, &t) != FO_OK)
            fail_msg("N = %d: %s", ranks, fo_last_error());
    }
}

static void operations_in_f32(void **state)
{
    (void)state;
    every_operation((types){FO_F32, FO_F32}, "ref");
}

static void operations_with_a_bf16_wire(void **state)
{
    (void)state;
    every_operation((types){FO_F32, FO_BF16}, "ref");
}

static void operations_in_bf16(void **state)
{
    (void)state;
    every_operation((types){FO_BF16, FO_BF16}, "ref");
}

/* ---- what is done meanwhile, and how it fails --------------------------------------------------------- */

static bool count_down(void *arg)
{
    int *left = arg;
    return *left > 0 && (*left)--;
}

/* Waits are filled, waits are counted, and a chunk is computed only when it has come. */
static fo_status waiting(fo_group *group, void *arg)
{
    (void)arg;
    int left = 1;
    job j = {.group = group};
    j.desc = (fo_plan_desc){
        .op = FO_COLUMN_FORWARD, .rows = 256, .in = 5, .out = 9, .overlap = "library:2"};
    j.mine = fo_shard_rows(256, fo_group_size(group), fo_group_rank(group));
    make(&j, false);
    j.args.meanwhile = count_down;
    j.args.meanwhile_arg = &left;
    fake_begin(group);
    fo_plan *plan;
    fo_report report;
    TRY(fo_plan_create(group, &j.desc, &plan));
    CHECK(strstr(fo_plan_explain(plan), "library:2") && strstr(fo_plan_explain(plan), "2 chunks"));
    TRY(fo_plan_execute(plan, &j.args));
    CHECK(left == 0 && fake.collectives == 2);
    TRY(fo_plan_execute(plan, &j.args));
    fo_plan_report(plan, &report);
    CHECK(report.executions == 2 && report.exposed_ns > 0 && report.wait_count == 0);
    fo_plan_report_reset(plan);
    fo_plan_report(plan, &report);
    CHECK(report.executions == 0 && report.total_ns == 0);
    fo_plan_destroy(plan);
    fake_end(group);
    drop(&j);
    return FO_OK;
}

static void waits_are_filled_and_counted(void **state)
{
    (void)state;
    fo_group_options options = {.ranks = 2, .transport = "self", .kernel = "ref", .deadline_s = 20};
    if (fo_group_run(&options, waiting, NULL) != FO_OK)
        fail_msg("%s", fo_last_error());
}

static fo_status refused(fo_group *group, const fo_plan_desc *desc, const char *words)
{
    fo_plan *plan;
    if (fo_plan_create(group, desc, &plan) == FO_UNSUPPORTED && !plan &&
        strstr(fo_last_error(), words))
        return FO_OK;
    return fo_base_error(FO_INTERNAL, "expected '%s', found '%s'", words, fo_last_error());
}

static fo_status refusals(fo_group *group, void *arg)
{
    (void)arg;
    fo_plan_desc desc = {.op = FO_ROW_FORWARD, .rows = 8, .in = 4, .out = 4, .overlap = "library"};
    fo_link slow = {.bytes_per_s = 1e9};
    TRY(refused(group, &desc,
                "strategy library needs a transport with collectives of its own (mpi), this group "
                "runs on self"));
    fake_begin(group);
    desc.op = FO_MLP_FORWARD;
    desc.overlap = "library:4";
    TRY(refused(group, &desc, "library:4+apart"));
    desc.op = FO_ATTENTION_FORWARD;
    desc.attention =
        (fo_plan_attention){.batch = 1, .context = 8, .heads = 1, .head_dim = 4, .total_heads = 1};
    TRY(refused(group, &desc, "attention"));
    TRY(fo_group_set_link(group, &slow));
    desc.op = FO_ROW_FORWARD;
    TRY(refused(group, &desc, "emulated"));
    fake_end(group);
    return FO_OK;
}

static void what_it_can_not_do_is_refused(void **state)
{
    (void)state;
    fo_group_options options = {.ranks = 1, .transport = "self", .kernel = "ref"};
    if (fo_group_run(&options, refusals, NULL) != FO_OK)
        fail_msg("%s", fo_last_error());
}

/* arg: the strategy; rank 1's library fails, or never ends. */
static fo_status failing(fo_group *group, void *arg)
{
    const char *overlap = arg;
    job j = {.group = group};
    fo_plan *plan;
    j.desc =
        (fo_plan_desc){.op = FO_ROW_FORWARD, .rows = 256, .in = 5, .out = 9, .overlap = overlap};
    j.mine = 128;
    make(&j, false);
    fake_begin(group);
    fake.broken = !strcmp(overlap, "library") && fo_group_rank(group) == 1;
    fake.stuck = strcmp(overlap, "library") != 0;
    TRY(fo_plan_create(group, &j.desc, &plan));
    fo_status status = fo_plan_execute(plan, &j.args);
    fo_plan_destroy(plan);
    fake_end(group);
    return status;
}

static void failures_name_what_failed(void **state)
{
    (void)state;
    fo_group_options options = {.ranks = 2, .transport = "self", .kernel = "ref", .deadline_s = 20};
    assert_int_equal(fo_group_run(&options, failing, "library"), FO_INTERNAL);
    if (!strstr(fo_last_error(), "rank 1") || !strstr(fo_last_error(), "lost its mind"))
        fail_msg("%s", fo_last_error());
    options.deadline_s = 0.3;
    assert_int_equal(fo_group_run(&options, failing, "library:2"), FO_TIMEOUT);
    if (!strstr(fo_last_error(), "reduce-scatter of chunk 0"))
        fail_msg("%s", fo_last_error());
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_it_can_not_do_is_refused),
                                       cmocka_unit_test(waits_are_filled_and_counted),
                                       cmocka_unit_test(operations_in_f32),
                                       cmocka_unit_test(operations_with_a_bf16_wire),
                                       cmocka_unit_test(operations_in_bf16),
                                       cmocka_unit_test(failures_name_what_failed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
