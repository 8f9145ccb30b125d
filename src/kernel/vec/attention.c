/* The elementwise parts of attention, vectorised. */
#include "kernel/vec/fill.h"
#include "kernel/vec/math.h"

FO_VEC_INLINE void softmax_row(float *scores, int64_t q, int64_t n, float scale,
                               const fo_kernel_attention_drop *drop, void *p, fo_dtype dtype,
                               int64_t at, float *sum_out, float *lse)
{
    int64_t valid = q + 1 < n ? q + 1 : n;
    v16 top = splat(-INFINITY), total = {0};
    int64_t j = 0;
    for (; j + LANES <= valid; j += LANES)
        top = max16(load_f32(scores + j), top);
    if (j < valid)
        top = max16(select16(lanes_below(valid - j), load_upto(scores, FO_F32, j, n), top), top);
    float max = max_lanes(top);
    for (j = 0; j < valid; j += LANES) {
        v16 e = exp16((load_upto(scores, FO_F32, j, n) - max) * scale);
        if (valid - j < LANES)
            e = select16(lanes_below(valid - j), e, (v16){0});
        total += e;
        if (drop->p > 0.0f)
            e = drop16(e, uniform16(drop->key, drop->stream,
                                    (uint64_t)(q * drop->context + j), 1), drop->p);
        store_upto(p, dtype, at + j, e, at + n);
    }
    for (; j < n; j += LANES)
        store_upto(p, dtype, at + j, (v16){0}, at + n);
    float sum = sum_lanes(total);
    *sum_out = sum;
    *lse = max * scale + logf(sum);
}

static void attention_softmax(float *scores, int64_t q, int64_t rows, int64_t n, float scale,
                              const fo_kernel_attention_drop *drop, void *p, fo_dtype dtype,
                              float *sum, float *lse)
{
    for (int64_t row = 0; row < rows; row++) {
        if (dtype == FO_BF16)
            softmax_row(scores + row * n, q + row, n, scale, drop, p, FO_BF16, row * n, sum + row,
                        lse + row);
        else
            softmax_row(scores + row * n, q + row, n, scale, drop, p, FO_F32, row * n, sum + row,
                        lse + row);
    }
}

FO_VEC_INLINE void softmax_grad_row(const float *scores, const float *dp, int64_t k, int64_t first,
                                    int64_t n, float scale, const fo_kernel_attention_drop *drop,
                                    const float *lse, const float *total, void *p, void *ds,
                                    fo_dtype dtype, int64_t at)
{
    int64_t masked = k - first; /* queries before the key */
    for (int64_t j = 0; j < n; j += LANES) {
        v16 e = exp16(load_upto(scores, FO_F32, j, n) * scale - load_upto(lse, FO_F32, j, n));
        v16 d = load_upto(dp, FO_F32, j, n), kept = e;
        if (j < masked)
            e = kept = select16(lanes_below(masked - j), (v16){0}, e);
        if (drop->p > 0.0f) {
            v16 uniform = uniform16(drop->key, drop->stream,
                                    (uint64_t)((first + j) * drop->context + k),
                                    (uint64_t)drop->context);
            kept = drop16(e, uniform, drop->p);
            d = drop16(d, uniform, drop->p);
        }
        store_upto(p, dtype, at + j, kept, at + n);
        store_upto(ds, dtype, at + j, e * (d - load_upto(total, FO_F32, j, n)) * scale, at + n);
    }
}

static void attention_softmax_grad(const float *scores, const float *dp, int64_t k, int64_t rows,
                                   int64_t first, int64_t n, float scale,
                                   const fo_kernel_attention_drop *drop, const float *lse,
                                   const float *total, void *p, void *ds, fo_dtype dtype)
{
    for (int64_t row = 0; row < rows; row++) {
        if (dtype == FO_BF16)
            softmax_grad_row(scores + row * n, dp + row * n, k + row, first, n, scale, drop, lse,
                             total, p, ds, FO_BF16, row * n);
        else
            softmax_grad_row(scores + row * n, dp + row * n, k + row, first, n, scale, drop, lse,
                             total, p, ds, FO_F32, row * n);
    }
}

static void scale_row(const float *x, float factor, void *y, fo_dtype dtype, int64_t n)
{
    for (int64_t i = 0; i < n; i += LANES)
        store_upto(y, dtype, i, load_upto(x, FO_F32, i, n) * factor, n);
}

static float dot(const void *a, const void *b, fo_dtype dtype, int64_t n)
{
    v16 sum = {0};
    for (int64_t i = 0; i < n; i += LANES)
        sum += load_upto(a, dtype, i, n) * load_upto(b, dtype, i, n);
    return sum_lanes(sum);
}

static void exp_all(const float *x, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i += LANES)
        store_upto(y, FO_F32, i, exp16(load_upto(x, FO_F32, i, n)), n);
}

void FO_VEC(fo_kernel_vec_fill_attention)(fo_kernel_vec *table)
{
    table->attention_softmax = attention_softmax;
    table->attention_softmax_grad = attention_softmax_grad;
    table->scale = scale_row;
    table->dot = dot;
    table->exp = exp_all;
}
