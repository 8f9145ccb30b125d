/* A text file being written: beside its place, renamed when it is complete. Everything this room writes
 * goes through here. */
#ifndef FO_TRACE_OUT_H
#define FO_TRACE_OUT_H

#include <stddef.h>

#include "flashoverlap/status.h"

/* The first error sticks: what is put afterwards is dropped, and _commit tells it. */
typedef struct fo_trace_out fo_trace_out;

/* *out must be committed or abandoned. FO_IO, FO_NO_MEMORY. */
fo_status fo_trace_out_open(const char *path, fo_trace_out **out);
/* Frees `out`; afterwards the whole file is at its place, or nothing has changed. FO_IO. */
fo_status fo_trace_out_commit(fo_trace_out *out);
/* Frees `out` and leaves nothing. Keeps the error sentence. */
void fo_trace_out_abandon(fo_trace_out *out);

void fo_trace_put(fo_trace_out *out, const char *text);
void fo_trace_put_bytes(fo_trace_out *out, const char *bytes, size_t count);
/* For numbers and fixed words; what came from elsewhere goes through the two below. */
void fo_trace_print(fo_trace_out *out, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The inside of a JSON string, fit for a script block of a page too: no '<' stays. */
void fo_trace_put_json(fo_trace_out *out, const char *text);
/* Text of an element, or the inside of a quoted attribute. NULL puts nothing. In both, bytes that are not
 * UTF-8 become U+FFFD. */
void fo_trace_put_html(fo_trace_out *out, const char *text);

/* A figure for people: a dash when it is not a number, a real minus sign, no negative zero. */
void fo_trace_put_figure(fo_trace_out *out, double value, int decimals);
/* How many decimals show about four digits of `value`, and at least three of much smaller ones beside it. */
int fo_trace_decimals(double value);

#endif
