/* direct:m: the order of flash, every slice in one hop. A partial goes straight to its owner, which adds
 * them up in the declared order j+1, j+2, ... as they arrive, between its own computations; a shard goes
 * straight to everybody. Same bytes, no dependency between steps; needs links between all ranks. */
#include "schedule/builder.h"

static int64_t slot_row(const fo_builder *b, int step)
{
    return step % FO_RING_SLOTS * b->widest;
}

/* The own shard is there from the beginning, but all its sends at once would keep the port from the partial
 * sums: each goes one computation before it is needed. */
static int32_t paced_by(const fo_builder *b, int step)
{
    const int32_t *computed = fo_schedule_build_readers(b);
    for (int k = b->parts - 1; step >= 2 && k >= 0; k--)
        if (computed[fo_schedule_build_at(b, step - 2, k)] >= 0)
            return computed[fo_schedule_build_at(b, step - 2, k)];
    return -1;
}

static void gather_transfers(fo_builder *b, int step)
{
    for (int k = 0; step >= 1 && k < b->parts; k++) {
        int from = fo_schedule_mod(b->rank - step, b->ranks);
        if (fo_schedule_build_gather_recv(b, step, k, from, slot_row(b, step)) < 0)
            continue;
        fo_schedule_build_dep_slot(b, fo_schedule_build_readers(b), fo_schedule_gather_shard, step,
                                   k, FO_DEP_SPACE);
    }
    for (int k = 0; step >= 1 && k < b->parts; k++)
        if (fo_schedule_build_gather_send(b, b->g_send, 0, k,
                                          fo_schedule_mod(b->rank + step, b->ranks), 0) >= 0)
            fo_schedule_build_dep(b, paced_by(b, step), FO_DEP_DONE);
}

static void gather_compute(fo_builder *b, int slot, int step, int k)
{
    if (fo_schedule_build_gather_compute(b, slot, step, k, slot_row(b, step)) >= 0)
        fo_schedule_build_dep(b, b->g_recv[fo_schedule_build_at(b, step, k)], FO_DEP_ROWS);
}

/* The partial that rank r+1+step computed of the own shard. */
static void reduce_recvs(fo_builder *b, int step)
{
    int from = fo_schedule_mod(b->rank + 1 + step, b->ranks);
    for (int k = 0; step < b->ranks - 1 && k < b->parts; k++) {
        if (fo_schedule_build_reduce_recv(b, b->r_recv, step, k, b->rank, from, slot_row(b, step)) <
            0)
            continue;
        int reader = step - FO_RING_SLOTS < 1 ? 1 : step - FO_RING_SLOTS;
        if (step >= FO_RING_SLOTS) /* the same shard, so the same rows */
            fo_schedule_build_dep(b, b->add[fo_schedule_build_at(b, reader, k)], FO_DEP_SPACE);
    }
}

/* Adds received partial `a` (>= 1) to the running sum. */
static void add_received(fo_builder *b, int a, int k)
{
    fo_slice s = fo_schedule_build_slice(b, b->rank, k);
    fo_task task = {.kind = FO_TASK_ADD,
                    .peer = -1,
                    .step = a,
                    .shard = s.shard,
                    .sub = k,
                    .row = s.row,
                    .rows = s.rows,
                    .in = a == 1 ? fo_schedule_build_ref(b, FO_BUFFER_STAGING,
                                                         slot_row(b, 0) + s.inside)
                                 : fo_schedule_build_ref(b, FO_BUFFER_ACC, s.inside),
                    .add = fo_schedule_build_ref(b, FO_BUFFER_STAGING, slot_row(b, a) + s.inside),
                    .out = fo_schedule_build_ref(b, FO_BUFFER_ACC, s.inside)};
    int32_t index = b->add[fo_schedule_build_at(b, a, k)] = fo_schedule_build_emit(b, &task);
    if (index < 0)
        return;
    if (a == 1)
        fo_schedule_build_dep(b, b->r_recv[fo_schedule_build_at(b, 0, k)], FO_DEP_ROWS);
    fo_schedule_build_dep(b, b->r_recv[fo_schedule_build_at(b, a, k)], FO_DEP_ROWS);
    fo_schedule_build_dep(b, a > 1 ? b->add[fo_schedule_build_at(b, a - 1, k)] : -1, FO_DEP_DONE);
}

static void reduce_compute(fo_builder *b, int step, int k)
{
    int owner = fo_schedule_reduce_shard(b, step);
    bool last = step == b->ranks - 1;
    fo_slice s = fo_schedule_build_slice(b, owner, k);
    fo_ref add = fo_schedule_build_nowhere;
    if (last && b->ranks == 2)
        add = fo_schedule_build_ref(b, FO_BUFFER_STAGING, slot_row(b, 0) + s.inside);
    else if (last && b->ranks > 2)
        add = fo_schedule_build_ref(b, FO_BUFFER_ACC, s.inside);
    fo_ref out = last ? fo_schedule_build_ref(b, FO_BUFFER_OUTPUT, s.inside)
                      : fo_schedule_build_ref(b, FO_BUFFER_PARTIAL, slot_row(b, step) + s.inside);
    int32_t compute = fo_schedule_build_reduce_compute(b, step, k, add, out);
    if (compute < 0)
        return;
    if (last && b->ranks == 2)
        fo_schedule_build_dep(b, b->r_recv[fo_schedule_build_at(b, 0, k)], FO_DEP_ROWS);
    if (last && b->ranks > 2)
        fo_schedule_build_dep(b, b->add[fo_schedule_build_at(b, b->ranks - 2, k)], FO_DEP_DONE);
    if (!last)
        fo_schedule_build_dep_slot(b, b->r_send, fo_schedule_reduce_shard, step, k, FO_DEP_DONE);
    if (!last && fo_schedule_build_reduce_send(b, step, k, owner, slot_row(b, step)) >= 0)
        fo_schedule_build_dep(b, compute, FO_DEP_ROWS);
}

/* Additions that come behind the computations of step i: what was received one step earlier, and all
 * that is left before the own slice. */
static void adds_after(fo_builder *b, int i)
{
    int last = b->ranks - 2;
    for (int a = 1; a <= last; a++)
        if ((a + 1 < last ? a + 1 : last) == i)
            for (int k = 0; k < b->parts; k++)
                add_received(b, a, k);
}

static void joint(fo_builder *b)
{
    int last = b->ranks - 1;
    for (int i = 0; i < last; i++) {
        gather_transfers(b, i + 1);
        reduce_recvs(b, i);
        for (int k = 0; k < b->parts; k++) {
            reduce_compute(b, i, k);
            gather_compute(b, 1, i, k);
        }
        adds_after(b, i);
    }
    for (int k = 0; k < b->parts; k++)
        gather_compute(b, 1, last, k);
    for (int k = 0; k < b->parts; k++)
        reduce_compute(b, last, k);
}

static void block(fo_builder *b)
{
    for (int i = 0; i < b->ranks; i++) {
        if (i + 1 < b->ranks)
            gather_transfers(b, i + 1);
        if (i)
            reduce_recvs(b, i - 1);
        for (int k = 0; k < b->parts; k++) {
            gather_compute(b, 0, i, k);
            if (i)
                reduce_compute(b, i - 1, k);
        }
        if (i)
            adds_after(b, i - 1);
    }
    for (int k = 0; k < b->parts; k++)
        reduce_compute(b, b->ranks - 1, k);
}

void fo_schedule_build_direct(fo_builder *b)
{
    int64_t slots = FO_RING_SLOTS * b->widest;
    fo_schedule_build_buffers(b, slots, b->widest, slots, slots);
    if (b->desc->pattern == FO_PATTERN_JOINT) {
        joint(b);
        return;
    }
    if (b->block) {
        block(b);
        return;
    }
    for (int i = 0; i < b->ranks; i++) {
        if (b->gathers && i + 1 < b->ranks)
            gather_transfers(b, i + 1);
        if (b->reduces)
            reduce_recvs(b, i);
        for (int k = 0; k < b->parts; k++) {
            if (b->primary)
                gather_compute(b, 0, i, k);
            if (b->reduces)
                reduce_compute(b, i, k);
            if (b->second)
                gather_compute(b, 1, i, k);
        }
        if (b->reduces)
            adds_after(b, i);
    }
}
