/* Schedules: overlap strategies as data. This header is what tools need to name a strategy, verify it
 * and print it; the program itself is internal (src/schedule/program.h). Pure functions, any thread. */
#ifndef FLASHOVERLAP_SCHEDULE_H
#define FLASHOVERLAP_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "flashoverlap/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The shapes of communication and computation that are scheduled together.
 * GATHER:   all-gather -> compute                         (column-parallel forward)
 * REDUCE:   compute -> reduce-scatter                     (row-parallel forward)
 * GATHER2:  all-gather -> dgrad and wgrad                 (row-parallel backward)
 * JOINT:    dgrad -> reduce-scatter, all-gather -> wgrad  (column-parallel backward)
 * WGRAD:    all-gather -> wgrad                           (the second half of JOINT alone)
 * BLOCK:    all-gather -> compute -> compute -> reduce-scatter (a whole MLP) */
typedef enum fo_pattern {
    FO_PATTERN_GATHER,
    FO_PATTERN_REDUCE,
    FO_PATTERN_GATHER2,
    FO_PATTERN_JOINT,
    FO_PATTERN_WGRAD,
    FO_PATTERN_BLOCK
} fo_pattern;

typedef enum fo_strategy_kind {
    FO_STRATEGY_NONE, /* the whole computation, the whole collective */
    FO_STRATEGY_SLICE, /* parts: row chunks; chunk i's collective behind another chunk's computation */
    FO_STRATEGY_RING,  /* ring steps with a barrier between steps */
    FO_STRATEGY_FLASH, /* ring, streamed, no barrier, fused addition, own slice first or last */
    FO_STRATEGY_DIRECT, /* flash in direct form: every slice in one hop */
    FO_STRATEGY_HIER, /* an outer ring over machines whose steps are inner rings over a machine's ranks */
    FO_STRATEGY_LIBRARY /* none (parts 0) or slice:parts with the transport library's own collectives: no program */
} fo_strategy_kind;

typedef struct fo_strategy {
    fo_strategy_kind kind;
    int parts; /* k of slice:k, m of flash:m and direct:m; 0: chosen from the shape */
} fo_strategy;

/* Parses "none", "slice:4", "ring", "flash", "flash:2", "direct", "direct:2". FO_INVALID names the
 * word found and those known. */
fo_status fo_strategy_parse(const char *text, fo_strategy *strategy);
/* The inverse; writes at most size bytes, always terminated. */
void fo_strategy_print(fo_strategy strategy, char *text, size_t size);

typedef struct fo_schedule_desc {
    fo_pattern pattern;
    fo_strategy strategy;
    int ranks;
    int nodes;           /* machines, ranks / nodes on each in rank order; 0: 1 */
    int64_t rows;        /* M */
    int64_t quantum;     /* sub-slice boundaries inside a shard are multiples of this; >= 1 */
    int64_t stream_rows; /* rows of one message; >= 1 */
} fo_schedule_desc;

/* What the verifier found. */
typedef struct fo_verdict {
    bool ok;
    char text[256];   /* one sentence: what holds, or the first rule broken, with rank and task */
    int64_t tasks;    /* over all ranks */
    int64_t messages; /* SEND tasks over all ranks */
    int64_t
        staging_rows; /* largest over ranks: rows of GATHERED + STAGING + PARTIAL + ACC buffers */
    int max_sent_rows_rank; /* the rank that sends most */
    int64_t max_sent_rows;  /* rows it sends */
} fo_verdict;

/* Builds every rank's program, verifies them together and prints, to `out`, a step table a rank
 * (computes, sends, receives, adds per step) and the verdict. FO_SCHEDULE when the verdict is bad. */
fo_status fo_schedule_print(const fo_schedule_desc *desc, FILE *out);
/* The same as JSON, one object. */
fo_status fo_schedule_print_json(const fo_schedule_desc *desc, FILE *out);

#ifdef __cplusplus
}
#endif
#endif
