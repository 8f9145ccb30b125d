/* Ranks that were given different things say so: which field, which values, which ranks. */
#include "tiny.h"

#include "base/error.h"
#include "base/random.h"

enum { MOST = 9 };

/* What each rank brings to the meeting, and what it heard there. */
typedef struct meeting {
    fo_train_fingerprint given[MOST];
    fo_status status[MOST];
    char sentence[MOST][1024], note[MOST][512];
} meeting;

static fo_status meet(fo_group *group, void *arg)
{
    meeting *m = arg;
    int rank = fo_group_rank(group);
    m->status[rank] = fo_train_enter(group, &m->given[rank], m->note[rank], sizeof m->note[rank]);
    snprintf(m->sentence[rank], sizeof m->sentence[rank], "%s",
             m->status[rank] == FO_OK ? "" : fo_last_error());
    return FO_OK;
}

/* All ranks hear the same. */
static void run(meeting *m, int ranks, fo_status expected, const char *words)
{
    fo_group_options o = {
        .ranks = ranks, .threads = 1, .transport = "self", .kernel = "ref", .deadline_s = 30};
    tiny_ok(fo_group_run(&o, meet, m));
    for (int r = 0; r < ranks; r++) {
        if (m->status[r] != expected || !strstr(m->sentence[r], words))
            fail_msg("rank %d of %d: %s '%s', expected %s with '%s'", r, ranks,
                     fo_status_name(m->status[r]), m->sentence[r], fo_status_name(expected), words);
        assert_string_equal(m->sentence[r], m->sentence[0]);
        assert_string_equal(m->note[r], m->note[0]);
    }
}

static meeting *fresh(int ranks)
{
    meeting *m = calloc(1, sizeof *m);
    assert_non_null(m);
    for (int r = 0; r < ranks; r++)
        fo_train_fingerprint_begin(&m->given[r], "train");
    return m;
}

static void the_same(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= MOST; ranks++) {
        meeting *m = fresh(ranks);
        for (int r = 0; r < ranks; r++)
            fo_train_fingerprint_count(&m->given[r], "--context", 64);
        run(m, ranks, FO_OK, "");
        assert_string_equal(m->note[0], ""); /* one program, one instruction set */
        free(m);
    }
}

static void groups_of_ranks(void **state)
{
    (void)state;
    static const struct {
        int ranks;
        int64_t values[MOST];
        const char *words;
    } cases[] = {
        {2,
         {64, 32},
         "--context is 64 on rank 0 and 32 on rank 1; every rank must be given the same options"},
        {3, {1, 1, 2}, "--context is 1 on ranks 0, 1 and 2 on rank 2;"},
        {7, {5, 5, 5, 6, 6, 5, 6}, "--context is 5 on ranks 0-2, 5 and 6 on ranks 3, 4, 6;"},
        {4, {1, 2, 3, 1}, "--context is 1 on ranks 0, 3, 2 on rank 1 and 3 on rank 2;"},
        {5,
         {1, 2, 3, 4, 5},
         "--context is 1 on rank 0, 2 on rank 1 and 3 on rank 2, others elsewhere;"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        meeting *m = fresh(cases[i].ranks);
        for (int r = 0; r < cases[i].ranks; r++) {
            fo_train_fingerprint_count(&m->given[r], "--layers", 2);
            fo_train_fingerprint_count(&m->given[r], "--context", cases[i].values[r]);
            fo_train_fingerprint_count(&m->given[r], "--dim", r); /* only the first is told */
        }
        run(m, cases[i].ranks, FO_INVALID, cases[i].words);
        free(m);
    }
}

/* Whatever differs wherever is seen, and nothing else. */
static void any_field_of_many(void **state)
{
    (void)state;
    enum { FIELDS = 40 };
    for (uint64_t i = 0; i < 60; i++) {
        int ranks = 2 + (int)fo_base_random_below(1, 1, i, MOST - 1);
        int odd = (int)fo_base_random_below(1, 2, i, (uint64_t)ranks);
        int field = (int)fo_base_random_below(1, 3, i, FIELDS + 1); /* FIELDS: none */
        meeting *m = fresh(ranks);
        for (int r = 0; r < ranks; r++)
            for (int f = 0; f < FIELDS; f++) {
                char name[32];
                snprintf(name, sizeof name, "--field-%d", f);
                fo_train_fingerprint_count(&m->given[r], name, f * 100 + (r == odd && f == field));
            }
        char words[64] = "";
        if (field < FIELDS)
            snprintf(words, sizeof words, "--field-%d is ", field);
        run(m, ranks, field < FIELDS ? FO_INVALID : FO_OK, words);
        if (field < FIELDS) {
            snprintf(words, sizeof words, "%d on rank %d", field * 100 + 1, odd);
            assert_non_null(strstr(m->sentence[0], words));
        }
        free(m);
    }
}

static void values_of_any_kind(void **state)
{
    (void)state;
    char lists[2][600];
    memset(lists, 'x', sizeof lists); /* differ behind what is shown */
    lists[0][599] = lists[1][599] = '\0';
    lists[1][598] = 'y';
    meeting *m = fresh(2);
    for (int r = 0; r < 2; r++)
        fo_train_fingerprint_word(&m->given[r], "--compare", lists[r]);
    run(m, 2, FO_INVALID, "--compare is xxx");
    free(m);
    m = fresh(2);
    fo_train_fingerprint_word(&m->given[0], "--out", NULL);
    fo_train_fingerprint_word(&m->given[1], "--out", "given\nand\ttorn");
    run(m, 2, FO_INVALID, "--out is not given on rank 0 and given and torn on rank 1");
    free(m);
    m = fresh(2); /* another command, with other fields */
    fo_train_fingerprint_count(&m->given[0], "--steps", 2);
    fo_train_fingerprint_begin(&m->given[1], "bench");
    run(m, 2, FO_INVALID, "the command is train on rank 0 and bench on rank 1");
    free(m);
    m = fresh(2); /* a field that only one has */
    fo_train_fingerprint_count(&m->given[0], "--tokens", 2);
    run(m, 2, FO_INVALID, "--tokens is 2 on rank 0 and unknown on rank 1");
    free(m);
    m = fresh(3); /* more fields than fit: no harm */
    for (int r = 0; r < 3; r++)
        for (int i = 0; i < 2000; i++)
            fo_train_fingerprint_count(&m->given[r], "--many", i);
    run(m, 3, FO_OK, "");
    free(m);
}

static void what_may_differ_is_noted(void **state)
{
    (void)state;
    meeting *m = fresh(3);
    for (int r = 0; r < 3; r++)
        fo_train_fingerprint_add(&m->given[r], FO_TRAIN_NOTE, "the clock", "%s",
                                 r == 1 ? "late" : "fine");
    run(m, 3, FO_OK, "");
    assert_non_null(
        strstr(m->note[0], "the clock is fine on ranks 0, 2 and late on rank 1; bits may"));
    free(m);
}

static void who_can_not_go_on(void **state)
{
    (void)state;
    meeting *m = fresh(3);
    m->given[2] = (fo_train_fingerprint){.status = FO_IO, .sentence = "no such text"};
    run(m, 3, FO_IO, "rank 2: no such text");
    free(m);
    m = fresh(3);
    for (int r = 0; r < 3; r++)
        m->given[r] = (fo_train_fingerprint){.status = FO_INVALID, .sentence = "no such text"};
    run(m, 3, FO_INVALID, "");
    assert_string_equal(m->sentence[0], "no such text"); /* everyone's: nobody's number */
    free(m);
}

static const char *line_of_file(const char *path, fo_train_fingerprint *f)
{
    fo_train_fingerprint_begin(f, "train");
    fo_train_fingerprint_file(f, "--data", path);
    return strstr(f->text, "f--data\t");
}

static void files(void **state)
{
    const tiny *t = *state;
    static const size_t sizes[] = {0, 1, 4095, 4096, 4097, 64 * 4096, 64 * 4096 + 1, 1000003};
    char *bytes = calloc(1, 1000003 + 1);
    fo_train_fingerprint before, after;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t size = sizes[i];
        char expected[64];
        tiny_write(t->other, bytes, size);
        assert_non_null(line_of_file(t->other, &before));
        line_of_file(t->other, &after);
        assert_string_equal(before.text, after.text);
        snprintf(expected, sizeof expected, "f--data\t%zu bytes with hash ", size);
        assert_non_null(strstr(before.text, expected));
        tiny_write(t->other, bytes, size + 1);
        line_of_file(t->other, &after);
        assert_string_not_equal(before.text, after.text);
        for (int end = 0; size && end < 2; end++) { /* one bit, in the first byte or the last */
            size_t at = end ? size - 1 : 0;
            bytes[at] ^= 4;
            tiny_write(t->other, bytes, size);
            line_of_file(t->other, &after);
            assert_string_not_equal(before.text, after.text);
            bytes[at] ^= 4;
        }
        for (size_t at = 0; size <= 64 * 4096 && at < size; at += 997) { /* small files: anywhere */
            bytes[at] ^= 4;
            tiny_write(t->other, bytes, size);
            line_of_file(t->other, &after);
            assert_string_not_equal(before.text, after.text);
            bytes[at] ^= 4;
        }
    }
    line_of_file("/nonexistent/text", &after);
    assert_non_null(strstr(after.text, "f--data\tunreadable\n"));
    free(bytes);
}

/* Every option that changes the numbers is in it: runs that differ in one have different fingerprints. */
static void every_option(void **state)
{
    const tiny *t = *state;
    fo_train_options base = tiny_options(t);
    base.vocabulary = 0;
    fo_train_job job, other;
    tiny_ok(fo_train_job_open(&base, &job));
#define DIFFERS(change)                                            \
    do {                                                           \
        fo_train_options o = base;                                 \
        change;                                                    \
        tiny_ok(fo_train_job_open(&o, &other));                    \
        if (!strcmp(job.fingerprint.text, other.fingerprint.text)) \
            fail_msg("not in the fingerprint: %s", #change);       \
        fo_train_job_close(&other);                                \
    } while (0)
    DIFFERS(o.layers = 3);
    DIFFERS(o.heads = 2);
    DIFFERS(o.dim = 24);
    DIFFERS(o.context = 8);
    DIFFERS(o.vocabulary = 400);
    DIFFERS(o.dtype = FO_BF16);
    DIFFERS(o.wire = FO_BF16);
    DIFFERS(o.dropout = 0.1f);
    DIFFERS(o.format = "bytes");
    DIFFERS(o.batch = 4);
    DIFFERS(o.accumulate = 2);
    DIFFERS(o.steps = 7);
    DIFFERS(o.warmup = 3);
    DIFFERS(o.seed = 2);
    DIFFERS(o.lr = 2e-2f);
    DIFFERS(o.min_lr = 2e-3f);
    DIFFERS(o.clip = 2);
    DIFFERS(o.decay = 0.2f);
    DIFFERS(o.beta1 = 0.8f);
    DIFFERS(o.beta2 = 0.98f);
    DIFFERS(o.eval_every = 2; o.eval_batches = 1);
    DIFFERS(o.eval_batches = 3);
    DIFFERS(o.out = t->out);
    DIFFERS(o.save_every = 2);
    DIFFERS(o.overlap = "none");
    DIFFERS(o.link_ratio = 0.5);
    DIFFERS(o.tp = 1; o.dp = 2);
    DIFFERS(o.group.nodes = 2);
    DIFFERS(o.group.deadline_s = 30);
    DIFFERS(o.group.link.bytes_per_s = 1e9);
    fo_train_job_close(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same),
        cmocka_unit_test(groups_of_ranks),
        cmocka_unit_test(any_field_of_many),
        cmocka_unit_test(values_of_any_kind),
        cmocka_unit_test(what_may_differ_is_noted),
        cmocka_unit_test(who_can_not_go_on),
        cmocka_unit_test_setup_teardown(files, tiny_set_up, tiny_tear_down),
        cmocka_unit_test_setup_teardown(every_option, tiny_set_up, tiny_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
