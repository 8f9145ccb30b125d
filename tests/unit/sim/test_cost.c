/* What computing takes: measured entries, curves, tiles and waves, the rule of an emulated device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "base/random.h"
#include "sim/operation.h"
#include "sim/profile.h"

static void near(double value, double expected, double part)
{
    if (!(fabs(value - expected) <= part * fabs(expected)))
        fail_msg("%.12g, expected %.12g within %g", value, expected, part);
}

static double draw(uint64_t key, uint64_t index)
{
    return (double)fo_base_random_uniform(91, key, index);
}

/* Sizes from 1 to about 2^14, as often small as large. */
static double draw_size(uint64_t key, uint64_t index)
{
    return floor(exp2(14 * draw(key, index)));
}

/* ---- entries ---------------------------------------------------------------------------------------- */

enum { ENTRIES = 24 };

/* Products of three shapes over four rows, two types; rates between 1 and 2 TFLOP/s. */
static void make_entries(fo_sim_entry *entries, fo_sim_device *device)
{
    static const int64_t shapes[][2] = {{1024, 1024}, {3072, 768}, {512, 4096}};
    int count = 0;
    for (int d = 0; d < 2; d++)
        for (int s = 0; s < 3; s++)
            for (int r = 0; r < 4; r++) {
                fo_sim_entry *e = &entries[count];
                *e = (fo_sim_entry){.work = FO_SIM_GEMM,
                                    .dtype = (fo_dtype)d,
                                    .threads = 2,
                                    .at_once = true,
                                    .rows = 64 << 2 * r,
                                    .k = shapes[s][0],
                                    .n = shapes[s][1]};
                double flops = 2.0 * (double)e->rows * (double)e->k * (double)e->n;
                e->time_s = flops / (1e12 * (1 + draw(1, (uint64_t)count++)));
            }
    *device = (fo_sim_device){.entries = entries, .entry_count = count};
}

static double cost(const fo_sim_device *d, const fo_sim_entry *e)
{
    return fo_sim_cost_product(d, e->work, e->dtype, e->threads, (double)e->rows, (double)e->k,
                               (double)e->n, false);
}

static void test_exact(void **state)
{
    (void)state;
    fo_sim_entry entries[ENTRIES];
    fo_sim_device device;
    make_entries(entries, &device);
    for (int i = 0; i < device.entry_count; i++)
        near(cost(&device, &entries[i]), entries[i].time_s, 1e-12);
}

/* Between rows that were measured the rate is between theirs, outside it is the nearest one's. */
static void test_between_rows(void **state)
{
    (void)state;
    fo_sim_entry entries[ENTRIES];
    fo_sim_device device;
    make_entries(entries, &device);
    for (int rows = 1; rows < 20000; rows += 1 + rows / 7) {
        fo_sim_entry e = entries[0];
        double least = INFINITY, most = 0;
        for (int r = 0; r < 4; r++) {
            double flop_s = entries[r].time_s / (double)entries[r].rows;
            bool beside = (entries[r].rows <= rows && (r == 3 || entries[r + 1].rows >= rows)) ||
                          (entries[r].rows >= rows && (r == 0 || entries[r - 1].rows <= rows));
            least = beside ? fmin(least, flop_s) : least;
            most = beside ? fmax(most, flop_s) : most;
        }
        e.rows = rows;
        double flop_s = cost(&device, &e) / rows;
        assert_true(flop_s >= least * (1 - 1e-9) && flop_s <= most * (1 + 1e-9));
    }
}

/* Any shape: within what was measured at these rows, continuous, and in proportion to the FLOPs. */
static void test_shapes(void **state)
{
    (void)state;
    fo_sim_entry entries[ENTRIES];
    fo_sim_device device;
    make_entries(entries, &device);
    for (uint64_t i = 0; i < 2000; i++) {
        double rows = draw_size(2, i), k = draw_size(3, i), n = draw_size(4, i);
        double seconds = fo_sim_cost_product(&device, FO_SIM_GEMM, FO_BF16, 2, rows, k, n, false);
        double rate = 2 * rows * k * n / seconds;
        assert_true(rate >= 0.999e12 && rate <= 2.001e12);
        double beside =
            fo_sim_cost_product(&device, FO_SIM_GEMM, FO_BF16, 2, rows, k * 1.0001, n, false);
        near(beside, seconds * 1.0001, 1e-2);
    }
    near(fo_sim_cost_product(&device, FO_SIM_GEMM, FO_BF16, 2, 0, 1024, 1024, false) + 1, 1, 0);
    near(fo_sim_cost_product(&device, FO_SIM_GEMM, FO_BF16, 2, 64, 0, 1024, false) + 1, 1, 0);
}

/* Which entries speak: the same threads, all ranks at once; else one alone; else other threads, scaled. What was not
 * measured follows from what it is made of. */
static void test_preference(void **state)
{
    (void)state;
    fo_sim_entry e = {
        .work = FO_SIM_GEMM, .threads = 2, .rows = 256, .k = 512, .n = 512, .time_s = 1};
    fo_sim_entry entries[] = {e, e, e, e};
    fo_sim_device device = {.entries = entries, .entry_count = 1};
    entries[0].threads = 4;
    near(cost(&device, &e), 2, 1e-9); /* half of the threads: twice the time */
    entries[1].time_s = 3;
    device.entry_count = 2;
    near(cost(&device, &e), 3, 1e-9);
    entries[2].time_s = 5;
    entries[2].at_once = true;
    device.entry_count = 3;
    near(cost(&device, &e), 5, 1e-9);
    near(fo_sim_cost_product(&device, FO_SIM_WGRAD, FO_F32, 2, 256, 512, 512, false), 5, 1e-9);
    entries[3].work = FO_SIM_WGRAD;
    entries[3].time_s = 7;
    device.entry_count = 4;
    near(fo_sim_cost_product(&device, FO_SIM_WGRAD, FO_F32, 2, 256, 512, 512, false), 7, 1e-9);
    /* no entry of that type, no rate: it takes no time */
    near(fo_sim_cost_product(&device, FO_SIM_GEMM, FO_BF16, 2, 256, 512, 512, false) + 1, 1, 0);
}

static void test_attention(void **state)
{
    (void)state;
    fo_sim_entry entries[2] = {
        {.work = FO_SIM_ATTENTION, .threads = 1, .rows = 256, .k = 8, .n = 64, .time_s = 1e-3},
        {.work = FO_SIM_ATTENTION, .threads = 1, .rows = 1024, .k = 8, .n = 64, .time_s = 12e-3}};
    fo_sim_device device = {.entries = entries, .entry_count = 2};
    near(fo_sim_cost_product(&device, FO_SIM_ATTENTION, FO_F32, 1, 256, 8, 64, false), 1e-3, 1e-12);
    near(fo_sim_cost_product(&device, FO_SIM_ATTENTION, FO_F32, 1, 1024, 8, 64, false), 12e-3,
         1e-12);
    /* twice the heads, twice the time; its gradient has five products for two */
    near(fo_sim_cost_product(&device, FO_SIM_ATTENTION, FO_F32, 1, 1024, 16, 64, false), 24e-3,
         1e-12);
    near(fo_sim_cost_product(&device, FO_SIM_ATTENTION_GRAD, FO_F32, 1, 1024, 8, 64, false), 30e-3,
         1e-12);
}

/* ---- an emulated device ----------------------------------------------------------------------------- */

/* The rule of group.h, written down once more. */
static double emulated_s(const fo_device *d, double flops, double rows)
{
    double efficiency = d->points ? d->efficiency[0] : 1;
    for (int p = 1; p < d->points; p++) {
        if (rows >= d->rows[p])
            efficiency = d->efficiency[p];
        else if (rows > d->rows[p - 1])
            efficiency = d->efficiency[p - 1] + log2(rows / d->rows[p - 1]) /
                                                    log2(d->rows[p] / d->rows[p - 1]) *
                                                    (d->efficiency[p] - d->efficiency[p - 1]);
    }
    return d->launch_s + flops / (d->flops_per_s * efficiency);
}

static void test_emulated(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 300; i++) {
        fo_device device = {.flops_per_s = 1e12 * (1 + draw(5, i)),
                            .launch_s = 1e-5 * draw(6, i),
                            .bytes_per_s = 1e9 * (1 + draw(7, i)),
                            .points = (int)(i % 5)};
        for (int p = 0; p < device.points; p++) {
            device.rows[p] = (p ? device.rows[p - 1] : 16) * (1.5 + draw(8 + (uint64_t)p, i));
            device.efficiency[p] = 0.1 + 0.9 * draw(18 + (uint64_t)p, i);
        }
        fo_sim_machine m;
        fo_sim_machine_emulated(&device, NULL, &m);
        double rows = draw_size(30, i), k = draw_size(31, i), n = draw_size(32, i);
        for (int work = FO_SIM_GEMM; work <= FO_SIM_WGRAD; work++)
            near(fo_sim_cost_product(&m.device, (fo_sim_work)work, FO_BF16, 1, rows, k, n, true),
                 emulated_s(&device, 2 * rows * k * n, rows), 1e-12);
        double keys = rows * (rows + 1) / 2;
        near(fo_sim_cost_product(&m.device, FO_SIM_ATTENTION, FO_F32, 1, rows, k, n, false),
             emulated_s(&device, 4 * k * n * keys, rows), 1e-12);
        near(fo_sim_cost_product(&m.device, FO_SIM_ATTENTION_GRAD, FO_F32, 1, rows, k, n, false),
             emulated_s(&device, 10 * k * n * keys, rows), 1e-12);
        near(fo_sim_cost_product(&m.device, FO_SIM_PACK, FO_BF16, 1, 1, k, n, false),
             6 * k * n / device.bytes_per_s, 1e-12);
        near(fo_sim_cost_pass(&m.device, 1e6), 1e6 / device.bytes_per_s, 1e-12);
    }
}

static void test_emulated_link(void **state)
{
    (void)state;
    fo_sim_machine m;
    fo_device device = {.flops_per_s = 1e12};
    fo_link link = {.bytes_per_s = 5e9, .latency_s = 3e-6, .topology = FO_MESH};
    fo_sim_machine_emulated(&device, &link, &m);
    assert_int_equal(m.network.topology, FO_SIM_MESH);
    near(m.network.link.bytes_per_s, 5e9, 0);
    near(m.network.link.latency_s, 3e-6, 0);
    assert_true(m.views && !m.async && !m.device.by_tile);
    link = (fo_link){.bytes_per_s = 0};
    fo_sim_machine_set_link(&m, &link); /* off: as it was */
    near(m.network.link.bytes_per_s, 5e9, 0);
    fo_sim_machine_emulated(NULL, NULL, &m);
    near(fo_sim_cost_product(&m.device, FO_SIM_GEMM, FO_F32, 1, 64, 64, 64, false) + 1, 1, 0);
}

/* ---- tiles and waves -------------------------------------------------------------------------------- */

static fo_sim_device waves(void)
{
    return (fo_sim_device){.flops_per_s = {1e12, 1e14},
                           .units = 100,
                           .tile_m = 128,
                           .tile_n = 64,
                           .comm_units = 20,
                           .launch_s = 1e-6};
}

static void test_waves(void **state)
{
    (void)state;
    fo_sim_device d = waves();
    double wave_s = 128 * 64 * 2 * 1000 / 1e12; /* of a tile of depth 1000 on one of 100 units */
    /* 100 tiles are one wave, one more tile makes two; with 20 units taken 80 are one */
    static const struct {
        double rows, n, alone, beside;
    } cases[] = {{1280, 640, 1, 2},    {1281, 640, 2, 2}, {1024, 640, 1, 1}, {1025, 640, 1, 2},
                 {12800, 640, 10, 13}, {1, 1, 1, 1},      {1280, 641, 2, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double rows = cases[i].rows, n = cases[i].n;
        near(fo_sim_cost_product(&d, FO_SIM_GEMM, FO_BF16, 1, rows, 1000, n, false),
             1e-6 + cases[i].alone * wave_s, 1e-9);
        near(fo_sim_cost_product(&d, FO_SIM_GEMM, FO_BF16, 1, rows, 1000, n, true),
             1e-6 + cases[i].beside * wave_s, 1e-9);
        /* a weight gradient has its tiles over k and n, and is as deep as there are rows */
        near(fo_sim_cost_product(&d, FO_SIM_WGRAD, FO_BF16, 1, 1000, rows, n, false),
             1e-6 + cases[i].alone * wave_s, 1e-9);
    }
    /* rows thinner than a tile take as long as a whole one, unless memory takes longer */
    d.memory_bytes_per_s = 1e9;
    near(fo_sim_cost_product(&d, FO_SIM_GEMM, FO_BF16, 1, 1, 1000, 640, false),
         1e-6 + 2 * (1000 + 1000 * 640 + 640) / 1e9, 1e-9);
    /* short widths */
    d = waves();
    d.by_width = (fo_sim_curve){.points = 2, .x = {64, 1024}, .y = {0.25, 1}};
    near(fo_sim_cost_product(&d, FO_SIM_GEMM, FO_BF16, 1, 1280, 64, 64, false),
         1e-6 + 128 * 64 * 2 * 64 / 1e12 / 0.25, 1e-9);
}

/* The products that were measured on an A100 (LLMCompass, arXiv 2312.03134), milliseconds, against the shipped profile,
 * whose curves were taken from them: what is left is their product. */
static void test_a100(void **state)
{
    (void)state;
    static const double measured[][3] = {{64, 12288, 0.1900},     {128, 12288, 0.2003},
                                         {256, 12288, 0.3185},    {512, 12288, 0.6118},
                                         {1024, 12288, 1.1990},   {2048, 12288, 2.3586},
                                         {4096, 12288, 4.4576},   {8192, 12288, 8.6216},
                                         {16384, 12288, 17.0307}, {32768, 12288, 35.441},
                                         {8192, 512, 0.0471},     {8192, 1024, 0.0927},
                                         {8192, 2048, 0.2818},    {8192, 4096, 1.0210},
                                         {8192, 8192, 3.9614},    {8192, 16384, 15.0087},
                                         {8192, 32768, 61.1346}};
    fo_sim_machine m;
    assert_int_equal(fo_sim_profile_read("a100-sxm", &m), FO_OK);
    double sum = 0;
    int count = (int)(sizeof measured / sizeof measured[0]);
    for (int i = 0; i < count; i++) {
        const double *p = measured[i];
        double seconds =
            fo_sim_cost_product(&m.device, FO_SIM_GEMM, FO_BF16, 1, p[0], p[1], p[1], false);
        double error = seconds * 1e3 / p[2] - 1;
        sum += fabs(error);
        if (fabs(error) > 0.16)
            fail_msg("%g x %g x %g: %.1f %% off", p[0], p[1], p[1], 100 * error);
    }
    if (sum / count > 0.05)
        fail_msg("mean error %.1f %%, expected 5 %% at most", 100 * sum / count);
    fo_sim_machine_free(&m);
}

/* Work does not get cheaper by being more, nor by messages in flight: true of every shipped machine. */
static void test_monotonic(void **state)
{
    (void)state;
    const char *const *names = fo_sim_profile_names();
    for (; *names; names++) {
        fo_sim_machine m;
        assert_int_equal(fo_sim_profile_read(*names, &m), FO_OK);
        /* an efficiency that was measured may more than double where a width does: 91 and 185 TFLOP/s of an A100 */
        double slack = m.device.by_width.points ? 0.03 : 1e-9;
        for (uint64_t i = 0; i < 400; i++) {
            double rows = draw_size(40, i), k = draw_size(41, i), n = draw_size(42, i);
            fo_sim_work work = i % 2 ? FO_SIM_GEMM : FO_SIM_WGRAD;
            double s = fo_sim_cost_product(&m.device, work, FO_BF16, 1, rows, k, n, false);
            double beside = fo_sim_cost_product(&m.device, work, FO_BF16, 1, rows, k, n, true);
            double more = fo_sim_cost_product(&m.device, work, FO_BF16, 1, 2 * rows, k, n, false);
            double deeper = fo_sim_cost_product(&m.device, work, FO_BF16, 1, rows, k, 2 * n, false);
            assert_true(s > 0 && beside >= s && more >= s && deeper >= s * (1 - slack));
        }
        fo_sim_machine_free(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact),         cmocka_unit_test(test_between_rows),
        cmocka_unit_test(test_shapes),        cmocka_unit_test(test_preference),
        cmocka_unit_test(test_attention),     cmocka_unit_test(test_emulated),
        cmocka_unit_test(test_emulated_link), cmocka_unit_test(test_waves),
        cmocka_unit_test(test_a100),          cmocka_unit_test(test_monotonic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
