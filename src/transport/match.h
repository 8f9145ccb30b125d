/* Matching of messages and receives on the receiver's side, for transports whose ranks see each
 * other's memory (self, shm). Plain data of one rank; no locks, no allocation per message. */
#ifndef FO_TRANSPORT_MATCH_H
#define FO_TRANSPORT_MATCH_H

#include <stdalign.h>
#include <stdatomic.h>

#include "transport/transport.h"

/* A message on its way. The sender owns the cell and fills it; from the push into the receiver's
 * inbox until `done` it is the receiver's. */
typedef struct fo_message {
    alignas(64) struct fo_message
        *next; /* in the inbox, the unexpected list or the sender's free list */
    const void *data;
    size_t bytes;
    uint64_t imm;
    void *bounce; /* the sender's copy of memory that peers cannot see, or NULL */
    uint32_t tag;
    int32_t source;
    atomic_uint done;
} fo_message;

enum { FO_REQUEST_POSTED = 1, FO_REQUEST_DONE, FO_REQUEST_MISMATCH }; /* request->state */

typedef struct fo_match_peer {
    fo_request *posted, *posted_last;
    fo_message *unexpected, *unexpected_last;
} fo_match_peer;

typedef struct fo_match {
    fo_match_peer *peers;
} fo_match;

fo_status fo_transport_match_init(fo_match *match, int ranks);
void fo_transport_match_free(fo_match *match);

/* Fills in what every request carries. */
void fo_transport_match_describe(fo_request *request, int kind, int peer, uint32_t tag,
                                 void *buffer, size_t bytes);
/* Takes out the oldest unexpected message the receive meets; NULL: the receive has been queued. */
fo_message *fo_transport_match_post(fo_match *match, fo_request *request);
/* Takes out the oldest receive the message meets; NULL: the message has been queued. */
fo_request *fo_transport_match_arrive(fo_match *match, fo_message *message);
/* Copies, hands out the view or notes that sizes differ. True: the message is finished with; false:
 * it stays with the view, fo_transport_match_viewed() gives it back. */
bool fo_transport_match_deliver(fo_request *request, fo_message *message);
fo_message *fo_transport_match_viewed(fo_request *request);
/* What test() says of a receive. */
fo_status fo_transport_match_result(const fo_request *request, int rank);

#endif
