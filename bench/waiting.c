/* What waiting costs: ranks 1 to N-1 execute a collective at once, rank 0 sleeps first. Each waiting rank takes
 * the processor time of its process over the wait.
 *
 *   waiting [RANKS [SECONDS]]
 *
 * Prints, for all-gather and reduce-scatter under every strategy, the processor time of all waiting ranks
 * together in % of one core and exits 1 when it exceeds the limit. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include <flashoverlap/flashoverlap.h>

enum { ROWS_A_RANK = 256, WIDTH = 64, STRATEGIES = 6 };
static const double limit_pct = 5;

static const char *const strategies[STRATEGIES] = {"none",  "slice:4", "ring",
                                                   "flash", "flash:2", "direct"};

/* In memory that the ranks, which are processes, share with main. */
typedef struct setting {
    double seconds;
    int exceeded; /* figures not below the limit; rank 0 writes it */
} setting;

typedef struct sample {
    double processor_s, wall_s;
} sample;

static double seconds_of(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static fo_status execute(fo_plan *plan, const fo_plan_args *args, double sleep_s, sample *taken)
{
    if (sleep_s > 0) {
        struct timespec t = {(time_t)sleep_s, (long)((sleep_s - (double)(time_t)sleep_s) * 1e9)};
        while (nanosleep(&t, &t) != 0)
            ;
    }
    double processor = seconds_of(CLOCK_PROCESS_CPUTIME_ID), wall = seconds_of(CLOCK_MONOTONIC);
    fo_status status = fo_plan_execute(plan, args);
    taken->processor_s = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - processor;
    taken->wall_s = seconds_of(CLOCK_MONOTONIC) - wall;
    return status;
}

/* One collective under one strategy: first once together, then with rank 0 late. */
static fo_status measure(fo_group *group, fo_op op, const char *strategy, double sleep_s,
                         const fo_plan_args *args, double *share_pct)
{
    int rank = fo_group_rank(group), ranks = fo_group_size(group);
    fo_plan_desc desc = {.op = op,
                         .rows = (int64_t)ROWS_A_RANK * ranks,
                         .in = WIDTH,
                         .overlap = strategy};
    fo_plan *plan;
    fo_status status = fo_plan_create(group, &desc, &plan);
    if (status != FO_OK)
        return status;
    sample mine = {0}, *all = calloc((size_t)ranks, sizeof *all);
    status = all ? execute(plan, args, 0, &mine) : FO_NO_MEMORY;
    if (status == FO_OK)
        status = fo_group_barrier(group);
    if (status == FO_OK)
        status = execute(plan, args, rank == 0 ? sleep_s : 0, &mine);
    if (status == FO_OK)
        status = fo_group_allgather(group, &mine, sizeof mine, all);
    *share_pct = 0;
    for (int r = 1; status == FO_OK && r < ranks; r++)
        *share_pct += 100 * all[r].processor_s / all[r].wall_s;
    free(all);
    fo_plan_destroy(plan);
    return status;
}

static fo_status rank_main(fo_group *group, void *arg)
{
    setting *s = arg;
    int64_t rows = (int64_t)ROWS_A_RANK * fo_group_size(group);
    float *x = fo_group_alloc(group, (size_t)(rows * WIDTH) * sizeof *x);
    float *y = fo_group_alloc(group, (size_t)(rows * WIDTH) * sizeof *y);
    fo_plan_args args = {.x = x, .y = y};
    fo_status status = x && y ? FO_OK : FO_NO_MEMORY;
    bool speaks = fo_group_rank(group) == 0;
    if (speaks)
        printf("%d ranks wait %.1f s for rank 0: processor time of all of them, %% of one core\n\n"
               "%-10s%15s%20s\n",
               fo_group_size(group) - 1, s->seconds, "overlap", "all-gather", "reduce-scatter");
    for (int i = 0; status == FO_OK && i < STRATEGIES; i++) {
        double gather, reduce;
        status = measure(group, FO_ALL_GATHER, strategies[i], s->seconds, &args, &gather);
        if (status == FO_OK)
            status = measure(group, FO_REDUCE_SCATTER, strategies[i], s->seconds, &args, &reduce);
        if (status != FO_OK)
            break;
        if (speaks) {
            s->exceeded += (gather >= limit_pct) + (reduce >= limit_pct);
            printf("%-10s%15.2f%20.2f\n", strategies[i], gather, reduce);
            fflush(stdout);
        }
    }
    return status;
}

int main(int argc, char **argv)
{
    setting *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s == MAP_FAILED) {
        perror("waiting: mmap");
        return 1;
    }
    fo_group_options options = {.ranks = argc > 1 ? atoi(argv[1]) : 16, .threads = 1};
    s->seconds = argc > 2 ? atof(argv[2]) : 2;
    fo_status status = fo_group_run(&options, rank_main, s);
    if (status != FO_OK) {
        fprintf(stderr, "waiting: %s\n", fo_last_error());
        return 1;
    }
    if (s->exceeded)
        printf("\nFAILED: %d figures are not below %.0f %%\n", s->exceeded, limit_pct);
    else
        printf("\nEvery figure is below %.0f %%.\n", limit_pct);
    return s->exceeded ? 1 : 0;
}
