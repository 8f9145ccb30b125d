/* The compute lane: runs tiles in list order, waits for what they need, accounts for the waiting. */
#include "exec/exec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "exec/state.h"

/* How long one sleep may last at most: bounds the time to see a deadline pass. */
enum { WAIT_NS = 100000000 };

enum { TILES_A_LOOK = 8 };

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static bool is_comm(const fo_exec *exec, int32_t index)
{
    fo_task_kind kind = exec->program->tasks[index].kind;
    return kind == FO_TASK_SEND || kind == FO_TASK_RECV;
}

static fo_status fail_group(fo_exec *exec, fo_status status)
{
    if (status != FO_PEER)
        exec->endpoint->ops->fail(exec->endpoint, exec->endpoint->rank, fo_last_error());
    return status;
}

/* "rank 1", with its host where there are several. */
static void name_rank(const fo_exec *exec, int rank, char *out, size_t size)
{
    const fo_place *places = exec->endpoint->places;
    if (places)
        snprintf(out, size, "rank %d on %s", rank, places[rank].host);
    else
        snprintf(out, size, "rank %d", rank);
}

/* What a SEND or RECV is waited for: "the receive of slice 1.0 (step 2) from rank 3". */
static void name_message(const fo_exec *exec, const fo_task *task, char *out, size_t size)
{
    char peer[96];
    bool receives = task->kind == FO_TASK_RECV;
    name_rank(exec, task->peer, peer, sizeof peer);
    snprintf(out, size, "the %s of slice %d.%d (step %d) %s %s", receives ? "receive" : "send",
             task->shard, task->sub, task->step, receives ? "from" : "to", peer);
}

static fo_status timed_out(fo_exec *exec, const fo_task *task)
{
    char me[96], what[192];
    name_rank(exec, exec->endpoint->rank, me, sizeof me);
    name_message(exec, task, what, sizeof what);
    return fo_base_error(FO_TIMEOUT,
                         "%s: %s waited %.1f s for %s, no progress before the deadline; is that "
                         "rank alive and running the same operation?",
                         exec->name, me, (double)exec->endpoint->deadline_ns * 1e-9, what);
}

/* Where this rank was when it learnt that another one has failed. */
static void bear_witness(const fo_exec *exec)
{
    fo_endpoint *endpoint = exec->endpoint;
    char me[96], what[192], where[384];
    if (!endpoint->ops->witness)
        return;
    name_rank(exec, endpoint->rank, me, sizeof me);
    if (exec->waiting_for >= 0) {
        name_message(exec, &exec->program->tasks[exec->waiting_for], what, sizeof what);
        snprintf(where, sizeof where, "%s waited for %s of %s", me, what, exec->name);
    } else {
        snprintf(where, sizeof where, "%s was computing %s", me, exec->name);
    }
    endpoint->ops->witness(endpoint, where);
}

/* The communication task that a blocked task waits for in the end. */
static int32_t root_blocker(const fo_exec *exec, int32_t blocker)
{
    while (blocker >= 0) {
        const fo_task *task = &exec->program->tasks[blocker];
        if ((task->kind == FO_TASK_SEND || task->kind == FO_TASK_RECV) &&
            exec->tasks[blocker].issued > exec->tasks[blocker].completed)
            return blocker;
        int32_t next = fo_exec_progress_blocker(exec, task, task->row + task->rows);
        if (next < 0)
            return blocker;
        blocker = next;
    }
    return blocker;
}

/* A piece of other work instead of a wait, when there is some. */
static bool worked_meanwhile(fo_exec *exec)
{
    int64_t begin = fo_base_clock_ns();
    if (!exec->meanwhile || !exec->meanwhile(exec->context))
        return false;
    exec->stats.compute_ns += fo_base_clock_ns() - begin;
    exec->last_progress_ns = 0; /* nobody looked */
    exec->open_tile = exec->open_wait = NULL;
    return true;
}

/* What was started in the background goes on; true when something was done there. */
static fo_status move_others(fo_exec *exec, bool *moved)
{
    *moved = false;
    if (!exec->background || !exec->background->first)
        return FO_OK;
    fo_status status = fo_base_background_advance(exec->background, &exec->item, moved);
    if (*moved)
        exec->open_tile = exec->open_wait = NULL; /* their events lie between */
    return status;
}

/* What has come during a wait: first where somebody waits for it, everywhere when nothing has come there. */
static fo_status look_around(fo_exec *exec, int32_t blocker)
{
    int64_t before = exec->movements;
    fo_status status = FO_OK;
    if (is_comm(exec, blocker))
        status = fo_exec_progress_note(exec, blocker);
    if (status == FO_OK)
        status = fo_exec_progress_poll(exec, false);
    if (status != FO_OK || exec->movements != before)
        return status;
    exec->looked = true;
    return fo_exec_progress_poll(exec, true);
}

/* The deadline has passed: unless this process slept through it (it was stopped) and all is there now. */
static fo_status late(fo_exec *exec, int32_t blocker, int32_t root)
{
    int64_t before = exec->movements;
    fo_status status = look_around(exec, blocker);
    if (status != FO_OK || exec->movements != before)
        return status;
    return timed_out(exec, &exec->program->tasks[root]);
}

/* One wait for `blocker`; the time goes to its account. */
static fo_status wait_for(fo_exec *exec, int32_t blocker)
{
    bool moved;
    fo_status status = move_others(exec, &moved);
    if (status != FO_OK)
        return status;
    if (moved || worked_meanwhile(exec))
        return look_around(exec, blocker);
    if (!exec->looked) {
        exec->looked = true;
        return fo_exec_progress_poll(exec, true);
    }
    int64_t begin = fo_base_clock_ns();
    if (!exec->last_progress_ns)
        exec->last_progress_ns = begin;
    int64_t deadline = exec->last_progress_ns + exec->endpoint->deadline_ns;
    int32_t root = exec->waiting_for = root_blocker(exec, blocker);
    if (begin >= deadline)
        return late(exec, blocker, root);
    status = exec->endpoint->ops->wait(exec->endpoint, min64(deadline, begin + WAIT_NS));
    exec->looked = false;
    if (status == FO_OK)
        status = look_around(exec, blocker);
    int64_t end = fo_base_clock_ns(), waited = end - begin;
    if (status == FO_OK)
        exec->waiting_for = -1;
    fo_exec_record_wait(exec, root, begin, end);
    exec->tasks[root].waited_ns += waited;
    exec->stats.exposed_ns += waited;
    return status;
}

/* Waits until rows up to `end` of a compute task may be worked on. What they depend on has often come
 * without anybody having looked. */
static fo_status await_rows(fo_exec *exec, const fo_task *task, int64_t end)
{
    fo_status status = FO_OK;
    int32_t blocker, noted = -1;
    while ((blocker = fo_exec_progress_blocker(exec, task, end)) >= 0 && blocker != noted &&
           is_comm(exec, blocker) && status == FO_OK) {
        status = fo_exec_progress_note(exec, blocker);
        noted = blocker;
    }
    if (blocker < 0 || status != FO_OK)
        return status;
    status = fo_exec_progress_poll(exec, false);
    while (status == FO_OK && (blocker = fo_exec_progress_blocker(exec, task, end)) >= 0)
        status = wait_for(exec, blocker);
    return status;
}

/* Address of a tile's rows; rows that lie apart are copied together. */
static const void *tile_rows_at(fo_exec *exec, const fo_task *task, fo_ref ref, int32_t source,
                                int64_t row, int64_t rows, void *gather)
{
    if (ref.buffer < 0)
        return NULL;
    int64_t span;
    const void *data = fo_exec_progress_address(exec, task, ref, source, row, &span);
    if (span >= rows)
        return data;
    int64_t row_bytes = exec->row_bytes[exec->program->buffers[ref.buffer].role];
    for (int64_t done = 0; done < rows; done += span) {
        data = fo_exec_progress_address(exec, task, ref, source, row + done, &span);
        span = min64(span, rows - done);
        memcpy((char *)gather + done * row_bytes, data, (size_t)(span * row_bytes));
    }
    return gather;
}

static fo_buffer_role role_of(const fo_exec *exec, fo_ref ref)
{
    return ref.buffer < 0 ? FO_BUFFER_ROLES : exec->program->buffers[ref.buffer].role;
}

static fo_status run_tile(fo_exec *exec, const fo_task *task, exec_task *state, int64_t rows)
{
    int64_t row = task->row + state->ready;
    fo_exec_tile tile = {
        .task = task,
        .row = row,
        .rows = rows,
        .in = tile_rows_at(exec, task, task->in, state->in_source, row, rows, exec->gather),
        .add = tile_rows_at(exec, task, task->add, state->add_source, row, rows, exec->gather_add),
        .in_role = role_of(exec, task->in),
        .add_role = role_of(exec, task->add),
        .out_role = role_of(exec, task->out),
    };
    if (task->out.buffer >= 0)
        tile.out = fo_exec_progress_memory(exec, task->out) +
                   state->ready * exec->row_bytes[tile.out_role];
    fo_status status = exec->compute(exec->context, &tile);
    state->ready += rows;
    return status;
}

/* What nobody here waits for, somebody else may: a forwarded view is handed back hop by hop to its first
 * sender. So all queues are looked at now and then, and tile by tile near the end, when that sender is about to
 * wait for it; and always for a record, which wants the times. */
static bool look_everywhere(fo_exec *exec, int32_t index)
{
    if ((exec->recorder && *exec->recorder) || index == exec->lane[exec->lane_count - 1])
        return true;
    return ++exec->tiles % TILES_A_LOOK == 0;
}

int64_t fo_exec_tile_rows(const fo_exec *exec, int32_t index)
{
    const fo_task *task = &exec->program->tasks[index];
    int64_t step =
        task->kind == FO_TASK_COMPUTE ? exec->tile_rows[task->slot] : exec->program->stream_rows;
    return min64(step, task->rows - exec->tasks[index].ready);
}

fo_status fo_exec_run_tile(fo_exec *exec, int32_t index, int64_t rows)
{
    int64_t begin = fo_base_clock_ns();
    fo_status status = run_tile(exec, &exec->program->tasks[index], &exec->tasks[index], rows);
    int64_t end = fo_base_clock_ns();
    if (status == FO_OK)
        status = exec->seen;
    exec->stats.compute_ns += end - begin;
    fo_exec_record_tile(exec, index, rows, begin, end);
    fo_exec_progress_advanced(exec, index);
    /* what this tile finished can leave now, and what has arrived is seen in time */
    if (status == FO_OK && exec->unfinished)
        status = fo_exec_progress_poll(exec, look_everywhere(exec, index));
    return status;
}

/* From inside a tile: nothing is computed, no rows are given free that the tile may read. */
void fo_exec_look(fo_exec *exec)
{
    bool moved = false;
    if (exec->seen == FO_OK && exec->unfinished)
        exec->seen = fo_exec_progress_poll(exec, true);
    if (exec->seen != FO_OK || !exec->background || !exec->background->first)
        return;
    exec->background->busy = true;
    exec->seen = fo_base_background_advance(exec->background, &exec->item, &moved);
    exec->background->busy = false;
}

static fo_status run_task(fo_exec *exec, int32_t index)
{
    const fo_task *task = &exec->program->tasks[index];
    exec_task *state = &exec->tasks[index];
    fo_status status = FO_OK;
    while (status == FO_OK && state->ready < task->rows) {
        int64_t rows = fo_exec_tile_rows(exec, index);
        bool moved;
        status = await_rows(exec, task, task->row + state->ready + rows);
        if (status == FO_OK)
            status = fo_exec_run_tile(exec, index, rows);
        if (status == FO_OK)
            status = move_others(exec, &moved);
    }
    return status;
}

/* The first queue that is not done, -1: none. A deferred one is done when all is posted. */
static int32_t open_queue(const fo_exec *exec, bool deferred)
{
    for (int32_t q = 0; q < exec->queue_count; q++) {
        const exec_queue *queue = &exec->queues[q];
        if (queue->oldest < queue->count &&
            (deferred || !queue->deferred || queue->next < queue->count))
            return q;
    }
    return -1;
}

/* Waits until the receivers have finished with what was sent; with `deferred` also with partial sums. */
static fo_status drain(fo_exec *exec, bool deferred)
{
    fo_status status = fo_exec_progress_poll(exec, true);
    int32_t q;
    while (status == FO_OK && (q = open_queue(exec, deferred)) >= 0)
        status = wait_for(exec, exec->queues[q].tasks[exec->queues[q].oldest]);
    return status;
}

fo_status fo_exec_settle(fo_exec *exec)
{
    if (!exec->unfinished)
        return FO_OK;
    fo_recorder *const *recorder = exec->recorder;
    exec->recorder = NULL; /* their events are written, or nobody recorded then */
    exec->last_progress_ns = 0;
    fo_status status = drain(exec, true);
    exec->recorder = recorder;
    exec->unfinished = 0; /* also after a failure: nothing more will come */
    exec->broken |= status != FO_OK;
    /* the memory may be given back now: nobody may read it later and call that a result */
    return status == FO_OK ? FO_OK : fail_group(exec, status);
}

fo_status fo_exec_open(fo_exec *exec, void *const external[FO_BUFFER_ROLES], void *context)
{
    memcpy(exec->external, external, sizeof exec->external);
    exec->context = context;
    exec->at = 0;
    exec->waiting_for = -1;
    exec->looked = false; /* another run may have waited and not looked here */
    exec->seen = FO_OK;
    fo_status status = fo_exec_settle(exec);
    if (status != FO_OK)
        return status;
    exec->last_progress_ns = 0;
    fo_exec_progress_rewind(exec);
    fo_exec_record_begin(exec);
    status = fo_exec_progress_poll(exec, false);
    int64_t prepare = fo_base_clock_ns();
    if (status == FO_OK && exec->prepare)
        status = exec->prepare(context);
    exec->stats.compute_ns += fo_base_clock_ns() - prepare;
    return status == FO_OK ? FO_OK : fo_exec_shut(exec, status);
}

fo_status fo_exec_complete(fo_exec *exec)
{
    fo_status status = FO_OK;
    for (; status == FO_OK && exec->at < exec->lane_count; exec->at++)
        status = run_task(exec, exec->lane[exec->at]);
    if (status == FO_OK)
        status = drain(exec, false);
    return fo_exec_shut(exec, status);
}

fo_status fo_exec_shut(fo_exec *exec, fo_status status)
{
    fo_exec_record_end(exec);
    if (status != FO_OK) {
        exec->unfinished = 0;
        exec->broken = true;
        if (status == FO_PEER)
            bear_witness(exec);
    }
    exec->stats.runs++;
    exec->executions++;
    exec->stats.tasks += exec->program->task_count;
    return status == FO_OK ? FO_OK : fail_group(exec, status);
}

fo_status fo_exec_run(fo_exec *exec, void *const external[FO_BUFFER_ROLES], void *context)
{
    int64_t begin = fo_base_clock_ns();
    fo_status status = fo_exec_open(exec, external, context);
    if (status == FO_OK)
        status = fo_exec_complete(exec);
    exec->stats.total_ns += fo_base_clock_ns() - begin;
    return status;
}

void fo_exec_stats_get(const fo_exec *exec, fo_exec_stats *stats)
{
    *stats = exec->stats;
}

void fo_exec_stats_reset(fo_exec *exec)
{
    memset(&exec->stats, 0, sizeof exec->stats);
    for (int32_t t = 0; t < exec->program->task_count; t++)
        exec->tasks[t].waited_ns = 0;
}

int64_t fo_exec_waited_ns(const fo_exec *exec, int32_t task)
{
    return exec->tasks[task].waited_ns;
}
