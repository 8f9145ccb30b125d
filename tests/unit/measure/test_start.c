/* The common start: the same moment for all ranks, by one clock or by several that are compared. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/error.h"
#include "measure/measure.h"

enum { MOST = 8 };

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

static void everywhere(fo_rank_main body)
{
    static const int counts[] = {1, 2, 3, 5};
#if defined(__SANITIZE_THREAD__) /* watches one process only */
    static const char *const transports[] = {"self"};
#else
    static const char *const transports[] = {"self", "shm"};
#endif
    for (size_t t = 0; t < sizeof transports / sizeof *transports; t++)
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            fo_group_options o = {.ranks = counts[i],
                                  .threads = 1,
                                  .transport = transports[t],
                                  .kernel = "ref",
                                  .deadline_s = 30};
            if (fo_group_run(&o, body, NULL) != FO_OK)
                fail_msg("%s, N = %d: %s", transports[t], counts[i], fo_last_error());
        }
}

/* Ranks share a clock here, so what is found must be about 0, and no more than a trip off. */
static fo_status ask(fo_group *group, void *arg)
{
    (void)arg;
    for (int i = 0; i < 5; i++) {
        fo_measure_clock clock;
        int64_t begin = fo_base_clock_ns();
        TRY(fo_measure_clock_ask(group, &clock));
        CHECK(llabs(clock.behind_ns) <= clock.trip_ns);
        CHECK(clock.trip_ns >= 0 && clock.trip_ns <= fo_base_clock_ns() - begin);
        CHECK(fo_group_size(group) == 1 || clock.trip_ns > 0);
        CHECK(fo_group_rank(group) > 0 || clock.behind_ns == 0);
    }
    return FO_OK;
}

static fo_status one_host(fo_group *group, void *arg)
{
    (void)arg;
    fo_measure_clock clock = {.behind_ns = 5, .trip_ns = 5};
    TRY(fo_measure_clock_compare(group, &clock));
    CHECK(clock.behind_ns == 0 && clock.trip_ns == 0);
    return FO_OK;
}

/* Rank r's clock is said to be 20 r milliseconds ahead: all begin at one moment of rank 0's clock all the same. */
static fo_status begin_together(fo_group *group, void *arg)
{
    (void)arg;
    int ranks = fo_group_size(group), rank = fo_group_rank(group);
    for (int i = 0; i < 5; i++) {
        fo_measure_clock clock = {.trip_ns = 1000};
        int64_t begin, all[MOST];
        TRY(fo_measure_start(group, &clock, &begin));
        CHECK(fo_base_clock_ns() >= begin - 100000);
        TRY(fo_group_allgather(group, &begin, sizeof begin, all));
        for (int r = 0; r < ranks; r++)
            CHECK(all[r] == all[0]);
        clock.behind_ns = -(int64_t)rank * 20000000;
        TRY(fo_measure_start(group, &clock, &begin));
        CHECK(fo_base_clock_ns() >= begin - 100000);
        begin += clock.behind_ns;
        TRY(fo_group_allgather(group, &begin, sizeof begin, all));
        for (int r = 0; r < ranks; r++)
            CHECK(all[r] == all[0]);
        TRY(fo_group_barrier(group));
    }
    return FO_OK;
}

static void clocks_are_compared(void **state)
{
    (void)state;
    everywhere(ask);
}

static void clocks_of_one_host_are_one(void **state)
{
    (void)state;
    everywhere(one_host);
}

static void all_begin_at_one_moment(void **state)
{
    (void)state;
    everywhere(begin_together);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clocks_are_compared),
        cmocka_unit_test(clocks_of_one_host_are_one),
        cmocka_unit_test(all_begin_at_one_moment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
