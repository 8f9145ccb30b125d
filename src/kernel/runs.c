#include "kernel/runs.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static fo_status sizes_check(const fo_attention_desc *d)
{
    if (d->batch >= 0 && d->context >= 0 && d->heads >= 0 && d->head_dim >= 1)
        return FO_OK;
    return fo_base_error(FO_INVALID,
                         "attention of batch %lld, context %lld, %d heads of %d, expected sizes "
                         "of 0 or more and head_dim of 1 or more",
                         (long long)d->batch, (long long)d->context, d->heads, d->head_dim);
}

static bool overlap(const fo_run *a, const fo_run *b)
{
    return a->sequence == b->sequence && a->position < b->position + b->rows &&
           b->position < a->position + a->rows;
}

/* One row after another, every token inside the batch and none twice: so every token once. */
static fo_status runs_check(const fo_kernel_runs *runs, const fo_attention_desc *d)
{
    int64_t row = 0;
    for (int64_t i = 0; i < runs->count; i++) {
        const fo_run *run = &runs->run[i];
        if (run->row != row || run->rows < 1 || run->sequence < 0 || run->sequence >= d->batch ||
            run->position < 0 || run->position + run->rows > d->context)
            return fo_base_error(FO_INVALID,
                                 "run %lld of attention is rows %lld to %lld, position %lld of "
                                 "sequence %lld, expected rows from %lld on inside %lld sequences "
                                 "of %lld",
                                 (long long)i, (long long)run->row,
                                 (long long)run->row + (long long)run->rows,
                                 (long long)run->position, (long long)run->sequence, (long long)row,
                                 (long long)d->batch, (long long)d->context);
        for (int64_t j = 0; j < i; j++)
            if (overlap(run, &runs->run[j]))
                return fo_base_error(FO_INVALID,
                                     "runs %lld and %lld of attention share tokens of sequence "
                                     "%lld, expected every token once",
                                     (long long)j, (long long)i, (long long)run->sequence);
        row += run->rows;
    }
    if (row == d->batch * d->context)
        return FO_OK;
    return fo_base_error(FO_INVALID, "the runs of attention are of %lld rows, expected %lld",
                         (long long)row, (long long)d->batch * (long long)d->context);
}

fo_status fo_kernel_runs_make(const fo_attention_desc *d, fo_kernel_runs *runs)
{
    *runs = (fo_kernel_runs){0};
    fo_status status = sizes_check(d);
    if (status != FO_OK)
        return status;
    int64_t count =
        d->runs ? d->run_count : fo_rows_runs(FO_ROWS_STRAIGHT, d->batch, d->context, 1, NULL, 0);
    runs->run = calloc((size_t)count + 1, sizeof *runs->run);
    if (!runs->run)
        return fo_base_error(FO_NO_MEMORY, "no memory for %lld runs of attention",
                             (long long)count);
    runs->count = count;
    if (d->runs)
        memcpy(runs->run, d->runs, (size_t)count * sizeof *runs->run);
    else
        fo_rows_runs(FO_ROWS_STRAIGHT, d->batch, d->context, 1, runs->run, count);
    status = runs_check(runs, d);
    if (status != FO_OK)
        fo_kernel_runs_free(runs);
    return status;
}

void fo_kernel_runs_free(fo_kernel_runs *runs)
{
    free(runs->run);
    *runs = (fo_kernel_runs){0};
}

fo_status fo_kernel_runs_check(const fo_kernel_runs *runs, int64_t row, int64_t rows)
{
    int64_t all = 0;
    if (runs->count)
        all = runs->run[runs->count - 1].row + runs->run[runs->count - 1].rows;
    if (row >= 0 && rows >= 0 && row + rows <= all)
        return FO_OK;
    return fo_base_error(FO_INVALID, "attention of rows %lld to %lld, expected rows of 0 to %lld",
                         (long long)row, (long long)row + (long long)rows, (long long)all);
}

fo_run fo_kernel_runs_first(const fo_kernel_runs *runs, int64_t row, int64_t rows)
{
    int64_t low = 0, high = runs->count - 1; /* the last run that begins at or before the row */
    while (low < high) {
        int64_t middle = (low + high + 1) / 2;
        if (runs->run[middle].row <= row)
            low = middle;
        else
            high = middle - 1;
    }
    fo_run found = runs->run[low];
    int64_t skipped = row - found.row, left = found.rows - skipped;
    return (fo_run){.row = row,
                    .rows = left < rows ? left : rows,
                    .sequence = found.sequence,
                    .position = found.position + skipped};
}
