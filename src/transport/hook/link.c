/* Link emulation: messages arrive when they would over links of a given bandwidth and latency.
 *
 * The sender computes when a message starts to leave its port and stamps that time into the
 * message's word (so the word of the caller is not passed on: the wrapper has no FO_TRANSPORT_IMM).
 * The receiver keeps every receive in one of four stages:
 *
 *   POSTED     the inner transport has no message yet
 *   ARRIVED    the message is here; it begins to enter the port at `ready`, the later of its stamp and the
 *              time of posting
 *   COMMITTED  the port has been given to it; `due` is when test() may say so
 *   DUE        a wait has ended because of it (so that the next wait does not end again)
 *
 * ARRIVED is sorted by `ready`, and a message is committed only once its time has come: whatever
 * another peer sends from now on starts later, so ports are given out in the order of the stamps,
 * whichever receive the caller happens to test. Times are computed, never observed: a receiver that
 * was busy finds messages delivered when they would have been. No byte is touched for any of it. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "transport/hook/hook.h"
#include "transport/machine.h"

/* Before a delivery: sleeping overshoots by about as much as a wake-up takes. */
enum { SPIN_NS = 50000 };

enum { STAGE_NONE, STAGE_POSTED, STAGE_ARRIVED, STAGE_COMMITTED, STAGE_DUE };

typedef struct link_list {
    fo_request *first, *last;
} link_list;

typedef struct link_hook {
    fo_hook hook; /* first */
    fo_link link;
    bool spin;
    int64_t latency_ns;
    int64_t *egress_free, *ingress_free; /* a peer; SWITCH uses [0] */
    link_list *posted;                   /* a peer */
    link_list arrived, committed;
    int tracked; /* receives in any stage */
} link_hook;

static link_hook *link_of(fo_endpoint *endpoint)
{
    return (link_hook *)endpoint;
}

/* request->hook[]: the stage, its time (posting, ready, due), next, previous */

static fo_request *next_of(const fo_request *request)
{
    return (fo_request *)(uintptr_t)request->hook[2];
}

static fo_request *before_of(const fo_request *request)
{
    return (fo_request *)(uintptr_t)request->hook[3];
}

static int64_t time_of(const fo_request *request)
{
    return (int64_t)request->hook[1];
}

static void set_next(fo_request *request, fo_request *next)
{
    request->hook[2] = (uint64_t)(uintptr_t)next;
}

static void set_before(fo_request *request, fo_request *before)
{
    request->hook[3] = (uint64_t)(uintptr_t)before;
}

static void list_insert(link_list *list, fo_request *before, fo_request *request)
{
    fo_request *next = before ? next_of(before) : list->first;
    set_before(request, before);
    set_next(request, next);
    if (before)
        set_next(before, request);
    else
        list->first = request;
    if (next)
        set_before(next, request);
    else
        list->last = request;
}

static void list_remove(link_list *list, fo_request *request)
{
    fo_request *before = before_of(request), *next = next_of(request);
    if (before)
        set_next(before, next);
    else
        list->first = next;
    if (next)
        set_before(next, before);
    else
        list->last = before;
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t transfer_ns(const link_hook *link, size_t bytes)
{
    return (int64_t)((double)bytes * 1e9 / link->link.bytes_per_s + 0.5);
}

static int64_t *port_of(const link_hook *link, int64_t *ports, int peer)
{
    return &ports[link->link.topology == FO_MESH ? peer : 0];
}

static bool is_emulated(const link_hook *link, int peer)
{
    return link->link.bytes_per_s > 0 && peer != link->hook.base.rank;
}

static fo_status link_isend(fo_endpoint *endpoint, fo_request *request, int peer, uint32_t tag,
                            const void *data, size_t bytes, uint64_t imm)
{
    link_hook *link = link_of(endpoint);
    fo_endpoint *inner = link->hook.inner;
    (void)imm;
    if (!is_emulated(link, peer))
        return inner->ops->isend(inner, request, peer, tag, data, bytes, 0);
    int64_t *port = port_of(link, link->egress_free, peer), was = *port;
    int64_t start = later(fo_base_clock_ns(), was);
    *port = start + transfer_ns(link, bytes);
    fo_status status = inner->ops->isend(inner, request, peer, tag, data, bytes, (uint64_t)start);
    if (status != FO_OK)
        *port = was;
    return status;
}

static void track(link_hook *link, fo_request *request, int peer)
{
    request->hook[0] = STAGE_NONE;
    if (!is_emulated(link, peer))
        return;
    request->hook[0] = STAGE_POSTED;
    request->hook[1] = (uint64_t)fo_base_clock_ns();
    list_insert(&link->posted[peer], link->posted[peer].last, request);
    link->tracked++;
}

static fo_status link_irecv(fo_endpoint *endpoint, fo_request *request, int peer, uint32_t tag,
                            void *buffer, size_t bytes)
{
    fo_endpoint *inner = link_of(endpoint)->hook.inner;
    fo_status status = inner->ops->irecv(inner, request, peer, tag, buffer, bytes);
    if (status == FO_OK)
        track(link_of(endpoint), request, peer);
    return status;
}

static fo_status link_irecv_view(fo_endpoint *endpoint, fo_request *request, int peer, uint32_t tag,
                                 size_t bytes)
{
    fo_endpoint *inner = link_of(endpoint)->hook.inner;
    fo_status status = inner->ops->irecv_view(inner, request, peer, tag, bytes);
    if (status == FO_OK)
        track(link_of(endpoint), request, peer);
    return status;
}

/* POSTED -> ARRIVED, or out of our hands when the inner test failed: asked again, it says so again.
 */
static void note_arrival(link_hook *link, fo_request *request, fo_status status)
{
    list_remove(&link->posted[request->peer], request);
    if (status != FO_OK) {
        request->hook[0] = STAGE_NONE;
        link->tracked--;
        return;
    }
    int64_t ready = request->imm ? later((int64_t)request->imm, time_of(request)) : 0;
    fo_request *before = link->arrived.last;
    while (before && time_of(before) > ready)
        before = before_of(before);
    request->hook[0] = STAGE_ARRIVED;
    request->hook[1] = (uint64_t)ready;
    request->imm = ready ? 1 : 0; /* whether it was stamped; cleared when it is handed out */
    list_insert(&link->arrived, before, request);
}

static fo_status note_arrivals(link_hook *link)
{
    fo_endpoint *inner = link->hook.inner;
    for (int peer = 0; peer < link->hook.base.size; peer++) {
        const fo_request *missing = NULL;
        for (fo_request *request = link->posted[peer].first, *next; request; request = next) {
            next = next_of(request);
            if (missing && missing->tag == request->tag)
                continue; /* messages of one tag arrive in order */
            fo_status status = inner->ops->test(inner, request);
            if (status == FO_PEER)
                return status;
            if (status == FO_IN_PROGRESS)
                missing = request;
            else
                note_arrival(link, request, status);
        }
    }
    return FO_OK;
}

/* ARRIVED -> COMMITTED: gives the ports to what begins to enter by now. */
static void commit_arrived(link_hook *link, int64_t now)
{
    fo_request *request;
    while ((request = link->arrived.first) && time_of(request) <= now) {
        int64_t due = 0;
        if (request->imm && link->link.bytes_per_s > 0) {
            int64_t *port = port_of(link, link->ingress_free, request->peer);
            *port = later(time_of(request), *port) + transfer_ns(link, request->bytes);
            due = *port + link->latency_ns;
        }
        list_remove(&link->arrived, request);
        request->hook[0] = STAGE_COMMITTED;
        request->hook[1] = (uint64_t)due;
        list_insert(&link->committed, link->committed.last, request);
    }
}

static fo_status link_progress(fo_endpoint *endpoint)
{
    link_hook *link = link_of(endpoint);
    fo_endpoint *inner = link->hook.inner;
    fo_status status = inner->ops->progress(inner);
    if (status != FO_OK ||
        !link->tracked) /* after a failure no request is looked at: it may be gone */
        return status;
    status = note_arrivals(link);
    if (status == FO_OK && link->arrived.first)
        commit_arrived(link, fo_base_clock_ns());
    return status;
}

static fo_status link_test(fo_endpoint *endpoint, fo_request *request)
{
    link_hook *link = link_of(endpoint);
    fo_endpoint *inner = link->hook.inner;
    if (request->kind == FO_REQUEST_SEND || request->hook[0] == STAGE_NONE)
        return inner->ops->test(inner, request);
    /* also when it is due already: the inner transport must get its turn, and say whether it failed
     */
    fo_status status = link_progress(endpoint);
    if (status != FO_OK)
        return status;
    if (request->hook[0] == STAGE_NONE)
        return inner->ops->test(inner, request);
    if (request->hook[0] < STAGE_COMMITTED || time_of(request) > fo_base_clock_ns())
        return FO_IN_PROGRESS;
    list_remove(&link->committed, request);
    request->hook[0] = STAGE_NONE;
    request->imm = 0;
    link->tracked--;
    return FO_OK;
}

/* True when something became due that no wait has told yet; *earliest: the next time something may
 * be. */
static bool has_news(link_hook *link, int64_t now, int64_t *earliest)
{
    bool news = false;
    for (fo_request *request = link->committed.first; request; request = next_of(request)) {
        if (request->hook[0] == STAGE_DUE)
            continue;
        if (time_of(request) <= now) {
            request->hook[0] = STAGE_DUE;
            news = true;
        } else if (time_of(request) < *earliest) {
            *earliest = time_of(request);
        }
    }
    for (fo_request *request = link->arrived.first; request; request = next_of(request)) {
        int64_t port = *port_of(link, link->ingress_free, request->peer);
        int64_t due =
            later(time_of(request), port) + transfer_ns(link, request->bytes) + link->latency_ns;
        if (due < *earliest)
            *earliest = due;
    }
    return news;
}

static fo_status link_wait(fo_endpoint *endpoint, int64_t until_ns)
{
    link_hook *link = link_of(endpoint);
    fo_endpoint *inner = link->hook.inner;
    if (!link->tracked)
        return inner->ops->wait(inner, until_ns);
    fo_status status = link_progress(endpoint);
    int64_t now = fo_base_clock_ns(), earliest = INT64_MAX;
    if (status != FO_OK || has_news(link, now, &earliest))
        return status;
    if (!link->spin || earliest > until_ns)
        return inner->ops->wait(inner, earliest < until_ns ? earliest : until_ns);
    if (earliest - now > SPIN_NS)
        return inner->ops->wait(inner, earliest - SPIN_NS);
    while (status == FO_OK && fo_base_clock_ns() < earliest)
        status = inner->ops->progress(inner);
    return status;
}

static fo_status link_set(fo_endpoint *endpoint, const fo_link *link_wanted)
{
    link_hook *link = link_of(endpoint);
    fo_link wanted = link_wanted ? *link_wanted : (fo_link){0};
    if (!(wanted.bytes_per_s >= 0 && wanted.bytes_per_s <= 1e18))
        return fo_base_error(FO_INVALID, "an emulated link of %g bytes/s, expected 0 (off) or more",
                             wanted.bytes_per_s);
    if (!(wanted.latency_s >= 0 && wanted.latency_s <= 1e6))
        return fo_base_error(FO_INVALID, "an emulated latency of %g s, expected 0 or more",
                             wanted.latency_s);
    if (wanted.topology != FO_SWITCH && wanted.topology != FO_MESH)
        return fo_base_error(FO_INVALID,
                             "topology %d of an emulated link, expected FO_SWITCH or FO_MESH",
                             (int)wanted.topology);
    link->link = wanted;
    link->latency_ns = (int64_t)(wanted.latency_s * 1e9 + 0.5);
    for (int peer = 0; peer < link->hook.base.size; peer++)
        link->egress_free[peer] = link->ingress_free[peer] = 0;
    return FO_OK;
}

static void link_close(fo_hook *hook)
{
    link_hook *link = (link_hook *)hook;
    free(link->egress_free);
    free(link->ingress_free);
    free(link->posted);
    free(link);
}

/* ---- where messages carry no word: no link can be emulated, and off is fine ---------------------------- */

static fo_status plain_set(fo_endpoint *endpoint, const fo_link *wanted)
{
    if (!wanted || wanted->bytes_per_s <= 0)
        return FO_OK;
    return fo_base_error(FO_UNSUPPORTED,
                         "--link is for ranks on one machine, expected none over transport "
                         "\"%s\"; leave --link out, or use --transport shm without a launcher",
                         endpoint->ops->name);
}

static void plain_close(fo_hook *hook)
{
    free(hook);
}

static fo_status plain_open(fo_endpoint *inner, const fo_link *wanted, fo_endpoint **wrapped)
{
    fo_status status = plain_set(inner, wanted);
    fo_hook *hook = status == FO_OK ? calloc(1, sizeof *hook) : NULL;
    if (status == FO_OK && !hook)
        status = fo_base_error(FO_NO_MEMORY, "no memory for an endpoint");
    if (status != FO_OK)
        return status;
    fo_transport_hook_open(hook, inner, plain_close);
    hook->ops.set_link = plain_set;
    *wrapped = &hook->base;
    return FO_OK;
}

fo_status fo_transport_hook_link(fo_endpoint *inner, const fo_link *wanted, fo_endpoint **wrapped)
{
    *wrapped = NULL;
    if (!(inner->ops->caps & FO_TRANSPORT_IMM))
        return plain_open(inner, wanted, wrapped);
    link_hook *link = calloc(1, sizeof *link);
    if (!link)
        return fo_base_error(FO_NO_MEMORY, "no memory for an emulated link");
    size_t size = (size_t)inner->size;
    fo_transport_hook_open(&link->hook, inner, link_close);
    link->hook.ops.caps &= ~(uint32_t)FO_TRANSPORT_IMM;
    link->hook.ops.isend = link_isend;
    link->hook.ops.irecv = link_irecv;
    if (inner->ops->irecv_view)
        link->hook.ops.irecv_view = link_irecv_view;
    link->hook.ops.test = link_test;
    link->hook.ops.progress = link_progress;
    link->hook.ops.wait = link_wait;
    link->hook.ops.set_link = link_set;
    link->spin = inner->size <= fo_transport_machine_cores();
    link->egress_free = calloc(size, sizeof *link->egress_free);
    link->ingress_free = calloc(size, sizeof *link->ingress_free);
    link->posted = calloc(size, sizeof *link->posted);
    fo_status status = FO_OK;
    if (!link->egress_free || !link->ingress_free || !link->posted)
        status = fo_base_error(FO_NO_MEMORY, "no memory for an emulated link");
    if (status == FO_OK)
        status = link_set(&link->hook.base, wanted);
    if (status != FO_OK) {
        link_close(&link->hook);
        return status;
    }
    *wrapped = &link->hook.base;
    return FO_OK;
}
