/* Chrome trace JSON: one event a line. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "trace/lanes.h"
#include "trace/page.h"

typedef struct writer {
    fo_trace_out *out;
    const fo_timeline *timeline;
    fo_trace_lanes lanes;
    uint64_t *arrows;     /* of every box: number of the arrow it is an end of, 0 none */
    uint64_t arrow_count; /* of all parts: arrows of different parts never meet */
    int processes;        /* of the parts before */
    bool more;            /* an event was written */
} writer;

/* ---- arrows ---------------------------------------------------------------------------------------- */

typedef struct arrow_end {
    uint64_t flow;
    int32_t kind;
    int64_t box;
} arrow_end;

/* By flow, and SEND before RECV; boxes are in the order of time on each lane. */
static int compare_ends(const void *left, const void *right)
{
    const arrow_end *a = left, *b = right;
    if (a->flow != b->flow)
        return a->flow < b->flow ? -1 : 1;
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    return (a->box > b->box) - (a->box < b->box);
}

/* Numbers the k-th SEND and the k-th RECV of a flow alike; an end that is alone (the other found no room)
 * gets no arrow. */
static void pair_ends(writer *w, const arrow_end *ends, int64_t count)
{
    for (int64_t first = 0, next; first < count; first = next) {
        int64_t receive = first;
        for (next = first; next < count && ends[next].flow == ends[first].flow; next++)
            receive += ends[next].kind == FO_EVENT_SEND;
        for (int64_t k = 0; first + k < receive && receive + k < next; k++) {
            w->arrow_count++;
            w->arrows[ends[first + k].box] = w->arrow_count;
            w->arrows[ends[receive + k].box] = w->arrow_count;
        }
    }
}

static fo_status find_arrows(writer *w)
{
    size_t boxes = (size_t)w->lanes.box_count;
    w->arrows = calloc(boxes + 1, sizeof *w->arrows);
    arrow_end *ends = calloc(boxes + 1, sizeof *ends);
    int64_t count = 0;
    if (!w->arrows || !ends) {
        free(ends);
        return fo_base_error(FO_NO_MEMORY, "no memory for the arrows between %zu events", boxes);
    }
    for (int64_t i = 0; i < w->lanes.box_count; i++) {
        const fo_event *event = w->lanes.boxes[i].event;
        if (event->flow && (event->kind == FO_EVENT_SEND || event->kind == FO_EVENT_RECV))
            ends[count++] = (arrow_end){event->flow, event->kind, i};
    }
    qsort(ends, (size_t)count, sizeof *ends, compare_ends);
    pair_ends(w, ends, count);
    free(ends);
    return FO_OK;
}

/* ---- events ---------------------------------------------------------------------------------------- */

static void begin_event(writer *w, const char *phase, int process, int thread)
{
    fo_trace_print(w->out, "%s\n{\"ph\":\"%s\",\"pid\":%d,\"tid\":%d", w->more ? "," : "", phase,
                   process, thread);
    w->more = true;
}

/* Microseconds with all their nanoseconds. */
static void put_time(writer *w, const char *key, int64_t ns)
{
    fo_trace_print(w->out, ",\"%s\":%" PRId64 ".%03d", key, ns / 1000, (int)(ns % 1000));
}

static void put_slice(writer *w, const fo_event *event)
{
    if (event->shard >= 0)
        fo_trace_print(w->out, " slice %d", event->shard);
    if (event->shard >= 0 && event->sub >= 0)
        fo_trace_print(w->out, ".%d", event->sub);
}

/* "mlp in: slice 2.0", "exposed: slice 2.0 from 3". */
static void put_name(writer *w, const fo_event *event)
{
    static const char *const verbs[FO_EVENT_KINDS] = {"", " add", " copy", " pack", "", "", "", ""};
    const char *verb = verbs[event->kind];
    if (event->kind == FO_EVENT_WAIT)
        fo_trace_put(w->out, "exposed");
    else
        fo_trace_put_json(w->out, fo_trace_event_name(w->timeline, event));
    if (event->shard >= 0 || verb[0] || (event->kind == FO_EVENT_WAIT && event->peer >= 0))
        fo_trace_put(w->out, ":");
    fo_trace_put(w->out, verb);
    put_slice(w, event);
    if (event->kind == FO_EVENT_COMPUTE && event->slot > 0)
        fo_trace_print(w->out, ", product %d", event->slot + 1);
    if (event->peer >= 0)
        fo_trace_print(w->out, " %s %d", event->kind == FO_EVENT_SEND ? "to" : "from", event->peer);
}

static void put_args(writer *w, const fo_event *event)
{
    const struct {
        const char *key;
        int64_t value;
    } args[] = {
        {"slot", event->slot},
        {"step", event->step},
        {"shard", event->shard},
        {"sub", event->sub},
        {"row", event->rows > 0 ? event->row : -1},
        {"rows", event->rows > 0 ? event->rows : -1},
        {"bytes", event->bytes > 0 ? event->bytes : -1},
        {"peer", event->peer},
        {"channel", event->channel},
        {"execution", event->execution},
    };
    fo_trace_put(w->out, ",\"args\":{\"operation\":\"");
    fo_trace_put_json(w->out, fo_trace_event_name(w->timeline, event));
    fo_trace_put(w->out, "\"");
    for (size_t i = 0; i < sizeof args / sizeof args[0]; i++)
        if (args[i].value >= 0)
            fo_trace_print(w->out, ",\"%s\":%" PRId64, args[i].key, args[i].value);
    fo_trace_put(w->out, "}");
}

/* Viewers bind an arrow to the box of its thread that encloses its time. */
static void put_arrow(writer *w, const fo_trace_box *box, uint64_t arrow, int process, int thread)
{
    bool start = box->event->kind == FO_EVENT_SEND;
    begin_event(w, start ? "s" : "f", process, thread);
    fo_trace_put(w->out, start ? "" : ",\"bp\":\"e\"");
    put_time(w, "ts", box->begin_ns);
    fo_trace_print(w->out, ",\"id\":\"0x%" PRIx64 "\",\"cat\":\"message\",\"name\":\"message\"}",
                   arrow);
}

static void put_box(writer *w, int64_t index, int process, int thread)
{
    const fo_trace_box *box = &w->lanes.boxes[index];
    begin_event(w, "X", process, thread);
    put_time(w, "ts", box->begin_ns);
    put_time(w, "dur", box->end_ns - box->begin_ns);
    fo_trace_print(w->out, ",\"cat\":\"%s\",\"name\":\"", fo_event_kind_name(box->event->kind));
    put_name(w, box->event);
    fo_trace_put(w->out, "\"");
    put_args(w, box->event);
    fo_trace_put(w->out, "}");
    if (w->arrows[index])
        put_arrow(w, box, w->arrows[index], process, thread);
}

/* ---- processes and threads ------------------------------------------------------------------------- */

static void put_order(writer *w, const char *what, int process, int thread, int at)
{
    begin_event(w, "M", process, thread);
    fo_trace_print(w->out, ",\"name\":\"%s_sort_index\",\"args\":{\"sort_index\":%d}}", what, at);
}

static void put_process(writer *w, const char *label, int process, int rank)
{
    begin_event(w, "M", process, 0);
    fo_trace_put(w->out, ",\"name\":\"process_name\",\"args\":{\"name\":\"");
    fo_trace_put_json(w->out, label);
    fo_trace_print(w->out, " rank %d\"}}", rank);
    put_order(w, "process", process, 0, process);
}

static void put_thread(writer *w, const fo_trace_lane *lane, int process, int thread)
{
    begin_event(w, "M", process, thread);
    fo_trace_put(w->out, ",\"name\":\"thread_name\",\"args\":{\"name\":\"");
    if (lane->type == FO_TRACE_COMPUTING)
        fo_trace_put(w->out, "compute");
    else
        fo_trace_print(w->out, "%s %d: %s",
                       lane->type == FO_TRACE_SENDING ? "send to" : "receive from", lane->peer,
                       fo_trace_channel_name(lane->channel));
    fo_trace_put(w->out, "\"}}");
    put_order(w, "thread", process, thread, thread);
}

static void put_lanes(writer *w)
{
    int rank = -1, thread = 0;
    for (int64_t i = 0; i < w->lanes.lane_count; i++) {
        const fo_trace_lane *lane = &w->lanes.lanes[i];
        int process = w->processes + lane->rank + 1;
        thread = lane->rank == rank ? thread + 1 : 1;
        rank = lane->rank;
        put_thread(w, lane, process, thread);
        for (int64_t box = lane->first; box < lane->first + lane->count; box++)
            put_box(w, box, process, thread);
    }
}

static fo_status put_part(writer *w, const fo_timeline_part *part)
{
    w->timeline = part->timeline;
    if (!part->timeline)
        return FO_OK;
    fo_status status = fo_trace_lanes_make(part->timeline, &w->lanes);
    if (status == FO_OK)
        status = find_arrows(w);
    if (status == FO_OK) {
        for (int rank = 0; rank < part->timeline->ranks; rank++)
            put_process(w, part->label, w->processes + rank + 1, rank);
        put_lanes(w);
        w->processes += part->timeline->ranks;
    }
    fo_trace_lanes_free(&w->lanes);
    free(w->arrows);
    w->arrows = NULL;
    return status;
}

/* Events without room are no events of the file, but whoever opens it should be able to know. */
static void put_dropped(writer *w, const fo_timeline_part *parts, int count)
{
    int64_t dropped = 0;
    for (int i = 0; i < count; i++)
        dropped += parts[i].timeline ? parts[i].timeline->dropped : 0;
    fo_trace_print(w->out, "\n],\"otherData\":{\"events_without_room\":%" PRId64 "}}\n", dropped);
}

fo_status fo_timeline_write(const fo_timeline_part *parts, int count, const char *path)
{
    writer w = {0};
    fo_status status = fo_trace_out_open(path, &w.out);
    if (status != FO_OK)
        return status;
    fo_trace_put(w.out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
    for (int i = 0; i < count && status == FO_OK; i++)
        status = put_part(&w, &parts[i]);
    if (status != FO_OK) {
        fo_trace_out_abandon(w.out);
        return status;
    }
    put_dropped(&w, parts, count);
    return fo_trace_out_commit(w.out);
}

fo_status fo_trace_timeline_write(const fo_timeline_part *parts, int count, const char *note,
                                  const char *path)
{
    enum { LABEL = 160 };
    fo_timeline_part *noted = calloc((size_t)count + 1, sizeof *noted);
    char(*labels)[LABEL] = calloc((size_t)count + 1, sizeof *labels);
    fo_status status = FO_OK;
    if (!noted || !labels)
        status = fo_base_error(FO_NO_MEMORY, "%s: no memory for %d labels", path, count);
    for (int i = 0; status == FO_OK && i < count; i++) {
        snprintf(labels[i], LABEL, "%s, %s", parts[i].label, note);
        noted[i] = (fo_timeline_part){labels[i], parts[i].timeline};
    }
    if (status == FO_OK)
        status = fo_timeline_write(noted, count, path);
    free(labels);
    free(noted);
    return status;
}
