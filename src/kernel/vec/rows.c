/* Functions over rows, vectorised: normalisation and cross-entropy. */
#include "kernel/vec/fill.h"
#include "kernel/vec/math.h"

/* Work below this many elements stays on one thread. Rows whose gradient goes to dx before their
 * columns are added, while they are in the cache; columns a thread adds at a time. */
enum { SMALL = 8192, ROWS = 32, COLUMNS = 64 };

static const float epsilon = 1e-5f;

FO_VEC_INLINE float sum_of(const float *x, int64_t n)
{
    v16 a = {0}, b = {0}, c = {0}, d = {0};
    int64_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        a += load_f32(x + i);
        b += load_f32(x + i + LANES);
        c += load_f32(x + i + 2 * LANES);
        d += load_f32(x + i + 3 * LANES);
    }
    for (; i < n; i += LANES)
        a += load_upto(x, FO_F32, i, n);
    return sum_lanes((a + b) + (c + d));
}

FO_VEC_INLINE float squares_about(const float *x, float mean, int64_t n)
{
    v16 a = {0}, b = {0};
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        v16 u = load_f32(x + i) - mean, v = load_f32(x + i + LANES) - mean;
        a += u * u;
        b += v * v;
    }
    for (; i < n; i += LANES) {
        v16 u = select16(lanes_below(n - i), load_upto(x, FO_F32, i, n) - mean, (v16){0});
        a += u * u;
    }
    return sum_lanes(a + b);
}

static void layernorm_forward(const float *x, const float *weight, const float *bias, int64_t rows,
                              int64_t n, void *y, fo_dtype y_dtype, float *mean, float *rstd)
{
    int threads = fo_kernel_threads();
#pragma omp parallel for if (threads > 1 && rows * n > SMALL) num_threads(threads)
    for (int64_t row = 0; row < rows; row++) {
        const float *in = x + row * n;
        float m = sum_of(in, n) / (float)n;
        float r = 1.0f / sqrtf(squares_about(in, m, n) / (float)n + epsilon);
        for (int64_t j = 0; j < n; j += LANES) {
            v16 h = (load_upto(in, FO_F32, j, n) - m) * r;
            store_upto(y, y_dtype, row * n + j,
                       h * load_upto(weight, FO_F32, j, n) + load_upto(bias, FO_F32, j, n),
                       row * n + n);
        }
        mean[row] = m;
        rstd[row] = r;
    }
}

static void backward_dx(const float *dy, const float *x, const float *weight, float m, float r,
                        int64_t n, float *dx)
{
    v16 sum_g = {0}, sum_gh = {0};
    for (int64_t j = 0; j < n; j += LANES) { /* lanes past n: g is 0 */
        v16 g = load_upto(dy, FO_F32, j, n) * load_upto(weight, FO_F32, j, n);
        v16 h = (load_upto(x, FO_F32, j, n) - m) * r;
        sum_g += g;
        sum_gh += g * h;
    }
    float mean_g = sum_lanes(sum_g) / (float)n, mean_gh = sum_lanes(sum_gh) / (float)n;
    for (int64_t j = 0; j < n; j += LANES) {
        v16 g = load_upto(dy, FO_F32, j, n) * load_upto(weight, FO_F32, j, n);
        v16 h = (load_upto(x, FO_F32, j, n) - m) * r;
        store_upto(dx, FO_F32, j, load_upto(dx, FO_F32, j, n) + r * (g - mean_g - h * mean_gh), n);
    }
}

/* Columns [begin, end) of dweight and dbias, row after row. */
static void backward_columns(const float *dy, const float *x, const float *mean, const float *rstd,
                             int64_t rows, int64_t n, int64_t begin, int64_t end, float *dweight,
                             float *dbias)
{
    for (int64_t j = begin; j < end; j += LANES) {
        v16 w = load_upto(dweight, FO_F32, j, end), b = load_upto(dbias, FO_F32, j, end);
        for (int64_t row = 0; row < rows; row++) {
            int64_t at = row * n;
            v16 up = load_upto(dy, FO_F32, at + j, at + end);
            w += up * ((load_upto(x, FO_F32, at + j, at + end) - mean[row]) * rstd[row]);
            b += up;
        }
        store_upto(dweight, FO_F32, j, w, end);
        store_upto(dbias, FO_F32, j, b, end);
    }
}

static void layernorm_backward(const float *dy, const float *x, const float *weight,
                               const float *mean, const float *rstd, int64_t rows, int64_t n,
                               float *dx, float *dweight, float *dbias)
{
    int threads = fo_kernel_threads();
    if (threads == 1 || rows * n <= SMALL) {
        for (int64_t row = 0; row < rows; row += ROWS) {
            int64_t count = rows - row < ROWS ? rows - row : ROWS, at = row * n;
            for (int64_t i = 0; i < count; i++)
                backward_dx(dy + at + i * n, x + at + i * n, weight, mean[row + i], rstd[row + i], n,
                            dx + at + i * n);
            backward_columns(dy + at, x + at, mean + row, rstd + row, count, n, 0, n, dweight, dbias);
        }
        return;
    }
#pragma omp parallel num_threads(threads)
    {
#pragma omp for nowait
        for (int64_t row = 0; row < rows; row++)
            backward_dx(dy + row * n, x + row * n, weight, mean[row], rstd[row], n, dx + row * n);
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
    for (; i < n; i += LANES)
        a = max16(select16(lanes_below(n - i), load_upto(x, FO_F32, i, n), a), a);
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
    for (; i < n; i += LANES)
        a += select16(lanes_below(n - i), exp16(load_upto(x, FO_F32, i, n) - max), (v16){0});
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

static void xent_grad(const float *logits, const int32_t *targets, const float *lse, int64_t rows,
                      int64_t n, int64_t first, float scale, void *dlogits, fo_dtype dtype)
{
    int threads = fo_kernel_threads();
#pragma omp parallel for if (threads > 1 && rows * n > SMALL) num_threads(threads)
    for (int64_t row = 0; row < rows; row++) {
        int64_t at = row * n, end = at + n, target = targets[row] - first;
        /* float32 dlogits may be logits: the target's own logit is read before it is overwritten. */
        float hit = target >= 0 && target < n ? logits[at + target] : 0.0f;
        for (int64_t i = at; i < end; i += LANES)
            store_upto(dlogits, dtype, i,
                       scale * exp16(load_upto(logits, FO_F32, i, end) - lse[row]), end);
        if (target >= 0 && target < n) {
            v16 value = scale * (exp16(splat(hit) - lse[row]) - 1.0f);
            store_part(dlogits, dtype, at + target, value, 1);
        }
    }
}

void FO_VEC(fo_kernel_vec_fill_rows)(fo_kernel_vec *table)
{
    table->layernorm_forward = layernorm_forward;
    table->layernorm_backward = layernorm_backward;
    table->xent_stats = xent_stats;
    table->xent_grad = xent_grad;
}
