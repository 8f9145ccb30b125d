/* What closed forms keep of a program; shared by their files only. */
#ifndef FO_SIM_CLOSED_STATE_H
#define FO_SIM_CLOSED_STATE_H

#include "sim/closed.h"
#include "sim/engine_state.h"

enum {
    CLOSED_PASSES = 8,
    CLOSED_TASKS = 512
}; /* tasks that are compared with each other, at most */

/* How far apart the least and the most may be: else, held up by a thread, by others on the port, slowed besides. */
#define CLOSED_APART 1.01
#define CLOSED_APART_HELD 1.005
#define CLOSED_APART_MIXED 1.003
#define CLOSED_APART_SLOWED 1.001
/* How much of the whole the software of messages may be. */
#define CLOSED_SOFTWARE 0.02

/* When something has happened to the first message, or tile, of a slice, to the last full one, and to the last. */
typedef struct times {
    double first, full, last;
} times;

typedef struct slice {
    bool known;
    times done;     /* lane: finished; RECV: delivered; SEND: last: given back, 0: not known */
    times offered;  /* SEND; RECV: posted */
    times port;     /* on its port: the first message begins, the others end */
    double delay_s; /* SEND: by what else is on its port, at most */
} slice;

/* Messages of a SEND. */
typedef struct sizes {
    int32_t count;
    double each_s, last_s, full_s, all_s; /* on the port; full: all but a shorter last one */
    double software_s, software_all_s;
} sizes;

/* Seconds of the first full unit of a lane task, of all full ones, of the last full one, of what is left over. A unit
 * is what a message has, or a tile where that is larger. */
typedef struct lane_work {
    double first, full, last_full, left;
    double first_at, full_at; /* which messages the first and the last full unit need */
    bool unit_is_larger, has_left;
} lane_work;

/* Of a slice: its messages are in flight for `seconds` between two times, or their software takes as long. */
typedef struct burden {
    double begins, ends, seconds;
    bool software;
} burden;

/* For how long messages were in flight, and their software took the lane, until when. */
typedef struct loss {
    double at_s, flown_s, software_s;
} loss;

typedef struct losses {
    loss *of;
    int32_t count, capacity;
} losses;

typedef struct clock_of_channel {
    double offered_last, ends;
} clock_of_channel;

typedef struct clock_of_port {
    clock_of_channel channels[2];
    double enters[2];
} clock_of_port;

typedef struct closed {
    sim_engine e;
    sim_rank *r;
    bool most, mixed,
        ended; /* as much as it can be; queues share a port at a time; the lane has ended */
    slice *slices;
    sizes *sizes;
    lane_work *works;
    int32_t *before; /* the task before in a queue, -1: none */
    clock_of_port *ports;
    burden *burdens;
    int32_t burden_count;
    losses losses;                     /* as the last pass had them */
    bool parallel;                     /* messages leave by several ports */
    bool adds;                         /* in passes of their own */
    double software_s;                 /* of all messages, at both ends */
    double start_s, prepare_s, tile_s; /* tile_s: the longest */
    double lane_s, wait_s, total_s;
    fo_status status;
} closed;

static inline double later(double a, double b)
{
    return a > b ? a : b;
}

/* ---- closed_losses.c ---- */
/* parallel: messages leave by several ports at once. false: no memory. */
bool fo_sim_closed_losses(losses *losses, const burden *burdens, int32_t count, bool parallel);
/* When work from `at` on is done, `part` of which is lost while a message is in flight. */
double fo_sim_closed_finish(const losses *losses, double at, double part, double work);

#endif
