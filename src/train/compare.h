/* Comparing strategies: what its files share. */
#ifndef FO_TRAIN_COMPARE_H
#define FO_TRAIN_COMPARE_H

#include "flashoverlap/trace.h"
#include "train/train.h"

enum { FO_TRAIN_STRATEGIES = 16 };

/* One way of taking the steps. Way 0 is the reference: strategy `none` over a link without cost. */
typedef struct fo_train_way {
    char overlap[32];
    fo_train_worker worker;
    double *t_ms, *exposed_ms; /* of each step, slowest rank */
    double *data_ms;           /* the part of exposed_ms between replicas */
    double *losses, *norms;
    double predicted_ms;   /* of a step's operators, one after another; NaN: not known */
    fo_timeline *timeline; /* of one more step; rank 0 only, NULL: none was asked for */
} fo_train_way;

/* Memory shared with the caller's process, written by rank 0. */
typedef struct fo_train_compared {
    int64_t steps; /* done under every strategy */
    bool interrupted;
    char file_error[1024]; /* a file could not be written; "" */
} fo_train_compared;

typedef struct fo_train_comparison {
    fo_train_job *job;
    FILE *out;
    bool json;
    int count; /* ways, with the reference */
    fo_train_way ways[FO_TRAIN_STRATEGIES + 1];
    fo_link link;
    int64_t steps; /* done under every strategy */
    bool interrupted;
    fo_train_compared *shared;
} fo_train_comparison;

/* One line of the table: medians, milliseconds; NaN: not defined. */
typedef struct fo_train_row {
    double t_ms, low_ms, high_ms; /* 10th and 90th percentile */
    double alone_ms;              /* the computation alone */
    double ect_ms, hidden_pct, exposed_ms, faster_pct;
    double data_exposed_ms,
        data_hidden_pct;            /* between replicas; hidden of what `none` exposes there */
    double predicted_ms, error_pct; /* 100 (predicted / T - 1) */
    bool equal;                     /* losses and norms have the bits of the first way's */
} fo_train_row;

/* rows[1 .. count - 1], from comparison->steps steps, at least 1. */
void fo_train_compare_rows(const fo_train_comparison *c, fo_train_row *rows);
void fo_train_compare_print(const fo_train_comparison *c, const fo_train_row *rows);
/* "emulated, 0.71 GB/s, 5.0 us: moving ..." */
void fo_train_compare_link(const fo_train_comparison *c, char *text, size_t size);

/* FO_IO: a path that can't be written. */
fo_status fo_train_compare_check_files(const fo_train_options *options);
/* On rank 0. FO_IO, FO_NO_MEMORY. */
fo_status fo_train_compare_write_files(const fo_train_comparison *c, const fo_train_row *rows);

#endif
