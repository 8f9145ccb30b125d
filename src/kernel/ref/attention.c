/* Reference causal attention, one query row after another. */
#include "kernel/ref/ref.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/random.h"

struct fo_attention {
    fo_attention_desc desc;
    float *probability; /* [context] of one query row */
    float *dk, *dv;     /* [context, head_dim] of one head, backward */
};

static void attention_destroy(fo_attention *attention)
{
    if (!attention)
        return;
    free(attention->probability);
    free(attention->dk);
    free(attention->dv);
    free(attention);
}

static fo_status attention_create(const fo_attention_desc *desc, fo_attention **out)
{
    *out = NULL;
    if (desc->batch < 0 || desc->context < 0 || desc->heads < 0 || desc->head_dim < 1)
        return fo_base_error(
            FO_INVALID,
            "attention of batch %lld, context %lld, %d heads of %d, expected sizes "
            "of 0 or more and head_dim of 1 or more",
            (long long)desc->batch, (long long)desc->context, desc->heads, desc->head_dim);
    fo_attention *attention = calloc(1, sizeof *attention);
    if (!attention)
        return fo_base_error(FO_NO_MEMORY, "no memory for attention");
    size_t context = (size_t)desc->context + 1, matrix = context * (size_t)desc->head_dim;
    attention->desc = *desc;
    attention->probability = calloc(context, sizeof(float));
    attention->dk = calloc(matrix, sizeof(float));
    attention->dv = calloc(matrix, sizeof(float));
    if (!attention->probability || !attention->dk || !attention->dv) {
        attention_destroy(attention);
        return fo_base_error(FO_NO_MEMORY, "no memory for attention over a context of %lld",
                             (long long)desc->context);
    }
    *out = attention;
    return FO_OK;
}

/* Index of element d of q (part 0), k (1) or v (2) of one row of qkv. */
static int64_t at(const fo_attention_desc *s, int64_t b, int64_t t, int part, int h, int d)
{
    return ((b * s->context + t) * 3 + part) * s->heads * s->head_dim + h * s->head_dim + d;
}

static int64_t at_out(const fo_attention_desc *s, int64_t b, int64_t t, int h, int d)
{
    return (b * s->context + t) * s->heads * s->head_dim + h * s->head_dim + d;
}

static float score(const fo_attention_desc *s, const void *qkv, int64_t b, int h, int64_t q,
                   int64_t k)
{
    float sum = 0.0f;
    for (int d = 0; d < s->head_dim; d++)
        sum += fo_kernel_ref_load(qkv, s->dtype, at(s, b, q, 0, h, d)) *
               fo_kernel_ref_load(qkv, s->dtype, at(s, b, k, 1, h, d));
    return sum / sqrtf((float)s->head_dim);
}

/* What the probability is multiplied by: 1 without dropout, else 0 or 1 / (1 - p). */
static float kept(const fo_attention_desc *s, uint64_t key, int64_t b, int h, int64_t q, int64_t k)
{
    if (s->dropout <= 0.0f)
        return 1.0f;
    uint64_t stream = (uint64_t)(b * s->total_heads + s->head_offset + h);
    float uniform = fo_base_random_uniform(key, stream, (uint64_t)(q * s->context + k));
    return uniform >= s->dropout ? 1.0f / (1.0f - s->dropout) : 0.0f;
}

static fo_status attention_forward(fo_attention *attention, const void *qkv, uint64_t dropout_key,
                                   void *out, float *lse)
{
    const fo_attention_desc *s = &attention->desc;
    float *p = attention->probability;
    for (int64_t b = 0; b < s->batch; b++)
        for (int h = 0; h < s->heads; h++)
            for (int64_t q = 0; q < s->context; q++) {
                float max = -INFINITY, sum = 0.0f;
                for (int64_t k = 0; k <= q; k++) {
                    p[k] = score(s, qkv, b, h, q, k);
                    max = p[k] > max ? p[k] : max;
                }
                for (int64_t k = 0; k <= q; k++) {
                    p[k] = expf(p[k] - max);
                    sum += p[k];
                }
                for (int64_t k = 0; k <= q; k++)
                    p[k] = p[k] / sum * kept(s, dropout_key, b, h, q, k);
                lse[(b * s->heads + h) * s->context + q] = max + logf(sum);
                for (int d = 0; d < s->head_dim; d++) {
                    float y = 0.0f;
                    for (int64_t k = 0; k <= q; k++)
                        y += p[k] * fo_kernel_ref_load(qkv, s->dtype, at(s, b, k, 2, h, d));
                    fo_kernel_ref_store(out, s->dtype, at_out(s, b, q, h, d), y);
                }
            }
    return FO_OK;
}

/* With P the probabilities, R what dropout multiplies them by and D = sum(dout * out) of a row:
 * dV = (P R)^T dout;  dS = P * (R * (dout V^T) - D) * scale;  dQ = dS K;  dK = dS^T Q. */
static void backward_row(fo_attention *attention, const void *qkv, const void *out, float lse,
                         const void *dout, uint64_t key, void *dqkv, int64_t b, int h, int64_t q)
{
    const fo_attention_desc *s = &attention->desc;
    float *ds = attention->probability, total = 0.0f, scale = 1.0f / sqrtf((float)s->head_dim);
    for (int d = 0; d < s->head_dim; d++)
        total += fo_kernel_ref_load(dout, s->dtype, at_out(s, b, q, h, d)) *
                 fo_kernel_ref_load(out, s->dtype, at_out(s, b, q, h, d));
    for (int64_t k = 0; k <= q; k++) {
        float p = expf(score(s, qkv, b, h, q, k) - lse), dp = 0.0f;
        float r = kept(s, key, b, h, q, k);
        for (int d = 0; d < s->head_dim; d++) {
            float up = fo_kernel_ref_load(dout, s->dtype, at_out(s, b, q, h, d));
            dp += up * fo_kernel_ref_load(qkv, s->dtype, at(s, b, k, 2, h, d));
            attention->dv[k * s->head_dim + d] += p * r * up;
        }
        ds[k] = p * (r * dp - total) * scale;
        for (int d = 0; d < s->head_dim; d++)
            attention->dk[k * s->head_dim + d] +=
                ds[k] * fo_kernel_ref_load(qkv, s->dtype, at(s, b, q, 0, h, d));
    }
    for (int d = 0; d < s->head_dim; d++) {
        float dq = 0.0f;
        for (int64_t k = 0; k <= q; k++)
            dq += ds[k] * fo_kernel_ref_load(qkv, s->dtype, at(s, b, k, 1, h, d));
        fo_kernel_ref_store(dqkv, s->dtype, at(s, b, q, 0, h, d), dq);
    }
}

static fo_status attention_backward(fo_attention *attention, const void *qkv, const void *out,
                                    const float *lse, const void *dout, uint64_t dropout_key,
                                    void *dqkv)
{
    const fo_attention_desc *s = &attention->desc;
    size_t matrix = (size_t)s->context * (size_t)s->head_dim * sizeof(float);
    for (int64_t b = 0; b < s->batch; b++)
        for (int h = 0; h < s->heads; h++) {
            memset(attention->dk, 0, matrix);
            memset(attention->dv, 0, matrix);
            for (int64_t q = 0; q < s->context; q++)
                backward_row(attention, qkv, out, lse[(b * s->heads + h) * s->context + q], dout,
                             dropout_key, dqkv, b, h, q);
            for (int64_t k = 0; k < s->context; k++)
                for (int d = 0; d < s->head_dim; d++) {
                    int64_t i = k * s->head_dim + d;
                    fo_kernel_ref_store(dqkv, s->dtype, at(s, b, k, 1, h, d), attention->dk[i]);
                    fo_kernel_ref_store(dqkv, s->dtype, at(s, b, k, 2, h, d), attention->dv[i]);
                }
        }
    return FO_OK;
}

void fo_kernel_ref_attention_fill(fo_kernel *table)
{
    table->attention_create = attention_create;
    table->attention_destroy = attention_destroy;
    table->attention_forward = attention_forward;
    table->attention_backward = attention_backward;
}
