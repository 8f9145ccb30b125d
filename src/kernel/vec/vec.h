/* Vectorised row and element functions, built once an instruction set from the same source and chosen
 * at run time. Every variant gives the same bits: sixteen lanes whatever the hardware has, sums in a
 * fixed order, no contraction. All run on fo_kernel_threads() threads and give the same bits for every
 * number of them. */
#ifndef FO_KERNEL_VEC_VEC_H
#define FO_KERNEL_VEC_VEC_H

#include "kernel/kernel.h"

/* A matrix layout of panels: [n / panel][k / k_block] blocks of k_block rows by panel columns, where
 * `pair` (1 or 2) consecutive rows are interleaved. Sides are padded with zeros. */
typedef struct fo_kernel_panels {
    int64_t k, n;
    int64_t panel;    /* columns, a multiple of 16 */
    int64_t k_padded; /* k rounded up to whole blocks */
    int pair;         /* 1: float32, 2: bf16 */
} fo_kernel_panels;

/* The masks and factors of one attention dropout: element (q, k) has index q * context + k. */
typedef struct fo_kernel_attention_drop {
    float p; /* 0: none */
    uint64_t key, stream;
    int64_t context;
} fo_kernel_attention_drop;

typedef struct fo_kernel_vec {
    const char *isa;

    /* Elements (elements.c); as in the kernel's table. */
    void (*epilogue)(const fo_epilogue *, const float *c, int64_t rows, int64_t n);
    void (*convert)(const void *x, fo_dtype x_dtype, void *y, fo_dtype y_dtype, int64_t n);
    void (*add)(const void *a, fo_dtype a_dtype, const void *b, fo_dtype b_dtype, void *y,
                fo_dtype y_dtype, int64_t n);
    void (*column_sum)(const void *x, fo_dtype dtype, int64_t rows, int64_t n, float *sum);
    void (*dropout)(float *x, int64_t row, int64_t rows, int64_t n, float p, uint64_t key,
                    uint64_t stream);
    double (*sum_squares)(const float *x, int64_t n);
    void (*adamw)(const fo_adamw *, const float *grad, float *w, float *m, float *v, int64_t n);

    /* Rows (rows.c); as in the kernel's table. */
    void (*layernorm_forward)(const float *x, const float *weight, const float *bias, int64_t rows,
                              int64_t n, void *y, fo_dtype y_dtype, float *mean, float *rstd);
    void (*layernorm_backward)(const float *dy, const float *x, const float *weight,
                               const float *mean, const float *rstd, int64_t rows, int64_t n,
                               float *dx, float *dweight, float *dbias);
    void (*xent_stats)(const float *logits, const int32_t *targets, int64_t rows, int64_t n,
                       int64_t first, float *stats);
    void (*xent_grad)(const float *logits, const int32_t *targets, const float *lse, int64_t rows,
                      int64_t n, int64_t first, float scale, void *dlogits, fo_dtype dtype);

    /* Packing (pack.c). b: [k, n], or [n, k] when transposed. Panels [first, first + count) of b, to their
     * places in `packed`. */
    void (*pack)(const fo_kernel_panels *, const float *b, bool transposed, int64_t first,
                 int64_t count, void *packed);
    /* The same of b [k, n] that is of the layout's type already. */
    void (*pack_typed)(const fo_kernel_panels *, const void *b, int64_t first, int64_t count,
                       void *packed);
    /* Dense x[rows, n] (T), rows <= 64, zeros behind, as 64 columns of b: one panel 64 wide of n rows,
     * padded to k_padded; float32 single, bf16 in pairs. */
    void (*pack_columns)(const void *x, fo_dtype dtype, int64_t rows, int64_t n, int64_t k_padded,
                         void *packed);
    /* The same as 64 rows of b, n <= panel: a part of one panel. Columns behind n are left as they are. */
    void (*pack_rows)(const void *x, fo_dtype dtype, int64_t rows, int64_t n, int64_t panel,
                      void *packed);

    /* The elementwise parts of attention (attention.c), one thread, one block of queries or keys. */

    /* scores [rows, n] of queries q, q + 1, ... by keys k, k + 1, ..., k <= q; n a multiple of 32 in
     * both: p = exp(scale * (s - max)) (T, 0 above the diagonal, dropped). max and sum [rows] go on
     * from chunk to chunk of keys, from -infinity and 0; what was summed with the earlier chunks' p is
     * to be multiplied by factor [rows]. */
    void (*attention_softmax)(const float *scores, int64_t q, int64_t rows, int64_t k, int64_t n,
                              float scale, const fo_kernel_attention_drop *, void *p,
                              fo_dtype dtype, float *max, float *sum, float *factor);
    /* x[rows, n] *= factor[rows] */
    void (*scale_rows)(float *x, const float *factor, int64_t rows, int64_t n);
    /* The same probabilities from lse, transposed: scores and dp [rows, n] of keys k, k + 1, ... by
     * queries first, first + 1, ...; lse2 (lse / ln 2) and total (sum(dout * out)) by query, from
     * `first` on. p = exp(scale * s - lse), dropped; ds = p * (dropped dp - total) * scale. */
    void (*attention_softmax_grad)(const float *scores, const float *dp, int64_t k, int64_t rows,
                                   int64_t first, int64_t n, float scale,
                                   const fo_kernel_attention_drop *, const float *lse2,
                                   const float *total, void *p, void *ds, fo_dtype dtype);
    /* Rows of several heads side by side, `stride` elements apart, and heads by themselves, dense rows of
     * n values, `step` elements apart. All heads of a row at once: then memory is read and written in
     * order. */
    void (*gather)(const void *x, fo_dtype dtype, int64_t rows, int64_t heads, int64_t n,
                   int64_t stride, void *y, int64_t step);
    /* x float32 into y (T), divided by divisor[head * divisor_step + row] unless it is NULL. */
    void (*scatter)(const float *x, int64_t step, const float *divisor, int64_t divisor_step,
                    void *y, fo_dtype dtype, int64_t rows, int64_t heads, int64_t n,
                    int64_t stride);
    /* sum[head * sum_step + row] = a . b; a heads by themselves, b side by side. */
    void (*dot_rows)(const void *a, int64_t step, const void *b, fo_dtype dtype, int64_t rows,
                     int64_t heads, int64_t n, int64_t stride, float *sum, int64_t sum_step);
    /* y[n] = exp(x[n]): for tests. */
    void (*exp)(const float *x, float *y, int64_t n);
} fo_kernel_vec;

/* The variants this processor can run, best first; NULL past the end. */
const fo_kernel_vec *fo_kernel_vec_at(int index);

#endif
