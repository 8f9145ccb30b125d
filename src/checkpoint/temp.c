/* Files that appear whole or not at all: written beside, flushed, renamed. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "checkpoint/system.h"

enum { CHUNK = 1 << 24, ATTEMPTS = 1000 };

static int fault(const char *call, const char *path)
{
    return fo_checkpoint_fault ? fo_checkpoint_fault(call, path) : 0;
}

static fo_status failed(const fo_checkpoint_temp *t, const char *what, int error)
{
    const char *advice =
        error == ENOSPC || error == EDQUOT ? "; free some space or use another disk"
        : error == EFBIG ? "; the limit on the size of files (ulimit -f) is too low"
                         : "";
    return fo_base_error(FO_IO, "%s can't be %s (%s)%s", t->path, what, strerror(error), advice);
}

/* ".tmp-write-<pid>-<n>" in the folder of path; see leftover() in directory.c. */
static fo_status temp_name(fo_checkpoint_temp *t)
{
    static atomic_uint serial;
    const char *slash = strrchr(t->path, '/');
    int folder = slash ? (int)(slash - t->path) + 1 : 0;
    return fo_checkpoint_path(t->temp, sizeof t->temp, "%.*s.tmp-write-%ld-%u", folder, t->path,
                              (long)getpid(), atomic_fetch_add(&serial, 1));
}

fo_status fo_checkpoint_temp_open(const char *path, fo_checkpoint_temp *t)
{
    struct stat info;
    t->file = -1;
    t->temp[0] = '\0';
    fo_status status = fo_checkpoint_path(t->path, sizeof t->path, "%s", path);
    if (status == FO_OK && stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return fo_base_error(FO_IO, "%s is %s, expected a file or nothing there", path,
                             S_ISDIR(info.st_mode) ? "a directory" : "not a regular file");
    for (int attempt = 0; status == FO_OK && t->file < 0; attempt++) {
        status = temp_name(t);
        if (status != FO_OK)
            break;
        int error = fault("open", t->temp);
        if (!error) {
            t->file = open(t->temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
            error = errno;
        }
        /* EEXIST: left by a process that had our number */
        if (t->file < 0 && (attempt == ATTEMPTS || (error != EEXIST && error != EINTR)))
            status = failed(t, "written: no file can be made beside it", error);
    }
    return status;
}

fo_status fo_checkpoint_temp_reserve(const fo_checkpoint_temp *t, int64_t size)
{
    int error;
    do {
        error = fault("write", t->temp);
        if (!error && size > 0 && fallocate(t->file, 0, 0, size) != 0)
            error = errno;
    } while (error == EINTR);
    if (error == EOPNOTSUPP || error == ENOSYS || error == EINVAL)
        error = ftruncate(t->file, size) == 0 ? 0 : errno;
    if (!error)
        return FO_OK;
    char what[64];
    snprintf(what, sizeof what, "written: %" PRId64 " bytes can't be reserved", size);
    return failed(t, what, error);
}

fo_status fo_checkpoint_temp_write(const fo_checkpoint_temp *t, const void *data, int64_t bytes,
                                   int64_t offset)
{
    const char *from = data;
    while (bytes > 0) {
        size_t chunk = bytes < CHUNK ? (size_t)bytes : CHUNK;
        int error = fault("write", t->temp);
        ssize_t written = error ? -1 : pwrite(t->file, from, chunk, offset);
        if (written < 0 && !error)
            error = errno;
        if (error == EINTR)
            continue;
        if (error || written == 0) {
            char what[64];
            snprintf(what, sizeof what, "written at offset %" PRId64, offset);
            return failed(t, what, error ? error : EIO);
        }
        from += written;
        offset += written;
        bytes -= written;
    }
    return FO_OK;
}

fo_status fo_checkpoint_temp_sync(fo_checkpoint_temp *t)
{
    int error;
    do {
        error = fault("fsync", t->temp);
        if (!error && fsync(t->file) != 0)
            error = errno;
    } while (error == EINTR);
    fo_status status = error ? failed(t, "flushed to disk", error) : FO_OK;
    error = fault("close", t->temp);
    if (close(t->file) != 0 && errno != EINTR) /* EINTR: closed all the same, and flushed */
        error = errno;
    t->file = -1;
    if (status == FO_OK && error)
        status = failed(t, "closed", error);
    if (status != FO_OK)
        fo_checkpoint_temp_abandon(t);
    return status;
}

fo_status fo_checkpoint_temp_commit(fo_checkpoint_temp *t)
{
    fo_status status = fo_checkpoint_temp_sync(t);
    if (status != FO_OK)
        return status;
    status = fo_checkpoint_rename(t->temp, t->path);
    if (status != FO_OK) {
        fo_checkpoint_temp_abandon(t);
        return status;
    }
    t->temp[0] = '\0';
    return fo_checkpoint_sync_parent(t->path);
}

void fo_checkpoint_temp_abandon(fo_checkpoint_temp *t)
{
    if (t->file >= 0)
        close(t->file);
    t->file = -1;
    if (t->temp[0] && fault("unlink", t->temp) == 0)
        unlink(t->temp); /* the failure that led here is what the caller hears of */
    t->temp[0] = '\0';
}
