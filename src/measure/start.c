/* The common start of a timed execution. */
#include <errno.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "group/group.h"
#include "measure/measure.h"
#include "train/train.h"

/* Ahead of the last to arrive: every rank must have heard of it, also where ranks share a core. Sleepers wake
 * up late by some of SPIN_NS, so that much is spent awake where every rank has a core. */
enum { AHEAD_NS = 100000, AHEAD_NS_A_RANK = 20000, SPIN_NS = 60000 };

/* Between hosts a message takes its time, so that many trips more; clocks are compared by so many questions. */
enum { TRIPS = 2, QUESTIONS = 16 };

static void sleep_until(int64_t ns)
{
    struct timespec at = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
        ;
}

/* ---- clocks ------------------------------------------------------------------------------------------- */

/* One question to rank 0, which answers with its time: it did so in the middle of the trip, as far as anyone knows,
 * so the shortest trip knows best. */
static fo_status ask(fo_endpoint *endpoint, uint32_t tag, int64_t *behind_ns, int64_t *trip_ns)
{
    fo_request request = {0};
    int64_t theirs = 0, begin = fo_base_clock_ns();
    fo_status status = endpoint->ops->isend(endpoint, &request, 0, tag, NULL, 0, 0);
    if (status == FO_OK)
        status = fo_transport_wait_request(endpoint, &request, "clocks");
    request = (fo_request){0};
    if (status == FO_OK)
        status = endpoint->ops->irecv(endpoint, &request, 0, tag, &theirs, sizeof theirs);
    if (status == FO_OK)
        status = fo_transport_wait_request(endpoint, &request, "clocks");
    int64_t end = fo_base_clock_ns();
    *trip_ns = end - begin;
    *behind_ns = theirs - (begin + *trip_ns / 2);
    return status;
}

static fo_status answer(fo_endpoint *endpoint, uint32_t tag, int rank)
{
    fo_request request = {0};
    fo_status status = endpoint->ops->irecv(endpoint, &request, rank, tag, NULL, 0);
    if (status == FO_OK)
        status = fo_transport_wait_request(endpoint, &request, "clocks");
    int64_t mine = fo_base_clock_ns();
    request = (fo_request){0};
    if (status == FO_OK)
        status = endpoint->ops->isend(endpoint, &request, rank, tag, &mine, sizeof mine, 0);
    return status == FO_OK ? fo_transport_wait_request(endpoint, &request, "clocks") : status;
}

static fo_status longest(fo_group *group, int64_t *ns)
{
    double found;
    fo_status status = fo_train_agree_max(group, (double)*ns, &found);
    *ns = (int64_t)found;
    return status;
}

fo_status fo_measure_clock_ask(fo_group *group, fo_measure_clock *clock)
{
    fo_endpoint *endpoint = fo_group_inner(group);
    uint32_t tag = fo_group_next_tag(group, 1);
    fo_status status = FO_OK;
    *clock = (fo_measure_clock){0};
    for (int r = 1; status == FO_OK && r < endpoint->size; r++)
        for (int i = 0; status == FO_OK && i < QUESTIONS; i++) {
            int64_t behind, trip;
            if (endpoint->rank == 0)
                status = answer(endpoint, tag, r);
            if (endpoint->rank != r)
                continue;
            status = ask(endpoint, tag, &behind, &trip);
            if (i == 0 || trip < clock->trip_ns)
                *clock = (fo_measure_clock){behind, trip};
        }
    return status == FO_OK ? longest(group, &clock->trip_ns) : status;
}

fo_status fo_measure_clock_compare(fo_group *group, fo_measure_clock *clock)
{
    *clock = (fo_measure_clock){0};
    /* options.nodes may say otherwise than the places: then they are one host's, or this costs little */
    return fo_group_local_ranks(group) < fo_group_size(group) || fo_group_nodes(group) > 1
               ? fo_measure_clock_ask(group, clock)
               : FO_OK;
}

/* ---- the start ---------------------------------------------------------------------------------------- */

fo_status fo_measure_start(fo_group *group, const fo_measure_clock *clock, int64_t *begin_ns)
{
    int ranks = fo_group_size(group);
    int64_t *all = malloc((size_t)ranks * sizeof *all), mine;
    if (!all)
        return fo_base_error(FO_NO_MEMORY, "no memory for the start of %d ranks", ranks);
    fo_status status = fo_group_barrier(group);
    mine = fo_base_clock_ns() + clock->behind_ns + AHEAD_NS + (int64_t)ranks * AHEAD_NS_A_RANK +
           TRIPS * clock->trip_ns;
    if (status == FO_OK)
        status = fo_group_allgather(group, &mine, sizeof mine, all);
    *begin_ns = mine;
    for (int r = 0; status == FO_OK && r < ranks; r++)
        *begin_ns = all[r] > *begin_ns ? all[r] : *begin_ns;
    *begin_ns -= clock->behind_ns;
    free(all);
    bool spin = !fo_group_crowded(group);
    (void)prctl(PR_SET_TIMERSLACK, 1UL); /* a sleep should end when it was asked to */
    if (status == FO_OK)
        sleep_until(*begin_ns - (spin ? SPIN_NS : 0));
    while (status == FO_OK && spin && fo_base_clock_ns() < *begin_ns)
        ;
    return status;
}
