/* The transports built in. */
#include <string.h>

#include "transport/mpi/mpi.h"
#include "transport/self/self.h"
#include "transport/shm/shm.h"

static const fo_transport *const transports[] = {
    &fo_transport_shm, &fo_transport_self, &fo_transport_mpi, /* in a job of a launcher only */
};

const fo_transport *fo_transport_at(int index)
{
    int count = (int)(sizeof transports / sizeof *transports);
    return index >= 0 && index < count ? transports[index] : NULL;
}

const fo_transport *fo_transport_find(const char *name)
{
    for (int i = 0; fo_transport_at(i); i++)
        if (strcmp(fo_transport_at(i)->ops->name, name) == 0)
            return fo_transport_at(i);
    return NULL;
}
