/* Lists of strategies as people type them: "none,slice:4,flash,flash+apart". */
#ifndef FO_SCHEDULE_SPELLING_H
#define FO_SCHEDULE_SPELLING_H

#include <stdbool.h>

#include "flashoverlap/schedule.h"

/* What an operation is made of; most have one form only. */
typedef enum fo_schedule_form {
    FO_SCHEDULE_WHOLE, /* the operation as it is meant to run */
    FO_SCHEDULE_APART, /* "+apart": its operators one after the other */
    FO_SCHEDULE_ROW,   /* "+row": attention before the out-projection's program */
    FO_SCHEDULE_FORMS
} fo_schedule_form;

typedef struct fo_schedule_spelled {
    char name[40];    /* as spelled: "flash+apart" */
    char overlap[32]; /* "flash" */
    fo_schedule_form form;
    fo_strategy_kind kind;
} fo_schedule_spelled;

/* Reads at most `most` strategies; *count of them. `subject` and `backward` say what they are for, in errors; bits of
 * `forms`: the forms that it has beside the whole. FO_INVALID: a word that is no strategy, a form that is not there, a
 * strategy that is listed twice, none or too many. */
fo_status fo_schedule_spelling_read(const char *list, const char *subject, bool backward,
                                    unsigned forms, fo_schedule_spelled *strategies, int most,
                                    int *count);

#endif
