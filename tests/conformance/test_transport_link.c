/* The emulated link around every transport: when messages arrive. Lower bounds are strict; upper bounds are
 * wide and taken over several tries. */
#include "conformance/ranks.h"

#include <time.h>

typedef struct timed {
    fo_link link;
    int senders, messages; /* the ranks after 0 that send to it; how many each */
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
        e->ops->release(e, &requests[i]);
    }
    /* of all: which sender comes first is chance */
    double took_s = (double)(fo_base_clock_ns() - begin) * 1e-9;
    if (took_s < what->least_s)
        return fo_base_error(FO_INTERNAL, "%d messages took %.6f s, at least %.6f s expected",
                             count, took_s, what->least_s);
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
    ranks_check(check_link);
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
        ranks_expect(transport, hook, ranks_launch(transport, 3, hook, 30, mesh_is_parallel, best),
                     FO_OK);
}

static void test_mesh(void **state)
{
    (void)state;
    ranks_check(check_mesh);
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
        ranks_expect(transport, hook, ranks_launch(transport, 3, hook, 30, small_one_passes, &what),
                     FO_OK);
    }
}

static void test_order_of_leaving(void **state)
{
    (void)state;
    ranks_check(check_order);
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
    double used = ranks_cpu_seconds();
    if (e->rank == 0)
        TRY(e->ops->isend(e, &request, 1, 1, data, 300000, 0));
    else
        TRY(e->ops->irecv(e, &request, 0, 1, data, 300000));
    TRY(ranks_wait(e, &request)); /* 0.3 s */
    CHECK(ranks_cpu_seconds() - used < 0.2 * 0.3);
    fo_transport_hook_destroy(e);
    return FO_OK;
}

static void check_idle_link(const fo_transport *transport, ranks_hook hook)
{
    if (hook == HOOK_NONE)
        ranks_expect(transport, hook, ranks_launch(transport, 2, hook, 30, idle_link, NULL), FO_OK);
}

static void test_idle_link(void **state)
{
    (void)state;
    ranks_check(check_idle_link);
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
        ranks_expect(transport, hook, ranks_launch(transport, 2, hook, 5, refused_links, NULL),
                     FO_OK);
}

static void test_refused_links(void **state)
{
    (void)state;
    ranks_check(check_refused);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_link),
        cmocka_unit_test(test_mesh),
        cmocka_unit_test(test_order_of_leaving),
        cmocka_unit_test(test_idle_link),
        cmocka_unit_test(test_refused_links),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
