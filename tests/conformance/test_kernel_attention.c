/* Attention of every kernel backend against the reference; independence of the number of threads and of
 * the other sequences and heads, to the bit. */
#include "../unit/kernel/compare.h"

#if defined(__SANITIZE_THREAD__)
enum { THREADS = 1 }; /* it does not know the OpenMP runtime */
#else
enum { THREADS = 3 };
#endif

typedef struct shape {
    int64_t batch, context;
    int heads, head_dim;
    double size; /* of q, k and v */
} shape;

typedef struct result {
    void *out, *dqkv;
    float *lse;
} result;

static int64_t width_of(const fo_attention_desc *d)
{
    return (int64_t)d->heads * d->head_dim;
}

/* given: out and lse that backward reads, NULL: its own. */
static result run(const fo_kernel *k, const fo_attention_desc *d, const void *qkv, const void *dout,
                  const result *given, int threads)
{
    int64_t tokens = d->batch * d->context, width = width_of(d);
    result r = {make(d->dtype, tokens * width), make(d->dtype, 3 * tokens * width),
                make(FO_F32, tokens * d->heads)};
    fo_attention *attention;
    fo_kernel_set_threads(threads);
    ok(k->attention_create(d, &attention));
    ok(k->attention_forward(attention, qkv, 77, r.out, r.lse));
    const result *seen = given ? given : &r;
    ok(k->attention_backward(attention, qkv, seen->out, seen->lse, dout, 77, r.dqkv));
    k->attention_destroy(attention);
    fo_kernel_set_threads(1);
    return r;
}

static void result_free(result *r)
{
    free(r->out);
    free(r->dqkv);
    free(r->lse);
}

static double largest(const void *x, fo_dtype dtype, int64_t n)
{
    double max = 0.0;
    for (int64_t i = 0; i < n; i++)
        max = fmax(max, fabs(get(x, dtype, i)));
    return max;
}

static void attention_case(const fo_kernel *k, const shape *s, fo_dtype dtype, float dropout)
{
    fo_attention_desc d = {s->batch, s->context, s->heads, s->head_dim,
                           dtype,    dropout,    2,        s->heads + 3};
    int64_t tokens = d.batch * d.context, width = width_of(&d);
    void *qkv = random_values(dtype, 3 * tokens * width, 1, 0.0, s->size);
    void *dout = random_values(dtype, tokens * width, 2, 0.0, 1.0);
    char what[128];
    snprintf(what, sizeof what, "%s attention %s batch %d context %d heads %d of %d dropout %g",
             k->name, fo_dtype_name(dtype), (int)d.batch, (int)d.context, d.heads, d.head_dim,
             dropout);
    result expected = run(fo_kernel_find("ref"), &d, qkv, dout, NULL, 1);
    result found = run(k, &d, qkv, dout, &expected, 1);
    /* bf16: the probabilities are rounded to it before the products. Otherwise the scores' rounding
     * goes into the exponent: it grows with them. */
    double score = s->size * s->size * sqrt((double)s->head_dim);
    double step = dtype == FO_BF16 ? 0.01 : 4e-6 * (1.0 + score);
    compare(what, found.lse, FO_F32, expected.lse, NULL, tokens * d.heads, d.context,
            2e-6 * (1.0 + score), 1e-6);
    compare(what, found.out, dtype, expected.out, NULL, tokens * width, width,
            step * largest(expected.out, dtype, tokens * width), step);
    for (int part = 0; part < 3; part++) { /* dq, dk and dv differ in size */
        double *of_part = malloc((size_t)(tokens * width + 1) * sizeof *of_part);
        void *mine = make(dtype, tokens * width);
        double max = 0.0;
        for (int64_t i = 0; i < tokens * width; i++) {
            int64_t at = (i / width * 3 + part) * width + i % width;
            of_part[i] = get(expected.dqkv, dtype, at);
            put(mine, dtype, i, get(found.dqkv, dtype, at));
            max = fmax(max, fabs(of_part[i]));
        }
        compare(what, mine, dtype, NULL, of_part, tokens * width, width, 2 * step * max + 1e-6,
                step);
        free(of_part);
        free(mine);
    }
    check_fence(what, found.dqkv, dtype, 3 * tokens * width);

    result threaded = run(k, &d, qkv, dout, &expected, THREADS);
    same_bits(what, threaded.out, found.out, dtype, tokens * width, width);
    same_bits(what, threaded.lse, found.lse, FO_F32, tokens * d.heads, d.context);
    same_bits(what, threaded.dqkv, found.dqkv, dtype, 3 * tokens * width, 3 * width);
    result_free(&threaded);
    if (d.batch > 1) { /* the first sequence alone */
        d.batch = 1;
        result alone = run(k, &d, qkv, dout, &expected, 1);
        same_bits(what, alone.out, found.out, dtype, d.context * width, width);
        result_free(&alone);
    }
    result_free(&expected);
    result_free(&found);
    free(qkv);
    free(dout);
}

static const shape shapes[] = {
    {0, 8, 2, 4, 1.0},    {1, 0, 2, 4, 1.0},    {1, 8, 0, 4, 1.0},    {1, 1, 1, 1, 1.0},
    {1, 1, 2, 3, 1.0},    {2, 5, 3, 7, 2.0},    {1, 63, 1, 8, 1.0},   {3, 64, 2, 16, 1.0},
    {1, 65, 2, 33, 2.0},  {2, 130, 3, 17, 1.0}, {1, 200, 2, 64, 1.0}, {1, 257, 1, 100, 0.5},
    {1, 70, 2, 16, 30.0}, /* scores in the hundreds: nearly one-hot */
};

static void test_attention(void **state)
{
    (void)state;
    for (int i = 0; fo_kernel_at(i); i++) {
#if defined(__SANITIZE_THREAD__)
        if (fo_kernel_at(i) != fo_kernel_find("ref"))
            continue;
#endif
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (int t = 0; t < 2; t++)
                for (int drop = 0; drop < 2; drop++)
                    if (fo_kernel_at(i)->supports(t ? FO_BF16 : FO_F32))
                        attention_case(fo_kernel_at(i), &shapes[s], t ? FO_BF16 : FO_F32,
                                       drop ? 0.25f : 0.0f);
    }
}

/* The heads a rank has do not change what they compute: heads 1 and 2 of 3 by themselves. */
static void test_head_split(void **state)
{
    (void)state;
    enum { CONTEXT = 70, DIM = 12 };
    const fo_kernel *k = fo_kernel_find("ref");
#if !defined(__SANITIZE_THREAD__)
    k = fo_kernel_at(0);
#endif
    fo_attention_desc all = {1, CONTEXT, 3, DIM, FO_F32, 0.2f, 0, 3}, some = all;
    some.heads = 2;
    some.head_offset = 1;
    float *qkv = random_values(FO_F32, CONTEXT * 9 * DIM, 1, 0.0, 1.0);
    float *dout = random_values(FO_F32, CONTEXT * 3 * DIM, 2, 0.0, 1.0);
    float *some_qkv = make(FO_F32, CONTEXT * 6 * DIM), *some_dout = make(FO_F32, CONTEXT * 2 * DIM);
    for (int64_t t = 0; t < CONTEXT; t++) {
        for (int part = 0; part < 3; part++)
            memcpy(some_qkv + (t * 3 + part) * 2 * DIM, qkv + ((t * 3 + part) * 3 + 1) * DIM,
                   2 * DIM * sizeof(float));
        memcpy(some_dout + t * 2 * DIM, dout + (t * 3 + 1) * DIM, 2 * DIM * sizeof(float));
    }
    result whole = run(k, &all, qkv, dout, NULL, 1),
           half = run(k, &some, some_qkv, some_dout, NULL, 1);
    float *whole_out = whole.out, *half_out = half.out, *whole_grad = whole.dqkv,
          *half_grad = half.dqkv;
    for (int64_t t = 0; t < CONTEXT; t++) {
        same_bits("out of two heads", half_out + t * 2 * DIM, whole_out + (t * 3 + 1) * DIM, FO_F32,
                  2 * DIM, DIM);
        for (int part = 0; part < 3; part++)
            same_bits("gradient of two heads", half_grad + (t * 3 + part) * 2 * DIM,
                      whole_grad + ((t * 3 + part) * 3 + 1) * DIM, FO_F32, 2 * DIM, DIM);
    }
    result_free(&whole);
    result_free(&half);
    free(qkv);
    free(dout);
    free(some_qkv);
    free(some_dout);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_attention),
                                       cmocka_unit_test(test_head_split)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
