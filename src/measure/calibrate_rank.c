/* What a rank does in a calibration: round after round over the cases until the time is over. All ranks
 * meet before every case and take the same decisions. */
#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "group/group.h"
#include "measure/calibrate.h"

enum {
    IN_A_ROW = 4,    /* samples of a case in a round, of short ones */
    TASK_CALLS = 20, /* executions a sample */
    LARGE_PARTS = 8  /* a case may take that many times its part of the time */
};

static const double sample_s = 1e-3;       /* a sample takes at least that long */
static const double short_s = 5e-3;        /* and one that takes up to that long is short */
static const double short_call_s = 20e-3;  /* the first such call only warms up */
static const int64_t pause_ns = 200000000; /* between two lines of progress */

/* Computation has this share of the time, messages and tasks have the rest. */
static const double computation_ends = 0.75;

typedef struct rank {
    fo_measure_calibration *c;
    fo_group *group;
    fo_measure_work *work;
    fo_measure_wires *wires;
    double *all; /* a number of every rank */
    int64_t shown_ns;
} rank;

/* ---- meeting ------------------------------------------------------------------------------------- */

/* The greatest of all ranks' numbers; they have met when it returns. */
static fo_status greatest(rank *r, double mine, double *found)
{
    fo_status status = fo_group_allgather(r->group, &mine, sizeof mine, r->all);
    *found = mine;
    for (int i = 0; status == FO_OK && i < fo_group_size(r->group); i++)
        *found = fmax(*found, r->all[i]);
    return status;
}

/* What to do with the next case. Rank 0's clock and samples decide; every rank may know of a signal. */
typedef enum verdict { RUN, SKIP, END_ROUNDS, STOP } verdict;

static fo_status meet(rank *r, verdict mine, verdict *found)
{
    double greatest_of_all;
    if (fo_group_interrupted(r->group))
        mine = STOP;
    fo_status status = greatest(r, mine, &greatest_of_all);
    *found = (verdict)(int)greatest_of_all;
    if (status == FO_OK && *found == STOP && fo_train_answers(r->group))
        r->c->interrupted = true;
    return status;
}

/* ---- progress ------------------------------------------------------------------------------------ */

static const char *phase_of(const fo_measure_case *which)
{
    switch (which->kind) {
    case FO_MEASURE_GEMM: return "products";
    case FO_MEASURE_WGRAD: return "weight gradients";
    case FO_MEASURE_ATTENTION:
    case FO_MEASURE_ATTENTION_GRAD: return "attention";
    case FO_MEASURE_PACK: return "packing";
    case FO_MEASURE_PASS: return "passes over memory";
    case FO_MEASURE_MESSAGE:
    case FO_MEASURE_PROCESSOR:
    case FO_MEASURE_WAKE: return "messages";
    default: return "tasks";
    }
}

static double elapsed_s(const fo_measure_calibration *c)
{
    return (double)(fo_base_clock_ns() - c->begin_ns) * 1e-9;
}

static void show(rank *r, const fo_measure_case *which, int round)
{
    FILE *out = r->c->options->progress;
    int64_t now = fo_base_clock_ns();
    if (!out || fo_group_rank(r->group) != 0 || now - r->shown_ns < pause_ns)
        return;
    r->shown_ns = now;
    double left = r->c->budget_s - elapsed_s(r->c);
    fprintf(out, "\r\033[Kcalibrate: %s, round %d, ", phase_of(which), round + 1);
    if (left >= 1)
        fprintf(out, "left %.0fs", left);
    else
        fprintf(out, "a little longer");
    fflush(out);
}

static void clear_progress(rank *r)
{
    FILE *out = r->c->options->progress;
    if (!out || fo_group_rank(r->group) != 0 || !r->shown_ns)
        return;
    fprintf(out, "\r\033[K");
    fflush(out);
}

/* ---- a sample ------------------------------------------------------------------------------------ */

static bool is_wire(const fo_measure_case *which)
{
    return which->kind >= FO_MEASURE_MESSAGE;
}

static bool takes_part(const rank *r, const fo_measure_case *which)
{
    if (is_wire(which))
        return true; /* ranks above 1 have nothing to do with a message, they find that out */
    return which->at_once || fo_group_rank(r->group) == 0;
}

static fo_status run_calls(rank *r, const fo_measure_case *which, int calls, double *seconds)
{
    if (is_wire(which))
        return fo_measure_wires_sample(r->wires, which, calls, seconds);
    fo_status status = FO_OK;
    int64_t begin = fo_base_clock_ns();
    for (int i = 0; status == FO_OK && i < calls; i++)
        status = fo_measure_work_call(r->work, which);
    *seconds = (double)(fo_base_clock_ns() - begin) * 1e-9 / calls;
    return status;
}

/* Seconds of a call, the same on all ranks: of rank 0, or of the slowest. */
static fo_status sample(rank *r, const fo_measure_case *which, int calls, double *seconds)
{
    double mine = 0;
    fo_status status = FO_OK;
    if (takes_part(r, which))
        status = run_calls(r, which, calls, &mine);
    if (!which->at_once && fo_group_rank(r->group) != 0)
        mine = 0;
    return status == FO_OK ? greatest(r, mine, seconds) : status;
}

static int calls_for(double seconds)
{
    double calls = ceil(sample_s / fmax(seconds, 1e-7));
    return calls < 1 ? 1 : calls > 1000 ? 1000 : (int)calls;
}

/* The calls before the first sample: one of a product is enough to warm up and to know how
 * many fill a sample; a single message says nothing. */
static fo_status warm_up(rank *r, fo_measure_case *which, double *seconds)
{
    bool wire = is_wire(which);
    fo_status status = sample(r, which, wire ? 4 : 1, seconds);
    if (status == FO_OK && *seconds <= short_call_s)
        status = sample(r, which, wire ? 16 : 1, seconds);
    return status;
}

/* Rank 0 writes, behind the others' backs: they look only after the next meeting. */
static void note(rank *r, fo_measure_case *which, double seconds)
{
    if (fo_train_answers(r->group) && which->samples < FO_MEASURE_SAMPLES)
        which->seconds[which->samples++] = seconds;
}

static fo_status run_case(rank *r, fo_measure_case *which)
{
    int calls = which->calls;
    double seconds = 0;
    fo_status status = FO_OK;
    if (!calls) {
        status = warm_up(r, which, &seconds);
        calls = which->kind == FO_MEASURE_TASK   ? TASK_CALLS
                : which->kind == FO_MEASURE_WAKE ? 1
                                                 : calls_for(seconds);
        if (status == FO_OK && fo_train_answers(r->group))
            which->calls = calls;
    }
    for (int i = 0; status == FO_OK && i < IN_A_ROW; i++) {
        if (i > 0 && seconds * calls > short_s)
            break;
        status = sample(r, which, calls, &seconds);
        if (status == FO_OK)
            note(r, which, seconds);
    }
    return status;
}

/* ---- rounds -------------------------------------------------------------------------------------- */

/* The cases [first, last), which may be worked on until end_s. */
typedef struct phase {
    int first, last;
    double end_s;
} phase;

/* Seconds that a case not sampled yet will take, by what the one with fewer rows before it took; 0: not
 * known; infinite: that one was too long already. */
static double expected_s(const rank *r, int at)
{
    const fo_measure_case *which = &r->c->cases[at], *before = which - 1;
    if (at == 0 || before->kind != which->kind || before->k != which->k || before->n != which->n ||
        before->rows >= which->rows)
        return 0;
    if (!before->samples)
        return INFINITY;
    return before->seconds[0] * (double)which->rows / (double)before->rows;
}

/* In the first round every case comes once, but those that would take much more than their part of the time;
 * then all come again until the time is over. */
static verdict judge(const rank *r, const phase *p, int at, int round)
{
    double left = p->end_s - elapsed_s(r->c);
    if (round > 0)
        return left <= 0 ? END_ROUNDS : r->c->cases[at].samples ? RUN : SKIP;
    double part = fmax(left, 0) / (p->last - at);
    return expected_s(r, at) > LARGE_PARTS * part ? SKIP : RUN;
}

static fo_status run_phase(rank *r, const phase *p, verdict *last)
{
    fo_status status = FO_OK;
    *last = p->first < p->last ? RUN : END_ROUNDS;
    for (int round = 0; *last < END_ROUNDS; round++)
        for (int at = p->first; at < p->last; at++) {
            bool decides = fo_group_rank(r->group) == 0;
            show(r, &r->c->cases[at], round);
            status = meet(r, decides ? judge(r, p, at, round) : RUN, last);
            if (status == FO_OK && *last == RUN)
                status = run_case(r, &r->c->cases[at]);
            if (status != FO_OK || *last >= END_ROUNDS)
                return status;
        }
    return status;
}

static fo_status measure(rank *r)
{
    const fo_measure_calibration *c = r->c;
    int wires = 0;
    verdict last = RUN;
    while (wires < c->count && c->cases[wires].kind < FO_MEASURE_MESSAGE)
        wires++;
    phase computation = {0, wires, computation_ends * c->budget_s};
    phase messages = {wires, c->count, c->budget_s};
    fo_status status = run_phase(r, &computation, &last);
    if (status == FO_OK && last != STOP)
        status = run_phase(r, &messages, &last);
    return status;
}

/* Where every process of a job has its own list: the same one, for as many threads as all ranks have. */
static fo_status make_cases(rank *r)
{
    double fewest;
    fo_status status = greatest(r, -fo_group_threads(r->group), &fewest);
    if (status == FO_OK)
        fo_measure_calibrate_cases(r->c, fo_group_kernel_ops(r->group), (int)-fewest);
    return status;
}

fo_status fo_measure_calibrate_rank(fo_group *group, void *arg)
{
    rank r = {.c = arg, .group = group};
    r.all = calloc((size_t)fo_group_size(group), sizeof *r.all);
    fo_status status = r.all ? FO_OK
                             : fo_base_error(FO_NO_MEMORY, "calibrate: no memory for %d ranks",
                                             fo_group_size(group));
    char note[512];
    if (status == FO_OK)
        status = fo_train_enter(group, &r.c->fingerprint, note, sizeof note);
    if (status == FO_OK && fo_group_joined(group))
        status = make_cases(&r);
    if (status == FO_OK)
        status = fo_measure_work_make(r.c, fo_group_kernel_ops(group), &r.work);
    if (status == FO_OK)
        status = fo_measure_wires_make(r.c, group, &r.wires);
    if (status == FO_OK)
        status = measure(&r);
    clear_progress(&r);
    fo_measure_wires_free(r.wires);
    fo_measure_work_free(r.work);
    free(r.all);
    return status;
}
