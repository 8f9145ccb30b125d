/* The programs of a simulated operation as Chakra execution traces: FOLDER/<what>-<strategy>.<rank>.et. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "planner/chakra.h"
#include "planner/simulate.h"
#include "schedule/operation.h"

enum { RANKS = 1024, FACTS = 6, PATH = 4096, NAME = 192 }; /* NAME: of a file in the folder */

/* How long the tasks of one operation compute. */
typedef struct durations {
    fo_planner_programs programs;
    double **task_s;   /* [ranks][task_count]; NULL: a rank that others stand for */
    double *prepare_s; /* [ranks] */
    bool failed;       /* no memory */
} durations;

typedef struct exporter {
    const fo_planner_simulation *s;
    const fo_schedule_spelled *strategy;
    fo_sim_machine machine; /* without what messages do to computation: the replay has its own */
    durations parts[FO_PLANNER_PARTS];
    const char *names[FO_PLANNER_PARTS];
    int count;
} exporter;

fo_status fo_planner_simulate_chakra_check(const fo_simulate_options *o)
{
    struct stat info;
    const char *folder = o->chakra;
    char path[PATH];
    if (o->ranks > RANKS)
        return fo_base_error(FO_INVALID,
                             "--chakra writes a file a rank, and there are %d; expected at most "
                             "%d ranks",
                             o->ranks, RANKS);
    if (!*folder)
        return fo_base_error(FO_INVALID, "--chakra names no folder, expected one for the traces");
    if (strlen(folder) + NAME >= sizeof path)
        return fo_base_error(FO_INVALID,
                             "--chakra: the path of the folder has %zu bytes, expected "
                             "at most %d",
                             strlen(folder), PATH - NAME - 1);
    if (mkdir(folder, 0777) && errno != EEXIST)
        return fo_base_error(FO_IO, "--chakra %s: the folder can't be made (%s)", folder,
                             strerror(errno));
    if (stat(folder, &info) || !S_ISDIR(info.st_mode))
        return fo_base_error(FO_IO, "--chakra %s is no folder, expected one for the traces",
                             folder);
    snprintf(path, sizeof path, "%s/check.0.et", folder);
    return fo_trace_check_path(path);
}

/* ---- durations -------------------------------------------------------------------------------------- */

static void watch(void *watcher, const fo_sim_event *event)
{
    durations *d = watcher;
    bool works = event->kind == FO_SIM_EVENT_COMPUTE || event->kind == FO_SIM_EVENT_PREPARE;
    if (!works || d->failed)
        return;
    if (event->kind == FO_SIM_EVENT_PREPARE || event->task < 0) {
        d->prepare_s[event->rank] += event->end_s - event->begin_s;
        return;
    }
    double **row = &d->task_s[event->rank];
    if (!*row) {
        const fo_program *program = fo_planner_simulate_programs_of(&d->programs, event->rank);
        *row = program ? calloc((size_t)program->task_count + 1, sizeof **row) : NULL;
        d->failed = !*row;
    }
    if (*row)
        (*row)[event->task] += event->end_s - event->begin_s;
}

static fo_status measure(const exporter *x, const fo_plan_desc *desc, durations *d)
{
    fo_sim_operation operation = fo_planner_simulate_operation(x->s, desc);
    fo_sim_report report;
    size_t ranks = (size_t)operation.ranks;
    fo_status status = fo_planner_simulate_programs_make(&x->machine, &operation, &d->programs);
    if (status != FO_OK)
        return status;
    d->task_s = calloc(ranks, sizeof *d->task_s);
    d->prepare_s = calloc(ranks, sizeof *d->prepare_s);
    if (!d->task_s || !d->prepare_s)
        return fo_base_error(FO_NO_MEMORY, "chakra: no memory for %zu ranks", ranks);
    operation.exact |= desc->rows % operation.ranks != 0; /* else alike, not the same */
    operation.watch = watch;
    operation.watcher = d;
    status = fo_sim_operation_run(&x->machine, &operation, &report);
    if (status == FO_OK && d->failed)
        status = fo_base_error(FO_NO_MEMORY, "chakra: no memory for the times of tasks");
    return status;
}

static void forget(durations *d)
{
    for (int r = 0; d->task_s && r < d->programs.desc.ranks; r++)
        free(d->task_s[r]);
    free(d->task_s);
    free(d->prepare_s);
    fo_planner_simulate_programs_free(&d->programs);
}

/* ---- files ------------------------------------------------------------------------------------------ */

/* "row-forward-slice-4": letters, digits and dashes. */
static void file_name(const exporter *x, char *text, size_t size)
{
    char title[64];
    fo_planner_simulate_title(x->s, title, sizeof title);
    snprintf(text, size, "%s-%s", title, x->strategy->name);
    for (char *at = text; *at; at++)
        if (!isalnum((unsigned char)*at))
            *at = '-';
}

/* What a rank computes is timed on the rank it is like; there it is the same task of the same program. */
static fo_status fill_operation(exporter *x, int i, int rank, fo_planner_chakra_operation *op)
{
    durations *d = &x->parts[i];
    int like = rank % d->programs.period;
    const fo_program *program = fo_planner_simulate_programs_of(&d->programs, rank);
    const fo_program *timed = fo_planner_simulate_programs_of(&d->programs, like);
    if (!program || !timed)
        return FO_NO_MEMORY;
    if (program->task_count != timed->task_count)
        return fo_base_error(FO_INTERNAL, "chakra: rank %d does not do what rank %d does", rank,
                             like);
    if (!d->task_s[like])
        d->task_s[like] = calloc((size_t)timed->task_count + 1, sizeof **d->task_s);
    if (!d->task_s[like])
        return fo_base_error(FO_NO_MEMORY, "chakra: no memory for the times of tasks");
    *op = (fo_planner_chakra_operation){.name = x->names[i],
                                        .program = program,
                                        .prepare_s = d->prepare_s[like],
                                        .task_s = d->task_s[like]};
    memcpy(op->row_bytes, d->programs.row_bytes, sizeof op->row_bytes);
    memcpy(op->tile_rows, d->programs.tile_rows, sizeof op->tile_rows);
    return FO_OK;
}

static fo_status write_rank(exporter *x, int rank, const fo_planner_chakra_fact *facts)
{
    char path[PATH], name[128];
    fo_planner_chakra_operation operations[FO_PLANNER_PARTS];
    fo_status status = FO_OK;
    for (int i = 0; status == FO_OK && i < x->count; i++)
        status = fill_operation(x, i, rank, &operations[i]);
    file_name(x, name, sizeof name);
    if (snprintf(path, sizeof path, "%s/%s.%d.et", x->s->options->chakra, name, rank) >=
        (int)sizeof path)
        return fo_base_error(FO_IO, "--chakra: the path of the folder is too long");
    return status == FO_OK ? fo_planner_chakra_write(path, operations, x->count, facts, FACTS)
                           : status;
}

/* Programs of many ranks would be a lot of memory. */
static void drop_rank(exporter *x, int rank)
{
    for (int i = 0; i < x->count; i++)
        if (rank >= x->parts[i].programs.period)
            fo_planner_simulate_programs_drop(&x->parts[i].programs, rank);
}

static fo_status write_all(exporter *x)
{
    char sizes[256], network[256], title[64], ranks[16];
    fo_planner_simulate_title(x->s, title, sizeof title);
    fo_planner_simulate_sizes(x->s, sizes, sizeof sizes);
    fo_planner_simulate_network(&x->s->machine.network, x->s->nodes > 1, network, sizeof network);
    snprintf(ranks, sizeof ranks, "%d", x->s->options->ranks);
    const fo_planner_chakra_fact facts[FACTS] = {
        {"operation", title},           {"sizes", sizes},       {"ranks", ranks},
        {"overlap", x->strategy->name}, {"times", "simulated"}, {"machine", x->s->machine.name},
    };
    fo_status status = FO_OK;
    for (int rank = 0; status == FO_OK && rank < x->s->options->ranks; rank++) {
        status = write_rank(x, rank, facts);
        drop_rank(x, rank);
    }
    return status;
}

static fo_status export_strategy(const fo_planner_simulation *s, int index)
{
    fo_planner_operations operations;
    exporter x = {.s = s, .strategy = &s->strategies[index], .machine = s->machine};
    x.machine.contention = x.machine.cpu_s_per_byte = 0;
    fo_status status = fo_planner_simulate_operations(s, x.strategy, &operations);
    x.count = status == FO_OK ? operations.count : 0;
    for (int i = 0; status == FO_OK && i < x.count; i++) {
        x.names[i] = fo_schedule_operation_name(operations.descs[i].op);
        status = measure(&x, &operations.descs[i], &x.parts[i]);
    }
    if (status == FO_OK)
        status = write_all(&x);
    for (int i = 0; i < x.count; i++)
        forget(&x.parts[i]);
    return status;
}

fo_status fo_planner_simulate_chakra(const fo_planner_simulation *s)
{
    fo_status status = FO_OK;
    for (int i = 0; status == FO_OK && i < s->count; i++)
        if (!s->results[i].note[0])
            status = export_strategy(s, i);
    return status;
}
