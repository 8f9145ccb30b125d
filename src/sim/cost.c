/* What computing takes: measured entries near the shape, else efficiency curves or tiles and waves. */
#include "sim/cost.h"

#include <math.h>

#include "sim/operation.h"

enum { SHAPES = 64 }; /* different k x n among the entries of one kind */

double fo_sim_cost_attention_flops(fo_sim_work work, double keys, double width)
{
    return (work == FO_SIM_ATTENTION_GRAD ? 5 : 2) * 2.0 * width * keys;
}

double fo_sim_cost_flops(fo_sim_work work, double rows, double k, double n)
{
    if (work == FO_SIM_ATTENTION || work == FO_SIM_ATTENTION_GRAD)
        return fo_sim_cost_attention_flops(work, rows * (rows + 1) / 2, k * n);
    return work == FO_SIM_PACK ? 0 : 2.0 * rows * k * n;
}

/* ---- entries ---------------------------------------------------------------------------------------- */

/* Which entries speak for a product. */
typedef struct pick {
    fo_sim_work work;
    fo_dtype dtype;
    int threads;
    bool at_once;
} pick;

static bool fits(const fo_sim_entry *entry, const pick *p)
{
    return entry->work == p->work && entry->dtype == p->dtype && entry->threads == p->threads &&
           entry->at_once == p->at_once && entry->time_s > 0;
}

static bool any_fits(const fo_sim_device *device, const pick *p)
{
    for (int e = 0; e < device->entry_count; e++)
        if (fits(&device->entries[e], p))
            return true;
    return false;
}

/* All ranks at once rather than one alone; else the nearest number of threads, *scale times as fast. */
static bool choose_entries(const fo_sim_device *device, int threads, pick *p, double *scale)
{
    *scale = 1;
    for (int alone = 0; alone < 2; alone++) {
        p->threads = threads;
        p->at_once = !alone;
        if (any_fits(device, p))
            return true;
    }
    double nearest = INFINITY;
    for (int e = 0; e < device->entry_count; e++) {
        const fo_sim_entry *entry = &device->entries[e];
        double away = fabs(log2((double)entry->threads / (threads > 0 ? threads : 1)));
        pick like = {p->work, p->dtype, entry->threads, entry->at_once};
        if (!fits(entry, &like) || away > nearest || (away == nearest && !entry->at_once))
            continue;
        nearest = away;
        *p = like;
        *scale = (double)(threads > 0 ? threads : 1) / entry->threads;
    }
    return isfinite(nearest);
}

static double entry_flop_s(const fo_sim_entry *entry)
{
    return entry->time_s /
           fo_sim_cost_flops(entry->work, (double)entry->rows, (double)entry->k, (double)entry->n);
}

/* Seconds of a FLOP at `rows` rows of the shape k x n: linear in log2(rows) between those that were measured. */
static double at_rows(const fo_sim_device *device, const pick *p, int64_t k, int64_t n, double rows)
{
    const fo_sim_entry *below = NULL, *above = NULL;
    for (int e = 0; e < device->entry_count; e++) {
        const fo_sim_entry *entry = &device->entries[e];
        if (!fits(entry, p) || entry->k != k || entry->n != n)
            continue;
        if ((double)entry->rows <= rows && (!below || entry->rows > below->rows))
            below = entry;
        if ((double)entry->rows >= rows && (!above || entry->rows < above->rows))
            above = entry;
    }
    if (!below || !above || below->rows == above->rows)
        return entry_flop_s(below ? below : above);
    double from = log2((double)below->rows), to = log2((double)above->rows);
    double part = (log2(rows) - from) / (to - from);
    return entry_flop_s(below) + part * (entry_flop_s(above) - entry_flop_s(below));
}

typedef struct shape {
    int64_t k, n;
} shape;

static int list_shapes(const fo_sim_device *device, const pick *p, shape *shapes)
{
    int count = 0;
    for (int e = 0; e < device->entry_count && count < SHAPES; e++) {
        const fo_sim_entry *entry = &device->entries[e];
        int s = 0;
        if (!fits(entry, p))
            continue;
        while (s < count && (shapes[s].k != entry->k || shapes[s].n != entry->n))
            s++;
        if (s == count)
            shapes[count++] = (shape){entry->k, entry->n};
    }
    return count;
}

static double least(double a, double b)
{
    return a < b ? a : b;
}

/* Shapes weigh by the inverse square of how many doublings they are away; one that was measured decides alone. */
static double near_shape(const fo_sim_device *device, const pick *p, double rows, double k,
                         double n)
{
    shape shapes[SHAPES];
    int count = list_shapes(device, p, shapes);
    double weights = 0, sum = 0;
    for (int s = 0; s < count; s++) {
        double dk = log2(k / (double)shapes[s].k), dn = log2(n / (double)shapes[s].n);
        double away = dk * dk + dn * dn,
               flop_s = at_rows(device, p, shapes[s].k, shapes[s].n, rows);
        if (away < 1e-12)
            return flop_s;
        weights += 1 / away;
        sum += flop_s / away;
    }
    return sum / weights;
}

/* Whether entries say it. What was not measured follows from what it is made of. */
static bool from_entries(const fo_sim_device *device, fo_sim_work work, fo_dtype dtype, int threads,
                         double rows, double k, double n, double *flop_s)
{
    static const fo_sim_work stands_in[FO_SIM_WORKS] = {[FO_SIM_GEMM] = FO_SIM_GEMM,
                                                        [FO_SIM_WGRAD] = FO_SIM_GEMM,
                                                        [FO_SIM_ATTENTION] = FO_SIM_ATTENTION,
                                                        [FO_SIM_ATTENTION_GRAD] = FO_SIM_ATTENTION};
    pick p = {.work = work, .dtype = dtype};
    double scale;
    if (!choose_entries(device, threads, &p, &scale)) {
        p.work = stands_in[work];
        if (!choose_entries(device, threads, &p, &scale))
            return false;
    }
    *flop_s = near_shape(device, &p, rows, k, n) / scale;
    return true;
}

/* ---- curves, tiles and waves ------------------------------------------------------------------------ */

static double tiles_of(double size, int tile)
{
    return ceil(size / tile);
}

/* Tiles are computed in waves of as many as there are free units; the last wave takes as long as a full one. */
static fo_sim_cost in_waves(const fo_sim_device *d, fo_sim_work work, fo_dtype dtype, double rows,
                            double k, double n, bool messages_in_flight)
{
    bool wgrad = work == FO_SIM_WGRAD;
    int units = d->units - (messages_in_flight ? d->comm_units : 0);
    double height = wgrad ? k : rows, depth = wgrad ? rows : k, size = (double)fo_dtype_size(dtype);
    double waves =
        ceil(tiles_of(height, d->tile_m) * tiles_of(n, d->tile_n) / (units < 1 ? 1 : units));
    double rate = d->flops_per_s[dtype] / d->units * fo_sim_curve_at(&d->by_width, least(k, n));
    double seconds = waves * d->tile_m * d->tile_n * 2 * depth / rate;
    double bytes = (height * depth + depth * n) * size + height * n * (wgrad ? 8 : size);
    double floor_s = d->memory_bytes_per_s > 0 ? bytes / d->memory_bytes_per_s : 0;
    double flops = fo_sim_cost_flops(work, rows, k, n);
    return (fo_sim_cost){d->launch_s, seconds / flops, d->launch_s + floor_s};
}

fo_sim_cost fo_sim_cost_of_product(const fo_sim_device *d, fo_sim_work work, fo_dtype dtype,
                                   int threads, double rows, double k, double n,
                                   bool messages_in_flight)
{
    double flop_s;
    if (!(fo_sim_cost_flops(work, rows, k, n) > 0))
        return (fo_sim_cost){0, 0, 0};
    if (d->entry_count && from_entries(d, work, dtype, threads, rows, k, n, &flop_s))
        return (fo_sim_cost){0, flop_s, 0};
    if (!(d->flops_per_s[dtype] > 0))
        return (fo_sim_cost){d->launch_s, 0, 0};
    if (d->units > 0)
        return in_waves(d, work, dtype, rows, k, n, messages_in_flight);
    double efficiency =
        fo_sim_curve_at(&d->by_rows, rows) * fo_sim_curve_at(&d->by_width, least(k, n));
    return (fo_sim_cost){d->launch_s, 1 / (d->flops_per_s[dtype] * efficiency), 0};
}

fo_sim_cost fo_sim_cost_of_attention(const fo_sim_device *d, fo_sim_work work, fo_dtype dtype,
                                     int threads, double slice_rows, double context, double heads,
                                     double head_dim)
{
    double flop_s;
    if (!(slice_rows > 0 && context > 0 && heads > 0 && head_dim > 0))
        return (fo_sim_cost){0, 0, 0};
    if (d->entry_count && from_entries(d, work, dtype, threads, context, heads, head_dim, &flop_s))
        return (fo_sim_cost){0, flop_s, 0};
    if (!(d->flops_per_s[dtype] > 0))
        return (fo_sim_cost){d->launch_s, 0, 0};
    double efficiency = d->attention_efficiency > 0 ? d->attention_efficiency : 1;
    if (!d->units)
        efficiency *= fo_sim_curve_at(&d->by_rows, slice_rows);
    return (fo_sim_cost){d->launch_s, 1 / (d->flops_per_s[dtype] * efficiency), 0};
}

double fo_sim_cost_pass(const fo_sim_device *device, double bytes)
{
    return device->memory_bytes_per_s > 0 ? bytes / device->memory_bytes_per_s : 0;
}

/* As measured of other weights, an element; else a pass. */
static double pack_s(const fo_sim_device *device, fo_dtype dtype, int threads, double elements)
{
    pick p = {.work = FO_SIM_PACK, .dtype = dtype};
    double scale, seconds = 0, packed = 0;
    if (!choose_entries(device, threads, &p, &scale))
        return fo_sim_cost_pass(device, elements * (4 + (double)fo_dtype_size(dtype)));
    for (int e = 0; e < device->entry_count; e++)
        if (fits(&device->entries[e], &p)) {
            seconds += device->entries[e].time_s;
            packed += (double)device->entries[e].k * (double)device->entries[e].n;
        }
    return packed > 0 ? elements * seconds / packed / scale : 0;
}

double fo_sim_cost_product(const fo_sim_device *device, fo_sim_work work, fo_dtype dtype,
                           int threads, double rows, double k, double n, bool messages_in_flight)
{
    if (work == FO_SIM_PACK)
        return pack_s(device, dtype, threads, k * n);
    bool attention = work == FO_SIM_ATTENTION || work == FO_SIM_ATTENTION_GRAD;
    fo_sim_cost cost =
        attention
            ? fo_sim_cost_of_attention(device, work, dtype, threads, rows, rows, k, n)
            : fo_sim_cost_of_product(device, work, dtype, threads, rows, k, n, messages_in_flight);
    double seconds = cost.launch_s + cost.flop_s * fo_sim_cost_flops(work, rows, k, n);
    return seconds > cost.floor_s ? seconds : cost.floor_s;
}
