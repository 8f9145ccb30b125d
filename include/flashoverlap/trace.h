/* Traces: what every rank did when, and files to look at.
 *
 *     fo_trace_start(group, 0);
 *     ... fo_plan_execute ...
 *     fo_timeline *timeline;
 *     fo_trace_stop(group, &timeline);          // on rank 0: all ranks' events
 *     if (timeline)
 *         fo_timeline_write(&(fo_timeline_part){"flash", timeline}, 1, "trace.json");
 *
 * Recording an event is a store into memory made by fo_trace_start: nothing allocates, locks or calls the
 * system. Without fo_trace_start nothing is recorded. */
#ifndef FLASHOVERLAP_TRACE_H
#define FLASHOVERLAP_TRACE_H

#include "flashoverlap/group.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A rank has three kinds of lane: computing (COMPUTE to WAIT and LOCAL: one after the other, never two at
 * once), and a lane for every peer and channel it sends to (SEND) and receives from (RECV). On a lane
 * events do not overlap. */
typedef enum fo_event_kind {
    FO_EVENT_COMPUTE, /* tiles of one COMPUTE task, one after another */
    FO_EVENT_ADD,     /* the same of an ADD task: a pass over received partial sums */
    FO_EVENT_COPY,    /* the same of a COPY task */
    FO_EVENT_PACK,    /* packing a weight */
    FO_EVENT_WAIT, /* nothing to compute, communication in flight: exposed time. peer, channel, step, shard:
                         those of the message waited for */
    FO_EVENT_LOCAL, /* computation outside of plans: a norm, the optimizer, ... */
    FO_EVENT_SEND, /* rows of one SEND task in flight: from posting its first message (or the end of the
                         lane's SEND before) until the last was delivered */
    FO_EVENT_RECV, /* rows of one RECV task arriving: from the first message seen to the last */
    FO_EVENT_KINDS
} fo_event_kind;

/* "compute", "add", "copy", "pack", "wait", "local", "send", "receive". */
const char *fo_event_kind_name(fo_event_kind kind);

typedef struct fo_event {
    int64_t begin_ns, end_ns; /* monotonic clock of the machine, the same for all its ranks */
    int32_t kind;             /* fo_event_kind */
    int32_t rank;
    int32_t name; /* index into fo_timeline.names: the plan's name, or what was done locally */
    /* as in the program; -1 where the event has none */
    int32_t slot, step, shard, sub, peer, channel;
    int32_t execution; /* how many executions of this plan came before */
    int64_t row, rows; /* of the operation; 0 where the event has none */
    int64_t bytes;     /* SEND, RECV */
    uint64_t flow; /* SEND, RECV: the same non-zero number at both ends of a message; otherwise 0 */
} fo_event;

/* What all ranks recorded, by rank and then by begin_ns. */
typedef struct fo_timeline {
    int ranks;
    const char *const *names;
    int name_count;
    const fo_event *events;
    int64_t count;
    int64_t dropped;          /* events for which there was no room */
    int64_t begin_ns, end_ns; /* fo_trace_start to fo_trace_stop, of rank 0 */
} fo_timeline;

/* From here on this rank records up to `events` events (0: 65536). FO_NO_MEMORY. FO_INVALID: already
 * recording. */
fo_status fo_trace_start(fo_group *group, int64_t events);

/* Ends recording and brings all events to rank 0; *timeline is NULL on other ranks. Collective. The caller
 * frees it with fo_timeline_free. FO_NO_MEMORY; FO_PEER, FO_TIMEOUT as for plans. */
fo_status fo_trace_stop(fo_group *group, fo_timeline **timeline);
void fo_timeline_free(fo_timeline *timeline);

/* Notes that something local took from begin_ns to now, as fo_trace_clock gives it; `name` is copied. Does
 * nothing when not recording. */
void fo_trace_local(fo_group *group, const char *name, int64_t begin_ns);
int64_t fo_trace_clock(void);

/* One timeline of a file: what ran, and when. */
typedef struct fo_timeline_part {
    const char *label; /* "flash" */
    const fo_timeline *timeline;
} fo_timeline_part;

/* Writes Chrome trace JSON, for Perfetto (ui.perfetto.dev) and chrome://tracing: a process for every part
 * and rank, a track for every lane, flow arrows from SEND to RECV, times from each part's begin_ns. Beside
 * and renamed: the file is complete or as it was. FO_IO with the system's reason. */
fo_status fo_timeline_write(const fo_timeline_part *parts, int count, const char *path);

/* Whether a file can be made at `path`, to be asked before a long run. Leaves nothing. FO_IO. */
fo_status fo_trace_check_path(const char *path);

#ifdef __cplusplus
}
#endif
#endif
