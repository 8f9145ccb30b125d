/* none and slice:k: whole collectives, of everything or of a chunk (sub-slice c of every shard).
 *
 * The collectives are good ones: rings pipelined message by message. What they do not do is start before
 * the whole computation they belong to has ended, or let a computation start before they have ended.
 * none: all-gather, computations, reduce-scatter, one after the other. slice:k: the collectives run one
 * after the other beside the computations, chunk c's reduce-scatter behind chunk c+1's computation,
 * chunk c+1's all-gather behind chunk c's. Weight gradients keep the order of every other strategy
 * (shard after shard), so with chunks they come after the chunked computations; the last chunk's
 * reduce-scatter then hides behind them. BLOCK takes a chunk through both products. Local partials wait in float32, so that sums have the bits of a
 * fused addition. */
#include "schedule/builder.h"

static int64_t shard_row(const fo_builder *b, int shard)
{
    return fo_schedule_build_slice(b, shard, 0).row;
}

/* Everything of chunk c's all-gather has arrived. */
static void after_gather(fo_builder *b, int c)
{
    for (int i = 1; c >= 0 && i < b->ranks; i++)
        fo_schedule_build_dep(b, b->g_recv[fo_schedule_build_at(b, i, c)], FO_DEP_DONE);
}

static void gather_chunk(fo_builder *b, int c)
{
    int right = fo_schedule_mod(b->rank + 1, b->ranks),
        left = fo_schedule_mod(b->rank - 1, b->ranks);
    for (int i = 0; i + 1 < b->ranks; i++) {
        int64_t now = shard_row(b, fo_schedule_gather_shard(b, i));
        int64_t next = shard_row(b, fo_schedule_gather_shard(b, i + 1));
        if (fo_schedule_build_gather_recv(b, i + 1, c, left, next) >= 0)
            after_gather(b, c - 1);
        if (fo_schedule_build_gather_send(b, b->g_send, i, c, right, now) < 0)
            continue;
        after_gather(b, c - 1);
        fo_schedule_build_dep(b, b->g_recv[fo_schedule_build_at(b, i, c)], FO_DEP_ROWS);
    }
}

static void gather_compute(fo_builder *b, int slot, int i, int c)
{
    int64_t at = shard_row(b, fo_schedule_gather_shard(b, i));
    if (fo_schedule_build_gather_compute(b, slot, i, c, at) >= 0)
        after_gather(b, c);
}

static void wgrads(fo_builder *b)
{
    for (int i = 0; b->second && i < b->ranks; i++)
        for (int c = 0; c < b->parts; c++)
            gather_compute(b, 1, i, c);
}

static void reduce_compute(fo_builder *b, int i, int c)
{
    fo_slice s = fo_schedule_build_slice(b, fo_schedule_reduce_shard(b, i), c);
    fo_ref out = fo_schedule_build_ref(b, i ? FO_BUFFER_ACC : FO_BUFFER_PARTIAL, s.row);
    if (b->ranks == 1)
        out = fo_schedule_build_ref(b, FO_BUFFER_OUTPUT, s.inside);
    if (fo_schedule_build_reduce_compute(b, i, c, fo_schedule_build_nowhere, out) >= 0 &&
        b->parts == 1)
        after_gather(b, c); /* none, JOINT: the all-gather blocks */
}

/* What the sends of chunk c's reduce-scatter wait for besides their rows. `wgrads`: with none, all
 * computations come first. */
static void before_reduce(fo_builder *b, int c)
{
    for (int i = 0; i < b->ranks; i++) {
        fo_schedule_build_dep(b, b->main[fo_schedule_build_at(b, i, c)], FO_DEP_DONE);
        if (c > 0)
            fo_schedule_build_dep(b, b->r_recv[fo_schedule_build_at(b, i, c - 1)], FO_DEP_DONE);
        if (b->parts == 1 && b->second)
            fo_schedule_build_dep(b, b->side[fo_schedule_build_at(b, i, c)], FO_DEP_DONE);
    }
}

static void reduce_add(fo_builder *b, int i, int c)
{
    fo_slice s = fo_schedule_build_slice(b, fo_schedule_reduce_shard(b, i), c);
    bool last = i == b->ranks - 1;
    fo_task task = {.kind = FO_TASK_ADD,
                    .peer = -1,
                    .step = i,
                    .shard = s.shard,
                    .sub = c,
                    .row = s.row,
                    .rows = s.rows,
                    .in = fo_schedule_build_ref(b, FO_BUFFER_ACC, s.row),
                    .add = fo_schedule_build_ref(b, FO_BUFFER_STAGING, s.row),
                    .out = last ? fo_schedule_build_ref(b, FO_BUFFER_OUTPUT, s.inside)
                                : fo_schedule_build_ref(b, FO_BUFFER_PARTIAL, s.row)};
    b->add[fo_schedule_build_at(b, i, c)] = fo_schedule_build_emit(b, &task);
    if (b->add[fo_schedule_build_at(b, i, c)] < 0)
        return;
    fo_schedule_build_dep(b, b->main[fo_schedule_build_at(b, i, c)], FO_DEP_DONE);
    fo_schedule_build_dep(b, b->r_recv[fo_schedule_build_at(b, i, c)], FO_DEP_ROWS);
}

/* Step i of chunk c's reduce-scatter: what arrives is added and sent on. */
static void reduce_step(fo_builder *b, int i, int c)
{
    int right = fo_schedule_mod(b->rank + 1, b->ranks),
        left = fo_schedule_mod(b->rank - 1, b->ranks);
    int shard = fo_schedule_reduce_shard(b, i);
    if (b->ranks == 1)
        return;
    if (i) {
        fo_schedule_build_reduce_recv(b, b->r_recv, i, c, shard, left, shard_row(b, shard));
        reduce_add(b, i, c);
    }
    if (i == b->ranks - 1 || fo_schedule_build_reduce_send(b, i, c, right, shard_row(b, shard)) < 0)
        return;
    before_reduce(b, c);
    fo_schedule_build_dep(b, b->add[fo_schedule_build_at(b, i, c)], FO_DEP_ROWS);
}

void fo_schedule_build_none(fo_builder *b)
{
    fo_schedule_build_slices(b);
}

void fo_schedule_build_slices(fo_builder *b)
{
    int64_t all = b->desc->rows;
    fo_schedule_build_buffers(b, all, all, all, all);
    for (int c = 0; b->gathers && c < b->parts; c++)
        gather_chunk(b, c);
    for (int c = 0; c < b->parts; c++) {
        for (int i = 0; b->primary && i < b->ranks; i++)
            gather_compute(b, 0, i, c);
        for (int i = 0; b->reduces && i < b->ranks; i++) {
            reduce_compute(b, i, c);
            if (c) /* one addition a computation: every hop has one to hide behind */
                reduce_step(b, i, c - 1);
        }
    }
    wgrads(b);
    for (int i = 0; b->reduces && i < b->ranks; i++)
        reduce_step(b, i, b->parts - 1);
}
