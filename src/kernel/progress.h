/* For backends: the hook of fo_kernel_set_progress. */
#ifndef FO_KERNEL_PROGRESS_H
#define FO_KERNEL_PROGRESS_H

#include <stdbool.h>

/* Whether this thread has a hook: without one, work need not be cut for its sake. */
bool fo_kernel_progress_wanted(void);
/* Calls the hook when it is time to; nothing inside a parallel region and on threads that have none. */
void fo_kernel_progress(void);

#endif
