/* Opening and ending a lifeline.
 *
 *   lifeline_wire.c    sockets and messages
 *   lifeline_thread.c  the thread
 *   lifeline_exit.c    when the process exits or forks
 *
 * When rank 0 has said goodbye, nobody watches over the others any more: it closes last, or all close together.
 */
#include "transport/lifeline.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "transport/lifeline_state.h"

#define MS INT64_C(1000000)
#define CONNECT_NS (30000 * MS)
#define LEAST_SILENCE_NS \
    (250 * MS) /* shorter ones are within what a busy machine delays a thread */

enum { STACK = 256 << 10, SPARE_FILES = 64 };

/* The second exchange: whether this rank's lifeline stands. */
typedef struct line_result {
    int32_t bad;
    char why[508];
} line_result;

/* ---- what a lifeline consists of ---- */

static int64_t between(int64_t low, int64_t value, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

static fo_lifeline *make(const fo_lifeline_options *options, fo_failure *failure)
{
    fo_lifeline *l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    l->rank = options->rank;
    l->size = options->size;
    l->places = options->places;
    l->silence_ns = options->silence_ns > LEAST_SILENCE_NS ? options->silence_ns : LEAST_SILENCE_NS;
    l->beat_ns = between(50 * MS, l->silence_ns / 10, 1000 * MS);
    l->failure = failure;
    l->on_failure = options->on_failure;
    l->pid = getpid();
    l->epoll = l->wake = l->listener = -1;
    l->peer_count = l->rank == 0 ? l->size : 1;
    l->peers = calloc((size_t)l->peer_count, sizeof *l->peers);
    pthread_mutex_init(&l->turn, NULL);
    for (int r = 1; r < l->size; r++)
        if (l->places[r].node != l->places[0].node)
            failure->places = l->places;
    if (l->peers)
        return l;
    pthread_mutex_destroy(&l->turn);
    free(l);
    return NULL;
}

static void destroy(fo_lifeline *l)
{
    fo_transport_lifeline_shut(l);
    pthread_mutex_destroy(&l->turn);
    free(l->peers);
    free(l);
}

/* Rank 0 holds a descriptor a rank; the soft limit is often 1024. False, with errno, when that many are not
 * allowed: the program could open no file beside them. */
static bool allow_files(int ranks)
{
    struct rlimit limit;
    rlim_t wanted = (rlim_t)ranks + SPARE_FILES;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted)
        return true;
    limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
    errno = EMFILE;
    return limit.rlim_cur == wanted && setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

static bool watch(fo_lifeline *l, int fd, void *mark)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = mark};
    return fd >= 0 && epoll_ctl(l->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

/* What needs no other rank. On rank 0: the listening socket and the offer. False with errno. */
static bool prepare(fo_lifeline *l)
{
    l->epoll = epoll_create1(EPOLL_CLOEXEC);
    l->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (l->epoll < 0 || !watch(l, l->wake, &l->wake))
        return false;
    if (l->rank != 0)
        return true;
    if (!allow_files(l->size))
        return false;
    l->listener = fo_transport_lifeline_wire_listen(&l->offer, l->size + SPARE_FILES);
    return l->listener >= 0 && watch(l, l->listener, &l->listener);
}

static bool start_thread(fo_lifeline *l)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    sigfillset(&all); /* signals are for the threads of the program */
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(&l->thread, &attributes, fo_transport_lifeline_thread, l);
    if (code == EINVAL) /* thread-local variables alone need more */
        code = pthread_create(&l->thread, NULL, fo_transport_lifeline_thread, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    errno = code;
    return code == 0;
}

/* ---- opening ---- */

static const char *where(const fo_lifeline *l, int rank, char *text, size_t bytes)
{
    snprintf(text, bytes, "rank %d on %s", rank, l->places[rank].host);
    return text;
}

/* Connects to rank 0. */
static void join(fo_lifeline *l, line_result *result)
{
    char tried[200], me[96], it[96];
    line_conn *conn = calloc(1, sizeof *conn);
    bool same_host = l->places[l->rank].node == l->places[0].node;
    where(l, l->rank, me, sizeof me);
    where(l, 0, it, sizeof it);
    result->bad = 1;
    if (!conn) {
        snprintf(result->why, sizeof result->why, "%s: no memory to connect to %s", me, it);
    } else if (!fo_transport_lifeline_wire_connect(&l->offer, l->rank, same_host, CONNECT_NS, conn,
                                                   tried, sizeof tried)) {
        snprintf(result->why, sizeof result->why,
                 "%s cannot reach %s, port %u, over TCP (%s); is there a firewall between the "
                 "hosts?",
                 me, it, l->offer.port, tried);
    } else if (!fo_transport_lifeline_adopt(l, conn)) {
        snprintf(result->why, sizeof result->why, "%s: cannot watch its connection: %s", me,
                 strerror(errno));
        fo_transport_lifeline_wire_close(conn);
    } else {
        l->peers[0].conn = conn;
        l->peers[0].state = LINE_JOINED;
        fo_transport_lifeline_wire_say(conn, LINE_BEAT, 0, NULL, 0);
        result->bad = 0;
        return;
    }
    free(conn);
}

/* Brings this rank's lifeline up as far as it goes: result->why says what stopped it. */
static void bring_up(fo_lifeline *l, const line_offer *offer, line_result *result)
{
    int64_t now = fo_base_clock_ns();
    l->offer = *offer;
    if (offer->port == 0 && !result->bad) {
        result->bad = 1;
        snprintf(result->why, sizeof result->why, "rank 0 on %s cannot listen for the others: %s",
                 l->places[0].host, offer->why);
    }
    if (!result->bad && l->rank != 0)
        join(l, result);
    l->last_look_ns = now;
    for (int p = 0; p < l->peer_count; p++)
        atomic_store(&l->peers[p].heard_ns, now);
    if (result->bad)
        return;
    if (start_thread(l)) {
        fo_transport_lifeline_enlist(l);
        return;
    }
    result->bad = 1;
    snprintf(result->why, sizeof result->why, "rank %d on %s cannot start a thread: %s", l->rank,
             l->places[l->rank].host, strerror(errno));
}

/* Ends the thread and everything. */
static void end(fo_lifeline *l, line_order order, bool started)
{
    if (started && fo_transport_lifeline_delist(l)) {
        atomic_store(&l->order, order);
        fo_transport_lifeline_wake(l);
        pthread_join(l->thread, NULL);
    }
    destroy(l);
}

/* The first rank whose lifeline doesn't stand is everyone's error. */
static fo_status agree(const fo_lifeline_options *options, const line_result *results)
{
    for (int r = 0; r < options->size; r++)
        if (results[r].bad)
            return fo_base_error(FO_IO, "%.*s", (int)sizeof results[r].why, results[r].why);
    return FO_OK;
}

static fo_status open_with(const fo_lifeline_options *options, fo_lifeline *l, void *all,
                           bool *started)
{
    line_result mine = {0};
    line_offer offer;
    if (!prepare(l)) {
        mine.bad = 1;
        l->offer.port = 0; /* keeps the others from trying */
        snprintf(mine.why, sizeof mine.why,
                 "rank %d on %s cannot open its lifeline to %d ranks: %s%s", l->rank,
                 l->places[l->rank].host, l->size, strerror(errno),
                 errno == EMFILE ? "; raise the limit (ulimit -n)" : "");
    }
    fo_status status = options->exchange(options->exchange_arg, &l->offer, sizeof l->offer, all);
    if (status != FO_OK)
        return status;
    memcpy(&offer, all, sizeof offer); /* of rank 0 */
    bring_up(l, &offer, &mine);
    *started = !mine.bad;
    status = options->exchange(options->exchange_arg, &mine, sizeof mine, all);
    return status == FO_OK ? agree(options, all) : status;
}

fo_status fo_transport_lifeline_open(const fo_lifeline_options *options, fo_failure *failure,
                                     fo_lifeline **lifeline)
{
    size_t most =
        sizeof(line_offer) > sizeof(line_result) ? sizeof(line_offer) : sizeof(line_result);
    bool started = false;
    *lifeline = NULL;
    if (options->size == 1)
        return FO_OK;
    fo_lifeline *l = make(options, failure);
    void *all = calloc((size_t)options->size, most);
    if (!l || !all) {
        if (l)
            destroy(l);
        free(all);
        return fo_base_error(FO_NO_MEMORY, "no memory to watch over %d ranks", options->size);
    }
    fo_status status = open_with(options, l, all, &started);
    free(all);
    if (status != FO_OK) {
        end(l, LINE_LEAVE, started);
        return status;
    }
    for (int p = 0; p < l->peer_count; p++)
        atomic_store(&l->peers[p].heard_ns, fo_base_clock_ns());
    atomic_store(&l->armed, true);
    *lifeline = l;
    return FO_OK;
}

/* ---- what others ask ---- */

const void *fo_transport_lifeline_key(const fo_lifeline *l, int *bytes)
{
    *bytes = LINE_KEY;
    return l->offer.key;
}

void fo_transport_lifeline_declare(fo_lifeline *l, int rank, const char *cause)
{
    if (l && fo_transport_failure_declare(l->failure, l->rank, rank, cause))
        fo_transport_lifeline_wake(l);
}

int64_t fo_transport_lifeline_silence(const fo_lifeline *l, int rank)
{
    if (!l || rank < 0 || rank >= l->size)
        return -1;
    if (rank == l->rank)
        return 0;
    if (l->rank != 0 && rank != 0)
        return -1;
    int64_t silent = fo_base_clock_ns() - atomic_load(&l->peers[rank].heard_ns);
    return silent > 0 ? silent : 0;
}

static bool may_speak(const fo_lifeline *l, int rank)
{
    bool known = rank < l->peer_count && rank != l->rank;
    return rank != l->failure->rank && !(known && atomic_load(&l->peers[rank].gone));
}

bool fo_transport_lifeline_speaks(const fo_lifeline *l)
{
    if (!l || !fo_transport_failure_seen(l->failure))
        return !l || l->rank == 0;
    for (int r = 0; r < l->size; r++)
        if (may_speak(l, r))
            return r == l->rank;
    return true; /* nobody else is left */
}

void fo_transport_lifeline_close(fo_lifeline *l, bool failed)
{
    if (l)
        end(l, failed ? LINE_LEAVE_FAILED : LINE_LEAVE, true);
}
