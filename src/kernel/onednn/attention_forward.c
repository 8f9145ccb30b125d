/* Output of the queries of one block and head, over chunks of its keys, so that the scores stay in the
 * cache whatever the context is:
 *   S = Q K^T,  P = exp(scale (S - max)),  O = O exp(scale (max before - max)) + P V,
 * and O / sum(P) in the end. A query lies at the same place of the same products whichever rows are
 * asked for: so it gets the same bits. */
#include "kernel/onednn/attention.h"
#include "kernel/progress.h"

#include <math.h>

enum { BLOCK = FO_ATTENTION_BLOCK, CHUNK = FO_ATTENTION_CHUNK };

/* The queries [first, first + rows) of a block that were asked for, of one head, and what is known of
 * them. */
typedef struct queries {
    int64_t block, first, rows;
    const void *q; /* [64, d], as rows */
    float *out, *sum;
    float max[BLOCK], factor[BLOCK];
} queries;

/* Block j of keys and values of the heads, `at` that of the first head among those kept. */
static void keep_block(const fo_attention *attention, fo_kernel_attention_worker *w,
                       const void *qkv, int64_t sequence, int64_t j, int64_t at)
{
    const fo_attention_desc *s = &attention->desc;
    const fo_kernel_attention_kept *kept = &attention->forward;
    void *k = fo_kernel_attention_block(kept->k_columns, at, attention->block_col_bytes);
    void *v = fo_kernel_attention_block(kept->v_rows, at, attention->block_row_bytes);
    if (!attention->packed) {
        int64_t step = attention->blocks * BLOCK * s->head_dim;
        fo_kernel_attention_gather_block(attention, w, qkv, sequence, j, 1, k, step);
        fo_kernel_attention_gather_block(attention, w, qkv, sequence, j, 2, v, step);
        return;
    }
    const fo_kernel_vec *vec = fo_kernel_vec_at(0);
    int64_t step = attention->step;
    fo_kernel_attention_gather_block(attention, w, qkv, sequence, j, 1, w->q, step);
    fo_kernel_attention_gather_block(attention, w, qkv, sequence, j, 2, w->dout, step);
    for (int64_t h = 0; h < w->heads; h++) {
        vec->pack_columns(fo_kernel_attention_at(attention, w->q, h * step), s->dtype, BLOCK,
                          s->head_dim, attention->columns.k_padded, k);
        vec->pack_rows(fo_kernel_attention_at(attention, w->dout, h * step), s->dtype, BLOCK,
                       s->head_dim, attention->rows.panel, v);
        k = fo_kernel_attention_block(k, attention->blocks, attention->block_col_bytes);
        v = fo_kernel_attention_block(v, attention->blocks, attention->block_row_bytes);
    }
}

/* What the piece meets and is not yet kept. */
static void keep(const fo_attention *attention, fo_kernel_attention_worker *w, const void *qkv,
                 const fo_run *piece)
{
    int64_t blocks = fo_kernel_attention_key_blocks(piece);
    int64_t j = fo_kernel_attention_kept_blocks(&attention->forward, piece);
    for (; j < blocks; j++) {
        keep_block(attention, w, qkv, piece->sequence, j, w->head * attention->blocks + j);
        fo_kernel_progress();
    }
}

/* Blocks of keys from block `from` of the sequence on, block `at` of those kept. */
static fo_status chunk(const fo_attention *attention, fo_kernel_attention_worker *w, queries *of,
                       const fo_kernel_attention_drop *drop, int64_t from, int64_t count,
                       int64_t at)
{
    const fo_attention_desc *s = &attention->desc;
    const fo_kernel_vec *vec = fo_kernel_vec_at(0);
    const fo_kernel_attention_forward *product = &w->forward[count - 1];
    int64_t keys = count * BLOCK, skipped = of->first * keys;
    const void *k =
        fo_kernel_attention_block(attention->forward.k_columns, at, attention->block_col_bytes);
    const void *v =
        fo_kernel_attention_block(attention->forward.v_rows, at, attention->block_row_bytes);
    fo_status status = fo_kernel_matmul_run(product->scores, of->q, k, w->scores);
    if (status != FO_OK)
        return status;
    vec->attention_softmax(w->scores + skipped, of->block * BLOCK + of->first, of->rows,
                           from * BLOCK, keys, attention->scale, drop,
                           fo_kernel_attention_at(attention, w->p, skipped), s->dtype, of->max,
                           of->sum, of->factor);
    if (from > 0)
        vec->scale_rows(of->out + of->first * s->head_dim, of->factor, of->rows, s->head_dim);
    return fo_kernel_attention_add(&product->values, from > 0, w->p, v, of->out);
}

/* Head w->head + h. */
static fo_status forward_head(const fo_attention *attention, fo_kernel_attention_worker *w,
                              const fo_attention_args *args, const fo_run *piece, int64_t h)
{
    const fo_attention_desc *s = &attention->desc;
    int64_t head = w->head + h;
    queries of = {.block = piece->position / BLOCK,
                  .first = piece->position % BLOCK,
                  .rows = piece->rows,
                  .q = fo_kernel_attention_at(attention, w->q, h * attention->step),
                  .out = w->rows + h * attention->step,
                  .sum = w->total + h * BLOCK};
    fo_kernel_attention_drop drop =
        fo_kernel_attention_drop_of(attention, args->dropout_key, piece->sequence, head);
    for (int64_t i = 0; i < of.rows; i++) {
        of.max[i] = -INFINITY;
        of.sum[i] = 0.0f;
    }
    for (int64_t from = 0; from <= of.block; from += CHUNK) {
        int64_t count = of.block + 1 - from < CHUNK ? of.block + 1 - from : CHUNK;
        fo_status status =
            chunk(attention, w, &of, &drop, from, count, head * attention->blocks + from);
        if (status != FO_OK)
            return status;
        fo_kernel_progress();
    }
    float *lse = args->lse + (piece->sequence * s->heads + head) * s->context + piece->position;
    for (int64_t i = 0; i < of.rows; i++)
        lse[i] = of.max[i] * attention->scale + logf(of.sum[i]);
    return FO_OK;
}

fo_status fo_kernel_attention_forward_piece(const fo_attention *attention,
                                            fo_kernel_attention_worker *w,
                                            const fo_attention_args *args, const fo_run *piece)
{
    const fo_attention_desc *s = &attention->desc;
    const fo_kernel_vec *vec = fo_kernel_vec_at(0);
    int64_t width = (int64_t)s->heads * s->head_dim, step = attention->step;
    int64_t at = w->head * s->head_dim, first = piece->position % BLOCK * s->head_dim;
    if (!w->from) {
        keep(attention, w, args->qkv, piece);
        vec->gather(fo_kernel_attention_at(attention, args->qkv, piece->row * 3 * width + at),
                    s->dtype, piece->rows, w->heads, s->head_dim, 3 * width,
                    fo_kernel_attention_at(attention, w->q, first), step);
    }
    for (int64_t h = w->from; h < w->to; h++) {
        fo_status status = forward_head(attention, w, args, piece, h);
        if (status != FO_OK)
            return status;
    }
    if (w->to == w->heads)
        vec->scatter(w->rows + first, step, w->total, BLOCK,
                     fo_kernel_attention_at(attention, args->out, piece->row * width + at),
                     s->dtype, piece->rows, w->heads, s->head_dim, width);
    return FO_OK;
}
