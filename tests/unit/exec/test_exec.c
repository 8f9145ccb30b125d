/* The executor against the transports' faults: lost messages end in one sentence, late ones change nothing,
 * and what it reports adds up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "exec/exec.h"

enum { ROWS = 12, WIDTH = 5 };

/* A reduce-scatter of integers in float32: rank r's partial of (row, col) is 1000 r + 10 row + col, so that
 * every element is its own and the sum is exact. */
typedef struct job {
    const char *strategy;
    fo_fault fault;
    int faulty; /* rank whose endpoint is wrapped, -1: none */
    int64_t tile;
} job;

static fo_status compute(void *context, const fo_exec_tile *tile)
{
    int rank = *(const int *)context;
    float *out = tile->out;
    const float *in = tile->in, *add = tile->add;
    for (int64_t i = 0; i < tile->rows * WIDTH; i++) {
        float value = tile->task->kind == FO_TASK_COMPUTE
                          ? (float)(1000 * rank + 10 * (tile->row + i / WIDTH) + i % WIDTH)
                          : in[i];
        out[i] = value + (add ? add[i] : 0);
    }
    return FO_OK;
}

static fo_status check(int ranks, int64_t begin, int64_t rows, const float *y)
{
    for (int64_t i = 0; i < rows * WIDTH; i++) {
        float wanted = (float)(1000 * ranks * (ranks - 1) / 2 +
                               ranks * (10 * (begin + i / WIDTH) + i % WIDTH));
        if (y[i] != wanted)
            return fo_base_error(FO_INTERNAL, "element %lld is %g, expected %g", (long long)i,
                                 (double)y[i], (double)wanted);
    }
    return FO_OK;
}

static fo_status run_program(fo_endpoint *endpoint, const job *j)
{
    int ranks = endpoint->size, rank = endpoint->rank;
    fo_schedule_desc desc = {
        .pattern = FO_PATTERN_REDUCE, .ranks = ranks, .rows = ROWS, .quantum = 1, .stream_rows = 2};
    fo_program *program = NULL;
    fo_exec *exec = NULL;
    fo_status status = fo_strategy_parse(j->strategy, &desc.strategy);
    if (status == FO_OK)
        status = fo_schedule_build(&desc, rank, &program);
    fo_exec_desc ed = {.endpoint = endpoint,
                       .program = program,
                       .tag = 40,
                       .tile_rows = {j->tile, j->tile},
                       .compute = compute,
                       .name = "test sum"};
    for (int r = 0; r < FO_BUFFER_ROLES; r++)
        ed.row_bytes[r] = WIDTH * 4;
    if (status == FO_OK)
        status = fo_exec_create(&ed, &exec);
    float y[ROWS * WIDTH], x[ROWS * WIDTH] = {0};
    void *external[FO_BUFFER_ROLES] = {0};
    external[FO_BUFFER_FULL] = x;
    external[FO_BUFFER_OUTPUT] = y;
    for (int run = 0; status == FO_OK && run < 3; run++) {
        memset(y, 0xff, sizeof y);
        status = fo_exec_run(exec, external, &rank);
        if (status == FO_OK)
            status = check(ranks, fo_shard_begin(ROWS, ranks, rank),
                           fo_shard_rows(ROWS, ranks, rank), y);
    }
    fo_exec_stats stats = {0};
    if (exec)
        fo_exec_stats_get(exec, &stats);
    if (status == FO_OK && (stats.runs != 3 || stats.tasks != 3 * program->task_count ||
                            stats.total_ns < stats.compute_ns + stats.exposed_ns))
        status = fo_base_error(FO_INTERNAL, "the report does not add up");
    fo_exec_destroy(exec);
    fo_schedule_free(program);
    return status;
}

static fo_status rank_main(fo_endpoint *endpoint, void *arg)
{
    const job *j = arg;
    if (endpoint->rank != j->faulty)
        return run_program(endpoint, j);
    fo_endpoint *wrapped;
    fo_status status = fo_transport_hook_fault(endpoint, &j->fault, &wrapped);
    if (status == FO_OK) {
        status = run_program(wrapped, j);
        fo_transport_hook_destroy(wrapped);
    }
    return status;
}

static fo_status launch(const char *transport, int ranks, double deadline, job j)
{
    fo_transport_options options = {.ranks = ranks, .deadline_s = deadline, .memory = 16 << 20};
    return fo_transport_find(transport)->launch(&options, rank_main, &j);
}

static const char *const strategies[] = {"none", "slice:3", "ring", "flash", "flash:2", "direct"};

static void sums_are_exact_whatever_the_tiles(void **state)
{
    (void)state;
    for (size_t s = 0; s < sizeof strategies / sizeof *strategies; s++)
        for (int ranks = 1; ranks <= 7; ranks++)
            for (int64_t tile = 1; tile <= 5; tile += 2)
                if (launch("self", ranks, 20, (job){strategies[s], {0}, -1, tile}) != FO_OK)
                    fail_msg("%s, %d ranks: %s", strategies[s], ranks, fo_last_error());
}

static void late_messages_change_nothing(void **state)
{
    (void)state;
    for (size_t s = 0; s < sizeof strategies / sizeof *strategies; s++) {
        job j = {strategies[s], {.seed = s, .delay_ns = 300000}, 1, 2};
        if (launch("shm", 3, 20, j) != FO_OK)
            fail_msg("%s: %s", strategies[s], fo_last_error());
    }
}

static void a_lost_message_is_named(void **state)
{
    (void)state;
    for (size_t s = 0; s < sizeof strategies / sizeof *strategies; s++) {
        job j = {strategies[s], {.drop_every = 1}, 0, 2};
        fo_status status = launch("shm", 2, 0.3, j);
        assert_int_equal(status, FO_TIMEOUT);
        assert_non_null(strstr(fo_last_error(), "test sum"));
        assert_non_null(strstr(fo_last_error(), "slice"));
        assert_non_null(strstr(fo_last_error(), "rank 0"));
    }
}

static void a_dying_rank_ends_all(void **state)
{
    (void)state;
    job j = {"flash", {.fail_at = 2}, 2, 2};
    fo_status status = launch("shm", 3, 20, j);
    assert_int_not_equal(status, FO_OK);
    assert_int_not_equal(status, FO_TIMEOUT);
    assert_non_null(strstr(fo_last_error(), "rank 2"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums_are_exact_whatever_the_tiles),
                                       cmocka_unit_test(late_messages_change_nothing),
                                       cmocka_unit_test(a_lost_message_is_named),
                                       cmocka_unit_test(a_dying_rank_ends_all)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
