/* What a device takes for what is asked of it. */
#include "kernel/emulated/emulated.h"

#include <math.h>

double fo_kernel_emulated_efficiency(const fo_device *device, double rows)
{
    int last = device->points - 1;
    if (last < 0)
        return 1;
    if (!(rows > device->rows[0]))
        return device->efficiency[0];
    if (rows >= device->rows[last])
        return device->efficiency[last];
    int at = 1;
    while (device->rows[at] < rows)
        at++;
    double from = log2(device->rows[at - 1]), to = log2(device->rows[at]);
    double part = (log2(rows) - from) / (to - from);
    return device->efficiency[at - 1] +
           part * (device->efficiency[at] - device->efficiency[at - 1]);
}

double fo_kernel_emulated_product_s(const fo_device *device, double flops, int64_t rows,
                                    int64_t slice_rows)
{
    if (rows <= 0 || !(device->flops_per_s > 0))
        return 0;
    double slice = (double)(slice_rows > rows ? slice_rows : rows);
    double rate = device->flops_per_s * fo_kernel_emulated_efficiency(device, slice);
    return device->launch_s * (double)rows / slice + flops / rate;
}

double fo_kernel_emulated_keys(const fo_run *runs, int64_t run_count, int64_t row, int64_t rows)
{
    double keys = 0;
    for (int64_t i = 0; i < run_count && runs[i].row < row + rows; i++) {
        int64_t begin = row > runs[i].row ? row : runs[i].row;
        int64_t end = row + rows, run_end = runs[i].row + runs[i].rows;
        if (end > run_end)
            end = run_end;
        if (begin >= end)
            continue;
        double count = (double)(end - begin);
        double first = (double)(runs[i].position + begin - runs[i].row + 1);
        keys += count * first + count * (count - 1) / 2;
    }
    return keys;
}
