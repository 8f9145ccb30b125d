/* The emulated device as a backend: every function costs time and does nothing else. */
#include "kernel/backends.h"
#include "kernel/emulated/emulated.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* Rows of a tile. Every tile is a sleep and a wake-up, 7 to 20 us of processor time. 16 ranks on two cores
 * that execute tiles of 150 us use 137 % of a core for it, of 300 us 65 %, of 600 us 36 %, of 1200 us 20 %;
 * a tile of 1024 rows of a layer of 131072 rows and 40 to 80 ms is one of 300 to 600 us. Larger ones would
 * make messages, which leave by tiles, needlessly coarse. */
enum { TILE_ROWS = 1024 };

struct fo_gemm {
    int64_t k, n;
    fo_dtype dtype;
};

struct fo_wgrad {
    double row_flops;
};

struct fo_attention {
    int64_t all_rows, width;
    int64_t run_count;
    fo_run runs[];
};

static fo_kernel table;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const char *isa(void)
{
    return "none";
}

static bool supports(fo_dtype dtype)
{
    return dtype == FO_F32 || dtype == FO_BF16;
}

/* ---- products ------------------------------------------------------------------------------------ */

static fo_status check_device(void)
{
    if (fo_kernel_device()->flops_per_s > 0)
        return FO_OK;
    return fo_base_error(FO_INVALID,
                         "kernel \"emulated\" was chosen without a device to emulate, expected a "
                         "rate of more than 0 FLOP/s; give one, such as --emulate 271TF");
}

static fo_status check_rows(const char *what, int64_t rows)
{
    if (rows >= 0 && rows <= TILE_ROWS)
        return FO_OK;
    return fo_base_error(FO_INVALID, "%s: a tile of %lld rows, expected 0 to %d", what,
                         (long long)rows, TILE_ROWS);
}

static void spend_product(double flops, int64_t rows)
{
    fo_kernel_emulated_spend(fo_kernel_emulated_product_s(fo_kernel_device(), flops, rows,
                                                          fo_kernel_emulated_slice_rows()));
}

static void spend_bytes(double bytes)
{
    double rate = fo_kernel_device()->bytes_per_s;
    if (rate > 0)
        fo_kernel_emulated_spend(bytes / rate);
}

static fo_status no_memory(const char *what)
{
    return fo_base_error(FO_NO_MEMORY, "no memory for %s", what);
}

static fo_status gemm_create(const fo_gemm_desc *desc, fo_gemm **out)
{
    *out = NULL;
    fo_status status = check_device();
    if (status != FO_OK)
        return status;
    fo_gemm *gemm = malloc(sizeof *gemm);
    if (!gemm)
        return no_memory("a product");
    *gemm = (fo_gemm){.k = desc->k, .n = desc->n, .dtype = desc->dtype};
    *out = gemm;
    return FO_OK;
}

static void gemm_destroy(fo_gemm *gemm)
{
    free(gemm);
}

/* There is no packed matrix. */
static size_t gemm_packed_bytes(const fo_gemm *gemm)
{
    (void)gemm;
    return 0;
}

static fo_status gemm_pack(fo_gemm *gemm, const float *b, void *packed)
{
    (void)b;
    (void)packed;
    spend_bytes((double)gemm->k * (double)gemm->n * (double)(4 + fo_dtype_size(gemm->dtype)));
    return FO_OK;
}

static fo_status gemm_tile(fo_gemm *gemm, const void *packed, const void *a, int64_t rows, float *c)
{
    (void)packed;
    (void)a;
    (void)c;
    fo_status status = check_rows("gemm", rows);
    if (status == FO_OK)
        spend_product(2.0 * (double)rows * (double)gemm->k * (double)gemm->n, rows);
    return status;
}

static fo_status wgrad_create(const fo_wgrad_desc *desc, fo_wgrad **out)
{
    *out = NULL;
    fo_status status = check_device();
    if (status != FO_OK)
        return status;
    fo_wgrad *wgrad = malloc(sizeof *wgrad);
    if (!wgrad)
        return no_memory("a weight gradient");
    wgrad->row_flops = 2.0 * (double)desc->out * (double)desc->in;
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
    (void)dy;
    (void)x;
    (void)dw;
    fo_status status = check_rows("weight gradient", rows);
    if (status == FO_OK)
        spend_product((double)rows * wgrad->row_flops, rows);
    return status;
}

/* ---- attention ----------------------------------------------------------------------------------- */

static fo_status attention_create(const fo_attention_desc *desc, fo_attention **out)
{
    *out = NULL;
    fo_status status = check_device();
    if (status != FO_OK)
        return status;
    int64_t count = desc->runs ? desc->run_count : desc->batch;
    fo_attention *attention = malloc(sizeof *attention + (size_t)count * sizeof(fo_run));
    if (!attention)
        return no_memory("an attention");
    attention->all_rows = desc->batch * desc->context;
    attention->width = (int64_t)desc->heads * desc->head_dim;
    attention->run_count = count;
    for (int64_t i = 0; i < count; i++)
        attention->runs[i] =
            desc->runs ? desc->runs[i]
                       : (fo_run){.row = i * desc->context, .rows = desc->context, .sequence = i};
    *out = attention;
    return FO_OK;
}

static void attention_destroy(fo_attention *attention)
{
    free(attention);
}

static void attention_begin(fo_attention *attention)
{
    (void)attention;
}

/* A query meets position + 1 keys; `products` of 2 * width operations for each of them. */
static fo_status spend_queries(const fo_attention *attention, int64_t row, int64_t rows,
                               double products)
{
    fo_status status = check_rows("attention", rows);
    if (status == FO_OK && (row < 0 || row + rows > attention->all_rows))
        status = fo_base_error(FO_INVALID, "attention: rows %lld to %lld, expected 0 to %lld",
                               (long long)row, (long long)row + (long long)rows,
                               (long long)attention->all_rows);
    if (status == FO_OK)
        spend_product(products * 2.0 * (double)attention->width *
                          fo_kernel_emulated_keys(attention->runs, attention->run_count, row, rows),
                      rows);
    return status;
}

/* Two products: queries with keys, probabilities with values. */
static fo_status attention_queries(fo_attention *attention, const fo_attention_args *args,
                                   int64_t row, int64_t rows)
{
    (void)args;
    return spend_queries(attention, row, rows, 2);
}

/* Five products, hence 2.5 times the forward pass: the scores again, the gradients of probabilities,
 * values, queries and keys. */
static fo_status attention_queries_grad(fo_attention *attention, const fo_attention_args *args,
                                        int64_t row, int64_t rows)
{
    (void)args;
    return spend_queries(attention, row, rows, 5);
}

/* ---- passes over memory -------------------------------------------------------------------------- */

/* Fused into the product: no time. */
static void epilogue(const fo_epilogue *parts, const float *c, int64_t rows, int64_t n)
{
    (void)parts;
    (void)c;
    (void)rows;
    (void)n;
}

static void convert(const void *x, fo_dtype x_dtype, void *y, fo_dtype y_dtype, int64_t n)
{
    (void)x;
    (void)y;
    spend_bytes((double)n * (double)(fo_dtype_size(x_dtype) + fo_dtype_size(y_dtype)));
}

static void add(const void *a, fo_dtype a_dtype, const void *b, fo_dtype b_dtype, void *y,
                fo_dtype y_dtype, int64_t n)
{
    (void)a;
    (void)b;
    (void)y;
    spend_bytes((double)n *
                (double)(fo_dtype_size(a_dtype) + fo_dtype_size(b_dtype) + fo_dtype_size(y_dtype)));
}

static void column_sum(const void *x, fo_dtype dtype, int64_t rows, int64_t n, float *sum)
{
    (void)x;
    (void)sum;
    spend_bytes((double)rows * (double)n * (double)fo_dtype_size(dtype));
}

static void layernorm_forward(const float *x, const float *weight, const float *bias, int64_t rows,
                              int64_t n, void *y, fo_dtype y_dtype, float *mean, float *rstd)
{
    (void)x;
    (void)weight;
    (void)bias;
    (void)y;
    (void)mean;
    (void)rstd;
    spend_bytes((double)rows * (double)n * (double)(4 + fo_dtype_size(y_dtype)));
}

/* dy and x are read, dx is read and written. */
static void layernorm_backward(const float *dy, const float *x, const float *weight,
                               const float *mean, const float *rstd, int64_t rows, int64_t n,
                               float *dx, float *dweight, float *dbias)
{
    (void)dy;
    (void)x;
    (void)weight;
    (void)mean;
    (void)rstd;
    (void)dx;
    (void)dweight;
    (void)dbias;
    spend_bytes((double)rows * (double)n * 16);
}

static void dropout(float *x, int64_t row, int64_t rows, int64_t n, float p, uint64_t key,
                    uint64_t stream)
{
    (void)x;
    (void)row;
    (void)p;
    (void)key;
    (void)stream;
    spend_bytes((double)rows * (double)n * 8);
}

static void xent_stats(const float *logits, const int32_t *targets, int64_t rows, int64_t n,
                       int64_t first, float *stats)
{
    (void)logits;
    (void)targets;
    (void)first;
    (void)stats;
    spend_bytes((double)rows * (double)n * 4);
}

static void xent_grad(const float *logits, const int32_t *targets, const float *lse, int64_t rows,
                      int64_t n, int64_t first, float scale, void *dlogits, fo_dtype dtype)
{
    (void)logits;
    (void)targets;
    (void)lse;
    (void)first;
    (void)scale;
    (void)dlogits;
    spend_bytes((double)rows * (double)n * (double)(4 + fo_dtype_size(dtype)));
}

static double sum_squares(const float *x, int64_t n)
{
    (void)x;
    spend_bytes((double)n * 4);
    return 0;
}

/* The gradient is read; w, m and v are read and written. */
static void adamw(const fo_adamw *terms, const float *grad, float *w, float *m, float *v, int64_t n)
{
    (void)terms;
    (void)grad;
    (void)w;
    (void)m;
    (void)v;
    spend_bytes((double)n * 28);
}

/* ---- the table ----------------------------------------------------------------------------------- */

static void fill(void)
{
    table = (fo_kernel){
        .name = "emulated",
        .about = "takes the time of a stated device and computes nothing",
        .isa = isa,
        .supports = supports,
        .emulates = true,
        .tile_rows = TILE_ROWS,
        .wgrad_rows = TILE_ROWS,
        .slice = fo_kernel_emulated_slice,
        .gemm_create = gemm_create,
        .gemm_destroy = gemm_destroy,
        .gemm_packed_bytes = gemm_packed_bytes,
        .gemm_pack = gemm_pack,
        .gemm_tile = gemm_tile,
        .wgrad_create = wgrad_create,
        .wgrad_destroy = wgrad_destroy,
        .wgrad_block = wgrad_block,
        .attention_create = attention_create,
        .attention_destroy = attention_destroy,
        .attention_begin = attention_begin,
        .attention_queries = attention_queries,
        .attention_queries_grad = attention_queries_grad,
        .epilogue = epilogue,
        .convert = convert,
        .add = add,
        .column_sum = column_sum,
        .layernorm_forward = layernorm_forward,
        .layernorm_backward = layernorm_backward,
        .dropout = dropout,
        .xent_stats = xent_stats,
        .xent_grad = xent_grad,
        .sum_squares = sum_squares,
        .adamw = adamw,
    };
}

const fo_kernel *fo_kernel_emulated_table(void)
{
    pthread_once(&once, fill);
    return &table;
}
