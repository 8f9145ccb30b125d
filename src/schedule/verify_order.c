/* No cycle across ranks. Every task is two nodes, its start and its end; a program that can run under
 * rendezvous has an order of all of them. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "schedule/verify.h"

typedef struct graph {
    int32_t nodes;
    int32_t *head, *waiting; /* first edge of a node; edges that still hold it back */
    int32_t *to, *next;
    int32_t edges, capacity;
    bool failed;
} graph;

static void edge(graph *g, int32_t from, int32_t to)
{
    if (g->edges == g->capacity) {
        int32_t larger = g->capacity ? 2 * g->capacity : 1024;
        int32_t *t = realloc(g->to, (size_t)larger * sizeof *t);
        if (t)
            g->to = t;
        int32_t *n = realloc(g->next, (size_t)larger * sizeof *n);
        if (n)
            g->next = n;
        if (!t || !n) {
            g->failed = true;
            return;
        }
        g->capacity = larger;
    }
    g->to[g->edges] = to;
    g->next[g->edges] = g->head[from];
    g->head[from] = g->edges++;
    g->waiting[to]++;
}

static int32_t start(int32_t node)
{
    return 2 * node;
}

static int32_t end(int32_t node)
{
    return 2 * node + 1;
}

static bool is_comm(const fo_task *task)
{
    return task->kind == FO_TASK_SEND || task->kind == FO_TASK_RECV;
}

static void dependencies(graph *g, const fo_check *c, int rank, int32_t t, bool in_place)
{
    const fo_program *p = c->programs[rank];
    const fo_task *task = &p->tasks[t];
    int32_t node = c->base[rank] + t;
    edge(g, start(node), end(node));
    for (int32_t d = 0; d < task->dep_count; d++) {
        const fo_dep *dep = &p->deps[task->dep_first + d];
        int32_t before = c->base[rank] + dep->task;
        if (dep->mode == FO_DEP_ROWS) {
            edge(g, start(before), start(node));
            edge(g, end(before), end(node));
            if (task->kind == FO_TASK_SEND) /* the last message leaves after the last row */
                edge(g, end(before), end(c->partner[node]));
        } else if (dep->mode == FO_DEP_DONE || !in_place) {
            edge(g, end(before), start(node));
        }
    }
    if (task->kind == FO_TASK_SEND)
        edge(g, start(node), end(c->partner[node]));
    if (task->kind == FO_TASK_RECV)
        edge(g, start(node), end(c->partner[node]));
}

/* The compute lane runs in list order; tasks of one queue are posted in list order. */
static void lanes(graph *g, const fo_check *c, int rank)
{
    const fo_program *p = c->programs[rank];
    int32_t lane = -1;
    for (int32_t t = 0; t < p->task_count; t++) {
        const fo_task *task = &p->tasks[t];
        int32_t node = c->base[rank] + t;
        if (!is_comm(task)) {
            if (lane >= 0)
                edge(g, end(lane), start(node));
            lane = node;
            continue;
        }
        for (int32_t u = t + 1; u < p->task_count; u++) {
            const fo_task *later = &p->tasks[u];
            if (later->kind != task->kind || later->peer != task->peer ||
                later->channel != task->channel)
                continue;
            edge(g, start(node), start(c->base[rank] + u));
            for (int32_t d = 0; task->kind == FO_TASK_SEND && d < task->dep_count; d++) {
                const fo_dep *dep = &p->deps[task->dep_first + d];
                if (dep->mode == FO_DEP_ROWS) /* all messages of a SEND go before the next SEND's */
                    edge(g, end(c->base[rank] + dep->task), start(c->base[rank] + u));
            }
            break;
        }
    }
}

/* The RECV whose rows a task reads through `ref`. */
static int32_t source(const fo_program *p, int32_t t, fo_ref ref)
{
    for (int32_t u = t - 1; ref.buffer >= 0 && u >= 0; u--)
        if (p->tasks[u].kind == FO_TASK_RECV && p->tasks[u].out.buffer == ref.buffer &&
            p->tasks[u].out.row - p->tasks[u].row == ref.row - p->tasks[t].row &&
            p->tasks[u].row <= p->tasks[t].row &&
            p->tasks[u].row + p->tasks[u].rows >= p->tasks[t].row + p->tasks[t].rows)
            return u;
    return -1;
}

static bool received(const fo_program *p, fo_ref ref)
{
    return ref.buffer >= 0 && (p->buffers[ref.buffer].role == FO_BUFFER_GATHERED ||
                               p->buffers[ref.buffer].role == FO_BUFFER_STAGING);
}

/* Reading in place: a SEND ends only after the receiver's readers have, and every reader reads what one
 * RECV delivers. */
static fo_status readers(graph *g, const fo_check *c, int rank)
{
    const fo_program *p = c->programs[rank];
    for (int32_t t = 0; t < p->task_count; t++) {
        fo_ref refs[2] = {p->tasks[t].in, p->tasks[t].add};
        for (int i = 0; i < 2; i++) {
            int32_t recv = source(p, t, refs[i]);
            if (recv >= 0)
                edge(g, end(c->base[rank] + t), end(c->partner[c->base[rank] + recv]));
            else if (received(p, refs[i]))
                return fo_schedule_check_broken(c, c->base[rank] + t,
                                                "no one RECV delivers the rows it reads");
        }
    }
    return FO_OK;
}

static fo_status sort(graph *g, fo_check *c)
{
    int32_t *queue = malloc(((size_t)g->nodes + 1) * sizeof *queue);
    if (!queue)
        return fo_base_error(FO_NO_MEMORY, "schedule: no memory to verify %d tasks", (int)c->count);
    int32_t first = 0, last = 0, ended = 0;
    for (int32_t n = 0; n < g->nodes; n++)
        if (!g->waiting[n])
            queue[last++] = n;
    while (first < last) {
        int32_t n = queue[first++];
        if (n & 1)
            c->order[ended++] = n / 2;
        for (int32_t e = g->head[n]; e >= 0; e = g->next[e])
            if (!--g->waiting[g->to[e]])
                queue[last++] = g->to[e];
    }
    free(queue);
    if (ended == c->count)
        return FO_OK;
    for (int32_t n = 0; n < g->nodes; n++)
        if (g->waiting[n])
            return fo_schedule_check_broken(c, n / 2, "it waits for itself across ranks: deadlock");
    return fo_base_error(FO_INTERNAL, "schedule: the order of tasks is incomplete");
}

fo_status fo_schedule_check_deadlock(fo_check *c, int in_place)
{
    graph g = {.nodes = 2 * c->count};
    g.head = malloc(((size_t)g.nodes + 1) * sizeof *g.head);
    g.waiting = calloc((size_t)g.nodes + 1, sizeof *g.waiting);
    fo_status status = FO_OK;
    if (!g.head || !g.waiting) {
        g.failed = true;
    } else {
        memset(g.head, 0xff, (size_t)g.nodes * sizeof *g.head);
        for (int r = 0; status == FO_OK && r < c->ranks; r++) {
            for (int32_t t = 0; t < c->programs[r]->task_count; t++)
                dependencies(&g, c, r, t, in_place);
            lanes(&g, c, r);
            if (in_place)
                status = readers(&g, c, r);
        }
    }
    if (g.failed)
        status =
            fo_base_error(FO_NO_MEMORY, "schedule: no memory to verify %d tasks", (int)c->count);
    else if (status == FO_OK)
        status = sort(&g, c);
    free(g.head);
    free(g.waiting);
    free(g.to);
    free(g.next);
    return status;
}
