/* flashoverlap bench */
#include <string.h>

#include "cli.h"
#include "flashoverlap/bench.h"

int cmd_bench(int argc, char **argv)
{
    fo_bench_options o;
    fo_bench_defaults(&o);
    cli_link link = {o.group.link, o.link_ratio};
    const char *which = NULL;
    int code;
    const cli_option options[] = {
        {CLI_INT64, "rows", &o.rows, "N", "tokens of the group", 1, 1e12},
        {CLI_INT64, "dim", &o.dim, "N", "width of the model", 1, 1e9},
        {CLI_INT64, "ffn", &o.ffn, "N", "hidden features, split over the ranks", 1, 1e9},
        {CLI_FLAG, "backward", &o.backward, NULL, "the backward pass", 0, 0},
        {CLI_DTYPE, "dtype", &o.dtype, "f32|bf16", "of products", 0, 0},
        {CLI_DTYPE, "wire", &o.wire, "f32|bf16", "of moving sums", 0, 0},
        {CLI_TEXT, "overlap", &o.overlap, "LIST", "strategies", 0, 0},
        {CLI_LINK, "link", &link, "LINK",
         "emulated: 2GB/s,5us[,mesh]; auto:0.56 of computation; off", 0, 0},
        {CLI_INT, "repeat", &o.repeat, "N", "timed runs of each, interleaved", 1, 1e6},
        {CLI_INT, "ranks", &o.group.ranks, "N", "ranks", 1, 4096},
        {CLI_INT, "threads", &o.group.threads, "N", "of a rank; 0: all", 0, 4096},
        {CLI_TEXT, "transport", &o.group.transport, "NAME", "shm or self", 0, 0},
        {CLI_TEXT, "kernel", &o.group.kernel, "NAME", "onednn or ref", 0, 0},
        {CLI_DOUBLE, "deadline", &o.group.deadline_s, "S", "longest wait without progress; 0: 60",
         0, 1e9},
        {CLI_FLAG, "json", &o.json, NULL, "an array of objects", 0, 0},
        {.type = CLI_END},
    };
    const cli_command command = {
        .name = "bench",
        .about =
            "Measures one layer under several strategies: time, effective communication time,\n"
            "hidden %, exposed time, lower bound, equality of the bits (docs/metrics.md).\n"
            "row: [rows, ffn/N].[ffn/N, dim], reduce-scatter; column: all-gather,\n"
            "[rows, dim].[dim, ffn/N].\n",
        .operands = "row|column",
        .operand = &which,
        .options = options};
    if (!cli_begin(&command, argc, argv, &code))
        return code;
    o.column = !strcmp(which, "column");
    o.group.link = link.link;
    o.link_ratio = link.ratio;
    return cli_end("bench", fo_bench_run(&o, stdout));
}
