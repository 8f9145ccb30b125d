/* Status texts, the error sentence, the clock, data types and the split into shards. */
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "flashoverlap/group.h"

static _Thread_local char last_error[1024];

const char *fo_status_name(fo_status status)
{
    switch (status) {
#define FO_STATUS_CASE(name, text) \
    case FO_##name: return #name;
        FO_STATUS_LIST(FO_STATUS_CASE)
#undef FO_STATUS_CASE
    default: return "UNKNOWN";
    }
}

const char *fo_status_text(fo_status status)
{
    switch (status) {
#define FO_STATUS_CASE(name, text) \
    case FO_##name: return text;
        FO_STATUS_LIST(FO_STATUS_CASE)
#undef FO_STATUS_CASE
    default: return "unknown status";
    }
}

const char *fo_last_error(void)
{
    return last_error;
}

fo_status fo_base_error(fo_status status, const char *format, ...)
{
    char text[sizeof last_error]; /* arguments may point into last_error */
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(last_error, sizeof last_error, "%s", text);
    return status;
}

void fo_base_error_clear(void)
{
    last_error[0] = '\0';
}

int64_t fo_base_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

size_t fo_dtype_size(fo_dtype dtype)
{
    return dtype == FO_BF16 ? 2 : 4;
}

const char *fo_dtype_name(fo_dtype dtype)
{
    return dtype == FO_BF16 ? "bf16" : "f32";
}

int64_t fo_shard_begin(int64_t rows, int ranks, int rank)
{
    int64_t each = rows / ranks, extra = rows % ranks;
    return each * rank + (rank < extra ? rank : extra);
}

int64_t fo_shard_rows(int64_t rows, int ranks, int rank)
{
    return fo_shard_begin(rows, ranks, rank + 1) - fo_shard_begin(rows, ranks, rank);
}
