/* Timelines of simulated runs. */
#include "planner/timeline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum { DRAWN = 32, EVENTS = 1 << 20, NAMES = 8, ENDS = 4 };

/* Of a rank in the current operation. */
typedef struct rank_state {
    const fo_program *program; /* NULL: nothing seen of it yet */
    int64_t *last;             /* [task_count] its last event, -1: none */
    int32_t *place;            /* [task_count] SEND, RECV: how many come before it on its lane */
} rank_state;

struct fo_planner_timeline {
    fo_timeline timeline;
    fo_event *events;
    int64_t capacity;
    char *names[NAMES];
    int32_t operation; /* the current one; -1: none */
    fo_planner_programs *programs;
    double begin_s;
    rank_state states[DRAWN];
    fo_status status; /* of what was watched */
};

static void forget_states(fo_planner_timeline *t)
{
    for (int r = 0; r < DRAWN; r++) {
        free(t->states[r].last);
        free(t->states[r].place);
        t->states[r] = (rank_state){0};
    }
}

fo_planner_timeline *fo_planner_timeline_make(void)
{
    fo_planner_timeline *t = calloc(1, sizeof *t);
    if (t)
        t->operation = -1;
    return t;
}

void fo_planner_timeline_free(fo_planner_timeline *t)
{
    if (!t)
        return;
    forget_states(t);
    for (int i = 0; i < NAMES; i++)
        free(t->names[i]);
    free(t->events);
    free(t);
}

fo_status fo_planner_timeline_operation(fo_planner_timeline *t, const char *name,
                                        fo_planner_programs *programs, double begin_s)
{
    forget_states(t);
    if (t->operation + 1 == NAMES)
        return fo_base_error(FO_INTERNAL, "more than %d operations in a timeline", NAMES);
    t->operation++;
    t->names[t->operation] = strdup(name);
    t->programs = programs;
    t->begin_s = begin_s;
    return t->names[t->operation]
               ? FO_OK
               : fo_base_error(FO_NO_MEMORY, "no memory for the name of an operation");
}

/* ---- watching --------------------------------------------------------------------------------------- */

static bool travels(const fo_task *task)
{
    return task->kind == FO_TASK_SEND || task->kind == FO_TASK_RECV;
}

static bool fill_state(rank_state *state, const fo_program *program)
{
    size_t tasks = (size_t)program->task_count + 1;
    int32_t *lanes = calloc((size_t)program->ranks * ENDS, sizeof *lanes);
    state->last = malloc(tasks * sizeof *state->last);
    state->place = calloc(tasks, sizeof *state->place);
    bool enough = lanes && state->last && state->place;
    for (int32_t i = 0; enough && i < program->task_count; i++) {
        const fo_task *task = &program->tasks[i];
        state->last[i] = -1;
        if (travels(task))
            state->place[i] = lanes[task->peer * ENDS + (task->kind == FO_TASK_SEND ? 2 : 0) +
                                    (task->channel == 1)]++;
    }
    free(lanes);
    state->program = enough ? program : NULL;
    return enough;
}

static rank_state *state_of(fo_planner_timeline *t, int rank)
{
    rank_state *state = &t->states[rank];
    if (state->program)
        return state;
    const fo_program *program = fo_planner_simulate_programs_of(t->programs, rank);
    if (!program || !fill_state(state, program)) {
        free(state->last);
        free(state->place);
        *state = (rank_state){0};
        t->status = FO_NO_MEMORY;
        return NULL;
    }
    return state;
}

/* Room for an event; NULL: none left, or no memory. */
static fo_event *new_event(fo_planner_timeline *t)
{
    if (t->timeline.count == EVENTS) {
        t->timeline.dropped++;
        return NULL;
    }
    if (t->timeline.count == t->capacity) {
        int64_t capacity = t->capacity ? 2 * t->capacity : 1024;
        fo_event *moved = realloc(t->events, (size_t)capacity * sizeof *moved);
        if (!moved) {
            t->status = FO_NO_MEMORY;
            return NULL;
        }
        t->events = moved;
        t->capacity = capacity;
    }
    return &t->events[t->timeline.count++];
}

static int32_t kind_of(const fo_sim_event *event, const fo_task *task)
{
    switch (event->kind) {
    case FO_SIM_EVENT_WAIT: return FO_EVENT_WAIT;
    case FO_SIM_EVENT_SEND: return FO_EVENT_SEND;
    case FO_SIM_EVENT_RECV: return FO_EVENT_RECV;
    case FO_SIM_EVENT_PREPARE: return FO_EVENT_PACK;
    default: break;
    }
    return !task || task->kind == FO_TASK_COMPUTE ? FO_EVENT_COMPUTE
           : task->kind == FO_TASK_ADD            ? FO_EVENT_ADD
                                                  : FO_EVENT_COPY;
}

/* The same number at both ends of a message, and at no others. */
static uint64_t flow_of(const fo_planner_timeline *t, const fo_task *task, int rank, int32_t place)
{
    bool send = task->kind == FO_TASK_SEND;
    uint64_t parts[] = {(uint64_t)t->operation, (uint64_t)task->channel,
                        (uint64_t)(send ? rank : task->peer), (uint64_t)(send ? task->peer : rank),
                        (uint64_t)place};
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        hash = (hash ^ parts[i]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    return hash ? hash : 1;
}

static void describe(const fo_planner_timeline *t, fo_event *e, const rank_state *state,
                     int32_t index)
{
    const fo_task *task = &state->program->tasks[index];
    e->step = task->step;
    e->shard = task->shard;
    e->sub = task->sub;
    e->row = task->row;
    if (travels(task)) {
        e->peer = task->peer;
        e->channel = task->channel;
    } else if (task->kind == FO_TASK_COMPUTE && e->kind != FO_EVENT_WAIT) {
        e->slot = task->slot;
    }
    if ((e->kind == FO_EVENT_SEND || e->kind == FO_EVENT_RECV) && state->last[index] < 0)
        e->flow = flow_of(t, task, e->rank, state->place[index]);
}

/* Of one task what follows without a gap is one event; rows come in their order. */
static bool extend(fo_planner_timeline *t, const rank_state *state, const fo_sim_event *event,
                   int64_t begin, int64_t end, int64_t bytes)
{
    int64_t last =
        event->task < 0 || event->kind == FO_SIM_EVENT_WAIT ? -1 : state->last[event->task];
    if (last < 0 || t->events[last].end_ns < begin)
        return false;
    fo_event *e = &t->events[last];
    e->end_ns = end > e->end_ns ? end : e->end_ns;
    e->rows += event->rows;
    e->bytes += bytes;
    return true;
}

static int64_t bytes_of(const fo_planner_timeline *t, const fo_program *program,
                        const fo_sim_event *event)
{
    if (event->kind != FO_SIM_EVENT_SEND && event->kind != FO_SIM_EVENT_RECV)
        return 0;
    const fo_task *task = &program->tasks[event->task];
    int32_t buffer = event->kind == FO_SIM_EVENT_SEND ? task->in.buffer : task->out.buffer;
    return event->rows * t->programs->row_bytes[program->buffers[buffer].role];
}

static void add_event(fo_planner_timeline *t, rank_state *state, const fo_sim_event *event)
{
    int64_t begin = llround((t->begin_s + event->begin_s) * 1e9);
    int64_t end = llround((t->begin_s + event->end_s) * 1e9);
    int64_t bytes = bytes_of(t, state->program, event);
    if (event->kind == FO_SIM_EVENT_WAIT && begin == end)
        return; /* less than a nanosecond: what it parts is drawn as one */
    if (extend(t, state, event, begin, end, bytes))
        return;
    fo_event *e = new_event(t);
    const fo_task *task = event->task < 0 ? NULL : &state->program->tasks[event->task];
    if (!e)
        return;
    *e = (fo_event){.begin_ns = begin,
                    .end_ns = end,
                    .kind = kind_of(event, task),
                    .rank = event->rank,
                    .name = t->operation,
                    .slot = -1,
                    .step = -1,
                    .shard = -1,
                    .sub = -1,
                    .peer = event->peer,
                    .channel = -1,
                    .bytes = bytes};
    if (!task)
        return;
    describe(t, e, state, event->task);
    bool waits = e->kind == FO_EVENT_WAIT;
    int64_t before = waits ? -1 : state->last[event->task];
    if (before >= 0)
        e->row = t->events[before].row + t->events[before].rows;
    e->rows = waits ? task->rows : event->rows;
    if (!waits)
        state->last[event->task] = e - t->events;
}

void fo_planner_timeline_watch(void *timeline, const fo_sim_event *event)
{
    fo_planner_timeline *t = timeline;
    if (event->rank >= DRAWN || t->status != FO_OK)
        return;
    rank_state *state = state_of(t, event->rank);
    if (event->rank >= t->timeline.ranks)
        t->timeline.ranks = event->rank + 1;
    if (state)
        add_event(t, state, event);
}

/* ---- the end ---------------------------------------------------------------------------------------- */

static int compare(const void *left, const void *right)
{
    const fo_event *a = left, *b = right;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return (a->begin_ns > b->begin_ns) - (a->begin_ns < b->begin_ns);
}

fo_status fo_planner_timeline_end(fo_planner_timeline *t, double end_s)
{
    forget_states(t);
    if (t->status != FO_OK)
        return fo_base_error(t->status, "no memory for a timeline of %lld events",
                             (long long)t->timeline.count);
    if (t->timeline.count)
        qsort(t->events, (size_t)t->timeline.count, sizeof *t->events, compare);
    t->timeline.events = t->events;
    t->timeline.names = (const char *const *)t->names;
    t->timeline.name_count = t->operation + 1;
    t->timeline.end_ns = llround(end_s * 1e9);
    return FO_OK;
}

const fo_timeline *fo_planner_timeline_get(const fo_planner_timeline *t)
{
    return &t->timeline;
}
