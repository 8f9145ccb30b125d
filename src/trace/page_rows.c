/* The figures of the report: in words, as a table, as bars. */
#include <math.h>
#include <string.h>

#include "trace/sections.h"

/* ---- points ---------------------------------------------------------------------------------------- */

static bool same_point(const fo_page_row *a, const fo_page_row *b)
{
    return a->point == b->point || (a->point && b->point && strcmp(a->point, b->point) == 0);
}

int fo_trace_page_next(const fo_page *page, int first, int row)
{
    for (row++; row < page->row_count; row++)
        if (same_point(&page->rows[row], &page->rows[first]))
            break;
    return row;
}

int fo_trace_page_next_point(const fo_page *page, int row)
{
    for (row++; row < page->row_count; row++) {
        bool seen = false;
        for (int before = 0; before < row && !seen; before++)
            seen = same_point(&page->rows[before], &page->rows[row]);
        if (!seen)
            break;
    }
    return row;
}

static bool several_points(const fo_page *page)
{
    return fo_trace_page_next_point(page, fo_trace_page_next_point(page, -1)) < page->row_count;
}

static bool measured(const fo_page_row *row)
{
    return isfinite(row->t_ms) && !row->note;
}

static bool is_none(const fo_page_row *row)
{
    return row->overlap && strcmp(row->overlap, "none") == 0;
}

int fo_trace_page_best(const fo_page *page, int first)
{
    int best = -1;
    for (int i = first; i < page->row_count; i = fo_trace_page_next(page, first, i)) {
        const fo_page_row *row = &page->rows[i];
        if (!is_none(row) && measured(row) && (best < 0 || row->t_ms < page->rows[best].t_ms))
            best = i;
    }
    return best;
}

double fo_trace_page_compute(const fo_page *page, int first)
{
    for (int i = first; i < page->row_count; i = fo_trace_page_next(page, first, i))
        if (isfinite(page->rows[i].compute_ms))
            return page->rows[i].compute_ms;
    return NAN;
}

/* The row of "none" that has a time; -1. */
static int find_none(const fo_page *page, int first)
{
    for (int i = first; i < page->row_count; i = fo_trace_page_next(page, first, i))
        if (is_none(&page->rows[i]) && measured(&page->rows[i]))
            return i;
    return -1;
}

/* ---- the headline ---------------------------------------------------------------------------------- */

static void put_strategy(fo_trace_out *out, const fo_page_row *row)
{
    fo_trace_put(out, "<strong>");
    fo_trace_put_html(out, row->overlap);
    fo_trace_put(out, "</strong>");
}

static void put_ms(fo_trace_out *out, double ms, int decimals)
{
    fo_trace_put(out, "<span class=\"figure\">");
    fo_trace_put_figure(out, ms, decimals);
    fo_trace_put(out, " ms</span>");
}

/* "122.3 ms → 78.6 ms, 36 % less time" */
static void put_gain(fo_trace_out *out, const fo_page_row *none, const fo_page_row *best)
{
    int decimals = fo_trace_decimals(none->t_ms);
    double gain = 100 * (1 - best->t_ms / none->t_ms);
    put_ms(out, none->t_ms, decimals);
    fo_trace_put(out, " → ");
    put_ms(out, best->t_ms, decimals);
    fo_trace_put(out, ", <span class=\"figure\">");
    fo_trace_put_figure(out, gain, gain < 10 ? 1 : 0);
    fo_trace_put(out, " % faster</span>.");
}

static void put_against_none(fo_trace_out *out, const fo_page_row *none, const fo_page_row *best)
{
    if (best->t_ms >= none->t_ms) {
        fo_trace_put(out, "No strategy is faster than <strong>none</strong>: ");
        put_ms(out, none->t_ms, fo_trace_decimals(none->t_ms));
        fo_trace_put(out, "; the next, ");
        put_strategy(out, best);
        fo_trace_put(out, ", takes ");
        put_ms(out, best->t_ms, fo_trace_decimals(none->t_ms));
        fo_trace_put(out, ".");
        return;
    }
    put_strategy(out, best);
    if (isfinite(best->hidden_pct)) {
        fo_trace_put(out, " hides <span class=\"figure\">");
        fo_trace_put_figure(out, best->hidden_pct, 1);
        fo_trace_put(out, " %</span> of what communication costs none: ");
    } else {
        fo_trace_put(out, " is faster than none: ");
    }
    put_gain(out, none, best);
}

static void put_point_headline(fo_trace_out *out, const fo_page *page, int first)
{
    int none = find_none(page, first), best = fo_trace_page_best(page, first);
    int only = best >= 0 ? best : none;
    if (none >= 0 && best >= 0) {
        put_against_none(out, &page->rows[none], &page->rows[best]);
    } else if (only >= 0) {
        int others = 0;
        for (int i = first; i < page->row_count; i = fo_trace_page_next(page, first, i))
            others += i != only && measured(&page->rows[i]);
        put_strategy(out, &page->rows[only]);
        fo_trace_put(out, others > 0 ? " is the fastest: " : " takes ");
        put_ms(out, page->rows[only].t_ms, fo_trace_decimals(page->rows[only].t_ms));
        fo_trace_put(out, ".");
    } else {
        fo_trace_put(out, page->simulated ? "No strategy could be simulated; the table says why."
                                          : "No strategy could be measured; the table says why.");
    }
}

/* That results agree is half of the claim; that they do not is no footnote. */
static void put_bits(fo_trace_out *out, const fo_page *page)
{
    int equal = 0, different = 0;
    for (int i = 0; i < page->row_count; i++) {
        equal += measured(&page->rows[i]) && page->rows[i].bits == 1;
        different += measured(&page->rows[i]) && page->rows[i].bits == 0;
    }
    if (different > 0)
        fo_trace_put(out,
                     "<p class=\"notice\" role=\"note\"><strong>Results differ</strong> between "
                     "strategies: see the column bits.</p>\n");
    else if (equal > 0)
        fo_trace_put(out,
                     "<p class=\"bits\">The results of all strategies compared are equal to the "
                     "bit.</p>\n");
}

void fo_trace_page_headline(fo_trace_out *out, const fo_page *page)
{
    bool several = several_points(page);
    if (page->row_count <= 0) {
        fo_trace_put(out, page->simulated ? "<p class=\"headline\">Nothing was simulated.</p>\n"
                                          : "<p class=\"headline\">Nothing was measured.</p>\n");
        return;
    }
    fo_trace_put(out, several ? "<ul class=\"headlines\">\n" : "");
    for (int first = fo_trace_page_next_point(page, -1); first < page->row_count;
         first = fo_trace_page_next_point(page, first)) {
        fo_trace_put(out, several ? "<li><span class=\"point\">" : "<p class=\"headline\">");
        if (several) {
            fo_trace_put_html(out, page->rows[first].point ? page->rows[first].point : "–");
            fo_trace_put(out, "</span> <span>");
        }
        put_point_headline(out, page, first);
        fo_trace_put(out, several ? "</span></li>\n" : "</p>\n");
    }
    fo_trace_put(out, several ? "</ul>\n" : "");
    put_bits(out, page);
}

/* ---- the table ------------------------------------------------------------------------------------- */

/* Decimals of all times of the page: columns align, and points can be compared. */
static int time_decimals(const fo_page *page)
{
    double largest = 0;
    for (int i = 0; i < page->row_count; i++)
        if (measured(&page->rows[i]))
            largest = fmax(largest, fabs(page->rows[i].t_ms));
    return largest >= 1000 ? 1 : largest >= 10 ? 2 : largest >= 1 ? 3 : 4;
}

static bool predicted(const fo_page_row *row)
{
    return measured(row) && isfinite(row->predicted_ms) && row->predicted_ms > 0;
}

bool fo_trace_page_predicts(const fo_page *page)
{
    bool any = false;
    for (int i = 0; i < page->row_count; i++)
        any = any || predicted(&page->rows[i]);
    return any && !page->simulated;
}

/* Of the table: without bits, where nothing was computed. */
static int columns(const fo_page *page)
{
    return page->simulated ? 7 : fo_trace_page_predicts(page) ? 9 : 8;
}

static void put_cell(fo_trace_out *out, double value, int decimals)
{
    fo_trace_put(out, "<td>");
    fo_trace_put_figure(out, value, decimals);
    fo_trace_put(out, "</td>");
}

/* T with its spread in one cell: side by side where there is room, one above the other on a phone. What is
 * simulated has no spread. */
static void put_t(fo_trace_out *out, const fo_page_row *row, bool simulated, int decimals)
{
    if (simulated) {
        put_cell(out, row->t_ms, decimals);
        return;
    }
    fo_trace_put(out, "<td>");
    fo_trace_put_figure(out, row->t_ms, decimals);
    fo_trace_put(out, " <span class=\"spread\">");
    if (isfinite(row->t_low_ms) && isfinite(row->t_high_ms)) {
        fo_trace_put_figure(out, row->t_low_ms, decimals);
        fo_trace_put(out, " to ");
        fo_trace_put_figure(out, row->t_high_ms, decimals);
    } else {
        fo_trace_put(out, "–");
    }
    fo_trace_put(out, "</span></td>");
}

/* With how far it is from T. */
static void put_prediction(fo_trace_out *out, const fo_page_row *row, int decimals)
{
    if (!predicted(row)) {
        fo_trace_put(out, "<td>–</td>");
        return;
    }
    fo_trace_put(out, "<td>");
    fo_trace_put_figure(out, row->predicted_ms, decimals);
    double error = 100 * (row->predicted_ms / row->t_ms - 1);
    fo_trace_put(out,
                 error < 0 ? " <span class=\"spread error\">" : " <span class=\"spread error\">+");
    fo_trace_put_figure(out, error, 1);
    fo_trace_put(out, " %</span></td>");
}

static void put_row(fo_trace_out *out, const fo_page *page, int index, bool best, int decimals)
{
    const fo_page_row *row = &page->rows[index];
    fo_trace_put(out, best ? "<tr class=\"best\"><th scope=\"row\">" : "<tr><th scope=\"row\">");
    fo_trace_put_html(out, row->overlap);
    fo_trace_put(out, "</th>");
    if (row->note) {
        fo_trace_print(out, "<td colspan=\"%d\" class=\"note\">", columns(page) - 1);
        fo_trace_put_html(out, row->note);
        fo_trace_put(out, "</td></tr>\n");
        return;
    }
    put_t(out, row, page->simulated, decimals);
    if (fo_trace_page_predicts(page))
        put_prediction(out, row, decimals);
    put_cell(out, row->ect_ms, decimals);
    put_cell(out, row->hidden_pct, 1);
    put_cell(out, row->exposed_ms, decimals);
    put_cell(out, row->bound_ms, decimals);
    put_cell(out, row->gap_pct, 1);
    fo_trace_put(out, page->simulated  ? ""
                      : row->bits == 1 ? "<td>equal</td>"
                      : row->bits == 0 ? "<td class=\"differ\">differ</td>"
                                       : "<td>–</td>");
    fo_trace_put(out, "</tr>\n");
}

static void put_group(fo_trace_out *out, const fo_page *page, int first, int decimals)
{
    double compute = fo_trace_page_compute(page, first);
    int best = fo_trace_page_best(page, first);
    fo_trace_put(out, "<tbody>\n");
    if (page->rows[first].point) {
        fo_trace_print(out, "<tr class=\"group\"><th scope=\"rowgroup\" colspan=\"%d\">",
                       columns(page));
        fo_trace_put_html(out, page->rows[first].point);
        fo_trace_put(out, "</th></tr>\n");
    }
    if (isfinite(compute)) {
        fo_trace_put(out, "<tr class=\"alone\"><th scope=\"row\">computation alone</th>");
        fo_trace_put(out, "<td>");
        fo_trace_put_figure(out, compute, decimals);
        fo_trace_put(out, page->simulated ? "</td>" : " <span class=\"spread\"></span></td>");
        for (int column = 2; column < columns(page); column++)
            fo_trace_put(out, "<td></td>");
        fo_trace_put(out, "</tr>\n");
    }
    for (int i = first; i < page->row_count; i = fo_trace_page_next(page, first, i))
        put_row(out, page, i, i == best, decimals);
    fo_trace_put(out, "</tbody>\n");
}

void fo_trace_page_table(fo_trace_out *out, const fo_page *page)
{
    if (page->row_count <= 0)
        return;
    fo_trace_put(
        out, "<section aria-labelledby=\"figures\">\n<h2 id=\"figures\">Figures</h2>\n"
             "<div class=\"scroll\" role=\"region\" aria-labelledby=\"figures\" tabindex=\"0\">\n"
             "<table class=\"figures\">\n<thead><tr><th scope=\"col\">strategy</th>"
             "<th scope=\"col\">T ms");
    fo_trace_put(out, page->simulated ? "" : " <span class=\"spread\">low to high</span>");
    fo_trace_put(out, "</th>");
    fo_trace_put(out, fo_trace_page_predicts(page)
                          ? "<th scope=\"col\">predicted ms <span class=\"spread error\">"
                            "error</span></th>"
                          : "");
    fo_trace_put(out, "<th scope=\"col\">ECT ms</th><th scope=\"col\">hidden %</th>"
                      "<th scope=\"col\">exposed ms</th><th scope=\"col\">bound ms</th>"
                      "<th scope=\"col\">gap %</th>");
    fo_trace_put(out, page->simulated ? "" : "<th scope=\"col\">bits</th>");
    fo_trace_put(out, "</tr></thead>\n");
    int decimals = time_decimals(page);
    for (int first = fo_trace_page_next_point(page, -1); first < page->row_count;
         first = fo_trace_page_next_point(page, first))
        put_group(out, page, first, decimals);
    fo_trace_put(out,
                 "</table>\n</div>\n<p class=\"aside\">The fastest strategy of each point is in "
                 "bold. <a href=\"#meaning\">What the figures mean</a> is said below.</p>\n"
                 "</section>\n");
}

/* ---- bars ------------------------------------------------------------------------------------------ */

static void put_width(fo_trace_out *out, const char *kind, double part, double whole)
{
    if (part > 0 && whole > 0)
        fo_trace_print(out, "<span class=\"%s\" style=\"width:%.3f%%\"></span>", kind,
                       100 * part / whole);
}

/* A line of the picture: T as computation and ECT, with the bound as a mark. */
static void put_bar(fo_trace_out *out, const char *label, double t, double compute, double bound,
                    double whole, int decimals)
{
    double within = isfinite(compute) && compute < t ? compute : t;
    fo_trace_put(out, "<div class=\"bar\"><span class=\"label\">");
    fo_trace_put_html(out, label);
    fo_trace_put(out, "</span><span class=\"track\">");
    put_width(out, "computation", within, whole);
    put_width(out, "ect", t - within, whole);
    if (isfinite(bound) && bound >= 0 && bound <= whole && whole > 0)
        fo_trace_print(out, "<i style=\"left:%.3f%%\"></i>", 100 * bound / whole);
    fo_trace_put(out, "</span><span class=\"value\">");
    fo_trace_put_figure(out, t, decimals);
    fo_trace_put(out, " ms</span></div>\n");
}

static double longest(const fo_page *page, int first)
{
    double whole = 0, compute = fo_trace_page_compute(page, first);
    for (int i = first; i < page->row_count; i = fo_trace_page_next(page, first, i)) {
        const fo_page_row *row = &page->rows[i];
        if (measured(row))
            whole = fmax(whole, fmax(row->t_ms, isfinite(row->bound_ms) ? row->bound_ms : 0));
    }
    return isfinite(compute) ? fmax(whole, compute) : whole;
}

static void put_picture(fo_trace_out *out, const fo_page *page, int first)
{
    double whole = longest(page, first), compute = fo_trace_page_compute(page, first);
    int decimals = fo_trace_decimals(whole);
    if (!(whole > 0))
        return;
    fo_trace_put(out, "<figure class=\"bars\">\n<figcaption>");
    fo_trace_put_html(out, page->rows[first].point ? page->rows[first].point : "");
    fo_trace_put(out, "</figcaption>\n");
    if (isfinite(compute))
        put_bar(out, "computation alone", compute, compute, NAN, whole, decimals);
    for (int i = first; i < page->row_count; i = fo_trace_page_next(page, first, i)) {
        const fo_page_row *row = &page->rows[i];
        if (measured(row))
            put_bar(out, row->overlap, row->t_ms, compute, row->bound_ms, whole, decimals);
    }
    fo_trace_put(out, "</figure>\n");
}

void fo_trace_page_bars(fo_trace_out *out, const fo_page *page)
{
    bool any = false;
    for (int i = 0; i < page->row_count; i++)
        any = any || measured(&page->rows[i]);
    if (!any)
        return;
    fo_trace_put(
        out, "<section aria-labelledby=\"time\">\n<h2 id=\"time\">Where the time goes</h2>\n"
             "<ul class=\"legend\"><li><span class=\"swatch computation\"></span>the computation, "
             "as long as alone</li><li><span class=\"swatch ect\"></span>ECT: what communication "
             "adds</li><li><span class=\"swatch bound\"></span>bound: no schedule is faster</li>"
             "</ul>\n");
    fo_trace_put(out, several_points(page) ? "<div class=\"pictures several\">\n"
                                           : "<div class=\"pictures\">\n");
    for (int first = fo_trace_page_next_point(page, -1); first < page->row_count;
         first = fo_trace_page_next_point(page, first))
        put_picture(out, page, first);
    fo_trace_put(out, "</div>\n</section>\n");
}
