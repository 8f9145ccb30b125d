/* Folders: making, syncing, swapping, removing. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "checkpoint/system.h"

int (*fo_checkpoint_fault)(const char *call, const char *path);

static bool faulty(const char *call, const char *path)
{
    int error = fo_checkpoint_fault ? fo_checkpoint_fault(call, path) : 0;
    if (error)
        errno = error;
    return error != 0;
}

fo_status fo_checkpoint_path(char *out, size_t size, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int used = vsnprintf(out, size, format, args);
    va_end(args);
    if (used >= 0 && (size_t)used < size)
        return FO_OK;
    return fo_base_error(
        FO_INVALID,
        "the path '%.60s...' takes %d bytes, expected less than %zu; use a shorter "
        "one",
        out, used, size);
}

/* ---- names ----------------------------------------------------------------------------------------- */

fo_status fo_checkpoint_rename(const char *from, const char *to)
{
    if (faulty("rename", to) || rename(from, to) != 0)
        return fo_base_error(FO_IO, "%s can't be renamed to %s (%s)", from, to, strerror(errno));
    return FO_OK;
}

fo_status fo_checkpoint_exchange(const char *a, const char *b, bool *supported)
{
    *supported = true;
    if (!faulty("exchange", b) && renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE) == 0)
        return FO_OK;
    *supported = errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP;
    if (!*supported)
        return FO_OK;
    return fo_base_error(FO_IO, "%s can't be swapped with %s (%s)", a, b, strerror(errno));
}

fo_status fo_checkpoint_mkdir(const char *path)
{
    if (faulty("mkdir", path) || mkdir(path, 0777) != 0)
        return fo_base_error(FO_IO, "%s can't be made (%s)", path, strerror(errno));
    return FO_OK;
}

/* One folder, unless it is there. `whole` is what was asked for. */
static fo_status make_missing(const char *path, const char *whole)
{
    struct stat info;
    if (stat(path, &info) == 0) {
        if (S_ISDIR(info.st_mode))
            return FO_OK;
        return fo_base_error(FO_IO, "%s is not a directory, expected one (for %s)", path, whole);
    }
    if (errno != ENOENT)
        return fo_base_error(FO_IO, "%s can't be examined (%s)", path, strerror(errno));
    fo_status status = fo_checkpoint_mkdir(path);
    if (status != FO_OK && stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        return FO_OK; /* someone else was faster */
    return status == FO_OK ? fo_checkpoint_sync_parent(path) : status;
}

fo_status fo_checkpoint_make_directories(const char *path)
{
    char part[FO_CHECKPOINT_PATH];
    fo_status status = fo_checkpoint_path(part, sizeof part, "%s", path);
    for (size_t end = 0; status == FO_OK && path[end];) {
        end += strspn(path + end, "/");
        end += strcspn(path + end, "/");
        memcpy(part, path, end);
        part[end] = '\0';
        status = make_missing(part, path);
    }
    return status;
}

bool fo_checkpoint_has_file(const char *path, const char *name)
{
    char file[FO_CHECKPOINT_PATH];
    struct stat info;
    int used = snprintf(file, sizeof file, "%s/%s", path, name);
    return used > 0 && used < (int)sizeof file && stat(file, &info) == 0 && S_ISREG(info.st_mode);
}

/* ---- to disk ------------------------------------------------------------------------------------- */

fo_status fo_checkpoint_sync(const char *path)
{
    int file, result, error;
    do
        file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    while (file < 0 && errno == EINTR);
    if (file < 0)
        return fo_base_error(FO_IO, "%s can't be opened to flush it (%s)", path, strerror(errno));
    do
        result = faulty("fsync", path) ? -1 : fsync(file);
    while (result != 0 && errno == EINTR);
    error = errno;
    close(file);
    if (result != 0 && error != EINVAL && error != EOPNOTSUPP) /* folders of some file systems */
        return fo_base_error(FO_IO, "%s can't be flushed to disk (%s)", path, strerror(error));
    return FO_OK;
}

fo_status fo_checkpoint_sync_parent(const char *path)
{
    char parent[FO_CHECKPOINT_PATH];
    fo_status status = fo_checkpoint_path(parent, sizeof parent, "%s", path);
    if (status != FO_OK)
        return status;
    char *slash = strrchr(parent, '/');
    if (!slash)
        return fo_checkpoint_sync(".");
    slash[slash == parent] = '\0';
    return fo_checkpoint_sync(parent);
}

static fo_status sync_entry(void *arg, const char *directory, const char *name)
{
    (void)arg;
    char path[FO_CHECKPOINT_PATH];
    struct stat info;
    fo_status status = fo_checkpoint_path(path, sizeof path, "%s/%s", directory, name);
    if (status == FO_OK && lstat(path, &info) == 0 && S_ISREG(info.st_mode))
        status = fo_checkpoint_sync(path);
    return status;
}

fo_status fo_checkpoint_sync_tree(const char *path)
{
    fo_status status = fo_checkpoint_each(path, sync_entry, NULL);
    return status == FO_OK ? fo_checkpoint_sync(path) : status;
}

/* ---- what a folder holds --------------------------------------------------------------------------- */

fo_status fo_checkpoint_each(const char *directory,
                             fo_status (*visit)(void *arg, const char *directory, const char *name),
                             void *arg)
{
    fo_status status = FO_OK;
    DIR *stream = opendir(directory);
    if (!stream)
        return fo_base_error(FO_IO, "the directory %s can't be read (%s)", directory,
                             strerror(errno));
    while (status == FO_OK) {
        errno = 0;
        const struct dirent *entry = readdir(stream);
        if (!entry) {
            if (errno)
                status = fo_base_error(FO_IO, "the directory %s can't be read (%s)", directory,
                                       strerror(errno));
            break;
        }
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            status = visit(arg, directory, entry->d_name);
    }
    closedir(stream);
    return status;
}

static fo_status remove_entry(void *arg, const char *directory, const char *name)
{
    (void)arg;
    char path[FO_CHECKPOINT_PATH];
    fo_status status = fo_checkpoint_path(path, sizeof path, "%s/%s", directory, name);
    return status == FO_OK ? fo_checkpoint_remove_tree(path) : status;
}

fo_status fo_checkpoint_remove_tree(const char *path)
{
    struct stat info;
    int result;
    if (lstat(path, &info) != 0)
        return errno == ENOENT
                   ? FO_OK
                   : fo_base_error(FO_IO, "%s can't be examined (%s)", path, strerror(errno));
    if (S_ISDIR(info.st_mode)) {
        fo_status status = fo_checkpoint_each(path, remove_entry, NULL);
        if (status != FO_OK)
            return status;
        result = faulty("rmdir", path) ? -1 : rmdir(path);
    } else {
        result = faulty("unlink", path) ? -1 : unlink(path);
    }
    if (result != 0 && errno != ENOENT)
        return fo_base_error(FO_IO, "%s can't be removed (%s)", path, strerror(errno));
    return FO_OK;
}
