/* No program is faster than the bound, on any machine; and flash meets it where its transfers fit behind the
 * computations they belong to (docs/simulator.md says when that is). */
#include "unit/sim/machines.h"

#include <math.h>

#include "flashoverlap/group.h"
#include "sim/bound.h"

enum { TILE = 4, ROW_BYTES = 1000, MOST_ROWS = 6 * 6 * 2 * TILE + 32 };

/* Rows cost what they do in whatever tile they are. */
typedef struct costs {
    double before[2][MAX_RANKS][MOST_ROWS + 1]; /* by slot and rank: of all rows before this one */
    double add_s;                               /* of a row of an addition */
} costs;

static double tile_s(const void *context, int rank, const fo_task *task, int64_t row, int64_t rows)
{
    const costs *c = context;
    if (task->kind != FO_TASK_COMPUTE)
        return c->add_s * (double)rows;
    const double *before = c->before[task->slot][rank];
    return before[row + rows] - before[row];
}

/* Every row costs row_s, or on the slot and rank up to `uneven` times as much. */
static void fill_costs(costs *c, const double row_s[2], double uneven, double add_s, dice *d)
{
    c->add_s = add_s;
    for (int slot = 0; slot < 2; slot++)
        for (int r = 0; r < 6; r++)
            for (int row = 0; row < MOST_ROWS; row++)
                c->before[slot][r][row + 1] =
                    c->before[slot][r][row] +
                    row_s[slot] * (uneven > 1 ? between(d, 1, uneven) : 1);
}

static bool uses(fo_pattern pattern, int slot)
{
    if (pattern == FO_PATTERN_GATHER || pattern == FO_PATTERN_REDUCE)
        return slot == 0;
    return pattern != FO_PATTERN_WGRAD || slot == 1;
}

static fo_sim_bound bound_of(const fo_schedule_desc *desc, const fo_sim_network *network,
                             const costs *c, const double row_s[2])
{
    fo_sim_bound_desc b = {.schedule = desc,
                           .network = network,
                           .gather_bytes = ROW_BYTES,
                           .reduce_bytes = ROW_BYTES,
                           .tile_rows = {TILE, desc->quantum},
                           .row_s = {row_s[0], row_s[1]}};
    for (int r = 0; r < desc->ranks; r++) {
        double sum = 0;
        for (int slot = 0; slot < 2; slot++)
            sum += uses(desc->pattern, slot) ? c->before[slot][r][desc->rows] : 0;
        b.compute_s = fmax(b.compute_s, sum);
    }
    return fo_sim_bound_of(&b);
}

static fo_sim_run run_of(const fo_schedule_desc *desc, const fo_sim_machine *machine,
                         const costs *c)
{
    set s = build(desc, desc->ranks);
    fo_sim_engine_desc engine = engine_of(&s, machine, tile_s, c);
    engine.tile_rows[0] = TILE;
    engine.tile_rows[1] = desc->quantum;
    fo_sim_run run;
    if (fo_sim_engine_run(&engine, &run, NULL) != FO_OK)
        fail_msg("%s", fo_last_error());
    destroy(&s);
    return run;
}

static void describe_case(char *text, size_t size, const fo_schedule_desc *d,
                          const fo_sim_machine *m)
{
    char strategy[32];
    fo_strategy_print(d->strategy, strategy, sizeof strategy);
    snprintf(
        text, size,
        "%s %s, %d ranks on %d, %d rows in messages of %d, quantum %d; topology %d, locals %d, "
        "ports %d, link %g bytes/s and %g s",
        pattern_names[d->pattern], strategy, d->ranks, d->nodes, (int)d->rows, (int)d->stream_rows,
        (int)d->quantum, (int)m->network.topology, m->network.locals, m->network.outer_ports,
        m->network.link.bytes_per_s, m->network.link.latency_s);
}

/* ---- nothing is faster --------------------------------------------------------------------------------- */

static void not_below(const fo_schedule_desc *desc, const fo_sim_machine *machine, const costs *c,
                      const double row_s[2])
{
    fo_sim_bound bound = bound_of(desc, &machine->network, c, row_s);
    fo_sim_run run = run_of(desc, machine, c);
    char text[400];
    if (run.total_s >= bound.bound_s * (1 - 1e-9))
        return;
    describe_case(text, sizeof text, desc, machine);
    fail_msg("%s: %.12g s, but no program takes less than %.12g s", text, run.total_s,
             bound.bound_s);
}

static void networks_of(dice *d, fo_sim_network *n, int kind, int ranks, double bytes_per_s)
{
    *n = (fo_sim_network){.link.bytes_per_s = bytes_per_s, .outer.bytes_per_s = bytes_per_s / 2};
    n->topology = (fo_sim_topology)(kind % 3);
    if (kind & 1)
        n->link.latency_s = between(d, 0, 1e-4);
    if (kind & 2)
        n->outer.latency_s = between(d, 0, 1e-4);
    if (below(d, 3) == 0)
        n->link.efficiency = (fo_sim_curve){3, {1500, 4500, 9000}, {0.4, 0.9, 0.8}};
    int inside = ranks;
    if (kind >= 3) { /* machines, also such that do not divide the ranks */
        n->locals = 1 + below(d, ranks);
        n->outer_ports = below(d, 3);
        inside = n->locals < ranks ? n->locals : ranks;
    }
    n->torus[0] = inside % 2 == 0 && below(d, 2) ? inside / 2 : inside;
    n->torus[2] = inside / n->torus[0];
}

static const char *const strategies[] = {"none",     "slice:1",  "slice:2",  "slice:3", "ring",
                                         "flash",    "flash:1",  "flash:2",  "flash:3", "direct",
                                         "direct:1", "direct:2", "direct:3", "hier:1",  "hier:2",
                                         "hier:3",   "none/hier"};

enum { STRATEGIES = sizeof strategies / sizeof *strategies };

/* Ideal machines, and such on which everything goes wrong. */
static void some_machine(dice *d, fo_sim_machine *m, int ranks, int network, double bytes_per_s)
{
    fo_sim_machine_ideal(m);
    m->async = m->views = true;
    if (below(d, 2))
        random_machine(d, m, ranks, 1);
    networks_of(d, &m->network, network, ranks, bytes_per_s);
}

static void all_programs(void **unused)
{
    (void)unused;
    static costs even, uneven;
    dice d = {1, 0};
    const double row_s[2] = {1e-5, 0.7e-5}, ratios[] = {0.3, 1, 3};
    int64_t extra[] = {0, 1, 5, 11};
    fill_costs(&even, row_s, 1, 0, &d);
    fill_costs(&uneven, row_s, 2, 1e-7, &d);
    for (int ranks = 1; ranks <= 6; ranks++)
        for (int pattern = 0; pattern < 6; pattern++)
            for (int s = 0; s < STRATEGIES; s++)
                for (int shape = 0; shape < 8; shape++)
                    for (int ratio = 0; ratio < 3; ratio++)
                        for (int network = 0; network < 6; network++) {
                            int64_t stream = TILE * (1 + below(&d, 2));
                            int64_t quantum = TILE * (1 + below(&d, 3));
                            int64_t rows = ranks * stream * (1 + below(&d, 3)) +
                                           extra[shape % 4] * (shape > 3);
                            fo_schedule_desc desc = describe((fo_pattern)pattern, strategies[s],
                                                             ranks, rows, quantum, stream);
                            bool nested = strstr(strategies[s], "hier") != NULL;
                            desc.nodes = nested && ranks % 2 == 0   ? 2
                                         : nested && ranks % 3 == 0 ? 3
                                                                    : 1;
                            fo_sim_machine m;
                            double per_row_s = (row_s[0] + row_s[1]) / ratios[ratio];
                            some_machine(&d, &m, ranks, network, ROW_BYTES / per_row_s);
                            not_below(&desc, &m, shape & 1 ? &uneven : &even, row_s);
                        }
}

/* ---- flash is as fast ---------------------------------------------------------------------------------- */

/* Of a message: on a port, by kind, and computed, by slot. */
typedef struct fit {
    int ranks, messages; /* of a shard */
    double x1, x2, g0, g1;
} fit;

static bool flash_fits(fo_pattern pattern, const fit *f)
{
    double s = f->messages, step_s = s * (f->g0 + f->g1);
    switch (pattern) {
    case FO_PATTERN_GATHER:
    case FO_PATTERN_WGRAD: return true;
    case FO_PATTERN_GATHER2: return f->x1 <= f->g0 + f->g1;
    case FO_PATTERN_REDUCE: return f->x2 <= f->g0 && f->x2 <= (s - 1) * f->g0;
    case FO_PATTERN_JOINT: return s * (f->x1 + f->x2) + f->g0 <= step_s;
    case FO_PATTERN_BLOCK:
        return s * (f->x1 + f->x2) + f->g1 <= step_s && f->x1 <= f->g0 && f->x2 <= f->g1 && s > 1;
    }
    return false;
}

static bool direct_fits(fo_pattern pattern, const fit *f)
{
    double s = f->messages;
    switch (pattern) {
    case FO_PATTERN_GATHER: return f->x1 <= f->g0;
    case FO_PATTERN_WGRAD: return f->x1 <= f->g1;
    case FO_PATTERN_GATHER2: return f->x1 <= f->g0 + f->g1;
    case FO_PATTERN_REDUCE: return f->ranks == 2 && f->x2 <= f->g0 && f->x2 <= (s - 1) * f->g0;
    case FO_PATTERN_JOINT: return s * (f->x1 + f->x2) <= s * f->g1;
    default: return false; /* the last addition waits for the last message: one message above */
    }
}

static bool meets(const fo_schedule_desc *desc, const fo_sim_machine *m, const costs *c,
                  const double row_s[2], bool must)
{
    fo_sim_bound bound = bound_of(desc, &m->network, c, row_s);
    fo_sim_run run = run_of(desc, m, c);
    bool exact = fabs(run.total_s - bound.bound_s) <= 1e-9 * bound.bound_s;
    char text[400];
    if (exact || !must)
        return exact;
    describe_case(text, sizeof text, desc, m);
    fail_msg("%s: %.12g s, expected it to meet %.12g s", text, run.total_s, bound.bound_s);
    return false;
}

static void flash_meets_it(void **unused)
{
    (void)unused;
    static costs c;
    dice d = {2, 0};
    int met = 0, cases = 0;
    const double times[][2] = {{1e-5, 1e-5}, {2e-5, 0.7e-5}, {0.6e-5, 1.9e-5}};
    const double ratios[] = {0.05, 0.3, 0.6, 0.8, 0.95, 1.0, 1.1, 1.5, 3};
    for (int t = 0; t < 3; t++) {
        fill_costs(&c, times[t], 1, 0, &d);
        for (int ranks = 2; ranks <= 6; ranks++)
            for (int pattern = 0; pattern < 6; pattern++)
                for (int messages = 1; messages <= 6; messages++)
                    for (int ratio = 0; ratio < 9; ratio++)
                        for (int form = 0; form < 10; form++) {
                            const char *names[] = {"flash", "flash:1", "flash:2", "flash:3",
                                                   "direct"};
                            fo_schedule_desc desc =
                                describe((fo_pattern)pattern, names[form / 2], ranks,
                                         (int64_t)ranks * messages * TILE, TILE, TILE);
                            fo_sim_machine m;
                            fo_sim_machine_ideal(&m);
                            m.network.topology = form % 2 ? FO_SIM_MESH : FO_SIM_SWITCH;
                            double g0 = times[t][0] * TILE, g1 = times[t][1] * TILE;
                            double all =
                                (uses(desc.pattern, 0) ? g0 : 0) + (uses(desc.pattern, 1) ? g1 : 0);
                            bool both = pattern == FO_PATTERN_JOINT || pattern == FO_PATTERN_BLOCK;
                            double x = ratios[ratio] * all / (both ? 2 : 1);
                            m.network.link.bytes_per_s = TILE * ROW_BYTES / x;
                            fit f = {ranks, messages, x, x, g0, g1};
                            bool direct = form / 2 == 4;
                            bool must = direct ? direct_fits(desc.pattern, &f)
                                               : flash_fits(desc.pattern, &f);
                            /* a ring has one of a mesh's many links, and does not meet what all could do */
                            if (form % 2 && ranks > 2)
                                must = must && messages > 1 && x <= (both ? all / 2 : all);
                            met += meets(&desc, &m, &c, times[t], must);
                            cases++;
                        }
    }
    print_message("%d of %d meet it\n", met, cases);
    assert_true(met > cases / 2);
}

/* Shards that differ by a row, and messages of few rows at their ends: computing is the bound where there is room. */
static void uneven_rows(void **unused)
{
    (void)unused;
    static costs c;
    dice d = {4, 0};
    const char *const names[] = {"flash", "flash:1", "flash:2"};
    const double row_s[2] = {1e-5, 1.3e-5};
    fill_costs(&c, row_s, 1, 0, &d);
    for (int i = 0; i < 2000; i++) {
        int ranks = 2 + below(&d, 5);
        int64_t rows = ranks * TILE * (4 + below(&d, 3)) + 1 + below(&d, ranks * TILE - 1);
        fo_schedule_desc desc =
            describe((fo_pattern)below(&d, 6), names[below(&d, 3)], ranks, rows, TILE, TILE);
        fo_sim_machine m;
        fo_sim_machine_ideal(&m);
        m.network.topology = below(&d, 2) ? FO_SIM_MESH : FO_SIM_SWITCH;
        m.network.link.bytes_per_s = ROW_BYTES / (row_s[0] * between(&d, 0.05, 0.5));
        meets(&desc, &m, &c, row_s, true);
    }
}

/* Above the bound where links are slower than computing: by the tile whose addition follows its computation. */
static void by_one_tile(void **unused)
{
    (void)unused;
    static costs c;
    dice d = {3, 0};
    const double row_s[2] = {1e-5, 1e-5};
    fill_costs(&c, row_s, 1, 0, &d);
    for (int ranks = 2; ranks <= 6; ranks++)
        for (double ratio = 1.3; ratio < 5; ratio *= 1.4) {
            fo_schedule_desc desc =
                describe(FO_PATTERN_REDUCE, "flash", ranks, (int64_t)ranks * 6 * TILE, TILE, TILE);
            fo_sim_machine m;
            fo_sim_machine_ideal(&m);
            m.network.link.bytes_per_s = ROW_BYTES / (ratio * row_s[0]);
            fo_sim_bound bound = bound_of(&desc, &m.network, &c, row_s);
            double above = run_of(&desc, &m, &c).total_s - bound.bound_s, g = row_s[0] * TILE;
            double room = bound_of(&desc, &m.network, &c, row_s).bound_s - bound.transfer_s - g;
            assert_true(fabs(above - fmax(0, g - room)) < 1e-12);
        }
}

/* ---- by hand ------------------------------------------------------------------------------------------- */

static void by_hand(void **unused)
{
    (void)unused;
    fo_schedule_desc desc = describe(FO_PATTERN_GATHER, "flash", 4, 400, 10, 10);
    fo_sim_network n = {.link = {.bytes_per_s = 1e6, .latency_s = 1e-3}};
    fo_sim_bound_desc b = {.schedule = &desc,
                           .network = &n,
                           .gather_bytes = 100,
                           .reduce_bytes = 200,
                           .tile_rows = {10, 10},
                           .compute_s = 4e-3,
                           .row_s = {1e-5, 2e-5}};
    fo_sim_bound bound = fo_sim_bound_of(&b);
    assert_true(fabs(bound.transfer_s - (300 * 1e-4 + 1e-3)) < 1e-12);
    assert_true(fabs(bound.bound_s - (bound.transfer_s + 10 * 1e-5)) < 1e-12);
    n.topology = FO_SIM_MESH; /* three links at once */
    assert_true(fabs(fo_sim_bound_of(&b).transfer_s - (100 * 1e-4 + 1e-3)) < 1e-12);
    n.topology = FO_SIM_SWITCH;
    desc.pattern = FO_PATTERN_JOINT; /* both ways through one port */
    assert_true(fabs(fo_sim_bound_of(&b).bound_s - (300 * 3e-4 + 1e-3)) < 1e-12);
    b.compute_s = 1;
    assert_true(fo_sim_bound_of(&b).bound_s == 1);
    desc.ranks = 1;
    assert_true(fo_sim_bound_of(&b).transfer_s == 0);
    desc.ranks = 4;
    desc.pattern = FO_PATTERN_REDUCE; /* 2 machines: 200 rows have to leave one, by one port */
    n.locals = 2;
    n.outer_ports = 1;
    n.outer = (fo_sim_link){.bytes_per_s = 1e5};
    assert_true(fabs(fo_sim_bound_of(&b).transfer_s - 200 * 2e-3) < 1e-12);
    assert_int_equal(fo_sim_bound_unit(401, 4, 10), 1);
    assert_int_equal(fo_sim_bound_unit(398, 4, 10), 9);
    assert_int_equal(fo_sim_bound_unit(3, 4, 10), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_programs),
                                       cmocka_unit_test(flash_meets_it),
                                       cmocka_unit_test(uneven_rows), cmocka_unit_test(by_one_tile),
                                       cmocka_unit_test(by_hand)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
