/* What tiles take, as the operators compute them, and packing and additions: on scratch memory. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "group/group.h"
#include "op/learn.h"

enum {
    SCRATCH_BYTES = 8 << 20,       /* of a matrix: more than the inner caches hold */
    SCRATCH_BYTES_ALL = 128 << 20, /* of those of all ranks of the machine */
    SWEPT_BYTES = 24 << 20,        /* to make caches forget */
    SWEPT_BYTES_ALL = 192 << 20,
    LEAST_BYTES = 1 << 20
};

/* Of each rank: less where there are many. */
static int64_t share(const fo_plan *plan, int64_t each, int64_t all)
{
    int64_t equal = all / fo_group_local_ranks(plan->group);
    return equal > each ? each : equal < LEAST_BYTES ? LEAST_BYTES : equal;
}

/* ---- scratch -------------------------------------------------------------------------------------- */

/* The memory that plans compute in; where the user has limited it, and it does not suffice, the process's own. */
static void *take(fo_op_scratch *s, size_t bytes)
{
    void *memory = fo_group_alloc(s->plan.group, bytes);
    s->own &= ~(1u << s->count);
    if (memory)
        return memory;
    s->own |= 1u << s->count;
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

void *fo_op_scratch_filled(fo_op_scratch *s, int64_t elements)
{
    size_t words = (size_t)(elements + 31) / 16 * 16;
    uint32_t *memory = s->count < FO_OP_MATRICES ? take(s, words * 4) : NULL;
    uint32_t random = 1;
    s->failed |= !memory;
    if (!memory)
        return NULL;
    for (size_t i = 0; i < words; i++) {
        random = random * 1664525u + 1013904223u;
        memory[i] = (random ^ random >> 16) & 0x80ff80ffu;
        memory[i] |= 0x3f003f00u;
    }
    return s->memory[s->count++] = memory;
}

static int64_t widest_row(const fo_plan_desc *d)
{
    int64_t widest = d->in > d->out ? d->in : d->out;
    return widest > d->hidden ? widest : d->hidden;
}

/* As many as memory is wanted for, whole blocks of both computations. */
static int64_t scratch_rows(const fo_plan *plan)
{
    int64_t step = plan->wgrad_rows > plan->tile_rows ? plan->wgrad_rows : plan->tile_rows;
    int64_t bytes = share(plan, SCRATCH_BYTES, SCRATCH_BYTES_ALL);
    int64_t rows = bytes / (4 * (widest_row(&plan->desc) + 1)) / step * step;
    int64_t all = (plan->desc.rows + step - 1) / step * step;
    rows = rows < step ? step : rows;
    return rows < all ? rows : all;
}

void fo_op_scratch_free(fo_op_scratch *s)
{
    fo_op_plan_free_kernels(&s->plan);
    for (int i = 0; i < s->count; i++)
        if (s->own & 1u << i)
            free(s->memory[i]);
        else
            fo_group_free(s->plan.group, s->memory[i]);
    free(s);
}

/* What tiles stream through comes first, so that caches have lost it when they do: as in a run, where other operators
 * were in between. */
static void bind(fo_op_scratch *s)
{
    const fo_plan_desc *d = &s->plan.desc;
    int64_t all = d->rows * widest_row(d), weight = d->in * (d->hidden ? d->hidden : d->out);
    bool grad = fo_schedule_operation_has_wgrad(d->op);
    if (s->plan.local_out) /* no page of it is new any more */
        memset(s->plan.local_out, 0, (size_t)(d->rows * s->plan.row_bytes[FO_BUFFER_PARTIAL]));
    s->args.x = fo_op_scratch_filled(s, all);
    s->args.w = fo_op_scratch_filled(s, weight);
    if (grad || d->op == FO_COLUMN_DGRAD)
        s->args.dy = fo_op_scratch_filled(s, all);
    if (grad) {
        s->args.dw = fo_op_scratch_filled(s, weight);
        s->args.db = fo_op_scratch_filled(s, d->out);
    }
    if (d->act == FO_GELU)
        s->args.pre = fo_op_scratch_filled(s, all);
    if (fo_schedule_operation_has_gemm(d->op))
        s->swept = fo_op_scratch_filled(s, (int64_t)s->swept_bytes / 4);
    s->args.bias = fo_op_scratch_filled(s, widest_row(d));
    s->args.y = fo_op_scratch_filled(s, all);
    s->args.dx = fo_op_scratch_filled(s, all);
    if (d->op == FO_ATTENTION_FORWARD)
        s->args.att = s->args.y;
    if (d->op == FO_MLP_FORWARD) {
        s->args.w2 = fo_op_scratch_filled(s, d->hidden * d->out);
        s->args.bias2 = fo_op_scratch_filled(s, d->out);
        s->args.act = fo_op_scratch_filled(s, all);
    }
}

fo_status fo_op_scratch_make(const fo_plan *plan, fo_op_scratch **out)
{
    fo_op_scratch *s = *out = calloc(1, sizeof *s);
    if (!s)
        return fo_base_error(FO_NO_MEMORY, "%s: no memory to measure its shape", plan->name);
    s->plan = (fo_plan){.group = plan->group, .kernel = plan->kernel, .desc = plan->desc};
    snprintf(s->plan.name, sizeof s->plan.name, "%s", plan->name);
    s->plan.desc.rows = scratch_rows(plan);
    s->swept_bytes = (size_t)share(plan, SWEPT_BYTES, SWEPT_BYTES_ALL);
    s->plan.desc.attention.first = true; /* attention is a figure of its own */
    s->plan.desc.attention.batch = s->plan.desc.rows;
    s->plan.desc.attention.context = 1;
    s->plan.shard_rows = s->plan.desc.rows;
    fo_op_plan_size(&s->plan);
    fo_status status = fo_op_plan_make_kernels(&s->plan);
    if (status == FO_OK)
        status = fo_op_local_allocate(&s->plan);
    if (status != FO_OK)
        return status;
    bind(s);
    if (s->failed)
        return fo_base_error(FO_NO_MEMORY, "%s: no memory to measure its shape", plan->name);
    s->plan.args = &s->args;
    return fo_op_compute_pack(&s->plan);
}

/* ---- pieces --------------------------------------------------------------------------------------- */

/* A tile of a computation. */
typedef struct tiles {
    fo_op_scratch *scratch;
    int slot;
    int64_t step;
    const void *add;
} tiles;

static fo_status one_tile(void *work, int index)
{
    tiles *t = work;
    int64_t places = t->scratch->plan.desc.rows / t->step;
    return fo_op_local_block(&t->scratch->plan, t->slot, index % places * t->step, t->step, t->add);
}

/* Nothing of what is packed is in a cache any more. */
static fo_status forget(void *work, int index)
{
    fo_op_scratch *s = work;
    memset(s->swept, index & 1, s->swept_bytes);
    return FO_OK;
}

static fo_status one_pack(void *work, int index)
{
    fo_op_scratch *s = work;
    (void)index;
    return s->plan.kernel->gemm_pack(s->plan.gemm, s->args.w, s->plan.packed);
}

static fo_status one_second_pack(void *work, int index)
{
    fo_op_scratch *s = work;
    (void)index;
    return s->plan.kernel->gemm_pack(s->plan.gemm2, s->args.w2, s->plan.packed2);
}

/* An addition as none and slice:k make them: a local sum, a received one, the result. */
static fo_status one_pass(void *work, int index)
{
    fo_op_scratch *s = work;
    fo_plan *plan = &s->plan;
    int64_t step = plan->tile_rows, row = index % (plan->desc.rows / step) * step;
    fo_task task = {.kind = FO_TASK_ADD, .rows = step};
    fo_exec_tile tile = {.task = &task,
                         .row = row,
                         .rows = step,
                         .in = (char *)s->args.y + row * plan->width_out * 4,
                         .add = (char *)s->args.dx + row * plan->row_bytes[FO_BUFFER_STAGING],
                         .out = (char *)plan->local_out + row * plan->row_bytes[FO_BUFFER_PARTIAL],
                         .in_role = FO_BUFFER_ACC,
                         .add_role = FO_BUFFER_STAGING,
                         .out_role = FO_BUFFER_PARTIAL};
    return fo_op_compute_rows(plan, &tile);
}

/* The epilogue of partial sums, with or without what is added. */
typedef struct addition {
    fo_op_scratch *scratch;
    bool adds;
} addition;

static fo_status one_addition(void *work, int index)
{
    const addition *a = work;
    fo_plan *plan = &a->scratch->plan;
    int64_t step = plan->tile_rows, row = index % (plan->desc.rows / step) * step;
    fo_epilogue epilogue = {.add = a->adds ? (char *)a->scratch->args.dx +
                                                 row * plan->row_bytes[FO_BUFFER_STAGING]
                                           : NULL,
                            .add_dtype = plan->desc.wire,
                            .y = (char *)plan->local_out + row * plan->row_bytes[FO_BUFFER_PARTIAL],
                            .y_dtype = plan->desc.wire};
    plan->kernel->epilogue(&epilogue, plan->tile, step, plan->width_out);
    return FO_OK;
}

static fo_status measure_addition(fo_op_scratch *s, fo_op_figure *result)
{
    addition with = {s, true}, without = {s, false};
    fo_op_figure longer = {NAN, 0}, shorter = {NAN, 0};
    fo_status status = fo_op_learn_sample(one_addition, NULL, &with, &longer);
    if (status == FO_OK)
        status = fo_op_learn_sample(one_addition, NULL, &without, &shorter);
    result->seconds = fmax(longer.seconds - shorter.seconds, 0.05 * longer.seconds);
    return status;
}

/* ---- the call ------------------------------------------------------------------------------------- */

fo_status fo_op_learn_tiles(fo_op_scratch *s, const fo_plan *plan, const fo_op_fact *need,
                            fo_op_figure *result)
{
    bool second =
        plan->desc.op == FO_MLP_FORWARD && need->k == plan->desc.hidden &&
        need->n == plan->desc.out &&
        (fo_op_learn_is(need, "pack") || !strcmp(need->what, fo_op_learn_gemm_word(plan, 1)));
    tiles products = {.scratch = s, .slot = second, .step = plan->tile_rows};
    tiles grads = {.scratch = s, .slot = 1, .step = plan->wgrad_rows};
    fo_plan_args summed = s->args;
    fo_status status;
    if (fo_op_learn_is(need, "attention") || fo_op_learn_is(need, "turn"))
        return fo_op_learn_attention(plan, s, need, result);
    if (fo_op_learn_is(need, "gemm"))
        return fo_op_learn_sample(one_tile, NULL, &products, result);
    if (fo_op_learn_is(need, "wgrad")) {
        if (strcmp(need->what, "wgrad:sum") != 0)
            s->args.db = NULL;
        status = fo_op_learn_sample(one_tile, NULL, &grads, result);
        s->args = summed;
        return status;
    }
    if (fo_op_learn_is(need, "pack"))
        return fo_op_learn_sample(second ? one_second_pack : one_pack, forget, s, result);
    if (fo_op_learn_is(need, "add"))
        return measure_addition(s, result);
    return fo_op_learn_sample(one_pass, NULL, s, result);
}
