/* A binary heap, and turns within a moment. */
#include "sim/queue.h"

#include <stdlib.h>

static bool reserve(fo_sim_queue *queue, fo_sim_happens_list *list)
{
    if (list->count < list->capacity)
        return true;
    int64_t capacity = list->capacity ? 2 * list->capacity : 256;
    fo_sim_happens *of = realloc(list->of, (size_t)capacity * sizeof *of);
    if (!of) {
        queue->failed = true;
        return false;
    }
    list->of = of;
    list->capacity = capacity;
    return true;
}

void fo_sim_queue_free(fo_sim_queue *queue)
{
    free(queue->later.of);
    free(queue->next.of);
    free(queue->turn.of);
}

static void append(fo_sim_queue *queue, fo_sim_happens_list *list, const fo_sim_happens *happens)
{
    if (reserve(queue, list))
        list->of[list->count++] = *happens;
}

void fo_sim_queue_add(fo_sim_queue *queue, const fo_sim_happens *happens)
{
    if (happens->at_s <= queue->now_s) {
        append(queue, &queue->next, happens);
        return;
    }
    if (!reserve(queue, &queue->later))
        return;
    fo_sim_happens *heap = queue->later.of;
    int64_t at = queue->later.count++;
    while (at > 0 && heap[(at - 1) / 2].at_s > happens->at_s) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = *happens;
}

/* Takes the first of the heap. */
static void take(fo_sim_queue *queue)
{
    fo_sim_happens *heap = queue->later.of;
    append(queue, &queue->turn, &heap[0]);
    int64_t count = --queue->later.count, at = 0;
    fo_sim_happens last = heap[count];
    for (int64_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && heap[child + 1].at_s < heap[child].at_s)
            child++;
        if (heap[child].at_s >= last.at_s)
            break;
        heap[at] = heap[child];
    }
    heap[at] = last;
}

static int compare(const void *left, const void *right)
{
    const fo_sim_happens *a = left, *b = right;
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    if (a->task != b->task)
        return a->task < b->task ? -1 : 1;
    if (a->chunk != b->chunk)
        return a->chunk < b->chunk ? -1 : 1;
    if (a->order != b->order)
        return a->order < b->order ? -1 : 1;
    return (a->rank > b->rank) - (a->rank < b->rank);
}

static void sort(fo_sim_happens_list *turn)
{
    enum { FEW = 8 };
    if (turn->count > FEW) {
        qsort(turn->of, (size_t)turn->count, sizeof *turn->of, compare);
        return;
    }
    for (int64_t i = 1; i < turn->count; i++) {
        fo_sim_happens one = turn->of[i];
        int64_t at = i;
        for (; at > 0 && compare(&turn->of[at - 1], &one) > 0; at--)
            turn->of[at] = turn->of[at - 1];
        turn->of[at] = one;
    }
}

bool fo_sim_queue_advance(fo_sim_queue *queue)
{
    queue->turn.count = 0;
    if (queue->next.count) {
        fo_sim_happens_list spare = queue->turn;
        queue->turn = queue->next;
        queue->next = spare;
    } else if (queue->later.count) {
        queue->now_s = queue->later.of[0].at_s;
        while (queue->later.count && queue->later.of[0].at_s == queue->now_s && !queue->failed)
            take(queue);
    }
    sort(&queue->turn);
    return queue->turn.count > 0 && !queue->failed;
}
