#include "transport/lifeline_wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

#define MS INT64_C(1000000)

/* How long one address may take to answer, a pass over all of them. */
static const int64_t patience_ns[] = {1000 * MS, 3000 * MS, 10000 * MS};

enum { PASSES = sizeof patience_ns / sizeof *patience_ns };

/* ---- addresses ---- */

static bool address_of(const struct sockaddr *from, line_address *to)
{
    memset(to, 0, sizeof *to);
    if (from && from->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)from;
        memcpy(to->bytes, &in->sin_addr, 4);
        return true;
    }
    if (!from || from->sa_family != AF_INET6)
        return false;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)from;
    to->v6 = 1;
    memcpy(to->bytes, &in6->sin6_addr, 16);
    return !IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr); /* means something on its own link only */
}

static line_address loopback_address(bool v6)
{
    line_address address = {.v6 = v6};
    if (v6)
        memcpy(address.bytes, &in6addr_loopback, 16);
    else
        memcpy(address.bytes, &(struct in_addr){htonl(INADDR_LOOPBACK)}, 4);
    return address;
}

static void list_own_addresses(line_offer *offer)
{
    struct ifaddrs *all, *i;
    if (getifaddrs(&all) != 0)
        return;
    for (i = all; i && offer->count < LINE_ADDRESSES; i = i->ifa_next) {
        bool usable = (i->ifa_flags & IFF_UP) && !(i->ifa_flags & IFF_LOOPBACK);
        if (usable && address_of(i->ifa_addr, &offer->addresses[offer->count]))
            offer->count++;
    }
    freeifaddrs(all);
}

static bool same_net(const line_address *a, const line_address *b, const line_address *mask)
{
    bool same = a->v6 == b->v6 && a->v6 == mask->v6;
    for (int i = 0; same && i < (a->v6 ? 16 : 4); i++)
        same = ((a->bytes[i] ^ b->bytes[i]) & mask->bytes[i]) == 0;
    return same;
}

/* 2: on a network of this host; 1: elsewhere; 0: this host has it itself, as bridges of containers do, so it
 * does not lead to another one. */
static int likelihood(const struct ifaddrs *own, const line_address *address)
{
    int best = 1;
    for (; own; own = own->ifa_next) {
        line_address mine, mask;
        if (!address_of(own->ifa_addr, &mine) || mine.v6 != address->v6)
            continue;
        if (memcmp(&mine, address, sizeof mine) == 0)
            return 0;
        if (address_of(own->ifa_netmask, &mask) && same_net(&mine, address, &mask))
            best = 2;
    }
    return best;
}

/* What to try, in this order; the loopback first where rank 0 is on the same host. */
static int order_addresses(const line_offer *offer, bool same_host, line_address *order)
{
    struct ifaddrs *own = NULL;
    int count = 0, listed = offer->count < LINE_ADDRESSES ? offer->count : LINE_ADDRESSES;
    if (same_host) {
        order[count++] = loopback_address(false);
        order[count++] = loopback_address(true);
    }
    if (getifaddrs(&own) != 0)
        own = NULL;
    for (int wanted = 2; wanted >= 0; wanted--)
        for (int i = 0; i < listed; i++)
            if (likelihood(own, &offer->addresses[i]) == wanted)
                order[count++] = offer->addresses[i];
    if (own)
        freeifaddrs(own);
    return count;
}

static socklen_t socket_address(const line_address *address, uint16_t port,
                                struct sockaddr_storage *to)
{
    memset(to, 0, sizeof *to);
    if (address->v6) {
        struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)to;
        in6->sin6_family = AF_INET6;
        in6->sin6_port = htons(port);
        memcpy(&in6->sin6_addr, address->bytes, 16);
        return sizeof *in6;
    }
    struct sockaddr_in *in = (struct sockaddr_in *)to;
    in->sin_family = AF_INET;
    in->sin_port = htons(port);
    memcpy(&in->sin_addr, address->bytes, 4);
    return sizeof *in;
}

/* ---- listening ---- */

static int bound_socket(bool v6)
{
    int fd = socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), no = 0;
    struct sockaddr_in6 any6 = {.sin6_family = AF_INET6};
    struct sockaddr_in any = {.sin_family = AF_INET};
    if (fd < 0)
        return -1;
    int code = v6 ? setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no) |
                        bind(fd, (struct sockaddr *)&any6, sizeof any6)
                  : bind(fd, (struct sockaddr *)&any, sizeof any);
    if (code == 0)
        return fd;
    close(fd);
    return -1;
}

int fo_transport_lifeline_wire_listen(line_offer *offer, int backlog)
{
    struct sockaddr_storage bound;
    socklen_t length = sizeof bound;
    memset(offer, 0, sizeof *offer);
    int fd = bound_socket(true); /* takes both kinds of addresses */
    if (fd < 0)
        fd = bound_socket(false);
    if (fd < 0 || listen(fd, backlog) != 0 ||
        getsockname(fd, (struct sockaddr *)&bound, &length) != 0 ||
        getrandom(offer->key, LINE_KEY, 0) != LINE_KEY) {
        snprintf(offer->why, sizeof offer->why, "%s", strerror(errno));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    offer->port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
                                                    : ((struct sockaddr_in *)&bound)->sin_port);
    list_own_addresses(offer);
    return fd;
}

/* ---- messages ---- */

void fo_transport_lifeline_wire_open(line_conn *conn, int fd)
{
    int yes = 1;
    memset(conn, 0, offsetof(line_conn, in));
    conn->fd = fd;
    conn->rank = -1;
    if (fd >= 0)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

void fo_transport_lifeline_wire_flush(line_conn *conn)
{
    size_t sent = 0;
    while (conn->fd >= 0 && sent < conn->left) {
        ssize_t some = send(conn->fd, conn->out + sent, conn->left - sent, MSG_NOSIGNAL);
        if (some < 0 && errno == EINTR)
            continue;
        if (some < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
            some = (ssize_t)(conn->left - sent); /* nobody will hear it; reading tells why */
        if (some < 0)
            break;
        sent += (size_t)some;
    }
    memmove(conn->out, conn->out + sent, conn->left - sent);
    conn->left -= sent;
}

void fo_transport_lifeline_wire_say(line_conn *conn, line_kind kind, int value, const void *data,
                                    size_t bytes)
{
    line_head head = {.kind = (uint16_t)kind, .value = value};
    head.bytes = (uint16_t)(bytes < LINE_TEXT ? bytes : LINE_TEXT);
    if (conn->fd < 0 || conn->left + sizeof head + head.bytes > sizeof conn->out)
        return;
    memcpy(conn->out + conn->left, &head, sizeof head);
    if (head.bytes)
        memcpy(conn->out + conn->left + sizeof head, data, head.bytes);
    conn->left += sizeof head + head.bytes;
    fo_transport_lifeline_wire_flush(conn);
}

/* Whether a whole message lies at the front; its head. */
static bool is_whole(const line_conn *conn, line_head *head)
{
    if (conn->have < sizeof *head)
        return false;
    memcpy(head, conn->in, sizeof *head);
    return conn->have >= sizeof *head + head->bytes;
}

int fo_transport_lifeline_wire_take(line_conn *conn, line_head *head, const char **data)
{
    memmove(conn->in, conn->in + conn->taken, conn->have - conn->taken);
    conn->have -= conn->taken;
    conn->taken = 0;
    while (!is_whole(conn, head)) {
        if (conn->have >= sizeof *head && head->bytes > LINE_TEXT) {
            errno = EPROTO;
            return -1;
        }
        ssize_t some =
            recv(conn->fd, conn->in + conn->have, sizeof conn->in - conn->have, MSG_DONTWAIT);
        if (some < 0 && errno == EINTR)
            continue;
        if (some < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -1;
        if (some == 0) {
            errno = 0;
            return -1;
        }
        conn->have += (size_t)some;
    }
    conn->taken = sizeof *head + head->bytes;
    *data = conn->in + sizeof *head;
    return 1;
}

void fo_transport_lifeline_wire_close(line_conn *conn)
{
    char rest[256];
    if (conn->fd < 0)
        return;
    shutdown(conn->fd, SHUT_WR);
    /* unread bytes would turn the end into a reset, which may overtake our last words */
    for (int i = 0; i < 64 && recv(conn->fd, rest, sizeof rest, MSG_DONTWAIT) > 0; i++)
        ;
    close(conn->fd);
    conn->fd = -1;
}

/* ---- connecting ---- */

/* False, with errno, when nothing happened before `until_ns`. */
static bool await(int fd, short what, int64_t until_ns)
{
    struct pollfd poller = {.fd = fd, .events = what};
    for (;;) {
        int64_t left = until_ns - fo_base_clock_ns();
        int ready = left > 0 ? poll(&poller, 1, (int)((left + MS - 1) / MS)) : 0;
        if (ready > 0)
            return true;
        if (ready == 0) {
            errno = ETIMEDOUT;
            return false;
        }
        if (errno != EINTR)
            return false;
    }
}

/* Whether who answers is rank 0 of this job. */
static bool is_welcome(line_conn *conn, int64_t until_ns)
{
    line_head head;
    const char *data;
    int found;
    while ((found = fo_transport_lifeline_wire_take(conn, &head, &data)) == 0)
        if (!await(conn->fd, POLLIN, until_ns))
            return false;
    if (found > 0 && head.kind == LINE_WELCOME)
        return true;
    errno = found < 0 && errno ? errno : EPROTO;
    return false;
}

static bool try_address(const line_address *address, const line_offer *offer, int rank,
                        int64_t until_ns, line_conn *conn)
{
    struct sockaddr_storage to;
    socklen_t length = socket_address(address, offer->port, &to);
    int error = 0;
    socklen_t error_length = sizeof error;
    fo_transport_lifeline_wire_open(conn, socket(to.ss_family,
                                                 SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (conn->fd < 0)
        return false;
    conn->rank = 0;
    bool connected = connect(conn->fd, (struct sockaddr *)&to, length) == 0;
    if (!connected && (errno == EINPROGRESS || errno == EINTR) &&
        await(conn->fd, POLLOUT, until_ns)) {
        getsockopt(conn->fd, SOL_SOCKET, SO_ERROR, &error, &error_length);
        connected = error == 0;
        errno = error;
    }
    if (connected) {
        fo_transport_lifeline_wire_say(conn, LINE_HELLO, rank, offer->key, LINE_KEY);
        if (is_welcome(conn, until_ns))
            return true;
    }
    error = errno;
    close(conn->fd);
    conn->fd = -1;
    errno = error;
    return false;
}

static void describe(const line_address *address, int error, char *text, size_t bytes)
{
    char name[INET6_ADDRSTRLEN] = "?";
    inet_ntop(address->v6 ? AF_INET6 : AF_INET, address->bytes, name, sizeof name);
    size_t length = strlen(text);
    snprintf(text + length, bytes - length, "%s%s: %s", length ? ", " : "", name, strerror(error));
}

bool fo_transport_lifeline_wire_connect(const line_offer *offer, int rank, bool same_host,
                                        int64_t limit_ns, line_conn *conn, char *why, size_t bytes)
{
    line_address order[LINE_ADDRESSES + 2];
    int count = order_addresses(offer, same_host, order);
    int64_t end = fo_base_clock_ns() + limit_ns;
    if (count == 0) {
        snprintf(why, bytes, "it has no address but the loopback");
        return false;
    }
    for (int pass = 0; pass < PASSES; pass++) {
        why[0] = 0;
        for (int i = 0; i < count; i++) {
            int64_t now = fo_base_clock_ns(), until = now + patience_ns[pass];
            if (now >= end)
                return false;
            if (try_address(&order[i], offer, rank, until < end ? until : end, conn))
                return true;
            describe(&order[i], errno, why, bytes);
        }
        poll(NULL, 0, pass + 1 < PASSES ? 100 : 0);
    }
    return false;
}
