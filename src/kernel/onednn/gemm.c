/* GEMM tiles. A tile of fewer than 64 rows runs on a product of its height rounded up, so that a row's
 * value comes from the same instructions whatever tile it is in. */
#include "kernel/onednn/onednn.h"
#include "kernel/onednn/parts.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum { STEP = 16, HEIGHTS = FO_TILE_ROWS / STEP };

struct fo_gemm {
    fo_gemm_desc desc;
    fo_kernel_matmul *of_height[HEIGHTS]; /* [i]: (i + 1) * STEP rows; NULL: take a higher one */
    fo_kernel_parts parts[HEIGHTS];       /* the same by columns, from the same packed matrix */
    void *a;                              /* [FO_TILE_ROWS, k]: a padded tile */
    float *c;                             /* [FO_TILE_ROWS, n] */
};

static bool empty(const fo_gemm *gemm)
{
    return gemm->desc.k == 0 || gemm->desc.n == 0;
}

static void gemm_destroy(fo_gemm *gemm)
{
    if (!gemm)
        return;
    for (int i = 0; i < HEIGHTS; i++) {
        fo_kernel_parts_free(&gemm->parts[i]);
        fo_kernel_matmul_destroy(gemm->of_height[i]);
    }
    free(gemm->a);
    free(gemm->c);
    free(gemm);
}

/* The full height first; lower ones only where they are known to give the same bits. */
static fo_status create_products(fo_gemm *gemm)
{
    fo_kernel_matmul_desc product = {.n = gemm->desc.n,
                                     .k = gemm->desc.k,
                                     .dtype = gemm->desc.dtype,
                                     .b_transposed = gemm->desc.transposed,
                                     .b_packed = true,
                                     .threads = fo_kernel_threads()};
    for (int i = HEIGHTS - 1; i >= 0; i--) {
        product.m = (i + 1) * STEP;
        fo_status status = fo_kernel_matmul_create(&product, &gemm->of_height[i]);
        if (status != FO_OK)
            return status;
        fo_kernel_matmul *full = gemm->of_height[HEIGHTS - 1], *made = gemm->of_height[i];
        if (i == HEIGHTS - 1 && !fo_kernel_matmul_row_independent(full))
            return FO_OK;
        if (i < HEIGHTS - 1 && (!fo_kernel_matmul_row_independent(made) ||
                                !fo_kernel_matmul_same_packing(full, made))) {
            fo_kernel_matmul_destroy(made);
            gemm->of_height[i] = NULL;
            continue;
        }
        status = fo_kernel_parts_make(&product, made, &gemm->parts[i]);
        if (status != FO_OK)
            return status;
    }
    return FO_OK;
}

static fo_status gemm_create(const fo_gemm_desc *desc, fo_gemm **out)
{
    *out = NULL;
    if (desc->k < 0 || desc->n < 0)
        return fo_base_error(FO_INVALID, "gemm of k = %lld, n = %lld, expected 0 or more",
                             (long long)desc->k, (long long)desc->n);
    fo_gemm *gemm = calloc(1, sizeof *gemm);
    if (!gemm)
        return fo_base_error(FO_NO_MEMORY, "no memory for a gemm");
    gemm->desc = *desc;
    size_t a_bytes = FO_TILE_ROWS * (size_t)desc->k * fo_dtype_size(desc->dtype);
    size_t c_bytes = FO_TILE_ROWS * (size_t)desc->n * sizeof(float);
    gemm->a = fo_kernel_onednn_alloc(a_bytes);
    gemm->c = fo_kernel_onednn_alloc(c_bytes);
    fo_status status = FO_OK;
    if (!gemm->a || !gemm->c)
        status = fo_base_error(FO_NO_MEMORY, "no memory for tiles of a gemm of k = %lld, n = %lld",
                               (long long)desc->k, (long long)desc->n);
    else if (!empty(gemm))
        status = create_products(gemm);
    if (status != FO_OK) {
        gemm_destroy(gemm);
        return status;
    }
    memset(gemm->a, 0, a_bytes);
    *out = gemm;
    return FO_OK;
}

static size_t gemm_packed_bytes(const fo_gemm *gemm)
{
    return empty(gemm) ? 0 : fo_kernel_matmul_packed_bytes(gemm->of_height[HEIGHTS - 1]);
}

static fo_status gemm_pack(fo_gemm *gemm, const float *b, void *packed)
{
    if (empty(gemm))
        return FO_OK;
    return fo_kernel_matmul_pack(gemm->of_height[HEIGHTS - 1], b, packed);
}

static fo_status run(fo_gemm *gemm, int i, const void *a, const void *packed, float *c)
{
    if (fo_kernel_parts_wanted(&gemm->parts[i]))
        return fo_kernel_parts_run(&gemm->parts[i], a, packed, c);
    return fo_kernel_matmul_run(gemm->of_height[i], a, packed, c);
}

static fo_status gemm_tile(fo_gemm *gemm, const void *packed, const void *a, int64_t rows, float *c)
{
    if (rows < 0 || rows > FO_TILE_ROWS)
        return fo_base_error(FO_INVALID, "gemm tile of %lld rows, expected 0 to %d",
                             (long long)rows, FO_TILE_ROWS);
    size_t c_bytes = (size_t)(rows * gemm->desc.n) * sizeof(float);
    if (rows == 0 || gemm->desc.n == 0)
        return FO_OK;
    if (gemm->desc.k == 0) {
        memset(c, 0, c_bytes);
        return FO_OK;
    }
    int i = (int)((rows - 1) / STEP);
    while (!gemm->of_height[i])
        i++;
    if (rows == (i + 1) * STEP)
        return run(gemm, i, a, packed, c);
    /* Rows past the end hold what earlier tiles left there: they change no other row. */
    memcpy(gemm->a, a, (size_t)(rows * gemm->desc.k) * fo_dtype_size(gemm->desc.dtype));
    fo_status status = run(gemm, i, gemm->a, packed, gemm->c);
    memcpy(c, gemm->c, c_bytes);
    return status;
}

void fo_kernel_onednn_gemm_fill(fo_kernel *table)
{
    table->gemm_create = gemm_create;
    table->gemm_destroy = gemm_destroy;
    table->gemm_packed_bytes = gemm_packed_bytes;
    table->gemm_pack = gemm_pack;
    table->gemm_tile = gemm_tile;
}
