/* Lists people type: strategies, points of a sweep. */
#ifndef FO_MEASURE_SPELLING_H
#define FO_MEASURE_SPELLING_H

#include "measure/subject.h"

enum { FO_MEASURE_STRATEGIES = 16, FO_MEASURE_POINTS = 64 };

/* "none,slice:4,flash,flash+apart" -> at most FO_MEASURE_STRATEGIES; *count of them. FO_INVALID: a word that
 * is no strategy, or a form that this subject does not have. */
fo_status fo_measure_spelling_strategies(const char *list, const fo_measure_family *family,
                                         bool backward, fo_schedule_spelled *strategies,
                                         int *count);
/* Which order a strategy adds the ranks' contributions in: those of the same number give the same bits; -1: an order
 * of the transport library's own, whose bits are compared with nobody's. */
int fo_measure_spelling_sums(const fo_schedule_spelled *strategy);
/* "16x512,8x1024" -> at most FO_MEASURE_POINTS of batch x context. FO_INVALID. */
fo_status fo_measure_spelling_sweep(const char *list, fo_measure_point *points, int *count);

#endif
