/* The benchmark: options, the points of the sweep one after the other, what is printed and written. */
#include "flashoverlap/bench.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"
#include "flashoverlap/calibrate.h"
#include "flashoverlap/job.h"
#include "measure/result.h"
#include "transport/machine.h"

void fo_bench_defaults(fo_bench_options *options)
{
    *options = (fo_bench_options){.batch = 8,
                                  .context = 512,
                                  .dim = 1024,
                                  .heads = 16,
                                  .layers = 2,
                                  .vocabulary = 256,
                                  .dtype = FO_F32,
                                  .wire = FO_F32,
                                  .overlap = "none,slice:8,ring,flash",
                                  .repeat = 20};
    fo_job job;
    fo_job_get(&job);
    options->group.ranks = job.launched ? job.size : 2;
}

bool fo_measure_bench_emulates(const fo_measure_bench *bench)
{
    return bench->options->emulate || bench->options->group.device.flops_per_s > 0;
}

/* ---- options ----------------------------------------------------------------------------------------- */

static fo_status check_numbers(const fo_bench_options *o)
{
    if (o->repeat < 1 || o->repeat > 100000)
        return fo_base_error(FO_INVALID, "--repeat is %d, expected 1 to 100000", o->repeat);
    if (o->group.ranks < 1 || o->group.ranks > 4096)
        return fo_base_error(FO_INVALID, "--ranks is %d, expected 1 to 4096", o->group.ranks);
    if (!(o->link_ratio >= 0 && isfinite(o->link_ratio)))
        return fo_base_error(FO_INVALID, "link ratio %g, expected more than 0", o->link_ratio);
    if (!(o->transfer_s >= 0 && isfinite(o->transfer_s)))
        return fo_base_error(FO_INVALID, "--transfer is %g s, expected more than 0", o->transfer_s);
    if (o->transfer_s > 0 && (o->link_ratio > 0 || o->group.link.bytes_per_s > 0))
        return fo_base_error(FO_INVALID,
                             "--transfer and the speed of --link both say how fast the link "
                             "is, expected one of them");
    return FO_OK;
}

static fo_status check_words(const fo_measure_bench *b)
{
    const fo_bench_options *o = b->options;
    if (o->backward && !b->family->has_backward)
        return fo_base_error(FO_INVALID,
                             "--backward is part of %s already, expected it with row, "
                             "column, mlp or attention",
                             b->family->name);
    if (o->rows && b->family->has_sequences)
        return fo_base_error(FO_INVALID,
                             "--rows doesn't say how long the sequences of %s are, expected "
                             "--batch and --context",
                             b->family->name);
    if (o->rows && o->sweep)
        return fo_base_error(FO_INVALID,
                             "--rows and --sweep both say how many rows there are, expected "
                             "one of them");
    if (o->order && strcmp(o->order, "straight") != 0 && strcmp(o->order, "balanced") != 0)
        return fo_base_error(FO_INVALID, "--order is '%s', expected straight or balanced",
                             o->order);
    return FO_OK;
}

/* Kernels that compute never answer for a device, and the emulated one never without. */
static fo_status check_kernel(const fo_measure_bench *b)
{
    const char *kernel = b->options->group.kernel;
    bool emulates = fo_measure_bench_emulates(b);
    if (!kernel || emulates == !strcmp(kernel, "emulated"))
        return FO_OK;
    return fo_base_error(FO_INVALID,
                         emulates ? "--kernel %s computes, expected no --kernel beside --emulate"
                                  : "--kernel %s needs a device, expected one: --emulate 271TF",
                         kernel);
}

static fo_status read_points(fo_measure_bench *b)
{
    const fo_bench_options *o = b->options;
    if (o->sweep)
        return fo_measure_spelling_sweep(o->sweep, b->points, &b->point_count);
    b->point_count = 1;
    b->points[0] = o->rows ? (fo_measure_point){.rows = o->rows}
                           : (fo_measure_point){.batch = o->batch,
                                                .context = o->context,
                                                .rows = o->batch * o->context};
    return FO_OK;
}

static fo_status read_options(fo_measure_bench *b)
{
    const fo_bench_options *o = b->options;
    b->family = fo_measure_family_find(o->subject);
    if (!b->family)
        return fo_base_error(FO_INVALID,
                             "'%s' is unknown, expected row, column, mlp, attention, layer "
                             "or step",
                             o->subject ? o->subject : "");
    fo_status status = check_numbers(o);
    if (status == FO_OK)
        status = check_words(b);
    if (status == FO_OK)
        status = check_kernel(b);
    if (status == FO_OK)
        status = fo_measure_spelling_strategies(o->overlap, b->family, o->backward, b->strategies,
                                                &b->strategy_count);
    if (status == FO_OK)
        status = read_points(b);
    b->device = o->group.device;
    if (status == FO_OK && o->emulate)
        status = fo_device_parse(o->emulate, &b->device, &b->whole_s);
    return status == FO_OK && fo_job_first() ? fo_measure_report_check(o) : status;
}

static void take_fingerprint(fo_measure_bench *b)
{
    const fo_bench_options *o = b->options;
    fo_train_fingerprint *f = &b->fingerprint;
    const struct {
        const char *name;
        int64_t value;
    } counts[] = {
        {"--rows", o->rows},       {"--batch", o->batch},
        {"--context", o->context}, {"--dim", o->dim},
        {"--ffn", o->ffn},         {"--heads", o->heads},
        {"--layers", o->layers},   {"--vocabulary", o->vocabulary},
        {"--repeat", o->repeat},
    };
    fo_train_fingerprint_begin(f, "bench");
    fo_train_fingerprint_word(f, "what is measured", b->family->name);
    fo_train_fingerprint_word(f, "--backward", o->backward ? "given" : NULL);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        fo_train_fingerprint_count(f, counts[i].name, counts[i].value);
    fo_train_fingerprint_word(f, "--sweep", o->sweep);
    fo_train_fingerprint_word(f, "--dtype", fo_dtype_name(o->dtype));
    fo_train_fingerprint_word(f, "--wire", fo_dtype_name(o->wire));
    fo_train_fingerprint_word(f, "--overlap", o->overlap);
    fo_train_fingerprint_word(f, "--order", o->order);
    fo_train_fingerprint_real(f, "--link auto", o->link_ratio);
    fo_train_fingerprint_real(f, "--transfer", o->transfer_s);
    fo_train_fingerprint_word(f, "--emulate", o->emulate);
    fo_train_fingerprint_word(f, "--trace", o->trace ? "given" : NULL);
    fo_train_fingerprint_word(f, "--report", o->report ? "given" : NULL);
    fo_train_fingerprint_group(f, &o->group);
}

/* ---- memory ------------------------------------------------------------------------------------------ */

static fo_status make_results(fo_measure_bench *b)
{
    size_t bytes = (size_t)b->point_count * sizeof *b->results;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return fo_base_error(FO_NO_MEMORY, "no shared memory of %zu bytes for the results (%s)",
                             bytes, strerror(errno));
    b->results = memory;
    for (int i = 0; i < b->point_count; i++) {
        fo_measure_result *r = &b->results[i];
        r->point = b->points[i];
        r->compute_ms = r->predicted_compute_ms = r->bound_ms = NAN;
        if (b->point_count > 1)
            snprintf(r->label, sizeof r->label, "%lld x %lld", (long long)r->point.batch,
                     (long long)r->point.context);
        for (int s = 0; s < b->strategy_count; s++)
            r->rows[s] = (fo_measure_row){.t_ms = NAN,
                                          .low_ms = NAN,
                                          .high_ms = NAN,
                                          .ect_ms = NAN,
                                          .hidden_pct = NAN,
                                          .exposed_ms = NAN,
                                          .gap_pct = NAN,
                                          .faster_pct = NAN,
                                          .predicted_ms = NAN,
                                          .error_pct = NAN,
                                          .predicted_exposed_ms = NAN,
                                          .bits = -1};
    }
    return FO_OK;
}

/* Main memory; what the group may use of it when that was limited. Emulated matrices are never touched. */
fo_status fo_measure_bench_memory(const fo_measure_bench *b, int point, int ranks)
{
    fo_measure_sizes size, *sizes = &size;
    b->family->sizes(b->options, &b->points[point], sizes);
    double each = sizes->memory + b->strategy_count * sizes->memory_each;
    double needed = each * ranks, available = (double)fo_transport_machine_memory();
    double limit = (double)b->options->group.memory * ranks;
    if (fo_measure_bench_emulates(b))
        return FO_OK;
    if (limit > 0 && limit < available)
        available = limit;
    if (needed <= available)
        return FO_OK;
    return fo_base_error(FO_NO_MEMORY,
                         "about %.1f GB are needed (%d ranks with %.1f GB each), %.1f GB are "
                         "available; choose fewer rows, smaller sizes or fewer strategies",
                         needed * 1e-9, ranks, each * 1e-9, available * 1e-9);
}

/* ---- points ------------------------------------------------------------------------------------------ */

/* Whether the processes of a job are the ranks: when it fails, it is over. */
static bool job_of_many(void)
{
    fo_job job;
    fo_job_get(&job);
    return job.size > 1;
}

/* What can be known before a group is started. */
static fo_status check_point(fo_measure_bench *b, int point)
{
    fo_measure_sizes sizes;
    fo_status status = b->family->check(b->options, &b->points[point]);
    if (status != FO_OK)
        return status;
    b->family->sizes(b->options, &b->points[point], &sizes);
    b->work[point] = sizes.flops;
    if (job_of_many()) /* how many are on this host, ranks find out */
        return FO_OK;
    return fo_measure_bench_memory(b, point, b->options->group.ranks);
}

static fo_status run_point(fo_measure_bench *b, int point)
{
    fo_measure_result *result = &b->results[point];
    fo_status status = FO_OK;
    if (b->interrupted && !result->note[0]) {
        result->interrupted = true;
        snprintf(result->note, sizeof result->note, "interrupted before it was measured");
    }
    if (b->ended && !result->note[0])
        snprintf(result->note, sizeof result->note, "the job had failed before it was measured");
    if (!result->note[0])
        status = fo_measure_runner_point(b, point);
    b->ended |= result->failed && job_of_many();
    b->interrupted |= status == FO_INTERRUPTED;
    if (status == FO_INTERRUPTED && !result->measured && !result->note[0])
        snprintf(result->note, sizeof result->note, "interrupted before it was measured");
    if (status != FO_OK && status != FO_INTERRUPTED)
        return status;
    fo_measure_print_point(b, point);
    return FO_OK;
}

static fo_status run_points(fo_measure_bench *b)
{
    fo_status status = FO_OK;
    for (int i = 0; i < b->point_count; i++)
        if (check_point(b, i) != FO_OK)
            snprintf(b->results[i].note, sizeof b->results[i].note, "%s", fo_last_error());
    for (int i = 0; status == FO_OK && i < b->point_count; i++)
        status = run_point(b, i);
    if (status == FO_OK)
        fo_measure_print_end(b);
    return status;
}

static void summarise(const fo_measure_bench *b, fo_bench_result *result)
{
    *result = (fo_bench_result){.points = b->point_count};
    for (int i = 0; i < b->point_count; i++) {
        const fo_measure_result *r = &b->results[i];
        const char *note = r->note;
        for (int s = 0; !*note && s < b->strategy_count; s++)
            note = r->rows[s].note;
        result->measured += r->measured > 0;
        if (!r->measured && !result->note[0])
            snprintf(result->note, sizeof result->note, "%s", note);
    }
}

/* What cannot be measured is a row with a note; what should have been and was not is a failure. */
static fo_status first_failure(const fo_measure_bench *b)
{
    int count = 0;
    const char *note = NULL;
    for (int i = 0; i < b->point_count; i++)
        if (b->results[i].failed) {
            note = note ? note : b->results[i].note;
            count++;
        }
    if (!note)
        return FO_OK;
    char text[480];
    snprintf(text, sizeof text, "%s", note);
    return fo_base_error(FO_PEER, "%d of %d points failed: %s", count, b->point_count, text);
}

static fo_status run(fo_measure_bench *b, fo_bench_result *result)
{
    fo_status status = run_points(b);
    if (status == FO_OK && ferror(b->out))
        status = fo_base_error(FO_IO, "the table can't be written");
    if (status == FO_OK)
        status = fo_measure_report_write(b);
    if (status == FO_OK && result)
        summarise(b, result);
    if (status == FO_OK && b->interrupted)
        status = fo_base_error(FO_INTERRUPTED, "interrupted; the table holds what was measured");
    return status == FO_OK ? first_failure(b) : status;
}

fo_status fo_bench_run(const fo_bench_options *options, FILE *out, fo_bench_result *result)
{
    if (result)
        *result = (fo_bench_result){0};
    fo_measure_bench *b = calloc(1, sizeof *b);
    if (!b)
        return fo_base_error(FO_NO_MEMORY, "no memory for a benchmark");
    b->options = options;
    b->out = out;
    fo_status status = read_options(b);
    if (status == FO_OK)
        status = make_results(b);
    if (status == FO_OK) {
        take_fingerprint(b);
        status = run(b, result);
    } else {
        status = fo_train_refuse(&options->group, status);
    }
    if (b->results)
        munmap(b->results, (size_t)b->point_count * sizeof *b->results);
    free(b);
    return status;
}
