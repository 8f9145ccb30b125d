/* The calls that change the file system, each with its error sentence; shared by the files of this room
 * only. Interrupted calls are repeated, short writes go on where they stopped. A function that fails
 * leaves errno's text in the sentence, with the path. */
#ifndef FO_CHECKPOINT_SYSTEM_H
#define FO_CHECKPOINT_SYSTEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "flashoverlap/status.h"

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "safetensors files are little-endian and are read in place: build on a little-endian host"
#endif
_Static_assert(sizeof(off_t) == 8, "files beyond 2 GiB need a 64-bit off_t");

enum { FO_CHECKPOINT_PATH = 4096 };

/* For tests: called before every system call that changes files, with its name ("open", "write",
 * "fsync", "close", "rename", "exchange", "mkdir", "unlink", "rmdir") and path. Returns 0 to go on, or
 * the errno with which the call shall fail; it may also end the process. NULL: none. */
extern int (*fo_checkpoint_fault)(const char *call, const char *path);

/* Formats a path. FO_INVALID when it does not fit. */
fo_status fo_checkpoint_path(char *out, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A file being written under a temporary name beside its place. */
typedef struct fo_checkpoint_temp {
    char path[FO_CHECKPOINT_PATH]; /* where it shall be */
    char temp[FO_CHECKPOINT_PATH]; /* where it is */
    int file;                      /* -1: closed */
} fo_checkpoint_temp;

fo_status fo_checkpoint_temp_open(const char *path, fo_checkpoint_temp *out);
/* Reserves the space where the file system can: a full disk is told early. */
fo_status fo_checkpoint_temp_reserve(const fo_checkpoint_temp *t, int64_t size);
fo_status fo_checkpoint_temp_write(const fo_checkpoint_temp *t, const void *data, int64_t bytes,
                                   int64_t offset);
/* fsync and close, but no rename; on failure the temporary file is gone. */
fo_status fo_checkpoint_temp_sync(fo_checkpoint_temp *t);
/* _sync, rename, fsync of the folder. On failure the temporary file is gone. */
fo_status fo_checkpoint_temp_commit(fo_checkpoint_temp *t);
/* Removes it. Keeps the error sentence. */
void fo_checkpoint_temp_abandon(fo_checkpoint_temp *t);

fo_status fo_checkpoint_rename(const char *from, const char *to);
/* Swaps two folders in one step. *supported is false (with FO_OK) where the file system can't. */
fo_status fo_checkpoint_exchange(const char *a, const char *b, bool *supported);
fo_status fo_checkpoint_mkdir(const char *path);
/* mkdir of the folder and of what is missing above it. */
fo_status fo_checkpoint_make_directories(const char *path);
/* fsync of a file or folder. */
fo_status fo_checkpoint_sync(const char *path);
/* fsync of the folder that holds `path`. */
fo_status fo_checkpoint_sync_parent(const char *path);
/* fsync of the files in a folder, then of the folder. */
fo_status fo_checkpoint_sync_tree(const char *path);
/* Removes a folder with all in it, or a file; follows no links. */
fo_status fo_checkpoint_remove_tree(const char *path);

/* Whether `path`/`name` is a regular file. */
bool fo_checkpoint_has_file(const char *path, const char *name);

/* Opens a regular file for reading; never waits. FO_IO. */
fo_status fo_checkpoint_open_read(const char *path, int *file, int64_t *size);

/* Calls visit for each entry of a folder but "." and ".."; stops at the first failure. */
fo_status fo_checkpoint_each(const char *directory,
                             fo_status (*visit)(void *arg, const char *directory, const char *name),
                             void *arg);

#endif
