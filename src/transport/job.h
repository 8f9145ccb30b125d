/* What the transport that joins a launcher's job tells fo_job_end() and fo_job_speaks(), which know no
 * transport. */
#ifndef FO_TRANSPORT_JOB_H
#define FO_TRANSPORT_JOB_H

#include <stdbool.h>
#include <stddef.h>

/* `end` is what the next fo_job_end() calls, once, with the exit code; its result is the exit code. NULL: nothing
 * to leave. */
void fo_transport_job_on_end(int (*end)(int code));

/* The path of the next module for an MPI library that is there; false past the last one. */
bool fo_transport_job_module(int index, char *path, size_t bytes);

/* Whether this process is the one that says what went wrong. Until told: the launcher's rank 0. */
void fo_transport_job_set_speaker(bool speaks);

#endif
