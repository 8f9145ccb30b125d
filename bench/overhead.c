/* What the executor does besides computing: runs one rank's programs with computations that do nothing, for
 * bench/overhead.sh, which counts the instructions of fo_exec_run with callgrind.
 *
 * The transport below has no other side and no waiting that spins. Time is counted in tiles: a computation
 * takes one, a port moves one message in one, in order; the two channels of a joint program share the port.
 * What was posted is done when its turn has passed. So messages arrive while others compute, as in a run
 * whose communication is just hidden, and every count repeats to the instruction.
 *
 * A line a case: pattern, strategy, N, m, messages a slice, tasks and tiles of one run, runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exec.h"

enum { WIDTH = 8, RUNS = 8, RANKS_MAX = 16, CHANNELS = 2 };

typedef struct instant {
    fo_endpoint base;     /* first */
    int64_t now, message; /* tiles a message takes */
    int64_t sent_until[CHANNELS], received_until[CHANNELS];
    char rows[4096 * WIDTH]; /* what every view shows */
} instant;

static fo_status post(instant *at, fo_request *request, int64_t *port)
{
    *port = (*port > at->now ? *port : at->now) + at->message;
    request->scratch[0] = (uint64_t)*port;
    return FO_OK;
}

static fo_status instant_isend(fo_endpoint *e, fo_request *request, int peer, uint32_t tag,
                               const void *data, size_t bytes, uint64_t imm)
{
    (void)peer, (void)data, (void)bytes, (void)imm;
    return post((instant *)e, request, &((instant *)e)->sent_until[tag]);
}

static fo_status instant_irecv_view(fo_endpoint *e, fo_request *request, int peer, uint32_t tag,
                                    size_t bytes)
{
    (void)peer, (void)bytes;
    request->data = ((instant *)e)->rows;
    return post((instant *)e, request, &((instant *)e)->received_until[tag]);
}

static fo_status instant_test(fo_endpoint *e, fo_request *request)
{
    return ((instant *)e)->now >= (int64_t)request->scratch[0] ? FO_OK : FO_IN_PROGRESS;
}

static void instant_release(fo_endpoint *e, fo_request *request)
{
    (void)e, (void)request;
}

static fo_status instant_progress(fo_endpoint *e)
{
    (void)e;
    return FO_OK;
}

static fo_status instant_wait(fo_endpoint *e, int64_t until_ns)
{
    (void)until_ns;
    ((instant *)e)->now++;
    return FO_OK;
}

static void *instant_alloc(fo_endpoint *e, size_t bytes)
{
    (void)e;
    return calloc(1, bytes);
}

static void instant_free(fo_endpoint *e, void *memory)
{
    (void)e;
    free(memory);
}

static void instant_fail(fo_endpoint *e, int rank, const char *cause)
{
    (void)e;
    fprintf(stderr, "overhead: rank %d: %s\n", rank, cause);
}

static const fo_transport_ops instant_ops = {
    .name = "instant",
    .caps = FO_TRANSPORT_VIEW,
    .isend = instant_isend,
    .irecv_view = instant_irecv_view,
    .test = instant_test,
    .release = instant_release,
    .progress = instant_progress,
    .wait = instant_wait,
    .alloc = instant_alloc,
    .free = instant_free,
    .fail = instant_fail,
};

/* A tile takes one unit of time. */
static fo_status compute(void *context, const fo_exec_tile *tile)
{
    (void)tile;
    ((instant *)context)->now++;
    return FO_OK;
}

/* overhead.sh lets callgrind begin a count at the first and write it at the second. */
__attribute__((noinline)) void overhead_case_begin(void);
__attribute__((noinline)) void overhead_case_end(void);

void overhead_case_begin(void)
{
    __asm__ volatile("");
}

void overhead_case_end(void)
{
    __asm__ volatile("");
}

static const struct {
    const char *name;
    fo_pattern pattern;
} patterns[] = {{"gather", FO_PATTERN_GATHER},
                {"reduce", FO_PATTERN_REDUCE},
                {"joint", FO_PATTERN_JOINT}};

enum { PATTERNS = sizeof patterns / sizeof *patterns };

static fo_status run_case(int p, fo_strategy strategy, int ranks, int messages)
{
    static instant at;
    int m = strategy.parts ? strategy.parts : 1;
    fo_schedule_desc desc = {.pattern = patterns[p].pattern,
                             .strategy = strategy,
                             .ranks = ranks,
                             .rows = (int64_t)ranks * m * messages,
                             .quantum = 1,
                             .stream_rows = 1};
    at = (instant){.base = {&instant_ops, 0, desc.ranks, 1000000000},
                   .message = desc.pattern == FO_PATTERN_JOINT ? 2 : 1};
    fo_program *program = NULL;
    fo_exec *exec = NULL;
    fo_status status = fo_schedule_build(&desc, 0, &program);
    fo_exec_desc ed = {.endpoint = &at.base,
                       .program = program,
                       .tile_rows = {1, 1},
                       .compute = compute,
                       .name = "overhead"};
    for (int r = 0; r < FO_BUFFER_ROLES; r++)
        ed.row_bytes[r] = WIDTH;
    if (status == FO_OK)
        status = fo_exec_create(&ed, &exec);
    char *memory = calloc((size_t)desc.rows, WIDTH);
    if (status == FO_OK && !memory)
        status = FO_NO_MEMORY;
    void *external[FO_BUFFER_ROLES] = {
        [FO_BUFFER_SHARD] = memory, [FO_BUFFER_FULL] = memory, [FO_BUFFER_OUTPUT] = memory};
    /* the first run warms up nothing that counts, but a lazily bound symbol would */
    if (status == FO_OK)
        status = fo_exec_run(exec, external, &at);
    overhead_case_begin();
    for (int run = 0; status == FO_OK && run < RUNS; run++)
        status = fo_exec_run(exec, external, &at);
    overhead_case_end();
    int64_t rows = 0;
    for (int32_t t = 0; status == FO_OK && t < program->task_count; t++)
        rows += program->tasks[t].rows;
    char text[32];
    fo_strategy_print(strategy, text, sizeof text);
    if (status == FO_OK)
        printf("%s %s %d %d %d %d %lld %d\n", patterns[p].name, text, ranks, m, messages,
               (int)program->task_count, (long long)rows, RUNS);
    fo_exec_destroy(exec);
    fo_schedule_free(program);
    free(memory);
    return status;
}

static fo_status run_all(int p, fo_strategy_kind kind, int messages)
{
    fo_status status = FO_OK;
    for (int ranks = 2; ranks <= RANKS_MAX; ranks *= 2)
        for (int m = 1; status == FO_OK && m <= 8; m *= 2)
            status = run_case(p, (fo_strategy){kind, m}, ranks, messages);
    return status;
}

/* overhead PATTERN STRATEGY RANKS: one case, to be looked at with callgrind_annotate. */
static fo_status run_one(char **words)
{
    fo_strategy strategy;
    fo_status status = fo_strategy_parse(words[1], &strategy);
    for (int p = 0; status == FO_OK && p < PATTERNS; p++)
        if (strcmp(words[0], patterns[p].name) == 0)
            return run_case(p, strategy, atoi(words[2]), 1);
    return status;
}

int main(int argc, char **argv)
{
    static const fo_strategy_kind kinds[] = {FO_STRATEGY_FLASH, FO_STRATEGY_DIRECT};
    static const int messages[] = {1, 8};
    fo_status status = FO_OK;
    if (argc == 4)
        status = run_one(argv + 1);
    else
        for (int k = 0; k < 2; k++)
            for (int p = 0; p < PATTERNS; p++)
                for (int c = 0; status == FO_OK && c < 2; c++)
                    status = run_all(p, kinds[k], messages[c]);
    if (status != FO_OK)
        fprintf(stderr, "overhead: %s\n", fo_last_error());
    return status == FO_OK ? 0 : 1;
}
