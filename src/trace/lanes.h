/* Events sorted into lanes, as both files show them. */
#ifndef FO_TRACE_LANES_H
#define FO_TRACE_LANES_H

#include "flashoverlap/trace.h"
#include "trace/out.h"

typedef enum fo_trace_lane_type {
    FO_TRACE_COMPUTING,
    FO_TRACE_SENDING,
    FO_TRACE_RECEIVING
} fo_trace_lane_type;

typedef struct fo_trace_box {
    const fo_event *event;
    int64_t begin_ns,
        end_ns; /* from the origin; on a lane never before the end of the box before */
} fo_trace_box;

typedef struct fo_trace_lane {
    fo_trace_lane_type type;
    int rank, peer, channel; /* peer and channel: -1 when computing */
    int64_t first, count;    /* into boxes */
} fo_trace_lane;

/* Lanes by rank, type, peer, channel; boxes by lane and time. Points into the timeline. */
typedef struct fo_trace_lanes {
    fo_trace_box *boxes;
    fo_trace_lane *lanes;
    int64_t box_count, lane_count;
    int64_t origin_ns;         /* of the machine's clock */
    int64_t first_ns, last_ns; /* from the origin: the first begin and the last end */
} fo_trace_lanes;

/* Leaves out events of unknown kind or rank. The origin is the timeline's begin, or the first event where a
 * rank was ahead of it. FO_NO_MEMORY. */
fo_status fo_trace_lanes_make(const fo_timeline *timeline, fo_trace_lanes *lanes);
void fo_trace_lanes_free(fo_trace_lanes *lanes);

/* The name of an event; "?" when its index is out of range. */
const char *fo_trace_event_name(const fo_timeline *timeline, const fo_event *event);
/* "gathered input", "partial sums". */
const char *fo_trace_channel_name(int channel);

#endif
