/* The program: what one rank does in one execution of an operation. PURE DATA: no pointer into memory
 * that travels, no request, no clock, no thread. The same object is verified, printed, simulated and
 * executed.
 *
 * Tasks are listed in issue order. There are two lanes. The compute lane (COMPUTE, ADD, COPY) runs in
 * list order, one task at a time. Communication tasks (SEND, RECV) start as soon as what they depend
 * on is done; those with the same peer, direction and channel are issued in list order, and the k-th
 * SEND from a to b on a channel meets the k-th RECV of b from a on it.
 *
 * A SEND or RECV of `rows` rows travels as messages of stream_rows rows (the last one shorter), cut
 * from its first row on: both ends cut alike. A dependency with mode ROWS lets the consumer work on
 * rows [a, b) as soon as the producer has finished rows [a, b) (global row numbers), message by
 * message, tile by tile; DONE waits for the whole task. A consumer that has ROWS on a task covers
 * rows of it only.
 *
 * The verifier assumes rendezvous and looks at both ways to receive. Copying: a SEND is done only after
 * its RECV was issued. In place: also every task of the receiver that reads what the RECV delivered must
 * be done (the receiver may be reading the sender's memory), and SPACE dependencies do not bind.
 */
#ifndef FO_SCHEDULE_PROGRAM_H
#define FO_SCHEDULE_PROGRAM_H

#include <stdint.h>

#include "flashoverlap/schedule.h"
#include "flashoverlap/status.h"

typedef enum fo_task_kind {
    FO_TASK_COMPUTE, /* out = kernel[slot](in) (+ add); out.buffer < 0: accumulates elsewhere (dw) */
    FO_TASK_SEND,    /* in -> peer */
    FO_TASK_RECV,    /* peer -> out */
    FO_TASK_ADD,     /* out = in + add, by rows, with conversion to out's type */
    FO_TASK_COPY     /* out = in, by rows, with conversion to out's type */
} fo_task_kind;

/* What a buffer is for. Its element type and width follow from the role; the operator binds them. */
typedef enum fo_buffer_role {
    FO_BUFFER_SHARD,    /* own shard of the gathered input; read only */
    FO_BUFFER_FULL,     /* local input, all M rows; read only */
    FO_BUFFER_GATHERED, /* staging of received input rows */
    FO_BUFFER_ACC,      /* local float32 partials or sums that do not travel */
    FO_BUFFER_PARTIAL,  /* partial sums to send, wire type */
    FO_BUFFER_STAGING,  /* received partial sums, wire type */
    FO_BUFFER_HIDDEN,   /* BLOCK: what is between the two computations, all M rows */
    FO_BUFFER_OUTPUT, /* the result: M rows (gather patterns) or the own shard (reduce patterns) */
    FO_BUFFER_ROLES
} fo_buffer_role;

typedef struct fo_buffer {
    fo_buffer_role role;
    int64_t rows;
} fo_buffer;

/* Rows of a buffer: `row` is the first row inside the buffer; the count is the task's `rows`. */
typedef struct fo_ref {
    int32_t buffer; /* index into program.buffers, -1: none */
    int64_t row;
} fo_ref;

/* SPACE: the staging rows a RECV writes must be free again. It binds only where receives copy: a view
 * writes nothing. (A forwarded view keeps its first sender waiting until the last rank has read it, so
 * in-place reading and the reuse of ring slots must not wait for each other.) */
typedef enum fo_dep_mode { FO_DEP_DONE, FO_DEP_ROWS, FO_DEP_SPACE } fo_dep_mode;

typedef struct fo_dep {
    int32_t task; /* index of an earlier task of this rank */
    fo_dep_mode mode;
} fo_dep;

typedef struct fo_task {
    fo_task_kind kind;
    int32_t
        slot; /* COMPUTE: 0 first computation (forward, dgrad), 1 second (wgrad; BLOCK: the second product) */
    int32_t channel; /* SEND, RECV: 0 gathered input, 1 partial sums */
    int32_t peer;    /* SEND, RECV; -1 otherwise */
    int32_t step;    /* step of the schedule, for people */
    int32_t shard;   /* shard j the rows belong to */
    int32_t sub;     /* sub-slice k of that shard */
    int64_t row;     /* first row, in the operation's M rows */
    int64_t rows;
    fo_ref in, add, out;
    int32_t dep_first, dep_count; /* into program.deps */
} fo_task;

typedef struct fo_program {
    int ranks, rank;
    int nodes; /* 1: sums and weight gradients in the order of one ring; else in the nested order of `nodes`
                  machines (schedule.h), ranks / nodes on each in rank order */
    int64_t rows;        /* M */
    int64_t stream_rows; /* rows of one message */
    fo_pattern pattern;
    fo_buffer *buffers;
    int32_t buffer_count;
    fo_task *tasks;
    int32_t task_count, task_capacity;
    fo_dep *deps;
    int32_t dep_count, dep_capacity;
} fo_program;

/* Builds rank `rank`'s program. Empty slices (rows == 0) produce no task. FO_INVALID with a sentence;
 * FO_NO_MEMORY. The caller frees it. */
fo_status fo_schedule_build(const fo_schedule_desc *desc, int rank, fo_program **program);
void fo_schedule_free(fo_program *program);

/* Checks the programs of all ranks together (programs[r] is rank r's). See fo_verdict for what is
 * checked. FO_SCHEDULE when one rule is broken: the verdict's text (and fo_last_error) name the rule,
 * rank and task. */
fo_status fo_schedule_verify(fo_program *const *programs, int ranks, fo_verdict *verdict);

/* First row, inside a shard of `rows` rows, of sub-slice k of m: boundaries are multiples of
 * `quantum` and as even as that allows; fo_schedule_sub_begin(rows, m, m, q) == rows. */
int64_t fo_schedule_sub_begin(int64_t rows, int m, int k, int64_t quantum);

#endif
