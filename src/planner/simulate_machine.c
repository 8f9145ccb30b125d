/* The machine of a simulation: its profile, with what the command line says instead. */
#include <string.h>

#include "base/error.h"
#include "planner/simulate.h"
#include "sim/profile.h"

static fo_status no_machine(void)
{
    char names[512] = "";
    size_t used = 0;
    for (const char *const *name = fo_sim_profile_names(); *name && used < sizeof names; name++)
        used +=
            (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", *name);
    return fo_base_error(FO_INVALID,
                         "--machine is missing, expected a file that `flashoverlap calibrate` "
                         "wrote, or one of %s",
                         names);
}

/* ---- machines --------------------------------------------------------------------------------------- */

static fo_status bad_nodes(const fo_simulate_options *o, const fo_sim_machine *machine, int locals)
{
    int full = o->ranks / locals * locals;
    if (full == o->ranks)
        return FO_OK;
    return fo_base_error(FO_INVALID,
                         "--ranks %d don't fill machines of %d (%s), expected %d or %d, or --nodes "
                         "that say how many machines there are",
                         o->ranks, locals, machine->name, full, full + locals);
}

/* How many machines, equally many ranks on each. */
static fo_status find_nodes(const fo_simulate_options *o, const fo_sim_machine *machine, int *nodes)
{
    int locals = machine->network.locals;
    *nodes = o->nodes ? o->nodes : 1;
    if (!o->nodes && locals > 0 && o->ranks > locals) {
        *nodes = o->ranks / locals;
        return bad_nodes(o, machine, locals);
    }
    if (*nodes < 1 || *nodes > o->ranks || o->ranks % *nodes)
        return fo_base_error(FO_INVALID,
                             "--ranks %d can't be spread evenly over --nodes %d, expected a number "
                             "of machines that divides the ranks",
                             o->ranks, o->nodes);
    return FO_OK;
}

static fo_status check_outer(const fo_simulate_options *o, const fo_sim_machine *machine, int nodes)
{
    if (nodes == 1 && o->outer.bytes_per_s > 0)
        return fo_base_error(FO_INVALID,
                             "--outer is the link between machines, but there is one machine; "
                             "expected --nodes too");
    if (nodes == 1 || o->outer.bytes_per_s > 0 || machine->network.outer.bytes_per_s > 0)
        return FO_OK;
    return fo_base_error(FO_INVALID,
                         "%s does not say how machines are linked, and the ranks are on %d of "
                         "them; expected --outer with a link, such as --outer 50GB/s,5us",
                         machine->name, nodes);
}

static fo_sim_link link_of(const fo_link *link)
{
    return (fo_sim_link){.bytes_per_s = link->bytes_per_s, .latency_s = link->latency_s};
}

void fo_planner_simulate_links(fo_sim_network *network, const fo_link *link, const fo_link *outer)
{
    if (link) {
        network->link = link_of(link);
        network->topology = link->topology == FO_MESH ? FO_SIM_MESH : FO_SIM_SWITCH;
    }
    if (outer)
        network->outer = link_of(outer);
}

fo_status fo_planner_simulate_machine(const fo_simulate_options *o, fo_sim_machine *machine,
                                      int *nodes)
{
    memset(machine, 0, sizeof *machine);
    if (!o->machine)
        return no_machine();
    fo_status status = fo_sim_profile_read(o->machine, machine);
    if (status == FO_OK)
        status = find_nodes(o, machine, nodes);
    if (status == FO_OK)
        status = check_outer(o, machine, *nodes);
    if (status != FO_OK)
        return status;
    fo_sim_network *network = &machine->network;
    network->locals = *nodes > 1 ? o->ranks / *nodes : 0;
    bool linked = o->link.bytes_per_s > 0 || o->link_ratio > 0 || o->transfer_s > 0;
    fo_planner_simulate_links(network, linked ? &o->link : NULL,
                              o->outer.bytes_per_s > 0 ? &o->outer : NULL);
    return FO_OK;
}

/* ---- words ------------------------------------------------------------------------------------------ */

static int put_link(const fo_sim_link *link, char *text, size_t size)
{
    if (link->bytes_per_s <= 0)
        return snprintf(text, size, "without cost, %.1f us", link->latency_s * 1e6);
    return snprintf(text, size, "%.1f GB/s, %.1f us", link->bytes_per_s * 1e-9,
                    link->latency_s * 1e6);
}

void fo_planner_simulate_network(const fo_sim_network *n, bool machines, char *text, size_t size)
{
    static const char *const names[] = {"switch", "mesh", "torus"};
    size_t used = (size_t)snprintf(text, size, "%s, ", names[n->topology]);
    used += (size_t)put_link(&n->link, text + used, size - used);
    if (!machines || used >= size)
        return;
    used += (size_t)snprintf(text + used, size - used, "; between machines ");
    if (used < size)
        put_link(&n->outer, text + used, size - used);
}
