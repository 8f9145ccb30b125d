/* Deterministic mutations of a valid file: a pure function of (seed, index). */
#ifndef TESTS_FUZZ_MUTATE_H
#define TESTS_FUZZ_MUTATE_H

#include <stdint.h>
#include <string.h>

#include "base/random.h"

typedef struct mutation {
    uint64_t seed, index, draws;
} mutation;

static inline size_t mutate_draw(mutation *m, size_t bound)
{
    return (size_t)fo_base_random_below(m->seed, m->index, m->draws++, bound ? bound : 1);
}

/* One change of bytes[0, size), with room for `room`; returns the new size. */
static inline size_t mutate_once(mutation *m, uint8_t *bytes, size_t size, size_t room)
{
    static const char special[] = "\0\xff\x7f\x80-0189.eE{}[]\",:\\ \n\xc3\xed\xf4";
    static const uint64_t numbers[] = {0,         1,          255,       65535,
                                       INT32_MAX, UINT32_MAX, INT64_MAX, UINT64_MAX};
    size_t at = mutate_draw(m, size), length = 1 + mutate_draw(m, 16), from = mutate_draw(m, size);
    if (size == 0)
        return 0;
    length = at + length > size ? size - at : length;
    switch (mutate_draw(m, 7)) {
    case 0: bytes[at] ^= (uint8_t)(1u << mutate_draw(m, 8)); return size;
    case 1: bytes[at] = (uint8_t)mutate_draw(m, 256); return size;
    case 2: bytes[at] = (uint8_t)special[mutate_draw(m, sizeof special)]; return size;
    case 3: return at; /* torn */
    case 4:            /* a piece less */
        memmove(bytes + at, bytes + at + length, size - at - length);
        return size - length;
    case 5: /* a piece twice */
        length = size + length > room ? room - size : length;
        memmove(bytes + at + length, bytes + at, size - at);
        return size + length;
    default: /* another number, or a piece from elsewhere */
        if (mutate_draw(m, 2)) {
            length = length < 8 ? length : 8;
            memcpy(bytes + at, &numbers[mutate_draw(m, sizeof numbers / sizeof numbers[0])],
                   length);
        } else {
            length = from + length > size ? size - from : length;
            memmove(bytes + at, bytes + from, length);
        }
        return size;
    }
}

/* One to four changes. */
static inline size_t mutate(uint64_t seed, uint64_t index, uint8_t *bytes, size_t size, size_t room)
{
    mutation m = {.seed = seed, .index = index};
    for (size_t i = 1 + mutate_draw(&m, 4); i > 0; i--)
        size = mutate_once(&m, bytes, size, room);
    return size;
}

#endif
