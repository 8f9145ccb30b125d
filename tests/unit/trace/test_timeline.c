/* Chrome trace files: against a file, as JSON, and properties of whatever is recorded. FO_GOLDEN_UPDATE=1 in
 * the environment writes the file anew: read the difference before believing it. */
#include "unit/trace/files.h"

#include <jansson.h>
#include <math.h>

enum { RANKS = 3, MANY = 4000, PARTS = 2 };

static const char *const names[] = {"mlp in", "norm", hostile};

/* One event of every kind, on two ranks. Times from 1000 ns on. */
static const fo_event fixed_events[] = {
    {1000, 3500, FO_EVENT_COMPUTE, 0, 0, 0, 0, 0, 0, -1, -1, 0, 0, 256, 0, 0},
    {1200, 4800, FO_EVENT_SEND, 0, 0, -1, 0, 0, 0, 1, 0, 0, 0, 256, 524288, 77},
    {3500, 5001, FO_EVENT_WAIT, 0, 0, -1, 1, 2, 0, 3, 1, 0, 0, 0, 0, 0},
    {5001, 5101, FO_EVENT_ADD, 0, 0, -1, 1, 2, 1, -1, -1, 0, 512, 256, 0, 0},
    {5101, 5111, FO_EVENT_COPY, 0, 0, -1, 1, 2, 1, -1, -1, 0, 512, 256, 0, 0},
    {5111, 9000, FO_EVENT_LOCAL, 0, 1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0},
    {1500, 2000, FO_EVENT_PACK, 1, 0, -1, -1, -1, -1, -1, -1, 3, 0, 0, 0, 0},
    {1900, 2500, FO_EVENT_COMPUTE, 1, 0, 1, 2, 1, -1, -1, -1, 3, 256, 256, 0, 0},
    {2100, 4900, FO_EVENT_RECV, 1, 0, -1, 0, 0, 0, 0, 0, 0, 0, 256, 524288, 77},
    {2600, 2700, FO_EVENT_RECV, 1, 0, -1, 0, 0, 0, 0, 1, 0, 0, 64, 131072, 78},
};

static const fo_timeline fixed = {.ranks = 2,
                                  .names = names,
                                  .name_count = 2,
                                  .events = fixed_events,
                                  .count = sizeof fixed_events / sizeof fixed_events[0],
                                  .dropped = 5,
                                  .begin_ns = 1000,
                                  .end_ns = 9000};

static fo_status write_fixed(const char *path)
{
    const fo_timeline_part parts[] = {{"flash", &fixed}, {"a \"b\"", &fixed}};
    return fo_timeline_write(parts, PARTS, path);
}

static json_t *parsed(const char *path)
{
    json_error_t error;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        fail_msg("%s is no JSON: %s, line %d", path, error.text, error.line);
    return root;
}

static void test_golden(void **state)
{
    (void)state;
    const char *slash = strrchr(__FILE__, '/');
    char golden[1024];
    snprintf(golden, sizeof golden, "%.*s/../../golden/trace/timeline.json",
             (int)(slash - __FILE__), __FILE__);
    if (getenv("FO_GOLDEN_UPDATE"))
        assert_int_equal(write_fixed(golden), FO_OK);
    const char *path = in_folder("fixed.json");
    assert_int_equal(write_fixed(path), FO_OK);
    char *text = read_file(path), *expected = read_file(golden);
    assert_string_equal(text, expected);
    free(text);
    free(expected);
    json_decref(parsed(path));
    unlink(path);
}

static void test_kind_names(void **state)
{
    (void)state;
    assert_string_equal(fo_event_kind_name(FO_EVENT_COMPUTE), "compute");
    assert_string_equal(fo_event_kind_name(FO_EVENT_WAIT), "wait");
    assert_string_equal(fo_event_kind_name(FO_EVENT_RECV), "receive");
    assert_string_equal(fo_event_kind_name(FO_EVENT_KINDS), "unknown");
}

/* ---- whatever is recorded ---------------------------------------------------------------------------- */

static uint64_t random_below(uint64_t *seed, uint64_t limit)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (*seed >> 33) % limit;
}

/* Overlapping, unordered, before the beginning, with flows that lack an end or come several times, of kinds
 * and ranks that do not exist. */
static void fill_random(fo_event *events, uint64_t seed)
{
    for (int i = 0; i < MANY; i++) {
        int64_t begin = (int64_t)random_below(&seed, 1000000) + 900000;
        events[i] = (fo_event){.begin_ns = begin,
                               .end_ns = begin + (int64_t)random_below(&seed, 5000) - 100,
                               .kind = (int)random_below(&seed, FO_EVENT_KINDS + 1),
                               .rank = (int)random_below(&seed, RANKS + 1),
                               .name = (int)random_below(&seed, 5) - 1,
                               .slot = (int)random_below(&seed, 3) - 1,
                               .step = (int)random_below(&seed, 3) - 1,
                               .shard = (int)random_below(&seed, 3) - 1,
                               .sub = (int)random_below(&seed, 3) - 1,
                               .peer = (int)random_below(&seed, 3) - 1,
                               .channel = (int)random_below(&seed, 3) - 1,
                               .flow = random_below(&seed, 500)};
    }
}

static double field(const json_t *event, const char *key)
{
    return json_number_value(json_object_get(event, key));
}

/* Events of one thread come in the order of time: each begins where the one before ended, or later. */
static void check_lanes(const json_t *events, int *boxes)
{
    static double end[64][64];
    memset(end, 0, sizeof end);
    size_t i;
    const json_t *event;
    json_array_foreach(events, i, event)
    {
        if (strcmp(json_string_value(json_object_get(event, "ph")), "X") != 0)
            continue;
        int process = (int)field(event, "pid"), thread = (int)field(event, "tid");
        assert_true(process >= 1 && process < 64 && thread >= 1 && thread < 64);
        double begin = round(field(event, "ts") * 1000);
        assert_true(begin >= end[process][thread]);
        assert_true(field(event, "dur") >= 0);
        end[process][thread] = round((field(event, "ts") + field(event, "dur")) * 1000);
        ++*boxes;
    }
}

static void count_end(json_t *flows, const json_t *event, const char *phase)
{
    char key[64];
    snprintf(key, sizeof key, "%s%s", phase, json_string_value(json_object_get(event, "id")));
    assert_null(json_object_get(flows, key)); /* once */
    json_object_set_new(flows, key,
                        json_integer(json_integer_value(json_object_get(event, "pid"))));
}

/* Every arrow has one beginning and one end, and stays in its part. */
static void check_flows(const json_t *events, int *arrows)
{
    json_t *flows = json_object();
    size_t i;
    const json_t *event, *start;
    const char *key;
    json_array_foreach(events, i, event)
    {
        const char *phase = json_string_value(json_object_get(event, "ph"));
        if (strcmp(phase, "s") == 0 || strcmp(phase, "f") == 0)
            count_end(flows, event, phase);
    }
    json_object_foreach(flows, key, start)
    {
        char other[64];
        snprintf(other, sizeof other, "%c%s", key[0] == 's' ? 'f' : 's', key + 1);
        const json_t *end = json_object_get(flows, other);
        assert_non_null(end);
        assert_int_equal((json_integer_value(start) - 1) / RANKS,
                         (json_integer_value(end) - 1) / RANKS);
        ++*arrows;
    }
    json_decref(flows);
}

static void test_random(void **state)
{
    (void)state;
    static fo_event events[PARTS][MANY];
    fo_timeline timelines[PARTS];
    fo_timeline_part parts[PARTS];
    for (uint64_t seed = 1; seed <= 5; seed++) {
        int boxes = 0, arrows = 0, known = 0;
        for (int p = 0; p < PARTS; p++) {
            fill_random(events[p], seed * 100 + (uint64_t)p);
            for (int i = 0; i < MANY; i++)
                known += events[p][i].kind < FO_EVENT_KINDS && events[p][i].rank < RANKS;
            timelines[p] = (fo_timeline){RANKS, names, 3, events[p], MANY, 0, 1000000, 2000000};
            parts[p] = (fo_timeline_part){hostile, &timelines[p]};
        }
        const char *path = in_folder("random.json");
        assert_int_equal(fo_timeline_write(parts, PARTS, path), FO_OK);
        json_t *root = parsed(path);
        check_lanes(json_object_get(root, "traceEvents"), &boxes);
        check_flows(json_object_get(root, "traceEvents"), &arrows);
        assert_int_equal(boxes, known);
        assert_true(arrows > 100);
        json_decref(root);
        unlink(path);
    }
}

/* A hostile name comes out of the file as it went in, but for what was no UTF-8. */
static void test_hostile(void **state)
{
    (void)state;
    const fo_event event = {
        .kind = FO_EVENT_LOCAL, .end_ns = 5, .name = 2, .shard = -1, .peer = -1};
    const fo_timeline timeline = {1, names, 3, &event, 1, 0, 0, 5};
    const char *path = in_folder("hostile.json");
    assert_int_equal(fo_timeline_write(&(fo_timeline_part){hostile, &timeline}, 1, path), FO_OK);
    char *text = read_file(path);
    assert_null(strchr(text, '<'));
    free(text);
    json_t *root = parsed(path);
    const json_t *events = json_object_get(root, "traceEvents");
    const char *name = json_string_value(
        json_object_get(json_array_get(events, json_array_size(events) - 1), "name"));
    size_t valid = (size_t)(strchr(hostile, '\xFF') - hostile);
    assert_memory_equal(name, hostile, valid);
    assert_string_equal(name + valid, "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"
                                      "\xEF\xBF\xBD end");
    json_decref(root);
    unlink(path);
}

static void test_empty(void **state)
{
    (void)state;
    const fo_timeline nothing = {.ranks = 2};
    const fo_timeline_part parts[] = {{"nothing", &nothing}, {NULL, NULL}};
    const char *path = in_folder("empty.json");
    for (int count = 0; count <= 2; count++) {
        assert_int_equal(fo_timeline_write(parts, count, path), FO_OK);
        json_decref(parsed(path));
    }
    assert_int_equal(entries(), 1);
    unlink(path);
}

static void test_unwritable(void **state)
{
    (void)state;
    check_unwritable(write_fixed);
    check_unwritable(fo_trace_check_path);
    check_full(write_fixed, 100);
    char path[5000];
    memset(path, 'a', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    assert_int_equal(fo_trace_check_path(path), FO_IO);
    assert_non_null(strstr(fo_last_error(), "takes 4999 bytes"));
}

static void test_check_path(void **state)
{
    (void)state;
    assert_int_equal(fo_trace_check_path(in_folder("later.json")), FO_OK);
    assert_int_equal(entries(), 0);
    assert_int_equal(write_fixed(in_folder("there.json")), FO_OK);
    assert_int_equal(fo_trace_check_path(in_folder("there.json")), FO_OK);
    assert_int_equal(entries(), 1);
    unlink(in_folder("there.json"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),     cmocka_unit_test(test_kind_names),
        cmocka_unit_test(test_random),     cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_empty),      cmocka_unit_test(test_unwritable),
        cmocka_unit_test(test_check_path),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
