/* The kernel interface: local mathematics, no communication. One table a backend; ref/ (plain C) is the
 * truth, every other backend is compared with it per case in tests/conformance/.
 *
 * All matrices row-major and dense unless a stride is given. T is the type of the case (f32 or bf16);
 * accumulation is always float32. Every function is deterministic, and what it computes for one row does
 * not depend on which other rows are in the call ("row independence"): row-wise functions may be called
 * on any split of the rows and give the same bits. Functions run on `threads` threads as given at
 * fo_kernel_set_threads (default 1) and give the same bits for every number of threads.
 * Zero-sized matrices are legal: k == 0 gives zeros.
 */
#ifndef FO_KERNEL_KERNEL_H
#define FO_KERNEL_KERNEL_H

#include <stdbool.h>
#include <stdint.h>

#include "flashoverlap/group.h"
#include "flashoverlap/rows.h"

/* Rows a GEMM tile has at most. */
enum { FO_TILE_ROWS = 64 };

/* c[rows, n] (float32) = a[rows, k] (T) . b, b of k rows and n columns.
 * transposed: the unpacked b is stored as [n, k] (forward: w [out, in] with k = in, n = out);
 * otherwise as [k, n] (dgrad: w [out, in] with k = out, n = in). */
typedef struct fo_gemm_desc {
    int64_t k, n;
    fo_dtype dtype; /* T */
    bool transposed;
} fo_gemm_desc;
typedef struct fo_gemm fo_gemm;

/* dw[out, in] (float32) += dy[rows, out]^T (T) . x[rows, in] (T) */
typedef struct fo_wgrad_desc {
    int64_t out, in;
    fo_dtype dtype;
} fo_wgrad_desc;
typedef struct fo_wgrad fo_wgrad;

/* What follows a GEMM tile: v = c; v += add; v += bias; pre = v; y = act(v) or, with gelu_grad,
 * y = v * gelu'(pre). Rows are dense: ld = n for every array. NULL leaves a part out. */
typedef struct fo_epilogue {
    const void *add; /* [rows, n] */
    fo_dtype add_dtype;
    const float *bias; /* [n] */
    bool gelu;         /* y = gelu(v), v also stored to pre */
    bool gelu_grad;    /* y = v * gelu'(pre) */
    void *pre;         /* [rows, n], written with gelu, read with gelu_grad */
    fo_dtype pre_dtype;
    void *y; /* [rows, n] */
    fo_dtype y_dtype;
} fo_epilogue;

/* Causal self-attention of the local heads, by queries.
 * qkv [batch * context, 3 * heads * head_dim] T: per row all q heads, then all k, then all v.
 * out [batch * context, heads * head_dim] T. lse [batch, heads, context] float32: log-sum-exp of the
 * scaled scores, kept for backward. scale = 1 / sqrt(head_dim).
 * Dropout (p > 0) on probabilities: element (b, head_offset + h, q, k) is kept when
 * uniform(dropout_key, stream = b * total_heads + global head, index = q * context + k) >= p and
 * then scaled by 1 / (1 - p). Memory does not grow with the square of the context: query blocks. */
typedef struct fo_attention_desc {
    int64_t batch, context;
    int heads, head_dim;
    fo_dtype dtype;
    float dropout;
    int head_offset, total_heads;
    const fo_run *runs; /* which token a row is; copied. NULL: row = b * context + position */
    int64_t run_count;
} fo_attention_desc;
typedef struct fo_attention fo_attention;

/* What to work on: rows of queries [row, row + rows), which may cross runs and sequences. Everything is
 * indexed by row, but lse, which is [batch, heads, context]. */
typedef struct fo_attention_args {
    const void *qkv; /* [M, 3 width] T, width = heads * head_dim; all rows are valid */
    uint64_t dropout_key;
    float *lse; /* forward writes those of its queries, backward reads them */
    void *out;  /* [M, width] T: forward writes the rows of its queries, backward reads them */
    const void *dout; /* [M, width] T: gradient of out; backward reads the rows of its queries */
    void *dqkv;       /* [M, 3 width] T, backward */
} fo_attention_args;

typedef struct fo_adamw {
    float lr, beta1, beta2, eps, decay;
    float correction1, correction2; /* 1 - beta^t */
    float grad_scale;               /* clipping: g * grad_scale */
} fo_adamw;

typedef struct fo_kernel {
    const char *name;
    const char *about;        /* one line for `flashoverlap info` */
    const char *(*isa)(void); /* instruction set used at run time, e.g. "avx512_bf16" */
    bool (*supports)(fo_dtype);
    bool emulates; /* takes a stated device's time; no result is computed, no matrix touched */
    /* Rows of one call of gemm_tile and attention_queries, and of wgrad_block and attention_queries_grad, at
     * most. FO_TILE_ROWS and FO_WGRAD_ROWS where results are computed: they are part of the numerics. */
    int tile_rows, wgrad_rows;
    /* Says of how many rows the slice is that the next calls are tiles of; NULL: it does not matter. */
    void (*slice)(int64_t rows);

    fo_status (*gemm_create)(const fo_gemm_desc *, fo_gemm **);
    void (*gemm_destroy)(fo_gemm *);
    size_t (*gemm_packed_bytes)(const fo_gemm *);
    /* b (float32, layout as desc.transposed says) -> packed, in T. Done once, shared by all tiles. */
    fo_status (*gemm_pack)(fo_gemm *, const float *b, void *packed);
    /* One tile, 0 <= rows <= tile_rows. Row independence holds to the bit. */
    fo_status (*gemm_tile)(fo_gemm *, const void *packed, const void *a, int64_t rows, float *c);

    fo_status (*wgrad_create)(const fo_wgrad_desc *, fo_wgrad **);
    void (*wgrad_destroy)(fo_wgrad *);
    /* One block, 0 <= rows <= wgrad_rows: dw += dy^T . x. */
    fo_status (*wgrad_block)(fo_wgrad *, const void *dy, const void *x, int64_t rows, float *dw);

    fo_status (*attention_create)(const fo_attention_desc *, fo_attention **);
    void (*attention_destroy)(fo_attention *);
    /* A new execution: what is kept of keys, values and their gradients is forgotten. */
    void (*attention_begin)(fo_attention *);
    /* Output and lse of the queries of rows [row, row + rows). Keys and values of a sequence are packed
     * when the first of its queries comes and kept until another sequence's come. Row independence holds
     * to the bit: products are of whole blocks of 64 positions of a sequence, whatever is asked for. */
    fo_status (*attention_queries)(fo_attention *, const fo_attention_args *, int64_t row,
                                   int64_t rows);
    /* Gradient through the queries of rows [row, row + rows): their rows of the q part of dqkv are written,
     * gradients of keys and values accumulate in float32 over the calls; when the last query of a sequence
     * has come, its rows of the k and v parts are written. Every row comes once an execution; the sums
     * depend on the order of calls and on nothing else. */
    fo_status (*attention_queries_grad)(fo_attention *, const fo_attention_args *, int64_t row,
                                        int64_t rows);

    void (*epilogue)(const fo_epilogue *, const float *c, int64_t rows, int64_t n);

    /* y[n] = x[n] with conversion. */
    void (*convert)(const void *x, fo_dtype x_dtype, void *y, fo_dtype y_dtype, int64_t n);
    /* y = a + b elementwise in float32, rounded once to y's type; y may be a or b. */
    void (*add)(const void *a, fo_dtype a_dtype, const void *b, fo_dtype b_dtype, void *y,
                fo_dtype y_dtype, int64_t n);
    /* sum[n] += column sums of x[rows, n] (T), added row after row. */
    void (*column_sum)(const void *x, fo_dtype dtype, int64_t rows, int64_t n, float *sum);

    /* y = (x - mean) * rstd * weight + bias per row of [rows, n]; x float32, y T, eps 1e-5.
     * mean, rstd: [rows] float32, kept for backward. */
    void (*layernorm_forward)(const float *x, const float *weight, const float *bias, int64_t rows,
                              int64_t n, void *y, fo_dtype y_dtype, float *mean, float *rstd);
    /* dx += gradient through the norm (float32, accumulates); dweight, dbias [n] +=, row after row. */
    void (*layernorm_backward)(const float *dy, const float *x, const float *weight,
                               const float *mean, const float *rstd, int64_t rows, int64_t n,
                               float *dx, float *dweight, float *dbias);

    /* Inverted dropout in place on rows [row, row + rows) of a matrix n wide: element (i, c) is kept when
     * uniform(key, stream, index = i * n + c) >= p and then scaled by 1 / (1 - p); used for
     * forward and backward alike. */
    void (*dropout)(float *x, int64_t row, int64_t rows, int64_t n, float p, uint64_t key,
                    uint64_t stream);

    /* Cross-entropy over a vocabulary split over ranks. logits [rows, n] float32: columns are the
     * vocabulary entries [first, first + n). stats[rows][3] = {max over the own columns (-inf when
     * n == 0), sum of exp(logit - max), logit of the target if it is here, else 0}. */
    void (*xent_stats)(const float *logits, const int32_t *targets, int64_t rows, int64_t n,
                       int64_t first, float *stats);
    /* dlogits (T) = scale * (exp(logit - lse[row]) - [column is the target]). */
    void (*xent_grad)(const float *logits, const int32_t *targets, const float *lse, int64_t rows,
                      int64_t n, int64_t first, float scale, void *dlogits, fo_dtype dtype);

    /* Sum of squares in double, in a fixed order whatever the number of threads. */
    double (*sum_squares)(const float *x, int64_t n);
    /* One AdamW step with decoupled decay: m, v, w updated in place (PyTorch's form:
     * w -= lr*decay*w; m,v moments; w -= lr * (m/c1) / (sqrt(v/c2) + eps)). */
    void (*adamw)(const fo_adamw *, const float *grad, float *w, float *m, float *v, int64_t n);
} fo_kernel;

/* The backends built in, best first; NULL past the end. */
const fo_kernel *fo_kernel_at(int index);
/* By name, NULL: the first. NULL when unknown. */
const fo_kernel *fo_kernel_find(const char *name);
/* The device that kernel "emulated" emulates, for this thread. */
void fo_kernel_set_device(const fo_device *device);
const fo_device *fo_kernel_device(void);
/* Threads of kernels called from this thread. */
void fo_kernel_set_threads(int threads);
int fo_kernel_threads(void);
/* What is to be called by kernels of this thread while they work, as soon as interval_ns have gone by since it was
 * called last: large tiles take tens of milliseconds, in which nobody else looks at the messages. Called from this
 * thread, between parts of gemm_pack, gemm_tile, wgrad_block and attention, never inside a parallel region; it must
 * not call kernels. How long a part takes depends on the backend: well below a millisecond to a few. NULL: nothing. */
void fo_kernel_set_progress(void (*progress)(void *arg), void *arg, int64_t interval_ns);

#endif
