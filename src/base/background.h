/* What goes on in the background of a rank: executions that were started and are moved on by whoever computes or
 * waits. One list a rank, touched by its thread only. */
#ifndef FO_BASE_BACKGROUND_H
#define FO_BASE_BACKGROUND_H

#include <stdbool.h>
#include <stdint.h>

#include "flashoverlap/status.h"

/* Goes on as far as it can without waiting, for about a tile; *moved says that it did something. Takes itself out of
 * the list when it has ended. */
typedef struct fo_background_item {
    fo_status (*advance)(void *arg, bool *moved);
    void *arg;
    struct fo_background_item *next;
    bool listed;
} fo_background_item;

typedef struct fo_background {
    fo_background_item *first;
    bool inside; /* an item is being moved on: it may not move the others on */
    bool busy;   /* a tile is being computed: messages may move, nothing else is computed */
} fo_background;

/* At the end: who was started first goes first. */
void fo_base_background_add(fo_background *background, fo_background_item *item);
void fo_base_background_remove(fo_background *background, fo_background_item *item);

/* Moves all items but `except` on; *moved becomes true when any did something. The first failure. */
fo_status fo_base_background_advance(fo_background *background, const fo_background_item *except,
                                     bool *moved);

#endif
