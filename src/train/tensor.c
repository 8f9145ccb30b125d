/* Parameters as files hold them: names, shapes, and the way from the ranks' pieces to the whole. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "train/train.h"

enum { CHUNK = 16384 /* elements a rank hands over at once */ };

float *fo_train_tensor_array(const fo_model_piece *piece, fo_train_slot slot)
{
    switch (slot) {
    case FO_TRAIN_M: return piece->m;
    case FO_TRAIN_V: return piece->v;
    default: return piece->value;
    }
}

void fo_train_tensor_name(const fo_parameter *parameter, fo_train_slot slot, char *out, size_t size)
{
    static const char *const endings[] = {"", ".m", ".v"};
    snprintf(out, size, "%s%s", parameter->name, endings[slot]);
}

int fo_train_tensor_shape(const fo_parameter *parameter, int64_t shape[2])
{
    bool matrix = parameter->transposed || parameter->full_rows != 1 ||
                  !strcmp(parameter->name, "wte.weight") || !strcmp(parameter->name, "wpe.weight");
    if (!matrix) {
        shape[0] = parameter->full_cols;
        shape[1] = 1;
        return 1;
    }
    shape[0] = parameter->transposed ? parameter->full_cols : parameter->full_rows;
    shape[1] = parameter->transposed ? parameter->full_rows : parameter->full_cols;
    return 2;
}

/* Elements [begin, end) of the parameter's local tensor on a rank: the piece of it that the rank updates. */
typedef struct range {
    int64_t begin, end;
} range;

/* Where the rows and columns of one rank's tensor lie in the file: element (r, c) is at row[r] + col[c]. */
typedef struct share {
    int64_t rows, cols;
    int64_t *row, *col;
    range piece;
} share;

static fo_status share_make(const fo_train_worker *worker, const fo_parameter *p, int rank,
                            share *s)
{
    int ranks = worker->config.tp;
    rank %= ranks;
    fo_model_local_shape(p, &worker->config, ranks, rank, &s->rows, &s->cols);
    s->row = malloc(((size_t)s->rows + 1) * sizeof *s->row);
    s->col = malloc(((size_t)s->cols + 1) * sizeof *s->col);
    if (!s->row || !s->col)
        return fo_base_error(FO_NO_MEMORY, "saving %s: no memory for its index", p->name);
    int64_t row_step = p->transposed ? 1 : p->full_cols,
            col_step = p->transposed ? p->full_rows : 1;
    for (int64_t r = 0; r < s->rows; r++)
        s->row[r] = row_step * fo_model_full_row(p, &worker->config, ranks, rank, r);
    for (int64_t c = 0; c < s->cols; c++)
        s->col[c] = col_step * fo_model_full_col(p, &worker->config, ranks, rank, c);
    return FO_OK;
}

/* `count` elements of a piece from `begin` on into the whole tensor. */
static void share_place(const share *s, const float *values, int64_t begin, int64_t count,
                        float *full)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t at = s->piece.begin + begin + i;
        full[s->row[at / s->cols] + s->col[at % s->cols]] = values[i];
    }
}

static int64_t share_part(const share *s, int64_t begin, int64_t length)
{
    int64_t left = s->piece.end - s->piece.begin - begin;
    return left < 0 ? 0 : left < length ? left : length;
}

/* All ranks hand over CHUNK elements at a time; rank 0 places them. */
static fo_status collect(const fo_train_worker *worker, const share *shares, const float *mine,
                         float *buffer, float *full)
{
    int ranks = fo_group_size(worker->group), rank = fo_group_rank(worker->group);
    float *all = buffer + CHUNK;
    int64_t longest = 0;
    for (int r = 0; r < ranks; r++)
        if (share_part(&shares[r], 0, INT64_MAX) > longest)
            longest = share_part(&shares[r], 0, INT64_MAX);
    fo_status status = FO_OK;
    for (int64_t at = 0; status == FO_OK && at < longest; at += CHUNK) {
        int64_t length = longest - at < CHUNK ? longest - at : CHUNK;
        int64_t own = share_part(&shares[rank], at, length);
        if (own > 0)
            memcpy(buffer, mine + at, (size_t)own * sizeof *buffer);
        status = fo_group_allgather(worker->group, buffer, (size_t)length * sizeof *buffer, all);
        for (int r = 0; status == FO_OK && rank == 0 && r < ranks; r++)
            share_place(&shares[r], all + r * length, at, share_part(&shares[r], at, length), full);
    }
    return status;
}

/* Every rank says which piece it has. */
static fo_status exchange_pieces(const fo_train_worker *worker, const fo_model_piece *piece,
                                 share *shares)
{
    int ranks = fo_group_size(worker->group);
    range mine = {piece->begin, piece->begin + piece->count};
    range *all = malloc((size_t)ranks * sizeof *all);
    if (!all)
        return fo_base_error(FO_NO_MEMORY, "saving %s: no memory for its pieces",
                             piece->parameter->name);
    fo_status status = fo_group_allgather(worker->group, &mine, sizeof mine, all);
    for (int r = 0; status == FO_OK && r < ranks; r++)
        shares[r].piece = all[r];
    free(all);
    return status;
}

fo_status fo_train_tensor_gather(const fo_train_worker *worker, const fo_parameter *parameter,
                                 fo_train_slot slot, float *full)
{
    int ranks = fo_group_size(worker->group);
    fo_model_piece piece;
    fo_model_own_piece(worker->model, parameter, &piece);
    const float *mine = fo_train_tensor_array(&piece, slot);
    share *shares = calloc((size_t)ranks, sizeof *shares);
    float *buffer = calloc((size_t)CHUNK * ((size_t)ranks + 1), sizeof *buffer);
    fo_status status = FO_OK;
    if (!shares || !buffer)
        status = fo_base_error(FO_NO_MEMORY, "saving %s: no memory to gather it", parameter->name);
    for (int r = 0; status == FO_OK && r < ranks; r++)
        status = share_make(worker, parameter, r, &shares[r]);
    status = fo_train_agree(worker->group, status);
    if (status == FO_OK)
        status = exchange_pieces(worker, &piece, shares);
    if (status == FO_OK)
        status = collect(worker, shares, mine, buffer, full);
    for (int r = 0; shares && r < ranks; r++) {
        free(shares[r].row);
        free(shares[r].col);
    }
    free(shares);
    free(buffer);
    return status;
}
