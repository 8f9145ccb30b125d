/* What a plan holds; shared by the files of this room only. */
#ifndef FO_OP_PLAN_H
#define FO_OP_PLAN_H

#include "exec/exec.h"
#include "flashoverlap/plan.h"
#include "kernel/kernel.h"
#include "op/wisdom.h"
#include "schedule/operation.h"
#include "sim/machine.h"

typedef struct fo_op_library fo_op_library;

struct fo_plan {
    fo_group *group;
    const fo_kernel *kernel;
    fo_plan_desc desc;
    char name[64];
    char overlap[32];
    char why[192]; /* what was chosen by itself was; "": as asked for */
    char explain[640];
    bool automatic;                /* overlap "auto": chosen anew when the link changes */
    fo_link link;                  /* that it was chosen for */
    int64_t shard_row, shard_rows; /* of this rank */
    int tile_rows, wgrad_rows;     /* of one call of a kernel */
    int64_t row_bytes[FO_BUFFER_ROLES];
    int64_t width_out; /* elements of a row of partial sums, or of the first computation's output */
    fo_strategy strategy;
    fo_program *program;
    int64_t
        *slice_rows; /* by task, of the product it belongs to; NULL where the kernel does not ask */
    fo_exec *exec;
    fo_op_library *library; /* strategy library: instead of a program and an executor */
    fo_gemm *gemm;          /* forward or dgrad, NULL without a weight */
    fo_gemm *gemm2;         /* MLP: the second product */
    fo_wgrad *wgrad;        /* backward */
    fo_attention *attention;
    void *packed, *packed2; /* w and w2 as the GEMM wants them */
    const float *packed_from, *packed2_from;
    uint64_t packed_version;
    float *tile;              /* [tile_rows, widest row] */
    void *local_out;          /* fo_plan_execute_local: where partials go, made when first needed */
    const fo_plan_args *args; /* of the running execution */
    fo_plan_args kept;        /* of one that was started */
    int64_t wire_bytes;
    fo_wait *waits;
    int wait_count;
    int64_t apart_ns;     /* attention that comes before or after the program */
    fo_exec_stats before; /* of executors that were replaced */
};

/* ---- plan.c ---- */
/* Tiles and sizes of plan->desc. */
void fo_op_plan_size(fo_plan *plan);
/* What computes; freed by fo_op_plan_free_kernels, also after a failure. */
fo_status fo_op_plan_make_kernels(fo_plan *plan);
void fo_op_plan_free_kernels(fo_plan *plan);

/* ---- describe.c: what an operation is ---- */
fo_status fo_op_describe_check(const fo_plan_desc *desc, const fo_kernel *kernel, const char *name);
fo_status fo_op_describe_check_args(const fo_plan *plan, const fo_plan_args *args);
/* The memory of a buffer role that the caller gave. */
void *fo_op_describe_external(const fo_plan *plan, const fo_plan_args *args, fo_buffer_role role);

/* ---- compute.c ---- */
/* The executor's callback; context is the plan. */
fo_status fo_op_compute_tile(void *context, const fo_exec_tile *tile);
/* The same of a tile whose task is none of the program's. */
fo_status fo_op_compute_rows(fo_plan *plan, const fo_exec_tile *tile);
/* Packs the weights of plan->args unless the same version is packed already; context is the plan. */
fo_status fo_op_compute_pack(void *context);
/* A piece of what the caller gave to do meanwhile; context is the plan. */
bool fo_op_compute_meanwhile(void *context);
/* Attention of all own heads in one piece, in the order in which programs take the rows. Backward: the
 * gradient through all queries. */
fo_status fo_op_compute_attention(fo_plan *plan);

/* ---- local.c ---- */
/* All rows of the local computation, one after another, without a schedule. */
fo_status fo_op_local_run(fo_plan *plan, const fo_plan_args *args);
/* Where partial sums of a local computation go: plan->local_out. */
fo_status fo_op_local_allocate(fo_plan *plan);
/* Rows [row, row + rows) of computation `slot`. add: a received partial, as it travels; NULL: none. */
fo_status fo_op_local_block(fo_plan *plan, int slot, int64_t row, int64_t rows, const void *add);

/* ---- learn.c: what is measured for plans of a shape ---- */
enum { FO_OP_NEEDS = 16 };
/* What has to be known of a plan to predict it, with the values left open; returns how many. `ranks`: on this
 * machine. */
int fo_op_learn_needs(const fo_plan *plan, int ranks, fo_op_fact needs[FO_OP_NEEDS]);
/* Collective: measures those whose value is NaN, the same ones on every rank. All ranks at once, the slowest counts. */
fo_status fo_op_learn(const fo_plan *plan, fo_op_fact *needs, int count);

/* ---- machine.c: what the simulator is told ---- */
/* The machine this plan's group runs on. `facts`: all of fo_op_learn_needs, not looked at where the device is
 * emulated. Freed by fo_sim_machine_free. */
fo_status fo_op_machine_make(const fo_plan *plan, const fo_op_fact *facts, int count,
                             fo_sim_machine *machine);

/* ---- auto.c ---- */
/* Collective. Chooses plan->overlap, plan->strategy and says why; remembers the link. */
fo_status fo_op_auto_choose(fo_plan *plan);

/* ---- library.c: strategies "library" and "library:k" ---- */
/* Fills plan->library, explain and wire_bytes; after the kernels were made. FO_UNSUPPORTED: an operation of more
 * than one collective, a transport without collectives, an emulated link. */
fo_status fo_op_library_create(fo_plan *plan);
void fo_op_library_destroy(fo_plan *plan);
fo_status fo_op_library_execute(fo_plan *plan, const fo_plan_args *args);
void fo_op_library_stats(const fo_plan *plan, fo_exec_stats *stats);
void fo_op_library_stats_reset(fo_plan *plan);

#endif
