/* Measuring one operator under several strategies, by the definitions of docs/metrics.md. */
#ifndef FLASHOVERLAP_BENCH_H
#define FLASHOVERLAP_BENCH_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "flashoverlap/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "row": [rows, ffn/N] . [ffn/N, dim] -> reduce-scatter. "column": all-gather -> [rows, dim] .
 * [dim, ffn/N]. With backward: the backward pass of that layer. */
typedef struct fo_bench_options {
    bool column;
    bool backward;
    int64_t rows, dim, ffn;
    fo_dtype dtype, wire;
    const char *overlap; /* comma-separated strategies */
    int repeat;          /* timed executions of each, interleaved */
    double link_ratio;   /* > 0: link so that the transfer takes this part of the computation */
    bool json;
    fo_group_options group;
} fo_bench_options;

void fo_bench_defaults(fo_bench_options *options);

typedef struct fo_bench_row {
    char overlap[32];
    double t_ms, ect_ms, hidden_pct, exposed_ms, bound_ms, gap_pct;
    bool bitwise_equal; /* the result has the same bits as that of the first strategy */
} fo_bench_row;

/* Starts the group, measures, prints a table (or JSON) to out. FO_INVALID for impossible sizes. */
fo_status fo_bench_run(const fo_bench_options *options, FILE *out);

#ifdef __cplusplus
}
#endif
#endif
