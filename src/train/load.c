/* Reading checkpoints: every rank reads its own rectangles, so the number of ranks and how they are split may differ
 * from those of the run that wrote them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "train/train.h"

typedef struct input {
    const fo_model_config *config;
    const fo_model *model;
    int ranks, rank; /* of the replica */
    const char *path;
    fo_tensor_file *file;
} input;

static void shape_text(const int64_t *shape, int dims, char *out, size_t size)
{
    size_t used = (size_t)snprintf(out, size, "[");
    for (int d = 0; d < dims && used < size; d++)
        used += (size_t)snprintf(out + used, size - used, "%s%" PRId64, d ? ", " : "", shape[d]);
    if (used < size)
        snprintf(out + used, size - used, "]");
}

static fo_status find_tensor(const input *in, const fo_parameter *p, fo_train_slot slot, int *index)
{
    char name[72];
    fo_train_tensor_name(p, slot, name, sizeof name);
    *index = fo_checkpoint_find(in->file, name);
    if (*index < 0)
        return fo_base_error(FO_FORMAT,
                             "%s: tensor '%s' is missing; was it written by a run of the same "
                             "model?",
                             in->path, name);
    int64_t shape[2];
    int dims = fo_train_tensor_shape(p, shape);
    const fo_tensor_info *info = fo_checkpoint_info(in->file, *index);
    bool same = info->dims == dims;
    for (int d = 0; same && d < dims; d++)
        same = info->shape[d] == shape[d];
    if (same)
        return FO_OK;
    char found[96], expected[96];
    shape_text(info->shape, info->dims, found, sizeof found);
    shape_text(shape, dims, expected, sizeof expected);
    return fo_base_error(FO_FORMAT, "%s: tensor '%s' has shape %s, expected %s", in->path, name,
                         found, expected);
}

static int64_t full_row(const input *in, const fo_parameter *p, int64_t row)
{
    return fo_model_full_row(p, in->config, in->ranks, in->rank, row);
}

static int64_t full_col(const input *in, const fo_parameter *p, int64_t col)
{
    return fo_model_full_col(p, in->config, in->ranks, in->rank, col);
}

/* Length of the run of local rows (columns) from `begin` that lie side by side in the full tensor. */
static int64_t row_run(const input *in, const fo_parameter *p, int64_t begin)
{
    int64_t first = full_row(in, p, begin), n = 1;
    while (begin + n < p->rows && full_row(in, p, begin + n) == first + n)
        n++;
    return n;
}

static int64_t col_run(const input *in, const fo_parameter *p, int64_t begin)
{
    int64_t first = full_col(in, p, begin), n = 1;
    while (begin + n < p->cols && full_col(in, p, begin + n) == first + n)
        n++;
    return n;
}

/* One rectangle, contiguous in the file, to its place in the local array. */
static fo_status read_block(const input *in, int index, const fo_parameter *p, int64_t row,
                            int64_t rows, int64_t col, int64_t cols, float *block, float *local)
{
    int64_t first_row = full_row(in, p, row), first_col = full_col(in, p, col);
    fo_status status =
        p->transposed
            ? fo_checkpoint_read_f32(in->file, index, first_col, cols, first_row, rows, 1, block)
            : fo_checkpoint_read_f32(in->file, index, first_row, rows, first_col, cols, 0, block);
    for (int64_t r = 0; status == FO_OK && r < rows; r++)
        memcpy(local + (row + r) * p->cols + col, block + r * cols, (size_t)cols * sizeof *local);
    return status;
}

/* Moments are kept for the own piece only. */
static void keep_piece(const input *in, const fo_parameter *p, fo_train_slot slot,
                       const float *local)
{
    fo_model_piece piece;
    fo_model_own_piece(in->model, p, &piece);
    memcpy(fo_train_tensor_array(&piece, slot), local + piece.begin,
           (size_t)piece.count * sizeof *local);
}

static fo_status read_tensor(const input *in, const fo_parameter *p, fo_train_slot slot)
{
    int index;
    bool whole = slot == FO_TRAIN_VALUE;
    fo_status status = find_tensor(in, p, slot, &index);
    if (status != FO_OK || p->count == 0)
        return status;
    float *block = malloc((size_t)p->count * (whole ? 1 : 2) * sizeof *block);
    if (!block)
        return fo_base_error(FO_NO_MEMORY, "%s: no memory for %" PRId64 " values of '%s'", in->path,
                             p->count, p->name);
    float *local = whole ? p->value : block + p->count;
    for (int64_t row = 0, rows; status == FO_OK && row < p->rows; row += rows) {
        rows = row_run(in, p, row);
        for (int64_t col = 0, cols; status == FO_OK && col < p->cols; col += cols) {
            cols = col_run(in, p, col);
            status = read_block(in, index, p, row, rows, col, cols, block, local);
        }
    }
    if (status == FO_OK && !whole)
        keep_piece(in, p, slot, local);
    free(block);
    return status;
}

static fo_status read_file(input *in, fo_model *model, const char *folder, const char *name,
                           fo_train_slot first, fo_train_slot last)
{
    char path[FO_TRAIN_PATH + 32];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    in->path = path;
    fo_status status = fo_checkpoint_open(path, &in->file);
    if (status != FO_OK)
        return status;
    for (int i = 0; status == FO_OK && i < fo_model_parameter_count(model); i++)
        for (int slot = (int)first; status == FO_OK && slot <= (int)last; slot++)
            status = read_tensor(in, fo_model_parameter(model, i), (fo_train_slot)slot);
    fo_checkpoint_close(in->file);
    return status;
}

fo_status fo_train_load(fo_group *group, const fo_model_config *config, fo_model *model,
                        const char *folder, bool optimizer)
{
    input in = {.config = config,
                .model = model,
                .ranks = fo_group_size(fo_model_group(model)),
                .rank = fo_group_rank(fo_model_group(model))};
    fo_status status =
        read_file(&in, model, folder, "model.safetensors", FO_TRAIN_VALUE, FO_TRAIN_VALUE);
    if (status == FO_OK && optimizer)
        status = read_file(&in, model, folder, "optimizer.safetensors", FO_TRAIN_M, FO_TRAIN_V);
    fo_model_parameters_changed(model);
    return fo_train_agree(group, status);
}
