/* The reference backend as a table. */
#include "kernel/backends.h"
#include "flashoverlap/plan.h"
#include "kernel/ref/ref.h"

#include <pthread.h>

static fo_kernel table;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const char *isa(void)
{
    return "c";
}

static bool supports(fo_dtype dtype)
{
    return dtype == FO_F32 || dtype == FO_BF16;
}

static void fill(void)
{
    table.name = "ref";
    table.about = "plain C, the truth the others are compared with";
    table.isa = isa;
    table.supports = supports;
    table.tile_rows = FO_TILE_ROWS;
    table.wgrad_rows = FO_WGRAD_ROWS;
    fo_kernel_ref_gemm_fill(&table);
    fo_kernel_ref_attention_fill(&table);
    fo_kernel_ref_elements_fill(&table);
    fo_kernel_ref_rows_fill(&table);
}

const fo_kernel *fo_kernel_ref_table(void)
{
    pthread_once(&once, fill);
    return &table;
}
