/* What a rank needs to run one point: matrices and a subject for every strategy. */
#include <stdio.h>

#include "base/error.h"
#include "group/group.h"
#include "measure/result.h"
#include "train/train.h"

static const fo_schedule_spelled reference = {.name = "none", .overlap = "none"};

/* Everyone's status. When only some ranks failed, they no longer agree on what comes next: *mixed. */
static fo_status settle(fo_group *group, fo_status mine, bool *mixed)
{
    bool fine = false;
    fo_status status = fo_train_agree(group, mine);
    if (status == FO_OK || status == FO_PEER || status == FO_TIMEOUT) {
        *mixed = status != FO_OK;
        return status;
    }
    char sentence[480];
    snprintf(sentence, sizeof sentence, "%s", fo_last_error());
    fo_status exchanged = fo_train_agree_any(group, mine == FO_OK, &fine);
    *mixed = fine || exchanged != FO_OK;
    return fo_base_error(status, "%s", sentence);
}

static fo_status make_subjects(fo_measure_rank *r)
{
    const fo_measure_family *family = r->bench->family;
    int made = 0;
    fo_status status = FO_OK;
    bool mixed = false;
    for (int s = 0; s < r->bench->strategy_count; s++) {
        status =
            settle(r->group, family->create(r->family, &r->bench->strategies[s], &r->subjects[s]),
                   &mixed);
        if (mixed)
            return status;
        if (status == FO_OK) {
            made++;
            continue;
        }
        r->subjects[s] = NULL;
        snprintf(r->notes[s], sizeof r->notes[s], "%s", fo_last_error());
    }
    if (!made)
        return status;
    if (family->execute_local)
        return FO_OK;
    return settle(r->group, family->create(r->family, &reference, &r->reference), &mixed);
}

fo_status fo_measure_rank_open(const fo_measure_bench *bench, int point, fo_group *group,
                               fo_measure_rank *r)
{
    bool mixed;
    *r = (fo_measure_rank){.bench = bench, .point = point, .group = group};
    r->setup = (fo_measure_setup){.options = bench->options,
                                  .group = group,
                                  .point = bench->points[point],
                                  .emulated = fo_measure_bench_emulates(bench)};
    fo_status status = fo_group_joined(group)
                           ? fo_measure_bench_memory(bench, point, fo_group_local_ranks(group))
                           : FO_OK;
    if (fo_group_joined(group))
        status = settle(group, status, &mixed);
    if (status == FO_OK)
        status = settle(group, bench->family->open(&r->setup, &r->family), &mixed);
    if (status == FO_OK && bench->family->prepare)
        status = settle(group, bench->family->prepare(r->family), &mixed);
    if (status == FO_OK)
        status = make_subjects(r);
    return fo_train_together(group, status); /* every failure here was settled */
}

void fo_measure_rank_close(fo_measure_rank *r)
{
    const fo_measure_family *family = r->bench->family;
    for (int s = 0; s < r->bench->strategy_count; s++)
        if (r->subjects[s])
            family->destroy(r->subjects[s]);
    if (r->reference)
        family->destroy(r->reference);
    family->close(r->family);
}

int fo_measure_rank_first(const fo_measure_rank *r)
{
    int first = 0;
    while (!r->subjects[first])
        first++;
    return first;
}
