/* What only the transport over MPI has, or does otherwise: run by a launcher, with 4 processes (test_mpi.sh). */
#include "conformance/ranks.h"

#include <stdio.h>
#include <unistd.h>

#include "base/bf16.h"
#include "base/random.h"

enum { RANKS = 4 };

static const fo_transport *mpi(void)
{
    return fo_transport_find("mpi");
}

static void run(int ranks, fo_transport_main body, void *arg)
{
    if (ranks_launch(mpi(), ranks, HOOK_NONE, 60, body, arg) != FO_OK)
        fail_msg("%d ranks: %s", ranks, fo_last_error());
}

static void refuse(fo_transport_main body, void *arg, fo_status expected, const char *says)
{
    ranks_expect(mpi(), HOOK_NONE, ranks_launch(mpi(), RANKS, HOOK_NONE, 60, body, arg), expected);
    if (!strstr(fo_last_error(), says))
        fail_msg("expected \"%s\" in \"%s\"", says, fo_last_error());
}

/* ---- sizes that differ ---- */

typedef struct sizes {
    size_t sent, expected;
} sizes;

static fo_status differ(fo_endpoint *e, void *arg)
{
    const sizes *s = arg;
    fo_request request = {0};
    unsigned char *bytes = e->ops->alloc(e, 4 << 20);
    CHECK(bytes);
    if (e->rank == 0)
        TRY(e->ops->isend(e, &request, 3, 6, bytes, s->sent, 0));
    else if (e->rank == 3)
        TRY(e->ops->irecv(e, &request, 0, 6, bytes, s->expected));
    else
        return FO_OK;
    return ranks_wait(e, &request);
}

static void test_sizes_that_differ(void **state)
{
    (void)state;
    sizes cases[] = {{4, 8}, {8, 4}, {0, 1}, {1, 0}, {1 << 20, (1 << 20) + 1}, {4 << 20, 1 << 20}};
    char says[64];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(says, sizeof says,
                 "rank 3 expected %zu bytes from rank 0 (tag 0x6) and met a message",
                 cases[i].expected);
        refuse(differ, &cases[i], FO_INTERNAL, says);
    }
}

/* ---- more than an int counts ---- */

/* A word a page is looked at, and the last ones. */
static uint64_t word_at(size_t i)
{
    return i * UINT64_C(0x9E3779B97F4A7C15) + 1;
}

static fo_status huge(fo_endpoint *e, void *arg)
{
    (void)arg;
    size_t bytes = ((size_t)9 << 28) + 12344, count = bytes / 8; /* 2.25 GiB and a bit */
    fo_request request = {0};
    uint64_t *data = e->rank < 2 ? e->ops->alloc(e, bytes) : NULL;
    if (e->rank >= 2)
        return FO_OK;
    CHECK(data);
    for (size_t i = 0; i < count && e->rank == 0; i += i + 600 < count ? 509 : 1)
        data[i] = word_at(i);
    TRY(e->rank == 0 ? e->ops->isend(e, &request, 1, 1, data, bytes, 0)
                     : e->ops->irecv(e, &request, 0, 1, data, bytes));
    TRY(ranks_wait(e, &request));
    for (size_t i = 0; i < count && e->rank == 1; i += i + 600 < count ? 509 : 1)
        if (data[i] != word_at(i) || (i + 600 < count && data[i + 1] != 0))
            return fo_base_error(FO_INTERNAL, "word %zu of %zu is wrong", i, count);
    e->ops->free(e, data);
    return FO_OK;
}

static void test_huge(void **state)
{
    (void)state;
    if (getenv("FO_TEST_HUGE")) /* test_mpi.sh sets it where there is memory */
        run(RANKS, huge, NULL);
}

/* ---- tags ---- */

/* Every tag that folding or truncation could take for another one, all in flight at the same time. */
static const uint32_t tags[] = {0,          1,          0x7fff,    0x8000,    0xffff,
                                0x10000,    0x10001,    0xfffff,   0x7ffffff, 0xffff0000,
                                0xffff0001, 0xffff7fff, 0xffffffff};
enum { TAGS = sizeof tags / sizeof *tags };

static fo_status many_tags(fo_endpoint *e, void *arg)
{
    (void)arg;
    fo_request sends[RANKS][TAGS], receives[RANKS][TAGS];
    uint64_t out[RANKS][TAGS], in[RANKS][TAGS];
    memset(sends, 0, sizeof sends);
    memset(receives, 0, sizeof receives);
    for (int p = 0; p < e->size; p++)
        for (int t = 0; t < TAGS; t++) {
            int at = (t * 5 + e->rank) % TAGS;
            out[p][at] = ((uint64_t)tags[at] << 32) + (uint64_t)(e->rank * 100 + p);
            TRY(e->ops->isend(e, &sends[p][at], p, tags[at], &out[p][at], 8, 0));
        }
    for (int p = 0; p < e->size; p++)
        for (int t = TAGS - 1; t >= 0; t--)
            TRY(e->ops->irecv(e, &receives[p][t], p, tags[t], &in[p][t], 8));
    for (int p = 0; p < e->size; p++)
        for (int t = 0; t < TAGS; t++) {
            TRY(ranks_wait(e, &receives[p][t]));
            TRY(ranks_wait(e, &sends[p][t]));
            CHECK(in[p][t] == ((uint64_t)tags[t] << 32) + (uint64_t)(p * 100 + e->rank));
        }
    return FO_OK;
}

static void test_tags(void **state)
{
    (void)state;
    run(RANKS, many_tags, NULL);
}

/* ---- requests that are posted again and again ---- */

enum { ROUNDS = 60, MOST = 70000, CHANNELS = 3 };

/* What round `i` sends on channel c: the same most of the time, then another buffer, size, tag or peer. */
static size_t bytes_of(int i, int c)
{
    static const size_t bytes[CHANNELS] = {0, 40, 66000};
    return i % 20 < 15 ? bytes[c] : bytes[c] + (size_t)(i % 20) * 8;
}

static uint32_t tag_of(int i, int c)
{
    return (uint32_t)(i % 12 < 9 ? c : 100 + c);
}

static int distance_of(int i)
{
    return i % 30 < 20 ? 1 : 3;
}

static fo_status again(fo_endpoint *e, void *arg)
{
    (void)arg;
    fo_request sends[CHANNELS] = {{.fixed = true}, {.fixed = true}, {.fixed = true}};
    fo_request receives[CHANNELS] = {{.fixed = true}, {.fixed = true}, {.fixed = true}};
    unsigned char *memory = e->ops->alloc(e, 4 * CHANNELS * MOST);
    CHECK(memory);
    for (int i = 0; i < ROUNDS; i++) {
        int to = (e->rank + distance_of(i)) % e->size,
            from = (e->rank + e->size - distance_of(i)) % e->size;
        int place = i % 25 < 18 ? 0 : 1; /* of two buffers */
        for (int c = 0; c < CHANNELS; c++) {
            unsigned char *out = memory + (place * CHANNELS + c) * MOST;
            unsigned char *in = out + 2 * CHANNELS * MOST;
            receives[c].fixed = sends[c].fixed = i % 17 != 16; /* once in a while an ordinary one */
            TRY(e->ops->irecv(e, &receives[c], from, tag_of(i, c), in, bytes_of(i, c)));
        }
        for (int c = 0; c < CHANNELS; c++) {
            unsigned char *out = memory + (place * CHANNELS + c) * MOST;
            ranks_fill(out, bytes_of(i, c), e->rank, to, (uint64_t)(i * CHANNELS + c));
            TRY(e->ops->isend(e, &sends[c], to, tag_of(i, c), out, bytes_of(i, c), 0));
        }
        for (int c = 0; c < CHANNELS; c++) {
            TRY(ranks_wait(e, &receives[c]));
            TRY(ranks_compare(receives[c].data, bytes_of(i, c), from, e->rank,
                              (uint64_t)(i * CHANNELS + c)));
            TRY(ranks_wait(e, &sends[c]));
        }
        if (i == 40)
            for (int c = 0; c < CHANNELS; c++) {
                e->ops->forget(e, &sends[c]);
                e->ops->forget(e, &receives[c]);
            }
    }
    for (int c = 0; c < CHANNELS; c++) {
        e->ops->forget(e, &sends[c]);
        e->ops->forget(e, &receives[c]);
        e->ops->forget(e, &receives[c]); /* once more does no harm */
    }
    e->ops->free(e, memory);
    return FO_OK;
}

static void test_again(void **state)
{
    (void)state;
    run(RANKS, again, NULL);
    run(RANKS, again, NULL); /* in communicators that were kept */
}

static fo_status again_other_size(fo_endpoint *e, void *arg)
{
    (void)arg;
    fo_request request = {.fixed = true};
    char bytes[64] = {0};
    for (int i = 0; i < 3 && e->rank < 2; i++) {
        size_t size = e->rank == 1 && i == 2 ? 48 : 32;
        TRY(e->rank == 0 ? e->ops->isend(e, &request, 1, 1, bytes, size, 0)
                         : e->ops->irecv(e, &request, 0, 1, bytes, size));
        TRY(ranks_wait(e, &request));
    }
    return FO_OK;
}

static void test_again_other_size(void **state)
{
    (void)state;
    refuse(again_other_size, NULL, FO_INTERNAL,
           "expected 48 bytes from rank 0 (tag 0x1) and met a message of 32");
}

/* ---- thousands of small ones, in any order ---- */

static fo_status storm(fo_endpoint *e, void *arg)
{
    enum { MANY = 3000 };
    (void)arg;
    size_t all = (size_t)e->size * MANY;
    fo_request *sends = calloc(all, sizeof *sends), *receives = calloc(all, sizeof *receives);
    uint64_t *out = calloc(all, sizeof *out), *in = calloc(all, sizeof *in);
    CHECK(sends && receives && out && in);
    for (size_t i = 0; i < all; i++) { /* 7 and 11 do not divide */
        size_t s = (i * 7 + (size_t)e->rank) % all, r = (i * 11 + (size_t)e->rank * 5) % all;
        out[s] = s * 1000 + (size_t)e->rank;
        TRY(e->ops->irecv(e, &receives[r], (int)(r / MANY), (uint32_t)(r % MANY), &in[r], 8));
        TRY(e->ops->isend(e, &sends[s], (int)(s / MANY), (uint32_t)(s % MANY), &out[s], 8, 0));
        if (i % 100 == 0)
            TRY(e->ops->progress(e));
    }
    for (size_t i = 0; i < all; i++) {
        size_t r = (i * 7 + 3) % all;
        TRY(ranks_wait(e, &receives[r]));
        CHECK(in[r] == ((size_t)e->rank * MANY + r % MANY) * 1000 + r / MANY);
    }
    for (size_t i = 0; i < all; i++)
        TRY(ranks_wait(e, &sends[i]));
    free(sends);
    free(receives);
    free(out);
    free(in);
    return FO_OK;
}

static void test_storm(void **state)
{
    (void)state;
    run(RANKS, storm, NULL);
}

/* ---- groups of a group ---- */

/* Everyone tells everyone; `key` makes the messages of groups differ. */
static fo_status all_to_all(fo_endpoint *e, int key)
{
    fo_request sends[RANKS] = {{0}}, receives[RANKS] = {{0}};
    int out[RANKS], in[RANKS];
    for (int p = 0; p < e->size; p++) {
        out[p] = key * 1000 + e->rank * 10 + p;
        TRY(e->ops->isend(e, &sends[p], p, 1, &out[p], sizeof(int), 0));
    }
    for (int p = 0; p < e->size; p++)
        TRY(e->ops->irecv(e, &receives[p], p, 1, &in[p], sizeof(int)));
    for (int p = 0; p < e->size; p++) {
        TRY(ranks_wait(e, &receives[p]));
        TRY(ranks_wait(e, &sends[p]));
        CHECK(in[p] == key * 1000 + p * 10 + e->rank);
    }
    return FO_OK;
}

static fo_status halves(fo_endpoint *e, void *arg)
{
    (void)arg;
    int odd = e->rank % 2, members[2] = {odd, odd + 2}, both[2] = {0, 1}, alone = e->rank / 2;
    fo_endpoint *half, *again_half, *single;
    TRY(e->ops->split(e, members, 2, &half));
    CHECK(half->size == 2 && half->rank == e->rank / 2 && half->deadline_ns == e->deadline_ns);
    CHECK(strcmp(half->places[1].host, e->places[odd + 2].host) == 0);
    CHECK(half->places[half->rank].pid == getpid());
    TRY(half->ops->split(half, both, 2, &again_half));
    TRY(half->ops->split(half, &alone, 1, &single));
    CHECK(single->size == 1 && single->rank == 0);
    /* the same peers and tags in all of them at the same time */
    fo_request early = {0}, late = {0};
    int what = 7, found = 0, other = 1 - half->rank;
    TRY(half->ops->isend(half, &early, other, 1, &what, sizeof what, 0));
    TRY(all_to_all(again_half, 1));
    TRY(all_to_all(e, 2));
    TRY(all_to_all(single, 3));
    TRY(half->ops->irecv(half, &late, other, 1, &found, sizeof found));
    TRY(ranks_wait(half, &late));
    TRY(ranks_wait(e, &early)); /* one engine for all */
    CHECK(found == 7);
    TRY(all_to_all(half, 4));
    single->ops->close(single);
    again_half->ops->close(again_half);
    half->ops->close(half);
    return all_to_all(e, 5);
}

static void test_halves(void **state)
{
    (void)state;
    run(RANKS, halves, NULL);
    run(RANKS, halves, NULL);
}

static fo_status half_fails(fo_endpoint *e, void *arg)
{
    (void)arg;
    int odd = e->rank % 2, members[2] = {odd, odd + 2};
    fo_endpoint *half;
    fo_request request = {0};
    char byte;
    TRY(e->ops->split(e, members, 2, &half));
    TRY(all_to_all(e, 6)); /* nobody is inside the library any more */
    if (e->rank == 3)
        ranks_fail(half, half->rank, "has had enough");
    TRY(half->ops->irecv(half, &request, 1 - half->rank, 1, &byte, 1));
    return ranks_wait(half, &request);
}

static void test_half_fails(void **state)
{
    (void)state;
    refuse(half_fails, NULL, FO_PEER, "rank 3: has had enough");
}

/* ---- the library's own collectives ---- */

typedef struct shape {
    int64_t counts[RANKS];
    fo_dtype dtype;
    bool blocking;
} shape;

/* Small whole numbers: every order of summation gives the same sum, in bfloat16 too. */
static float value_at(int rank, int64_t i)
{
    return (float)((rank * 7 + (int)(i % 31)) % 32);
}

static void put(void *memory, fo_dtype dtype, int64_t i, float value)
{
    if (dtype == FO_BF16)
        ((fo_bf16 *)memory)[i] = fo_base_bf16_from_f32(value);
    else
        ((float *)memory)[i] = value;
}

static float get(const void *memory, fo_dtype dtype, int64_t i)
{
    return dtype == FO_BF16 ? fo_base_bf16_to_f32(((const fo_bf16 *)memory)[i])
                            : ((const float *)memory)[i];
}

static fo_status run_collective(fo_endpoint *e, const shape *s, fo_collective_kind kind,
                                fo_request *request, void *in, void *out)
{
    fo_collective what = {.kind = kind,
                          .dtype = s->dtype,
                          .send = in,
                          .recv = out,
                          .counts = s->counts,
                          .blocking = s->blocking};
    TRY(e->ops->collective(e, request, &what));
    if (s->blocking)
        CHECK(e->ops->test(e, request) == FO_OK);
    return FO_OK;
}

static fo_status check_gather(const fo_endpoint *e, const shape *s, const void *out)
{
    for (int64_t r = 0, at = 0; r < e->size; r++)
        for (int64_t i = 0; i < s->counts[r]; i++, at++)
            if (get(out, s->dtype, at) != value_at((int)r, i))
                return fo_base_error(FO_INTERNAL, "all-gather: element %lld is %g", (long long)at,
                                     get(out, s->dtype, at));
    return FO_OK;
}

static fo_status check_scatter(const fo_endpoint *e, const shape *s, const void *out)
{
    int64_t first = 0;
    for (int r = 0; r < e->rank; r++)
        first += s->counts[r];
    for (int64_t i = 0; i < s->counts[e->rank]; i++) {
        float sum = 0;
        for (int r = 0; r < e->size; r++)
            sum += value_at(r, first + i);
        if (get(out, s->dtype, i) != sum)
            return fo_base_error(FO_INTERNAL, "reduce-scatter: element %lld is %g, expected %g",
                                 (long long)i, get(out, s->dtype, i), sum);
    }
    return FO_OK;
}

/* Both, twice each, all under way together where they do not block. */
static fo_status collectives(fo_endpoint *e, void *arg)
{
    enum { TWICE = 2 };
    const shape *s = arg;
    int64_t total = 0;
    for (int r = 0; r < e->size; r++)
        total += s->counts[r];
    size_t bytes = (size_t)total * 4 + 4;
    fo_request requests[2 * TWICE] = {{0}};
    char *memory = e->ops->alloc(e, bytes * (2 + 2 * TWICE));
    CHECK(memory);
    void *share = memory, *whole = memory + bytes;
    for (int64_t i = 0; i < total; i++)
        put(whole, s->dtype, i, value_at(e->rank, i));
    for (int64_t i = 0; i < s->counts[e->rank]; i++)
        put(share, s->dtype, i, value_at(e->rank, i));
    for (int k = 0; k < 2 * TWICE; k++)
        TRY(run_collective(e, s, k % 2 ? FO_COLLECTIVE_REDUCE_SCATTER : FO_COLLECTIVE_ALL_GATHER,
                           &requests[k], k % 2 ? whole : share, memory + bytes * (size_t)(2 + k)));
    for (int k = 2 * TWICE - 1; k >= 0; k--) {
        TRY(ranks_wait(e, &requests[k]));
        TRY(k % 2 ? check_scatter(e, s, memory + bytes * (size_t)(2 + k))
                  : check_gather(e, s, memory + bytes * (size_t)(2 + k)));
    }
    e->ops->free(e, memory);
    return FO_OK;
}

static void test_collectives(void **state)
{
    (void)state;
    static const int64_t counts[][RANKS] = {{1, 1, 1, 1},
                                            {1000, 1000, 1000, 1000},
                                            {0, 3, 1, 2},
                                            {70000, 1, 0, 33333},
                                            {100000, 100000, 100000, 100000}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int kind = 0; kind < 4; kind++) {
            shape s = {.dtype = kind % 2 ? FO_BF16 : FO_F32, .blocking = kind / 2};
            memcpy(s.counts, counts[i], sizeof s.counts);
            run(RANKS, collectives, &s);
        }
}

/* bfloat16 is rounded once an addition, to nearest even: 256 + 1 is 256, 256 + 3 is 260. */
static fo_status rounding(fo_endpoint *e, void *arg)
{
    (void)arg;
    int64_t counts[2] = {1, 1};
    int pair[2] = {0, 1};
    fo_endpoint *two;
    if (e->rank > 1)
        return FO_OK;
    TRY(e->ops->split(e, pair, 2, &two));
    fo_bf16 in[2] = {fo_base_bf16_from_f32(e->rank ? 1 : 256),
                     fo_base_bf16_from_f32(e->rank ? 3 : 256)},
            out = 0;
    fo_request request = {0};
    fo_collective what = {.kind = FO_COLLECTIVE_REDUCE_SCATTER,
                          .dtype = FO_BF16,
                          .send = in,
                          .recv = &out,
                          .counts = counts,
                          .blocking = true};
    TRY(two->ops->collective(two, &request, &what));
    CHECK(fo_base_bf16_to_f32(out) == (e->rank ? 260 : 256));
    two->ops->close(two);
    return FO_OK;
}

static void test_rounding(void **state)
{
    (void)state;
    run(RANKS, rounding, NULL);
}

static fo_status too_many(fo_endpoint *e, void *arg)
{
    (void)arg;
    int64_t counts[RANKS] = {INT64_C(1) << 30, INT64_C(1) << 30, 1, 1};
    fo_request request = {0};
    fo_collective what = {.counts = counts};
    CHECK(e->ops->collective(e, &request, &what) == FO_UNSUPPORTED);
    CHECK(strstr(fo_last_error(), "2147483650 elements, at most 2147483647"));
    return FO_OK;
}

static void test_too_many(void **state)
{
    (void)state;
    run(RANKS, too_many, NULL);
}

/* ---- progress ---- */

/* A large message moves while both ranks only look in once a millisecond. */
static fo_status moves(fo_endpoint *e, void *arg)
{
    enum { BYTES = 32 << 20 };
    (void)arg;
    if (e->rank > 1)
        return FO_OK;
    fo_request requests[2] = {{0}};
    unsigned char *memory = e->ops->alloc(e, (size_t)2 * BYTES);
    CHECK(memory);
    ranks_fill(memory, 1000, e->rank, 1 - e->rank, 1);
    TRY(e->ops->irecv(e, &requests[0], 1 - e->rank, 1, memory + BYTES, BYTES));
    TRY(e->ops->isend(e, &requests[1], 1 - e->rank, 1, memory, BYTES, 0));
    int64_t begin = fo_base_clock_ns();
    int left = 2, looks = 0;
    while (left > 0) {
        int64_t until = fo_base_clock_ns() + MS; /* computes */
        while (fo_base_clock_ns() < until)
            ;
        TRY(e->ops->progress(e));
        looks++;
        left = (e->ops->test(e, &requests[0]) == FO_IN_PROGRESS) +
               (e->ops->test(e, &requests[1]) == FO_IN_PROGRESS);
    }
    if (e->rank == 0 && getenv("FO_TEST_TELL"))
        print_message("32 MiB each way in %.1f ms, %d looks\n",
                      (double)(fo_base_clock_ns() - begin) * 1e-6, looks);
    TRY(ranks_compare(memory + BYTES, 1000, 1 - e->rank, e->rank, 1));
    CHECK(looks < 5000);
    e->ops->free(e, memory);
    return FO_OK;
}

static void test_moves(void **state)
{
    (void)state;
    run(RANKS, moves, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tags),
        cmocka_unit_test(test_again),
        cmocka_unit_test(test_storm),
        cmocka_unit_test(test_halves),
        cmocka_unit_test(test_collectives),
        cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_moves),
        cmocka_unit_test(test_huge),
        cmocka_unit_test(test_half_fails),
        cmocka_unit_test(test_again_other_size),
        cmocka_unit_test(test_sizes_that_differ),
    };
    if (ranks_job_size() != RANKS) {
        fprintf(stderr, "messages: started with %d processes, expected %d\n", ranks_job_size(),
                RANKS);
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
