/* What travels between tensor-parallel groups: over which links, how long. Ranks are numbered tp innermost, then dp,
 * then pp, and machines take them in that order. Pure functions; any thread. */
#ifndef FO_PLANNER_LINKS_H
#define FO_PLANNER_LINKS_H

#include "planner/split.h"
#include "sim/machine.h"

/* Between a rank and the same rank of the next replica; all ranks at once. */
typedef struct fo_planner_link {
    double bytes_per_s, latency_s; /* bytes_per_s 0: takes no time */
    const fo_sim_curve *efficiency;
    bool between_machines;
} fo_planner_link;

fo_planner_link fo_planner_links_replicas(const fo_sim_machine *machine,
                                          const fo_planner_split *split);
/* From stage to the next one; the last one's: to the first. */
fo_planner_link fo_planner_links_stage(const fo_sim_machine *machine, const fo_planner_split *split,
                                       int stage);

/* A message. */
double fo_planner_links_message_s(const fo_planner_link *link, double bytes);
/* A reduce-scatter or an all-gather of `bytes` over a ring of `ranks`. */
double fo_planner_links_ring_s(const fo_planner_link *link, int ranks, double bytes);

#endif
