/* Moving messages: posting in order, ports, delivery, handing back. Who waits for whom is kept in lists: a queue
 * whose next task is blocked waits behind the task that blocks it, so a message costs the same for any number
 * of ranks. */
#include <stdlib.h>

#include "base/error.h"
#include "sim/engine_state.h"

void fo_sim_engine_happens(sim_engine *e, const fo_sim_happens *happens)
{
    fo_sim_queue_add(&e->happens, happens);
}

void fo_sim_engine_touch(sim_engine *e, sim_rank *r)
{
    if (r->touched)
        return;
    r->touched = true;
    e->touched[e->touched_count++] = (int32_t)(r - e->rank);
}

int32_t fo_sim_engine_blocker(const sim_engine *e, const sim_rank *r, int32_t index, int64_t end)
{
    const fo_task *task = &r->program->tasks[index];
    sim_task *state = fo_sim_engine_task(e, r, index);
    bool views = e->machine->views, for_good = true;
    for (int32_t i = state->dep_at; i < task->dep_count; i++) {
        const fo_dep *dep = &r->program->deps[task->dep_first + i];
        const fo_task *before = &r->program->tasks[dep->task];
        int64_t ready = fo_sim_engine_task(e, r, dep->task)->ready, needed = before->rows;
        if (ready == before->rows || (dep->mode == FO_DEP_SPACE && views)) {
            state->dep_at += for_good;
            continue;
        }
        for_good = false;
        if (dep->mode == FO_DEP_ROWS && end - before->row < needed)
            needed = end - before->row;
        if (ready < needed)
            return dep->task;
    }
    return -1;
}

/* ---- queues that may be able to post ------------------------------------------------------------------- */

static int32_t next_task(const sim_engine *e, int32_t queue)
{
    return e->queue_pool[e->queues[queue].first + e->queues[queue].next];
}

static void push_runnable(sim_engine *e, sim_rank *r, int32_t queue)
{
    int32_t at = r->runnable_count++, key = next_task(e, queue);
    for (; at > 0 && next_task(e, r->runnable[(at - 1) / 2]) > key; at = (at - 1) / 2)
        r->runnable[at] = r->runnable[(at - 1) / 2];
    r->runnable[at] = queue;
}

static int32_t pop_runnable(sim_engine *e, sim_rank *r)
{
    int32_t first = r->runnable[0], last = r->runnable[--r->runnable_count], at = 0;
    int32_t count = r->runnable_count, key = next_task(e, last);
    for (int32_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count &&
            next_task(e, r->runnable[child + 1]) < next_task(e, r->runnable[child]))
            child++;
        if (next_task(e, r->runnable[child]) >= key)
            break;
        r->runnable[at] = r->runnable[child];
    }
    r->runnable[at] = last;
    return first;
}

void fo_sim_engine_rewind(sim_engine *e, sim_rank *r)
{
    for (int32_t q = r->queue_first; q < r->queue_first + r->queue_count; q++)
        push_runnable(e, r, q);
}

/* ---- posting ------------------------------------------------------------------------------------------- */

static void post_recv(sim_engine *e, sim_rank *r, int32_t index)
{
    sim_task *state = fo_sim_engine_task(e, r, index);
    state->issued = state->chunks;
    for (int32_t m = state->early; m >= 0; m = e->messages[m].next)
        fo_sim_engine_happens(e, &(fo_sim_happens){.at_s = e->happens.now_s,
                                                   .kind = FO_SIM_AT_PORT,
                                                   .rank = (int32_t)(r - e->rank),
                                                   .task = index,
                                                   .chunk = e->messages[m].chunk,
                                                   .item = m});
    state->early = state->early_last = -1;
}

int32_t fo_sim_engine_next_offer(sim_engine *e, sim_rank *r)
{
    while (r->runnable_count) {
        int32_t queue = pop_runnable(e, r), index = next_task(e, queue);
        sim_queue *q = &e->queues[queue];
        const fo_task *task = &r->program->tasks[index];
        sim_task *state = fo_sim_engine_task(e, r, index);
        int32_t until = q->send ? state->issued + 1 : state->chunks;
        int32_t blocker =
            fo_sim_engine_blocker(e, r, index, task->row + fo_sim_engine_rows(e, task, until));
        if (blocker >= 0) {
            sim_task *before = fo_sim_engine_task(e, r, blocker);
            q->next_waiter = before->waiters;
            before->waiters = queue;
            continue;
        }
        if (q->send)
            return queue;
        post_recv(e, r, index);
        if (++q->next < q->count)
            push_runnable(e, r, queue);
    }
    return -1;
}

double fo_sim_engine_message_bytes(const sim_engine *e, const sim_rank *r, int32_t index,
                                   int32_t chunk)
{
    const fo_task *task = &r->program->tasks[index];
    fo_ref ref = task->kind == FO_TASK_SEND ? task->in : task->out;
    int64_t rows = fo_sim_engine_rows(e, task, chunk + 1) - fo_sim_engine_rows(e, task, chunk);
    return (double)(rows * e->desc->row_bytes[r->program->buffers[ref.buffer].role]);
}

double fo_sim_engine_software_s(const sim_engine *e, double bytes)
{
    return fo_sim_engine_whole(e->machine->message_s + e->machine->cpu_s_per_byte * bytes);
}

static int32_t new_message(sim_engine *e)
{
    int32_t spare = e->message_spare;
    if (spare >= 0) {
        e->message_spare = e->messages[spare].next;
        return spare;
    }
    if (e->message_count == e->message_capacity) {
        int32_t larger = e->message_capacity ? 2 * e->message_capacity : 64;
        sim_message *moved = realloc(e->messages, (size_t)larger * sizeof *moved);
        if (!moved) {
            e->happens.failed = true;
            return -1;
        }
        e->messages = moved;
        e->message_capacity = larger;
    }
    return e->message_count++;
}

static double transfer_s(sim_queue *q, double bytes)
{
    if (q->sized_bytes != bytes) {
        q->sized_bytes = bytes;
        q->transfer_s = fo_sim_engine_whole(fo_sim_network_transfer_s(q->route.link, bytes));
    }
    return q->transfer_s;
}

void fo_sim_engine_offer(sim_engine *e, sim_rank *r, int32_t queue)
{
    sim_queue *q = &e->queues[queue];
    int32_t index = next_task(e, queue), m = new_message(e);
    sim_task *state = fo_sim_engine_task(e, r, index);
    if (m < 0)
        return;
    double bytes = fo_sim_engine_message_bytes(e, r, index, state->issued);
    e->messages[m] = (sim_message){.queue = queue,
                                   .task = index,
                                   .chunk = state->issued++,
                                   .from = (int32_t)(r - e->rank),
                                   .next = -1,
                                   .transfer_s = transfer_s(q, bytes)};
    r->sums.sent_bytes += bytes;
    r->sums.messages++;
    if (state->issued == state->chunks) {
        r->unfinished -= q->deferred;
        q->next++;
    }
    if (q->next < q->count)
        push_runnable(e, r, queue);
    if (!q->route.shared) { /* nobody else's message can be before it */
        fo_sim_engine_at_port(e, m);
        return;
    }
    fo_sim_engine_happens(e, &(fo_sim_happens){.at_s = e->happens.now_s,
                                               .kind = FO_SIM_AT_PORT,
                                               .rank = e->messages[m].from,
                                               .task = index,
                                               .chunk = e->messages[m].chunk,
                                               .order = e->port_pool[2 * q->port_first + 1],
                                               .item = m});
}

/* ---- ports --------------------------------------------------------------------------------------------- */

static void in_flight(sim_engine *e, int32_t rank, double begin_s, double end_s)
{
    if (e->machine->contention <= 0 || end_s <= begin_s)
        return;
    fo_sim_happens happens = {.at_s = begin_s, .kind = FO_SIM_FLIGHT_BEGINS, .rank = rank};
    fo_sim_engine_happens(e, &happens);
    happens.at_s = end_s;
    happens.kind = FO_SIM_FLIGHT_ENDS;
    fo_sim_engine_happens(e, &happens);
}

static void watch(const sim_engine *e, fo_sim_event_kind kind, int32_t rank, int32_t index,
                  int32_t chunk, double begin_s, double end_s)
{
    const fo_task *task = &e->rank[rank].program->tasks[index];
    if (!e->desc->watch)
        return;
    int64_t rows = fo_sim_engine_rows(e, task, chunk + 1) - fo_sim_engine_rows(e, task, chunk);
    e->desc->watch(e->desc->watcher, &(fo_sim_event){.kind = kind,
                                                     .rank = rank,
                                                     .task = index,
                                                     .peer = task->peer,
                                                     .begin_s = begin_s,
                                                     .end_s = end_s,
                                                     .rows = rows});
}

/* When the port lets the message begin. */
static double take_port(sim_engine *e, const sim_queue *q, const sim_message *m)
{
    double *free_s = &e->port_free_s[e->port_pool[2 * (q->port_first + m->stage)]];
    double begin_s = *free_s > e->happens.now_s ? *free_s : e->happens.now_s;
    *free_s = begin_s + m->transfer_s;
    return begin_s;
}

static void enter(sim_engine *e, int32_t message)
{
    sim_message m = e->messages[message];
    const sim_queue *q = &e->queues[m.queue];
    int32_t index = fo_sim_engine_task(e, &e->rank[m.from], m.task)->partner;
    sim_task *recv = fo_sim_engine_task(e, &e->rank[q->peer], index);
    if (!recv->issued) {
        if (recv->early < 0)
            recv->early = message;
        else
            e->messages[recv->early_last].next = message;
        recv->early_last = message;
        return;
    }
    double begin_s = take_port(e, q, &m), end_s = begin_s + m.transfer_s;
    fo_sim_happens happens = {.at_s = end_s + fo_sim_engine_whole(q->route.link->latency_s),
                              .kind = FO_SIM_DELIVERED,
                              .rank = q->peer,
                              .task = index,
                              .chunk = m.chunk};
    fo_sim_engine_happens(e, &happens);
    if (!e->machine->views) {
        happens.kind = FO_SIM_GIVEN_BACK;
        happens.rank = m.from;
        happens.task = m.task;
        fo_sim_engine_happens(e, &happens);
    }
    in_flight(e, q->peer, begin_s, end_s);
    watch(e, FO_SIM_EVENT_RECV, q->peer, index, m.chunk, begin_s, happens.at_s);
    e->messages[message].next = e->message_spare;
    e->message_spare = message;
}

void fo_sim_engine_at_port(sim_engine *e, int32_t message)
{
    sim_message *m = &e->messages[message];
    const sim_queue *q = &e->queues[m->queue];
    if (m->stage == q->route.ports - 1) {
        enter(e, message);
        return;
    }
    double begin_s = take_port(e, q, m);
    if (m->stage == 0) {
        in_flight(e, m->from, begin_s, begin_s + m->transfer_s);
        watch(e, FO_SIM_EVENT_SEND, m->from, m->task, m->chunk, begin_s, begin_s + m->transfer_s);
    }
    bool last = ++m->stage == q->route.ports - 1;
    fo_sim_happens happens = {.at_s = begin_s,
                              .kind = FO_SIM_AT_PORT,
                              .rank = m->from,
                              .task =
                                  last ? fo_sim_engine_task(e, &e->rank[m->from], m->task)->partner
                                       : m->task,
                              .chunk = m->chunk,
                              .order = e->port_pool[2 * (q->port_first + m->stage) + 1],
                              .item = message};
    if (!last) /* over one link of several; the two ends of a link are no way */
        happens.at_s += fo_sim_engine_whole(q->route.link->latency_s);
    fo_sim_engine_happens(e, &happens);
}

/* ---- completing ---------------------------------------------------------------------------------------- */

/* Whether every reader of a RECV has finished with its rows [begin, end) (global). */
static bool readers_passed(const sim_engine *e, const sim_rank *r, const sim_task *recv,
                           int64_t begin, int64_t end)
{
    for (int32_t i = 0; i < recv->reader_count; i++) {
        int32_t index = e->reader_pool[recv->reader_first + i];
        const fo_task *reader = &r->program->tasks[index];
        int64_t last = reader->row + reader->rows;
        if (begin >= last || end <= reader->row)
            continue;
        if (reader->row + fo_sim_engine_task(e, r, index)->ready < (end < last ? end : last))
            return false;
    }
    return true;
}

/* Hands back what all readers have passed. */
static void hand_back(sim_engine *e, sim_rank *r, int32_t index)
{
    const fo_task *task = &r->program->tasks[index];
    sim_task *state = fo_sim_engine_task(e, r, index);
    while (state->released < state->completed) {
        int64_t begin = fo_sim_engine_rows(e, task, state->released);
        int64_t end = fo_sim_engine_rows(e, task, state->released + 1);
        if (!readers_passed(e, r, state, task->row + begin, task->row + end))
            return;
        if (e->machine->views)
            fo_sim_engine_happens(e, &(fo_sim_happens){.at_s = e->happens.now_s,
                                                       .kind = FO_SIM_GIVEN_BACK,
                                                       .rank = e->queues[state->queue].peer,
                                                       .task = state->partner,
                                                       .chunk = state->released});
        if (++state->released == state->chunks)
            r->unfinished--;
    }
}

void fo_sim_engine_advanced(sim_engine *e, sim_rank *r, int32_t index)
{
    sim_task *state = fo_sim_engine_task(e, r, index);
    int32_t sources[2] = {state->in_source, state->add_source};
    for (int32_t q = state->waiters; q >= 0; q = e->queues[q].next_waiter)
        push_runnable(e, r, q);
    state->waiters = -1;
    for (int i = 0; i < 2; i++)
        if (sources[i] >= 0)
            hand_back(e, r, sources[i]);
}

void fo_sim_engine_complete(sim_engine *e, sim_rank *r, int32_t index)
{
    const fo_task *task = &r->program->tasks[index];
    sim_task *state = fo_sim_engine_task(e, r, index);
    state->ready = fo_sim_engine_rows(e, task, ++state->completed);
    if (task->kind == FO_TASK_RECV)
        hand_back(e, r, index);
    else if (state->completed == state->chunks)
        r->unfinished -= !e->queues[state->queue].deferred;
    fo_sim_engine_advanced(e, r, index);
}
