/* A model on its ranks beside the float64 reference, for the tests of this room.
 *
 * What runs on a rank may be a forked process: cmocka's assertions are not used there; a rank
 * returns a status with a sentence. */
#ifndef FO_TESTS_MODEL_RIG_H
#define FO_TESTS_MODEL_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/error.h"
#include "base/random.h"
#include "model/state.h"
#include "reference/gpt2_f64.h"

#define TRY(call)                      \
    do {                               \
        fo_status try_status = (call); \
        if (try_status != FO_OK)       \
            return try_status;         \
    } while (0)

#if defined(__SANITIZE_THREAD__)
#define UNDER_THREAD_SANITIZER 1 /* which watches one process only */
#else
#define UNDER_THREAD_SANITIZER 0
#endif

/* A value of a parameter that no rank but by its place in the full tensor can know. Larger than
 * initial weights, so that every part of the model matters. */
static inline float rig_value(const char *name, int64_t index)
{
    float noise = fo_base_random_normal(77, fo_base_random_stream(name), (uint64_t)index);
    const char *norm = strstr(name, "ln_");
    return (norm && strstr(norm, "weight") ? 1.0f : 0.0f) + 0.2f * noise;
}

/* The largest deviation met so far, as a part of its tensor's largest element. */
typedef struct rig_worst {
    char name[64];
    int64_t row, col;
    double error;
} rig_worst;

typedef struct rig {
    fo_group *world;
    fo_group *group; /* of the replica */
    fo_model_config config;
    int64_t batch, rows; /* of all replicas */
    int ranks, rank;     /* of the replica */
    fo_model *model;
    int32_t *inputs, *targets;
    gpt2_f64 *reference;
    int64_t dropout_step;
    char where[160];
    rig_worst *worst; /* kept up to date when not NULL */
} rig;

static inline int64_t rig_full_index(const rig *r, const fo_parameter *p, int rank, int64_t row,
                                     int64_t col)
{
    return fo_model_full_row(p, &r->config, r->ranks, rank, row) * p->full_cols +
           fo_model_full_col(p, &r->config, r->ranks, rank, col);
}

static inline void rig_fill(rig *r)
{
    for (int i = 0; i < fo_model_parameter_count(r->model); i++) {
        fo_parameter *p = fo_model_parameter(r->model, i);
        for (int64_t at = 0; at < p->count; at++)
            p->value[at] =
                rig_value(p->name, rig_full_index(r, p, r->rank, at / p->cols, at % p->cols));
    }
}

static inline void rig_tokens(rig *r, int number)
{
    for (int64_t i = 0; i < r->rows; i++) {
        uint64_t at = (uint64_t)(2 * i + 2 * r->rows * number),
                 bound = (uint64_t)r->config.vocabulary;
        r->inputs[i] = (int32_t)fo_base_random_below(5, 1, at, bound);
        r->targets[i] = (int32_t)fo_base_random_below(5, 1, at + 1, bound);
    }
}

static inline double rig_keep(void *arg, gpt2_f64_site site, int64_t layer, int64_t i, int64_t j)
{
    static const fo_model_dropout_site sites[] = {FO_MODEL_DROPOUT_EMBED,
                                                  FO_MODEL_DROPOUT_ATTENTION, FO_MODEL_DROPOUT_MLP};
    const rig *r = arg;
    uint64_t key, stream, index;
    if (site == GPT2_F64_PROBABILITY) {
        key = fo_model_dropout_attention_key(r->config.seed, r->dropout_step, layer);
        stream = (uint64_t)i;
        index = (uint64_t)j;
    } else {
        key = fo_model_dropout_key(r->config.seed, r->dropout_step);
        stream = fo_model_dropout_stream(sites[site], layer);
        index = (uint64_t)(i * r->config.dim + j);
    }
    return fo_base_random_uniform(key, stream, index) >= r->config.dropout
               ? 1.0 / (1.0 - (double)r->config.dropout)
               : 0.0;
}

static inline void rig_close(rig *r)
{
    fo_model_destroy(r->model);
    if (r->reference)
        gpt2_f64_free(r->reference);
    free(r->inputs);
    free(r->targets);
}

/* dropout_step < 0: none. */
static inline fo_status rig_open(rig *r, fo_group *group, const fo_model_config *config,
                                 int64_t batch, int64_t dropout_step)
{
    *r = (rig){.world = group,
               .group = group,
               .config = *config,
               .batch = batch,
               .rows = batch * config->context,
               .ranks = fo_group_size(group),
               .rank = fo_group_rank(group),
               .dropout_step = dropout_step};
    snprintf(r->where, sizeof r->where, "%s/%s N=%d dp=%d rank %d %s %s", fo_group_transport(group),
             fo_group_kernel(group), r->ranks, config->dp, r->rank, fo_dtype_name(config->dtype),
             config->overlap ? config->overlap : "default");
    r->inputs = malloc((size_t)r->rows * sizeof *r->inputs);
    r->targets = malloc((size_t)r->rows * sizeof *r->targets);
    rig_tokens(r, 0);
    fo_status status = fo_model_create(group, config, batch, &r->model);
    if (status != FO_OK)
        return status;
    r->group = fo_model_group(r->model);
    r->ranks = fo_group_size(r->group);
    r->rank = fo_group_rank(r->group);
    rig_fill(r);
    return FO_OK;
}

/* After fo_model_reduce_gradients every rank has the sums of its shards; this gives it those of the others. */
static inline fo_status rig_share_gradients(const rig *r)
{
    fo_status status = FO_OK;
    for (int i = 0; status == FO_OK && i < fo_model_bucket_count(r->model); i++) {
        fo_model_bucket *b = &r->model->buckets[i];
        if (!b->group)
            continue;
        int size = fo_group_size(b->group);
        int64_t width = FO_MODEL_BUCKET_WIDTH, longest = fo_shard_rows(b->rows, size, 0) * width;
        float *mine = calloc((size_t)longest + 1, sizeof *mine);
        float *all = calloc((size_t)longest * (size_t)size + 1, sizeof *all);
        memcpy(mine, b->grad + b->own_row * width, (size_t)(b->own_rows * width) * sizeof *mine);
        status = fo_group_allgather(b->group, mine, (size_t)longest * sizeof *mine, all);
        for (int rank = 0; status == FO_OK && rank < size; rank++)
            memcpy(b->grad + fo_shard_begin(b->rows, size, rank) * width, all + rank * longest,
                   (size_t)(fo_shard_rows(b->rows, size, rank) * width) * sizeof *all);
        free(mine);
        free(all);
    }
    return status;
}

/* The mean over all tokens out of what fo_model_forward gave. */
static inline fo_status rig_loss(const rig *r, double mine, double *loss)
{
    int ranks = fo_group_size(r->world);
    double *all = malloc((size_t)ranks * sizeof *all);
    fo_status status = fo_group_allgather(r->world, &mine, sizeof mine, all);
    *loss = 0;
    for (int rank = 0; status == FO_OK && rank < ranks; rank += r->ranks)
        *loss += all[rank];
    free(all);
    return status;
}

static inline void rig_refer(rig *r)
{
    const fo_model_config *c = &r->config;
    r->reference = gpt2_f64_new(c->layers, c->heads, c->dim, c->context, c->vocabulary, r->batch);
    for (int i = 0; i < r->reference->count; i++) {
        gpt2_f64_tensor *t = &r->reference->tensors[i];
        for (int64_t at = 0; at < t->rows * t->cols; at++)
            t->value[at] = rig_value(t->name, at);
    }
    if (r->dropout_step >= 0 && c->dropout > 0) {
        r->reference->keep = rig_keep;
        r->reference->keep_arg = r;
    }
}

/* All ranks' shares of an array put together on every rank; an element no rank has stays NaN. */
static inline fo_status rig_gather(const rig *r, const fo_parameter *p, const float *local,
                                   float *full)
{
    int64_t longest = 0;
    for (int rank = 0; rank < r->ranks; rank++) {
        int64_t rows, cols;
        fo_model_local_shape(p, &r->config, r->ranks, rank, &rows, &cols);
        longest = rows * cols > longest ? rows * cols : longest;
    }
    float *mine = calloc((size_t)longest + 1, sizeof *mine);
    float *all = calloc((size_t)longest * (size_t)r->ranks + 1, sizeof *all);
    memcpy(mine, local, (size_t)p->count * sizeof *mine);
    fo_status status = fo_group_allgather(r->group, mine, (size_t)longest * sizeof *mine, all);
    for (int64_t at = 0; at < p->full_rows * p->full_cols; at++)
        full[at] = NAN;
    for (int rank = 0; status == FO_OK && rank < r->ranks; rank++) {
        int64_t rows, cols;
        fo_model_local_shape(p, &r->config, r->ranks, rank, &rows, &cols);
        for (int64_t at = 0; at < rows * cols; at++)
            full[rig_full_index(r, p, rank, at / cols, at % cols)] = all[rank * longest + at];
    }
    free(mine);
    free(all);
    return status;
}

/* Every element within tolerance times the largest of the tensor; NaN is infinitely wrong. */
static inline fo_status rig_close_to(const rig *r, const char *name, int64_t cols, int64_t count,
                                     const float *found, const double *wanted, double tolerance)
{
    double largest = 0, worst = -1;
    int64_t at = 0;
    for (int64_t i = 0; i < count; i++)
        largest = fabs(wanted[i]) > largest ? fabs(wanted[i]) : largest;
    for (int64_t i = 0; i < count; i++) {
        double error = fabs((double)found[i] - wanted[i]);
        if (!(error <= worst)) {
            worst = error;
            at = i;
        }
    }
    if (worst <= tolerance * largest) {
        double error = largest > 0 ? worst / largest : 0;
        if (r->worst && error >= r->worst->error) {
            *r->worst = (rig_worst){.row = at / cols, .col = at % cols, .error = error};
            snprintf(r->worst->name, sizeof r->worst->name, "%s", name);
        }
        return FO_OK;
    }
    return fo_base_error(
        FO_INTERNAL,
        "%s: %s[%lld, %lld] is %.9g, expected %.9g: off by %.3g of the largest (%.3g), "
        "allowed %.3g",
        r->where, name, (long long)(at / cols), (long long)(at % cols), (double)found[at],
        wanted[at], worst / largest, largest, tolerance);
}

/* Every gradient of the model against the reference's. */
static inline fo_status rig_compare_gradients(rig *r, double tolerance)
{
    rig_worst worst = {0};
    fo_status status = FO_OK;
    r->worst = &worst;
    for (int i = 0; status == FO_OK && i < fo_model_parameter_count(r->model); i++) {
        const fo_parameter *p = fo_model_parameter(r->model, i);
        const gpt2_f64_tensor *t = gpt2_f64_find(r->reference, p->name);
        if (!t || t->rows != p->full_rows || t->cols != p->full_cols)
            return fo_base_error(FO_INTERNAL, "%s: %s is unknown or has another shape", r->where,
                                 p->name);
        float *full = malloc((size_t)(t->rows * t->cols) * sizeof *full);
        status = rig_gather(r, p, p->grad, full);
        if (status == FO_OK)
            status = rig_close_to(r, p->name, t->cols, t->rows * t->cols, full, t->grad, tolerance);
        free(full);
    }
    if (status == FO_OK && r->rank == 0)
        printf(
            "  %s: worst of all gradients at %s[%lld, %lld], off by %.2g of its tensor's largest, "
            "allowed %.2g\n",
            r->where, worst.name, (long long)worst.row, (long long)worst.col, worst.error,
            tolerance);
    r->worst = NULL;
    return status;
}

static inline double rig_reference_norm(const rig *r)
{
    double sum = 0;
    for (int i = 0; i < r->reference->count; i++) {
        const gpt2_f64_tensor *t = &r->reference->tensors[i];
        for (int64_t at = 0; at < t->rows * t->cols; at++)
            sum += t->grad[at] * t->grad[at];
    }
    return sqrt(sum);
}

static inline fo_status rig_near(const rig *r, const char *what, double found, double wanted,
                                 double tolerance)
{
    if (fabs(found - wanted) <= tolerance * fabs(wanted))
        return FO_OK;
    return fo_base_error(FO_INTERNAL, "%s: %s is %.10g, expected %.10g within %g", r->where, what,
                         found, wanted, tolerance);
}

static inline void rig_run(const char *transport, const char *kernel, int ranks, fo_rank_main body,
                           void *arg)
{
    if (UNDER_THREAD_SANITIZER && !strcmp(transport, "shm"))
        return;
    fo_group_options options = {.ranks = ranks,
                                .threads = 1,
                                .transport = transport,
                                .kernel = kernel,
                                .deadline_s = 60,
                                .memory = (size_t)256 << 20};
    if (fo_group_run(&options, body, arg) != FO_OK)
        fail_msg("%s/%s N=%d: %s", transport, kernel, ranks, fo_last_error());
}

#endif
