/* The backends built in, the number of threads, the emulated device. */
#include "kernel/backends.h"

#include <string.h>

static _Thread_local int current_threads = 1;
static _Thread_local fo_device current_device;

const fo_kernel *fo_kernel_at(int index)
{
    switch (index) {
    case 0: return fo_kernel_onednn_table();
    case 1: return fo_kernel_ref_table();
    case 2: return fo_kernel_emulated_table();
    default: return NULL;
    }
}

const fo_kernel *fo_kernel_find(const char *name)
{
    if (!name)
        return fo_kernel_at(0);
    for (int index = 0; fo_kernel_at(index); index++)
        if (!strcmp(fo_kernel_at(index)->name, name))
            return fo_kernel_at(index);
    return NULL;
}

void fo_kernel_set_threads(int threads)
{
    current_threads = threads < 1 ? 1 : threads;
}

int fo_kernel_threads(void)
{
    return current_threads;
}

void fo_kernel_set_device(const fo_device *device)
{
    current_device = *device;
}

const fo_device *fo_kernel_device(void)
{
    return &current_device;
}
