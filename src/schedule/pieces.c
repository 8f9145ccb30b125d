/* Tasks that every strategy is made of. They say what is read, written and sent; the strategy adds when. */
#include "schedule/builder.h"

static fo_task slice_task(fo_task_kind kind, int step, fo_slice s)
{
    return (fo_task){.kind = kind,
                     .peer = -1,
                     .step = step,
                     .shard = s.shard,
                     .sub = s.sub,
                     .row = s.row,
                     .rows = s.rows,
                     .in = fo_schedule_build_nowhere,
                     .add = fo_schedule_build_nowhere,
                     .out = fo_schedule_build_nowhere};
}

/* Where the rows of the gathered shard of step `step` are: the own shard, or received. */
static fo_ref gathered(const fo_builder *b, int step, fo_slice s, int64_t at)
{
    return step == 0 ? fo_schedule_build_ref(b, FO_BUFFER_SHARD, s.inside)
                     : fo_schedule_build_ref(b, FO_BUFFER_GATHERED, at + s.inside);
}

int32_t fo_schedule_build_gather_recv(fo_builder *b, int step, int sub, int peer, int64_t at)
{
    fo_slice s = fo_schedule_build_slice(b, fo_schedule_gather_shard(b, step), sub);
    fo_task task = slice_task(FO_TASK_RECV, step - 1, s);
    task.peer = peer;
    task.out = fo_schedule_build_ref(b, FO_BUFFER_GATHERED, at + s.inside);
    return b->g_recv[fo_schedule_build_at(b, step, sub)] = fo_schedule_build_emit(b, &task);
}

int32_t fo_schedule_build_gather_send(fo_builder *b, int32_t *table, int step, int sub, int peer,
                                      int64_t at)
{
    fo_slice s = fo_schedule_build_slice(b, fo_schedule_gather_shard(b, step), sub);
    fo_task task = slice_task(FO_TASK_SEND, step, s);
    task.peer = peer;
    task.in = gathered(b, step, s, at);
    return table[fo_schedule_build_at(b, step, sub)] = fo_schedule_build_emit(b, &task);
}

int32_t fo_schedule_build_gather_compute(fo_builder *b, int slot, int step, int sub, int64_t at)
{
    fo_slice s = fo_schedule_build_slice(b, fo_schedule_gather_shard(b, step), sub);
    fo_task task = slice_task(FO_TASK_COMPUTE, step, s);
    task.slot = slot;
    task.in = gathered(b, step, s, at);
    if (slot == 0)
        task.out = fo_schedule_build_ref(b, b->block ? FO_BUFFER_HIDDEN : FO_BUFFER_OUTPUT, s.row);
    int32_t index = fo_schedule_build_emit(b, &task);
    (slot || b->block ? b->side : b->main)[fo_schedule_build_at(b, step, sub)] = index;
    return index;
}

const int32_t *fo_schedule_build_readers(const fo_builder *b)
{
    return b->second || b->block ? b->side : b->main;
}

int32_t fo_schedule_build_reduce_compute(fo_builder *b, int step, int sub, fo_ref add, fo_ref out)
{
    fo_slice s = fo_schedule_build_slice(b, fo_schedule_reduce_shard(b, step), sub);
    fo_task task = slice_task(FO_TASK_COMPUTE, step, s);
    task.slot = b->block;
    task.in = fo_schedule_build_ref(b, b->block ? FO_BUFFER_HIDDEN : FO_BUFFER_FULL, s.row);
    task.add = add;
    task.out = out;
    return b->main[fo_schedule_build_at(b, step, sub)] = fo_schedule_build_emit(b, &task);
}

int32_t fo_schedule_build_reduce_recv(fo_builder *b, int32_t *table, int step, int sub, int shard,
                                      int peer, int64_t at)
{
    fo_slice s = fo_schedule_build_slice(b, shard, sub);
    fo_task task = slice_task(FO_TASK_RECV, step, s);
    task.channel = 1;
    task.peer = peer;
    task.out = fo_schedule_build_ref(b, FO_BUFFER_STAGING, at + s.inside);
    return table[fo_schedule_build_at(b, step, sub)] = fo_schedule_build_emit(b, &task);
}

int32_t fo_schedule_build_reduce_send(fo_builder *b, int step, int sub, int peer, int64_t at)
{
    fo_slice s = fo_schedule_build_slice(b, fo_schedule_reduce_shard(b, step), sub);
    fo_task task = slice_task(FO_TASK_SEND, step, s);
    task.channel = 1;
    task.peer = peer;
    task.in = fo_schedule_build_ref(b, FO_BUFFER_PARTIAL, at + s.inside);
    return b->r_send[fo_schedule_build_at(b, step, sub)] = fo_schedule_build_emit(b, &task);
}
