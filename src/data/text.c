/* Texts as characters: the vocabulary of a text, and text to tokens and back. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "data/state.h"

/* ---- the vocabulary of a text ------------------------------------------------------------------ */

enum { WORDS = FO_DATA_CODES / 64 };

/* Which code points a text has. */
typedef struct census {
    uint64_t *seen; /* [WORDS] a bit for each code point */
    int64_t count;  /* characters of the text */
    int64_t distinct;
    int64_t bytes; /* of the distinct characters, one after the other */
} census;

/* The first code point of the text from `code` on; FO_DATA_CODES: none. */
static uint32_t next_seen(const census *c, uint32_t code)
{
    for (uint32_t word = code / 64; word < WORDS; word++) {
        uint64_t bits = c->seen[word];
        if (word == code / 64)
            bits &= UINT64_MAX << (code % 64);
        if (bits)
            return word * 64 + (uint32_t)__builtin_ctzll(bits);
    }
    return FO_DATA_CODES;
}

static fo_status count_characters(const fo_data *data, census *c)
{
    for (int64_t at = 0; at < data->size; c->count++) {
        uint32_t code;
        int length;
        const char *wrong = fo_data_utf8_decode(data->bytes + at, data->size - at, &code, &length);
        if (wrong)
            return fo_base_error(FO_FORMAT,
                                 "%s has %s (0x%02x) at offset %" PRId64 ", expected UTF-8 text; "
                                 "convert it, or use the format bytes",
                                 data->name, wrong, data->bytes[at], at);
        if (code == 0)
            return fo_base_error(FO_FORMAT,
                                 "%s has a zero byte at offset %" PRId64 ", expected text; use the "
                                 "format bytes for what is no text",
                                 data->name, at);
        c->seen[code / 64] |= UINT64_C(1) << (code % 64);
        at += length;
    }
    for (uint32_t code = next_seen(c, 0); code < FO_DATA_CODES; code = next_seen(c, code + 1)) {
        c->distinct++;
        c->bytes += fo_data_utf8_length(code);
    }
    return FO_OK;
}

static fo_status no_memory(const fo_data *data)
{
    return fo_base_error(FO_NO_MEMORY,
                         "%s: no memory for its characters (%" PRId64 " bytes of text)", data->name,
                         data->size);
}

static fo_status list_characters(fo_data *data, const census *c)
{
    data->characters = malloc((size_t)c->bytes + 1);
    if (!data->characters)
        return no_memory(data);
    char *out = data->characters;
    for (uint32_t code = next_seen(c, 0); code < FO_DATA_CODES; code = next_seen(c, code + 1))
        out += fo_data_utf8_encode(code, out);
    *out = '\0';
    data->vocabulary = c->distinct;
    return FO_OK;
}

/* Every character is one byte: the text stays where it is and a table gives the ids. */
static fo_status make_table(fo_data *data, const census *c)
{
    uint8_t *table = calloc(256, 1), id = 0;
    if (!table)
        return no_memory(data);
    for (uint32_t byte = next_seen(c, 0); byte < 128; byte = next_seen(c, byte + 1))
        table[byte] = id++;
    data->table_copy = table;
    data->table = table;
    data->tokens = data->bytes;
    data->width = 1;
    return FO_OK;
}

/* Characters of several bytes: ids of equal width take the place of the text. An id is the number of
 * smaller characters: those of earlier words, and those below in the character's own. */
static fo_status make_ids(fo_data *data, const census *c)
{
    int width = c->distinct <= 0x100 ? 1 : c->distinct <= 0x10000 ? 2 : 4;
    uint32_t *before = malloc(WORDS * sizeof *before), sum = 0;
    uint8_t *out =
        (uint64_t)c->count <= SIZE_MAX / 8 ? malloc((size_t)c->count * (size_t)width) : NULL;
    data->ids = out;
    if (!before || !out) {
        free(before);
        return no_memory(data);
    }
    for (int word = 0; word < WORDS; word++) {
        before[word] = sum;
        sum += (uint32_t)__builtin_popcountll(c->seen[word]);
    }
    for (int64_t at = 0; at < data->size; out += width) {
        uint32_t code = 0;
        int length = 1;
        fo_data_utf8_decode(data->bytes + at, data->size - at, &code, &length);
        uint64_t below = c->seen[code / 64] & ((UINT64_C(1) << (code % 64)) - 1);
        uint32_t id = before[code / 64] + (uint32_t)__builtin_popcountll(below);
        memcpy(out, &id, (size_t)width); /* little-endian host */
        at += length;
    }
    free(before);
    fo_data_source_release(data);
    data->tokens = data->ids;
    data->width = width;
    return FO_OK;
}

fo_status fo_data_format_char(fo_data *data)
{
    census c = {.seen = calloc(WORDS, sizeof *c.seen)};
    fo_status status = c.seen ? count_characters(data, &c) : no_memory(data);
    if (status == FO_OK)
        status = list_characters(data, &c);
    if (status == FO_OK)
        status = c.bytes == c.distinct ? make_table(data, &c) : make_ids(data, &c);
    data->count = c.count;
    free(c.seen);
    return status;
}

/* ---- text to tokens and back ------------------------------------------------------------------- */

static fo_status encode_bytes(const char *text, int64_t size, int32_t *tokens)
{
    for (int64_t i = 0; i < size; i++)
        tokens[i] = (unsigned char)text[i];
    return FO_OK;
}

/* The code points of a vocabulary, which must be in ascending order. */
static fo_status read_characters(const char *characters, uint32_t *codes, int64_t *count)
{
    int64_t size = (int64_t)strlen(characters), n = 0;
    for (int64_t at = 0; at < size; n++) {
        int length;
        const char *wrong =
            fo_data_utf8_decode((const uint8_t *)characters + at, size - at, &codes[n], &length);
        if (wrong || (n > 0 && codes[n] <= codes[n - 1]))
            return fo_base_error(FO_INVALID,
                                 "the vocabulary has %s at offset %" PRId64
                                 ", expected distinct characters of UTF-8 in ascending order",
                                 wrong ? wrong : "a character out of order", at);
        at += length;
    }
    *count = n;
    return FO_OK;
}

static int compare_codes(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static fo_status encode_characters(const uint32_t *codes, int64_t count, const char *text,
                                   int64_t size, int32_t *tokens, int64_t *written)
{
    int64_t n = 0;
    for (int64_t at = 0; at < size; n++) {
        uint32_t code;
        int length;
        const char *wrong =
            fo_data_utf8_decode((const uint8_t *)text + at, size - at, &code, &length);
        if (wrong)
            return fo_base_error(FO_INVALID,
                                 "the text has %s (0x%02x) at offset %" PRId64 ", expected UTF-8",
                                 wrong, (unsigned char)text[at], at);
        const uint32_t *found = bsearch(&code, codes, (size_t)count, sizeof *codes, compare_codes);
        if (!found)
            return fo_base_error(FO_INVALID,
                                 "the text has '%.*s' (U+%04" PRIX32 ") at offset %" PRId64
                                 ", expected one of the %" PRId64 " characters the vocabulary has",
                                 code < 0x20 || code == 0x7f ? 0 : length, text + at, code, at,
                                 count);
        tokens[n] = (int32_t)(found - codes);
        at += length;
    }
    *written = n;
    return FO_OK;
}

fo_status fo_data_encode(const char *characters, const char *text, int32_t **tokens, int64_t *count)
{
    if (!text || !tokens || !count)
        return fo_base_error(FO_INVALID, "encoding needs a text and room for its tokens");
    int64_t size = (int64_t)strlen(text), known = 0, written = size;
    int32_t *out = malloc((size_t)(size + 1) * sizeof *out);
    uint32_t *codes = characters ? malloc((strlen(characters) + 1) * sizeof *codes) : NULL;
    fo_status status = FO_OK;
    if (!out || (characters && !codes))
        status = fo_base_error(FO_NO_MEMORY,
                               "no memory for the tokens of a text of %" PRId64 " bytes", size);
    else if (!characters)
        status = encode_bytes(text, size, out);
    else if ((status = read_characters(characters, codes, &known)) == FO_OK)
        status = encode_characters(codes, known, text, size, out, &written);
    free(codes);
    if (status != FO_OK) {
        free(out);
        return status;
    }
    *tokens = out;
    *count = written;
    return FO_OK;
}

int fo_data_decode(const char *characters, int32_t token, char out[8])
{
    if (token < 0 || !out)
        return 0;
    if (!characters) {
        out[0] = (char)token;
        return token < 256;
    }
    int64_t left = (int64_t)strlen(characters);
    for (const char *at = characters; left > 0; token--) {
        uint32_t code;
        int length;
        if (fo_data_utf8_decode((const uint8_t *)at, left, &code, &length))
            return 0;
        if (token == 0) {
            memcpy(out, at, (size_t)length);
            return length;
        }
        at += length;
        left -= length;
    }
    return 0;
}
