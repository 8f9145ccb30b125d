/* Causal attention of one (batch, head) at a time, in blocks of 64 queries (forward) or 64 keys
 * (backward), so that no more than 64 rows of probabilities exist at once. The context is padded with
 * zeros to whole blocks: padded keys lie above the diagonal of every query, padded queries have a
 * log-sum-exp of infinity and so a probability of 0.
 *
 * forward, queries i:   S = Q_i K^T,  P = exp(scale (S - max)),  O_i = P V / sum(P)
 * backward, keys j, over queries from block j on, transposed so that the long sums are plain products:
 *   S = K_j Q^T,  P = exp(scale S - lse),  dV_j = P dO,  dP = V_j dO^T,
 *   dS = P (dP - D) scale,  dK_j = dS Q,  dQ += dS^T K_j,  with D = rowsum(dO O). */
#include "kernel/onednn/onednn.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum { BLOCK = 64, AHEAD = 16 /* rows fetched before they are needed */ };

static const float per_ln2 = 1.44269504088896341f;

/* Products over `count` blocks. */
typedef struct products {
    fo_kernel_matmul *scores; /* [64, d] . [64 count, d]^T */
    fo_kernel_matmul *values; /* [64, 64 count] . [64 count, d] */
    fo_kernel_matmul *dq;     /* += [64, 64 count]^T . [64, d] */
} products;

/* What one thread works with. All matrices dense, [padded context, head_dim] unless said otherwise. */
typedef struct worker {
    products *of_count; /* [blocks]; [i]: i + 1 blocks */
    void *q, *k, *v, *dout;
    float *scores, *dp; /* [64, padded context] */
    void *p, *ds;       /* the same in T */
    float *block;       /* [64, head_dim] */
    float *dq;
    float *lse, *total; /* [padded context]; backward: lse / ln 2 */
    float sum[BLOCK];
    fo_status status;
} worker;

struct fo_attention {
    fo_attention_desc desc;
    int64_t blocks;
    int workers;
    worker *worker;
    float scale;
};

static void worker_free(worker *w, int64_t blocks)
{
    for (int64_t i = 0; w->of_count && i < blocks; i++) {
        fo_kernel_matmul_destroy(w->of_count[i].scores);
        fo_kernel_matmul_destroy(w->of_count[i].values);
        fo_kernel_matmul_destroy(w->of_count[i].dq);
    }
    void *memory[] = {w->of_count, w->q,  w->k,     w->v,  w->dout, w->scores, w->dp,
                      w->p,        w->ds, w->block, w->dq, w->lse,  w->total};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        free(memory[i]);
}

static void attention_destroy(fo_attention *attention)
{
    if (!attention)
        return;
    for (int i = 0; i < attention->workers; i++)
        worker_free(&attention->worker[i], attention->blocks);
    free(attention->worker);
    free(attention);
}

static fo_status worker_products(worker *w, const fo_attention *attention)
{
    int64_t d = attention->desc.head_dim;
    fo_dtype dtype = attention->desc.dtype;
    for (int64_t i = 0; i < attention->blocks; i++) {
        int64_t keys = (i + 1) * BLOCK;
        fo_kernel_matmul_desc scores = {
            .m = BLOCK, .n = keys, .k = d, .dtype = dtype, .b_transposed = true, .threads = 1};
        fo_kernel_matmul_desc values = {
            .m = BLOCK, .n = d, .k = keys, .dtype = dtype, .threads = 1};
        fo_kernel_matmul_desc dq = {.m = keys,
                                    .n = d,
                                    .k = BLOCK,
                                    .dtype = dtype,
                                    .a_transposed = true,
                                    .accumulate = true,
                                    .threads = 1};
        fo_status status = fo_kernel_matmul_create(&scores, &w->of_count[i].scores);
        if (status == FO_OK)
            status = fo_kernel_matmul_create(&values, &w->of_count[i].values);
        if (status == FO_OK)
            status = fo_kernel_matmul_create(&dq, &w->of_count[i].dq);
        if (status != FO_OK)
            return status;
    }
    return FO_OK;
}

static fo_status worker_make(worker *w, const fo_attention *attention)
{
    size_t padded = (size_t)(attention->blocks * BLOCK), d = (size_t)attention->desc.head_dim;
    size_t size = fo_dtype_size(attention->desc.dtype), matrix = padded * d * size;
    size_t rows = BLOCK * padded;
    w->of_count = calloc((size_t)attention->blocks + 1, sizeof *w->of_count);
    w->q = fo_kernel_onednn_alloc(matrix);
    w->k = fo_kernel_onednn_alloc(matrix);
    w->v = fo_kernel_onednn_alloc(matrix);
    w->dout = fo_kernel_onednn_alloc(matrix);
    w->scores = fo_kernel_onednn_alloc(rows * sizeof(float));
    w->dp = fo_kernel_onednn_alloc(rows * sizeof(float));
    w->p = fo_kernel_onednn_alloc(rows * size);
    w->ds = fo_kernel_onednn_alloc(rows * size);
    w->block = fo_kernel_onednn_alloc(BLOCK * d * sizeof(float));
    w->dq = fo_kernel_onednn_alloc(padded * d * sizeof(float));
    w->lse = fo_kernel_onednn_alloc(padded * sizeof(float));
    w->total = fo_kernel_onednn_alloc(padded * sizeof(float));
    if (!w->of_count || !w->q || !w->k || !w->v || !w->dout || !w->scores || !w->dp || !w->p ||
        !w->ds || !w->block || !w->dq || !w->lse || !w->total)
        return fo_base_error(FO_NO_MEMORY, "no memory for attention over a context of %lld",
                             (long long)attention->desc.context);
    return worker_products(w, attention);
}

static fo_status attention_create(const fo_attention_desc *desc, fo_attention **out)
{
    *out = NULL;
    if (desc->batch < 0 || desc->context < 0 || desc->heads < 0 || desc->head_dim < 1)
        return fo_base_error(
            FO_INVALID,
            "attention of batch %lld, context %lld, %d heads of %d, expected sizes "
            "of 0 or more and head_dim of 1 or more",
            (long long)desc->batch, (long long)desc->context, desc->heads, desc->head_dim);
    fo_attention *attention = calloc(1, sizeof *attention);
    if (!attention)
        return fo_base_error(FO_NO_MEMORY, "no memory for attention");
    attention->desc = *desc;
    attention->scale = 1.0f / sqrtf((float)desc->head_dim);
    attention->blocks = (desc->context + BLOCK - 1) / BLOCK;
    int64_t tasks = desc->batch * desc->heads;
    int workers = fo_kernel_threads() < tasks ? fo_kernel_threads() : (int)tasks;
    fo_status status = FO_OK;
    attention->worker = calloc((size_t)workers + 1, sizeof *attention->worker);
    if (!attention->worker)
        status = fo_base_error(FO_NO_MEMORY, "no memory for %d workers of attention", workers);
    else
        attention->workers = workers;
    for (int i = 0; i < workers && status == FO_OK; i++)
        status = worker_make(&attention->worker[i], attention);
    if (status != FO_OK) {
        attention_destroy(attention);
        return status;
    }
    *out = attention;
    return FO_OK;
}

/* The rows of one head lie far apart: too far for the processor to foresee. */
static void fetch(const char *row, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(row + i);
}

/* Rows of one head out of a matrix whose rows are `stride` elements apart; zero rows follow. */
static void gather(void *to, const void *from, int64_t offset, int64_t stride,
                   const fo_attention *attention)
{
    const fo_attention_desc *s = &attention->desc;
    size_t size = fo_dtype_size(s->dtype), row = (size_t)s->head_dim * size;
    size_t step = (size_t)stride * size;
    const char *at = (const char *)from + (size_t)offset * size;
    for (int64_t t = 0; t < s->context; t++, at += step) {
        if (t + AHEAD < s->context)
            fetch(at + AHEAD * step, row);
        memcpy((char *)to + (size_t)t * row, at, row);
    }
    memset((char *)to + (size_t)s->context * row, 0,
           (size_t)(attention->blocks * BLOCK - s->context) * row);
}

static const void *row_of(const void *matrix, int64_t row, const fo_attention_desc *s)
{
    return (const char *)matrix + (size_t)(row * s->head_dim) * fo_dtype_size(s->dtype);
}

static void gather_qkv(worker *w, const fo_attention *attention, const void *qkv, int64_t b, int h)
{
    const fo_attention_desc *s = &attention->desc;
    int64_t width = (int64_t)s->heads * s->head_dim, offset = b * s->context * 3 * width;
    gather(w->q, qkv, offset + (int64_t)h * s->head_dim, 3 * width, attention);
    gather(w->k, qkv, offset + width + (int64_t)h * s->head_dim, 3 * width, attention);
    gather(w->v, qkv, offset + 2 * width + (int64_t)h * s->head_dim, 3 * width, attention);
}

static fo_kernel_attention_drop drop_of(const fo_attention_desc *s, uint64_t key, int64_t b, int h)
{
    return (fo_kernel_attention_drop){.p = s->dropout,
                                      .key = key,
                                      .stream = (uint64_t)(b * s->total_heads + s->head_offset + h),
                                      .context = s->context};
}

static int64_t block_rows(const fo_attention_desc *s, int64_t first)
{
    return s->context - first < BLOCK ? s->context - first : BLOCK;
}

static fo_status forward_head(const fo_attention *attention, worker *w, const void *qkv,
                              uint64_t key, void *out, float *lse, int64_t b, int h)
{
    const fo_attention_desc *s = &attention->desc;
    const fo_kernel_vec *vec = fo_kernel_vec_at(0);
    fo_kernel_attention_drop drop = drop_of(s, key, b, h);
    int64_t width = (int64_t)s->heads * s->head_dim;
    gather_qkv(w, attention, qkv, b, h);
    for (int64_t i = 0; i < attention->blocks; i++) {
        const products *run = &w->of_count[i];
        int64_t first = i * BLOCK, keys = first + BLOCK, rows = block_rows(s, first);
        fo_status status =
            fo_kernel_matmul_run(run->scores, row_of(w->q, first, s), w->k, w->scores);
        if (status != FO_OK)
            return status;
        vec->attention_softmax(w->scores, first, BLOCK, keys, attention->scale, &drop, w->p,
                               s->dtype, w->sum, w->lse + first);
        status = fo_kernel_matmul_run(run->values, w->p, w->v, w->block);
        if (status != FO_OK)
            return status;
        int64_t at = (b * s->context + first) * width + (int64_t)h * s->head_dim;
        vec->scatter(w->block, w->sum, (char *)out + (size_t)at * fo_dtype_size(s->dtype), s->dtype,
                     rows, s->head_dim, width);
    }
    memcpy(lse + (b * s->heads + h) * s->context, w->lse, (size_t)s->context * sizeof(float));
    return FO_OK;
}

/* rows of a float32 block into part 0 (q), 1 (k) or 2 (v) of dqkv, from token `first` on. */
static void scatter(const fo_attention_desc *s, const float *block, void *dqkv, int part, int64_t b,
                    int h, int64_t first, int64_t rows)
{
    int64_t width = (int64_t)s->heads * s->head_dim;
    int64_t at = ((b * s->context + first) * 3 + part) * width + (int64_t)h * s->head_dim;
    fo_kernel_vec_at(0)->scatter(block, NULL, (char *)dqkv + (size_t)at * fo_dtype_size(s->dtype),
                                 s->dtype, rows, s->head_dim, 3 * width);
}

/* lse and D of the head's queries, padded. */
static void backward_begin(const fo_attention *attention, worker *w, const void *out,
                           const float *lse, const void *dout, int64_t b, int h)
{
    const fo_attention_desc *s = &attention->desc;
    int64_t width = (int64_t)s->heads * s->head_dim, padded = attention->blocks * BLOCK;
    gather(w->dout, dout, b * s->context * width + (int64_t)h * s->head_dim, width, attention);
    const fo_kernel_vec *vec = fo_kernel_vec_at(0);
    const float *head_lse = lse + (b * s->heads + h) * s->context;
    size_t size = fo_dtype_size(s->dtype), step = (size_t)width * size;
    const char *at =
        (const char *)out + (size_t)(b * s->context * width + (int64_t)h * s->head_dim) * size;
    for (int64_t t = 0; t < s->context; t++, at += step) {
        if (t + AHEAD < s->context)
            fetch(at + AHEAD * step, (size_t)s->head_dim * size);
        w->lse[t] = head_lse[t] * per_ln2;
        w->total[t] = vec->dot(row_of(w->dout, t, s), at, s->dtype, s->head_dim);
    }
    for (int64_t t = s->context; t < padded; t++) {
        w->lse[t] = INFINITY;
        w->total[t] = 0.0f;
    }
    memset(w->dq, 0, (size_t)(padded * s->head_dim) * sizeof(float));
}

static fo_status backward_block(const fo_attention *attention, worker *w,
                                const fo_kernel_attention_drop *drop, int64_t j, void *dqkv,
                                int64_t b, int h)
{
    const fo_attention_desc *s = &attention->desc;
    const products *run = &w->of_count[attention->blocks - 1 - j];
    int64_t first = j * BLOCK, queries = attention->blocks * BLOCK - first;
    int64_t rows = block_rows(s, first);
    const void *q = row_of(w->q, first, s), *dout = row_of(w->dout, first, s);
    const void *k = row_of(w->k, first, s), *v = row_of(w->v, first, s);
    fo_status status = fo_kernel_matmul_run(run->scores, k, q, w->scores);
    if (status == FO_OK)
        status = fo_kernel_matmul_run(run->scores, v, dout, w->dp);
    if (status != FO_OK)
        return status;
    fo_kernel_vec_at(0)->attention_softmax_grad(w->scores, w->dp, first, BLOCK, first, queries,
                                                attention->scale, drop, w->lse + first,
                                                w->total + first, w->p, w->ds, s->dtype);
    status = fo_kernel_matmul_run(run->values, w->p, dout, w->block);
    if (status != FO_OK)
        return status;
    scatter(s, w->block, dqkv, 2, b, h, first, rows);
    status = fo_kernel_matmul_run(run->values, w->ds, q, w->block);
    if (status != FO_OK)
        return status;
    scatter(s, w->block, dqkv, 1, b, h, first, rows);
    return fo_kernel_matmul_run(run->dq, w->ds, k, w->dq + first * s->head_dim);
}

static fo_status backward_head(const fo_attention *attention, worker *w, const void *qkv,
                               const void *out, const float *lse, const void *dout, uint64_t key,
                               void *dqkv, int64_t b, int h)
{
    const fo_attention_desc *s = &attention->desc;
    fo_kernel_attention_drop drop = drop_of(s, key, b, h);
    gather_qkv(w, attention, qkv, b, h);
    backward_begin(attention, w, out, lse, dout, b, h);
    for (int64_t j = 0; j < attention->blocks; j++) {
        fo_status status = backward_block(attention, w, &drop, j, dqkv, b, h);
        if (status != FO_OK)
            return status;
    }
    scatter(s, w->dq, dqkv, 0, b, h, 0, s->context);
    return FO_OK;
}

static fo_status first_failure(const fo_attention *attention)
{
    for (int i = 0; i < attention->workers; i++)
        if (attention->worker[i].status != FO_OK)
            return attention->workers == 1
                       ? attention->worker[i].status /* its sentence is this thread's */
                       : fo_base_error(attention->worker[i].status,
                                       "attention of a context of %lld failed on thread %d",
                                       (long long)attention->desc.context, i);
    return FO_OK;
}

/* Each worker takes every workers-th head; a head's result does not depend on whose it is. */
static fo_status attention_forward(fo_attention *attention, const void *qkv, uint64_t dropout_key,
                                   void *out, float *lse)
{
    const fo_attention_desc *s = &attention->desc;
    int workers = attention->workers;
#pragma omp parallel for if (workers > 1) num_threads(workers) schedule(static, 1)
    for (int i = 0; i < workers; i++) {
        worker *w = &attention->worker[i];
        w->status = FO_OK;
        for (int64_t task = i; task < s->batch * s->heads && w->status == FO_OK; task += workers)
            w->status = forward_head(attention, w, qkv, dropout_key, out, lse, task / s->heads,
                                     (int)(task % s->heads));
    }
    return first_failure(attention);
}

static fo_status attention_backward(fo_attention *attention, const void *qkv, const void *out,
                                    const float *lse, const void *dout, uint64_t dropout_key,
                                    void *dqkv)
{
    const fo_attention_desc *s = &attention->desc;
    int workers = attention->workers;
#pragma omp parallel for if (workers > 1) num_threads(workers) schedule(static, 1)
    for (int i = 0; i < workers; i++) {
        worker *w = &attention->worker[i];
        w->status = FO_OK;
        for (int64_t task = i; task < s->batch * s->heads && w->status == FO_OK; task += workers)
            w->status = backward_head(attention, w, qkv, out, lse, dout, dropout_key, dqkv,
                                      task / s->heads, (int)(task % s->heads));
    }
    return first_failure(attention);
}

void fo_kernel_onednn_attention_fill(fo_kernel *table)
{
    table->attention_create = attention_create;
    table->attention_destroy = attention_destroy;
    table->attention_forward = attention_forward;
    table->attention_backward = attention_backward;
}
