/* Any bytes as a token stream: opened or refused with a sentence; what is opened can be read whole. */
#ifndef TESTS_FUZZ_DATA_TARGET_H
#define TESTS_FUZZ_DATA_TARGET_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "data/data.h"
#include "fuzz/check.h"

/* The vocabulary turns the whole text into the tokens that were stored, and these back into the text. */
static inline void fuzz_characters(const fo_data *data, const int32_t *tokens, const uint8_t *bytes,
                                   size_t size)
{
    const char *characters = fo_data_characters(data);
    char *text = malloc(size + 1), out[8];
    int32_t *encoded = NULL;
    int64_t count = -1;
    size_t at = 0;
    FUZZ_CHECK(text && characters);
    memcpy(text, bytes, size);
    text[size] = '\0';
    FUZZ_CHECK(fo_data_encode(characters, text, &encoded, &count) == FO_OK);
    FUZZ_CHECK(count == fo_data_count(data));
    FUZZ_CHECK(memcmp(encoded, tokens, (size_t)count * sizeof *tokens) == 0);
    for (int64_t i = 0; i < count; i++) {
        int length = fo_data_decode(characters, tokens[i], out);
        FUZZ_CHECK(length > 0 && at + (size_t)length <= size);
        FUZZ_CHECK(memcmp(out, text + at, (size_t)length) == 0);
        at += (size_t)length;
    }
    FUZZ_CHECK(at == size);
    free(encoded);
    free(text);
}

static inline void fuzz_parts(const fo_data *data)
{
    int32_t inputs[6], targets[6];
    for (int held_out = 0; held_out < 2; held_out++) {
        fo_status status = fo_data_batch(data, held_out, 1, 2, 2, 3, inputs, targets);
        if (status == FO_OK)
            FUZZ_CHECK(inputs[1] == targets[0] && inputs[5] == targets[4]);
    }
    fo_data_check_length(data, 3);
}

/* Returns whether it was opened. */
static inline int fuzz_data(const uint8_t *bytes, size_t size, fo_data_format format)
{
    fo_data *data = NULL;
    fo_status status = fo_data_open_memory("fuzz", bytes, (int64_t)size, format, &data);
    if (status != FO_OK) {
        FUZZ_CHECK(status == FO_FORMAT && !data && fo_last_error()[0]);
        return 0;
    }
    int64_t count = fo_data_count(data);
    int32_t *tokens = malloc((size_t)count * sizeof *tokens);
    FUZZ_CHECK(tokens && count > 0 && count <= (int64_t)size);
    status = fo_data_read(data, 0, count, tokens);
    FUZZ_CHECK(status == FO_OK || (status == FO_FORMAT && format == FO_DATA_LLMC));
    FUZZ_CHECK(fo_data_read(data, 1, count, tokens) == FO_INVALID);
    if (fo_data_check(data, 64) == FO_OK && status == FO_OK)
        for (int64_t i = 0; i < count; i++)
            FUZZ_CHECK(tokens[i] >= 0 && tokens[i] < 64);
    if (format == FO_DATA_CHAR)
        fuzz_characters(data, tokens, bytes, size);
    fuzz_parts(data);
    free(tokens);
    fo_data_close(data);
    return 1;
}

#endif
