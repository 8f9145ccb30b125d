/* What differs between versions 2 and 3 of oneDNN, behind one form; everything else is called directly.
 * Matrices only: two dimensions, element types of the case. */
#ifndef FO_KERNEL_ONEDNN_VERSION_H
#define FO_KERNEL_ONEDNN_VERSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <dnnl.h>

/* A memory descriptor: a structure in version 2, a handle in version 3. */
typedef dnnl_memory_desc_t fo_kernel_onednn_md;

/* Which descriptor of a primitive. */
typedef enum fo_kernel_onednn_which {
    FO_KERNEL_ONEDNN_WEIGHTS,
    FO_KERNEL_ONEDNN_SCRATCHPAD
} fo_kernel_onednn_which;

/* [rows, columns]; transposed: stored as [columns, rows], dense. */
dnnl_status_t fo_kernel_onednn_md_dense(fo_kernel_onednn_md *md, int64_t rows, int64_t columns,
                                        bool transposed, dnnl_data_type_t type);
/* [rows, columns] in whatever layout oneDNN prefers. */
dnnl_status_t fo_kernel_onednn_md_any(fo_kernel_onednn_md *md, int64_t rows, int64_t columns,
                                      dnnl_data_type_t type);
/* A copy of a descriptor of a made primitive. */
dnnl_status_t fo_kernel_onednn_md_of(fo_kernel_onednn_md *md, const_dnnl_primitive_desc_t primitive,
                                     fo_kernel_onednn_which which);
void fo_kernel_onednn_md_free(fo_kernel_onednn_md *md);
size_t fo_kernel_onednn_md_bytes(const fo_kernel_onednn_md *md);

/* Whether the layout is that of panels: column panels outermost, in each `pair` rows interleaved. */
bool fo_kernel_onednn_md_panels(const fo_kernel_onednn_md *md, int64_t *panel, int64_t *k_padded,
                                int *pair);

dnnl_status_t fo_kernel_onednn_memory(dnnl_memory_t *memory, const fo_kernel_onednn_md *md,
                                      dnnl_engine_t engine);
dnnl_status_t fo_kernel_onednn_matmul(dnnl_primitive_desc_t *primitive, dnnl_engine_t engine,
                                      const fo_kernel_onednn_md *a, const fo_kernel_onednn_md *b,
                                      const fo_kernel_onednn_md *c,
                                      const_dnnl_primitive_attr_t attr);
/* c += */
dnnl_status_t fo_kernel_onednn_append_sum(dnnl_post_ops_t ops);
dnnl_status_t fo_kernel_onednn_reorder(dnnl_primitive_desc_t *primitive, dnnl_engine_t engine,
                                       const fo_kernel_onednn_md *from,
                                       const fo_kernel_onednn_md *to);

#endif
