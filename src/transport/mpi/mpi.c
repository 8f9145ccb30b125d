/* The endpoint of one process. Completions are noted for all requests in flight in one pass over them, so that
 * test() of most requests is a look at a flag. */
#include "transport/mpi/mpi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"

/* request->state. Persistent requests are kept in scratch[HANDLE], made for the communicator scratch[MADE_FOR]
 * (0: none) and for what the request still says of its last message. */
enum { IDLE, POSTED, DONE, MISMATCH, BROKEN };
enum {
    PLACE,
    HANDLE,
    MADE_FOR,
    SINCE
}; /* request->scratch[]; SINCE: in flight, the pass after which it was last
                                             asked for; then, until told, the wait before which it ended */

/* scratch[MADE_FOR] of a collective whose scratch[HANDLE] is memory to free */
#define KEEPS_MEMORY UINT64_MAX

/* A message this short is not worth a persistent request: Open MPI takes a longer way for these than for others. */
enum { SHORT_BYTES = 4096 };
enum { MOST_RESULTS = 256 };
enum { LOOKS_A_CLOCK = 16 };
/* A wait sleeps for a part of the time it has lasted, so that it ends late by that part at most. */
enum { NAP_PART = 32, LEAST_NAP_NS = 1000, MOST_NAP_NS = 250000 };
/* A pass that took so long has moved bytes, and more may be waiting; progress() goes on for so long at most. */
enum { ABANDON_NS = 100000000 };
enum { BUSY_PASS_NS = 8000, BUSY_TIMES = 4, MOST_PROGRESS_NS = 300000 };

/* Messages of groups have tags of their own (group.h): low ones, from this. */
#define FIRST_GROUP_TAG 0xFFFF0000u

/* The first character of a cause that the failed rank gave itself. */
enum { DECLARED_BY_ITSELF = '\x01' };

/* ---- the engine ------------------------------------------------------------------------------------ */

fo_status fo_transport_mpi_engine_init(mpi_engine *engine)
{
    engine->pass = engine->waits = 1;
    return fo_transport_mpi_reserve(engine);
}

void fo_transport_mpi_engine_free(mpi_engine *engine)
{
    free(engine->owners);
    free(engine->handles);
    fo_transport_mpi_memory_free(&engine->memory);
}

fo_status fo_transport_mpi_reserve(mpi_engine *engine)
{
    if (engine->count < engine->capacity)
        return FO_OK;
    int capacity = engine->capacity ? 2 * engine->capacity : 256;
    fo_request **owners = realloc(engine->owners, (size_t)capacity * sizeof(*owners));
    if (owners)
        engine->owners = owners;
    char *handles = realloc(engine->handles, (size_t)capacity * FO_MPI_REQUEST_MOST);
    if (handles)
        engine->handles = handles;
    if (!owners || !handles)
        return fo_base_error(FO_NO_MEMORY, "no memory for %d messages in flight", capacity);
    engine->capacity = capacity;
    return FO_OK;
}

fo_status fo_transport_mpi_error(const mpi_engine *engine, int error, const char *what)
{
    char words[256];
    engine->shim->explain(error, words, sizeof words);
    return fo_base_error(FO_INTERNAL, "%s: %s says: %s", what, engine->shim->name, words);
}

bool fo_transport_mpi_returns(const mpi_engine *engine)
{
    return engine->failure->cause[0] == DECLARED_BY_ITSELF;
}

/* The mark is not for people. */
fo_status fo_transport_mpi_report(const fo_failure *failure, fo_status status)
{
    if (failure->cause[0] != DECLARED_BY_ITSELF)
        return fo_transport_failure_report(failure, status);
    fo_failure shown = {.rank = failure->rank, .places = failure->places};
    snprintf(shown.cause, sizeof shown.cause, "%s", failure->cause + 1);
    if (atomic_load_explicit(&failure->heard, memory_order_acquire)) {
        memcpy(shown.where, failure->where, sizeof shown.where);
        atomic_store(&shown.heard_claim, atomic_load(&failure->heard_claim));
        atomic_store(&shown.heard, 1);
    }
    return fo_transport_failure_report(&shown, status);
}

void fo_transport_mpi_declare(mpi_engine *engine, int rank, const char *cause)
{
    char marked[sizeof engine->failure->cause];
    if (rank == engine->rank &&
        snprintf(marked, sizeof marked, "%c%s", DECLARED_BY_ITSELF, cause) > 0)
        cause = marked;
    if (engine->lifeline)
        fo_transport_lifeline_declare(engine->lifeline, rank, cause);
    else /* alone */
        fo_transport_failure_declare(engine->failure, rank, rank, cause);
}

static inline bool has_failed(const mpi_engine *engine)
{
    return fo_transport_mpi_has_failed(engine);
}

static char *handle_at(mpi_engine *engine, int place)
{
    return engine->handles + (size_t)place * (size_t)engine->shim->request_bytes;
}

/* Of either size there is, without a call. */
static void copy_handle(const mpi_engine *engine, void *to, const void *from)
{
    if (engine->shim->request_bytes == sizeof(uint64_t))
        memcpy(to, from, sizeof(uint64_t));
    else
        memcpy(to, from, sizeof(uint32_t));
}

static inline void put(mpi_engine *engine, fo_request *request, int place)
{
    engine->owners[place] = request;
    request->scratch[PLACE] = (uint64_t)place;
    request->scratch[SINCE] = engine->pass;
    request->state = POSTED;
}

void fo_transport_mpi_track(mpi_engine *engine, fo_request *request, const void *handle)
{
    int place = engine->count++;
    copy_handle(engine, handle_at(engine, place), handle);
    put(engine, request, place);
}

void fo_transport_mpi_done(mpi_engine *engine, fo_request *request)
{
    request->state = DONE;
    request->scratch[SINCE] = engine->waits;
    engine->untold++;
}

static void note_told(mpi_engine *engine, fo_request *request)
{
    if (request->scratch[SINCE] == engine->waits)
        engine->untold--;
    request->scratch[SINCE] = 0;
}

void fo_transport_mpi_keep(fo_request *request, void *memory)
{
    request->scratch[HANDLE] = (uint64_t)(uintptr_t)memory;
    request->scratch[MADE_FOR] = KEEPS_MEMORY;
}

/* Notes how the request at `place` ended; its place is free. */
static void settle(mpi_engine *engine, int place, const fo_mpi_result *result)
{
    fo_request *request = engine->owners[place];
    engine->owners[place] = NULL;
    if (engine->asked == request)
        engine->asked = NULL;
    fo_transport_mpi_done(engine, request);
    if (request->scratch[MADE_FOR] == KEEPS_MEMORY) {
        free((void *)(uintptr_t)request->scratch[HANDLE]);
        request->scratch[MADE_FOR] = 0;
    }
    if (result->error) {
        request->state = BROKEN;
        request->imm = (uint64_t)result->error;
    } else if (request->kind == FO_REQUEST_RECV &&
               (result->truncated || result->bytes != request->bytes)) {
        request->state = MISMATCH;
        request->imm =
            result->truncated && result->bytes <= request->bytes ? UINT64_MAX : result->bytes;
    }
}

static void trim(mpi_engine *engine)
{
    while (engine->count > 0 && !engine->owners[engine->count - 1])
        engine->count--;
}

/* Moves the last request to where one has ended. */
static void fill_place(mpi_engine *engine, int place)
{
    trim(engine);
    if (place >= engine->count)
        return;
    int last = --engine->count;
    copy_handle(engine, handle_at(engine, place), handle_at(engine, last));
    engine->owners[place] = engine->owners[last];
    engine->owners[place]->scratch[PLACE] = (uint64_t)place;
    trim(engine);
}

/* Moves messages, and looks at one request in flight, a few times. */
static fo_status look_at(mpi_engine *engine, fo_request *request, int looks)
{
    fo_mpi_result result;
    bool done = false;
    int place = (int)request->scratch[PLACE];
    int error = engine->shim->test(handle_at(engine, place), request->kind == FO_REQUEST_RECV,
                                   looks, &done, &result);
    if (error)
        return fo_transport_mpi_error(engine, error, "moving messages");
    if (done) {
        settle(engine, place, &result);
        fill_place(engine, place);
    }
    return FO_OK;
}

/* Moves messages, and looks once at every request in flight. */
static fo_status pass(mpi_engine *engine)
{
    fo_mpi_result results[MOST_RESULTS];
    int places[MOST_RESULTS], done = 0, error;
    engine->pass++;
    if (engine->count == 1)
        return look_at(engine, engine->owners[0], 1);
    if (engine->count == 0)
        error = engine->shim->poll(engine->poll_comm);
    else
        error = engine->shim->test_some(engine->count, engine->handles, MOST_RESULTS, &done, places,
                                        results);
    if (error)
        return fo_transport_mpi_error(engine, error, "moving messages");
    for (int i = 0; i < done; i++)
        settle(engine, places[i], &results[i]);
    for (int i = 0; i < done; i++)
        fill_place(engine, places[i]);
    return FO_OK;
}

/* ---- after a failure ------------------------------------------------------------------------------------ */

static bool receives(const mpi_engine *engine)
{
    for (int i = 0; i < engine->count; i++)
        if (engine->owners[i]->kind == FO_REQUEST_RECV)
            return true;
    return false;
}

/* Takes back what was to be received, while requests and buffers are still there, and waits a moment for messages that
 * are half there. Not where a process is gone: the library may wait for it, and is not called any more. */
static void abandon(mpi_engine *engine)
{
    if (engine->abandoned || !fo_transport_mpi_returns(engine))
        return;
    engine->abandoned = true;
    for (int i = 0; i < engine->count; i++)
        if (engine->owners[i]->kind == FO_REQUEST_RECV &&
            engine->shim->cancel(handle_at(engine, i)))
            return;
    for (int64_t until = fo_base_clock_ns() + ABANDON_NS;
         receives(engine) && fo_base_clock_ns() < until;)
        if (pass(engine) != FO_OK)
            return;
}

static __attribute__((noinline)) fo_status say_failed(mpi_engine *engine)
{
    abandon(engine);
    return fo_transport_mpi_report(engine->failure, FO_PEER);
}

/* ---- posting --------------------------------------------------------------------------------------- */

/* Communicator and tag of a message. Tags of plans are handed out in ascending order, a few a plan, and one that
 * does not fit is cut: two messages could be taken for each other only if plans made 2^20 tags apart (the least
 * that is accepted, launch.c; 2^28 and 2^31 in MPICH and Open MPI) were executed together. */
static int comm_of(uint32_t tag)
{
    return tag >= FIRST_GROUP_TAG ? MPI_GROUPS : MPI_PLANS;
}

static void describe(fo_request *request, int kind, int peer, uint32_t tag, void *buffer,
                     size_t bytes)
{
    if (kind == FO_REQUEST_RECV) {
        request->data = buffer;
        request->imm = 0;
    }
    request->kind = kind;
    request->peer = peer;
    request->tag = tag;
    request->buffer = buffer;
    request->bytes = bytes;
}

static int drop_kept(mpi_engine *engine, fo_request *request)
{
    if (!request->scratch[MADE_FOR])
        return 0;
    request->scratch[MADE_FOR] = 0;
    return engine->shim->drop(&request->scratch[HANDLE]);
}

/* Starts the persistent request that is kept, made again when it was for something else. */
static int start_kept(mpi_endpoint *mpi, fo_request *request, int kind, int peer, uint32_t tag,
                      void *buffer, size_t bytes)
{
    mpi_engine *engine = mpi->engine;
    const fo_mpi_shim *shim = engine->shim;
    int comm = comm_of(tag), error = 0;
    bool fits = request->scratch[MADE_FOR] == mpi->serials[comm] && request->kind == kind &&
                request->peer == peer && request->tag == tag && request->buffer == buffer &&
                request->bytes == bytes;
    if (!fits) {
        error = drop_kept(engine, request);
        int cut = (int)(tag & mpi->tag_mask);
        void *handle = &request->scratch[HANDLE];
        if (!error)
            error = kind == FO_REQUEST_SEND
                        ? shim->send_init(mpi->comms[comm], buffer, bytes, peer, cut, handle)
                        : shim->recv_init(mpi->comms[comm], buffer, bytes, peer, cut, handle);
        if (error)
            return error;
        request->scratch[MADE_FOR] = mpi->serials[comm];
    }
    describe(request, kind, peer, tag, buffer, bytes);
    return shim->start(&request->scratch[HANDLE]);
}

static int start_once(mpi_endpoint *mpi, fo_request *request, int kind, int peer, uint32_t tag,
                      void *buffer, size_t bytes, void *handle)
{
    const fo_mpi_shim *shim = mpi->engine->shim;
    uint64_t comm = mpi->comms[comm_of(tag)];
    int cut = (int)(tag & mpi->tag_mask);
    describe(request, kind, peer, tag, buffer, bytes);
    return kind == FO_REQUEST_SEND ? shim->isend(buffer, bytes, 0, peer, cut, comm, handle)
                                   : shim->irecv(buffer, bytes, 0, peer, cut, comm, handle);
}

/* What post() does where more is to be done than one call. */
static __attribute__((noinline)) fo_status post_kept(mpi_endpoint *mpi, fo_request *request,
                                                     int kind, int peer, uint32_t tag, void *buffer,
                                                     size_t bytes)
{
    mpi_engine *engine = mpi->engine;
    uint64_t once = 0;
    if (has_failed(engine))
        return say_failed(engine);
    fo_status status = fo_transport_mpi_reserve(engine);
    if (status != FO_OK)
        return status;
    bool kept = request->fixed && bytes > SHORT_BYTES;
    int error = kept ? start_kept(mpi, request, kind, peer, tag, buffer, bytes)
                     : drop_kept(engine, request);
    if (!kept && !error)
        error = start_once(mpi, request, kind, peer, tag, buffer, bytes, &once);
    if (error)
        return fo_transport_mpi_error(engine, error, "posting a message");
    fo_transport_mpi_track(engine, request, kept ? &request->scratch[HANDLE] : &once);
    return FO_OK;
}

static __attribute__((noinline)) fo_status post_failed(mpi_engine *engine, int error)
{
    fo_request *request = engine->owners[--engine->count];
    request->state = IDLE;
    return fo_transport_mpi_error(engine, error, "posting a message");
}

/* The way of short messages counts in single stores: a core that has sent one waits for memory of the other core, and
 * goes on only as far as its queue of stores reaches. */
static inline fo_status post(mpi_endpoint *mpi, fo_request *request, int kind, int peer,
                             uint32_t tag, void *buffer, size_t bytes)
{
    mpi_engine *engine = mpi->engine;
    int place = engine->count;
    if (has_failed(engine) || place == engine->capacity || request->scratch[MADE_FOR] ||
        (request->fixed && bytes > SHORT_BYTES))
        return post_kept(mpi, request, kind, peer, tag, buffer, bytes);
    put(engine, request, place);
    engine->count = place + 1; /* before the call, which little is kept over */
    int error = start_once(mpi, request, kind, peer, tag, buffer, bytes, handle_at(engine, place));
    return error ? post_failed(mpi->engine, error) : FO_OK;
}

static fo_status mpi_isend(fo_endpoint *endpoint, fo_request *request, int peer, uint32_t tag,
                           const void *data, size_t bytes, uint64_t imm)
{
    (void)imm;
    return post(fo_transport_mpi_of(endpoint), request, FO_REQUEST_SEND, peer, tag, (void *)data,
                bytes);
}

static fo_status mpi_irecv(fo_endpoint *endpoint, fo_request *request, int peer, uint32_t tag,
                           void *buffer, size_t bytes)
{
    return post(fo_transport_mpi_of(endpoint), request, FO_REQUEST_RECV, peer, tag, buffer, bytes);
}

static void mpi_forget(fo_endpoint *endpoint, fo_request *request)
{
    mpi_engine *engine = fo_transport_mpi_of(endpoint)->engine;
    if (!has_failed(engine)) /* else it may have been abandoned in flight */
        (void)drop_kept(engine, request);
}

/* ---- looking --------------------------------------------------------------------------------------- */

static __attribute__((noinline)) fo_status say_wrong(const mpi_endpoint *mpi,
                                                     const fo_request *request)
{
    char found[64];
    if (request->state == BROKEN)
        return fo_transport_mpi_error(mpi->engine, (int)request->imm,
                                      request->kind == FO_REQUEST_RECV ? "receiving a message"
                                                                       : "sending a message");
    if (request->imm == UINT64_MAX)
        snprintf(found, sizeof found, "more than %zu", request->bytes);
    else
        snprintf(found, sizeof found, "%llu", (unsigned long long)request->imm);
    return fo_base_error(
        FO_INTERNAL,
        "rank %d expected %zu bytes from rank %d (tag 0x%x) and met a message of %s "
        "bytes; both sides must agree on sizes",
        mpi->base.rank, request->bytes, request->peer, request->tag, found);
}

static inline fo_status result_of(const mpi_endpoint *mpi, const fo_request *request)
{
    return request->state == DONE ? FO_OK : say_wrong(mpi, request);
}

static fo_status mpi_test(fo_endpoint *endpoint, fo_request *request)
{
    mpi_endpoint *mpi = fo_transport_mpi_of(endpoint);
    mpi_engine *engine = mpi->engine;
    if (has_failed(engine))
        return say_failed(engine);
    if (request->state != POSTED) {
        note_told(engine, request);
        return result_of(mpi, request);
    }
    /* asked for the first time since a pass over all: the flag is as good as a look */
    if (request->scratch[SINCE] != engine->pass) {
        request->scratch[SINCE] = engine->pass;
        engine->asked = request;
        return FO_IN_PROGRESS;
    }
    fo_status status = look_at(engine, request, 1);
    if (status != FO_OK)
        return status;
    if (request->state == POSTED) {
        engine->asked = request;
        return FO_IN_PROGRESS;
    }
    note_told(engine, request);
    return result_of(mpi, request);
}

static fo_status mpi_progress(fo_endpoint *endpoint)
{
    mpi_engine *engine = fo_transport_mpi_of(endpoint)->engine;
    if (has_failed(engine))
        return say_failed(engine);
    int64_t begin = fo_base_clock_ns(), before = begin;
    for (;;) {
        fo_status status = pass(engine);
        if (status != FO_OK)
            return status;
        int64_t now = fo_base_clock_ns();
        if (now - before < BUSY_PASS_NS || now - begin > MOST_PROGRESS_NS || has_failed(engine))
            return FO_OK;
        before = now;
    }
}

static bool has_news(const mpi_engine *engine)
{
    return engine->untold > 0 || has_failed(engine);
}

void fo_transport_mpi_nap(int64_t waited_ns, int64_t most_ns)
{
    int64_t length = waited_ns / NAP_PART;
    if (length < LEAST_NAP_NS)
        length = LEAST_NAP_NS;
    if (length > most_ns)
        length = most_ns;
    struct timespec pause = {.tv_nsec = (long)length};
    nanosleep(&pause, NULL);
}

/* Whether a row of looks that took so long has moved bytes. Where each is a system call all are long: they are
 * compared with the shortest there was. */
static bool moved_bytes(mpi_engine *engine, int64_t took)
{
    if (!engine->idle_ns || took < engine->idle_ns)
        engine->idle_ns = took;
    return took > BUSY_PASS_NS + BUSY_TIMES * engine->idle_ns;
}

static fo_status mpi_wait(fo_endpoint *endpoint, int64_t until_ns)
{
    mpi_engine *engine = fo_transport_mpi_of(endpoint)->engine;
    fo_status status = FO_OK;
    int64_t begin = 0, before = 0;
    bool naps = false;
    while (status == FO_OK && !has_news(engine)) {
        /* the clock costs as much as a look; and most waits are for the one that was asked for last */
        bool looks = !naps && engine->asked;
        if (looks)
            status = look_at(engine, engine->asked, LOOKS_A_CLOCK);
        if (status == FO_OK && !has_news(engine))
            status = pass(engine);
        if (status != FO_OK || has_news(engine))
            break;
        int64_t now = fo_base_clock_ns();
        /* While bytes come a nap would hold up the rest. Once it naps, a wait goes on so: where ranks share cores a
         * look is long when another one runs. */
        if (!begin || (looks && moved_bytes(engine, now - before)))
            begin = now;
        if (now >= until_ns)
            break;
        before = now;
        naps = now - begin >= engine->spin_ns;
        if (naps)
            fo_transport_mpi_nap(now - begin,
                                 until_ns - now < MOST_NAP_NS ? until_ns - now : MOST_NAP_NS);
    }
    engine->untold = 0;
    engine->waits++;
    return has_failed(engine) ? say_failed(engine) : status;
}

/* ---- the rest -------------------------------------------------------------------------------------- */

static void *mpi_alloc(fo_endpoint *endpoint, size_t bytes)
{
    mpi_memory *memory = &fo_transport_mpi_of(endpoint)->engine->memory;
    void *taken = fo_transport_mpi_memory_take(memory, bytes);
    if (!taken)
        fo_base_error(FO_NO_MEMORY, "rank %d has no %zu bytes left, %zu are free", endpoint->rank,
                      bytes, memory->left);
    return taken;
}

/* After a failure the library may still read what was being sent: kept. */
static void mpi_free(fo_endpoint *endpoint, void *memory)
{
    mpi_engine *engine = fo_transport_mpi_of(endpoint)->engine;
    if (!has_failed(engine))
        fo_transport_mpi_memory_give(&engine->memory, memory);
}

static void mpi_fail(fo_endpoint *endpoint, int rank, const char *cause)
{
    mpi_endpoint *mpi = fo_transport_mpi_of(endpoint);
    fo_transport_mpi_declare(mpi->engine, mpi->members ? mpi->members[rank] : rank, cause);
    abandon(mpi->engine);
}

static void mpi_witness(fo_endpoint *endpoint, const char *where)
{
    mpi_engine *engine = fo_transport_mpi_of(endpoint)->engine;
    fo_transport_failure_witness(engine->failure, engine->rank, where);
}

static bool mpi_interrupted(fo_endpoint *endpoint)
{
    (void)endpoint;
    return fo_transport_mpi_interrupted();
}

static void mpi_release(fo_endpoint *endpoint, fo_request *request)
{
    (void)endpoint;
    (void)request;
}

const fo_transport_ops fo_transport_mpi_ops = {
    .name = "mpi",
    .caps = FO_TRANSPORT_PROCESS | FO_TRANSPORT_JOINS,
    .isend = mpi_isend,
    .irecv = mpi_irecv,
    .test = mpi_test,
    .release = mpi_release,
    .progress = mpi_progress,
    .wait = mpi_wait,
    .alloc = mpi_alloc,
    .free = mpi_free,
    .fail = mpi_fail,
    .interrupted = mpi_interrupted,
    .forget = mpi_forget,
    .witness = mpi_witness,
    .split = fo_transport_mpi_split,
    .close = fo_transport_mpi_close,
    .collective = fo_transport_mpi_collective,
};
