/* What rank 0 tells people (aligned lines) and machines (one JSON object a line). */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "group/group.h"
#include "train/train.h"

enum { LONG_RUN_S = 10 /* time left is shown from here on */ };

/* ---- for people ------------------------------------------------------------------------------------ */

/* "12.3 M", "845 k", "512" */
static const char *count_text(double value, char *text, size_t size)
{
    if (value >= 1e9)
        snprintf(text, size, "%.2f G", value * 1e-9);
    else if (value >= 1e6)
        snprintf(text, size, "%.1f M", value * 1e-6);
    else if (value >= 1e4)
        snprintf(text, size, "%.0f k", value * 1e-3);
    else
        snprintf(text, size, "%.0f", value);
    return text;
}

/* "1h02m", "3m20s", "12s" */
static const char *time_text(double seconds, char *text, size_t size)
{
    int64_t s = (int64_t)(seconds + 0.5);
    if (s >= 3600)
        snprintf(text, size, "%" PRId64 "h%02" PRId64 "m", s / 3600, s / 60 % 60);
    else if (s >= 60)
        snprintf(text, size, "%" PRId64 "m%02" PRId64 "s", s / 60, s % 60);
    else
        snprintf(text, size, "%" PRId64 "s", s);
    return text;
}

static void head_link(FILE *out, const fo_train_worker *worker)
{
    fo_link link = fo_group_link(worker->group);
    if (link.bytes_per_s > 0)
        fprintf(out, "link   emulated: %.4g GB/s, %.1f us, %s\n", link.bytes_per_s * 1e-9,
                link.latency_s * 1e6, link.topology == FO_MESH ? "mesh" : "switch");
}

void fo_train_progress_head(const fo_train_worker *worker, double peak, const char *note)
{
    const fo_train_job *job = worker->job;
    const fo_train_options *o = &job->options;
    FILE *out = job->progress;
    char parameters[32], tokens[32], hint[256];
    if (!out)
        return;
    fprintf(out,
            "model  %" PRId64 " layers, %" PRId64 " heads, %" PRId64 " wide, context %" PRId64
            ", vocabulary %" PRId64 ": %s parameters\n",
            o->layers, o->heads, o->dim, o->context, o->vocabulary,
            count_text((double)fo_model_size(worker->model), parameters, sizeof parameters));
    fprintf(out, "data   %s (%s): %s tokens, the last tenth held out; %" PRId64 " tokens a step\n",
            o->data, fo_data_format_name(job->format),
            count_text((double)fo_data_count(job->data), tokens, sizeof tokens),
            o->batch * o->context * o->accumulate);
    fprintf(out,
            "ranks  %d x %d thread%s, %s, %s, %s, wire %s, overlap %s; measured GEMM peak %.1f "
            "GFLOP/s\n",
            fo_group_size(worker->group), fo_group_threads(worker->group),
            fo_group_threads(worker->group) == 1 ? "" : "s", fo_group_transport(worker->group),
            fo_group_kernel(worker->group), fo_dtype_name(o->dtype), fo_dtype_name(o->wire),
            o->plan      ? "as planned"
            : o->overlap ? o->overlap
                         : "flash",
            peak * 1e-9);
    fprintf(out,
            "split  %d tensor-parallel x %d data-parallel; %.1f MB of optimizer state a rank\n",
            worker->config.tp, worker->config.dp,
            (double)fo_model_optimizer_bytes(worker->model) * 1e-6);
    head_link(out, worker);
    if (job->done)
        fprintf(out, "resume %s: step %" PRId64 " is done\n", job->resume, job->done);
    fo_group_hint(worker->group, hint, sizeof hint);
    if (hint[0])
        fo_train_progress_note(job, "hint", hint);
    if (note[0])
        fo_train_progress_note(job, "note", note);
    fprintf(out, "\n");
    fflush(out);
}

static int digits(int64_t value)
{
    int n = 1;
    while (value >= 10) {
        value /= 10;
        n++;
    }
    return n;
}

void fo_train_progress_step(const fo_train_job *job, const fo_train_values *v,
                            const fo_train_figures *figures, double left_s)
{
    FILE *out = job->progress;
    char left[32];
    if (!out)
        return;
    fprintf(out,
            "step %*" PRId64 "/%" PRId64 "  loss %7.4f  lr %.1e  norm %6.3f  %7.1f ms  %7.0f tok/s",
            digits(job->options.steps), v->step, job->options.steps, v->loss, v->lr, v->grad_norm,
            v->step_ms, figures->tokens_per_s);
    if (!isnan(figures->mfu))
        fprintf(out, "  MFU %4.1f %%", figures->mfu * 100);
    fprintf(out, "  exposed %6.2f ms", v->exposed_ms);
    if (left_s >= LONG_RUN_S)
        fprintf(out, "  left %s", time_text(left_s, left, sizeof left));
    fprintf(out, "\n");
    fflush(out);
}

void fo_train_progress_evaluation(const fo_train_job *job, int64_t step, double val_loss)
{
    FILE *out = job->progress;
    if (!out)
        return;
    fprintf(out, "%sstep %*" PRId64 "/%" PRId64 "  validation loss %7.4f%s\n",
            job->options.color ? "\033[1m" : "", digits(job->options.steps), step,
            job->options.steps, val_loss, job->options.color ? "\033[0m" : "");
    fflush(out);
}

void fo_train_progress_note(const fo_train_job *job, const char *word, const char *text)
{
    if (!job->progress)
        return;
    fprintf(job->progress, "%-6s %s\n", word, text);
    fflush(job->progress);
}

void fo_train_progress_saved(const fo_train_job *job, int64_t step)
{
    if (!job->progress)
        return;
    fprintf(job->progress, "step %*" PRId64 "/%" PRId64 "  saved to %s/step-%08" PRId64 "\n",
            digits(job->options.steps), step, job->options.steps, job->options.out, step);
    fflush(job->progress);
}

/* ---- for machines ---------------------------------------------------------------------------------- */

static fo_status log_line(const fo_train_job *job, const char *line)
{
    if (fputs(line, job->log) != EOF && fflush(job->log) == 0)
        return FO_OK;
    return fo_base_error(FO_IO,
                         "the log %s can't be written (%s); free some space or use another --log",
                         job->options.log, strerror(errno));
}

fo_status fo_train_log_step(const fo_train_job *job, const fo_train_values *v,
                            const fo_train_figures *figures)
{
    char line[512], mfu[32] = "null";
    if (!job->log)
        return FO_OK;
    if (!isnan(figures->mfu))
        snprintf(mfu, sizeof mfu, "%.6f", figures->mfu);
    snprintf(line, sizeof line,
             "{\"step\": %" PRId64
             ", \"loss\": %.9g, \"grad_norm\": %.9g, \"lr\": %.9g, \"step_ms\": %.3f, "
             "\"tokens_per_s\": %.1f, \"mfu\": %s, \"exposed_ms\": %.3f}\n",
             v->step, v->loss, v->grad_norm, v->lr, v->step_ms, figures->tokens_per_s, mfu,
             v->exposed_ms);
    return log_line(job, line);
}

fo_status fo_train_log_evaluation(const fo_train_job *job, int64_t step, double val_loss)
{
    char line[128];
    if (!job->log)
        return FO_OK;
    snprintf(line, sizeof line, "{\"step\": %" PRId64 ", \"val_loss\": %.9g}\n", step, val_loss);
    return log_line(job, line);
}
