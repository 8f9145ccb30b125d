/* How far a run is. */
#include "measure/progress.h"

#include "base/clock.h"

/* Silent before; and between two lines. */
static const int64_t quiet_ns = 3000000000, pause_ns = 500000000;

void fo_measure_progress_begin(fo_measure_progress *p, const fo_measure_bench *bench, int point)
{
    *p = (fo_measure_progress){.point = point, .begin_ns = fo_base_clock_ns()};
    if (bench->options->progress)
        p->bench = bench;
}

/* Seconds until the end of all points, those to come taken to last as their work says. */
static double left(const fo_measure_progress *p, double seconds, int done, int all)
{
    double whole = seconds / done * all, work = 0;
    for (int i = p->point + 1; i < p->bench->point_count; i++)
        work += p->bench->work[i];
    return whole - seconds + whole * work / p->bench->work[p->point];
}

static void put_time(FILE *out, double seconds)
{
    int64_t s = (int64_t)(seconds + 0.5);
    if (s >= 3600)
        fprintf(out, "%lldh%02lldm", (long long)(s / 3600), (long long)(s / 60 % 60));
    else if (s >= 60)
        fprintf(out, "%lldm%02llds", (long long)(s / 60), (long long)(s % 60));
    else
        fprintf(out, "%llds", (long long)s);
}

void fo_measure_progress_show(fo_measure_progress *p, int done, int all)
{
    int64_t now = fo_base_clock_ns();
    if (!p->bench || now - p->begin_ns < quiet_ns || now - p->shown_ns < pause_ns)
        return;
    FILE *out = p->bench->options->progress;
    fprintf(out, "\r\033[K");
    if (p->bench->point_count > 1)
        fprintf(out, "point %d of %d (%s), ", p->point + 1, p->bench->point_count,
                p->bench->results[p->point].label);
    fprintf(out, "round %d of %d, left ", done, all);
    put_time(out, left(p, (double)(now - p->begin_ns) * 1e-9, done, all));
    fflush(out);
    p->shown_ns = now;
}

void fo_measure_progress_end(fo_measure_progress *p)
{
    if (!p->bench || !p->shown_ns)
        return;
    fprintf(p->bench->options->progress, "\r\033[K");
    fflush(p->bench->options->progress);
}
