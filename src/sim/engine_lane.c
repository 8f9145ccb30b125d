/* The compute lane of a rank: what it does next, and how long that takes.
 *
 * async: messages are offered and seen whenever they can be, and their software is made up for between tiles (and in
 * waits). Else one thread does everything: between tiles, and woken up from a wait, it notes what has come, one message
 * after the other, then offers what can leave. */
#include <stdlib.h>

#include "base/error.h"
#include "sim/engine_state.h"

/* ---- for those who watch ------------------------------------------------------------------------------- */

static void tell(const sim_engine *e, const fo_sim_event *event)
{
    if (e->desc->watch && event->end_s > event->begin_s)
        e->desc->watch(e->desc->watcher, event);
}

static fo_sim_event event_of(const sim_engine *e, const sim_rank *r, fo_sim_event_kind kind,
                             int32_t task, double begin_s)
{
    fo_sim_event event = {.kind = kind,
                          .rank = (int)(r - e->rank),
                          .task = task,
                          .peer = task < 0 ? -1 : r->program->tasks[task].peer,
                          .begin_s = begin_s,
                          .end_s = e->happens.now_s};
    return event;
}

/* Tiles that follow each other are one event. */
static void tell_tile(sim_engine *e, sim_rank *r, int32_t task)
{
    if (r->open.task == task && r->open.rows && r->open.end_s == r->since_s) {
        r->open.end_s = e->happens.now_s;
        r->open.rows += r->rows;
        return;
    }
    if (r->open.rows)
        tell(e, &r->open);
    r->open = event_of(e, r, FO_SIM_EVENT_COMPUTE, task, r->since_s);
    r->open.rows = r->rows;
}

/* ---- doing --------------------------------------------------------------------------------------------- */

static void ends_at(sim_engine *e, sim_rank *r, double at_s)
{
    fo_sim_engine_happens(e, &(fo_sim_happens){.at_s = at_s,
                                               .kind = FO_SIM_LANE_ENDS,
                                               .rank = (int32_t)(r - e->rank),
                                               .item = ++r->turn});
}

/* A wait is over. */
static void end_wait(sim_engine *e, sim_rank *r)
{
    if (r->wait_s < 0)
        return;
    r->sums.exposed_s += e->happens.now_s - r->wait_s;
    fo_sim_event event = event_of(e, r, FO_SIM_EVENT_WAIT, r->waits_for, r->wait_s);
    tell(e, &event);
    r->wait_s = -1;
}

static void begin(sim_engine *e, sim_rank *r, sim_lane doing, double seconds)
{
    if (doing != SIM_LANE_WAKES)
        end_wait(e, r);
    r->doing = doing;
    r->since_s = e->happens.now_s;
    ends_at(e, r, r->since_s + seconds);
}

static double stretched(const sim_engine *e, const sim_rank *r)
{
    return r->in_flight > 0 ? 1 + e->machine->contention : 1;
}

/* What the lane does takes longer while messages are in flight. */
static void begin_work(sim_engine *e, sim_rank *r, sim_lane doing, double seconds)
{
    r->work_s = r->work_left_s = seconds;
    r->work_since_s = e->happens.now_s;
    begin(e, r, doing, fo_sim_engine_whole(seconds * stretched(e, r)));
}

void fo_sim_engine_flight(sim_engine *e, sim_rank *r, int by)
{
    double was = stretched(e, r);
    r->in_flight += by;
    double is = stretched(e, r), now_s = e->happens.now_s;
    bool works =
        r->doing == SIM_LANE_TILE || r->doing == SIM_LANE_HANDLES || r->doing == SIM_LANE_PREPARES;
    if (was == is || !works)
        return;
    r->work_left_s -= (now_s - r->work_since_s) / was;
    r->work_since_s = now_s;
    if (r->work_left_s < 0)
        r->work_left_s = 0;
    ends_at(e, r, r->work_since_s + fo_sim_engine_whole(r->work_left_s * is));
}

/* ---- what has come, not async -------------------------------------------------------------------------- */

void fo_sim_engine_note(sim_engine *e, sim_rank *r, int32_t index)
{
    int32_t n = e->note_spare;
    if (n >= 0) {
        e->note_spare = e->notes[n].next;
    } else {
        if (e->note_count == e->note_capacity) {
            int32_t larger = e->note_capacity ? 2 * e->note_capacity : 64;
            sim_note *moved = realloc(e->notes, (size_t)larger * sizeof *moved);
            if (!moved) {
                e->happens.failed = true;
                return;
            }
            e->notes = moved;
            e->note_capacity = larger;
        }
        n = e->note_count++;
    }
    e->notes[n] = (sim_note){index, -1};
    if (r->note_first < 0)
        r->note_first = n;
    else
        e->notes[r->note_last].next = n;
    r->note_last = n;
}

static int32_t take_note(sim_engine *e, sim_rank *r)
{
    int32_t n = r->note_first, index = e->notes[n].task;
    r->note_first = e->notes[n].next;
    e->notes[n].next = e->note_spare;
    e->note_spare = n;
    return index;
}

static double note_s(const sim_engine *e, const sim_rank *r, int32_t index)
{
    if (r->program->tasks[index].kind != FO_TASK_RECV)
        return 0;
    int32_t chunk = fo_sim_engine_task(e, r, index)->completed;
    return fo_sim_engine_software_s(e, fo_sim_engine_message_bytes(e, r, index, chunk));
}

static double offer_s(const sim_engine *e, const sim_rank *r, int32_t queue)
{
    const sim_queue *q = &e->queues[queue];
    int32_t index = e->queue_pool[q->first + q->next];
    int32_t chunk = fo_sim_engine_task(e, r, index)->issued;
    return fo_sim_engine_software_s(e, fo_sim_engine_message_bytes(e, r, index, chunk));
}

static void handle(sim_engine *e, sim_rank *r)
{
    if (r->handled_send)
        fo_sim_engine_offer(e, r, r->handled);
    else
        fo_sim_engine_complete(e, r, r->handled);
}

/* One thing about messages, if there is one; true when it is done already. */
static bool handle_next(sim_engine *e, sim_rank *r)
{
    double seconds;
    r->handled_send = r->note_first < 0;
    if (r->handled_send) {
        r->handled = fo_sim_engine_next_offer(e, r);
        if (r->handled < 0)
            return false;
        seconds = offer_s(e, r, r->handled);
    } else {
        r->handled = take_note(e, r);
        seconds = note_s(e, r, r->handled);
    }
    if (seconds > 0) {
        begin_work(e, r, SIM_LANE_HANDLES, seconds);
        return false;
    }
    handle(e, r);
    return true;
}

/* ---- what comes next ----------------------------------------------------------------------------------- */

/* The first communication task of a rank that is not done. */
static int32_t first_open(const sim_engine *e, const sim_rank *r)
{
    for (int32_t t = 0; t < r->program->task_count; t++) {
        const sim_task *state = fo_sim_engine_task(e, r, t);
        fo_task_kind kind = r->program->tasks[t].kind;
        if ((kind == FO_TASK_RECV && state->released < state->chunks) ||
            (kind == FO_TASK_SEND &&
             (e->queues[state->queue].deferred ? state->issued : state->completed) < state->chunks))
            return t;
    }
    return -1;
}

int32_t fo_sim_engine_root(const sim_engine *e, const sim_rank *r, int32_t blocker)
{
    if (blocker < 0)
        blocker = first_open(e, r);
    while (blocker >= 0) {
        const fo_task *task = &r->program->tasks[blocker];
        const sim_task *state = fo_sim_engine_task(e, r, blocker);
        if (fo_sim_engine_is_message(task) && state->issued > state->completed)
            return blocker;
        int32_t next = fo_sim_engine_blocker(e, r, blocker, task->row + task->rows);
        if (next < 0)
            return blocker;
        blocker = next;
    }
    return blocker;
}

static void sleep_behind(sim_engine *e, sim_rank *r, int32_t blocker)
{
    if (r->doing == SIM_LANE_ASLEEP)
        return;
    r->doing = SIM_LANE_ASLEEP;
    r->since_s = e->happens.now_s;
    if (r->wait_s >= 0)
        return;
    r->wait_s = e->happens.now_s;
    r->waits_for = e->desc->watch ? fo_sim_engine_root(e, r, blocker) : -1;
}

/* It takes a while to get up after a wait, if there was one. */
static bool gets_up(sim_engine *e, sim_rank *r)
{
    double wake_s = fo_sim_engine_whole(e->machine->wake_s);
    if (r->doing != SIM_LANE_ASLEEP)
        return false;
    r->doing = SIM_LANE_FREE;
    if (wake_s <= 0 || e->happens.now_s <= r->since_s)
        return false;
    begin(e, r, SIM_LANE_WAKES, wake_s);
    return true;
}

static void end_rank(sim_engine *e, sim_rank *r)
{
    end_wait(e, r);
    r->doing = SIM_LANE_ENDED;
    r->sums.end_s = e->happens.now_s;
    if (r->open.rows)
        tell(e, &r->open);
}

static void begin_tile(sim_engine *e, sim_rank *r, int32_t index)
{
    const fo_sim_engine_desc *d = e->desc;
    const fo_task *task = &r->program->tasks[index];
    int64_t row = task->row + fo_sim_engine_task(e, r, index)->ready;
    double seconds = d->tile_s(d->context, (int)(r - e->rank), task, row, r->rows);
    if (!(seconds >= 0 && seconds < 1e300) && e->status == FO_OK) {
        e->status = fo_base_error(FO_INVALID,
                                  "simulator: %lld rows from row %lld on of rank %d take %g s, "
                                  "expected 0 or more",
                                  (long long)r->rows, (long long)row, (int)(r - e->rank), seconds);
        return;
    }
    begin_work(e, r, SIM_LANE_TILE,
               fo_sim_engine_whole(e->machine->task_s) + fo_sim_engine_whole(seconds / r->speed));
}

static int64_t tile_rows(const sim_engine *e, const sim_rank *r, int32_t index)
{
    const fo_task *task = &r->program->tasks[index];
    int64_t left = task->rows - fo_sim_engine_task(e, r, index)->ready;
    int64_t rows =
        task->kind == FO_TASK_COMPUTE ? e->desc->tile_rows[task->slot != 0] : e->stream_rows;
    return rows < left ? rows : left;
}

/* Nothing is left to be done about messages: work. */
static void proceed(sim_engine *e, sim_rank *r)
{
    int rank = (int)(r - e->rank);
    double prepare_s = e->desc->prepare_s ? e->desc->prepare_s[rank] : 0;
    if (!r->prepared) {
        r->prepared = true;
        if (prepare_s > 0) {
            begin_work(e, r, SIM_LANE_PREPARES, fo_sim_engine_whole(prepare_s / r->speed));
            return;
        }
    }
    if (r->at == r->lane_count) {
        if (r->unfinished > 0)
            sleep_behind(e, r, -1);
        else if (!gets_up(e, r))
            end_rank(e, r);
        return;
    }
    int32_t index = r->lane[r->at];
    const fo_task *task = &r->program->tasks[index];
    int64_t rows = tile_rows(e, r, index);
    int64_t end = task->row + fo_sim_engine_task(e, r, index)->ready + rows;
    int32_t blocker = fo_sim_engine_blocker(e, r, index, end);
    if (blocker >= 0) {
        sleep_behind(e, r, blocker);
        return;
    }
    if (gets_up(e, r))
        return;
    r->rows = rows;
    begin_tile(e, r, index);
}

static bool at_work(const sim_rank *r)
{
    return !r->begun || (r->doing != SIM_LANE_FREE && r->doing != SIM_LANE_ASLEEP);
}

static void go_async(sim_engine *e, sim_rank *r)
{
    for (int32_t q; r->begun && (q = fo_sim_engine_next_offer(e, r)) >= 0;) {
        r->debt_s += offer_s(e, r, q);
        fo_sim_engine_offer(e, r, q);
    }
    if (at_work(r))
        return;
    if (r->debt_s <= 0) {
        proceed(e, r);
        return;
    }
    if (gets_up(e, r))
        return;
    begin_work(e, r, SIM_LANE_HANDLES, r->debt_s);
    r->debt_s = 0;
}

void fo_sim_engine_go(sim_engine *e, sim_rank *r)
{
    if (e->machine->async) {
        go_async(e, r);
        return;
    }
    if (at_work(r) || (r->doing == SIM_LANE_ASLEEP && (r->note_first < 0 || gets_up(e, r))))
        return;
    while (handle_next(e, r))
        ;
    if (r->doing == SIM_LANE_FREE)
        proceed(e, r);
}

void fo_sim_engine_lane_ends(sim_engine *e, sim_rank *r)
{
    double took_s = e->happens.now_s - r->since_s;
    sim_lane done = r->doing;
    r->doing = SIM_LANE_FREE;
    if (done == SIM_LANE_WAKES)
        return; /* the wait goes on until something is done */
    r->sums.compute_s += took_s;
    if (took_s > r->work_s)
        r->sums.contention_s += took_s - r->work_s;
    if (done == SIM_LANE_HANDLES) {
        r->sums.overhead_s += r->work_s;
        if (!e->machine->async)
            handle(e, r);
        return;
    }
    if (done == SIM_LANE_TILE)
        r->sums.overhead_s += fo_sim_engine_whole(e->machine->task_s);
    if (done == SIM_LANE_PREPARES) {
        fo_sim_event event = event_of(e, r, FO_SIM_EVENT_PREPARE, -1, r->since_s);
        tell(e, &event);
        return;
    }
    int32_t index = r->lane[r->at];
    sim_task *state = fo_sim_engine_task(e, r, index);
    tell_tile(e, r, index);
    state->ready += r->rows;
    r->at += state->ready == r->program->tasks[index].rows;
    fo_sim_engine_advanced(e, r, index);
}
