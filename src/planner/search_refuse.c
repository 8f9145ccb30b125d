/* Which size forbids every way to split: the one without which there would be ways. */
#include "planner/search_refuse.h"

#include <string.h>

#include "base/error.h"
#include "planner/split.h"

enum { NEAR = 4096 }; /* smaller sizes that are tried */

/* ---- what would be possible ---------------------------------------------------------------------------- */

/* What others leave free: one sequence at a time in one chunk is possible wherever more of them are. */
static fo_step_options step_of(const fo_search_options *o, int tp, int pp)
{
    fo_step_options step = o->step;
    step.tp = tp;
    step.pp = pp;
    step.dp = o->ranks / tp / pp;
    step.interleave = o->step.interleave ? o->step.interleave : 1;
    step.micro_batch = o->step.micro_batch ? o->step.micro_batch : 1;
    if (!o->recompute_given)
        step.recompute = FO_RECOMPUTE_NONE;
    return step;
}

/* Shapes tp x dp x pp of the ranks that go with what was given; `first` is one of them. */
typedef struct shapes {
    int count;
    fo_step_options first;
} shapes;

/* Whether one of the shapes is possible; then it is `first`. */
static bool find(const fo_search_options *o, int locals, shapes *all)
{
    const fo_step_options *given = &o->step;
    int low_tp = given->tp ? given->tp : 1, low_pp = given->pp ? given->pp : 1;
    int most_tp = given->tp ? given->tp : locals ? locals : FO_PLANNER_MOST_TP;
    int64_t most_pp = given->pp ? given->pp : given->model.layers;
    all->count = 0;
    for (int tp = low_tp; tp <= most_tp && tp <= o->ranks; tp++)
        for (int pp = low_pp; pp <= most_pp && pp <= o->ranks / tp; pp++) {
            fo_planner_split split;
            if (o->ranks % tp || o->ranks / tp % pp ||
                (given->dp && given->dp != o->ranks / tp / pp))
                continue;
            fo_step_options step = step_of(o, tp, pp);
            bool possible = fo_planner_split_make(&step, locals, &split) == FO_OK;
            if (!all->count++ || possible)
                all->first = step;
            if (possible)
                return true;
        }
    return false;
}

/* ---- the size that forbids it -------------------------------------------------------------------------- */

typedef enum size_name { MICRO_BATCH, INTERLEAVE, TP, DP, PP, RANKS, SIZES } size_name;

static const char *const names[SIZES] = {"micro_batch", "interleave", "tp", "dp", "pp", "ranks"};

static int64_t get(const fo_search_options *o, size_name name)
{
    switch (name) {
    case MICRO_BATCH: return o->step.micro_batch;
    case INTERLEAVE: return o->step.interleave;
    case TP: return o->step.tp;
    case DP: return o->step.dp;
    case PP: return o->step.pp;
    default: return o->ranks;
    }
}

static void set(fo_search_options *o, size_name name, int64_t value)
{
    switch (name) {
    case MICRO_BATCH: o->step.micro_batch = value; break;
    case INTERLEAVE: o->step.interleave = (int)value; break;
    case TP: o->step.tp = (int)value; break;
    case DP: o->step.dp = (int)value; break;
    case PP: o->step.pp = (int)value; break;
    default: o->ranks = (int)value; break;
    }
}

/* More ranks than that can't be: every sequence, layer and rank of a machine on its own. */
static int64_t most_ranks(const fo_search_options *o, int locals)
{
    double most = (double)o->step.batch * (double)o->step.model.layers;
    most *= o->step.tp ? o->step.tp : locals ? locals : FO_PLANNER_MOST_TP;
    return most < o->ranks ? (int64_t)most : o->ranks - 1;
}

/* The nearest smaller value with which there is a way; 0: none. Micro-batches are tried by powers of two, as the
 * search does. */
static int64_t smaller(const fo_search_options *o, int locals, size_name name)
{
    fo_search_options own = *o;
    shapes all;
    int64_t value = get(o, name);
    if (name == MICRO_BATCH) {
        int64_t power = 1;
        while (power < value && power <= o->step.batch && power <= INT64_MAX / 4)
            power *= 2;
        for (power /= 2; power >= 1; power /= 2) {
            set(&own, name, power);
            if (find(&own, locals, &all))
                return power;
        }
        return 0;
    }
    value = name == RANKS ? most_ranks(o, locals) : value > o->ranks ? o->ranks : value - 1;
    for (int i = 0; i < NEAR && value >= 1; i++, value--) {
        set(&own, name, value);
        if (find(&own, locals, &all))
            return value;
    }
    return 0;
}

/* ---- sentences ----------------------------------------------------------------------------------------- */

/* "tp 3 x pp 2": those that were given; returns their product. */
static int64_t put_given(const fo_search_options *o, char *text, size_t size)
{
    static const size_name splits[] = {TP, DP, PP};
    int64_t product = 1;
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < 3 && used < size; i++) {
        int64_t value = get(o, splits[i]);
        if (!value)
            continue;
        used += (size_t)snprintf(text + used, size - used, "%s%s %lld", used ? " x " : "",
                                 names[splits[i]], (long long)value);
        product *= product < INT32_MAX ? value : 1;
    }
    return product;
}

/* ", expected e.g. tp 2": of what was given, what a smaller value of would do; "" where nothing would. */
static void put_better(const fo_search_options *o, int locals, char *text, size_t size)
{
    text[0] = '\0';
    for (size_name name = MICRO_BATCH; name < RANKS; name++) {
        int64_t better = get(o, name) ? smaller(o, locals, name) : 0;
        if (better) {
            snprintf(text, size, ", expected e.g. %s %lld", names[name], (long long)better);
            return;
        }
    }
}

static fo_status bad_product(const fo_search_options *o, int locals, const char *given,
                             int64_t product)
{
    char better[64], total[48] = "";
    bool several = strstr(given, " x ") != NULL;
    if (several)
        snprintf(total, sizeof total, " = %lld", (long long)product);
    if (o->step.tp && o->step.dp && o->step.pp)
        return fo_base_error(FO_INVALID,
                             "plan: %s%s are not the %d ranks, expected sizes of that product, or "
                             "one of them left out",
                             given, total, o->ranks);
    put_better(o, locals, better, sizeof better);
    return fo_base_error(FO_INVALID, "plan: %s%s %s %d ranks%s", given, total,
                         several ? "do not divide" : "does not divide", o->ranks, better);
}

/* Several shapes, and what was given forbids all of them. */
static fo_status bad_size(const fo_search_options *o, int locals, const shapes *all)
{
    for (size_name name = MICRO_BATCH; name < RANKS; name++) {
        int64_t better = get(o, name) ? smaller(o, locals, name) : 0;
        if (better)
            return fo_base_error(FO_INVALID,
                                 "plan: %s %lld leaves no way to split %d ranks for %s and a batch "
                                 "of %lld sequences, expected e.g. %s %lld",
                                 names[name], (long long)get(o, name), o->ranks, o->step.model.name,
                                 (long long)o->step.batch, names[name], (long long)better);
    }
    int64_t ranks = smaller(o, locals, RANKS), unit = all->first.dp * all->first.micro_batch;
    if (ranks)
        return fo_base_error(FO_INVALID,
                             "plan: %d ranks can't be split for %s (%lld heads, %lld layers) and a "
                             "batch of %lld sequences, expected e.g. %lld ranks or batch %lld",
                             o->ranks, o->step.model.name, (long long)o->step.model.heads,
                             (long long)o->step.model.layers, (long long)o->step.batch,
                             (long long)ranks,
                             (long long)(o->step.batch > unit ? o->step.batch / unit * unit
                                                              : unit));
    fo_planner_split split;
    return fo_planner_split_make(&all->first, locals, &split); /* what holds for all of them */
}

fo_status fo_planner_search_refuse(const fo_search_options *o, int locals)
{
    char given[96];
    shapes all;
    fo_planner_split split;
    int64_t product = put_given(o, given, sizeof given);
    if (o->step.interleave > FO_PLANNER_MOST_INTERLEAVE)
        return fo_base_error(FO_INVALID, "plan: interleave is %d, expected at most %d",
                             o->step.interleave, FO_PLANNER_MOST_INTERLEAVE);
    if (o->ranks % product || (o->step.tp && o->step.dp && o->step.pp && product != o->ranks))
        return bad_product(o, locals, given, product);
    if (find(o, locals, &all) || !all.count) /* not asked for then */
        return fo_base_error(FO_INTERNAL, "plan: %d ranks could be split", o->ranks);
    if (all.count == 1 && product > 1) /* of it all is known */
        return fo_planner_split_make(&all.first, locals, &split);
    return bad_size(o, locals, &all);
}
