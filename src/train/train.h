/* The train room from inside: what its files share.
 *
 * A job is everything known before any rank starts: checked options, the opened data, the checkpoint to
 * go on from, the opened log. Ranks read it (forked ranks inherit it) and never write it; what rank 0
 * hands back goes through job->shared. A worker is one rank with one model. Steps are counted from 1; step
 * s is a pure function of (seed, s) and the state after step s - 1, so going on from a checkpoint gives
 * the bits of a run that never stopped. */
#ifndef FO_TRAIN_TRAIN_H
#define FO_TRAIN_TRAIN_H

#include "data/data.h"
#include "flashoverlap/train.h"
#include "kernel/kernel.h"
#include "model/model.h"

enum { FO_TRAIN_PATH = 4096, FO_TRAIN_KEEP = 2 /* checkpoints kept in a directory */ };

/* Memory shared with the caller's process, written by rank 0. */
typedef struct fo_train_shared {
    fo_train_result result;
    fo_status stop;      /* why all ranks agreed to stop, FO_OK: they did not */
    char sentence[1024]; /* the caller's fo_last_error() then */
} fo_train_shared;

/* ---- state.c: config.json of a checkpoint --------------------------------------------------------- */

typedef struct fo_train_state {
    int64_t step;          /* steps done */
    fo_model_config model; /* overlap stays NULL */
    fo_data_format format;
    char *characters; /* of a char vocabulary, else NULL; malloc'ed */
} fo_train_state;

/* Reads <folder>/config.json. FO_IO, FO_FORMAT name the file and the key. Free with _clear. */
fo_status fo_train_state_read(const char *folder, fo_train_state *state);
fo_status fo_train_state_write(const char *folder, const fo_train_state *state);
void fo_train_state_clear(fo_train_state *state);

/* ---- options.c: the job ---------------------------------------------------------------------------- */

typedef struct fo_train_job {
    fo_train_options options;
    fo_model_config config;
    fo_data_format format;
    fo_data *data;
    char resume[FO_TRAIN_PATH]; /* step folder, "": from the beginning */
    int64_t done;               /* steps done before */
    FILE *log;                  /* NULL: none */
    FILE *progress;             /* NULL: quiet */
    fo_train_shared *shared;
} fo_train_job;

/* Checks everything that can be checked before ranks start and opens what they need. */
fo_status fo_train_job_open(const fo_train_options *options, fo_train_job *job);
void fo_train_job_close(fo_train_job *job);
/* Numbers only: no file is touched. */
fo_status fo_train_options_check(const fo_train_options *options);

/* ---- step.c: one rank with one model --------------------------------------------------------------- */

typedef struct fo_train_worker {
    const fo_train_job *job;
    fo_group *group;
    const fo_kernel *kernel;
    fo_model_config config;
    fo_model *model;
    int32_t *inputs, *targets; /* [batch, context] of a micro-step */
} fo_train_worker;

typedef struct fo_train_values {
    int64_t step;
    double loss, grad_norm, lr;
    double step_ms;    /* wall time of this rank, from the start to the updated parameters */
    double exposed_ms; /* of the rank that computed longest */
    bool interrupted;  /* agreed on: some rank saw the wish to stop */
} fo_train_values;

/* Collective. overlap: instead of the job's; NULL: the job's. */
fo_status fo_train_worker_open(const fo_train_job *job, fo_group *group, const char *overlap,
                               fo_train_worker *worker);
void fo_train_worker_close(fo_train_worker *worker);
/* Collective. One step: micro-batches, gradients, exchange of verdicts, update. FO_NUMERIC on every rank
 * when loss or norm is not finite on any; the parameters are then those of the step before. */
fo_status fo_train_step(fo_train_worker *worker, int64_t step, fo_train_values *values);
/* Collective. Mean loss over eval_batches fixed batches of the held-out part; the same for every N. */
fo_status fo_train_evaluate(fo_train_worker *worker, double *loss);

/* ---- agree.c ---------------------------------------------------------------------------------------- */

/* Collective. The status and the sentence of the first rank (in rank order) that has another than FO_OK
 * become everyone's. */
fo_status fo_train_agree(fo_group *group, fo_status status);
/* Collective. Largest of the ranks' values. */
fo_status fo_train_agree_max(fo_group *group, double mine, double *largest);
/* Collective. True on all ranks when it is on any. */
fo_status fo_train_agree_any(fo_group *group, bool mine, bool *any);

/* ---- optimizer.c ----------------------------------------------------------------------------------- */

/* Learning rate of step 1..steps: linear to lr at step `warmup`, then a cosine to min_lr at `steps`. */
double fo_train_optimizer_lr(const fo_train_options *options, int64_t step);
/* clip / norm when norm > clip > 0, else 1. */
double fo_train_optimizer_scale(double clip, double norm);
/* AdamW on one parameter; decay only where it has it. */
void fo_train_optimizer_update(const fo_kernel *kernel, const fo_train_options *options,
                               int64_t step, double scale, fo_parameter *parameter);

/* ---- save.c, load.c, tensor.c ----------------------------------------------------------------------- */

/* Which of a parameter's arrays a file holds. */
typedef enum fo_train_slot { FO_TRAIN_VALUE, FO_TRAIN_M, FO_TRAIN_V } fo_train_slot;

float *fo_train_tensor_array(const fo_parameter *parameter, fo_train_slot slot);
/* <name>, <name>.m, <name>.v */
void fo_train_tensor_name(const fo_parameter *parameter, fo_train_slot slot, char *out,
                          size_t size);
/* Shape in files (Hugging Face layout); returns the number of dimensions. */
int fo_train_tensor_shape(const fo_parameter *parameter, int64_t shape[2]);
/* Collective. Puts the ranks' shares together on rank 0: full, in file layout, unused elsewhere. */
fo_status fo_train_tensor_gather(const fo_train_worker *worker, const fo_parameter *parameter,
                                 fo_train_slot slot, float *full);

/* Collective. Writes the checkpoint of `step`, complete or not at all, into options.out. The failure of
 * any rank is everyone's. */
fo_status fo_train_save(const fo_train_worker *worker, int64_t step);
/* Collective. Reads this rank's rectangles from a step folder. optimizer: moments too. */
fo_status fo_train_load(fo_group *group, const fo_model_config *config, fo_model *model,
                        const char *folder, bool optimizer);

/* ---- progress.c: what rank 0 says ------------------------------------------------------------------- */

typedef struct fo_train_figures {
    double tokens_per_s, mfu; /* mfu as a fraction; NaN: no peak */
} fo_train_figures;

void fo_train_progress_head(const fo_train_worker *worker, double peak);
void fo_train_progress_step(const fo_train_job *job, const fo_train_values *values,
                            const fo_train_figures *figures, double left_s);
void fo_train_progress_evaluation(const fo_train_job *job, int64_t step, double val_loss);
void fo_train_progress_saved(const fo_train_job *job, int64_t step);
/* FO_IO when the log can't be written. */
fo_status fo_train_log_step(const fo_train_job *job, const fo_train_values *values,
                            const fo_train_figures *figures);
fo_status fo_train_log_evaluation(const fo_train_job *job, int64_t step, double val_loss);

/* ---- peak.c, link.c ---------------------------------------------------------------------------------- */

/* Collective. Best measured GEMM rate of the type, FLOP/s: all ranks compute at once, each rank's best
 * window counts, summed over ranks. */
fo_status fo_train_peak(fo_group *group, fo_dtype dtype, double *flops);
/* Collective. Emulates a link at which the transfer of the model's row-parallel layers takes
 * options.link_ratio of their measured computation. Does nothing when that is 0 or for one rank. */
fo_status fo_train_link(const fo_train_job *job, fo_group *group);

/* ---- sample.c ----------------------------------------------------------------------------------------- */

/* The next token from logits [count]: temperature 0 takes the most likely (the first of equals); top_k
 * > 0 leaves the top_k most likely. Random number `index` of `seed`. `scratch`: [count] floats. */
int32_t fo_train_sample_pick(const float *logits, int64_t count, double temperature, int64_t top_k,
                             uint64_t seed, uint64_t index, float *scratch);

#endif
