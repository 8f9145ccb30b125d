/* Measuring what plans of a shape take: all ranks at the same time, some milliseconds a figure. */
#include "op/learn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/quantile.h"
#include "group/group.h"

enum { SAMPLES = 64, LEAST_SAMPLES = 8 };

static const int64_t budget_ns = 20000000; /* of a figure, where that is enough for LEAST_SAMPLES */
static const double steady = 0.15;         /* distance of the quartiles, of the median */

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

fo_status fo_op_learn_sample(fo_group *group, fo_op_piece one, fo_op_piece before, void *work,
                             fo_op_figure *result)
{
    double times[SAMPLES];
    int count = -2;
    fo_status status = fo_group_barrier(group);
    int64_t begin = fo_base_clock_ns(), now = begin;
    while (status == FO_OK && count < SAMPLES &&
           (count < LEAST_SAMPLES || now - begin < budget_ns)) {
        status = before ? before(work, count + 2) : FO_OK;
        int64_t at = before ? fo_base_clock_ns() : now;
        if (status == FO_OK)
            status = one(work, count + 2);
        now = fo_base_clock_ns();
        if (count >= 0)
            times[count] = (double)(now - at) * 1e-9;
        count++;
    }
    if (status != FO_OK)
        return status;
    result->seconds = usual_mean(times, count);
    result->spread =
        (fo_base_percentile(times, count, 0.75) - fo_base_percentile(times, count, 0.25)) /
        fo_base_median(times, count);
    return FO_OK;
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
    return fo_op_learn_is(need, "software") || fo_op_learn_is(need, "message");
}

static fo_status measure_general(fo_group *group, const fo_op_fact *need, fo_op_figure *result)
{
    return fo_op_learn_is(need, "software") ? fo_op_learn_software(group, result)
                                            : fo_op_learn_message(group, need, result);
}

/* `s`: NULL where what is general is measured. Whoever can't still meets the others: their waits must end. */
static fo_status measure_all(const fo_plan *plan, fo_op_scratch *s, fo_op_fact *needs, int count)
{
    fo_status status = FO_OK;
    for (int i = 0; status == FO_OK && i < count; i++) {
        fo_op_figure mine = {0, 0};
        if (!isnan(needs[i].value) || is_general(&needs[i]) != !s)
            continue;
        status = s ? fo_op_learn_tiles(s, plan, &needs[i], &mine)
                   : measure_general(plan->group, &needs[i], &mine);
        status = agree(plan->group, status, &mine, &needs[i]);
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
