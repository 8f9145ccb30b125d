/* Groups: starting ranks, and the small collectives they need apart from plans. */
#include "group/state.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "flashoverlap/job.h"

enum { TAG_ALLGATHER = 0, TAG_BARRIER = 1 }; /* from FO_GROUP_FIRST_OWN_TAG */

/* What fo_group_run tells every rank. */
typedef struct group_start {
    const fo_group_options *options;
    const fo_kernel *kernel;
    int threads;
    fo_rank_main rank_main;
    void *arg;
} group_start;

/* ---- starting ---- */

const char *fo_group_choose(const fo_group_options *options)
{
    fo_job job;
    fo_job_get(&job);
    return options->transport ? options->transport : job.launched ? "mpi" : "shm";
}

static fo_status unknown_transport(const char *name)
{
    char known[256] = "";
    if (!strcmp(name, "mpi"))
        return fo_base_error(FO_UNSUPPORTED,
                             "no MPI was found when flashoverlap was built, expected one for ranks "
                             "that a launcher starts; install libopenmpi-dev or libmpich-dev and "
                             "build again, or start it without a launcher");
    for (int i = 0; fo_transport_at(i); i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                 fo_transport_at(i)->ops->name);
    }
    return fo_base_error(FO_INVALID, "unknown transport \"%s\", built in are: %s", name, known);
}

static fo_status unknown_kernel(const char *name)
{
    char known[256] = "";
    for (int i = 0; fo_kernel_at(i); i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", fo_kernel_at(i)->name);
    }
    return fo_base_error(FO_INVALID, "unknown kernel backend \"%s\", built in are: %s",
                         name ? name : "(default)", *known ? known : "none");
}

static fo_status run_rank(fo_endpoint *endpoint, void *arg)
{
    const group_start *start = arg;
    fo_group group = {
        .inner = endpoint,
        .kernel = start->kernel,
        .link = start->options->link,
        .device = start->options->device,
        .tag_end = FO_GROUP_ROOT_TAGS,
        .root = &group,
    };
    group.requests = calloc(2 * (size_t)endpoint->size, sizeof *group.requests);
    if (!group.requests)
        return fo_base_error(FO_NO_MEMORY, "no memory for a group of %d ranks", endpoint->size);
    fo_status status = fo_transport_hook_link(endpoint, &start->options->link, &group.outer);
    if (status == FO_OK)
        status = fo_group_place(&group, start->options->nodes);
    if (status == FO_OK)
        status = fo_group_share(&group, start->threads);
    if (status == FO_OK) {
        fo_kernel_set_threads(group.threads);
        fo_kernel_set_device(&start->options->device);
        status = start->rank_main(&group, start->arg);
        if (group.recorder)
            free(group.recorder->events);
        free(group.recorder);
    }
    fo_transport_hook_destroy(group.outer);
    free(group.requests);
    return status;
}

/* Whether what a launcher started and what was asked for fit together. */
static fo_status check_job(const fo_group_options *options, const fo_transport *transport)
{
    fo_job job;
    fo_job_get(&job);
    bool joins = transport->ops->caps & FO_TRANSPORT_JOINS;
    int ranks = options->ranks;
    const char *set =
        getenv("FLASHOVERLAP_MPI_SUBSET"); /* for tests: smaller groups than the job */
    bool subset = set && !strcmp(set, "1");
    if (joins && !job.launched && ranks > 1)
        return fo_base_error(FO_INVALID,
                             "transport %s joins the processes of a launcher, and there is none; "
                             "start %d of them: mpirun -n %d flashoverlap ...",
                             transport->ops->name, ranks, ranks);
    if (joins && job.launched && ranks != job.size && !(ranks < job.size && subset))
        return fo_base_error(
            FO_INVALID,
            "--ranks is %d, but %s started %d process%s; leave --ranks out or start "
            "%d",
            ranks, job.launcher, job.size, job.size == 1 ? "" : "es", ranks);
    if (!joins && job.size > 1)
        return fo_base_error(
            FO_INVALID,
            "transport %s in a job of %d processes: every one of them would start a "
            "group of its own; leave --transport out, or start the program "
            "without %s",
            transport->ops->name, job.size, job.launcher);
    return FO_OK;
}

static fo_status check_options(const fo_group_options *options, const fo_transport *transport,
                               const char *name, const fo_kernel *kernel)
{
    if (options->ranks < 1)
        return fo_base_error(FO_INVALID, "a group of %d ranks, expected 1 or more", options->ranks);
    if (options->threads < 0)
        return fo_base_error(FO_INVALID, "%d threads a rank, expected 1 or more, or 0 to choose",
                             options->threads);
    if (!(options->deadline_s >= 0 && options->deadline_s <= 1e9))
        return fo_base_error(FO_INVALID, "a deadline of %g s, expected 0 (60 s) to 1e9",
                             options->deadline_s);
    if (!transport)
        return unknown_transport(name);
    if (!kernel)
        return unknown_kernel(options->kernel);
    return check_job(options, transport);
}

fo_status fo_group_run(const fo_group_options *options, fo_rank_main rank_main, void *arg)
{
    static atomic_flag running = ATOMIC_FLAG_INIT;
    const char *name = fo_group_choose(options);
    const fo_transport *transport = fo_transport_find(name);
    bool emulated = options->device.flops_per_s > 0;
    const fo_kernel *kernel = fo_kernel_find(options->kernel ? options->kernel
                                             : emulated      ? "emulated"
                                                             : NULL);
    fo_status status = check_options(options, transport, name, kernel);
    if (status != FO_OK)
        return status;
    group_start start = {
        .options = options,
        .kernel = kernel,
        .threads = options->threads,
        .rank_main = rank_main,
        .arg = arg,
    };
    fo_transport_options launch = {
        .ranks = options->ranks,
        .deadline_s = options->deadline_s,
        .memory = options->memory,
    };
    if (atomic_flag_test_and_set(&running))
        return fo_base_error(FO_INVALID, "fo_group_run was called while a group is running");
    status = transport->launch(&launch, run_rank, &start);
    atomic_flag_clear(&running);
    return status;
}

/* ---- questions ---- */

int fo_group_rank(const fo_group *group)
{
    return group->inner->rank;
}

int fo_group_size(const fo_group *group)
{
    return group->inner->size;
}

int fo_group_threads(const fo_group *group)
{
    return group->threads;
}

const char *fo_group_transport(const fo_group *group)
{
    return group->inner->ops->name;
}

const char *fo_group_kernel(const fo_group *group)
{
    return group->kernel->name;
}

fo_link fo_group_link(const fo_group *group)
{
    return group->root->link;
}

bool fo_group_joined(const fo_group *group)
{
    return group->root->inner->ops->caps & FO_TRANSPORT_JOINS;
}

bool fo_group_interrupted(const fo_group *group)
{
    return group->inner->ops->interrupted(group->inner);
}

fo_endpoint *fo_group_inner(fo_group *group)
{
    return group->inner;
}

fo_recorder **fo_group_recorder(fo_group *group)
{
    return &group->root->recorder;
}

fo_endpoint *fo_group_endpoint(fo_group *group)
{
    return group->outer;
}

const fo_kernel *fo_group_kernel_ops(const fo_group *group)
{
    return group->kernel;
}

uint32_t fo_group_next_tag(fo_group *group, uint32_t count)
{
    if (group->next_tag >= group->tag_end - count)
        group->next_tag = 0; /* the plans of a million tags ago are gone */
    uint32_t tag = group->next_tag;
    group->next_tag += count;
    return tag;
}

void *fo_group_alloc(fo_group *group, size_t bytes)
{
    return group->outer->ops->alloc(group->outer, bytes);
}

void fo_group_free(fo_group *group, void *memory)
{
    group->outer->ops->free(group->outer, memory);
}

/* ---- collectives ---- */

/* A collective that one rank has given up is over for all of them: its requests are abandoned. */
static fo_status give_up(fo_group *group, fo_status status)
{
    if (status != FO_OK && status != FO_PEER)
        group->inner->ops->fail(group->inner, group->inner->rank, fo_last_error());
    return status;
}

static fo_status exchange(fo_group *group, const void *mine, size_t bytes, char *all)
{
    fo_endpoint *inner = group->inner;
    int size = inner->size;
    uint32_t tag = FO_GROUP_FIRST_OWN_TAG + TAG_ALLGATHER;
    fo_status status = FO_OK;
    for (int step = 1; step < size && status == FO_OK; step++) {
        int peer = (inner->rank + size - step) % size;
        status = inner->ops->irecv(inner, &group->requests[step], peer, tag,
                                   all + (size_t)peer * bytes, bytes);
    }
    for (int step = 1; step < size && status == FO_OK; step++)
        status = inner->ops->isend(inner, &group->requests[size + step],
                                   (inner->rank + step) % size, tag, mine, bytes, 0);
    for (int i = 1; i < 2 * size && status == FO_OK; i++)
        if (i != size)
            status = fo_transport_wait_request(inner, &group->requests[i], "allgather");
    return status;
}

fo_status fo_group_allgather(fo_group *group, const void *mine, size_t bytes, void *all)
{
    char *own = (char *)all + (size_t)group->inner->rank * bytes;
    fo_status status = group->inner->ops->progress(group->inner);
    if (bytes && own != mine)
        memcpy(own, mine, bytes);
    if (status == FO_OK)
        status = exchange(group, own, bytes, all);
    return give_up(group, status);
}

/* Dissemination: after step s every rank has heard of the 2^(s+1) ranks before it. */
fo_status fo_group_barrier(fo_group *group)
{
    fo_endpoint *inner = group->inner;
    int size = inner->size;
    fo_request *send = &group->requests[0], *receive = &group->requests[1];
    fo_status status = inner->ops->progress(inner);
    uint32_t tag = FO_GROUP_FIRST_OWN_TAG + TAG_BARRIER;
    for (int distance = 1; distance < size && status == FO_OK; distance *= 2, tag++) {
        status =
            inner->ops->irecv(inner, receive, (inner->rank + size - distance) % size, tag, NULL, 0);
        if (status == FO_OK)
            status =
                inner->ops->isend(inner, send, (inner->rank + distance) % size, tag, NULL, 0, 0);
        if (status == FO_OK)
            status = fo_transport_wait_request(inner, receive, "barrier");
        if (status == FO_OK)
            status = fo_transport_wait_request(inner, send, "barrier");
    }
    return give_up(group, status);
}

fo_status fo_group_set_link(fo_group *group, const fo_link *link)
{
    if (group->root != group)
        return fo_base_error(FO_INVALID,
                             "the link of a group of a group was set, expected the whole "
                             "group's");
    fo_status status = group->outer->ops->set_link(group->outer, link);
    if (status != FO_OK)
        return status;
    group->link = *link;
    return fo_group_barrier(
        group); /* nobody sends by the new link to one that knows only the old */
}

fo_device fo_group_device(const fo_group *group)
{
    return group->device;
}
