/* What messages cost computing, as a function of time: straight between the begins and ends of slices. In flight they
 * slow it down; their software takes its place, and waits when there is too much of it at a time. */
#include <stdlib.h>

#include "sim/closed_state.h"

typedef struct bend {
    double at_s, flown, software; /* change of the rates */
} bend;

static int compare(const void *left, const void *right)
{
    const bend *a = left, *b = right;
    return (a->at_s > b->at_s) - (a->at_s < b->at_s);
}

static bool reserve(losses *l, int32_t count)
{
    if (count <= l->capacity)
        return true;
    free(l->of);
    l->of = malloc((size_t)count * sizeof *l->of);
    l->capacity = l->of ? count : 0;
    return l->capacity > 0;
}

/* Something that comes at a rate above 1 at times, and is made up for later. */
typedef struct debt {
    double rate, late;
} debt;

/* When the debt is made up for, if that is before `seconds` have gone; else `seconds`. */
static double made_up(const debt *d, double seconds)
{
    double rate = d->rate > 0 ? d->rate : 0,
           all = d->late > 0 && rate < 1 ? d->late / (1 - rate) : 0;
    return all > 0 && all < seconds ? all : seconds;
}

/* What fits into `seconds`. */
static double pay(debt *d, double seconds)
{
    double all = seconds * (d->rate > 0 ? d->rate : 0) + d->late;
    double fits = all < seconds ? all : seconds;
    d->late = all - fits > 1e-9 * seconds ? all - fits : 0;
    return fits;
}

/* Rates hold until `until`. Ports in parallel are not served later for that (`parallel`). */
static void go_on(losses *l, debt *flown, debt *software, double until, bool parallel)
{
    while (l->of[l->count - 1].at_s < until) {
        loss now = l->of[l->count - 1];
        double seconds = made_up(software, made_up(flown, until - now.at_s));
        now.at_s = seconds < until - now.at_s ? now.at_s + seconds : until;
        now.flown_s += pay(flown, seconds);
        now.software_s += pay(software, seconds);
        if (parallel)
            flown->late = 0;
        l->of[l->count++] = now;
    }
}

static bool sorted_bends(const burden *burdens, int32_t count, bend **out)
{
    bend *bends = malloc((size_t)(2 * count + 1) * sizeof *bends);
    for (int32_t i = 0; bends && i < count; i++) {
        const burden *b = &burdens[i];
        double ends =
            b->ends > b->begins + b->seconds || !b->software ? b->ends : b->begins + b->seconds;
        double rate = ends > b->begins ? b->seconds / (ends - b->begins) : 0;
        double flown = b->software ? 0 : rate, software = b->software ? rate : 0;
        bends[2 * i] = (bend){b->begins, flown, software};
        bends[2 * i + 1] = (bend){ends, -flown, -software};
    }
    *out = bends;
    if (bends)
        qsort(bends, (size_t)(2 * count), sizeof *bends, compare);
    return bends;
}

bool fo_sim_closed_losses(losses *l, const burden *burdens, int32_t count, bool parallel)
{
    bend *bends;
    l->count = 0;
    if (!reserve(l, 6 * count + 4) || !sorted_bends(burdens, count, &bends))
        return false;
    debt flown = {0, 0}, software = {0, 0};
    l->of[l->count++] = (loss){0, 0, 0};
    for (int32_t i = 0; i < 2 * count; i++) {
        go_on(l, &flown, &software, bends[i].at_s, parallel);
        flown.rate += bends[i].flown;
        software.rate += bends[i].software;
    }
    flown.rate = software.rate = 0;
    go_on(l, &flown, &software, l->of[l->count - 1].at_s + flown.late + software.late, parallel);
    free(bends);
    return true;
}

/* Computing that a lane which is never free has done by place `i`, when `part` of it is lost in flight. */
static double done_at(const losses *l, int32_t i, double part)
{
    return l->of[i].at_s - part * l->of[i].flown_s - l->of[i].software_s;
}

double fo_sim_closed_finish(const losses *l, double at, double part, double work)
{
    int32_t low = 0, high = l->count; /* the first place behind `at` */
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (l->of[middle].at_s > at)
            high = middle;
        else
            low = middle + 1;
    }
    if (low == l->count)
        return at + work;
    double share = (at - l->of[low - 1].at_s) / (l->of[low].at_s - l->of[low - 1].at_s);
    double was = done_at(l, low - 1, part), is = done_at(l, low, part);
    double goal = was + share * (is - was) + work;
    while (low < l->count && done_at(l, low, part) < goal)
        low++;
    if (low == l->count)
        return l->of[low - 1].at_s + goal - done_at(l, low - 1, part);
    was = done_at(l, low - 1, part);
    is = done_at(l, low, part);
    double from = l->of[low - 1].at_s;
    if (is > was)
        from += (goal - was) * (l->of[low].at_s - from) / (is - was);
    return later(at, from);
}
