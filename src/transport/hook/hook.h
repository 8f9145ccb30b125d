/* What every wrapping transport begins with. */
#ifndef FO_TRANSPORT_HOOK_H
#define FO_TRANSPORT_HOOK_H

#include "transport/transport.h"

typedef struct fo_hook {
    fo_endpoint base; /* first; base.ops points to ops below */
    fo_transport_ops ops;
    fo_endpoint *inner;
    void (*close)(struct fo_hook *); /* frees what the hook owns, the hook too */
} fo_hook;

/* Makes `hook` a wrapper of `inner` that passes everything on. */
void fo_transport_hook_open(fo_hook *hook, fo_endpoint *inner, void (*close)(fo_hook *));

/* The words request->hook[]: the link hook uses those of receives, the fault hook those of sends,
 * so the two may wrap each other. */

#endif
