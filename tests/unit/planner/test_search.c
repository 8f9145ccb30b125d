/* The search against every split tried one by one, and plan files. */
#include <float.h>
#include <math.h>
#include <unistd.h>

#include "flashoverlap/schedule.h"
#include "fuzz/mutate.h"
#include "fuzz/plan_target.h"
#include "planner/search_estimate.h"
#include "sim/profile.h"
#include "unit/data/scratch.h"

static fo_search_options options_of(const char *model, const char *machine, int ranks,
                                    int64_t batch)
{
    fo_search_options o;
    fo_search_defaults(&o);
    assert_int_equal(fo_model_sizes_read(model, &o.step.model), FO_OK);
    o.step.machine = machine;
    o.step.batch = batch;
    o.ranks = ranks;
    return o;
}

static bool fits(const fo_search_options *o, const fo_step_report *r, double memory)
{
    return r->memory_bytes <= memory * o->memory_part;
}

/* The fastest of all splits with the least recomputation that fits, by simulating each of them. */
static double fastest(const fo_search_options *o, int locals, double memory)
{
    double best = INFINITY;
    for (int tp = 1; tp <= locals; tp++)
        for (int pp = 1; pp <= o->ranks; pp++)
            for (int interleave = 1; interleave <= 16; interleave++)
                for (int64_t micro = 1; micro <= o->step.batch; micro *= 2)
                    for (int r = FO_RECOMPUTE_NONE; r <= FO_RECOMPUTE_FULL; r++) {
                        fo_step_options step = o->step;
                        fo_step_report report;
                        if (o->ranks % (tp * pp))
                            continue;
                        step.tp = tp;
                        step.pp = pp;
                        step.dp = o->ranks / tp / pp;
                        step.interleave = interleave;
                        step.micro_batch = micro;
                        step.recompute = (fo_recompute)r;
                        if (interleave > 1 && step.model.layers % (pp * interleave))
                            continue;
                        if (fo_step_simulate(&step, &report) != FO_OK)
                            continue;
                        if (!fits(o, &report, memory))
                            continue;
                        best = fmin(best, report.step_s);
                        break;
                    }
    return best;
}

static void test_finds_the_fastest(void **state)
{
    static const struct {
        const char *model;
        int ranks;
        int64_t batch;
    } cases[] = {{"gpt2", 4, 4}, {"gpt2-xl", 8, 8}, {"llama2-7b", 8, 8}};
    static fo_search_result result;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fo_search_options o =
            options_of(cases[i].model, "h100-sxm", cases[i].ranks, cases[i].batch);
        assert_int_equal(fo_search_run(&o, &result), FO_OK);
        assert_true(result.count > 0 && result.count <= FO_SEARCH_TOP);
        assert_true(result.priced + result.too_large <= result.considered);
        double best = fastest(&o, 8, 80e9);
        /* closed forms choose which few are simulated: within 1 % of the fastest */
        assert_true(result.best[0].report.step_s <= best * 1.01);
        assert_true(result.best[0].report.step_s >= best * (1 - 1e-9));
        for (int c = 0; c < result.count; c++) {
            const fo_step_options *s = &result.best[c].step;
            assert_int_equal(s->tp * s->dp * s->pp, o.ranks);
            assert_true(result.best[c].report.memory_bytes <= 80e9 * o.memory_part);
            assert_true(result.best[c].report.step_s <= result.best[c].report.none_s * (1 + 1e-9));
            assert_true(!c || result.best[c - 1].report.step_s <= result.best[c].report.step_s);
        }
    }
}

/* Nothing but products, one of which was measured and is faster than the rate. */
static void write_measured(const char *path)
{
    static const char text[] =
        "{\"format\": \"flashoverlap-machine-profile\", \"format_version\": 2, \"name\": "
        "\"measured\", "
        "\"about\": \"a test\", \"device\": {"
        "\"bf16_flops_per_s\": {\"value\": 1e14, \"source\": \"s\", \"confidence\": \"model\"}, "
        "\"memory_bytes\": {\"value\": 8e10, \"source\": \"s\", \"confidence\": \"model\"}}, "
        "\"network\": {"
        "\"topology\": {\"value\": \"switch\", \"source\": \"s\", \"confidence\": \"model\"}, "
        "\"bytes_per_s\": {\"value\": 1e12, \"source\": \"s\", \"confidence\": \"model\"}, "
        "\"latency_s\": {\"value\": 1e-6, \"source\": \"s\", \"confidence\": \"model\"}}, "
        "\"gemm\": [{\"dtype\": \"bf16\", \"threads\": 1, \"ranks_at_once\": 8, \"rows\": 1024, "
        "\"k\": 1600, \"n\": 1600, \"time_s\": 1.31072e-05}]}"; /* 4e14 FLOP/s */
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

/* The estimate of each split that is possible is no more than its step; how near it comes at best. */
static double nearest_estimate(const fo_search_options *o, const fo_sim_machine *machine)
{
    double nearest = 0;
    int splits = 0;
    for (int tp = 1; tp <= 16; tp *= 2)
        for (int pp = 1; pp <= 16 / tp; pp *= 2)
            for (int i = 0; i < 18; i++) {
                fo_step_options step = o->step;
                fo_planner_split split;
                fo_step_report report;
                step.tp = tp;
                step.pp = pp;
                step.dp = 16 / tp / pp;
                step.micro_batch = 1 + i % 2;
                step.interleave = 1 + i / 2 % 3;
                step.recompute = (fo_recompute)(i / 6);
                if (fo_step_simulate(&step, &report) != FO_OK)
                    continue;
                assert_int_equal(fo_planner_split_make(&step, machine->network.locals, &split),
                                 FO_OK);
                double least = fo_planner_search_estimate(&machine->device, &split);
                if (!(least <= report.step_s * (1 + 1e-9)))
                    fail_msg("tp %d pp %d way %d: at least %.9g s, but it takes %.9g s", tp, pp, i,
                             least, report.step_s);
                nearest = fmax(nearest, least / report.step_s);
                splits++;
            }
    assert_true(splits > 60);
    return nearest;
}

static void test_estimate_is_never_too_slow(void **state)
{
    static fo_search_result result;
    char path[] = "/tmp/fo-measured-XXXXXX.json";
    fo_sim_machine machine;
    (void)state;
    int descriptor = mkstemps(path, 5);
    assert_true(descriptor >= 0);
    close(descriptor);
    write_measured(path);
    static const char *const models[] = {"gpt2-xl", "qwen2.5-0.5b"};
    for (int i = 0; i < 4; i++) {
        fo_search_options o = options_of(models[i / 2], i % 2 ? path : "h100-sxm", 16, 32);
        o.step.context = 512;
        assert_int_equal(fo_sim_profile_read(o.step.machine, &machine), FO_OK);
        double nearest = nearest_estimate(&o, &machine);
        if (!(nearest > (i % 2 ? 0.6 : 0.1)))
            fail_msg("%s on %s: estimates of at most %g of the step", models[i / 2], o.step.machine,
                     nearest);
        fo_sim_machine_free(&machine);
        if (i != 1)
            continue;
        o.step.batch = 8;
        assert_int_equal(fo_search_run(&o, &result), FO_OK);
        double best = fastest(&o, 8, 80e9);
        assert_true(result.best[0].report.step_s <= best * 1.01);
    }
    unlink(path);
}

/* All that are listed are as fast as any that is not: with every way stated they come out again. */
static void test_lists_the_fastest(void **state)
{
    static fo_search_result all, one;
    fo_search_options o = options_of("gpt2-xl", "h100-sxm", 16, 64);
    (void)state;
    assert_int_equal(fo_search_run(&o, &all), FO_OK);
    assert_int_equal(all.count, FO_SEARCH_TOP);
    for (int tp = 1; tp <= 8; tp++)
        for (int pp = 1; pp <= 16; pp *= 2)
            for (int64_t micro = 1; micro <= 64; micro *= 2) {
                o.step.tp = tp;
                o.step.pp = pp;
                o.step.micro_batch = micro;
                if (fo_search_run(&o, &one) != FO_OK)
                    continue;
                bool listed = false;
                for (int c = 0; c < all.count; c++) {
                    const fo_step_options *s = &all.best[c].step;
                    listed |= s->tp == tp && s->pp == pp && s->micro_batch == micro;
                }
                double last = all.best[all.count - 1].report.step_s;
                if (!listed && one.best[0].report.step_s < last * 0.99)
                    fail_msg("tp %d pp %d micro-batch %lld takes %.9g s, the last listed %.9g s",
                             tp, pp, (long long)micro, one.best[0].report.step_s, last);
            }
}

static void test_keeps_what_is_given(void **state)
{
    static fo_search_result result;
    fo_search_options o = options_of("llama2-7b", "h100-sxm", 8, 16);
    (void)state;
    o.step.tp = 2;
    o.step.pp = 2;
    o.step.micro_batch = 1;
    o.recompute_given = true;
    o.step.recompute = FO_RECOMPUTE_SELECTIVE;
    assert_int_equal(fo_search_run(&o, &result), FO_OK);
    for (int c = 0; c < result.count; c++) {
        const fo_step_options *s = &result.best[c].step;
        assert_true(s->tp == 2 && s->pp == 2 && s->dp == 2 && s->micro_batch == 1);
        assert_int_equal(s->recompute, FO_RECOMPUTE_SELECTIVE);
    }
}

static void test_says_what_forbids(void **state)
{
    static fo_search_result result;
    fo_search_options o = options_of("llama3-405b", "h100-sxm", 8, 8);
    (void)state;
    assert_int_equal(fo_search_run(&o, &result), FO_INVALID);
    assert_non_null(strstr(fo_last_error(), "GB a rank on 8 ranks"));
    assert_null(strstr(fo_last_error(), "recomputation")); /* all of it was tried */
    o.recompute_given = true;
    assert_int_equal(fo_search_run(&o, &result), FO_INVALID);
    assert_non_null(strstr(fo_last_error(), "shorter sequences or recomputation"));
    o = options_of("gpt2", "h100-sxm", 6, 5);
    o.step.tp = 1;
    o.step.pp = 1;
    assert_int_equal(fo_search_run(&o, &result), FO_INVALID);
    assert_non_null(strstr(fo_last_error(), "batch"));
    o = options_of("gpt2", "h100-sxm", 7, 4);
    o.step.tp = 2;
    assert_int_equal(fo_search_run(&o, &result), FO_INVALID);
    assert_non_null(strstr(fo_last_error(), "tp 2 does not divide 7 ranks, expected e.g. tp 1"));
    o.step.machine = "abacus";
    assert_int_equal(fo_search_run(&o, &result), FO_INVALID);
    assert_non_null(strstr(fo_last_error(), "h100-sxm"));
    o = options_of("gpt2", "h100-sxm", 0, 4);
    assert_int_equal(fo_search_run(&o, &result), FO_INVALID);
    o = options_of("gpt2", "h100-sxm", 4, 4);
    o.memory_part = 0;
    assert_int_equal(fo_search_run(&o, &result), FO_INVALID);
}

/* The sentence names what was given and what would do instead, and nothing that nobody gave. */
static void test_names_the_size(void **state)
{
    static const struct {
        const char *model;
        int ranks, tp, dp, pp, interleave;
        int64_t batch, micro_batch, context;
        const char *says, *instead, *unsaid;
    } cases[] = {
        {"gpt2", 8, 3, 0, 0, 0, 64, 0, 0, "tp 3 does not divide 8 ranks", "e.g. tp 2", "dp"},
        {"gpt2", 8, 0, 0, 3, 0, 64, 0, 0, "pp 3 does not divide 8 ranks", "e.g. pp 2", "tp"},
        {"gpt2", 8, 0, 3, 0, 0, 64, 0, 0, "dp 3 does not divide 8 ranks", "e.g. dp 2", "tp"},
        {"gpt2", 8, 3, 0, 2, 0, 64, 0, 0, "tp 3 x pp 2 = 6 do not divide 8", "e.g. tp 2", "dp"},
        {"gpt2", 8, 2, 2, 3, 0, 64, 0, 0, "= 12 are not the 8 ranks", "left out", "micro"},
        {"gpt2", 8, 0, 0, 0, 7, 64, 0, 0, "interleave 7 leaves no way", "interleave 6", "tp"},
        {"gpt2", 8, 0, 0, 0, 17, 64, 0, 0, "interleave is 17", "at most 16", "tp"},
        {"gpt2", 8, 0, 0, 0, 0, 64, 48, 0, "micro_batch 48 leaves no way", "micro_batch 32", "tp"},
        {"gpt2", 8, 8, 0, 0, 0, 64, 48, 0, "not divide by micro_batch 48", "batch 48", "dp"},
        {"gpt2", 8, 1, 0, 1, 0, 5, 0, 0, "batch of 5 sequences", "batch 8", "micro"},
        {"gpt2", 8, 0, 8, 0, 0, 12, 1, 0, "does not divide by dp 8", "batch 8", "micro"},
        {"gpt2", 13, 0, 0, 0, 0, 64, 0, 0, "13 ranks can't be split", "12 ranks or batch 52", "tp"},
        {"gpt2", 1048573, 0, 0, 0, 0, 64, 0, 0, "1048573 ranks can't be", " ranks or", "tp"},
        {"gpt2", 13, 0, 0, 13, 0, 64, 0, 0, "pp is 13, but gpt2 has 12 layers", "at most 12", "tp"},
        {"gpt2", 16, 16, 0, 0, 0, 64, 0, 0, "tp is 16, but gpt2 has 12 heads", "at most 12", "dp"},
        {"gpt2", 8, 0, 0, 0, 0, 64, 0, 1025, "context is 1025", "1024 positions", "tp"},
        {"gpt2", 8, 0, 0, 0, 0, 64, 0, 99999999, "context is 99999999", "1 to 16777216", "tp"},
    };
    static fo_search_result result;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fo_search_options o =
            options_of(cases[i].model, "h100-sxm", cases[i].ranks, cases[i].batch);
        o.step.tp = cases[i].tp;
        o.step.dp = cases[i].dp;
        o.step.pp = cases[i].pp;
        o.step.interleave = cases[i].interleave;
        o.step.micro_batch = cases[i].micro_batch;
        o.step.context = cases[i].context;
        assert_int_equal(fo_search_run(&o, &result), FO_INVALID);
        const char *said = fo_last_error();
        char word[16];
        snprintf(word, sizeof word, " %s ", cases[i].unsaid);
        if (!strstr(said, cases[i].says) || !strstr(said, cases[i].instead) || strstr(said, word))
            fail_msg("case %zu: %s", i, said);
    }
}

/* What a sentence says would do does. */
static void test_what_it_offers_works(void **state)
{
    static fo_search_result result;
    int refused = 0;
    (void)state;
    for (int tp = 0; tp <= 6; tp++)
        for (int pp = 0; pp <= 5; pp++)
            for (int micro = 0; micro <= 6; micro += 3) {
                fo_search_options o = options_of("gpt2", "h100-sxm", 12, 8);
                o.step.tp = tp;
                o.step.pp = pp;
                o.step.micro_batch = micro;
                if (fo_search_run(&o, &result) == FO_OK)
                    continue;
                const char *offer = strstr(fo_last_error(), "expected e.g. ");
                char name[32] = "";
                long long value = 0;
                refused++;
                if (!offer || sscanf(offer, "expected e.g. %31s %lld", name, &value) != 2)
                    continue; /* more than one size is wrong */
                if (strcmp(name, "tp") == 0)
                    o.step.tp = (int)value;
                else if (strcmp(name, "pp") == 0)
                    o.step.pp = (int)value;
                else if (strcmp(name, "micro_batch") == 0)
                    o.step.micro_batch = value;
                else
                    o.step.batch = value;
                if (fo_search_run(&o, &result) != FO_OK)
                    fail_msg("tp %d pp %d micro %d, %s %lld: %s", tp, pp, micro, name, value,
                             fo_last_error());
            }
    assert_true(refused > 20);
}

/* ---- plan files ------------------------------------------------------------------------------------------ */

static const char example[] =
    "{\"format\":\"flashoverlap-plan\",\"format_version\":1,\"model\":\"gpt2\",\"layers\":12,"
    "\"dim\":768,\"heads\":12,\"machine\":\"h100-sxm\",\"ranks\":4,\"tp\":2,\"dp\":2,\"pp\":1,"
    "\"interleave\":1,\"batch\":8,\"micro_batch\":4,\"context\":1024,\"recompute\":\"none\","
    "\"sequence_parallel\":true,\"flash_attention\":false,"
    "\"dtype\":\"bf16\",\"wire\":\"f32\",\"step_s\":0.25,\"operations\":[{\"name\":\"qkv forward\","
    "\"overlap\":\"slice:4\",\"predicted_s\":0.001},{\"name\":\"mlp "
    "forward\",\"overlap\":\"flash\","
    "\"predicted_s\":1}]}";

static void test_reads_the_example(void **state)
{
    fo_plan_file f;
    (void)state;
    assert_int_equal(fo_plan_file_parse("e", example, strlen(example), &f), FO_OK);
    assert_string_equal(f.model, "gpt2");
    assert_true(f.layers == 12 && f.dim == 768 && f.heads == 12);
    assert_true(f.ranks == 4 && f.tp == 2 && f.dp == 2 && f.pp == 1 && f.interleave == 1);
    assert_true(f.batch == 8 && f.micro_batch == 4 && f.context == 1024);
    assert_true(f.dtype == FO_BF16 && f.wire == FO_F32 && f.recompute == FO_RECOMPUTE_NONE);
    assert_true(f.sequence_parallel && !f.flash_attention);
    assert_string_equal(fo_plan_file_overlap(&f, "qkv forward"), "slice:4");
    assert_string_equal(fo_plan_file_overlap(&f, "mlp forward"), "flash");
    assert_null(fo_plan_file_overlap(&f, "mlp"));
}

static void test_writes_what_it_reads(void **state)
{
    static fo_search_result result;
    char folder[] = "/tmp/fo-plan-XXXXXX", path[64];
    fo_plan_file made, read;
    fo_search_options o = options_of("gpt2", "a100-sxm", 4, 8);
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/plan.json", folder);
    assert_int_equal(fo_search_run(&o, &result), FO_OK);
    fo_plan_file_make(&result.best[0], &made);
    assert_true(made.operation_count > 4);
    assert_int_equal(fo_plan_file_write(&made, path), FO_OK);
    memset(&read, 0, sizeof read);
    assert_int_equal(fo_plan_file_read(path, &read), FO_OK);
    assert_int_equal(read.operation_count, made.operation_count);
    for (int i = 0; i < made.operation_count; i++) {
        assert_string_equal(read.operations[i].name, made.operations[i].name);
        assert_string_equal(read.operations[i].overlap, made.operations[i].overlap);
    }
    assert_true(read.ranks == 4 && read.tp == made.tp && read.dp == made.dp && read.pp == made.pp);
    assert_true(read.sequence_parallel && read.flash_attention);
    assert_true(fabs(read.step_s - made.step_s) <= 1e-6 * made.step_s);
    unlink(path);
    snprintf(path, sizeof path, "%s/none/plan.json", folder);
    assert_int_equal(fo_plan_file_write(&made, path), FO_IO);
    assert_int_equal(fo_plan_file_read(path, &read), FO_IO);
    assert_int_equal(rmdir(folder), 0); /* nothing was left beside it */
}

static void test_refuses(void **state)
{
    static const struct {
        const char *found, *instead, *says;
    } cases[] = {
        {"\"tp\":2", "\"tp\":\"2\"", "tp is a text"},
        {"\"tp\":2", "\"tp\":0", "tp is 0"},
        {"\"tp\":2", "\"tp\":4", "tp 4 x dp 2 x pp 1 are 8"},
        {"\"tp\":2,", "", "tp is missing"},
        {"\"tp\":2", "\"tp\":2,\"tq\":1", "tq is unknown"},
        {"\"tp\":2", "\"tp\":2,\"tp\":2", "duplicate"},
        {"\"batch\":8", "\"batch\":1e99", "batch is a number"},
        {"\"batch\":8", "\"batch\":99999999999", "batch is 99999999999"},
        {"\"format_version\":1", "\"format_version\":2", "format_version"},
        {"flashoverlap-plan", "plan", "format is \"plan\""},
        {"\"recompute\":\"none\"", "\"recompute\":\"some\"", "recompute is \"some\""},
        {"\"sequence_parallel\":true,", "", "sequence_parallel is missing, expected e.g. true"},
        {"\"flash_attention\":false", "\"flash_attention\":0", "flash_attention is a whole number"},
        {"\"dtype\":\"bf16\"", "\"dtype\":\"fp8\"", "dtype is \"fp8\""},
        {"slice:4", "slice:x", "operations[0].overlap is \"slice:x\""},
        {"\"predicted_s\":1}", "\"predicted_s\":-1}", "operations[1].predicted_s is -1"},
        {"mlp forward", "qkv forward", "names an operation again"},
        {"\"step_s\":0.25", "\"step_s\":null", "step_s is null"},
        {"]}", "],}", "line 1"},
        {"]}", "}", "operations[1], line 1"},
        {"\"batch\":8", "\"batch\":7", "batch is 7, which dp 2 x micro_batch 4 does not divide"},
        {"\"layers\":12", "\"layers\":1e400", "layers, line 1"},
        {"\"gpt2\"", "\"\"", "model is empty"},
        {"\"gpt2\"", "\"a\\u001b[31m\"", "model has a control character"},
        {"\"tp\":2", "\"tp\":2,\"t\\nq\":1", "t?q is unknown, expected one of format, "},
        {"qkv forward", "", "operations[0].name is empty"},
        {"mlp forward", "qkv forward", "operations[1].name names"},
        {"\"operations\":[{", "\"operations\":[],\"x\":[{", "x is unknown"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[2048];
        fo_plan_file file = {.ranks = 77};
        const char *at = strstr(example, cases[i].found);
        assert_non_null(at);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - example), example, cases[i].instead,
                 at + strlen(cases[i].found));
        assert_int_equal(fo_plan_file_parse("bad.json", text, strlen(text), &file), FO_INVALID);
        if (!strstr(fo_last_error(), cases[i].says) || !strstr(fo_last_error(), "bad.json"))
            fail_msg("case %zu: expected '%s' in: %s", i, cases[i].says, fo_last_error());
        assert_int_equal(file.ranks, 77);
    }
}

/* A plan that says nothing of how anything overlaps is none. */
static void test_empty_operations(void **state)
{
    char text[2048];
    fo_plan_file file = {.ranks = 77}, again;
    (void)state;
    const char *at = strstr(example, "\"operations\":");
    snprintf(text, sizeof text, "%.*s\"operations\": []}", (int)(at - example), example);
    assert_int_equal(fo_plan_file_parse("bad.json", text, strlen(text), &file), FO_INVALID);
    const char *shown = strstr(fo_last_error(), "operations is an empty list, expected e.g. [{");
    assert_non_null(shown);
    assert_int_equal(file.ranks, 77);
    /* the example it shows is a valid one */
    snprintf(text, sizeof text, "%.*s\"operations\": %s}", (int)(at - example), example,
             strstr(shown, "[{"));
    assert_int_equal(fo_plan_file_parse("good.json", text, strlen(text), &again), FO_OK);
    assert_int_equal(again.operation_count, 1);
}

static void test_mutations(void **state)
{
    int read = 0;
    (void)state;
    for (uint64_t i = 0; i < 8000; i++) {
        uint8_t bytes[2048];
        size_t size = strlen(example);
        memcpy(bytes, example, size);
        size = mutate(9, i, bytes, size, sizeof bytes);
        uint8_t *exact = malloc(size ? size : 1);
        assert_non_null(exact);
        memcpy(exact, bytes, size);
        read += fuzz_plan(exact, size);
        free(exact);
    }
    assert_true(read > 0 && read < 8000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_estimate_is_never_too_slow),
        cmocka_unit_test(test_lists_the_fastest),
        cmocka_unit_test(test_finds_the_fastest),
        cmocka_unit_test(test_keeps_what_is_given),
        cmocka_unit_test(test_says_what_forbids),
        cmocka_unit_test(test_names_the_size),
        cmocka_unit_test(test_what_it_offers_works),
        cmocka_unit_test(test_reads_the_example),
        cmocka_unit_test(test_writes_what_it_reads),
        cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_empty_operations),
        cmocka_unit_test(test_mutations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
