/* Closed forms: what a program takes, slice by slice instead of message by message. Derived in docs/simulator.md. */
#ifndef FO_SIM_CLOSED_H
#define FO_SIM_CLOSED_H

#include "sim/engine.h"

/* As fo_sim_engine_run, for equal ranks (period 1); run->events is 0, nobody watches. tile_s is asked for several tiles
 * at once and is additive. FO_UNSUPPORTED where ranks differ and where the time is not known to 1 %. */
fo_status fo_sim_closed_run(const fo_sim_engine_desc *desc, fo_sim_run *run, fo_sim_rank *per_rank);

#endif
