/* What a lifeline holds; shared by lifeline*.c only. */
#ifndef FO_TRANSPORT_LIFELINE_STATE_H
#define FO_TRANSPORT_LIFELINE_STATE_H

#include <pthread.h>
#include <sys/types.h>

#include "transport/lifeline.h"
#include "transport/lifeline_wire.h"

typedef enum line_state {
    LINE_ABSENT,  /* rank 0: not connected yet */
    LINE_GREETED, /* rank 0: welcomed, has not spoken since */
    LINE_JOINED,
    LINE_LEFT, /* by a goodbye */
    LINE_LOST
} line_state;

/* What the thread has been told to do. */
typedef enum line_order {
    LINE_WATCH,
    LINE_LEAVE,
    LINE_LEAVE_FAILED,
    LINE_LEAVE_EXITING
} line_order;

/* The other side: on rank 0 every rank, elsewhere rank 0. */
typedef struct line_peer {
    line_conn *conn;
    line_state state; /* the thread's */
    _Atomic int64_t heard_ns;
    atomic_bool gone; /* left before any failure, or is dead */
} line_peer;

struct fo_lifeline {
    int rank, size;
    const fo_place *places;
    int64_t silence_ns, beat_ns;
    fo_failure *failure;
    void (*on_failure)(bool speaks);
    pthread_t thread;
    pid_t pid; /* a forked child has none of this */
    int epoll, wake, listener;
    line_offer offer;
    atomic_int order; /* line_order */
    int exit_code;
    atomic_bool armed; /* everyone has connected: silence counts */

    pthread_mutex_t turn; /* held by the thread while it is awake; all below is the thread's */
    line_conn *conns;
    line_peer *peers;
    int peer_count;
    bool announced; /* the failure has been passed on */
    int64_t next_beat_ns, last_look_ns;

    /* lifeline_exit.c */
    struct fo_lifeline *next;
    bool ended; /* by the exit of the process */
};

/* ---- lifeline_thread.c ---- */

void *fo_transport_lifeline_thread(void *lifeline);
/* Takes a connected conn (on the heap) into what is watched; false when there are no more. */
bool fo_transport_lifeline_adopt(fo_lifeline *lifeline, line_conn *conn);
void fo_transport_lifeline_wake(const fo_lifeline *lifeline);
/* Closes every descriptor; the thread has ended, or is not in this process. */
void fo_transport_lifeline_shut(fo_lifeline *lifeline);

/* ---- lifeline_exit.c: lifelines that are open when the process exits or forks ---- */

void fo_transport_lifeline_enlist(fo_lifeline *lifeline);
/* False when the exit of the process has ended it already. */
bool fo_transport_lifeline_delist(fo_lifeline *lifeline);

#endif
