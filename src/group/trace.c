/* Recording on every rank, and bringing what was recorded to rank 0. */
#include "flashoverlap/trace.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/recorder.h"
#include "group/group.h"

enum {
    DEFAULT_EVENTS = 65536,
    TAG_TRACE = 64 /* from FO_GROUP_FIRST_OWN_TAG, past the barrier's */
};

/* A timeline and what it points to. */
typedef struct owned {
    fo_timeline timeline; /* first: its address is the owner's */
    fo_event *events;
    int64_t capacity;
    char (*names)[FO_RECORDER_NAME];
    const char **pointers;
    int name_count, name_capacity;
} owned;

/* What a rank tells rank 0 before its events. */
typedef struct summary {
    int64_t count, dropped;
    int64_t name_count;
} summary;

int64_t fo_trace_clock(void)
{
    return fo_base_clock_ns();
}

static void drop_recorder(fo_group *group)
{
    fo_recorder **slot = fo_group_recorder(group);
    if (*slot)
        free((*slot)->events);
    free(*slot);
    *slot = NULL;
}

fo_status fo_trace_start(fo_group *group, int64_t events)
{
    fo_recorder **slot = fo_group_recorder(group);
    if (*slot)
        return fo_base_error(FO_INVALID, "trace: rank %d records already, stop first",
                             fo_group_rank(group));
    if (events < 0)
        return fo_base_error(FO_INVALID, "trace: room for %lld events, expected 0 or more",
                             (long long)events);
    *slot = calloc(1, sizeof **slot);
    if (*slot) {
        (*slot)->capacity = events ? events : DEFAULT_EVENTS;
        (*slot)->events = malloc((size_t)(*slot)->capacity * sizeof *(*slot)->events);
    }
    if (!*slot || !(*slot)->events) {
        drop_recorder(group);
        return fo_base_error(FO_NO_MEMORY, "trace: no memory for %lld events", (long long)events);
    }
    /* touched now, so that recording meets no page for the first time */
    memset((*slot)->events, 0, (size_t)(*slot)->capacity * sizeof *(*slot)->events);
    (*slot)->rank = fo_group_rank(group);
    (*slot)->begin_ns = fo_base_clock_ns();
    return FO_OK;
}

void fo_trace_local(fo_group *group, const char *name, int64_t begin_ns)
{
    fo_recorder *recorder = *fo_group_recorder(group);
    if (recorder)
        fo_base_recorder_event(recorder, FO_EVENT_LOCAL, fo_base_recorder_name(recorder, name),
                               begin_ns, fo_base_clock_ns());
}

/* ---- moving what was recorded -------------------------------------------------------------------- */

static fo_status send_bytes(fo_endpoint *endpoint, const void *data, size_t bytes)
{
    fo_request request = {0};
    fo_status status = endpoint->ops->isend(endpoint, &request, 0,
                                            FO_GROUP_FIRST_OWN_TAG + TAG_TRACE, data, bytes, 0);
    return status == FO_OK ? fo_transport_wait_request(endpoint, &request, "trace") : status;
}

static fo_status receive_bytes(fo_endpoint *endpoint, int peer, void *data, size_t bytes)
{
    fo_request request = {0};
    fo_status status = endpoint->ops->irecv(endpoint, &request, peer,
                                            FO_GROUP_FIRST_OWN_TAG + TAG_TRACE, data, bytes);
    return status == FO_OK ? fo_transport_wait_request(endpoint, &request, "trace") : status;
}

static fo_status send_recorded(fo_endpoint *endpoint, const fo_recorder *recorder)
{
    summary mine = {recorder->count, recorder->dropped, recorder->name_count};
    fo_status status = send_bytes(endpoint, &mine, sizeof mine);
    if (status == FO_OK && mine.name_count)
        status = send_bytes(endpoint, recorder->names,
                            (size_t)mine.name_count * sizeof *recorder->names);
    if (status == FO_OK && mine.count)
        status = send_bytes(endpoint, recorder->events, (size_t)mine.count * sizeof(fo_event));
    return status;
}

static fo_status reserve(owned *all, int64_t events, int64_t names)
{
    int64_t capacity = all->timeline.count + events;
    fo_event *moved = realloc(all->events, (size_t)(capacity + 1) * sizeof *moved);
    if (moved)
        all->events = moved;
    void *more = realloc(all->names, (size_t)(all->name_count + names + 1) * sizeof *all->names);
    if (more)
        all->names = more;
    if (!moved || !more)
        return fo_base_error(FO_NO_MEMORY, "trace: no memory for %lld events", (long long)capacity);
    return FO_OK;
}

static int32_t name_of(owned *all, const char *name)
{
    int32_t n = 0;
    while (n < all->name_count && strcmp(all->names[n], name) != 0)
        n++;
    if (n == all->name_count)
        memcpy(all->names[all->name_count++], name, FO_RECORDER_NAME);
    return n;
}

/* Numbers the names of the last `count` events as the timeline does. */
static fo_status adopt(owned *all, const summary *from, char (*names)[FO_RECORDER_NAME])
{
    int32_t number[FO_RECORDER_NAMES];
    for (int64_t n = 0; n < from->name_count; n++)
        number[n] = name_of(all, names[n]);
    for (int64_t e = 0; e < from->count; e++) {
        fo_event *event = &all->events[all->timeline.count + e];
        event->name = number[event->name];
    }
    all->timeline.count += from->count;
    all->timeline.dropped += from->dropped;
    return FO_OK;
}

static fo_status receive_recorded(fo_endpoint *endpoint, int peer, owned *all)
{
    char names[FO_RECORDER_NAMES][FO_RECORDER_NAME];
    summary from;
    fo_status status = receive_bytes(endpoint, peer, &from, sizeof from);
    if (status == FO_OK)
        status = reserve(all, from.count, from.name_count);
    if (status == FO_OK && from.name_count)
        status = receive_bytes(endpoint, peer, names, (size_t)from.name_count * sizeof *names);
    if (status == FO_OK && from.count)
        status = receive_bytes(endpoint, peer, all->events + all->timeline.count,
                               (size_t)from.count * sizeof(fo_event));
    return status == FO_OK ? adopt(all, &from, names) : status;
}

static fo_status take_own(fo_recorder *recorder, owned *all)
{
    summary mine = {recorder->count, recorder->dropped, recorder->name_count};
    fo_status status = reserve(all, mine.count, mine.name_count);
    if (status != FO_OK)
        return status;
    memcpy(all->events, recorder->events, (size_t)mine.count * sizeof(fo_event));
    return adopt(all, &mine, recorder->names);
}

/* ---- order ------------------------------------------------------------------------------------------ */

static int by_flow(const void *a, const void *b)
{
    const fo_event *x = *(fo_event *const *)a, *y = *(fo_event *const *)b;
    return x->flow != y->flow ? (x->flow < y->flow ? -1 : 1) : x->kind - y->kind;
}

static int by_rank(const void *a, const void *b)
{
    const fo_event *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank - y->rank;
    return x->begin_ns != y->begin_ns ? (x->begin_ns < y->begin_ns ? -1 : 1) : x->kind - y->kind;
}

/* A SEND is delivered when its RECV has seen the last message: a sender learns later, and where the receiver
 * reads in place only when it has finished reading. */
static fo_status end_sends(owned *all)
{
    int64_t count = 0, events = all->timeline.count;
    fo_event **ends = malloc((size_t)(events + 1) * sizeof *ends);
    if (!ends)
        return fo_base_error(FO_NO_MEMORY, "trace: no memory for %lld events", (long long)events);
    for (int64_t e = 0; e < events; e++)
        if (all->events[e].flow)
            ends[count++] = &all->events[e];
    qsort(ends, (size_t)count, sizeof *ends, by_flow);
    for (int64_t i = 0; i + 1 < count; i++) /* SEND comes before RECV */
        if (ends[i]->flow == ends[i + 1]->flow && ends[i + 1]->end_ns < ends[i]->end_ns &&
            ends[i + 1]->end_ns >= ends[i]->begin_ns)
            ends[i]->end_ns = ends[i + 1]->end_ns;
    free(ends);
    return FO_OK;
}

/* The events of a lane follow each other. */
static void part_lanes(owned *all)
{
    for (int64_t e = 0; e < all->timeline.count; e++) {
        fo_event *event = &all->events[e];
        if (event->kind != FO_EVENT_SEND && event->kind != FO_EVENT_RECV)
            continue;
        for (int64_t before = e - 1; before >= 0; before--) {
            const fo_event *b = &all->events[before];
            if (b->rank != event->rank)
                break;
            if (b->kind != event->kind || b->peer != event->peer || b->channel != event->channel)
                continue;
            if (event->begin_ns < b->end_ns)
                event->begin_ns = b->end_ns;
            if (event->end_ns < event->begin_ns)
                event->end_ns = event->begin_ns;
            break;
        }
    }
}

static fo_status finish(owned *all, const fo_recorder *recorder, int ranks)
{
    fo_timeline *t = &all->timeline;
    all->pointers = calloc((size_t)all->name_count + 1, sizeof *all->pointers);
    if (!all->pointers)
        return fo_base_error(FO_NO_MEMORY, "trace: no memory for %d names", all->name_count);
    for (int n = 0; n < all->name_count; n++)
        all->pointers[n] = all->names[n];
    fo_status status = end_sends(all);
    if (status != FO_OK)
        return status;
    qsort(all->events, (size_t)t->count, sizeof *all->events, by_rank);
    part_lanes(all);
    t->ranks = ranks;
    t->names = all->pointers;
    t->name_count = all->name_count;
    t->events = all->events;
    t->begin_ns = recorder->begin_ns;
    t->end_ns = fo_base_clock_ns();
    return FO_OK;
}

static fo_status collect(fo_group *group, fo_recorder *recorder, owned *all)
{
    fo_endpoint *endpoint = fo_group_inner(group);
    fo_status status = take_own(recorder, all);
    for (int r = 1; status == FO_OK && r < endpoint->size; r++)
        status = receive_recorded(endpoint, r, all);
    return status == FO_OK ? finish(all, recorder, endpoint->size) : status;
}

fo_status fo_trace_stop(fo_group *group, fo_timeline **timeline)
{
    *timeline = NULL;
    fo_recorder *recorder = *fo_group_recorder(group);
    if (!recorder)
        return fo_base_error(FO_INVALID, "trace: rank %d does not record, start first",
                             fo_group_rank(group));
    fo_status status;
    if (fo_group_rank(group) != 0) {
        status = send_recorded(fo_group_inner(group), recorder);
    } else {
        owned *all = calloc(1, sizeof *all);
        status = all ? collect(group, recorder, all)
                     : fo_base_error(FO_NO_MEMORY, "trace: no memory for a timeline");
        if (status == FO_OK)
            *timeline = &all->timeline;
        else if (all)
            fo_timeline_free(&all->timeline);
    }
    /* requests, and what they point to, are abandoned */
    if (status != FO_OK && status != FO_PEER)
        fo_group_inner(group)->ops->fail(fo_group_inner(group), fo_group_rank(group),
                                         fo_last_error());
    drop_recorder(group);
    return status;
}

void fo_timeline_free(fo_timeline *timeline)
{
    owned *all = (owned *)timeline;
    if (!all)
        return;
    free(all->events);
    free(all->names);
    free(all->pointers);
    free(all);
}
