/* A wrapper that passes everything on; hooks replace what they change. */
#include "transport/hook/hook.h"

static fo_endpoint *inner_of(fo_endpoint *endpoint)
{
    return ((fo_hook *)endpoint)->inner;
}

static fo_status pass_isend(fo_endpoint *endpoint, fo_request *request, int peer, uint32_t tag,
                            const void *data, size_t bytes, uint64_t imm)
{
    fo_endpoint *inner = inner_of(endpoint);
    return inner->ops->isend(inner, request, peer, tag, data, bytes, imm);
}

static fo_status pass_irecv(fo_endpoint *endpoint, fo_request *request, int peer, uint32_t tag,
                            void *buffer, size_t bytes)
{
    fo_endpoint *inner = inner_of(endpoint);
    return inner->ops->irecv(inner, request, peer, tag, buffer, bytes);
}

static fo_status pass_irecv_view(fo_endpoint *endpoint, fo_request *request, int peer, uint32_t tag,
                                 size_t bytes)
{
    fo_endpoint *inner = inner_of(endpoint);
    return inner->ops->irecv_view(inner, request, peer, tag, bytes);
}

static fo_status pass_test(fo_endpoint *endpoint, fo_request *request)
{
    fo_endpoint *inner = inner_of(endpoint);
    return inner->ops->test(inner, request);
}

static void pass_release(fo_endpoint *endpoint, fo_request *request)
{
    fo_endpoint *inner = inner_of(endpoint);
    inner->ops->release(inner, request);
}

static fo_status pass_progress(fo_endpoint *endpoint)
{
    fo_endpoint *inner = inner_of(endpoint);
    return inner->ops->progress(inner);
}

static fo_status pass_wait(fo_endpoint *endpoint, int64_t until_ns)
{
    fo_endpoint *inner = inner_of(endpoint);
    return inner->ops->wait(inner, until_ns);
}

static void *pass_alloc(fo_endpoint *endpoint, size_t bytes)
{
    fo_endpoint *inner = inner_of(endpoint);
    return inner->ops->alloc(inner, bytes);
}

static void pass_free(fo_endpoint *endpoint, void *memory)
{
    fo_endpoint *inner = inner_of(endpoint);
    inner->ops->free(inner, memory);
}

static void pass_fail(fo_endpoint *endpoint, int rank, const char *cause)
{
    fo_endpoint *inner = inner_of(endpoint);
    inner->ops->fail(inner, rank, cause);
}

static bool pass_interrupted(fo_endpoint *endpoint)
{
    fo_endpoint *inner = inner_of(endpoint);
    return inner->ops->interrupted(inner);
}

static fo_status pass_set_link(fo_endpoint *endpoint, const fo_link *link)
{
    fo_endpoint *inner = inner_of(endpoint);
    return inner->ops->set_link(inner, link);
}

static void pass_forget(fo_endpoint *endpoint, fo_request *request)
{
    fo_endpoint *inner = inner_of(endpoint);
    inner->ops->forget(inner, request);
}

static void pass_witness(fo_endpoint *endpoint, const char *where)
{
    fo_endpoint *inner = inner_of(endpoint);
    inner->ops->witness(inner, where);
}

static fo_status pass_collective(fo_endpoint *endpoint, fo_request *request,
                                 const fo_collective *collective)
{
    fo_endpoint *inner = inner_of(endpoint);
    return inner->ops->collective(inner, request, collective);
}

/* Not passed on: split and close. A part of inner would know nothing of the wrapper. */
void fo_transport_hook_open(fo_hook *hook, fo_endpoint *inner, void (*close)(fo_hook *))
{
    hook->ops = (fo_transport_ops){
        .name = inner->ops->name,
        .caps = inner->ops->caps,
        .isend = pass_isend,
        .irecv = pass_irecv,
        .irecv_view = inner->ops->irecv_view ? pass_irecv_view : NULL,
        .test = pass_test,
        .release = pass_release,
        .progress = pass_progress,
        .wait = pass_wait,
        .alloc = pass_alloc,
        .free = pass_free,
        .fail = pass_fail,
        .interrupted = pass_interrupted,
        .set_link = inner->ops->set_link ? pass_set_link : NULL,
        .forget = inner->ops->forget ? pass_forget : NULL,
        .witness = inner->ops->witness ? pass_witness : NULL,
        .collective = inner->ops->collective ? pass_collective : NULL,
    };
    hook->base = *inner;
    hook->base.ops = &hook->ops;
    hook->inner = inner;
    hook->close = close;
}

void fo_transport_hook_destroy(fo_endpoint *wrapped)
{
    if (wrapped)
        ((fo_hook *)wrapped)->close((fo_hook *)wrapped);
}
