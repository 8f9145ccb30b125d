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
