/* Ranks as forked processes over one anonymous shared mapping. Nothing is left in the file system.
 *
 *   shm.c     the endpoint: messages, waiting
 *   arena.c   memory of one rank that all can read
 *   launch.c  the mapping, the processes, watching over them
 */
#ifndef FO_TRANSPORT_SHM_H
#define FO_TRANSPORT_SHM_H

#include <stdint.h>

#include "transport/failure.h"
#include "transport/match.h"
#include "transport/transport.h"

extern const fo_transport fo_transport_shm;

/* ---- arena.c: first fit over a sorted list of blocks, kept outside the memory it describes ---- */

typedef struct shm_block {
    size_t offset, bytes;
    bool used;
    bool zero; /* its pages were given back, or never touched */
} shm_block;

typedef struct shm_arena {
    char *memory;
    size_t size;
    size_t clean; /* from here on nothing was ever handed out: still zero */
    shm_block *blocks;
    size_t count, capacity;
} shm_arena;

fo_status fo_transport_arena_init(shm_arena *arena, void *memory, size_t size);
void fo_transport_arena_free(shm_arena *arena); /* the list; not the memory */
/* 64-byte aligned, page aligned from 64 KiB on; NULL when no run of free bytes is long enough. */
void *fo_transport_arena_take(shm_arena *arena, size_t bytes, bool zeroed);
/* keep: leave the pages in place for the next user. */
void fo_transport_arena_give(shm_arena *arena, void *memory, bool keep);

/* ---- what all processes share ---- */

/* Of one rank. Anyone pushes to `inbox` (a stack; the owner takes all of it and turns it round) and
 * then counts up `events`; `sleeping` is the number of the owner's sleep, out of which it must be woken, or 0. */
typedef struct shm_mailbox {
    alignas(128) _Atomic(fo_message *) inbox;
    atomic_uint events;
    atomic_uint sleeping;
    alignas(128) atomic_int result; /* 0: running; 1 + status of rank_main */
} shm_mailbox;

typedef struct shm_shared {
    fo_failure failure;
    alignas(128) atomic_int interrupted;
    int size;
    char *arenas; /* of rank 0, then the others */
    size_t arena_bytes;
    shm_mailbox mailboxes[];
} shm_shared;

/* Counts an event of rank `to` and wakes it. */
void fo_transport_shm_ring(shm_shared *shared, int to);
/* Declares the group failed and wakes everyone. */
void fo_transport_shm_declare(shm_shared *shared, int writer, int rank, const char *cause);

typedef struct shm_endpoint {
    fo_endpoint base; /* first */
    shm_shared *shared;
    shm_mailbox *mailbox; /* the own */
    uint32_t seen;        /* events known to the caller */
    uint32_t sleep;       /* number of the last one */
    int64_t spin_ns;      /* before a wait sleeps */
    fo_match match;
    fo_message *free_cells;
    shm_arena arena;
} shm_endpoint;

extern const fo_transport_ops fo_transport_shm_ops;

fo_status fo_transport_shm_open(shm_endpoint *shm, shm_shared *shared, int rank,
                                const fo_transport_options *options, int64_t spin_ns);
void fo_transport_shm_close(shm_endpoint *shm);

#endif
