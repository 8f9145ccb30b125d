/* The job that a launcher started: mpirun, mpiexec or srun. Read from the environment; nothing is initialised
 * here, and no MPI needs to be installed.
 *
 * In a job every process runs the whole program, and fo_group_run makes its calling process one rank. What
 * a program prints and writes beside the ranks is then for one process only: fo_job_first().
 */
#ifndef FLASHOVERLAP_JOB_H
#define FLASHOVERLAP_JOB_H

#include <stdbool.h>

#include "flashoverlap/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fo_job {
    bool launched;        /* by a launcher, with however many processes */
    int rank, size;       /* in the job, as the launcher says; 0 of 1 when not launched */
    int local_rank;       /* among those on this host; -1: unknown */
    const char *launcher; /* "mpirun of Open MPI", "mpiexec of MPICH", "srun", ...; "" */
    const char *mpi;      /* the library it starts: "openmpi", "mpich"; NULL: either */
} fo_job;

/* Any thread; always the same answer. */
void fo_job_get(fo_job *job);

/* Whether this process prints tables and writes files: rank 0, and every process outside a job. */
bool fo_job_first(void);

/* Whether this process says what went wrong: of the processes that end for the same reason, one does. */
bool fo_job_speaks(void);

/* Leaves the job: the last call of a program, from the thread that ran groups. `code`: how the process is
 * going to exit; with another than 0 nobody is waited for. Returns the exit code. Does nothing outside a
 * job. A program that returns 0 without it leaves when it exits. */
int fo_job_end(int code);

#ifdef __cplusplus
}
#endif
#endif
