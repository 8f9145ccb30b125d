/* What is made of a launcher's environment. The answer is kept for the life of a process, so every case has one of
 * its own, with an empty environment but for the case's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "flashoverlap/job.h"
#include "transport/job.h"

typedef struct answer {
    fo_job job;
    char launcher[64], mpi[16];
    bool first, speaks, same;
} answer;

/* `environment`: "NAME=value NAME=value". */
static answer ask(const char *environment)
{
    answer *there =
        mmap(NULL, sizeof *there, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int how;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        char copy[1024];
        snprintf(copy, sizeof copy, "%s", environment);
        clearenv();
        for (char *word = strtok(copy, " "); word; word = strtok(NULL, " ")) {
            char *value = strchr(word, '=');
            *value++ = 0;
            setenv(word, value, 1);
        }
        fo_job again;
        fo_job_get(&there->job);
        snprintf(there->launcher, sizeof there->launcher, "%s", there->job.launcher);
        snprintf(there->mpi, sizeof there->mpi, "%s", there->job.mpi ? there->job.mpi : "-");
        there->first = fo_job_first();
        there->speaks = fo_job_speaks();
        setenv("OMPI_COMM_WORLD_RANK", "1", 1);
        setenv("OMPI_COMM_WORLD_SIZE", "77", 1);
        fo_job_get(&again);
        there->same = memcmp(&again, &there->job, sizeof again) == 0;
        _exit(0);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_int_equal(how, 0);
    answer found = *there;
    munmap(there, sizeof *there);
    assert_true(found.same);
    return found;
}

static void expect(const char *environment, int rank, int size, int local, const char *launcher,
                   const char *mpi)
{
    answer a = ask(environment);
    if (!a.job.launched || a.job.rank != rank || a.job.size != size || a.job.local_rank != local ||
        strcmp(a.launcher, launcher) != 0 || strcmp(a.mpi, mpi) != 0)
        fail_msg("\"%s\": %slaunched, rank %d of %d, local %d, \"%s\", %s; expected %d of %d, "
                 "local %d, \"%s\", %s",
                 environment, a.job.launched ? "" : "not ", a.job.rank, a.job.size,
                 a.job.local_rank, a.launcher, a.mpi, rank, size, local, launcher, mpi);
    assert_int_equal(a.first, rank == 0);
    assert_int_equal(a.speaks, rank == 0);
}

static void expect_none(const char *environment)
{
    answer a = ask(environment);
    if (a.job.launched || a.job.rank != 0 || a.job.size != 1 || a.job.local_rank != -1 ||
        *a.launcher || strcmp(a.mpi, "-") != 0 || !a.first || !a.speaks)
        fail_msg("\"%s\": rank %d of %d of \"%s\", expected no launcher", environment, a.job.rank,
                 a.job.size, a.launcher);
}

static void test_launchers(void **state)
{
    (void)state;
    expect("OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_LOCAL_RANK=1 PMIX_RANK=3",
           3, 4, 1, "mpirun of Open MPI", "openmpi");
    expect("PMI_RANK=0 PMI_SIZE=3 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=3 HYDI_CONTROL_FD=7 PMI_FD=8",
           0, 3, 0, "mpiexec of MPICH", "mpich");
    expect("PMI_RANK=2 PMI_SIZE=3 MPI_LOCALRANKID=2", 2, 3, 2, "mpiexec of MPICH", "mpich");
    expect("PMI_RANK=1 PMI_SIZE=2", 1, 2, -1, "mpiexec of MPICH", "mpich");
    expect("PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=0 I_MPI_MPIRUN=mpirun", 1, 2, 0,
           "mpirun of Intel MPI", "mpich");
    expect("MV2_COMM_WORLD_RANK=5 MV2_COMM_WORLD_SIZE=6 MV2_COMM_WORLD_LOCAL_RANK=1", 5, 6, 1,
           "mpirun_rsh of MVAPICH", "mpich");
    expect("PALS_RANKID=7 PALS_LOCAL_RANKID=3 PMI_RANK=7 PMI_SIZE=8", 7, 8, 3, "mpiexec of PALS",
           "mpich");
    expect("FLUX_TASK_RANK=1 FLUX_JOB_SIZE=2 FLUX_TASK_LOCAL_ID=1 PMI_RANK=1 PMI_SIZE=2 PMI_FD=5",
           1, 2, 1, "flux run", "-");
    expect("OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0", 0, 1, -1, "mpirun of Open MPI",
           "openmpi"); /* one process is a job too */
}

#define STEP                                                                               \
    "SLURM_JOB_ID=9 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4 SLURM_NTASKS=8 SLURM_PROCID=2 " \
    "SLURM_LOCALID=1 "

static void test_slurm(void **state)
{
    (void)state;
    expect(STEP, 2, 4, 1, "srun", "-");
    expect(STEP "SLURM_MPI_TYPE=none", 2, 4, 1, "srun", "-");
    expect(STEP "SLURM_MPI_TYPE=pmix_v4", 2, 4, 1, "srun", "openmpi");
    expect(STEP "PMIX_RANK=2 PMIX_NAMESPACE=slurm.pmix.9.0", 2, 4, 1, "srun", "openmpi");
    expect(STEP "SLURM_MPI_TYPE=pmi2", 2, 4, 1, "srun", "mpich");
    expect(STEP "PMI_FD=12 PMI_RANK=2 PMI_SIZE=4 PMI_JOBID=9.0", 2, 4, 1, "srun", "mpich");
    expect("SLURM_JOB_ID=9 SLURM_STEP_ID=3 SLURM_NTASKS=2 SLURM_PROCID=1", 1, 2, -1, "srun", "-");
    /* a batch script, the shell of salloc, steps that are shells */
    expect_none("SLURM_JOB_ID=9 SLURM_NTASKS=8 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NPROCS=8");
    expect_none("SLURM_JOB_ID=9 SLURM_NTASKS=8");
    expect_none("SLURM_JOB_ID=9 SLURM_STEP_ID=4294967291 SLURM_NTASKS=8 SLURM_PROCID=0");
    expect_none("SLURM_JOB_ID=9 SLURM_STEP_ID=4294967290 SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0 "
                "SLURM_PTY_PORT=4711");
    expect_none("SLURM_JOB_ID=9 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0 "
                "SLURM_PTY_PORT=4711 PMI_RANK=0 PMI_SIZE=1 PMI_FD=9");
    /* mpirun of either kind inside Slurm: its daemons are srun's tasks */
    expect(STEP "OMPI_COMM_WORLD_SIZE=16 OMPI_COMM_WORLD_RANK=13 OMPI_COMM_WORLD_LOCAL_RANK=5", 13,
           16, 5, "mpirun of Open MPI", "openmpi");
    expect(STEP "PMI_RANK=9 PMI_SIZE=12 MPI_LOCALRANKID=0 HYDI_CONTROL_FD=3", 9, 12, 0,
           "mpiexec of MPICH", "mpich");
    expect("SLURM_JOB_ID=9 SLURM_NTASKS=2 PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1", 1, 2, 1,
           "mpiexec of MPICH", "mpich");
}

/* Garbage is no job; it neither crashes nor becomes a rank outside the size. */
static void test_garbage(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                           {"PMI_RANK", "PMI_SIZE"},
                                           {"FLUX_TASK_RANK", "FLUX_JOB_SIZE"}};
    static const char *const values[][2] = {{"", "4"},
                                            {"2", ""},
                                            {"x", "4"},
                                            {"1", "x"},
                                            {"-1", "4"},
                                            {"4", "4"},
                                            {"5", "4"},
                                            {"0", "0"},
                                            {"0", "-2"},
                                            {"0x1", "4"},
                                            {"1.5", "4"},
                                            {"1", "4k"},
                                            {"+1", "4"},
                                            {"2147483648", "4294967296"},
                                            {"99999999999999999999999",
                                             "999999999999999999999999999"},
                                            {"1;rm", "2"},
                                            {"%n%s", "%n"}};
    for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++) {
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            char environment[256];
            snprintf(environment, sizeof environment, "%s=%s %s=%s", pairs[p][0], values[v][0],
                     pairs[p][1], values[v][1]);
            expect_none(environment);
        }
        char alone[64];
        snprintf(alone, sizeof alone, "%s=1", pairs[p][0]);
        expect_none(alone);
        snprintf(alone, sizeof alone, "%s=2", pairs[p][1]);
        expect_none(alone);
    }
    expect_none("");
    expect_none("PMIX_RANK=1");
    expect_none("SLURM_STEP_ID=x SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=1");
    expect_none("SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=4");
    expect("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=zwei", 1, 2,
           -1, "mpirun of Open MPI", "openmpi");
    expect("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=7", 1, 2, -1,
           "mpirun of Open MPI", "openmpi");
}

/* ---- the transport's part ---- */

static int ended_with = -1, ends;

static int leave(int code)
{
    ended_with = code;
    ends++;
    return code ? code : 9;
}

static void test_end(void **state)
{
    (void)state;
    assert_int_equal(fo_job_end(5), 5); /* nothing to leave */
    assert_int_equal(fo_job_end(0), 0);
    fo_transport_job_on_end(leave);
    assert_int_equal(fo_job_end(0), 9);
    assert_int_equal(ended_with, 0);
    assert_int_equal(fo_job_end(4), 4); /* once */
    assert_int_equal(ends, 1);
    fo_transport_job_on_end(leave);
    assert_int_equal(fo_job_end(4), 4);
    assert_int_equal(ended_with, 4);
    fo_transport_job_on_end(leave);
    fo_transport_job_on_end(NULL);
    assert_int_equal(fo_job_end(3), 3);
    assert_int_equal(ends, 2);
}

static void test_speaker(void **state)
{
    (void)state;
    assert_true(fo_job_speaks());
    fo_transport_job_set_speaker(false);
    assert_false(fo_job_speaks());
    assert_true(fo_job_first());
    fo_transport_job_set_speaker(true);
    assert_true(fo_job_speaks());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_launchers), cmocka_unit_test(test_slurm),
        cmocka_unit_test(test_garbage),   cmocka_unit_test(test_end),
        cmocka_unit_test(test_speaker),
    };
    clearenv(); /* also where the tests themselves run under a launcher */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
