/* What a plan holds; shared by the files of this room only. */
#ifndef FO_OP_PLAN_H
#define FO_OP_PLAN_H

#include "exec/exec.h"
#include "flashoverlap/plan.h"
#include "kernel/kernel.h"

struct fo_plan {
    fo_group *group;
    const fo_kernel *kernel;
    fo_plan_desc desc;
    char name[64];
    char overlap[32];
    char explain[320];
    int64_t shard_row, shard_rows; /* of this rank */
    int64_t width_out;             /* elements of an output row of the first computation */
    fo_program *program;
    fo_exec *exec;
    fo_gemm *gemm;   /* forward or dgrad, NULL without a weight */
    fo_wgrad *wgrad; /* backward */
    void *packed;    /* w as the GEMM wants it */
    const float *packed_from;
    uint64_t packed_version;
    float *tile;              /* [FO_TILE_ROWS, width_out] */
    void *local_out;          /* fo_plan_execute_local: where partials go, made when first needed */
    const fo_plan_args *args; /* of the running execution */
    int64_t wire_bytes;
    fo_wait *waits;
    int wait_count;
    int64_t pack_ns;
};

/* compute.c: the executor's callback; context is the plan. */
fo_status fo_op_compute_tile(void *context, const fo_exec_tile *tile);
/* Packs args->w unless the same version is packed already. */
fo_status fo_op_compute_pack(fo_plan *plan, const fo_plan_args *args);
/* All rows of the local computation, one after another, without a schedule. */
fo_status fo_op_compute_local(fo_plan *plan, const fo_plan_args *args);

#endif
