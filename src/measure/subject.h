/* What can be measured: a family is a kind of subject, a subject is one of a family under one strategy at one
 * point of the sweep. The runner knows nothing else about what it measures.
 *
 * Within a rank: open the family once a point (matrices that all strategies share), create a subject for
 * every strategy, execute, destroy, close. */
#ifndef FO_MEASURE_SUBJECT_H
#define FO_MEASURE_SUBJECT_H

#include "flashoverlap/bench.h"
#include "schedule/spelling.h"

/* One point of a sweep. */
typedef struct fo_measure_point {
    int64_t batch, context; /* 0 when only rows were given */
    int64_t rows;
} fo_measure_point;

/* What follows from the options alone, for the rank that has most. */
typedef struct fo_measure_sizes {
    double flops;       /* of the unsliced computation */
    double edge;        /* part of the computation that the link must stand idle at the start or the
                            end, whatever the schedule (docs/metrics.md) */
    double memory;      /* bytes, once a rank */
    double memory_each; /* bytes, for every strategy besides */
    bool bound_computes; /* several operations: the bound is the computation */
} fo_measure_sizes;

/* Where a result lies. */
typedef struct fo_measure_output {
    void *data;
    size_t bytes;
    bool sum; /* is added to: starts from zeros */
} fo_measure_output;

enum { FO_MEASURE_OUTPUTS = 8 };

typedef struct fo_measure_setup {
    const fo_bench_options *options;
    fo_group *group;
    fo_measure_point point;
    bool emulated; /* computation: nothing is written or read, so nothing is filled */
} fo_measure_setup;

typedef struct fo_measure_family {
    const char *name;
    const char *about;          /* "all-gather, fc1, GELU, fc2, reduce-scatter" */
    const char *about_backward; /* NULL where there is none */
    bool has_backward, has_sequences;
    unsigned forms, forms_backward; /* bit fo_schedule_form */
    /* FO_INVALID: a size that can't be done. */
    fo_status (*check)(const fo_bench_options *, const fo_measure_point *);
    void (*sizes)(const fo_bench_options *, const fo_measure_point *, fo_measure_sizes *);

    /* Not collective: a rank may fail alone, with *family to be closed or NULL. */
    fo_status (*open)(const fo_measure_setup *, void **family);
    /* Collective, after all ranks opened it; NULL: nothing to do. */
    fo_status (*prepare)(void *family);
    void (*close)(void *family); /* NULL is fine */
    fo_status (*create)(void *family, const fo_schedule_spelled *, void **subject);
    void (*destroy)(void *subject);

    fo_status (*execute)(void *subject);
    /* The unsliced local computation alone. NULL: it is the subject under `none` over a link without
     * cost. */
    fo_status (*execute_local)(void *subject);
    /* Of one execution, once there was one: bytes this rank sends. */
    int64_t (*wire_bytes)(const void *subject);
    /* Nanoseconds exposed since creation. */
    int64_t (*exposed_ns)(const void *subject);
    /* Before an execution whose results are hashed: makes sure that old results are not taken for new. */
    void (*clear)(void *subject);
    /* Goes on from `hash` over all results of the last execution. */
    uint64_t (*hash)(const void *subject, uint64_t hash);
    /* Collective. Seconds of an execution as the simulator has them, over the link the group has now; NaN: nobody
     * knows. Without execute_local: of the operators alone, and may execute the subject once. */
    fo_status (*predict)(void *subject, fo_prediction *prediction);
    /* The strategies that were taken, "flash:2" or "flash:2+none"; NULL: as asked for. */
    void (*taken)(const void *subject, char *text, size_t size);
} fo_measure_family;

/* By name, NULL when unknown. */
const fo_measure_family *fo_measure_family_find(const char *name);

extern const fo_measure_family fo_measure_family_row, fo_measure_family_column,
    fo_measure_family_mlp, fo_measure_family_attention, fo_measure_family_layer,
    fo_measure_family_step;

/* ---- plans.c: subjects that are plans executed one after the other --------------------------------- */

enum { FO_MEASURE_PLANS = 4, FO_MEASURE_MATRICES = 24 };

/* Matrices of a family, freed together. */
typedef struct fo_measure_matrices {
    const fo_measure_setup *setup;
    void *memory[FO_MEASURE_MATRICES];
    int count;
    bool failed; /* one could not be had; the error is stored */
} fo_measure_matrices;

typedef struct fo_measure_plans {
    fo_plan *plan[FO_MEASURE_PLANS];
    fo_plan_args args[FO_MEASURE_PLANS];
    int count;
    fo_measure_output outputs[FO_MEASURE_OUTPUTS];
    int output_count;
} fo_measure_plans;

/* Random numbers of `stream`, different on every rank; stream 0: zeros. NULL: failed is set. */
void *fo_measure_matrices_make(fo_measure_matrices *matrices, int64_t count, fo_dtype dtype,
                               int stream);
void fo_measure_matrices_free(fo_measure_matrices *matrices);

/* Adds an operation to be executed after those before it. */
fo_status fo_measure_plans_add(fo_measure_plans *plans, fo_group *group, const fo_plan_desc *desc,
                               const fo_plan_args *args);
void fo_measure_plans_output(fo_measure_plans *plans, void *data, int64_t count, fo_dtype dtype,
                             bool sum);
/* The functions of the table, for a fo_measure_plans made by malloc. */
void fo_measure_plans_destroy(void *subject);
fo_status fo_measure_plans_execute(void *subject);
fo_status fo_measure_plans_execute_local(void *subject);
int64_t fo_measure_plans_wire_bytes(const void *subject);
int64_t fo_measure_plans_exposed_ns(const void *subject);
void fo_measure_plans_clear(void *subject);
uint64_t fo_measure_plans_hash(const void *subject, uint64_t hash);
fo_status fo_measure_plans_predict(void *subject, fo_prediction *prediction);
void fo_measure_plans_taken(const void *subject, char *text, size_t size);

/* Goes on from `hash` over some bytes. */
uint64_t fo_measure_hash(uint64_t hash, const void *data, size_t bytes);

/* FO_INVALID unless value is 1 or more. */
fo_status fo_measure_check_size(const char *option, int64_t value);

#endif
