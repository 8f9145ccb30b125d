/* The engine against a second simulator that shares no code with it (reference.h), on random programs, machines and
 * networks: every rank ends, computes and waits as long, to 1e-9. */
#include "unit/sim/machines.h"
#include "unit/sim/reference.h"

static const char *const strategies[] = {"none",     "slice:2", "slice:3", "ring",
                                         "flash",    "flash:2", "flash:3", "direct",
                                         "direct:2", "hier",    "hier:2",  "none/hier"};

enum { STRATEGIES = sizeof strategies / sizeof *strategies };

/* No two tiles cost the same, so that nothing is decided by chance. */
static double tile_s(const void *context, int rank, const fo_task *task, int64_t row, int64_t rows)
{
    uint64_t key = *(const uint64_t *)context;
    key = mix(key ^ (uint64_t)rank << 40 ^ (uint64_t)row << 8 ^ (uint64_t)task->kind << 4 ^
              (uint64_t)task->slot);
    double factor = task->kind == FO_TASK_COMPUTE ? 1 : 0.1;
    return factor * (double)rows * 1e-5 * (0.5 + (double)(key >> 11) * 0x1p-53);
}

static void close_to(double found, double expected, const char *what, int rank, const char *where)
{
    if (fabs(found - expected) <= 1e-9 * expected + 1e-13)
        return;
    fail_msg("%s: rank %d %s %.12g s, the reference has %.12g s", where, rank, what, found,
             expected);
}

static void compare(const fo_sim_engine_desc *d, const char *where)
{
    fo_sim_run run;
    fo_sim_rank ranks[REF_RANKS];
    ref reference;
    ref_make(&reference, d);
    if (!ref_run(&reference))
        fail_msg("%s: the reference does not end", where);
    if (fo_sim_engine_run(d, &run, ranks) != FO_OK)
        fail_msg("%s: %s", where, fo_last_error());
    for (int r = 0; r < d->ranks; r++) {
        const fo_sim_rank *expected = &reference.sums[r];
        close_to(ranks[r].end_s, expected->end_s, "ends at", r, where);
        close_to(ranks[r].compute_s, expected->compute_s, "computes for", r, where);
        close_to(ranks[r].exposed_s, expected->exposed_s, "waits for", r, where);
        double start = d->start_s ? d->start_s[r] : 0;
        close_to(start + ranks[r].compute_s + ranks[r].exposed_s, ranks[r].end_s, "adds up to", r,
                 where);
    }
    ref_free(&reference);
}

static void one_case(uint64_t key)
{
    dice d = {key, 0};
    int ranks = 1 + below(&d, 6), nodes = 1;
    const char *strategy = strategies[below(&d, STRATEGIES)];
    fo_pattern pattern = (fo_pattern)below(&d, 6);
    if (strstr(strategy, "hier")) {
        nodes = 2 + below(&d, 2);
        ranks = nodes * (1 + below(&d, 3));
    }
    int64_t stream = 4 * (1 + below(&d, 2)), quantum = 4 * (1 + below(&d, 3));
    int64_t rows = below(&d, 2) ? ranks * 4 * (1 + below(&d, 3)) : 1 + below(&d, ranks * 14);
    fo_schedule_desc desc = describe(pattern, strategy, ranks, rows, quantum, stream);
    desc.nodes = nodes;
    set s = build(&desc, ranks);
    fo_sim_machine machine;
    random_machine(&d, &machine, ranks, nodes);
    double speed[REF_RANKS], start[REF_RANKS], prepare[REF_RANKS];
    for (int r = 0; r < ranks; r++) {
        speed[r] = between(&d, 0.5, 1.5);
        start[r] = between(&d, 0, 1e-3);
        prepare[r] = between(&d, 0, 2e-4);
    }
    fo_sim_engine_desc engine = engine_of(&s, &machine, tile_s, &key);
    engine.tile_rows[0] = 4;
    engine.row_bytes[FO_BUFFER_SHARD] = engine.row_bytes[FO_BUFFER_GATHERED] = 1100;
    engine.speed = below(&d, 2) ? speed : NULL;
    engine.start_s = below(&d, 2) ? start : NULL;
    engine.prepare_s = below(&d, 2) ? prepare : NULL;
    char where[256];
    snprintf(where, sizeof where,
             "case %d: %s %s, %d ranks on %d, %d rows, messages %d, network %d locals %d ports %d, "
             "async %d views %d task %g message %g wake %g cpu %g contention %g",
             (int)key, pattern_names[pattern], strategy, ranks, nodes, (int)rows, (int)stream,
             (int)machine.network.topology, machine.network.locals, machine.network.outer_ports,
             machine.async, machine.views, machine.task_s, machine.message_s, machine.wake_s,
             machine.cpu_s_per_byte, machine.contention);
    compare(&engine, where);
    destroy(&s);
}

static void random_cases(void **unused)
{
    (void)unused;
    for (int i = 0; i < 1500; i++)
        one_case((uint64_t)i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_cases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
