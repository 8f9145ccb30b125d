/* The functions that each variant's files export: they fill in their part of the table. */
#ifndef FO_KERNEL_VEC_FILL_H
#define FO_KERNEL_VEC_FILL_H

#include "kernel/vec/vec.h"

void fo_kernel_vec_fill_elements_generic(fo_kernel_vec *);
void fo_kernel_vec_fill_rows_generic(fo_kernel_vec *);
void fo_kernel_vec_fill_pack_generic(fo_kernel_vec *);
void fo_kernel_vec_fill_attention_generic(fo_kernel_vec *);

void fo_kernel_vec_fill_elements_haswell(fo_kernel_vec *);
void fo_kernel_vec_fill_rows_haswell(fo_kernel_vec *);
void fo_kernel_vec_fill_pack_haswell(fo_kernel_vec *);
void fo_kernel_vec_fill_attention_haswell(fo_kernel_vec *);

void fo_kernel_vec_fill_elements_skylake(fo_kernel_vec *);
void fo_kernel_vec_fill_rows_skylake(fo_kernel_vec *);
void fo_kernel_vec_fill_pack_skylake(fo_kernel_vec *);
void fo_kernel_vec_fill_attention_skylake(fo_kernel_vec *);

#endif
