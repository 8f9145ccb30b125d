/* Links of simulated machines, for operations and for steps (simulate_machine.c). */
#ifndef FO_PLANNER_SIMULATE_LINKS_H
#define FO_PLANNER_SIMULATE_LINKS_H

#include "sim/machine.h"

/* Puts links in the place of the profile's. NULL: they stay. */
void fo_planner_simulate_links(fo_sim_network *network, const fo_link *link, const fo_link *outer);
/* "switch, 450.0 GB/s, 2.0 us; between machines 50.0 GB/s, 5.0 us". */
void fo_planner_simulate_network(const fo_sim_network *network, bool machines, char *text,
                                 size_t size);

#endif
