/* The report: one self-contained HTML page with the figures of a comparison. */
#ifndef FO_TRACE_PAGE_H
#define FO_TRACE_PAGE_H

#include <stdbool.h>

#include "flashoverlap/trace.h"

/* One strategy at one point of a sweep. Times in milliseconds; NAN: not measured or not defined. The
 * figures are those of docs/metrics.md. */
typedef struct fo_page_row {
    const char *point;                /* "16 x 512"; NULL when there is one point only */
    const char *overlap;              /* "flash" */
    double t_ms, t_low_ms, t_high_ms; /* median; 10th and 90th percentile */
    double compute_ms;                /* the unsliced computation alone, of this point */
    double ect_ms, hidden_pct, exposed_ms, bound_ms, gap_pct;
    int bits;            /* 1: equal to the first strategy's, 0: they differ, -1: not compared */
    const char *note;    /* why there are no figures; NULL */
    double predicted_ms; /* T as the simulator has it; 0: not known */
} fo_page_row;

/* Losses of one run, step by step. */
typedef struct fo_page_curve {
    const char *overlap;
    const double *loss;
    int64_t count;
} fo_page_curve;

typedef struct fo_page_fact {
    const char *name, *value; /* "processor", "2 x AMD EPYC" */
} fo_page_fact;

typedef struct fo_page {
    const char *title;    /* "mlp forward, 4 ranks" */
    const char *subtitle; /* sizes and types, one line */
    const char *command;  /* that makes it again; NULL: unknown */
    const char
        *how; /* how the figures were obtained, a sentence or two: computation and link, measured or
                             emulated */
    bool emulated;    /* computation or link: the page says so beside the headline */
    bool simulated;   /* nothing was run: the page says so there, and has no spread and no bits */
    bool interrupted; /* the run ended early: figures are of what was measured until then */
    const fo_page_fact *facts; /* the machine and the settings */
    int fact_count;
    const fo_page_row *rows;
    int row_count;
    const fo_timeline_part *timelines; /* one traced run of each strategy, of the first point */
    int timeline_count;
    const fo_page_curve *curves;
    int curve_count;
} fo_page;

/* fo_timeline_write with a note behind every label: "flash, emulated link". */
fo_status fo_trace_timeline_write(const fo_timeline_part *parts, int count, const char *note,
                                  const char *path);

/* Whether both files can be made, and are two; either may be NULL. To be asked before a long run. FO_IO,
 * FO_INVALID. */
fo_status fo_trace_check_paths(const char *trace, const char *report);

/* Writes the page, beside and renamed: the file is complete or as it was. Strings are escaped. FO_IO with
 * the system's reason, FO_NO_MEMORY. */
fo_status fo_trace_page_write(const fo_page *page, const char *path);

#endif
