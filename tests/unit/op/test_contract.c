/* Corners of what plan.h promises: arguments that an operation does not have, empty shares and shards, a peer
 * that comes too late, reports that are reset while somebody records. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <time.h>

#include "base/error.h"
#include "flashoverlap/plan.h"
#include "flashoverlap/trace.h"

enum { M = 4, IN = 8, OUT = 8, WIDE = 512 };

static fo_status group_of(int ranks, const char *transport, double deadline_s, fo_rank_main work)
{
    fo_group_options options = {.ranks = ranks,
                                .threads = 1,
                                .transport = transport,
                                .deadline_s = deadline_s};
    return fo_group_run(&options, work, NULL);
}

static void holds(const char *transport, fo_rank_main work)
{
    if (group_of(2, transport, 10, work) != FO_OK)
        fail_msg("%s: %s", transport, fo_last_error());
}

/* One structure of arguments may serve the forward and the backward pass of a layer. */
static fo_status bias_is_not_added_to_dx(fo_group *g, void *arg)
{
    static const fo_op ops[] = {FO_COLUMN_BACKWARD, FO_COLUMN_DGRAD};
    float x[M * IN] = {0}, w[IN * OUT] = {0}, dy[M * OUT] = {0}, dx[M * IN], dw[IN * OUT] = {0};
    float db[OUT] = {0}, bias[OUT];
    (void)arg;
    for (int i = 0; i < OUT; i++)
        bias[i] = 5;
    fo_status status = FO_OK;
    for (int i = 0; status == FO_OK && i < 2; i++) {
        fo_plan_desc desc = {.op = ops[i], .rows = M, .in = IN, .out = OUT};
        fo_plan_args args = {.x = x, .w = w, .dy = dy, .dx = dx, .dw = dw, .db = db, .bias = bias};
        fo_plan *plan;
        status = fo_plan_create(g, &desc, &plan);
        if (status == FO_OK)
            status = fo_plan_execute(plan, &args);
        if (status == FO_OK && dx[0] != 0)
            status = fo_base_error(FO_INTERNAL, "op %d: dx[0] is %g, expected 0", (int)ops[i],
                                   (double)dx[0]);
        fo_plan_destroy(plan);
    }
    return status;
}

/* A rank without hidden features has nothing to keep of them. */
static fo_status an_empty_share_needs_no_memory(fo_group *g, void *arg)
{
    bool empty = fo_group_rank(g) != 0;
    float x[2] = {-1, -1}, w[1] = {1}, w2[1] = {1}, y[2], pre[2], act[2];
    fo_plan_desc desc = {
        .op = FO_MLP_FORWARD, .rows = 2, .in = 1, .out = 1, .hidden = !empty, .act = FO_GELU};
    fo_plan_args args = {.x = x, .y = y};
    fo_plan *plan;
    (void)arg;
    if (!empty)
        args = (fo_plan_args){.x = x, .y = y, .w = w, .w2 = w2, .pre = pre, .act = act};
    fo_status status = fo_plan_create(g, &desc, &plan);
    if (status == FO_OK)
        status = fo_plan_execute(plan, &args);
    if (status == FO_OK && (y[0] > -0.158f || y[0] < -0.159f))
        status = fo_base_error(FO_INTERNAL, "y is %g, expected gelu(-1)", (double)y[0]);
    fo_plan_destroy(plan);
    return status;
}

/* One row for two ranks: the other one's shard is not there, and is not read. */
static fo_status an_empty_shard_is_not_read(fo_group *g, void *arg)
{
    bool empty = fo_group_rank(g) != 0;
    fo_plan_desc desc = {.op = FO_COLUMN_FORWARD, .rows = 1, .in = 1 << 16, .out = 4};
    float *x = malloc(empty ? 1 : sizeof *x << 16), *w = calloc(4 << 16, sizeof *w), y[4];
    fo_plan_args args = {.x = x, .w = w, .y = y};
    fo_plan *plan;
    (void)arg;
    for (int i = 0; !empty && i < 1 << 16; i++)
        x[i] = 1;
    fo_status status = fo_plan_create(g, &desc, &plan);
    if (status == FO_OK)
        status = fo_plan_execute_local(plan, &args);
    fo_plan_destroy(plan);
    free(x);
    free(w);
    return status;
}

static void corners(void **state)
{
    static const fo_rank_main all[] = {bias_is_not_added_to_dx, an_empty_share_needs_no_memory,
                                       an_empty_shard_is_not_read};
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        holds("self", all[i]);
        holds("shm", all[i]);
    }
}

/* Rank 1 has its result, none, at once; what it sent is still to be read when its plan goes. */
static fo_status late(fo_group *g, void *arg)
{
    fo_plan_desc desc = {.op = FO_REDUCE_SCATTER, .rows = 1, .in = WIDE, .overlap = "flash"};
    float x[WIDE], y[WIDE];
    fo_plan *plan;
    (void)arg;
    for (int i = 0; i < WIDE; i++)
        x[i] = 1;
    fo_status status = fo_plan_create(g, &desc, &plan);
    if (status == FO_OK && fo_group_rank(g) == 0)
        nanosleep(&(struct timespec){.tv_sec = 2}, NULL);
    if (status == FO_OK)
        status = fo_plan_execute(plan, &(fo_plan_args){.x = x, .y = y});
    if (status == FO_OK && fo_group_rank(g) == 0 && y[0] != 2)
        status = fo_base_error(FO_INTERNAL, "y is %g, expected 2", (double)y[0]);
    fo_plan_destroy(plan);
    return status;
}

static void a_peer_that_is_late(void **state)
{
    (void)state;
    const char *transports[] = {"self", "shm"};
    for (int i = 0; i < 2; i++) {
        if (group_of(2, transports[i], 20, late) != FO_OK)
            fail_msg("in time: %s", fo_last_error());
        fo_status status = group_of(2, transports[i], 0.5, late);
        if (status != FO_PEER && status != FO_TIMEOUT)
            fail_msg("too late, %s: %d %s", transports[i], (int)status, fo_last_error());
    }
}

/* Executions are numbered since the plan was made, whatever happens to its report. */
static fo_status record(fo_group *g, void *arg)
{
    fo_plan_desc desc = {.op = FO_REDUCE_SCATTER, .rows = 64, .in = WIDE, .overlap = "flash"};
    float *x = calloc(64 * WIDE, sizeof *x), *y = calloc(64 * WIDE, sizeof *y);
    fo_plan_args args = {.x = x, .y = y};
    fo_timeline *t = NULL;
    fo_plan *plan;
    (void)arg;
    fo_status status = fo_plan_create(g, &desc, &plan);
    if (status == FO_OK)
        status = fo_trace_start(g, 0);
    for (int i = 0; status == FO_OK && i < 3; i++) {
        status = fo_plan_execute(plan, &args);
        fo_plan_report_reset(plan);
    }
    if (status == FO_OK)
        status = fo_trace_stop(g, &t);
    for (int64_t i = 0; status == FO_OK && t && i < t->count; i++)
        for (int64_t k = 0; status == FO_OK && k < i; k++)
            if (t->events[i].flow && t->events[i].flow == t->events[k].flow &&
                t->events[i].kind == t->events[k].kind)
                status = fo_base_error(FO_INTERNAL, "events %lld and %lld have one flow",
                                       (long long)k, (long long)i);
    fo_timeline_free(t);
    fo_plan_destroy(plan);
    free(x);
    free(y);
    return status;
}

static void flows_are_not_repeated(void **state)
{
    (void)state;
    holds("self", record);
    holds("shm", record);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(corners),
                                       cmocka_unit_test(a_peer_that_is_late),
                                       cmocka_unit_test(flows_are_not_repeated)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
