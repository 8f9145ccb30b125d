/* What machines read: fields of a row, as JSON, as the head of a CSV table, or as a line of it. The same calls make
 * all three. */
#ifndef FO_PLANNER_PRINT_H
#define FO_PLANNER_PRINT_H

#include <stdio.h>

typedef enum fo_planner_form {
    FO_PLANNER_JSON, /* "key": value, ... */
    FO_PLANNER_KEYS, /* key,... */
    FO_PLANNER_CSV   /* value,... */
} fo_planner_form;

typedef struct fo_planner_print {
    FILE *out;
    fo_planner_form form;
    int count; /* fields so far */
} fo_planner_print;

/* NULL: null, or nothing between two commas. */
void fo_planner_print_text(fo_planner_print *p, const char *key, const char *text);
/* NaN: null. */
void fo_planner_print_count(fo_planner_print *p, const char *key, double value);
void fo_planner_print_real(fo_planner_print *p, const char *key, double value);
/* Negative: null. */
void fo_planner_print_truth(fo_planner_print *p, const char *key, int truth);

/* A number in a table: a dash when it is none. */
const char *fo_planner_print_cell(double value, int decimals, char *text, size_t size);
/* Decimals of milliseconds beside which the largest is `largest`. */
int fo_planner_print_decimals(double largest);

#endif
