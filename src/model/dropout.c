/* Dropout masks: the same for every number of ranks. */
#include "base/random.h"
#include "model/state.h"

static uint64_t derive(uint64_t key, const char *purpose, int64_t number)
{
    uint32_t word[4];
    fo_base_random_block(key, fo_base_random_stream(purpose), (uint64_t)number, word);
    return (uint64_t)word[1] << 32 | word[0];
}

uint64_t fo_model_dropout_key(uint64_t seed, int64_t step)
{
    return derive(seed, "dropout", step);
}

uint64_t fo_model_dropout_stream(fo_model_dropout_site site, int64_t layer)
{
    return site == FO_MODEL_DROPOUT_EMBED ? 0 : (uint64_t)(2 * layer) + (uint64_t)site;
}

/* A key of its own: the streams of attention are sequences and heads. */
uint64_t fo_model_dropout_attention_key(uint64_t seed, int64_t step, int64_t layer)
{
    return derive(fo_model_dropout_key(seed, step), "attention", layer);
}

bool fo_model_dropout_active(const fo_model *model, int64_t step)
{
    return model->config.dropout > 0.0f && step >= 0;
}

void fo_model_dropout_apply(const fo_model *model, float *x, fo_model_dropout_site site,
                            int64_t layer, int64_t step)
{
    if (fo_model_dropout_active(model, step))
        model->kernel->dropout(x, model->shard_row, model->shard_rows, model->config.dim,
                               model->config.dropout,
                               fo_model_dropout_key(model->config.seed, step),
                               fo_model_dropout_stream(site, layer));
}
