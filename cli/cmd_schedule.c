/* flashoverlap schedule */
#include <string.h>

#include "cli.h"
#include "flashoverlap/schedule.h"

/* Rows of a shard when --rows is not given. */
enum { SHARD_ROWS = 256 };

static fo_pattern pattern_of(const char *word)
{
    static const struct {
        const char *word;
        fo_pattern pattern;
    } words[] = {{"row", FO_PATTERN_REDUCE},           {"column", FO_PATTERN_GATHER},
                 {"row-backward", FO_PATTERN_GATHER2}, {"column-backward", FO_PATTERN_JOINT},
                 {"column-wgrad", FO_PATTERN_WGRAD},   {"mlp", FO_PATTERN_BLOCK}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(word, words[i].word))
            return words[i].pattern;
    return FO_PATTERN_REDUCE; /* cli_begin has checked the word */
}

int cmd_schedule(int argc, char **argv)
{
    fo_schedule_desc desc = {.ranks = 4, .nodes = 1, .rows = -1, .quantum = 64, .stream_rows = 64};
    const char *which = NULL, *overlap = "flash";
    bool json = false;
    int code;
    const cli_option options[] = {
        {CLI_INT, "ranks", &desc.ranks, "N", "ranks", 1, 1024},
        {CLI_INT, "nodes", &desc.nodes, "N", "machines they are on, equally many on each", 1, 1024},
        {CLI_INT64, "rows", &desc.rows, "N", "tokens of the group [256 a rank]", 0, 1e12},
        {CLI_TEXT, "overlap", &overlap, "NAME", "none[/hier], slice:K, ring, flash|direct|hier[:M]",
         0, 0},
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
    desc.pattern = pattern_of(which);
    if (desc.rows < 0)
        desc.rows = (int64_t)desc.ranks * SHARD_ROWS;
    fo_status status = fo_strategy_parse(overlap, &desc.strategy);
    if (status == FO_OK)
        status = json ? fo_schedule_print_json(&desc, stdout) : fo_schedule_print(&desc, stdout);
    return cli_end("schedule", status);
}
