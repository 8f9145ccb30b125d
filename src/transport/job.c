/* The job of a launcher, as its environment tells.
 *
 * The variables are inherited by whatever a rank starts, and launchers start each other: srun starts the daemons
 * of mpirun, whose ranks then see the variables of both. Hence the order of the table: the innermost launcher
 * first. Slurm's come last, and count inside a step that srun started only: a batch script and the shell of salloc
 * have SLURM_NTASKS and even SLURM_PROCID too.
 */
#include "flashoverlap/job.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transport/herald.h"
#include "transport/job.h"

typedef struct launcher {
    const char *name, *mpi;
    const char *mark; /* set by this launcher and no other */
    const char *rank, *size, *local;
} launcher;

/* Open MPI 5 starts through PRRTE and sets the names of Open MPI 4. Intel MPI and MVAPICH use Hydra. A plain
 * prterun gives PMIX_RANK without a size: not known here. */
static const launcher launchers[] = {
    {"mpirun of Open MPI", "openmpi", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"mpirun of Intel MPI", "mpich", "I_MPI_MPIRUN", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
    {"mpirun_rsh of MVAPICH", "mpich", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK",
     "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK"},
    {"mpiexec of MPICH", "mpich", "HYDI_CONTROL_FD", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
    {"mpiexec of MPICH", "mpich", "MPI_LOCALRANKID", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
    {"mpiexec of PALS", "mpich", "PALS_RANKID", "PALS_RANKID", "PMI_SIZE", "PALS_LOCAL_RANKID"},
    {"flux run", NULL, "FLUX_JOB_SIZE", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID"},
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static fo_job the_job = {.size = 1, .local_rank = -1, .launcher = ""};
static _Atomic(int (*)(int)) end_hook;
static atomic_int speaker = -1; /* -1: not told */

/* A number from 0 to INT_MAX and nothing else; -1: it is not there, or garbage. */
static int number_of(const char *name)
{
    const char *text = getenv(name);
    char *end;
    if (!text || *text < '0' || *text > '9')
        return -1;
    errno = 0;
    long value = strtol(text, &end, 10);
    return *end == 0 && errno == 0 && value <= INT_MAX ? (int)value : -1;
}

static bool is_set(const char *name)
{
    const char *text = getenv(name);
    return text && *text;
}

/* Fills the job when rank and size make sense. */
static bool take(int rank, int size, int local, const char *name, const char *mpi)
{
    if (rank < 0 || size < 1 || rank >= size)
        return false;
    the_job = (fo_job){
        .launched = true,
        .rank = rank,
        .size = size,
        .local_rank = local < size ? local : -1,
        .launcher = name,
        .mpi = mpi,
    };
    return true;
}

/* Which library finds its peers under srun: that follows from how Slurm was told to start it. */
static const char *mpi_of_srun(void)
{
    const char *type = getenv("SLURM_MPI_TYPE");
    if (is_set("PMIX_RANK") || (type && strncmp(type, "pmix", 4) == 0))
        return "openmpi";
    if (is_set("PMI_FD") || is_set("PMI2_RANK") || (type && strcmp(type, "pmi2") == 0))
        return "mpich";
    return NULL;
}

/* Steps that run a batch script or a shell have numbers far above those that srun counts up from 0, and a
 * shell in a step of its own (srun --pty) has a terminal: it starts programs, it is no rank. */
static bool take_srun(void)
{
    int step = number_of("SLURM_STEP_ID"), size = number_of("SLURM_STEP_NUM_TASKS");
    if (step < 0 || is_set("SLURM_PTY_PORT") || is_set("SLURM_PTY_WIN_COL"))
        return false;
    if (size < 0)
        size = number_of("SLURM_NTASKS");
    return take(number_of("SLURM_PROCID"), size, number_of("SLURM_LOCALID"), "srun", mpi_of_srun());
}

static void look(void)
{
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        const launcher *l = &launchers[i];
        if (is_set(l->mark) &&
            take(number_of(l->rank), number_of(l->size), number_of(l->local), l->name, l->mpi))
            return;
    }
    /* last: Hydra's relatives that set the plain names only. Under Slurm a shell may have these too. */
    if (!take_srun() && !is_set("SLURM_JOB_ID"))
        take(number_of("PMI_RANK"), number_of("PMI_SIZE"), -1, "mpiexec of MPICH", "mpich");
}

void fo_job_get(fo_job *job)
{
    pthread_once(&once, look);
    *job = the_job;
}

bool fo_job_first(void)
{
    fo_job job;
    fo_job_get(&job);
    return job.rank == 0;
}

bool fo_job_speaks(void)
{
    int told = atomic_load(&speaker);
    return told >= 0 ? told != 0 : fo_job_first();
}

int fo_job_end(int code)
{
    int (*end)(int) = atomic_exchange(&end_hook, NULL);
    return end ? end(code) : code;
}

void fo_transport_job_on_end(int (*end)(int code))
{
    atomic_store(&end_hook, end);
}

void fo_job_say(const char *line)
{
    if (fo_job_speaks() && !fo_transport_herald_say(line))
        fprintf(stderr, "%s\n", line);
}

void fo_job_advise(const char *advice)
{
    fo_transport_herald_advise(advice);
}

void fo_transport_job_set_speaker(bool speaks)
{
    atomic_store(&speaker, speaks ? 1 : 0);
}
