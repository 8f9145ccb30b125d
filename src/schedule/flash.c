/* flash:m, ring form. All-gather: the own shard is computed first and every shard is sent on while it is
 * computed. Reduce-scatter: the own slice is computed last and kept; what arrives is added in the
 * epilogue of the computation of the same rows. Everything streams: a message leaves as soon as its rows
 * are finished, a tile starts as soon as its rows are there.
 *
 * JOINT computes D0 W0 D1 W1 ... W(N-1) and D(N-1) last (D: dgrad, reduce-scatter order; W: wgrad,
 * all-gather order): both transfers have computations behind them all the time, and the dgrad that adds
 * what arrives is never next to the one whose result is just leaving.
 *
 * BLOCK computes A0 A1 B1 A2 B2 ... A(N-1) B(N-1) and B0 last (A, B: first and second product on the shard
 * of all-gather step i): both rings walk the same way, so the second product's partial of a shard leaves
 * right behind the shard itself, and the own shard is first in one and last in the other. */
#include "schedule/builder.h"

static int64_t slot_row(const fo_builder *b, int step)
{
    return step % FO_RING_SLOTS * b->widest;
}

/* Step `step` sends its shard on and receives the next step's. */
static void gather_step(fo_builder *b, int step)
{
    int right = fo_schedule_mod(b->rank + 1, b->ranks),
        left = fo_schedule_mod(b->rank - 1, b->ranks);
    if (step == b->ranks - 1)
        return;
    for (int k = 0; k < b->parts; k++) {
        fo_schedule_build_gather_recv(b, step + 1, k, left, slot_row(b, step + 1));
        if (b->g_recv[fo_schedule_build_at(b, step + 1, k)] < 0)
            continue;
        fo_schedule_build_dep_slot(b, fo_schedule_build_readers(b), fo_schedule_gather_shard,
                                   step + 1, k, FO_DEP_SPACE);
        fo_schedule_build_dep_slot(b, b->g_send, fo_schedule_gather_shard, step + 1, k,
                                   FO_DEP_SPACE);
    }
    for (int k = 0; k < b->parts; k++)
        if (fo_schedule_build_gather_send(b, b->g_send, step, k, right, slot_row(b, step)) >= 0)
            fo_schedule_build_dep(b, b->g_recv[fo_schedule_build_at(b, step, k)], FO_DEP_ROWS);
}

static void gather_compute(fo_builder *b, int slot, int step, int k)
{
    if (fo_schedule_build_gather_compute(b, slot, step, k, slot_row(b, step)) >= 0)
        fo_schedule_build_dep(b, b->g_recv[fo_schedule_build_at(b, step, k)], FO_DEP_ROWS);
}

static void reduce_recvs(fo_builder *b, int step)
{
    int left = fo_schedule_mod(b->rank - 1, b->ranks);
    int shard = fo_schedule_reduce_shard(b, step);
    for (int k = 0; step >= 1 && k < b->parts; k++) {
        if (fo_schedule_build_reduce_recv(b, b->r_recv, step, k, shard, left, slot_row(b, step)) >=
            0)
            fo_schedule_build_dep_slot(b, b->main, fo_schedule_reduce_shard, step, k, FO_DEP_SPACE);
    }
}

static void reduce_compute(fo_builder *b, int step, int k)
{
    int right = fo_schedule_mod(b->rank + 1, b->ranks);
    bool last = step == b->ranks - 1;
    fo_slice s = fo_schedule_build_slice(b, fo_schedule_reduce_shard(b, step), k);
    int64_t at = slot_row(b, step) + s.inside;
    fo_ref add = step ? fo_schedule_build_ref(b, FO_BUFFER_STAGING, at) : fo_schedule_build_nowhere;
    fo_ref out = last ? fo_schedule_build_ref(b, FO_BUFFER_OUTPUT, s.inside)
                      : fo_schedule_build_ref(b, FO_BUFFER_PARTIAL, at);
    int32_t compute = fo_schedule_build_reduce_compute(b, step, k, add, out);
    if (compute < 0)
        return;
    fo_schedule_build_dep(b, b->r_recv[fo_schedule_build_at(b, step, k)], FO_DEP_ROWS);
    if (!last)
        fo_schedule_build_dep_slot(b, b->r_send, fo_schedule_reduce_shard, step, k, FO_DEP_DONE);
    if (!last && fo_schedule_build_reduce_send(b, step, k, right, slot_row(b, step)) >= 0)
        fo_schedule_build_dep(b, compute, FO_DEP_ROWS);
}

static void joint(fo_builder *b)
{
    int last = b->ranks - 1;
    for (int i = 0; i < last; i++) {
        gather_step(b, i);
        reduce_recvs(b, i);
        for (int k = 0; k < b->parts; k++) {
            reduce_compute(b, i, k);
            gather_compute(b, 1, i, k);
        }
    }
    reduce_recvs(b, last);
    for (int k = 0; k < b->parts; k++)
        gather_compute(b, 1, last, k);
    for (int k = 0; k < b->parts; k++)
        reduce_compute(b, last, k);
}

static void block(fo_builder *b)
{
    for (int i = 0; i < b->ranks; i++) {
        gather_step(b, i);
        if (i)
            reduce_recvs(b, i - 1);
        for (int k = 0; k < b->parts; k++) {
            gather_compute(b, 0, i, k);
            if (i)
                reduce_compute(b, i - 1, k);
        }
    }
    reduce_recvs(b, b->ranks - 1);
    for (int k = 0; k < b->parts; k++)
        reduce_compute(b, b->ranks - 1, k);
}

void fo_schedule_build_flash(fo_builder *b)
{
    int64_t slots = FO_RING_SLOTS * b->widest;
    fo_schedule_build_buffers(b, slots, 0, slots, slots);
    if (b->desc->pattern == FO_PATTERN_JOINT) {
        joint(b);
        return;
    }
    if (b->block) {
        block(b);
        return;
    }
    for (int i = 0; i < b->ranks; i++) {
        if (b->gathers)
            gather_step(b, i);
        else
            reduce_recvs(b, i);
        for (int k = 0; k < b->parts; k++) {
            if (b->primary)
                gather_compute(b, 0, i, k);
            if (b->reduces)
                reduce_compute(b, i, k);
            if (b->second)
                gather_compute(b, 1, i, k);
        }
    }
}
