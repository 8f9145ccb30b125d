/* Ports and routes. */
#include "sim/network.h"

#include <math.h>

#include "base/error.h"

static bool one_machine(const fo_sim_network *network, int ranks)
{
    return network->locals <= 0 || ranks <= network->locals;
}

/* Ranks of a torus up to its last dimension: so many on, only that coordinate differs. */
static int torus_period(const fo_sim_network *network)
{
    int all = 1, before = 1;
    for (int d = 0; d < FO_SIM_DIMENSIONS; d++)
        if (network->torus[d] > 1) {
            before = all;
            all *= network->torus[d];
        }
    return before;
}

int fo_sim_network_period(const fo_sim_network *network, int ranks)
{
    if (!one_machine(network, ranks))
        return ranks % network->locals ? ranks : network->locals;
    return network->topology == FO_SIM_TORUS ? torus_period(network) : 1;
}

static bool link_fits(const fo_sim_link *link)
{
    const fo_sim_curve *curve = &link->efficiency;
    bool fits = link->bytes_per_s >= 0 && isfinite(link->bytes_per_s) && link->latency_s >= 0 &&
                isfinite(link->latency_s) && curve->points >= 0 && curve->points <= FO_SIM_POINTS;
    for (int i = 0; fits && i < curve->points; i++)
        fits = curve->y[i] > 0 && isfinite(curve->y[i]) && curve->x[i] > 0 &&
               (i == 0 || curve->x[i] > curve->x[i - 1]);
    return fits;
}

fo_status fo_sim_network_check(const fo_sim_network *network, int ranks, int period)
{
    int inside = one_machine(network, ranks) ? ranks : network->locals, product = 1;
    if (!link_fits(&network->link) || !link_fits(&network->outer))
        return fo_base_error(FO_INVALID,
                             "simulator: a link of %g bytes/s and %g s, expected 0 or more and an "
                             "efficiency above 0 at sizes that rise",
                             network->link.bytes_per_s, network->link.latency_s);
    if ((unsigned)network->topology > FO_SIM_TORUS || network->outer_ports < 0 ||
        network->locals < 0)
        return fo_base_error(FO_INVALID,
                             "simulator: topology %d with %d ranks and %d shared ports on a "
                             "machine, expected 0 to %d and no negative number",
                             (int)network->topology, network->locals, network->outer_ports,
                             (int)FO_SIM_TORUS);
    for (int d = 0; d < FO_SIM_DIMENSIONS; d++)
        product *= network->torus[d] > 1 ? network->torus[d] : 1;
    if (network->topology == FO_SIM_TORUS && product != inside)
        return fo_base_error(FO_INVALID,
                             "simulator: a torus of %d for %d ranks, expected sizes whose product "
                             "is their number",
                             product, inside);
    int least = fo_sim_network_period(network, ranks);
    if (ranks % period || (period != ranks && period % least))
        return fo_base_error(FO_INVALID,
                             "simulator: a period of %d of %d ranks, expected a divisor, and %d or "
                             "a multiple of it on this network",
                             period, ranks, least);
    return FO_OK;
}

int fo_sim_network_longest(const fo_sim_network *network)
{
    int hops = 1;
    for (int d = 0; network->topology == FO_SIM_TORUS && d < FO_SIM_DIMENSIONS; d++)
        hops += network->torus[d] > 1 ? network->torus[d] / 2 : 0;
    return hops + 1;
}

double fo_sim_network_transfer_s(const fo_sim_link *link, double bytes)
{
    if (link->bytes_per_s <= 0)
        return 0;
    return bytes / (link->bytes_per_s * fo_sim_curve_at(&link->efficiency, bytes));
}

/* Dimension by dimension, the shorter way round (up where both are equal). `first`: the machine's first rank. */
static int torus_ports(const fo_sim_network *network, int ranks, int first, int from, int to,
                       fo_sim_port *ports)
{
    int count = 0, stride = 1, at = from - first, goal = to - first;
    for (int d = 0; d < FO_SIM_DIMENSIONS; d++) {
        int size = network->torus[d] > 1 ? network->torus[d] : 1;
        int here = at / stride % size, there = goal / stride % size;
        int up = (there - here + size) % size;
        bool down = up > size - up;
        while (here != there) {
            ports[count++] = (fo_sim_port){FO_SIM_PORT_LINK, first + at, 2 * d + down,
                                           (from - first - at + ranks) % ranks};
            int next = (here + (down ? size - 1 : 1)) % size;
            at += (next - here) * stride;
            here = next;
        }
        stride *= size;
    }
    ports[count] = ports[count - 1];
    ports[count].kind = FO_SIM_PORT_LINK_END;
    return count + 1;
}

static fo_sim_route outer_route(const fo_sim_network *network, int from, int to, fo_sim_port *ports)
{
    int locals = network->locals, shared = network->outer_ports;
    int ends[2] = {from, to};
    for (int i = 0; i < 2; i++) {
        int local = ends[i] % locals;
        ports[i] = (fo_sim_port){
            .kind = i ? FO_SIM_PORT_OUTER_IN : FO_SIM_PORT_OUTER_OUT,
            .owner = shared ? ends[i] - local : ends[i],
            .which = shared ? (int)((int64_t)local * shared / locals) : 0,
            .order = local,
        };
    }
    return (fo_sim_route){&network->outer, shared > 0, 2};
}

fo_sim_route fo_sim_network_route(const fo_sim_network *network, int ranks, int from, int to,
                                  fo_sim_port *ports)
{
    int locals = one_machine(network, ranks) ? ranks : network->locals;
    if (from / locals != to / locals)
        return outer_route(network, from, to, ports);
    fo_sim_route route = {&network->link, false, 2};
    switch (network->topology) {
    case FO_SIM_SWITCH:
        ports[0] = (fo_sim_port){FO_SIM_PORT_OUT, from, 0, 0};
        ports[1] = (fo_sim_port){FO_SIM_PORT_IN, to, 0, 0};
        break;
    case FO_SIM_MESH:
        ports[0] = (fo_sim_port){FO_SIM_PORT_PAIR_OUT, from, (to - from + ranks) % ranks, 0};
        ports[1] = (fo_sim_port){FO_SIM_PORT_PAIR_IN, to, (from - to + ranks) % ranks, 0};
        break;
    case FO_SIM_TORUS:
        route.shared = true;
        route.ports = torus_ports(network, ranks, from / locals * locals, from, to, ports);
        break;
    }
    return route;
}
