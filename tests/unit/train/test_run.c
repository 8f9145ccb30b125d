/* Whole runs: they learn, they log, they go on exactly, they stop well. */
#include "tiny.h"

#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "checkpoint/checkpoint.h"

static bool same_bits(double a, double b)
{
    return !memcmp(&a, &b, sizeof a);
}

static void same_file(const char *a, const char *b, const char *name)
{
    char path[256];
    size_t size_a, size_b;
    snprintf(path, sizeof path, "%s/%s", a, name);
    char *bytes_a = tiny_read(path, &size_a);
    snprintf(path, sizeof path, "%s/%s", b, name);
    char *bytes_b = tiny_read(path, &size_b);
    assert_int_equal(size_a, size_b);
    assert_memory_equal(bytes_a, bytes_b, size_a);
    free(bytes_a);
    free(bytes_b);
}

static void learns(void **state)
{
    fo_train_options o = tiny_options(*state);
    fo_train_result first, last;
    o.steps = 1;
    o.eval_every = 1;
    o.eval_batches = 4;
    tiny_ok(fo_train_run(&o, &first));
    o.steps = 60;
    o.eval_every = 60;
    tiny_ok(fo_train_run(&o, &last));
    assert_int_equal(last.step, 60);
    assert_true(last.loss < first.loss - 0.3);
    assert_true(last.val_loss < first.val_loss - 0.3);
    assert_true(last.step_ms > 0 && last.tokens_per_s > 0 && last.mfu > 0);
    assert_true(last.exposed_ms >= 0);
}

static void log_lines_are_json(void **state)
{
    const tiny *t = *state;
    static const char *const keys[] = {"loss",         "grad_norm", "lr",        "step_ms",
                                       "tokens_per_s", "mfu",       "exposed_ms"};
    fo_train_options o = tiny_options(t);
    fo_train_result result;
    o.log = t->log;
    o.eval_every = 3;
    o.eval_batches = 2;
    tiny_ok(fo_train_run(&o, &result));
    int steps = 0, evaluations = 0;
    for (int i = 0;; i++) {
        json_t *line = tiny_line(t->log, i);
        if (!line)
            break;
        bool evaluation = json_object_get(line, "val_loss") != NULL;
        evaluations += evaluation;
        steps += !evaluation;
        assert_int_equal(json_integer_value(json_object_get(line, "step")), steps);
        for (size_t k = 0; !evaluation && k < sizeof keys / sizeof *keys; k++)
            assert_true(json_is_number(json_object_get(line, keys[k])));
        if (!evaluation && steps == 6) {
            double loss = json_number_value(json_object_get(line, "loss"));
            assert_true(fabs(loss - result.loss) <= 1e-8 * fabs(result.loss));
        }
        json_decref(line);
    }
    assert_int_equal(steps, 6);
    assert_int_equal(evaluations, 2);
}

static void accumulated_steps_are_those_of_a_larger_batch(void **state)
{
    fo_train_options o = tiny_options(*state);
    fo_train_result whole, parts;
    o.batch = 4;
    tiny_ok(fo_train_run(&o, &whole));
    o.batch = 2;
    o.accumulate = 2;
    tiny_ok(fo_train_run(&o, &parts));
    assert_true(fabs(whole.loss - parts.loss) < 1e-4 * whole.loss);
}

/* One run to the end that saves half-way; another goes on from there. */
static void going_on_is_exact(void **state)
{
    const tiny *t = *state;
    fo_train_options o = tiny_options(t);
    fo_train_result whole, resumed;
    char half[160], end[160], other_end[160];
    o.out = t->out;
    o.save_every = 3;
    o.dropout = 0.1f;
    o.eval_every = 6;
    o.eval_batches = 2;
    tiny_ok(fo_train_run(&o, &whole));
    snprintf(half, sizeof half, "%s/step-00000003", t->out);
    snprintf(end, sizeof end, "%s/step-00000006", t->out);
    snprintf(other_end, sizeof other_end, "%s/step-00000006", t->other);
    o.resume = half;
    o.out = t->other;
    tiny_ok(fo_train_run(&o, &resumed));
    assert_true(same_bits(whole.loss, resumed.loss));
    assert_true(same_bits(whole.val_loss, resumed.val_loss));
    same_file(end, other_end, "model.safetensors");
    same_file(end, other_end, "optimizer.safetensors");
    same_file(end, other_end, "config.json");
}

static void going_on_under_other_numbers_of_ranks(void **state)
{
    const tiny *t = *state;
    fo_train_options o = tiny_options(t);
    fo_train_result whole, resumed;
    char half[160];
    o.out = t->out;
    o.save_every = 3;
    tiny_ok(fo_train_run(&o, &whole));
    snprintf(half, sizeof half, "%s/step-00000003", t->out);
    o.resume = half;
    o.out = NULL;
    static const int ranks[] = {1, 3, 4};
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        o.group.ranks = ranks[i];
        tiny_ok(fo_train_run(&o, &resumed));
        if (fabs(resumed.loss - whole.loss) > 1e-4 * whole.loss)
            fail_msg("%d ranks: loss %.9g, two ranks had %.9g", ranks[i], resumed.loss, whole.loss);
    }
}

/* Also: what one rank and three write before anything was learnt is the same to the bit. */
static void files_hold_whole_tensors_in_the_layout_people_expect(void **state)
{
    const tiny *t = *state;
    fo_train_options o = tiny_options(t);
    o.steps = 1;
    o.lr = o.min_lr = 0; /* initial weights stay */
    o.out = t->out;
    o.group.ranks = 1;
    tiny_ok(fo_train_run(&o, NULL));
    o.out = t->other;
    o.group.ranks = 3;
    tiny_ok(fo_train_run(&o, NULL));
    char a[160], b[160], path[192];
    snprintf(a, sizeof a, "%s/step-00000001", t->out);
    snprintf(b, sizeof b, "%s/step-00000001", t->other);
    same_file(a, b, "model.safetensors");
    snprintf(path, sizeof path, "%s/model.safetensors", a);
    fo_tensor_file *file;
    tiny_ok(fo_checkpoint_open(path, &file));
    const struct {
        const char *name;
        int dims;
        int64_t rows, cols;
    } expected[] = {{"wpe.weight", 2, 9, 12},
                    {"h.1.attn.c_attn.weight", 2, 12, 36},
                    {"h.1.attn.c_attn.bias", 1, 36, 0},
                    {"h.0.attn.c_proj.weight", 2, 12, 12},
                    {"h.0.mlp.c_fc.weight", 2, 12, 48},
                    {"h.0.mlp.c_proj.weight", 2, 48, 12},
                    {"ln_f.bias", 1, 12, 0}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        int index = fo_checkpoint_find(file, expected[i].name);
        assert_true(index >= 0);
        const fo_tensor_info *info = fo_checkpoint_info(file, index);
        assert_int_equal(info->dims, expected[i].dims);
        assert_int_equal(info->shape[0], expected[i].rows);
        if (info->dims == 2)
            assert_int_equal(info->shape[1], expected[i].cols);
    }
    fo_checkpoint_close(file);
}

static void state_survives_its_file(void **state)
{
    const tiny *t = *state;
    fo_train_state out = {.step = 12,
                          .model = {.layers = 1,
                                    .heads = 2,
                                    .dim = 4,
                                    .context = 8,
                                    .vocabulary = 7,
                                    .dtype = FO_BF16,
                                    .dropout = 0.25f,
                                    .seed = UINT64_MAX - 4},
                          .format = FO_DATA_CHAR,
                          .characters = strdup("\n \"\\a\xc3\xa4z")},
                   in;
    tiny_ok(fo_train_state_write(t->folder, &out));
    tiny_ok(fo_train_state_read(t->folder, &in));
    assert_int_equal(in.step, 12);
    assert_string_equal(in.characters, out.characters);
    assert_int_equal(in.model.vocabulary, 7);
    assert_true(in.model.seed == out.model.seed && in.model.dropout == out.model.dropout);
    assert_int_equal(in.model.dtype, FO_BF16);
    fo_train_state_clear(&out);
    fo_train_state_clear(&in);
    char path[160];
    snprintf(path, sizeof path, "%s/config.json", t->folder);
    tiny_write(path, "{\"n_layer\": 2", 13);
    tiny_fails(fo_train_state_read(t->folder, &in), FO_FORMAT, "config.json");
    tiny_write(path, "{\"n_layer\": 2, \"flashoverlap\": {}}", 34);
    tiny_fails(fo_train_state_read(t->folder, &in), FO_FORMAT, "n_head");
}

static void a_torn_checkpoint_is_refused(void **state)
{
    const tiny *t = *state;
    fo_train_options o = tiny_options(t);
    char path[192];
    size_t size;
    o.steps = 2;
    o.out = t->out;
    tiny_ok(fo_train_run(&o, NULL));
    snprintf(path, sizeof path, "%s/step-00000002/optimizer.safetensors", t->out);
    char *bytes = tiny_read(path, &size);
    tiny_write(path, bytes, size - 5);
    free(bytes);
    o.steps = 4;
    o.resume = t->out;
    tiny_fails(fo_train_run(&o, NULL), FO_FORMAT, "optimizer.safetensors");
}

/* ---- stopping --------------------------------------------------------------------------------------- */

static int64_t file_size(const char *path)
{
    struct stat info;
    return stat(path, &info) ? 0 : (int64_t)info.st_size;
}

static void nap(void)
{
    struct timespec time = {.tv_nsec = 10000000};
    nanosleep(&time, NULL);
}

static int entries(const char *folder)
{
    DIR *directory = opendir(folder);
    int count = 0;
    for (struct dirent *e; directory && (e = readdir(directory));)
        count += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    if (directory)
        closedir(directory);
    return count;
}

/* Files may not grow beyond a few kB, as on a full disk. */
static void a_full_disk_ends_all_ranks_and_leaves_no_half_checkpoint(void **state)
{
    const tiny *t = *state;
    fo_train_options o = tiny_options(t);
    o.out = t->out;
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct rlimit limit = {4096, 4096};
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &limit);
        fo_status result = fo_train_run(&o, NULL);
        _exit(result == FO_IO && strstr(fo_last_error(), t->out) ? 0 : 1 + (int)result);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(entries(t->out), 0);
}

/* Runs in a process of its own that is sent `signal_number` once three lines are logged. */
static int interrupted_run(const fo_train_options *o, int signal_number, char *sentence,
                           size_t size)
{
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        fo_status result = fo_train_run(o, NULL);
        ssize_t written = write(ends[1], fo_last_error(), strlen(fo_last_error()));
        _exit(written < 0 ? 99 : (int)result);
    }
    close(ends[1]);
    for (int i = 0; i < 6000 && file_size(o->log) < 400; i++)
        nap();
    kill(child, signal_number);
    assert_int_equal(waitpid(child, &status, 0), child);
    ssize_t got = read(ends[0], sentence, size - 1);
    sentence[got > 0 ? got : 0] = '\0';
    close(ends[0]);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void interrupted_runs_save_and_go_on(void **state)
{
    const tiny *t = *state;
    fo_train_options o = tiny_options(t);
    fo_train_state saved;
    fo_train_result resumed;
    char sentence[1024], folder[256];
    o.steps = 10000000;
    o.out = t->out;
    o.log = t->log;
    assert_int_equal(interrupted_run(&o, SIGINT, sentence, sizeof sentence), FO_INTERRUPTED);
    assert_non_null(strstr(sentence, "interrupted after step"));
    assert_non_null(strstr(sentence, t->out));
    tiny_ok(fo_checkpoint_directory_latest(t->out, folder, sizeof folder));
    tiny_ok(fo_train_state_read(folder, &saved));
    assert_true(saved.step >= 1);
    o.steps = saved.step + 2;
    o.lr = o.min_lr = 0.01f; /* `steps` would change the schedule */
    o.warmup = 0;
    o.out = NULL;
    o.log = NULL;
    o.resume = t->out;
    tiny_ok(fo_train_run(&o, &resumed));
    assert_int_equal(resumed.step, o.steps);
    fo_train_state_clear(&saved);
}

static void interrupted_without_a_directory_says_so(void **state)
{
    const tiny *t = *state;
    fo_train_options o = tiny_options(t);
    char sentence[1024];
    o.steps = 10000000;
    o.log = t->log;
    assert_int_equal(interrupted_run(&o, SIGTERM, sentence, sizeof sentence), FO_INTERRUPTED);
    assert_non_null(strstr(sentence, "nothing is saved"));
}

static void a_loss_that_is_no_number_stops_and_keeps_the_last_checkpoint(void **state)
{
    const tiny *t = *state;
    fo_train_options o = tiny_options(t);
    fo_train_result result;
    char folder[256];
    o.lr = 1e30f;
    o.warmup = 0;
    o.save_every = 1;
    o.steps = 50;
    o.out = t->out;
    tiny_fails(fo_train_run(&o, &result), FO_NUMERIC, "of step");
    assert_true(result.step >= 1 && result.step < 50);
    tiny_ok(fo_checkpoint_directory_latest(t->out, folder, sizeof folder));
    char expected[192];
    snprintf(expected, sizeof expected, "%s/step-%08d", t->out, (int)result.step);
    assert_string_equal(folder, expected);
}

static void threads_give_the_bits_of_processes(void **state)
{
    fo_train_options o = tiny_options(*state);
    fo_train_result processes, threads;
    tiny_ok(fo_train_run(&o, &processes));
    o.group.transport = "self";
    tiny_ok(fo_train_run(&o, &threads));
    assert_true(same_bits(processes.loss, threads.loss));
}

static void batches_are_a_function_of_seed_and_step(void **state)
{
    const tiny *t = *state;
    fo_data *data;
    int32_t a[2][4 * 9], b[2][4 * 9], other[2][4 * 9];
    tiny_ok(fo_data_open(t->text, FO_DATA_CHAR, &data));
    tiny_ok(fo_data_batch(data, 0, 7, 5, 4, 9, a[0], a[1]));
    tiny_ok(fo_data_batch(data, 0, 7, 6, 4, 9, other[0], other[1]));
    tiny_ok(fo_data_batch(data, 1, 7, 5, 4, 9, b[0], b[1]));
    tiny_ok(fo_data_batch(data, 0, 7, 5, 4, 9, b[0], b[1]));
    assert_memory_equal(a, b, sizeof a);
    assert_memory_not_equal(a, other, sizeof a);
    for (int i = 0; i < 4 * 9; i++)
        if (i % 9 < 8)
            assert_int_equal(a[1][i], a[0][i + 1]);
    fo_data_close(data);
}

static void people_get_a_line_a_step(void **state)
{
    const tiny *t = *state;
    fo_train_options o = tiny_options(t);
    FILE *file = tmpfile();
    char text[8192];
    assert_non_null(file);
    o.quiet = false;
    o.progress = file;
    o.eval_every = 6;
    tiny_ok(fo_train_run(&o, NULL));
    rewind(file);
    size_t size = fread(text, 1, sizeof text - 1, file);
    text[size] = '\0';
    fclose(file);
    for (int step = 1; step <= 6; step++) {
        char begin[32];
        snprintf(begin, sizeof begin, "step %d/6  loss", step);
        assert_non_null(strstr(text, begin));
    }
    assert_non_null(strstr(text, "validation loss"));
    assert_non_null(strstr(text, "MFU"));
    assert_non_null(strstr(text, "exposed"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, tiny_set_up, tiny_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(learns),
        TEST(log_lines_are_json),
        TEST(accumulated_steps_are_those_of_a_larger_batch),
        TEST(going_on_is_exact),
        TEST(going_on_under_other_numbers_of_ranks),
        TEST(files_hold_whole_tensors_in_the_layout_people_expect),
        TEST(state_survives_its_file),
        TEST(a_torn_checkpoint_is_refused),
        TEST(interrupted_runs_save_and_go_on),
        TEST(interrupted_without_a_directory_says_so),
        TEST(a_loss_that_is_no_number_stops_and_keeps_the_last_checkpoint),
        TEST(a_full_disk_ends_all_ranks_and_leaves_no_half_checkpoint),
        TEST(threads_give_the_bits_of_processes),
        TEST(batches_are_a_function_of_seed_and_step),
        TEST(people_get_a_line_a_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
