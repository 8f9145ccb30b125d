/* The vectorised functions: every variant gives the same bits; exp over the whole range; random numbers
 * as defined; packing as the layout says. */
#include "compare.h"

#include "kernel/vec/vec.h"

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Distance in representable numbers. */
static int64_t steps(float a, float b)
{
    int32_t x, y;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    int64_t p = x < 0 ? (int64_t)INT32_MIN - x : x, q = y < 0 ? (int64_t)INT32_MIN - y : y;
    return p > q ? p - q : q - p;
}

static void test_exp(void **state)
{
    (void)state;
    enum { N = 4096 };
    float x[N], y[N];
    int64_t worst = 0;
    float worst_at = 0;
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += (uint64_t)N * 199) {
        for (uint64_t i = 0; i < N; i++) /* every 199th number there is, and its neighbourhood */
            x[i] = from_bits((uint32_t)(bits + i * 199));
        fo_kernel_vec_at(0)->exp(x, y, N);
        for (int i = 0; i < N; i++) {
            float expected = (float)exp((double)x[i]);
            if (isnan(x[i])) {
                assert_true(isnan(y[i]));
            } else if (steps(y[i], expected) > worst) {
                worst = steps(y[i], expected);
                worst_at = x[i];
            }
        }
    }
    if (worst > 2)
        fail_msg("exp(%.9g) is %lld steps off", worst_at, (long long)worst);
    const float edge[] = {-INFINITY,  INFINITY,    0.0f,        -0.0f,   88.72283f, 88.72284f,
                          -87.33655f, -103.97208f, -103.97209f, -104.0f, 1e30f,     -1e30f};
    for (size_t i = 0; i < sizeof edge / sizeof *edge; i++) {
        float expected = (float)exp((double)edge[i]);
        fo_kernel_vec_at(0)->exp(&edge[i], y, 1);
        if (steps(y[0], expected) >
            (expected == 0.0f || isinf(expected) || expected == 1.0f ? 0 : 2))
            fail_msg("exp(%.9g) = %.9g, expected %.9g", edge[i], y[0], expected);
    }
}

static void test_dropout_numbers(void **state)
{
    (void)state;
    enum { N = 37 };
    static const uint64_t keys[] = {0, 1, 0xffffffffffffffffull, 0x123456789abcdef0ull};
    for (int k = 0; k < 4; k++)
        for (int64_t row = 0; row < 3; row++) {
            /* the last rows lie past 2^32 elements: the index has both halves */
            int64_t first = row == 2 ? (int64_t)1 << 33 : row * 5;
            float x[2 * N];
            for (int i = 0; i < 2 * N; i++)
                x[i] = 1.0f;
            fo_kernel_vec_at(0)->dropout(x, first, 2, N, 0.4f, keys[k], keys[3 - k]);
            for (int i = 0; i < 2 * N; i++) {
                bool keep =
                    fo_base_random_uniform(keys[k], keys[3 - k], (uint64_t)(first * N + i)) >= 0.4f;
                assert_true(x[i] == (keep ? 1.0f / (1.0f - 0.4f) : 0.0f));
            }
        }
}

static void pack_case(int64_t k, int64_t n, int64_t panel, int pair, bool transposed)
{
    int64_t block = 16 * pair, padded = (k + block - 1) / block * block;
    int64_t columns = (n + panel - 1) / panel * panel, size = padded * columns;
    fo_dtype dtype = pair == 2 ? FO_BF16 : FO_F32;
    fo_kernel_panels layout = {k, n, panel, padded, pair};
    float *b = random_values(FO_F32, k * n, 1, 0.0, 1.0);
    void *found = make(dtype, size);
    double *expected = malloc((size_t)size * sizeof *expected);
    int64_t panels = columns / panel; /* in two calls, the last ones first */
    fo_kernel_vec_at(0)->pack(&layout, b, transposed, panels / 2, panels - panels / 2, found);
    fo_kernel_vec_at(0)->pack(&layout, b, transposed, 0, panels / 2, found);
    for (int64_t i = 0; i < padded; i++)
        for (int64_t j = 0; j < columns; j++) {
            int64_t at =
                j / panel * panel * padded + i / pair * pair * panel + j % panel * pair + i % pair;
            double value = i < k && j < n ? b[transposed ? j * k + i : i * n + j] : 0.0;
            expected[at] =
                pair == 2 ? fo_base_bf16_to_f32(fo_base_bf16_from_f32((float)value)) : value;
        }
    compare("pack", found, dtype, NULL, expected, size, panel, 0.0, 0.0);
    if (!transposed) { /* from the type of the layout: the same */
        void *typed = copy_of(FO_F32, b, k * n), *again = make(dtype, size);
        fo_kernel_vec_at(0)->convert(b, FO_F32, typed, dtype, k * n);
        fo_kernel_vec_at(0)->pack_typed(&layout, typed, panels / 2, panels - panels / 2, again);
        fo_kernel_vec_at(0)->pack_typed(&layout, typed, 0, panels / 2, again);
        compare("pack typed", again, dtype, NULL, expected, size, panel, 0.0, 0.0);
        free(typed);
        free(again);
    }
    free(b);
    free(found);
    free(expected);
}

static void test_pack(void **state)
{
    static const int64_t sizes[] = {1, 2, 15, 16, 17, 31, 32, 33, 64, 100};
    (void)state;
    for (int i = 0; i < 10; i++)
        for (int j = 0; j < 10; j++)
            for (int pair = 1; pair <= 2; pair++)
                for (int64_t panel = 16; panel <= 64; panel += 16)
                    for (int transposed = 0; transposed < 2; transposed++)
                        pack_case(sizes[i], sizes[j], panel, pair, transposed);
}

/* Everything a variant computes on one input, in one array. */
static float *everything(const fo_kernel_vec *v, int64_t rows, int64_t n, int64_t *size)
{
    int64_t m = rows * n, at = 0;
    float *all = make(FO_F32, 20 * m + 24 * rows + 20 * n + 64),
          *x = random_values(FO_F32, m, 1, 0.0, 6.0);
    float *y = random_values(FO_F32, m, 2, 0.0, 1.0), *w = random_values(FO_F32, n, 3, 1.0, 1.0);
    int32_t *targets = calloc((size_t)rows, sizeof *targets);
    fo_kernel_attention_drop drop = {0.3f, 5, 6, n};
    fo_adamw adam = {1e-3f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.1f, 0.05f, 1.0f};
    fo_epilogue e = {.add = y, .bias = w, .gelu = true, .pre = all, .y = all + m};
    v->epilogue(&e, x, rows, n);
    fo_epilogue back = {.gelu_grad = true, .pre = all, .y = all + 2 * m, .y_dtype = FO_BF16};
    memset(all + 2 * m, 0, (size_t)m * sizeof *all);
    v->epilogue(&back, x, rows, n);
    at = 3 * m;
    v->layernorm_forward(x, w, y, rows, n, all + at, FO_F32, all + at + m, all + at + m + rows);
    float *mean = all + at + m, *rstd = mean + rows;
    at += m + 2 * rows;
    for (int64_t i = 0; i < m + 2 * n; i++)
        all[at + i] = 0.5f;
    v->layernorm_backward(y, x, w, mean, rstd, rows, n, all + at, all + at + m, all + at + m + n);
    v->column_sum(x, FO_F32, rows, n, all + at + m);
    at += m + 2 * n;
    v->xent_stats(x, targets, rows, n, 0, all + at);
    v->xent_grad(x, targets, y, rows, n, 0, 0.3f, all + at + 3 * rows, FO_F32);
    at += 3 * rows + m;
    if (n % 32 == 0) {
        float *max = all + at + m;
        for (int64_t i = 0; i < rows; i++) {
            max[i] = 0.5f;
            max[rows + i] = 1.0f; /* the sum */
        }
        v->attention_softmax(x, 5, rows, 2, n, 0.2f, &drop, all + at, FO_F32, max, max + rows,
                             max + 2 * rows);
        v->scale_rows(all + at, y, rows, n);
        at += m + 3 * rows;
        v->attention_softmax_grad(x, y, 4, rows, 2, n, 0.2f, &drop, w, w, all + at, all + at + m,
                                  FO_F32);
        at += 2 * m;
    }
    for (int64_t i = 0; i < 3 * m; i++)
        all[at + i] = 0.25f;
    v->adamw(&adam, x, all + at, all + at + m, all + at + 2 * m, m);
    at += 3 * m;
    v->convert(x, FO_F32, all + at, FO_F32, m);
    v->dropout(all + at, 1, rows, n, 0.5f, 3, 4);
    at += m;
    double sum = v->sum_squares(x, m);
    memcpy(all + at, &sum, sizeof sum);
    at += 2;
    v->dot_rows(x, 0, y, FO_F32, rows, 1, n, n, all + at, 0);
    at += rows;
    *size = at;
    free(x);
    free(y);
    free(w);
    free(targets);
    return all;
}

/* What attention alone uses, in bf16: probabilities, their gradient, gathering, packing, scattering. */
static float *attention_everything(const fo_kernel_vec *v, int64_t n, int64_t *size)
{
    enum { ROWS = 37, PACKED = 64 * 64 };
    int64_t m = ROWS * n, at = 0;
    *size = 8 * m + 4 * ROWS + 2 * PACKED;
    float *all = calloc((size_t)*size, sizeof *all), *x = random_values(FO_F32, m, 1, 0.0, 6.0);
    float *y = random_values(FO_F32, m, 2, 0.0, 1.0), *w = random_values(FO_F32, n, 3, 1.0, 1.0);
    fo_bf16 *narrow = random_values(FO_BF16, 2 * m, 4, 0.0, 2.0);
    fo_kernel_attention_drop drop = {0.3f, 5, 6, n};
    for (int64_t i = 0; i < ROWS; i++)
        all[i] = -INFINITY;
    v->attention_softmax(x, n - 9, ROWS, 0, n, 0.2f, &drop, all + 3 * ROWS, FO_BF16, all,
                         all + ROWS, all + 2 * ROWS);
    at = 3 * ROWS + m;
    v->attention_softmax_grad(x, y, 4, ROWS, 2, n, 0.2f, &drop, w, w, all + at, all + at + m,
                              FO_BF16);
    at += 2 * m;
    v->scatter(x, 0, w, 0, all + at, FO_BF16, n < ROWS ? n : ROWS, 1, n, 2 * n);
    at += m;
    v->gather(narrow, FO_BF16, ROWS, 2, n / 2, n, all + at, ROWS * (n / 2));
    at += m;
    v->pack_rows(narrow, FO_BF16, ROWS, n / 2, 64, all + at);
    v->pack_columns(narrow, FO_BF16, ROWS, n / 2, 64, all + at + PACKED);
    free(x);
    free(y);
    free(w);
    free(narrow);
    return all;
}

/* Dense rows as parts of panels, element by element. */
static void test_pack_blocks(void **state)
{
    enum { ROWS = 43, PANEL = 64 };
    (void)state;
    for (int i = 0; fo_kernel_vec_at(i); i++)
        for (int64_t n = 1; n <= PANEL; n += 7)
            for (int t = 0; t < 2; t++) {
                fo_dtype dtype = t ? FO_BF16 : FO_F32;
                const fo_kernel_vec *v = fo_kernel_vec_at(i);
                int64_t pair = t ? 2 : 1, padded = (n + 15) / 16 * 16;
                void *x = random_values(dtype, ROWS * n, 1, 0.0, 1.0);
                void *rows = make(dtype, 64 * PANEL), *columns = make(dtype, padded * PANEL);
                v->pack_rows(x, dtype, ROWS, n, PANEL, rows);
                v->pack_columns(x, dtype, ROWS, n, padded, columns);
                for (int64_t r = 0; r < 64; r++)
                    for (int64_t c = 0; c < padded; c++) {
                        double want = r < ROWS && c < n ? get(x, dtype, r * n + c) : 0.0;
                        int64_t as_row = (r / pair * PANEL + c) * pair + r % pair;
                        int64_t as_column = (c / pair * PANEL + r) * pair + c % pair;
                        assert_true(c >= n || get(rows, dtype, as_row) == want);
                        assert_true(get(columns, dtype, as_column) == want);
                    }
                check_fence("pack_rows", rows, dtype, 64 * PANEL);
                check_fence("pack_columns", columns, dtype, padded * PANEL);
                free(x);
                free(rows);
                free(columns);
            }
}

static void test_variants(void **state)
{
    static const int64_t widths[] = {1, 15, 16, 17, 48, 64, 131};
    (void)state;
    for (int i = 0; fo_kernel_vec_at(i); i++)
        for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
            int64_t size, again;
            float *a = everything(fo_kernel_vec_at(0), 37, widths[w], &size);
            float *b = everything(fo_kernel_vec_at(i), 37, widths[w], &again);
            assert_int_equal(size, again);
            same_bits(fo_kernel_vec_at(i)->isa, b, a, FO_F32, size, widths[w]);
            free(a);
            free(b);
        }
    for (int i = 0; fo_kernel_vec_at(i); i++)
        for (int64_t n = 32; n <= 128; n += 32) {
            int64_t size;
            float *a = attention_everything(fo_kernel_vec_at(0), n, &size);
            float *b = attention_everything(fo_kernel_vec_at(i), n, &size);
            same_bits(fo_kernel_vec_at(i)->isa, b, a, FO_F32, size, n);
            free(a);
            free(b);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_exp),
                                       cmocka_unit_test(test_dropout_numbers),
                                       cmocka_unit_test(test_pack),
                                       cmocka_unit_test(test_pack_blocks),
                                       cmocka_unit_test(test_variants)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
