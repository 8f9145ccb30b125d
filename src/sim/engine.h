/* The simulator's engine: runs the programs of all ranks in virtual time. Rules and derivations: docs/simulator.md.
 *
 * The rules are the executor's (exec/exec.h): a compute lane in list order, tile by tile; messages of stream_rows
 * rows that leave when their rows are ready; ports that serve one message at a time, in the order in which they
 * were offered; receives posted as soon as their dependencies allow; SEND done when received (views: when every
 * reader has passed). Where machine->async is false, messages are offered and seen only between tiles and in
 * waits, as one thread does it.
 *
 * Equal ranks. Where all ranks do the same but for their number, one of them is enough: with `period` P (a
 * divisor of N) rank r behaves as rank r mod P does; programs[0..P) are given, and a message from r to p is taken
 * for one from r mod P to (r mod P) + (p - r). P = 1: every rank is like rank 0, as in rings of equal shards;
 * P = locals: every machine is like the first; P = N: nothing is assumed. fo_sim_engine_period finds it. With P < N
 * messages have to meet others of equal size: where shards differ by a row, programs[] are built for rows rounded up
 * to a multiple of N.
 *
 * Deterministic: the same input gives the same figures. No global state; any thread. */
#ifndef FO_SIM_ENGINE_H
#define FO_SIM_ENGINE_H

#include "flashoverlap/status.h"
#include "schedule/program.h"
#include "sim/machine.h"

/* Seconds of a tile of a COMPUTE, ADD or COPY task on a rank of speed 1, without machine->task_s. */
typedef double (*fo_sim_tile_s)(const void *context, int rank, const fo_task *task, int64_t row,
                                int64_t rows);

typedef enum fo_sim_event_kind {
    FO_SIM_EVENT_COMPUTE, /* tiles that follow each other without a gap are one event */
    FO_SIM_EVENT_WAIT,    /* of the compute lane; task: what was waited for */
    FO_SIM_EVENT_SEND,    /* on the sender's port: begins to leave ... has left */
    FO_SIM_EVENT_RECV,    /* first byte on the receiver's port ... delivered */
    FO_SIM_EVENT_PREPARE
} fo_sim_event_kind;

typedef struct fo_sim_event {
    fo_sim_event_kind kind;
    int rank;     /* 0 ... period - 1 */
    int32_t task; /* -1: none */
    int peer;     /* -1: none */
    double begin_s, end_s;
    int64_t rows;
} fo_sim_event;

typedef void (*fo_sim_watch)(void *watcher, const fo_sim_event *event);

typedef struct fo_sim_engine_desc {
    const fo_program *const *programs; /* [period], borrowed */
    int ranks, period;
    const fo_sim_machine
        *machine; /* network, overheads, contention, async, views; the device is not looked at */
    int64_t row_bytes[FO_BUFFER_ROLES];
    int64_t tile_rows[2]; /* of one tile, by slot; ADD and COPY: stream_rows */
    fo_sim_tile_s tile_s;
    const void *context;
    const double *prepare_s; /* [period] local work once the first messages have left; NULL: none */
    const double *start_s;   /* [period] when a rank begins; NULL: 0 */
    const double *speed;     /* [period] 1: as stated, 0.5: computes half as fast; NULL: 1 */
    fo_sim_watch watch;      /* NULL: nobody */
    void *watcher;
} fo_sim_engine_desc;

/* Of one rank. */
typedef struct fo_sim_rank {
    double end_s;                    /* has its result, and its memory is free again */
    double compute_s;                /* computing, with contention and overheads */
    double exposed_s;                /* the lane waited: end_s = start + compute_s + this */
    double contention_s, overhead_s; /* parts of compute_s */
    double sent_bytes;
    int64_t messages;
} fo_sim_rank;

typedef struct fo_sim_run {
    double total_s;    /* until the slowest rank ended */
    int slowest;       /* its number */
    fo_sim_rank worst; /* the slowest one's figures */
    double max_exposed_s;
    int64_t events; /* handled, for those who want to know what a simulation costs */
} fo_sim_run;

/* FO_INVALID: a period that does not divide, sizes that can't be. FO_SCHEDULE: the programs wait for each other for
 * ever (the sentence names rank and task). FO_NO_MEMORY. per_rank: [period], or NULL. */
fo_status fo_sim_engine_run(const fo_sim_engine_desc *desc, fo_sim_run *run, fo_sim_rank *per_rank);

/* The smallest period that is exact: 1 where shards are equal, the network looks the same from every rank and all
 * speeds and starts (NULL: equal) are; the machines' number of ranks where it looks the same from every machine;
 * else `ranks`. Ranks whose shards differ by a row count as equal when `about` is set. */
int fo_sim_engine_period(const fo_schedule_desc *desc, const fo_sim_network *network,
                         const double *speed, const double *start, bool about);

#endif
