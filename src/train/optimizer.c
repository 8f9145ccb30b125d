/* AdamW, the learning rate and clipping. */
#include <math.h>

#include "train/train.h"

static const float epsilon = 1e-8f;

double fo_train_optimizer_lr(const fo_train_options *options, int64_t step)
{
    double lr = options->lr, min_lr = options->min_lr;
    if (step <= options->warmup)
        return lr * (double)step / (double)options->warmup;
    if (step >= options->steps)
        return min_lr;
    double part = (double)(step - options->warmup) / (double)(options->steps - options->warmup);
    return min_lr + 0.5 * (1.0 + cos(3.14159265358979323846 * part)) * (lr - min_lr);
}

double fo_train_optimizer_scale(double clip, double norm)
{
    return clip > 0 && norm > clip ? clip / norm : 1.0;
}

void fo_train_optimizer_update(const fo_kernel *kernel, const fo_train_options *options,
                               int64_t step, double scale, const fo_model_piece *piece)
{
    fo_adamw adamw = {
        .lr = (float)fo_train_optimizer_lr(options, step),
        .beta1 = options->beta1,
        .beta2 = options->beta2,
        .eps = epsilon,
        .decay = piece->parameter->decay ? options->decay : 0.0f,
        .correction1 = (float)(1.0 - pow((double)options->beta1, (double)step)),
        .correction2 = (float)(1.0 - pow((double)options->beta2, (double)step)),
        .grad_scale = (float)scale,
    };
    kernel->adamw(&adamw, piece->grad, piece->value, piece->m, piece->v, piece->count);
}
