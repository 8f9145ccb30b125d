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
#include "flashoverlap/search.h"
#include "flashoverlap/train.h"
#include "kernel/kernel.h"
#include "model/model.h"

enum { FO_TRAIN_PATH = 4096, FO_TRAIN_KEEP = 2 /* checkpoints kept in a directory */ };

/* Memory shared with the caller's process, written by who answers for it (fo_train_answers). */
typedef struct fo_train_shared {
    bool entered; /* ranks have met, agree on what to do, and have all they need */
    bool stopped; /* all agreed to, and the sentence says what was saved */
    fo_train_result result;
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

/* ---- fingerprint.c: what every rank must have been given alike ------------------------------------- */

enum { FO_TRAIN_FINGERPRINT = 8192 };

/* Kinds of fields. */
enum {
    FO_TRAIN_OPTION = 'o', /* of the command */
    FO_TRAIN_FILE = 'f',
    FO_TRAIN_PROGRAM = 'p',
    FO_TRAIN_NOTE = 'n' /* may differ; worth a word */
};

typedef struct fo_train_fingerprint {
    int32_t status; /* why this rank can't go on, with a sentence; FO_OK: it can */
    char sentence[1020];
    char text[FO_TRAIN_FINGERPRINT];
} fo_train_fingerprint;

void fo_train_fingerprint_begin(fo_train_fingerprint *f, const char *command);
void fo_train_fingerprint_add(fo_train_fingerprint *f, char kind, const char *name,
                              const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Options, by type. */
void fo_train_fingerprint_count(fo_train_fingerprint *f, const char *name, int64_t value);
void fo_train_fingerprint_real(fo_train_fingerprint *f, const char *name, double value);
void fo_train_fingerprint_word(fo_train_fingerprint *f, const char *name, const char *value);
void fo_train_fingerprint_group(fo_train_fingerprint *f, const fo_group_options *options);
/* Length and hash of a file; of a large one, of 64 blocks. */
void fo_train_fingerprint_file(fo_train_fingerprint *f, const char *name, const char *path);

/* Collective, the first thing ranks do. FO_INVALID on every rank names the field that differs, its values and the
 * ranks that have them; what a rank could not do before they met is everyone's failure. note: what differs and may,
 * else "". */
fo_status fo_train_enter(fo_group *group, const fo_train_fingerprint *f, char *note, size_t size);

/* ---- start.c: ranks that begin and end together ---------------------------------------------------- */

/* For what all ranks of a group have agreed on: they end well, and the caller of fo_train_start gets this status and
 * its sentence, the same in every process of a job. Returns it. */
fo_status fo_train_together(const fo_group *group, fo_status status);
/* For what a rank that answers finds out alone, such as a full disk: the group fails, but the caller gets the rank's
 * own sentence, without who it came from and who waited meanwhile. Returns it. */
fo_status fo_train_own_words(const fo_group *group, fo_status status);
/* For who fails before a group is there: in a job, joins the others in fo_train_enter, so that they end too, with
 * the same words. Returns `status`, or how the meeting ended. */
fo_status fo_train_refuse(const fo_group_options *options, fo_status status);
/* fo_group_run; a group that this process can't start at all is refused in the same way. */
fo_status fo_train_start(const fo_group_options *options, fo_rank_main rank_main, void *arg);

/* ---- options.c: the job ---------------------------------------------------------------------------- */

/* ---- plan.c ---------------------------------------------------------------------------------------- */

/* What a plan file says of the strategies of a model. */
typedef struct fo_train_plan {
    fo_plan_file file;
    fo_model_overlap overlaps[FO_PLAN_FILE_OPERATIONS];
} fo_train_plan;

/* Reads options->plan, takes tp and dp from it, and lets config ask `plan` for strategies. Does nothing without
 * one. FO_INVALID: the file, or a size that is not the one it was made for. */
fo_status fo_train_plan_take(fo_train_options *options, fo_train_plan *plan);
void fo_train_plan_give(const fo_train_options *options, fo_train_plan *plan,
                        fo_model_config *config);

typedef struct fo_train_job {
    fo_train_options options;
    fo_model_config config;
    fo_train_plan plan;
    fo_data_format format;
    fo_data *data;
    char resume[FO_TRAIN_PATH]; /* step folder, "": from the beginning */
    int64_t done;               /* steps done before */
    FILE *log;                  /* NULL: none, or another process's */
    FILE *progress;             /* NULL: quiet, or another process's */
    fo_train_fingerprint fingerprint;
    fo_train_shared *shared;
} fo_train_job;

/* Checks everything that can be checked before ranks start and opens what they need. */
fo_status fo_train_job_open(const fo_train_options *options, fo_train_job *job);
void fo_train_job_close(fo_train_job *job);
/* Numbers and words only: no file is touched. */
fo_status fo_train_options_check(const fo_train_options *options);
/* FO_INVALID: no strategy, or one that can't train. */
fo_status fo_train_strategy_check(const char *name);

/* ---- step.c: one rank with one model --------------------------------------------------------------- */

typedef struct fo_train_worker {
    const fo_train_job *job;
    fo_group *group;
    const fo_kernel *kernel;
    fo_model_config config;
    fo_model *model;
    int32_t *inputs, *targets; /* [batch, context] of a micro-step */
    fo_model_report carried;   /* of the last step's updates: counts for the next step */
} fo_train_worker;

typedef struct fo_train_values {
    int64_t step;
    double loss, grad_norm, lr;
    double step_ms;         /* wall time of this rank, from the start to the updated parameters */
    double exposed_ms;      /* of the rank that computed longest */
    double data_exposed_ms; /* the part of it between replicas */
    bool interrupted;       /* agreed on: some rank saw the wish to stop */
} fo_train_values;

/* Collective. overlap: instead of the job's; NULL: the job's. */
fo_status fo_train_worker_open(const fo_train_job *job, fo_group *group, const char *overlap,
                               fo_train_worker *worker);
void fo_train_worker_close(fo_train_worker *worker);
/* Collective. One step: micro-batches, gradients, exchange of verdicts, update. FO_NUMERIC on every rank
 * when loss or norm is not finite on any, or ranks that must have the same have not; the parameters are then those of
 * the step before. Updated parameters are still on their way when it returns. */
fo_status fo_train_step(fo_train_worker *worker, int64_t step, fo_train_values *values);
/* Collective. Mean loss over eval_batches fixed batches of the held-out part; the same for every N. */
fo_status fo_train_evaluate(fo_train_worker *worker, double *loss);
/* Collective. Sum over replicas, in their order, of what the ranks of each have alike. */
fo_status fo_train_sum_replicas(const fo_train_worker *worker, double mine, double *sum);

/* ---- diverge.c ------------------------------------------------------------------------------------- */

/* FO_NUMERIC unless values[0 .. count - 1], of ranks first, first + 1, ..., have the same bits: names the step, the
 * values and the ranks that differ from most. */
fo_status fo_train_diverge_check(int64_t step, const char *what, const double *values, int first,
                                 int count);

/* ---- waits.c: who waits for whom ------------------------------------------------------------------- */

/* A rank that others waited for much more than it did for them. */
typedef struct fo_train_slow {
    int rank;        /* -1: none */
    int by;          /* ranks that waited */
    double waited_s; /* in all */
    double part;     /* of the run of elapsed_s, a waiting rank's mean */
} fo_train_slow;

/* seconds[w * ranks + p]: how long rank w waited for rank p. */
fo_train_slow fo_train_waits_judge(const double *seconds, int ranks, double elapsed_s);
/* Collective; the answer is the same on all ranks. */
fo_status fo_train_waits_find(fo_train_worker *worker, double elapsed_s, fo_train_slow *slow);

/* ---- agree.c ---------------------------------------------------------------------------------------- */

/* Collective. The status and the sentence of the first rank (in rank order) that has another than FO_OK
 * become everyone's; the sentence names that rank on the others, unless all have the same. */
fo_status fo_train_agree(fo_group *group, fo_status status);
/* Whether this rank's process is one that hands results to a caller: rank 0's, and in a job every rank's. */
bool fo_train_answers(const fo_group *group);
/* Collective. Largest of the ranks' values. */
fo_status fo_train_agree_max(fo_group *group, double mine, double *largest);
/* Collective. True on all ranks when it is on any. */
fo_status fo_train_agree_any(fo_group *group, bool mine, bool *any);

/* ---- optimizer.c ----------------------------------------------------------------------------------- */

/* Learning rate of step 1..steps: linear to lr at step `warmup`, then a cosine to min_lr at `steps`. */
double fo_train_optimizer_lr(const fo_train_options *options, int64_t step);
/* clip / norm when norm > clip > 0, else 1. */
double fo_train_optimizer_scale(double clip, double norm);
/* AdamW on a piece of a parameter; decay only where it has it. */
void fo_train_optimizer_update(const fo_kernel *kernel, const fo_train_options *options,
                               int64_t step, double scale, const fo_model_piece *piece);

/* ---- save.c, load.c, tensor.c ----------------------------------------------------------------------- */

/* Which of a parameter's arrays a file holds. */
typedef enum fo_train_slot { FO_TRAIN_VALUE, FO_TRAIN_M, FO_TRAIN_V } fo_train_slot;

float *fo_train_tensor_array(const fo_model_piece *piece, fo_train_slot slot);
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

/* note: how hosts differ; "": they don't. */
void fo_train_progress_head(const fo_train_worker *worker, double peak, const char *note);
void fo_train_progress_step(const fo_train_job *job, const fo_train_values *values,
                            const fo_train_figures *figures, double left_s);
void fo_train_progress_evaluation(const fo_train_job *job, int64_t step, double val_loss);
/* "slow   ...": a line about the whole run. */
void fo_train_progress_note(const fo_train_job *job, const char *word, const char *text);
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
