/* Measuring what plans of a shape take: all ranks at the same time, some milliseconds a figure. */
#include "op/learn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/quantile.h"
#include "group/group.h"

/* A figure takes its budget where that is enough for LEAST_SAMPLES of it, and no longer than its limit where LAST_SAMPLES
 * are, so that an operator is known after a second or two however large it is. */
enum { SAMPLES = 64, LEAST_SAMPLES = 6, LAST_SAMPLES = 2, LEAST_TOGETHER = 3, ROUNDS = 3 };

static const int64_t budget_ns = 10000000, limit_ns = 100000000; /* of a round */
static const double long_s = 0.02;
/* No further round after so long, as where ranks share cores with others and all that they do together is slow. */
static const int64_t rounds_ns = 300000000;
static const double steady = 0.15; /* distance of the quartiles, of the median */

bool fo_op_learn_is(const fo_op_fact *need, const char *word)
{
    return !strncmp(need->what, word, strlen(word));
}

/* ---- measuring ------------------------------------------------------------------------------------ */

/* Without what was interrupted. Times of equal tiles fall into two or three groups, and an operator takes their sum,
 * so the median is not what they come to. */
static double usual_mean(const double *times, int count)
{
    double most = 1.25 * fo_base_median(times, count), sum = 0;
    int usual = 0;
    for (int i = 0; i < count; i++)
        if (times[i] <= most) {
            sum += times[i];
            usual++;
        }
    return sum / usual;
}

static bool wants_more(int count, int64_t taken_ns)
{
    if (count >= SAMPLES)
        return false;
    return count < LAST_SAMPLES || taken_ns < budget_ns ||
           (count < LEAST_SAMPLES && taken_ns < limit_ns);
}

static void sum_up(const double *times, int count, fo_op_figure *result)
{
    result->seconds = usual_mean(times, count);
    result->spread =
        (fo_base_percentile(times, count, 0.75) - fo_base_percentile(times, count, 0.25)) /
        fo_base_median(times, count);
}

fo_status fo_op_learn_sample(fo_op_piece one, fo_op_piece before, void *work, fo_op_figure *result)
{
    double times[SAMPLES];
    int count = -2;
    fo_status status = FO_OK;
    int64_t begin = fo_base_clock_ns(), now = begin;
    while (status == FO_OK && wants_more(count, now - begin)) {
        status = before ? before(work, count + 2) : FO_OK;
        int64_t at = before ? fo_base_clock_ns() : now;
        if (status == FO_OK)
            status = one(work, count + 2);
        now = fo_base_clock_ns();
        if (count >= 0)
            times[count] = (double)(now - at) * 1e-9;
        count++;
    }
    if (status == FO_OK)
        sum_up(times, count, result);
    return status;
}

/* ---- together ------------------------------------------------------------------------------------- */

/* Everyone's largest. */
static fo_status longest(fo_group *group, int64_t *ns)
{
    int ranks = fo_group_size(group);
    int64_t *all = malloc((size_t)ranks * sizeof *all);
    if (!all)
        return fo_base_error(FO_NO_MEMORY, "no memory for %d ranks", ranks);
    fo_status status = fo_group_allgather(group, ns, sizeof *ns, all);
    for (int r = 0; status == FO_OK && r < ranks; r++)
        *ns = all[r] > *ns ? all[r] : *ns;
    free(all);
    return status;
}

fo_status fo_op_learn_repeats(fo_group *group, int64_t one_ns, int least, int most, int *repeats)
{
    fo_status status = longest(group, &one_ns);
    int64_t fit = one_ns > 0 ? budget_ns / one_ns : most;
    *repeats = fit < least ? least : fit > most ? most : (int)fit;
    return status;
}

fo_status fo_op_learn_all_have(fo_group *group, bool memory, const char *what)
{
    int64_t missing = !memory;
    fo_status status = longest(group, &missing);
    if (status == FO_OK && missing)
        status = fo_base_error(FO_NO_MEMORY, "no memory to measure %s", what);
    return status;
}

fo_status fo_op_learn_sample_together(fo_group *group, fo_op_piece one, void *work,
                                      fo_op_figure *result)
{
    double times[SAMPLES];
    int count = LEAST_TOGETHER;
    int64_t began = 0;
    fo_status status = fo_group_barrier(group);
    for (int i = -2; status == FO_OK && i < count; i++) {
        int64_t begin = fo_base_clock_ns();
        status = one(work, i + 2);
        if (i < 0)
            continue;
        times[i] = (double)(fo_base_clock_ns() - begin) * 1e-9;
        began = i ? began : begin;
        if (status == FO_OK && i == LEAST_TOGETHER - 1)
            status = fo_op_learn_repeats(group, (fo_base_clock_ns() - began) / LEAST_TOGETHER,
                                         LEAST_TOGETHER, SAMPLES, &count);
    }
    if (status == FO_OK)
        sum_up(times, count, result);
    return status;
}

/* The slowest rank's, and everyone's failure. */
static fo_status agree(fo_group *group, fo_status status, const fo_op_figure *mine,
                       fo_op_fact *fact)
{
    struct verdict {
        int32_t status;
        fo_op_figure figure;
        char sentence[240];
    } verdict = {.status = status, .figure = *mine}, *all;
    int ranks = fo_group_size(group);
    if (status != FO_OK)
        snprintf(verdict.sentence, sizeof verdict.sentence, "%s", fo_last_error());
    all = calloc((size_t)ranks, sizeof *all);
    if (!all)
        return fo_base_error(FO_NO_MEMORY, "no memory for %d ranks", ranks);
    fo_status agreed = fo_group_allgather(group, &verdict, sizeof verdict, all);
    fact->value = 0;
    fact->unsteady = false;
    for (int r = 0; agreed == FO_OK && r < ranks; r++) {
        fact->value = fmax(fact->value, all[r].figure.seconds);
        fact->unsteady |= all[r].figure.spread > steady;
        if (all[r].status != FO_OK)
            agreed = fo_base_error((fo_status)all[r].status, "%s", all[r].sentence);
    }
    free(all);
    return agreed;
}

/* ---- the call ------------------------------------------------------------------------------------- */

/* What no shape is needed for. */
static bool is_general(const fo_op_fact *need)
{
    return fo_op_learn_is(need, "software") || fo_op_learn_is(need, "single") ||
           fo_op_learn_is(need, "stream") || fo_op_learn_is(need, "beside");
}

static fo_status measure_general(fo_group *group, const fo_op_fact *need, fo_op_figure *result)
{
    if (fo_op_learn_is(need, "software"))
        return fo_op_learn_software(group, result);
    if (fo_op_learn_is(need, "single"))
        return fo_op_learn_message(group, need, result);
    return fo_op_learn_traffic(group, need, result);
}

static bool is_measured(const fo_op_fact *before, const fo_op_scratch *s)
{
    return isnan(before->value) && is_general(before) == !s;
}

static fo_status measure_one(const fo_plan *plan, fo_op_scratch *s, fo_op_fact *need)
{
    fo_op_figure mine = {0, 0};
    fo_status status =
        s ? fo_op_learn_tiles(s, plan, need, &mine) : measure_general(plan->group, need, &mine);
    return agree(plan->group, status, &mine, need);
}

/* `s`: NULL where what is general is measured. Whoever can't still meets the others: their waits must end.
 * Every figure is the median of some rounds, so that what disturbs the machine for a moment is in none; all ranks know
 * how long a piece takes then, and what is long is measured once. */
static fo_status measure_all(const fo_plan *plan, fo_op_scratch *s, fo_op_fact *needs, int count)
{
    double rounds[FO_OP_NEEDS][ROUNDS];
    int taken[FO_OP_NEEDS] = {0}, unsteady[FO_OP_NEEDS] = {0};
    fo_op_fact before[FO_OP_NEEDS];
    fo_status status = FO_OK;
    memcpy(before, needs, (size_t)count * sizeof *needs);
    int64_t begin = fo_base_clock_ns(), passed = 0;
    for (int round = 0; status == FO_OK && round < ROUNDS && passed < rounds_ns; round++) {
        for (int i = 0; status == FO_OK && i < count; i++) {
            if (!is_measured(&before[i], s) || (round && rounds[i][0] > long_s))
                continue;
            status = measure_one(plan, s, &needs[i]);
            rounds[i][taken[i]++] = needs[i].value;
            unsteady[i] += needs[i].unsteady;
        }
        passed = fo_base_clock_ns() - begin;
        if (status == FO_OK)
            status = longest(plan->group, &passed);
    }
    for (int i = 0; status == FO_OK && i < count; i++) {
        if (!taken[i])
            continue;
        needs[i].value = fo_base_median(rounds[i], taken[i]);
        needs[i].unsteady = 2 * unsteady[i] > taken[i];
    }
    return status;
}

static bool knows(const fo_op_fact *needs, int count)
{
    bool all = true;
    for (int i = 0; i < count; i++)
        all &= !isnan(needs[i].value);
    return all;
}

fo_status fo_op_learn(const fo_plan *plan, fo_op_fact *needs, int count)
{
    fo_op_scratch *s = NULL;
    fo_op_fact none = {.value = 0};
    fo_status status = measure_all(plan, NULL, needs, count);
    if (status != FO_OK || knows(needs, count))
        return status;
    status = fo_op_scratch_make(plan, &s);
    status = agree(plan->group, status, &(fo_op_figure){0, 0}, &none);
    if (status == FO_OK)
        status = measure_all(plan, s, needs, count);
    if (s)
        fo_op_scratch_free(s);
    return status;
}
