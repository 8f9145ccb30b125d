/* Which token a row is. Matrices have a row for every token of the group's batch; rank r owns the rows of
 * its shard (fo_shard_begin). Only attention, positions and targets care which token a row stands for.
 * Pure functions, any thread. */
#ifndef FLASHOVERLAP_ROWS_H
#define FLASHOVERLAP_ROWS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* STRAIGHT: batch-major, row = sequence * context + position.
 * BALANCED: a causal query costs the more the later it stands, so every shard holds early and late ones:
 *   for r = 0 .. N-1, for every sequence: its chunk r, then its chunk 2N-1-r, chunk c being the positions
 *   [fo_shard_begin(context, 2N, c), fo_shard_begin(context, 2N, c + 1)). */
typedef enum fo_row_order { FO_ROWS_STRAIGHT, FO_ROWS_BALANCED } fo_row_order;

/* Rows [row, row + rows) are positions [position, position + rows) of sequence `sequence`. */
typedef struct fo_run {
    int64_t row, rows;
    int64_t sequence, position;
} fo_run;

/* The runs of an order, by row, none of them empty. Writes at most `capacity` and returns how many there
 * are: `batch` (STRAIGHT), at most 2 * ranks * batch (BALANCED). */
int64_t fo_rows_runs(fo_row_order order, int64_t batch, int64_t context, int ranks, fo_run *runs,
                     int64_t capacity);

#ifdef __cplusplus
}
#endif
#endif
