/* Groups on every transport built in: options, collectives, the link, how errors come back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/error.h"
#include "flashoverlap/job.h"
#include "group/group.h"
#include "transport/machine.h"

/* A rank may be a forked process, where cmocka's assertions must not be used. */
#define CHECK(condition)                                                                    \
    do                                                                                      \
        if (!(condition))                                                                   \
            return fo_base_error(FO_INTERNAL, "line %d: not so: %s", __LINE__, #condition); \
    while (0)
#define TRY(call)                      \
    do {                               \
        fo_status try_status = (call); \
        if (try_status != FO_OK)       \
            return try_status;         \
    } while (0)

/* The transports to test: in a job of a launcher those that join it, else the others. */
static const char *transport_at(int index)
{
    fo_job job;
    fo_job_get(&job);
    for (int t = 0; fo_transport_at(t); t++) {
        uint32_t caps = fo_transport_at(t)->ops->caps;
        if (((caps & FO_TRANSPORT_JOINS) != 0) != job.launched)
            continue;
#if defined(__SANITIZE_THREAD__) /* watches one process only */
        if (caps & FO_TRANSPORT_PROCESS)
            continue;
#endif
        if (index-- == 0)
            return fo_transport_at(t)->ops->name;
    }
    return NULL;
}

static void run_everywhere(fo_rank_main body, void *arg, fo_link link)
{
    static const int counts[] = {1, 2, 3, 5, 8};
    for (int t = 0; transport_at(t); t++)
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            fo_group_options options = {.ranks = counts[i],
                                        .threads = 1,
                                        .transport = transport_at(t),
                                        .kernel = "ref",
                                        .link = link,
                                        .deadline_s = 30};
            if (fo_group_run(&options, body, arg) != FO_OK)
                fail_msg("%s, N = %d: %s", transport_at(t), counts[i], fo_last_error());
        }
}

static fo_status never(fo_group *group, void *arg)
{
    (void)group;
    (void)arg;
    return fo_base_error(FO_INTERNAL, "should not have run");
}

static void assert_refused(fo_group_options options, const char *part)
{
    assert_int_equal(fo_group_run(&options, never, NULL), FO_INVALID);
    if (!strstr(fo_last_error(), part))
        fail_msg("expected \"%s\" in \"%s\"", part, fo_last_error());
}

static void test_refusals(void **state)
{
    (void)state;
    assert_refused((fo_group_options){.ranks = 0}, "0 ranks");
    assert_refused((fo_group_options){.ranks = -3}, "-3 ranks");
    assert_refused((fo_group_options){.ranks = 1, .threads = -1}, "-1 threads");
    assert_refused((fo_group_options){.ranks = 1, .deadline_s = -1}, "deadline");
    assert_refused((fo_group_options){.ranks = 1, .transport = "pigeon"},
                   "\"pigeon\", built in are: ");
    assert_refused((fo_group_options){.ranks = 1, .transport = "pigeon"}, "self");
    assert_refused((fo_group_options){.ranks = 1, .kernel = "abacus"},
                   "\"abacus\", built in are: ");
    fo_group_options options = {.ranks = 1, .transport = "self", .link = {.bytes_per_s = -5}};
    assert_int_equal(fo_group_run(&options, never, NULL), FO_INVALID);
    assert_non_null(strstr(fo_last_error(), "-5 bytes/s"));
}

static fo_status facts(fo_group *group, void *arg)
{
    const char *transport = arg;
    CHECK(fo_group_size(group) == 3 && fo_group_rank(group) >= 0 && fo_group_rank(group) < 3);
    CHECK(fo_group_threads(group) >= 1);
    CHECK(strcmp(fo_group_transport(group), transport) == 0);
    CHECK(*fo_group_kernel(group) && fo_group_kernel_ops(group));
    CHECK(fo_group_link(group).bytes_per_s == 0);
    CHECK(!fo_group_interrupted(group));
    CHECK(fo_group_next_tag(group, 5) + 5 == fo_group_next_tag(group, 1));
    CHECK(fo_group_next_tag(group, 1) < FO_GROUP_FIRST_OWN_TAG);
    return FO_OK;
}

static void test_facts(void **state)
{
    (void)state;
    for (int t = 0; transport_at(t); t++) {
        char name[32];
        strcpy(name, transport_at(t));
        fo_group_options options = {.ranks = 3, .transport = name, .kernel = "ref"};
        if (fo_group_run(&options, facts, name) != FO_OK)
            fail_msg("%s: %s", name, fo_last_error());
    }
}

static fo_status collectives(fo_group *group, void *arg)
{
    (void)arg;
    int rank = fo_group_rank(group), size = fo_group_size(group);
    int64_t all[8];
    for (int round = 0; round < 50; round++) {
        int64_t mine = rank * 1000 + round;
        TRY(fo_group_allgather(group, &mine, sizeof mine, all));
        for (int r = 0; r < size; r++)
            CHECK(all[r] == r * 1000 + round);
        if (round % 7 != 3) /* with and without a barrier in between */
            TRY(fo_group_barrier(group));
    }
    TRY(fo_group_allgather(group, NULL, 0, NULL));
    /* larger, and in place */
    size_t count = 100000;
    uint32_t *large = malloc((size_t)size * count * sizeof *large);
    CHECK(large);
    for (size_t i = 0; i < count; i++)
        large[(size_t)rank * count + i] = (uint32_t)((size_t)rank * count + i);
    TRY(fo_group_allgather(group, large + (size_t)rank * count, count * sizeof *large, large));
    for (size_t i = 0; i < (size_t)size * count; i++)
        CHECK(large[i] == (uint32_t)i);
    free(large);
    return FO_OK;
}

static void test_collectives(void **state)
{
    (void)state;
    run_everywhere(collectives, NULL, (fo_link){0});
    /* a link so slow that they would never end over it */
    run_everywhere(collectives, NULL, (fo_link){.bytes_per_s = 1, .latency_s = 100});
}

/* Nobody leaves a barrier before the last has come. */
static fo_status late_rank(fo_group *group, void *arg)
{
    (void)arg;
    int size = fo_group_size(group);
    for (int late = 0; late < size; late++) {
        int64_t came = 0, left, all[16];
        TRY(fo_group_barrier(group));
        if (late == fo_group_rank(group)) {
            int64_t until = fo_base_clock_ns() + 5000000;
            while (fo_base_clock_ns() < until)
                ;
        }
        came = fo_base_clock_ns();
        TRY(fo_group_barrier(group));
        left = fo_base_clock_ns();
        TRY(fo_group_allgather(group, &came, sizeof came, all));
        CHECK(left >= all[late]);
    }
    return FO_OK;
}

static void test_barrier(void **state)
{
    (void)state;
    run_everywhere(late_rank, NULL, (fo_link){0});
}

static fo_status relinked(fo_group *group, void *arg)
{
    (void)arg;
    fo_endpoint *e = fo_group_endpoint(group);
    int size = e->size;
    fo_link off = {0}, port = {.bytes_per_s = 1e8},
            mesh = {.bytes_per_s = 1e8, .topology = FO_MESH};
    fo_link links[] = {off, port, off, mesh};
    size_t bytes = 1000000; /* 10 ms */
    char *data = fo_group_alloc(group, bytes);
    CHECK(data);
    for (int i = 0; i < 4 && size > 1; i++) {
        fo_request in = {0}, out = {0};
        TRY(fo_group_set_link(group, &links[i]));
        CHECK(fo_group_link(group).bytes_per_s == links[i].bytes_per_s);
        int64_t begin = fo_base_clock_ns();
        TRY(e->ops->irecv_view(e, &in, (e->rank + 1) % size, 1, bytes));
        TRY(e->ops->isend(e, &out, (e->rank + size - 1) % size, 1, data, bytes, 0));
        TRY(fo_transport_wait_request(e, &in, "test"));
        e->ops->release(e, &in);
        TRY(fo_transport_wait_request(e, &out, "test"));
        if (links[i].bytes_per_s > 0)
            CHECK(fo_base_clock_ns() - begin >= 10000000);
        TRY(fo_group_barrier(group));
    }
    fo_link bad = {.bytes_per_s = -1};
    CHECK(fo_group_set_link(group, &bad) == FO_INVALID);
    fo_group_free(group, data);
    return FO_OK;
}

static void test_set_link(void **state)
{
    (void)state;
    run_everywhere(relinked, NULL, (fo_link){.bytes_per_s = 5e8});
}

static fo_status exhausts(fo_group *group, void *arg)
{
    (void)arg;
    CHECK(!fo_group_alloc(group, (size_t)1 << 62));
    CHECK(strstr(fo_last_error(), "4611686018427387904"));
    char *memory = fo_group_alloc(group, 100);
    CHECK(memory && (uintptr_t)memory % 64 == 0 && memory[0] == 0 && memory[99] == 0);
    return FO_OK; /* not freed: the group ends */
}

static void test_memory(void **state)
{
    (void)state;
    run_everywhere(exhausts, NULL, (fo_link){0});
}

/* ---- the machine ---- */

static bool launched(void)
{
    fo_job job;
    fo_job_get(&job);
    return job.launched;
}

static fo_status shares(fo_group *group, void *arg)
{
    int ranks = fo_group_size(group), cores = *(const int *)arg;
    CHECK(fo_group_local_ranks(group) == ranks);
    CHECK(fo_group_crowded(group) == (ranks > cores));
    CHECK(fo_group_threads(group) == (cores / ranks > 1 ? cores / ranks : 1));
    char hint[64] = "something";
    fo_group_hint(group, hint, sizeof hint);
    CHECK(!*hint); /* no launcher */
    CHECK(!fo_group_joined(group));
    return FO_OK;
}

static void test_cores_are_shared(void **state)
{
    (void)state;
    static const int counts[] = {1, 2, 3, 7};
    int cores = fo_transport_machine_cores();
    if (launched())
        skip();
    for (int t = 0; transport_at(t); t++)
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            fo_group_options options = {.ranks = counts[i],
                                        .transport = transport_at(t),
                                        .kernel = "ref"};
            if (fo_group_run(&options, shares, &cores) != FO_OK)
                fail_msg("%s, N = %d: %s", transport_at(t), counts[i], fo_last_error());
        }
}

static void test_choosing(void **state)
{
    (void)state;
    if (launched())
        skip();
    assert_string_equal(fo_group_choose(&(fo_group_options){.ranks = 2}), "shm");
    assert_string_equal(fo_group_choose(&(fo_group_options){.transport = "self"}), "self");
    assert_string_equal(fo_group_choose(&(fo_group_options){.transport = "mpi"}), "mpi");
    fo_group_options options = {.ranks = 3, .transport = "mpi", .kernel = "ref"};
    fo_status status = fo_group_run(&options, never, NULL);
    if (fo_transport_find("mpi")) {
        assert_int_equal(status, FO_INVALID);
        assert_non_null(strstr(fo_last_error(), "mpirun -n 3"));
    } else {
        assert_int_equal(status, FO_UNSUPPORTED);
        assert_non_null(strstr(fo_last_error(), "libopenmpi-dev"));
    }
}

static fo_status leaves_early(fo_group *group, void *arg)
{
    (void)arg;
    if (fo_group_rank(group) == 1)
        return fo_base_error(FO_NUMERIC, "loss is not a number at step 12");
    for (;;)
        TRY(fo_group_barrier(group));
}

static fo_status misses_barrier(fo_group *group, void *arg)
{
    (void)arg;
    return fo_group_rank(group) == 1 ? FO_OK : fo_group_barrier(group);
}

static fo_status nested(fo_group *group, void *arg)
{
    (void)group;
    fo_group_options options = {.ranks = 1, .transport = "self", .kernel = "ref"};
    CHECK(fo_group_run(&options, never, arg) == FO_INVALID);
    CHECK(strstr(fo_last_error(), "while a group is running"));
    return FO_OK;
}

static void test_errors(void **state)
{
    (void)state;
    for (int t = 0; transport_at(t); t++) {
        fo_group_options options = {.ranks = 3, .transport = transport_at(t), .kernel = "ref"};
        assert_int_equal(fo_group_run(&options, leaves_early, NULL), FO_NUMERIC);
        assert_string_equal(fo_last_error(), "rank 1: loss is not a number at step 12");
        options.deadline_s = 0.2;
        assert_int_equal(fo_group_run(&options, misses_barrier, NULL), FO_TIMEOUT);
        assert_non_null(strstr(fo_last_error(), "barrier: rank"));
        options.deadline_s = 0;
        assert_int_equal(fo_group_run(&options, nested, NULL), FO_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),         cmocka_unit_test(test_facts),
        cmocka_unit_test(test_collectives),      cmocka_unit_test(test_barrier),
        cmocka_unit_test(test_set_link),         cmocka_unit_test(test_memory),
        cmocka_unit_test(test_cores_are_shared), cmocka_unit_test(test_choosing),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
