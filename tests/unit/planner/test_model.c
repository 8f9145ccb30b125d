/* Presets, their parameters against those published, config.json: read, and refused. */
#include <inttypes.h>
#include <math.h>

#include "planner/model.h"
#include "unit/data/scratch.h"

/* Elements of the published weights (their files' headers, or the papers'). */
static const struct {
    const char *name;
    double parameters, within;
} published[] = {
    {"gpt2", 124439808, 0},           {"gpt2-medium", 354823168, 0},
    {"gpt2-large", 774030080, 0},     {"gpt2-xl", 1557611200, 0},
    {"gpt3-175b", 175e9, 0.01},       {"megatron-22b", 22e9, 0.01},
    {"megatron-175b", 175e9, 0.01},   {"megatron-530b", 530e9, 0.01},
    {"megatron-1t", 1e12, 0.01},      {"llama2-7b", 6738415616, 0},
    {"llama2-13b", 13015864320, 0},   {"llama2-70b", 68976648192, 0},
    {"llama3-8b", 8030261248, 0},     {"llama3-70b", 70553706496, 0},
    {"llama3-405b", 405853388800, 0}, {"mistral-7b", 7241732096, 0},
    {"qwen2.5-0.5b", 494032768, 0},   {"qwen2.5-1.5b", 1543714304, 0},
    {"qwen2.5-7b", 7615616512, 0},    {"qwen2.5-14b", 14770033664, 0},
    {"qwen2.5-32b", 32763876352, 0},  {"qwen2.5-72b", 72706203648, 0},
};
enum { PUBLISHED = sizeof published / sizeof *published };

static void parameters(void **state)
{
    (void)state;
    int presets = 0;
    for (const char *const *name = fo_model_sizes_presets(); *name; name++, presets++) {
        fo_model_sizes model;
        expect_ok(fo_model_sizes_read(*name, &model));
        assert_string_equal(model.name, *name);
        int at = 0;
        while (at < PUBLISHED && strcmp(published[at].name, *name) != 0)
            at++;
        assert_true(at < PUBLISHED);
        double count = fo_model_sizes_parameters(&model), expected = published[at].parameters;
        if (fabs(count - expected) > published[at].within * expected)
            fail_msg("%s has %.0f parameters, published are %.0f", *name, count, expected);
    }
    assert_int_equal(presets, PUBLISHED);
}

/* Every matrix, bias and norm added one by one, for shapes no preset has. */
static void counted_one_by_one(void **state)
{
    (void)state;
    for (int flags = 0; flags < 16; flags++) {
        fo_model_sizes m = {"x", 3,  40,        10,        5,         6,        77,
                            101, 33, flags & 1, flags & 2, flags & 4, flags & 8};
        double q = 60, kv = 30, layer = 40 * q + 2 * 40 * kv + q * 40, norm = m.gated ? 40 : 80;
        layer += (m.gated ? 3 : 2) * 40 * 77;
        if (m.biases)
            layer += q + 2 * kv + (m.gated ? 0 : 40 + 77 + 40);
        double tables = 101 * 40 * (m.tied ? 1 : 2) + (m.positions ? 33 * 40 : 0);
        assert_true(fo_model_sizes_embedding_parameters(&m) == tables);
        assert_true(fo_model_sizes_parameters(&m) == 3 * (layer + 2 * norm) + norm + tables);
        assert_true(fo_planner_multiplied_parameters(&m) ==
                    3 * (layer + 2 * norm) + norm + 101 * 40);
    }
}

static const char gpt2[] =
    "{\"activation_function\": \"gelu_new\", \"architectures\": [\"GPT2LMHeadModel\"], "
    "\"attn_pdrop\": 0.1,"
    " \"bos_token_id\": 50256, \"embd_pdrop\": 0.1, \"eos_token_id\": 50256, "
    "\"initializer_range\": 0.02,"
    " \"layer_norm_epsilon\": 1e-05, \"model_type\": \"gpt2\", \"n_ctx\": 1024, \"n_embd\": 768,"
    " \"n_head\": 12, \"n_inner\": null, \"n_layer\": 12, \"n_positions\": 1024, \"resid_pdrop\": "
    "0.1,"
    " \"summary_type\": \"cls_index\", \"task_specific_params\": {\"x\": {\"do_sample\": true}},"
    " \"vocab_size\": 50257}";
static const char llama[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"attention_bias\": false, \"hidden_act\": "
    "\"silu\","
    " \"hidden_size\": 8192, \"intermediate_size\": 28672, \"max_position_embeddings\": 8192,"
    " \"model_type\": \"llama\", \"num_attention_heads\": 64, \"num_hidden_layers\": 80,"
    " \"num_key_value_heads\": 8, \"pretraining_tp\": 1, \"rms_norm_eps\": 1e-05,"
    " \"rope_scaling\": {\"factor\": 8.0, \"rope_type\": \"llama3\"}, \"rope_theta\": 500000.0,"
    " \"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\", \"vocab_size\": 128256}";
static const char qwen[] =
    "{\"hidden_size\": 896, \"intermediate_size\": 4864, \"max_position_embeddings\": 4096,"
    " \"model_type\": \"qwen2\", \"num_attention_heads\": 14, \"num_hidden_layers\": 24,"
    " \"num_key_value_heads\": 2, \"sliding_window\": 131072, \"use_sliding_window\": false,"
    " \"tie_word_embeddings\": true, \"vocab_size\": 151936}";
static const char mistral[] =
    "{\"hidden_size\": 4096, \"intermediate_size\": 14336, \"max_position_embeddings\": 8192,"
    " \"model_type\": \"mistral\", \"num_attention_heads\": 32, \"num_hidden_layers\": 32,"
    " \"head_dim\": null, \"num_key_value_heads\": 8, \"tie_word_embeddings\": false, "
    "\"vocab_size\": 32000}";

/* A file of every family gives the preset. */
static void families(void **state)
{
    const scratch *s = *state;
    const struct {
        const char *preset, *text;
    } cases[] = {{"gpt2", gpt2},
                 {"llama3-70b", llama},
                 {"qwen2.5-0.5b", qwen},
                 {"mistral-7b", mistral}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = scratch_path(s, "config.json");
        fo_model_sizes model, preset;
        scratch_write(path, cases[i].text, strlen(cases[i].text));
        expect_ok(fo_model_sizes_read(path, &model));
        expect_ok(fo_model_sizes_read(cases[i].preset, &preset));
        memcpy(model.name, preset.name, sizeof model.name);
        assert_memory_equal(&model.layers, &preset.layers,
                            offsetof(fo_model_sizes, gated) - offsetof(fo_model_sizes, layers));
        assert_true(model.gated == preset.gated && model.tied == preset.tied &&
                    model.positions == preset.positions && model.biases == preset.biases);
    }
}

/* `text` with the first `from` turned into `to` is refused with a sentence that has the three words. */
static void refused(const char *text, const char *from, const char *to, const char *field,
                    const char *found, const char *example)
{
    char changed[4096];
    fo_model_sizes model;
    const char *at = strstr(text, from);
    assert_non_null(at);
    snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    fo_status status = fo_planner_config_parse("c.json", changed, strlen(changed), &model);
    expect_fails(status, FO_INVALID, "c.json: ");
    expect_fails(status, FO_INVALID, field);
    expect_fails(status, FO_INVALID, found);
    expect_fails(status, FO_INVALID, example);
}

static void bad_fields(void **state)
{
    (void)state;
    refused(gpt2, "\"n_layer\": 12,", "", "'n_layer'", "missing", "\"n_layer\": 12");
    refused(gpt2, "\"n_head\": 12", "\"n_head\": null", "'n_head'", "null", "\"n_head\": 12");
    refused(gpt2, "\"n_embd\": 768", "\"n_embd\": -768", "'n_embd'", "-768", "\"n_embd\": 768");
    refused(gpt2, "\"n_embd\": 768", "\"n_embd\": 0", "'n_embd'", "is 0", "\"n_embd\": 768");
    refused(gpt2, "\"n_embd\": 768", "\"n_embd\": 770", "'n_embd'", "770", "\"n_embd\": 780");
    refused(gpt2, "\"n_inner\": null", "\"n_inner\": \"4x\"", "'n_inner'", "a text", ": 3072");
    refused(gpt2, "\"gpt2\"", "\"gpt_neox\"", "'model_type'", "gpt_neox", "qwen2");
    refused(gpt2, "\"model_type\": \"gpt2\",", "", "'model_type'", "missing", "\"llama\"");
    refused(llama, "\"vocab_size\": 128256", "\"vocab_size\": 128256.5", "'vocab_size'", "fraction",
            ": 128256");
    refused(llama, "\"hidden_size\": 8192", "\"hidden_size\": 81920000000", "'hidden_size'",
            "81920000000", "\"hidden_size\": 4096");
    refused(llama, "\"num_key_value_heads\": 8", "\"num_key_value_heads\": 7",
            "'num_key_value_heads'", "is 7", "e.g. \"num_key_value_heads\": 1");
    refused(llama, "\"num_key_value_heads\"", "\"num_key_value_head\"",
            "'num_key_value_head' is unknown", "nearest is 'num_key_value_heads'",
            "correct or remove");
    refused(llama, "\"attention_bias\": false", "\"attention_bias\": 0", "'attention_bias'",
            "a whole number", "\"attention_bias\": false");
    refused(qwen, "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": \"yes\"",
            "'tie_word_embeddings'", "a text", ": false");
    refused(llama, "\"pretraining_tp\": 1", "\"num_experts\": 8", "'num_experts' is unknown",
            "nearest", "");
    /* what is quoted stays one line and leaves terminals alone */
    refused(llama, "\"pretraining_tp\": 1", "\"a\\nb\\u001b[31m\": 8", "'a?b?[31m' is unknown",
            "nearest", "");
    refused(gpt2, "\"gpt2\"", "\"\\u001b[2J\"", "'model_type' is '?[2J'", "qwen2", "");
}

static void bad_files(void **state)
{
    const scratch *s = *state;
    fo_model_sizes model;
    static char large[(1 << 20) + 16];
    const char *path = scratch_path(s, "large.json");
    memset(large, ' ', sizeof large);
    scratch_write(path, large, sizeof large);
    expect_fails(fo_model_sizes_read(path, &model), FO_INVALID, "more than 1048576 bytes");
    expect_fails(fo_model_sizes_read("/nowhere/config.json", &model), FO_IO,
                 "/nowhere/config.json");
    expect_fails(fo_model_sizes_read(s->folder, &model), FO_IO, s->folder);
    expect_fails(fo_planner_config_parse("c", "{\"a\": 1, \"a\": 2}", 16, &model), FO_INVALID,
                 "c: a, line 1: duplicate");
    expect_fails(fo_planner_config_parse("c", "[1]", 3, &model), FO_INVALID, "a list");
    expect_fails(fo_planner_config_parse("c", "", 0, &model), FO_INVALID, "line 1");
    expect_fails(fo_planner_config_parse("c", "{\"n_embd\": 1e400}", 17, &model), FO_INVALID,
                 "c: n_embd, line 1");
    expect_fails(fo_planner_config_parse("c", "\xef\xbb\xbf{}", 5, &model), FO_INVALID,
                 "a byte order mark");
    expect_fails(fo_model_sizes_read("llama4-70b", &model), FO_INVALID, "'llama4-70b' is unknown");
    for (const char *const *name = fo_model_sizes_presets(); *name; name++)
        expect_fails(fo_model_sizes_read("llama4-70b", &model), FO_INVALID, *name);
    expect_fails(fo_model_sizes_read(NULL, &model), FO_INVALID, "preset");
}

/* Reports are written as JSON and tables: a name must not break them, nor be cut in the middle of nothing. */
/* Sizes beside a name, and without one. */
static void stated(void **state)
{
    (void)state;
    fo_model_sizes nothing = {0}, given = {.layers = 24}, small, model;
    expect_ok(fo_model_sizes_read("gpt2", &small));
    expect_ok(fo_model_sizes_resolve("gpt2", &nothing, &model));
    assert_string_equal(model.name, "gpt2");
    assert_true(fo_model_sizes_parameters(&model) == fo_model_sizes_parameters(&small));
    given.layers = small.layers;
    expect_ok(fo_model_sizes_resolve("gpt2", &given, &model));
    assert_string_equal(model.name, "gpt2");
    given.layers = 2 * small.layers;
    expect_ok(fo_model_sizes_resolve("gpt2", &given, &model));
    assert_string_equal(model.name, "gpt2, changed");
    assert_int_equal(model.layers, 24);
    assert_int_equal(model.ffn, small.ffn);
    given = (fo_model_sizes){.dim = 1536};
    expect_ok(fo_model_sizes_resolve("gpt2", &given, &model));
    assert_int_equal(model.ffn, 4 * 1536);
    assert_int_equal(model.head_dim, 1536 / small.heads);
    given = (fo_model_sizes){.layers = 2, .dim = 64, .heads = 4, .vocabulary = 256, .context = 32};
    expect_ok(fo_model_sizes_resolve(NULL, &given, &model));
    assert_int_equal(model.ffn, 256);
    assert_int_equal(model.kv_heads, 4);
    assert_int_equal(model.head_dim, 16);
    fo_model_sizes kept = model;
    given.vocabulary = 0;
    expect_fails(fo_model_sizes_resolve(NULL, &given, &model), FO_INVALID, "--vocabulary");
    given.vocabulary = 256;
    given.dim = 66;
    expect_fails(fo_model_sizes_resolve(NULL, &given, &model), FO_INVALID, "such as 68");
    expect_fails(fo_model_sizes_resolve("gpt9", &nothing, &model), FO_INVALID, "gpt2");
    assert_memory_equal(&model, &kept, sizeof kept);
}

static void names(void **state)
{
    (void)state;
    char text[1024], longest[200];
    fo_model_sizes model;
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    snprintf(text, sizeof text, "{\"_name_or_path\": \"%s\\\"\\u00e4/x\", %s", longest, qwen + 1);
    expect_ok(fo_planner_config_parse("c.json", text, strlen(text), &model));
    assert_int_equal(strlen(model.name), sizeof model.name - 1);
    assert_string_equal(model.name + sizeof model.name - 1 - 6, "a\?\?\?/x");
    expect_ok(fo_planner_config_parse("some/config.json", qwen, strlen(qwen), &model));
    assert_string_equal(model.name, "some/config.json");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters),
        cmocka_unit_test(counted_one_by_one),
        cmocka_unit_test_setup_teardown(families, scratch_setup, scratch_teardown),
        cmocka_unit_test(bad_fields),
        cmocka_unit_test_setup_teardown(bad_files, scratch_setup, scratch_teardown),
        cmocka_unit_test(stated),
        cmocka_unit_test(names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
