/* Small files whole, and what is said of them. */
#ifndef FO_BASE_FILE_H
#define FO_BASE_FILE_H

#include <stddef.h>

#include "flashoverlap/status.h"

/* All of a regular file of 1 to `most` bytes. *text is the caller's to free, with a 0 behind its last byte; NULL where
 * it fails. `kind` begins the sentence of an error ("profile"), `expected` ends it ("a file that ... wrote").
 * FO_IO: it can't be opened or read, or is no regular file: a named pipe is not waited for, a device not read.
 * FO_INVALID: empty, or larger. FO_NO_MEMORY. */
fo_status fo_base_file_read(const char *kind, const char *path, size_t most, const char *expected,
                            char **text, size_t *bytes);

/* What a sentence may quote: control characters, which break lines or colour terminals, become '?', and so does a
 * character of UTF-8 that was cut off at the end. Returns text. */
char *fo_base_file_quotable(char *text);

#endif
