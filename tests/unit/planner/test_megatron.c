/* Published times of Megatron-LM on A100 (arXiv 2205.05198, tables 3, 4 and 5, section 6.3), from vendors' figures and
 * one measured curve of products; nothing is fitted. Prints the tables that docs/planner.md shows. */
#include <math.h>

#include "planner/step.h"
#include "sim/profile.h"
#include "unit/data/scratch.h"

/* mixed precision, scores in memory, one replica; full recomputation goes with unsharded activations. */
static fo_step_options options_of(const char *model, bool sequence_parallel, fo_recompute recompute,
                                  const char *overlap)
{
    fo_step_options o;
    fo_step_defaults(&o);
    expect_ok(fo_model_sizes_read(model, &o.model));
    o.tp = 8;
    o.sequence_parallel = sequence_parallel;
    o.recompute = recompute;
    o.flash_attention = false;
    o.sharded_optimizer = o.overlap_dp = false;
    o.overlap = overlap;
    return o;
}

static fo_step_report run(const fo_step_options *o)
{
    fo_sim_machine machine;
    fo_planner_prices *prices;
    fo_step_report report;
    expect_ok(fo_sim_profile_read("a100-sxm-hdr", &machine));
    expect_ok(fo_planner_prices_create(&machine, &prices));
    expect_ok(fo_planner_step_run(prices, o, 0, &report));
    fo_planner_prices_free(prices);
    fo_sim_machine_free(&machine);
    return report;
}

static double percent(double found, double published)
{
    return 100 * (found / published - 1);
}

/* Table 5; MFU of the selective step. (Its HFU counts the FLOPs of recomputed attention three times: equation 8.) */
static const struct {
    const char *model;
    int pp, interleave;
    int64_t batch, micro_batch;
    double full_s, selective_s, mfu;
} steps[] = {{"megatron-22b", 1, 1, 4, 4, 1.42, 1.10, 41.5},
             {"megatron-175b", 8, 3, 64, 1, 18.13, 13.75, 51.4},
             {"megatron-530b", 35, 3, 280, 1, 49.05, 37.83, 56.0},
             {"megatron-1t", 64, 1, 512, 1, 94.42, 71.49, 56.3}};

static double step_times(const char *overlap)
{
    double errors = 0;
    print_message("\nseconds a step, overlap %s\n%-14s %-10s %9s %9s %7s\n", overlap, "model",
                  "recompute", "predicted", "published", "error");
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        for (int selective = 0; selective < 2; selective++) {
            fo_step_options o =
                options_of(steps[i].model, selective,
                           selective ? FO_RECOMPUTE_SELECTIVE : FO_RECOMPUTE_FULL, overlap);
            o.pp = steps[i].pp;
            o.interleave = steps[i].interleave;
            o.batch = steps[i].batch;
            o.micro_batch = steps[i].micro_batch;
            fo_step_report r = run(&o);
            double published = selective ? steps[i].selective_s : steps[i].full_s;
            double error = percent(r.step_s, published);
            print_message("%-14s %-10s %9.2f %9.2f %+6.1f%%\n", steps[i].model,
                          selective ? "selective" : "full", r.step_s, published, error);
            errors += fabs(error);
            assert_true(fabs(error) < 10);
            if (selective) /* the same FLOPs: utilization as published at the time that was published */
                assert_true(fabs(100 * r.mfu * r.step_s / published - steps[i].mfu) < 0.7);
            assert_true(r.fits == (r.memory_bytes <= 80e9));
        }
    print_message("mean absolute error %.2f %%\n", errors / 8);
    return errors / 8;
}

static void of_steps(void **state)
{
    (void)state;
    assert_true(step_times("megatron") < 10);
    assert_true(step_times("none") < 10);
}

/* Table 4: a layer of the 22B model, ms. Recomputation is part of the backward pass. */
static const struct {
    const char *name;
    bool sequence_parallel;
    fo_recompute recompute;
    double forward_ms, backward_ms;
} layers[] = {{"baseline", false, FO_RECOMPUTE_NONE, 7.7, 11.9},
              {"sequence parallel", true, FO_RECOMPUTE_NONE, 7.2, 11.8},
              {"full", false, FO_RECOMPUTE_FULL, 7.7, 19.5},
              {"selective", false, FO_RECOMPUTE_SELECTIVE, 7.7, 13.2},
              {"selective + sequence", true, FO_RECOMPUTE_SELECTIVE, 7.2, 13.1}};

/* Of 24 layers more, so that what is not a layer goes. */
static double layer_ms(bool sequence_parallel, fo_recompute recompute)
{
    fo_step_options o = options_of("megatron-22b", sequence_parallel, recompute, "megatron");
    o.batch = o.micro_batch = 4;
    o.optimizer = false;
    double many = run(&o).step_s;
    o.model.layers = 24;
    return (many - run(&o).step_s) / 24 * 1e3;
}

static void of_layers(void **state)
{
    (void)state;
    print_message("\nmilliseconds a layer of megatron-22b\n%-22s %9s %9s %7s\n", "", "predicted",
                  "published", "error");
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        bool sharded = layers[i].sequence_parallel;
        double none = layer_ms(sharded, FO_RECOMPUTE_NONE);
        double forward = layer_ms(sharded, FO_RECOMPUTE_FULL) - none;
        double backward = layer_ms(sharded, layers[i].recompute) - forward;
        double errors[] = {percent(forward, layers[i].forward_ms),
                           percent(backward, layers[i].backward_ms)};
        print_message("%-22s %9.2f %9.1f %+6.1f%%  forward\n", layers[i].name, forward,
                      layers[i].forward_ms, errors[0]);
        print_message("%-22s %9.2f %9.1f %+6.1f%%  backward\n", "", backward, layers[i].backward_ms,
                      errors[1]);
        assert_true(fabs(errors[0]) < 6 && fabs(errors[1]) < 6);
    }
}

/* Section 6.3: eight replicas of the 530B model, whose gradients are all-reduced when all is computed. */
static void of_replicas(void **state)
{
    (void)state;
    fo_step_options o = options_of("megatron-530b", true, FO_RECOMPUTE_SELECTIVE, "megatron");
    o.pp = 35;
    o.interleave = 3;
    o.dp = 8;
    o.batch = 2240;
    o.wire = FO_F32; /* gradients */
    fo_step_report r = run(&o);
    print_message(
        "\nmegatron-530b x 8 replicas: %.2f s, published 39.15 s (%+.1f %%); of it gradients "
        "%.2f s, published 1.32 s\n",
        r.step_s, percent(r.step_s, 39.15), r.dp_exposed_s);
    assert_true(fabs(percent(r.step_s, 39.15)) < 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(of_steps), cmocka_unit_test(of_layers),
                                       cmocka_unit_test(of_replicas)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
