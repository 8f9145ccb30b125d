/* flashoverlap train */
#include <math.h>
#include <stdlib.h>

#include "cli.h"
#include "command_line.h"
#include "flashoverlap/train.h"
#include "profile.h"

static void print_value(const char *name, double value, const char *end)
{
    if (isfinite(value))
        printf("\"%s\": %.9g%s", name, value, end);
    else
        printf("\"%s\": null%s", name, end);
}

static void print_json(const fo_train_result *result)
{
    printf("{\"step\": %lld, ", (long long)result->step);
    print_value("loss", result->loss, ", ");
    print_value("val_loss", result->val_loss, ", ");
    print_value("step_ms", result->step_ms, ", ");
    print_value("tokens_per_s", result->tokens_per_s, ", ");
    print_value("mfu", result->mfu, ", ");
    print_value("exposed_ms", result->exposed_ms, ", ");
    printf("\"tp\": %d, \"dp\": %d, \"optimizer_bytes\": %lld, ", result->tp, result->dp,
           (long long)result->optimizer_bytes);
    if (result->slow_rank < 0) {
        printf("\"slow\": null}\n");
        return;
    }
    printf("\"slow\": {\"rank\": %d, \"host\": \"%s\", \"waited_by\": %d, ", result->slow_rank,
           result->slow_host, result->waited_by);
    print_value("waited_s", result->waited_s, ", ");
    print_value("part", result->waited_part, "}}\n");
}

static int compare(fo_train_options *o, const char *strategies, bool json, int argc, char **argv)
{
    char *line = cli_command_line("train", argc, argv);
    o->command = line;
    int code = cli_end("train", fo_train_compare(o, strategies, json, stdout));
    free(line);
    return code;
}

int cmd_train(int argc, char **argv)
{
    fo_train_options o;
    fo_train_defaults(&o);
    cli_link link = {o.group.link, o.link_ratio};
    bool unpredicted = false;
    const char *strategies = NULL, *profile = NULL, *usual = o.overlap;
    bool json = false;
    int code;
    const cli_option options[] = {
        {.type = CLI_SECTION, .name = "model"},
        {CLI_INT64, "layers", &o.layers, "N", "layers", 1, 1e6},
        {CLI_INT64, "heads", &o.heads, "N", "attention heads", 1, 1e6},
        {CLI_INT64, "dim", &o.dim, "N", "model width", 1, 1e7},
        {CLI_INT64, "context", &o.context, "N", "tokens seen", 1, 1e8},
        {CLI_DTYPE, "dtype", &o.dtype, "f32|bf16", "of products", 0, 0},
        {CLI_FLOAT, "dropout", &o.dropout, "P", "share; 0: none", 0, 0.999},
        {.type = CLI_SECTION, .name = "data"},
        {CLI_TEXT, "data", &o.data, "FILE", "text or tokens; its last tenth is held out", 0, 0},
        {CLI_WORD, "format", &o.format, "bytes|char|nanogpt|llmc", "what the file holds", 0, 0},
        {CLI_INT64, "vocabulary", &o.vocabulary, "N", "of token files", 0, 1e8},
        {CLI_UINT64, "seed", &o.seed, "N", "seed", 0, 0},
        {.type = CLI_SECTION, .name = "optimisation"},
        {CLI_INT64, "steps", &o.steps, "N", "steps", 1, 1e12},
        {CLI_INT64, "batch", &o.batch, "N", "sequences", 1, 1e8},
        {CLI_INT64, "accumulate", &o.accumulate, "N", "batches a step", 1, 1e8},
        {CLI_INT64, "warmup", &o.warmup, "N", "steps", 0, 1e12},
        {CLI_FLOAT, "lr", &o.lr, "X", "highest", 0, 1e38},
        {CLI_FLOAT, "min-lr", &o.min_lr, "X", "last", 0, 1e38},
        {CLI_FLOAT, "beta1", &o.beta1, "X", "AdamW", 0, 0.999999},
        {CLI_FLOAT, "beta2", &o.beta2, "X", "AdamW", 0, 0.999999},
        {CLI_FLOAT, "decay", &o.decay, "X", "AdamW", 0, 1e6},
        {CLI_FLOAT, "clip", &o.clip, "X", "of norm; 0: off", 0, 1e38},
        {CLI_INT64, "eval-every", &o.eval_every, "N", "steps; 0: never", 0, 1e12},
        {CLI_INT64, "eval-batches", &o.eval_batches, "N", "batches", 0, 1e8},
        {.type = CLI_SECTION, .name = "files"},
        {CLI_TEXT, "out", &o.out, "DIR", "checkpoints go here", 0, 0},
        {CLI_INT64, "save-every", &o.save_every, "N", "steps; 0: at the end", 0, 1e12},
        {CLI_TEXT, "resume", &o.resume, "DIR", "go on from DIR", 0, 0},
        {CLI_TEXT, "log", &o.log, "FILE", "JSON, one a line", 0, 0},
        {.type = CLI_SECTION, .name = "group"},
        {CLI_INT, "ranks", &o.group.ranks, "N", "processes", 1, 4096},
        {CLI_INT, "tp", &o.tp, "N", "ranks that share a layer", 1, 4096},
        {CLI_INT, "dp", &o.dp, "N", "replicas; tp x dp = ranks", 1, 4096},
        {CLI_INT, "threads", &o.group.threads, "N", "of a rank; 0: all", 0, 4096},
        {CLI_TEXT, "overlap", &o.overlap, "NAME",
         "auto, none, slice:K, ring, flash, direct, hier[:M]", 0, 0},
        {CLI_TEXT, "plan", &o.plan, "FILE", "tp, dp and strategies, as chosen by plan", 0, 0},
        {CLI_TEXT, "profile", &profile, "FILE", "of this machine, for auto", 0, 0},
        {CLI_DTYPE, "wire", &o.wire, "f32|bf16", "of moving sums", 0, 0},
        {CLI_TEXT, "transport", &o.group.transport, "NAME", "shm, self, mpi", 0, 0},
        {CLI_INT, "nodes", &o.group.nodes, "M", "hosts; 0: found", 0, 4096},
        {CLI_TEXT, "kernel", &o.group.kernel, "NAME", "onednn, ref", 0, 0},
        {CLI_DOUBLE, "deadline", &o.group.deadline_s, "S", "of a wait; 0: 60", 0, 1e9},
        {CLI_LINK, "link", &link, "LINK",
         "emulated: 2GB/s,5us[,mesh]; auto:0.56 of computation; off", 0, 0},
        {.type = CLI_SECTION, .name = "output"},
        {CLI_TEXT, "compare", &strategies, "LIST",
         "print a table of strategies: none,slice:4,flash", 0, 0},
        {CLI_FLAG, "no-predict", &unpredicted, NULL, "compare: don't measure for predictions", 0,
         0},
        {CLI_TEXT, "trace", &o.trace, "FILE", "timelines", 0, 0},
        {CLI_TEXT, "report", &o.report, "FILE", "HTML of compare", 0, 0},
        {CLI_FLAG, "quiet", &o.quiet, NULL, "no progress", 0, 0},
        {CLI_FLAG, "json", &json, NULL, "the result as JSON", 0, 0},
        {.type = CLI_END},
    };
    const cli_command command = {.name = "train",
                                 .about = "Trains GPT-2 on text, tensor-parallel.",
                                 .options = options};
    if (!cli_begin(&command, argc, argv, &code))
        return code;
    if (!o.data)
        return cli_usage("train", "--data is missing, expected a file to learn from: --data FILE");
    if (o.plan && o.overlap != usual)
        return cli_usage("train",
                         "--plan %s and --overlap %s both say how operations overlap, expected one "
                         "of them; --compare LIST compares strategies under a plan's tp and dp",
                         o.plan, o.overlap);
    if (unpredicted)
        setenv("FLASHOVERLAP_PREDICT", "0", 1);
    if (profile && !cli_profile("train", profile, &code))
        return code;
    o.group.link = link.link;
    o.link_ratio = link.ratio;
    o.progress = json ? stderr : stdout;
    o.color = cli_color(o.progress);
    if (strategies && (o.out || o.log || o.resume))
        return cli_usage("train", "--%s was given with --compare, which keeps no model and no log",
                         o.out   ? "out"
                         : o.log ? "log"
                                 : "resume");
    if (strategies)
        return compare(&o, strategies, json, argc, argv);
    if (o.trace || o.report)
        return cli_usage("train", "--%s was given without --compare, expected both: --compare LIST",
                         o.trace ? "trace" : "report");
    fo_train_result result = {0};
    fo_status status = fo_train_run(&o, &result);
    if (json && status == FO_OK)
        print_json(&result);
    return cli_end("train", status);
}
