/* Choosing how to split a model over a cluster, and saying it in a file. Everything is simulated. */
#ifndef FLASHOVERLAP_SEARCH_H
#define FLASHOVERLAP_SEARCH_H

#include "flashoverlap/planner.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- search ---- */

enum { FO_SEARCH_TOP = 10 };

typedef struct fo_search_options {
    /* Model, machine, batch, context, types and the rest of a step. tp, dp, pp, micro_batch, interleave: 0 is
     * chosen, anything else is kept. */
    fo_step_options step;
    int ranks;
    bool recompute_given; /* step.recompute is kept; else the least that fits into memory */
    double memory_part;   /* of the machine's memory that may be used: 0 < part <= 1 */
    FILE *progress;       /* what is being tried; NULL: nobody is told */
} fo_search_options;

/* memory_part 0.9; the step's defaults with all sizes to be chosen. */
void fo_search_defaults(fo_search_options *options);

typedef struct fo_search_candidate {
    fo_step_options step; /* overlap NULL: of every operation as report.rows says */
    fo_step_report report;
} fo_search_candidate;

typedef struct fo_search_result {
    fo_search_candidate best[FO_SEARCH_TOP]; /* ascending step time */
    int count;
    int64_t considered; /* splits of the ranks that are possible */
    int64_t too_large;  /* of them, do not fit into memory */
    int64_t priced;     /* the others, but for those that cannot be faster than the best */
    double seconds;     /* what the search took */
} fo_search_result;

/* Splits `ranks` ranks in every way that the model, the machine and the batch allow, prices them, and simulates the best
 * few. tp stays within a machine, or within 16 ranks where all are on one.
 * FO_INVALID: nothing is possible, or nothing fits into memory; the sentence says which comes nearest. Else as
 * fo_step_simulate. */
fo_status fo_search_run(const fo_search_options *options, fo_search_result *result);

/* For people; with `explain` where the time of the best goes. */
void fo_search_print(const fo_search_options *options, const fo_search_result *result, bool explain,
                     FILE *out);
/* One JSON object. */
void fo_search_print_json(const fo_search_options *options, const fo_search_result *result,
                          FILE *out);

/* ---- plan files ---- */

/* {"format": "flashoverlap-plan", "format_version": 1, "model": "gpt2", "layers": 12, "dim": 768, "heads": 12, "machine": "h100-sxm", "ranks": 4, "tp": 2,
 *  "dp": 2, "pp": 1, "interleave": 1, "batch": 8, "micro_batch": 4, "context": 1024, "recompute": "none",
 *  "sequence_parallel": true, "flash_attention": true, "dtype": "bf16", "wire": "bf16", "step_s": 0.1,
 *  "operations": [{"name": "qkv forward", "overlap": "flash", "predicted_s": 0.001}]} */
enum { FO_PLAN_FILE_OPERATIONS = 32 };

typedef struct fo_plan_file {
    char model[64], machine[64];
    int64_t layers, dim, heads;
    int ranks, tp, dp, pp, interleave;
    int64_t batch, micro_batch, context;
    fo_recompute recompute;
    bool sequence_parallel, flash_attention;
    fo_dtype dtype, wire;
    double step_s; /* predicted */
    int operation_count;
    struct {
        char name[40], overlap[32];
        double predicted_s; /* of one execution */
    } operations[FO_PLAN_FILE_OPERATIONS];
} fo_plan_file;

void fo_plan_file_make(const fo_search_candidate *candidate, fo_plan_file *file);
/* Written beside and renamed: complete or as it was. FO_IO. */
fo_status fo_plan_file_write(const fo_plan_file *file, const char *path);
/* FO_IO: no regular file, or it can't be read; FO_INVALID: not JSON, or a field that is missing, mis-typed, out of range
 * or unknown, with its path and a valid example. *file is then unchanged. */
fo_status fo_plan_file_read(const char *path, fo_plan_file *file);
/* The same from text; `name` for messages. */
fo_status fo_plan_file_parse(const char *name, const char *text, size_t bytes, fo_plan_file *file);
/* The strategy of an operation, NULL: the file does not name it. */
const char *fo_plan_file_overlap(const fo_plan_file *file, const char *operation);

#ifdef __cplusplus
}
#endif
#endif
