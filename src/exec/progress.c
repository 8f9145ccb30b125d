/* Moving messages: posting sends and receives in order, noting completions, handing views back. */
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

/* Sends every chunk whose rows are ready. */
static fo_status post_send(fo_exec *exec, const fo_task *task, exec_task *state)
{
    int64_t row_bytes = exec->row_bytes[exec->program->buffers[task->in.buffer].role];
    while (state->issued < state->chunks) {
        int64_t begin, end, span;
        chunk_rows(exec, task, state->issued, &begin, &end);
        if (fo_exec_progress_blocker(exec, task, task->row + end) >= 0)
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

static fo_status post_queue(fo_exec *exec, exec_queue *queue)
{
    while (queue->next < queue->count) {
        int32_t index = queue->tasks[queue->next];
        const fo_task *task = &exec->program->tasks[index];
        exec_task *state = &exec->tasks[index];
        fo_status status = FO_OK;
        if (queue->send)
            status = post_send(exec, task, state);
        else if (fo_exec_progress_blocker(exec, task, task->row + task->rows) < 0)
            status = post_recv(exec, task, state);
        if (status != FO_OK)
            return status;
        if (state->issued < state->chunks)
            return FO_OK;
        queue->next++;
    }
    return FO_OK;
}

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

/* Notes the chunks of one task that are done, in order. `place`: of the task in its queue. */
static fo_status complete_task(fo_exec *exec, int32_t index, int32_t place)
{
    const fo_task *task = &exec->program->tasks[index];
    exec_task *state = &exec->tasks[index];
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
    if (task->kind == FO_TASK_RECV)
        release_views(exec, task, state);
    return FO_OK;
}

static bool task_finished(const fo_exec *exec, int32_t index)
{
    const exec_task *state = &exec->tasks[index];
    bool recv = exec->program->tasks[index].kind == FO_TASK_RECV;
    return state->completed == state->chunks && (!recv || state->released == state->chunks);
}

static fo_status complete_queue(fo_exec *exec, exec_queue *queue)
{
    for (int32_t i = queue->oldest; i < queue->count && i <= queue->next; i++) {
        int32_t index = queue->tasks[i];
        if (task_finished(exec, index)) {
            if (i == queue->oldest)
                queue->oldest++;
            continue;
        }
        if (!exec->tasks[index].issued)
            break;
        fo_status status = complete_task(exec, index, i);
        if (status != FO_OK)
            return status;
        if (i == queue->oldest && task_finished(exec, index))
            queue->oldest++;
        /* messages of one queue arrive in order: what is behind a missing one is not there */
        if (!queue->send && exec->tasks[index].completed < exec->tasks[index].chunks)
            break;
    }
    return FO_OK;
}

/* One look at every queue. What was posted may be done at once (its message was there already) and what
 * was done may let something be posted: *moved says that another look is worth it. */
static fo_status look(fo_exec *exec, bool *moved)
{
    int64_t before = exec->movements;
    fo_status status = FO_OK;
    exec->unfinished = 0;
    for (int32_t q = 0; status == FO_OK && q < exec->queue_count; q++)
        if (exec->queues[q].oldest < exec->queues[q].count)
            status = complete_queue(exec, &exec->queues[q]);
    for (int32_t q = 0; status == FO_OK && q < exec->queue_count; q++) {
        if (exec->queues[q].next < exec->queues[q].count)
            status = post_queue(exec, &exec->queues[q]);
        exec->unfinished += exec->queues[q].count - exec->queues[q].oldest;
    }
    *moved = exec->movements != before;
    return status;
}

fo_status fo_exec_progress_poll(fo_exec *exec)
{
    fo_status status = exec->endpoint->ops->progress(exec->endpoint);
    bool moved = true;
    while (status == FO_OK && moved)
        status = look(exec, &moved);
    return status;
}
