/* Profiles: what is shipped, every field of both versions, and what is refused with which words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/mutate.h"
#include "fuzz/profile_target.h"
#include "sim/profile.h"

static void near(double value, double expected)
{
    if (!(fabs(value - expected) <= 1e-9 * fabs(expected)))
        fail_msg("%.12g, expected %.12g", value, expected);
}

static char *golden(const char *name)
{
    char path[1024];
    const char *slash = strrchr(__FILE__, '/');
    int length = slash ? (int)(slash - __FILE__) : 1;
    snprintf(path, sizeof path, "%.*s/../../golden/profile/%s", length, slash ? __FILE__ : ".",
             name);
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("%s can't be opened", path);
    char *text = calloc(1, 1 << 16);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 16) - 1, file) > 0);
    fclose(file);
    return text;
}

static fo_status parse(const char *text, fo_sim_machine *machine)
{
    return fo_sim_profile_parse("bad.json", text, strlen(text), machine);
}

/* ---- shipped ---------------------------------------------------------------------------------------- */

static void test_shipped(void **state)
{
    (void)state;
    const char *const *names = fo_sim_profile_names();
    int count = 0;
    for (; names[count]; count++) {
        fo_sim_machine machine;
        assert_true(!count || strcmp(names[count - 1], names[count]) < 0);
        if (fo_sim_profile_read(names[count], &machine) != FO_OK)
            fail_msg("%s", fo_last_error());
        assert_string_equal(machine.name, names[count]);
        assert_non_null(strstr(fo_sim_profile_text(names[count]), "\"format_version\": 2"));
        fuzz_profile_figures(&machine);
        fo_sim_machine_free(&machine);
    }
    assert_true(count >= 12);
    assert_null(fo_sim_profile_text("a100"));
}

static void test_figures(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double peak, link;
        fo_sim_topology topology;
        int locals;
        double outer;
    } all[] = {{"a100-sxm", 312e12, 235e9, FO_SIM_SWITCH, 0, 0},
               {"a100-sxm-hdr", 312e12, 235e9, FO_SIM_SWITCH, 8, 23.5e9},
               {"h100-sxm", 989e12, 371e9, FO_SIM_SWITCH, 0, 0},
               {"h100-sxm-ndr", 989e12, 371e9, FO_SIM_SWITCH, 8, 48.5e9},
               {"h200", 989e12, 368e9, FO_SIM_SWITCH, 0, 0},
               {"b200", 2250e12, 722e9, FO_SIM_SWITCH, 0, 0},
               {"mi300x", 1307e12, 64e9, FO_SIM_MESH, 0, 0},
               {"ascend-910b", 320e12, 28e9, FO_SIM_MESH, 0, 0},
               {"l20", 119.5e12, 15e9, FO_SIM_SWITCH, 0, 0}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        fo_sim_machine m;
        assert_int_equal(fo_sim_profile_read(all[i].name, &m), FO_OK);
        near(m.device.peak_flops_per_s[FO_BF16], all[i].peak);
        near(m.network.link.bytes_per_s, all[i].link);
        assert_int_equal(m.network.topology, all[i].topology);
        assert_int_equal(m.network.locals, all[i].locals);
        assert_true(fabs(m.network.outer.bytes_per_s - all[i].outer) < 1);
        assert_true(m.device.flops_per_s[FO_BF16] < m.device.peak_flops_per_s[FO_BF16]);
        fo_sim_machine_free(&m);
    }
}

static void test_words(void **state)
{
    (void)state;
    fo_sim_machine machine;
    assert_int_equal(fo_sim_profile_read("a100", &machine), FO_INVALID);
    assert_non_null(strstr(fo_last_error(), "'a100' is unknown"));
    assert_non_null(strstr(fo_last_error(), "a100-sxm, "));
    assert_non_null(strstr(fo_last_error(), ".json"));
    assert_int_equal(fo_sim_profile_read("/nowhere/machine", &machine), FO_IO);
    assert_non_null(strstr(fo_last_error(), "/nowhere/machine"));
    assert_int_equal(fo_sim_profile_read("nowhere.json", &machine), FO_IO);
    assert_int_equal(fo_sim_profile_read("/tmp/", &machine), FO_IO);
}

/* ---- every field ------------------------------------------------------------------------------------ */

static void test_version2(void **state)
{
    (void)state;
    fo_sim_machine m;
    char *text = golden("version2.json");
    if (parse(text, &m) != FO_OK)
        fail_msg("%s", fo_last_error());
    free(text);
    assert_string_equal(m.name, "golden");
    assert_string_equal(m.about, "every field there is, each with a figure of its own");
    const fo_sim_device *d = &m.device;
    near(d->flops_per_s[FO_BF16], 101e12);
    near(d->flops_per_s[FO_F32], 51e12);
    near(d->peak_flops_per_s[FO_BF16], 121e12);
    near(d->peak_flops_per_s[FO_F32], 61e12);
    assert_int_equal(d->by_rows.points, 2);
    near(fo_sim_curve_at(&d->by_rows, 256), 0.5);
    near(fo_sim_curve_at(&d->by_width, 7), 0.5);
    near(d->launch_s, 3e-6);
    near(d->memory_bytes_per_s, 2.5e12);
    near(d->epilogue_bytes_per_s, 4e12);
    near(d->memory_bytes, 81e9);
    near(d->attention_efficiency, 0.625);
    assert_int_equal(d->units * 1000 + d->comm_units, 109023);
    assert_int_equal(d->tile_m * 1000 + d->tile_n, 129257);
    assert_int_equal(d->tile_rows * 1000 + d->wgrad_rows, 96320);
    assert_true(d->by_tile && m.views && !m.async);
    const fo_sim_network *n = &m.network;
    assert_int_equal(n->topology, FO_SIM_TORUS);
    assert_int_equal(n->torus[0] * 100 + n->torus[1] * 10 + n->torus[2], 235);
    assert_int_equal(n->locals * 10 + n->outer_ports, 304);
    near(n->link.bytes_per_s, 31e9);
    near(n->link.latency_s, 7e-6);
    near(n->link.efficiency.y[0], 0.125);
    near(n->outer.bytes_per_s, 11e9);
    near(n->outer.latency_s, 13e-6);
    near(n->outer.efficiency.y[0], 0.0625);
    near(m.task_s, 1.5e-6);
    near(m.message_s, 2.5e-6);
    near(m.wake_s, 17e-6);
    near(m.cpu_s_per_byte, 1.9e-10);
    near(m.contention, 0.375);
    fo_sim_machine_free(&m);
    assert_null(m.memory);
}

static const fo_sim_entry *find(const fo_sim_machine *m, fo_sim_work work, fo_dtype dtype)
{
    for (int e = 0; e < m->device.entry_count; e++)
        if (m->device.entries[e].work == work && m->device.entries[e].dtype == dtype)
            return &m->device.entries[e];
    fail_msg("no entry of work %d", (int)work);
    return NULL;
}

static void test_entries(void **state)
{
    (void)state;
    fo_sim_machine m;
    char *text = golden("version2.json");
    assert_int_equal(parse(text, &m), FO_OK);
    free(text);
    assert_int_equal(m.device.entry_count, 5);
    const fo_sim_entry *gemm = find(&m, FO_SIM_GEMM, FO_BF16);
    assert_int_equal(gemm->k, 1024);
    assert_int_equal(gemm->n, 512);
    assert_int_equal(gemm->rows, 64);
    assert_int_equal(gemm->threads, 2);
    assert_true(gemm->at_once);
    near(gemm->time_s, 0.0003);
    assert_false(find(&m, FO_SIM_GEMM, FO_F32)->at_once);
    const fo_sim_entry *wgrad = find(&m, FO_SIM_WGRAD, FO_BF16);
    assert_int_equal(wgrad->k, 512); /* in */
    assert_int_equal(wgrad->n, 1024);
    const fo_sim_entry *attention = find(&m, FO_SIM_ATTENTION, FO_BF16);
    assert_int_equal(attention->rows, 1024);
    assert_int_equal(attention->k, 8);
    assert_int_equal(attention->n, 64);
    near(find(&m, FO_SIM_ATTENTION_GRAD, FO_BF16)->time_s, 0.011);
    fo_sim_machine_free(&m);
}

static void test_version1(void **state)
{
    (void)state;
    fo_sim_machine m;
    char *text = golden("version1.json");
    if (parse(text, &m) != FO_OK)
        fail_msg("%s", fo_last_error());
    free(text);
    assert_non_null(strstr(m.about, "measured 2026-"));
    assert_non_null(strstr(m.about, "2 ranks, onednn, shm"));
    assert_true(m.device.by_tile && m.views && !m.async);
    assert_int_equal(m.device.tile_rows, 64);
    assert_int_equal(m.device.wgrad_rows, 256);
    /* the peaks of two ranks at once */
    assert_true(m.device.flops_per_s[FO_F32] > 1.05e11 && m.device.flops_per_s[FO_F32] < 1.15e11);
    assert_true(m.device.flops_per_s[FO_BF16] > 2.2e11 && m.device.flops_per_s[FO_BF16] < 2.4e11);
    assert_true(m.device.memory_bytes_per_s > 1e10 && m.device.memory_bytes_per_s < 3e10);
    assert_true(m.device.epilogue_bytes_per_s > 4e10 && m.device.epilogue_bytes_per_s < 1e11);
    assert_true(m.task_s > 0 && m.task_s < 1e-5);
    assert_true(m.wake_s > 0 && m.wake_s < 1e-3 && m.message_s > 0 && m.message_s < 1e-4);
    near(m.network.link.bytes_per_s + 1, 1); /* read in place */
    assert_true(find(&m, FO_SIM_GEMM, FO_BF16)->at_once);
    fo_sim_machine_free(&m);
}

/* Without views the link is that of the copies. */
static void test_version1_copies(void **state)
{
    (void)state;
    fo_sim_machine m;
    char *text = golden("version1.json"), *at = text;
    while ((at = strstr(at, "\"receive\": \"view\"")) != NULL)
        memcpy(at, "\"receive\": \"copy\"", 17);
    if (parse(text, &m) != FO_OK)
        fail_msg("%s", fo_last_error());
    free(text);
    assert_false(m.views);
    assert_true(m.network.link.bytes_per_s > 1e9 && m.network.link.latency_s > 1e-7);
    assert_true(m.network.link.efficiency.points >= 2 && m.cpu_s_per_byte > 0);
    fuzz_profile_curve(&m.network.link.efficiency);
    fo_sim_machine_free(&m);
}

/* ---- bad files -------------------------------------------------------------------------------------- */

/* In the golden file `from` becomes `to`; the sentence names all of `words`. */
typedef struct bad {
    const char *file, *from, *to;
    const char *words[4];
} bad;

static const bad bads[] = {
    /* a number: negative, no number, none */
    {"version2.json", "3e-6", "-3e-6", {"device.launch_s.value is -3e-6", "of at least 0", "5e-6"}},
    {"version2.json", "3e-6", "\"3us\"", {"device.launch_s.value is \"3us\"", "a number", "5e-6"}},
    {"version2.json", "3e-6", "null", {"device.launch_s.value is null", "a number"}},
    {"version2.json",
     "101e12",
     "0",
     {"device.bf16_flops_per_s.value is 0", "of at least 1", "271e12"}},
    {"version2.json",
     "31e9",
     "-1",
     {"network.bytes_per_s.value is -1", "0 or a number of at least 1", "235e9"}},
    {"version2.json", "11e9", "true", {"network.outer.bytes_per_s.value is true", "23.5e9"}},
    {"version2.json", "0.375", "1e3", {"software.contention.value is 1000", "at most 100"}},
    {"version2.json", "0.625", "1.5", {"device.attention_efficiency.value", "at most 1"}},
    {"version2.json", "81e9", "NaN", {"device.memory_bytes.value", "NaN", "expected JSON"}},
    {"version2.json", "81e9", "1e999", {"device.memory_bytes.value", "1e999", "a smaller number"}},
    /* times that would be no numbers any more */
    {"version2.json",
     "101e12",
     "1e-300",
     {"device.bf16_flops_per_s.value is 1e-300", "at least 1"}},
    {"version2.json", "31e9", "1e-9", {"network.bytes_per_s.value is 1e-9", "0 or a number"}},
    {"version2.json", "[64, 0.25]", "[64, 1e-9]", {"efficiency_by_rows.value[0]", "1e-6 to 1"}},
    /* what is printed as it is */
    {"version2.json", "\"golden\"", "\"a\\nb\"", {"name is \"a\\nb\"", "in one line"}},
    {"version2.json", "\"launch_s\"", "\"a\\n\\u001b\"", {"device.a?? is unknown", "launch_s, "}},
    {"version2.json", "81e9", "1e40", {"device.memory_bytes.value is 1", "at most 1e+24"}},
    /* whole numbers, words, flags, curves, sizes */
    {"version2.json", "109,", "1.5,", {"device.units.value is 1.5", "a whole number", "108"}},
    {"version2.json", "109,", "-4,", {"device.units.value is -4", "from 1"}},
    {"version2.json", "96,", "0,", {"device.tile_rows.value is 0", "from 1", "1024"}},
    {"version2.json",
     "\"torus\",",
     "\"ring\",",
     {"network.topology.value is \"ring\"", "\"mesh\""}},
    {"version2.json", "\"value\": false", "\"value\": 0", {"software.async.value is 0", "true or"}},
    {"version2.json",
     "[64, 0.25]",
     "[64, 1.25]",
     {"device.efficiency_by_rows.value[0] is [64,1.25]"}},
    {"version2.json", "[64, 0.25]", "[2048, 0.25]", {"efficiency_by_rows.value[1]", "ascending"}},
    {"version2.json",
     "[64, 0.25]",
     "[64]",
     {"device.efficiency_by_rows.value[0] is [64]", "pairs"}},
    {"version2.json", "[[512, 0.5]]", "[]", {"device.efficiency_by_width.value is []", "1 to 32"}},
    {"version2.json", "[[2000, 0.0625]]", "7", {"network.outer.efficiency.value is 7", "pairs"}},
    {"version2.json", "[2, 3, 5]", "[2, 0]", {"network.torus.value is [2,0]", "sizes of 1"}},
    {"version2.json", "[2, 3, 5]", "[1, 2, 3, 4]", {"network.torus.value", "1 to 3 sizes"}},
    /* the object of a field */
    {"version2.json",
     "{\"value\": 3e-6, \"source\": \"a test\", \"confidence\": \"measured\"}",
     "3e-6",
     {"device.launch_s is 3e-6", "an object of value, source and confidence", "\"source\""}},
    {"version2.json", "\"value\": 3e-6, ", "", {"device.launch_s.value is missing", "5e-6"}},
    {"version2.json",
     "3e-6, \"source\": \"a test\"",
     "3e-6",
     {"device.launch_s.source is missing", "who says so"}},
    {"version2.json",
     "3e-6, \"source\": \"a test\"",
     "3e-6, \"source\": \"\"",
     {"device.launch_s.source is \"\"", "who says so"}},
    {"version2.json",
     "\"vendor\"",
     "\"certain\"",
     {"device.bf16_flops_per_s.confidence is \"certain\"", "\"community\""}},
    {"version2.json",
     "\"value\": 3e-6,",
     "\"value\": 3e-6, \"unit\": \"s\",",
     {"device.launch_s.unit is unknown", "value, source, confidence"}},
    /* twice, unknown, missing */
    {"version2.json",
     "\"launch_s\"",
     "\"memory_bytes\"",
     {"device.memory_bytes", "every field once"}},
    {"version2.json", "\"launch_s\"", "\"lauch_s\"", {"device.lauch_s is unknown", "launch_s, "}},
    {"version2.json", "\"ports\"", "\"port\"", {"network.outer.port is unknown", "ports"}},
    {"version2.json", "\"software\"", "\"sofware\"", {"sofware is unknown", "software"}},
    {"version2.json",
     "\"latency_s\": {\"value\": 7e-6",
     "\"efficiency\": {\"value\": 7e-6",
     {"network.efficiency"}},
    {"version2.json", "\"device\"", "\"Device\"", {"Device is unknown", "device, network"}},
    {"version2.json", "\"name\": \"golden\",", "", {"name is missing", "\"a100-sxm\""}},
    {"version2.json", "\"golden\"", "\"\"", {"name is \"\"", "1 to 63"}},
    {"version2.json",
     "\"about\": \"every",
     "\"about\": [], \"x\": \"every",
     {"about is []", "text"}},
    /* between fields */
    {"version2.json", "\"value\": 23", "\"value\": 109", {"comm_units is 109 of 109 units", "27"}},
    {"version2.json",
     "\"value\": \"torus\"",
     "\"value\": \"mesh\"",
     {"network.torus is {", "no torus"}},
    /* the format */
    {"version2.json",
     "\"format_version\": 2",
     "\"format_version\": 3",
     {"format_version is 3", "1 or 2"}},
    {"version2.json",
     "\"format_version\": 2",
     "\"format_version\": \"2\"",
     {"format_version is \"2\"", "1 or 2"}},
    {"version2.json",
     "flashoverlap-machine-profile",
     "profile",
     {"format is \"profile\"", "name of"}},
    /* lists */
    {"version2.json", "\"time_s\": 0.0003", "\"time_s\": 0", {"gemm[0].time_s is 0", "0.0012"}},
    {"version2.json", "\"time_s\": 0.0003", "\"best_s\": 0.0003", {"gemm[0].time_s is missing"}},
    {"version2.json", "\"rows\": 64,", "\"rows\": 6.4,", {"gemm[0].rows is 6.4", "whole"}},
    {"version2.json",
     "\"dtype\": \"f32\"",
     "\"dtype\": \"fp8\"",
     {"gemm[1].dtype is \"fp8\"", "\"f32\" or \"bf16\""}},
    {"version2.json",
     "\"confidence\": \"high\"",
     "\"confidence\": \"vendor\"",
     {"gemm[1].confidence is \"vendor\"", "\"medium\""}},
    {"version2.json", "\"in\": 512", "\"k\": 512", {"wgrad[0].k is unknown", "in, out, rows"}},
    {"version2.json", "\"context\": 1024", "\"context\": -1", {"attention[0].context is -1"}},
    {"version1.json",
     "\"source\": \"measured\"",
     "\"source\": \"guessed\"",
     {"source is \"guessed\"", "\"measured\""}},
    {"version1.json", "\"quick\": false", "\"quick\": 0", {"quick is 0", "true or false"}},
    {"version1.json", "\"passes\"", "\"pass\"", {"pass is unknown", "passes"}},
    {"version1.json",
     "\"receive\": \"copy\"",
     "\"receive\": \"push\"",
     {"messages[0].receive is \"push\"", "\"view\""}},
    {"version1.json", "\"latency_s\"", "\"latency\"", {"link.latency is unknown", "latency_s"}},
    {"version1.json", "\"peaks\": [", "\"peaks\": [7, ", {"peaks[0] is 7", "an object"}},
};

static char *replaced(const char *file, const char *from, const char *to)
{
    char *text = golden(file), *at = strstr(text, from);
    if (!at)
        fail_msg("%s is not in %s", from, file);
    size_t size = strlen(text) + strlen(to) + 1;
    char *out = calloc(1, size);
    assert_non_null(out);
    snprintf(out, size, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    free(text);
    return out;
}

static void test_bad(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bads / sizeof bads[0]; i++) {
        fo_sim_machine machine;
        char *text = replaced(bads[i].file, bads[i].from, bads[i].to);
        fo_status status = parse(text, &machine);
        free(text);
        if (status != FO_INVALID)
            fail_msg("%s instead of %s: status %d", bads[i].to, bads[i].from, (int)status);
        assert_non_null(strstr(fo_last_error(), "bad.json: "));
        for (int w = 0; w < 4 && bads[i].words[w]; w++)
            if (!strstr(fo_last_error(), bads[i].words[w]))
                fail_msg("\"%s\" is not in: %s", bads[i].words[w], fo_last_error());
        assert_null(machine.memory);
    }
}

/* No JSON, no object, nothing; half a file. */
static void test_torn(void **state)
{
    (void)state;
    fo_sim_machine machine;
    static const char *const texts[] = {"", "7", "[]", "{", "nonsense", "{}", "\"a\"", "{\"a\": }"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        assert_int_equal(parse(texts[i], &machine), FO_INVALID);
        assert_non_null(strstr(fo_last_error(), "such as "));
    }
    char *text = golden("version2.json");
    for (size_t size = strlen(text) - 3; size > 37; size -= 37)
        assert_int_equal(fo_sim_profile_parse("torn", text, size, &machine), FO_INVALID);
    free(text);
}

/* A few thousand changes of both files, with every copy in a block of its own so that a sanitizer sees its end. */
static void test_mutations(void **state)
{
    (void)state;
    static const char *const files[] = {"version1.json", "version2.json"};
    int read = 0;
    for (int f = 0; f < 2; f++) {
        char *text = golden(files[f]);
        size_t size = strlen(text), room = size + 64;
        for (uint64_t i = 0; i < 2000; i++) {
            uint8_t *bytes = malloc(room);
            assert_non_null(bytes);
            memcpy(bytes, text, size);
            size_t now = mutate(91 + (uint64_t)f, i, bytes, size, room);
            uint8_t *exact = malloc(now + 1);
            assert_non_null(exact);
            memcpy(exact, bytes, now);
            free(bytes);
            read += fuzz_profile(exact, now);
            free(exact);
        }
        free(text);
    }
    assert_true(read > 10 && read < 2000); /* both ways are taken */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shipped),
        cmocka_unit_test(test_figures),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_version2),
        cmocka_unit_test(test_entries),
        cmocka_unit_test(test_version1),
        cmocka_unit_test(test_version1_copies),
        cmocka_unit_test(test_bad),
        cmocka_unit_test(test_torn),
        cmocka_unit_test(test_mutations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
