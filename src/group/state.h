/* What a group holds; shared by the files of this room only. */
#ifndef FO_GROUP_STATE_H
#define FO_GROUP_STATE_H

#include "group/group.h"

struct fo_group {
    fo_endpoint *inner; /* the transport's */
    fo_endpoint *outer; /* with the emulated link around it */
    const fo_kernel *kernel;
    int threads;
    fo_link link;
    fo_device device;
    fo_recorder *recorder; /* NULL: nobody records */
    uint32_t next_tag;
    fo_request *requests; /* [2 * size], of allgather */
};

#endif
