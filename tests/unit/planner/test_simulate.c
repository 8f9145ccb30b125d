/* Simulating operations: the figures of a row hang together, all forms of output say the same, timelines are those of
 * the programs, and what makes no sense is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flashoverlap/simulate.h"
#include "planner/simulate.h"
#include "sim/profile.h"

static fo_simulate_options small(const char *subject, int ranks)
{
    fo_simulate_options o;
    fo_simulate_defaults(&o);
    o.subject = subject;
    o.machine = "a100-sxm";
    o.ranks = ranks;
    o.batch = 3;
    o.context = 700;
    o.dim = 1024;
    o.ffn = 3000;
    o.heads = 16;
    o.format = FO_BENCH_JSON;
    return o;
}

/* What is printed; NULL and *status when it fails. */
static char *printed(const fo_simulate_options *o, fo_status *status)
{
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    *status = fo_simulate_run(o, out);
    fclose(out);
    if (*status == FO_OK)
        return text;
    free(text);
    return NULL;
}

static json_t *rows_of(const fo_simulate_options *o)
{
    fo_status status;
    json_error_t error;
    char *text = printed(o, &status);
    if (!text)
        fail_msg("%s: %s", o->subject, fo_last_error());
    json_t *rows = json_loads(text, 0, &error);
    if (!rows)
        fail_msg("no JSON: %s in %s", error.text, text);
    free(text);
    return rows;
}

static double real(const json_t *row, const char *key)
{
    const json_t *value = json_object_get(row, key);
    if (!json_is_number(value))
        fail_msg("%s is no number", key);
    return json_number_value(value);
}

static const char *word(const json_t *row, const char *key)
{
    return json_string_value(json_object_get(row, key));
}

static void refused(const fo_simulate_options *o, const char *part)
{
    fo_status status;
    char *text = printed(o, &status);
    assert_null(text);
    assert_int_equal(status, FO_INVALID);
    if (!strstr(fo_last_error(), part))
        fail_msg("expected '%s' in: %s", part, fo_last_error());
}

/* ---- figures ---------------------------------------------------------------------------------------- */

static const struct {
    const char *subject;
    bool backward;
    const char *overlap;
} cases[] = {
    {"row", false, "none,slice:2,ring,flash,flash:2,direct,auto"},
    {"row", true, "none,slice:4,ring,flash,flash:1,direct"},
    {"column", false, "flash,none,slice:3,ring,direct:2"},
    {"column", true, "none,flash,flash+apart,slice:2+apart,none+apart,auto+apart"},
    {"mlp", false, "none,none+apart,flash,flash+apart,slice:4,slice:4+apart,auto"},
    {"mlp", true, "none,none+apart,flash,flash+apart,ring,ring+apart,auto"},
    {"attention", false, "none,flash,flash+row,slice:4,direct"},
    {"attention", true, "none,flash,flash+row,ring,ring+row"},
};

enum { CASES = sizeof cases / sizeof *cases };

static void close_to(double found, double expected, const char *what)
{
    if (!(fabs(found - expected) <= 1e-6 * (fabs(expected) + 1)))
        fail_msg("%s is %.9g, expected %.9g", what, found, expected);
}

static double losses_of(const json_t *row)
{
    static const char *const keys[] = {"imbalance_ms", "contention_ms", "overhead_ms",
                                       "latency_ms",   "slicing_ms",    "tail_ms"};
    double sum = 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        sum += real(row, keys[i]);
    return sum;
}

static const json_t *find(const json_t *rows, const char *overlap)
{
    for (size_t i = 0; i < json_array_size(rows); i++)
        if (!strcmp(word(json_array_get(rows, i), "overlap"), overlap))
            return json_array_get(rows, i);
    fail_msg("there is no row of %s", overlap);
    return NULL;
}

static void check_row(const json_t *row, const json_t *none)
{
    double t = real(row, "t_ms"), c = real(row, "compute_ms"), bound = real(row, "bound_ms");
    double ect_none = real(none, "t_ms") - real(none, "compute_ms");
    assert_string_equal(word(row, "computation"), "simulated");
    assert_string_equal(word(row, "link"), "simulated");
    assert_true(json_is_null(json_object_get(row, "note")));
    if (t < bound * (1 - 1e-9))
        fail_msg("%s takes %.9g ms, less than its bound %.9g", word(row, "overlap"), t, bound);
    assert_true(real(row, "exposed_ms") >= 0 && real(row, "exposed_ms") <= t);
    close_to(real(row, "ect_ms"), t - c, "ECT");
    close_to(real(row, "gap_pct") / 100, t / bound - 1, "gap");
    close_to(real(row, "faster_pct") / 100, 1 - t / real(none, "t_ms"), "faster");
    if (ect_none > 0)
        close_to(real(row, "hidden_pct") / 100, 1 - (t - c) / ect_none, "hidden");
    close_to(losses_of(row), t - bound, "the sum of the losses");
}

static void test_figures(void **state)
{
    (void)state;
    for (int c = 0; c < CASES; c++)
        for (int ranks = 1; ranks <= 5; ranks += 2) {
            fo_simulate_options o = small(cases[c].subject, ranks);
            o.backward = cases[c].backward;
            o.overlap = cases[c].overlap;
            o.explain = true;
            json_t *rows = rows_of(&o);
            double least = INFINITY;
            int best = 0;
            for (size_t i = 0; i < json_array_size(rows); i++) {
                check_row(json_array_get(rows, i), find(rows, "none"));
                least = fmin(least, real(json_array_get(rows, i), "t_ms"));
            }
            for (size_t i = 0; i < json_array_size(rows); i++) {
                const json_t *row = json_array_get(rows, i);
                bool is = json_is_true(json_object_get(row, "best"));
                assert_true(!is || real(row, "t_ms") == least);
                best += is;
            }
            assert_int_equal(best, 1);
            json_decref(rows);
        }
}

/* Without `none` in the list it is compared with all the same. */
static void test_none_is_implied(void **state)
{
    (void)state;
    fo_simulate_options with = small("row", 4), without = with;
    with.overlap = "none,flash";
    without.overlap = "flash";
    json_t *a = rows_of(&with), *b = rows_of(&without);
    assert_int_equal(json_array_size(b), 1);
    const json_t *one = find(a, "flash"), *other = find(b, "flash");
    close_to(real(other, "hidden_pct"), real(one, "hidden_pct"), "hidden");
    close_to(real(other, "faster_pct"), real(one, "faster_pct"), "faster");
    json_decref(a);
    json_decref(b);
}

static void test_same_again(void **state)
{
    (void)state;
    fo_status status;
    fo_simulate_options o = small("mlp", 5);
    o.explain = true;
    char *a = printed(&o, &status), *b = printed(&o, &status);
    assert_string_equal(a, b);
    free(a);
    free(b);
}

/* Values of a line of CSV by the names of the first one. */
static void test_csv(void **state)
{
    (void)state;
    fo_status status;
    fo_simulate_options o = small("column", 3);
    o.overlap = "none,flash,hier";
    json_t *rows = rows_of(&o);
    o.format = FO_BENCH_CSV;
    char *text = printed(&o, &status), *lines = text;
    char *keys = strsep(&lines, "\n");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        char *line = strsep(&lines, "\n"), *names = strdup(keys), *name = names;
        assert_non_null(line);
        for (char *key; (key = strsep(&name, ","));) {
            const json_t *value = json_object_get(json_array_get(rows, i), key);
            const char *cell = strsep(&line, ",");
            assert_non_null(value);
            assert_non_null(cell);
            if (json_is_null(value))
                assert_string_equal(cell, "");
            else if (json_is_string(value))
                assert_string_equal(cell, json_string_value(value));
            else if (json_is_number(value))
                close_to(strtod(cell, NULL), json_number_value(value), key);
        }
        assert_null(line);
        free(names);
    }
    free(text);
    json_decref(rows);
}

/* ---- machines --------------------------------------------------------------------------------------- */

static void test_links(void **state)
{
    (void)state;
    fo_simulate_options o = small("row", 4);
    o.overlap = "none";
    o.link_ratio = 0.5;
    json_t *rows = rows_of(&o);
    const json_t *row = find(rows, "none");
    double speed = real(row, "link_bytes_per_s");
    close_to(real(row, "wire_bytes") / speed * 1e3, 0.5 * real(row, "compute_ms"), "the transfer");
    close_to(real(row, "transfer_ms"), 0.5 * real(row, "compute_ms"), "X");
    json_decref(rows);
    o.link_ratio = 0;
    o.transfer_s = 0.125;
    rows = rows_of(&o);
    close_to(real(find(rows, "none"), "transfer_ms"), 125, "X");
    json_decref(rows);
    o.transfer_s = 0;
    o.link = (fo_link){.bytes_per_s = 1e9, .latency_s = 1e-3};
    rows = rows_of(&o);
    row = find(rows, "none");
    close_to(real(row, "link_bytes_per_s"), 1e9, "the speed");
    close_to(real(row, "transfer_ms"), real(row, "wire_bytes") / 1e6 + 1, "X");
    json_decref(rows);
}

static void test_slow_rank(void **state)
{
    (void)state;
    fo_simulate_options o = small("row", 4);
    o.overlap = "none,flash";
    json_t *equal = rows_of(&o);
    o.slow_rank = 2;
    o.slow_speed = 0.5;
    o.explain = true;
    json_t *slow = rows_of(&o);
    for (int i = 0; i < 2; i++) {
        const json_t *a = json_array_get(equal, (size_t)i), *b = json_array_get(slow, (size_t)i);
        assert_true(real(b, "t_ms") > real(a, "t_ms") * 1.05);
        assert_true(real(b, "imbalance_ms") > 0);
    }
    json_decref(equal);
    json_decref(slow);
}

static void test_many_ranks(void **state)
{
    (void)state;
    fo_simulate_options o = small("row", 4096);
    o.batch = 64;
    o.context = 4096;
    o.ffn = 65536;
    o.overlap = "none,flash";
    json_t *rows = rows_of(&o);
    assert_true(real(find(rows, "flash"), "t_ms") > 0);
    json_decref(rows);
}

/* A negative case that is known (a layer that overlap made slower): small slices on a fast link. */
static void test_verdict(void **state)
{
    (void)state;
    fo_status status;
    fo_simulate_options o = small("row", 8);
    o.machine = "h100-sxm";
    o.batch = 1;
    o.context = 512;
    o.dim = o.ffn = 1024;
    o.format = FO_BENCH_TEXT;
    char *text = printed(&o, &status);
    assert_non_null(text);
    if (!strstr(text, "\ndo not overlap: none takes "))
        fail_msg("expected not to overlap: %s", text);
    free(text);
    o.ranks = 1;
    text = printed(&o, &status);
    assert_non_null(strstr(text, "\none rank has nothing to communicate"));
    free(text);
    o = small("mlp", 4);
    o.link_ratio = 0.5;
    o.batch = 16;
    o.context = 2048;
    o.dim = 8192;
    o.ffn = 28672;
    o.format = FO_BENCH_TEXT;
    text = printed(&o, &status);
    if (!strstr(text, "\noverlap with "))
        fail_msg("expected to overlap: %s", text);
    free(text);
}

/* What is said to overlap overlaps: one row, or fewer rows than a tile, leave nothing to slice. */
static void test_nothing_overlaps(void **state)
{
    static const struct {
        const char *subject, *overlap;
        bool backward;
        int64_t rows;
        const char *says;
    } thin[] = {
        {"row", "none,slice:2", false, 1, "nothing that was simulated overlaps"},
        {"row", "slice:8", false, 1, "nothing that was simulated overlaps"},
        {"row", "slice:1", false, 4096, "nothing that was simulated overlaps"},
        {"mlp", "none,slice:4,auto", false, 1, "nothing that was simulated overlaps"},
        {"column", "none,slice:2", false, 64, "nothing that was simulated overlaps"},
        {"column", "none,direct", false, 1, "though nothing overlaps"},
        {"mlp", "none,none+apart", false, 4096, "only none was simulated"},
        {"row", "none,slice:2,none+apart", true, 1, NULL},
        {"row", "none,slice:2", false, 65536, "verlap"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof thin / sizeof *thin; i++) {
        fo_status status;
        fo_simulate_options o = small(thin[i].subject, 8);
        o.machine = "h100-sxm";
        o.backward = thin[i].backward;
        o.overlap = thin[i].overlap;
        o.rows = thin[i].rows;
        o.format = FO_BENCH_TEXT;
        char *text = printed(&o, &status);
        if (!thin[i].says) { /* "+apart" is no form of it */
            assert_null(text);
            continue;
        }
        assert_non_null(text);
        if (!strstr(text, thin[i].says) ||
            (thin[i].rows < 4096 && strstr(text, "the fastest strategy that overlaps")))
            fail_msg("case %zu: %s", i, text);
        free(text);
    }
}

/* ---- what makes no sense ---------------------------------------------------------------------------- */

static void test_refusals(void **state)
{
    (void)state;
    const fo_simulate_options good = small("row", 4);
    fo_simulate_options o = good;
    o.subject = "layer";
    refused(&o, "'layer' is unknown, expected row, column, mlp or attention");
    o = good;
    o.machine = NULL;
    refused(&o, "--machine is missing");
    o.machine = "abacus";
    refused(&o, "a100-sxm");
    o = good;
    o.ranks = 0;
    refused(&o, "--ranks is 0, expected 1 to");
    o = good;
    o.nodes = 3;
    refused(&o, "--ranks 4 can't be spread evenly over --nodes 3");
    o.nodes = 2;
    refused(&o, "expected --outer with a link");
    o = good;
    o.outer.bytes_per_s = 1e9;
    refused(&o, "expected --nodes too");
    o = good;
    o.overlap = "flash,flsh";
    refused(&o, "flsh");
    o.overlap = "flash+row";
    refused(&o, "'+row' is no form of row");
    o.overlap = "flash,flash";
    refused(&o, "lists 'flash' twice");
    o.overlap = "library:4";
    refused(&o, "has no program to simulate");
    o.overlap = "";
    refused(&o, "--overlap is empty");
    o = good;
    o.slow_rank = 4;
    refused(&o, "rank 4 of 4, expected 0 to 3");
    o.slow_rank = 1;
    static const double speeds[] = {0, -1, 1e-308, 1e308, INFINITY, NAN};
    for (size_t i = 0; i < sizeof speeds / sizeof *speeds; i++) {
        o.slow_speed = speeds[i];
        refused(&o, "expected 0.001 to 1000");
    }
    o = good;
    o.link_ratio = 0.5;
    o.transfer_s = 1;
    refused(&o, "expected one of them");
    o = good;
    o.dim = 0;
    refused(&o, "--dim is 0");
    o = small("attention", 4);
    o.heads = 3;
    refused(&o, "--dim 1024 can't be split into 3 heads");
    o.heads = 16;
    o.rows = 7;
    refused(&o, "--rows doesn't say how long the sequences");
}

/* What one strategy can't do is its row; the others are there. */
static void test_notes(void **state)
{
    (void)state;
    fo_simulate_options o = small("row", 4);
    o.machine = "a100-sxm-hdr";
    o.ranks = 16;
    o.overlap = "none,hier,flash";
    json_t *rows = rows_of(&o);
    for (size_t i = 0; i < 3; i++)
        assert_true(json_is_null(json_object_get(json_array_get(rows, i), "note")));
    assert_int_equal((int)real(json_array_get(rows, 0), "nodes"), 2);
    json_decref(rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_figures),
        cmocka_unit_test(test_none_is_implied),
        cmocka_unit_test(test_same_again),
        cmocka_unit_test(test_csv),
        cmocka_unit_test(test_links),
        cmocka_unit_test(test_slow_rank),
        cmocka_unit_test(test_many_ranks),
        cmocka_unit_test(test_verdict),
        cmocka_unit_test(test_nothing_overlaps),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_notes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
