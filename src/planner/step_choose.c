/* Which strategies a whole step is fastest with. The best of every operation is not always that of the step: replicas
 * may share a link with the tp group, and what an operation saves may be waited for elsewhere. */
#include <math.h>
#include <string.h>

#include "planner/step_state.h"

enum { AS_IS = -1, NONE = 0, GROUPS = 2, ROUNDS = 3 };

/* Steps that differ by less are equal; then the simpler one is taken. */
static const double equal_part = 1e-4;

/* Operations of one row of the report: they have one strategy. */
typedef struct row {
    const char *name;
    int in[FO_PLANNER_PARTS]; /* how often */
    double as_is_s
        [GROUPS]; /* the best of it, or as stated; of equal ranks, of a group with the slow one */
    double seconds[GROUPS][FO_PLANNER_CANDIDATES];
    bool allowed[FO_PLANNER_CANDIDATES];
    const char *overlap[GROUPS]; /* taken as it is */
    int now;                     /* a strategy, or AS_IS */
} row;

typedef struct chooser {
    fo_planner_state *s;
    row rows[FO_PLANNER_CHOICES];
    int count;
    double rest_s[GROUPS][FO_PLANNER_PARTS]; /* what is not chosen */
    int best[FO_PLANNER_CHOICES];
    double best_s;
} chooser;

/* ---- prices ------------------------------------------------------------------------------------------ */

static fo_status ask(chooser *c, const fo_planner_item *item, row *r, int group)
{
    fo_planner_question q = fo_planner_state_question(c->s, item, group == 1);
    const fo_planner_price *price;
    fo_status status = fo_planner_prices_ask(c->s->prices, &q, &price);
    if (status != FO_OK)
        return status;
    r->as_is_s[group] = price->total_s;
    r->overlap[group] = price->overlap;
    q.how &= FO_PLANNER_CLOSED;
    for (int k = 0; k < FO_PLANNER_CANDIDATES && status == FO_OK; k++) {
        r->allowed[k] = fo_planner_prices_allows(c->s->prices, &q, k);
        if (!r->allowed[k])
            continue;
        q.desc.overlap = fo_planner_prices_name(k);
        status = fo_planner_prices_ask(c->s->prices, &q, &price);
        r->seconds[group][k] = price->total_s;
    }
    return status;
}

static fo_status add(chooser *c, const fo_planner_item *item, fo_planner_part part)
{
    int at = 0, groups = c->s->split.options.slow_rank < 0 ? 1 : GROUPS;
    while (at < c->count && strcmp(c->rows[at].name, item->row) != 0)
        at++;
    if (at == FO_PLANNER_CHOICES)
        return FO_OK; /* layer.c has no more */
    row *r = &c->rows[at];
    r->in[part]++;
    if (at < c->count)
        return FO_OK;
    c->count++;
    r->name = item->row;
    r->now = AS_IS;
    fo_status status = FO_OK;
    for (int g = 0; g < groups && status == FO_OK; g++)
        status = ask(c, item, r, g);
    if (groups == 1) {
        r->as_is_s[1] = r->as_is_s[0];
        r->overlap[1] = r->overlap[0];
        memcpy(r->seconds[1], r->seconds[0], sizeof r->seconds[0]);
    }
    return status;
}

static fo_status collect(chooser *c)
{
    fo_status status = FO_OK;
    for (int p = 0; p < FO_PLANNER_PARTS; p++) {
        fo_planner_items items;
        fo_planner_layer_items(&c->s->split, &c->s->machine->device, (fo_planner_part)p, &items);
        for (int i = 0; i < items.count && status == FO_OK; i++) {
            const fo_planner_item *item = &items.item[i];
            if (item->kind == FO_PLANNER_OPERATION && !item->plain && !item->async)
                status = add(c, item, (fo_planner_part)p);
        }
    }
    for (int p = 0; p < FO_PLANNER_PARTS && status == FO_OK; p++) {
        c->rest_s[0][p] = c->s->equal.part[p].total_s;
        c->rest_s[1][p] = c->s->slow.part[p].total_s;
        for (int g = 0; g < GROUPS; g++)
            for (int r = 0; r < c->count; r++)
                c->rest_s[g][p] -= c->rows[r].in[p] * c->rows[r].as_is_s[g];
    }
    return status;
}

/* ---- whole steps ------------------------------------------------------------------------------------- */

static double seconds_of(const row *r, int group)
{
    return r->now == AS_IS ? r->as_is_s[group] : r->seconds[group][r->now];
}

static fo_status evaluate(chooser *c, double *total_s)
{
    fo_planner_parts *parts[GROUPS] = {&c->s->equal, &c->s->slow};
    fo_planner_step_time time;
    for (int g = 0; g < GROUPS; g++)
        for (int p = 0; p < FO_PLANNER_PARTS; p++) {
            double sum = c->rest_s[g][p];
            for (int r = 0; r < c->count; r++)
                sum += c->rows[r].in[p] * seconds_of(&c->rows[r], g);
            parts[g]->part[p].total_s = sum;
        }
    fo_status status = fo_planner_state_time(c->s, fo_planner_as_chosen, &time);
    *total_s = time.total_s;
    return status;
}

static void put(chooser *c, const int *now)
{
    for (int r = 0; r < c->count; r++)
        c->rows[r].now = now[r];
}

/* Where a strategy does not come into question, the best of the operation stays. */
static void put_all(chooser *c, int strategy)
{
    for (int r = 0; r < c->count; r++)
        c->rows[r].now = strategy == AS_IS || c->rows[r].allowed[strategy] ? strategy : AS_IS;
}

static void put_best_slices(chooser *c)
{
    for (int r = 0; r < c->count; r++) {
        int best = NONE;
        for (int k = 0; k < FO_PLANNER_CANDIDATES; k++)
            if (fo_planner_prices_slices(k) &&
                (best == NONE || c->rows[r].seconds[0][k] < c->rows[r].seconds[0][best]))
                best = k;
        c->rows[r].now = best;
    }
}

static void keep_if_faster(chooser *c, double total_s)
{
    if (!(total_s < c->best_s * (1 - equal_part)))
        return;
    c->best_s = total_s;
    for (int r = 0; r < c->count; r++)
        c->best[r] = c->rows[r].now;
}

/* Operation by operation from the best step so far, until nothing is faster or three rounds are over. */
static fo_status descend(chooser *c)
{
    fo_status status = FO_OK;
    double before = INFINITY, total_s;
    for (int round = 0; round < ROUNDS && c->best_s < before * (1 - equal_part); round++) {
        before = c->best_s;
        for (int r = 0; r < c->count; r++)
            for (int k = AS_IS; k < FO_PLANNER_CANDIDATES && status == FO_OK; k++) {
                put(c, c->best);
                if (k == c->best[r] || (k != AS_IS && !c->rows[r].allowed[k]))
                    continue;
                c->rows[r].now = k;
                status = evaluate(c, &total_s);
                if (status == FO_OK)
                    keep_if_faster(c, total_s);
            }
        if (status != FO_OK)
            return status;
    }
    return FO_OK;
}

/* Whether anything is overlapped with these strategies. */
static bool overlaps(const chooser *c, const int *now)
{
    for (int r = 0; r < c->count; r++)
        for (int g = 0; g < GROUPS; g++)
            if (now[r] == AS_IS ? strcmp(c->rows[r].overlap[g], "none") != 0 : now[r] != NONE)
                return true;
    return false;
}

/* What does not make the step slower goes back to the best of the operation. */
static fo_status go_back(chooser *c)
{
    double total_s;
    for (int r = 0; r < c->count; r++) {
        put(c, c->best);
        if (c->best[r] == AS_IS)
            continue;
        c->rows[r].now = AS_IS;
        fo_status status = evaluate(c, &total_s);
        if (status != FO_OK)
            return status;
        if (total_s <= c->best_s) {
            c->best_s = total_s;
            c->best[r] = AS_IS;
        }
    }
    return FO_OK;
}

static bool shares_link(const fo_planner_state *s)
{
    const fo_step_options *o = &s->split.options;
    return o->dp > 1 && o->overlap_dp &&
           !fo_planner_links_replicas(s->machine, &s->split).between_machines;
}

/* ---- saying it --------------------------------------------------------------------------------------- */

/* Steps that were compared. */
typedef struct compared {
    double none_s, slice_s;
    double other_s; /* the fastest that overlaps */
    const char *other;
} compared;

static void print_s(double seconds, char *text, size_t size)
{
    bool whole = seconds >= 1;
    snprintf(text, size, "%.4g %s", whole ? seconds : seconds * 1e3, whole ? "s" : "ms");
}

static void say(const chooser *c, const compared *steps)
{
    char *why = c->s->report->why, none[24], best[24], other[24];
    size_t room = sizeof c->s->report->why;
    print_s(steps->none_s, none, sizeof none);
    print_s(c->best_s, best, sizeof best);
    print_s(steps->other_s, other, sizeof other);
    double loses = 100 * (steps->other_s / steps->none_s - 1);
    if (overlaps(c, c->best))
        snprintf(why, room,
                 "overlap: %s a step, %s with none over tp; it saves %.1f %%, and %.1f %% against "
                 "data slicing",
                 best, none, 100 * (1 - c->best_s / steps->none_s),
                 100 * fmax(0, 1 - c->best_s / steps->slice_s));
    else if (loses > 100 * equal_part)
        snprintf(why, room,
                 "do not overlap: %s a step with none, %s with %s, the best of the others: it "
                 "loses %.2g %%",
                 none, other, steps->other, loses);
    else
        snprintf(why, room, "do not overlap: %s a step with none, nothing is gained with %s", none,
                 steps->other);
}

/* Rows that are better another way than by themselves. */
static void set_choices(chooser *c)
{
    fo_planner_state *s = c->s;
    s->choice_count = 0;
    for (int r = 0; r < c->count; r++) {
        const row *of = &c->rows[r];
        const char *overlap = fo_planner_prices_name(c->best[r]);
        if (overlap && (strcmp(overlap, of->overlap[0]) || strcmp(overlap, of->overlap[1])))
            s->choices[s->choice_count++] = (fo_planner_choice){of->name, overlap};
    }
}

/* ---- the choice -------------------------------------------------------------------------------------- */

/* The step as the rows have it now. */
static fo_status try(chooser *c, const char *name, bool slices, compared *steps)
{
    double total_s;
    fo_status status = evaluate(c, &total_s);
    if (status != FO_OK)
        return status;
    if (slices)
        steps->slice_s = fmin(steps->slice_s, total_s);
    if (name && total_s < steps->other_s) {
        steps->other_s = total_s;
        steps->other = name;
    }
    if (!name)
        steps->none_s = total_s;
    keep_if_faster(c, total_s);
    return FO_OK;
}

/* Data slicing in every way, with the best number of slices for each operation too. */
static fo_status try_slices(chooser *c, compared *steps)
{
    put_best_slices(c);
    fo_status status = try(c, "data slicing", true, steps);
    for (int k = 0; k < FO_PLANNER_CANDIDATES && status == FO_OK; k++)
        if (fo_planner_prices_slices(k)) {
            put_all(c, k);
            status = try(c, fo_planner_prices_name(k), true, steps);
        }
    return status;
}

static bool any_allows(const chooser *c, int strategy)
{
    for (int r = 0; r < c->count; r++)
        if (c->rows[r].allowed[strategy])
            return true;
    return false;
}

/* None first, which is to be beaten; then the best of each operation, then one for all. */
static fo_status try_all(chooser *c, compared *steps)
{
    int as_is[FO_PLANNER_CHOICES];
    for (int r = 0; r < FO_PLANNER_CHOICES; r++)
        as_is[r] = AS_IS;
    put_all(c, NONE);
    fo_status status = try(c, NULL, false, steps);
    put_all(c, AS_IS);
    if (status == FO_OK && overlaps(c, as_is))
        status = try(c, "the best of each operation", false, steps);
    if (status == FO_OK)
        status = try_slices(c, steps);
    for (int k = NONE + 1; k < FO_PLANNER_CANDIDATES && status == FO_OK; k++) {
        if (fo_planner_prices_slices(k) || !any_allows(c, k))
            continue;
        put_all(c, k);
        status = try(c, fo_planner_prices_name(k), false, steps);
    }
    if (status == FO_OK && shares_link(c->s))
        status = descend(c);
    return status == FO_OK && overlaps(c, c->best) ? go_back(c) : status;
}

static fo_status choose(fo_planner_state *s, double *slice_s)
{
    chooser c = {.s = s, .best_s = INFINITY};
    compared steps = {INFINITY, INFINITY, INFINITY, ""};
    bool chooses = s->split.overlap == FO_PLANNER_AUTO;
    fo_status status = collect(&c);
    if (status == FO_OK)
        status = chooses ? try_all(&c, &steps) : try_slices(&c, &steps);
    if (status != FO_OK)
        return status;
    *slice_s = steps.slice_s;
    if (chooses) {
        set_choices(&c);
        say(&c, &steps);
    }
    return fo_planner_state_price(s);
}

/* Of what is asynchronous nothing can be sliced: data slicing is that of the step under none. */
fo_status fo_planner_state_choose(fo_planner_state *s, double *slice_s)
{
    *slice_s = INFINITY;
    if (s->split.options.tp == 1 || !s->split.options.sequence_parallel)
        return FO_OK;
    if (s->split.overlap != FO_PLANNER_MEGATRON)
        return choose(s, slice_s);
    fo_planner_state none = *s;
    none.split = fo_planner_state_none(s);
    fo_status status = fo_planner_state_price(&none);
    return status == FO_OK ? choose(&none, slice_s) : status;
}
