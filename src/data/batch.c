/* Training and held-out parts, and batches out of them. */
#include <inttypes.h>

#include "base/error.h"
#include "base/random.h"
#include "data/state.h"

typedef struct part {
    const char *name;
    int64_t begin, count;
} part;

static part part_of(const fo_data *data, int held_out)
{
    int64_t split = data->count / 10 * 9 + data->count % 10 * 9 / 10; /* floor(count * 9 / 10) */
    if (held_out)
        return (part){"held-out", split, data->count - split};
    return (part){"training", 0, split};
}

static fo_status check_part(const fo_data *data, const part *p, int64_t context)
{
    if (context < 1)
        return fo_base_error(FO_INVALID, "the context is %" PRId64 ", expected 1 or more", context);
    if (p->count > context)
        return FO_OK;
    return fo_base_error(FO_FORMAT,
                         "%s is too short: its %s part (%s of %" PRId64 " tokens) has %" PRId64
                         " tokens, expected at least %" PRIu64 " for a context of %" PRId64
                         "; use more data or a shorter context",
                         data->name, p->name,
                         p->begin == 0 ? "the first nine tenths" : "the last tenth", data->count,
                         p->count, (uint64_t)context + 1, context);
}

fo_status fo_data_check_length(const fo_data *data, int64_t context)
{
    part training = part_of(data, 0), held_out = part_of(data, 1);
    fo_status status = check_part(data, &training, context);
    return status == FO_OK ? check_part(data, &held_out, context) : status;
}

fo_status fo_data_batch(const fo_data *data, int held_out, uint64_t seed, int64_t step,
                        int64_t batch, int64_t context, int32_t *inputs, int32_t *targets)
{
    int64_t first, last;
    if (step < 0 || batch < 1 || __builtin_mul_overflow(step, batch, &first) ||
        __builtin_add_overflow(first, batch, &last))
        return fo_base_error(FO_INVALID,
                             "%s: batch of %" PRId64 " sequences for step %" PRId64
                             ", expected 1 or "
                             "more for step 0 or later",
                             data->name, batch, step);
    part p = part_of(data, held_out);
    fo_status status = check_part(data, &p, context);
    if (status != FO_OK)
        return status;
    uint64_t stream = fo_base_random_stream(held_out ? "data held out" : "data training");
    uint64_t starts = (uint64_t)(p.count - context); /* a sequence takes context + 1 tokens */
    for (int64_t b = 0; status == FO_OK && b < batch; b++) {
        int64_t start =
            p.begin + (int64_t)fo_base_random_below(seed, stream, (uint64_t)(first + b), starts);
        status = fo_data_read(data, start, context, inputs + b * context);
        if (status == FO_OK)
            status = fo_data_read(data, start + 1, context, targets + b * context);
    }
    return status;
}
