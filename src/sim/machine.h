/* A machine as the simulator sees it: plain data in SI units (seconds, bytes, bytes/s, FLOP/s). Filled from a
 * profile (profile.h), or by hand in tests. Nothing here knows an operation or a strategy. */
#ifndef FO_SIM_MACHINE_H
#define FO_SIM_MACHINE_H

#include "flashoverlap/group.h"

enum { FO_SIM_POINTS = 32, FO_SIM_DIMENSIONS = 3 };

/* A factor over a size: linear in log2(x) between points (x ascending), constant outside, 1 without points. */
typedef struct fo_sim_curve {
    int points;
    double x[FO_SIM_POINTS], y[FO_SIM_POINTS];
} fo_sim_curve;

double fo_sim_curve_at(const fo_sim_curve *curve, double x);

/* One direction of a port or of a link of a pair; both directions at once. A message of b bytes occupies it for
 * b / (bytes_per_s * efficiency(b)) and is delivered latency_s later. bytes_per_s 0: takes no time. */
typedef struct fo_sim_link {
    double bytes_per_s, latency_s;
    fo_sim_curve efficiency;
} fo_sim_link;

/* Who shares what.
 * SWITCH  a port a rank: all it sends is serialised, and so is all it receives
 * MESH    a link for every ordered pair
 * TORUS   a link to each neighbour, in each direction of each dimension; other messages take the shortest way,
 *         dimension by dimension, and occupy every link of it */
typedef enum fo_sim_topology { FO_SIM_SWITCH, FO_SIM_MESH, FO_SIM_TORUS } fo_sim_topology;

typedef struct fo_sim_network {
    fo_sim_topology topology; /* of all ranks; where `locals` is set of those on one machine */
    fo_sim_link link;
    int torus
        [FO_SIM_DIMENSIONS]; /* TORUS: sizes, their product is the number of ranks; 0: dimension unused */
    /* HIERARCHICAL: ranks in rank order, `locals` on each machine; 0: one machine */
    int locals;
    fo_sim_link
        outer; /* between machines, a port a rank, or one of `outer_ports` that all of a machine share */
    int outer_ports; /* 0: a port a rank */
} fo_sim_network;

typedef enum fo_sim_work {
    FO_SIM_GEMM,      /* rows x k times k x n */
    FO_SIM_WGRAD,     /* k x n += (rows x k)^T (rows x n) */
    FO_SIM_ATTENTION, /* causal, `rows` = context of one sequence, k = heads, n = head_dim; forward */
    FO_SIM_ATTENTION_GRAD, /* its gradient */
    FO_SIM_PACK,           /* a k x n weight made ready for the kernel */
    FO_SIM_WORKS
} fo_sim_work;

/* A time that was measured. */
typedef struct fo_sim_entry {
    fo_sim_work work;
    fo_dtype dtype;
    int threads;  /* of a rank */
    bool at_once; /* all ranks of the machine did it at the same time */
    int64_t rows, k, n;
    double time_s;
} fo_sim_entry;

/* What computes. The time of a product of FLOPs F over a slice of `rows` rows is, in this order of preference:
 * entries of its type, threads and at_once near its shape, scaled by FLOPs; else
 *   launch_s + F / (flops_per_s * by_rows(rows) * by_width(min(k, n)))          or, where `units` is set,
 *   launch_s + waves * tile_m * tile_n * 2 k / (flops_per_s / units)            waves = ceil(tiles / free units),
 * by_width then applies too (short k), by_rows does not; and no less than launch_s and reading and writing its
 * matrices once at memory_bytes_per_s. */
typedef struct fo_sim_device {
    double flops_per_s[2];      /* by fo_dtype, of large products; 0: cannot */
    double peak_flops_per_s[2]; /* by fo_dtype, of the sheet (MFU is of this); 0: flops_per_s */
    fo_sim_curve by_rows, by_width;
    double launch_s;           /* of a product of a slice, beside its work */
    double memory_bytes_per_s; /* of passes: additions, norms, optimizer; 0: they take no time */
    double
        epilogue_bytes_per_s; /* of what follows a tile while it is in cache: its sum, its result; 0: part of the
                                    product, and additions of local sums are part of their message */
    double memory_bytes;         /* of a rank; 0: not known */
    double attention_efficiency; /* of flops_per_s in attention; 0: 1 */
    double
        attention_turn_s; /* of a feature of a key: the keys and values of one sequence are kept ready, and made
                                      ready again when queries turn to another one; 0: that takes no time */
    int units, tile_m, tile_n;     /* tile and wave; units 0: not used */
    int comm_units;                /* taken away by communication in flight */
    int64_t tile_rows, wgrad_rows; /* of one call of a kernel */
    /* a kernel of fixed tiles takes as long for a tile whatever slice it belongs to: the time of a slice is that
     * of its tiles. false: a device computes a slice at once, as by_rows says */
    bool by_tile;
    bool
        whole_tiles; /* entries of products hold what follows a tile too, but for a sum that is added to it */
    const fo_sim_entry *entries; /* owned by the machine */
    int entry_count;
} fo_sim_device;

typedef struct fo_sim_machine {
    char name[64];
    char about[128]; /* where its figures are from, for reports */
    fo_sim_device device;
    fo_sim_network network;
    double task_s;    /* of software, a tile; takes the compute lane */
    double message_s; /* of software, a message at each end; takes the compute lane */
    double wake_s;    /* after a wait: until computing goes on */
    double
        cpu_s_per_byte; /* processor time taken from computing, of a byte sent, and of one received */
    double
        contention; /* computing takes 1 + this times as long while a message of this rank is in flight */
    bool async; /* messages move and are seen at any time; else between tiles and in waits */
    bool views; /* receivers read in place: no copy, SPACE dependencies do not bind */
    fo_sim_entry *memory; /* of entries; NULL: none */
} fo_sim_machine;

/* No overheads, no latency, async, links that take no time, a device that takes no time. */
void fo_sim_machine_ideal(fo_sim_machine *machine);
/* What kernel "emulated" and an emulated link do, by their rules (kernel/emulated, transport/hook): one thread a rank
 * that sees messages between tiles, receivers that read in place. NULL: as ideal has it. */
void fo_sim_machine_emulated(const fo_device *device, const fo_link *link, fo_sim_machine *machine);
/* The network becomes an emulated link; bytes_per_s 0: nothing changes. */
void fo_sim_machine_set_link(fo_sim_machine *machine, const fo_link *link);
/* Frees the entries. */
void fo_sim_machine_free(fo_sim_machine *machine);

#endif
