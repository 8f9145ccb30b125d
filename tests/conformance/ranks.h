/* Running a function on the ranks of every transport, bare and inside every hook.
 *
 * Started by a launcher (tests/mpi/) every process runs the whole program, and only the transport that joins the
 * launcher's job is tested: groups of as many ranks as there are processes, or fewer. Rank 0 prints; what another
 * one has to say is printed when one of its tests failed.
 *
 * What runs on a rank may be a forked process: cmocka's assertions must not be used there (they
 * would jump back into the test runner, twice). CHECK returns a status with a sentence instead. */
#ifndef FO_TESTS_RANKS_H
#define FO_TESTS_RANKS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/error.h"
#include "flashoverlap/job.h"
#include "transport/transport.h"

#define CHECK(condition)                                                               \
    do                                                                                 \
        if (!(condition))                                                              \
            return fo_base_error(FO_INTERNAL, "%s:%d: not so: %s", __FILE__, __LINE__, \
                                 #condition);                                          \
    while (0)
#define TRY(call)                      \
    do {                               \
        fo_status try_status = (call); \
        if (try_status != FO_OK)       \
            return try_status;         \
    } while (0)

#define MS INT64_C(1000000) /* in nanoseconds */

#if defined(__SANITIZE_THREAD__)
#define UNDER_THREAD_SANITIZER 1 /* which watches one process only */
#else
#define UNDER_THREAD_SANITIZER 0
#endif

typedef enum ranks_hook {
    HOOK_NONE,
    HOOK_LINK_OFF,
    HOOK_LINK,
    HOOK_LATE,      /* every send is held for a while */
    HOOK_LINK_LATE, /* both */
    HOOK_COUNT
} ranks_hook;

typedef struct ranks_case {
    fo_transport_main body;
    void *arg;
    ranks_hook hook;
} ranks_case;

static inline fo_status ranks_main(fo_endpoint *endpoint, void *arg)
{
    static const fo_link off = {0}, fast = {.bytes_per_s = 20e9, .latency_s = 5e-6};
    static const fo_fault late = {.seed = 7, .delay_ns = 20000};
    const ranks_case *what = arg;
    fo_endpoint *first = endpoint, *second = NULL, *third = NULL;
    if (what->hook == HOOK_LATE || what->hook == HOOK_LINK_LATE) {
        TRY(fo_transport_hook_fault(first, &late, &second));
        first = second;
    }
    if (what->hook == HOOK_LINK_OFF)
        TRY(fo_transport_hook_link(first, &off, &third));
    if (what->hook == HOOK_LINK || what->hook == HOOK_LINK_LATE)
        TRY(fo_transport_hook_link(first, &fast, &third));
    fo_status status = what->body(third ? third : first, what->arg);
    fo_transport_hook_destroy(third);
    fo_transport_hook_destroy(second);
    return status;
}

static inline void ranks_fail(fo_endpoint *endpoint, int rank, const char *cause)
{
    (endpoint->ops->fail)(endpoint, rank, cause); /* in brackets: cmocka has a macro fail() */
}

/* 0: not in a job of a launcher. */
static inline int ranks_job_size(void)
{
    fo_job job;
    fo_job_get(&job);
    return job.launched ? job.size : 0;
}

static inline bool ranks_skip(const fo_transport *transport)
{
    if (((transport->ops->caps & FO_TRANSPORT_JOINS) != 0) != (ranks_job_size() > 0))
        return true;
    return UNDER_THREAD_SANITIZER && (transport->ops->caps & FO_TRANSPORT_PROCESS);
}

/* The emulated link needs a word beside each message. */
static inline bool ranks_skip_hook(const fo_transport *transport, ranks_hook hook)
{
    bool link = hook == HOOK_LINK_OFF || hook == HOOK_LINK || hook == HOOK_LINK_LATE;
    return link && !(transport->ops->caps & FO_TRANSPORT_IMM);
}

static inline fo_status ranks_launch(const fo_transport *transport, int ranks, ranks_hook hook,
                                     double deadline_s, fo_transport_main body, void *arg)
{
    fo_transport_options options = {.ranks = ranks, .deadline_s = deadline_s};
    ranks_case what = {.body = body, .arg = arg, .hook = hook};
    return transport->launch(&options, ranks_main, &what);
}

/* Whether a launcher has started that many processes. */
static inline bool ranks_fit(int ranks)
{
    return ranks_job_size() == 0 || ranks <= ranks_job_size();
}

/* Runs `body` for each number of ranks in `counts` (ended by 0), on every transport, in every hook.
 */
static inline void ranks_everywhere(const int *counts, fo_transport_main body, void *arg)
{
    for (int t = 0; fo_transport_at(t); t++) {
        const fo_transport *transport = fo_transport_at(t);
        for (int hook = 0; hook < HOOK_COUNT && !ranks_skip(transport); hook++)
            for (const int *ranks = counts; *ranks; ranks++)
                if (!ranks_skip_hook(transport, (ranks_hook)hook) && ranks_fit(*ranks) &&
                    ranks_launch(transport, *ranks, (ranks_hook)hook, 30, body, arg) != FO_OK)
                    fail_msg("%s, hook %d, N = %d: %s", transport->ops->name, hook, *ranks,
                             fo_last_error());
    }
}

/* Calls `check` for every transport in every hook. */
static inline void ranks_check(void (*check)(const fo_transport *, ranks_hook))
{
    for (int t = 0; fo_transport_at(t); t++)
        for (int hook = 0; hook < HOOK_COUNT && !ranks_skip(fo_transport_at(t)); hook++)
            if (!ranks_skip_hook(fo_transport_at(t), (ranks_hook)hook))
                check(fo_transport_at(t), (ranks_hook)hook);
}

static inline void ranks_expect(const fo_transport *transport, ranks_hook hook, fo_status found,
                                fo_status expected)
{
    if (found != expected)
        fail_msg("%s, hook %d: status %s, expected %s; \"%s\"", transport->ops->name, (int)hook,
                 fo_status_name(found), fo_status_name(expected), fo_last_error());
}

/* Processor time of the calling thread. */
static inline double ranks_cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

/* Byte i of the message number `number` from a to b: neighbours, messages and ranks all differ. */
static inline unsigned char ranks_byte(int a, int b, uint64_t number, size_t i)
{
    uint64_t x = (uint64_t)i + 1000003u * number + 7919u * (uint64_t)a + 104729u * (uint64_t)b;
    x = (x ^ (x >> 17)) * UINT64_C(0x9E3779B97F4A7C15);
    return (unsigned char)(x >> 56);
}

static inline void ranks_fill(unsigned char *data, size_t bytes, int a, int b, uint64_t number)
{
    for (size_t i = 0; i < bytes; i++)
        data[i] = ranks_byte(a, b, number, i);
}

static inline fo_status ranks_compare(const void *found, size_t bytes, int a, int b,
                                      uint64_t number)
{
    const unsigned char *data = found;
    for (size_t i = 0; i < bytes; i++)
        if (data[i] != ranks_byte(a, b, number, i))
            return fo_base_error(
                FO_INTERNAL, "message %llu from %d to %d (%zu bytes): byte %zu is %u, expected %u",
                (unsigned long long)number, a, b, bytes, i, data[i], ranks_byte(a, b, number, i));
    return FO_OK;
}

/* ---- under a launcher ---- */

/* What a launcher sees to itself, with all processes at once: tests/mpi/ has its own tests of it. */
static inline bool ranks_launchers_own(const char *name)
{
    static const char *const names[] = {"test_death", "test_orphans", "test_stop",
                                        "test_second_stop", "test_faults"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* Copies what was printed to `from` to where it would have gone. */
static inline void ranks_show(FILE *from, int to)
{
    char bytes[4096];
    size_t count;
    rewind(from);
    while ((count = fread(bytes, 1, sizeof bytes, from)) > 0)
        if (write(to, bytes, count) < 0)
            return;
}

static inline int ranks_run(const char *name, const struct CMUnitTest *tests, size_t count)
{
    struct CMUnitTest chosen[64];
    size_t number = 0;
    for (size_t i = 0; i < count && number < sizeof chosen / sizeof *chosen; i++)
        if (ranks_job_size() == 0 || !ranks_launchers_own(tests[i].name))
            chosen[number++] = tests[i];
    if (fo_job_first())
        return fo_job_end(_cmocka_run_group_tests(name, chosen, number, NULL, NULL));
    FILE *said = tmpfile();
    int out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO);
    if (said && dup2(fileno(said), STDOUT_FILENO) >= 0)
        dup2(fileno(said), STDERR_FILENO);
    int failed = _cmocka_run_group_tests(name, chosen, number, NULL, NULL);
    fflush(NULL);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    if (failed && said)
        ranks_show(said, err);
    return fo_job_end(failed);
}

#undef cmocka_run_group_tests
#define cmocka_run_group_tests(tests, setup, teardown) \
    ranks_run(#tests, tests, sizeof(tests) / sizeof *(tests))

static inline fo_status ranks_wait(fo_endpoint *endpoint, fo_request *request)
{
    return fo_transport_wait_request(endpoint, request, "test");
}

#endif
