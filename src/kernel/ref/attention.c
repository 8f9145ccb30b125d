/* Reference causal attention, one query after another. */
#include "kernel/ref/ref.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/random.h"
#include "kernel/progress.h"
#include "kernel/runs.h"

struct fo_attention {
    fo_attention_desc desc;
    fo_kernel_runs runs;
    int64_t *token;     /* [rows]: sequence * context + position of a row */
    int64_t *row;       /* [rows]: the row of a token */
    float *probability; /* [context] of one query */
    float *dk, *dv;     /* [batch, heads, context, head_dim]: sums over the queries so far */
    int64_t *seen;      /* [batch]: queries whose gradient has come */
};

static void attention_destroy(fo_attention *attention)
{
    if (!attention)
        return;
    fo_kernel_runs_free(&attention->runs);
    free(attention->token);
    free(attention->row);
    free(attention->probability);
    free(attention->dk);
    free(attention->dv);
    free(attention->seen);
    free(attention);
}

static int64_t all_rows(const fo_attention *attention)
{
    return attention->desc.batch * attention->desc.context;
}

static fo_status attention_make(fo_attention *attention, const fo_attention_desc *s)
{
    size_t rows = (size_t)all_rows(attention), width = (size_t)s->heads * (size_t)s->head_dim;
    fo_status status = fo_kernel_runs_make(s, &attention->runs);
    if (status != FO_OK)
        return status;
    attention->token = calloc(rows + 1, sizeof *attention->token);
    attention->row = calloc(rows + 1, sizeof *attention->row);
    attention->probability = calloc((size_t)s->context + 1, sizeof(float));
    attention->dk = calloc(rows * width + 1, sizeof(float));
    attention->dv = calloc(rows * width + 1, sizeof(float));
    attention->seen = calloc((size_t)s->batch + 1, sizeof *attention->seen);
    if (!attention->token || !attention->row || !attention->probability || !attention->dk ||
        !attention->dv || !attention->seen)
        return fo_base_error(FO_NO_MEMORY, "no memory for attention over a context of %lld",
                             (long long)s->context);
    for (int64_t row = 0; row < all_rows(attention); row++) {
        fo_run run = fo_kernel_runs_first(&attention->runs, row, 1);
        attention->token[row] = run.sequence * s->context + run.position;
        attention->row[attention->token[row]] = row;
    }
    return FO_OK;
}

static fo_status attention_create(const fo_attention_desc *desc, fo_attention **out)
{
    *out = NULL;
    fo_attention *attention = calloc(1, sizeof *attention);
    if (!attention)
        return fo_base_error(FO_NO_MEMORY, "no memory for attention");
    attention->desc = *desc;
    attention->desc.runs = NULL; /* the caller's; here they are copied */
    fo_status status = attention_make(attention, desc);
    if (status == FO_OK)
        *out = attention;
    else
        attention_destroy(attention);
    return status;
}

static void attention_begin(fo_attention *attention)
{
    const fo_attention_desc *s = &attention->desc;
    size_t sums = (size_t)all_rows(attention) * (size_t)s->heads * (size_t)s->head_dim;
    memset(attention->dk, 0, sums * sizeof(float));
    memset(attention->dv, 0, sums * sizeof(float));
    memset(attention->seen, 0, (size_t)s->batch * sizeof *attention->seen);
}

/* One query of one head: position q of sequence b. */
typedef struct query {
    int64_t b, q, row;
    int h;
} query;

/* Where q (part 0), k (1) or v (2) of position t of the query's sequence and head begins. */
static int64_t at(const fo_attention *attention, const query *i, int64_t t, int part)
{
    const fo_attention_desc *s = &attention->desc;
    int64_t row = attention->row[i->b * s->context + t];
    return ((row * 3 + part) * s->heads + i->h) * s->head_dim;
}

static int64_t at_out(const fo_attention_desc *s, const query *i)
{
    return (i->row * s->heads + i->h) * s->head_dim;
}

static int64_t at_lse(const fo_attention_desc *s, const query *i)
{
    return (i->b * s->heads + i->h) * s->context + i->q;
}

/* Where the sums of position t of the query's sequence and head begin. */
static int64_t at_sum(const fo_attention_desc *s, const query *i, int64_t t)
{
    return ((i->b * s->heads + i->h) * s->context + t) * s->head_dim;
}

static float dot(const fo_attention_desc *s, const void *x, int64_t i, const void *y, int64_t j)
{
    float sum = 0.0f;
    for (int d = 0; d < s->head_dim; d++)
        sum += fo_kernel_ref_load(x, s->dtype, i + d) * fo_kernel_ref_load(y, s->dtype, j + d);
    return sum;
}

static float score(const fo_attention *attention, const void *qkv, const query *i, int64_t k)
{
    return dot(&attention->desc, qkv, at(attention, i, i->q, 0), qkv, at(attention, i, k, 1)) /
           sqrtf((float)attention->desc.head_dim);
}

/* What the probability is multiplied by: 1 without dropout, else 0 or 1 / (1 - p). */
static float kept(const fo_attention_desc *s, uint64_t key, const query *i, int64_t k)
{
    if (s->dropout <= 0.0f)
        return 1.0f;
    uint64_t stream = (uint64_t)(i->b * s->total_heads + s->head_offset + i->h);
    float uniform = fo_base_random_uniform(key, stream, (uint64_t)(i->q * s->context + k));
    return uniform >= s->dropout ? 1.0f / (1.0f - s->dropout) : 0.0f;
}

static void forward(fo_attention *attention, const fo_attention_args *args, const query *i)
{
    const fo_attention_desc *s = &attention->desc;
    float *p = attention->probability, max = -INFINITY, sum = 0.0f;
    for (int64_t k = 0; k <= i->q; k++) {
        p[k] = score(attention, args->qkv, i, k);
        max = p[k] > max ? p[k] : max;
    }
    for (int64_t k = 0; k <= i->q; k++) {
        p[k] = expf(p[k] - max);
        sum += p[k];
    }
    for (int64_t k = 0; k <= i->q; k++)
        p[k] = p[k] / sum * kept(s, args->dropout_key, i, k);
    args->lse[at_lse(s, i)] = max + logf(sum);
    for (int d = 0; d < s->head_dim; d++) {
        float y = 0.0f;
        for (int64_t k = 0; k <= i->q; k++)
            y += p[k] * fo_kernel_ref_load(args->qkv, s->dtype, at(attention, i, k, 2) + d);
        fo_kernel_ref_store(args->out, s->dtype, at_out(s, i) + d, y);
    }
}

static query query_of(const fo_attention *attention, int64_t row, int h)
{
    int64_t token = attention->token[row], context = attention->desc.context;
    return (query){.b = token / context, .q = token % context, .row = row, .h = h};
}

static fo_status attention_queries(fo_attention *attention, const fo_attention_args *args,
                                   int64_t row, int64_t rows)
{
    fo_status status = fo_kernel_runs_check(&attention->runs, row, rows);
    for (int64_t r = row; r < row + rows && status == FO_OK; r++)
        for (int h = 0; h < attention->desc.heads; h++) {
            query i = query_of(attention, r, h);
            forward(attention, args, &i);
            fo_kernel_progress();
        }
    return status;
}

/* With P the probabilities, R what dropout multiplies them by and D = sum(dout * out) of a query:
 * dV += (P R)^T dout;  dS = P * (R * (dout V^T) - D) * scale;  dQ = dS K;  dK += dS^T Q. */
static void backward(fo_attention *attention, const fo_attention_args *args, const query *i)
{
    const fo_attention_desc *s = &attention->desc;
    const void *qkv = args->qkv, *dout = args->dout;
    int64_t q = at(attention, i, i->q, 0), out = at_out(s, i);
    float *ds = attention->probability, scale = 1.0f / sqrtf((float)s->head_dim);
    float total = dot(s, dout, out, args->out, out);
    for (int64_t k = 0; k <= i->q; k++) {
        float p = expf(score(attention, qkv, i, k) - args->lse[at_lse(s, i)]);
        float r = kept(s, args->dropout_key, i, k);
        float dp = dot(s, dout, out, qkv, at(attention, i, k, 2));
        float *dk = attention->dk + at_sum(s, i, k), *dv = attention->dv + at_sum(s, i, k);
        ds[k] = p * (r * dp - total) * scale;
        for (int d = 0; d < s->head_dim; d++) {
            dv[d] += p * r * fo_kernel_ref_load(dout, s->dtype, out + d);
            dk[d] += ds[k] * fo_kernel_ref_load(qkv, s->dtype, q + d);
        }
    }
    for (int d = 0; d < s->head_dim; d++) {
        float dq = 0.0f;
        for (int64_t k = 0; k <= i->q; k++)
            dq += ds[k] * fo_kernel_ref_load(qkv, s->dtype, at(attention, i, k, 1) + d);
        fo_kernel_ref_store(args->dqkv, s->dtype, q + d, dq);
    }
}

/* The sums of the query's sequence and head are complete. */
static void write_sums(const fo_attention *attention, void *dqkv, const query *i)
{
    const fo_attention_desc *s = &attention->desc;
    for (int64_t t = 0; t < s->context; t++)
        for (int d = 0; d < s->head_dim; d++) {
            float dk = attention->dk[at_sum(s, i, t) + d], dv = attention->dv[at_sum(s, i, t) + d];
            fo_kernel_ref_store(dqkv, s->dtype, at(attention, i, t, 1) + d, dk);
            fo_kernel_ref_store(dqkv, s->dtype, at(attention, i, t, 2) + d, dv);
        }
}

static fo_status attention_queries_grad(fo_attention *attention, const fo_attention_args *args,
                                        int64_t row, int64_t rows)
{
    const fo_attention_desc *s = &attention->desc;
    fo_status status = fo_kernel_runs_check(&attention->runs, row, rows);
    for (int64_t r = row; r < row + rows && status == FO_OK; r++) {
        int64_t b = attention->token[r] / s->context;
        bool last = ++attention->seen[b] == s->context;
        if (attention->seen[b] > s->context)
            return fo_base_error(FO_INVALID,
                                 "gradient of attention through more than the %lld queries of "
                                 "sequence %lld, expected each once",
                                 (long long)s->context, (long long)b);
        for (int h = 0; h < s->heads; h++) {
            query i = query_of(attention, r, h);
            backward(attention, args, &i);
            if (last)
                write_sums(attention, args->dqkv, &i);
            fo_kernel_progress();
        }
    }
    return status;
}

void fo_kernel_ref_attention_fill(fo_kernel *table)
{
    table->attention_create = attention_create;
    table->attention_destroy = attention_destroy;
    table->attention_begin = attention_begin;
    table->attention_queries = attention_queries;
    table->attention_queries_grad = attention_queries_grad;
}
