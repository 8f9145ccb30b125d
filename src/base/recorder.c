/* Recording events. */
#include "base/recorder.h"

#include <stdio.h>
#include <string.h>

fo_event *fo_base_recorder_event(fo_recorder *recorder, fo_event_kind kind, int32_t name,
                                 int64_t begin_ns, int64_t end_ns)
{
    if (!recorder)
        return NULL;
    if (recorder->count == recorder->capacity) {
        recorder->dropped++;
        return NULL;
    }
    fo_event *event = &recorder->events[recorder->count++];
    *event = (fo_event){.begin_ns = begin_ns,
                        .end_ns = end_ns,
                        .kind = kind,
                        .rank = recorder->rank,
                        .name = name,
                        .slot = -1,
                        .step = -1,
                        .shard = -1,
                        .sub = -1,
                        .peer = -1,
                        .channel = -1};
    return event;
}

int32_t fo_base_recorder_name(fo_recorder *recorder, const char *name)
{
    int32_t n = 0;
    while (n < recorder->name_count && strncmp(recorder->names[n], name, FO_RECORDER_NAME - 1) != 0)
        n++;
    if (n < recorder->name_count)
        return n;
    if (n == FO_RECORDER_NAMES)
        return n - 1;
    snprintf(recorder->names[n], FO_RECORDER_NAME, "%s", name);
    return recorder->name_count++;
}
