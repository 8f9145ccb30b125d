/* Moving messages: posting sends and receives in order, noting completions, handing views back. Who waits for
 * whom is kept in lists (state.h). */
#include <string.h>

#include "exec/state.h"

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Rows of chunk c of a task: [*begin, *end), counted from the task's first row. */
static void chunk_rows(const fo_exec *exec, const fo_task *task, int32_t chunk, int64_t *begin,
                       int64_t *end)
{
    *begin = chunk * exec->program->stream_rows;
    *end = min64(*begin + exec->program->stream_rows, task->rows);
}

char *fo_exec_progress_memory(const fo_exec *exec, fo_ref ref)
{
    fo_buffer_role role = exec->program->buffers[ref.buffer].role;
    char *base = exec->buffers[ref.buffer] ? exec->buffers[ref.buffer] : exec->external[role];
    return base + ref.row * exec->row_bytes[role];
}

const void *fo_exec_progress_address(const fo_exec *exec, const fo_task *task, fo_ref ref,
                                     int32_t source, int64_t row, int64_t *span)
{
    int64_t row_bytes = exec->row_bytes[exec->program->buffers[ref.buffer].role];
    if (source < 0 || !exec->views) {
        *span = task->row + task->rows - row;
        return fo_exec_progress_memory(exec, ref) + (row - task->row) * row_bytes;
    }
    const fo_task *recv = &exec->program->tasks[source];
    int64_t offset = row - recv->row, begin, end;
    int32_t chunk = (int32_t)(offset / exec->program->stream_rows);
    chunk_rows(exec, recv, chunk, &begin, &end);
    const exec_task *state = &exec->tasks[source];
    const char *data = (const char *)state->requests[chunk].data + (offset - begin) * row_bytes;
    /* chunks of one sender's buffer usually follow each other in its memory */
    const char *expected = (const char *)state->requests[chunk].data + (end - begin) * row_bytes;
    while (++chunk < state->completed && state->requests[chunk].data == expected) {
        chunk_rows(exec, recv, chunk, &begin, &end);
        expected += (end - begin) * row_bytes;
    }
    *span = end - offset;
    return data;
}

int32_t fo_exec_progress_blocker(const fo_exec *exec, const fo_task *task, int64_t end)
{
    const fo_dep *dep = exec->program->deps + task->dep_first;
    for (int32_t i = 0; i < task->dep_count; i++, dep++) {
        const fo_task *before = &exec->program->tasks[dep->task];
        int64_t needed = before->rows;
        if (dep->mode == FO_DEP_SPACE && exec->views)
            continue;
        if (dep->mode == FO_DEP_ROWS)
            needed = min64(end - before->row, before->rows);
        if (exec->tasks[dep->task].ready < needed)
            return dep->task;
    }
    return -1;
}

/* ---- who waits for whom ---------------------------------------------------------------------------- */

static bool is_comm(const fo_exec *exec, int32_t index)
{
    fo_task_kind kind = exec->program->tasks[index].kind;
    return kind == FO_TASK_SEND || kind == FO_TASK_RECV;
}

/* In the order of the program where nothing else decides: whose message leaves first matters on a port. */
static void push_runnable(fo_exec *exec, int32_t q)
{
    exec->runnable[(exec->runnable_first + exec->runnable_count++) % exec->queue_count] = q;
}

static int32_t pop_runnable(fo_exec *exec)
{
    int32_t q = exec->runnable[exec->runnable_first];
    exec->runnable_first = (exec->runnable_first + 1) % exec->queue_count;
    exec->runnable_count--;
    return q;
}

/* Queue `q` goes on when task `blocker` does. */
static void wait_behind(fo_exec *exec, int32_t q, int32_t blocker)
{
    exec->queues[q].next_waiter = exec->tasks[blocker].waiters;
    exec->tasks[blocker].waiters = q;
    if (!is_comm(exec, blocker))
        return;
    exec_queue *queue = &exec->queues[exec->tasks[blocker].queue];
    if (queue->waited_for++)
        return;
    queue->watched_at = exec->watched_count;
    exec->watched[exec->watched_count++] = exec->tasks[blocker].queue;
}

/* Task `index` has advanced: those behind it look again. */
static void wake(fo_exec *exec, int32_t index)
{
    int32_t woken = 0;
    for (int32_t q = exec->tasks[index].waiters; q >= 0; q = exec->queues[q].next_waiter) {
        push_runnable(exec, q);
        woken++;
    }
    exec->tasks[index].waiters = -1;
    if (!woken || !is_comm(exec, index))
        return;
    exec_queue *queue = &exec->queues[exec->tasks[index].queue];
    queue->waited_for -= woken;
    if (queue->waited_for)
        return;
    int32_t last = exec->watched[--exec->watched_count];
    exec->watched[queue->watched_at] = last;
    exec->queues[last].watched_at = queue->watched_at;
}

void fo_exec_progress_rewind(fo_exec *exec)
{
    exec->runnable_first = exec->runnable_count = exec->watched_count = exec->unfinished = 0;
    for (int32_t t = 0; t < exec->program->task_count; t++) {
        exec_task *state = &exec->tasks[t];
        state->ready = 0;
        state->issued = state->completed = state->released = 0;
        state->seen_ns = 0;
        state->waiters = -1;
        exec->unfinished += is_comm(exec, t);
    }
    for (int32_t q = 0; q < exec->queue_count; q++) {
        exec->queues[q].next = exec->queues[q].oldest = exec->queues[q].arrived = 0;
        exec->queues[q].waited_for = 0;
        push_runnable(exec, q);
    }
}

/* ---- posting ---------------------------------------------------------------------------------------- */

static fo_status post_recv(fo_exec *exec, const fo_task *task, exec_task *state)
{
    int64_t row_bytes = exec->row_bytes[exec->program->buffers[task->out.buffer].role];
    uint32_t tag = exec->tag + (uint32_t)task->channel;
    for (int32_t chunk = 0; chunk < state->chunks; chunk++) {
        int64_t begin, end;
        chunk_rows(exec, task, chunk, &begin, &end);
        size_t bytes = (size_t)((end - begin) * row_bytes);
        fo_status status =
            exec->views ? exec->endpoint->ops->irecv_view(exec->endpoint, &state->requests[chunk],
                                                          task->peer, tag, bytes)
                        : exec->endpoint->ops->irecv(exec->endpoint, &state->requests[chunk],
                                                     task->peer, tag,
                                                     fo_exec_progress_memory(exec, task->out) +
                                                         begin * row_bytes,
                                                     bytes);
        if (status != FO_OK)
            return status;
    }
    state->issued = state->chunks;
    exec->movements++;
    return FO_OK;
}

/* Sends every chunk whose rows are ready; *blocker: what the next one waits for, -1: nothing. */
static fo_status post_send(fo_exec *exec, const fo_task *task, exec_task *state, int32_t *blocker)
{
    int64_t row_bytes = exec->row_bytes[exec->program->buffers[task->in.buffer].role];
    while (state->issued < state->chunks) {
        int64_t begin, end, span;
        chunk_rows(exec, task, state->issued, &begin, &end);
        *blocker = fo_exec_progress_blocker(exec, task, task->row + end);
        if (*blocker >= 0)
            return FO_OK;
        const void *data = fo_exec_progress_address(exec, task, task->in, state->in_source,
                                                    task->row + begin, &span);
        size_t bytes = (size_t)((end - begin) * row_bytes);
        fo_exec_record_seen(exec, (int32_t)(task - exec->program->tasks));
        fo_status status =
            exec->endpoint->ops->isend(exec->endpoint, &state->requests[state->issued], task->peer,
                                       exec->tag + (uint32_t)task->channel, data, bytes, 0);
        if (status != FO_OK)
            return status;
        state->issued++;
        exec->movements++;
        exec->stats.sent_bytes += (int64_t)bytes;
    }
    return FO_OK;
}

static fo_status post_queue(fo_exec *exec, int32_t q)
{
    exec_queue *queue = &exec->queues[q];
    while (queue->next < queue->count) {
        int32_t index = queue->tasks[queue->next], blocker = -1;
        const fo_task *task = &exec->program->tasks[index];
        exec_task *state = &exec->tasks[index];
        fo_status status = FO_OK;
        if (queue->send)
            status = post_send(exec, task, state, &blocker);
        else if ((blocker = fo_exec_progress_blocker(exec, task, task->row + task->rows)) < 0)
            status = post_recv(exec, task, state);
        if (status != FO_OK)
            return status;
        if (blocker >= 0) {
            wait_behind(exec, q, blocker);
            return FO_OK;
        }
        queue->next++;
    }
    return FO_OK;
}

/* ---- completing ------------------------------------------------------------------------------------- */

/* Whether every reader of a RECV has finished with its rows [begin, end) (global). */
static bool readers_passed(const fo_exec *exec, const exec_task *state, int64_t begin, int64_t end)
{
    for (int32_t i = 0; i < state->reader_count; i++) {
        const fo_task *reader = &exec->program->tasks[state->readers[i]];
        int64_t last = min64(end, reader->row + reader->rows);
        if (begin < reader->row + reader->rows && end > reader->row &&
            reader->row + exec->tasks[state->readers[i]].ready < last)
            return false;
    }
    return true;
}

static void release_views(fo_exec *exec, const fo_task *task, exec_task *state)
{
    while (state->released < state->completed) {
        int64_t begin, end;
        chunk_rows(exec, task, state->released, &begin, &end);
        if (!readers_passed(exec, state, task->row + begin, task->row + end))
            return;
        if (exec->views)
            exec->endpoint->ops->release(exec->endpoint, &state->requests[state->released]);
        state->released++;
        exec->movements++;
    }
}

/* The RECVs whose rows task `index` reads may be handed back as far as it has come. */
static void release_sources(fo_exec *exec, int32_t index)
{
    int32_t sources[2] = {exec->tasks[index].in_source, exec->tasks[index].add_source};
    for (int i = 0; i < 2; i++)
        if (sources[i] >= 0)
            release_views(exec, &exec->program->tasks[sources[i]], &exec->tasks[sources[i]]);
}

void fo_exec_progress_advanced(fo_exec *exec, int32_t index)
{
    wake(exec, index);
    release_sources(exec, index);
}

/* Notes the chunks of one task that are done, in order. `place`: of the task in its queue. */
static fo_status complete_task(fo_exec *exec, int32_t index, int32_t place)
{
    const fo_task *task = &exec->program->tasks[index];
    exec_task *state = &exec->tasks[index];
    int64_t before = state->ready;
    while (state->completed < state->issued) {
        fo_status status =
            exec->endpoint->ops->test(exec->endpoint, &state->requests[state->completed]);
        if (status == FO_IN_PROGRESS)
            break;
        if (status != FO_OK)
            return status;
        int64_t begin;
        chunk_rows(exec, task, state->completed, &begin, &state->ready);
        fo_exec_record_seen(exec, index);
        if (++state->completed == state->chunks)
            fo_exec_record_done(exec, index, place);
        exec->movements++;
        exec->last_progress_ns = 0; /* renewed by the next wait */
    }
    if (state->ready == before)
        return FO_OK;
    if (task->kind == FO_TASK_RECV)
        release_views(exec, task, state);
    fo_exec_progress_advanced(exec, index);
    return FO_OK;
}

static bool task_finished(const fo_exec *exec, int32_t index)
{
    const exec_task *state = &exec->tasks[index];
    bool recv = exec->program->tasks[index].kind == FO_TASK_RECV;
    return state->completed == state->chunks && (!recv || state->released == state->chunks);
}

/* Messages of one queue arrive in order: what is behind a missing one is not there. Sends may end in any
 * order. */
static fo_status complete_queue(fo_exec *exec, exec_queue *queue)
{
    for (int32_t i = queue->send ? queue->oldest : queue->arrived;
         i < queue->count && i <= queue->next; i++) {
        const exec_task *state = &exec->tasks[queue->tasks[i]];
        if (!state->issued)
            break;
        fo_status status = FO_OK;
        if (state->completed < state->chunks)
            status = complete_task(exec, queue->tasks[i], i);
        if (status != FO_OK)
            return status;
        if (queue->send)
            continue;
        if (state->completed < state->chunks)
            break;
        queue->arrived = i + 1;
    }
    while (queue->oldest < queue->count && task_finished(exec, queue->tasks[queue->oldest])) {
        queue->oldest++;
        exec->unfinished--;
    }
    return FO_OK;
}

fo_status fo_exec_progress_note(fo_exec *exec, int32_t index)
{
    return complete_queue(exec, &exec->queues[exec->tasks[index].queue]);
}

/* One look. What was posted may be done at once (its message was there already) and what was done may let
 * something be posted: *moved says that another look is worth it. */
static fo_status look(fo_exec *exec, bool all, bool *moved)
{
    int64_t before = exec->movements;
    fo_status status = FO_OK;
    for (int32_t q = 0; all && status == FO_OK && q < exec->queue_count; q++)
        if (exec->queues[q].oldest < exec->queues[q].count)
            status = complete_queue(exec, &exec->queues[q]);
    /* from the last: a queue that nobody waits for any more gives its place to one that was looked at */
    for (int32_t w = exec->watched_count - 1; !all && status == FO_OK && w >= 0; w--)
        status = complete_queue(exec, &exec->queues[exec->watched[w]]);
    while (status == FO_OK && exec->runnable_count)
        status = post_queue(exec, pop_runnable(exec));
    *moved = exec->movements != before;
    return status;
}

fo_status fo_exec_progress_poll(fo_exec *exec, bool all)
{
    fo_status status = exec->endpoint->ops->progress(exec->endpoint);
    bool moved = true;
    while (status == FO_OK && moved)
        status = look(exec, all, &moved);
    return status;
}
