/* What the transport asks of an MPI library. shim.c is compiled once for each MPI found when this was built, into
 * a module that is loaded when it is used; it is the only file that sees mpi.h, whose types differ between
 * libraries. Handles of communicators travel as 64-bit words, handles of requests as `request_bytes` bytes that
 * the caller keeps in dense arrays. Every function returns 0 or an error of the library (explain). */
#ifndef FO_TRANSPORT_MPI_SHIM_H
#define FO_TRANSPORT_MPI_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FO_MPI_SHIM_VERSION = 3, FO_MPI_REQUEST_MOST = 8 };

/* The module's only symbol, a function that returns its table. */
#define FO_MPI_SHIM_SYMBOL "fo_mpi_shim_get"

/* How a request ended. */
typedef struct fo_mpi_result {
    int error;      /* 0, or an error of the library */
    bool truncated; /* the message was longer than the buffer */
    uint64_t bytes; /* of a receive: what came */
} fo_mpi_result;

typedef struct fo_mpi_job {
    int rank, size;
    int tag_most;   /* the largest tag */
    uint64_t world; /* a communicator of our own over all processes */
    bool own;       /* initialised here: to be finalised here */
} fo_mpi_job;

/* As fo_collective of transport.h. counts and offsets by rank; NULL: every rank has `count` elements. */
typedef struct fo_mpi_collective {
    bool reduce_scatter, bf16, blocking;
    const void *send;
    void *recv;
    int count; /* of this rank */
    const int *counts, *offsets;
} fo_mpi_collective;

typedef struct fo_mpi_shim {
    int version;
    const char *family; /* "openmpi", "mpich", "mpi" */
    const char *name;   /* "Open MPI 4.1.4" */
    int request_bytes;

    int (*init)(fo_mpi_job *job);
    int (*finalize)(void);
    void (*abort)(int code); /* ends the job; does not return */
    void (*explain)(int error, char *text, int bytes);

    /* Communicators. Collective over the old one (dup) or over the members (group: `tag` tells calls apart). */
    int (*dup)(uint64_t comm, uint64_t *copy);
    int (*group)(uint64_t comm, const int *members, int count, int tag, uint64_t *sub);
    int (*release)(uint64_t comm);

    /* Messages of bytes, of any 64-bit number. Arguments are where the library has them, with nothing in the place of
     * the type: the call goes on there as it is. */
    int (*isend)(const void *data, uint64_t bytes, uint64_t none, int peer, int tag, uint64_t comm,
                 void *request);
    int (*irecv)(void *buffer, uint64_t bytes, uint64_t none, int peer, int tag, uint64_t comm,
                 void *request);
    /* Persistent ones: made once, started often, dropped. */
    int (*send_init)(uint64_t comm, const void *data, uint64_t bytes, int peer, int tag,
                     void *request);
    int (*recv_init)(uint64_t comm, void *buffer, uint64_t bytes, int peer, int tag, void *request);
    int (*start)(void *request);
    int (*drop)(void *request);
    /* Takes a receive back for which no message has come; it is then done, as far as test() says. */
    int (*cancel)(void *request);

    /* Moves messages of all requests, and says whether this one is done; looks up to `looks` times. */
    int (*test)(void *request, bool receives, int looks, bool *done, fo_mpi_result *result);
    /* The same for `count` requests side by side: *done of them are, their places and results. Room for `most`
     * of these. */
    int (*test_some)(int count, void *requests, int most, int *done, int *places,
                     fo_mpi_result *results);

    /* Moves messages when there is no request: what was sent may still lie in the library. */
    int (*poll)(uint64_t comm);

    /* Small collectives over a communicator, nonblocking. */
    int (*iallgather)(uint64_t comm, const void *mine, int bytes, void *all, void *request);
    int (*ibarrier)(uint64_t comm, void *request);
    /* The library's own, for comparison; a blocking one gives no request. */
    int (*collective)(uint64_t comm, const fo_mpi_collective *what, void *request);
} fo_mpi_shim;

const fo_mpi_shim *fo_mpi_shim_get(void);

#endif
