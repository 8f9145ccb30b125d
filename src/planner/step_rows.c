/* What the parts of a step take, and the report's rows. */
#include <math.h>
#include <string.h>

#include "planner/step_state.h"

/* ---- one item ---------------------------------------------------------------------------------------- */

/* A slow rank loses against one that is as fast as stated. */
static void alone(double seconds, double speed, fo_planner_price *price)
{
    memset(price, 0, sizeof *price);
    price->total_s = price->none_s = price->slice_s = price->compute_s = seconds / speed;
    price->bound_s = seconds;
    price->losses.imbalance = price->total_s - seconds;
}

/* All products of a batch share a launch and fill the device together. */
static double product_s(const fo_planner_state *s, const fo_planner_item *item)
{
    const fo_sim_device *device = &s->machine->device;
    bool attention = item->work == FO_SIM_ATTENTION || item->work == FO_SIM_ATTENTION_GRAD;
    double together = attention || device->entry_count ? 1 : item->batch, floor_s;
    double seconds = fo_sim_cost_product(device, item->work, s->split.options.dtype, 1,
                                         together * item->rows, item->k, item->n, false);
    seconds *= item->batch / together;
    floor_s = fo_sim_cost_pass(device, item->bytes);
    return seconds > floor_s ? seconds : floor_s;
}

fo_planner_question fo_planner_state_question(const fo_planner_state *s,
                                              const fo_planner_item *item, bool slow)
{
    const fo_step_options *o = &s->split.options;
    return (fo_planner_question){.desc = item->desc,
                                 .async = item->async,
                                 .whole = item->whole,
                                 .ranks = o->tp,
                                 .slow_rank = slow ? o->slow_rank : -1,
                                 .slow_speed = o->slow_speed,
                                 .how = s->how};
}

/* NULL: as the item has it. */
static const char *chosen_for(const fo_planner_state *s, const fo_planner_item *item)
{
    for (int i = 0; i < s->choice_count && !item->plain && !item->async; i++)
        if (strcmp(s->choices[i].row, item->row) == 0)
            return s->choices[i].overlap;
    return NULL;
}

static fo_status price_of(fo_planner_state *s, const fo_planner_item *item, bool slow,
                          fo_planner_price *price)
{
    double speed = slow ? s->split.options.slow_speed : 1;
    if (item->kind != FO_PLANNER_OPERATION) {
        double seconds = item->kind == FO_PLANNER_PASS
                             ? fo_sim_cost_pass(&s->machine->device, item->bytes)
                             : product_s(s, item);
        alone(seconds, speed, price);
        return FO_OK;
    }
    fo_planner_question question = fo_planner_state_question(s, item, slow);
    const char *chosen = chosen_for(s, item);
    if (chosen)
        question.desc.overlap = chosen;
    if (item->plain)
        question.how &= ~(unsigned)FO_PLANNER_COMPARE;
    const fo_planner_price *found;
    fo_status status = fo_planner_prices_ask(s->prices, &question, &found);
    if (status != FO_OK)
        return status;
    *price = *found;
    if (item->plain)
        snprintf(price->why, sizeof price->why, "none: activations are not sharded over tp");
    if (chosen)
        snprintf(price->why, sizeof price->why, "%s: the whole step is fastest so", chosen);
    return FO_OK;
}

/* ---- parts ------------------------------------------------------------------------------------------- */

fo_planner_split fo_planner_state_none(const fo_planner_state *s)
{
    fo_planner_split split = s->split;
    split.overlap = FO_PLANNER_STATED;
    split.options.overlap = "none";
    return split;
}

/* What is asynchronous has other items than the same step under none, where activations are whole. */
static bool none_differs(const fo_planner_state *s)
{
    return s->split.overlap == FO_PLANNER_MEGATRON && (s->how & FO_PLANNER_COMPARE);
}

static fo_status price_part(fo_planner_state *s, fo_planner_part part, bool slow,
                            fo_planner_seconds *seconds);

static fo_status price_none(const fo_planner_state *s, fo_planner_part part, bool slow,
                            fo_planner_seconds *seconds)
{
    fo_planner_state none = *s;
    fo_planner_seconds other;
    none.split = fo_planner_state_none(s);
    fo_status status = price_part(&none, part, slow, &other);
    seconds->none_s = other.none_s;
    seconds->slice_s = other.slice_s;
    return status;
}

static fo_status price_part(fo_planner_state *s, fo_planner_part part, bool slow,
                            fo_planner_seconds *seconds)
{
    fo_planner_items items;
    fo_status status = FO_OK;
    memset(seconds, 0, sizeof *seconds);
    fo_planner_layer_items(&s->split, &s->machine->device, part, &items);
    for (int i = 0; i < items.count && status == FO_OK; i++) {
        fo_planner_price price;
        status = price_of(s, &items.item[i], slow, &price);
        if (status != FO_OK)
            break;
        seconds->total_s += price.total_s;
        seconds->none_s += price.none_s;
        seconds->slice_s += price.slice_s;
        seconds->compute_s += price.compute_s;
        seconds->transfer_s += price.transfer_s;
    }
    return status == FO_OK && none_differs(s) ? price_none(s, part, slow, seconds) : status;
}

fo_status fo_planner_state_price(fo_planner_state *s)
{
    fo_status status = FO_OK;
    for (int p = 0; p < FO_PLANNER_PARTS && status == FO_OK; p++) {
        status = price_part(s, (fo_planner_part)p, false, &s->equal.part[p]);
        s->slow.part[p] = s->equal.part[p];
        if (status == FO_OK && s->split.options.slow_rank >= 0)
            status = price_part(s, (fo_planner_part)p, true, &s->slow.part[p]);
    }
    return status;
}

double fo_planner_state_count(const fo_planner_state *s, fo_planner_part part, int stage)
{
    double micro_batches = (double)s->split.micro_batches;
    switch (part) {
    case FO_PLANNER_EMBEDDING_FORWARD:
    case FO_PLANNER_EMBEDDING_BACKWARD: return stage == 0 ? micro_batches : 0;
    case FO_PLANNER_HEAD_FORWARD:
    case FO_PLANNER_HEAD_BACKWARD: return stage == s->split.options.pp - 1 ? micro_batches : 0;
    default: return micro_batches * (double)fo_planner_split_stage_layers(&s->split, stage);
    }
}

/* ---- rows -------------------------------------------------------------------------------------------- */

static fo_step_row *row_of(fo_step_report *report, const char *name)
{
    for (int i = 0; i < report->row_count; i++)
        if (strcmp(report->rows[i].name, name) == 0)
            return &report->rows[i];
    if (report->row_count == FO_STEP_ROWS)
        return NULL; /* layer.c has no more names than there are rows */
    fo_step_row *row = &report->rows[report->row_count++];
    snprintf(row->name, sizeof row->name, "%s", name);
    return row;
}

/* Sums over executions; they are divided by their number in the end. */
static void add_price(fo_step_row *row, const fo_planner_price *p, double count)
{
    row->total_s += count * p->total_s;
    row->none_s += count * p->none_s;
    row->compute_s += count * p->compute_s;
    row->transfer_s += count * p->transfer_s;
    row->bound_s += count * p->bound_s;
    row->exposed_s += count * p->exposed_s;
    row->losses.imbalance += count * p->losses.imbalance;
    row->losses.contention += count * p->losses.contention;
    row->losses.overhead += count * p->losses.overhead;
    row->losses.latency += count * p->losses.latency;
    row->losses.slicing += count * p->losses.slicing;
    row->losses.tail += count * p->losses.tail;
    if (p->overlap[0] && !row->overlap[0]) {
        memcpy(row->overlap, p->overlap, sizeof row->overlap);
        memcpy(row->why, p->why, sizeof row->why);
    }
}

static void divide(fo_step_row *row)
{
    double *sums[] = {&row->total_s,          &row->none_s,
                      &row->compute_s,        &row->transfer_s,
                      &row->bound_s,          &row->exposed_s,
                      &row->losses.imbalance, &row->losses.contention,
                      &row->losses.overhead,  &row->losses.latency,
                      &row->losses.slicing,   &row->losses.tail};
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        *sums[i] /= row->count;
}

/* What the part takes under none, which has the same rows. */
static fo_status add_none(fo_planner_state *s, fo_planner_part part, double count)
{
    fo_planner_state none = *s;
    fo_planner_items items;
    none.split = fo_planner_state_none(s);
    fo_planner_layer_items(&none.split, &s->machine->device, part, &items);
    for (int i = 0; i < items.count; i++) {
        fo_planner_price price;
        fo_status status = price_of(&none, &items.item[i], s->split.options.slow_rank >= 0, &price);
        fo_step_row *row = row_of(s->report, items.item[i].row);
        if (status != FO_OK)
            return status;
        if (row)
            row->none_s += count * price.none_s;
    }
    return FO_OK;
}

/* Several items of a list may belong to a row: they are one execution of it. */
static fo_status add_part(fo_planner_state *s, fo_planner_part part, double count)
{
    fo_planner_items items;
    fo_planner_layer_items(&s->split, &s->machine->device, part, &items);
    for (int i = 0; i < items.count; i++) {
        fo_planner_price price;
        bool first = true;
        for (int k = 0; k < i; k++)
            first &= strcmp(items.item[k].row, items.item[i].row) != 0;
        fo_status status = price_of(s, &items.item[i], s->split.options.slow_rank >= 0, &price);
        fo_step_row *row = row_of(s->report, items.item[i].row);
        if (status != FO_OK)
            return status;
        if (!row)
            continue;
        price.none_s = none_differs(s) ? 0 : price.none_s;
        add_price(row, &price, count);
        row->count += first ? count : 0;
    }
    return none_differs(s) ? add_none(s, part, count) : FO_OK;
}

static fo_status add_parts(fo_planner_state *s)
{
    static const fo_planner_part order[] = {
        FO_PLANNER_EMBEDDING_FORWARD, FO_PLANNER_FORWARD, FO_PLANNER_HEAD_FORWARD,
        FO_PLANNER_HEAD_BACKWARD,     FO_PLANNER_AGAIN,   FO_PLANNER_BACKWARD,
        FO_PLANNER_EMBEDDING_BACKWARD};
    fo_status status = FO_OK;
    for (size_t i = 0; i < sizeof order / sizeof *order && status == FO_OK; i++) {
        double count = fo_planner_state_count(s, order[i], s->busiest);
        if (count > 0)
            status = add_part(s, order[i], count);
    }
    for (int i = 0; i < s->report->row_count; i++)
        divide(&s->report->rows[i]);
    return status;
}

/* ---- between ranks, and the optimizer ---------------------------------------------------------------- */

/* What is added to the step, of which nothing is computed; of `count` executions. */
static fo_step_row *add_wait(fo_step_report *r, const char *name, double count, double total_s,
                             double none_s, double transfer_s)
{
    fo_step_row *row = row_of(r, name);
    if (!row)
        return NULL;
    row->count = count;
    row->total_s = row->exposed_s = fmax(0, total_s) / count;
    row->none_s = fmax(0, none_s) / count;
    row->transfer_s = transfer_s;
    row->losses.tail = row->total_s;
    return row;
}

/* What is left of the row's time without an effect; what it falls by is that effect's. */
static void lose(fo_step_row *row, double *loss, double left_s)
{
    double lost = fmin(row->losses.tail, fmax(0, row->losses.tail - left_s / row->count));
    *loss += lost;
    row->losses.tail -= lost;
}

static void add_pipeline(fo_planner_state *s, const fo_planner_step_time *time,
                         const fo_planner_step_time *none, const fo_planner_step_without *w,
                         double none_free_s)
{
    const fo_step_options *o = &s->split.options;
    double passes = (double)s->split.micro_batches * o->interleave;
    double free_s = fmin(time->pipeline_s, fmax(w->pipeline_s, time->work_s));
    double none_s = fmin(none->pipeline_s, fmax(none_free_s, none->work_s));
    fo_step_row *row =
        add_wait(s->report, "pipeline bubble", 1, free_s - time->work_s, none_s - none->work_s, 0);
    if (row) /* stages that are equal wait for the first and the last micro-batch; all else is for others */
        lose(row, &row->losses.imbalance, time->work_s * (o->pp - 1) / passes);
    row = add_wait(s->report, "between stages", 2 * passes, time->pipeline_s - free_s,
                   none->pipeline_s - none_s, fo_planner_state_message_s(s, s->busiest));
    if (row)
        lose(row, &row->losses.latency, w->latency.pipeline_s - free_s);
    if (!(time->table_s > 0))
        return;
    row = add_wait(s->report, "table of both ends", 1, time->table_s, none->table_s, time->table_s);
    if (row)
        lose(row, &row->losses.latency, w->latency.table_s);
}

static void add_replicas(fo_planner_state *s, const fo_planner_step_time *time,
                         const fo_planner_step_time *none, const fo_planner_step_without *w)
{
    const fo_step_options *o = &s->split.options;
    fo_planner_replicas r = fo_planner_state_replicas(s, fo_planner_as_chosen);
    const char *behind = o->overlap_dp ? "behind" : "none";
    fo_step_row *row = add_wait(s->report, "gradients over dp", 1, time->gradients_s,
                                none->gradients_s, fo_planner_replicas_gradients_s(&r, s->busiest));
    if (row) {
        snprintf(row->overlap, sizeof row->overlap, "%s", behind);
        lose(row, &row->losses.contention, w->contention.gradients_s);
        lose(row, &row->losses.latency, w->latency.gradients_s);
    }
    if (!o->sharded_optimizer)
        return;
    row = add_wait(s->report, "parameters over dp", 1, time->parameters_s, none->parameters_s,
                   fo_planner_replicas_parameters_s(&r, s->busiest));
    if (row) {
        snprintf(row->overlap, sizeof row->overlap, "%s", behind);
        lose(row, &row->losses.latency, w->latency.parameters_s);
    }
}

static void add_optimizer(fo_planner_state *s, const fo_planner_step_time *time)
{
    fo_step_row *row = time->optimizer_s > 0 ? row_of(s->report, "optimizer") : NULL;
    if (!row)
        return;
    row->count = 1;
    row->total_s = row->none_s = row->compute_s = time->optimizer_s;
    row->bound_s = time->equal_optimizer_s;
    row->losses.imbalance = row->total_s - row->bound_s;
}

fo_status fo_planner_state_rows(fo_planner_state *s, const fo_planner_step_time *time,
                                const fo_planner_step_time *none)
{
    fo_planner_step_without without, apart;
    s->report->row_count = 0;
    fo_status status = add_parts(s);
    if (status == FO_OK)
        status = fo_planner_state_without(s, fo_planner_as_chosen, &without);
    apart = without;
    if (status == FO_OK && (s->how & FO_PLANNER_COMPARE))
        status = fo_planner_state_without(s, fo_planner_not_overlapped, &apart);
    if (status != FO_OK)
        return status;
    if (s->split.options.pp > 1)
        add_pipeline(s, time, none, &without, apart.pipeline_s);
    if (s->split.options.dp > 1)
        add_replicas(s, time, none, &without);
    add_optimizer(s, time);
    return FO_OK;
}
