/* Writing safetensors files. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "checkpoint/system.h"
#include "checkpoint/tensors.h"

typedef struct slot {
    const char *name;    /* owned by the header */
    int64_t begin, size; /* in the file, bytes */
    int64_t written;
} slot;

struct fo_tensor_writer {
    fo_checkpoint_temp temp;
    json_t *root;
    int count;
    slot *slots;
};

static void destroy(fo_tensor_writer *writer)
{
    json_decref(writer->root);
    free(writer->slots);
    free(writer);
}

/* ---- the header -------------------------------------------------------------------------------- */

static fo_status add_metadata(const char *path, json_t *root, const char *const *metadata)
{
    if (!metadata || !metadata[0])
        return FO_OK;
    json_t *map = json_object();
    if (json_object_set_new(root, "__metadata__", map) != 0)
        return fo_base_error(FO_NO_MEMORY, "%s: no memory for its header", path);
    for (; metadata[0]; metadata += 2) {
        if (!metadata[1] || json_object_get(map, metadata[0]))
            return fo_base_error(FO_INVALID, "%s: the metadata '%.200s' %s", path, metadata[0],
                                 metadata[1] ? "is given twice, expected once"
                                             : "has no value, expected pairs of key and value");
        if (json_object_set_new(map, metadata[0], json_string(metadata[1])) != 0)
            return fo_base_error(FO_INVALID,
                                 "%s: the metadata '%.200s' is not UTF-8, expected text", path,
                                 metadata[0]);
    }
    return FO_OK;
}

static fo_status check_tensor(const char *path, const json_t *root, const fo_tensor_info *info)
{
    if (!info->name || strcmp(info->name, "__metadata__") == 0)
        return fo_base_error(FO_INVALID, "%s: a tensor is named %s, expected a name of its own",
                             path, info->name ? info->name : "(nothing)");
    if (info->dtype != FO_F32 && info->dtype != FO_BF16)
        return fo_base_error(FO_INVALID, "%s: tensor '%.200s' has dtype %d, expected F32 or BF16",
                             path, info->name, (int)info->dtype);
    bool valid = info->dims >= 0 && info->dims <= FO_TENSOR_DIMS;
    for (int d = 0; valid && d < info->dims; d++)
        valid = info->shape[d] >= 0;
    if (!valid)
        return fo_base_error(
            FO_INVALID,
            "%s: tensor '%.200s' has %d dimensions or a negative size, expected 0 to "
            "%d sizes of 0 or more",
            path, info->name, info->dims, FO_TENSOR_DIMS);
    if (json_object_get(root, info->name))
        return fo_base_error(FO_INVALID, "%s: tensor '%.200s' is declared twice, expected once",
                             path, info->name);
    return FO_OK;
}

static json_t *entry_of(const fo_tensor_info *info, int64_t begin, int64_t end)
{
    json_t *shape = json_array();
    for (int d = 0; d < info->dims; d++)
        if (json_array_append_new(shape, json_integer(info->shape[d])) != 0) {
            json_decref(shape);
            return NULL;
        }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", fo_checkpoint_dtype_name(info->dtype),
                     "shape", shape, "data_offsets", (json_int_t)begin, (json_int_t)end);
}

/* Adds a tensor behind `*end` bytes of data. */
static fo_status add_tensor(fo_tensor_writer *writer, const char *path, const fo_tensor_info *info,
                            int64_t *end)
{
    int64_t begin = *end, bytes;
    fo_status status = check_tensor(path, writer->root, info);
    if (status != FO_OK)
        return status;
    if (!fo_checkpoint_bytes(info, &bytes) || __builtin_add_overflow(begin, bytes, end) ||
        *end > INT64_MAX - 2 * FO_CHECKPOINT_HEADER_LIMIT)
        return fo_base_error(FO_INVALID, "%s: with tensor '%.200s' the size is beyond 64 bits",
                             path, info->name);
    json_t *entry = entry_of(info, begin, *end);
    if (!entry)
        return fo_base_error(FO_NO_MEMORY, "%s: no memory for its header", path);
    if (json_object_set_new(writer->root, info->name, entry) != 0)
        return fo_base_error(FO_INVALID,
                             "%s: the name of tensor '%.200s' is not UTF-8, expected text", path,
                             info->name);
    const char *name = json_object_iter_key(json_object_iter_at(writer->root, info->name));
    writer->slots[writer->count++] = (slot){.name = name, .begin = begin, .size = bytes};
    return FO_OK;
}

/* The length, the header, and spaces up to a multiple of 8; malloc'ed. */
static fo_status header_bytes(const fo_tensor_writer *writer, const char *path, char **out,
                              int64_t *size)
{
    char *text = json_dumps(writer->root, JSON_COMPACT);
    size_t used = text ? strlen(text) : 0, length = (used + 7) / 8 * 8;
    char *bytes = text ? malloc(8 + length) : NULL;
    fo_status status = FO_OK;
    if (!bytes) {
        status = fo_base_error(FO_NO_MEMORY, "%s: no memory for its header", path);
    } else if (length > (size_t)FO_CHECKPOINT_HEADER_LIMIT) {
        status =
            fo_base_error(FO_INVALID, "%s: its header takes %zu bytes, expected at most %" PRId64,
                          path, length, FO_CHECKPOINT_HEADER_LIMIT);
        free(bytes);
    } else {
        uint64_t stored = length;
        memcpy(bytes, &stored, 8);
        memcpy(bytes + 8, text, used);
        memset(bytes + 8 + used, ' ', length - used);
        *out = bytes;
        *size = 8 + (int64_t)length;
    }
    free(text);
    return status;
}

/* ---- the file -------------------------------------------------------------------------------------- */

/* Puts header and room for `data` bytes on disk. */
static fo_status start_file(fo_tensor_writer *writer, const char *path, int64_t data)
{
    char *header = NULL;
    int64_t size = 0;
    fo_status status = header_bytes(writer, path, &header, &size);
    if (status != FO_OK)
        return status;
    status = fo_checkpoint_temp_open(path, &writer->temp);
    if (status == FO_OK)
        status = fo_checkpoint_temp_reserve(&writer->temp, size + data);
    if (status == FO_OK)
        status = fo_checkpoint_temp_write(&writer->temp, header, size, 0);
    if (status != FO_OK)
        fo_checkpoint_temp_abandon(&writer->temp);
    for (int i = 0; i < writer->count; i++)
        writer->slots[i].begin += size;
    free(header);
    return status;
}

fo_status fo_checkpoint_create(const char *path, const fo_tensor_info *tensors, int count,
                               const char *const *metadata, fo_tensor_writer **writer)
{
    int64_t data = 0;
    if (!path || !writer || count < 0 || (count > 0 && !tensors))
        return fo_base_error(FO_INVALID,
                             "writing tensors needs a path, tensors and room for a writer");
    *writer = NULL;
    fo_tensor_writer *made = calloc(1, sizeof *made);
    if (!made)
        return fo_base_error(FO_NO_MEMORY, "%s: no memory to write it", path);
    made->temp.file = -1;
    made->slots = calloc((size_t)count + 1, sizeof *made->slots);
    made->root = json_object();
    fo_status status = FO_OK;
    if (!made->slots || !made->root)
        status = fo_base_error(FO_NO_MEMORY, "%s: no memory to write it", path);
    else
        status = add_metadata(path, made->root, metadata);
    for (int i = 0; status == FO_OK && i < count; i++)
        status = add_tensor(made, path, &tensors[i], &data);
    if (status == FO_OK)
        status = start_file(made, path, data);
    if (status == FO_OK)
        *writer = made;
    else
        destroy(made);
    return status;
}

fo_status fo_checkpoint_write(fo_tensor_writer *writer, int index, int64_t offset, const void *data,
                              int64_t bytes)
{
    const char *path = writer->temp.path;
    if (index < 0 || index >= writer->count)
        return fo_base_error(FO_INVALID, "%s: tensor number %d was written, it has %d", path, index,
                             writer->count);
    slot *s = &writer->slots[index];
    if (offset < 0 || bytes < 0 || offset > s->size || bytes > s->size - offset)
        return fo_base_error(FO_INVALID,
                             "%s: %" PRId64 " bytes at %" PRId64
                             " of tensor '%.200s' were written, it "
                             "has %" PRId64,
                             path, bytes, offset, s->name, s->size);
    fo_status status = fo_checkpoint_temp_write(&writer->temp, data, bytes, s->begin + offset);
    if (status == FO_OK && __builtin_add_overflow(s->written, bytes, &s->written))
        s->written = INT64_MAX;
    return status;
}

fo_status fo_checkpoint_commit(fo_tensor_writer *writer)
{
    fo_status status = FO_OK;
    if (!writer)
        return fo_base_error(FO_INVALID, "there is no tensor file to finish");
    for (int i = 0; status == FO_OK && i < writer->count; i++) {
        const slot *s = &writer->slots[i];
        if (s->written < s->size)
            status =
                fo_base_error(FO_INVALID,
                              "%s: %" PRId64 " bytes of tensor '%.200s' were written, expected all "
                              "%" PRId64,
                              writer->temp.path, s->written, s->name, s->size);
    }
    if (status == FO_OK)
        status = fo_checkpoint_temp_commit(&writer->temp);
    else
        fo_checkpoint_temp_abandon(&writer->temp);
    destroy(writer);
    return status;
}

void fo_checkpoint_abandon(fo_tensor_writer *writer)
{
    if (!writer)
        return;
    fo_checkpoint_temp_abandon(&writer->temp);
    destroy(writer);
}
