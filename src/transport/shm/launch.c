/* Reserves the shared mapping, forks the ranks and watches over them.
 *
 * The parent computes nothing: it waits for children and signals. A rank that dies is declared
 * failed, which wakes the others; what still runs GRACE_NS after a failure is killed, at once when
 * all that is left is stopped. A rank that stays stopped (SIGSTOP) is declared failed a little before
 * the deadline, so that it is named and not a rank that has waited for it. The first SIGINT or SIGTERM
 * sets a flag that ranks may ask for, the second kills them. A rank whose parent dies is killed by the
 * kernel. FLASHOVERLAP_SPIN_US sets how long a waiting rank spins before it sleeps (default 20, 0 when
 * there are more ranks than cores).
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "transport/machine.h"
#include "transport/shm/shm.h"

#define GRACE_NS INT64_C(3000000000)
#define POLL_NS 50000000 /* in case a signal is missed */
#define STOPPED_PART 0.9 /* of the deadline */
#define SPIN_US 20
#define LEAST_ARENA ((size_t)64 << 20)

typedef struct launch_state {
    shm_shared *shared;
    size_t mapped;
    pid_t *children;     /* 0: ended */
    int64_t *stopped_ns; /* since when, by the clock; 0: it isn't */
    int running, stopped;
    int64_t deadline_ns, last_look_ns;
    int blamed; /* the rank that was stopped when the group failed; -1: none */
    pid_t blamed_pid;
    int stops; /* SIGINT and SIGTERM received */
    sigset_t watched, old_mask;
    struct sigaction old_child;
} launch_state;

/* ---- the mapping ---- */

static fo_status reserve(launch_state *state, const fo_transport_options *options)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), ranks = (size_t)options->ranks;
    size_t head = sizeof(shm_shared) + ranks * sizeof(shm_mailbox);
    head = (head + page - 1) / page * page;
    size_t wanted = options->memory ? options->memory : fo_transport_machine_memory();
    size_t least = wanted < LEAST_ARENA ? wanted : LEAST_ARENA;
    for (size_t each = wanted; each >= least; each /= 2) {
        size_t arena = (each + page - 1) / page * page;
        if (arena > (SIZE_MAX / 2 - head) / ranks)
            continue;
        void *memory = mmap(NULL, head + arena * ranks, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED)
            continue;
        state->mapped = head + arena * ranks;
        state->shared = memory; /* zeroed by the kernel */
        state->shared->size = options->ranks;
        state->shared->arenas = (char *)memory + head;
        state->shared->arena_bytes = arena;
        return FO_OK;
    }
    return fo_base_error(
        FO_NO_MEMORY,
        "could not reserve shared memory for %d ranks, tried from %zu down to %zu MiB "
        "a rank: %s; is the address space limited (ulimit -v)?",
        options->ranks, wanted >> 20, least >> 20, strerror(errno));
}

/* ---- a rank ---- */

static int64_t spin_time(int ranks)
{
    const char *set = getenv("FLASHOVERLAP_SPIN_US");
    if (set && *set)
        return (int64_t)(strtod(set, NULL) * 1000);
    return ranks <= fo_transport_machine_cores() ? SPIN_US * 1000 : 0;
}

static void run_rank(launch_state *state, int rank, pid_t parent,
                     const fo_transport_options *options, fo_transport_main rank_main, void *arg)
{
    shm_endpoint shm;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* it died before the line above */
        _exit(1);
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); /* timeouts end when they say */
    signal(SIGINT, SIG_IGN); /* a terminal sends it to all; the parent decides */
    signal(SIGTERM, SIG_IGN);
    /* a handler of the caller's may jump to where the caller goes on: here that would be a second
     * caller */
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS};
    for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++)
        signal(crashes[i], SIG_DFL);
    sigaction(SIGCHLD, &state->old_child, NULL);
    sigprocmask(SIG_SETMASK, &state->old_mask, NULL);
    fo_base_error_clear();
    fo_status status =
        fo_transport_shm_open(&shm, state->shared, rank, options, spin_time(options->ranks));
    if (status == FO_OK)
        status = rank_main(&shm.base, arg);
    if (status != FO_OK)
        fo_transport_shm_declare(state->shared, rank, rank,
                                 *fo_last_error() ? fo_last_error() : fo_status_text(status));
    fo_transport_shm_close(&shm);
    fflush(NULL);
    atomic_store(&state->shared->mailboxes[rank].result, 1 + (int)status);
    _exit(0); /* what the caller registered for its own exit is the caller's */
}

/* ---- the parent ---- */

static void watch_signals(launch_state *state)
{
    struct sigaction standard = {.sa_handler = SIG_DFL};
    sigemptyset(&state->watched);
    sigaddset(&state->watched, SIGCHLD);
    sigaddset(&state->watched, SIGINT);
    sigaddset(&state->watched, SIGTERM);
    sigprocmask(SIG_BLOCK, &state->watched, &state->old_mask);
    sigaction(SIGCHLD, &standard, &state->old_child); /* ignored children leave no status */
}

static void restore_signals(launch_state *state)
{
    struct timespec now = {0};
    while (sigtimedwait(&state->watched, NULL, &now) > 0)
        ; /* what came for us is not the caller's to handle */
    sigaction(SIGCHLD, &state->old_child, NULL);
    sigprocmask(SIG_SETMASK, &state->old_mask, NULL);
}

static void kill_all(launch_state *state)
{
    for (int r = 0; r < state->shared->size; r++)
        if (state->children[r])
            kill(state->children[r], SIGKILL);
}

static void declare_dead(launch_state *state, int rank, const char *cause)
{
    fo_transport_failure_inherit(&state->shared->failure, rank);
    fo_transport_shm_declare(state->shared, state->shared->size, rank, cause);
}

/* Stopped or continued; how long is counted from when it was seen. */
static void note_stop(launch_state *state, int rank, bool stopped)
{
    if ((state->stopped_ns[rank] != 0) == stopped)
        return;
    state->stopped_ns[rank] = stopped ? fo_base_clock_ns() : 0;
    state->stopped += stopped ? 1 : -1;
}

static void note_end(launch_state *state, int rank, int how)
{
    char cause[128];
    note_stop(state, rank, false);
    state->children[rank] = 0;
    state->running--;
    if (WIFSIGNALED(how)) {
        snprintf(cause, sizeof cause, "was killed by signal %d (%s)", WTERMSIG(how),
                 strsignal(WTERMSIG(how)));
        declare_dead(state, rank, cause);
    } else if (WEXITSTATUS(how) || !atomic_load(&state->shared->mailboxes[rank].result)) {
        snprintf(cause, sizeof cause, "exited with code %d before it had finished",
                 WEXITSTATUS(how));
        declare_dead(state, rank, cause);
    }
}

static void reap(launch_state *state)
{
    for (int r = 0; r < state->shared->size; r++) {
        int how, which = WNOHANG | WUNTRACED | WCONTINUED;
        while (state->children[r] &&
               waitpid(state->children[r], &how, which) == state->children[r]) {
            if (WIFSTOPPED(how) || WIFCONTINUED(how))
                note_stop(state, r, WIFSTOPPED(how));
            else
                note_end(state, r, how);
        }
    }
}

/* The rank that has been stopped for longest; -1: none is. */
static int longest_stopped(const launch_state *state)
{
    int longest = -1;
    for (int r = 0; state->stopped && r < state->shared->size; r++)
        if (state->stopped_ns[r] &&
            (longest < 0 || state->stopped_ns[r] < state->stopped_ns[longest]))
            longest = r;
    return longest;
}

/* Before the ranks that wait for it lose their patience. */
static void judge_stopped(launch_state *state)
{
    char cause[128];
    int64_t now = fo_base_clock_ns();
    /* a terminal stops all of us and lets all go on: while the parent was stopped too nothing counts */
    if (now - state->last_look_ns > 20 * POLL_NS)
        for (int r = 0; r < state->shared->size; r++)
            state->stopped_ns[r] = state->stopped_ns[r] ? now : 0;
    state->last_look_ns = now;
    int rank = longest_stopped(state);
    if (rank < 0 ||
        (double)(now - state->stopped_ns[rank]) < STOPPED_PART * (double)state->deadline_ns)
        return;
    snprintf(cause, sizeof cause, "is stopped (pid %ld), for %.1f s; did somebody send it SIGSTOP?",
             (long)state->children[rank], (double)(now - state->stopped_ns[rank]) * 1e-9);
    declare_dead(state, rank, cause);
}

static void watch_children(launch_state *state)
{
    int64_t kill_at = 0;
    for (reap(state); state->running; reap(state)) {
        struct timespec poll = {.tv_nsec = POLL_NS};
        int number = sigtimedwait(&state->watched, NULL, &poll);
        if (number == SIGINT || number == SIGTERM) {
            atomic_store(&state->shared->interrupted, 1);
            if (++state->stops >= 2)
                kill_all(state);
        }
        judge_stopped(state);
        if (!fo_transport_failure_seen(&state->shared->failure))
            continue;
        int64_t now = fo_base_clock_ns();
        if (!kill_at) {
            kill_at = now + GRACE_NS;
            state->blamed = longest_stopped(state);
            state->blamed_pid = state->blamed < 0 ? 0 : state->children[state->blamed];
        }
        if (now >= kill_at || state->stopped == state->running)
            kill_all(state);
    }
}

static fo_status group_result(const launch_state *state)
{
    fo_failure *failure = &state->shared->failure;
    if (state->stops >= 2)
        return fo_base_error(FO_INTERRUPTED, "all ranks were killed after a second signal to stop");
    if (!fo_transport_failure_seen(failure))
        return FO_OK;
    int result = atomic_load(&state->shared->mailboxes[failure->rank].result);
    fo_status status = result > 1 ? (fo_status)(result - 1) : FO_PEER;
    fo_transport_failure_report(failure, status);
    if (status != FO_TIMEOUT || state->blamed < 0 || state->blamed == failure->rank)
        return status;
    /* it waited for a rank that has been stopped for less than the deadline */
    return fo_base_error(FO_PEER, "rank %d: is stopped (pid %ld); %s", state->blamed,
                         (long)state->blamed_pid, fo_last_error());
}

static fo_status launch(const fo_transport_options *options, fo_transport_main rank_main, void *arg)
{
    launch_state state = {.blamed = -1, .last_look_ns = fo_base_clock_ns()};
    fo_status status = reserve(&state, options);
    if (status != FO_OK)
        return status;
    state.deadline_ns = (int64_t)((options->deadline_s > 0 ? options->deadline_s : 60) * 1e9);
    state.children = calloc((size_t)options->ranks, sizeof *state.children);
    state.stopped_ns = calloc((size_t)options->ranks, sizeof *state.stopped_ns);
    if (!state.children || !state.stopped_ns) {
        free(state.children);
        free(state.stopped_ns);
        munmap(state.shared, state.mapped);
        return fo_base_error(FO_NO_MEMORY, "no memory for %d ranks", options->ranks);
    }
    watch_signals(&state);
    fflush(NULL); /* or children would write it again */
    pid_t parent = getpid();
    for (int r = 0; r < options->ranks; r++) {
        pid_t child = fork();
        if (child == 0)
            run_rank(&state, r, parent, options, rank_main, arg);
        if (child < 0) {
            char cause[128];
            snprintf(cause, sizeof cause, "its process could not be started: %s", strerror(errno));
            declare_dead(&state, r, cause);
            break;
        }
        state.children[r] = child;
        state.running++;
    }
    watch_children(&state);
    status = group_result(&state);
    restore_signals(&state);
    free(state.children);
    free(state.stopped_ns);
    munmap(state.shared, state.mapped);
    return status;
}

const fo_transport fo_transport_shm = {
    .ops = &fo_transport_shm_ops,
    .about = "ranks as forked processes over anonymous shared memory; peers read in place",
    .launch = launch,
};
