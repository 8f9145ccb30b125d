/* Sixteen float lanes in GCC's vector extensions, and what is computed on them. Included by the files
 * that are built once an instruction set; everything here is inlined into them. */
#ifndef FO_KERNEL_VEC_MATH_H
#define FO_KERNEL_VEC_MATH_H

#include <math.h>
#include <string.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "base/bf16.h"
#include "kernel/vec/vec.h"

/* The build names the variant: fo_kernel_vec_fill_rows_generic and so on. */
#ifndef FO_VEC_VARIANT
#define FO_VEC_VARIANT generic
#endif
#define FO_VEC_PASTE(name, variant) name##_##variant
#define FO_VEC_EXPAND(name, variant) FO_VEC_PASTE(name, variant)
#define FO_VEC(name) FO_VEC_EXPAND(name, FO_VEC_VARIANT)

#define FO_VEC_INLINE static inline __attribute__((always_inline))

enum { LANES = 16 };
typedef float v16 __attribute__((vector_size(64)));
typedef int32_t i16 __attribute__((vector_size(64)));
typedef uint32_t u16 __attribute__((vector_size(64)));
typedef uint16_t h16 __attribute__((vector_size(32)));
typedef uint16_t h32 __attribute__((vector_size(64)));
typedef uint64_t l8 __attribute__((vector_size(64)));
typedef uint32_t u8 __attribute__((vector_size(32)));
typedef double d8 __attribute__((vector_size(64)));
typedef float v8 __attribute__((vector_size(32)));

FO_VEC_INLINE v16 splat(float value)
{
    return value - (v16){0};
}

FO_VEC_INLINE v16 select16(i16 mask, v16 yes, v16 no)
{
    return (v16)((mask & (i16)yes) | (~mask & (i16)no));
}

/* Lane by lane a > b ? a : b and a < b ? a : b, so b where either is not a number: the processor's own
 * instructions, which the compiler does not find by itself. */
FO_VEC_INLINE v16 max16(v16 a, v16 b)
{
#if defined(__AVX512F__)
    return (v16)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX__)
    __m256 x[2], y[2];
    memcpy(x, &a, sizeof x);
    memcpy(y, &b, sizeof y);
    x[0] = _mm256_max_ps(x[0], y[0]);
    x[1] = _mm256_max_ps(x[1], y[1]);
    memcpy(&a, x, sizeof a);
    return a;
#elif defined(__SSE2__)
    __m128 x[4], y[4];
    memcpy(x, &a, sizeof x);
    memcpy(y, &b, sizeof y);
    for (int i = 0; i < 4; i++)
        x[i] = _mm_max_ps(x[i], y[i]);
    memcpy(&a, x, sizeof a);
    return a;
#else
    return select16(a > b, a, b);
#endif
}

FO_VEC_INLINE v16 min16(v16 a, v16 b)
{
#if defined(__AVX512F__)
    return (v16)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(__AVX__)
    __m256 x[2], y[2];
    memcpy(x, &a, sizeof x);
    memcpy(y, &b, sizeof y);
    x[0] = _mm256_min_ps(x[0], y[0]);
    x[1] = _mm256_min_ps(x[1], y[1]);
    memcpy(&a, x, sizeof a);
    return a;
#elif defined(__SSE2__)
    __m128 x[4], y[4];
    memcpy(x, &a, sizeof x);
    memcpy(y, &b, sizeof y);
    for (int i = 0; i < 4; i++)
        x[i] = _mm_min_ps(x[i], y[i]);
    memcpy(&a, x, sizeof a);
    return a;
#else
    return select16(a < b, a, b);
#endif
}

FO_VEC_INLINE v16 load_f32(const float *x)
{
    v16 v;
    memcpy(&v, x, sizeof v);
    return v;
}

FO_VEC_INLINE void store_f32(float *x, v16 v)
{
    memcpy(x, &v, sizeof v);
}

FO_VEC_INLINE v16 from_bf16(h16 half)
{
    return (v16)(__builtin_convertvector(half, u16) << 16);
}

/* Round to nearest even in the upper half of each lane; the lower half is rubbish. */
FO_VEC_INLINE u16 round_bf16(v16 v)
{
    u16 bits = (u16)v;
    u16 rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
    u16 quiet = bits | 0x400000u;
    u16 nan = (u16)(v != v);
    return (nan & quiet) | (~nan & rounded);
}

FO_VEC_INLINE h16 to_bf16(v16 v)
{
    return __builtin_convertvector(round_bf16(v) >> 16, h16);
}

FO_VEC_INLINE v16 load16(const void *x, fo_dtype dtype, int64_t i)
{
    if (dtype == FO_F32)
        return load_f32((const float *)x + i);
    h16 half;
    memcpy(&half, (const fo_bf16 *)x + i, sizeof half);
    return from_bf16(half);
}

FO_VEC_INLINE void store16(void *x, fo_dtype dtype, int64_t i, v16 v)
{
    if (dtype == FO_F32) {
        store_f32((float *)x + i, v);
    } else {
        h16 half = to_bf16(v);
        memcpy((fo_bf16 *)x + i, &half, sizeof half);
    }
}

/* The first `count` lanes; the others are 0. Loops call this with a constant LANES and treat their tail
 * apart: `for (; i + LANES <= n; ...) part(..., LANES); if (i < n) part(..., n - i);` */
FO_VEC_INLINE v16 load_n(const void *x, fo_dtype dtype, int64_t i, int64_t count)
{
    if (count == LANES)
        return load16(x, dtype, i);
    if (dtype == FO_F32) {
        v16 v = {0};
        memcpy(&v, (const float *)x + i, (size_t)count * sizeof(float));
        return v;
    }
    h16 half = {0};
    memcpy(&half, (const fo_bf16 *)x + i, (size_t)count * sizeof(fo_bf16));
    return from_bf16(half);
}

FO_VEC_INLINE void store_n(void *x, fo_dtype dtype, int64_t i, v16 v, int64_t count)
{
    if (count == LANES) {
        store16(x, dtype, i, v);
    } else if (dtype == FO_F32) {
        memcpy((float *)x + i, &v, (size_t)count * sizeof(float));
    } else {
        h16 half = to_bf16(v);
        memcpy((fo_bf16 *)x + i, &half, (size_t)count * sizeof(fo_bf16));
    }
}

FO_VEC_INLINE i16 lanes_below(int64_t count)
{
    const i16 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    int32_t limit = count > LANES ? LANES : count < 0 ? 0 : (int32_t)count;
    return lane < limit;
}

/* Every lane next to the one 8, 4, 2 and 1 further on. */
static const i16 lanes_8 = {8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7};
static const i16 lanes_4 = {4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11};
static const i16 lanes_2 = {2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13};
static const i16 lanes_1 = {1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14};

FO_VEC_INLINE float sum_lanes(v16 v)
{
    v += __builtin_shuffle(v, lanes_8);
    v += __builtin_shuffle(v, lanes_4);
    v += __builtin_shuffle(v, lanes_2);
    v += __builtin_shuffle(v, lanes_1);
    return v[0];
}

FO_VEC_INLINE float max_lanes(v16 v)
{
    v = max16(v, __builtin_shuffle(v, lanes_8));
    v = max16(v, __builtin_shuffle(v, lanes_4));
    v = max16(v, __builtin_shuffle(v, lanes_2));
    v = max16(v, __builtin_shuffle(v, lanes_1));
    return v[0];
}

FO_VEC_INLINE v16 sqrt16(v16 v)
{
    float x[LANES];
    memcpy(x, &v, sizeof x);
    for (int i = 0; i < LANES; i++)
        x[i] = sqrtf(x[i]);
    memcpy(&v, x, sizeof v);
    return v;
}

/* exp within 2 units in the last place, denormal results too; exp(-inf) = 0, exp(nan) = nan.
 * x = n ln 2 + r with |r| <= ln 2 / 2, a polynomial for e^r, and 2^n by two factors, so that neither
 * leaves the exponent's range. */
FO_VEC_INLINE v16 exp16(v16 x)
{
    const float magic = 0x1.8p23f; /* adding it rounds to an integer kept in the low bits */
    x = max16(splat(-104.5f), min16(splat(89.0f), x)); /* not a number stays */
    v16 shifted = x * 1.44269504088896341f + magic;
    v16 whole = shifted - magic;
    v16 r = x - whole * 0.693359375f; /* exact: 10 bits of ln 2 times at most 8 of n */
    r = r - whole * -2.12194440e-4f;
    v16 q = r * 1.98756912e-4f + 1.39819994e-3f;
    q = q * r + 8.33345205e-3f;
    q = q * r + 4.16657962e-2f;
    q = q * r + 1.66666657e-1f;
    q = q * r + 0.5f;
    q = q * (r * r) + r;
    q = q + 1.0f;
    i16 n = (i16)shifted - 0x4b400000, half = n >> 1;
    return q * (v16)((half + 127) << 23) * (v16)((n - half + 127) << 23);
}

/* 2^x within 2 units in the last place for -126 <= x <= 127; beyond, 2^-126 and 2^127: for sums and
 * products to which such values make no difference. */
FO_VEC_INLINE v16 exp2_narrow16(v16 x)
{
    const float magic = 0x1.8p23f;
    x = max16(splat(-126.0f), min16(splat(127.0f), x));
    v16 shifted = x + magic;
    v16 r = x - (shifted - magic); /* exact */
    v16 q = r * 1.559467816e-4f + 1.340664390e-3f;
    q = q * r + 9.617692973e-3f;
    q = q * r + 5.550310551e-2f;
    q = q * r + 2.402265278e-1f;
    q = q * r + 6.931472150e-1f;
    q = q * r + 1.0f;
    return q * (v16)(((i16)shifted << 23) + 0x3f800000);
}

/* 1 / (1 + exp(-2u)), u = sqrt(2 / pi) (x + 0.044715 x^3): (1 + tanh u) / 2. The constants are
 * -2 sqrt(2 / pi) / ln 2 and 0.044715 of it. */
FO_VEC_INLINE v16 gelu_sigmoid(v16 x)
{
    v16 power = x * (-2.3022081986658464f - 0.10294323960334332f * (x * x));
    return 1.0f / (1.0f + exp2_narrow16(power));
}

FO_VEC_INLINE v16 gelu16(v16 x)
{
    return x * gelu_sigmoid(x);
}

FO_VEC_INLINE v16 gelu_grad16(v16 x)
{
    /* Constant beyond: the polynomial must not overflow against a slope of 0. */
    x = max16(splat(-30.0f), min16(splat(30.0f), x));
    v16 s = gelu_sigmoid(x);
    return s + x * (s * (1.0f - s)) * (1.5957691216057308f + 0.21406443848968608f * (x * x));
}

/* Philox 4x32-10 of eight counters; the first word of each. */
FO_VEC_INLINE u8 random8(uint64_t key, uint64_t stream, l8 index)
{
    const uint64_t low = 0xffffffffu;
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    l8 x0 = index & low, x1 = index >> 32;
    l8 x2 = (l8){0} + (stream & low), x3 = (l8){0} + (stream >> 32);
    for (int round = 0; round < 10; round++) {
        l8 p0 = x0 * 0xD2511F53u, p1 = x2 * 0xCD9E8D57u;
        x0 = (p1 >> 32) ^ x1 ^ (uint64_t)k0;
        x2 = (p0 >> 32) ^ x3 ^ (uint64_t)k1;
        x1 = p1 & low;
        x3 = p0 & low;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return __builtin_convertvector(x0, u8);
}

/* Uniform numbers of indices index, index + step, ... */
FO_VEC_INLINE v16 uniform16(uint64_t key, uint64_t stream, uint64_t index, uint64_t step)
{
    const l8 lane = {0, 1, 2, 3, 4, 5, 6, 7};
    u8 word[2] = {random8(key, stream, index + lane * step),
                  random8(key, stream, index + (lane + 8) * step)};
    u16 all;
    memcpy(&all, word, sizeof all);
    return __builtin_convertvector((i16)(all >> 8), v16) * 0x1p-24f;
}

/* x where kept, scaled, else 0. */
FO_VEC_INLINE v16 drop16(v16 x, v16 uniform, float p)
{
    return select16(uniform >= p, x * (1.0f / (1.0f - p)), (v16){0});
}

#endif
