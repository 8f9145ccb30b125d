#include "kernel/onednn/matmul.h"

#include <omp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kernel/onednn/version.h"
#include "kernel/progress.h"

struct fo_kernel_matmul {
    fo_kernel_matmul_desc desc;
    dnnl_primitive_t primitive;
    dnnl_stream_t stream;
    dnnl_memory_t a, b, c, scratch;
    void *scratch_memory;
    fo_kernel_onednn_md packed; /* valid with b_packed */
    bool panels;                /* the packed layout is one that the vectorised packing writes */
    fo_kernel_panels layout;
    dnnl_primitive_t reorder; /* otherwise: from float32, as stored */
    dnnl_memory_t reorder_from, reorder_to;
    char name[64]; /* of the implementation */
    /* bf16 without support by oneDNN here: float32 copies of a and b. Products of bf16 values are exact
     * in float32, so it is the same sum, slowly. */
    bool emulated;
    float *wide_a, *wide_b;
};

/* One engine a process; it holds no state that primitives change. */
static dnnl_engine_t engine;
static dnnl_status_t engine_status;
static pthread_once_t engine_once = PTHREAD_ONCE_INIT;

static void make_engine(void)
{
    engine_status = dnnl_engine_create(&engine, dnnl_cpu, 0);
}

static dnnl_data_type_t type_of(const fo_kernel_matmul *mm)
{
    return mm->desc.dtype == FO_BF16 && !mm->emulated ? dnnl_bf16 : dnnl_f32;
}

/* oneDNN takes its number of threads from OpenMP; the caller's setting is put back. */
static int threads_begin(int threads)
{
    int before = omp_get_max_threads();
    if (before != threads)
        omp_set_num_threads(threads);
    return before;
}

static void threads_end(int before, int threads)
{
    if (before != threads)
        omp_set_num_threads(before);
}

static dnnl_status_t create_primitive(fo_kernel_matmul *mm, dnnl_primitive_desc_t *desc)
{
    const fo_kernel_matmul_desc *d = &mm->desc;
    dnnl_data_type_t type = type_of(mm);
    fo_kernel_onednn_md a = {0}, b = {0}, c = {0};
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t ops = NULL;
    dnnl_status_t status = fo_kernel_onednn_md_dense(&a, d->m, d->k, d->a_transposed, type);
    if (status == dnnl_success)
        status = d->b_packed ? fo_kernel_onednn_md_any(&b, d->k, d->n, type)
                             : fo_kernel_onednn_md_dense(&b, d->k, d->n, d->b_transposed, type);
    if (status == dnnl_success)
        status = fo_kernel_onednn_md_dense(&c, d->m, d->n, false, dnnl_f32);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_create(&attr);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (status == dnnl_success && d->accumulate) {
        status = dnnl_post_ops_create(&ops);
        if (status == dnnl_success)
            status = fo_kernel_onednn_append_sum(ops);
        if (status == dnnl_success)
            status = dnnl_primitive_attr_set_post_ops(attr, ops);
    }
    if (status == dnnl_success)
        status = fo_kernel_onednn_matmul(desc, engine, &a, &b, &c, attr);
    if (status == dnnl_success)
        status = dnnl_primitive_create(&mm->primitive, *desc);
    if (status == dnnl_success)
        status = fo_kernel_onednn_memory(&mm->a, &a, engine);
    if (status == dnnl_success && !d->b_packed)
        status = fo_kernel_onednn_memory(&mm->b, &b, engine);
    if (status == dnnl_success)
        status = fo_kernel_onednn_memory(&mm->c, &c, engine);
    if (ops)
        dnnl_post_ops_destroy(ops);
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    fo_kernel_onednn_md_free(&a);
    fo_kernel_onednn_md_free(&b);
    fo_kernel_onednn_md_free(&c);
    return status;
}

/* The packed layout, and the reorder into it when it is not one of panels. */
static dnnl_status_t create_packing(fo_kernel_matmul *mm, const_dnnl_primitive_desc_t desc)
{
    const fo_kernel_matmul_desc *d = &mm->desc;
    dnnl_status_t status = fo_kernel_onednn_md_of(&mm->packed, desc, FO_KERNEL_ONEDNN_WEIGHTS);
    if (status != dnnl_success)
        return status;
    status = fo_kernel_onednn_memory(&mm->b, &mm->packed, engine);
    fo_kernel_panels *l = &mm->layout;
    l->k = d->k;
    l->n = d->n;
    mm->panels = fo_kernel_onednn_md_panels(&mm->packed, &l->panel, &l->k_padded, &l->pair) &&
                 l->pair == (type_of(mm) == dnnl_bf16 ? 2 : 1);
    if (mm->panels || status != dnnl_success)
        return status;
    fo_kernel_onednn_md from = {0};
    dnnl_primitive_desc_t reorder = NULL;
    status = fo_kernel_onednn_md_dense(&from, d->k, d->n, d->b_transposed, dnnl_f32);
    if (status == dnnl_success)
        status = fo_kernel_onednn_reorder(&reorder, engine, &from, &mm->packed);
    if (status == dnnl_success)
        status = dnnl_primitive_create(&mm->reorder, reorder);
    if (status == dnnl_success)
        status = fo_kernel_onednn_memory(&mm->reorder_from, &from, engine);
    if (status == dnnl_success)
        status = fo_kernel_onednn_memory(&mm->reorder_to, &mm->packed, engine);
    if (reorder)
        dnnl_primitive_desc_destroy(reorder);
    fo_kernel_onednn_md_free(&from);
    return status;
}

static dnnl_status_t create_scratch(fo_kernel_matmul *mm, const_dnnl_primitive_desc_t desc)
{
    fo_kernel_onednn_md md = {0};
    dnnl_status_t status = fo_kernel_onednn_md_of(&md, desc, FO_KERNEL_ONEDNN_SCRATCHPAD);
    if (status != dnnl_success)
        return status;
    size_t bytes = (fo_kernel_onednn_md_bytes(&md) / 64 + 1) * 64;
    mm->scratch_memory = aligned_alloc(64, bytes);
    status = mm->scratch_memory ? fo_kernel_onednn_memory(&mm->scratch, &md, engine)
                                : dnnl_out_of_memory;
    if (status == dnnl_success)
        status = dnnl_memory_set_data_handle(mm->scratch, mm->scratch_memory);
    fo_kernel_onednn_md_free(&md);
    return status;
}

static dnnl_status_t create_emulation(fo_kernel_matmul *mm)
{
    const fo_kernel_matmul_desc *d = &mm->desc;
    mm->wide_a = aligned_alloc(64, ((size_t)(d->m * d->k) / 16 + 1) * 64);
    mm->wide_b = aligned_alloc(64, ((size_t)(d->k * d->n) / 16 + 1) * 64);
    return mm->wide_a && mm->wide_b ? dnnl_success : dnnl_out_of_memory;
}

/* Back to a structure that holds only its description. */
static void clear(fo_kernel_matmul *mm)
{
    dnnl_memory_t memories[] = {mm->a, mm->b, mm->c, mm->scratch, mm->reorder_from, mm->reorder_to};
    for (size_t i = 0; i < sizeof memories / sizeof *memories; i++)
        if (memories[i])
            dnnl_memory_destroy(memories[i]);
    if (mm->primitive)
        dnnl_primitive_destroy(mm->primitive);
    if (mm->reorder)
        dnnl_primitive_destroy(mm->reorder);
    if (mm->stream)
        dnnl_stream_destroy(mm->stream);
    if (mm->desc.b_packed)
        fo_kernel_onednn_md_free(&mm->packed);
    free(mm->scratch_memory);
    free(mm->wide_a);
    free(mm->wide_b);
    *mm = (fo_kernel_matmul){.desc = mm->desc, .emulated = mm->emulated};
}

void fo_kernel_matmul_destroy(fo_kernel_matmul *mm)
{
    if (!mm)
        return;
    clear(mm);
    free(mm);
}

static fo_status failed(const fo_kernel_matmul_desc *d, const char *what, dnnl_status_t status)
{
    fo_status kind = status == dnnl_out_of_memory   ? FO_NO_MEMORY
                     : status == dnnl_unimplemented ? FO_UNSUPPORTED
                                                    : FO_INTERNAL;
    return fo_base_error(kind, "oneDNN %s of m = %lld, n = %lld, k = %lld, %s: status %d", what,
                         (long long)d->m, (long long)d->n, (long long)d->k, fo_dtype_name(d->dtype),
                         (int)status);
}

static dnnl_status_t create(fo_kernel_matmul *mm)
{
    dnnl_primitive_desc_t primitive = NULL;
    int threads = mm->desc.threads, before = threads_begin(threads);
    dnnl_status_t status = create_primitive(mm, &primitive);
    if (status == dnnl_success)
        status = dnnl_stream_create(&mm->stream, engine, dnnl_stream_default_flags);
    if (status == dnnl_success)
        status = create_scratch(mm, primitive);
    if (status == dnnl_success && mm->desc.b_packed)
        status = create_packing(mm, primitive);
    if (status == dnnl_success && mm->emulated)
        status = create_emulation(mm);
    const char *name = NULL;
    if (status == dnnl_success)
        status = dnnl_primitive_desc_query(primitive, dnnl_query_impl_info_str, 0, &name);
    if (name)
        strncpy(mm->name, name, sizeof mm->name - 1);
    if (primitive)
        dnnl_primitive_desc_destroy(primitive);
    threads_end(before, threads);
    return status;
}

fo_status fo_kernel_matmul_create(const fo_kernel_matmul_desc *desc, fo_kernel_matmul **out)
{
    *out = NULL;
    pthread_once(&engine_once, make_engine);
    if (engine_status != dnnl_success)
        return failed(desc, "engine for a product", engine_status);
    fo_kernel_matmul *mm = calloc(1, sizeof *mm);
    if (!mm)
        return fo_base_error(FO_NO_MEMORY, "no memory for a product");
    mm->desc = *desc;
    dnnl_status_t status = create(mm);
    if (status == dnnl_unimplemented && desc->dtype == FO_BF16) {
        clear(mm);
        mm->emulated = true;
        status = create(mm);
    }
    if (status == dnnl_success && desc->threads > 1 && !fo_kernel_matmul_row_independent(mm)) {
        /* Other implementations split differently for another number of threads. */
        clear(mm);
        mm->desc.threads = 1;
        status = create(mm);
    }
    if (status != dnnl_success) {
        fo_kernel_matmul_destroy(mm);
        return failed(desc, "product", status);
    }
    *out = mm;
    return FO_OK;
}

fo_status fo_kernel_matmul_run(fo_kernel_matmul *mm, const void *a, const void *b, float *c)
{
    const fo_kernel_matmul_desc *d = &mm->desc;
    if (mm->emulated) {
        fo_kernel_vec_at(0)->convert(a, FO_BF16, mm->wide_a, FO_F32, d->m * d->k);
        a = mm->wide_a;
        if (!d->b_packed) {
            fo_kernel_vec_at(0)->convert(b, FO_BF16, mm->wide_b, FO_F32, d->k * d->n);
            b = mm->wide_b;
        }
    }
    dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, mm->a},
                              {DNNL_ARG_WEIGHTS, mm->b},
                              {DNNL_ARG_DST, mm->c},
                              {DNNL_ARG_SCRATCHPAD, mm->scratch}};
    dnnl_memory_set_data_handle(mm->a, (void *)(uintptr_t)a);
    dnnl_memory_set_data_handle(mm->b, (void *)(uintptr_t)b);
    dnnl_memory_set_data_handle(mm->c, c);
    int before = threads_begin(d->threads);
    dnnl_status_t status = dnnl_primitive_execute(mm->primitive, mm->stream, 4, args);
    if (status == dnnl_success)
        status = dnnl_stream_wait(mm->stream);
    threads_end(before, d->threads);
    return status == dnnl_success ? FO_OK : failed(d, "execution of a product", status);
}

size_t fo_kernel_matmul_packed_bytes(const fo_kernel_matmul *mm)
{
    return fo_kernel_onednn_md_bytes(&mm->packed);
}

const fo_kernel_panels *fo_kernel_matmul_panels(const fo_kernel_matmul *mm)
{
    return mm->panels && !mm->emulated ? &mm->layout : NULL;
}

bool fo_kernel_matmul_same_packing(const fo_kernel_matmul *a, const fo_kernel_matmul *b)
{
    return a->panels && b->panels && a->layout.k == b->layout.k && a->layout.n == b->layout.n &&
           a->layout.panel == b->layout.panel && a->layout.k_padded == b->layout.k_padded &&
           a->layout.pair == b->layout.pair;
}

bool fo_kernel_matmul_row_independent(const fo_kernel_matmul *mm)
{
    return !strncmp(mm->name, "brg", 3) && strstr(mm->name, "avx512_core") &&
           !strstr(mm->name, "amx");
}

/* b rounded to bf16, in float32. */
static const float *rounded(fo_kernel_matmul *mm, const float *b)
{
    enum { PART = 1024 };
    uint16_t narrow[PART];
    const fo_kernel_vec *vec = fo_kernel_vec_at(0);
    int64_t n = mm->desc.k * mm->desc.n;
    for (int64_t i = 0; i < n; i += PART) {
        int64_t count = n - i < PART ? n - i : PART;
        vec->convert(b + i, FO_F32, narrow, FO_BF16, count);
        vec->convert(narrow, FO_BF16, mm->wide_b + i, FO_F32, count);
    }
    return mm->wide_b;
}

/* How many panels of *all to pack at once: about a megabyte a thread when somebody waits for progress. */
static int64_t panels_at_once(const fo_kernel_matmul *mm, int64_t *all)
{
    enum { ELEMENTS = 262144 };
    const fo_kernel_panels *l = &mm->layout;
    *all = (l->n + l->panel - 1) / l->panel;
    int64_t count = (ELEMENTS / (l->panel * l->k_padded) + 1) * mm->desc.threads;
    return fo_kernel_progress_wanted() && count < *all ? count : *all;
}

static void pack_panels(const fo_kernel_matmul *mm, const float *b, void *packed)
{
    int64_t all, count = panels_at_once(mm, &all);
    for (int64_t first = 0; first < all; first += count) {
        count = all - first < count ? all - first : count;
        fo_kernel_vec_at(0)->pack(&mm->layout, b, mm->desc.b_transposed, first, count, packed);
        fo_kernel_progress();
    }
}

void fo_kernel_matmul_pack_typed(const fo_kernel_matmul *mm, const void *b, void *packed)
{
    int64_t all, count = panels_at_once(mm, &all);
    for (int64_t first = 0; first < all; first += count) {
        count = all - first < count ? all - first : count;
        fo_kernel_vec_at(0)->pack_typed(&mm->layout, b, first, count, packed);
        fo_kernel_progress();
    }
}

fo_status fo_kernel_matmul_pack(fo_kernel_matmul *mm, const float *b, void *packed)
{
    if (mm->emulated)
        b = rounded(mm, b);
    if (mm->panels) {
        pack_panels(mm, b, packed);
        return FO_OK;
    }
    dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, mm->reorder_from}, {DNNL_ARG_TO, mm->reorder_to}};
    dnnl_memory_set_data_handle(mm->reorder_from, (void *)(uintptr_t)b);
    dnnl_memory_set_data_handle(mm->reorder_to, packed);
    int before = threads_begin(mm->desc.threads);
    dnnl_status_t status = dnnl_primitive_execute(mm->reorder, mm->stream, 2, args);
    if (status == dnnl_success)
        status = dnnl_stream_wait(mm->stream);
    threads_end(before, mm->desc.threads);
    return status == dnnl_success ? FO_OK : failed(&mm->desc, "packing", status);
}

const char *fo_kernel_matmul_isa(void)
{
    static const struct {
        unsigned isa;
        const char *name;
    } names[] = {{dnnl_cpu_isa_avx512_core_amx, "avx512_amx"},
                 {dnnl_cpu_isa_avx512_core_bf16, "avx512_bf16"},
                 {dnnl_cpu_isa_avx512_core_vnni, "avx512_vnni"},
                 {dnnl_cpu_isa_avx512_core, "avx512"},
                 {dnnl_cpu_isa_avx2_vnni, "avx2_vnni"},
                 {dnnl_cpu_isa_avx2, "avx2"},
                 {dnnl_cpu_isa_avx, "avx"},
                 {dnnl_cpu_isa_sse41, "sse41"}};
    unsigned isa = (unsigned)dnnl_get_effective_cpu_isa();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if ((isa & names[i].isa) == names[i].isa)
            return names[i].name;
    return "generic";
}
