/* The timelines of the report: what a script draws them from, and the words around them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "trace/sections.h"

/* Computations are told apart by name and slot. The COLOURS that take longest have a colour of their own,
 * the others share one. */
enum { SLOTS = 4, COLOURS = 6 };

typedef struct operation {
    const char *name;
    int slot;
    int64_t total_ns; /* computing, all ranks and parts */
    int colour;
} operation;

typedef struct catalogue {
    operation *operations;
    int count;
    int **
        known; /* of every part: [name * SLOTS + slot], index + 1 of the operation, 0 not yet seen */
} catalogue;

static int slot_of(const fo_event *event)
{
    int slot = event->kind == FO_EVENT_COMPUTE && event->slot > 0 ? event->slot : 0;
    return slot < SLOTS ? slot : SLOTS - 1;
}

/* Names out of range share the place behind the last name. */
static int *place_of(int *known, const fo_timeline *timeline, const fo_event *event)
{
    bool named = event->name >= 0 && event->name < timeline->name_count;
    return &known[(named ? event->name : timeline->name_count) * SLOTS + slot_of(event)];
}

static int find_operation(catalogue *c, const char *name, int slot)
{
    int i = 0;
    while (i < c->count &&
           (c->operations[i].slot != slot || strcmp(c->operations[i].name, name) != 0))
        i++;
    if (i == c->count)
        c->operations[c->count++] = (operation){name, slot, 0, COLOURS};
    return i;
}

static void collect_part(catalogue *c, int *known, const fo_timeline *timeline,
                         const fo_trace_lanes *lanes)
{
    for (int64_t i = 0; i < lanes->box_count; i++) {
        const fo_trace_box *box = &lanes->boxes[i];
        int *place = place_of(known, timeline, box->event);
        if (!*place)
            *place = 1 + find_operation(c, fo_trace_event_name(timeline, box->event),
                                        slot_of(box->event));
        if (box->event->kind == FO_EVENT_COMPUTE)
            c->operations[*place - 1].total_ns += box->end_ns - box->begin_ns + 1;
    }
}

static void give_colours(catalogue *c)
{
    for (int colour = 0; colour < COLOURS; colour++) {
        operation *longest = NULL;
        for (int i = 0; i < c->count; i++) {
            operation *o = &c->operations[i];
            if (o->colour == COLOURS && o->total_ns > (longest ? longest->total_ns : 0))
                longest = o;
        }
        if (longest)
            longest->colour = colour;
    }
}

static int names_of(const fo_timeline *timeline)
{
    return timeline && timeline->name_count > 0 ? timeline->name_count : 0;
}

static void catalogue_free(catalogue *c, int parts)
{
    for (int i = 0; c->known && i < parts; i++)
        free(c->known[i]);
    free(c->known);
    free(c->operations);
}

static fo_status catalogue_make(const fo_page *page, const fo_trace_lanes *lanes, catalogue *c)
{
    size_t most = 1;
    for (int i = 0; i < page->timeline_count; i++)
        most += (size_t)(names_of(page->timelines[i].timeline) + 1) * SLOTS;
    c->operations = calloc(most, sizeof *c->operations);
    c->known = calloc((size_t)page->timeline_count, sizeof *c->known);
    bool enough = c->operations && c->known;
    for (int i = 0; i < page->timeline_count && enough; i++) {
        const fo_timeline *timeline = page->timelines[i].timeline;
        c->known[i] = calloc((size_t)(names_of(timeline) + 1) * SLOTS, sizeof **c->known);
        enough = c->known[i] != NULL;
        if (enough && timeline)
            collect_part(c, c->known[i], timeline, &lanes[i]);
    }
    if (!enough)
        return fo_base_error(FO_NO_MEMORY, "no memory for the names of %d timelines",
                             page->timeline_count);
    give_colours(c);
    return FO_OK;
}

/* ---- data ------------------------------------------------------------------------------------------ */

static void put_operations(fo_trace_out *out, const catalogue *c)
{
    fo_trace_put(out, "\"operations\":[");
    for (int i = 0; i < c->count; i++) {
        fo_trace_put(out, i ? ",[\"" : "[\"");
        fo_trace_put_json(out, c->operations[i].name);
        fo_trace_print(out, "\",%d,%d]", c->operations[i].slot, c->operations[i].colour);
    }
    fo_trace_put(out, "]");
}

/* Of every box: nanoseconds since the end of the one before, duration, kind, operation, shard, sub, row,
 * rows, peer. page.js reads them in this order. */
static void put_lane(fo_trace_out *out, const fo_trace_lanes *lanes, const fo_trace_lane *lane,
                     int *known, const fo_timeline *timeline)
{
    int64_t end = lanes->first_ns;
    fo_trace_print(out, "[%d,%d,%d,%d,[", lane->type, lane->rank, lane->peer, lane->channel);
    for (int64_t i = lane->first; i < lane->first + lane->count; i++) {
        const fo_trace_box *box = &lanes->boxes[i];
        const fo_event *event = box->event;
        fo_trace_print(out, "%s%" PRId64 ",%" PRId64 ",%d,%d,%d,%d,%" PRId64 ",%" PRId64 ",%d",
                       i > lane->first ? "," : "", box->begin_ns - end, box->end_ns - box->begin_ns,
                       event->kind, *place_of(known, timeline, event) - 1, event->shard, event->sub,
                       event->row, event->rows, event->peer);
        end = box->end_ns;
    }
    fo_trace_put(out, "]]");
}

static void put_part_data(fo_trace_out *out, const fo_timeline_part *part,
                          const fo_trace_lanes *lanes, int *known)
{
    fo_trace_put(out, "{\"label\":\"");
    fo_trace_put_json(out, part->label);
    fo_trace_print(out, "\",\"ranks\":%d,\"span\":%" PRId64 ",\"lanes\":[",
                   part->timeline ? part->timeline->ranks : 0, lanes->last_ns - lanes->first_ns);
    for (int64_t i = 0; i < lanes->lane_count; i++) {
        fo_trace_put(out, i ? ",\n" : "");
        put_lane(out, lanes, &lanes->lanes[i], known, part->timeline);
    }
    fo_trace_put(out, "]}");
}

static void put_data(fo_trace_out *out, const fo_page *page, const fo_trace_lanes *lanes,
                     const catalogue *c)
{
    fo_trace_put(out, "<script type=\"application/json\" id=\"timeline-data\">{");
    put_operations(out, c);
    fo_trace_put(out, ",\n\"parts\":[");
    for (int i = 0; i < page->timeline_count; i++) {
        fo_trace_put(out, i ? ",\n" : "");
        put_part_data(out, &page->timelines[i], &lanes[i], c->known[i]);
    }
    fo_trace_put(out, "]}</script>\n");
}

/* ---- words ----------------------------------------------------------------------------------------- */

static void put_swatch(fo_trace_out *out, const char *kind, const char *text)
{
    fo_trace_print(out, "<li><span class=\"swatch %s\"></span>%s</li>", kind, text);
}

static void put_operation_swatches(fo_trace_out *out, const catalogue *c)
{
    bool others = false;
    for (int colour = 0; colour < COLOURS; colour++)
        for (int i = 0; i < c->count; i++) {
            if (c->operations[i].colour != colour)
                continue;
            fo_trace_print(out, "<li><span class=\"swatch op%d\"></span>", colour);
            fo_trace_put_html(out, c->operations[i].name);
            if (c->operations[i].slot > 0)
                fo_trace_print(out, ", product %d", c->operations[i].slot + 1);
            fo_trace_put(out, "</li>");
        }
    for (int i = 0; i < c->count; i++)
        others = others || (c->operations[i].colour == COLOURS && c->operations[i].total_ns > 0);
    if (others)
        fo_trace_print(out, "<li><span class=\"swatch op%d\"></span>other operations</li>",
                       COLOURS);
}

/* Only what there is: a legend of what can't be seen is noise. */
static void put_legend(fo_trace_out *out, const fo_page *page, const fo_trace_lanes *lanes,
                       const catalogue *c)
{
    bool seen[FO_EVENT_KINDS] = {false}, sums = false, inputs = false;
    for (int part = 0; part < page->timeline_count; part++)
        for (int64_t i = 0; i < lanes[part].box_count; i++) {
            const fo_event *event = lanes[part].boxes[i].event;
            bool travels = event->kind == FO_EVENT_SEND || event->kind == FO_EVENT_RECV;
            seen[event->kind] = true;
            sums = sums || (travels && event->channel == 1);
            inputs = inputs || (travels && event->channel != 1);
        }
    fo_trace_put(out, "<ul class=\"legend\">");
    put_operation_swatches(out, c);
    if (seen[FO_EVENT_ADD] || seen[FO_EVENT_COPY] || seen[FO_EVENT_PACK])
        put_swatch(out, "pass", "adding, copying, packing");
    if (seen[FO_EVENT_LOCAL])
        put_swatch(out, "local", "other computation");
    if (seen[FO_EVENT_WAIT])
        put_swatch(out, "wait", "<strong>exposed: waiting</strong>");
    if (inputs)
        put_swatch(out, "inputs", "message: gathered input");
    if (sums)
        put_swatch(out, "sums", "message: partial sums");
    fo_trace_put(out, "</ul>\n");
}

/* Waiting of the rank that waits longest. */
static int64_t longest_wait(const fo_trace_lanes *lanes)
{
    int64_t longest = 0;
    for (int64_t i = 0; i < lanes->lane_count; i++) {
        const fo_trace_lane *lane = &lanes->lanes[i];
        int64_t sum = 0;
        for (int64_t k = lane->first; k < lane->first + lane->count; k++)
            if (lanes->boxes[k].event->kind == FO_EVENT_WAIT)
                sum += lanes->boxes[k].end_ns - lanes->boxes[k].begin_ns;
        longest = sum > longest ? sum : longest;
    }
    return longest;
}

static void put_part(fo_trace_out *out, const fo_timeline_part *part, const fo_trace_lanes *lanes,
                     int index)
{
    double span = (double)(lanes->last_ns - lanes->first_ns) / 1e6;
    int decimals = fo_trace_decimals(span);
    fo_trace_put(out, "<div class=\"part\">\n<h3>");
    fo_trace_put_html(out, part->label);
    fo_trace_put(out, " <span class=\"what\">");
    if (lanes->box_count == 0) {
        fo_trace_put(out, "nothing was recorded</span></h3>\n</div>\n");
        return;
    }
    fo_trace_put_figure(out, span, decimals);
    fo_trace_put(out, " ms, of which the rank that waits longest is exposed ");
    fo_trace_put_figure(out, (double)longest_wait(lanes) / 1e6, decimals);
    fo_trace_put(out, " ms");
    if (part->timeline->dropped > 0)
        fo_trace_print(out, "; %" PRId64 " events found no room and are missing",
                       part->timeline->dropped);
    fo_trace_print(out, "</span></h3>\n<div class=\"lanes\" data-part=\"%d\"></div>\n</div>\n",
                   index);
}

static void put_words(fo_trace_out *out, const fo_page *page)
{
    fo_trace_put(out,
                 "<section aria-labelledby=\"timelines\">\n<h2 id=\"timelines\">Timelines</h2>\n"
                 "<p class=\"aside\">One run of each strategy");
    if (page->row_count > 0 && page->rows[0].point) {
        fo_trace_put(out, " at ");
        fo_trace_put_html(out, page->rows[0].point);
    }
    fo_trace_put(out,
                 ", all drawn to one time scale. A rank has a lane of what it computes; the thin "
                 "lines below it are what it sends (upper) and receives (lower). What is too short "
                 "to be seen alone has as much height as it has time.</p>\n");
}

static void put_tools(fo_trace_out *out)
{
    fo_trace_put(
        out, "<noscript><p class=\"notice\">The timelines are drawn by a script of this page, and "
             "scripts are switched off; all else is complete without.</p></noscript>\n"
             "<div class=\"tools\" hidden>"
             "<button type=\"button\" data-zoom=\"in\" aria-label=\"Zoom in\">+</button>"
             "<button type=\"button\" data-zoom=\"out\" aria-label=\"Zoom out\">−</button>"
             "<button type=\"button\" data-zoom=\"left\" aria-label=\"Earlier\">◀</button>"
             "<button type=\"button\" data-zoom=\"right\" aria-label=\"Later\">▶</button>"
             "<button type=\"button\" data-zoom=\"all\">Show all</button>"
             "<span class=\"range\" aria-live=\"polite\"></span></div>\n");
}

fo_status fo_trace_page_timelines(fo_trace_out *out, const fo_page *page,
                                  const fo_trace_lanes *lanes)
{
    catalogue c = {0};
    fo_status status = catalogue_make(page, lanes, &c);
    if (status == FO_OK) {
        put_words(out, page);
        put_legend(out, page, lanes, &c);
        put_tools(out);
        for (int i = 0; i < page->timeline_count; i++)
            put_part(out, &page->timelines[i], &lanes[i], i);
        put_data(out, page, lanes, &c);
        fo_trace_put(out, "</section>\n");
    }
    catalogue_free(&c, page->timeline_count);
    return status;
}
