#include "base/background.h"

#include <stddef.h>

void fo_base_background_add(fo_background *background, fo_background_item *item)
{
    fo_background_item **at = &background->first;
    while (*at)
        at = &(*at)->next;
    item->next = NULL;
    item->listed = true;
    *at = item;
}

void fo_base_background_remove(fo_background *background, fo_background_item *item)
{
    fo_background_item **at = &background->first;
    while (*at && *at != item)
        at = &(*at)->next;
    if (*at)
        *at = item->next;
    item->listed = false;
}

fo_status fo_base_background_advance(fo_background *background, const fo_background_item *except,
                                     bool *moved)
{
    if (background->inside)
        return FO_OK;
    background->inside = true;
    fo_status status = FO_OK;
    for (fo_background_item *item = background->first, *next; item && status == FO_OK;
         item = next) {
        next = item->next; /* the item may take itself out */
        if (item != except)
            status = item->advance(item->arg, moved);
    }
    background->inside = false;
    return status;
}
