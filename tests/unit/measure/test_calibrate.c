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
#include "sim/profile.h"

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

static fo_measure_calibration *sampled(const fo_calibrate_options *options)
{
    fo_measure_calibration *c = list(options);
    for (int i = 0; i < c->count; i++) {
        c->cases[i].calls = c->cases[i].samples = 1;
        c->cases[i].seconds[0] = c->cases[i].flops > 0 ? c->cases[i].flops * 1e-11 : 1e-5;
    }
    return c;
}

static double entry_s(const fo_sim_machine *m, fo_sim_work work, int64_t k, int64_t n, int64_t rows)
{
    for (int e = 0; e < m->device.entry_count; e++) {
        const fo_sim_entry *entry = &m->device.entries[e];
        if (entry->work == work && entry->k == k && entry->n == n && entry->rows == rows &&
            entry->at_once && entry->dtype == FO_F32)
            return entry->time_s;
    }
    return NAN;
}

/* The simulator reads what is written, in units of its own: everything that predictions rest on is there. */
static void test_it_is_read(void **state)
{
    (void)state;
    for (int copies = 0; copies < 2; copies++) {
        fo_calibrate_options options;
        fo_calibrate_defaults(&options);
        options.group.ranks = 2;
        options.group.transport = "shm";
        options.quick = copies;
        fo_measure_calibration *c = sampled(&options);
        for (int i = 0; i < c->count; i++) {
            fo_measure_case *which = &c->cases[i];
            if (which->kind == FO_MEASURE_MESSAGE)
                which->seconds[0] = 2e-6 + which->bytes / 5e9;
            if (which->kind == FO_MEASURE_MESSAGE && which->view)
                which->seconds[0] = 1e-6;
            if (which->kind == FO_MEASURE_MESSAGE && which->view && copies)
                which->samples = 0; /* a transport without views */
            if (which->kind == FO_MEASURE_WAKE)
                which->seconds[0] = 3e-5;
            if (which->kind == FO_MEASURE_PROCESSOR)
                which->seconds[0] = 2 * which->bytes * 4e-10;
            if (which->kind == FO_MEASURE_TASK)
                which->seconds[0] = 2.5e-7;
        }
        char *text = NULL;
        size_t size;
        fo_sim_machine m;
        FILE *memory = open_memstream(&text, &size);
        fo_measure_calibrate_json(c, memory);
        fclose(memory);
        fo_status status = fo_sim_profile_parse("written", text, size, &m);
        if (status != FO_OK)
            fail_msg("%s", fo_last_error());
        assert_true(m.device.by_tile && m.device.tile_rows == 64 && m.device.wgrad_rows == 256);
        assert_true(fabs(m.device.flops_per_s[FO_F32] / 1e11 - 1) < 1e-5);
        assert_true(m.device.memory_bytes_per_s > 0 && m.device.epilogue_bytes_per_s > 0);
        assert_true(!m.async && m.views == !copies);
        assert_true(fabs(m.task_s / 2.5e-7 - 1) < 1e-5 && fabs(m.wake_s / 3e-5 - 1) < 1e-5);
        assert_true(copies ? fabs(m.network.link.bytes_per_s / 5e9 - 1) < 1e-5
                           : m.network.link.bytes_per_s == 0);
        assert_true(fabs(m.network.link.latency_s / (copies ? 2e-6 : 1e-6) - 1) < 1e-5);
        assert_true(copies ? fabs(m.cpu_s_per_byte / 4e-10 - 1) < 1e-5 : m.cpu_s_per_byte == 0);
        assert_true(
            fabs(entry_s(&m, FO_SIM_GEMM, 1024, 1024, 64) / (2.0 * 64 * 1024 * 1024 * 1e-11) - 1) <
            1e-5);
        assert_true(entry_s(&m, FO_SIM_WGRAD, 1024, 1024, 256) > 0);
        assert_true(entry_s(&m, FO_SIM_ATTENTION, 8, 64, 512) > 0);
        assert_true(fabs(entry_s(&m, FO_SIM_ATTENTION_GRAD, 8, 64, 512) /
                             entry_s(&m, FO_SIM_ATTENTION, 8, 64, 512) / 2.5 -
                         1) < 1e-5);
        assert_true(fabs(entry_s(&m, FO_SIM_PACK, 1024, 1024, 0) / 1e-5 - 1) < 1e-5);
        fo_sim_machine_free(&m);
        free(text);
        free(c);
    }
}

/* Every case gets one sample: rates and efficiencies follow, and the profile names every kind. */
static void test_profile(void **state)
{
    (void)state;
    fo_calibrate_options options;
    fo_calibrate_defaults(&options);
    options.group.ranks = 2;
    fo_measure_calibration *c = sampled(&options);
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
    static const char *const parts[] = {"\"format_version\": 2",  "\"efficiency\": 0.5,",
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
        cmocka_unit_test(test_cases),           cmocka_unit_test(test_figures),
        cmocka_unit_test(test_profile),         cmocka_unit_test(test_it_is_read),
        cmocka_unit_test(test_what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
