#include "kernel/onednn/version.h"

/* An inner block as oneDNN lists it: dimension and size, outermost first. */
typedef struct layout {
    int64_t dims[2], padded[2], strides[2];
    int blocks;
    int64_t block_size[12], block_dim[12];
} layout;

static bool read_layout(const fo_kernel_onednn_md *md, layout *l);

bool fo_kernel_onednn_md_panels(const fo_kernel_onednn_md *md, int64_t *panel, int64_t *k_padded,
                                int *pair)
{
    layout l;
    if (!read_layout(md, &l))
        return false;
    /* [.., 16 rows / pair][panel columns][pair rows] */
    bool single = l.blocks == 2 && l.block_dim[0] == 0 && l.block_dim[1] == 1;
    bool paired = l.blocks == 3 && l.block_dim[0] == 0 && l.block_dim[1] == 1 &&
                  l.block_dim[2] == 0 && l.block_size[2] == 2;
    if (!single && !paired)
        return false;
    int64_t rows = l.block_size[0] * (paired ? 2 : 1), columns = l.block_size[1];
    bool one_panel = l.padded[1] == columns;
    if (columns % 16 || l.strides[0] != rows * columns ||
        (!one_panel && l.strides[1] != l.padded[0] * columns))
        return false;
    *panel = columns;
    *k_padded = l.padded[0];
    *pair = paired ? 2 : 1;
    return true;
}

#if DNNL_VERSION_MAJOR < 3

dnnl_status_t fo_kernel_onednn_md_dense(fo_kernel_onednn_md *md, int64_t rows, int64_t columns,
                                        bool transposed, dnnl_data_type_t type)
{
    dnnl_dims_t dims = {rows, columns};
    dnnl_dims_t strides = {transposed ? 1 : columns, transposed ? rows : 1};
    return dnnl_memory_desc_init_by_strides(md, 2, dims, type, strides);
}

dnnl_status_t fo_kernel_onednn_md_any(fo_kernel_onednn_md *md, int64_t rows, int64_t columns,
                                      dnnl_data_type_t type)
{
    dnnl_dims_t dims = {rows, columns};
    return dnnl_memory_desc_init_by_tag(md, 2, dims, type, dnnl_format_tag_any);
}

dnnl_status_t fo_kernel_onednn_md_of(fo_kernel_onednn_md *md, const_dnnl_primitive_desc_t primitive,
                                     fo_kernel_onednn_which which)
{
    const dnnl_memory_desc_t *found =
        dnnl_primitive_desc_query_md(primitive,
                                     which == FO_KERNEL_ONEDNN_WEIGHTS ? dnnl_query_weights_md
                                                                       : dnnl_query_scratchpad_md,
                                     0);
    if (!found)
        return dnnl_invalid_arguments;
    *md = *found;
    return dnnl_success;
}

void fo_kernel_onednn_md_free(fo_kernel_onednn_md *md)
{
    (void)md;
}

size_t fo_kernel_onednn_md_bytes(const fo_kernel_onednn_md *md)
{
    return dnnl_memory_desc_get_size(md);
}

static bool read_layout(const fo_kernel_onednn_md *md, layout *l)
{
    const dnnl_blocking_desc_t *blocking = &md->format_desc.blocking;
    if (md->format_kind != dnnl_blocked || md->ndims != 2 || md->extra.flags ||
        blocking->inner_nblks > 12)
        return false;
    l->blocks = blocking->inner_nblks;
    for (int d = 0; d < 2; d++) {
        l->dims[d] = md->dims[d];
        l->padded[d] = md->padded_dims[d];
        l->strides[d] = blocking->strides[d];
    }
    for (int i = 0; i < l->blocks; i++) {
        l->block_size[i] = blocking->inner_blks[i];
        l->block_dim[i] = blocking->inner_idxs[i];
    }
    return true;
}

dnnl_status_t fo_kernel_onednn_memory(dnnl_memory_t *memory, const fo_kernel_onednn_md *md,
                                      dnnl_engine_t engine)
{
    return dnnl_memory_create(memory, md, engine, DNNL_MEMORY_NONE);
}

dnnl_status_t fo_kernel_onednn_matmul(dnnl_primitive_desc_t *primitive, dnnl_engine_t engine,
                                      const fo_kernel_onednn_md *a, const fo_kernel_onednn_md *b,
                                      const fo_kernel_onednn_md *c,
                                      const_dnnl_primitive_attr_t attr)
{
    dnnl_matmul_desc_t desc;
    dnnl_status_t status = dnnl_matmul_desc_init(&desc, a, b, NULL, c);
    if (status == dnnl_success)
        status = dnnl_primitive_desc_create(primitive, &desc, attr, engine, NULL);
    return status;
}

dnnl_status_t fo_kernel_onednn_append_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1.0f);
}

dnnl_status_t fo_kernel_onednn_reorder(dnnl_primitive_desc_t *primitive, dnnl_engine_t engine,
                                       const fo_kernel_onednn_md *from,
                                       const fo_kernel_onednn_md *to)
{
    return dnnl_reorder_primitive_desc_create(primitive, from, engine, to, engine, NULL);
}

#else

dnnl_status_t fo_kernel_onednn_md_dense(fo_kernel_onednn_md *md, int64_t rows, int64_t columns,
                                        bool transposed, dnnl_data_type_t type)
{
    dnnl_dims_t dims = {rows, columns};
    dnnl_dims_t strides = {transposed ? 1 : columns, transposed ? rows : 1};
    return dnnl_memory_desc_create_with_strides(md, 2, dims, type, strides);
}

dnnl_status_t fo_kernel_onednn_md_any(fo_kernel_onednn_md *md, int64_t rows, int64_t columns,
                                      dnnl_data_type_t type)
{
    dnnl_dims_t dims = {rows, columns};
    return dnnl_memory_desc_create_with_tag(md, 2, dims, type, dnnl_format_tag_any);
}

dnnl_status_t fo_kernel_onednn_md_of(fo_kernel_onednn_md *md, const_dnnl_primitive_desc_t primitive,
                                     fo_kernel_onednn_which which)
{
    const_dnnl_memory_desc_t found =
        dnnl_primitive_desc_query_md(primitive,
                                     which == FO_KERNEL_ONEDNN_WEIGHTS ? dnnl_query_weights_md
                                                                       : dnnl_query_scratchpad_md,
                                     0);
    if (!found)
        return dnnl_invalid_arguments;
    return dnnl_memory_desc_clone(md, found);
}

void fo_kernel_onednn_md_free(fo_kernel_onednn_md *md)
{
    if (*md)
        dnnl_memory_desc_destroy(*md);
    *md = NULL;
}

size_t fo_kernel_onednn_md_bytes(const fo_kernel_onednn_md *md)
{
    return dnnl_memory_desc_get_size(*md);
}

static bool read_layout(const fo_kernel_onednn_md *md, layout *l)
{
    dnnl_format_kind_t kind;
    int dims = 0;
    dnnl_dims_t *size, *padded, *strides, *block_size, *block_dim;
    if (dnnl_memory_desc_query(*md, dnnl_query_format_kind, &kind) != dnnl_success ||
        kind != dnnl_blocked ||
        dnnl_memory_desc_query(*md, dnnl_query_ndims_s32, &dims) != dnnl_success || dims != 2 ||
        dnnl_memory_desc_query(*md, dnnl_query_dims, &size) != dnnl_success ||
        dnnl_memory_desc_query(*md, dnnl_query_padded_dims, &padded) != dnnl_success ||
        dnnl_memory_desc_query(*md, dnnl_query_strides, &strides) != dnnl_success ||
        dnnl_memory_desc_query(*md, dnnl_query_inner_nblks_s32, &l->blocks) != dnnl_success ||
        dnnl_memory_desc_query(*md, dnnl_query_inner_blks, &block_size) != dnnl_success ||
        dnnl_memory_desc_query(*md, dnnl_query_inner_idxs, &block_dim) != dnnl_success ||
        l->blocks > 12)
        return false;
    for (int d = 0; d < 2; d++) {
        l->dims[d] = (*size)[d];
        l->padded[d] = (*padded)[d];
        l->strides[d] = (*strides)[d];
    }
    for (int i = 0; i < l->blocks; i++) {
        l->block_size[i] = (*block_size)[i];
        l->block_dim[i] = (*block_dim)[i];
    }
    return true;
}

dnnl_status_t fo_kernel_onednn_memory(dnnl_memory_t *memory, const fo_kernel_onednn_md *md,
                                      dnnl_engine_t engine)
{
    return dnnl_memory_create(memory, *md, engine, DNNL_MEMORY_NONE);
}

dnnl_status_t fo_kernel_onednn_matmul(dnnl_primitive_desc_t *primitive, dnnl_engine_t engine,
                                      const fo_kernel_onednn_md *a, const fo_kernel_onednn_md *b,
                                      const fo_kernel_onednn_md *c,
                                      const_dnnl_primitive_attr_t attr)
{
    return dnnl_matmul_primitive_desc_create(primitive, engine, *a, *b, NULL, *c, attr);
}

dnnl_status_t fo_kernel_onednn_append_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef);
}

dnnl_status_t fo_kernel_onednn_reorder(dnnl_primitive_desc_t *primitive, dnnl_engine_t engine,
                                       const fo_kernel_onednn_md *from,
                                       const fo_kernel_onednn_md *to)
{
    return dnnl_reorder_primitive_desc_create(primitive, *from, engine, *to, engine, NULL);
}

#endif
