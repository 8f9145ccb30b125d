#include "base/random.h"

#include <math.h>

void fo_base_random_block(uint64_t key, uint64_t counter_high, uint64_t counter_low,
                          uint32_t out[4])
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t x0 = (uint32_t)counter_low, x1 = (uint32_t)(counter_low >> 32);
    uint32_t x2 = (uint32_t)counter_high, x3 = (uint32_t)(counter_high >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * x0, p1 = (uint64_t)0xCD9E8D57u * x2;
        uint32_t y0 = (uint32_t)(p1 >> 32) ^ x1 ^ k0, y2 = (uint32_t)(p0 >> 32) ^ x3 ^ k1;
        x1 = (uint32_t)p1;
        x3 = (uint32_t)p0;
        x0 = y0;
        x2 = y2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = x0;
    out[1] = x1;
    out[2] = x2;
    out[3] = x3;
}

float fo_base_random_uniform(uint64_t key, uint64_t stream, uint64_t index)
{
    uint32_t word[4];
    fo_base_random_block(key, stream, index, word);
    return (float)(word[0] >> 8) * 0x1p-24f;
}

float fo_base_random_normal(uint64_t key, uint64_t stream, uint64_t index)
{
    uint32_t word[4];
    fo_base_random_block(key, stream, index, word);
    double u = ((double)word[0] + 1.0) * 0x1p-32; /* (0, 1] */
    double v = (double)word[1] * 0x1p-32;
    return (float)(sqrt(-2.0 * log(u)) * cos(6.283185307179586477 * v));
}

uint64_t fo_base_random_below(uint64_t key, uint64_t stream, uint64_t index, uint64_t bound)
{
    uint64_t limit = UINT64_MAX - UINT64_MAX % bound; /* multiple of bound: values below are fair */
    for (uint64_t attempt = 0;; attempt++) {
        uint32_t word[4];
        fo_base_random_block(key ^ (attempt * 0x9E3779B97F4A7C15u), stream, index, word);
        uint64_t value = (uint64_t)word[1] << 32 | word[0];
        if (value < limit)
            return value % bound;
    }
}

uint64_t fo_base_random_stream(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return hash;
}
