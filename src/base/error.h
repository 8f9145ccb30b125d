/* Writing the error sentence. Whoever first knows an error calls fo_base_error; callers above pass the
 * status on untouched. */
#ifndef FO_BASE_ERROR_H
#define FO_BASE_ERROR_H

#include "flashoverlap/status.h"

/* Stores the sentence for fo_last_error() of this thread and returns `status`:
 *     return fo_base_error(FO_INVALID, "--ranks is %d, expected 1 or more", ranks);  */
fo_status fo_base_error(fo_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Forgets the stored sentence. */
void fo_base_error_clear(void);

#endif
