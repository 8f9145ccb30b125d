/* Loss and every gradient against the float64 reference, and the reference against finite
 * differences. */
#include "rig.h"

/* ---- the reference itself -------------------------------------------------------------------- */

static double alternating(void *arg, gpt2_f64_site site, int64_t layer, int64_t i, int64_t j)
{
    (void)arg;
    return ((int64_t)site + 3 * layer + 5 * i + 7 * j) % 4 ? 4.0 / 3.0 : 0.0;
}

static void check_tensor(gpt2_f64 *g, gpt2_f64_tensor *t, const int32_t *inputs,
                         const int32_t *targets)
{
    double largest = 0, h = 1e-5;
    for (int64_t i = 0; i < t->rows * t->cols; i++)
        largest = fabs(t->grad[i]) > largest ? fabs(t->grad[i]) : largest;
    assert_true(largest > 1e-6);
    for (int64_t i = 0; i < t->rows * t->cols; i++) {
        double value = t->value[i];
        t->value[i] = value + h;
        double above = gpt2_f64_forward(g, inputs, targets);
        t->value[i] = value - h;
        double below = gpt2_f64_forward(g, inputs, targets);
        t->value[i] = value;
        double slope = (above - below) / (2 * h);
        if (!(fabs(slope - t->grad[i]) <= 1e-6 * largest + 1e-9))
            fail_msg("%s[%lld]: gradient %.9g, finite difference %.9g", t->name, (long long)i,
                     t->grad[i], slope);
    }
}

static void finite_differences(gpt2_f64_keep *keep)
{
    static const int32_t inputs[] = {0, 3, 4, 3, 1, 2, 2, 0}, targets[] = {3, 4, 3, 0, 2, 2, 0, 4};
    gpt2_f64 *g = gpt2_f64_new(2, 2, 6, 4, 5, 2);
    for (int i = 0; i < g->count; i++)
        for (int64_t at = 0; at < g->tensors[i].rows * g->tensors[i].cols; at++)
            g->tensors[i].value[at] = 2 * (double)rig_value(g->tensors[i].name, at);
    g->keep = keep;
    gpt2_f64_forward(g, inputs, targets);
    gpt2_f64_backward(g, inputs, targets, 1);
    for (int i = 0; i < g->count; i++)
        check_tensor(g, &g->tensors[i], inputs, targets);
    gpt2_f64_free(g);
}

static void reference_agrees_with_finite_differences(void **state)
{
    (void)state;
    finite_differences(NULL);
    finite_differences(alternating);
}

/* ---- the model beside it --------------------------------------------------------------------- */

typedef struct trial {
    fo_model_config config;
    int64_t batch;
    int64_t dropout_step;
    int micro;         /* batches accumulated */
    double loss, grad; /* tolerances, relative: to the loss, to the largest of the tensor */
} trial;

static fo_status micro_step(rig *r, const trial *t, int number)
{
    float scale = 1.0f / (float)t->micro;
    double loss;
    rig_tokens(r, number);
    TRY(fo_model_forward(r->model, r->inputs, r->targets, t->dropout_step, &loss));
    TRY(fo_model_backward(r->model, r->inputs, r->targets, t->dropout_step, scale,
                          number + 1 == t->micro));
    TRY(rig_loss(r, loss, &loss));
    double wanted = gpt2_f64_forward(r->reference, r->inputs, r->targets);
    gpt2_f64_backward(r->reference, r->inputs, r->targets, (double)scale);
    return rig_near(r, "loss", loss, wanted, t->loss);
}

static fo_status try_it(rig *r, const trial *t)
{
    double norm;
    fo_model_zero_gradients(r->model);
    for (int i = 0; i < t->micro; i++)
        TRY(micro_step(r, t, i));
    TRY(fo_model_reduce_gradients(r->model, &norm));
    TRY(rig_share_gradients(r));
    TRY(rig_compare_gradients(r, t->grad));
    return rig_near(r, "norm", norm, rig_reference_norm(r), t->grad);
}

static fo_status beside(fo_group *group, void *arg)
{
    const trial *t = arg;
    rig r;
    fo_status status = rig_open(&r, group, &t->config, t->batch, t->dropout_step);
    if (status == FO_OK) {
        rig_refer(&r);
        status = try_it(&r, t);
    }
    rig_close(&r);
    return status;
}

/* Nothing divides by 3: heads 2 2 1, hidden 27 27 26, vocabulary 10 10 9, rows 5 5 4. */
static const trial uneven = {
    .config = {.layers = 2, .heads = 5, .dim = 20, .context = 7, .vocabulary = 29, .seed = 3},
    .batch = 2,
    .dropout_step = -1,
    .micro = 1,
    .loss = 1e-6,
    .grad = 2e-5,
};
/* More rows than a tile and a block of them, shards within a sequence, fewer heads than 3 ranks. */
static const trial tall = {
    .config = {.layers = 1, .heads = 2, .dim = 14, .context = 90, .vocabulary = 31, .seed = 3},
    .batch = 10,
    .dropout_step = -1,
    .micro = 1,
    .loss = 1e-6,
    .grad = 2e-5,
};

static void everywhere(trial t, const char *kernel)
{
    rig_run("self", kernel, 1, beside, &t);
    rig_run("self", kernel, 3, beside, &t);
    rig_run("shm", kernel, 3, beside, &t);
}

static void float32_reference_kernel(void **state)
{
    (void)state;
    everywhere(uneven, "ref");
    everywhere(tall, "ref");
}

static void float32_onednn(void **state)
{
    (void)state;
    everywhere(uneven, "onednn");
    everywhere(tall, "onednn");
}

static void bfloat16(void **state)
{
    (void)state;
    trial trials[] = {uneven, tall};
    for (int i = 0; i < 2; i++) {
        trial *t = &trials[i];
        t->config.dtype = t->config.wire = FO_BF16;
        t->loss = 3e-3;
        t->grad = 6e-2;
        everywhere(*t, "onednn");
        t->config.wire = FO_F32;
        rig_run("self", "ref", 3, beside, t);
        t->config.dtype = FO_F32; /* a narrow wire alone */
        t->config.wire = FO_BF16;
        rig_run("shm", "onednn", 3, beside, t);
    }
}

static void with_dropout(void **state)
{
    (void)state;
    trial t = uneven;
    t.config.dropout = 0.25f;
    t.dropout_step = 11;
    everywhere(t, "ref");
    everywhere(t, "onednn");
    t = tall;
    t.config.dropout = 0.1f;
    t.dropout_step = 0;
    everywhere(t, "onednn");
}

static void accumulated(void **state)
{
    (void)state;
    trial t = uneven;
    t.micro = 3;
    everywhere(t, "onednn");
}

/* Fewer rows, heads, hidden features and vocabulary entries than ranks. */
static void empty_shards(void **state)
{
    (void)state;
    trial t = uneven;
    t.config = (fo_model_config){.layers = 2, .heads = 1, .dim = 1, .context = 1, .vocabulary = 2};
    t.batch = 2;
    /* one feature: every LayerNorm gives its bias, so that most gradients are 0 */
    rig_run("self", "ref", 1, beside, &t);
    t.config = (fo_model_config){.layers = 2, .heads = 1, .dim = 3, .context = 2, .vocabulary = 2};
    t.batch = 1;
    for (int ranks = 2; ranks <= 5; ranks++) {
        rig_run("self", "ref", ranks, beside, &t);
        rig_run("shm", "onednn", ranks, beside, &t);
    }
    t.config.dtype = FO_BF16;
    t.loss = 2e-2;
    t.grad = 6e-2;
    rig_run("shm", "onednn", 4, beside, &t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_agrees_with_finite_differences),
        cmocka_unit_test(float32_reference_kernel),
        cmocka_unit_test(float32_onednn),
        cmocka_unit_test(bfloat16),
        cmocka_unit_test(with_dropout),
        cmocka_unit_test(accumulated),
        cmocka_unit_test(empty_shards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
