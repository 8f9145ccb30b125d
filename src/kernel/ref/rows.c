/* Reference functions over rows: normalisation and cross-entropy. */
#include "kernel/ref/ref.h"

static const float epsilon = 1e-5f;

static void layernorm_forward(const float *x, const float *weight, const float *bias, int64_t rows,
                              int64_t n, void *y, fo_dtype y_dtype, float *mean, float *rstd)
{
    for (int64_t row = 0; row < rows; row++) {
        const float *in = x + row * n;
        float sum = 0.0f, squares = 0.0f;
        for (int64_t j = 0; j < n; j++)
            sum += in[j];
        float m = sum / (float)n;
        for (int64_t j = 0; j < n; j++)
            squares += (in[j] - m) * (in[j] - m);
        float r = 1.0f / sqrtf(squares / (float)n + epsilon);
        for (int64_t j = 0; j < n; j++)
            fo_kernel_ref_store(y, y_dtype, row * n + j, (in[j] - m) * r * weight[j] + bias[j]);
        mean[row] = m;
        rstd[row] = r;
    }
}

/* With g = dy * weight and h the normalised x: dx = rstd * (g - mean(g) - h * mean(g * h)). */
static void layernorm_backward(const float *dy, const float *x, const float *weight,
                               const float *mean, const float *rstd, int64_t rows, int64_t n,
                               float *dx, float *dweight, float *dbias)
{
    for (int64_t row = 0; row < rows; row++) {
        const float *in = x + row * n, *up = dy + row * n;
        float m = mean[row], r = rstd[row], sum_g = 0.0f, sum_gh = 0.0f;
        for (int64_t j = 0; j < n; j++) {
            float h = (in[j] - m) * r, g = up[j] * weight[j];
            sum_g += g;
            sum_gh += g * h;
        }
        for (int64_t j = 0; j < n; j++) {
            float h = (in[j] - m) * r, g = up[j] * weight[j];
            dx[row * n + j] += r * (g - sum_g / (float)n - h * (sum_gh / (float)n));
            dweight[j] += up[j] * h;
            dbias[j] += up[j];
        }
    }
}

static void xent_stats(const float *logits, const int32_t *targets, int64_t rows, int64_t n,
                       int64_t first, float *stats)
{
    for (int64_t row = 0; row < rows; row++) {
        const float *in = logits + row * n;
        int64_t target = targets[row] - first;
        float max = -INFINITY, sum = 0.0f;
        for (int64_t j = 0; j < n; j++)
            max = in[j] > max ? in[j] : max;
        for (int64_t j = 0; j < n; j++)
            sum += expf(in[j] - max);
        stats[row * 3] = max;
        stats[row * 3 + 1] = sum;
        stats[row * 3 + 2] = target >= 0 && target < n ? in[target] : 0.0f;
    }
}

static void xent_grad(const float *logits, const int32_t *targets, const float *lse, int64_t rows,
                      int64_t n, int64_t first, float scale, void *dlogits, fo_dtype dtype)
{
    for (int64_t row = 0; row < rows; row++)
        for (int64_t j = 0; j < n; j++) {
            float p = expf(logits[row * n + j] - lse[row]);
            float hit = first + j == targets[row] ? 1.0f : 0.0f;
            fo_kernel_ref_store(dlogits, dtype, row * n + j, scale * (p - hit));
        }
}

void fo_kernel_ref_rows_fill(fo_kernel *table)
{
    table->layernorm_forward = layernorm_forward;
    table->layernorm_backward = layernorm_backward;
    table->xent_stats = xent_stats;
    table->xent_grad = xent_grad;
}
