/* Random machines and networks. */
#ifndef TESTS_SIM_MACHINES_H
#define TESTS_SIM_MACHINES_H

#include "unit/sim/programs.h"

static inline void random_network(dice *d, fo_sim_network *n, int ranks, int nodes)
{
    n->topology = (fo_sim_topology)below(d, 3);
    n->link.bytes_per_s = below(d, 8) ? between(d, 2e7, 1e9) : 0;
    n->link.latency_s = n->link.bytes_per_s == 0 || below(d, 2) ? between(d, 1e-7, 1e-4) : 0;
    if (below(d, 3) == 0)
        n->link.efficiency = (fo_sim_curve){3, {500, 2000, 9000}, {0.3, between(d, 0.4, 0.8), 1}};
    int inside = ranks;
    if (nodes > 1 || below(d, 4) == 0) {
        n->locals = nodes > 1 ? ranks / nodes : 1 + below(d, ranks);
        n->outer.bytes_per_s = between(d, 1e7, 3e8);
        n->outer.latency_s = between(d, 0, 2e-4);
        n->outer_ports = below(d, 3);
        inside = n->locals < ranks ? n->locals : ranks;
    }
    n->torus[0] = inside;
    for (int size = 2; n->topology == FO_SIM_TORUS && size < inside; size++)
        if (inside % size == 0 && below(d, 2)) {
            n->torus[0] = size;
            n->torus[1] = inside / size;
        }
}

static inline void random_machine(dice *d, fo_sim_machine *m, int ranks, int nodes)
{
    fo_sim_machine_ideal(m);
    random_network(d, &m->network, ranks, nodes);
    m->async = below(d, 2);
    m->views = below(d, 2);
    if (below(d, 2))
        m->task_s = between(d, 0, 1e-5);
    if (below(d, 2))
        m->message_s = between(d, 0, 1e-5);
    if (below(d, 2))
        m->wake_s = between(d, 0, 2e-5);
    if (below(d, 3) == 0)
        m->cpu_s_per_byte = between(d, 0, 1e-9);
    if (below(d, 2))
        m->contention = between(d, 0, 0.5);
}

#endif
