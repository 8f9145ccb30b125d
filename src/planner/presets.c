/* Models that have names. Sources: gpt2* openai-community's config.json; gpt3-175b arXiv 2005.14165, table 2.1;
 * megatron-* arXiv 2205.05198 (vocabulary 51200, as padded there; 175b is GPT-3 with that vocabulary); llama2-* arXiv
 * 2307.09288, llama3-* arXiv 2407.21783, table 3, and meta-llama's config.json; mistral-7b arXiv 2310.06825;
 * qwen2.5-* arXiv 2412.15115 and Qwen's config.json. Contexts are those of (most of) pre-training, not the longer
 * ones that were added later. */
#include <string.h>

#include "planner/model.h"

/* name, layers, dim, heads, kv_heads, head_dim, ffn, vocabulary, context, gated, tied, positions, biases */
static const fo_model_sizes presets[] = {
    /* clang-format off */
    {"gpt2", 12, 768, 12, 12, 64, 3072, 50257, 1024, false, true, true, true},
    {"gpt2-medium", 24, 1024, 16, 16, 64, 4096, 50257, 1024, false, true, true, true},
    {"gpt2-large", 36, 1280, 20, 20, 64, 5120, 50257, 1024, false, true, true, true},
    {"gpt2-xl", 48, 1600, 25, 25, 64, 6400, 50257, 1024, false, true, true, true},
    {"gpt3-175b", 96, 12288, 96, 96, 128, 49152, 50257, 2048, false, true, true, true},
    {"megatron-22b", 48, 6144, 64, 64, 96, 24576, 51200, 2048, false, true, true, true},
    {"megatron-175b", 96, 12288, 96, 96, 128, 49152, 51200, 2048, false, true, true, true},
    {"megatron-530b", 105, 20480, 128, 128, 160, 81920, 51200, 2048, false, true, true, true},
    {"megatron-1t", 128, 25600, 160, 160, 160, 102400, 51200, 2048, false, true, true, true},
    {"llama2-7b", 32, 4096, 32, 32, 128, 11008, 32000, 4096, true, false, false, false},
    {"llama2-13b", 40, 5120, 40, 40, 128, 13824, 32000, 4096, true, false, false, false},
    {"llama2-70b", 80, 8192, 64, 8, 128, 28672, 32000, 4096, true, false, false, false},
    {"llama3-8b", 32, 4096, 32, 8, 128, 14336, 128256, 8192, true, false, false, false},
    {"llama3-70b", 80, 8192, 64, 8, 128, 28672, 128256, 8192, true, false, false, false},
    {"llama3-405b", 126, 16384, 128, 8, 128, 53248, 128256, 8192, true, false, false, false},
    {"mistral-7b", 32, 4096, 32, 8, 128, 14336, 32000, 8192, true, false, false, false},
    {"qwen2.5-0.5b", 24, 896, 14, 2, 64, 4864, 151936, 4096, true, true, false, true},
    {"qwen2.5-1.5b", 28, 1536, 12, 2, 128, 8960, 151936, 4096, true, true, false, true},
    {"qwen2.5-7b", 28, 3584, 28, 4, 128, 18944, 152064, 4096, true, false, false, true},
    {"qwen2.5-14b", 48, 5120, 40, 8, 128, 13824, 152064, 4096, true, false, false, true},
    {"qwen2.5-32b", 64, 5120, 40, 8, 128, 27648, 152064, 4096, true, false, false, true},
    {"qwen2.5-72b", 80, 8192, 64, 8, 128, 29568, 152064, 4096, true, false, false, true},
    /* clang-format on */
};
enum { PRESETS = sizeof presets / sizeof *presets };

const fo_model_sizes *fo_planner_preset(const char *name)
{
    for (int i = 0; i < PRESETS; i++)
        if (strcmp(presets[i].name, name) == 0)
            return &presets[i];
    return NULL;
}

/* A list that is never written, so that any thread may ask for it. */
const char *const *fo_model_sizes_presets(void)
{
    _Static_assert(PRESETS == 22, "a line below for every preset");
    /* clang-format off */
    static const char *const names[PRESETS + 1] = {
        presets[0].name, presets[1].name, presets[2].name, presets[3].name, presets[4].name, presets[5].name,
        presets[6].name, presets[7].name, presets[8].name, presets[9].name, presets[10].name, presets[11].name,
        presets[12].name, presets[13].name, presets[14].name, presets[15].name, presets[16].name,
        presets[17].name, presets[18].name, presets[19].name, presets[20].name, presets[21].name, NULL};
    /* clang-format on */
    return names;
}
