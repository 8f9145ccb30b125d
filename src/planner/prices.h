/* What operations take, asked once each: a table by shape, strategy and ranks that grows as it is used. One thread at
 * a time; everything else may differ between two questions. */
#ifndef FO_PLANNER_PRICES_H
#define FO_PLANNER_PRICES_H

#include "flashoverlap/planner.h"
#include "sim/operation.h"

typedef struct fo_planner_prices fo_planner_prices;

/* How to find a price. */
enum {
    FO_PLANNER_CLOSED = 1, /* by closed forms where there are any, for search; else by simulation */
    FO_PLANNER_COMPARE = 2, /* none_s and slice_s too */
    FO_PLANNER_EXPLAIN = 4  /* losses too */
};

typedef struct fo_planner_question {
    fo_plan_desc desc; /* overlap NULL: the best */
    bool
        async; /* COLUMN_BACKWARD as Megatron-LM does it (planner.h); `whole`: of unsharded activations */
    bool whole;
    int ranks;
    int slow_rank;     /* -1: none */
    double slow_speed; /* with slow_rank */
    unsigned how;
} fo_planner_question;

typedef struct fo_planner_price {
    double total_s, none_s, slice_s; /* none_s, slice_s: total_s unless asked to compare */
    double compute_s, transfer_s, bound_s, exposed_s;
    fo_step_losses losses;
    char overlap[32], why[160];
} fo_planner_price;

/* machine: borrowed, unchanged while the table lives. FO_NO_MEMORY. */
fo_status fo_planner_prices_create(const fo_sim_machine *machine, fo_planner_prices **prices);
void fo_planner_prices_free(fo_planner_prices *prices);
const fo_sim_machine *fo_planner_prices_machine(const fo_planner_prices *prices);

/* The price is the table's, valid until it is freed. FO_INVALID and others as fo_sim_operation_run. */
fo_status fo_planner_prices_ask(fo_planner_prices *prices, const fo_planner_question *question,
                                const fo_planner_price **price);
/* The strategies that are chosen from, by number: 0 is none. The name, NULL: there is no such number; whether it comes
 * into question for an operation; whether it is data slicing. */
enum { FO_PLANNER_CANDIDATES = 11 };
const char *fo_planner_prices_name(int number);
bool fo_planner_prices_allows(const fo_planner_prices *prices, const fo_planner_question *question,
                              int number);
bool fo_planner_prices_slices(int number);
/* Handled by the simulator so far; prices in the table. */
int64_t fo_planner_prices_events(const fo_planner_prices *prices);
int64_t fo_planner_prices_count(const fo_planner_prices *prices);

#endif
