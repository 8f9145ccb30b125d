/* The parts of the oneDNN backend. */
#ifndef FO_KERNEL_ONEDNN_ONEDNN_H
#define FO_KERNEL_ONEDNN_ONEDNN_H

#include "kernel/onednn/matmul.h"

void fo_kernel_onednn_gemm_fill(fo_kernel *table);
void fo_kernel_onednn_wgrad_fill(fo_kernel *table);
void fo_kernel_onednn_attention_fill(fo_kernel *table);

/* 64-byte aligned, not zeroed; at least one byte. NULL without memory. Freed with free. */
void *fo_kernel_onednn_alloc(size_t bytes);

#endif
