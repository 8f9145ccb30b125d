/* The thread of a lifeline: connections, beats, and who is declared.
 *
 * epoll hands connections out in the order in which something happened to them. When several ranks end at
 * nearly the same time, that is what tells the first from those that followed it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "transport/lifeline_state.h"

#define MS INT64_C(1000000)
#define STRANGER_NS (5000 * MS) /* to say who one is */
#define FAREWELL_NS (100 * MS)  /* for a goodbye to leave */
#define LAST_WORDS_NS (1000 * MS)

enum { EVENTS = 64 };

/* ---- connections ---- */

void fo_transport_lifeline_wake(const fo_lifeline *l)
{
    uint64_t one = 1;
    while (write(l->wake, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

bool fo_transport_lifeline_adopt(fo_lifeline *l, line_conn *conn)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = conn};
    if (epoll_ctl(l->epoll, EPOLL_CTL_ADD, conn->fd, &event) != 0)
        return false;
    conn->next = l->conns;
    l->conns = conn;
    return true;
}

/* Sends, and has epoll tell when there is room for what is left. */
static void say(fo_lifeline *l, line_conn *conn, line_kind kind, int value, const char *text)
{
    fo_transport_lifeline_wire_say(conn, kind, value, text, text ? strlen(text) : 0);
    if (conn->fd < 0 || (conn->left > 0) == conn->watched)
        return;
    conn->watched = !conn->watched;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = conn};
    event.events |= conn->watched ? EPOLLOUT : 0;
    epoll_ctl(l->epoll, EPOLL_CTL_MOD, conn->fd, &event);
}

/* Frees what is closed; not while events are handed out that may point to it. */
static void sweep(fo_lifeline *l)
{
    line_conn **at = &l->conns;
    while (*at) {
        line_conn *conn = *at;
        if (conn->fd >= 0) {
            at = &conn->next;
            continue;
        }
        *at = conn->next;
        free(conn);
    }
}

void fo_transport_lifeline_shut(fo_lifeline *l)
{
    int *const descriptors[] = {&l->epoll, &l->wake, &l->listener};
    for (line_conn *conn = l->conns; conn; conn = conn->next) {
        if (conn->fd >= 0)
            close(conn->fd);
        conn->fd = -1;
    }
    for (size_t i = 0; i < sizeof descriptors / sizeof *descriptors; i++) {
        if (*descriptors[i] >= 0)
            close(*descriptors[i]);
        *descriptors[i] = -1;
    }
    sweep(l);
}

/* Taken out of epoll first: while a child that is being started holds a copy of the descriptor, closing it alone
 * does not do that. */
static void hang_up(fo_lifeline *l, line_conn *conn)
{
    if (conn->fd >= 0)
        epoll_ctl(l->epoll, EPOLL_CTL_DEL, conn->fd, NULL);
    fo_transport_lifeline_wire_close(conn);
}

static void welcome_strangers(fo_lifeline *l, int64_t now)
{
    int fd;
    while ((fd = accept4(l->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0 ||
           errno == EINTR || errno == ECONNABORTED) {
        line_conn *conn = fd >= 0 ? calloc(1, sizeof *conn) : NULL;
        if (!conn) {
            if (fd >= 0)
                close(fd);
            continue;
        }
        fo_transport_lifeline_wire_open(conn, fd);
        conn->since_ns = now;
        if (!fo_transport_lifeline_adopt(l, conn)) {
            fo_transport_lifeline_wire_close(conn);
            free(conn);
        }
    }
    if (errno != EAGAIN && errno != EWOULDBLOCK) /* too many files: do not spin over it */
        nanosleep(&(struct timespec){.tv_nsec = 10 * MS}, NULL);
}

static void drop_strangers(fo_lifeline *l, int64_t now)
{
    for (line_conn *conn = l->conns; conn; conn = conn->next)
        if (conn->fd >= 0 && conn->rank < 0 && now - conn->since_ns > STRANGER_NS)
            hang_up(l, conn);
}

/* ---- declaring ---- */

static line_peer *peer_of(fo_lifeline *l, const line_conn *conn)
{
    line_peer *peer = &l->peers[l->rank == 0 ? conn->rank : 0];
    return peer->conn == conn ? peer : NULL; /* not when a later connection took its place */
}

static void declare(fo_lifeline *l, int rank, const char *cause)
{
    fo_transport_failure_declare(l->failure, l->rank, rank, cause);
}

static long long pid_of(const fo_lifeline *l, int rank)
{
    return (long long)l->places[rank].pid;
}

static void lose(fo_lifeline *l, line_peer *peer, int rank, const char *cause)
{
    declare(l, rank, cause);
    peer->state = LINE_LOST;
    atomic_store(&peer->gone, true);
}

/* The connection has ended. */
static void on_end(fo_lifeline *l, line_conn *conn, int error)
{
    char cause[160];
    line_peer *peer = conn->rank >= 0 ? peer_of(l, conn) : NULL;
    bool open = atomic_load(&l->armed);
    if (peer && peer->state == LINE_GREETED && !open) { /* it may try again */
        peer->state = LINE_ABSENT;
    } else if (peer && (peer->state == LINE_GREETED || peer->state == LINE_JOINED)) {
        if (error && error != ECONNRESET && error != EPIPE)
            snprintf(cause, sizeof cause, "its connection broke: %s (pid %lld)", strerror(error),
                     pid_of(l, conn->rank));
        else
            snprintf(cause, sizeof cause,
                     "died (pid %lld): its connection closed without a goodbye",
                     pid_of(l, conn->rank));
        lose(l, peer, conn->rank, cause);
    }
    if (peer)
        peer->conn = NULL;
    hang_up(l, conn);
}

/* The first message of a connection. Its rank had tried before when there is one that has not spoken yet. */
static bool on_hello(fo_lifeline *l, line_conn *conn, const line_head *head, const char *data)
{
    if (l->rank != 0 || head->kind != LINE_HELLO || head->bytes != LINE_KEY ||
        memcmp(data, l->offer.key, LINE_KEY) != 0 || head->value < 1 || head->value >= l->size)
        return false;
    line_peer *peer = &l->peers[head->value];
    if (peer->state > LINE_GREETED)
        return false;
    if (peer->conn)
        hang_up(l, peer->conn);
    peer->conn = conn;
    peer->state = LINE_GREETED;
    conn->rank = head->value;
    say(l, conn, LINE_WELCOME, 0, NULL);
    return true;
}

static void on_message(fo_lifeline *l, line_conn *conn, const line_head *head, const char *data)
{
    char text[LINE_TEXT + 1];
    line_peer *peer = peer_of(l, conn);
    if (!peer)
        return;
    if (peer->state == LINE_GREETED) {
        peer->state = LINE_JOINED;
        if (l->announced) /* the failure was before its time */
            say(l, conn, LINE_FAILED, l->failure->rank, l->failure->cause);
    }
    if (head->kind == LINE_FAILED && head->value >= 0 && head->value < l->size) {
        memcpy(text, data, head->bytes);
        text[head->bytes] = 0;
        declare(l, head->value, text);
    } else if (head->kind == LINE_EXITED) {
        snprintf(text, sizeof text, "exited with code %d before it had finished (pid %lld)",
                 head->value, pid_of(l, conn->rank));
        lose(l, peer, conn->rank, text);
    } else if (head->kind == LINE_GOODBYE) {
        peer->state = LINE_LEFT;
        if (!fo_transport_failure_seen(l->failure)) /* otherwise it had its say */
            atomic_store(&peer->gone, true);
    }
}

static void listen_to(fo_lifeline *l, line_conn *conn, int64_t now)
{
    line_head head;
    const char *data;
    int found;
    while (conn->fd >= 0 && (found = fo_transport_lifeline_wire_take(conn, &head, &data)) != 0) {
        if (found < 0) {
            on_end(l, conn, errno);
        } else if (conn->rank >= 0) {
            on_message(l, conn, &head, data);
        } else if (!on_hello(l, conn, &head, data)) {
            hang_up(l, conn);
        }
    }
    line_peer *peer = conn->rank >= 0 ? peer_of(l, conn) : NULL;
    if (peer)
        atomic_store(&peer->heard_ns, now);
}

/* ---- what time brings ---- */

static void announce(fo_lifeline *l)
{
    if (l->announced || !fo_transport_failure_seen(l->failure))
        return;
    l->announced = true;
    for (int p = 0; p < l->peer_count; p++) {
        line_peer *peer = &l->peers[p];
        /* one that is stopped learns of it when it goes on */
        if (peer->conn && peer->state != LINE_LEFT)
            say(l, peer->conn, LINE_FAILED, l->failure->rank, l->failure->cause);
    }
    if (l->on_failure)
        l->on_failure(fo_transport_lifeline_speaks(l));
}

static void beat(fo_lifeline *l, int64_t now)
{
    if (now < l->next_beat_ns)
        return;
    l->next_beat_ns = now + l->beat_ns;
    for (int p = 0; p < l->peer_count; p++) {
        line_conn *conn = l->peers[p].conn;
        if (conn && conn->left == 0 && l->peers[p].state == LINE_JOINED)
            say(l, conn, LINE_BEAT, 0, NULL);
    }
}

/* Rank 0: whether all other hosts, at least two, have fallen silent together: then it is this one's network. */
static bool is_cut_off(fo_lifeline *l, int64_t now)
{
    int other = -1;
    bool several = false;
    for (int p = 1; p < l->peer_count; p++) {
        int node = l->places[p].node;
        if (node == l->places[0].node || l->peers[p].state > LINE_JOINED)
            continue;
        if (now - atomic_load(&l->peers[p].heard_ns) < l->silence_ns / 2)
            return false;
        several = several || (other >= 0 && node != other);
        other = node;
    }
    return several;
}

static void judge_silence(fo_lifeline *l, int64_t now)
{
    char cause[160];
    /* who has been stopped itself, or got no processor, can't tell who was silent meanwhile */
    bool absent = now - l->last_look_ns > l->silence_ns / 2;
    l->last_look_ns = now;
    if (!atomic_load(&l->armed))
        return;
    for (int p = 0; p < l->peer_count; p++) {
        line_peer *peer = &l->peers[p];
        if (p == l->rank || peer->state > LINE_JOINED)
            continue;
        if (absent)
            atomic_store(&peer->heard_ns, now);
        int64_t silent = now - atomic_load(&peer->heard_ns);
        if (silent < l->silence_ns)
            continue;
        if (is_cut_off(l, now)) {
            snprintf(cause, sizeof cause,
                     "has heard of no other host for %.1f s: its network is down",
                     (double)silent * 1e-9);
            declare(l, 0, cause);
            continue;
        }
        snprintf(cause, sizeof cause,
                 "has not been heard of for %.1f s (pid %lld): it is stopped, or its network is "
                 "down",
                 (double)silent * 1e-9, pid_of(l, p));
        lose(l, peer, p, cause);
    }
}

/* ---- the end ---- */

static bool has_unsent(fo_lifeline *l)
{
    bool unsent = false;
    for (line_conn *conn = l->conns; conn; conn = conn->next) {
        fo_transport_lifeline_wire_flush(conn);
        unsent = unsent || (conn->fd >= 0 && conn->left > 0);
    }
    return unsent;
}

/* An exit because of a failure is no cause of its own: a goodbye. */
static void leave(fo_lifeline *l, line_order order)
{
    bool failed = fo_transport_failure_seen(l->failure);
    bool exiting = order == LINE_LEAVE_EXITING && !failed;
    for (int p = 0; p < l->peer_count; p++)
        if (l->peers[p].conn)
            say(l, l->peers[p].conn, exiting ? LINE_EXITED : LINE_GOODBYE, l->exit_code, NULL);
    int64_t until =
        fo_base_clock_ns() + (failed || order != LINE_LEAVE ? LAST_WORDS_NS : FAREWELL_NS);
    while (has_unsent(l) && fo_base_clock_ns() < until)
        nanosleep(&(struct timespec){.tv_nsec = MS}, NULL);
    for (line_conn *conn = l->conns; conn; conn = conn->next)
        hang_up(l, conn);
}

/* ---- the loop ---- */

static void handle(fo_lifeline *l, const struct epoll_event *event, int64_t now)
{
    uint64_t count;
    if (event->data.ptr == &l->wake) {
        (void)!read(l->wake, &count, sizeof count);
    } else if (event->data.ptr == &l->listener) {
        welcome_strangers(l, now);
    } else {
        line_conn *conn = event->data.ptr;
        if (conn->watched) {
            fo_transport_lifeline_wire_flush(conn);
            if (conn->left == 0) {
                struct epoll_event in = {.events = EPOLLIN, .data.ptr = conn};
                epoll_ctl(l->epoll, EPOLL_CTL_MOD, conn->fd, &in);
                conn->watched = false;
            }
        }
        if (conn->fd >= 0)
            listen_to(l, conn, now);
    }
}

/* The thread sleeps nearly always, but when a rank has died it should come before those that compute: launchers kill
 * what is left of a job within a millisecond. A short slice lets it, where the kernel knows that; a privileged user may
 * ask for more. */
static void hurry(void)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } wish = {.size = sizeof wish, .nice = -10, .runtime = 100000};
    if (syscall(SYS_sched_setattr, 0, &wish, 0) == 0)
        return;
    wish.nice = 0;
    (void)syscall(SYS_sched_setattr, 0, &wish, 0);
}

void *fo_transport_lifeline_thread(void *arg)
{
    fo_lifeline *l = arg;
    hurry();
    struct epoll_event events[EVENTS];
    line_order order = LINE_WATCH;
    pthread_setname_np(pthread_self(), "fo-lifeline");
    pthread_mutex_lock(&l->turn);
    while (order == LINE_WATCH) {
        int64_t left = l->next_beat_ns - fo_base_clock_ns();
        int epoll = l->epoll;
        pthread_mutex_unlock(&l->turn);
        int count = epoll_wait(epoll, events, EVENTS, left > 0 ? (int)((left + MS - 1) / MS) : 0);
        pthread_mutex_lock(&l->turn);
        order = (line_order)atomic_load(&l->order); /* what came before it is still looked at */
        int64_t now = fo_base_clock_ns();
        for (int i = 0; i < count; i++)
            handle(l, &events[i], now);
        judge_silence(l, now);
        announce(l);
        beat(l, now);
        drop_strangers(l, now);
        sweep(l);
    }
    leave(l, order);
    sweep(l);
    pthread_mutex_unlock(&l->turn);
    return NULL;
}
