/* Measuring this machine for a profile, naming and forgetting profiles, and devices as text. */
#ifndef FLASHOVERLAP_CALIBRATE_H
#define FLASHOVERLAP_CALIBRATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "flashoverlap/group.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- a device as text ---- */

/* Reads what a device can do:
 *     271TF                                               a rate, in MF, GF, TF or PF: 1e6 ... 1e15 FLOP/s
 *     78.5ms                                              a time, in s, ms, us or ns: the whole computation,
 *                                                         unsliced, takes that long
 * then, in any order and separated by commas, if wanted
 *     launch=5us                                          of a task, beside its work
 *     mem=1.5TB/s                                         of passes over memory
 *     curve=64:0.33/256:0.78/8192:0.92                    rows:efficiency, rows ascending
 * A time goes to *compute_s and leaves device->flops_per_s 0 for the caller to fill; a rate sets *compute_s
 * to 0. compute_s NULL: only a rate will do. FO_INVALID with a sentence; *device is then unchanged. */
fo_status fo_device_parse(const char *text, fo_device *device, double *compute_s);

/* The device as such a text, cut off at `size` bytes; "none" when it has no rate. */
void fo_device_print(const fo_device *device, char *text, size_t size);

/* ---- measuring the machine ---- */

typedef struct fo_calibrate_options {
    bool quick; /* about 10 s instead of 60, with fewer sizes and samples */
    bool json;  /* the profile to `out`, instead of a table for people */
    const char
        *path; /* the profile goes to this file; NULL: where this machine's is looked for (below) */
    FILE *progress;         /* what is being done and the time left; NULL: nobody is told */
    fo_group_options group; /* ranks, threads, transport and kernel to measure with */
} fo_calibrate_options;

/* 2 ranks, or as many as there are cores when that is fewer; their threads; shm. In a job its ranks, mpi. */
void fo_calibrate_defaults(fo_calibrate_options *options);

/* Measures the matrix products over the rows of a slice, attention and its gradient, packing of weights, passes over
 * memory, messages, waking up and the overhead of a task, and writes a machine profile: one JSON object, "format":
 * "flashoverlap-machine-profile", "format_version": 2, with what the simulator reads (docs/profiles.md: device,
 * network, software) and the lists gemm, wgrad, attention, attention_grad, pack, passes, messages and tasks. Every
 * figure of a list says
 *     threads, ranks_at_once       threads of a rank; ranks that did it at the same time (the time is then the
 *                                  slowest one's)
 *     time_s, best_s, spread_s     the median of `samples`, each the mean of `calls` calls; the smallest; the
 *                                  distance between the quartiles
 *     flops_per_s, efficiency      of products: the rate of a rank, and its part of the best one measured under
 *                                  the same conditions (peaks)
 *     bytes_per_s                  of passes (read and written) and copied messages
 *     confidence                   "high": 5 samples or more and a spread of up to 5 % of the median; "medium":
 *                                  3 or more and 20 %; "low"
 * and the whole has the confidence that nine of ten figures have at least. Times are those of one slice of
 * `rows` rows, sequence, pass or task, of a message one way, or of an exchange of two messages at once. A
 * view hands out the sender's memory: reading it is not in its time. Cases that would take too long on this
 * machine are left out.
 *
 * The file is written beside and renamed: it is complete or as it was; whether it can be written is asked
 * first. FO_INVALID: options that can't be; FO_IO: path or out; FO_INTERRUPTED: the user asked to stop,
 * nothing is written. Starts a group: fo_group_run's conditions hold. */
fo_status fo_calibrate_run(const fo_calibrate_options *options, FILE *out);

/* ---- what is known of this machine ----
 *
 * Predictions and overlap "auto" (plan.h) use the profile that the environment variable FLASHOVERLAP_PROFILE names,
 * else the one that calibrate has left in $XDG_CACHE_HOME/flashoverlap or ~/.cache/flashoverlap for this processor,
 * kernel, number of threads, transport and version, and the wisdom beside it: products measured at the very shapes of
 * plans when they were first met. */

/* Names a profile for this process and the ranks it will start, as FLASHOVERLAP_PROFILE does. Reads it: FO_INVALID with
 * the path of the field that is wrong, FO_IO. */
fo_status fo_profile_use(const char *path);

/* Removes the profiles that calibrate has left in the cache, and all wisdom; a named profile stays. Returns how many
 * files went. */
int fo_profile_forget(void);

#ifdef __cplusplus
}
#endif
#endif
