/* ring: the collective in ring steps, each beside one computation, with a barrier between steps (Wang et
 * al., ASPLOS 2023): nothing streams, additions are passes of their own. */
#include "schedule/builder.h"

/* What the tasks of step `step` wait for: the computations, additions and arrivals of the one before. */
static void barrier(fo_builder *b, int step)
{
    if (step < 1)
        return;
    fo_schedule_build_dep(b, b->main[step - 1], FO_DEP_DONE);
    fo_schedule_build_dep(b, b->side[step - 1], FO_DEP_DONE);
    fo_schedule_build_dep(b, b->add[step - 1], FO_DEP_DONE);
    fo_schedule_build_dep(b, b->g_recv[step], FO_DEP_DONE);
    fo_schedule_build_dep(b, b->r_recv[step - 1], FO_DEP_DONE);
}

static int64_t shard_row(const fo_builder *b, int shard)
{
    return fo_schedule_build_slice(b, shard, 0).row;
}

static void gather_transfers(fo_builder *b, int step)
{
    int right = fo_schedule_mod(b->rank + 1, b->ranks),
        left = fo_schedule_mod(b->rank - 1, b->ranks);
    if (step == b->ranks - 1)
        return;
    int64_t next = shard_row(b, fo_schedule_gather_shard(b, step + 1));
    int64_t now = shard_row(b, fo_schedule_gather_shard(b, step));
    if (fo_schedule_build_gather_recv(b, step + 1, 0, left, next) >= 0)
        barrier(b, step);
    if (fo_schedule_build_gather_send(b, b->g_send, step, 0, right, now) >= 0)
        barrier(b, step);
}

static void gather_compute(fo_builder *b, int slot, int step)
{
    int64_t at = shard_row(b, fo_schedule_gather_shard(b, step));
    if (fo_schedule_build_gather_compute(b, slot, step, 0, at) >= 0)
        barrier(b, step);
}

/* Step i sends the sum of step i-1 and receives that of its own slice. */
static void reduce_transfers(fo_builder *b, int step)
{
    int right = fo_schedule_mod(b->rank + 1, b->ranks),
        left = fo_schedule_mod(b->rank - 1, b->ranks);
    if (step < 1)
        return;
    int shard = fo_schedule_reduce_shard(b, step);
    int before = fo_schedule_reduce_shard(b, step - 1);
    if (fo_schedule_build_reduce_recv(b, b->r_recv, step, 0, shard, left, shard_row(b, shard)) >= 0)
        barrier(b, step);
    if (fo_schedule_build_reduce_send(b, step - 1, 0, right, shard_row(b, before)) >= 0) {
        barrier(b, step);
        b->program->tasks[b->r_send[step - 1]].step++;
    }
}

static void reduce_compute(fo_builder *b, int step)
{
    fo_slice s = fo_schedule_build_slice(b, fo_schedule_reduce_shard(b, step), 0);
    fo_buffer_role role = step ? FO_BUFFER_ACC : FO_BUFFER_PARTIAL;
    fo_ref out = fo_schedule_build_ref(b, role, s.row);
    if (b->ranks == 1)
        out = fo_schedule_build_ref(b, FO_BUFFER_OUTPUT, 0);
    if (fo_schedule_build_reduce_compute(b, step, 0, fo_schedule_build_nowhere, out) >= 0)
        barrier(b, step);
}

static void reduce_add(fo_builder *b, int step)
{
    fo_slice s = fo_schedule_build_slice(b, fo_schedule_reduce_shard(b, step), 0);
    bool last = step == b->ranks - 1;
    fo_task task = {.kind = FO_TASK_ADD,
                    .peer = -1,
                    .step = step,
                    .shard = s.shard,
                    .row = s.row,
                    .rows = s.rows,
                    .in = fo_schedule_build_ref(b, FO_BUFFER_ACC, s.row),
                    .add = fo_schedule_build_ref(b, FO_BUFFER_STAGING, s.row),
                    .out = last ? fo_schedule_build_ref(b, FO_BUFFER_OUTPUT, 0)
                                : fo_schedule_build_ref(b, FO_BUFFER_PARTIAL, s.row)};
    if (step < 1)
        return;
    b->add[step] = fo_schedule_build_emit(b, &task);
    if (b->add[step] < 0)
        return;
    fo_schedule_build_dep(b, b->main[step], FO_DEP_DONE);
    fo_schedule_build_dep(b, b->r_recv[step], FO_DEP_DONE);
}

void fo_schedule_build_ring(fo_builder *b)
{
    int64_t all = b->desc->rows;
    fo_schedule_build_buffers(b, all, all, all, all);
    for (int i = 0; b->block && i < b->ranks; i++) {
        gather_transfers(b, i);
        gather_compute(b, 0, i);
    }
    for (int i = 0; i < b->ranks; i++) {
        if (b->gathers && !b->block)
            gather_transfers(b, i);
        if (b->reduces)
            reduce_transfers(b, i);
        if (b->reduces)
            reduce_compute(b, i);
        else if (b->primary)
            gather_compute(b, 0, i);
        if (b->second)
            gather_compute(b, 1, i);
        if (b->reduces)
            reduce_add(b, i);
    }
}
