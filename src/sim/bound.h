/* What no schedule beats on a network. Derived in docs/simulator.md. Pure functions, any thread. */
#ifndef FO_SIM_BOUND_H
#define FO_SIM_BOUND_H

#include "schedule/program.h"
#include "sim/machine.h"

typedef struct fo_sim_bound_desc {
    const fo_schedule_desc
        *schedule; /* its strategy does not matter: pattern, ranks, rows; units are cut by
                                         quantum and stream_rows */
    const fo_sim_network *network;
    double gather_bytes, reduce_bytes; /* of a row that travels, of each kind the pattern has */
    int64_t tile_rows[2];              /* by slot */
    double compute_s; /* all of the computation, on the rank on which it takes longest */
    double row_s[2];  /* of a row, by slot: the least that it takes anywhere */
} fo_sim_bound_desc;

typedef struct fo_sim_bound {
    double transfer_s; /* X: what the busiest port needs, latency once; 0: nothing travels */
    double bound_s;    /* T of any schedule is no less */
} fo_sim_bound;

fo_sim_bound fo_sim_bound_of(const fo_sim_bound_desc *desc);

/* Rows of the smallest unit that shards are cut into, where cuts are at multiples of `unit`. */
int64_t fo_sim_bound_unit(int64_t rows, int ranks, int64_t unit);

#endif
