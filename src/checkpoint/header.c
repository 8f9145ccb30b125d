/* The header of a safetensors file: from bytes to tensors, nothing believed unseen. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "checkpoint/tensors.h"

static const char *const dtype_names[] = {[FO_F32] = "F32", [FO_BF16] = "BF16"};
enum { DTYPES = sizeof dtype_names / sizeof dtype_names[0] };

/* Types of the format that this library has no use for. */
static const char *const other_dtypes[] = {"BOOL",    "F4",          "F6_E2M3",     "F6_E3M2",
                                           "U8",      "I8",          "F8_E5M2",     "F8_E4M3",
                                           "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I16",
                                           "U16",     "F16",         "I32",         "U32",
                                           "F64",     "I64",         "U64",         "C64"};

const char *fo_checkpoint_dtype_name(fo_dtype dtype)
{
    return dtype_names[dtype];
}

bool fo_checkpoint_bytes(const fo_tensor_info *info, int64_t *bytes)
{
    int64_t product = 1;
    for (int d = 0; d < info->dims; d++)
        if (__builtin_mul_overflow(product, info->shape[d], &product))
            return false;
    return !__builtin_mul_overflow(product, (int64_t)fo_dtype_size(info->dtype), bytes);
}

/* ---- one entry ------------------------------------------------------------------------------------- */

/* What is being read, for messages: file, tensor. */
#define TENSOR "%s: tensor '%.200s' "

static fo_status read_dtype(const char *path, const char *name, const json_t *value,
                            fo_dtype *dtype)
{
    const char *text = json_string_value(value);
    if (!text)
        return fo_base_error(FO_FORMAT, TENSOR "has no dtype, expected \"F32\" or \"BF16\"", path,
                             name);
    for (int i = 0; i < DTYPES; i++) {
        if (strcmp(text, dtype_names[i]) == 0) {
            *dtype = (fo_dtype)i;
            return FO_OK;
        }
    }
    for (size_t i = 0; i < sizeof other_dtypes / sizeof other_dtypes[0]; i++)
        if (strcmp(text, other_dtypes[i]) == 0)
            return fo_base_error(FO_UNSUPPORTED,
                                 TENSOR "has dtype %s, expected F32 or BF16; convert the file",
                                 path, name, text);
    return fo_base_error(FO_FORMAT, TENSOR "has the unknown dtype '%.40s', expected F32 or BF16",
                         path, name, text);
}

static fo_status read_shape(const char *path, const char *name, const json_t *value,
                            fo_tensor_info *info)
{
    if (!json_is_array(value))
        return fo_base_error(FO_FORMAT, TENSOR "has no shape, expected a list of sizes", path,
                             name);
    size_t dims = json_array_size(value);
    if (dims > FO_TENSOR_DIMS)
        return fo_base_error(FO_UNSUPPORTED, TENSOR "has %zu dimensions, expected at most %d", path,
                             name, dims, FO_TENSOR_DIMS);
    info->dims = (int)dims;
    for (size_t d = 0; d < dims; d++) {
        const json_t *size = json_array_get(value, d);
        if (!json_is_integer(size) || json_integer_value(size) < 0)
            return fo_base_error(FO_FORMAT,
                                 TENSOR
                                 "has in place %zu of its shape no whole number of 0 or more",
                                 path, name, d);
        info->shape[d] = json_integer_value(size);
    }
    return FO_OK;
}

static fo_status read_offsets(const char *path, const char *name, const json_t *value, int64_t data,
                              fo_checkpoint_entry *entry)
{
    const json_t *begin = json_array_get(value, 0), *end = json_array_get(value, 1);
    if (json_array_size(value) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return fo_base_error(FO_FORMAT, TENSOR "has no data_offsets, expected two whole numbers",
                             path, name);
    entry->begin = json_integer_value(begin);
    entry->end = json_integer_value(end);
    if (entry->begin < 0 || entry->end < entry->begin)
        return fo_base_error(FO_FORMAT,
                             TENSOR "has data_offsets [%" PRId64 ", %" PRId64
                                    "], expected 0 <= begin <= end",
                             path, name, entry->begin, entry->end);
    if (entry->end > data)
        return fo_base_error(FO_FORMAT,
                             TENSOR "ends at offset %" PRId64 " of the data, which has %" PRId64
                                    " bytes; the file is torn: copy or write it again",
                             path, name, entry->end, data);
    return FO_OK;
}

static fo_status read_entry(const fo_tensor_file *file, const char *name, const json_t *value,
                            fo_checkpoint_entry *entry)
{
    int64_t bytes;
    if (!json_is_object(value))
        return fo_base_error(FO_FORMAT,
                             TENSOR "is no object, expected dtype, shape and data_offsets",
                             file->path, name);
    entry->info.name = name;
    fo_status status =
        read_dtype(file->path, name, json_object_get(value, "dtype"), &entry->info.dtype);
    if (status == FO_OK)
        status = read_shape(file->path, name, json_object_get(value, "shape"), &entry->info);
    if (status == FO_OK)
        status = read_offsets(file->path, name, json_object_get(value, "data_offsets"),
                              file->size - file->data, entry);
    if (status != FO_OK)
        return status;
    if (!fo_checkpoint_bytes(&entry->info, &bytes))
        return fo_base_error(FO_FORMAT, TENSOR "has a shape whose size is beyond 64 bits",
                             file->path, name);
    if (entry->end - entry->begin != bytes)
        return fo_base_error(FO_FORMAT,
                             TENSOR "has %" PRId64 " bytes by its data_offsets, expected %" PRId64
                                    " by its shape and dtype %s",
                             file->path, name, entry->end - entry->begin, bytes,
                             dtype_names[entry->info.dtype]);
    return FO_OK;
}

static fo_status read_metadata(fo_tensor_file *file, const json_t *value)
{
    if (!json_is_object(value))
        return fo_base_error(FO_FORMAT, "%s: __metadata__ is no object, expected a map of strings",
                             file->path);
    for (void *at = json_object_iter((json_t *)(uintptr_t)value); at;
         at = json_object_iter_next((json_t *)(uintptr_t)value, at))
        if (!json_is_string(json_object_iter_value(at)))
            return fo_base_error(FO_FORMAT,
                                 "%s: __metadata__ has no string for '%.200s', expected "
                                 "strings only",
                                 file->path, json_object_iter_key(at));
    file->metadata = value;
    return FO_OK;
}

/* ---- all of them ------------------------------------------------------------------------------------- */

/* The length of the header, checked; it fits into the file. */
static fo_status read_length(const fo_tensor_file *file, int64_t *length)
{
    uint64_t stored;
    if (file->size < (int64_t)sizeof stored)
        return fo_base_error(FO_FORMAT,
                             "%s has %" PRId64 " bytes, expected a safetensors file (8 bytes of "
                             "header length, a header, data); it is torn or of another format",
                             file->path, file->size);
    memcpy(&stored, file->bytes, sizeof stored);
    if (stored > FO_CHECKPOINT_HEADER_LIMIT)
        return fo_base_error(FO_FORMAT,
                             "%s gives its header a length of %" PRIu64 " (offset 0), expected at "
                             "most %" PRId64 "; is it a safetensors file?",
                             file->path, stored, FO_CHECKPOINT_HEADER_LIMIT);
    *length = (int64_t)stored;
    if (*length > file->size - (int64_t)sizeof stored)
        return fo_base_error(FO_FORMAT,
                             "%s has %" PRId64 " bytes, expected at least %" PRId64 ": its header "
                             "takes %" PRId64 " by offset 0; it is torn: copy or write it again",
                             file->path, file->size, *length + (int64_t)sizeof stored, *length);
    if (*length == 0 || file->bytes[8] != '{')
        return fo_base_error(FO_FORMAT,
                             "%s has %s at offset 8, expected '{' and the rest of a safetensors "
                             "header; it is of another format",
                             file->path, *length == 0 ? "an empty header" : "another byte");
    return FO_OK;
}

static fo_status read_json(fo_tensor_file *file)
{
    int64_t length = 0;
    json_error_t error;
    fo_status status = read_length(file, &length);
    if (status != FO_OK)
        return status;
    file->data = 8 + length;
    file->root =
        json_loadb((const char *)file->bytes + 8, (size_t)length, JSON_REJECT_DUPLICATES, &error);
    if (file->root)
        return FO_OK;
    if (json_error_code(&error) == json_error_out_of_memory)
        return fo_base_error(FO_NO_MEMORY, "%s: no memory for its header of %" PRId64 " bytes",
                             file->path, length);
    return fo_base_error(FO_FORMAT,
                         "%s: its header is wrong near offset %" PRId64 " (%.150s), expected JSON "
                         "in UTF-8 with each name once",
                         file->path, 8 + (int64_t)error.position, error.text);
}

static int compare_offsets(const void *a, const void *b)
{
    const fo_checkpoint_entry *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return (x->order > y->order) - (x->order < y->order);
}

static int compare_names(const void *a, const void *b, void *arg)
{
    const fo_checkpoint_entry *entries = arg;
    return strcmp(entries[*(const int *)a].info.name, entries[*(const int *)b].info.name);
}

/* The tensors, in order of their offsets, must cover the data exactly. */
static fo_status check_cover(const fo_tensor_file *file)
{
    int64_t covered = 0, size = file->size - file->data;
    for (int i = 0; i < file->count; i++) {
        const fo_checkpoint_entry *entry = &file->entries[i];
        if (entry->begin != covered)
            return fo_base_error(FO_FORMAT,
                                 TENSOR "begins at offset %" PRId64
                                        " of the data, expected %" PRId64 ": there is %s",
                                 file->path, entry->info.name, entry->begin, covered,
                                 entry->begin > covered ? "a hole before it"
                                                        : "an overlap with the tensor before it");
        covered = entry->end;
    }
    if (covered != size)
        return fo_base_error(FO_FORMAT,
                             "%s has %" PRId64 " bytes of data (from offset %" PRId64 "), expected "
                             "%" PRId64 " by its header: nothing may follow the last tensor",
                             file->path, size, file->data, covered);
    return FO_OK;
}

static fo_status read_entries(fo_tensor_file *file)
{
    for (void *at = json_object_iter(file->root); at; at = json_object_iter_next(file->root, at)) {
        const char *name = json_object_iter_key(at);
        const json_t *value = json_object_iter_value(at);
        fo_checkpoint_entry *entry = &file->entries[file->count];
        fo_status status;
        if (strcmp(name, "__metadata__") == 0) {
            status = read_metadata(file, value);
        } else {
            status = read_entry(file, name, value, entry);
            entry->order = file->count++;
        }
        if (status != FO_OK)
            return status;
    }
    return FO_OK;
}

fo_status fo_checkpoint_parse(fo_tensor_file *file)
{
    fo_status status = read_json(file);
    if (status != FO_OK)
        return status;
    size_t room = json_object_size(file->root) + 1;
    file->entries = calloc(room, sizeof *file->entries);
    file->by_name = calloc(room, sizeof *file->by_name);
    if (!file->entries || !file->by_name)
        return fo_base_error(FO_NO_MEMORY, "%s: no memory for its list of tensors", file->path);
    status = read_entries(file);
    if (status != FO_OK)
        return status;
    qsort(file->entries, (size_t)file->count, sizeof *file->entries, compare_offsets);
    for (int i = 0; i < file->count; i++)
        file->by_name[i] = i;
    qsort_r(file->by_name, (size_t)file->count, sizeof *file->by_name, compare_names,
            file->entries);
    return check_cover(file);
}
