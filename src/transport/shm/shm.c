/* The endpoint of one process: messages are cells in shared memory that point to the sender's data.
 */
#include "transport/shm/shm.h"

#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"

enum { CELLS_A_CHUNK = 64, LOOKS_A_CLOCK = 32 };

static shm_endpoint *shm_of(fo_endpoint *endpoint)
{
    return (shm_endpoint *)endpoint;
}

static inline bool has_failed(const shm_endpoint *shm)
{
    return fo_transport_failure_seen(&shm->shared->failure);
}

static fo_status report_failure(const shm_endpoint *shm)
{
    return fo_transport_failure_report(&shm->shared->failure, FO_PEER);
}

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

void fo_transport_shm_ring(shm_shared *shared, int to)
{
    shm_mailbox *box = &shared->mailboxes[to];
    /* sequentially consistent with the sleeper's store to `sleeping` and its last look at `events`:
     * one of the two sees the other */
    atomic_fetch_add(&box->events, 1);
    /* only the sleep that was seen: whoever is held up here must not take back the word of a later one, which
     * would then sleep unheard */
    unsigned asleep = atomic_load(&box->sleeping);
    if (asleep && atomic_compare_exchange_strong(&box->sleeping, &asleep, 0))
        syscall(SYS_futex, &box->events, FUTEX_WAKE, 1, NULL, NULL, 0);
}

void fo_transport_shm_declare(shm_shared *shared, int writer, int rank, const char *cause)
{
    if (!fo_transport_failure_declare(&shared->failure, writer, rank, cause))
        return;
    for (int r = 0; r < shared->size; r++)
        fo_transport_shm_ring(shared, r);
}

/* The last thing done with a message by its receiver: the cell is the sender's again. */
static void finish(shm_endpoint *shm, fo_message *message)
{
    int sender = message->source;
    atomic_store_explicit(&message->done, 1, memory_order_release);
    fo_transport_shm_ring(shm->shared, sender);
}

static fo_message *take_cell(shm_endpoint *shm)
{
    if (!shm->free_cells) {
        fo_message *cells =
            fo_transport_arena_take(&shm->arena, CELLS_A_CHUNK * sizeof *cells, false);
        for (int i = 0; cells && i < CELLS_A_CHUNK; i++) {
            cells[i].next = shm->free_cells;
            shm->free_cells = &cells[i];
        }
    }
    fo_message *cell = shm->free_cells;
    if (cell)
        shm->free_cells = cell->next;
    return cell;
}

static bool is_shared(const shm_endpoint *shm, const void *data, size_t bytes)
{
    uintptr_t begin = (uintptr_t)shm->shared->arenas, at = (uintptr_t)data;
    size_t whole = shm->shared->arena_bytes * (size_t)shm->base.size;
    return at >= begin && at - begin < whole && bytes <= whole - (at - begin);
}

static fo_status shm_isend(fo_endpoint *endpoint, fo_request *request, int peer, uint32_t tag,
                           const void *data, size_t bytes, uint64_t imm)
{
    shm_endpoint *shm = shm_of(endpoint);
    if (has_failed(shm))
        return report_failure(shm);
    fo_message *cell = take_cell(shm);
    if (!cell)
        return fo_base_error(FO_NO_MEMORY, "no shared memory left for a message");
    cell->bounce = NULL;
    if (bytes && !is_shared(shm, data, bytes)) {
        cell->bounce = fo_transport_arena_take(&shm->arena, bytes, false);
        if (!cell->bounce) {
            cell->next = shm->free_cells;
            shm->free_cells = cell;
            return fo_base_error(FO_NO_MEMORY,
                                 "no shared memory left to send %zu bytes from private memory",
                                 bytes);
        }
        data = memcpy(cell->bounce, data, bytes);
    }
    fo_transport_match_describe(request, FO_REQUEST_SEND, peer, tag, NULL, bytes);
    request->scratch[0] = (uint64_t)(uintptr_t)cell;
    cell->data = data;
    cell->bytes = bytes;
    cell->imm = imm;
    cell->tag = tag;
    cell->source = shm->base.rank;
    atomic_store_explicit(&cell->done, 0, memory_order_relaxed);

    shm_mailbox *box = &shm->shared->mailboxes[peer];
    fo_message *head = atomic_load_explicit(&box->inbox, memory_order_relaxed);
    do
        cell->next = head;
    while (!atomic_compare_exchange_weak_explicit(&box->inbox, &head, cell, memory_order_release,
                                                  memory_order_relaxed));
    fo_transport_shm_ring(shm->shared, peer);
    return FO_OK;
}

static fo_status post(shm_endpoint *shm, fo_request *request)
{
    if (has_failed(shm)) /* the lists may hold requests that were abandoned */
        return report_failure(shm);
    fo_message *message = fo_transport_match_post(&shm->match, request);
    if (message && fo_transport_match_deliver(request, message))
        finish(shm, message);
    return FO_OK;
}

static fo_status shm_irecv(fo_endpoint *endpoint, fo_request *request, int peer, uint32_t tag,
                           void *buffer, size_t bytes)
{
    fo_transport_match_describe(request, FO_REQUEST_RECV, peer, tag, buffer, bytes);
    return post(shm_of(endpoint), request);
}

static fo_status shm_irecv_view(fo_endpoint *endpoint, fo_request *request, int peer, uint32_t tag,
                                size_t bytes)
{
    fo_transport_match_describe(request, FO_REQUEST_VIEW, peer, tag, NULL, bytes);
    return post(shm_of(endpoint), request);
}

/* Takes over the inbox, turns it round (the newest is on top) and matches. */
static void drain_inbox(shm_endpoint *shm)
{
    fo_message *newest = atomic_exchange_explicit(&shm->mailbox->inbox, NULL, memory_order_acquire);
    fo_message *oldest = NULL;
    while (newest) {
        fo_message *next = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    while (oldest) {
        fo_message *next = oldest->next;
        fo_request *request = fo_transport_match_arrive(&shm->match, oldest);
        if (request && fo_transport_match_deliver(request, oldest))
            finish(shm, oldest);
        oldest = next;
    }
}

static fo_status shm_progress(fo_endpoint *endpoint)
{
    shm_endpoint *shm = shm_of(endpoint);
    if (has_failed(shm))
        return report_failure(shm);
    if (atomic_load_explicit(&shm->mailbox->inbox, memory_order_relaxed))
        drain_inbox(shm);
    return FO_OK;
}

static fo_status shm_test(fo_endpoint *endpoint, fo_request *request)
{
    shm_endpoint *shm = shm_of(endpoint);
    fo_status status = shm_progress(endpoint);
    if (status != FO_OK)
        return status;
    if (request->kind != FO_REQUEST_SEND)
        return fo_transport_match_result(request, shm->base.rank);
    fo_message *cell = (fo_message *)(uintptr_t)request->scratch[0];
    if (!cell) /* tested before */
        return FO_OK;
    if (!atomic_load_explicit(&cell->done, memory_order_acquire))
        return FO_IN_PROGRESS;
    if (cell->bounce)
        fo_transport_arena_give(&shm->arena, cell->bounce, true);
    cell->next = shm->free_cells;
    shm->free_cells = cell;
    request->scratch[0] = 0;
    return FO_OK;
}

static void shm_release(fo_endpoint *endpoint, fo_request *request)
{
    fo_message *message = fo_transport_match_viewed(request);
    request->scratch[0] = 0;
    if (message)
        finish(shm_of(endpoint), message);
}

static bool has_news(const shm_endpoint *shm)
{
    return atomic_load_explicit(&shm->mailbox->events, memory_order_acquire) != shm->seen;
}

static void spin_until(const shm_endpoint *shm, int64_t until_ns)
{
    while (!has_news(shm) && fo_base_clock_ns() < until_ns)
        for (int look = 0; look < LOOKS_A_CLOCK && !has_news(shm); look++)
            relax();
}

static void sleep_until(shm_endpoint *shm, int64_t until_ns)
{
    shm_mailbox *box = shm->mailbox;
    struct timespec until = {.tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000};
    shm->sleep += shm->sleep == UINT32_MAX ? 2 : 1; /* never 0 */
    atomic_store(&box->sleeping, shm->sleep);
    if (atomic_load(&box->events) == shm->seen) /* the kernel looks once more */
        syscall(SYS_futex, &box->events, FUTEX_WAIT_BITSET, shm->seen, &until, NULL,
                FUTEX_BITSET_MATCH_ANY);
    atomic_store(&box->sleeping, 0);
}

static fo_status shm_wait(fo_endpoint *endpoint, int64_t until_ns)
{
    shm_endpoint *shm = shm_of(endpoint);
    if (!has_news(shm)) {
        int64_t now = fo_base_clock_ns(), spin_end = now + shm->spin_ns;
        if (shm->spin_ns > 0)
            spin_until(shm, spin_end < until_ns ? spin_end : until_ns);
        if (!has_news(shm) && (shm->spin_ns > 0 ? spin_end : now) < until_ns)
            sleep_until(shm, until_ns);
    }
    shm->seen = atomic_load_explicit(&shm->mailbox->events, memory_order_acquire);
    return has_failed(shm) ? report_failure(shm) : FO_OK;
}

static void *shm_alloc(fo_endpoint *endpoint, size_t bytes)
{
    shm_endpoint *shm = shm_of(endpoint);
    void *memory = fo_transport_arena_take(&shm->arena, bytes, true);
    if (!memory)
        fo_base_error(FO_NO_MEMORY,
                      "rank %d has no run of %zu free bytes in its %zu bytes of shared memory",
                      shm->base.rank, bytes, shm->arena.size);
    return memory;
}

static void shm_free(fo_endpoint *endpoint, void *memory)
{
    if (memory)
        fo_transport_arena_give(&shm_of(endpoint)->arena, memory, false);
}

static void shm_fail(fo_endpoint *endpoint, int rank, const char *cause)
{
    fo_transport_shm_declare(shm_of(endpoint)->shared, endpoint->rank, rank, cause);
}

static void shm_witness(fo_endpoint *endpoint, const char *where)
{
    fo_transport_failure_witness(&shm_of(endpoint)->shared->failure, endpoint->rank, where);
}

static bool shm_interrupted(fo_endpoint *endpoint)
{
    return atomic_load_explicit(&shm_of(endpoint)->shared->interrupted, memory_order_relaxed) != 0;
}

const fo_transport_ops fo_transport_shm_ops = {
    .name = "shm",
    .caps = FO_TRANSPORT_VIEW | FO_TRANSPORT_IMM | FO_TRANSPORT_PROCESS,
    .isend = shm_isend,
    .irecv = shm_irecv,
    .irecv_view = shm_irecv_view,
    .test = shm_test,
    .release = shm_release,
    .progress = shm_progress,
    .wait = shm_wait,
    .alloc = shm_alloc,
    .free = shm_free,
    .fail = shm_fail,
    .interrupted = shm_interrupted,
    .witness = shm_witness,
};

fo_status fo_transport_shm_open(shm_endpoint *shm, shm_shared *shared, int rank,
                                const fo_transport_options *options, int64_t spin_ns)
{
    double deadline_s = options->deadline_s > 0 ? options->deadline_s : 60;
    *shm = (shm_endpoint){
        .base = {.ops = &fo_transport_shm_ops, .rank = rank, .size = shared->size},
        .shared = shared,
        .mailbox = &shared->mailboxes[rank],
        .spin_ns = spin_ns,
    };
    shm->base.deadline_ns = (int64_t)(deadline_s * 1e9);
    fo_status status = fo_transport_match_init(&shm->match, shared->size);
    if (status != FO_OK)
        return status;
    return fo_transport_arena_init(&shm->arena, shared->arenas + (size_t)rank * shared->arena_bytes,
                                   shared->arena_bytes);
}

void fo_transport_shm_close(shm_endpoint *shm)
{
    fo_transport_match_free(&shm->match);
    fo_transport_arena_free(&shm->arena);
}
