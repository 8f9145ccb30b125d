/* Every result is what it should be: the programs are run on symbols, in an order in which they can run.
 *
 * The symbol of rows of a partial sum is the run of contributors, by their places in the declared order of the
 * shard: (first, count). Adding appends: either the one next contribution, to a run of the same machine, or a
 * whole machine's, to a run of whole machines; so a run has been added in one way only, and shard j ends as
 * declared or not at all. With one machine that is j+1, ..., j; with one rank on each, likewise. The symbol
 * of gathered rows is which rows they are (buffer row minus global row). */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "flashoverlap/group.h"
#include "schedule/verify.h"

/* Rows [begin, end) of a buffer and what they hold. */
typedef struct span {
    int64_t begin, end;
    int64_t shift; /* buffer row minus global row */
    int first,
        count; /* places of contributors; count 0: gathered input, count < 0: a finished gather output */
} span;

typedef struct content {
    span *spans;
    int32_t count, capacity;
} content;

typedef struct symbols {
    const fo_check *c;
    content *buffers; /* [rank * FO_BUFFER_ROLES + buffer] */
    span *taken; /* per SEND: what its bytes were when they were taken; count is ranks + 1 before */
    int64_t *wgrad_next; /* per rank: rows of the second computation done, in its order */
    bool failed;
} symbols;

static content *at(symbols *s, int rank, int32_t buffer)
{
    return &s->buffers[(size_t)rank * FO_BUFFER_ROLES + (size_t)buffer];
}

static void push(symbols *s, content *b, span v)
{
    if (v.begin >= v.end)
        return;
    if (b->count == b->capacity) {
        int32_t larger = b->capacity ? 2 * b->capacity : 8;
        span *moved = realloc(b->spans, (size_t)larger * sizeof *moved);
        if (!moved) {
            s->failed = true;
            return;
        }
        b->spans = moved;
        b->capacity = larger;
    }
    b->spans[b->count++] = v;
}

static void write_span(symbols *s, content *b, span v)
{
    for (int32_t i = 0; i < b->count; i++) {
        span old = b->spans[i];
        if (old.end <= v.begin || v.end <= old.begin)
            continue;
        b->spans[i--] = b->spans[--b->count];
        span left = old, right = old;
        left.end = v.begin;
        right.begin = v.end;
        push(s, b, left);
        push(s, b, right);
    }
    push(s, b, v);
}

/* The one symbol of rows [begin, begin + rows); false when they hold several or nothing. */
static bool read_span(const content *b, int64_t begin, int64_t rows, span *out)
{
    int64_t covered = 0;
    for (int32_t i = 0; i < b->count; i++) {
        span v = b->spans[i];
        int64_t low = v.begin > begin ? v.begin : begin;
        int64_t high = v.end < begin + rows ? v.end : begin + rows;
        if (low >= high)
            continue;
        if (covered && (v.shift != out->shift || v.first != out->first || v.count != out->count))
            return false;
        *out = v;
        covered += high - low;
    }
    return covered == rows;
}

static bool input_role(fo_buffer_role role)
{
    return role == FO_BUFFER_SHARD || role == FO_BUFFER_FULL || role == FO_BUFFER_GATHERED;
}

/* What a task reads through `ref`, checked to be its own global rows. */
static bool read_ref(symbols *s, int rank, const fo_task *task, fo_ref ref, span *out)
{
    return read_span(at(s, rank, ref.buffer), ref.row, task->rows, out) &&
           out->shift == ref.row - task->row;
}

static int mod(int value, int n)
{
    return (value % n + n) % n;
}

static int locals(const fo_check *c)
{
    return c->ranks / c->programs[0]->nodes;
}

/* Place of a rank's contribution in the declared order of a shard, from 0. */
static int place_of(const fo_check *c, int shard, int rank)
{
    int l = locals(c);
    return mod(rank / l - shard / l - 1, c->ranks / l) * l + mod(rank % l - shard % l - 1, l);
}

/* The shard that all rows of a task belong to; -1: several. Empty shards have none. */
static int shard_of(const fo_check *c, const fo_task *task)
{
    int64_t all = c->programs[0]->rows;
    int low = 0, high = c->ranks - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (fo_shard_begin(all, c->ranks, middle) <= task->row)
            low = middle;
        else
            high = middle - 1;
    }
    return task->row + task->rows <= fo_shard_begin(all, c->ranks, low + 1) ? low : -1;
}

/* Appends the run `later` to the run `*sum`: sums go from left to right, never as a tree, except that a
 * machine's is finished before it is added. */
static bool append(const fo_check *c, span *sum, span later)
{
    int l = locals(c);
    if (sum->count < 1 || later.count < 1 || sum->first + sum->count != later.first)
        return false;
    bool within = later.count == 1 && sum->first / l == later.first / l;
    bool machines = sum->first % l == 0 && later.first % l == 0 && later.count == l;
    if (!within && !machines)
        return false;
    sum->count += later.count;
    return true;
}

static fo_status write_result(symbols *s, int32_t node, int rank, const fo_task *task, span value)
{
    const fo_program *p = s->c->programs[rank];
    content *b = at(s, rank, task->out.buffer);
    fo_buffer_role role = p->buffers[task->out.buffer].role;
    if (role == FO_BUFFER_OUTPUT || role == FO_BUFFER_HIDDEN)
        for (int32_t i = 0; i < b->count; i++)
            if (b->spans[i].begin < task->out.row + task->rows && task->out.row < b->spans[i].end)
                return fo_schedule_check_broken(s->c, node, "it writes a result row a second time");
    value.begin = task->out.row;
    value.end = task->out.row + task->rows;
    value.shift = task->out.row - task->row;
    write_span(s, b, value);
    return FO_OK;
}

/* The second computation takes shard r, then r-1, ..., nested: its machine's, then those of the machine before;
 * inside a shard row after row. */
static fo_status second_computation(symbols *s, int32_t node, int rank, const fo_task *task)
{
    int64_t *done = &s->wgrad_next[rank], seen = 0;
    int l = locals(s->c);
    for (int i = 0; i < s->c->ranks; i++) {
        int shard = mod(rank / l - i / l, s->c->ranks / l) * l + mod(rank % l - i % l, l);
        int64_t begin = fo_shard_begin(s->c->programs[rank]->rows, s->c->ranks, shard);
        int64_t rows = fo_shard_rows(s->c->programs[rank]->rows, s->c->ranks, shard);
        if (*done < seen + rows) {
            if (task->row != begin + *done - seen || task->row + task->rows > begin + rows)
                return fo_schedule_check_broken(s->c, node,
                                                "the second computation is out of order");
            *done += task->rows;
            return FO_OK;
        }
        seen += rows;
    }
    return fo_schedule_check_broken(s->c, node, "the second computation takes rows twice");
}

static fo_status compute(symbols *s, int32_t node, int rank, const fo_task *task)
{
    const fo_check *c = s->c;
    span in, add;
    if (!read_ref(s, rank, task, task->in, &in) || in.count != 0)
        return fo_schedule_check_broken(c, node, "its input does not hold the rows it computes on");
    fo_pattern pattern = c->programs[rank]->pattern;
    if (pattern == FO_PATTERN_BLOCK && task->slot == 0)
        return write_result(s, node, rank, task, in);
    if (pattern != FO_PATTERN_BLOCK && task->slot == 1)
        return second_computation(s, node, rank, task);
    if (pattern == FO_PATTERN_GATHER || pattern == FO_PATTERN_GATHER2) {
        span value = {.count = -1};
        return write_result(s, node, rank, task, value);
    }
    int shard = shard_of(c, task);
    if (shard < 0)
        return fo_schedule_check_broken(c, node, "it sums rows of several shards");
    span value = {.first = place_of(c, shard, rank), .count = 1};
    if (task->add.buffer >= 0) {
        if (!read_ref(s, rank, task, task->add, &add) || !append(c, &add, value))
            return fo_schedule_check_broken(
                c, node, "it adds contributions out of order, twice or of other rows");
        value = add;
    }
    return write_result(s, node, rank, task, value);
}

/* The owner's local partial waits while the sum of the others arrives: the arriving run comes first. */
static fo_status add(symbols *s, int32_t node, int rank, const fo_task *task)
{
    span a = {0}, b = {0};
    bool ok = read_ref(s, rank, task, task->in, &a) && read_ref(s, rank, task, task->add, &b);
    span forward = a, backward = b;
    if (ok && append(s->c, &forward, b))
        return write_result(s, node, rank, task, forward);
    if (ok && append(s->c, &backward, a))
        return write_result(s, node, rank, task, backward);
    return fo_schedule_check_broken(s->c, node,
                                    "it adds contributions out of order, twice or of other rows");
}

/* The bytes of a message are taken before its SEND ends and before its RECV ends, whichever is first in
 * the order; nothing overwrites them until then. */
static fo_status take(symbols *s, int32_t node, span *value)
{
    int rank = fo_schedule_check_rank(s->c, node);
    const fo_task *send = fo_schedule_check_task(s->c, node);
    if (s->taken[node].count > s->c->ranks && !read_ref(s, rank, send, send->in, &s->taken[node]))
        return fo_schedule_check_broken(s->c, node, "it sends rows that are not there");
    *value = s->taken[node];
    return FO_OK;
}

static fo_status move(symbols *s, int32_t node, int rank, const fo_task *task)
{
    const fo_check *c = s->c;
    span value;
    if (task->kind == FO_TASK_COPY) {
        if (!read_ref(s, rank, task, task->in, &value))
            return fo_schedule_check_broken(c, node, "it copies rows that are not there");
        return write_result(s, node, rank, task, value);
    }
    int32_t partner = c->partner[node];
    fo_status status = take(s, partner, &value);
    if (status != FO_OK)
        return status;
    const fo_program *sender = c->programs[fo_schedule_check_rank(c, partner)];
    fo_buffer_role from = sender->buffers[fo_schedule_check_task(c, partner)->in.buffer].role;
    fo_buffer_role to = c->programs[rank]->buffers[task->out.buffer].role;
    if (input_role(from) != input_role(to))
        return fo_schedule_check_broken(
            c, node, "it receives partial sums as input or input as partial sums");
    return write_result(s, node, rank, task, value);
}

static void start_inputs(symbols *s)
{
    for (int r = 0; r < s->c->ranks; r++) {
        const fo_program *p = s->c->programs[r];
        for (int32_t b = 0; b < p->buffer_count; b++) {
            span all = {.begin = 0, .end = p->buffers[b].rows};
            if (p->buffers[b].role == FO_BUFFER_SHARD)
                all.shift = -fo_shard_begin(p->rows, s->c->ranks, r);
            if (p->buffers[b].role == FO_BUFFER_SHARD || p->buffers[b].role == FO_BUFFER_FULL)
                push(s, at(s, r, b), all);
        }
    }
}

static fo_status check_outputs(symbols *s)
{
    for (int r = 0; r < s->c->ranks; r++) {
        const fo_program *p = s->c->programs[r];
        bool gather = p->pattern == FO_PATTERN_GATHER || p->pattern == FO_PATTERN_GATHER2;
        bool second = p->pattern == FO_PATTERN_GATHER2 || p->pattern == FO_PATTERN_JOINT ||
                      p->pattern == FO_PATTERN_WGRAD;
        int64_t rows = gather ? p->rows : fo_shard_rows(p->rows, s->c->ranks, r);
        for (int32_t b = 0; b < p->buffer_count; b++) {
            span v = {0};
            if (p->buffers[b].role == FO_BUFFER_HIDDEN && p->pattern == FO_PATTERN_BLOCK &&
                p->rows && !read_span(at(s, r, b), 0, p->rows, &v))
                return fo_base_error(FO_SCHEDULE,
                                     "rank %d: rows between the two products are missing", r);
            if (p->buffers[b].role != FO_BUFFER_OUTPUT || p->pattern == FO_PATTERN_WGRAD || !rows)
                continue;
            if (!read_span(at(s, r, b), 0, rows, &v) ||
                (!gather && (v.count != s->c->ranks || v.first != 0)))
                return fo_base_error(
                    FO_SCHEDULE, "rank %d: a result row is missing or lacks a rank's contribution",
                    r);
        }
        if (second && s->wgrad_next[r] != p->rows)
            return fo_base_error(FO_SCHEDULE,
                                 "rank %d: the second computation took %lld of %lld rows", r,
                                 (long long)s->wgrad_next[r], (long long)p->rows);
    }
    return FO_OK;
}

static fo_status run(symbols *s)
{
    fo_status status = FO_OK;
    for (int32_t i = 0; status == FO_OK && i < s->c->count; i++) {
        int32_t node = s->c->order[i];
        int rank = fo_schedule_check_rank(s->c, node);
        const fo_task *task = fo_schedule_check_task(s->c, node);
        span unused;
        if (task->kind == FO_TASK_COMPUTE)
            status = compute(s, node, rank, task);
        else if (task->kind == FO_TASK_ADD)
            status = add(s, node, rank, task);
        else if (task->kind == FO_TASK_SEND)
            status = take(s, node, &unused);
        else
            status = move(s, node, rank, task);
    }
    return status == FO_OK ? check_outputs(s) : status;
}

fo_status fo_schedule_check_values(const fo_check *c)
{
    symbols s = {.c = c};
    size_t buffers = (size_t)c->ranks * FO_BUFFER_ROLES;
    s.buffers = calloc(buffers, sizeof *s.buffers);
    s.wgrad_next = calloc((size_t)c->ranks, sizeof *s.wgrad_next);
    s.taken = malloc(((size_t)c->count + 1) * sizeof *s.taken);
    fo_status status = FO_NO_MEMORY;
    if (s.buffers && s.wgrad_next && s.taken) {
        for (int32_t n = 0; n < c->count; n++)
            s.taken[n].count = c->ranks + 1;
        start_inputs(&s);
        status = run(&s);
    }
    if (s.failed || !s.buffers || !s.wgrad_next || !s.taken)
        status =
            fo_base_error(FO_NO_MEMORY, "schedule: no memory to verify %d tasks", (int)c->count);
    for (size_t b = 0; s.buffers && b < buffers; b++)
        free(s.buffers[b].spans);
    free(s.buffers);
    free(s.taken);
    free(s.wgrad_next);
    return status;
}
