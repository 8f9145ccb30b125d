/* Whole steps of many models, machines and splits: what must hold of each of them. Parts and rows add up, losses are
 * none below zero, bounds hold, faster links make nothing slower, and what is chosen is the fastest of whole steps. */
#include <math.h>

#include "base/random.h"
#include "planner/model.h"
#include "planner/step.h"
#include "sim/profile.h"
#include "unit/data/scratch.h"

static const unsigned all = FO_PLANNER_COMPARE | FO_PLANNER_EXPLAIN;

static int below(uint64_t key, uint64_t index, int bound)
{
    return (int)fo_base_random_below(key, 11, index, (uint64_t)bound);
}

static const char *machine_name(uint64_t key)
{
    static const char *const names[] = {"a100-sxm-hdr", "a100-sxm",     "ascend-910b",
                                        "b200-ndr",     "b200",         "cpu-25g",
                                        "cpu-host",     "h100-sxm-ndr", "h100-sxm",
                                        "h200-ndr",     "l20",          "flashoverlap-paper",
                                        "mi300x-400g",  "mi300x",       "ideal"};
    return names[below(key, 30, 15)];
}

static fo_step_options random_step(uint64_t key)
{
    static const char *const models[] = {"gpt2",       "gpt2-xl",    "llama3-8b", "qwen2.5-0.5b",
                                         "mistral-7b", "llama3-70b", "gpt3-175b"};
    static const int tps[] = {1, 2, 4, 8};
    static const char *const overlaps[] = {NULL,      "none",     "flash", "slice:4", NULL,
                                           "flash:2", "megatron", "ring",  "direct",  NULL};
    fo_step_options o;
    fo_step_defaults(&o);
    expect_ok(fo_model_sizes_read(models[below(key, 0, 7)], &o.model));
    o.tp = tps[below(key, 1, 4)];
    o.dp = 1 + below(key, 2, 5);
    o.pp = 1 + below(key, 3, 4);
    o.interleave = o.pp > 1 ? 1 + below(key, 4, 2) : 1;
    o.micro_batch = 1 + below(key, 5, 2);
    o.batch = o.dp * o.micro_batch * o.pp * (1 + below(key, 6, 4));
    o.context = 128 << below(key, 7, 6);
    o.context = o.context < o.model.context ? o.context : o.model.context;
    o.recompute = (fo_recompute)below(key, 8, 3);
    o.sequence_parallel = below(key, 9, 6) > 0;
    o.flash_attention = below(key, 10, 3) > 0;
    o.wire = (fo_dtype)below(key, 11, 2);
    o.sharded_optimizer = below(key, 12, 3) > 0;
    o.overlap_dp = below(key, 13, 4) > 0;
    o.optimizer = below(key, 14, 4) > 0;
    o.overlap = o.sequence_parallel ? overlaps[below(key, 15, 10)] : NULL;
    o.dtype = below(key, 16, 5) ? FO_BF16 : FO_F32;
    if (below(key, 17, 6) == 0) {
        o.slow_rank = below(key, 18, o.tp);
        o.slow_speed = 0.25 * (1 + below(key, 19, 4));
    }
    return o;
}

static char described[300];

static void describe(uint64_t key, const char *machine, const fo_step_options *o)
{
    snprintf(described, sizeof described,
             "step %llu: %s on %s, tp %d x dp %d x pp %d (%d chunks), context %lld, micro-batch "
             "%lld, overlap %s, recompute %d, sequence parallel %d, flash attention %d, slow %d",
             (unsigned long long)key, o->model.name, machine, o->tp, o->dp, o->pp, o->interleave,
             (long long)o->context, (long long)o->micro_batch, o->overlap ? o->overlap : "auto",
             (int)o->recompute, o->sequence_parallel, o->flash_attention, o->slow_rank);
}

#define HOLDS(truth, ...)                   \
    do {                                    \
        if (!(truth)) {                     \
            print_error("%s\n", described); \
            fail_msg(__VA_ARGS__);          \
        }                                   \
    } while (0)

static fo_status run(const fo_sim_machine *machine, const fo_step_options *o, unsigned how,
                     fo_step_report *report)
{
    fo_planner_prices *prices;
    expect_ok(fo_planner_prices_create(machine, &prices));
    fo_status status = fo_planner_step_run(prices, o, how, report);
    fo_planner_prices_free(prices);
    return status;
}

/* ---- one report -------------------------------------------------------------------------------------- */

static void check_row(const fo_step_options *o, const fo_step_row *row)
{
    const fo_step_losses *l = &row->losses;
    const double parts[] = {l->imbalance, l->contention, l->overhead,
                            l->latency,   l->slicing,    l->tail};
    double lost = 0, rounding = 1e-9 * row->total_s + 1e-12;
    for (int i = 0; i < 6; i++) {
        lost += parts[i];
        HOLDS(parts[i] >= -rounding, "%s: loss %d is %g s", row->name, i, parts[i]);
    }
    HOLDS(row->bound_s <= row->total_s + rounding, "%s (%s): %.9g s, but its bound is %.9g s",
          row->name, row->overlap, row->total_s, row->bound_s);
    HOLDS(fabs(lost - (row->total_s - row->bound_s)) <= rounding,
          "%s (%s): losses of %.9g s, but %.9g s above the bound", row->name, row->overlap, lost,
          row->total_s - row->bound_s);
    if (o->slow_rank < 0)
        HOLDS(row->bound_s >= row->compute_s - rounding, "%s (%s): a bound of %.9g s, C is %.9g s",
              row->name, row->overlap, row->bound_s, row->compute_s);
}

/* The FLOPs of a model count norms and biases as if they were multiplied, and attention whole; two products of it forward
 * and five backward are computed, each of a half. Nothing can be faster than what is computed is at the peak. */
static double most_mfu(const fo_step_options *o, const fo_step_report *r)
{
    double context = (double)o->context, tokens = (double)o->batch * context;
    double layers = (double)o->model.layers;
    double square = layers * (double)(o->model.heads * o->model.head_dim) * context;
    double weights = layers * fo_planner_layer_weights(&o->model) +
                     (double)o->model.vocabulary * (double)o->model.dim;
    double attention = o->flash_attention ? 7 * (context + 1) / context : 12;
    return r->flops / (tokens * (6 * weights + attention * square));
}

static void check_none(const fo_step_report *r)
{
    double none = 0;
    for (int i = 0; i < r->row_count; i++)
        none += r->rows[i].count * r->rows[i].none_s;
    HOLDS(fabs(none - r->none_s) <= 1e-9 * r->none_s,
          "rows of %.12g s under none, the step %.12g s", none, r->none_s);
}

static void check_report(const fo_step_options *o, const fo_step_report *r)
{
    double rounding = 1e-9 * r->step_s, rows = 0;
    HOLDS(r->step_s > 0 && isfinite(r->step_s), "a step of %g s", r->step_s);
    HOLDS(r->tp_exposed_s >= 0 && r->dp_exposed_s >= 0 && r->pp_exposed_s >= 0,
          "exposed are %g s (tp), %g s (dp), %g s (pp)", r->tp_exposed_s, r->dp_exposed_s,
          r->pp_exposed_s);
    HOLDS(r->tp_exposed_s + r->dp_exposed_s + r->pp_exposed_s <= r->step_s, "more is exposed");
    double parts = r->compute_s + r->tp_exposed_s + r->dp_exposed_s + r->pp_exposed_s;
    HOLDS(fabs(parts + r->optimizer_s - r->step_s) <= rounding, "parts of %.9g s, step %.9g s",
          parts + r->optimizer_s, r->step_s);
    HOLDS(r->mfu > 0 && r->mfu <= most_mfu(o, r) * (1 + 1e-9), "MFU is %.9g, at most %.9g", r->mfu,
          most_mfu(o, r));
    HOLDS(r->hfu >= r->mfu, "HFU %g, MFU %g", r->hfu, r->mfu);
    for (int i = 0; i < r->row_count; i++) {
        check_row(o, &r->rows[i]);
        rows += r->rows[i].count * r->rows[i].total_s;
    }
    check_none(r);
    HOLDS(r->row_count < FO_STEP_ROWS, "%d rows, and there may be more", r->row_count);
    HOLDS(fabs(rows - r->step_s) <= rounding, "rows of %.12g s, a step of %.12g s", rows,
          r->step_s);
}

/* ---- against other strategies ------------------------------------------------------------------------ */

/* What is chosen is no slower than any one strategy for all, and what is said is what is so. */
static void check_choice(const fo_sim_machine *machine, const fo_step_options *o,
                         const fo_step_report *r, int *refused)
{
    static const char *const overlaps[] = {"none", "slice:2", "slice:4", "slice:8",
                                           "ring", "flash",   "flash:2", "flash:4"};
    double none_s = 0, slice_s = INFINITY, equal = 1.0001 + 1e-9;
    bool no = strncmp(r->why, "do not overlap: ", 16) == 0;
    for (int i = 0; i < 8; i++) {
        fo_step_options stated = *o;
        fo_step_report other;
        stated.overlap = overlaps[i];
        expect_ok(run(machine, &stated, 0, &other));
        HOLDS(r->step_s <= other.step_s * equal, "%.9g s chosen, %.9g s with %s", r->step_s,
              other.step_s, overlaps[i]);
        none_s = i ? none_s : other.step_s;
        slice_s = i >= 1 && i <= 3 ? fmin(slice_s, other.step_s) : slice_s;
    }
    HOLDS(r->slice_s <= slice_s * (1 + 1e-9), "data slicing takes %.9g s, not %.9g s", slice_s,
          r->slice_s);
    HOLDS(r->step_s <= r->none_s * (1 + 1e-9) && r->step_s <= r->slice_s * equal,
          "%.9g s chosen, %.9g s and %.9g s compared with", r->step_s, r->none_s, r->slice_s);
    HOLDS(no || strncmp(r->why, "overlap: ", 9) == 0, "'%s'", r->why);
    HOLDS(no == (r->step_s > none_s / equal), "none takes %.9g s, and '%s'", none_s, r->why);
    for (int i = 0; i < r->row_count && no; i++)
        HOLDS(strcmp(r->rows[i].overlap, "none") == 0 || !r->rows[i].overlap[0] ||
                  strcmp(r->rows[i].overlap, "behind") == 0,
              "'%s', but %s is %s", r->why, r->rows[i].name, r->rows[i].overlap);
    *refused += no;
}

/* More bytes a second make nothing slower, nor does less latency, but for messages that then come in another order. */
static void check_faster(const fo_sim_machine *machine, const fo_step_options *o,
                         const fo_step_report *r)
{
    for (int i = 0; i < 4; i++) {
        static const double within[] = {1e-6, 1e-6, 1e-9, 1e-3};
        fo_sim_machine faster = *machine;
        fo_step_report other;
        faster.network.link.bytes_per_s *= i == 0 ? 1.3 : 1;
        faster.network.outer.bytes_per_s *= i == 1 ? 1.3 : 1;
        faster.device.memory_bytes_per_s *= i == 2 ? 1.3 : 1;
        faster.network.link.latency_s /= i == 3 ? 1.3 : 1;
        faster.network.outer.latency_s /= i == 3 ? 1.3 : 1;
        expect_ok(run(&faster, o, 0, &other));
        HOLDS(other.step_s <= r->step_s * (1 + within[i]),
              "faster by way %d takes %.9g s, not %.9g s", i, other.step_s, r->step_s);
    }
}

static void many_steps(void **state)
{
    (void)state;
    int checked = 0, refused = 0, chosen = 0;
    for (uint64_t key = 1; key <= 300; key++) {
        const char *name = machine_name(key);
        fo_sim_machine machine;
        fo_step_report report;
        fo_step_options o = random_step(key);
        expect_ok(fo_sim_profile_read(name, &machine));
        describe(key, name, &o);
        if (run(&machine, &o, all, &report) == FO_OK) { /* else the machine forbids it */
            checked++;
            check_report(&o, &report);
            bool chooses = !o.overlap && o.tp > 1 && o.sequence_parallel;
            chosen += chooses;
            if (chooses)
                check_choice(&machine, &o, &report, &refused);
            else
                check_faster(&machine, &o, &report);
        }
        fo_sim_machine_free(&machine);
    }
    print_message("%d steps, %d chosen, %d of them 'do not overlap'\n", checked, chosen, refused);
    assert_true(checked > 270 && chosen > 40);
}

/* ---- steps that are compared -------------------------------------------------------------------------- */

/* What is compared with is the same step whatever is asked for, a slow rank and uneven stages included: none_s that of
 * --overlap none without overlap over dp, slice_s the fastest of data slicing. */
static void same_comparisons(void **state)
{
    static const char *const overlaps[] = {NULL, "none", "megatron", "slice:2", "flash"};
    int checked = 0;
    (void)state;
    for (uint64_t key = 1000; key < 1080; key++) {
        const char *name = machine_name(key);
        fo_sim_machine machine;
        fo_step_options o = random_step(key);
        fo_step_report first, report;
        expect_ok(fo_sim_profile_read(name, &machine));
        if (key % 2) {
            o.slow_rank = 0;
            o.slow_speed = 0.2;
        }
        o.overlap = "none";
        describe(key, name, &o);
        if (run(&machine, &o, FO_PLANNER_COMPARE, &first) == FO_OK) {
            for (int i = 0; i < (o.sequence_parallel ? 5 : 3); i++) {
                o.overlap = overlaps[i];
                expect_ok(run(&machine, &o, FO_PLANNER_COMPARE, &report));
                check_none(&report);
                HOLDS(fabs(report.none_s - first.none_s) <= 1e-9 * first.none_s &&
                          fabs(report.slice_s - first.slice_s) <= 1e-9 * first.slice_s,
                      "%s: %.9g s, %.9g s compared with, not %.9g s, %.9g s",
                      o.overlap ? o.overlap : "auto", report.none_s, report.slice_s, first.none_s,
                      first.slice_s);
                checked++;
            }
            o.overlap = "none";
            o.overlap_dp = false;
            expect_ok(run(&machine, &o, 0, &report));
            HOLDS(fabs(report.step_s - first.none_s) <= 1e-9 * first.none_s,
                  "a step of %.9g s, but none_s is %.9g s", report.step_s, first.none_s);
        }
        fo_sim_machine_free(&machine);
    }
    assert_true(checked > 300);
}

/* The slow rank stays on the stage that computes most when another one would take longer. */
static void slow_stage(void **state)
{
    fo_sim_machine machine;
    fo_step_report chosen, none;
    fo_step_options o;
    (void)state;
    fo_step_defaults(&o);
    expect_ok(fo_model_sizes_read("llama3-8b", &o.model));
    expect_ok(fo_sim_profile_read("h100-sxm-ndr", &machine));
    o.tp = 8;
    o.pp = 5;
    o.batch = 12;
    o.context = 2048;
    o.slow_rank = 0;
    o.slow_speed = 0.2;
    describe(0, machine.name, &o);
    expect_ok(run(&machine, &o, all, &chosen));
    check_report(&o, &chosen);
    o.overlap = "none";
    o.overlap_dp = false;
    expect_ok(run(&machine, &o, 0, &none));
    HOLDS(fabs(chosen.none_s - none.step_s) <= 1e-9 * none.step_s && chosen.step_s <= none.step_s,
          "%.9g s chosen, %.9g s with none, which takes %.9g s", chosen.step_s, chosen.none_s,
          none.step_s);
    fo_sim_machine_free(&machine);
}

/* ---- when not to overlap ----------------------------------------------------------------------------- */

/* On fast links slices of few rows cost more than they hide, and there is nothing to gain for two ranks; with more tokens,
 * or with more ranks, there is. */
static void small_batches(void **state)
{
    static const char *const machines[] = {"h100-sxm", "h200", "b200", "mi300x"};
    (void)state;
    for (size_t m = 0; m < sizeof machines / sizeof *machines; m++)
        for (int large = 0; large < 3; large++) {
            fo_sim_machine machine;
            fo_step_report report;
            fo_step_options o;
            int refused = 0;
            fo_step_defaults(&o);
            expect_ok(fo_model_sizes_read("gpt2-xl", &o.model));
            expect_ok(fo_sim_profile_read(machines[m], &machine));
            o.tp = large == 1 ? 8 : 2;
            o.context = 1024;
            o.batch = o.micro_batch = large == 2 ? 32 : 1;
            describe(m, machines[m], &o);
            expect_ok(run(&machine, &o, all, &report));
            check_report(&o, &report);
            check_choice(&machine, &o, &report, &refused);
            HOLDS(refused == !large, "%s", report.why);
            HOLDS(large || strstr(report.why, "it loses "), "%s", report.why);
            fo_sim_machine_free(&machine);
        }
}

/* A profile without a sheet's peak, whose best measured product is faster than its rate. */
static void measured_peak(void **state)
{
    (void)state;
    fo_sim_entry entries[] = {{FO_SIM_GEMM, FO_F32, 1, true, 1024, 768, 768,
                               2.0 * 1024 * 768 * 768 / 1.5e11},
                              {FO_SIM_GEMM, FO_F32, 1, true, 64, 768, 768,
                               2.0 * 64 * 768 * 768 / 0.9e11}};
    fo_sim_machine machine;
    fo_step_report report;
    fo_step_options o;
    fo_step_defaults(&o);
    expect_ok(fo_model_sizes_read("gpt2", &o.model));
    fo_sim_machine_ideal(&machine);
    machine.device.flops_per_s[FO_F32] = 1e11;
    machine.device.entries = entries;
    machine.device.entry_count = 2;
    o.dtype = o.wire = FO_F32;
    o.context = 1024;
    o.flash_attention = false;
    describe(0, "measured", &o);
    expect_ok(run(&machine, &o, all, &report));
    check_report(&o, &report);
    assert_true(report.mfu > 0.6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(many_steps),
                                       cmocka_unit_test(same_comparisons),
                                       cmocka_unit_test(slow_stage),
                                       cmocka_unit_test(small_batches),
                                       cmocka_unit_test(measured_peak)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
