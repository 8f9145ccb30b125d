/* Results of a benchmark: written by rank 0 of every point's group into memory shared with the caller (in a job by
 * every rank, the same, into its own), printed by the caller, in a job by the first one. Plain data, no pointers. */
#ifndef FO_MEASURE_RESULT_H
#define FO_MEASURE_RESULT_H

#include "flashoverlap/trace.h"
#include "measure/spelling.h"
#include "measure/subject.h"
#include "train/train.h"

/* One strategy at one point. Milliseconds; NaN: not measured or not defined. */
typedef struct fo_measure_row {
    int samples; /* 0: not measured, and note says why */
    double t_ms, low_ms, high_ms;
    double ect_ms, hidden_pct, exposed_ms, gap_pct, faster_pct;
    double predicted_ms, error_pct; /* 100 (predicted / T - 1) */
    double predicted_exposed_ms;
    char taken[64]; /* by strategy auto; "" */
    int bits; /* 1: equal to the first measured strategy's, 0: they differ, -1: not compared */
    char note[480];
} fo_measure_row;

typedef struct fo_measure_result {
    fo_measure_point point;
    char label[40];    /* "16 x 512"; "" when there is one point only */
    char note[480];    /* why nothing of this point was measured; "" */
    bool entered;      /* the group was started */
    bool interrupted;  /* during this point */
    bool failed;       /* it could be measured, but a rank died or a wait ended without a message */
    int measured;      /* rows with samples */
    double compute_ms; /* the unsliced computation alone */
    double predicted_compute_ms;
    double bound_ms;
    double wire_bytes; /* of the rank that sends most */
    fo_link link;      /* that the figures belong to */
    fo_device device;
    int threads;
    bool crowded; /* ranks take turns on cores, which predictions do not know */
    char transport[16], kernel[16];
    char hint[256];       /* what the launcher should be told; "" */
    char hosts[480];      /* how hosts differ; "" */
    char file_error[480]; /* rank 0 could not write a file; "" */
    fo_measure_row rows[FO_MEASURE_STRATEGIES];
} fo_measure_result;

/* The whole run: read by all, but results, which rank 0 writes. */
typedef struct fo_measure_bench {
    const fo_bench_options *options;
    const fo_measure_family *family;
    FILE *out;
    fo_schedule_spelled strategies[FO_MEASURE_STRATEGIES];
    int strategy_count;
    fo_measure_point points[FO_MEASURE_POINTS];
    int point_count;
    double work[FO_MEASURE_POINTS]; /* FLOPs of each: how the time left is divided */
    fo_device device;               /* flops_per_s 0 and whole_s 0: kernels compute */
    double whole_s; /* the device computes the whole unsliced computation in this time */
    fo_measure_result *results; /* [point_count], shared */
    bool interrupted;
    bool killed; /* by a second signal */
    bool ended;  /* the job, whose ranks can't be started again, has failed */
    fo_train_fingerprint fingerprint;
} fo_measure_bench;

/* Whether computation is emulated. */
bool fo_measure_bench_emulates(const fo_measure_bench *bench);

/* bench.c: main memory of the machine for `ranks` ranks on it; what the group may use of it when that was limited.
 * FO_NO_MEMORY. */
fo_status fo_measure_bench_memory(const fo_measure_bench *bench, int point, int ranks);

/* ---- runner.c ---------------------------------------------------------------------------------------- */

/* Runs one point in a group of its own; results[point] says what came of it. FO_INTERRUPTED: what was measured
 * is in the result. FO_INVALID: the group can't be started at all. Else FO_OK. */
fo_status fo_measure_runner_point(fo_measure_bench *bench, int point);

/* The options of the group of a point. */
fo_group_options fo_measure_runner_group(const fo_measure_bench *bench, int point);

/* A rank's subjects at one point. */
typedef struct fo_measure_rank {
    const fo_measure_bench *bench;
    int point;
    fo_group *group;
    fo_measure_setup setup;
    void *family;
    void *subjects[FO_MEASURE_STRATEGIES]; /* NULL: could not be made */
    void *reference; /* families without execute_local: `none`, run without a link */
    char notes[FO_MEASURE_STRATEGIES][480];
} fo_measure_rank;

/* Collective. Makes everything; a strategy that can't be made is left out, with a note. Not FO_OK: this point
 * can't be measured. Close it in any case. */
fo_status fo_measure_rank_open(const fo_measure_bench *bench, int point, fo_group *group,
                               fo_measure_rank *rank);
void fo_measure_rank_close(fo_measure_rank *rank);
/* The first subject there is; at least one is. */
int fo_measure_rank_first(const fo_measure_rank *rank);

/* ---- print.c ----------------------------------------------------------------------------------------- */

/* Text is printed as points are finished; JSON and CSV at the end. */
void fo_measure_print_head(const fo_measure_bench *bench);
void fo_measure_print_point(const fo_measure_bench *bench, int point);
void fo_measure_print_end(const fo_measure_bench *bench);
/* "mlp backward", "row forward", "step". */
void fo_measure_print_title(const fo_measure_bench *bench, char *text, size_t size);
/* Sizes and types, one line. */
void fo_measure_print_sizes(const fo_measure_bench *bench, char *text, size_t size);
/* How the link of a point is, one line. */
void fo_measure_print_link(const fo_measure_result *result, char *text, size_t size);

/* ---- report.c ---------------------------------------------------------------------------------------- */

/* FO_IO: a path that can't be written. */
fo_status fo_measure_report_check(const fo_bench_options *options);
/* Traces one execution of every strategy at the first measured point and writes the files asked for. */
fo_status fo_measure_report_write(fo_measure_bench *bench);

#endif
