/* Helpers of this room. */
#ifndef FO_MEASURE_MEASURE_H
#define FO_MEASURE_MEASURE_H

#include "flashoverlap/group.h"

/* This rank's clock beside rank 0's. */
typedef struct fo_measure_clock {
    int64_t behind_ns; /* rank 0's clock minus this one's */
    int64_t trip_ns;   /* the longest there and back between any rank and rank 0 */
} fo_measure_clock;

/* Compares the clocks by messages where ranks are on several hosts; on one they share its clock. Collective. */
fo_status fo_measure_clock_compare(fo_group *group, fo_measure_clock *clock);
/* The same wherever ranks are. */
fo_status fo_measure_clock_ask(fo_group *group, fo_measure_clock *clock);

/* Meets the other ranks at a moment that is the same for all: *begin_ns, by this machine's clock. Returns then.
 * Collective. */
fo_status fo_measure_start(fo_group *group, const fo_measure_clock *clock, int64_t *begin_ns);

#endif
