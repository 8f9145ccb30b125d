/* Schedules for people (a step table a rank) and for tools (JSON). */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fields.h"
#include "schedule/builder.h"

enum { CELL_ENTRIES = 32, CELL_TEXT = 512 };

typedef struct listing {
    const fo_schedule_desc *desc;
    fo_program **programs;
    int subs;   /* sub-slices a shard */
    int locals; /* ranks on a machine */
    fo_verdict verdict;
} listing;

typedef enum column { COMPUTES, SENDS, RECEIVES, ADDS, COLUMNS } column;

static const char *const column_names[COLUMNS] = {"computes", "sends", "receives", "adds"};

static const char *pattern_name(fo_pattern pattern)
{
    static const char *const names[] = {"gather", "reduce", "gather2", "joint", "wgrad", "block"};
    return names[pattern];
}

static const char *pattern_text(fo_pattern pattern)
{
    static const char *const texts[] = {
        "all-gather -> compute",
        "compute -> reduce-scatter",
        "all-gather -> dgrad (D), wgrad (W)",
        "dgrad (D) -> reduce-scatter (p), all-gather (x) -> wgrad (W)",
        "all-gather -> wgrad (W)",
        "all-gather (x) -> first product (A) -> second product (B) -> reduce-scatter (p)"};
    return texts[pattern];
}

/* ---- making what is printed ---------------------------------------------------------------------- */

static void close_listing(listing *l)
{
    for (int r = 0; l->programs && r < l->desc->ranks; r++)
        fo_schedule_free(l->programs[r]);
    free(l->programs);
}

/* Builds and verifies. FO_SCHEDULE still leaves something to print. */
static fo_status open_listing(listing *l, const fo_schedule_desc *desc)
{
    *l = (listing){.desc = desc, .subs = 1};
    if (desc->ranks < 1)
        return fo_base_error(FO_INVALID, "schedule: %d ranks, expected 1 or more", desc->ranks);
    l->programs = calloc((size_t)desc->ranks, sizeof *l->programs);
    if (!l->programs)
        return fo_base_error(FO_NO_MEMORY, "schedule: no memory for %d programs", desc->ranks);
    fo_status status = fo_schedule_build_check_nodes(desc);
    if (status != FO_OK)
        return status;
    l->locals = desc->nodes ? desc->ranks / desc->nodes : desc->ranks;
    for (int r = 0; r < desc->ranks; r++) {
        status = fo_schedule_build(desc, r, &l->programs[r]);
        if (status != FO_OK)
            return status;
        for (int32_t t = 0; t < l->programs[r]->task_count; t++)
            if (l->programs[r]->tasks[t].sub >= l->subs)
                l->subs = l->programs[r]->tasks[t].sub + 1;
    }
    return fo_schedule_verify(l->programs, desc->ranks, &l->verdict);
}

static fo_status written(FILE *out, fo_status status)
{
    if (ferror(out))
        return fo_base_error(FO_IO, "schedule: the listing could not be written");
    return status;
}

/* ---- cells of the step table ---------------------------------------------------------------------- */

/* Sub-slices first..last of a shard, in one column of one step. */
typedef struct entry {
    const char *mark; /* what it is, where a pattern has two: D, W, x, p */
    int shard, first, last, peer;
    bool fused, slow;
} entry;

typedef struct cell {
    entry entries[CELL_ENTRIES];
    int count;
    bool more;
} cell;

static bool in_column(const fo_task *task, column which)
{
    switch (which) {
    case COMPUTES: return task->kind == FO_TASK_COMPUTE;
    case SENDS: return task->kind == FO_TASK_SEND;
    case RECEIVES: return task->kind == FO_TASK_RECV;
    default:
        return task->kind == FO_TASK_ADD ||
               (task->kind == FO_TASK_COMPUTE && task->add.buffer >= 0);
    }
}

static const char *mark_of(const fo_task *task, fo_pattern pattern, column which)
{
    bool second =
        pattern == FO_PATTERN_GATHER2 || pattern == FO_PATTERN_JOINT || pattern == FO_PATTERN_WGRAD;
    if (which == COMPUTES && second)
        return task->slot ? "W" : "D";
    if (which == COMPUTES && pattern == FO_PATTERN_BLOCK)
        return task->slot ? "B" : "A";
    if ((which == SENDS || which == RECEIVES) &&
        (pattern == FO_PATTERN_JOINT || pattern == FO_PATTERN_BLOCK))
        return task->channel ? "p" : "x";
    return "";
}

static void add_entry(cell *c, entry e)
{
    for (int i = 0; i < c->count; i++) {
        entry *old = &c->entries[i];
        bool same = old->mark == e.mark && old->shard == e.shard && old->peer == e.peer &&
                    old->fused == e.fused;
        if (same && (e.first == old->last || e.first == old->last + 1)) {
            old->last = e.first;
            return;
        }
    }
    if (c->count < CELL_ENTRIES)
        c->entries[c->count++] = e;
    else
        c->more = true;
}

/* Whether a message is between machines. */
static bool is_slow(const listing *l, int rank, const fo_task *task)
{
    bool comm = task->kind == FO_TASK_SEND || task->kind == FO_TASK_RECV;
    return comm && rank / l->locals != task->peer / l->locals;
}

static void collect(cell *c, const listing *l, int rank, int step, column which)
{
    const fo_program *program = l->programs[rank];
    memset(c, 0, sizeof *c);
    for (int32_t t = 0; t < program->task_count; t++) {
        const fo_task *task = &program->tasks[t];
        if (task->step == step && in_column(task, which))
            add_entry(c, (entry){.mark = mark_of(task, program->pattern, which),
                                 .shard = task->shard,
                                 .first = task->sub,
                                 .last = task->sub,
                                 .peer = which == SENDS || which == RECEIVES ? task->peer : -1,
                                 .fused = which == ADDS && task->kind == FO_TASK_COMPUTE,
                                 .slow = is_slow(l, rank, task)});
    }
}

static size_t put(char *text, size_t used, const char *piece)
{
    size_t length = strlen(piece);
    if (used + length + 1 > CELL_TEXT)
        return used;
    memcpy(text + used, piece, length + 1);
    return used + length;
}

static void entry_text(const entry *e, int subs, column which, char *text, size_t size)
{
    char sub[32] = "", peer[32] = "";
    if (subs > 1 && e->first == e->last)
        snprintf(sub, sizeof sub, ".%d", e->first);
    else if (subs > 1)
        snprintf(sub, sizeof sub, ".%d-%d", e->first, e->last);
    if (e->peer >= 0)
        snprintf(peer, sizeof peer, "%s%d%s", which == SENDS ? " to " : " from ", e->peer,
                 e->slow ? " slow" : "");
    snprintf(text, size, "%s%d%s%s%s", e->mark, e->shard, sub, peer, e->fused ? " fused" : "");
}

/* The text of a cell; "-" when nothing happens. */
static void cell_text(const listing *l, int rank, int step, column which, char text[CELL_TEXT])
{
    cell c;
    char piece[128];
    size_t used = 0;
    text[0] = '\0';
    collect(&c, l, rank, step, which);
    for (int i = 0; i < c.count; i++) {
        entry_text(&c.entries[i], l->subs, which, piece, sizeof piece);
        used = put(text, used, i ? ", " : "");
        used = put(text, used, piece);
    }
    if (c.more)
        put(text, used, ", ...");
    if (!c.count)
        put(text, 0, "-");
}

/* ---- the table ------------------------------------------------------------------------------------ */

static int count_steps(const listing *l)
{
    int steps = 0;
    for (int r = 0; r < l->desc->ranks; r++)
        for (int32_t t = 0; t < l->programs[r]->task_count; t++)
            if (l->programs[r]->tasks[t].step >= steps)
                steps = l->programs[r]->tasks[t].step + 1;
    return steps;
}

static void measure(const listing *l, int steps, int widths[COLUMNS])
{
    char text[CELL_TEXT];
    for (int w = 0; w < COLUMNS; w++) {
        widths[w] = (int)strlen(column_names[w]);
        for (int r = 0; r < l->desc->ranks; r++)
            for (int step = 0; step < steps; step++) {
                cell_text(l, r, step, (column)w, text);
                if ((int)strlen(text) > widths[w])
                    widths[w] = (int)strlen(text);
            }
    }
}

static void print_row(FILE *out, const char *step, char cells[COLUMNS][CELL_TEXT],
                      const int widths[COLUMNS])
{
    fprintf(out, "%4s", step);
    for (int w = 0; w < COLUMNS - 1; w++)
        fprintf(out, " | %-*s", widths[w], cells[w]);
    fprintf(out, " | %s\n", cells[COLUMNS - 1]);
}

static void print_rank(const listing *l, int rank, int steps, const int widths[COLUMNS], FILE *out)
{
    char cells[COLUMNS][CELL_TEXT], number[16];
    fprintf(out, "\nrank %d\n", rank);
    for (int w = 0; w < COLUMNS; w++)
        snprintf(cells[w], CELL_TEXT, "%s", column_names[w]);
    print_row(out, "step", cells, widths);
    for (int step = 0; step < steps; step++) {
        for (int w = 0; w < COLUMNS; w++)
            cell_text(l, rank, step, (column)w, cells[w]);
        snprintf(number, sizeof number, "%d", step);
        print_row(out, number, cells, widths);
    }
}

static void print_listing(const listing *l, FILE *out)
{
    const fo_schedule_desc *desc = l->desc;
    const fo_verdict *v = &l->verdict;
    char strategy[64], machines[64] = "";
    int widths[COLUMNS], steps = count_steps(l);
    fo_strategy_print(desc->strategy, strategy, sizeof strategy);
    if (desc->nodes > 1)
        snprintf(machines, sizeof machines, " on %d machines (slow: between them)", desc->nodes);
    fprintf(out, "%s, %s: %d ranks%s, %lld rows, %d slice%s a shard, messages of %lld rows\n",
            pattern_text(desc->pattern), strategy, desc->ranks, machines, (long long)desc->rows,
            l->subs, l->subs == 1 ? "" : "s", (long long)desc->stream_rows);
    measure(l, steps, widths);
    for (int r = 0; r < desc->ranks; r++)
        print_rank(l, r, steps, widths, out);
    fprintf(out, "\n%s: %s\n", v->ok ? "verified" : "REFUSED", v->text);
    fprintf(out,
            "%lld tasks, %lld messages, %lld staging rows at most, rank %d sends most: %lld rows\n",
            (long long)v->tasks, (long long)v->messages, (long long)v->staging_rows,
            v->max_sent_rows_rank, (long long)v->max_sent_rows);
}

fo_status fo_schedule_print(const fo_schedule_desc *desc, FILE *out)
{
    listing l;
    fo_status status = open_listing(&l, desc);
    if (status == FO_OK || status == FO_SCHEDULE) {
        print_listing(&l, out);
        status = written(out, status);
    }
    close_listing(&l);
    return status;
}

/* ---- JSON ----------------------------------------------------------------------------------------- */

static void json_ref(const char *name, fo_ref ref, FILE *out)
{
    if (ref.buffer >= 0)
        fprintf(out, ",\"%s\":{\"buffer\":%d,\"row\":%lld}", name, (int)ref.buffer,
                (long long)ref.row);
}

static void json_task(const listing *l, const fo_program *program, const fo_task *task, FILE *out)
{
    static const char *const kinds[] = {"compute", "send", "recv", "add", "copy"};
    static const char *const modes[] = {"done", "rows", "space"};
    fprintf(out, "{\"kind\":\"%s\",\"step\":%d,\"shard\":%d,\"sub\":%d,\"row\":%lld,\"rows\":%lld",
            kinds[task->kind], (int)task->step, (int)task->shard, (int)task->sub,
            (long long)task->row, (long long)task->rows);
    if (task->kind == FO_TASK_COMPUTE)
        fprintf(out, ",\"slot\":%d", (int)task->slot);
    if (task->kind == FO_TASK_SEND || task->kind == FO_TASK_RECV)
        fprintf(out, ",\"peer\":%d,\"channel\":%d,\"slow\":%s", (int)task->peer, (int)task->channel,
                is_slow(l, program->rank, task) ? "true" : "false");
    json_ref("in", task->in, out);
    json_ref("add", task->add, out);
    json_ref("out", task->out, out);
    fprintf(out, ",\"deps\":[");
    for (int32_t d = 0; d < task->dep_count; d++) {
        const fo_dep *dep = &program->deps[task->dep_first + d];
        fprintf(out, "%s{\"task\":%d,\"mode\":\"%s\"}", d ? "," : "", (int)dep->task,
                modes[dep->mode]);
    }
    fprintf(out, "]}");
}

static void json_program(const listing *l, const fo_program *program, FILE *out)
{
    static const char *const roles[FO_BUFFER_ROLES] = {"shard",   "full",    "gathered", "acc",
                                                       "partial", "staging", "hidden",   "output"};
    fprintf(out, "{\"rank\":%d,\n\"buffers\":[", program->rank);
    for (int32_t b = 0; b < program->buffer_count; b++)
        fprintf(out, "%s{\"role\":\"%s\",\"rows\":%lld}", b ? "," : "",
                roles[program->buffers[b].role], (long long)program->buffers[b].rows);
    fprintf(out, "],\n\"tasks\":[");
    for (int32_t t = 0; t < program->task_count; t++) {
        fprintf(out, "%s\n", t ? "," : "");
        json_task(l, program, &program->tasks[t], out);
    }
    fprintf(out, "]}");
}

static void print_json(const listing *l, FILE *out)
{
    const fo_schedule_desc *desc = l->desc;
    const fo_verdict *v = &l->verdict;
    char strategy[64];
    fo_strategy_print(desc->strategy, strategy, sizeof strategy);
    fprintf(out,
            "{\"pattern\":\"%s\",\"strategy\":\"%s\",\"ranks\":%d,\"nodes\":%d,\"rows\":%lld,"
            "\"quantum\":%lld,\"stream_rows\":%lld,\"subs\":%d,\n\"programs\":[",
            pattern_name(desc->pattern), strategy, desc->ranks, desc->nodes ? desc->nodes : 1,
            (long long)desc->rows, (long long)desc->quantum, (long long)desc->stream_rows, l->subs);
    for (int r = 0; r < desc->ranks; r++) {
        fprintf(out, "%s\n", r ? "," : "");
        json_program(l, l->programs[r], out);
    }
    fprintf(out, "],\n\"verdict\":{\"ok\":%s,\"text\":", v->ok ? "true" : "false");
    fo_base_json_text(out, v->text);
    fprintf(out,
            ",\"tasks\":%lld,\"messages\":%lld,\"staging_rows\":%lld,\"max_sent_rows_rank\":%d,"
            "\"max_sent_rows\":%lld}}\n",
            (long long)v->tasks, (long long)v->messages, (long long)v->staging_rows,
            v->max_sent_rows_rank, (long long)v->max_sent_rows);
}

fo_status fo_schedule_print_json(const fo_schedule_desc *desc, FILE *out)
{
    listing l;
    fo_status status = open_listing(&l, desc);
    if (status == FO_OK || status == FO_SCHEDULE) {
        print_json(&l, out);
        status = written(out, status);
    }
    close_listing(&l);
    return status;
}
