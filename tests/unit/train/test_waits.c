/* The slow rank is found in the waits of the others, whatever the pattern; even waits are nobody's fault. */
#include "tiny.h"

#include "base/random.h"

enum { MOST = 9 };

/* seconds[w * ranks + p]: w waited for p. */
static fo_train_slow judge(const double *seconds, int ranks)
{
    return fo_train_waits_judge(seconds, ranks, 100);
}

/* In a ring everyone but the slow rank waits for its neighbour, as long as the slow one takes longer. */
static void slow_in_a_ring(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= MOST; ranks++)
        for (int slow = 0; slow < ranks; slow++) {
            double seconds[MOST * MOST] = {0};
            for (int w = 0; w < ranks; w++)
                seconds[w * ranks + (w + ranks - 1) % ranks] = w == slow ? 0.5 : 20.5;
            fo_train_slow found = judge(seconds, ranks);
            assert_int_equal(found.rank, slow);
            assert_int_equal(found.by, ranks - 1);
            assert_true(found.waited_s > 19.9 * (ranks - 1) && found.waited_s < 20.1 * (ranks - 1));
            assert_true(found.part > 0.19 && found.part < 0.21);
        }
}

static void slow_in_direct_form(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= MOST; ranks++)
        for (int slow = 0; slow < ranks; slow++) {
            double seconds[MOST * MOST] = {0};
            for (int w = 0; w < ranks; w++)
                for (int p = 0; p < ranks; p++)
                    seconds[w * ranks + p] = w == p ? 0 : p == slow ? 12 : 0.1;
            fo_train_slow found = judge(seconds, ranks);
            assert_int_equal(found.rank, slow);
            assert_int_equal(found.by, ranks - 1);
        }
}

static void even_waits(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 200; i++) {
        int ranks = 2 + (int)fo_base_random_below(2, 1, i, MOST - 1);
        double seconds[MOST * MOST] = {0};
        for (int w = 0; w < ranks; w++) /* a slow link: all wait alike, give or take a tenth */
            seconds[w * ranks + (w + ranks - 1) % ranks] =
                30 + 3 * (double)fo_base_random_uniform(2, i, (uint64_t)w);
        fo_train_slow found = judge(seconds, ranks);
        if (found.rank >= 0)
            fail_msg("%d ranks, case %d: rank %d is said to be slow", ranks, (int)i, found.rank);
    }
}

static void little_is_not_worth_a_word(void **state)
{
    (void)state;
    double seconds[4] = {0, 4, 0.1, 0}; /* rank 1 by rank 0: 4 of 100 s */
    assert_int_equal(judge(seconds, 2).rank, -1);
    seconds[1] = 6;
    assert_int_equal(judge(seconds, 2).rank, 1);
    assert_int_equal(fo_train_waits_judge(seconds, 2, 0).rank, -1);
    for (int i = 0; i < 4; i++) /* the same parts of a run of a second */
        seconds[i] *= 0.01;
    assert_int_equal(fo_train_waits_judge(seconds, 2, 1).rank, -1);
    double none[1] = {0};
    assert_int_equal(judge(none, 1).rank, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slow_in_a_ring),
        cmocka_unit_test(slow_in_direct_form),
        cmocka_unit_test(even_waits),
        cmocka_unit_test(little_is_not_worth_a_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
