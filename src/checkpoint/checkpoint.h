/* safetensors files, written whole or not at all, and checkpoint directories.
 *
 * Format (github.com/huggingface/safetensors): u64 little-endian header length N; N bytes of JSON
 * beginning with '{', padded with spaces, at most 100 MB; every entry "name": {"dtype": "F32",
 * "shape": [..], "data_offsets": [begin, end]} relative to the byte after the header; optional
 * "__metadata__": map of strings; no duplicate keys, no holes, no overlap; row-major.
 *
 * A checkpoint directory holds step-<8 digits>/ folders, each with model.safetensors (weights, Hugging
 * Face GPT-2 names, so people can open it), optimizer.safetensors and config.json, and a file `latest`
 * naming the newest complete one. Saving: write into a temporary sibling folder, fsync each file and the
 * folder, rename it, then replace `latest` by rename. A crash at any moment leaves the previous one.
 */
#ifndef FO_CHECKPOINT_CHECKPOINT_H
#define FO_CHECKPOINT_CHECKPOINT_H

#include <stdint.h>

#include "flashoverlap/group.h"

enum { FO_TENSOR_DIMS = 4 };

typedef struct fo_tensor_info {
    const char *name;
    fo_dtype dtype; /* F32 and BF16 are read and written; others are refused by name when read */
    int dims;       /* 0..4 */
    int64_t shape[FO_TENSOR_DIMS];
} fo_tensor_info;

/* ---- reading ---- */
typedef struct fo_tensor_file fo_tensor_file;
/* Opens (maps) and validates the whole header. FO_IO, FO_FORMAT with path, what was found, expected. */
fo_status fo_checkpoint_open(const char *path, fo_tensor_file **file);
void fo_checkpoint_close(fo_tensor_file *file);
int fo_checkpoint_count(const fo_tensor_file *file);
/* Info owned by the file; tensors in order of their offsets. */
const fo_tensor_info *fo_checkpoint_info(const fo_tensor_file *file, int index);
/* Index by name, -1 when missing. */
int fo_checkpoint_find(const fo_tensor_file *file, const char *name);
/* The mapped data, as stored (little-endian), not necessarily aligned. */
const void *fo_checkpoint_data(const fo_tensor_file *file, int index);
/* Value of a __metadata__ key, NULL when missing. */
const char *fo_checkpoint_metadata(const fo_tensor_file *file, const char *key);
/* Copies a rectangle as float32: the tensor is seen as [rows, cols] (a vector as one row); rows [row,
 * row + count), columns [col, col + width) to out [count, width], or out [width, count] when
 * transpose is set. FO_INVALID out of range. */
fo_status fo_checkpoint_read_f32(const fo_tensor_file *file, int index, int64_t row, int64_t count,
                                 int64_t col, int64_t width, int transpose, float *out);

/* ---- writing ---- */
typedef struct fo_tensor_writer fo_tensor_writer;
/* Creates path (which must not be looked at before fo_checkpoint_commit): all tensors and their order
 * are declared first; metadata: pairs of key, value, NULL-terminated, may be NULL. The file is written
 * under a temporary name beside it. */
fo_status fo_checkpoint_create(const char *path, const fo_tensor_info *tensors, int count,
                               const char *const *metadata, fo_tensor_writer **writer);
/* Writes `bytes` bytes of tensor `index` at byte offset `offset` of that tensor. Any order. */
fo_status fo_checkpoint_write(fo_tensor_writer *writer, int index, int64_t offset, const void *data,
                              int64_t bytes);
/* Flushes to disk and renames. Frees the writer, also on failure (then the temporary file is gone). */
fo_status fo_checkpoint_commit(fo_tensor_writer *writer);
/* Removes the temporary file and frees. */
void fo_checkpoint_abandon(fo_tensor_writer *writer);

/* ---- directories ---- */
/* Makes the directory if missing and proves that a file can be written there. FO_IO says why not. */
fo_status fo_checkpoint_directory_check(const char *directory);
/* Makes <directory>/.tmp-step-<step>-<pid>; its path to out. Leftovers of earlier crashes are removed. */
fo_status fo_checkpoint_directory_begin(const char *directory, int64_t step, char *out,
                                        size_t out_size);
/* Syncs and renames it to step-<8 digits>, then points `latest` at it. Older ones beyond `keep` (>= 1)
 * are removed. */
fo_status fo_checkpoint_directory_commit(const char *directory, int64_t step, int keep);
/* Path of the newest complete checkpoint. `path` may be the parent directory or a step folder itself.
 * FO_IO: none there, with what was looked for. */
fo_status fo_checkpoint_directory_latest(const char *path, char *out, size_t out_size);

/* Small text files: written beside, fsync, rename. Read: malloc'ed, NUL-terminated; refuses > 64 MB. */
fo_status fo_checkpoint_write_text(const char *path, const char *text);
fo_status fo_checkpoint_read_text(const char *path, char **text);

#endif
