/* The machine's best GEMM rate, measured where it will be used: what MFU is a part of. */
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "base/clock.h"
#include "base/error.h"
#include "group/group.h"
#include "train/train.h"

enum { BLOCKS = 8 /* tiles of a that are gone through */ };

static const struct {
    int64_t k, n;
} shapes[] = {{512, 512}, {1024, 1024}, {768, 3072}};

static const int64_t each_ns = 70000000,
                     window_ns = 5000000; /* a shape; what a rate is taken over */

typedef struct probe {
    const fo_kernel *kernel;
    fo_gemm *gemm;
    float *b, *c;
    char *a;
    void *packed;
    size_t tile_bytes;
    double tile_flops;
} probe;

static void probe_free(probe *p)
{
    if (p->gemm)
        p->kernel->gemm_destroy(p->gemm);
    free(p->a);
    free(p->b);
    free(p->c);
    free(p->packed);
}

static void *aligned(size_t bytes)
{
    void *memory = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (memory)
        memset(memory, 0, (bytes + 127) / 64 * 64);
    return memory;
}

static fo_status probe_make(const fo_kernel *kernel, fo_dtype dtype, int64_t k, int64_t n, probe *p)
{
    fo_gemm_desc desc = {.k = k, .n = n, .dtype = dtype, .transposed = true};
    *p = (probe){.kernel = kernel};
    fo_status status = kernel->gemm_create(&desc, &p->gemm);
    if (status != FO_OK)
        return status;
    p->tile_bytes = (size_t)(FO_TILE_ROWS * k) * fo_dtype_size(dtype);
    p->tile_flops = 2.0 * FO_TILE_ROWS * (double)k * (double)n;
    p->a = aligned(p->tile_bytes * BLOCKS);
    p->b = aligned((size_t)(k * n) * sizeof *p->b);
    p->c = aligned((size_t)(FO_TILE_ROWS * n) * sizeof *p->c);
    p->packed = aligned(kernel->gemm_packed_bytes(p->gemm));
    if (!p->a || !p->b || !p->c || !p->packed)
        return fo_base_error(FO_NO_MEMORY, "no memory to measure the GEMM peak");
    for (int64_t i = 0; i < k * n; i++)
        p->b[i] = (float)(i % 13) * 0.0625f - 0.375f;
    for (int64_t i = 0; i < BLOCKS * FO_TILE_ROWS * k; i++) {
        float value = (float)(i % 11) * 0.125f - 0.625f;
        if (dtype == FO_BF16)
            ((fo_bf16 *)p->a)[i] = fo_base_bf16_from_f32(value);
        else
            ((float *)p->a)[i] = value;
    }
    return kernel->gemm_pack(p->gemm, p->b, p->packed);
}

/* Tiles until the window is over; at least one. */
static fo_status run_window(probe *p, double *rate)
{
    int64_t begin = fo_base_clock_ns(), now = begin, tiles = 0;
    fo_status status = FO_OK;
    while (status == FO_OK && now - begin < window_ns) {
        const char *a = p->a + (size_t)(tiles % BLOCKS) * p->tile_bytes;
        status = p->kernel->gemm_tile(p->gemm, p->packed, a, FO_TILE_ROWS, p->c);
        tiles++;
        now = fo_base_clock_ns();
    }
    *rate = (double)tiles * p->tile_flops / ((double)(now - begin) * 1e-9);
    return status;
}

/* The best window: a core that others use for a moment doesn't lower it. */
static fo_status probe_run(probe *p, double *best)
{
    int64_t end = fo_base_clock_ns() + each_ns;
    fo_status status = FO_OK;
    *best = 0;
    do {
        double rate = 0;
        status = run_window(p, &rate);
        if (rate > *best)
            *best = rate;
    } while (status == FO_OK && fo_base_clock_ns() < end);
    return status;
}

static fo_status sum_rates(fo_group *group, double mine, double *sum)
{
    int ranks = fo_group_size(group);
    double *all = malloc((size_t)ranks * sizeof *all);
    if (!all)
        return fo_base_error(FO_NO_MEMORY, "no memory to measure the GEMM peak");
    fo_status status = fo_group_allgather(group, &mine, sizeof mine, all);
    *sum = 0;
    for (int r = 0; status == FO_OK && r < ranks; r++)
        *sum += all[r];
    free(all);
    return status;
}

/* By the rate found so far, which all ranks know: a tile that takes all the time isn't worth it. */
static bool too_slow(fo_group *group, double flops, int64_t k, int64_t n)
{
    double tile_s = 2.0 * FO_TILE_ROWS * (double)k * (double)n * fo_group_size(group) / flops;
    return flops > 0 && tile_s * 1e9 > (double)each_ns;
}

fo_status fo_train_peak(fo_group *group, fo_dtype dtype, double *flops)
{
    *flops = 0;
    fo_status status = FO_OK;
    for (size_t i = 0; status == FO_OK && i < sizeof shapes / sizeof *shapes; i++) {
        probe p;
        double mine = 0, sum = 0;
        if (too_slow(group, *flops, shapes[i].k, shapes[i].n))
            continue;
        status = probe_make(fo_group_kernel_ops(group), dtype, shapes[i].k, shapes[i].n, &p);
        if (status == FO_OK)
            status = fo_group_barrier(group);
        if (status == FO_OK)
            status = probe_run(&p, &mine);
        probe_free(&p);
        if (status == FO_OK)
            status = sum_rates(group, mine, &sum);
        if (sum > *flops)
            *flops = sum;
    }
    return status;
}
