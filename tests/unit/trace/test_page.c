/* The report: every figure is in it, no string leaves its place, and it is there whole or not at all. How it
 * looks is looked at in a browser (tests/browser/). */
#include "unit/trace/files.h"

#include <jansson.h>
#include <math.h>

#include "trace/page.h"

static const fo_page_row rows[] = {
    {"a", "none", 122.31, 121.02, 125.55, 77.04, 45.27, 0.0, 44.11, 78.21, 56.4, 1, NULL, 0},
    {"a", "flash", 78.62, 78.13, 79.48, 77.04, 1.58, 96.5, 0.83, 78.21, 0.5, 1, NULL, 0},
    {"b", "none", 61.23, NAN, NAN, NAN, NAN, NAN, 21.07, NAN, NAN, -1, NULL, 0},
    {"b", "slice:4", NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, -1, "too few rows", 0},
    {"b", "flash", 70.04, 69.01, 71.02, 71.06, -1.02, 103.4, 0.0, 66.05, 6.1, 0, NULL, 0},
};

static const char *const names[] = {"mlp in", "mlp out", hostile};

static const fo_event events[] = {
    {1000000, 3500000, FO_EVENT_COMPUTE, 0, 0, 0, 0, 0, 0, -1, -1, 0, 0, 256, 0, 0},
    {3500000, 4700000, FO_EVENT_WAIT, 0, 0, -1, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0},
    {4700000, 4800000, FO_EVENT_LOCAL, 0, 2, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0},
    {5000000, 6300000, FO_EVENT_WAIT, 0, 0, -1, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0},
    {1000000, 9000000, FO_EVENT_WAIT, 1, 1, -1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0},
    {2000000, 2900000, FO_EVENT_SEND, 1, 1, -1, 1, 0, 0, 0, 1, 0, 0, 64, 4096, 9},
};

static const fo_timeline timeline = {2, names, 3,      events, sizeof events / sizeof events[0],
                                     3, 0,     9000000};

static const fo_page_fact facts[] = {{"processor", "an abacus"}, {"ranks", "2"}};
static const double loss_a[] = {4.25, 3.5, 3.125}, loss_b[] = {4.25, 3.5, 3.1250001};

static fo_page whole_page(void)
{
    static const fo_timeline_part parts[] = {{"none", &timeline}, {"flash", &timeline}};
    static const fo_page_curve curves[] = {{"none", loss_a, 3}, {"flash", loss_a, 3}};
    return (fo_page){.title = "mlp forward, 2 ranks",
                     .subtitle = "512 rows, bf16",
                     .command = "flashoverlap bench mlp --ranks 2",
                     .how = "Over an emulated link.",
                     .facts = facts,
                     .fact_count = 2,
                     .rows = rows,
                     .row_count = sizeof rows / sizeof rows[0],
                     .timelines = parts,
                     .timeline_count = 2,
                     .curves = curves,
                     .curve_count = 2};
}

static char *written(const fo_page *page)
{
    const char *path = in_folder("page.html");
    assert_int_equal(fo_trace_page_write(page, path), FO_OK);
    assert_int_equal(entries(), 1);
    char *text = read_file(path);
    unlink(path);
    return text;
}

static void expect(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("the page lacks: %s", part);
}

static int count(const char *text, const char *part)
{
    int found = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part))
        found++;
    return found;
}

/* What is no number is a dash, or is not drawn. */
static void check_numbers(const char *text)
{
    for (const char *at = text; (at = strstr(at, "nan")); at += 3)
        if (!strchr("abcdefghijklmnopqrstuvwxyz", at[3]))
            fail_msg("the page has: %.60s", at - 20);
}

static void test_figures(void **state)
{
    (void)state;
    fo_page page = whole_page();
    char *text = written(&page);
    const char *const parts[] = {
        "<h1>mlp forward, 2 ranks</h1>", "512 rows, bf16", "flashoverlap bench mlp --ranks 2",
        "an abacus", "lang=\"en\"", "name=\"viewport\"",
        /* the headline */
        "<strong>flash</strong> hides <span class=\"figure\">96.5 %</span> of what "
        "communication costs none: <span class=\"figure\">122.3 ms</span> → <span "
        "class=\"figure\">78.6 "
        "ms</span>, "
        "<span class=\"figure\">36 % faster</span>.",
        "No strategy is faster than <strong>none</strong>: <span class=\"figure\">61.23 ms</span>",
        "<strong>Results differ</strong>",
        /* the table */
        "<td>122.31 <span class=\"spread\">121.02 to 125.55</span></td><td>45.27</td><td>0.0</td>"
        "<td>44.11</td><td>78.21</td><td>56.4</td><td>equal</td>",
        "<td>78.62 <span class=\"spread\">78.13 to 79.48</span></td><td>1.58</td><td>96.5</td>"
        "<td>0.83</td><td>78.21</td><td>0.5</td><td>equal</td>",
        "<td>61.23 <span class=\"spread\">–</span></td><td>–</td><td>–</td><td>21.07</td><td>–</td>"
        "<td>–</td><td>–</td>",
        "<td>−1.02</td><td>103.4</td><td>0.00</td>", "<td class=\"differ\">differ</td>",
        "<td colspan=\"7\" class=\"note\">too few rows</td>", "computation alone</th><td>77.04",
        "computation alone</th><td>71.06",
        /* timelines, exposed time, losses */
        "8.000 ms, of which the rank that waits longest is exposed 8.000 ms; 3 events found no "
        "room",
        "rank 1 waits longest, 8.000 ms in all", "mlp in</th><td>0</td><td>1</td><td>2.500</td>",
        "Over 3 steps <strong>all losses are equal to the bit</strong>", "flash: 3.1250 at step 3"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        expect(text, parts[i]);
    check_numbers(text);
    assert_null(strstr(text, "<p class=\"emulated\">"));
    assert_null(strstr(text, "interrupted"));
    assert_true(strstr(text, "rank 1 waits longest") < strstr(text, "mlp in</th><td>0</td>"));
    free(text);
}

/* Predictions stand beside what was measured, where there are any. */
static void test_predictions(void **state)
{
    (void)state;
    fo_page_row some[sizeof rows / sizeof rows[0]];
    fo_page page = whole_page();
    char *text = written(&page);
    assert_null(strstr(text, "redicted"));
    free(text);
    memcpy(some, rows, sizeof rows);
    some[0].predicted_ms = 125.0;
    some[1].predicted_ms = 77.0;
    some[2].predicted_ms = NAN;
    some[3].predicted_ms = 50.0; /* not measured */
    page.rows = some;
    text = written(&page);
    expect(text, "<th scope=\"col\">predicted ms <span class=\"spread error\">error</span></th>");
    expect(text, "to 125.55</span></td><td>125.00 <span class=\"spread error\">+2.2 %</span></td>"
                 "<td>45.27</td>");
    expect(text, "to 79.48</span></td><td>77.00 <span class=\"spread error\">−2.1 %</span></td>");
    expect(text, "<td>61.23 <span class=\"spread\">–</span></td><td>–</td><td>–</td>");
    expect(text, "<td colspan=\"8\" class=\"note\">too few rows</td>");
    expect(text, "<dt>Predicted</dt>");
    assert_int_equal(count(text, " %</span></td><td>"), 2);
    check_numbers(text);
    free(text);
}

/* Emulated and interrupted runs say so, above all figures. */
static void test_warnings(void **state)
{
    (void)state;
    fo_page page = whole_page();
    page.emulated = page.interrupted = true;
    char *text = written(&page);
    expect(text, "<strong>Emulated.</strong> Over an emulated link.");
    expect(text, "<strong>The run was interrupted.</strong>");
    assert_true(strstr(text, "interrupted") < strstr(text, "class=\"headlines\""));
    assert_true(strstr(text, "Emulated") < strstr(text, "<table"));
    free(text);
}

/* ---- strings --------------------------------------------------------------------------------------- */

static void check_data(const char *text)
{
    static const char open[] = "id=\"timeline-data\">";
    const char *begin = strstr(text, open) + strlen(open), *end = strstr(begin, "</script>");
    json_error_t error;
    json_t *root = json_loadb(begin, (size_t)(end - begin), JSON_REJECT_DUPLICATES, &error);
    if (!root)
        fail_msg("the data of the timelines is no JSON: %s", error.text);
    bool found = false;
    size_t i;
    const json_t *operation;
    json_array_foreach(json_object_get(root, "operations"), i, operation)
    {
        found = found || strstr(json_string_value(json_array_get(operation, 0)), "</script><img");
    }
    assert_true(found);
    json_decref(root);
}

static void test_hostile(void **state)
{
    (void)state;
    fo_page page = whole_page();
    const fo_page_fact fact = {hostile, hostile};
    const fo_page_curve curve = {hostile, loss_a, 3};
    const fo_timeline_part part = {hostile, &timeline};
    fo_page_row row[] = {rows[0], rows[3]};
    row[0].point = row[0].overlap = row[1].overlap = row[1].note = hostile;
    page.title = page.subtitle = page.command = page.how = hostile;
    page.facts = &fact;
    page.fact_count = 1;
    page.curves = &curve;
    page.curve_count = 1;
    page.timelines = &part;
    page.timeline_count = 1;
    page.rows = row;
    page.row_count = 2;
    page.emulated = true;
    char *text = written(&page);
    assert_int_equal(count(text, "</script>"), 2); /* the data's and the script's */
    assert_int_equal(count(text, "<img"), 0);
    assert_true(count(text, "&lt;img src=x onerror=alert(1)&gt;") >= 10);
    assert_null(strstr(text, "\xFF"));
    assert_null(strstr(text, "\xC0"));
    assert_null(strchr(text, '\x01'));
    assert_null(strstr(text, "http:"));
    assert_null(strstr(text, "https:"));
    check_data(text);
    free(text);
}

/* ---- little or nothing ------------------------------------------------------------------------------- */

static void test_empty(void **state)
{
    (void)state;
    const fo_page nothing = {0};
    char *text = written(&nothing);
    expect(text, "<title>FlashOverlap report</title>");
    expect(text, "Nothing was measured.");
    assert_null(strstr(text, "<table"));
    assert_null(strstr(text, "<canvas"));
    assert_int_equal(count(text, "<section"), 1); /* what the figures mean */
    free(text);
}

static void test_empty_parts(void **state)
{
    (void)state;
    const fo_timeline no_events = {.ranks = 2};
    const fo_timeline_part parts[] = {{"none", &no_events}, {"flash", NULL}};
    const fo_page_curve curves[] = {{"none", NULL, 0}, {"flash", loss_a, 1}};
    const fo_page_row unmeasured = {"a", "flash", NAN, NAN, NAN, NAN,  NAN,
                                    NAN, NAN,     NAN, NAN, -1,  NULL, 0};
    const fo_page page = {.rows = &unmeasured,
                          .row_count = 1,
                          .timelines = parts,
                          .timeline_count = 2,
                          .curves = curves,
                          .curve_count = 2};
    char *text = written(&page);
    assert_int_equal(count(text, "nothing was recorded"), 2);
    assert_int_equal(count(text, "no rank waited"), 2);
    expect(text, "No strategy could be measured");
    expect(text, "flash: 4.2500 at step 1");
    check_numbers(text);
    free(text);
}

/* ---- losses ---------------------------------------------------------------------------------------- */

static void test_losses(void **state)
{
    (void)state;
    const double broken[] = {4.25, NAN, 3.125};
    const fo_page_curve different[] = {{"none", loss_a, 3}, {"flash", loss_b, 3}};
    const fo_page_curve shorter[] = {{"none", loss_a, 3}, {"flash", loss_b, 2}};
    const fo_page_curve holes[] = {{"none", broken, 3}, {"flash", broken, 3}};
    fo_page page = whole_page();
    page.curves = different;
    char *text = written(&page);
    expect(text, "<strong>The losses differ</strong>, first at step 3, at most by 1e-07.");
    free(text);
    page.curves = shorter;
    text = written(&page);
    expect(text, "Over the 2 steps that all of them ran, <strong>all losses are equal to the bit");
    free(text);
    page.curves = holes;
    text = written(&page);
    expect(text, "all losses are equal to the bit");
    check_numbers(text);
    free(text);
    page.curve_count = 1;
    text = written(&page);
    assert_null(strstr(text, "equal to the bit</strong>"));
    free(text);
}

static void test_headlines(void **state)
{
    (void)state;
    fo_page page = whole_page();
    page.rows = &rows[1]; /* without none */
    page.row_count = 1;
    char *text = written(&page);
    expect(text,
           "<p class=\"headline\"><strong>flash</strong> takes <span class=\"figure\">78.62 ms");
    free(text);
    page.rows = rows; /* none alone */
    text = written(&page);
    expect(text,
           "<p class=\"headline\"><strong>none</strong> takes <span class=\"figure\">122.3 ms");
    free(text);
}

/* ---- files ----------------------------------------------------------------------------------------- */

static fo_status write_whole(const char *path)
{
    fo_page page = whole_page();
    return fo_trace_page_write(&page, path);
}

static void test_unwritable(void **state)
{
    (void)state;
    check_unwritable(write_whole);
    check_full(write_whole, 5000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_figures),    cmocka_unit_test(test_predictions),
        cmocka_unit_test(test_warnings),   cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_empty),      cmocka_unit_test(test_empty_parts),
        cmocka_unit_test(test_losses),     cmocka_unit_test(test_headlines),
        cmocka_unit_test(test_unwritable),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
