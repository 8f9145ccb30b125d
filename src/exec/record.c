/* What an execution leaves in its rank's recorder, when there is one. */
#include "base/clock.h"
#include "exec/state.h"

/* Two waits for the same message that follow each other this closely are one. */
enum { SAME_WAIT_NS = 5000 };

static fo_recorder *recorder_of(const fo_exec *exec)
{
    return exec->recorder ? *exec->recorder : NULL;
}

static void describe(const fo_exec *exec, fo_event *event, const fo_task *task)
{
    event->step = task->step;
    event->shard = task->shard;
    event->sub = task->sub;
    event->row = task->row;
    event->rows = task->rows;
    event->execution = (int32_t)exec->executions;
    if (task->kind == FO_TASK_SEND || task->kind == FO_TASK_RECV) {
        event->peer = task->peer;
        event->channel = task->channel;
    } else if (task->kind == FO_TASK_COMPUTE) {
        event->slot = task->slot;
    }
}

static fo_event *add(fo_exec *exec, fo_event_kind kind, const fo_task *task, int64_t begin,
                     int64_t end)
{
    fo_event *event =
        fo_base_recorder_event(recorder_of(exec), kind, exec->record_name, begin, end);
    if (event)
        describe(exec, event, task);
    return event;
}

void fo_exec_record_begin(fo_exec *exec)
{
    exec->open_tile = exec->open_wait = NULL;
    if (recorder_of(exec))
        exec->record_name = fo_base_recorder_name(recorder_of(exec), exec->name);
}

void fo_exec_record_tile(fo_exec *exec, int32_t index, int64_t rows, int64_t begin, int64_t end)
{
    const fo_task *task = &exec->program->tasks[index];
    exec->open_wait = NULL;
    if (!recorder_of(exec))
        return;
    if (exec->open_tile && exec->open_task == index) {
        exec->open_tile->end_ns = end;
        exec->open_tile->rows += rows;
        return;
    }
    fo_event_kind kind = task->kind == FO_TASK_COMPUTE ? FO_EVENT_COMPUTE
                         : task->kind == FO_TASK_ADD   ? FO_EVENT_ADD
                                                       : FO_EVENT_COPY;
    exec->open_tile = add(exec, kind, task, begin, end);
    exec->open_task = index;
    if (exec->open_tile) {
        exec->open_tile->row = task->row + exec->tasks[index].ready - rows;
        exec->open_tile->rows = rows;
    }
}

void fo_exec_record_wait(fo_exec *exec, int32_t index, int64_t begin, int64_t end)
{
    exec->open_tile = NULL;
    if (!recorder_of(exec))
        return;
    fo_event *open = exec->open_wait;
    if (open && exec->open_task == index && begin - open->end_ns < SAME_WAIT_NS) {
        open->end_ns = end;
        return;
    }
    exec->open_wait = add(exec, FO_EVENT_WAIT, &exec->program->tasks[index], begin, end);
    exec->open_task = index;
}

/* The same number at both ends: the k-th message of an execution from one rank to another on a channel. */
static uint64_t flow_of(const fo_exec *exec, const fo_task *task, int32_t place)
{
    bool send = task->kind == FO_TASK_SEND;
    uint64_t parts[] = {exec->tag + (uint64_t)task->channel, (uint64_t)exec->executions,
                        (uint64_t)(send ? exec->program->rank : task->peer),
                        (uint64_t)(send ? task->peer : exec->program->rank), (uint64_t)place};
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        hash = (hash ^ parts[i]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    return hash ? hash : 1;
}

void fo_exec_record_seen(fo_exec *exec, int32_t index)
{
    if (recorder_of(exec) && !exec->tasks[index].seen_ns)
        exec->tasks[index].seen_ns = fo_base_clock_ns();
}

void fo_exec_record_done(fo_exec *exec, int32_t index, int32_t place)
{
    const fo_task *task = &exec->program->tasks[index];
    exec_task *state = &exec->tasks[index];
    if (!recorder_of(exec) || state->seen_ns <= 0)
        return;
    bool send = task->kind == FO_TASK_SEND;
    fo_event *event =
        add(exec, send ? FO_EVENT_SEND : FO_EVENT_RECV, task, state->seen_ns, fo_base_clock_ns());
    if (!event)
        return;
    fo_ref ref = send ? task->in : task->out;
    event->bytes = task->rows * exec->row_bytes[exec->program->buffers[ref.buffer].role];
    event->flow = flow_of(exec, task, place);
    state->seen_ns = -1;
}

void fo_exec_record_end(fo_exec *exec)
{
    for (int32_t q = 0; recorder_of(exec) && q < exec->queue_count; q++)
        for (int32_t i = exec->queues[q].oldest; i < exec->queues[q].count; i++)
            if (exec->tasks[exec->queues[q].tasks[i]].issued)
                fo_exec_record_done(exec, exec->queues[q].tasks[i], i);
}
