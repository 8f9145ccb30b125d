/* Token files: nanoGPT's and llm.c's. */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "data/state.h"

enum { LLMC_HEADER = 256 * 4 };

typedef struct llmc_kind {
    int32_t magic, version;
    int width;
} llmc_kind;

static const llmc_kind kinds[] = {{20240520, 1, 2}, {20240801, 7, 4}};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

/* Value `index` of the header. */
static int32_t header_value(const fo_data *data, int index)
{
    int32_t value;
    memcpy(&value, data->bytes + 4 * index, sizeof value);
    return value;
}

static const llmc_kind *kind_of(int32_t magic)
{
    for (int i = 0; i < KINDS; i++)
        if (kinds[i].magic == magic)
            return &kinds[i];
    return NULL;
}

static bool is_llmc(const fo_data *data)
{
    if (data->size < LLMC_HEADER)
        return false;
    const llmc_kind *kind = kind_of(header_value(data, 0));
    return kind && header_value(data, 1) == kind->version &&
           data->size == LLMC_HEADER + (int64_t)header_value(data, 2) * kind->width;
}

fo_status fo_data_format_nanogpt(fo_data *data)
{
    if (data->size % 2 != 0)
        return fo_base_error(FO_FORMAT,
                             "%s has %" PRId64
                             " bytes, expected an even number (nanogpt: two bytes "
                             "a token, no header); it is torn or of another format",
                             data->name, data->size);
    if (is_llmc(data))
        return fo_base_error(FO_FORMAT,
                             "%s begins with an llm.c header (%" PRId32 " at offset 0), expected "
                             "nanogpt tokens without a header; use the format llmc",
                             data->name, header_value(data, 0));
    data->tokens = data->bytes;
    data->width = 2;
    data->count = data->size / 2;
    return FO_OK;
}

static fo_status wrong_magic(const fo_data *data, int32_t magic)
{
    if (kind_of((int32_t)__builtin_bswap32((uint32_t)magic)))
        return fo_base_error(FO_FORMAT,
                             "%s has its bytes in big-endian order (%" PRId32 " at offset 0), "
                             "expected little-endian; write it again on a little-endian machine",
                             data->name, magic);
    return fo_base_error(FO_FORMAT,
                         "%s has %" PRId32 " at offset 0, expected %" PRId32
                         " (llm.c tokens of two "
                         "bytes) or %" PRId32 " (of four); it is of another format",
                         data->name, magic, kinds[0].magic, kinds[1].magic);
}

fo_status fo_data_format_llmc(fo_data *data)
{
    if (data->size < LLMC_HEADER)
        return fo_base_error(FO_FORMAT,
                             "%s has %" PRId64 " bytes, expected an llm.c header of %d bytes and "
                             "tokens; it is torn or of another format",
                             data->name, data->size, LLMC_HEADER);
    int32_t magic = header_value(data, 0), version = header_value(data, 1);
    int32_t count = header_value(data, 2);
    const llmc_kind *kind = kind_of(magic);
    if (!kind)
        return wrong_magic(data, magic);
    if (version != kind->version)
        return fo_base_error(FO_FORMAT,
                             "%s has version %" PRId32 " at offset 4, expected %" PRId32 " (llm.c "
                             "tokens of %d bytes); write it again with today's llm.c",
                             data->name, version, kind->version, kind->width);
    if (count <= 0)
        return fo_base_error(FO_FORMAT,
                             "%s has %" PRId32
                             " as number of tokens at offset 8, expected 1 or more",
                             data->name, count);
    int64_t size = LLMC_HEADER + (int64_t)count * kind->width;
    if (data->size != size)
        return fo_base_error(FO_FORMAT,
                             "%s has %" PRId64 " bytes, expected %" PRId64 " (a header of %d and "
                             "%" PRId32 " tokens, by offset 8, of %d bytes each); it is %s",
                             data->name, data->size, size, LLMC_HEADER, count, kind->width,
                             data->size < size ? "torn: copy or write it again"
                                               : "longer than its header says");
    data->header = LLMC_HEADER;
    data->tokens = data->bytes + LLMC_HEADER;
    data->width = kind->width;
    data->count = count;
    return FO_OK;
}
