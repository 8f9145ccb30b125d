/* What a configuration may be, and what follows from it alone. */
#include <inttypes.h>

#include "base/error.h"
#include "flashoverlap/schedule.h"
#include "model/model.h"

enum { DIM_MAX = 1 << 20, LAYERS_MAX = 1 << 16 };

static fo_status check_sizes(const fo_model_config *c)
{
    const struct {
        const char *name;
        int64_t value, most;
    } sizes[] = {
        {"layers", c->layers, LAYERS_MAX},
        {"heads", c->heads, DIM_MAX},
        {"dim", c->dim, DIM_MAX},
        {"context", c->context, INT32_MAX},
        {"vocabulary", c->vocabulary, INT32_MAX},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].value < 1 || sizes[i].value > sizes[i].most)
            return fo_base_error(FO_INVALID,
                                 "model: %s is %" PRId64 ", expected 1 to %" PRId64
                                 "; the nearest is %" PRId64,
                                 sizes[i].name, sizes[i].value, sizes[i].most,
                                 sizes[i].value < 1 ? 1 : sizes[i].most);
    return FO_OK;
}

static fo_status check_heads(const fo_model_config *c)
{
    if (c->dim % c->heads == 0)
        return FO_OK;
    int64_t below = c->dim / c->heads * c->heads, nearest = below + c->heads;
    if (below > 0 && c->dim - below <= nearest - c->dim)
        nearest = below;
    return fo_base_error(FO_INVALID,
                         "model: dim is %" PRId64 ", expected a multiple of heads (%" PRId64
                         "); the nearest is %" PRId64,
                         c->dim, c->heads, nearest);
}

fo_status fo_model_config_check(const fo_model_config *config)
{
    fo_strategy strategy;
    fo_status status = check_sizes(config);
    if (status == FO_OK)
        status = check_heads(config);
    if (status != FO_OK)
        return status;
    if (config->dtype != FO_F32 && config->dtype != FO_BF16)
        return fo_base_error(FO_INVALID,
                             "model: the computation's type is %d, expected f32 or bf16",
                             (int)config->dtype);
    if (config->wire != FO_F32 && config->wire != FO_BF16)
        return fo_base_error(FO_INVALID, "model: the wire's type is %d, expected f32 or bf16",
                             (int)config->wire);
    if (!(config->dropout >= 0.0f && config->dropout < 1.0f))
        return fo_base_error(FO_INVALID, "model: dropout is %g, expected 0 or more and below 1",
                             (double)config->dropout);
    return fo_strategy_parse(config->overlap ? config->overlap : "flash", &strategy);
}

fo_status fo_model_config_split(fo_model_config *config, int ranks)
{
    int tp = config->tp, dp = config->dp;
    if (tp < 0 || dp < 0)
        return fo_base_error(
            FO_INVALID,
            "tp is %d and dp is %d, expected 1 or more each, or 0 for what the other "
            "leaves of %d ranks",
            tp, dp, ranks);
    if (!tp && !dp)
        dp = 1;
    int given = tp && dp ? 0 : tp + dp;
    if (given && ranks % given)
        return fo_base_error(FO_INVALID,
                             "--%s is %d, which does not divide the %d ranks, expected one of "
                             "their divisors",
                             tp ? "tp" : "dp", given, ranks);
    config->tp = tp ? tp : ranks / dp;
    config->dp = dp ? dp : ranks / tp;
    if ((int64_t)config->tp * config->dp == ranks)
        return FO_OK;
    fo_base_error(FO_INVALID,
                  "tp %d times dp %d is %" PRId64
                  ", expected the number of ranks, %d; leave one of "
                  "the two out",
                  tp, dp, (int64_t)tp * dp, ranks);
    config->tp = tp;
    config->dp = dp;
    return FO_INVALID;
}

double fo_model_flops_per_token(const fo_model_config *config)
{
    double d = (double)config->dim, layers = (double)config->layers;
    double layer = 12.0 * d * d + 13.0 * d; /* matrices; biases (9 d) and norms (4 d) */
    double parameters = layers * layer + 2.0 * d + (double)config->vocabulary * d;
    return 6.0 * parameters + 12.0 * layers * d * (double)config->context;
}
