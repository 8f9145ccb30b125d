/* Gradient through up to 256 consecutive queries of one head, over the blocks of their keys, transposed
 * so that the long sums are plain products:
 *   S = K_j Q^T,  P = exp(scale S - lse),  dV_j += P dO,  dP = V_j dO^T,
 *   dS = P (dP - D) scale,  dK_j += dS Q,  dQ += dS^T K_j,  with D = rowsum(dO O).
 * A product over 256 queries reads and writes the sums of keys and values once. Queries are padded with
 * zeros to whole blocks: they add zeros. */
#include "kernel/onednn/attention.h"
#include "kernel/progress.h"

#include <math.h>
#include <string.h>

enum { BLOCK = FO_ATTENTION_BLOCK, QUERIES = FO_ATTENTION_GROUP * BLOCK };

static const float per_ln2 = 1.44269504088896341f;

/* One head's queries of a piece. */
typedef struct queries {
    const fo_run *piece;
    int64_t head, padded; /* of the attention; rows up to whole blocks */
    const void *q_rows, *q_columns, *dout_rows, *dout_columns;
    float *total, *dq; /* [padded], [padded, d] */
    fo_kernel_attention_drop drop;
} queries;

/* Keys and values of the heads that the piece meets and that are not yet kept. */
static void keep(const fo_attention *attention, const fo_kernel_attention_worker *w,
                 const void *qkv, const fo_run *piece)
{
    const fo_attention_desc *s = &attention->desc;
    const fo_kernel_attention_kept *kept = &attention->backward;
    int64_t blocks = fo_kernel_attention_key_blocks(piece);
    int64_t step = attention->blocks * BLOCK * s->head_dim;
    for (int64_t j = fo_kernel_attention_kept_blocks(kept, piece); j < blocks; j++) {
        int64_t at = w->head * attention->blocks + j;
        void *k = fo_kernel_attention_block(kept->k, at, attention->block_bytes);
        void *v = fo_kernel_attention_block(kept->v, at, attention->block_bytes);
        fo_kernel_attention_gather_block(attention, w, qkv, piece->sequence, j, 1, k, step);
        fo_kernel_attention_gather_block(attention, w, qkv, piece->sequence, j, 2, v, step);
        for (int64_t h = 0; h < w->heads && attention->packed; h++, at += attention->blocks)
            fo_kernel_vec_at(0)->pack_rows(fo_kernel_attention_block(kept->k, at,
                                                                     attention->block_bytes),
                                           s->dtype, BLOCK, s->head_dim, attention->rows.panel,
                                           fo_kernel_attention_block(kept->k_rows, at,
                                                                     attention->block_row_bytes));
        fo_kernel_progress();
    }
}

/* Both forms of dense rows of a head, zeros behind them: into the memory given, or themselves. */
static void forms(const fo_attention *attention, void *x, int64_t rows, void *to_rows,
                  void *to_columns, const void **as_rows, const void **as_columns)
{
    const fo_attention_desc *s = &attention->desc;
    const fo_kernel_vec *vec = fo_kernel_vec_at(0);
    *as_rows = attention->packed ? to_rows : x;
    *as_columns = attention->packed ? to_columns : x;
    if (!attention->packed) {
        int64_t behind = (rows + BLOCK - 1) / BLOCK * BLOCK - rows;
        memset(fo_kernel_attention_at(attention, x, rows * s->head_dim), 0,
               (size_t)(behind * s->head_dim) * fo_dtype_size(s->dtype));
        return;
    }
    for (int64_t i = 0; i * BLOCK < rows; i++) {
        int64_t left = rows - i * BLOCK < BLOCK ? rows - i * BLOCK : BLOCK;
        const void *block = fo_kernel_attention_block(x, i, attention->block_bytes);
        vec->pack_rows(block, s->dtype, left, s->head_dim, attention->rows.panel,
                       fo_kernel_attention_block(to_rows, i, attention->block_row_bytes));
        vec->pack_columns(block, s->dtype, left, s->head_dim, attention->columns.k_padded,
                          fo_kernel_attention_block(to_columns, i, attention->block_col_bytes));
    }
}

/* q, dout and D of the queries of all heads. */
static void gather(const fo_attention *attention, fo_kernel_attention_worker *w,
                   const fo_attention_args *args, const fo_run *piece)
{
    const fo_attention_desc *s = &attention->desc;
    const fo_kernel_vec *vec = fo_kernel_vec_at(0);
    int64_t width = (int64_t)s->heads * s->head_dim, step = attention->step;
    int64_t at = piece->row * width + w->head * s->head_dim;
    vec->gather(fo_kernel_attention_at(attention, args->qkv, at + 2 * piece->row * width), s->dtype,
                piece->rows, w->heads, s->head_dim, 3 * width, w->q, step);
    vec->gather(fo_kernel_attention_at(attention, args->dout, at), s->dtype, piece->rows, w->heads,
                s->head_dim, width, w->dout, step);
    vec->dot_rows(w->dout, step, fo_kernel_attention_at(attention, args->out, at), s->dtype,
                  piece->rows, w->heads, s->head_dim, width, w->total, QUERIES);
}

/* Head w->head + h: both forms of q and dout, lse; zeros behind the piece. */
static void begin(const fo_attention *attention, fo_kernel_attention_worker *w,
                  const fo_attention_args *args, const fo_run *piece, int64_t h, queries *of)
{
    const fo_attention_desc *s = &attention->desc;
    int64_t step = attention->step, rows = piece->rows;
    const float *lse = args->lse + (piece->sequence * s->heads + w->head + h) * s->context;
    *of = (queries){.piece = piece,
                    .head = w->head + h,
                    .padded = (rows + BLOCK - 1) / BLOCK * BLOCK,
                    .total = w->total + h * QUERIES,
                    .dq = w->rows + h * step,
                    .drop = fo_kernel_attention_drop_of(attention, args->dropout_key,
                                                        piece->sequence, w->head + h)};
    forms(attention, fo_kernel_attention_at(attention, w->q, h * step), rows, w->q_rows,
          w->q_columns, &of->q_rows, &of->q_columns);
    forms(attention, fo_kernel_attention_at(attention, w->dout, h * step), rows, w->dout_rows,
          w->dout_columns, &of->dout_rows, &of->dout_columns);
    for (int64_t t = 0; t < rows; t++)
        w->lse[t] = lse[piece->position + t] * per_ln2;
    for (int64_t t = rows; t < of->padded; t++) {
        w->lse[t] = INFINITY;
        of->total[t] = 0.0f;
    }
}

/* Block j of keys, with the queries from the block that holds its first key on. */
static fo_status block(const fo_attention *attention, fo_kernel_attention_worker *w,
                       const queries *of, int64_t j)
{
    const fo_attention_desc *s = &attention->desc;
    const fo_kernel_attention_kept *kept = &attention->backward;
    const fo_kernel_attention_sums *sums = attention->sums[of->piece->sequence];
    int64_t first = (j * BLOCK - of->piece->position) / BLOCK; /* block of queries */
    first = first > 0 ? first : 0;
    int64_t skipped = first * BLOCK, count = of->padded - skipped;
    int64_t at = of->head * attention->blocks + j;
    const fo_kernel_attention_backward *product = &w->backward[count / BLOCK - 1];
    size_t row_bytes = attention->block_row_bytes, col_bytes = attention->block_col_bytes;
    const void *k = fo_kernel_attention_block(kept->k, at, attention->block_bytes);
    const void *v = fo_kernel_attention_block(kept->v, at, attention->block_bytes);
    const void *k_rows =
        attention->packed ? fo_kernel_attention_block(kept->k_rows, at, row_bytes) : k;
    const void *q_rows = fo_kernel_attention_block(of->q_rows, first, row_bytes);
    const void *q_columns = fo_kernel_attention_block(of->q_columns, first, col_bytes);
    const void *dout_rows = fo_kernel_attention_block(of->dout_rows, first, row_bytes);
    const void *dout_columns = fo_kernel_attention_block(of->dout_columns, first, col_bytes);
    float *dk = sums->dk + at * BLOCK * s->head_dim, *dv = sums->dv + at * BLOCK * s->head_dim;
    bool more = j < sums->blocks; /* of dq: block 0 meets all queries */
    fo_status status = fo_kernel_matmul_run(product->scores, k, q_columns, w->scores);
    if (status == FO_OK)
        status = fo_kernel_matmul_run(product->scores, v, dout_columns, w->dp);
    if (status != FO_OK)
        return status;
    fo_kernel_vec_at(0)->attention_softmax_grad(w->scores, w->dp, j * BLOCK, BLOCK,
                                                of->piece->position + skipped, count,
                                                attention->scale, &of->drop, w->lse + skipped,
                                                of->total + skipped, w->p, w->ds, s->dtype);
    status = fo_kernel_attention_add(&product->keys, more, w->p, dout_rows, dv);
    if (status == FO_OK)
        status = fo_kernel_attention_add(&product->keys, more, w->ds, q_rows, dk);
    if (status == FO_OK)
        status = fo_kernel_attention_add(&product->dq, j > 0, w->ds, k_rows,
                                         of->dq + skipped * s->head_dim);
    return status;
}

/* Float32 rows of the heads, `step` apart, into part 0 (q), 1 (k) or 2 (v) of dqkv. */
static void scatter(const fo_attention *attention, const fo_kernel_attention_worker *w,
                    const float *x, int64_t step, void *dqkv, int64_t row, int64_t rows, int part)
{
    const fo_attention_desc *s = &attention->desc;
    int64_t width = (int64_t)s->heads * s->head_dim;
    int64_t at = (row * 3 + part) * width + w->head * s->head_dim;
    fo_kernel_vec_at(0)->scatter(x, step, NULL, 0, fo_kernel_attention_at(attention, dqkv, at),
                                 s->dtype, rows, w->heads, s->head_dim, 3 * width);
}

/* The sums of the heads of a sequence whose last query has come. */
static void write_sums(const fo_attention *attention, const fo_kernel_attention_worker *w,
                       void *dqkv, int64_t sequence)
{
    const fo_kernel_attention_sums *sums = attention->sums[sequence];
    int64_t step = attention->blocks * BLOCK * attention->desc.head_dim;
    for (int64_t i = 0; i < attention->runs.count; i++) {
        const fo_run *run = &attention->runs.run[i];
        if (run->sequence != sequence)
            continue;
        int64_t at = w->head * step + run->position * attention->desc.head_dim;
        scatter(attention, w, sums->dk + at, step, dqkv, run->row, run->rows, 1);
        scatter(attention, w, sums->dv + at, step, dqkv, run->row, run->rows, 2);
    }
}

fo_status fo_kernel_attention_backward_piece(const fo_attention *attention,
                                             fo_kernel_attention_worker *w,
                                             const fo_attention_args *args, const fo_run *piece)
{
    if (!w->from) {
        keep(attention, w, args->qkv, piece);
        gather(attention, w, args, piece);
    }
    for (int64_t h = w->from; h < w->to; h++) {
        queries of;
        begin(attention, w, args, piece, h, &of);
        for (int64_t j = 0; j < fo_kernel_attention_key_blocks(piece); j++) {
            fo_status status = block(attention, w, &of, j);
            if (status != FO_OK)
                return status;
            fo_kernel_progress();
        }
    }
    if (w->to < w->heads)
        return FO_OK;
    scatter(attention, w, w->rows, attention->step, args->dqkv, piece->row, piece->rows, 0);
    if (attention->seen[piece->sequence] == attention->desc.context)
        write_sums(attention, w, args->dqkv, piece->sequence);
    return FO_OK;
}
