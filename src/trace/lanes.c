/* Sorting events into lanes. */
#include "trace/lanes.h"

#include <stdlib.h>

#include "base/error.h"

const char *fo_event_kind_name(fo_event_kind kind)
{
    static const char *const names[FO_EVENT_KINDS] = {"compute", "add",   "copy", "pack",
                                                      "wait",    "local", "send", "receive"};
    return (unsigned)kind < FO_EVENT_KINDS ? names[kind] : "unknown";
}

const char *fo_trace_event_name(const fo_timeline *timeline, const fo_event *event)
{
    if (event->name < 0 || event->name >= timeline->name_count || !timeline->names[event->name])
        return "?";
    return timeline->names[event->name];
}

const char *fo_trace_channel_name(int channel)
{
    return channel == 0 ? "gathered input" : channel == 1 ? "partial sums" : "other messages";
}

static fo_trace_lane lane_of(const fo_event *event)
{
    if (event->kind != FO_EVENT_SEND && event->kind != FO_EVENT_RECV)
        return (fo_trace_lane){FO_TRACE_COMPUTING, event->rank, -1, -1, 0, 0};
    return (fo_trace_lane){event->kind == FO_EVENT_SEND ? FO_TRACE_SENDING : FO_TRACE_RECEIVING,
                           event->rank,
                           event->peer,
                           event->channel,
                           0,
                           0};
}

static int order(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int compare_lanes(const fo_trace_lane *a, const fo_trace_lane *b)
{
    int by = order(a->rank, b->rank);
    by = by ? by : order(a->type, b->type);
    by = by ? by : order(a->peer, b->peer);
    return by ? by : order(a->channel, b->channel);
}

static int compare_boxes(const void *left, const void *right)
{
    const fo_trace_box *a = left, *b = right;
    fo_trace_lane lane_a = lane_of(a->event), lane_b = lane_of(b->event);
    int by = compare_lanes(&lane_a, &lane_b);
    by = by ? by : order(a->begin_ns, b->begin_ns);
    by = by ? by : order(a->end_ns, b->end_ns);
    return by ? by : (a->event > b->event) - (a->event < b->event);
}

static bool known(const fo_timeline *timeline, const fo_event *event)
{
    return event->kind >= 0 && event->kind < FO_EVENT_KINDS && event->rank >= 0 &&
           event->rank < timeline->ranks;
}

static void fill_boxes(const fo_timeline *timeline, fo_trace_lanes *lanes)
{
    lanes->origin_ns = timeline->begin_ns;
    for (int64_t i = 0; i < timeline->count; i++)
        if (known(timeline, &timeline->events[i]) &&
            timeline->events[i].begin_ns < lanes->origin_ns)
            lanes->origin_ns = timeline->events[i].begin_ns;
    for (int64_t i = 0; i < timeline->count; i++) {
        const fo_event *event = &timeline->events[i];
        if (!known(timeline, event))
            continue;
        int64_t begin = event->begin_ns - lanes->origin_ns, end = event->end_ns - lanes->origin_ns;
        lanes->boxes[lanes->box_count++] = (fo_trace_box){event, begin, end > begin ? end : begin};
    }
}

/* Cuts the sorted boxes into lanes, and what overlaps. */
static void fill_lanes(fo_trace_lanes *lanes)
{
    fo_trace_lane *lane = NULL;
    int64_t end = 0;
    lanes->first_ns = lanes->box_count > 0 ? INT64_MAX : 0;
    for (int64_t i = 0; i < lanes->box_count; i++) {
        fo_trace_box *box = &lanes->boxes[i];
        fo_trace_lane wanted = lane_of(box->event);
        if (!lane || compare_lanes(lane, &wanted) != 0) {
            lane = &lanes->lanes[lanes->lane_count++];
            *lane = wanted;
            lane->first = i;
            end = box->begin_ns;
        }
        lane->count++;
        box->begin_ns = box->begin_ns > end ? box->begin_ns : end;
        box->end_ns = box->end_ns > box->begin_ns ? box->end_ns : box->begin_ns;
        end = box->end_ns;
        lanes->first_ns = lanes->first_ns < box->begin_ns ? lanes->first_ns : box->begin_ns;
        lanes->last_ns = lanes->last_ns > end ? lanes->last_ns : end;
    }
}

fo_status fo_trace_lanes_make(const fo_timeline *timeline, fo_trace_lanes *lanes)
{
    *lanes = (fo_trace_lanes){0};
    size_t count = timeline && timeline->count > 0 ? (size_t)timeline->count : 0;
    if (count == 0)
        return FO_OK;
    lanes->boxes = calloc(count, sizeof *lanes->boxes);
    lanes->lanes = calloc(count, sizeof *lanes->lanes);
    if (!lanes->boxes || !lanes->lanes) {
        fo_trace_lanes_free(lanes);
        return fo_base_error(FO_NO_MEMORY, "no memory to sort %zu events of a timeline", count);
    }
    fill_boxes(timeline, lanes);
    qsort(lanes->boxes, (size_t)lanes->box_count, sizeof *lanes->boxes, compare_boxes);
    fill_lanes(lanes);
    return FO_OK;
}

void fo_trace_lanes_free(fo_trace_lanes *lanes)
{
    free(lanes->boxes);
    free(lanes->lanes);
    *lanes = (fo_trace_lanes){0};
}
