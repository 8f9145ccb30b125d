/* What the rooms above need of a group beyond the public header. */
#ifndef FO_GROUP_GROUP_H
#define FO_GROUP_GROUP_H

#include "base/background.h"
#include "base/recorder.h"
#include "flashoverlap/group.h"
#include "kernel/kernel.h"
#include "transport/transport.h"

/* Tags from here on are the group's own. */
#define FO_GROUP_FIRST_OWN_TAG 0xFFFF0000u

/* The name of the transport that a group with these options is started with. */
const char *fo_group_choose(const fo_group_options *options);
/* Whether every rank is a process of a launcher's job: what rank 0 writes to memory, only its own process sees. */
bool fo_group_joined(const fo_group *group);
/* Ranks on this rank's machine. */
int fo_group_local_ranks(const fo_group *group);
/* Whether more ranks than cores are where this rank is. */
bool fo_group_crowded(const fo_group *group);
/* What a launcher should be told so that ranks get the cores there are; "": all is well. */
void fo_group_hint(const fo_group *group, char *text, size_t size);

/* The endpoint for plans, with the emulated link. Owned by the group. */
fo_endpoint *fo_group_endpoint(fo_group *group);
/* The kernels the group was started with. */
const fo_kernel *fo_group_kernel_ops(const fo_group *group);
/* The transport's own endpoint, without the emulated link: for what is not measured. */
fo_endpoint *fo_group_inner(fo_group *group);
/* Where this rank's recorder is, while it records. */
fo_recorder **fo_group_recorder(fo_group *group);
/* What goes on in the background of this rank, in all its groups. */
fo_background *fo_group_background(fo_group *group);
/* The first of `count` tags in a row, not handed out before; the same on every rank that asks for
 * the same counts in the same order. */
uint32_t fo_group_next_tag(fo_group *group, uint32_t count);

#endif
