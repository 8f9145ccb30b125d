/* Opening, reading and checking token streams. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "data/state.h"

static const char *const names[] = {
    [FO_DATA_BYTES] = "bytes",
    [FO_DATA_CHAR] = "char",
    [FO_DATA_NANOGPT] = "nanogpt",
    [FO_DATA_LLMC] = "llmc",
};
enum { FORMATS = sizeof names / sizeof names[0] };

fo_status fo_data_format_parse(const char *text, fo_data_format *format)
{
    char known[64] = "";
    size_t used = 0;
    for (int i = 0; i < FORMATS; i++) {
        if (text && strcmp(text, names[i]) == 0) {
            *format = (fo_data_format)i;
            return FO_OK;
        }
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s",
                                 i == 0             ? ""
                                 : i == FORMATS - 1 ? " or "
                                                    : ", ",
                                 names[i]);
    }
    return fo_base_error(FO_INVALID, "'%s' is no data format, expected %s",
                         text ? text : "(nothing)", known);
}

const char *fo_data_format_name(fo_data_format format)
{
    return (unsigned)format < FORMATS ? names[format] : "unknown";
}

/* ---- opening ----------------------------------------------------------------------------------- */

static fo_status interpret(fo_data *data)
{
    switch (data->format) {
    case FO_DATA_CHAR: return fo_data_format_char(data);
    case FO_DATA_NANOGPT: return fo_data_format_nanogpt(data);
    case FO_DATA_LLMC: return fo_data_format_llmc(data);
    case FO_DATA_BYTES: break;
    }
    data->tokens = data->bytes;
    data->width = 1;
    data->count = data->size;
    data->vocabulary = 256;
    return FO_OK;
}

static fo_status create(const char *name, fo_data_format format, fo_data **data)
{
    if (!data || !name)
        return fo_base_error(FO_INVALID, "opening data needs a path and room for the result");
    *data = NULL;
    if ((unsigned)format >= FORMATS)
        return fo_base_error(FO_INVALID, "%s: %d is no data format, expected 0 to %d", name,
                             (int)format, FORMATS - 1);
    fo_data *made = calloc(1, sizeof *made);
    char *copy = strdup(name);
    if (!made || !copy) {
        free(made);
        free(copy);
        return fo_base_error(FO_NO_MEMORY, "%s: no memory to open it", name);
    }
    made->name = copy;
    made->format = format;
    *data = made;
    return FO_OK;
}

/* Keeps what was opened, or closes it. */
static fo_status finish(fo_data **data, fo_status status)
{
    if (status == FO_OK)
        status = interpret(*data);
    if (status != FO_OK) {
        fo_data_close(*data);
        *data = NULL;
    }
    return status;
}

fo_status fo_data_open(const char *path, fo_data_format format, fo_data **data)
{
    fo_status status = create(path, format, data);
    return status == FO_OK ? finish(data, fo_data_source_map(*data)) : status;
}

fo_status fo_data_open_memory(const char *name, const void *bytes, int64_t size,
                              fo_data_format format, fo_data **data)
{
    fo_status status = create(name, format, data);
    if (status != FO_OK)
        return status;
    if (size < 0 || (size > 0 && !bytes))
        status = fo_base_error(FO_INVALID, "%s: %" PRId64 " bytes of memory, expected 0 or more",
                               name, size);
    else
        status = fo_data_source_copy(*data, bytes, size);
    return finish(data, status);
}

void fo_data_close(fo_data *data)
{
    if (!data)
        return;
    fo_data_source_release(data);
    free(data->characters);
    free(data->table_copy);
    free(data->ids);
    free(data->name);
    free(data);
}

/* ---- what it holds ------------------------------------------------------------------------------- */

int64_t fo_data_count(const fo_data *data)
{
    return data->count;
}

int64_t fo_data_vocabulary(const fo_data *data)
{
    return data->vocabulary;
}

const char *fo_data_characters(const fo_data *data)
{
    return data->characters;
}

void fo_data_load(const fo_data *data, int64_t begin, int64_t count, uint32_t *out)
{
    const uint8_t *from = data->tokens + begin * data->width;
    if (data->table) {
        for (int64_t i = 0; i < count; i++)
            out[i] = data->table[from[i]];
    } else if (data->width == 1) {
        for (int64_t i = 0; i < count; i++)
            out[i] = from[i];
    } else if (data->width == 2) {
        for (int64_t i = 0; i < count; i++) {
            uint16_t token;
            memcpy(&token, from + 2 * i, sizeof token);
            out[i] = token;
        }
    } else {
        memcpy(out, from, (size_t)count * sizeof *out);
    }
}

/* Offset in the file of token `index`. */
static int64_t offset_of(const fo_data *data, int64_t index)
{
    if (!data->ids)
        return data->header + index * data->width;
    int64_t offset = 0;
    for (int64_t i = 0; i < index; i++) {
        uint32_t id;
        char bytes[8];
        fo_data_load(data, i, 1, &id);
        offset += fo_data_decode(data->characters, (int32_t)id, bytes);
    }
    return offset;
}

/* First token >= limit in [begin, begin + count), or -1; `block` receives the tokens. */
static int64_t find_above(const uint32_t *block, int64_t count, uint32_t limit)
{
    uint32_t largest = 0;
    for (int64_t i = 0; i < count; i++)
        largest = block[i] > largest ? block[i] : largest;
    if (largest < limit)
        return -1;
    int64_t i = 0;
    while (block[i] < limit)
        i++;
    return i;
}

fo_status fo_data_check(const fo_data *data, int64_t vocabulary)
{
    enum { BLOCK = 4096 };
    uint32_t block[BLOCK];
    if (vocabulary < 1)
        return fo_base_error(FO_INVALID, "%s: the vocabulary is %" PRId64 ", expected 1 or more",
                             data->name, vocabulary);
    if (data->vocabulary > 0 && data->vocabulary <= vocabulary)
        return FO_OK; /* by construction */
    uint32_t limit = vocabulary > INT32_MAX ? 0x80000000u : (uint32_t)vocabulary;
    for (int64_t at = 0; at < data->count; at += BLOCK) {
        int64_t count = data->count - at < BLOCK ? data->count - at : BLOCK;
        fo_data_load(data, at, count, block);
        int64_t found = find_above(block, count, limit);
        if (found >= 0)
            return fo_base_error(FO_FORMAT,
                                 "%s has token %" PRIu32 " at offset %" PRId64 " (token number "
                                 "%" PRId64 "), expected an id below the vocabulary %" PRId64
                                 "; was it made with another tokenizer?",
                                 data->name, block[found], offset_of(data, at + found), at + found,
                                 vocabulary);
    }
    return FO_OK;
}

fo_status fo_data_read(const fo_data *data, int64_t begin, int64_t count, int32_t *out)
{
    if (begin < 0 || count < 0 || begin > data->count || count > data->count - begin)
        return fo_base_error(FO_INVALID,
                             "%s: %" PRId64 " tokens from %" PRId64 " were asked for, it has "
                             "%" PRId64,
                             data->name, count, begin, data->count);
    fo_data_load(data, begin, count, (uint32_t *)out);
    for (int64_t i = 0; data->width == 4 && i < count; i++)
        if (out[i] < 0)
            return fo_base_error(FO_FORMAT,
                                 "%s has token %" PRIu32 " at offset %" PRId64 ", expected ids up "
                                 "to %d; is it of another format?",
                                 data->name, (uint32_t)out[i], offset_of(data, begin + i),
                                 INT32_MAX);
    return FO_OK;
}
