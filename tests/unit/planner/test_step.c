/* Training steps: that their parts add up, against sums made by hand, properties over many splits, refusals, cost. */
#include <math.h>
#include <sys/resource.h>
#include <time.h>

#include "base/random.h"
#include "planner/model.h"
#include "planner/step.h"
#include "sim/profile.h"
#include "unit/data/scratch.h"

static const unsigned all = FO_PLANNER_COMPARE | FO_PLANNER_EXPLAIN;

static void near(double found, double expected, double within, const char *what)
{
    if (!(fabs(found - expected) <= within * fabs(expected) + 1e-12))
        fail_msg("%s: %.9g, expected %.9g", what, found, expected);
}

/* A device of 100 TFLOP/s with links, and what makes real ones slow. */
static void machine_of(fo_sim_machine *machine, double bytes_per_s)
{
    fo_sim_machine_ideal(machine);
    machine->device.flops_per_s[FO_BF16] = 1e14;
    machine->device.flops_per_s[FO_F32] = 1e13;
    machine->device.memory_bytes_per_s = 1e12;
    machine->device.memory_bytes = 80e9;
    machine->network.locals = 8;
    machine->network.link = (fo_sim_link){.bytes_per_s = bytes_per_s, .latency_s = 2e-6};
    machine->network.outer = (fo_sim_link){.bytes_per_s = bytes_per_s / 8, .latency_s = 1e-5};
    machine->contention = 0.1;
}

static fo_step_options options_of(const char *model)
{
    fo_step_options o;
    fo_step_defaults(&o);
    expect_ok(fo_model_sizes_read(model, &o.model));
    return o;
}

/* On a machine of its own. */
static fo_step_report run_on(const fo_sim_machine *machine, const fo_step_options *o, unsigned how)
{
    fo_planner_prices *prices;
    fo_step_report report;
    expect_ok(fo_planner_prices_create(machine, &prices));
    expect_ok(fo_planner_step_run(prices, o, how, &report));
    fo_planner_prices_free(prices);
    return report;
}

static double layers_of(const fo_step_report *r)
{
    double sum = 0;
    for (int i = 0; i < r->row_count; i++) {
        static const char *const others[] = {"optimizer",          "gradients over dp",
                                             "parameters over dp", "pipeline bubble",
                                             "between stages",     "table of both ends"};
        bool other = false;
        for (size_t k = 0; k < sizeof others / sizeof *others; k++)
            other |= strcmp(r->rows[i].name, others[k]) == 0;
        sum += other ? 0 : r->rows[i].count * r->rows[i].total_s;
    }
    return sum;
}

/* ---- by hand ----------------------------------------------------------------------------------------- */

/* Nothing but products takes time: the FLOPs of a step over the rate. */
static void products_alone(void **state)
{
    (void)state;
    fo_sim_machine machine;
    fo_sim_machine_ideal(&machine);
    machine.device.flops_per_s[FO_BF16] = 1e14;
    const char *models[] = {"gpt2", "llama3-8b", "qwen2.5-0.5b"};
    for (size_t i = 0; i < 3; i++)
        for (int recompute = 0; recompute < 3; recompute++) {
            fo_step_options o = options_of(models[i]);
            o.batch = 6;
            o.micro_batch = 2;
            o.context = 512;
            o.recompute = (fo_recompute)recompute;
            const fo_model_sizes *m = &o.model;
            double tokens = 6 * 512, dim = (double)(m->heads * m->head_dim),
                   layers = (double)m->layers;
            double weights = layers * fo_planner_layer_weights(m);
            double head = (double)m->vocabulary * (double)m->dim;
            double pair = 2 * dim * 513.0 / 2 * layers; /* of one product of attention, a token */
            double flops = tokens * (6 * (weights + head) + (2 + 5) * pair);
            if (recompute == FO_RECOMPUTE_FULL)
                flops += tokens * (2 * weights + 2 * pair);
            fo_step_report r = run_on(&machine, &o, all);
            near(r.step_s, flops / 1e14, 1e-9, models[i]);
            near(r.compute_s, r.step_s, 1e-9, "computing");
            double norms = fo_planner_multiplied_parameters(m);
            near(r.flops, tokens * (6 * norms + 12 * layers * dim * 512), 1e-12, "model FLOPs");
            near(r.mfu, r.flops / r.step_s / 1e14, 1e-12, "MFU");
            double again = recompute == FO_RECOMPUTE_FULL ? r.hfu - r.mfu : 0;
            assert_true(recompute == FO_RECOMPUTE_FULL ? again > 0.2 * r.mfu && again < r.mfu / 3
                                                       : r.hfu == r.mfu);
        }
}

/* Scores in memory are computed whole, not as causal attention. */
static void scores_in_memory(void **state)
{
    (void)state;
    fo_sim_machine machine;
    fo_sim_machine_ideal(&machine);
    machine.device.flops_per_s[FO_BF16] = 1e14;
    fo_step_options o = options_of("gpt2");
    o.flash_attention = false;
    double once = 12 * 4.0 * 768 * 1024 * 1024 / 1e14, step[3];
    for (int recompute = 0; recompute < 3; recompute++) {
        o.recompute = (fo_recompute)recompute;
        step[recompute] = run_on(&machine, &o, all).step_s;
    }
    double weights = 12 * fo_planner_layer_weights(&o.model) * 2 * 1024 / 1e14;
    near(step[1] - step[0], once, 1e-9, "selective");
    near(step[2] - step[0], once + weights, 1e-9, "full");
}

/* Only memory takes time: bytes of a step, counted here once more. */
static void passes_alone(void **state)
{
    (void)state;
    fo_sim_machine machine;
    fo_sim_machine_ideal(&machine);
    machine.device.memory_bytes_per_s = 1e12;
    fo_step_options o = options_of("llama2-7b");
    o.context = 1024;
    const fo_model_sizes *m = &o.model;
    double d = 1024.0 * 4096, f = 1024.0 * 11008, v = 1024.0 * 32000,
           w = fo_planner_layer_weights(m);
    double forward =
        2 * (2 + 3) * 2 * d + 4 * 2 * d + 3 * 2 * f; /* norms, residuals; rotary; gate */
    double backward = 2 * (5 + 3) * 2 * d + 4 * 2 * d + 5 * 2 * f + 6 * w;
    double ends = 4 * d + 10 * d + 4 * d + 10 * d + v * (38 + 14) + 6 * 32000.0 * 4096;
    double sums =
        2 * (3 * d + 2 * f +
             2 * d); /* of columns, in every weight gradient: qkv, gate and up; out, down */
    double optimizer = 58 * fo_model_sizes_parameters(m);
    fo_step_report r = run_on(&machine, &o, all);
    near(r.optimizer_s, optimizer / 1e12, 1e-9, "optimizer");
    near(r.step_s, (32 * (forward + backward + sums) + ends + 2 * v + optimizer) / 1e12, 1e-9,
         "step");
}

/* ---- properties -------------------------------------------------------------------------------------- */

static int below(uint64_t key, uint64_t index, int bound)
{
    return (int)fo_base_random_below(key, 7, index, (uint64_t)bound);
}

static fo_step_options random_split(uint64_t key)
{
    static const char *const models[] = {"gpt2", "gpt2-xl", "llama3-8b", "qwen2.5-0.5b",
                                         "mistral-7b"};
    static const int tps[] = {1, 2, 4, 8};
    static const char *const overlaps[] = {NULL, "none", "flash", "slice:4", "auto", "megatron"};
    fo_step_options o = options_of(models[below(key, 0, 5)]);
    o.tp = tps[below(key, 1, 4)];
    o.dp = 1 + below(key, 2, 5);
    o.pp = 1 + below(key, 3, 5);
    o.interleave = o.pp > 1 ? 1 + below(key, 4, 2) : 1;
    o.micro_batch = 1 + below(key, 5, 2);
    o.batch = o.dp * o.micro_batch * o.pp * (1 + below(key, 6, 4));
    o.context = 256 << below(key, 7, 3);
    o.recompute = (fo_recompute)below(key, 8, 3);
    o.sequence_parallel = below(key, 9, 4) > 0;
    o.flash_attention = below(key, 10, 3) > 0;
    o.wire = (fo_dtype)below(key, 11, 2);
    o.sharded_optimizer = below(key, 12, 2);
    o.overlap_dp = below(key, 13, 3) > 0;
    o.optimizer = below(key, 14, 4) > 0;
    o.overlap = o.sequence_parallel ? overlaps[below(key, 15, 6)]
                : below(key, 15, 2) ? "none"
                                    : NULL;
    o.dtype = below(key, 16, 5) ? FO_BF16 : FO_F32;
    if (below(key, 17, 4) == 0) {
        o.slow_rank = below(key, 18, o.tp);
        o.slow_speed = 0.25 * (1 + below(key, 19, 4));
    }
    return o;
}

static void check_report(const fo_step_options *o, const fo_step_report *r)
{
    double parts =
        r->compute_s + r->tp_exposed_s + r->dp_exposed_s + r->pp_exposed_s + r->optimizer_s;
    near(parts, r->step_s, 1e-9, "parts of the step");
    near(layers_of(r), r->compute_s + r->tp_exposed_s, 1e-9, "rows");
    assert_true(r->step_s > 0 && isfinite(r->step_s) && r->compute_s > 0);
    assert_true(r->tp_exposed_s >= -1e-9 * r->step_s && r->dp_exposed_s >= -1e-9 * r->step_s);
    assert_true(r->pp_exposed_s >= -1e-9 * r->step_s && r->optimizer_s >= 0);
    assert_true(r->mfu > 0 && r->mfu < 1 && r->hfu >= r->mfu && r->hfu <= 1.0001);
    if (!o->overlap ||
        strcmp(o->overlap, "auto") == 0) /* never knowingly slower than nothing overlapped */
        assert_true(r->step_s <= r->none_s * (1 + 1e-9));
    near(r->memory_bytes,
         r->weight_bytes + r->gradient_bytes + r->optimizer_bytes + r->activation_bytes, 1e-12,
         "bytes");
    assert_int_equal(r->fits, r->memory_bytes <= 80e9);
    for (int i = 0; i < r->row_count; i++) {
        const fo_step_row *row = &r->rows[i];
        const fo_step_losses *l = &row->losses;
        assert_true(row->name[0] && row->count > 0 && row->total_s >= 0 && isfinite(row->total_s));
        double lost =
            l->imbalance + l->contention + l->overhead + l->latency + l->slicing + l->tail;
        near(lost, row->total_s - row->bound_s, 1e-6, row->name);
    }
}

static void many_splits(void **state)
{
    (void)state;
    fo_sim_machine machine;
    machine_of(&machine, 1e11);
    for (uint64_t key = 0; key < 150; key++) {
        fo_step_options o = random_split(key);
        fo_step_report r = run_on(&machine, &o, all);
        check_report(&o, &r);
    }
}

/* What is in the table is neither asked again nor something else than on a table of its own. */
static void shared_prices(void **state)
{
    (void)state;
    fo_sim_machine machine;
    fo_planner_prices *prices;
    machine_of(&machine, 1e11);
    expect_ok(fo_planner_prices_create(&machine, &prices));
    for (int round = 0; round < 2; round++)
        for (uint64_t key = 200; key < 230; key++) {
            fo_step_options o = random_split(key);
            fo_step_report shared, own = run_on(&machine, &o, FO_PLANNER_COMPARE);
            expect_ok(fo_planner_step_run(prices, &o, FO_PLANNER_COMPARE, &shared));
            if (round == 1)
                assert_int_equal(shared.events, 0);
            shared.events = own.events = 0;
            assert_memory_equal(&shared, &own, sizeof own);
        }
    fo_planner_prices_free(prices);
}

/* Closed forms are what search uses: near the simulation. */
static void closed_forms(void **state)
{
    (void)state;
    fo_sim_machine machine;
    machine_of(&machine, 1e11);
    for (uint64_t key = 300; key < 340; key++) {
        fo_step_options o = random_split(key);
        fo_step_report simulated = run_on(&machine, &o, 0);
        fo_step_report closed = run_on(&machine, &o, FO_PLANNER_CLOSED);
        near(closed.step_s, simulated.step_s, 0.01, "closed form of a step");
    }
}

/* ---- replicas, pipeline, stragglers ------------------------------------------------------------------- */

static void replicas(void **state)
{
    (void)state;
    fo_sim_machine machine;
    fo_step_options o = options_of("llama3-8b");
    o.tp = 8;
    o.context = 4096;
    double alone;
    machine_of(&machine, 1e11);
    machine.contention = 0;
    o.batch = 2;
    alone = run_on(&machine, &o, 0).step_s;
    for (int dp = 2; dp <= 64; dp *= 2) {
        double parameters = fo_model_sizes_parameters(&o.model) / 8, part = (dp - 1.0) / dp;
        o.dp = dp;
        o.batch = 2 * dp;
        o.overlap_dp = false;
        fo_step_report apart = run_on(&machine, &o, all);
        /* gradients in bf16, parameters in bf16, over the machine's share of a rank */
        double latency = 2 * 34 * (dp - 1) * 1e-5;
        near(apart.dp_exposed_s, 4 * parameters * part / (1e11 / 8) + latency, 2e-2,
             "gradients, parameters");
        o.overlap_dp = true;
        fo_step_report behind = run_on(&machine, &o, all);
        assert_true(behind.dp_exposed_s < 0.5 * apart.dp_exposed_s);
        assert_true(behind.dp_exposed_s > 0); /* the table's gradients come last */
        near(behind.none_s, apart.none_s, 1e-12, "nothing overlapped");
        assert_true(behind.step_s - behind.dp_exposed_s <= alone);
    }
    machine.contention = 0.2; /* what is hidden slows computing down */
    fo_step_report slowed = run_on(&machine, &o, 0);
    machine.contention = 0;
    assert_true(slowed.dp_exposed_s > run_on(&machine, &o, 0).dp_exposed_s);
}

static void pipelines(void **state)
{
    (void)state;
    fo_sim_machine machine;
    machine_of(&machine, 1e11);
    fo_step_options o = options_of("megatron-1t");
    o.model.vocabulary = 64; /* ends that weigh nothing */
    o.tp = 8;
    o.batch = 64;
    o.context = 1024;
    machine.network.outer.latency_s = 0;
    machine.network.outer.bytes_per_s = 0; /* takes no time */
    double alone = run_on(&machine, &o, 0).step_s;
    for (int pp = 2; pp <= 16; pp *= 2)
        for (int chunks = 1; chunks <= 4; chunks *= 2) {
            o.pp = pp;
            o.interleave = chunks;
            fo_step_report r = run_on(&machine, &o, 0);
            double work = r.compute_s + r.tp_exposed_s;
            near(r.pp_exposed_s / work, (pp - 1.0) / (chunks * 64.0), 0.02, "bubble");
            near(work * pp, alone, 0.02, "work of the stages");
        }
}

static void stragglers(void **state)
{
    (void)state;
    fo_sim_machine machine;
    machine_of(&machine, 1e11);
    fo_step_options o = options_of("llama3-8b");
    o.tp = 4;
    o.dp = 2;
    o.pp = 2;
    o.batch = 16;
    o.context = 1024;
    double equal = run_on(&machine, &o, all).step_s, before = equal;
    o.slow_rank = 2;
    near(run_on(&machine, &o, all).step_s, equal, 1e-6, "as fast as the others");
    for (int tenths = 9; tenths > 3; tenths -= 2) {
        double speed = 0.1 * tenths;
        o.slow_speed = speed;
        double slow = run_on(&machine, &o, all).step_s;
        assert_true(slow > before && slow < 1.01 * equal / speed);
        before = slow;
    }
}

/* ---- refusals ---------------------------------------------------------------------------------------- */

static void refused(const fo_step_options *o, const char *what, const char *instead)
{
    fo_sim_machine machine;
    fo_planner_prices *prices;
    fo_step_report report;
    machine_of(&machine, 1e11);
    expect_ok(fo_planner_prices_create(&machine, &prices));
    expect_fails(fo_planner_step_run(prices, o, 0, &report), FO_INVALID, what);
    expect_fails(fo_planner_step_run(prices, o, 0, &report), FO_INVALID, instead);
    fo_planner_prices_free(prices);
}

#define REFUSED(change, what, instead)          \
    do {                                        \
        fo_step_options o = options_of("gpt2"); \
        change;                                 \
        refused(&o, what, instead);             \
    } while (0)

static void impossible(void **state)
{
    (void)state;
    REFUSED(o.tp = 16, "tp is 16, but gpt2 has 12 heads", "at most 12");
    REFUSED((o.tp = 3, o.dp = 2, o.batch = 2), "tp is 3 on machines of 8", "such as 2");
    REFUSED(o.tp = 12, "tp is 12 on machines of 8", "such as 8");
    REFUSED(o.pp = 13, "pp is 13, but gpt2 has 12 layers", "at most 12");
    REFUSED((o.pp = 4, o.interleave = 4, o.batch = 4), "needs 16 layers", "interleave 3");
    REFUSED(o.interleave = 2, "interleave is 2 with one pipeline stage", "expected 1");
    REFUSED((o.dp = 4, o.batch = 10), "batch of 10", "batch 8");
    REFUSED((o.pp = 2, o.interleave = 2, o.batch = 3), "3 micro-batches", "batch 4");
    REFUSED(o.context = 2048, "table of 1024 positions", "at most");
    REFUSED((o.model.positions = false, o.context = 1 << 20, o.batch = o.micro_batch = 64),
            "at a time", "micro_batch 16");
    REFUSED(o.batch = 0, "batch is 0", "1 to");
    REFUSED(o.dp = -1, "dp is -1", "1 to");
    REFUSED(o.model.ffn = 0, "ffn is 0", "1 to");
    REFUSED(o.model.kv_heads = 5, "kv_heads is 5", "divisor of heads");
    REFUSED(o.slow_rank = 1, "slow_rank is 1 of tp 1", "-1 to 0");
    REFUSED((o.slow_rank = 0, o.slow_speed = 0), "slow_speed is 0", "e.g. 0.5");
    REFUSED(o.overlap = "flush", "'flush' is unknown", "flash");
    REFUSED(o.overlap = "library", "no program", "none");
    REFUSED((o.overlap = "flash", o.tp = 2, o.sequence_parallel = false), "'flash' needs",
            "sequence_parallel");
    REFUSED((o.tp = 4096, o.dp = 4096, o.pp = 12, o.model.heads = o.model.kv_heads = 4096),
            "more than", "fewer");
    fo_step_report report;
    fo_step_options o = options_of("gpt2");
    expect_fails(fo_step_simulate(&o, &report), FO_INVALID, "no machine");
    o.machine = "a1000";
    expect_fails(fo_step_simulate(&o, &report), FO_INVALID, "a1000");
}

/* ---- cost -------------------------------------------------------------------------------------------- */

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* 4,096 ranks in less than 2 s and 1 GiB; a sanitizer costs its factor. */
static void cheap(void **state)
{
    (void)state;
    fo_step_report r;
    struct rusage usage;
    fo_step_options o = options_of("llama3-405b");
    o.machine = "h100-sxm-ndr";
    o.tp = 8;
    o.dp = 32;
    o.pp = 16;
    o.batch = 2048;
    double begin = seconds_now();
    expect_ok(fo_step_simulate(&o, &r));
    double took = seconds_now() - begin;
    getrusage(RUSAGE_SELF, &usage);
    print_message("4096 ranks: %.3f s of one core, %.0f MiB, %lld events\n", took,
                  (double)usage.ru_maxrss / 1024, (long long)r.events);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(took < 2);
    assert_true(usage.ru_maxrss < 1024 * 1024);
#endif
}

/* Equal layers, equal groups: more of them ask the simulator nothing new. */
static void linear(void **state)
{
    (void)state;
    int64_t events = 0;
    fo_sim_machine machine;
    machine_of(&machine, 1e11);
    for (int factor = 1; factor <= 8; factor *= 2) {
        fo_step_options o = options_of("llama3-70b");
        o.tp = 8;
        o.dp = 2 * factor;
        o.pp = 4 * factor;
        o.model.layers *= factor;
        o.batch = 32 * factor;
        o.context = 1024;
        fo_step_report r = run_on(&machine, &o, all);
        assert_true(events == 0 || r.events == events);
        events = r.events;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_alone), cmocka_unit_test(scores_in_memory),
        cmocka_unit_test(passes_alone),   cmocka_unit_test(many_splits),
        cmocka_unit_test(shared_prices),  cmocka_unit_test(closed_forms),
        cmocka_unit_test(replicas),       cmocka_unit_test(pipelines),
        cmocka_unit_test(stragglers),     cmocka_unit_test(impossible),
        cmocka_unit_test(cheap),          cmocka_unit_test(linear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
