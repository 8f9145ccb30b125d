/* The table of parameters: names, shapes, how they are split over ranks, initial values. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/random.h"
#include "model/state.h"

typedef enum size_name {
    ONE,
    DIM,
    QKV /* 3 dim */,
    HIDDEN /* 4 dim */,
    CONTEXT,
    VOCABULARY
} size_name;
typedef enum init_kind {
    NORMAL,
    RESIDUAL /* normal, less for more layers */,
    ZEROS,
    ONES
} init_kind;

typedef struct row {
    const char *name; /* of a layer: after "h.<layer>." */
    size_name rows, cols;
    fo_sharding sharding;
    bool transposed;
    init_kind init;
} row;

static const row first[] = {
    {"wte.weight", VOCABULARY, DIM, FO_VOCABULARY, false, NORMAL},
    {"wpe.weight", CONTEXT, DIM, FO_REPLICATED, false, NORMAL},
};

static const row layer[FO_MODEL_LAYER_PARAMETERS] = {
    [FO_MODEL_LN_1_WEIGHT] = {"ln_1.weight", ONE, DIM, FO_REPLICATED, false, ONES},
    [FO_MODEL_LN_1_BIAS] = {"ln_1.bias", ONE, DIM, FO_REPLICATED, false, ZEROS},
    [FO_MODEL_QKV_WEIGHT] = {"attn.c_attn.weight", QKV, DIM, FO_HEADS_COLUMN, true, NORMAL},
    [FO_MODEL_QKV_BIAS] = {"attn.c_attn.bias", ONE, QKV, FO_HEADS_COLUMN, false, ZEROS},
    [FO_MODEL_PROJ_WEIGHT] = {"attn.c_proj.weight", DIM, DIM, FO_HEADS_ROW, true, RESIDUAL},
    [FO_MODEL_PROJ_BIAS] = {"attn.c_proj.bias", ONE, DIM, FO_REPLICATED, false, ZEROS},
    [FO_MODEL_LN_2_WEIGHT] = {"ln_2.weight", ONE, DIM, FO_REPLICATED, false, ONES},
    [FO_MODEL_LN_2_BIAS] = {"ln_2.bias", ONE, DIM, FO_REPLICATED, false, ZEROS},
    [FO_MODEL_FC_WEIGHT] = {"mlp.c_fc.weight", HIDDEN, DIM, FO_HIDDEN_COLUMN, true, NORMAL},
    [FO_MODEL_FC_BIAS] = {"mlp.c_fc.bias", ONE, HIDDEN, FO_HIDDEN_COLUMN, false, ZEROS},
    [FO_MODEL_OUT_WEIGHT] = {"mlp.c_proj.weight", DIM, HIDDEN, FO_HIDDEN_ROW, true, RESIDUAL},
    [FO_MODEL_OUT_BIAS] = {"mlp.c_proj.bias", ONE, DIM, FO_REPLICATED, false, ZEROS},
};

static const row last[] = {
    {"ln_f.weight", ONE, DIM, FO_REPLICATED, false, ONES},
    {"ln_f.bias", ONE, DIM, FO_REPLICATED, false, ZEROS},
};

enum { FIRST = sizeof first / sizeof *first, LAST = sizeof last / sizeof *last };

static int64_t size_of(size_name size, const fo_model_config *c)
{
    switch (size) {
    case ONE: return 1;
    case DIM: return c->dim;
    case QKV: return 3 * c->dim;
    case HIDDEN: return 4 * c->dim;
    case CONTEXT: return c->context;
    case VOCABULARY: return c->vocabulary;
    }
    return 0;
}

/* ---- shares ---------------------------------------------------------------------------------- */

/* A rank's share of split features: `parts` runs (q, k, v) of `length`, `stride` apart in the
 * full tensor, the first from `begin`. */
typedef struct share {
    int parts;
    int64_t begin, length, stride;
} share;

static share heads_share(const fo_model_config *c, int parts, int ranks, int rank)
{
    int64_t head_dim = c->dim / c->heads;
    return (share){.parts = parts,
                   .begin = fo_shard_begin(c->heads, ranks, rank) * head_dim,
                   .length = fo_shard_rows(c->heads, ranks, rank) * head_dim,
                   .stride = c->dim};
}

static share run_share(int64_t total, int ranks, int rank)
{
    return (share){.parts = 1,
                   .begin = fo_shard_begin(total, ranks, rank),
                   .length = fo_shard_rows(total, ranks, rank),
                   .stride = total};
}

/* How output features (rows; columns of a vector) are split; a whole tensor is one run of all. */
static share out_share(const fo_parameter *p, const fo_model_config *c, int ranks, int rank)
{
    switch (p->sharding) {
    case FO_VOCABULARY: return run_share(c->vocabulary, ranks, rank);
    case FO_HEADS_COLUMN: return heads_share(c, 3, ranks, rank);
    case FO_HIDDEN_COLUMN: return run_share(4 * c->dim, ranks, rank);
    default: return run_share(p->full_rows, 1, 0);
    }
}

static share in_share(const fo_parameter *p, const fo_model_config *c, int ranks, int rank)
{
    switch (p->sharding) {
    case FO_HEADS_ROW: return heads_share(c, 1, ranks, rank);
    case FO_HIDDEN_ROW: return run_share(4 * c->dim, ranks, rank);
    default: return run_share(p->full_cols, 1, 0);
    }
}

/* A vector of output features: its columns are what the rows of a matrix are. */
static bool split_vector(const fo_parameter *p)
{
    return p->full_rows == 1 && (p->sharding == FO_HEADS_COLUMN || p->sharding == FO_HIDDEN_COLUMN);
}

static share row_share(const fo_parameter *p, const fo_model_config *c, int ranks, int rank)
{
    return split_vector(p) ? run_share(1, 1, 0) : out_share(p, c, ranks, rank);
}

static share col_share(const fo_parameter *p, const fo_model_config *c, int ranks, int rank)
{
    return split_vector(p) ? out_share(p, c, ranks, rank) : in_share(p, c, ranks, rank);
}

static int64_t to_full(share s, int64_t local)
{
    return local / s.length * s.stride + s.begin + local % s.length;
}

int64_t fo_model_full_row(const fo_parameter *parameter, const fo_model_config *config, int ranks,
                          int rank, int64_t local)
{
    return to_full(row_share(parameter, config, ranks, rank), local);
}

int64_t fo_model_full_col(const fo_parameter *parameter, const fo_model_config *config, int ranks,
                          int rank, int64_t local)
{
    return to_full(col_share(parameter, config, ranks, rank), local);
}

void fo_model_local_shape(const fo_parameter *parameter, const fo_model_config *config, int ranks,
                          int rank, int64_t *rows, int64_t *cols)
{
    share r = row_share(parameter, config, ranks, rank),
          c = col_share(parameter, config, ranks, rank);
    *rows = r.parts * r.length;
    *cols = c.parts * c.length;
}

/* ---- making them ----------------------------------------------------------------------------- */

static fo_parameter describe(const row *r, int64_t number, const fo_model *model)
{
    const fo_model_config *c = &model->config;
    fo_parameter p = {.sharding = r->sharding,
                      .transposed = r->transposed,
                      .decay = r->rows != ONE,
                      .full_rows = size_of(r->rows, c),
                      .full_cols = size_of(r->cols, c)};
    if (number < 0)
        snprintf(p.name, sizeof p.name, "%s", r->name);
    else
        snprintf(p.name, sizeof p.name, "h.%" PRId64 ".%s", number, r->name);
    if (r->init == NORMAL)
        p.init_std = 0.02f;
    if (r->init == RESIDUAL)
        p.init_std = (float)(0.02 / sqrt(2.0 * (double)c->layers));
    if (r->init == ONES)
        p.init_constant = 1.0f;
    fo_model_local_shape(&p, c, model->ranks, model->rank, &p.rows, &p.cols);
    p.count = p.rows * p.cols;
    return p;
}

static void describe_all(fo_model *model)
{
    fo_parameter *p = model->parameters;
    for (int i = 0; i < FIRST; i++)
        *p++ = describe(&first[i], -1, model);
    for (int64_t l = 0; l < model->config.layers; l++)
        for (int i = 0; i < FO_MODEL_LAYER_PARAMETERS; i++)
            *p++ = describe(&layer[i], l, model);
    for (int i = 0; i < LAST; i++)
        *p++ = describe(&last[i], -1, model);
}

/* Values depend on seed, name and place in the full tensor. */
static void initialise(const fo_model *model, fo_parameter *p)
{
    const fo_model_config *c = &model->config;
    uint64_t stream = fo_base_random_stream(p->name);
    share rows = row_share(p, c, model->ranks, model->rank);
    share cols = col_share(p, c, model->ranks, model->rank);
#pragma omp parallel for num_threads(fo_kernel_threads())
    for (int64_t r = 0; r < p->rows; r++) {
        int64_t full_row = to_full(rows, r);
        for (int64_t i = 0; i < p->cols; i++) {
            uint64_t index = (uint64_t)(full_row * p->full_cols + to_full(cols, i));
            p->value[r * p->cols + i] =
                p->init_std > 0.0f ? p->init_std * fo_base_random_normal(c->seed, stream, index)
                                   : p->init_constant;
        }
    }
}

fo_status fo_model_params_create(fo_model *model)
{
    size_t count = FIRST + FO_MODEL_LAYER_PARAMETERS * (size_t)model->config.layers + LAST;
    model->parameters = fo_model_memory_take(model, count * sizeof *model->parameters, false);
    if (!model->parameters)
        return FO_NO_MEMORY;
    model->parameter_count = (int)count;
    describe_all(model);
    fo_status status = fo_model_buckets_create(model);
    for (int i = 0; status == FO_OK && i < model->parameter_count; i++)
        initialise(model, &model->parameters[i]);
    return status;
}

/* ---- finding them ---------------------------------------------------------------------------- */

fo_parameter *fo_model_params_layer(const fo_model *model, int64_t number,
                                    fo_model_layer_parameter which)
{
    return &model->parameters[FO_MODEL_FIRST_LAYER + number * FO_MODEL_LAYER_PARAMETERS + which];
}

fo_parameter *fo_model_params_embedding(const fo_model *model, int which)
{
    return &model->parameters[which];
}

fo_parameter *fo_model_params_final(const fo_model *model, int which)
{
    return &model->parameters[model->parameter_count - LAST + which];
}

int fo_model_parameter_count(const fo_model *model)
{
    return model->parameter_count;
}

fo_parameter *fo_model_parameter(fo_model *model, int index)
{
    fo_model_parameters_changed(model); /* what the caller may do with it */
    return &model->parameters[index];
}

int64_t fo_model_size(const fo_model *model)
{
    int64_t size = 0;
    for (int i = 0; i < model->parameter_count; i++)
        size += model->parameters[i].full_rows * model->parameters[i].full_cols;
    return size;
}
