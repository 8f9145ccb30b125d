/* A second simulator, to compare the engine with: slow, and written the other way round. There are no events. All
 * times begin unknown (for ever); then, again and again, every rank is walked through once on the times at which the
 * others' messages came last time, and every port is sorted anew, until nothing changes any more. */
#ifndef TESTS_SIM_REFERENCE_H
#define TESTS_SIM_REFERENCE_H

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "sim/engine.h"

enum { REF_RANKS = 12, REF_CHUNKS = 40, REF_HOPS = 8, REF_ROUNDS = 20000 };

typedef struct ref_task {
    int count;               /* messages, or tiles */
    int64_t part;            /* rows of one */
    double done[REF_CHUNKS]; /* may be used at this rank; SEND: given back, and seen */
    double offered[REF_CHUNKS];
    double posted;
    /* from outside */
    double comes[REF_CHUNKS];    /* RECV: delivered; SEND: given back */
    double released[REF_CHUNKS]; /* RECV */
    int partner, source[2];      /* source: RECV that is read by `in`, `add` */
    bool deferred;
} ref_task;

typedef struct ref_message {
    int from, to, send, recv, chunk, hops; /* hops: ports */
    int port[REF_HOPS];
    bool link_over[REF_HOPS]; /* latency between this port and the next */
    double at[REF_HOPS], begins[REF_HOPS];
    double transfer_s, latency_s;
} ref_message;

typedef struct ref {
    const fo_sim_engine_desc *d;
    int ranks;
    ref_task *tasks[REF_RANKS];
    ref_message *messages;
    int message_count;
    fo_sim_rank sums[REF_RANKS];
} ref;

static inline double ref_whole(double s)
{
    return s < 8 ? floor(s * 0x1p50 + 0.5) * 0x1p-50 : s;
}

static inline bool ref_is_message(const fo_task *t)
{
    return t->kind == FO_TASK_SEND || t->kind == FO_TASK_RECV;
}

static inline const fo_task *ref_program_task(const ref *f, int r, int t)
{
    return &f->d->programs[r]->tasks[t];
}

/* Rows of the first `count` parts. */
static inline int64_t ref_rows(const ref *f, int r, int t, int count)
{
    int64_t rows = count * f->tasks[r][t].part, all = ref_program_task(f, r, t)->rows;
    return rows < all ? rows : all;
}

/* When the first `rows` rows of a task are finished. */
static inline double ref_ready(const ref *f, int r, int t, int64_t rows)
{
    double when = -INFINITY;
    for (int i = 0; i < f->tasks[r][t].count && ref_rows(f, r, t, i) < rows; i++)
        when = fmax(when, f->tasks[r][t].done[i]);
    return when;
}

/* When rows up to `end` of a task may be worked on. */
static inline double ref_allowed(const ref *f, int r, int t, int64_t end)
{
    const fo_program *p = f->d->programs[r];
    const fo_task *task = &p->tasks[t];
    double when = -INFINITY;
    for (int i = 0; i < task->dep_count; i++) {
        fo_dep dep = p->deps[task->dep_first + i];
        const fo_task *before = &p->tasks[dep.task];
        int64_t rows = before->rows;
        if (dep.mode == FO_DEP_SPACE && f->d->machine->views)
            continue;
        if (dep.mode == FO_DEP_ROWS && end - before->row < rows)
            rows = end - before->row;
        when = fmax(when, ref_ready(f, r, dep.task, rows));
    }
    return when;
}

/* ---- who meets whom, and where ------------------------------------------------------------------------ */

static inline int ref_port(const fo_sim_network *n, int kind, int owner, int which)
{
    (void)n;
    return (kind * 1024 + owner) * 1024 + which;
}

static inline void ref_add_port(ref_message *m, int port, bool link_over)
{
    m->port[m->hops] = port;
    m->link_over[m->hops++] = link_over;
}

static inline void ref_walk_torus(const fo_sim_network *n, int base, ref_message *m)
{
    int at[3], to[3], size[3], a = m->from - base, b = m->to - base, last = 0;
    for (int d = 0; d < 3; d++) {
        size[d] = n->torus[d] > 1 ? n->torus[d] : 1;
        at[d] = a % size[d];
        to[d] = b % size[d];
        a /= size[d];
        b /= size[d];
    }
    for (int d = 0; d < 3; d++)
        while (at[d] != to[d]) {
            int up = (to[d] - at[d] + size[d]) % size[d];
            int sign = 2 * up <= size[d] ? 1 : -1;
            int node = base + at[0] + size[0] * (at[1] + size[1] * at[2]);
            last = ref_port(n, 5, node, 2 * d + (sign < 0));
            ref_add_port(m, last, true);
            at[d] = (at[d] + sign + size[d]) % size[d];
        }
    m->link_over[m->hops - 1] = false;
    ref_add_port(m, last + (1 << 28), false);
}

static inline void ref_route(const ref *f, ref_message *m)
{
    const fo_sim_network *n = &f->d->machine->network;
    const fo_sim_link *link = &n->link;
    int locals = n->locals && n->locals < f->ranks ? n->locals : f->ranks;
    int a = m->from / locals, b = m->to / locals;
    if (a != b) {
        link = &n->outer;
        int p = n->outer_ports;
        ref_add_port(m,
                     p ? ref_port(n, 1, a, m->from % locals * p / locals)
                       : ref_port(n, 2, m->from, 0),
                     false);
        ref_add_port(m,
                     p ? ref_port(n, 3, b, m->to % locals * p / locals) : ref_port(n, 4, m->to, 0),
                     false);
    } else if (n->topology == FO_SIM_SWITCH) {
        ref_add_port(m, ref_port(n, 6, m->from, 0), false);
        ref_add_port(m, ref_port(n, 7, m->to, 0), false);
    } else if (n->topology == FO_SIM_MESH) {
        ref_add_port(m, ref_port(n, 8, m->from, m->to), false);
        ref_add_port(m, ref_port(n, 9, m->from, m->to), false);
    } else {
        ref_walk_torus(n, a * locals, m);
    }
    const fo_program *p = f->d->programs[m->from];
    const fo_task *task = &p->tasks[m->send];
    int64_t rows =
        ref_rows(f, m->from, m->send, m->chunk + 1) - ref_rows(f, m->from, m->send, m->chunk);
    double bytes = (double)(rows * f->d->row_bytes[p->buffers[task->in.buffer].role]);
    double rate = link->bytes_per_s * fo_sim_curve_at(&link->efficiency, bytes);
    m->transfer_s = rate > 0 ? ref_whole(bytes / rate) : 0;
    m->latency_s = ref_whole(link->latency_s);
}

/* The RECV that a task reads through `place`. */
static inline int ref_source(const ref *f, int r, int t, fo_ref place)
{
    const fo_task *task = ref_program_task(f, r, t);
    for (int i = t - 1; place.buffer >= 0 && i >= 0; i--) {
        const fo_task *recv = ref_program_task(f, r, i);
        if (recv->kind == FO_TASK_RECV && recv->out.buffer == place.buffer &&
            recv->out.row - recv->row == place.row - task->row && recv->row <= task->row &&
            recv->row + recv->rows >= task->row + task->rows)
            return i;
    }
    return -1;
}

static inline int ref_partner(const ref *f, int r, int t)
{
    const fo_task *a = ref_program_task(f, r, t);
    int place = 0;
    for (int i = 0; i < t; i++) {
        const fo_task *b = ref_program_task(f, r, i);
        place += b->kind == a->kind && b->peer == a->peer && b->channel == a->channel;
    }
    const fo_program *p = f->d->programs[a->peer];
    for (int i = 0; i < p->task_count; i++) {
        const fo_task *b = &p->tasks[i];
        if (ref_is_message(b) && b->kind != a->kind && b->peer == r && b->channel == a->channel &&
            place-- == 0)
            return i;
    }
    return -1;
}

static inline void ref_make(ref *f, const fo_sim_engine_desc *d)
{
    *f = (ref){.d = d, .ranks = d->ranks};
    int count = 0;
    for (int r = 0; r < d->ranks; r++) {
        const fo_program *p = d->programs[r];
        f->tasks[r] = calloc((size_t)p->task_count + 1, sizeof *f->tasks[r]);
        for (int t = 0; t < p->task_count; t++) {
            const fo_task *task = &p->tasks[t];
            ref_task *s = &f->tasks[r][t];
            s->part = task->kind == FO_TASK_COMPUTE ? d->tile_rows[task->slot] : p->stream_rows;
            s->count = (int)((task->rows + s->part - 1) / s->part);
            s->deferred = task->kind == FO_TASK_SEND && d->machine->views &&
                          p->buffers[task->in.buffer].role == FO_BUFFER_PARTIAL;
            s->posted = INFINITY;
            for (int i = 0; i < REF_CHUNKS; i++)
                s->done[i] = s->offered[i] = s->comes[i] = s->released[i] = INFINITY;
            s->partner = ref_is_message(task) ? ref_partner(f, r, t) : -1;
            s->source[0] = ref_source(f, r, t, task->in);
            s->source[1] = ref_source(f, r, t, task->add);
            count += task->kind == FO_TASK_SEND ? s->count : 0;
        }
    }
    f->messages = calloc((size_t)count + 1, sizeof *f->messages);
    for (int r = 0; r < d->ranks; r++)
        for (int t = 0; t < d->programs[r]->task_count; t++)
            for (int c = 0;
                 ref_program_task(f, r, t)->kind == FO_TASK_SEND && c < f->tasks[r][t].count; c++) {
                ref_message *m = &f->messages[f->message_count++];
                *m = (ref_message){.from = r,
                                   .to = ref_program_task(f, r, t)->peer,
                                   .send = t,
                                   .recv = f->tasks[r][t].partner,
                                   .chunk = c};
                ref_route(f, m);
            }
}

static inline void ref_free(ref *f)
{
    for (int r = 0; r < f->ranks; r++)
        free(f->tasks[r]);
    free(f->messages);
}

/* ---- ports: sorted by who comes first ------------------------------------------------------------------ */

typedef struct ref_entry {
    int port;
    double at;
    int task, chunk, message, hop;
} ref_entry;

static inline int ref_compare(const void *left, const void *right)
{
    const ref_entry *a = left, *b = right;
    if (a->port != b->port)
        return a->port < b->port ? -1 : 1;
    if (a->at != b->at)
        return a->at < b->at ? -1 : 1;
    return a->task != b->task ? a->task - b->task : a->chunk - b->chunk;
}

/* Every port serves what comes to it in order. */
static inline void ref_serve(ref *f, ref_entry *entries)
{
    int count = 0;
    double free_s = 0;
    for (int i = 0; i < f->message_count; i++)
        for (int h = 0; h < f->messages[i].hops; h++) {
            ref_message *m = &f->messages[i];
            bool last = h == m->hops - 1;
            m->begins[h] = INFINITY;
            if (isfinite(m->at[h]))
                entries[count++] =
                    (ref_entry){m->port[h], m->at[h], last ? m->recv : m->send, m->chunk, i, h};
        }
    qsort(entries, (size_t)count, sizeof *entries, ref_compare);
    for (int i = 0; i < count; i++) {
        ref_message *m = &f->messages[entries[i].message];
        if (i == 0 || entries[i].port != entries[i - 1].port)
            free_s = 0;
        double begins = fmax(entries[i].at, free_s);
        free_s = begins + m->transfer_s;
        m->begins[entries[i].hop] = begins;
    }
}

static inline void ref_move_messages(ref *f)
{
    ref_entry *entries = malloc((size_t)(f->message_count * REF_HOPS + 1) * sizeof *entries);
    for (int i = 0; i < f->message_count; i++) {
        ref_message *m = &f->messages[i];
        const ref_task *send = &f->tasks[m->from][m->send];
        ref_task *recv = &f->tasks[m->to][m->recv];
        for (int h = 0; h < m->hops; h++) {
            m->at[h] = h ? m->begins[h - 1] + (m->link_over[h - 1] ? m->latency_s : 0)
                         : send->offered[m->chunk];
            if (h == m->hops - 1)
                m->at[h] = fmax(m->at[h], recv->posted);
        }
    }
    ref_serve(f, entries);
    for (int i = 0; i < f->message_count; i++) {
        const ref_message *m = &f->messages[i];
        double delivered = m->begins[m->hops - 1] + m->transfer_s + m->latency_s;
        ref_task *send = &f->tasks[m->from][m->send], *recv = &f->tasks[m->to][m->recv];
        recv->comes[m->chunk] = delivered;
        send->comes[m->chunk] = f->d->machine->views ? recv->released[m->chunk] : delivered;
    }
    free(entries);
}

/* ---- one rank, on what comes from outside --------------------------------------------------------------- */

static inline void ref_release(ref *f, int r)
{
    const fo_program *p = f->d->programs[r];
    for (int t = 0; t < p->task_count; t++) {
        ref_task *recv = &f->tasks[r][t];
        for (int c = 0; p->tasks[t].kind == FO_TASK_RECV && c < recv->count; c++) {
            double when = c ? fmax(recv->released[c - 1], recv->done[c]) : recv->done[c];
            int64_t begin = p->tasks[t].row + ref_rows(f, r, t, c);
            int64_t end = p->tasks[t].row + ref_rows(f, r, t, c + 1);
            for (int u = t + 1; u < p->task_count; u++) {
                const fo_task *reader = &p->tasks[u];
                int64_t last = reader->row + reader->rows;
                const int *source = f->tasks[r][u].source;
                if ((source[0] == t || source[1] == t) && begin < last && end > reader->row)
                    when = fmax(when, ref_ready(f, r, u, (end < last ? end : last) - reader->row));
            }
            recv->released[c] = when;
        }
    }
}

/* Work of `seconds` from `t` on, slower while a message of this rank is in flight. */
static inline double ref_work(const ref *f, int r, double t, double seconds)
{
    double factor = 1 + f->d->machine->contention;
    while (factor > 1) {
        double until = INFINITY;
        bool flies = false;
        for (int i = 0; i < f->message_count; i++)
            for (int end = 0; end < 2; end++) {
                const ref_message *m = &f->messages[i];
                double from = m->begins[end ? m->hops - 1 : 0], to = from + m->transfer_s;
                if ((end ? m->to : m->from) != r || m->transfer_s <= 0 || !isfinite(from))
                    continue;
                flies |= from <= t && t < to;
                if (from > t)
                    until = fmin(until, from);
                if (to > t)
                    until = fmin(until, to);
            }
        double rate = flies ? factor : 1;
        if (ref_whole(t + seconds * rate) <= until)
            return ref_whole(t + seconds * rate);
        seconds -= (until - t) / rate;
        t = until;
    }
    return t + seconds;
}

static inline double ref_software(const ref *f, int r, int t, int chunk)
{
    const fo_program *p = f->d->programs[r];
    const fo_task *task = &p->tasks[t];
    fo_ref place = task->kind == FO_TASK_SEND ? task->in : task->out;
    int64_t rows = ref_rows(f, r, t, chunk + 1) - ref_rows(f, r, t, chunk);
    double bytes = (double)(rows * f->d->row_bytes[p->buffers[place.buffer].role]);
    return ref_whole(f->d->machine->message_s + f->d->machine->cpu_s_per_byte * bytes);
}

static inline double ref_tile(ref *f, int r, int t, int tile, double at)
{
    const fo_sim_engine_desc *d = f->d;
    const fo_task *task = ref_program_task(f, r, t);
    int64_t row = ref_rows(f, r, t, tile), rows = ref_rows(f, r, t, tile + 1) - row;
    double speed = d->speed ? d->speed[r] : 1;
    double cost = ref_whole(d->tile_s(d->context, r, task, task->row + row, rows) / speed);
    double ends = ref_work(f, r, at, ref_whole(d->machine->task_s) + cost);
    f->tasks[r][t].done[tile] = ends;
    f->sums[r].compute_s += ends - at;
    return ends;
}

/* When all of a rank's messages are done, as far as it waits for them. */
static inline double ref_all_done(const ref *f, int r)
{
    const fo_program *p = f->d->programs[r];
    double when = 0;
    for (int t = 0; t < p->task_count; t++)
        for (int c = 0; ref_is_message(&p->tasks[t]) && c < f->tasks[r][t].count; c++) {
            const ref_task *s = &f->tasks[r][t];
            when = fmax(when, p->tasks[t].kind == FO_TASK_RECV ? s->released[c]
                              : s->deferred                    ? s->offered[c]
                                                               : s->done[c]);
        }
    return when;
}

static inline double ref_prepare(ref *f, int r, double t)
{
    const fo_sim_engine_desc *d = f->d;
    double prepare = d->prepare_s ? d->prepare_s[r] : 0, speed = d->speed ? d->speed[r] : 1;
    double end = ref_work(f, r, t, ref_whole(prepare / speed));
    f->sums[r].compute_s += end - t;
    return end;
}

/* ---- messages move by themselves ------------------------------------------------------------------------ */

/* Software of messages after `from` and up to `to`; *next: the first after `to`. */
static inline double ref_debt(const ref *f, int r, double from, double to, double *next)
{
    const fo_program *p = f->d->programs[r];
    double debt = 0;
    *next = INFINITY;
    for (int t = 0; t < p->task_count; t++)
        for (int c = 0; ref_is_message(&p->tasks[t]) && c < f->tasks[r][t].count; c++) {
            const ref_task *s = &f->tasks[r][t];
            double at = p->tasks[t].kind == FO_TASK_SEND ? s->offered[c] : s->comes[c];
            double cost = ref_software(f, r, t, c);
            if (at > from && at <= to)
                debt += cost;
            if (at > to && cost > 0)
                *next = fmin(*next, at);
        }
    return debt;
}

/* The lane becomes free at *t; it goes on with what is allowed at `allowed`. Returns false: never. */
static inline bool ref_lane_async(ref *f, int r, double *t, double *paid, double allowed)
{
    for (;;) {
        double next, debt = ref_debt(f, r, *paid, *t, &next);
        *paid = *t;
        *t = ref_work(f, r, *t, debt);
        f->sums[r].compute_s += *t - *paid;
        if (debt > 0)
            continue;
        if (allowed <= *t)
            return true;
        double then = fmin(allowed, next);
        if (!isfinite(then))
            return false;
        then += ref_whole(f->d->machine->wake_s);
        f->sums[r].exposed_s += then - *t;
        *t = then;
    }
}

static inline void ref_walk_async(ref *f, int r)
{
    const fo_program *p = f->d->programs[r];
    double start = f->d->start_s ? ref_whole(f->d->start_s[r]) : 0, t = start, paid = -1;
    for (int i = 0; i < p->task_count; i++)
        if (ref_is_message(&p->tasks[i])) {
            ref_task *s = &f->tasks[r][i];
            double after = start; /* what is before it in its queue */
            for (int j = 0; j < i; j++)
                if (p->tasks[j].kind == p->tasks[i].kind && p->tasks[j].peer == p->tasks[i].peer &&
                    p->tasks[j].channel == p->tasks[i].channel)
                    after = p->tasks[i].kind == FO_TASK_RECV
                                ? f->tasks[r][j].posted
                                : f->tasks[r][j].offered[f->tasks[r][j].count - 1];
            s->posted = fmax(after, ref_allowed(f, r, i, p->tasks[i].row + p->tasks[i].rows));
            for (int c = 0; c < s->count; c++) {
                int64_t end = p->tasks[i].row + ref_rows(f, r, i, c + 1);
                after = s->offered[c] = fmax(after, ref_allowed(f, r, i, end));
                s->done[c] = s->comes[c];
            }
        }
    f->sums[r] = (fo_sim_rank){.end_s = INFINITY};
    if (ref_lane_async(f, r, &t, &paid, 0))
        t = ref_prepare(f, r, t);
    for (int i = 0; i < p->task_count; i++)
        for (int k = 0; !ref_is_message(&p->tasks[i]) && k < f->tasks[r][i].count; k++) {
            double allowed = ref_allowed(f, r, i, p->tasks[i].row + ref_rows(f, r, i, k + 1));
            if (isfinite(t) && !ref_lane_async(f, r, &t, &paid, allowed))
                t = INFINITY;
            if (isfinite(t))
                t = ref_tile(f, r, i, k, t);
            else
                f->tasks[r][i].done[k] = INFINITY;
        }
    ref_release(f, r);
    if (isfinite(t) && ref_lane_async(f, r, &t, &paid, ref_all_done(f, r)))
        f->sums[r].end_s = t;
}

/* ---- one thread does it all ----------------------------------------------------------------------------- */

/* The next thing that has come by `t` and was not seen, -1: none; *next: when one comes after it. */
static inline int ref_unseen(const ref *f, int r, double t, int *chunk, double *next)
{
    const fo_program *p = f->d->programs[r];
    int best = -1;
    double best_at = INFINITY;
    *next = INFINITY;
    for (int kind = 0; kind < 2; kind++)
        for (int i = 0; i < p->task_count; i++)
            for (int c = 0; c < f->tasks[r][i].count; c++) {
                if (p->tasks[i].kind != (kind ? FO_TASK_SEND : FO_TASK_RECV) ||
                    isfinite(f->tasks[r][i].done[c]) ||
                    (kind == 0 && !isfinite(f->tasks[r][i].posted)))
                    continue;
                double at = f->tasks[r][i].comes[c];
                if (at > t)
                    *next = fmin(*next, at);
                if (at <= t && at < best_at) {
                    best = i;
                    *chunk = c;
                    best_at = at;
                }
            }
    return best;
}

/* The first queue head, in list order, that can be posted at `t`, -1: none. */
static inline int ref_postable(const ref *f, int r, double t)
{
    const fo_program *p = f->d->programs[r];
    for (int i = 0; i < p->task_count; i++) {
        const fo_task *task = &p->tasks[i];
        const ref_task *s = &f->tasks[r][i];
        bool send = task->kind == FO_TASK_SEND;
        if (!ref_is_message(task) || isfinite(send ? s->offered[s->count - 1] : s->posted))
            continue;
        bool head = true;
        for (int j = 0; j < i && head; j++)
            head = p->tasks[j].kind != task->kind || p->tasks[j].peer != task->peer ||
                   p->tasks[j].channel != task->channel ||
                   isfinite(send ? f->tasks[r][j].offered[f->tasks[r][j].count - 1]
                                 : f->tasks[r][j].posted);
        int c = 0;
        while (send && isfinite(s->offered[c]))
            c++;
        int64_t end = send ? task->row + ref_rows(f, r, i, c + 1) : task->row + task->rows;
        if (head && ref_allowed(f, r, i, end) <= t)
            return i;
    }
    return -1;
}

/* Sees and offers what there is from *t on; returns when something comes next. */
static inline double ref_handle(ref *f, int r, double *t)
{
    for (;;) {
        int chunk = 0;
        double next, begin = *t;
        int i = ref_unseen(f, r, *t, &chunk, &next);
        bool seen = i >= 0;
        if (!seen && (i = ref_postable(f, r, *t)) < 0)
            return next;
        ref_task *s = &f->tasks[r][i];
        bool recv = ref_program_task(f, r, i)->kind == FO_TASK_RECV;
        if (recv && !seen) {
            s->posted = *t;
            continue;
        }
        while (!seen && isfinite(s->offered[chunk]))
            chunk++;
        double cost = seen && !recv ? 0 : ref_software(f, r, i, chunk);
        *t = ref_work(f, r, *t, cost);
        *(seen ? &s->done[chunk] : &s->offered[chunk]) = *t;
        f->sums[r].compute_s += *t - begin;
    }
}

/* Goes on, from *t, when `allowed`, which depends on what is seen, has come. */
static inline bool ref_lane_sync(ref *f, int r, double *t, int task, int64_t end)
{
    for (;;) {
        double next = ref_handle(f, r, t);
        if (task < 0)
            ref_release(f, r);
        double allowed = task < 0 ? ref_all_done(f, r) : ref_allowed(f, r, task, end);
        if (allowed <= *t)
            return true;
        if (!isfinite(next))
            return false;
        double then = next + ref_whole(f->d->machine->wake_s);
        f->sums[r].exposed_s += then - *t;
        *t = then;
    }
}

static inline void ref_walk_sync(ref *f, int r)
{
    const fo_program *p = f->d->programs[r];
    double t = f->d->start_s ? ref_whole(f->d->start_s[r]) : 0;
    bool goes_on = true;
    f->sums[r] = (fo_sim_rank){.end_s = INFINITY};
    for (int i = 0; i < p->task_count; i++) {
        ref_task *s = &f->tasks[r][i];
        s->posted = INFINITY;
        for (int c = 0; c < s->count; c++)
            s->done[c] = s->offered[c] = INFINITY;
    }
    ref_handle(f, r, &t);
    t = ref_prepare(f, r, t);
    for (int i = 0; i < p->task_count; i++)
        for (int k = 0; !ref_is_message(&p->tasks[i]) && k < f->tasks[r][i].count; k++) {
            int64_t end = p->tasks[i].row + ref_rows(f, r, i, k + 1);
            goes_on = goes_on && ref_lane_sync(f, r, &t, i, end);
            if (goes_on)
                t = ref_tile(f, r, i, k, t);
        }
    goes_on = goes_on && ref_lane_sync(f, r, &t, -1, 0);
    ref_release(f, r);
    if (goes_on)
        f->sums[r].end_s = t;
}

/* ---- until nothing changes ------------------------------------------------------------------------------ */

static inline uint64_t ref_mix(uint64_t sum, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    sum = (sum ^ bits) * 0x9e3779b97f4a7c15u;
    return sum ^ sum >> 31;
}

static inline uint64_t ref_sum(const ref *f)
{
    uint64_t sum = 1;
    for (int r = 0; r < f->ranks; r++)
        for (int t = 0; t < f->d->programs[r]->task_count; t++)
            for (int c = 0; c < f->tasks[r][t].count; c++) {
                const ref_task *s = &f->tasks[r][t];
                sum = ref_mix(ref_mix(ref_mix(sum, s->done[c]), s->offered[c]), s->comes[c]);
            }
    for (int i = 0; i < f->message_count; i++)
        for (int h = 0; h < f->messages[i].hops; h++)
            sum = ref_mix(sum, f->messages[i].begins[h]);
    return sum;
}

/* True when it came to an end. */
static inline bool ref_run(ref *f)
{
    uint64_t before = 0, sum = ref_sum(f);
    for (int i = 0; i < REF_ROUNDS && sum != before; i++) {
        for (int r = 0; r < f->ranks; r++)
            (f->d->machine->async ? ref_walk_async : ref_walk_sync)(f, r);
        ref_move_messages(f);
        before = sum;
        sum = ref_sum(f);
    }
    bool ended = sum == before;
    for (int r = 0; r < f->ranks; r++)
        ended = ended && isfinite(f->sums[r].end_s);
    return ended;
}

#endif
