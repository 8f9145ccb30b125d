/* Timelines of simulated runs: lanes that nest, all rows of the programs, bytes and times that add up, arrows with two
 * ends; and files that say "simulated". */
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
#include <unistd.h>

#include "flashoverlap/simulate.h"
#include "planner/timeline.h"
#include "sim/profile.h"
#include "trace/lanes.h"

static char folder[] = "/tmp/fo-simulate-XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

typedef struct drawing {
    fo_planner_timeline *timeline;
    fo_planner_programs programs;
    fo_sim_report report;
} drawing;

static drawing draw(const char *machine_name, fo_op op, const char *overlap, int ranks,
                    int64_t rows)
{
    drawing d = {.timeline = fo_planner_timeline_make()};
    fo_sim_machine machine;
    assert_int_equal(fo_sim_profile_read(machine_name, &machine), FO_OK);
    bool column = op == FO_COLUMN_FORWARD || op == FO_COLUMN_BACKWARD;
    fo_sim_operation operation = {.desc = {.op = op,
                                           .rows = rows,
                                           .in = column ? 1024 : 384,
                                           .out = column ? 384 : 1024,
                                           .hidden = op == FO_MLP_FORWARD ? 512 : 0,
                                           .dtype = FO_BF16,
                                           .wire = FO_BF16,
                                           .y_dtype = FO_BF16,
                                           .overlap = overlap},
                                  .ranks = ranks,
                                  .exact = ranks <= 16,
                                  .watch = fo_planner_timeline_watch,
                                  .watcher = d.timeline};
    assert_int_equal(fo_planner_simulate_programs_make(&machine, &operation, &d.programs), FO_OK);
    assert_int_equal(fo_planner_timeline_operation(d.timeline, "an operation", &d.programs, 0),
                     FO_OK);
    if (fo_sim_operation_run(&machine, &operation, &d.report) != FO_OK)
        fail_msg("%s", fo_last_error());
    assert_int_equal(fo_planner_timeline_end(d.timeline, d.report.total_s), FO_OK);
    fo_sim_machine_free(&machine);
    return d;
}

static void erase(drawing *d)
{
    fo_planner_timeline_free(d->timeline);
    fo_planner_simulate_programs_free(&d->programs);
}

/* Passes over sums take no time on some machines, and what takes none is not seen. */
static bool may_be_free(int kind)
{
    return kind == FO_EVENT_ADD || kind == FO_EVENT_COPY;
}

/* Rows of each kind that a rank's program has. */
static void check_rank(drawing *d, int rank)
{
    const fo_timeline *t = fo_planner_timeline_get(d->timeline);
    const fo_program *p = fo_planner_simulate_programs_of(&d->programs, rank);
    int64_t rows[FO_EVENT_KINDS] = {0}, expected[FO_EVENT_KINDS] = {0}, bytes = 0, wire = 0;
    static const int kinds[] = {FO_EVENT_COMPUTE, FO_EVENT_SEND, FO_EVENT_RECV, FO_EVENT_ADD,
                                FO_EVENT_COPY};
    for (int32_t i = 0; i < p->task_count; i++) {
        const fo_task *task = &p->tasks[i];
        expected[kinds[task->kind]] += task->rows;
        if (task->kind == FO_TASK_SEND)
            wire += task->rows * d->programs.row_bytes[p->buffers[task->in.buffer].role];
    }
    for (int64_t i = 0; i < t->count; i++) {
        const fo_event *e = &t->events[i];
        if (e->rank != rank)
            continue;
        rows[e->kind] += e->kind == FO_EVENT_WAIT ? 0 : e->rows;
        bytes += e->kind == FO_EVENT_SEND ? e->bytes : 0;
        assert_true(e->end_ns >= e->begin_ns && e->begin_ns >= 0 && e->end_ns <= t->end_ns + 1);
    }
    for (int kind = 0; kind < FO_EVENT_KINDS; kind++)
        if (rows[kind] != expected[kind] && (rows[kind] > expected[kind] || !may_be_free(kind)))
            fail_msg("rank %d: %lld rows of %s, expected %lld", rank, (long long)rows[kind],
                     fo_event_kind_name((fo_event_kind)kind), (long long)expected[kind]);
    assert_int_equal(bytes, wire);
}

/* Sorted by rank and begin; on no lane two at once; the last result is at the end. */
static void check_lanes(const fo_timeline *t)
{
    fo_trace_lanes lanes;
    assert_int_equal(fo_trace_lanes_make(t, &lanes), FO_OK);
    for (int64_t l = 0; l < lanes.lane_count; l++)
        for (int64_t i = lanes.lanes[l].first + 1; i < lanes.lanes[l].first + lanes.lanes[l].count;
             i++) {
            const fo_event *a = lanes.boxes[i - 1].event, *b = lanes.boxes[i].event;
            if (lanes.lanes[l].type != FO_TRACE_RECEIVING && b->begin_ns < a->end_ns - 1)
                fail_msg("two events at once on lane %d of rank %d: %s until %lld, %s from %lld",
                         (int)lanes.lanes[l].type, b->rank,
                         fo_event_kind_name((fo_event_kind)a->kind), (long long)a->end_ns,
                         fo_event_kind_name((fo_event_kind)b->kind), (long long)b->begin_ns);
        }
    for (int64_t i = 1; i < t->count; i++)
        assert_true(t->events[i].rank > t->events[i - 1].rank ||
                    (t->events[i].rank == t->events[i - 1].rank &&
                     t->events[i].begin_ns >= t->events[i - 1].begin_ns));
    fo_trace_lanes_free(&lanes);
}

static int compare_flows(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* Every arrow has one SEND and one RECV. */
static void check_flows(const fo_timeline *t)
{
    uint64_t *flows = calloc((size_t)t->count + 1, sizeof *flows);
    int64_t count = 0, sends = 0;
    for (int64_t i = 0; i < t->count; i++) {
        sends += t->events[i].flow && t->events[i].kind == FO_EVENT_SEND;
        if (t->events[i].flow)
            flows[count++] = t->events[i].flow;
    }
    qsort(flows, (size_t)count, sizeof *flows, compare_flows);
    assert_int_equal(count, 2 * sends);
    for (int64_t i = 0; i < count; i += 2) {
        assert_true(flows[i] == flows[i + 1]);
        assert_true(i + 2 >= count || flows[i + 2] != flows[i]);
    }
    free(flows);
}

static void test_events(void **state)
{
    (void)state;
    static const char *const overlaps[] = {"none", "slice:3", "ring", "flash", "flash:2", "direct"};
    static const fo_op ops[] = {FO_ROW_FORWARD, FO_COLUMN_FORWARD, FO_ROW_BACKWARD, FO_MLP_FORWARD,
                                FO_COLUMN_BACKWARD};
    static const char *const machines[] = {"a100-sxm", "cpu-host"};
    for (int m = 0; m < 2; m++)
        for (size_t o = 0; o < sizeof ops / sizeof *ops; o++)
            for (size_t s = 0; s < sizeof overlaps / sizeof *overlaps; s++)
                for (int ranks = 1; ranks <= 5; ranks += 2) {
                    drawing d = draw(machines[m], ops[o], overlaps[s], ranks, 2003);
                    const fo_timeline *t = fo_planner_timeline_get(d.timeline);
                    assert_int_equal(t->ranks, ranks);
                    assert_int_equal(t->end_ns, llround(d.report.total_s * 1e9));
                    assert_int_equal(t->dropped, 0);
                    for (int r = 0; r < ranks; r++)
                        check_rank(&d, r);
                    check_lanes(t);
                    check_flows(t);
                    erase(&d);
                }
}

/* Of many equal ranks one is drawn, as it would be among few. */
static void test_representatives(void **state)
{
    (void)state;
    drawing d = draw("a100-sxm", FO_ROW_FORWARD, "flash", 64, 64 * 256);
    const fo_timeline *t = fo_planner_timeline_get(d.timeline);
    assert_int_equal(t->ranks, 1);
    check_rank(&d, 0);
    check_lanes(t);
    erase(&d);
}

/* Of many that differ by a row too: the larger ones stand for all. */
static void test_uneven_representatives(void **state)
{
    (void)state;
    static const char *const overlaps[] = {"none", "slice:3", "flash", "direct"};
    for (size_t s = 0; s < sizeof overlaps / sizeof *overlaps; s++) {
        drawing d = draw("a100-sxm", FO_COLUMN_BACKWARD, overlaps[s], 200, 200 * 300 + 7);
        assert_int_equal(fo_planner_timeline_get(d.timeline)->ranks, 1);
        check_rank(&d, 0);
        erase(&d);
        d = draw("a100-sxm", FO_COLUMN_BACKWARD, overlaps[s], 20, 20 * 300 + 7);
        for (int r = 0; r < fo_planner_timeline_get(d.timeline)->ranks; r++)
            check_rank(&d, r);
        erase(&d);
    }
}

/* ---- files ------------------------------------------------------------------------------------------ */

static char *read_text(const char *path)
{
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    char *text = calloc(1, 1 << 22);
    assert_true(fread(text, 1, (1 << 22) - 1, in) > 0);
    fclose(in);
    return text;
}

static void simulate(const char *trace, const char *report, const char *chakra)
{
    fo_simulate_options o;
    fo_simulate_defaults(&o);
    o.subject = "mlp";
    o.machine = "a100-sxm";
    o.ranks = 3;
    o.overlap = "none,flash,flash+apart";
    o.trace = trace;
    o.report = report;
    o.chakra = chakra;
    FILE *out = fopen("/dev/null", "w");
    if (fo_simulate_run(&o, out) != FO_OK)
        fail_msg("%s", fo_last_error());
    fclose(out);
}

static void test_trace(void **state)
{
    (void)state;
    char path[64];
    snprintf(path, sizeof path, "%s/trace.json", folder);
    simulate(path, NULL, NULL);
    json_error_t error;
    json_t *trace = json_load_file(path, 0, &error), *event;
    size_t i;
    int named = 0, arrows = 0;
    assert_non_null(trace);
    json_array_foreach(json_object_get(trace, "traceEvents"), i, event)
    {
        const char *name = json_string_value(json_object_get(event, "name"));
        const char *phase = json_string_value(json_object_get(event, "ph"));
        arrows += *phase == 's' ? 1 : *phase == 'f' ? -1 : 0;
        if (strcmp(name, "process_name") != 0)
            continue;
        named++;
        name = json_string_value(json_object_get(json_object_get(event, "args"), "name"));
        if (!strstr(name, "simulated"))
            fail_msg("a process is called '%s'", name);
    }
    assert_int_equal(named, 9);
    assert_int_equal(arrows, 0);
    json_decref(trace);
    unlink(path);
}

static void test_page(void **state)
{
    (void)state;
    char path[64];
    snprintf(path, sizeof path, "%s/page.html", folder);
    simulate(NULL, path, NULL);
    char *text = read_text(path);
    static const char *const parts[] = {"<h1>mlp forward, 3 ranks, simulated</h1>",
                                        "<strong>Simulated.</strong> No rank was started",
                                        "a100-sxm",
                                        ">flash+apart<",
                                        "id=\"timelines\"",
                                        "The time of a run on the model"};
    static const char *const others[] = {"low to high",    ">bits<", "Emulated.",
                                         "measured until", "nan",    "Noise"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strstr(text, parts[i]))
            fail_msg("the page lacks: %s", parts[i]);
    char *body = strstr(text, "<body>"), *script = strstr(body, "id=\"timeline-data\"");
    *script = '\0';
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strstr(body, others[i]))
            fail_msg("the page has: %s", others[i]);
    free(text);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_events),
        cmocka_unit_test(test_representatives),
        cmocka_unit_test(test_uneven_representatives),
        cmocka_unit_test(test_trace),
        cmocka_unit_test(test_page),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
