/* Putting strings and figures into files without their being able to leave their place. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "trace/out.h"

/* Length of the UTF-8 sequence that begins at `text`; 0 when there is none (overlong forms, surrogates and
 * what lies beyond U+10FFFF are none). Never looks past a terminating zero. */
static int sequence(const unsigned char *text)
{
    unsigned char first = text[0];
    int length = first < 0x80 ? 1 : first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    if (first > 0xF4)
        return 0;
    for (int i = 1; i < length; i++) {
        unsigned char low = 0x80, high = 0xBF;
        if (i == 1) {
            low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
            high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
        }
        if (text[i] < low || text[i] > high)
            return 0;
    }
    return length;
}

static const char replacement[] = "\xEF\xBF\xBD"; /* U+FFFD */

static void put_json_one(fo_trace_out *out, const unsigned char *at, int length)
{
    static const char line_separators[] =
        "\xE2\x80"; /* U+2028, U+2029: no line ends in JSON, but in scripts */
    if (length == 0)
        fo_trace_put(out, replacement);
    else if (*at == '"' || *at == '\\')
        fo_trace_print(out, "\\%c", *at);
    else if (*at < 0x20 || *at == 0x7F || *at == '<' || *at == '>' || *at == '&')
        fo_trace_print(out, "\\u%04x", *at);
    else if (length == 3 && memcmp(at, line_separators, 2) == 0 && (at[2] == 0xA8 || at[2] == 0xA9))
        fo_trace_print(out, "\\u20%x", at[2] - 0x80);
    else
        fo_trace_put_bytes(out, (const char *)at, (size_t)length);
}

void fo_trace_put_json(fo_trace_out *out, const char *text)
{
    const unsigned char *at = (const unsigned char *)(text ? text : "");
    while (*at) {
        int length = sequence(at);
        put_json_one(out, at, length);
        at += length > 0 ? length : 1;
    }
}

static void put_html_one(fo_trace_out *out, const unsigned char *at, int length)
{
    if (length == 0 || (*at < 0x20 && *at != '\n' && *at != '\t') || *at == 0x7F) {
        fo_trace_put(out, replacement);
        return;
    }
    switch (*at) {
    case '&': fo_trace_put(out, "&amp;"); break;
    case '<': fo_trace_put(out, "&lt;"); break;
    case '>': fo_trace_put(out, "&gt;"); break;
    case '"': fo_trace_put(out, "&quot;"); break;
    case '\'': fo_trace_put(out, "&#39;"); break;
    default: fo_trace_put_bytes(out, (const char *)at, (size_t)length);
    }
}

void fo_trace_put_html(fo_trace_out *out, const char *text)
{
    const unsigned char *at = (const unsigned char *)(text ? text : "");
    while (*at) {
        int length = sequence(at);
        put_html_one(out, at, length);
        at += length > 0 ? length : 1;
    }
}

/* ---- figures --------------------------------------------------------------------------------------- */

void fo_trace_put_figure(fo_trace_out *out, double value, int decimals)
{
    char text[400]; /* the largest double takes 309 digits */
    if (!isfinite(value)) {
        fo_trace_put(out, "–");
        return;
    }
    snprintf(text, sizeof text, "%.*f", decimals, fabs(value));
    if (value < 0 && strspn(text, "0.") < strlen(text))
        fo_trace_put(out, "−");
    fo_trace_put(out, text);
}

int fo_trace_decimals(double value)
{
    double size = fabs(value);
    return !isfinite(size) || size >= 1000 ? 0
           : size >= 100                   ? 1
           : size >= 10                    ? 2
           : size >= 1                     ? 3
                                           : 4;
}
