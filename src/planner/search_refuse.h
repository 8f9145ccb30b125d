/* Why the search has nothing to look at. */
#ifndef FO_PLANNER_SEARCH_REFUSE_H
#define FO_PLANNER_SEARCH_REFUSE_H

#include "flashoverlap/search.h"

/* What the search tries at most: ranks of a tp group where all are on one machine; chunks of a stage. */
enum { FO_PLANNER_MOST_TP = 16, FO_PLANNER_MOST_INTERLEAVE = 16 };

/* For options under which no way to split the ranks is possible: writes the sentence that says which of the sizes that
 * were given forbids it, and one that would do. `locals`: ranks of one machine, 0: all. Returns FO_INVALID. */
fo_status fo_planner_search_refuse(const fo_search_options *options, int locals);

#endif
