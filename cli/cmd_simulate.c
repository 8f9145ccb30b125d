/* flashoverlap simulate */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "command_line.h"
#include "flashoverlap/job.h"
#include "flashoverlap/simulate.h"

/* What is read for both, operations and steps, before it is known which; 0 and NULL: not given. */
typedef struct given {
    const char *subject, *machine, *overlap, *transfer, *slow;
    int ranks;
    int64_t dim, ffn, heads, batch, context;
    fo_dtype dtype, wire;
    cli_link link, outer;
    bool explain, json, csv;
    const char *recompute, *switches[5];
} given;

/* Options of one of the two; the other would not look at them. */
static const char *const of_operations[] = {"backward", "rows",  "nodes",  "threads",
                                            "order",    "trace", "report", "chakra",
                                            "transfer", "csv",   NULL};
static const char *const of_steps[] = {"model",
                                       "layers",
                                       "kv-heads",
                                       "vocabulary",
                                       "gated",
                                       "tp",
                                       "dp",
                                       "pp",
                                       "interleave",
                                       "recompute",
                                       "micro-batch",
                                       "sequence-parallel",
                                       "optimizer",
                                       "overlap-dp",
                                       "flash-attention",
                                       "shard-optimizer",
                                       NULL};

/* The first of these options that is on the command line; NULL: none. */
static const char *first_given(int argc, char **argv, const char *const *names)
{
    for (int i = 0; i < argc; i++)
        for (int n = 0; names[n]; n++) {
            size_t length = strlen(names[n]);
            if (!strncmp(argv[i], "--", 2) && !strncmp(argv[i] + 2, names[n], length) &&
                (!argv[i][2 + length] || argv[i][2 + length] == '='))
                return names[n];
        }
    return NULL;
}

/* "3:0.8" */
static bool read_slow(const char *text, int *rank, double *speed)
{
    char *end;
    long number = strtol(text, &end, 10);
    if (!isdigit((unsigned char)*text) || *end != ':' || number > 1000000)
        return false;
    const char *second = end + 1;
    *rank = (int)number;
    *speed = strtod(second, &end);
    return isdigit((unsigned char)*second) && !*end && *speed >= 1e-3 && *speed <= 1000;
}

static void take(int64_t *target, int64_t value)
{
    if (value)
        *target = value;
}

static fo_bench_format format_of(const given *g)
{
    return g->json ? FO_BENCH_JSON : g->csv ? FO_BENCH_CSV : FO_BENCH_TEXT;
}

/* A time is what a link's latency is, too. */
static bool read_time(const char *text, double *seconds)
{
    cli_link time = {0};
    char as_link[64];
    snprintf(as_link, sizeof as_link, "1B/s,%s", text);
    bool fine = cli_options_link(as_link, &time) && time.link.latency_s >= 1e-12;
    *seconds = time.link.latency_s;
    return fine;
}

static int run_operation(fo_simulate_options *o, const given *g, int argc, char **argv)
{
    if (g->transfer && !read_time(g->transfer, &o->transfer_s))
        return cli_usage("simulate", "--transfer is '%s', expected a time, such as 43.8ms",
                         g->transfer);
    o->subject = g->subject;
    o->machine = g->machine;
    o->overlap = g->overlap;
    o->ranks = g->ranks ? g->ranks : o->ranks;
    o->dtype = g->dtype;
    o->wire = g->wire;
    o->link = g->link.link;
    o->link_ratio = g->link.ratio;
    o->outer = g->outer.link;
    take(&o->dim, g->dim);
    take(&o->ffn, g->ffn);
    take(&o->heads, g->heads);
    take(&o->batch, g->batch);
    take(&o->context, g->context);
    o->explain = g->explain;
    o->format = format_of(g);
    o->color = cli_color(stdout);
    if (!fo_job_first()) /* all processes of a job find the same; one writes it down */
        o->trace = o->report = o->chakra = NULL;
    char *line = cli_command_line("simulate", argc, argv);
    o->command = line;
    int code = cli_end("simulate", fo_simulate_run(o, stdout));
    free(line);
    return code;
}

static int run_step(fo_simulate_step_options *o, const given *g)
{
    static const char *const words[] = {"none", "selective", "full"};
    fo_step_options *s = &o->step;
    bool *const switches[] = {&s->sequence_parallel, &s->flash_attention, &s->sharded_optimizer,
                              &s->overlap_dp, &s->optimizer};
    for (int i = 0; i < 3; i++)
        if (!strcmp(g->recompute, words[i]))
            s->recompute = (fo_recompute)i;
    for (int i = 0; i < 5; i++)
        *switches[i] = !strcmp(g->switches[i], "on");
    s->machine = g->machine;
    s->overlap = g->overlap;
    s->dtype = g->dtype;
    s->wire = g->wire;
    s->model.dim = g->dim;
    s->model.ffn = g->ffn;
    s->model.heads = g->heads;
    s->model.context = s->context = g->context;
    take(&s->batch, g->batch);
    o->ranks = g->ranks;
    o->link = g->link.link;
    o->outer = g->outer.link;
    o->explain = g->explain;
    o->format = format_of(g);
    return cli_end("simulate", fo_simulate_step(o, stdout));
}

static int run(fo_simulate_options *o, fo_simulate_step_options *s, const given *g, int argc,
               char **argv)
{
    bool step = !strcmp(g->subject, "step");
    const char *foreign = first_given(argc, argv, step ? of_operations : of_steps);
    if (foreign)
        return cli_usage("simulate", "--%s goes with %s, found it with %s", foreign,
                         step ? "row, column, mlp and attention" : "step", g->subject);
    if (g->json && g->csv)
        return cli_usage("simulate", "--json and --csv were both given, expected one of them");
    if (g->outer.ratio > 0 || (step && g->link.ratio > 0))
        return cli_usage("simulate",
                         "--%s auto: follows from one operation's one link, expected a speed, such "
                         "as 50GB/s,5us",
                         g->outer.ratio > 0 ? "outer" : "link");
    if (g->slow && !read_slow(g->slow, step ? &s->step.slow_rank : &o->slow_rank,
                              step ? &s->step.slow_speed : &o->slow_speed))
        return cli_usage(
            "simulate",
            "--slow-rank is '%s', expected a rank and its speed, 0.001 to 1000, such as "
            "3:0.8",
            g->slow);
    return step ? run_step(s, g) : run_operation(o, g, argc, argv);
}

static const char *on_off(bool on)
{
    return on ? "on" : "off";
}

int cmd_simulate(int argc, char **argv)
{
    fo_simulate_options o;
    fo_simulate_step_options s;
    fo_simulate_defaults(&o);
    fo_simulate_step_defaults(&s);
    fo_step_options *t = &s.step;
    given g = {.dtype = o.dtype,
               .wire = o.wire,
               .recompute = "none",
               .switches = {on_off(t->sequence_parallel), on_off(t->flash_attention),
                            on_off(t->sharded_optimizer), on_off(t->overlap_dp),
                            on_off(t->optimizer)}};
    int code;
    const cli_option options[] = {
        {CLI_TEXT, "machine", &g.machine, "NAME", "a profile, or FILE.json", 0, 0},
        {CLI_INT, "ranks", &g.ranks, "N", "8; step: tp dp pp", 1, 1e6},
        {CLI_TEXT, "overlap", &g.overlap, "LIST", "strategies", 0, 0},
        {CLI_TEXT, "slow-rank", &g.slow, "R:SPEED", "rank 3: 3:0.8", 0, 0},
        {CLI_DTYPE, "dtype", &g.dtype, "f32|bf16", "of products", 0, 0},
        {CLI_DTYPE, "wire", &g.wire, "f32|bf16", "of sums", 0, 0},
        {CLI_INT64, "batch", &g.batch, "N", "sequences", 1, 1e9},
        {CLI_INT64, "context", &g.context, "N", "tokens of each", 1, 1e9},
        {CLI_INT64, "dim", &g.dim, "N", "width", 1, 1e9},
        {CLI_INT64, "ffn", &g.ffn, "N", "hidden [2 or 4 dim]", 1, 1e9},
        {CLI_INT64, "heads", &g.heads, "N", "of attention", 1, 1e6},
        {CLI_LINK, "link", &g.link, "LINK", "instead: 2GB/s,5us[,mesh]; auto:0.56 of computation",
         0, 0},
        {CLI_LINK, "outer", &g.outer, "LINK", "instead, between machines: 50GB/s,5us", 0, 0},
        {CLI_FLAG, "explain", &g.explain, NULL, "where time is lost", 0, 0},
        {CLI_FLAG, "json", &g.json, NULL, "for machines", 0, 0},
        {.type = CLI_SECTION, .name = "row, column, mlp, attention"},
        {CLI_FLAG, "backward", &o.backward, NULL, "the backward pass", 0, 0},
        {CLI_INT64, "rows", &o.rows, "N", "tokens, instead", 1, 1e12},
        {CLI_INT, "nodes", &o.nodes, "M", "machines; 0: profile's", 0, 1e6},
        {CLI_INT, "threads", &o.threads, "N", "of a rank; 0: all", 0, 4096},
        {CLI_TEXT, "transfer", &g.transfer, "TIME", "of all, instead", 0, 0},
        {CLI_TEXT, "order", &o.order, "WORD", "straight, balanced", 0, 0},
        {CLI_FLAG, "csv", &g.csv, NULL, "a table", 0, 0},
        {CLI_TEXT, "trace", &o.trace, "FILE", "timelines", 0, 0},
        {CLI_TEXT, "report", &o.report, "FILE", "an HTML page", 0, 0},
        {CLI_TEXT, "chakra", &o.chakra, "DIR", "Chakra traces", 0, 0},
        {.type = CLI_SECTION, .name = "step"},
        {CLI_TEXT, "model", &s.model, "NAME", "llama3-70b, gpt2, ..., or a config.json", 0, 0},
        {CLI_INT64, "layers", &t->model.layers, "N", "of the model", 1, 1e6},
        {CLI_INT64, "kv-heads", &t->model.kv_heads, "N", "0: as heads", 1, 1e6},
        {CLI_INT64, "vocabulary", &t->model.vocabulary, "N", "entries", 1, 1e9},
        {CLI_FLAG, "gated", &t->model.gated, NULL, "SwiGLU", 0, 0},
        {CLI_INT, "tp", &t->tp, "N", "tensor-parallel", 1, 1e6},
        {CLI_INT, "dp", &t->dp, "N", "replicas", 1, 1e6},
        {CLI_INT, "pp", &t->pp, "N", "pipeline stages", 1, 1e6},
        {CLI_INT, "interleave", &t->interleave, "N", "chunks of one", 1, 1e4},
        {CLI_INT64, "micro-batch", &t->micro_batch, "N", "at a time", 1, 1e9},
        {CLI_WORD, "recompute", &g.recompute, "none|selective|full", "in the backward pass", 0, 0},
        {CLI_WORD, "sequence-parallel", &g.switches[0], "on|off", "split activations too", 0, 0},
        {CLI_WORD, "flash-attention", &g.switches[1], "on|off", "no scores in memory", 0, 0},
        {CLI_WORD, "shard-optimizer", &g.switches[2], "on|off", "over replicas", 0, 0},
        {CLI_WORD, "overlap-dp", &g.switches[3], "on|off", "replicas", 0, 0},
        {CLI_WORD, "optimizer", &g.switches[4], "on|off", "AdamW", 0, 0},
        {.type = CLI_END},
    };
    const cli_command command = {
        .name = "simulate",
        .about =
            "Predicts an operation, or a training step of a model, on a machine's profile, in\n"
            "virtual time: no rank is started, every figure is simulated. Operations are\n"
            "spelled as bench spells them; the table ends with whether to overlap at all.",
        .operands = "row|column|mlp|attention|step",
        .operand = &g.subject,
        .options = options};
    if (!cli_begin(&command, argc, argv, &code))
        return code;
    return run(&o, &s, &g, argc, argv);
}
