/* Checkpoint directories: step folders that appear whole, and `latest`. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/system.h"

/* ---- names ------------------------------------------------------------------------------------------ */

enum { NAME = 64 };

static void step_name(char out[NAME], int64_t step)
{
    snprintf(out, NAME, "step-%08" PRId64, step);
}

/* The step a folder's name says, -1: none. A folder that had to make way for a newer one of the same step
 * carries ".old" until that one is in place. */
static int64_t step_of(const char *name, bool *old)
{
    char expected[NAME];
    *old = false;
    if (strncmp(name, "step-", 5) != 0 || !isdigit((unsigned char)name[5]))
        return -1;
    errno = 0;
    int64_t step = strtoll(name + 5, NULL, 10);
    step_name(expected, step);
    size_t length = strlen(expected);
    if (errno || strncmp(name, expected, length) != 0)
        return -1;
    *old = strcmp(name + length, ".old") == 0;
    return *old || name[length] == '\0' ? step : -1;
}

static bool is_complete(const char *folder)
{
    return fo_checkpoint_has_file(folder, "model.safetensors") &&
           fo_checkpoint_has_file(folder, "config.json");
}

static fo_status check_arguments(const char *directory, int64_t step)
{
    if (!directory || !directory[0])
        return fo_base_error(FO_INVALID, "the checkpoint directory has no name, expected a path");
    if (step < 0)
        return fo_base_error(FO_INVALID, "%s: a checkpoint of step %" PRId64 ", expected 0 or more",
                             directory, step);
    return FO_OK;
}

static fo_status temp_folder(const char *directory, int64_t step, char *out, size_t size)
{
    return fo_checkpoint_path(out, size, "%s/.tmp-step-%" PRId64 "-%ld", directory, step,
                              (long)getpid());
}

/* ---- what crashes left ------------------------------------------------------------------------------ */

static bool is_alive(long process)
{
    return process > 0 && process <= INT32_MAX && (kill((pid_t)process, 0) == 0 || errno != ESRCH);
}

/* A temporary folder or file of this library whose process is gone; folders of this process are what an
 * earlier one with its number left. */
static bool is_leftover(const char *name)
{
    long long step;
    long process;
    unsigned serial;
    int end = 0;
    if (sscanf(name, ".tmp-step-%lld-%ld%n", &step, &process, &end) == 2 && name[end] == '\0')
        return process == (long)getpid() || !is_alive(process);
    if (sscanf(name, ".tmp-write-%ld-%u%n", &process, &serial, &end) == 2 && name[end] == '\0')
        return !is_alive(process);
    return false;
}

static fo_status remove_leftover(void *arg, const char *directory, const char *name)
{
    (void)arg;
    char path[FO_CHECKPOINT_PATH];
    if (!is_leftover(name))
        return FO_OK;
    fo_status status = fo_checkpoint_path(path, sizeof path, "%s/%s", directory, name);
    return status == FO_OK ? fo_checkpoint_remove_tree(path) : status;
}

/* ---- saving ------------------------------------------------------------------------------------------- */

fo_status fo_checkpoint_directory_check(const char *directory)
{
    char path[FO_CHECKPOINT_PATH];
    fo_checkpoint_temp probe;
    fo_status status = check_arguments(directory, 0);
    if (status == FO_OK)
        status = fo_checkpoint_make_directories(directory);
    if (status == FO_OK)
        status = fo_checkpoint_path(path, sizeof path, "%s/latest", directory);
    if (status == FO_OK)
        status = fo_checkpoint_temp_open(path, &probe);
    if (status != FO_OK)
        return status;
    status = fo_checkpoint_temp_write(&probe, "probe\n", 6, 0);
    if (status == FO_OK)
        status = fo_checkpoint_temp_sync(&probe);
    fo_checkpoint_temp_abandon(&probe);
    return status;
}

fo_status fo_checkpoint_directory_begin(const char *directory, int64_t step, char *out,
                                        size_t out_size)
{
    fo_status status = check_arguments(directory, step);
    if (status == FO_OK)
        status = temp_folder(directory, step, out, out_size);
    if (status == FO_OK)
        status = fo_checkpoint_make_directories(directory);
    if (status == FO_OK)
        status = fo_checkpoint_each(directory, remove_leftover, NULL);
    return status == FO_OK ? fo_checkpoint_mkdir(out) : status;
}

/* Puts the new folder in the place of one of the same step. Where swapping is impossible the other one
 * keeps a name under which it is found until the new one is there. What is replaced is removed later: by
 * its temporary name, or as ".old". */
static fo_status replace(const char *temp, const char *place)
{
    char old[FO_CHECKPOINT_PATH];
    bool supported;
    fo_status status = fo_checkpoint_exchange(temp, place, &supported);
    if (status != FO_OK || supported)
        return status;
    status = fo_checkpoint_path(old, sizeof old, "%s.old", place);
    if (status == FO_OK)
        status = fo_checkpoint_remove_tree(old);
    if (status == FO_OK)
        status = fo_checkpoint_rename(place, old);
    return status == FO_OK ? fo_checkpoint_rename(temp, place) : status;
}

static fo_status put_in_place(const char *directory, const char *temp, const char *place)
{
    struct stat info;
    fo_status status = fo_checkpoint_sync_tree(temp);
    if (status == FO_OK)
        status =
            lstat(place, &info) == 0 ? replace(temp, place) : fo_checkpoint_rename(temp, place);
    return status == FO_OK ? fo_checkpoint_sync(directory) : status;
}

static fo_status point_latest(const char *directory, const char *name)
{
    char path[FO_CHECKPOINT_PATH], text[NAME + 1];
    fo_status status = fo_checkpoint_path(path, sizeof path, "%s/latest", directory);
    snprintf(text, sizeof text, "%s\n", name);
    return status == FO_OK ? fo_checkpoint_write_text(path, text) : status;
}

/* Step folders before `limit`: how many, and the first of them; and a replaced one, to go in any case. */
typedef struct older {
    int64_t limit, first, count;
    int64_t replaced; /* -1: none */
} older;

static fo_status count_older(void *arg, const char *directory, const char *name)
{
    (void)directory;
    older *o = arg;
    bool old;
    int64_t step = step_of(name, &old);
    if (old && step >= 0 && step <= o->limit) {
        o->replaced = step;
    } else if (!old && step >= 0 && step < o->limit) {
        o->count++;
        o->first = o->first < 0 || step < o->first ? step : o->first;
    }
    return FO_OK;
}

/* Removes what is beyond `keep`, counting the one of `step`. A folder loses its name before its files, so
 * that a half removed one is never taken for a checkpoint; what can't be removed is tried again by the
 * next _begin. */
static fo_status remove_older(const char *directory, int64_t step, int keep)
{
    char from[FO_CHECKPOINT_PATH], to[FO_CHECKPOINT_PATH], name[NAME];
    for (;;) {
        older o = {.limit = step, .first = -1, .replaced = -1};
        fo_status status = fo_checkpoint_each(directory, count_older, &o);
        if (status != FO_OK || (o.replaced < 0 && o.count < keep))
            return status;
        int64_t victim = o.replaced >= 0 ? o.replaced : o.first;
        step_name(name, victim);
        status = fo_checkpoint_path(from, sizeof from, "%s/%s%s", directory, name,
                                    o.replaced >= 0 ? ".old" : "");
        if (status == FO_OK)
            status = temp_folder(directory, victim, to, sizeof to);
        if (status == FO_OK)
            status = fo_checkpoint_remove_tree(to);
        if (status == FO_OK)
            status = fo_checkpoint_rename(from, to);
        if (status != FO_OK)
            return status;
        fo_checkpoint_remove_tree(to);
    }
}

fo_status fo_checkpoint_directory_commit(const char *directory, int64_t step, int keep)
{
    char temp[FO_CHECKPOINT_PATH], place[FO_CHECKPOINT_PATH], name[NAME];
    fo_status status = check_arguments(directory, step);
    if (status == FO_OK && keep < 1)
        status = fo_base_error(FO_INVALID, "%s: %d checkpoints are to be kept, expected 1 or more",
                               directory, keep);
    if (status == FO_OK)
        status = temp_folder(directory, step, temp, sizeof temp);
    step_name(name, step);
    if (status == FO_OK)
        status = fo_checkpoint_path(place, sizeof place, "%s/%s", directory, name);
    if (status != FO_OK)
        return status;
    status = put_in_place(directory, temp, place);
    if (status == FO_OK)
        status = point_latest(directory, name);
    if (status == FO_OK)
        status = remove_older(directory, step, keep);
    char sentence[1024]; /* removing may fail as well; the first failure counts */
    snprintf(sentence, sizeof sentence, "%s", fo_last_error());
    fo_checkpoint_remove_tree(temp); /* the replaced one, or the new one after a failure */
    return status == FO_OK ? FO_OK : fo_base_error(status, "%s", sentence);
}

/* ---- the newest --------------------------------------------------------------------------------------- */

/* The folder that `latest` names, or what it is called while it is being replaced; false: neither. */
static bool named_folder(const char *directory, char *out, size_t size)
{
    char path[FO_CHECKPOINT_PATH], *text = NULL;
    bool old, found = false;
    if (!fo_checkpoint_has_file(directory, "latest") ||
        snprintf(path, sizeof path, "%s/latest", directory) >= (int)sizeof path ||
        fo_checkpoint_read_text(path, &text) != FO_OK)
        return false;
    text[strcspn(text, "\r\n")] = '\0';
    for (int i = 0; i < 2 && !found && step_of(text, &old) >= 0; i++)
        found = snprintf(out, size, "%s/%s%s", directory, text, i ? ".old" : "") < (int)size &&
                is_complete(out);
    free(text);
    return found;
}

typedef struct newest {
    int64_t step; /* -1: none */
    bool old;
} newest;

static fo_status look_for_newest(void *arg, const char *directory, const char *name)
{
    newest *n = arg;
    char path[FO_CHECKPOINT_PATH];
    bool old;
    int64_t step = step_of(name, &old);
    if (step < 0 || step < n->step || (step == n->step && old))
        return FO_OK;
    fo_status status = fo_checkpoint_path(path, sizeof path, "%s/%s", directory, name);
    if (status == FO_OK && is_complete(path)) {
        n->step = step;
        n->old = old;
    }
    return status;
}

fo_status fo_checkpoint_directory_latest(const char *path, char *out, size_t out_size)
{
    newest n = {.step = -1};
    char name[NAME];
    fo_status status = check_arguments(path, 0);
    if (status != FO_OK)
        return status;
    if (is_complete(path))
        return fo_checkpoint_path(out, out_size, "%s", path);
    if (named_folder(path, out, out_size))
        return FO_OK;
    status = fo_checkpoint_each(path, look_for_newest, &n);
    if (status != FO_OK)
        return status;
    if (n.step < 0)
        return fo_base_error(
            FO_IO,
            "%s has no checkpoint, expected model.safetensors and config.json in it, "
            "or folders step-<8 digits> with them and a file 'latest'; is the path "
            "right?",
            path);
    step_name(name, n.step);
    return fo_checkpoint_path(out, out_size, "%s/%s%s", path, name, n.old ? ".old" : "");
}
