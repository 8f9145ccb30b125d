/* Strategies "library" and "library:k": the operation with the transport library's own collectives, for
 * comparison. No program: the order is written here, once for all operations.
 *
 * library:k cuts every shard into k parts, as slice:k does; chunk c is part c of every shard. All-gathers of all
 * chunks are started first; chunk c is computed when it has arrived and its reduce-scatter started behind it, while
 * chunk c + 1 is computed; weight gradients come last, in the order of every other strategy. Between tiles (and from
 * inside large ones) the library is called, so that messages move. `library` has one chunk and blocking calls.
 *
 * What travels lies chunk by chunk and in a chunk shard by shard, so that a chunk is what one collective takes.
 * The library adds in an order of its own and rounds to the wire type as often as it likes: results are those of
 * other strategies within rounding, not to the bit. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "group/group.h"
#include "op/plan.h"

enum {
    WAIT_NS = 100000000,  /* one sleep at most, to see a deadline pass */
    PROGRESS_NS = 200000, /* the library is called this often from inside a tile */
};

/* Part c of shard j: rows [row, row + rows) of the operation, from row `at` on of what travels. */
typedef struct piece {
    int64_t row, rows, at;
} piece;

struct fo_op_library {
    fo_endpoint *endpoint; /* the transport's own: collectives pass no emulated link */
    int ranks, rank, parts;
    bool blocking, gathers, reduces;
    piece *pieces;        /* [parts * ranks], chunk by chunk */
    int64_t *counts;      /* [2 * parts * ranks]: elements to gather, then to reduce */
    fo_request *requests; /* [2 * parts] */
    int *
        needed; /* [2 * parts]: collectives that are done when that of a chunk is: gathering, reducing */
    char *gathered;        /* [M] rows of the gathered input */
    char *partial, *sums;  /* [M] and [own shard] rows in the wire type */
    int posted, completed; /* requests of this execution, both in order */
    fo_exec_stats stats;
};

static const piece *piece_of(const fo_op_library *l, int chunk, int shard)
{
    return &l->pieces[chunk * l->ranks + shard];
}

/* ---- making ---------------------------------------------------------------------------------------- */

static fo_status check(const fo_plan *plan, const fo_endpoint *endpoint)
{
    if (plan->desc.op == FO_MLP_FORWARD)
        return fo_base_error(FO_UNSUPPORTED,
                             "%s: strategy %s runs one collective an operator, expected the MLP as "
                             "two of them: %s+apart in `bench mlp`, or another strategy",
                             plan->name, plan->overlap, plan->overlap);
    if (plan->attention || fo_schedule_operation_has_attention(plan->desc.op))
        return fo_base_error(
            FO_UNSUPPORTED,
            "%s: strategy %s has no attention in pieces, expected another strategy "
            "or the out-projection alone (row forward, row backward)",
            plan->name, plan->overlap);
    if (!endpoint || !endpoint->ops->collective)
        return fo_base_error(
            FO_UNSUPPORTED,
            "strategy %s needs a transport with collectives of its own (mpi), this "
            "group runs on %s",
            plan->overlap, fo_group_transport(plan->group));
    return FO_OK;
}

/* An emulated link would carry the other strategies' messages and not these. */
static fo_status check_link(const fo_plan *plan)
{
    if (fo_group_link(plan->group).bytes_per_s <= 0)
        return FO_OK;
    return fo_base_error(FO_UNSUPPORTED,
                         "strategy %s runs over the transport's own link, expected no emulated one "
                         "(--link, --transfer) beside it",
                         plan->overlap);
}

static void lay_out(fo_op_library *l, const fo_plan *plan)
{
    int64_t at = 0, quantum = plan->wgrad ? plan->wgrad_rows : plan->tile_rows;
    int64_t gathered =
        plan->row_bytes[FO_BUFFER_GATHERED] / (int64_t)fo_dtype_size(plan->desc.dtype);
    for (int c = 0; c < l->parts; c++)
        for (int j = 0; j < l->ranks; j++) {
            int64_t first = fo_shard_begin(plan->desc.rows, l->ranks, j);
            int64_t all = fo_shard_rows(plan->desc.rows, l->ranks, j);
            int64_t begin = fo_schedule_sub_begin(all, l->parts, c, quantum);
            int64_t end = fo_schedule_sub_begin(all, l->parts, c + 1, quantum);
            int i = c * l->ranks + j;
            l->pieces[i] = (piece){.row = first + begin, .rows = end - begin, .at = at};
            l->counts[i] = (end - begin) * gathered;
            l->counts[l->parts * l->ranks + i] = (end - begin) * plan->width_out;
            at += end - begin;
        }
}

static fo_status allocate(fo_op_library *l, fo_plan *plan)
{
    size_t cells = (size_t)l->parts * (size_t)l->ranks, calls = 2 * (size_t)l->parts;
    size_t gathered = (size_t)(plan->desc.rows * plan->row_bytes[FO_BUFFER_GATHERED]);
    size_t partial = (size_t)(plan->desc.rows * plan->row_bytes[FO_BUFFER_PARTIAL]);
    size_t sums = (size_t)(plan->shard_rows * plan->row_bytes[FO_BUFFER_PARTIAL]);
    l->pieces = calloc(cells, sizeof *l->pieces);
    l->counts = calloc(2 * cells, sizeof *l->counts);
    l->requests = calloc(calls, sizeof *l->requests);
    l->needed = calloc(calls, sizeof *l->needed);
    if (!l->pieces || !l->counts || !l->requests || !l->needed)
        return fo_base_error(FO_NO_MEMORY, "%s: no memory for %d parts of %d shards", plan->name,
                             l->parts, l->ranks);
    if (l->gathers)
        l->gathered = fo_group_alloc(plan->group, gathered + 64);
    if (l->reduces) {
        l->partial = fo_group_alloc(plan->group, partial + 64);
        l->sums = fo_group_alloc(plan->group, sums + 64);
    }
    bool missing = (l->gathers && !l->gathered) || (l->reduces && (!l->partial || !l->sums));
    return missing ? FO_NO_MEMORY : FO_OK; /* the group has said how much was asked for */
}

/* What a rank's link carries with ring collectives, as with slice:k: all shards but one. */
static int64_t wire_bytes(const fo_op_library *l, const fo_plan *plan)
{
    int64_t rows = plan->desc.rows, bytes = 0;
    int64_t next = fo_shard_rows(rows, l->ranks, (l->rank + 1) % l->ranks);
    if (l->gathers)
        bytes += (rows - next) * plan->row_bytes[FO_BUFFER_GATHERED];
    if (l->reduces)
        bytes += (rows - plan->shard_rows) * plan->row_bytes[FO_BUFFER_PARTIAL];
    return bytes;
}

static void explain(const fo_op_library *l, fo_plan *plan)
{
    snprintf(plan->explain, sizeof plan->explain,
             "%s: %s, %s (as asked for: %s collectives of %s itself): %d ranks, %lld rows in %d "
             "chunks, wire %s, computation %s on %s",
             plan->name, fo_schedule_operation_name(plan->desc.op), plan->overlap,
             l->blocking ? "blocking" : "nonblocking", l->endpoint->ops->name, l->ranks,
             (long long)plan->desc.rows, l->parts, fo_dtype_name(plan->desc.wire),
             fo_dtype_name(plan->desc.dtype), plan->kernel->name);
}

fo_status fo_op_library_create(fo_plan *plan)
{
    fo_endpoint *endpoint = fo_group_inner(plan->group);
    fo_status status = check(plan, endpoint);
    if (status == FO_OK)
        status = check_link(plan);
    if (status != FO_OK)
        return status;
    fo_op_library *l = plan->library = calloc(1, sizeof *l);
    if (!l)
        return fo_base_error(FO_NO_MEMORY, "%s: no memory for a plan", plan->name);
    fo_pattern pattern = fo_schedule_operation_pattern(plan->desc.op);
    l->endpoint = endpoint;
    l->ranks = fo_group_size(plan->group);
    l->rank = fo_group_rank(plan->group);
    l->blocking = plan->strategy.parts == 0;
    l->parts = l->blocking ? 1 : plan->strategy.parts;
    l->gathers = pattern != FO_PATTERN_REDUCE;
    l->reduces = fo_schedule_operation_reduces(plan->desc.op);
    status = allocate(l, plan);
    if (status != FO_OK)
        return status;
    lay_out(l, plan);
    plan->wire_bytes = wire_bytes(l, plan);
    explain(l, plan);
    return FO_OK;
}

void fo_op_library_destroy(fo_plan *plan)
{
    fo_op_library *l = plan->library;
    if (!l)
        return;
    fo_group_free(plan->group, l->gathered);
    fo_group_free(plan->group, l->partial);
    fo_group_free(plan->group, l->sums);
    free(l->pieces);
    free(l->counts);
    free(l->requests);
    free(l->needed);
    free(l);
    plan->library = NULL;
}

/* ---- what is left in a recorder --------------------------------------------------------------------- */

static void record(fo_plan *plan, fo_event_kind kind, int chunk, int64_t begin, int64_t end)
{
    fo_recorder *recorder = *fo_group_recorder(plan->group);
    if (!recorder)
        return;
    fo_event *event =
        fo_base_recorder_event(recorder, kind, fo_base_recorder_name(recorder, plan->name), begin,
                               end);
    if (!event)
        return;
    event->step = event->sub = chunk;
    event->execution = (int32_t)plan->library->stats.runs;
}

/* ---- collectives ----------------------------------------------------------------------------------- */

/* Whatever is in flight moves; what is done is noted, in order. */
static fo_status poll(fo_op_library *l)
{
    fo_endpoint *endpoint = l->endpoint;
    fo_status status = endpoint->ops->progress(endpoint);
    while (status == FO_OK && l->completed < l->posted) {
        status = endpoint->ops->test(endpoint, &l->requests[l->completed]);
        if (status == FO_IN_PROGRESS)
            return FO_OK;
        l->completed += status == FO_OK;
    }
    return status;
}

/* From inside a tile. An error is there again at the next look. */
static void poll_inside(void *arg)
{
    (void)poll(arg);
}

static int64_t chunk_elements(const fo_op_library *l, const int64_t *counts)
{
    int64_t sum = 0;
    for (int j = 0; j < l->ranks; j++)
        sum += counts[j];
    return sum;
}

/* Starts the collective of a chunk, unless no rank has anything in it. */
static fo_status start(fo_plan *plan, bool reduce, int chunk, const void *send, void *recv)
{
    fo_op_library *l = plan->library;
    int at = (reduce ? l->parts : 0) + chunk;
    const int64_t *counts = l->counts + at * l->ranks;
    fo_collective what = {.kind = reduce ? FO_COLLECTIVE_REDUCE_SCATTER : FO_COLLECTIVE_ALL_GATHER,
                          .dtype = reduce ? plan->desc.wire : plan->desc.dtype,
                          .send = send,
                          .recv = recv,
                          .counts = counts,
                          .blocking = l->blocking};
    fo_status status = FO_OK;
    int64_t begin = fo_base_clock_ns();
    if (chunk_elements(l, counts))
        status = l->endpoint->ops->collective(l->endpoint, &l->requests[l->posted++], &what);
    l->needed[at] = l->posted;
    if (l->blocking) {
        int64_t end = fo_base_clock_ns();
        l->completed = l->posted;
        l->stats.exposed_ns += end - begin;
        record(plan, FO_EVENT_WAIT, chunk, begin, end);
    }
    return status;
}

static fo_status timed_out(const fo_plan *plan, bool reduce, int chunk)
{
    const fo_op_library *l = plan->library;
    return fo_base_error(FO_TIMEOUT,
                         "%s: rank %d waited %.1f s for the %s of chunk %d by %s, not done before "
                         "the deadline; is every rank alive and running the same operation?",
                         plan->name, l->rank, (double)l->endpoint->deadline_ns * 1e-9,
                         reduce ? "reduce-scatter" : "all-gather", chunk, l->endpoint->ops->name);
}

/* Waits until the collective of a chunk, and those before it, are done. */
static fo_status await(fo_plan *plan, bool reduce, int chunk)
{
    fo_op_library *l = plan->library;
    int needed = l->needed[(reduce ? l->parts : 0) + chunk];
    fo_status status = l->completed < needed ? poll(l) : FO_OK;
    int64_t deadline = fo_base_clock_ns() + l->endpoint->deadline_ns;
    while (status == FO_OK && l->completed < needed) {
        int64_t begin = fo_base_clock_ns();
        int completed = l->completed;
        bool worked = fo_op_compute_meanwhile(plan);
        if (!worked && begin >= deadline)
            return timed_out(plan, reduce, chunk);
        int64_t until = begin + WAIT_NS < deadline ? begin + WAIT_NS : deadline;
        if (!worked)
            status = l->endpoint->ops->wait(l->endpoint, until);
        if (status == FO_OK)
            status = poll(l);
        int64_t end = fo_base_clock_ns();
        *(worked ? &l->stats.compute_ns : &l->stats.exposed_ns) += end - begin;
        if (!worked)
            record(plan, FO_EVENT_WAIT, chunk, begin, end);
        if (worked || l->completed > completed)
            deadline = end + l->endpoint->deadline_ns;
    }
    return status;
}

/* ---- computation ------------------------------------------------------------------------------------ */

/* Where the tiles of a piece read and write: addresses of its first row; NULL: nowhere. */
typedef struct ends {
    const char *in;
    char *out;
    fo_buffer_role in_role, out_role;
} ends;

static fo_status tiles(fo_plan *plan, int slot, int shard, int chunk, const ends *e)
{
    fo_op_library *l = plan->library;
    const piece *p = piece_of(l, chunk, shard);
    fo_task task = {.kind = FO_TASK_COMPUTE, .slot = slot, .shard = shard, .rows = p->rows};
    int64_t step = slot ? plan->wgrad_rows : plan->tile_rows;
    fo_status status = FO_OK;
    int64_t begin = fo_base_clock_ns(), end = begin;
    if (plan->kernel->slice)
        plan->kernel->slice(p->rows);
    for (int64_t done = 0, rows; status == FO_OK && done < p->rows; done += rows) {
        rows = p->rows - done < step ? p->rows - done : step;
        fo_exec_tile tile = {.task = &task,
                             .row = p->row + done,
                             .rows = rows,
                             .in_role = e->in_role,
                             .add_role = FO_BUFFER_ROLES,
                             .out_role = e->out_role};
        tile.in = e->in ? e->in + done * plan->row_bytes[e->in_role] : NULL;
        if (e->out)
            tile.out = e->out + done * plan->row_bytes[e->out_role];
        int64_t tile_begin = fo_base_clock_ns();
        status = fo_op_compute_rows(plan, &tile);
        end = fo_base_clock_ns();
        l->stats.compute_ns += end - tile_begin;
        if (status == FO_OK)
            status = poll(l);
    }
    if (p->rows)
        record(plan, FO_EVENT_COMPUTE, chunk, begin, end);
    l->stats.tasks += p->rows > 0;
    return status;
}

/* First computation of part `chunk` of a shard. */
static fo_status compute(fo_plan *plan, int shard, int chunk)
{
    const fo_op_library *l = plan->library;
    const piece *p = piece_of(l, chunk, shard);
    fo_buffer_role in = l->reduces ? FO_BUFFER_FULL : FO_BUFFER_GATHERED;
    fo_buffer_role out = l->reduces ? FO_BUFFER_PARTIAL : FO_BUFFER_OUTPUT;
    const char *full = l->reduces ? fo_op_describe_external(plan, plan->args, in) : NULL;
    char *result = l->reduces ? NULL : fo_op_describe_external(plan, plan->args, out);
    ends e = {.in_role = in, .out_role = out};
    if (l->reduces) {
        e.in = full ? full + p->row * plan->row_bytes[in] : NULL; /* NULL: rows are produced */
        e.out = l->partial + p->at * plan->row_bytes[out];
    } else {
        e.in = l->gathered + p->at * plan->row_bytes[in];
        e.out = result + p->row * plan->row_bytes[out];
    }
    return tiles(plan, 0, shard, chunk, &e);
}

/* Shards r, r - 1, ...: blocks end where chunks do. */
static fo_status weight_gradients(fo_plan *plan)
{
    const fo_op_library *l = plan->library;
    fo_status status = FO_OK;
    for (int i = 0; i < l->ranks; i++)
        for (int c = 0; status == FO_OK && c < l->parts; c++) {
            int shard = (l->rank - i + l->ranks) % l->ranks;
            ends e = {.in = l->gathered +
                            piece_of(l, c, shard)->at * plan->row_bytes[FO_BUFFER_GATHERED],
                      .in_role = FO_BUFFER_GATHERED,
                      .out_role = FO_BUFFER_ROLES};
            status = tiles(plan, 1, shard, c, &e);
        }
    return status;
}

/* The sums of the own part of a chunk: to float32, bias added. */
static fo_status finish(fo_plan *plan, int chunk)
{
    fo_op_library *l = plan->library;
    const piece *p = piece_of(l, chunk, l->rank);
    fo_task task = {.kind = FO_TASK_ADD, .shard = l->rank, .rows = p->rows};
    int64_t begin = fo_base_clock_ns(), wire = plan->row_bytes[FO_BUFFER_PARTIAL];
    char *out = fo_op_describe_external(plan, plan->args, FO_BUFFER_OUTPUT);
    fo_status status = FO_OK;
    for (int64_t done = 0, rows; status == FO_OK && done < p->rows; done += rows) {
        rows = p->rows - done < plan->tile_rows ? p->rows - done : plan->tile_rows;
        int64_t row = p->row + done, inside = row - plan->shard_row;
        plan->kernel->convert(l->sums + inside * wire, plan->desc.wire, plan->tile, FO_F32,
                              rows * plan->width_out);
        fo_exec_tile tile = {.task = &task,
                             .row = row,
                             .rows = rows,
                             .in = plan->tile,
                             .out = out + inside * plan->row_bytes[FO_BUFFER_OUTPUT],
                             .in_role = FO_BUFFER_ACC,
                             .add_role = FO_BUFFER_ROLES,
                             .out_role = FO_BUFFER_OUTPUT};
        status = fo_op_compute_rows(plan, &tile);
    }
    int64_t end = fo_base_clock_ns();
    l->stats.compute_ns += end - begin;
    record(plan, FO_EVENT_ADD, chunk, begin, end);
    return status;
}

/* ---- the order -------------------------------------------------------------------------------------- */

static fo_status start_gather(fo_plan *plan, int chunk)
{
    const fo_op_library *l = plan->library;
    const char *own = fo_op_describe_external(plan, plan->args, FO_BUFFER_SHARD);
    int64_t bytes = plan->row_bytes[FO_BUFFER_GATHERED];
    return start(plan, false, chunk,
                 own + (piece_of(l, chunk, l->rank)->row - plan->shard_row) * bytes,
                 l->gathered + piece_of(l, chunk, 0)->at * bytes);
}

static fo_status start_reduce(fo_plan *plan, int chunk)
{
    const fo_op_library *l = plan->library;
    int64_t bytes = plan->row_bytes[FO_BUFFER_PARTIAL];
    return start(plan, true, chunk, l->partial + piece_of(l, chunk, 0)->at * bytes,
                 l->sums + (piece_of(l, chunk, l->rank)->row - plan->shard_row) * bytes);
}

static fo_status pack(fo_plan *plan)
{
    int64_t begin = fo_base_clock_ns();
    fo_status status = fo_op_compute_pack(plan);
    plan->library->stats.compute_ns += fo_base_clock_ns() - begin;
    return status == FO_OK ? poll(plan->library) : status;
}

static fo_status run(fo_plan *plan)
{
    const fo_op_library *l = plan->library;
    bool first = fo_schedule_operation_pattern(plan->desc.op) != FO_PATTERN_WGRAD;
    fo_status status = FO_OK;
    for (int c = 0; status == FO_OK && l->gathers && c < l->parts; c++)
        status = start_gather(plan, c);
    if (status == FO_OK)
        status = pack(plan);
    for (int c = 0; status == FO_OK && first && c < l->parts; c++) {
        if (!l->reduces)
            status = await(plan, false, c);
        for (int i = 1; status == FO_OK && i <= l->ranks; i++)
            status = compute(plan, (l->rank + i) % l->ranks, c);
        if (status == FO_OK && l->reduces)
            status = start_reduce(plan, c);
    }
    if (status == FO_OK && l->gathers)
        status = await(plan, false, l->parts - 1);
    if (status == FO_OK && plan->wgrad)
        status = weight_gradients(plan);
    for (int c = 0; status == FO_OK && l->reduces && c < l->parts; c++) {
        status = await(plan, true, c);
        if (status == FO_OK)
            status = finish(plan, c);
    }
    return status;
}

fo_status fo_op_library_execute(fo_plan *plan, const fo_plan_args *args)
{
    fo_op_library *l = plan->library;
    fo_status status = check_link(plan);
    if (status != FO_OK)
        return status;
    int64_t begin = fo_base_clock_ns();
    l->posted = l->completed = 0;
    plan->args = args;
    fo_kernel_set_progress(poll_inside, l, PROGRESS_NS);
    status = run(plan);
    fo_kernel_set_progress(NULL, NULL, 0);
    plan->args = NULL;
    l->stats.runs++;
    l->stats.sent_bytes += plan->wire_bytes;
    l->stats.total_ns += fo_base_clock_ns() - begin;
    if (status != FO_OK && status != FO_PEER)
        l->endpoint->ops->fail(l->endpoint, l->rank, fo_last_error());
    return status;
}

void fo_op_library_stats(const fo_plan *plan, fo_exec_stats *stats)
{
    *stats = plan->library->stats;
}

void fo_op_library_stats_reset(fo_plan *plan)
{
    plan->library->stats = (fo_exec_stats){0};
}
