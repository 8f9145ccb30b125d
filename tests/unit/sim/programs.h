/* Programs of all ranks, machines, and running them; shared by the tests of the engine, the bounds and the closed
 * forms. */
#ifndef TESTS_SIM_PROGRAMS_H
#define TESTS_SIM_PROGRAMS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/engine.h"

enum { MAX_RANKS = 64 };

static const char *const pattern_names[] = {"gather", "reduce", "gather2",
                                            "joint",  "wgrad",  "block"};

typedef struct set {
    fo_schedule_desc desc;
    fo_program *programs[MAX_RANKS];
    int built;
} set;

static inline fo_schedule_desc describe(fo_pattern pattern, const char *strategy, int ranks,
                                        int64_t rows, int64_t quantum, int64_t stream_rows)
{
    fo_schedule_desc desc = {.pattern = pattern,
                             .ranks = ranks,
                             .nodes = 1,
                             .rows = rows,
                             .quantum = quantum,
                             .stream_rows = stream_rows};
    assert_int_equal(fo_strategy_parse(strategy, &desc.strategy), FO_OK);
    return desc;
}

/* The first `count` of them. */
static inline set build(const fo_schedule_desc *desc, int count)
{
    set s = {.desc = *desc, .built = count};
    for (int r = 0; r < count; r++)
        assert_int_equal(fo_schedule_build(desc, r, &s.programs[r]), FO_OK);
    return s;
}

static inline void destroy(set *s)
{
    for (int r = 0; r < s->built; r++)
        fo_schedule_free(s->programs[r]);
}

static inline fo_sim_engine_desc engine_of(const set *s, const fo_sim_machine *machine,
                                           fo_sim_tile_s tile_s, const void *context)
{
    fo_sim_engine_desc d = {.programs = (const fo_program *const *)s->programs,
                            .ranks = s->desc.ranks,
                            .period = s->built,
                            .machine = machine,
                            .tile_rows = {s->desc.stream_rows, s->desc.quantum},
                            .tile_s = tile_s,
                            .context = context};
    for (int role = 0; role < FO_BUFFER_ROLES; role++)
        d.row_bytes[role] = 1000;
    return d;
}

/* ---- random numbers: from (key, counter) ---------------------------------------------------------------- */

static inline uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

typedef struct dice {
    uint64_t key, counter;
} dice;

static inline uint64_t roll(dice *d)
{
    return mix(d->key * 0x100000001b3u + d->counter++);
}

static inline int below(dice *d, int count)
{
    return (int)(roll(d) % (uint64_t)count);
}

static inline double between(dice *d, double from, double to)
{
    return from + (to - from) * (double)(roll(d) >> 11) * 0x1p-53;
}

#endif
