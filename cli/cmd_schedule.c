/* flashoverlap schedule */
#include <string.h>

#include "cli.h"
#include "flashoverlap/plan.h"
#include "flashoverlap/schedule.h"

/* Rows of a shard when --rows is not given. */
enum { SHARD_ROWS = 256 };

static const struct subject {
    const char *word;
    fo_pattern pattern;
    fo_op op;
} subjects[] = {{"row", FO_PATTERN_REDUCE, FO_ROW_FORWARD},
                {"column", FO_PATTERN_GATHER, FO_COLUMN_FORWARD},
                {"row-backward", FO_PATTERN_GATHER2, FO_ROW_BACKWARD},
                {"column-backward", FO_PATTERN_JOINT, FO_COLUMN_BACKWARD},
                {"column-wgrad", FO_PATTERN_WGRAD, FO_COLUMN_WGRAD},
                {"mlp", FO_PATTERN_BLOCK, FO_MLP_FORWARD}};

static const struct subject *subject_of(const char *word)
{
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++)
        if (!strcmp(word, subjects[i].word))
            return &subjects[i];
    return &subjects[0]; /* cli_begin has checked the word */
}

/* What auto is chosen for. */
typedef struct sizes {
    const char *machine;
    int64_t dim, ffn; /* ffn 0: 4 dim */
    fo_dtype dtype;
} sizes;

static fo_status choose(const sizes *s, const struct subject *subject, const fo_schedule_desc *desc,
                        char overlap[32], char why[192])
{
    int64_t own = fo_shard_rows(s->ffn ? s->ffn : 4 * s->dim, desc->ranks, 0);
    bool row = subject->op == FO_ROW_FORWARD || subject->op == FO_ROW_BACKWARD;
    bool mlp = subject->op == FO_MLP_FORWARD;
    fo_plan_desc plan = {.op = subject->op,
                         .rows = desc->rows,
                         .in = row ? own : s->dim,
                         .out = row || mlp ? s->dim : own,
                         .hidden = mlp ? own : 0,
                         .dtype = s->dtype,
                         .wire = s->dtype,
                         .y_dtype = s->dtype};
    return fo_overlap_choose(s->machine, &plan, desc->ranks, 1, overlap, why);
}

static int run(fo_schedule_desc *desc, const struct subject *subject, const char *overlap,
               const sizes *s, bool json)
{
    char chosen[32], why[192] = "";
    bool automatic = !strcmp(overlap, "auto");
    if (automatic && !s->machine)
        return cli_usage("schedule", "--overlap auto is chosen for a machine, expected one: "
                                     "--machine a100-sxm, with --dim and --ffn");
    fo_status status = automatic ? choose(s, subject, desc, chosen, why) : FO_OK;
    if (status == FO_OK)
        status = fo_strategy_parse(automatic ? chosen : overlap, &desc->strategy);
    if (status == FO_OK && automatic && !json)
        printf("auto on %s: %s\n", s->machine, why);
    if (status == FO_OK)
        status = json ? fo_schedule_print_json(desc, stdout) : fo_schedule_print(desc, stdout);
    return cli_end("schedule", status);
}

int cmd_schedule(int argc, char **argv)
{
    fo_schedule_desc desc = {.ranks = 4, .nodes = 1, .rows = -1, .quantum = 64, .stream_rows = 64};
    const char *which = NULL, *overlap = "flash";
    bool json = false;
    sizes s = {.dim = 4096, .dtype = FO_BF16};
    int code;
    const cli_option options[] = {
        {CLI_INT, "ranks", &desc.ranks, "N", "ranks", 1, 1024},
        {CLI_INT, "nodes", &desc.nodes, "N", "machines they are on, equally many on each", 1, 1024},
        {CLI_INT64, "rows", &desc.rows, "N", "tokens of the group [256 a rank]", 0, 1e12},
        {CLI_TEXT, "overlap", &overlap, "NAME", "none, slice:K, ring, flash|direct|hier[:M], auto",
         0, 0},
        {CLI_TEXT, "machine", &s.machine, "NAME", "auto: a machine profile, or a file", 0, 0},
        {CLI_INT64, "dim", &s.dim, "N", "auto: width", 1, 1e9},
        {CLI_INT64, "ffn", &s.ffn, "N", "auto: hidden; 0: 4 dim", 0, 1e9},
        {CLI_DTYPE, "dtype", &s.dtype, "f32|bf16", "auto: of all", 0, 0},
        {CLI_INT64, "quantum", &desc.quantum, "N", "rows that are not cut apart", 1, 1e12},
        {CLI_INT64, "stream-rows", &desc.stream_rows, "N", "rows of one message", 1, 1e12},
        {CLI_FLAG, "json", &json, NULL, "as one JSON object", 0, 0},
        {.type = CLI_END},
    };
    const cli_command command = {
        .name = "schedule",
        .about = "Prints, step by step, what every rank computes, sends, receives and adds, and\n"
                 "what the verifier says. row: compute, reduce-scatter; column: all-gather,\n"
                 "compute; their backward passes; mlp: all-gather, two computations,\n"
                 "reduce-scatter as one program.\n",
        .after = "\nExit code 1 when the verifier finds a broken rule.",
        .operands = "row|column|mlp|row-backward|column-backward|column-wgrad",
        .operand = &which,
        .options = options};
    if (!cli_begin(&command, argc, argv, &code))
        return code;
    desc.pattern = subject_of(which)->pattern;
    if (desc.rows < 0)
        desc.rows = (int64_t)desc.ranks * SHARD_ROWS;
    return run(&desc, subject_of(which), overlap, &s, json);
}
