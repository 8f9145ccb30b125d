/* What is recorded of an execution is what the program says, on every rank and at both ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "flashoverlap/plan.h"
#include "flashoverlap/trace.h"

enum { ROWS = 700, IN = 24, OUT = 40 };

#define CHECK(condition, ...)                               \
    do {                                                    \
        if (!(condition))                                   \
            return fo_base_error(FO_INTERNAL, __VA_ARGS__); \
    } while (0)

static bool on_lane(const fo_event *e)
{
    return e->kind != FO_EVENT_SEND && e->kind != FO_EVENT_RECV;
}

/* Two events that may not be at the same time. */
static bool same_lane(const fo_event *a, const fo_event *b)
{
    if (a->rank != b->rank || on_lane(a) != on_lane(b))
        return false;
    return on_lane(a) || (a->kind == b->kind && a->peer == b->peer && a->channel == b->channel);
}

static fo_status check_lanes(const fo_timeline *t)
{
    for (int64_t i = 0; i < t->count; i++) {
        const fo_event *a = &t->events[i];
        CHECK(a->begin_ns <= a->end_ns && a->begin_ns >= t->begin_ns && a->end_ns <= t->end_ns,
              "event %lld is outside the trace", (long long)i);
        CHECK(!i || t->events[i - 1].rank <= a->rank, "events are not by rank");
        for (int64_t k = 0; k < i; k++)
            CHECK(!same_lane(a, &t->events[k]) || t->events[k].end_ns <= a->begin_ns ||
                      a->end_ns <= t->events[k].begin_ns,
                  "events %lld and %lld of rank %d are at the same time on one lane", (long long)k,
                  (long long)i, a->rank);
    }
    return FO_OK;
}

/* Rows of all events of a kind and slot on a rank. */
static int64_t rows_of(const fo_timeline *t, int rank, int kind, int slot)
{
    int64_t rows = 0;
    for (int64_t i = 0; i < t->count; i++)
        if (t->events[i].rank == rank && t->events[i].kind == kind && t->events[i].slot == slot)
            rows += t->events[i].rows;
    return rows;
}

static fo_status check_flows(const fo_timeline *t)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < t->count; i++) {
        const fo_event *send = &t->events[i], *receive = NULL;
        if (send->kind != FO_EVENT_SEND)
            continue;
        CHECK(send->flow, "a SEND without a flow");
        for (int64_t k = 0; k < t->count; k++) {
            const fo_event *e = &t->events[k];
            CHECK(k == i || e->flow != send->flow || e->kind == FO_EVENT_RECV,
                  "two SENDs have one flow");
            if (e->kind == FO_EVENT_RECV && e->flow == send->flow) {
                CHECK(!receive, "two RECVs have one flow");
                receive = e;
            }
        }
        CHECK(receive && receive->rank == send->peer && receive->peer == send->rank &&
                  receive->row == send->row && receive->rows == send->rows &&
                  receive->channel == send->channel && receive->bytes == send->bytes,
              "a flow has two ends that differ");
        CHECK(send->end_ns <= receive->end_ns || send->end_ns == send->begin_ns,
              "a SEND ends after its rows were seen");
        bytes += send->bytes;
    }
    CHECK(bytes > 0 || t->ranks == 1, "nothing was sent");
    return FO_OK;
}

static fo_status check_timeline(const fo_timeline *t, int ranks, const char *overlap)
{
    CHECK(t->ranks == ranks && t->dropped == 0 && t->count > 0,
          "the timeline has %d ranks, %lld events", t->ranks, (long long)t->count);
    for (int r = 0; r < ranks; r++)
        CHECK(rows_of(t, r, FO_EVENT_COMPUTE, 0) == 2 * ROWS &&
                  rows_of(t, r, FO_EVENT_COMPUTE, 1) == 2 * ROWS,
              "%s: rank %d computed %lld and %lld rows, expected %d each", overlap, r,
              (long long)rows_of(t, r, FO_EVENT_COMPUTE, 0),
              (long long)rows_of(t, r, FO_EVENT_COMPUTE, 1), 2 * ROWS);
    bool named = false, local = false;
    for (int n = 0; n < t->name_count; n++) {
        named |= !strcmp(t->names[n], "a layer");
        local |= !strcmp(t->names[n], "something local");
    }
    CHECK(named && local, "names are missing");
    fo_status status = check_lanes(t);
    return status == FO_OK ? check_flows(t) : status;
}

static fo_status record(fo_group *g, const char *overlap)
{
    int64_t mine = fo_shard_rows(ROWS, fo_group_size(g), fo_group_rank(g));
    float *x = fo_group_alloc(g, ROWS * IN * 4 + 64), *dy = fo_group_alloc(g, ROWS * OUT * 4 + 64);
    float *w = calloc(IN * OUT, 4), *dw = calloc(IN * OUT, 4),
          *dx = calloc((size_t)mine * IN + 1, 4);
    fo_plan_desc desc = {.op = FO_COLUMN_BACKWARD,
                         .rows = ROWS,
                         .in = IN,
                         .out = OUT,
                         .overlap = overlap,
                         .name = "a layer"};
    fo_plan_args args = {.x = x, .dy = dy, .w = w, .dw = dw, .dx = dx};
    fo_plan *plan;
    fo_timeline *timeline = NULL;
    fo_status status = fo_plan_create(g, &desc, &plan);
    if (status == FO_OK)
        status = fo_plan_execute(plan, &args); /* not recorded */
    if (status == FO_OK)
        status = fo_trace_start(g, 0);
    if (status == FO_OK && fo_trace_start(g, 0) != FO_INVALID)
        status = fo_base_error(FO_INTERNAL, "a second start was not refused");
    if (status == FO_OK)
        status = fo_group_barrier(g); /* all record */
    for (int i = 0; status == FO_OK && i < 2; i++)
        status = fo_plan_execute(plan, &args);
    fo_trace_local(g, "something local", fo_trace_clock());
    if (status == FO_OK)
        status = fo_trace_stop(g, &timeline);
    if (status == FO_OK && (timeline != NULL) != (fo_group_rank(g) == 0))
        status = fo_base_error(FO_INTERNAL, "the timeline is not rank 0's");
    if (status == FO_OK && timeline)
        status = check_timeline(timeline, fo_group_size(g), overlap);
    fo_timeline_free(timeline);
    fo_plan_destroy(plan);
    void *memory[] = {w, dw, dx};
    for (int i = 0; i < 3; i++)
        free(memory[i]);
    fo_group_free(g, x);
    fo_group_free(g, dy);
    return status;
}

static fo_status record_all(fo_group *g, void *arg)
{
    static const char *const strategies[] = {"none", "slice:3", "ring", "flash", "direct:2"};
    (void)arg;
    fo_status status = FO_OK;
    for (int i = 0; status == FO_OK && i < 5; i++)
        status = record(g, strategies[i]);
    return status;
}

/* Too little room: what does not fit is counted, the rest is there. */
static fo_status record_little(fo_group *g, void *arg)
{
    (void)arg;
    fo_timeline *timeline;
    fo_status status = fo_trace_start(g, 3);
    for (int i = 0; i < 5; i++)
        fo_trace_local(g, i % 2 ? "odd" : "even", fo_trace_clock());
    if (status == FO_OK)
        status = fo_trace_stop(g, &timeline);
    if (status == FO_OK && timeline &&
        (timeline->count != 3L * timeline->ranks || timeline->dropped != 2L * timeline->ranks ||
         timeline->name_count != 2))
        status = fo_base_error(FO_INTERNAL, "%lld events kept, %lld dropped, %d names",
                               (long long)timeline->count, (long long)timeline->dropped,
                               timeline->name_count);
    if (status == FO_OK && fo_trace_stop(g, &timeline) != FO_INVALID)
        status = fo_base_error(FO_INTERNAL, "a stop without a start was not refused");
    return status;
}

static void run(const char *transport, int ranks, fo_link link, fo_rank_main work)
{
    fo_group_options options = {
        .ranks = ranks, .threads = 1, .transport = transport, .deadline_s = 30, .link = link};
    if (fo_group_run(&options, work, NULL) != FO_OK)
        fail_msg("%s N=%d: %s", transport, ranks, fo_last_error());
}

static void recorded_is_what_ran(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 4; ranks++) {
        run("self", ranks, (fo_link){0}, record_all);
        run("shm", ranks, (fo_link){0}, record_all);
    }
    run("shm", 3, (fo_link){.bytes_per_s = 2e8, .latency_s = 1e-5}, record_all);
}

static void a_full_recorder_counts(void **state)
{
    (void)state;
    run("shm", 3, (fo_link){0}, record_little);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(recorded_is_what_ran),
                                       cmocka_unit_test(a_full_recorder_counts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
