/* Timelines of simulated runs, in the form that measured ones have (flashoverlap/trace.h). */
#ifndef FO_PLANNER_TIMELINE_H
#define FO_PLANNER_TIMELINE_H

#include "flashoverlap/trace.h"
#include "planner/simulate_programs.h"

typedef struct fo_planner_timeline fo_planner_timeline;

/* NULL without memory. */
fo_planner_timeline *fo_planner_timeline_make(void);
void fo_planner_timeline_free(fo_planner_timeline *timeline);

/* What is watched from here on belongs to this operation, which begins at begin_s. `programs` outlives the
 * watching. */
fo_status fo_planner_timeline_operation(fo_planner_timeline *timeline, const char *name,
                                        fo_planner_programs *programs, double begin_s);
/* fo_sim_watch; the watcher is the timeline. */
void fo_planner_timeline_watch(void *timeline, const fo_sim_event *event);
/* After the last operation. FO_NO_MEMORY: events are missing. */
fo_status fo_planner_timeline_end(fo_planner_timeline *timeline, double end_s);
const fo_timeline *fo_planner_timeline_get(const fo_planner_timeline *timeline);

#endif
