/* Strategy auto: the bits of none, the same choice on every rank, following the link, predictions; and wisdom files,
 * whole and spoilt. Times are not looked at: that is bench/predict.sh. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/random.h"
#include "flashoverlap/plan.h"
#include "op/learn.h"

#define TRY(call)                      \
    do {                               \
        fo_status try_status = (call); \
        if (try_status != FO_OK)       \
            return try_status;         \
    } while (0)

static char folder[] = "/tmp/fo-auto-XXXXXX"; /* of caches */

/* ---- an operation in a group ------------------------------------------------------------------------ */

typedef struct setting {
    fo_op op;
    int64_t rows, dim, own; /* own: features of this rank but for its number */
    fo_dtype dtype, wire;
} setting;

typedef struct run {
    fo_plan_desc desc;
    fo_plan_args args;
    void *result[2];
    size_t bytes[2];
} run;

static void *random_matrix(fo_group *g, int64_t count, fo_dtype dtype, uint64_t stream)
{
    char *data = fo_group_alloc(g, (size_t)count * fo_dtype_size(dtype) + 64);
    for (int64_t i = 0; data && i < count; i++) {
        float value =
            fo_base_random_uniform(3, stream * 64 + (uint64_t)fo_group_rank(g), (uint64_t)i);
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        if (dtype == FO_BF16)
            ((uint16_t *)(void *)data)[i] = (uint16_t)(bits >> 16);
        else
            ((float *)(void *)data)[i] = value - 0.5f;
    }
    return data;
}

static void *result_of(fo_group *g, run *r, int which, int64_t count, fo_dtype dtype)
{
    r->bytes[which] = (size_t)count * fo_dtype_size(dtype);
    return r->result[which] = fo_group_alloc(g, r->bytes[which] + 64);
}

static void make(fo_group *g, const setting *s, run *r)
{
    int64_t own = s->own + fo_group_rank(g),
            mine = fo_shard_rows(s->rows, fo_group_size(g), fo_group_rank(g));
    bool row = s->op == FO_ROW_FORWARD, mlp = s->op == FO_MLP_FORWARD;
    *r = (run){.desc = {.op = s->op,
                        .rows = s->rows,
                        .in = row ? own : s->dim,
                        .out = row || mlp ? s->dim : own,
                        .hidden = mlp ? own : 0,
                        .dtype = s->dtype,
                        .wire = s->wire,
                        .y_dtype = s->dtype}};
    r->args.w = random_matrix(g, own * s->dim, FO_F32, 1);
    if (row) {
        r->args.x = random_matrix(g, s->rows * own, s->dtype, 2);
        r->args.y = result_of(g, r, 0, mine * s->dim, FO_F32);
    } else if (mlp) {
        r->args.x = random_matrix(g, mine * s->dim, s->dtype, 2);
        r->args.w2 = random_matrix(g, own * s->dim, FO_F32, 3);
        r->args.act = result_of(g, r, 1, s->rows * own, s->dtype);
        r->args.y = result_of(g, r, 0, mine * s->dim, FO_F32);
    } else { /* column backward */
        r->args.x = random_matrix(g, mine * s->dim, s->dtype, 2);
        r->args.dy = random_matrix(g, s->rows * own, s->dtype, 3);
        r->args.dx = result_of(g, r, 0, mine * s->dim, FO_F32);
        r->args.dw = result_of(g, r, 1, own * s->dim, FO_F32);
    }
}

static void clear(const run *r)
{
    for (int i = 0; i < 2; i++)
        if (r->result[i])
            memset(r->result[i], 0, r->bytes[i]);
}

/* Executes under the strategy and keeps what came of it. */
static fo_status execute(fo_group *g, run *r, const char *overlap, char *kept[2], char taken[32])
{
    fo_plan *plan;
    r->desc.overlap = overlap;
    TRY(fo_plan_create(g, &r->desc, &plan));
    clear(r);
    fo_status status = fo_plan_execute(plan, &r->args);
    snprintf(taken, 32, "%s", fo_plan_overlap(plan));
    for (int i = 0; i < 2; i++) {
        kept[i] = malloc(r->bytes[i] + 1);
        if (r->result[i])
            memcpy(kept[i], r->result[i], r->bytes[i]);
    }
    if (status == FO_OK && !strcmp(overlap, "auto") && !strstr(fo_plan_explain(plan), "auto"))
        status = fo_base_error(FO_INTERNAL, "'%s' does not say why", fo_plan_explain(plan));
    fo_plan_destroy(plan);
    return status;
}

static fo_status same_on_all(fo_group *g, const char taken[32])
{
    char all[16][32];
    TRY(fo_group_allgather(g, taken, 32, all));
    for (int r = 0; r < fo_group_size(g); r++)
        if (strcmp(all[r], taken) != 0)
            return fo_base_error(FO_INTERNAL, "rank %d took %s, this one %s", r, all[r], taken);
    return FO_OK;
}

/* ---- bits ------------------------------------------------------------------------------------------- */

static const setting settings[] = {{FO_ROW_FORWARD, 300, 40, 24, FO_F32, FO_F32},
                                   {FO_ROW_FORWARD, 300, 40, 24, FO_F32, FO_BF16},
                                   {FO_MLP_FORWARD, 517, 24, 16, FO_F32, FO_F32},
                                   {FO_COLUMN_BACKWARD, 1000, 24, 16, FO_F32, FO_F32},
                                   {FO_COLUMN_BACKWARD, 65, 16, 8, FO_F32, FO_F32},
                                   {FO_ROW_FORWARD, 2, 8, 4, FO_F32, FO_F32}};

static fo_status has_the_bits(fo_group *g, const setting *s)
{
    run r;
    char *expected[2], *found[2], none[32], taken[32];
    make(g, s, &r);
    TRY(execute(g, &r, "none", expected, none));
    TRY(execute(g, &r, "auto", found, taken));
    TRY(same_on_all(g, taken));
    for (int i = 0; i < 2; i++) {
        if (memcmp(expected[i], found[i], r.result[i] ? r.bytes[i] : 0))
            return fo_base_error(FO_INTERNAL, "result %d of operation %d under %s differs", i,
                                 (int)s->op, taken);
        free(expected[i]);
        free(found[i]);
    }
    return FO_OK;
}

static fo_status bits_rank(fo_group *g, void *arg)
{
    (void)arg;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        TRY(has_the_bits(g, &settings[i]));
    return FO_OK;
}

static void expect(const fo_group_options *options, fo_rank_main rank_main, void *arg)
{
    fo_status status = fo_group_run(options, rank_main, arg);
    if (status != FO_OK)
        fail_msg("%s, %d ranks: %s", options->transport, options->ranks, fo_last_error());
}

static void bits_are_those_of_none(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 3; ranks++)
        for (int link = 0; link < 2; link++) {
            fo_group_options options = {.ranks = ranks,
                                        .threads = 1,
                                        .kernel = "ref",
                                        .deadline_s = 30};
            if (link)
                options.link = (fo_link){2e7, 1e-5, FO_SWITCH};
            options.transport = link ? "self" : "shm";
            expect(&options, bits_rank, NULL);
        }
}

/* ---- an emulated device: known times ----------------------------------------------------------------- */

static const int64_t big_rows = 8192, big_dim = 1024, big_own = 1024;

static fo_plan_desc big(fo_dtype wire, const char *overlap)
{
    return (fo_plan_desc){.op = FO_ROW_FORWARD,
                          .rows = big_rows,
                          .in = big_own,
                          .out = big_dim,
                          .dtype = FO_F32,
                          .wire = wire,
                          .overlap = overlap};
}

static fo_group_options emulated(int ranks, double ratio, fo_topology topology)
{
    double flops = 2.0 * (double)big_rows * (double)big_dim * (double)big_own, seconds = 0.02;
    double bytes = (double)(big_rows / ranks * (ranks - 1) * big_dim * 4);
    fo_group_options options = {.ranks = ranks, .threads = 1, .transport = "shm", .deadline_s = 30};
    options.device.flops_per_s = flops / seconds;
    if (ratio > 0)
        options.link = (fo_link){bytes / (ratio * seconds), 0, topology};
    return options;
}

static fo_status near(const char *what, double found, double expected, double part)
{
    if (fabs(found / expected - 1) <= part)
        return FO_OK;
    return fo_base_error(FO_INTERNAL, "%s is %g s, expected %g", what, found, expected);
}

/* Computation 20 ms, transfer 10 ms: none takes both, flash the longer one. */
static fo_status times_rank(fo_group *g, void *arg)
{
    (void)arg;
    fo_plan *plan;
    fo_prediction p, all[8];
    fo_plan_desc desc = big(FO_F32, "none");
    TRY(fo_plan_create(g, &desc, &plan));
    TRY(fo_plan_predict(plan, true, &p));
    fo_plan_destroy(plan);
    TRY(near("C", p.compute_s, 0.02, 1e-3));
    TRY(near("none", p.total_s, 0.03, 5e-3));
    TRY(near("none, said beside", p.none_s, p.total_s, 1e-9));
    TRY(near("exposed", p.exposed_s, 0.01, 2e-2));
    TRY(fo_group_allgather(g, &p, sizeof p, all));
    for (int r = 0; r < fo_group_size(g); r++)
        if (memcmp(&all[r], &p, sizeof p))
            return fo_base_error(FO_INTERNAL, "rank %d was told something else", r);
    desc = big(FO_F32, "flash");
    TRY(fo_plan_create(g, &desc, &plan));
    TRY(fo_plan_predict(plan, true, &p));
    fo_plan_destroy(plan);
    return near("flash", p.total_s, 0.02, 2e-2);
}

static void predictions_of_a_known_device(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 4; ranks++) {
        fo_group_options options = emulated(ranks, 0.5, FO_SWITCH);
        expect(&options, times_rank, NULL);
    }
}

static fo_status takes(fo_group *g, fo_dtype wire, const char *begin, bool wanted)
{
    fo_plan *plan;
    fo_plan_desc desc = big(wire, "auto");
    char taken[32];
    TRY(fo_plan_create(g, &desc, &plan));
    snprintf(taken, sizeof taken, "%s", fo_plan_overlap(plan));
    fo_plan_destroy(plan);
    if (!strncmp(taken, begin, strlen(begin)) == wanted)
        return FO_OK;
    return fo_base_error(FO_INTERNAL, "took %s, %s %s was expected", taken, wanted ? "some" : "no",
                         begin);
}

/* On a full mesh sums in one hop use all links at once, but round elsewhere when they travel in bfloat16. */
static fo_status mesh_rank(fo_group *g, void *arg)
{
    (void)arg;
    TRY(takes(g, FO_F32, "direct", true));
    return takes(g, FO_BF16, "direct", false);
}

static void direct_only_with_the_same_bits(void **state)
{
    (void)state;
    fo_group_options options = emulated(4, 3, FO_MESH);
    expect(&options, mesh_rank, NULL);
}

static fo_status nothing_rank(fo_group *g, void *arg)
{
    (void)arg;
    return takes(g, FO_F32, "none", true);
}

static void none_where_nothing_is_gained(void **state)
{
    (void)state;
    fo_group_options options = emulated(4, 0, FO_SWITCH); /* links that take no time */
    expect(&options, nothing_rank, NULL);
}

/* ---- the link changes -------------------------------------------------------------------------------- */

static fo_status follows(fo_group *g, fo_plan *plan, const fo_plan_args *args, double bytes_per_s,
                         const char *expected)
{
    fo_prediction p;
    TRY(fo_group_set_link(g, &(fo_link){bytes_per_s, 0, FO_SWITCH}));
    TRY(fo_plan_predict(plan, true, &p)); /* of what the next execution takes */
    TRY(fo_plan_execute(plan, args));
    if (!strcmp(fo_plan_overlap(plan), "none") == !strcmp(expected, "none") &&
        !strcmp(fo_plan_overlap(plan), "none") == (p.total_s == p.none_s))
        return FO_OK;
    return fo_base_error(FO_INTERNAL, "%s over %g bytes/s, expected %s: %s", fo_plan_overlap(plan),
                         bytes_per_s, expected, fo_plan_explain(plan));
}

static fo_status link_rank(fo_group *g, void *arg)
{
    (void)arg;
    fo_plan *plan;
    fo_report report;
    fo_plan_desc desc = big(FO_F32, "auto");
    double rate = (double)(big_rows / 2 * big_dim * 4) / 0.01;
    int64_t mine = fo_shard_rows(big_rows, 2, fo_group_rank(g));
    fo_plan_args args = {.x = fo_group_alloc(g, (size_t)(big_rows * big_own * 4)),
                         .w = fo_group_alloc(g, (size_t)(big_dim * big_own * 4)),
                         .y = fo_group_alloc(g, (size_t)(mine * big_dim * 4))};
    TRY(fo_plan_create(g, &desc, &plan));
    TRY(follows(g, plan, &args, 0, "none"));
    TRY(follows(g, plan, &args, rate, "flash"));
    TRY(follows(g, plan, &args, rate * 1e6, "none"));
    TRY(fo_plan_execute(plan, &args));
    fo_plan_report(plan, &report);
    if (report.executions != 4 || report.total_ns < 60000000)
        return fo_base_error(FO_INTERNAL, "%lld executions in %lld ns, expected 4 of 20 ms or more",
                             (long long)report.executions, (long long)report.total_ns);
    if (report.sent_bytes != 4 * fo_plan_wire_bytes(plan))
        return fo_base_error(FO_INTERNAL, "%lld bytes sent, expected four times %lld",
                             (long long)report.sent_bytes, (long long)fo_plan_wire_bytes(plan));
    fo_plan_destroy(plan);
    return FO_OK;
}

static void the_link_is_followed(void **state)
{
    (void)state;
    fo_group_options options = emulated(2, 0, FO_SWITCH);
    expect(&options, link_rank, NULL);
}

/* ---- learning --------------------------------------------------------------------------------------- */

/* With fewer heads than ranks one has no features; memory of 2 MiB a rank holds nothing to measure with. */
static fo_status small_rank(fo_group *g, void *arg)
{
    const fo_op *op = arg;
    bool attention = *op == FO_ATTENTION_FORWARD;
    int heads = fo_group_rank(g) < 2;
    fo_plan *plan;
    fo_prediction p;
    fo_plan_desc desc = {.op = *op,
                         .rows = 192,
                         .in = attention ? 16 * heads : 40 * heads,
                         .out = 24,
                         .overlap = "flash"};
    if (attention)
        desc.attention = (fo_plan_attention){.batch = 3,
                                             .context = 64,
                                             .heads = heads,
                                             .head_dim = 16,
                                             .head_offset = fo_group_rank(g),
                                             .total_heads = 2};
    TRY(fo_plan_create(g, &desc, &plan));
    fo_status status = fo_plan_predict(plan, true, &p);
    fo_plan_destroy(plan);
    TRY(status);
    if (p.total_s > 0 && p.none_s > 0 && p.compute_s > 0)
        return FO_OK;
    return fo_base_error(FO_INTERNAL, "operation %d is predicted to take %g s, %g of computation",
                         (int)*op, p.total_s, p.compute_s);
}

static void learnt_in_little_memory_and_without_features(void **state)
{
    (void)state;
    fo_op ops[] = {FO_ROW_FORWARD, FO_ATTENTION_FORWARD};
    for (int i = 0; i < 4; i++) {
        fo_group_options options = {.ranks = 3,
                                    .threads = 1,
                                    .kernel = "ref",
                                    .transport = i / 2 ? "self" : "shm",
                                    .memory = (size_t)2 << 20,
                                    .deadline_s = 30};
        fo_op_wisdom_forget();
        expect(&options, small_rank, &ops[i % 2]);
    }
}

/* What ranks do with each other they do equally often, however long it takes each of them. */
typedef struct together {
    fo_group *group;
    int count;
} together;

static fo_status meet(void *work, int index)
{
    together *t = work;
    int64_t us = fo_group_rank(t->group) == 1 ? 3000 : 20 * (index % 3);
    t->count++;
    struct timespec pause = {.tv_nsec = us * 1000};
    nanosleep(&pause, NULL);
    return FO_OK;
}

static fo_status together_rank(fo_group *g, void *arg)
{
    (void)arg;
    together t = {g, 0};
    fo_op_figure figure = {NAN, NAN};
    int counts[8];
    TRY(fo_op_learn_sample_together(g, meet, &t, &figure));
    TRY(fo_group_allgather(g, &t.count, sizeof t.count, counts));
    for (int r = 0; r < fo_group_size(g); r++)
        if (counts[r] != t.count)
            return fo_base_error(FO_INTERNAL, "rank %d met %d times, this one %d times", r,
                                 counts[r], t.count);
    if (!(figure.seconds > 0))
        return fo_base_error(FO_INTERNAL, "%g s a meeting", figure.seconds);
    return FO_OK;
}

static void ranks_meet_equally_often(void **state)
{
    (void)state;
    fo_group_options options = {
        .ranks = 3, .threads = 1, .kernel = "ref", .transport = "self", .deadline_s = 30};
    expect(&options, together_rank, NULL);
}

static fo_status no_memory_rank(fo_group *g, void *arg)
{
    (void)arg;
    fo_status status = fo_op_learn_all_have(g, fo_group_rank(g) != 1, "a test");
    if (status != FO_NO_MEMORY || !strstr(fo_last_error(), "a test"))
        return fo_base_error(FO_INTERNAL, "rank %d was not told of rank 1", fo_group_rank(g));
    return fo_op_learn_all_have(g, true, "a test");
}

static void one_without_memory_is_told_to_all(void **state)
{
    (void)state;
    fo_group_options options = {
        .ranks = 3, .threads = 1, .kernel = "ref", .transport = "self", .deadline_s = 30};
    expect(&options, no_memory_rank, NULL);
}

/* ---- profiles ---------------------------------------------------------------------------------------- */

static fo_status one_plan(fo_group *g, void *arg)
{
    (void)arg;
    run r;
    fo_plan *plan;
    make(g, &settings[0], &r);
    r.desc.overlap = "auto";
    TRY(fo_plan_create(g, &r.desc, &plan));
    fo_plan_destroy(plan);
    return FO_OK;
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void a_named_profile_must_be_right(void **state)
{
    (void)state;
    char path[128];
    fo_group_options options = {
        .ranks = 3, .threads = 1, .kernel = "ref", .transport = "shm", .deadline_s = 30};
    snprintf(path, sizeof path, "%s/bad.json", folder);
    write_file(path, "{\"format\": \"flashoverlap-machine-profile\", \"format_version\": 7}");
    setenv("FLASHOVERLAP_PROFILE", path, 1);
    assert_int_equal(fo_group_run(&options, one_plan, NULL), FO_INVALID);
    if (!strstr(fo_last_error(), "bad.json") || !strstr(fo_last_error(), "format_version"))
        fail_msg("'%s' names neither file nor field", fo_last_error());
    unsetenv("FLASHOVERLAP_PROFILE");
    expect(&options, one_plan, NULL);
}

/* ---- wisdom ------------------------------------------------------------------------------------------- */

static fo_op_fact fact(const char *what, int64_t rows, double value)
{
    fo_op_fact f = {.dtype = FO_BF16, .ranks = 2, .rows = rows, .k = 5, .n = 7, .value = value};
    snprintf(f.what, sizeof f.what, "%s", what);
    return f;
}

static const char machine[] = "a machine | 3 cores";

static fo_op_wisdom *some_wisdom(void)
{
    fo_op_wisdom *w = calloc(1, sizeof *w);
    fo_op_fact facts[] = {fact("gemm:y:f32", 64, 1.25e-3), fact("wgrad", 256, 0),
                          fact("pack", 0, 7e9)};
    assert_non_null(w);
    fo_op_wisdom_read(w, machine);
    assert_int_equal(w->count, 0);
    for (int i = 0; i < 3; i++)
        fo_op_wisdom_learn(w, &facts[i]);
    fo_op_wisdom_keep(w);
    assert_string_equal(w->note, "");
    return w;
}

static double known(const fo_op_wisdom *w, const char *what, int64_t rows)
{
    fo_op_fact like = fact(what, rows, -1);
    const fo_op_fact *found = fo_op_wisdom_find(w, &like);
    return found ? found->value : NAN;
}

static void wisdom_comes_back(void **state)
{
    (void)state;
    fo_op_wisdom_forget();
    fo_op_wisdom *w = some_wisdom(), *again = calloc(1, sizeof *again);
    assert_non_null(again);
    fo_op_wisdom_read(again, machine);
    assert_string_equal(again->note, "");
    assert_int_equal(again->count, 3);
    assert_true(known(again, "gemm:y:f32", 64) == 1.25e-3 && known(again, "pack", 0) == 7e9);
    assert_true(known(again, "wgrad", 256) == 0);
    assert_true(isnan(known(again, "wgrad", 255)) && isnan(known(again, "gemm:y", 64)));
    /* what is unsteady serves, and is gone with the run; what another process has learnt joins */
    fo_op_fact shaky = fact("gemm:y:f32", 128, 1), other = fact("gemm:y:f32", 192, 2);
    shaky.unsteady = true;
    fo_op_wisdom_learn(w, &shaky);
    fo_op_wisdom_learn(again, &other);
    fo_op_wisdom_keep(again);
    fo_op_wisdom_keep(w);
    assert_true(known(w, "gemm:y:f32", 128) == 1 && known(w, "gemm:y:f32", 192) == 2);
    fo_op_wisdom_read(again, machine);
    assert_true(isnan(known(again, "gemm:y:f32", 128)) && known(again, "gemm:y:f32", 192) == 2);
    /* nobody else's */
    fo_op_wisdom_read(again, "another machine");
    assert_int_equal(again->count, 0);
    assert_true(fo_op_wisdom_forget() >= 1);
    fo_op_wisdom_read(again, machine);
    assert_int_equal(again->count, 0);
    assert_string_equal(again->note, "");
    free(again);
    free(w);
}

/* Every way to spoil a file is noticed, and nothing of it is used. */
static void spoilt_wisdom_is_not_used(void **state)
{
    (void)state;
    static const struct {
        const char *text, *note;
    } cases[] = {
        {"", "another version"},
        {"flashoverlap-wisdom 2\nmachine a machine | 3 cores\n", "another version"},
        {"flashoverlap-wisdom 1\nmachine b machine | 3 cores\n", "another machine"},
        {"flashoverlap-wisdom 1\n", "another machine"},
        {"flashoverlap-wisdom 1\nmachine a machine | 3 cores\ngemm f32 ranks 2 rows 1 k 1 n 1 is "
         "1\ngemm f32\n",
         "line 4"},
        {"flashoverlap-wisdom 1\nmachine a machine | 3 cores\ngemm f64 ranks 2 rows 1 k 1 n 1 is "
         "1\n",
         "line 3"},
        {"flashoverlap-wisdom 1\nmachine a machine | 3 cores\ngemm f32 ranks 0 rows 1 k 1 n 1 is "
         "1\n",
         "line 3"},
        {"flashoverlap-wisdom 1\nmachine a machine | 3 cores\ngemm f32 ranks 2 rows -1 k 1 n 1 is "
         "1\n",
         "line 3"},
        {"flashoverlap-wisdom 1\nmachine a machine | 3 cores\ngemm f32 ranks 2 rows 1 k 1 n 1 is "
         "nan\n",
         "line 3"},
        {"flashoverlap-wisdom 1\nmachine a machine | 3 cores\ngemm f32 ranks 2 rows 1 k 1 n 1 is "
         "-2\n",
         "line 3"},
        {"flashoverlap-wisdom 1\nmachine a machine | 3 cores\ngemm f32 ranks 2 rows 1 k 1 n 1 is 1 "
         "2\n",
         "line 3"},
        {"flashoverlap-wisdom 1\nmachine a machine | 3 cores\nge'mm f32 ranks 2 rows 1 k 1 n 1 is "
         "1\n",
         "line 3"},
        {"flashoverlap-wisdom 1\nmachine a machine | 3 cores\ngemm f32 ranks 2 rows 1 k 1 n 1 is 1",
         "cut off"},
    };
    fo_op_wisdom *w = some_wisdom(), *again = calloc(1, sizeof *again);
    assert_non_null(again);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_file(w->path, cases[i].text);
        fo_op_wisdom_read(again, machine);
        if (again->count || !strstr(again->note, cases[i].note))
            fail_msg("case %zu: %d facts, note '%s', expected none and '%s'", i, again->count,
                     again->note, cases[i].note);
    }
    /* learnt anew, it is written over */
    fo_op_wisdom_keep(w);
    fo_op_wisdom_read(again, machine);
    assert_int_equal(again->count, 3);
    free(again);
    free(w);
}

static void without_a_place(void **state)
{
    (void)state;
    char file[128], nested[160];
    fo_op_fact one = fact("gemm:y:f32", 64, 1);
    fo_op_wisdom *w = calloc(1, sizeof *w);
    assert_non_null(w);
    snprintf(file, sizeof file, "%s/file", folder);
    snprintf(nested, sizeof nested, "%s/nested", file);
    write_file(file, "");
    setenv("XDG_CACHE_HOME", nested, 1); /* its folder is a file */
    fo_op_wisdom_read(w, machine);
    fo_op_wisdom_learn(w, &one);
    fo_op_wisdom_keep(w);
    assert_non_null(strstr(w->note, "could not be kept"));
    assert_true(known(w, "gemm:y:f32", 64) == 1);
    fo_group_options options = {
        .ranks = 2, .threads = 1, .kernel = "ref", .transport = "self", .deadline_s = 30};
    expect(&options, one_plan, NULL);
    setenv("XDG_CACHE_HOME", folder, 1);
    free(w);
}

static void a_named_profile_is_not_forgotten(void **state)
{
    (void)state;
    char path[128], place[FO_OP_WISDOM_PATH];
    snprintf(path, sizeof path, "%s/profile-0123456789abcdef.json", folder);
    write_file(path, "{}");
    setenv("FLASHOVERLAP_PROFILE", path, 1);
    fo_op_wisdom_path(machine, place);
    assert_memory_equal(place, folder, strlen(folder)); /* beside it */
    write_file(place, "flashoverlap-wisdom 1\n");
    fo_op_wisdom_forget();
    assert_int_equal(access(path, F_OK), 0);
    assert_int_not_equal(access(place, F_OK), 0);
    unsetenv("FLASHOVERLAP_PROFILE");
}

static int make_folder(void **state)
{
    (void)state;
    unsetenv("FLASHOVERLAP_PROFILE");
    return mkdtemp(folder) && setenv("XDG_CACHE_HOME", folder, 1) == 0 ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[160];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_those_of_none),
        cmocka_unit_test(predictions_of_a_known_device),
        cmocka_unit_test(direct_only_with_the_same_bits),
        cmocka_unit_test(none_where_nothing_is_gained),
        cmocka_unit_test(the_link_is_followed),
        cmocka_unit_test(learnt_in_little_memory_and_without_features),
        cmocka_unit_test(ranks_meet_equally_often),
        cmocka_unit_test(one_without_memory_is_told_to_all),
        cmocka_unit_test(a_named_profile_must_be_right),
        cmocka_unit_test(wisdom_comes_back),
        cmocka_unit_test(spoilt_wisdom_is_not_used),
        cmocka_unit_test(without_a_place),
        cmocka_unit_test(a_named_profile_is_not_forgotten),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
