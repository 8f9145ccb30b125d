/* Training, evaluation, sampling: the whole run behind one call each. */
#ifndef FLASHOVERLAP_TRAIN_H
#define FLASHOVERLAP_TRAIN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "flashoverlap/group.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fo_train_options {
    /* model */
    int64_t layers, heads, dim, context;
    int64_t vocabulary; /* 0: the data's; needed for token files */
    fo_dtype dtype, wire;
    float dropout;
    /* data */
    const char *data;   /* path */
    const char *format; /* "bytes", "char", "nanogpt", "llmc" */
    /* optimisation */
    int64_t batch;      /* sequences of the whole group in one micro-step */
    int64_t accumulate; /* micro-steps a step */
    int64_t steps, warmup;
    uint64_t seed;
    float lr, min_lr, clip, decay, beta1, beta2; /* clip 0: off */
    int64_t eval_every, eval_batches;            /* 0: never */
    /* files */
    const char *out;     /* checkpoint directory, NULL: none is written */
    const char *resume;  /* checkpoint directory or step folder */
    const char *log;     /* JSON lines, NULL: none */
    const char *trace;   /* fo_train_compare: file for the timelines of a step, NULL: none */
    const char *report;  /* fo_train_compare: file for an HTML page, NULL: none */
    const char *command; /* the command line, for the report; NULL: unknown */
    int64_t save_every;  /* steps; 0: only at the end */
    /* running */
    /* Tensor-parallel ranks of a replica, replicas; 0: what the other leaves, both 0: all ranks, one. */
    int tp, dp;
    const char *overlap;
    /* The file that `flashoverlap plan` wrote (search.h): tp, dp and the strategies of operations; the other sizes
     * have to be those it was made for. NULL: none. */
    const char *plan;
    double
        link_ratio; /* > 0: emulated link at which the transfer of the model's row-parallel layers
                           takes this part of their measured unsliced computation */
    bool quiet;     /* no progress on `progress` */
    bool color;
    FILE *progress; /* where people look; NULL: stdout */
    fo_group_options group;
} fo_train_options;

/* The defaults: a small GPT on bytes. */
void fo_train_defaults(fo_train_options *options);

/* What a run came to; values of the last step. */
typedef struct fo_train_result {
    int64_t step;
    double loss, val_loss;                         /* val_loss NaN when never evaluated */
    double step_ms, tokens_per_s, mfu, exposed_ms; /* medians over the steps after the first */
    int tp, dp;
    int64_t optimizer_bytes; /* of moments, on rank 0 */
    int slow_rank; /* the one that others waited for much longer than it waited; -1: none */
    char slow_host[64];
    int waited_by;      /* ranks that waited for it */
    double waited_s;    /* in all */
    double waited_part; /* of the run, mean of those that waited */
} fo_train_result;

/* Starts the group and trains. Options are checked before any rank starts, and by the ranks of a job that they were
 * given the same. In a job every process gets a result; rank 0's writes. result may be NULL. When a group failed, the
 * sentence says where to go on from.
 * FO_INTERRUPTED after SIGINT/SIGTERM, once the state is saved; FO_NUMERIC when the loss is not finite
 * (nothing is saved; the last checkpoint stays). */
fo_status fo_train_run(const fo_train_options *options, fo_train_result *result);

/* Trains the same steps under each strategy of the comma-separated list and prints the table of
 * docs/metrics.md: T and its spread, ECT, hidden %, exposed, faster %, whether losses are bitwise equal.
 * json: as a JSON array on out instead. Then writes options->trace and ->report, for which each strategy
 * takes one more step, traced; whether the files can be written is asked before anything runs.
 * FO_INTERRUPTED: the table and the files are of the steps taken until then. */
fo_status fo_train_compare(const fo_train_options *options, const char *strategies, bool json,
                           FILE *out);

typedef struct fo_sample_options {
    const char *checkpoint; /* directory or step folder */
    const char *prompt;     /* NULL: a newline */
    int64_t tokens;
    double temperature; /* 0: the most likely */
    int64_t top_k;      /* 0: all */
    uint64_t seed;
    fo_group_options group;
} fo_sample_options;

void fo_sample_defaults(fo_sample_options *options);
/* Writes the continuation to out as it is made. */
fo_status fo_sample_run(const fo_sample_options *options, FILE *out);

#ifdef __cplusplus
}
#endif
#endif
