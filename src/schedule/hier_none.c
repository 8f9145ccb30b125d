/* none/hier: the order of hier with nothing overlapped: what its bits are compared with, and the time it saves.
 *
 * The all-gather of rings in a ring, all computations, the reduce-scatter of rings in a ring, one after the
 * other; the collectives are pipelined message by message. Received sums of the own machine stage in the first
 * M rows of STAGING, those of other machines in the next M. */
#include "schedule/builder.h"

static int64_t shard_row(const fo_builder *b, int shard)
{
    return fo_schedule_build_slice(b, shard, 0).row;
}

static int64_t gather_row(const fo_builder *b, int step)
{
    return shard_row(b, fo_schedule_gather_shard(b, step));
}

static void gather_send(fo_builder *b, int32_t *table, int step, int peer)
{
    if (fo_schedule_build_gather_send(b, table, step, 0, peer, gather_row(b, step)) >= 0)
        fo_schedule_build_dep(b, b->g_recv[step], FO_DEP_ROWS);
}

static void gather_step(fo_builder *b, int step)
{
    int next = step + b->locals;
    if (step % b->locals == 0 && next < b->ranks) {
        fo_schedule_build_gather_recv(b, next, 0, fo_schedule_outer_peer(b, -1),
                                      gather_row(b, next));
        if (b->g_recv[next] >= 0)
            b->program->tasks[b->g_recv[next]].step = step;
        gather_send(b, b->g_outer, step, fo_schedule_outer_peer(b, 1));
    }
    if (step % b->locals < b->locals - 1) {
        fo_schedule_build_gather_recv(b, step + 1, 0, fo_schedule_inner_peer(b, -1),
                                      gather_row(b, step + 1));
        gather_send(b, b->g_send, step, fo_schedule_inner_peer(b, 1));
    }
}

static void after_gather(fo_builder *b)
{
    for (int i = 1; i < b->ranks; i++)
        fo_schedule_build_dep(b, b->g_recv[i], FO_DEP_DONE);
}

static void gather_computes(fo_builder *b, int slot)
{
    for (int i = 0; i < b->ranks; i++)
        if (fo_schedule_build_gather_compute(b, slot, i, 0, gather_row(b, i)) >= 0)
            after_gather(b);
}

/* Own contributions wait in float32, but those that begin a sum and travel as they are. */
static void reduce_computes(fo_builder *b)
{
    for (int i = 0; i < b->ranks; i++) {
        fo_buffer_role role = i % b->locals ? FO_BUFFER_ACC : FO_BUFFER_PARTIAL;
        int64_t row = shard_row(b, fo_schedule_reduce_shard(b, i));
        fo_ref out = fo_schedule_build_ref(b, role, row);
        if (fo_schedule_build_reduce_compute(b, i, 0, fo_schedule_build_nowhere, out) >= 0)
            after_gather(b);
    }
}

/* Receives a sum of the shard of step `step` and adds the own one, in ACC. `at`: first row of STAGING. */
static void add_received(fo_builder *b, int32_t *table, int step, int peer, int64_t at, fo_ref out)
{
    fo_slice s = fo_schedule_build_slice(b, fo_schedule_reduce_shard(b, step), 0);
    fo_schedule_build_reduce_recv(b, table, step, 0, s.shard, peer, at + s.row);
    fo_task task = {.kind = FO_TASK_ADD,
                    .peer = -1,
                    .step = step,
                    .shard = s.shard,
                    .row = s.row,
                    .rows = s.rows,
                    .in = fo_schedule_build_ref(b, FO_BUFFER_ACC, s.row),
                    .add = fo_schedule_build_ref(b, FO_BUFFER_STAGING, at + s.row),
                    .out = out};
    int32_t before = b->add[step];
    b->add[step] = fo_schedule_build_emit(b, &task);
    if (b->add[step] < 0)
        return;
    fo_schedule_build_dep(b, before >= 0 ? before : b->main[step], FO_DEP_DONE);
    fo_schedule_build_dep(b, table[step], FO_DEP_ROWS);
}

static void reduce_send(fo_builder *b, int step, int peer)
{
    int64_t row = shard_row(b, fo_schedule_reduce_shard(b, step));
    if (fo_schedule_build_reduce_send(b, step, 0, peer, row) < 0)
        return;
    for (int i = 0; i < b->ranks; i++) {
        fo_schedule_build_dep(b, b->main[i], FO_DEP_DONE);
        if (b->second)
            fo_schedule_build_dep(b, b->side[i], FO_DEP_DONE);
    }
    fo_schedule_build_dep(b, b->add[step], FO_DEP_ROWS);
}

static void reduce_step(fo_builder *b, int step)
{
    bool last = step % b->locals == b->locals - 1, final = step == b->ranks - 1;
    fo_slice s = fo_schedule_build_slice(b, fo_schedule_reduce_shard(b, step), 0);
    fo_ref sum = final ? fo_schedule_build_ref(b, FO_BUFFER_OUTPUT, s.inside)
                       : fo_schedule_build_ref(b, FO_BUFFER_PARTIAL, s.row);
    bool arrives = last && step >= b->locals;
    if (step % b->locals)
        add_received(b, b->r_recv, step, fo_schedule_inner_peer(b, -1), 0,
                     arrives ? fo_schedule_build_ref(b, FO_BUFFER_ACC, s.row) : sum);
    if (arrives)
        add_received(b, b->r_outer, step, fo_schedule_outer_peer(b, -1), b->desc->rows, sum);
    if (!final)
        reduce_send(b, step, last ? fo_schedule_outer_peer(b, 1) : fo_schedule_inner_peer(b, 1));
}

void fo_schedule_build_hier_none(fo_builder *b)
{
    int64_t all = b->desc->rows;
    fo_schedule_build_buffers(b, all, all, all, 2 * all);
    for (int i = 0; b->gathers && i < b->ranks; i++)
        gather_step(b, i);
    if (b->primary)
        gather_computes(b, 0);
    if (b->reduces)
        reduce_computes(b);
    if (b->second)
        gather_computes(b, 1);
    for (int i = 0; b->reduces && i < b->ranks; i++)
        reduce_step(b, i);
}
