/* Replicas beside tensor parallelism: the losses of one replica, the same bits whenever things travel, half the
 * optimizer's memory, checkpoints that go on under any other split, ranks that diverge. */
#include "tiny.h"

#include <math.h>
#include <sys/mman.h>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "model/state.h"

#if defined(__SANITIZE_THREAD__)
#define UNDER_THREAD_SANITIZER 1 /* which watches one process only */
#else
#define UNDER_THREAD_SANITIZER 0
#endif

enum { STEPS = 6 };

typedef struct split {
    int tp, dp;
} split;

static const split splits[] = {{1, 2}, {2, 1}, {2, 2}, {1, 3}, {3, 1}, {2, 3}};
enum { SPLITS = sizeof splits / sizeof *splits };

/* ---- losses ----------------------------------------------------------------------------------------- */

/* What rank 0 hands to the test's process. */
typedef struct found {
    double losses[STEPS], norms[STEPS], val_loss;
    int64_t bytes[16]; /* of the optimizer, by rank */
    uint64_t values;   /* hash of all parameters of rank 0 */
} found;

typedef struct ask {
    fo_train_job job;
    bool at_once;
    found *found;
} ask;

/* Ranks that hold the same parameters hold the same bits: the last replica as the first. */
static fo_status same_everywhere(const fo_train_worker *w, uint64_t *hash)
{
    int ranks = fo_group_size(w->group), rank = fo_group_rank(w->group), tp = w->config.tp;
    uint64_t mine[2] = {1, 1}, all[16][2]; /* replicated, all */
    for (int i = 0; i < fo_model_parameter_count(w->model); i++) {
        const fo_parameter *p = fo_model_parameter(w->model, i);
        const unsigned char *bytes = (const unsigned char *)p->value;
        for (size_t b = 0; b < (size_t)p->count * sizeof *p->value; b++)
            for (int kind = p->sharding != FO_REPLICATED; kind < 2; kind++)
                mine[kind] = (mine[kind] ^ bytes[b]) * 0x100000001b3u;
    }
    fo_status status = fo_group_allgather(w->group, mine, sizeof mine, all);
    for (int r = 0; status == FO_OK && r < ranks; r++)
        if (all[r][0] != mine[0] || (r % tp == rank % tp && all[r][1] != mine[1]))
            status = fo_base_error(FO_INTERNAL, "ranks %d and %d have other parameters", rank, r);
    *hash = mine[1];
    return status;
}

static fo_status train_rank(fo_group *group, void *arg)
{
    const ask *a = arg;
    fo_train_worker w;
    found f = {0};
    fo_status status = fo_train_worker_open(&a->job, group, NULL, &w);
    if (status != FO_OK)
        return status;
    if (a->at_once)
        w.model->early = false;
    for (int64_t step = 1; status == FO_OK && step <= STEPS; step++) {
        fo_train_values values;
        status = fo_train_step(&w, step, &values);
        f.losses[step - 1] = values.loss;
        f.norms[step - 1] = values.grad_norm;
        if (status == FO_OK && step == STEPS / 2) /* with parameters under way */
            status = fo_train_evaluate(&w, &f.val_loss);
    }
    int64_t bytes = fo_model_optimizer_bytes(w.model);
    if (status == FO_OK)
        status = fo_model_settle(w.model);
    if (status == FO_OK)
        status = same_everywhere(&w, &f.values);
    if (status == FO_OK)
        status = fo_group_allgather(group, &bytes, sizeof bytes, f.bytes);
    if (status == FO_OK && fo_group_rank(group) == 0)
        *a->found = f;
    fo_train_worker_close(&w);
    return status;
}

static void train(const fo_train_options *options, split s, bool at_once, found *out)
{
    fo_train_options o = *options;
    found *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    ask a = {.at_once = at_once, .found = shared};
    o.tp = s.tp;
    o.dp = s.dp;
    o.group.ranks = s.tp * s.dp;
    tiny_ok(fo_train_job_open(&o, &a.job));
    fo_status status = fo_group_run(&o.group, train_rank, &a);
    if (status != FO_OK)
        fail_msg("%s tp %d dp %d %s: %s", o.group.transport, s.tp, s.dp, o.overlap,
                 fo_last_error());
    *out = *shared;
    fo_train_job_close(&a.job);
    munmap(shared, sizeof *shared);
}

static void expect_bits(const found *a, const found *b, const char *what)
{
    if (memcmp(a->losses, b->losses, sizeof a->losses) ||
        memcmp(a->norms, b->norms, sizeof a->norms) || a->values != b->values ||
        memcmp(&a->val_loss, &b->val_loss, sizeof a->val_loss))
        fail_msg("%s has other bits: last loss %.17g and %.17g", what, a->losses[STEPS - 1],
                 b->losses[STEPS - 1]);
}

static void expect_near(const found *a, const found *b, split s)
{
    for (int i = 0; i < STEPS; i++)
        if (!(fabs(a->losses[i] - b->losses[i]) <= 1e-5 * b->losses[i]))
            fail_msg("tp %d dp %d: loss %.9g at step %d, one rank has %.9g", s.tp, s.dp,
                     a->losses[i], i + 1, b->losses[i]);
    assert_true(fabs(a->val_loss - b->val_loss) <= 1e-5 * b->val_loss);
}

/* Batches of 5 over 2 and 3 replicas, three of them a step, dropout, a norm that is clipped. */
static fo_train_options options(const tiny *t)
{
    fo_train_options o = tiny_options(t);
    o.batch = 5;
    o.accumulate = 3;
    o.dropout = 0.1f;
    o.clip = 0.5f;
    o.eval_batches = 2;
    o.lr = 1e-3f;
    o.group.memory = (size_t)16 << 20;
    return o;
}

static void losses_are_those_of_one_rank(void **state)
{
    fo_train_options o = options(*state);
    static const char *const transports[] = {"self", "shm"};
    found one, first, other;
    o.group.transport = "self";
    train(&o, (split){1, 1}, false, &one);
    for (int i = 0; i < SPLITS; i++)
        for (int t = 0; t < 2 - UNDER_THREAD_SANITIZER; t++) {
            o.group.transport = transports[t];
            o.overlap = "none";
            train(&o, splits[i], false, t ? &other : &first);
            if (t)
                expect_bits(&other, &first, "shm");
            expect_near(&first, &one, splits[i]);
            o.overlap = "flash";
            train(&o, splits[i], false, &other);
            expect_bits(&other, &first, "flash");
            train(&o, splits[i], true, &other);
            expect_bits(&other, &first, "flash at once");
            o.overlap = t ? "slice:3" : "direct";
            train(&o, splits[i], false, &other);
            expect_bits(&other, &first, o.overlap);
        }
}

static void two_replicas_halve_the_optimizers_memory(void **state)
{
    fo_train_options o = options(*state);
    found one, two, four;
    o.dim = 48;
    o.group.transport = "self";
    train(&o, (split){1, 1}, false, &one);
    train(&o, (split){1, 2}, false, &two);
    train(&o, (split){1, 4}, false, &four);
    int64_t row = 2 * FO_MODEL_BUCKET_WIDTH * (int64_t)sizeof(float), buckets = 4;
    for (int r = 0; r < 2; r++)
        assert_true(llabs(2 * two.bytes[r] - one.bytes[0]) <= row * buckets);
    for (int r = 0; r < 4; r++)
        assert_true(llabs(4 * four.bytes[r] - one.bytes[0]) <= 3 * row * buckets);
}

/* ---- checkpoints ------------------------------------------------------------------------------------ */

static void same_file(const char *a, const char *b, const char *name)
{
    char path[256];
    size_t size_a, size_b;
    snprintf(path, sizeof path, "%s/step-00000006/%s", a, name);
    char *bytes_a = tiny_read(path, &size_a);
    snprintf(path, sizeof path, "%s/step-00000006/%s", b, name);
    char *bytes_b = tiny_read(path, &size_b);
    assert_int_equal(size_a, size_b);
    assert_memory_equal(bytes_a, bytes_b, size_a);
    free(bytes_a);
    free(bytes_b);
}

static void run(fo_train_options *o, split s, const char *resume, const char *out,
                fo_train_result *result)
{
    o->tp = s.tp;
    o->dp = s.dp;
    o->group.ranks = s.tp * s.dp;
    o->resume = resume;
    o->out = out;
    fo_status status = fo_train_run(o, result);
    if (status != FO_OK)
        fail_msg("tp %d dp %d: %s", s.tp, s.dp, fo_last_error());
}

static void going_on_is_exact_under_the_same_split_and_near_under_others(void **state)
{
    const tiny *t = *state;
    fo_train_options o = options(t);
    char half[256], other[192];
    o.eval_every = 6;
    o.save_every = 3;
    o.group.transport = "self";
    for (int i = 0; i < SPLITS; i++) {
        fo_train_result whole, resumed;
        char out[192];
        snprintf(out, sizeof out, "%s-%d", t->out, i);
        run(&o, splits[i], NULL, out, &whole);
        snprintf(half, sizeof half, "%s/step-00000003", out);
        snprintf(other, sizeof other, "%s-%d", t->other, i);
        run(&o, splits[i], half, other, &resumed);
        assert_memory_equal(&whole.loss, &resumed.loss, sizeof whole.loss);
        assert_memory_equal(&whole.val_loss, &resumed.val_loss, sizeof whole.loss);
        same_file(out, other, "model.safetensors");
        same_file(out, other, "optimizer.safetensors");
        for (int k = 1; k < SPLITS; k += 3) {
            split to = splits[(i + k) % SPLITS];
            run(&o, to, half, NULL, &resumed);
            if (!(fabs(resumed.loss - whole.loss) <= 1e-5 * whole.loss))
                fail_msg("from tp %d dp %d to tp %d dp %d: loss %.9g, expected %.9g", splits[i].tp,
                         splits[i].dp, to.tp, to.dp, resumed.loss, whole.loss);
        }
    }
}

/* Moments too lie in files where one rank has them. */
static void files_are_those_of_one_rank(void **state)
{
    const tiny *t = *state;
    fo_train_options o = options(t);
    fo_train_result result;
    char path[256];
    o.dropout = 0;
    o.group.transport = "self";
    run(&o, (split){1, 1}, NULL, t->out, &result);
    run(&o, (split){2, 2}, NULL, t->other, &result);
    static const char *const names[] = {"model.safetensors", "optimizer.safetensors"};
    for (int f = 0; f < 2; f++) {
        fo_tensor_file *a, *b;
        snprintf(path, sizeof path, "%s/step-00000006/%s", t->out, names[f]);
        tiny_ok(fo_checkpoint_open(path, &a));
        snprintf(path, sizeof path, "%s/step-00000006/%s", t->other, names[f]);
        tiny_ok(fo_checkpoint_open(path, &b));
        for (int i = 0; i < fo_checkpoint_count(a); i++) {
            const fo_tensor_info *info = fo_checkpoint_info(a, i);
            bool matrix = info->dims > 1; /* a vector is one row */
            int64_t rows = matrix ? info->shape[0] : 1, cols = info->shape[matrix];
            float *x = calloc((size_t)(rows * cols), sizeof *x), largest = 0;
            float *y = calloc((size_t)(rows * cols), sizeof *y);
            tiny_ok(fo_checkpoint_read_f32(a, i, 0, rows, 0, cols, 0, x));
            tiny_ok(fo_checkpoint_read_f32(b, fo_checkpoint_find(b, info->name), 0, rows, 0, cols,
                                           0, y));
            for (int64_t k = 0; k < rows * cols; k++)
                largest = fabsf(x[k]) > largest ? fabsf(x[k]) : largest;
            for (int64_t k = 0; k < rows * cols; k++)
                if (!(fabsf(x[k] - y[k]) <= 1e-3f * largest))
                    fail_msg("%s: %s[%lld] is %g, one rank has %g", names[f], info->name,
                             (long long)k, (double)y[k], (double)x[k]);
            free(x);
            free(y);
        }
        fo_checkpoint_close(a);
        fo_checkpoint_close(b);
    }
}

/* ---- refusals, divergence --------------------------------------------------------------------------- */

static void splits_that_do_not_fit_are_refused(void **state)
{
    fo_train_options good = options(*state), o = good;
    good.group.ranks = 4;
    o = good;
    o.tp = 3;
    tiny_fails(fo_train_run(&o, NULL), FO_INVALID, "tp is 3");
    o = good;
    o.tp = 2;
    o.dp = 3;
    tiny_fails(fo_train_run(&o, NULL), FO_INVALID, "tp 2 times dp 3 is 6");
    o = good;
    o.dp = 4;
    o.batch = 3;
    tiny_fails(fo_train_run(&o, NULL), FO_INVALID, "--batch is 3");
}

static void ranks_that_diverge_are_named(void **state)
{
    (void)state;
    double values[6] = {2.5, 2.5, 2.5, 2.5, 2.5, 2.5};
    tiny_ok(fo_train_diverge_check(7, "loss", values, 0, 6));
    values[4] = nextafter(2.5, 3);
    tiny_fails(fo_train_diverge_check(7, "loss", values, 0, 6), FO_NUMERIC,
               "loss of step 7 is 2.5");
    assert_non_null(strstr(fo_last_error(), "2.5000000000000004 on rank 4"));
    assert_null(strstr(fo_last_error(), "rank 3"));
    values[0] = 3;
    tiny_fails(fo_train_diverge_check(7, "loss", values, 12, 6), FO_NUMERIC, "3 on rank 12, 2.5");
    assert_non_null(strstr(fo_last_error(), "on rank 16"));
    values[0] = NAN;
    tiny_fails(fo_train_diverge_check(7, "gradient norm", values, 0, 2), FO_NUMERIC, "nan");
}

static void the_table_has_a_part_for_replicas(void **state)
{
    fo_train_options o = options(*state);
    char text[8192];
    FILE *file = tmpfile();
    assert_non_null(file);
    o.steps = 2;
    o.group.transport = "self";
    o.dp = 2;
    o.group.ranks = 4;
    tiny_ok(fo_train_compare(&o, "none,flash", false, file));
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    assert_non_null(strstr(text, "tp 2 x dp 2"));
    assert_non_null(strstr(text, "between replicas"));
    assert_null(strstr(text, "differ"));
    fclose(file);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, tiny_set_up, tiny_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(losses_are_those_of_one_rank),
        TEST(two_replicas_halve_the_optimizers_memory),
        TEST(going_on_is_exact_under_the_same_split_and_near_under_others),
        TEST(files_are_those_of_one_rank),
        TEST(splits_that_do_not_fit_are_refused),
        TEST(ranks_that_diverge_are_named),
        TEST(the_table_has_a_part_for_replicas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
