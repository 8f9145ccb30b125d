/* How waiting, failing, dying and being stopped go on every transport. */
#include "conformance/ranks.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

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

/* Waits for a message that never comes. */
static fo_status wait_forever(fo_endpoint *e, int peer)
{
    fo_request request = {0};
    char byte;
    TRY(e->ops->irecv(e, &request, peer, 77, &byte, 1));
    return ranks_wait(e, &request);
}

/* ---- waiting ---- */

static fo_status waits_end(fo_endpoint *e, void *arg)
{
    (void)arg;
    CHECK(e->ops->wait(e, 0) == FO_OK);
    CHECK(e->ops->wait(e, fo_base_clock_ns() - MS) == FO_OK);
    double used = ranks_cpu_seconds();
    int64_t begin = fo_base_clock_ns(), until = begin + 300 * MS;
    int returns = 0;
    while (fo_base_clock_ns() < until) {
        TRY(e->ops->wait(e, until));
        returns++;
    }
    CHECK(returns < 50); /* nothing happened: a wait lasts */
    CHECK(ranks_cpu_seconds() - used < 0.2 * 0.3);
    return FO_OK;
}

static void check_waits(const fo_transport *transport, ranks_hook hook)
{
    ranks_expect(transport, hook, ranks_launch(transport, 4, hook, 30, waits_end, NULL), FO_OK);
}

static void test_waits_end_and_cost_nothing(void **state)
{
    (void)state;
    ranks_check(check_waits);
}

/* A message that arrives between a test and the wait ends the wait: one lost wake-up would cost the deadline, which
 * no busy machine makes of a round. There the rounds are fewer: each rank says whether it has time for more. */
static fo_status no_lost_wakeup(fo_endpoint *e, void *arg)
{
    (void)arg;
    fo_request in = {0}, out = {0};
    int peer = e->size - 1 - e->rank;
    int64_t begin = now_ms(), before = begin;
    char more = 1, its = 1;
    for (int i = 0; i < 3000 && more && its; i++) {
        more = i < 100 || before - begin < 4000;
        TRY(e->ops->irecv(e, &in, peer, 1, &its, 1));
        TRY(e->ops->isend(e, &out, peer, 1, &more, 1, 0));
        TRY(ranks_wait(e, &in));
        TRY(ranks_wait(e, &out));
        int64_t now = now_ms();
        CHECK(now - before < e->deadline_ns / MS / 2);
        before = now;
    }
    return FO_OK;
}

static void check_wakeups(const fo_transport *transport, ranks_hook hook)
{
    ranks_expect(transport, hook, ranks_launch(transport, 2, hook, 20, no_lost_wakeup, NULL),
                 FO_OK);
}

static void test_no_lost_wakeup(void **state)
{
    (void)state;
    ranks_check(check_wakeups);
    setenv("FLASHOVERLAP_SPIN_US", "0", 1); /* sleep at once: the narrow path */
    ranks_check(check_wakeups);
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
    ranks_expect(transport, hook, ranks_launch(transport, 2, hook, 30, timeout_then_more, NULL),
                 FO_OK);
}

static void test_timeout(void **state)
{
    (void)state;
    ranks_check(check_timeout);
}

/* ---- errors ---- */

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
        ranks_expect(transport, hook, found, FO_INTERNAL);
        assert_says("rank 1");
        assert_says("8 bytes");
        assert_says("4 bytes");
    }
}

static void test_other_size(void **state)
{
    (void)state;
    ranks_check(check_other_size);
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
    ranks_expect(transport, hook, found, FO_PEER);
    assert_string_equal(fo_last_error(), "rank 0: pulled the plug");
    assert_true(now_ms() - begin < 5000);
}

static void test_fail(void **state)
{
    (void)state;
    ranks_check(check_fail);
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
    ranks_expect(transport, hook, ranks_launch(transport, 4, hook, 30, returns_error, NULL),
                 FO_FORMAT);
    assert_string_equal(fo_last_error(), "rank 2: line 3 is not a number");
    ranks_expect(transport, hook,
                 ranks_launch(transport, 2, hook, 30, returns_error_silently, NULL), FO_NUMERIC);
    assert_says("rank 1: not a number");
    assert_no_children();
}

static void test_returned_error(void **state)
{
    (void)state;
    ranks_check(check_returned);
}

/* ---- death ---- */

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

/* As this program's children; not those that join the job of a launcher. */
static bool launches_processes(const fo_transport *transport)
{
    uint32_t caps = transport->ops->caps;
    return (caps & FO_TRANSPORT_PROCESS) && !(caps & FO_TRANSPORT_JOINS);
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
        ranks_expect(transport, hook, ranks_launch(transport, 3, hook, 30, dies, &how), FO_PEER);
        assert_says(deaths[i].says);
        assert_true(now_ms() - begin < 10000);
        assert_no_children();
    }
}

static void test_death(void **state)
{
    (void)state;
    ranks_check(check_death);
}

/* Soon, however long the deadline is. */
static void test_death_is_soon(void **state)
{
    (void)state;
    for (int t = 0; fo_transport_at(t); t++) {
        const fo_transport *transport = fo_transport_at(t);
        int how = SIGABRT;
        if (ranks_skip(transport) || !launches_processes(transport))
            continue;
        for (double deadline_s = 0.2; deadline_s < 1e9; deadline_s *= 1e5) {
            int64_t begin = now_ms();
            fo_status found = ranks_launch(transport, 3, HOOK_NONE, deadline_s, dies, &how);
            ranks_expect(transport, HOOK_NONE, found, FO_PEER);
            assert_says("rank 1: was killed by signal 6");
            assert_true(now_ms() - begin < 10000);
        }
    }
}

/* ---- witnesses ---- */

static fo_status testifies(fo_endpoint *e, void *arg)
{
    (void)arg;
    if (!e->ops->witness)
        return e->rank == 1 ? FO_NUMERIC : wait_forever(e, 1);
    char words[64];
    e->ops->witness(e, "doing nothing: there was no failure yet");
    if (e->rank == 1) {
        int64_t until = fo_base_clock_ns() + 30 * MS;
        while (fo_base_clock_ns() < until)
            TRY(e->ops->wait(e, until));
        ranks_fail(e, 1, "lost its mind");
        e->ops->witness(e, "the one who failed");
        return FO_NUMERIC;
    }
    fo_status status = wait_forever(e, 1);
    snprintf(words, sizeof words, "rank %d waited for slice 1.0 of mlp from rank 1", e->rank);
    e->ops->witness(e, words);
    e->ops->witness(e, "past its first words");
    return status;
}

static void check_witness(const fo_transport *transport, ranks_hook hook)
{
    char expected[128];
    if (!transport->ops->witness)
        return;
    for (int ranks = 2; ranks <= 4; ranks++) {
        fo_status found = ranks_launch(transport, ranks, hook, 30, testifies, NULL);
        ranks_expect(transport, hook, found, FO_NUMERIC);
        int witness = -1;
        for (int r = 0; r < ranks; r++) {
            snprintf(expected, sizeof expected,
                     "rank 1: lost its mind; rank %d waited for slice 1.0 of mlp from rank 1", r);
            if (r != 1 && strcmp(fo_last_error(), expected) == 0)
                witness = r;
        }
        if (witness < 0)
            fail_msg("no witness of %d ranks in \"%s\"", ranks, fo_last_error());
    }
}

static void test_witness(void **state)
{
    (void)state;
    ranks_check(check_witness);
}

/* ---- being stopped by SIGSTOP: neither dead nor slow ---- */

typedef struct pause_plan {
    int64_t before_ms; /* rank 1 stops itself after so long */
    bool alone;        /* nobody else is there to wait for it */
    bool goes_on;      /* rank 0 continues it */
} pause_plan;

static fo_status stops(fo_endpoint *e, void *arg)
{
    const pause_plan *plan = arg;
    fo_request request = {0};
    pid_t pid = getpid();
    if (e->rank == 1 && !plan->alone) {
        TRY(e->ops->isend(e, &request, 0, 1, &pid, sizeof pid, 0));
        TRY(ranks_wait(e, &request));
    }
    if (e->rank == 1 || plan->alone) {
        usleep((useconds_t)(plan->before_ms * 1000));
        raise(SIGSTOP);
        return FO_OK;
    }
    if (e->rank == 0) {
        TRY(e->ops->irecv(e, &request, 1, 1, &pid, sizeof pid));
        TRY(ranks_wait(e, &request));
    }
    if (e->rank == 0 && plan->goes_on) {
        usleep(700 * 1000);
        kill(pid, SIGCONT);
    }
    return plan->goes_on ? FO_OK : wait_forever(e, 1);
}

static void check_stopped(const fo_transport *transport, ranks_hook hook)
{
    if (!launches_processes(transport) || (hook != HOOK_NONE && hook != HOOK_LINK_LATE))
        return;
    static const struct {
        pause_plan plan;
        double deadline_s;
        fo_status status;
        const char *says, *more;
    } cases[] = {
        {{.before_ms = 50}, 1.5, FO_PEER, "rank 1: is stopped (pid ", "s; did somebody send"},
        /* rank 0 has waited for longer than rank 1 has been stopped: it is rank 1 all the same */
        {{.before_ms = 600}, 2, FO_PEER, "rank 1: is stopped (pid ", "; rank "},
        {{.alone = true}, 0.5, FO_PEER, "rank ", ": is stopped (pid "},
        {{.goes_on = true}, 30, FO_OK, "", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pause_plan plan = cases[i].plan;
        int64_t begin = now_ms();
        fo_status found = ranks_launch(transport, 3, hook, cases[i].deadline_s, stops, &plan);
        ranks_expect(transport, hook, found, cases[i].status);
        if (found != FO_OK) {
            assert_says(cases[i].says);
            assert_says(cases[i].more);
        }
        assert_true(now_ms() - begin < 3500); /* the grace time is not waited for */
        assert_no_children();
    }
}

static void test_stopped(void **state)
{
    (void)state;
    ranks_check(check_stopped);
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
    ranks_check(check_orphans);
}

/* ---- being stopped ---- */

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
    ranks_expect(transport, hook, ranks_launch(transport, 3, hook, 30, until_interrupted, &self),
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
    ranks_check(check_stop);
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
    ranks_expect(transport, hook, found, FO_INTERRUPTED);
    assert_true(now_ms() - begin < 2000);
    assert_no_children();
}

static void test_second_stop(void **state)
{
    (void)state;
    ranks_check(check_second_stop);
}

/* ---- faults ---- */

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
    ranks_expect(transport, hook, ranks_launch(transport, 2, hook, 30, faulty_stream, &fault),
                 FO_TIMEOUT);
    assert_says("rank 1: ");
    assert_says("message of rank 0 (tag 0x3");
    fault = (fo_fault){.fail_at = 5};
    bool process = (transport->ops->caps & FO_TRANSPORT_PROCESS) != 0;
    ranks_expect(transport, hook, ranks_launch(transport, 2, hook, 30, faulty_stream, &fault),
                 process ? FO_PEER : FO_INTERNAL);
    assert_says(process ? "rank 0: was killed by signal 9"
                        : "rank 0: made to fail at its send number 5");
    fault = (fo_fault){.delay_ns = 2 * MS, .seed = 3};
    int64_t begin = fo_base_clock_ns();
    ranks_expect(transport, hook, ranks_launch(transport, 2, hook, 30, faulty_stream, &fault),
                 FO_OK);
    assert_true(fo_base_clock_ns() - begin >= 10 * MS);
    assert_no_children();
}

static void test_faults(void **state)
{
    (void)state;
    ranks_check(check_faults);
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
        cmocka_unit_test(test_death_is_soon),
        cmocka_unit_test(test_witness),
        cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_orphans),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_second_stop),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
