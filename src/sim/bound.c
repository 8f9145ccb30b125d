/* Lower bounds: computation, transfers through every cut, and what has to come before the first message or after the
 * last. */
#include "sim/bound.h"

#include <math.h>

#include "flashoverlap/group.h"

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t left_over(int64_t rows, int64_t unit)
{
    return rows % unit ? rows % unit : unit;
}

int64_t fo_sim_bound_unit(int64_t rows, int ranks, int64_t unit)
{
    int64_t most = fo_shard_rows(rows, ranks, 0), few = fo_shard_rows(rows, ranks, ranks - 1);
    int64_t smallest = least(least(unit, most), left_over(most, unit));
    return few ? least(smallest, left_over(few, unit)) : smallest;
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* ---- ports --------------------------------------------------------------------------------------------- */

/* Seconds of a byte over a link at the best size of a message up to `bytes`; 0: no time. */
static double byte_s(const fo_sim_link *link, double bytes)
{
    double best = fo_sim_curve_at(&link->efficiency, bytes);
    for (int i = 0; i < link->efficiency.points && link->efficiency.x[i] <= bytes; i++)
        best = fmax(best, link->efficiency.y[i]);
    return link->bytes_per_s > 0 ? 1 / (link->bytes_per_s * best) : 0;
}

/* Links over which a rank receives at once from ranks of its machine. */
static int links_of(const fo_sim_network *n, int locals)
{
    int links = 0;
    if (n->topology == FO_SIM_MESH)
        return locals - 1;
    if (n->topology == FO_SIM_SWITCH)
        return 1;
    for (int d = 0; d < FO_SIM_DIMENSIONS; d++)
        links += n->torus[d] > 2 ? 2 : n->torus[d] == 2;
    return links;
}

/* A set of ranks that everything from outside has to come into, and everything to the outside out of. */
typedef struct cut {
    double byte_s; /* of all its ports together */
    double latency_s;
} cut;

typedef struct cuts {
    cut rank, machine;
    int machines;
} cuts;

static cuts find_cuts(const fo_sim_bound_desc *d, double message_bytes)
{
    const fo_sim_network *n = d->network;
    int ranks = d->schedule->ranks;
    int locals = n->locals > 0 && n->locals < ranks ? n->locals : ranks;
    cuts c = {.machines = (ranks + locals - 1) / locals};
    double inner = byte_s(&n->link, message_bytes), outer = byte_s(&n->outer, message_bytes);
    int links = locals > 1 ? links_of(n, locals) : 0;
    c.rank = (cut){links ? inner / links : INFINITY, links ? n->link.latency_s : INFINITY};
    if (c.machines == 1)
        return c;
    int ports = n->outer_ports && n->outer_ports < locals ? n->outer_ports : locals;
    c.machine = (cut){outer / ports, n->outer.latency_s};
    c.rank.latency_s = fmin(c.rank.latency_s, n->outer.latency_s);
    c.rank.byte_s = c.rank.byte_s > 0 && outer > 0 ? 1 / (1 / c.rank.byte_s + 1 / outer) : 0;
    return c;
}

/* Seconds of `rows` rows of all machines' most: what a rank lacks, and what a machine does. */
typedef struct lack {
    double rank, machine;
} lack;

static double larger(cuts c, lack rows, double row_bytes, bool latency)
{
    double rank = rows.rank * row_bytes * c.rank.byte_s + (latency ? c.rank.latency_s : 0);
    if (c.machines == 1 || rows.machine <= 0)
        return rank;
    return fmax(rank,
                rows.machine * row_bytes * c.machine.byte_s + (latency ? c.machine.latency_s : 0));
}

/* ---- what a pattern needs ------------------------------------------------------------------------------ */

typedef struct needs {
    const fo_sim_bound_desc *d;
    bool gathers, reduces;
    double lacks;             /* rows of others, of the rank that has fewest */
    cuts gather, reduce;      /* by the size of their messages */
    double most_in, most_out; /* X of each alone, with latency */
    double both;              /* X of both, without */
    double unit_in, unit_out; /* a unit over the fastest link, with latency */
    double unit_s[2];         /* the smallest unit of each computation */
} needs;

/* The machine with fewest rows lacks most; all machines together lack what each does on average. */
static lack lacks_most(const fo_sim_bound_desc *d, int machines, bool average)
{
    int64_t rows = d->schedule->rows;
    int ranks = d->schedule->ranks;
    if (average)
        return (lack){(double)rows * (ranks - 1) / ranks, (double)rows * (machines - 1) / machines};
    int last = machines > 1 ? (machines - 1) * d->network->locals : 0; /* its first rank */
    int64_t machine = rows - fo_shard_begin(rows, ranks, last);
    return (lack){(double)(rows - fo_shard_rows(rows, ranks, ranks - 1)), (double)(rows - machine)};
}

static double fastest_s(const fo_sim_bound_desc *d, cuts c, double bytes, double message_bytes)
{
    const fo_sim_network *n = d->network;
    double inner = bytes * byte_s(&n->link, message_bytes) + n->link.latency_s;
    double outer = bytes * byte_s(&n->outer, message_bytes) + n->outer.latency_s;
    if (c.machines == 1)
        return inner;
    return n->locals == 1 ? outer : fmin(inner, outer);
}

static needs find_needs(const fo_sim_bound_desc *d)
{
    const fo_schedule_desc *s = d->schedule;
    fo_pattern pattern = s->pattern;
    needs n = {.d = d,
               .gathers = pattern != FO_PATTERN_REDUCE,
               .reduces = pattern == FO_PATTERN_REDUCE || pattern == FO_PATTERN_JOINT ||
                          pattern == FO_PATTERN_BLOCK};
    double message = (double)s->stream_rows, in = d->gather_bytes, out = d->reduce_bytes;
    int64_t cut_rows = common_divisor(s->quantum, s->stream_rows);
    double unit = (double)fo_sim_bound_unit(s->rows, s->ranks, cut_rows);
    n.gather = find_cuts(d, message * in);
    n.reduce = find_cuts(d, message * out);
    lack most = lacks_most(d, n.gather.machines, false);
    lack average = lacks_most(d, n.gather.machines, true);
    n.lacks = most.rank;
    n.most_in = n.gathers ? larger(n.gather, most, in, true) : 0;
    n.most_out = n.reduces ? larger(n.reduce, most, out, true) : 0;
    n.unit_in = fastest_s(d, n.gather, unit * in, message * in);
    n.unit_out = fastest_s(d, n.reduce, unit * out, message * out);
    if (n.gathers && n.reduces)
        n.both = fmax(larger(n.gather, (lack){average.rank, 0}, in, false) +
                          larger(n.reduce, (lack){average.rank, 0}, out, false),
                      n.gather.machines == 1 ? 0
                                             : average.machine * (in * n.gather.machine.byte_s +
                                                                  out * n.reduce.machine.byte_s));
    for (int slot = 0; slot < 2; slot++) {
        int64_t tile = common_divisor(s->quantum, d->tile_rows[slot]);
        n.unit_s[slot] =
            d->row_s[slot] * fmax(unit, (double)fo_sim_bound_unit(s->rows, s->ranks, tile));
    }
    return n;
}

static double most(double a, double b, double c)
{
    return fmax(a, fmax(b, c));
}

/* Without the computation alone. `first`, `second`: what gathered rows go through; `sums`: what partial sums do. */
static double of_pattern(const needs *n)
{
    const double *row_s = n->d->row_s, *unit_s = n->unit_s;
    double first = row_s[0] * n->lacks, second = row_s[1] * n->lacks;
    double both = n->both + n->gather.rank.latency_s;
    switch (n->d->schedule->pattern) {
    case FO_PATTERN_GATHER: return fmax(n->most_in + unit_s[0], n->unit_in + first);
    case FO_PATTERN_WGRAD: return fmax(n->most_in + unit_s[1], n->unit_in + second);
    case FO_PATTERN_GATHER2:
        return fmax(n->most_in + unit_s[0] + unit_s[1], n->unit_in + first + second);
    case FO_PATTERN_REDUCE: return fmax(unit_s[0] + n->most_out, first + n->unit_out);
    case FO_PATTERN_JOINT:
        return most(both, fmax(n->most_in + unit_s[1], n->unit_in + second),
                    fmax(unit_s[0] + n->most_out, first + n->unit_out));
    case FO_PATTERN_BLOCK:
        return most(fmax(both, n->unit_in + first + second + n->unit_out),
                    n->most_in + unit_s[0] + unit_s[1] + n->unit_out,
                    n->unit_in + unit_s[0] + unit_s[1] + n->most_out);
    }
    return 0;
}

fo_sim_bound fo_sim_bound_of(const fo_sim_bound_desc *desc)
{
    fo_sim_bound bound = {0, desc->compute_s};
    if (desc->schedule->ranks < 2 || desc->schedule->rows < 1)
        return bound;
    needs n = find_needs(desc);
    bound.transfer_s = fmax(n.most_in, n.most_out);
    if (n.gathers && n.reduces)
        bound.transfer_s = fmax(bound.transfer_s, n.both + n.gather.rank.latency_s);
    bound.bound_s = fmax(bound.bound_s, of_pattern(&n));
    return bound;
}
