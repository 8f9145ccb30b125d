/* Chakra execution traces: every program of every strategy, read back by another decoder; messages meet, sizes and
 * times add up, what a program says comes first comes first, and all of it can run. */
#include "unit/planner/chakra_file.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "planner/chakra.h"

enum { RANKS = 5, PARTS = 2, TILE = 3, BLOCK = 4, STREAM = 2 };

static char folder[] = "/tmp/fo-chakra-XXXXXX";
static const char *const strategies[] = {"none",    "slice:3", "ring",    "flash",
                                         "flash:2", "direct",  "direct:2"};

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

/* The programs of all ranks for operations that follow each other. */
typedef struct job {
    int ranks, parts;
    fo_program *programs[PARTS][RANKS];
    double *task_s[PARTS][RANKS];
    fo_planner_chakra_operation operations[RANKS][PARTS];
    trace_file files[RANKS];
} job;

/* Both ends of a message have rows of one size. */
static const int64_t row_bytes[FO_BUFFER_ROLES] = {
    [FO_BUFFER_SHARD] = 10,  [FO_BUFFER_FULL] = 20,    [FO_BUFFER_GATHERED] = 10,
    [FO_BUFFER_ACC] = 40,    [FO_BUFFER_PARTIAL] = 50, [FO_BUFFER_STAGING] = 50,
    [FO_BUFFER_HIDDEN] = 60, [FO_BUFFER_OUTPUT] = 70};

static bool computes(const fo_task *task)
{
    return task->kind != FO_TASK_SEND && task->kind != FO_TASK_RECV;
}

static void add_part(job *j, fo_pattern pattern, const char *strategy, int nodes, int64_t rows)
{
    int part = j->parts++;
    fo_schedule_desc desc = {.pattern = pattern,
                             .ranks = j->ranks,
                             .nodes = nodes,
                             .rows = rows,
                             .quantum = BLOCK,
                             .stream_rows = STREAM};
    assert_int_equal(fo_strategy_parse(strategy, &desc.strategy), FO_OK);
    for (int r = 0; r < j->ranks; r++) {
        assert_int_equal(fo_schedule_build(&desc, r, &j->programs[part][r]), FO_OK);
        fo_program *p = j->programs[part][r];
        double *task_s = calloc((size_t)p->task_count + 1, sizeof *task_s);
        for (int32_t t = 0; t < p->task_count; t++) /* some take no whole microsecond */
            task_s[t] = computes(&p->tasks[t]) ? (double)(t % 7) * 1.3e-6 + 0.2e-6 : 0;
        j->task_s[part][r] = task_s;
        fo_planner_chakra_operation *o = &j->operations[r][part];
        *o = (fo_planner_chakra_operation){.name = part ? "second" : "first",
                                           .program = p,
                                           .tile_rows = {TILE, BLOCK},
                                           .task_s = task_s,
                                           .prepare_s = part && r ? 2.6e-6 : 0};
        memcpy(o->row_bytes, row_bytes, sizeof row_bytes);
    }
}

static void path_of(int rank, char *path, size_t size)
{
    snprintf(path, size, "%s/a.%d.et", folder, rank);
}

static void write_job(job *j)
{
    const fo_planner_chakra_fact facts[] = {{"operation", "a test"}, {"ranks", ""}};
    char path[128];
    for (int r = 0; r < j->ranks; r++) {
        path_of(r, path, sizeof path);
        assert_int_equal(fo_planner_chakra_write(path, j->operations[r], j->parts, facts, 2),
                         FO_OK);
        j->files[r] = read_trace(path);
        assert_string_equal(j->files[r].facts, "operation=a test;ranks=;");
        unlink(path);
    }
}

static void free_job(job *j)
{
    for (int r = 0; r < j->ranks; r++) {
        for (int part = 0; part < j->parts; part++) {
            fo_schedule_free(j->programs[part][r]);
            free(j->task_s[part][r]);
        }
        free_trace(&j->files[r]);
    }
}

/* ---- each file -------------------------------------------------------------------------------------- */

/* Node n needs node m, directly or not; data: by data_deps alone. One row of bits a node. */
typedef struct needs {
    unsigned char *bits;
    int count;
} needs;

static bool need(const needs *n, int which, int other)
{
    return n->bits[(size_t)which * (size_t)n->count + (size_t)other];
}

static void need_all_of(needs *n, int which, uint64_t other)
{
    unsigned char *to = n->bits + (size_t)which * (size_t)n->count;
    const unsigned char *from = n->bits + (size_t)other * (size_t)n->count;
    for (int i = 0; i < which; i++)
        to[i] |= from[i];
    to[other] = 1;
}

static needs needs_of(const trace_file *file, bool data_alone)
{
    needs n = {calloc((size_t)file->count + 1, (size_t)file->count + 1), file->count};
    assert_non_null(n.bits);
    for (int i = 0; i < file->count; i++) {
        const node *at = &file->nodes[i];
        for (int d = 0; d < at->data_count; d++)
            need_all_of(&n, i, at->data[d]);
        for (int d = 0; !data_alone && d < at->ctrl_count; d++)
            need_all_of(&n, i, at->ctrl[d]);
    }
    return n;
}

/* Every dependency is on a node that comes earlier; numbers count up; nothing is missing. */
static void check_nodes(const trace_file *file)
{
    assert_string_equal(file->version, "0.0.4");
    for (int i = 0; i < file->count; i++) {
        const node *n = &file->nodes[i];
        assert_int_equal(n->id, i);
        assert_true(n->type >= COMP_NODE && n->type <= COMM_RECV_NODE);
        assert_false(n->is_cpu_op);
        assert_true(n->name[0]);
        assert_true((n->type == COMP_NODE) == (n->size < 0));
        for (int d = 0; d < n->data_count; d++)
            assert_true(n->data[d] < n->id);
        for (int d = 0; d < n->ctrl_count; d++)
            assert_true(n->ctrl[d] < n->id);
    }
}

static int64_t step_of(const fo_program *p, const fo_task *task)
{
    return task->kind == FO_TASK_COMPUTE ? (task->slot == 1 ? BLOCK : TILE) : p->stream_rows;
}

/* First row of a task's piece, and how many it has; false: there are no more pieces. */
static bool piece_at(const fo_program *p, const fo_task *task, int piece, int64_t *row,
                     int64_t *rows)
{
    int64_t step = step_of(p, task), left = task->rows - piece * step;
    *row = task->row + piece * step;
    *rows = left < step ? left : step;
    return left > 0;
}

static int pieces_of(const fo_program *p, const fo_task *task)
{
    int count = 0;
    for (int64_t row, rows; piece_at(p, task, count, &row, &rows);)
        count++;
    return count;
}

/* What a piece must wait for, found the slow way, is among what its node needs. */
static void check_piece(const fo_program *p, const int *first, int32_t t, int piece,
                        const needs *data, const needs *all)
{
    int64_t row, rows, its_row, its_rows;
    const fo_task *task = &p->tasks[t];
    piece_at(p, task, piece, &row, &rows);
    int here = first[t] + piece;
    for (int32_t d = 0; d < task->dep_count; d++) {
        const fo_dep *dep = &p->deps[task->dep_first + d];
        const fo_task *producer = &p->tasks[dep->task];
        for (int other = 0; piece_at(p, producer, other, &its_row, &its_rows); other++) {
            bool meet = its_row < row + rows && row < its_row + its_rows;
            if (dep->mode == FO_DEP_ROWS && !meet)
                continue;
            if (!need(dep->mode == FO_DEP_SPACE ? all : data, here, first[dep->task] + other))
                fail_msg("task %d piece %d does not need piece %d of task %d", (int)t, piece, other,
                         (int)dep->task);
        }
    }
}

/* The compute lane is in order; a ROWS dependency is not on more rows than it must be. */
static void check_lane(const trace_file *file, const needs *all)
{
    int before = -1;
    for (int i = 0; i < file->count; i++) {
        if (file->nodes[i].type != COMP_NODE)
            continue;
        assert_true(before < 0 || need(all, i, before));
        before = i;
    }
}

static double rounded(double seconds)
{
    return floor(seconds * 1e6 + 0.5);
}

/* Nodes of a task: their count, rows, bytes, time. Returns the first node behind the program's. */
static int check_program(const job *j, int part, int rank, int at, int *first)
{
    const fo_program *p = j->programs[part][rank];
    const trace_file *file = &j->files[rank];
    double prepare_s = j->operations[rank][part].prepare_s;
    if (prepare_s > 0) {
        assert_int_equal(file->nodes[at].type, COMP_NODE);
        assert_int_equal(file->nodes[at].duration, rounded(prepare_s));
        at++;
    }
    for (int32_t t = 0; t < p->task_count; t++) {
        const fo_task *task = &p->tasks[t];
        bool send = task->kind == FO_TASK_SEND;
        int64_t rows = 0, size = 0;
        uint64_t duration = 0;
        first[t] = at;
        for (int end = at + pieces_of(p, task); at < end; at++) {
            const node *n = &file->nodes[at];
            assert_true(at < file->count);
            assert_int_equal(n->type, computes(task) ? COMP_NODE
                                      : send         ? COMM_SEND_NODE
                                                     : COMM_RECV_NODE);
            rows += n->rows;
            size += n->size;
            duration += n->duration;
            if (!computes(task)) {
                assert_int_equal(n->src, send ? rank : task->peer);
                assert_int_equal(n->dst, send ? task->peer : rank);
            }
        }
        assert_int_equal(rows, task->rows);
        if (computes(task))
            assert_int_equal(duration, rounded(j->task_s[part][rank][t]));
        else
            assert_int_equal(
                size, rows * row_bytes[p->buffers[send ? task->in.buffer : task->out.buffer].role]);
    }
    return at;
}

static void check_rank(const job *j, int rank)
{
    const trace_file *file = &j->files[rank];
    needs data = needs_of(file, true), all = needs_of(file, false);
    int at = 0;
    check_nodes(file);
    check_lane(file, &all);
    for (int part = 0; part < j->parts; part++) {
        const fo_program *p = j->programs[part][rank];
        int *first = calloc((size_t)p->task_count + 1, sizeof *first), begin = at;
        at = check_program(j, part, rank, at, first);
        for (int32_t t = 0; t < p->task_count; t++)
            for (int piece = 0; piece < pieces_of(p, &p->tasks[t]); piece++)
                check_piece(p, first, t, piece, &data, &all);
        /* nothing of the next operation begins before this one's last computation */
        int last = -1;
        for (int i = 0; i < begin; i++)
            last = file->nodes[i].type == COMP_NODE ? i : last;
        for (int i = begin; last >= 0 && i < at; i++)
            assert_true(need(&data, i, last));
        free(first);
    }
    assert_int_equal(at, file->count);
    free(data.bits);
    free(all.bits);
}

/* ---- all files together ------------------------------------------------------------------------------ */

static const node *partner_of(const job *j, const node *n)
{
    const trace_file *file = &j->files[n->type == COMM_SEND_NODE ? n->dst : n->src];
    const node *found = NULL;
    int wanted = n->type == COMM_SEND_NODE ? COMM_RECV_NODE : COMM_SEND_NODE;
    for (int i = 0; i < file->count; i++) {
        const node *other = &file->nodes[i];
        if (other->type != wanted || other->src != n->src || other->dst != n->dst ||
            other->tag != n->tag)
            continue;
        if (found)
            fail_msg("two messages from %d to %d have tag %d", (int)n->src, (int)n->dst,
                     (int)n->tag);
        found = other;
    }
    return found;
}

static void check_messages(const job *j)
{
    for (int r = 0; r < j->ranks; r++)
        for (int i = 0; i < j->files[r].count; i++) {
            const node *n = &j->files[r].nodes[i];
            if (n->type == COMP_NODE)
                continue;
            assert_true(n->src != n->dst);
            const node *other = partner_of(j, n);
            if (!other)
                fail_msg("%s has no other end", n->name);
            assert_int_equal(other->size, n->size);
            assert_int_equal(other->rows, n->rows);
        }
}

/* Runs the files as a simulator would that ends a message only once both ends have begun: all must end. */
static void check_progress(const job *j)
{
    unsigned char *done[RANKS], *begun[RANKS];
    int left = 0;
    for (int r = 0; r < j->ranks; r++) {
        done[r] = calloc((size_t)j->files[r].count + 1, 1);
        begun[r] = calloc((size_t)j->files[r].count + 1, 1);
        left += j->files[r].count;
    }
    for (bool moved = true; moved && left;) {
        moved = false;
        for (int r = 0; r < j->ranks; r++)
            for (int i = 0; i < j->files[r].count; i++) {
                const node *n = &j->files[r].nodes[i];
                bool ready = !done[r][i];
                for (int d = 0; ready && d < n->data_count; d++)
                    ready = done[r][n->data[d]];
                for (int d = 0; ready && d < n->ctrl_count; d++)
                    ready = done[r][n->ctrl[d]];
                if (!ready)
                    continue;
                moved |= !begun[r][i];
                begun[r][i] = 1;
                if (n->type != COMP_NODE) {
                    int peer = (int)(n->type == COMM_SEND_NODE ? n->dst : n->src);
                    if (!begun[peer][partner_of(j, n)->id])
                        continue;
                }
                done[r][i] = 1;
                left--;
                moved = true;
            }
    }
    assert_int_equal(left, 0);
    for (int r = 0; r < j->ranks; r++) {
        free(done[r]);
        free(begun[r]);
    }
}

static void check_job(job *j)
{
    write_job(j);
    for (int r = 0; r < j->ranks; r++)
        check_rank(j, r);
    check_messages(j);
    check_progress(j);
    free_job(j);
}

static void test_all_programs(void **state)
{
    (void)state;
    const int64_t rows[] = {0, 3, 23};
    for (size_t s = 0; s < sizeof strategies / sizeof *strategies; s++)
        for (int pattern = 0; pattern <= FO_PATTERN_BLOCK; pattern++)
            for (int ranks = 1; ranks <= RANKS; ranks += 1 + (ranks == 3))
                for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
                    job j = {.ranks = ranks};
                    add_part(&j, (fo_pattern)pattern, strategies[s], 1, rows[i]);
                    check_job(&j);
                }
}

static void test_machines(void **state)
{
    (void)state;
    for (int pattern = 0; pattern <= FO_PATTERN_BLOCK; pattern++) {
        job j = {.ranks = 4}, k = {.ranks = 4};
        add_part(&j, (fo_pattern)pattern, "hier", 2, 29);
        check_job(&j);
        add_part(&k, (fo_pattern)pattern, "none/hier", 2, 29);
        check_job(&k);
    }
}

/* Two operations: the second waits for the first, and tags go on. */
static void test_one_after_another(void **state)
{
    (void)state;
    for (size_t s = 0; s < sizeof strategies / sizeof *strategies; s++) {
        job j = {.ranks = 3};
        add_part(&j, FO_PATTERN_GATHER2, strategies[s], 1, 19);
        add_part(&j, FO_PATTERN_JOINT, strategies[s], 1, 19);
        check_job(&j);
    }
}

/* What is streamed stays streamed: under flash the first arriving message is computed on before the second one is
 * there. */
static void test_streams(void **state)
{
    (void)state;
    job j = {.ranks = 2};
    add_part(&j, FO_PATTERN_GATHER, "flash", 1, 24);
    write_job(&j);
    const trace_file *file = &j.files[0];
    needs all = needs_of(file, false);
    int first = -1, second = -1, early = 0;
    for (int i = 0; i < file->count; i++)
        if (file->nodes[i].type == COMM_RECV_NODE) {
            second = first >= 0 && second < 0 ? i : second;
            first = first < 0 ? i : first;
        }
    assert_true(second > 0);
    for (int i = 0; i < file->count; i++)
        early +=
            file->nodes[i].type == COMP_NODE && need(&all, i, first) && !need(&all, i, second + 1);
    assert_true(early > 0);
    free(all.bits);
    free_job(&j);
}

/* ---- files ------------------------------------------------------------------------------------------ */

static void golden_path(char *path, size_t size)
{
    const char *slash = strrchr(__FILE__, '/');
    int length = slash ? (int)(slash - __FILE__) : 1;
    snprintf(path, size, "%.*s/golden/chakra.hex", length, slash ? __FILE__ : ".");
}

/* The bytes themselves: a change of the format is seen. */
static void test_golden(void **state)
{
    (void)state;
    char path[1024], golden[1024], *text, *expected;
    job j = {.ranks = 2};
    size_t size, length;
    add_part(&j, FO_PATTERN_REDUCE, "flash", 1, 5);
    write_job(&j);
    path_of(1, path, sizeof path);
    const fo_planner_chakra_fact facts[] = {{"operation", "row forward"}};
    assert_int_equal(fo_planner_chakra_write(path, j.operations[1], 1, facts, 1), FO_OK);
    unsigned char *data = read_bytes(path, &size);
    unlink(path);
    text = calloc(1, 4 * size + 8);
    for (size_t i = 0; i < size; i++)
        sprintf(text + strlen(text), "%02x%s", data[i], i % 32 == 31 || i + 1 == size ? "\n" : " ");
    golden_path(golden, sizeof golden);
    if (getenv("FO_GOLDEN_UPDATE")) {
        FILE *out = fopen(golden, "wb");
        assert_non_null(out);
        fputs(text, out);
        assert_int_equal(fclose(out), 0);
    }
    expected = (char *)read_bytes(golden, &length);
    expected[length] = '\0';
    assert_string_equal(text, expected);
    free(expected);
    free(text);
    free(data);
    free_job(&j);
}

/* A file that can't be written leaves what was there, and nothing else. */
static void test_whole_or_not(void **state)
{
    (void)state;
    char path[128];
    job j = {.ranks = 2};
    add_part(&j, FO_PATTERN_REDUCE, "flash", 1, 5);
    write_job(&j);
    snprintf(path, sizeof path, "%s/nowhere/a.et", folder);
    assert_int_equal(fo_planner_chakra_write(path, j.operations[0], 1, NULL, 0), FO_IO);
    snprintf(path, sizeof path, "%s/a.et", folder);
    assert_int_equal(mkdir(path, 0777), 0);
    assert_int_equal(fo_planner_chakra_write(path, j.operations[0], 1, NULL, 0), FO_IO);
    assert_int_equal(rmdir(path), 0); /* the folder is left empty, or its own rmdir fails */
    free_job(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_programs),
                                       cmocka_unit_test(test_machines),
                                       cmocka_unit_test(test_one_after_another),
                                       cmocka_unit_test(test_streams),
                                       cmocka_unit_test(test_golden),
                                       cmocka_unit_test(test_whole_or_not)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
