/* What this build and this machine offer. */
#ifndef FLASHOVERLAP_INFO_H
#define FLASHOVERLAP_INFO_H

#include <stdbool.h>
#include <stdio.h>

#include "flashoverlap/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Prints version, instruction set, kernels, transports, cores and memory to out; json: as one
 * JSON object with version, compiler, isa, cores, memory_bytes and the arrays kernels (name, isa,
 * dtypes, about) and transports (name, about), in order of preference, mpi (paths of the modules found), and
 * job (launcher, rank, size; null without a launcher). FO_IO: out can't be written. */
fo_status fo_info_print(bool json, FILE *out);

#ifdef __cplusplus
}
#endif
#endif
