/* Plans: describe an operation once, execute it many times, ask it to explain itself and to report.
 *
 * Notation: N ranks, M rows (tokens) in the whole group, rank r owns the shard of rows
 * [fo_shard_begin(M,N,r), fo_shard_begin(M,N,r+1)). All matrices are row-major and dense.
 * T is the computation type (desc.dtype); f is float32.
 *
 * operation         computes                                          communicates
 * COLUMN_FORWARD    y = act(all_gather(x) . w^T + bias)               x, type T
 * COLUMN_BACKWARD   dx = reduce_scatter(dy . w);                      dx partials (wire), and x (T)
 *                   dw += dy^T . all_gather(x);  db += colsum(dy)
 * ROW_FORWARD       y = reduce_scatter(x . w^T) + bias                y partials (wire)
 * ROW_BACKWARD      g = all_gather(dy); dx = (g . w) * act'(pre);     dy, type T
 *                   dw += g^T . x;  db += colsum(dy of the own shard)
 * ALL_GATHER        y = all_gather(x)                                 x, type T
 * REDUCE_SCATTER    y = reduce_scatter(x) + bias                      x partials (wire)
 *
 * argument   COLUMN_FORWARD COLUMN_BACKWARD ROW_FORWARD  ROW_BACKWARD  ALL_GATHER  REDUCE_SCATTER
 * x          [Mr, in]  T    [Mr, in] T      [M, in] T    [M, in] T     [Mr, in] T  produce() or [M, in] f
 * w          [out, in] f    [out, in] f     [out, in] f  [out, in] f   -           -
 * bias       [out] f or 0   -               [out] f or 0 -             -           [in] f or 0
 * y          [M, out] Y     -               [Mr, out] f  -             [M, in] T   [Mr, in] f
 * pre        [M, out] T     -               -            [M, in] T     -           -
 * dy         -              [M, out] T      -            [Mr, out] T   -           -
 * dx         -              [Mr, in] f      -            [M, in] T     -           -
 * dw         -              [out, in] f +=  -            [out, in] f+= -           -
 * db         -              [out] f +=      -            [out] f +=    -           -
 *
 * Mr: rows of the own shard. Y: desc.y_dtype. `in` and `out` are the sizes of this rank's weight:
 * for column-parallel layers `out` is the rank's share of the features, for row-parallel layers `in`
 * is; shares may differ between ranks and may be 0. `pre` is required with FO_GELU: forward writes
 * the value before the activation, backward reads it.
 *
 * Numbers: partial sums accumulate in float32; for shard j the ranks' contributions are added in the
 * order j+1, j+2, ..., j (mod N), each running sum rounded to desc.wire when it travels; bias comes
 * last. dw and db accumulate over shards in the order r, r-1, ..., r-N+1 and inside a shard over
 * blocks of FO_WGRAD_ROWS rows. So results are bitwise identical across strategies (in the direct form
 * with a bf16 wire: among direct forms), transports and repeated runs for the same N and types.
 */
#ifndef FLASHOVERLAP_PLAN_H
#define FLASHOVERLAP_PLAN_H

#include "flashoverlap/group.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { FO_WGRAD_ROWS = 256 };

typedef enum fo_op {
    FO_COLUMN_FORWARD,
    FO_COLUMN_BACKWARD,
    FO_ROW_FORWARD,
    FO_ROW_BACKWARD,
    FO_ALL_GATHER,
    FO_REDUCE_SCATTER
} fo_op;

typedef enum fo_activation { FO_IDENTITY, FO_GELU /* tanh form, as GPT-2 */ } fo_activation;

/* Writes rows [row, row + rows) of this rank's partial, [rows, in] float32, to `out`. Called between
 * messages, each row exactly once an execution, rows <= 64. */
typedef void (*fo_produce)(void *arg, int64_t row, int64_t rows, float *out);

typedef struct fo_plan_desc {
    fo_op op;
    int64_t rows;        /* M */
    int64_t in, out;     /* sizes of this rank's weight; out is unused without a weight */
    fo_dtype dtype;      /* T */
    fo_dtype wire;       /* type of travelling partial sums; FO_BF16 needs no bf16 computation */
    fo_dtype y_dtype;    /* COLUMN_FORWARD only */
    fo_activation act;   /* COLUMN_FORWARD and ROW_BACKWARD */
    const char *overlap; /* "none", "slice:k", "ring", "flash", "flash:m", "direct", "direct:m";
                              NULL: "flash" */
    const char *name;    /* for messages and reports, copied; NULL: the operation's name */
} fo_plan_desc;

typedef struct fo_plan_args {
    const void *x;
    const float *w;
    const float *bias;
    void *y;
    void *pre;
    const void *dy;
    void *dx;
    float *dw;
    float *db;
    fo_produce produce; /* REDUCE_SCATTER: instead of x */
    void *produce_arg;
    uint64_t w_version; /* non-zero and equal to the last execution's (with the same w): the packed
                           weight is used again; 0: w is packed anew */
} fo_plan_args;

/* Where an execution waited. Times in nanoseconds. */
typedef struct fo_wait {
    int step;           /* schedule step */
    int peer;           /* rank waited for */
    int64_t exposed_ns; /* communication in flight, no computation running */
} fo_wait;

typedef struct fo_report {
    int64_t executions; /* since creation or fo_plan_report_reset; the times below are their sums */
    int64_t total_ns;   /* wall time */
    int64_t compute_ns; /* computing: kernels, packing, additions */
    int64_t exposed_ns; /* waiting with communication in flight */
    int64_t sent_bytes;
    int64_t tasks;        /* tasks run */
    const fo_wait *waits; /* by step and peer; owned by the plan, valid until its next call */
    int wait_count;
} fo_report;

typedef struct fo_plan fo_plan;

/* Makes a plan. Collective: every rank gives the same op, rows, wire, dtype, overlap. The schedule is
 * verified here. FO_INVALID: a size, type or strategy that can't be done, with the nearest that can.
 * FO_NO_MEMORY. *plan is NULL on failure. */
fo_status fo_plan_create(fo_group *group, const fo_plan_desc *desc, fo_plan **plan);
void fo_plan_destroy(fo_plan *plan);

/* Runs the operation. Collective, blocking. When it returns FO_OK all arguments may be reused. On
 * FO_PEER, FO_TIMEOUT the outputs are not to be used and the group is dead. */
fo_status fo_plan_execute(fo_plan *plan, const fo_plan_args *args);

/* The unsliced local computation alone, over all M rows, no communication: what ECT is measured
 * against. Rows of other ranks are read as copies of the own shard. Outputs are scratch. */
fo_status fo_plan_execute_local(fo_plan *plan, const fo_plan_args *args);

/* Which strategy was taken, with how many slices and why; one line. Owned by the plan. */
const char *fo_plan_explain(const fo_plan *plan);

/* Bytes this rank sends in one execution: the busiest direction of its link. */
int64_t fo_plan_wire_bytes(const fo_plan *plan);
/* Rows of the smallest unit waited for: the slice the lower bound's g() is taken of. */
int64_t fo_plan_slice_rows(const fo_plan *plan);

void fo_plan_report(const fo_plan *plan, fo_report *report);
void fo_plan_report_reset(fo_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
