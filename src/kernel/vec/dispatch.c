/* Which variants this processor can run. */
#include "kernel/vec/fill.h"

#include <pthread.h>

static fo_kernel_vec variants[3];
static int count;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void fill(void)
{
#ifdef FO_KERNEL_VEC_X86 /* set by the build on x86-64 */
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl")) {
        fo_kernel_vec *table = &variants[count++];
        table->isa = "avx512";
        fo_kernel_vec_fill_elements_skylake(table);
        fo_kernel_vec_fill_rows_skylake(table);
        fo_kernel_vec_fill_pack_skylake(table);
        fo_kernel_vec_fill_attention_skylake(table);
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2")) {
        fo_kernel_vec *table = &variants[count++];
        table->isa = "avx2";
        fo_kernel_vec_fill_elements_haswell(table);
        fo_kernel_vec_fill_rows_haswell(table);
        fo_kernel_vec_fill_pack_haswell(table);
        fo_kernel_vec_fill_attention_haswell(table);
    }
#endif
    fo_kernel_vec *table = &variants[count++];
    table->isa = "generic";
    fo_kernel_vec_fill_elements_generic(table);
    fo_kernel_vec_fill_rows_generic(table);
    fo_kernel_vec_fill_pack_generic(table);
    fo_kernel_vec_fill_attention_generic(table);
}

const fo_kernel_vec *fo_kernel_vec_at(int index)
{
    pthread_once(&once, fill);
    return index >= 0 && index < count ? &variants[index] : NULL;
}
