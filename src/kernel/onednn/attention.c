/* Causal attention by queries: what is kept between calls, and the cutting of calls into pieces. The
 * context is padded with zeros to whole blocks of 64 positions: padded keys lie above the diagonal of
 * every query. */
#include "kernel/onednn/attention.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kernel/progress.h"

enum { BLOCK = FO_ATTENTION_BLOCK };

/* ---- making -------------------------------------------------------------------------------------- */

static void sums_free(fo_kernel_attention_sums *sums)
{
    if (!sums)
        return;
    free(sums->dk);
    free(sums->dv);
    free(sums);
}

static void attention_destroy(fo_attention *attention)
{
    if (!attention)
        return;
    for (int64_t b = 0; attention->sums && b < attention->desc.batch; b++)
        sums_free(attention->sums[b]);
    while (attention->idle) {
        fo_kernel_attention_sums *next = attention->idle->next;
        sums_free(attention->idle);
        attention->idle = next;
    }
    fo_kernel_attention_workers_free(attention);
    fo_kernel_runs_free(&attention->runs);
    void *memory[] = {attention->forward.k_columns,
                      attention->forward.v_rows,
                      attention->backward.k,
                      attention->backward.v,
                      attention->backward.k_rows,
                      attention->sums,
                      attention->seen};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        free(memory[i]);
    free(attention);
}

static fo_status attention_make(fo_attention *attention, const fo_attention_desc *s)
{
    fo_status status = fo_kernel_runs_make(s, &attention->runs);
    if (status != FO_OK)
        return status;
    attention->scale = 1.0f / sqrtf((float)s->head_dim);
    attention->blocks = (s->context + BLOCK - 1) / BLOCK;
    attention->forward.sequence = attention->backward.sequence = -1;
    attention->sums = calloc((size_t)s->batch + 1, sizeof(fo_kernel_attention_sums *));
    attention->seen = calloc((size_t)s->batch + 1, sizeof *attention->seen);
    if (!attention->sums || !attention->seen)
        return fo_base_error(FO_NO_MEMORY, "no memory for attention of %lld sequences",
                             (long long)s->batch);
    int threads = fo_kernel_threads();
    return fo_kernel_attention_workers_make(attention, threads < s->heads ? threads : s->heads);
}

static fo_status attention_create(const fo_attention_desc *desc, fo_attention **out)
{
    *out = NULL;
    fo_attention *attention = calloc(1, sizeof *attention);
    if (!attention)
        return fo_base_error(FO_NO_MEMORY, "no memory for attention");
    attention->desc = *desc;
    attention->desc.runs = NULL; /* the caller's; they are copied */
    fo_status status = attention_make(attention, desc);
    if (status == FO_OK)
        *out = attention;
    else
        attention_destroy(attention);
    return status;
}

/* ---- blocks of one head -------------------------------------------------------------------------- */

fo_status fo_kernel_attention_add(const fo_kernel_attention_sum *product, bool more, const void *a,
                                  const void *b, float *c)
{
    return fo_kernel_matmul_run(more ? product->more : product->first, a, b, c);
}

int64_t fo_kernel_attention_key_blocks(const fo_run *piece)
{
    return (piece->position + piece->rows - 1) / BLOCK + 1;
}

int64_t fo_kernel_attention_kept_blocks(const fo_kernel_attention_kept *kept, const fo_run *piece)
{
    return kept->sequence == piece->sequence ? kept->blocks : 0;
}

void fo_kernel_attention_gather_block(const fo_attention *attention,
                                      const fo_kernel_attention_worker *w, const void *qkv,
                                      int64_t sequence, int64_t j, int part, void *to, int64_t step)
{
    const fo_attention_desc *s = &attention->desc;
    int64_t width = (int64_t)s->heads * s->head_dim, from = j * BLOCK, end = from + BLOCK;
    for (int64_t i = 0; i < attention->runs.count; i++) {
        const fo_run *run = &attention->runs.run[i];
        int64_t first = run->position > from ? run->position : from;
        int64_t last = run->position + run->rows < end ? run->position + run->rows : end;
        if (run->sequence != sequence || first >= last)
            continue;
        int64_t row = run->row + first - run->position;
        int64_t at = (row * 3 + part) * width + w->head * s->head_dim;
        fo_kernel_vec_at(0)->gather(fo_kernel_attention_at(attention, qkv, at), s->dtype,
                                    last - first, w->heads, s->head_dim, 3 * width,
                                    fo_kernel_attention_at(attention, to,
                                                           (first - from) * s->head_dim),
                                    step);
    }
    for (int64_t h = 0; h < w->heads && end > s->context; h++)
        memset(fo_kernel_attention_at(attention, to, h * step + (s->context - from) * s->head_dim),
               0, (size_t)((end - s->context) * s->head_dim) * fo_dtype_size(s->dtype));
}

fo_kernel_attention_drop fo_kernel_attention_drop_of(const fo_attention *attention, uint64_t key,
                                                     int64_t sequence, int64_t h)
{
    const fo_attention_desc *s = &attention->desc;
    return (fo_kernel_attention_drop){.p = s->dropout,
                                      .key = key,
                                      .stream = (uint64_t)(sequence * s->total_heads +
                                                           s->head_offset + h),
                                      .context = s->context};
}

/* ---- calls --------------------------------------------------------------------------------------- */

typedef fo_status (*piece_function)(const fo_attention *, fo_kernel_attention_worker *,
                                    const fo_attention_args *, const fo_run *);

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

/* Heads [from, from + step) of every worker. */
static fo_status round_of_heads(fo_attention *attention, const fo_attention_args *args,
                                const fo_run *piece, piece_function function, int64_t from,
                                int64_t step)
{
    int workers = attention->workers;
#pragma omp parallel for if (workers > 1) num_threads(workers) schedule(static, 1)
    for (int i = 0; i < workers; i++) {
        fo_kernel_attention_worker *w = &attention->worker[i];
        w->from = from;
        w->to = from + step < w->heads ? from + step : w->heads;
        w->status = from && from >= w->heads ? FO_OK : function(attention, w, args, piece);
    }
    return first_failure(attention);
}

/* A head's result does not depend on which worker it is of. One worker makes progress from inside; several end
 * their parallel region for it, head by head. Then the keys and values that the piece needed are kept. */
static fo_status on_workers(fo_attention *attention, const fo_attention_args *args,
                            const fo_run *piece, fo_kernel_attention_kept *kept,
                            piece_function function)
{
    bool rounds = attention->workers > 1 && fo_kernel_progress_wanted();
    int64_t most = attention->desc.heads, step = rounds ? 1 : most + 1;
    if (rounds)
        most = (most + attention->workers - 1) / attention->workers;
    fo_status status = FO_OK;
    for (int64_t from = 0; status == FO_OK && (!from || from < most); from += step) {
        status = round_of_heads(attention, args, piece, function, from, step);
        fo_kernel_progress();
    }
    int64_t have = fo_kernel_attention_kept_blocks(kept, piece);
    int64_t blocks = fo_kernel_attention_key_blocks(piece);
    kept->sequence = piece->sequence;
    kept->blocks = blocks > have ? blocks : have;
    return status;
}

static void sums_close(fo_attention *attention, int64_t sequence)
{
    fo_kernel_attention_sums *sums = attention->sums[sequence];
    if (!sums)
        return;
    attention->sums[sequence] = NULL;
    sums->next = attention->idle;
    attention->idle = sums;
}

static fo_status sums_open(fo_attention *attention, int64_t sequence)
{
    const fo_attention_desc *s = &attention->desc;
    fo_kernel_attention_sums *sums = attention->idle;
    if (sums) {
        attention->idle = sums->next;
    } else {
        size_t bytes = (size_t)(s->heads * attention->blocks * BLOCK * s->head_dim) * sizeof(float);
        sums = calloc(1, sizeof *sums);
        if (sums) {
            sums->dk = fo_kernel_onednn_alloc(bytes);
            sums->dv = fo_kernel_onednn_alloc(bytes);
        }
        if (!sums || !sums->dk || !sums->dv) {
            sums_free(sums);
            return fo_base_error(FO_NO_MEMORY,
                                 "no memory for the gradients of keys and values of sequence %lld",
                                 (long long)sequence);
        }
    }
    sums->blocks = 0;
    attention->sums[sequence] = sums;
    return FO_OK;
}

static void attention_begin(fo_attention *attention)
{
    attention->forward.sequence = attention->backward.sequence = -1;
    for (int64_t b = 0; b < attention->desc.batch; b++) {
        sums_close(attention, b);
        attention->seen[b] = 0;
    }
}

static fo_status attention_queries(fo_attention *attention, const fo_attention_args *args,
                                   int64_t row, int64_t rows)
{
    fo_status status = fo_kernel_runs_check(&attention->runs, row, rows);
    for (int64_t end = row + rows; row < end && status == FO_OK;) {
        fo_run piece = fo_kernel_runs_first(&attention->runs, row, end - row);
        int64_t left = BLOCK - piece.position % BLOCK;
        piece.rows = piece.rows < left ? piece.rows : left;
        status = on_workers(attention, args, &piece, &attention->forward,
                            fo_kernel_attention_forward_piece);
        row += piece.rows;
    }
    return status;
}

static fo_status piece_grad(fo_attention *attention, const fo_attention_args *args,
                            const fo_run *piece)
{
    int64_t b = piece->sequence, context = attention->desc.context;
    fo_status status = FO_OK;
    if (attention->seen[b] + piece->rows > context)
        return fo_base_error(FO_INVALID,
                             "gradient of attention through more than the %lld queries of "
                             "sequence %lld, expected each once",
                             (long long)context, (long long)b);
    if (!attention->sums[b])
        status = sums_open(attention, b);
    attention->seen[b] += piece->rows;
    if (status == FO_OK)
        status = on_workers(attention, args, piece, &attention->backward,
                            fo_kernel_attention_backward_piece);
    if (status != FO_OK)
        return status;
    int64_t blocks = fo_kernel_attention_key_blocks(piece);
    if (blocks > attention->sums[b]->blocks)
        attention->sums[b]->blocks = blocks;
    if (attention->seen[b] == context)
        sums_close(attention, b);
    return FO_OK;
}

static fo_status attention_queries_grad(fo_attention *attention, const fo_attention_args *args,
                                        int64_t row, int64_t rows)
{
    fo_status status = fo_kernel_runs_check(&attention->runs, row, rows);
    for (int64_t end = row + rows; row < end && status == FO_OK;) {
        fo_run piece = fo_kernel_runs_first(&attention->runs, row, end - row);
        int64_t most = FO_ATTENTION_GROUP * BLOCK;
        piece.rows = piece.rows < most ? piece.rows : most;
        status = piece_grad(attention, args, &piece);
        row += piece.rows;
    }
    return status;
}

void fo_kernel_onednn_attention_fill(fo_kernel *table)
{
    table->attention_create = attention_create;
    table->attention_destroy = attention_destroy;
    table->attention_begin = attention_begin;
    table->attention_queries = attention_queries;
    table->attention_queries_grad = attention_queries_grad;
}
