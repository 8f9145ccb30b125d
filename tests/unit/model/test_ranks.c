/* What must not depend on the number of ranks, the strategy or the transport; sampling;
 * refusals. */
#include "rig.h"

static const fo_model_config small = {
    .layers = 2, .heads = 5, .dim = 20, .context = 7, .vocabulary = 29, .seed = 3};

/* ---- the same for every N -------------------------------------------------------------------- */

typedef struct numbers {
    fo_model_config config;
    int64_t step;
    double loss, norm; /* written by rank 0: its thread is the caller's process under "self" */
} numbers;

/* Replicated gradients must have the same bits everywhere. */
static fo_status replicated_alike(const rig *r)
{
    fo_status status = FO_OK;
    for (int i = 0; status == FO_OK && i < fo_model_parameter_count(r->model); i++) {
        const fo_parameter *p = fo_model_parameter(r->model, i);
        size_t bytes = (size_t)p->count * sizeof(float);
        if (p->sharding != FO_REPLICATED)
            continue;
        char *all = malloc(bytes * (size_t)r->ranks);
        status = fo_group_allgather(r->group, p->grad, bytes, all);
        for (int rank = 0; status == FO_OK && rank < r->ranks; rank++)
            if (memcmp(all + (size_t)rank * bytes, p->grad, bytes))
                status = fo_base_error(FO_INTERNAL, "%s: %s has another gradient on rank %d",
                                       r->where, p->name, rank);
        free(all);
    }
    return status;
}

static fo_status alike(const rig *r, const char *what, double mine)
{
    double all[16];
    TRY(fo_group_allgather(r->group, &mine, sizeof mine, all));
    for (int rank = 0; rank < r->ranks; rank++)
        if (memcmp(&all[rank], &mine, sizeof mine))
            return fo_base_error(FO_INTERNAL, "%s: %s is %.17g here and %.17g on rank %d", r->where,
                                 what, mine, all[rank], rank);
    return FO_OK;
}

static fo_status one_step(rig *r, double *loss, double *norm)
{
    fo_model_zero_gradients(r->model);
    TRY(fo_model_forward(r->model, r->inputs, r->targets, r->dropout_step, loss));
    TRY(fo_model_backward(r->model, r->inputs, r->targets, r->dropout_step, 1, true));
    TRY(fo_model_reduce_gradients(r->model, norm));
    TRY(rig_share_gradients(r));
    TRY(alike(r, "loss", *loss));
    TRY(alike(r, "norm", *norm));
    return replicated_alike(r);
}

static fo_status numbers_of(fo_group *group, void *arg)
{
    numbers *n = arg;
    rig r;
    double loss = 0, norm = 0;
    fo_status status = rig_open(&r, group, &n->config, 2, n->step);
    if (status == FO_OK)
        status = one_step(&r, &loss, &norm);
    if (fo_group_rank(group) == 0) {
        n->loss = loss;
        n->norm = norm;
    }
    rig_close(&r);
    return status;
}

static void the_same_for_every_n(numbers n, double tolerance)
{
    double loss = 0, norm = 0;
    for (int ranks = 1; ranks <= 4; ranks++) {
        rig_run("self", ranks % 2 ? "onednn" : "ref", ranks, numbers_of, &n);
        if (ranks == 1) {
            loss = n.loss;
            norm = n.norm;
        }
        if (!(fabs(n.loss / loss - 1) < tolerance) || !(fabs(n.norm / norm - 1) < tolerance))
            fail_msg("N=%d: loss %.9g, norm %.9g; one rank: %.9g, %.9g", ranks, n.loss, n.norm,
                     loss, norm);
    }
}

static void norm_and_loss_are_the_same_for_every_n(void **state)
{
    (void)state;
    the_same_for_every_n((numbers){.config = small, .step = -1}, 1e-5);
}

static void dropout_is_the_same_for_every_n(void **state)
{
    (void)state;
    numbers n = {.config = small, .step = 4};
    n.config.dropout = 0.3f;
    the_same_for_every_n(n, 1e-5);
    double with = n.loss;
    rig_run("self", "ref", 2, numbers_of, &n);
    double first = n.loss;
    n.step = 5;
    rig_run("self", "ref", 2, numbers_of, &n);
    assert_true(fabs(n.loss - first) > 1e-3); /* another step, other masks */
    n.step = -1;
    rig_run("self", "ref", 2, numbers_of, &n);
    assert_true(fabs(n.loss - with) > 1e-3);
}

/* No two places share a mask, and no two steps a key. */
static void masks_are_independent(void **state)
{
    (void)state;
    uint64_t streams[1 + 2 * 8], keys[5 * 4];
    int count = 0, key_count = 0;
    streams[count++] = fo_model_dropout_stream(FO_MODEL_DROPOUT_EMBED, 0);
    for (int64_t layer = 0; layer < 8; layer++) {
        streams[count++] = fo_model_dropout_stream(FO_MODEL_DROPOUT_ATTENTION, layer);
        streams[count++] = fo_model_dropout_stream(FO_MODEL_DROPOUT_MLP, layer);
    }
    for (int64_t step = 0; step < 4; step++) {
        keys[key_count++] = fo_model_dropout_key(9, step);
        for (int64_t layer = 0; layer < 4; layer++)
            keys[key_count++] = fo_model_dropout_attention_key(9, step, layer);
    }
    for (int i = 0; i < count; i++)
        for (int j = 0; j < i; j++)
            assert_true(streams[i] != streams[j]);
    for (int i = 0; i < key_count; i++)
        for (int j = 0; j < i; j++)
            assert_true(keys[i] != keys[j]);
    assert_true(fo_model_dropout_key(9, 1) != fo_model_dropout_key(10, 1));
}

/* ---- bit for bit across strategies ----------------------------------------------------------- */

static uint64_t hash(uint64_t h, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++)
        h = (h ^ at[i]) * 0x100000001b3u;
    return h;
}

typedef struct strategies {
    fo_model_config config;
    int64_t batch;
    const char *const *names;
} strategies;

static fo_status bits_of(fo_group *group, const fo_model_config *config, int64_t batch,
                         uint64_t *bits)
{
    rig r;
    double loss = 0, norm = 0;
    fo_status status = rig_open(&r, group, config, batch, 2);
    for (int repeat = 0; status == FO_OK && repeat < 2; repeat++) {
        status = one_step(&r, &loss, &norm);
        uint64_t h = hash(hash(1, &loss, sizeof loss), &norm, sizeof norm);
        for (int i = 0; status == FO_OK && i < fo_model_parameter_count(r.model); i++) {
            const fo_parameter *p = fo_model_parameter(r.model, i);
            h = hash(h, p->grad, (size_t)p->count * sizeof *p->grad);
        }
        if (status == FO_OK && repeat && h != *bits)
            status = fo_base_error(FO_INTERNAL, "%s: the second run has other bits", r.where);
        *bits = h;
    }
    rig_close(&r);
    return status;
}

static fo_status same_bits(fo_group *group, void *arg)
{
    const strategies *s = arg;
    uint64_t first = 0;
    for (int i = 0; s->names[i]; i++) {
        fo_model_config config = s->config;
        uint64_t bits = 0;
        config.overlap = s->names[i];
        TRY(bits_of(group, &config, s->batch, &bits));
        if (i == 0)
            first = bits;
        if (bits != first)
            return fo_base_error(FO_INTERNAL, "%s N=%d rank %d: %s has other bits than %s",
                                 fo_group_transport(group), fo_group_size(group),
                                 fo_group_rank(group), s->names[i], s->names[0]);
    }
    return FO_OK;
}

static void strategies_have_the_same_bits(void **state)
{
    (void)state;
    static const char *const f32[] = {"none",    "slice:4", "ring", "flash",
                                      "flash:2", "direct",  NULL};
    static const char *const ring[] = {"none", "slice:4", "ring", "flash", "flash:2", NULL};
    strategies s = {.config = small, .batch = 2, .names = f32};
    strategies tall = {.config = small, .batch = 4, .names = f32};
    tall.config.context = 150;
    tall.config.dropout = 0.1f;
    tall.config.layers = 1;
    for (int ranks = 2; ranks <= 3; ranks++) {
        s.names = tall.names = f32;
        s.config.dtype = s.config.wire = tall.config.dtype = tall.config.wire = FO_F32;
        rig_run("self", "ref", ranks, same_bits, &s);
        rig_run("shm", "onednn", ranks, same_bits, &s);
        rig_run("self", "onednn", ranks, same_bits, &tall);
        rig_run("shm", "onednn", ranks, same_bits, &tall);
        s.names = tall.names = ring;
        s.config.dtype = s.config.wire = tall.config.dtype = tall.config.wire = FO_BF16;
        rig_run("shm", "onednn", ranks, same_bits, &s);
        rig_run("shm", "onednn", ranks, same_bits, &tall);
    }
}

/* self and shm: the bits of one hand themselves to the other through the caller. */
typedef struct carried {
    uint64_t bits[4];
    bool known;
} carried;

static fo_status across_transports(fo_group *group, void *arg)
{
    carried *c = arg;
    int rank = fo_group_rank(group);
    fo_model_config config = small;
    uint64_t bits;
    config.dropout = 0.2f;
    TRY(bits_of(group, &config, 3, &bits));
    if (!c->known)
        c->bits[rank] = bits;
    else if (c->bits[rank] != bits)
        return fo_base_error(FO_INTERNAL, "rank %d of %d has other bits under %s than under self",
                             rank, fo_group_size(group), fo_group_transport(group));
    return FO_OK;
}

static void transports_have_the_same_bits(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 4; ranks++) {
        carried c = {0};
        rig_run("self", "onednn", ranks, across_transports, &c);
        c.known = true;
        rig_run("shm", "onednn", ranks, across_transports, &c);
    }
}

/* ---- float32 in spite of a narrow wire ------------------------------------------------------- */

/* The residual stream begins with the sum of two rows, to the bit. */
static fo_status embedding_is_exact(const rig *r)
{
    const fo_model *m = r->model;
    int64_t dim = r->config.dim;
    for (int64_t i = 0; i < m->shard_rows * dim; i++) {
        int64_t row = m->shard_row + i / dim, col = i % dim, token = 0;
        while (fo_model_rows_find(m, token) != row)
            token++;
        float wanted = rig_value("wte.weight", r->inputs[token] * dim + col) +
                       rig_value("wpe.weight", token % r->config.context * dim + col);
        if (m->layers[0].ln_1.x[i] != wanted)
            return fo_base_error(FO_INTERNAL, "%s: embedding of row %lld column %lld is %a, not %a",
                                 r->where, (long long)row, (long long)col,
                                 (double)m->layers[0].ln_1.x[i], (double)wanted);
    }
    return FO_OK;
}

/* Partial gradients of a replicated parameter before, their sum after. */
static fo_status sum_is_float32(rig *r)
{
    double wanted[20] = {0}, norm;
    float all[20 * 4], *grad = fo_model_params_final(r->model, 1)->grad;
    TRY(fo_group_allgather(r->group, grad, 20 * sizeof *grad, all));
    for (int i = 0; i < 20 * r->ranks; i++)
        wanted[i % 20] += (double)all[i];
    TRY(fo_model_reduce_gradients(r->model, &norm));
    TRY(rig_share_gradients(r));
    return rig_close_to(r, "ln_f.bias", 20, 20, grad, wanted, 1e-6);
}

static fo_status narrow_wire(fo_group *group, void *arg)
{
    rig r;
    double loss;
    fo_model_config config = small;
    config.dtype = config.wire = FO_BF16;
    fo_status status = rig_open(&r, group, &config, *(const int64_t *)arg, -1);
    if (status == FO_OK)
        status = fo_model_forward(r.model, r.inputs, r.targets, -1, &loss);
    if (status == FO_OK)
        status = embedding_is_exact(&r);
    if (status == FO_OK)
        status = fo_model_backward(r.model, r.inputs, r.targets, -1, 1, true);
    if (status == FO_OK)
        status = sum_is_float32(&r);
    rig_close(&r);
    return status;
}

static void a_narrow_wire_leaves_embeddings_and_sums_alone(void **state)
{
    (void)state;
    int64_t batches[] = {2,
                         6}; /* fewer tokens than vocabulary entries, and more: the table travels */
    for (int ranks = 1; ranks <= 4; ranks++)
        for (int i = 0; i < 2; i++) {
            rig_run("self", "ref", ranks, narrow_wire, &batches[i]);
            rig_run("shm", "onednn", ranks, narrow_wire, &batches[i]);
        }
}

/* ---- parameters that change, sampling, refusals ---------------------------------------------- */

static void scale_all(fo_model *model, float factor)
{
    for (int i = 0; i < fo_model_parameter_count(model); i++) {
        fo_parameter *p = fo_model_parameter(model, i);
        for (int64_t at = 0; at < p->count; at++)
            p->value[at] *= factor;
    }
}

/* Packed weights follow the values: after a change the loss is that of a fresh model. */
static fo_status changes_are_seen(fo_group *group, void *arg)
{
    rig r, fresh;
    double before, after, again, wanted;
    (void)arg;
    TRY(rig_open(&r, group, &small, 2, -1));
    TRY(fo_model_forward(r.model, r.inputs, r.targets, -1, &before));
    scale_all(r.model, 1.25f);
    TRY(fo_model_forward(r.model, r.inputs, r.targets, -1, &after));
    TRY(fo_model_forward(r.model, r.inputs, r.targets, -1, &again));
    TRY(rig_open(&fresh, group, &small, 2, -1));
    scale_all(fresh.model, 1.25f);
    TRY(fo_model_forward(fresh.model, r.inputs, r.targets, -1, &wanted));
    rig_close(&fresh);
    rig_close(&r);
    if (after != wanted || again != wanted || after == before)
        return fo_base_error(FO_INTERNAL, "N=%d: loss %.17g after a change, %.17g in a fresh model",
                             fo_group_size(group), after, wanted);
    return FO_OK;
}

/* An optimizer that keeps its pointers: what it writes after reduce_gradients is seen, and so is
 * what anyone writes who then says so. */
static fo_status updates_are_seen(fo_group *group, void *arg)
{
    rig r;
    double before, after, wanted, norm;
    (void)arg;
    TRY(rig_open(&r, group, &small, 2, -1));
    fo_parameter *kept = fo_model_parameter(r.model, FO_MODEL_WTE);
    TRY(fo_model_forward(r.model, r.inputs, r.targets, -1, &before));
    TRY(fo_model_backward(r.model, r.inputs, r.targets, -1, 1, true));
    TRY(fo_model_reduce_gradients(r.model, &norm));
    for (int64_t at = 0; at < kept->count; at++)
        kept->value[at] *= 2;
    TRY(fo_model_forward(r.model, r.inputs, r.targets, -1, &after));
    fo_model_parameters_changed(r.model);
    TRY(fo_model_forward(r.model, r.inputs, r.targets, -1, &wanted));
    rig_close(&r);
    if (after != wanted || after == before)
        return fo_base_error(FO_INTERNAL, "N=%d: loss %.17g after an update, expected %.17g",
                             fo_group_size(group), after, wanted);
    return FO_OK;
}

static void changed_parameters_are_seen(void **state)
{
    (void)state;
    rig_run("self", "ref", 1, changes_are_seen, NULL);
    rig_run("shm", "onednn", 3, changes_are_seen, NULL);
    rig_run("self", "ref", 1, updates_are_seen, NULL);
    rig_run("shm", "onednn", 3, updates_are_seen, NULL);
}

static fo_status logits_of_rows(fo_group *group, void *arg)
{
    rig r;
    float logits[29];
    (void)arg;
    fo_status status = rig_open(&r, group, &small, 1, -1);
    if (status != FO_OK)
        return status;
    rig_refer(&r);
    gpt2_f64_forward(r.reference, r.inputs, r.targets);
    for (int64_t row = 0; status == FO_OK && row < r.rows; row++) {
        status = fo_model_logits(r.model, r.inputs, row, logits);
        if (status == FO_OK)
            status =
                rig_close_to(&r, "logits", 29, 29, logits, r.reference->logits + row * 29, 1e-5);
    }
    if (status == FO_OK && (fo_model_logits(r.model, r.inputs, r.rows, logits) != FO_INVALID ||
                            !strstr(fo_last_error(), "row 7")))
        status = fo_base_error(FO_INTERNAL, "a row past the end was not refused");
    rig_close(&r);
    return status;
}

static void logits_are_those_of_the_row(void **state)
{
    (void)state;
    rig_run("self", "ref", 1, logits_of_rows, NULL);
    rig_run("self", "onednn", 3, logits_of_rows, NULL);
    rig_run("shm", "onednn", 3, logits_of_rows, NULL);
    rig_run("shm", "onednn", 9, logits_of_rows, NULL); /* more ranks than rows */
}

static fo_status expect(fo_status found, const char *words)
{
    if (found == FO_INVALID && strstr(fo_last_error(), words))
        return FO_OK;
    return fo_base_error(FO_INTERNAL, "%s '%s', expected a refusal with '%s'",
                         fo_status_name(found), fo_last_error(), words);
}

static fo_status refusals(fo_group *group, void *arg)
{
    rig r;
    double loss;
    fo_model *none;
    (void)arg;
    TRY(expect(fo_model_create(group, &small, 0, &none), "batch is 0"));
    TRY(rig_open(&r, group, &small, 2, -1));
    fo_status status =
        expect(fo_model_backward(r.model, r.inputs, r.targets, -1, 1, true), "without a forward");
    r.inputs[9] = 29;
    if (status == FO_OK)
        status = expect(fo_model_forward(r.model, r.inputs, r.targets, -1, &loss),
                        "input 2 of sequence 1 is token 29, expected 0 to 28");
    r.inputs[9] = 0;
    r.targets[0] = -1;
    if (status == FO_OK)
        status = expect(fo_model_forward(r.model, r.inputs, r.targets, -1, &loss), "target 0");
    r.targets[0] = 0;
    if (status == FO_OK)
        status = fo_model_forward(r.model, r.inputs, r.targets, 3, &loss);
    if (status == FO_OK)
        status = expect(fo_model_backward(r.model, r.inputs, r.targets, 4, 1, true),
                        "same dropout step");
    if (status == FO_OK)
        status = fo_model_backward(r.model, r.inputs, r.targets, 3, 1, true);
    rig_close(&r);
    return status;
}

static void wrong_calls_are_refused(void **state)
{
    (void)state;
    rig_run("self", "ref", 2, refusals, NULL);
}

static fo_status reports(fo_group *group, void *arg)
{
    rig r;
    double loss, norm;
    fo_model_report report;
    (void)arg;
    TRY(rig_open(&r, group, &small, 2, -1));
    fo_status status = one_step(&r, &loss, &norm);
    char *text = fo_model_explain(r.model);
    fo_model_report_get(r.model, &report);
    if (status == FO_OK &&
        (!text || !strstr(text, "attention qkv backward: ") || !strstr(text, "flash")))
        status = fo_base_error(FO_INTERNAL, "the explanation is '%s'", text ? text : "");
    if (status == FO_OK &&
        (report.sent_bytes <= 0 || report.compute_ns <= 0 || report.total_ns < report.compute_ns))
        status = fo_base_error(FO_INTERNAL, "the report has %lld bytes, %lld ns",
                               (long long)report.sent_bytes, (long long)report.total_ns);
    fo_model_report_reset(r.model);
    fo_model_report_get(r.model, &report);
    if (status == FO_OK && (report.sent_bytes || report.total_ns))
        status = fo_base_error(FO_INTERNAL, "the report is not empty after a reset");
    free(text);
    rig_close(&r);
    return status;
}

static void plans_are_reported(void **state)
{
    (void)state;
    rig_run("self", "ref", 2, reports, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norm_and_loss_are_the_same_for_every_n),
        cmocka_unit_test(dropout_is_the_same_for_every_n),
        cmocka_unit_test(masks_are_independent),
        cmocka_unit_test(strategies_have_the_same_bits),
        cmocka_unit_test(transports_have_the_same_bits),
        cmocka_unit_test(a_narrow_wire_leaves_embeddings_and_sums_alone),
        cmocka_unit_test(changed_parameters_are_seen),
        cmocka_unit_test(logits_are_those_of_the_row),
        cmocka_unit_test(wrong_calls_are_refused),
        cmocka_unit_test(plans_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
