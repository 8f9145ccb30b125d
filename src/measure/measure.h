/* Helpers of this room. */
#ifndef FO_MEASURE_MEASURE_H
#define FO_MEASURE_MEASURE_H

#include "flashoverlap/group.h"

/* Meets the other ranks at a moment that is the same for all: *begin_ns, by the machine's clock. Returns then.
 * Collective. */
fo_status fo_measure_start(fo_group *group, int64_t *begin_ns);

#endif
