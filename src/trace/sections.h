/* The sections of the report, each put by a file of its own. Tables, text, bars and curves are finished
 * HTML; only the timelines are drawn in the reader's browser (page.js). */
#ifndef FO_TRACE_SECTIONS_H
#define FO_TRACE_SECTIONS_H

#include "trace/lanes.h"
#include "trace/page.h"

/* Made from page.css and page.js when the library is built. */
extern const char fo_trace_page_css[];
extern const char fo_trace_page_js[];

/* What the rows say in words; the table; the bars. */
void fo_trace_page_headline(fo_trace_out *out, const fo_page *page);
void fo_trace_page_table(fo_trace_out *out, const fo_page *page);
void fo_trace_page_bars(fo_trace_out *out, const fo_page *page);

/* Whether predictions stand beside what was measured. */
bool fo_trace_page_predicts(const fo_page *page);

/* The next row of the point that rows[first] begins, after `row`; row_count when there is none. */
int fo_trace_page_next(const fo_page *page, int first, int row);
/* The first row of the next point; begins with row -1. row_count when there is none. */
int fo_trace_page_next_point(const fo_page *page, int row);
/* The row with the lowest time of the point, other than "none"; -1 when there is none. */
int fo_trace_page_best(const fo_page *page, int first);
/* The unsliced computation alone, of the point; NAN. */
double fo_trace_page_compute(const fo_page *page, int first);

/* Timelines and their exposed time. lanes[i] belongs to page->timelines[i]. FO_NO_MEMORY. */
fo_status fo_trace_page_timelines(fo_trace_out *out, const fo_page *page,
                                  const fo_trace_lanes *lanes);
fo_status fo_trace_page_exposed(fo_trace_out *out, const fo_page *page,
                                const fo_trace_lanes *lanes);

void fo_trace_page_curves(fo_trace_out *out, const fo_page *page);

/* Definitions, how, command, machine. */
void fo_trace_page_about(fo_trace_out *out, const fo_page *page);

#endif
