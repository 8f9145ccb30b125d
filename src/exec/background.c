/* Runs that were started and left: moved on a tile at a time by who computes or waits. */
#include "base/clock.h"
#include "base/error.h"
#include "exec/state.h"

/* Computed at a time: the run in the foreground has messages of its own to look at. */
enum { TURN_NS = 200000 };

/* What still blocks rows up to `end` of a task after a look at it, -1: nothing. */
static fo_status look_at(fo_exec *exec, const fo_task *task, int64_t end, int32_t *blocker)
{
    fo_status status = FO_OK;
    int32_t noted = -1;
    while ((*blocker = fo_exec_progress_blocker(exec, task, end)) >= 0 && *blocker != noted &&
           status == FO_OK) {
        fo_task_kind kind = exec->program->tasks[*blocker].kind;
        if (kind != FO_TASK_SEND && kind != FO_TASK_RECV)
            break;
        status = fo_exec_progress_note(exec, *blocker);
        noted = *blocker;
    }
    return status;
}

/* Tiles whose rows are there, for a turn. */
static fo_status compute_some(fo_exec *exec, bool *moved)
{
    int64_t until = fo_base_clock_ns() + TURN_NS;
    fo_status status = FO_OK;
    while (status == FO_OK && exec->at < exec->lane_count) {
        int32_t index = exec->lane[exec->at], blocker;
        const fo_task *task = &exec->program->tasks[index];
        int64_t ready = exec->tasks[index].ready;
        if (ready == task->rows) {
            exec->at++;
            continue;
        }
        int64_t rows = fo_exec_tile_rows(exec, index);
        status = look_at(exec, task, task->row + ready + rows, &blocker);
        if (status != FO_OK || blocker >= 0)
            return status;
        exec->open_tile = NULL; /* what the others did lies between */
        status = fo_exec_run_tile(exec, index, rows);
        *moved = true;
        if (fo_base_clock_ns() >= until)
            return status;
    }
    return status;
}

static bool all_sent(const fo_exec *exec)
{
    for (int32_t q = 0; q < exec->queue_count; q++) {
        const exec_queue *queue = &exec->queues[q];
        if (queue->oldest < queue->count && (!queue->deferred || queue->next < queue->count))
            return false;
    }
    return true;
}

static void end(fo_exec *exec, fo_status status)
{
    fo_base_background_remove(exec->background, &exec->item);
    exec->ended = true;
    exec->result = fo_exec_shut(exec, status);
}

fo_status fo_exec_advance(void *arg, bool *moved)
{
    fo_exec *exec = arg;
    int64_t before = exec->movements;
    bool computed = exec->at == exec->lane_count;
    fo_status status = fo_exec_progress_poll(exec, computed);
    if (status == FO_OK && !computed && !exec->background->busy) {
        int64_t begin = exec->stats.compute_ns;
        status = compute_some(exec, moved);
        exec->stats.total_ns += exec->stats.compute_ns - begin;
    }
    *moved |= exec->movements != before;
    if (status != FO_OK || (exec->at == exec->lane_count && all_sent(exec)))
        end(exec, status);
    return status;
}

fo_status fo_exec_start(fo_exec *exec, void *const external[FO_BUFFER_ROLES], void *context)
{
    int64_t begin = fo_base_clock_ns();
    if (!exec->background)
        return fo_base_error(FO_INTERNAL, "%s: started without a background to run in", exec->name);
    if (exec->started)
        return fo_base_error(FO_INVALID,
                             "%s: started while an execution of it is running, expected it to be "
                             "finished first",
                             exec->name);
    fo_status status = fo_exec_open(exec, external, context);
    exec->stats.total_ns += fo_base_clock_ns() - begin;
    if (status != FO_OK)
        return status;
    exec->started = true;
    exec->ended = false;
    fo_base_background_add(exec->background, &exec->item);
    return FO_OK;
}

fo_status fo_exec_finish(fo_exec *exec)
{
    if (!exec->started)
        return FO_OK;
    int64_t begin = fo_base_clock_ns();
    exec->started = false;
    if (exec->ended)
        return exec->result;
    fo_base_background_remove(exec->background, &exec->item);
    exec->last_progress_ns = 0;
    fo_status status = fo_exec_complete(exec);
    exec->stats.total_ns += fo_base_clock_ns() - begin;
    return status;
}

bool fo_exec_started(const fo_exec *exec)
{
    return exec->started;
}
