/* What an open token stream is made of; shared by the files of this room only. */
#ifndef FO_DATA_STATE_H
#define FO_DATA_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "data/data.h"

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "token files are little-endian and are read in place: build on a little-endian host"
#endif
_Static_assert(sizeof(off_t) == 8, "files beyond 2 GiB need a 64-bit off_t");

struct fo_data {
    char *name; /* path, or what the caller called the memory; for messages */
    fo_data_format format;
    const uint8_t *bytes; /* the file; NULL once a text was turned into ids */
    int64_t size;
    bool mapped; /* bytes: mapped, else malloc'ed */

    const uint8_t *tokens; /* count tokens of width 1, 2 or 4 bytes, little-endian, any alignment */
    int64_t count;
    int width;
    int64_t header;       /* bytes before the first token */
    const uint8_t *table; /* 256 bytes: byte -> id, for one-byte characters in place; else NULL */

    int64_t vocabulary;  /* 0: unknown */
    char *characters;    /* char: the vocabulary as UTF-8, NUL-terminated */
    uint8_t *table_copy; /* owns table */
    uint8_t *ids;        /* owns tokens when some character takes more than one byte */
};

/* Tokens [begin, begin + count), which must be in range, as stored. */
void fo_data_load(const fo_data *data, int64_t begin, int64_t count, uint32_t *out);

/* ---- source.c: the bytes ------------------------------------------------------------------------ */

/* Maps data->name; FO_IO when it can't, FO_FORMAT when it is empty. */
fo_status fo_data_source_map(fo_data *data);
fo_status fo_data_source_copy(fo_data *data, const void *bytes, int64_t size);
void fo_data_source_release(fo_data *data);

/* ---- format.c, text.c: from bytes to tokens ----------------------------------------------------- */

fo_status fo_data_format_nanogpt(fo_data *data);
fo_status fo_data_format_llmc(fo_data *data);
fo_status fo_data_format_char(fo_data *data);

/* ---- utf8.c --------------------------------------------------------------------------------------- */

enum { FO_DATA_CODES = 0x110000 };

/* Decodes the character at `at` of which `left` >= 1 bytes are there. NULL and *code, *length; or why it
 * is none, in words. Strict: no overlong forms, no surrogates, nothing above U+10FFFF. */
const char *fo_data_utf8_decode(const uint8_t *at, int64_t left, uint32_t *code, int *length);
/* Bytes of a valid code point: 1 to 4. */
int fo_data_utf8_length(uint32_t code);
/* Writes them, returns how many. */
int fo_data_utf8_encode(uint32_t code, char *out);

#endif
