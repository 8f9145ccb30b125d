/* Choosing a strategy, and predicting: rank 0 simulates, all ranks do as it says. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "group/group.h"
#include "op/plan.h"
#include "sim/operation.h"
#include "sim/profile.h"

/* "none" is left only for what is faster by more than this. */
static const double margin = 0.01;

/* ---- agreeing -------------------------------------------------------------------------------------- */

/* Everyone gets rank 0's bytes. */
static fo_status from_first(fo_group *group, void *data, size_t bytes)
{
    char *all = malloc(bytes * (size_t)fo_group_size(group));
    if (!all)
        return fo_base_error(FO_NO_MEMORY, "no memory for what %d ranks say", fo_group_size(group));
    fo_status status = fo_group_allgather(group, data, bytes, all);
    memcpy(data, all, bytes);
    free(all);
    return status;
}

/* What rank 0 came to. */
typedef struct answer {
    int32_t status;
    char sentence[480];
    fo_sim_choice choice;
    fo_prediction prediction;
} answer;

static fo_status share_answer(fo_group *group, fo_status status, answer *a)
{
    a->status = status;
    if (status != FO_OK)
        snprintf(a->sentence, sizeof a->sentence, "%s", fo_last_error());
    status = from_first(group, a, sizeof *a);
    if (status != FO_OK || a->status == FO_OK)
        return status;
    return fo_base_error((fo_status)a->status, "%s", a->sentence);
}

/* ---- the rank that has most ------------------------------------------------------------------------ */

static double work_of(const fo_plan_desc *d)
{
    double weight = (double)d->in * (double)(d->hidden ? d->hidden : d->out) +
                    (double)d->hidden * (double)d->out;
    return weight + (double)d->in * (double)d->attention.context;
}

/* The plan as the rank with most work has it: everyone measures and simulates that one. */
static fo_status most(const fo_plan *plan, fo_plan *like)
{
    int ranks = fo_group_size(plan->group), first = 0;
    fo_plan_desc own = plan->desc, *all = malloc((size_t)ranks * sizeof *all);
    if (!all)
        return fo_base_error(FO_NO_MEMORY, "%s: no memory for %d descriptors", plan->name, ranks);
    own.name = own.overlap = NULL; /* addresses of one rank */
    fo_status status = fo_group_allgather(plan->group, &own, sizeof own, all);
    for (int r = 1; status == FO_OK && r < ranks; r++)
        if (work_of(&all[r]) > work_of(&all[first]))
            first = r;
    *like = (fo_plan){.group = plan->group, .kernel = plan->kernel, .desc = all[first]};
    free(all);
    snprintf(like->name, sizeof like->name, "%s", plan->name);
    like->desc.name = like->name;
    fo_op_plan_size(like);
    return status;
}

/* ---- what has to be known -------------------------------------------------------------------------- */

/* Of rank 0's thread, of the machine it was last asked about. */
static _Thread_local fo_op_wisdom memory;

static fo_op_wisdom *recall(const fo_plan *plan)
{
    char machine[sizeof memory.machine];
    fo_op_wisdom_machine(plan->kernel->name, plan->kernel->isa(), fo_group_threads(plan->group),
                         fo_group_transport(plan->group), machine, sizeof machine);
    if (strcmp(memory.machine, machine) != 0)
        fo_op_wisdom_read(&memory, machine);
    return &memory;
}

typedef struct knowledge {
    int count;
    fo_op_fact facts[FO_OP_NEEDS];
} knowledge;

static void remember(fo_op_wisdom *wisdom, const knowledge *before, const knowledge *now)
{
    bool learnt = false;
    for (int i = 0; i < now->count; i++) {
        if (!isnan(before->facts[i].value))
            continue;
        fo_op_wisdom_learn(wisdom, &now->facts[i]);
        learnt = true;
    }
    if (learnt)
        fo_op_wisdom_keep(wisdom);
}

static bool complete(const knowledge *k)
{
    for (int i = 0; i < k->count; i++)
        if (isnan(k->facts[i].value))
            return false;
    return true;
}

/* Rank 0 says what it knows, the rest is measured by all, or stays open. The same on every rank. */
static fo_status know(const fo_plan *like, bool measure, knowledge *k)
{
    bool first = fo_group_rank(like->group) == 0;
    memset(k, 0, sizeof *k);
    if (like->kernel->emulates)
        return FO_OK;
    k->count = fo_op_learn_needs(like, fo_group_local_ranks(like->group), k->facts);
    for (int i = 0; first && i < k->count; i++) {
        const fo_op_fact *fact = fo_op_wisdom_find(recall(like), &k->facts[i]);
        if (fact)
            k->facts[i].value = fact->value;
    }
    fo_status status = from_first(like->group, k, sizeof *k);
    knowledge before = *k;
    if (!measure)
        return status;
    if (status == FO_OK)
        status = fo_op_learn(like, k->facts, k->count);
    if (status == FO_OK && first)
        remember(recall(like), &before, k);
    return status;
}

/* ---- simulating ------------------------------------------------------------------------------------ */

static fo_sim_operation operation_of(const fo_plan *like)
{
    return (fo_sim_operation){.desc = like->desc,
                              .ranks = fo_group_size(like->group),
                              .nodes = fo_group_nodes(like->group),
                              .threads = fo_group_threads(like->group),
                              .tile_rows = like->tile_rows,
                              .wgrad_rows = like->wgrad_rows};
}

static fo_status choose(const fo_plan *like, const knowledge *k, answer *a)
{
    fo_sim_machine machine;
    fo_sim_operation operation = operation_of(like);
    fo_status status = fo_op_machine_make(like, k->facts, k->count, &machine);
    if (status != FO_OK)
        return status;
    status =
        fo_sim_operation_choose(&machine, &operation, NULL, 0, false, margin, &a->choice, NULL);
    fo_sim_machine_free(&machine);
    return status;
}

static fo_status predict(const fo_plan *like, const char *overlap, const knowledge *k, answer *a)
{
    fo_sim_machine machine;
    fo_sim_operation operation = operation_of(like);
    fo_sim_report report, none;
    fo_status status = fo_op_machine_make(like, k->facts, k->count, &machine);
    if (status != FO_OK)
        return status;
    operation.desc.overlap = overlap;
    status = fo_sim_operation_run(&machine, &operation, &report);
    operation.desc.overlap = "none";
    if (status == FO_OK)
        status = fo_sim_operation_run(&machine, &operation, &none);
    if (status == FO_OK)
        a->prediction = (fo_prediction){.total_s = report.total_s,
                                        .none_s = none.total_s,
                                        .compute_s = report.compute_s,
                                        .exposed_s = report.exposed_s};
    fo_sim_machine_free(&machine);
    return status;
}

fo_status fo_overlap_choose(const char *name, const fo_plan_desc *desc, int ranks, int threads,
                            char overlap[32], char why[192])
{
    fo_sim_machine machine;
    fo_sim_operation operation = {.desc = *desc, .ranks = ranks, .threads = threads};
    fo_sim_choice choice;
    fo_status status = fo_sim_profile_read(name, &machine);
    if (status != FO_OK)
        return status;
    status = fo_sim_operation_choose(&machine, &operation, NULL, 0, false, margin, &choice, NULL);
    fo_sim_machine_free(&machine);
    if (status != FO_OK)
        return status;
    snprintf(overlap, 32, "%s", choice.overlap);
    snprintf(why, 192, "%s", choice.why);
    return FO_OK;
}

/* ---- the calls ------------------------------------------------------------------------------------- */

/* Nothing is computed between messages, or there are none: every strategy is as good. */
static const char *nothing_to_choose(const fo_plan *plan)
{
    if (fo_group_size(plan->group) == 1)
        return "auto: one rank has nothing to communicate";
    if (!plan->desc.rows)
        return "auto: no rows";
    if (plan->desc.op == FO_ALL_GATHER || plan->desc.op == FO_REDUCE_SCATTER)
        return "auto: nothing is computed";
    return NULL;
}

static fo_status take(fo_plan *plan, const char *overlap, const char *why)
{
    snprintf(plan->overlap, sizeof plan->overlap, "%s", overlap);
    snprintf(plan->why, sizeof plan->why, "%s", why);
    plan->link = fo_group_link(plan->group);
    return fo_strategy_parse(plan->overlap, &plan->strategy);
}

fo_status fo_op_auto_choose(fo_plan *plan)
{
    fo_plan like;
    knowledge k;
    answer a = {0};
    char why[sizeof plan->why];
    if (nothing_to_choose(plan))
        return take(plan, "flash", nothing_to_choose(plan));
    fo_status status = most(plan, &like);
    if (status == FO_OK)
        status = know(&like, true, &k);
    if (status != FO_OK)
        return status;
    if (fo_group_rank(plan->group) == 0)
        status = choose(&like, &k, &a);
    status = share_answer(plan->group, status, &a);
    if (status != FO_OK)
        return status;
    snprintf(why, sizeof why, "auto, predicted %s", a.choice.why);
    return take(plan, a.choice.overlap, why);
}

fo_status fo_plan_predict(const fo_plan *plan, bool measure, fo_prediction *prediction)
{
    fo_plan like;
    knowledge k;
    answer a = {0};
    *prediction = (fo_prediction){NAN, NAN, NAN, NAN};
    if (plan->library)
        return fo_base_error(FO_UNSUPPORTED,
                             "%s: strategy %s has no program that could be simulated, expected "
                             "another strategy",
                             plan->name, plan->overlap);
    fo_status status = most(plan, &like);
    if (status == FO_OK)
        status = know(&like, measure, &k);
    if (status == FO_NO_MEMORY && !plan->automatic)
        return FO_OK; /* on all ranks: what runs without a prediction shall run */
    if (status != FO_OK || !complete(&k))
        return status;
    snprintf(a.choice.overlap, sizeof a.choice.overlap, "%s", plan->overlap);
    if (fo_group_rank(plan->group) == 0 && plan->automatic && !nothing_to_choose(plan))
        status = choose(&like, &k, &a); /* of the link there is now */
    if (fo_group_rank(plan->group) == 0 && status == FO_OK)
        status = predict(&like, a.choice.overlap, &k, &a);
    status = share_answer(plan->group, status, &a);
    if (status == FO_OK)
        *prediction = a.prediction;
    return status;
}
