/* UTF-8, by table 3-7 of the Unicode standard. */
#include "data/state.h"

int fo_data_utf8_length(uint32_t code)
{
    return code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
}

int fo_data_utf8_encode(uint32_t code, char *out)
{
    static const uint8_t lead[5] = {0, 0, 0xc0, 0xe0, 0xf0};
    int length = fo_data_utf8_length(code);
    for (int i = length - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (code & 0x3f));
        code >>= 6;
    }
    out[0] = (char)(lead[length] | code);
    return length;
}

const char *fo_data_utf8_decode(const uint8_t *at, int64_t left, uint32_t *code, int *length)
{
    uint32_t first = at[0];
    if (first < 0x80) {
        *code = first;
        *length = 1;
        return NULL;
    }
    if (first < 0xc0)
        return "a continuation byte that continues nothing";
    if (first > 0xf7)
        return "a byte that UTF-8 never has";
    int needed = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    uint32_t value = first & (0x7fu >> needed);
    for (int i = 1; i < needed; i++) {
        if (i >= left || (at[i] & 0xc0) != 0x80)
            return "a character cut short";
        value = value << 6 | (at[i] & 0x3fu);
    }
    if (fo_data_utf8_length(value) != needed)
        return "a character written longer than needed";
    if (value >= 0xd800 && value < 0xe000)
        return "half of a UTF-16 pair";
    if (value >= FO_DATA_CODES)
        return "a code point above U+10FFFF";
    *code = value;
    *length = needed;
    return NULL;
}
