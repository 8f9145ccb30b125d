/* Which token a row is. */
#include "flashoverlap/rows.h"

#include "flashoverlap/group.h"

static int64_t append(fo_run run, fo_run *runs, int64_t capacity, int64_t count)
{
    if (!run.rows)
        return count;
    if (count < capacity)
        runs[count] = run;
    return count + 1;
}

int64_t fo_rows_runs(fo_row_order order, int64_t batch, int64_t context, int ranks, fo_run *runs,
                     int64_t capacity)
{
    int64_t count = 0, row = 0;
    if (order == FO_ROWS_STRAIGHT) {
        for (int64_t b = 0; b < batch; b++)
            count = append((fo_run){b * context, context, b, 0}, runs, capacity, count);
        return count;
    }
    for (int r = 0; r < ranks; r++)
        for (int64_t b = 0; b < batch; b++)
            for (int half = 0; half < 2; half++) {
                int chunk = half ? 2 * ranks - 1 - r : r;
                fo_run run = {.row = row,
                              .rows = fo_shard_rows(context, 2 * ranks, chunk),
                              .sequence = b,
                              .position = fo_shard_begin(context, 2 * ranks, chunk)};
                count = append(run, runs, capacity, count);
                row += run.rows;
            }
    return count;
}
