/* Links between tensor-parallel groups, and buckets between replicas: by hand, and against a clock that ticks. */
#include <math.h>

#include "base/random.h"
#include "planner/data_parallel.h"
#include "planner/model.h"
#include "unit/data/scratch.h"

enum { MOST = 64 };

static void near(double found, double expected, double within, const char *what)
{
    if (!(fabs(found - expected) <= within * fabs(expected) + 1e-12))
        fail_msg("%s: %.9g, expected %.9g", what, found, expected);
}

static void make(const char *model, int tp, int dp, int pp, int interleave, int locals,
                 fo_planner_split *split)
{
    fo_step_options o = {.tp = tp,
                         .dp = dp,
                         .pp = pp,
                         .interleave = interleave,
                         .batch = (int64_t)dp * pp,
                         .micro_batch = 1,
                         .sequence_parallel = true,
                         .dtype = FO_BF16,
                         .wire = FO_F32,
                         .sharded_optimizer = true,
                         .overlap_dp = true,
                         .slow_rank = -1};
    expect_ok(fo_model_sizes_read(model, &o.model));
    expect_ok(fo_planner_split_make(&o, locals, split));
}

static void cluster(fo_sim_machine *machine, int locals, int outer_ports)
{
    fo_sim_machine_ideal(machine);
    machine->network.locals = locals;
    machine->network.outer_ports = outer_ports;
    machine->network.link = (fo_sim_link){.bytes_per_s = 100e9, .latency_s = 1e-6};
    machine->network.outer = (fo_sim_link){.bytes_per_s = 10e9, .latency_s = 1e-5};
}

/* Which link, and how much of it. */
static void links(void **state)
{
    (void)state;
    const struct {
        int tp, dp, pp, locals, outer_ports;
        double rate;          /* between replicas, GB/s */
        bool replicas, stage; /* between machines */
    } cases[] = {
        {8, 4, 2, 8, 0, 10, true, true},   /* a replica a machine: the rank's own port */
        {8, 4, 2, 8, 2, 2.5, true, true},  /* two ports for eight ranks */
        {4, 4, 2, 8, 0, 20, true, true},   /* two replicas a machine leave it at two ranks */
        {2, 4, 2, 8, 0, 100, false, true}, /* all replicas on a machine, stages apart */
        {2, 2, 2, 8, 0, 100, false, false},
        {1, 64, 1, 8, 0, 80, true, false}, /* eight at a time */
        {1, 64, 1, 0, 0, 100, false, false},
        {16, 2, 2, 8, 0, 10, true, true}, /* a group over two machines */
        {1, 12, 1, 8, 0, 40, true,
         false}, /* machines that share replicas unevenly: what all have */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fo_sim_machine machine;
        fo_planner_split s;
        cluster(&machine, cases[i].locals, cases[i].outer_ports);
        make("llama3-70b", cases[i].tp, cases[i].dp, cases[i].pp, 1, cases[i].locals, &s);
        fo_planner_link replicas = fo_planner_links_replicas(&machine, &s);
        near(replicas.bytes_per_s, cases[i].rate * 1e9, 1e-12, "rate between replicas");
        assert_int_equal(replicas.between_machines, cases[i].replicas);
        for (int stage = 0; stage < cases[i].pp && cases[i].pp > 1; stage++)
            assert_int_equal(fo_planner_links_stage(&machine, &s, stage).between_machines,
                             cases[i].stage);
    }
    fo_sim_machine machine;
    fo_planner_split s;
    cluster(&machine, 8, 0);
    machine.network.topology = FO_SIM_MESH;
    make("llama3-70b", 1, 8, 1, 1, 8, &s);
    fo_planner_link mesh = fo_planner_links_replicas(&machine, &s);
    near(mesh.bytes_per_s, 700e9, 1e-12, "all links of a mesh");
    near(fo_planner_links_ring_s(&mesh, 8, 8e9), 7 * (1e-6 + 1e9 / 700e9), 1e-12, "a ring");
    near(fo_planner_links_message_s(&mesh, 7e9), 1e-6 + 0.01, 1e-12, "a message");
    assert_true(fo_planner_links_message_s(&mesh, 0) == 0 &&
                fo_planner_links_ring_s(&mesh, 1, 5) == 0);
}

/* Buckets of a stage in the order in which they become ready, by the rules of the header. */
static double reduced_by_hand(const fo_planner_replicas *r, int stage,
                              const fo_planner_pipeline_end *ends)
{
    const fo_planner_split *s = r->split;
    double free_s = 0, ring = (s->options.dp - 1.0) / s->options.dp / r->link.bytes_per_s;
    double each = 4 * ring * fo_planner_split_layer_parameters(s);
    for (int j = s->virtual_stages - s->options.pp + stage; j >= 0; j -= s->options.pp) {
        int64_t layers = fo_planner_split_layers(s, j);
        double rest = 4 * ring * fo_planner_split_end_parameters(s, j), begin = ends[j].begin_s;
        bool last = j == s->virtual_stages - 1;
        if (last && j > 0)
            free_s = fmax(free_s, begin) + rest;
        for (int64_t l = 1; l <= layers; l++)
            free_s =
                fmax(free_s, begin + (ends[j].end_s - begin) * (double)l / (double)layers) + each;
        if (j == 0)
            free_s = fmax(free_s, ends[0].end_s) + rest;
    }
    return free_s;
}

static double uniform(uint64_t key, uint64_t index, double low, double high)
{
    return low + (high - low) * (double)fo_base_random_uniform(key, 3, index);
}

static void gradients(void **state)
{
    (void)state;
    for (uint64_t key = 1; key <= 300; key++) {
        int pp = 1 + (int)(key % 5), chunks = pp > 1 ? 1 + (int)(key % 3) : 1;
        fo_planner_split s;
        fo_planner_pipeline_end ends[MOST];
        double end_s[MOST] = {0}, expected = 0, t = 0, computed = 0;
        make("llama3-8b", 4, 2 + (int)(key % 7), pp, chunks, 0, &s);
        fo_planner_replicas r = {.split = &s, .link = {.bytes_per_s = uniform(key, 0, 1e9, 2e11)}};
        fo_sim_curve curve = {0};
        r.link.efficiency = &curve;
        for (int j = s.virtual_stages - 1; j >= 0; j--) {
            ends[j].begin_s = t + uniform(key, 100 + (uint64_t)j, 0, 0.05);
            t = ends[j].end_s = ends[j].begin_s + uniform(key, 200 + (uint64_t)j, 0.01, 0.3);
            end_s[j % pp] = fmax(end_s[j % pp], t);
            computed = fmax(computed, t);
        }
        for (int stage = 0; stage < pp; stage++)
            expected = fmax(expected, fmax(end_s[stage], reduced_by_hand(&r, stage, ends)));
        double found = fo_planner_replicas_reduced_s(&r, ends, end_s);
        near(found, expected, 1e-9, "gradients");
        r.contention =
            0.3; /* computing ends later, and gradients with it; by no more than all would be slowed */
        double slowed = fo_planner_replicas_reduced_s(&r, ends, end_s);
        assert_true(slowed >= found - 1e-12 && slowed <= found + computed * 0.3 + 1e-12);
        r.contention = 0;
        near(fo_planner_replicas_gradients_s(&r, 0),
             4 * fo_planner_split_parameters(&s, 0) * (s.options.dp - 1) / s.options.dp /
                 r.link.bytes_per_s,
             1e-9, "all of a stage");
    }
}

/* A link that belongs to the tp group for a part of the time in which something is computed, tick by tick: layers in
 * equal times, their buckets one after another, the table's last. */
static double ticking(const fo_planner_replicas *r, double end_s)
{
    int64_t layers = fo_planner_split_layers(r->split, 0), next = 0;
    double ring = (r->split->options.dp - 1.0) / r->split->options.dp / r->link.bytes_per_s;
    double layer = 4 * ring * fo_planner_split_layer_parameters(r->split);
    double table = 4 * ring * fo_planner_split_end_parameters(r->split, 0);
    double tick = (end_s + layer * (double)layers + table) / 100000, t = 0, left = 0;
    while (next < layers || t < end_s || left > 0) {
        while (next < layers && t >= end_s * (double)(next + 1) / (double)layers)
            left += ++next == layers ? layer + table : layer;
        left = fmax(0, left - (t < end_s ? tick * (1 - r->busy) : tick));
        t += tick;
    }
    return t;
}

/* Nobody shares the link; while it is in use, layers take 1 + contention times as long, however long they are. */
static double slowed_ticking(const fo_planner_replicas *r, double end_s)
{
    int64_t layers = fo_planner_split_layers(r->split, 0), next = 0;
    double ring = (r->split->options.dp - 1.0) / r->split->options.dp / r->link.bytes_per_s;
    double layer = 4 * ring * fo_planner_split_layer_parameters(r->split);
    double table = 4 * ring * fo_planner_split_end_parameters(r->split, 0);
    double tick = (end_s + layer * (double)layers + table) / 200000, t = 0, left = 0, done = 0;
    while (next < layers || left > 0) {
        done += left > 0 ? tick / (1 + r->contention) : tick;
        left = fmax(0, left - tick);
        t += tick;
        while (next < layers && done >= end_s * (double)(next + 1) / (double)layers)
            left += ++next == layers ? layer + table : layer;
    }
    return t;
}

static void contention(void **state)
{
    (void)state;
    for (uint64_t key = 1; key <= 60; key++) {
        fo_planner_split s;
        fo_sim_curve curve = {0};
        make("llama3-8b", 4, 4, 1, 1, 0, &s);
        double end_s = uniform(key, 1, 0.05, 0.5);
        fo_planner_pipeline_end end = {0, end_s};
        fo_planner_replicas r = {.split = &s,
                                 .link = {uniform(key, 0, 1e10, 3e11), 0, &curve, false},
                                 .contention = uniform(key, 2, 0, 1)};
        near(fo_planner_replicas_reduced_s(&r, &end, &end_s), slowed_ticking(&r, end_s), 1e-3,
             "gradients beside a slowed pass");
        for (int tenths = 0; tenths <= 10; tenths++) { /* hidden they add no more than apart */
            r.busy = 0.1 * tenths;
            assert_true(fo_planner_replicas_reduced_s(&r, &end, &end_s) <=
                        end_s + fo_planner_replicas_gradients_s(&r, 0) + 1e-12);
        }
    }
}

/* Replicas that share the link of the tp group get what it leaves, and all of it when nothing is computed any more:
 * behind the backward pass they take no longer than after it, and a faster pass makes no step slower. */
static void shared_link(void **state)
{
    (void)state;
    for (uint64_t key = 1; key <= 60; key++) {
        fo_planner_split s;
        fo_sim_curve curve = {0};
        make("llama3-8b", 4, 4, 1, 1, 0, &s);
        double end_s = uniform(key, 1, 0.05, 0.5), before = 0;
        fo_planner_pipeline_end end = {0, end_s};
        fo_planner_replicas r = {.split = &s,
                                 .link = {uniform(key, 0, 1e10, 3e11), 0, &curve, false},
                                 .busy = uniform(key, 2, 0, 1)};
        double found = fo_planner_replicas_reduced_s(&r, &end, &end_s);
        near(found, ticking(&r, end_s), 1e-3, "gradients on a shared link");
        for (int tenths = 0; tenths <= 10; tenths++) {
            double forward_s = end_s / 2, ready_s;
            r.busy = 0.1 * tenths;
            found = fo_planner_replicas_reduced_s(&r, &end, &end_s);
            assert_true(found >= before);
            assert_true(found <= end_s + fo_planner_replicas_gradients_s(&r, 0) + 1e-12);
            before = found;
            fo_planner_replicas_ready_s(&r, &forward_s, &ready_s);
            assert_true(ready_s <= fo_planner_replicas_parameters_s(&r, 0) + 1e-12);
        }
        double transfer_s = 0.3 * end_s; /* of the tp group, however long it computes */
        before = 0;
        for (int tenths = 3; tenths <= 10; tenths++) {
            double computed_s = 0.1 * tenths * end_s;
            fo_planner_pipeline_end ends = {0, computed_s};
            r.busy = transfer_s / computed_s;
            found = fo_planner_replicas_reduced_s(&r, &ends, &computed_s);
            assert_true(found >= before - 1e-12);
            before = found;
        }
    }
}

/* Layers of a stage's first forward passes wait for their own parameters, one after another. */
static void parameters(void **state)
{
    (void)state;
    for (uint64_t key = 1; key <= 200; key++) {
        int pp = 1 + (int)(key % 4), chunks = pp > 1 ? 1 + (int)(key % 3) : 1;
        fo_planner_split s;
        fo_sim_curve curve = {0};
        double forward_s[MOST], ready_s[MOST];
        make("mistral-7b", 2, 4, pp, chunks, 0, &s);
        fo_planner_replicas r = {.split = &s,
                                 .link = {uniform(key, 0, 1e9, 1e11), 0, &curve, false}};
        for (int j = 0; j < s.virtual_stages; j++)
            forward_s[j] = uniform(key, 1 + (uint64_t)j, 0.001, 0.4);
        fo_planner_replicas_ready_s(&r, forward_s, ready_s);
        double of = 2 * 0.75 / r.link.bytes_per_s; /* seconds of a parameter */
        for (int stage = 0; stage < pp; stage++) {
            double arrived = 0;
            for (int j = stage; j < s.virtual_stages; j += pp) {
                int64_t layers = fo_planner_split_layers(&s, j);
                double t = 0, ends = of * fo_planner_split_end_parameters(&s, j);
                bool head = j == s.virtual_stages - 1 && j > 0;
                arrived += head ? 0 : ends;
                for (int64_t l = 0; l < layers; l++) {
                    arrived += of * fo_planner_split_layer_parameters(&s);
                    t = fmax(t, arrived) + forward_s[j] / (double)layers;
                }
                arrived += head ? ends : 0;
                t = head ? fmax(t, arrived) : t;
                near(ready_s[j] + forward_s[j], t, 1e-9, "the first forward pass");
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(links), cmocka_unit_test(gradients),
                                       cmocka_unit_test(shared_link), cmocka_unit_test(contention),
                                       cmocka_unit_test(parameters)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
