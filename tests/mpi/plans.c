/* Groups and plans in a job, with 4 processes: the suite of tests/unit/op/test_plan.c over MPI, and what groups
 * do there. */
#define main plans_of_one_machine
int plans_of_one_machine(void);
#include "unit/op/test_plan.c"
#undef main

#include <time.h>

#include "conformance/ranks.h"
#include "flashoverlap/job.h"
#include "group/group.h"

static void exact_over_mpi(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 4; ranks++)
        run_suite("mpi", "ref", ranks, (suite){FO_F32, FO_F32, true, f32_family});
}

static void bf16_over_mpi(void **state)
{
    (void)state;
    run_suite("mpi", "onednn", 4, (suite){FO_BF16, FO_BF16, true, ring_family});
    run_suite("mpi", "ref", 3, (suite){FO_F32, FO_BF16, false, ring_family});
}

/* ---- groups ---- */

static fo_status gather_often(fo_group *group)
{
    int rank = fo_group_rank(group), size = fo_group_size(group);
    int64_t all[4];
    for (int round = 0; round < 30; round++) {
        int64_t mine = rank * 1000 + round;
        TRY(fo_group_allgather(group, &mine, sizeof mine, all));
        for (int r = 0; r < size; r++)
            CHECK(all[r] == r * 1000 + round);
        if (round % 7 != 3)
            TRY(fo_group_barrier(group));
    }
    return FO_OK;
}

static fo_status halves(fo_group *group, void *arg)
{
    (void)arg;
    fo_group *half;
    TRY(gather_often(group));
    TRY(fo_group_split(group, fo_group_rank(group) / 2, &half));
    CHECK(fo_group_size(half) == 2 && fo_group_rank(half) == fo_group_rank(group) % 2);
    TRY(gather_often(half));
    suite s = {FO_F32, FO_F32, true, f32_family};
    TRY(run_op(half, FO_ROW_FORWARD, &shapes[3], &s));
    TRY(gather_often(group));
    TRY(run_op(group, FO_COLUMN_BACKWARD, &shapes[3], &s));
    fo_group_close(half);
    return gather_often(group);
}

static void splits(void **state)
{
    (void)state;
    fo_group_options options = {.ranks = 4, .threads = 1, .kernel = "ref", .deadline_s = 30};
    if (fo_group_run(&options, halves, NULL) != FO_OK) /* the transport chosen by itself */
        fail_msg("%s", fo_last_error());
}

static fo_status leaves(fo_group *group, void *arg)
{
    (void)arg;
    if (fo_group_rank(group) == 1)
        return fo_base_error(FO_NUMERIC, "loss is not a number at step 12");
    for (;;)
        TRY(fo_group_barrier(group));
}

static void errors(void **state)
{
    (void)state;
    fo_group_options options = {.ranks = 4, .threads = 1, .kernel = "ref", .deadline_s = 30};
    assert_int_equal(fo_group_run(&options, leaves, NULL), FO_NUMERIC);
    if (!strstr(fo_last_error(), "rank 1: loss is not a number at step 12"))
        fail_msg("found \"%s\"", fo_last_error());
}

/* What was to be received when a group failed is not written to any more: the memory may be another's by then. Rank 2
 * has sent and rank 0 has not looked when rank 1 fails. */
static unsigned char late[64], sent[64];

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

static fo_status fails_with_a_message_under_way(fo_group *group, void *arg)
{
    (void)arg;
    fo_endpoint *e = fo_group_inner(group);
    fo_request request = {0};
    int rank = fo_group_rank(group);
    fo_status status = fo_group_barrier(group);
    if (status == FO_OK && rank == 0)
        status = e->ops->irecv(e, &request, 2, 7, late, sizeof late);
    pause_ms(rank == 0 ? 500 : 60L * (4 - rank)); /* 2 sends, 1 fails, 0 looks */
    if (status == FO_OK && rank == 2)
        status = e->ops->isend(e, &request, 0, 7, sent, sizeof sent, 0);
    if (rank == 1)
        return fo_base_error(FO_NUMERIC, "loss is not a number at step 12");
    while (status == FO_OK)
        status = fo_group_barrier(group);
    memset(late, 0x55, sizeof late);
    return status;
}

static void nothing_comes_late(void **state)
{
    (void)state;
    fo_job job;
    fo_group_options options = {.ranks = 4, .threads = 1, .kernel = "ref", .deadline_s = 30};
    fo_job_get(&job);
    assert_int_equal(fo_group_run(&options, fails_with_a_message_under_way, NULL), FO_NUMERIC);
    for (size_t i = 0; job.rank == 0 && i < sizeof late; i++)
        assert_int_equal(late[i], 0x55);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_over_mpi), cmocka_unit_test(bf16_over_mpi),
        cmocka_unit_test(splits),         cmocka_unit_test(nothing_comes_late),
        cmocka_unit_test(errors),
    };
    (void)plans_of_one_machine;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
