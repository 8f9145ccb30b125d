/* Small exchanges by which all ranks take the same decision. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "group/group.h"
#include "train/train.h"

typedef struct verdict {
    int32_t status;
    char sentence[1020];
} verdict;

static fo_status no_memory(size_t bytes)
{
    return fo_base_error(FO_NO_MEMORY, "no memory for %zu bytes to agree with the other ranks",
                         bytes);
}

bool fo_train_answers(const fo_group *group)
{
    return fo_group_rank(group) == 0 || fo_group_joined(group);
}

static bool all_alike(const verdict *all, int ranks)
{
    for (int r = 1; r < ranks; r++)
        if (all[r].status != all[0].status || strcmp(all[r].sentence, all[0].sentence) != 0)
            return false;
    return true;
}

/* The first rank that can't go on says why; what all say is nobody's fault. */
static fo_status first_of(const verdict *all, int ranks, int own)
{
    int r = 0;
    while (r < ranks && all[r].status == FO_OK)
        r++;
    if (r == ranks)
        return FO_OK;
    if (r == own || all_alike(all, ranks))
        return fo_base_error((fo_status)all[r].status, "%s", all[r].sentence);
    return fo_base_error((fo_status)all[r].status, "rank %d: %s", r, all[r].sentence);
}

fo_status fo_train_agree(fo_group *group, fo_status status)
{
    int ranks = fo_group_size(group);
    verdict mine = {.status = (int32_t)status};
    verdict *all = malloc((size_t)ranks * sizeof *all);
    if (!all)
        return no_memory((size_t)ranks * sizeof *all);
    if (status != FO_OK)
        snprintf(mine.sentence, sizeof mine.sentence, "%s", fo_last_error());
    fo_status exchanged = fo_group_allgather(group, &mine, sizeof mine, all);
    if (exchanged != FO_OK) {
        free(all);
        if (status != FO_OK) /* what this rank knows came first */
            return fo_base_error(status, "%s", mine.sentence);
        return exchanged;
    }
    fo_status agreed = first_of(all, ranks, fo_group_rank(group));
    free(all);
    return agreed;
}

fo_status fo_train_agree_max(fo_group *group, double mine, double *largest)
{
    int ranks = fo_group_size(group);
    double *all = malloc((size_t)ranks * sizeof *all);
    if (!all)
        return no_memory((size_t)ranks * sizeof *all);
    fo_status status = fo_group_allgather(group, &mine, sizeof mine, all);
    *largest = mine;
    for (int r = 0; status == FO_OK && r < ranks; r++)
        if (all[r] > *largest)
            *largest = all[r];
    free(all);
    return status;
}

fo_status fo_train_agree_any(fo_group *group, bool mine, bool *any)
{
    double largest = 0;
    fo_status status = fo_train_agree_max(group, mine ? 1 : 0, &largest);
    *any = largest > 0;
    return status;
}
