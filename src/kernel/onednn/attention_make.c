/* The products and the memory of attention's workers. */
#include "kernel/onednn/attention.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum { BLOCK = FO_ATTENTION_BLOCK, CHUNK = FO_ATTENTION_CHUNK, GROUP = FO_ATTENTION_GROUP };

static void sum_free(fo_kernel_attention_sum *sum)
{
    fo_kernel_matmul_destroy(sum->first);
    fo_kernel_matmul_destroy(sum->more);
}

static void products_free(fo_kernel_attention_worker *w)
{
    for (int i = 0; i < CHUNK; i++) {
        fo_kernel_matmul_destroy(w->forward[i].scores);
        sum_free(&w->forward[i].values);
        w->forward[i] = (fo_kernel_attention_forward){0};
    }
    for (int i = 0; i < GROUP; i++) {
        fo_kernel_matmul_destroy(w->backward[i].scores);
        sum_free(&w->backward[i].keys);
        sum_free(&w->backward[i].dq);
        w->backward[i] = (fo_kernel_attention_backward){0};
    }
}

void fo_kernel_attention_workers_free(fo_attention *attention)
{
    for (int i = 0; i < attention->workers; i++) {
        fo_kernel_attention_worker *w = &attention->worker[i];
        products_free(w);
        void *memory[] = {w->q,      w->dout,      w->rows,      w->total,
                          w->q_rows, w->q_columns, w->dout_rows, w->dout_columns,
                          w->scores, w->dp,        w->p,         w->ds};
        for (size_t m = 0; m < sizeof memory / sizeof *memory; m++)
            free(memory[m]);
    }
    free(attention->worker);
}

/* Which form the right-hand matrix has. */
typedef enum form { ROWS, COLUMNS } form;

/* Whether a product's layout of its right-hand matrix is a row of blocks packed one by one, the same for
 * every product of the form. */
static bool layout_fits(fo_attention *attention, const fo_kernel_matmul *product,
                        const fo_kernel_matmul_desc *desc, form which)
{
    const fo_kernel_panels *found = fo_kernel_matmul_panels(product);
    if (!found)
        return false;
    fo_kernel_panels *known = which == ROWS ? &attention->rows : &attention->columns;
    if (!known->panel)
        *known = *found;
    if (found->panel != known->panel)
        return false;
    return which == ROWS ? found->panel >= desc->n && found->k_padded == desc->k
                         : found->panel == BLOCK && found->k_padded == known->k_padded;
}

/* With attention->packed, which is cleared when the layout does not fit. */
static fo_status product_make(fo_attention *attention, fo_kernel_matmul_desc desc, form which,
                              fo_kernel_matmul **product)
{
    desc.dtype = attention->desc.dtype;
    desc.b_transposed = which == COLUMNS;
    desc.b_packed = attention->packed;
    desc.threads = 1;
    fo_status status = fo_kernel_matmul_create(&desc, product);
    if (status == FO_OK && attention->packed && !layout_fits(attention, *product, &desc, which))
        attention->packed = false;
    return status;
}

static fo_status sum_make(fo_attention *attention, fo_kernel_matmul_desc desc,
                          fo_kernel_attention_sum *sum)
{
    fo_status status = product_make(attention, desc, ROWS, &sum->first);
    desc.accumulate = true;
    if (status == FO_OK)
        status = product_make(attention, desc, ROWS, &sum->more);
    return status;
}

static fo_status forward_products(fo_attention *attention, fo_kernel_attention_forward *product,
                                  int64_t keys)
{
    int64_t d = attention->desc.head_dim;
    fo_kernel_matmul_desc scores = {.m = BLOCK, .n = keys, .k = d};
    fo_kernel_matmul_desc values = {.m = BLOCK, .n = d, .k = keys};
    fo_status status = product_make(attention, scores, COLUMNS, &product->scores);
    if (status == FO_OK)
        status = sum_make(attention, values, &product->values);
    return status;
}

static fo_status backward_products(fo_attention *attention, fo_kernel_attention_backward *product,
                                   int64_t queries)
{
    int64_t d = attention->desc.head_dim;
    fo_kernel_matmul_desc scores = {.m = BLOCK, .n = queries, .k = d};
    fo_kernel_matmul_desc keys = {.m = BLOCK, .n = d, .k = queries};
    fo_kernel_matmul_desc dq = {.m = queries, .n = d, .k = BLOCK, .a_transposed = true};
    fo_status status = product_make(attention, scores, COLUMNS, &product->scores);
    if (status == FO_OK)
        status = sum_make(attention, keys, &product->keys);
    if (status == FO_OK)
        status = sum_make(attention, dq, &product->dq);
    return status;
}

static int64_t at_most(int64_t blocks, int64_t most)
{
    return blocks < most ? blocks : most;
}

static fo_status products_make(fo_attention *attention, fo_kernel_attention_worker *w)
{
    fo_status status = FO_OK;
    for (int64_t i = 0; i < at_most(attention->blocks, CHUNK) && status == FO_OK; i++)
        status = forward_products(attention, &w->forward[i], (i + 1) * BLOCK);
    for (int64_t i = 0; i < at_most(attention->blocks, GROUP) && status == FO_OK; i++)
        status = backward_products(attention, &w->backward[i], (i + 1) * BLOCK);
    return status;
}

/* All packed, or none: a head of more columns than a panel has is not a row of blocks. */
static fo_status all_products_make(fo_attention *attention)
{
    attention->packed = true;
    for (int pass = 0; pass < 2; pass++) {
        bool packed = attention->packed;
        fo_status status = FO_OK;
        for (int i = 0; i < attention->workers && status == FO_OK; i++)
            status = products_make(attention, &attention->worker[i]);
        if (status != FO_OK || attention->packed == packed)
            return status;
        for (int i = 0; i < attention->workers; i++)
            products_free(&attention->worker[i]);
    }
    return FO_OK;
}

/* Zeroed: rows that were not asked for are computed with, though nothing comes of them. */
static void *zeroed(size_t bytes)
{
    void *memory = fo_kernel_onednn_alloc(bytes);
    if (memory)
        memset(memory, 0, bytes);
    return memory;
}

static fo_status worker_make(fo_kernel_attention_worker *w, const fo_attention *attention)
{
    size_t size = fo_dtype_size(attention->desc.dtype), heads = (size_t)w->heads;
    size_t chunk = (size_t)at_most(attention->blocks, CHUNK);
    size_t group = (size_t)at_most(attention->blocks, GROUP), rows = group * BLOCK;
    size_t values = heads * (size_t)attention->step;
    w->q = zeroed(values * size);
    w->dout = zeroed(values * size);
    w->rows = zeroed(values * sizeof(float));
    w->total = zeroed(heads * GROUP * BLOCK * sizeof(float));
    size_t packed = attention->packed ? group : 0;
    w->q_rows = zeroed(packed * attention->block_row_bytes);
    w->q_columns = zeroed(packed * attention->block_col_bytes);
    w->dout_rows = zeroed(packed * attention->block_row_bytes);
    w->dout_columns = zeroed(packed * attention->block_col_bytes);
    w->scores = zeroed(BLOCK * chunk * BLOCK * sizeof(float));
    w->dp = zeroed(BLOCK * rows * sizeof(float));
    w->p = zeroed(BLOCK * chunk * BLOCK * size);
    w->ds = zeroed(BLOCK * rows * size);
    if (w->q && w->dout && w->rows && w->total && w->q_rows && w->q_columns && w->dout_rows &&
        w->dout_columns && w->scores && w->dp && w->p && w->ds)
        return FO_OK;
    return fo_base_error(FO_NO_MEMORY, "no memory for a worker of attention with heads of %d",
                         attention->desc.head_dim);
}

static fo_status kept_make(fo_attention *attention)
{
    size_t blocks = (size_t)(attention->blocks * attention->desc.heads);
    fo_kernel_attention_kept *forward = &attention->forward, *backward = &attention->backward;
    forward->k_columns = zeroed(blocks * attention->block_col_bytes);
    forward->v_rows = zeroed(blocks * attention->block_row_bytes);
    backward->k = zeroed(blocks * attention->block_bytes);
    backward->v = zeroed(blocks * attention->block_bytes);
    backward->k_rows = zeroed(attention->packed ? blocks * attention->block_row_bytes : 0);
    if (forward->k_columns && forward->v_rows && backward->k && backward->v && backward->k_rows)
        return FO_OK;
    return fo_base_error(FO_NO_MEMORY, "no memory for keys and values of a context of %lld",
                         (long long)attention->desc.context);
}

fo_status fo_kernel_attention_workers_make(fo_attention *attention, int workers)
{
    size_t size = fo_dtype_size(attention->desc.dtype);
    attention->worker = calloc((size_t)workers + 1, sizeof *attention->worker);
    if (!attention->worker)
        return fo_base_error(FO_NO_MEMORY, "no memory for %d workers of attention", workers);
    attention->workers = workers;
    attention->step = at_most(attention->blocks, GROUP) * BLOCK * attention->desc.head_dim;
    for (int i = 0; i < workers; i++) {
        attention->worker[i].head = fo_shard_begin(attention->desc.heads, workers, i);
        attention->worker[i].heads = fo_shard_rows(attention->desc.heads, workers, i);
    }
    fo_status status = all_products_make(attention);
    attention->block_bytes = (size_t)(BLOCK * attention->desc.head_dim) * size;
    attention->block_row_bytes = attention->block_col_bytes = attention->block_bytes;
    if (attention->packed && workers > 0 && attention->blocks > 0) {
        attention->block_row_bytes = (size_t)(BLOCK * attention->rows.panel) * size;
        attention->block_col_bytes = (size_t)(BLOCK * attention->columns.k_padded) * size;
    }
    for (int i = 0; i < workers && status == FO_OK; i++)
        status = worker_make(&attention->worker[i], attention);
    if (status == FO_OK)
        status = kept_make(attention);
    return status;
}
