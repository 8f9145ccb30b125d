/* A window on an endpoint: some of its ranks, numbered anew, and some of its tags. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "transport/hook/hook.h"

/* The upper tags of a group (its own small collectives) are the last ones of the window. */
#define OWN_TAGS 0x10000u

typedef struct subset {
    fo_hook hook; /* first */
    int *members; /* [size], ranks of the inner endpoint */
    uint32_t first_tag, tags;
    fo_place *places; /* [size], NULL: the inner endpoint has none */
} subset;

static subset *of(fo_endpoint *endpoint)
{
    return (subset *)endpoint;
}

static uint32_t outer_tag(const subset *s, uint32_t tag)
{
    uint32_t own = 0u - OWN_TAGS;
    return s->first_tag + (tag >= own ? s->tags - OWN_TAGS + (tag - own) : tag);
}

static fo_status check(const subset *s, int peer, uint32_t tag)
{
    bool own = tag >= 0u - OWN_TAGS;
    if (peer < 0 || peer >= s->hook.base.size)
        return fo_base_error(FO_INTERNAL, "a message with rank %d of a group of %d ranks", peer,
                             s->hook.base.size);
    if (!own && tag >= s->tags - OWN_TAGS)
        return fo_base_error(FO_INTERNAL, "a message with tag %u in a group with tags below %u",
                             tag, s->tags - OWN_TAGS);
    return FO_OK;
}

static fo_status subset_isend(fo_endpoint *endpoint, fo_request *request, int peer, uint32_t tag,
                              const void *data, size_t bytes, uint64_t imm)
{
    subset *s = of(endpoint);
    fo_status status = check(s, peer, tag);
    fo_endpoint *inner = s->hook.inner;
    return status == FO_OK ? inner->ops->isend(inner, request, s->members[peer], outer_tag(s, tag),
                                               data, bytes, imm)
                           : status;
}

static fo_status subset_irecv(fo_endpoint *endpoint, fo_request *request, int peer, uint32_t tag,
                              void *buffer, size_t bytes)
{
    subset *s = of(endpoint);
    fo_status status = check(s, peer, tag);
    fo_endpoint *inner = s->hook.inner;
    return status == FO_OK ? inner->ops->irecv(inner, request, s->members[peer], outer_tag(s, tag),
                                               buffer, bytes)
                           : status;
}

static fo_status subset_irecv_view(fo_endpoint *endpoint, fo_request *request, int peer,
                                   uint32_t tag, size_t bytes)
{
    subset *s = of(endpoint);
    fo_status status = check(s, peer, tag);
    fo_endpoint *inner = s->hook.inner;
    return status == FO_OK
               ? inner->ops->irecv_view(inner, request, s->members[peer], outer_tag(s, tag), bytes)
               : status;
}

/* Failures are told in numbers of the whole. */
static void subset_fail(fo_endpoint *endpoint, int rank, const char *cause)
{
    subset *s = of(endpoint);
    fo_endpoint *inner = s->hook.inner;
    inner->ops->fail(inner, s->members[rank], cause);
}

static void close_subset(fo_hook *hook)
{
    subset *s = (subset *)hook;
    free(s->members);
    free(s->places);
    free(s);
}

fo_status fo_transport_hook_subset(fo_endpoint *inner, const int *members, int count,
                                   uint32_t first_tag, uint32_t tags, fo_endpoint **wrapped)
{
    *wrapped = NULL;
    subset *s = calloc(1, sizeof *s);
    if (s) {
        s->members = malloc((size_t)count * sizeof *s->members);
        s->places = inner->places ? malloc((size_t)count * sizeof *s->places) : NULL;
    }
    if (!s || !s->members || (inner->places && !s->places)) {
        if (s)
            close_subset(&s->hook);
        return fo_base_error(FO_NO_MEMORY, "no memory for a group of %d ranks", count);
    }
    fo_transport_hook_open(&s->hook, inner, close_subset);
    memcpy(s->members, members, (size_t)count * sizeof *members);
    s->first_tag = first_tag;
    s->tags = tags;
    s->hook.ops.isend = subset_isend;
    s->hook.ops.irecv = subset_irecv;
    s->hook.ops.irecv_view = inner->ops->irecv_view ? subset_irecv_view : NULL;
    s->hook.ops.fail = subset_fail;
    s->hook.ops.set_link = NULL; /* the whole's */
    s->hook.ops.collective = NULL;
    s->hook.base.size = count;
    s->hook.base.places = s->places;
    for (int r = 0; r < count; r++) {
        if (members[r] == inner->rank)
            s->hook.base.rank = r;
        if (s->places)
            s->places[r] = inner->places[members[r]];
    }
    *wrapped = &s->hook.base;
    return FO_OK;
}
