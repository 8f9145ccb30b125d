/* Reading safetensors files. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bf16.h"
#include "base/error.h"
#include "checkpoint/system.h"
#include "checkpoint/tensors.h"

/* ---- opening ----------------------------------------------------------------------------------- */

static fo_status create(const char *path, fo_tensor_file **file)
{
    if (!path || !file)
        return fo_base_error(FO_INVALID, "opening tensors needs a path and room for the result");
    *file = calloc(1, sizeof **file);
    char *copy = strdup(path);
    if (!*file || !copy) {
        free(*file);
        free(copy);
        *file = NULL;
        return fo_base_error(FO_NO_MEMORY, "%s: no memory to open it", path);
    }
    (*file)->path = copy;
    return FO_OK;
}

/* Keeps what was opened, or closes it. */
static fo_status finish(fo_tensor_file **file, fo_status status)
{
    if (status == FO_OK)
        status = fo_checkpoint_parse(*file);
    if (status != FO_OK) {
        fo_checkpoint_close(*file);
        *file = NULL;
    }
    return status;
}

static fo_status map(fo_tensor_file *file)
{
    int descriptor;
    fo_status status = fo_checkpoint_open_read(file->path, &descriptor, &file->size);
    if (status != FO_OK)
        return status;
    if (file->size > 0) { /* nothing can't be mapped; the parser refuses it */
        void *bytes = (uint64_t)file->size > SIZE_MAX / 2
                          ? MAP_FAILED
                          : mmap(NULL, (size_t)file->size, PROT_READ, MAP_PRIVATE, descriptor, 0);
        if (bytes == MAP_FAILED) {
            status = fo_base_error(FO_IO, "%s: its %" PRId64 " bytes can't be mapped (%s)",
                                   file->path, file->size, strerror(errno));
        } else {
            file->bytes = bytes;
            file->mapped = true;
        }
    }
    close(descriptor);
    return status;
}

fo_status fo_checkpoint_open(const char *path, fo_tensor_file **file)
{
    fo_status status = create(path, file);
    return status == FO_OK ? finish(file, map(*file)) : status;
}

fo_status fo_checkpoint_open_memory(const char *name, const void *bytes, int64_t size,
                                    fo_tensor_file **file)
{
    fo_status status = create(name, file);
    if (status != FO_OK)
        return status;
    (*file)->bytes = bytes;
    (*file)->size = size;
    return finish(file, FO_OK);
}

void fo_checkpoint_close(fo_tensor_file *file)
{
    if (!file)
        return;
    if (file->mapped)
        munmap((void *)(uintptr_t)file->bytes, (size_t)file->size);
    json_decref(file->root);
    free(file->entries);
    free(file->by_name);
    free(file->path);
    free(file);
}

/* ---- what it holds ------------------------------------------------------------------------------- */

int fo_checkpoint_count(const fo_tensor_file *file)
{
    return file->count;
}

const fo_tensor_info *fo_checkpoint_info(const fo_tensor_file *file, int index)
{
    return index >= 0 && index < file->count ? &file->entries[index].info : NULL;
}

int fo_checkpoint_find(const fo_tensor_file *file, const char *name)
{
    int low = 0, high = file->count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        int order = strcmp(name, file->entries[file->by_name[middle]].info.name);
        if (order == 0)
            return file->by_name[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return -1;
}

const void *fo_checkpoint_data(const fo_tensor_file *file, int index)
{
    if (index < 0 || index >= file->count)
        return NULL;
    return file->bytes + file->data + file->entries[index].begin;
}

const char *fo_checkpoint_metadata(const fo_tensor_file *file, const char *key)
{
    return json_string_value(json_object_get(file->metadata, key));
}

/* ---- values -------------------------------------------------------------------------------------- */

/* The tensor as a matrix: all dimensions but the last are its rows. */
static void matrix_of(const fo_tensor_info *info, int64_t *rows, int64_t *cols)
{
    *rows = 1;
    *cols = info->dims > 0 ? info->shape[info->dims - 1] : 1;
    for (int d = 0; d < info->dims - 1; d++)
        *rows *= info->shape[d]; /* opening proved that it fits */
}

/* `count` values from `from`, as float32, to out, out + stride, ... */
static void convert(fo_dtype dtype, const uint8_t *from, int64_t count, int64_t stride, float *out)
{
    if (dtype == FO_F32 && stride == 1) {
        memcpy(out, from, (size_t)count * sizeof *out);
    } else if (dtype == FO_F32) {
        for (int64_t i = 0; i < count; i++)
            memcpy(out + i * stride, from + 4 * i, sizeof *out);
    } else {
        for (int64_t i = 0; i < count; i++) {
            fo_bf16 value;
            memcpy(&value, from + 2 * i, sizeof value);
            out[i * stride] = fo_base_bf16_to_f32(value);
        }
    }
}

static fo_status check_rectangle(const fo_tensor_file *file, int index, int64_t row, int64_t count,
                                 int64_t col, int64_t width)
{
    int64_t rows, cols;
    if (index < 0 || index >= file->count)
        return fo_base_error(FO_INVALID, "%s: tensor number %d was asked for, it has %d",
                             file->path, index, file->count);
    const fo_tensor_info *info = &file->entries[index].info;
    matrix_of(info, &rows, &cols);
    if (row >= 0 && count >= 0 && row <= rows && count <= rows - row && col >= 0 && width >= 0 &&
        col <= cols && width <= cols - col)
        return FO_OK;
    return fo_base_error(FO_INVALID,
                         "%s: %" PRId64 " rows from %" PRId64 " and %" PRId64 " columns from "
                         "%" PRId64 " of tensor '%.200s' were asked for, it has %" PRId64
                         " rows and %" PRId64 " columns",
                         file->path, count, row, width, col, info->name, rows, cols);
}

fo_status fo_checkpoint_read_f32(const fo_tensor_file *file, int index, int64_t row, int64_t count,
                                 int64_t col, int64_t width, int transpose, float *out)
{
    enum { TILE = 64 }; /* columns at a time, so that their lines of out stay in the cache */
    int64_t rows, cols;
    fo_status status = check_rectangle(file, index, row, count, col, width);
    if (status != FO_OK || count == 0 || width == 0)
        return status;
    const fo_tensor_info *info = &file->entries[index].info;
    const uint8_t *data = fo_checkpoint_data(file, index);
    int64_t size = (int64_t)fo_dtype_size(info->dtype);
    matrix_of(info, &rows, &cols);
    for (int64_t c = 0; c < width; c += transpose ? TILE : width) {
        int64_t some = transpose && width - c > TILE ? TILE : width - c;
        for (int64_t r = 0; r < count; r++) {
            const uint8_t *from = data + ((row + r) * cols + col + c) * size;
            if (transpose)
                convert(info->dtype, from, some, count, out + c * count + r);
            else
                convert(info->dtype, from, some, 1, out + r * width + c);
        }
    }
    return FO_OK;
}
