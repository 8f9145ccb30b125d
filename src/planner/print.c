/* What machines read, and the cells of tables. */
#include "planner/print.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* The comma, and what comes before a value. False: only keys are wanted. */
static bool begin(fo_planner_print *p, const char *key)
{
    static const char *const commas[] = {", ", ",", ","};
    if (p->count++)
        fputs(commas[p->form], p->out);
    if (p->form == FO_PLANNER_JSON)
        fprintf(p->out, "\"%s\": ", key);
    if (p->form == FO_PLANNER_KEYS)
        fputs(key, p->out);
    return p->form != FO_PLANNER_KEYS;
}

static void put_null(const fo_planner_print *p)
{
    if (p->form == FO_PLANNER_JSON)
        fputs("null", p->out);
}

static void put_json_text(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++)
        if (*text == '"' || *text == '\\')
            fprintf(out, "\\%c", *text);
        else if ((unsigned char)*text < 0x20)
            fprintf(out, "\\u%04x", (unsigned)*text);
        else
            fputc(*text, out);
    fputc('"', out);
}

static void put_csv_text(FILE *out, const char *text)
{
    if (!strpbrk(text, ",\"\r\n")) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text; text++)
        fprintf(out, *text == '"' ? "\"%c" : "%c", *text);
    fputc('"', out);
}

void fo_planner_print_text(fo_planner_print *p, const char *key, const char *text)
{
    if (!begin(p, key))
        return;
    if (!text)
        put_null(p);
    else if (p->form == FO_PLANNER_JSON)
        put_json_text(p->out, text);
    else
        put_csv_text(p->out, text);
}

static void put_number(fo_planner_print *p, const char *key, const char *format, double value)
{
    char text[400]; /* the largest double takes 309 digits */
    if (!begin(p, key))
        return;
    snprintf(text, sizeof text, format, value);
    if (isfinite(value))
        fputs(text, p->out);
    else
        put_null(p);
}

void fo_planner_print_count(fo_planner_print *p, const char *key, double value)
{
    put_number(p, key, "%.0f", value);
}

void fo_planner_print_real(fo_planner_print *p, const char *key, double value)
{
    put_number(p, key, "%.8g", value);
}

void fo_planner_print_truth(fo_planner_print *p, const char *key, int truth)
{
    if (!begin(p, key))
        return;
    if (truth < 0)
        put_null(p);
    else
        fputs(truth ? "true" : "false", p->out);
}

/* ---- cells ------------------------------------------------------------------------------------------ */

const char *fo_planner_print_cell(double value, int decimals, char *text, size_t size)
{
    if (isfinite(value))
        snprintf(text, size, "%.*f", decimals, value);
    else
        snprintf(text, size, "-");
    if (text[0] == '-' && text[1] && strspn(text + 1, "0.") == strlen(text + 1))
        memmove(text, text + 1, strlen(text)); /* no negative zero */
    return text;
}

int fo_planner_print_decimals(double largest)
{
    return largest >= 1000 ? 1 : largest >= 1 ? 3 : largest >= 0.1 ? 4 : 5;
}
