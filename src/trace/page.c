/* The report: the order of its sections. */
#include "trace/page.h"

#include <stdlib.h>

#include "base/error.h"
#include "trace/sections.h"

static const char *or_default(const char *text, const char *otherwise)
{
    return text && text[0] ? text : otherwise;
}

/* Nothing may be fetched: the page says so to the browser, too. */
static void put_head(fo_trace_out *out, const fo_page *page)
{
    fo_trace_put(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                      "<meta name=\"color-scheme\" content=\"light dark\">\n"
                      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                      "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n<title>");
    fo_trace_put_html(out, or_default(page->title, "FlashOverlap report"));
    fo_trace_put(out, "</title>\n<style>\n");
    fo_trace_put(out, fo_trace_page_css);
    fo_trace_put(out, "</style>\n</head>\n<body>\n<main>\n");
}

/* What is no measurement of real work over a real link says so where the figures are. */
static void put_origin(fo_trace_out *out, const fo_page *page)
{
    fo_trace_put(out, page->simulated ? "<p class=\"emulated\"><strong>Simulated.</strong> "
                                      : "<p class=\"emulated\"><strong>Emulated.</strong> ");
    fo_trace_put_html(out, or_default(page->how,
                                      page->simulated
                                          ? "Nothing was run: the figures are those of a model."
                                          : "The computation or the link between the ranks is "
                                            "emulated."));
    fo_trace_put(out, "</p>\n");
}

static void put_top(fo_trace_out *out, const fo_page *page)
{
    fo_trace_put(out, "<header>\n<h1>");
    fo_trace_put_html(out, or_default(page->title, "FlashOverlap report"));
    fo_trace_put(out, "</h1>\n");
    if (page->subtitle && page->subtitle[0]) {
        fo_trace_put(out, "<p class=\"subtitle\">");
        fo_trace_put_html(out, page->subtitle);
        fo_trace_put(out, "</p>\n");
    }
    fo_trace_put(out, "</header>\n");
    if (page->interrupted)
        fo_trace_put(out,
                     "<p class=\"notice\" role=\"note\"><strong>The run was interrupted.</strong> "
                     "The figures are of what was measured until then.</p>\n");
    fo_trace_page_headline(out, page);
    if (page->simulated || page->emulated)
        put_origin(out, page);
}

/* Lanes of all timelines; those before a failure are freed by the caller, too. */
static fo_status make_lanes(const fo_page *page, fo_trace_lanes *lanes)
{
    fo_status status = FO_OK;
    for (int i = 0; i < page->timeline_count && status == FO_OK; i++)
        status = fo_trace_lanes_make(page->timelines[i].timeline, &lanes[i]);
    return status;
}

static fo_status put_timelines(fo_trace_out *out, const fo_page *page)
{
    if (page->timeline_count <= 0)
        return FO_OK;
    fo_trace_lanes *lanes = calloc((size_t)page->timeline_count, sizeof *lanes);
    if (!lanes)
        return fo_base_error(FO_NO_MEMORY, "no memory for %d timelines", page->timeline_count);
    fo_status status = make_lanes(page, lanes);
    if (status == FO_OK)
        status = fo_trace_page_timelines(out, page, lanes);
    if (status == FO_OK)
        status = fo_trace_page_exposed(out, page, lanes);
    for (int i = 0; i < page->timeline_count; i++)
        fo_trace_lanes_free(&lanes[i]);
    free(lanes);
    return status;
}

fo_status fo_trace_page_write(const fo_page *page, const char *path)
{
    fo_trace_out *out;
    fo_status status = fo_trace_out_open(path, &out);
    if (status != FO_OK)
        return status;
    put_head(out, page);
    put_top(out, page);
    fo_trace_page_table(out, page);
    fo_trace_page_bars(out, page);
    status = put_timelines(out, page);
    if (status != FO_OK) {
        fo_trace_out_abandon(out);
        return status;
    }
    fo_trace_page_curves(out, page);
    fo_trace_page_about(out, page);
    fo_trace_put(out, "</main>\n<script>\n");
    fo_trace_put(out, fo_trace_page_js);
    fo_trace_put(out, "</script>\n</body>\n</html>\n");
    return fo_trace_out_commit(out);
}
