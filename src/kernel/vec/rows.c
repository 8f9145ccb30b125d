/* Functions over rows, vectorised: normalisation and cross-entropy. */
#include "kernel/vec/fill.h"
#include "kernel/vec/math.h"

/* Work below this many elements stays on one thread. Rows whose gradient goes to dx before their
 * columns are added, while they are in the cache; columns a thread adds at a time. */
enum { SMALL = 8192, ROWS = 32, COLUMNS = 64 };

static const float epsilon = 1e-5f;

static float sum_of(const float *x, int64_t n)
{
    v16 a = {0}, b = {0}, c = {0}, d = {0};
    int64_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        a += load_f32(x + i);
        b += load_f32(x + i + LANES);
        c += load_f32(x + i + 2 * LANES);
        d += load_f32(x + i + 3 * LANES);
    }
    for (; i + LANES <= n; i += LANES)
        a += load_f32(x + i);
    if (i < n)
        b += load_n(x, FO_F32, i, n - i);
    return sum_lanes((a + b) + (c + d));
}

static float squares_about(const float *x, float mean, int64_t n)
{
    v16 a = {0}, b = {0};
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        v16 u = load_f32(x + i) - mean, v = load_f32(x + i + LANES) - mean;
        a += u * u;
        b += v * v;
    }
    for (; i + LANES <= n; i += LANES) {
        v16 u = load_f32(x + i) - mean;
        a += u * u;
    }
    if (i < n) {
        v16 u = select16(lanes_below(n - i), load_n(x, FO_F32, i, n - i) - mean, (v16){0});
        b += u * u;
    }
    return sum_lanes(a + b);
}

FO_VEC_INLINE void forward_part(const float *x, const float *weight, const float *bias, float mean,
                                float rstd, void *y, fo_dtype dtype, int64_t at, int64_t j,
                                int64_t count)
{
    v16 h = (load_n(x, FO_F32, at + j, count) - mean) * rstd;
    store_n(y, dtype, at + j, h * load_n(weight, FO_F32, j, count) + load_n(bias, FO_F32, j, count),
            count);
}

static void layernorm_forward(const float *x, const float *weight, const float *bias, int64_t rows,
                              int64_t n, void *y, fo_dtype y_dtype, float *mean, float *rstd)
{
    int threads = fo_kernel_threads();
#pragma omp parallel for if (threads > 1 && rows * n > SMALL) num_threads(threads)
    for (int64_t row = 0; row < rows; row++) {
        int64_t at = row * n, j = 0;
        float m = sum_of(x + at, n) / (float)n;
        float r = 1.0f / sqrtf(squares_about(x + at, m, n) / (float)n + epsilon);
        for (; j + LANES <= n; j += LANES)
            forward_part(x, weight, bias, m, r, y, y_dtype, at, j, LANES);
        if (j < n)
            forward_part(x, weight, bias, m, r, y, y_dtype, at, j, n - j);
        mean[row] = m;
        rstd[row] = r;
    }
}

/* One row of the backward pass. g = dy * weight, h the normalised x. */
typedef struct norm_row {
    const float *dy, *x, *weight;
    float mean, rstd;
} norm_row;

/* Lanes past count: g is 0. */
FO_VEC_INLINE void backward_sums(const norm_row *r, int64_t j, int64_t count, v16 *sum_g,
                                 v16 *sum_gh)
{
    v16 g = load_n(r->dy, FO_F32, j, count) * load_n(r->weight, FO_F32, j, count);
    v16 h = (load_n(r->x, FO_F32, j, count) - r->mean) * r->rstd;
    *sum_g += g;
    *sum_gh += g * h;
}

FO_VEC_INLINE void backward_part(const norm_row *r, int64_t j, int64_t count, float mean_g,
                                 float mean_gh, float *dx)
{
    v16 g = load_n(r->dy, FO_F32, j, count) * load_n(r->weight, FO_F32, j, count);
    v16 h = (load_n(r->x, FO_F32, j, count) - r->mean) * r->rstd;
    store_n(dx, FO_F32, j, load_n(dx, FO_F32, j, count) + r->rstd * (g - mean_g - h * mean_gh),
            count);
}

static void backward_dx(const norm_row *r, int64_t n, float *dx)
{
    v16 g[2] = {{0}, {0}}, gh[2] = {{0}, {0}};
    int64_t j = 0;
    for (; j + 2 * LANES <= n; j += 2 * LANES) {
        backward_sums(r, j, LANES, &g[0], &gh[0]);
        backward_sums(r, j + LANES, LANES, &g[1], &gh[1]);
    }
    for (; j + LANES <= n; j += LANES)
        backward_sums(r, j, LANES, &g[0], &gh[0]);
    if (j < n)
        backward_sums(r, j, n - j, &g[1], &gh[1]);
    float mean_g = sum_lanes(g[0] + g[1]) / (float)n, mean_gh = sum_lanes(gh[0] + gh[1]) / (float)n;
    for (j = 0; j + LANES <= n; j += LANES)
        backward_part(r, j, LANES, mean_g, mean_gh, dx);
    if (j < n)
        backward_part(r, j, n - j, mean_g, mean_gh, dx);
}

/* `count` columns of dweight and dbias, row after row. */
FO_VEC_INLINE void backward_column(const float *dy, const float *x, const float *mean,
                                   const float *rstd, int64_t rows, int64_t n, int64_t j,
                                   int64_t count, float *dweight, float *dbias)
{
    v16 w = load_n(dweight, FO_F32, j, count), b = load_n(dbias, FO_F32, j, count);
    for (int64_t row = 0; row < rows; row++) {
        int64_t at = row * n + j;
        v16 up = load_n(dy, FO_F32, at, count);
        w += up * ((load_n(x, FO_F32, at, count) - mean[row]) * rstd[row]);
        b += up;
    }
    store_n(dweight, FO_F32, j, w, count);
    store_n(dbias, FO_F32, j, b, count);
}

static void backward_columns(const float *dy, const float *x, const float *mean, const float *rstd,
                             int64_t rows, int64_t n, int64_t begin, int64_t end, float *dweight,
                             float *dbias)
{
    int64_t j = begin;
    for (; j + LANES <= end; j += LANES)
        backward_column(dy, x, mean, rstd, rows, n, j, LANES, dweight, dbias);
    if (j < end)
        backward_column(dy, x, mean, rstd, rows, n, j, end - j, dweight, dbias);
}

static void layernorm_backward(const float *dy, const float *x, const float *weight,
                               const float *mean, const float *rstd, int64_t rows, int64_t n,
                               float *dx, float *dweight, float *dbias)
{
    int threads = fo_kernel_threads();
    if (threads == 1 || rows * n <= SMALL) {
        for (int64_t row = 0; row < rows; row += ROWS) {
            int64_t count = rows - row < ROWS ? rows - row : ROWS;
            for (int64_t i = row; i < row + count; i++) {
                norm_row r = {dy + i * n, x + i * n, weight, mean[i], rstd[i]};
                backward_dx(&r, n, dx + i * n);
            }
            backward_columns(dy + row * n, x + row * n, mean + row, rstd + row, count, n, 0, n,
                             dweight, dbias);
        }
        return;
    }
#pragma omp parallel num_threads(threads)
    {
#pragma omp for nowait
        for (int64_t i = 0; i < rows; i++) {
            norm_row r = {dy + i * n, x + i * n, weight, mean[i], rstd[i]};
            backward_dx(&r, n, dx + i * n);
        }
#pragma omp for
        for (int64_t chunk = 0; chunk < (n + COLUMNS - 1) / COLUMNS; chunk++) {
            int64_t begin = chunk * COLUMNS, end = n - begin < COLUMNS ? n : begin + COLUMNS;
            backward_columns(dy, x, mean, rstd, rows, n, begin, end, dweight, dbias);
        }
    }
}

static float row_max(const float *x, int64_t n)
{
    v16 a = splat(-INFINITY), b = a, c = a, d = a;
    int64_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        a = max16(load_f32(x + i), a);
        b = max16(load_f32(x + i + LANES), b);
        c = max16(load_f32(x + i + 2 * LANES), c);
        d = max16(load_f32(x + i + 3 * LANES), d);
    }
    for (; i + LANES <= n; i += LANES)
        a = max16(load_f32(x + i), a);
    if (i < n)
        a = max16(select16(lanes_below(n - i), load_n(x, FO_F32, i, n - i), a), a);
    return max_lanes(max16(max16(a, b), max16(c, d)));
}

static float row_exp_sum(const float *x, float max, int64_t n)
{
    v16 a = {0}, b = {0};
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        a += exp16(load_f32(x + i) - max);
        b += exp16(load_f32(x + i + LANES) - max);
    }
    for (; i + LANES <= n; i += LANES)
        a += exp16(load_f32(x + i) - max);
    if (i < n)
        b += select16(lanes_below(n - i), exp16(load_n(x, FO_F32, i, n - i) - max), (v16){0});
    return sum_lanes(a + b);
}

static void xent_stats(const float *logits, const int32_t *targets, int64_t rows, int64_t n,
                       int64_t first, float *stats)
{
    int threads = fo_kernel_threads();
#pragma omp parallel for if (threads > 1 && rows * n > SMALL) num_threads(threads)
    for (int64_t row = 0; row < rows; row++) {
        const float *in = logits + row * n;
        int64_t target = targets[row] - first;
        float max = row_max(in, n);
        stats[row * 3] = max;
        stats[row * 3 + 1] = row_exp_sum(in, max, n);
        stats[row * 3 + 2] = target >= 0 && target < n ? in[target] : 0.0f;
    }
}

FO_VEC_INLINE void grad_row(const float *logits, float lse, int64_t begin, int64_t end, float scale,
                            void *dlogits, fo_dtype dtype)
{
    int64_t i = begin;
    for (; i + LANES <= end; i += LANES)
        store16(dlogits, dtype, i, scale * exp16(load16(logits, FO_F32, i) - lse));
    if (i < end)
        store_n(dlogits, dtype, i, scale * exp16(load_n(logits, FO_F32, i, end - i) - lse),
                end - i);
}

static void xent_grad(const float *logits, const int32_t *targets, const float *lse, int64_t rows,
                      int64_t n, int64_t first, float scale, void *dlogits, fo_dtype dtype)
{
    int threads = fo_kernel_threads();
#pragma omp parallel for if (threads > 1 && rows * n > SMALL) num_threads(threads)
    for (int64_t row = 0; row < rows; row++) {
        int64_t at = row * n, target = targets[row] - first;
        bool here = target >= 0 && target < n;
        /* float32 dlogits may be logits: the target's logit is read before it is overwritten. */
        float hit = here ? logits[at + target] : 0.0f;
        if (dtype == FO_BF16)
            grad_row(logits, lse[row], at, at + n, scale, dlogits, FO_BF16);
        else
            grad_row(logits, lse[row], at, at + n, scale, dlogits, FO_F32);
        if (here)
            store_n(dlogits, dtype, at + target, scale * (exp16(splat(hit) - lse[row]) - 1.0f), 1);
    }
}

void FO_VEC(fo_kernel_vec_fill_rows)(fo_kernel_vec *table)
{
    table->layernorm_forward = layernorm_forward;
    table->layernorm_backward = layernorm_backward;
    table->xent_stats = xent_stats;
    table->xent_grad = xent_grad;
}
