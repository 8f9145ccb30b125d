/* The verifier: structure, matching, and the verdict. The other rules have files of their own. */
#include "schedule/verify.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static const char *kind_name(fo_task_kind kind)
{
    static const char *const names[] = {"COMPUTE", "SEND", "RECV", "ADD", "COPY"};
    return names[kind];
}

fo_status fo_schedule_check_broken(const fo_check *c, int32_t node, const char *rule)
{
    const fo_task *task = fo_schedule_check_task(c, node);
    int rank = fo_schedule_check_rank(c, node);
    return fo_base_error(FO_SCHEDULE, "rank %d task %d (%s step %d slice %d.%d): %s", rank,
                         (int)(node - c->base[rank]), kind_name(task->kind), task->step,
                         task->shard, task->sub, rule);
}

static bool is_comm(const fo_task *task)
{
    return task->kind == FO_TASK_SEND || task->kind == FO_TASK_RECV;
}

static bool ref_ok(const fo_program *p, const fo_task *task, fo_ref ref, bool required)
{
    if (ref.buffer < 0)
        return !required;
    return ref.buffer < p->buffer_count && ref.row >= 0 &&
           ref.row + task->rows <= p->buffers[ref.buffer].rows;
}

/* Received rows may be views of the sender's memory, so the buffers they are received into hold nothing
 * else, and nothing else is received into. */
static bool role_ok(const fo_program *p, const fo_task *task)
{
    if (task->out.buffer < 0)
        return true;
    fo_buffer_role role = p->buffers[task->out.buffer].role;
    bool received = role == FO_BUFFER_GATHERED || role == FO_BUFFER_STAGING;
    return received == (task->kind == FO_TASK_RECV);
}

static bool is_hidden(const fo_program *p, fo_ref ref)
{
    return ref.buffer >= 0 && p->buffers[ref.buffer].role == FO_BUFFER_HIDDEN;
}

static bool hidden_ok(const fo_program *p, const fo_task *task)
{
    bool block = p->pattern == FO_PATTERN_BLOCK && task->kind == FO_TASK_COMPUTE;
    return is_hidden(p, task->out) == (block && task->slot == 0) &&
           is_hidden(p, task->in) == (block && task->slot == 1) && !is_hidden(p, task->add);
}

static fo_status check_task(const fo_check *c, int rank, int32_t t)
{
    const fo_program *p = c->programs[rank];
    const fo_task *task = &p->tasks[t];
    int32_t node = c->base[rank] + t;
    if ((unsigned)task->kind > FO_TASK_COPY || task->slot < 0 || task->slot > 1)
        return fo_base_error(FO_SCHEDULE, "rank %d task %d has an unknown kind or slot", rank,
                             (int)t);
    if (task->rows < 1 || task->row < 0 || task->row + task->rows > p->rows)
        return fo_schedule_check_broken(c, node, "its rows are outside the operation");
    bool reads = task->kind != FO_TASK_RECV;
    bool writes =
        task->kind == FO_TASK_RECV || task->kind == FO_TASK_ADD || task->kind == FO_TASK_COPY ||
        (task->kind == FO_TASK_COMPUTE && (task->slot == 0 || p->pattern == FO_PATTERN_BLOCK));
    if (!ref_ok(p, task, task->in, reads) || !ref_ok(p, task, task->out, writes) ||
        !ref_ok(p, task, task->add, task->kind == FO_TASK_ADD))
        return fo_schedule_check_broken(c, node, "it names rows outside a buffer");
    if (!role_ok(p, task))
        return fo_schedule_check_broken(
            c, node, "only RECVs write to GATHERED and STAGING, and to nothing else");
    if (!hidden_ok(p, task))
        return fo_schedule_check_broken(
            c, node, "only a block's first product writes HIDDEN, only its second reads it");
    if (is_comm(task) && (task->peer < 0 || task->peer >= c->ranks))
        return fo_schedule_check_broken(c, node, "its peer is not a rank");
    if (task->dep_first < 0 || task->dep_count < 0 ||
        task->dep_first + task->dep_count > p->dep_count)
        return fo_schedule_check_broken(c, node, "its dependencies are outside the list");
    for (int32_t d = 0; d < task->dep_count; d++) {
        const fo_dep *dep = &p->deps[task->dep_first + d];
        if (dep->task < 0 || dep->task >= t)
            return fo_schedule_check_broken(c, node,
                                            "it depends on a task that does not come before it");
        const fo_task *before = &p->tasks[dep->task];
        if (dep->mode == FO_DEP_ROWS &&
            (before->row > task->row || before->row + before->rows < task->row + task->rows))
            return fo_schedule_check_broken(c, node, "it streams from a task with other rows");
        if (dep->mode == FO_DEP_SPACE && task->kind != FO_TASK_RECV)
            return fo_schedule_check_broken(c, node, "only a RECV can wait for space");
    }
    return FO_OK;
}

fo_status fo_schedule_check_structure(const fo_check *c)
{
    for (int r = 0; r < c->ranks; r++) {
        const fo_program *p = c->programs[r];
        if (p->ranks != c->ranks || p->rank != r || p->rows != c->programs[0]->rows ||
            p->stream_rows != c->programs[0]->stream_rows ||
            p->pattern != c->programs[0]->pattern || p->nodes != c->programs[0]->nodes ||
            p->nodes < 1 || c->ranks % p->nodes)
            return fo_base_error(FO_SCHEDULE, "program %d is not rank %d's of the same operation",
                                 r, r);
        for (int32_t t = 0; t < p->task_count; t++) {
            fo_status status = check_task(c, r, t);
            if (status != FO_OK)
                return status;
        }
    }
    return FO_OK;
}

/* Next task from index t on of `kind` with the peer and channel; task_count: none. */
static int32_t next_comm(const fo_program *p, int32_t t, fo_task_kind kind, int peer, int channel)
{
    while (t < p->task_count &&
           (p->tasks[t].kind != kind || p->tasks[t].peer != peer || p->tasks[t].channel != channel))
        t++;
    return t;
}

static fo_status match_pair(fo_check *c, int from, int to, int channel)
{
    const fo_program *a = c->programs[from], *b = c->programs[to];
    int32_t s = next_comm(a, 0, FO_TASK_SEND, to, channel);
    int32_t r = next_comm(b, 0, FO_TASK_RECV, from, channel);
    while (s < a->task_count && r < b->task_count) {
        int32_t send = c->base[from] + s, recv = c->base[to] + r;
        if (a->tasks[s].row != b->tasks[r].row || a->tasks[s].rows != b->tasks[r].rows)
            return fo_schedule_check_broken(c, send, "the receive it meets expects other rows");
        c->partner[send] = recv;
        c->partner[recv] = send;
        s = next_comm(a, s + 1, FO_TASK_SEND, to, channel);
        r = next_comm(b, r + 1, FO_TASK_RECV, from, channel);
    }
    if (s < a->task_count)
        return fo_schedule_check_broken(c, c->base[from] + s, "no receive meets it");
    if (r < b->task_count)
        return fo_schedule_check_broken(c, c->base[to] + r, "no send meets it");
    return FO_OK;
}

fo_status fo_schedule_check_matching(fo_check *c)
{
    int talks = c->ranks > 1 || c->programs[0]->task_count;
    for (int a = 0; talks && a < c->ranks; a++)
        for (int b = 0; b < c->ranks; b++)
            for (int channel = 0; channel < 2; channel++) {
                fo_status status = match_pair(c, a, b, channel);
                if (status != FO_OK)
                    return status;
            }
    for (int32_t n = 0; n < c->count; n++)
        if (is_comm(fo_schedule_check_task(c, n)) && c->partner[n] < 0)
            return fo_schedule_check_broken(c, n, "its channel is neither 0 nor 1");
    return FO_OK;
}

static void count_up(const fo_check *c, fo_verdict *v)
{
    for (int r = 0; r < c->ranks; r++) {
        const fo_program *p = c->programs[r];
        int64_t staging = 0, sent = 0;
        for (int32_t b = 0; b < p->buffer_count; b++) {
            fo_buffer_role role = p->buffers[b].role;
            if (role != FO_BUFFER_SHARD && role != FO_BUFFER_FULL && role != FO_BUFFER_HIDDEN &&
                role != FO_BUFFER_OUTPUT)
                staging += p->buffers[b].rows;
        }
        for (int32_t t = 0; t < p->task_count; t++)
            if (p->tasks[t].kind == FO_TASK_SEND) {
                v->messages++;
                sent += p->tasks[t].rows;
            }
        v->tasks += p->task_count;
        if (staging > v->staging_rows)
            v->staging_rows = staging;
        if (sent > v->max_sent_rows) {
            v->max_sent_rows = sent;
            v->max_sent_rows_rank = r;
        }
    }
}

static fo_status check_all(fo_check *c)
{
    fo_status status = fo_schedule_check_structure(c);
    if (status == FO_OK)
        status = fo_schedule_check_matching(c);
    if (status == FO_OK)
        status = fo_schedule_check_deadlock(c, 1);
    if (status == FO_OK)
        status =
            fo_schedule_check_deadlock(c, 0); /* its order is the one in which slots are reused */
    if (status == FO_OK)
        status = fo_schedule_check_hazards(c);
    if (status == FO_OK)
        status = fo_schedule_check_values(c);
    return status;
}

fo_status fo_schedule_verify(fo_program *const *programs, int ranks, fo_verdict *verdict)
{
    memset(verdict, 0, sizeof *verdict);
    fo_check c = {.programs = programs, .ranks = ranks};
    c.base = calloc((size_t)ranks + 1, sizeof *c.base);
    if (!c.base)
        return fo_base_error(FO_NO_MEMORY, "schedule: no memory to verify %d ranks", ranks);
    for (int r = 0; r < ranks; r++)
        c.base[r + 1] = c.base[r] + programs[r]->task_count;
    c.count = c.base[ranks];
    c.partner = malloc(((size_t)c.count + 1) * sizeof *c.partner);
    c.order = malloc(((size_t)c.count + 1) * sizeof *c.order);
    fo_status status = FO_NO_MEMORY;
    if (c.partner && c.order) {
        memset(c.partner, 0xff, (size_t)c.count * sizeof *c.partner);
        status = check_all(&c);
    } else {
        fo_base_error(FO_NO_MEMORY, "schedule: no memory to verify %d tasks", (int)c.count);
    }
    count_up(&c, verdict);
    verdict->ok = status == FO_OK;
    snprintf(verdict->text, sizeof verdict->text, "%s",
             verdict->ok
                 ? "every send meets its receive, no cycle, no buffer overwritten in use, every "
                   "contribution exactly once in the declared order"
                 : fo_last_error());
    free(c.base);
    free(c.partner);
    free(c.order);
    return status;
}
