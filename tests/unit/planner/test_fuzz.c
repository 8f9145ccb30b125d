/* A few thousand mutations of valid config.json files: never a crash, never sizes that can't be. */
#include "unit/data/scratch.h"

#include "fuzz/config_target.h"
#include "fuzz/mutate.h"

enum { MUTATIONS = 8000, ROOM = 1024 };

static const char *const configs[] = {
    "{\"model_type\":\"gpt2\",\"n_layer\":12,\"n_embd\":768,\"n_head\":12,\"n_inner\":null,"
    "\"vocab_size\":50257,\"n_positions\":1024,\"tie_word_embeddings\":true,\"dtype\":[{}]}",
    "{\"_name_or_path\":\"a\\u00e9\\\"b\",\"model_type\":\"qwen2\",\"hidden_size\":896,"
    "\"intermediate_size\":4864,\"max_position_embeddings\":4096,\"num_attention_heads\":14,"
    "\"num_hidden_layers\":24,\"num_key_value_heads\":2,\"head_dim\":64,\"attention_bias\":false,"
    "\"vocab_size\":151936,\"rope_theta\":1e6}",
};

/* The bytes lie at the end of memory of their own, so that a sanitizer sees a read beyond. */
static int run(const uint8_t *bytes, size_t size)
{
    uint8_t *exact = malloc(size ? size : 1);
    assert_non_null(exact);
    memcpy(exact, bytes, size);
    int read = fuzz_config(exact, size);
    free(exact);
    return read;
}

static void mutations(void **state)
{
    (void)state;
    for (uint64_t c = 0; c < sizeof configs / sizeof *configs; c++) {
        int read = 0;
        for (uint64_t i = 0; i < MUTATIONS; i++) {
            uint8_t bytes[ROOM];
            size_t size = strlen(configs[c]);
            memcpy(bytes, configs[c], size);
            if (i == 0)
                assert_true(run(bytes, size));
            read += run(bytes, mutate(c, i, bytes, size, sizeof bytes));
        }
        assert_true(read > 0 && read < MUTATIONS); /* both ways are reached */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(mutations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
