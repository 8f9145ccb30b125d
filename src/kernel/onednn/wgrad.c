/* Weight gradients: dw[out, in] += dy^T . x, block by block. A block's rows are the inner dimension; a
 * short block is padded with rows of zeros, which add nothing, to one of a few heights. */
#include "kernel/onednn/onednn.h"
#include "kernel/onednn/parts.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "flashoverlap/plan.h"

enum { STEP = 64, HEIGHTS = FO_WGRAD_ROWS / STEP };

struct fo_wgrad {
    fo_wgrad_desc desc;
    fo_kernel_matmul *of_height[HEIGHTS]; /* [i]: (i + 1) * STEP rows */
    fo_kernel_parts parts[HEIGHTS];       /* the same in parts of dw */
    void *dy, *x;                         /* [FO_WGRAD_ROWS, out], [FO_WGRAD_ROWS, in]: padded */
};

static bool empty(const fo_wgrad *wgrad)
{
    return wgrad->desc.out == 0 || wgrad->desc.in == 0;
}

static void wgrad_destroy(fo_wgrad *wgrad)
{
    if (!wgrad)
        return;
    for (int i = 0; i < HEIGHTS; i++) {
        fo_kernel_parts_free(&wgrad->parts[i]);
        fo_kernel_matmul_destroy(wgrad->of_height[i]);
    }
    free(wgrad->dy);
    free(wgrad->x);
    free(wgrad);
}

static fo_status wgrad_create(const fo_wgrad_desc *desc, fo_wgrad **out)
{
    *out = NULL;
    if (desc->out < 0 || desc->in < 0)
        return fo_base_error(FO_INVALID, "wgrad of out = %lld, in = %lld, expected 0 or more",
                             (long long)desc->out, (long long)desc->in);
    fo_wgrad *wgrad = calloc(1, sizeof *wgrad);
    if (!wgrad)
        return fo_base_error(FO_NO_MEMORY, "no memory for a wgrad");
    wgrad->desc = *desc;
    size_t row = FO_WGRAD_ROWS * fo_dtype_size(desc->dtype);
    wgrad->dy = fo_kernel_onednn_alloc(row * (size_t)desc->out);
    wgrad->x = fo_kernel_onednn_alloc(row * (size_t)desc->in);
    fo_status status = FO_OK;
    if (!wgrad->dy || !wgrad->x)
        status = fo_base_error(FO_NO_MEMORY, "no memory for blocks of a wgrad of %lld by %lld",
                               (long long)desc->out, (long long)desc->in);
    for (int i = 0; i < HEIGHTS && status == FO_OK && !empty(wgrad); i++) {
        fo_kernel_matmul_desc product = {.m = desc->out,
                                         .n = desc->in,
                                         .k = (i + 1) * STEP,
                                         .dtype = desc->dtype,
                                         .a_transposed = true,
                                         .accumulate = true,
                                         .threads = fo_kernel_threads()};
        status = fo_kernel_matmul_create(&product, &wgrad->of_height[i]);
        if (status == FO_OK)
            status = fo_kernel_parts_make(&product, wgrad->of_height[i], &wgrad->parts[i]);
    }
    if (status != FO_OK) {
        wgrad_destroy(wgrad);
        return status;
    }
    *out = wgrad;
    return FO_OK;
}

static void pad(void *to, const void *from, int64_t rows, int64_t height, int64_t n, fo_dtype dtype)
{
    size_t row = (size_t)n * fo_dtype_size(dtype);
    memcpy(to, from, (size_t)rows * row);
    memset((char *)to + (size_t)rows * row, 0, (size_t)(height - rows) * row);
}

static fo_status wgrad_block(fo_wgrad *wgrad, const void *dy, const void *x, int64_t rows,
                             float *dw)
{
    const fo_wgrad_desc *d = &wgrad->desc;
    if (rows < 0 || rows > FO_WGRAD_ROWS)
        return fo_base_error(FO_INVALID, "wgrad block of %lld rows, expected 0 to %d",
                             (long long)rows, FO_WGRAD_ROWS);
    if (rows == 0 || empty(wgrad))
        return FO_OK;
    int i = (int)((rows - 1) / STEP);
    int64_t height = (i + 1) * STEP;
    if (rows < height) {
        pad(wgrad->dy, dy, rows, height, d->out, d->dtype);
        pad(wgrad->x, x, rows, height, d->in, d->dtype);
        dy = wgrad->dy;
        x = wgrad->x;
    }
    if (fo_kernel_parts_wanted(&wgrad->parts[i]))
        return fo_kernel_parts_run(&wgrad->parts[i], dy, x, dw);
    return fo_kernel_matmul_run(wgrad->of_height[i], dy, x, dw);
}

void fo_kernel_onednn_wgrad_fill(fo_kernel *table)
{
    table->wgrad_create = wgrad_create;
    table->wgrad_destroy = wgrad_destroy;
    table->wgrad_block = wgrad_block;
}
