/* Attention and its gradient in float64, by the formula, one query after another; and the data of a case.
 * Independent of every backend. */
#ifndef FO_TEST_KERNEL_ATTENTION64_H
#define FO_TEST_KERNEL_ATTENTION64_H

#include "compare.h"

/* A problem: its input, and what is expected of it. Matrices have a row for every token. */
typedef struct problem {
    fo_attention_desc d; /* runs: run[] */
    fo_run run[128];
    uint64_t key;
    int64_t rows, width;
    int64_t *row; /* [batch * context]: of a token */
    void *qkv, *dout;
    double *out, *lse, *dqkv;
    void *out_given; /* out and lse rounded: what backward reads */
    float *lse_given;
} problem;

static inline int64_t problem_at(const problem *p, int64_t b, int64_t t, int part, int h)
{
    return (p->row[b * p->d.context + t] * 3 + part) * p->width + (int64_t)h * p->d.head_dim;
}

static inline int64_t problem_out_at(const problem *p, int64_t b, int64_t t, int h)
{
    return p->row[b * p->d.context + t] * p->width + (int64_t)h * p->d.head_dim;
}

static inline double dot64(const double *a, const double *b, int64_t n)
{
    double sum = 0.0;
    for (int64_t d = 0; d < n; d++)
        sum += a[d] * b[d];
    return sum;
}

static inline double *wide64(const void *x, fo_dtype dtype, int64_t n)
{
    double *y = calloc((size_t)n + 1, sizeof *y);
    assert_non_null(y);
    for (int64_t i = 0; i < n; i++)
        y[i] = get(x, dtype, i);
    return y;
}

/* What dropout multiplies a probability by. */
static inline double kept64(const problem *p, int64_t b, int h, int64_t q, int64_t k)
{
    const fo_attention_desc *d = &p->d;
    if (d->dropout == 0.0f)
        return 1.0;
    uint64_t stream = (uint64_t)(b * d->total_heads + d->head_offset + h);
    float uniform = fo_base_random_uniform(p->key, stream, (uint64_t)(q * d->context + k));
    return uniform >= d->dropout ? 1.0 / (1.0 - (double)d->dropout) : 0.0;
}

/* One query. P, R: probabilities and what they are multiplied by. out = sum (P R) v; with
 * D = dout . out, out rounded as backward reads it: dv_k += P_k R_k dout, ds_k = P_k (R_k (dout . v_k) - D) scale,
 * dq += ds_k k, dk_k += ds_k q. */
static inline void query64(problem *p, int64_t b, int h, int64_t q, const double *qkv,
                           const double *dout, double *prob)
{
    const fo_attention_desc *d = &p->d;
    double scale = 1.0 / sqrt((double)d->head_dim), max = -INFINITY, sum = 0.0, total = 0.0;
    int64_t at_q = problem_at(p, b, q, 0, h), at_out = problem_out_at(p, b, q, h), n = d->head_dim;
    for (int64_t k = 0; k <= q; k++) {
        prob[k] = scale * dot64(qkv + at_q, qkv + problem_at(p, b, k, 1, h), n);
        max = fmax(max, prob[k]);
    }
    for (int64_t k = 0; k <= q; k++)
        sum += exp(prob[k] - max);
    p->lse[(b * d->heads + h) * d->context + q] = max + log(sum);
    for (int64_t k = 0; k <= q; k++) {
        prob[k] = exp(prob[k] - max) / sum;
        int64_t at_v = problem_at(p, b, k, 2, h);
        double weight = prob[k] * kept64(p, b, h, q, k);
        for (int64_t i = 0; i < n; i++) {
            p->out[at_out + i] += weight * qkv[at_v + i];
            p->dqkv[at_v + i] += weight * dout[at_out + i];
        }
    }
    for (int64_t i = at_out; i < at_out + n; i++) {
        put(p->out_given, d->dtype, i, p->out[i]);
        total += dout[i] * get(p->out_given, d->dtype, i);
    }
    for (int64_t k = 0; k <= q; k++) {
        int64_t at_k = problem_at(p, b, k, 1, h), at_v = problem_at(p, b, k, 2, h);
        double up = dot64(dout + at_out, qkv + at_v, n);
        double ds = prob[k] * (kept64(p, b, h, q, k) * up - total) * scale;
        for (int64_t i = 0; i < n; i++) {
            p->dqkv[at_q + i] += ds * qkv[at_k + i];
            p->dqkv[at_k + i] += ds * qkv[at_q + i];
        }
    }
}

/* ranks: of balanced rows; 0: straight, as given by no runs. size: of q, k and v. */
static inline problem *problem_make(fo_attention_desc d, int ranks, double size)
{
    problem *p = calloc(1, sizeof *p);
    assert_non_null(p);
    p->d = d;
    p->key = 77;
    p->rows = d.batch * d.context;
    p->width = (int64_t)d.heads * d.head_dim;
    p->row = calloc((size_t)p->rows + 1, sizeof *p->row);
    for (int64_t i = 0; i < p->rows; i++)
        p->row[i] = i;
    if (ranks) {
        p->d.runs = p->run;
        p->d.run_count = fo_rows_runs(FO_ROWS_BALANCED, d.batch, d.context, ranks, p->run, 128);
        assert_true(p->d.run_count <= 128);
        for (int64_t i = 0; i < p->d.run_count; i++)
            for (int64_t r = 0; r < p->run[i].rows; r++)
                p->row[p->run[i].sequence * d.context + p->run[i].position + r] = p->run[i].row + r;
    }
    int64_t n = p->rows * p->width, lse = p->rows * d.heads;
    p->qkv = random_values(d.dtype, 3 * n, 1, 0.0, size);
    p->dout = random_values(d.dtype, n, 2, 0.0, 1.0);
    p->out = calloc((size_t)n + 1, sizeof(double));
    p->dqkv = calloc((size_t)(3 * n) + 1, sizeof(double));
    p->lse = calloc((size_t)lse + 1, sizeof(double));
    p->out_given = make(d.dtype, n);
    p->lse_given = make(FO_F32, lse);
    double *prob = calloc((size_t)d.context + 1, sizeof(double));
    double *qkv = wide64(p->qkv, d.dtype, 3 * n), *dout = wide64(p->dout, d.dtype, n);
    for (int64_t b = 0; b < d.batch; b++)
        for (int h = 0; h < d.heads; h++)
            for (int64_t q = 0; q < d.context; q++)
                query64(p, b, h, q, qkv, dout, prob);
    free(prob);
    free(qkv);
    free(dout);
    for (int64_t i = 0; i < lse; i++)
        p->lse_given[i] = (float)p->lse[i];
    return p;
}

static inline void problem_free(problem *p)
{
    free(p->row);
    free(p->qkv);
    free(p->dout);
    free(p->out);
    free(p->dqkv);
    free(p->lse);
    free(p->out_given);
    free(p->lse_given);
    free(p);
}

#endif
