/* The last words of a process in a job. Launchers kill what is left of a job within milliseconds of a death, and
 * message libraries end a process that finds its peer gone: either can come before the process has said why. So each
 * keeps a small process of its own, forked before the message library begins, that reads a pipe and outlives it: it
 * says what it was given to say, and ends a process that a failure finds stuck inside its library.
 *
 * Where a launcher kills even before the news of a death has come, the heralds of a host know better than anyone: the
 * one whose process ended first, without a goodbye, says that it died, should nobody else say anything.
 */
#ifndef FO_TRANSPORT_HERALD_H
#define FO_TRANSPORT_HERALD_H

#include <stdbool.h>

/* Forks it, unless there is one. Without one (false) the others do nothing, and fo_transport_herald_say says so. */
bool fo_transport_herald_open(void);

/* The group has failed: should this process end before it has said anything, this line is said for it (NULL: nothing).
 * Unless fo_transport_herald_heard follows within some seconds, it is killed. Any thread. */
void fo_transport_herald_hold(const char *line);
/* What is to be said after a held line, "" at first; what to do next. */
void fo_transport_herald_advise(const char *advice);
/* The program has noticed the failure and goes on by itself. May come before the line is held: the thread that holds it
 * can be late. Holds until fo_transport_herald_meet. */
void fo_transport_herald_heard(void);
/* Says the line on standard error, once; false: there is no herald, say it yourself. */
bool fo_transport_herald_say(const char *line);

/* What all processes of the job know and nobody else: heralds of one host find each other by it. `name`: of this process,
 * "rank 1 (pid 123)", for its own. */
void fo_transport_herald_meet(const void *key, int bytes, const char *name);
/* The process leaves in order: nothing is said for it any more. One that is still there 10 s later is killed. */
void fo_transport_herald_goodbye(void);

/* Whether a line is held: safe in a signal handler. */
bool fo_transport_herald_holds(void);

#endif
