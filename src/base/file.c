/* Small files whole. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

/* Of whom is said what. */
typedef struct subject {
    const char *kind, *path, *expected;
} subject;

static fo_status unreadable(const subject *s, const char *what, int error)
{
    return fo_base_error(FO_IO, "%s %.400s can't be %s (%s), expected %s", s->kind, s->path, what,
                         strerror(error), s->expected);
}

static fo_status too_large(const subject *s, size_t most)
{
    return fo_base_error(FO_INVALID, "%s %.400s has more than %zu bytes, expected %s", s->kind,
                         s->path, most, s->expected);
}

static fo_status check(const subject *s, int file, size_t most)
{
    struct stat info;
    if (fstat(file, &info) != 0)
        return unreadable(s, "examined", errno);
    if (!S_ISREG(info.st_mode))
        return fo_base_error(FO_IO, "%s %.400s is %s, expected %s", s->kind, s->path,
                             S_ISDIR(info.st_mode)    ? "a directory"
                             : S_ISFIFO(info.st_mode) ? "a named pipe"
                                                      : "not a regular file",
                             s->expected);
    return info.st_size > 0 && (unsigned long long)info.st_size > most ? too_large(s, most) : FO_OK;
}

/* Up to one byte more than there may be. The size that was asked may have changed since. */
static fo_status read_all(const subject *s, int file, size_t most, char *text, size_t *bytes)
{
    size_t used = 0;
    while (used <= most) {
        ssize_t got = read(file, text + used, most + 1 - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return unreadable(s, "read", errno);
        if (got == 0)
            break;
        used += (size_t)got;
    }
    *bytes = used;
    text[used] = '\0';
    if (used > most)
        return too_large(s, most);
    return used ? FO_OK
                : fo_base_error(FO_INVALID, "%s %.400s is empty, expected %s", s->kind, s->path,
                                s->expected);
}

fo_status fo_base_file_read(const char *kind, const char *path, size_t most, const char *expected,
                            char **text, size_t *bytes)
{
    subject s = {kind, path, expected};
    int file; /* O_NONBLOCK: opening a named pipe would wait for somebody to write */
    *text = NULL;
    *bytes = 0;
    do
        file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    while (file < 0 && errno == EINTR);
    if (file < 0)
        return unreadable(&s, "opened", errno);
    fo_status status = check(&s, file, most);
    char *memory = status == FO_OK ? malloc(most + 2) : NULL;
    if (status == FO_OK && !memory)
        status = fo_base_error(FO_NO_MEMORY, "no memory for %s %.400s", kind, path);
    if (status == FO_OK)
        status = read_all(&s, file, most, memory, bytes);
    close(file);
    if (status == FO_OK)
        *text = memory;
    else
        free(memory);
    return status;
}

/* Bytes that follow the first byte of a character of UTF-8. */
static int followers(unsigned char first)
{
    return first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : first >= 0xc0 ? 1 : 0;
}

char *fo_base_file_quotable(char *text)
{
    for (char *at = text; *at;) {
        unsigned char first = (unsigned char)*at;
        int more = followers(first), length = 1;
        while (length <= more && ((unsigned char)at[length] & 0xc0) == 0x80)
            length++;
        bool torn = first >= 0x80 && (length <= more || !more);
        bool control =
            first < ' ' || first == 0x7f || (first == 0xc2 && (unsigned char)at[1] < 0xa0);
        for (int i = 0; (torn || control) && i < length; i++)
            at[i] = '?';
        at += length;
    }
    return text;
}
