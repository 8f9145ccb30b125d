/* Losses of the runs compared, as one chart. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "trace/sections.h"

enum { POINTS = 2000, LINES = 6, DASH = 12 };

/* ---- do they agree? -------------------------------------------------------------------------------- */

static int64_t common_steps(const fo_page *page, bool *same_length)
{
    int64_t steps = page->curves[0].count;
    *same_length = true;
    for (int i = 1; i < page->curve_count; i++) {
        *same_length = *same_length && page->curves[i].count == page->curves[0].count;
        steps = page->curves[i].count < steps ? page->curves[i].count : steps;
    }
    return steps;
}

static bool same_bits(double a, double b)
{
    uint64_t bits_a, bits_b;
    memcpy(&bits_a, &a, sizeof bits_a);
    memcpy(&bits_b, &b, sizeof bits_b);
    return bits_a == bits_b;
}

/* The first step (from 1) at which any two differ in a bit; 0: none. */
static int64_t first_difference(const fo_page *page, int64_t steps, double *largest)
{
    int64_t first = 0;
    *largest = 0;
    for (int64_t step = 0; step < steps; step++)
        for (int i = 1; i < page->curve_count; i++) {
            double a = page->curves[0].loss[step], b = page->curves[i].loss[step];
            if (same_bits(a, b))
                continue;
            first = first ? first : step + 1;
            if (isfinite(a) && isfinite(b))
                *largest = fmax(*largest, fabs(a - b));
        }
    return first;
}

static void put_agreement(fo_trace_out *out, const fo_page *page)
{
    bool same_length;
    double largest;
    int64_t steps = common_steps(page, &same_length);
    int64_t first = first_difference(page, steps, &largest);
    if (page->curve_count < 2 || steps == 0)
        return;
    fo_trace_put(out, "<p>");
    if (first > 0)
        fo_trace_print(out,
                       "<strong>The losses differ</strong>, first at step %" PRId64
                       ", at most by %.2g.",
                       first, largest);
    else if (same_length)
        fo_trace_print(out,
                       "Over %" PRId64 " steps <strong>all losses are equal to the bit</strong>.",
                       steps);
    else
        fo_trace_print(out,
                       "Over the %" PRId64 " steps that all of them ran, <strong>all losses are "
                       "equal to the bit</strong>.",
                       steps);
    fo_trace_put(out, "</p>\n");
}

/* ---- the chart ------------------------------------------------------------------------------------- */

typedef struct chart {
    double low, high; /* of the losses shown */
    int64_t steps;    /* of the longest curve */
} chart;

static chart chart_of(const fo_page *page)
{
    chart c = {INFINITY, -INFINITY, 1};
    for (int i = 0; i < page->curve_count; i++) {
        c.steps = page->curves[i].count > c.steps ? page->curves[i].count : c.steps;
        for (int64_t step = 0; step < page->curves[i].count; step++) {
            double loss = page->curves[i].loss[step];
            if (isfinite(loss)) {
                c.low = fmin(c.low, loss);
                c.high = fmax(c.high, loss);
            }
        }
    }
    if (c.low > c.high)
        c.low = c.high = 0;
    double margin = c.high > c.low ? 0.05 * (c.high - c.low) : 0.5;
    c.low -= margin;
    c.high += margin;
    return c;
}

/* 1, 2 or 5 times a power of ten, so that about `parts` of them make `span`. */
static double tick(double span, int parts)
{
    double power = pow(10, floor(log10(span / parts))), ratio = span / parts / power;
    return power * (ratio <= 1 ? 1 : ratio <= 2 ? 2 : ratio <= 5 ? 5 : 10);
}

static double place_x(const chart *c, int64_t step)
{
    return c->steps > 1 ? 100.0 * (double)(step - 1) / (double)(c->steps - 1) : 50;
}

static double place_y(const chart *c, double loss)
{
    return 100 * (c->high - loss) / (c->high - c->low);
}

static void put_axes(fo_trace_out *out, const chart *c)
{
    double each = tick(c->high - c->low, 5);
    int decimals = each >= 1 ? 0 : (int)ceil(-log10(each) - 1e-9);
    for (double k = ceil(c->low / each); k * each <= c->high; k++) {
        fo_trace_print(out, "<span class=\"y\" style=\"top:%.2f%%\">", place_y(c, k * each));
        fo_trace_put_figure(out, k * each, decimals < 12 ? decimals : 12);
        fo_trace_put(out, "</span>");
    }
    int64_t steps = (int64_t)fmax(1, tick((double)c->steps, 5));
    fo_trace_print(out, "<span class=\"x\" style=\"left:%.2f%%\">1</span>", place_x(c, 1));
    for (int64_t step = steps > 1 ? steps : 2; step <= c->steps; step += steps)
        fo_trace_print(out, "<span class=\"x\" style=\"left:%.2f%%\">%" PRId64 "</span>",
                       place_x(c, step), step);
}

/* Lines that lie on each other take turns, so that all of them are seen. */
static void put_line(fo_trace_out *out, const fo_page *page, const chart *c, int index)
{
    const fo_page_curve *curve = &page->curves[index];
    int64_t stride = 1 + curve->count / POINTS;
    bool drawing = false;
    fo_trace_print(
        out, "<path class=\"line%d\" stroke-dasharray=\"%d %d\" stroke-dashoffset=\"%d\" d=\"",
        index % LINES, page->curve_count > 1 ? DASH : 1, DASH * (page->curve_count - 1),
        -DASH * index);
    for (int64_t step = 1; step <= curve->count; step += stride) {
        double loss = curve->loss[step - 1];
        if (isfinite(loss))
            fo_trace_print(out, "%s%.2f %.2f", drawing ? "L" : "M", place_x(c, step),
                           place_y(c, loss));
        drawing = isfinite(loss);
    }
    fo_trace_put(out, "\"/>");
}

static void put_grid(fo_trace_out *out, const chart *c)
{
    double each = tick(c->high - c->low, 5);
    fo_trace_put(out, "<path class=\"grid\" d=\"");
    for (double k = ceil(c->low / each); k * each <= c->high; k++)
        fo_trace_print(out, "M0 %.2fH100", place_y(c, k * each));
    fo_trace_put(out, "\"/>");
}

static void put_names(fo_trace_out *out, const fo_page *page)
{
    fo_trace_put(out, "<ul class=\"legend\">");
    for (int i = 0; i < page->curve_count; i++) {
        const fo_page_curve *curve = &page->curves[i];
        fo_trace_print(out, "<li><span class=\"swatch line line%d\"></span>", i % LINES);
        fo_trace_put_html(out, curve->overlap);
        if (curve->count > 0) {
            fo_trace_put(out, ": ");
            fo_trace_put_figure(out, curve->loss[curve->count - 1], 4);
            fo_trace_print(out, " at step %" PRId64, curve->count);
        }
        fo_trace_put(out, "</li>");
    }
    fo_trace_put(out, "</ul>\n");
}

void fo_trace_page_curves(fo_trace_out *out, const fo_page *page)
{
    if (page->curve_count <= 0)
        return;
    chart c = chart_of(page);
    fo_trace_put(out, "<section aria-labelledby=\"losses\">\n<h2 id=\"losses\">Losses</h2>\n");
    put_agreement(out, page);
    put_names(out, page);
    fo_trace_put(out, "<figure class=\"chart\" role=\"img\" aria-label=\"Loss by step, one curve a "
                      "strategy\"><div class=\"plot\"><svg viewBox=\"0 0 100 100\" "
                      "preserveAspectRatio=\"none\" aria-hidden=\"true\">");
    put_grid(out, &c);
    for (int i = 0; i < page->curve_count; i++)
        put_line(out, page, &c, i);
    fo_trace_put(out, "</svg>");
    put_axes(out, &c);
    fo_trace_put(out, "</div><figcaption>step</figcaption></figure>\n</section>\n");
}
