/* Laying out an executor once: queues, requests, who reads what, staging memory. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "exec/state.h"

static bool is_comm(const fo_task *task)
{
    return task->kind == FO_TASK_SEND || task->kind == FO_TASK_RECV;
}

/* The RECV that delivered the rows a task reads through `ref`: the last one listed before it into the
 * same rows of the buffer. -1: not received. */
static int32_t find_source(const fo_program *program, int32_t index, fo_ref ref)
{
    const fo_task *task = &program->tasks[index];
    if (ref.buffer < 0)
        return -1;
    for (int32_t t = index - 1; t >= 0; t--) {
        const fo_task *recv = &program->tasks[t];
        if (recv->kind == FO_TASK_RECV && recv->out.buffer == ref.buffer &&
            recv->out.row - recv->row == ref.row - task->row && recv->row <= task->row &&
            recv->row + recv->rows >= task->row + task->rows)
            return t;
    }
    return -1;
}

static fo_status lay_out_requests(fo_exec *exec)
{
    const fo_program *program = exec->program;
    int64_t total = 0;
    for (int32_t t = 0; t < program->task_count; t++) {
        const fo_task *task = &program->tasks[t];
        if (!is_comm(task))
            continue;
        exec->tasks[t].chunks =
            (int32_t)((task->rows + program->stream_rows - 1) / program->stream_rows);
        total += exec->tasks[t].chunks;
    }
    exec->request_pool = calloc((size_t)total + 1, sizeof *exec->request_pool);
    if (!exec->request_pool)
        return fo_base_error(FO_NO_MEMORY, "%s: no memory for %lld messages", exec->name,
                             (long long)total);
    exec->request_count = total;
    for (int64_t i = 0; i < total; i++)
        exec->request_pool[i].fixed = true;
    fo_request *next = exec->request_pool;
    for (int32_t t = 0; t < program->task_count; t++) {
        exec->tasks[t].requests = next;
        next += exec->tasks[t].chunks;
    }
    return FO_OK;
}

static fo_status lay_out_readers(fo_exec *exec)
{
    const fo_program *program = exec->program;
    int32_t count = program->task_count;
    exec->reader_pool = calloc((size_t)count * 2 + 1, sizeof *exec->reader_pool);
    if (!exec->reader_pool)
        return fo_base_error(FO_NO_MEMORY, "%s: no memory for %d tasks", exec->name, (int)count);
    for (int32_t t = 0; t < count; t++) {
        exec_task *state = &exec->tasks[t];
        state->in_source = find_source(program, t, program->tasks[t].in);
        state->add_source = find_source(program, t, program->tasks[t].add);
        if (state->in_source >= 0)
            exec->tasks[state->in_source].reader_count++;
        if (state->add_source >= 0)
            exec->tasks[state->add_source].reader_count++;
    }
    int32_t *next = exec->reader_pool;
    for (int32_t t = 0; t < count; t++) {
        exec->tasks[t].readers = next;
        next += exec->tasks[t].reader_count;
        exec->tasks[t].reader_count = 0;
    }
    for (int32_t t = 0; t < count; t++) {
        int32_t sources[2] = {exec->tasks[t].in_source, exec->tasks[t].add_source};
        for (int i = 0; i < 2; i++)
            if (sources[i] >= 0) {
                exec_task *recv = &exec->tasks[sources[i]];
                recv->readers[recv->reader_count++] = t;
            }
    }
    return FO_OK;
}

static bool same_queue(const fo_task *a, const fo_task *b)
{
    return a->kind == b->kind && a->peer == b->peer && a->channel == b->channel;
}

static fo_status lay_out_queues(fo_exec *exec)
{
    const fo_program *program = exec->program;
    int32_t count = program->task_count;
    exec->queues = calloc((size_t)count + 1, sizeof *exec->queues);
    exec->queue_pool = calloc((size_t)count + 1, sizeof *exec->queue_pool);
    exec->lane = calloc((size_t)count + 1, sizeof *exec->lane);
    exec->runnable = calloc((size_t)count + 1, sizeof *exec->runnable);
    exec->watched = calloc((size_t)count + 1, sizeof *exec->watched);
    if (!exec->queues || !exec->queue_pool || !exec->lane || !exec->runnable || !exec->watched)
        return fo_base_error(FO_NO_MEMORY, "%s: no memory for %d tasks", exec->name, (int)count);
    int32_t *next = exec->queue_pool;
    for (int32_t t = 0; t < count; t++) {
        const fo_task *task = &program->tasks[t];
        if (!is_comm(task)) {
            exec->lane[exec->lane_count++] = t;
            continue;
        }
        bool known = false;
        for (int32_t q = 0; q < exec->queue_count && !known; q++)
            known = same_queue(task, &program->tasks[exec->queues[q].tasks[0]]);
        if (known)
            continue;
        exec_queue *queue = &exec->queues[exec->queue_count++];
        queue->send = task->kind == FO_TASK_SEND;
        queue->deferred = queue->send && exec->views &&
                          program->buffers[task->in.buffer].role == FO_BUFFER_PARTIAL;
        queue->tasks = next;
        for (int32_t u = t; u < count; u++)
            if (is_comm(&program->tasks[u]) && same_queue(task, &program->tasks[u])) {
                queue->tasks[queue->count++] = u;
                exec->tasks[u].queue = exec->queue_count - 1;
            }
        next += queue->count;
    }
    return FO_OK;
}

static bool is_external(fo_buffer_role role)
{
    return role == FO_BUFFER_SHARD || role == FO_BUFFER_FULL || role == FO_BUFFER_HIDDEN ||
           role == FO_BUFFER_OUTPUT;
}

static fo_status allocate_buffers(fo_exec *exec)
{
    const fo_program *program = exec->program;
    exec->buffers = calloc((size_t)program->buffer_count + 1, sizeof *exec->buffers);
    int64_t widest = 1;
    for (int r = 0; r < FO_BUFFER_ROLES; r++)
        if (exec->row_bytes[r] > widest)
            widest = exec->row_bytes[r];
    int64_t most =
        exec->tile_rows[0] > exec->tile_rows[1] ? exec->tile_rows[0] : exec->tile_rows[1];
    if (most < program->stream_rows)
        most = program->stream_rows;
    exec->gather_bytes = widest * most;
    exec->gather = malloc((size_t)exec->gather_bytes * 2);
    if (!exec->buffers || !exec->gather)
        return fo_base_error(FO_NO_MEMORY, "%s: no memory for %lld bytes of staging", exec->name,
                             (long long)exec->gather_bytes * 2);
    exec->gather_add = exec->gather + exec->gather_bytes;
    for (int32_t b = 0; b < program->buffer_count; b++) {
        fo_buffer_role role = program->buffers[b].role;
        bool viewed = role == FO_BUFFER_GATHERED || role == FO_BUFFER_STAGING;
        if (is_external(role) || (viewed && exec->views) || !program->buffers[b].rows)
            continue;
        size_t bytes = (size_t)(program->buffers[b].rows * exec->row_bytes[role]);
        exec->buffers[b] = exec->endpoint->ops->alloc(exec->endpoint, bytes + 64);
        if (!exec->buffers[b])
            return fo_base_error(FO_NO_MEMORY, "%s: no group memory for %zu bytes of staging",
                                 exec->name, bytes);
    }
    return FO_OK;
}

fo_status fo_exec_create(const fo_exec_desc *desc, fo_exec **out)
{
    *out = NULL;
    fo_exec *exec = calloc(1, sizeof *exec);
    if (!exec)
        return fo_base_error(FO_NO_MEMORY, "%s: no memory for an executor", desc->name);
    exec->endpoint = desc->endpoint;
    exec->program = desc->program;
    exec->compute = desc->compute;
    exec->prepare = desc->prepare;
    exec->meanwhile = desc->meanwhile;
    exec->name = desc->name;
    exec->tag = desc->tag;
    exec->recorder = desc->recorder;
    exec->background = desc->background;
    exec->item = (fo_background_item){.advance = fo_exec_advance, .arg = exec};
    exec->views = (desc->endpoint->ops->caps & FO_TRANSPORT_VIEW) != 0;
    memcpy(exec->row_bytes, desc->row_bytes, sizeof exec->row_bytes);
    memcpy(exec->tile_rows, desc->tile_rows, sizeof exec->tile_rows);
    exec->tasks = calloc((size_t)desc->program->task_count + 1, sizeof *exec->tasks);
    fo_status status = FO_OK;
    if (!exec->tasks)
        status = fo_base_error(FO_NO_MEMORY, "%s: no memory for %d tasks", desc->name,
                               (int)desc->program->task_count);
    if (status == FO_OK)
        status = lay_out_requests(exec);
    if (status == FO_OK)
        status = lay_out_readers(exec);
    if (status == FO_OK)
        status = lay_out_queues(exec);
    if (status == FO_OK)
        status = allocate_buffers(exec);
    if (status != FO_OK) {
        fo_exec_destroy(exec);
        return status;
    }
    *out = exec;
    return FO_OK;
}

static void forget_requests(fo_exec *exec)
{
    const fo_transport_ops *ops = exec->endpoint->ops;
    for (int64_t i = 0; ops->forget && !exec->broken && i < exec->request_count; i++)
        ops->forget(exec->endpoint, &exec->request_pool[i]);
}

void fo_exec_destroy(fo_exec *exec)
{
    if (!exec)
        return;
    (void)fo_exec_finish(exec); /* nobody asked what became of it */
    (void)fo_exec_settle(exec); /* a failed group reads no more */
    forget_requests(exec);
    if (exec->buffers)
        for (int32_t b = 0; b < exec->program->buffer_count; b++)
            if (exec->buffers[b])
                exec->endpoint->ops->free(exec->endpoint, exec->buffers[b]);
    free(exec->buffers);
    free(exec->gather);
    free(exec->lane);
    free(exec->queue_pool);
    free(exec->runnable);
    free(exec->watched);
    free(exec->queues);
    free(exec->reader_pool);
    free(exec->request_pool);
    free(exec->tasks);
    free(exec);
}
