/* What attention takes: whole sequences, and turning from one to another. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "group/group.h"
#include "op/learn.h"

/* So many sequences take turns, so that what one reads is in no cache. */
enum { SEQUENCES = 4 };

typedef struct sequence {
    const fo_kernel *kernel;
    fo_attention *attention;
    fo_attention_args args;
    int64_t context, step;
    bool backward, turns;
} sequence;

static fo_status one_sequence(void *work, int index)
{
    const sequence *s = work;
    int64_t first = index % SEQUENCES * s->context;
    fo_status status = FO_OK;
    s->kernel->attention_begin(s->attention);
    for (int64_t row = 0, rows; status == FO_OK && row < s->context; row += rows) {
        rows = s->context - row < s->step ? s->context - row : s->step;
        status = s->backward
                     ? s->kernel->attention_queries_grad(s->attention, &s->args, first + row, rows)
                     : s->kernel->attention_queries(s->attention, &s->args, first + row, rows);
    }
    return status;
}

/* The backward pass reads what forward has written. */
static fo_status forward_all(const sequence *s)
{
    sequence forward = *s;
    fo_status status = FO_OK;
    forward.backward = false;
    for (int i = 0; status == FO_OK && s->backward && i < SEQUENCES; i++)
        status = one_sequence(&forward, i);
    return status;
}

/* The last queries of one sequence, then those of another: keys and values are made ready again each time. */
static fo_status one_turn(void *work, int index)
{
    const sequence *s = work;
    int64_t rows = s->context < s->step ? s->context : s->step;
    int64_t first = s->turns ? index % SEQUENCES * s->context : 0;
    return s->kernel->attention_queries(s->attention, &s->args, first + s->context - rows, rows);
}

static fo_status measure_turn(sequence *work, fo_op_figure *result)
{
    fo_op_figure longer = {NAN, 0}, shorter = {NAN, 0};
    work->turns = true;
    fo_status status = fo_op_learn_sample(one_turn, NULL, work, &longer);
    work->turns = false;
    if (status == FO_OK)
        status = fo_op_learn_sample(one_turn, NULL, work, &shorter);
    result->seconds = fmax(longer.seconds - shorter.seconds, 0.01 * longer.seconds);
    result->spread = fmax(longer.spread, shorter.spread);
    return status;
}

fo_status fo_op_learn_attention(const fo_plan *plan, fo_op_scratch *s, const fo_op_fact *need,
                                fo_op_figure *result)
{
    bool backward = plan->desc.op == FO_ATTENTION_BACKWARD;
    bool turns = !strcmp(need->what, "turn");
    int64_t all = SEQUENCES * need->rows * need->k * need->n;
    fo_attention_desc desc = {.batch = SEQUENCES,
                              .context = need->rows,
                              .heads = (int)need->k,
                              .head_dim = (int)need->n,
                              .dtype = plan->desc.dtype,
                              .dropout = plan->desc.attention.dropout,
                              .total_heads = (int)need->k};
    sequence work = {.kernel = plan->kernel,
                     .context = need->rows,
                     .step = backward ? plan->wgrad_rows : plan->tile_rows,
                     .backward = backward};
    if (!s->attention.qkv) /* the same for all that is measured */
        s->attention =
            (fo_attention_args){.qkv = fo_op_scratch_filled(s, 3 * all),
                                .dropout_key = 1,
                                .lse = fo_op_scratch_filled(s, SEQUENCES * need->rows * need->k),
                                .out = fo_op_scratch_filled(s, all),
                                .dout = fo_op_scratch_filled(s, all),
                                .dqkv = fo_op_scratch_filled(s, 3 * all)};
    if (s->failed)
        return fo_base_error(FO_NO_MEMORY, "%s: no memory to measure attention", plan->name);
    work.args = s->attention;
    fo_status status = plan->kernel->attention_create(&desc, &work.attention);
    if (status == FO_OK)
        status = forward_all(&work);
    if (status == FO_OK && turns)
        status = measure_turn(&work, result);
    else if (status == FO_OK)
        status = fo_op_learn_sample(one_sequence, NULL, &work, result);
    if (work.attention)
        plan->kernel->attention_destroy(work.attention);
    return status;
}
