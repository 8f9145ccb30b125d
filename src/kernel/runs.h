/* Which token a row of attention is, for every backend: the runs of a description, checked and copied. */
#ifndef FO_KERNEL_RUNS_H
#define FO_KERNEL_RUNS_H

#include "kernel/kernel.h"

typedef struct fo_kernel_runs {
    fo_run *run; /* by row, none of them empty */
    int64_t count;
} fo_kernel_runs;

/* Fails unless the sizes are legal and every token of the batch is exactly one row. */
fo_status fo_kernel_runs_make(const fo_attention_desc *desc, fo_kernel_runs *runs);
void fo_kernel_runs_free(fo_kernel_runs *runs);
/* Fails unless rows [row, row + rows) are rows of the batch. */
fo_status fo_kernel_runs_check(const fo_kernel_runs *runs, int64_t row, int64_t rows);
/* The first rows of [row, row + rows) that are of one run; rows >= 1. */
fo_run fo_kernel_runs_first(const fo_kernel_runs *runs, int64_t row, int64_t rows);

#endif
