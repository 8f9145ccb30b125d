/* Making text with a trained model. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/random.h"
#include "checkpoint/checkpoint.h"
#include "flashoverlap/job.h"
#include "train/train.h"

void fo_sample_defaults(fo_sample_options *options)
{
    *options = (fo_sample_options){.tokens = 500, .temperature = 0.8, .top_k = 40, .seed = 1};
    fo_job job;
    fo_job_get(&job);
    options->group.ranks = job.size;
}

/* ---- choosing a token ------------------------------------------------------------------------------- */

static int descending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

static int32_t most_likely(const float *logits, int64_t count)
{
    int64_t best = 0;
    for (int64_t i = 1; i < count; i++)
        if (logits[i] > logits[best])
            best = i;
    return (int32_t)best;
}

/* Copies logits to `kept`, -inf for all but the top_k largest; of equals at the edge the first stay. */
static void keep_top(const float *logits, int64_t count, int64_t top_k, float *kept)
{
    memcpy(kept, logits, (size_t)count * sizeof *kept);
    if (top_k <= 0 || top_k >= count)
        return;
    qsort(kept, (size_t)count, sizeof *kept, descending);
    float edge = kept[top_k - 1];
    int64_t equals = 0;
    for (int64_t i = 0; i < top_k; i++)
        equals += kept[i] == edge;
    for (int64_t i = 0; i < count; i++) {
        bool keep = logits[i] > edge || (logits[i] == edge && equals-- > 0);
        kept[i] = keep ? logits[i] : -INFINITY;
    }
}

static double random_part(uint64_t seed, uint64_t index)
{
    uint32_t word[4];
    fo_base_random_block(seed, fo_base_random_stream("sample"), index, word);
    return ((double)(word[0] >> 5) * 0x1p26 + (double)(word[1] >> 6)) * 0x1p-53; /* [0, 1) */
}

int32_t fo_train_sample_pick(const float *logits, int64_t count, double temperature, int64_t top_k,
                             uint64_t seed, uint64_t index, float *scratch)
{
    int32_t best = most_likely(logits, count), last = best;
    if (temperature <= 0)
        return best;
    keep_top(logits, count, top_k, scratch);
    double sum = 0, largest = logits[best];
    for (int64_t i = 0; i < count; i++)
        sum += exp(((double)scratch[i] - largest) / temperature);
    double left = random_part(seed, index) * sum;
    for (int64_t i = 0; i < count; i++) {
        double weight = exp(((double)scratch[i] - largest) / temperature);
        if (weight > 0) {
            last = (int32_t)i;
            if (left < weight)
                return last;
            left -= weight;
        }
    }
    return last;
}

/* ---- the job ---------------------------------------------------------------------------------------- */

typedef struct sampler {
    const fo_sample_options *options;
    FILE *out;
    char folder[FO_TRAIN_PATH];
    fo_train_state state;
    bool text;       /* tokens are bytes or characters; otherwise numbers are read and written */
    int32_t *prompt; /* malloc'ed */
    int64_t prompt_count;
    fo_train_fingerprint fingerprint;
} sampler;

static fo_status check_options(const fo_sample_options *o)
{
    if (!o->checkpoint)
        return fo_base_error(FO_INVALID,
                             "no checkpoint was given, expected a directory that training wrote");
    if (o->tokens < 0)
        return fo_base_error(FO_INVALID, "--tokens is %" PRId64 ", expected 0 or more", o->tokens);
    if (!(o->temperature >= 0 && o->temperature < INFINITY))
        return fo_base_error(FO_INVALID, "--temperature is %g, expected 0 or more", o->temperature);
    if (o->top_k < 0)
        return fo_base_error(FO_INVALID, "--top-k is %" PRId64 ", expected 0 (all) or more",
                             o->top_k);
    return FO_OK;
}

/* Numbers separated by blanks. */
static fo_status read_numbers(sampler *s, const char *text)
{
    s->prompt = malloc((strlen(text) / 2 + 2) * sizeof *s->prompt);
    if (!s->prompt)
        return fo_base_error(FO_NO_MEMORY, "no memory for the prompt");
    const char *at = text;
    for (;;) {
        char *end;
        errno = 0;
        long long value = strtoll(at, &end, 10);
        if (end == at)
            break;
        if (errno || value < 0 || value > INT32_MAX)
            return fo_base_error(FO_INVALID, "the prompt has token %.20s, expected 0 to %d", at,
                                 INT32_MAX);
        s->prompt[s->prompt_count++] = (int32_t)value;
        at = end;
    }
    if (at[strspn(at, " \t\n")])
        return fo_base_error(FO_INVALID,
                             "the prompt has '%.20s' at offset %td, expected token numbers: the "
                             "model was trained on a %s file",
                             at, at - text, fo_data_format_name(s->state.format));
    return FO_OK;
}

static fo_status read_prompt(sampler *s)
{
    const char *text = s->options->prompt;
    bool empty = !text || !*text;
    fo_status status;
    if (s->text) {
        status =
            fo_data_encode(s->state.characters, empty ? "\n" : text, &s->prompt, &s->prompt_count);
        if (status != FO_OK && empty) /* a text without line ends: its first character */
            status = read_numbers(s, "0");
    } else {
        status = read_numbers(s, !empty ? text : s->state.model.vocabulary > 50256 ? "50256" : "0");
    }
    for (int64_t i = 0; status == FO_OK && i < s->prompt_count; i++)
        if (s->prompt[i] >= s->state.model.vocabulary)
            return fo_base_error(FO_INVALID,
                                 "the prompt has token %d at place %" PRId64
                                 ", expected one below the model's vocabulary %" PRId64,
                                 s->prompt[i], i, s->state.model.vocabulary);
    return status;
}

static fo_status open_checkpoint(sampler *s)
{
    fo_status status =
        fo_checkpoint_directory_latest(s->options->checkpoint, s->folder, sizeof s->folder);
    if (status == FO_OK)
        status = fo_train_state_read(s->folder, &s->state);
    s->text = s->state.format == FO_DATA_BYTES || s->state.format == FO_DATA_CHAR;
    return status == FO_OK ? fo_model_config_check(&s->state.model) : status;
}

/* ---- one rank --------------------------------------------------------------------------------------- */

static fo_status write_token(const sampler *s, int32_t token, bool first)
{
    char bytes[8];
    bool written;
    if (s->text) {
        int decoded = fo_data_decode(s->state.characters, token, bytes);
        size_t count = decoded > 0 ? (size_t)decoded : 0;
        written = fwrite(bytes, 1, count, s->out) == count;
    } else {
        written = fprintf(s->out, "%s%" PRId32, first ? "" : " ", token) > 0;
    }
    if (!written || fflush(s->out) != 0)
        return fo_base_error(FO_IO, "the sample can't be written (%s)", strerror(errno));
    return FO_OK;
}

/* The last `context` tokens; the rest of the window is padding that nothing before it sees. */
typedef struct window {
    int32_t *tokens;
    int64_t used, size;
} window;

static void window_push(window *w, int32_t token)
{
    if (w->used == w->size)
        memmove(w->tokens, w->tokens + 1, (size_t)--w->used * sizeof *w->tokens);
    w->tokens[w->used++] = token;
}

static fo_status generate(const sampler *s, fo_group *group, fo_model *model, window *w,
                          float *logits)
{
    const fo_sample_options *o = s->options;
    int64_t vocabulary = s->state.model.vocabulary;
    fo_status status = FO_OK;
    for (int64_t i = 0; status == FO_OK && i < o->tokens; i++) {
        bool interrupted = false;
        status = fo_model_logits(model, w->tokens, w->used - 1, logits);
        if (status != FO_OK)
            return status;
        int32_t token = fo_train_sample_pick(logits, vocabulary, o->temperature, o->top_k, o->seed,
                                             (uint64_t)i, logits + vocabulary);
        window_push(w, token);
        if (fo_group_rank(group) == 0)
            status = write_token(s, token, i == 0);
        if (status == FO_OK)
            status = fo_train_agree_any(group, fo_group_interrupted(group), &interrupted);
        if (status == FO_OK && interrupted) {
            fo_base_error(FO_INTERRUPTED, "interrupted after %" PRId64 " of %" PRId64 " tokens",
                          i + 1, o->tokens);
            status = fo_train_together(group, FO_INTERRUPTED);
        }
    }
    return status;
}

static fo_status sample_rank(fo_group *group, void *arg)
{
    const sampler *s = arg;
    const fo_model_config *config = &s->state.model;
    fo_model *model = NULL;
    window w = {.size = config->context};
    char note[512];
    fo_status status = fo_train_enter(group, &s->fingerprint, note, sizeof note);
    if (status != FO_OK)
        return status;
    w.tokens = calloc((size_t)w.size, sizeof *w.tokens);
    float *logits = malloc(2 * (size_t)config->vocabulary * sizeof *logits);
    if (!w.tokens || !logits)
        status =
            fo_base_error(FO_NO_MEMORY, "no memory for %" PRId64 " logits", config->vocabulary);
    for (int64_t i = 0; status == FO_OK && i < s->prompt_count; i++)
        window_push(&w, s->prompt[i]);
    if (status == FO_OK)
        status = fo_model_create(group, config, 1, &model);
    if (status == FO_OK)
        status = fo_train_together(group, fo_train_load(group, config, model, s->folder, false));
    if (status == FO_OK)
        status = generate(s, group, model, &w, logits);
    if (model)
        fo_model_destroy(model);
    free(w.tokens);
    free(logits);
    return status;
}

static void take_fingerprint(sampler *s)
{
    const fo_sample_options *o = s->options;
    fo_train_fingerprint *f = &s->fingerprint;
    char path[FO_TRAIN_PATH + 32];
    fo_train_fingerprint_begin(f, "sample");
    fo_train_fingerprint_count(f, "--tokens", o->tokens);
    fo_train_fingerprint_real(f, "--temperature", o->temperature);
    fo_train_fingerprint_count(f, "--top-k", o->top_k);
    fo_train_fingerprint_add(f, FO_TRAIN_OPTION, "--seed", "%" PRIu64, o->seed);
    fo_train_fingerprint_word(f, "--prompt", o->prompt ? o->prompt : "a newline");
    fo_train_fingerprint_group(f, &o->group);
    snprintf(path, sizeof path, "%s/config.json", s->folder);
    fo_train_fingerprint_file(f, "config.json of --checkpoint", path);
    snprintf(path, sizeof path, "%s/model.safetensors", s->folder);
    fo_train_fingerprint_file(f, "model.safetensors of --checkpoint", path);
}

fo_status fo_sample_run(const fo_sample_options *options, FILE *out)
{
    sampler *s = calloc(1, sizeof *s);
    if (!s)
        return fo_base_error(FO_NO_MEMORY, "no memory for sampling");
    s->options = options;
    s->out = out;
    fo_status status = check_options(options);
    if (status == FO_OK)
        status = open_checkpoint(s);
    if (status == FO_OK)
        status = read_prompt(s);
    fflush(out);
    if (status == FO_OK) {
        take_fingerprint(s);
        status = fo_train_start(&options->group, sample_rank, s);
    } else {
        status = fo_train_refuse(&options->group, status);
    }
    fo_train_state_clear(&s->state);
    free(s->prompt);
    free(s);
    return status;
}
