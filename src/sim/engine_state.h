/* What the engine keeps per rank, task, queue and message; shared by the files of the engine only. */
#ifndef FO_SIM_ENGINE_STATE_H
#define FO_SIM_ENGINE_STATE_H

#include "sim/engine.h"
#include "sim/network.h"
#include "sim/queue.h"

/* Progress of one task, as the executor's (exec/state.h). */
typedef struct sim_task {
    int64_t
        ready; /* rows from the first that are finished; SEND: that the receiver has finished with */
    int32_t issued, completed, released; /* messages */
    int32_t chunks;
    int32_t queue;                 /* SEND, RECV */
    int32_t partner;               /* the other rank's task of the same messages */
    int32_t waiters;               /* first queue whose next task waits for this one, -1: none */
    int32_t in_source, add_source; /* RECV whose rows `in` / `add` are, -1: none */
    int32_t reader_first, reader_count; /* RECV: tasks that read its rows */
    int32_t dep_at;                     /* dependencies before this one are satisfied for good */
    int32_t early, early_last; /* RECV: messages that came before it was posted, -1: none */
} sim_task;

/* Tasks of one peer, direction and channel, in list order. */
typedef struct sim_queue {
    int32_t first, count, next; /* in the pool; `next`: first that is not fully posted */
    int32_t peer;               /* period class of the other rank */
    int32_t twin;               /* its queue */
    int32_t next_waiter;
    int32_t port_first; /* of its route, SEND */
    fo_sim_route route;
    double sized_bytes, transfer_s; /* of its last message */
    bool send, deferred;            /* as the executor's */
} sim_queue;

typedef enum sim_lane {
    SIM_LANE_FREE, /* between two doings; at the beginning */
    SIM_LANE_ASLEEP,
    SIM_LANE_WAKES,
    SIM_LANE_HANDLES, /* software of messages */
    SIM_LANE_PREPARES,
    SIM_LANE_TILE,
    SIM_LANE_ENDED
} sim_lane;

/* Not async: something has come and is seen when the lane looks. */
typedef struct sim_note {
    int32_t task, next;
} sim_note;

typedef struct sim_message {
    int32_t queue, task, chunk; /* of the sender */
    int32_t from, stage, next;
    double transfer_s;
} sim_message;

typedef struct sim_rank {
    const fo_program *program;
    int64_t base; /* its first task in engine.tasks */
    int32_t queue_first, queue_count;
    int32_t *lane, lane_count, at; /* COMPUTE, ADD, COPY in list order */
    int32_t *runnable,
        runnable_count; /* queues that may be able to post: a heap by their next task */
    int32_t unfinished; /* communication tasks that have to end */
    double speed;
    /* the compute lane */
    sim_lane doing;
    bool begun, prepared, touched;
    int32_t turn;   /* which doing: what was to end an earlier one is void */
    double since_s; /* when it began, ASLEEP: too */
    double work_s, work_since_s,
        work_left_s;               /* TILE, PREPARES: all; what is left of it since then */
    double wait_s;                 /* begin of the wait it is in, < 0: none */
    int32_t waits_for;             /* task */
    double debt_s;                 /* async: software of messages to be made up for */
    int32_t in_flight;             /* messages, for contention */
    int64_t rows;                  /* of the tile */
    int32_t note_first, note_last; /* seen in this order, -1: none */
    int32_t handled;               /* note or queue that HANDLES is about, -1: none */
    bool handled_send;
    /* what was recorded last, for those who watch */
    fo_sim_event open;
    fo_sim_rank sums;
} sim_rank;

typedef struct sim_engine {
    const fo_sim_engine_desc *desc;
    const fo_sim_machine *machine;
    int ranks, period;
    int64_t stream_rows;
    sim_rank *rank;
    sim_task *tasks;
    sim_queue *queues;
    int32_t queue_count;
    int32_t *queue_pool, *lane_pool, *reader_pool, *heap_pool;
    int32_t *port_pool; /* pairs: place in port_free_s, order */
    int64_t port_pool_count, port_pool_capacity;
    double *port_free_s;
    int32_t port_count, port_capacity;
    sim_message *messages;
    int32_t message_count, message_capacity, message_spare; /* spare: first unused one, -1 */
    sim_note *notes;
    int32_t note_count, note_capacity, note_spare;
    int32_t *touched, touched_count; /* ranks to which something happened in this turn */
    fo_sim_queue happens;
    int64_t events;
    fo_status status;
} sim_engine;

/* Durations are multiples of 2^-50 s: sums of such are exact for 8 s, so what ends at the same time by two
 * ways ends at the same time. */
static inline double fo_sim_engine_whole(double seconds)
{
    return seconds < 8 ? (double)(int64_t)(seconds * 0x1p50 + 0.5) * 0x1p-50 : seconds;
}

static inline sim_task *fo_sim_engine_task(const sim_engine *e, const sim_rank *r, int32_t index)
{
    return &e->tasks[r->base + index];
}

static inline bool fo_sim_engine_is_message(const fo_task *task)
{
    return task->kind == FO_TASK_SEND || task->kind == FO_TASK_RECV;
}

/* Rows of messages up to number `count` of a task. */
static inline int64_t fo_sim_engine_rows(const sim_engine *e, const fo_task *task, int32_t count)
{
    int64_t rows = count * e->stream_rows;
    return rows < task->rows ? rows : task->rows;
}

/* ---- engine_layout.c: everything that is made once ---- */
fo_status fo_sim_engine_check(const fo_sim_engine_desc *desc);
fo_status fo_sim_engine_lay_out(sim_engine *engine);
void fo_sim_engine_free(sim_engine *engine);

/* ---- engine_message.c: moving messages ---- */
/* First dependency that does not yet allow rows up to `end` (global) of a task, -1: none. */
int32_t fo_sim_engine_blocker(const sim_engine *engine, const sim_rank *rank, int32_t index,
                              int64_t end);
/* All queues may post. */
void fo_sim_engine_rewind(sim_engine *engine, sim_rank *rank);
/* Rows of a lane task were finished. */
void fo_sim_engine_advanced(sim_engine *engine, sim_rank *rank, int32_t index);
/* One message of a SEND or RECV is done. */
void fo_sim_engine_complete(sim_engine *engine, sim_rank *rank, int32_t index);
/* Posts RECVs; the next queue that has a message to offer, -1: none. */
int32_t fo_sim_engine_next_offer(sim_engine *engine, sim_rank *rank);
/* Offers the next message of that queue. */
void fo_sim_engine_offer(sim_engine *engine, sim_rank *rank, int32_t queue);
double fo_sim_engine_message_bytes(const sim_engine *engine, const sim_rank *rank, int32_t index,
                                   int32_t chunk);
/* Seconds of software at one end of a message. */
double fo_sim_engine_software_s(const sim_engine *engine, double bytes);
/* A message has come to its next port. */
void fo_sim_engine_at_port(sim_engine *engine, int32_t message);
void fo_sim_engine_happens(sim_engine *engine, const fo_sim_happens *happens);
void fo_sim_engine_touch(sim_engine *engine, sim_rank *rank);

/* ---- engine_lane.c: the compute lane ---- */
/* Something happened to this rank: what can begin begins. */
void fo_sim_engine_go(sim_engine *engine, sim_rank *rank);
void fo_sim_engine_lane_ends(sim_engine *engine, sim_rank *rank);
/* A message of this rank begins (1) or ends (-1) to be in flight. */
void fo_sim_engine_flight(sim_engine *engine, sim_rank *rank, int by);
/* Not async: a message of task `index` is there to be seen. */
void fo_sim_engine_note(sim_engine *engine, sim_rank *rank, int32_t index);
/* The communication task that a blocked task waits for in the end. */
int32_t fo_sim_engine_root(const sim_engine *engine, const sim_rank *rank, int32_t blocker);

#endif
