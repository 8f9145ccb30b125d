/* A large product cut into parts, one after the other, so that progress can be made between them
 * (fo_kernel_progress). Every element of c is the same sum in the same order: the bits are those of the whole. */
#ifndef FO_KERNEL_ONEDNN_PARTS_H
#define FO_KERNEL_ONEDNN_PARTS_H

#include "kernel/onednn/matmul.h"

typedef struct fo_kernel_parts {
    fo_kernel_matmul_desc whole;
    int64_t step, count; /* rows or columns of c in a part, the last has the rest too; 0: not cut */
    fo_kernel_matmul *of, *last; /* last: NULL when it is like the others */
    void *dense;                 /* a part of a, or of c: oneDNN's best want it dense */
    void *packed;                /* by rows: b, packed once for all parts */
    int64_t column_bytes;        /* by columns: of b, which is packed */
} fo_kernel_parts;

/* Cuts a product into parts of well below a millisecond: by columns of c where b is packed, otherwise by rows of c, a
 * being stored transposed. *parts is left uncut where the whole takes a few milliseconds at most, and where parts are
 * not known to give the same bits. */
fo_status fo_kernel_parts_make(const fo_kernel_matmul_desc *desc, const fo_kernel_matmul *whole,
                               fo_kernel_parts *parts);
void fo_kernel_parts_free(fo_kernel_parts *parts);

/* Whether there are parts and somebody waits for progress between them. */
bool fo_kernel_parts_wanted(const fo_kernel_parts *parts);
fo_status fo_kernel_parts_run(const fo_kernel_parts *parts, const void *a, const void *b, float *c);

#endif
