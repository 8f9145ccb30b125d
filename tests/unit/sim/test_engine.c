/* The engine: equal ranks by one of them, ports by hand, programs that wait for ever, what it refuses, what it costs. */
#include "unit/sim/machines.h"

#include <math.h>

/* ---- equal ranks --------------------------------------------------------------------------------------- */

static const char *const strategies[] = {"none",    "slice:2", "slice:3",  "ring",   "flash",
                                         "flash:2", "direct",  "direct:2", "hier:2", "none/hier"};

enum { STRATEGIES = sizeof strategies / sizeof *strategies };

typedef struct costs {
    uint64_t key;
    const fo_schedule_desc *desc;
    int repeats; /* ranks so far apart cost the same */
} costs;

/* The same for what looks the same from equal ranks: where a shard is, seen from this rank. */
static double tile_s(const void *context, int rank, const fo_task *task, int64_t row, int64_t rows)
{
    const costs *c = context;
    int64_t shard = c->desc->rows / c->desc->ranks, all = c->desc->rows;
    int64_t away = ((row - rank * shard) % all + all) % all;
    uint64_t key = mix(c->key ^ (uint64_t)away << 8 ^ (uint64_t)task->kind << 4 ^
                       (uint64_t)task->slot ^ (uint64_t)(rank % c->repeats) << 50);
    double factor = task->kind == FO_TASK_COMPUTE ? 1 : 0.1;
    return factor * (double)rows * 1e-5 * (0.5 + (double)(key >> 11) * 0x1p-53);
}

/* The same figures, to the last bit, from `period` ranks and from all. */
static void one_and_all(uint64_t key, int ranks, int nodes, const char *strategy,
                        const fo_sim_machine *machine, int expected, int repeats)
{
    dice d = {key, 100};
    fo_schedule_desc desc = describe((fo_pattern)below(&d, 6), strategy, ranks,
                                     ranks * 4 * (1 + below(&d, 4)), 4, 4 * (1 + below(&d, 2)));
    desc.nodes = nodes;
    costs c = {key, &desc, repeats};
    double speed[MAX_RANKS], start[MAX_RANKS];
    for (int r = 0; r < ranks; r++) {
        speed[r] = 0.5 + 0.3 * (double)(r % repeats); /* no two of them equal */
        start[r] = 1e-5 * (double)(mix(key + 7 + (uint64_t)(r % repeats)) % 9);
    }
    int period = fo_sim_engine_period(&desc, &machine->network, repeats > 1 ? speed : NULL,
                                      repeats > 1 ? start : NULL, false);
    if (period != expected)
        fail_msg("%s on %d x %d ranks: period %d, expected %d", strategy, nodes, ranks / nodes,
                 period, expected);
    fo_sim_rank one[MAX_RANKS], all[MAX_RANKS];
    fo_sim_run run_one, run_all;
    for (int i = 0; i < 2; i++) {
        set s = build(&desc, i ? ranks : period);
        fo_sim_engine_desc engine = engine_of(&s, machine, tile_s, &c);
        engine.speed = repeats > 1 ? speed : NULL;
        engine.start_s = repeats > 1 ? start : NULL;
        if (fo_sim_engine_run(&engine, i ? &run_all : &run_one, i ? all : one) != FO_OK)
            fail_msg("case %d, %s of %d ranks: %s", (int)key, strategy, ranks, fo_last_error());
        destroy(&s);
    }
    if (run_one.total_s != run_all.total_s)
        fail_msg("case %d, %s of %d ranks: %.17g s by %d ranks, %.17g s by all", (int)key, strategy,
                 ranks, run_one.total_s, period, run_all.total_s);
    assert_int_equal(run_all.events * period, run_one.events * ranks);
    for (int r = 0; r < ranks; r++)
        assert_memory_equal(&one[r % period], &all[r], sizeof all[r]);
}

static void equal_ranks(void **unused)
{
    (void)unused;
    for (int i = 0; i < 400; i++) {
        dice d = {(uint64_t)i, 0};
        int ranks = 2 + below(&d, 7);
        fo_sim_machine machine;
        random_machine(&d, &machine, ranks, 1);
        machine.network.locals = 0;
        memset(machine.network.torus, 0, sizeof machine.network.torus);
        machine.network.torus[below(&d, 3)] = ranks;
        one_and_all((uint64_t)i, ranks, 1, strategies[below(&d, 8)], &machine, 1, 1);
    }
}

/* A torus of several dimensions looks the same a row on; machines do a machine on. */
static void equal_rows_and_machines(void **unused)
{
    (void)unused;
    for (int i = 0; i < 400; i++) {
        dice d = {(uint64_t)i, 0};
        int locals = 2 + below(&d, 3), nodes = 2 + below(&d, 3), ranks = nodes * locals;
        fo_sim_machine machine;
        random_machine(&d, &machine, ranks, nodes);
        bool torus = below(&d, 3) == 0;
        if (torus) {
            machine.network.locals = 0;
            machine.network.topology = FO_SIM_TORUS;
            memcpy(machine.network.torus, (int[]){1, locals, nodes}, sizeof machine.network.torus);
        } else {
            memset(machine.network.torus, 0, sizeof machine.network.torus);
            machine.network.torus[0] = locals;
        }
        int strategy = below(&d, torus ? 8 : STRATEGIES);
        one_and_all((uint64_t)i, ranks, nodes, strategies[strategy], &machine, locals, 1);
    }
}

/* Ranks that differ, in groups that do not. */
static void stragglers(void **unused)
{
    (void)unused;
    for (int i = 0; i < 200; i++) {
        dice d = {(uint64_t)i, 0};
        int repeats = 2 + below(&d, 3), ranks = repeats * (1 + below(&d, 3));
        fo_sim_machine machine;
        random_machine(&d, &machine, ranks, 1);
        machine.network.locals = 0;
        memset(machine.network.torus, 0, sizeof machine.network.torus);
        machine.network.torus[0] = ranks;
        one_and_all((uint64_t)i, ranks, 1, strategies[below(&d, 8)], &machine, repeats, repeats);
    }
}

static double flat_s(const void *context, int rank, const fo_task *task, int64_t row, int64_t rows)
{
    (void)context, (void)rank, (void)row;
    return task->kind == FO_TASK_COMPUTE ? (double)rows * 1e-6 : 0;
}

/* One rank at half the speed takes twice the time; the others wait for it where they need it. */
static void one_slow_rank(void **unused)
{
    (void)unused;
    fo_sim_machine machine;
    fo_sim_machine_ideal(&machine);
    double speed[4] = {1, 1, 0.5, 1};
    fo_schedule_desc desc = describe(FO_PATTERN_REDUCE, "flash", 4, 256, 8, 8);
    set s = build(&desc, 4);
    fo_sim_engine_desc engine = engine_of(&s, &machine, flat_s, NULL);
    engine.speed = speed;
    fo_sim_run run;
    fo_sim_rank ranks[4];
    assert_int_equal(fo_sim_engine_run(&engine, &run, ranks), FO_OK);
    assert_int_equal(run.slowest, 2);
    assert_true(fabs(run.total_s - 512e-6) < 1e-12);
    assert_true(fabs(run.worst.compute_s - 512e-6) < 1e-12);
    assert_true(ranks[3].exposed_s > 100e-6); /* its left neighbour is the slow one */
    assert_int_equal(fo_sim_engine_period(&desc, &machine.network, speed, NULL, false), 4);
    destroy(&s);
}

static void periods(void **unused)
{
    (void)unused;
    fo_schedule_desc flat = describe(FO_PATTERN_GATHER, "flash", 12, 1200, 4, 4), hier = flat;
    assert_int_equal(fo_strategy_parse("hier", &hier.strategy), FO_OK);
    hier.nodes = 3;
    fo_sim_network n = {.topology = FO_SIM_SWITCH};
    assert_int_equal(fo_sim_engine_period(&flat, &n, NULL, NULL, false), 1);
    assert_int_equal(fo_sim_engine_period(&hier, &n, NULL, NULL, false), 4);
    n.locals = 6;
    assert_int_equal(fo_sim_engine_period(&flat, &n, NULL, NULL, false), 6);
    assert_int_equal(fo_sim_engine_period(&hier, &n, NULL, NULL, false), 12);
    n.locals = 12;
    assert_int_equal(fo_sim_engine_period(&flat, &n, NULL, NULL, false), 1);
    n.locals = 5;
    assert_int_equal(fo_sim_engine_period(&flat, &n, NULL, NULL, false), 12);
    n = (fo_sim_network){.topology = FO_SIM_TORUS, .torus = {3, 1, 4}};
    assert_int_equal(fo_sim_engine_period(&flat, &n, NULL, NULL, false), 3);
    flat.rows++;
    assert_int_equal(fo_sim_engine_period(&flat, &n, NULL, NULL, false), 12);
    assert_int_equal(fo_sim_engine_period(&flat, &n, NULL, NULL, true), 3);
}

/* ---- by hand ------------------------------------------------------------------------------------------- */

static fo_sim_run run_of(fo_pattern pattern, const char *strategy, int ranks, int64_t rows,
                         const fo_sim_machine *machine, fo_sim_rank *per_rank)
{
    fo_schedule_desc desc = describe(pattern, strategy, ranks, rows, 8, 8);
    set s = build(&desc, ranks);
    fo_sim_engine_desc engine = engine_of(&s, machine, flat_s, NULL);
    fo_sim_run run;
    if (fo_sim_engine_run(&engine, &run, per_rank) != FO_OK)
        fail_msg("%s of %d ranks: %s", strategy, ranks, fo_last_error());
    destroy(&s);
    return run;
}

static void is(double found, double expected)
{
    if (fabs(found - expected) > 1e-12)
        fail_msg("%.15g s, expected %.15g s", found, expected);
}

/* 2 ranks, 2 messages of 8 rows each, 8 us a tile; a message takes `x` on a link, `a` later it is there. */
static void two_ranks(void **unused)
{
    (void)unused;
    fo_sim_machine m;
    fo_sim_machine_ideal(&m);
    m.network.link = (fo_sim_link){.bytes_per_s = 8000 / 20e-6, .latency_s = 3e-6};
    /* x = 20: the last tile follows the last message */
    is(run_of(FO_PATTERN_GATHER, "flash", 2, 32, &m, NULL).total_s, 40e-6 + 3e-6 + 8e-6);
    /* the first tile, two messages, and the sum's tile */
    is(run_of(FO_PATTERN_REDUCE, "flash", 2, 32, &m, NULL).total_s, 8e-6 + 43e-6 + 8e-6);
    is(run_of(FO_PATTERN_GATHER, "none", 2, 32, &m, NULL).total_s, 43e-6 + 32e-6);
    m.network.link.bytes_per_s =
        8000 / 4e-6; /* x = 4: hidden; 3 of the first message's 7 us are before it */
    is(run_of(FO_PATTERN_GATHER, "flash", 2, 32, &m, NULL).total_s, 32e-6);
    is(run_of(FO_PATTERN_REDUCE, "flash", 2, 32, &m, NULL).total_s, 32e-6);
    m.network.link.latency_s = 20e-6; /* the first message comes at 24 us: 8 late */
    is(run_of(FO_PATTERN_GATHER, "flash", 2, 32, &m, NULL).total_s, 40e-6);
}

/* Software: a tile costs task_s, a message message_s at each end, a wait wake_s. */
static void software(void **unused)
{
    (void)unused;
    fo_sim_machine m;
    fo_sim_rank ranks[2];
    fo_sim_machine_ideal(&m);
    m.network.link = (fo_sim_link){.bytes_per_s = 8000 / 4e-6};
    m.task_s = 1e-6;
    m.message_s = 0.5e-6;
    for (int async = 0; async < 2; async++) {
        m.async = async;
        fo_sim_run run = run_of(FO_PATTERN_GATHER, "flash", 2, 32, &m, ranks);
        is(run.total_s, 4 * 9e-6 + 4 * 0.5e-6); /* 4 tiles, 2 messages sent, 2 received */
        is(run.worst.overhead_s, 4 * 1e-6 + 4 * 0.5e-6);
        is(run.worst.compute_s, run.total_s);
        assert_int_equal(run.worst.messages, 2);
        assert_int_equal(run.worst.sent_bytes, 16000);
    }
    m.task_s = m.message_s = 0;
    m.wake_s = 2e-6;
    m.network.link.bytes_per_s = 8000 / 20e-6; /* each message is waited for */
    m.async = true;
    is(run_of(FO_PATTERN_GATHER, "flash", 2, 32, &m, ranks).total_s, 40e-6 + 2e-6 + 8e-6);
    is(ranks[0].exposed_s, 4e-6 + 2e-6 + 10e-6 + 2e-6);
}

/* Computing takes 1.5 times as long while a message goes or comes. */
static void contention(void **unused)
{
    (void)unused;
    fo_sim_machine m;
    fo_sim_rank ranks[2];
    fo_sim_machine_ideal(&m);
    m.network.link = (fo_sim_link){.bytes_per_s = 8000 / 6e-6};
    m.contention = 0.5;
    /* both messages are in flight for 12 us, of which 8 us get done; then 24 us are left */
    fo_sim_run run = run_of(FO_PATTERN_GATHER, "flash", 2, 32, &m, ranks);
    is(run.total_s, 36e-6);
    is(run.worst.contention_s, 4e-6);
}

/* One thread sees nothing while it computes: what is to be forwarded waits for the end of the tile. */
static void one_thread(void **unused)
{
    (void)unused;
    fo_sim_machine m;
    fo_sim_rank ranks[3];
    fo_sim_machine_ideal(&m);
    m.network.link = (fo_sim_link){.bytes_per_s = 8000 / 9e-6};
    /* 3 ranks of one message: it comes at 9, is forwarded at once or after the tile that ends at 17 */
    is(run_of(FO_PATTERN_GATHER, "flash", 3, 24, &m, ranks).total_s, 18e-6 + 8e-6);
    m.async = false;
    is(run_of(FO_PATTERN_GATHER, "flash", 3, 24, &m, ranks).total_s, 18e-6 + 8e-6);
    m.network.link.bytes_per_s = 8000 / 7e-6; /* comes at 7, is seen at 8, the next at 15 or 16 */
    is(run_of(FO_PATTERN_GATHER, "flash", 3, 24, &m, ranks).total_s, 24e-6);
    m.network.link.latency_s = 8e-6; /* comes at 15; the next at 30; all is waited for */
    is(run_of(FO_PATTERN_GATHER, "flash", 3, 24, &m, ranks).total_s, 38e-6);
    m.network.link =
        (fo_sim_link){.bytes_per_s = 8000 / 1e-6, .latency_s = 13e-6}; /* at 14 and 28 */
    is(run_of(FO_PATTERN_GATHER, "flash", 3, 24, &m, ranks).total_s, 36e-6);
}

/* A shared link of a torus, and its two ways round. */
static void torus(void **unused)
{
    (void)unused;
    fo_sim_machine m;
    fo_sim_rank ranks[4];
    fo_sim_machine_ideal(&m);
    m.network.topology = FO_SIM_TORUS;
    m.network.torus[0] = 4;
    m.network.link = (fo_sim_link){.bytes_per_s = 8000 / 100e-6, .latency_s = 10e-6};
    /* One message a shard, to the ranks 1, 2 (over two links) and 3 (the other way) on. A link up has the own message
     * to the next rank until 100 us, the own one to the second next until 200 us, and the left neighbour's, which
     * comes at 110 us, until 300 us. */
    fo_sim_run run = run_of(FO_PATTERN_GATHER, "direct", 4, 32, &m, ranks);
    is(run.total_s, 310e-6 + 2 * 8e-6);
    /* Links of their own: the third message leaves when the first one's rows are computed, at 118 us. */
    m.network.topology = FO_SIM_MESH;
    run = run_of(FO_PATTERN_GATHER, "direct", 4, 32, &m, ranks);
    is(run.total_s, 118e-6 + 110e-6 + 8e-6);
}

/* Between machines: ports of their own, or one for all. */
static void machines(void **unused)
{
    (void)unused;
    fo_sim_machine m;
    fo_sim_machine_ideal(&m);
    m.network.locals = 2;
    m.network.outer.bytes_per_s = 8000 / 50e-6;
    fo_schedule_desc desc = describe(FO_PATTERN_GATHER, "hier", 4, 32, 8, 8);
    desc.nodes = 2;
    set s = build(&desc, 2);
    fo_sim_engine_desc engine = engine_of(&s, &m, flat_s, NULL);
    fo_sim_run run;
    assert_int_equal(fo_sim_engine_run(&engine, &run, NULL), FO_OK);
    is(run.total_s,
       50e-6 + 16e-6); /* the other machine's shards: one comes, one is passed on at once */
    m.network.outer_ports = 1;
    assert_int_equal(fo_sim_engine_run(&engine, &run, NULL), FO_OK);
    is(run.total_s, 100e-6 + 16e-6); /* local number 1 has what came first last */
    destroy(&s);
}

/* ---- what is watched ----------------------------------------------------------------------------------- */

typedef struct watched {
    fo_sim_event events[4000];
    int count;
} watched;

static void keep(void *watcher, const fo_sim_event *event)
{
    watched *w = watcher;
    assert_true(w->count < 4000);
    w->events[w->count++] = *event;
}

static int by_time(const void *left, const void *right)
{
    const fo_sim_event *a = left, *b = right;
    return (a->begin_s > b->begin_s) - (a->begin_s < b->begin_s);
}

/* Events of some kinds of a rank do not overlap; returns their sum. */
static double sum_of(const watched *w, int rank, unsigned kinds, const char *where)
{
    double sum = 0, until = -1;
    for (int i = 0; i < w->count; i++) {
        const fo_sim_event *event = &w->events[i];
        if (event->rank != rank || !(kinds >> event->kind & 1))
            continue;
        if (event->begin_s < until - 1e-15 || event->end_s < event->begin_s)
            fail_msg("%s: an event of rank %d from %.12g to %.12g s, expected it after %.12g s",
                     where, rank, event->begin_s, event->end_s, until);
        until = event->end_s;
        sum += event->end_s - event->begin_s;
    }
    return sum;
}

/* Nothing overlaps on a lane or a port, and the sums are those of the run. */
static void timelines(void **unused)
{
    (void)unused;
    static watched w;
    for (int i = 0; i < 200; i++) {
        dice d = {(uint64_t)i, 0};
        int ranks = 2 + below(&d, 4);
        fo_sim_machine machine;
        random_machine(&d, &machine, ranks, 1);
        machine.network.topology = FO_SIM_SWITCH;
        machine.network.locals = 0;
        fo_schedule_desc desc = describe((fo_pattern)below(&d, 6), strategies[below(&d, 8)], ranks,
                                         1 + below(&d, 100), 4, 4);
        set s = build(&desc, ranks);
        costs c = {(uint64_t)i, &desc, ranks};
        fo_sim_engine_desc engine = engine_of(&s, &machine, tile_s, &c);
        double prepare[MAX_RANKS];
        for (int r = 0; r < ranks; r++)
            prepare[r] = 1e-5;
        engine.prepare_s = prepare;
        engine.watch = keep;
        engine.watcher = &w;
        fo_sim_run run;
        fo_sim_rank per_rank[MAX_RANKS];
        w.count = 0;
        assert_int_equal(fo_sim_engine_run(&engine, &run, per_rank), FO_OK);
        qsort(w.events, (size_t)w.count, sizeof *w.events, by_time);
        for (int r = 0; r < ranks; r++) {
            char where[64];
            snprintf(where, sizeof where, "case %d, rank %d", i, r);
            unsigned computes = 1 << FO_SIM_EVENT_COMPUTE | 1 << FO_SIM_EVENT_PREPARE;
            double busy = sum_of(&w, r, computes, where);
            double waits = sum_of(&w, r, 1 << FO_SIM_EVENT_WAIT, where);
            sum_of(&w, r, computes | 1 << FO_SIM_EVENT_WAIT, where);
            sum_of(&w, r, 1 << FO_SIM_EVENT_SEND, where);
            assert_true(fabs(waits - per_rank[r].exposed_s) < 1e-12);
            if (machine.message_s == 0 && machine.cpu_s_per_byte == 0)
                assert_true(fabs(busy - per_rank[r].compute_s) < 1e-12);
            assert_true(busy <= per_rank[r].compute_s + 1e-12);
        }
        destroy(&s);
    }
}

/* ---- what can't be ------------------------------------------------------------------------------------- */

static void expect(fo_status status, fo_status expected, const char *words)
{
    if (status != expected || !strstr(fo_last_error(), words))
        fail_msg("status %d: %s; expected %d and \"%s\"", (int)status, fo_last_error(),
                 (int)expected, words);
}

/* Adds a dependency to a task of a program: the last of its list. */
static void wait_for(fo_program *p, int32_t index, int32_t producer)
{
    fo_task *task = &p->tasks[index];
    fo_dep *deps = malloc((size_t)(p->dep_count + task->dep_count + 1) * sizeof *deps);
    memcpy(deps, p->deps, (size_t)p->dep_count * sizeof *deps);
    memcpy(deps + p->dep_count, p->deps + task->dep_first, (size_t)task->dep_count * sizeof *deps);
    task->dep_first = p->dep_count;
    p->dep_count += task->dep_count++;
    deps[p->dep_count++] = (fo_dep){producer, FO_DEP_DONE};
    free(p->deps);
    p->deps = deps;
}

static int32_t first_of(const fo_program *p, fo_task_kind kind)
{
    int32_t t = 0;
    while (t < p->task_count && p->tasks[t].kind != kind)
        t++;
    return t;
}

/* Every send waits for the receive from the other side. */
static void waits_for_ever(void **unused)
{
    (void)unused;
    fo_sim_machine machine;
    for (int kind = 0; kind < 8; kind++) {
        fo_sim_machine_ideal(&machine);
        machine.async = kind & 1;
        machine.views = kind & 2;
        fo_schedule_desc desc = describe(FO_PATTERN_GATHER, "flash", 3, 48, 8, 8);
        int count = kind & 4 ? 1 : 3;
        set s = build(&desc, count);
        for (int r = 0; r < count; r++) {
            fo_program *p = s.programs[r];
            wait_for(p, first_of(p, FO_TASK_SEND), first_of(p, FO_TASK_RECV));
        }
        fo_sim_engine_desc engine = engine_of(&s, &machine, flat_s, NULL);
        fo_sim_run run;
        expect(fo_sim_engine_run(&engine, &run, NULL), FO_SCHEDULE,
               "wait for each other for ever: rank 0 has come to task 0, the receive of slice 2.0 "
               "from rank 2");
        destroy(&s);
    }
}

/* What nobody sends, or nobody expects, or not so much of. */
static void nobody_there(void **unused)
{
    (void)unused;
    fo_sim_machine machine;
    fo_sim_machine_ideal(&machine);
    fo_schedule_desc desc = describe(FO_PATTERN_GATHER, "flash", 3, 48, 8, 8);
    set s = build(&desc, 3);
    fo_sim_engine_desc engine = engine_of(&s, &machine, flat_s, NULL);
    fo_sim_run run;
    int32_t send = first_of(s.programs[1], FO_TASK_SEND);
    s.programs[1]->tasks[send].channel = 1;
    expect(fo_sim_engine_run(&engine, &run, NULL), FO_SCHEDULE, "which");
    s.programs[1]->tasks[send].channel = 0;
    s.programs[1]->tasks[send].rows--;
    expect(fo_sim_engine_run(&engine, &run, NULL), FO_SCHEDULE,
           "are the shards of all ranks equal?");
    s.programs[1]->tasks[send].rows++;
    s.programs[1]->tasks[send].peer = 1;
    expect(fo_sim_engine_run(&engine, &run, NULL), FO_SCHEDULE, "expected another one of 3 ranks");
    s.programs[1]->tasks[send].peer = 2;
    assert_int_equal(fo_sim_engine_run(&engine, &run, NULL), FO_OK);
    destroy(&s);
}

static double bad_s(const void *context, int rank, const fo_task *task, int64_t row, int64_t rows)
{
    (void)context, (void)rank, (void)task, (void)rows;
    return row >= 16 ? NAN : 1e-6;
}

static void refuses(void **unused)
{
    (void)unused;
    fo_sim_machine machine;
    fo_sim_machine_ideal(&machine);
    fo_schedule_desc desc = describe(FO_PATTERN_GATHER, "flash", 6, 96, 8, 8);
    set s = build(&desc, 6);
    fo_sim_run run;
    const fo_sim_engine_desc good = engine_of(&s, &machine, flat_s, NULL);
    fo_sim_engine_desc d = good;
    d.period = 4;
    expect(fo_sim_engine_run(&d, &run, NULL), FO_INVALID, "a period of 4 of 6 ranks");
    d = good;
    d.tile_rows[1] = 0;
    expect(fo_sim_engine_run(&d, &run, NULL), FO_INVALID, "tiles of 0 rows");
    d = good;
    d.row_bytes[FO_BUFFER_PARTIAL] = -1;
    expect(fo_sim_engine_run(&d, &run, NULL), FO_INVALID, "rows of -1 bytes");
    d = good;
    d.speed = (double[]){1, 1, 1, 0, 1, 1};
    expect(fo_sim_engine_run(&d, &run, NULL), FO_INVALID, "rank 3 has speed 0");
    d = good;
    d.tile_s = bad_s;
    expect(fo_sim_engine_run(&d, &run, NULL), FO_INVALID, "from row 16 on of rank");
    d = good;
    d.ranks = 12;
    d.period = 6;
    expect(fo_sim_engine_run(&d, &run, NULL), FO_INVALID, "program 0 is of rank 0 of 6");
    machine.message_s = NAN;
    expect(fo_sim_engine_run(&good, &run, NULL), FO_INVALID, "message_s of the machine");
    machine.message_s = 0;
    machine.network.topology = FO_SIM_TORUS;
    machine.network.torus[0] = 2;
    machine.network.torus[1] = 4;
    expect(fo_sim_engine_run(&good, &run, NULL), FO_INVALID, "a torus of 8 for 6 ranks");
    machine.network.torus[1] = 3;
    d = good;
    d.period = 3;
    expect(fo_sim_engine_run(&d, &run, NULL), FO_INVALID, "and 2 or a multiple of it");
    assert_int_equal(fo_sim_engine_run(&good, &run, NULL), FO_OK);
    destroy(&s);
}

/* ---- what it costs ------------------------------------------------------------------------------------- */

/* 4,096 ranks by one of them; twice the ranks, twice the tasks, twice the events. */
static void many_ranks(void **unused)
{
    (void)unused;
    fo_sim_machine machine;
    fo_sim_machine_ideal(&machine);
    machine.network.link = (fo_sim_link){.bytes_per_s = 2e9, .latency_s = 1e-6};
    int64_t events[2];
    for (int pattern = 0; pattern < 6; pattern++) {
        for (int i = 0; i < 2; i++) {
            int ranks = i ? 8192 : 4096;
            fo_schedule_desc desc =
                describe((fo_pattern)pattern, "flash:1", ranks, (int64_t)ranks * 16, 8, 8);
            set s = build(&desc, 1);
            fo_sim_engine_desc engine = engine_of(&s, &machine, flat_s, NULL);
            fo_sim_run run;
            assert_int_equal(fo_sim_engine_run(&engine, &run, NULL), FO_OK);
            events[i] = run.events;
            destroy(&s);
        }
        assert_true(events[1] <= 2 * events[0] + 100);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_ranks),    cmocka_unit_test(equal_rows_and_machines),
        cmocka_unit_test(stragglers),     cmocka_unit_test(one_slow_rank),
        cmocka_unit_test(periods),        cmocka_unit_test(two_ranks),
        cmocka_unit_test(software),       cmocka_unit_test(contention),
        cmocka_unit_test(one_thread),     cmocka_unit_test(torus),
        cmocka_unit_test(machines),       cmocka_unit_test(timelines),
        cmocka_unit_test(waits_for_ever), cmocka_unit_test(nobody_there),
        cmocka_unit_test(refuses),        cmocka_unit_test(many_ranks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
