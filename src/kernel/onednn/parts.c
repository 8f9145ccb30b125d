#include "kernel/onednn/parts.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kernel/onednn/onednn.h"
#include "kernel/progress.h"

/* Multiplications a thread, of a part and of the least that is cut: a third and three milliseconds at 100 GFLOP/s in
 * float32, two thirds and three at twice that in bf16, where smaller parts cost more than a percent. Steps are
 * multiples, a thread, of a panel of columns and of as many rows as cost nothing measurable. */
static const double part_work[] = {[FO_F32] = 16.8e6, [FO_BF16] = 67.2e6};
static const double least_work[] = {[FO_F32] = 160e6, [FO_BF16] = 320e6};
enum { COLUMNS = 64, ROWS = 32 };

static bool by_columns(const fo_kernel_parts *p)
{
    return p->whole.b_packed;
}

static int64_t extent(const fo_kernel_parts *p)
{
    return by_columns(p) ? p->whole.n : p->whole.m;
}

static int64_t last_step(const fo_kernel_parts *p)
{
    return extent(p) - (p->count - 1) * p->step;
}

static void choose_step(fo_kernel_parts *p)
{
    const fo_kernel_matmul_desc *d = &p->whole;
    double work = (double)d->m * (double)d->n * (double)d->k / d->threads;
    int64_t unit = (int64_t)(by_columns(p) ? COLUMNS : ROWS) * d->threads;
    int64_t units = (int64_t)(part_work[d->dtype] * (double)extent(p) / work) / unit;
    p->step = unit * (units > 1 ? units : 1);
    if (work >= least_work[d->dtype] && extent(p) >= 2 * p->step)
        p->count = extent(p) / p->step;
}

/* By columns, a part reads the packed matrix of the whole at its own place; by rows, all parts read the same one. */
static bool fits(const fo_kernel_parts *p, const fo_kernel_matmul *whole,
                 const fo_kernel_matmul *part)
{
    const fo_kernel_panels *a = fo_kernel_matmul_panels(by_columns(p) ? whole : p->of);
    const fo_kernel_panels *b = fo_kernel_matmul_panels(part);
    return fo_kernel_matmul_row_independent(part) && a && b && a->panel == b->panel &&
           a->k_padded == b->k_padded && a->pair == b->pair && COLUMNS % a->panel == 0;
}

static fo_status make_part(fo_kernel_parts *p, const fo_kernel_matmul *whole, int64_t size,
                           fo_kernel_matmul **part, bool *fine)
{
    fo_kernel_matmul_desc d = p->whole;
    *(by_columns(p) ? &d.n : &d.m) = size;
    d.b_packed = true;
    fo_status status = fo_kernel_matmul_create(&d, part);
    *fine &= status == FO_OK && fits(p, whole, *part);
    return status;
}

static fo_status allocate(fo_kernel_parts *p)
{
    const fo_kernel_matmul_desc *d = &p->whole;
    size_t c_bytes = (size_t)(d->m * last_step(p)) * sizeof(float);
    size_t a_bytes = (size_t)(d->k * last_step(p)) * fo_dtype_size(d->dtype);
    p->dense = fo_kernel_onednn_alloc(by_columns(p) ? c_bytes : a_bytes);
    if (!by_columns(p))
        p->packed = fo_kernel_onednn_alloc(fo_kernel_matmul_packed_bytes(p->of));
    if (p->dense && (p->packed || by_columns(p)))
        return FO_OK;
    return fo_base_error(FO_NO_MEMORY, "no memory for parts of a product of %lld by %lld by %lld",
                         (long long)d->m, (long long)d->n, (long long)d->k);
}

fo_status fo_kernel_parts_make(const fo_kernel_matmul_desc *desc, const fo_kernel_matmul *whole,
                               fo_kernel_parts *p)
{
    *p = (fo_kernel_parts){.whole = *desc};
    if (fo_kernel_matmul_row_independent(whole))
        choose_step(p);
    if (!p->count)
        return FO_OK;
    bool fine = true;
    fo_status status = make_part(p, whole, p->step, &p->of, &fine);
    if (status == FO_OK && fine && last_step(p) != p->step)
        status = make_part(p, whole, last_step(p), &p->last, &fine);
    if (status == FO_OK && fine)
        status = allocate(p);
    if (status != FO_OK || !fine) {
        fo_kernel_parts_free(p);
        return status;
    }
    p->column_bytes =
        fo_kernel_matmul_panels(p->of)->k_padded * (int64_t)fo_dtype_size(desc->dtype);
    return FO_OK;
}

void fo_kernel_parts_free(fo_kernel_parts *p)
{
    fo_kernel_matmul_destroy(p->of);
    fo_kernel_matmul_destroy(p->last);
    free(p->dense);
    free(p->packed);
    *p = (fo_kernel_parts){0};
}

bool fo_kernel_parts_wanted(const fo_kernel_parts *p)
{
    return p->count && fo_kernel_progress_wanted();
}

/* `size` bytes from each of `rows` rows. */
static void copy_rows(void *to, size_t to_stride, const void *from, size_t from_stride,
                      int64_t rows, size_t size)
{
    for (int64_t i = 0; i < rows; i++)
        memcpy((char *)to + (size_t)i * to_stride, (const char *)from + (size_t)i * from_stride,
               size);
}

static fo_status run_columns(const fo_kernel_parts *p, fo_kernel_matmul *part, int64_t first,
                             int64_t columns, const void *a, const void *b, float *c)
{
    size_t size = (size_t)columns * sizeof *c;
    fo_status status =
        fo_kernel_matmul_run(part, a, (const char *)b + first * p->column_bytes, p->dense);
    copy_rows(c + first, (size_t)p->whole.n * sizeof *c, p->dense, size, p->whole.m, size);
    return status;
}

static fo_status run_rows(const fo_kernel_parts *p, fo_kernel_matmul *part, int64_t first,
                          int64_t rows, const void *a, float *c)
{
    size_t element = fo_dtype_size(p->whole.dtype), size = (size_t)rows * element;
    copy_rows(p->dense, size, (const char *)a + (size_t)first * element,
              (size_t)p->whole.m * element, p->whole.k, size);
    return fo_kernel_matmul_run(part, p->dense, p->packed, c + first * p->whole.n);
}

fo_status fo_kernel_parts_run(const fo_kernel_parts *p, const void *a, const void *b, float *c)
{
    fo_status status = FO_OK;
    if (!by_columns(p))
        fo_kernel_matmul_pack_typed(p->of, b, p->packed);
    for (int64_t i = 0; i < p->count && status == FO_OK; i++) {
        bool last = i == p->count - 1;
        int64_t first = i * p->step, size = last ? last_step(p) : p->step;
        fo_kernel_matmul *part = last && p->last ? p->last : p->of;
        status = by_columns(p) ? run_columns(p, part, first, size, a, b, c)
                               : run_rows(p, part, first, size, a, c);
        fo_kernel_progress();
    }
    return status;
}
