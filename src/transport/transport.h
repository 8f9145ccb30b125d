/* The transport interface: ordered, tagged, nonblocking point-to-point messages between the ranks
 * of a group. A new transport is one folder, one line in registry.c and one build line; it passes
 * tests/conformance/ unedited. self/ is the one to copy.
 *
 * Matching: the k-th send from a to b with tag t meets the k-th receive of b from a with tag t.
 * Sizes must agree exactly; a receive that meets another size fails with FO_INTERNAL and a
 * sentence. Sends and receives may be posted in any order, in any number; a rank may send to
 * itself.
 *
 * Threads: an endpoint belongs to one rank and is used by one thread at a time.
 * Nothing here allocates or makes a system call per message, except where a capability says so.
 */
#ifndef FO_TRANSPORT_TRANSPORT_H
#define FO_TRANSPORT_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "flashoverlap/group.h"

enum {
    FO_TRANSPORT_VIEW = 1u << 0,    /* irecv_view is implemented */
    FO_TRANSPORT_IMM = 1u << 1,     /* the 64-bit word of isend reaches the receiver */
    FO_TRANSPORT_PROCESS = 1u << 2, /* a rank is a process of its own */
    FO_TRANSPORT_JOINS = 1u << 3,   /* launch() joins ranks that a launcher started */
};

/* request->kind */
enum { FO_REQUEST_SEND = 1, FO_REQUEST_RECV, FO_REQUEST_VIEW };

typedef struct fo_endpoint fo_endpoint;

/* One message in flight. Owned by the caller, zero-initialised before first use, stays in place
 * until test() has returned something else than FO_IN_PROGRESS (and, for a view, until release()).
 */
typedef struct fo_request {
    /* readable by the caller once test() returned FO_OK on a receive: */
    const void *data; /* where the bytes are: the caller's buffer, or inside the sender's memory */
    uint64_t imm;     /* the sender's word */
    /* the transport's: */
    int32_t kind, state, peer;
    uint32_t tag;
    void *buffer;
    size_t bytes;
    struct fo_request *next;
    /* the caller's: true when the request is posted again and again with the same peer, tag, buffer and
     * size. The transport may keep what it prepared until forget(); another post is right, only slower. */
    bool fixed;
    uint64_t scratch[4]; /* for the transport */
    uint64_t hook[4];    /* for wrapping transports */
} fo_request;

/* A collective of the transport's own library, for comparison. Counts are in elements, by rank. */
typedef enum fo_collective_kind {
    FO_COLLECTIVE_ALL_GATHER, /* send: counts[rank] elements; recv: those of all ranks, in rank order */
    FO_COLLECTIVE_REDUCE_SCATTER /* send: the sum of counts; recv: counts[rank] elements, summed */
} fo_collective_kind;
typedef struct fo_collective {
    fo_collective_kind kind;
    fo_dtype dtype;
    const void *send;
    void *recv;
    const int64_t *counts; /* [size]; stays in place until the request is done */
    bool blocking;         /* the blocking call: done when it returns */
} fo_collective;

typedef struct fo_transport_ops {
    const char *name;
    uint32_t caps;

    /* Posts a send. `data` must not change until the request is done. Done means: the receiver has
     * the bytes (a copying receive), or has released its view. */
    fo_status (*isend)(fo_endpoint *, fo_request *, int peer, uint32_t tag, const void *data,
                       size_t bytes, uint64_t imm);
    /* Posts a receive into `buffer`. */
    fo_status (*irecv)(fo_endpoint *, fo_request *, int peer, uint32_t tag, void *buffer,
                       size_t bytes);
    /* Posts a receive that hands out a pointer to the sender's bytes (request->data) instead of
     * copying. The sender's request is done only after release(). With FO_TRANSPORT_VIEW only. A
     * view may be sent on (isend of request->data) before it is released. */
    fo_status (*irecv_view)(fo_endpoint *, fo_request *, int peer, uint32_t tag, size_t bytes);
    /* FO_OK: done; FO_IN_PROGRESS; FO_PEER: the group has failed (see fail). Makes progress. A
     * receive that met another size says FO_INTERNAL each time it is tested. */
    fo_status (*test)(fo_endpoint *, fo_request *);
    /* Ends a view whose test() returned FO_OK. */
    void (*release)(fo_endpoint *, fo_request *);
    /* Moves messages; cheap when there is nothing to do. FO_OK or FO_PEER. */
    fo_status (*progress)(fo_endpoint *);
    /* Waits until something may have changed for this rank (a message, a completion, a failure), or
     * until the clock (fo_base_clock_ns) reaches until_ns. Spins briefly, then sleeps: a waiting
     * rank must not burn a core that another one needs. May return early. FO_OK or FO_PEER. */
    fo_status (*wait)(fo_endpoint *, int64_t until_ns);

    /* Memory peers can view; any other memory can be sent too, at the price of a copy where the
     * transport needs one. 64-byte aligned, zeroed. NULL when exhausted. */
    void *(*alloc)(fo_endpoint *, size_t bytes);
    void (*free)(fo_endpoint *, void *memory);

    /* Declares the group dead: from now on every test, wait and progress of every rank returns
     * FO_PEER and fo_last_error() there says `cause` of rank `rank`. The first cause wins. isend
     * and irecv return FO_PEER too: requests that are in flight then may be abandoned, nobody looks
     * at them any more. */
    void (*fail)(fo_endpoint *, int rank, const char *cause);

    /* Whether the user asked the launching process to stop. */
    bool (*interrupted)(fo_endpoint *);

    /* Optional (wrapping transports): the emulated link. NULL when there is none. */
    fo_status (*set_link)(fo_endpoint *, const fo_link *link);

    /* ---- optional, NULL where a transport has no use for it ---- */

    /* Gives back what was kept for a request with `fixed`; it is not in flight. */
    void (*forget)(fo_endpoint *, fo_request *);
    /* Where this rank was when it learnt of a failure ("mlp: waiting for ... from rank 1"): the first one's
     * words join the sentence of the group. */
    void (*witness)(fo_endpoint *, const char *where);
    /* An endpoint over the ranks members[0..count) of this one, ascending; this rank is among them. Messages
     * of the two never meet. All members call it in the same order. NULL: fo_transport_hook_subset does it. */
    fo_status (*split)(fo_endpoint *, const int *members, int count, fo_endpoint **sub);
    void (*close)(fo_endpoint *sub);
    /* The library's own collective, the same on all ranks; test() as for a message. */
    fo_status (*collective)(fo_endpoint *, fo_request *, const fo_collective *);
} fo_transport_ops;

/* Where a rank runs. */
typedef struct fo_place {
    char host[64];
    int node; /* number of its machine, from 0 in the order of first ranks */
    int64_t pid;
} fo_place;

/* Every endpoint begins with this. */
struct fo_endpoint {
    const fo_transport_ops *ops;
    int rank, size;
    int64_t deadline_ns;    /* length of a wait without progress that is an error */
    const fo_place *places; /* [size]; NULL: all on this machine */
};

typedef fo_status (*fo_transport_main)(fo_endpoint *endpoint, void *arg);

typedef struct fo_transport_options {
    int ranks;
    double deadline_s; /* 0: 60 */
    size_t memory;     /* shared bytes a rank; 0: the machine's memory */
} fo_transport_options;

/* One line of the registry: starts `ranks` ranks, runs rank_main on each, returns when all ended.
 * Contract as fo_group_run: the first failure in time wins, its rank and sentence are in
 * fo_last_error() of the caller; a rank that returns an error or dies makes every other rank's
 * waits end with FO_PEER. */
typedef struct fo_transport {
    const fo_transport_ops *ops;
    const char *about; /* one line for `flashoverlap info` */
    fo_status (*launch)(const fo_transport_options *, fo_transport_main, void *arg);
} fo_transport;

/* The transports built in, in order of preference; NULL past the end. */
const fo_transport *fo_transport_at(int index);
/* By name; NULL when unknown. */
const fo_transport *fo_transport_find(const char *name);

/* hook/: wraps `inner` so that deliveries obey `link` (see fo_link). The wrapper owns nothing of
 * inner. Needs FO_TRANSPORT_IMM. Destroy before the endpoint goes. */
fo_status fo_transport_hook_link(fo_endpoint *inner, const fo_link *link, fo_endpoint **wrapped);

/* hook/: faults for tests. drop_every k: every k-th send of this rank is never delivered; delay_ns
 * and jitter by a counter-based generator; die_at: the process or thread fails at its n-th send. 0:
 * off. */
typedef struct fo_fault {
    uint64_t seed;
    int64_t drop_every;
    int64_t delay_ns;
    int64_t fail_at;
} fo_fault;
fo_status fo_transport_hook_fault(fo_endpoint *inner, const fo_fault *fault, fo_endpoint **wrapped);

/* hook/: an endpoint over the ranks members[0..count) of `inner`, ascending, inner's own among them. Its tags
 * are inner's from `first_tag` on, which nobody else may use: `tags` of them. */
fo_status fo_transport_hook_subset(fo_endpoint *inner, const int *members, int count,
                                   uint32_t first_tag, uint32_t tags, fo_endpoint **wrapped);

/* Ends a wrapper made by fo_transport_hook_*. */
void fo_transport_hook_destroy(fo_endpoint *wrapped);

/* Blocking conveniences used by groups and tests, over any endpoint. Fail with FO_TIMEOUT after
 * deadline_ns without completion. */
fo_status fo_transport_wait_request(fo_endpoint *, fo_request *, const char *what);

#endif
