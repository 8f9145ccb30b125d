/* Simulating operations: what the files simulate*.c share. */
#ifndef FO_PLANNER_SIMULATE_H
#define FO_PLANNER_SIMULATE_H

#include "flashoverlap/simulate.h"
#include "flashoverlap/trace.h"
#include "planner/simulate_links.h"
#include "planner/timeline.h"
#include "schedule/spelling.h"
#include "sim/operation.h"

enum { FO_PLANNER_STRATEGIES = 16, FO_PLANNER_PARTS = 3 };

/* ---- simulate_subject.c: what is simulated --------------------------------------------------------- */

typedef struct fo_planner_subject {
    const char *name;
    const char *about, *about_backward;
    bool has_sequences;
    unsigned forms, forms_backward; /* bit fo_schedule_form, beside the whole */
} fo_planner_subject;

/* NULL when unknown. */
const fo_planner_subject *fo_planner_simulate_subject_find(const char *name);
/* FO_INVALID: a size that can't be. */
fo_status fo_planner_simulate_subject_check(const fo_simulate_options *options,
                                            const fo_planner_subject *subject);
/* Tokens of the group. */
int64_t fo_planner_simulate_subject_rows(const fo_simulate_options *options);
/* Hidden features of all ranks. */
int64_t fo_planner_simulate_subject_features(const fo_simulate_options *options,
                                             const fo_planner_subject *subject);
/* The operations that follow each other, of the rank that has most; returns how many. `overlap` stays the caller's. */
int fo_planner_simulate_subject_operations(const fo_simulate_options *options,
                                           const fo_planner_subject *subject, fo_schedule_form form,
                                           const char *overlap,
                                           fo_plan_desc descs[FO_PLANNER_PARTS]);

/* ---- simulate.c ------------------------------------------------------------------------------------- */

typedef struct fo_planner_row {
    char note[480];                                /* why it could not be simulated; "" */
    char chosen[96];                               /* "auto": what was taken; "" */
    fo_sim_report report;                          /* of its operations together */
    double ect_s, hidden_pct, gap_pct, faster_pct; /* NaN: not defined */
    fo_planner_timeline *timeline;                 /* NULL: not asked for */
} fo_planner_row;

typedef struct fo_planner_simulation {
    const fo_simulate_options *options;
    FILE *out;
    const fo_planner_subject *subject;
    fo_sim_machine machine; /* as it is for these ranks: --link, --outer and --nodes are in it */
    int nodes;
    int64_t rows;
    double *speed; /* [ranks]; NULL: equal */
    fo_schedule_spelled strategies[FO_PLANNER_STRATEGIES];
    fo_planner_row results[FO_PLANNER_STRATEGIES];
    int count;
    fo_planner_row none; /* `none` in whole form, whether it is listed or not */
    int best;            /* the fastest, -1: none could be simulated */
    int overlapping; /* the fastest in which something moves while a rank computes, -1: none does */
    bool pays;       /* that one is faster than `none` by more than a hundredth */
} fo_planner_simulation;

/* The operations of a strategy; overlaps hold what "auto" took. */
typedef struct fo_planner_operations {
    fo_plan_desc descs[FO_PLANNER_PARTS];
    char overlaps[FO_PLANNER_PARTS][32];
    int count;
} fo_planner_operations;
fo_status fo_planner_simulate_operations(const fo_planner_simulation *s,
                                         const fo_schedule_spelled *strategy,
                                         fo_planner_operations *operations);
/* One of them as the simulator takes it. */
fo_sim_operation fo_planner_simulate_operation(const fo_planner_simulation *s,
                                               const fo_plan_desc *desc);

/* ---- simulate_overlap.c ----------------------------------------------------------------------------- */

/* Finds s->overlapping, when all rows are there. */
fo_status fo_planner_simulate_overlap(fo_planner_simulation *s, const fo_schedule_spelled *none);

/* ---- simulate_machine.c ----------------------------------------------------------------------------- */

/* Reads the profile and puts links and machines in place. FO_INVALID: what it does not say and nobody else does. */
fo_status fo_planner_simulate_machine(const fo_simulate_options *options, fo_sim_machine *machine,
                                      int *nodes);

/* ---- simulate_print.c ------------------------------------------------------------------------------- */

void fo_planner_simulate_print(const fo_planner_simulation *s);
void fo_planner_simulate_title(const fo_planner_simulation *s, char *text, size_t size);
void fo_planner_simulate_sizes(const fo_planner_simulation *s, char *text, size_t size);
/* Whether to overlap, and how: one sentence. */
void fo_planner_simulate_verdict(const fo_planner_simulation *s, char *text, size_t size);

/* ---- simulate_report.c, simulate_chakra.c ----------------------------------------------------------- */

/* The trace and the page asked for. */
fo_status fo_planner_simulate_report(const fo_planner_simulation *s);
/* Whether files can be made in the folder, for so many ranks; makes it where it is missing. FO_INVALID, FO_IO. */
fo_status fo_planner_simulate_chakra_check(const fo_simulate_options *options);
fo_status fo_planner_simulate_chakra(const fo_planner_simulation *s);

#endif
