/* Groups of ranks: start them, ask who one is, allocate memory that peers can read in place.
 *
 * A group is N ranks that execute plans together. The embedded default forks N processes over
 * anonymous shared memory ("shm"); "self" runs the ranks as threads of the calling process and
 * serves tests; "mpi" joins the job that a launcher started. A group handle belongs to the rank (process or thread) that received it and is not
 * shared between threads.
 */
#ifndef FLASHOVERLAP_GROUP_H
#define FLASHOVERLAP_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "flashoverlap/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Element types. bf16 is the upper half of a float32, rounded to nearest even. */
typedef enum fo_dtype { FO_F32 = 0, FO_BF16 = 1 } fo_dtype;

/* Bytes of one element: 4 or 2. */
size_t fo_dtype_size(fo_dtype dtype);
/* "f32" or "bf16". */
const char *fo_dtype_name(fo_dtype dtype);

/* How an emulated network shares bandwidth. Links are full duplex.
 * SWITCH: one port a rank; all a rank sends is serialised, and so is all it receives.
 * MESH:   one link for every ordered pair of ranks. */
typedef enum fo_topology { FO_SWITCH = 0, FO_MESH = 1 } fo_topology;

/* An emulated link. bytes_per_s = 0 means no emulation. A message of b bytes occupies its ports for
 * b / bytes_per_s and is delivered latency_s later; delivery costs no processor time. */
typedef struct fo_link {
    double bytes_per_s;
    double latency_s;
    fo_topology topology;
} fo_link;

/* A device whose time is emulated: kernels take as long as the device would and use no processor, so that
 * real programs, the real executor and real messages run with more ranks than cores and with sizes whose
 * memory is never touched. Results are not computed. Figures obtained so say "emulated".
 * A product of a slice takes  launch_s + FLOPs / (flops_per_s * efficiency(rows of the slice)),
 * efficiency interpolated linearly in log2(rows) between the points of the curve, constant outside. */
enum { FO_DEVICE_POINTS = 24 };
typedef struct fo_device {
    double flops_per_s; /* 0: not emulated */
    double launch_s;    /* of a task, beside its work */
    double bytes_per_s; /* of passes over memory (ADD, COPY); 0: they take no time */
    int points;         /* of the curve; 0: efficiency 1 */
    double rows[FO_DEVICE_POINTS],
        efficiency[FO_DEVICE_POINTS]; /* rows ascending, 0 < efficiency <= 1 */
} fo_device;

typedef struct fo_group fo_group;

typedef struct fo_group_options {
    int ranks;             /* N >= 1 */
    int threads;           /* computing threads a rank; 0: cores / ranks, at least 1 */
    const char *transport; /* "shm", "self", "mpi"; NULL: in a job (job.h) "mpi", else "shm" */
    int nodes; /* machines the ranks are spread over, equally many on each, in rank order: for strategy
                  "hier"; 0: as the hosts of the job are */
    const char *kernel; /* "onednn", "ref", "emulated"; NULL: the best one built in, or "emulated"
                              when a device is given */
    fo_device device;   /* of kernel "emulated" */
    fo_link link;       /* emulated link, off when bytes_per_s is 0 */
    double deadline_s;  /* a wait without any progress for this long fails; 0: 60 s */
    size_t memory;      /* bytes of shared memory a rank may use; 0: as large as the machine's
                              memory (reserved, not touched) */
} fo_group_options;

/* What one rank does. Its status becomes the rank's result. */
typedef fo_status (*fo_rank_main)(fo_group *group, void *arg);

/* Starts options->ranks ranks, runs `rank_main(group, arg)` on each and returns when all ended.
 *
 * With "shm" every rank is a forked process: what it writes to `arg` is not seen by the caller.
 * Returns FO_OK when every rank returned FO_OK; otherwise the first failure, in time, with the rank's
 * number and its sentence in fo_last_error(). A rank that dies (killed, crashed) ends every other
 * rank's waits with FO_PEER and this call within 10 s. No process, thread or segment is left behind.
 * FO_INVALID: ranks < 1, unknown transport or kernel. Must be called before the process has started
 * threads of its own. Not reentrant. */
fo_status fo_group_run(const fo_group_options *options, fo_rank_main rank_main, void *arg);

int fo_group_rank(const fo_group *group);
int fo_group_size(const fo_group *group);
int fo_group_threads(const fo_group *group);
const char *fo_group_transport(const fo_group *group);
const char *fo_group_kernel(const fo_group *group);

/* The emulated device; flops_per_s is 0 when kernels compute. */
fo_device fo_group_device(const fo_group *group);

/* Zeroed, 64-byte aligned memory that peers can read in place. Owned by the calling rank; freed by
 * fo_group_free or when the group ends. NULL when exhausted (fo_last_error says how much was asked).
 * Plans accept any memory; inputs that travel are moved without a copy only from this memory. After a failure
 * (FO_PEER, FO_TIMEOUT) a peer thread of "self" may still read what travelled: free it after the group ended. */
void *fo_group_alloc(fo_group *group, size_t bytes);
void fo_group_free(fo_group *group, void *memory);

/* Blocking, for small things: every rank gives `bytes` bytes, every rank receives size * bytes in
 * rank order. Collective. Not affected by the emulated link. FO_PEER, FO_TIMEOUT as for plans. */
fo_status fo_group_allgather(fo_group *group, const void *mine, size_t bytes, void *all);

/* Returns once every rank has called it. Collective. */
fo_status fo_group_barrier(fo_group *group);

/* Changes the emulated link for what is sent from now on. Collective: give every rank the same
 * values while no plan is executing. bytes_per_s = 0 turns emulation off. */
fo_status fo_group_set_link(fo_group *group, const fo_link *link);
fo_link fo_group_link(const fo_group *group);

/* Whether the user asked to stop (SIGINT or SIGTERM reached the launching process). Ranks may see it at
 * different times: agree on it (fo_group_allgather) before acting on it. */
bool fo_group_interrupted(const fo_group *group);

/* ---- groups of a group ---- */

/* Ranks that give the same color (>= 0) form a group, numbered in the order of their ranks here. Collective over
 * `group`. Memory, the emulated link and failure are the parent's. A rank executes plans of a group and of groups
 * split from it one at a time, or started (fo_plan_start) behind one another. fo_group_close ends it, after its
 * plans are destroyed and before the parent ends; a collective over the new group. */
fo_status fo_group_split(fo_group *group, int color, fo_group **sub);
void fo_group_close(fo_group *sub);

/* Moves the messages of what was started (fo_plan_start) on this rank and computes its tiles that are ready; for
 * long work between plans. FO_OK, or how a started plan failed. */
fo_status fo_group_progress(fo_group *group);

/* Machines, the number of the machine of a rank, and its name. One machine without a launcher, unless
 * options.nodes says otherwise. */
int fo_group_nodes(const fo_group *group);
int fo_group_node(const fo_group *group, int rank);
const char *fo_group_host(const fo_group *group, int rank);

/* Shards: M rows over N ranks, as even as they divide: the first M mod N ranks own one row more.
 * fo_shard_begin(M, N, N) == M. */
int64_t fo_shard_begin(int64_t rows, int ranks, int rank);
int64_t fo_shard_rows(int64_t rows, int ranks, int rank);

#ifdef __cplusplus
}
#endif
#endif
