/* The progress hook: who is called from inside long kernels, and when. */
#include "kernel/progress.h"

#include <omp.h>
#include <stddef.h>

#include "base/clock.h"
#include "kernel/kernel.h"

static _Thread_local struct {
    void (*call)(void *arg);
    void *arg;
    int64_t interval_ns, next_ns;
} hook;

void fo_kernel_set_progress(void (*progress)(void *arg), void *arg, int64_t interval_ns)
{
    hook.call = progress;
    hook.arg = arg;
    hook.interval_ns = interval_ns;
    hook.next_ns = progress ? fo_base_clock_ns() + interval_ns : 0;
}

bool fo_kernel_progress_wanted(void)
{
    return hook.call != NULL;
}

void fo_kernel_progress(void)
{
    if (!hook.call || omp_in_parallel() || fo_base_clock_ns() < hook.next_ns)
        return;
    hook.call(hook.arg);
    hook.next_ns = fo_base_clock_ns() + hook.interval_ns;
}
