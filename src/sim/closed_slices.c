/* Closed forms, slice by slice. Of a slice only the first and the last message, or tile, are looked at. That is enough:
 * what comes, the k-th at A(k), to a server that takes g for each and is free at F, leaves at
 *     E(k) = max(F + k g, A(1) + k g, A(k) + g)
 * when A is convex in k, and then E is convex again. A lane and a port are such servers, and what is there from the
 * beginning is convex. So first and last are exact where messages and tiles are equally long, whatever lies between
 * (docs/simulator.md).
 *
 * What can't be seen so is put in two ways, as little and as much as it can be: queues that share a port, and one
 * thread that sees a message only after its tile. Where the two differ by more than 1 %, nothing is said. */
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "sim/closed_state.h"

static slice *need(closed *c, int32_t index);
static double given_back(closed *c, int32_t index);

static void unsupported(closed *c, const char *what)
{
    if (c->status == FO_OK)
        c->status = fo_base_error(FO_UNSUPPORTED,
                                  "simulator: no closed form of %s; simulate it instead", what);
}

static const fo_task *task_of(const closed *c, int32_t index)
{
    return &c->r->program->tasks[index];
}

/* ---- what a task waits for ----------------------------------------------------------------------------- */

/* For all of its rows, and with each of them. */
typedef struct inputs {
    double all;
    times rows;
} inputs;

static void add_rows(closed *c, const fo_task *task, const fo_task *before, const times *done,
                     inputs *in)
{
    if (before->row != task->row || before->rows != task->rows)
        unsupported(c, "slices that are cut differently where they are read");
    in->rows.first = later(in->rows.first, done->first);
    in->rows.full = later(in->rows.full, done->full);
    in->rows.last = later(in->rows.last, done->last);
}

static inputs inputs_of(closed *c, int32_t index)
{
    const fo_task *task = task_of(c, index);
    inputs in = {c->start_s, {c->start_s, c->start_s, c->start_s}};
    for (int32_t i = 0; i < task->dep_count && c->status == FO_OK; i++) {
        fo_dep dep = c->r->program->deps[task->dep_first + i];
        const fo_task *before = task_of(c, dep.task);
        bool sent = before->kind == FO_TASK_SEND;
        if (dep.mode == FO_DEP_SPACE && c->e.machine->views)
            continue;
        if (sent && dep.mode == FO_DEP_ROWS)
            unsupported(c, "a task that follows what a receiver has finished with");
        if (sent)
            in.all = later(in.all, given_back(c, dep.task));
        else if (dep.mode == FO_DEP_ROWS)
            add_rows(c, task, before, &need(c, dep.task)->done, &in);
        else
            in.all = later(in.all, need(c, dep.task)->done.last);
    }
    in.rows.first = later(in.rows.first, in.all);
    in.rows.full = later(in.rows.full, in.rows.first);
    in.rows.last = later(in.rows.last, in.rows.full);
    return in;
}

/* ---- messages ------------------------------------------------------------------------------------------ */

static void add_burden(closed *c, double begins, double ends, double seconds, bool software)
{
    if (seconds > 0 && (software || c->e.machine->contention > 0))
        c->burdens[c->burden_count++] = (burden){begins, ends, seconds, software};
}

/* One thread sees what has come after its tile at the latest, or when it has woken up. */
static double hold_s(const closed *c)
{
    return c->most && !c->e.machine->async ? c->tile_s + c->e.machine->wake_s : 0;
}

/* The thread's work on a message comes before it is offered. */
static void offer_late(const closed *c, int32_t index, const sizes *m, times *offered)
{
    bool forwards = fo_sim_engine_task(&c->e, c->r, index)->in_source >= 0;
    double late_s = m->software_s + (forwards ? hold_s(c) : 0);
    offered->first += late_s;
    offered->full = later(offered->full + late_s, offered->first + (m->count - 2) * m->software_s);
    offered->last = later(offered->last + late_s, offered->first + (m->count - 1) * m->software_s);
}

/* A port that is free at `begins`: messages leave it one after the other. */
static times through(const sizes *m, double begins, const times *comes)
{
    times port = {.first = begins};
    port.full = later(begins + m->full_s, comes->full + m->each_s);
    port.last = port.full;
    if (m->all_s > m->full_s || m->count == 1)
        port.last = later(m->count == 1 ? begins : port.full, comes->last) + m->last_s;
    if (m->count == 1)
        port.full = port.last;
    return port;
}

static void send(closed *c, int32_t index)
{
    const sim_queue *q = &c->e.queues[fo_sim_engine_task(&c->e, c->r, index)->queue];
    slice *s = &c->slices[index];
    int32_t channel = task_of(c, index)->channel != 0, before = c->before[index];
    const sizes *m = &c->sizes[index];
    s->offered = inputs_of(c, index).rows;
    if (before >= 0) {
        double after = c->slices[before].offered.last;
        s->offered.first = later(s->offered.first, after);
        s->offered.full = later(s->offered.full, after);
        s->offered.last = later(s->offered.last, after);
    }
    if (!c->e.machine->async)
        offer_late(c, index, m, &s->offered);
    clock_of_port *port = &c->ports[c->e.port_pool[2 * q->port_first]];
    const clock_of_channel *other = &port->channels[!channel];
    double begins = later(s->offered.first, port->channels[channel].ends);
    if (other->ends > s->offered.first) {
        if (other->offered_last <= s->offered.first)
            begins = later(begins, other->ends);
        else
            c->mixed = true;
    }
    times comes = s->offered;
    if (c->most) {
        begins += s->delay_s;
        comes.full += s->delay_s;
        comes.last += s->delay_s;
    }
    s->port = through(m, begins, &comes);
    port->channels[channel] = (clock_of_channel){s->offered.last, s->port.last};
    add_burden(c, s->port.first, s->port.last, m->all_s, false);
    add_burden(c, s->offered.first, s->offered.last + m->software_s, m->software_all_s, true);
    s->known = true;
}

static void receive(closed *c, int32_t index)
{
    int32_t partner = fo_sim_engine_task(&c->e, c->r, index)->partner, before = c->before[index];
    const sim_queue *q = &c->e.queues[fo_sim_engine_task(&c->e, c->r, partner)->queue];
    const slice *from = need(c, partner);
    slice *s = &c->slices[index];
    const sizes *m = &c->sizes[partner];
    double posted =
        later(inputs_of(c, index).all, before >= 0 ? c->slices[before].offered.last : c->start_s);
    if (posted > c->start_s)
        posted += hold_s(c);
    s->offered = (times){posted, posted, posted};
    int32_t channel = task_of(c, index)->channel != 0;
    double *enters = &c->ports[c->e.port_pool[2 * (q->port_first + 1)]].enters[channel];
    /* when they began to leave */
    times comes = {from->port.first, from->port.full - m->each_s, from->port.last - m->last_s};
    comes.full = later(comes.full, posted);
    comes.last = later(comes.last, posted);
    s->port = through(m, later(later(comes.first, posted), *enters), &comes);
    *enters = s->port.last;
    double latency_s = q->route.link->latency_s;
    s->done = (times){s->port.first + (m->count > 1 ? m->each_s : m->last_s) + latency_s,
                      s->port.full + latency_s, s->port.last + latency_s};
    if (c->most && s->port.last > from->port.last) /* else it is in flight when an own message is */
        add_burden(c, s->port.first, s->port.last, m->all_s, false);
    add_burden(c, s->done.first, s->done.last + m->software_s, m->software_all_s, true);
    s->known = true;
}

/* When the receiver has finished with a SEND; what reads it there is what reads the received rows here. */
static double given_back(closed *c, int32_t index)
{
    int32_t partner = fo_sim_engine_task(&c->e, c->r, index)->partner;
    const sim_task *recv = fo_sim_engine_task(&c->e, c->r, partner);
    slice *s = &c->slices[index];
    if (s->done.last > 0)
        return s->done.last;
    double when = need(c, partner)->done.last;
    for (int32_t i = 0; c->e.machine->views && i < recv->reader_count; i++) {
        int32_t reader = c->e.reader_pool[recv->reader_first + i];
        bool sends = task_of(c, reader)->kind == FO_TASK_SEND;
        when = later(when, sends ? given_back(c, reader) : need(c, reader)->done.last);
    }
    if (c->ended && c->most && !c->e.machine->async)
        when += c->e.machine->wake_s; /* everybody sleeps, one wakes the other */
    return s->done.last = when;
}

static slice *need(closed *c, int32_t index)
{
    slice *s = &c->slices[index];
    if (s->known || c->status != FO_OK)
        return s;
    switch (task_of(c, index)->kind) {
    case FO_TASK_SEND: send(c, index); break;
    case FO_TASK_RECV: receive(c, index); break;
    default: unsupported(c, "a program whose order depends on its messages"); break;
    }
    return s;
}

/* ---- computing ----------------------------------------------------------------------------------------- */

static double finish(const closed *c, double at, double seconds)
{
    double more = c->e.machine->contention;
    return c->losses.count ? fo_sim_closed_finish(&c->losses, at, more / (1 + more), seconds)
                           : at + seconds;
}

/* When a message has come, of which `part` of the full ones have come: 0: the first, 1: the last full one, above: the
 * last of all. */
static double message_at(const times *rows, double part)
{
    return part > 1 ? rows->last : rows->first + (rows->full - rows->first) * part;
}

static void compute(closed *c, int32_t index)
{
    const lane_work *w = &c->works[index];
    const fo_sim_machine *m = c->e.machine;
    slice *s = &c->slices[index];
    inputs in = inputs_of(c, index);
    double free_s = c->lane_s;
    double first = message_at(&in.rows, w->first_at), full = message_at(&in.rows, w->full_at);
    double begins = later(free_s, first);
    double notice_s = m->wake_s; /* after a wait */
    if (first > free_s)
        begins = first + notice_s;
    s->done.full = finish(c, begins, w->full);
    if (full > free_s)
        s->done.full = later(s->done.full, finish(c, full + notice_s, w->last_full));
    s->done.last = s->done.full;
    if (w->has_left) {
        double from =
            later(s->done.full, in.rows.last > s->done.full ? in.rows.last + notice_s : 0);
        s->done.last = finish(c, from, w->left);
    }
    s->done.first = finish(c, begins, w->first);
    if (s->done.first > s->done.full)
        s->done.first = s->done.full;
    if (w->unit_is_larger) /* what is sent goes by messages */
        s->done.full = s->done.last;
    c->wait_s += begins - free_s + later(0, s->done.last - finish(c, begins, w->full + w->left));
    c->lane_s = s->done.last;
    s->known = true;
}

static double drained(closed *c)
{
    double free_s = c->lane_s, when = free_s;
    c->ended = true;
    /* from the last: what a rank forwards is given back to it first */
    for (int32_t t = c->r->program->task_count - 1; t >= 0 && c->status == FO_OK; t--) {
        fo_task_kind kind = task_of(c, t)->kind;
        if (kind == FO_TASK_RECV)
            when = later(when, need(c, t)->done.last);
        else if (kind == FO_TASK_SEND)
            when = later(when, c->e.queues[fo_sim_engine_task(&c->e, c->r, t)->queue].deferred
                                   ? c->slices[t].offered.last
                                   : given_back(c, t));
    }
    if (when > free_s && c->e.machine->async)
        when += c->e.machine->wake_s;
    c->wait_s += when - free_s;
    return when;
}

/* ---- once through ------------------------------------------------------------------------------------- */

static void pass(closed *c)
{
    const fo_program *p = c->r->program;
    for (int32_t t = 0; t < p->task_count; t++) {
        slice *s = &c->slices[t];
        double delay_s = s->delay_s;
        *s = (slice){.delay_s = delay_s};
    }
    for (int32_t i = 0; i < c->e.port_count; i++)
        c->ports[i] = (clock_of_port){0};
    c->ended = false;
    c->burden_count = 0;
    c->wait_s = 0;
    c->lane_s = finish(c, c->start_s, c->prepare_s);
    for (int32_t t = 0; t < p->task_count && c->status == FO_OK; t++) {
        if (!fo_sim_engine_is_message(&p->tasks[t])) {
            compute(c, t);
            continue;
        }
        int32_t partner = fo_sim_engine_task(&c->e, c->r, t)->partner;
        bool sends = p->tasks[t].kind == FO_TASK_SEND;
        if (sends)
            need(c, t);
        if (partner < t) /* both were listed: ports serve in this order */
            need(c, sends ? partner : t);
    }
    c->total_s = drained(c);
}

/* What another slice has on the port while this one is there: as much again, since it need not be even. */
static double delay_by(const slice *mine, const slice *other, const sizes *m)
{
    double begins = later(mine->offered.first, other->offered.first);
    double ends = mine->port.last < other->port.last ? mine->port.last : other->port.last;
    double all = other->port.last - other->offered.first;
    if (ends <= begins)
        return 0;
    return fmin(m->all_s, m->each_s + 2 * m->all_s * (ends - begins) / all);
}

/* By how much what else is on its port at the same time can delay each slice. */
static void find_delays(closed *c)
{
    const fo_program *p = c->r->program;
    for (int32_t t = 0; t < p->task_count; t++) {
        if (p->tasks[t].kind != FO_TASK_SEND)
            continue;
        slice *s = &c->slices[t];
        int32_t port =
            c->e.port_pool[2 * c->e.queues[fo_sim_engine_task(&c->e, c->r, t)->queue].port_first];
        double delay_s = 0;
        for (int32_t u = 0; u < p->task_count; u++) {
            if (p->tasks[u].kind != FO_TASK_SEND || p->tasks[u].channel == p->tasks[t].channel)
                continue;
            const slice *o = &c->slices[u];
            const sim_queue *q = &c->e.queues[fo_sim_engine_task(&c->e, c->r, u)->queue];
            if (c->e.port_pool[2 * q->port_first] == port)
                delay_s += delay_by(s, o, &c->sizes[u]);
        }
        s->delay_s = fmax(s->delay_s, delay_s);
    }
}

/* Losses and delays follow from when slices are sent, and that from them. */
static void settle(closed *c)
{
    double before = -1;
    for (int i = 0; i < CLOSED_PASSES && c->status == FO_OK; i++) {
        pass(c);
        if (fabs(c->total_s - before) <= 1e-3 * c->total_s)
            return;
        before = c->total_s;
        if (c->burden_count &&
            !fo_sim_closed_losses(&c->losses, c->burdens, c->burden_count, c->parallel))
            c->status = fo_base_error(FO_NO_MEMORY, "simulator: no memory for %d messages",
                                      (int)c->burden_count);
        if (c->most && c->mixed && c->r->program->task_count > CLOSED_TASKS)
            unsupported(c, "a long program whose messages get in each other's way");
        else if (c->most && c->mixed)
            find_delays(c);
        else if (!c->burden_count)
            return;
    }
}

/* ---- made once ----------------------------------------------------------------------------------------- */

static double tile_s(const closed *c, int32_t index, int64_t row, int64_t rows)
{
    const fo_sim_engine_desc *d = c->e.desc;
    double speed = d->speed ? d->speed[0] : 1;
    return rows > 0 ? d->tile_s(d->context, 0, task_of(c, index), row, rows) / speed : 0;
}

static double part_of(const closed *c, int32_t index, int64_t begin, int64_t rows, int64_t tile)
{
    return tile_s(c, index, task_of(c, index)->row + begin, rows) +
           c->e.machine->task_s * (double)((rows + tile - 1) / tile);
}

/* Which message brings row number `row` (from 1 on): message_at. */
static double place_of_message(int64_t row, int64_t rows, int64_t message)
{
    int64_t number = (row + message - 1) / message, full = rows / message;
    if (number > full)
        return 2;
    return full > 1 ? (double)(number - 1) / (double)(full - 1) : 0;
}

/* Rows are finished by messages, or by tiles where those are larger. */
static void measure_work(closed *c, int32_t index)
{
    const fo_task *task = task_of(c, index);
    lane_work *w = &c->works[index];
    int64_t message = c->e.stream_rows, rows = task->rows;
    int64_t tile = task->kind == FO_TASK_COMPUTE ? c->e.desc->tile_rows[task->slot != 0] : message;
    int64_t unit = tile > message ? tile : message;
    if (unit > rows)
        unit = rows;
    int64_t left = rows % unit, full = rows - left;
    w->unit_is_larger = unit > message;
    w->has_left = left > 0;
    w->first = part_of(c, index, 0, unit, tile);
    w->full = full > unit ? part_of(c, index, 0, full, tile) : w->first;
    w->last_full = full > unit ? part_of(c, index, full - unit, unit, tile) : w->first;
    w->left = left ? part_of(c, index, full, left, tile) : 0;
    w->first_at = place_of_message(unit, rows, message);
    w->full_at = place_of_message(full, rows, message);
    c->tile_s = later(c->tile_s, w->first * (tile < unit ? (double)tile / (double)unit : 1));
}

static void measure_messages(closed *c, int32_t index)
{
    const sim_queue *q = &c->e.queues[fo_sim_engine_task(&c->e, c->r, index)->queue];
    int32_t count = fo_sim_engine_task(&c->e, c->r, index)->chunks;
    double each = fo_sim_engine_message_bytes(&c->e, c->r, index, 0);
    double last = fo_sim_engine_message_bytes(&c->e, c->r, index, count - 1);
    sizes *m = &c->sizes[index];
    m->count = count;
    m->each_s = fo_sim_network_transfer_s(q->route.link, each);
    m->last_s = last == each ? m->each_s : fo_sim_network_transfer_s(q->route.link, last);
    m->all_s = (count - 1) * m->each_s + m->last_s;
    m->full_s = last == each ? m->all_s : (count - 1) * m->each_s;
    m->software_s = c->e.machine->message_s + c->e.machine->cpu_s_per_byte * each;
    m->software_all_s = count * c->e.machine->message_s +
                        c->e.machine->cpu_s_per_byte * ((count - 1) * each + last);
    c->r->sums.sent_bytes += (count - 1) * each + last;
    c->r->sums.messages += count;
    c->software_s += 2 * m->software_all_s;
}

static fo_status measure(closed *c)
{
    const fo_program *p = c->r->program;
    const fo_sim_engine_desc *d = c->e.desc;
    int32_t first_port = -1;
    c->start_s = d->start_s ? d->start_s[0] : 0;
    c->prepare_s = d->prepare_s ? d->prepare_s[0] / (d->speed ? d->speed[0] : 1) : 0;
    for (int32_t q = 0; q < c->e.queue_count; q++) {
        const sim_queue *queue = &c->e.queues[q];
        if (queue->send && queue->route.ports != 2)
            unsupported(c, "messages over several links");
        int32_t port = queue->send ? c->e.port_pool[2 * queue->port_first] : first_port;
        c->parallel |= first_port >= 0 && port != first_port;
        first_port = port;
        for (int32_t i = 0; i < queue->count; i++)
            c->before[c->e.queue_pool[queue->first + i]] =
                i ? c->e.queue_pool[queue->first + i - 1] : -1;
    }
    for (int32_t t = 0; t < p->task_count; t++) {
        if (p->tasks[t].kind == FO_TASK_SEND)
            measure_messages(c, t);
        else if (p->tasks[t].kind != FO_TASK_RECV)
            measure_work(c, t);
        c->adds |= p->tasks[t].kind == FO_TASK_ADD;
    }
    return c->status;
}

static fo_status allocate(closed *c)
{
    size_t tasks = (size_t)c->r->program->task_count + 1;
    c->slices = calloc(tasks, sizeof *c->slices);
    c->sizes = calloc(tasks, sizeof *c->sizes);
    c->works = calloc(tasks, sizeof *c->works);
    c->before = calloc(tasks, sizeof *c->before);
    c->burdens = calloc(2 * tasks, sizeof *c->burdens);
    c->ports = calloc((size_t)c->e.port_count + 1, sizeof *c->ports);
    if (c->slices && c->sizes && c->works && c->before && c->burdens && c->ports)
        return FO_OK;
    return fo_base_error(FO_NO_MEMORY, "simulator: no memory for %zu tasks", tasks);
}

/* What slows computing for a while is taken as spread evenly, which it is only in the long run. */
static bool few_messages(const closed *c)
{
    return c->e.ranks > 1 && c->r->sums.messages <= 4 * (int64_t)(c->e.ranks - 1);
}

/* Where more than 1 % may be wrong: found by comparing with the engine. `least`: without anything unseen. */
static void doubt(closed *c, double least_s)
{
    const fo_sim_machine *m = c->e.machine;
    bool slowed = m->contention > 0, one_thread = !m->async;
    double apart = c->mixed ? CLOSED_APART_MIXED : one_thread ? CLOSED_APART_HELD : CLOSED_APART;
    if (slowed && (c->mixed || one_thread))
        apart = CLOSED_APART_SLOWED;
    if (c->total_s - c->start_s > apart * least_s)
        unsupported(c, "a program whose messages get in each other's way");
    if (few_messages(c) && (slowed || one_thread || m->wake_s > 0))
        unsupported(c, "shards of few messages that slow computing or are waited for");
    if (slowed && !m->views && (c->mixed || one_thread))
        unsupported(c, "a program that is slowed by messages which wait for space");
    if (c->mixed && c->adds)
        unsupported(c, "a program that adds what shares its ports with shards");
    if (c->software_s > CLOSED_SOFTWARE * least_s)
        unsupported(c, "a program of which the software of its messages is a large part");
}

/* As little and as much as it can take. */
static fo_status bracket(closed *c, fo_sim_run *run)
{
    settle(c);
    double least = c->total_s, waits = c->wait_s;
    c->most = true;
    if (c->status == FO_OK && (c->mixed || !c->e.machine->async || c->e.machine->contention > 0))
        settle(c);
    if (c->status == FO_OK)
        doubt(c, least - c->start_s);
    if (c->status != FO_OK)
        return c->status;
    fo_sim_rank *sums = &c->r->sums;
    sums->end_s = (least + c->total_s) / 2;
    sums->exposed_s = waits;
    sums->compute_s = sums->end_s - c->start_s - waits;
    *run = (fo_sim_run){.total_s = sums->end_s, .worst = *sums, .max_exposed_s = sums->exposed_s};
    return FO_OK;
}

fo_status fo_sim_closed_run(const fo_sim_engine_desc *desc, fo_sim_run *run, fo_sim_rank *per_rank)
{
    if (desc->period != 1)
        return fo_base_error(FO_UNSUPPORTED,
                             "simulator: no closed form of ranks that differ (a period of %d); "
                             "simulate them instead",
                             desc->period);
    closed c = {.e = {.desc = desc,
                      .machine = desc->machine,
                      .ranks = desc->ranks,
                      .period = 1,
                      .message_spare = -1,
                      .note_spare = -1}};
    fo_status status = fo_sim_engine_check(desc);
    if (status == FO_OK) {
        c.e.stream_rows = desc->programs[0]->stream_rows;
        status = fo_sim_engine_lay_out(&c.e);
    }
    c.r = c.e.rank;
    if (status == FO_OK)
        status = allocate(&c);
    if (status == FO_OK)
        status = measure(&c);
    if (status == FO_OK)
        status = bracket(&c, run);
    if (status == FO_OK && per_rank)
        per_rank[0] = run->worst;
    free(c.slices);
    free(c.sizes);
    free(c.works);
    free(c.before);
    free(c.burdens);
    free(c.ports);
    free(c.losses.of);
    fo_sim_engine_free(&c.e);
    return status;
}
