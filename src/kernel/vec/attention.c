/* The elementwise parts of attention, vectorised. */
#include "kernel/vec/fill.h"
#include "kernel/vec/math.h"

static const float per_ln2 = 1.44269504088896341f; /* exp(x) = 2^(x / ln 2) */

/* p and ds in T. With T = bf16 all comes from bf16 values. */
FO_VEC_INLINE void store_plain(void *x, fo_dtype dtype, int64_t i, v16 v)
{
    if (dtype == FO_F32) {
        store_f32((float *)x + i, v);
    } else {
        h16 half = to_bf16_plain(v);
        memcpy((fo_bf16 *)x + i, &half, sizeof half);
    }
}

/* One row of scores: query q of the head, `valid` keys at or below the diagonal. */
typedef struct softmax_of {
    const float *scores;
    int64_t q, valid;
    float scale2, max; /* scale / ln 2 */
    const fo_kernel_attention_drop *drop;
} softmax_of;

FO_VEC_INLINE v16 softmax_part(const softmax_of *s, int64_t j, v16 *total, bool masked)
{
    v16 e = exp2_narrow16((load_f32(s->scores + j) - s->max) * s->scale2);
    if (masked)
        e = select16(lanes_below(s->valid - j), e, (v16){0});
    *total += e;
    if (s->drop->p > 0.0f)
        e = drop16(e,
                   uniform16(s->drop->key, s->drop->stream, (uint64_t)(s->q * s->drop->context + j),
                             1),
                   s->drop->p);
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

/* n is a multiple of the lanes. */
FO_VEC_INLINE void softmax_row(softmax_of *s, float scale, int64_t n, void *p, fo_dtype dtype,
                               int64_t at, float *sum_out, float *lse)
{
    v16 a = {0}, b = {0};
    int64_t j = 0;
    s->max = softmax_max(s);
    for (; j + 2 * LANES <= s->valid; j += 2 * LANES) {
        store_plain(p, dtype, at + j, softmax_part(s, j, &a, false));
        store_plain(p, dtype, at + j + LANES, softmax_part(s, j + LANES, &b, false));
    }
    for (; j < s->valid; j += LANES)
        store_plain(p, dtype, at + j, softmax_part(s, j, &a, true));
    for (; j < n; j += LANES)
        store_plain(p, dtype, at + j, (v16){0});
    float sum = sum_lanes(a + b);
    *sum_out = sum;
    *lse = s->max * scale + logf(sum);
}

static void attention_softmax(const float *scores, int64_t q, int64_t rows, int64_t n, float scale,
                              const fo_kernel_attention_drop *drop, void *p, fo_dtype dtype,
                              float *sum, float *lse)
{
    for (int64_t row = 0; row < rows; row++) {
        softmax_of s = {.scores = scores + row * n,
                        .q = q + row,
                        .valid = q + row + 1,
                        .scale2 = scale * per_ln2,
                        .drop = drop};
        if (s.valid > n)
            s.valid = n;
        if (dtype == FO_BF16)
            softmax_row(&s, scale, n, p, FO_BF16, row * n, sum + row, lse + row);
        else
            softmax_row(&s, scale, n, p, FO_F32, row * n, sum + row, lse + row);
    }
}

/* One row of transposed scores: key k of the head against queries first, first + 1, ... */
typedef struct softmax_grad_of {
    const float *scores, *dp, *lse2, *total;
    int64_t k, first;
    float scale, scale2;
    const fo_kernel_attention_drop *drop;
} softmax_grad_of;

FO_VEC_INLINE void softmax_grad_part(const softmax_grad_of *s, int64_t j, void *p, void *ds,
                                     fo_dtype dtype, int64_t at, bool masked)
{
    v16 e = exp2_narrow16(load_f32(s->scores + j) * s->scale2 - load_f32(s->lse2 + j));
    v16 d = load_f32(s->dp + j);
    if (masked) /* queries before the key */
        e = select16(lanes_below(s->k - s->first - j), (v16){0}, e);
    v16 kept = e;
    if (s->drop->p > 0.0f) {
        v16 uniform = uniform16(s->drop->key, s->drop->stream,
                                (uint64_t)((s->first + j) * s->drop->context + s->k),
                                (uint64_t)s->drop->context);
        kept = drop16(e, uniform, s->drop->p);
        d = drop16(d, uniform, s->drop->p);
    }
    store_plain(p, dtype, at + j, kept);
    store_plain(ds, dtype, at + j, e * (d - load_f32(s->total + j)) * s->scale);
}

/* n is a multiple of the lanes. */
FO_VEC_INLINE void softmax_grad_row(const softmax_grad_of *s, int64_t n, void *p, void *ds,
                                    fo_dtype dtype, int64_t at)
{
    int64_t j = 0;
    for (; j < n && j < s->k - s->first; j += LANES)
        softmax_grad_part(s, j, p, ds, dtype, at, true);
    for (; j < n; j += LANES)
        softmax_grad_part(s, j, p, ds, dtype, at, false);
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

FO_VEC_INLINE void scatter_rows(const float *x, const float *divisor, void *y, fo_dtype dtype,
                                int64_t rows, int64_t n, int64_t stride)
{
    for (int64_t row = 0; row < rows; row++, x += n) {
        float factor = divisor ? 1.0f / divisor[row] : 1.0f;
        int64_t at = row * stride, i = 0;
        for (; i + LANES <= n; i += LANES)
            store16(y, dtype, at + i, load_f32(x + i) * factor);
        if (i < n)
            store_n(y, dtype, at + i, load_n(x, FO_F32, i, n - i) * factor, n - i);
    }
}

static void scatter(const float *x, const float *divisor, void *y, fo_dtype dtype, int64_t rows,
                    int64_t n, int64_t stride)
{
    if (dtype == FO_BF16)
        scatter_rows(x, divisor, y, FO_BF16, rows, n, stride);
    else
        scatter_rows(x, divisor, y, FO_F32, rows, n, stride);
}

static float dot(const void *a, const void *b, fo_dtype dtype, int64_t n)
{
    v16 sum = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        sum += load16(a, dtype, i) * load16(b, dtype, i);
    if (i < n)
        sum += load_n(a, dtype, i, n - i) * load_n(b, dtype, i, n - i);
    return sum_lanes(sum);
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
    table->scatter = scatter;
    table->dot = dot;
    table->exp = exp_all;
}
