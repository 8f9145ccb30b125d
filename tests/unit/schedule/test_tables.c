/* The step tables of the paper, N = 4, taken literally. */
#include "unit/schedule/programs.h"

static const int gather_table[4][4] = {{0, 3, 2, 1}, {1, 0, 3, 2}, {2, 1, 0, 3}, {3, 2, 1, 0}};
static const int reduce_table[4][4] = {{3, 2, 1, 0}, {0, 3, 2, 1}, {1, 0, 3, 2}, {2, 1, 0, 3}};

/* The shards a rank works on with tasks of one kind, slot and channel, in list order. */
static int list_shards(const fo_program *p, fo_task_kind kind, int slot, int channel, int shards[8])
{
    int count = 0;
    for (int32_t t = 0; t < p->task_count; t++) {
        const fo_task *task = &p->tasks[t];
        bool comm = kind == FO_TASK_SEND || kind == FO_TASK_RECV;
        if (task->kind == kind && (comm ? task->channel == channel : task->slot == slot) &&
            count < 8)
            shards[count++] = task->shard;
    }
    return count;
}

static void check_list(const fo_program *p, fo_task_kind kind, int slot, int channel,
                       const int *expected, int expected_count)
{
    int shards[8];
    assert_int_equal(list_shards(p, kind, slot, channel, shards), expected_count);
    for (int i = 0; i < expected_count; i++)
        assert_int_equal(shards[i], expected[i]);
}

static void check_neighbours(const fo_program *p)
{
    for (int32_t t = 0; t < p->task_count; t++) {
        if (p->tasks[t].kind == FO_TASK_SEND)
            assert_int_equal(p->tasks[t].peer, (p->rank + 1) % 4);
        if (p->tasks[t].kind == FO_TASK_RECV)
            assert_int_equal(p->tasks[t].peer, (p->rank + 3) % 4);
    }
}

/* Computes 0..3, sends the first three, receives the last three. */
static void check_gather(const fo_program *p, int slot)
{
    const int *table = gather_table[p->rank];
    check_list(p, FO_TASK_COMPUTE, slot, 0, table, 4);
    check_list(p, FO_TASK_SEND, 0, 0, table, 3);
    check_list(p, FO_TASK_RECV, 0, 0, table + 1, 3);
}

static void check_reduce(const fo_program *p)
{
    const int *table = reduce_table[p->rank];
    check_list(p, FO_TASK_COMPUTE, 0, 1, table, 4);
    check_list(p, FO_TASK_SEND, 0, 1, table, 3);
    check_list(p, FO_TASK_RECV, 0, 1, table + 1, 3);
}

static void test_gather(void **state)
{
    (void)state;
    set s = build(FO_PATTERN_GATHER, "flash", 4, 16, 1);
    for (int r = 0; r < 4; r++) {
        check_neighbours(s.programs[r]);
        check_gather(s.programs[r], 0);
    }
    destroy(&s);
}

static void test_reduce(void **state)
{
    (void)state;
    set s = build(FO_PATTERN_REDUCE, "flash", 4, 16, 1);
    for (int r = 0; r < 4; r++) {
        check_neighbours(s.programs[r]);
        check_reduce(s.programs[r]);
        /* the addition is part of the computation, in every step but the first */
        for (int i = 0; i < 4; i++) {
            int32_t t = nth_task(s.programs[r], FO_TASK_COMPUTE, -1, i);
            assert_int_equal(s.programs[r]->tasks[t].add.buffer >= 0, i > 0);
        }
        int none[1] = {0};
        check_list(s.programs[r], FO_TASK_ADD, 0, 0, none, 0);
    }
    destroy(&s);
}

static void test_joint(void **state)
{
    (void)state;
    set s = build(FO_PATTERN_JOINT, "flash:1", 4, 16, 1);
    for (int r = 0; r < 4; r++) {
        check_neighbours(s.programs[r]);
        check_gather(s.programs[r], 1);
        check_reduce(s.programs[r]);
        /* D0 W0 D1 W1 D2 W2 W3 D3 */
        static const int slots[8] = {0, 1, 0, 1, 0, 1, 1, 0};
        for (int i = 0; i < 8; i++) {
            int32_t t = nth_task(s.programs[r], FO_TASK_COMPUTE, -1, i);
            assert_int_equal(s.programs[r]->tasks[t].slot, slots[i]);
        }
    }
    destroy(&s);
}

/* The direct form computes in the same order; every slice goes to its owner, or from it, in one hop. */
static void test_direct(void **state)
{
    (void)state;
    set g = build(FO_PATTERN_GATHER, "direct", 4, 16, 1);
    set d = build(FO_PATTERN_REDUCE, "direct", 4, 16, 1);
    for (int r = 0; r < 4; r++) {
        check_list(g.programs[r], FO_TASK_COMPUTE, 0, 0, gather_table[r], 4);
        check_list(d.programs[r], FO_TASK_COMPUTE, 0, 0, reduce_table[r], 4);
        for (int i = 0; i < 3; i++) {
            const fo_task *recv =
                &g.programs[r]->tasks[nth_task(g.programs[r], FO_TASK_RECV, 0, i)];
            const fo_task *send =
                &d.programs[r]->tasks[nth_task(d.programs[r], FO_TASK_SEND, 1, i)];
            assert_int_equal(recv->peer, recv->shard);
            assert_int_equal(send->peer, send->shard);
            assert_int_equal(send->shard, reduce_table[r][i]);
        }
    }
    destroy(&g);
    destroy(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gather),
        cmocka_unit_test(test_reduce),
        cmocka_unit_test(test_joint),
        cmocka_unit_test(test_direct),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
