/* The table of parameters: shapes, shares, initial values; configurations that are refused. */
#include "rig.h"

static const fo_model_config odd = {
    .layers = 2, .heads = 5, .dim = 15, .context = 6, .vocabulary = 13, .seed = 21};

/* ---- refusals -------------------------------------------------------------------------------- */

static void refused(const fo_model_config *config, const char *first, const char *second)
{
    fo_status status = fo_model_config_check(config);
    const char *sentence = fo_last_error();
    if (status != FO_INVALID || !strstr(sentence, first) || !strstr(sentence, second))
        fail_msg("%s: '%s', expected a refusal with '%s' and '%s'", fo_status_name(status),
                 sentence, first, second);
}

static void configurations_are_refused(void **state)
{
    (void)state;
    fo_model_config c = odd;
    assert_int_equal(fo_model_config_check(&c), FO_OK);
    c.dim = 17;
    refused(&c, "dim is 17", "nearest is 15");
    c.dim = 18;
    refused(&c, "dim is 18", "nearest is 20");
    c.dim = 2;
    refused(&c, "dim is 2", "nearest is 5");
    c = odd;
    c.heads = 0;
    refused(&c, "heads is 0", "nearest is 1");
    c = odd;
    c.layers = -3;
    refused(&c, "layers is -3", "nearest is 1");
    c = odd;
    c.vocabulary = (int64_t)1 << 40;
    refused(&c, "vocabulary is 1099511627776", "nearest is 2147483647");
    c = odd;
    c.dropout = 1;
    refused(&c, "dropout is 1", "below 1");
    c.dropout = NAN;
    refused(&c, "dropout is", "below 1");
    c = odd;
    c.overlap = "flesh";
    refused(&c, "flesh", "flash");
    c = odd;
    c.dtype = (fo_dtype)7;
    refused(&c, "type is 7", "bf16");
}

static void sizes_follow_from_the_configuration(void **state)
{
    (void)state;
    fo_model_config gpt2 = {
        .layers = 12, .heads = 12, .dim = 768, .context = 1024, .vocabulary = 50257};
    double parameters = 124439808.0 - 1024 * 768;
    double flops = 6 * parameters + 12.0 * 12 * 768 * 1024;
    assert_true(fabs(fo_model_flops_per_token(&gpt2) - flops) < 1);
}

/* ---- shares ---------------------------------------------------------------------------------- */

static fo_status bad(const rig *r, const fo_parameter *p, const char *what)
{
    return fo_base_error(FO_INTERNAL, "%s: %s: %s", r->where, p->name, what);
}

/* The ranks' shares of a split tensor cover it exactly once; the order inside a share is that of
 * the whole. */
static fo_status covers(const rig *r, const fo_parameter *p)
{
    int64_t total = p->full_rows * p->full_cols, seen = 0;
    char *hit = calloc((size_t)total, 1);
    for (int rank = 0; rank < r->ranks; rank++) {
        int64_t rows, cols, before = -1;
        fo_model_local_shape(p, &r->config, r->ranks, rank, &rows, &cols);
        for (int64_t at = 0; at < rows * cols; at++) {
            int64_t full = rig_full_index(r, p, rank, at / cols, at % cols);
            if (full <= before || full >= total || (p->sharding != FO_REPLICATED && hit[full])) {
                free(hit);
                return bad(r, p, "an element is out of order, outside or with two ranks");
            }
            before = full;
            seen += !hit[full];
            hit[full] = 1;
        }
    }
    free(hit);
    return seen == total ? FO_OK : bad(r, p, "an element is with no rank");
}

/* Known places: with 2 ranks, 5 heads of 3 and 60 hidden features, rank 1 begins at head 3,
 * feature 30. */
static fo_status known_places(const rig *r, const fo_parameter *p)
{
    static const struct {
        const char *name;
        int64_t row, col, full_row, full_col, rows, cols;
    } places[] = {
        {"h.1.attn.c_attn.weight", 0, 4, 9, 4, 18, 15},
        {"h.1.attn.c_attn.weight", 6, 0, 24, 0, 18, 15},
        {"h.0.attn.c_attn.bias", 0, 17, 0, 44, 1, 18},
        {"h.0.attn.c_proj.weight", 14, 0, 14, 9, 15, 6},
        {"h.1.mlp.c_fc.weight", 0, 14, 30, 14, 30, 15},
        {"h.1.mlp.c_fc.bias", 0, 29, 0, 59, 1, 30},
        {"h.0.mlp.c_proj.weight", 3, 1, 3, 31, 15, 30},
        {"h.0.mlp.c_proj.bias", 0, 1, 0, 1, 1, 15},
        {"wte.weight", 5, 2, 12, 2, 6, 15},
        {"wpe.weight", 5, 2, 5, 2, 6, 15},
    };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        if (strcmp(places[i].name, p->name))
            continue;
        int64_t rows, cols;
        fo_model_local_shape(p, &r->config, 2, 1, &rows, &cols);
        if (rows != places[i].rows || cols != places[i].cols ||
            fo_model_full_row(p, &r->config, 2, 1, places[i].row) != places[i].full_row ||
            fo_model_full_col(p, &r->config, 2, 1, places[i].col) != places[i].full_col)
            return bad(r, p, "rank 1 of 2 has another share than expected");
    }
    return FO_OK;
}

static fo_status check_shape(const rig *r, const fo_parameter *p)
{
    int64_t rows, cols;
    fo_model_local_shape(p, &r->config, r->ranks, r->rank, &rows, &cols);
    if (rows != p->rows || cols != p->cols || p->count != rows * cols)
        return bad(r, p, "its shape is not the one fo_model_local_shape gives");
    bool vector = strstr(p->name, "bias") || strstr(p->name, "ln_");
    if (p->decay == vector)
        return bad(r, p, "weight decay is for matrices and embeddings only");
    bool linear = strstr(p->name, ".c_") && !vector;
    if (p->transposed != linear)
        return bad(r, p, "files hold the weights of linear layers transposed, and nothing else");
    return FO_OK;
}

static fo_status shares(fo_group *group, void *arg)
{
    rig r;
    (void)arg;
    fo_status status = rig_open(&r, group, &odd, 1, -1);
    for (int i = 0; status == FO_OK && i < fo_model_parameter_count(r.model); i++) {
        const fo_parameter *p = fo_model_parameter(r.model, i);
        status = check_shape(&r, p);
        if (status == FO_OK)
            status = covers(&r, p);
        if (status == FO_OK)
            status = known_places(&r, p);
    }
    if (status == FO_OK &&
        fo_model_size(r.model) != 13 * 15 + 6 * 15 + 2 * (12 * 225 + 13 * 15) + 30)
        status = fo_base_error(FO_INTERNAL, "the model has %lld parameters",
                               (long long)fo_model_size(r.model));
    rig_close(&r);
    return status;
}

static void shares_cover_every_parameter(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 7; ranks++)
        rig_run("self", "ref", ranks, shares, NULL);
}

/* ---- initial values -------------------------------------------------------------------------- */

static float expected_value(const fo_model_config *c, const char *name, int64_t index)
{
    bool norm = strstr(name, "ln_");
    if (strstr(name, "bias"))
        return 0.0f;
    if (norm)
        return 1.0f;
    float std = strstr(name, "c_proj") ? (float)(0.02 / sqrt(2.0 * (double)c->layers)) : 0.02f;
    return std * fo_base_random_normal(c->seed, fo_base_random_stream(name), (uint64_t)index);
}

static fo_status check_values(const rig *r, const fo_parameter *p, float *full)
{
    TRY(rig_gather(r, p, p->value, full));
    for (int64_t i = 0; i < p->full_rows * p->full_cols; i++) {
        float wanted = expected_value(&r->config, p->name, i);
        if (memcmp(&full[i], &wanted, sizeof wanted))
            return fo_base_error(FO_INTERNAL, "%s: initial %s[%lld] is %a, expected %a", r->where,
                                 p->name, (long long)i, (double)full[i], (double)wanted);
    }
    return FO_OK;
}

static fo_status initial(fo_group *group, void *arg)
{
    rig r = {.group = group,
             .config = odd,
             .ranks = fo_group_size(group),
             .rank = fo_group_rank(group)};
    (void)arg;
    snprintf(r.where, sizeof r.where, "N=%d", r.ranks);
    fo_status status = fo_model_create(group, &odd, 1, &r.model);
    for (int i = 0; status == FO_OK && i < fo_model_parameter_count(r.model); i++) {
        const fo_parameter *p = fo_model_parameter(r.model, i);
        float *full = malloc((size_t)(p->full_rows * p->full_cols) * sizeof *full);
        status = check_values(&r, p, full);
        free(full);
        fo_model_piece piece;
        fo_model_own_piece(r.model, p, &piece);
        for (int64_t at = 0; status == FO_OK && at < p->count; at++)
            if (p->grad[at] != 0)
                status = bad(&r, p, "gradients don't begin at 0");
        for (int64_t at = 0; status == FO_OK && at < piece.count; at++)
            if (piece.m[at] != 0 || piece.v[at] != 0)
                status = bad(&r, p, "moments don't begin at 0");
    }
    rig_close(&r);
    return status;
}

static void initial_values_are_the_same_for_every_n(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 4; ranks++) {
        rig_run("self", "ref", ranks, initial, NULL);
        rig_run("shm", "onednn", ranks, initial, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(configurations_are_refused),
        cmocka_unit_test(sizes_follow_from_the_configuration),
        cmocka_unit_test(shares_cover_every_parameter),
        cmocka_unit_test(initial_values_are_the_same_for_every_n),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
