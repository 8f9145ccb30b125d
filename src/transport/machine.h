/* What the machine grants this process. */
#ifndef FO_TRANSPORT_MACHINE_H
#define FO_TRANSPORT_MACHINE_H

#include <stddef.h>

/* Bytes of main memory. */
size_t fo_transport_machine_memory(void);
/* Cores this process may use: the affinity mask, limited by the control group's quota; at least 1.
 */
int fo_transport_machine_cores(void);
/* Binds the calling thread, and threads it will start, to the rank's share of the allowed cores,
 * when ranks * threads fill them (threads = cores / ranks) and no quota is in force. Without it the
 * scheduler may put two ranks on one core while another idles. A refusal is ignored. */
void fo_transport_machine_bind(int rank, int ranks, int threads);

#endif
