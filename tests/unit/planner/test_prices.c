/* The table of prices: what it hands out is the simulator's, stays where it is, and is found again; Megatron-LM's
 * backward pass against a clock that ticks. */
#include <math.h>

#include "planner/prices.h"
#include "unit/data/scratch.h"

static void machine_of(fo_sim_machine *machine)
{
    fo_sim_machine_ideal(machine);
    machine->device.flops_per_s[FO_BF16] = 1e14;
    machine->device.memory_bytes_per_s = 1e12;
    machine->network.link = (fo_sim_link){.bytes_per_s = 1e11, .latency_s = 2e-6};
    machine->contention = 0.25;
}

static fo_planner_question question_of(int64_t rows, int64_t in, int64_t out)
{
    return (fo_planner_question){.desc = {.op = FO_COLUMN_FORWARD,
                                          .rows = rows,
                                          .in = in,
                                          .out = out,
                                          .dtype = FO_BF16,
                                          .wire = FO_BF16,
                                          .y_dtype = FO_BF16,
                                          .overlap = "flash"},
                                 .ranks = 4,
                                 .slow_rank = -1,
                                 .slow_speed = 1};
}

static double simulated(const fo_sim_machine *machine, const fo_planner_question *q)
{
    double speed[4] = {1, 1, 1, 1};
    fo_sim_report report;
    fo_sim_operation o = {.desc = q->desc, .ranks = q->ranks, .threads = 1, .packed = true};
    if (q->slow_rank >= 0) {
        speed[q->slow_rank] = q->slow_speed;
        o.speed = speed;
    }
    expect_ok(fo_sim_operation_run(machine, &o, &report));
    return report.total_s;
}

enum { SHAPES = 300 };

static void table(void **state)
{
    (void)state;
    fo_sim_machine machine;
    fo_planner_prices *prices;
    const fo_planner_price *first[SHAPES], *price;
    machine_of(&machine);
    expect_ok(fo_planner_prices_create(&machine, &prices));
    for (int i = 0; i < SHAPES; i++) {
        fo_planner_question q = question_of(256 + 64 * (i % 10), 512 + 64 * (i / 10), 1024);
        expect_ok(fo_planner_prices_ask(prices, &q, &first[i]));
    }
    int64_t events = fo_planner_prices_events(prices);
    assert_int_equal(fo_planner_prices_count(prices), SHAPES);
    for (int i = 0; i < SHAPES; i++) {
        fo_planner_question q = question_of(256 + 64 * (i % 10), 512 + 64 * (i / 10), 1024);
        expect_ok(fo_planner_prices_ask(prices, &q, &price));
        assert_ptr_equal(price, first[i]);
        assert_true(price->total_s == simulated(&machine, &q));
    }
    assert_int_equal(fo_planner_prices_events(prices), events);

    fo_planner_question q =
        question_of(256, 512, 1024); /* anything that matters makes it another question */
    q.desc.overlap = "none";
    expect_ok(fo_planner_prices_ask(prices, &q, &price));
    assert_true(price != first[0] && price->total_s == simulated(&machine, &q));
    q.slow_rank = 3;
    q.slow_speed = 0.5;
    expect_ok(fo_planner_prices_ask(prices, &q, &price));
    assert_true(price->total_s == simulated(&machine, &q));
    q.desc.rows = -1;
    expect_fails(fo_planner_prices_ask(prices, &q, &price), FO_INVALID, "rows -1");
    assert_int_equal(fo_planner_prices_count(prices), SHAPES + 2);
    fo_planner_prices_free(prices);
    fo_planner_prices_free(NULL);
}

/* The best is none of the others' worse, and comparisons are those strategies' own prices. */
static void best(void **state)
{
    (void)state;
    fo_sim_machine machine;
    fo_planner_prices *prices;
    machine_of(&machine);
    expect_ok(fo_planner_prices_create(&machine, &prices));
    for (int64_t rows = 256; rows <= 8192; rows *= 2) {
        const fo_planner_price *chosen;
        fo_planner_question q = question_of(rows, 2048, 2048);
        const char *all[] = {"none", "slice:2", "slice:4", "slice:8",
                             "ring", "flash",   "flash:2", "direct"};
        double totals[8];
        for (int i = 0; i < 8; i++) {
            q.desc.overlap = all[i];
            totals[i] = simulated(&machine, &q);
        }
        q.desc.overlap = NULL;
        q.how = FO_PLANNER_COMPARE;
        expect_ok(fo_planner_prices_ask(prices, &q, &chosen));
        assert_true(chosen->none_s == totals[0]);
        assert_true(chosen->slice_s == fmin(totals[1], fmin(totals[2], totals[3])));
        for (int i = 0; i < 8; i++)
            assert_true(chosen->total_s <= totals[i] * (1 + 1e-9) ||
                        strcmp(chosen->overlap, "none") == 0);
        assert_true(chosen->why[0] && chosen->overlap[0]);
    }
    fo_planner_prices_free(prices);
}

/* A product of `product_s` beside messages of `transfer_s`, tick by tick. */
static double ticking(double transfer_s, double product_s, double slowed)
{
    double tick = (transfer_s + product_s) / 200000, t = 0, done = 0;
    while (t < transfer_s || done < product_s) {
        done += t < transfer_s ? tick / slowed : tick;
        t += tick;
    }
    return t;
}

static double of_collective(const fo_sim_machine *machine, const fo_planner_question *like,
                            fo_op op)
{
    fo_planner_question q = *like;
    q.desc = (fo_plan_desc){.op = op,
                            .rows = q.desc.rows,
                            .in = q.desc.in,
                            .dtype = FO_BF16,
                            .wire = FO_BF16,
                            .overlap = "none"};
    return simulated(machine, &q);
}

/* What no program beats, this form does not either; and where its time goes adds up. */
static void check_bound(const fo_planner_price *p)
{
    const fo_step_losses *l = &p->losses;
    double lost = l->imbalance + l->contention + l->overhead + l->latency + l->slicing + l->tail;
    assert_true(p->bound_s >= p->compute_s * (1 - 1e-9) && p->bound_s <= p->total_s * (1 + 1e-9));
    assert_true(fabs(lost - (p->total_s - p->bound_s)) <= 1e-9 * p->total_s);
    assert_true(l->imbalance >= 0 && l->contention >= 0 && l->tail >= 0);
}

static void megatron(void **state)
{
    (void)state;
    fo_sim_machine machine;
    fo_planner_prices *prices;
    machine_of(&machine);
    expect_ok(fo_planner_prices_create(&machine, &prices));
    for (int64_t out = 64; out <= 8192; out *= 2) {
        const fo_planner_price *price;
        fo_planner_question q = question_of(2048, 2048, out);
        q.desc.op = FO_COLUMN_BACKWARD;
        q.desc.overlap = "none";
        q.async = true;
        double product = 2.0 * 2048 * 2048 * (double)out / 1e14;
        double sum =
            2.0 * 2048 * (double)out / 1e12; /* of columns, for the bias: goes with wgrad */
        double gather = of_collective(&machine, &q, FO_ALL_GATHER);
        double sums = of_collective(&machine, &q, FO_REDUCE_SCATTER);
        expect_ok(fo_planner_prices_ask(prices, &q, &price));
        double expected = ticking(gather, product, 1.25) + ticking(sums, product + sum, 1.25);
        assert_true(fabs(price->total_s - expected) < 1e-4 * expected);
        assert_true(price->total_s <= price->none_s && price->total_s >= price->compute_s);
        q.slow_rank = 1;
        q.slow_speed = 0.5;
        check_bound(price);
        expect_ok(fo_planner_prices_ask(prices, &q, &price));
        assert_true(out < 4096 || price->losses.imbalance > 0); /* else messages take longest */
        q.slow_rank = -1;
        q.whole = true;
        expect_ok(fo_planner_prices_ask(prices, &q, &price));
        expected = product + ticking(gather + sums, product + sum, 1.25);
        assert_true(fabs(price->total_s - expected) < 1e-4 * expected);
        check_bound(price);
        assert_true(fabs(price->none_s - (2 * product + sum + gather + sums)) < 1e-9);
    }
    fo_planner_prices_free(prices);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(table), cmocka_unit_test(best),
                                       cmocka_unit_test(megatron)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
