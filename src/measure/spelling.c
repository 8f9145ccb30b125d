/* Lists people type. */
#include "measure/spelling.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "flashoverlap/schedule.h"

static const char *const suffixes[FO_MEASURE_FORMS] = {
    [FO_MEASURE_WHOLE] = "", [FO_MEASURE_APART] = "+apart", [FO_MEASURE_ROW] = "+row"};

static fo_status bad_form(const char *word, const fo_measure_family *family, bool backward,
                          unsigned forms)
{
    char expected[64] = "no '+' behind it";
    int base = (int)strcspn(word, "+");
    for (int form = 1; form < FO_MEASURE_FORMS; form++)
        if (forms & 1u << form)
            snprintf(expected, sizeof expected, "%.*s or %.*s%s", base, word, base, word,
                     suffixes[form]);
    return fo_base_error(FO_INVALID, "--overlap '%s': '%s' is no form of %s%s, expected %s", word,
                         word + base, family->name, backward ? " --backward" : "", expected);
}

static fo_status read_strategy(fo_measure_strategy *s, const fo_measure_family *family,
                               bool backward)
{
    unsigned forms = (backward ? family->forms_backward : family->forms) | 1u << FO_MEASURE_WHOLE;
    size_t base = strcspn(s->name, "+");
    fo_strategy parsed;
    int form = 0;
    if (base >= sizeof s->overlap)
        return fo_base_error(FO_INVALID, "--overlap '%s' is too long for a strategy", s->name);
    memcpy(s->overlap, s->name, base);
    s->overlap[base] = '\0';
    while (form < FO_MEASURE_FORMS && strcmp(suffixes[form], s->name + base) != 0)
        form++;
    if (form == FO_MEASURE_FORMS || !(forms & 1u << form))
        return bad_form(s->name, family, backward, forms);
    s->form = (fo_measure_form)form;
    return fo_strategy_parse(s->overlap, &parsed);
}

fo_status fo_measure_spelling_strategies(const char *list, const fo_measure_family *family,
                                         bool backward, fo_measure_strategy *strategies, int *count)
{
    *count = 0;
    for (const char *at = list ? list : ""; *at;) {
        size_t length = strcspn(at, ",");
        fo_measure_strategy *s = &strategies[*count];
        if (*count == FO_MEASURE_STRATEGIES)
            return fo_base_error(FO_INVALID, "--overlap lists more than %d strategies",
                                 FO_MEASURE_STRATEGIES);
        if (!length || length >= sizeof s->name || (at[length] && !at[length + 1]))
            return fo_base_error(FO_INVALID,
                                 "--overlap '%s': expected names separated by commas, such as "
                                 "none,slice:4,flash",
                                 at);
        memcpy(s->name, at, length);
        s->name[length] = '\0';
        fo_status status = read_strategy(s, family, backward);
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

int fo_measure_spelling_sums(const fo_measure_strategy *strategy)
{
    fo_strategy parsed = {.kind = FO_STRATEGY_LIBRARY};
    (void)fo_strategy_parse(strategy->overlap, &parsed); /* it was when the list was read */
    switch (parsed.kind) {
    case FO_STRATEGY_LIBRARY: return -1;
    case FO_STRATEGY_HIER:
    case FO_STRATEGY_HIER_NONE: return 1;
    default: return 0;
    }
}

/* A whole number from 1 to 2^31 - 1 at *at, which is moved behind it. */
static bool take_count(const char **at, int64_t *count)
{
    char *end;
    if (!isdigit((unsigned char)**at))
        return false;
    long long value = strtoll(*at, &end, 10);
    *at = end;
    *count = value;
    return value >= 1 && value <= INT32_MAX;
}

fo_status fo_measure_spelling_sweep(const char *list, fo_measure_point *points, int *count)
{
    const char *at = list;
    for (*count = 0; *count < FO_MEASURE_POINTS;) {
        fo_measure_point *p = &points[*count];
        bool fine = take_count(&at, &p->batch) && *at++ == 'x' && take_count(&at, &p->context) &&
                    (*at == ',' || !*at);
        if (!fine)
            break;
        p->rows = p->batch * p->context;
        ++*count;
        if (!*at)
            return FO_OK;
        at++;
    }
    if (*count == FO_MEASURE_POINTS)
        return fo_base_error(FO_INVALID, "--sweep lists more than %d points", FO_MEASURE_POINTS);
    return fo_base_error(FO_INVALID,
                         "--sweep '%s': expected batch x context, separated by commas, such as "
                         "16x512,8x1024",
                         list);
}
