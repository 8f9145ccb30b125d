/* A calibration: a list of cases, each sampled in turn, round after round, so that a machine that slows
 * down or warms up favours none. The list is made before the ranks start and lies in memory that all of
 * them share, or, by the ranks of a job, in each process; rank 0 writes the samples (in a job: every rank the same ones),
 * the launching process prints them. */
#ifndef FO_MEASURE_CALIBRATE_H
#define FO_MEASURE_CALIBRATE_H

#include "flashoverlap/calibrate.h"
#include "kernel/kernel.h"
#include "train/train.h"

enum {
    FO_MEASURE_CASES = 768,
    FO_MEASURE_SAMPLES = 64,         /* of a case, at most */
    FO_MEASURE_ATTENTION_WIDTH = 512 /* features of all heads */
};

typedef enum fo_measure_kind {
    FO_MEASURE_GEMM,           /* rows, k, n */
    FO_MEASURE_WGRAD,          /* rows, k (in), n (out) */
    FO_MEASURE_ATTENTION,      /* rows: the context of one sequence; k heads of n features */
    FO_MEASURE_ATTENTION_GRAD, /* likewise */
    FO_MEASURE_PACK,           /* k, n */
    FO_MEASURE_PASS,           /* n elements, name */
    FO_MEASURE_MESSAGE,        /* bytes, view, both */
    FO_MEASURE_PROCESSOR,      /* the processor's time in an exchange of copies of n bytes */
    FO_MEASURE_WAKE,           /* from a message's leaving until one who slept for it goes on */
    FO_MEASURE_TASK            /* name */
} fo_measure_kind;

typedef struct fo_measure_case {
    fo_measure_kind kind;
    const char *name;
    fo_dtype dtype;
    bool at_once; /* every rank does it; otherwise rank 0 alone (a message: and rank 1) */
    int threads;  /* of a rank */
    int64_t rows, k, n;
    bool view;           /* the receive hands out the sender's memory instead of copying */
    bool both;           /* both ways at once */
    double flops, bytes; /* of one call; a message: of each way */
    int calls;           /* a sample is the mean of so many; 0: not known yet */
    int samples;
    double seconds[FO_MEASURE_SAMPLES]; /* of a call; at_once: the slowest rank's */
} fo_measure_case;

typedef struct fo_measure_calibration {
    const fo_calibrate_options *options;
    double budget_s;   /* of the whole */
    int64_t most_rows; /* of all cases */
    int64_t most_width, most_weight, most_elements, most_bytes;
    bool interrupted; /* the user asked to stop */
    int64_t begin_ns;
    fo_train_fingerprint fingerprint;
    int count;
    fo_measure_case cases[FO_MEASURE_CASES];
} fo_measure_calibration;

/* calibrate_cases.c: fills the list. */
void fo_measure_calibrate_cases(fo_measure_calibration *c, const fo_kernel *kernel, int threads);

/* calibrate_rank.c: what a rank does; arg is the calibration. */
fo_status fo_measure_calibrate_rank(fo_group *group, void *arg);

/* calibrate_compute.c: what products, attention and passes work on, in one rank. */
typedef struct fo_measure_work fo_measure_work;
fo_status fo_measure_work_make(const fo_measure_calibration *c, const fo_kernel *kernel,
                               fo_measure_work **work);
void fo_measure_work_free(fo_measure_work *work);
/* One call of a case. */
fo_status fo_measure_work_call(fo_measure_work *work, const fo_measure_case *which);

/* calibrate_message.c: messages between ranks 0 and 1, and plans that do next to nothing. Collective. */
typedef struct fo_measure_wires fo_measure_wires;
fo_status fo_measure_wires_make(const fo_measure_calibration *c, fo_group *group,
                                fo_measure_wires **wires);
void fo_measure_wires_free(fo_measure_wires *wires);
/* Seconds of one of `calls` calls of a message or task. */
fo_status fo_measure_wires_sample(fo_measure_wires *wires, const fo_measure_case *which, int calls,
                                  double *seconds);

/* What the samples of a case say. */
typedef struct fo_measure_figure {
    double median_s, best_s;
    double spread_s; /* between the quartiles */
    const char
        *confidence; /* "high": 5 samples or more, spread up to 5 % of the median; "medium": 3 or
                               more, up to 20 %; "low" */
} fo_measure_figure;
fo_measure_figure fo_measure_calibrate_figure(const fo_measure_case *which);
/* The best rate of products under the same conditions: type, threads, ranks at once. */
double fo_measure_calibrate_peak(const fo_measure_calibration *c, const fo_measure_case *like);
/* The first of a kind that was sampled, of most ranks at once, as `like` says (type; name; n of messages); NULL. */
const fo_measure_case *fo_measure_calibrate_find(const fo_measure_calibration *c,
                                                 const fo_measure_case *like);
/* Ranks that work at the same time. */
int fo_measure_calibrate_at_once(const fo_measure_calibration *c, const fo_measure_case *which);

/* calibrate_json.c, calibrate_table.c: the results. */
void fo_measure_calibrate_json(const fo_measure_calibration *c, FILE *out);
void fo_measure_calibrate_table(const fo_measure_calibration *c, FILE *out);

#endif
