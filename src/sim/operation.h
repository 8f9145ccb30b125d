/* One operation (plan.h) of a group of ranks on a machine: its programs are built as a plan builds them, run by the
 * engine, and taken apart. Pure functions; any thread. */
#ifndef FO_SIM_OPERATION_H
#define FO_SIM_OPERATION_H

#include "flashoverlap/plan.h"
#include "sim/engine.h"

typedef struct fo_sim_operation {
    fo_plan_desc desc; /* of the rank that has most; desc.overlap NULL: flash */
    int ranks, nodes;  /* nodes 0: as machine->network says, or 1 */
    int threads;       /* of a rank */
    bool packed;       /* the weight is packed already (w_version) */
    bool
        exact; /* every rank is simulated; else equal ones by one (about as fo_sim_engine_period says) */
    const double *speed, *start_s; /* [ranks], NULL: equal */
    int64_t tile_rows,
        wgrad_rows; /* 0: the device's. As plans choose them (fo_sim_operation_tiles) */
    fo_sim_watch watch;
    void *watcher;
} fo_sim_operation;

/* Rows of a tile and of a block of a weight gradient, as plans choose them on this device. */
void fo_sim_operation_tiles(const fo_sim_device *device, const fo_plan_desc *desc,
                            int64_t *tile_rows, int64_t *wgrad_rows);

/* Where the time above the bound goes, seconds on the slowest rank; the parts add up to total - bound. Each is what
 * the time falls by when that effect is taken away, one after another in this order (less what the bound falls by). */
typedef struct fo_sim_losses {
    double imbalance;  /* ranks of different speed, start or work */
    double contention; /* computing slowed down by messages in flight, processor time of moving */
    double overhead;   /* of tasks, messages and waking up */
    double latency;    /* of links */
    double slicing;    /* thin slices compute less efficiently; packing, additions */
    double tail;       /* what remains: waiting for the first and the last messages, or between */
} fo_sim_losses;

typedef struct fo_sim_report {
    double total_s;    /* T */
    double compute_s;  /* C: the unsliced local computation alone */
    double transfer_s; /* X: what the busiest port needs, latency once */
    double bound_s;    /* no schedule beats it (bound.h), were all ranks as fast as stated */
    double exposed_s;  /* of the slowest rank */
    double sent_bytes; /* of the rank that sends most */
    int slices;        /* computations of a rank */
    int64_t events;
    fo_sim_losses losses; /* by fo_sim_operation_explain */
} fo_sim_report;

/* FO_INVALID: sizes, strategies that can't be, as fo_plan_create says them. */
fo_status fo_sim_operation_run(const fo_sim_machine *machine, const fo_sim_operation *operation,
                               fo_sim_report *report);
/* The same and losses: seven simulations instead of one. */
fo_status fo_sim_operation_explain(const fo_sim_machine *machine, const fo_sim_operation *operation,
                                   fo_sim_report *report);
/* The closed form of its strategy (docs/simulator.md): total_s and the rest in microseconds of work, for search.
 * Within 1 % of the simulation where it applies: equal ranks, one level of network, no stragglers. FO_UNSUPPORTED
 * where it does not apply. */
fo_status fo_sim_operation_closed(const fo_sim_machine *machine, const fo_sim_operation *operation,
                                  fo_sim_report *report);

/* The best of `count` strategies (NULL, 0: none, slice:2, slice:4, slice:8, ring, flash, flash:1 (where flash cuts), flash:2, flash:4, direct,
 * direct:2; hier where there are machines; those that change the bits, direct with a bf16 wire, only with
 * any_bits). "none" unless another one is faster by more than `margin` (0.01: 1 %). *chosen, all[i].total_s in the
 * order given; all may be NULL. */
typedef struct fo_sim_choice {
    char overlap[32];
    double total_s, none_s;
    char why[160]; /* one sentence: "flash: 3.1 ms, none 4.4 ms; ..." or "do not overlap: ..." */
} fo_sim_choice;
fo_status fo_sim_operation_choose(const fo_sim_machine *machine, const fo_sim_operation *operation,
                                  const char *const *overlaps, int count, bool any_bits,
                                  double margin, fo_sim_choice *choice, double *all_total_s);

/* ---- costs (cost.c) ---- */
/* Seconds of a product, or of attention, of a whole slice on a rank of `threads` threads. */
double fo_sim_cost_product(const fo_sim_device *device, fo_sim_work work, fo_dtype dtype,
                           int threads, double rows, double k, double n, bool messages_in_flight);
/* Seconds of a pass that reads and writes `bytes` bytes. */
double fo_sim_cost_pass(const fo_sim_device *device, double bytes);

#endif
