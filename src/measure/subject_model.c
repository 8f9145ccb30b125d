/* Subjects out of the model: a transformer layer, a training step. Every strategy has a model of its own, with
 * the same weights. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/random.h"
#include "group/group.h"
#include "measure/subject.h"
#include "train/train.h"

enum { SEED = 7 };

/* What all strategies share: the tokens. */
typedef struct tokens {
    const fo_measure_setup *setup;
    bool whole; /* the training step, not one layer */
    fo_model_config config;
    int32_t *inputs, *targets;
} tokens;

typedef struct model {
    const tokens *tokens;
    fo_model *model;
    fo_train_options optimizer;
    int64_t steps;
    double loss;
    int64_t sent; /* bytes of the last execution */
} model;

/* ---- sizes ------------------------------------------------------------------------------------------- */

static fo_model_config configure(const fo_bench_options *o, const fo_measure_point *point,
                                 bool whole)
{
    return (fo_model_config){.layers = whole ? o->layers : 1,
                             .heads = o->heads,
                             .dim = o->dim,
                             .context = point->context,
                             .vocabulary = whole ? o->vocabulary : o->group.ranks,
                             .dtype = o->dtype,
                             .wire = o->wire,
                             .seed = SEED};
}

static fo_status check(const fo_bench_options *o, const fo_measure_point *point)
{
    fo_model_config config = configure(o, point, true);
    fo_status status = fo_measure_check_size("batch", point->batch);
    int64_t hidden = 4 * o->dim;
    if (status == FO_OK && o->ffn && o->ffn != hidden)
        return fo_base_error(FO_INVALID,
                             "--ffn is %lld, the model has 4 dim = %lld hidden features; "
                             "leave it out",
                             (long long)o->ffn, (long long)hidden);
    return status == FO_OK ? fo_model_config_check(&config) : status;
}

/* Products forward, and twice as many backward; attention's two and five; the head's. */
static void sizes_of(const fo_bench_options *o, const fo_measure_point *point, bool whole,
                     fo_measure_sizes *sizes)
{
    int ranks = o->group.ranks;
    double rows = (double)point->rows, dim = (double)o->dim, t = (double)fo_dtype_size(o->dtype);
    double shard = (double)fo_shard_rows(point->rows, ranks, 0), context = (double)point->context;
    int64_t head_dim = o->dim / o->heads;
    double heads = (double)(fo_shard_rows(o->heads, ranks, 0) * head_dim);
    double hidden = (double)fo_shard_rows(4 * o->dim, ranks, 0);
    double entries = whole ? (double)fo_shard_rows(o->vocabulary, ranks, 0) : 1;
    double layers = whole ? (double)o->layers : 1;
    double weights = dim * (4 * heads + 2 * hidden);
    double attention = 14 * heads * rows * (context + 1) / 2;
    *sizes = (fo_measure_sizes){
        .flops = layers * (6 * rows * weights + attention) + (whole ? 6 * rows * dim * entries : 0),
        .memory_each = layers * (weights * (16 + 2 * t) + shard * dim * 2 * (4 + t) +
                                 rows * t * (4 * heads + 2 * hidden)) +
                       dim * (entries + context) * (16 + t) + rows * entries * (4 + t) +
                       shard * dim * (8 + t) + rows * (t * (hidden + 4 * heads) + 4 * dim),
        .bound_computes = true,
    };
}

static void layer_sizes(const fo_bench_options *o, const fo_measure_point *p, fo_measure_sizes *s)
{
    sizes_of(o, p, false, s);
}

static void step_sizes(const fo_bench_options *o, const fo_measure_point *p, fo_measure_sizes *s)
{
    sizes_of(o, p, true, s);
    s->memory_each += s->memory_each / 16; /* plans, replicated parameters */
}

/* ---- tokens ------------------------------------------------------------------------------------------ */

static void close_tokens(void *family)
{
    tokens *t = family;
    if (t) {
        free(t->inputs);
        free(t->targets);
    }
    free(t);
}

static fo_status open_tokens(const fo_measure_setup *setup, bool whole, void **family)
{
    tokens *t = calloc(1, sizeof *t);
    size_t count = (size_t)setup->point.rows;
    *family = t;
    if (t) {
        t->setup = setup;
        t->whole = whole;
        t->config = configure(setup->options, &setup->point, whole);
        t->inputs = calloc(count, sizeof *t->inputs);
        t->targets = calloc(count, sizeof *t->targets);
    }
    if (!t || !t->inputs || !t->targets)
        return fo_base_error(FO_NO_MEMORY, "no memory for %zu tokens", count);
    uint64_t vocabulary = (uint64_t)t->config.vocabulary;
    for (size_t i = 0; i < count; i++) {
        t->inputs[i] = (int32_t)fo_base_random_below(SEED, 0, i, vocabulary);
        t->targets[i] = (int32_t)fo_base_random_below(SEED, 1, i, vocabulary);
    }
    return FO_OK;
}

static fo_status open_layer(const fo_measure_setup *setup, void **family)
{
    return open_tokens(setup, false, family);
}

static fo_status open_step(const fo_measure_setup *setup, void **family)
{
    return open_tokens(setup, true, family);
}

/* ---- executions -------------------------------------------------------------------------------------- */

static void destroy(void *subject)
{
    model *m = subject;
    if (m && m->model)
        fo_model_destroy(m->model);
    free(m);
}

static fo_status create(void *family, const fo_schedule_spelled *strategy, void **subject)
{
    const tokens *t = family;
    model *m = calloc(1, sizeof *m);
    if (!m)
        return fo_base_error(FO_NO_MEMORY, "no memory for a model");
    fo_model_config config = t->config;
    config.overlap = strategy->overlap;
    m->tokens = t;
    fo_train_defaults(&m->optimizer);
    fo_status status = fo_model_create(t->setup->group, &config, t->setup->point.batch, &m->model);
    if (status == FO_OK)
        *subject = m;
    else
        destroy(m);
    return status;
}

static fo_status update(model *m, double norm)
{
    const fo_kernel *kernel = fo_group_kernel_ops(m->tokens->setup->group);
    double scale = fo_train_optimizer_scale(m->optimizer.clip, norm);
    fo_status status = FO_OK;
    fo_model_piece piece;
    m->steps++;
    for (int b = 0; status == FO_OK && b < fo_model_bucket_count(m->model); b++) {
        for (int at = 0; fo_model_bucket_piece(m->model, b, &at, &piece);)
            fo_train_optimizer_update(kernel, &m->optimizer, m->steps, scale, &piece);
        status = fo_model_bucket_updated(m->model, b);
    }
    return status;
}

static fo_status pass(model *m)
{
    const tokens *t = m->tokens;
    fo_status status = fo_model_forward(m->model, t->inputs, t->targets, m->steps, &m->loss);
    return status == FO_OK
               ? fo_model_backward(m->model, t->inputs, t->targets, m->steps, 1.0f, true)
               : status;
}

static int64_t sent_bytes(const model *m)
{
    fo_model_report report;
    fo_model_report_get(m->model, &report);
    return report.sent_bytes;
}

static fo_status execute_step(void *subject)
{
    model *m = subject;
    double norm;
    int64_t before = sent_bytes(m);
    fo_model_zero_gradients(m->model);
    fo_status status = pass(m);
    if (status == FO_OK)
        status = fo_model_reduce_gradients(m->model, &norm);
    if (status == FO_OK)
        status = update(m, norm);
    if (status == FO_OK) /* all of the step's traffic is in the step */
        status = fo_model_settle(m->model);
    m->sent = sent_bytes(m) - before;
    return status;
}

static fo_status execute_layer(void *subject)
{
    model *m = subject;
    int64_t before = sent_bytes(m);
    fo_status status = FO_OK;
    if (!m->steps) /* the first time: something to work on */
        status = pass(m);
    if (!m->steps++) {
        before = sent_bytes(m);
        fo_model_zero_gradients(m->model);
    }
    if (status == FO_OK)
        status = fo_model_layer_forward(m->model, 0, 0);
    if (status == FO_OK)
        status = fo_model_layer_backward(m->model, 0, 0);
    m->sent = sent_bytes(m) - before;
    return status;
}

static int64_t wire_bytes(const void *subject)
{
    return ((const model *)subject)->sent;
}

static int64_t exposed_ns(const void *subject)
{
    fo_model_report report;
    fo_model_report_get(((const model *)subject)->model, &report);
    return report.exposed_ns;
}

/* ---- predictions ------------------------------------------------------------------------------------- */

/* Of all operators in one execution. */
static fo_status predict(model *m, fo_status (*execute)(void *), fo_prediction *p)
{
    *p = (fo_prediction){NAN, NAN, NAN, NAN};
    fo_model_report_reset(m->model);
    fo_status status = execute(m);
    if (status == FO_OK)
        status = fo_model_predict(m->model, fo_plan_predicts(), &p->total_s, &p->exposed_s);
    if (status != FO_UNSUPPORTED) /* of the library nobody knows */
        return status;
    *p = (fo_prediction){NAN, NAN, NAN, NAN};
    return FO_OK;
}

static fo_status predict_layer(void *subject, fo_prediction *prediction)
{
    return predict(subject, execute_layer, prediction);
}

static fo_status predict_step(void *subject, fo_prediction *prediction)
{
    return predict(subject, execute_step, prediction);
}

/* ---- results ----------------------------------------------------------------------------------------- */

static void clear(void *subject)
{
    fo_model_zero_gradients(((model *)subject)->model);
}

static uint64_t hash(const void *subject, uint64_t hash)
{
    const model *m = subject;
    int count = fo_model_parameter_count(m->model);
    hash = fo_measure_hash(hash, &m->loss, sizeof m->loss);
    for (int i = 0; i < count; i++) {
        const fo_parameter *p = fo_model_parameter(m->model, i);
        hash = fo_measure_hash(hash, p->grad, (size_t)p->count * sizeof *p->grad);
        hash = fo_measure_hash(hash, p->value, (size_t)p->count * sizeof *p->value);
    }
    return hash;
}

const fo_measure_family fo_measure_family_layer = {
    .name = "layer",
    .about = "one transformer layer, forward and backward",
    .has_sequences = true,
    .check = check,
    .sizes = layer_sizes,
    .open = open_layer,
    .close = close_tokens,
    .create = create,
    .destroy = destroy,
    .execute = execute_layer,
    .predict = predict_layer,
    .wire_bytes = wire_bytes,
    .exposed_ns = exposed_ns,
    .clear = clear,
    .hash = hash,
};

const fo_measure_family fo_measure_family_step = {
    .name = "step",
    .about = "a training step: forward, backward, sums of gradients, clipping, AdamW",
    .has_sequences = true,
    .check = check,
    .sizes = step_sizes,
    .open = open_step,
    .close = close_tokens,
    .create = create,
    .destroy = destroy,
    .execute = execute_step,
    .predict = predict_step,
    .wire_bytes = wire_bytes,
    .exposed_ns = exposed_ns,
    .clear = clear,
    .hash = hash,
};
