/* Laying out a simulation once: queues and whom they meet, who reads what, the ports of every way. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "sim/engine_state.h"

/* ---- a table of numbers by 64-bit keys ----------------------------------------------------------------- */

typedef struct table {
    uint64_t *keys; /* 0: free */
    int32_t *values;
    int64_t capacity, count;
} table;

static int64_t place_of(const table *t, uint64_t key)
{
    uint64_t hash = key * 0x9e3779b97f4a7c15u;
    int64_t at = (int64_t)((hash ^ hash >> 29) & (uint64_t)(t->capacity - 1));
    while (t->keys[at] && t->keys[at] != key)
        at = (at + 1) & (t->capacity - 1);
    return at;
}

static void table_free(table *t)
{
    free(t->keys);
    free(t->values);
}

/* Empty, for `count` entries without growing. */
static bool table_clear(table *t, int64_t count)
{
    int64_t capacity = 16;
    while (capacity < 2 * count)
        capacity *= 2;
    t->count = 0;
    if (capacity <= t->capacity) {
        memset(t->keys, 0, (size_t)t->capacity * sizeof *t->keys);
        return true;
    }
    table_free(t);
    t->keys = calloc((size_t)capacity, sizeof *t->keys);
    t->values = malloc((size_t)capacity * sizeof *t->values);
    t->capacity = t->keys && t->values ? capacity : 0;
    return t->capacity > 0;
}

static bool table_grow(table *t)
{
    table old = *t;
    *t = (table){0};
    if (!table_clear(t, old.capacity)) {
        table_free(&old);
        return false;
    }
    for (int64_t i = 0; i < old.capacity; i++)
        if (old.keys[i]) {
            int64_t at = place_of(t, old.keys[i]);
            t->keys[at] = old.keys[i];
            t->values[at] = old.values[i];
            t->count++;
        }
    table_free(&old);
    return true;
}

/* The value of a key that is new is `fresh`. NULL: no memory. */
static int32_t *table_at(table *t, uint64_t key, int32_t fresh)
{
    if (2 * (t->count + 1) > t->capacity && !table_grow(t))
        return NULL;
    int64_t at = place_of(t, key);
    if (!t->keys[at]) {
        t->keys[at] = key;
        t->values[at] = fresh;
        t->count++;
    }
    return &t->values[at];
}

static int32_t table_find(const table *t, uint64_t key)
{
    int64_t at = place_of(t, key);
    return t->keys[at] ? t->values[at] : -1;
}

static fo_status no_memory(int64_t tasks)
{
    return fo_base_error(FO_NO_MEMORY, "simulator: no memory for %lld tasks", (long long)tasks);
}

/* ---- what is asked ------------------------------------------------------------------------------------- */

static bool is_time(double seconds)
{
    return seconds >= 0 && isfinite(seconds);
}

static fo_status check_machine(const fo_sim_machine *m)
{
    const struct {
        const char *name;
        double value;
    } fields[] = {{"task_s", m->task_s},
                  {"message_s", m->message_s},
                  {"wake_s", m->wake_s},
                  {"cpu_s_per_byte", m->cpu_s_per_byte},
                  {"contention", m->contention}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (!is_time(fields[i].value))
            return fo_base_error(FO_INVALID,
                                 "simulator: %s of the machine is %g, expected 0 or more",
                                 fields[i].name, fields[i].value);
    return FO_OK;
}

static fo_status check_rank(const fo_sim_engine_desc *d, int rank)
{
    const fo_program *p = d->programs[rank];
    if (p->ranks != d->ranks || p->rank != rank || p->stream_rows < 1 ||
        p->stream_rows != d->programs[0]->stream_rows)
        return fo_base_error(
            FO_INVALID,
            "simulator: program %d is of rank %d of %d with messages of %lld rows, "
            "expected rank %d of %d and equal messages everywhere",
            rank, p->rank, p->ranks, (long long)p->stream_rows, rank, d->ranks);
    double speed = d->speed ? d->speed[rank] : 1, start = d->start_s ? d->start_s[rank] : 0;
    double prepare = d->prepare_s ? d->prepare_s[rank] : 0;
    if (!(speed > 0) || !isfinite(speed) || !is_time(start) || !is_time(prepare))
        return fo_base_error(
            FO_INVALID,
            "simulator: rank %d has speed %g, begins at %g s and prepares for %g s, "
            "expected a speed above 0 and times of 0 or more",
            rank, speed, start, prepare);
    return FO_OK;
}

static fo_status check_tasks(const fo_program *p)
{
    for (int32_t t = 0; t < p->task_count; t++) {
        const fo_task *task = &p->tasks[t];
        fo_ref ref = task->kind == FO_TASK_SEND ? task->in : task->out;
        if (task->rows < 1 ||
            (fo_sim_engine_is_message(task) && (ref.buffer < 0 || ref.buffer >= p->buffer_count)))
            return fo_base_error(FO_INVALID,
                                 "simulator: task %d of rank %d has %lld rows, of buffer %d, "
                                 "expected 1 or more, of one of %d buffers",
                                 (int)t, p->rank, (long long)task->rows, (int)ref.buffer,
                                 (int)p->buffer_count);
    }
    return FO_OK;
}

fo_status fo_sim_engine_check(const fo_sim_engine_desc *d)
{
    if (d->ranks < 1 || d->period < 1 || d->ranks % d->period)
        return fo_base_error(FO_INVALID,
                             "simulator: a period of %d of %d ranks, expected a divisor of them",
                             d->period, d->ranks);
    for (int slot = 0; slot < 2; slot++)
        if (d->tile_rows[slot] < 1)
            return fo_base_error(FO_INVALID, "simulator: tiles of %lld rows, expected 1 or more",
                                 (long long)d->tile_rows[slot]);
    for (int role = 0; role < FO_BUFFER_ROLES; role++)
        if (d->row_bytes[role] < 0)
            return fo_base_error(FO_INVALID, "simulator: rows of %lld bytes, expected 0 or more",
                                 (long long)d->row_bytes[role]);
    fo_status status = check_machine(d->machine);
    if (status == FO_OK)
        status = fo_sim_network_check(&d->machine->network, d->ranks, d->period);
    for (int r = 0; status == FO_OK && r < d->period; r++)
        status = check_rank(d, r);
    for (int r = 0; status == FO_OK && r < d->period; r++)
        status = check_tasks(d->programs[r]);
    return status;
}

/* ---- who reads what a RECV delivers -------------------------------------------------------------------- */

static bool delivers(const fo_task *recv, const fo_task *task, fo_ref ref)
{
    return recv->kind == FO_TASK_RECV && recv->out.buffer == ref.buffer &&
           recv->out.row - recv->row == ref.row - task->row && recv->row <= task->row &&
           recv->row + recv->rows >= task->row + task->rows;
}

static uint64_t place_key(fo_ref ref)
{
    return (uint64_t)(ref.buffer + 1) << 48 ^ (uint64_t)ref.row;
}

/* The last RECV listed before a task into the rows it reads through `ref`, -1: none. Slices are read as they were
 * received; what is cut otherwise is looked for. */
static int32_t find_source(const fo_program *p, const table *latest, uint64_t received,
                           int32_t index, fo_ref ref)
{
    const fo_task *task = &p->tasks[index];
    if (ref.buffer < 0 || !(received >> ref.buffer & 1))
        return -1;
    int32_t at = table_find(latest, place_key(ref));
    if (at >= 0 && delivers(&p->tasks[at], task, ref))
        return at;
    for (at = index - 1; at >= 0; at--)
        if (delivers(&p->tasks[at], task, ref))
            return at;
    return -1;
}

static fo_status find_sources(sim_engine *e, sim_rank *r, table *latest)
{
    const fo_program *p = r->program;
    uint64_t received = 0; /* buffers, a bit each */
    if (!table_clear(latest, p->task_count))
        return no_memory(p->task_count);
    for (int32_t t = 0; t < p->task_count; t++) {
        const fo_task *task = &p->tasks[t];
        sim_task *state = fo_sim_engine_task(e, r, t);
        state->in_source = find_source(p, latest, received, t, task->in);
        state->add_source = find_source(p, latest, received, t, task->add);
        for (int i = 0; i < 2; i++) {
            int32_t source = i ? state->add_source : state->in_source;
            if (source >= 0)
                fo_sim_engine_task(e, r, source)->reader_count++;
        }
        if (task->kind != FO_TASK_RECV)
            continue;
        received |= (uint64_t)1 << task->out.buffer;
        int32_t *at = table_at(latest, place_key(task->out), t);
        if (!at)
            return no_memory(p->task_count);
        *at = t;
    }
    return FO_OK;
}

/* reader_count becomes lists; *next: place in the pool. */
static void list_readers(sim_engine *e, sim_rank *r, int32_t *next)
{
    int32_t count = r->program->task_count;
    for (int32_t t = 0; t < count; t++) {
        sim_task *state = fo_sim_engine_task(e, r, t);
        state->reader_first = *next;
        *next += state->reader_count;
        state->reader_count = 0;
    }
    for (int32_t t = 0; t < count; t++) {
        const sim_task *state = fo_sim_engine_task(e, r, t);
        int32_t sources[2] = {state->in_source, state->add_source};
        for (int i = 0; i < 2; i++)
            if (sources[i] >= 0) {
                sim_task *recv = fo_sim_engine_task(e, r, sources[i]);
                e->reader_pool[recv->reader_first + recv->reader_count++] = t;
            }
    }
}

/* ---- queues -------------------------------------------------------------------------------------------- */

static uint64_t queue_key(int rank, int away, int32_t channel, bool send)
{
    return (uint64_t)1 << 63 | (uint64_t)rank << 36 | (uint64_t)away << 8 |
           (uint64_t)(channel & 63) << 1 | send;
}

static uint64_t port_key(const fo_sim_port *port, int period)
{
    return (uint64_t)1 << 62 | (uint64_t)port->kind << 56 | (uint64_t)(port->owner % period) << 28 |
           (uint64_t)port->which;
}

/* How many ranks on the peer of a task is. */
static int away_of(const sim_engine *e, const sim_rank *r, const fo_task *task)
{
    return (task->peer - r->program->rank + e->ranks) % e->ranks;
}

static fo_status check_peer(const sim_engine *e, const sim_rank *r, const fo_task *task)
{
    if (task->peer >= 0 && task->peer < e->ranks && task->peer != r->program->rank &&
        task->channel >= 0 && task->channel < 64)
        return FO_OK;
    return fo_base_error(FO_SCHEDULE,
                         "simulator: rank %d has a message to or from rank %d on channel %d, "
                         "expected another one of %d ranks",
                         r->program->rank, task->peer, task->channel, e->ranks);
}

static fo_status count_queues(sim_engine *e, sim_rank *r, table *known)
{
    const fo_program *p = r->program;
    r->queue_first = e->queue_count;
    for (int32_t t = 0; t < p->task_count; t++) {
        const fo_task *task = &p->tasks[t];
        if (!fo_sim_engine_is_message(task))
            continue;
        fo_status status = check_peer(e, r, task);
        if (status != FO_OK)
            return status;
        bool send = task->kind == FO_TASK_SEND;
        uint64_t key = queue_key(p->rank, away_of(e, r, task), task->channel, send);
        int32_t *queue = table_at(known, key, e->queue_count);
        if (!queue)
            return no_memory(p->task_count);
        sim_queue *q = &e->queues[*queue];
        if (*queue == e->queue_count) {
            fo_ref ref = send ? task->in : task->out;
            *q = (sim_queue){.send = send, .peer = task->peer % e->period, .next_waiter = -1};
            q->deferred =
                send && e->machine->views && p->buffers[ref.buffer].role == FO_BUFFER_PARTIAL;
            e->queue_count++;
        }
        q->count++;
        fo_sim_engine_task(e, r, t)->queue = *queue;
    }
    r->queue_count = e->queue_count - r->queue_first;
    return FO_OK;
}

static void fill_queues(sim_engine *e, sim_rank *r, int32_t *next)
{
    for (int32_t q = r->queue_first; q < r->queue_first + r->queue_count; q++) {
        e->queues[q].first = *next;
        *next += e->queues[q].count;
        e->queues[q].count = 0;
    }
    for (int32_t t = 0; t < r->program->task_count; t++)
        if (fo_sim_engine_is_message(&r->program->tasks[t])) {
            sim_queue *q = &e->queues[fo_sim_engine_task(e, r, t)->queue];
            e->queue_pool[q->first + q->count++] = t;
        }
}

/* ---- whom a queue meets, and by which way -------------------------------------------------------------- */

static bool grow(void **array, int64_t count, int64_t *capacity, size_t size)
{
    if (count < *capacity)
        return true;
    int64_t larger = *capacity ? 2 * *capacity : 64;
    void *moved = realloc(*array, (size_t)larger * size);
    if (!moved)
        return false;
    *array = moved;
    *capacity = larger;
    return true;
}

static fo_status find_route(sim_engine *e, sim_rank *r, sim_queue *q, fo_sim_port *ports,
                            table *known)
{
    const fo_task *task = &r->program->tasks[e->queue_pool[q->first]];
    q->route =
        fo_sim_network_route(&e->machine->network, e->ranks, r->program->rank, task->peer, ports);
    q->port_first = (int32_t)e->port_pool_count;
    for (int i = 0; i < q->route.ports; i++) {
        int32_t *port = table_at(known, port_key(&ports[i], e->period), e->port_count);
        if (!port || !grow((void **)&e->port_pool, 2 * (e->port_pool_count + 1),
                           &e->port_pool_capacity, sizeof *e->port_pool))
            return no_memory(e->port_count);
        e->port_count += *port == e->port_count;
        e->port_pool[2 * e->port_pool_count] = *port;
        e->port_pool[2 * e->port_pool_count + 1] = ports[i].order;
        e->port_pool_count++;
    }
    return FO_OK;
}

static fo_status no_meeting(const sim_rank *r, const fo_task *task, int sends, int receives)
{
    bool send = task->kind == FO_TASK_SEND;
    return fo_base_error(FO_SCHEDULE,
                         "simulator: rank %d %s %d slices %s rank %d on channel %d, which %s %d",
                         r->program->rank, send ? "sends" : "receives", send ? sends : receives,
                         send ? "to" : "from", task->peer, task->channel,
                         send ? "receives" : "sends", send ? receives : sends);
}

static fo_status meet(sim_engine *e, sim_rank *r, sim_queue *q, const table *known)
{
    const fo_task *first = &r->program->tasks[e->queue_pool[q->first]];
    int away = away_of(e, r, first), back = (e->ranks - away) % e->ranks;
    q->twin = table_find(known, queue_key(q->peer, back, first->channel, !q->send));
    sim_queue *twin = q->twin >= 0 ? &e->queues[q->twin] : NULL;
    if (!twin || twin->count != q->count)
        return no_meeting(r, first, q->count, twin ? twin->count : 0);
    const sim_rank *peer = &e->rank[q->peer];
    for (int32_t i = 0; i < q->count; i++) {
        int32_t mine = e->queue_pool[q->first + i], other = e->queue_pool[twin->first + i];
        const fo_task *a = &r->program->tasks[mine], *b = &peer->program->tasks[other];
        if (a->rows != b->rows)
            return fo_base_error(FO_SCHEDULE,
                                 "simulator: rank %d %s slice %d.%d of %lld rows, rank %d "
                                 "expects %lld; are the shards of all ranks equal?",
                                 r->program->rank, q->send ? "sends" : "receives", a->shard, a->sub,
                                 (long long)a->rows, first->peer, (long long)b->rows);
        fo_sim_engine_task(e, r, mine)->partner = other;
    }
    return FO_OK;
}

/* ---- all of it ----------------------------------------------------------------------------------------- */

static void lay_out_lane(sim_engine *e, sim_rank *r, int32_t *next)
{
    const fo_program *p = r->program;
    r->lane = e->lane_pool + *next;
    for (int32_t t = 0; t < p->task_count; t++) {
        sim_task *state = fo_sim_engine_task(e, r, t);
        state->chunks = (int32_t)((p->tasks[t].rows + e->stream_rows - 1) / e->stream_rows);
        state->waiters = state->early = state->early_last = -1;
        if (fo_sim_engine_is_message(&p->tasks[t]))
            r->unfinished++;
        else
            r->lane[r->lane_count++] = t;
    }
    *next += r->lane_count;
}

static fo_status lay_out_ranks(sim_engine *e, table *known, table *latest)
{
    int32_t lanes = 0, readers = 0, queued = 0;
    fo_status status = FO_OK;
    for (int c = 0; status == FO_OK && c < e->period; c++) {
        sim_rank *r = &e->rank[c];
        lay_out_lane(e, r, &lanes);
        status = find_sources(e, r, latest);
        if (status == FO_OK)
            status = count_queues(e, r, known);
        if (status != FO_OK)
            break;
        list_readers(e, r, &readers);
        fill_queues(e, r, &queued);
        r->runnable = e->heap_pool + r->queue_first;
    }
    return status;
}

static fo_status lay_out_ways(sim_engine *e, table *known)
{
    int longest = fo_sim_network_longest(&e->machine->network);
    fo_sim_port *ports = malloc((size_t)longest * sizeof *ports);
    fo_status status = ports ? FO_OK : no_memory(longest);
    for (int c = 0; status == FO_OK && c < e->period; c++) {
        sim_rank *r = &e->rank[c];
        for (int32_t i = 0; status == FO_OK && i < r->queue_count; i++) {
            sim_queue *q = &e->queues[r->queue_first + i];
            status = meet(e, r, q, known);
            if (status == FO_OK && q->send)
                status = find_route(e, r, q, ports, known);
        }
    }
    free(ports);
    e->port_free_s = status == FO_OK ? calloc((size_t)e->port_count + 1, sizeof(double)) : NULL;
    return status != FO_OK || e->port_free_s ? status : no_memory(e->port_count);
}

fo_status fo_sim_engine_lay_out(sim_engine *e)
{
    int64_t tasks = 0;
    e->rank = calloc((size_t)e->period, sizeof *e->rank);
    e->touched = calloc((size_t)e->period, sizeof *e->touched);
    if (!e->rank || !e->touched)
        return no_memory(e->period);
    for (int c = 0; c < e->period; c++) {
        e->rank[c].program = e->desc->programs[c];
        e->rank[c].base = tasks;
        tasks += e->rank[c].program->task_count;
    }
    if (tasks > INT32_MAX / 2)
        return no_memory(tasks);
    size_t count = (size_t)tasks + 1;
    e->tasks = calloc(count, sizeof *e->tasks);
    e->queues = calloc(count, sizeof *e->queues);
    e->queue_pool = malloc(count * sizeof *e->queue_pool);
    e->lane_pool = malloc(count * sizeof *e->lane_pool);
    e->reader_pool = malloc(2 * count * sizeof *e->reader_pool);
    e->heap_pool = malloc(count * sizeof *e->heap_pool);
    if (!e->tasks || !e->queues || !e->queue_pool || !e->lane_pool || !e->reader_pool ||
        !e->heap_pool)
        return no_memory(tasks);
    table known = {0}, latest = {0};
    fo_status status = table_clear(&known, 64) ? FO_OK : no_memory(tasks);
    if (status == FO_OK)
        status = lay_out_ranks(e, &known, &latest);
    if (status == FO_OK)
        status = lay_out_ways(e, &known);
    table_free(&known);
    table_free(&latest);
    return status;
}

void fo_sim_engine_free(sim_engine *e)
{
    free(e->rank);
    free(e->touched);
    free(e->tasks);
    free(e->queues);
    free(e->queue_pool);
    free(e->lane_pool);
    free(e->reader_pool);
    free(e->heap_pool);
    free(e->port_pool);
    free(e->port_free_s);
    free(e->messages);
    free(e->notes);
    fo_sim_queue_free(&e->happens);
}
