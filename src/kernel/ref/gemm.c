/* Reference matrix products. */
#include "kernel/ref/ref.h"

#include <stdlib.h>

#include "base/error.h"
#include "flashoverlap/plan.h"
#include "kernel/progress.h"

struct fo_gemm {
    fo_gemm_desc desc;
};

struct fo_wgrad {
    fo_wgrad_desc desc;
};

static fo_status gemm_create(const fo_gemm_desc *desc, fo_gemm **out)
{
    *out = NULL;
    if (desc->k < 0 || desc->n < 0)
        return fo_base_error(FO_INVALID, "gemm of k = %lld, n = %lld, expected 0 or more",
                             (long long)desc->k, (long long)desc->n);
    fo_gemm *gemm = malloc(sizeof *gemm);
    if (!gemm)
        return fo_base_error(FO_NO_MEMORY, "no memory for a gemm");
    gemm->desc = *desc;
    *out = gemm;
    return FO_OK;
}

static void gemm_destroy(fo_gemm *gemm)
{
    free(gemm);
}

static size_t gemm_packed_bytes(const fo_gemm *gemm)
{
    return (size_t)(gemm->desc.k * gemm->desc.n) * fo_dtype_size(gemm->desc.dtype);
}

/* Packed: [k, n] in T. */
static fo_status gemm_pack(fo_gemm *gemm, const float *b, void *packed)
{
    int64_t k = gemm->desc.k, n = gemm->desc.n;
    for (int64_t i = 0; i < k; i++) {
        for (int64_t j = 0; j < n; j++)
            fo_kernel_ref_store(packed, gemm->desc.dtype, i * n + j,
                                gemm->desc.transposed ? b[j * k + i] : b[i * n + j]);
        fo_kernel_progress();
    }
    return FO_OK;
}

static fo_status gemm_tile(fo_gemm *gemm, const void *packed, const void *a, int64_t rows, float *c)
{
    int64_t k = gemm->desc.k, n = gemm->desc.n;
    fo_dtype dtype = gemm->desc.dtype;
    if (rows < 0 || rows > FO_TILE_ROWS)
        return fo_base_error(FO_INVALID, "gemm tile of %lld rows, expected 0 to %d",
                             (long long)rows, FO_TILE_ROWS);
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t j = 0; j < n; j++)
            c[row * n + j] = 0.0f;
        for (int64_t i = 0; i < k; i++) {
            float factor = fo_kernel_ref_load(a, dtype, row * k + i);
            for (int64_t j = 0; j < n; j++)
                c[row * n + j] += factor * fo_kernel_ref_load(packed, dtype, i * n + j);
        }
        fo_kernel_progress();
    }
    return FO_OK;
}

static fo_status wgrad_create(const fo_wgrad_desc *desc, fo_wgrad **out)
{
    *out = NULL;
    if (desc->out < 0 || desc->in < 0)
        return fo_base_error(FO_INVALID, "wgrad of out = %lld, in = %lld, expected 0 or more",
                             (long long)desc->out, (long long)desc->in);
    fo_wgrad *wgrad = malloc(sizeof *wgrad);
    if (!wgrad)
        return fo_base_error(FO_NO_MEMORY, "no memory for a wgrad");
    wgrad->desc = *desc;
    *out = wgrad;
    return FO_OK;
}

static void wgrad_destroy(fo_wgrad *wgrad)
{
    free(wgrad);
}

static fo_status wgrad_block(fo_wgrad *wgrad, const void *dy, const void *x, int64_t rows,
                             float *dw)
{
    int64_t out = wgrad->desc.out, in = wgrad->desc.in;
    fo_dtype dtype = wgrad->desc.dtype;
    if (rows < 0 || rows > FO_WGRAD_ROWS)
        return fo_base_error(FO_INVALID, "wgrad block of %lld rows, expected 0 to %d",
                             (long long)rows, FO_WGRAD_ROWS);
    for (int64_t o = 0; o < out; o++) {
        for (int64_t row = 0; row < rows; row++) {
            float factor = fo_kernel_ref_load(dy, dtype, row * out + o);
            for (int64_t i = 0; i < in; i++)
                dw[o * in + i] += factor * fo_kernel_ref_load(x, dtype, row * in + i);
        }
        fo_kernel_progress();
    }
    return FO_OK;
}

void fo_kernel_ref_gemm_fill(fo_kernel *table)
{
    table->gemm_create = gemm_create;
    table->gemm_destroy = gemm_destroy;
    table->gemm_packed_bytes = gemm_packed_bytes;
    table->gemm_pack = gemm_pack;
    table->gemm_tile = gemm_tile;
    table->wgrad_create = wgrad_create;
    table->wgrad_destroy = wgrad_destroy;
    table->wgrad_block = wgrad_block;
}
