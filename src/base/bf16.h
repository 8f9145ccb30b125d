/* bfloat16: the upper half of a float32. */
#ifndef FO_BASE_BF16_H
#define FO_BASE_BF16_H

#include <stdint.h>
#include <string.h>

typedef uint16_t fo_bf16;

static inline float fo_base_bf16_to_f32(fo_bf16 value)
{
    uint32_t bits = (uint32_t)value << 16;
    float out;
    memcpy(&out, &bits, sizeof out);
    return out;
}

/* Round to nearest even; NaN stays NaN (quiet). */
static inline fo_bf16 fo_base_bf16_from_f32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (fo_bf16)((bits >> 16) | 0x40u);
    return (fo_bf16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

#endif
