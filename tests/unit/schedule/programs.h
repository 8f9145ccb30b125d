/* Building, changing and verifying the programs of all ranks; shared by the tests of this room. */
#ifndef TESTS_SCHEDULE_PROGRAMS_H
#define TESTS_SCHEDULE_PROGRAMS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flashoverlap/group.h"
#include "schedule/program.h"

enum { MAX_RANKS = 64 };

typedef struct set {
    fo_schedule_desc desc;
    fo_program *programs[MAX_RANKS];
    int ranks;
} set;

static inline fo_schedule_desc describe(fo_pattern pattern, const char *strategy, int ranks,
                                        int64_t rows, int64_t quantum)
{
    fo_schedule_desc desc = {
        .pattern = pattern, .ranks = ranks, .rows = rows, .quantum = quantum, .stream_rows = 2};
    assert_int_equal(fo_strategy_parse(strategy, &desc.strategy), FO_OK);
    return desc;
}

/* On `nodes` machines. */
static inline set build_on(int nodes, fo_pattern pattern, const char *strategy, int ranks,
                           int64_t rows, int64_t quantum)
{
    set s = {.desc = describe(pattern, strategy, ranks, rows, quantum), .ranks = ranks};
    s.desc.nodes = nodes;
    for (int r = 0; r < ranks; r++)
        assert_int_equal(fo_schedule_build(&s.desc, r, &s.programs[r]), FO_OK);
    return s;
}

static inline set build(fo_pattern pattern, const char *strategy, int ranks, int64_t rows,
                        int64_t quantum)
{
    return build_on(1, pattern, strategy, ranks, rows, quantum);
}

static inline void destroy(set *s)
{
    for (int r = 0; r < s->ranks; r++)
        fo_schedule_free(s->programs[r]);
}

static inline fo_status verify(const set *s, fo_verdict *verdict)
{
    return fo_schedule_verify(s->programs, s->ranks, verdict);
}

/* The n-th (from 0) task of a kind and channel; -1 as channel: any. Fails the test when there is none. */
static inline int32_t nth_task(const fo_program *p, fo_task_kind kind, int channel, int n)
{
    for (int32_t t = 0; t < p->task_count; t++) {
        const fo_task *task = &p->tasks[t];
        if (task->kind == kind && (channel < 0 || task->channel == channel) && n-- == 0)
            return t;
    }
    fail_msg("no such task");
    return -1;
}

/* Takes dependency number d (in program.deps) of task t away. */
static inline void drop_dep(fo_program *p, int32_t t, int32_t d)
{
    fo_task *task = &p->tasks[t];
    memmove(&p->deps[d], &p->deps[d + 1],
            (size_t)(task->dep_first + task->dep_count - d - 1) * sizeof *p->deps);
    task->dep_count--;
}

/* Takes task t away, with every dependency on it. */
static inline void drop_task(fo_program *p, int32_t t)
{
    memmove(&p->tasks[t], &p->tasks[t + 1], (size_t)(p->task_count - t - 1) * sizeof *p->tasks);
    p->task_count--;
    for (int32_t i = 0; i < p->task_count; i++)
        for (int32_t d = p->tasks[i].dep_count - 1; d >= 0; d--) {
            fo_dep *dep = &p->deps[p->tasks[i].dep_first + d];
            if (dep->task == t)
                drop_dep(p, i, p->tasks[i].dep_first + d);
            else if (dep->task > t)
                dep->task--;
        }
}

/* Adds a dependency to task t. */
static inline void add_dep(fo_program *p, int32_t t, int32_t on, fo_dep_mode mode)
{
    fo_task *task = &p->tasks[t];
    int32_t first = p->dep_count, room = p->dep_count + task->dep_count + 1;
    if (room > p->dep_capacity) {
        fo_dep *deps = realloc(p->deps, (size_t)room * sizeof *deps);
        assert_non_null(deps);
        p->deps = deps;
        p->dep_capacity = room;
    }
    for (int32_t d = 0; d < task->dep_count; d++)
        p->deps[p->dep_count++] = p->deps[task->dep_first + d];
    p->deps[p->dep_count++] = (fo_dep){on, mode};
    task->dep_first = first;
    task->dep_count++;
}

#endif
