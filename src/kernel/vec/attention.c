/* The elementwise parts of attention, vectorised. */
#include "kernel/vec/fill.h"
#include "kernel/vec/math.h"

static const float per_ln2 = 1.44269504088896341f; /* exp(x) = 2^(x / ln 2) */

/* 2^x for probabilities, at least 2^-126; rubbish beyond x = 127, where only masked scores are. For
 * float32 within 2 units in the last place, for bf16 within a relative error of 3e-6, a thousandth of
 * what its rounding makes. */
FO_VEC_INLINE v16 exp2_part16(v16 x, fo_dtype dtype)
{
    const float magic = 0x1.8p23f;
    x = max16(splat(-126.0f), x); /* not a number stays */
    v16 shifted = x + magic, q;
    v16 r = x - (shifted - magic);
    if (dtype == FO_BF16) {
        q = r * 9.582853756e-3f + 5.590642892e-2f;
        q = q * r + 2.402409863e-1f;
        q = q * r + 6.931241929e-1f;
    } else {
        q = r * 1.559467816e-4f + 1.340664390e-3f;
        q = q * r + 9.617692973e-3f;
        q = q * r + 5.550310551e-2f;
        q = q * r + 2.402265278e-1f;
        q = q * r + 6.931472150e-1f;
    }
    q = q * r + 1.0f;
    return q * (v16)(((u16)shifted << 23) + 0x3f800000u);
}

/* Two vectors of p or ds in T. With T = bf16 all comes from bf16 values and is rounded to nearest, the
 * middle upwards: the upper halves of the sums are taken, even words being the lower halves. */
FO_VEC_INLINE void store_pair(void *x, fo_dtype dtype, int64_t i, v16 a, v16 b)
{
    if (dtype == FO_F32) {
        store_f32((float *)x + i, a);
        store_f32((float *)x + i + LANES, b);
        return;
    }
    const h32 odd = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                     33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
    u16 up = (u16)a + 0x8000u, down = (u16)b + 0x8000u;
    h32 both = __builtin_shuffle((h32)up, (h32)down, odd);
    memcpy((fo_bf16 *)x + i, &both, sizeof both);
}

/* One row of scores: query q of the head by keys from `first` on, `valid` of them up to the diagonal. */
typedef struct softmax_of {
    const float *scores;
    int64_t q, first, valid;
    float scale2, max; /* scale / ln 2 */
    const fo_kernel_attention_drop *drop;
} softmax_of;

FO_VEC_INLINE v16 softmax_part(const softmax_of *s, fo_dtype dtype, int64_t j, v16 *total,
                               bool masked)
{
    v16 e = exp2_part16((load_f32(s->scores + j) - s->max) * s->scale2, dtype);
    if (masked)
        e = select16(lanes_below(s->valid - j), e, (v16){0});
    *total += e;
    if (s->drop->p > 0.0f) {
        uint64_t index = (uint64_t)(s->q * s->drop->context + s->first + j);
        e = drop16(e, uniform16(s->drop->key, s->drop->stream, index, 1), s->drop->p);
    }
    return e;
}

FO_VEC_INLINE float softmax_max(const softmax_of *s)
{
    v16 a = splat(-INFINITY), b = a;
    int64_t j = 0;
    for (; j + 2 * LANES <= s->valid; j += 2 * LANES) {
        a = max16(load_f32(s->scores + j), a);
        b = max16(load_f32(s->scores + j + LANES), b);
    }
    for (; j < s->valid; j += LANES)
        a = max16(select16(lanes_below(s->valid - j), load_f32(s->scores + j), a), a);
    return max_lanes(max16(a, b));
}

/* The sum of the row. */
FO_VEC_INLINE float softmax_row(const softmax_of *s, int64_t n, void *p, fo_dtype dtype, int64_t at)
{
    v16 a = {0}, b = {0};
    int64_t j = 0;
    for (; j + 2 * LANES <= s->valid; j += 2 * LANES) {
        v16 x = softmax_part(s, dtype, j, &a, false);
        store_pair(p, dtype, at + j, x, softmax_part(s, dtype, j + LANES, &b, false));
    }
    for (; j < s->valid; j += 2 * LANES) {
        v16 x = softmax_part(s, dtype, j, &a, true);
        store_pair(p, dtype, at + j, x, softmax_part(s, dtype, j + LANES, &b, true));
    }
    for (; j < n; j += 2 * LANES)
        store_pair(p, dtype, at + j, (v16){0}, (v16){0});
    return sum_lanes(a + b);
}

static void attention_softmax(const float *scores, int64_t q, int64_t rows, int64_t k, int64_t n,
                              float scale, const fo_kernel_attention_drop *drop, void *p,
                              fo_dtype dtype, float *max, float *sum, float *factor)
{
    for (int64_t row = 0; row < rows; row++) {
        softmax_of s = {.scores = scores + row * n,
                        .q = q + row,
                        .first = k,
                        .valid = q + row + 1 - k,
                        .scale2 = scale * per_ln2,
                        .drop = drop};
        if (s.valid > n)
            s.valid = n;
        s.max = softmax_max(&s);
        s.max = s.max > max[row] ? s.max : max[row];
        factor[row] = exp2_narrow16(splat((max[row] - s.max) * s.scale2))[0];
        max[row] = s.max;
        float more = dtype == FO_BF16 ? softmax_row(&s, n, p, FO_BF16, row * n)
                                      : softmax_row(&s, n, p, FO_F32, row * n);
        sum[row] = sum[row] * factor[row] + more;
    }
}

static void scale_rows(float *x, const float *factor, int64_t rows, int64_t n)
{
    for (int64_t row = 0; row < rows; row++, x += n) {
        int64_t i = 0;
        for (; i + LANES <= n; i += LANES)
            store_f32(x + i, load_f32(x + i) * factor[row]);
        if (i < n)
            store_n(x, FO_F32, i, load_n(x, FO_F32, i, n - i) * factor[row], n - i);
    }
}

/* One row of transposed scores: key k of the head against queries first, first + 1, ... */
typedef struct softmax_grad_of {
    const float *scores, *dp, *lse2, *total;
    int64_t k, first;
    float scale, scale2;
    const fo_kernel_attention_drop *drop;
} softmax_grad_of;

/* *p and *ds of the queries j, j + 1, ... */
FO_VEC_INLINE void softmax_grad_part(const softmax_grad_of *s, fo_dtype dtype, int64_t j, v16 *p,
                                     v16 *ds, bool masked)
{
    v16 e = exp2_part16(load_f32(s->scores + j) * s->scale2 - load_f32(s->lse2 + j), dtype);
    v16 d = load_f32(s->dp + j);
    if (masked) /* queries before the key */
        e = select16(lanes_below(s->k - s->first - j), (v16){0}, e);
    *p = e;
    if (s->drop->p > 0.0f) {
        v16 uniform = uniform16(s->drop->key, s->drop->stream,
                                (uint64_t)((s->first + j) * s->drop->context + s->k),
                                (uint64_t)s->drop->context);
        *p = drop16(e, uniform, s->drop->p);
        d = drop16(d, uniform, s->drop->p);
    }
    *ds = e * (d - load_f32(s->total + j)) * s->scale;
}

FO_VEC_INLINE void softmax_grad_pair(const softmax_grad_of *s, int64_t j, void *p, void *ds,
                                     fo_dtype dtype, int64_t at, bool masked)
{
    v16 p2[2], ds2[2];
    softmax_grad_part(s, dtype, j, &p2[0], &ds2[0], masked);
    softmax_grad_part(s, dtype, j + LANES, &p2[1], &ds2[1], masked);
    store_pair(p, dtype, at + j, p2[0], p2[1]);
    store_pair(ds, dtype, at + j, ds2[0], ds2[1]);
}

FO_VEC_INLINE void softmax_grad_row(const softmax_grad_of *s, int64_t n, void *p, void *ds,
                                    fo_dtype dtype, int64_t at)
{
    int64_t j = 0;
    for (; j < n && j < s->k - s->first; j += 2 * LANES)
        softmax_grad_pair(s, j, p, ds, dtype, at, true);
    for (; j < n; j += 2 * LANES)
        softmax_grad_pair(s, j, p, ds, dtype, at, false);
}

static void attention_softmax_grad(const float *scores, const float *dp, int64_t k, int64_t rows,
                                   int64_t first, int64_t n, float scale,
                                   const fo_kernel_attention_drop *drop, const float *lse2,
                                   const float *total, void *p, void *ds, fo_dtype dtype)
{
    for (int64_t row = 0; row < rows; row++) {
        softmax_grad_of s = {.scores = scores + row * n,
                             .dp = dp + row * n,
                             .lse2 = lse2,
                             .total = total,
                             .k = k + row,
                             .first = first,
                             .scale = scale,
                             .scale2 = scale * per_ln2,
                             .drop = drop};
        if (dtype == FO_BF16)
            softmax_grad_row(&s, n, p, ds, FO_BF16, row * n);
        else
            softmax_grad_row(&s, n, p, ds, FO_F32, row * n);
    }
}

FO_VEC_INLINE void scatter_row(const float *x, float factor, void *y, fo_dtype dtype, int64_t at,
                               int64_t n)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store16(y, dtype, at + i, load_f32(x + i) * factor);
    if (i < n)
        store_n(y, dtype, at + i, load_n(x, FO_F32, i, n - i) * factor, n - i);
}

static void scatter(const float *x, int64_t step, const float *divisor, int64_t divisor_step,
                    void *y, fo_dtype dtype, int64_t rows, int64_t heads, int64_t n, int64_t stride)
{
    for (int64_t row = 0; row < rows; row++)
        for (int64_t h = 0; h < heads; h++) {
            const float *from = x + h * step + row * n;
            float factor = divisor ? 1.0f / divisor[h * divisor_step + row] : 1.0f;
            if (dtype == FO_BF16)
                scatter_row(from, factor, y, FO_BF16, row * stride + h * n, n);
            else
                scatter_row(from, factor, y, FO_F32, row * stride + h * n, n);
        }
}

static void gather(const void *x, fo_dtype dtype, int64_t rows, int64_t heads, int64_t n,
                   int64_t stride, void *y, int64_t step)
{
    size_t size = fo_dtype_size(dtype), bytes = (size_t)n * size;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t h = 0; h < heads; h++) {
            const char *from = (const char *)x + (size_t)(row * stride + h * n) * size;
            char *to = (char *)y + (size_t)(h * step + row * n) * size;
            size_t i = 0;
            for (; i + sizeof(v16) <= bytes; i += sizeof(v16))
                memcpy(to + i, from + i, sizeof(v16));
            if (i < bytes)
                memcpy(to + i, from + i, bytes - i);
        }
}

FO_VEC_INLINE float dot(const void *a, const void *b, fo_dtype dtype, int64_t i, int64_t j,
                        int64_t n)
{
    v16 sum = {0};
    int64_t d = 0;
    for (; d + LANES <= n; d += LANES)
        sum += load16(a, dtype, i + d) * load16(b, dtype, j + d);
    if (d < n)
        sum += load_n(a, dtype, i + d, n - d) * load_n(b, dtype, j + d, n - d);
    return sum_lanes(sum);
}

static void dot_rows(const void *a, int64_t step, const void *b, fo_dtype dtype, int64_t rows,
                     int64_t heads, int64_t n, int64_t stride, float *sum, int64_t sum_step)
{
    for (int64_t row = 0; row < rows; row++)
        for (int64_t h = 0; h < heads; h++) {
            int64_t i = h * step + row * n, j = row * stride + h * n;
            sum[h * sum_step + row] =
                dtype == FO_BF16 ? dot(a, b, FO_BF16, i, j, n) : dot(a, b, FO_F32, i, j, n);
        }
}

static void exp_all(const float *x, float *y, int64_t n)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store_f32(y + i, exp16(load_f32(x + i)));
    if (i < n)
        store_n(y, FO_F32, i, exp16(load_n(x, FO_F32, i, n - i)), n - i);
}

void FO_VEC(fo_kernel_vec_fill_attention)(fo_kernel_vec *table)
{
    table->attention_softmax = attention_softmax;
    table->attention_softmax_grad = attention_softmax_grad;
    table->scale_rows = scale_rows;
    table->scatter = scatter;
    table->gather = gather;
    table->dot_rows = dot_rows;
    table->exp = exp_all;
}
