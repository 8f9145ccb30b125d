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

/* Elements i, i + 1, ... in columns j, j + 1, ... */
FO_VEC_INLINE void epilogue_part(const fo_epilogue *e, const float *c, int64_t i, int64_t j,
                                 int64_t count)
{
    v16 v = load_n(c, FO_F32, i, count);
    if (e->add)
        v += load_n(e->add, e->add_dtype, i, count);
    if (e->bias)
        v += load_n(e->bias, FO_F32, j, count);
    if (e->gelu) {
        if (e->pre)
            store_n(e->pre, e->pre_dtype, i, v, count);
        v = gelu16(v);
    } else if (e->gelu_grad) {
        v *= gelu_grad16(load_n(e->pre, e->pre_dtype, i, count));
    }
    if (!e->y)
        return;
#if defined(__AVX512F__)
    /* a sum is not read by this core soon: written past the caches it need not be fetched first */
    float *y = (float *)e->y + i;
    if (e->add && e->y_dtype == FO_F32 && count == LANES && !((uintptr_t)y & 63)) {
        _mm512_stream_ps(y, (__m512)v);
        return;
    }
#endif
    store_n(e->y, e->y_dtype, i, v, count);
}

static void epilogue_row(const fo_epilogue *epilogue, const float *c, int64_t row, int64_t n)
{
    fo_epilogue e = *epilogue; /* no store can change it */
    int64_t j = 0;
    for (; j + LANES <= n; j += LANES)
        epilogue_part(&e, c, row * n + j, j, LANES);
    if (j < n)
        epilogue_part(&e, c, row * n + j, j, n - j);
#if defined(__AVX512F__)
    _mm_sfence(); /* streamed rows are in order with what is published next */
#endif
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
        store_n(y, y_dtype, i, load_n(x, x_dtype, i, end - i), end - i);
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
            store_n(y, y_dtype, i, load_n(a, a_dtype, i, end - i) + load_n(b, b_dtype, i, end - i),
                    end - i);
    }
}

FO_VEC_INLINE void column_part(const void *x, fo_dtype dtype, int64_t at, float *sum, int64_t j,
                               int64_t count)
{
    store_n(sum, FO_F32, j, load_n(sum, FO_F32, j, count) + load_n(x, dtype, at + j, count), count);
}

FO_VEC_INLINE void column_rows(const void *x, fo_dtype dtype, int64_t rows, int64_t n,
                               int64_t begin, int64_t end, float *sum)
{
    for (int64_t row = 0; row < rows; row++) {
        int64_t j = begin;
        for (; j + LANES <= end; j += LANES)
            column_part(x, dtype, row * n, sum, j, LANES);
        if (j < end)
            column_part(x, dtype, row * n, sum, j, end - j);
    }
}

/* Threads split the columns: every column is added row after row. */
static void column_sum(const void *x, fo_dtype dtype, int64_t rows, int64_t n, float *sum)
{
    int threads = fo_kernel_threads();
#pragma omp parallel for if (threads > 1 && rows * n > CHUNK) num_threads(threads)
    for (int64_t chunk = 0; chunk < chunks_of(n, COLUMNS); chunk++) {
        int64_t begin = chunk * COLUMNS, end = least(n, begin + COLUMNS);
        if (dtype == FO_BF16)
            column_rows(x, FO_BF16, rows, n, begin, end, sum);
        else
            column_rows(x, FO_F32, rows, n, begin, end, sum);
    }
}

FO_VEC_INLINE void dropout_part(float *x, int64_t i, uint64_t first, float p, uint64_t key,
                                uint64_t stream, int64_t count)
{
    v16 uniform = uniform16(key, stream, first + (uint64_t)i, 1);
    store_n(x, FO_F32, i, drop16(load_n(x, FO_F32, i, count), uniform, p), count);
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
        int64_t i = chunk * CHUNK, end = least(total, i + CHUNK);
        for (; i + LANES <= end; i += LANES)
            dropout_part(x, i, first, p, key, stream, LANES);
        if (i < end)
            dropout_part(x, i, first, p, key, stream, end - i);
    }
}

FO_VEC_INLINE void squares_part(const float *x, int64_t i, int64_t count, d8 sum[2])
{
    v16 v = load_n(x, FO_F32, i, count);
    v8 half[2];
    memcpy(half, &v, sizeof half);
    d8 a = __builtin_convertvector(half[0], d8), b = __builtin_convertvector(half[1], d8);
    sum[0] += a * a;
    sum[1] += b * b;
}

static double sum_squares_chunk(const float *x, int64_t n)
{
    d8 even[2] = {{0}, {0}}, odd[2] = {{0}, {0}};
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        squares_part(x, i, LANES, even);
        squares_part(x, i + LANES, LANES, odd);
    }
    for (; i + LANES <= n; i += LANES)
        squares_part(x, i, LANES, even);
    if (i < n)
        squares_part(x, i, n - i, odd);
    d8 all = (even[0] + even[1]) + (odd[0] + odd[1]);
    double sum[8];
    memcpy(sum, &all, sizeof sum);
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

FO_VEC_INLINE void adamw_part(const fo_adamw *o, const float *grad, float *w, float *m, float *v,
                              int64_t i, int64_t count)
{
    float rest1 = 1.0f - o->beta1, rest2 = 1.0f - o->beta2, shrink = o->lr * o->decay;
    v16 g = load_n(grad, FO_F32, i, count) * o->grad_scale;
    v16 wi = load_n(w, FO_F32, i, count);
    v16 mi = load_n(m, FO_F32, i, count);
    v16 vi = load_n(v, FO_F32, i, count);
    wi -= shrink * wi;
    mi = o->beta1 * mi + rest1 * g;
    vi = o->beta2 * vi + rest2 * g * g;
    wi -= o->lr * (mi / o->correction1) / (sqrt16(vi / o->correction2) + o->eps);
    store_n(w, FO_F32, i, wi, count);
    store_n(m, FO_F32, i, mi, count);
    store_n(v, FO_F32, i, vi, count);
}

static void adamw_chunk(const fo_adamw *adamw, const float *grad, float *w, float *m, float *v,
                        int64_t n)
{
    fo_adamw o = *adamw;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        adamw_part(&o, grad, w, m, v, i, LANES);
    if (i < n)
        adamw_part(&o, grad, w, m, v, i, n - i);
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
