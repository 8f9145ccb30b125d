#include "transport/failure.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

bool fo_transport_failure_declare(fo_failure *failure, int writer, int rank, const char *cause)
{
    int unclaimed = 0;
    if (!atomic_compare_exchange_strong(&failure->claim, &unclaimed, writer + 1))
        return false;
    failure->rank = rank;
    snprintf(failure->cause, sizeof failure->cause, "%s",
             cause && *cause ? cause : "failed without saying why");
    atomic_store_explicit(&failure->set, 1, memory_order_release);
    return true;
}

void fo_transport_failure_inherit(fo_failure *failure, int dead_writer)
{
    int claim = dead_writer + 1;
    if (!fo_transport_failure_seen(failure))
        atomic_compare_exchange_strong(&failure->claim, &claim, 0);
}

void fo_transport_failure_witness(fo_failure *failure, int rank, const char *where)
{
    int unclaimed = 0;
    if (!where || !*where || !fo_transport_failure_seen(failure) || failure->rank == rank ||
        !atomic_compare_exchange_strong(&failure->heard_claim, &unclaimed, rank + 1))
        return;
    snprintf(failure->where, sizeof failure->where, "%s", where);
    atomic_store_explicit(&failure->heard, 1, memory_order_release);
}

fo_status fo_transport_failure_report(const fo_failure *failure, fo_status status)
{
    char who[128];
    bool heard = atomic_load_explicit(&failure->heard, memory_order_acquire) != 0;
    const char *cause = failure->cause;
    int rank = failure->rank, named, length = 0;
    /* it names itself, or what all have agreed on came from another */
    if (sscanf(cause, "rank %d: %n", &named, &length) == 1 && length > 0) {
        rank = named;
        cause += length;
    }
    snprintf(who, sizeof who, "rank %d: ", rank);
    if (failure->places && rank == failure->rank)
        snprintf(who, sizeof who, "rank %d on %s: ", rank, failure->places[rank].host);
    return fo_base_error(status, "%s%s%s%s", who, cause, heard ? "; " : "",
                         heard ? failure->where : "");
}
