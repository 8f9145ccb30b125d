/* Functions over elements, vectorised. */
#include "kernel/vec/fill.h"
#include "kernel/vec/math.h"

/* Elements of one thread's turn; a multiple of the lanes. Fewer than two turns run on one thread. */
enum { CHUNK = 8192, COLUMNS = 512 };

static int64_t chunks_of(int64_t n, int64_t chunk)
{
    return (n + chunk - 1) / chunk;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void epilogue_row(const fo_epilogue *e, const float *c, int64_t row, int64_t n)
{
    int64_t at = row * n;
    for (int64_t j = 0; j < n; j += LANES) {
        int64_t i = at + j, end = at + n;
        v16 v = load_upto(c, FO_F32, i, end);
        if (e->add)
            v += load_upto(e->add, e->add_dtype, i, end);
        if (e->bias)
            v += load_upto(e->bias, FO_F32, j, n);
        if (e->gelu) {
            if (e->pre)
                store_upto(e->pre, e->pre_dtype, i, v, end);
            v = gelu16(v);
        } else if (e->gelu_grad) {
            v *= gelu_grad16(load_upto(e->pre, e->pre_dtype, i, end));
        }
        if (e->y)
            store_upto(e->y, e->y_dtype, i, v, end);
    }
}

static void epilogue(const fo_epilogue *e, const float *c, int64_t rows, int64_t n)
{
    int threads = fo_kernel_threads();
#pragma omp parallel for if (threads > 1 && rows * n > CHUNK) num_threads(threads)
    for (int64_t row = 0; row < rows; row++)
        epilogue_row(e, c, row, n);
}

FO_VEC_INLINE void convert_chunk(const void *x, fo_dtype x_dtype, void *y, fo_dtype y_dtype,
                                 int64_t begin, int64_t end)
{
    int64_t i = begin;
    for (; i + LANES <= end; i += LANES)
        store16(y, y_dtype, i, load16(x, x_dtype, i));
    if (i < end)
        store_part(y, y_dtype, i, load_part(x, x_dtype, i, end - i), end - i);
}

static void convert(const void *x, fo_dtype x_dtype, void *y, fo_dtype y_dtype, int64_t n)
{
    int threads = fo_kernel_threads();
#pragma omp parallel for if (threads > 1 && n > CHUNK) num_threads(threads)
    for (int64_t chunk = 0; chunk < chunks_of(n, CHUNK); chunk++) {
        int64_t begin = chunk * CHUNK, end = least(n, begin + CHUNK);
        if (x_dtype == y_dtype) {
            size_t size = fo_dtype_size(x_dtype);
            memmove((char *)y + (size_t)begin * size, (const char *)x + (size_t)begin * size,
                    (size_t)(end - begin) * size);
        } else if (x_dtype == FO_F32) {
            convert_chunk(x, FO_F32, y, FO_BF16, begin, end);
        } else {
            convert_chunk(x, FO_BF16, y, FO_F32, begin, end);
        }
    }
}

static void add(const void *a, fo_dtype a_dtype, const void *b, fo_dtype b_dtype, void *y,
                fo_dtype y_dtype, int64_t n)
{
    int threads = fo_kernel_threads();
#pragma omp parallel for if (threads > 1 && n > CHUNK) num_threads(threads)
    for (int64_t chunk = 0; chunk < chunks_of(n, CHUNK); chunk++) {
        int64_t i = chunk * CHUNK, end = least(n, i + CHUNK);
        for (; i + LANES <= end; i += LANES)
            store16(y, y_dtype, i, load16(a, a_dtype, i) + load16(b, b_dtype, i));
        if (i < end)
            store_part(y, y_dtype, i,
                       load_part(a, a_dtype, i, end - i) + load_part(b, b_dtype, i, end - i),
                       end - i);
    }
}

/* Threads split the columns: every column is added row after row. */
static void column_sum(const void *x, fo_dtype dtype, int64_t rows, int64_t n, float *sum)
{
    int threads = fo_kernel_threads();
#pragma omp parallel for if (threads > 1 && rows * n > CHUNK) num_threads(threads)
    for (int64_t chunk = 0; chunk < chunks_of(n, COLUMNS); chunk++) {
        int64_t begin = chunk * COLUMNS, end = least(n, begin + COLUMNS);
        for (int64_t row = 0; row < rows; row++) {
            int64_t at = row * n;
            for (int64_t j = begin; j < end; j += LANES)
                store_upto(sum, FO_F32, j,
                           load_upto(sum, FO_F32, j, end) +
                               load_upto(x, dtype, at + j, at + end), end);
        }
    }
}

static void dropout(float *x, int64_t row, int64_t rows, int64_t n, float p, uint64_t key,
                    uint64_t stream)
{
    if (p <= 0.0f)
        return;
    int threads = fo_kernel_threads();
    int64_t total = rows * n;
    uint64_t first = (uint64_t)row * (uint64_t)n;
#pragma omp parallel for if (threads > 1 && total > CHUNK) num_threads(threads)
    for (int64_t chunk = 0; chunk < chunks_of(total, CHUNK); chunk++) {
        int64_t begin = chunk * CHUNK, end = least(total, begin + CHUNK);
        for (int64_t i = begin; i < end; i += LANES)
            store_upto(x, FO_F32, i,
                       drop16(load_upto(x, FO_F32, i, end),
                              uniform16(key, stream, first + (uint64_t)i, 1), p), end);
    }
}

static double sum_squares_chunk(const float *x, int64_t n)
{
    d8 low = {0}, high = {0};
    for (int64_t i = 0; i < n; i += LANES) {
        v16 v = load_upto(x, FO_F32, i, n);
        v8 half[2];
        memcpy(half, &v, sizeof half);
        d8 a = __builtin_convertvector(half[0], d8), b = __builtin_convertvector(half[1], d8);
        low += a * a;
        high += b * b;
    }
    low += high;
    double sum[8];
    memcpy(sum, &low, sizeof sum);
    return ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7]));
}

/* A fixed number of parts, added in order. */
static double sum_squares(const float *x, int64_t n)
{
    enum { PARTS = 64 };
    double part[PARTS], sum = 0.0;
    int threads = fo_kernel_threads();
    int64_t each = chunks_of(chunks_of(n, PARTS), LANES) * LANES;
#pragma omp parallel for if (threads > 1 && n > CHUNK) num_threads(threads)
    for (int i = 0; i < PARTS; i++) {
        int64_t begin = least(n, i * each), end = least(n, begin + each);
        part[i] = sum_squares_chunk(x + begin, end - begin);
    }
    for (int i = 0; i < PARTS; i++)
        sum += part[i];
    return sum;
}

static void adamw_chunk(const fo_adamw *o, const float *grad, float *w, float *m, float *v, int64_t n)
{
    float rest1 = 1.0f - o->beta1, rest2 = 1.0f - o->beta2, shrink = o->lr * o->decay;
    for (int64_t i = 0; i < n; i += LANES) {
        v16 g = load_upto(grad, FO_F32, i, n) * o->grad_scale;
        v16 wi = load_upto(w, FO_F32, i, n);
        v16 mi = load_upto(m, FO_F32, i, n);
        v16 vi = load_upto(v, FO_F32, i, n);
        wi -= shrink * wi;
        mi = o->beta1 * mi + rest1 * g;
        vi = o->beta2 * vi + rest2 * g * g;
        wi -= o->lr * (mi / o->correction1) / (sqrt16(vi / o->correction2) + o->eps);
        store_upto(w, FO_F32, i, wi, n);
        store_upto(m, FO_F32, i, mi, n);
        store_upto(v, FO_F32, i, vi, n);
    }
}

static void adamw(const fo_adamw *o, const float *grad, float *w, float *m, float *v, int64_t n)
{
    int threads = fo_kernel_threads();
#pragma omp parallel for if (threads > 1 && n > CHUNK) num_threads(threads)
    for (int64_t chunk = 0; chunk < chunks_of(n, CHUNK); chunk++) {
        int64_t at = chunk * CHUNK;
        adamw_chunk(o, grad + at, w + at, m + at, v + at, least(n - at, CHUNK));
    }
}

void FO_VEC(fo_kernel_vec_fill_elements)(fo_kernel_vec *table)
{
    table->epilogue = epilogue;
    table->convert = convert;
    table->add = add;
    table->column_sum = column_sum;
    table->dropout = dropout;
    table->sum_squares = sum_squares;
    table->adamw = adamw;
}
