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

fo_status fo_transport_failure_report(const fo_failure *failure, fo_status status)
{
    char prefix[32];
    snprintf(prefix, sizeof prefix, "rank %d: ", failure->rank);
    bool named = strncmp(failure->cause, prefix, strlen(prefix)) == 0;
    return fo_base_error(status, "%s%s", named ? "" : prefix, failure->cause);
}
