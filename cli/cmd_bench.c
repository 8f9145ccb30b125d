/* flashoverlap bench */
#include <stdlib.h>
#include <unistd.h>

#include "cli.h"
#include "command_line.h"
#include "flashoverlap/bench.h"
#include "flashoverlap/job.h"
#include "profile.h"

/* A table in which nothing was measured is a failed run. */
static int end(fo_status status, const fo_bench_result *result)
{
    if (status != FO_OK || result->measured)
        return cli_end("bench", status);
    char sentence[600];
    snprintf(sentence, sizeof sentence, "nothing was measured: %s", result->note);
    cli_complain("bench", sentence);
    return EXIT_RUN_FAILED;
}

static int run(fo_bench_options *o, const char *transfer, bool json, bool csv, int argc,
               char **argv)
{
    cli_link time = {0};
    char as_link[64];
    if (json && csv)
        return cli_usage("bench", "--json and --csv were both given, expected one of them");
    if (transfer) { /* a time is what a link's latency is, too */
        snprintf(as_link, sizeof as_link, "1B/s,%s", transfer);
        if (!cli_options_link(as_link, &time) || !(time.link.latency_s > 0))
            return cli_usage("bench", "--transfer is '%s', expected a time, such as 43.8ms",
                             transfer);
    }
    o->transfer_s = time.link.latency_s;
    o->format = json ? FO_BENCH_JSON : csv ? FO_BENCH_CSV : FO_BENCH_TEXT;
    o->color = cli_color(stdout);
    o->progress = isatty(STDERR_FILENO) && fo_job_first() ? stderr : NULL;
    char *line = cli_command_line("bench", argc, argv);
    o->command = line;
    fo_bench_result result;
    int code = end(fo_bench_run(o, stdout, &result), &result);
    free(line);
    return code;
}

int cmd_bench(int argc, char **argv)
{
    fo_bench_options o;
    fo_bench_defaults(&o);
    cli_link link = {o.group.link, o.link_ratio};
    const char *transfer = NULL, *profile = NULL;
    bool unpredicted = false;
    bool json = false, csv = false;
    int code;
    const cli_option options[] = {
        {.type = CLI_SECTION, .name = "sizes"},
        {CLI_INT64, "batch", &o.batch, "N", "sequences", 1, 1e9},
        {CLI_INT64, "context", &o.context, "N", "tokens of each", 1, 1e9},
        {CLI_INT64, "rows", &o.rows, "N", "tokens, instead", 1, 1e12},
        {CLI_INT64, "dim", &o.dim, "N", "width", 1, 1e9},
        {CLI_TEXT, "sweep", &o.sweep, "LIST", "points batch x context: 16x512,8x1024,4x2048", 0, 0},
        {CLI_INT64, "ffn", &o.ffn, "N", "hidden; 0: 2, 4 dim", 0, 1e9},
        {CLI_INT64, "heads", &o.heads, "N", "of attention", 1, 1e6},
        {CLI_INT64, "layers", &o.layers, "N", "of step", 1, 1e6},
        {CLI_INT64, "vocabulary", &o.vocabulary, "N", "of step", 1, 1e8},
        {CLI_DTYPE, "dtype", &o.dtype, "f32|bf16", "of products", 0, 0},
        {CLI_DTYPE, "wire", &o.wire, "f32|bf16", "of sums", 0, 0},
        {.type = CLI_SECTION, .name = "what to run"},
        {CLI_TEXT, "overlap", &o.overlap, "LIST", "strategies; auto: chosen", 0, 0},
        {CLI_FLAG, "backward", &o.backward, NULL, "the backward pass", 0, 0},
        {CLI_TEXT, "order", &o.order, "WORD", "straight, balanced", 0, 0},
        {CLI_INT, "repeat", &o.repeat, "N", "timed runs each", 1, 1e5},
        {CLI_INT, "ranks", &o.group.ranks, "N", "ranks", 1, 4096},
        {CLI_INT, "threads", &o.group.threads, "N", "of a rank; 0: all", 0, 4096},
        {CLI_TEXT, "transport", &o.group.transport, "NAME", "shm, self, mpi", 0, 0},
        {CLI_INT, "nodes", &o.group.nodes, "M", "hosts; 0: found", 0, 4096},
        {CLI_TEXT, "kernel", &o.group.kernel, "NAME", "onednn, ref", 0, 0},
        {CLI_DOUBLE, "deadline", &o.group.deadline_s, "S", "of a wait; 0: 60", 0, 1e9},
        {CLI_FLAG, "no-predict", &unpredicted, NULL, "don't measure for predictions", 0, 0},
        {CLI_TEXT, "profile", &profile, "FILE", "of this machine, for predictions", 0, 0},
        {.type = CLI_SECTION, .name = "emulated"},
        {CLI_LINK, "link", &link, "LINK", "2GB/s,5us[,mesh]; auto:0.56 of computation; off", 0, 0},
        {CLI_TEXT, "transfer", &transfer, "TIME", "what all transfer takes, instead: 43.8ms", 0, 0},
        {CLI_TEXT, "emulate", &o.emulate, "DEVICE", "78.5ms (all computation), 271TF,launch=5us", 0,
         0},
        {.type = CLI_SECTION, .name = "output"},
        {CLI_FLAG, "json", &json, NULL, "an array of objects", 0, 0},
        {CLI_FLAG, "csv", &csv, NULL, "the same as a table", 0, 0},
        {CLI_TEXT, "trace", &o.trace, "FILE", "timelines", 0, 0},
        {CLI_TEXT, "report", &o.report, "FILE", "an HTML page", 0, 0},
        {.type = CLI_END},
    };
    const cli_command command = {
        .name = "bench",
        .about = "Strategies side by side: time, measured and predicted, effective communication\n"
                 "time, hidden %, exposed time, lower bound, equality of the bits\n"
                 "(docs/metrics.md).\n"
                 "X+apart: operators of mlp, of column --backward, one by one; X+row: attention\n"
                 "before its projection. layer and step are forward and backward.",
        .operands = "row|column|mlp|attention|layer|step",
        .operand = &o.subject,
        .options = options};
    if (!cli_begin(&command, argc, argv, &code))
        return code;
    o.group.link = link.link;
    o.link_ratio = link.ratio;
    if (unpredicted)
        setenv("FLASHOVERLAP_PREDICT", "0", 1);
    if (profile && !cli_profile("bench", profile, &code))
        return code;
    return run(&o, transfer, json, csv, argc, argv);
}
