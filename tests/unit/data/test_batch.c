/* Parts and batches; files beyond 2 GiB. */
#include "unit/data/scratch.h"

#include "base/random.h"
#include "data/data.h"

/* Tokens 0, 1, 2, ... as nanogpt, so that a token tells its place. */
static fo_data *counting(int64_t count)
{
    uint8_t *bytes = malloc((size_t)count * 2);
    fo_data *data;
    assert_non_null(bytes);
    for (int64_t i = 0; i < count; i++) {
        bytes[2 * i] = (uint8_t)i;
        bytes[2 * i + 1] = (uint8_t)(i >> 8);
    }
    expect_ok(fo_data_open_memory("counting", bytes, count * 2, FO_DATA_NANOGPT, &data));
    free(bytes);
    return data;
}

static void batches_are_functions_of_seed_and_step(void **state)
{
    (void)state;
    enum { BATCH = 4, CONTEXT = 16, SIZE = BATCH * CONTEXT };
    int32_t a[2][SIZE], b[2][SIZE];
    fo_data *data = counting(5000), *again = counting(5000);
    for (int held = 0; held < 2; held++) {
        expect_ok(fo_data_batch(data, held, 7, 5, BATCH, CONTEXT, a[0], a[1]));
        expect_ok(fo_data_batch(data, held, 7, 6, BATCH, CONTEXT, b[0], b[1]));
        assert_memory_not_equal(a[0], b[0], sizeof a[0]);
        expect_ok(fo_data_batch(data, held, 8, 5, BATCH, CONTEXT, b[0], b[1]));
        assert_memory_not_equal(a[0], b[0], sizeof a[0]);
        expect_ok(fo_data_batch(again, held, 7, 5, BATCH, CONTEXT, b[0], b[1]));
        assert_memory_equal(a, b, sizeof a);
        /* sequence b of step s is number s * batch + b, however they are grouped */
        for (int i = 0; i < BATCH; i++) {
            expect_ok(fo_data_batch(data, held, 7, 5 * BATCH + i, 1, CONTEXT, b[0], b[1]));
            assert_memory_equal(a[0] + i * CONTEXT, b[0], CONTEXT * sizeof b[0][0]);
            assert_memory_equal(a[1] + i * CONTEXT, b[1], CONTEXT * sizeof b[0][0]);
        }
    }
    fo_data_close(data);
    fo_data_close(again);
}

/* Every start of a part is drawn, none outside of it, and targets are the next tokens. */
static void ranges_are_right_at_both_ends(void **state)
{
    (void)state;
    enum { COUNT = 105, CONTEXT = 5, SPLIT = 94, DRAWS = 4000 };
    fo_data *data = counting(COUNT);
    for (int held = 0; held < 2; held++) {
        int seen[COUNT] = {0};
        int begin = held ? SPLIT : 0, end = held ? COUNT : SPLIT;
        for (int step = 0; step < DRAWS; step++) {
            int32_t inputs[CONTEXT], targets[CONTEXT];
            expect_ok(fo_data_batch(data, held, 3, step, 1, CONTEXT, inputs, targets));
            assert_in_range(inputs[0], begin, end - CONTEXT - 1);
            for (int i = 0; i < CONTEXT; i++) {
                assert_int_equal(inputs[i], inputs[0] + i);
                assert_int_equal(targets[i], inputs[i] + 1);
            }
            assert_true(targets[CONTEXT - 1] < end);
            seen[inputs[0]]++;
        }
        for (int i = 0; i < COUNT; i++)
            assert_true((seen[i] > 0) == (i >= begin && i + CONTEXT < end));
    }
    fo_data_close(data);
}

static void parts_of_all_lengths(void **state)
{
    (void)state;
    for (int64_t count = 1; count <= 200; count++) {
        fo_data *data = counting(count);
        int64_t split = count * 9 / 10;
        for (int64_t context = 1; context <= 30; context++) {
            int32_t inputs[30], targets[30];
            fo_status training = fo_data_batch(data, 0, 1, 0, 1, context, inputs, targets);
            assert_int_equal(training, split > context ? FO_OK : FO_FORMAT);
            if (training == FO_OK)
                assert_true(targets[context - 1] < split);
            fo_status held = fo_data_batch(data, 1, 1, 0, 1, context, inputs, targets);
            assert_int_equal(held, count - split > context ? FO_OK : FO_FORMAT);
            if (held == FO_OK)
                assert_true(inputs[0] >= split);
            assert_int_equal(fo_data_check_length(data, context),
                             training == FO_OK && held == FO_OK ? FO_OK : FO_FORMAT);
        }
        fo_data_close(data);
    }
}

static void too_short_says_how_much(void **state)
{
    (void)state;
    int32_t out[64];
    fo_data *data = counting(100);
    expect_ok(fo_data_check_length(data, 9));
    expect_fails(
        fo_data_check_length(data, 10), FO_FORMAT,
        "its held-out part (the last tenth of 100 tokens) has 10 tokens, expected at least 11 "
        "for a context of 10");
    expect_fails(
        fo_data_check_length(data, 90), FO_FORMAT,
        "its training part (the first nine tenths of 100 tokens) has 90 tokens, expected at "
        "least 91");
    expect_fails(fo_data_check_length(data, INT64_MAX), FO_FORMAT, "9223372036854775808");
    expect_fails(fo_data_check_length(data, 0), FO_INVALID, "the context is 0");
    expect_fails(fo_data_batch(data, 0, 1, 0, 1, INT64_MIN, out, out), FO_INVALID,
                 "the context is -9");
    expect_fails(fo_data_batch(data, 1, 1, 0, 1, 10, out, out), FO_FORMAT, "held-out part");
    expect_fails(fo_data_batch(data, 0, 1, -1, 1, 4, out, out), FO_INVALID, "for step -1");
    expect_fails(fo_data_batch(data, 0, 1, 0, 0, 4, out, out), FO_INVALID, "batch of 0");
    expect_fails(fo_data_batch(data, 0, 1, INT64_MAX, 2, 4, out, out), FO_INVALID,
                 "expected 1 or more");
    expect_fails(fo_data_batch(data, 0, 1, INT64_MAX, 1, 4, out, out), FO_INVALID,
                 "expected 1 or more");
    fo_data_close(data);
}

/* A file with holes of 5 GB: places beyond 2 and 4 GiB are read where they are. */
static void beyond_two_gigabytes(void **state)
{
    const scratch *s = *state;
    enum { CONTEXT = 8 };
    const int64_t count = INT64_C(2500000001);
    const char *path = scratch_path(s, "large.bin");
    int file = open(path, O_RDWR | O_CREAT, 0600);
    assert_true(file >= 0);
    if (ftruncate(file, count * 2) != 0) {
        close(file);
        skip();
    }
    static const int64_t places[] = {0,
                                     INT64_C(1) << 30,
                                     (INT64_C(1) << 30) - 1,
                                     INT64_C(1) << 31,
                                     (INT64_C(1) << 31) + 1,
                                     INT64_C(2500000000)};
    for (int i = 0; i < 6; i++) {
        uint8_t word[2] = {(uint8_t)(i + 1), 0x20};
        assert_int_equal(pwrite(file, word, 2, places[i] * 2), 2);
    }
    const int64_t split = count / 10 * 9 + count % 10 * 9 / 10;
    uint64_t stream = fo_base_random_stream("data held out");
    int64_t start =
        split + (int64_t)fo_base_random_below(11, stream, 42, (uint64_t)(count - split - CONTEXT));
    for (int i = 0; i <= CONTEXT; i++) {
        uint8_t word[2] = {(uint8_t)(100 + i), 0};
        assert_int_equal(pwrite(file, word, 2, (start + i) * 2), 2);
    }
    close(file);
    fo_data *data;
    int32_t out, inputs[CONTEXT], targets[CONTEXT];
    expect_ok(fo_data_open(path, FO_DATA_NANOGPT, &data));
    assert_true(fo_data_count(data) == count);
    for (int i = 0; i < 6; i++) {
        expect_ok(fo_data_read(data, places[i], 1, &out));
        assert_int_equal(out, 0x2000 + i + 1);
    }
    expect_fails(fo_data_read(data, count, 1, &out), FO_INVALID, "it has 2500000001");
    expect_ok(fo_data_batch(data, 1, 11, 42, 1, CONTEXT, inputs, targets));
    for (int i = 0; i < CONTEXT; i++) {
        assert_int_equal(inputs[i], 100 + i);
        assert_int_equal(targets[i], 101 + i);
    }
    fo_data_close(data);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_are_functions_of_seed_and_step),
        cmocka_unit_test(ranges_are_right_at_both_ends),
        cmocka_unit_test(parts_of_all_lengths),
        cmocka_unit_test(too_short_says_how_much),
        cmocka_unit_test(beyond_two_gigabytes),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
