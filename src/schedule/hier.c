/* hier:m: rings in a ring, for machines with slow links between them. Rank (m, l) is local number l on machine
 * m of b->nodes, with b->locals ranks on each; step (o, q) is step q of the inner ring, over the ranks of a
 * machine, in step o of the outer ring, over the machines. Derived in docs/hier.md.
 *
 * All-gather: in step (o, q) rank (m, l) computes on shard (m-o, l-q). Shard (m-o, l) comes from and goes on to
 * the rank with the same local number on the machines beside; all others go round the own machine. A slow
 * message is issued when step o begins and waited for when step o+1 does: locals computations later.
 *
 * Reduce-scatter, the mirror: in step (o, q) the target is shard (m-1-o, l-1-q). The sums of a machine go round
 * it with fused additions, and after the last inner step, whose target has the own local number, what arrived
 * from the machine before is added to them (a pass of its own: a computation has one addition fused, and
 * this one is needed once in locals computations). The result has until the end of the next outer step to
 * arrive. The own shard comes last and is kept: no tail.
 *
 * JOINT interleaves the two as flash does. In BLOCK the second product begins with shards of the machine before,
 * so it is behind the first by the own machine's shards and one. */
#include "schedule/builder.h"

static int outer(const fo_builder *b, int step)
{
    return step / b->locals;
}

static bool first_inner(const fo_builder *b, int step)
{
    return step % b->locals == 0;
}

static bool last_inner(const fo_builder *b, int step)
{
    return step % b->locals == b->locals - 1;
}

static int last_step(const fo_builder *b)
{
    return b->ranks - 1;
}

/* ---- slots: those of the inner ring, then those of the outer ring ------------------------------------- */

static int outer_slots(const fo_builder *b)
{
    return b->nodes - 1 < FO_RING_SLOTS ? b->nodes - 1 : FO_RING_SLOTS;
}

static int outer_slot(const fo_builder *b, int step)
{
    return FO_RING_SLOTS + outer(b, step) % outer_slots(b);
}

/* Of what arrives from the own machine: every inner step but the first. */
static int inner_slot(const fo_builder *b, int step)
{
    return first_inner(b, step) ? -1 : (step - outer(b, step) - 1) % FO_RING_SLOTS;
}

/* GATHERED: the first shard of an outer step comes from another machine, that of step 0 is the own one. */
static int gather_slot(const fo_builder *b, int step)
{
    return step && first_inner(b, step) ? outer_slot(b, step) : inner_slot(b, step);
}

/* PARTIAL: the last sum of an outer step goes to another machine. */
static int partial_slot(const fo_builder *b, int step)
{
    return last_inner(b, step) ? outer_slot(b, step) : (step - outer(b, step)) % FO_RING_SLOTS;
}

/* STAGING of sums of other machines: added after the last inner step, never in the first outer one. */
static int arrival_slot(const fo_builder *b, int step)
{
    return outer(b, step) && last_inner(b, step) ? outer_slot(b, step) : -1;
}

/* ---- all-gather --------------------------------------------------------------------------------------- */

static int64_t gather_row(const fo_builder *b, int step)
{
    return gather_slot(b, step) * b->widest;
}

/* The shard of step `to` is received from `peer` while step `now` runs, when its slot is free. */
static void gather_recvs(fo_builder *b, int now, int to, int peer)
{
    for (int k = 0; k < b->parts; k++) {
        int32_t recv = fo_schedule_build_gather_recv(b, to, k, peer, gather_row(b, to));
        if (recv < 0)
            continue;
        b->program->tasks[recv].step = now;
        const int32_t *users[] = {fo_schedule_build_readers(b), b->g_send, b->g_outer};
        for (int i = 0; i < 3; i++)
            fo_schedule_build_dep_used(b, users[i], fo_schedule_gather_shard, gather_slot, to, k,
                                       FO_DEP_SPACE);
    }
}

static void gather_sends(fo_builder *b, int32_t *table, int step, int peer)
{
    for (int k = 0; k < b->parts; k++)
        if (fo_schedule_build_gather_send(b, table, step, k, peer, gather_row(b, step)) >= 0)
            fo_schedule_build_dep(b, b->g_recv[fo_schedule_build_at(b, step, k)], FO_DEP_ROWS);
}

/* The slow messages first. */
static void gather_step(fo_builder *b, int step)
{
    if (first_inner(b, step) && outer(b, step) < b->nodes - 1) {
        gather_recvs(b, step, step + b->locals, fo_schedule_outer_peer(b, -1));
        gather_sends(b, b->g_outer, step, fo_schedule_outer_peer(b, 1));
    }
    if (!last_inner(b, step)) {
        gather_recvs(b, step, step + 1, fo_schedule_inner_peer(b, -1));
        gather_sends(b, b->g_send, step, fo_schedule_inner_peer(b, 1));
    }
}

static void gather_compute(fo_builder *b, int slot, int step, int k)
{
    if (fo_schedule_build_gather_compute(b, slot, step, k, gather_row(b, step)) >= 0)
        fo_schedule_build_dep(b, b->g_recv[fo_schedule_build_at(b, step, k)], FO_DEP_ROWS);
}

/* ---- reduce-scatter ----------------------------------------------------------------------------------- */

static int64_t inner_row(const fo_builder *b, int step)
{
    return inner_slot(b, step) * b->widest;
}

static int64_t arrival_row(const fo_builder *b, int step)
{
    return arrival_slot(b, step) * b->widest;
}

/* What the last inner step adds from another machine is received from the first one on. */
static void arrivals(fo_builder *b, int now)
{
    int step = now + b->locals - 1, peer = fo_schedule_outer_peer(b, -1);
    int shard = fo_schedule_reduce_shard(b, step);
    for (int k = 0; k < b->parts; k++) {
        int32_t recv = fo_schedule_build_reduce_recv(b, b->r_outer, step, k, shard, peer,
                                                     arrival_row(b, step));
        if (recv < 0)
            continue;
        b->program->tasks[recv].step -= step - now;
        fo_schedule_build_dep_used(b, b->add, fo_schedule_reduce_shard, arrival_slot, step, k,
                                   FO_DEP_SPACE);
    }
}

static void reduce_recvs(fo_builder *b, int step)
{
    int shard = fo_schedule_reduce_shard(b, step);
    if (first_inner(b, step) && outer(b, step))
        arrivals(b, step);
    for (int k = 0; !first_inner(b, step) && k < b->parts; k++)
        if (fo_schedule_build_reduce_recv(b, b->r_recv, step, k, shard,
                                          fo_schedule_inner_peer(b, -1), inner_row(b, step)) >= 0)
            fo_schedule_build_dep_used(b, b->main, fo_schedule_reduce_shard, inner_slot, step, k,
                                       FO_DEP_SPACE);
}

/* Where the sum of a step goes. */
static fo_ref sum_ref(const fo_builder *b, int step, fo_slice s)
{
    if (step == last_step(b))
        return fo_schedule_build_ref(b, FO_BUFFER_OUTPUT, s.inside);
    return fo_schedule_build_ref(b, FO_BUFFER_PARTIAL,
                                 partial_slot(b, step) * b->widest + s.inside);
}

/* The rows of PARTIAL that the task emitted last writes have been sent. */
static void after_sent(fo_builder *b, int step, int k)
{
    if (step < last_step(b))
        fo_schedule_build_dep_used(b, b->r_send, fo_schedule_reduce_shard, partial_slot, step, k,
                                   FO_DEP_DONE);
}

/* Sum of the machines before + the own machine's. */
static int32_t add_arrived(fo_builder *b, int step, fo_slice s)
{
    int at = fo_schedule_build_at(b, step, s.sub);
    fo_task task = {.kind = FO_TASK_ADD,
                    .peer = -1,
                    .step = step,
                    .shard = s.shard,
                    .sub = s.sub,
                    .row = s.row,
                    .rows = s.rows,
                    .in = fo_schedule_build_ref(b, FO_BUFFER_ACC, s.inside),
                    .add = fo_schedule_build_ref(b, FO_BUFFER_STAGING,
                                                 arrival_row(b, step) + s.inside),
                    .out = sum_ref(b, step, s)};
    b->add[at] = fo_schedule_build_emit(b, &task);
    if (b->add[at] < 0)
        return -1;
    fo_schedule_build_dep(b, b->main[at], FO_DEP_DONE);
    fo_schedule_build_dep(b, b->r_outer[at], FO_DEP_ROWS);
    after_sent(b, step, s.sub);
    return b->add[at];
}

static void reduce_compute(fo_builder *b, int step, int k)
{
    fo_slice s = fo_schedule_build_slice(b, fo_schedule_reduce_shard(b, step), k);
    bool adds = arrival_slot(b, step) >= 0;
    fo_ref add = fo_schedule_build_nowhere;
    if (!first_inner(b, step))
        add = fo_schedule_build_ref(b, FO_BUFFER_STAGING, inner_row(b, step) + s.inside);
    fo_ref out = adds ? fo_schedule_build_ref(b, FO_BUFFER_ACC, s.inside) : sum_ref(b, step, s);
    int32_t sum = fo_schedule_build_reduce_compute(b, step, k, add, out);
    if (sum < 0)
        return;
    fo_schedule_build_dep(b, b->r_recv[fo_schedule_build_at(b, step, k)], FO_DEP_ROWS);
    if (adds)
        sum = add_arrived(b, step, s);
    else
        after_sent(b, step, k);
    int peer = last_inner(b, step) ? fo_schedule_outer_peer(b, 1) : fo_schedule_inner_peer(b, 1);
    if (step < last_step(b) &&
        fo_schedule_build_reduce_send(b, step, k, peer, partial_slot(b, step) * b->widest) >= 0)
        fo_schedule_build_dep(b, sum, FO_DEP_ROWS);
}

/* ---- both --------------------------------------------------------------------------------------------- */

static void joint(fo_builder *b)
{
    int last = last_step(b);
    for (int i = 0; i < last; i++) {
        gather_step(b, i);
        reduce_recvs(b, i);
        for (int k = 0; k < b->parts; k++) {
            reduce_compute(b, i, k);
            gather_compute(b, 1, i, k);
        }
    }
    reduce_recvs(b, last);
    for (int k = 0; k < b->parts; k++)
        gather_compute(b, 1, last, k);
    for (int k = 0; k < b->parts; k++)
        reduce_compute(b, last, k);
}

static void block(fo_builder *b)
{
    int lag = fo_schedule_block_lag(b);
    for (int i = 0; i < b->ranks + lag; i++) {
        if (i < b->ranks)
            gather_step(b, i);
        if (i >= lag)
            reduce_recvs(b, i - lag);
        for (int k = 0; k < b->parts; k++) {
            if (i < b->ranks)
                gather_compute(b, 0, i, k);
            if (i >= lag)
                reduce_compute(b, i - lag, k);
        }
    }
}

void fo_schedule_build_hier(fo_builder *b)
{
    int64_t slots = (FO_RING_SLOTS + outer_slots(b)) * b->widest;
    fo_schedule_build_buffers(b, slots, b->widest, slots, slots);
    if (b->desc->pattern == FO_PATTERN_JOINT) {
        joint(b);
        return;
    }
    if (b->block) {
        block(b);
        return;
    }
    for (int i = 0; i < b->ranks; i++) {
        if (b->gathers)
            gather_step(b, i);
        else
            reduce_recvs(b, i);
        for (int k = 0; k < b->parts; k++) {
            if (b->primary)
                gather_compute(b, 0, i, k);
            if (b->reduces)
                reduce_compute(b, i, k);
            if (b->second)
                gather_compute(b, 1, i, k);
        }
    }
}
