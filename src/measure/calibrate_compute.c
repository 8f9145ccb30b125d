/* Products, attention and passes over memory, as the operators call them: tile by tile, over rows that
 * follow each other in memory. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "measure/calibrate.h"

enum { OBJECTS = 192, MOST_HEADS = 8 };

/* A product, made when it is first needed and kept. */
typedef struct object {
    fo_measure_case like; /* kind, dtype, threads, k, n; attention: rows */
    fo_gemm *gemm;
    void *packed;
    fo_wgrad *wgrad;
    fo_attention *attention;
} object;

struct fo_measure_work {
    const fo_kernel *kernel;
    char *x, *dy, *result, *weight, *att;
    size_t x_bytes, at; /* of x; where the next weight to be packed is taken from */
    float *lse;
    object objects[OBJECTS];
    int count;
};

/* Halves that are numbers around one as bfloat16, so that the whole is one as float32 too. */
static void fill(void *memory, size_t bytes)
{
    static const uint32_t pattern[4] = {0x3f003e80u, 0xbe803f00u, 0x3e00bf00u, 0xbf00be00u};
    uint32_t *words = memory;
    for (size_t i = 0; i < bytes / 4; i++)
        words[i] = pattern[(i ^ i >> 3) & 3];
}

static char *filled(size_t bytes)
{
    size_t rounded = (bytes + 127) / 64 * 64;
    char *memory = aligned_alloc(64, rounded);
    if (memory)
        fill(memory, rounded);
    return memory;
}

static size_t greatest(const size_t *sizes, int count)
{
    size_t found = 0;
    for (int i = 0; i < count; i++)
        found = sizes[i] > found ? sizes[i] : found;
    return found;
}

fo_status fo_measure_work_make(const fo_measure_calibration *c, const fo_kernel *kernel,
                               fo_measure_work **result)
{
    *result = NULL;
    fo_measure_work *work = calloc(1, sizeof *work);
    if (!work)
        return fo_base_error(FO_NO_MEMORY, "calibrate: no memory for what is measured");
    size_t pass = (size_t)c->most_elements * 4, weight = (size_t)c->most_weight * 4;
    size_t tile = (size_t)(kernel->tile_rows * c->most_width) * 4;
    size_t rows = (size_t)(c->most_rows * c->most_width) * 4;
    size_t qkv = (size_t)(c->most_rows * 3 * FO_MEASURE_ATTENTION_WIDTH) * 4;
    size_t matrix_bytes = greatest((size_t[]){pass, rows, qkv}, 3);
    work->kernel = kernel;
    work->x = filled(matrix_bytes);
    work->dy = filled(matrix_bytes);
    work->result = filled(greatest((size_t[]){pass, weight, tile, qkv}, 4));
    work->weight = filled(weight);
    work->att = filled(qkv / 3);
    work->x_bytes = matrix_bytes;
    work->lse = calloc((size_t)(MOST_HEADS * c->most_rows) + 16, sizeof *work->lse);
    *result = work;
    if (!work->x || !work->dy || !work->result || !work->weight || !work->att || !work->lse)
        return fo_base_error(FO_NO_MEMORY,
                             "calibrate: no memory for matrices of %zu bytes; --quick needs less",
                             matrix_bytes);
    return FO_OK;
}

void fo_measure_work_free(fo_measure_work *work)
{
    if (!work)
        return;
    for (int i = 0; i < work->count; i++) {
        object *o = &work->objects[i];
        if (o->gemm)
            work->kernel->gemm_destroy(o->gemm);
        if (o->wgrad)
            work->kernel->wgrad_destroy(o->wgrad);
        if (o->attention)
            work->kernel->attention_destroy(o->attention);
        free(o->packed);
    }
    free(work->x);
    free(work->dy);
    free(work->result);
    free(work->weight);
    free(work->att);
    free(work->lse);
    free(work);
}

/* ---- objects ------------------------------------------------------------------------------------- */

static fo_status make_gemm(fo_measure_work *work, object *o)
{
    fo_gemm_desc desc = {.k = o->like.k,
                         .n = o->like.n,
                         .dtype = o->like.dtype,
                         .transposed = true};
    fo_status status = work->kernel->gemm_create(&desc, &o->gemm);
    if (status != FO_OK)
        return status;
    size_t bytes = (work->kernel->gemm_packed_bytes(o->gemm) + 127) / 64 * 64;
    o->packed = aligned_alloc(64, bytes);
    if (!o->packed)
        return fo_base_error(FO_NO_MEMORY, "calibrate: no memory for a weight of %zu bytes", bytes);
    return work->kernel->gemm_pack(o->gemm, (const float *)(const void *)work->weight, o->packed);
}

static fo_status make_object(fo_measure_work *work, object *o)
{
    fo_wgrad_desc wgrad = {.out = o->like.n, .in = o->like.k, .dtype = o->like.dtype};
    fo_attention_desc attention = {.batch = 1,
                                   .context = o->like.rows,
                                   .heads = (int)o->like.k,
                                   .head_dim = (int)o->like.n,
                                   .dtype = o->like.dtype,
                                   .total_heads = (int)o->like.k};
    switch (o->like.kind) {
    case FO_MEASURE_PACK:
    case FO_MEASURE_GEMM: return make_gemm(work, o);
    case FO_MEASURE_WGRAD: return work->kernel->wgrad_create(&wgrad, &o->wgrad);
    default: return work->kernel->attention_create(&attention, &o->attention);
    }
}

static bool fits(const fo_measure_case *a, const fo_measure_case *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->threads == b->threads && a->k == b->k &&
           a->n == b->n && (a->kind < FO_MEASURE_ATTENTION || a->rows == b->rows);
}

static fo_status find_object(fo_measure_work *work, const fo_measure_case *which, object **found)
{
    for (int i = 0; i < work->count; i++) {
        *found = &work->objects[i];
        if (fits(&work->objects[i].like, which))
            return FO_OK;
    }
    if (work->count == OBJECTS)
        return fo_base_error(FO_INTERNAL, "calibrate: more than %d different products", OBJECTS);
    *found = &work->objects[work->count++];
    (*found)->like = *which;
    return make_object(work, *found);
}

/* ---- calls --------------------------------------------------------------------------------------- */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static fo_status call_gemm(fo_measure_work *work, const object *o, int64_t all)
{
    int64_t row_bytes = o->like.k * (int64_t)fo_dtype_size(o->like.dtype), rows;
    fo_status status = FO_OK;
    for (int64_t row = 0; status == FO_OK && row < all; row += rows) {
        rows = least(work->kernel->tile_rows, all - row);
        status = work->kernel->gemm_tile(o->gemm, o->packed, work->x + row * row_bytes, rows,
                                         (float *)(void *)work->result);
    }
    return status;
}

static fo_status call_wgrad(fo_measure_work *work, const object *o, int64_t all)
{
    int64_t size = (int64_t)fo_dtype_size(o->like.dtype), rows;
    fo_status status = FO_OK;
    for (int64_t row = 0; status == FO_OK && row < all; row += rows) {
        rows = least(work->kernel->wgrad_rows, all - row);
        status = work->kernel->wgrad_block(o->wgrad, work->dy + row * o->like.n * size,
                                           work->x + row * o->like.k * size, rows,
                                           (float *)(void *)work->result);
    }
    return status;
}

/* The gradient reads what forward passes before it have left: numbers of a usual size. */
static fo_status call_attention(fo_measure_work *work, const object *o)
{
    bool grad = o->like.kind == FO_MEASURE_ATTENTION_GRAD;
    fo_attention_args args = {
        .qkv = work->x, .lse = work->lse, .out = work->att, .dout = work->dy, .dqkv = work->result};
    int64_t rows, all = o->like.rows,
                  step = grad ? work->kernel->wgrad_rows : work->kernel->tile_rows;
    fo_status status = FO_OK;
    work->kernel->attention_begin(o->attention);
    for (int64_t row = 0; status == FO_OK && row < all; row += rows) {
        rows = least(step, all - row);
        status = grad ? work->kernel->attention_queries_grad(o->attention, &args, row, rows)
                      : work->kernel->attention_queries(o->attention, &args, row, rows);
    }
    return status;
}

/* A weight that no cache holds any more: another one each time. */
static fo_status call_pack(fo_measure_work *work, const object *o)
{
    size_t bytes = (size_t)(o->like.k * o->like.n) * 4;
    if (work->at + bytes > work->x_bytes)
        work->at = 0;
    const float *weight = (const float *)(const void *)(work->x + work->at);
    work->at += bytes;
    return work->kernel->gemm_pack(o->gemm, weight, o->packed);
}

static void call_pass(fo_measure_work *work, const fo_measure_case *which)
{
    const fo_kernel *k = work->kernel;
    if (!strcmp(which->name, "add f32 f32 to f32"))
        k->add(work->x, FO_F32, work->dy, FO_F32, work->result, FO_F32, which->n);
    else if (!strcmp(which->name, "add f32 bf16 to bf16"))
        k->add(work->x, FO_F32, work->dy, FO_BF16, work->result, FO_BF16, which->n);
    else
        k->convert(work->x, FO_F32, work->result, FO_BF16, which->n);
}

fo_status fo_measure_work_call(fo_measure_work *work, const fo_measure_case *which)
{
    object *o = NULL;
    fo_kernel_set_threads(which->threads);
    if (which->kind == FO_MEASURE_PASS) {
        call_pass(work, which);
        return FO_OK;
    }
    fo_status status = find_object(work, which, &o);
    if (status == FO_OK && work->kernel->slice)
        work->kernel->slice(which->rows);
    if (status != FO_OK)
        return status;
    switch (which->kind) {
    case FO_MEASURE_GEMM: return call_gemm(work, o, which->rows);
    case FO_MEASURE_WGRAD: return call_wgrad(work, o, which->rows);
    case FO_MEASURE_PACK: return call_pack(work, o);
    default: return call_attention(work, o);
    }
}
