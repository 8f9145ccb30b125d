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

/* Says a line on standard error, once for the job: does nothing unless fo_job_speaks(). In a job a small process of its
 * own says it, which outlives this one: launchers kill what is left of a job within milliseconds of a death. */
void fo_job_say(const char *line);

/* What to do next, should this process be killed before it can say what went wrong itself: follows the sentence, as in
 * "; go on with --resume DIR (step 40)". Outside a job it does nothing. */
void fo_job_advise(const char *advice);

/* Leaves the job: the last call of a program, from the thread that ran groups. `code`: how the process is
 * going to exit; with another than 0 nobody is waited for. Returns the exit code. Does nothing outside a
 * job. A program that returns 0 without it leaves when it exits. */
int fo_job_end(int code);

#ifdef __cplusplus
}
#endif
#endif
