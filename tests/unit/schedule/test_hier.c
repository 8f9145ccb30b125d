/* hier and none/hier: what holds for every pattern, number of machines, ranks on each and number of rows. Orders
 * are written down here from their definition, digit by digit. */
#include "unit/schedule/programs.h"

static const char *const strategies[] = {"hier",   "hier:1",    "hier:2", "hier:3",
                                         "hier:5", "none/hier", NULL};

static const int64_t all_rows[] = {0, 1, 2, 5, 9, 17, 36, 61, 144};

enum { ROW_CASES = sizeof all_rows / sizeof *all_rows };

static int back(int from, int by, int n)
{
    for (; by > 0; by--)
        from = from ? from - 1 : n - 1;
    return from;
}

/* Shard of step `i` of rank (m, l): all-gather order, or reduce-scatter order, which begins one back in both. */
static int shard_at(int m, int l, int nodes, int locals, int i, int begin)
{
    return back(m, i / locals + begin, nodes) * locals + back(l, i % locals + begin, locals);
}

static bool gathers(fo_pattern pattern)
{
    return pattern != FO_PATTERN_REDUCE;
}

static bool reduces(fo_pattern pattern)
{
    return pattern == FO_PATTERN_REDUCE || pattern == FO_PATTERN_JOINT ||
           pattern == FO_PATTERN_BLOCK;
}

/* ---- properties --------------------------------------------------------------------------------------- */

/* Rows of a shard, none of those that have no row. */
static int64_t rows_of(const set *s, int shard)
{
    return fo_shard_rows(s->desc.rows, s->ranks, shard);
}

/* Every rank sends M - 1 shards to the rank of its local number on the next machine and M (L - 1) to the next
 * of its machine, of each kind of rows that travels, and to nobody else: exactly these. */
static void check_volume(const set *s)
{
    int nodes = s->desc.nodes, locals = s->ranks / nodes;
    for (int r = 0; r < s->ranks; r++) {
        int m = r / locals, l = r % locals;
        int next = (m + 1) % nodes * locals + l, beside = m * locals + (l + 1) % locals;
        int64_t slow[2] = {0, 0}, fast[2] = {0, 0}, slow_wanted[2] = {0, 0},
                fast_wanted[2] = {0, 0};
        for (int32_t t = 0; t < s->programs[r]->task_count; t++) {
            const fo_task *task = &s->programs[r]->tasks[t];
            if (task->kind != FO_TASK_SEND)
                continue;
            bool is_slow = task->peer / locals != m;
            assert_int_equal(task->peer, is_slow ? next : beside);
            (is_slow ? slow : fast)[task->channel] += task->rows;
        }
        for (int i = 0; i < s->ranks; i++) {
            int64_t shard = rows_of(s, shard_at(m, l, nodes, locals, i, 0));
            int64_t sum = rows_of(s, shard_at(m, l, nodes, locals, i, 1));
            if (gathers(s->desc.pattern) && i % locals == 0 && i / locals < nodes - 1)
                slow_wanted[0] += shard;
            if (gathers(s->desc.pattern) && i % locals < locals - 1)
                fast_wanted[0] += shard;
            if (reduces(s->desc.pattern) && i % locals < locals - 1)
                fast_wanted[1] += sum;
            else if (reduces(s->desc.pattern) && i < s->ranks - 1)
                slow_wanted[1] += sum;
        }
        assert_memory_equal(slow, slow_wanted, sizeof slow);
        assert_memory_equal(fast, fast_wanted, sizeof fast);
    }
}

/* Shards are computed in the nested order, sub-slice after sub-slice. */
static void check_order(const set *s)
{
    int nodes = s->desc.nodes, locals = s->ranks / nodes;
    int sums = s->desc.pattern == FO_PATTERN_BLOCK ? 1 : reduces(s->desc.pattern) ? 0 : -1;
    for (int r = 0; r < s->ranks; r++)
        for (int slot = 0; slot < 2; slot++) {
            int i = 0;
            int64_t done = 0, seen = 0;
            for (int32_t t = 0; t < s->programs[r]->task_count; t++) {
                const fo_task *task = &s->programs[r]->tasks[t];
                if (task->kind != FO_TASK_COMPUTE || task->slot != slot)
                    continue;
                int shard;
                while (shard = shard_at(r / locals, r % locals, nodes, locals, i, slot == sums),
                       done == rows_of(s, shard)) {
                    i++;
                    done = 0;
                }
                assert_int_equal(task->shard, shard);
                assert_int_equal(task->row, fo_shard_begin(s->desc.rows, s->ranks, shard) + done);
                done += task->rows;
                seen += task->rows;
            }
            assert_true(seen == 0 || seen == s->desc.rows);
        }
}

static void check(fo_pattern pattern, const char *strategy, int nodes, int locals, int64_t rows,
                  int64_t quantum)
{
    fo_verdict verdict;
    set s = build_on(nodes, pattern, strategy, nodes * locals, rows, quantum);
    if (verify(&s, &verdict) != FO_OK)
        fail_msg("pattern %d %s, %d machines of %d ranks, %lld rows, quantum %lld: %s",
                 (int)pattern, strategy, nodes, locals, (long long)rows, (long long)quantum,
                 verdict.text);
    check_volume(&s);
    check_order(&s);
    destroy(&s);
}

static void test_every_shape(void **state)
{
    (void)state;
    for (fo_pattern pattern = FO_PATTERN_GATHER; pattern <= FO_PATTERN_BLOCK; pattern++)
        for (int i = 0; strategies[i]; i++)
            for (int nodes = 1; nodes <= 4; nodes++)
                for (int locals = 1; locals <= 4; locals++)
                    for (int64_t quantum = 1; quantum <= 4; quantum += 3)
                        for (int m = 0; m < ROW_CASES; m++)
                            check(pattern, strategies[i], nodes, locals, all_rows[m], quantum);
}

static void test_many_ranks(void **state)
{
    (void)state;
    for (fo_pattern pattern = FO_PATTERN_GATHER; pattern <= FO_PATTERN_BLOCK; pattern++) {
        check(pattern, "hier:2", 8, 8, 64 * 20 - 5, 4);
        check(pattern, "none/hier", 8, 8, 64 * 20 - 5, 4);
        check(pattern, "hier:3", 16, 2, 32 * 20 - 5, 4);
        check(pattern, "hier:3", 2, 16, 32 * 20 - 5, 4);
    }
}

/* Staging does not grow with the number of machines or of ranks on each. */
static void test_staging(void **state)
{
    static const int64_t buffers[] = {6, 13, 6, 19, 6, 19}; /* of a shard each, by pattern */
    (void)state;
    for (fo_pattern pattern = FO_PATTERN_GATHER; pattern <= FO_PATTERN_BLOCK; pattern++)
        for (int nodes = 2; nodes <= 8; nodes += 2)
            for (int locals = 2; locals <= 8; locals += 3) {
                fo_verdict verdict;
                set s = build_on(nodes, pattern, "hier:2", nodes * locals, 24 * nodes * locals, 4);
                assert_int_equal(verify(&s, &verdict), FO_OK);
                assert_true(verdict.staging_rows <= buffers[pattern] * 24);
                destroy(&s);
            }
}

static void same_task(const fo_task *a, const fo_task *b)
{
    assert_int_equal(a->kind, b->kind);
    assert_int_equal(a->slot, b->slot);
    assert_int_equal(a->peer, b->peer);
    assert_int_equal(a->step, b->step);
    assert_int_equal(a->row, b->row);
    assert_int_equal(a->rows, b->rows);
    assert_int_equal(a->in.row, b->in.row);
    assert_int_equal(a->add.buffer, b->add.buffer);
    assert_int_equal(a->out.buffer, b->out.buffer);
    assert_int_equal(a->out.row, b->out.row);
    assert_int_equal(a->dep_first, b->dep_first);
    assert_int_equal(a->dep_count, b->dep_count);
}

/* One machine, or one rank on each: the program of flash, or of none, task by task. */
static void test_one_ring(void **state)
{
    static const char *const pairs[][2] = {{"hier", "flash"},
                                           {"hier:2", "flash:2"},
                                           {"none/hier", "none"}};
    (void)state;
    for (fo_pattern pattern = FO_PATTERN_GATHER; pattern <= FO_PATTERN_BLOCK; pattern++)
        for (int p = 0; p < 3; p++)
            for (int ranks = 1; ranks <= 6; ranks++)
                for (int nodes = 1; nodes <= ranks; nodes += ranks > 1 ? ranks - 1 : 1) {
                    set a = build_on(nodes, pattern, pairs[p][0], ranks, 37, 4);
                    set b = build(pattern, pairs[p][1], ranks, 37, 4);
                    for (int r = 0; r < ranks; r++) {
                        const fo_program *x = a.programs[r], *y = b.programs[r];
                        assert_int_equal(x->nodes, 1);
                        assert_int_equal(x->task_count, y->task_count);
                        assert_int_equal(x->dep_count, y->dep_count);
                        for (int32_t t = 0; t < x->task_count; t++)
                            same_task(&x->tasks[t], &y->tasks[t]);
                    }
                    destroy(&a);
                    destroy(&b);
                }
}

/* ---- the tables of two machines with two ranks each ------------------------------------------------------ */

static const int gather_table[4][4] = {{0, 1, 2, 3}, {1, 0, 3, 2}, {2, 3, 0, 1}, {3, 2, 1, 0}};
static const int reduce_table[4][4] = {{3, 2, 1, 0}, {2, 3, 0, 1}, {1, 0, 3, 2}, {0, 1, 2, 3}};

static void check_computes(const fo_program *p, int slot, const int table[4])
{
    int i = 0;
    for (int32_t t = 0; t < p->task_count; t++)
        if (p->tasks[t].kind == FO_TASK_COMPUTE && p->tasks[t].slot == slot)
            assert_int_equal(p->tasks[t].shard, table[i++]);
    assert_int_equal(i, 4);
}

static void test_two_by_two(void **state)
{
    /* x y: an inner ring is 0 -> 1 -> 0, 2 -> 3 -> 2; outer rings are 0 -> 2 -> 0 and 1 -> 3 -> 1 */
    static const int next[4] = {2, 3, 0, 1}, beside[4] = {1, 0, 3, 2};
    (void)state;
    set g = build_on(2, FO_PATTERN_GATHER, "hier", 4, 16, 1);
    set d = build_on(2, FO_PATTERN_REDUCE, "hier", 4, 16, 1);
    for (int r = 0; r < 4; r++) {
        const fo_program *p = g.programs[r], *q = d.programs[r];
        check_computes(p, 0, gather_table[r]);
        check_computes(q, 0, reduce_table[r]);
        for (int i = 0; i < 3; i++) {
            /* the slow message first; then the own shard and the one that came from the other machine */
            static const int step[3] = {0, 0, 2};
            const fo_task *send = &p->tasks[nth_task(p, FO_TASK_SEND, 0, i)];
            assert_int_equal(send->peer, i ? beside[r] : next[r]);
            assert_int_equal(send->shard, gather_table[r][step[i]]);
            /* sums: to the own machine, to the other one when it is finished, to the own one */
            send = &q->tasks[nth_task(q, FO_TASK_SEND, 1, i)];
            assert_int_equal(send->peer, i == 1 ? next[r] : beside[r]);
            assert_int_equal(send->shard, reduce_table[r][i]);
        }
        assert_int_equal(q->tasks[nth_task(q, FO_TASK_ADD, -1, 0)].shard, r);
        /* the other machine's sum is waited for from the middle on, added last */
        assert_int_equal(q->tasks[nth_task(q, FO_TASK_RECV, 1, 1)].peer, next[r]);
        assert_int_equal(q->tasks[nth_task(q, FO_TASK_RECV, 1, 1)].step, 2);
    }
    destroy(&g);
    destroy(&d);
}

/* ---- refusals --------------------------------------------------------------------------------------------- */

static void test_uneven(void **state)
{
    static const struct {
        int ranks, nodes;
        const char *nearest;
    } cases[] = {{4, 3, "works is 2"},   {12, 5, "works is 4"}, {12, 8, "works is 6"},
                 {7, 4, "works is 1"},   {7, 5, "works is 7"},  {6, 7, "works is 6"},
                 {6, 900, "works is 6"}, {4, -1, "works is 1"}, {12, 11, "works is 12"}};
    static const char *const names[] = {"hier", "none/hier"};
    fo_program *program;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int n = 0; n < 2; n++) {
            fo_schedule_desc desc = describe(FO_PATTERN_REDUCE, names[n], cases[i].ranks, 16, 1);
            desc.nodes = cases[i].nodes;
            assert_int_equal(fo_schedule_build(&desc, 0, &program), FO_INVALID);
            assert_null(program);
            if (!strstr(fo_last_error(), cases[i].nearest))
                fail_msg("%d ranks, %d machines: %s", cases[i].ranks, cases[i].nodes,
                         fo_last_error());
        }
    /* others run on machines of any size */
    fo_schedule_desc desc = describe(FO_PATTERN_REDUCE, "flash", 4, 16, 1);
    desc.nodes = 3;
    assert_int_equal(fo_schedule_build(&desc, 0, &program), FO_OK);
    fo_schedule_free(program);
    desc = describe(FO_PATTERN_REDUCE, "library", 4, 16, 1);
    assert_int_equal(fo_schedule_build(&desc, 0, &program), FO_INVALID);
    assert_non_null(strstr(fo_last_error(), "no program"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_shape), cmocka_unit_test(test_many_ranks),
        cmocka_unit_test(test_staging),     cmocka_unit_test(test_one_ring),
        cmocka_unit_test(test_two_by_two),  cmocka_unit_test(test_uneven),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
