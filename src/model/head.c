/* The output head. Where the embedding table travels (by_table) every rank has all of it and takes the logits
 * of its own rows: as many products, nothing to communicate. Otherwise every rank takes its vocabulary
 * entries of all rows. */
#include <string.h>

#include "base/error.h"
#include "flashoverlap/trace.h"
#include "model/state.h"

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static bool pack_memory(fo_model *m, const fo_gemm *gemm, void **packed)
{
    *packed = fo_model_memory_take(m, m->kernel->gemm_packed_bytes(gemm), false);
    return *packed;
}

fo_status fo_model_head_create(fo_model *m)
{
    int64_t dim = m->config.dim, vocabulary = m->config.vocabulary;
    if (!m->by_table)
        return FO_OK;
    fo_gemm_desc forward = {.k = dim,
                            .n = vocabulary,
                            .dtype = m->config.dtype,
                            .transposed = true};
    fo_gemm_desc dgrad = {.k = vocabulary, .n = dim, .dtype = m->config.dtype};
    fo_wgrad_desc wgrad = {.out = vocabulary, .in = dim, .dtype = m->config.dtype};
    fo_status status = m->kernel->gemm_create(&forward, &m->head);
    if (status == FO_OK)
        status = m->kernel->gemm_create(&dgrad, &m->head_dgrad);
    if (status == FO_OK)
        status = m->kernel->wgrad_create(&wgrad, &m->head_wgrad);
    if (status == FO_OK && (!pack_memory(m, m->head, &m->head_packed) ||
                            !pack_memory(m, m->head_dgrad, &m->head_dgrad_packed)))
        status = FO_NO_MEMORY;
    return status;
}

void fo_model_head_destroy(fo_model *m)
{
    if (m->head)
        m->kernel->gemm_destroy(m->head);
    if (m->head_dgrad)
        m->kernel->gemm_destroy(m->head_dgrad);
    if (m->head_wgrad)
        m->kernel->wgrad_destroy(m->head_wgrad);
}

static const char *values_at(const fo_model *m, const void *matrix, int64_t row, int64_t width)
{
    return (const char *)matrix + (size_t)(row * width) * fo_dtype_size(m->config.dtype);
}

fo_status fo_model_head_rows(fo_model *m, int64_t row, int64_t rows, float *logits)
{
    int64_t end = row + rows, vocabulary = m->config.vocabulary;
    fo_status status = FO_OK;
    if (m->head_version != m->version) {
        status = m->kernel->gemm_pack(m->head, m->table, m->head_packed);
        if (status == FO_OK)
            status = m->kernel->gemm_pack(m->head_dgrad, m->table, m->head_dgrad_packed);
        m->head_version = status == FO_OK ? m->version : 0;
    }
    for (int64_t tile; status == FO_OK && row < end; row += tile, logits += tile * vocabulary) {
        tile = min64(m->kernel->tile_rows, end - row);
        status = m->kernel->gemm_tile(m->head, m->head_packed,
                                      values_at(m, m->ln_f.y, row, m->config.dim), tile, logits);
    }
    return status;
}

fo_status fo_model_head_forward(fo_model *m)
{
    if (!m->by_table) {
        fo_plan_args args = {.x = m->ln_f.y,
                             .w = fo_model_params_embedding(m, FO_MODEL_WTE)->value,
                             .y = m->logits,
                             .w_version = m->version};
        return fo_plan_execute(m->plans[FO_MODEL_PLAN_HEAD], &args);
    }
    int64_t begin = fo_trace_clock();
    fo_status status = fo_model_head_rows(m, 0, m->shard_rows, m->logits);
    fo_trace_local(m->group, "head", begin);
    return status;
}

/* From dlogits of the own rows to dbranch, and to the own part of the table's gradient. */
static fo_status backward_rows(fo_model *m)
{
    int64_t dim = m->config.dim, vocabulary = m->config.vocabulary;
    fo_status status = FO_OK;
    for (int64_t row = 0, rows; status == FO_OK && row < m->shard_rows; row += rows) {
        rows = min64(m->kernel->tile_rows, m->shard_rows - row);
        status = m->kernel->gemm_tile(m->head_dgrad, m->head_dgrad_packed,
                                      values_at(m, m->dlogits, row, vocabulary), rows,
                                      m->dbranch + row * dim);
    }
    for (int64_t row = 0, rows; status == FO_OK && row < m->shard_rows; row += rows) {
        rows = min64(m->kernel->wgrad_rows, m->shard_rows - row);
        status = m->kernel->wgrad_block(m->head_wgrad, values_at(m, m->dlogits, row, vocabulary),
                                        values_at(m, m->ln_f.y, row, dim), rows, m->table_grad);
    }
    return status;
}

fo_status fo_model_head_backward(fo_model *m)
{
    fo_parameter *wte = fo_model_params_embedding(m, FO_MODEL_WTE);
    if (!m->by_table) {
        fo_plan_args args = {.x = m->ln_f.y,
                             .w = wte->value,
                             .dy = m->dlogits,
                             .dx = m->dbranch,
                             .dw = wte->grad,
                             .w_version = m->version};
        return fo_plan_execute(m->plans[FO_MODEL_PLAN_HEAD_BACKWARD], &args);
    }
    int64_t begin = fo_trace_clock();
    fo_status status = backward_rows(m);
    fo_trace_local(m->group, "head backward", begin);
    return status;
}
