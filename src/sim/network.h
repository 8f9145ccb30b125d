/* Ports, and the way of a message through them. */
#ifndef FO_SIM_NETWORK_H
#define FO_SIM_NETWORK_H

#include "flashoverlap/status.h"
#include "sim/machine.h"

typedef enum fo_sim_port_kind {
    FO_SIM_PORT_OUT, /* SWITCH: all a rank sends */
    FO_SIM_PORT_IN,  /* SWITCH: all it receives */
    FO_SIM_PORT_PAIR_OUT, /* MESH: a link as its sender uses it; `which`: the receiver's number minus the sender's */
    FO_SIM_PORT_PAIR_IN, /* as its receiver does; `which`: the sender's number minus the receiver's */
    FO_SIM_PORT_LINK,    /* TORUS: `which`: 2 dimension + (0: up, 1: down) */
    FO_SIM_PORT_LINK_END, /* as the receiver uses it */
    FO_SIM_PORT_OUTER_OUT, /* between machines; `owner`: a rank, or the machine's first, `which`: a shared port */
    FO_SIM_PORT_OUTER_IN
} fo_sim_port_kind;

typedef struct fo_sim_port {
    fo_sim_port_kind kind;
    int owner, which;
    int order; /* of messages that come to it in one moment: of those that are equal otherwise, the least first. The
                  same seen from every rank */
} fo_sim_port;

typedef struct fo_sim_route {
    const fo_sim_link *link; /* all ports of a route are alike */
    bool shared;             /* other ranks use its first port too */
    int ports;
} fo_sim_route;

/* FO_INVALID: figures that can't be, sizes that do not fit `ranks`, a period that is none. */
fo_status fo_sim_network_check(const fo_sim_network *network, int ranks, int period);
/* The smallest number of ranks on after which the network looks the same. */
int fo_sim_network_period(const fo_sim_network *network, int ranks);
/* Most ports of a route. */
int fo_sim_network_longest(const fo_sim_network *network);
/* The way from a rank to another one; ports: [fo_sim_network_longest]. */
fo_sim_route fo_sim_network_route(const fo_sim_network *network, int ranks, int from, int to,
                                  fo_sim_port *ports);
/* Seconds that a message occupies a port. */
double fo_sim_network_transfer_s(const fo_sim_link *link, double bytes);

#endif
