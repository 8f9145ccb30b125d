/* Data parallelism beside tensor parallelism: the gradients of the float64 reference, the same bits whenever they
 * travel, every element with one owner; refusals. */
#include "rig.h"

static const fo_model_config small = {
    .layers = 2, .heads = 5, .dim = 20, .context = 7, .vocabulary = 29, .seed = 3};

typedef struct split {
    int tp, dp;
} split;

static const split splits[] = {{1, 2}, {2, 1}, {2, 2}, {1, 3}, {3, 1}, {2, 3}};
enum { SPLITS = sizeof splits / sizeof *splits };

/* ---- beside the reference -------------------------------------------------------------------- */

typedef struct trial {
    fo_model_config config;
    int64_t batch, dropout_step;
    int micro;
    bool by_rows; /* expected of the model: embedding rows go between all ranks */
} trial;

static fo_status micro_step(rig *r, const trial *t, int number)
{
    float scale = 1.0f / (float)t->micro;
    double loss;
    rig_tokens(r, number);
    TRY(fo_model_forward(r->model, r->inputs, r->targets, t->dropout_step, &loss));
    TRY(fo_model_backward(r->model, r->inputs, r->targets, t->dropout_step, scale,
                          number + 1 == t->micro));
    TRY(rig_loss(r, loss, &loss));
    double wanted = gpt2_f64_forward(r->reference, r->inputs, r->targets);
    gpt2_f64_backward(r->reference, r->inputs, r->targets, (double)scale);
    return rig_near(r, "loss", loss, wanted, 1e-6);
}

static fo_status try_it(rig *r, const trial *t)
{
    double norm;
    fo_model_zero_gradients(r->model);
    for (int i = 0; i < t->micro; i++)
        TRY(micro_step(r, t, i));
    TRY(fo_model_reduce_gradients(r->model, &norm));
    TRY(rig_share_gradients(r));
    TRY(rig_compare_gradients(r, 2e-5));
    return rig_near(r, "norm", norm, rig_reference_norm(r), 2e-5);
}

static fo_status beside(fo_group *group, void *arg)
{
    const trial *t = arg;
    rig r;
    fo_status status = rig_open(&r, group, &t->config, t->batch, t->dropout_step);
    if (status == FO_OK && t->by_rows != r.model->by_rows)
        status = fo_base_error(FO_INTERNAL, "%s: rows go between all ranks: %d, expected %d",
                               r.where, r.model->by_rows, t->by_rows);
    if (status == FO_OK) {
        rig_refer(&r);
        status = try_it(&r, t);
    }
    rig_close(&r);
    return status;
}

static void run_split(const char *transport, const char *kernel, split s, trial t)
{
    t.config.tp = s.tp;
    t.config.dp = s.dp;
    rig_run(transport, kernel, s.tp * s.dp, beside, &t);
}

/* batch 5 over 2 replicas is 3 and 2, over 3 it is 2, 2 and 1. */
static void gradients_are_those_of_the_reference(void **state)
{
    (void)state;
    trial t = {.config = small, .batch = 5, .dropout_step = -1, .micro = 1};
    for (int i = 0; i < SPLITS; i++) {
        run_split("self", "ref", splits[i], t);
        run_split("shm", "onednn", splits[i], t);
    }
}

/* The rows of the embedding travel, not its table: more entries than tokens. */
static void with_more_vocabulary_than_tokens(void **state)
{
    (void)state;
    trial t = {.config = small, .batch = 3, .dropout_step = -1, .micro = 2};
    static const int64_t vocabularies[] = {20, 211};
    for (int i = 0; i < SPLITS; i++)
        for (int v = 0; v < 2; v++) {
            t.config.vocabulary = vocabularies[v];
            t.by_rows = splits[i].dp > 1 && v == 1;
            run_split("self", "onednn", splits[i], t);
        }
}

static void accumulated_and_with_dropout(void **state)
{
    (void)state;
    trial t = {.config = small, .batch = 5, .dropout_step = 11, .micro = 3};
    t.config.dropout = 0.25f;
    for (int i = 0; i < SPLITS; i++) {
        run_split("self", "onednn", splits[i], t);
        run_split("shm", "ref", splits[i], t);
    }
}

/* Ranks without heads, features or vocabulary entries; shards without rows. */
static void empty_shares(void **state)
{
    (void)state;
    trial t = {.config = {.layers = 2, .heads = 1, .dim = 3, .context = 2, .vocabulary = 2},
               .batch = 3,
               .dropout_step = -1,
               .micro = 1};
    static const split wide[] = {{2, 2}, {4, 2}, {1, 3}, {3, 3}};
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        run_split("self", "ref", wide[i], t);
}

/* ---- bits ------------------------------------------------------------------------------------ */

static uint64_t hash(uint64_t h, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++)
        h = (h ^ at[i]) * 0x100000001b3u;
    return h;
}

typedef struct way {
    const char *overlap;
    bool at_once; /* nothing is left under way */
} way;

static const way ways[] = {{"none", false}, {"flash", false},  {"flash", true}, {"slice:2", false},
                           {"ring", false}, {"direct", false}, {"none", true}};

static void change(rig *r)
{
    for (int b = 0; b < fo_model_bucket_count(r->model); b++) {
        fo_model_piece piece;
        for (int at = 0; fo_model_bucket_piece(r->model, b, &at, &piece);)
            for (int64_t i = 0; i < piece.count; i++)
                piece.value[i] -= 0.125f * piece.grad[i];
        fo_model_bucket_updated(r->model, b);
    }
}

/* Two steps, the second with what the first made of the parameters. */
static fo_status bits_of(rig *r, uint64_t *bits)
{
    uint64_t h = 1;
    for (int step = 0; step < 2; step++) {
        double loss, norm;
        fo_model_zero_gradients(r->model);
        for (int micro = 0; micro < 2; micro++) {
            rig_tokens(r, 2 * step + micro);
            TRY(fo_model_forward(r->model, r->inputs, r->targets, step, &loss));
            TRY(fo_model_backward(r->model, r->inputs, r->targets, step, 0.5f, micro == 1));
            h = hash(h, &loss, sizeof loss);
        }
        TRY(fo_model_reduce_gradients(r->model, &norm));
        h = hash(h, &norm, sizeof norm);
        change(r);
    }
    TRY(fo_model_settle(r->model));
    for (int i = 0; i < fo_model_parameter_count(r->model); i++) {
        const fo_parameter *p = fo_model_parameter(r->model, i);
        h = hash(h, p->value, (size_t)p->count * sizeof *p->value);
    }
    *bits = h;
    return FO_OK;
}

static fo_status same_bits(fo_group *group, void *arg)
{
    const trial *t = arg;
    uint64_t first = 0;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        rig r;
        uint64_t bits = 0;
        fo_model_config config = t->config;
        config.overlap = ways[i].overlap;
        fo_status status = rig_open(&r, group, &config, t->batch, 0);
        if (status == FO_OK && ways[i].at_once)
            r.model->early = false;
        if (status == FO_OK)
            status = bits_of(&r, &bits);
        if (i == 0)
            first = bits;
        if (status == FO_OK && bits != first)
            status =
                fo_base_error(FO_INTERNAL, "%s: %s%s has other bits than %s", r.where,
                              ways[i].overlap, ways[i].at_once ? " at once" : "", ways[0].overlap);
        rig_close(&r);
        TRY(status);
    }
    return FO_OK;
}

static void whether_it_travels_behind_leaves_the_bits_alone(void **state)
{
    (void)state;
    trial t = {.config = small, .batch = 5};
    t.config.dropout = 0.1f;
    static const int64_t vocabularies[] = {17, 31, 211};
    for (int i = 0; i < SPLITS; i++)
        for (int v = 0; v < 3; v++) {
            t.config.tp = splits[i].tp;
            t.config.dp = splits[i].dp;
            t.config.vocabulary = vocabularies[v];
            rig_run("self", "onednn", splits[i].tp * splits[i].dp, same_bits, &t);
            if (v != 1)
                rig_run("shm", "onednn", splits[i].tp * splits[i].dp, same_bits, &t);
        }
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* Each element of each parameter is updated on as many ranks as it has owners: one. */
static fo_status owned_once(const rig *r, fo_parameter *p)
{
    int64_t total = p->full_rows * p->full_cols;
    float *mine = calloc((size_t)total, sizeof *mine);
    int ranks = fo_group_size(r->world);
    float *all = calloc((size_t)total * (size_t)ranks, sizeof *all);
    fo_model_piece piece;
    fo_model_own_piece(r->model, p, &piece);
    for (int64_t at = piece.begin; at < piece.begin + piece.count; at++)
        mine[rig_full_index(r, p, r->rank, at / p->cols, at % p->cols)] += 1;
    fo_status status = fo_group_allgather(r->world, mine, (size_t)total * sizeof *mine, all);
    for (int64_t i = 0; status == FO_OK && i < total; i++) {
        float owners = 0;
        for (int rank = 0; rank < ranks; rank++)
            owners += all[rank * total + i];
        if (owners != 1)
            status = fo_base_error(FO_INTERNAL, "%s: %s[%lld] has %g owners", r->where, p->name,
                                   (long long)i, (double)owners);
    }
    free(mine);
    free(all);
    return status;
}

static fo_status pieces(fo_group *group, void *arg)
{
    const trial *t = arg;
    rig r;
    int64_t bytes, all[16], sum = 0;
    fo_status status = rig_open(&r, group, &t->config, t->batch, -1);
    for (int i = 0; status == FO_OK && i < fo_model_parameter_count(r.model); i++)
        status = owned_once(&r, fo_model_parameter(r.model, i));
    if (status == FO_OK) {
        bytes = fo_model_optimizer_bytes(r.model);
        status = fo_group_allgather(group, &bytes, sizeof bytes, all);
    }
    for (int rank = 0; status == FO_OK && rank < fo_group_size(group); rank++)
        sum += all[rank];
    /* two moments of every parameter, a row at most besides for each bucket and rank */
    int64_t least = 8 * fo_model_size(r.model);
    int64_t most = least + 8 * (4 * 256 + 64) * r.config.tp;
    if (status == FO_OK && (sum < least || sum > most))
        status = fo_base_error(FO_INTERNAL, "%s: %lld bytes of moments, expected %lld to %lld",
                               r.where, (long long)sum, (long long)least, (long long)most);
    rig_close(&r);
    return status;
}

static void every_element_has_one_owner(void **state)
{
    (void)state;
    trial t = {.config = small, .batch = 5};
    for (int i = 0; i < SPLITS; i++) {
        t.config.tp = splits[i].tp;
        t.config.dp = splits[i].dp;
        rig_run("self", "ref", splits[i].tp * splits[i].dp, pieces, &t);
    }
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void refused(int tp, int dp, int ranks, const char *words)
{
    fo_model_config c = {.tp = tp, .dp = dp};
    fo_status status = fo_model_config_split(&c, ranks);
    if (status != FO_INVALID || !strstr(fo_last_error(), words))
        fail_msg("tp %d dp %d of %d ranks: %s '%s', expected a refusal with '%s'", tp, dp, ranks,
                 fo_status_name(status), fo_last_error(), words);
}

static void taken(int tp, int dp, int ranks, int found_tp, int found_dp)
{
    fo_model_config c = {.tp = tp, .dp = dp};
    assert_int_equal(fo_model_config_split(&c, ranks), FO_OK);
    assert_int_equal(c.tp, found_tp);
    assert_int_equal(c.dp, found_dp);
}

static void splits_that_do_not_fit(void **state)
{
    (void)state;
    taken(0, 0, 6, 6, 1);
    taken(2, 0, 6, 2, 3);
    taken(0, 2, 6, 3, 2);
    taken(3, 2, 6, 3, 2);
    taken(0, 1, 5, 5, 1);
    refused(4, 0, 6, "tp is 4");
    refused(0, 4, 6, "dp is 4");
    refused(2, 2, 6, "tp 2 times dp 2 is 4");
    refused(-1, 0, 6, "tp is -1");
    refused(7, 0, 6, "6 ranks");
}

static fo_status wrong_calls(fo_group *group, void *arg)
{
    rig r;
    float logits[29];
    double loss;
    (void)arg;
    fo_model_config config = small;
    config.dp = 2;
    fo_model *none;
    if (fo_model_create(group, &config, 1, &none) != FO_INVALID ||
        !strstr(fo_last_error(), "batch is 1") || !strstr(fo_last_error(), "2 replicas"))
        return fo_base_error(FO_INTERNAL, "a sequence for two replicas was not refused");
    TRY(rig_open(&r, group, &config, 2, -1));
    fo_status status = FO_OK;
    if (fo_model_logits(r.model, r.inputs, 0, logits) != FO_UNSUPPORTED)
        status = fo_base_error(FO_INTERNAL, "logits of two replicas were not refused");
    for (int i = 0; status == FO_OK && i < 2; i++)
        status = fo_model_forward(r.model, r.inputs, r.targets, -1, &loss);
    if (status == FO_OK)
        status = fo_model_backward(r.model, r.inputs, r.targets, -1, 1, true);
    if (status == FO_OK &&
        (fo_model_backward(r.model, r.inputs, r.targets, -1, 1, true) != FO_INVALID ||
         !strstr(fo_last_error(), "zeroed")))
        status = fo_base_error(FO_INTERNAL, "gradients under way were added to");
    rig_close(&r); /* with sums under way */
    return status;
}

static void wrong_calls_are_refused(void **state)
{
    (void)state;
    rig_run("self", "ref", 2, wrong_calls, NULL);
    rig_run("shm", "ref", 4, wrong_calls, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_those_of_the_reference),
        cmocka_unit_test(with_more_vocabulary_than_tokens),
        cmocka_unit_test(accumulated_and_with_dropout),
        cmocka_unit_test(empty_shares),
        cmocka_unit_test(whether_it_travels_behind_leaves_the_bits_alone),
        cmocka_unit_test(every_element_has_one_owner),
        cmocka_unit_test(splits_that_do_not_fit),
        cmocka_unit_test(wrong_calls_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
