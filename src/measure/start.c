/* The common start of a timed execution. */
#include <errno.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "measure/measure.h"
#include "transport/machine.h"

/* Ahead of the last to arrive: every rank must have heard of it, also where ranks share a core. Sleepers wake
 * up late by some of SPIN_NS, so that much is spent awake where every rank has a core. */
enum { AHEAD_NS = 100000, AHEAD_NS_A_RANK = 20000, SPIN_NS = 60000 };

static void sleep_until(int64_t ns)
{
    struct timespec at = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
        ;
}

fo_status fo_measure_start(fo_group *group, int64_t *begin_ns)
{
    int ranks = fo_group_size(group);
    int64_t *all = malloc((size_t)ranks * sizeof *all), mine;
    if (!all)
        return fo_base_error(FO_NO_MEMORY, "no memory for the start of %d ranks", ranks);
    fo_status status = fo_group_barrier(group);
    mine = fo_base_clock_ns() + AHEAD_NS + (int64_t)ranks * AHEAD_NS_A_RANK;
    if (status == FO_OK)
        status = fo_group_allgather(group, &mine, sizeof mine, all);
    *begin_ns = mine;
    for (int r = 0; status == FO_OK && r < ranks; r++)
        *begin_ns = all[r] > *begin_ns ? all[r] : *begin_ns;
    free(all);
    bool spin = ranks <= fo_transport_machine_cores();
    (void)prctl(PR_SET_TIMERSLACK, 1UL); /* a sleep should end when it was asked to */
    if (status == FO_OK)
        sleep_until(*begin_ns - (spin ? SPIN_NS : 0));
    while (status == FO_OK && spin && fo_base_clock_ns() < *begin_ns)
        ;
    return status;
}
