/* What every operation is: its pattern, its computations, its sizes. */
#include "schedule/operation.h"

/* A message should be worth its descriptor: at least this many bytes, unless the slice is smaller. */
enum { MESSAGE_BYTES = 32768 };

static const struct {
    const char *name;
    fo_pattern pattern;
    bool gemm, wgrad, attention, activation;
} ops[FO_SCHEDULE_OPERATIONS] = {
    [FO_COLUMN_FORWARD] = {"column forward", FO_PATTERN_GATHER, 1, 0, 0, 1},
    [FO_COLUMN_BACKWARD] = {"column backward", FO_PATTERN_JOINT, 1, 1, 0, 0},
    [FO_ROW_FORWARD] = {"row forward", FO_PATTERN_REDUCE, 1, 0, 0, 0},
    [FO_ROW_BACKWARD] = {"row backward", FO_PATTERN_GATHER2, 1, 1, 0, 1},
    [FO_ALL_GATHER] = {"all-gather", FO_PATTERN_GATHER, 0, 0, 0, 0},
    [FO_REDUCE_SCATTER] = {"reduce-scatter", FO_PATTERN_REDUCE, 0, 0, 0, 0},
    [FO_MLP_FORWARD] = {"mlp forward", FO_PATTERN_BLOCK, 1, 0, 0, 1},
    [FO_ATTENTION_FORWARD] = {"attention forward", FO_PATTERN_REDUCE, 1, 0, 1, 0},
    [FO_ATTENTION_BACKWARD] = {"attention backward", FO_PATTERN_GATHER2, 1, 1, 1, 0},
    [FO_COLUMN_DGRAD] = {"column dgrad", FO_PATTERN_REDUCE, 1, 0, 0, 0},
    [FO_COLUMN_WGRAD] = {"column wgrad", FO_PATTERN_WGRAD, 0, 1, 0, 0},
};

const char *fo_schedule_operation_name(fo_op op)
{
    return (unsigned)op < FO_SCHEDULE_OPERATIONS ? ops[op].name : "unknown";
}

fo_pattern fo_schedule_operation_pattern(fo_op op)
{
    return ops[op].pattern;
}

bool fo_schedule_operation_has_gemm(fo_op op)
{
    return ops[op].gemm;
}

bool fo_schedule_operation_has_wgrad(fo_op op)
{
    return ops[op].wgrad;
}

bool fo_schedule_operation_has_attention(fo_op op)
{
    return ops[op].attention;
}

bool fo_schedule_operation_has_activation(fo_op op)
{
    return ops[op].activation;
}

bool fo_schedule_operation_reduces(fo_op op)
{
    fo_pattern pattern = ops[op].pattern;
    return pattern == FO_PATTERN_REDUCE || pattern == FO_PATTERN_JOINT ||
           pattern == FO_PATTERN_BLOCK;
}

int64_t fo_schedule_operation_sizes(const fo_plan_desc *d, int64_t row_bytes[FO_BUFFER_ROLES])
{
    int64_t t = (int64_t)fo_dtype_size(d->dtype), wire = (int64_t)fo_dtype_size(d->wire);
    int64_t gathered = 0, full = 0, output = 0, width = d->in;
    switch (d->op) {
    case FO_COLUMN_FORWARD:
        gathered = d->in * t;
        width = d->out;
        output = d->out * (int64_t)fo_dtype_size(d->y_dtype);
        break;
    case FO_COLUMN_BACKWARD:
        gathered = d->in * t;
        full = d->out * t;
        output = d->in * 4;
        break;
    case FO_COLUMN_DGRAD:
        full = d->out * t;
        output = d->in * 4;
        break;
    case FO_COLUMN_WGRAD: gathered = d->in * t; break;
    case FO_ROW_FORWARD:
    case FO_ATTENTION_FORWARD:
        full = (d->op == FO_ROW_FORWARD ? 1 : 3) * d->in * t;
        width = d->out;
        output = d->out * 4;
        break;
    case FO_ROW_BACKWARD:
    case FO_ATTENTION_BACKWARD:
        gathered = d->out * t;
        output = d->in * t;
        break;
    case FO_ALL_GATHER: gathered = output = d->in * t; break;
    case FO_REDUCE_SCATTER: full = output = d->in * 4; break;
    case FO_MLP_FORWARD:
        gathered = d->in * t;
        width = d->out;
        output = d->out * 4;
        break;
    }
    row_bytes[FO_BUFFER_SHARD] = row_bytes[FO_BUFFER_GATHERED] = gathered;
    row_bytes[FO_BUFFER_FULL] = full;
    row_bytes[FO_BUFFER_HIDDEN] = d->hidden * t;
    row_bytes[FO_BUFFER_ACC] = width * 4;
    row_bytes[FO_BUFFER_PARTIAL] = row_bytes[FO_BUFFER_STAGING] = width * wire;
    row_bytes[FO_BUFFER_OUTPUT] = output;
    return width;
}

int64_t fo_schedule_operation_message_rows(const fo_plan_desc *desc, int64_t tile_rows)
{
    int64_t row_bytes[FO_BUFFER_ROLES];
    fo_schedule_operation_sizes(desc, row_bytes);
    bool gathers = ops[desc->op].pattern != FO_PATTERN_REDUCE;
    int64_t tile = row_bytes[gathers ? FO_BUFFER_GATHERED : FO_BUFFER_PARTIAL] * tile_rows;
    if (tile <= 0 || tile >= MESSAGE_BYTES)
        return tile_rows;
    return tile_rows * ((MESSAGE_BYTES + tile - 1) / tile);
}
