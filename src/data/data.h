/* Token streams: raw text (bytes or the file's own characters) and the token files people have.
 *
 * Formats. bytes: any file, vocabulary 256. char: UTF-8 text, vocabulary = its sorted unique
 * characters (code points), as nanoGPT's Shakespeare example. nanogpt: headerless little-endian
 * uint16. llmc: 256 x int32 header ([0] 20240520, [1] 1, [2] count, then uint16; or [0] 20240801,
 * [1] 7, then uint32), file size exactly header + count * width. A file is mapped, not read; offsets
 * are 64-bit. Thread-safe after opening. */
#ifndef FO_DATA_DATA_H
#define FO_DATA_DATA_H

#include <stdint.h>

#include "flashoverlap/status.h"

typedef enum fo_data_format {
    FO_DATA_BYTES,
    FO_DATA_CHAR,
    FO_DATA_NANOGPT,
    FO_DATA_LLMC
} fo_data_format;

typedef struct fo_data fo_data;

/* "bytes", "char", "nanogpt", "llmc"; FO_INVALID names the known ones. */
fo_status fo_data_format_parse(const char *text, fo_data_format *format);
const char *fo_data_format_name(fo_data_format format);

/* Opens a file. FO_IO: missing, unreadable; FO_FORMAT: empty, torn, wrong header, invalid UTF-8 for
 * char (with the offset). The sentence names the path, what was found and what was expected. */
fo_status fo_data_open(const char *path, fo_data_format format, fo_data **data);
/* The same over memory (copied). `name` appears in messages. */
fo_status fo_data_open_memory(const char *name, const void *bytes, int64_t size,
                              fo_data_format format, fo_data **data);
void fo_data_close(fo_data *data);

/* Tokens in the stream. */
int64_t fo_data_count(const fo_data *data);
/* Vocabulary: 256; number of characters; for token files 0 (unknown: the model's counts). */
int64_t fo_data_vocabulary(const fo_data *data);
/* Scans all tokens: FO_FORMAT with the offset and id of the first token >= vocabulary. */
fo_status fo_data_check(const fo_data *data, int64_t vocabulary);
/* Copies tokens [begin, begin + count) to out. FO_INVALID when out of range. */
fo_status fo_data_read(const fo_data *data, int64_t begin, int64_t count, int32_t *out);

/* The characters of a char vocabulary as UTF-8 text, in id order; NULL for other formats. Owned by
 * data. */
const char *fo_data_characters(const fo_data *data);

/* Text <-> tokens. `characters` as fo_data_characters gave it (kept in checkpoints), or NULL for bytes.
 * encode: *tokens is malloc'ed, caller frees; FO_INVALID names a character outside the vocabulary and
 * its offset. decode: writes the UTF-8 bytes of one token to out (at least 8 bytes), returns how many. */
fo_status fo_data_encode(const char *characters, const char *text, int32_t **tokens,
                         int64_t *count);
int fo_data_decode(const char *characters, int32_t token, char out[8]);

/* Training and held-out parts and batches. Train: tokens [0, split), held-out: [split, count), with
 * split = floor(count * 9 / 10). A sequence needs context + 1 tokens.
 * FO_FORMAT when a part is shorter than one sequence, with the number of tokens found and needed. */
fo_status fo_data_check_length(const fo_data *data, int64_t context);

/* The batch of one micro-step: `batch` sequences; sequence b starts at a position drawn uniformly from
 * the part by fo_base_random_below(seed, stream, index = step * batch + b), so a batch is a pure
 * function of (seed, step) and the same for every number of ranks. inputs, targets: [batch, context],
 * targets shifted by one. stream: separates training from evaluation. */
fo_status fo_data_batch(const fo_data *data, int held_out, uint64_t seed, int64_t step,
                        int64_t batch, int64_t context, int32_t *inputs, int32_t *targets);

#endif
