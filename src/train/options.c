/* Defaults, and every check that needs no rank. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "flashoverlap/job.h"
#include "flashoverlap/schedule.h"
#include "train/train.h"

void fo_train_defaults(fo_train_options *options)
{
    *options = (fo_train_options){
        .layers = 4,
        .heads = 4,
        .dim = 256,
        .context = 128,
        .dtype = FO_F32,
        .wire = FO_F32,
        .format = "bytes",
        .batch = 8,
        .accumulate = 1,
        .steps = 1000,
        .warmup = 100,
        .seed = 1,
        .lr = 1e-3f,
        .min_lr = 1e-4f,
        .clip = 1.0f,
        .decay = 0.1f,
        .beta1 = 0.9f,
        .beta2 = 0.99f,
        .eval_every = 100,
        .eval_batches = 20,
        .overlap = "flash",
    };
    fo_job job;
    fo_job_get(&job);
    options->group.ranks = job.launched ? job.size : 2;
}

/* ---- numbers --------------------------------------------------------------------------------------- */

static fo_status check_counts(const fo_train_options *o)
{
    const struct {
        const char *option;
        int64_t value, least;
    } counts[] = {
        {"layers", o->layers, 1},
        {"heads", o->heads, 1},
        {"dim", o->dim, 1},
        {"context", o->context, 1},
        {"batch", o->batch, 1},
        {"accumulate", o->accumulate, 1},
        {"steps", o->steps, 1},
        {"warmup", o->warmup, 0},
        {"eval-every", o->eval_every, 0},
        {"eval-batches", o->eval_batches, o->eval_every > 0},
        {"save-every", o->save_every, 0},
        {"vocabulary", o->vocabulary, 0},
        {"ranks", o->group.ranks, 1},
    };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (counts[i].value < counts[i].least)
            return fo_base_error(FO_INVALID, "--%s is %" PRId64 ", expected %" PRId64 " or more",
                                 counts[i].option, counts[i].value, counts[i].least);
    if (o->batch > INT32_MAX / o->context)
        return fo_base_error(FO_INVALID,
                             "--batch %" PRId64 " times --context %" PRId64
                             " is too much, expected at most "
                             "%d tokens; use --accumulate for more",
                             o->batch, o->context, INT32_MAX);
    if (o->vocabulary > INT32_MAX)
        return fo_base_error(FO_INVALID, "--vocabulary is %" PRId64 ", expected at most %d",
                             o->vocabulary, INT32_MAX);
    return FO_OK;
}

static fo_status check_reals(const fo_train_options *o)
{
    const struct {
        const char *option;
        double value, least, below; /* least <= value < below */
    } reals[] = {
        {"lr", o->lr, 0, INFINITY},     {"min-lr", o->min_lr, 0, INFINITY},
        {"clip", o->clip, 0, INFINITY}, {"decay", o->decay, 0, INFINITY},
        {"beta1", o->beta1, 0, 1},      {"beta2", o->beta2, 0, 1},
        {"dropout", o->dropout, 0, 1},  {"link auto", o->link_ratio, 0, INFINITY},
    };
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        if (!(reals[i].value >= reals[i].least && reals[i].value < reals[i].below))
            return fo_base_error(FO_INVALID, "--%s is %g, expected a number from %g to below %g",
                                 reals[i].option, reals[i].value, reals[i].least, reals[i].below);
    if (o->min_lr > o->lr)
        return fo_base_error(FO_INVALID, "--min-lr %g is above --lr %g, expected at most that",
                             (double)o->min_lr, (double)o->lr);
    return FO_OK;
}

/* Attention and the MLP are programs in training, and the library's collectives are none. */
fo_status fo_train_strategy_check(const char *name)
{
    fo_strategy strategy;
    fo_status status = fo_strategy_parse(name, &strategy);
    if (status == FO_OK && strategy.kind == FO_STRATEGY_LIBRARY)
        return fo_base_error(FO_INVALID,
                             "strategy '%s' is for single operators (flashoverlap bench), expected "
                             "none, slice:k, ring, flash, direct, hier or none/hier to train with",
                             name);
    return status;
}

fo_status fo_train_options_check(const fo_train_options *options)
{
    fo_status status = check_counts(options);
    if (status == FO_OK)
        status = check_reals(options);
    if (status == FO_OK)
        status = fo_train_strategy_check(options->overlap ? options->overlap : "flash");
    return status;
}

/* ---- files ----------------------------------------------------------------------------------------- */

/* The sentences about a file begin with its path, mostly: the option comes before it. */
static fo_status name_option(fo_status status, const char *option, const char *path)
{
    char sentence[1024];
    if (status == FO_OK)
        return status;
    snprintf(sentence, sizeof sentence, "%s", fo_last_error());
    bool leads = strncmp(sentence, path, strlen(path)) == 0;
    return fo_base_error(status, "%s %s%s%s", option, leads ? "" : path, leads ? "" : ": ",
                         sentence);
}

static fo_status open_data(fo_train_job *job)
{
    const fo_train_options *o = &job->options;
    fo_status status = fo_data_format_parse(o->format ? o->format : "bytes", &job->format);
    if (status == FO_OK && (!o->data || !o->data[0]))
        return fo_base_error(FO_INVALID,
                             "no training text was given, expected a file; use --data FILE");
    if (status != FO_OK)
        return status;
    status = fo_data_open(o->data, job->format, &job->data);
    if (status == FO_OK)
        status = fo_data_check_length(job->data, o->context);
    return name_option(status, "--data", o->data);
}

static fo_status check_out(const fo_train_options *o)
{
    if (!o->out || !fo_job_first())
        return FO_OK;
    if (!o->out[0])
        return fo_base_error(FO_INVALID, "--out is empty, expected a directory for checkpoints");
    return name_option(fo_checkpoint_directory_check(o->out), "--out", o->out);
}

static fo_status check_vocabulary(fo_train_job *job, const fo_train_state *resumed)
{
    fo_train_options *o = &job->options;
    int64_t known = fo_data_vocabulary(job->data);
    if (!o->vocabulary)
        o->vocabulary = known ? known : resumed ? resumed->model.vocabulary : 0;
    if (!o->vocabulary)
        return fo_base_error(
            FO_INVALID,
            "--data %s: a %s file doesn't say how many tokens there are, expected the "
            "number; use --vocabulary (50257 for GPT-2's tokens)",
            o->data, fo_data_format_name(job->format));
    return name_option(fo_data_check(job->data, o->vocabulary), "--data", o->data);
}

static fo_status check_config(fo_train_job *job)
{
    const fo_train_options *o = &job->options;
    job->config = (fo_model_config){
        .layers = o->layers,
        .heads = o->heads,
        .dim = o->dim,
        .context = o->context,
        .vocabulary = o->vocabulary,
        .dtype = o->dtype,
        .wire = o->wire,
        .dropout = o->dropout,
        .overlap = o->overlap,
        .seed = o->seed,
        .tp = o->tp,
        .dp = o->dp,
    };
    fo_train_plan_give(o, &job->plan, &job->config);
    fo_status status = fo_model_config_check(&job->config);
    if (status == FO_OK)
        status = fo_model_config_split(&job->config, o->group.ranks);
    if (status == FO_OK && o->link_ratio > 0 && job->config.tp == 1 && job->config.dp > 1)
        status = fo_base_error(FO_INVALID,
                               "--link auto takes its speed from tensor-parallel layers, and --tp "
                               "is 1; give a rate: --link 2GB/s,5us");
    if (status == FO_OK && o->batch < job->config.dp)
        status = fo_base_error(FO_INVALID,
                               "--batch is %" PRId64 ", expected a sequence for each of the %d "
                               "replicas; choose a larger --batch or a smaller --dp",
                               o->batch, job->config.dp);
    return status;
}

static fo_status differs(const fo_train_job *job, const char *field, int64_t found, int64_t asked)
{
    return fo_base_error(FO_INVALID,
                         "%s was made with %s %" PRId64 ", this run asks for %" PRId64
                         "; use the same value to resume",
                         job->resume, field, found, asked);
}

static fo_status compare_sizes(const fo_train_job *job, const fo_train_state *s)
{
    const struct {
        const char *field;
        int64_t found, asked;
    } sizes[] = {
        {"layers (n_layer)", s->model.layers, job->config.layers},
        {"heads (n_head)", s->model.heads, job->config.heads},
        {"dim (n_embd)", s->model.dim, job->config.dim},
        {"context (n_positions)", s->model.context, job->config.context},
        {"vocabulary (vocab_size)", s->model.vocabulary, job->config.vocabulary},
        {"seed", (int64_t)s->model.seed, (int64_t)job->config.seed},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].found != sizes[i].asked)
            return differs(job, sizes[i].field, sizes[i].found, sizes[i].asked);
    return FO_OK;
}

static fo_status compare_data(const fo_train_job *job, const fo_train_state *s)
{
    if (s->format != job->format)
        return fo_base_error(
            FO_INVALID,
            "%s was made with data format '%s', this run asks for '%s'; use the same "
            "--format to resume",
            job->resume, fo_data_format_name(s->format), fo_data_format_name(job->format));
    const char *characters = fo_data_characters(job->data);
    if (characters && s->characters && strcmp(characters, s->characters))
        return fo_base_error(FO_INVALID,
                             "%s was made with another set of characters than %s has, so the same "
                             "numbers mean other letters; use the text it was trained on",
                             job->resume, job->options.data);
    if (s->step >= job->options.steps)
        return fo_base_error(FO_INVALID,
                             "%s is at step %" PRId64
                             " already, expected one before --steps %" PRId64
                             "; give more steps to go on",
                             job->resume, s->step, job->options.steps);
    return FO_OK;
}

/* Headers of both tensor files are looked at now; the tensors' shapes when ranks load them. */
static fo_status check_tensor_files(const fo_train_job *job)
{
    static const char *const names[] = {"model.safetensors", "optimizer.safetensors"};
    fo_status status = FO_OK;
    for (int i = 0; status == FO_OK && i < 2; i++) {
        char path[FO_TRAIN_PATH + 32];
        fo_tensor_file *file = NULL;
        snprintf(path, sizeof path, "%s/%s", job->resume, names[i]);
        status = fo_checkpoint_open(path, &file);
        if (status == FO_OK)
            fo_checkpoint_close(file);
    }
    return status;
}

/* Finds the checkpoint to go on from and reads what it is. */
static fo_status find_resume(fo_train_job *job, fo_train_state *state)
{
    fo_status status =
        fo_checkpoint_directory_latest(job->options.resume, job->resume, sizeof job->resume);
    if (status == FO_OK)
        status = fo_train_state_read(job->resume, state);
    if (status == FO_OK)
        job->done = state->step;
    return status;
}

static fo_status check_resume(const fo_train_job *job, const fo_train_state *state)
{
    fo_status status = compare_sizes(job, state);
    if (status == FO_OK)
        status = compare_data(job, state);
    return status == FO_OK ? check_tensor_files(job) : status;
}

static fo_status open_log(fo_train_job *job)
{
    const fo_train_options *o = &job->options;
    if (!o->log || !fo_job_first())
        return FO_OK;
    job->log = fopen(o->log, job->done ? "ae" : "we");
    if (!job->log)
        return fo_base_error(FO_IO,
                             "the log %s can't be opened for writing (%s); use another --log",
                             o->log, strerror(errno));
    setvbuf(job->log, NULL, _IOLBF, 4096);
    return FO_OK;
}

/* All that changes what ranks compute or which collectives they call. Paths may differ from host to host. */
static void take_fingerprint(fo_train_job *job)
{
    const fo_train_options *o = &job->options;
    fo_train_fingerprint *f = &job->fingerprint;
    const struct {
        const char *name;
        int64_t value;
    } counts[] = {
        {"--layers", o->layers},
        {"--heads", o->heads},
        {"--dim", o->dim},
        {"--context", o->context},
        {"--vocabulary", o->vocabulary},
        {"--batch", o->batch},
        {"--accumulate", o->accumulate},
        {"--steps", o->steps},
        {"--warmup", o->warmup},
        {"--eval-every", o->eval_every},
        {"--eval-batches", o->eval_batches},
        {"--save-every", o->save_every},
        {"--tp", job->config.tp},
        {"--dp", job->config.dp},
    };
    const struct {
        const char *name;
        double value;
    } reals[] = {
        {"--lr", o->lr},           {"--min-lr", o->min_lr},        {"--clip", o->clip},
        {"--decay", o->decay},     {"--beta1", o->beta1},          {"--beta2", o->beta2},
        {"--dropout", o->dropout}, {"--link auto", o->link_ratio},
    };
    fo_train_fingerprint_begin(f, "train");
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        fo_train_fingerprint_count(f, counts[i].name, counts[i].value);
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        fo_train_fingerprint_real(f, reals[i].name, reals[i].value);
    fo_train_fingerprint_add(f, FO_TRAIN_OPTION, "--seed", "%" PRIu64, o->seed);
    fo_train_fingerprint_word(f, "--dtype", fo_dtype_name(o->dtype));
    fo_train_fingerprint_word(f, "--wire", fo_dtype_name(o->wire));
    fo_train_fingerprint_word(f, "--overlap", o->overlap ? o->overlap : "flash");
    fo_train_fingerprint_word(f, "--format", fo_data_format_name(job->format));
    fo_train_fingerprint_word(f, "--out", o->out ? "given" : NULL);
    fo_train_fingerprint_group(f, &o->group);
    if (o->plan)
        fo_train_fingerprint_file(f, "--plan", o->plan);
    fo_train_fingerprint_file(f, "--data", o->data);
    fo_train_fingerprint_count(f, "the step to resume after", job->done);
    static const char *const files[] = {"config.json", "model.safetensors",
                                        "optimizer.safetensors"};
    for (size_t i = 0; job->resume[0] && i < sizeof files / sizeof *files; i++) {
        char path[FO_TRAIN_PATH + 32], name[64];
        snprintf(path, sizeof path, "%s/%s", job->resume, files[i]);
        snprintf(name, sizeof name, "%s of --resume", files[i]);
        fo_train_fingerprint_file(f, name, path);
    }
}

static fo_status open_all(fo_train_job *job)
{
    const fo_train_options *o = &job->options;
    fo_train_state resumed = {0};
    fo_status status = fo_train_options_check(o);
    if (status == FO_OK)
        status = fo_train_plan_take(&job->options, &job->plan);
    if (status == FO_OK)
        status = open_data(job);
    if (status == FO_OK && o->resume)
        status = find_resume(job, &resumed);
    if (status == FO_OK)
        status = check_vocabulary(job, o->resume ? &resumed : NULL);
    if (status == FO_OK)
        status = check_config(job);
    if (status == FO_OK && o->resume)
        status = check_resume(job, &resumed);
    if (status == FO_OK)
        status = check_out(o);
    if (status == FO_OK)
        status = open_log(job);
    if (status == FO_OK)
        take_fingerprint(job);
    fo_train_state_clear(&resumed);
    return status;
}

fo_status fo_train_job_open(const fo_train_options *options, fo_train_job *job)
{
    *job = (fo_train_job){.options = *options};
    if (!options->quiet && fo_job_first())
        job->progress = options->progress ? options->progress : stdout;
    fo_status status = open_all(job);
    if (status != FO_OK)
        fo_train_job_close(job);
    return status;
}

void fo_train_job_close(fo_train_job *job)
{
    if (job->data)
        fo_data_close(job->data);
    if (job->log)
        fclose(job->log);
    job->data = NULL;
    job->log = NULL;
}
