/* Bounds and derived figures. */
#include "measure/bound.h"

#include <math.h>

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The last unit of a shard of `rows` rows. */
static int64_t left_over(int64_t rows, int64_t unit)
{
    return rows % unit ? rows % unit : unit;
}

int64_t fo_measure_bound_unit(int64_t rows, int ranks, int64_t unit)
{
    int64_t most = fo_shard_rows(rows, ranks, 0), few = fo_shard_rows(rows, ranks, ranks - 1);
    int64_t smallest = least(unit, most);
    smallest = least(smallest, left_over(most, unit));
    return few ? least(smallest, left_over(few, unit)) : smallest;
}

double fo_measure_bound_transfer_ms(double bytes, const fo_link *link)
{
    if (link->bytes_per_s <= 0)
        return NAN;
    return (bytes / link->bytes_per_s + link->latency_s) * 1e3;
}

double fo_measure_bound_ms(double compute_ms, double bytes, double edge, const fo_link *link,
                           int ranks)
{
    if (link->bytes_per_s <= 0 || bytes <= 0)
        return compute_ms;
    /* a rank of a mesh may use all its links at once */
    int links = link->topology == FO_MESH && ranks > 2 ? ranks - 1 : 1;
    return fmax(compute_ms, fo_measure_bound_transfer_ms(bytes / links, link) + edge * compute_ms);
}

double fo_measure_bound_hidden(double ect_ms, double ect_none_ms)
{
    return ect_none_ms > 0 ? 100 * (1 - ect_ms / ect_none_ms) : NAN;
}

double fo_measure_bound_faster(double t_ms, double t_none_ms)
{
    return t_none_ms > 0 ? 100 * (1 - t_ms / t_none_ms) : NAN;
}

double fo_measure_bound_efficiency(const fo_device *device, double rows)
{
    const double *at = device->rows, *efficiency = device->efficiency;
    int last = device->points - 1, next = 1;
    if (last < 0)
        return 1;
    if (rows <= at[0])
        return efficiency[0];
    if (rows >= at[last])
        return efficiency[last];
    while (at[next] < rows)
        next++;
    double part = log2(rows / at[next - 1]) / log2(at[next] / at[next - 1]);
    return efficiency[next - 1] + part * (efficiency[next] - efficiency[next - 1]);
}
