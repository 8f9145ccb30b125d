/* The parts of the reference backend. Plain C that reads like the formula: float32, sums in index
 * order, one thread. */
#ifndef FO_KERNEL_REF_REF_H
#define FO_KERNEL_REF_REF_H

#include <math.h>

#include "base/bf16.h"
#include "kernel/kernel.h"

static inline float fo_kernel_ref_load(const void *x, fo_dtype dtype, int64_t i)
{
    return dtype == FO_BF16 ? fo_base_bf16_to_f32(((const fo_bf16 *)x)[i]) : ((const float *)x)[i];
}

static inline void fo_kernel_ref_store(void *x, fo_dtype dtype, int64_t i, float value)
{
    if (dtype == FO_BF16)
        ((fo_bf16 *)x)[i] = fo_base_bf16_from_f32(value);
    else
        ((float *)x)[i] = value;
}

/* Fill in their part of the table. */
void fo_kernel_ref_gemm_fill(fo_kernel *table);
void fo_kernel_ref_attention_fill(fo_kernel *table);
void fo_kernel_ref_elements_fill(fo_kernel *table);
void fo_kernel_ref_rows_fill(fo_kernel *table);

#endif
