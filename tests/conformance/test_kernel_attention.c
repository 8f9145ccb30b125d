/* Attention by queries of every kernel backend: against float64; the bits of forward under every split of
 * the rows into calls, those of backward under repetition and numbers of threads; what is written when. */
#include "../unit/kernel/attention64.h"

#include <malloc.h>

#if defined(__SANITIZE_THREAD__)
enum { THREADS = 1 }; /* it does not know the OpenMP runtime */
#else
enum { THREADS = 3 };
#endif

/* The backends to test: NULL past the end. */
static const fo_kernel *backend(int i)
{
#if defined(__SANITIZE_THREAD__)
    return i ? NULL : fo_kernel_find("ref");
#else
    return computing(i);
#endif
}

/* ---- calls ---------------------------------------------------------------------------------------- */

/* How the rows are cut into calls, and in which order they come. */
typedef enum order { FORWARD, REVERSED, ROTATED, SHUFFLED } order;
typedef struct split {
    const char *name;
    int64_t first, rows; /* of the first call and of the others */
    order order;
} split;

static const split splits[] = {
    {"all at once", INT64_MAX, INT64_MAX, FORWARD},
    {"64 rows", 64, 64, FORWARD},
    {"single rows", 1, 1, FORWARD},
    {"7 rows", 7, 7, FORWARD},
    {"5 rows, then 64", 5, 64, FORWARD},
    {"256 rows", 256, 256, FORWARD},
    {"64 rows, reversed", 64, 64, REVERSED},
    {"41, then 100 rows, rotated", 41, 100, ROTATED},
    {"7 rows, shuffled", 7, 7, SHUFFLED},
    {"single rows, reversed", 1, 1, REVERSED},
};
enum { SPLITS = sizeof splits / sizeof *splits };

typedef struct result {
    void *out, *dqkv;
    float *lse;
} result;

static result result_make(const problem *p)
{
    int64_t n = p->rows * p->width;
    return (result){make(p->d.dtype, n), make(p->d.dtype, 3 * n),
                    make(FO_F32, p->rows * p->d.heads)};
}

static void result_free(result *r)
{
    free(r->out);
    free(r->dqkv);
    free(r->lse);
}

static int64_t call_count(const problem *p, const split *s)
{
    return p->rows <= s->first ? 1 : 1 + (p->rows - s->first + s->rows - 1) / s->rows;
}

/* Rows [*row, *row + *rows) are those of call i of count, in the split's order. */
static void call_at(const problem *p, const split *s, int64_t i, int64_t count, int64_t *row,
                    int64_t *rows)
{
    if (s->order == REVERSED)
        i = count - 1 - i;
    if (s->order == ROTATED)
        i = (i + count / 2) % count;
    if (s->order == SHUFFLED) /* 31 divides no count below */
        i = i * 31 % count;
    *row = i ? s->first + (i - 1) * s->rows : 0;
    int64_t most = i ? s->rows : s->first;
    *rows = p->rows - *row < most ? p->rows - *row : most;
}

static void all_queries(const fo_kernel *k, fo_attention *a, const problem *p, const split *s,
                        result *r)
{
    fo_attention_args args = {.qkv = p->qkv, .dropout_key = p->key, .lse = r->lse, .out = r->out};
    int64_t count = call_count(p, s), row, rows;
    assert_true(s->order != SHUFFLED || count % 31);
    k->attention_begin(a);
    for (int64_t i = 0; i < count; i++) {
        call_at(p, s, i, count, &row, &rows);
        ok(k->attention_queries(a, &args, row, rows));
    }
}

static fo_attention_args grad_args(const problem *p, result *r)
{
    return (fo_attention_args){.qkv = p->qkv,
                               .dropout_key = p->key,
                               .lse = p->lse_given,
                               .out = p->out_given,
                               .dout = p->dout,
                               .dqkv = r->dqkv};
}

static void all_gradients(const fo_kernel *k, fo_attention *a, const problem *p, const split *s,
                          result *r)
{
    fo_attention_args args = grad_args(p, r);
    int64_t count = call_count(p, s), row, rows;
    k->attention_begin(a);
    for (int64_t i = 0; i < count; i++) {
        call_at(p, s, i, count, &row, &rows);
        ok(k->attention_queries_grad(a, &args, row, rows));
    }
}

static fo_attention *attention_make(const fo_kernel *k, const problem *p, int threads)
{
    fo_attention *a;
    fo_kernel_set_threads(threads);
    ok(k->attention_create(&p->d, &a));
    fo_kernel_set_threads(1);
    return a;
}

/* A new object, forward and backward. */
static result run(const fo_kernel *k, const problem *p, const split *s, int threads)
{
    result r = result_make(p);
    fo_attention *a = attention_make(k, p, threads);
    all_queries(k, a, p, s, &r);
    all_gradients(k, a, p, s, &r);
    k->attention_destroy(a);
    return r;
}

/* ---- against float64 -------------------------------------------------------------------------------- */

typedef struct tolerance {
    double step, lse; /* of out and gradients, of lse; relative to the largest */
} tolerance;

/* bf16: the probabilities are rounded to it before the products. Otherwise the scores' rounding goes into
 * the exponent: it grows with them. */
static tolerance tolerance_of(const problem *p, double size)
{
    double score = size * size * sqrt((double)p->d.head_dim);
    return (tolerance){.step = p->d.dtype == FO_BF16 ? 0.01 : 4e-6 * (1.0 + score),
                       .lse = 2e-6 * (1.0 + score)};
}

static void compare_forward(const char *what, const problem *p, const result *r, tolerance t)
{
    int64_t n = p->rows * p->width;
    double max = 0.0;
    for (int64_t i = 0; i < n; i++)
        max = fmax(max, fabs(p->out[i]));
    compare(what, r->lse, FO_F32, NULL, p->lse, p->rows * p->d.heads, p->d.context, t.lse, 1e-6);
    compare(what, r->out, p->d.dtype, NULL, p->out, n, p->width, t.step * max, t.step);
}

/* dq, dk and dv differ in size. */
static void compare_gradient(const char *what, const problem *p, const result *r, tolerance t)
{
    static const char *const names[] = {"dq", "dk", "dv"};
    int64_t n = p->rows * p->width;
    for (int part = 0; part < 3; part++) {
        double *of_part = malloc((size_t)(n + 1) * sizeof *of_part), max = 0.0;
        void *mine = make(p->d.dtype, n);
        char text[160];
        snprintf(text, sizeof text, "%s, %s", what, names[part]);
        for (int64_t i = 0; i < n; i++) {
            int64_t at = (i / p->width * 3 + part) * p->width + i % p->width;
            of_part[i] = p->dqkv[at];
            put(mine, p->d.dtype, i, get(r->dqkv, p->d.dtype, at));
            max = fmax(max, fabs(of_part[i]));
        }
        compare(text, mine, p->d.dtype, NULL, of_part, n, p->width, 2 * t.step * max + 1e-6,
                t.step);
        free(of_part);
        free(mine);
    }
    check_fence(what, r->dqkv, p->d.dtype, 3 * n);
}

typedef struct shape {
    int64_t batch, context;
    int heads, head_dim;
    double size; /* of q, k and v */
} shape;

static const shape shapes[] = {
    {0, 8, 2, 4, 1.0},    {1, 0, 2, 4, 1.0},    {1, 8, 0, 4, 1.0},    {1, 1, 1, 1, 1.0},
    {1, 1, 2, 3, 1.0},    {2, 5, 3, 7, 2.0},    {1, 63, 1, 8, 1.0},   {3, 64, 2, 16, 1.0},
    {1, 65, 2, 33, 2.0},  {2, 130, 3, 17, 1.0}, {1, 200, 2, 64, 1.0}, {1, 257, 1, 100, 0.5},
    {1, 600, 1, 20, 1.0}, /* more than a chunk of keys */
    {1, 70, 2, 16, 30.0}, /* scores in the hundreds: nearly one-hot */
};

static void name_case(char *what, size_t size, const fo_kernel *k, const problem *p, int ranks,
                      const char *more)
{
    snprintf(what, size, "%s %s batch %d context %d heads %d of %d dropout %g ranks %d, %s",
             k->name, fo_dtype_name(p->d.dtype), (int)p->d.batch, (int)p->d.context, p->d.heads,
             p->d.head_dim, p->d.dropout, ranks, more);
}

static problem *problem_of(const shape *s, fo_dtype dtype, float dropout, int ranks)
{
    fo_attention_desc d = {.batch = s->batch,
                           .context = s->context,
                           .heads = s->heads,
                           .head_dim = s->head_dim,
                           .dtype = dtype,
                           .dropout = dropout,
                           .head_offset = 2,
                           .total_heads = s->heads + 3};
    return problem_make(d, ranks, s->size);
}

/* Whole results, and the same bits from more threads. */
static void value_case(const shape *s, fo_dtype dtype, float dropout, int ranks)
{
    problem *p = problem_of(s, dtype, dropout, ranks);
    tolerance t = tolerance_of(p, s->size);
    const split *calls = &splits[ranks % 2 ? 4 : 1];
    char what[160];
    for (int i = 0; backend(i); i++) {
        name_case(what, sizeof what, backend(i), p, ranks, calls->name);
        result found = run(backend(i), p, calls, 1);
        compare_forward(what, p, &found, t);
        compare_gradient(what, p, &found, t);
        for (int threads = 2; threads <= THREADS; threads++) {
            result threaded = run(backend(i), p, calls, threads);
            same_bits(what, threaded.out, found.out, dtype, p->rows * p->width, p->width);
            same_bits(what, threaded.lse, found.lse, FO_F32, p->rows * p->d.heads, p->d.context);
            same_bits(what, threaded.dqkv, found.dqkv, dtype, 3 * p->rows * p->width, p->width);
            result_free(&threaded);
        }
        result_free(&found);
    }
    problem_free(p);
}

static void test_values(void **state)
{
    (void)state;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int t = 0; t < 2; t++)
            for (int drop = 0; drop < 2; drop++)
                for (int ranks = 0; ranks <= 4; ranks += shapes[s].context > 150 ? 3 : 1)
                    value_case(&shapes[s], t ? FO_BF16 : FO_F32, drop ? 0.25f : 0.0f, ranks);
}

/* ---- splits and orders of calls ----------------------------------------------------------------------- */

static const shape split_shapes[] = {{2, 130, 2, 12, 1.0},
                                     {1, 64, 1, 33, 1.0},
                                     {3, 200, 1, 8, 1.0},
                                     {1, 580, 1, 16, 1.0}};
enum { SPLIT_SHAPES = sizeof split_shapes / sizeof *split_shapes };

/* Forward: the same bits. Backward: right, and the second execution of an object as the first. */
static void split_case(const fo_kernel *k, const shape *s, fo_dtype dtype, int ranks)
{
    problem *p = problem_of(s, dtype, 0.25f, ranks);
    int64_t n = p->rows * p->width;
    fo_attention *a = attention_make(k, p, 1);
    result whole = result_make(p);
    all_queries(k, a, p, &splits[0], &whole);
    for (int i = 0; i < SPLITS; i++) {
        char what[200];
        name_case(what, sizeof what, k, p, ranks, splits[i].name);
        result found = result_make(p), again = result_make(p);
        all_queries(k, a, p, &splits[i], &found);
        same_bits(what, found.out, whole.out, dtype, n, p->width);
        same_bits(what, found.lse, whole.lse, FO_F32, p->rows * p->d.heads, p->d.context);
        check_fence(what, found.out, dtype, n);
        check_fence(what, found.lse, FO_F32, p->rows * p->d.heads);
        all_gradients(k, a, p, &splits[i], &found);
        compare_gradient(what, p, &found, tolerance_of(p, s->size));
        all_gradients(k, a, p, &splits[i], &again);
        same_bits(what, again.dqkv, found.dqkv, dtype, 3 * n, p->width);
        result_free(&again);
        result_free(&found);
    }
    result_free(&whole);
    k->attention_destroy(a);
    problem_free(p);
}

static void test_splits(void **state)
{
    (void)state;
    for (int i = 0; backend(i); i++)
        for (int s = 0; s < SPLIT_SHAPES; s++)
            for (int t = 0; t < 2; t++)
                for (int ranks = 0; ranks <= 3; ranks += 3)
                    split_case(backend(i), &split_shapes[s], t ? FO_BF16 : FO_F32, ranks);
}

/* The order of rows does not change what a token gets: straight and balanced forward bits agree. */
static void test_row_orders(void **state)
{
    (void)state;
    enum { DIM = 12 };
    const shape s = {2, 150, 1, DIM, 1.0};
    for (int i = 0; backend(i); i++)
        for (int ranks = 1; ranks <= 4; ranks++) {
            problem *straight = problem_of(&s, FO_BF16, 0.25f, 0);
            problem *balanced = problem_of(&s, FO_BF16, 0.25f, ranks);
            for (int64_t t = 0; t < straight->rows; t++)
                memcpy(row_at(balanced->qkv, FO_BF16, balanced->row[t] * 3 * DIM),
                       row_at(straight->qkv, FO_BF16, t * 3 * DIM), 3 * DIM * sizeof(fo_bf16));
            result a = run(backend(i), straight, &splits[1], 1);
            result b = run(backend(i), balanced, &splits[1], 1);
            same_bits("lse of balanced rows", b.lse, a.lse, FO_F32, straight->rows, s.context);
            for (int64_t t = 0; t < straight->rows; t++)
                same_bits("out of balanced rows", row_at(b.out, FO_BF16, balanced->row[t] * DIM),
                          row_at(a.out, FO_BF16, t * DIM), FO_BF16, DIM, DIM);
            result_free(&a);
            result_free(&b);
            problem_free(straight);
            problem_free(balanced);
        }
}

/* ---- what a call reads and writes --------------------------------------------------------------------- */

static void expect_written(const char *what, const void *x, fo_dtype dtype, int64_t at, int64_t n,
                           bool written)
{
    for (int64_t i = at; i < at + n; i++)
        if (isnan(get(x, dtype, i)) == written)
            fail_msg("%s: element %lld is %g, expected it %s", what, (long long)i, get(x, dtype, i),
                     written ? "written" : "not written");
}

/* Rows [row, row + rows) and nothing else; keys and values of a sequence with its last query. */
static void test_writes(void **state)
{
    (void)state;
    const shape s = {2, 100, 2, 5, 1.0};
    enum { ROW = 37, ROWS = 50 };
    for (int i = 0; backend(i); i++)
        for (int ranks = 0; ranks <= 2; ranks += 2) {
            const fo_kernel *k = backend(i);
            problem *p = problem_of(&s, FO_F32, 0.0f, ranks);
            int64_t width = p->width, seen[2] = {0};
            result r = result_make(p);
            fo_attention *a = attention_make(k, p, 1);
            fo_attention_args args = {.qkv = p->qkv, .lse = r.lse, .out = r.out};
            k->attention_begin(a);
            ok(k->attention_queries(a, &args, 0, 0));
            ok(k->attention_queries(a, &args, ROW, ROWS));
            for (int64_t t = 0; t < p->rows; t++) {
                int64_t row = p->row[t];
                bool asked = row >= ROW && row < ROW + ROWS;
                expect_written("out", r.out, FO_F32, row * width, width, asked);
                for (int h = 0; h < s.heads; h++)
                    expect_written("lse", r.lse, FO_F32,
                                   (t / s.context * s.heads + h) * s.context + t % s.context, 1,
                                   asked);
            }
            args = grad_args(p, &r);
            k->attention_begin(a);
            for (int64_t done = 0; done < p->rows; done++) {
                int64_t row = (done + ROW) % p->rows;
                ok(k->attention_queries_grad(a, &args, row, 1));
                for (int64_t t = 0; t < p->rows; t++)
                    seen[t / s.context] += p->row[t] == row;
                for (int64_t t = 0; t < p->rows; t++) {
                    int64_t of = p->row[t], at = of * 3 * width;
                    bool asked = (of - ROW + p->rows) % p->rows <= done;
                    bool all = seen[t / s.context] == s.context;
                    expect_written("dq", r.dqkv, FO_F32, at, width, asked);
                    expect_written("dk and dv", r.dqkv, FO_F32, at + width, 2 * width, all);
                }
            }
            k->attention_destroy(a);
            result_free(&r);
            problem_free(p);
        }
}

/* A query sees keys up to its own position: later ones change no bit of what it gets, its own does. */
static void test_causal(void **state)
{
    (void)state;
    const shape s = {1, 150, 1, 9, 1.0};
    enum { FROM = 75 };
    for (int i = 0; backend(i); i++)
        for (int t = 0; t < 2; t++) {
            fo_dtype dtype = t ? FO_BF16 : FO_F32;
            problem *p = problem_of(&s, dtype, 0.0f, 0);
            result before = run(backend(i), p, &splits[1], 1);
            for (int64_t e = FROM * 3 * p->width; e < p->rows * 3 * p->width; e++)
                if (e / p->width % 3) /* keys and values */
                    put(p->qkv, dtype, e, 3.0 - get(p->qkv, dtype, e));
            result after = run(backend(i), p, &splits[1], 1);
            same_bits("queries before", after.out, before.out, dtype, FROM * p->width, p->width);
            for (int64_t row = FROM; row < p->rows; row++)
                if (!memcmp(row_at(after.out, dtype, row * p->width),
                            row_at(before.out, dtype, row * p->width),
                            (size_t)p->width * fo_dtype_size(dtype)))
                    fail_msg("query %lld did not notice another key", (long long)row);
            result_free(&before);
            result_free(&after);
            problem_free(p);
        }
}

/* After begin, other keys and values in the same memory. */
static void test_new_execution(void **state)
{
    (void)state;
    const shape s = {1, 100, 2, 9, 1.0};
    for (int i = 0; backend(i); i++) {
        const fo_kernel *k = backend(i);
        problem *p = problem_of(&s, FO_F32, 0.0f, 2);
        int64_t n = p->rows * p->width;
        result found = result_make(p);
        fo_attention *a = attention_make(k, p, 1);
        for (int times = 0; times < 2; times++) {
            for (int64_t e = 0; e < 3 * n && times; e++)
                put(p->qkv, FO_F32, e, 0.5 - get(p->qkv, FO_F32, e));
            all_queries(k, a, p, &splits[1], &found);
            all_gradients(k, a, p, &splits[1], &found);
        }
        result fresh = run(k, p, &splits[1], 1);
        same_bits("second execution, out", found.out, fresh.out, FO_F32, n, p->width);
        same_bits("second execution, dqkv", found.dqkv, fresh.dqkv, FO_F32, 3 * n, p->width);
        k->attention_destroy(a);
        result_free(&found);
        result_free(&fresh);
        problem_free(p);
    }
}

/* The heads a rank has do not change what they compute: heads 1 and 2 of 3 by themselves. */
static void test_head_split(void **state)
{
    (void)state;
    enum { CONTEXT = 70, DIM = 12 };
    fo_attention_desc all = {.batch = 1,
                             .context = CONTEXT,
                             .heads = 3,
                             .head_dim = DIM,
                             .dtype = FO_F32,
                             .dropout = 0.2f,
                             .total_heads = 3};
    fo_attention_desc some = all;
    some.heads = 2;
    some.head_offset = 1;
    problem *p = problem_make(all, 0, 1.0), *part_of = problem_make(some, 0, 1.0);
    for (int64_t t = 0; t < CONTEXT; t++) {
        for (int part = 0; part < 3; part++)
            memcpy((float *)part_of->qkv + (t * 3 + part) * 2 * DIM,
                   (float *)p->qkv + ((t * 3 + part) * 3 + 1) * DIM, 2 * DIM * sizeof(float));
        memcpy((float *)part_of->dout + t * 2 * DIM, (float *)p->dout + (t * 3 + 1) * DIM,
               2 * DIM * sizeof(float));
        memcpy((float *)part_of->out_given + t * 2 * DIM, (float *)p->out_given + (t * 3 + 1) * DIM,
               2 * DIM * sizeof(float));
    }
    memcpy(part_of->lse_given, p->lse_given + CONTEXT, 2 * CONTEXT * sizeof(float));
    for (int i = 0; backend(i); i++) {
        result whole = run(backend(i), p, &splits[1], 1);
        result half = run(backend(i), part_of, &splits[1], 1);
        float *whole_out = whole.out, *half_out = half.out, *whole_grad = whole.dqkv,
              *half_grad = half.dqkv;
        for (int64_t t = 0; t < CONTEXT; t++) {
            same_bits("out of two heads", half_out + t * 2 * DIM, whole_out + (t * 3 + 1) * DIM,
                      FO_F32, 2 * DIM, DIM);
            for (int part = 0; part < 3; part++)
                same_bits("gradient of two heads", half_grad + (t * 3 + part) * 2 * DIM,
                          whole_grad + ((t * 3 + part) * 3 + 1) * DIM, FO_F32, 2 * DIM, DIM);
        }
        result_free(&whole);
        result_free(&half);
    }
    problem_free(p);
    problem_free(part_of);
}

/* ---- memory and errors -------------------------------------------------------------------------------- */

static size_t in_use(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

/* An execution, of calls of 64 rows. */
static void execute(const fo_kernel *k, fo_attention *a, const problem *p, result *r)
{
    all_queries(k, a, p, &splits[1], r);
    all_gradients(k, a, p, &splits[1], r);
}

/* After the first execution nothing is allocated that stays; executions that are broken off count too. */
static void test_memory_stays(void **state)
{
    (void)state;
    const shape s = {3, 140, 2, 6, 1.0};
    for (int i = 0; backend(i); i++) {
        const fo_kernel *k = backend(i);
        problem *p = problem_of(&s, FO_F32, 0.0f, 2);
        result r = result_make(p);
        fo_attention *a = attention_make(k, p, 1);
        fo_attention_args args = grad_args(p, &r);
        execute(k, a, p, &r);
        size_t before = in_use();
        for (int times = 0; times < 3; times++) {
            k->attention_begin(a);
            ok(k->attention_queries_grad(a, &args, 30, 200));
            execute(k, a, p, &r);
        }
        assert_int_equal(in_use(), before);
        compare_gradient("after an execution broken off", p, &r, tolerance_of(p, s.size));
        k->attention_destroy(a);
        result_free(&r);
        problem_free(p);
    }
}

/* Straight rows: the sums of a sequence are those of the next. */
static void test_memory_is_used_again(void **state)
{
    (void)state;
    const shape s = {5, 70, 1, 6, 1.0};
    for (int i = 0; backend(i); i++) {
        const fo_kernel *k = backend(i);
        problem *p = problem_of(&s, FO_F32, 0.0f, 0);
        result r = result_make(p);
        fo_attention *a = attention_make(k, p, 1);
        fo_attention_args args = grad_args(p, &r);
        k->attention_begin(a);
        ok(k->attention_queries_grad(a, &args, 0, s.context));
        size_t before = in_use();
        ok(k->attention_queries_grad(a, &args, s.context, p->rows - s.context));
        assert_int_equal(in_use(), before);
        compare_gradient("sums used again", p, &r, tolerance_of(p, s.size));
        k->attention_destroy(a);
        result_free(&r);
        problem_free(p);
    }
}

/* What attention over a context allocates, executed. */
static size_t memory_of(const fo_kernel *k, int64_t context)
{
    fo_attention_desc d = {
        .batch = 1, .context = context, .heads = 1, .head_dim = 1, .total_heads = 1};
    float *data = calloc((size_t)context * 12, sizeof *data);
    fo_attention_args args = {.qkv = data,
                              .lse = data + 3 * context,
                              .out = data + 4 * context,
                              .dout = data + 5 * context,
                              .dqkv = data + 6 * context};
    size_t before = in_use();
    fo_attention *a;
    ok(k->attention_create(&d, &a));
    k->attention_begin(a);
    ok(k->attention_queries(a, &args, context - 64, 64));
    ok(k->attention_queries_grad(a, &args, context - 64, 64));
    size_t after = in_use();
    k->attention_destroy(a);
    free(data);
    return after - before;
}

static void test_memory_grows_with_context(void **state)
{
    (void)state;
    enum { SHORT = 2048, LONG = 4 * SHORT };
    for (int i = 0; backend(i); i++) {
        memory_of(backend(i), LONG); /* what is allocated once a process */
        size_t small = memory_of(backend(i), SHORT), large = memory_of(backend(i), LONG);
        /* 64 scores and probabilities a position, a few values more */
        if (large > small + (LONG - SHORT) * (64 * 4 + 64) * sizeof(float))
            fail_msg("%s: %zu bytes for a context of %d, %zu for %d", backend(i)->name, small,
                     SHORT, large, LONG);
    }
}

static void expect_error(fo_status status, const char *sentence)
{
    assert_int_equal(status, FO_INVALID);
    if (!strstr(fo_last_error(), sentence))
        fail_msg("the error is '%s', expected '%s'", fo_last_error(), sentence);
}

static void test_errors(void **state)
{
    (void)state;
    fo_run runs[] = {{0, 3, 0, 0}, {3, 3, 0, 3}};
    const fo_attention_desc good = {.batch = 1,
                                    .context = 6,
                                    .heads = 1,
                                    .head_dim = 1,
                                    .total_heads = 1,
                                    .runs = runs,
                                    .run_count = 2};
    float data[6 * 12] = {0};
    fo_attention_args args = {
        .qkv = data, .lse = data + 18, .out = data + 24, .dout = data + 30, .dqkv = data + 36};
    for (int i = 0; backend(i); i++) {
        const fo_kernel *k = backend(i);
        fo_attention *a;
        ok(k->attention_create(&good, &a));
        k->attention_begin(a);
        expect_error(k->attention_queries(a, &args, 3, 4),
                     "attention of rows 3 to 7, expected rows of 0 to 6");
        expect_error(k->attention_queries_grad(a, &args, -1, 2),
                     "attention of rows -1 to 1, expected rows of 0 to 6");
        ok(k->attention_queries_grad(a, &args, 0, 6));
        expect_error(k->attention_queries_grad(a, &args, 2, 1), "more than the 6 queries");
        k->attention_destroy(a);
        fo_attention_desc bad = good;
        bad.run_count = 1;
        expect_error(k->attention_create(&bad, &a), "are of 3 rows, expected 6");
        bad = good;
        bad.head_dim = 0;
        expect_error(k->attention_create(&bad, &a), "head_dim of 1 or more");
        runs[1].position = 2;
        expect_error(k->attention_create(&good, &a), "runs 0 and 1 of attention share tokens");
        runs[1].position = 4;
        expect_error(k->attention_create(&good, &a), "run 1 of attention");
        runs[1].position = 3;
        assert_null(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values),
                                       cmocka_unit_test(test_splits),
                                       cmocka_unit_test(test_row_orders),
                                       cmocka_unit_test(test_writes),
                                       cmocka_unit_test(test_causal),
                                       cmocka_unit_test(test_new_execution),
                                       cmocka_unit_test(test_head_split),
                                       cmocka_unit_test(test_memory_stays),
                                       cmocka_unit_test(test_memory_is_used_again),
                                       cmocka_unit_test(test_memory_grows_with_context),
                                       cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
