/* Dropout masks: the same for every number of ranks and replicas. */
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
    const fo_model *m = model;
    fo_run run;
    if (!fo_model_dropout_active(m, step))
        return;
    for (int64_t at = 0; fo_model_rows_next(m, &at, &run);)
        m->kernel->dropout(x + run.row * m->config.dim,
                           (m->first_sequence + run.sequence) * m->config.context + run.position,
                           run.rows, m->config.dim, m->config.dropout,
                           fo_model_dropout_key(m->config.seed, step),
                           fo_model_dropout_stream(site, layer));
}
