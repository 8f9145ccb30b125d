/* One matrix product of a fixed shape as oneDNN runs it: c[m, n] (float32) = or += a[m, k] . b[k, n].
 * oneDNN's header does not appear here. A product belongs to one thread at a time; no call but create
 * and destroy allocates. */
#ifndef FO_KERNEL_ONEDNN_MATMUL_H
#define FO_KERNEL_ONEDNN_MATMUL_H

#include "kernel/kernel.h"
#include "kernel/vec/vec.h"

typedef struct fo_kernel_matmul_desc {
    int64_t m, n, k;   /* >= 1 */
    fo_dtype dtype;    /* of a and b */
    bool a_transposed; /* a is stored as [k, m] */
    bool b_transposed; /* b is stored as [n, k] */
    bool b_packed;   /* b is in the layout that oneDNN prefers, written by fo_kernel_matmul_pack */
    bool accumulate; /* c += */
    int threads;     /* for fo_kernel_matmul_run */
} fo_kernel_matmul_desc;
typedef struct fo_kernel_matmul fo_kernel_matmul;

fo_status fo_kernel_matmul_create(const fo_kernel_matmul_desc *desc, fo_kernel_matmul **matmul);
void fo_kernel_matmul_destroy(fo_kernel_matmul *matmul);
fo_status fo_kernel_matmul_run(fo_kernel_matmul *matmul, const void *a, const void *b, float *c);

/* Of a product with b_packed. */
size_t fo_kernel_matmul_packed_bytes(const fo_kernel_matmul *matmul);
/* The layout when it is one of panels for the type of b: NULL otherwise. */
const fo_kernel_panels *fo_kernel_matmul_panels(const fo_kernel_matmul *matmul);
bool fo_kernel_matmul_same_packing(const fo_kernel_matmul *a, const fo_kernel_matmul *b);
/* Whether what is computed for a row is known to depend neither on m nor on the number of threads: the
 * same instructions in the same order for every height. Others run on one thread. */
bool fo_kernel_matmul_row_independent(const fo_kernel_matmul *matmul);
/* b: float32, stored as desc.b_transposed says. */
fo_status fo_kernel_matmul_pack(fo_kernel_matmul *matmul, const float *b, void *packed);
/* b: [k, n] in the type of the product, whose layout is one of panels. */
void fo_kernel_matmul_pack_typed(const fo_kernel_matmul *matmul, const void *b, void *packed);

/* "avx512_bf16", ... */
const char *fo_kernel_matmul_isa(void);

#endif
