/* Every kernel backend against the reference, case by case; row independence and independence of the
 * number of threads, to the bit. The thread sanitizer does not know the OpenMP runtime: with it only
 * the reference runs, on one thread. */
#include "../unit/kernel/compare.h"

#include "flashoverlap/plan.h"

#if defined(__SANITIZE_THREAD__)
enum { THREADS = 1 };
#else
enum { THREADS = 2 };
#endif

static const fo_dtype dtypes[] = {FO_F32, FO_BF16};

static const fo_kernel *reference(void)
{
    return fo_kernel_find("ref");
}

/* The backends under test, in turn; those without the type are passed over. */
static const fo_kernel *backend(int index)
{
#if defined(__SANITIZE_THREAD__)
    return index == 0 ? reference() : NULL;
#else
    return computing(index);
#endif
}

static char text[256];

static const char *name(const fo_kernel *k, const char *what, fo_dtype dtype, int64_t a, int64_t b,
                        int64_t c)
{
    snprintf(text, sizeof text, "%s %s %s %lld %lld %lld", k->name, what, fo_dtype_name(dtype),
             (long long)a, (long long)b, (long long)c);
    return text;
}

/* ---- matrix products ----------------------------------------------------------------------------- */

/* c of all FO_TILE_ROWS rows by tiles of `height` rows. */
static float *product(const fo_kernel *k, const fo_gemm_desc *desc, const float *b, const void *a,
                      int64_t height)
{
    fo_gemm *gemm;
    ok(k->gemm_create(desc, &gemm));
    void *packed = aligned_alloc(64, (k->gemm_packed_bytes(gemm) / 64 + 1) * 64);
    ok(k->gemm_pack(gemm, b, packed));
    float *c = make(FO_F32, FO_TILE_ROWS * desc->n);
    for (int64_t row = 0; row < FO_TILE_ROWS; row += height) {
        int64_t rows = FO_TILE_ROWS - row < height ? FO_TILE_ROWS - row : height;
        /* The tile's rows alone, so that reading past them is seen. */
        void *tile = copy_of(desc->dtype, row_at(a, desc->dtype, row * desc->k), rows * desc->k);
        float *out = make(FO_F32, rows * desc->n);
        ok(k->gemm_tile(gemm, packed, tile, rows, out));
        check_fence("gemm tile", out, FO_F32, rows * desc->n);
        memcpy(c + row * desc->n, out, (size_t)(rows * desc->n) * sizeof *c);
        free(tile);
        free(out);
    }
    ok(k->gemm_tile(gemm, packed, a, 0, c));
    assert_int_equal(k->gemm_tile(gemm, packed, a, FO_TILE_ROWS + 1, c), FO_INVALID);
    k->gemm_destroy(gemm);
    free(packed);
    return c;
}

static void gemm_case(const fo_kernel *k, fo_gemm_desc desc, bool all_heights)
{
    float *b = random_values(FO_F32, desc.k * desc.n, 1, 0.0, 1.0);
    void *a = random_values(desc.dtype, FO_TILE_ROWS * desc.k, 2, 0.0, 1.0);
    const char *what =
        name(k, desc.transposed ? "gemm transposed" : "gemm", desc.dtype, desc.k, desc.n, 0);
    float *expected = product(reference(), &desc, b, a, FO_TILE_ROWS);
    float *found = product(k, &desc, b, a, FO_TILE_ROWS);
    /* b is rounded to T by both; products are exact in float32 with bf16. */
    compare(what, found, FO_F32, expected, NULL, FO_TILE_ROWS * desc.n, desc.n,
            1e-6 + 2e-6 * sqrt((double)desc.k), 1e-6);
    for (int64_t height = 1; height < FO_TILE_ROWS; height += all_heights ? 1 : 13) {
        float *tiles = product(k, &desc, b, a, height);
        snprintf(text + strlen(text), 32, " height %lld", (long long)height);
        same_bits(what, tiles, found, FO_F32, FO_TILE_ROWS * desc.n, desc.n);
        name(k, "gemm", desc.dtype, desc.k, desc.n, 0);
        free(tiles);
    }
    fo_kernel_set_threads(THREADS);
    float *threaded = product(k, &desc, b, a, FO_TILE_ROWS);
    float *threaded_tiles = product(k, &desc, b, a, 23);
    fo_kernel_set_threads(1);
    same_bits(what, threaded, found, FO_F32, FO_TILE_ROWS * desc.n, desc.n);
    same_bits(what, threaded_tiles, found, FO_F32, FO_TILE_ROWS * desc.n, desc.n);
    free(a);
    free(b);
    free(expected);
    free(found);
    free(threaded);
    free(threaded_tiles);
}

static void test_gemm(void **state)
{
    static const int64_t ks[] = {0, 1, 2, 3, 15, 16, 17, 33, 64, 100, 257};
    static const int64_t ns[] = {0, 1, 5, 15, 16, 17, 33, 48, 64, 65, 127, 130};
    (void)state;
    for (int i = 0; backend(i); i++)
        for (int t = 0; t < 4; t++)
            for (size_t ik = 0; ik < sizeof ks / sizeof *ks; ik++)
                for (size_t in = 0; in < sizeof ns / sizeof *ns; in++)
                    if (backend(i)->supports(dtypes[t / 2]))
                        gemm_case(backend(i), (fo_gemm_desc){ks[ik], ns[in], dtypes[t / 2], t % 2},
                                  false);
}

static void test_gemm_heights(void **state)
{
    static const int64_t shapes[][2] = {{7, 40},   {64, 96},   {130, 70},
                                        {769, 33}, {100, 300}, {2100, 17}};
    (void)state;
    for (int i = 0; backend(i); i++)
        for (int t = 0; t < 2; t++)
            for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
                if (backend(i)->supports(dtypes[t]))
                    gemm_case(backend(i),
                              (fo_gemm_desc){shapes[s][0], shapes[s][1], dtypes[t], s % 2}, true);
}

static float *gradient(const fo_kernel *k, const fo_wgrad_desc *desc, const void *dy, const void *x,
                       int64_t rows)
{
    fo_wgrad *wgrad;
    ok(k->wgrad_create(desc, &wgrad));
    float *dw = random_values(FO_F32, desc->out * desc->in, 3, 0.0, 1.0);
    ok(k->wgrad_block(wgrad, dy, x, rows, dw));
    ok(k->wgrad_block(wgrad, dy, x, rows / 2, dw));
    assert_int_equal(k->wgrad_block(wgrad, dy, x, FO_WGRAD_ROWS + 1, dw), FO_INVALID);
    k->wgrad_destroy(wgrad);
    return dw;
}

static void wgrad_case(const fo_kernel *k, fo_wgrad_desc desc, int64_t rows)
{
    void *dy = random_values(desc.dtype, rows * desc.out, 1, 0.0, 1.0);
    void *x = random_values(desc.dtype, rows * desc.in, 2, 0.0, 1.0);
    int64_t n = desc.out * desc.in;
    const char *what = name(k, "wgrad", desc.dtype, desc.out, desc.in, rows);
    float *expected = gradient(reference(), &desc, dy, x, rows);
    float *found = gradient(k, &desc, dy, x, rows);
    compare(what, found, FO_F32, expected, NULL, n, desc.in, 1e-6 + 1e-6 * sqrt((double)rows),
            1e-6);
    fo_kernel_set_threads(THREADS);
    float *threaded = gradient(k, &desc, dy, x, rows);
    fo_kernel_set_threads(1);
    same_bits(what, threaded, found, FO_F32, n, desc.in);
    free(dy);
    free(x);
    free(expected);
    free(found);
    free(threaded);
}

static void test_wgrad(void **state)
{
    static const int64_t shapes[][2] = {{0, 5},   {5, 0},   {1, 1},    {3, 17},
                                        {16, 16}, {65, 33}, {130, 100}};
    static const int64_t rows[] = {0, 1, 3, 63, 64, 65, 100, 129, 200, 255, 256};
    (void)state;
    for (int i = 0; backend(i); i++)
        for (int t = 0; t < 2; t++)
            for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
                for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
                    if (backend(i)->supports(dtypes[t]))
                        wgrad_case(backend(i),
                                   (fo_wgrad_desc){shapes[s][0], shapes[s][1], dtypes[t]}, rows[r]);
}

/* ---- elements ------------------------------------------------------------------------------------ */

/* Values that conversions get wrong: NaNs, infinities, denormals, halves between bf16 values. */
static void *special_values(fo_dtype dtype, int64_t n)
{
    static const uint32_t bits[] = {0x00000000, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000,
                                    0x7f800001, 0xffffffff, 0x7fffffff, 0x00000001, 0x807fffff,
                                    0x3f808000, 0x3f818000, 0x3f807fff, 0x3f808001, 0x7f7fffff,
                                    0xff7f8000, 0x00008000, 0x00018000, 0x3f800000, 0xc2280000};
    void *x = random_values(dtype, n, 9, 0.0, 100.0);
    for (int64_t i = 0; i < n; i += 3) {
        float value;
        memcpy(&value, &bits[(size_t)i % (sizeof bits / sizeof *bits)], sizeof value);
        put(x, dtype, i, value);
        if (dtype == FO_F32)
            memcpy((float *)x + i, &bits[(size_t)i % (sizeof bits / sizeof *bits)], sizeof value);
    }
    return x;
}

static const int64_t lengths[] = {0,  1,   2,    15,   16,   17,   31,   33,
                                  64, 100, 1000, 8191, 8192, 8193, 20000};

static void test_convert_add(void **state)
{
    (void)state;
    for (int i = 0; backend(i); i++)
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
            for (int t = 0; t < 8; t++)
                for (int threads = 1; threads <= THREADS; threads++) {
                    fo_dtype a_type = dtypes[t & 1], b_type = dtypes[t >> 1 & 1],
                             y_type = dtypes[t >> 2];
                    int64_t n = lengths[l];
                    void *a = special_values(a_type, n), *b = random_values(b_type, n, 4, 0.0, 3.0);
                    void *found = make(y_type, n), *expected = make(y_type, n);
                    const char *what = name(backend(i), "add", a_type, b_type, y_type, n);
                    reference()->add(a, a_type, b, b_type, expected, y_type, n);
                    fo_kernel_set_threads(threads);
                    backend(i)->add(a, a_type, b, b_type, found, y_type, n);
                    compare(what, found, y_type, expected, NULL, n, 0, 0.0, 0.0);
                    if (a_type == y_type) {
                        void *in_place = copy_of(a_type, a, n);
                        backend(i)->add(in_place, a_type, b, b_type, in_place, y_type, n);
                        compare(what, in_place, y_type, expected, NULL, n, 0, 0.0, 0.0);
                        free(in_place);
                    }
                    backend(i)->convert(a, a_type, found, y_type, n);
                    fo_kernel_set_threads(1);
                    reference()->convert(a, a_type, expected, y_type, n);
                    what = name(backend(i), "convert", a_type, y_type, n, 0);
                    compare(what, found, y_type, expected, NULL, n, 0, 0.0, 0.0);
                    free(a);
                    free(b);
                    free(found);
                    free(expected);
                }
}

/* Part `mask` of an epilogue: bits 0 add, 1 bias, 2 gelu, 3 gelu_grad, 4-6 types of add, pre, y. */
static void epilogue_case(const fo_kernel *k, int mask, int64_t rows, int64_t n, int threads)
{
    fo_dtype add_type = dtypes[mask >> 4 & 1], pre_type = dtypes[mask >> 5 & 1];
    fo_dtype y_type = dtypes[mask >> 6 & 1];
    bool gelu = mask & 4, grad = mask & 8;
    int64_t size = rows * n;
    void *add = random_values(add_type, size, 1, 0.0, 2.0), *pre[2], *y[2];
    float *bias = random_values(FO_F32, n, 2, 0.0, 2.0),
          *c = random_values(FO_F32, size, 3, 0.0, 8.0);
    for (int i = 0; i < 2; i++) {
        pre[i] = grad ? random_values(pre_type, size, 4, 0.0, 8.0) : make(pre_type, size);
        y[i] = make(y_type, size);
        fo_epilogue e = {.add = mask & 1 ? add : NULL,
                         .add_dtype = add_type,
                         .bias = mask & 2 ? bias : NULL,
                         .gelu = gelu,
                         .gelu_grad = grad,
                         .pre = gelu || grad ? pre[i] : NULL,
                         .pre_dtype = pre_type,
                         .y = y[i],
                         .y_dtype = y_type};
        fo_kernel_set_threads(i ? 1 : threads);
        (i ? reference() : k)->epilogue(&e, c, rows, n);
    }
    const char *what = name(k, "epilogue", y_type, mask, rows, n);
    double bits = y_type == FO_BF16 ? 0.008 : 2e-6; /* one step of the type where gelu rounds */
    if (gelu)
        compare(what, pre[0], pre_type, pre[1], NULL, size, n, 0.0, 0.0);
    compare(what, y[0], y_type, y[1], NULL, size, n, gelu || grad ? 2e-6 : 0.0,
            gelu || grad ? bits : 0.0);
    for (int i = 0; i < 2; i++) {
        free(pre[i]);
        free(y[i]);
    }
    free(add);
    free(bias);
    free(c);
}

static void test_epilogue(void **state)
{
    static const int64_t shapes[][2] = {{0, 5},  {3, 0},  {1, 1},   {3, 15},
                                        {5, 16}, {2, 33}, {64, 200}};
    (void)state;
    for (int i = 0; backend(i); i++)
        for (int mask = 0; mask < 128; mask++)
            for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
                for (int threads = 1; threads <= THREADS; threads++)
                    if ((mask & 12) != 12)
                        epilogue_case(backend(i), mask, shapes[s][0], shapes[s][1], threads);
}

static void test_gelu_extremes(void **state)
{
    (void)state;
    for (int i = 0; backend(i); i++) {
        const float x[] = {-1e30f, -1e4f, -100.0f, -12.0f, -1e-30f, 0.0f,
                           1e-30f, 12.0f, 100.0f,  1e4f,   1e30f};
        enum { N = sizeof x / sizeof *x };
        float one[N], pre[N], y[N], slope[N];
        for (int j = 0; j < N; j++)
            one[j] = 1.0f;
        fo_epilogue forward = {.gelu = true, .pre = pre, .y = y};
        fo_epilogue backward = {.gelu_grad = true, .pre = pre, .y = slope};
        backend(i)->epilogue(&forward, x, 1, N);
        backend(i)->epilogue(&backward, one, 1, N);
        for (int j = 0; j < N; j++) {
            double s = x[j] > 5 ? 1.0 : x[j] < -5 ? 0.0 : 0.5;
            assert_true(wrong(y[j], x[j] * s) <= 1e-6);
            assert_true(wrong(slope[j], s) <= 1e-6);
        }
        float nan = NAN;
        backend(i)->epilogue(&(fo_epilogue){.gelu = true, .y = y}, &nan, 1, 1);
        assert_true(isnan(y[0]));
    }
}

static void test_column_sum_dropout(void **state)
{
    static const int64_t shapes[][2] = {{0, 5},   {3, 0},    {1, 1},   {7, 15},
                                        {20, 16}, {9, 1100}, {300, 65}};
    (void)state;
    for (int i = 0; backend(i); i++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (int t = 0; t < 2; t++)
                for (int threads = 1; threads <= THREADS; threads++) {
                    int64_t rows = shapes[s][0], n = shapes[s][1];
                    void *x = random_values(dtypes[t], rows * n, 1, 0.0, 1.0);
                    float *found = random_values(FO_F32, n, 2, 0.0, 1.0);
                    float *expected = random_values(FO_F32, n, 2, 0.0, 1.0);
                    fo_kernel_set_threads(threads);
                    backend(i)->column_sum(x, dtypes[t], rows, n, found);
                    reference()->column_sum(x, dtypes[t], rows, n, expected);
                    compare(name(backend(i), "column_sum", dtypes[t], rows, n, threads), found,
                            FO_F32, expected, NULL, n, n, 0.0, 0.0);
                    float *kept = random_values(FO_F32, rows * n, 3, 0.0, 1.0);
                    float *wanted = copy_of(FO_F32, kept, rows * n);
                    float p = t ? 0.3f : 0.0f;
                    backend(i)->dropout(kept, 7, rows, n, p, 99, 1ull << 40 | 3);
                    fo_kernel_set_threads(1);
                    reference()->dropout(wanted, 7, rows, n, p, 99, 1ull << 40 | 3);
                    compare(name(backend(i), "dropout", FO_F32, rows, n, threads), kept, FO_F32,
                            wanted, NULL, rows * n, n, 0.0, 0.0);
                    free(x);
                    free(found);
                    free(expected);
                    free(kept);
                    free(wanted);
                }
}

static void test_adamw_sum_squares(void **state)
{
    (void)state;
    for (int i = 0; backend(i); i++)
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
            int64_t n = lengths[l];
            fo_adamw o = {3e-4f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.1f, 0.05f, 0.7f};
            float *g = random_values(FO_F32, n, 1, 0.0, 1.0), *w[3], *m[3], *v[3];
            double sum[3];
            for (int r = 0; r < 3; r++) { /* the backend on one and on two threads; the reference */
                w[r] = random_values(FO_F32, n, 2, 0.0, 1.0);
                m[r] = random_values(FO_F32, n, 3, 0.0, 1.0);
                v[r] = random_values(FO_F32, n, 4, 0.5, 0.5);
                const fo_kernel *k = r == 2 ? reference() : backend(i);
                fo_kernel_set_threads(r == 1 ? THREADS : 1);
                k->adamw(&o, g, w[r], m[r], v[r], n);
                k->adamw(&o, g, w[r], m[r], v[r], n);
                sum[r] = k->sum_squares(g, n);
                fo_kernel_set_threads(1);
            }
            const char *what = name(backend(i), "adamw", FO_F32, n, 0, 0);
            compare(what, w[0], FO_F32, w[2], NULL, n, 0, 1e-7, 1e-6);
            compare(what, m[0], FO_F32, m[2], NULL, n, 0, 1e-7, 1e-6);
            compare(what, v[0], FO_F32, v[2], NULL, n, 0, 1e-7, 1e-6);
            same_bits(what, w[0], w[1], FO_F32, n, 0);
            same_bits(what, m[0], m[1], FO_F32, n, 0);
            same_bits(what, v[0], v[1], FO_F32, n, 0);
            assert_true(sum[0] == sum[1]);
            assert_true(wrong(sum[0], sum[2]) <= 1e-13 * (1.0 + sum[2]));
            for (int r = 0; r < 3; r++) {
                free(w[r]);
                free(m[r]);
                free(v[r]);
            }
            free(g);
        }
}

/* ---- rows ---------------------------------------------------------------------------------------- */

typedef struct norm {
    void *y;
    float *mean, *rstd, *dx, *dweight, *dbias;
} norm;

/* Forward and backward; split: row by row. */
static norm norm_run(const fo_kernel *k, fo_dtype dtype, int64_t rows, int64_t n, double center,
                     bool split, int threads)
{
    float *x = random_values(FO_F32, rows * n, 1, center, 2.0);
    float *weight = random_values(FO_F32, n, 2, 1.0, 0.5),
          *bias = random_values(FO_F32, n, 3, 0.0, 0.5);
    float *dy = random_values(FO_F32, rows * n, 4, 0.0, 1.0);
    norm r = {make(dtype, rows * n),
              make(FO_F32, rows),
              make(FO_F32, rows),
              random_values(FO_F32, rows * n, 5, 0.0, 1.0),
              random_values(FO_F32, n, 6, 0.0, 1.0),
              random_values(FO_F32, n, 7, 0.0, 1.0)};
    int64_t each = split ? 1 : rows;
    fo_kernel_set_threads(threads);
    for (int64_t row = 0; row < rows; row += each) {
        int64_t at = row * n;
        k->layernorm_forward(x + at, weight, bias, each, n, row_at(r.y, dtype, at), dtype,
                             r.mean + row, r.rstd + row);
        k->layernorm_backward(dy + at, x + at, weight, r.mean + row, r.rstd + row, each, n,
                              r.dx + at, r.dweight, r.dbias);
    }
    fo_kernel_set_threads(1);
    free(x);
    free(weight);
    free(bias);
    free(dy);
    return r;
}

static void norm_free(norm *r)
{
    free(r->y);
    free(r->mean);
    free(r->rstd);
    free(r->dx);
    free(r->dweight);
    free(r->dbias);
}

static void layernorm_case(const fo_kernel *k, fo_dtype dtype, int64_t rows, int64_t n,
                           double center)
{
    const char *what = name(k, "layernorm", dtype, rows, n, (int64_t)center);
    norm found = norm_run(k, dtype, rows, n, center, false, 1);
    norm expected = norm_run(reference(), dtype, rows, n, center, false, 1);
    /* The mean's rounding, in units of the deviation, goes into everything after it. With n <= 2 the
     * deviation can be small. */
    double tolerance =
        (2e-6 + 1e-6 * fabs(center)) * (1.0 + sqrt((double)n) / 4) * (n < 3 ? 50.0 : 1.0);
    compare(what, found.mean, FO_F32, expected.mean, NULL, rows, 1, 1e-6 + 1e-6 * fabs(center),
            1e-6);
    compare(what, found.rstd, FO_F32, expected.rstd, NULL, rows, 1, 0.0, tolerance);
    compare(what, found.y, dtype, expected.y, NULL, rows * n, n, 4 * tolerance,
            dtype == FO_BF16 ? 0.008 : tolerance);
    if (n > 2) {
        compare(what, found.dx, FO_F32, expected.dx, NULL, rows * n, n, 8 * tolerance, tolerance);
        compare(what, found.dweight, FO_F32, expected.dweight, NULL, n, n,
                4 * tolerance * (1.0 + (double)rows / 4), tolerance);
    }
    compare(what, found.dbias, FO_F32, expected.dbias, NULL, n, n, 0.0, 0.0);
    for (int variant = 0; variant < 2; variant++) { /* split rows; two threads */
        norm again = norm_run(k, dtype, rows, n, center, variant == 0, variant == 0 ? 1 : THREADS);
        same_bits(what, again.y, found.y, dtype, rows * n, n);
        same_bits(what, again.mean, found.mean, FO_F32, rows, 1);
        same_bits(what, again.rstd, found.rstd, FO_F32, rows, 1);
        same_bits(what, again.dx, found.dx, FO_F32, rows * n, n);
        same_bits(what, again.dweight, found.dweight, FO_F32, n, n);
        same_bits(what, again.dbias, found.dbias, FO_F32, n, n);
        norm_free(&again);
    }
    norm_free(&found);
    norm_free(&expected);
}

static void test_layernorm(void **state)
{
    static const int64_t shapes[][2] = {{0, 8},  {1, 1},  {3, 2},   {5, 15},   {2, 16},
                                        {7, 17}, {3, 63}, {33, 65}, {40, 300}, {2, 1000}};
    (void)state;
    for (int i = 0; backend(i); i++)
        for (int t = 0; t < 2; t++)
            for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
                for (int c = 0; c < 2; c++)
                    layernorm_case(backend(i), dtypes[t], shapes[s][0], shapes[s][1],
                                   c ? 50.0 : 0.0);
}

static void xent_case(const fo_kernel *k, fo_dtype dtype, int64_t rows, int64_t n, double size)
{
    float *logits = random_values(FO_F32, rows * n, 1, 0.0, size);
    int32_t *targets = calloc((size_t)rows + 1, sizeof *targets);
    float *lse = make(FO_F32, rows);
    for (int64_t row = 0; row < rows; row++) {
        targets[row] = (int32_t)(row % 3 == 2 ? 5 : 1000 + row % (n + 2)); /* here or elsewhere */
        lse[row] = (float)size + 0.1f * (float)row;
        if (n > 2 && row % 2)
            logits[row * n + n / 2] = -INFINITY; /* a masked entry */
    }
    const char *what = name(k, "xent", dtype, rows, n, (int64_t)size);
    float *stats[4];
    void *grad[4];
    for (int r = 0; r < 4; r++) { /* the backend; on two threads; row by row; the reference */
        const fo_kernel *run = r == 3 ? reference() : k;
        int64_t each = r == 2 ? 1 : rows;
        stats[r] = make(FO_F32, rows * 3);
        grad[r] = make(dtype, rows * n);
        fo_kernel_set_threads(r == 1 ? THREADS : 1);
        for (int64_t row = 0; row < rows; row += each) {
            run->xent_stats(logits + row * n, targets + row, each, n, 1000, stats[r] + row * 3);
            run->xent_grad(logits + row * n, targets + row, lse + row, each, n, 1000, 0.125f,
                           row_at(grad[r], dtype, row * n), dtype);
        }
        fo_kernel_set_threads(1);
    }
    compare(what, stats[0], FO_F32, stats[3], NULL, rows * 3, 3, 1e-6, 1e-5);
    for (int64_t row = 0; row < rows; row++) {
        assert_true(stats[0][row * 3] == stats[3][row * 3]);
        assert_true(stats[0][row * 3 + 2] == stats[3][row * 3 + 2]);
        if (n == 0)
            assert_true(stats[0][row * 3] == -INFINITY && stats[0][row * 3 + 1] == 0.0f);
    }
    compare(what, grad[0], dtype, grad[3], NULL, rows * n, n, 1e-8,
            dtype == FO_BF16 ? 0.008 : 1e-5);
    for (int r = 1; r < 3; r++) {
        same_bits(what, stats[r], stats[0], FO_F32, rows * 3, 3);
        same_bits(what, grad[r], grad[0], dtype, rows * n, n);
    }
    for (int r = 0; r < 4; r++) {
        free(stats[r]);
        free(grad[r]);
    }
    free(logits);
    free(targets);
    free(lse);
}

static void test_xent(void **state)
{
    static const int64_t shapes[][2] = {{0, 8},  {4, 0},  {1, 1},  {3, 2},
                                        {5, 15}, {6, 16}, {7, 33}, {13, 1000}};
    static const double sizes[] = {3.0, 80.0, 1e4};
    (void)state;
    for (int i = 0; backend(i); i++)
        for (int t = 0; t < 2; t++)
            for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
                for (int z = 0; z < 3; z++)
                    xent_case(backend(i), dtypes[t], shapes[s][0], shapes[s][1], sizes[z]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gemm),
        cmocka_unit_test(test_gemm_heights),
        cmocka_unit_test(test_wgrad),
        cmocka_unit_test(test_convert_add),
        cmocka_unit_test(test_epilogue),
        cmocka_unit_test(test_gelu_extremes),
        cmocka_unit_test(test_column_sum_dropout),
        cmocka_unit_test(test_adamw_sum_squares),
        cmocka_unit_test(test_layernorm),
        cmocka_unit_test(test_xent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
