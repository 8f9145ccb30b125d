/* An open safetensors file; shared by the files of this room only. */
#ifndef FO_CHECKPOINT_TENSORS_H
#define FO_CHECKPOINT_TENSORS_H

#include <jansson.h>
#include <stdbool.h>

#include "checkpoint/checkpoint.h"

/* The format's own limit. */
#define FO_CHECKPOINT_HEADER_LIMIT INT64_C(100000000)

typedef struct fo_checkpoint_entry {
    fo_tensor_info info;
    int64_t begin, end; /* relative to the data */
    int order;          /* place in the header */
} fo_checkpoint_entry;

struct fo_tensor_file {
    char *path;
    const uint8_t *bytes;
    int64_t size;
    bool mapped; /* bytes: mapped, else the caller's */

    json_t *root; /* the header; owns the names and the metadata */
    const json_t *metadata;
    int64_t data; /* offset of the byte after the header */
    fo_checkpoint_entry *entries;
    int count;
    int *by_name; /* indices of entries, sorted by name */
};

/* Reads and validates the header of file->bytes. */
fo_status fo_checkpoint_parse(fo_tensor_file *file);

/* fo_checkpoint_open over memory of the caller, which must stay. `name` appears in messages. */
fo_status fo_checkpoint_open_memory(const char *name, const void *bytes, int64_t size,
                                    fo_tensor_file **file);

/* "F32", "BF16" */
const char *fo_checkpoint_dtype_name(fo_dtype dtype);

/* Bytes of a tensor. False when it does not fit into 64 bits. */
bool fo_checkpoint_bytes(const fo_tensor_info *info, int64_t *bytes);

#endif
