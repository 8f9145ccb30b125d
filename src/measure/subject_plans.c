/* Subjects that are plans executed one after the other, and the matrices of a family. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "base/error.h"
#include "base/random.h"
#include "measure/subject.h"

enum { SEED = 7 };

/* ---- matrices -------------------------------------------------------------------------------------- */

static void fill(void *data, fo_dtype dtype, int64_t count, uint64_t stream)
{
    for (int64_t i = 0; i < count; i++) {
        float value = fo_base_random_uniform(SEED, stream, (uint64_t)i) - 0.5f;
        if (dtype == FO_BF16)
            ((fo_bf16 *)data)[i] = fo_base_bf16_from_f32(value);
        else
            ((float *)data)[i] = value;
    }
}

void *fo_measure_matrices_make(fo_measure_matrices *m, int64_t count, fo_dtype dtype, int stream)
{
    enum { RANKS_MOST = 4096, SLACK = 64 };
    const fo_measure_setup *s = m->setup;
    if (m->failed || m->count == FO_MEASURE_MATRICES) {
        m->failed = true;
        return NULL;
    }
    void *data = fo_group_alloc(s->group, (size_t)count * fo_dtype_size(dtype) + SLACK);
    if (!data) {
        m->failed = true;
        return NULL;
    }
    m->memory[m->count++] = data;
    if (stream && !s->emulated)
        fill(data, dtype, count, (uint64_t)stream * RANKS_MOST + (uint64_t)fo_group_rank(s->group));
    return data;
}

void fo_measure_matrices_free(fo_measure_matrices *m)
{
    for (int i = 0; i < m->count; i++)
        fo_group_free(m->setup->group, m->memory[i]);
    m->count = 0;
}

/* ---- plans ----------------------------------------------------------------------------------------- */

fo_status fo_measure_plans_add(fo_measure_plans *plans, fo_group *group, const fo_plan_desc *desc,
                               const fo_plan_args *args)
{
    if (plans->count == FO_MEASURE_PLANS)
        return fo_base_error(FO_INTERNAL, "more than %d operations one after the other",
                             FO_MEASURE_PLANS);
    plans->args[plans->count] = *args;
    fo_status status = fo_plan_create(group, desc, &plans->plan[plans->count]);
    plans->count += status == FO_OK;
    return status;
}

void fo_measure_plans_output(fo_measure_plans *plans, void *data, int64_t count, fo_dtype dtype,
                             bool sum)
{
    if (plans->output_count < FO_MEASURE_OUTPUTS)
        plans->outputs[plans->output_count++] =
            (fo_measure_output){data, (size_t)count * fo_dtype_size(dtype), sum};
}

void fo_measure_plans_destroy(void *subject)
{
    fo_measure_plans *plans = subject;
    if (!plans)
        return;
    for (int i = 0; i < plans->count; i++)
        fo_plan_destroy(plans->plan[i]);
    free(plans);
}

fo_status fo_measure_plans_execute(void *subject)
{
    fo_measure_plans *plans = subject;
    fo_status status = FO_OK;
    for (int i = 0; status == FO_OK && i < plans->count; i++)
        status = fo_plan_execute(plans->plan[i], &plans->args[i]);
    return status;
}

fo_status fo_measure_plans_execute_local(void *subject)
{
    fo_measure_plans *plans = subject;
    fo_status status = FO_OK;
    for (int i = 0; status == FO_OK && i < plans->count; i++)
        status = fo_plan_execute_local(plans->plan[i], &plans->args[i]);
    return status;
}

int64_t fo_measure_plans_wire_bytes(const void *subject)
{
    const fo_measure_plans *plans = subject;
    int64_t bytes = 0;
    for (int i = 0; i < plans->count; i++)
        bytes += fo_plan_wire_bytes(plans->plan[i]);
    return bytes;
}

int64_t fo_measure_plans_exposed_ns(const void *subject)
{
    const fo_measure_plans *plans = subject;
    int64_t exposed = 0;
    for (int i = 0; i < plans->count; i++) {
        fo_report report;
        fo_plan_report(plans->plan[i], &report);
        exposed += report.exposed_ns;
    }
    return exposed;
}

/* What an execution leaves out must be noticed: it finds bytes that no result has. */
void fo_measure_plans_clear(void *subject)
{
    const fo_measure_plans *plans = subject;
    for (int i = 0; i < plans->output_count; i++)
        memset(plans->outputs[i].data, plans->outputs[i].sum ? 0 : 0xff, plans->outputs[i].bytes);
}

uint64_t fo_measure_hash(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ at[i]) * 0x100000001b3u;
    return hash;
}

uint64_t fo_measure_plans_hash(const void *subject, uint64_t hash)
{
    const fo_measure_plans *plans = subject;
    for (int i = 0; i < plans->output_count; i++)
        hash = fo_measure_hash(hash, plans->outputs[i].data, plans->outputs[i].bytes);
    return hash;
}

/* ---- predictions ----------------------------------------------------------------------------------- */

/* Operators one after the other take the sum of their times. */
fo_status fo_measure_plans_predict(void *subject, fo_prediction *prediction)
{
    const fo_measure_plans *plans = subject;
    fo_prediction one, sum = {0};
    fo_status status = FO_OK;
    for (int i = 0; status == FO_OK && i < plans->count; i++) {
        status = fo_plan_predict(plans->plan[i], fo_plan_predicts(), &one);
        sum.total_s += one.total_s;
        sum.none_s += one.none_s;
        sum.compute_s += one.compute_s;
        sum.exposed_s += one.exposed_s;
    }
    *prediction = sum;
    if (status != FO_UNSUPPORTED) /* of the library nobody knows */
        return status;
    *prediction = (fo_prediction){NAN, NAN, NAN, NAN};
    return FO_OK;
}

void fo_measure_plans_taken(const void *subject, char *text, size_t size)
{
    const fo_measure_plans *plans = subject;
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < plans->count && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? "+" : "",
                                 fo_plan_overlap(plans->plan[i]));
}

/* ---- families -------------------------------------------------------------------------------------- */

const fo_measure_family *fo_measure_family_find(const char *name)
{
    static const fo_measure_family *const families[] = {
        &fo_measure_family_row,       &fo_measure_family_column, &fo_measure_family_mlp,
        &fo_measure_family_attention, &fo_measure_family_layer,  &fo_measure_family_step};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (name && !strcmp(families[i]->name, name))
            return families[i];
    return NULL;
}

fo_status fo_measure_check_size(const char *option, int64_t value)
{
    if (value >= 1)
        return FO_OK;
    return fo_base_error(FO_INVALID, "--%s is %lld, expected 1 or more", option, (long long)value);
}
