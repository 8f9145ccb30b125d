/* The first failure of a group: who and why, and what another rank was doing when it learnt of it. Lives in
 * memory all ranks see; the first to claim either wins. */
#ifndef FO_TRANSPORT_FAILURE_H
#define FO_TRANSPORT_FAILURE_H

#include <stdalign.h>
#include <stdatomic.h>

#include "transport/transport.h"

typedef struct fo_failure {
    alignas(64) atomic_int set; /* read on every test, written once */
    atomic_int claim;           /* 0, or 1 + who writes the rest */
    int rank;
    char cause[960];
    atomic_int heard;       /* the words of a witness are complete */
    atomic_int heard_claim; /* 0, or 1 + the witness */
    char where[384];
    const fo_place
        *places; /* [size], when ranks are on several hosts: for the sentence; else NULL */
} fo_failure;

static inline bool fo_transport_failure_seen(fo_failure *failure)
{
    return atomic_load_explicit(&failure->set, memory_order_acquire) != 0;
}

/* True when this was the first. `writer`: a number for the caller, its rank. */
bool fo_transport_failure_declare(fo_failure *failure, int writer, int rank, const char *cause);
/* For a writer that died: takes its claim over when it had not finished. */
void fo_transport_failure_inherit(fo_failure *failure, int dead_writer);
/* What `rank` was doing when it learnt of the failure: "rank 0 waited for slice 1.0 (step 1) of mlp from rank 1".
 * The first one's words are kept; those of the failed rank, and any before a failure, are not. */
void fo_transport_failure_witness(fo_failure *failure, int rank, const char *where);
/* Writes "rank r: cause; where" for fo_last_error() and returns `status`. */
fo_status fo_transport_failure_report(const fo_failure *failure, fo_status status);

#endif
