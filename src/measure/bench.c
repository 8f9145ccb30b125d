/* Measuring one layer's operator under several strategies. Definitions: docs/metrics.md. */
#include "flashoverlap/bench.h"
#include "flashoverlap/schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "measure/measure.h"

enum { STRATEGIES = 16, WARMUPS = 1 };

/* One rank's matrices and plans. */
typedef struct bench {
    const fo_bench_options *options;
    FILE *out;
    fo_group *group;
    fo_plan_desc desc;
    fo_plan *plans[STRATEGIES];
    char names[STRATEGIES][32];
    int count;
    fo_plan_args args;
    float *w, *bias, *dw, *db;
    void *travels, *local, *result, *pre; /* shard that travels, local input, main result */
    size_t result_bytes;
    double *times[STRATEGIES + 1], *exposed[STRATEGIES]; /* [0]: computation alone; ms */
    uint64_t hashes[STRATEGIES];
    double wire_bytes;
} bench;

void fo_bench_defaults(fo_bench_options *options)
{
    *options = (fo_bench_options){.rows = 4096,
                                  .dim = 1024,
                                  .ffn = 2048,
                                  .dtype = FO_F32,
                                  .wire = FO_F32,
                                  .overlap = "none,slice:8,ring,flash",
                                  .repeat = 20};
    options->group.ranks = 2;
}

/* ---- matrices ------------------------------------------------------------------------------------ */

static void fill(void *data, fo_dtype dtype, int64_t count, uint64_t stream)
{
    for (int64_t i = 0; i < count; i++) {
        float value = fo_base_random_uniform(7, stream, (uint64_t)i) - 0.5f;
        if (dtype == FO_BF16)
            ((fo_bf16 *)data)[i] = fo_base_bf16_from_f32(value);
        else
            ((float *)data)[i] = value;
    }
}

static void *make(bench *b, int64_t count, fo_dtype dtype, int64_t stream)
{
    void *data = fo_group_alloc(b->group, (size_t)count * fo_dtype_size(dtype) + 64);
    if (data && stream)
        fill(data, dtype, count, (uint64_t)stream * 64 + (uint64_t)fo_group_rank(b->group));
    return data;
}

static fo_status make_matrices(bench *b)
{
    const fo_plan_desc *d = &b->desc;
    bool backward = b->options->backward, column = b->options->column;
    int64_t mine = fo_shard_rows(d->rows, fo_group_size(b->group), fo_group_rank(b->group));
    int64_t travel_width = column ? d->in : d->out; /* x, or dy of the row backward pass */
    fo_dtype t = d->dtype;
    b->w = make(b, d->in * d->out, FO_F32, 1);
    b->bias = make(b, d->out, FO_F32, 2);
    b->dw = make(b, d->in * d->out, FO_F32, 0);
    b->db = make(b, d->out, FO_F32, 0);
    b->travels = make(b, mine * travel_width, t, 3);
    b->local = make(b, d->rows * (column ? d->out : d->in), t, 4);
    int64_t results = column ? (backward ? mine * d->in : d->rows * d->out)
                             : (backward ? d->rows * d->in : mine * d->out);
    fo_dtype result_type = column != backward ? t : FO_F32;
    b->result = make(b, results, result_type, 0);
    b->result_bytes = (size_t)results * fo_dtype_size(result_type);
    if (!b->w || !b->bias || !b->dw || !b->db || !b->travels || !b->local || !b->result)
        return FO_NO_MEMORY;
    b->args.w = b->w;
    if (backward) {
        b->args.x = column ? b->travels : b->local;
        b->args.dy = column ? b->local : b->travels;
        b->args.dx = b->result;
        b->args.dw = b->dw;
        b->args.db = b->db;
    } else {
        b->args.x = column ? b->travels : b->local;
        b->args.bias = b->bias;
        b->args.y = b->result;
    }
    return FO_OK;
}

static fo_status make_plans(bench *b)
{
    const fo_bench_options *o = b->options;
    int ranks = fo_group_size(b->group), rank = fo_group_rank(b->group);
    int64_t share = fo_shard_rows(o->ffn, ranks, rank);
    b->desc = (fo_plan_desc){
        .op = o->column ? (o->backward ? FO_COLUMN_BACKWARD : FO_COLUMN_FORWARD)
                        : (o->backward ? FO_ROW_BACKWARD : FO_ROW_FORWARD),
        .rows = o->rows,
        .in = o->column ? o->dim : share,
        .out = o->column ? share : o->dim,
        .dtype = o->dtype,
        .wire = o->wire,
        .y_dtype = o->dtype,
    };
    fo_status status = FO_OK;
    for (int s = 0; status == FO_OK && s < b->count; s++) {
        b->desc.overlap = b->names[s];
        status = fo_plan_create(b->group, &b->desc, &b->plans[s]);
    }
    return status;
}

/* ---- measuring ----------------------------------------------------------------------------------- */

/* What the slowest rank took and how long that rank was exposed. */
static fo_status slowest(bench *b, double mine_ms, double exposed_ms, double *ms, double *exposed)
{
    double pair[2] = {mine_ms, exposed_ms}, all[2 * 4096];
    fo_status status = fo_group_allgather(b->group, pair, sizeof pair, all);
    *ms = 0;
    for (int r = 0; status == FO_OK && r < fo_group_size(b->group); r++)
        if (all[2 * r] > *ms) {
            *ms = all[2 * r];
            *exposed = all[2 * r + 1];
        }
    return status;
}

static fo_status time_once(bench *b, int strategy, double *ms, double *exposed)
{
    fo_report before = {0}, after = {0};
    fo_plan *plan = b->plans[strategy < 0 ? 0 : strategy];
    fo_plan_report(plan, &before);
    fo_status status = fo_group_barrier(b->group);
    int64_t begin = fo_base_clock_ns();
    if (status == FO_OK)
        status =
            strategy < 0 ? fo_plan_execute_local(plan, &b->args) : fo_plan_execute(plan, &b->args);
    double took = (double)(fo_base_clock_ns() - begin) * 1e-6;
    fo_plan_report(plan, &after);
    if (status == FO_OK)
        status =
            slowest(b, took, (double)(after.exposed_ns - before.exposed_ns) * 1e-6, ms, exposed);
    return status;
}

static fo_status measure_local(bench *b, int times, double *median)
{
    double values[64], unused;
    fo_status status = FO_OK;
    for (int i = 0; status == FO_OK && i < times; i++)
        status = time_once(b, -1, &values[i], &unused);
    *median = fo_measure_median(values, times);
    return status;
}

/* The busiest rank's bytes decide the speed at which the transfer takes `ratio` of the computation. */
static fo_status set_link(bench *b)
{
    double bytes = (double)fo_plan_wire_bytes(b->plans[0]), unused;
    fo_status status = slowest(b, bytes, 0, &b->wire_bytes, &unused);
    if (status != FO_OK || b->options->link_ratio <= 0 || b->wire_bytes <= 0)
        return status;
    double local_ms = 0;
    status = measure_local(b, 7, &local_ms);
    fo_link link = b->options->group.link;
    link.bytes_per_s = b->wire_bytes / (b->options->link_ratio * local_ms * 1e-3);
    if (status == FO_OK)
        status = fo_group_set_link(b->group, &link);
    return status;
}

static uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ at[i]) * 0x100000001b3u;
    return hash;
}

/* Runs strategy s once on cleared outputs and hashes every output of every rank. */
static fo_status hash_results(bench *b, int s)
{
    size_t weight = (size_t)(b->desc.in * b->desc.out) * 4;
    memset(b->result, 0xff, b->result_bytes);
    memset(b->dw, 0, weight);
    memset(b->db, 0, (size_t)b->desc.out * 4);
    fo_status status = fo_plan_execute(b->plans[s], &b->args);
    uint64_t hash = hash_bytes(0xcbf29ce484222325u, b->result, b->result_bytes);
    hash = hash_bytes(hash, b->dw, weight);
    hash = hash_bytes(hash, b->db, (size_t)b->desc.out * 4);
    uint64_t all[4096];
    if (status == FO_OK)
        status = fo_group_allgather(b->group, &hash, sizeof hash, all);
    if (status == FO_OK)
        b->hashes[s] = hash_bytes(0, all, sizeof hash * (size_t)fo_group_size(b->group));
    return status;
}

/* Interleaved: computation alone, A, B, C, then again, so that a drifting machine favours none. */
static fo_status measure(bench *b)
{
    fo_status status = FO_OK;
    double unused;
    for (int s = 0; status == FO_OK && s < b->count; s++)
        status = hash_results(b, s);
    for (int i = -WARMUPS; status == FO_OK && i < b->options->repeat; i++) {
        int at = i < 0 ? 0 : i;
        status = time_once(b, -1, &b->times[0][at], &unused);
        for (int s = 0; status == FO_OK && s < b->count; s++)
            status = time_once(b, s, &b->times[s + 1][at], &b->exposed[s][at]);
    }
    return status;
}

/* ---- results ------------------------------------------------------------------------------------- */

static double bound_ms(const bench *b, double local)
{
    fo_link link = fo_group_link(b->group);
    if (link.bytes_per_s <= 0 || b->wire_bytes <= 0)
        return local;
    double transfer = (b->wire_bytes / link.bytes_per_s + link.latency_s) * 1e3;
    double slice = (double)fo_plan_slice_rows(b->plans[0]);
    if (slice > (double)b->desc.rows)
        slice = (double)b->desc.rows;
    double edge = local * slice / (double)b->desc.rows;
    return fmax(local, transfer + edge);
}

static void make_row(bench *b, int s, double local, double ect_none, fo_bench_row *row)
{
    snprintf(row->overlap, sizeof row->overlap, "%s", b->names[s]);
    row->t_ms = fo_measure_median(b->times[s + 1], b->options->repeat);
    row->ect_ms = row->t_ms - local;
    row->hidden_pct = ect_none > 0 ? 100.0 * (1.0 - row->ect_ms / ect_none) : NAN;
    row->exposed_ms = fo_measure_median(b->exposed[s], b->options->repeat);
    row->bound_ms = bound_ms(b, local);
    row->gap_pct = 100.0 * (row->t_ms / row->bound_ms - 1.0);
    row->bitwise_equal = b->hashes[s] == b->hashes[0];
}

static const char *number(double value, const char *format, char *text, size_t size)
{
    if (isnan(value))
        snprintf(text, size, "%s", "null");
    else
        snprintf(text, size, format, value);
    return text;
}

static void print_json(FILE *out, const fo_bench_row *row, bool first)
{
    char hidden[32];
    fprintf(out,
            "%s\n  {\"overlap\": \"%s\", \"t_ms\": %.4f, \"ect_ms\": %.4f, \"hidden_pct\": %s, "
            "\"exposed_ms\": %.4f, \"bound_ms\": %.4f, \"gap_pct\": %.2f, \"bitwise_equal\": %s}",
            first ? "[" : ",", row->overlap, row->t_ms, row->ect_ms,
            number(row->hidden_pct, "%.2f", hidden, sizeof hidden), row->exposed_ms, row->bound_ms,
            row->gap_pct, row->bitwise_equal ? "true" : "false");
}

static void print_head(bench *b, double local)
{
    const fo_bench_options *o = b->options;
    fo_link link = fo_group_link(b->group);
    fprintf(b->out,
            "%s%s: %lld rows, dim %lld, ffn %lld, %s, wire %s, %d ranks x %d threads, %s, %s\n",
            o->column ? "column" : "row", o->backward ? " backward" : "", (long long)o->rows,
            (long long)o->dim, (long long)o->ffn, fo_dtype_name(o->dtype), fo_dtype_name(o->wire),
            fo_group_size(b->group), fo_group_threads(b->group), fo_group_transport(b->group),
            fo_group_kernel(b->group));
    if (link.bytes_per_s > 0)
        fprintf(b->out,
                "link: emulated, %.3f GB/s, %.1f us: the transfer takes %.2f of the computation\n",
                link.bytes_per_s * 1e-9, link.latency_s * 1e6,
                b->wire_bytes / link.bytes_per_s * 1e3 / local);
    else
        fprintf(b->out,
                "link: none emulated, the transport's own speed; bound is the computation\n");
    fprintf(
        b->out,
        "computation alone, unsliced: %.3f ms; medians of %d interleaved runs, slowest rank\n\n",
        local, o->repeat);
    fprintf(b->out, "%-12s %10s %10s %9s %11s %10s %7s  %s\n", "overlap", "T ms", "ECT ms",
            "hidden %", "exposed ms", "bound ms", "gap %", "bits");
}

static void print_results(bench *b)
{
    double local = fo_measure_median(b->times[0], b->options->repeat), ect_none = NAN;
    for (int s = 0; s < b->count; s++)
        if (!strcmp(b->names[s], "none"))
            ect_none = fo_measure_median(b->times[s + 1], b->options->repeat) - local;
    if (!b->options->json)
        print_head(b, local);
    for (int s = 0; s < b->count; s++) {
        fo_bench_row row;
        char hidden[32];
        make_row(b, s, local, ect_none, &row);
        if (b->options->json)
            print_json(b->out, &row, s == 0);
        else
            fprintf(b->out, "%-12s %10.3f %10.3f %9s %11.3f %10.3f %7.2f  %s\n", row.overlap,
                    row.t_ms, row.ect_ms,
                    isnan(row.hidden_pct) ? "-"
                                          : number(row.hidden_pct, "%.2f", hidden, sizeof hidden),
                    row.exposed_ms, row.bound_ms, row.gap_pct,
                    row.bitwise_equal ? "equal" : "differ");
    }
    fprintf(b->out, b->options->json ? "\n]\n" : "");
    fflush(b->out);
}

/* ---- the run ------------------------------------------------------------------------------------- */

static fo_status allocate_times(bench *b)
{
    for (int s = 0; s <= b->count; s++) {
        b->times[s] = calloc((size_t)b->options->repeat + 1, sizeof(double));
        if (s < b->count)
            b->exposed[s] = calloc((size_t)b->options->repeat + 1, sizeof(double));
        if (!b->times[s] || (s < b->count && !b->exposed[s]))
            return fo_base_error(FO_NO_MEMORY, "bench: no memory for %d times", b->options->repeat);
    }
    return FO_OK;
}

static void clean_up(bench *b)
{
    for (int s = 0; s < b->count; s++)
        fo_plan_destroy(b->plans[s]);
    for (int s = 0; s <= STRATEGIES; s++)
        free(b->times[s]);
    for (int s = 0; s < STRATEGIES; s++)
        free(b->exposed[s]);
    void *memory[] = {b->w, b->bias, b->dw, b->db, b->travels, b->local, b->result};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        if (memory[i])
            fo_group_free(b->group, memory[i]);
}

static fo_status bench_rank(fo_group *group, void *arg)
{
    bench b = *(const bench *)arg;
    b.group = group;
    fo_status status = make_plans(&b);
    if (status == FO_OK)
        status = make_matrices(&b);
    if (status == FO_OK)
        status = allocate_times(&b);
    if (status == FO_OK)
        status = set_link(&b);
    if (status == FO_OK)
        status = measure(&b);
    if (status == FO_OK && fo_group_rank(group) == 0)
        print_results(&b);
    clean_up(&b);
    return status;
}

static fo_status split_names(bench *b, const char *list)
{
    while (*list) {
        size_t length = strcspn(list, ",");
        if (b->count == STRATEGIES)
            return fo_base_error(FO_INVALID, "--overlap lists more than %d strategies", STRATEGIES);
        if (!length || length >= sizeof b->names[0])
            return fo_base_error(FO_INVALID,
                                 "--overlap '%s': expected names separated by commas, "
                                 "such as none,slice:4,flash",
                                 list);
        memcpy(b->names[b->count], list, length);
        fo_strategy parsed;
        fo_status status = fo_strategy_parse(b->names[b->count++], &parsed);
        if (status != FO_OK)
            return status;
        list += length + (list[length] == ',');
    }
    return b->count ? FO_OK : fo_base_error(FO_INVALID, "--overlap is empty, expected a strategy");
}

static fo_status check_options(const fo_bench_options *o)
{
    if (o->rows < 1 || o->dim < 1 || o->ffn < 1)
        return fo_base_error(FO_INVALID,
                             "bench: rows %lld, dim %lld, ffn %lld, expected 1 or more each",
                             (long long)o->rows, (long long)o->dim, (long long)o->ffn);
    if (o->repeat < 1 || o->repeat > 100000)
        return fo_base_error(FO_INVALID, "bench: repeat is %d, expected 1 to 100000", o->repeat);
    if (o->group.ranks > 4096)
        return fo_base_error(FO_INVALID, "bench: %d ranks, expected at most 4096", o->group.ranks);
    if (o->link_ratio < 0)
        return fo_base_error(FO_INVALID, "bench: link ratio %g, expected more than 0",
                             o->link_ratio);
    return FO_OK;
}

fo_status fo_bench_run(const fo_bench_options *options, FILE *out)
{
    bench b = {.options = options, .out = out};
    fo_status status = check_options(options);
    if (status == FO_OK)
        status = split_names(&b, options->overlap);
    return status == FO_OK ? fo_group_run(&options->group, bench_rank, &b) : status;
}
