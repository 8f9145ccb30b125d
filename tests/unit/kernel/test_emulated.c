/* The emulated device: what it takes, when its calls begin and end, that nothing is touched or burnt. The
 * machine may be busy: a timing is taken again until it fits, and fails when it never does. */
#include "compare.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "kernel/emulated/emulated.h"

enum {
    TRIES = 40,
    K = 1000,
    N = 500
}; /* 1e6 operations a row: a row takes a microsecond at 1 TFLOP/s */

static const fo_kernel *kernel(void)
{
    return fo_kernel_find("emulated");
}

static void use_device(double flops_per_s, double launch_s, double bytes_per_s)
{
    fo_device device = {.flops_per_s = flops_per_s,
                        .launch_s = launch_s,
                        .bytes_per_s = bytes_per_s};
    fo_kernel_set_device(&device);
}

static fo_gemm *make_gemm(void)
{
    fo_gemm_desc desc = {.k = K, .n = N, .dtype = FO_BF16, .transposed = true};
    fo_gemm *gemm;
    ok(kernel()->gemm_create(&desc, &gemm));
    return gemm;
}

static void nap(double seconds)
{
    struct timespec time = {.tv_nsec = (long)(seconds * 1e9)};
    nanosleep(&time, NULL);
}

static double cpu_s(void)
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

/* Seconds that `count` calls took, of `rows` rows each; pause_s is slept before each of them. */
static double take(fo_gemm *gemm, int count, int64_t rows, double pause_s)
{
    ok(kernel()->gemm_tile(gemm, NULL, NULL, 1, NULL));
    nap(0.001); /* the device is free, for so long that this is known */
    int64_t begin = fo_base_clock_ns();
    for (int i = 0; i < count; i++) {
        if (pause_s > 0)
            nap(pause_s);
        ok(kernel()->gemm_tile(gemm, NULL, NULL, rows, NULL));
    }
    return (double)(fo_base_clock_ns() - begin) * 1e-9;
}

/* ---- the clock ----------------------------------------------------------------------------------- */

static void check_sum(int count, int64_t rows, double expected)
{
    fo_gemm *gemm = make_gemm();
    double took = 0, used = 0;
    for (int i = 0; i < TRIES; i++) {
        double before = cpu_s();
        took = take(gemm, count, rows, 0);
        used = cpu_s() - before;
        if (fabs(took - expected) <= 0.02 * expected + 200e-6 && used < 0.2 * took)
            break;
    }
    kernel()->gemm_destroy(gemm);
    if (took < expected || took > 1.02 * expected + 200e-6 || used >= 0.2 * took)
        fail_msg("%d calls of %lld rows took %.6f s and %.6f s of processor time, expected %.6f s "
                 "and at most a fifth of it",
                 count, (long long)rows, took, used, expected);
}

static void test_calls_take_the_sum_of_their_costs(void **state)
{
    (void)state;
    use_device(1e12, 0, 0);
    check_sum(100, 200, 0.020);
    check_sum(40, 1000, 0.040);
    use_device(1e12, 50e-6, 0);
    kernel()->slice(4000); /* a quarter of the launch each */
    check_sum(40, 1000, 0.0405);
    kernel()->slice(0); /* the whole launch each */
    check_sum(40, 1000, 0.042);
}

static void *rank_of_self(void *arg)
{
    double *took = arg;
    use_device(1e12, 0, 0);
    fo_gemm *gemm = make_gemm();
    *took = take(gemm, 20, 500 + 500 * (*took > 0), 0);
    kernel()->gemm_destroy(gemm);
    return NULL;
}

/* Two ranks that are threads, one twice as fast: each has its own clock. */
static void test_threads_have_their_own_device(void **state)
{
    (void)state;
    double took[2] = {0};
    for (int i = 0; i < TRIES; i++) {
        pthread_t threads[2];
        took[0] = 0;
        took[1] = 1;
        for (int t = 0; t < 2; t++)
            assert_int_equal(pthread_create(&threads[t], NULL, rank_of_self, &took[t]), 0);
        for (int t = 0; t < 2; t++)
            pthread_join(threads[t], NULL);
        if (took[0] < 0.0104 && took[1] < 0.0206)
            break;
    }
    if (took[0] < 0.010 || took[0] > 0.0104 || took[1] < 0.020 || took[1] > 0.0206)
        fail_msg("the ranks took %.6f and %.6f s, expected 0.010 and 0.020", took[0], took[1]);
}

static void test_a_wait_is_not_forgiven(void **state)
{
    (void)state;
    use_device(1e12, 0, 0);
    fo_gemm *gemm = make_gemm();
    /* 0.1 ms of waiting before each of 20 calls of 0.2 ms */
    double took = take(gemm, 20, 200, 100e-6);
    kernel()->gemm_destroy(gemm);
    if (took < 20 * (100e-6 + 200e-6))
        fail_msg("20 calls of 0.2 ms after waits of 0.1 ms took %.6f s, expected 0.006 or more",
                 took);
}

/* Waiting that spins, which no context switch shows. */
static void test_a_spinning_wait_is_not_forgiven(void **state)
{
    (void)state;
    use_device(1e12, 0, 0);
    fo_gemm *gemm = make_gemm();
    double used = 0;
    ok(kernel()->gemm_tile(gemm, NULL, NULL, 1, NULL));
    nap(0.001); /* the first call begins when it comes */
    int64_t begin = fo_base_clock_ns();
    for (int i = 0; i < 10; i++) {
        double before = cpu_s();
        for (int64_t end = fo_base_clock_ns() + 300000; fo_base_clock_ns() < end;)
            ;
        used += cpu_s() - before;
        ok(kernel()->gemm_tile(gemm, NULL, NULL, 200, NULL));
    }
    double took = (double)(fo_base_clock_ns() - begin) * 1e-9;
    kernel()->gemm_destroy(gemm);
    /* what it didn't spin because others had the processor is the machine's fault */
    double expected = 10 * 200e-6 + used - 10 * 25e-6;
    if (took < expected)
        fail_msg("10 calls of 0.2 ms and %.6f s of spinning took %.6f s, expected %.6f or more",
                 used, took, expected);
}

static void test_what_is_forgiven(void **state)
{
    enum { US = 1000, SLACK = FO_KERNEL_EMULATED_SLACK_NS };
    static const struct {
        fo_kernel_emulated_gap gap;
        int64_t expected;
    } cases[] = {
        /* returned 30 us late, polled for 5 us */
        {{35 * US, 5 * US, 5 * US, true, false}, 35 * US},
        /* preempted for 3 ms in between */
        {{3035 * US, 3005 * US, 5 * US, true, false}, 3035 * US},
        /* spun for 120 us: 20 of them are for polling */
        {{150 * US, 120 * US, 120 * US, true, false}, 50 * US},
        /* slept, however short */
        {{35 * US, 5 * US, 5 * US, true, true}, 0},
        {{5035 * US, 5005 * US, 5 * US, true, true}, 0},
        /* much too late */
        {{50000 * US, 5 * US, 5 * US, true, false}, SLACK},
        /* worked on the host for 50 ms */
        {{50030 * US, 50000 * US, 50000 * US, true, false}, 50 * US},
        /* the system counts nothing: by the time since the last return */
        {{35 * US, 5 * US, 0, false, false}, 35 * US},
        {{55 * US, 25 * US, 0, false, false}, 0},
        /* in time */
        {{0, 0, 0, true, false}, 0},
        {{-5, 0, 0, true, false}, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t found = fo_kernel_emulated_forgiven(&cases[i].gap);
        if (found != cases[i].expected)
            fail_msg("case %zu: %lld ns forgiven, expected %lld", i, (long long)found,
                     (long long)cases[i].expected);
    }
}

/* ---- costs --------------------------------------------------------------------------------------- */

static void near(const char *what, double found, double expected)
{
    if (!(fabs(found - expected) <= 1e-12 * fabs(expected)))
        fail_msg("%s: %.17g, expected %.17g", what, found, expected);
}

static void test_efficiency_curve(void **state)
{
    fo_device device = {.flops_per_s = 1e12,
                        .points = 3,
                        .rows = {64, 256, 8192},
                        .efficiency = {0.25, 0.75, 0.95}};
    (void)state;
    near("below", fo_kernel_emulated_efficiency(&device, 1), 0.25);
    near("first", fo_kernel_emulated_efficiency(&device, 64), 0.25);
    near("between", fo_kernel_emulated_efficiency(&device, 128), 0.5);
    near("second", fo_kernel_emulated_efficiency(&device, 256), 0.75);
    near("between", fo_kernel_emulated_efficiency(&device, 512), 0.75 + 0.2 / 5);
    near("last", fo_kernel_emulated_efficiency(&device, 8192), 0.95);
    near("above", fo_kernel_emulated_efficiency(&device, 1e9), 0.95);
    device.points = 1;
    near("one point", fo_kernel_emulated_efficiency(&device, 100), 0.25);
    device.points = 0;
    near("no curve", fo_kernel_emulated_efficiency(&device, 100), 1);
}

static void test_a_tile_is_its_part_of_the_slice(void **state)
{
    fo_device device = {.flops_per_s = 1e12,
                        .launch_s = 5e-6,
                        .points = 2,
                        .rows = {64, 4096},
                        .efficiency = {0.2, 0.8}};
    (void)state;
    double whole = 5e-6 + 4096e6 / (1e12 * 0.8);
    near("slice", fo_kernel_emulated_product_s(&device, 4096e6, 4096, 0), whole);
    near("tile", fo_kernel_emulated_product_s(&device, 512e6, 512, 4096), whole / 8);
    /* a tile larger than what was announced is a slice of its own */
    near("large tile", fo_kernel_emulated_product_s(&device, 4096e6, 4096, 64), whole);
    near("no rows", fo_kernel_emulated_product_s(&device, 0, 0, 64), 0);
}

static void test_keys_of_queries(void **state)
{
    /* two sequences of 10, in the balanced order of two ranks: chunks of 3, 2, 3, 2 positions */
    fo_run runs[8];
    (void)state;
    int64_t count = fo_rows_runs(FO_ROWS_BALANCED, 2, 10, 2, runs, 8);
    assert_int_equal(count, 8);
    for (int64_t row = 0; row < 20; row++)
        for (int64_t rows = 0; row + rows <= 20; rows++) {
            double expected = 0;
            for (int64_t i = 0; i < count; i++)
                for (int64_t r = 0; r < runs[i].rows; r++)
                    if (runs[i].row + r >= row && runs[i].row + r < row + rows)
                        expected += (double)(runs[i].position + r + 1);
            near("keys", fo_kernel_emulated_keys(runs, count, row, rows), expected);
        }
}

/* One call of each kind; a device of 1 TFLOP/s and 1 GB/s. */
static void call(int which, fo_wgrad *wgrad, fo_attention *attention)
{
    fo_attention_args args = {0};
    switch (which) {
    case 0: ok(kernel()->wgrad_block(wgrad, NULL, NULL, 1000, NULL)); break;
    case 1: ok(kernel()->attention_queries(attention, &args, 600, 500)); break;
    case 2: ok(kernel()->attention_queries_grad(attention, &args, 1600, 500)); break;
    case 3: kernel()->add(NULL, FO_F32, NULL, FO_BF16, NULL, FO_F32, 100000); break;
    case 4: kernel()->convert(NULL, FO_F32, NULL, FO_BF16, 100000); break;
    default: kernel()->epilogue(NULL, NULL, 1000, 1000); break;
    }
}

static void test_costs_of_calls(void **state)
{
    /* queries 600 to 999 of a sequence and 0 to 99 of the next: their keys, 4 or 10 operations for each */
    const double keys = (601 + 1000) * 200 + 101 * 50, width = 1000;
    const double expected[] = {
        1e-3, 4 * keys * width / 1e12, 10 * keys * width / 1e12, 1e-3, 0.6e-3, 0};
    static const char *const names[] = {"wgrad", "attention", "attention gradient",
                                        "add",   "convert",   "epilogue"};
    fo_wgrad *wgrad;
    fo_attention *attention;
    (void)state;
    use_device(1e12, 0, 1e9);
    ok(kernel()->wgrad_create(&(fo_wgrad_desc){.out = K, .in = N, .dtype = FO_F32}, &wgrad));
    fo_attention_desc desc = {.batch = 3, .context = 1000, .heads = 5, .head_dim = 200};
    ok(kernel()->attention_create(&desc, &attention));
    for (int i = 0; i < 6; i++) {
        double took = 0;
        bool fits = false;
        for (int n = 0; n < TRIES && !fits; n++) {
            nap(0.0005);
            int64_t begin = fo_base_clock_ns();
            call(i, wgrad, attention);
            took = (double)(fo_base_clock_ns() - begin) * 1e-9;
            fits = took >= expected[i] && took <= expected[i] * 1.02 + 200e-6;
        }
        if (!fits)
            fail_msg("%s took %.6f s, expected %.6f", names[i], took, expected[i]);
    }
    kernel()->wgrad_destroy(wgrad);
    kernel()->attention_destroy(attention);
}

/* ---- the table ----------------------------------------------------------------------------------- */

/* Every function, with memory that must not be touched. */
static void test_nothing_is_touched(void **state)
{
    (void)state;
    void *no = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(no != MAP_FAILED);
    use_device(1e15, 0, 1e15);
    const fo_kernel *k = kernel();
    fo_gemm *gemm = make_gemm();
    ok(k->gemm_pack(gemm, no, no));
    ok(k->gemm_tile(gemm, no, no, 64, no));
    k->gemm_destroy(gemm);
    fo_wgrad *wgrad;
    ok(k->wgrad_create(&(fo_wgrad_desc){.out = 7, .in = 9, .dtype = FO_BF16}, &wgrad));
    ok(k->wgrad_block(wgrad, no, no, 64, no));
    k->wgrad_destroy(wgrad);
    fo_attention *attention;
    fo_attention_desc desc = {.batch = 2, .context = 50, .heads = 1, .head_dim = 8};
    fo_attention_args args = {.qkv = no, .lse = no, .out = no, .dout = no, .dqkv = no};
    ok(k->attention_create(&desc, &attention));
    k->attention_begin(attention);
    ok(k->attention_queries(attention, &args, 20, 64));
    ok(k->attention_queries_grad(attention, &args, 20, 64));
    k->attention_destroy(attention);
    fo_epilogue parts = {.add = no, .bias = no, .gelu = true, .pre = no, .y = no};
    k->epilogue(&parts, no, 64, 64);
    k->convert(no, FO_F32, no, FO_BF16, 1000);
    k->add(no, FO_F32, no, FO_BF16, no, FO_F32, 1000);
    k->column_sum(no, FO_BF16, 10, 10, no);
    k->layernorm_forward(no, no, no, 10, 10, no, FO_BF16, no, no);
    k->layernorm_backward(no, no, no, no, no, 10, 10, no, no, no);
    k->dropout(no, 0, 10, 10, 0.5f, 1, 2);
    k->xent_stats(no, no, 10, 10, 0, no);
    k->xent_grad(no, no, no, 10, 10, 0, 1.0f, no, FO_F32);
    assert_true(k->sum_squares(no, 100) == 0);
    k->adamw(no, no, no, no, no, 100);
    munmap(no, 4096);
}

static void test_what_is_refused(void **state)
{
    (void)state;
    const fo_kernel *k = kernel();
    fo_device none = {0};
    fo_kernel_set_device(&none);
    fo_gemm *gemm = NULL;
    fo_wgrad *wgrad = NULL;
    fo_attention *attention = NULL;
    fo_gemm_desc desc = {.k = 1, .n = 1};
    fo_wgrad_desc wgrad_desc = {.out = 1, .in = 1};
    fo_attention_desc attention_desc = {.batch = 1, .context = 10, .heads = 1, .head_dim = 1};
    assert_int_equal(k->gemm_create(&desc, &gemm), FO_INVALID);
    assert_non_null(strstr(fo_last_error(), "without a device"));
    assert_int_equal(k->wgrad_create(&wgrad_desc, &wgrad), FO_INVALID);
    assert_int_equal(k->attention_create(&attention_desc, &attention), FO_INVALID);
    use_device(1e15, 0, 0);
    gemm = make_gemm();
    ok(k->gemm_tile(gemm, NULL, NULL, 0, NULL));
    ok(k->gemm_tile(gemm, NULL, NULL, k->tile_rows, NULL));
    assert_int_equal(k->gemm_tile(gemm, NULL, NULL, k->tile_rows + 1, NULL), FO_INVALID);
    assert_int_equal(k->gemm_tile(gemm, NULL, NULL, -1, NULL), FO_INVALID);
    k->gemm_destroy(gemm);
    ok(k->attention_create(&attention_desc, &attention));
    assert_int_equal(k->attention_queries(attention, NULL, 5, 6), FO_INVALID);
    assert_non_null(strstr(fo_last_error(), "rows 5 to 11, expected 0 to 10"));
    k->attention_destroy(attention);
}

static void test_it_is_never_the_default(void **state)
{
    (void)state;
    assert_ptr_equal(fo_kernel_find(NULL), fo_kernel_at(0));
    assert_string_not_equal(fo_kernel_at(0)->name, "emulated");
    int last = 0;
    while (fo_kernel_at(last + 1))
        last++;
    assert_string_equal(fo_kernel_at(last)->name, "emulated");
    assert_true(kernel()->supports(FO_F32) && kernel()->supports(FO_BF16));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_take_the_sum_of_their_costs),
        cmocka_unit_test(test_threads_have_their_own_device),
        cmocka_unit_test(test_a_wait_is_not_forgiven),
        cmocka_unit_test(test_a_spinning_wait_is_not_forgiven),
        cmocka_unit_test(test_what_is_forgiven),
        cmocka_unit_test(test_efficiency_curve),
        cmocka_unit_test(test_a_tile_is_its_part_of_the_slice),
        cmocka_unit_test(test_keys_of_queries),
        cmocka_unit_test(test_costs_of_calls),
        cmocka_unit_test(test_nothing_is_touched),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_it_is_never_the_default),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
