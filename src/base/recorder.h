/* Where a rank records its events: memory made before, written by the rank's thread only. */
#ifndef FO_BASE_RECORDER_H
#define FO_BASE_RECORDER_H

#include "flashoverlap/trace.h"

enum { FO_RECORDER_NAMES = 256, FO_RECORDER_NAME = 64 };

typedef struct fo_recorder {
    fo_event *events;
    int64_t count, capacity, dropped;
    int64_t begin_ns;
    int rank;
    int name_count;
    char names[FO_RECORDER_NAMES][FO_RECORDER_NAME];
} fo_recorder;

/* The next event, cleared but for rank and with -1 where it may have nothing; NULL when not recording or
 * full. */
fo_event *fo_base_recorder_event(fo_recorder *recorder, fo_event_kind kind, int32_t name,
                                 int64_t begin_ns, int64_t end_ns);
/* Index of a name, added when it is new; the last one when there are too many. */
int32_t fo_base_recorder_name(fo_recorder *recorder, const char *name);

#endif
