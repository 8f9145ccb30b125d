/* Strategies as people type them, spelled as `bench` spells them. */
#include <string.h>

#include "base/error.h"
#include "planner/simulate.h"

static const char *const suffixes[FO_PLANNER_SHAPES] = {"", "+apart", "+row"};

static fo_status bad_shape(const char *word, const fo_planner_subject *subject, bool backward,
                           unsigned shapes)
{
    char expected[64] = "no '+' behind it";
    int base = (int)strcspn(word, "+");
    for (int shape = 1; shape < FO_PLANNER_SHAPES; shape++)
        if (shapes & 1u << shape)
            snprintf(expected, sizeof expected, "%.*s or %.*s%s", base, word, base, word,
                     suffixes[shape]);
    return fo_base_error(FO_INVALID, "--overlap '%s': '%s' is no form of %s%s, expected %s", word,
                         word + base, subject->name, backward ? " --backward" : "", expected);
}

static fo_status read_strategy(fo_planner_strategy *s, const fo_planner_subject *subject,
                               bool backward)
{
    unsigned shapes = (backward ? subject->shapes_backward : subject->shapes) | 1u;
    size_t base = strcspn(s->name, "+");
    fo_strategy parsed;
    int shape = 0;
    if (base >= sizeof s->overlap)
        return fo_base_error(FO_INVALID, "--overlap '%s' is too long for a strategy", s->name);
    memcpy(s->overlap, s->name, base);
    s->overlap[base] = '\0';
    while (shape < FO_PLANNER_SHAPES && strcmp(suffixes[shape], s->name + base) != 0)
        shape++;
    if (shape == FO_PLANNER_SHAPES || !(shapes & 1u << shape))
        return bad_shape(s->name, subject, backward, shapes);
    s->shape = (fo_planner_shape)shape;
    fo_status status = fo_strategy_parse(s->overlap, &parsed);
    if (status == FO_OK && parsed.kind == FO_STRATEGY_LIBRARY)
        return fo_base_error(FO_INVALID,
                             "--overlap '%s' leaves its messages to a library's own collectives "
                             "and has no program to simulate; expected one that has, such as none "
                             "or slice:4",
                             s->overlap);
    s->automatic = parsed.kind == FO_STRATEGY_AUTO;
    return status;
}

fo_status fo_planner_simulate_spelling(const char *list, const fo_planner_subject *subject,
                                       bool backward, fo_planner_strategy *strategies, int *count)
{
    *count = 0;
    for (const char *at = list; *at;) {
        size_t length = strcspn(at, ",");
        fo_planner_strategy *s = &strategies[*count];
        if (*count == FO_PLANNER_STRATEGIES)
            return fo_base_error(FO_INVALID, "--overlap lists more than %d strategies",
                                 FO_PLANNER_STRATEGIES);
        if (!length || length >= sizeof s->name || (at[length] && !at[length + 1]))
            return fo_base_error(FO_INVALID,
                                 "--overlap '%s': expected names separated by commas, such as "
                                 "none,slice:4,flash",
                                 at);
        memcpy(s->name, at, length);
        s->name[length] = '\0';
        fo_status status = read_strategy(s, subject, backward);
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
