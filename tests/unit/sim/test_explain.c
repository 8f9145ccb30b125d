/* Where the time above the bound goes: on every machine, whatever the strategy, losses are none below zero and add up
 * to it; what has no effect loses nothing. */
#include <math.h>

#include "base/random.h"
#include "sim/explain.h"
#include "sim/profile.h"
#include "unit/data/scratch.h"

static int below(uint64_t key, uint64_t index, int bound)
{
    return (int)fo_base_random_below(key, 13, index, (uint64_t)bound);
}

static const char *const machines[] = {"a100-sxm-hdr", "ascend-910b", "b200",    "cpu-25g",
                                       "cpu-host",     "h100-sxm",    "h200",    "l20",
                                       "mi300x",       "ideal",       "b200-ndr"};
static const char *const strategies[] = {"none",  "slice:2", "slice:4", "slice:8", "ring",
                                         "flash", "flash:2", "flash:4", "direct"};
static const char *const operations[] = {"column forward", "row forward", "column backward",
                                         "row backward", "mlp"};

static fo_plan_desc random_desc(uint64_t key, int *op)
{
    static const fo_op ops[] = {FO_COLUMN_FORWARD, FO_ROW_FORWARD, FO_COLUMN_BACKWARD,
                                FO_ROW_BACKWARD, FO_MLP_FORWARD};
    static const int64_t sizes[] = {256, 896, 1024, 4096, 5120};
    *op = below(key, 1, 5);
    fo_plan_desc d = {.op = ops[*op],
                      .rows = 64 * (1 + below(key, 2, 4) * below(key, 3, 40)) + below(key, 4, 3),
                      .in = sizes[below(key, 5, 5)],
                      .out = sizes[below(key, 6, 5)],
                      .hidden = sizes[below(key, 7, 5)],
                      .dtype = FO_BF16,
                      .wire = (fo_dtype)below(key, 8, 2),
                      .y_dtype = FO_BF16,
                      .overlap = strategies[below(key, 9, 9)]};
    return d;
}

static void losses(void **state)
{
    (void)state;
    int thin = 0, cases = 0;
    for (uint64_t key = 1; key <= 1500; key++) {
        const char *name = machines[below(key, 0, 11)];
        double speed[8] = {1, 1, 1, 1, 1, 1, 1, 1};
        int op;
        fo_sim_machine machine;
        fo_sim_report r, plain;
        fo_sim_operation o = {.desc = random_desc(key, &op), .threads = 1, .packed = true};
        o.ranks = 2 + below(key, 10, 7);
        bool slow = below(key, 11, 5) == 0;
        speed[1] = slow ? 0.25 * (1 + below(key, 12, 3)) : 1;
        o.speed = slow ? speed : NULL;
        expect_ok(fo_sim_profile_read(name, &machine));
        expect_ok(fo_sim_operation_explain(&machine, &o, &r));
        expect_ok(fo_sim_operation_run(&machine, &o, &plain));
        const fo_sim_losses *l = &r.losses;
        const double parts[] = {l->imbalance, l->contention, l->overhead,
                                l->latency,   l->slicing,    l->tail};
        double lost = 0, least_s, rounding = 1e-9 * r.total_s + 1e-12;
        expect_ok(fo_sim_explain_least(&machine, &o, &least_s));
        bool fine = r.total_s == plain.total_s && r.bound_s <= r.total_s + rounding &&
                    r.bound_s >= least_s - rounding && least_s <= r.compute_s + rounding;
        if (op != 3) /* a row layer backward sums only the columns of its own rows */
            fine &= fabs(least_s - r.compute_s * (slow ? speed[1] : 1)) <= rounding;
        for (int i = 0; i < 6; i++) {
            lost += parts[i];
            fine &= parts[i] >= 0;
        }
        fine &= fabs(lost - fmax(0, r.total_s - r.bound_s)) <= rounding;
        fine &= slow || l->imbalance == 0;
        thin += l->slicing > 0.01 * r.total_s;
        cases++;
        if (!fine)
            fail_msg(
                "%s of %lld rows, %lld x %lld, %s, %d ranks of %s: T %.9g, bound %.9g, C %.9g, "
                "losses %.3g %.3g %.3g %.3g %.3g %.3g",
                operations[op], (long long)o.desc.rows, (long long)o.desc.in, (long long)o.desc.out,
                o.desc.overlap, o.ranks, name, r.total_s, r.bound_s, r.compute_s, parts[0],
                parts[1], parts[2], parts[3], parts[4], parts[5]);
        fo_sim_machine_free(&machine);
    }
    assert_true(thin > cases / 10); /* thin slices are found */
}

/* Latency that transfers hide is in the bound, and no loss: of a large product with one slow link in the way. */
static void hidden_latency(void **state)
{
    (void)state;
    fo_sim_machine machine;
    fo_sim_report r;
    fo_sim_machine_ideal(&machine);
    machine.device.flops_per_s[FO_BF16] = 1e14;
    machine.network.link = (fo_sim_link){.bytes_per_s = 1e12, .latency_s = 1e-6};
    fo_sim_operation o = {.desc = {.op = FO_COLUMN_FORWARD,
                                   .rows = 4096,
                                   .in = 4096,
                                   .out = 4096,
                                   .dtype = FO_BF16,
                                   .wire = FO_BF16,
                                   .y_dtype = FO_BF16,
                                   .overlap = "flash"},
                          .ranks = 4,
                          .threads = 1,
                          .packed = true};
    expect_ok(fo_sim_operation_explain(&machine, &o, &r));
    assert_true(r.losses.latency == 0 && r.total_s <= r.bound_s * (1 + 1e-9));
    o.desc.overlap = "ring"; /* all of it is waited for at every step but is in the bound once */
    machine.network.link.bytes_per_s = 1e10;
    expect_ok(fo_sim_operation_explain(&machine, &o, &r));
    assert_true(fabs(r.losses.latency - 2e-6) < 1e-9);
    fo_sim_machine_free(&machine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(losses), cmocka_unit_test(hidden_latency)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
