/* Files that appear whole or not at all. */
#include "trace/out.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "flashoverlap/trace.h"
#include "trace/page.h"

enum { PATH_BYTES = 4096, BUFFER_BYTES = 1 << 16, ATTEMPTS = 1000 };

struct fo_trace_out {
    char path[PATH_BYTES]; /* where it shall be */
    char temp[PATH_BYTES]; /* where it is */
    int file;
    int error; /* errno of the first call that failed */
    size_t used;
    char buffer[BUFFER_BYTES];
};

static fo_status failed(const char *path, const char *what, int error)
{
    const char *advice =
        error == ENOSPC || error == EDQUOT ? "; free some space or use another disk"
        : error == EFBIG ? "; the limit on the size of files (ulimit -f) is too low"
                         : "";
    return fo_base_error(FO_IO, "%s can't be written%s (%s)%s", path, what, strerror(error),
                         advice);
}

/* ".tmp-trace-<pid>-<n>" in the folder of path. */
static fo_status name_files(fo_trace_out *out, const char *path)
{
    static atomic_uint serial;
    const char *slash = strrchr(path, '/');
    int folder = slash ? (int)(slash - path) + 1 : 0;
    int used = snprintf(out->path, sizeof out->path, "%s", path);
    int beside = snprintf(out->temp, sizeof out->temp, "%.*s.tmp-trace-%ld-%u", folder, path,
                          (long)getpid(), atomic_fetch_add(&serial, 1));
    if (used >= PATH_BYTES || beside >= PATH_BYTES)
        return fo_base_error(FO_IO, "the path '%.60s...' takes %d bytes, expected less than %d",
                             path, used, PATH_BYTES - 32);
    return FO_OK;
}

/* What already is at the path may be replaced when it is a file of its own, and only then: a link would
 * be replaced itself, and what it leads to would stay as it was. */
static fo_status check_place(const char *path)
{
    struct stat info;
    size_t length = strlen(path);
    if (length == 0)
        return fo_base_error(FO_IO, "the path of a file to write is empty");
    if (path[length - 1] == '/')
        return fo_base_error(FO_IO, "%s names a directory, expected the path of a file", path);
    if (lstat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return fo_base_error(FO_IO, "%s is %s, expected a file or nothing there", path,
                             S_ISDIR(info.st_mode)   ? "a directory"
                             : S_ISLNK(info.st_mode) ? "a symbolic link"
                                                     : "not a regular file");
    return FO_OK;
}

static fo_status open_beside(fo_trace_out *out, const char *path)
{
    fo_status status = check_place(path);
    for (int attempt = 0; status == FO_OK; attempt++) {
        status = name_files(out, path);
        if (status != FO_OK)
            break;
        out->file = open(out->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (out->file >= 0)
            break;
        /* EEXIST: left by a process that had our number */
        if (attempt == ATTEMPTS || (errno != EEXIST && errno != EINTR))
            status = failed(path, ": no file can be made beside it", errno);
    }
    return status;
}

fo_status fo_trace_out_open(const char *path, fo_trace_out **result)
{
    *result = NULL;
    fo_trace_out *out = malloc(sizeof *out);
    if (!out)
        return fo_base_error(FO_NO_MEMORY, "%s can't be written: no memory for a buffer", path);
    out->error = 0;
    out->used = 0;
    fo_status status = open_beside(out, path);
    if (status == FO_OK)
        *result = out;
    else
        free(out);
    return status;
}

static void flush(fo_trace_out *out)
{
    const char *from = out->buffer;
    while (out->used > 0 && !out->error) {
        ssize_t written = write(out->file, from, out->used);
        if (written > 0) {
            from += written;
            out->used -= (size_t)written;
        } else if (written == 0 || errno != EINTR) {
            out->error = written == 0 ? EIO : errno;
        }
    }
    out->used = 0;
}

fo_status fo_trace_out_commit(fo_trace_out *out)
{
    flush(out);
    while (!out->error && fsync(out->file) != 0)
        if (errno != EINTR)
            out->error = errno;
    if (close(out->file) != 0 && errno != EINTR && !out->error)
        out->error = errno;
    if (!out->error && rename(out->temp, out->path) != 0)
        out->error = errno;
    fo_status status = FO_OK;
    if (out->error) {
        unlink(out->temp); /* the failure that led here is what the caller hears of */
        status = failed(out->path, "", out->error);
    }
    free(out);
    return status;
}

void fo_trace_out_abandon(fo_trace_out *out)
{
    if (!out)
        return;
    close(out->file);
    unlink(out->temp);
    free(out);
}

/* Whether two paths, neither of which need exist, name one file. */
static bool same_place(const char *a, const char *b)
{
    const char *paths[2] = {a, b}, *names[2];
    struct stat folders[2];
    for (int i = 0; i < 2; i++) {
        const char *slash = strrchr(paths[i], '/');
        char folder[PATH_BYTES];
        names[i] = slash ? slash + 1 : paths[i];
        snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - paths[i]) + 1 : 1,
                 slash ? paths[i] : ".");
        if (stat(folder, &folders[i]) != 0)
            return false;
    }
    return folders[0].st_dev == folders[1].st_dev && folders[0].st_ino == folders[1].st_ino &&
           !strcmp(names[0], names[1]);
}

fo_status fo_trace_check_paths(const char *trace, const char *report)
{
    fo_status status = trace ? fo_trace_check_path(trace) : FO_OK;
    if (status == FO_OK && report)
        status = fo_trace_check_path(report);
    if (status == FO_OK && trace && report && same_place(trace, report))
        return fo_base_error(FO_INVALID,
                             "the trace and the report are to be written to one file, %s and %s, "
                             "expected a file each",
                             trace, report);
    return status;
}

fo_status fo_trace_check_path(const char *path)
{
    fo_trace_out *out;
    fo_status status = fo_trace_out_open(path, &out);
    fo_trace_out_abandon(out);
    return status;
}

/* ---- what is put ----------------------------------------------------------------------------------- */

void fo_trace_put_bytes(fo_trace_out *out, const char *bytes, size_t count)
{
    while (count > 0 && !out->error) {
        size_t room = sizeof out->buffer - out->used;
        size_t chunk = count < room ? count : room;
        memcpy(out->buffer + out->used, bytes, chunk);
        out->used += chunk;
        bytes += chunk;
        count -= chunk;
        if (out->used == sizeof out->buffer)
            flush(out);
    }
}

void fo_trace_put(fo_trace_out *out, const char *text)
{
    fo_trace_put_bytes(out, text, strlen(text));
}

void fo_trace_print(fo_trace_out *out, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    int used = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (used < 0 || used >= (int)sizeof text)
        out->error = out->error ? out->error : EOVERFLOW; /* never a part of what was meant */
    else
        fo_trace_put_bytes(out, text, (size_t)used);
}
