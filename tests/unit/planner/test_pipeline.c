/* Pipelines: against closed forms, against a naive solver of the same constraints, and in proportion. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/random.h"
#include "planner/pipeline.h"
#include "unit/data/scratch.h"

enum { MOST = 64 };

static double uniform(uint64_t key, uint64_t index, double low, double high)
{
    return low + (high - low) * (double)fo_base_random_uniform(key, 0, index);
}

static double total_of(const fo_planner_pipeline *p)
{
    double total_s = -1;
    expect_ok(fo_planner_pipeline_run(p, &total_s, NULL));
    return total_s;
}

/* Equal stages, no transfers: bubble = (pp - 1) / (interleave * micro-batches) of the computation. */
static void bubbles(void **state)
{
    (void)state;
    double forward[MOST], backward[MOST], none[MOST] = {0};
    for (int stages = 1; stages <= 9; stages++) {
        for (int chunks = 1; chunks <= 4; chunks++) {
            for (int j = 0; j < stages * chunks; j++) {
                forward[j] = 1.0 / chunks;
                backward[j] = 2.5 / chunks;
            }
            for (int64_t m = stages; m <= 5 * stages; m += stages) {
                fo_planner_pipeline p = {stages, chunks, m, forward, backward, none, NULL, 0};
                double work = 3.5 * (double)m, total = total_of(&p);
                double bubble = (double)(stages - 1) / (double)(chunks * m);
                if (fabs(total - work * (1 + bubble)) > 1e-9 * work)
                    fail_msg("%d stages, %d chunks, %lld micro-batches: %g, expected %g", stages,
                             chunks, (long long)m, total, work * (1 + bubble));
            }
        }
    }
}

/* Every pass begins at the latest of what it waits for; solved by sweeping until nothing changes, with lists of passes
 * written out as Megatron-LM's description has them. */
typedef struct pass {
    int j;
    int64_t b;
    bool backward;
} pass;

static int64_t list(const fo_planner_pipeline *p, int s, pass *out)
{
    int64_t units = p->micro_batches * p->chunks, count = 0, forward = 0, backward = 0;
    int64_t warm =
        p->chunks == 1 ? p->stages - s - 1 : (p->stages - s - 1) * 2 + (p->chunks - 1) * p->stages;
    while (backward < units) {
        bool ahead = forward < units && (forward < warm || forward - backward <= warm);
        int64_t k = ahead ? forward++ : backward++, group = p->chunks > 1 ? p->stages : 1;
        int64_t chunk = k / group % p->chunks;
        int64_t b = k / (group * p->chunks) * group + k % group;
        if (!ahead)
            chunk = p->chunks - 1 - chunk;
        out[count++] = (pass){(int)chunk * p->stages + s, b, !ahead};
    }
    return count;
}

static double naive(const fo_planner_pipeline *p)
{
    int all = p->stages * p->chunks;
    int64_t m = p->micro_batches, per = 2 * m * p->chunks;
    double *end = calloc((size_t)(2 * all * m), sizeof *end), total = 0;
    pass *passes = calloc((size_t)per, sizeof *passes);
    bool changed = true;
    while (changed) {
        changed = false;
        for (int s = 0; s < p->stages; s++) {
            double free_s = 0;
            assert_int_equal(list(p, s, passes), per);
            for (int64_t i = 0; i < per; i++) {
                int j = passes[i].j, way = passes[i].backward;
                int64_t b = passes[i].b, at = (way * all + j) * m + b;
                double begin = free_s;
                if (!way && j > 0)
                    begin = fmax(begin, end[at - m] + p->transfer_s[(j - 1) % p->stages]);
                if (!way && b == 0 && p->ready_s)
                    begin = fmax(begin, p->ready_s[j]);
                if (way && j < all - 1)
                    begin = fmax(begin, end[at + m] + p->transfer_s[j % p->stages]);
                free_s = begin + (way ? p->backward_s : p->forward_s)[j];
                changed |= free_s > end[at] + 1e-12;
                end[at] = free_s;
                total = fmax(total, free_s);
            }
        }
    }
    free(end);
    free(passes);
    return total;
}

typedef struct random_case {
    double forward[MOST], backward[MOST], transfer[MOST], ready[MOST];
    fo_planner_pipeline p;
} random_case;

static void make(random_case *c, uint64_t key)
{
    int stages = 1 + (int)fo_base_random_below(key, 1, 0, 7);
    int chunks = stages == 1 ? 1 : 1 + (int)fo_base_random_below(key, 1, 1, 4);
    int64_t m = 1 + (int64_t)fo_base_random_below(key, 1, 2, 12);
    double messages = key % 3 ? uniform(key, 999, 0, 1) : 0;
    for (int j = 0; j < stages * chunks; j++) {
        c->forward[j] = uniform(key, (uint64_t)j, 0.5, 2);
        c->backward[j] = uniform(key, 100 + (uint64_t)j, 1, 4);
        c->transfer[j] = messages * uniform(key, 200 + (uint64_t)j, 0, 1);
        c->ready[j] = uniform(key, 300 + (uint64_t)j, 0, 9);
    }
    c->p = (fo_planner_pipeline){stages,      chunks,      chunks > 1 ? m * stages : m, c->forward,
                                 c->backward, c->transfer, key % 2 ? c->ready : NULL,   0};
}

static void same_as_naive(void **state)
{
    (void)state;
    for (uint64_t key = 1; key <= 400; key++) {
        random_case c;
        make(&c, key);
        double found = total_of(&c.p), expected = naive(&c.p);
        if (fabs(found - expected) > 1e-9 * expected)
            fail_msg("case %d: %g, expected %g", (int)key, found, expected);
    }
}

/* No stage does its work faster than alone; the last backward passes end where their stage does. */
static void bounds(void **state)
{
    (void)state;
    for (uint64_t key = 1; key <= 200; key++) {
        random_case c;
        fo_planner_pipeline_end ends[MOST];
        double total_s, last = 0;
        make(&c, key);
        c.p.ready_s = NULL;
        expect_ok(fo_planner_pipeline_run(&c.p, &total_s, ends));
        for (int s = 0; s < c.p.stages; s++) {
            double work = 0;
            for (int j = s; j < c.p.stages * c.p.chunks; j += c.p.stages) {
                work += (double)c.p.micro_batches * (c.forward[j] + c.backward[j]);
                assert_true(fabs(ends[j].end_s - ends[j].begin_s - c.backward[j]) < 1e-9);
                last = fmax(last, ends[j].end_s);
            }
            assert_true(total_s >= work - 1e-9);
        }
        assert_true(last == total_s);
        double before = total_s;
        c.forward[0] *= 1.5; /* more work never ends earlier */
        assert_true(total_of(&c.p) >= before - 1e-9);
    }
}

/* Many micro-batches by their rhythm are what they are one by one. */
static void rhythm(void **state)
{
    (void)state;
    for (uint64_t key = 1; key <= 60; key++) {
        random_case c;
        fo_planner_pipeline_end exact[MOST], short_cut[MOST];
        double exact_s, short_s;
        make(&c, key);
        c.p.micro_batches =
            (40 + (int64_t)(key % 17)) * c.p.stages + (c.p.chunks > 1 ? 0 : key % 3);
        expect_ok(fo_planner_pipeline_run(&c.p, &exact_s, exact));
        c.p.most_passes = 1;
        expect_ok(fo_planner_pipeline_run(&c.p, &short_s, short_cut));
        if (fabs(short_s - exact_s) > 1e-3 * exact_s)
            fail_msg("case %d: %g, expected %g", (int)key, short_s, exact_s);
        for (int stage = 0; stage < c.p.stages; stage++) { /* no stage has more to do than time */
            double once = 0;
            for (int j = stage; j < c.p.stages * c.p.chunks; j += c.p.stages)
                once += c.forward[j] + c.backward[j];
            assert_true(short_s >= (double)c.p.micro_batches * once * (1 - 1e-12));
        }
        for (int j = 0; j < c.p.stages * c.p.chunks; j++)
            assert_true(fabs(short_cut[j].end_s - exact[j].end_s) < 2e-3 * exact_s);
    }
}

static void refused(void **state)
{
    (void)state;
    double one[4] = {1, 1, 1, 1}, total_s;
    fo_planner_pipeline p = {2, 2, 3, one, one, one, NULL, 0};
    expect_fails(fo_planner_pipeline_run(&p, &total_s, NULL), FO_INVALID, "3 micro-batches");
    p.micro_batches = 0;
    expect_fails(fo_planner_pipeline_run(&p, &total_s, NULL), FO_INVALID, "0 micro-batches");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bubbles), cmocka_unit_test(same_as_naive), cmocka_unit_test(bounds),
        cmocka_unit_test(rhythm),  cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
