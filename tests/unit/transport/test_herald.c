/* The last words of processes: said once, whoever kills them when. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "transport/herald.h"

#define MS INT64_C(1000000)

typedef void (*script)(const char *key);

static void rest(int ms)
{
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    nanosleep(&time, NULL);
}

/* Runs a script in a process of its own, whose herald writes to `to`. */
static pid_t begin(script run, const char *key, int to)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(to, STDERR_FILENO);
        if (!fo_transport_herald_open())
            _exit(9);
        run(key);
        _exit(0);
    }
    return child;
}

/* What `count` scripts and their heralds said, until all had ended; *how is how the first process ended. */
static void hear(const script *scripts, int count, const char *key, char *said, size_t size,
                 int *how)
{
    int ends[2];
    size_t used = 0;
    pid_t children[4];
    assert_int_equal(pipe(ends), 0);
    for (int i = 0; i < count; i++)
        children[i] = begin(scripts[i], key, ends[1]);
    close(ends[1]);
    for (ssize_t got; (got = read(ends[0], said + used, size - 1 - used)) != 0;)
        used += got > 0 ? (size_t)got : 0;
    said[used] = 0;
    close(ends[0]);
    for (int i = 0; i < count; i++) {
        int end;
        waitpid(children[i], &end, 0);
        if (i == 0 && how)
            *how = end;
    }
}

static const char *fresh_key(void)
{
    static int number;
    static char key[32];
    snprintf(key, sizeof key, "%08x%06x", (unsigned)getpid(), (unsigned)++number);
    return key;
}

static void meet(const char *key, const char *name)
{
    fo_transport_herald_meet(key, (int)strlen(key), name);
}

static void expect(const script *scripts, int count, const char *expected)
{
    char said[4096];
    int64_t begin_ns = fo_base_clock_ns();
    hear(scripts, count, fresh_key(), said, sizeof said, NULL);
    assert_string_equal(said, expected);
    assert_true(fo_base_clock_ns() - begin_ns < 3000 * MS);
}

/* ---- scripts ---- */

static void says(const char *key)
{
    meet(key, "died: a");
    fo_transport_herald_hold("held");
    fo_transport_herald_heard();
    fo_transport_herald_say("said");
    fo_transport_herald_say("said again");
    fo_transport_herald_goodbye();
}

static void killed_holding(const char *key)
{
    meet(key, "died: a");
    fo_transport_herald_advise("; try again");
    fo_transport_herald_hold("held");
    raise(SIGKILL);
}

static void killed(const char *key)
{
    meet(key, "died: a");
    fo_transport_herald_advise("; try again");
    raise(SIGKILL);
}

static void killed_later(const char *key)
{
    meet(key, "died: b");
    rest(20);
    raise(SIGKILL);
}

static void says_later(const char *key)
{
    meet(key, "died: b");
    rest(20);
    fo_transport_herald_say("b says more");
    fo_transport_herald_goodbye();
}

static void leaves(const char *key)
{
    meet(key, "died: a");
    fo_transport_herald_goodbye();
}

static void holds_nothing(const char *key)
{
    meet(key, "died: a");
    fo_transport_herald_goodbye();
    fo_transport_herald_hold(NULL);
}

static void is_stuck(const char *key)
{
    meet(key, "died: a");
    fo_transport_herald_hold("stuck");
    rest(30000);
}

static void is_busy(const char *key)
{
    meet(key, "died: a");
    fo_transport_herald_hold("busy");
    fo_transport_herald_heard();
    rest(5000);
    fo_transport_herald_say("done");
    fo_transport_herald_goodbye();
}

/* The thread that holds the line comes late; a later failure counts again. */
static void hears_first(const char *key)
{
    meet(key, "died: a");
    fo_transport_herald_heard();
    fo_transport_herald_hold("late");
    rest(5000);
    meet(key, "died: a");
    fo_transport_herald_hold("stuck");
    rest(30000);
}

static void aborts(const char *key)
{
    meet(key, "died: a");
    fo_transport_herald_hold("held");
    signal(SIGABRT, SIG_DFL);
    abort();
}

/* ---- tests ---- */

static void a_line_is_said_once(void **state)
{
    (void)state;
    expect((script[]){says}, 1, "said\n");
    expect((script[]){killed_holding}, 1, "held; try again\n");
    expect((script[]){aborts}, 1, "held\n");
    expect((script[]){leaves}, 1, "");
    expect((script[]){holds_nothing}, 1, "");
}

static void the_first_to_die_is_named(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        expect((script[]){killed}, 1, "died: a; try again\n");
        expect((script[]){killed, killed_later, killed_later}, 3, "died: a; try again\n");
        expect((script[]){killed, says_later}, 2, "b says more\n");
        expect((script[]){killed_holding, killed_later}, 2, "held; try again\n");
    }
}

static void one_that_is_stuck_is_ended(void **state)
{
    (void)state;
    char said[4096];
    int how = 0;
    int64_t begin_ns = fo_base_clock_ns();
    hear((script[]){is_stuck}, 1, fresh_key(), said, sizeof said, &how);
    assert_string_equal(said, "stuck\n");
    assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
    assert_in_range(fo_base_clock_ns() - begin_ns, 3500 * MS, 8000 * MS);
    begin_ns = fo_base_clock_ns();
    hear((script[]){hears_first}, 1, fresh_key(), said, sizeof said, &how);
    assert_string_equal(said, "stuck\n");
    assert_true(fo_base_clock_ns() - begin_ns >= 8500 * MS);
    hear((script[]){is_busy}, 1, fresh_key(), said, sizeof said, &how);
    assert_string_equal(said, "done\n");
    assert_int_equal(how, 0);
}

/* Without a herald the caller is told to speak for itself. */
static void there_may_be_none(void **state)
{
    (void)state;
    assert_false(fo_transport_herald_say("nobody"));
    fo_transport_herald_hold("nobody");
    fo_transport_herald_advise("nobody");
    fo_transport_herald_goodbye();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_said_once),
        cmocka_unit_test(the_first_to_die_is_named),
        cmocka_unit_test(one_that_is_stuck_is_ended),
        cmocka_unit_test(there_may_be_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
