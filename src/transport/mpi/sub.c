/* Groups of a group, each in communicators of its own; and the collectives of the library, for comparison. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "transport/mpi/mpi.h"

typedef struct mpi_sub {
    mpi_endpoint endpoint; /* first */
    int members[];         /* ranks in the job, then nothing */
} mpi_sub;

static uint64_t next_serial(void)
{
    static uint64_t last;
    return ++last;
}

fo_status fo_transport_mpi_open_comms(mpi_endpoint *endpoint, uint64_t from, const int *members,
                                      int count, int tag)
{
    const fo_mpi_shim *shim = endpoint->engine->shim;
    for (int i = 0; i < MPI_COMMS; i++) {
        int error = members ? shim->group(from, members, count, tag + i, &endpoint->comms[i])
                            : shim->dup(from, &endpoint->comms[i]);
        if (error)
            return fo_transport_mpi_error(endpoint->engine, error, "making a communicator");
        endpoint->serials[i] = next_serial();
    }
    return FO_OK;
}

/* ---- groups of a group ------------------------------------------------------------------------------- */

fo_status fo_transport_mpi_split(fo_endpoint *endpoint, const int *members, int count,
                                 fo_endpoint **made)
{
    mpi_endpoint *parent = fo_transport_mpi_of(endpoint);
    mpi_engine *engine = parent->engine;
    *made = NULL;
    if (fo_transport_mpi_has_failed(engine))
        return fo_transport_mpi_report(engine->failure, FO_PEER);
    size_t places = parent->base.places ? (size_t)count * sizeof(fo_place) : 0;
    mpi_sub *sub = calloc(1, sizeof *sub + (size_t)count * sizeof(int));
    fo_place *where = places ? malloc(places) : NULL;
    if (!sub || (places && !where)) {
        free(sub);
        free(where);
        return fo_base_error(FO_NO_MEMORY, "no memory for a group of %d ranks", count);
    }
    sub->endpoint = *parent;
    sub->endpoint.base.size = count;
    sub->endpoint.base.places = where;
    sub->endpoint.members = sub->members;
    for (int i = 0; i < count; i++) {
        if (members[i] == parent->base.rank)
            sub->endpoint.base.rank = i;
        sub->members[i] = parent->members ? parent->members[members[i]] : members[i];
        if (where)
            where[i] = parent->base.places[members[i]];
    }
    fo_status status =
        fo_transport_mpi_open_comms(&sub->endpoint, parent->comms[MPI_GROUPS], members, count, 1);
    if (status != FO_OK) {
        free(sub);
        free(where);
        return status;
    }
    *made = &sub->endpoint.base;
    return FO_OK;
}

void fo_transport_mpi_close(fo_endpoint *endpoint)
{
    mpi_sub *sub = (mpi_sub *)endpoint;
    if (!sub)
        return;
    /* after a failure not all members come here */
    for (int i = 0; i < MPI_COMMS && !fo_transport_mpi_has_failed(sub->endpoint.engine); i++)
        (void)sub->endpoint.engine->shim->release(sub->endpoint.comms[i]);
    free((void *)sub->endpoint.base.places);
    free(sub);
}

/* ---- collectives ------------------------------------------------------------------------------------- */

/* Shares in the library's type, and where they begin; a table of the request's, since they are read until it is
 * done. */
static fo_status share_table(const mpi_endpoint *mpi, const int64_t *counts,
                             fo_mpi_collective *call, int **table_of)
{
    int size = mpi->base.size;
    int64_t total = 0;
    bool equal = true;
    for (int r = 0; r < size; r++) {
        equal = equal && counts[r] == counts[0];
        total += counts[r];
    }
    if (total > INT_MAX)
        return fo_base_error(
            FO_UNSUPPORTED,
            "a collective of the MPI library over %lld elements, at most %d are possible; "
            "use a strategy of ours, or fewer rows",
            (long long)total, INT_MAX);
    call->count = (int)counts[mpi->base.rank];
    *table_of = NULL;
    if (equal)
        return FO_OK;
    int *table = *table_of = malloc(2 * (size_t)size * sizeof *table);
    if (!table)
        return fo_base_error(FO_NO_MEMORY, "no memory for a collective of %d ranks", size);
    for (int r = 0, offset = 0; r < size; offset += (int)counts[r++]) {
        table[r] = (int)counts[r];
        table[size + r] = offset;
    }
    call->counts = table;
    call->offsets = table + size;
    return FO_OK;
}

fo_status fo_transport_mpi_collective(fo_endpoint *endpoint, fo_request *request,
                                      const fo_collective *what)
{
    mpi_endpoint *mpi = fo_transport_mpi_of(endpoint);
    mpi_engine *engine = mpi->engine;
    uint64_t handle = 0;
    if (fo_transport_mpi_has_failed(engine))
        return fo_transport_mpi_report(engine->failure, FO_PEER);
    fo_mpi_collective call = {
        .reduce_scatter = what->kind == FO_COLLECTIVE_REDUCE_SCATTER,
        .bf16 = what->dtype == FO_BF16,
        .blocking = what->blocking,
        .send = what->send,
        .recv = what->recv,
    };
    int *table;
    fo_status status = fo_transport_mpi_reserve(engine);
    if (status == FO_OK)
        status = share_table(mpi, what->counts, &call, &table);
    if (status != FO_OK)
        return status;
    request->kind = FO_REQUEST_SEND; /* nothing of its size is checked */
    request->peer = endpoint->rank;
    request->data = what->recv;
    int error = engine->shim->collective(mpi->comms[MPI_PLANS], &call, &handle);
    if (!error && !what->blocking) {
        fo_transport_mpi_track(engine, request, &handle);
        fo_transport_mpi_keep(request, table);
        return FO_OK;
    }
    free(table);
    if (error)
        return fo_transport_mpi_error(engine, error, "a collective of the library");
    fo_transport_mpi_done(engine, request);
    return FO_OK;
}
