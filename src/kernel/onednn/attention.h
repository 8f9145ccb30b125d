/* What the files of attention share. A call is cut into pieces, consecutive positions of one sequence;
 * every worker works on some heads of a piece, independently of the others.
 *
 * The right-hand matrices of the products are made of blocks of 64 rows, in one of two forms: as the rows
 * of the product's matrix or as its columns. Where oneDNN's own layouts allow it they are packed once and
 * used many times; otherwise both forms are the dense rows, and oneDNN packs them in every product. */
#ifndef FO_KERNEL_ONEDNN_ATTENTION_H
#define FO_KERNEL_ONEDNN_ATTENTION_H

#include "kernel/onednn/onednn.h"
#include "kernel/runs.h"

enum {
    FO_ATTENTION_BLOCK = 64, /* positions of a block */
    FO_ATTENTION_CHUNK = 8,  /* forward: blocks of keys a product has at most */
    FO_ATTENTION_GROUP = 4   /* backward: blocks of queries a piece has at most */
};

/* Two products of one shape: c = and c +=. */
typedef struct fo_kernel_attention_sum {
    fo_kernel_matmul *first, *more;
} fo_kernel_attention_sum;

/* Forward: over `count` blocks of keys. */
typedef struct fo_kernel_attention_forward {
    fo_kernel_matmul *scores;       /* [64, d] . [64 count, d]^T */
    fo_kernel_attention_sum values; /* [64, 64 count] . [64 count, d] */
} fo_kernel_attention_forward;

/* Backward: over `count` blocks of queries. */
typedef struct fo_kernel_attention_backward {
    fo_kernel_matmul *scores;     /* [64, d] . [64 count, d]^T */
    fo_kernel_attention_sum keys; /* [64, 64 count] . [64 count, d] */
    fo_kernel_attention_sum dq;   /* [64, 64 count]^T . [64, d] */
} fo_kernel_attention_backward;

/* What one thread works with, on heads [head, head + heads). */
typedef struct fo_kernel_attention_worker {
    int64_t head, heads;
    fo_kernel_attention_forward forward[FO_ATTENTION_CHUNK];   /* [i]: i + 1 blocks */
    fo_kernel_attention_backward backward[FO_ATTENTION_GROUP]; /* [i]: i + 1 blocks */
    /* Of all its heads: [heads, 64 GROUP, d] */
    void *q, *dout; /* T */
    float *rows;    /* out or dq */
    float *total;   /* [heads, 64 GROUP]: sums of probabilities, or of out times dout */
    /* Of one head. */
    void *q_rows, *q_columns, *dout_rows, *dout_columns; /* blocks of 64 GROUP queries */
    float *scores, *dp;                                  /* [64, 64 CHUNK], [64, 64 GROUP] */
    void *p, *ds;                                        /* the same in T */
    float lse[FO_ATTENTION_BLOCK * FO_ATTENTION_GROUP];  /* backward: lse / ln 2 */
    int64_t from, to;                                    /* of its heads, those of this round */
    fo_status status;
} fo_kernel_attention_worker;

/* Gradients of the keys and values of a sequence, [heads, padded, d]. */
typedef struct fo_kernel_attention_sums {
    float *dk, *dv;
    int64_t blocks; /* that hold sums; those behind them are yet to be written */
    struct fo_kernel_attention_sums *next;
} fo_kernel_attention_sums;

/* Blocks of keys and values of the sequence that is worked on, of all heads: [heads, blocks]. */
typedef struct fo_kernel_attention_kept {
    int64_t sequence, blocks; /* whose, and how many from its first on; -1: none */
    void *k_columns, *v_rows; /* forward */
    void *k, *v;              /* backward: dense */
    void *k_rows;             /* when packed */
} fo_kernel_attention_kept;

struct fo_attention {
    fo_attention_desc desc;
    fo_kernel_runs runs;
    int64_t blocks; /* of a sequence */
    float scale;
    int64_t step;                   /* elements between the heads of a worker's rows */
    bool packed;                    /* rows and columns of blocks */
    fo_kernel_panels columns, rows; /* if so */
    size_t block_bytes, block_row_bytes, block_col_bytes; /* of a block: dense and in either form */
    int workers;
    fo_kernel_attention_worker *worker;
    fo_kernel_attention_kept forward, backward;
    fo_kernel_attention_sums **sums; /* [batch]; NULL: no query has come, or all have */
    fo_kernel_attention_sums *idle;
    int64_t *seen; /* [batch]: queries whose gradient has come */
};

/* Makes what the workers need, frees it (attention_make.c). */
fo_status fo_kernel_attention_workers_make(fo_attention *attention, int workers);
void fo_kernel_attention_workers_free(fo_attention *attention);

/* A worker's heads [from, to) of a piece, whose rounds come one after the other. Forward: a piece inside a block; backward: of at most GROUP blocks. */
fo_status fo_kernel_attention_forward_piece(const fo_attention *attention,
                                            fo_kernel_attention_worker *w,
                                            const fo_attention_args *args, const fo_run *piece);
fo_status fo_kernel_attention_backward_piece(const fo_attention *attention,
                                             fo_kernel_attention_worker *w,
                                             const fo_attention_args *args, const fo_run *piece);

/* c = or c += a . b */
fo_status fo_kernel_attention_add(const fo_kernel_attention_sum *product, bool more, const void *a,
                                  const void *b, float *c);
/* Blocks of keys that the queries of a piece meet. */
int64_t fo_kernel_attention_key_blocks(const fo_run *piece);
/* The same of what is kept already, of the piece's sequence. */
int64_t fo_kernel_attention_kept_blocks(const fo_kernel_attention_kept *kept, const fo_run *piece);
/* Part 0 (q), 1 (k) or 2 (v) of block j of a sequence: dense rows of each of the worker's heads, `step`
 * elements apart; zeros behind the context. */
void fo_kernel_attention_gather_block(const fo_attention *attention,
                                      const fo_kernel_attention_worker *w, const void *qkv,
                                      int64_t sequence, int64_t j, int part, void *to,
                                      int64_t step);
fo_kernel_attention_drop fo_kernel_attention_drop_of(const fo_attention *attention, uint64_t key,
                                                     int64_t sequence, int64_t h);

/* Element of matrix T of the case. */
static inline void *fo_kernel_attention_at(const fo_attention *attention, const void *matrix,
                                           int64_t element)
{
    return (char *)(uintptr_t)matrix + (size_t)element * fo_dtype_size(attention->desc.dtype);
}

/* Block i of blocks of `bytes`. */
static inline void *fo_kernel_attention_block(const void *blocks, int64_t i, size_t bytes)
{
    return (char *)(uintptr_t)blocks + (size_t)i * bytes;
}

#endif
