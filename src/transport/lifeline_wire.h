/* What lifelines say to each other: where rank 0 can be reached, framed messages over TCP.
 *
 * A rank connects and says HELLO with the key; rank 0 answers WELCOME; from the rank's first BEAT on the
 * connection is its lifeline. What has no key, or another one, is closed without a word.
 */
#ifndef FO_TRANSPORT_LIFELINE_WIRE_H
#define FO_TRANSPORT_LIFELINE_WIRE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LINE_ADDRESSES = 24, LINE_KEY = 16, LINE_TEXT = 1000 };

typedef enum line_kind {
    LINE_HELLO = 1, /* value: the rank; the key */
    LINE_WELCOME,
    LINE_BEAT,
    LINE_FAILED, /* value: the rank that failed; the cause */
    LINE_EXITED, /* value: the code */
    LINE_GOODBYE
} line_kind;

typedef struct line_head {
    uint16_t kind, bytes; /* bytes that follow, at most LINE_TEXT */
    int32_t value;
} line_head;

typedef struct line_address {
    uint8_t v6, bytes[16]; /* 4 of them when not v6 */
} line_address;

/* Where rank 0 listens: what it gives in the exchange. */
typedef struct line_offer {
    uint8_t key[LINE_KEY];
    uint16_t port; /* 0: it doesn't; why[] says so */
    uint16_t count;
    line_address addresses[LINE_ADDRESSES]; /* none of them loopback */
    char why[128];
} line_offer;

/* One connection, nonblocking. Grows by nothing: what doesn't fit is not said. */
typedef struct line_conn {
    int fd;   /* -1: closed */
    int rank; /* of the other side; -1: it has not said yet */
    int64_t since_ns;
    size_t taken, have, left; /* bytes of in[] handed out, in in[], of out[] unsent */
    bool watched;             /* for room to write */
    struct line_conn *next;
    char in[sizeof(line_head) + LINE_TEXT];
    char out[2 * sizeof(line_head) + LINE_TEXT + 128];
} line_conn;

/* Listens on all interfaces and fills the offer. The socket, or -1 with offer->why. */
int fo_transport_lifeline_wire_listen(line_offer *offer, int backlog);

/* Connects to rank 0 as `rank`, up to its WELCOME; tries every address, likely ones first, `same_host` the
 * loopback too. False: `why` says what was tried. Takes at most about `limit_ns`. */
bool fo_transport_lifeline_wire_connect(const line_offer *offer, int rank, bool same_host,
                                        int64_t limit_ns, line_conn *conn, char *why, size_t bytes);

/* Makes `fd`, just accepted, a connection of nobody yet. */
void fo_transport_lifeline_wire_open(line_conn *conn, int fd);

/* Puts a message behind those unsent and sends what the socket takes. */
void fo_transport_lifeline_wire_say(line_conn *conn, line_kind kind, int value, const void *data,
                                    size_t bytes);
void fo_transport_lifeline_wire_flush(line_conn *conn);

/* The next message: 1, its data in place until the next call; 0: none yet; -1: the connection has ended, errno
 * is 0 when it was closed. */
int fo_transport_lifeline_wire_take(line_conn *conn, line_head *head, const char **data);

/* After what was said has been sent; what has come is dropped. */
void fo_transport_lifeline_wire_close(line_conn *conn);

#endif
