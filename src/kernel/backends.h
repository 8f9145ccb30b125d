/* One line a backend; registry.c lists them, best first. */
#ifndef FO_KERNEL_BACKENDS_H
#define FO_KERNEL_BACKENDS_H

#include "kernel/kernel.h"

const fo_kernel *fo_kernel_onednn_table(void);
const fo_kernel *fo_kernel_ref_table(void);
const fo_kernel *fo_kernel_emulated_table(void);

#endif
