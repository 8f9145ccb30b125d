/* What a group holds; shared by the files of this room only. */
#ifndef FO_GROUP_STATE_H
#define FO_GROUP_STATE_H

#include "base/background.h"
#include "group/group.h"

/* Tags of the root below this are its own, what is above is for sub-groups: SPLIT_TAGS each. */
#define FO_GROUP_ROOT_TAGS 0x40000000u
#define FO_GROUP_SPLIT_TAGS 0x00400000u

/* split.c: the machines of a root group, `nodes` of them, or 0: as its places say. FO_INVALID when that does not
 * divide its ranks. */
fo_status fo_group_place(fo_group *group, int nodes);

/* share.c: threads of this rank (0: to be chosen) and the cores they run on. Collective. */
fo_status fo_group_share(fo_group *group, int threads);

struct fo_group {
    fo_endpoint *inner; /* the transport's */
    fo_endpoint *outer; /* with the emulated link around it */
    const fo_kernel *kernel;
    int threads;
    fo_link link;
    fo_device device;
    fo_recorder *recorder;      /* NULL: nobody records */
    uint32_t next_tag, tag_end; /* tags for plans: [next_tag, tag_end) */
    fo_request *requests;       /* [2 * size], of allgather */
    int sharing;                /* ranks, itself among them, that may use this rank's cores */
    int nodes;                  /* machines, with equally many ranks on each, in rank order */
    bool stated;                /* root: their number was given, places do not count */
    fo_background background;   /* of the rank: the root's */
    /* of a group that was split from another */
    fo_group *root; /* itself when it was not */
    int size;
    int *members;    /* [size], ranks of the root; NULL in the root */
    uint32_t splits; /* root: sub-groups made so far */
};

#endif
