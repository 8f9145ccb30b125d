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

/* ---- plan files ---------------------------------------------------------------------------------------- */

static const char *const operations[] = {"embedding forward",  "qkv forward",
                                         "attention forward",  "mlp forward",
                                         "head forward",       "head backward",
                                         "mlp down backward",  "mlp up backward",
                                         "attention backward", "qkv backward",
                                         "embedding backward"};
enum { OPERATIONS = sizeof operations / sizeof *operations };

/* A plan for what `o` asks for; `without`: an operation it does not name, -1: none. */
static fo_plan_file plan_for(const fo_train_options *o, int tp, int without)
{
    int dp = o->group.ranks / tp;
    fo_plan_file file = {.model = "tiny",
                         .machine = "cpu-host",
                         .layers = o->layers,
                         .dim = o->dim,
                         .heads = o->heads,
                         .ranks = o->group.ranks,
                         .tp = tp,
                         .dp = dp,
                         .pp = 1,
                         .interleave = 1,
                         .batch = o->batch * o->accumulate,
                         .micro_batch = o->batch / dp,
                         .context = o->context,
                         .sequence_parallel = true,
                         .flash_attention = true,
                         .dtype = o->dtype,
                         .wire = o->wire};
    for (int i = 0; i < OPERATIONS; i++) {
        int at = file.operation_count;
        if (i == without)
            continue;
        snprintf(file.operations[at].name, sizeof file.operations[at].name, "%s", operations[i]);
        snprintf(file.operations[at].overlap, sizeof file.operations[at].overlap, "none");
        file.operation_count++;
    }
    return file;
}

static fo_status train_by(const tiny *t, fo_train_options o, const fo_plan_file *file)
{
    char path[128];
    snprintf(path, sizeof path, "%s/plan.json", t->folder);
    tiny_ok(fo_plan_file_write(file, path));
    o.plan = path;
    return train(&o);
}

static void a_plan_names_every_operation(void **state)
{
    const tiny *t = *state;
    fo_train_options o = tiny_options(t);
    o.steps = 1;
    fo_plan_file file = plan_for(&o, 2, -1);
    tiny_ok(train_by(t, o, &file));
    for (int i = 0; i < OPERATIONS; i++) {
        char words[80];
        assert_true(fo_model_plans_known(operations[i]));
        snprintf(words, sizeof words, "plan.json: operations names no \"%s\"", operations[i]);
        file = plan_for(&o, 2, i);
        tiny_fails(train_by(t, o, &file), FO_INVALID, words);
    }
    o.batch = 4; /* replicas of one rank: their layers communicate nothing */
    file = plan_for(&o, 1, 0);
    tiny_ok(train_by(t, o, &file));
}

static void a_plan_does_what_training_does(void **state)
{
    const tiny *t = *state;
    fo_train_options o = tiny_options(t);
    o.steps = 1;
    fo_plan_file file = plan_for(&o, 2, -1);
    file.sequence_parallel = false;
    tiny_fails(train_by(t, o, &file), FO_INVALID, "plan again without --no-sequence-parallel");
    file.sequence_parallel = true;
    file.flash_attention = false;
    tiny_fails(train_by(t, o, &file), FO_INVALID, "plan again without --written-scores");
    o.batch = 4;
    file = plan_for(&o, 1, -1);
    file.sequence_parallel = false; /* of one rank: the same */
    tiny_ok(train_by(t, o, &file));
}

/* --batch is what all replicas take in one micro-step. */
static void a_plan_has_its_batch(void **state)
{
    const tiny *t = *state;
    for (int tp = 1; tp <= 2; tp++)
        for (int accumulate = 1; accumulate <= 3; accumulate++) {
            fo_train_options good = tiny_options(t), o;
            char words[80];
            good.steps = 1;
            good.batch = 4;
            good.accumulate = accumulate;
            fo_plan_file file = plan_for(&good, tp, -1);
            tiny_ok(train_by(t, good, &file));
            snprintf(words, sizeof words, "expected the same: --batch 4 --accumulate %d,",
                     accumulate);
            o = good;
            o.accumulate = accumulate % 3 + 1;
            tiny_fails(train_by(t, o, &file), FO_INVALID, words);
            o = good;
            o.batch = 2; /* with twice the micro-steps as many sequences, but not as planned */
            o.accumulate = 2 * accumulate;
            tiny_fails(train_by(t, o, &file), FO_INVALID, words);
        }
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
        TEST(a_plan_names_every_operation),
        TEST(a_plan_does_what_training_does),
        TEST(a_plan_has_its_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
