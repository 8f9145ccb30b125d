/* Programs as Chakra execution traces. */
#include "planner/chakra.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "planner/chakra_wire.h"
#include "trace/out.h"

/* Fields and values of et_def.proto. */
enum { META_VERSION = 1, META_ATTR = 2 };
enum { ID = 1, NAME, TYPE, CTRL_DEPS, DATA_DEPS, DURATION = 7, ATTR = 10 };
enum { ATTR_NAME = 1, ATTR_INT32 = 7, ATTR_INT64 = 9, ATTR_BOOL = 27, ATTR_STRING = 29 };
enum { COMP_NODE = 4, COMM_SEND_NODE, COMM_RECV_NODE };
static const char version[] = "0.0.4";

enum { DIRECTIONS = 2, CHANNELS = 2 };

typedef fo_planner_chakra_wire wire;

typedef struct writer {
    fo_trace_out *out;
    const fo_planner_chakra_operation *operation;
    const fo_program *program;
    int64_t *first; /* [task_count + 1] number of a task's first node */
    int64_t next;   /* of all operations */
    int64_t lane;   /* node of the compute lane before, -1: none */
    int64_t gate;   /* node that ends the operation before, -1: none */
    int32_t *tags;  /* [ranks][DIRECTIONS][CHANNELS] messages so far */
    wire node, attr, data, ctrl, length;
} writer;

/* ---- pieces: tiles and messages --------------------------------------------------------------------- */

static bool computes(const fo_task *task)
{
    return task->kind != FO_TASK_SEND && task->kind != FO_TASK_RECV;
}

static int64_t piece_rows(const writer *w, const fo_task *task)
{
    if (task->kind == FO_TASK_COMPUTE)
        return w->operation->tile_rows[task->slot == 1];
    return w->program->stream_rows;
}

/* Number of the piece of a task that has its row `row`, counted from the task's first. */
static int64_t piece_of(const writer *w, const fo_task *task, int64_t row)
{
    return (row - task->row) / piece_rows(w, task);
}

static int64_t count_pieces(const writer *w, const fo_task *task)
{
    return piece_of(w, task, task->row + task->rows - 1) + 1;
}

/* ---- attributes ------------------------------------------------------------------------------------- */

static void put_attr(writer *w, wire *to, int place, const char *name, int kind, uint64_t value)
{
    w->attr.used = 0;
    fo_planner_chakra_wire_text(&w->attr, ATTR_NAME, name);
    fo_planner_chakra_wire_number(&w->attr, kind, value);
    fo_planner_chakra_wire_inner(to, place, &w->attr);
}

static void put_fact(writer *w, const char *name, const char *value)
{
    w->attr.used = 0;
    fo_planner_chakra_wire_text(&w->attr, ATTR_NAME, name);
    fo_planner_chakra_wire_text(&w->attr, ATTR_STRING, value);
    fo_planner_chakra_wire_inner(&w->node, META_ATTR, &w->attr);
}

/* The message in w->node, with its length in front. */
static void put_message(writer *w)
{
    w->length.used = 0;
    fo_planner_chakra_wire_varint(&w->length, w->node.used);
    if (w->length.failed || w->node.failed)
        return;
    fo_trace_put_bytes(w->out, (const char *)w->length.bytes, w->length.used);
    fo_trace_put_bytes(w->out, (const char *)w->node.bytes, w->node.used);
}

/* ---- dependencies ----------------------------------------------------------------------------------- */

static void depend(wire *on, int64_t node)
{
    if (node >= 0)
        fo_planner_chakra_wire_varint(on, (uint64_t)node);
}

/* On pieces a to b of a task. Those that follow each other are in the last one. */
static void depend_pieces(writer *w, wire *on, int32_t producer, int64_t a, int64_t b)
{
    if (w->program->tasks[producer].kind != FO_TASK_SEND)
        a = b;
    for (int64_t piece = a; piece <= b; piece++)
        depend(on, w->first[producer] + piece);
}

/* What a task waits for as a whole, its first piece does, where the others follow it. */
static void put_dep(writer *w, const fo_task *task, const fo_dep *dep, int64_t piece, int64_t row,
                    int64_t rows)
{
    const fo_task *producer = &w->program->tasks[dep->task];
    bool whole = dep->mode != FO_DEP_ROWS;
    if (whole && piece > 0 && task->kind != FO_TASK_SEND)
        return;
    int64_t from = whole ? 0 : piece_of(w, producer, row);
    int64_t to = whole ? count_pieces(w, producer) - 1 : piece_of(w, producer, row + rows - 1);
    depend_pieces(w, dep->mode == FO_DEP_SPACE ? &w->ctrl : &w->data, dep->task, from, to);
}

static void collect_deps(writer *w, const fo_task *task, int64_t piece, int64_t row, int64_t rows)
{
    w->data.used = w->ctrl.used = 0;
    for (int32_t d = 0; d < task->dep_count; d++)
        put_dep(w, task, &w->program->deps[task->dep_first + d], piece, row, rows);
    if (piece > 0 && task->kind != FO_TASK_SEND)
        depend(&w->data, w->next - 1);
    else if (computes(task))
        depend(&w->ctrl, w->lane);
    if (!w->data.used)
        depend(&w->data, w->gate);
}

/* ---- nodes ------------------------------------------------------------------------------------------ */

/* "row forward: compute slice 2.0 part 3"; task NULL: packing. */
static void name_node(const writer *w, const fo_task *task, int64_t piece, char *name, size_t size)
{
    static const char *const verbs[] = {"compute", "send", "receive", "add", "copy"};
    const char *operation = w->operation->name;
    if (!task)
        snprintf(name, size, "%.80s: pack", operation);
    else
        snprintf(name, size, "%.80s: %s%s slice %d.%d part %lld", operation, verbs[task->kind],
                 task->kind == FO_TASK_COMPUTE && task->slot == 1 ? " 2" : "", (int)task->shard,
                 (int)task->sub, (long long)piece);
}

static void begin_node(writer *w, const fo_task *task, int type, int64_t piece)
{
    char name[160];
    name_node(w, task, piece, name, sizeof name);
    w->node.used = 0;
    fo_planner_chakra_wire_number(&w->node, ID, (uint64_t)w->next);
    fo_planner_chakra_wire_text(&w->node, NAME, name);
    fo_planner_chakra_wire_number(&w->node, TYPE, (uint64_t)type);
    if (w->ctrl.used || w->ctrl.failed)
        fo_planner_chakra_wire_inner(&w->node, CTRL_DEPS, &w->ctrl);
    if (w->data.used || w->data.failed)
        fo_planner_chakra_wire_inner(&w->node, DATA_DEPS, &w->data);
}

static void put_tile(writer *w, const fo_task *task, double task_s, int64_t piece, int64_t row,
                     int64_t rows)
{
    double each = task_s / (double)task->rows * 1e6;
    int64_t begin = llround((double)(row - task->row) * each);
    int64_t end = llround((double)(row - task->row + rows) * each);
    begin_node(w, task, COMP_NODE, piece);
    fo_planner_chakra_wire_number(&w->node, DURATION, (uint64_t)(end > begin ? end - begin : 0));
    w->lane = w->next;
}

static void put_comm(writer *w, const fo_task *task, int64_t piece, int64_t rows)
{
    bool send = task->kind == FO_TASK_SEND;
    int32_t buffer = send ? task->in.buffer : task->out.buffer, me = w->program->rank;
    int32_t *tag = &w->tags[(task->peer * DIRECTIONS + send) * CHANNELS + task->channel];
    int64_t bytes = rows * w->operation->row_bytes[w->program->buffers[buffer].role];
    begin_node(w, task, send ? COMM_SEND_NODE : COMM_RECV_NODE, piece);
    put_attr(w, &w->node, ATTR, "comm_src", ATTR_INT32, (uint64_t)(send ? me : task->peer));
    put_attr(w, &w->node, ATTR, "comm_dst", ATTR_INT32, (uint64_t)(send ? task->peer : me));
    put_attr(w, &w->node, ATTR, "comm_size", ATTR_INT64, (uint64_t)bytes);
    put_attr(w, &w->node, ATTR, "comm_tag", ATTR_INT32,
             (uint64_t)*tag * CHANNELS + (uint64_t)task->channel);
    ++*tag;
}

/* Attributes of every node, then the node itself. */
static void end_node(writer *w, int64_t rows, int shard, int step)
{
    put_attr(w, &w->node, ATTR, "is_cpu_op", ATTR_BOOL, 0);
    put_attr(w, &w->node, ATTR, "rows", ATTR_INT64, (uint64_t)rows);
    put_attr(w, &w->node, ATTR, "shard", ATTR_INT64, (uint64_t)shard);
    put_attr(w, &w->node, ATTR, "step", ATTR_INT64, (uint64_t)step);
    put_message(w);
    w->next++;
}

/* The first of the compute lane. */
static void put_packing(writer *w)
{
    if (!(w->operation->prepare_s > 0))
        return;
    w->data.used = w->ctrl.used = 0;
    depend(&w->data, w->gate);
    begin_node(w, NULL, COMP_NODE, 0);
    fo_planner_chakra_wire_number(&w->node, DURATION,
                                  (uint64_t)llround(w->operation->prepare_s * 1e6));
    w->lane = w->next;
    end_node(w, 0, 0, 0);
}

static void put_task(writer *w, int32_t index)
{
    const fo_task *task = &w->program->tasks[index];
    int64_t step = piece_rows(w, task), pieces = count_pieces(w, task);
    for (int64_t piece = 0; piece < pieces; piece++) {
        int64_t row = task->row + piece * step, left = task->row + task->rows - row;
        int64_t rows = left < step ? left : step;
        collect_deps(w, task, piece, row, rows);
        if (computes(task))
            put_tile(w, task, w->operation->task_s[index], piece, row, rows);
        else
            put_comm(w, task, piece, rows);
        end_node(w, rows, task->shard, task->step);
    }
}

/* ---- files ------------------------------------------------------------------------------------------ */

static fo_status put_operation(writer *w, const fo_planner_chakra_operation *operation)
{
    const fo_program *p = operation->program;
    w->operation = operation;
    w->program = p;
    w->first = calloc((size_t)p->task_count + 1, sizeof *w->first);
    if (!w->first)
        return fo_base_error(FO_NO_MEMORY, "chakra: no memory for %d tasks", (int)p->task_count);
    w->gate = w->lane >= 0 ? w->lane : w->next - 1;
    w->lane = -1;
    put_packing(w);
    int64_t next = w->next;
    for (int32_t t = 0; t < p->task_count; t++) {
        w->first[t] = next;
        next += count_pieces(w, &p->tasks[t]);
    }
    for (int32_t t = 0; t < p->task_count; t++)
        put_task(w, t);
    free(w->first);
    return FO_OK;
}

static void put_metadata(writer *w, const fo_planner_chakra_fact *facts, int count)
{
    fo_planner_chakra_wire_text(&w->node, META_VERSION, version);
    for (int i = 0; i < count; i++)
        put_fact(w, facts[i].name, facts[i].value);
    put_message(w);
}

static fo_status put_all(writer *w, const fo_planner_chakra_operation *operations, int count)
{
    size_t ranks = count > 0 ? (size_t)operations[0].program->ranks : 0;
    w->tags = calloc(ranks * DIRECTIONS * CHANNELS + 1, sizeof *w->tags);
    fo_status status = w->tags ? FO_OK
                               : fo_base_error(FO_NO_MEMORY,
                                               "chakra: no memory for the tags of "
                                               "%zu ranks",
                                               ranks);
    for (int i = 0; status == FO_OK && i < count; i++)
        status = put_operation(w, &operations[i]);
    free(w->tags);
    if (status == FO_OK && (w->node.failed || w->length.failed))
        status = fo_base_error(FO_NO_MEMORY, "chakra: no memory for a node");
    return status;
}

fo_status fo_planner_chakra_write(const char *path, const fo_planner_chakra_operation *operations,
                                  int count, const fo_planner_chakra_fact *facts, int fact_count)
{
    writer w = {.lane = -1, .gate = -1};
    fo_status status = fo_trace_out_open(path, &w.out);
    if (status != FO_OK)
        return status;
    put_metadata(&w, facts, fact_count);
    status = put_all(&w, operations, count);
    wire *const wires[] = {&w.node, &w.attr, &w.data, &w.ctrl, &w.length};
    for (size_t i = 0; i < sizeof wires / sizeof *wires; i++)
        fo_planner_chakra_wire_free(wires[i]);
    if (status == FO_OK)
        return fo_trace_out_commit(w.out);
    fo_trace_out_abandon(w.out);
    return status;
}
