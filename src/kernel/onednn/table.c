/* The oneDNN backend as a table: products by oneDNN, everything else vectorised here. */
#include "kernel/backends.h"
#include "flashoverlap/plan.h"
#include "kernel/onednn/onednn.h"

#include <pthread.h>
#include <stdlib.h>

static fo_kernel table;
static pthread_once_t once = PTHREAD_ONCE_INIT;

void *fo_kernel_onednn_alloc(size_t bytes)
{
    return aligned_alloc(64, (bytes / 64 + 1) * 64);
}

/* bf16 is emulated where oneDNN lacks it: slow, but right. */
static bool supports(fo_dtype dtype)
{
    return dtype == FO_F32 || dtype == FO_BF16;
}

static void fill(void)
{
    const fo_kernel_vec *vec = fo_kernel_vec_at(0);
    table.name = "onednn";
    table.about = "oneDNN matrix products, vectorised row and element functions";
    table.isa = fo_kernel_matmul_isa;
    table.supports = supports;
    table.tile_rows = FO_TILE_ROWS;
    table.wgrad_rows = FO_WGRAD_ROWS;
    table.epilogue = vec->epilogue;
    table.convert = vec->convert;
    table.add = vec->add;
    table.column_sum = vec->column_sum;
    table.layernorm_forward = vec->layernorm_forward;
    table.layernorm_backward = vec->layernorm_backward;
    table.dropout = vec->dropout;
    table.xent_stats = vec->xent_stats;
    table.xent_grad = vec->xent_grad;
    table.sum_squares = vec->sum_squares;
    table.adamw = vec->adamw;
    fo_kernel_onednn_gemm_fill(&table);
    fo_kernel_onednn_wgrad_fill(&table);
    fo_kernel_onednn_attention_fill(&table);
}

const fo_kernel *fo_kernel_onednn_table(void)
{
    pthread_once(&once, fill);
    return &table;
}
