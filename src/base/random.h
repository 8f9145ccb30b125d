/* Counter-based random numbers: a pure function of (key, counter), so that a value depends on the
 * parameter and the position it belongs to and on nothing else: not on N, not on the order of calls.
 * The generator is Philox 4x32-10 (Salmon et al., SC 2011). */
#ifndef FO_BASE_RANDOM_H
#define FO_BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* Four 32-bit words for one 128-bit counter (given as two halves) under a 64-bit key. */
void fo_base_random_block(uint64_t key, uint64_t counter_high, uint64_t counter_low,
                          uint32_t out[4]);

/* Uniform in [0, 1), 24 bits. */
float fo_base_random_uniform(uint64_t key, uint64_t stream, uint64_t index);

/* Standard normal (Box-Muller in double, rounded once to float). */
float fo_base_random_normal(uint64_t key, uint64_t stream, uint64_t index);

/* Uniform integer in [0, bound), bound >= 1, without modulo bias. */
uint64_t fo_base_random_below(uint64_t key, uint64_t stream, uint64_t index, uint64_t bound);

/* 64-bit FNV-1a of a string: makes a stream id out of a parameter's name. */
uint64_t fo_base_random_stream(const char *name);

#endif
