/* Training as a plan file says. */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "train/train.h"

static fo_status check_sizes(const fo_train_options *o, const fo_plan_file *file)
{
    int ranks = o->group.ranks;
    const struct {
        const char *option;
        int64_t given, planned;
    } sizes[] = {
        {"layers", o->layers, file->layers},
        {"dim", o->dim, file->dim},
        {"heads", o->heads, file->heads},
        {"context", o->context, file->context},
        {"ranks", ranks, file->ranks},
        {"tp", o->tp ? o->tp : file->tp, file->tp},
        {"dp", o->dp ? o->dp : file->dp, file->dp},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].given != sizes[i].planned)
            return fo_base_error(FO_INVALID,
                                 "--plan %s was made for %s %" PRId64 ", this run has %" PRId64
                                 "; expected the same: --%s %" PRId64 ", or another plan",
                                 o->plan, sizes[i].option, sizes[i].planned, sizes[i].given,
                                 sizes[i].option, sizes[i].planned);
    return FO_OK;
}

/* What passes at a time, of all replicas, and how often a step: either changes what was planned. */
static fo_status check_batch(const fo_train_options *o, const fo_plan_file *file)
{
    int64_t batch = file->micro_batch * file->dp; /* the reader saw that it divides the plan's */
    int64_t accumulate = file->batch / batch;
    if (o->batch == batch && o->accumulate == accumulate)
        return FO_OK;
    return fo_base_error(FO_INVALID,
                         "--plan %s was made for batch %" PRId64 ", micro_batch %" PRId64
                         " and dp %d, this run has --batch %" PRId64 " --accumulate %" PRId64
                         "; expected the same: --batch %" PRId64 " --accumulate %" PRId64
                         ", or another plan",
                         o->plan, file->batch, file->micro_batch, file->dp, o->batch, o->accumulate,
                         batch, accumulate);
}

static fo_status other_type(const fo_train_options *o, const char *option, fo_dtype planned,
                            fo_dtype given)
{
    return fo_base_error(FO_INVALID,
                         "--plan %s was made for %s %s, this run has %s; expected the same: --%s "
                         "%s, or another plan",
                         o->plan, option, fo_dtype_name(planned), fo_dtype_name(given), option,
                         fo_dtype_name(planned));
}

static fo_status check_words(const fo_train_options *o, const fo_plan_file *file)
{
    if (file->pp != 1)
        return fo_base_error(FO_INVALID,
                             "--plan %s has %d pipeline stages, expected 1: training splits models "
                             "over tp and dp; plan again with --pp 1",
                             o->plan, file->pp);
    if (file->recompute != FO_RECOMPUTE_NONE)
        return fo_base_error(
            FO_INVALID,
            "--plan %s recomputes activations, expected none: training keeps them; "
            "plan again with --recompute none",
            o->plan);
    if (file->tp > 1 && !file->sequence_parallel)
        return fo_base_error(
            FO_INVALID,
            "--plan %s: sequence_parallel is false, expected true: training "
            "shards activations over tp; plan again without --no-sequence-parallel",
            o->plan);
    if (!file->flash_attention)
        return fo_base_error(FO_INVALID,
                             "--plan %s: flash_attention is false, expected true: training never "
                             "writes scores to memory; plan again without --written-scores",
                             o->plan);
    if (file->dtype != o->dtype)
        return other_type(o, "dtype", file->dtype, o->dtype);
    return file->wire == o->wire ? FO_OK : other_type(o, "wire", file->wire, o->wire);
}

static fo_status check_strategies(const fo_train_options *o, const fo_plan_file *file)
{
    for (int i = 0; i < file->operation_count; i++) {
        char sentence[512];
        if (!fo_model_plans_known(file->operations[i].name))
            return fo_base_error(
                FO_INVALID,
                "--plan %s: operations[%d].name is \"%s\", which is no operation of "
                "the model that is trained; expected e.g. \"qkv forward\"",
                o->plan, i, file->operations[i].name);
        if (fo_train_strategy_check(file->operations[i].overlap) == FO_OK)
            continue;
        snprintf(sentence, sizeof sentence, "%s", fo_last_error());
        return fo_base_error(FO_INVALID, "--plan %s: operations[%d].overlap: %s", o->plan, i,
                             sentence);
    }
    return FO_OK;
}

/* What the file does not name would overlap as nobody planned. A single rank communicates nothing. */
static fo_status check_complete(const fo_train_options *o, const fo_plan_file *file)
{
    static const char *const needed[] = {"embedding forward",  "qkv forward",
                                         "attention forward",  "mlp forward",
                                         "head forward",       "head backward",
                                         "mlp down backward",  "mlp up backward",
                                         "attention backward", "qkv backward",
                                         "embedding backward"};
    for (size_t i = 0; file->tp > 1 && i < sizeof needed / sizeof *needed; i++)
        if (!fo_plan_file_overlap(file, needed[i]))
            return fo_base_error(
                FO_INVALID,
                "--plan %s: operations names no \"%s\", expected every operation of "
                "the model that is trained, e.g. {\"name\": \"%s\", \"overlap\": "
                "\"flash\", \"predicted_s\": 0.001}; plan again",
                o->plan, needed[i], needed[i]);
    return FO_OK;
}

fo_status fo_train_plan_take(fo_train_options *options, fo_train_plan *plan)
{
    fo_plan_file *file = &plan->file;
    if (!options->plan)
        return FO_OK;
    fo_status status = fo_plan_file_read(options->plan, file);
    if (status == FO_OK)
        status = check_words(options, file);
    if (status == FO_OK)
        status = check_sizes(options, file);
    if (status == FO_OK)
        status = check_batch(options, file);
    if (status == FO_OK)
        status = check_strategies(options, file);
    if (status == FO_OK)
        status = check_complete(options, file);
    if (status != FO_OK)
        return status;
    options->tp = file->tp;
    options->dp = file->dp;
    return FO_OK;
}

void fo_train_plan_give(const fo_train_options *options, fo_train_plan *plan,
                        fo_model_config *config)
{
    if (!options->plan)
        return;
    config->overlaps = plan->overlaps;
    config->overlap_count = plan->file.operation_count;
    for (int i = 0; i < config->overlap_count; i++)
        plan->overlaps[i] =
            (fo_model_overlap){plan->file.operations[i].name, plan->file.operations[i].overlap};
}
