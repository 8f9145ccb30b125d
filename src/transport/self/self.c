/* Ranks as threads of one process: the transport to copy, and the one for the thread sanitizer.
 *
 * Every rank has a mailbox: an inbox of messages and a counter of events, under one lock, with a
 * bell (condition variable) to wake it. A sender appends a cell that points to its data; the
 * receiver takes the inbox over, matches (match.h), copies or hands out the pointer, and marks the
 * cell done. A request is touched by its own rank only, so one that was abandoned after a failure
 * can hurt nobody. */
#include "transport/self/self.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/clock.h"
#include "base/error.h"
#include "transport/failure.h"
#include "transport/machine.h"
#include "transport/match.h"

enum { CELLS_A_CHUNK = 64 };

typedef struct self_chunk {
    fo_message cells[CELLS_A_CHUNK];
    struct self_chunk *next;
} self_chunk;

/* What alloc() puts in front of the memory it hands out. */
typedef struct self_block {
    alignas(64) struct self_block *next, *before;
    size_t bytes;
} self_block;

typedef struct self_group self_group;

typedef struct self_rank {
    fo_endpoint base; /* first */
    self_group *group;
    pthread_t thread;
    fo_status status; /* of rank_main */

    pthread_mutex_t lock;
    pthread_cond_t bell;
    fo_message *inbox, *inbox_last; /* under lock */
    uint64_t events;                /* under lock */

    uint64_t seen; /* events known to the caller; this and the rest: the rank's own */
    fo_match match;
    fo_message *free_cells;
    self_chunk *chunks;
    self_block *blocks;
    size_t memory_left;
} self_rank;

struct self_group {
    int size;
    self_rank *ranks;
    fo_failure failure;
    fo_transport_main rank_main;
    void *arg;
};

static atomic_int interrupted; /* by a signal; launch is not reentrant */

static void on_signal(int number)
{
    (void)number;
    atomic_store(&interrupted, 1);
}

static self_rank *self_of(fo_endpoint *endpoint)
{
    return (self_rank *)endpoint;
}

static bool has_failed(self_rank *self)
{
    return fo_transport_failure_seen(&self->group->failure);
}

static fo_status report_failure(self_rank *self)
{
    return fo_transport_failure_report(&self->group->failure, FO_PEER);
}

/* Appends `message` to a rank's inbox, if there is one, and wakes the rank. */
static void notify(self_rank *to, fo_message *message)
{
    pthread_mutex_lock(&to->lock);
    if (message) {
        message->next = NULL;
        *(to->inbox ? &to->inbox_last->next : &to->inbox) = message;
        to->inbox_last = message;
    }
    to->events++;
    pthread_cond_signal(&to->bell);
    pthread_mutex_unlock(&to->lock);
}

static void finish(self_rank *self, fo_message *message)
{
    self_rank *sender = &self->group->ranks[message->source];
    atomic_store_explicit(&message->done, 1,
                          memory_order_release); /* the cell is the sender's again */
    notify(sender, NULL);
}

static fo_message *take_cell(self_rank *self)
{
    if (!self->free_cells) {
        self_chunk *chunk = aligned_alloc(64, sizeof *chunk);
        if (!chunk)
            return NULL;
        chunk->next = self->chunks;
        self->chunks = chunk;
        for (int i = 0; i < CELLS_A_CHUNK; i++) {
            chunk->cells[i].next = self->free_cells;
            self->free_cells = &chunk->cells[i];
        }
    }
    fo_message *cell = self->free_cells;
    self->free_cells = cell->next;
    return cell;
}

static fo_status self_isend(fo_endpoint *endpoint, fo_request *request, int peer, uint32_t tag,
                            const void *data, size_t bytes, uint64_t imm)
{
    self_rank *self = self_of(endpoint);
    if (has_failed(self))
        return report_failure(self);
    fo_message *cell = take_cell(self);
    if (!cell)
        return fo_base_error(FO_NO_MEMORY, "no memory for a message");
    fo_transport_match_describe(request, FO_REQUEST_SEND, peer, tag, NULL, bytes);
    request->scratch[0] = (uint64_t)(uintptr_t)cell;
    cell->data = data;
    cell->bytes = bytes;
    cell->imm = imm;
    cell->tag = tag;
    cell->source = self->base.rank;
    atomic_store_explicit(&cell->done, 0, memory_order_relaxed);
    notify(&self->group->ranks[peer], cell);
    return FO_OK;
}

static fo_status post(self_rank *self, fo_request *request)
{
    if (has_failed(self)) /* the lists may hold requests that were abandoned */
        return report_failure(self);
    fo_message *message = fo_transport_match_post(&self->match, request);
    if (message && fo_transport_match_deliver(request, message))
        finish(self, message);
    return FO_OK;
}

static fo_status self_irecv(fo_endpoint *endpoint, fo_request *request, int peer, uint32_t tag,
                            void *buffer, size_t bytes)
{
    fo_transport_match_describe(request, FO_REQUEST_RECV, peer, tag, buffer, bytes);
    return post(self_of(endpoint), request);
}

static fo_status self_irecv_view(fo_endpoint *endpoint, fo_request *request, int peer, uint32_t tag,
                                 size_t bytes)
{
    fo_transport_match_describe(request, FO_REQUEST_VIEW, peer, tag, NULL, bytes);
    return post(self_of(endpoint), request);
}

static fo_status self_progress(fo_endpoint *endpoint)
{
    self_rank *self = self_of(endpoint);
    if (has_failed(self))
        return report_failure(self);
    pthread_mutex_lock(&self->lock);
    fo_message *message = self->inbox;
    self->inbox = self->inbox_last = NULL;
    pthread_mutex_unlock(&self->lock);
    while (message) {
        fo_message *next = message->next;
        fo_request *request = fo_transport_match_arrive(&self->match, message);
        if (request && fo_transport_match_deliver(request, message))
            finish(self, message);
        message = next;
    }
    return FO_OK;
}

static fo_status self_test(fo_endpoint *endpoint, fo_request *request)
{
    self_rank *self = self_of(endpoint);
    fo_status status = self_progress(endpoint);
    if (status != FO_OK)
        return status;
    if (request->kind != FO_REQUEST_SEND)
        return fo_transport_match_result(request, self->base.rank);
    fo_message *cell = (fo_message *)(uintptr_t)request->scratch[0];
    if (!cell) /* tested before */
        return FO_OK;
    if (!atomic_load_explicit(&cell->done, memory_order_acquire))
        return FO_IN_PROGRESS;
    cell->next = self->free_cells;
    self->free_cells = cell;
    request->scratch[0] = 0;
    return FO_OK;
}

static void self_release(fo_endpoint *endpoint, fo_request *request)
{
    fo_message *message = fo_transport_match_viewed(request);
    request->scratch[0] = 0;
    if (message)
        finish(self_of(endpoint), message);
}

static fo_status self_wait(fo_endpoint *endpoint, int64_t until_ns)
{
    self_rank *self = self_of(endpoint);
    struct timespec until = {.tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000};
    int timed_out = until_ns <= 0;
    pthread_mutex_lock(&self->lock);
    while (self->events == self->seen && !timed_out && !has_failed(self))
        timed_out = pthread_cond_timedwait(&self->bell, &self->lock, &until);
    self->seen = self->events;
    pthread_mutex_unlock(&self->lock);
    return has_failed(self) ? report_failure(self) : FO_OK;
}

static void *self_alloc(fo_endpoint *endpoint, size_t bytes)
{
    self_rank *self = self_of(endpoint);
    self_block *block = NULL;
    size_t whole = sizeof *block;
    if (bytes <= self->memory_left) {
        whole += (bytes + 63) / 64 * 64;
        block = aligned_alloc(64, whole);
    }
    if (!block) {
        fo_base_error(FO_NO_MEMORY, "rank %d has no %zu bytes left, %zu are free", self->base.rank,
                      bytes, self->memory_left);
        return NULL;
    }
    memset(block, 0, whole);
    block->bytes = bytes;
    block->next = self->blocks;
    if (self->blocks)
        self->blocks->before = block;
    self->blocks = block;
    self->memory_left -= bytes;
    return block + 1;
}

static void free_block(self_rank *self, self_block *block)
{
    *(block->before ? &block->before->next : &self->blocks) = block->next;
    if (block->next)
        block->next->before = block->before;
    self->memory_left += block->bytes;
    free(block);
}

/* After a failure a peer may still be reading what it had a view of: kept until all threads have ended. */
static void self_free(fo_endpoint *endpoint, void *memory)
{
    self_rank *self = self_of(endpoint);
    if (memory && !has_failed(self))
        free_block(self, (self_block *)memory - 1);
}

static void declare(self_group *group, int writer, int rank, const char *cause)
{
    if (!fo_transport_failure_declare(&group->failure, writer, rank, cause))
        return;
    for (int r = 0; r < group->size; r++)
        notify(&group->ranks[r], NULL);
}

static void self_fail(fo_endpoint *endpoint, int rank, const char *cause)
{
    declare(self_of(endpoint)->group, endpoint->rank, rank, cause);
}

static void self_witness(fo_endpoint *endpoint, const char *where)
{
    fo_transport_failure_witness(&self_of(endpoint)->group->failure, endpoint->rank, where);
}

static bool self_interrupted(fo_endpoint *endpoint)
{
    (void)endpoint;
    return atomic_load(&interrupted) != 0;
}

static const fo_transport_ops ops = {
    .name = "self",
    .caps = FO_TRANSPORT_VIEW | FO_TRANSPORT_IMM,
    .isend = self_isend,
    .irecv = self_irecv,
    .irecv_view = self_irecv_view,
    .test = self_test,
    .release = self_release,
    .progress = self_progress,
    .wait = self_wait,
    .alloc = self_alloc,
    .free = self_free,
    .fail = self_fail,
    .interrupted = self_interrupted,
    .witness = self_witness,
};

static void *run_rank(void *arg)
{
    self_rank *self = arg;
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); /* timeouts end when they say */
    fo_base_error_clear();
    self->status = self->group->rank_main(&self->base, self->group->arg);
    if (self->status != FO_OK)
        self_fail(&self->base, self->base.rank,
                  *fo_last_error() ? fo_last_error() : fo_status_text(self->status));
    return NULL;
}

static fo_status open_rank(self_group *group, int rank, const fo_transport_options *options)
{
    self_rank *self = &group->ranks[rank];
    pthread_condattr_t attributes;
    self->base.ops = &ops;
    self->base.rank = rank;
    self->base.size = group->size;
    self->base.deadline_ns = (int64_t)((options->deadline_s > 0 ? options->deadline_s : 60) * 1e9);
    self->memory_left = options->memory ? options->memory : fo_transport_machine_memory();
    self->group = group;
    pthread_mutex_init(&self->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&self->bell, &attributes);
    pthread_condattr_destroy(&attributes);
    return fo_transport_match_init(&self->match, group->size);
}

static void close_rank(self_rank *self)
{
    while (self->chunks) {
        self_chunk *next = self->chunks->next;
        free(self->chunks);
        self->chunks = next;
    }
    while (self->blocks)
        free_block(self, self->blocks);
    fo_transport_match_free(&self->match);
    if (self->group) {
        pthread_cond_destroy(&self->bell);
        pthread_mutex_destroy(&self->lock);
    }
}

/* Starts the threads and waits for all of them. */
static void run_threads(self_group *group)
{
    int started = 0;
    while (started < group->size) {
        self_rank *self = &group->ranks[started];
        int code = pthread_create(&self->thread, NULL, run_rank, self);
        if (code != 0) {
            char cause[128];
            snprintf(cause, sizeof cause, "could not start its thread: %s", strerror(code));
            self->status = FO_NO_MEMORY;
            declare(group, started, started, cause);
            break;
        }
        started++;
    }
    for (int r = 0; r < started; r++)
        pthread_join(group->ranks[r].thread, NULL);
}

static fo_status launch(const fo_transport_options *options, fo_transport_main rank_main, void *arg)
{
    self_group group = {.size = options->ranks, .rank_main = rank_main, .arg = arg};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESETHAND | SA_RESTART};
    struct sigaction old_int, old_term;
    group.ranks = calloc((size_t)options->ranks, sizeof *group.ranks);
    if (!group.ranks)
        return fo_base_error(FO_NO_MEMORY, "no memory for %d ranks", options->ranks);
    fo_status status = FO_OK;
    for (int r = 0; status == FO_OK && r < group.size; r++)
        status = open_rank(&group, r, options);
    if (status == FO_OK) {
        atomic_store(&interrupted, 0);
        sigaction(SIGINT, &action, &old_int); /* the second signal acts as ever */
        sigaction(SIGTERM, &action, &old_term);
        run_threads(&group);
        sigaction(SIGINT, &old_int, NULL);
        sigaction(SIGTERM, &old_term, NULL);
        if (fo_transport_failure_seen(&group.failure)) {
            status = group.ranks[group.failure.rank].status;
            fo_transport_failure_report(&group.failure, status);
            status = status != FO_OK ? status : FO_PEER;
        }
    }
    for (int r = 0; r < group.size; r++)
        close_rank(&group.ranks[r]);
    free(group.ranks);
    return status;
}

const fo_transport fo_transport_self = {
    .ops = &ops,
    .about = "ranks as threads of one process; for tests",
    .launch = launch,
};
