/* Joins the job and adds up the ranks:  hello [RANKS [fail|all|exit|return|late]]  (test_launchers.sh) */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "flashoverlap/job.h"
#include "transport/transport.h"

static fo_status pass_round(fo_endpoint *e, int value, int *received)
{
    fo_request send = {0}, receive = {0};
    int to = (e->rank + 1) % e->size, from = (e->rank + e->size - 1) % e->size;
    fo_status status = e->ops->irecv(e, &receive, from, 1, received, sizeof *received);
    if (status == FO_OK)
        status = e->ops->isend(e, &send, to, 1, &value, sizeof value, 0);
    if (status == FO_OK)
        status = fo_transport_wait_request(e, &receive, "hello");
    return status == FO_OK ? fo_transport_wait_request(e, &send, "hello") : status;
}

static fo_status hello(fo_endpoint *e, void *arg)
{
    const char *how = arg;
    int value = e->rank, sum = 0;
    if (strcmp(how, "all") == 0) /* at the same time */
        return fo_base_error(FO_INVALID, "nobody can do that");
    if (strcmp(how, "fail") == 0 && e->rank == 1)
        return fo_base_error(FO_NUMERIC, "could not go on");
    for (int step = 0; step < e->size; step++) {
        fo_status status = pass_round(e, value, &value);
        if (status != FO_OK)
            return status;
        sum += value;
    }
    if (e->rank == 0)
        printf("sum %d\n", sum);
    return FO_OK;
}

int main(int argc, char **argv)
{
    char *how = argc > 2 ? argv[2] : "";
    fo_job job;
    fo_job_get(&job);
    fo_transport_options options = {.ranks = argc > 1 ? atoi(argv[1]) : job.size, .deadline_s = 20};
    const fo_transport *mpi = fo_transport_find("mpi");
    fo_status status = mpi->launch(&options, hello, how);
    if (status == FO_OK && strcmp(how, "exit") == 0) {
        if (job.rank == 1)
            exit(3); /* others learn of it by the next group */
        status = mpi->launch(&options, hello, how);
    }
    if (status != FO_OK) {
        char line[1200];
        snprintf(line, sizeof line, "hello: %s", fo_last_error());
        fo_job_say(line);
    }
    if (strcmp(how, "late") == 0 &&
        job.rank == 0) /* longer than one that has said goodbye may stay */
        sleep(12);
    if (strcmp(how, "return") == 0)
        return 0;
    return fo_job_end(status == FO_OK ? 0 : 1);
}
