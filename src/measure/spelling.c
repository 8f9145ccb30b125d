/* Lists people type. */
#include "measure/spelling.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "flashoverlap/schedule.h"

fo_status fo_measure_spelling_strategies(const char *list, const fo_measure_family *family,
                                         bool backward, fo_schedule_spelled *strategies, int *count)
{
    return fo_schedule_spelling_read(list, family->name, backward,
                                     backward ? family->forms_backward : family->forms, strategies,
                                     FO_MEASURE_STRATEGIES, count);
}

int fo_measure_spelling_sums(const fo_schedule_spelled *strategy)
{
    switch (strategy->kind) {
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
