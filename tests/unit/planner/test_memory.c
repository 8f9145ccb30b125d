/* Bytes of a rank: against the figures of arXiv 2205.05198, and counted one by one. */
#include <math.h>

#include "planner/memory.h"
#include "planner/model.h"
#include "unit/data/scratch.h"

static const double gib = 1024.0 * 1024 * 1024;

static void make(const char *model, int tp, int pp, int interleave, int64_t batch,
                 int64_t micro_batch, bool sequence_parallel, fo_recompute recompute,
                 fo_planner_split *split)
{
    fo_step_options o = {.tp = tp,
                         .dp = 1,
                         .pp = pp,
                         .interleave = interleave,
                         .batch = batch,
                         .micro_batch = micro_batch,
                         .sequence_parallel = sequence_parallel,
                         .recompute = recompute,
                         .dtype = FO_BF16,
                         .wire = FO_BF16,
                         .optimizer = true,
                         .slow_rank = -1};
    expect_ok(fo_model_sizes_read(model, &o.model));
    expect_ok(fo_planner_split_make(&o, 8, split));
}

static void near(double found, double expected, double within, const char *what)
{
    if (!(fabs(found - expected) <= within * expected))
        fail_msg("%s: %.6g, expected %.6g", what, found, expected);
}

/* Figure 1: what the first stage holds, GiB a rank, of activations without and with sequence parallelism and selective
 * recomputation, and of weights, gradients and optimizer; figure 7, read off: activations in percent of those without. */
static const struct {
    const char *model;
    int pp, interleave;
    int64_t batch, micro_batch;
    double none, both, rest;
    double percent[4]; /* sequence parallel, selective, both, full */
} published[] = {
    {"megatron-22b", 1, 1, 4, 4, 59.25, 9.5625, 45.5625, {66.84, 49.42, 16.18, 7.64}},
    {"megatron-175b", 8, 3, 64, 1, 66.84375, 12.3515625, 45.5625, {62.04, 56.53, 18.49, 8.71}},
    {"megatron-530b",
     35,
     3,
     280,
     1,
     114.0234375,
     23.076171875,
     31.640625,
     {58.31, 62.04, 20.27, 9.42}},
    {"megatron-1t", 64, 1, 512, 1, 131.25, 26.5625, 32.958984375, {58.31, 62.04, 20.27, 9.42}},
};

static void as_published(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        fo_planner_split s, q;
        make(published[i].model, 8, published[i].pp, published[i].interleave, published[i].batch,
             published[i].micro_batch, false, FO_RECOMPUTE_NONE, &s);
        make(published[i].model, 8, published[i].pp, published[i].interleave, published[i].batch,
             published[i].micro_batch, true, FO_RECOMPUTE_NONE, &q);
        double held = fo_planner_memory_layers_in_flight(&s, 0);
        double none = fo_planner_memory_layer(&s, FO_RECOMPUTE_NONE);
        double both = fo_planner_memory_layer(&q, FO_RECOMPUTE_SELECTIVE);
        near(held * none / gib, published[i].none, 1e-3, published[i].model);
        near(held * both / gib, published[i].both, 1e-3, published[i].model);
        double layers = (double)fo_planner_split_stage_layers(&s, published[i].pp > 2 ? 1 : 0);
        near(18 * layers * fo_planner_layer_weights(&s.options.model) / 8 / gib, published[i].rest,
             2e-3, "weights, gradients, optimizer");
        const double found[] = {fo_planner_memory_layer(&q, FO_RECOMPUTE_NONE),
                                fo_planner_memory_layer(&s, FO_RECOMPUTE_SELECTIVE), both,
                                fo_planner_memory_layer(&s, FO_RECOMPUTE_FULL)};
        for (int f = 0; f < 4; f++)
            near(100 * found[f] / none, published[i].percent[f], 2e-2, published[i].model);
    }
}

/* s b h (34 + 5 a s / h) without parallelism, and its variants: table 2 of the paper. */
static void formulas(void **state)
{
    (void)state;
    for (int t = 1; t <= 16; t *= 2) {
        fo_planner_split s, q;
        make("gpt3-175b", t, 1, 1, 2, 2, false, FO_RECOMPUTE_NONE, &s);
        make("gpt3-175b", t, 1, 1, 2, 2, true, FO_RECOMPUTE_NONE, &q);
        double sbh = 2048.0 * 2 * 12288, score = 5.0 * 96 * 2048 / 12288;
        near(fo_planner_memory_layer(&s, FO_RECOMPUTE_NONE), sbh * (10 + 24.0 / t + score / t),
             1e-9, "tensor parallel");
        near(fo_planner_memory_layer(&q, FO_RECOMPUTE_NONE), sbh / t * (34 + score), 1e-9,
             "sequence parallel");
        near(fo_planner_memory_layer(&s, FO_RECOMPUTE_SELECTIVE), sbh * (10 + 24.0 / t), 1e-9,
             "selective");
        near(fo_planner_memory_layer(&q, FO_RECOMPUTE_SELECTIVE), sbh / t * 34, 1e-9, "both");
        near(fo_planner_memory_layer(&s, FO_RECOMPUTE_FULL), sbh * 2, 1e-9, "full");
        near(fo_planner_memory_layer(&q, FO_RECOMPUTE_FULL), sbh * 2 / t, 1e-9, "full, sharded");
    }
}

/* A gated model with grouped heads, tensor by tensor. */
static void tensor_by_tensor(void **state)
{
    (void)state;
    fo_planner_split s;
    make("llama3-70b", 4, 1, 1, 1, 1, true, FO_RECOMPUTE_NONE, &s);
    s.options.flash_attention = true;
    double rows = 8192, own = rows / 4, bytes = 0;
    bytes += 2 * own * 8192 * 4;                         /* two norms, qkv, gate and up */
    bytes += 2 * rows * (16 + 2 * 2) * 128;              /* queries, keys, values */
    bytes += 4 * rows * 16;                              /* one number a query */
    bytes += 2 * rows * 16 * 128;                        /* what is projected */
    bytes += 2 * rows * (7168 + 7168) + 2 * rows * 7168; /* gate, up, their product */
    near(fo_planner_memory_layer(&s, FO_RECOMPUTE_NONE), bytes, 1e-12, "llama3-70b");
    near(fo_planner_memory_layer(&s, FO_RECOMPUTE_SELECTIVE), bytes, 1e-12, "nothing left to drop");
}

/* The schedule run step by step: how many forward passes are open at once. */
static double most_open(const fo_planner_split *s, int stage)
{
    int pp = s->options.pp, chunks = s->options.interleave;
    int64_t units = s->micro_batches * chunks, forward = 0, backward = 0, open = 0;
    int64_t warm = chunks == 1 ? pp - stage - 1 : 2 * (pp - stage - 1) + (int64_t)(chunks - 1) * pp;
    while (backward < units) {
        if (forward < units && forward - backward <= warm)
            forward++;
        else
            backward++;
        open = forward - backward > open ? forward - backward : open;
    }
    return (double)open * (double)fo_planner_split_stage_layers(s, stage) / chunks;
}

static void in_flight(void **state)
{
    (void)state;
    for (int pp = 1; pp <= 12; pp += pp < 4 ? 1 : 4)
        for (int chunks = 1; chunks <= (pp > 1 ? 4 : 1); chunks++)
            for (int64_t m = 1; m <= 3; m++) {
                fo_planner_split s;
                make("megatron-175b", 8, pp, chunks, m * pp, 1, true, FO_RECOMPUTE_NONE, &s);
                for (int stage = 0; stage < pp; stage++)
                    near(fo_planner_memory_layers_in_flight(&s, stage), most_open(&s, stage), 1e-12,
                         "layers in flight");
            }
}

static void whole(void **state)
{
    (void)state;
    fo_planner_split s;
    make("gpt2", 1, 1, 1, 8, 8, true, FO_RECOMPUTE_FULL, &s);
    fo_planner_memory m = fo_planner_memory_most(&s);
    double parameters = 124439808;
    near(m.weights, 2 * parameters, 1e-12, "weights");
    near(m.gradients, 4 * parameters, 1e-12, "gradients");
    near(m.optimizer, 12 * parameters, 1e-12, "optimizer");
    double sbh = 8.0 * 1024 * 768, score = 5.0 * 12 * 1024 / 768;
    double ends = sbh + 4 * sbh + 4.0 * 8 * 1024 * 50257;
    near(m.activations, 12 * 2 * sbh + (32 + score) * sbh + ends, 1e-12, "activations");

    s.options.dp = 4; /* as a split of four replicas has it */
    s.options.sharded_optimizer = true;
    near(fo_planner_memory_most(&s).optimizer, 3 * parameters, 1e-12, "sharded");
    s.options.dtype = FO_F32;
    s.element = 4;
    near(fo_planner_memory_most(&s).weights, 4 * parameters, 1e-12, "float32 weights");
    near(fo_planner_memory_most(&s).optimizer, 2 * parameters, 1e-12, "no other copy");
    s.options.optimizer = false;
    assert_true(fo_planner_memory_most(&s).optimizer == 0);
}

/* All ranks' parameters are the model's, but for what every rank has whole and tables that are there twice. */
static void shares(void **state)
{
    (void)state;
    const char *models[] = {"gpt2-xl", "llama3-405b", "qwen2.5-1.5b"};
    for (size_t i = 0; i < 3; i++)
        for (int pp = 1; pp <= 8; pp++) {
            fo_planner_split s;
            int64_t layers = 0;
            double sum = 0;
            make(models[i], 1, pp, 1, pp, 1, true, FO_RECOMPUTE_NONE, &s);
            for (int stage = 0; stage < pp; stage++) {
                sum += fo_planner_split_parameters(&s, stage);
                layers += fo_planner_split_stage_layers(&s, stage);
            }
            const fo_model_sizes *m = &s.options.model;
            double twice = m->tied && pp > 1 ? (double)m->vocabulary * (double)m->dim : 0;
            assert_int_equal(layers, m->layers);
            near(sum, fo_model_sizes_parameters(m) + twice, 1e-12, models[i]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_published),
        cmocka_unit_test(formulas),
        cmocka_unit_test(tensor_by_tensor),
        cmocka_unit_test(in_flight),
        cmocka_unit_test(whole),
        cmocka_unit_test(shares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
