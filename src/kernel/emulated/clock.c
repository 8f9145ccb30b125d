/* The device's clock: when a call begins, and sleeping until it ends. The rule is in emulated.h. */
#include "kernel/emulated/emulated.h"

#include <errno.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>

#include "base/clock.h"

/* A timer rings late by an amount that hardly varies on an idle machine, so it is set that much sooner:
 * `lead` follows the lateness that nine of ten sleeps exceed. The tenth wakes too early and spins for the
 * rest, a few microseconds. A call returned 4 us late instead of 20 (median, one to two ranks on two
 * cores). Lateness above LEAD_MOST_NS is not the timer's, it is other ranks in the way; waking sooner would
 * only add to that. What is shorter than SPIN_NS is not worth a sleep. */
enum { SPIN_NS = 5000, LEAD_UP_NS = 100, LEAD_DOWN_NS = 900, LEAD_MOST_NS = 20000 };

typedef struct device_clock {
    bool set_up;
    bool counted; /* the system counts context switches */
    int64_t free_ns, returned_ns;
    int64_t cpu_ns; /* of the thread, when the last call returned */
    long switches;
    int64_t lead_ns;
    int64_t slice_rows;
} device_clock;

static _Thread_local device_clock own;

static long voluntary_switches(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nvcsw : -1;
}

static int64_t thread_cpu_ns(void)
{
    struct timespec time;
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) != 0)
        return 0;
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void sleep_until(int64_t until_ns)
{
    struct timespec until = {.tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        ;
}

/* Timeouts of this thread end when they say; whether a sleep is counted as a voluntary switch. */
static void set_up(device_clock *clock)
{
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    long before = voluntary_switches();
    sleep_until(fo_base_clock_ns() + 100000);
    clock->counted = before >= 0 && voluntary_switches() > before;
    clock->set_up = true;
}

int64_t fo_kernel_emulated_forgiven(const fo_kernel_emulated_gap *gap)
{
    int64_t busy = gap->counted ? gap->cpu_ns : gap->gap_ns;
    bool waited = gap->counted ? gap->waited : busy > FO_KERNEL_EMULATED_ALLOWANCE_NS;
    if (gap->late_ns <= 0 || waited)
        return 0;
    int64_t blamed = gap->late_ns;
    if (busy > FO_KERNEL_EMULATED_ALLOWANCE_NS)
        blamed -= busy - FO_KERNEL_EMULATED_ALLOWANCE_NS;
    if (blamed > FO_KERNEL_EMULATED_SLACK_NS)
        blamed = FO_KERNEL_EMULATED_SLACK_NS;
    return blamed > 0 ? blamed : 0;
}

/* When the device begins with what is asked of it now. */
static int64_t begin_ns(const device_clock *clock)
{
    int64_t now = fo_base_clock_ns();
    if (now <= clock->free_ns)
        return clock->free_ns;
    fo_kernel_emulated_gap gap = {.late_ns = now - clock->free_ns,
                                  .gap_ns = now - clock->returned_ns,
                                  .cpu_ns = thread_cpu_ns() - clock->cpu_ns,
                                  .counted = clock->counted,
                                  .waited = voluntary_switches() != clock->switches};
    return now - fo_kernel_emulated_forgiven(&gap);
}

static void follow_lateness(device_clock *clock, int64_t late_ns)
{
    if (!clock->lead_ns)
        clock->lead_ns = late_ns / 2;
    else if (late_ns > clock->lead_ns)
        clock->lead_ns += LEAD_UP_NS;
    else
        clock->lead_ns -= LEAD_DOWN_NS;
    if (clock->lead_ns < 0)
        clock->lead_ns = 0;
    if (clock->lead_ns > LEAD_MOST_NS)
        clock->lead_ns = LEAD_MOST_NS;
}

static void return_when_free(device_clock *clock)
{
    int64_t now = fo_base_clock_ns();
    if (clock->free_ns - now > SPIN_NS) {
        int64_t ring = clock->free_ns - clock->lead_ns;
        if (ring <= now)
            ring = clock->free_ns;
        sleep_until(ring);
        now = fo_base_clock_ns();
        follow_lateness(clock, now - ring);
    }
    while (now < clock->free_ns)
        now = fo_base_clock_ns();
}

void fo_kernel_emulated_spend(double seconds)
{
    device_clock *clock = &own;
    if (!(seconds > 0))
        return;
    if (!clock->set_up)
        set_up(clock);
    clock->free_ns = begin_ns(clock) + (int64_t)(seconds * 1e9 + 0.5);
    return_when_free(clock);
    clock->switches = voluntary_switches();
    clock->cpu_ns = thread_cpu_ns();
    clock->returned_ns = fo_base_clock_ns();
}

void fo_kernel_emulated_slice(int64_t rows)
{
    own.slice_rows = rows > 0 ? rows : 0;
}

int64_t fo_kernel_emulated_slice_rows(void)
{
    return own.slice_rows;
}
