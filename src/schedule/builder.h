/* What the builders of this room share: slices, emitting tasks, tables of what was emitted. */
#ifndef FO_SCHEDULE_BUILDER_H
#define FO_SCHEDULE_BUILDER_H

#include <stdbool.h>

#include "schedule/program.h"

/* Slots of a ring's staging: one being read, one being filled, one to spare. */
enum { FO_RING_SLOTS = 3 };

typedef struct fo_builder {
    const fo_schedule_desc *desc;
    int ranks, rank;
    int nodes, locals; /* machines and ranks on each; where nothing is nested 1 and all ranks */
    int parts;         /* sub-slices a shard */
    bool gathers;      /* input rows travel on channel 0 */
    bool reduces;      /* partial sums travel on channel 1 */
    bool primary;      /* slot 0 computes on gathered rows */
    bool second;       /* slot 1 computes weight gradients of gathered rows */
    bool block;     /* slot 1 computes the partial sums, from what slot 0 made of gathered rows */
    int64_t widest; /* rows of the largest shard */
    int32_t buffer[FO_BUFFER_ROLES];
    fo_program *program;
    fo_status status;
    /* index of the task of (step, sub), -1: none. main: computations whose result leaves or is the output;
     * side: the others, weight gradients or a block's first product */
    int32_t *g_recv, *g_send, *r_recv, *r_send, *main, *side, *add;
    int32_t *g_outer, *r_outer; /* of an outer ring: sends of shards, receives of sums */
} fo_builder;

/* A slice: sub-slice `sub` of shard `shard`. */
typedef struct fo_slice {
    int shard, sub;
    int64_t row, rows; /* global */
    int64_t inside;    /* first row inside its shard */
} fo_slice;

/* ---- pattern: who computes and sends what at which step (arithmetic only) ---- */
int fo_schedule_mod(int value, int ranks);
/* Shard computed at step i: all-gather order r, r-1, ...; reduce-scatter order r-1, r-2, ..., r. Nested: the
 * machines in that order, and for each of them its local numbers in that order. */
int fo_schedule_gather_shard(const fo_builder *b, int step);
int fo_schedule_reduce_shard(const fo_builder *b, int step);
/* The neighbour `by` ranks on in the ring of the own machine; in the ring of ranks of the own local number. */
int fo_schedule_inner_peer(const fo_builder *b, int by);
int fo_schedule_outer_peer(const fo_builder *b, int by);
/* How many computations a block's second product is behind its first. */
int fo_schedule_block_lag(const fo_builder *b);
fo_slice fo_schedule_build_slice(const fo_builder *b, int shard, int sub);
int fo_schedule_build_at(const fo_builder *b, int step, int sub);

/* ---- emitting; an empty slice emits nothing and gives -1 ---- */
void fo_schedule_build_buffers(fo_builder *b, int64_t gathered, int64_t acc, int64_t partial,
                               int64_t staging);
int32_t fo_schedule_build_emit(fo_builder *b, const fo_task *task);
/* Adds a dependency of the task emitted last; a producer of -1 is ignored. */
void fo_schedule_build_dep(fo_builder *b, int32_t producer, fo_dep_mode mode);
/* The shard of a step; the slot of a staging buffer that a step uses, -1: none. */
typedef int (*fo_shard_order)(const fo_builder *b, int step);
typedef int (*fo_step_slot)(const fo_builder *b, int step);
/* Depends on the tasks of `table` that used the rows of the slot that sub-slice `sub` of step `step` takes:
 * those of the last step with that slot that overlap it, or, where that shard was shorter, of the nearest
 * before. */
void fo_schedule_build_dep_used(fo_builder *b, const int32_t *table, fo_shard_order order,
                                fo_step_slot slot, int step, int sub, fo_dep_mode mode);
/* The same in one ring, whose steps take FO_RING_SLOTS slots in turn. */
void fo_schedule_build_dep_slot(fo_builder *b, const int32_t *table, fo_shard_order order, int step,
                                int sub, fo_dep_mode mode);
fo_ref fo_schedule_build_ref(const fo_builder *b, fo_buffer_role role, int64_t row);
extern const fo_ref fo_schedule_build_nowhere;

/* ---- strategies: each writes the whole program of b->rank ---- */
void fo_schedule_build_none(fo_builder *b);      /* bulk.c */
void fo_schedule_build_slices(fo_builder *b);    /* bulk.c */
void fo_schedule_build_ring(fo_builder *b);      /* ring.c */
void fo_schedule_build_flash(fo_builder *b);     /* flash.c */
void fo_schedule_build_direct(fo_builder *b);    /* direct.c */
void fo_schedule_build_hier(fo_builder *b);      /* hier.c; nodes and locals both > 1 */
void fo_schedule_build_hier_none(fo_builder *b); /* hier_none.c; likewise */
/* Whether the ranks divide evenly over desc->nodes machines; FO_INVALID names the nearest that do. */
fo_status fo_schedule_build_check_nodes(const fo_schedule_desc *desc);

/* ---- pieces shared by strategies (pieces.c) ---- */
/* Receives of the gathered shard of step `step` (>= 1) and the sending on of step `step`'s shard. `table`: where
 * the task is noted. */
int32_t fo_schedule_build_gather_recv(fo_builder *b, int step, int sub, int peer, int64_t at);
int32_t fo_schedule_build_gather_send(fo_builder *b, int32_t *table, int step, int sub, int peer,
                                      int64_t at);
/* Computation `slot` on the gathered rows of a step. `at`: row inside GATHERED. */
int32_t fo_schedule_build_gather_compute(fo_builder *b, int slot, int step, int sub, int64_t at);
/* The computations that read gathered rows last. */
const int32_t *fo_schedule_build_readers(const fo_builder *b);
/* The computation of partial sums of a step, into `out`, adding `add`. */
int32_t fo_schedule_build_reduce_compute(fo_builder *b, int step, int sub, fo_ref add, fo_ref out);
int32_t fo_schedule_build_reduce_recv(fo_builder *b, int32_t *table, int step, int sub, int shard,
                                      int peer, int64_t at);
int32_t fo_schedule_build_reduce_send(fo_builder *b, int step, int sub, int peer, int64_t at);

#endif
