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
    FO_STRATEGY_RING,   /* ring steps with a barrier between steps */
    FO_STRATEGY_FLASH,  /* ring, streamed, no barrier, fused addition, own slice first or last */
    FO_STRATEGY_DIRECT, /* flash in direct form: every slice in one hop */
    FO_STRATEGY_HIER, /* an outer ring over machines whose steps are inner rings over a machine's ranks */
    FO_STRATEGY_HIER_NONE, /* the order of hier, nothing overlapped: what its bits are compared with */
    FO_STRATEGY_LIBRARY, /* none (parts 0) or slice:parts with the transport library's own collectives: no program */
    FO_STRATEGY_AUTO /* one of the others, chosen by the plan (plan.h): no program */
} fo_strategy_kind;

typedef struct fo_strategy {
    fo_strategy_kind kind;
    int parts; /* k of slice:k, m of flash:m, direct:m and hier:m; 0: chosen from the shape */
} fo_strategy;

/* Orders. Of N ranks in one ring, shard j is the sum j+1, j+2, ..., j of the ranks' contributions, from left
 * to right, and rank r's weight gradient takes the shards r, r-1, ... (mod N).
 *
 * hier and none/hier nest them (docs/hier.md). Rank k L + l is local number l of machine k, of K machines with L
 * ranks each. Shard (k, l) is the sum of the machines' sums k+1, k+2, ..., k (mod K), from left to right; a
 * machine's sum is that of its local numbers l+1, l+2, ..., l (mod L), from left to right. Every sum that travels
 * is rounded to the wire type; a machine's sum that is added where it was finished is not. Rank (k, l)'s weight
 * gradient takes the shards of machines k, k-1, ..., each in the order l, l-1, ...: the order in which they
 * arrive. So hier, hier:m and none/hier have the same bits, and with K = 1 or L = 1 those of the others. */

/* Parses "none", "slice:4", "ring", "flash", "flash:2", "direct", "direct:2", "hier", "hier:2", "none/hier",
 * "library", "library:4", "auto". FO_INVALID names the word found and those known. */
fo_status fo_strategy_parse(const char *text, fo_strategy *strategy);
/* The inverse; writes at most size bytes, always terminated. */
void fo_strategy_print(fo_strategy strategy, char *text, size_t size);

typedef struct fo_schedule_desc {
    fo_pattern pattern;
    fo_strategy strategy;
    int ranks;
    /* Machines, ranks / nodes on each in rank order; 0: 1. hier and none/hier are refused when that does
     * not divide; other strategies do not look at it. */
    int nodes;
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
