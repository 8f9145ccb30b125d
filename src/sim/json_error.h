/* The sentence about a text that is no JSON, for whoever reads what people write. */
#ifndef FO_SIM_JSON_ERROR_H
#define FO_SIM_JSON_ERROR_H

#include <jansson.h>
#include <stddef.h>

#include "flashoverlap/status.h"

/* "NAME: PATH, line 3: what the parser found, expected JSON, such as EXAMPLE"; PATH: of the field where it stopped.
 * Returns FO_INVALID. */
fo_status fo_sim_json_error(const char *name, const char *text, size_t bytes,
                            const json_error_t *error, const char *example);

#endif
