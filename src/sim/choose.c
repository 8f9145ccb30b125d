/* The best strategy, and whether to overlap at all. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "schedule/operation.h"
#include "sim/operation.h"

static const char *const usual[] = {"none",    "slice:2", "slice:4", "slice:8", "ring",     "flash",
                                    "flash:1", "flash:2", "flash:4", "direct",  "direct:2", "hier"};

static int machines_of(const fo_sim_machine *machine, const fo_sim_operation *o)
{
    int locals = machine->network.locals;
    if (o->nodes)
        return o->nodes;
    return locals > 0 && o->ranks % locals == 0 ? o->ranks / locals : 1;
}

/* Sums in another order, or rounded at other places, have other bits (plan.h). */
static bool changes_bits(const fo_plan_desc *desc, fo_strategy_kind kind)
{
    bool sums = fo_schedule_operation_reduces(desc->op);
    if (kind == FO_STRATEGY_DIRECT)
        return sums && desc->wire == FO_BF16;
    return kind == FO_STRATEGY_HIER && (sums || fo_schedule_operation_has_wgrad(desc->op));
}

/* Of the usual ones: whether it may be taken here. */
static bool comes_into_question(const fo_sim_machine *machine, const fo_sim_operation *operation,
                                const char *overlap, bool any_bits)
{
    fo_strategy strategy;
    if (fo_strategy_parse(overlap, &strategy) != FO_OK)
        return true; /* simulating it says what is wrong */
    int machines = machines_of(machine, operation);
    if (strategy.kind == FO_STRATEGY_HIER &&
        (machines < 2 || machines >= operation->ranks || operation->ranks % machines))
        return false;
    fo_pattern pattern = fo_schedule_operation_pattern(operation->desc.op);
    bool cuts =
        pattern == FO_PATTERN_GATHER2 || pattern == FO_PATTERN_WGRAD; /* unless told not to */
    if (strategy.kind == FO_STRATEGY_FLASH && strategy.parts == 1 && !cuts)
        return false; /* is what flash is */
    return any_bits || !changes_bits(&operation->desc, strategy.kind);
}

/* Which of equals: the simpler one on links, then on memory. */
static int preference(const char *overlap)
{
    static const fo_strategy_kind order[] = {FO_STRATEGY_SLICE, FO_STRATEGY_RING, FO_STRATEGY_HIER,
                                             FO_STRATEGY_DIRECT, FO_STRATEGY_FLASH};
    fo_strategy strategy;
    int place = 0;
    if (fo_strategy_parse(overlap, &strategy) != FO_OK)
        return -1;
    while (place < 5 && order[place] != strategy.kind)
        place++;
    return place;
}

/* Times within a ten thousandth are equal. */
static bool better(const char *overlap, double total_s, const char *best, double best_s)
{
    static const double equal = 1e-4;
    if (!best || total_s < best_s * (1 - equal))
        return true;
    return total_s <= best_s * (1 + equal) && preference(overlap) > preference(best);
}

static fo_status total_of(const fo_sim_machine *machine, const fo_sim_operation *operation,
                          const char *overlap, fo_sim_report *report)
{
    fo_sim_operation own = *operation;
    own.desc.overlap = overlap;
    own.watch = NULL;
    return fo_sim_operation_run(machine, &own, report);
}

/* A time with a unit that leaves three digits. */
static void print_s(double seconds, char *text, size_t size)
{
    if (seconds >= 1)
        snprintf(text, size, "%.3g s", seconds);
    else if (seconds >= 1e-3)
        snprintf(text, size, "%.3g ms", seconds * 1e3);
    else
        snprintf(text, size, "%.3g us", seconds * 1e6);
}

/* What costs the best of the others most. */
static const char *reason(const fo_sim_losses *losses, double *seconds)
{
    const struct {
        double s;
        const char *words;
    } all[] = {{losses->slicing, "to thin slices"},
               {losses->contention, "to messages slowing computation down"},
               {losses->overhead, "to software between slices"},
               {losses->latency, "to latency"},
               {losses->imbalance, "to ranks that differ"},
               {losses->tail, "to waiting all the same"}};
    int most = 0;
    for (int i = 1; i < 6; i++)
        if (all[i].s > all[most].s)
            most = i;
    *seconds = all[most].s;
    return all[most].words;
}

/* A loss below this part of the time explains nothing. */
static const double worth_saying = 0.02;

static fo_status say_no(const fo_sim_machine *machine, const fo_sim_operation *operation,
                        const char *other, double other_s, fo_sim_choice *choice)
{
    char none[24], best[24], lost[24];
    fo_sim_operation own = *operation;
    fo_sim_report report;
    double seconds;
    print_s(choice->none_s, none, sizeof none);
    print_s(other_s, best, sizeof best);
    int used = snprintf(choice->why, sizeof choice->why, "do not overlap: none takes %s", none);
    char *rest = choice->why + used;
    size_t room = sizeof choice->why - (size_t)used;
    if (operation->ranks == 1 || !other) {
        snprintf(rest, room, ", %s",
                 other ? "one rank has nothing to send" : "there is nothing to compare it with");
        return FO_OK;
    }
    used = snprintf(rest, room, ", %s, the best of the others, %s", other, best);
    own.desc.overlap = other;
    own.watch = NULL;
    fo_status status = fo_sim_operation_explain(machine, &own, &report);
    if (status != FO_OK)
        return status;
    const char *words = reason(&report.losses, &seconds);
    print_s(seconds, lost, sizeof lost);
    if (seconds < worth_saying * choice->none_s)
        snprintf(rest + used, room - (size_t)used, ": too little is gained");
    else
        snprintf(rest + used, room - (size_t)used, "; it loses %s %s", lost, words);
    return FO_OK;
}

static void say_yes(const fo_sim_report *none, fo_sim_choice *choice)
{
    char mine[24], other[24];
    double ect = none->total_s - none->compute_s;
    print_s(choice->total_s, mine, sizeof mine);
    print_s(choice->none_s, other, sizeof other);
    int used =
        snprintf(choice->why, sizeof choice->why, "%s: %s, none %s", choice->overlap, mine, other);
    if (ect > 0)
        snprintf(choice->why + used, sizeof choice->why - (size_t)used,
                 "; %.0f %% of what communication costs is hidden",
                 100 * (1 - (choice->total_s - none->compute_s) / ect));
}

fo_status fo_sim_operation_choose(const fo_sim_machine *machine, const fo_sim_operation *operation,
                                  const char *const *overlaps, int count, bool any_bits,
                                  double margin, fo_sim_choice *chosen, double *all_total_s)
{
    fo_sim_report none, report;
    const char *best = NULL;
    double best_s = INFINITY;
    bool given = overlaps && count > 0;
    if (!given) {
        overlaps = usual;
        count = (int)(sizeof usual / sizeof usual[0]);
    }
    fo_status status = total_of(machine, operation, "none", &none);
    for (int i = 0; status == FO_OK && i < count; i++) {
        double total_s = INFINITY;
        if (!strcmp(overlaps[i], "none")) {
            total_s = none.total_s;
        } else if (comes_into_question(machine, operation, overlaps[i], any_bits)) {
            status = total_of(machine, operation, overlaps[i], &report);
            total_s = report.total_s;
            if (status == FO_OK && better(overlaps[i], total_s, best, best_s)) {
                best_s = total_s;
                best = overlaps[i];
            }
        }
        if (all_total_s)
            all_total_s[i] = total_s;
    }
    if (status != FO_OK)
        return status;
    bool overlap = best && best_s < none.total_s * (1 - margin);
    fo_sim_choice choice = {.total_s = overlap ? best_s : none.total_s, .none_s = none.total_s};
    snprintf(choice.overlap, sizeof choice.overlap, "%s", overlap ? best : "none");
    if (overlap)
        say_yes(&none, &choice);
    else
        status = say_no(machine, operation, best, best_s, &choice);
    if (status == FO_OK && chosen)
        *chosen = choice;
    return status;
}
