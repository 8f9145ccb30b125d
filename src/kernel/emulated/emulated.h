/* Kernels that take the time of a stated device (fo_device), use no processor and touch no matrix.
 *
 * The clock. Every thread has a device, whose clock `free` says until when it is busy. A call begins at
 * some time, costs what the device would need, moves `free` behind that, and returns when the machine's
 * clock reaches `free`.
 *
 * When does a call begin? A device has a queue: what is issued while it is busy begins when it becomes
 * free, without a gap. Here the caller returns from one call before it makes the next, so that every call
 * comes late: the timer woke it late (20 us on an idle machine, now and then a scheduler's slice of 3 to
 * 4 ms), the executor looked at its messages, another rank had the processor. That lateness belongs to the
 * emulating machine and is forgiven: the call begins at `free`, in the past, and returns that much sooner.
 * But when the caller waited for a message, the device had really nothing to do and stood still: the call
 * begins now. The two are told apart by what the thread did since the last call returned:
 *
 *   it gave the processor away by itself    it waited: nothing is forgiven
 *   (a voluntary context switch)
 *   it used the processor                   forgiven up to ALLOWANCE, which is for the polling between two
 *                                           tiles; more is a wait that spun, or work of the host
 *   anything else: the last call returned   forgiven: the machine had given the processor to others
 *   late, the thread was preempted
 *
 * and never more than SLACK in all: more than a scheduler's slice or two is a machine too busy to emulate
 * on, and the figures shall show it. Where the system does not count context switches, a call that comes
 * more than ALLOWANCE after the last one returned has waited.
 *
 * What is wrong by how much:
 * - Too slow: after a wait, by the time the thread needed to wake up (about 20 us on an idle machine, 50 us
 *   with 16 ranks on two cores), once a wait. Without waits nothing adds up: n calls take the sum of
 *   their costs, and the last of them returns late by one wake-up.
 * - Too fast: a message that came while the caller was late was not waited for, though the device would
 *   have: a wait is shortened by at most the lateness of that call (typically 5 to 50 us, SLACK at worst),
 *   and a wait that spins less than ALLOWANCE is not seen. So a total that is smaller than waits times
 *   the usual lateness says "hidden, as far as can be seen here".
 *
 * No state is shared: ranks may be processes or threads. */
#ifndef FO_KERNEL_EMULATED_EMULATED_H
#define FO_KERNEL_EMULATED_EMULATED_H

#include "kernel/kernel.h"

/* What the calling thread did between the return of a call and the next call. */
typedef struct fo_kernel_emulated_gap {
    int64_t late_ns; /* since the device became free */
    int64_t gap_ns;  /* since the last call returned, a part of late_ns */
    int64_t cpu_ns;  /* of it on a processor */
    bool counted;    /* `waited` and cpu_ns are known */
    bool waited;     /* it gave the processor away by itself */
} fo_kernel_emulated_gap;

enum { FO_KERNEL_EMULATED_ALLOWANCE_NS = 20000, FO_KERNEL_EMULATED_SLACK_NS = 10000000 };

/* How much of gap.late_ns the emulating machine is to blame for. */
int64_t fo_kernel_emulated_forgiven(const fo_kernel_emulated_gap *gap);

/* The calling thread's device is busy for this long, and so is the caller. */
void fo_kernel_emulated_spend(double seconds);
/* The slice that the next calls are tiles of; 0: every call is a slice of its own. */
void fo_kernel_emulated_slice(int64_t rows);
int64_t fo_kernel_emulated_slice_rows(void);

/* The efficiency of a slice of so many rows. */
double fo_kernel_emulated_efficiency(const fo_device *device, double rows);
/* Time of a tile of `rows` rows with `flops` floating-point operations, out of a slice of slice_rows rows:
 * its part of the slice's launch, and its operations at the rate of the slice. */
double fo_kernel_emulated_product_s(const fo_device *device, double flops, int64_t rows,
                                    int64_t slice_rows);
/* Sum of position + 1, which is how many keys a causal query meets, over rows [row, row + rows). */
double fo_kernel_emulated_keys(const fo_run *runs, int64_t run_count, int64_t row, int64_t rows);

#endif
