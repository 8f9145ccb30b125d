/* The reference backend against the formulas in float64, and its backward functions against finite
 * differences of float64 forward functions. Nothing here shares code with it. */
#include "compare.h"

#include "kernel/kernel.h"

static const fo_kernel *ref(void)
{
    return fo_kernel_find("ref");
}

static double *widened(const float *x, int64_t n)
{
    double *y = malloc((size_t)(n + 1) * sizeof *y);
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i];
    return y;
}

static double bf16_of(double x)
{
    return fo_base_bf16_to_f32(fo_base_bf16_from_f32((float)x));
}

static void test_gemm_wgrad(void **state)
{
    (void)state;
    enum { ROWS = 9, K = 23, N = 14 };
    for (int t = 0; t < 4; t++) {
        fo_dtype dtype = t & 1 ? FO_BF16 : FO_F32;
        bool transposed = t & 2;
        float *b = random_values(FO_F32, K * N, 1, 0.0, 1.0), *c = make(FO_F32, ROWS * N);
        void *a = random_values(dtype, ROWS * K, 2, 0.0, 1.0);
        double expected[ROWS * N] = {0}, dw64[K * N];
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < N; j++)
                for (int k = 0; k < K; k++) {
                    double w = transposed ? b[j * K + k] : b[k * N + j];
                    expected[i * N + j] +=
                        get(a, dtype, i * K + k) * (dtype == FO_BF16 ? bf16_of(w) : w);
                }
        fo_gemm_desc desc = {K, N, dtype, transposed};
        fo_gemm *gemm;
        ok(ref()->gemm_create(&desc, &gemm));
        void *packed = malloc(ref()->gemm_packed_bytes(gemm));
        ok(ref()->gemm_pack(gemm, b, packed));
        ok(ref()->gemm_tile(gemm, packed, a, ROWS, c));
        compare("ref gemm", c, FO_F32, NULL, expected, ROWS * N, N, 3e-6, 0.0);
        ref()->gemm_destroy(gemm);

        void *dy = random_values(dtype, ROWS * N, 3, 0.0, 1.0);
        float *dw = random_values(FO_F32, N * K, 4, 0.0, 1.0);
        for (int o = 0; o < N; o++)
            for (int i = 0; i < K; i++) {
                dw64[o * K + i] = dw[o * K + i];
                for (int r = 0; r < ROWS; r++)
                    dw64[o * K + i] += get(dy, dtype, r * N + o) * get(a, dtype, r * K + i);
            }
        fo_wgrad *wgrad;
        ok(ref()->wgrad_create(&(fo_wgrad_desc){N, K, dtype}, &wgrad));
        ok(ref()->wgrad_block(wgrad, dy, a, ROWS, dw));
        compare("ref wgrad", dw, FO_F32, NULL, dw64, N * K, K, 3e-6, 0.0);
        ref()->wgrad_destroy(wgrad);
        free(a);
        free(b);
        free(c);
        free(packed);
        free(dy);
        free(dw);
    }
}

static double gelu64(double x)
{
    const double pi = 3.14159265358979323846;
    return 0.5 * x * (1.0 + tanh(sqrt(2.0 / pi) * (x + 0.044715 * pow(x, 3.0))));
}

static void test_epilogue(void **state)
{
    (void)state;
    enum { ROWS = 3, N = 101 };
    float *c = random_values(FO_F32, ROWS * N, 1, 0.0, 6.0),
          *add = random_values(FO_F32, ROWS * N, 2, 0.0, 1.0);
    float *bias = random_values(FO_F32, N, 3, 0.0, 1.0), *pre = make(FO_F32, ROWS * N),
          *y = make(FO_F32, ROWS * N);
    double v[ROWS * N], expected[ROWS * N];
    fo_epilogue e = {.add = add, .bias = bias, .gelu = true, .pre = pre, .y = y};
    ref()->epilogue(&e, c, ROWS, N);
    for (int i = 0; i < ROWS * N; i++) {
        v[i] = (double)c[i] + add[i] + bias[i % N];
        expected[i] = gelu64(v[i]);
    }
    compare("ref pre", pre, FO_F32, NULL, v, ROWS * N, N, 1e-6, 0.0);
    compare("ref gelu", y, FO_F32, NULL, expected, ROWS * N, N, 2e-6, 0.0);
    for (int i = 0; i < ROWS * N; i++)
        expected[i] = c[i] * (gelu64(pre[i] + 1e-5) - gelu64(pre[i] - 1e-5)) / 2e-5;
    fo_epilogue back = {.gelu_grad = true, .pre = pre, .y = y};
    ref()->epilogue(&back, c, ROWS, N);
    compare("ref gelu gradient", y, FO_F32, NULL, expected, ROWS * N, N, 3e-6, 0.0);
    free(c);
    free(add);
    free(bias);
    free(pre);
    free(y);
}

enum { LN_ROWS = 5, LN_N = 13 };

/* sum(dy * layernorm(x)), of which the gradients are taken. */
static double norm64(const double *x, const double *w, const double *b, const float *dy, double *y)
{
    double total = 0.0;
    for (int r = 0; r < LN_ROWS; r++) {
        double mean = 0.0, square = 0.0;
        for (int j = 0; j < LN_N; j++)
            mean += x[r * LN_N + j] / LN_N;
        for (int j = 0; j < LN_N; j++)
            square += pow(x[r * LN_N + j] - mean, 2.0) / LN_N;
        for (int j = 0; j < LN_N; j++) {
            double value = (x[r * LN_N + j] - mean) / sqrt(square + 1e-5) * w[j] + b[j];
            total += dy[r * LN_N + j] * value;
            if (y)
                y[r * LN_N + j] = value;
        }
    }
    return total;
}

static void test_layernorm(void **state)
{
    (void)state;
    enum { M = LN_ROWS * LN_N };
    float *x = random_values(FO_F32, M, 1, 0.5, 2.0), *w = random_values(FO_F32, LN_N, 2, 1.0, 0.5);
    float *b = random_values(FO_F32, LN_N, 3, 0.0, 0.5),
          *dy = random_values(FO_F32, M, 4, 0.0, 1.0);
    float *y = make(FO_F32, M), mean[LN_ROWS], rstd[LN_ROWS];
    float *dx = random_values(FO_F32, M, 5, 0.0, 1.0),
          *dw = random_values(FO_F32, LN_N, 6, 0.0, 1.0);
    float *db = random_values(FO_F32, LN_N, 7, 0.0, 1.0);
    double *x64 = widened(x, M), *w64 = widened(w, LN_N), *b64 = widened(b, LN_N), y64[M];
    double dx64[M], dw64[LN_N], db64[LN_N];
    norm64(x64, w64, b64, dy, y64);
    struct {
        double *at, *gradient;
        const float *before;
        int n;
    } parts[] = {{x64, dx64, dx, M}, {w64, dw64, dw, LN_N}, {b64, db64, db, LN_N}};
    for (int p = 0; p < 3; p++)
        for (int i = 0; i < parts[p].n; i++) {
            double kept = parts[p].at[i];
            parts[p].at[i] = kept + 1e-5;
            double up = norm64(x64, w64, b64, dy, NULL);
            parts[p].at[i] = kept - 1e-5;
            double down = norm64(x64, w64, b64, dy, NULL);
            parts[p].at[i] = kept;
            parts[p].gradient[i] = parts[p].before[i] + (up - down) / 2e-5;
        }
    ref()->layernorm_forward(x, w, b, LN_ROWS, LN_N, y, FO_F32, mean, rstd);
    ref()->layernorm_backward(dy, x, w, mean, rstd, LN_ROWS, LN_N, dx, dw, db);
    compare("ref layernorm", y, FO_F32, NULL, y64, M, LN_N, 3e-6, 0.0);
    compare("ref layernorm dx", dx, FO_F32, NULL, dx64, M, LN_N, 3e-6, 0.0);
    compare("ref layernorm dweight", dw, FO_F32, NULL, dw64, LN_N, LN_N, 5e-6, 0.0);
    compare("ref layernorm dbias", db, FO_F32, NULL, db64, LN_N, LN_N, 5e-6, 0.0);
    free(x);
    free(w);
    free(b);
    free(dy);
    free(y);
    free(dx);
    free(dw);
    free(db);
    free(x64);
    free(w64);
    free(b64);
}

/* The loss of a vocabulary in two parts, put together from the parts' statistics as ranks would. */
static void test_xent(void **state)
{
    (void)state;
    enum { ROWS = 6, N = 21, SPLIT = 8 };
    float *logits = random_values(FO_F32, ROWS * N, 1, 0.0, 4.0), stats[2][ROWS * 3], lse[ROWS];
    float *part[2] = {make(FO_F32, ROWS * SPLIT), make(FO_F32, ROWS * (N - SPLIT))};
    int32_t targets[ROWS] = {0, 7, 8, 20, 3, 13};
    double loss64[ROWS], gradient64[ROWS * N];
    for (int r = 0; r < ROWS; r++) {
        double sum = 0.0;
        for (int j = 0; j < N; j++)
            sum += exp(logits[r * N + j]);
        loss64[r] = log(sum) - logits[r * N + targets[r]];
        for (int j = 0; j < N; j++)
            gradient64[r * N + j] = 0.25 * (exp(logits[r * N + j]) / sum - (j == targets[r]));
        memcpy(part[0] + r * SPLIT, logits + r * N, SPLIT * sizeof(float));
        memcpy(part[1] + r * (N - SPLIT), logits + r * N + SPLIT, (N - SPLIT) * sizeof(float));
    }
    ref()->xent_stats(part[0], targets, ROWS, SPLIT, 0, stats[0]);
    ref()->xent_stats(part[1], targets, ROWS, N - SPLIT, SPLIT, stats[1]);
    for (int r = 0; r < ROWS; r++) {
        const float *a = stats[0] + r * 3, *b = stats[1] + r * 3;
        double max = fmax(a[0], b[0]);
        lse[r] = (float)(max + log(a[1] * exp(a[0] - max) + b[1] * exp(b[0] - max)));
        assert_true(wrong(lse[r] - a[2] - b[2], loss64[r]) < 3e-6);
    }
    for (int p = 0; p < 2; p++) {
        int first = p * SPLIT, n = p ? N - SPLIT : SPLIT;
        float *grad = make(FO_F32, ROWS * n);
        double expected[ROWS * N];
        for (int i = 0; i < ROWS * n; i++)
            expected[i] = gradient64[i / n * N + first + i % n];
        ref()->xent_grad(part[p], targets, lse, ROWS, n, first, 0.25f, grad, FO_F32);
        compare("ref xent gradient", grad, FO_F32, NULL, expected, ROWS * n, n, 1e-6, 0.0);
        free(grad);
        free(part[p]);
    }
    free(logits);
}

/* sum(dout * attention(qkv)) with the probabilities multiplied by `kept`. */
typedef struct attention64 {
    fo_attention_desc d;
    const float *dout;
    double *kept; /* [batch, heads, context, context] */
    double *out, *lse;
} attention64;

static double attend64(const attention64 *s, const double *qkv)
{
    const fo_attention_desc *d = &s->d;
    int T = (int)d->context, D = d->head_dim, W = d->heads * D;
    double total = 0.0, p[64];
    for (int b = 0; b < d->batch; b++)
        for (int h = 0; h < d->heads; h++)
            for (int q = 0; q < T; q++) {
                double sum = 0.0;
                for (int k = 0; k <= q; k++) {
                    double score = 0.0;
                    for (int i = 0; i < D; i++)
                        score += qkv[(b * T + q) * 3 * W + h * D + i] *
                                 qkv[(b * T + k) * 3 * W + W + h * D + i];
                    p[k] = exp(score / sqrt(D));
                    sum += p[k];
                }
                if (s->lse)
                    s->lse[(b * d->heads + h) * T + q] = log(sum);
                for (int i = 0; i < D; i++) {
                    double y = 0.0;
                    for (int k = 0; k <= q; k++)
                        y += p[k] / sum * s->kept[((b * d->heads + h) * T + q) * T + k] *
                             qkv[(b * T + k) * 3 * W + 2 * W + h * D + i];
                    int at = (b * T + q) * W + h * D + i;
                    if (s->out)
                        s->out[at] = y;
                    total += s->dout[at] * y;
                }
            }
    return total;
}

static void attention_case(float dropout)
{
    fo_attention_desc d = {.batch = 2,
                           .context = 9,
                           .heads = 2,
                           .head_dim = 5,
                           .dtype = FO_F32,
                           .dropout = dropout,
                           .head_offset = 1,
                           .total_heads = 4};
    int tokens = (int)(d.batch * d.context), width = d.heads * d.head_dim, all = tokens * 3 * width;
    float *qkv = random_values(FO_F32, all, 1, 0.0, 1.5), *out = make(FO_F32, tokens * width);
    float *dout = random_values(FO_F32, tokens * width, 2, 0.0, 1.0), *dqkv = make(FO_F32, all);
    float *lse = make(FO_F32, tokens * d.heads);
    double *qkv64 = widened(qkv, all), *grad64 = widened(qkv, all);
    attention64 s = {d, dout, NULL, widened(dout, tokens * width), widened(dout, tokens * d.heads)};
    int count = (int)(d.batch * d.heads * d.context * d.context);
    s.kept = malloc((size_t)count * sizeof *s.kept);
    for (int i = 0; i < count; i++) {
        int k = i % 9, q = i / 9 % 9, h = i / 81 % 2, b = i / 162;
        double uniform =
            fo_base_random_uniform(123, (uint64_t)(b * 4 + 1 + h), (uint64_t)(q * 9 + k));
        s.kept[i] = dropout == 0.0f      ? 1.0
                    : uniform >= dropout ? 1.0 / (1.0 - (double)dropout)
                                         : 0.0;
    }
    attend64(&s, qkv64);
    fo_attention *attention;
    ok(ref()->attention_create(&d, &attention));
    fo_attention_args args = {
        .qkv = qkv, .dropout_key = 123, .lse = lse, .out = out, .dout = dout, .dqkv = dqkv};
    ref()->attention_begin(attention);
    ok(ref()->attention_queries(attention, &args, 0, tokens));
    ok(ref()->attention_queries_grad(attention, &args, 0, tokens));
    ref()->attention_destroy(attention);
    compare("ref attention", out, FO_F32, NULL, s.out, tokens * width, width, 2e-6, 0.0);
    compare("ref attention lse", lse, FO_F32, NULL, s.lse, tokens * d.heads, d.context, 2e-6, 0.0);
    attention64 plain = s;
    plain.out = plain.lse = NULL;
    for (int i = 0; i < all; i++) {
        double kept = qkv64[i];
        qkv64[i] = kept + 1e-5;
        double up = attend64(&plain, qkv64);
        qkv64[i] = kept - 1e-5;
        grad64[i] = (up - attend64(&plain, qkv64)) / 2e-5;
        qkv64[i] = kept;
    }
    compare("ref attention gradient", dqkv, FO_F32, NULL, grad64, all, 3 * width, 5e-6, 0.0);
    free(qkv);
    free(out);
    free(dout);
    free(dqkv);
    free(lse);
    free(qkv64);
    free(grad64);
    free(s.kept);
    free(s.out);
    free(s.lse);
}

static void test_attention(void **state)
{
    (void)state;
    attention_case(0.0f);
    attention_case(0.3f);
}

static void test_adamw(void **state)
{
    (void)state;
    enum { N = 50, STEPS = 5 };
    float *w = random_values(FO_F32, N, 1, 0.0, 1.0), *g = random_values(FO_F32, N, 2, 0.0, 1.0);
    float m[N + FENCE] = {0}, v[N + FENCE] = {0};
    double w64[N], m64[N] = {0}, v64[N] = {0};
    const double lr = 1e-2, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, decay = 0.1;
    for (int i = 0; i < N; i++)
        w64[i] = w[i];
    for (int t = 1; t <= STEPS; t++) {
        fo_adamw o = {(float)lr,
                      (float)beta1,
                      (float)beta2,
                      (float)eps,
                      (float)decay,
                      (float)(1.0 - pow(beta1, t)),
                      (float)(1.0 - pow(beta2, t)),
                      0.5f};
        ref()->adamw(&o, g, w, m, v, N);
        for (int i = 0; i < N; i++) {
            double grad = 0.5 * g[i];
            w64[i] -= lr * decay * w64[i];
            m64[i] = beta1 * m64[i] + (1.0 - beta1) * grad;
            v64[i] = beta2 * v64[i] + (1.0 - beta2) * grad * grad;
            w64[i] -= lr * (m64[i] / (1.0 - pow(beta1, t))) /
                      (sqrt(v64[i] / (1.0 - pow(beta2, t))) + eps);
        }
    }
    compare("ref adamw", w, FO_F32, NULL, w64, N, N, 2e-6, 0.0);
    double sum = 0.0;
    for (int i = 0; i < N; i++)
        sum += (double)g[i] * g[i];
    assert_true(wrong(ref()->sum_squares(g, N), sum) < 1e-12);
    free(w);
    free(g);
}

static void test_small_things(void **state)
{
    (void)state;
    const float x[] = {1.00390625f, 1.01171875f, -1.00390625f, 1.0f, NAN, INFINITY}; /* two ties */
    const uint16_t want[] = {0x3f80, 0x3f82, 0xbf80, 0x3f80};
    fo_bf16 y[6];
    float sum[2] = {1.0f, 2.0f}, back[6];
    ref()->convert(x, FO_F32, y, FO_BF16, 6);
    assert_memory_equal(y, want, sizeof want);
    ref()->convert(y, FO_BF16, back, FO_F32, 6);
    assert_true(back[3] == 1.0f && isnan(back[4]) && isinf(back[5]));
    ref()->column_sum(x, FO_F32, 2, 2, sum);
    assert_true(sum[0] == 1.0f + 1.00390625f - 1.00390625f && sum[1] == 2.0f + 1.01171875f + 1.0f);
    ref()->add(x, FO_F32, y, FO_BF16, back, FO_F32, 2);
    assert_true(back[0] == 2.00390625f && back[1] == 1.01171875f + 1.015625f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gemm_wgrad),
                                       cmocka_unit_test(test_epilogue),
                                       cmocka_unit_test(test_layernorm),
                                       cmocka_unit_test(test_xent),
                                       cmocka_unit_test(test_attention),
                                       cmocka_unit_test(test_adamw),
                                       cmocka_unit_test(test_small_things)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
