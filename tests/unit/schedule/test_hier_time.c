/* Programs in virtual time, on machines with slow links between them: that the slow messages hide behind the
 * computations of a whole machine's shards is what hier is for.
 *
 * A tile takes its rows times the time of a row; so does a message, on the port of its sender and that of its
 * receiver, one message at a time each: an own port a rank inside a machine, and between machines one a rank
 * or one a machine, whose ranks then take turns. Receives copy. Additions take no time. */
#include "unit/schedule/programs.h"

typedef struct network {
    int64_t fast, slow; /* ticks a row */
    bool shared;        /* one slow port a machine */
    int64_t compute;    /* ticks a row, of either computation */
    int nodes, ranks;
} network;

typedef struct progress {
    int64_t ready;   /* rows finished */
    int64_t started; /* rows begun */
    int64_t end;     /* when what was begun is finished; 0: nothing is under way */
    int32_t partner;
} progress;

enum { PORTS = 2 * MAX_RANKS }; /* fast ones by rank, then slow ones */

typedef struct clockwork {
    const set *s;
    network net;
    progress *tasks[MAX_RANKS];
    int32_t lane[MAX_RANKS];
    bool sending[PORTS], receiving[PORTS];
    int64_t served[MAX_RANKS]; /* when the rank last began a slow message */
    int64_t now;
} clockwork;

static bool is_comm(const fo_task *task)
{
    return task->kind == FO_TASK_SEND || task->kind == FO_TASK_RECV;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static bool may(const clockwork *c, int rank, int32_t t, int64_t rows)
{
    const fo_program *p = c->s->programs[rank];
    const fo_task *task = &p->tasks[t];
    for (int32_t d = 0; d < task->dep_count; d++) {
        const fo_dep *dep = &p->deps[task->dep_first + d];
        const fo_task *before = &p->tasks[dep->task];
        int64_t wanted = before->rows;
        if (dep->mode == FO_DEP_ROWS)
            wanted = least(wanted, task->row + rows - before->row);
        if (c->tasks[rank][dep->task].ready < wanted)
            return false;
    }
    return true;
}

/* Whether what is listed before in the same queue has been begun. */
static bool its_turn(const clockwork *c, int rank, int32_t t)
{
    const fo_program *p = c->s->programs[rank];
    for (int32_t u = 0; u < t; u++)
        if (p->tasks[u].kind == p->tasks[t].kind && p->tasks[u].peer == p->tasks[t].peer &&
            p->tasks[u].channel == p->tasks[t].channel &&
            c->tasks[rank][u].started < p->tasks[u].rows)
            return false;
    return true;
}

static bool slow(const clockwork *c, int a, int b)
{
    int locals = c->net.ranks / c->net.nodes;
    return a / locals != b / locals;
}

static int port(const clockwork *c, int rank, bool is_slow)
{
    int locals = c->net.ranks / c->net.nodes;
    return is_slow ? MAX_RANKS + (c->net.shared ? rank / locals : rank) : rank;
}

static void start_tile(clockwork *c, int rank)
{
    const fo_program *p = c->s->programs[rank];
    int32_t *t = &c->lane[rank];
    while (*t < p->task_count &&
           (is_comm(&p->tasks[*t]) || c->tasks[rank][*t].ready == p->tasks[*t].rows))
        ++*t;
    if (*t == p->task_count || c->tasks[rank][*t].end)
        return;
    const fo_task *task = &p->tasks[*t];
    progress *at = &c->tasks[rank][*t];
    int64_t end = least(at->ready + p->stream_rows, task->rows);
    if (!may(c, rank, *t, end))
        return;
    at->started = end;
    at->end = c->now + 1; /* an addition: a tick, so that time goes on */
    if (task->kind == FO_TASK_COMPUTE)
        at->end = c->now + (end - at->ready) * c->net.compute;
}

static void start_message(clockwork *c, int rank, int32_t t)
{
    const fo_program *p = c->s->programs[rank];
    const fo_task *task = &p->tasks[t];
    progress *at = &c->tasks[rank][t], *to = &c->tasks[task->peer][at->partner];
    bool is_slow = slow(c, rank, task->peer);
    int out = port(c, rank, is_slow), in = port(c, task->peer, is_slow);
    int64_t end = least(at->started + p->stream_rows, task->rows);
    if (at->end || at->started == task->rows || c->sending[out] || c->receiving[in] ||
        !its_turn(c, rank, t) || !may(c, rank, t, end) || !its_turn(c, task->peer, at->partner) ||
        !may(c, task->peer, at->partner, end))
        return;
    at->end = c->now + (end - at->started) * (is_slow ? c->net.slow : c->net.fast);
    at->started = to->started = end;
    c->sending[out] = c->receiving[in] = true;
    if (is_slow)
        c->served[rank] = c->now + 1;
}

/* What ends now. */
static void finish(clockwork *c, int rank, int32_t t)
{
    const fo_task *task = &c->s->programs[rank]->tasks[t];
    progress *at = &c->tasks[rank][t];
    if (!at->end || at->end > c->now)
        return;
    at->end = 0;
    at->ready = at->started;
    if (task->kind != FO_TASK_SEND)
        return;
    bool is_slow = slow(c, rank, task->peer);
    c->tasks[task->peer][at->partner].ready = at->ready;
    c->sending[port(c, rank, is_slow)] = c->receiving[port(c, task->peer, is_slow)] = false;
}

/* All that can begin now. Who has waited longest for a port goes first. */
static void begin(clockwork *c)
{
    bool seen[MAX_RANKS] = {false};
    for (int i = 0; i < c->s->ranks; i++) {
        int first = -1;
        for (int r = 0; r < c->s->ranks; r++)
            if (!seen[r] && (first < 0 || c->served[r] < c->served[first]))
                first = r;
        seen[first] = true;
        start_tile(c, first);
        for (int32_t t = 0; t < c->s->programs[first]->task_count; t++)
            if (c->s->programs[first]->tasks[t].kind == FO_TASK_SEND)
                start_message(c, first, t);
    }
}

/* Goes on to the next moment at which something ends; false: nothing is under way. */
static bool tick(clockwork *c)
{
    int64_t next = 0;
    begin(c);
    for (int r = 0; r < c->s->ranks; r++)
        for (int32_t t = 0; t < c->s->programs[r]->task_count; t++)
            if (c->tasks[r][t].end && (!next || c->tasks[r][t].end < next))
                next = c->tasks[r][t].end;
    if (!next)
        return false;
    c->now = next;
    for (int r = 0; r < c->s->ranks; r++)
        for (int32_t t = 0; t < c->s->programs[r]->task_count; t++)
            finish(c, r, t);
    return true;
}

static void match(clockwork *c)
{
    for (int a = 0; a < c->s->ranks; a++)
        for (int b = 0; b < c->s->ranks; b++)
            for (int channel = 0; channel < 2; channel++) {
                const fo_program *p = c->s->programs[a], *q = c->s->programs[b];
                int32_t u = 0;
                for (int32_t t = 0; t < p->task_count; t++) {
                    if (p->tasks[t].kind != FO_TASK_SEND || p->tasks[t].peer != b ||
                        p->tasks[t].channel != channel)
                        continue;
                    while (q->tasks[u].kind != FO_TASK_RECV || q->tasks[u].peer != a ||
                           q->tasks[u].channel != channel)
                        u++;
                    c->tasks[a][t].partner = u++;
                }
            }
}

/* Ticks until the last rank has ended. */
static int64_t makespan(fo_pattern pattern, const char *strategy, network net, int64_t shard_rows)
{
    set s = build_on(net.nodes, pattern, strategy, net.ranks, net.ranks * shard_rows, 1);
    clockwork c = {.s = &s, .net = net};
    for (int r = 0; r < s.ranks; r++) {
        c.tasks[r] = calloc((size_t)s.programs[r]->task_count + 1, sizeof *c.tasks[r]);
        assert_non_null(c.tasks[r]);
    }
    match(&c);
    while (tick(&c))
        ;
    for (int r = 0; r < s.ranks; r++)
        for (int32_t t = 0; t < s.programs[r]->task_count; t++)
            assert_int_equal(c.tasks[r][t].ready, s.programs[r]->tasks[t].rows);
    for (int r = 0; r < s.ranks; r++)
        free(c.tasks[r]);
    destroy(&s);
    return c.now;
}

/* ---- tests -------------------------------------------------------------------------------------------- */

enum { SHARD = 24, TICKS = 100 };

static int computations(fo_pattern pattern)
{
    return pattern == FO_PATTERN_GATHER || pattern == FO_PATTERN_REDUCE ||
                   pattern == FO_PATTERN_WGRAD
               ? 1
               : 2;
}

/* Ticks of additions, which count as one a message here. */
static int64_t additions(network net)
{
    return (int64_t)net.nodes * SHARD;
}

static int64_t computed_alone(fo_pattern pattern, network net)
{
    return (int64_t)computations(pattern) * net.ranks * SHARD * net.compute;
}

/* Links of a rank's own between machines, four times slower than those inside: a shard takes as long as two
 * computations, half a machine's. All of it is hidden; flash waits for every slow hop. */
static void test_hidden(void **state)
{
    static const int shapes[][2] = {{2, 4}, {3, 4}, {4, 4}, {4, 5}, {5, 4}};
    (void)state;
    for (fo_pattern pattern = FO_PATTERN_GATHER; pattern <= FO_PATTERN_BLOCK; pattern++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            for (int subs = 1; subs <= 2; subs++) {
                network net = {.compute = TICKS,
                               .fast = TICKS / 2,
                               .slow = 2 * TICKS,
                               .nodes = shapes[i][0],
                               .ranks = shapes[i][0] * shapes[i][1]};
                int64_t alone = computed_alone(pattern, net);
                int64_t took = makespan(pattern, subs == 1 ? "hier:1" : "hier:2", net, SHARD);
                if (took < alone || took > alone + additions(net))
                    fail_msg("pattern %d, %dx%d: %lld ticks, computations alone %lld", (int)pattern,
                             shapes[i][0], shapes[i][1], (long long)took, (long long)alone);
                if (pattern != FO_PATTERN_GATHER2)
                    assert_true(makespan(pattern, "flash:1", net, SHARD) > alone + alone / 2);
                assert_true(makespan(pattern, "none/hier", net, SHARD) > alone + alone / 6);
            }
}

/* One port a machine for all slow messages of its ranks. flash sends all but one of the N shards over it, hier
 * only those of the other machines: (M - 1) L. It is never slower, and faster as soon as flash is not hidden. */
static void test_shared_port(void **state)
{
    (void)state;
    for (fo_pattern pattern = FO_PATTERN_GATHER; pattern <= FO_PATTERN_BLOCK; pattern++)
        for (int nodes = 2; nodes <= 4; nodes++)
            for (int tenth = 5; tenth <= 30; tenth += 5) {
                network net = {.compute = TICKS,
                               .fast = TICKS / 4,
                               .slow = TICKS * tenth / 10,
                               .shared = true,
                               .nodes = nodes,
                               .ranks = nodes * 4};
                bool both = pattern == FO_PATTERN_JOINT || pattern == FO_PATTERN_BLOCK;
                int64_t alone = computed_alone(pattern, net);
                int64_t transfer = (1 + both) * (nodes - 1) * 4 * SHARD * net.slow;
                int64_t took = makespan(pattern, "hier:1", net, SHARD);
                int64_t flat = makespan(pattern, "flash:1", net, SHARD);
                int64_t edge = 4 * computations(pattern) * SHARD * TICKS; /* a machine's shards */
                int64_t bound = alone > transfer + edge ? alone : transfer + edge;
                if (took < alone || took < transfer || took > bound + additions(net) ||
                    took > flat + additions(net) ||
                    (flat > alone + alone / 50 && took > flat - flat / 40))
                    fail_msg("pattern %d, %dx4, slow %d: %lld ticks, flash %lld, alone %lld, "
                             "transfer %lld",
                             (int)pattern, nodes, tenth, (long long)took, (long long)flat,
                             (long long)alone, (long long)transfer);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hidden),
        cmocka_unit_test(test_shared_port),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
