/* What a training step does on a rank, as lists of operations, local products and passes over memory: a layer forward,
 * again and backward, the embedding, the head. Pure functions; any thread. docs/planner.md counts the bytes. */
#ifndef FO_PLANNER_LAYER_H
#define FO_PLANNER_LAYER_H

#include "planner/split.h"
#include "sim/machine.h"
#include "flashoverlap/plan.h"

enum { FO_PLANNER_ITEMS = 32 };

typedef enum fo_planner_kind {
    FO_PLANNER_OPERATION, /* of the tp group */
    FO_PLANNER_PRODUCT, /* `batch` products of rows x k times k x n in one launch, no less than `bytes` take */
    FO_PLANNER_PASS /* reads and writes `bytes` */
} fo_planner_kind;

typedef struct fo_planner_item {
    const char *row; /* of the report that it belongs to */
    fo_planner_kind kind;
    fo_plan_desc desc;        /* OPERATION; overlap NULL: the best */
    bool plain;               /* OPERATION: can't be overlapped, whatever is asked */
    bool async, whole;        /* OPERATION: as in prices.h */
    fo_sim_work work;         /* PRODUCT */
    double batch, rows, k, n; /* PRODUCT */
    double bytes;
} fo_planner_item;

typedef struct fo_planner_items {
    int count;
    fo_planner_item item[FO_PLANNER_ITEMS];
} fo_planner_items;

typedef enum fo_planner_part {
    FO_PLANNER_FORWARD,
    FO_PLANNER_AGAIN, /* what recomputation does before the backward pass */
    FO_PLANNER_BACKWARD,
    FO_PLANNER_EMBEDDING_FORWARD,
    FO_PLANNER_EMBEDDING_BACKWARD,
    FO_PLANNER_HEAD_FORWARD,
    FO_PLANNER_HEAD_BACKWARD,
    FO_PLANNER_PARTS
} fo_planner_part;

/* Of one micro-batch (and one layer). device: what its kernels do besides products follows from it. */
void fo_planner_layer_items(const fo_planner_split *split, const fo_sim_device *device,
                            fo_planner_part part, fo_planner_items *items);
/* Bytes that the optimizer reads and writes of one parameter. */
double fo_planner_layer_optimizer_bytes(const fo_planner_split *split);

#endif
