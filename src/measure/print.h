/* The forms of output for machines. */
#ifndef FO_MEASURE_PRINT_H
#define FO_MEASURE_PRINT_H

#include "measure/result.h"

/* An array of objects, one a strategy and point, each on a line of its own. */
void fo_measure_print_json(const fo_measure_bench *bench);
/* The same keys as a header line, then a line each. Nothing between two commas is null. */
void fo_measure_print_csv(const fo_measure_bench *bench);

#endif
