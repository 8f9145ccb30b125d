/* Ranks as threads of the calling process. */
#ifndef FO_TRANSPORT_SELF_H
#define FO_TRANSPORT_SELF_H

#include "transport/transport.h"

extern const fo_transport fo_transport_self;

#endif
