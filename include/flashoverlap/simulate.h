/* Predicting one configuration: an operation, or a training step, on a stated machine, in virtual time. No rank is
 * started; every figure is simulated (docs/simulator.md). Names, sizes, strategies and forms are those of bench.h.
 * Functions may be called from any thread. */
#ifndef FLASHOVERLAP_SIMULATE_H
#define FLASHOVERLAP_SIMULATE_H

#include "flashoverlap/bench.h"
#include "flashoverlap/planner.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- operations ---- */

typedef struct fo_simulate_options {
    const char *subject; /* row, column, mlp, attention (bench.h) */
    bool backward;
    const char *machine; /* name of a shipped profile, or a file (docs/profiles.md) */
    int ranks;
    int nodes;   /* machines they are on; 0: as many as the profile's size of one asks for */
    int threads; /* of a rank, for profiles that were measured; 0: as many as the profile has */
    /* sizes */
    int64_t rows;           /* tokens of the group; 0: batch * context */
    int64_t batch, context; /* sequences, and tokens of each */
    int64_t dim, ffn;       /* ffn 0: 2 dim (row, column), 4 dim (mlp) */
    int64_t heads;
    fo_dtype dtype, wire;
    const char *order;   /* attention: "straight", "balanced"; NULL: straight when shards are whole
                            sequences */
    const char *overlap; /* comma-separated strategies; NULL: those that go with the machine */
    /* instead of the profile's: links between ranks (of one machine), and between machines. bytes_per_s 0: the
     * profile's. At most one of link.bytes_per_s, link_ratio and transfer_s is set. */
    fo_link link, outer;
    double link_ratio; /* > 0: all transfer takes this part of the computation */
    double transfer_s; /* > 0: it takes this time */
    int slow_rank; /* -1: none; it computes at slow_speed, 0.001 <= slow_speed <= 1000 (1: as stated) */
    double slow_speed;
    bool explain; /* where the time above the bound goes */
    /* output */
    fo_bench_format format;
    bool color;
    const char *trace;   /* file for the timelines of all strategies; NULL */
    const char *report;  /* file for an HTML page; NULL */
    const char *chakra;  /* folder for Chakra execution traces, a file a strategy and rank; NULL */
    const char *command; /* the command line, for the report; NULL: unknown */
} fo_simulate_options;

void fo_simulate_defaults(fo_simulate_options *options);

/* Simulates every strategy listed, and `none` in any case, prints a table (or JSON, or CSV) to out and writes the
 * files asked for. A strategy that can't be is a row that says why. FO_INVALID: options that make no sense, an unknown
 * machine (those known are listed), a size that can't be split. FO_IO: a file can't be written; asked before
 * anything else is done. */
fo_status fo_simulate_run(const fo_simulate_options *options, FILE *out);

/* ---- steps ---- */

typedef struct fo_simulate_step_options {
    /* model: the sizes of `name`, of which those that are set in step.model (not 0, true) take the place */
    const char *model; /* a preset, or a config.json; NULL: step.model alone */
    int ranks; /* tp * dp * pp; 0: their product. Of tp, dp and pp those that are 0 follow from it: dp, where two */
    fo_step_options step;
    /* instead of the profile's: links between ranks (of one machine), and between machines where the profile has
     * several. bytes_per_s 0: the profile's. */
    fo_link link, outer;
    bool explain;
    fo_bench_format format; /* text or JSON */
} fo_simulate_step_options;

void fo_simulate_step_defaults(fo_simulate_step_options *options);

/* fo_step_simulate, printed to out. FO_INVALID as that, ranks that tp, dp and pp do not give, and a link between machines
 * where there is one machine. */
fo_status fo_simulate_step(const fo_simulate_step_options *options, FILE *out);

#ifdef __cplusplus
}
#endif
#endif
