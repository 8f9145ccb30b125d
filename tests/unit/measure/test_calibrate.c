/* Calibration without measuring: the list of cases, what samples say, what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "measure/calibrate.h"

static fo_measure_calibration *list(const fo_calibrate_options *options)
{
    fo_measure_calibration *c = calloc(1, sizeof *c);
    assert_non_null(c);
    c->options = options;
    fo_measure_calibrate_cases(c, fo_kernel_find(options->group.kernel), 1);
    return c;
}

static bool same(const fo_measure_case *a, const fo_measure_case *b)
{
    bool names = (!a->name && !b->name) || (a->name && b->name && !strcmp(a->name, b->name));
    return names && a->kind == b->kind && a->dtype == b->dtype && a->at_once == b->at_once &&
           a->threads == b->threads && a->rows == b->rows && a->k == b->k && a->n == b->n &&
           a->view == b->view && a->both == b->both;
}

static void test_cases(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        fo_calibrate_options options;
        fo_calibrate_defaults(&options);
        options.quick = i & 1;
        options.group.ranks = i & 2 ? 3 : 1;
        options.group.transport = i & 4 ? "self" : "shm";
        fo_measure_calibration *c = list(&options);
        assert_true(c->count > 20 && c->count < FO_MEASURE_CASES);
        int messages = 0;
        for (int a = 0; a < c->count; a++) {
            const fo_measure_case *which = &c->cases[a];
            for (int b = 0; b < a; b++)
                if (same(which, &c->cases[b]))
                    fail_msg("cases %d and %d are the same", a, b);
            /* computation first, then what needs messages */
            assert_true(a == 0 || (which->kind >= FO_MEASURE_MESSAGE) >=
                                      (c->cases[a - 1].kind >= FO_MEASURE_MESSAGE));
            assert_true(which->rows <= c->most_rows && which->threads >= 1);
            messages += which->kind == FO_MEASURE_MESSAGE;
        }
        assert_true((messages > 0) == (options.group.ranks > 1));
        free(c);
    }
}

static fo_measure_case with_samples(int count, double first, double step)
{
    fo_measure_case which = {.samples = count};
    for (int i = 0; i < count; i++)
        which.seconds[(i * 7) % count] = first + i * step;
    return which;
}

static void test_figures(void **state)
{
    (void)state;
    fo_measure_case which = with_samples(9, 1.0, 0.01);
    fo_measure_figure figure = fo_measure_calibrate_figure(&which);
    assert_true(fabs(figure.median_s - 1.04) < 1e-12);
    assert_true(fabs(figure.best_s - 1.0) < 1e-12);
    assert_true(fabs(figure.spread_s - 0.04) < 1e-12);
    assert_string_equal(figure.confidence, "high");
    which = with_samples(9, 1.0, 0.04);
    assert_string_equal(fo_measure_calibrate_figure(&which).confidence, "medium");
    which = with_samples(9, 1.0, 0.2);
    assert_string_equal(fo_measure_calibrate_figure(&which).confidence, "low");
    which = with_samples(3, 1.0, 0);
    assert_string_equal(fo_measure_calibrate_figure(&which).confidence, "medium");
    which = with_samples(2, 1.0, 0);
    assert_string_equal(fo_measure_calibrate_figure(&which).confidence, "low");
}

/* Every case gets one sample: rates and efficiencies follow, and the profile names every kind. */
static void test_profile(void **state)
{
    (void)state;
    fo_calibrate_options options;
    fo_calibrate_defaults(&options);
    options.group.ranks = 2;
    fo_measure_calibration *c = list(&options);
    for (int i = 0; i < c->count; i++) {
        c->cases[i].calls = c->cases[i].samples = 1;
        c->cases[i].seconds[0] = c->cases[i].flops > 0 ? c->cases[i].flops * 1e-11 : 1e-5;
    }
    c->cases[0].seconds[0] *= 2; /* half the rate of the others */
    c->cases[1].samples = 0;     /* skipped */
    double peak = fo_measure_calibrate_peak(c, &c->cases[0]);
    assert_true(fabs(peak - 1e11) < 1);
    char *text = NULL;
    size_t size;
    FILE *memory = open_memstream(&text, &size);
    fo_measure_calibrate_json(c, memory);
    fo_measure_calibrate_table(c, memory);
    fclose(memory);
    static const char *const parts[] = {"\"format_version\": 1",  "\"efficiency\": 0.5,",
                                        "\"efficiency\": 1,",     "\"confidence\": \"low\"",
                                        "\"flops_per_s\": 1e+11", "\"flops_per_s\": 5e+10",
                                        "\"latency_s\": 1e-05",   "GFLOP/s of a rank"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strstr(text, parts[i]))
            fail_msg("no %s in the profile", parts[i]);
    assert_null(strstr(text, "nan"));
    free(text);
    free(c);
}

static void refused(const fo_calibrate_options *options, fo_status status, const char *text)
{
    fo_status found = fo_calibrate_run(options, stdout);
    if (found != status || !strstr(fo_last_error(), text))
        fail_msg("%s: %s, expected '%s'", fo_status_name(found), fo_last_error(), text);
}

static void test_what_is_refused(void **state)
{
    (void)state;
    fo_calibrate_options options;
    fo_calibrate_defaults(&options);
    options.path = "/nowhere/at/all/profile";
    refused(&options, FO_IO, "/nowhere/at/all/profile can't be written");
    options.path = NULL;
    options.group.ranks = 0;
    refused(&options, FO_INVALID, "0 ranks, expected 1 to 4096");
    options.group.ranks = 2;
    options.group.link.bytes_per_s = 1e9;
    refused(&options, FO_INVALID, "expected none");
    options.group.link.bytes_per_s = 0;
    options.group.transport = "pigeon";
    refused(&options, FO_INVALID, "pigeon");
    options.group.transport = NULL;
    options.group.kernel = "abacus";
    refused(&options, FO_INVALID, "abacus");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_figures),
        cmocka_unit_test(test_profile),
        cmocka_unit_test(test_what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
