/* Ranks that a launcher started, over the MPI library of that launcher, on any number of machines.
 *
 *   shim.h    what is asked of an MPI library; shim.c, the only file that sees mpi.h, is a module of its own
 *   load.c    finds the module that fits and loads it
 *   launch.c  joining the job, its lifeline, leaving it
 *   mpi.c     the endpoint: messages, progress, waiting
 *   sub.c     groups of a group, the library's own collectives
 *   memory.c  memory of a rank
 *
 * MPI is called from the thread that launches only. There is no progress thread: it would want a core of its own, and
 * where 2 computing ranks shared 2 busy cores a trial of it pointed both ways, from 37 % slower (Open MPI, TCP) to
 * 26 % faster (MPICH, shared memory) than looks every millisecond. Not measured with cores to spare.
 *
 * A group that failed takes its receives back where all processes still live: what comes late must not be written to
 * memory that has another owner by then, and the library may not be ended with receives that wait. What can't be taken
 * back stays, with memory of the group that it may still point to, until the process ends, as after a failure it soon
 * does. */
#ifndef FO_TRANSPORT_MPI_H
#define FO_TRANSPORT_MPI_H

#include "transport/lifeline.h"
#include "transport/mpi/shim.h"
#include "transport/transport.h"

extern const fo_transport fo_transport_mpi;

/* What fo_job_end calls once a job has been joined: leaves it. With 0 all processes leave together, else
 * nobody is waited for. Returns the code to exit with. */
int fo_transport_mpi_end(int code);

/* ---- load.c ---- */

/* The table of the module that fits the launcher, or that FLASHOVERLAP_MPI names; loaded once. */
fo_status fo_transport_mpi_load(const fo_mpi_shim **shim);

/* ---- memory.c ---- */

typedef struct mpi_block mpi_block;
typedef struct mpi_memory {
    mpi_block *blocks;
    size_t left; /* bytes that may still be taken */
} mpi_memory;

/* Zeroed, 64-byte aligned; NULL when exhausted. */
void *fo_transport_mpi_memory_take(mpi_memory *memory, size_t bytes);
void fo_transport_mpi_memory_give(mpi_memory *memory, void *bytes);
void fo_transport_mpi_memory_free(mpi_memory *memory); /* all of it */

/* ---- mpi.c ---- */

/* What an endpoint and those split from it share. The requests in flight are numbered densely: `handles` are
 * the library's, `owners` ours. */
typedef struct mpi_engine {
    const fo_mpi_shim *shim;
    fo_failure *failure;
    fo_lifeline *lifeline;
    fo_request **owners;
    fo_request *asked; /* in flight, the last one that was tested; or NULL */
    char *handles;
    int count, capacity;
    uint64_t pass;   /* how often all requests were looked at */
    uint64_t waits;  /* that have ended, and one */
    int64_t untold;  /* completions since the last of them that no test has told */
    int64_t spin_ns; /* before a wait sleeps */
    int64_t idle_ns; /* the shortest row of looks of a wait; 0: none yet */
    uint64_t poll_comm;
    int rank, size; /* in the job */
    mpi_memory memory;
    int splits;     /* tells the calls of split apart */
    bool abandoned; /* receives were taken back after a failure */
} mpi_engine;

/* Tags of plans and tags of groups travel in communicators of their own. */
enum { MPI_PLANS, MPI_GROUPS, MPI_COMMS };

typedef struct mpi_endpoint {
    fo_endpoint base; /* first */
    mpi_engine *engine;
    uint64_t comms[MPI_COMMS];
    uint64_t serials[MPI_COMMS]; /* of these communicators; never given twice in a process */
    uint32_t tag_mask;           /* what fits a tag of the library */
    const int *members;          /* their ranks in the job; NULL: the same */
} mpi_endpoint;

extern const fo_transport_ops fo_transport_mpi_ops;

static inline mpi_endpoint *fo_transport_mpi_of(fo_endpoint *endpoint)
{
    return (mpi_endpoint *)endpoint;
}

fo_status fo_transport_mpi_engine_init(mpi_engine *engine);
void fo_transport_mpi_engine_free(mpi_engine *engine);
static inline bool fo_transport_mpi_has_failed(const mpi_engine *engine)
{
    return fo_transport_failure_seen(engine->failure);
}
/* `status` with the group's sentence. */
fo_status fo_transport_mpi_report(const fo_failure *failure, fo_status status);
/* Declares a rank of the job failed. */
void fo_transport_mpi_declare(mpi_engine *engine, int rank, const char *cause);
/* Whether the failed rank has declared that itself: then it ends its launch, and says with which status. */
bool fo_transport_mpi_returns(const mpi_engine *engine);
/* Room for one more request. */
fo_status fo_transport_mpi_reserve(mpi_engine *engine);
/* Puts a request in flight whose handle is given. */
void fo_transport_mpi_track(mpi_engine *engine, fo_request *request, const void *handle);
/* A request that is done. */
void fo_transport_mpi_done(mpi_engine *engine, fo_request *request);
/* Gives a request in flight memory that is freed when it is done. */
void fo_transport_mpi_keep(fo_request *request, void *memory);
/* "<what>: <the library's words>" for an error of the library. */
fo_status fo_transport_mpi_error(const mpi_engine *engine, int error, const char *what);
/* The next nap of a wait that has lasted `waited_ns`: the longer the longer, up to most_ns (below a second). */
void fo_transport_mpi_nap(int64_t waited_ns, int64_t most_ns);

/* ---- sub.c ---- */

/* Fills in communicators over all ranks of `from` (members NULL), or over these. */
fo_status fo_transport_mpi_open_comms(mpi_endpoint *endpoint, uint64_t from, const int *members,
                                      int count, int tag);
fo_status fo_transport_mpi_split(fo_endpoint *, const int *members, int count, fo_endpoint **sub);
void fo_transport_mpi_close(fo_endpoint *sub);
fo_status fo_transport_mpi_collective(fo_endpoint *, fo_request *, const fo_collective *);

/* ---- launch.c ---- */

bool fo_transport_mpi_interrupted(void);

#endif
