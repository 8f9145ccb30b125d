/* Bad input is refused before any rank starts, in a sentence that names it. */
#include "tiny.h"

#include <math.h>

static fo_status train(const fo_train_options *o)
{
    return fo_train_run(o, NULL);
}

static void numbers_out_of_range(void **state)
{
    fo_train_options good = tiny_options(*state), o = good;
    o.batch = 0;
    tiny_fails(train(&o), FO_INVALID, "--batch is 0");
    o = good;
    o.steps = -3;
    tiny_fails(train(&o), FO_INVALID, "--steps is -3");
    o = good;
    o.beta2 = 1;
    tiny_fails(train(&o), FO_INVALID, "--beta2 is 1");
    o = good;
    o.lr = NAN;
    tiny_fails(train(&o), FO_INVALID, "--lr is");
    o = good;
    o.min_lr = 1;
    tiny_fails(train(&o), FO_INVALID, "--min-lr 1 is above");
    o = good;
    o.overlap = "flsh";
    tiny_fails(train(&o), FO_INVALID, "flsh");
    o = good;
    o.heads = 5; /* doesn't divide 12 */
    assert_int_equal(train(&o), FO_INVALID);
    o = good;
    o.eval_every = 10;
    o.eval_batches = 0;
    tiny_fails(train(&o), FO_INVALID, "--eval-batches is 0");
}

static void data_that_cannot_be_trained_on(void **state)
{
    const tiny *t = *state;
    fo_train_options good = tiny_options(t), o = good;
    o.data = NULL;
    tiny_fails(train(&o), FO_INVALID, "--data");
    o = good;
    o.data = "/nonexistent/text";
    tiny_fails(train(&o), FO_IO, "/nonexistent/text");
    o = good;
    o.format = "byte";
    tiny_fails(train(&o), FO_INVALID, "byte");
    o = good;
    o.context = 1000;
    o.batch = 1;
    assert_int_equal(train(&o), FO_FORMAT);
    o = good;
    o.format = "nanogpt"; /* the text's bytes as 16-bit tokens */
    tiny_fails(train(&o), FO_INVALID, "--vocabulary");
    o.vocabulary = 50;
    assert_int_equal(train(&o), FO_FORMAT);
}

static void places_that_cannot_be_written(void **state)
{
    const tiny *t = *state;
    fo_train_options good = tiny_options(t), o = good;
    o.out = t->text; /* a file */
    tiny_fails(train(&o), FO_IO, t->text);
    o = good;
    o.out = "/proc/nowhere";
    tiny_fails(train(&o), FO_IO, "/proc/nowhere");
    o = good;
    o.log = "/nonexistent/log";
    tiny_fails(train(&o), FO_IO, "/nonexistent/log");
    o = good;
    o.resume = t->folder;
    assert_int_equal(train(&o), FO_IO);
}

static void a_full_disk_under_the_log_ends_all_ranks(void **state)
{
    fo_train_options o = tiny_options(*state);
    o.log = "/dev/full";
    tiny_fails(train(&o), FO_IO, "/dev/full");
}

static void resuming_another_model_names_the_field(void **state)
{
    const tiny *t = *state;
    fo_train_options good = tiny_options(t), o;
    good.steps = 1;
    good.out = t->out;
    tiny_ok(train(&good));
    good.steps = 3;
    good.resume = t->out;
    o = good;
    o.layers = 3;
    tiny_fails(train(&o), FO_INVALID, "n_layer");
    o = good;
    o.heads = 4;
    tiny_fails(train(&o), FO_INVALID, "n_head");
    o = good;
    o.context = 8;
    tiny_fails(train(&o), FO_INVALID, "n_positions");
    o = good;
    o.seed = 5;
    tiny_fails(train(&o), FO_INVALID, "seed");
    o = good;
    o.format = "bytes";
    o.vocabulary = 0;
    assert_int_equal(train(&o), FO_INVALID);
    o = good;
    o.steps = 1;
    tiny_fails(train(&o), FO_INVALID, "--steps 1");
}

static void other_characters_are_refused(void **state)
{
    const tiny *t = *state;
    fo_train_options o = tiny_options(t);
    char *text = tiny_read(t->text, NULL);
    o.steps = 1;
    o.out = t->out;
    tiny_ok(train(&o));
    for (char *at = text; *at; at++) /* as many characters, one of them another */
        if (*at == 'w')
            *at = 'z';
    tiny_write(t->text, text, strlen(text));
    o.steps = 3;
    o.resume = t->out;
    tiny_fails(train(&o), FO_INVALID, "characters");
    free(text);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, tiny_set_up, tiny_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(numbers_out_of_range),
        TEST(data_that_cannot_be_trained_on),
        TEST(places_that_cannot_be_written),
        TEST(a_full_disk_under_the_log_ends_all_ranks),
        TEST(resuming_another_model_names_the_field),
        TEST(other_characters_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
