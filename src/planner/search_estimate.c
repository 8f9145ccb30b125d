/* A lower bound of a step, cheap enough for every split. */
#include "planner/search_estimate.h"

#include <math.h>

#include "planner/model.h"
#include "planner/step.h"

double fo_planner_search_estimate(const fo_sim_device *device, const fo_planner_split *split)
{
    const fo_step_options *o = &split->options;
    const fo_model_sizes *m = &o->model;
    double rate = o->tp * fo_planner_step_rate(device, o->dtype);
    if (!(rate > 0))
        return 0;
    double again = o->recompute == FO_RECOMPUTE_FULL ? 2 : 0, rows = (double)split->rows;
    double layer_s = (6 + again) * rows * fo_planner_layer_weights(m) / rate;
    double head_s = 6 * rows * (double)m->vocabulary * (double)m->dim / rate;
    double before_s = 0, most_s = 0;
    for (int stage = 0; stage < o->pp; stage++) {
        double each_s = layer_s * (double)fo_planner_split_stage_layers(split, stage);
        each_s += stage == o->pp - 1 ? head_s : 0;
        most_s = fmax(most_s, before_s + (double)split->micro_batches * each_s);
        before_s += layer_s * (double)fo_planner_split_layers(split, stage);
    }
    return most_s;
}
