/* Operations on machines: what follows exactly on ideal ones, sums of losses, equal ranks, published figures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "flashoverlap/status.h"
#include "schedule/operation.h"
#include "sim/operation.h"
#include "sim/profile.h"

static void near(double value, double expected, double part)
{
    if (!(fabs(value - expected) <= part * fabs(expected) + 1e-15))
        fail_msg("%.12g, expected %.12g within %g", value, expected, part);
}

static uint64_t below(uint64_t key, uint64_t index, uint64_t bound)
{
    return fo_base_random_below(77, key, index, bound);
}

/* An operation of `rows` rows with a 96 x 128 weight. */
static fo_sim_operation operation(fo_op op, int ranks, int64_t rows, const char *overlap)
{
    fo_sim_operation o = {.ranks = ranks, .threads = 1, .packed = true};
    o.desc = (fo_plan_desc){.op = op,
                            .rows = rows,
                            .in = 96,
                            .out = 128,
                            .hidden = op == FO_MLP_FORWARD ? 160 : 0,
                            .dtype = FO_BF16,
                            .wire = FO_BF16,
                            .y_dtype = FO_BF16,
                            .overlap = overlap};
    if (fo_schedule_operation_has_attention(op))
        o.desc.attention = (fo_plan_attention){.batch = 2,
                                               .context = rows / 2,
                                               .heads = 6,
                                               .head_dim = 16,
                                               .total_heads = 12,
                                               .order = FO_ROWS_BALANCED};
    return o;
}

static fo_sim_report run(const fo_sim_machine *machine, const fo_sim_operation *o)
{
    fo_sim_report report;
    if (fo_sim_operation_run(machine, o, &report) != FO_OK)
        fail_msg("%s", fo_last_error());
    return report;
}

/* Constant rate, links without latency; products of all rows take 1 ms, transfers so many. */
static fo_sim_machine ideal(double flops, double bytes, double transfer_s)
{
    fo_sim_machine m;
    fo_sim_machine_ideal(&m);
    m.device.flops_per_s[FO_BF16] = m.device.flops_per_s[FO_F32] = flops / 1e-3;
    m.network.link.bytes_per_s = transfer_s > 0 ? bytes / transfer_s : 0;
    return m;
}

/* ---- what must come out exactly --------------------------------------------------------------------- */

static const struct {
    fo_op op;
    double products; /* of a weight of in x out */
    double gathered, reduced;
} simple[] = {{FO_COLUMN_FORWARD, 1, 96 * 2, 0},
              {FO_ROW_FORWARD, 1, 0, 128 * 2},
              {FO_ROW_BACKWARD, 2, 128 * 2, 0},
              {FO_COLUMN_DGRAD, 1, 0, 96 * 2},
              {FO_COLUMN_WGRAD, 1, 96 * 2, 0}};

static void test_none(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof simple / sizeof simple[0]; i++)
        for (int ranks = 2; ranks <= 9; ranks++) {
            int64_t rows = (int64_t)ranks * 1024;
            fo_sim_operation o = operation(simple[i].op, ranks, rows, "none");
            double bytes = (double)(rows - rows / ranks) * (simple[i].gathered + simple[i].reduced);
            fo_sim_machine m =
                ideal(simple[i].products * 2 * (double)rows * 96 * 128, bytes, 0.4e-3);
            fo_sim_report r = run(&m, &o);
            near(r.compute_s, 1e-3, 1e-9);
            near(r.total_s, 1.4e-3, 1e-6); /* everything computed, everything sent */
            near(r.sent_bytes, bytes, 0);
            near(r.exposed_s, 0.4e-3, 1e-6);
        }
}

/* Where transfers fit behind all computations but one, they cost nothing. */
static void test_flash(void **state)
{
    (void)state;
    static const char *const overlaps[] = {"flash", "flash:2", "direct", "direct:2"};
    for (size_t i = 0; i < sizeof simple / sizeof simple[0]; i++)
        for (int ranks = 2; ranks <= 6; ranks++)
            for (int s = 0; s < 4; s++) {
                int64_t rows = (int64_t)ranks * 4096;
                fo_sim_operation o = operation(simple[i].op, ranks, rows, overlaps[s]);
                double bytes =
                    (double)(rows - rows / ranks) * (simple[i].gathered + simple[i].reduced);
                fo_sim_machine m =
                    ideal(simple[i].products * 2 * (double)rows * 96 * 128, bytes, 0.4e-3);
                near(run(&m, &o).total_s, 1e-3, s < 2 ? 1e-6 : 0.05);
                near(run(&m, &o).sent_bytes, bytes, 0);
            }
}

/* slice:k waits for one chunk's transfer before, or behind, all others. */
static void test_slices(void **state)
{
    (void)state;
    for (int k = 2; k <= 8; k *= 2)
        for (int ranks = 2; ranks <= 4; ranks *= 2) {
            char overlap[32];
            int64_t rows = (int64_t)ranks * 8192;
            snprintf(overlap, sizeof overlap, "slice:%d", k);
            fo_sim_operation o = operation(FO_COLUMN_FORWARD, ranks, rows, overlap);
            double bytes = (double)(rows - rows / ranks) * 192;
            fo_sim_machine m = ideal(2 * (double)rows * 96 * 128, bytes, 0.4e-3);
            near(run(&m, &o).total_s, 1e-3 + 0.4e-3 / k, 0.01);
        }
}

/* Keys of causal queries, one by one. */
static void test_attention(void **state)
{
    (void)state;
    for (int order = FO_ROWS_STRAIGHT; order <= FO_ROWS_BALANCED; order++)
        for (int first = 0; first < 2; first++)
            for (int backward = 0; backward < 2; backward++) {
                fo_op op = backward ? FO_ATTENTION_BACKWARD : FO_ATTENTION_FORWARD;
                fo_sim_operation o = operation(op, 4, 2048, "none");
                o.desc.attention.order = (fo_row_order)order;
                o.desc.attention.first = first;
                double keys = 2 * (1024.0 * 1025 / 2);
                double flops = (backward ? 2 : 1) * 2.0 * 2048 * 96 * 128;
                flops += (backward ? 10 : 4) * 96 * keys;
                double bytes = 1536 * 256;
                fo_sim_machine m = ideal(flops, bytes, 0.25e-3);
                near(run(&m, &o).compute_s, 1e-3, 1e-9);
                near(run(&m, &o).total_s, 1.25e-3, 1e-6);
                o.desc.overlap = "flash";
                double total = run(&m, &o).total_s;
                assert_true(total >= 1e-3 * (1 - 1e-9) && total < 1.25e-3);
            }
    /* the shards of a cut sequence are equal in balanced order only, and then nobody waits */
    fo_sim_operation o = operation(FO_ATTENTION_FORWARD, 4, 4096, "flash");
    fo_sim_machine m = ideal(1e12, 3072 * 256, 0.6e-3);
    o.desc.attention.order = FO_ROWS_STRAIGHT;
    double straight = run(&m, &o).total_s;
    o.desc.attention.order = FO_ROWS_BALANCED;
    assert_true(run(&m, &o).total_s <= straight * (1 + 1e-9));
}

static void test_apart(void **state)
{
    (void)state;
    fo_sim_operation o = operation(FO_ATTENTION_FORWARD, 4, 2048, "flash");
    fo_sim_machine m = ideal(4e8, 1536 * 256, 0.9e-3);
    double inside = run(&m, &o).total_s;
    o.desc.attention.first = true; /* less is left to hide behind */
    assert_true(run(&m, &o).total_s > inside);
    near(run(&m, &o).compute_s, (2.0 * 2048 * 96 * 128 + 4.0 * 96 * 1024 * 1025) / 4e11, 1e-9);
}

/* A rank at half the speed, a rank that begins late. */
static void test_ranks_that_differ(void **state)
{
    (void)state;
    double speed[4] = {1, 1, 0.5, 1}, start_s[4] = {0, 0, 0, 5e-4};
    fo_sim_operation o = operation(FO_ROW_FORWARD, 4, 8192, "flash");
    fo_sim_machine m = ideal(2.0 * 8192 * 96 * 128, 6144 * 256, 0.3e-3);
    near(run(&m, &o).total_s, 1e-3, 1e-6);
    o.speed = speed;
    fo_sim_report report;
    assert_int_equal(fo_sim_operation_explain(&m, &o, &report), FO_OK);
    near(report.compute_s, 2e-3, 1e-9);
    assert_true(report.total_s >= 2e-3 * (1 - 1e-9) && report.total_s < 2.2e-3);
    near(report.bound_s, 1e-3, 1e-9);
    near(report.losses.imbalance, report.total_s - 1e-3, 1e-6);
    o.speed = NULL;
    o.start_s = start_s;
    assert_true(run(&m, &o).total_s >= 1.5e-3 * (1 - 1e-9));
    near(run(&m, &o).compute_s, 1e-3, 1e-9);
}

/* ---- many shapes ------------------------------------------------------------------------------------ */

static const char *const strategies[] = {"none",    "slice:2", "slice:4",  "ring",    "flash",
                                         "flash:3", "direct",  "direct:2", "slice:7", "flash:2"};
static const fo_op all_ops[] = {FO_COLUMN_FORWARD, FO_COLUMN_BACKWARD,   FO_ROW_FORWARD,
                                FO_ROW_BACKWARD,   FO_ALL_GATHER,        FO_REDUCE_SCATTER,
                                FO_MLP_FORWARD,    FO_ATTENTION_FORWARD, FO_ATTENTION_BACKWARD,
                                FO_COLUMN_DGRAD,   FO_COLUMN_WGRAD};

static fo_sim_operation draw_operation(uint64_t i, bool divides)
{
    int ranks = 1 + (int)below(1, i, 6);
    int64_t rows = 2 * (int64_t)below(2, i, 1500);
    if (divides)
        rows = rows / (2 * ranks) * 2 * ranks;
    fo_sim_operation o =
        operation(all_ops[below(3, i, 11)], ranks, rows, strategies[below(4, i, 10)]);
    o.packed = below(5, i, 2);
    o.desc.wire = (fo_dtype)below(6, i, 2);
    o.desc.act =
        fo_schedule_operation_has_activation(o.desc.op) && below(7, i, 2) ? FO_GELU : FO_IDENTITY;
    o.desc.attention.first = below(8, i, 2);
    return o;
}

static fo_sim_machine draw_machine(uint64_t i)
{
    static const char *const words[] = {"a100-sxm", "h100-sxm", "mi300x",
                                        "cpu-host", "ideal",    "l20"};
    fo_sim_machine m;
    assert_int_equal(fo_sim_profile_read(words[below(9, i, 6)], &m), FO_OK);
    m.views = below(10, i, 2);
    m.async = below(11, i, 2);
    m.network.link.bytes_per_s *= exp2(-(double)below(12, i, 8));
    return m;
}

/* The parts of the loss add up, and computing is never beaten. */
static void test_losses(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 400; i++) {
        fo_sim_operation o = draw_operation(i, false);
        fo_sim_machine m = draw_machine(i);
        fo_sim_report r;
        if (fo_sim_operation_explain(&m, &o, &r) != FO_OK)
            fail_msg("case %d: %s", (int)i, fo_last_error());
        const fo_sim_losses *l = &r.losses;
        double sum = l->imbalance + l->contention + l->overhead + l->latency + l->slicing + l->tail;
        if (fabs(sum - (r.total_s - r.bound_s)) > 1e-12 + 1e-9 * r.total_s)
            fail_msg("case %d: losses %.9g, above the bound %.9g", (int)i, sum,
                     r.total_s - r.bound_s);
        /* where thin slices are never cheaper than thick ones */
        if (!m.device.units && r.total_s < r.bound_s * (1 - 1e-6) - 1e-12)
            fail_msg("case %d: %s %s, %d ranks, %d rows on %s: T %.9g, bound %.9g", (int)i,
                     fo_schedule_operation_name(o.desc.op), o.desc.overlap, o.ranks,
                     (int)o.desc.rows, m.name, r.total_s, r.bound_s);
        if (!(isfinite(r.total_s) && r.total_s >= 0 && r.exposed_s >= 0 &&
              r.exposed_s <= r.total_s))
            fail_msg("case %d: T %g, exposed %g", (int)i, r.total_s, r.exposed_s);
        fo_sim_machine_free(&m);
    }
}

/* Taking costs away never makes it slower: so the losses that are pure costs are none below zero, but for what a
 * changed order of messages does. */
static void test_ideal_is_fastest(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 300; i++) {
        fo_sim_operation o = draw_operation(1000 + i, false);
        fo_sim_machine m = draw_machine(1000 + i), free_of_it = m;
        double total = run(&m, &o).total_s;
        free_of_it.task_s = free_of_it.message_s = free_of_it.wake_s = 0;
        free_of_it.cpu_s_per_byte = free_of_it.contention = 0;
        free_of_it.network.link.latency_s = 0;
        free_of_it.device.launch_s = 0;
        free_of_it.device.comm_units = 0;
        double less = run(&free_of_it, &o).total_s;
        if (less > total * 1.02)
            fail_msg("case %d: %g without costs, %g with them", (int)i, less, total);
        fo_sim_machine_free(&m);
    }
}

/* One rank for all that are equal: the same figures as all of them. */
static void test_equal_ranks(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 300; i++) {
        fo_sim_operation o = draw_operation(2000 + i, true);
        fo_sim_machine m = draw_machine(2000 + i);
        fo_sim_report one = run(&m, &o);
        o.exact = true;
        fo_sim_report all = run(&m, &o);
        bool attends = fo_schedule_operation_has_attention(o.desc.op); /* balanced: about equal */
        near(one.total_s, all.total_s, attends ? 0.05 : 1e-9);
        near(one.compute_s, all.compute_s, 1e-12);
        near(one.sent_bytes, all.sent_bytes, 0);
        fo_sim_machine_free(&m);
    }
}

/* Rows that do not divide: about the same. */
static void test_unequal_ranks(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 100; i++) {
        fo_sim_operation o = draw_operation(3000 + i, false);
        fo_sim_machine m = draw_machine(3000 + i);
        o.ranks += 16;
        o.desc.rows += 8192; /* a row is little then */
        o.desc.attention.context = o.desc.rows / 2;
        if (o.desc.op == FO_ALL_GATHER || o.desc.op == FO_REDUCE_SCATTER)
            m.wake_s = 0; /* with nothing to compute unequal shards wait for each other in a row */
        fo_sim_report about = run(&m, &o);
        o.exact = true;
        fo_sim_report all = run(&m, &o);
        if (fabs(about.total_s - all.total_s) > 0.1 * all.total_s)
            fail_msg("%s %s, %d ranks, %d rows on %s: %g, of all ranks %g",
                     fo_schedule_operation_name(o.desc.op), o.desc.overlap, o.ranks,
                     (int)o.desc.rows, m.name, about.total_s, all.total_s);
        fo_sim_machine_free(&m);
    }
}

/* ---- plans' choices --------------------------------------------------------------------------------- */

static void test_tiles(void **state)
{
    (void)state;
    static const int64_t cases[][3] = {{131072, 1024, 1024}, {131071, 512, 512}, {65536, 512, 512},
                                       {16384, 128, 256},    {4096, 64, 256},    {0, 64, 256}};
    fo_sim_machine m;
    fo_device device = {.flops_per_s = 1e12};
    fo_sim_machine_emulated(&device, NULL, &m);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fo_plan_desc desc = {.op = FO_ROW_BACKWARD, .rows = cases[i][0]};
        int64_t tile, wgrad;
        fo_sim_operation_tiles(&m.device, &desc, &tile, &wgrad);
        assert_int_equal(tile, cases[i][1]);
        assert_int_equal(wgrad, cases[i][2]);
        m.device.by_tile = true;
        fo_sim_operation_tiles(&m.device, &desc, &tile, &wgrad);
        assert_int_equal(tile, 1024); /* tiles of kernels that compute are part of the numerics */
        m.device.by_tile = false;
    }
}

static void test_refused(void **state)
{
    (void)state;
    fo_sim_machine m;
    fo_sim_report report;
    fo_sim_machine_ideal(&m);
    m.device.flops_per_s[FO_F32] = 1e12;
    fo_sim_operation o = operation(FO_ROW_FORWARD, 4, 1024, "flash");
    assert_int_equal(fo_sim_operation_run(&m, &o, &report), FO_UNSUPPORTED);
    assert_non_null(strstr(fo_last_error(), "device.bf16_flops_per_s"));
    o.desc.dtype = FO_F32;
    assert_int_equal(fo_sim_operation_run(&m, &o, &report), FO_OK);
    o.desc.overlap = "fast";
    assert_int_equal(fo_sim_operation_run(&m, &o, &report), FO_INVALID);
    assert_non_null(strstr(fo_last_error(), "'fast' is unknown"));
    o.desc.overlap = "library";
    assert_int_equal(fo_sim_operation_run(&m, &o, &report), FO_INVALID);
    o.desc.overlap = "hier";
    o.nodes = 3;
    assert_int_equal(fo_sim_operation_run(&m, &o, &report), FO_INVALID);
    o = operation(FO_ROW_FORWARD, 0, 1024, "flash");
    assert_int_equal(fo_sim_operation_run(&m, &o, &report), FO_INVALID);
    assert_non_null(strstr(fo_last_error(), "0 ranks"));
    o = operation(FO_ROW_FORWARD, 2, -1, "flash");
    assert_int_equal(fo_sim_operation_run(&m, &o, &report), FO_INVALID);
    assert_non_null(strstr(fo_last_error(), "rows -1"));
    o = operation(FO_ATTENTION_FORWARD, 2, 1024, "flash");
    o.desc.attention.batch = 3;
    assert_int_equal(fo_sim_operation_run(&m, &o, &report), FO_INVALID);
    assert_non_null(strstr(fo_last_error(), "batch * context = rows"));
}

/* Machines of ranks: as the profile says, or as asked for. */
static void test_machines(void **state)
{
    (void)state;
    fo_sim_machine m;
    assert_int_equal(fo_sim_profile_read("h100-sxm-ndr", &m), FO_OK);
    fo_sim_operation o = operation(FO_ROW_FORWARD, 16, 65536, "none");
    o.desc.in = o.desc.out = 4096;
    double two = run(&m, &o).total_s;
    o.nodes = 1;
    double one = run(&m, &o).total_s;
    o.nodes = 16;
    double sixteen = run(&m, &o).total_s;
    assert_true(one < two && two <= sixteen * (1 + 1e-9));
    o.nodes = 0;
    o.ranks = 8; /* they fit on one */
    double eight = run(&m, &o).total_s;
    m.network.locals = 0;
    near(eight, run(&m, &o).total_s, 1e-12);
    o.ranks = 16;
    o.desc.overlap = "hier";
    assert_int_equal(fo_sim_profile_read("h100-sxm-ndr", &m), FO_OK);
    double hier = run(&m, &o).total_s;
    o.desc.overlap = "flash";
    assert_true(hier < run(&m, &o).total_s); /* slow links have a whole machine's computation */
}

/* ---- the paper -------------------------------------------------------------------------------------- */

/* arXiv 2604.24013, MLP, (batch, sequence, dim) = (32, 4096, 4096), ffn 16384, 4 ranks. Its figures are rounded to a
 * tenth of a millisecond. */
static void test_paper(void **state)
{
    (void)state;
    static const struct {
        const char *overlap;
        double communication_ms, total_ms;
    } rows[] = {{"none", 43.8, 122.3}, {"slice:8", 7.1, 83.9}, {"flash", 0.1, 77.1}};
    fo_sim_machine m;
    assert_int_equal(fo_sim_profile_read("flashoverlap-paper", &m), FO_OK);
    for (int i = 0; i < 3; i++) {
        fo_sim_operation o = {.ranks = 4, .threads = 1, .packed = true};
        o.desc = (fo_plan_desc){.op = FO_MLP_FORWARD,
                                .rows = 32 * 4096,
                                .in = 4096,
                                .out = 4096,
                                .hidden = 4096,
                                .dtype = FO_BF16,
                                .wire = FO_BF16,
                                .y_dtype = FO_BF16,
                                .act = FO_GELU,
                                .overlap = rows[i].overlap};
        fo_sim_report r = run(&m, &o);
        double communication = (r.total_s - r.compute_s) * 1e3;
        double slack = fmax(0.1 * rows[i].communication_ms, 0.05);
        if (fabs(communication - rows[i].communication_ms) > slack)
            fail_msg("%s: %.3f ms of communication, published %.1f", rows[i].overlap, communication,
                     rows[i].communication_ms);
        near(r.total_s * 1e3, rows[i].total_ms, 0.1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_none),        cmocka_unit_test(test_flash),
        cmocka_unit_test(test_slices),      cmocka_unit_test(test_attention),
        cmocka_unit_test(test_apart),       cmocka_unit_test(test_ranks_that_differ),
        cmocka_unit_test(test_losses),      cmocka_unit_test(test_ideal_is_fastest),
        cmocka_unit_test(test_equal_ranks), cmocka_unit_test(test_unequal_ranks),
        cmocka_unit_test(test_tiles),       cmocka_unit_test(test_refused),
        cmocka_unit_test(test_machines),    cmocka_unit_test(test_paper),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
