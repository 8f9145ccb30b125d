/* Monotonic time, the same clock in every process of the machine. */
#ifndef FO_BASE_CLOCK_H
#define FO_BASE_CLOCK_H

#include <stdint.h>

int64_t fo_base_clock_ns(void);

#endif
