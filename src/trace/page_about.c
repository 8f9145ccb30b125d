/* What the figures mean, where they come from, and how to have them again. The definitions are those of
 * docs/metrics.md in few words. */
#include "trace/sections.h"

/* `simulated`: what takes the place of the meaning where nothing was run; NULL: the same, "": nothing. */
static void put_meaning(fo_trace_out *out, const fo_page *page)
{
    static const struct {
        const char *term, *meaning, *simulated;
        bool predicted; /* said where there are predictions only */
    } terms[] = {
        {"T",
         "The time of a run: from a common start until the slowest rank has its result. The median "
         "over the runs; <em>low to high</em> are the 10th and the 90th percentile.",
         "The time of a run on the model: from a common start until the slowest rank has its "
         "result.",
         false},
        {"Predicted",
         "T as the simulator has it: the same programs in virtual time, with what the machine was "
         "measured to need for their pieces. <em>error</em>: 100 · (predicted ÷ T − 1).",
         "", true},
        {"Computation alone",
         "The same work of a rank in one piece, nothing sent, nothing waited for. Of a "
         "training step: the step under <em>none</em> over a link without cost.",
         NULL, false},
        {"ECT",
         "Effective communication time: T − computation alone. All that communication costs: "
         "waiting, but also slicing, packing, additions and the handling of messages. Noise can "
         "make it negative.",
         "Effective communication time: T − computation alone. All that communication costs: "
         "waiting, but also slicing, packing, additions and the handling of messages.",
         false},
        {"Hidden %",
         "100 · (1 − ECT ÷ ECT of <em>none</em>): the part of what <em>none</em> pays for "
         "communication that this strategy does not. 0 for <em>none</em> itself.",
         NULL, false},
        {"Exposed",
         "What the slowest rank waits: communication in flight, no computation running. ECT "
         "also holds slicing and handling; a wait for a slower rank is exposed, but not ECT.",
         NULL, false},
        {"Bound",
         "What no schedule can beat: the computation alone, or the transfer of all bytes of the "
         "busiest rank plus the computation on the smallest unit waited for, whichever is longer. "
         "Without an emulated link: the computation alone.",
         "What no schedule can beat on this machine: the computation alone, or the transfer of all "
         "bytes of the busiest rank and the computation on the smallest unit waited for, "
         "whichever is longer.",
         false},
        {"Gap %", "100 · (T ÷ bound − 1): how far a strategy is from what is possible.", NULL,
         false},
        {"Bits",
         "<em>equal</em>: every output of all ranks has the bits it has under the first strategy "
         "compared; of training, every loss and every gradient norm.",
         "", false},
        {"% faster",
         "The part of the time of <em>none</em> that is saved: 100 · (1 − T ÷ T of "
         "<em>none</em>).",
         NULL, false},
    };
    fo_trace_put(out, "<section aria-labelledby=\"meaning\">\n"
                      "<h2 id=\"meaning\">What the figures mean</h2>\n<dl>\n");
    for (size_t i = 0; i < sizeof terms / sizeof terms[0]; i++) {
        bool other = page->simulated && terms[i].simulated;
        const char *meaning = other ? terms[i].simulated : terms[i].meaning;
        if (!*meaning || (terms[i].predicted && !fo_trace_page_predicts(page)))
            continue;
        fo_trace_print(out, "<div><dt>%s</dt><dd>", terms[i].term);
        fo_trace_put(out, meaning);
        fo_trace_put(out, "</dd></div>\n");
    }
    fo_trace_put(out, "</dl>\n</section>\n");
}

static void put_how(fo_trace_out *out, const fo_page *page)
{
    if (!page->how || !page->how[0])
        return;
    fo_trace_put(out, "<section aria-labelledby=\"how\">\n"
                      "<h2 id=\"how\">How the figures were obtained</h2>\n<p>");
    fo_trace_put_html(out, page->how);
    fo_trace_put(out, "</p>\n</section>\n");
}

static void put_command(fo_trace_out *out, const fo_page *page)
{
    if (!page->command || !page->command[0])
        return;
    fo_trace_put(out, "<section aria-labelledby=\"again\">\n"
                      "<h2 id=\"again\">The same again</h2>\n"
                      "<div class=\"command\"><pre tabindex=\"0\"><code id=\"command\">");
    fo_trace_put_html(out, page->command);
    fo_trace_put(out,
                 "</code></pre><button type=\"button\" id=\"copy\" hidden>Copy</button></div>\n"
                 "</section>\n");
}

static void put_machine(fo_trace_out *out, const fo_page *page)
{
    if (page->fact_count <= 0)
        return;
    fo_trace_put(
        out, "<section aria-labelledby=\"machine\">\n"
             "<h2 id=\"machine\">Machine and settings</h2>\n<table class=\"facts\">\n<tbody>\n");
    for (int i = 0; i < page->fact_count; i++) {
        fo_trace_put(out, "<tr><th scope=\"row\">");
        fo_trace_put_html(out, page->facts[i].name);
        fo_trace_put(out, "</th><td>");
        fo_trace_put_html(out, page->facts[i].value);
        fo_trace_put(out, "</td></tr>\n");
    }
    fo_trace_put(out, "</tbody>\n</table>\n</section>\n");
}

void fo_trace_page_about(fo_trace_out *out, const fo_page *page)
{
    put_meaning(out, page);
    put_how(out, page);
    put_command(out, page);
    put_machine(out, page);
}
