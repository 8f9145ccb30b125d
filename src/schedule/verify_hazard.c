/* No rows are overwritten while they are read, being sent or being received: of two tasks of a rank that
 * touch the same rows, one of them writing, one must end before the other starts, or stream from it row
 * by row. Only what the rank itself can know counts: dependencies, the compute lane, the order of posting. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "schedule/verify.h"

typedef struct access {
    int32_t task;
    int64_t begin, end; /* rows of the buffer */
    int64_t shift;      /* buffer row minus global row */
    bool write;
} access;

/* For every task two bit sets: the tasks that have ended when it starts, and when it ends. */
typedef struct ended {
    uint64_t *bits;
    int32_t words;
} ended;

static bool is_comm(const fo_task *task)
{
    return task->kind == FO_TASK_SEND || task->kind == FO_TASK_RECV;
}

static uint64_t *at_start(const ended *e, int32_t t)
{
    return e->bits + (size_t)t * 2 * (size_t)e->words;
}

static uint64_t *at_end(const ended *e, int32_t t)
{
    return at_start(e, t) + e->words;
}

static bool has(const ended *e, int32_t t, int32_t before)
{
    return at_start(e, t)[before / 64] >> (before % 64) & 1;
}

static void unite(const ended *e, uint64_t *into, const uint64_t *from)
{
    for (int32_t w = 0; w < e->words; w++)
        into[w] |= from[w];
}

static void fill_ended(ended *e, const fo_program *p)
{
    int32_t lane = -1;
    for (int32_t t = 0; t < p->task_count; t++) {
        const fo_task *task = &p->tasks[t];
        for (int32_t d = 0; d < task->dep_count; d++) {
            const fo_dep *dep = &p->deps[task->dep_first + d];
            bool whole = dep->mode != FO_DEP_ROWS;
            unite(e, at_start(e, t), whole ? at_end(e, dep->task) : at_start(e, dep->task));
            const fo_task *before = &p->tasks[dep->task];
            /* streaming from the first rows of a task does not say that its last are finished */
            if (whole || before->row + before->rows == task->row + task->rows)
                unite(e, at_end(e, t), at_end(e, dep->task));
        }
        if (!is_comm(task)) {
            if (lane >= 0)
                unite(e, at_start(e, t), at_end(e, lane));
            lane = t;
        }
        unite(e, at_end(e, t), at_start(e, t));
        at_end(e, t)[t / 64] |= (uint64_t)1 << (t % 64);
    }
}

static bool streams_from(const fo_program *p, int32_t t, int32_t before)
{
    const fo_task *task = &p->tasks[t];
    for (int32_t d = 0; d < task->dep_count; d++)
        if (p->deps[task->dep_first + d].task == before)
            return true;
    return false;
}

static int32_t list_accesses(const fo_program *p, int32_t buffer, access *list)
{
    int32_t count = 0;
    for (int32_t t = 0; t < p->task_count; t++) {
        const fo_task *task = &p->tasks[t];
        fo_ref refs[3] = {task->in, task->add, task->out};
        for (int i = 0; i < 3; i++)
            if (refs[i].buffer == buffer)
                list[count++] = (access){t, refs[i].row, refs[i].row + task->rows,
                                         refs[i].row - task->row, i == 2};
    }
    return count;
}

static fo_status check_buffer(const fo_check *c, int rank, int32_t buffer, const ended *e,
                              access *list)
{
    const fo_program *p = c->programs[rank];
    int32_t count = list_accesses(p, buffer, list);
    for (int32_t i = 0; i < count; i++) {
        const access *b = &list[i];
        if (b->write && (p->buffers[buffer].role == FO_BUFFER_SHARD ||
                         p->buffers[buffer].role == FO_BUFFER_FULL))
            return fo_schedule_check_broken(c, c->base[rank] + b->task, "it writes an input");
        for (int32_t k = 0; k < i; k++) {
            const access *a = &list[k];
            if (a->task == b->task || !(a->write || b->write) || a->end <= b->begin ||
                b->end <= a->begin)
                continue;
            if (has(e, b->task, a->task) || (a->write && a->shift == b->shift && !b->write &&
                                             streams_from(p, b->task, a->task)))
                continue;
            return fo_schedule_check_broken(
                c, c->base[rank] + b->task,
                "it touches rows that an earlier task may still be using");
        }
    }
    return FO_OK;
}

fo_status fo_schedule_check_hazards(const fo_check *c)
{
    fo_status status = FO_OK;
    for (int r = 0; status == FO_OK && r < c->ranks; r++) {
        const fo_program *p = c->programs[r];
        ended e = {.words = (p->task_count + 63) / 64 + 1};
        e.bits = calloc(((size_t)p->task_count + 1) * 2 * (size_t)e.words, sizeof *e.bits);
        access *list = malloc(((size_t)p->task_count * 3 + 1) * sizeof *list);
        if (!e.bits || !list) {
            status = fo_base_error(FO_NO_MEMORY, "schedule: no memory to verify %d tasks",
                                   (int)p->task_count);
        } else {
            fill_ended(&e, p);
            for (int32_t b = 0; status == FO_OK && b < p->buffer_count; b++)
                status = check_buffer(c, r, b, &e, list);
        }
        free(e.bits);
        free(list);
    }
    return status;
}
