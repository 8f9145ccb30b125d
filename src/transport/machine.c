#include "transport/machine.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

size_t fo_transport_machine_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 ? (size_t)pages * (size_t)page : (size_t)8 << 30;
}

/* Cores' worth of processor time the control group grants, rounded up; 0: no limit known. */
static int quota_cores(void)
{
    FILE *file = fopen("/sys/fs/cgroup/cpu.max", "r");
    long long quota = 0, period = 0;
    if (!file)
        return 0;
    int read = fscanf(file, "%lld %lld", &quota, &period);
    fclose(file);
    return read == 2 && period > 0 && quota > 0 ? (int)((quota + period - 1) / period) : 0;
}

static int affinity_cores(cpu_set_t *set)
{
    if (sched_getaffinity(0, sizeof *set, set) == 0)
        return CPU_COUNT(set);
    CPU_ZERO(set);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

int fo_transport_machine_cores(void)
{
    cpu_set_t set;
    int cores = affinity_cores(&set), quota = quota_cores();
    if (quota && quota < cores)
        cores = quota;
    return cores > 0 ? cores : 1;
}

void fo_transport_machine_bind(int rank, int ranks, int threads)
{
    const char *wanted = getenv("FLASHOVERLAP_BIND");
    cpu_set_t allowed, own;
    if (!wanted || strcmp(wanted, "1") != 0)
        return;
    int cores = affinity_cores(&allowed), quota = quota_cores();
    if (ranks < 2 || threads != cores / ranks || (quota && quota < cores))
        return;
    CPU_ZERO(&own);
    int first = rank * threads, index = 0;
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET(core, &allowed))
            continue;
        if (index >= first && index < first + threads)
            CPU_SET(core, &own);
        index++;
    }
    if (CPU_COUNT(&own) == threads)
        (void)sched_setaffinity(0, sizeof own, &own);
}
