/* A slow rank shows in the waits of the others.
 *
 * In a ring a late message makes its receiver late for the next one: all ranks behind a slow one wait as long, each
 * for its own neighbour. The slow rank is the one that is waited for without waiting itself, so what counts is how
 * much longer a rank was waited for than it waited. */
#include <stdlib.h>

#include "base/error.h"
#include "train/train.h"

enum { MOST_RANKS = 1024 /* of whom the whole table is looked at */ };

/* A rank is slow when the others waited on average this part of the run, and in all so long, longer than it did, and... */
static const double least_part = 0.05, least_s = 1;
/* ...when it stands out by that much from the next one. */
static const double stands_out = 2;

static double total_wait(const double *seconds, int ranks, int rank)
{
    double sum = 0;
    for (int p = 0; p < ranks; p++)
        if (p != rank)
            sum += seconds[(int64_t)rank * ranks + p];
    return sum;
}

static double waited_for(const double *seconds, int ranks, int rank)
{
    double sum = 0;
    for (int w = 0; w < ranks; w++)
        if (w != rank)
            sum += seconds[(int64_t)w * ranks + rank];
    return sum;
}

fo_train_slow fo_train_waits_judge(const double *seconds, int ranks, double elapsed_s)
{
    fo_train_slow none = {.rank = -1}, slow = none;
    double best = 0, second = 0;
    for (int r = 0; r < ranks; r++) {
        double net = waited_for(seconds, ranks, r) - total_wait(seconds, ranks, r);
        if (net > best) {
            second = best;
            best = net;
            slow.rank = r;
        } else if (net > second) {
            second = net;
        }
    }
    if (slow.rank < 0 || elapsed_s <= 0 || best < stands_out * second)
        return none;
    double own = total_wait(seconds, ranks, slow.rank);
    for (int r = 0; r < ranks; r++) {
        double more = r == slow.rank ? 0 : total_wait(seconds, ranks, r) - own;
        if (more > 0) {
            slow.waited_s += more;
            slow.by++;
        }
    }
    slow.part = slow.by ? slow.waited_s / slow.by / elapsed_s : 0;
    return slow.part >= least_part && slow.waited_s >= least_s ? slow : none;
}

fo_status fo_train_waits_find(fo_train_worker *worker, double elapsed_s, fo_train_slow *slow)
{
    int ranks = fo_group_size(worker->group);
    *slow = (fo_train_slow){.rank = -1};
    if (ranks < 2 || ranks > MOST_RANKS)
        return FO_OK;
    size_t row = (size_t)ranks * sizeof(double);
    double *mine = calloc(1, row), *all = malloc((size_t)ranks * row);
    fo_status status = FO_OK;
    if (!mine || !all) {
        status = fo_base_error(FO_NO_MEMORY, "no memory for the waits of %d ranks", ranks);
    } else {
        fo_model_waits(worker->model, mine);
        status = fo_group_allgather(worker->group, mine, row, all);
    }
    if (status == FO_OK)
        *slow = fo_train_waits_judge(all, ranks, elapsed_s);
    free(mine);
    free(all);
    return status;
}
