/* Joining the job that a launcher started, running a rank in this process, leaving the job.
 *
 * MPI is initialised by the first launch and kept until the process ends; so is the lifeline, unless a group fails:
 * the next one then opens another. FLASHOVERLAP_MPI_SUBSET=1 (for tests) lets groups be smaller than the job: its
 * first processes run them, the others wait for the result. FLASHOVERLAP_SPIN_US as in shm. */
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "flashoverlap/job.h"
#include "transport/herald.h"
#include "transport/job.h"
#include "transport/machine.h"
#include "transport/mpi/mpi.h"

#define SPIN_US 200
#define LEAST_TAG_MOST ((1 << 20) - 1)
#define RETURN_NS INT64_C(6000000000) /* how long ranks wait for each other once one has failed */
#define LAST_WORDS_NS 300000000
#define DRAIN_NS 2000000
#define LEAVE_NS 20000000
#define HYDRA_MS 5000
#define MEETING_NAP_NS 2000000
#define LEAST_SILENCE_NS INT64_C(2000000000)
#define ABORT_NAPS 200 /* ms */

/* What every process tells the others. */
typedef struct hello {
    fo_place place;
    cpu_set_t cores; /* it may use */
} hello;

/* How a rank's main function ended, and what it was doing when it learnt of a failure. */
typedef struct mpi_result {
    int32_t status;
    char where[sizeof((fo_failure *)NULL)->where];
} mpi_result;

/* This process in its job. */
static struct {
    const fo_mpi_shim *shim; /* NULL: not joined */
    pid_t pid;               /* a forked child is not in the job */
    bool left, broken;       /* has left it; some of its processes are gone or stuck */
    fo_mpi_job job;
    fo_place *places; /* [job.size] */
    bool hosts_differ;
    int64_t spin_ns;
    fo_failure failure;
    fo_lifeline *lifeline;
    mpi_endpoint
        kept; /* communicators of the last group, when it was the whole job and ended well */
    mpi_result result, *results; /* of the last group: of this rank, of all */
} me;

static atomic_int interrupted; /* by a signal; launch is not reentrant */

static void on_signal(int number)
{
    (void)number;
    atomic_store(&interrupted, 1);
}

bool fo_transport_mpi_interrupted(void)
{
    return atomic_load(&interrupted) != 0;
}

/* ---- waiting without an endpoint ------------------------------------------------------------------- */

/* Until the request is done (true) or, when asked to look, the group has failed. */
static bool finish(void *request, bool look, int64_t limit_ns)
{
    int64_t begin = fo_base_clock_ns();
    for (;;) {
        bool done = false;
        fo_mpi_result result;
        if (me.shim->test(request, false, 1, &done, &result))
            return false;
        if (done)
            return result.error == 0;
        int64_t waited = fo_base_clock_ns() - begin;
        if (waited > limit_ns || (look && fo_transport_failure_seen(&me.failure)))
            return false;
        if (waited > me.spin_ns)
            fo_transport_mpi_nap(waited, MEETING_NAP_NS);
    }
}

static fo_status exchange(void *arg, const void *mine, size_t bytes, void *all)
{
    uint64_t request = 0;
    int64_t limit_ns = *(const int64_t *)arg;
    if (me.shim->iallgather(me.job.world, mine, (int)bytes, all, &request) ||
        !finish(&request, false, limit_ns))
        return fo_base_error(
            FO_TIMEOUT,
            "rank %d and the others of the job did not meet within %.0f s; has one of them "
            "ended, or do they run different programs?",
            me.job.rank, (double)limit_ns * 1e-9);
    return FO_OK;
}

/* ---- joining --------------------------------------------------------------------------------------- */

static fo_status check_size(const fo_job *job)
{
    if (!job->launched || job->size == me.job.size)
        return FO_OK;
    const char *family = job->mpi && strcmp(job->mpi, me.shim->family) != 0 ? job->mpi : NULL;
    return fo_base_error(FO_UNSUPPORTED,
                         "%s started %d processes, but %s, which this one has loaded, sees %d: the "
                         "launcher belongs to another "
                         "MPI library; %s%s%s start with the launcher of %s",
                         job->launcher, job->size, me.shim->name, me.job.size,
                         family ? "set FLASHOVERLAP_MPI=" : "", family ? family : "",
                         family ? ", or" : "please", me.shim->name);
}

/* Whether the ranks of this host have a core each: then a short spin takes nothing from anyone. */
static int64_t spin_time(const hello *all)
{
    const char *set = getenv("FLASHOVERLAP_SPIN_US");
    if (set && *set)
        return (int64_t)(strtod(set, NULL) * 1000);
    cpu_set_t together;
    CPU_ZERO(&together);
    int ranks = 0;
    for (int r = 0; r < me.job.size; r++)
        if (all[r].place.node == all[me.job.rank].place.node) {
            CPU_OR(&together, &together, &all[r].cores);
            ranks++;
        }
    int cores = CPU_COUNT(&together), granted = fo_transport_machine_cores();
    if (granted < CPU_COUNT(&all[me.job.rank].cores) && granted < cores)
        cores = granted; /* a quota, of all of them or of each */
    return ranks <= cores ? SPIN_US * 1000 : 0;
}

static void number_hosts(hello *all)
{
    int nodes = 0;
    for (int r = 0; r < me.job.size; r++) {
        int before = 0;
        while (before < r && strcmp(all[before].place.host, all[r].place.host) != 0)
            before++;
        all[r].place.node = before < r ? all[before].place.node : nodes++;
        me.places[r] = all[r].place;
    }
    me.hosts_differ = nodes > 1;
}

/* Places of all ranks. */
static fo_status meet(int64_t limit_ns)
{
    hello mine = {.place.pid = getpid()}, *all = calloc((size_t)me.job.size, sizeof *all);
    me.places = calloc((size_t)me.job.size, sizeof *me.places);
    me.results = calloc((size_t)me.job.size, sizeof *me.results);
    if (!all || !me.places || !me.results) {
        free(all);
        return fo_base_error(FO_NO_MEMORY, "no memory for a job of %d processes", me.job.size);
    }
    gethostname(mine.place.host, sizeof mine.place.host - 1);
    if (sched_getaffinity(0, sizeof mine.cores, &mine.cores) != 0)
        CPU_ZERO(&mine.cores);
    fo_status status = exchange(&limit_ns, &mine, sizeof mine, all);
    if (status == FO_OK) {
        number_hosts(all);
        me.spin_ns = spin_time(all);
    }
    free(all);
    return status;
}

/* The last word when the program did not call fo_job_end. */
static void at_exit(int code, void *arg)
{
    (void)arg;
    fo_transport_mpi_end(code);
}

/* Of the lifeline's thread: what is to be said should this process not live to say it. */
static void hold_words(bool speaks)
{
    char line[1200];
    fo_transport_mpi_report(&me.failure, FO_PEER);
    snprintf(line, sizeof line, "flashoverlap: %s", fo_last_error());
    fo_transport_herald_hold(speaks ? line : NULL);
}

/* A message library that finds a peer gone may end the process before the lifeline has told of the death: it is
 * given the time to. */
static void on_abort(int number)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    /* NOLINTBEGIN(bugprone-signal-handler): an atomic load, and a system call */
    for (int i = 0; i < ABORT_NAPS && !fo_transport_herald_holds(); i++)
        nanosleep(&nap, NULL);
    /* NOLINTEND(bugprone-signal-handler) */
    signal(number, SIG_DFL);
    raise(number);
}

/* Open MPI over TCP, where the user has not said otherwise. Its way to put long messages lets the two directions take
 * turns: half the speed. And it asks the receiver before it sends a long one, which costs both ends another look, a
 * tile later; receives are posted early here, so there is nothing to ask. */
static void set_up_tcp(void)
{
    setenv("OMPI_MCA_btl_tcp_flags", "send,inplace", 0);
    setenv("OMPI_MCA_btl_tcp_eager_limit", "2097152", 0);
    setenv("OMPI_MCA_btl_tcp_rndv_eager_limit", "2097152", 0);
}

/* Initialises MPI; checks that its job is the launcher's. */
static fo_status begin_mpi(const fo_job *job)
{
    char words[256];
    fo_status status = fo_transport_mpi_load(&me.shim);
    if (status != FO_OK)
        return status;
    if (job->size > 1)
        fo_transport_herald_open(); /* without one this process speaks for itself */
    set_up_tcp();
    int error = me.shim->init(&me.job);
    if (error) {
        me.shim->explain(error, words, sizeof words);
        return fo_base_error(FO_UNSUPPORTED, "%s can't be initialised: %s", me.shim->name, words);
    }
    me.pid = getpid();
    signal(SIGABRT, on_abort);
    fo_transport_job_on_end(fo_transport_mpi_end);
    status = check_size(job);
    if (status == FO_OK && me.job.tag_most < LEAST_TAG_MOST)
        status = fo_base_error(FO_UNSUPPORTED, "%s allows tags up to %d, expected %d or more",
                               me.shim->name, me.job.tag_most, LEAST_TAG_MOST);
    return status;
}

static fo_status join(int64_t limit_ns)
{
    static fo_status begun = FO_IN_PROGRESS; /* MPI can be initialised once */
    static char sentence[1024];
    fo_job job;
    fo_job_get(&job);
    if (me.left)
        return fo_base_error(FO_INVALID,
                             "this process has left the job of its launcher; start groups before");
    if (me.broken)
        return fo_base_error(FO_PEER,
                             "this job has lost a process when a group failed; start it again");
    if (begun == FO_IN_PROGRESS) {
        begun = begin_mpi(&job);
        if (begun == FO_OK)
            begun = meet(limit_ns);
        snprintf(sentence, sizeof sentence, "%s", fo_last_error());
    } else if (begun != FO_OK) {
        fo_base_error(begun, "%s", sentence);
    }
    return begun;
}

static fo_status check_ranks(int ranks)
{
    const char *subset = getenv("FLASHOVERLAP_MPI_SUBSET");
    fo_job job;
    fo_job_get(&job);
    if (ranks == me.job.size || (ranks < me.job.size && subset && strcmp(subset, "1") == 0))
        return FO_OK;
    if (!job.launched)
        return fo_base_error(
            FO_INVALID,
            "a group of %d ranks over MPI, but no launcher has started this process: use "
            "mpirun -n %d",
            ranks, ranks);
    return fo_base_error(
        FO_INVALID,
        "a group of %d ranks, but %s started %d processes: start %d, or ask for %d ranks", ranks,
        *job.launcher ? job.launcher : "the launcher", me.job.size, ranks, me.job.size);
}

static void meet_heralds(void)
{
    char name[160];
    int bytes;
    const void *key = fo_transport_lifeline_key(me.lifeline, &bytes);
    snprintf(name, sizeof name, "flashoverlap: rank %d on %s: died (pid %lld)", me.job.rank,
             me.places[me.job.rank].host, (long long)getpid());
    fo_transport_herald_meet(key, bytes, name);
}

static fo_status open_lifeline(int64_t deadline_ns)
{
    if (me.lifeline)
        return FO_OK;
    fo_lifeline_options options = {
        .rank = me.job.rank,
        .size = me.job.size,
        .places = me.places,
        /* before the waits of others end, which do not know why */
        .silence_ns = deadline_ns / 2 > LEAST_SILENCE_NS ? deadline_ns / 2 : LEAST_SILENCE_NS,
        .exchange = exchange,
        .exchange_arg = &deadline_ns,
        .on_failure = hold_words,
    };
    memset(&me.failure, 0, sizeof me.failure);
    if (me.hosts_differ)
        me.failure.places = me.places;
    fo_status status = fo_transport_lifeline_open(&options, &me.failure, &me.lifeline);
    if (me.lifeline)
        meet_heralds();
    static bool hooked;
    if (!hooked) /* behind the lifeline's own, hence called before it */
        hooked = on_exit(at_exit, NULL) == 0;
    return status;
}

/* ---- a group --------------------------------------------------------------------------------------- */

/* Largest 2^k - 1 that is a tag. */
static uint32_t tag_mask(int most)
{
    uint32_t mask = 1;
    while (mask * 2 + 1 <= (uint32_t)most && mask < INT32_MAX)
        mask = mask * 2 + 1;
    return mask;
}

static fo_status open_endpoint(mpi_endpoint *mpi, mpi_engine *engine,
                               const fo_transport_options *options, int64_t deadline_ns)
{
    *engine = (mpi_engine){
        .shim = me.shim,
        .failure = &me.failure,
        .lifeline = me.lifeline,
        .rank = me.job.rank,
        .size = me.job.size,
        .spin_ns = me.spin_ns,
        .poll_comm = me.job.world,
        .memory.left = options->memory ? options->memory : fo_transport_machine_memory(),
    };
    fo_status status = fo_transport_mpi_engine_init(engine);
    if (options->ranks == me.job.size)
        *mpi = me.kept;
    mpi->base = (fo_endpoint){
        .ops = &fo_transport_mpi_ops,
        .rank = me.job.rank,
        .size = options->ranks,
        .deadline_ns = deadline_ns,
        .places = me.places,
    };
    mpi->engine = engine;
    mpi->tag_mask = tag_mask(me.job.tag_most);
    if (status != FO_OK || (options->ranks == me.job.size && mpi->serials[0]))
        return status;
    if (options->ranks == me.job.size)
        return fo_transport_mpi_open_comms(mpi, me.job.world, NULL, 0, 0);
    int *members = calloc((size_t)options->ranks, sizeof *members);
    if (!members)
        return fo_base_error(FO_NO_MEMORY, "no memory for %d ranks", options->ranks);
    for (int r = 0; r < options->ranks; r++)
        members[r] = r;
    status = fo_transport_mpi_open_comms(mpi, me.job.world, members, options->ranks, 1);
    free(members);
    return status;
}

/* Communicators of the whole job serve its next group too. */
static void close_endpoint(mpi_endpoint *mpi)
{
    if (mpi->base.size == me.job.size)
        me.kept = *mpi;
    else
        for (int i = 0; i < MPI_COMMS; i++)
            (void)me.shim->release(mpi->comms[i]);
    fo_transport_mpi_engine_free(mpi->engine);
}

/* The words of the lowest rank that has any are everyone's. */
static void choose_witness(fo_failure *failure)
{
    for (int r = 0; r < me.job.size; r++) {
        if (r == failure->rank || !*me.results[r].where)
            continue;
        memcpy(failure->where, me.results[r].where, sizeof failure->where);
        atomic_store(&failure->heard_claim, r + 1);
        atomic_store(&failure->heard, 1);
        return;
    }
}

/* Says what has failed. Where not all results were exchanged somebody is gone or stuck: this is the job's last
 * group. */
static fo_status end_failed(fo_status own, bool exchanged)
{
    fo_status status = own > FO_IN_PROGRESS ? own : FO_PEER;
    if (me.failure.rank != me.job.rank)
        status = FO_PEER;
    me.broken = !exchanged;
    fo_transport_herald_heard(); /* once more where all came, some with bad news */
    if (exchanged) {
        choose_witness(&me.failure);
        if (me.results[me.failure.rank].status > FO_IN_PROGRESS)
            status = (fo_status)me.results[me.failure.rank].status;
    }
    /* Ranks that fail at once take each its own failure for the first: the lifeline of each would leave it to another. All
     * who met are alive. */
    fo_transport_job_set_speaker(
        exchanged ? me.job.rank == 0 : !me.lifeline || fo_transport_lifeline_speaks(me.lifeline));
    fo_transport_lifeline_close(me.lifeline, true);
    me.lifeline = NULL;
    return fo_transport_mpi_report(&me.failure, status);
}

static bool all_are_well(void)
{
    for (int r = 0; r < me.job.size; r++)
        if (me.results[r].status != FO_OK)
            return false;
    return true;
}

/* All ranks give their result; which is the barrier too. After a failure those who live all come here soon, but
 * nobody waits for a dead one, which did not declare itself. */
static bool exchange_results(mpi_engine *engine)
{
    uint64_t request = 0;
    if (me.shim->iallgather(me.job.world, &me.result, (int)sizeof me.result, me.results, &request))
        return false;
    if (finish(&request, true, INT64_MAX))
        return true;
    fo_transport_herald_heard();
    return fo_transport_mpi_has_failed(engine) && fo_transport_mpi_returns(engine) &&
           finish(&request, false, RETURN_NS);
}

/* Ends the group. A failure that is seen although all results are good is of the next group, which others have
 * begun. */
static fo_status end_group(mpi_engine *engine, fo_status status)
{
    if (status != FO_OK && !fo_transport_mpi_has_failed(engine))
        fo_transport_mpi_declare(engine, me.job.rank,
                                 *fo_last_error() ? fo_last_error() : fo_status_text(status));
    bool failed = fo_transport_mpi_has_failed(engine);
    me.result = (mpi_result){.status = (int32_t)(failed && status == FO_OK ? FO_PEER : status)};
    if (failed && atomic_load(&me.failure.heard))
        memcpy(me.result.where, me.failure.where, sizeof me.result.where);
    bool exchanged = exchange_results(engine);
    if (exchanged && all_are_well())
        return FO_OK;
    /* another one's sentence may still be on its way */
    int64_t begin = fo_base_clock_ns();
    while (!fo_transport_mpi_has_failed(engine) && fo_base_clock_ns() - begin < RETURN_NS)
        fo_transport_mpi_nap(0, MEETING_NAP_NS);
    if (!fo_transport_mpi_has_failed(engine))
        fo_transport_mpi_declare(engine, me.job.rank, "the ranks could not exchange their results");
    return end_failed(status, exchanged);
}

static fo_status run_group(const fo_transport_options *options, int64_t deadline_ns,
                           fo_transport_main rank_main, void *arg)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESETHAND | SA_RESTART};
    struct sigaction old_int, old_term;
    /* stay when the group fails: see the end of mpi.h's first comment */
    mpi_engine *engine = calloc(1, sizeof *engine);
    mpi_endpoint *mpi = calloc(1, sizeof *mpi);
    fo_status status = FO_OK;
    if (!engine || !mpi) {
        free(engine);
        free(mpi);
        return fo_base_error(FO_NO_MEMORY, "no memory for a rank");
    }
    bool member = me.job.rank < options->ranks;
    *engine = (mpi_engine){.shim = me.shim,
                           .failure = &me.failure,
                           .lifeline = me.lifeline,
                           .rank = me.job.rank};
    if (member) {
        status = open_endpoint(mpi, engine, options, deadline_ns);
        int slack = prctl(PR_GET_TIMERSLACK, 0UL, 0UL, 0UL, 0UL);
        prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); /* naps end when they say */
        atomic_store(&interrupted, 0);
        sigaction(SIGINT, &action, &old_int); /* the second signal acts as ever */
        sigaction(SIGTERM, &action, &old_term);
        if (status == FO_OK)
            status = rank_main(&mpi->base, arg);
        sigaction(SIGINT, &old_int, NULL);
        sigaction(SIGTERM, &old_term, NULL);
        if (slack > 0)
            prctl(PR_SET_TIMERSLACK, (unsigned long)slack, 0UL, 0UL, 0UL);
    }
    status = end_group(engine, status);
    if (status != FO_OK) /* messages may be left in them */
        memset(&me.kept, 0, sizeof me.kept);
    else if (member)
        close_endpoint(mpi);
    if (status == FO_OK || !member) {
        free(engine);
        free(mpi);
    }
    return status;
}

static fo_status launch(const fo_transport_options *options, fo_transport_main rank_main, void *arg)
{
    int64_t deadline_ns = (int64_t)((options->deadline_s > 0 ? options->deadline_s : 60) * 1e9);
    fo_base_error_clear();
    fo_status status = join(deadline_ns);
    if (status == FO_OK)
        status = check_ranks(options->ranks);
    if (status == FO_OK)
        status = open_lifeline(deadline_ns);
    if (status != FO_OK)
        return status;
    return run_group(options, deadline_ns, rank_main, arg);
}

/* ---- leaving --------------------------------------------------------------------------------------- */

/* With an error nobody is waited for, and MPI is not finalised, which would wait for all: launchers end a job whose
 * process leaves like this at once. All but the one that says what went wrong leave a little later, so that it is
 * not killed before it has said it. */
static void leave_with_error(int code)
{
    char cause[64];
    fo_transport_herald_goodbye();
    snprintf(cause, sizeof cause, "exited with code %d before it had finished (pid %lld)", code,
             (long long)getpid());
    if (me.lifeline) /* a failure that is known already stays the first */
        fo_transport_lifeline_declare(me.lifeline, me.job.rank, cause);
    fo_transport_lifeline_close(me.lifeline, true);
    struct timespec pause = {.tv_nsec = LAST_WORDS_NS};
    if (!fo_job_speaks())
        nanosleep(&pause, NULL);
}

/* All processes meet, move what is still in the library, and meet again: finalising leaves less to chance then. False
 * when one has failed, or will not come. */
static bool meet_to_leave(void)
{
    bool watched = me.lifeline != NULL;
    for (int time = 0; time < 2; time++) {
        uint64_t request = 0;
        if (me.broken || me.shim->ibarrier(me.job.world, &request) ||
            !finish(&request, watched, watched ? INT64_MAX : RETURN_NS))
            return false;
        for (int64_t until = fo_base_clock_ns() + DRAIN_NS;
             time == 0 && fo_base_clock_ns() < until;)
            (void)me.shim->poll(me.job.world);
    }
    if (me.hosts_differ) /* nobody is inside the library any more when the first begins to end it */
        nanosleep(&(struct timespec){.tv_nsec = LEAVE_NS}, NULL);
    return true;
}

/* MPICH 4.0 over TCP waits for ever at its end, in one of seven runs: for a peer that has passed that point and looks
 * at its messages no more. All are ready to leave, so nothing is lost without that end; but its launcher, Hydra,
 * takes a process that goes without a farewell for a failed one. This is the farewell, in the words of PMI 1. */
static bool tell_hydra(void)
{
    static const char farewell[] = "cmd=finalize\n", expected[] = "cmd=finalize_ack";
    const char *descriptor = getenv("PMI_FD");
    char answer[64] = "";
    struct pollfd hydra = {.fd = descriptor ? atoi(descriptor) : -1, .events = POLLIN};
    if (strcmp(me.shim->family, "mpich") != 0 || hydra.fd <= STDERR_FILENO ||
        write(hydra.fd, farewell, sizeof farewell - 1) < 0 || poll(&hydra, 1, HYDRA_MS) <= 0)
        return false;
    return read(hydra.fd, answer, sizeof answer - 1) > 0 &&
           strncmp(answer, expected, sizeof expected - 1) == 0;
}

static int finalize(void)
{
    fflush(NULL); /* a launcher may close the output of a process that has ended MPI */
    return tell_hydra() || me.shim->finalize() == 0 ? 0 : 1;
}

static int leave_in_order(void)
{
    bool all = meet_to_leave(); /* for as long as the slowest has work to do */
    fo_transport_herald_goodbye();
    fo_transport_lifeline_close(me.lifeline, !all);
    if (!all)
        return 1;
    return me.job.own ? finalize() : 0;
}

int fo_transport_mpi_end(int code)
{
    fo_transport_job_on_end(NULL);
    if (!me.shim || me.left || me.pid != getpid())
        return code;
    me.left = true;
    if (code != 0)
        leave_with_error(code);
    else
        code = leave_in_order();
    me.lifeline = NULL;
    return code;
}

const fo_transport fo_transport_mpi = {
    .ops = &fo_transport_mpi_ops,
    .about = "ranks that mpirun, mpiexec or srun started, over its MPI library; on any number of "
             "machines",
    .launch = launch,
};
