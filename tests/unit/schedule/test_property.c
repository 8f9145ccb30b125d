/* What holds of every pattern, strategy, number of ranks and number of rows. */
#include "unit/schedule/programs.h"

static const char *const all_strategies[] = {"none",     "slice:1",  "slice:2",  "slice:3",
                                             "slice",    "ring",     "flash",    "flash:1",
                                             "flash:2",  "flash:3",  "flash:4",  "direct",
                                             "direct:1", "direct:2", "direct:3", "direct:4",
                                             NULL};

static const int64_t all_rows[] = {0, 1, 2, 3, 5, 8, 9, 13, 17, 36, 37, 72, 100, 144};

enum { ROW_CASES = sizeof all_rows / sizeof *all_rows };

static int mod(int value, int n)
{
    return (value % n + n) % n;
}

static bool reduces(fo_pattern pattern)
{
    return pattern == FO_PATTERN_REDUCE || pattern == FO_PATTERN_JOINT ||
           pattern == FO_PATTERN_BLOCK;
}

/* Rows that one rank sends: each of its N-1 shards once per travelling tensor. */
static void check_volume(const set *s)
{
    int64_t gathered = 0, reduced = 0;
    for (int r = 0; r < s->ranks; r++)
        for (int32_t t = 0; t < s->programs[r]->task_count; t++) {
            const fo_task *task = &s->programs[r]->tasks[t];
            if (task->kind == FO_TASK_SEND)
                *(task->channel ? &reduced : &gathered) += task->rows;
        }
    int64_t once = s->desc.rows * (s->ranks - 1);
    assert_int_equal(gathered, s->desc.pattern == FO_PATTERN_REDUCE ? 0 : once);
    assert_int_equal(reduced, reduces(s->desc.pattern) ? once : 0);
}

/* The order in which shards are computed is the pattern's, whatever the strategy. */
static void check_order(const set *s)
{
    bool block = s->desc.pattern == FO_PATTERN_BLOCK;
    int partials = block ? 1 : reduces(s->desc.pattern) ? 0 : -1; /* slot of the sums */
    bool chunks = s->desc.strategy.kind == FO_STRATEGY_SLICE;
    for (int r = 0; r < s->ranks; r++)
        for (int slot = 0; slot < 2; slot++) {
            bool gather_order = slot != partials;
            int last_step = 0, last_sub = 0;
            for (int32_t t = 0; t < s->programs[r]->task_count; t++) {
                const fo_task *task = &s->programs[r]->tasks[t];
                if (task->kind != FO_TASK_COMPUTE || task->slot != slot)
                    continue;
                int step = gather_order ? mod(r - task->shard, s->ranks)
                                        : mod(r - 1 - task->shard, s->ranks);
                bool by_chunk = chunks && (slot == 0 || block);
                int64_t now = by_chunk ? task->sub * 1000 + step : step * 1000 + task->sub;
                int64_t before =
                    by_chunk ? last_sub * 1000 + last_step : last_step * 1000 + last_sub;
                assert_true(now >= before);
                last_step = step;
                last_sub = task->sub;
            }
        }
}

/* Sub-slices are cut at multiples of the quantum, counted from the shard's first row. */
static void check_quantum(const set *s)
{
    for (int r = 0; r < s->ranks; r++)
        for (int32_t t = 0; t < s->programs[r]->task_count; t++) {
            const fo_task *task = &s->programs[r]->tasks[t];
            int64_t begin = fo_shard_begin(s->desc.rows, s->ranks, task->shard);
            int64_t end = fo_shard_begin(s->desc.rows, s->ranks, task->shard + 1);
            assert_true(task->rows > 0);
            assert_true(task->row >= begin && task->row + task->rows <= end);
            assert_int_equal((task->row - begin) % s->desc.quantum, 0);
            if (task->row + task->rows != end)
                assert_int_equal(task->rows % s->desc.quantum, 0);
        }
}

static void check(fo_pattern pattern, const char *strategy, int ranks, int64_t rows,
                  int64_t quantum)
{
    fo_verdict verdict;
    set s = build(pattern, strategy, ranks, rows, quantum);
    if (verify(&s, &verdict) != FO_OK)
        fail_msg("pattern %d %s, %d ranks, %lld rows, quantum %lld: %s", (int)pattern, strategy,
                 ranks, (long long)rows, (long long)quantum, verdict.text);
    assert_true(verdict.ok);
    check_volume(&s);
    check_order(&s);
    check_quantum(&s);
    destroy(&s);
}

static void sweep(fo_pattern pattern)
{
    for (int i = 0; all_strategies[i]; i++)
        for (int ranks = 1; ranks <= 9; ranks++)
            for (int64_t quantum = 1; quantum <= 4; quantum += 3)
                for (int m = 0; m < ROW_CASES; m++)
                    check(pattern, all_strategies[i], ranks, all_rows[m], quantum);
}

static void test_gather(void **state)
{
    (void)state;
    sweep(FO_PATTERN_GATHER);
}

static void test_reduce(void **state)
{
    (void)state;
    sweep(FO_PATTERN_REDUCE);
}

static void test_gather2(void **state)
{
    (void)state;
    sweep(FO_PATTERN_GATHER2);
}

static void test_joint(void **state)
{
    (void)state;
    sweep(FO_PATTERN_JOINT);
}

static void test_wgrad(void **state)
{
    (void)state;
    sweep(FO_PATTERN_WGRAD);
}

static void test_block(void **state)
{
    (void)state;
    sweep(FO_PATTERN_BLOCK);
}

static void test_many_ranks(void **state)
{
    static const char *const strategies[] = {"none", "slice:4", "ring", "flash:4", "direct:2"};
    (void)state;
    for (fo_pattern pattern = FO_PATTERN_GATHER; pattern <= FO_PATTERN_BLOCK; pattern++)
        for (int i = 0; i < 5; i++)
            check(pattern, strategies[i], MAX_RANKS, 64 * MAX_RANKS - 5, 4);
}

/* Staging of the overlapping strategies is a few slots of a shard, for any number of ranks. */
static void test_staging(void **state)
{
    static const char *const strategies[] = {"flash", "flash:3", "direct:2"};
    static const int64_t buffers[] = {3, 6, 3, 9, 3, 9}; /* of a shard each, by pattern */
    (void)state;
    for (fo_pattern pattern = FO_PATTERN_GATHER; pattern <= FO_PATTERN_BLOCK; pattern++)
        for (int i = 0; i < 3; i++)
            for (int ranks = 2; ranks <= 32; ranks += 6) {
                fo_verdict verdict;
                set s = build(pattern, strategies[i], ranks, 24 * ranks, 4);
                bool sums = i == 2 && buffers[pattern] > 3; /* the direct form's running sum */
                assert_int_equal(verify(&s, &verdict), FO_OK);
                assert_true(verdict.staging_rows <= (buffers[pattern] + sums) * 24);
                destroy(&s);
            }
}

static void test_verdict(void **state)
{
    fo_verdict verdict;
    (void)state;
    set s = build(FO_PATTERN_GATHER, "flash", 4, 10, 1); /* shards of 3, 3, 2, 2 rows */
    assert_int_equal(verify(&s, &verdict), FO_OK);
    assert_int_equal(verdict.tasks, 4 * (3 + 3 + 4));
    assert_int_equal(verdict.messages, 12);
    /* rank r sends all shards but r+1: rank 1 and 2 keep a shard of 2 rows back */
    assert_int_equal(verdict.max_sent_rows, 8);
    assert_int_equal(verdict.max_sent_rows_rank, 1);
    destroy(&s);
}

static void test_sub_begin(void **state)
{
    (void)state;
    for (int64_t rows = 0; rows <= 40; rows++)
        for (int m = 1; m <= 9; m++)
            for (int64_t quantum = 1; quantum <= 5; quantum++) {
                int64_t least = rows, most = 0;
                assert_int_equal(fo_schedule_sub_begin(rows, m, 0, quantum), 0);
                assert_int_equal(fo_schedule_sub_begin(rows, m, m, quantum), rows);
                for (int k = 0; k < m; k++) {
                    int64_t begin = fo_schedule_sub_begin(rows, m, k, quantum);
                    int64_t size = fo_schedule_sub_begin(rows, m, k + 1, quantum) - begin;
                    assert_true(size >= 0);
                    assert_true(begin % quantum == 0 || begin == rows);
                    least = size < least ? size : least;
                    most = size > most ? size : most;
                }
                assert_true(most - least < 2 * quantum);
            }
}

/* 0: chosen from the shape. With weight gradients one sub-slice a quantum, up to 16 (JOINT: 2); else one. */
static void test_default_parts(void **state)
{
    static const struct {
        fo_pattern pattern;
        int64_t rows;
        int subs;
    } cases[] = {{FO_PATTERN_GATHER, 400, 1}, {FO_PATTERN_REDUCE, 400, 1},
                 {FO_PATTERN_GATHER2, 3, 1},  {FO_PATTERN_GATHER2, 400, 2},
                 {FO_PATTERN_JOINT, 24, 1},   {FO_PATTERN_JOINT, 3, 1},
                 {FO_PATTERN_WGRAD, 24, 3},   {FO_PATTERN_BLOCK, 400, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        set s = build(cases[i].pattern, "flash", 2, cases[i].rows, 4);
        int subs = 0;
        for (int32_t t = 0; t < s.programs[0]->task_count; t++)
            if (s.programs[0]->tasks[t].sub >= subs)
                subs = s.programs[0]->tasks[t].sub + 1;
        assert_int_equal(subs, cases[i].subs);
        destroy(&s);
    }
}

static void test_strategy_text(void **state)
{
    static const char *const good[] = {"none",    "slice:4",   "ring",      "flash",
                                       "flash:2", "direct",    "direct:16", "hier",
                                       "hier:3",  "none/hier", "library",   "library:4"};
    static const char *const bad[] = {"",         "flush",     "flash:",      "flash:0",
                                      "flash:-1", "flash:2x",  "none:2",      "ring:1",
                                      "slice: 2", "Flash",     "flas",        "flash:99999999999",
                                      "flash 2",  "direct:+1", "none/hier:2", "hier/none",
                                      "none/",    "hier:0"};
    fo_strategy strategy;
    char text[32], tiny[4];
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(fo_strategy_parse(good[i], &strategy), FO_OK);
        fo_strategy_print(strategy, text, sizeof text);
        assert_string_equal(text, good[i]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(fo_strategy_parse(bad[i], &strategy), FO_INVALID);
        assert_non_null(strstr(fo_last_error(), bad[i]));
        assert_true(strlen(fo_last_error()) > 20);
    }
    fo_strategy_print((fo_strategy){FO_STRATEGY_FLASH, 2}, tiny, sizeof tiny);
    assert_string_equal(tiny, "fla");
}

static void test_refused_descriptions(void **state)
{
    fo_program *program;
    (void)state;
    for (int i = 0; i < 7; i++) {
        fo_schedule_desc desc = describe(FO_PATTERN_GATHER, "flash", 4, 16, 1);
        int rank = i == 0 ? 4 : i == 1 ? -1 : 0;
        if (i == 2)
            desc.ranks = 0;
        if (i == 3)
            desc.rows = -1;
        if (i == 4)
            desc.quantum = 0;
        if (i == 5)
            desc.stream_rows = 0;
        if (i == 6)
            desc.pattern = (fo_pattern)9;
        assert_int_equal(fo_schedule_build(&desc, rank, &program), FO_INVALID);
        assert_null(program);
        assert_true(strlen(fo_last_error()) > 20);
    }
    fo_schedule_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gather),
        cmocka_unit_test(test_reduce),
        cmocka_unit_test(test_gather2),
        cmocka_unit_test(test_joint),
        cmocka_unit_test(test_wgrad),
        cmocka_unit_test(test_block),
        cmocka_unit_test(test_many_ranks),
        cmocka_unit_test(test_staging),
        cmocka_unit_test(test_verdict),
        cmocka_unit_test(test_sub_begin),
        cmocka_unit_test(test_default_parts),
        cmocka_unit_test(test_strategy_text),
        cmocka_unit_test(test_refused_descriptions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
