/* Reference functions over elements. */
#include "kernel/ref/ref.h"

#include <stdlib.h>
#include <string.h>

#include "base/random.h"

/* The tanh form, as GPT-2 has it; in double, since 1 + tanh and 1 - tanh^2 cancel where x is large. */
static const double root_2_over_pi = 0.79788456080286535588, cubic = 0.044715;

static float gelu(double x)
{
    return (float)(0.5 * x * (1.0 + tanh(root_2_over_pi * (x + cubic * x * x * x))));
}

static float gelu_grad(double x)
{
    double t = tanh(root_2_over_pi * (x + cubic * x * x * x));
    double slope = root_2_over_pi * (1.0 + 3.0 * cubic * x * x);
    return (float)(0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * slope);
}

static void epilogue(const fo_epilogue *e, const float *c, int64_t rows, int64_t n)
{
    for (int64_t row = 0; row < rows; row++)
        for (int64_t j = 0; j < n; j++) {
            int64_t i = row * n + j;
            float v = c[i];
            if (e->add)
                v += fo_kernel_ref_load(e->add, e->add_dtype, i);
            if (e->bias)
                v += e->bias[j];
            if (e->gelu) {
                if (e->pre)
                    fo_kernel_ref_store(e->pre, e->pre_dtype, i, v);
                v = gelu(v);
            } else if (e->gelu_grad) {
                v *= gelu_grad(fo_kernel_ref_load(e->pre, e->pre_dtype, i));
            }
            if (e->y)
                fo_kernel_ref_store(e->y, e->y_dtype, i, v);
        }
}

static void convert(const void *x, fo_dtype x_dtype, void *y, fo_dtype y_dtype, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        fo_kernel_ref_store(y, y_dtype, i, fo_kernel_ref_load(x, x_dtype, i));
}

static void add(const void *a, fo_dtype a_dtype, const void *b, fo_dtype b_dtype, void *y,
                fo_dtype y_dtype, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        fo_kernel_ref_store(y, y_dtype, i,
                            fo_kernel_ref_load(a, a_dtype, i) + fo_kernel_ref_load(b, b_dtype, i));
}

static void column_sum(const void *x, fo_dtype dtype, int64_t rows, int64_t n, float *sum)
{
    for (int64_t row = 0; row < rows; row++)
        for (int64_t j = 0; j < n; j++)
            sum[j] += fo_kernel_ref_load(x, dtype, row * n + j);
}

static void dropout(float *x, int64_t row, int64_t rows, int64_t n, float p, uint64_t key,
                    uint64_t stream)
{
    if (p <= 0.0f)
        return;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < n; j++) {
            bool keep = fo_base_random_uniform(key, stream, (uint64_t)((row + i) * n + j)) >= p;
            x[i * n + j] = keep ? x[i * n + j] * (1.0f / (1.0f - p)) : 0.0f;
        }
}

static double sum_squares(const float *x, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return sum;
}

static void adamw(const fo_adamw *o, const float *grad, float *w, float *m, float *v, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] * o->grad_scale;
        w[i] -= o->lr * o->decay * w[i];
        m[i] = o->beta1 * m[i] + (1.0f - o->beta1) * g;
        v[i] = o->beta2 * v[i] + (1.0f - o->beta2) * g * g;
        w[i] -= o->lr * (m[i] / o->correction1) / (sqrtf(v[i] / o->correction2) + o->eps);
    }
}

void fo_kernel_ref_elements_fill(fo_kernel *table)
{
    table->epilogue = epilogue;
    table->convert = convert;
    table->add = add;
    table->column_sum = column_sum;
    table->dropout = dropout;
    table->sum_squares = sum_squares;
    table->adamw = adamw;
}
