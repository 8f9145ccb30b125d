/* What a benchmark computes from times and sizes, and the lists it reads. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/quantile.h"
#include "flashoverlap/status.h"
#include "measure/bound.h"
#include "measure/measure.h"
#include "measure/spelling.h"

static void near(double value, double expected)
{
    if (!(fabs(value - expected) <= 1e-9 * (1 + fabs(expected))))
        fail_msg("%.12g, expected %.12g", value, expected);
}

static void order_statistics(void **state)
{
    (void)state;
    const double values[] = {5, 1, 4, 2, 3}, four[] = {4, 1, 3, 2}, one[] = {7};
    near(fo_base_median(values, 5), 3);
    near(fo_base_median(four, 4), 2.5);
    near(fo_base_median(one, 1), 7);
    assert_true(isnan(fo_base_median(values, 0)));
    near(fo_base_percentile(values, 5, 0), 1);
    near(fo_base_percentile(values, 5, 1), 5);
    near(fo_base_percentile(values, 5, 0.1), 1.4);
    near(fo_base_percentile(values, 5, 0.9), 4.6);
    near(fo_base_percentile(one, 1, 0.9), 7);
    assert_true(isnan(fo_base_percentile(values, 0, 0.5)));
    near(values[0], 5); /* untouched */
}

static void smallest_units(void **state)
{
    (void)state;
    assert_int_equal(fo_measure_bound_unit(4096, 2, 64), 64);
    assert_int_equal(fo_measure_bound_unit(200, 2, 64), 100 % 64);
    assert_int_equal(fo_measure_bound_unit(257, 2, 64), 1);   /* shards of 129 and 128 */
    assert_int_equal(fo_measure_bound_unit(1000, 3, 64), 13); /* shards of 334, 333 and 333 rows */
    assert_int_equal(fo_measure_bound_unit(40, 2, 64), 20);
    assert_int_equal(fo_measure_bound_unit(2, 3, 64), 1);
    assert_int_equal(fo_measure_bound_unit(1024, 2, 256), 256);
}

static void bounds(void **state)
{
    (void)state;
    fo_link none = {0};
    fo_link link = {.bytes_per_s = 1e9, .latency_s = 1e-3};
    fo_link mesh = {.bytes_per_s = 1e9, .latency_s = 1e-3, .topology = FO_MESH};
    assert_true(isnan(fo_measure_bound_transfer_ms(1e6, &none)));
    near(fo_measure_bound_transfer_ms(1e6, &link), 2);
    /* no link, nothing to send: the computation */
    near(fo_measure_bound_ms(10, 1e6, 0.5, &none, 4), 10);
    near(fo_measure_bound_ms(10, 0, 0.5, &link, 4), 10);
    /* computation covers the transfer */
    near(fo_measure_bound_ms(10, 1e6, 0.1, &link, 4), 10);
    /* transfer and the edge: 20 + 1 + 0.25 * 10 */
    near(fo_measure_bound_ms(10, 20e6, 0.25, &link, 4), 23.5);
    near(fo_measure_bound_ms(10, 20e6, 0, &link, 4), 21);
    /* a mesh of four has three links a rank, a mesh of two one */
    near(fo_measure_bound_ms(10, 60e6, 0.25, &mesh, 4), 23.5);
    near(fo_measure_bound_ms(10, 20e6, 0.25, &mesh, 2), 23.5);
}

static void derived_figures(void **state)
{
    (void)state;
    near(fo_measure_bound_hidden(1, 4), 75);
    near(fo_measure_bound_hidden(4, 4), 0);
    near(fo_measure_bound_hidden(-1, 4), 125);
    assert_true(isnan(fo_measure_bound_hidden(1, 0)));
    assert_true(isnan(fo_measure_bound_hidden(1, -1)));
    assert_true(isnan(fo_measure_bound_hidden(1, NAN)));
    near(fo_measure_bound_faster(3, 4), 25);
    near(fo_measure_bound_faster(5, 4), -25);
    assert_true(isnan(fo_measure_bound_faster(5, NAN)));
}

static void efficiencies(void **state)
{
    (void)state;
    fo_device flat = {.flops_per_s = 1}, curve = {.flops_per_s = 1,
                                                  .points = 3,
                                                  .rows = {64, 256, 4096},
                                                  .efficiency = {0.25, 0.75, 1}};
    near(fo_measure_bound_efficiency(&flat, 100), 1);
    near(fo_measure_bound_efficiency(&curve, 1), 0.25);
    near(fo_measure_bound_efficiency(&curve, 64), 0.25);
    near(fo_measure_bound_efficiency(&curve, 128), 0.5);
    near(fo_measure_bound_efficiency(&curve, 256), 0.75);
    near(fo_measure_bound_efficiency(&curve, 1024), 0.875);
    near(fo_measure_bound_efficiency(&curve, 1e9), 1);
}

/* ---- lists --------------------------------------------------------------------------------------------- */

static void strategies_are_read(void **state)
{
    (void)state;
    fo_schedule_spelled s[FO_MEASURE_STRATEGIES];
    int count;
    assert_int_equal(fo_measure_spelling_strategies("none,slice:4+apart,flash",
                                                    &fo_measure_family_mlp, false, s, &count),
                     FO_OK);
    assert_int_equal(count, 3);
    assert_string_equal(s[0].name, "none");
    assert_int_equal(s[0].form, FO_SCHEDULE_WHOLE);
    assert_string_equal(s[1].name, "slice:4+apart");
    assert_string_equal(s[1].overlap, "slice:4");
    assert_int_equal(s[1].form, FO_SCHEDULE_APART);
    assert_string_equal(s[2].overlap, "flash");
    assert_int_equal(fo_measure_spelling_strategies("flash:2+row", &fo_measure_family_attention,
                                                    true, s, &count),
                     FO_OK);
    assert_int_equal(s[0].form, FO_SCHEDULE_ROW);
    assert_string_equal(s[0].overlap, "flash:2");
}

static void bad_strategies_are_named(void **state)
{
    (void)state;
    const struct {
        const char *list, *family;
        bool backward;
        const char *sentence;
    } cases[] = {
        {"", "row", false, "is empty"},
        {",none", "row", false, "separated by commas"},
        {"none,,flash", "row", false, "',flash': expected names"},
        {"none,", "row", false, "separated by commas"},
        {"flsh", "row", false, "flsh"},
        {"flash+apart", "column", false, "'+apart' is no form of column, expected no '+'"},
        {"flash+apart", "row", true, "'+apart' is no form of row --backward"},
        {"flash+row", "mlp", false, "expected flash or flash+apart"},
        {"flash+", "mlp", false, "'+' is no form"},
        {"flash+Apart", "mlp", true, "expected flash or flash+apart"},
        {"+apart", "mlp", true, "strategy"},
        {"flash+apart", "step", false, "is no form of step"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fo_schedule_spelled s[FO_MEASURE_STRATEGIES];
        int count;
        assert_int_equal(fo_measure_spelling_strategies(cases[i].list,
                                                        fo_measure_family_find(cases[i].family),
                                                        cases[i].backward, s, &count),
                         FO_INVALID);
        if (!strstr(fo_last_error(), cases[i].sentence))
            fail_msg("'%s' gave: %s", cases[i].list, fo_last_error());
    }
    char many[FO_MEASURE_STRATEGIES * 9 + 10] = "";
    fo_schedule_spelled s[FO_MEASURE_STRATEGIES];
    int count;
    for (int i = 0; i <= FO_MEASURE_STRATEGIES; i++) {
        size_t used = strlen(many);
        snprintf(many + used, sizeof many - used, "%sslice:%d", i ? "," : "", i + 1);
    }
    assert_int_equal(fo_measure_spelling_strategies(many, &fo_measure_family_row, false, s, &count),
                     FO_INVALID);
    assert_non_null(strstr(fo_last_error(), "more than 16"));
    assert_int_equal(fo_measure_spelling_strategies("none,flash,none", &fo_measure_family_row,
                                                    false, s, &count),
                     FO_INVALID);
    assert_non_null(strstr(fo_last_error(), "'none' twice"));
}

static void sweeps_are_read(void **state)
{
    (void)state;
    static const char *const bad[] = {"",        "16",   "16x",          "x16",    "16x512,",
                                      ",16x512", "0x16", "16x0",         "16X512", "16x512;8x8",
                                      "16x512 ", "-1x5", "1x99999999999"};
    fo_measure_point p[FO_MEASURE_POINTS];
    int count;
    assert_int_equal(fo_measure_spelling_sweep("16x512,8x1024,1x7", p, &count), FO_OK);
    assert_int_equal(count, 3);
    assert_int_equal(p[0].batch, 16);
    assert_int_equal(p[1].context, 1024);
    assert_int_equal(p[1].rows, 8192);
    assert_int_equal(p[2].rows, 7);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(fo_measure_spelling_sweep(bad[i], p, &count), FO_INVALID);
        assert_non_null(strstr(fo_last_error(), "16x512,8x1024"));
    }
    char many[FO_MEASURE_POINTS * 4 + 8] = "1x1";
    for (int i = 0; i < FO_MEASURE_POINTS; i++)
        strcat(many, ",1x1");
    assert_int_equal(fo_measure_spelling_sweep(many, p, &count), FO_INVALID);
    assert_non_null(strstr(fo_last_error(), "more than 64"));
}

/* ---- sizes ---------------------------------------------------------------------------------------------- */

static void edges_are_where_the_link_must_wait(void **state)
{
    (void)state;
    fo_bench_options o;
    fo_measure_point point = {.batch = 4, .context = 256, .rows = 1024};
    fo_measure_sizes s;
    fo_bench_defaults(&o);
    o.ffn = 2048;
    fo_measure_family_row.sizes(&o, &point, &s);
    near(s.flops, 2.0 * 1024 * 1024 * 1024);
    near(s.edge, 64.0 / 1024);
    fo_measure_family_mlp.sizes(&o, &point, &s);
    near(s.flops, 4.0 * 1024 * 1024 * 1024);
    near(s.edge, 0);
    /* queries of a sequence are the dearer the later they stand */
    fo_measure_family_attention.sizes(&o, &point, &s);
    double width = 512, flops = 2.0 * 1024 * width * 1024 + 4 * 4 * width * 256 * 257 / 2;
    near(s.flops, flops);
    near(s.edge, (2.0 * 64 * width * 1024 + 4 * width * 64 * 65 / 2) / flops);
    assert_true(s.edge < 64.0 / 1024);
    o.backward = true;
    fo_measure_family_row.sizes(&o, &point, &s);
    near(s.edge, (64.0 + 256) / 2 / 1024);
    fo_measure_family_column.sizes(&o, &point, &s);
    near(s.edge, 0);
    near(s.flops, 4.0 * 1024 * 1024 * 1024);
    fo_measure_family_step.sizes(&o, &point, &s);
    assert_true(s.bound_computes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_statistics),
        cmocka_unit_test(smallest_units),
        cmocka_unit_test(bounds),
        cmocka_unit_test(derived_figures),
        cmocka_unit_test(efficiencies),
        cmocka_unit_test(strategies_are_read),
        cmocka_unit_test(bad_strategies_are_named),
        cmocka_unit_test(sweeps_are_read),
        cmocka_unit_test(edges_are_where_the_link_must_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
