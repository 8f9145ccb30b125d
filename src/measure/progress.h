/* One line on a terminal that says how far a run is; nothing for short runs. */
#ifndef FO_MEASURE_PROGRESS_H
#define FO_MEASURE_PROGRESS_H

#include "measure/result.h"

typedef struct fo_measure_progress {
    const fo_measure_bench *bench; /* NULL: this rank says nothing */
    int point;
    int64_t begin_ns, shown_ns;
} fo_measure_progress;

void fo_measure_progress_begin(fo_measure_progress *progress, const fo_measure_bench *bench,
                               int point);
/* `done` of `all` rounds of this point. */
void fo_measure_progress_show(fo_measure_progress *progress, int done, int all);
/* Clears the line. */
void fo_measure_progress_end(fo_measure_progress *progress);

#endif
