/* Exposed time by operation and peer: who waited for whom. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/error.h"
#include "trace/sections.h"

enum { SHOWN = 8 }; /* lines of a strategy; the others are summed up in one */

typedef struct wait {
    int name, rank, peer;
    int64_t ns, rank_ns; /* of this line; of all lines of its rank */
} wait;

typedef struct wait_table {
    wait *waits;
    int64_t count;
} wait_table;

static int order(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int compare_keys(const void *left, const void *right)
{
    const wait *a = left, *b = right;
    int by = order(a->rank, b->rank);
    by = by ? by : order(a->name, b->name);
    return by ? by : order(a->peer, b->peer);
}

/* The rank that waits longest first, and its longest waits. */
static int compare_times(const void *left, const void *right)
{
    const wait *a = left, *b = right;
    int by = order(b->rank_ns, a->rank_ns);
    by = by ? by : order(a->rank, b->rank);
    by = by ? by : order(b->ns, a->ns);
    return by ? by : compare_keys(left, right);
}

/* Adds up lines of the same operation, rank and peer. */
static void merge(wait_table *table)
{
    int64_t kept = 0;
    qsort(table->waits, (size_t)table->count, sizeof *table->waits, compare_keys);
    for (int64_t i = 0; i < table->count; i++) {
        if (kept > 0 && compare_keys(&table->waits[kept - 1], &table->waits[i]) == 0)
            table->waits[kept - 1].ns += table->waits[i].ns;
        else
            table->waits[kept++] = table->waits[i];
    }
    table->count = kept;
}

static void sum_ranks(wait_table *table)
{
    for (int64_t first = 0, next; first < table->count; first = next) {
        int64_t sum = 0;
        for (next = first; next < table->count; next++) {
            if (table->waits[next].rank != table->waits[first].rank)
                break;
            sum += table->waits[next].ns;
        }
        for (int64_t i = first; i < next; i++)
            table->waits[i].rank_ns = sum;
    }
}

static fo_status make_table(const fo_trace_lanes *lanes, wait_table *table)
{
    int64_t count = 0;
    for (int64_t i = 0; i < lanes->box_count; i++)
        count += lanes->boxes[i].event->kind == FO_EVENT_WAIT;
    table->waits = calloc((size_t)count + 1, sizeof *table->waits);
    if (!table->waits)
        return fo_base_error(FO_NO_MEMORY, "no memory to add up %" PRId64 " waits", count);
    for (int64_t i = 0; i < lanes->box_count; i++) {
        const fo_trace_box *box = &lanes->boxes[i];
        const fo_event *event = box->event;
        if (event->kind == FO_EVENT_WAIT && box->end_ns > box->begin_ns)
            table->waits[table->count++] =
                (wait){event->name, event->rank, event->peer, box->end_ns - box->begin_ns, 0};
    }
    merge(table);
    sum_ranks(table);
    qsort(table->waits, (size_t)table->count, sizeof *table->waits, compare_times);
    return FO_OK;
}

/* ---- HTML ------------------------------------------------------------------------------------------ */

static void put_time(fo_trace_out *out, int64_t ns, int64_t longest, int decimals)
{
    fo_trace_put(out, "<td>");
    fo_trace_put_figure(out, (double)ns / 1e6, decimals);
    fo_trace_print(out,
                   "</td><td class=\"waiting\"><span class=\"wait\" style=\"width:%.2f%%\"></span>"
                   "</td></tr>\n",
                   longest > 0 ? 100.0 * (double)ns / (double)longest : 0.0);
}

static void put_wait(fo_trace_out *out, const fo_timeline *timeline, const wait *w, int64_t longest,
                     int decimals)
{
    const fo_event named = {.name = w->name};
    fo_trace_put(out, "<tr><th scope=\"row\">");
    fo_trace_put_html(out, fo_trace_event_name(timeline, &named));
    fo_trace_print(out, "</th><td>%d</td>", w->rank);
    if (w->peer >= 0)
        fo_trace_print(out, "<td>%d</td>", w->peer);
    else
        fo_trace_put(out, "<td>–</td>");
    put_time(out, w->ns, longest, decimals);
}

/* What is not shown line by line: a line a rank. */
static void put_rest(fo_trace_out *out, const wait_table *table, int decimals)
{
    for (int64_t first = SHOWN, next; first < table->count; first = next) {
        int64_t sum = 0;
        int rank = table->waits[first].rank;
        for (next = first; next < table->count && table->waits[next].rank == rank; next++)
            sum += table->waits[next].ns;
        fo_trace_print(out, "<tr><th scope=\"row\">%" PRId64 " more%s</th><td>%d</td><td></td><td>",
                       next - first, first == SHOWN && rank == table->waits[0].rank ? "" : ", all",
                       rank);
        fo_trace_put_figure(out, (double)sum / 1e6, decimals);
        fo_trace_put(out, "</td><td></td></tr>\n");
    }
}

static void put_table(fo_trace_out *out, const fo_timeline_part *part, const wait_table *table,
                      int64_t longest, int decimals)
{
    fo_trace_put(out, "<tbody>\n<tr class=\"group\"><th scope=\"rowgroup\" colspan=\"5\">");
    fo_trace_put_html(out, part->label);
    fo_trace_put(out, " <span class=\"what\">");
    if (table->count == 0) {
        fo_trace_put(out, "no rank waited</span></th></tr>\n</tbody>\n");
        return;
    }
    fo_trace_print(out, "rank %d waits longest, ", table->waits[0].rank);
    fo_trace_put_figure(out, (double)table->waits[0].rank_ns / 1e6, decimals);
    fo_trace_put(out, " ms in all</span></th></tr>\n");
    for (int64_t i = 0; i < table->count && i < SHOWN; i++)
        put_wait(out, part->timeline, &table->waits[i], longest, decimals);
    if (table->count > SHOWN)
        put_rest(out, table, decimals);
    fo_trace_put(out, "</tbody>\n");
}

static void put_tables(fo_trace_out *out, const fo_page *page, const wait_table *tables)
{
    int64_t longest = 0;
    for (int part = 0; part < page->timeline_count; part++)
        for (int64_t i = 0; i < tables[part].count; i++)
            longest = tables[part].waits[i].ns > longest ? tables[part].waits[i].ns : longest;
    int decimals = fo_trace_decimals((double)longest / 1e6);
    fo_trace_put(
        out, "<section aria-labelledby=\"exposed\">\n<h2 id=\"exposed\">Exposed time, by operation "
             "and peer</h2>\n<p class=\"aside\">Of the runs drawn above. A rank waits when it has "
             "nothing to compute and a message it needs is still under way.</p>\n"
             "<div class=\"scroll\" role=\"region\" aria-labelledby=\"exposed\" tabindex=\"0\">\n"
             "<table class=\"waits\">\n<thead><tr><th scope=\"col\">operation</th>"
             "<th scope=\"col\">rank</th><th scope=\"col\">waits for</th><th scope=\"col\">ms</th>"
             "<td></td></tr></thead>\n");
    for (int part = 0; part < page->timeline_count; part++)
        put_table(out, &page->timelines[part], &tables[part], longest, decimals < 2 ? 2 : decimals);
    fo_trace_put(out, "</table>\n</div>\n</section>\n");
}

fo_status fo_trace_page_exposed(fo_trace_out *out, const fo_page *page, const fo_trace_lanes *lanes)
{
    fo_status status = FO_OK;
    int parts = page->timeline_count;
    wait_table *tables = calloc((size_t)parts, sizeof *tables);
    if (!tables)
        return fo_base_error(FO_NO_MEMORY, "no memory for the waits of %d timelines", parts);
    for (int i = 0; i < parts && status == FO_OK; i++)
        status = make_table(&lanes[i], &tables[i]);
    if (status == FO_OK)
        put_tables(out, page, tables);
    for (int i = 0; i < parts; i++)
        free(tables[i].waits);
    free(tables);
    return status;
}
