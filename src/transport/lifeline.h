/* The lifeline of a job: who is alive, told apart from who is slow. Between processes that no common parent
 * watches over, a message library says nothing when a peer dies (or ends everything without a word).
 *
 * Every rank keeps one TCP connection to rank 0 (rank 0: to everyone), served by one small thread that sleeps
 * until something comes; it never calls MPI. A connection that ends without a goodbye is a death, seen at once; a rank whose
 * beats stop for `silence_ns` is stopped or cut off. Either is declared in `failure`, here and on every rank
 * that can still be reached, as is what a rank declares of itself. The first declaration that reaches rank 0
 * is everyone's.
 */
#ifndef FO_TRANSPORT_LIFELINE_H
#define FO_TRANSPORT_LIFELINE_H

#include "transport/failure.h"
#include "transport/transport.h"

typedef struct fo_lifeline fo_lifeline;

/* Every rank gives `bytes` bytes, `all` receives those of all ranks in rank order: by the message library. */
typedef fo_status (*fo_lifeline_exchange)(void *arg, const void *mine, size_t bytes, void *all);

typedef struct fo_lifeline_options {
    int rank, size;
    const fo_place *places; /* [size]; for the sentences; stays in place */
    int64_t silence_ns;     /* without a beat for so long: stopped or cut off */
    fo_lifeline_exchange exchange;
    void *exchange_arg;
    /* Called once by the thread when `failure` is set, after the others were told; `speaks` as
     * fo_transport_lifeline_speaks. NULL: nobody asks. */
    void (*on_failure)(bool speaks);
} fo_lifeline_options;

/* Collective; calls the exchange twice. Opens the connections and starts the thread. `failure`: zeroed, stays in
 * place until close; where ranks are on several hosts its `places` are set. FO_IO, on all ranks, names the host
 * that can't be reached. *lifeline is NULL on failure, and for one rank, for which nothing is opened: the calls
 * below take it and do nothing. A silence_ns below 250 ms counts as that. */
fo_status fo_transport_lifeline_open(const fo_lifeline_options *options, fo_failure *failure,
                                     fo_lifeline **lifeline);

/* What all ranks of this lifeline know and nobody else: *bytes of it. */
const void *fo_transport_lifeline_key(const fo_lifeline *lifeline, int *bytes);

/* Declares `rank` failed because of `cause`, here at once and everywhere soon. The first cause wins. Any
 * thread. */
void fo_transport_lifeline_declare(fo_lifeline *lifeline, int rank, const char *cause);

/* How long ago `rank` was last heard of, nanoseconds; known exactly on rank 0, of rank 0 elsewhere, else -1. */
int64_t fo_transport_lifeline_silence(const fo_lifeline *lifeline, int rank);

/* Whether this is the rank that says what went wrong: the lowest one that is not the failed one and not known to
 * be dead. Meaningful once `failure` is set. */
bool fo_transport_lifeline_speaks(const fo_lifeline *lifeline);

/* Says goodbye, so that the end is no death, and ends the thread. Waits for nobody. With `failed` declarations
 * that were made are first sent, for at most a second. Once rank 0 has closed nobody watches over the others. A
 * process that calls exit() before tells the others its code. */
void fo_transport_lifeline_close(fo_lifeline *lifeline, bool failed);

#endif
