/* Groups of a group, and where ranks are.
 *
 * A sub-group lives in the root's endpoints: with the transport's own split where there is one and no link is
 * emulated, otherwise in a window of the root's ranks and tags. So memory, failure, the ports of the emulated link and
 * what goes on in the background are the rank's, whatever group a plan belongs to. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "group/state.h"

/* ---- machines ----------------------------------------------------------------------------------------- */

static int node_of(const fo_group *root, int rank)
{
    const fo_place *places = root->stated ? NULL : root->inner->places;
    return places ? places[rank].node : rank / (root->inner->size / root->nodes);
}

/* Machines of the members (NULL: all), when they are equally many on each and in order, else 1. */
static int count_nodes(const fo_group *root, const int *members, int size)
{
    int nodes = 1, each = 0, before = 0;
    for (int r = 0, here = 0; r < size; r++, here++) {
        int node = node_of(root, members ? members[r] : r);
        if (r == 0)
            before = node;
        if (node < before || (each && here > each))
            return 1;
        if (node == before)
            continue;
        if (each && here != each)
            return 1;
        each = here;
        here = 0;
        before = node;
        nodes++;
    }
    return nodes > 1 && each * nodes != size ? 1 : nodes;
}

fo_status fo_group_place(fo_group *group, int nodes)
{
    int size = group->inner->size;
    group->nodes = 1;
    if (nodes < 0 || nodes > size || (nodes && size % nodes)) {
        int nearest = nodes < 1 ? 1 : nodes > size ? size : nodes;
        while (size % nearest)
            nearest--;
        return fo_base_error(FO_INVALID,
                             "%d ranks can't be spread evenly over --nodes %d machines, the "
                             "nearest that works is --nodes %d",
                             size, nodes, nearest);
    }
    group->stated = nodes > 0;
    group->nodes = nodes ? nodes : count_nodes(group, NULL, size);
    return FO_OK;
}

int fo_group_nodes(const fo_group *group)
{
    return group->nodes;
}

int fo_group_node(const fo_group *group, int rank)
{
    return rank / (fo_group_size(group) / group->nodes);
}

const char *fo_group_host(const fo_group *group, int rank)
{
    const fo_group *root = group->root;
    return root->inner->places
               ? root->inner->places[group->members ? group->members[rank] : rank].host
               : "";
}

/* ---- splitting ---------------------------------------------------------------------------------------- */

/* The window of a parent's endpoint. */
static fo_status open_subset(fo_group *sub, fo_endpoint *of, uint32_t number, fo_endpoint **out)
{
    uint32_t first = FO_GROUP_ROOT_TAGS + number * FO_GROUP_SPLIT_TAGS;
    return fo_transport_hook_subset(of, sub->members, sub->size, first, FO_GROUP_SPLIT_TAGS, out);
}

static fo_status open_endpoints(fo_group *sub, uint32_t number)
{
    fo_group *root = sub->root;
    fo_endpoint *inner = root->inner;
    static const fo_link off = {0};
    if (inner->ops->split) {
        fo_status status = inner->ops->split(inner, sub->members, sub->size, &sub->inner);
        return status == FO_OK ? fo_transport_hook_link(sub->inner, &off, &sub->outer) : status;
    }
    fo_status status = open_subset(sub, inner, number, &sub->inner);
    return status == FO_OK ? open_subset(sub, root->outer, number, &sub->outer) : status;
}

/* What every rank tells the others when a group is split. */
typedef struct wish {
    int color;
    uint32_t splits; /* so far: the new group takes a number that none of its ranks has used */
} wish;

static fo_status gather_members(fo_group *group, int color, fo_group *sub, uint32_t *number)
{
    int size = fo_group_size(group);
    wish mine = {color, group->root->splits}, *all = malloc((size_t)size * sizeof *all);
    sub->members = malloc((size_t)size * sizeof *sub->members);
    fo_status status = FO_OK;
    *number = 0;
    if (!all || !sub->members)
        status = fo_base_error(FO_NO_MEMORY, "no memory to split a group of %d ranks", size);
    if (status == FO_OK)
        status = fo_group_allgather(group, &mine, sizeof mine, all);
    for (int r = 0; status == FO_OK && r < size; r++) {
        if (all[r].color == color)
            sub->members[sub->size++] = group->members ? group->members[r] : r;
        if (all[r].splits > *number)
            *number = all[r].splits;
    }
    group->root->splits = *number + 1;
    free(all);
    uint32_t most = (FO_GROUP_FIRST_OWN_TAG - FO_GROUP_ROOT_TAGS) / FO_GROUP_SPLIT_TAGS;
    if (status != FO_OK || *number < most)
        return status;
    return fo_base_error(FO_UNSUPPORTED, "a group was split %u times, expected at most %u", *number,
                         most);
}

fo_status fo_group_split(fo_group *group, int color, fo_group **out)
{
    *out = NULL;
    uint32_t number;
    if (color < 0)
        return fo_base_error(FO_INVALID, "a group was split by color %d, expected 0 or more",
                             color);
    fo_group *sub = calloc(1, sizeof *sub);
    if (!sub)
        return fo_base_error(FO_NO_MEMORY, "no memory for a group");
    sub->root = group->root;
    sub->kernel = group->kernel;
    sub->threads = group->threads;
    sub->link = group->link;
    sub->device = group->device;
    sub->tag_end = FO_GROUP_SPLIT_TAGS / 2;
    fo_status status = gather_members(group, color, sub, &number);
    if (status == FO_OK)
        status = open_endpoints(sub, number);
    if (status == FO_OK) {
        sub->nodes = count_nodes(sub->root, sub->members, sub->size);
        sub->requests = calloc(2 * (size_t)sub->size, sizeof *sub->requests);
        if (!sub->requests)
            status = fo_base_error(FO_NO_MEMORY, "no memory for a group of %d ranks", sub->size);
    }
    if (status != FO_OK) {
        fo_group_close(sub);
        return status;
    }
    *out = sub;
    return FO_OK;
}

void fo_group_close(fo_group *sub)
{
    if (!sub)
        return;
    fo_transport_hook_destroy(sub->outer);
    if (sub->inner && sub->root->inner->ops->split)
        sub->root->inner->ops->close(sub->inner);
    else
        fo_transport_hook_destroy(sub->inner);
    free(sub->members);
    free(sub->requests);
    free(sub);
}

/* ---- the background ----------------------------------------------------------------------------------- */

fo_background *fo_group_background(fo_group *group)
{
    return &group->root->background;
}

fo_status fo_group_progress(fo_group *group)
{
    bool moved = false;
    fo_background *background = fo_group_background(group);
    return background->first ? fo_base_background_advance(background, NULL, &moved) : FO_OK;
}
