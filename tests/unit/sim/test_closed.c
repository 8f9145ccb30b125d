/* Closed forms against the engine: within 1 % where they say anything, over random programs, machines and operations;
 * and against the formulas of docs/simulator.md. */
#include "unit/sim/machines.h"

#include <math.h>

#include "schedule/operation.h"
#include "sim/closed.h"
#include "sim/operation.h"
#include "sim/profile.h"

static const char *const strategies[] = {"none",    "slice:2", "slice:4", "ring",    "flash",
                                         "flash:1", "flash:2", "direct",  "direct:2"};

enum { STRATEGIES = sizeof strategies / sizeof *strategies, TILE = 64, ROW_BYTES = 1000 };

typedef struct costs {
    double row_s[2], add_s;
} costs;

static double tile_s(const void *context, int rank, const fo_task *task, int64_t row, int64_t rows)
{
    const costs *c = context;
    (void)rank, (void)row;
    return (double)rows * (task->kind == FO_TASK_COMPUTE ? c->row_s[task->slot] : c->add_s);
}

static double all_of(fo_pattern pattern, const double row_s[2])
{
    if (pattern == FO_PATTERN_GATHER || pattern == FO_PATTERN_REDUCE)
        return row_s[0];
    return pattern == FO_PATTERN_WGRAD ? row_s[1] : row_s[0] + row_s[1];
}

/* ---- programs ------------------------------------------------------------------------------------------ */

typedef struct tally {
    int cases, said[6][STRATEGIES], of[6][STRATEGIES];
    double worst, exposed;
} tally;

/* What machines do: nothing but links; they slow computing down; software; one thread does it all. */
enum { LINKS, SLOWED, SOFTWARE, ONE_THREAD, KINDS };

static void random_costs(dice *d, int kind, const fo_schedule_desc *desc, fo_sim_machine *m,
                         costs *c)
{
    *c = (costs){{between(d, 0.3e-6, 3e-6), between(d, 0.3e-6, 3e-6)},
                 below(d, 2) ? between(d, 0, 1e-7) : 0};
    double compute_s = (double)desc->rows * all_of(desc->pattern, c->row_s);
    double ratio = exp(between(d, log(0.05), log(4)));
    bool both = desc->pattern == FO_PATTERN_JOINT || desc->pattern == FO_PATTERN_BLOCK;
    double bytes =
        (double)desc->rows * (desc->ranks - 1) / desc->ranks * ROW_BYTES * (both ? 2 : 1);
    fo_sim_machine_ideal(m);
    m->network.topology = below(d, 4) ? FO_SIM_SWITCH : FO_SIM_MESH;
    m->network.link.bytes_per_s = bytes / (ratio * compute_s);
    if (below(d, 2))
        m->network.link.latency_s = between(d, 0, 1e-4);
    if (below(d, 2))
        m->network.link.efficiency = (fo_sim_curve){3, {10000, 40000, 200000}, {0.5, 0.8, 1}};
    m->views = below(d, 2);
    if (kind >= SLOWED && below(d, 2))
        m->contention = between(d, 0, 0.5);
    if (kind < SOFTWARE)
        return;
    m->task_s = below(d, 2) ? between(d, 0, 1e-5) : 0;
    m->message_s = below(d, 2) ? between(d, 0, 5e-6) : 0;
    m->wake_s = below(d, 2) ? between(d, 0, 1e-5) : 0;
    m->async = kind < ONE_THREAD;
}

static void one_program(uint64_t key, int kind, tally *t)
{
    dice d = {key, 0};
    int ranks = 2 + below(&d, 15), pattern = below(&d, 6), strategy = below(&d, STRATEGIES);
    bool blocks = pattern >= FO_PATTERN_GATHER2 && pattern <= FO_PATTERN_WGRAD && below(&d, 2);
    int64_t rows =
        (int64_t)ranks * (TILE * (1 + below(&d, 32)) + (below(&d, 4) ? 0 : below(&d, TILE)));
    fo_schedule_desc desc =
        describe((fo_pattern)pattern, strategies[strategy], ranks, rows, blocks ? 256 : TILE,
                 TILE * (below(&d, 3) ? 1 : 1 + below(&d, 3)));
    fo_sim_machine m;
    costs c;
    random_costs(&d, kind, &desc, &m, &c);
    set s = build(&desc, 1);
    fo_sim_engine_desc engine = engine_of(&s, &m, tile_s, &c);
    engine.tile_rows[0] = TILE;
    fo_sim_run run, closed;
    if (fo_sim_engine_run(&engine, &run, NULL) != FO_OK)
        fail_msg("%s", fo_last_error());
    fo_status status = fo_sim_closed_run(&engine, &closed, NULL);
    destroy(&s);
    t->cases++;
    t->of[pattern][strategy]++;
    if (status == FO_UNSUPPORTED)
        return;
    if (status != FO_OK)
        fail_msg("%s", fo_last_error());
    t->said[pattern][strategy]++;
    double error = fabs(closed.total_s / run.total_s - 1);
    t->worst = fmax(t->worst, error);
    if (error > 0.01)
        fail_msg("case %d of kind %d, %s %s of %d ranks, %d rows: %.9g s, simulated %.9g s",
                 (int)key, kind, pattern_names[pattern], strategies[strategy], ranks, (int)rows,
                 closed.total_s, run.total_s);
    assert_int_equal(closed.worst.sent_bytes, run.worst.sent_bytes);
    assert_int_equal(closed.worst.messages, run.worst.messages);
    t->exposed = fmax(t->exposed, fabs(closed.max_exposed_s - run.max_exposed_s) / run.total_s);
}

/* How much of what there is they have to say something about at least: with two kinds of messages on a port less. */
static void programs(void **unused)
{
    (void)unused;
    for (int kind = 0; kind < KINDS; kind++) {
        tally t = {0};
        int said = 0;
        for (int i = 0; i < 8000; i++)
            one_program((uint64_t)i, kind, &t);
        for (int p = 0; p < 6; p++)
            for (int s = 0; s < STRATEGIES; s++) {
                bool both = p == FO_PATTERN_JOINT || p == FO_PATTERN_BLOCK;
                said += t.said[p][s];
                if (kind == LINKS && !both)
                    assert_int_equal(t.said[p][s], t.of[p][s]);
                if (kind <= SLOWED && both && (s == 0 || s == 3))
                    assert_true(t.said[p][s] > t.of[p][s] * 8 / 10);
            }
        print_message("kind %d: said %d of %d, worst %.4f, of waits %.4f\n", kind, said, t.cases,
                      t.worst, t.exposed);
        assert_true(t.exposed < 0.03);
        const int percent[KINDS] = {85, 75, 50, 30};
        assert_true(said > t.cases * percent[kind] / 100);
    }
}

/* ---- formulas ------------------------------------------------------------------------------------------ */

typedef struct shape {
    double n, s, x, a, g; /* ranks, messages of a shard; of one: transfer, latency, computing */
} shape;

static double most(double a, double b, double c)
{
    return fmax(a, fmax(b, c));
}

static double gather_flash(shape f)
{
    double slow = fmax(f.x, f.g);
    return most(f.n * f.s * f.g, f.x + f.a + f.g + ((f.n - 1) * f.s - 1) * slow,
                f.x + f.a + f.g + (f.n - 2) * (f.a + f.x) + (f.s - 1) * slow);
}

static double reduce_flash(shape f)
{
    double slow = fmax(f.x, f.g);
    return most(f.n * f.s * f.g, 2 * f.g + f.x + f.a + ((f.n - 1) * f.s - 1) * slow,
                f.n * f.g + (f.n - 1) * (f.x + f.a) + (f.s - 1) * slow);
}

/* Of a whole collective, pipelined message by message: a hop begins when its shard has come, and its link is free. */
static double collective(shape f)
{
    return (f.n - 2) * fmax(f.s * f.x, f.x + f.a) + f.s * f.x + f.a;
}

static double none(shape f)
{
    return collective(f) + f.n * f.s * f.g;
}

/* In two chunks, one gathered behind the other's computation. */
static double gather_slice(shape f)
{
    double all = f.n * f.s * f.g;
    f.s /= 2;
    return fmax(collective(f) + all, 2 * collective(f) + all / 2);
}

/* A step computes a shard while the next one comes. */
static double gather_ring(shape f)
{
    return (f.n - 1) * fmax(f.s * f.g, f.s * f.x + f.a) + f.s * f.g;
}

static void formulas(void **unused)
{
    (void)unused;
    const struct {
        fo_pattern pattern;
        const char *strategy;
        double (*of)(shape);
    } forms[] = {{FO_PATTERN_GATHER, "flash", gather_flash},
                 {FO_PATTERN_REDUCE, "flash", reduce_flash},
                 {FO_PATTERN_GATHER, "none", none},
                 {FO_PATTERN_REDUCE, "none", none},
                 {FO_PATTERN_GATHER, "slice:2", gather_slice},
                 {FO_PATTERN_GATHER, "ring", gather_ring}};
    for (int i = 0; i < 2000; i++) {
        dice d = {(uint64_t)i, 0};
        int form = below(&d, 6), ranks = 2 + below(&d, 15), messages = 2 * (1 + below(&d, 10));
        costs c = {{between(&d, 0.3e-6, 3e-6), 0}, 0};
        fo_sim_machine m;
        fo_sim_machine_ideal(&m);
        double ratio = exp(between(&d, log(0.05), log(4))), x = ratio * c.row_s[0] * TILE;
        m.network.link = (fo_sim_link){.bytes_per_s = TILE * ROW_BYTES / x,
                                       .latency_s = below(&d, 2) ? between(&d, 0, 20 * x) : 0};
        fo_schedule_desc desc = describe(forms[form].pattern, forms[form].strategy, ranks,
                                         (int64_t)ranks * messages * TILE, TILE, TILE);
        set s = build(&desc, 1);
        fo_sim_engine_desc engine = engine_of(&s, &m, tile_s, &c);
        fo_sim_run run, closed;
        assert_int_equal(fo_sim_engine_run(&engine, &run, NULL), FO_OK);
        assert_int_equal(fo_sim_closed_run(&engine, &closed, NULL), FO_OK);
        double expected = forms[form].of(
            (shape){ranks, messages, x, m.network.link.latency_s, c.row_s[0] * TILE});
        if (fabs(run.total_s / expected - 1) > 1e-8 || fabs(closed.total_s / expected - 1) > 1e-8)
            fail_msg("case %d, %s %s of %d ranks, %d messages: %.9g s, simulated %.9g s, expected "
                     "%.9g s",
                     i, pattern_names[forms[form].pattern], forms[form].strategy, ranks, messages,
                     closed.total_s, run.total_s, expected);
        destroy(&s);
    }
}

/* ---- operations on shipped machines -------------------------------------------------------------------- */

static fo_sim_operation random_operation(dice *d)
{
    int ranks = 2 << below(d, 3);
    int64_t context = 256 << below(d, 5), batch = 1 << below(d, 5), dim = 1024 << below(d, 4);
    fo_sim_operation o = {.ranks = ranks, .threads = 1, .packed = true};
    fo_plan_desc *p = &o.desc;
    p->op = (fo_op)below(d, FO_SCHEDULE_OPERATIONS);
    p->rows = context * batch;
    p->in = dim;
    p->out = p->hidden = 4 * dim / ranks;
    p->dtype = p->wire = p->y_dtype = FO_BF16;
    p->overlap = strategies[below(d, STRATEGIES)];
    if (p->op == FO_ROW_FORWARD || p->op == FO_ROW_BACKWARD)
        p->in = 4 * dim / ranks;
    if (p->op == FO_ROW_FORWARD || p->op == FO_ROW_BACKWARD || p->op == FO_MLP_FORWARD)
        p->out = dim;
    if (!fo_schedule_operation_has_attention(p->op))
        return o;
    p->in = dim / ranks;
    p->out = dim;
    p->attention = (fo_plan_attention){.batch = batch,
                                       .context = context,
                                       .heads = (int)(p->in / 64),
                                       .head_dim = 64,
                                       .total_heads = (int)(dim / 64),
                                       .order = FO_ROWS_BALANCED};
    return o;
}

static void operations(void **unused)
{
    (void)unused;
    const char *const names[] = {"a100-sxm", "h100-sxm", "mi300x", "cpu-25g", "b200", "ideal"};
    fo_sim_machine machines[6];
    int cases = 0, said = 0;
    for (int i = 0; i < 6; i++)
        assert_int_equal(fo_sim_profile_read(names[i], &machines[i]), FO_OK);
    for (int i = 0; i < 3000; i++) {
        dice d = {(uint64_t)i, 7};
        const fo_sim_machine *m = &machines[below(&d, 6)];
        fo_sim_operation o = random_operation(&d);
        fo_sim_report run, closed;
        if (fo_sim_operation_run(m, &o, &run) != FO_OK)
            continue; /* a type that this machine has not */
        fo_status status = fo_sim_operation_closed(m, &o, &closed);
        cases++;
        if (status == FO_UNSUPPORTED)
            continue;
        assert_int_equal(status, FO_OK);
        said++;
        if (fabs(closed.total_s / run.total_s - 1) > 0.01)
            fail_msg("case %d, %s %s of %d ranks on %s: %.9g s, simulated %.9g s", i,
                     fo_schedule_operation_name(o.desc.op), o.desc.overlap, o.ranks, m->name,
                     closed.total_s, run.total_s);
        assert_true(closed.bound_s == run.bound_s && closed.transfer_s == run.transfer_s);
    }
    print_message("said %d of %d operations\n", said, cases);
    assert_true(said > cases / 2);
    for (int i = 0; i < 6; i++)
        fo_sim_machine_free(&machines[i]);
}

/* ---- where there are none ------------------------------------------------------------------------------ */

static void expect(fo_status status, fo_status expected, const char *words)
{
    if (status != expected || !strstr(fo_last_error(), words))
        fail_msg("status %d: %s; expected %d and \"%s\"", (int)status, fo_last_error(),
                 (int)expected, words);
}

static void says_so(void **unused)
{
    (void)unused;
    fo_sim_machine m;
    fo_sim_machine_ideal(&m);
    costs c = {{1e-6, 1e-6}, 0};
    fo_schedule_desc desc = describe(FO_PATTERN_JOINT, "flash", 4, 4 * 512, TILE, TILE);
    set one = build(&desc, 1), all = build(&desc, 4);
    fo_sim_run run;
    fo_sim_engine_desc engine = engine_of(&all, &m, tile_s, &c);
    expect(fo_sim_closed_run(&engine, &run, NULL), FO_UNSUPPORTED,
           "ranks that differ (a period of 4)");
    engine = engine_of(&one, &m, tile_s, &c);
    m.network.link.bytes_per_s = ROW_BYTES / 1e-6;
    expect(fo_sim_closed_run(&engine, &run, NULL), FO_UNSUPPORTED, "in each other's way");
    m.network.link.bytes_per_s = ROW_BYTES / 1e-7;
    assert_int_equal(fo_sim_closed_run(&engine, &run, NULL), FO_OK);
    engine.tile_rows[0] = 0;
    expect(fo_sim_closed_run(&engine, &run, NULL), FO_INVALID, "tiles of 0 rows");
    destroy(&one);
    destroy(&all);
    desc = describe(FO_PATTERN_GATHER, "direct", 6, 6 * 512, TILE, TILE);
    m.network.topology = FO_SIM_TORUS;
    m.network.torus[0] = 6;
    one = build(&desc, 1);
    engine = engine_of(&one, &m, tile_s, &c);
    expect(fo_sim_closed_run(&engine, &run, NULL), FO_UNSUPPORTED, "over several links");
    destroy(&one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(programs), cmocka_unit_test(formulas),
                                       cmocka_unit_test(operations), cmocka_unit_test(says_so)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
