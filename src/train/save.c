/* Checkpoints: the whole model, unsharded, written by rank 0 out of what all ranks hand over. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "train/train.h"

static const char *const files[] = {"model.safetensors", "optimizer.safetensors", "config.json"};
enum { MODEL, OPTIMIZER, CONFIG, FILES };

/* The file being written; used on rank 0 only. */
typedef struct output {
    const fo_train_worker *worker;
    char folder[FO_TRAIN_PATH];
    fo_tensor_writer *writer;
    float *full; /* the largest tensor of the model fits */
} output;

static void path_in(const output *out, int file, char *path, size_t size)
{
    snprintf(path, size, "%s/%s", out->folder, files[file]);
}

static fo_status make_full(output *out)
{
    int64_t largest = 1;
    for (int i = 0; i < fo_model_parameter_count(out->worker->model); i++) {
        const fo_parameter *p = fo_model_parameter(out->worker->model, i);
        if (p->full_rows * p->full_cols > largest)
            largest = p->full_rows * p->full_cols;
    }
    out->full = malloc((size_t)largest * sizeof *out->full);
    if (!out->full)
        return fo_base_error(FO_NO_MEMORY, "saving: no memory for a tensor of %" PRId64 " values",
                             largest);
    return FO_OK;
}

/* Declares tensors of all parameters for the slots [first, last] and opens the file. */
static fo_status open_file(output *out, int file, fo_train_slot first, fo_train_slot last)
{
    static const char *const metadata[] = {"format", "pt", NULL};
    int parameters = fo_model_parameter_count(out->worker->model),
        slots = (int)last - (int)first + 1;
    fo_tensor_info *infos = calloc((size_t)parameters * (size_t)slots + 1, sizeof *infos);
    char(*names)[72] = calloc((size_t)parameters * (size_t)slots + 1, sizeof *names);
    char path[FO_TRAIN_PATH + 32];
    path_in(out, file, path, sizeof path);
    fo_status status = FO_OK;
    if (!infos || !names)
        status = fo_base_error(FO_NO_MEMORY, "%s: no memory for its list of tensors", path);
    for (int i = 0; status == FO_OK && i < parameters * slots; i++) {
        const fo_parameter *p = fo_model_parameter(out->worker->model, i / slots);
        fo_train_tensor_name(p, (fo_train_slot)((int)first + i % slots), names[i], sizeof names[i]);
        infos[i] = (fo_tensor_info){.name = names[i], .dtype = FO_F32};
        infos[i].dims = fo_train_tensor_shape(p, infos[i].shape);
    }
    if (status == FO_OK)
        status = fo_checkpoint_create(path, infos, parameters * slots, metadata, &out->writer);
    free(infos);
    free(names);
    return status;
}

static fo_status write_tensor(output *out, int index, const fo_parameter *parameter)
{
    int64_t bytes = parameter->full_rows * parameter->full_cols * (int64_t)sizeof *out->full;
    return fo_checkpoint_write(out->writer, index, 0, out->full, bytes);
}

/* Collective: one file, tensor by tensor; the ranks agree after each, so that none runs on alone. */
static fo_status write_file(output *out, int file, fo_train_slot first, fo_train_slot last)
{
    fo_group *group = out->worker->group;
    bool writes = fo_group_rank(group) == 0;
    fo_status status = fo_train_agree(group, writes ? open_file(out, file, first, last) : FO_OK);
    int slots = (int)last - (int)first + 1,
        tensors = fo_model_parameter_count(out->worker->model) * slots;
    for (int i = 0; status == FO_OK && i < tensors; i++) {
        const fo_parameter *p = fo_model_parameter(out->worker->model, i / slots);
        status = fo_train_tensor_gather(out->worker, p, (fo_train_slot)((int)first + i % slots),
                                        out->full);
        if (status == FO_OK)
            status = fo_train_agree(group, writes ? write_tensor(out, i, p) : FO_OK);
    }
    if (status == FO_OK && writes)
        status = fo_checkpoint_commit(out->writer);
    else if (out->writer)
        fo_checkpoint_abandon(out->writer);
    out->writer = NULL;
    return fo_train_agree(group, status);
}

static fo_status write_config(const output *out, int64_t step)
{
    const fo_train_job *job = out->worker->job;
    fo_train_state state = {.step = step, .model = job->config, .format = job->format};
    const char *characters = fo_data_characters(job->data);
    if (characters && !(state.characters = strdup(characters)))
        return fo_base_error(FO_NO_MEMORY, "%s: no memory for the vocabulary", out->folder);
    fo_status status = fo_train_state_write(out->folder, &state);
    fo_train_state_clear(&state);
    return status;
}

static void remove_folder(const output *out)
{
    char path[FO_TRAIN_PATH + 32];
    for (int file = 0; file < FILES; file++) {
        path_in(out, file, path, sizeof path);
        unlink(path);
    }
    rmdir(out->folder);
}

fo_status fo_train_save(const fo_train_worker *worker, int64_t step)
{
    const char *directory = worker->job->options.out;
    bool writes = fo_group_rank(worker->group) == 0;
    output out = {.worker = worker};
    fo_status status = writes ? make_full(&out) : FO_OK;
    if (status == FO_OK && writes)
        status = fo_checkpoint_directory_begin(directory, step, out.folder, sizeof out.folder);
    status = fo_train_agree(worker->group, status);
    if (status == FO_OK)
        status = write_file(&out, MODEL, FO_TRAIN_VALUE, FO_TRAIN_VALUE);
    if (status == FO_OK)
        status = write_file(&out, OPTIMIZER, FO_TRAIN_M, FO_TRAIN_V);
    if (status == FO_OK) {
        if (writes && (status = write_config(&out, step)) == FO_OK)
            status = fo_checkpoint_directory_commit(directory, step, FO_TRAIN_KEEP);
        status = fo_train_agree(worker->group, status);
    }
    if (status != FO_OK && writes && out.folder[0])
        remove_folder(&out);
    free(out.full);
    return status;
}
