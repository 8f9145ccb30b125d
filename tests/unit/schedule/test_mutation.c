/* Valid programs broken in one place each: the verifier has to refuse every one of them, and to say where.
 * A test that can fail: a rule the verifier lost lets one of these through. */
#include "unit/schedule/programs.h"

/* The set is broken: FO_SCHEDULE, with a sentence that holds `word`. */
static void refused(set *s, const char *what, const char *word)
{
    fo_verdict verdict;
    fo_status status = verify(s, &verdict);
    if (status != FO_SCHEDULE)
        fail_msg("%s: accepted", what);
    assert_false(verdict.ok);
    assert_string_equal(verdict.text, fo_last_error());
    if (!strstr(verdict.text, word))
        fail_msg("%s: refused, but for another reason: %s", what, verdict.text);
    destroy(s);
}

static fo_task *task_of(set *s, int rank, fo_task_kind kind, int channel, int n)
{
    fo_program *p = s->programs[rank];
    return &p->tasks[nth_task(p, kind, channel, n)];
}

static set flash(fo_pattern pattern)
{
    return build(pattern, "flash:2", 4, 32, 1);
}

/* ---- tasks that are missing, doubled or changed ---------------------------------------------------- */

static void test_dropped_tasks(void **state)
{
    static const fo_task_kind kinds[] = {FO_TASK_COMPUTE, FO_TASK_SEND, FO_TASK_RECV};
    (void)state;
    for (fo_pattern pattern = FO_PATTERN_GATHER; pattern <= FO_PATTERN_BLOCK; pattern++)
        for (int k = 0; k < 3; k++)
            for (int rank = 0; rank < 4; rank++)
                for (int n = 0; n < 6; n++) {
                    set s = flash(pattern);
                    drop_task(s.programs[rank], nth_task(s.programs[rank], kinds[k], -1, n));
                    refused(&s, "a dropped task", "rank");
                }
}

static void test_dropped_add(void **state)
{
    static const char *const strategies[] = {"none", "slice:2", "ring", "direct"};
    (void)state;
    for (int i = 0; i < 4; i++) {
        set s = build(FO_PATTERN_REDUCE, strategies[i], 4, 32, 1);
        drop_task(s.programs[1], nth_task(s.programs[1], FO_TASK_ADD, -1, 0));
        refused(&s, strategies[i], "rank");
    }
}

/* Everything of a slice is missing on every rank: all messages still match. */
static void test_dropped_slice(void **state)
{
    (void)state;
    for (fo_pattern pattern = FO_PATTERN_GATHER; pattern <= FO_PATTERN_BLOCK; pattern++) {
        set s = flash(pattern);
        for (int r = 0; r < 4; r++)
            for (int32_t t = s.programs[r]->task_count - 1; t >= 0; t--)
                if (s.programs[r]->tasks[t].shard == 2 && s.programs[r]->tasks[t].sub == 1)
                    drop_task(s.programs[r], t);
        refused(&s, "a slice that nobody computes", "rank");
    }
}

static void test_swapped_sends(void **state)
{
    (void)state;
    for (fo_pattern pattern = FO_PATTERN_GATHER; pattern <= FO_PATTERN_BLOCK; pattern++) {
        set s = flash(pattern);
        int channel = pattern == FO_PATTERN_REDUCE;
        fo_task *a = task_of(&s, 1, FO_TASK_SEND, channel, 2), old = *a;
        fo_task *b = task_of(&s, 1, FO_TASK_SEND, channel, 3);
        a->row = b->row, a->in = b->in, a->sub = b->sub;
        b->row = old.row, b->in = old.in, b->sub = old.sub;
        refused(&s, "swapped sends", "rank 1");
    }
}

static void test_wrong_peer(void **state)
{
    static const int peers[] = {-1, 4, 1, 3}; /* rank 1 sends to 2 */
    (void)state;
    for (int i = 0; i < 4; i++) {
        set s = flash(FO_PATTERN_REDUCE);
        task_of(&s, 1, FO_TASK_SEND, 1, 1)->peer = peers[i];
        refused(&s, "a send to the wrong peer", "rank");
    }
    set s = flash(FO_PATTERN_GATHER);
    task_of(&s, 1, FO_TASK_RECV, 0, 0)->peer = 2;
    refused(&s, "a receive from the wrong peer", "rank");
}

static void test_wrong_channel(void **state)
{
    static const int channels[] = {0, 2, -1};
    (void)state;
    for (int i = 0; i < 3; i++) {
        set s = flash(FO_PATTERN_REDUCE);
        task_of(&s, 2, FO_TASK_SEND, 1, 0)->channel = channels[i];
        refused(&s, "a send on the wrong channel", "rank");
    }
    /* both ends agree on a channel that does not exist */
    set s = flash(FO_PATTERN_REDUCE);
    task_of(&s, 0, FO_TASK_SEND, 1, 0)->channel = 7;
    task_of(&s, 1, FO_TASK_RECV, 1, 0)->channel = 7;
    refused(&s, "a channel that does not exist", "channel");
}

static void test_wrong_rows(void **state)
{
    static const fo_task_kind kinds[] = {FO_TASK_COMPUTE, FO_TASK_SEND, FO_TASK_RECV};
    (void)state;
    for (fo_pattern pattern = FO_PATTERN_GATHER; pattern <= FO_PATTERN_BLOCK; pattern++)
        for (int k = 0; k < 3; k++)
            for (int change = 0; change < 5; change++) {
                set s = flash(pattern);
                fo_task *task = task_of(&s, 2, kinds[k], -1, 3);
                fo_ref *ref = kinds[k] == FO_TASK_RECV ? &task->out : &task->in;
                if (change == 0)
                    task->row++;
                else if (change == 1)
                    task->rows--;
                else if (change == 2)
                    task->rows = 0;
                else if (change == 3)
                    ref->row++;
                else
                    ref->row = 1000;
                refused(&s, "a task with other rows", "rank");
            }
}

static void test_wrong_buffers(void **state)
{
    (void)state;
    for (int change = 0; change < 5; change++) {
        set s = flash(FO_PATTERN_REDUCE);
        fo_task *compute = task_of(&s, 3, FO_TASK_COMPUTE, -1, 2);
        if (change == 0)
            compute->in.buffer = 99;
        else if (change == 1)
            compute->in.buffer = -1;
        else if (change == 2)
            compute->out.buffer = -1;
        else if (change == 3)
            compute->out = compute->in; /* over its input */
        else
            compute->add.buffer = -1; /* what was received is lost */
        refused(&s, "a task with another buffer", "rank");
    }
}

/* ---- dependencies ---------------------------------------------------------------------------------- */

/* Whether a flash program needs this dependency to be right. Others repeat what the compute lane or another
 * dependency already says, or free a slot that nobody has used yet. */
static bool needed(const fo_program *p, const fo_task *task, const fo_dep *dep)
{
    const fo_task *before = &p->tasks[dep->task];
    int first = p->pattern == FO_PATTERN_BLOCK && task->channel == 1; /* one step behind */
    if (dep->mode == FO_DEP_SPACE && before->step == first)
        return false;
    return p->pattern != FO_PATTERN_GATHER2 || task->kind != FO_TASK_COMPUTE || task->slot == 0;
}

static int drop_each_dep(fo_pattern pattern, int32_t t, int32_t count)
{
    int dropped = 0;
    for (int32_t d = 0; d < count; d++) {
        set s = build(pattern, "flash:1", 6, 12, 2);
        fo_program *p = s.programs[1];
        int32_t index = p->tasks[t].dep_first + d;
        if (!needed(p, &p->tasks[t], &p->deps[index])) {
            destroy(&s);
            continue;
        }
        drop_dep(p, t, index);
        refused(&s, "a dropped dependency", "rank 1");
        dropped++;
    }
    return dropped;
}

static void test_dropped_deps(void **state)
{
    int dropped = 0;
    (void)state;
    for (fo_pattern pattern = FO_PATTERN_GATHER; pattern <= FO_PATTERN_BLOCK; pattern++) {
        set s = build(pattern, "flash:1", 6, 12, 2);
        for (int32_t t = 0; t < s.programs[1]->task_count; t++)
            dropped += drop_each_dep(pattern, t, s.programs[1]->tasks[t].dep_count);
        destroy(&s);
    }
    assert_true(dropped > 50);
}

/* Cuts task t in two: rows [0, rows) stay, the rest becomes task t + 1. It gets no dependencies. */
static void cut_task(fo_program *p, int32_t t, int64_t rows)
{
    if (p->task_count == p->task_capacity) {
        p->tasks = realloc(p->tasks, (size_t)(p->task_capacity + 8) * sizeof *p->tasks);
        assert_non_null(p->tasks);
        p->task_capacity += 8;
    }
    for (int32_t d = 0; d < p->dep_count; d++)
        p->deps[d].task += p->deps[d].task > t;
    memmove(&p->tasks[t + 1], &p->tasks[t], (size_t)(p->task_count - t) * sizeof *p->tasks);
    p->task_count++;
    fo_task *a = &p->tasks[t], *b = a + 1;
    a->rows = rows;
    b->row += rows;
    b->rows -= rows;
    b->in.row += rows;
    b->add.row += rows;
    b->out.row += rows;
    b->dep_count = 0;
}

/* Two ranks; what rank 0 sends goes in two halves. `waits`: whether the
 * second SEND waits for its rows. */
static set halves(bool waits)
{
    set s = build(FO_PATTERN_REDUCE, "flash", 2, 8, 1);
    fo_program *a = s.programs[0], *b = s.programs[1];
    int32_t send = nth_task(a, FO_TASK_SEND, 1, 0), recv = nth_task(b, FO_TASK_RECV, 1, 0);
    cut_task(a, send, 2);
    add_dep(a, send + 1, send, FO_DEP_DONE);
    if (waits)
        add_dep(a, send + 1, nth_task(a, FO_TASK_COMPUTE, -1, 0), FO_DEP_ROWS);
    cut_task(b, recv, 2);
    int32_t compute = nth_task(b, FO_TASK_COMPUTE, -1, 1);
    cut_task(b, compute, 2);
    add_dep(b, compute + 1, recv + 1, FO_DEP_ROWS);
    return s;
}

/* That the first rows of a computation have been sent does not mean that the last are finished. */
static void test_streamed_prefix(void **state)
{
    fo_verdict verdict;
    (void)state;
    set s = halves(true);
    if (verify(&s, &verdict) != FO_OK)
        fail_msg("a message in two halves: %s", verdict.text);
    destroy(&s);
    s = halves(false);
    refused(&s, "a SEND that follows the first half of its rows", "rank 0");
}

/* Received rows may be views of the sender's memory: the buffer itself need not exist. */
static void test_views_only(void **state)
{
    (void)state;
    /* one computation on two messages */
    set s = build(FO_PATTERN_GATHER, "flash", 2, 8, 1);
    cut_task(s.programs[0], nth_task(s.programs[0], FO_TASK_SEND, 0, 0), 2);
    int32_t recv = nth_task(s.programs[1], FO_TASK_RECV, 0, 0);
    cut_task(s.programs[1], recv, 2);
    int32_t compute = nth_task(s.programs[1], FO_TASK_COMPUTE, -1, 1);
    s.programs[1]->tasks[compute].dep_count = 0;
    add_dep(s.programs[1], compute, recv, FO_DEP_DONE);
    add_dep(s.programs[1], compute, recv + 1, FO_DEP_DONE);
    refused(&s, "a computation on two messages", "rank 1");
    /* a computation that writes where messages arrive, and a message that arrives among partials */
    s = build(FO_PATTERN_REDUCE, "flash", 2, 8, 1);
    fo_program *p = s.programs[0];
    int32_t send = nth_task(p, FO_TASK_SEND, 1, 0), first = nth_task(p, FO_TASK_COMPUTE, -1, 0);
    int32_t staging = p->tasks[nth_task(p, FO_TASK_RECV, 1, 0)].out.buffer;
    p->tasks[first].out.buffer = p->tasks[send].in.buffer = staging;
    p->tasks[first].out.row = p->tasks[send].in.row = 0;
    refused(&s, "a computation into STAGING", "rank 0");
    s = build(FO_PATTERN_REDUCE, "flash", 2, 8, 1);
    fo_task *arrives = task_of(&s, 0, FO_TASK_RECV, 1, 0),
            *adds = task_of(&s, 0, FO_TASK_COMPUTE, -1, 1);
    fo_ref partial = task_of(&s, 0, FO_TASK_SEND, 1, 0)->in;
    partial.row += 4;
    arrives->out = adds->add = partial;
    refused(&s, "a RECV into PARTIAL", "rank 0");
}

static void test_later_dependency(void **state)
{
    (void)state;
    set s = flash(FO_PATTERN_GATHER);
    add_dep(s.programs[0], 2, 2, FO_DEP_DONE);
    refused(&s, "a task that waits for itself", "rank 0 task 2");
    s = flash(FO_PATTERN_GATHER);
    add_dep(s.programs[0], 2, 5, FO_DEP_DONE);
    refused(&s, "a task that waits for a later one", "rank 0 task 2");
    s = flash(FO_PATTERN_GATHER);
    add_dep(s.programs[0], 2, -1, FO_DEP_DONE);
    refused(&s, "a dependency on no task", "rank 0 task 2");
}

static void test_streams_from_other_rows(void **state)
{
    (void)state;
    set s = flash(FO_PATTERN_GATHER);
    fo_program *p = s.programs[0];
    int32_t second = nth_task(p, FO_TASK_COMPUTE, -1, 3);
    add_dep(p, second, nth_task(p, FO_TASK_COMPUTE, -1, 2), FO_DEP_ROWS);
    refused(&s, "rows of another slice", "rank 0");
}

/* A slot is filled again while the partial in it may still be leaving. */
static void test_early_overwrite(void **state)
{
    (void)state;
    for (int which = 0; which < 2; which++) {
        set s = build(FO_PATTERN_REDUCE, "flash", 8, 32, 1);
        fo_program *p = s.programs[0];
        for (int n = 0; n < 7; n++) {
            fo_task *task = &p->tasks[nth_task(p, which ? FO_TASK_RECV : FO_TASK_COMPUTE, -1, n)];
            fo_ref *ref = &task->out;
            /* slots of a shard of 4 rows: three become two */
            if (p->buffers[ref->buffer].role == FO_BUFFER_PARTIAL ||
                p->buffers[ref->buffer].role == FO_BUFFER_STAGING) {
                int32_t buffer = ref->buffer;
                int64_t from = ref->row, to = task->step % 2 * 4;
                ref->row = to;
                for (int32_t t = (int32_t)(task - p->tasks) + 1; t < p->task_count; t++) {
                    fo_task *user = &p->tasks[t];
                    fo_ref *read = which ? &user->add : &user->in;
                    if (user->shard == task->shard && read->buffer == buffer && read->row == from)
                        read->row = to;
                }
            }
        }
        refused(&s, "a slot used again too early", "rank 0");
    }
}

/* ---- sums ------------------------------------------------------------------------------------------ */

/* Contributions of two ranks to a slice change places: all messages match, every rank adds once. */
static void test_swapped_add_order(void **state)
{
    (void)state;
    set s = build(FO_PATTERN_REDUCE, "direct", 5, 20, 1);
    fo_task *first = task_of(&s, 0, FO_TASK_ADD, -1, 1),
            *second = task_of(&s, 0, FO_TASK_ADD, -1, 2);
    fo_ref add = first->add;
    first->add = second->add;
    second->add = add;
    fo_program *p = s.programs[0];
    for (int n = 1; n <= 2; n++) /* both wait for everything, so that only the order is wrong */
        for (int k = 0; k < 4; k++) {
            int32_t recv = nth_task(p, FO_TASK_RECV, 1, k), t = nth_task(p, FO_TASK_ADD, -1, n);
            if (recv < t)
                add_dep(p, t, recv, FO_DEP_DONE);
        }
    refused(&s, "additions in another order", "rank 0");
}

/* ((1 + 2) + 3) + 0 is wanted; (1 + 2) + (3 + 0) has other bits. */
static void test_sum_as_a_tree(void **state)
{
    (void)state;
    set s = build(FO_PATTERN_REDUCE, "direct", 4, 16, 1);
    fo_program *p = s.programs[0];
    fo_task *last_add = task_of(&s, 0, FO_TASK_ADD, -1, 1);
    int32_t own = nth_task(p, FO_TASK_COMPUTE, -1, 3), add = (int32_t)(last_add - p->tasks);
    assert_true(add < own && p->tasks[own].add.buffer == last_add->out.buffer);
    /* the own computation adds what came last, in room of its own; then the two sums are added */
    fo_ref sum = last_add->out, arrived = last_add->add, output = p->tasks[own].out;
    fo_ref spare = {sum.buffer, p->buffers[sum.buffer].rows};
    p->buffers[sum.buffer].rows += last_add->rows;
    fo_task own_task = p->tasks[own], add_task = p->tasks[add];
    own_task.add = arrived;
    own_task.out = spare;
    add_task.in = sum;
    add_task.add = spare;
    add_task.out = output;
    int32_t waits = nth_task(p, FO_TASK_RECV, 1, 2);
    own_task.dep_count = add_task.dep_count = 0;
    memmove(&p->tasks[add], &p->tasks[add + 1], (size_t)(own - add) * sizeof *p->tasks);
    p->tasks[own - 1] = own_task;
    p->tasks[own] = add_task;
    for (int32_t t = add; t < own - 1; t++)
        for (int32_t d = 0; d < p->tasks[t].dep_count; d++)
            assert_true(p->deps[p->tasks[t].dep_first + d].task < add);
    add_dep(p, own - 1, waits, FO_DEP_ROWS);
    refused(&s, "a sum as a tree", "order");
}

/* A rank adds its own contribution to a slice that already has it. */
static void test_double_contribution(void **state)
{
    (void)state;
    set s = build(FO_PATTERN_REDUCE, "none", 4, 16, 1);
    fo_task *add = task_of(&s, 2, FO_TASK_ADD, -1, 0);
    add->add = add->in;
    refused(&s, "a contribution twice", "rank 2");
    s = build(FO_PATTERN_GATHER, "flash", 4, 16, 1);
    fo_program *p = s.programs[2];
    p->tasks[nth_task(p, FO_TASK_COMPUTE, -1, 3)] = p->tasks[nth_task(p, FO_TASK_COMPUTE, -1, 2)];
    refused(&s, "a result row twice", "rank 2");
}

/* The weight gradient accumulates, so its order is part of the result. */
static void test_wgrad_order(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * (FO_PATTERN_WGRAD - FO_PATTERN_GATHER2 + 1); i++) {
        fo_pattern pattern = FO_PATTERN_GATHER2 + (fo_pattern)(i / 2);
        set s = build_on(2, pattern, i % 2 ? "none/hier" : "none", 4, 32, 1);
        fo_program *p = s.programs[3];
        int32_t found[2] = {-1, -1};
        for (int32_t t = 0; t < p->task_count; t++)
            if (p->tasks[t].kind == FO_TASK_COMPUTE && p->tasks[t].slot == 1) {
                found[0] = found[1];
                found[1] = t;
            }
        fo_task *a = &p->tasks[found[0]], *b = &p->tasks[found[1]], old = *a;
        *a = *b;
        *b = old;
        refused(&s, "weight gradients in another order", "rank 3");
    }
}

/* ---- sums of sums ------------------------------------------------------------------------------------- */

/* Two machines with two ranks each. */
static set nested(fo_pattern pattern, const char *strategy)
{
    return build_on(2, pattern, strategy, 4, 32, 1);
}

static void test_dropped_nested(void **state)
{
    static const fo_task_kind kinds[] = {FO_TASK_COMPUTE, FO_TASK_SEND, FO_TASK_RECV};
    (void)state;
    for (fo_pattern pattern = FO_PATTERN_GATHER; pattern <= FO_PATTERN_BLOCK; pattern++)
        for (int k = 0; k < 3; k++)
            for (int rank = 0; rank < 4; rank++)
                for (int n = 0; n < 6; n++) {
                    set s = nested(pattern, n % 2 ? "hier:2" : "none/hier");
                    drop_task(s.programs[rank], nth_task(s.programs[rank], kinds[k], -1, n / 2));
                    refused(&s, "a dropped task", "rank");
                }
}

/* The right program for another order: one ring where nesting is promised, and the other way round. */
static void test_promised_order(void **state)
{
    static const char *const flat[] = {"none", "slice:2", "ring", "flash:2", "direct"};
    static const char *const nesting[] = {"hier:2", "none/hier"};
    (void)state;
    for (fo_pattern pattern = FO_PATTERN_REDUCE; pattern <= FO_PATTERN_BLOCK; pattern++) {
        for (int i = 0; i < 5; i++) {
            set s = build(pattern, flat[i], 4, 32, 1);
            for (int r = 0; r < 4; r++)
                s.programs[r]->nodes = 2;
            refused(&s, flat[i], "order");
        }
        for (int i = 0; i < 2; i++) {
            set s = nested(pattern, nesting[i]);
            for (int r = 0; r < 4; r++)
                s.programs[r]->nodes = 1;
            refused(&s, nesting[i], "order");
        }
    }
    for (int nodes = -1; nodes <= 5; nodes += 3) { /* not machines of four ranks */
        set s = nested(FO_PATTERN_GATHER, "hier");
        for (int r = 0; r < 4; r++)
            s.programs[r]->nodes = nodes == 2 ? 3 : nodes;
        refused(&s, "machines of different sizes", "0");
    }
    set s = nested(FO_PATTERN_GATHER, "hier");
    s.programs[2]->nodes = 4;
    refused(&s, "ranks that disagree on machines", "2");
}

/* (own + other machine's) + neighbour's, where the machine's own sum has to be finished first: every rank's
 * contribution once, and the messages match. */
static void test_wrong_nesting(void **state)
{
    static const char *const strategies[] = {"hier:1", "none/hier"};
    (void)state;
    for (int i = 0; i < 2; i++)
        for (int rank = 0; rank < 4; rank++) {
            set s = nested(FO_PATTERN_REDUCE, strategies[i]);
            fo_program *p = s.programs[rank];
            int32_t second = -1, first = -1; /* the two last additions are of one shard */
            for (int32_t t = 0; t < p->task_count; t++)
                if (p->tasks[t].add.buffer >= 0) {
                    first = second;
                    second = t;
                }
            assert_int_equal(p->tasks[first].shard, p->tasks[second].shard);
            int32_t slow = -1, fast = -1; /* what they add */
            for (int32_t t = 0; t < p->task_count; t++)
                if (p->tasks[t].kind == FO_TASK_RECV && p->tasks[t].shard == rank)
                    *(p->tasks[t].peer / 2 == rank / 2 ? &fast : &slow) = t;
            fo_ref add = p->tasks[first].add;
            p->tasks[first].add = p->tasks[second].add;
            p->tasks[second].add = add;
            if (slow > first) /* none/hier receives it later: before both, then */
                for (int32_t t = slow; t > first; t--) {
                    fo_task moved = p->tasks[t];
                    p->tasks[t] = p->tasks[t - 1];
                    p->tasks[t - 1] = moved;
                    if (t - 1 == first) {
                        slow = first;
                        first++;
                    }
                }
            add_dep(p, first, slow, FO_DEP_DONE);
            add_dep(p, second, fast, FO_DEP_DONE);
            refused(&s, strategies[i], "order");
        }
}

/* A machine's sum is lost, or added twice. */
static void test_lost_machine(void **state)
{
    (void)state;
    for (int change = 0; change < 3; change++) {
        set s = nested(FO_PATTERN_REDUCE, "hier:1");
        fo_task *add = task_of(&s, 1, FO_TASK_ADD, -1, 0);
        if (change == 0) {
            add->kind = FO_TASK_COPY; /* only what arrived */
            add->in = add->add;
            add->add.buffer = -1;
        } else if (change == 1) {
            add->kind = FO_TASK_COPY; /* only the own machine's */
            add->add.buffer = -1;
        } else {
            add->add = add->in;
        }
        refused(&s, "a machine that counts twice or not at all", "rank 1");
    }
}

/* Slow and fast messages that change places: what arrives is of another shard. */
static void test_swapped_rings(void **state)
{
    (void)state;
    for (fo_pattern pattern = FO_PATTERN_GATHER; pattern <= FO_PATTERN_BLOCK; pattern++) {
        set s = nested(pattern, "hier:1");
        int sums = pattern == FO_PATTERN_REDUCE;
        fo_task *a = task_of(&s, 3, FO_TASK_SEND, sums, 0);
        fo_task *b = task_of(&s, 3, FO_TASK_SEND, sums, 2 - sums);
        int32_t peer = a->peer;
        assert_true(a->peer != b->peer && a->shard != b->shard);
        a->peer = b->peer;
        b->peer = peer;
        refused(&s, "messages on the wrong ring", "rank 3");
    }
}

/* ---- waiting ---------------------------------------------------------------------------------------- */

/* Every rank sends only when it has received: nobody begins. */
static void test_wait_cycle(void **state)
{
    (void)state;
    set s = build(FO_PATTERN_GATHER, "flash", 3, 12, 1);
    for (int r = 0; r < 3; r++) {
        fo_program *p = s.programs[r];
        int32_t send = nth_task(p, FO_TASK_SEND, 0, 0), recv = nth_task(p, FO_TASK_RECV, 0, 0);
        assert_true(recv < send);
        add_dep(p, send, recv, FO_DEP_DONE);
    }
    refused(&s, "a ring where nobody begins", "deadlock");
}

/* Receives that wait for sends: they may under eager sending, not under rendezvous. */
static void test_rendezvous(void **state)
{
    (void)state;
    set s = build(FO_PATTERN_REDUCE, "direct", 2, 8, 1);
    for (int r = 0; r < 2; r++) {
        fo_program *p = s.programs[r];
        int32_t recv = nth_task(p, FO_TASK_RECV, 1, 0), send = nth_task(p, FO_TASK_SEND, 1, 0);
        fo_task moved = p->tasks[recv];
        assert_true(recv < send);
        /* the receive goes behind the send in the list */
        for (int32_t t = 0; t < p->task_count; t++)
            for (int32_t d = 0; d < p->tasks[t].dep_count; d++) {
                int32_t *on = &p->deps[p->tasks[t].dep_first + d].task;
                if (*on == recv)
                    *on = send;
                else if (*on > recv && *on <= send)
                    --*on;
            }
        memmove(&p->tasks[recv], &p->tasks[recv + 1], (size_t)(send - recv) * sizeof *p->tasks);
        p->tasks[send] = moved;
        add_dep(p, send, send - 1, FO_DEP_DONE);
    }
    refused(&s, "receives posted after sends end", "deadlock");
}

/* Reading in place: a shard that is forwarded stays in use until the last rank has computed on it, so a
 * ring can't wait for its own forwarding. */
static void test_waits_for_forwarding(void **state)
{
    (void)state;
    set s = build(FO_PATTERN_GATHER, "flash", 4, 16, 1);
    for (int r = 0; r < 4; r++) {
        fo_program *p = s.programs[r];
        add_dep(p, nth_task(p, FO_TASK_SEND, 0, 2), nth_task(p, FO_TASK_SEND, 0, 1), FO_DEP_DONE);
    }
    refused(&s, "a ring that waits for its forwarding", "deadlock");
}

/* ---- programs that do not belong together --------------------------------------------------------- */

static void test_foreign_programs(void **state)
{
    (void)state;
    for (int change = 0; change < 4; change++) {
        set s = flash(FO_PATTERN_GATHER);
        if (change == 0)
            s.programs[1]->rank = 2;
        else if (change == 1)
            s.programs[1]->rows = 40;
        else if (change == 2)
            s.programs[1]->stream_rows = 3;
        else
            s.programs[1]->ranks = 5;
        refused(&s, "a program of another operation", "1");
    }
    set s = flash(FO_PATTERN_GATHER), other = build(FO_PATTERN_GATHER, "direct:2", 4, 32, 1);
    fo_program *swap = s.programs[1];
    s.programs[1] = other.programs[1];
    other.programs[1] = swap;
    destroy(&other);
    refused(&s, "a rank with another strategy", "rank");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dropped_tasks),
        cmocka_unit_test(test_dropped_add),
        cmocka_unit_test(test_dropped_slice),
        cmocka_unit_test(test_swapped_sends),
        cmocka_unit_test(test_wrong_peer),
        cmocka_unit_test(test_wrong_channel),
        cmocka_unit_test(test_wrong_rows),
        cmocka_unit_test(test_wrong_buffers),
        cmocka_unit_test(test_dropped_deps),
        cmocka_unit_test(test_streamed_prefix),
        cmocka_unit_test(test_views_only),
        cmocka_unit_test(test_later_dependency),
        cmocka_unit_test(test_streams_from_other_rows),
        cmocka_unit_test(test_early_overwrite),
        cmocka_unit_test(test_swapped_add_order),
        cmocka_unit_test(test_sum_as_a_tree),
        cmocka_unit_test(test_double_contribution),
        cmocka_unit_test(test_wgrad_order),
        cmocka_unit_test(test_dropped_nested),
        cmocka_unit_test(test_promised_order),
        cmocka_unit_test(test_wrong_nesting),
        cmocka_unit_test(test_lost_machine),
        cmocka_unit_test(test_swapped_rings),
        cmocka_unit_test(test_wait_cycle),
        cmocka_unit_test(test_rendezvous),
        cmocka_unit_test(test_waits_for_forwarding),
        cmocka_unit_test(test_foreign_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
