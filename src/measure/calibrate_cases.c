/* Which cases a calibration measures, and what their samples say. */
#include <math.h>
#include <string.h>

#include "base/quantile.h"
#include "flashoverlap/plan.h"
#include "measure/calibrate.h"
#include "measure/measure.h"
#include "transport/machine.h"
#include "transport/transport.h"

/* k, n: square, the two products of an MLP of width 768, and a flat one. */
static const int64_t shapes[][2] = {{1024, 1024}, {3072, 768}, {768, 3072}, {4096, 1024}};

typedef struct limits {
    int shapes;       /* of those above */
    int extra_shapes; /* of weight gradients, and of products of one rank on all cores */
    int64_t row_factor, wgrad_factor, last_row;
    int64_t last_context;
    int heads;        /* how many numbers of heads */
    int64_t elements; /* of a pass that does not fit into caches */
} limits;

static const limits whole = {4, 2, 2, 4, 8192, 2048, 2, INT64_C(1) << 23};
static const limits quick = {2, 1, 4, 4, 2048, 512, 1, INT64_C(1) << 22};

/* The largest product that is worth its time: half a second of a core. */
static const double most_flops = 4e10;

static fo_measure_case *add(fo_measure_calibration *c, const fo_measure_case *which)
{
    if (c->count == FO_MEASURE_CASES)
        return NULL;
    c->cases[c->count] = *which;
    return &c->cases[c->count++];
}

/* One shape over the rows of a slice. */
static void add_curve(fo_measure_calibration *c, const limits *l, fo_measure_case like)
{
    bool wgrad = like.kind == FO_MEASURE_WGRAD;
    int64_t factor = wgrad ? l->wgrad_factor : l->row_factor;
    int64_t width = like.k > like.n ? like.k : like.n, weight = like.k * like.n;
    for (int64_t rows = wgrad ? FO_WGRAD_ROWS : FO_TILE_ROWS; rows <= l->last_row; rows *= factor) {
        like.rows = rows;
        like.flops = 2.0 * (double)rows * (double)weight;
        if (like.flops > most_flops)
            continue;
        add(c, &like);
        c->most_rows = rows > c->most_rows ? rows : c->most_rows;
    }
    c->most_width = width > c->most_width ? width : c->most_width;
    c->most_weight = weight > c->most_weight ? weight : c->most_weight;
}

static void add_products(fo_measure_calibration *c, const limits *l, fo_measure_case like)
{
    bool all_cores = !like.at_once && like.threads > 1;
    for (int kind = FO_MEASURE_GEMM; kind <= FO_MEASURE_WGRAD; kind++) {
        bool extra = kind == FO_MEASURE_WGRAD || all_cores;
        like.kind = (fo_measure_kind)kind;
        for (int s = 0; s < (extra ? l->extra_shapes : l->shapes); s++) {
            like.k = shapes[s][0];
            like.n = shapes[s][1];
            add_curve(c, l, like);
        }
    }
}

/* Two products forward, five backward. */
static void add_attention_of(fo_measure_calibration *c, const limits *l, fo_measure_case like)
{
    double products = like.kind == FO_MEASURE_ATTENTION ? 2 : 5;
    for (int64_t context = 256; context <= l->last_context; context *= 2) {
        double keys = (double)context * (double)(context + 1) / 2;
        like.rows = context;
        like.flops = products * 2.0 * FO_MEASURE_ATTENTION_WIDTH * keys;
        add(c, &like);
    }
}

static void add_attention(fo_measure_calibration *c, const limits *l, fo_measure_case like)
{
    static const int64_t heads[] = {8, 4};
    for (int kind = FO_MEASURE_ATTENTION; kind <= FO_MEASURE_ATTENTION_GRAD; kind++)
        for (int h = 0; h < l->heads; h++) {
            like.kind = (fo_measure_kind)kind;
            like.k = heads[h];
            like.n = FO_MEASURE_ATTENTION_WIDTH / heads[h];
            add_attention_of(c, l, like);
        }
}

static void add_packing(fo_measure_calibration *c, const limits *l, fo_measure_case like)
{
    like.kind = FO_MEASURE_PACK;
    for (int s = 0; s < l->shapes; s++) {
        like.k = shapes[s][0];
        like.n = shapes[s][1];
        like.bytes = (double)(like.k * like.n) * (double)(4 + fo_dtype_size(like.dtype));
        add(c, &like);
    }
}

static void add_passes(fo_measure_calibration *c, const limits *l, fo_measure_case like)
{
    static const struct {
        const char *name;
        int bytes; /* of an element, in and out */
    } passes[] = {{"add f32 f32 to f32", 12},
                  {"add f32 bf16 to bf16", 8},
                  {"convert f32 to bf16", 6}};
    like.kind = FO_MEASURE_PASS;
    for (int p = 0; p < 3; p++)
        for (int large = 0; large < 2; large++) {
            like.name = passes[p].name;
            like.n = large ? l->elements : 1 << 16;
            like.bytes = (double)like.n * passes[p].bytes;
            add(c, &like);
        }
    c->most_elements = l->elements;
}

/* One rank on one thread, one rank on all cores, all ranks at once. */
static void add_computation(fo_measure_calibration *c, const limits *l, const fo_kernel *kernel,
                            int threads)
{
    int cores = fo_transport_machine_cores(), ranks = c->options->group.ranks;
    fo_measure_case conditions[3] = {{.threads = 1}, {.threads = cores}, {.threads = threads}};
    conditions[2].at_once = true;
    for (int i = 0; i < 3; i++) {
        if ((i == 1 && cores == 1) || (i == 2 && ranks == 1 && (threads == 1 || threads == cores)))
            continue; /* measured already */
        for (fo_dtype dtype = FO_F32; dtype <= FO_BF16; dtype++) {
            conditions[i].dtype = dtype;
            if (!kernel->supports(dtype))
                continue;
            add_products(c, l, conditions[i]);
            add_packing(c, l, conditions[i]);
            if (kernel->attention_queries)
                add_attention(c, l, conditions[i]);
        }
        add_passes(c, l, conditions[i]);
    }
}

static void add_messages(fo_measure_calibration *c, bool views)
{
    fo_measure_case like = {.kind = FO_MEASURE_MESSAGE, .threads = 1};
    int factor = c->options->quick ? 16 : 4;
    for (int view = 0; view <= views; view++)
        for (int both = 0; both < 2; both++)
            for (int64_t bytes = 0; bytes <= 16 << 20; bytes = bytes ? bytes * factor : 1024) {
                like.view = view;
                like.both = both;
                like.n = bytes;
                like.bytes = (double)bytes;
                add(c, &like);
                c->most_bytes = bytes > c->most_bytes ? bytes : c->most_bytes;
            }
}

void fo_measure_calibrate_cases(fo_measure_calibration *c, const fo_kernel *kernel, int threads)
{
    const limits *l = c->options->quick ? &quick : &whole;
    const fo_transport *transport = fo_transport_find(c->options->group.transport);
    c->budget_s = c->options->quick ? 10 : 60;
    add_computation(c, l, kernel, threads);
    if (c->options->group.ranks > 1) {
        add_messages(c, (transport->ops->caps & FO_TRANSPORT_VIEW) != 0);
        add(c, &(fo_measure_case){
                   .kind = FO_MEASURE_PROCESSOR, .threads = 1, .n = 1 << 20, .bytes = 1 << 20});
        add(c, &(fo_measure_case){.kind = FO_MEASURE_WAKE, .threads = 1});
    }
    add(c, &(fo_measure_case){
               .kind = FO_MEASURE_TASK, .name = "flash:4", .threads = threads, .at_once = true});
    add(c, &(fo_measure_case){
               .kind = FO_MEASURE_TASK, .name = "none", .threads = threads, .at_once = true});
}

/* ---- what samples say ------------------------------------------------------------------------------ */

fo_measure_figure fo_measure_calibrate_figure(const fo_measure_case *which)
{
    fo_measure_figure figure = {.median_s = fo_base_median(which->seconds, which->samples)};
    figure.best_s = fo_base_percentile(which->seconds, which->samples, 0);
    figure.spread_s = fo_base_percentile(which->seconds, which->samples, 0.75) -
                      fo_base_percentile(which->seconds, which->samples, 0.25);
    double relative = figure.spread_s / figure.median_s;
    figure.confidence = which->samples >= 5 && relative <= 0.05   ? "high"
                        : which->samples >= 3 && relative <= 0.20 ? "medium"
                                                                  : "low";
    return figure;
}

double fo_measure_calibrate_peak(const fo_measure_calibration *c, const fo_measure_case *like)
{
    double peak = 0;
    for (int i = 0; i < c->count; i++) {
        const fo_measure_case *which = &c->cases[i];
        if (which->kind > FO_MEASURE_ATTENTION_GRAD || !which->samples ||
            which->dtype != like->dtype || which->threads != like->threads ||
            which->at_once != like->at_once)
            continue;
        double rate = which->flops / fo_measure_calibrate_figure(which).median_s;
        peak = rate > peak ? rate : peak;
    }
    return peak;
}

const fo_measure_case *fo_measure_calibrate_find(const fo_measure_calibration *c,
                                                 const fo_measure_case *like)
{
    const fo_measure_case *found = NULL;
    for (int i = 0; i < c->count; i++) {
        const fo_measure_case *which = &c->cases[i];
        if (which->kind != like->kind || !which->samples || which->dtype != like->dtype ||
            which->view != like->view || which->both != like->both ||
            (like->name && (!which->name || strcmp(which->name, like->name) != 0)) ||
            (like->n && which->n != like->n))
            continue;
        if (!found || (which->at_once && !found->at_once))
            found = which;
    }
    return found;
}

int fo_measure_calibrate_at_once(const fo_measure_calibration *c, const fo_measure_case *which)
{
    if (which->kind >= FO_MEASURE_MESSAGE && which->kind < FO_MEASURE_TASK)
        return 2;
    return which->at_once ? c->options->group.ranks : 1;
}
