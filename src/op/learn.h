/* Measuring what plans of a shape take; shared by the files learn*.c only. */
#ifndef FO_OP_LEARN_H
#define FO_OP_LEARN_H

#include "op/plan.h"

typedef struct fo_op_figure {
    double seconds, spread; /* spread: distance of the quartiles, of the median */
} fo_op_figure;

/* What is sampled: does piece `index`. */
typedef fo_status (*fo_op_piece)(void *work, int index);

/* ---- learn.c ---- */
/* Seconds of a piece that a rank does by itself, after two that warm up. `before`: what comes before each one and is not
 * counted, NULL: nothing. Ranks have just met. */
fo_status fo_op_learn_sample(fo_op_piece one, fo_op_piece before, void *work, fo_op_figure *figure);
/* The same of what ranks do with each other, all equally often. */
fo_status fo_op_learn_sample_together(fo_group *group, fo_op_piece one, void *work,
                                      fo_op_figure *figure);
/* Collective: how often something that takes one_ns (the slowest rank's counts) fits the time of a figure. */
fo_status fo_op_learn_repeats(fo_group *group, int64_t one_ns, int least, int most, int *repeats);
/* Collective. FO_NO_MEMORY for all when one rank has none. */
fo_status fo_op_learn_all_have(fo_group *group, bool memory, const char *what);
bool fo_op_learn_is(const fo_op_fact *need, const char *word); /* begins with it */

/* ---- learn_needs.c ---- */
/* The word of computation `slot`'s products with what follows them. */
const char *fo_op_learn_gemm_word(const fo_plan *plan, int slot);

/* ---- learn_tiles.c: an operator of the plan's shape with few rows, and memory for it ---- */
enum { FO_OP_MATRICES = 32 };
typedef struct fo_op_scratch {
    fo_plan plan;
    fo_plan_args args;
    void *memory[FO_OP_MATRICES];
    int count;
    unsigned own; /* bit i: memory[i] is the process's own, not the group's */
    bool failed;
    void *swept; /* what is written to make caches forget */
    size_t swept_bytes;
    fo_attention_args attention; /* made when first needed */
} fo_op_scratch;
/* *scratch is to be freed also after a failure. */
fo_status fo_op_scratch_make(const fo_plan *plan, fo_op_scratch **scratch);
void fo_op_scratch_free(fo_op_scratch *scratch);
/* Memory with random numbers from 0.5 to 2 of either sign, as float32 and, half by half, as bfloat16;
 * NULL: scratch->failed is set. */
void *fo_op_scratch_filled(fo_op_scratch *scratch, int64_t elements);
/* Tiles, packing, additions. */
fo_status fo_op_learn_tiles(fo_op_scratch *scratch, const fo_plan *plan, const fo_op_fact *need,
                            fo_op_figure *figure);

/* ---- learn_attention.c ---- */
fo_status fo_op_learn_attention(const fo_plan *plan, fo_op_scratch *scratch, const fo_op_fact *need,
                                fo_op_figure *figure);

/* ---- learn_wires.c: what no shape is needed for ---- */
fo_status fo_op_learn_software(fo_group *group, fo_op_figure *figure);
/* "single": an exchange with both neighbours. */
fo_status fo_op_learn_message(fo_group *group, const fo_op_fact *need, fo_op_figure *figure);
/* What an operator needs for a message it sends and one it receives, beside its computation: "stream:sums" and
 * "stream:rows" where it does nothing else, "beside:sums" and "beside:rows" of the processor where it computes. */
fo_status fo_op_learn_traffic(fo_group *group, const fo_op_fact *need, fo_op_figure *figure);

#endif
