/* The executor: runs one rank's program on a transport, with the operator's computations.
 *
 * One thread computes and moves the messages: after every tile it looks at the transport, sends what has
 * become ready and notes what has arrived. Received rows are read where they lie (views) when the
 * transport can. Nothing on the path of a slice allocates, locks or makes a system call; a wait is the
 * transport's (spin briefly, then sleep).
 *
 * A run ends when its results are there and the caller's memory is free again. Partial sums that a peer still
 * reads where they lie are the executor's own memory: the next run, or fo_exec_destroy, waits for that.
 *
 * A run can also be started and left: it is then in the background of its rank and moved on, tile by tile, by whichever
 * run computes or waits in the foreground, until fo_exec_finish waits for what is left.
 *
 * Requests, chunk tables and staging are made by fo_exec_create and used again by every run.
 */
#ifndef FO_EXEC_EXEC_H
#define FO_EXEC_EXEC_H

#include <stdbool.h>

#include "base/background.h"
#include "base/recorder.h"
#include "schedule/program.h"
#include "transport/transport.h"

/* One call of a computation: rows [row, row + rows) of the operation. */
typedef struct fo_exec_tile {
    const fo_task *task;
    int64_t row, rows;
    const void *in, *add; /* NULL when the task has none */
    void *out;
    fo_buffer_role in_role, add_role, out_role; /* FO_BUFFER_ROLES: none */
} fo_exec_tile;

/* Does a COMPUTE, ADD or COPY tile. */
typedef fo_status (*fo_exec_compute)(void *context, const fo_exec_tile *tile);

/* Local work before the first tile, done while the first messages travel already (packing a weight). */
typedef fo_status (*fo_exec_prepare)(void *context);

/* Local work instead of a wait: does a piece and returns true, or false when there is none. */
typedef bool (*fo_exec_meanwhile)(void *context);

typedef struct fo_exec_desc {
    fo_endpoint *endpoint;
    const fo_program *program; /* borrowed; outlives the executor */
    uint32_t tag;              /* channel c uses tag + c */
    int64_t row_bytes[FO_BUFFER_ROLES];
    int64_t
        tile_rows[2]; /* rows of one call, by slot; ADD and COPY use the program's stream_rows */
    fo_exec_compute compute;
    fo_exec_prepare prepare;     /* NULL: nothing */
    fo_exec_meanwhile meanwhile; /* NULL: nothing */
    const char *name;            /* operation, for messages; borrowed */
    fo_background *background;   /* of the rank; NULL: none, and nothing can be started. Borrowed */
    fo_recorder *const *recorder; /* where there is a recorder at times; NULL: never. Borrowed */
} fo_exec_desc;

typedef struct fo_exec fo_exec;

/* Sums since creation or reset, nanoseconds. */
typedef struct fo_exec_stats {
    int64_t runs, total_ns, compute_ns, exposed_ns, sent_bytes, tasks;
} fo_exec_stats;

fo_status fo_exec_create(const fo_exec_desc *desc, fo_exec **exec);
void fo_exec_destroy(fo_exec *exec);

/* Runs the program once. external[role]: memory of SHARD, FULL and OUTPUT (others are the executor's).
 * FO_PEER, FO_TIMEOUT: outputs are not to be used; the group has been failed. */
fo_status fo_exec_run(fo_exec *exec, void *const external[FO_BUFFER_ROLES], void *context);

/* Begins a run and returns; the same contract as fo_exec_run otherwise. `context` stays in place until
 * fo_exec_finish, which returns FO_OK when nothing was started. */
fo_status fo_exec_start(fo_exec *exec, void *const external[FO_BUFFER_ROLES], void *context);
fo_status fo_exec_finish(fo_exec *exec);
bool fo_exec_started(const fo_exec *exec);

/* Moves messages, of what is in the background too; called from inside a long tile. What fails is the tile's. */
void fo_exec_look(fo_exec *exec);

void fo_exec_stats_get(const fo_exec *exec, fo_exec_stats *stats);
void fo_exec_stats_reset(fo_exec *exec);
/* Nanoseconds waited for task `task` (a SEND or RECV) since the last reset. */
int64_t fo_exec_waited_ns(const fo_exec *exec, int32_t task);

#endif
