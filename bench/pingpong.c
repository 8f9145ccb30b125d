/* Messages of our transport against plain calls of the MPI library it runs on: latency (ping-pong) and bandwidth (a
 * window of 64 messages, then an answer), as the OSU micro-benchmarks measure them, in the same two processes,
 * in turns.
 *
 *   pingpong_openmpi|pingpong_mpich [SECONDS [FIRST [LAST]]]    by their launcher, with 2 processes; SECONDS a size
 *                                                               and kind; sizes from FIRST to LAST bytes
 *
 * raw: MPI_Send and MPI_Recv; MPI_Isend, MPI_Irecv and MPI_Waitall. ours: isend, irecv, test, wait. fixed: the same
 * with requests that are kept. Figures are medians over turns. Exit code 1 when one of ours is not within 5 %. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/quantile.h"
#include "flashoverlap/job.h"
#include "transport/mpi/mpi.h"

enum { WINDOW = 64, MOST = 4 << 20, WAYS = 3, TURNS = 401, TAG = 1 };
enum { RAW, OURS, FIXED };
#define LIMIT 1.05

typedef struct bench {
    fo_endpoint *endpoint;
    char *out, *in;
    fo_request requests[WINDOW],
        answer; /* one set for both directions: a process sends or receives */
    fo_request back;
    MPI_Request raw[WINDOW];
    MPI_Status statuses[WINDOW];
    int64_t until_ns; /* deadline of waits */
    double seconds;
    size_t first, last;
    int slow; /* figures not within the limit */
} bench;

static fo_status finish(bench *b, fo_request *request)
{
    fo_endpoint *e = b->endpoint;
    fo_status status;
    while ((status = e->ops->test(e, request)) == FO_IN_PROGRESS) {
        status = e->ops->wait(e, b->until_ns);
        if (status != FO_OK)
            return status;
    }
    return status;
}

static fo_status raw_status(int error)
{
    return error == MPI_SUCCESS ? FO_OK
                                : fo_base_error(FO_INTERNAL, "an MPI call failed: %d", error);
}

/* ---- one way there, one back ---- */

static fo_status raw_bounce(bench *b, size_t bytes)
{
    int me = b->endpoint->rank, error;
    for (int half = 0; half < 2; half++) {
        error = half == me ? MPI_Send(b->out, (int)bytes, MPI_BYTE, 1 - me, TAG, MPI_COMM_WORLD)
                           : MPI_Recv(b->in, (int)bytes, MPI_BYTE, 1 - me, TAG, MPI_COMM_WORLD,
                                      MPI_STATUS_IGNORE);
        if (error != MPI_SUCCESS)
            return raw_status(error);
    }
    return FO_OK;
}

static fo_status our_bounce(bench *b, size_t bytes)
{
    fo_endpoint *e = b->endpoint;
    for (int half = 0; half < 2; half++) {
        bool sends = half == e->rank;
        fo_request *request = sends ? &b->answer : &b->back;
        fo_status status = sends ? e->ops->isend(e, request, 1 - e->rank, TAG, b->out, bytes, 0)
                                 : e->ops->irecv(e, request, 1 - e->rank, TAG, b->in, bytes);
        if (status == FO_OK)
            status = finish(b, request);
        if (status != FO_OK)
            return status;
    }
    return FO_OK;
}

/* ---- a window of messages, then an answer ---- */

static fo_status raw_window(bench *b, size_t bytes)
{
    int me = b->endpoint->rank, error = MPI_SUCCESS;
    for (int i = 0; i < WINDOW && error == MPI_SUCCESS; i++)
        error = me == 0
                    ? MPI_Isend(b->out, (int)bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &b->raw[i])
                    : MPI_Irecv(b->in, (int)bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &b->raw[i]);
    if (error == MPI_SUCCESS)
        error = MPI_Waitall(WINDOW, b->raw, b->statuses);
    if (error == MPI_SUCCESS)
        error = me == 0 ? MPI_Recv(b->in, 4, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
                        : MPI_Send(b->out, 4, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
    return raw_status(error);
}

static fo_status our_window(bench *b, size_t bytes)
{
    fo_endpoint *e = b->endpoint;
    fo_status status = FO_OK;
    for (int i = 0; i < WINDOW && status == FO_OK; i++)
        status = e->rank == 0 ? e->ops->isend(e, &b->requests[i], 1, TAG, b->out, bytes, 0)
                              : e->ops->irecv(e, &b->requests[i], 0, TAG, b->in, bytes);
    for (int i = 0; i < WINDOW && status == FO_OK; i++)
        status = finish(b, &b->requests[i]);
    if (status == FO_OK)
        status = e->rank == 0 ? e->ops->irecv(e, &b->back, 1, TAG, b->in, 4)
                              : e->ops->isend(e, &b->answer, 0, TAG, b->out, 4, 0);
    return status == FO_OK ? finish(b, e->rank == 0 ? &b->back : &b->answer) : status;
}

/* ---- measuring ---- */

static void keep_requests(bench *b, bool fixed)
{
    for (int i = 0; i < WINDOW + 2; i++) {
        fo_request *request = i < WINDOW ? &b->requests[i] : i == WINDOW ? &b->answer : &b->back;
        b->endpoint->ops->forget(b->endpoint, request);
        request->fixed = fixed;
    }
}

/* Nanoseconds of `count` exchanges. */
static fo_status turn(bench *b, bool window, int way, size_t bytes, int count, double *took)
{
    fo_status status = FO_OK;
    if (way != RAW)
        keep_requests(b, way == FIXED);
    MPI_Barrier(MPI_COMM_WORLD);
    int64_t begin = 0;
    b->until_ns = fo_base_clock_ns() + b->endpoint->deadline_ns;
    for (int i = -1; i < count && status == FO_OK; i++) { /* the first is not measured */
        if (i == 0)
            begin = fo_base_clock_ns();
        if (way == RAW)
            status = window ? raw_window(b, bytes) : raw_bounce(b, bytes);
        else
            status = window ? our_window(b, bytes) : our_bounce(b, bytes);
    }
    *took = (double)(fo_base_clock_ns() - begin);
    return status;
}

/* Exchanges that fill a turn, so that all turns together take the time given. Both processes go by rank 0. */
static fo_status choose_count(bench *b, bool window, size_t bytes, int *count)
{
    double took = 0;
    *count = 1;
    do {
        *count *= 4;
        fo_status status = turn(b, window, RAW, bytes, *count, &took);
        if (status != FO_OK)
            return status;
        MPI_Bcast(&took, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    } while (took < 200e3 && *count < 4096);
    return FO_OK;
}

static fo_status measure(bench *b, bool window, size_t bytes, double *median)
{
    static double samples[WAYS][TURNS];
    int count, turns = 0, go_on = 1;
    fo_status status = choose_count(b, window, bytes, &count);
    int64_t begin = fo_base_clock_ns();
    while (status == FO_OK && go_on && turns < TURNS) {
        for (int k = 0; k < WAYS && status == FO_OK; k++) {
            int way = (k + turns) % WAYS;
            status = turn(b, window, way, bytes, count, &samples[way][turns]);
        }
        turns++;
        go_on = turns < 5 || (double)(fo_base_clock_ns() - begin) * 1e-9 < b->seconds;
        MPI_Bcast(&go_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    for (int way = 0; way < WAYS; way++)
        median[way] = fo_base_median(samples[way], turns) / count;
    return status;
}

static void print_line(bench *b, bool window, size_t bytes, const double *median)
{
    double value[WAYS];
    for (int way = 0; way < WAYS; way++) /* microseconds one way; MB/s */
        value[way] = window ? (double)(bytes * WINDOW) * 1e3 / median[way] : median[way] / 2000;
    printf("%-10s%10zu%12.2f%12.2f%12.2f", window ? "MB/s" : "us", bytes, value[RAW], value[OURS],
           value[FIXED]);
    for (int way = OURS; way <= FIXED; way++) {
        double ratio = median[way] / median[RAW];
        b->slow += ratio > LIMIT;
        printf("%+9.1f %%%s", (ratio - 1) * 100, ratio > LIMIT ? " !" : "  ");
    }
    printf("\n");
    fflush(stdout);
}

static fo_status rank_main(fo_endpoint *endpoint, void *arg)
{
    bench *b = arg;
    fo_status status = FO_OK;
    b->endpoint = endpoint;
    b->out = endpoint->ops->alloc(endpoint, MOST);
    b->in = endpoint->ops->alloc(endpoint, MOST);
    if (!b->out || !b->in)
        return FO_NO_MEMORY;
    memset(b->out, 1, MOST);
    memset(b->in, 1, MOST);
    if (endpoint->rank == 0)
        printf("%-10s%10s%12s%12s%12s%11s%13s\n", "", "bytes", "raw", "ours", "fixed", "time",
               "of fixed");
    for (int window = 0; window < 2; window++)
        for (size_t bytes = b->first; bytes <= b->last && status == FO_OK; bytes *= 4) {
            double median[WAYS];
            status = measure(b, window, bytes, median);
            if (status == FO_OK && endpoint->rank == 0)
                print_line(b, window, bytes, median);
        }
    keep_requests(b, false);
    return status;
}

int main(int argc, char **argv)
{
    static bench b;
    fo_transport_options options = {.ranks = 2, .deadline_s = 60};
    b.seconds = argc > 1 ? atof(argv[1]) : 2;
    b.first = argc > 2 ? (size_t)atol(argv[2]) : 1;
    b.last = argc > 3 ? (size_t)atol(argv[3]) : MOST;
    if (b.first < 1 || b.last > MOST) {
        fprintf(stderr, "pingpong: sizes from %zu to %zu, expected 1 to %d\n", b.first, b.last,
                MOST);
        return 1;
    }
    fo_status status = fo_transport_mpi.launch(&options, rank_main, &b);
    if (status != FO_OK && fo_job_speaks())
        fprintf(stderr, "pingpong: %s\n", fo_last_error());
    if (status == FO_OK && fo_job_first())
        printf(b.slow ? "FAILED: %d figures take more than 5 %% longer than the library's own\n"
                      : "Every figure is within 5 %% of the library's own.\n",
               b.slow);
    return fo_job_end(status != FO_OK || b.slow ? 1 : 0);
}
