/* Executions that are started and go on behind others, in groups of a group: the bits of executions at once, in place
 * too, over views and copies, with and without an emulated link. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/random.h"
#include "flashoverlap/plan.h"

#define TRY(call)                      \
    do {                               \
        fo_status try_status = (call); \
        if (try_status != FO_OK)       \
            return try_status;         \
    } while (0)

enum { BUCKETS = 4, WIDTH = 64, ROUNDS = 3 };

/* Ranks are split into columns of `across` neighbours and rows of those with the same place. */
typedef struct setting {
    int across;
    int64_t rows; /* of a bucket */
    const char *overlap;
} setting;

typedef struct bucket {
    float *grads, *sums, *values; /* [rows, WIDTH], [own rows, WIDTH], [rows, WIDTH] */
    float *expected_sums, *expected_values;
    fo_plan *reduce, *gather;
} bucket;

typedef struct layer {
    float *x, *w, *y, *expected; /* a row-parallel product of the neighbours */
    fo_plan *plan;
} layer;

static float *matrix(fo_group *g, int64_t count, uint64_t stream)
{
    float *data = fo_group_alloc(g, (size_t)count * sizeof *data + 64);
    for (int64_t i = 0; data && stream && i < count; i++)
        data[i] = fo_base_random_uniform(11, stream, (uint64_t)i) - 0.5f;
    return data;
}

static fo_status same(const char *what, const void *a, const void *b, size_t bytes)
{
    return memcmp(a, b, bytes) ? fo_base_error(FO_INTERNAL, "%s differs", what) : FO_OK;
}

static int64_t own_rows(fo_group *g, int64_t rows)
{
    return fo_shard_rows(rows, fo_group_size(g), fo_group_rank(g));
}

static fo_status make_bucket(fo_group *g, const setting *s, uint64_t stream, bucket *b)
{
    int64_t count = s->rows * WIDTH, own = own_rows(g, s->rows) * WIDTH;
    b->grads = matrix(g, count, stream);
    b->sums = matrix(g, own, 0);
    b->values = matrix(g, count, 0);
    b->expected_sums = matrix(g, own, 0);
    b->expected_values = matrix(g, count, 0);
    fo_plan_desc desc = {.op = FO_REDUCE_SCATTER,
                         .rows = s->rows,
                         .in = WIDTH,
                         .overlap = s->overlap};
    TRY(fo_plan_create(g, &desc, &b->reduce));
    desc.op = FO_ALL_GATHER;
    return fo_plan_create(g, &desc, &b->gather);
}

static fo_status make_layer(fo_group *g, const setting *s, uint64_t stream, layer *l)
{
    int64_t rows = 256, in = 96, out = 80;
    l->x = matrix(g, rows * in, stream);
    l->w = matrix(g, out * in, stream + 1);
    l->y = matrix(g, own_rows(g, rows) * out, 0);
    l->expected = matrix(g, own_rows(g, rows) * out, 0);
    fo_plan_desc desc = {
        .op = FO_ROW_FORWARD, .rows = rows, .in = in, .out = out, .overlap = s->overlap};
    TRY(fo_plan_create(g, &desc, &l->plan));
    return fo_plan_execute(l->plan, &(fo_plan_args){.x = l->x, .w = l->w, .y = l->expected});
}

static float *own_part(fo_group *g, const setting *s, float *values)
{
    return values + fo_shard_begin(s->rows, fo_group_size(g), fo_group_rank(g)) * WIDTH;
}

/* Sums, each doubled by its owner, back to everyone: at once. */
static fo_status expect(fo_group *g, const setting *s, bucket *b)
{
    int64_t own = own_rows(g, s->rows) * WIDTH;
    TRY(fo_plan_execute(b->reduce, &(fo_plan_args){.x = b->grads, .y = b->expected_sums}));
    for (int64_t i = 0; i < own; i++)
        own_part(g, s, b->expected_values)[i] = 2 * b->expected_sums[i];
    float *shard = matrix(g, own, 0);
    memcpy(shard, own_part(g, s, b->expected_values), (size_t)own * sizeof *shard);
    TRY(fo_plan_execute(b->gather, &(fo_plan_args){.x = shard, .y = b->expected_values}));
    fo_group_free(g, shard);
    return FO_OK;
}

static fo_status run_layer(layer *l, int64_t count)
{
    memset(l->y, 0, (size_t)count * sizeof *l->y);
    TRY(fo_plan_execute(l->plan, &(fo_plan_args){.x = l->x, .w = l->w, .y = l->y}));
    return same("a layer in the foreground", l->y, l->expected, (size_t)count * sizeof *l->y);
}

static fo_status round_of(fo_group *whole, fo_group *across, fo_group *down, const setting *s,
                          bucket *b, layer *l)
{
    int64_t own = own_rows(down, s->rows) * WIDTH, count = own_rows(across, 256) * 80;
    for (int i = 0; i < BUCKETS; i++) {
        memset(b[i].sums, 0, (size_t)own * sizeof(float));
        memset(b[i].values, 0, (size_t)(s->rows * WIDTH) * sizeof(float));
        TRY(fo_plan_start(b[i].reduce, &(fo_plan_args){.x = b[i].grads, .y = b[i].sums}));
        TRY(run_layer(l, count));
    }
    for (int i = 0; i < BUCKETS; i++) {
        TRY(fo_plan_finish(b[i].reduce));
        TRY(same("a sum in the background", b[i].sums, b[i].expected_sums,
                 (size_t)own * sizeof(float)));
        float *mine = own_part(down, s, b[i].values);
        for (int64_t e = 0; e < own; e++)
            mine[e] = 2 * b[i].sums[e];
        TRY(fo_plan_start(b[i].gather, &(fo_plan_args){.x = mine, .y = b[i].values}));
        TRY(fo_group_progress(whole));
    }
    for (int i = 0; i < BUCKETS; i++) {
        TRY(run_layer(l, count));
        TRY(fo_plan_finish(b[i].gather));
        TRY(same("values gathered in place", b[i].values, b[i].expected_values,
                 (size_t)(s->rows * WIDTH) * sizeof(float)));
    }
    return FO_OK;
}

static fo_status body(fo_group *whole, void *arg)
{
    const setting *s = arg;
    int rank = fo_group_rank(whole), size = fo_group_size(whole);
    int across_size = s->across < size ? s->across : size;
    fo_group *across, *down;
    TRY(fo_group_split(whole, rank / across_size, &across));
    TRY(fo_group_split(whole, rank % across_size, &down));
    if (fo_group_rank(across) != rank % across_size || fo_group_rank(down) != rank / across_size)
        return fo_base_error(FO_INTERNAL, "rank %d is %d across and %d down", rank,
                             fo_group_rank(across), fo_group_rank(down));
    bucket b[BUCKETS] = {{0}};
    layer l = {0};
    TRY(make_layer(across, s, 1000 + 10 * (uint64_t)rank, &l));
    for (int i = 0; i < BUCKETS; i++) {
        TRY(make_bucket(down, s, 100 * (uint64_t)(rank + 1) + (uint64_t)i, &b[i]));
        TRY(expect(down, s, &b[i]));
    }
    for (int i = 0; i < ROUNDS; i++)
        TRY(round_of(whole, across, down, s, b, &l));
    if (fo_plan_finish(b[0].reduce) != FO_OK)
        return fo_base_error(FO_INTERNAL, "nothing was started, but its end failed");
    TRY(fo_plan_start(b[0].reduce, &(fo_plan_args){.x = b[0].grads, .y = b[0].sums}));
    if (fo_plan_start(b[0].reduce, &(fo_plan_args){.x = b[0].grads, .y = b[0].sums}) !=
            FO_INVALID ||
        fo_plan_execute(b[0].reduce, &(fo_plan_args){.x = b[0].grads, .y = b[0].sums}) !=
            FO_INVALID)
        return fo_base_error(FO_INTERNAL, "a plan was started twice");
    fo_plan_destroy(l.plan);
    for (int i = 0; i < BUCKETS; i++) { /* the first is still running */
        fo_plan_destroy(b[i].reduce);
        fo_plan_destroy(b[i].gather);
    }
    fo_group_close(down);
    fo_group_close(across);
    return fo_group_barrier(whole);
}

static void everywhere(const fo_link *link)
{
    static const char *const overlaps[] = {"none", "slice:3", "ring", "flash", "flash:2", "direct"};
    static const char *const transports[] = {"self", "shm"};
    static const int64_t rows[] = {1, 5, 64, 331};
    for (size_t t = 0; t < 2; t++)
        for (int ranks = 1; ranks <= 6; ranks++)
            for (size_t o = 0; o < sizeof overlaps / sizeof *overlaps; o++) {
                if (t && (ranks == 5 || o % 2))
                    continue;
#if defined(__SANITIZE_THREAD__)
                if (t)
                    continue;
#endif
                setting s = {1 + ranks % 3, rows[(size_t)(ranks + (int)o) % 4], overlaps[o]};
                while (ranks % s.across)
                    s.across--;
                fo_group_options options = {.ranks = ranks,
                                            .threads = 1,
                                            .transport = transports[t],
                                            .deadline_s = 20,
                                            .link = *link};
                if (fo_group_run(&options, body, &s) != FO_OK)
                    fail_msg("%s, %d ranks, %d across, %s: %s", transports[t], ranks, s.across,
                             overlaps[o], fo_last_error());
            }
}

static void test_same_bits(void **state)
{
    (void)state;
    everywhere(&(fo_link){0});
}

static void test_same_bits_over_a_link(void **state)
{
    (void)state;
    everywhere(&(fo_link){.bytes_per_s = 500e6, .latency_s = 20e-6});
}

/* A rank dies while the others are in the foreground of what they started. */
static fo_status dying(fo_group *g, void *arg)
{
    bucket b = {0};
    TRY(make_bucket(g, arg, 7, &b));
    fo_status status = FO_OK;
    if (fo_group_rank(g) != 1)
        status = fo_plan_start(b.reduce, &(fo_plan_args){.x = b.grads, .y = b.sums});
    if (fo_group_rank(g) != 1 && status == FO_OK)
        status = fo_plan_finish(b.reduce);
    fo_plan_destroy(b.reduce);
    fo_plan_destroy(b.gather);
    if (fo_group_rank(g) == 1)
        return fo_base_error(FO_NUMERIC, "this is the culprit");
    return status == FO_OK ? fo_base_error(FO_INTERNAL, "a sum of three ranks without the second")
                           : status;
}

static void test_failure(void **state)
{
    (void)state;
    setting s = {1, 64, "flash"};
    fo_group_options options = {.ranks = 3, .threads = 1, .transport = "self", .deadline_s = 20};
    assert_int_equal(fo_group_run(&options, dying, &s), FO_NUMERIC);
    assert_non_null(strstr(fo_last_error(), "this is the culprit"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_same_bits_over_a_link),
        cmocka_unit_test(test_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
