/* What the machine grants this process. */
#ifndef FO_TRANSPORT_MACHINE_H
#define FO_TRANSPORT_MACHINE_H

#include <stddef.h>

/* Bytes of main memory. */
size_t fo_transport_machine_memory(void);
/* Cores this process may use: the affinity mask, limited by the control group's quota; at least 1. */
int fo_transport_machine_cores(void);
/* With FLASHOVERLAP_BIND=1 in the environment: binds the calling thread, and threads it will start, to
 * the rank's share of the allowed cores, when ranks * threads fill them (threads = cores / ranks) and
 * no quota is in force; a refusal is ignored. Not the default: on an idle machine it changed nothing
 * (under 2 %), and next to other programs a bound rank cannot give way. */
void fo_transport_machine_bind(int rank, int ranks, int threads);

#endif
