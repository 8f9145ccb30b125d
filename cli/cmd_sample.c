/* flashoverlap sample */
#include "cli.h"
#include "flashoverlap/train.h"

int cmd_sample(int argc, char **argv)
{
    fo_sample_options o;
    fo_sample_defaults(&o);
    int code;
    const cli_option options[] = {
        {CLI_TEXT, "checkpoint", &o.checkpoint, "DIR", "what 'train --out' wrote, or a step in it",
         0, 0},
        {CLI_TEXT, "prompt", &o.prompt, "TEXT", "what to go on from; a newline when not given", 0,
         0},
        {CLI_INT64, "tokens", &o.tokens, "N", "how many to write", 0, 1e12},
        {CLI_DOUBLE, "temperature", &o.temperature, "X", "0: always the most likely token", 0, 1e6},
        {CLI_INT64, "top-k", &o.top_k, "N", "choose among the N most likely; 0: all", 0, 1e9},
        {CLI_UINT64, "seed", &o.seed, "N", "the same seed writes the same text", 0, 0},
        {CLI_INT, "ranks", &o.group.ranks, "N", "processes", 1, 4096},
        {CLI_INT, "threads", &o.group.threads, "N", "a rank; 0: all", 0, 4096},
        {CLI_TEXT, "transport", &o.group.transport, "NAME", "shm, self, mpi", 0, 0},
        {CLI_TEXT, "kernel", &o.group.kernel, "NAME", "onednn, ref", 0, 0},
        {CLI_DOUBLE, "deadline", &o.group.deadline_s, "S", "of a wait; 0: 60", 0, 1e9},
        {.type = CLI_END},
    };
    const cli_command command = {
        .name = "sample",
        .about = "Writes text with a trained model: the continuation of the prompt.\n",
        .options = options};
    if (!cli_begin(&command, argc, argv, &code))
        return code;
    if (!o.checkpoint)
        return cli_usage("sample",
                         "--checkpoint is missing, expected a directory that 'train --out' wrote");
    fo_status status = fo_sample_run(&o, stdout);
    if (status == FO_OK)
        putchar('\n');
    return cli_end("sample", status);
}
