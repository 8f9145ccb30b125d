/* How waiting, failing, dying, stopping and the emulated link behave on every transport. */
#include "conformance/ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MS INT64_C(1000000)

static int64_t now_ms(void)
{
    return fo_base_clock_ns() / MS;
}

static void assert_no_children(void)
{
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

static void assert_says(const char *part)
{
    if (!strstr(fo_last_error(), part))
        fail_msg("expected a sentence with \"%s\", found \"%s\"", part, fo_last_error());
}

/* Calls `check` for every transport in every hook. */
static void everywhere(void (*check)(const fo_transport *, ranks_hook))
{
    for (int t = 0; fo_transport_at(t); t++)
        for (int hook = 0; hook < HOOK_COUNT && !ranks_skip(fo_transport_at(t)); hook++)
            check(fo_transport_at(t), (ranks_hook)hook);
}

static void assert_status(const fo_transport *transport, ranks_hook hook, fo_status found,
                          fo_status expected)
{
    if (found != expected)
        fail_msg("%s, hook %d: status %s, expected %s; \"%s\"", transport->ops->name, (int)hook,
                 fo_status_name(found), fo_status_name(expected), fo_last_error());
}

/* Waits for a message that never comes. */
static fo_status wait_forever(fo_endpoint *e, int peer)
{
    fo_request request = {0};
    char byte;
    TRY(e->ops->irecv(e, &request, peer, 77, &byte, 1));
    return ranks_wait(e, &request);
}

/* ---- waiting
 * -------------------------------------------------------------------------------------------- */

static double own_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static fo_status waits_end(fo_endpoint *e, void *arg)
{
    (void)arg;
    CHECK(e->ops->wait(e, 0) == FO_OK);
    CHECK(e->ops->wait(e, fo_base_clock_ns() - MS) == FO_OK);
    double used = own_seconds();
    int64_t begin = fo_base_clock_ns(), until = begin + 300 * MS;
    int returns = 0;
    while (fo_base_clock_ns() < until) {
        TRY(e->ops->wait(e, until));
        returns++;
    }
    CHECK(returns < 50); /* nothing happened: a wait lasts */
    CHECK(own_seconds() - used < 0.2 * 0.3);
    return FO_OK;
}

static void check_waits(const fo_transport *transport, ranks_hook hook)
{
    assert_status(transport, hook, ranks_launch(transport, 4, hook, 30, waits_end, NULL), FO_OK);
}

static void test_waits_end_and_cost_nothing(void **state)
{
    (void)state;
    everywhere(check_waits);
}

/* A message that arrives between a test and the wait ends the wait. */
static fo_status no_lost_wakeup(fo_endpoint *e, void *arg)
{
    (void)arg;
    fo_request in = {0}, out = {0};
    int peer = e->size - 1 - e->rank;
    for (int i = 0; i < 3000; i++) {
        TRY(e->ops->irecv(e, &in, peer, 1, NULL, 0));
        TRY(e->ops->isend(e, &out, peer, 1, NULL, 0, 0));
        TRY(ranks_wait(e, &in));
        TRY(ranks_wait(e, &out));
    }
    return FO_OK;
}

static void check_wakeups(const fo_transport *transport, ranks_hook hook)
{
    int64_t begin = now_ms(); /* one lost wake-up would cost the deadline */
    assert_status(transport, hook, ranks_launch(transport, 2, hook, 20, no_lost_wakeup, NULL),
                  FO_OK);
    assert_true(now_ms() - begin < 15000);
}

static void test_no_lost_wakeup(void **state)
{
    (void)state;
    everywhere(check_wakeups);
    setenv("FLASHOVERLAP_SPIN_US", "0", 1); /* sleep at once: the narrow path */
    everywhere(check_wakeups);
    unsetenv("FLASHOVERLAP_SPIN_US");
}

/* A timeout names the peer, and the request can still be waited for. */
static fo_status timeout_then_more(fo_endpoint *e, void *arg)
{
    (void)arg;
    fo_request request = {0};
    char byte = 'x';
    if (e->rank == 1) {
        TRY(e->ops->irecv(e, &request, 0, 4, &byte, 1));
        int64_t begin = fo_base_clock_ns(), kept = e->deadline_ns;
        e->deadline_ns = 50 * MS;
        CHECK(ranks_wait(e, &request) == FO_TIMEOUT);
        CHECK(fo_base_clock_ns() - begin >= 50 * MS);
        CHECK(strstr(fo_last_error(), "rank 1 waited") && strstr(fo_last_error(), "rank 0"));
        e->deadline_ns = kept;
        fo_request go = {0};
        TRY(e->ops->isend(e, &go, 0, 5, NULL, 0, 0));
        TRY(ranks_wait(e, &request));
        TRY(ranks_wait(e, &go));
        CHECK(byte == 'y');
    } else if (e->rank == 0) {
        fo_request go = {0};
        TRY(e->ops->irecv(e, &go, 1, 5, NULL, 0));
        TRY(ranks_wait(e, &go));
        byte = 'y';
        TRY(e->ops->isend(e, &request, 1, 4, &byte, 1, 0));
        TRY(ranks_wait(e, &request));
    }
    return FO_OK;
}

static void check_timeout(const fo_transport *transport, ranks_hook hook)
{
    assert_status(transport, hook, ranks_launch(transport, 2, hook, 30, timeout_then_more, NULL),
                  FO_OK);
}

static void test_timeout(void **state)
{
    (void)state;
    everywhere(check_timeout);
}

/* ---- errors
 * -----------------------------------------------------------------------------------------------
 */

static fo_status other_size(fo_endpoint *e, void *arg)
{
    bool early = arg != NULL; /* whether the receive is posted before the message */
    fo_request request = {0}, order = {0};
    char bytes[8] = {0};
    if (e->rank == 0) {
        if (early) {
            TRY(e->ops->irecv(e, &order, 1, 2, NULL, 0));
            TRY(ranks_wait(e, &order));
        }
        TRY(e->ops->isend(e, &request, 1, 1, bytes, 4, 0));
        return ranks_wait(e, &request); /* the sender is let go, or sees that the other gave up */
    }
    TRY(e->ops->irecv(e, &request, 0, 1, bytes, 8));
    if (early) {
        TRY(e->ops->isend(e, &order, 0, 2, NULL, 0, 0));
        TRY(ranks_wait(e, &order));
    }
    return ranks_wait(e, &request);
}

static void check_other_size(const fo_transport *transport, ranks_hook hook)
{
    for (int early = 0; early < 2; early++) {
        fo_status found = ranks_launch(transport, 2, hook, 30, other_size, early ? &early : NULL);
        assert_status(transport, hook, found, FO_INTERNAL);
        assert_says("rank 1");
        assert_says("8 bytes");
        assert_says("4 bytes");
    }
}

static void test_other_size(void **state)
{
    (void)state;
    everywhere(check_other_size);
}

static fo_status made_to_fail(fo_endpoint *e, void *arg)
{
    (void)arg;
    if (e->rank != 0) {
        fo_status status = wait_forever(e, 0);
        CHECK(status == FO_PEER && strstr(fo_last_error(), "rank 0: pulled the plug"));
        fo_request request = {0};
        CHECK(e->ops->progress(e) == FO_PEER);
        CHECK(e->ops->wait(e, fo_base_clock_ns() + 1000 * MS) == FO_PEER);
        CHECK(e->ops->irecv(e, &request, 0, 1, NULL, 0) == FO_PEER);
        CHECK(e->ops->isend(e, &request, 0, 1, NULL, 0, 0) == FO_PEER);
        CHECK(e->ops->test(e, &request) == FO_PEER);
        return status;
    }
    int64_t until = fo_base_clock_ns() + 30 * MS;
    while (fo_base_clock_ns() < until)
        TRY(e->ops->wait(e, until));
    ranks_fail(e, 0, "pulled the plug");
    ranks_fail(e, 1, "too late to matter");
    CHECK(e->ops->progress(e) == FO_PEER);
    return FO_PEER;
}

static void check_fail(const fo_transport *transport, ranks_hook hook)
{
    int64_t begin = now_ms();
    fo_status found = ranks_launch(transport, 5, hook, 30, made_to_fail, NULL);
    assert_status(transport, hook, found, FO_PEER);
    assert_string_equal(fo_last_error(), "rank 0: pulled the plug");
    assert_true(now_ms() - begin < 5000);
}

static void test_fail(void **state)
{
    (void)state;
    everywhere(check_fail);
}

static fo_status returns_error(fo_endpoint *e, void *arg)
{
    (void)arg;
    if (e->rank == 2)
        return fo_base_error(FO_FORMAT, "line 3 is not a number");
    return wait_forever(e, 2);
}

static fo_status returns_error_silently(fo_endpoint *e, void *arg)
{
    (void)arg;
    return e->rank == 1 ? FO_NUMERIC : wait_forever(e, 1);
}

static void check_returned(const fo_transport *transport, ranks_hook hook)
{
    assert_status(transport, hook, ranks_launch(transport, 4, hook, 30, returns_error, NULL),
                  FO_FORMAT);
    assert_string_equal(fo_last_error(), "rank 2: line 3 is not a number");
    assert_status(transport, hook,
                  ranks_launch(transport, 2, hook, 30, returns_error_silently, NULL), FO_NUMERIC);
    assert_says("rank 1: not a number");
    assert_no_children();
}

static void test_returned_error(void **state)
{
    (void)state;
    everywhere(check_returned);
}

/* ---- death
 * ----------------------------------------------------------------------------------------------------
 */

static fo_status dies(fo_endpoint *e, void *arg)
{
    int how = *(int *)arg;
    if (e->rank == 1) {
        if (how > 0)
            raise(how);
        _exit(-how);
    }
    if (how == SIGKILL && e->rank == 2)
        for (;;) /* deaf: waits for nobody */
            pause();
    return wait_forever(e, 1);
}

static void check_death(const fo_transport *transport, ranks_hook hook)
{
    if (!(transport->ops->caps & FO_TRANSPORT_PROCESS))
        return;
    static const struct {
        int how;
        const char *says;
    } deaths[] = {
        {SIGKILL, "rank 1: was killed by signal 9 (Killed)"},
        {SIGABRT, "rank 1: was killed by signal 6 (Aborted)"},
        {-3, "rank 1: exited with code 3"},
        {0, "rank 1: exited with code 0 before"},
    };
    for (size_t i = hook == HOOK_NONE ? 0 : 1; i < sizeof deaths / sizeof *deaths; i++) {
        int64_t begin = now_ms();
        int how = deaths[i].how;
        assert_status(transport, hook, ranks_launch(transport, 3, hook, 30, dies, &how), FO_PEER);
        assert_says(deaths[i].says);
        assert_true(now_ms() - begin < 10000);
        assert_no_children();
    }
}

static void test_death(void **state)
{
    (void)state;
    everywhere(check_death);
}

/* When the launching process is killed its ranks go with it. */
static fo_status report_and_hang(fo_endpoint *e, void *arg)
{
    (void)e;
    pid_t self = getpid();
    CHECK(write(((int *)arg)[1], &self, sizeof self) == sizeof self);
    for (;;)
        pause();
}

static void check_orphans(const fo_transport *transport, ranks_hook hook)
{
    enum { RANKS = 3 };
    if (!(transport->ops->caps & FO_TRANSPORT_PROCESS) || hook != HOOK_NONE)
        return;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t launcher = fork(), ranks[RANKS];
    if (launcher == 0) {
        ranks_launch(transport, RANKS, hook, 30, report_and_hang, ends);
        _exit(0);
    }
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(read(ends[0], &ranks[r], sizeof ranks[r]), sizeof ranks[r]);
    close(ends[1]);
    kill(launcher, SIGKILL);
    waitpid(launcher, NULL, 0);
    char byte; /* the pipe ends when the last rank has gone */
    assert_int_equal(read(ends[0], &byte, 1), 0);
    close(ends[0]);
}

static void test_orphans(void **state)
{
    (void)state;
    everywhere(check_orphans);
}

/* ---- being stopped
 * ------------------------------------------------------------------------------------------------
 */

static fo_status until_interrupted(fo_endpoint *e, void *arg)
{
    pid_t launcher = *(pid_t *)arg;
    if (e->rank == 0)
        kill(launcher, SIGTERM);
    int64_t until = fo_base_clock_ns() + 10000 * MS;
    while (!e->ops->interrupted(e)) {
        CHECK(fo_base_clock_ns() < until);
        TRY(e->ops->wait(e, fo_base_clock_ns() + MS));
    }
    return FO_OK;
}

static void check_stop(const fo_transport *transport, ranks_hook hook)
{
    struct sigaction before, after;
    sigset_t mask_before, mask_after;
    pid_t self = getpid();
    sigaction(SIGTERM, NULL, &before);
    sigprocmask(SIG_SETMASK, NULL, &mask_before);
    assert_status(transport, hook, ranks_launch(transport, 3, hook, 30, until_interrupted, &self),
                  FO_OK);
    sigaction(SIGTERM, NULL, &after);
    sigprocmask(SIG_SETMASK, NULL, &mask_after);
    assert_true(before.sa_handler == after.sa_handler);
    for (int number = 1; number < 32; number++)
        assert_int_equal(sigismember(&mask_before, number), sigismember(&mask_after, number));
}

static void test_stop(void **state)
{
    (void)state;
    everywhere(check_stop);
}

static fo_status deaf_to_signals(fo_endpoint *e, void *arg)
{
    pid_t launcher = *(pid_t *)arg;
    if (e->rank == 0) {
        kill(launcher, SIGINT);
        while (!e->ops->interrupted(e))
            TRY(e->ops->wait(e, fo_base_clock_ns() + MS));
        kill(launcher, SIGINT);
    }
    for (;;)
        pause();
}

static void check_second_stop(const fo_transport *transport, ranks_hook hook)
{
    if (!(transport->ops->caps & FO_TRANSPORT_PROCESS) || hook != HOOK_NONE)
        return; /* threads: the second signal acts as ever and ends the process */
    pid_t self = getpid();
    int64_t begin = now_ms();
    fo_status found = ranks_launch(transport, 3, hook, 30, deaf_to_signals, &self);
    assert_status(transport, hook, found, FO_INTERRUPTED);
    assert_true(now_ms() - begin < 2000);
    assert_no_children();
}

static void test_second_stop(void **state)
{
    (void)state;
    everywhere(check_second_stop);
}

/* ---- faults
 * -------------------------------------------------------------------------------------------------------
 */

static fo_status faulty_stream(fo_endpoint *endpoint, void *arg)
{
    fo_endpoint *e;
    TRY(fo_transport_hook_fault(endpoint, arg, &e));
    fo_request request = {0};
    uint32_t value = 0;
    fo_status status = FO_OK;
    e->deadline_ns = (e->rank == 0 ? 10000 : 500) * MS; /* so that the receiver speaks first */
    for (uint32_t i = 0; i < 10 && status == FO_OK && e->rank < 2; i++) {
        value = e->rank == 0 ? i : 99;
        status = e->rank == 0 ? e->ops->isend(e, &request, 1, i, &value, 4, 0)
                              : e->ops->irecv(e, &request, 0, i, &value, 4);
        if (status == FO_OK)
            status = ranks_wait(e, &request);
        if (status == FO_OK && value != i)
            status = fo_base_error(FO_INTERNAL, "message %u is %u", i, value);
    }
    if (status != FO_OK) /* the request is abandoned */
        ranks_fail(e, e->rank, fo_last_error());
    fo_transport_hook_destroy(e);
    return status;
}

static void check_faults(const fo_transport *transport, ranks_hook hook)
{
    fo_fault fault = {.drop_every = 4};
    assert_status(transport, hook, ranks_launch(transport, 2, hook, 30, faulty_stream, &fault),
                  FO_TIMEOUT);
    assert_says("rank 1: ");
    assert_says("message of rank 0 (tag 0x3");
    fault = (fo_fault){.fail_at = 5};
    bool process = (transport->ops->caps & FO_TRANSPORT_PROCESS) != 0;
    assert_status(transport, hook, ranks_launch(transport, 2, hook, 30, faulty_stream, &fault),
                  process ? FO_PEER : FO_INTERNAL);
    assert_says(process ? "rank 0: was killed by signal 9"
                        : "rank 0: made to fail at its send number 5");
    fault = (fo_fault){.delay_ns = 2 * MS, .seed = 3};
    int64_t begin = fo_base_clock_ns();
    assert_status(transport, hook, ranks_launch(transport, 2, hook, 30, faulty_stream, &fault),
                  FO_OK);
    assert_true(fo_base_clock_ns() - begin >= 10 * MS);
    assert_no_children();
}

static void test_faults(void **state)
{
    (void)state;
    everywhere(check_faults);
}

/* ---- the emulated link
 * ---------------------------------------------------------------------------------------------- */

typedef struct timed {
    fo_link link;
    int senders,
        messages; /* the ranks after 0 that send to it, how many each; 0: rank 0 sends to all */
    size_t bytes;
    double least_s;
    bool late_test; /* the receiver looks only after all should be there */
} timed;

static fo_status agree_to_begin(fo_endpoint *e)
{
    fo_request requests[16] = {{0}};
    for (int up = 0; up < 2; up++)
        for (int peer = 1; peer < e->size; peer++) {
            bool send = (e->rank != 0) == (up == 0);
            int other = e->rank ? 0 : peer;
            if (e->rank && e->rank != peer)
                continue;
            TRY(send ? e->ops->isend(e, &requests[peer], other, 100, NULL, 0, 0)
                     : e->ops->irecv(e, &requests[peer], other, 100, NULL, 0));
            TRY(ranks_wait(e, &requests[peer]));
        }
    return FO_OK;
}

static fo_status timed_receive(fo_endpoint *e, fo_request *requests, const timed *what)
{
    int count = what->senders * what->messages;
    int64_t begin = fo_base_clock_ns();
    for (int i = 0; i < count; i++)
        TRY(e->ops->irecv_view(e, &requests[i], 1 + i % what->senders, 1, what->bytes));
    TRY(agree_to_begin(e));
    if (what->late_test) {
        struct timespec pause_time = {.tv_nsec = (long)(what->least_s * 1e9) + 300 * MS};
        nanosleep(&pause_time, NULL);
        TRY(e->ops->progress(e));
        for (int i = 0; i < count; i++)
            if (e->ops->test(e, &requests[i]) != FO_OK)
                return fo_base_error(FO_INTERNAL,
                                     "message %d is not there when it is looked for late", i);
    }
    for (int i = count - 1; i >= 0; i--) { /* the last first: order of tests must not matter */
        if (!what->late_test)
            TRY(ranks_wait(e, &requests[i]));
        if (i == count - 1 && !what->late_test &&
            (double)(fo_base_clock_ns() - begin) * 1e-9 < what->least_s)
            return fo_base_error(FO_INTERNAL, "%d messages took %.6f s, at least %.6f s expected",
                                 count, (double)(fo_base_clock_ns() - begin) * 1e-9, what->least_s);
        e->ops->release(e, &requests[i]);
    }
    return FO_OK;
}

static fo_status timed_send(fo_endpoint *e, fo_request *requests, const timed *what)
{
    void *data = e->ops->alloc(e, what->bytes);
    CHECK(data);
    TRY(agree_to_begin(e));
    for (int i = 0; i < what->messages; i++)
        TRY(e->ops->isend(e, &requests[i], 0, 1, data, what->bytes, 0));
    for (int i = 0; i < what->messages; i++)
        TRY(ranks_wait(e, &requests[i]));
    return FO_OK;
}

static fo_status over_link(fo_endpoint *endpoint, void *arg)
{
    const timed *what = arg;
    fo_request requests[64] = {{0}};
    fo_endpoint *e;
    TRY(fo_transport_hook_link(endpoint, &(fo_link){0}, &e));
    CHECK(!(e->ops->caps & FO_TRANSPORT_IMM));
    TRY(e->ops->set_link(e, &what->link));
    fo_status status =
        e->rank == 0 ? timed_receive(e, requests, what) : timed_send(e, requests, what);
    if (status == FO_OK)
        fo_transport_hook_destroy(e);
    else
        ranks_fail(e, e->rank, fo_last_error());
    return status;
}

static void check_link(const fo_transport *transport, ranks_hook hook)
{
    static const timed cases[] = {
        /* 8 MB over 0.5 GB/s: 16 ms */
        {{0.5e9, 0, FO_SWITCH}, 1, 1, 8000000, 0.016, false},
        {{0.5e9, 0, FO_MESH}, 1, 1, 8000000, 0.016, false},
        {{0.5e9, 0.004, FO_SWITCH}, 1, 1, 8000000, 0.020, false},
        /* many small ones take as long as one large */
        {{0.5e9, 0, FO_SWITCH}, 1, 16, 500000, 0.016, false},
        /* two ranks into one: through one port, or over links of their own */
        {{0.5e9, 0, FO_SWITCH}, 2, 1, 8000000, 0.032, false},
        {{0.5e9, 0, FO_MESH}, 2, 1, 8000000, 0.016, false},
        {{0.5e9, 0, FO_SWITCH}, 3, 5, 400000, 0.012, false},
        /* latency alone */
        {{1e15, 0.005, FO_SWITCH}, 1, 10, 64, 0.005, false},
        /* delivery needs nobody who looks: all is there when it is looked for late */
        {{0.5e9, 0.001, FO_SWITCH}, 2, 4, 1000000, 0.017, true},
        {{0.5e9, 0.001, FO_MESH}, 2, 4, 1000000, 0.009, true},
    };
    if (hook != HOOK_NONE)
        return;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        timed what = cases[i];
        fo_status found = ranks_launch(transport, 1 + what.senders, hook, 30, over_link, &what);
        if (found != FO_OK)
            fail_msg("%s, case %zu: %s", transport->ops->name, i, fo_last_error());
    }
}

static void test_link(void **state)
{
    (void)state;
    everywhere(check_link);
}

/* Under MESH two senders do not slow each other down. An upper bound, so with room and a few tries:
 * 20 ms on links of their own, 40 ms through one port. */
static fo_status mesh_is_parallel(fo_endpoint *endpoint, void *arg)
{
    fo_link mesh = {.bytes_per_s = 0.4e9, .topology = FO_MESH};
    fo_request requests[2] = {{0}};
    size_t bytes = 8000000;
    double *best = arg;
    fo_endpoint *e;
    TRY(fo_transport_hook_link(endpoint, &mesh, &e));
    void *data = e->ops->alloc(e, bytes);
    CHECK(data);
    for (int try = 0; try < 10; try++) {
        TRY(agree_to_begin(e));
        int64_t begin = fo_base_clock_ns();
        if (e->rank) {
            TRY(e->ops->isend(e, &requests[0], 0, 1, data, bytes, 0));
            TRY(ranks_wait(e, &requests[0]));
            continue;
        }
        for (int i = 0; i < 2; i++)
            TRY(e->ops->irecv_view(e, &requests[i], 1 + i, 1, bytes));
        for (int i = 0; i < 2; i++) {
            TRY(ranks_wait(e, &requests[i]));
            e->ops->release(e, &requests[i]);
        }
        double took = (double)(fo_base_clock_ns() - begin) * 1e-9;
        if (took < *best)
            *best = took;
    }
    if (e->rank == 0 && *best > 0.035)
        return fo_base_error(FO_INTERNAL, "two messages over links of their own took %.6f s",
                             *best);
    fo_transport_hook_destroy(e);
    return FO_OK;
}

static void check_mesh(const fo_transport *transport, ranks_hook hook)
{
    double best[1] = {1e9};
    if (hook == HOOK_NONE)
        assert_status(transport, hook, ranks_launch(transport, 3, hook, 30, mesh_is_parallel, best),
                      FO_OK);
}

static void test_mesh(void **state)
{
    (void)state;
    everywhere(check_mesh);
}

/* Through one port in the order of leaving: a small message that leaves while the first of four large ones
 * is on its way passes the three that have not left yet. Rank 0 looks at nothing for a while (late) or
 * waits. 4 ms when right, 16 ms when the port is given away too early; a few tries, as above. */
typedef struct fairness {
    bool late;
    double best_s;
} fairness;

static fo_status small_one_receives(fo_endpoint *e, fo_request *requests, size_t bytes, bool late,
                                    double *took)
{
    struct timespec nap = {.tv_nsec = 6 * MS};
    for (int i = 0; i < 4; i++)
        TRY(e->ops->irecv_view(e, &requests[i], 1, 1, bytes));
    TRY(e->ops->irecv_view(e, &requests[4], 2, 1, 100));
    TRY(agree_to_begin(e));
    int64_t begin = fo_base_clock_ns();
    if (late)
        nanosleep(&nap, NULL);
    TRY(ranks_wait(e, &requests[4]));
    *took = (double)(fo_base_clock_ns() - begin) * 1e-9;
    for (int i = 0; i < 5; i++) {
        if (i < 4)
            TRY(ranks_wait(e, &requests[i]));
        e->ops->release(e, &requests[i]);
    }
    return FO_OK;
}

static fo_status small_one_passes(fo_endpoint *endpoint, void *arg)
{
    fairness *what = arg;
    fo_link port = {.bytes_per_s = 0.5e9};
    fo_request requests[5];
    size_t bytes = 2000000;
    fo_endpoint *e;
    TRY(fo_transport_hook_link(endpoint, &port, &e));
    char *data = e->ops->alloc(e, bytes);
    CHECK(data);
    for (int try = 0; try < 10; try++) {
        double took = 0;
        memset(requests, 0, sizeof requests);
        if (e->rank == 0) {
            TRY(small_one_receives(e, requests, bytes, what->late, &took));
            if (took < what->best_s)
                what->best_s = took;
            continue;
        }
        TRY(agree_to_begin(e));
        struct timespec nap = {.tv_nsec = 1 * MS};
        if (e->rank == 2)
            nanosleep(&nap, NULL);
        int count = e->rank == 1 ? 4 : 1;
        for (int i = 0; i < count; i++)
            TRY(e->ops->isend(e, &requests[i], 0, 1, data, e->rank == 1 ? bytes : 100, 0));
        for (int i = 0; i < count; i++)
            TRY(ranks_wait(e, &requests[i]));
    }
    if (e->rank == 0 && what->best_s > 0.012)
        return fo_base_error(FO_INTERNAL, "the small message took %.6f s (late look: %d)",
                             what->best_s, what->late);
    fo_transport_hook_destroy(e);
    return FO_OK;
}

static void check_order(const fo_transport *transport, ranks_hook hook)
{
    for (int late = 0; late < 2 && hook == HOOK_NONE; late++) {
        fairness what = {.late = late, .best_s = 1e9};
        assert_status(transport, hook,
                      ranks_launch(transport, 3, hook, 30, small_one_passes, &what), FO_OK);
    }
}

static void test_order_of_leaving(void **state)
{
    (void)state;
    everywhere(check_order);
}

/* Waiting for a slow link costs no processor time. */
static fo_status idle_link(fo_endpoint *endpoint, void *arg)
{
    (void)arg;
    fo_link slow = {.bytes_per_s = 1e6};
    fo_request request = {0};
    fo_endpoint *e;
    TRY(fo_transport_hook_link(endpoint, &slow, &e));
    char *data = e->ops->alloc(e, 300000);
    CHECK(data);
    double used = own_seconds();
    if (e->rank == 0)
        TRY(e->ops->isend(e, &request, 1, 1, data, 300000, 0));
    else
        TRY(e->ops->irecv(e, &request, 0, 1, data, 300000));
    TRY(ranks_wait(e, &request)); /* 0.3 s */
    CHECK(own_seconds() - used < 0.2 * 0.3);
    fo_transport_hook_destroy(e);
    return FO_OK;
}

static void check_idle_link(const fo_transport *transport, ranks_hook hook)
{
    if (hook == HOOK_NONE)
        assert_status(transport, hook, ranks_launch(transport, 2, hook, 30, idle_link, NULL),
                      FO_OK);
}

static void test_idle_link(void **state)
{
    (void)state;
    everywhere(check_idle_link);
}

static fo_status refused_links(fo_endpoint *endpoint, void *arg)
{
    (void)arg;
    fo_endpoint *e;
    CHECK(fo_transport_hook_link(endpoint, &(fo_link){.bytes_per_s = -1}, &e) == FO_INVALID);
    CHECK(fo_transport_hook_link(endpoint, &(fo_link){.latency_s = -1}, &e) == FO_INVALID);
    TRY(fo_transport_hook_link(endpoint, &(fo_link){.bytes_per_s = 1}, &e));
    /* to oneself there is no link */
    fo_request requests[2] = {{0}};
    char bytes[2][100] = {{0}};
    TRY(e->ops->irecv(e, &requests[0], e->rank, 1, bytes[0], 100));
    TRY(e->ops->isend(e, &requests[1], e->rank, 1, bytes[1], 100, 0));
    TRY(ranks_wait(e, &requests[0]));
    TRY(ranks_wait(e, &requests[1]));
    fo_transport_hook_destroy(e);
    return FO_OK;
}

static void check_refused(const fo_transport *transport, ranks_hook hook)
{
    if (hook == HOOK_NONE)
        assert_status(transport, hook, ranks_launch(transport, 2, hook, 5, refused_links, NULL),
                      FO_OK);
}

static void test_refused_links(void **state)
{
    (void)state;
    everywhere(check_refused);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_waits_end_and_cost_nothing),
        cmocka_unit_test(test_no_lost_wakeup),
        cmocka_unit_test(test_timeout),
        cmocka_unit_test(test_other_size),
        cmocka_unit_test(test_fail),
        cmocka_unit_test(test_returned_error),
        cmocka_unit_test(test_death),
        cmocka_unit_test(test_orphans),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_second_stop),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_link),
        cmocka_unit_test(test_mesh),
        cmocka_unit_test(test_order_of_leaving),
        cmocka_unit_test(test_idle_link),
        cmocka_unit_test(test_refused_links),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
