/* flashoverlap plan */
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "flashoverlap/search.h"
#include "flashoverlap/trace.h"

static const char usual[] = "llama3-70b";
static const char *const recomputes[] = {"none", "selective", "full"};

/* The words of the options that are not the library's numbers. */
typedef struct words {
    const char *model, *recompute, *out;
    bool explain, json, apart, written_scores;
} words;

static fo_status prepare(fo_search_options *o, const words *w)
{
    fo_model_sizes given = o->step.model;
    bool stated = given.layers || given.dim || given.ffn || given.heads || given.kv_heads ||
                  given.vocabulary || given.gated;
    given.context = o->step.context;
    fo_status status =
        fo_model_sizes_resolve(w->model || stated ? w->model : usual, &given, &o->step.model);
    o->recompute_given = strcmp(w->recompute, "least") != 0;
    for (int r = 0; r < 3; r++)
        if (strcmp(w->recompute, recomputes[r]) == 0)
            o->step.recompute = (fo_recompute)r;
    o->step.sequence_parallel = !w->apart;
    o->step.flash_attention = !w->written_scores;
    return status;
}

static fo_status run(const fo_search_options *o, const words *w)
{
    static fo_search_result result; /* some 100 KB */
    fo_plan_file file;
    fo_status status = w->out ? fo_trace_check_path(w->out) : FO_OK; /* before the work */
    if (status == FO_OK)
        status = fo_search_run(o, &result);
    if (status == FO_OK && w->out) {
        fo_plan_file_make(&result.best[0], &file);
        status = fo_plan_file_write(&file, w->out);
    }
    if (status != FO_OK)
        return status;
    if (w->json)
        fo_search_print_json(o, &result, stdout);
    else
        fo_search_print(o, &result, w->explain, stdout);
    return FO_OK;
}

int cmd_plan(int argc, char **argv)
{
    fo_search_options o;
    words w = {.recompute = "least"};
    int code;
    fo_search_defaults(&o);
    o.ranks = 8;
    o.step.machine = "h100-sxm";
    o.step.batch = 64;
    const cli_option options[] = {
        {CLI_TEXT, "model", &w.model, "NAME",
         "a preset, or a Hugging Face config.json [llama3-70b]", 0, 0},
        {CLI_TEXT, "machine", &o.step.machine, "NAME", "a profile that is built in, or a file", 0,
         0},
        {CLI_INT, "ranks", &o.ranks, "N", "of the whole cluster", 1, 1 << 20},
        {CLI_INT64, "batch", &o.step.batch, "N", "sequences a step, of all replicas", 1, 1e9},
        {CLI_INT64, "context", &o.step.context, "N", "tokens of one; 0: the model's", 0, 1e9},
        {CLI_DTYPE, "dtype", &o.step.dtype, "TYPE", "of computation, f32 or bf16", 0, 0},
        {CLI_DTYPE, "wire", &o.step.wire, "TYPE", "of travelling partial sums", 0, 0},
        {CLI_SECTION, "Sizes, instead of the model's or of a model", NULL, NULL, NULL, 0, 0},
        {CLI_INT64, "layers", &o.step.model.layers, "N", "of the model", 1, 1e6},
        {CLI_INT64, "dim", &o.step.model.dim, "N", "width", 1, 1e9},
        {CLI_INT64, "ffn", &o.step.model.ffn, "N", "hidden features of the MLP; 0: 4 dim", 0, 1e9},
        {CLI_INT64, "heads", &o.step.model.heads, "N", "of attention", 1, 1e6},
        {CLI_INT64, "kv-heads", &o.step.model.kv_heads, "N", "0: as heads", 0, 1e6},
        {CLI_INT64, "vocabulary", &o.step.model.vocabulary, "N", "entries", 1, 1e9},
        {CLI_FLAG, "gated", &o.step.model.gated, NULL, "SwiGLU: three matrices in the MLP", 0, 0},
        {CLI_SECTION, "What is chosen, unless it is given", NULL, NULL, NULL, 0, 0},
        {CLI_INT, "tp", &o.step.tp, "N", "tensor-parallel ranks; 0: chosen", 0, 1 << 20},
        {CLI_INT, "dp", &o.step.dp, "N", "replicas; 0: chosen", 0, 1 << 20},
        {CLI_INT, "pp", &o.step.pp, "N", "pipeline stages; 0: chosen", 0, 1 << 20},
        {CLI_INT, "interleave", &o.step.interleave, "N", "chunks of a stage; 0: chosen", 0, 16},
        {CLI_INT64, "micro-batch", &o.step.micro_batch, "N", "sequences at a time; 0: chosen", 0,
         1e9},
        {CLI_WORD, "recompute", &w.recompute, "least|none|selective|full",
         "of activations; least: what memory asks for", 0, 0},
        {CLI_DOUBLE, "memory-part", &o.memory_part, "X", "of the memory that may be used", 0.01, 1},
        {CLI_FLAG, "no-sequence-parallel", &w.apart, NULL, "whole activations between layers", 0,
         0},
        {CLI_FLAG, "written-scores", &w.written_scores, NULL, "attention writes its scores", 0, 0},
        {CLI_SECTION, "Output", NULL, NULL, NULL, 0, 0},
        {CLI_TEXT, "out", &w.out, "FILE", "the plan, for train --plan", 0, 0},
        {CLI_FLAG, "explain", &w.explain, NULL, "where the time of the best goes", 0, 0},
        {CLI_FLAG, "json", &w.json, NULL, "for programs", 0, 0},
        {.type = CLI_END},
    };
    const cli_command command = {
        .name = "plan",
        .about = "Chooses how to split a model over a cluster: tensor-parallel, data-parallel and\n"
                 "pipeline ranks, and for every operation the overlap strategy, or none where\n"
                 "overlapping does not pay. Everything is simulated; no rank is started.\n",
        .options = options};
    if (!cli_begin(&command, argc, argv, &code))
        return code;
    o.progress = isatty(STDERR_FILENO) ? stderr : NULL;
    fo_status status = prepare(&o, &w);
    if (status == FO_OK)
        status = run(&o, &w);
    return cli_end("plan", status);
}
