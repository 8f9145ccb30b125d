/* Virtual time: turn by turn, what happens is taken note of everywhere, then what can begin begins. So nothing
 * depends on which rank is looked at first, and one of many equal ranks does what each of them would. */
#include "sim/engine.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "flashoverlap/group.h"
#include "sim/engine_state.h"

static void take_note(sim_engine *e, const fo_sim_happens *happens)
{
    sim_rank *r = &e->rank[happens->rank];
    double bytes;
    switch (happens->kind) {
    case FO_SIM_BEGINS: r->begun = true; break;
    case FO_SIM_LANE_ENDS:
        if (happens->item != r->turn)
            return;
        fo_sim_engine_lane_ends(e, r);
        break;
    case FO_SIM_DELIVERED:
    case FO_SIM_GIVEN_BACK:
        if (!e->machine->async) {
            fo_sim_engine_note(e, r, happens->task);
            break;
        }
        bytes = fo_sim_engine_message_bytes(e, r, happens->task, happens->chunk);
        if (happens->kind == FO_SIM_DELIVERED)
            r->debt_s += fo_sim_engine_software_s(e, bytes);
        fo_sim_engine_complete(e, r, happens->task);
        break;
    case FO_SIM_FLIGHT_BEGINS: fo_sim_engine_flight(e, r, 1); return;
    case FO_SIM_FLIGHT_ENDS: fo_sim_engine_flight(e, r, -1); return;
    case FO_SIM_AT_PORT: fo_sim_engine_at_port(e, happens->item); return;
    }
    fo_sim_engine_touch(e, r);
}

static void begin(sim_engine *e)
{
    const fo_sim_engine_desc *d = e->desc;
    e->happens.now_s = -1;
    for (int c = 0; c < e->period; c++) {
        sim_rank *r = &e->rank[c];
        r->speed = d->speed ? d->speed[c] : 1;
        r->wait_s = -1;
        r->note_first = -1;
        r->open.task = -1;
        fo_sim_engine_rewind(e, r);
        double start_s = d->start_s ? fo_sim_engine_whole(d->start_s[c]) : 0;
        fo_sim_engine_happens(e,
                              &(fo_sim_happens){.at_s = start_s, .kind = FO_SIM_BEGINS, .rank = c});
    }
}

/* Nothing more happens: the first rank that has not ended says where it is. */
static fo_status stuck(const sim_engine *e)
{
    const char *kinds[] = {"computation", "send", "receive", "addition", "copy"};
    const sim_rank *r = e->rank;
    while (r < e->rank + e->period && r->doing == SIM_LANE_ENDED)
        r++;
    if (r == e->rank + e->period)
        return FO_OK;
    int32_t root = fo_sim_engine_root(e, r, r->at < r->lane_count ? r->lane[r->at] : -1);
    if (root < 0)
        return fo_base_error(FO_INTERNAL, "simulator: rank %d did not end", r->program->rank);
    const fo_task *task = &r->program->tasks[root];
    char peer[32] = "";
    if (fo_sim_engine_is_message(task))
        snprintf(peer, sizeof peer, " %s rank %d", task->kind == FO_TASK_SEND ? "to" : "from",
                 task->peer);
    return fo_base_error(
        FO_SCHEDULE,
        "simulator: the programs wait for each other for ever: rank %d has come to "
        "task %d, the %s of slice %d.%d%s (step %d), which cannot go on",
        r->program->rank, (int)root, kinds[task->kind], task->shard, task->sub, peer, task->step);
}

static fo_status run_all(sim_engine *e)
{
    begin(e);
    while (e->status == FO_OK && fo_sim_queue_advance(&e->happens)) {
        e->events += e->happens.turn.count;
        for (int64_t i = 0; i < e->happens.turn.count; i++)
            take_note(e, &e->happens.turn.of[i]);
        int32_t count = e->touched_count;
        e->touched_count = 0;
        for (int32_t i = 0; i < count; i++) {
            sim_rank *r = &e->rank[e->touched[i]];
            r->touched = false;
            fo_sim_engine_go(e, r);
        }
    }
    if (e->status == FO_OK && e->happens.failed)
        return fo_base_error(FO_NO_MEMORY, "simulator: no memory for %lld events",
                             (long long)e->happens.later.count);
    return e->status == FO_OK ? stuck(e) : e->status;
}

static void sum_up(const sim_engine *e, fo_sim_run *run, fo_sim_rank *per_rank)
{
    *run = (fo_sim_run){.total_s = -1, .events = e->events};
    for (int c = 0; c < e->period; c++) {
        const fo_sim_rank *sums = &e->rank[c].sums;
        if (per_rank)
            per_rank[c] = *sums;
        if (sums->exposed_s > run->max_exposed_s)
            run->max_exposed_s = sums->exposed_s;
        if (sums->end_s <= run->total_s)
            continue;
        run->total_s = sums->end_s;
        run->slowest = c;
        run->worst = *sums;
    }
}

fo_status fo_sim_engine_run(const fo_sim_engine_desc *desc, fo_sim_run *run, fo_sim_rank *per_rank)
{
    sim_engine e = {.desc = desc,
                    .machine = desc->machine,
                    .ranks = desc->ranks,
                    .period = desc->period,
                    .message_spare = -1,
                    .note_spare = -1};
    fo_status status = fo_sim_engine_check(desc);
    if (status == FO_OK) {
        e.stream_rows = desc->programs[0]->stream_rows;
        status = fo_sim_engine_lay_out(&e);
    }
    if (status == FO_OK)
        status = run_all(&e);
    if (status == FO_OK)
        sum_up(&e, run, per_rank);
    fo_sim_engine_free(&e);
    return status;
}

/* ---- equal ranks --------------------------------------------------------------------------------------- */

static bool repeats(const double *values, int ranks, int period)
{
    for (int r = period; values && r < ranks; r++)
        if (values[r] != values[r - period])
            return false;
    return true;
}

int fo_sim_engine_period(const fo_schedule_desc *desc, const fo_sim_network *network,
                         const double *speed, const double *start, bool about)
{
    int ranks = desc->ranks, nodes = desc->nodes;
    bool nested =
        desc->strategy.kind == FO_STRATEGY_HIER || desc->strategy.kind == FO_STRATEGY_HIER_NONE;
    if (desc->rows % ranks && !about)
        return ranks;
    int of_network = fo_sim_network_period(network, ranks);
    int of_program = nested && nodes > 1 && nodes < ranks ? ranks / nodes : 1;
    for (int period = of_network; period < ranks; period += of_network)
        if (ranks % period == 0 && period % of_program == 0 && repeats(speed, ranks, period) &&
            repeats(start, ranks, period))
            return period;
    return ranks;
}
