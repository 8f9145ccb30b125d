/* What happens when: events of virtual time, handed out moment by moment. */
#ifndef FO_SIM_QUEUE_H
#define FO_SIM_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum fo_sim_happening {
    FO_SIM_BEGINS,     /* a rank */
    FO_SIM_LANE_ENDS,  /* what the compute lane of a rank is doing */
    FO_SIM_DELIVERED,  /* a message of a RECV */
    FO_SIM_GIVEN_BACK, /* a message of a SEND: received, or its reader has passed */
    FO_SIM_FLIGHT_BEGINS,
    FO_SIM_FLIGHT_ENDS, /* of a message of a rank */
    FO_SIM_AT_PORT      /* a message has come to a port */
} fo_sim_happening;

typedef struct fo_sim_happens {
    double at_s;
    int32_t rank;
    int32_t task, chunk, order; /* of those of one moment and kind: the smaller first */
    int32_t item;               /* message; LANE_ENDS: which doing */
    fo_sim_happening kind;
} fo_sim_happens;

typedef struct fo_sim_happens_list {
    fo_sim_happens *of;
    int64_t count, capacity;
} fo_sim_happens_list;

/* A heap by time, and apart from it what happens at this very moment, in consequence of what was handed out last:
 * that comes in the next turn, at the same time. */
typedef struct fo_sim_queue {
    fo_sim_happens_list later, next, turn;
    double now_s;
    bool failed; /* no memory */
} fo_sim_queue;

void fo_sim_queue_free(fo_sim_queue *queue);
/* at_s: now_s or later. */
void fo_sim_queue_add(fo_sim_queue *queue, const fo_sim_happens *happens);
/* Moves on to the next turn: queue->turn is all that happens in it, in order. False when nothing is left. */
bool fo_sim_queue_advance(fo_sim_queue *queue);

#endif
