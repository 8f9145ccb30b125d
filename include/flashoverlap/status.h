/* Status codes and the text of the last error.
 *
 * Every call that can fail returns an fo_status. Whoever first knows the error also writes one
 * sentence for people: what was found, what was expected, where, and what to do. fo_last_error()
 * hands that sentence out; it belongs to the calling thread and stays valid until the thread's next
 * failing call.
 */
#ifndef FLASHOVERLAP_STATUS_H
#define FLASHOVERLAP_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

/* The only list of codes: the enum, the names and the texts are all made from it. */
#define FO_STATUS_LIST(X)                         \
    X(OK, "success")                              \
    X(IN_PROGRESS, "not finished yet")            \
    X(INVALID, "invalid argument")                \
    X(UNSUPPORTED, "not supported")               \
    X(NO_MEMORY, "out of memory")                 \
    X(IO, "input or output failed")               \
    X(FORMAT, "malformed file")                   \
    X(PEER, "another rank failed")                \
    X(TIMEOUT, "no progress before the deadline") \
    X(INTERRUPTED, "interrupted")                 \
    X(NUMERIC, "not a number or infinite")        \
    X(SCHEDULE, "schedule failed verification")   \
    X(INTERNAL, "internal error")

typedef enum fo_status {
#define FO_STATUS_ENUM(name, text) FO_##name,
    FO_STATUS_LIST(FO_STATUS_ENUM)
#undef FO_STATUS_ENUM
        FO_STATUS_COUNT
} fo_status;

/* "OK", "INVALID", ...; "UNKNOWN" for a value outside the list. Static storage. Any thread. */
const char *fo_status_name(fo_status status);

/* The short text of the list above. Static storage. Any thread. */
const char *fo_status_text(fo_status status);

/* The sentence of this thread's last failing call, "" when there was none. */
const char *fo_last_error(void);

#ifdef __cplusplus
}
#endif
#endif
