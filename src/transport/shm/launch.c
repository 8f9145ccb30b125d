/* Reserves the shared mapping, forks the ranks and watches over them.
 *
 * The parent computes nothing: it waits for children and signals. A rank that dies is declared
 * failed, which wakes the others; what still runs GRACE_NS after a failure is killed. The first
 * SIGINT or SIGTERM sets a flag that ranks may ask for, the second kills them. A rank whose parent
 * dies is killed by the kernel. FLASHOVERLAP_SPIN_US sets how long a waiting rank spins before it
 * sleeps (default 20, 0 when there are more ranks than cores). */
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
#define SPIN_US 20
#define LEAST_ARENA ((size_t)64 << 20)

typedef struct launch_state {
    shm_shared *shared;
    size_t mapped;
    pid_t *children; /* 0: ended */
    int running;
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

static void note_end(launch_state *state, int rank, int how)
{
    char cause[128];
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
        int how;
        if (state->children[r] && waitpid(state->children[r], &how, WNOHANG) == state->children[r])
            note_end(state, r, how);
    }
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
        if (!fo_transport_failure_seen(&state->shared->failure))
            continue;
        int64_t now = fo_base_clock_ns();
        if (!kill_at)
            kill_at = now + GRACE_NS;
        if (now >= kill_at)
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
    return fo_transport_failure_report(failure, result > 1 ? (fo_status)(result - 1) : FO_PEER);
}

static fo_status launch(const fo_transport_options *options, fo_transport_main rank_main, void *arg)
{
    launch_state state = {.running = 0};
    fo_status status = reserve(&state, options);
    if (status != FO_OK)
        return status;
    state.children = calloc((size_t)options->ranks, sizeof *state.children);
    if (!state.children) {
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
    munmap(state.shared, state.mapped);
    return status;
}

const fo_transport fo_transport_shm = {
    .ops = &fo_transport_shm_ops,
    .about = "ranks as forked processes over anonymous shared memory; peers read in place",
    .launch = launch,
};
