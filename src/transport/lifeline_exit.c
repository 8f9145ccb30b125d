/* Lifelines that are open when the process exits or forks. A process that calls exit() says with which code,
 * and a forked child keeps no descriptor: it would keep a dead rank's connection open. */
#include <stdlib.h>
#include <unistd.h>

#include "transport/lifeline_state.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static fo_lifeline *open_lines; /* under lock */

/* exit() has been called: main() has returned, or somebody gave up. */
static void on_process_exit(int code, void *arg)
{
    (void)arg;
    pthread_mutex_lock(&lock);
    for (fo_lifeline *l = open_lines; l; l = l->next) {
        if (l->ended || l->pid != getpid())
            continue;
        l->exit_code = code & 0xff;
        atomic_store(&l->order, LINE_LEAVE_EXITING);
        fo_transport_lifeline_wake(l);
        pthread_join(l->thread, NULL);
        l->ended = true;
    }
    pthread_mutex_unlock(&lock);
}

/* No thread is in the middle of opening or closing a descriptor while the process forks. */
static void before_fork(void)
{
    pthread_mutex_lock(&lock);
    for (fo_lifeline *l = open_lines; l; l = l->next)
        pthread_mutex_lock(&l->turn);
}

static void after_fork(void)
{
    for (fo_lifeline *l = open_lines; l; l = l->next)
        pthread_mutex_unlock(&l->turn);
    pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
    for (fo_lifeline *l = open_lines; l; l = l->next)
        if (!l->ended)
            fo_transport_lifeline_shut(l);
    after_fork();
}

static void hook(void)
{
    on_exit(on_process_exit, NULL);
    pthread_atfork(before_fork, after_fork, in_child);
}

void fo_transport_lifeline_enlist(fo_lifeline *lifeline)
{
    pthread_once(&once, hook);
    pthread_mutex_lock(&lock);
    lifeline->next = open_lines;
    open_lines = lifeline;
    pthread_mutex_unlock(&lock);
}

bool fo_transport_lifeline_delist(fo_lifeline *lifeline)
{
    pthread_mutex_lock(&lock);
    fo_lifeline **at = &open_lines;
    while (*at && *at != lifeline)
        at = &(*at)->next;
    if (*at)
        *at = lifeline->next;
    bool running = !lifeline->ended && lifeline->pid == getpid();
    pthread_mutex_unlock(&lock);
    return running;
}
