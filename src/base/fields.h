/* What machines read: fields of a row, as JSON, as the head of a CSV table, or as a line of it. The same calls make
 * all three. And cells of tables for people. */
#ifndef FO_BASE_FIELDS_H
#define FO_BASE_FIELDS_H

#include <stdio.h>

typedef enum fo_base_form {
    FO_BASE_JSON, /* "key": value, ... */
    FO_BASE_KEYS, /* key,... */
    FO_BASE_CSV   /* value,... */
} fo_base_form;

typedef struct fo_base_fields {
    FILE *out;
    fo_base_form form;
    int count; /* fields so far */
} fo_base_fields;

/* NULL: null, or nothing between two commas. */
void fo_base_field_text(fo_base_fields *fields, const char *key, const char *text);
/* NaN and infinite: null. A whole number; eight digits; as printf has `format`. */
void fo_base_field_count(fo_base_fields *fields, const char *key, double value);
void fo_base_field_real(fo_base_fields *fields, const char *key, double value);
void fo_base_field_number(fo_base_fields *fields, const char *key, const char *format,
                          double value);
/* Negative: null. */
void fo_base_field_truth(fo_base_fields *fields, const char *key, int truth);

/* With quotes around it. */
void fo_base_json_text(FILE *out, const char *text);

/* A number in a table: a dash when it is none, never a negative zero. Returns `text`. */
const char *fo_base_cell(double value, int decimals, char *text, size_t size);
/* Decimals of milliseconds in a table whose largest is `largest`. */
int fo_base_cell_decimals(double largest);

#endif
