/* Learning rate, clipping and AdamW against float64. */
#include "tiny.h"

#include <math.h>

#include "base/random.h"
#include "base/quantile.h"

static fo_train_options schedule(void)
{
    fo_train_options o;
    fo_train_defaults(&o);
    o.lr = 0.5f;
    o.min_lr = 0.125f;
    o.warmup = 4;
    o.steps = 24;
    return o;
}

static void warms_up_linearly_and_falls_as_a_cosine(void **state)
{
    (void)state;
    fo_train_options o = schedule();
    for (int step = 1; step <= 4; step++)
        assert_true(fabs(fo_train_optimizer_lr(&o, step) - 0.5 * step / 4) < 1e-12);
    assert_true(fabs(fo_train_optimizer_lr(&o, 14) - (0.125 + 0.5) / 2) < 1e-12);
    assert_true(fabs(fo_train_optimizer_lr(&o, 24) - 0.125) < 1e-12);
    assert_true(fabs(fo_train_optimizer_lr(&o, 30) - 0.125) < 1e-12);
    for (int step = 5; step <= 24; step++)
        assert_true(fo_train_optimizer_lr(&o, step) < fo_train_optimizer_lr(&o, step - 1));
}

static void a_schedule_without_warm_up_or_without_fall(void **state)
{
    (void)state;
    fo_train_options o = schedule();
    o.warmup = 0;
    assert_true(fo_train_optimizer_lr(&o, 1) > 0.49 && fo_train_optimizer_lr(&o, 1) < 0.5);
    o.warmup = 100; /* longer than the run */
    assert_true(fabs(fo_train_optimizer_lr(&o, 24) - 0.5 * 24 / 100) < 1e-12);
    o.warmup = 24;
    assert_true(fabs(fo_train_optimizer_lr(&o, 24) - 0.5) < 1e-12);
}

static void clips_only_what_is_longer(void **state)
{
    (void)state;
    assert_true(fo_train_optimizer_scale(1, 0.5) == 1);
    assert_true(fo_train_optimizer_scale(1, 1) == 1);
    assert_true(fo_train_optimizer_scale(1, 4) == 0.25);
    assert_true(fo_train_optimizer_scale(0, 4) == 1);
    assert_true(fo_train_optimizer_scale(1, 0) == 1);
}

enum { COUNT = 37, STEPS = 9 };

/* One scalar in float64, the textbook's way. */
static void reference(const fo_train_options *o, int step, double scale, bool decay, double grad,
                      double *w, double *m, double *v)
{
    double lr = fo_train_optimizer_lr(o, step), g = grad * scale, b1 = o->beta1, b2 = o->beta2;
    *w -= lr * (decay ? (double)o->decay : 0.0) * *w;
    *m = b1 * *m + (1 - b1) * g;
    *v = b2 * *v + (1 - b2) * g * g;
    *w -= lr * (*m / (1 - pow(b1, step))) / (sqrt(*v / (1 - pow(b2, step))) + 1e-8);
}

static void check_adamw(const fo_kernel *kernel, bool decay)
{
    fo_train_options o = schedule();
    float w[COUNT], g[COUNT], m[COUNT] = {0}, v[COUNT] = {0};
    double rw[COUNT], rm[COUNT] = {0}, rv[COUNT] = {0};
    fo_parameter p = {.decay = decay};
    fo_model_piece piece = {.parameter = &p, .value = w, .grad = g, .m = m, .v = v, .count = COUNT};
    for (int i = 0; i < COUNT; i++)
        rw[i] = w[i] = fo_base_random_normal(1, 0, (uint64_t)i);
    for (int step = 1; step <= STEPS; step++) {
        double scale = step % 2 ? 1.0 : 0.25;
        for (int i = 0; i < COUNT; i++) {
            g[i] = fo_base_random_normal(2, (uint64_t)step, (uint64_t)i);
            reference(&o, step, scale, decay, g[i], &rw[i], &rm[i], &rv[i]);
        }
        fo_train_optimizer_update(kernel, &o, step, scale, &piece);
    }
    for (int i = 0; i < COUNT; i++) {
        double error = fabs(w[i] - rw[i]);
        if (error > 2e-5 * (1 + fabs(rw[i])))
            fail_msg("%s, value %d: %.9g, float64 says %.9g", kernel->name, i, (double)w[i], rw[i]);
    }
}

static void adamw_is_that_of_float64(void **state)
{
    (void)state;
    for (int k = 0; fo_kernel_at(k); k++) {
        if (fo_kernel_at(k)->emulates)
            continue;
        check_adamw(fo_kernel_at(k), true);
        check_adamw(fo_kernel_at(k), false);
    }
}

static void medians(void **state)
{
    (void)state;
    double odd[] = {3, 1, 2}, even[] = {4, 1, 3, 2};
    assert_true(fo_base_median(odd, 3) == 2);
    assert_true(fo_base_median(even, 4) == 2.5);
    assert_true(isnan(fo_base_median(even, 0)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warms_up_linearly_and_falls_as_a_cosine),
        cmocka_unit_test(a_schedule_without_warm_up_or_without_fall),
        cmocka_unit_test(clips_only_what_is_longer),
        cmocka_unit_test(adamw_is_that_of_float64),
        cmocka_unit_test(medians),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
