/* Where the bytes come from: a mapped file or a copy of memory. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "data/state.h"

static fo_status empty(const fo_data *data)
{
    return fo_base_error(FO_FORMAT, "%s is empty, expected tokens (format %s); is the path right?",
                         data->name, fo_data_format_name(data->format));
}

static fo_status map_open_file(fo_data *data, int file)
{
    struct stat info;
    if (fstat(file, &info) != 0)
        return fo_base_error(FO_IO, "%s can't be examined (%s)", data->name, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return fo_base_error(FO_IO, "%s is %s, expected a file of tokens", data->name,
                             S_ISDIR(info.st_mode) ? "a directory" : "not a regular file");
    if (info.st_size == 0)
        return empty(data);
    if ((uint64_t)info.st_size > SIZE_MAX / 2)
        return fo_base_error(FO_UNSUPPORTED, "%s has %" PRId64 " bytes, more than can be mapped",
                             data->name, (int64_t)info.st_size);
    void *bytes = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    if (bytes == MAP_FAILED)
        return fo_base_error(FO_IO, "%s: its %" PRId64 " bytes can't be mapped (%s)", data->name,
                             (int64_t)info.st_size, strerror(errno));
    data->bytes = bytes;
    data->size = info.st_size;
    data->mapped = true;
    return FO_OK;
}

fo_status fo_data_source_map(fo_data *data)
{
    int file; /* O_NONBLOCK: a named pipe must not make us wait for a writer */
    do
        file = open(data->name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    while (file < 0 && errno == EINTR);
    if (file < 0)
        return fo_base_error(FO_IO, "%s can't be opened for reading (%s)", data->name,
                             strerror(errno));
    fo_status status = map_open_file(data, file);
    close(file);
    return status;
}

fo_status fo_data_source_copy(fo_data *data, const void *bytes, int64_t size)
{
    if (size == 0)
        return empty(data);
    uint8_t *copy = (uint64_t)size <= SIZE_MAX / 2 ? malloc((size_t)size) : NULL;
    if (!copy)
        return fo_base_error(FO_NO_MEMORY, "%s: no memory for a copy of %" PRId64 " bytes",
                             data->name, size);
    memcpy(copy, bytes, (size_t)size);
    data->bytes = copy;
    data->size = size;
    return FO_OK;
}

void fo_data_source_release(fo_data *data)
{
    if (data->bytes && data->mapped)
        munmap((void *)(uintptr_t)data->bytes, (size_t)data->size);
    else
        free((void *)(uintptr_t)data->bytes);
    data->bytes = NULL;
}
