/* Curves, and machines made by hand. */
#include "sim/machine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double fo_sim_curve_at(const fo_sim_curve *curve, double x)
{
    int last = curve->points - 1;
    if (last < 0)
        return 1;
    if (!(x > curve->x[0]))
        return curve->y[0];
    if (x >= curve->x[last])
        return curve->y[last];
    int at = 1;
    while (curve->x[at] < x)
        at++;
    double from = log2(curve->x[at - 1]), to = log2(curve->x[at]);
    return curve->y[at - 1] + (log2(x) - from) / (to - from) * (curve->y[at] - curve->y[at - 1]);
}

void fo_sim_machine_ideal(fo_sim_machine *machine)
{
    memset(machine, 0, sizeof *machine);
    strcpy(machine->name, "ideal");
    machine->async = machine->views = true;
    machine->device.tile_rows = 64;
    machine->device.wgrad_rows = 256;
}

void fo_sim_machine_free(fo_sim_machine *machine)
{
    free(machine->memory);
    machine->memory = NULL;
    machine->device.entries = NULL;
    machine->device.entry_count = 0;
}

/* A call of an emulated kernel is of at most so many rows (kernel/emulated/table.c). */
enum { EMULATED_ROWS = 1024 };

/* After a wait computing goes on that much late, as kernel/emulated/emulated.h says. */
static const double emulated_wake_s = 20e-6;

void fo_sim_machine_set_link(fo_sim_machine *machine, const fo_link *link)
{
    if (!(link->bytes_per_s > 0))
        return;
    machine->network = (fo_sim_network){
        .topology = link->topology == FO_MESH ? FO_SIM_MESH : FO_SIM_SWITCH,
        .link = {.bytes_per_s = link->bytes_per_s, .latency_s = link->latency_s},
    };
}

void fo_sim_machine_emulated(const fo_device *device, const fo_link *link, fo_sim_machine *machine)
{
    fo_sim_machine_ideal(machine);
    strcpy(machine->name, "emulated");
    strcpy(machine->about, "an emulated device and link");
    machine->async = false;
    machine->device.tile_rows = machine->device.wgrad_rows = EMULATED_ROWS;
    machine->wake_s = emulated_wake_s;
    if (device) {
        machine->device.flops_per_s[FO_F32] = machine->device.flops_per_s[FO_BF16] =
            device->flops_per_s;
        machine->device.launch_s = device->launch_s;
        machine->device.memory_bytes_per_s = device->bytes_per_s;
        fo_sim_curve *curve = &machine->device.by_rows;
        curve->points = device->points;
        memcpy(curve->x, device->rows, (size_t)device->points * sizeof *curve->x);
        memcpy(curve->y, device->efficiency, (size_t)device->points * sizeof *curve->y);
    }
    if (link)
        fo_sim_machine_set_link(machine, link);
}
