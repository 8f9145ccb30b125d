/* Making a program: the frame around the strategies, and emitting tasks. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "flashoverlap/group.h"
#include "schedule/builder.h"

enum { TABLES = 9 };

const fo_ref fo_schedule_build_nowhere = {-1, 0};

int fo_schedule_mod(int value, int ranks)
{
    int rest = value % ranks;
    return rest < 0 ? rest + ranks : rest;
}

/* The rank `nodes` machines and `locals` local numbers on, both rings closed. */
static int rank_at(const fo_builder *b, int nodes, int locals)
{
    int node = fo_schedule_mod(b->rank / b->locals + nodes, b->nodes);
    return node * b->locals + fo_schedule_mod(b->rank % b->locals + locals, b->locals);
}

int fo_schedule_gather_shard(const fo_builder *b, int step)
{
    return rank_at(b, -(step / b->locals), -(step % b->locals));
}

int fo_schedule_reduce_shard(const fo_builder *b, int step)
{
    return rank_at(b, -(step / b->locals) - 1, -(step % b->locals) - 1);
}

int fo_schedule_inner_peer(const fo_builder *b, int by)
{
    return rank_at(b, 0, by);
}

int fo_schedule_outer_peer(const fo_builder *b, int by)
{
    return rank_at(b, by, 0);
}

static int ring_slot(const fo_builder *b, int step)
{
    (void)b;
    return step % FO_RING_SLOTS;
}

/* What a rank adds up first are shards of the machine before, and those come after the own machine's. */
int fo_schedule_block_lag(const fo_builder *b)
{
    return b->nodes > 1 ? b->locals + 1 : 1;
}

int64_t fo_schedule_sub_begin(int64_t rows, int m, int k, int64_t quantum)
{
    int64_t quanta = (rows + quantum - 1) / quantum;
    int64_t begin = fo_shard_begin(quanta, m, k) * quantum;
    return begin < rows ? begin : rows;
}

fo_slice fo_schedule_build_slice(const fo_builder *b, int shard, int sub)
{
    int64_t rows = fo_shard_rows(b->desc->rows, b->ranks, shard);
    int64_t begin = fo_schedule_sub_begin(rows, b->parts, sub, b->desc->quantum);
    int64_t end = fo_schedule_sub_begin(rows, b->parts, sub + 1, b->desc->quantum);
    return (fo_slice){.shard = shard,
                      .sub = sub,
                      .row = fo_shard_begin(b->desc->rows, b->ranks, shard) + begin,
                      .rows = end - begin,
                      .inside = begin};
}

int fo_schedule_build_at(const fo_builder *b, int step, int sub)
{
    return step * b->parts + sub;
}

static int32_t add_buffer(fo_builder *b, fo_buffer_role role, int64_t rows)
{
    b->program->buffers[b->program->buffer_count] = (fo_buffer){role, rows};
    return b->program->buffer_count++;
}

void fo_schedule_build_buffers(fo_builder *b, int64_t gathered, int64_t acc, int64_t partial,
                               int64_t staging)
{
    int64_t all = b->desc->rows, own = fo_shard_rows(all, b->ranks, b->rank);
    b->buffer[FO_BUFFER_SHARD] = add_buffer(b, FO_BUFFER_SHARD, b->gathers ? own : 0);
    b->buffer[FO_BUFFER_FULL] = add_buffer(b, FO_BUFFER_FULL, b->reduces && !b->block ? all : 0);
    b->buffer[FO_BUFFER_GATHERED] = add_buffer(b, FO_BUFFER_GATHERED, b->gathers ? gathered : 0);
    b->buffer[FO_BUFFER_ACC] = add_buffer(b, FO_BUFFER_ACC, b->reduces ? acc : 0);
    b->buffer[FO_BUFFER_PARTIAL] = add_buffer(b, FO_BUFFER_PARTIAL, b->reduces ? partial : 0);
    b->buffer[FO_BUFFER_STAGING] = add_buffer(b, FO_BUFFER_STAGING, b->reduces ? staging : 0);
    b->buffer[FO_BUFFER_HIDDEN] = add_buffer(b, FO_BUFFER_HIDDEN, b->block ? all : 0);
    int64_t output = b->reduces ? own : b->primary ? all : 0;
    b->buffer[FO_BUFFER_OUTPUT] = add_buffer(b, FO_BUFFER_OUTPUT, output);
}

fo_ref fo_schedule_build_ref(const fo_builder *b, fo_buffer_role role, int64_t row)
{
    return (fo_ref){b->buffer[role], row};
}

static void *grow(fo_builder *b, void *array, int32_t count, int32_t *capacity, size_t size)
{
    if (count < *capacity)
        return array;
    int32_t larger = *capacity ? *capacity * 2 : 64;
    void *moved = realloc(array, (size_t)larger * size);
    if (!moved) {
        b->status = fo_base_error(FO_NO_MEMORY, "schedule: no memory for %d tasks", (int)larger);
        return array;
    }
    *capacity = larger;
    return moved;
}

/* The steps of a block count through: its reduce-scatter is one step behind its all-gather where the two
 * are interleaved, and comes after it where they are not. */
static int steps_before_reduce(const fo_builder *b)
{
    switch (b->desc->strategy.kind) {
    case FO_STRATEGY_FLASH:
    case FO_STRATEGY_DIRECT:
    case FO_STRATEGY_HIER: return fo_schedule_block_lag(b);
    default: return b->ranks;
    }
}

int32_t fo_schedule_build_emit(fo_builder *b, const fo_task *task)
{
    fo_program *p = b->program;
    if (task->rows <= 0 || b->status != FO_OK)
        return -1;
    p->tasks = grow(b, p->tasks, p->task_count, &p->task_capacity, sizeof *p->tasks);
    if (b->status != FO_OK)
        return -1;
    p->tasks[p->task_count] = *task;
    if (b->block && (task->channel == 1 || task->slot == 1 || task->kind == FO_TASK_ADD))
        p->tasks[p->task_count].step += steps_before_reduce(b);
    p->tasks[p->task_count].dep_first = p->dep_count;
    p->tasks[p->task_count].dep_count = 0;
    return p->task_count++;
}

void fo_schedule_build_dep(fo_builder *b, int32_t producer, fo_dep_mode mode)
{
    fo_program *p = b->program;
    if (producer < 0 || b->status != FO_OK)
        return;
    p->deps = grow(b, p->deps, p->dep_count, &p->dep_capacity, sizeof *p->deps);
    if (b->status != FO_OK)
        return;
    p->deps[p->dep_count++] = (fo_dep){producer, mode};
    p->tasks[p->task_count - 1].dep_count++;
}

void fo_schedule_build_dep_used(fo_builder *b, const int32_t *table, fo_shard_order order,
                                fo_step_slot slot, int step, int sub, fo_dep_mode mode)
{
    fo_slice mine = fo_schedule_build_slice(b, order(b, step), sub);
    int64_t begin = mine.inside, end = begin + mine.rows, covered = 0;
    for (int old = step - 1; old >= 0 && covered < end; old--)
        for (int k = 0; slot(b, old) == slot(b, step) && k < b->parts; k++) {
            fo_slice s = fo_schedule_build_slice(b, order(b, old), k);
            if (s.rows && s.inside + s.rows > covered)
                covered = s.inside + s.rows;
            if (s.rows && s.inside < end && s.inside + s.rows > begin)
                fo_schedule_build_dep(b, table[fo_schedule_build_at(b, old, k)], mode);
        }
}

void fo_schedule_build_dep_slot(fo_builder *b, const int32_t *table, fo_shard_order order, int step,
                                int sub, fo_dep_mode mode)
{
    fo_schedule_build_dep_used(b, table, order, ring_slot, step, sub, mode);
}

/* Streaming cuts a slice into messages already. Of two computations on gathered rows the second follows a slice behind
 * the first, so smaller slices wait less for what arrives last; but changing between the two costs a fifth of a percent
 * each time, since the other's matrix has to come into the cache again. Measured with two ranks (row backward): one,
 * two and four a shard 89.2, 90.6, 91.5 ms where the transfer takes 0.3 of the computation, 117, 105, 99 ms where it takes as
 * long. JOINT has other work while a shard arrives: one is best everywhere. */
static int default_parts(const fo_builder *b)
{
    enum { MOST = 16, MOST_GATHER2 = 2 };
    if (b->desc->pattern != FO_PATTERN_WGRAD && b->desc->pattern != FO_PATTERN_GATHER2)
        return 1;
    int64_t quanta = (b->widest + b->desc->quantum - 1) / b->desc->quantum;
    int64_t most = b->desc->pattern == FO_PATTERN_GATHER2 ? MOST_GATHER2 : MOST;
    return quanta < 1 ? 1 : quanta > most ? (int)most : (int)quanta;
}

static int parts_of(const fo_builder *b)
{
    fo_strategy s = b->desc->strategy;
    if (s.kind == FO_STRATEGY_NONE || s.kind == FO_STRATEGY_RING || s.kind == FO_STRATEGY_HIER_NONE)
        return 1;
    if (s.kind == FO_STRATEGY_SLICE)
        return s.parts ? s.parts : 4;
    return s.parts ? s.parts : default_parts(b);
}

static bool nested(const fo_schedule_desc *d)
{
    return d->strategy.kind == FO_STRATEGY_HIER || d->strategy.kind == FO_STRATEGY_HIER_NONE;
}

fo_status fo_schedule_build_check_nodes(const fo_schedule_desc *d)
{
    int nodes = d->nodes ? d->nodes : 1, nearest = nodes < 1 ? 1 : nodes;
    if (nodes >= 1 && d->ranks % nodes == 0)
        return FO_OK;
    if (nearest > d->ranks)
        nearest = d->ranks;
    for (int away = 1; d->ranks % nearest; away++)
        if (d->ranks % (nearest - away) == 0)
            nearest -= away;
        else if (nearest + away <= d->ranks && d->ranks % (nearest + away) == 0)
            nearest += away;
    return fo_base_error(
        FO_INVALID,
        "schedule: %d ranks on %d machines (nodes), expected equally many on each; "
        "the nearest number of machines that works is %d",
        d->ranks, nodes, nearest);
}

static fo_status check_desc(const fo_schedule_desc *d, int rank)
{
    if (d->ranks < 1 || rank < 0 || rank >= d->ranks)
        return fo_base_error(FO_INVALID,
                             "schedule: rank %d of %d ranks, expected 0 <= rank < ranks", rank,
                             d->ranks);
    if (d->rows < 0 || d->quantum < 1 || d->stream_rows < 1)
        return fo_base_error(
            FO_INVALID,
            "schedule: rows %lld, quantum %lld, message rows %lld, expected at least "
            "0, 1 and 1",
            (long long)d->rows, (long long)d->quantum, (long long)d->stream_rows);
    if (d->strategy.kind == FO_STRATEGY_LIBRARY)
        return fo_base_error(FO_INVALID,
                             "schedule: 'library' leaves its messages to the transport's own "
                             "collectives and has no program; expected a strategy that has one, "
                             "such as none or flash");
    if (d->strategy.kind == FO_STRATEGY_AUTO)
        return fo_base_error(FO_INVALID,
                             "schedule: 'auto' is chosen for an operation on a machine and has no "
                             "program of its own; expected a strategy that has one, such as none "
                             "or flash");
    if ((unsigned)d->pattern > FO_PATTERN_BLOCK || (unsigned)d->strategy.kind > FO_STRATEGY_LIBRARY)
        return fo_base_error(FO_INVALID, "schedule: pattern %d with strategy %d is unknown",
                             (int)d->pattern, (int)d->strategy.kind);
    return nested(d) ? fo_schedule_build_check_nodes(d) : FO_OK;
}

static void build(fo_builder *b)
{
    switch (b->desc->strategy.kind) {
    case FO_STRATEGY_NONE: fo_schedule_build_none(b); break;
    case FO_STRATEGY_SLICE: fo_schedule_build_slices(b); break;
    case FO_STRATEGY_RING: fo_schedule_build_ring(b); break;
    case FO_STRATEGY_FLASH: fo_schedule_build_flash(b); break;
    case FO_STRATEGY_DIRECT: fo_schedule_build_direct(b); break;
    case FO_STRATEGY_HIER: /* with one machine, or one rank on each, there is one ring: flash */
        (b->nodes > 1 ? fo_schedule_build_hier : fo_schedule_build_flash)(b);
        break;
    case FO_STRATEGY_HIER_NONE:
        (b->nodes > 1 ? fo_schedule_build_hier_none : fo_schedule_build_none)(b);
        break;
    case FO_STRATEGY_LIBRARY:
    case FO_STRATEGY_AUTO: break; /* check_desc has refused them */
    }
}

fo_status fo_schedule_build(const fo_schedule_desc *desc, int rank, fo_program **out)
{
    *out = NULL;
    fo_status status = check_desc(desc, rank);
    if (status != FO_OK)
        return status;
    fo_pattern pattern = desc->pattern;
    int nodes = nested(desc) && desc->nodes > 1 && desc->nodes < desc->ranks ? desc->nodes : 1;
    fo_builder b = {.desc = desc,
                    .ranks = desc->ranks,
                    .rank = rank,
                    .nodes = nodes,
                    .locals = desc->ranks / nodes,
                    .gathers = pattern != FO_PATTERN_REDUCE,
                    .reduces = pattern == FO_PATTERN_REDUCE || pattern == FO_PATTERN_JOINT ||
                               pattern == FO_PATTERN_BLOCK,
                    .primary = pattern == FO_PATTERN_GATHER || pattern == FO_PATTERN_GATHER2 ||
                               pattern == FO_PATTERN_BLOCK,
                    .second = pattern == FO_PATTERN_GATHER2 || pattern == FO_PATTERN_JOINT ||
                              pattern == FO_PATTERN_WGRAD,
                    .block = pattern == FO_PATTERN_BLOCK,
                    .widest = fo_shard_rows(desc->rows, desc->ranks, 0)};
    b.parts = parts_of(&b);
    size_t cells = (size_t)desc->ranks * (size_t)b.parts;
    int32_t *tables = malloc(cells * TABLES * sizeof *tables);
    b.program = calloc(1, sizeof *b.program);
    if (b.program)
        b.program->buffers = calloc(FO_BUFFER_ROLES, sizeof *b.program->buffers);
    if (!tables || !b.program || !b.program->buffers) {
        free(tables);
        fo_schedule_free(b.program);
        return fo_base_error(FO_NO_MEMORY, "schedule: no memory for a program");
    }
    memset(tables, 0xff, cells * TABLES * sizeof *tables); /* all -1 */
    int32_t **names[TABLES] = {&b.g_recv, &b.g_send, &b.r_recv,  &b.r_send, &b.main,
                               &b.side,   &b.add,    &b.g_outer, &b.r_outer};
    for (int i = 0; i < TABLES; i++)
        *names[i] = tables + (size_t)i * cells;
    b.program->ranks = desc->ranks;
    b.program->rank = rank;
    b.program->nodes = nodes;
    b.program->rows = desc->rows;
    b.program->stream_rows = desc->stream_rows;
    b.program->pattern = desc->pattern;
    build(&b);
    free(tables);
    if (b.status != FO_OK) {
        fo_schedule_free(b.program);
        return b.status;
    }
    *out = b.program;
    return FO_OK;
}

void fo_schedule_free(fo_program *program)
{
    if (!program)
        return;
    free(program->buffers);
    free(program->tasks);
    free(program->deps);
    free(program);
}
