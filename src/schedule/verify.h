/* Shared by the verifier's files. */
#ifndef FO_SCHEDULE_VERIFY_H
#define FO_SCHEDULE_VERIFY_H

#include "schedule/program.h"

/* All programs laid side by side: task t of rank r is node base[r] + t. */
typedef struct fo_check {
    fo_program *const *programs;
    int ranks;
    int32_t *base;    /* [ranks + 1] */
    int32_t *partner; /* SEND <-> RECV, -1: none */
    int32_t *order;   /* nodes in an order in which they can end */
    int32_t count;
} fo_check;

static inline int fo_schedule_check_rank(const fo_check *c, int32_t node)
{
    int low = 0, high = c->ranks - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (c->base[middle] <= node)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static inline const fo_task *fo_schedule_check_task(const fo_check *c, int32_t node)
{
    int rank = fo_schedule_check_rank(c, node);
    return &c->programs[rank]->tasks[node - c->base[rank]];
}

/* A sentence that begins with the rank and task. FO_SCHEDULE. */
fo_status fo_schedule_check_broken(const fo_check *c, int32_t node, const char *rule);

fo_status fo_schedule_check_structure(const fo_check *c);        /* verify.c */
fo_status fo_schedule_check_matching(fo_check *c);               /* verify.c */
fo_status fo_schedule_check_deadlock(fo_check *c, int in_place); /* verify_order.c; fills order */
fo_status fo_schedule_check_hazards(const fo_check *c);          /* verify_hazard.c */
fo_status fo_schedule_check_values(const fo_check *c);           /* verify_value.c */

#endif
