/* Programs as Chakra execution traces (github.com/mlcommons/chakra, schema/protobuf/et_def.proto): what network
 * simulators such as ASTRA-sim replay. A file a rank: a GlobalMetadata, then a Node for every tile and every message,
 * each with its length in front.
 *
 * COMP_NODE       a tile of COMPUTE, ADD or COPY: duration_micros
 * COMM_SEND_NODE  a message: comm_src, comm_dst, comm_size (bytes), comm_tag. The k-th message from a to b on a
 * COMM_RECV_NODE  channel has the same tag at both ends, and no other message from a to b has it
 * data_deps       what the node needs; ROWS dependencies by rows, so that what is streamed stays streamed. The tiles of
 *                 a task, and its arriving messages, follow each other, so that the last one stands for all
 * ctrl_deps       the order of the compute lane, and staging memory that must be free again
 * is_cpu_op false, rows, shard, step: for people. Every dependency is on a node that comes earlier in the file.
 *
 * Nodes have whole microseconds: a tile lasts from its rounded begin to its rounded end, so that tasks keep their
 * time. */
#ifndef FO_PLANNER_CHAKRA_H
#define FO_PLANNER_CHAKRA_H

#include "schedule/program.h"

/* One rank's part of an operation. */
typedef struct fo_planner_chakra_operation {
    const char *name; /* "row forward" */
    const fo_program *program;
    int64_t row_bytes[FO_BUFFER_ROLES];
    int64_t tile_rows[2]; /* of one tile, by slot */
    const double *task_s; /* [task_count] COMPUTE, ADD, COPY: how long the whole task computes */
    double prepare_s;     /* packing before the first of them; 0: none */
} fo_planner_chakra_operation;

/* What the file says of itself. */
typedef struct fo_planner_chakra_fact {
    const char *name, *value;
} fo_planner_chakra_fact;

/* Writes one rank's file, of operations that follow each other: the next one begins when the rank's computations of
 * the one before have ended. Beside and renamed: the file is complete or as it was. FO_IO with the system's reason,
 * FO_NO_MEMORY. */
fo_status fo_planner_chakra_write(const char *path, const fo_planner_chakra_operation *operations,
                                  int count, const fo_planner_chakra_fact *facts, int fact_count);

#endif
