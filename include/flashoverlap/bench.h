/* Measuring an operator, a layer or a training step under several strategies, side by side, by the
 * definitions of docs/metrics.md.
 *
 * subject     computes                                            forms of a strategy X
 * row         y = reduce_scatter(x . w^T)                         X
 * column      y = all_gather(x) . w^T                             X; backward: X+apart
 * mlp         both, with GELU between                             X (one program), X+apart (two or three)
 * attention   attention, then its row-parallel projection         X (by queries), X+row (attention first)
 * layer       one transformer layer, forward and backward         X
 * step        a training step: forward, backward, sums, AdamW     X */
#ifndef FLASHOVERLAP_BENCH_H
#define FLASHOVERLAP_BENCH_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "flashoverlap/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum fo_bench_format { FO_BENCH_TEXT, FO_BENCH_JSON, FO_BENCH_CSV } fo_bench_format;

typedef struct fo_bench_options {
    const char *subject; /* of the table above */
    bool backward;       /* of row, column, mlp, attention: the backward pass */
    /* sizes */
    int64_t rows;           /* tokens of the group; 0: batch * context */
    int64_t batch, context; /* sequences, and tokens of each */
    const char *sweep;      /* "16x512,8x1024": a group of rows of the table for each; NULL: one */
    int64_t dim, ffn;       /* ffn 0: 2 dim (row, column), 4 dim (mlp); layer, step: always 4 dim */
    int64_t heads, layers, vocabulary;
    fo_dtype dtype, wire;
    const char *overlap; /* comma-separated strategies */
    const char *order;   /* attention: "straight", "balanced"; NULL: straight when shards are whole
                            sequences */
    int repeat;          /* timed executions of each, interleaved */
    /* the link, beside group.link: at most one of these is set */
    double link_ratio; /* > 0: the transfer takes this part of the measured computation */
    double transfer_s; /* > 0: the transfer takes this time */
    const char
        *emulate; /* a device as fo_device_parse reads it, or the time of the whole computation
                            ("78.5ms"); NULL: kernels compute */
    /* output */
    fo_bench_format format;
    bool color;
    FILE *progress;      /* where a long run says how long it will take; NULL: nowhere */
    const char *trace;   /* file for the timelines of all strategies at the first point; NULL */
    const char *report;  /* file for an HTML page; NULL */
    const char *command; /* the command line, for the report; NULL: unknown */
    fo_group_options group;
} fo_bench_options;

void fo_bench_defaults(fo_bench_options *options);

typedef struct fo_bench_result {
    int points, measured; /* of the sweep; those with at least one measured strategy */
    char note[512];       /* why the first point that was not measured was not, "" */
} fo_bench_result;

/* In a job all processes call it; the first one prints and writes, all get the result.
 * Starts a group for every point, measures, prints the tables (or JSON, or CSV) to out. What can't be done
 * or fails at one point is a row that says why; the others run. FO_INVALID: options that make no sense
 * anywhere. FO_INTERRUPTED: what was measured until then was printed, and the files were written. FO_IO:
 * a file can't be written; asked before anything runs. result may be NULL. */
fo_status fo_bench_run(const fo_bench_options *options, FILE *out, fo_bench_result *result);

#ifdef __cplusplus
}
#endif
#endif
