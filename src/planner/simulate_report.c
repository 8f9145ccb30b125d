/* Files of a simulation: timelines of every strategy, and the HTML report, drawn by the same code as measured ones. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "planner/simulate.h"
#include "trace/page.h"

enum { FACTS = 8 };

/* The texts a page points to. */
typedef struct texts {
    char title[96], subtitle[256], how[640], ranks[160], network[256], machine[256], verdict[256];
    fo_page_row rows[FO_PLANNER_STRATEGIES];
    fo_page_fact facts[FACTS];
    int fact_count;
    fo_timeline_part parts[FO_PLANNER_STRATEGIES];
    int part_count;
} texts;

static void fill_rows(const fo_planner_simulation *s, texts *t)
{
    for (int i = 0; i < s->count; i++) {
        const fo_planner_row *row = &s->results[i];
        const fo_sim_report *r = &row->report;
        bool known = !row->note[0];
        t->rows[i] = (fo_page_row){.overlap = s->strategies[i].name,
                                   .t_ms = known ? r->total_s * 1e3 : NAN,
                                   .t_low_ms = NAN,
                                   .t_high_ms = NAN,
                                   .compute_ms = known ? r->compute_s * 1e3 : NAN,
                                   .ect_ms = row->ect_s * 1e3,
                                   .hidden_pct = row->hidden_pct,
                                   .exposed_ms = known ? r->exposed_s * 1e3 : NAN,
                                   .bound_ms = known ? r->bound_s * 1e3 : NAN,
                                   .gap_pct = row->gap_pct,
                                   .bits = -1,
                                   .note = known ? NULL : row->note};
    }
}

static void fill_parts(const fo_planner_simulation *s, texts *t)
{
    for (int i = 0; i < s->count; i++)
        if (s->results[i].timeline && !s->results[i].note[0])
            t->parts[t->part_count++] =
                (fo_timeline_part){s->strategies[i].name,
                                   fo_planner_timeline_get(s->results[i].timeline)};
}

static void add_fact(texts *t, const char *name, const char *value)
{
    if (t->fact_count < FACTS && value[0])
        t->facts[t->fact_count++] = (fo_page_fact){name, value};
}

/* How many ranks the timelines show: all, or those the others are like. */
static int drawn(const texts *t)
{
    int most = 0;
    for (int i = 0; i < t->part_count; i++)
        if (t->parts[i].timeline->ranks > most)
            most = t->parts[i].timeline->ranks;
    return most;
}

static void fill_words(const fo_planner_simulation *s, texts *t)
{
    const fo_simulate_options *o = s->options;
    fo_planner_simulate_title(s, t->title, sizeof t->title);
    size_t used = strlen(t->title);
    snprintf(t->title + used, sizeof t->title - used, ", %d rank%s, simulated", o->ranks,
             o->ranks == 1 ? "" : "s");
    fo_planner_simulate_sizes(s, t->subtitle, sizeof t->subtitle);
    fo_planner_simulate_verdict(s, t->verdict, sizeof t->verdict);
    fo_planner_simulate_network(&s->machine.network, s->nodes > 1, t->network, sizeof t->network);
    snprintf(t->machine, sizeof t->machine, "%s%s%s", s->machine.name,
             s->machine.about[0] ? "; " : "", s->machine.about);
    snprintf(t->ranks, sizeof t->ranks, "%d on %d machine%s", o->ranks, s->nodes,
             s->nodes == 1 ? "" : "s");
    snprintf(t->how, sizeof t->how,
             "No rank was started and nothing was measured: the programs that would run were run "
             "in virtual time on a model of %s. The same input gives the same figures.%s",
             s->machine.name,
             drawn(t) && drawn(t) < o->ranks
                 ? " Ranks that do the same are drawn once, by the first of them, or the first "
                   "ones of many."
                 : "");
    add_fact(t, "verdict", t->verdict);
    add_fact(t, "machine", t->machine);
    add_fact(t, "ranks", t->ranks);
    add_fact(t, "link", t->network);
}

static fo_status write_page(const fo_planner_simulation *s, const texts *t)
{
    fo_page page = {.title = t->title,
                    .subtitle = t->subtitle,
                    .command = s->options->command,
                    .how = t->how,
                    .simulated = true,
                    .facts = t->facts,
                    .fact_count = t->fact_count,
                    .rows = t->rows,
                    .row_count = s->count,
                    .timelines = t->parts,
                    .timeline_count = t->part_count};
    return fo_trace_page_write(&page, s->options->report);
}

fo_status fo_planner_simulate_report(const fo_planner_simulation *s)
{
    const fo_simulate_options *o = s->options;
    fo_status status = FO_OK;
    char note[96];
    if (!o->trace && !o->report)
        return FO_OK;
    texts *t = calloc(1, sizeof *t);
    if (!t)
        return fo_base_error(FO_NO_MEMORY, "no memory for the report");
    fill_parts(s, t);
    fill_rows(s, t);
    fill_words(s, t);
    snprintf(note, sizeof note, "simulated %s", s->machine.name);
    if (o->trace)
        status = fo_trace_timeline_write(t->parts, t->part_count, note, o->trace);
    if (status == FO_OK && o->report)
        status = write_page(s, t);
    free(t);
    return status;
}
