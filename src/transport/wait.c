/* Waiting for one request, over any endpoint. */
#include "base/clock.h"
#include "base/error.h"
#include "transport/transport.h"

/* One sleep at most: what a wake-up was missed for is found then. */
enum { WAIT_NS = 100000000 };

fo_status fo_transport_wait_request(fo_endpoint *endpoint, fo_request *request, const char *what)
{
    int64_t deadline = 0; /* what is done already costs no look at the clock */
    for (;;) {
        fo_status status = endpoint->ops->test(endpoint, request);
        if (status != FO_IN_PROGRESS)
            return status;
        int64_t now = fo_base_clock_ns();
        if (!deadline)
            deadline = now + endpoint->deadline_ns;
        if (now >= deadline)
            break;
        status = endpoint->ops->wait(endpoint, now + WAIT_NS < deadline ? now + WAIT_NS : deadline);
        if (status != FO_OK)
            return status;
    }
    return fo_base_error(FO_TIMEOUT,
                         "%s: rank %d waited %.1f s for the %s rank %d (tag 0x%x, %zu bytes), no "
                         "progress before the deadline; is that rank alive and at the same point?",
                         what, endpoint->rank, (double)endpoint->deadline_ns * 1e-9,
                         request->kind == FO_REQUEST_SEND ? "receive of what it sends by"
                                                          : "message of",
                         request->peer, request->tag, request->bytes);
}
