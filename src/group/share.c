/* What of its machine a rank has: the cores its launcher left it, divided among the ranks that may use them too. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"
#include "flashoverlap/job.h"
#include "group/state.h"
#include "transport/machine.h"

/* What ranks tell each other. */
typedef struct mask {
    cpu_set_t cores;
} mask;

static mask own_mask(void)
{
    mask own;
    CPU_ZERO(&own.cores);
    if (sched_getaffinity(0, sizeof own.cores, &own.cores) != 0) /* more cores than the set holds */
        for (int core = 0; core < CPU_SETSIZE; core++)
            CPU_SET(core, &own.cores);
    return own;
}

static bool same_machine(const fo_endpoint *endpoint, int rank)
{
    return !endpoint->places ||
           endpoint->places[rank].node == endpoint->places[endpoint->rank].node;
}

/* Counts the ranks of this machine whose cores are also this rank's, and those of them that come before it. */
static void count(const fo_endpoint *endpoint, const mask *all, int *before, int *sharing)
{
    *before = *sharing = 0;
    for (int r = 0; r < endpoint->size; r++) {
        cpu_set_t both;
        CPU_AND(&both, &all[r].cores, &all[endpoint->rank].cores);
        if (!same_machine(endpoint, r) || (r != endpoint->rank && CPU_COUNT(&both) == 0))
            continue;
        *before += r < endpoint->rank;
        ++*sharing;
    }
}

static fo_status find_sharing(fo_group *group, int *before)
{
    const fo_endpoint *endpoint = group->inner;
    *before = endpoint->rank;
    group->sharing = endpoint->size;
    if (!(endpoint->ops->caps & FO_TRANSPORT_JOINS)) /* all were started alike, here */
        return FO_OK;
    mask own = own_mask(), *all = malloc((size_t)endpoint->size * sizeof *all);
    if (!all)
        return fo_base_error(FO_NO_MEMORY, "no memory for the cores of %d ranks", endpoint->size);
    fo_status status = fo_group_allgather(group, &own, sizeof own, all);
    if (status == FO_OK)
        count(endpoint, all, before, &group->sharing);
    free(all);
    return status;
}

fo_status fo_group_share(fo_group *group, int threads)
{
    int before;
    fo_status status = find_sharing(group, &before);
    group->threads = threads ? threads : fo_transport_machine_cores() / group->sharing;
    if (group->threads < 1)
        group->threads = 1;
    if (status == FO_OK)
        fo_transport_machine_bind(before, group->sharing, group->threads);
    return status;
}

int fo_group_local_ranks(const fo_group *group)
{
    const fo_endpoint *endpoint = group->root->inner;
    int ranks = 0;
    for (int r = 0; r < endpoint->size; r++)
        ranks += same_machine(endpoint, r);
    return ranks;
}

bool fo_group_crowded(const fo_group *group)
{
    return group->root->sharing > fo_transport_machine_cores();
}

/* Cores of the process that started this one: what a launcher that binds takes away is not missing there. */
static int launcher_cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(getppid(), sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}

void fo_group_hint(const fo_group *group, char *text, size_t size)
{
    fo_job job;
    fo_job_get(&job);
    int cores = fo_transport_machine_cores(), all = launcher_cores();
    int sharing = group->root->sharing, ranks = fo_group_local_ranks(group);
    text[0] = '\0';
    if (!job.launched || !(group->root->inner->ops->caps & FO_TRANSPORT_JOINS))
        return;
    if (sharing > cores)
        snprintf(text, size,
                 "%d ranks share %d core%s of %s and take turns; start at most one a core, or add "
                 "hosts",
                 sharing, cores, cores == 1 ? "" : "s", fo_group_host(group, fo_group_rank(group)));
    else if (cores < all && cores / sharing < all / ranks && group->threads == cores / sharing)
        snprintf(text, size,
                 "%s lets this rank use %d of %d cores; '--bind-to none' (srun: '--cpu-bind=none') "
                 "makes that %d threads a rank",
                 job.launcher, cores, all, all / ranks);
}
