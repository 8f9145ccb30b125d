/* Starting ranks, in processes of our own or as one of a job, and ending them together.
 *
 * In a job every process calls fo_group_run, and a rank that returns a failure ends the waits of all others: right for
 * what only one rank knows. What all ranks have agreed on is no failure of the group, so it ends well, and each
 * process takes the status that its rank left behind: nobody races to say it first. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "flashoverlap/job.h"
#include "group/group.h"
#include "train/train.h"

/* How this process's rank of a job ends, when all agreed; read by fo_train_start of the same thread. */
static _Thread_local struct {
    fo_status status;
    char sentence[1024];
} agreed;

typedef struct start {
    fo_rank_main rank_main;
    void *arg;
    bool begun;
} start;

fo_status fo_train_together(const fo_group *group, fo_status status)
{
    if (fo_group_joined(group) && status != FO_OK && status != FO_PEER && status != FO_TIMEOUT) {
        agreed.status = status;
        snprintf(agreed.sentence, sizeof agreed.sentence, "%s", fo_last_error());
    }
    return status;
}

static fo_status start_rank(fo_group *group, void *arg)
{
    start *s = arg;
    if (fo_train_answers(group))
        s->begun = true;
    fo_status status = s->rank_main(group, s->arg);
    return agreed.status != FO_OK && status == agreed.status ? FO_OK : status;
}

fo_status fo_train_start(const fo_group_options *options, fo_rank_main rank_main, void *arg)
{
    start s = {.rank_main = rank_main, .arg = arg};
    agreed.status = FO_OK;
    fo_status status = fo_group_run(options, start_rank, &s);
    if (agreed.status != FO_OK) /* whatever became of the group then */
        status = fo_base_error(agreed.status, "%s", agreed.sentence);
    else if (!s.begun && (status == FO_INVALID || status == FO_UNSUPPORTED))
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
    start s = {.rank_main = refused_rank, .arg = f};
    agreed.status = FO_OK;
    (void)fo_group_run(&plain, start_rank, &s);
    if (agreed.status != FO_OK)
        status = fo_base_error(agreed.status, "%s", agreed.sentence);
    else /* they never met: this rank's own words */
        fo_base_error(status, "%s", f->sentence);
    free(f);
    return status;
}
