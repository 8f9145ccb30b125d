/* Lifelines between processes on this machine: who is dead, stopped, gone or only slow, and who says so. What a
 * rank sees is written to memory all share; the parent carries the exchanges and judges. */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/error.h"
#include "transport/lifeline.h"
#include "transport/lifeline_wire.h"

#define MS INT64_C(1000000)

enum {
    RANKS = 8,
    LONG = 30000, /* ms of silence: what ends sooner was not found by it */
    SHORT = 600,
    SOON = 2500, /* ms: the bound of everything that is not silence, generous for busy machines */
};

/* What a rank does once all are connected. */
typedef enum role {
    WAITS,
    KILLED,       /* by signal 9 */
    EXITS,        /* exit(3) */
    EXITS_0,      /* exit(0) */
    ENDS_RAW,     /* _exit(4): no hook runs */
    STOPS,        /* SIGSTOP, is continued later, then waits */
    DECLARES,     /* itself failed */
    BLAMES,       /* rank 1 */
    LEAVES,       /* in order, at once; then exits with 3 */
    FOLLOWS,      /* waits, then exits with 1 without a goodbye */
    FORKS,        /* a child that calls exit(5), then waits */
    FORKS_KILLED, /* dies while a child of it lives */
    RUNS,         /* for 1200 ms, then leaves in order */
} role;

typedef struct seen {
    atomic_int done; /* this rank has written what follows */
    fo_status opened;
    bool failed, speaks;
    int rank;
    int64_t at_ns, silence_0_ns;
    char text[1024];
} seen;

typedef struct shared {
    atomic_int opened;
    _Atomic int64_t acted_ns; /* the last victim's deed */
    atomic_int child;         /* of FORKS_KILLED */
    seen seen[RANKS];
    fo_place places[RANKS];
} shared;

typedef struct plot {
    int ranks, silence_ms;
    role roles[RANKS];
    int late;                                 /* this rank's second exchange comes late; 0: none */
    bool hosts;                               /* every rank on a host of its own, in name */
    void (*spoil)(line_offer *offer, int to); /* what the hub hands on */
    void (*visit)(const line_offer *offer);   /* once all are connected */
} plot;

static shared *all_see;

static void nap(int64_t ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * MS}, NULL);
}

/* ---- a rank ---- */

typedef struct ear {
    int fd, count;
    const plot *scene;
    int rank;
} ear;

static bool move_all(int fd, void *data, size_t bytes, bool out)
{
    char *at = data;
    while (bytes > 0) {
        ssize_t some = out ? write(fd, at, bytes) : read(fd, at, bytes);
        if (some <= 0)
            return false;
        at += some;
        bytes -= (size_t)some;
    }
    return true;
}

static fo_status exchange(void *arg, const void *mine, size_t bytes, void *all)
{
    ear *e = arg;
    if (++e->count == 2 && e->scene->late == e->rank && e->rank > 0)
        nap(1000);
    if (!move_all(e->fd, &bytes, sizeof bytes, true) ||
        !move_all(e->fd, (void *)(uintptr_t)mine, bytes, true) ||
        !move_all(e->fd, all, bytes * (size_t)e->scene->ranks, false))
        return fo_base_error(FO_PEER, "the hub has gone");
    return FO_OK;
}

static void fork_child(bool stays)
{
    pid_t child = fork();
    if (child == 0) {
        if (stays)
            nap(4000);
        exit(5);
    }
    atomic_store(&all_see->child, child);
    if (!stays)
        waitpid(child, NULL, 0);
}

static void act(role what, fo_lifeline *line, int rank)
{
    if (what != WAITS && what != FOLLOWS)
        atomic_store(&all_see->acted_ns, fo_base_clock_ns());
    switch (what) {
    case KILLED: raise(SIGKILL); break;
    case EXITS: exit(3);
    case EXITS_0: exit(0);
    case ENDS_RAW: _exit(4);
    case STOPS: raise(SIGSTOP); break;
    case DECLARES: fo_transport_lifeline_declare(line, rank, "mlp: the losses differ"); break;
    case BLAMES: fo_transport_lifeline_declare(line, 1, "is in the way"); break;
    case FORKS: fork_child(false); break;
    case FORKS_KILLED:
        fork_child(true);
        raise(SIGKILL);
        break;
    default: break;
    }
}

/* Looks at the flag as waiting ranks do. */
static void await_failure(fo_failure *failure, seen *s, int64_t ms)
{
    int64_t until = fo_base_clock_ns() + ms * MS;
    while (!fo_transport_failure_seen(failure) && fo_base_clock_ns() < until)
        nap(1);
    s->at_ns = fo_base_clock_ns();
    s->failed = fo_transport_failure_seen(failure);
}

static void run_rank(const plot *scene, int rank, int fd)
{
    static fo_failure failure;
    fo_lifeline *line;
    ear e = {.fd = fd, .scene = scene, .rank = rank};
    seen *s = &all_see->seen[rank];
    role what = scene->roles[rank];
    fo_lifeline_options options = {.rank = rank,
                                   .size = scene->ranks,
                                   .places = all_see->places,
                                   .silence_ns = scene->silence_ms * MS,
                                   .exchange = exchange,
                                   .exchange_arg = &e};
    s->opened = fo_transport_lifeline_open(&options, &failure, &line);
    atomic_fetch_add(&all_see->opened, 1);
    if (s->opened == FO_OK) {
        while (atomic_load(&all_see->opened) < scene->ranks)
            nap(1);
        if (scene->visit)
            nap(300); /* the visitor comes */
        act(what, line, rank);
        if (what != LEAVES)
            await_failure(&failure, s, what == RUNS ? 1200 : 10000);
        s->speaks = fo_transport_lifeline_speaks(line);
        s->silence_0_ns = fo_transport_lifeline_silence(line, 0);
        if (s->failed) {
            s->rank = failure.rank;
            fo_transport_failure_report(&failure, FO_PEER);
        }
        if (what == FOLLOWS)
            exit(1);
        fo_transport_lifeline_close(line, s->failed);
    }
    snprintf(s->text, sizeof s->text, "%s", fo_last_error());
    atomic_store(&s->done, 1);
    exit(what == LEAVES ? 3 : 0);
}

/* ---- the hub ---- */

static line_offer offer_of_0;

/* One exchange: collects from all, gives to all. Ranks of one scene ask for the same number of bytes. */
static void carry(const plot *scene, const int *fds, bool first)
{
    static char all[RANKS][4096], copy[RANKS * 4096];
    size_t bytes = 0, n = (size_t)scene->ranks;
    for (int r = 0; r < scene->ranks; r++) {
        assert_true(move_all(fds[r], &bytes, sizeof bytes, false));
        assert_true(bytes <= sizeof all[r]);
        assert_true(move_all(fds[r], all[r], bytes, false));
    }
    if (first) {
        assert_int_equal(bytes, sizeof offer_of_0);
        memcpy(&offer_of_0, all[0], bytes);
    }
    for (int r = 0; r < scene->ranks; r++) {
        for (size_t i = 0; i < n; i++)
            memcpy(copy + i * bytes, all[i], bytes);
        if (first && scene->spoil) {
            line_offer offer = offer_of_0;
            scene->spoil(&offer, r);
            memcpy(copy, &offer, sizeof offer);
        }
        assert_true(move_all(fds[r], copy, bytes * n, true));
    }
}

/* Ranks that still run after `ms` are killed: the test fails. */
static void await_all(pid_t *pids, int ranks, int64_t ms)
{
    int64_t until = fo_base_clock_ns() + ms * MS;
    for (int left = ranks; left > 0; nap(1)) {
        bool late = fo_base_clock_ns() > until;
        for (int r = 0; r < ranks; r++) {
            if (!pids[r])
                continue;
            if (late)
                kill(pids[r], SIGKILL);
            if (waitpid(pids[r], NULL, late ? 0 : WNOHANG) == pids[r]) {
                pids[r] = 0;
                left--;
            }
        }
        if (late)
            fail_msg("a rank has not ended");
    }
}

/* Those that were stopped go on once all that wait have seen it. */
static void continue_stopped(const plot *scene, const pid_t *pids)
{
    int64_t until = fo_base_clock_ns() + 10000 * MS;
    for (int r = 0; r < scene->ranks; r++)
        while (scene->roles[r] == WAITS && !atomic_load(&all_see->seen[r].done) &&
               fo_base_clock_ns() < until)
            nap(1);
    for (int r = 0; r < scene->ranks; r++)
        if (scene->roles[r] == STOPS)
            kill(pids[r], SIGCONT);
}

static void play(const plot *scene)
{
    int fds[RANKS];
    pid_t pids[RANKS];
    all_see =
        mmap(NULL, sizeof *all_see, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(all_see != MAP_FAILED);
    fflush(NULL);
    for (int r = 0; r < scene->ranks; r++) {
        fo_place *place = &all_see->places[r];
        place->node = scene->hosts ? r : 0;
        snprintf(place->host, sizeof place->host, "host%d", place->node);
    }
    for (int r = 0; r < scene->ranks; r++) {
        int pair[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        pids[r] = fork();
        if (pids[r] == 0) {
            close(pair[0]);
            run_rank(scene, r, pair[1]);
        }
        close(pair[1]);
        fds[r] = pair[0];
        all_see->places[r].pid = pids[r]; /* before the first exchange */
    }
    carry(scene, fds, true);
    carry(scene, fds, false);
    while (atomic_load(&all_see->opened) < scene->ranks)
        nap(1);
    if (scene->visit)
        scene->visit(&offer_of_0);
    continue_stopped(scene, pids);
    await_all(pids, scene->ranks, 15000);
    for (int r = 0; r < scene->ranks; r++)
        close(fds[r]);
    if (all_see->child)
        kill(all_see->child, SIGKILL);
}

static void done(void)
{
    munmap(all_see, sizeof *all_see);
}

/* ---- judging ---- */

static void assert_says(const seen *s, const char *part)
{
    if (!strstr(s->text, part))
        fail_msg("expected a sentence with \"%s\", found \"%s\"", part, s->text);
}

static bool survives(role what)
{
    return what == WAITS || what == DECLARES || what == BLAMES || what == STOPS || what == FORKS;
}

/* All that live saw the same failure within `ms`, of `rank`; one of them speaks. */
static void assert_failure(const plot *scene, int rank, const char *part, int64_t ms)
{
    int speakers = 0;
    for (int r = 0; r < scene->ranks; r++) {
        const seen *s = &all_see->seen[r];
        assert_int_equal(s->opened, FO_OK);
        if (!survives(scene->roles[r]))
            continue;
        if (!s->done || !s->failed || s->rank != rank)
            fail_msg("N = %d, rank %d: done %d, failure of rank %d (%s), expected of rank %d (%s)",
                     scene->ranks, r, s->done, s->failed ? s->rank : -1, s->text, rank, part);
        assert_says(s, part);
        speakers += s->speaks;
        if (scene->roles[r] != STOPS && s->at_ns - all_see->acted_ns > ms * MS)
            fail_msg("N = %d, rank %d knew it after %lld ms, expected within %lld", scene->ranks, r,
                     (long long)((s->at_ns - all_see->acted_ns) / MS), (long long)ms);
    }
    assert_int_equal(speakers, 1);
}

static const int counts[] = {2, 3, 8};

static plot with(int ranks, int silence_ms, int rank, role what)
{
    plot s = {.ranks = ranks, .silence_ms = silence_ms};
    s.roles[rank] = what;
    return s;
}

static void check_everywhere(role what, int silence_ms, const char *part, int64_t ms)
{
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        for (int end = 0; end < 2; end++) {
            int victim = end ? counts[c] - 1 : 0;
            plot s = with(counts[c], silence_ms, victim, what);
            play(&s);
            assert_failure(&s, victim, part, ms);
            done();
        }
    }
}

/* ---- cases ---- */

static void test_killed(void **state)
{
    (void)state;
    check_everywhere(KILLED, LONG, "closed without a goodbye", SOON);
}

static void test_ends_raw(void **state)
{
    (void)state;
    check_everywhere(ENDS_RAW, LONG, "closed without a goodbye", SOON);
}

static void test_exit_code(void **state)
{
    (void)state;
    check_everywhere(EXITS, LONG, "exited with code 3 before it had finished", SOON);
    plot s = with(3, LONG, 1, EXITS_0);
    play(&s);
    assert_failure(&s, 1, "exited with code 0", SOON);
    done();
}

/* Found by silence, neither before nor much after; when it goes on it learns of it and ends. */
static void test_stopped(void **state)
{
    (void)state;
    check_everywhere(STOPS, SHORT, "it is stopped, or its network is down", SHORT + SOON);
    plot s = with(3, SHORT, 2, STOPS);
    play(&s);
    assert_true(all_see->seen[0].at_ns - all_see->acted_ns > (SHORT - 100) * MS);
    done();
}

/* When all other hosts fall silent together it is rank 0 that is cut off; two ranks of one host are not all. */
static void test_cut_off(void **state)
{
    (void)state;
    plot s = with(3, SHORT, 1, STOPS);
    s.roles[2] = STOPS;
    s.hosts = true;
    play(&s);
    assert_failure(&s, 0, "rank 0 on host0: has heard of no other host for 0.", SHORT + SOON);
    done();
    s = with(4, SHORT, 3, STOPS);
    s.roles[1] = STOPS;
    s.hosts = true;
    play(&s);
    int first = all_see->seen[0].rank;
    assert_true(first == 1 || first == 3);
    assert_failure(&s, first, "it is stopped, or its network is down", SHORT + SOON);
    done();
}

static void test_declared(void **state)
{
    (void)state;
    check_everywhere(DECLARES, LONG, "mlp: the losses differ", SOON);
    for (int by = 0; by < 3; by++) {
        plot s = with(3, LONG, by, BLAMES);
        play(&s);
        assert_failure(&s, 1, "rank 1: is in the way", SOON);
        done();
    }
}

static void test_names_the_host(void **state)
{
    (void)state;
    plot s = with(3, LONG, 1, KILLED);
    s.hosts = true;
    play(&s);
    assert_failure(&s, 1, "rank 1 on host1: died (pid ", SOON);
    char sentence[128];
    snprintf(sentence, sizeof sentence,
             "rank 1 on host1: died (pid %lld): its connection closed without a goodbye",
             (long long)all_see->places[1].pid);
    assert_string_equal(all_see->seen[2].text, sentence);
    done();
}

/* Two at once: either may be first, but all say the same. */
static void test_two_deaths(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        plot s = with(5, LONG, 1, i % 2 ? EXITS : KILLED);
        s.roles[3] = KILLED;
        play(&s);
        int first = all_see->seen[0].rank;
        assert_true(first == 1 || first == 3);
        assert_failure(&s, first, first == 1 && i % 2 ? "exited with code 3" : "died", SOON);
        done();
    }
}

/* Those that end without a goodbye because of a failure are not its cause. */
static void test_follows_are_no_cause(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        plot s = with(6, LONG, 4, i % 2 ? KILLED : DECLARES);
        s.roles[1] = s.roles[2] = s.roles[3] =
            FOLLOWS; /* processed in rank order they'd come first */
        play(&s);
        assert_int_equal(all_see->seen[0].rank, 4);
        assert_int_equal(all_see->seen[5].rank, 4);
        assert_true(all_see->seen[0].speaks && !all_see->seen[5].speaks);
        done();
    }
    plot s = with(4, LONG, 2, KILLED);
    s.roles[0] = FOLLOWS;
    play(&s);
    assert_int_equal(all_see->seen[1].rank, 2);
    assert_int_equal(all_see->seen[3].rank, 2);
    done();
}

static void assert_nothing_failed(const plot *scene)
{
    for (int r = 0; r < scene->ranks; r++) {
        const seen *s = &all_see->seen[r];
        if (s->opened != FO_OK || !s->done || s->failed)
            fail_msg("rank %d: \"%s\", expected nothing to fail", r, s->text);
    }
}

/* Who has said goodbye may do what it likes, also rank 0; the others run on for longer than the silence. */
static void test_leaving_is_no_death(void **state)
{
    (void)state;
    for (int who = 0; who < 3; who++) {
        plot s = {.ranks = 3, .silence_ms = SHORT, .roles = {RUNS, RUNS, RUNS}};
        s.roles[who] = LEAVES;
        play(&s);
        assert_nothing_failed(&s);
        for (int r = 0; r < 3; r++) /* beats come about every 60 ms */
            if (r != who && who != 0)
                assert_true(all_see->seen[r].silence_0_ns < SHORT * MS);
        done();
    }
    plot s = with(4, LONG, 1, LEAVES); /* and the rest is watched as before */
    s.roles[2] = KILLED;
    play(&s);
    assert_failure(&s, 2, "died", SOON);
    done();
}

static void test_late_rank(void **state)
{
    (void)state;
    plot s = {.ranks = 3, .silence_ms = SHORT, .roles = {RUNS, RUNS, RUNS}, .late = 2};
    play(&s);
    assert_nothing_failed(&s);
    done();
}

/* A child's exit is not the rank's, and a child does not keep its parent's connection. */
static void test_forked_children(void **state)
{
    (void)state;
    for (int who = 0; who < 2; who++) {
        plot s = {.ranks = 2, .silence_ms = LONG, .roles = {RUNS, RUNS}};
        play(&s);
        assert_nothing_failed(&s);
        done();
        s = with(3, LONG, who, FORKS_KILLED);
        play(&s);
        assert_failure(&s, who, "died", SOON);
        done();
    }
}

/* ---- strangers ---- */

static int knock(const line_offer *offer)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(offer->port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static void hello(int fd, const uint8_t *key, int rank, uint16_t bytes)
{
    line_head head = {.kind = LINE_HELLO, .bytes = bytes, .value = rank};
    char message[sizeof head + LINE_KEY];
    memcpy(message, &head, sizeof head);
    memcpy(message + sizeof head, key, LINE_KEY);
    assert_true(send(fd, message, sizeof message, MSG_NOSIGNAL) > 0);
}

/* Dropped without a word. */
static void assert_hung_up(int fd)
{
    char byte;
    struct timeval limit = {.tv_sec = 3};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ssize_t found = recv(fd, &byte, 1, 0);
    assert_true(found == 0 || (found < 0 && errno == ECONNRESET));
    close(fd);
}

static void visit_badly(const line_offer *offer)
{
    uint8_t wrong[LINE_KEY];
    static const char web[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    memcpy(wrong, offer->key, sizeof wrong);
    wrong[LINE_KEY - 1] ^= 1;
    int idle[20], half = knock(offer);
    for (int i = 0; i < 20; i++)
        idle[i] = knock(offer);
    assert_int_equal(send(half, "\1\0\20", 3, MSG_NOSIGNAL), 3);
    int fd = knock(offer);
    hello(fd, wrong, 1, LINE_KEY);
    assert_hung_up(fd);
    fd = knock(offer);
    assert_true(send(fd, web, sizeof web, MSG_NOSIGNAL) > 0);
    assert_hung_up(fd);
    static const int taken[] = {0, 1, -1, 3, INT32_MAX}; /* the key is right, the rank is not */
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        fd = knock(offer);
        hello(fd, offer->key, taken[i], LINE_KEY);
        assert_hung_up(fd);
    }
    fd = knock(offer);
    hello(fd, offer->key, 1, 65535); /* longer than any message */
    assert_hung_up(fd);
    for (int i = 0; i < 20; i++)
        close(idle[i]);
    close(half);
}

static void test_strangers(void **state)
{
    (void)state;
    plot s = {.ranks = 3, .silence_ms = LONG, .roles = {RUNS, RUNS, RUNS}, .visit = visit_badly};
    play(&s);
    assert_nothing_failed(&s);
    done();
}

/* ---- what cannot be opened ---- */

static void spoil_port(line_offer *offer, int to)
{
    if (to == 2)
        offer->port = 1; /* nobody listens there */
}

static void spoil_key(line_offer *offer, int to)
{
    if (to == 2)
        offer->key[0] ^= 128;
}

static void spoil_listening(line_offer *offer, int to)
{
    (void)to;
    offer->port = 0;
    snprintf(offer->why, sizeof offer->why, "no sockets today");
}

static void test_unreachable(void **state)
{
    (void)state;
    static const struct {
        void (*spoil)(line_offer *, int);
        const char *says;
    } cases[] = {
        {spoil_port, "rank 2 on host0 cannot reach rank 0 on host0, port 1, over TCP (127.0.0.1: "
                     "Connection refused"},
        {spoil_key, "rank 2 on host0 cannot reach rank 0"},
        {spoil_listening, "rank 0 on host0 cannot listen for the others: no sockets today"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        plot s = {.ranks = 4, .silence_ms = LONG, .spoil = cases[i].spoil};
        play(&s);
        for (int r = 0; r < 4; r++) {
            assert_int_equal(all_see->seen[r].opened, FO_IO);
            assert_says(&all_see->seen[r], cases[i].says);
        }
        done();
    }
}

/* ---- as threads of one process ---- */

typedef struct crowd {
    int size;
    pthread_barrier_t barrier;
    char all[RANKS][4096];
    fo_place places[RANKS];
    bool declares; /* rank 1, itself */
    atomic_int wrong;
} crowd;

typedef struct member {
    crowd *crowd;
    int rank;
    fo_failure failure;
} member;

static fo_status meet(void *arg, const void *mine, size_t bytes, void *all)
{
    member *m = arg;
    memcpy(m->crowd->all[m->rank], mine, bytes);
    pthread_barrier_wait(&m->crowd->barrier);
    for (int r = 0; r < m->crowd->size; r++)
        memcpy((char *)all + (size_t)r * bytes, m->crowd->all[r], bytes);
    pthread_barrier_wait(&m->crowd->barrier);
    return FO_OK;
}

static void *be_member(void *arg)
{
    member *m = arg;
    crowd *c = m->crowd;
    fo_lifeline *line;
    fo_lifeline_options options = {.rank = m->rank,
                                   .size = c->size,
                                   .places = c->places,
                                   .silence_ns = LONG * MS,
                                   .exchange = meet,
                                   .exchange_arg = m};
    if (fo_transport_lifeline_open(&options, &m->failure, &line) != FO_OK || !line) {
        atomic_fetch_add(&c->wrong, 1);
        return NULL;
    }
    if (c->declares && m->rank == 1)
        fo_transport_lifeline_declare(line, 1, "gave up");
    for (int i = 0; c->declares && i < SOON && !fo_transport_failure_seen(&m->failure); i++)
        nap(1);
    bool failed = fo_transport_failure_seen(&m->failure);
    if (failed != c->declares || (failed && strcmp(m->failure.cause, "gave up") != 0) ||
        fo_transport_lifeline_speaks(line) != (m->rank == 0))
        atomic_fetch_add(&c->wrong, 1);
    pthread_barrier_wait(&c->barrier);
    fo_transport_lifeline_close(line, failed);
    return NULL;
}

static void gather(int size, bool declares)
{
    static crowd c;
    pthread_t threads[RANKS];
    member *members = calloc((size_t)size, sizeof *members);
    c = (crowd){.size = size, .declares = declares};
    pthread_barrier_init(&c.barrier, NULL, (unsigned)size);
    for (int r = 0; r < size; r++) {
        members[r].crowd = &c;
        members[r].rank = r;
        assert_int_equal(pthread_create(&threads[r], NULL, be_member, &members[r]), 0);
    }
    for (int r = 0; r < size; r++)
        pthread_join(threads[r], NULL);
    pthread_barrier_destroy(&c.barrier);
    free(members);
    assert_int_equal(c.wrong, 0);
}

static int entries(const char *folder)
{
    int count = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

static void test_nothing_is_left(void **state)
{
    (void)state;
    gather(3, false);
    int files = entries("/proc/self/fd"), tasks = entries("/proc/self/task");
    for (int i = 0; i < 200; i++)
        gather(i % 10 == 0 ? 8 : 2 + i % 2, i % 3 == 0);
    assert_int_equal(entries("/proc/self/fd"), files);
    for (int i = 0; i < 100 && entries("/proc/self/task") != tasks; i++)
        nap(10); /* a joined thread may still be listed for a moment */
    assert_int_equal(entries("/proc/self/task"), tasks);
}

static void test_one_rank(void **state)
{
    (void)state;
    fo_failure failure = {0};
    fo_lifeline *line = (fo_lifeline *)&failure;
    fo_lifeline_options options = {.size = 1};
    assert_int_equal(fo_transport_lifeline_open(&options, &failure, &line), FO_OK);
    assert_null(line);
    fo_transport_lifeline_declare(line, 0, "nothing");
    assert_true(fo_transport_lifeline_speaks(line));
    assert_int_equal(fo_transport_lifeline_silence(line, 0), -1);
    fo_transport_lifeline_close(line, true);
}

int main(void)
{
    const struct CMUnitTest threads[] = {
        cmocka_unit_test(test_one_rank),
        cmocka_unit_test(test_nothing_is_left),
    };
    const struct CMUnitTest processes[] = {
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_ends_raw),
        cmocka_unit_test(test_exit_code),
        cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_cut_off),
        cmocka_unit_test(test_declared),
        cmocka_unit_test(test_names_the_host),
        cmocka_unit_test(test_two_deaths),
        cmocka_unit_test(test_follows_are_no_cause),
        cmocka_unit_test(test_leaving_is_no_death),
        cmocka_unit_test(test_late_rank),
        cmocka_unit_test(test_forked_children),
        cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_unreachable),
    };
    int failed = 0;
#if !defined(__SANITIZE_THREAD__) /* which watches one process only */
    failed += cmocka_run_group_tests(processes, NULL, NULL);
#else
    (void)processes;
#endif
    return failed + cmocka_run_group_tests(threads, NULL, NULL);
}
