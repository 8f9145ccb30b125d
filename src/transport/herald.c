/* The herald: a pipe, and the process at its other end. Nothing but system calls happens there: the program may have had
 * threads when it forked. */
#include "transport/herald.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

/* A process that has not noticed a failure after this long is stuck. */
#define STUCK_NS INT64_C(4000000000)

/* And one that has not ended so long after its goodbye. */
#define LEAVE_NS INT64_C(10000000000)
/* How long the first to have died gives those who live to say more. */
#define YIELD_NS 60000000
/* A line is said once: by whoever has this socket, which is kept for as long as others may come. */
#define KEEP_NS 400000000

enum { LINE = 1400, ADVICE = 600, KEY = 64 };

typedef enum herald_kind {
    HERALD_HOLD,
    HERALD_ADVISE,
    HERALD_HEARD,
    HERALD_SAY,
    HERALD_KEY,
    HERALD_NAME,
    HERALD_GOODBYE
} herald_kind;

/* One write, which a pipe keeps together: shorter than PIPE_BUF. */
typedef struct herald_message {
    int32_t kind;
    char text[LINE];
} herald_message;

typedef struct herald {
    pid_t parent;
    char held[LINE], advice[ADVICE], key[KEY], name[LINE];
    bool spoken, left;
    bool heard;      /* the program knows of the failure */
    int64_t kill_at; /* 0: not */
} herald;

static struct {
    pid_t pid; /* of the process that has it */
    int pipe;
    atomic_bool holds;
} own = {.pipe = -1};

/* ---- the herald's process ---------------------------------------------------------------------------- */

/* True for the first herald of this host and job to ask; names in the abstract space end with their processes. */
static bool first(const herald *h, char what)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t bytes = strlen(h->key);
    if (!bytes)
        return true;
    address.sun_path[1] = what;
    memcpy(address.sun_path + 2, h->key, bytes);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0); /* stays open */
    return fd < 0 || bind(fd, (struct sockaddr *)&address,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 2 + bytes)) == 0;
}

static void rest(long ns)
{
    const struct timespec time = {.tv_nsec = ns};
    nanosleep(&time, NULL);
}

static void speak(herald *h, const char *line, const char *advice)
{
    char text[LINE + ADVICE + 2];
    size_t bytes = strlen(line), more = strlen(advice);
    if (h->spoken || !bytes || !first(h, 's'))
        return;
    memcpy(text, line, bytes);
    memcpy(text + bytes, advice, more);
    text[bytes + more] = '\n';
    h->spoken = true;
    (void)!write(STDERR_FILENO, text, bytes + more + 1);
}

static void obey(herald *h, const herald_message *message)
{
    switch ((herald_kind)message->kind) {
    case HERALD_HOLD:
        memcpy(h->held, message->text, sizeof h->held);
        if (!h->heard && !h->left)
            h->kill_at = fo_base_clock_ns() + STUCK_NS;
        break;
    case HERALD_ADVISE: memcpy(h->advice, message->text, sizeof h->advice); break;
    case HERALD_HEARD:
        h->heard = true;
        if (!h->left)
            h->kill_at = 0;
        break;
    case HERALD_SAY: speak(h, message->text, ""); break;
    case HERALD_KEY: /* another group: the failure before it is over */
        memcpy(h->key, message->text, KEY - 1);
        h->heard = false;
        h->held[0] = 0;
        break;
    case HERALD_NAME: memcpy(h->name, message->text, sizeof h->name); break;
    case HERALD_GOODBYE:
        h->left = true;
        h->kill_at = fo_base_clock_ns() + LEAVE_NS;
        break;
    }
}

/* Reads until the other end is closed, which the kernel does however the process ends. */
static void serve(herald *h, int from)
{
    for (;;) {
        herald_message message;
        struct pollfd wait = {.fd = from, .events = POLLIN};
        int64_t left = h->kill_at ? h->kill_at - fo_base_clock_ns() : 0;
        if (h->kill_at && left <= 0) {
            if (!h->left)
                speak(h, h->held, h->advice);
            kill(h->parent, SIGKILL);
            h->kill_at = 0;
            continue;
        }
        int found = poll(&wait, 1, h->kill_at ? (int)(left / 1000000) + 1 : -1);
        if (found == 0 || (found < 0 && errno == EINTR))
            continue;
        ssize_t bytes = read(from, &message, sizeof message);
        if (bytes < 0 && errno == EINTR)
            continue;
        if (bytes != (ssize_t)sizeof message)
            break;
        obey(h, &message);
    }
}

/* The process has ended. */
static void conclude(herald *h)
{
    if (!h->left)
        speak(h, h->held, h->advice);
    if (!h->left && !*h->held && *h->name && first(h, 'd')) {
        rest(YIELD_NS);
        speak(h, h->name, h->advice);
    }
    if (h->spoken || !h->left)
        rest(KEEP_NS); /* nobody says it again */
}

static void run(pid_t parent, int from)
{
    static herald h;
    sigset_t none;
    sigemptyset(&none);
    setsid(); /* what is sent to the group of the program is not for this one */
    prctl(PR_SET_NAME, "fo-herald", 0UL, 0UL, 0UL);
    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL);
    signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_SETMASK, &none, NULL);
    int kept = fcntl(from, F_DUPFD, 3); /* all else is closed: connections end with the program */
    if (kept != 3) {
        dup2(kept, 3);
        kept = 3;
    }
    close(STDIN_FILENO);
    close(STDOUT_FILENO);
    for (int fd = 4; fd < 4096; fd++)
        close(fd);
    h.parent = parent;
    serve(&h, kept);
    conclude(&h);
    _exit(0);
}

/* ---- the program's side -------------------------------------------------------------------------------- */

bool fo_transport_herald_open(void)
{
    int ends[2];
    if (own.pipe >= 0 && own.pid == getpid())
        return true;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    pid_t parent = getpid(), child = fork();
    if (child == 0) { /* its child, so that the program meets no child that is not its own */
        pid_t own_child = fork();
        if (own_child == 0)
            run(parent, ends[0]);
        _exit(own_child < 0);
    }
    int how = 0;
    while (child > 0 && waitpid(child, &how, 0) < 0 && errno == EINTR)
        ;
    close(ends[0]);
    if (child < 0 || how != 0) {
        close(ends[1]);
        return false;
    }
    own.pid = parent;
    own.pipe = ends[1];
    return true;
}

static bool tell(herald_kind kind, const char *text)
{
    herald_message message = {.kind = (int32_t)kind};
    if (own.pipe < 0 || own.pid != getpid())
        return false;
    size_t most = kind == HERALD_ADVISE ? ADVICE : LINE, bytes = text ? strlen(text) : 0;
    if (text)
        memcpy(message.text, text, bytes < most ? bytes : most - 1);
    ssize_t written;
    do
        written = write(own.pipe, &message, sizeof message);
    while (written < 0 && errno == EINTR);
    return written == (ssize_t)sizeof message;
}

void fo_transport_herald_hold(const char *line)
{
    tell(HERALD_HOLD, line);
    atomic_store(&own.holds, true);
}

void fo_transport_herald_advise(const char *advice)
{
    tell(HERALD_ADVISE, advice);
}

void fo_transport_herald_heard(void)
{
    tell(HERALD_HEARD, NULL);
}

bool fo_transport_herald_say(const char *line)
{
    return tell(HERALD_SAY, line);
}

void fo_transport_herald_meet(const void *key, int bytes, const char *name)
{
    char text[KEY] = "";
    for (int i = 0; i < bytes && 2 * i < KEY - 2; i++) {
        int byte = ((const unsigned char *)key)[i];
        text[2 * i] = "0123456789abcdef"[byte >> 4];
        text[2 * i + 1] = "0123456789abcdef"[byte & 15];
    }
    tell(HERALD_KEY, text);
    tell(HERALD_NAME, name);
}

void fo_transport_herald_goodbye(void)
{
    tell(HERALD_GOODBYE, NULL);
}

bool fo_transport_herald_holds(void)
{
    return atomic_load(&own.holds);
}
