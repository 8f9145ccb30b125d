/* What computing takes on a device, taken apart as operations need it. */
#ifndef FO_SIM_COST_H
#define FO_SIM_COST_H

#include "sim/machine.h"

/* Seconds = launch_s + flops * flop_s, and no less than floor_s. */
typedef struct fo_sim_cost {
    double launch_s, flop_s, floor_s;
} fo_sim_cost;

/* Of a product or weight gradient of a slice. */
fo_sim_cost fo_sim_cost_of_product(const fo_sim_device *device, fo_sim_work work, fo_dtype dtype,
                                   int threads, double rows, double k, double n,
                                   bool messages_in_flight);
/* Of attention of `slice_rows` queries of sequences of `context` tokens; FLOPs follow from the keys they meet. */
fo_sim_cost fo_sim_cost_of_attention(const fo_sim_device *device, fo_sim_work work, fo_dtype dtype,
                                     int threads, double slice_rows, double context, double heads,
                                     double head_dim);
/* FLOPs of a whole product, or of attention of one sequence (fo_sim_work). */
double fo_sim_cost_flops(fo_sim_work work, double rows, double k, double n);
/* The same for `keys` keys met in all by queries of so many features: two products forward, five backward. */
double fo_sim_cost_attention_flops(fo_sim_work work, double keys, double width);

#endif
