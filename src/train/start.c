/* Starting ranks, in processes of our own or as one of a job, and ending them together.
 *
 * A rank that returns a failure ends the waits of all others, and the group says which rank it was and what another
 * one waited for: right for what only one rank knows. What all ranks have agreed on is no failure of the group, so it
 * ends well, and the caller takes the status that its rank handed over: nobody races to say it first, nobody is blamed. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"
#include "flashoverlap/job.h"
#include "group/group.h"
#include "train/train.h"

/* From the rank that answers to the caller, whose process may be another one. */
typedef struct handed {
    fo_status status; /* FO_OK: nothing */
    char sentence[1024];
} handed;

typedef struct start {
    fo_rank_main rank_main;
    void *arg;
    handed *handed; /* shared with the ranks */
    bool begun;
} start;

/* Of the rank that runs in this thread, while fo_train_start runs it. */
static _Thread_local struct {
    handed *handed;
    fo_status agreed; /* how it ends, when all have agreed */
} own;

fo_status fo_train_own_words(const fo_group *group, fo_status status)
{
    bool known = status != FO_OK && status != FO_PEER && status != FO_TIMEOUT;
    if (known && own.handed && fo_train_answers(group)) {
        snprintf(own.handed->sentence, sizeof own.handed->sentence, "%s", fo_last_error());
        own.handed->status = status;
    }
    return status;
}

fo_status fo_train_together(const fo_group *group, fo_status status)
{
    if (status != FO_OK && status != FO_PEER && status != FO_TIMEOUT)
        own.agreed = status;
    return fo_train_own_words(group, status);
}

static fo_status start_rank(fo_group *group, void *arg)
{
    start *s = arg;
    if (fo_train_answers(group))
        s->begun = true;
    own.handed = s->handed;
    own.agreed = FO_OK;
    fo_status status = s->rank_main(group, s->arg);
    own.handed = NULL;
    return own.agreed != FO_OK && status == own.agreed ? FO_OK : status;
}

/* The group's status, or what was handed over, whatever became of the group then. */
static fo_status run_ranks(const fo_group_options *options, start *s)
{
    fo_status status = fo_group_run(options, start_rank, s);
    return s->handed->status == FO_OK ? status
                                      : fo_base_error(s->handed->status, "%s", s->handed->sentence);
}

/* What every rank would refuse is refused before there are any. */
static fo_status check_nodes(const fo_group_options *o)
{
    int ranks = o->ranks, nodes = o->nodes, nearest = nodes < ranks ? nodes : ranks;
    if (nodes == 0 || ranks < 1 || (nodes > 0 && nodes <= ranks && ranks % nodes == 0))
        return FO_OK;
    while (nearest > 1 && ranks % nearest)
        nearest--;
    return fo_base_error(FO_INVALID,
                         "%d ranks can't be spread evenly over --nodes %d machines, the nearest "
                         "that works is --nodes %d",
                         ranks, nodes, nearest > 1 ? nearest : 1);
}

fo_status fo_train_start(const fo_group_options *options, fo_rank_main rank_main, void *arg)
{
    handed *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return fo_base_error(FO_NO_MEMORY, "no shared memory of %zu bytes for the ranks (%s)",
                             sizeof *shared, strerror(errno));
    start s = {.rank_main = rank_main, .arg = arg, .handed = shared};
    fo_status status = check_nodes(options);
    if (status == FO_OK)
        status = run_ranks(options, &s);
    bool told = shared->status != FO_OK;
    munmap(shared, sizeof *shared);
    if (!told && !s.begun && (status == FO_INVALID || status == FO_UNSUPPORTED))
        status = fo_train_refuse(options, status);
    return status;
}

/* ---- refusing --------------------------------------------------------------------------------------- */

static fo_status refused_rank(fo_group *group, void *arg)
{
    char note[8];
    return fo_train_enter(group, arg, note, sizeof note);
}

fo_status fo_train_refuse(const fo_group_options *options, fo_status status)
{
    fo_job job;
    fo_job_get(&job);
    fo_train_fingerprint *f = job.size > 1 && status != FO_OK ? calloc(1, sizeof *f) : NULL;
    if (!f)
        return status;
    f->status = status;
    snprintf(f->sentence, sizeof f->sentence, "%s", fo_last_error());
    fo_group_options plain = {.ranks = job.size, .threads = 1, .deadline_s = options->deadline_s};
    handed words = {.status = FO_OK}; /* the rank is this process */
    start s = {.rank_main = refused_rank, .arg = f, .handed = &words};
    (void)run_ranks(&plain, &s);
    if (words.status != FO_OK)
        status = words.status;
    else /* they never met: this rank's own words */
        fo_base_error(status, "%s", f->sentence);
    free(f);
    return status;
}
