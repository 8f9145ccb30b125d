/* GPT-2 in float64, one process, one loop after another: what the model is compared with.
 * Written from the formulas alone; shares no code with the library. Matrices are [out, in],
 * row-major. */
#ifndef FO_TESTS_REFERENCE_GPT2_F64_H
#define FO_TESTS_REFERENCE_GPT2_F64_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct gpt2_f64_tensor {
    char name[64];
    int64_t rows, cols; /* a vector has one row */
    double *value, *grad;
} gpt2_f64_tensor;

/* Factor of a value under dropout: 0 or 1 / (1 - p). EMBED, ATTENTION, MLP: element (row, column);
 * PROBABILITY: (sequence * heads + head, query * context + key). */
typedef enum gpt2_f64_site {
    GPT2_F64_EMBED,
    GPT2_F64_ATTENTION,
    GPT2_F64_MLP,
    GPT2_F64_PROBABILITY
} gpt2_f64_site;
typedef double gpt2_f64_keep(void *arg, gpt2_f64_site site, int64_t layer, int64_t i, int64_t j);

typedef struct gpt2_f64_norm {
    double *x, *h, *y, *rstd; /* input, normalised, output */
} gpt2_f64_norm;

typedef struct gpt2_f64_layer {
    gpt2_f64_norm ln_1, ln_2;
    double *qkv, *p /* [batch, heads, context, context] before dropout */, *att, *pre, *act;
} gpt2_f64_layer;

enum { GPT2_F64_PER_LAYER = 12 };

typedef struct gpt2_f64 {
    int64_t layers, heads, dim, context, vocabulary, batch, rows;
    gpt2_f64_keep *keep; /* NULL: no dropout */
    void *keep_arg;
    int count;
    gpt2_f64_tensor *tensors; /* wte, wpe, twelve a layer, ln_f */
    gpt2_f64_layer *layer;
    gpt2_f64_norm ln_f;
    double *logits; /* [rows, vocabulary] */
    void **owned;
    int owned_count, owned_room;
} gpt2_f64;

static inline void *gpt2_f64_take(gpt2_f64 *g, int64_t count, size_t size)
{
    if (g->owned_count == g->owned_room) {
        g->owned_room = 2 * g->owned_room + 64;
        g->owned = realloc(g->owned, (size_t)g->owned_room * sizeof *g->owned);
    }
    return g->owned[g->owned_count++] = calloc((size_t)count + 1, size);
}

static inline double *gpt2_f64_array(gpt2_f64 *g, int64_t count)
{
    return gpt2_f64_take(g, count, sizeof(double));
}

static inline void gpt2_f64_add_tensor(gpt2_f64 *g, int64_t layer, const char *name, int64_t rows,
                                       int64_t cols)
{
    gpt2_f64_tensor *t = &g->tensors[g->count++];
    if (layer < 0)
        snprintf(t->name, sizeof t->name, "%s", name);
    else
        snprintf(t->name, sizeof t->name, "h.%lld.%s", (long long)layer, name);
    t->rows = rows;
    t->cols = cols;
    t->value = gpt2_f64_array(g, rows * cols);
    t->grad = gpt2_f64_array(g, rows * cols);
}

static inline void gpt2_f64_add_layer(gpt2_f64 *g, int64_t l)
{
    int64_t d = g->dim;
    gpt2_f64_add_tensor(g, l, "ln_1.weight", 1, d);
    gpt2_f64_add_tensor(g, l, "ln_1.bias", 1, d);
    gpt2_f64_add_tensor(g, l, "attn.c_attn.weight", 3 * d, d);
    gpt2_f64_add_tensor(g, l, "attn.c_attn.bias", 1, 3 * d);
    gpt2_f64_add_tensor(g, l, "attn.c_proj.weight", d, d);
    gpt2_f64_add_tensor(g, l, "attn.c_proj.bias", 1, d);
    gpt2_f64_add_tensor(g, l, "ln_2.weight", 1, d);
    gpt2_f64_add_tensor(g, l, "ln_2.bias", 1, d);
    gpt2_f64_add_tensor(g, l, "mlp.c_fc.weight", 4 * d, d);
    gpt2_f64_add_tensor(g, l, "mlp.c_fc.bias", 1, 4 * d);
    gpt2_f64_add_tensor(g, l, "mlp.c_proj.weight", d, 4 * d);
    gpt2_f64_add_tensor(g, l, "mlp.c_proj.bias", 1, d);
}

static inline void gpt2_f64_make_norm(gpt2_f64 *g, gpt2_f64_norm *n)
{
    n->x = gpt2_f64_array(g, g->rows * g->dim);
    n->h = gpt2_f64_array(g, g->rows * g->dim);
    n->y = gpt2_f64_array(g, g->rows * g->dim);
    n->rstd = gpt2_f64_array(g, g->rows);
}

static inline gpt2_f64 *gpt2_f64_new(int64_t layers, int64_t heads, int64_t dim, int64_t context,
                                     int64_t vocabulary, int64_t batch)
{
    gpt2_f64 *g = calloc(1, sizeof *g);
    g->layers = layers;
    g->heads = heads;
    g->dim = dim;
    g->context = context;
    g->vocabulary = vocabulary;
    g->batch = batch;
    g->rows = batch * context;
    g->tensors = gpt2_f64_take(g, 4 + GPT2_F64_PER_LAYER * layers, sizeof *g->tensors);
    g->layer = gpt2_f64_take(g, layers, sizeof *g->layer);
    gpt2_f64_add_tensor(g, -1, "wte.weight", vocabulary, dim);
    gpt2_f64_add_tensor(g, -1, "wpe.weight", context, dim);
    for (int64_t l = 0; l < layers; l++)
        gpt2_f64_add_layer(g, l);
    gpt2_f64_add_tensor(g, -1, "ln_f.weight", 1, dim);
    gpt2_f64_add_tensor(g, -1, "ln_f.bias", 1, dim);
    for (int64_t l = 0; l < layers; l++) {
        gpt2_f64_layer *s = &g->layer[l];
        gpt2_f64_make_norm(g, &s->ln_1);
        gpt2_f64_make_norm(g, &s->ln_2);
        s->qkv = gpt2_f64_array(g, g->rows * 3 * dim);
        s->p = gpt2_f64_array(g, g->rows * heads * context);
        s->att = gpt2_f64_array(g, g->rows * dim);
        s->pre = gpt2_f64_array(g, g->rows * 4 * dim);
        s->act = gpt2_f64_array(g, g->rows * 4 * dim);
    }
    gpt2_f64_make_norm(g, &g->ln_f);
    g->logits = gpt2_f64_array(g, g->rows * vocabulary);
    return g;
}

static inline void gpt2_f64_free(gpt2_f64 *g)
{
    for (int i = 0; i < g->owned_count; i++)
        free(g->owned[i]);
    free(g->owned);
    free(g);
}

static inline gpt2_f64_tensor *gpt2_f64_find(gpt2_f64 *g, const char *name)
{
    for (int i = 0; i < g->count; i++)
        if (!strcmp(g->tensors[i].name, name))
            return &g->tensors[i];
    return NULL;
}

/* Tensor `which` of a layer, in the order of gpt2_f64_add_layer. */
static inline gpt2_f64_tensor *gpt2_f64_of(gpt2_f64 *g, int64_t layer, int which)
{
    return &g->tensors[2 + layer * GPT2_F64_PER_LAYER + which];
}

/* ---- parts, forward and backward ------------------------------------------------------------- */

static inline void gpt2_f64_linear(int64_t rows, const gpt2_f64_tensor *w, const double *bias,
                                   const double *x, double *y)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t o = 0; o < w->rows; o++) {
            double sum = bias ? bias[o] : 0;
            for (int64_t k = 0; k < w->cols; k++)
                sum += x[i * w->cols + k] * w->value[o * w->cols + k];
            y[i * w->rows + o] = sum;
        }
}

/* dx is written, the gradients of weight and bias are added to. */
static inline void gpt2_f64_linear_backward(int64_t rows, gpt2_f64_tensor *w, double *dbias,
                                            const double *x, const double *dy, double *dx)
{
    memset(dx, 0, (size_t)(rows * w->cols) * sizeof *dx);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t o = 0; o < w->rows; o++) {
            double up = dy[i * w->rows + o];
            if (dbias)
                dbias[o] += up;
            for (int64_t k = 0; k < w->cols; k++) {
                dx[i * w->cols + k] += up * w->value[o * w->cols + k];
                w->grad[o * w->cols + k] += up * x[i * w->cols + k];
            }
        }
}

static inline void gpt2_f64_normalise(const gpt2_f64 *g, gpt2_f64_norm *n, const gpt2_f64_tensor *w,
                                      const gpt2_f64_tensor *b)
{
    int64_t d = g->dim;
    for (int64_t i = 0; i < g->rows; i++) {
        double mean = 0, variance = 0;
        for (int64_t k = 0; k < d; k++)
            mean += n->x[i * d + k] / (double)d;
        for (int64_t k = 0; k < d; k++)
            variance += (n->x[i * d + k] - mean) * (n->x[i * d + k] - mean) / (double)d;
        n->rstd[i] = 1 / sqrt(variance + 1e-5);
        for (int64_t k = 0; k < d; k++) {
            n->h[i * d + k] = (n->x[i * d + k] - mean) * n->rstd[i];
            n->y[i * d + k] = n->h[i * d + k] * w->value[k] + b->value[k];
        }
    }
}

/* Adds to dx. */
static inline void gpt2_f64_normalise_backward(const gpt2_f64 *g, const gpt2_f64_norm *n,
                                               gpt2_f64_tensor *w, gpt2_f64_tensor *b,
                                               const double *dy, double *dx)
{
    int64_t d = g->dim;
    for (int64_t i = 0; i < g->rows; i++) {
        double sum = 0, along = 0;
        for (int64_t k = 0; k < d; k++) {
            double dh = dy[i * d + k] * w->value[k];
            sum += dh / (double)d;
            along += dh * n->h[i * d + k] / (double)d;
            w->grad[k] += dy[i * d + k] * n->h[i * d + k];
            b->grad[k] += dy[i * d + k];
        }
        for (int64_t k = 0; k < d; k++)
            dx[i * d + k] +=
                n->rstd[i] * (dy[i * d + k] * w->value[k] - sum - n->h[i * d + k] * along);
    }
}

static inline double gpt2_f64_kept(const gpt2_f64 *g, gpt2_f64_site site, int64_t layer, int64_t i,
                                   int64_t j)
{
    return g->keep ? g->keep(g->keep_arg, site, layer, i, j) : 1;
}

static inline void gpt2_f64_drop(const gpt2_f64 *g, gpt2_f64_site site, int64_t layer, double *x)
{
    for (int64_t i = 0; i < g->rows; i++)
        for (int64_t k = 0; k < g->dim; k++)
            x[i * g->dim + k] *= gpt2_f64_kept(g, site, layer, i, k);
}

static inline double gpt2_f64_gelu(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

static inline double gpt2_f64_gelu_slope(double x)
{
    double c = sqrt(2 / 3.14159265358979323846), t = tanh(c * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
}

/* Where q (part 0), k (1), v (2) of one row and head begin in qkv. */
static inline double *gpt2_f64_at(const gpt2_f64 *g, double *qkv, int64_t b, int64_t t, int part,
                                  int64_t h)
{
    return qkv + ((b * g->context + t) * 3 + part) * g->dim + h * (g->dim / g->heads);
}

static inline double gpt2_f64_dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* One query: probabilities over keys 0..q, then the mean of values. */
static inline void gpt2_f64_attend(gpt2_f64 *g, int64_t l, int64_t b, int64_t h, int64_t q)
{
    gpt2_f64_layer *s = &g->layer[l];
    int64_t d = g->dim / g->heads, t = g->context;
    double *p = s->p + ((b * g->heads + h) * t + q) * t, max = -INFINITY, sum = 0;
    for (int64_t k = 0; k <= q; k++) {
        p[k] = gpt2_f64_dot(gpt2_f64_at(g, s->qkv, b, q, 0, h), gpt2_f64_at(g, s->qkv, b, k, 1, h),
                            d) /
               sqrt((double)d);
        max = p[k] > max ? p[k] : max;
    }
    for (int64_t k = 0; k <= q; k++)
        sum += exp(p[k] - max);
    double *out = s->att + (b * t + q) * g->dim + h * d;
    memset(out, 0, (size_t)d * sizeof *out);
    for (int64_t k = 0; k <= q; k++) {
        p[k] = exp(p[k] - max) / sum;
        double kept = gpt2_f64_kept(g, GPT2_F64_PROBABILITY, l, b * g->heads + h, q * t + k);
        for (int64_t i = 0; i < d; i++)
            out[i] += p[k] * kept * gpt2_f64_at(g, s->qkv, b, k, 2, h)[i];
    }
}

static inline void gpt2_f64_attend_backward(gpt2_f64 *g, int64_t l, int64_t b, int64_t h, int64_t q,
                                            const double *datt, double *dqkv)
{
    gpt2_f64_layer *s = &g->layer[l];
    int64_t d = g->dim / g->heads, t = g->context;
    const double *p = s->p + ((b * g->heads + h) * t + q) * t;
    const double *up = datt + (b * t + q) * g->dim + h * d;
    double total = 0;
    for (int64_t k = 0; k <= q; k++)
        total += p[k] * gpt2_f64_kept(g, GPT2_F64_PROBABILITY, l, b * g->heads + h, q * t + k) *
                 gpt2_f64_dot(up, gpt2_f64_at(g, s->qkv, b, k, 2, h), d);
    for (int64_t k = 0; k <= q; k++) {
        double kept = gpt2_f64_kept(g, GPT2_F64_PROBABILITY, l, b * g->heads + h, q * t + k);
        double dp = kept * gpt2_f64_dot(up, gpt2_f64_at(g, s->qkv, b, k, 2, h), d);
        double ds = p[k] * (dp - total) / sqrt((double)d);
        for (int64_t i = 0; i < d; i++) {
            gpt2_f64_at(g, dqkv, b, q, 0, h)[i] += ds * gpt2_f64_at(g, s->qkv, b, k, 1, h)[i];
            gpt2_f64_at(g, dqkv, b, k, 1, h)[i] += ds * gpt2_f64_at(g, s->qkv, b, q, 0, h)[i];
            gpt2_f64_at(g, dqkv, b, k, 2, h)[i] += p[k] * kept * up[i];
        }
    }
}

/* ---- the model ------------------------------------------------------------------------------- */

static inline void gpt2_f64_layer_forward(gpt2_f64 *g, int64_t l)
{
    gpt2_f64_layer *s = &g->layer[l];
    double *next = l + 1 < g->layers ? g->layer[l + 1].ln_1.x : g->ln_f.x;
    int64_t count = g->rows * g->dim;
    gpt2_f64_normalise(g, &s->ln_1, gpt2_f64_of(g, l, 0), gpt2_f64_of(g, l, 1));
    gpt2_f64_linear(g->rows, gpt2_f64_of(g, l, 2), gpt2_f64_of(g, l, 3)->value, s->ln_1.y, s->qkv);
    for (int64_t b = 0; b < g->batch; b++)
        for (int64_t h = 0; h < g->heads; h++)
            for (int64_t q = 0; q < g->context; q++)
                gpt2_f64_attend(g, l, b, h, q);
    gpt2_f64_linear(g->rows, gpt2_f64_of(g, l, 4), gpt2_f64_of(g, l, 5)->value, s->att, s->ln_2.x);
    gpt2_f64_drop(g, GPT2_F64_ATTENTION, l, s->ln_2.x);
    for (int64_t i = 0; i < count; i++)
        s->ln_2.x[i] += s->ln_1.x[i];
    gpt2_f64_normalise(g, &s->ln_2, gpt2_f64_of(g, l, 6), gpt2_f64_of(g, l, 7));
    gpt2_f64_linear(g->rows, gpt2_f64_of(g, l, 8), gpt2_f64_of(g, l, 9)->value, s->ln_2.y, s->pre);
    for (int64_t i = 0; i < 4 * count; i++)
        s->act[i] = gpt2_f64_gelu(s->pre[i]);
    gpt2_f64_linear(g->rows, gpt2_f64_of(g, l, 10), gpt2_f64_of(g, l, 11)->value, s->act, next);
    gpt2_f64_drop(g, GPT2_F64_MLP, l, next);
    for (int64_t i = 0; i < count; i++)
        next[i] += s->ln_2.x[i];
}

/* log(sum(exp(logits))) of one row */
static inline double gpt2_f64_lse(const gpt2_f64 *g, int64_t row)
{
    const double *z = g->logits + row * g->vocabulary;
    double max = -INFINITY, sum = 0;
    for (int64_t v = 0; v < g->vocabulary; v++)
        max = z[v] > max ? z[v] : max;
    for (int64_t v = 0; v < g->vocabulary; v++)
        sum += exp(z[v] - max);
    return max + log(sum);
}

/* The mean cross-entropy. */
static inline double gpt2_f64_forward(gpt2_f64 *g, const int32_t *inputs, const int32_t *targets)
{
    double *x = g->layers ? g->layer[0].ln_1.x : g->ln_f.x, loss = 0;
    for (int64_t i = 0; i < g->rows; i++)
        for (int64_t k = 0; k < g->dim; k++)
            x[i * g->dim + k] = g->tensors[0].value[inputs[i] * g->dim + k] +
                                g->tensors[1].value[i % g->context * g->dim + k];
    gpt2_f64_drop(g, GPT2_F64_EMBED, 0, x);
    for (int64_t l = 0; l < g->layers; l++)
        gpt2_f64_layer_forward(g, l);
    gpt2_f64_normalise(g, &g->ln_f, &g->tensors[g->count - 2], &g->tensors[g->count - 1]);
    gpt2_f64_linear(g->rows, &g->tensors[0], NULL, g->ln_f.y, g->logits);
    for (int64_t i = 0; i < g->rows; i++)
        loss += (gpt2_f64_lse(g, i) - g->logits[i * g->vocabulary + targets[i]]) / (double)g->rows;
    return loss;
}

static inline void gpt2_f64_layer_backward(gpt2_f64 *g, int64_t l, double *dx, double *branch,
                                           double *wide)
{
    gpt2_f64_layer *s = &g->layer[l];
    int64_t count = g->rows * g->dim;
    double *dwide = wide + 4 * count;
    memcpy(branch, dx, (size_t)count * sizeof *dx);
    gpt2_f64_drop(g, GPT2_F64_MLP, l, branch);
    gpt2_f64_linear_backward(g->rows, gpt2_f64_of(g, l, 10), gpt2_f64_of(g, l, 11)->grad, s->act,
                             branch, wide);
    for (int64_t i = 0; i < 4 * count; i++)
        wide[i] *= gpt2_f64_gelu_slope(s->pre[i]);
    gpt2_f64_linear_backward(g->rows, gpt2_f64_of(g, l, 8), gpt2_f64_of(g, l, 9)->grad, s->ln_2.y,
                             wide, branch);
    gpt2_f64_normalise_backward(g, &s->ln_2, gpt2_f64_of(g, l, 6), gpt2_f64_of(g, l, 7), branch,
                                dx);
    memcpy(branch, dx, (size_t)count * sizeof *dx);
    gpt2_f64_drop(g, GPT2_F64_ATTENTION, l, branch);
    gpt2_f64_linear_backward(g->rows, gpt2_f64_of(g, l, 4), gpt2_f64_of(g, l, 5)->grad, s->att,
                             branch, wide);
    memset(dwide, 0, (size_t)(3 * count) * sizeof *dwide);
    for (int64_t b = 0; b < g->batch; b++)
        for (int64_t h = 0; h < g->heads; h++)
            for (int64_t q = 0; q < g->context; q++)
                gpt2_f64_attend_backward(g, l, b, h, q, wide, dwide);
    gpt2_f64_linear_backward(g->rows, gpt2_f64_of(g, l, 2), gpt2_f64_of(g, l, 3)->grad, s->ln_1.y,
                             dwide, branch);
    gpt2_f64_normalise_backward(g, &s->ln_1, gpt2_f64_of(g, l, 0), gpt2_f64_of(g, l, 1), branch,
                                dx);
}

/* After forward with the same tokens: adds scale times the gradient of the loss to every grad. */
static inline void gpt2_f64_backward(gpt2_f64 *g, const int32_t *inputs, const int32_t *targets,
                                     double scale)
{
    int64_t count = g->rows * g->dim;
    double *dlogits = calloc((size_t)(g->rows * g->vocabulary) + 1, sizeof *dlogits);
    double *dx = calloc((size_t)count + 1, sizeof *dx),
           *branch = calloc((size_t)count + 1, sizeof *dx);
    double *wide = calloc((size_t)(8 * count) + 1, sizeof *wide);
    for (int64_t i = 0; i < g->rows; i++)
        for (int64_t v = 0; v < g->vocabulary; v++)
            dlogits[i * g->vocabulary + v] =
                scale / (double)g->rows *
                (exp(g->logits[i * g->vocabulary + v] - gpt2_f64_lse(g, i)) - (v == targets[i]));
    gpt2_f64_linear_backward(g->rows, &g->tensors[0], NULL, g->ln_f.y, dlogits, branch);
    gpt2_f64_normalise_backward(g, &g->ln_f, &g->tensors[g->count - 2], &g->tensors[g->count - 1],
                                branch, dx);
    for (int64_t l = g->layers - 1; l >= 0; l--)
        gpt2_f64_layer_backward(g, l, dx, branch, wide);
    gpt2_f64_drop(g, GPT2_F64_EMBED, 0, dx);
    for (int64_t i = 0; i < g->rows; i++)
        for (int64_t k = 0; k < g->dim; k++) {
            g->tensors[0].grad[inputs[i] * g->dim + k] += dx[i * g->dim + k];
            g->tensors[1].grad[i % g->context * g->dim + k] += dx[i * g->dim + k];
        }
    free(dlogits);
    free(dx);
    free(branch);
    free(wide);
}

#endif
