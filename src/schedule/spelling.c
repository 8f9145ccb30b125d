/* Lists of strategies as people type them. */
#include "schedule/spelling.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

static const char *const suffixes[FO_SCHEDULE_FORMS] = {
    [FO_SCHEDULE_WHOLE] = "", [FO_SCHEDULE_APART] = "+apart", [FO_SCHEDULE_ROW] = "+row"};

/* Whose forms they are. */
typedef struct owner {
    const char *subject;
    bool backward;
    unsigned forms; /* with the whole */
} owner;

static fo_status bad_form(const char *word, const owner *o)
{
    char expected[96] = "no '+' behind it";
    int base = (int)strcspn(word, "+");
    for (int form = 1; form < FO_SCHEDULE_FORMS; form++)
        if (o->forms & 1u << form)
            snprintf(expected, sizeof expected, "%.*s or %.*s%s", base, word, base, word,
                     suffixes[form]);
    return fo_base_error(FO_INVALID, "--overlap '%s': '%s' is no form of %s%s, expected %s", word,
                         word + base, o->subject, o->backward ? " --backward" : "", expected);
}

static fo_status read_word(fo_schedule_spelled *s, const owner *o)
{
    size_t base = strcspn(s->name, "+");
    fo_strategy parsed;
    int form = 0;
    if (base >= sizeof s->overlap)
        return fo_base_error(FO_INVALID, "--overlap '%s' is too long for a strategy", s->name);
    memcpy(s->overlap, s->name, base);
    s->overlap[base] = '\0';
    while (form < FO_SCHEDULE_FORMS && strcmp(suffixes[form], s->name + base) != 0)
        form++;
    if (form == FO_SCHEDULE_FORMS || !(o->forms & 1u << form))
        return bad_form(s->name, o);
    s->form = (fo_schedule_form)form;
    fo_status status = fo_strategy_parse(s->overlap, &parsed);
    if (status == FO_OK)
        s->kind = parsed.kind;
    return status;
}

fo_status fo_schedule_spelling_read(const char *list, const char *subject, bool backward,
                                    unsigned forms, fo_schedule_spelled *strategies, int most,
                                    int *count)
{
    const owner o = {subject, backward, forms | 1u << FO_SCHEDULE_WHOLE};
    *count = 0;
    for (const char *at = list ? list : ""; *at;) {
        size_t length = strcspn(at, ",");
        fo_schedule_spelled *s = &strategies[*count];
        if (*count == most)
            return fo_base_error(FO_INVALID, "--overlap lists more than %d strategies", most);
        if (!length || length >= sizeof s->name || (at[length] && !at[length + 1]))
            return fo_base_error(FO_INVALID,
                                 "--overlap '%s': expected names separated by commas, such as "
                                 "none,slice:4,flash",
                                 at);
        memcpy(s->name, at, length);
        s->name[length] = '\0';
        fo_status status = read_word(s, &o);
        for (int i = 0; status == FO_OK && i < *count; i++)
            if (!strcmp(strategies[i].name, s->name))
                status = fo_base_error(FO_INVALID, "--overlap lists '%s' twice", s->name);
        if (status != FO_OK)
            return status;
        ++*count;
        at += length + (at[length] == ',');
    }
    return *count ? FO_OK
                  : fo_base_error(FO_INVALID, "--overlap is empty, expected strategies such as "
                                              "none,slice:4,flash");
}
