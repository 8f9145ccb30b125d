/* Writes a demonstration of the report: make_page [--simulated] PAGE [TRACE [LAYERS]]. Four strategies on four ranks with
 * synthetic, plausible events; several points, notes, losses, names that would break out of the page. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace/page.h"

enum { RANKS = 4, STEPS = 120, STRATEGIES = 4, EVENTS = 1 << 20 };

static const char *const strategies[STRATEGIES] = {"none", "slice:4", "ring", "flash"};
static const char *const names[] = {"mlp in", "mlp out", "attention out", "norm", "weights"};
enum { MLP_IN, MLP_OUT, ATTENTION_OUT, NORM, WEIGHTS };

/* Of a slice: how long it is computed and how long it travels, nanoseconds. */
enum { SLICE_NS = 4200000, TRAVEL_NS = 3500000, ROWS = 512 };

typedef struct recording {
    fo_event *events;
    int64_t count;
    int64_t now[RANKS];
    uint64_t noise;
} recording;

static double noise(recording *r)
{
    r->noise = r->noise * 6364136223846793005u + 1442695040888963407u;
    return (double)(r->noise >> 40) / (1 << 24);
}

static fo_event *put(recording *r, int kind, int rank, int name, int64_t begin, int64_t ns)
{
    fo_event *event = &r->events[r->count < EVENTS - 1 ? r->count++ : r->count];
    *event = (fo_event){.begin_ns = begin,
                        .end_ns = begin + ns,
                        .kind = kind,
                        .rank = rank,
                        .name = name,
                        .slot = -1,
                        .step = -1,
                        .shard = -1,
                        .sub = -1,
                        .peer = -1,
                        .channel = -1};
    return event;
}

static void put_work(recording *r, int kind, int rank, int name, int shard, int64_t ns)
{
    fo_event *event = put(r, kind, rank, name, r->now[rank], ns);
    event->slot = kind == FO_EVENT_COMPUTE ? 0 : -1;
    event->shard = shard;
    event->sub = shard < 0 ? -1 : 0;
    event->row = shard < 0 ? 0 : (int64_t)shard * ROWS;
    event->rows = shard < 0 ? 0 : ROWS;
    r->now[rank] += ns;
}

/* A message from rank to its neighbour, seen from both ends. */
static void put_message(recording *r, int rank, int name, int channel, int shard, int64_t begin,
                        int64_t ns)
{
    static uint64_t flow;
    flow++;
    for (int end = 0; end < 2; end++) {
        fo_event *event = put(r, end ? FO_EVENT_RECV : FO_EVENT_SEND,
                              end ? (rank + 1) % RANKS : rank, name, begin + (end ? 40000 : 0), ns);
        event->peer = end ? rank : (rank + 1) % RANKS;
        event->channel = channel;
        event->shard = shard;
        event->sub = 0;
        event->row = (int64_t)shard * ROWS;
        event->rows = ROWS;
        event->bytes = ROWS * 2048;
        event->flow = flow;
    }
}

static void wait_until(recording *r, int rank, int name, int shard, int peer, int64_t time)
{
    if (time <= r->now[rank])
        return;
    fo_event *event = put(r, FO_EVENT_WAIT, rank, name, r->now[rank], time - r->now[rank]);
    event->shard = shard;
    event->sub = 0;
    event->peer = peer;
    r->now[rank] = time;
}

static int64_t latest(const recording *r)
{
    int64_t time = 0;
    for (int rank = 0; rank < RANKS; rank++)
        time = r->now[rank] > time ? r->now[rank] : time;
    return time;
}

/* An operator whose input is gathered, or whose partial sums are scattered. How much of a message's way
 * has something computed beside it is what the strategies differ in. */
static void put_operator(recording *r, int strategy, int name, int channel)
{
    static const double beside[STRATEGIES] = {0, 0.72, 0.9, 1.02};
    int64_t begin = latest(r);
    for (int rank = 0; rank < RANKS; rank++) {
        int peer = (rank + RANKS - 1) % RANKS;
        int64_t travels = begin + (channel ? SLICE_NS / 3 : 0);
        wait_until(r, rank, name, -1, -1, strategy == 2 ? begin : 0);
        for (int step = 0; step < RANKS; step++) {
            int shard = (rank + RANKS - step) % RANKS;
            int64_t ns =
                (int64_t)(SLICE_NS * (strategy == 1 ? 1.06 : 1.0) * (0.97 + 0.06 * noise(r)));
            int64_t arrival = travels;
            if (step > 0)
                wait_until(r, rank, name, shard, peer,
                           arrival - (int64_t)(beside[strategy] * TRAVEL_NS * 0.2));
            put_work(r, FO_EVENT_COMPUTE, rank, name, shard, ns);
            if (channel && step > 0)
                put_work(r, FO_EVENT_ADD, rank, name, shard, 180000);
            if (step < RANKS - 1) {
                int64_t from = strategy == 0 ? r->now[rank] : travels > begin ? travels : begin;
                int64_t way = (int64_t)(TRAVEL_NS * (0.98 + 0.1 * noise(r)));
                put_message(r, rank, name, channel, shard, from, way);
                travels = from + way;
            }
        }
        if (strategy < 3)
            wait_until(r, rank, name, (rank + 1) % RANKS, peer,
                       r->now[rank] + (int64_t)((1 - beside[strategy]) * TRAVEL_NS));
    }
}

static fo_timeline record(int strategy, int layers)
{
    recording r = {.events = calloc(EVENTS, sizeof(fo_event)), .noise = 7};
    for (int layer = 0; layer < layers && r.events; layer++) {
        for (int rank = 0; rank < RANKS; rank++) {
            put_work(&r, FO_EVENT_LOCAL, rank, NORM, -1, 700000);
            put_work(&r, FO_EVENT_PACK, rank, WEIGHTS, -1, 500000);
        }
        put_operator(&r, strategy, ATTENTION_OUT, 1);
        put_operator(&r, strategy, MLP_IN, 0);
        put_operator(&r, strategy, MLP_OUT, 1);
    }
    return (fo_timeline){.ranks = RANKS,
                         .names = names,
                         .name_count = sizeof names / sizeof names[0],
                         .events = r.events,
                         .count = r.count,
                         .dropped = strategy == 1 ? 12 : 0,
                         .end_ns = latest(&r)};
}

/* Longer points cost more than in proportion; the first is the one of the timelines. */
static int fill_rows(fo_page_row *rows, const fo_timeline *timelines)
{
    static const char *const points[] = {"16 x 512", "16 x 1024", "4 x 2048"};
    double alone = (double)timelines[3].end_ns / 1e6 - 0.71, ect[STRATEGIES];
    for (int s = 0; s < STRATEGIES; s++)
        ect[s] = (double)timelines[s].end_ns / 1e6 - alone;
    int count = 0;
    for (int point = 0; point < 3; point++)
        for (int s = 0; s < STRATEGIES; s++) {
            double compute = alone * (1 + point * 0.93), lost = ect[s] * (1 + point * 0.8);
            double t = compute + lost, bound = compute + 0.3;
            fo_page_row row = {.point = points[point],
                               .overlap = strategies[s],
                               .t_ms = t,
                               .t_low_ms = t * 0.991,
                               .t_high_ms = t * 1.017,
                               .compute_ms = compute,
                               .predicted_ms = t * (1 + 0.002 * s),
                               .ect_ms = lost,
                               .hidden_pct = 100 * (1 - ect[s] / ect[0]),
                               .exposed_ms = lost * 0.83,
                               .bound_ms = bound,
                               .gap_pct = 100 * (t / bound - 1),
                               .bits = 1};
            if (point == 2 && s == 2)
                row =
                    (fo_page_row){.point = points[point],
                                  .overlap = strategies[s],
                                  .t_ms = NAN,
                                  .compute_ms = compute,
                                  .note =
                                      "needs at least as many rows in a shard as there are ranks: "
                                      "4 x 2048 has too few <rows> & \"shards\""};
            rows[count++] = row;
        }
    return count;
}

static const fo_page_fact facts[] = {
    {"processor", "2 x AMD EPYC 9454 48-Core Processor, 96 cores"},
    {"instruction sets", "AVX512, AVX512_BF16"},
    {"memory", "755 GiB"},
    {"ranks x threads", "4 x 24"},
    {"kernel", "onednn 3.4, bf16"},
    {"link", "emulated, switch, 2.41 GB/s, 5 us"},
    {"repetitions", "21, strategies in turn"},
    {"version", "FlashOverlap 0.1.0"},
};

/* The same as a simulation would be: no spread, no bits. */
static void make_simulated(fo_page *page, fo_page_row *rows)
{
    for (int i = 0; i < page->row_count; i++) {
        rows[i].t_low_ms = rows[i].t_high_ms = NAN;
        rows[i].bits = -1;
    }
    page->emulated = false;
    page->simulated = true;
    page->how = "No rank was started and nothing was measured: the programs were run in virtual "
                "time on a model of a100-sxm.";
}

int main(int argc, char **argv)
{
    bool simulated = argc > 1 && !strcmp(argv[1], "--simulated");
    argv += simulated;
    argc -= simulated;
    static fo_page_row rows[16];
    static double loss[STRATEGIES][STEPS];
    fo_timeline timelines[STRATEGIES];
    fo_timeline_part parts[STRATEGIES];
    fo_page_curve curves[STRATEGIES];
    int layers = argc > 3 ? atoi(argv[3]) : 1;
    for (int s = 0; s < STRATEGIES; s++) {
        for (int step = 0; step < STEPS; step++)
            loss[s][step] = 2.1 + 3.4 * exp(-step / 25.0) + 0.06 * sin(step * 1.7);
        timelines[s] = record(s, layers);
        parts[s] = (fo_timeline_part){strategies[s], &timelines[s]};
        curves[s] = (fo_page_curve){strategies[s], loss[s], STEPS};
    }
    fo_page page = {
        .title = "mlp and attention forward, 4 ranks",
        .subtitle = "2048 rows, 4096 -> 16384 -> 4096 features, bf16 with bf16 partial sums",
        .command = "flashoverlap bench block --ranks 4 --dtype bf16 --points 16x512,16x1024,4x2048 "
                   "--overlap "
                   "none,slice:4,ring,flash --link auto:0.56 --report report.html",
        .how = "The computation was measured on this machine; the link is emulated: 2.41 GB/s a "
               "port, 5 us, "
               "chosen so that the transfer takes 0.56 times as long as the computation.",
        .emulated = true,
        .facts = facts,
        .fact_count = sizeof facts / sizeof facts[0],
        .rows = rows,
        .row_count = fill_rows(rows, timelines),
        .timelines = parts,
        .timeline_count = STRATEGIES,
        .curves = curves,
        .curve_count = STRATEGIES,
    };
    if (simulated)
        make_simulated(&page, rows);
    fo_status status = argc > 1 ? fo_trace_page_write(&page, argv[1]) : FO_INVALID;
    if (status == FO_OK && argc > 2)
        status = fo_timeline_write(parts, STRATEGIES, argv[2]);
    if (status != FO_OK)
        fprintf(stderr, "make_page: %s\n",
                argc > 1 ? fo_last_error() : "expected [--simulated] PAGE [TRACE [LAYERS]]");
    for (int s = 0; s < STRATEGIES; s++)
        free((void *)timelines[s].events);
    return status != FO_OK;
}
