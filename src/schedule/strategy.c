/* Strategies as text. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "flashoverlap/schedule.h"

enum { PARTS_MAX = 256 };

static const struct {
    const char *name;
    fo_strategy_kind kind;
    bool parts; /* takes ":number" */
} strategies[] = {{"none", FO_STRATEGY_NONE, false},  {"slice", FO_STRATEGY_SLICE, true},
                  {"ring", FO_STRATEGY_RING, false},  {"library", FO_STRATEGY_LIBRARY, true},
                  {"flash", FO_STRATEGY_FLASH, true}, {"direct", FO_STRATEGY_DIRECT, true},
                  {"hier", FO_STRATEGY_HIER, true},   {"none/hier", FO_STRATEGY_HIER_NONE, false},
                  {"auto", FO_STRATEGY_AUTO, false}};

enum { STRATEGY_COUNT = sizeof strategies / sizeof *strategies };

static fo_status parse_parts(const char *text, const char *number, int *parts)
{
    char *end;
    long value = strtol(number, &end, 10);
    if (number[0] < '0' || number[0] > '9' || *end || value < 1 || value > PARTS_MAX)
        return fo_base_error(FO_INVALID,
                             "strategy '%s' has '%s' parts, expected a whole number from 1 to %d",
                             text, number, PARTS_MAX);
    *parts = (int)value;
    return FO_OK;
}

fo_status fo_strategy_parse(const char *text, fo_strategy *strategy)
{
    const char *colon = strchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : strlen(text);
    for (int i = 0; i < STRATEGY_COUNT; i++) {
        if (strlen(strategies[i].name) != length || strncmp(text, strategies[i].name, length))
            continue;
        fo_strategy found = {.kind = strategies[i].kind};
        if (colon && !strategies[i].parts)
            return fo_base_error(FO_INVALID, "strategy '%s': %s takes no number of parts", text,
                                 strategies[i].name);
        fo_status status = colon ? parse_parts(text, colon + 1, &found.parts) : FO_OK;
        if (status == FO_OK)
            *strategy = found;
        return status;
    }
    return fo_base_error(FO_INVALID,
                         "strategy '%s' is unknown, expected none, slice:k, ring, flash, flash:m, "
                         "direct, direct:m, hier, hier:m, none/hier, library, library:k or auto",
                         text);
}

void fo_strategy_print(fo_strategy strategy, char *text, size_t size)
{
    const char *name = "unknown";
    bool parts = false;
    for (int i = 0; i < STRATEGY_COUNT; i++)
        if (strategies[i].kind == strategy.kind) {
            name = strategies[i].name;
            parts = strategies[i].parts && strategy.parts > 0;
        }
    if (parts)
        snprintf(text, size, "%s:%d", name, strategy.parts);
    else
        snprintf(text, size, "%s", name);
}
