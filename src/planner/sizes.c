/* Models by name: presets, and counting their parameters. */
#include "flashoverlap/planner.h"

double fo_model_sizes_embedding_parameters(const fo_model_sizes *model)
{
    double table = (double)model->vocabulary * (double)model->dim;
    double positions = model->positions ? (double)model->context * (double)model->dim : 0;
    return (model->tied ? 1 : 2) * table + positions;
}
