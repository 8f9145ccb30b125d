/* Choosing tokens, and text from a trained model. */
#include "tiny.h"

#include <math.h>

enum { COUNT = 9, DRAWS = 4000 };

static const float logits[COUNT] = {0.5f, 2.0f, -1.0f, 2.0f, 1.0f, 0.0f, -INFINITY, 1.5f, -3.0f};

static int32_t pick(double temperature, int64_t top_k, uint64_t index)
{
    float scratch[COUNT];
    return fo_train_sample_pick(logits, COUNT, temperature, top_k, 3, index, scratch);
}

static void no_temperature_takes_the_most_likely(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 20; i++) {
        assert_int_equal(pick(0, 0, i), 1);
        assert_int_equal(pick(2, 1, i), 1); /* the first of equals */
    }
}

static void only_the_top_k_are_drawn(void **state)
{
    (void)state;
    static const bool allowed[COUNT] = {[1] = true, [3] = true, [7] = true};
    bool seen[COUNT] = {false};
    for (uint64_t i = 0; i < DRAWS; i++) {
        int32_t token = pick(3, 3, i);
        assert_true(token >= 0 && token < COUNT && allowed[token]);
        seen[token] = true;
    }
    assert_memory_equal(seen, allowed, sizeof seen);
}

static void draws_follow_the_probabilities(void **state)
{
    (void)state;
    int drawn[COUNT] = {0};
    double sum = 0;
    for (int i = 0; i < COUNT; i++)
        sum += exp(logits[i] / 0.7);
    for (uint64_t i = 0; i < DRAWS; i++)
        drawn[pick(0.7, 0, i)]++;
    for (int i = 0; i < COUNT; i++) {
        double p = exp(logits[i] / 0.7) / sum, deviation = sqrt(DRAWS * p * (1 - p)) + 1e-9;
        if (fabs(drawn[i] - DRAWS * p) > 5 * deviation)
            fail_msg("token %d was drawn %d times, expected %.1f", i, drawn[i], DRAWS * p);
    }
    assert_int_equal(drawn[6], 0);
}

static void a_draw_is_a_function_of_seed_and_index(void **state)
{
    (void)state;
    int changes = 0;
    for (uint64_t i = 0; i < 50; i++) {
        assert_int_equal(pick(1, 0, i), pick(1, 0, i));
        changes += pick(1, 0, i) != pick(1, 0, i + 1);
    }
    assert_true(changes > 10);
}

/* ---- a model ---------------------------------------------------------------------------------------- */

static void train(const tiny *t)
{
    fo_train_options o = tiny_options(t);
    o.steps = 30;
    o.out = t->out;
    tiny_ok(fo_train_run(&o, NULL));
}

static fo_sample_options sample_options(const tiny *t, int ranks)
{
    fo_sample_options o;
    fo_sample_defaults(&o);
    o.checkpoint = t->out;
    o.tokens = 40; /* the window of nine slides */
    o.group.ranks = ranks;
    o.group.threads = 1;
    o.group.kernel = "ref";
    o.group.memory = (size_t)64 << 20;
    return o;
}

static fo_status sample(const fo_sample_options *o, char text[512])
{
    FILE *file = tmpfile();
    assert_non_null(file);
    fo_status status = fo_sample_run(o, file);
    rewind(file);
    size_t size = fread(text, 1, 511, file);
    text[size] = '\0';
    fclose(file);
    return status;
}

static void the_same_seed_gives_the_same_text(void **state)
{
    const tiny *t = *state;
    char first[512], again[512], other[512];
    train(t);
    fo_sample_options o = sample_options(t, 2);
    tiny_ok(sample(&o, first));
    tiny_ok(sample(&o, again));
    assert_string_equal(first, again);
    assert_int_equal(strlen(first), 40);
    o.seed = 2;
    tiny_ok(sample(&o, other));
    assert_string_not_equal(first, other);
    o.temperature = 0;
    o.prompt = "the beginning was the light";
    tiny_ok(sample(&o, first));
    o.group.ranks = 3;
    tiny_ok(sample(&o, again));
    assert_string_equal(first, again);
}

static void what_cannot_be_sampled_is_said(void **state)
{
    const tiny *t = *state;
    char text[512];
    fo_sample_options good = sample_options(t, 1), o = good;
    assert_int_equal(sample(&o, text), FO_IO); /* nothing was trained */
    train(t);
    o.prompt = "the Light";
    tiny_fails(sample(&o, text), FO_INVALID, "L");
    o = good;
    o.temperature = -1;
    tiny_fails(sample(&o, text), FO_INVALID, "--temperature is -1");
    o = good;
    o.top_k = -1;
    tiny_fails(sample(&o, text), FO_INVALID, "--top-k is -1");
    o = good;
    o.checkpoint = NULL;
    tiny_fails(sample(&o, text), FO_INVALID, "checkpoint");
    o = good;
    o.tokens = 0;
    tiny_ok(sample(&o, text));
    assert_string_equal(text, "");
}

static void token_files_give_numbers(void **state)
{
    const tiny *t = *state;
    char tokens[128], text[512];
    uint16_t ids[1000];
    for (int i = 0; i < 1000; i++)
        ids[i] = (uint16_t)(i * i % 17);
    snprintf(tokens, sizeof tokens, "%s/tokens.bin", t->folder);
    tiny_write(tokens, ids, sizeof ids);
    fo_train_options train_options = tiny_options(t);
    train_options.data = tokens;
    train_options.format = "nanogpt";
    train_options.vocabulary = 17;
    train_options.out = t->out;
    tiny_ok(fo_train_run(&train_options, NULL));
    fo_sample_options o = sample_options(t, 2);
    o.prompt = "3 16 0";
    o.tokens = 5;
    tiny_ok(sample(&o, text));
    int count = 0, length = 0, id;
    for (const char *at = text; sscanf(at, "%d%n", &id, &length) == 1; at += length) {
        assert_in_range(id, 0, 16);
        count++;
    }
    assert_int_equal(count, 5);
    o.prompt = "3 17";
    tiny_fails(sample(&o, text), FO_INVALID, "token 17");
    o.prompt = "3 x";
    tiny_fails(sample(&o, text), FO_INVALID, "token numbers");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, tiny_set_up, tiny_tear_down)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_temperature_takes_the_most_likely),
        cmocka_unit_test(only_the_top_k_are_drawn),
        cmocka_unit_test(draws_follow_the_probabilities),
        cmocka_unit_test(a_draw_is_a_function_of_seed_and_index),
        TEST(the_same_seed_gives_the_same_text),
        TEST(what_cannot_be_sampled_is_said),
        TEST(token_files_give_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
