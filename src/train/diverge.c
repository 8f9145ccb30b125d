/* Ranks that no longer have the same numbers are found out, and named. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "train/train.h"

enum { NAMED = 8 /* ranks in the sentence */ };

static bool same(const double *a, const double *b)
{
    return !memcmp(a, b, sizeof *a);
}

static int alike(const double *values, int count, int as)
{
    int n = 0;
    for (int i = 0; i < count; i++)
        n += same(&values[i], &values[as]);
    return n;
}

/* What most have; the first of equally many. */
static int find_most(const double *values, int count)
{
    int most = 0;
    for (int i = 1; i < count; i++)
        if (alike(values, count, i) > alike(values, count, most))
            most = i;
    return most;
}

static void list_others(const double *values, int first, int count, int most, char *text,
                        size_t size)
{
    size_t used = 0;
    int named = 0;
    text[0] = '\0';
    for (int i = 0; i < count && used < size; i++) {
        if (same(&values[i], &values[most]))
            continue;
        if (named++ == NAMED) {
            snprintf(text + used, size - used, " and others");
            return;
        }
        used += (size_t)snprintf(text + used, size - used, "%s%.17g on rank %d",
                                 named > 1 ? ", " : "", values[i], first + i);
    }
}

fo_status fo_train_diverge_check(int64_t step, const char *what, const double *values, int first,
                                 int count)
{
    int most = find_most(values, count), agree = alike(values, count, most);
    char others[512];
    if (agree == count)
        return FO_OK;
    list_others(values, first, count, most, others, sizeof others);
    return fo_base_error(
        FO_NUMERIC,
        "the %s of step %" PRId64 " is %.17g on rank %d (%d of ranks %d to %d have "
        "it) but %s, expected the same bits: stopped before the parameters changed "
        "and saved nothing; look at what differs about these ranks and go on from "
        "the last checkpoint",
        what, step, values[most], first + most, agree, first, first + count - 1, others);
}
