/* What machines read, and the cells of tables. */
#include "base/fields.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* The comma, and what comes before a value. False: only keys are wanted. */
static bool begin(fo_base_fields *fields, const char *key)
{
    static const char *const commas[] = {", ", ",", ","};
    if (fields->count++)
        fputs(commas[fields->form], fields->out);
    if (fields->form == FO_BASE_JSON)
        fprintf(fields->out, "\"%s\": ", key);
    if (fields->form == FO_BASE_KEYS)
        fputs(key, fields->out);
    return fields->form != FO_BASE_KEYS;
}

static void put_null(const fo_base_fields *fields)
{
    if (fields->form == FO_BASE_JSON)
        fputs("null", fields->out);
}

void fo_base_json_text(FILE *out, const char *text)
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

void fo_base_field_text(fo_base_fields *fields, const char *key, const char *text)
{
    if (!begin(fields, key))
        return;
    if (!text)
        put_null(fields);
    else if (fields->form == FO_BASE_JSON)
        fo_base_json_text(fields->out, text);
    else
        put_csv_text(fields->out, text);
}

void fo_base_field_number(fo_base_fields *fields, const char *key, const char *format, double value)
{
    char text[400]; /* the largest double takes 309 digits */
    if (!begin(fields, key))
        return;
    snprintf(text, sizeof text, format, value);
    if (isfinite(value))
        fputs(text, fields->out);
    else
        put_null(fields);
}

void fo_base_field_count(fo_base_fields *fields, const char *key, double value)
{
    fo_base_field_number(fields, key, "%.0f", value);
}

void fo_base_field_real(fo_base_fields *fields, const char *key, double value)
{
    fo_base_field_number(fields, key, "%.8g", value);
}

void fo_base_field_truth(fo_base_fields *fields, const char *key, int truth)
{
    if (!begin(fields, key))
        return;
    if (truth < 0)
        put_null(fields);
    else
        fputs(truth ? "true" : "false", fields->out);
}

/* ---- cells ------------------------------------------------------------------------------------------ */

const char *fo_base_cell(double value, int decimals, char *text, size_t size)
{
    if (isfinite(value))
        snprintf(text, size, "%.*f", decimals, value);
    else
        snprintf(text, size, "-");
    if (text[0] == '-' && text[1] && strspn(text + 1, "0.") == strlen(text + 1))
        memmove(text, text + 1, strlen(text)); /* no negative zero */
    return text;
}

int fo_base_cell_decimals(double largest)
{
    return largest >= 1000 ? 1 : largest >= 1 ? 3 : largest >= 0.1 ? 4 : 5;
}
