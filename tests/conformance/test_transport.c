/* What every transport must do with messages. Loops over the registry; a new transport edits
 * nothing. */
#include "conformance/ranks.h"

#include "base/random.h"

static const int all_counts[] = {1, 2, 3, 5, 8, 0};

/* ---- sizes: everyone to everyone, themselves included ---- */

static const size_t sizes[] = {0, 1, 3, 63, 64, 65, 4096, 65537, 300000};
enum { SIZES = sizeof sizes / sizeof *sizes, LARGEST = 300000 };

static bool can_view(const fo_endpoint *endpoint)
{
    return (endpoint->ops->caps & FO_TRANSPORT_VIEW) != 0;
}

/* Receives one message of every size from every rank, by copy or by view, and compares. */
static fo_status receive_all(fo_endpoint *e, fo_request *requests, unsigned char *memory, bool view)
{
    for (int peer = 0; peer < e->size; peer++)
        for (int s = 0; s < SIZES; s++) {
            fo_request *request = &requests[peer * SIZES + s];
            TRY(view ? e->ops->irecv_view(e, request, peer, 9, sizes[s])
                     : e->ops->irecv(e, request, peer, 9,
                                     memory + (size_t)(peer * SIZES + s) * LARGEST, sizes[s]));
        }
    for (int i = e->size * SIZES - 1; i >= 0; i--) {
        TRY(ranks_wait(e, &requests[i]));
        CHECK(requests[i].peer == i / SIZES && requests[i].bytes == sizes[i % SIZES]);
        if (e->ops->caps & FO_TRANSPORT_IMM)
            CHECK(requests[i].imm == (uint64_t)i % SIZES + (UINT64_C(1) << 63));
        TRY(ranks_compare(requests[i].data, sizes[i % SIZES], i / SIZES, e->rank,
                          (uint64_t)i % SIZES));
        if (view)
            e->ops->release(e, &requests[i]);
    }
    return FO_OK;
}

static fo_status send_all(fo_endpoint *e, fo_request *requests, unsigned char *memory)
{
    for (int peer = 0; peer < e->size; peer++)
        for (int s = 0; s < SIZES; s++) {
            unsigned char *data = memory + (size_t)(peer * SIZES + s) * LARGEST;
            ranks_fill(data, sizes[s], e->rank, peer, (uint64_t)s);
            TRY(e->ops->isend(e, &requests[peer * SIZES + s], peer, 9, data, sizes[s],
                              (uint64_t)s + (UINT64_C(1) << 63)));
        }
    return FO_OK;
}

static fo_status every_size(fo_endpoint *e, void *arg)
{
    size_t messages = (size_t)e->size * SIZES;
    bool shared = arg != NULL;
    fo_request *requests = calloc(2 * messages, sizeof *requests);
    unsigned char *out = shared ? e->ops->alloc(e, messages * LARGEST) : malloc(messages * LARGEST);
    unsigned char *in = malloc(messages * LARGEST);
    CHECK(requests && out && in);
    for (int view = 0; view <= (can_view(e) ? 1 : 0); view++) {
        TRY(send_all(e, requests, out));
        TRY(receive_all(e, requests + messages, in, view));
        for (size_t i = 0; i < messages; i++)
            TRY(ranks_wait(e, &requests[i]));
    }
    if (shared)
        e->ops->free(e, out);
    else
        free(out);
    free(in);
    free(requests);
    return FO_OK;
}

static void test_every_size(void **state)
{
    (void)state;
    int shared = 1;
    ranks_everywhere(all_counts, every_size, NULL);
    ranks_everywhere(all_counts, every_size, &shared);
}

/* ---- 64 MiB, every 32-bit element distinct ---- */

static fo_status check_numbers(const uint32_t *data, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (data[i] != (uint32_t)i)
            return fo_base_error(FO_INTERNAL, "element %zu is %u", i, data[i]);
    return FO_OK;
}

static fo_status large(fo_endpoint *e, void *arg)
{
    size_t count = (size_t)16 << 20, bytes = count * 4;
    bool shared = arg != NULL;
    fo_request request = {0};
    if (e->rank == 0) {
        uint32_t *data = shared ? e->ops->alloc(e, bytes) : malloc(bytes);
        CHECK(data);
        for (size_t i = 0; i < count; i++)
            data[i] = (uint32_t)i;
        for (uint32_t tag = 0; tag < 2; tag++) {
            TRY(e->ops->isend(e, &request, 1, tag, data, bytes, 0));
            TRY(ranks_wait(e, &request));
        }
        if (shared)
            e->ops->free(e, data);
        else
            free(data);
    } else if (e->rank == 1) {
        uint32_t *data = malloc(bytes);
        CHECK(data);
        TRY(e->ops->irecv(e, &request, 0, 0, data, bytes));
        TRY(ranks_wait(e, &request));
        TRY(check_numbers(data, count));
        if (can_view(e)) {
            TRY(e->ops->irecv_view(e, &request, 0, 1, bytes));
            TRY(ranks_wait(e, &request));
            TRY(check_numbers(request.data, count));
            e->ops->release(e, &request);
        } else {
            TRY(e->ops->irecv(e, &request, 0, 1, data, bytes));
            TRY(ranks_wait(e, &request));
        }
        free(data);
    }
    return FO_OK;
}

static void test_large(void **state)
{
    (void)state;
    static const int counts[] = {2, 0};
    int shared = 1;
    ranks_everywhere(counts, large, NULL);
    ranks_everywhere(counts, large, &shared);
}

/* ---- order ---- */

enum { TAGS = 300, ROUNDS = 3 };

/* Everyone sends TAGS tags in order, ROUNDS times; the receives are posted with the tags backwards.
 */
static fo_status tags_backwards(fo_endpoint *e, void *arg)
{
    (void)arg;
    int to = (e->rank + 1) % e->size, from = (e->rank + e->size - 1) % e->size;
    static _Thread_local uint32_t out[TAGS * ROUNDS], in[TAGS * ROUNDS];
    static _Thread_local fo_request sends[TAGS * ROUNDS], receives[TAGS * ROUNDS];
    memset(sends, 0, sizeof sends);
    memset(receives, 0, sizeof receives);
    for (int early = 0; early < 2; early++) {
        for (int i = 0; i < TAGS * ROUNDS / 2 && early; i++)
            TRY(e->ops->irecv(e, &receives[i], from, (uint32_t)(TAGS - 1 - i % TAGS), &in[i], 4));
        for (int i = 0; i < TAGS * ROUNDS; i++) {
            out[i] = (uint32_t)(e->rank * 1000000 + i);
            TRY(e->ops->isend(e, &sends[i], to, (uint32_t)(i % TAGS), &out[i], 4, 0));
        }
        for (int i = early ? TAGS * ROUNDS / 2 : 0; i < TAGS * ROUNDS; i++)
            TRY(e->ops->irecv(e, &receives[i], from, (uint32_t)(TAGS - 1 - i % TAGS), &in[i], 4));
        for (int i = 0; i < TAGS * ROUNDS; i++) {
            TRY(ranks_wait(e, &receives[i]));
            int number = i / TAGS * TAGS + TAGS - 1 - i % TAGS;
            CHECK(in[i] == (uint32_t)(from * 1000000 + number));
        }
        for (int i = 0; i < TAGS * ROUNDS; i++)
            TRY(ranks_wait(e, &sends[i]));
    }
    return FO_OK;
}

static void test_tags_backwards(void **state)
{
    (void)state;
    ranks_everywhere(all_counts, tags_backwards, NULL);
}

/* Thousands of messages before the first receive is posted. */
static fo_status flood(fo_endpoint *e, void *arg)
{
    enum { MANY = 5000 };
    (void)arg;
    int peers = e->size - 1;
    fo_request *sends = calloc((size_t)peers * MANY + 1, sizeof *sends), receive = {0};
    uint32_t *out = e->ops->alloc(e, (size_t)peers * MANY * 4), in;
    CHECK(sends && out);
    for (int i = 0; i < MANY; i++)
        for (int p = 0; p < peers; p++) {
            int at = i * peers + p;
            out[at] = (uint32_t)(e->rank * MANY + i);
            TRY(e->ops->isend(e, &sends[at], (e->rank + p + 1) % e->size, 3, &out[at], 4, 0));
        }
    for (int p = 0; p < peers; p++)
        for (int i = 0; i < MANY; i++) {
            int from = (e->rank + p + 1) % e->size;
            TRY(e->ops->irecv(e, &receive, from, 3, &in, 4));
            TRY(ranks_wait(e, &receive));
            CHECK(in == (uint32_t)(from * MANY + i));
        }
    for (int i = 0; i < peers * MANY; i++)
        TRY(ranks_wait(e, &sends[i]));
    e->ops->free(e, out);
    free(sends);
    return FO_OK;
}

static void test_flood(void **state)
{
    (void)state;
    static const int counts[] = {2, 3, 0};
    ranks_everywhere(counts, flood, NULL);
}

/* ---- views ---- */

/* Rank 0's bytes go round the ring as views of views; nobody copies, so all see the same address
 * when it is shared memory. */
static fo_status forwarded_view(fo_endpoint *e, void *arg)
{
    enum { BYTES = 100000 };
    bool shared = arg != NULL;
    if (!can_view(e))
        return FO_OK;
    fo_request in = {0}, out = {0};
    int to = (e->rank + 1) % e->size, from = (e->rank + e->size - 1) % e->size;
    unsigned char *data = NULL;
    if (e->rank == 0) {
        data = shared ? e->ops->alloc(e, BYTES) : malloc(BYTES);
        CHECK(data);
        ranks_fill(data, BYTES, 0, 0, 5);
        TRY(e->ops->isend(e, &out, to, 1, data, BYTES, 0));
    }
    TRY(e->ops->irecv_view(e, &in, from, 1, BYTES));
    TRY(ranks_wait(e, &in));
    TRY(ranks_compare(in.data, BYTES, 0, 0, 5));
    if (e->rank == 0 && shared)
        CHECK(in.data == data);
    if (e->rank != 0) {
        TRY(e->ops->isend(e, &out, to, 1, in.data, BYTES, 0));
        TRY(ranks_wait(e, &out));
    }
    e->ops->release(e, &in);
    if (e->rank == 0) {
        TRY(ranks_wait(e, &out));
        if (shared)
            e->ops->free(e, data);
        else
            free(data);
    }
    return FO_OK;
}

static void test_forwarded_view(void **state)
{
    (void)state;
    int shared = 1;
    ranks_everywhere(all_counts, forwarded_view, NULL);
    ranks_everywhere(all_counts, forwarded_view, &shared);
}

/* The sender is not done before the view is released, and may then write again. */
static fo_status held_view(fo_endpoint *e, void *arg)
{
    (void)arg;
    if (!can_view(e))
        return FO_OK;
    fo_request request = {0}, reply = {0};
    uint64_t *value = e->ops->alloc(e, sizeof *value);
    CHECK(value);
    if (e->rank == 0) {
        *value = 41;
        TRY(e->ops->irecv(e, &reply, 1, 2, NULL, 0));
        TRY(e->ops->isend(e, &request, 1, 1, value, sizeof *value, 0));
        TRY(ranks_wait(e, &reply)); /* rank 1 holds the view now */
        CHECK(e->ops->test(e, &request) == FO_IN_PROGRESS);
        TRY(e->ops->isend(e, &reply, 1, 3, NULL, 0, 0));
        TRY(ranks_wait(e, &reply));
        TRY(ranks_wait(e, &request));
        *value = 43;
    } else if (e->rank == 1) {
        TRY(e->ops->irecv_view(e, &request, 0, 1, sizeof *value));
        TRY(ranks_wait(e, &request));
        TRY(e->ops->isend(e, &reply, 0, 2, NULL, 0, 0));
        TRY(ranks_wait(e, &reply));
        TRY(e->ops->irecv(e, &reply, 0, 3, NULL, 0));
        TRY(ranks_wait(e, &reply));
        CHECK(*(const uint64_t *)request.data == 41);
        e->ops->release(e, &request);
    }
    e->ops->free(e, value);
    return FO_OK;
}

static void test_held_view(void **state)
{
    (void)state;
    static const int counts[] = {2, 3, 0};
    ranks_everywhere(counts, held_view, NULL);
}

/* ---- random traffic against a model ---- */

enum { TRAFFIC = 3000, MOST_BYTES = 3000, WINDOW = 64 };

typedef struct traffic {
    int from, to;
    uint32_t tag;
    size_t bytes;
    bool view, shared;
} traffic;

/* The model: every rank computes the same list of messages. */
static traffic traffic_at(int ranks, uint64_t number)
{
    uint32_t words[4];
    fo_base_random_block(99, (uint64_t)ranks, number, words);
    return (traffic){
        .from = (int)(words[0] % (uint32_t)ranks),
        .to = (int)(words[0] / 1024 % (uint32_t)ranks),
        .tag = words[1] % 4,
        .bytes = words[2] % 8 ? words[2] % 100 : words[2] / 8 % MOST_BYTES,
        .view = words[3] & 1,
        .shared = words[3] & 2,
    };
}

typedef struct slot {
    fo_request request;
    uint64_t number;
    bool busy;
    unsigned char *memory;
} slot;

static fo_status settle(fo_endpoint *e, slot *slots, int index, bool send)
{
    slot *at = &slots[index];
    traffic message = traffic_at(e->size, at->number);
    TRY(ranks_wait(e, &at->request));
    at->busy = false;
    if (send)
        return FO_OK;
    TRY(ranks_compare(at->request.data, message.bytes, message.from, message.to, at->number));
    if (at->request.kind == FO_REQUEST_VIEW)
        e->ops->release(e, &at->request);
    return FO_OK;
}

static fo_status post_send(fo_endpoint *e, slot *at, uint64_t number, unsigned char *private_memory)
{
    traffic message = traffic_at(e->size, number);
    at->number = number;
    at->busy = true;
    unsigned char *memory = message.shared ? at->memory : private_memory;
    ranks_fill(memory, message.bytes, message.from, message.to, number);
    return e->ops->isend(e, &at->request, message.to, message.tag, memory, message.bytes, 0);
}

static fo_status post_receive(fo_endpoint *e, slot *at, uint64_t number)
{
    traffic message = traffic_at(e->size, number);
    at->number = number;
    at->busy = true;
    if (message.view && can_view(e))
        return e->ops->irecv_view(e, &at->request, message.from, message.tag, message.bytes);
    return e->ops->irecv(e, &at->request, message.from, message.tag, at->memory, message.bytes);
}

/* Everyone walks the list of messages in windows: posts its receives and sends of the window in an
 * order of its own, then ends them in another. */
static fo_status random_traffic(fo_endpoint *e, void *arg)
{
    (void)arg;
    slot *sends = calloc(WINDOW, sizeof *sends), *receives = calloc(WINDOW, sizeof *receives);
    unsigned char *shared = e->ops->alloc(e, 2 * WINDOW * MOST_BYTES);
    unsigned char *private_memory = malloc(WINDOW * MOST_BYTES);
    CHECK(sends && receives && shared && private_memory);
    for (int i = 0; i < WINDOW; i++) {
        sends[i].memory = shared + 2 * i * MOST_BYTES;
        receives[i].memory = shared + (2 * i + 1) * MOST_BYTES;
    }
    for (uint64_t first = 0; first < TRAFFIC; first += WINDOW) {
        bool sends_first = fo_base_random_below(5, (uint64_t)e->rank, first, 2);
        for (int pass = 0; pass < 2; pass++)
            for (int i = 0; i < WINDOW; i++) {
                traffic message = traffic_at(e->size, first + (uint64_t)i);
                if ((pass == 0) == sends_first && message.from == e->rank)
                    TRY(post_send(e, &sends[i], first + (uint64_t)i,
                                  private_memory + i * MOST_BYTES));
                if ((pass == 0) != sends_first && message.to == e->rank)
                    TRY(post_receive(e, &receives[i], first + (uint64_t)i));
            }
        int stride = 2 * (int)fo_base_random_below(6, (uint64_t)e->rank, first, WINDOW / 2) + 1;
        for (int i = 0; i < WINDOW; i++)
            if (receives[i * stride % WINDOW].busy)
                TRY(settle(e, receives, i * stride % WINDOW, false));
        for (int i = 0; i < WINDOW; i++)
            if (sends[i].busy)
                TRY(settle(e, sends, i, true));
    }
    e->ops->free(e, shared);
    free(private_memory);
    free(sends);
    free(receives);
    return FO_OK;
}

static void test_random_traffic(void **state)
{
    (void)state;
    ranks_everywhere(all_counts, random_traffic, NULL);
}

/* ---- memory ---- */

static fo_status memory_is_zeroed(fo_endpoint *e, void *arg)
{
    enum { BLOCKS = 40 };
    (void)arg;
    unsigned char *blocks[BLOCKS];
    for (int round = 0; round < 6; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            size_t bytes = (size_t)fo_base_random_below(3, (uint64_t)i, (uint64_t)round,
                                                        i % 8 ? 5000 : 3000000);
            blocks[i] = e->ops->alloc(e, bytes);
            CHECK(blocks[i] && (uintptr_t)blocks[i] % 64 == 0);
            for (size_t b = 0; b < bytes; b++)
                if (blocks[i][b])
                    return fo_base_error(FO_INTERNAL, "byte %zu of %zu is not zero", b, bytes);
            memset(blocks[i], 255, bytes);
        }
        for (int i = 0; i < BLOCKS; i++)
            e->ops->free(e, blocks[(i * 7 + round) % BLOCKS]);
    }
    e->ops->free(e, NULL);
    return FO_OK;
}

static void test_memory(void **state)
{
    (void)state;
    static const int counts[] = {1, 2, 0};
    ranks_everywhere(counts, memory_is_zeroed, NULL);
}

static fo_status endpoint_facts(fo_endpoint *e, void *arg)
{
    CHECK(e->rank >= 0 && e->rank < e->size && e->size == *(int *)arg);
    CHECK(e->deadline_ns == INT64_C(30000000000));
    CHECK(!e->ops->interrupted(e));
    return FO_OK;
}

static void test_registry(void **state)
{
    (void)state;
    assert_non_null(fo_transport_at(0));
    assert_null(fo_transport_at(-1));
    assert_null(fo_transport_find("telepathy"));
    for (int i = 0; fo_transport_at(i); i++) {
        assert_ptr_equal(fo_transport_find(fo_transport_at(i)->ops->name), fo_transport_at(i));
        assert_true(strlen(fo_transport_at(i)->about) > 0);
    }
    for (int ranks = 1; ranks <= 4; ranks++) {
        int counts[] = {ranks, 0};
        ranks_everywhere(counts, endpoint_facts, &ranks);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_registry),  cmocka_unit_test(test_every_size),
        cmocka_unit_test(test_large),     cmocka_unit_test(test_tags_backwards),
        cmocka_unit_test(test_flood),     cmocka_unit_test(test_forwarded_view),
        cmocka_unit_test(test_held_view), cmocka_unit_test(test_random_traffic),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
