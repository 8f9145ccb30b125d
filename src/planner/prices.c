/* A table of prices, and how one is found. */
#include "planner/prices.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "flashoverlap/schedule.h"
#include "schedule/operation.h"
#include "sim/explain.h"

/* All that a price depends on; compared byte by byte, so without holes, and speeds by their bits. */
typedef struct key {
    int64_t rows, in, out, hidden, batch, context, slow_speed;
    int op, dtype, wire, y_dtype, act, heads, head_dim, order, ranks, slow_rank;
    int async; /* 1; of whole activations 2 more */
    unsigned how;
    char overlap[32];
} key;

/* A price stays where it is when the table grows. */
typedef struct entry {
    key key;
    fo_planner_price price;
} entry;

struct fo_planner_prices {
    const fo_sim_machine *machine;
    entry **slots;
    size_t capacity, count; /* capacity: a power of two */
    int64_t events;
};

static const char *const strategies[FO_PLANNER_CANDIDATES] = {"none",     "slice:2", "slice:4",
                                                              "slice:8",  "ring",    "flash",
                                                              "flash:2",  "flash:4", "direct",
                                                              "direct:2", "hier"};
enum { SLICES_FROM = 1, SLICES_TO = 4 };

/* ---- the table --------------------------------------------------------------------------------------- */

fo_status fo_planner_prices_create(const fo_sim_machine *machine, fo_planner_prices **prices)
{
    fo_planner_prices *made = calloc(1, sizeof *made);
    *prices = NULL;
    if (made) {
        made->capacity = 64;
        made->slots = calloc(made->capacity, sizeof *made->slots);
    }
    if (!made || !made->slots) {
        free(made);
        return fo_base_error(FO_NO_MEMORY, "no memory for prices of operations");
    }
    made->machine = machine;
    *prices = made;
    return FO_OK;
}

void fo_planner_prices_free(fo_planner_prices *prices)
{
    if (!prices)
        return;
    for (size_t i = 0; i < prices->capacity; i++)
        free(prices->slots[i]);
    free(prices->slots);
    free(prices);
}

const fo_sim_machine *fo_planner_prices_machine(const fo_planner_prices *prices)
{
    return prices->machine;
}

int64_t fo_planner_prices_events(const fo_planner_prices *prices)
{
    return prices->events;
}

int64_t fo_planner_prices_count(const fo_planner_prices *prices)
{
    return (int64_t)prices->count;
}

static uint64_t hash(const key *k)
{
    const unsigned char *bytes = (const unsigned char *)k;
    uint64_t value = 14695981039346656037u;
    for (size_t i = 0; i < sizeof *k; i++)
        value = (value ^ bytes[i]) * 1099511628211u;
    return value ^ value >> 29;
}

/* Where it is, or where it belongs. */
static entry **slot_of(entry **slots, size_t capacity, const key *k)
{
    size_t at = (size_t)hash(k) & (capacity - 1);
    while (slots[at] && memcmp(&slots[at]->key, k, sizeof *k) != 0)
        at = (at + 1) & (capacity - 1);
    return &slots[at];
}

static bool grow(fo_planner_prices *prices)
{
    size_t capacity = prices->capacity * 2;
    entry **slots = calloc(capacity, sizeof(entry *));
    if (!slots)
        return false;
    for (size_t i = 0; i < prices->capacity; i++)
        if (prices->slots[i])
            *slot_of(slots, capacity, &prices->slots[i]->key) = prices->slots[i];
    free(prices->slots);
    prices->slots = slots;
    prices->capacity = capacity;
    return true;
}

static key key_of(const fo_planner_question *q)
{
    const fo_plan_desc *d = &q->desc;
    key k;
    memset(&k, 0, sizeof k);
    k.rows = d->rows;
    k.in = d->in;
    k.out = d->out;
    k.hidden = d->hidden;
    k.batch = d->attention.batch;
    k.context = d->attention.context;
    if (q->slow_rank >= 0)
        memcpy(&k.slow_speed, &q->slow_speed, sizeof k.slow_speed);
    k.op = d->op;
    k.dtype = d->dtype;
    k.wire = d->wire;
    k.y_dtype = d->y_dtype;
    k.act = d->act;
    k.heads = d->attention.heads;
    k.head_dim = d->attention.head_dim;
    k.order = d->attention.order;
    k.ranks = q->ranks;
    k.slow_rank = q->slow_rank;
    k.async = q->async + 2 * q->whole;
    k.how = q->how;
    snprintf(k.overlap, sizeof k.overlap, "%s", d->overlap ? d->overlap : "auto");
    return k;
}

/* ---- one operation ----------------------------------------------------------------------------------- */

/* What is asked, with what the simulator wants to have for it. */
typedef struct search {
    fo_planner_prices *prices;
    const fo_planner_question *question;
    fo_sim_machine machine; /* entries are the caller's */
    double *speed;          /* [ranks], NULL: equal */
} search;

static fo_status begin(fo_planner_prices *prices, const fo_planner_question *q, search *s)
{
    *s = (search){.prices = prices, .question = q, .machine = *prices->machine};
    int *torus = s->machine.network.torus, size = 1;
    for (int d = 0; d < FO_SIM_DIMENSIONS; d++)
        size *= torus[d] > 0 ? torus[d] : 1;
    if (s->machine.network.topology == FO_SIM_TORUS && size != q->ranks) {
        memset(torus, 0, sizeof s->machine.network.torus); /* a part of it: a ring of neighbours */
        torus[0] = q->ranks;
    }
    if (q->slow_rank < 0)
        return FO_OK;
    s->speed = malloc((size_t)q->ranks * sizeof *s->speed);
    if (!s->speed)
        return fo_base_error(FO_NO_MEMORY, "no memory for the speeds of %d ranks", q->ranks);
    for (int r = 0; r < q->ranks; r++)
        s->speed[r] = r == q->slow_rank ? q->slow_speed : 1;
    return FO_OK;
}

static fo_sim_operation operation_of(const search *s, const char *overlap)
{
    fo_sim_operation operation = {.desc = s->question->desc,
                                  .ranks = s->question->ranks,
                                  .threads = 1,
                                  .packed = true,
                                  .speed = s->speed};
    operation.desc.overlap = overlap;
    return operation;
}

static fo_status run(search *s, const fo_plan_desc *desc, const char *overlap,
                     fo_sim_report *report)
{
    fo_sim_operation operation = operation_of(s, overlap);
    operation.desc = *desc;
    operation.desc.overlap = overlap;
    memset(report, 0, sizeof *report);
    fo_status status = FO_UNSUPPORTED;
    if (s->question->how & FO_PLANNER_CLOSED)
        status = fo_sim_operation_closed(&s->machine, &operation, report);
    if (status == FO_UNSUPPORTED)
        status = fo_sim_operation_run(&s->machine, &operation, report);
    s->prices->events += report->events;
    return status;
}

/* The simulator rounds what a tile takes to 2^-50 s, the bound does not. */
static const double rounding_s = 1e-12;

static void take(const fo_sim_report *report, const char *overlap, fo_planner_price *price)
{
    const fo_sim_losses *l = &report->losses;
    price->total_s = report->total_s;
    price->compute_s = report->compute_s;
    price->transfer_s = report->transfer_s;
    price->bound_s = report->bound_s - report->total_s < rounding_s
                         ? fmin(report->bound_s, report->total_s)
                         : report->bound_s;
    price->exposed_s = report->exposed_s;
    price->losses =
        (fo_step_losses){l->imbalance, l->contention, l->overhead, l->latency, l->slicing, l->tail};
    snprintf(price->overlap, sizeof price->overlap, "%s", overlap);
}

/* ---- the best strategy ------------------------------------------------------------------------------- */

static bool across_machines(const fo_planner_prices *prices, const fo_planner_question *question)
{
    int locals = prices->machine->network.locals;
    return locals > 0 && question->ranks > locals;
}

const char *fo_planner_prices_name(int number)
{
    return number >= 0 && number < FO_PLANNER_CANDIDATES ? strategies[number] : NULL;
}

/* Strategies with other bits than none's come into question only where a group spans machines: there none of the
 * others is worth much. `direct` rounds elsewhere on a wire of 16 bits. */
bool fo_planner_prices_allows(const fo_planner_prices *prices, const fo_planner_question *question,
                              int number)
{
    const fo_plan_desc *d = &question->desc;
    fo_strategy strategy;
    if (fo_strategy_parse(strategies[number], &strategy) != FO_OK)
        return false;
    bool across = across_machines(prices, question);
    int locals = across ? prices->machine->network.locals : 1;
    bool rounds = fo_schedule_operation_reduces(d->op) && d->wire == FO_BF16;
    if (strategy.kind == FO_STRATEGY_HIER)
        return across && locals > 1 && question->ranks % locals == 0;
    return strategy.kind != FO_STRATEGY_DIRECT || !rounds || across;
}

bool fo_planner_prices_slices(int number)
{
    return number >= SLICES_FROM && number < SLICES_TO;
}

/* Every strategy by its closed form; the same rule as fo_sim_operation_choose. */
static fo_status choose_closed(search *s, fo_planner_price *price, double *totals)
{
    fo_sim_report report, none = {0}, best = {0};
    const char *chosen = "none";
    for (int i = 0; i < FO_PLANNER_CANDIDATES; i++) {
        totals[i] = INFINITY;
        if (!fo_planner_prices_allows(s->prices, s->question, i))
            continue;
        fo_status status = run(s, &s->question->desc, strategies[i], &report);
        if (status != FO_OK)
            return status;
        totals[i] = report.total_s;
        if (i == 0)
            none = best = report;
        if (report.total_s < best.total_s && report.total_s < 0.99 * none.total_s) {
            best = report;
            chosen = strategies[i];
        }
    }
    take(&best, chosen, price);
    return FO_OK;
}

static fo_status choose(search *s, fo_planner_price *price)
{
    double totals[FO_PLANNER_CANDIDATES];
    fo_sim_choice choice;
    fo_sim_report report;
    fo_status status;
    if (s->question->how & FO_PLANNER_CLOSED) {
        status = choose_closed(s, price, totals);
    } else {
        fo_sim_operation operation = operation_of(s, NULL);
        status =
            fo_sim_operation_choose(&s->machine, &operation, strategies, FO_PLANNER_CANDIDATES,
                                    across_machines(s->prices, s->question), 0.01, &choice, totals);
        if (status == FO_OK)
            status = run(s, &s->question->desc, choice.overlap, &report);
        if (status == FO_OK) {
            take(&report, choice.overlap, price);
            memcpy(price->why, choice.why, sizeof price->why);
        }
    }
    if (status != FO_OK)
        return status;
    price->none_s = totals[0];
    price->slice_s = INFINITY;
    for (int i = SLICES_FROM; i < SLICES_TO; i++)
        price->slice_s = fmin(price->slice_s, totals[i]);
    return FO_OK;
}

static fo_status compare(search *s, fo_planner_price *price)
{
    const fo_plan_desc *desc = &s->question->desc;
    fo_sim_report report;
    fo_status status = run(s, desc, "none", &report);
    price->none_s = report.total_s;
    price->slice_s = INFINITY;
    for (int i = SLICES_FROM; i < SLICES_TO && status == FO_OK; i++) {
        status = run(s, desc, strategies[i], &report);
        price->slice_s = fmin(price->slice_s, report.total_s);
    }
    return status;
}

/* ---- Megatron-LM's backward pass ----------------------------------------------------------------------- */

/* A product beside messages that need `transfer_s`: it goes `slowed` times as slowly while they are in flight. */
static double beside(double transfer_s, double product_s, double slowed)
{
    double done = transfer_s / slowed; /* of the product, when the messages are through */
    return done >= product_s ? fmax(transfer_s, product_s * slowed) : transfer_s + product_s - done;
}

static double dgrad_s(const search *s, bool in_flight)
{
    const fo_plan_desc *d = &s->question->desc;
    double speed = s->question->slow_rank >= 0 ? s->question->slow_speed : 1;
    return fo_sim_cost_product(&s->machine.device, FO_SIM_GEMM, d->dtype, 1, (double)d->rows,
                               (double)d->out, (double)d->in, in_flight) /
           speed;
}

/* What the messages of an operation of unsharded activations take at least: the sums have to come, and the rest of the
 * all-reduce has to follow them; that the first of them are waited for is in the sums already. */
static double whole_bound_s(const search *s, const fo_sim_report *gathered,
                            const fo_sim_report *summed, double compute_s)
{
    const fo_sim_network *n = &s->machine.network;
    double latency =
        n->locals > 0 ? fmin(n->link.latency_s, n->outer.latency_s) : n->link.latency_s;
    return fmax(compute_s, fmax(0, gathered->transfer_s - latency) + summed->transfer_s);
}

/* What the three parts of it take by themselves. */
static fo_status price_apart(search *s, fo_sim_report *none, fo_sim_report *gathered,
                             fo_sim_report *summed)
{
    const fo_plan_desc *d = &s->question->desc;
    fo_plan_desc gather = {.op = FO_ALL_GATHER, .rows = d->rows, .in = d->in, .dtype = d->dtype};
    fo_plan_desc sums = {.op = FO_REDUCE_SCATTER, .rows = d->rows, .in = d->in, .wire = d->wire};
    gather.wire = d->wire;
    sums.dtype = d->dtype;
    fo_status status = run(s, d, "none", none);
    if (status == FO_OK)
        status = run(s, &gather, "none", gathered);
    return status == FO_OK ? run(s, &sums, "none", summed) : status;
}

/* dgrad beside the gather, wgrad beside the sums; of unsharded activations wgrad beside the all-reduce. */
typedef struct async_form {
    double gathered, summed, dgrad, wgrad, slowed;
    bool whole;
} async_form;

static double async_s(const async_form *a)
{
    if (a->whole)
        return a->dgrad + beside(a->gathered + a->summed, a->wgrad, a->slowed);
    return beside(a->gathered, a->dgrad, a->slowed) + beside(a->summed, a->wgrad, a->slowed);
}

/* What the time above the bound falls by, without a slow rank, then without contention; the rest is waited for. */
static fo_step_losses async_losses(const search *s, async_form form, double bound_s)
{
    double speed = s->question->slow_rank >= 0 ? s->question->slow_speed : 1;
    double total_s = async_s(&form), gap = fmax(0, total_s - bound_s);
    fo_step_losses losses = {0};
    form.dgrad *= speed;
    form.wgrad *= speed;
    losses.imbalance = fmin(gap, fmax(0, total_s - async_s(&form)));
    gap -= losses.imbalance;
    total_s = async_s(&form);
    form.slowed = 1;
    losses.contention = fmin(gap, fmax(0, total_s - async_s(&form)));
    losses.tail = gap - losses.contention;
    return losses;
}

/* All that a rank computes besides dgrad (sums of columns, epilogues) goes with wgrad. */
static fo_status price_async(search *s, fo_planner_price *price)
{
    fo_sim_report gathered, summed, none;
    fo_status status = price_apart(s, &none, &gathered, &summed);
    if (status != FO_OK)
        return status;
    async_form form = {.gathered = gathered.total_s,
                       .summed = summed.total_s,
                       .dgrad = dgrad_s(s, false),
                       .slowed = 1 + s->machine.contention,
                       .whole = s->question->whole};
    form.wgrad = fmax(0, none.compute_s - form.dgrad);
    form.slowed *= form.dgrad > 0 ? dgrad_s(s, true) / form.dgrad : 1;
    take(&none, "megatron", price);
    price->total_s = async_s(&form);
    price->none_s = none.total_s;
    price->compute_s = form.dgrad + form.wgrad;
    if (form.whole) {
        price->none_s = price->compute_s + form.gathered + form.summed;
        price->transfer_s = gathered.transfer_s + summed.transfer_s;
        price->bound_s = whole_bound_s(s, &gathered, &summed, price->compute_s);
    }
    price->slice_s = price->none_s;
    price->exposed_s = price->total_s - price->compute_s;
    price->losses = async_losses(s, form, price->bound_s);
    snprintf(price->why, sizeof price->why,
             "megatron: stated; the gather behind dgrad, sums behind wgrad");
    return FO_OK;
}

/* ---- asking ------------------------------------------------------------------------------------------ */

static fo_status explain(search *s, fo_planner_price *price)
{
    char overlap[sizeof price->overlap];
    memcpy(overlap, price->overlap, sizeof overlap);
    fo_sim_operation operation = operation_of(s, overlap);
    fo_sim_report report;
    fo_status status = fo_sim_operation_explain(&s->machine, &operation, &report);
    if (status == FO_OK)
        take(&report, overlap, price);
    return status;
}

/* C of a step is what its ranks have to compute: what only a rank alone does is none of it. */
static fo_status leave_out(search *s, fo_planner_price *price)
{
    const fo_planner_question *q = s->question;
    fo_sim_operation operation = operation_of(s, "none");
    double least_s;
    if (q->desc.op != FO_ROW_BACKWARD && q->desc.op != FO_ATTENTION_BACKWARD)
        return FO_OK;
    fo_status status = fo_sim_explain_least(&s->machine, &operation, &least_s);
    if (status == FO_OK)
        price->compute_s = fmin(price->compute_s, least_s / (q->slow_rank < 0 ? 1 : q->slow_speed));
    return status;
}

static fo_status find(search *s, fo_planner_price *price)
{
    const fo_planner_question *q = s->question;
    fo_sim_report report;
    fo_status status;
    if (q->async)
        return price_async(s, price);
    if (!q->desc.overlap && q->ranks > 1) {
        status = choose(s, price);
    } else {
        const char *overlap = q->desc.overlap && q->ranks > 1 ? q->desc.overlap : "none";
        status = run(s, &q->desc, overlap, &report);
        take(&report, overlap, price);
        price->none_s = price->slice_s = report.total_s;
        snprintf(price->why, sizeof price->why, "%s: %s", overlap,
                 q->ranks > 1 ? "as stated" : "one rank has nobody to send to");
        if (status == FO_OK && (q->how & FO_PLANNER_COMPARE) && q->ranks > 1)
            status = compare(s, price);
    }
    if (status == FO_OK && (q->how & FO_PLANNER_EXPLAIN))
        status = explain(s, price);
    return status == FO_OK ? leave_out(s, price) : status;
}

fo_status fo_planner_prices_ask(fo_planner_prices *prices, const fo_planner_question *question,
                                const fo_planner_price **price)
{
    key k = key_of(question);
    entry **slot = slot_of(prices->slots, prices->capacity, &k);
    if (*slot) {
        *price = &(*slot)->price;
        return FO_OK;
    }
    search s;
    entry *made = calloc(1, sizeof *made);
    if (!made || (2 * prices->count >= prices->capacity && !grow(prices))) {
        free(made);
        return fo_base_error(FO_NO_MEMORY, "no memory for prices of operations");
    }
    fo_status status = begin(prices, question, &s);
    if (status == FO_OK)
        status = find(&s, &made->price);
    free(s.speed);
    if (status != FO_OK) {
        free(made);
        return status;
    }
    made->key = k;
    *slot_of(prices->slots, prices->capacity, &k) = made;
    prices->count++;
    *price = &made->price;
    return FO_OK;
}
