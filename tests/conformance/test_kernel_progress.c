/* Progress from inside kernels: the hook is called on the caller's thread, outside of parallel regions, often enough
 * in large tiles, not before its time, and changes no bit of any result. */
#include "../unit/kernel/compare.h"

#include <omp.h>
#include <pthread.h>

#include "base/clock.h"
#include "flashoverlap/plan.h"

#if defined(__SANITIZE_THREAD__)
enum { THREADS = 1 }; /* the thread sanitizer does not know the OpenMP runtime */
static const fo_kernel *backend(int index)
{
    return index ? NULL : fo_kernel_find("ref");
}
#else
enum { THREADS = 2 };
static const fo_kernel *backend(int index)
{
    return computing(index);
}
#endif

static const fo_dtype dtypes[] = {FO_F32, FO_BF16};

/* ---- the hook ---------------------------------------------------------------------------------------- */

typedef struct calls {
    pthread_t thread;
    int64_t count, early, last_ns, interval_ns;
    bool elsewhere, parallel;
} calls;

static void count_call(void *arg)
{
    calls *c = arg;
    int64_t now = fo_base_clock_ns();
    c->count++;
    c->early += now < c->last_ns + c->interval_ns;
    c->last_ns = now;
    c->elsewhere |= !pthread_equal(c->thread, pthread_self());
    c->parallel |= omp_in_parallel() != 0;
}

static calls hook_begin(void)
{
    return (calls){.thread = pthread_self()};
}

static void check_calls(const char *what, const calls *c)
{
    if (c->elsewhere || c->parallel || c->early)
        fail_msg("%s: %s", what,
                 c->early      ? "called before its time"
                 : c->parallel ? "called inside a parallel region"
                               : "called on another thread");
}

/* Whether the products of a type are cut here: of other instruction sets the parts are not known to give the bits of
 * the whole. */
static bool cuts(const fo_kernel *k, fo_dtype dtype)
{
    const char *isa = k->isa();
    if (!strcmp(k->name, "ref"))
        return true;
    return !strstr(isa, "amx") && strstr(isa, dtype == FO_BF16 ? "avx512_bf16" : "avx512");
}

static const char *name(const fo_kernel *k, const char *what, fo_dtype dtype, int64_t a, int64_t b,
                        int64_t rows, int threads)
{
    static char text[160];
    snprintf(text, sizeof text, "%s %s %s %lld by %lld, %lld rows, %d threads", k->name, what,
             fo_dtype_name(dtype), (long long)a, (long long)b, (long long)rows, threads);
    return text;
}

/* ---- products ---------------------------------------------------------------------------------------- */

/* Packs and multiplies; c[rows, n] and the packed matrix. */
static float *product(const fo_kernel *k, fo_gemm *gemm, const fo_gemm_desc *d, const float *b,
                      const void *a, int64_t rows, char *packed)
{
    float *c = make(FO_F32, rows * d->n);
    memset(packed, 0x5a, k->gemm_packed_bytes(gemm));
    ok(k->gemm_pack(gemm, b, packed));
    ok(k->gemm_tile(gemm, packed, a, rows, c));
    return c;
}

static void gemm_case(const fo_kernel *k, fo_gemm_desc d, int threads, bool large)
{
    static const int64_t heights[] = {FO_TILE_ROWS, 23};
    float *b = random_values(FO_F32, d.k * d.n, 1, 0.0, 1.0);
    fo_gemm *gemm;
    fo_kernel_set_threads(threads);
    ok(k->gemm_create(&d, &gemm));
    size_t bytes = k->gemm_packed_bytes(gemm);
    char *plain = malloc(bytes + 64), *hooked = malloc(bytes + 64);
    char *aligned = (char *)(((uintptr_t)plain + 63) / 64 * 64);
    char *aligned2 = (char *)(((uintptr_t)hooked + 63) / 64 * 64);
    for (size_t i = 0; i < sizeof heights / sizeof *heights; i++) {
        void *a = random_values(d.dtype, heights[i] * d.k, 2, 0.0, 1.0);
        const char *what = name(k, d.transposed ? "gemm transposed" : "gemm", d.dtype, d.k, d.n,
                                heights[i], threads);
        float *expected = product(k, gemm, &d, b, a, heights[i], aligned);
        calls c = hook_begin();
        fo_kernel_set_progress(count_call, &c, 0);
        float *found = product(k, gemm, &d, b, a, heights[i], aligned2);
        int64_t with_pack = c.count;
        c.count = 0;
        ok(k->gemm_tile(gemm, aligned2, a, heights[i], found));
        fo_kernel_set_progress(NULL, NULL, 0);
        assert_int_equal(memcmp(aligned, aligned2, bytes), 0);
        same_bits(what, found, expected, FO_F32, heights[i] * d.n, d.n);
        check_fence(what, found, FO_F32, heights[i] * d.n);
        check_calls(what, &c);
        if (large && threads == 1 && heights[i] == FO_TILE_ROWS && cuts(k, d.dtype) &&
            (c.count < 4 || with_pack < c.count + 2))
            fail_msg("%s: %lld calls, %lld with packing, expected 4 or more", what,
                     (long long)c.count, (long long)with_pack);
        free(a);
        free(expected);
        free(found);
    }
    k->gemm_destroy(gemm);
    fo_kernel_set_threads(1);
    free(plain);
    free(hooked);
    free(b);
}

static void test_gemm(void **state)
{
    /* widths that are no multiple of a step or a panel, steps of one panel and of many */
    static const int64_t large[][2] = {{1024, 5100}, {700, 7201}, {4096, 1300}, {9000, 700}};
    (void)state;
    for (int i = 0; backend(i); i++)
        for (int t = 0; t < 4; t++)
            for (int threads = 1; threads <= (t % 2 ? 1 : THREADS); threads++) {
                bool ref = !strcmp(backend(i)->name, "ref");
                gemm_case(backend(i), (fo_gemm_desc){30, 45, dtypes[t / 2], t % 2}, threads, ref);
                for (size_t s = 0; !ref && s < sizeof large / sizeof *large; s++)
                    gemm_case(backend(i),
                              (fo_gemm_desc){large[s][0], large[s][1], dtypes[t / 2], t % 2},
                              threads, true);
            }
}

/* ---- weight gradients -------------------------------------------------------------------------------- */

static void wgrad_case(const fo_kernel *k, fo_wgrad_desc d, int threads, bool large)
{
    static const int64_t heights[] = {FO_WGRAD_ROWS, 130};
    int64_t size = d.out * d.in;
    float *start = random_values(FO_F32, size, 3, 0.0, 1.0);
    fo_wgrad *wgrad;
    fo_kernel_set_threads(threads);
    ok(k->wgrad_create(&d, &wgrad));
    for (size_t i = 0; i < sizeof heights / sizeof *heights; i++) {
        int64_t rows = heights[i];
        void *dy = random_values(d.dtype, rows * d.out, 1, 0.0, 1.0);
        void *x = random_values(d.dtype, rows * d.in, 2, 0.0, 1.0);
        const char *what = name(k, "wgrad", d.dtype, d.out, d.in, rows, threads);
        float *expected = copy_of(FO_F32, start, size), *found = copy_of(FO_F32, start, size);
        ok(k->wgrad_block(wgrad, dy, x, rows, expected));
        calls c = hook_begin();
        fo_kernel_set_progress(count_call, &c, 0);
        ok(k->wgrad_block(wgrad, dy, x, rows, found));
        fo_kernel_set_progress(NULL, NULL, 0);
        same_bits(what, found, expected, FO_F32, size, d.in);
        check_fence(what, found, FO_F32, size);
        check_calls(what, &c);
        if (large && threads == 1 && rows == FO_WGRAD_ROWS && cuts(k, d.dtype) && c.count < 5)
            fail_msg("%s: %lld calls, expected 5 or more", what, (long long)c.count);
        free(dy);
        free(x);
        free(expected);
        free(found);
    }
    k->wgrad_destroy(wgrad);
    fo_kernel_set_threads(1);
    free(start);
}

static void test_wgrad(void **state)
{
    static const int64_t large[][2] = {{1030, 1500}, {777, 1700}, {2100, 700}};
    (void)state;
    for (int i = 0; backend(i); i++)
        for (int t = 0; t < 2; t++)
            for (int threads = 1; threads <= THREADS; threads++) {
                bool ref = !strcmp(backend(i)->name, "ref");
                wgrad_case(backend(i), (fo_wgrad_desc){20, 33, dtypes[t]}, threads, ref);
                for (size_t s = 0; !ref && s < sizeof large / sizeof *large; s++)
                    wgrad_case(backend(i), (fo_wgrad_desc){large[s][0], large[s][1], dtypes[t]},
                               threads, true);
            }
}

/* ---- attention --------------------------------------------------------------------------------------- */

typedef struct attention {
    fo_attention_desc desc;
    void *qkv, *dout, *out, *dqkv;
    float *lse;
    int64_t rows, width;
} attention;

static void attention_run(const fo_kernel *k, attention *a, int threads)
{
    fo_attention *object;
    a->out = make(a->desc.dtype, a->rows * a->width);
    a->dqkv = make(a->desc.dtype, a->rows * a->width * 3);
    a->lse = make(FO_F32, a->rows * a->desc.heads);
    fo_attention_args args = {.qkv = a->qkv,
                              .dropout_key = 5,
                              .lse = a->lse,
                              .out = a->out,
                              .dout = a->dout,
                              .dqkv = a->dqkv};
    fo_kernel_set_threads(threads);
    ok(k->attention_create(&a->desc, &object));
    k->attention_begin(object);
    for (int64_t row = 0; row < a->rows; row += 50)
        ok(k->attention_queries(object, &args, row, a->rows - row < 50 ? a->rows - row : 50));
    k->attention_begin(object);
    for (int64_t row = 0; row < a->rows; row += 256)
        ok(k->attention_queries_grad(object, &args, row,
                                     a->rows - row < 256 ? a->rows - row : 256));
    k->attention_destroy(object);
    fo_kernel_set_threads(1);
}

static void attention_drop(attention *a)
{
    free(a->out);
    free(a->dqkv);
    free(a->lse);
}

static void attention_case(const fo_kernel *k, fo_dtype dtype, int heads, int threads)
{
    attention plain = {.desc = {.batch = 2,
                                .context = 300,
                                .heads = heads,
                                .head_dim = 16,
                                .dtype = dtype,
                                .dropout = 0.1f,
                                .total_heads = heads},
                       .rows = 600,
                       .width = heads * 16};
    plain.qkv = random_values(dtype, plain.rows * plain.width * 3, 1, 0.0, 1.0);
    plain.dout = random_values(dtype, plain.rows * plain.width, 2, 0.0, 1.0);
    attention hooked = plain;
    const char *what = name(k, "attention", dtype, heads, 16, plain.rows, threads);
    attention_run(k, &plain, threads);
    calls c = hook_begin();
    fo_kernel_set_progress(count_call, &c, 0);
    attention_run(k, &hooked, threads);
    fo_kernel_set_progress(NULL, NULL, 0);
    same_bits(what, hooked.out, plain.out, dtype, plain.rows * plain.width, plain.width);
    same_bits(what, hooked.dqkv, plain.dqkv, dtype, plain.rows * plain.width * 3, plain.width);
    same_bits(what, hooked.lse, plain.lse, FO_F32, plain.rows * heads, plain.rows);
    check_calls(what, &c);
    /* calls of 50 queries are pieces, 256 of them are two or three; a call a head of each at least */
    if (c.count < 15 * (heads + threads - 1) / threads)
        fail_msg("%s: %lld calls", what, (long long)c.count);
    attention_drop(&plain);
    attention_drop(&hooked);
    free(plain.qkv);
    free(plain.dout);
}

static void test_attention(void **state)
{
    (void)state;
    for (int i = 0; backend(i); i++)
        for (int t = 0; t < 2; t++)
            for (int heads = 1; heads <= 5; heads += 2)
                for (int threads = 1; threads <= THREADS; threads++)
                    attention_case(backend(i), dtypes[t], heads, threads);
}

/* ---- time -------------------------------------------------------------------------------------------- */

/* Not before the interval has gone by, and never once it is taken away. */
static void test_interval(void **state)
{
    (void)state;
    static const fo_gemm_desc d = {.k = 500, .n = 400, .dtype = FO_F32};
    const fo_kernel *k = fo_kernel_find("ref");
    float *b = random_values(FO_F32, d.k * d.n, 1, 0.0, 1.0);
    void *a = random_values(FO_F32, FO_TILE_ROWS * d.k, 2, 0.0, 1.0);
    char *packed = malloc((size_t)(d.k * d.n) * sizeof *b);
    fo_gemm *gemm;
    ok(k->gemm_create(&d, &gemm));
    float *c = product(k, gemm, &d, b, a, FO_TILE_ROWS, packed);
    calls often = hook_begin(), never = hook_begin();
    often.interval_ns = 300000;
    int64_t begin = often.last_ns = fo_base_clock_ns();
    fo_kernel_set_progress(count_call, &often, often.interval_ns);
    while (fo_base_clock_ns() < begin + 30000000)
        ok(k->gemm_tile(gemm, packed, a, FO_TILE_ROWS, c));
    int64_t most = (fo_base_clock_ns() - begin) / often.interval_ns;
    check_calls("every 0.3 ms", &often);
    assert_true(often.count >= 2 && often.count <= most);
    fo_kernel_set_progress(count_call, &never, INT64_C(3600000000000));
    ok(k->gemm_tile(gemm, packed, a, FO_TILE_ROWS, c));
    fo_kernel_set_progress(NULL, NULL, 0);
    often.count = 0;
    ok(k->gemm_tile(gemm, packed, a, FO_TILE_ROWS, c));
    assert_true(never.count == 0 && often.count == 0);
    k->gemm_destroy(gemm);
    free(a);
    free(b);
    free(c);
    free(packed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gemm), cmocka_unit_test(test_wgrad),
                                       cmocka_unit_test(test_attention),
                                       cmocka_unit_test(test_interval)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
