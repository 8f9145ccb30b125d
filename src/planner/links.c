/* Links between tensor-parallel groups. */
#include "planner/links.h"

static int common(int a, int b)
{
    while (b) {
        int rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* What a rank has of its machine's ports when all of its ranks send. */
static double outer_rate(const fo_sim_network *n)
{
    double rate = n->outer.bytes_per_s;
    return n->outer_ports > 0 && n->locals > 0 ? rate * n->outer_ports / n->locals : rate;
}

static double least(double a, double b)
{
    return a > 0 && (b <= 0 || a < b) ? a : b;
}

/* Replicas of which `together` are on a machine use the ports of all of them: so many rings, each leaving the machine
 * at another rank. On a mesh every rank has a link to every other one, and they are used at once. */
fo_planner_link fo_planner_links_replicas(const fo_sim_machine *machine, const fo_planner_split *s)
{
    const fo_sim_network *n = &machine->network;
    int tp = s->options.tp, dp = s->options.dp;
    int together = n->locals <= 0 ? dp : tp >= n->locals ? 1 : common(dp, n->locals / tp);
    double inner = n->link.bytes_per_s;
    if (n->topology == FO_SIM_MESH && together > 1)
        inner *= together - 1;
    if (together == dp)
        return (fo_planner_link){inner, n->link.latency_s, &n->link.efficiency, false};
    double outer = outer_rate(n) * together;
    double rate = together > 1 ? least(outer, inner) : outer;
    return (fo_planner_link){rate, n->outer.latency_s, &n->outer.efficiency, true};
}

fo_planner_link fo_planner_links_stage(const fo_sim_machine *machine, const fo_planner_split *s,
                                       int stage)
{
    const fo_sim_network *n = &machine->network;
    int64_t ranks = (int64_t)s->options.tp * s->options.dp; /* of a stage */
    int next = (stage + 1) % s->options.pp, low = next ? stage : 0, high = next ? next : stage;
    bool apart = n->locals > 0 && low * ranks / n->locals != ((high + 1) * ranks - 1) / n->locals;
    if (apart)
        return (fo_planner_link){outer_rate(n), n->outer.latency_s, &n->outer.efficiency, true};
    return (fo_planner_link){n->link.bytes_per_s, n->link.latency_s, &n->link.efficiency, false};
}

static double occupied_s(const fo_planner_link *link, double bytes)
{
    if (!(link->bytes_per_s > 0) || !(bytes > 0))
        return 0;
    return bytes / (link->bytes_per_s * fo_sim_curve_at(link->efficiency, bytes));
}

double fo_planner_links_message_s(const fo_planner_link *link, double bytes)
{
    return bytes > 0 ? link->latency_s + occupied_s(link, bytes) : 0;
}

double fo_planner_links_ring_s(const fo_planner_link *link, int ranks, double bytes)
{
    return ranks > 1 && bytes > 0
               ? (ranks - 1) * (link->latency_s + occupied_s(link, bytes / ranks))
               : 0;
}
