/* Small text files. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/system.h"

enum { TEXT_LIMIT = 64 << 20 };

fo_status fo_checkpoint_write_text(const char *path, const char *text)
{
    fo_checkpoint_temp temp;
    if (!path || !text)
        return fo_base_error(FO_INVALID, "writing a text file needs a path and a text");
    fo_status status = fo_checkpoint_temp_open(path, &temp);
    if (status != FO_OK)
        return status;
    status = fo_checkpoint_temp_write(&temp, text, (int64_t)strlen(text), 0);
    if (status == FO_OK)
        return fo_checkpoint_temp_commit(&temp);
    fo_checkpoint_temp_abandon(&temp);
    return status;
}

fo_status fo_checkpoint_open_read(const char *path, int *file, int64_t *size)
{
    struct stat info;
    do /* O_NONBLOCK: a named pipe must not make us wait for a writer */
        *file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    while (*file < 0 && errno == EINTR);
    if (*file < 0)
        return fo_base_error(FO_IO, "%s can't be opened for reading (%s)", path, strerror(errno));
    fo_status status = FO_OK;
    if (fstat(*file, &info) != 0)
        status = fo_base_error(FO_IO, "%s can't be examined (%s)", path, strerror(errno));
    else if (!S_ISREG(info.st_mode))
        status = fo_base_error(FO_IO, "%s is %s, expected a file", path,
                               S_ISDIR(info.st_mode) ? "a directory" : "not a regular file");
    else
        *size = info.st_size;
    if (status != FO_OK) {
        close(*file);
        *file = -1;
    }
    return status;
}

/* Reads up to `size` bytes; *got of them were there. */
static fo_status read_all(const char *path, int file, char *out, int64_t size, int64_t *got)
{
    for (*got = 0; *got < size;) {
        ssize_t count = read(file, out + *got, (size_t)(size - *got));
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return fo_base_error(FO_IO, "%s can't be read at offset %" PRId64 " (%s)", path, *got,
                                 strerror(errno));
        if (count == 0)
            break;
        *got += count;
    }
    return FO_OK;
}

static fo_status read_file(const char *path, int file, int64_t size, char **text)
{
    int64_t got = 0;
    if (size > TEXT_LIMIT)
        return fo_base_error(FO_FORMAT,
                             "%s has %" PRId64 " bytes, expected a text of at most %d; is the path "
                             "right?",
                             path, size, TEXT_LIMIT);
    char *out = malloc((size_t)size + 1);
    if (!out)
        return fo_base_error(FO_NO_MEMORY, "%s: no memory for its %" PRId64 " bytes", path, size);
    fo_status status = read_all(path, file, out, size, &got);
    const char *zero = status == FO_OK ? memchr(out, 0, (size_t)got) : NULL;
    if (zero)
        status = fo_base_error(FO_FORMAT, "%s has a zero byte at offset %td, expected text", path,
                               zero - out);
    if (status != FO_OK) {
        free(out);
        return status;
    }
    out[got] = '\0';
    *text = out;
    return FO_OK;
}

fo_status fo_checkpoint_read_text(const char *path, char **text)
{
    int file;
    int64_t size = 0;
    if (!path || !text)
        return fo_base_error(FO_INVALID, "reading a text file needs a path and room for the text");
    *text = NULL;
    fo_status status = fo_checkpoint_open_read(path, &file, &size);
    if (status != FO_OK)
        return status;
    status = read_file(path, file, size, text);
    close(file);
    return status;
}
