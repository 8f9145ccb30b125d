/* Closed forms: what a program takes, slice by slice instead of message by message. Derived in docs/simulator.md. */
#ifndef FO_SIM_CLOSED_H
#define FO_SIM_CLOSED_H

#include "sim/engine.h"

/* Of equal ranks: desc->period 1, and desc->programs[0] of rank 0. run->total_s, slowest, worst and max_exposed_s are
 * filled, events is 0. FO_UNSUPPORTED (with a sentence) where the time is not known to 1 %; the rest as
 * fo_sim_engine_run. */
fo_status fo_sim_closed_run(const fo_sim_engine_desc *desc, fo_sim_run *run);

#endif
