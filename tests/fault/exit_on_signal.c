/* Loaded with LD_PRELOAD into every process of a job: the one that gets SIGRTMIN + 5 calls exit(3) wherever it
 * is, as a library in despair does. All others are as without it. */
#include <signal.h>
#include <stdlib.h>

static void leave(int number)
{
    (void)number;
    exit(3);
}

__attribute__((constructor)) static void listen_for_it(void)
{
    struct sigaction action = {.sa_handler = leave};
    sigemptyset(&action.sa_mask);
    sigaction(SIGRTMIN + 5, &action, NULL);
}
