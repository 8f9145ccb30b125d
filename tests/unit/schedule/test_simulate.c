/* Programs run on symbols, message by message and row by row, in random order: what the executor may do.
 * Both ways to receive are run: copying, and reading in place from the sender's memory.
 *
 * 1. Every built program gives the right result in any order and never gets stuck.
 * 2. The verifier is checked against this: programs are broken at random, and whatever the verifier still
 *    accepts has to run right. It shares no code with the verifier. */
#include "unit/schedule/programs.h"

typedef struct place {
    int rank;
    int32_t buffer;
    int64_t row;
} place;

typedef struct state {
    int64_t issued;    /* SEND: rows posted. RECV: 1 once posted */
    int64_t ready;     /* rows finished; SEND: that the receiver has finished with */
    int64_t delivered; /* SEND: rows that have arrived */
    int32_t partner;   /* SEND, RECV: task of the other rank */
    place *views;      /* RECV, in place: where each row lies */
} state;

typedef struct world {
    const set *s;
    bool in_place;
    state *states[MAX_RANKS];
    uint64_t *memory[MAX_RANKS][FO_BUFFER_ROLES];
    int32_t lane[MAX_RANKS];  /* task the compute lane is at */
    int64_t wgrad[MAX_RANKS]; /* rows of the second computation done */
    uint64_t random;
    const char *wrong;
} world;

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t next_random(world *w)
{
    return w->random = mix(w->random);
}

/* ---- symbols: an addition commutes, but ((a + b) + c) is not (a + (b + c)) ------------------------- */

static uint64_t input(int64_t row)
{
    return mix(1000 + (uint64_t)row);
}

static uint64_t gathered_result(int64_t row)
{
    return mix(input(row) ^ 5);
}

static uint64_t partial(int64_t row, int rank)
{
    return mix(mix(2000000 + (uint64_t)row) + (uint64_t)rank);
}

static uint64_t plus(uint64_t a, uint64_t b)
{
    return mix((a + b) ^ (a * b));
}

/* Of machine m's ranks, for a shard whose owner has local number l: l+1, ..., l. */
static uint64_t machine_sum(int64_t row, int m, int l, int locals)
{
    uint64_t sum = partial(row, m * locals + (l + 1) % locals);
    for (int i = 2; i <= locals; i++)
        sum = plus(sum, partial(row, m * locals + (l + i) % locals));
    return sum;
}

/* One machine: j+1, ..., j. */
static uint64_t reduced_result(int64_t row, int owner, int ranks, int nodes)
{
    int locals = ranks / nodes, m = owner / locals, l = owner % locals;
    uint64_t sum = machine_sum(row, (m + 1) % nodes, l, locals);
    for (int i = 2; i <= nodes; i++)
        sum = plus(sum, machine_sum(row, (m + i) % nodes, l, locals));
    return sum;
}

/* The shard whose weight gradient rank r takes as its i-th: r, r-1, ..., of its machine and those before. */
static int wgrad_shard(int r, int i, int ranks, int nodes)
{
    int locals = ranks / nodes;
    int m = (r / locals + nodes - i / locals) % nodes;
    return m * locals + (r % locals + locals - i % locals) % locals;
}

/* Machines of the order that is promised. */
static int nested_nodes(const set *s)
{
    fo_strategy_kind kind = s->desc.strategy.kind;
    return kind == FO_STRATEGY_HIER || kind == FO_STRATEGY_HIER_NONE ? s->desc.nodes : 1;
}

/* ---- memory ---------------------------------------------------------------------------------------- */

static bool gathers(fo_pattern pattern)
{
    return pattern == FO_PATTERN_GATHER || pattern == FO_PATTERN_GATHER2 ||
           pattern == FO_PATTERN_WGRAD;
}

static bool is_comm(const fo_task *task)
{
    return task->kind == FO_TASK_SEND || task->kind == FO_TASK_RECV;
}

/* The RECV that a task reads through a reference, as the executor finds it. */
static int32_t source(const fo_program *p, int32_t t, fo_ref ref)
{
    const fo_task *task = &p->tasks[t];
    for (int32_t u = t - 1; ref.buffer >= 0 && u >= 0; u--) {
        const fo_task *recv = &p->tasks[u];
        if (recv->kind == FO_TASK_RECV && recv->out.buffer == ref.buffer &&
            recv->out.row - recv->row == ref.row - task->row && recv->row <= task->row &&
            recv->row + recv->rows >= task->row + task->rows)
            return u;
    }
    return -1;
}

/* Where row number `offset` of what a task reads lies. */
static place locate(const world *w, int rank, int32_t t, fo_ref ref, int64_t offset)
{
    const fo_program *p = w->s->programs[rank];
    int32_t recv = w->in_place ? source(p, t, ref) : -1;
    if (recv < 0)
        return (place){rank, ref.buffer, ref.row + offset};
    return w->states[rank][recv].views[p->tasks[t].row + offset - p->tasks[recv].row];
}

static uint64_t load(const world *w, place at)
{
    return w->memory[at.rank][at.buffer][at.row];
}

static uint64_t read_row(const world *w, int rank, int32_t t, fo_ref ref, int64_t offset)
{
    return load(w, locate(w, rank, t, ref, offset));
}

/* ---- what may happen next --------------------------------------------------------------------------- */

/* Whether dependencies let a task work on its first `rows` rows. */
static bool allowed(const world *w, int rank, int32_t t, int64_t rows)
{
    const fo_program *p = w->s->programs[rank];
    const fo_task *task = &p->tasks[t];
    for (int32_t d = 0; d < task->dep_count; d++) {
        const fo_dep *dep = &p->deps[task->dep_first + d];
        const fo_task *before = &p->tasks[dep->task];
        int64_t wanted = before->rows;
        if (dep->mode == FO_DEP_SPACE && w->in_place)
            continue;
        if (dep->mode == FO_DEP_ROWS && task->row + rows - before->row < wanted)
            wanted = task->row + rows - before->row;
        if (w->states[rank][dep->task].ready < wanted)
            return false;
    }
    return true;
}

/* Whether all earlier tasks of the same queue are posted. */
static bool first_in_queue(const world *w, int rank, int32_t t)
{
    const fo_program *p = w->s->programs[rank];
    const fo_task *task = &p->tasks[t];
    for (int32_t u = 0; u < t; u++) {
        const fo_task *other = &p->tasks[u];
        if (other->kind == task->kind && other->peer == task->peer &&
            other->channel == task->channel &&
            w->states[rank][u].issued < (other->kind == FO_TASK_SEND ? other->rows : 1))
            return false;
    }
    return true;
}

static int64_t message_end(const world *w, const fo_task *task, int64_t begin)
{
    int64_t end = begin + w->s->desc.stream_rows;
    return end < task->rows ? end : task->rows;
}

static void compute_row(world *w, int rank, int32_t t)
{
    const fo_program *p = w->s->programs[rank];
    const fo_task *task = &p->tasks[t];
    int64_t offset = w->states[rank][t].ready++, row = task->row + offset;
    uint64_t in = read_row(w, rank, t, task->in, offset), value = in;
    uint64_t add = task->add.buffer >= 0 ? read_row(w, rank, t, task->add, offset) : 0;
    bool block = p->pattern == FO_PATTERN_BLOCK;
    if (task->kind == FO_TASK_COMPUTE) {
        if (in != (block && task->slot == 1 ? gathered_result(row) : input(row)))
            w->wrong = "a computation read other rows than its own";
        value = gathers(p->pattern) || (block && task->slot == 0) ? gathered_result(row)
                                                                  : partial(row, rank);
    }
    if (task->kind == FO_TASK_COMPUTE && task->slot == 1 && !block) {
        int64_t seen = 0; /* rows of the shards before */
        int i = 0, shard = rank;
        while (seen + fo_shard_rows(p->rows, p->ranks, shard) <= w->wgrad[rank]) {
            seen += fo_shard_rows(p->rows, p->ranks, shard);
            shard = wgrad_shard(rank, ++i % p->ranks, p->ranks, nested_nodes(w->s));
            if (seen >= p->rows)
                break;
        }
        if (row != fo_shard_begin(p->rows, p->ranks, shard) + w->wgrad[rank] - seen)
            w->wrong = "the second computation went out of order";
        w->wgrad[rank]++;
        return;
    }
    if (task->add.buffer >= 0)
        value = plus(value, add);
    w->memory[rank][task->out.buffer][task->out.row + offset] = value;
}

static bool step_lane(world *w, int rank)
{
    const fo_program *p = w->s->programs[rank];
    int32_t *t = &w->lane[rank];
    while (*t < p->task_count &&
           (is_comm(&p->tasks[*t]) || w->states[rank][*t].ready == p->tasks[*t].rows))
        ++*t;
    if (*t == p->task_count || !allowed(w, rank, *t, w->states[rank][*t].ready + 1))
        return false;
    compute_row(w, rank, *t);
    return true;
}

static bool post(world *w, int rank, int32_t t)
{
    const fo_task *task = &w->s->programs[rank]->tasks[t];
    state *st = &w->states[rank][t];
    if (task->kind == FO_TASK_RECV) {
        if (st->issued || !first_in_queue(w, rank, t) || !allowed(w, rank, t, task->rows))
            return false;
        st->issued = 1;
        return true;
    }
    int64_t end = message_end(w, task, st->issued);
    if (st->issued == task->rows || !first_in_queue(w, rank, t) || !allowed(w, rank, t, end))
        return false;
    st->issued = end;
    return true;
}

/* One posted message arrives. The bytes are taken now, at any time between posting and completion. */
static bool deliver(world *w, int rank, int32_t t)
{
    const fo_task *task = &w->s->programs[rank]->tasks[t];
    state *st = &w->states[rank][t], *to = &w->states[task->peer][st->partner];
    const fo_task *recv = &w->s->programs[task->peer]->tasks[st->partner];
    if (st->delivered == st->issued || !to->issued)
        return false;
    int64_t end = message_end(w, task, st->delivered);
    for (int64_t i = st->delivered; i < end; i++) {
        place from = locate(w, rank, t, task->in, i);
        if (w->in_place)
            to->views[i] = from;
        else
            w->memory[task->peer][recv->out.buffer][recv->out.row + i] = load(w, from);
    }
    st->delivered = to->ready = end;
    if (!w->in_place)
        st->ready = end;
    return true;
}

/* In place: a message is done when every reader is done with its rows. */
static bool release(world *w, int rank, int32_t t)
{
    const fo_task *task = &w->s->programs[rank]->tasks[t];
    state *st = &w->states[rank][t];
    const fo_program *p = w->s->programs[task->peer];
    const fo_task *recv = &p->tasks[st->partner];
    if (!w->in_place || st->ready == st->delivered)
        return false;
    int64_t end = message_end(w, task, st->ready);
    for (int32_t u = st->partner + 1; u < p->task_count; u++) {
        const fo_task *reader = &p->tasks[u];
        if (source(p, u, reader->in) != st->partner && source(p, u, reader->add) != st->partner)
            continue;
        int64_t last = recv->row + end < reader->row + reader->rows ? recv->row + end
                                                                    : reader->row + reader->rows;
        if (recv->row + end > reader->row && reader->row + w->states[task->peer][u].ready < last)
            return false;
    }
    st->ready = end;
    return true;
}

static bool step_comm(world *w, int rank, int32_t t)
{
    if (post(w, rank, t))
        return true;
    if (w->s->programs[rank]->tasks[t].kind != FO_TASK_SEND)
        return false;
    return deliver(w, rank, t) || release(w, rank, t);
}

/* Tries everything once, from a random place on; false: nothing can happen. */
static bool step_any(world *w)
{
    int ranks = w->s->ranks, first = (int)(next_random(w) % (uint64_t)ranks);
    bool lane_first = next_random(w) % 2;
    for (int i = 0; i < ranks; i++) {
        int rank = (first + i) % ranks;
        int32_t count = w->s->programs[rank]->task_count;
        if (!count)
            continue;
        int32_t begin = (int32_t)(next_random(w) % (uint64_t)count);
        if (lane_first && step_lane(w, rank))
            return true;
        for (int32_t k = 0; k < count; k++) {
            int32_t t = (begin + k) % count;
            if (is_comm(&w->s->programs[rank]->tasks[t]) && step_comm(w, rank, t))
                return true;
        }
        if (!lane_first && step_lane(w, rank))
            return true;
    }
    return false;
}

/* ---- a run ------------------------------------------------------------------------------------------ */

static void match(world *w)
{
    for (int a = 0; a < w->s->ranks; a++)
        for (int32_t t = 0; t < w->s->programs[a]->task_count; t++) {
            const fo_task *send = &w->s->programs[a]->tasks[t];
            if (send->kind != FO_TASK_SEND)
                continue;
            int before = 0;
            for (int32_t u = 0; u < t; u++) {
                const fo_task *other = &w->s->programs[a]->tasks[u];
                before += other->kind == FO_TASK_SEND && other->peer == send->peer &&
                          other->channel == send->channel;
            }
            const fo_program *p = w->s->programs[send->peer];
            for (int32_t u = 0; u < p->task_count; u++)
                if (p->tasks[u].kind == FO_TASK_RECV && p->tasks[u].peer == a &&
                    p->tasks[u].channel == send->channel && before-- == 0)
                    w->states[a][t].partner = u;
        }
}

static world open_world(const set *s, bool in_place, uint64_t seed)
{
    world w = {.s = s, .in_place = in_place, .random = mix(seed)};
    for (int r = 0; r < s->ranks; r++) {
        const fo_program *p = s->programs[r];
        w.states[r] = calloc((size_t)p->task_count + 1, sizeof *w.states[r]);
        for (int32_t t = 0; t < p->task_count; t++)
            w.states[r][t].views = calloc((size_t)p->tasks[t].rows, sizeof(place));
        for (int32_t b = 0; b < p->buffer_count; b++) {
            fo_buffer_role role = p->buffers[b].role;
            int64_t base = role == FO_BUFFER_SHARD ? fo_shard_begin(p->rows, p->ranks, r) : 0;
            w.memory[r][b] = calloc((size_t)p->buffers[b].rows + 1, sizeof *w.memory[r][b]);
            for (int64_t i = 0; i < p->buffers[b].rows; i++)
                w.memory[r][b][i] =
                    role == FO_BUFFER_SHARD || role == FO_BUFFER_FULL ? input(base + i) : 0;
        }
    }
    match(&w);
    return w;
}

static void close_world(world *w)
{
    for (int r = 0; r < w->s->ranks; r++) {
        for (int32_t t = 0; t < w->s->programs[r]->task_count; t++)
            free(w->states[r][t].views);
        for (int b = 0; b < FO_BUFFER_ROLES; b++)
            free(w->memory[r][b]);
        free(w->states[r]);
    }
}

static const char *check_outputs(const world *w)
{
    for (int r = 0; r < w->s->ranks; r++) {
        const fo_program *p = w->s->programs[r];
        bool gather = gathers(p->pattern);
        int64_t base = gather ? 0 : fo_shard_begin(p->rows, p->ranks, r);
        for (int32_t b = 0; b < p->buffer_count; b++)
            for (int64_t i = 0; p->buffers[b].role == FO_BUFFER_OUTPUT && i < p->buffers[b].rows;
                 i++)
                if (w->memory[r][b][i] !=
                    (gather ? gathered_result(i)
                            : reduced_result(base + i, r, p->ranks, nested_nodes(w->s))))
                    return "a result row is wrong";
        if (p->pattern >= FO_PATTERN_GATHER2 && p->pattern != FO_PATTERN_BLOCK &&
            w->wgrad[r] != p->rows)
            return "the second computation lacks rows";
        for (int32_t t = 0; t < p->task_count; t++)
            if (w->states[r][t].ready != p->tasks[t].rows)
                return "stuck";
    }
    return NULL;
}

/* NULL: the result is right. */
static const char *run(const set *s, bool in_place, uint64_t seed)
{
    world w = open_world(s, in_place, seed);
    while (!w.wrong && step_any(&w))
        ;
    const char *wrong = w.wrong ? w.wrong : check_outputs(&w);
    close_world(&w);
    return wrong;
}

/* ---- tests ------------------------------------------------------------------------------------------ */

static const char *const strategies[] = {"none",    "slice:2", "slice:3", "ring",     "flash",
                                         "flash:2", "flash:3", "direct",  "direct:2", "direct:3"};

enum { STRATEGIES = sizeof strategies / sizeof *strategies };

static void test_built_programs(void **unused)
{
    static const int64_t rows[] = {1, 4, 11, 26};
    (void)unused;
    for (fo_pattern pattern = FO_PATTERN_GATHER; pattern <= FO_PATTERN_BLOCK; pattern++)
        for (int i = 0; i < STRATEGIES; i++)
            for (int ranks = 1; ranks <= 7; ranks++)
                for (int m = 0; m < 4; m++) {
                    set s = build(pattern, strategies[i], ranks, rows[m], 1 + m % 2);
                    for (uint64_t seed = 0; seed < 6; seed++) {
                        const char *wrong = run(&s, seed % 2, seed);
                        if (wrong)
                            fail_msg("pattern %d %s, %d ranks, %lld rows, %s: %s", (int)pattern,
                                     strategies[i], ranks, (long long)rows[m],
                                     seed % 2 ? "in place" : "copying", wrong);
                    }
                    destroy(&s);
                }
}

/* Rings in a ring, whatever the numbers of machines and of ranks on each. */
static void test_nested_programs(void **unused)
{
    static const char *const nested[] = {"hier:1", "hier:2", "hier:3", "none/hier"};
    static const int64_t rows[] = {3, 13, 34};
    (void)unused;
    for (fo_pattern pattern = FO_PATTERN_GATHER; pattern <= FO_PATTERN_BLOCK; pattern++)
        for (int i = 0; i < 4; i++)
            for (int nodes = 1; nodes <= 4; nodes++)
                for (int locals = 1; locals <= 4; locals++)
                    for (int m = 0; m < 3; m++) {
                        set s =
                            build_on(nodes, pattern, nested[i], nodes * locals, rows[m], 1 + m % 2);
                        for (uint64_t seed = 0; seed < 4; seed++) {
                            const char *wrong = run(&s, seed % 2, seed);
                            if (wrong)
                                fail_msg("pattern %d %s, %d machines of %d, %lld rows, %s: %s",
                                         (int)pattern, nested[i], nodes, locals, (long long)rows[m],
                                         seed % 2 ? "in place" : "copying", wrong);
                        }
                        destroy(&s);
                    }
}

static void swap_tasks(fo_program *p, int32_t a, int32_t b)
{
    fo_task task = p->tasks[a];
    p->tasks[a] = p->tasks[b];
    p->tasks[b] = task;
}

/* Changes one thing in one program. */
static void mutate(set *s, uint64_t *random)
{
    fo_program *p = s->programs[*random % (uint64_t)s->ranks];
    *random = mix(*random);
    int32_t t = (int32_t)(*random % (uint64_t)p->task_count);
    *random = mix(*random);
    int32_t u = (int32_t)(*random % (uint64_t)p->task_count);
    *random = mix(*random);
    fo_task *task = &p->tasks[t], *other = &p->tasks[u];
    int change = (int)(*random % 12);
    *random = mix(*random);
    int64_t by = *random % 2 ? 1 : -1;
    fo_ref ref = task->out;
    switch (change) {
    case 0: drop_task(p, t); break;
    case 1:
    case 2:
    case 3:
        if (task->dep_count)
            drop_dep(p, t, task->dep_first + (int32_t)(*random % (uint64_t)task->dep_count));
        break;
    case 4:
    case 5:
        if (task->dep_count)
            p->deps[task->dep_first + (int32_t)(*random % (uint64_t)task->dep_count)].mode =
                (fo_dep_mode)(mix(*random) % 3);
        break;
    case 6: swap_tasks(p, t, u); break;
    case 7: task->in.row += by; break;
    case 8: task->out.row += by; break;
    case 9:
        task->out = other->out;
        other->out = ref;
        break;
    case 10: task->peer = (int32_t)(*random % (uint64_t)s->ranks); break;
    default:
        if (u < t)
            add_dep(p, t, u, (fo_dep_mode)(mix(*random) % 2));
    }
}

static set any_program(uint64_t random, fo_pattern pattern, const char **strategy)
{
    *strategy = strategies[random % STRATEGIES];
    int ranks = 2 + (int)(mix(random) % 5);
    return build(pattern, *strategy, ranks, 4 + (int64_t)(mix(random + 1) % 16), 1);
}

static set any_nested(uint64_t random, fo_pattern pattern, const char **strategy)
{
    static const char *const nested[] = {"hier:1", "hier:2", "none/hier"};
    *strategy = nested[random % 3];
    int nodes = 2 + (int)(mix(random) % 3), locals = 2 + (int)(mix(random + 3) % 2);
    int64_t rows = 4 + (int64_t)(mix(random + 1) % 16);
    return build_on(nodes, pattern, *strategy, nodes * locals, rows, 1);
}

/* What the verifier accepts runs right, in every order tried. */
static void break_programs(set (*any)(uint64_t, fo_pattern, const char **), int patterns,
                           uint64_t seeds)
{
    uint64_t accepted = 0, rejected = 0;
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        uint64_t random = mix(seed);
        fo_pattern pattern = (fo_pattern)(seed % (uint64_t)patterns);
        const char *strategy;
        set s = any(random, pattern, &strategy);
        fo_verdict verdict;
        random = mix(random + 2);
        mutate(&s, &random);
        if (verify(&s, &verdict) != FO_OK) {
            rejected++;
            destroy(&s);
            continue;
        }
        accepted++;
        for (uint64_t k = 0; k < 8; k++) {
            const char *wrong = run(&s, k % 2, seed * 100 + k);
            if (wrong)
                fail_msg("seed %llu, pattern %d %s, %d ranks, %s: accepted, but %s",
                         (unsigned long long)seed, (int)pattern, strategy, s.ranks,
                         k % 2 ? "in place" : "copying", wrong);
        }
        destroy(&s);
    }
    assert_true(accepted > seeds / 30);
    assert_true(rejected > seeds / 3);
}

static void test_broken_programs(void **unused)
{
    (void)unused;
    break_programs(any_program, 4, 6000);
}

static void test_broken_nested_programs(void **unused)
{
    (void)unused;
    break_programs(any_nested, FO_PATTERN_BLOCK + 1, 3000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_built_programs),
        cmocka_unit_test(test_nested_programs),
        cmocka_unit_test(test_broken_programs),
        cmocka_unit_test(test_broken_nested_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
