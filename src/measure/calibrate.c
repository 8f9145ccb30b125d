/* Calibrating: options, the run, the profile's file. */
#include "measure/calibrate.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/error.h"
#include "flashoverlap/job.h"
#include "flashoverlap/trace.h"
#include "group/group.h"
#include "op/wisdom.h"
#include "sim/profile.h"
#include "trace/out.h"
#include "transport/machine.h"
#include "transport/transport.h"

void fo_calibrate_defaults(fo_calibrate_options *options)
{
    *options = (fo_calibrate_options){.quick = false};
    fo_job job;
    fo_job_get(&job);
    options->group.ranks = job.launched ? job.size : fo_transport_machine_cores() < 2 ? 1 : 2;
    options->group.transport = fo_group_choose(&options->group);
}

static fo_status check_options(const fo_calibrate_options *o)
{
    const fo_group_options *group = &o->group;
    if (group->ranks < 1 || group->ranks > 4096)
        return fo_base_error(FO_INVALID, "calibrate: %d ranks, expected 1 to 4096", group->ranks);
    if (group->link.bytes_per_s > 0)
        return fo_base_error(FO_INVALID, "calibrate: an emulated link was given, expected none: "
                                         "the transport itself is measured");
    return o->path && fo_job_first() ? fo_trace_check_path(o->path) : FO_OK;
}

/* Threads of a rank when all ranks work, as fo_group_run chooses them. */
static int threads_of(const fo_group_options *group)
{
    int threads = group->threads ? group->threads : fo_transport_machine_cores() / group->ranks;
    return threads < 1 ? 1 : threads;
}

static fo_status measure(fo_measure_calibration *c)
{
    fo_group_options group = c->options->group;
    const fo_kernel *kernel = fo_kernel_find(group.kernel);
    const fo_transport *transport = fo_transport_find(group.transport);
    fo_train_fingerprint_begin(&c->fingerprint, "calibrate");
    fo_train_fingerprint_word(&c->fingerprint, "--quick", c->options->quick ? "given" : NULL);
    fo_train_fingerprint_group(&c->fingerprint, &group);
    /* the ranks of a job find out how many threads they have; an unknown name is the group's to refuse */
    if (kernel && transport && !(transport->ops->caps & FO_TRANSPORT_JOINS))
        fo_measure_calibrate_cases(c, kernel, threads_of(&group));
    c->begin_ns = fo_base_clock_ns();
    fo_status status = fo_train_start(&group, fo_measure_calibrate_rank, c);
    if (status == FO_OK && c->interrupted)
        status = fo_base_error(FO_INTERRUPTED, "interrupted after %.0f s: nothing was written",
                               (double)(fo_base_clock_ns() - c->begin_ns) * 1e-9);
    return status;
}

/* The profile as text; the caller frees it. */
static char *profile_text(const fo_measure_calibration *c)
{
    char *text = NULL;
    size_t size;
    FILE *memory = open_memstream(&text, &size);
    if (!memory)
        return NULL;
    fo_measure_calibrate_json(c, memory);
    if (fclose(memory) == 0)
        return text;
    free(text);
    return NULL;
}

static fo_status write_file(const char *path, const char *text)
{
    fo_trace_out *file;
    fo_status status = fo_trace_out_open(path, &file);
    if (status != FO_OK)
        return status;
    fo_trace_put(file, text);
    return fo_trace_out_commit(file);
}

static fo_status write_results(const fo_measure_calibration *c, FILE *out)
{
    if (!fo_job_first())
        return FO_OK;
    char *text = profile_text(c);
    if (!text)
        return fo_base_error(FO_NO_MEMORY, "calibrate: no memory for the profile");
    fo_status status = c->options->path ? write_file(c->options->path, text) : FO_OK;
    if (c->options->json)
        fputs(text, out);
    else
        fo_measure_calibrate_table(c, out);
    free(text);
    if (fflush(out) || ferror(out))
        return fo_base_error(FO_IO, "calibrate: the output can't be written (%s)", strerror(errno));
    return status;
}

/* ---- profiles --------------------------------------------------------------------------------------- */

fo_status fo_profile_use(const char *path)
{
    fo_sim_machine machine;
    fo_status status = fo_sim_profile_read(path, &machine);
    if (status != FO_OK)
        return status;
    fo_sim_machine_free(&machine);
    if (setenv("FLASHOVERLAP_PROFILE", path, 1) != 0)
        return fo_base_error(FO_NO_MEMORY, "no memory for the name of a profile");
    return FO_OK;
}

int fo_profile_forget(void)
{
    return fo_op_wisdom_forget();
}

/* Where this machine's profile is looked for; "": nowhere. */
static void find_place(const fo_group_options *group, char path[FO_OP_WISDOM_PATH])
{
    char machine[256];
    const fo_kernel *kernel = fo_kernel_find(group->kernel);
    path[0] = '\0';
    if (!kernel)
        return;
    fo_op_wisdom_machine(kernel->name, kernel->isa(), threads_of(group), group->transport, machine,
                         sizeof machine);
    fo_op_wisdom_profile_path(machine, path);
    if (path[0])
        fo_op_wisdom_make_folders(path);
}

fo_status fo_calibrate_run(const fo_calibrate_options *options, FILE *out)
{
    fo_calibrate_options own = *options;
    char place[FO_OP_WISDOM_PATH];
    own.group.transport = fo_group_choose(&own.group);
    if (!own.path && own.group.ranks >= 1 && fo_job_first()) {
        find_place(&own.group, place);
        own.path = place[0] ? place : NULL;
    }
    fo_status status = check_options(&own);
    if (status != FO_OK)
        return fo_train_refuse(&own.group, status);
    fo_measure_calibration *c =
        mmap(NULL, sizeof *c, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (c == MAP_FAILED)
        return fo_base_error(FO_NO_MEMORY, "calibrate: no shared memory for %zu bytes of results",
                             sizeof *c);
    c->options = &own;
    status = measure(c);
    if (status == FO_OK)
        status = write_results(c, out);
    munmap(c, sizeof *c);
    return status;
}
