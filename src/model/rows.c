/* Which token a row is. Where every shard holds whole sequences rows are straight; where shards cut
 * sequences they are balanced, so that every slice of queries costs the same. */
#include <string.h>

#include "model/state.h"

fo_row_order fo_model_rows_order(int64_t batch, int ranks)
{
    return batch % ranks ? FO_ROWS_BALANCED : FO_ROWS_STRAIGHT;
}

fo_status fo_model_rows_create(fo_model *m)
{
    int64_t batch = m->batch, context = m->config.context;
    m->order = fo_model_rows_order(batch, m->ranks);
    m->run_count = fo_rows_runs(m->order, batch, context, m->ranks, NULL, 0);
    m->runs = fo_model_memory_take(m, (size_t)m->run_count * sizeof *m->runs, false);
    m->tokens = fo_model_memory_take(m, (size_t)m->rows * sizeof *m->tokens, false);
    m->targets = fo_model_memory_take(m, (size_t)m->rows * sizeof *m->targets, false);
    if (!m->runs || !m->tokens || !m->targets)
        return FO_NO_MEMORY;
    fo_rows_runs(m->order, batch, context, m->ranks, m->runs, m->run_count);
    return FO_OK;
}

void fo_model_rows_arrange(const fo_model *m, const int32_t *from, int32_t *to)
{
    for (int64_t i = 0; i < m->run_count; i++) {
        const fo_run *run = &m->runs[i];
        int64_t sequence = m->first_sequence + run->sequence;
        memcpy(to + run->row, from + sequence * m->config.context + run->position,
               (size_t)run->rows * sizeof *to);
    }
}

int64_t fo_model_rows_find(const fo_model *m, int64_t token)
{
    int64_t sequence = token / m->config.context, position = token % m->config.context;
    for (int64_t i = 0; i < m->run_count; i++) {
        const fo_run *run = &m->runs[i];
        if (run->sequence == sequence && position >= run->position &&
            position < run->position + run->rows)
            return run->row + position - run->position;
    }
    return -1;
}

bool fo_model_rows_next(const fo_model *m, int64_t *at, fo_run *run)
{
    int64_t begin = m->shard_row, end = begin + m->shard_rows;
    for (; *at < m->run_count; ++*at) {
        *run = m->runs[*at];
        int64_t cut = run->row < begin ? begin - run->row : 0;
        int64_t last = run->row + run->rows < end ? run->row + run->rows : end;
        if (run->row + cut >= last)
            continue;
        run->rows = last - run->row - cut;
        run->position += cut;
        run->row += cut - begin;
        ++*at;
        return true;
    }
    return false;
}
