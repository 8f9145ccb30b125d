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
 * MLP_FORWARD       h = act(all_gather(x) . w^T + bias);             x (T), and y partials (wire):
 *                   y = reduce_scatter(h . w2^T) + bias2              one program, no barrier between
 * ATTENTION_FORWARD a = attention(x);                                 y partials (wire), query slice by
 *                   y = reduce_scatter(a . w^T) + bias                query slice
 * ATTENTION_BACKWARD  g = all_gather(dy); da = g . w;                 dy, type T
 *                   dw += g^T . x;  db += colsum(dy of the own shard);
 *                   dqkv = gradient of attention, by query slices
 * COLUMN_DGRAD      the dx of COLUMN_BACKWARD alone                   dx partials (wire)
 * COLUMN_WGRAD      its dw and db alone                               x, type T
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
 * argument   MLP_FORWARD        ATTENTION_FORWARD       ATTENTION_BACKWARD       COLUMN_DGRAD   COLUMN_WGRAD
 * x          [Mr, in] T         [M, 3 in] T (q, k, v)   [M, in] T (a)            -              [Mr, in] T
 * w          [hidden, in] f     [out, in] f             [out, in] f              [out, in] f    -
 * bias       [hidden] f or 0    [out] f or 0            -                        -              -
 * w2, bias2  [out, hidden] f, [out] f or 0   -          -                        -              -
 * y          [Mr, out] f        [Mr, out] f             -                        -              -
 * pre, act   [M, hidden] T      -                       -                        -              -
 * att        -                  [M, in] T, written      -                        -              -
 * qkv        -                  -                       [M, 3 in] T              -              -
 * lse        -                  [batch, heads, context] f, written; backward reads it
 * dy         -                  -                       [Mr, out] T              [M, out] T     [M, out] T
 * dx         -                  -                       [M, in] T (da)           [Mr, in] f     -
 * dqkv       -                  -                       [M, 3 in] T              -              -
 * dw, db     -                  -                       [out, in], [out] f +=    -              [out, in], [out] f +=
 *
 * ALL_GATHER: x may be the own shard inside y. REDUCE_SCATTER: y may be the own shard's rows of x.
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
 * with a bf16 wire: among direct forms; hierarchical ones, whose sums are nested as schedule.h says, among
 * themselves), transports and repeated runs for the same N and types. The library's own collectives promise nothing.
 */
#ifndef FLASHOVERLAP_PLAN_H
#define FLASHOVERLAP_PLAN_H

#include "flashoverlap/group.h"
#include "flashoverlap/rows.h"

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
    FO_REDUCE_SCATTER,
    FO_MLP_FORWARD,
    FO_ATTENTION_FORWARD,
    FO_ATTENTION_BACKWARD,
    FO_COLUMN_DGRAD,
    FO_COLUMN_WGRAD
} fo_op;

typedef enum fo_activation { FO_IDENTITY, FO_GELU /* tanh form, as GPT-2 */ } fo_activation;

/* Writes rows [row, row + rows) of this rank's partial, [rows, in] float32, to `out`. Called between
 * messages, each row exactly once an execution, rows <= 64. */
typedef void (*fo_produce)(void *arg, int64_t row, int64_t rows, float *out);

/* Causal self-attention of the own heads: in = heads * head_dim, rows = batch * context. A row of qkv
 * holds the queries of all own heads, then their keys, then their values. Keys and values of all rows are
 * here, so every slice of queries is exact. Dropout as kernel.h defines it. Memory grows with the
 * context, never with its square. */
typedef struct fo_plan_attention {
    int64_t batch, context;
    int heads, head_dim;
    int head_offset, total_heads; /* number of the first own head; heads of all ranks */
    int64_t first_sequence;       /* what sequence 0 is called in dropout masks */
    float dropout;                /* of probabilities, 0 <= p < 1 */
    fo_row_order order;           /* which token a row is; BALANCED where shards cut sequences */
    bool first; /* all of attention before the out-projection's program: only the out-projection is
                   overlapped (the row-parallel form). Same bits, for comparison. */
} fo_plan_attention;

/* Local work to do instead of waiting. Called where the rank would wait for a message; does a small piece of
 * work (some 100 us) and returns true, or returns false when none is left. */
typedef bool (*fo_meanwhile)(void *arg);

typedef struct fo_plan_desc {
    fo_op op;
    int64_t rows;        /* M */
    int64_t in, out;     /* sizes of this rank's weight; out is unused without a weight */
    int64_t hidden;      /* MLP_FORWARD: own hidden features */
    fo_dtype dtype;      /* T */
    fo_dtype wire;       /* type of travelling partial sums; FO_BF16 needs no bf16 computation */
    fo_dtype y_dtype;    /* COLUMN_FORWARD only */
    fo_activation act;   /* COLUMN_FORWARD, MLP_FORWARD and ROW_BACKWARD */
    const char *overlap; /* "none", "slice:k", "ring", "flash", "flash:m", "direct", "direct:m",
                              "hier", "hier:m", "none/hier" (fo_group_nodes), "library", "library:k" (the
                              transport's own collectives, for comparison), "auto" (below); NULL: "flash" */
    const char *name;    /* for messages and reports, copied; NULL: the operation's name */
    fo_plan_attention attention; /* ATTENTION_FORWARD and ATTENTION_BACKWARD */
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
    fo_meanwhile meanwhile; /* NULL: wait. What it has left when the plan is done is the caller's */
    void *meanwhile_arg;
    const float *w2, *bias2;
    void *act, *att;
    const void *qkv;
    float *lse;
    void *dqkv;
    uint64_t dropout_key; /* attention: forward and backward of one layer and step give the same */
    uint64_t w_version; /* non-zero and equal to the last execution's (with the same w): the packed
                           weight is used again; 0: w is packed anew. w2 likewise */
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

/* Overlap "auto": the strategy is chosen when the plan is made, by simulating the programs of all that have the bits
 * of "none" (so "direct" only where sums travel in float32, "hier" only where no sums are made) on the machine of the
 * group: the emulated device, or this machine as products were measured at the very shape of the plan (some
 * 100 ms when such a shape is first met; kept as wisdom, docs/metrics.md). "none" is taken unless another one is
 * predicted to be faster by more than 1 %. When the emulated link of the group changes, the next execution chooses
 * anew. fo_plan_explain says what was taken, why, and the predicted times.
 *
 * A prediction, in seconds; NaN: not known. */
typedef struct fo_prediction {
    double total_s;   /* T of the strategy the plan runs */
    double none_s;    /* T of "none" */
    double compute_s; /* C, the unsliced local computation alone */
    double exposed_s; /* of the slowest rank */
} fo_prediction;

/* Makes a plan. Collective: every rank gives the same op, rows, wire, dtype, overlap. The schedule is
 * verified here. FO_INVALID: a size, type or strategy that can't be done, with the nearest that can.
 * FO_NO_MEMORY. *plan is NULL on failure. */
fo_status fo_plan_create(fo_group *group, const fo_plan_desc *desc, fo_plan **plan);
/* Waits, at most for the deadline, until peers have finished reading what the last execution sent; when they have
 * not, the group is failed. */
void fo_plan_destroy(fo_plan *plan);

/* Runs the operation. Collective, blocking. When it returns FO_OK all arguments may be reused. On
 * FO_PEER, FO_TIMEOUT the outputs are not to be used and the group is dead. */
fo_status fo_plan_execute(fo_plan *plan, const fo_plan_args *args);

/* Begins an execution and returns: it goes on while this rank executes other plans of the same group, of groups
 * split from it or of its parent, in fo_group_progress and in fo_plan_finish, and computes its own tiles there.
 * args is copied; what it points to stays untouched until fo_plan_finish. One execution of a plan at a time; plans
 * are started, and finished, in the same order on all ranks. Collective, as fo_plan_execute; statuses too, of
 * which some come only from fo_plan_finish. */
fo_status fo_plan_start(fo_plan *plan, const fo_plan_args *args);
/* Waits for the end of what was started; FO_OK when nothing was. */
fo_status fo_plan_finish(fo_plan *plan);

/* The unsliced local computation alone, over all M rows, no communication: what ECT is measured
 * against. Rows of other ranks are read as copies of the own shard. Outputs are scratch. */
fo_status fo_plan_execute_local(fo_plan *plan, const fo_plan_args *args);

/* Which strategy was taken, with how many slices and why; one line. Owned by the plan. */
const char *fo_plan_explain(const fo_plan *plan);
/* The strategy alone: "flash:2", also where "auto" was asked for. Owned by the plan. */
const char *fo_plan_overlap(const fo_plan *plan);

/* Collective. What the simulator says of an execution of this plan over the link its group has now; the same on every
 * rank. What is not known of its shape yet is measured, some 100 ms, or without `measure` all is NaN. FO_UNSUPPORTED:
 * strategy library, which has no program. */
fo_status fo_plan_predict(const fo_plan *plan, bool measure, fo_prediction *prediction);
/* Whether comparisons shall measure what predictions need, as they do unless FLASHOVERLAP_PREDICT is 0. Then they predict
 * what is known anyway: stated devices, and shapes that wisdom has. */
bool fo_plan_predicts(void);

/* The strategy that "auto" would take for desc on so many ranks of `threads` threads on a machine that has a profile:
 * the name of a shipped one, or a file (docs/profiles.md). desc is that of the rank with most; its overlap is not
 * looked at. No group is needed. why: one sentence with the predicted times. FO_INVALID: sizes, ranks, the profile. */
fo_status fo_overlap_choose(const char *machine, const fo_plan_desc *desc, int ranks, int threads,
                            char overlap[32], char why[192]);

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
