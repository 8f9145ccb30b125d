/* Two lists a peer: receives that wait for a message, messages that wait for a receive; both in
 * order. */
#include "transport/match.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

fo_status fo_transport_match_init(fo_match *match, int ranks)
{
    match->peers = calloc((size_t)ranks, sizeof *match->peers);
    return match->peers ? FO_OK : fo_base_error(FO_NO_MEMORY, "no memory to match %d ranks", ranks);
}

void fo_transport_match_free(fo_match *match)
{
    free(match->peers);
    match->peers = NULL;
}

void fo_transport_match_describe(fo_request *request, int kind, int peer, uint32_t tag,
                                 void *buffer, size_t bytes)
{
    request->data = buffer;
    request->imm = 0;
    request->kind = kind;
    request->state = FO_REQUEST_POSTED;
    request->peer = peer;
    request->tag = tag;
    request->buffer = buffer;
    request->bytes = bytes;
    request->next = NULL;
}

fo_message *fo_transport_match_post(fo_match *match, fo_request *request)
{
    fo_match_peer *peer = &match->peers[request->peer];
    fo_message *before = NULL, *message = peer->unexpected;
    while (message && message->tag != request->tag) {
        before = message;
        message = message->next;
    }
    if (message) {
        *(before ? &before->next : &peer->unexpected) = message->next;
        if (peer->unexpected_last == message)
            peer->unexpected_last = before;
        return message;
    }
    *(peer->posted ? &peer->posted_last->next : &peer->posted) = request;
    peer->posted_last = request;
    return NULL;
}

fo_request *fo_transport_match_arrive(fo_match *match, fo_message *message)
{
    fo_match_peer *peer = &match->peers[message->source];
    fo_request *before = NULL, *request = peer->posted;
    while (request && request->tag != message->tag) {
        before = request;
        request = request->next;
    }
    if (request) {
        *(before ? &before->next : &peer->posted) = request->next;
        if (peer->posted_last == request)
            peer->posted_last = before;
        return request;
    }
    message->next = NULL;
    *(peer->unexpected ? &peer->unexpected_last->next : &peer->unexpected) = message;
    peer->unexpected_last = message;
    return NULL;
}

bool fo_transport_match_deliver(fo_request *request, fo_message *message)
{
    request->imm = message->imm;
    if (message->bytes != request->bytes) {
        request->scratch[0] = message->bytes;
        request->state = FO_REQUEST_MISMATCH;
        return true;
    }
    request->state = FO_REQUEST_DONE;
    if (request->kind == FO_REQUEST_VIEW) {
        request->data = message->data;
        request->scratch[0] = (uint64_t)(uintptr_t)message;
        return false;
    }
    if (request->bytes)
        memcpy(request->buffer, message->data, request->bytes);
    return true;
}

fo_message *fo_transport_match_viewed(fo_request *request)
{
    return (fo_message *)(uintptr_t)request->scratch[0];
}

fo_status fo_transport_match_result(const fo_request *request, int rank)
{
    if (request->state == FO_REQUEST_POSTED)
        return FO_IN_PROGRESS;
    if (request->state == FO_REQUEST_DONE)
        return FO_OK;
    return fo_base_error(
        FO_INTERNAL,
        "rank %d expected %zu bytes from rank %d (tag 0x%x) and met a message of %llu "
        "bytes; both sides must agree on sizes",
        rank, request->bytes, request->peer, request->tag, (unsigned long long)request->scratch[0]);
}
