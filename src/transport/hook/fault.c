/* Faults for tests: sends that never arrive, arrive late, or are the last thing a rank does. */
#include <signal.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "transport/hook/hook.h"

/* request->hook[] of a send: what became of it, when it may leave, the next one held, its word */
enum { SENT, DROPPED, HELD };

typedef struct fault_hook {
    fo_hook hook; /* first */
    fo_fault fault;
    int64_t sends;
    int64_t last_release_ns;
    fo_request *held, *held_last; /* in order: one that is late holds up those behind it */
} fault_hook;

static fault_hook *fault_of(fo_endpoint *endpoint)
{
    return (fault_hook *)endpoint;
}

static fo_request *next_of(const fo_request *request)
{
    return (fo_request *)(uintptr_t)request->hook[2];
}

static int64_t delay_of(const fault_hook *fault)
{
    float uniform = fo_base_random_uniform(fault->fault.seed, (uint64_t)fault->hook.base.rank,
                                           (uint64_t)fault->sends);
    return (int64_t)((0.5 + (double)uniform) * (double)fault->fault.delay_ns);
}

/* Sends what has been held long enough. */
static fo_status send_held(fault_hook *fault)
{
    fo_endpoint *inner = fault->hook.inner;
    fo_request *request;
    while ((request = fault->held) && (int64_t)request->hook[1] <= fo_base_clock_ns()) {
        fault->held = next_of(request);
        request->hook[0] = SENT;
        fo_status status = inner->ops->isend(inner, request, request->peer, request->tag,
                                             request->data, request->bytes, request->hook[3]);
        if (status != FO_OK)
            return status;
    }
    return FO_OK;
}

static fo_status die(fault_hook *fault)
{
    if (fault->hook.inner->ops->caps & FO_TRANSPORT_PROCESS)
        raise(SIGKILL);
    return fo_base_error(FO_INTERNAL, "made to fail at its send number %lld by fault injection",
                         (long long)fault->sends);
}

static fo_status fault_progress(fo_endpoint *endpoint)
{
    fault_hook *fault = fault_of(endpoint);
    fo_status status = fault->hook.inner->ops->progress(fault->hook.inner);
    return status == FO_OK ? send_held(fault) : status;
}

static fo_status fault_isend(fo_endpoint *endpoint, fo_request *request, int peer, uint32_t tag,
                             const void *data, size_t bytes, uint64_t imm)
{
    fault_hook *fault = fault_of(endpoint);
    fault->sends++;
    if (fault->fault.fail_at > 0 && fault->sends == fault->fault.fail_at)
        return die(fault);
    request->kind = FO_REQUEST_SEND;
    request->peer = peer;
    request->tag = tag;
    request->bytes = bytes;
    request->data = data;
    if (fault->fault.drop_every > 0 && fault->sends % fault->fault.drop_every == 0) {
        request->hook[0] = DROPPED;
        return FO_OK;
    }
    if (fault->fault.delay_ns <= 0) {
        request->hook[0] = SENT;
        return fault->hook.inner->ops->isend(fault->hook.inner, request, peer, tag, data, bytes,
                                             imm);
    }
    fo_status status = fault_progress(endpoint); /* after a failure those held may be gone */
    if (status != FO_OK)
        return status;
    int64_t release = fo_base_clock_ns() + delay_of(fault);
    if (release < fault->last_release_ns)
        release = fault->last_release_ns;
    fault->last_release_ns = release;
    request->hook[0] = HELD;
    request->hook[1] = (uint64_t)release;
    request->hook[2] = 0;
    request->hook[3] = imm;
    if (fault->held)
        fault->held_last->hook[2] = (uint64_t)(uintptr_t)request;
    else
        fault->held = request;
    fault->held_last = request;
    return FO_OK;
}

static fo_status fault_test(fo_endpoint *endpoint, fo_request *request)
{
    fault_hook *fault = fault_of(endpoint);
    fo_status status = fault_progress(endpoint);
    if (status != FO_OK)
        return status;
    if (request->kind == FO_REQUEST_SEND && request->hook[0] != SENT)
        return FO_IN_PROGRESS;
    return fault->hook.inner->ops->test(fault->hook.inner, request);
}

static fo_status fault_wait(fo_endpoint *endpoint, int64_t until_ns)
{
    fault_hook *fault = fault_of(endpoint);
    fo_status status = fault_progress(endpoint);
    if (status != FO_OK)
        return status;
    if (fault->held && (int64_t)fault->held->hook[1] < until_ns)
        until_ns = (int64_t)fault->held->hook[1];
    return fault->hook.inner->ops->wait(fault->hook.inner, until_ns);
}

static void fault_close(fo_hook *hook)
{
    free(hook);
}

fo_status fo_transport_hook_fault(fo_endpoint *inner, const fo_fault *wanted, fo_endpoint **wrapped)
{
    *wrapped = NULL;
    fault_hook *fault = calloc(1, sizeof *fault);
    if (!fault)
        return fo_base_error(FO_NO_MEMORY, "no memory for fault injection");
    fo_transport_hook_open(&fault->hook, inner, fault_close);
    fault->hook.ops.isend = fault_isend;
    fault->hook.ops.test = fault_test;
    fault->hook.ops.progress = fault_progress;
    fault->hook.ops.wait = fault_wait;
    fault->fault = *wanted;
    *wrapped = &fault->hook.base;
    return FO_OK;
}
