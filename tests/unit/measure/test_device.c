/* Devices as text: every part, every sentence, and back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "flashoverlap/calibrate.h"

static void near(double found, double expected)
{
    if (!(fabs(found - expected) <= 1e-12 * fabs(expected)))
        fail_msg("%.17g, expected %.17g", found, expected);
}

static fo_device parse(const char *text, double *compute_s)
{
    fo_device device;
    if (fo_device_parse(text, &device, compute_s) != FO_OK)
        fail_msg("'%s': %s", text, fo_last_error());
    return device;
}

static void test_speeds(void **state)
{
    (void)state;
    double compute = -1;
    near(parse("271TF", &compute).flops_per_s, 271e12);
    assert_true(compute == 0);
    near(parse("1.5PF", &compute).flops_per_s, 1.5e15);
    near(parse("800GF", NULL).flops_per_s, 800e9);
    near(parse("3MF", NULL).flops_per_s, 3e6);
    fo_device device = parse("78.5ms", &compute);
    near(compute, 0.0785);
    assert_true(device.flops_per_s == 0);
    assert_true(device.launch_s == 0 && device.bytes_per_s == 0 && device.points == 0);
    parse("2s", &compute);
    near(compute, 2);
    parse("12us", &compute);
    near(compute, 12e-6);
    parse("500ns", &compute);
    near(compute, 500e-9);
}

static void test_details(void **state)
{
    (void)state;
    double compute;
    fo_device device =
        parse("78.5ms,curve=64:0.33/256:0.78/8192:0.92,mem=1.5TB/s,launch=5us", &compute);
    near(compute, 0.0785);
    near(device.launch_s, 5e-6);
    near(device.bytes_per_s, 1.5e12);
    assert_int_equal(device.points, 3);
    static const double rows[] = {64, 256, 8192}, efficiency[] = {0.33, 0.78, 0.92};
    for (int i = 0; i < 3; i++) {
        near(device.rows[i], rows[i]);
        near(device.efficiency[i], efficiency[i]);
    }
    assert_true(parse("1TF,launch=0us", NULL).launch_s == 0);
}

static void test_what_is_refused(void **state)
{
    static const struct {
        const char *text, *found, *expected;
    } cases[] = {
        {"", "found ''", "a rate above 0"},
        {"fast", "found 'fast'", "a rate above 0"},
        {"0TF", "found '0TF'", "a rate above 0"},
        {"-1TF", "found '-1TF'", "a rate above 0"},
        {"271", "found '271'", "TF or PF"},
        {"271tf", "found '271tf'", "TF or PF"},
        {"nanTF", "found 'nanTF'", "a rate above 0"},
        {"1e400TF", "found '1e400TF'", "a rate above 0"},
        {"0ms", "found '0ms'", "a time above 0"},
        {"1TF,", "found ''", "launch=, mem= or curve="},
        {"1TF,lunch=5us", "found 'lunch=5us'", "launch=, mem= or curve="},
        {"1TF,launch=5", "found 'launch=5'", "launch=5us"},
        {"1TF,launch=61s", "found 'launch=61s'", "up to 60 s"},
        {"1TF,mem=0GB/s", "found 'mem=0GB/s'", "a speed above 0"},
        {"1TF,mem=1GB", "found 'mem=1GB'", "GB/s"},
        {"1TF,curve=", "found ''", "a point of the curve"},
        {"1TF,curve=64", "found '64'", "a point of the curve"},
        {"1TF,curve=64:0.5/", "found ''", "a point of the curve"},
        {"1TF,curve=64:0.5/64:0.6", "found '64:0.6'", "ascend"},
        {"1TF,curve=0:0.5", "found '0:0.5'", "1 or more"},
        {"1TF,curve=64:0", "found '64:0'", "above 0 and up to 1"},
        {"1TF,curve=64:1.01", "found '64:1.01'", "above 0 and up to 1"},
        {"1TF,curve=1:1/2:1/3:1/4:1/5:1/6:1/7:1/8:1/9:1/10:1/11:1/12:1/13:1/14:1/15:1/16:1/17:1/"
         "18:1/19:1/20:1/21:1/22:1/23:1/24:1/25:1",
         "found '25:1'", "at most 24 points"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fo_device device = {.flops_per_s = 7};
        double compute = 7;
        if (fo_device_parse(cases[i].text, &device, &compute) != FO_INVALID)
            fail_msg("'%s' was accepted", cases[i].text);
        if (!strstr(fo_last_error(), cases[i].found) ||
            !strstr(fo_last_error(), cases[i].expected) ||
            !strstr(fo_last_error(), "271TF,launch=5us"))
            fail_msg("'%s': %s", cases[i].text, fo_last_error());
        assert_true(device.flops_per_s == 7 && compute == 7);
    }
    fo_device device;
    assert_int_equal(fo_device_parse("78.5ms", &device, NULL), FO_INVALID);
    char longer[2000];
    memset(longer, '1', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    assert_int_equal(fo_device_parse(longer, &device, NULL), FO_INVALID);
}

static void test_print(void **state)
{
    static const char *const texts[] = {
        "271TF", "1.5PF,launch=5us", "800GF,mem=1.5TB/s", "12MF,launch=1.25ms,mem=3GB/s",
        "54.3219TF,launch=5us,mem=1.5TB/s,curve=64:0.33/256:0.78/8192:0.92"};
    char text[256], small[8];
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        fo_device device = parse(texts[i], NULL);
        fo_device_print(&device, text, sizeof text);
        assert_string_equal(text, texts[i]);
        fo_device_print(&device, small, sizeof small);
        assert_true(strlen(small) < sizeof small && !strncmp(small, texts[i], strlen(small)));
    }
    fo_device none = {0};
    fo_device_print(&none, text, sizeof text);
    assert_string_equal(text, "none");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_speeds),
        cmocka_unit_test(test_details),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_print),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
