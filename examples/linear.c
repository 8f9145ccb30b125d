/* A row-parallel linear layer on two ranks: describe it, execute it, ask what happened. */
#include <stdio.h>

#include <flashoverlap/flashoverlap.h>

enum { ROWS = 1024, IN = 512, OUT = 256 };

static fo_status linear(fo_group *group, void *arg)
{
    (void)arg;
    int rank = fo_group_rank(group), ranks = fo_group_size(group);
    int64_t in = fo_shard_rows(IN, ranks, rank);     /* features this rank multiplies */
    int64_t rows = fo_shard_rows(ROWS, ranks, rank); /* rows of the result it keeps */
    float *x = fo_group_alloc(group, (size_t)(ROWS * in) * sizeof *x);
    float *w = fo_group_alloc(group, (size_t)(OUT * in) * sizeof *w);
    float *y = fo_group_alloc(group, (size_t)(rows * OUT) * sizeof *y);
    if (!x || !w || !y)
        return FO_NO_MEMORY;
    for (int64_t i = 0; i < ROWS * in; i++)
        x[i] = 1.0f;
    for (int64_t i = 0; i < OUT * in; i++)
        w[i] = 0.5f;

    fo_plan *plan;
    fo_plan_desc desc = {
        .op = FO_ROW_FORWARD, .rows = ROWS, .in = in, .out = OUT, .overlap = "flash"};
    fo_status status = fo_plan_create(group, &desc, &plan);
    if (status == FO_OK)
        status = fo_plan_execute(plan, &(fo_plan_args){.x = x, .w = w, .y = y});
    if (status == FO_OK && rank == 0) {
        fo_report report;
        fo_plan_report(plan, &report);
        printf("%s\ny[0][0] = %g, expected %g; %.3f ms, %.3f ms exposed\n", fo_plan_explain(plan),
               (double)y[0], IN * 0.5, (double)report.total_ns * 1e-6,
               (double)report.exposed_ns * 1e-6);
    }
    fo_plan_destroy(plan);
    return status;
}

int main(void)
{
    fo_status status = fo_group_run(&(fo_group_options){.ranks = 2}, linear, NULL);
    if (status != FO_OK)
        fprintf(stderr, "%s\n", fo_last_error());
    return status == FO_OK ? 0 : 1;
}
