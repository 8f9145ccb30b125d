/* Models by name or file, and what follows from their sizes. Pure functions; any thread. */
#ifndef FO_PLANNER_MODEL_H
#define FO_PLANNER_MODEL_H

#include <stddef.h>

#include "flashoverlap/planner.h"

/* presets.c: NULL: there is none of that name. */
const fo_model_sizes *fo_planner_preset(const char *name);

/* config.c: the sizes in a Hugging Face config.json, a file or its text (`name` is for messages). FO_INVALID:
 * no JSON, or a field that is missing, negative, mis-typed or unknown. FO_IO: no regular file, or it can't be read. */
fo_status fo_planner_config_read(const char *path, fo_model_sizes *model);
fo_status fo_planner_config_parse(const char *name, const char *text, size_t bytes,
                                  fo_model_sizes *model);

/* ---- parameters ---- */
double fo_planner_layer_weights(
    const fo_model_sizes *model); /* matrices of a layer: what is split over tp */
double fo_planner_layer_parameters(const fo_model_sizes *model); /* and norms, biases */
/* What multiplies tokens: all but tables that are only looked up (docs/metrics.md, P). */
double fo_planner_multiplied_parameters(const fo_model_sizes *model);

#endif
