/* Choosing: where one strategy is obviously best, and where it is better not to overlap. */
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

static fo_sim_operation operation(fo_op op, int ranks, int64_t rows, int64_t in, int64_t out)
{
    fo_sim_operation o = {.ranks = ranks, .threads = 1, .packed = true};
    o.desc = (fo_plan_desc){.op = op,
                            .rows = rows,
                            .in = in,
                            .out = out,
                            .dtype = FO_BF16,
                            .wire = FO_BF16,
                            .y_dtype = FO_BF16};
    return o;
}

/* A product of 2 ms and transfers of transfer_s, on links that are free otherwise. */
static fo_sim_machine machine(const fo_sim_operation *o, double transfer_s)
{
    fo_sim_machine m;
    fo_sim_machine_ideal(&m);
    double rows = (double)o->desc.rows, weight = (double)(o->desc.in * o->desc.out);
    double width = (double)(o->desc.op == FO_ROW_FORWARD ? o->desc.out : o->desc.in);
    m.device.flops_per_s[FO_BF16] = 2 * rows * weight / 2e-3;
    m.network.link.bytes_per_s = rows * (o->ranks - 1) / o->ranks * width * 2 / transfer_s;
    return m;
}

static fo_sim_choice choose(const fo_sim_machine *m, const fo_sim_operation *o, bool any_bits)
{
    fo_sim_choice choice;
    if (fo_sim_operation_choose(m, o, NULL, 0, any_bits, 0.01, &choice, NULL) != FO_OK)
        fail_msg("%s", fo_last_error());
    return choice;
}

static bool begins(const char *text, const char *with)
{
    return !strncmp(text, with, strlen(with));
}

static void says_no(const fo_sim_choice *choice)
{
    if (strcmp(choice->overlap, "none") || !begins(choice->why, "do not overlap"))
        fail_msg("%s: %s", choice->overlap, choice->why);
    assert_true(choice->total_s == choice->none_s);
}

/* ---- obvious ---------------------------------------------------------------------------------------- */

static void test_hides(void **state)
{
    (void)state;
    fo_sim_operation o = operation(FO_ROW_FORWARD, 4, 16384, 512, 1024);
    fo_sim_machine m = machine(&o, 1e-3);
    fo_sim_choice choice = choose(&m, &o, false);
    assert_true(begins(choice.overlap, "flash"));
    assert_true(begins(choice.why, "flash"));
    assert_non_null(strstr(choice.why, "2 ms, none 3 ms; 100 %"));
    assert_true(fabs(choice.none_s - 3e-3) < 1e-6 && fabs(choice.total_s - 2e-3) < 1e-6);
}

static void test_nothing_to_gain(void **state)
{
    (void)state;
    fo_sim_operation o = operation(FO_COLUMN_FORWARD, 4, 16384, 512, 1024);
    fo_sim_machine m = machine(&o, 1e-6); /* a two thousandth of the computation */
    fo_sim_choice choice = choose(&m, &o, true);
    says_no(&choice);
    assert_non_null(strstr(choice.why, "too little is gained"));
    o.ranks = 1;
    choice = choose(&m, &o, true);
    says_no(&choice);
    assert_non_null(strstr(choice.why, "one rank has nothing to send"));
}

/* On a mesh a ring uses one of three links. */
static void test_mesh(void **state)
{
    (void)state;
    fo_sim_operation o = operation(FO_ROW_FORWARD, 4, 16384, 512, 1024);
    fo_sim_machine m = machine(&o, 5e-3);
    m.network.topology = FO_SIM_MESH;
    assert_true(begins(choose(&m, &o, true).overlap, "direct"));
    /* where its sums are rounded elsewhere it is left out */
    assert_false(begins(choose(&m, &o, false).overlap, "direct"));
    o.desc.wire = FO_F32;
    assert_true(begins(choose(&m, &o, false).overlap, "direct"));
    o = operation(FO_COLUMN_FORWARD, 4, 16384, 512, 1024); /* no sums */
    m = machine(&o, 5e-3);
    m.network.topology = FO_SIM_MESH;
    assert_true(begins(choose(&m, &o, false).overlap, "direct"));
}

/* What a slice costs beside its work decides how many there should be: many, two, none. */
static void test_launches(void **state)
{
    (void)state;
    fo_sim_operation o = operation(FO_COLUMN_FORWARD, 16, 16384, 512, 1024);
    fo_sim_machine m = machine(&o, 1e-3);
    m.device.launch_s = 1e-6;
    assert_true(begins(choose(&m, &o, true).overlap, "flash"));
    m.device.launch_s = 2e-4;
    assert_string_equal(choose(&m, &o, true).overlap, "slice:2");
    m.device.launch_s = 2e-3;
    fo_sim_choice choice = choose(&m, &o, true);
    says_no(&choice);
    assert_non_null(strstr(choice.why, "thin slices"));
}

static void test_contention(void **state)
{
    (void)state;
    fo_sim_operation o = operation(FO_COLUMN_FORWARD, 4, 16384, 512, 1024);
    fo_sim_machine m = machine(&o, 1e-3);
    m.contention = 0.3;
    assert_true(begins(choose(&m, &o, true).overlap, "flash"));
    m.contention = 40;
    fo_sim_choice choice = choose(&m, &o, true);
    says_no(&choice);
    if (!strstr(choice.why, "messages slowing computation down"))
        fail_msg("%s", choice.why);
}

static void test_machines(void **state)
{
    (void)state;
    fo_sim_machine m;
    assert_int_equal(fo_sim_profile_read("h100-sxm-ndr", &m), FO_OK);
    fo_sim_operation o = operation(FO_ROW_FORWARD, 16, 262144, 2048, 8192);
    assert_string_equal(choose(&m, &o, true).overlap, "hier");
    assert_string_not_equal(choose(&m, &o, false).overlap, "hier"); /* sums are nested in it */
}

/* ---- lists ------------------------------------------------------------------------------------------ */

static void test_lists(void **state)
{
    (void)state;
    static const char *const some[] = {"slice:2", "none", "direct", "slice:4"};
    fo_sim_operation o = operation(FO_ROW_FORWARD, 4, 16384, 512, 1024);
    fo_sim_machine m = machine(&o, 1e-3);
    fo_sim_choice choice;
    double all[4];
    assert_int_equal(fo_sim_operation_choose(&m, &o, some, 4, false, 0.01, &choice, all), FO_OK);
    assert_string_equal(choice.overlap, "slice:4");
    assert_true(all[1] == choice.none_s && all[3] == choice.total_s);
    assert_true(isinf(all[2])); /* other bits */
    assert_int_equal(fo_sim_operation_choose(&m, &o, some, 1, false, 0.5, &choice, NULL), FO_OK);
    says_no(&choice); /* not that much faster */
    assert_int_equal(fo_sim_operation_choose(&m, &o, some, 4, true, 0.01, NULL, NULL), FO_OK);
    static const char *const wrong[] = {"flush"};
    assert_int_equal(fo_sim_operation_choose(&m, &o, wrong, 1, false, 0, &choice, NULL),
                     FO_INVALID);
    assert_non_null(strstr(fo_last_error(), "'flush' is unknown"));
}

/* Never slower than none, and what was chosen takes as long as it says. */
static void test_never_slower(void **state)
{
    (void)state;
    static const fo_op ops[] = {FO_COLUMN_FORWARD, FO_COLUMN_BACKWARD, FO_ROW_FORWARD,
                                FO_ROW_BACKWARD,   FO_ALL_GATHER,      FO_REDUCE_SCATTER};
    const char *const *names = fo_sim_profile_names();
    for (uint64_t i = 0; names[i / 8]; i++) {
        fo_sim_machine m;
        fo_sim_report report;
        assert_int_equal(fo_sim_profile_read(names[i / 8], &m), FO_OK);
        int64_t rows = 64 + (int64_t)fo_base_random_below(3, 1, i, 20000);
        int ranks = 1 + (int)fo_base_random_below(3, 2, i, 8);
        fo_sim_operation o = operation(ops[i % 6], ranks, rows, 1024, 512);
        fo_sim_choice choice = choose(&m, &o, i & 1);
        assert_true(choice.total_s <= choice.none_s);
        o.desc.overlap = choice.overlap;
        assert_int_equal(fo_sim_operation_run(&m, &o, &report), FO_OK);
        assert_true(report.total_s == choice.total_s);
        bool no = !strcmp(choice.overlap, "none");
        assert_true(begins(choice.why, "do not overlap") == no);
        assert_true(choice.total_s < 0.99 * choice.none_s || no);
        fo_sim_machine_free(&m);
    }
}

/* ---- the known negative ----------------------------------------------------------------------------- */

/* The forward pass of a layer: hidden 4096, ffn 16384, 8 ranks. In one such layer, of one sequence of 4096 tokens,
 * overlap by slices made it twice as slow (NVIDIA/TransformerEngine issue 426). */
static int layer(int64_t rows, fo_sim_operation o[4])
{
    o[0] = operation(FO_COLUMN_FORWARD, 8, rows, 4096, 3 * 4096 / 8);
    o[1] = operation(FO_ROW_FORWARD, 8, rows, 4096 / 8, 4096);
    o[2] = operation(FO_COLUMN_FORWARD, 8, rows, 4096, 16384 / 8);
    o[3] = operation(FO_ROW_FORWARD, 8, rows, 16384 / 8, 4096);
    return 4;
}

static void test_thin_slices(void **state)
{
    (void)state;
    fo_sim_machine m;
    fo_sim_operation o[4];
    fo_sim_report report;
    double none = 0, flash = 0;
    assert_int_equal(fo_sim_profile_read("h100-sxm", &m), FO_OK);
    int count = layer(4096, o);
    for (int i = 0; i < count; i++) {
        fo_sim_choice choice = choose(&m, &o[i], true);
        says_no(&choice);
        none += choice.none_s;
        o[i].desc.overlap = "flash";
        assert_int_equal(fo_sim_operation_run(&m, &o[i], &report), FO_OK);
        flash += report.total_s;
    }
    if (flash < 1.5 * none || flash > 3 * none)
        fail_msg("the layer takes %.3f ms, by slices %.3f", none * 1e3, flash * 1e3);
    fo_sim_operation mlp = operation(FO_MLP_FORWARD, 8, 4096, 4096, 4096);
    mlp.desc.hidden = 2048;
    fo_sim_choice choice = choose(&m, &mlp, true);
    says_no(&choice);
    assert_non_null(strstr(choice.why, "it loses"));
}

/* The same layer with 32 sequences has slices worth having. */
static void test_thick_slices(void **state)
{
    (void)state;
    fo_sim_machine m;
    fo_sim_operation o[4];
    assert_int_equal(fo_sim_profile_read("h100-sxm", &m), FO_OK);
    int count = layer(32 * 4096, o);
    for (int i = 0; i < count; i++) {
        fo_sim_choice choice = choose(&m, &o[i], true);
        if (!strcmp(choice.overlap, "none"))
            fail_msg("%s: %s", fo_schedule_operation_name(o[i].desc.op), choice.why);
        assert_true(choice.total_s < 0.9 * choice.none_s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hides),       cmocka_unit_test(test_nothing_to_gain),
        cmocka_unit_test(test_mesh),        cmocka_unit_test(test_launches),
        cmocka_unit_test(test_contention),  cmocka_unit_test(test_machines),
        cmocka_unit_test(test_lists),       cmocka_unit_test(test_never_slower),
        cmocka_unit_test(test_thin_slices), cmocka_unit_test(test_thick_slices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
